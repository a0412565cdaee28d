//! Messages with descriptors, over a Unix socket.
//!
//! | offset | size | meaning |
//! |---|---|---|
//! | 0 | 8 | `CenHand\0` |
//! | 8 | 4 | the form of the hand-over ([`super::FORM`]) |
//! | 12 | 4 | length of the message, as JSON |
//! | 16 | 4 | length of the bytes beside it |
//! | 20 | 4 | number of descriptors beside it: 0 or 1 |
//! | 24 | | the message, then the bytes |
//!
//! Descriptors come beside the header. Numbers are in the machine's order: both ends are on it. Bytes of keys
//! are wiped when a frame is dropped, and so are all others.

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};

use super::message::{FORM, Message};
use crate::api::Secret;

const MAGIC: [u8; 8] = *b"CenHand\0";
const HEADER_BYTES: usize = 24;
/// The longest message.
const MOST_MESSAGE_BYTES: usize = 16 << 20;
/// The most bytes beside one: what clients have under way.
const MOST_BYTES: usize = 256 << 20;
/// Descriptors that are taken from one piece of the stream, to be counted.
const MOST_FILES: usize = 4;

/// What came.
#[derive(Debug)]
pub struct Frame {
    /// The message.
    pub message: Message,
    /// Bytes beside it.
    pub bytes: Secret,
    /// The descriptor beside it.
    pub file: Option<OwnedFd>,
}

/// A connection of two daemons.
#[derive(Debug)]
pub struct Channel(UnixStream);

impl Channel {
    /// Of a connection.
    pub fn new(stream: UnixStream) -> Self {
        Self(stream)
    }

    /// How long the other end may take for each piece of a message from now on.
    ///
    /// # Errors
    /// Of the system.
    pub fn set_patience(&self, patience: Option<Duration>) -> io::Result<()> {
        self.0.set_read_timeout(patience)?;
        self.0.set_write_timeout(patience)
    }

    /// Sends a message.
    ///
    /// # Errors
    /// The other end is gone, or takes nothing.
    pub fn send(&mut self, message: &Message, bytes: &[u8], file: Option<BorrowedFd<'_>>) -> io::Result<()> {
        let text = serde_json::to_vec(message)?;
        let length = |length: usize, most: usize| match u32::try_from(length) {
            Ok(fits) if length <= most => Ok(fits),
            _ => Err(io::Error::new(io::ErrorKind::InvalidInput, "too much for a message")),
        };
        let (text_bytes, beside) =
            (length(text.len(), MOST_MESSAGE_BYTES)?, length(bytes.len(), MOST_BYTES)?);
        let mut header = Vec::with_capacity(HEADER_BYTES);
        header.extend_from_slice(&MAGIC);
        for word in [FORM, text_bytes, beside, u32::from(file.is_some())] {
            header.extend_from_slice(&word.to_ne_bytes());
        }
        let mut sent = 0;
        while sent == 0 {
            let files: Vec<_> = file.into_iter().collect();
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut ancillary = SendAncillaryBuffer::new(&mut space);
            if !files.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(&files)) {
                return Err(io::Error::other("no room for a descriptor"));
            }
            sent = match sendmsg(&self.0, &[IoSlice::new(&header)], &mut ancillary, SendFlags::NOSIGNAL) {
                Ok(sent) => sent,
                Err(rustix::io::Errno::INTR) => 0,
                Err(error) => return Err(error.into()),
            };
        }
        self.0.write_all(header.get(sent..).unwrap_or_default())?;
        self.0.write_all(&text)?;
        self.0.write_all(bytes)
    }

    /// Receives a message; nothing where the other end is gone.
    ///
    /// # Errors
    /// What came is no message of this form, or breaks off.
    pub fn receive(&mut self) -> io::Result<Option<Frame>> {
        let (mut header, mut files) = ([0; HEADER_BYTES], Vec::new());
        let mut filled = 0;
        while filled < HEADER_BYTES {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_FILES))];
            let mut ancillary = RecvAncillaryBuffer::new(&mut space);
            let free = header.get_mut(filled..).unwrap_or_default();
            let into = &mut [IoSliceMut::new(free)];
            let received = match recvmsg(&self.0, into, &mut ancillary, RecvFlags::CMSG_CLOEXEC) {
                Ok(received) => received.bytes,
                Err(rustix::io::Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            };
            for item in ancillary.drain() {
                if let RecvAncillaryMessage::ScmRights(more) = item {
                    files.extend(more);
                }
            }
            match (received, filled) {
                (0, 0) => return Ok(None),
                (0, _) => return Err(io::ErrorKind::UnexpectedEof.into()),
                _ => filled += received,
            }
        }
        let word = |at: usize| {
            let word = header.get(at..at + 4).and_then(|word| word.first_chunk::<4>());
            word.map_or(0, |word| u32::from_ne_bytes(*word))
        };
        if !header.starts_with(&MAGIC) {
            return Err(wrong("the process at the other end hands nothing over".into()));
        }
        let (form, text_bytes, beside, count) = (word(8), word(12) as usize, word(16) as usize, word(20));
        if form != FORM {
            return Err(wrong(format!(
                "the other daemon hands over in form {form}, and this one (version {}) in form {FORM}: \
                 restart the daemon instead",
                env!("CARGO_PKG_VERSION")
            )));
        }
        if text_bytes > MOST_MESSAGE_BYTES
            || beside > MOST_BYTES
            || count as usize != files.len()
            || count > 1
        {
            return Err(wrong("a message of a wrong form".into()));
        }
        let mut text = vec![0; text_bytes];
        self.0.read_exact(&mut text)?;
        let mut bytes = vec![0; beside];
        self.0.read_exact(&mut bytes)?;
        let bytes = Secret::from(bytes);
        let message = serde_json::from_slice(&text)
            .map_err(|error| wrong(format!("a message that this daemon does not know: {error}")))?;
        Ok(Some(Frame { message, bytes, file: files.pop() }))
    }
}

fn wrong(why: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsFd;

    use super::*;

    fn pair() -> (Channel, UnixStream) {
        let (one, other) = UnixStream::pair().unwrap();
        (Channel::new(one), other)
    }

    #[test]
    fn messages_arrive_with_what_is_beside_them() {
        let (mut one, other) = pair();
        let mut other = Channel::new(other);
        let message = Message::Listener { service: "nbd".into(), place: "here".into() };
        let file = File::open("/dev/null").unwrap();
        one.send(&message, b"bytes", Some(file.as_fd())).unwrap();
        one.send(&Message::Given, &[], None).unwrap();
        drop(one);
        let frame = other.receive().unwrap().unwrap();
        assert_eq!((&frame.message, frame.bytes.bytes()), (&message, &b"bytes"[..]));
        assert!(File::from(frame.file.unwrap()).metadata().is_ok());
        let frame = other.receive().unwrap().unwrap();
        assert_eq!((frame.message, frame.file.is_none()), (Message::Given, true));
        assert!(other.receive().unwrap().is_none());
    }

    #[test]
    fn what_is_of_another_form_or_no_message_is_refused() {
        let received = |bytes: &[u8]| {
            let (mut one, mut other) = pair();
            other.write_all(bytes).unwrap();
            drop(other);
            one.receive().map(|frame| frame.is_some()).map_err(|error| error.to_string())
        };
        let header = |words: [u32; 4]| {
            let words = words.iter().flat_map(|word| word.to_ne_bytes());
            MAGIC.into_iter().chain(words).collect::<Vec<u8>>()
        };
        assert_eq!(received(b""), Ok(false));
        assert!(received(b"GET / HTTP/1.1\r\n\r\n......").unwrap_err().contains("hands nothing over"));
        let other = received(&header([FORM + 1, 0, 0, 0])).unwrap_err();
        assert!(other.contains("restart the daemon instead"), "{other}");
        for words in [[FORM, u32::MAX, 0, 0], [FORM, 2, u32::MAX, 0], [FORM, 2, 0, 1], [FORM, 0, 0, 9]] {
            assert!(received(&header(words)).unwrap_err().contains("wrong form"), "{words:?}");
        }
        let unknown = [header([FORM, 9, 0, 0]), br#""unknown""#.to_vec()].concat();
        assert!(received(&unknown).unwrap_err().contains("does not know"));
        assert!(received(&header([FORM, 9, 0, 0])).is_err());
    }
}
