//! The kernel's NBD client.
//!
//! It turns a socket on which an export was chosen into a device `/dev/nbdN`.
//!
//! # What the kernel is told
//! | ioctl of `/dev/nbdN` | for |
//! |---|---|
//! | `NBD_SET_SOCK` | the socket; `EBUSY` where another client has the device |
//! | `NBD_SET_BLKSIZE`, `NBD_SET_SIZE_BLOCKS` | sectors of 512 bytes, as OpenZFS has them, and their number |
//! | `NBD_SET_TIMEOUT` | no limit: a pool that waits for its devices fails no request |
//! | `NBD_SET_FLAGS` | what the export can do |
//! | `NBD_DO_IT` | serves the device; it returns when that has ended, so that it has a thread of its own |
//! | `NBD_DISCONNECT`, `NBD_CLEAR_SOCK` | the end |
//!
//! When the process dies its socket is closed, and the kernel ends the device by itself.
//!
//! Source of the facts: `include/uapi/linux/nbd.h` and `drivers/block/nbd.c` of Linux 6.12.

#![allow(unsafe_code, reason = "ioctls of NBD devices")]

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::{
    BlockDevice, BlockDevices, LOOK, MAX_NAMES, Offered, PATIENCE, SECTOR_BYTES, is_claimed, number_of,
    sync_within, timed_out,
};
use crate::block::Export;
use crate::nbd::Chosen;

/// The kernel's NBD client.
#[derive(Debug)]
pub struct KernelNbd {
    /// Where devices are.
    dev: PathBuf,
    /// The kernel's directory of block devices.
    sys: PathBuf,
}

impl Default for KernelNbd {
    fn default() -> Self {
        Self { dev: "/dev".into(), sys: "/sys/block".into() }
    }
}

impl KernelNbd {
    /// Names of devices that no client has, by number.
    fn free(&self) -> io::Result<Vec<String>> {
        let mut free: Vec<(u32, String)> = Vec::new();
        let mut exist = false;
        for entry in fs::read_dir(&self.sys)?.take(MAX_NAMES) {
            let name = entry?.file_name();
            let Some(name) = name.to_str() else { continue };
            let Some(number) = number_of(name, "nbd") else { continue };
            exist = true;
            if !self.sys.join(name).join("pid").exists() {
                free.push((number, name.to_owned()));
            }
        }
        free.sort_unstable();
        match (exist, free.is_empty()) {
            (false, _) => Err(io::Error::new(
                io::ErrorKind::NotFound,
                "the kernel has no NBD devices: load its client ('modprobe nbd'), or use the volume through \
                 its NBD socket",
            )),
            (true, true) => Err(io::Error::new(
                io::ErrorKind::ResourceBusy,
                "all NBD devices of the kernel are in use: load its client with more \
                 ('modprobe nbd nbds_max=N')",
            )),
            (true, false) => Ok(free.into_iter().map(|(_, name)| name).collect()),
        }
    }

    /// Begins to serve one device. `None` where another client was quicker.
    fn serve(&self, name: &str, chosen: &Chosen) -> io::Result<Option<NbdDevice>> {
        let node = self.dev.join(name);
        let open = || File::options().read(true).write(!chosen.is_read_only()).open(&node);
        let device = open()?;
        let control = device.try_clone()?;
        let socket = chosen.socket.try_clone()?;
        let (size_bytes, flags) = (chosen.size_bytes, chosen.flags);
        let (tell, told) = mpsc::channel();
        let serve = move || {
            block_signals();
            // The kernel takes the socket from the thread that it knows the device by.
            let begun = begin(&device, socket.as_raw_fd(), size_bytes, flags);
            let has_begun = begun.is_ok();
            // Who asked may have given up.
            let _ = tell.send(begun);
            if has_begun {
                // Its outcome says how the connection ended, which the server knows better.
                let _ = ioctl(&device, NBD_DO_IT, 0);
                let _ = ioctl(&device, NBD_CLEAR_SOCK, 0);
            }
        };
        let thread = thread::Builder::new().name(format!("serve {name}")).spawn(serve)?;
        let begun = told.recv_timeout(PATIENCE);
        match begun.map_err(|_| timed_out("the kernel refuses the connection"))? {
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) => return Ok(None),
            begun => begun?,
        }
        let pid = self.sys.join(name).join("pid");
        let mut device =
            NbdDevice { node, control, thread: Some(thread), is_read_only: chosen.is_read_only() };
        let start = Instant::now();
        while !pid.exists() {
            if start.elapsed() > PATIENCE || device.has_ended() {
                let _ = device.detach(true);
                return Err(timed_out("the kernel does not start using the connection"));
            }
            thread::sleep(LOOK);
        }
        Ok(Some(device))
    }
}

impl<E: Export> BlockDevices<E> for KernelNbd {
    fn is_there(&self) -> bool {
        self.sys.join("nbd0").exists()
    }

    fn attach(&self, volume: &Offered<'_, E>) -> io::Result<Box<dyn BlockDevice>> {
        let free = self.free()?;
        let chosen = volume.choose()?;
        for name in free {
            let served = self.serve(&name, &chosen);
            let served =
                served.map_err(|error| io::Error::new(error.kind(), format!("/dev/{name}: {error}")))?;
            if let Some(device) = served {
                return Ok(Box::new(device));
            }
        }
        Err(io::Error::new(io::ErrorKind::ResourceBusy, "all NBD devices of the kernel are in use"))
    }

    /// The kernel ends devices by itself whose socket is closed.
    fn clear_left(&self) -> io::Result<()> {
        Ok(())
    }

    fn is_left(&self, node: &Path) -> bool {
        let name = node.strip_prefix(&self.dev).ok().and_then(Path::to_str);
        name.filter(|name| number_of(name, "nbd").is_some())
            .is_some_and(|name| !self.sys.join(name).join("pid").exists())
    }
}

/// A device of the kernel's NBD client.
#[derive(Debug)]
struct NbdDevice {
    node: PathBuf,
    control: File,
    /// In `NBD_DO_IT`, until the end.
    thread: Option<JoinHandle<()>>,
    is_read_only: bool,
}

impl NbdDevice {
    fn has_ended(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }
}

impl BlockDevice for NbdDevice {
    fn node(&self) -> &Path {
        &self.node
    }

    fn is_in_use(&self) -> bool {
        is_claimed(&self.node, self.is_read_only)
    }

    fn resize(&mut self, size_bytes: u64) -> io::Result<()> {
        ioctl(&self.control, NBD_SET_SIZE_BLOCKS, size_bytes / SECTOR_BYTES)
    }

    fn flush(&mut self, limit: Duration) -> io::Result<()> {
        if self.is_read_only { Ok(()) } else { sync_within(&self.node, self.control.try_clone()?, limit) }
    }

    /// The kernel fails by itself what is under way.
    fn detach(&mut self, _fails: bool) -> io::Result<()> {
        if !self.has_ended() {
            ioctl(&self.control, NBD_DISCONNECT, 0)?;
        }
        let start = Instant::now();
        while !self.has_ended() {
            if start.elapsed() > PATIENCE {
                return Err(timed_out("the kernel does not release the device"));
            }
            thread::sleep(LOOK);
        }
        // It has nothing to tell.
        let _ = self.thread.take().map(JoinHandle::join);
        Ok(())
    }
}

const NBD_SET_SOCK: libc::Ioctl = 0xab00;
const NBD_SET_BLKSIZE: libc::Ioctl = 0xab01;
const NBD_DO_IT: libc::Ioctl = 0xab03;
const NBD_CLEAR_SOCK: libc::Ioctl = 0xab04;
const NBD_SET_SIZE_BLOCKS: libc::Ioctl = 0xab07;
const NBD_DISCONNECT: libc::Ioctl = 0xab08;
const NBD_SET_TIMEOUT: libc::Ioctl = 0xab09;
const NBD_SET_FLAGS: libc::Ioctl = 0xab0a;

fn begin(device: &File, socket: RawFd, size_bytes: u64, flags: u16) -> io::Result<()> {
    let socket = u64::try_from(socket).map_err(|_| io::Error::from_raw_os_error(libc::EBADF))?;
    ioctl(device, NBD_SET_SOCK, socket)?;
    let told = ioctl(device, NBD_SET_BLKSIZE, SECTOR_BYTES)
        .and_then(|()| ioctl(device, NBD_SET_SIZE_BLOCKS, size_bytes / SECTOR_BYTES))
        .and_then(|()| ioctl(device, NBD_SET_TIMEOUT, 0))
        .and_then(|()| ioctl(device, NBD_SET_FLAGS, flags.into()));
    if told.is_err() {
        let _ = ioctl(device, NBD_CLEAR_SOCK, 0);
    }
    told
}

fn ioctl(device: &File, request: libc::Ioctl, argument: u64) -> io::Result<()> {
    // SAFETY: the descriptor is open, and NBD's requests take a number, no pointer.
    match unsafe { libc::ioctl(device.as_raw_fd(), request, argument) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// A signal would end `NBD_DO_IT`, and with it the device. Other threads are there to take signals.
fn block_signals() {
    // SAFETY: the set is filled before it is used, and the mask is this thread's own.
    unsafe {
        let mut all = std::mem::zeroed();
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_BLOCK, &all, std::ptr::null_mut());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::daemon::VolumeExport;

    #[test]
    fn a_free_device_is_found_by_its_number_and_a_want_of_them_is_told() {
        let place = tempfile::tempdir().unwrap();
        let nbd = KernelNbd { dev: place.path().to_owned(), sys: place.path().to_owned() };
        let told = nbd.free().unwrap_err().to_string();
        assert!(told.contains("modprobe nbd"), "{told}");
        for name in ["nbd10", "nbd2", "nbd0", "sda", "nbdx"] {
            fs::create_dir(place.path().join(name)).unwrap();
        }
        fs::write(place.path().join("nbd0/pid"), "1").unwrap();
        assert_eq!(nbd.free().unwrap(), ["nbd2", "nbd10"]);
        for name in ["nbd2", "nbd10"] {
            fs::write(place.path().join(name).join("pid"), "1").unwrap();
        }
        let told = nbd.free().unwrap_err().to_string();
        assert!(told.contains("nbds_max"), "{told}");
        fs::remove_file(place.path().join("nbd2/pid")).unwrap();
        let nbd: &dyn BlockDevices<VolumeExport> = &nbd;
        let left = ["nbd0", "nbd2", "sda", "nbdx"].map(|name| nbd.is_left(&place.path().join(name)));
        assert_eq!(left, [false, true, false, false]);
    }
}
