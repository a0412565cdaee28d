//! The classic way of requests: read from the device, answered by writing to it.
//!
//! A request is answered on the thread that read it, but for those that wait for a commit ([`waiting`](super::waiting)). Which thread reads is agreed on in [`readers`](super::readers). Each has a clone of
//! the device, so that they do not queue up for one, and answers where it read. Forgotten nodes come this way only, also where there are rings ([`ring`](super::ring)).

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::thread;
use std::time::Instant;

use fuser::Errno;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

use super::filesystem::{Mounted, Outcome};
use super::readers::{Reader, Readers};
use super::session::MAX_DATA_BYTES;
use super::wire::{ANSWER_HEADER_BYTES, Request, answer_header};

/// `_IOR(229, 0, u32)`: makes a freshly opened device one of a connection.
const FUSE_DEV_IOC_CLONE: libc::c_ulong = 0x8004_e500;
/// Room for what precedes the data of a request.
const BEFORE_DATA_BYTES: usize = 4096;

/// One more descriptor of a connection.
pub fn another(device: &File) -> io::Result<File> {
    let clone = OpenOptions::new().read(true).write(true).open("/dev/fuse")?;
    let original = device.as_raw_fd().cast_unsigned();
    // SAFETY: both descriptors are open, and the argument is a number that lives through the call.
    match unsafe { libc::ioctl(clone.as_raw_fd(), FUSE_DEV_IOC_CLONE, &raw const original) } {
        0 => Ok(clone),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Answers requests until the connection ends, on one of the threads that take turns at reading.
///
/// # Errors
/// The kernel gives no more requests, for another reason than that.
pub fn serve(device: Arc<File>, mounted: &Mounted, readers: &Arc<Readers>) -> io::Result<()> {
    let mut incoming = vec![0; BEFORE_DATA_BYTES + MAX_DATA_BYTES];
    let mut outgoing = vec![0; ANSWER_HEADER_BYTES + MAX_DATA_BYTES];
    // Who waits in `read` cannot look for requests, nor be the only one who waits.
    fcntl_setfl(&device, fcntl_getfl(&device)? | OFlags::NONBLOCK)?;
    let mut reader = Reader::new(readers, device.try_clone()?.into());
    while reader.wait_for_turn() {
        let size = match next(&device, &mut incoming, &mut reader)? {
            Next::Request(size) => size,
            Next::Others => continue,
            Next::End => {
                reader.end();
                return Ok(());
            }
        };
        let request = Request::parse(&incoming[..size])
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "a request without a header"))?;
        if request.operation.is_long() {
            reader.leave();
        }
        let (outcome, inside) = mounted.answer(&request, &mut outgoing[ANSWER_HEADER_BYTES..]);
        match outcome {
            Outcome::Answer(answer) => {
                reply(&device, request.unique, answer, &mut outgoing);
                drop(inside);
            }
            Outcome::WhenStable(number) => {
                let (device, mounted, unique) = (Arc::clone(&device), mounted.clone(), request.unique);
                let waiters = Arc::clone(&mounted.waiters);
                drop(inside);
                waiters.wait(move || {
                    let answer = mounted.make_stable(number);
                    reply(&device, unique, answer, &mut [0; ANSWER_HEADER_BYTES]);
                });
            }
            Outcome::Nothing => {}
            Outcome::End => {
                drop(inside);
                reply(&device, request.unique, Ok(0), &mut outgoing);
                reader.end();
                return Ok(());
            }
        }
    }
    Ok(())
}

/// What comes of a turn at reading.
enum Next {
    /// A request of so many bytes.
    Request(usize),
    /// Others read now.
    Others,
    /// The connection ended.
    End,
}

/// Waits for a request: looks for one for a while, then sleeps, unless others read.
fn next(mut device: &File, incoming: &mut [u8], reader: &mut Reader) -> io::Result<Next> {
    let mut began = None;
    loop {
        match device.read(incoming) {
            Ok(size) => {
                reader.note_request(began.is_none());
                return Ok(Next::Request(size));
            }
            Err(error) => match error.raw_os_error() {
                Some(libc::EAGAIN) => {}
                // Called off before it was read.
                Some(libc::ENOENT | libc::EINTR) => continue,
                Some(libc::ENODEV) => return Ok(Next::End),
                _ => return Err(error),
            },
        }
        if reader.rests_beside_others() {
            return Ok(Next::Others);
        }
        if began.get_or_insert_with(Instant::now).elapsed() < reader.looks_for() {
            thread::yield_now();
            continue;
        }
        match poll(&mut [PollFd::new(&device, PollFlags::IN)], None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Answers with what is in `outgoing` behind the room for a header.
fn reply(mut device: &File, unique: u64, answer: Result<usize, Errno>, outgoing: &mut [u8]) {
    outgoing[..ANSWER_HEADER_BYTES].copy_from_slice(&answer_header(unique, answer));
    let length = ANSWER_HEADER_BYTES + answer.unwrap_or(0);
    if let Err(error) = device.write_all(&outgoing[..length]) {
        // Whoever waited for it may be gone.
        tracing::debug!(%error, "the kernel does not take an answer");
    }
}
