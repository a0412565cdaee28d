//! The classic way of requests: read from the device, answered by writing to it.
//!
//! A request is answered on the thread that read it, but for those that wait for a commit ([`waiting`]). Each thread has a clone of the device, so that they do not queue up for
//! one, and answers where it read. Forgotten nodes come this way only, also where there are rings ([`ring`](super::ring)).

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::sync::Arc;

use fuser::Errno;

use super::filesystem::{Mounted, Outcome};
use super::session::MAX_DATA_BYTES;
use super::waiting;
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

/// Answers requests until the connection ends.
///
/// # Errors
/// The kernel gives no more requests, for another reason than that.
pub fn serve(device: Arc<File>, mounted: &Mounted) -> io::Result<()> {
    let mut incoming = vec![0; BEFORE_DATA_BYTES + MAX_DATA_BYTES];
    let mut outgoing = vec![0; ANSWER_HEADER_BYTES + MAX_DATA_BYTES];
    loop {
        let size = match (&*device).read(&mut incoming) {
            Ok(size) => size,
            Err(error) => match error.raw_os_error() {
                // Called off before it was read.
                Some(libc::ENOENT | libc::EINTR | libc::EAGAIN) => continue,
                Some(libc::ENODEV) => return Ok(()),
                _ => return Err(error),
            },
        };
        let request = Request::parse(&incoming[..size])
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "a request without a header"))?;
        match mounted.answer(&request, &mut outgoing[ANSWER_HEADER_BYTES..]) {
            Outcome::Answer(answer) => reply(&device, request.unique, answer, &mut outgoing),
            Outcome::WhenStable(number) => {
                let (device, mounted, unique) = (Arc::clone(&device), mounted.clone(), request.unique);
                waiting::wait(move || {
                    let answer = mounted.make_stable(number);
                    reply(&device, unique, answer, &mut [0; ANSWER_HEADER_BYTES]);
                });
            }
            Outcome::Nothing => {}
            Outcome::End => {
                reply(&device, request.unique, Ok(0), &mut outgoing);
                return Ok(());
            }
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
