//! The classic transport of requests: reading them from the device and writing answers to it.
//!
//! A request is answered on the thread that read it, except those that wait for a commit
//! ([`commit_threads`](super::commit_threads)). [`readers`](super::readers) decides which thread reads, and
//! how many there are. The first reads from the mount's own descriptor, each further one from a clone of it,
//! so that they do not contend for one, and answers where it read. Forgotten nodes come only this way, also
//! if there are rings ([`ring`](super::ring)).
//!
//! # A session that goes on elsewhere
//! The threads of a mount can be stopped without an end of the connection ([`Channel::stop`]): none reads
//! another request, and those that were read are answered. One descriptor wakes all threads of the process
//! that wait in the kernel ([`Waking`]).
//!
//! # What an idle mount costs
//! One descriptor, and its place among those for which one thread of the process waits
//! ([`idle`](super::idle)). A thread without a request for [`PATIENCE`] gives back the memory of its buffers,
//! its clone of the descriptor, and its ring; if it is the only one of its mount, it ends. Where there are
//! more than [`MANY`] threads, that is so the sooner the more there are: a program that looks into each of a
//! thousand mounts leaves no thread for each.

#![allow(unsafe_code, reason = "an ioctl of `/dev/fuse`")]

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Weak};
use std::thread;
use std::time::{Duration, Instant};

use fuser::Errno;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

use super::buffer::Buffer;
use super::connection::{Device, Life, MAX_DATA_BYTES};
use super::filesystem::{Mounted, Outcome, unless_it_panics};
use super::idle::Idle;
use super::readers::{PATIENCE, Reader, Readers};
use super::receive_buffer::{ReceiveBuffer, is_large_write};
use super::seek_hole::Seek;
use super::wire::{ANSWER_HEADER_BYTES, Caller, Room, answer_header};
use crate::descriptors::Share;

/// `_IOR(229, 0, u32)`: makes a freshly opened device one of a connection.
const FUSE_DEV_IOC_CLONE: libc::c_ulong = 0x8004_e500;
/// Room for the answer to what makes a name, in bytes; more than that takes.
const ENTRY_ROOM_BYTES: usize = 256;

/// Threads of all mounts that have all the time that a thread may wait.
const MANY: usize = 64;
/// The shortest time that a thread waits for its next request.
const LEAST_PATIENCE: Duration = Duration::from_millis(20);

/// Threads of all mounts.
static RUNNING: AtomicUsize = AtomicUsize::new(0);

/// One of them, as long as it is there.
struct Counted;

impl Counted {
    fn new() -> Self {
        RUNNING.fetch_add(1, Ordering::Relaxed);
        Self
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        RUNNING.fetch_sub(1, Ordering::Relaxed);
    }
}

/// How long each of so many threads waits for its next request.
fn patience_of(threads: usize) -> Duration {
    match threads {
        0..=MANY => PATIENCE,
        threads => {
            let share = MANY as f64 / threads as f64;
            PATIENCE.mul_f64(share * share).max(LEAST_PATIENCE)
        }
    }
}

/// One more descriptor of a connection.
fn another(device: &Device) -> io::Result<File> {
    let clone = OpenOptions::new().read(true).write(true).open("/dev/fuse")?;
    let original = device.as_fd().as_raw_fd().cast_unsigned();
    // SAFETY: both descriptors are open, and the argument is a number that lives through the call.
    if unsafe { libc::ioctl(clone.as_raw_fd(), FUSE_DEV_IOC_CLONE, &raw const original) } != 0 {
        return Err(io::Error::last_os_error());
    }
    do_not_block(&clone)?;
    Ok(clone)
}

/// A thread that waits in `read` cannot poll for requests, nor be the only one that waits.
fn do_not_block(device: impl AsFd) -> io::Result<()> {
    Ok(fcntl_setfl(&device, fcntl_getfl(&device)? | OFlags::NONBLOCK)?)
}

/// The shared state of the threads of a mount that answer requests from its device.
pub struct Channel {
    device: Device,
    mounted: Mounted,
    readers: Arc<Readers>,
    is_stopped: Arc<AtomicBool>,
    _life: Arc<Life>,
}

/// Wakes the threads of all mounts, as long as it is there, so that they see that they are to stop.
#[derive(Debug)]
pub struct Waking(());

/// Can be read from as long as threads are to be woken.
static WAKES: LazyLock<io::Result<OwnedFd>> = LazyLock::new(|| {
    let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
    Ok(eventfd(0, flags)?)
});

impl Waking {
    /// Begins.
    pub fn begin() -> Self {
        if let Ok(wakes) = &*WAKES {
            let _ = rustix::io::write(wakes, &1u64.to_ne_bytes());
        }
        Self(())
    }
}

impl Drop for Waking {
    fn drop(&mut self) {
        if let Ok(wakes) = &*WAKES {
            let _ = rustix::io::read(wakes, &mut [0; 8]);
        }
    }
}

impl Channel {
    /// Begins to answer, with one thread when a request comes, and up to `most` when they are needed. They
    /// end with the connection.
    ///
    /// # Errors
    /// The system cannot wait for requests.
    pub fn begin(device: Device, mounted: Mounted, most: usize, life: Arc<Life>) -> io::Result<Weak<Self>> {
        do_not_block(&device)?;
        let readers = Arc::new(Readers::new(most));
        let is_stopped = Arc::clone(life.is_stopped());
        let channel = Arc::new(Self { device, mounted, readers, is_stopped, _life: life });
        channel.park()?;
        Ok(Arc::downgrade(&channel))
    }

    /// Has the threads end with what they answer. The connection goes on.
    pub fn stop(&self) {
        self.is_stopped.store(true, Ordering::SeqCst);
        self.readers.stop();
        if let Ok(idle) = Idle::of_the_process() {
            idle.unpark(&self.device);
        }
    }

    fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::SeqCst)
    }

    /// Has a thread begin with the next request. There is none until then.
    fn park(self: &Arc<Self>) -> io::Result<()> {
        let (channel, idle) = (Arc::clone(self), Idle::of_the_process()?);
        idle.park(&self.device, Box::new(move || channel.begin_first()))?;
        if self.is_stopped() {
            idle.unpark(&self.device);
        }
        Ok(())
    }

    fn begin_first(self: &Arc<Self>) -> io::Result<()> {
        if self.is_stopped() {
            return Ok(());
        }
        self.readers.begin(|| self.begin_thread(true))
    }

    fn begin_thread(self: &Arc<Self>, is_first: bool) -> io::Result<()> {
        let channel = Arc::clone(self);
        let share = match is_first {
            true => None,
            false => Some(Share::take().ok_or_else(|| {
                io::Error::other(
                    "the limit of open files is low (ulimit \
                    -n)",
                )
            })?),
        };
        let work = move || {
            let (_share, _counted) = (share, Counted::new());
            let others = Arc::clone(&channel);
            let begin = Rc::new(move || others.begin_thread(false));
            let mut reader = Reader::new(&channel.readers, begin);
            if let Err(error) = channel.serve(is_first, &mut reader) {
                tracing::error!(%error, "a thread of a FUSE session ended");
                reader.fail();
            }
        };
        thread::Builder::new().name("fuse".into()).stack_size(device::STACK_BYTES).spawn(work).map(drop)
    }

    /// Answers requests until the connection ends, or this thread is not needed any more.
    ///
    /// # Errors
    /// The kernel gives no more requests, for another reason than that.
    fn serve(self: &Arc<Self>, is_first: bool, reader: &mut Reader) -> io::Result<()> {
        let mut incoming = ReceiveBuffer::new()?;
        let mut outgoing = Buffer::new(ANSWER_HEADER_BYTES + MAX_DATA_BYTES)?;
        let mut device = Arc::clone(&self.device);
        if !is_first {
            match another(&self.device) {
                Ok(clone) => device = Arc::new(clone),
                Err(error) => tracing::debug!(%error, "threads of a FUSE session share a descriptor"),
            }
        }
        reader.read_from(Arc::clone(&device));
        while reader.wait_for_turn() {
            let size = match next(&device, &mut incoming, reader, &self.is_stopped)? {
                Next::Request(size) => size,
                Next::Others => continue,
                Next::Nothing => {
                    if reader.parks(|| self.park()) {
                        return Ok(());
                    }
                    incoming.clear();
                    outgoing.clear();
                    device::release_ring();
                    device = Arc::clone(&self.device);
                    reader.read_from(Arc::clone(&device));
                    reader.cool_down();
                    continue;
                }
                Next::End => {
                    reader.end();
                    return Ok(());
                }
            };
            let request = incoming
                .request(size)
                .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "a request without a header"))?;
            if request.operation.is_long() {
                reader.leave();
            }
            let is_large_write = is_large_write(&request);
            let (outcome, inside) = self.mounted.answer(&request, &mut outgoing[ANSWER_HEADER_BYTES..]);
            match outcome {
                Outcome::Answer(answer) => {
                    reply(&device, request.unique, answer, &mut outgoing);
                    drop(inside);
                }
                Outcome::WhenStable(number) => {
                    let (device, mounted) = (Arc::clone(&device), self.mounted.clone());
                    let (waiters, unique) = (Arc::clone(&mounted.waiters), request.unique);
                    drop(inside);
                    waiters.wait(move || {
                        let answer = mounted.make_stable(number);
                        reply(&device, unique, answer, &mut [0; ANSWER_HEADER_BYTES]);
                    });
                }
                Outcome::WhenWrittenBack(seek) => {
                    drop(inside);
                    self.seek(&device, request.unique, seek);
                }
                Outcome::WhenTaken(name, by) => {
                    drop(inside);
                    self.take_snapshot(&device, request.unique, name, by);
                }
                Outcome::Nothing => {}
                Outcome::End => {
                    drop(inside);
                    reply(&device, request.unique, Ok(0), &mut outgoing);
                    reader.end();
                    return Ok(());
                }
            }
            incoming.expect(is_large_write, || self.record_bytes());
        }
        Ok(())
    }

    /// Answers where data or a hole are as soon as the kernel wrote back its pages, which others answer.
    fn seek(&self, device: &Device, unique: u64, seek: Seek) {
        let (answering, mounted) = (Arc::clone(device), self.mounted.clone());
        let work = move || {
            let found = unless_it_panics(|| mounted.look_for_with_pages(&seek));
            reply_offset(&answering, unique, found.unwrap_or(Err(Errno::EIO)));
        };
        if self.mounted.waiters.elsewhere(Box::new(work)).is_err() {
            reply_offset(device, unique, self.mounted.look_for_in_data(&seek));
        }
    }

    /// Answers when a snapshot was taken.
    fn take_snapshot(&self, device: &Device, unique: u64, name: Vec<u8>, by: Caller) {
        let (answering, mounted) = (Arc::clone(device), self.mounted.clone());
        let work = move || {
            let mut outgoing = [0; ANSWER_HEADER_BYTES + ENTRY_ROOM_BYTES];
            let room = &mut outgoing[ANSWER_HEADER_BYTES..];
            let taken = unless_it_panics(|| mounted.take_snapshot(&name, by, room));
            reply(&answering, unique, taken.unwrap_or(Err(Errno::EIO)), &mut outgoing);
        };
        if self.mounted.waiters.elsewhere(Box::new(work)).is_err() {
            reply(device, unique, Err(Errno::EAGAIN), &mut [0; ANSWER_HEADER_BYTES]);
        }
    }

    /// Bytes of a record of what is written here.
    fn record_bytes(&self) -> Option<usize> {
        let served = self.mounted.freezable.served()?;
        served.live().map(|live| live.record_size() as usize)
    }
}

/// The result of a turn at reading.
enum Next {
    /// A request of so many bytes.
    Request(usize),
    /// Others read now.
    Others,
    /// No request came for long.
    Nothing,
    /// The connection ended.
    End,
}

/// Waits for a request: looks for one for a while, then sleeps for a while, unless others read.
fn next(
    device: &Device,
    incoming: &mut ReceiveBuffer,
    reader: &mut Reader,
    is_stopped: &AtomicBool,
) -> io::Result<Next> {
    let mut began = None;
    loop {
        if is_stopped.load(Ordering::SeqCst) {
            return Ok(Next::End);
        }
        match incoming.receive(device) {
            Ok(size) => {
                reader.note_request(began.is_none());
                return Ok(Next::Request(size));
            }
            Err(rustix::io::Errno::AGAIN) => {}
            // Called off before it was read.
            Err(rustix::io::Errno::NOENT | rustix::io::Errno::INTR) => continue,
            // Unmounted, or cut.
            Err(rustix::io::Errno::NODEV | rustix::io::Errno::CONNABORTED) => return Ok(Next::End),
            Err(error) => return Err(error.into()),
        }
        if reader.rests_beside_others() {
            return Ok(Next::Others);
        }
        if began.get_or_insert_with(Instant::now).elapsed() < reader.looks_for() {
            thread::yield_now();
            continue;
        }
        let asked = PollFd::new(&device, PollFlags::IN);
        let patience = patience_of(RUNNING.load(Ordering::Relaxed));
        let waits =
            Timespec { tv_sec: patience.as_secs().cast_signed(), tv_nsec: patience.subsec_nanos().into() };
        let waited = match &*WAKES {
            Ok(wakes) => poll(&mut [asked, PollFd::new(wakes, PollFlags::IN)], Some(&waits)),
            Err(_) => poll(&mut [asked], Some(&waits)),
        };
        match waited {
            Ok(0) => return Ok(Next::Nothing),
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Answers with an offset.
fn reply_offset(device: &Device, unique: u64, found: Result<u64, Errno>) {
    let mut outgoing = [0; ANSWER_HEADER_BYTES + size_of::<u64>()];
    let answer = found.and_then(|found| Room::new(&mut outgoing[ANSWER_HEADER_BYTES..]).offset(found));
    reply(device, unique, answer, &mut outgoing);
}

/// Answers with what is in `outgoing` behind the room for a header.
fn reply(device: &Device, unique: u64, answer: Result<usize, Errno>, outgoing: &mut [u8]) {
    outgoing[..ANSWER_HEADER_BYTES].copy_from_slice(&answer_header(unique, answer));
    let length = ANSWER_HEADER_BYTES + answer.unwrap_or(0);
    if let Err(error) = rustix::io::write(device, &outgoing[..length]) {
        // The waiting program may be gone.
        tracing::debug!(%error, "the kernel refuses an answer");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_wait_the_shorter_the_more_there_are() {
        assert_eq!((patience_of(1), patience_of(MANY)), (PATIENCE, PATIENCE));
        assert_eq!(patience_of(2 * MANY), PATIENCE / 4);
        assert_eq!(patience_of(usize::MAX), LEAST_PATIENCE);
    }
}
