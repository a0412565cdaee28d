//! Block devices by ublk: the kernel hands requests to this process over io_uring.
//!
//! # The idea
//! A device has a few queues, each of which lives on one shard as a connection of NBD does (`queue`), with
//! an export of its own. Data are copied once between the kernel's pages and ours. There is no socket and no
//! protocol between the kernel and the volume, and requests come on several threads.
//!
//! | module | what it owns |
//! |---|---|
//! | `layout` | numbers and structures, as pure functions |
//! | `kernel` | what the kernel is asked through, so that tests can put something else there |
//! | `queue` | serving the requests of one queue |
//!
//! # Life of a device
//! | step | kernel | here |
//! |---|---|---|
//! | `ADD_DEV` | `/dev/ublkcN` is there | marked as ours, with the number of this process |
//! | `SET_PARAMS` | knows size and blocks | what the export is like |
//! | queues begin | has all tags | a task for each on the shards |
//! | `START_DEV` | `/dev/ublkbN` is there, and its partitions are read | requests come already |
//! | `STOP_DEV` | writes what it keeps, `/dev/ublkbN` is gone, tags come back | queues end |
//! | `DEL_DEV` | the number is free | |
//!
//! What waits for a pool that does not answer would keep `STOP_DEV` waiting: after `PATIENCE`, or at once
//! where that is known, the queues fail all requests.
//!
//! # What a process leaves behind that dies
//! The kernel ends its block devices; `/dev/ublkcN` stays. It is removed at the next start, or before the
//! next device is made: only where it has our mark, has no block device, and its process is gone.

pub mod kernel;
mod layout;
mod queue;

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use device::IgnorePoison;
use tokio::sync::oneshot;

use super::{BlockDevice, BlockDevices, LOOK, Offered, PATIENCE, is_claimed, sync_within, timed_out};
use crate::block::Export;
use crate::runtime::Shards;
use kernel::{Character, Driver, Kernel};
use layout::{ANY_DEVICE, FEATURES_BYTES, IOCTL_ENCODED, Info, Parameters, UPDATE_SIZE, USER_COPY};
pub use layout::{Command, Header};
use queue::Serving;

/// Requests of a queue that may be under way.
const DEPTH: u16 = 64;
/// Most bytes of a request. With the depth, as many as a connection of NBD may have under way.
const REQUEST_BYTES: u32 = 512 << 10;
/// Most queues of a device.
const MOST_QUEUES: usize = 4;
/// How often a command is given again that a signal ended.
const ATTEMPTS: usize = 8;

/// In the upper half of what a device keeps for its server: it is of this program. The process is in the
/// lower half.
const MARK: u64 = 0x436e_7465 << 32;

/// The ublk driver of the kernel.
#[derive(Debug)]
pub struct Ublk {
    kernel: Arc<dyn Kernel>,
    /// Numbers of devices that this has made.
    own: Arc<Mutex<BTreeSet<u32>>>,
}

impl Default for Ublk {
    fn default() -> Self {
        Self::of(Arc::new(Driver::default()))
    }
}

impl Ublk {
    /// With this for the kernel.
    pub fn of(kernel: Arc<dyn Kernel>) -> Self {
        Self { kernel, own: Arc::default() }
    }

    fn own(&self) -> MutexGuard<'_, BTreeSet<u32>> {
        self.own.lock().ignore_poison()
    }

    /// The kernel's capabilities.
    fn features(&self) -> io::Result<u64> {
        let mut bytes = [0; FEATURES_BYTES];
        let header = Header { device: ANY_DEVICE, data: 0 };
        let asked = self.kernel.control(Command::GetFeatures, header, &mut bytes, PATIENCE);
        asked.map_err(|error| {
            let (kind, why) = match error.kind() {
                io::ErrorKind::NotFound => (
                    io::ErrorKind::NotFound,
                    "the kernel has no /dev/ublk-control: load its module \
                     ('modprobe ublk_drv'; Linux 6.5 or later)"
                        .into(),
                ),
                // A device that is not there, to a kernel that does not know the question.
                _ if matches!(error.raw_os_error(), Some(libc::ENODEV | libc::EOPNOTSUPP | libc::EINVAL)) => {
                    (io::ErrorKind::Unsupported, OLD.into())
                }
                kind => (kind, format!("ublk cannot be used: {error}")),
            };
            io::Error::new(kind, why)
        })?;
        let features = u64::from_ne_bytes(bytes);
        match features & (IOCTL_ENCODED | USER_COPY) == IOCTL_ENCODED | USER_COPY {
            true => Ok(features),
            false => Err(io::Error::new(io::ErrorKind::Unsupported, OLD)),
        }
    }

    /// Adds a device, and opens it.
    fn add(&self, queues: u16, features: u64) -> io::Result<UblkDevice> {
        let info = Info {
            queues,
            depth: DEPTH,
            is_dead: true,
            request_bytes: REQUEST_BYTES,
            id: ANY_DEVICE,
            features: IOCTL_ENCODED | USER_COPY,
            mark: MARK | u64::from(std::process::id()),
        };
        // As long as it is not known as ours, it is not to be taken for one that was left.
        let mut own = self.own();
        let mut bytes = info.encode();
        let header = Header { device: ANY_DEVICE, data: 0 };
        self.kernel.control(Command::Add, header, &mut bytes, PATIENCE)?;
        let info = Info::parse(&bytes);
        own.insert(info.id);
        drop(own);
        let mut device = UblkDevice {
            kernel: Arc::clone(&self.kernel),
            own: Arc::clone(&self.own),
            node: self.kernel.node(info.id),
            info,
            queues: Vec::new(),
            is_read_only: true,
            can_resize: features & UPDATE_SIZE != 0,
            is_stopped: false,
        };
        if info.features & USER_COPY == 0 || info.queues == 0 || info.depth == 0 {
            device.detach(true)?;
            return Err(io::Error::new(io::ErrorKind::Unsupported, OLD));
        }
        Ok(device)
    }
}

const OLD: &str = "this kernel's ublk is too old (Linux 6.5 or later is needed, with CONFIG_BLK_DEV_UBLK); \
    use its NBD client";

impl<E: Export> BlockDevices<E> for Ublk {
    fn is_there(&self) -> bool {
        self.features().is_ok()
    }

    fn attach(&self, volume: &Offered<'_, E>) -> io::Result<Box<dyn BlockDevice>> {
        let features = self.features()?;
        if let Err(error) = BlockDevices::<E>::clear_left(self) {
            tracing::warn!(%error, "cannot remove the ublk devices of a daemon that died");
        }
        let export = (volume.open)()?;
        let queues = volume.shards.count().clamp(1, MOST_QUEUES);
        // There are at most as many as the bound.
        let mut device = self.add(queues as u16, features)?;
        match device.begin(volume, export) {
            Ok(()) => Ok(Box::new(device)),
            Err(error) => {
                if let Err(left) = device.detach(true) {
                    let id = device.info.id;
                    tracing::warn!(%left, id, "cannot remove a ublk device that did not start");
                }
                Err(error)
            }
        }
    }

    fn clear_left(&self) -> io::Result<()> {
        let mut result = Ok(());
        let own = self.own();
        for id in self.kernel.ids()?.into_iter().filter(|id| !own.contains(id)) {
            let mut bytes = [0; Info::BYTES];
            let header = Header { device: id, data: 0 };
            if self.kernel.control(Command::GetInfo, header, &mut bytes, PATIENCE).is_err() {
                // It has just gone, or is none of ours to ask.
                continue;
            }
            let info = Info::parse(&bytes);
            let process = (info.mark & u64::from(u32::MAX)) as u32;
            let is_alive = process != std::process::id() && Path::new(&format!("/proc/{process}")).exists();
            if info.mark & !u64::from(u32::MAX) != MARK || !info.is_dead || is_alive {
                continue;
            }
            match delete(&*self.kernel, id) {
                Ok(()) => tracing::info!(id, process, "removed a ublk device of a daemon that died"),
                Err(error) => result = Err(error),
            }
        }
        result
    }

    fn is_left(&self, node: &Path) -> bool {
        kernel::is_gone(&*self.kernel, node)
    }
}

/// Removes a device that has no block device.
fn delete(kernel: &dyn Kernel, id: u32) -> io::Result<()> {
    let delete = |command| match kernel.control(command, Header { device: id, data: 0 }, &mut [], PATIENCE) {
        Err(error) if error.raw_os_error() == Some(libc::ENODEV) => Ok(()),
        deleted => deleted,
    };
    match delete(Command::DeleteLater) {
        // Linux before 6.9.
        Err(error) if matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | libc::EINVAL)) => {
            delete(Command::Delete)
        }
        deleted => deleted,
    }
}

/// A block device by ublk.
#[derive(Debug)]
struct UblkDevice {
    kernel: Arc<dyn Kernel>,
    own: Arc<Mutex<BTreeSet<u32>>>,
    node: PathBuf,
    info: Info,
    queues: Vec<Tied>,
    is_read_only: bool,
    can_resize: bool,
    is_stopped: bool,
}

/// The link between the device and the task of one of its queues.
#[derive(Debug)]
struct Tied {
    /// Has it fail all requests.
    fails: Option<oneshot::Sender<()>>,
    /// Hears of its end.
    ended: mpsc::Receiver<()>,
}

impl UblkDevice {
    /// Has its queues served, and makes the block device.
    fn begin<E: Export>(&mut self, volume: &Offered<'_, E>, first: Arc<E>) -> io::Result<()> {
        self.is_read_only = !first.is_writable();
        let parameters = Parameters {
            size_bytes: first.size_bytes(),
            block_bytes: first.block_bytes(),
            request_bytes: self.info.request_bytes,
            is_writable: first.is_writable(),
        };
        self.control(Command::SetParameters, 0, &mut parameters.encode())?;
        let device = self.open()?;
        let mut first = Some(first);
        for number in 0..self.info.queues {
            let export = match first.take() {
                Some(export) => export,
                None => (volume.open)()?,
            };
            self.spawn(volume.shards, &device, export, number)?;
        }
        drop(device);
        for attempt in 1.. {
            match self.control(Command::Start, std::process::id().into(), &mut []) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted && attempt < ATTEMPTS => {}
                started => {
                    started?;
                    break;
                }
            }
        }
        wait_for(|| self.node.exists().then_some(Ok(())), "the kernel did not make a node for the device")
    }

    fn control(&self, command: Command, data: u64, structure: &mut [u8]) -> io::Result<()> {
        self.kernel.control(command, Header { device: self.info.id, data }, structure, PATIENCE)
    }

    /// Opens what requests come through. Its node may come a moment after it was added.
    fn open(&self) -> io::Result<Arc<dyn Character>> {
        let open = || match self.kernel.open(self.info.id) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            opened => Some(opened),
        };
        wait_for(open, "the kernel did not make a node for the device's requests")
    }

    /// Serves a queue on a shard, from when this returns until the block device is stopped.
    fn spawn<E: Export>(
        &mut self,
        shards: &Shards,
        device: &Arc<dyn Character>,
        export: Arc<E>,
        number: u16,
    ) -> io::Result<()> {
        let (fails, told) = oneshot::channel();
        let (at_end, ended) = mpsc::channel::<()>();
        let (tell, begun) = mpsc::channel();
        let (device, depth) = (Arc::clone(device), self.info.depth);
        let node = self.node.display().to_string();
        shards.spawn(async move {
            // Dropped at the end, whichever way that comes, and after what is served.
            let _at_end = at_end;
            let mut serving = match Serving::begin(device, export, (number, depth), told) {
                Ok(serving) => serving,
                Err(error) => {
                    let _ = tell.send(Err(error));
                    return;
                }
            };
            // Who asked may have given up.
            let _ = tell.send(Ok(()));
            if let Err(error) = std::future::poll_fn(|context| serving.poll(context)).await {
                tracing::error!(%error, node, "a queue of a block device is not served any more");
            }
        });
        self.queues.push(Tied { fails: Some(fails), ended });
        begun.recv_timeout(PATIENCE).map_err(|_| timed_out("a queue of the device did not start"))?
    }

    /// Has all requests fail, now and later.
    fn fail(&mut self) {
        for fails in self.queues.iter_mut().filter_map(|queue| queue.fails.take()) {
            // One that has ended has none.
            let _ = fails.send(());
        }
    }

    /// Stops the block device, for which requests are answered until it is gone.
    fn stop(&mut self) -> io::Result<()> {
        let (tell, told) = mpsc::channel();
        let (kernel, id) = (Arc::clone(&self.kernel), self.info.id);
        thread::Builder::new().name(format!("stop ublkb{id}")).spawn(move || {
            let header = Header { device: id, data: 0 };
            // Who waits may have given up.
            let _ = tell.send(kernel.control(Command::Stop, header, &mut [], 8 * PATIENCE));
        })?;
        let stopped = match told.recv_timeout(PATIENCE) {
            Err(mpsc::RecvTimeoutError::Timeout) => {
                tracing::warn!(node = %self.node.display(), "requests that do not finish are failed");
                self.fail();
                told.recv_timeout(PATIENCE)
            }
            stopped => stopped,
        };
        match stopped.map_err(|_| timed_out("the kernel does not release the device"))? {
            // Removed by another process.
            Err(error) if error.raw_os_error() == Some(libc::ENODEV) => Ok(()),
            stopped => stopped,
        }
    }
}

impl BlockDevice for UblkDevice {
    fn node(&self) -> &Path {
        &self.node
    }

    fn is_in_use(&self) -> bool {
        is_claimed(&self.node, self.is_read_only)
    }

    fn resize(&mut self, size_bytes: u64) -> io::Result<()> {
        if !self.can_resize {
            let why = "this kernel keeps the size of a ublk device (Linux 6.16 and later change it)";
            return Err(io::Error::new(io::ErrorKind::Unsupported, why));
        }
        self.control(Command::UpdateSize, size_bytes / super::SECTOR_BYTES, &mut [])
    }

    fn flush(&mut self, limit: Duration) -> io::Result<()> {
        if self.is_read_only || self.is_stopped {
            return Ok(());
        }
        match File::options().read(true).write(true).open(&self.node) {
            Ok(device) => sync_within(&self.node, device, limit),
            // The kernel ended it, as when its server dies.
            Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ENXIO)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn detach(&mut self, fails: bool) -> io::Result<()> {
        if fails {
            self.fail();
        }
        if !self.is_stopped {
            self.stop()?;
            self.is_stopped = true;
        }
        for queue in &self.queues {
            if let Err(mpsc::RecvTimeoutError::Timeout) = queue.ended.recv_timeout(PATIENCE) {
                return Err(timed_out("a queue of the device does not stop"));
            }
        }
        delete(&*self.kernel, self.info.id)?;
        self.own.lock().ignore_poison().remove(&self.info.id);
        Ok(())
    }
}

/// Looks for something until it is there, for no longer than [`PATIENCE`].
fn wait_for<T>(mut look: impl FnMut() -> Option<io::Result<T>>, otherwise: &str) -> io::Result<T> {
    let start = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        if start.elapsed() > PATIENCE {
            return Err(timed_out(otherwise));
        }
        thread::sleep(LOOK);
    }
}
