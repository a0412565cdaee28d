//! Scripts that a guest carries out.
//!
//! The guest reads a script from its second serial port, of which the other end is the socket `REQUESTS`,
//! and says what came of it on a virtio port, of which the other end is `REPLIES`. A serial port is slow,
//! and blocks its reader while there is nothing to read; a virtio port is fast. A reply says to which request
//! it belongs, by a token: what a request that was given up left behind is skipped.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// How often a caller that waits is asked whether it still does.
const LOOK: Duration = Duration::from_millis(100);

/// The socket for scripts, in a machine's folder.
pub(super) const REQUESTS: &str = "requests";
/// The socket for what they said.
pub(super) const REPLIES: &str = "replies";
/// What requests and replies begin with.
const MARK: &str = "cenote-lab";
/// Most bytes of each output that are read.
const MOST_SAID: u64 = 64 << 20;
/// Most bytes of a reply's first line.
const MOST_HEAD: u64 = 256;

/// What came of a script.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Said {
    /// Its exit status.
    pub status: u8,
    /// Its standard output.
    pub stdout: Vec<u8>,
    /// Its standard error.
    pub stderr: Vec<u8>,
}

fn invalid(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

/// Has the guest whose sockets are in `folder` carry out a script, and waits for its end as long as `waits`,
/// which is asked now and then, returns no error.
///
/// # Errors
/// It is gone, or does not say what a guest says; what `waits` returns.
pub fn run(folder: &Path, script: &[u8], waits: &mut dyn FnMut() -> io::Result<()>) -> io::Result<Said> {
    let replies = UnixStream::connect(folder.join(REPLIES))?;
    replies.set_read_timeout(Some(LOOK))?;
    let mut replies = BufReader::new(Waiting { replies, waits });
    let mut requests = UnixStream::connect(folder.join(REQUESTS))?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos());
    let token = format!("{}-{now}", std::process::id());
    requests.write_all(format!("{MARK} {token} {}\n", script.len()).as_bytes())?;
    requests.write_all(script)?;
    answer(&mut replies, &token)
}

/// Replies that are read as they come.
struct Waiting<'a> {
    replies: UnixStream,
    waits: &'a mut dyn FnMut() -> io::Result<()>,
}

impl Read for Waiting<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.replies.read(into) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => (self.waits)()?,
                read => return read,
            }
        }
    }
}

/// The reply to the request of this token; others before it are skipped.
fn answer(from: &mut impl BufRead, token: &str) -> io::Result<Said> {
    loop {
        let mut head = Vec::new();
        from.by_ref().take(MOST_HEAD).read_until(b'\n', &mut head)?;
        if head.is_empty() {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the guest is gone"));
        }
        let head = String::from_utf8_lossy(&head).into_owned();
        let words: Vec<&str> = head.split_whitespace().collect();
        let [MARK, of, status, stdout, stderr] = words[..] else { continue };
        let bytes = |word: &str| word.parse().ok().filter(|count| *count <= MOST_SAID);
        let (Some(stdout), Some(stderr), Ok(status)) = (bytes(stdout), bytes(stderr), status.parse()) else {
            return Err(invalid("the guest's reply is too long, or no reply"));
        };
        let mut read = |count: u64| {
            let mut said = Vec::new();
            from.by_ref().take(count).read_to_end(&mut said)?;
            let is_whole = said.len() as u64 == count;
            if is_whole { Ok(said) } else { Err(io::Error::from(io::ErrorKind::UnexpectedEof)) }
        };
        let said = Said { status, stdout: read(stdout)?, stderr: read(stderr)? };
        if of == token {
            return Ok(said);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_caller_waits_as_long_as_it_wants_to() {
        let folder = tempfile::tempdir().unwrap();
        let guest = [REPLIES, REQUESTS]
            .map(|name| std::os::unix::net::UnixListener::bind(folder.path().join(name)).unwrap());
        let mut asked = 0;
        let said = run(folder.path(), b"sleep 1000", &mut || {
            asked += 1;
            if asked < 3 { Ok(()) } else { Err(io::Error::other("it is to stop")) }
        });
        assert_eq!((said.unwrap_err().to_string().as_str(), asked), ("it is to stop", 3));
        drop(guest);
    }

    #[test]
    fn what_was_given_up_is_skipped_and_lies_about_lengths_are_refused() {
        let of = |text: &str| answer(&mut text.as_bytes(), "8");
        let said = of("noise\ncenote-lab 7 0 3 0\noldcenote-lab 8 2 3 4\noutfail").unwrap();
        assert_eq!(said, Said { status: 2, stdout: b"out".to_vec(), stderr: b"fail".to_vec() });
        for wrong in ["", "cenote-lab 8 0 9 0\nout", "cenote-lab 8 0 99999999999 0\n", "cenote-lab 8 x 0 0\n"]
        {
            assert!(of(wrong).is_err(), "{wrong}");
        }
    }
}
