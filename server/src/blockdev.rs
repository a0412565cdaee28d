//! Block devices of the kernel that this process serves.
//!
//! # The idea
//! The kernel has two kinds of block devices whose requests a program answers. The daemon uses them through
//! [`BlockDevices`], so that tests can replace the kernel.
//!
//! | module | kind | device | what the kernel needs |
//! |---|---|---|---|
//! | `ublk` | requests over io_uring, data by one copy | `/dev/ublkbN` | Linux 6.5, module `ublk_drv` |
//! | `kernel_nbd` | the kernel's NBD client, on a socket | `/dev/nbdN` | module `nbd` |
//!
//! In both cases a device is a client of the volume like any other: its requests end at an export
//! ([`crate::block::Export`]). A device belongs to the process: when the process dies, users of the device get
//! errors.

mod kernel_nbd;
pub mod ublk;

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use crate::block::Export;
use crate::fuse::Table;
use crate::nbd::{self, Chosen};
use crate::runtime::Shards;

pub use kernel_nbd::KernelNbd;
pub use ublk::Ublk;

/// How long the kernel may take to begin or end.
const PATIENCE: Duration = Duration::from_secs(10);
/// How often that is looked at.
const LOOK: Duration = Duration::from_millis(2);
/// Bytes of a sector of the devices, as OpenZFS's volumes have.
const SECTOR_BYTES: u64 = 512;
/// Most names in a directory that are looked at.
const MAX_NAMES: usize = 4096;

/// A volume for which a device is to be made, and the ways to its data.
pub struct Offered<'a, E> {
    /// Its name.
    pub name: &'a str,
    /// Where it is served over NBD.
    pub socket: &'a Path,
    /// The threads that serve volumes.
    pub shards: &'a Arc<Shards>,
    /// Opens it once more, as for a client.
    pub open: &'a dyn Fn() -> io::Result<Arc<E>>,
}

impl<E> Offered<'_, E> {
    /// Chooses it on an NBD connection of its own. Blocks the thread.
    ///
    /// # Errors
    /// The server is not there or refuses, with its words.
    pub fn choose(&self) -> io::Result<Chosen> {
        nbd::choose(self.socket, self.name)
    }
}

/// A maker of block devices for volumes that are such exports.
pub trait BlockDevices<E: Export>: std::fmt::Debug + Send + Sync {
    /// Whether devices can be made at all.
    fn is_there(&self) -> bool;

    /// Makes a device. Blocks the thread.
    ///
    /// # Errors
    /// There is no such thing here, or none is free.
    fn attach(&self, volume: &Offered<'_, E>) -> io::Result<Box<dyn BlockDevice>>;

    /// Removes what daemons left behind that died. Blocks the thread.
    ///
    /// # Errors
    /// The kernel refuses.
    fn clear_left(&self) -> io::Result<()>;

    /// Whether this is a device of this kind that no process serves any more.
    fn is_left(&self, node: &Path) -> bool;
}

/// A device that was made. It is there until it is detached; dropping it changes nothing.
pub trait BlockDevice: std::fmt::Debug + Send {
    /// Where it is.
    fn node(&self) -> &Path;

    /// Whether it is mounted, or otherwise claimed by the kernel.
    fn is_in_use(&self) -> bool;

    /// The export has another size from now on.
    ///
    /// # Errors
    /// The kernel refuses; [`io::ErrorKind::Unsupported`] where a device that is attached again would have
    /// the new size.
    fn resize(&mut self, size_bytes: u64) -> io::Result<()>;

    /// Has the kernel write what it keeps of it. Blocks the thread.
    ///
    /// # Errors
    /// Its dirty data cannot be written, or not within `limit`.
    fn flush(&mut self, limit: Duration) -> io::Result<()>;

    /// Ends it although it is in use, without data that were not written. With `fails`, requests fail from
    /// now on that wait for the pool. Blocks the thread.
    ///
    /// # Errors
    /// The kernel refuses, or does not come to an end.
    fn detach(&mut self, fails: bool) -> io::Result<()>;
}

/// Whether the kernel uses the device exclusively: a mount, or another device above it.
fn is_claimed(node: &Path, is_read_only: bool) -> bool {
    let exclusive = File::options().read(true).write(!is_read_only).custom_flags(libc::O_EXCL).open(node);
    exclusive.is_err_and(|error| error.raw_os_error() == Some(libc::EBUSY))
}

/// Has what the kernel keeps of a device written, and what filesystems on it keep, and waits for that no
/// longer than `limit`.
fn sync_within(node: &Path, device: File, limit: Duration) -> io::Result<()> {
    let (tell, told) = mpsc::channel();
    let node = node.to_owned();
    thread::Builder::new().name("flush device".into()).spawn(move || {
        let synced = sync_filesystems_on(&node).and(device.sync_all());
        // Who waits may have given up.
        let _ = tell.send(synced);
    })?;
    told.recv_timeout(limit).map_err(|_| timed_out("dirty data in the kernel were not written in time"))?
}

/// Has the filesystems on a device, and on its partitions, write what they keep.
fn sync_filesystems_on(node: &Path) -> io::Result<()> {
    let Some(name) = node.file_name() else { return Ok(()) };
    for (number, at) in Table::read()?.all() {
        let of = format!("/sys/dev/block/{}:{}", libc::major(number), libc::minor(number));
        // It leads to the device, or to a partition in its directory. Filesystems without a device have none.
        let is_on = fs::read_link(of).is_ok_and(|to| to.iter().any(|part| part == name));
        if is_on {
            rustix::fs::syncfs(File::open(at)?)?;
        }
    }
    Ok(())
}

/// The number in the name of a device.
fn number_of(name: &str, kind: &str) -> Option<u32> {
    let digits = name.strip_prefix(kind)?;
    digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())?
}

fn timed_out(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, what)
}
