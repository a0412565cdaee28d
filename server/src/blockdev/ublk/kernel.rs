//! What the kernel's ublk driver is asked through: [`Kernel`], which tests put something else in the place
//! of.
//!
//! | device | what goes through it |
//! |---|---|
//! | `/dev/ublk-control` | control commands, by io_uring with submissions of 128 bytes |
//! | `/dev/ublkcN` | commands of queues by io_uring, requests in shared memory, data; opened once |
//! | `/dev/ublkbN` | the block device |
//!
//! A command has nothing of ours that the kernel touches later, but for the structure of a control command.
//! That has memory of its own, which is not freed where the kernel may still have it.

#![allow(unsafe_code, reason = "memory and rings that are shared with the kernel")]

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::Duration;

use io_uring::{IoUring, cqueue, opcode, squeue, types};
use rustix::event::{EventfdFlags, eventfd};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use super::super::{MAX_NAMES, number_of, timed_out};
use super::layout::{Command, Header, REQUEST_BYTES, place_of_requests, position_of_data, queue_command};

/// The kernel's ublk driver.
pub trait Kernel: std::fmt::Debug + Send + Sync {
    /// Does a control command. `structure` is what goes with it, in both directions. Blocks the thread.
    ///
    /// # Errors
    /// There is no driver, it refuses, or takes longer than `limit`.
    fn control(
        &self,
        command: Command,
        header: Header,
        structure: &mut [u8],
        limit: Duration,
    ) -> io::Result<()>;

    /// Numbers of the existing devices, of all servers.
    ///
    /// # Errors
    /// They cannot be listed.
    fn ids(&self) -> io::Result<Vec<u32>>;

    /// Where the block device of a device is.
    fn node(&self, id: u32) -> PathBuf;

    /// Opens a device, to serve it.
    ///
    /// # Errors
    /// It is not there, or served.
    fn open(&self, id: u32) -> io::Result<Arc<dyn Character>>;
}

/// A device that is served.
pub trait Character: std::fmt::Debug + Send + Sync {
    /// The commands of a queue. Only the thread that calls this may use them.
    ///
    /// # Errors
    /// The kernel refuses what they need.
    fn queue(self: Arc<Self>, number: u16, depth: u16) -> io::Result<Box<dyn Queue>>;

    /// Reads the data of a request to write.
    ///
    /// # Errors
    /// The kernel refuses.
    fn take_data(&self, queue: u16, tag: u16, into: &mut [u8]) -> io::Result<()>;

    /// Writes the data of a request to read.
    ///
    /// # Errors
    /// The kernel refuses.
    fn give_data(&self, queue: u16, tag: u16, data: &[u8]) -> io::Result<()>;
}

/// The commands of a queue.
pub trait Queue: Send {
    /// Becomes readable, as an edge, when there is something to do.
    ///
    /// # Errors
    /// There are no descriptors left.
    fn signal(&self) -> io::Result<OwnedFd>;

    /// Adds a command of a tag that has none under way. The kernel gets it with the next
    /// [`turn`](Self::turn).
    ///
    /// # Errors
    /// There are more commands than tags.
    fn push(&mut self, command: u32, tag: u16, result: i32) -> io::Result<()>;

    /// Gives the kernel what was added, and takes what is done: tags with 0 for a request, or with a negative
    /// error.
    ///
    /// # Errors
    /// The kernel refuses; nothing is served any more.
    fn turn(&mut self, done: &mut Vec<(u16, i32)>) -> io::Result<()>;

    /// The request that a tag came with.
    fn request(&self, tag: u16) -> [u8; REQUEST_BYTES];
}

/// The kernel of this machine.
#[derive(Debug)]
pub struct Driver {
    dev: PathBuf,
}

impl Default for Driver {
    fn default() -> Self {
        Self { dev: "/dev".into() }
    }
}

impl Kernel for Driver {
    fn control(
        &self,
        command: Command,
        header: Header,
        structure: &mut [u8],
        limit: Duration,
    ) -> io::Result<()> {
        let control = File::options().read(true).write(true).open(self.dev.join("ublk-control"))?;
        let mut uring: IoUring<squeue::Entry128, cqueue::Entry> = IoUring::builder().dontfork().build(1)?;
        let mut memory = structure.to_vec();
        let length = u16::try_from(memory.len()).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))?;
        let address = if memory.is_empty() { 0 } else { memory.as_mut_ptr() as u64 };
        let entry = opcode::UringCmd80::new(types::Fd(control.as_raw_fd()), command as u32)
            .cmd(header.encode(length, address))
            .build();
        // SAFETY: the descriptor is open, and the memory freed, only after the command's completion, or
        // never.
        unsafe { uring.submission().push(&entry) }.map_err(|_| io::Error::other("the ring is full"))?;
        let limit = types::Timespec::from(limit);
        let limit = types::SubmitArgs::new().timespec(&limit);
        let code = loop {
            let waited = uring.submitter().submit_with_args(1, &limit);
            if let Some(completion) = uring.completion().next() {
                break completion.result();
            }
            match waited {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    std::mem::forget((control, memory));
                    return Err(match error.raw_os_error() {
                        Some(libc::ETIME) => timed_out("the kernel does not answer"),
                        _ => error,
                    });
                }
            }
        };
        if code < 0 {
            return Err(io::Error::from_raw_os_error(-code));
        }
        structure.copy_from_slice(&memory);
        Ok(())
    }

    fn ids(&self) -> io::Result<Vec<u32>> {
        let mut ids = Vec::new();
        for entry in fs::read_dir(&self.dev)?.take(MAX_NAMES) {
            ids.extend(entry?.file_name().to_str().and_then(|name| number_of(name, "ublkc")));
        }
        Ok(ids)
    }

    fn node(&self, id: u32) -> PathBuf {
        self.dev.join(format!("ublkb{id}"))
    }

    fn open(&self, id: u32) -> io::Result<Arc<dyn Character>> {
        let path = self.dev.join(format!("ublkc{id}"));
        Ok(Arc::new(Served(File::options().read(true).write(true).open(path)?)))
    }
}

/// A device that is open.
#[derive(Debug)]
struct Served(File);

impl Character for Served {
    fn queue(self: Arc<Self>, number: u16, depth: u16) -> io::Result<Box<dyn Queue>> {
        // Only this thread enters, and what the kernel has to do for it is done then.
        let uring: IoUring = IoUring::builder()
            .dontfork()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_taskrun_flag()
            .build(u32::from(depth).next_power_of_two())?;
        let signal = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        uring.submitter().register_eventfd(signal.as_raw_fd())?;
        let requests = Requests::map(&self.0, number, depth)?;
        Ok(Box::new(Commands { uring, signal, requests, number, device: self }))
    }

    fn take_data(&self, queue: u16, tag: u16, into: &mut [u8]) -> io::Result<()> {
        self.0.read_exact_at(into, position_of_data(queue, tag))
    }

    fn give_data(&self, queue: u16, tag: u16, data: &[u8]) -> io::Result<()> {
        self.0.write_all_at(data, position_of_data(queue, tag))
    }
}

struct Commands {
    uring: IoUring,
    signal: OwnedFd,
    requests: Requests,
    number: u16,
    device: Arc<Served>,
}

impl Queue for Commands {
    fn signal(&self) -> io::Result<OwnedFd> {
        self.signal.try_clone()
    }

    fn push(&mut self, command: u32, tag: u16, result: i32) -> io::Result<()> {
        let entry = opcode::UringCmd16::new(types::Fd(self.device.0.as_raw_fd()), command)
            .cmd(queue_command(self.number, tag, result))
            .build()
            .user_data(tag.into());
        // SAFETY: the command has no pointer, and the kernel keeps the device open that it takes by its
        // descriptor.
        let pushed = unsafe { self.uring.submission().push(&entry) };
        pushed.map_err(|_| io::Error::other("more commands than requests"))
    }

    fn turn(&mut self, done: &mut Vec<(u16, i32)>) -> io::Result<()> {
        loop {
            let queue = self.uring.submission();
            if queue.is_empty() && !queue.taskrun() && !queue.cq_overflow() {
                break;
            }
            drop(queue);
            match self.uring.submit() {
                Ok(_) => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // It is short of memory, or of room for what is done, which is taken now.
                Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EBUSY)) => break,
                Err(error) => return Err(error),
            }
        }
        // A tag is what it was given by us.
        done.extend(self.uring.completion().map(|it| (it.user_data() as u16, it.result())));
        Ok(())
    }

    fn request(&self, tag: u16) -> [u8; REQUEST_BYTES] {
        self.requests.get(tag)
    }
}

/// The requests of a queue, in memory that the kernel writes.
struct Requests {
    memory: NonNull<u8>,
    bytes: usize,
    depth: u16,
}

// SAFETY: it is memory of the process, read through this alone, and tied to no thread.
unsafe impl Send for Requests {}

impl Requests {
    fn map(device: &File, number: u16, depth: u16) -> io::Result<Self> {
        let (offset, bytes) = place_of_requests(number, depth, page_bytes());
        let (protection, flags) = (ProtFlags::READ, MapFlags::SHARED | MapFlags::POPULATE);
        // SAFETY: the kernel chooses a place that nothing else has.
        let memory = unsafe { mmap(std::ptr::null_mut(), bytes, protection, flags, device.as_fd(), offset) }?;
        let memory = NonNull::new(memory.cast()).ok_or_else(|| io::Error::from_raw_os_error(libc::EFAULT))?;
        Ok(Self { memory, bytes, depth })
    }

    fn get(&self, tag: u16) -> [u8; REQUEST_BYTES] {
        if tag >= self.depth {
            // An operation that there is not.
            return [0xff; REQUEST_BYTES];
        }
        // SAFETY: `map` made room for `depth` requests, and the tag is less. The kernel does not write a
        // request whose tag it has given to us; volatile, because the compiler does not see that it wrote
        // before.
        unsafe {
            let place = self.memory.as_ptr().add(usize::from(tag) * REQUEST_BYTES);
            place.cast::<[u8; REQUEST_BYTES]>().read_volatile()
        }
    }
}

impl Drop for Requests {
    fn drop(&mut self) {
        // SAFETY: it is what was mapped, and nothing refers to it any more.
        let _ = unsafe { munmap(self.memory.as_ptr().cast(), self.bytes) };
    }
}

fn page_bytes() -> usize {
    // SAFETY: sysconf has no preconditions.
    usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
}

/// Whether a link to a node leads to a block device of this kind that is not there any more.
pub(super) fn is_gone(kernel: &dyn Kernel, node: &Path) -> bool {
    let id = node.file_name().and_then(|name| name.to_str()).and_then(|name| number_of(name, "ublkb"));
    id.is_some_and(|id| kernel.node(id) == node && !node.exists())
}
