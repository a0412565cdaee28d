//! Messages of vhost-user.
//!
//! # The layout
//! | offset | size | meaning |
//! |---|---|---|
//! | 0 | 4 | the request |
//! | 4 | 4 | flags: version 1, bit 2 for a reply, bit 3 where one is wanted |
//! | 8 | 4 | length of what follows |
//! | 12 | | the payload |
//!
//! Descriptors of files come beside the header. All numbers are in the machine's order.
//!
//! Source of the facts: QEMU, "Vhost-user Protocol".

use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};
use tokio::io::Interest;
use tokio::net::UnixStream;

/// Requests of clients.
pub(super) mod request {
    pub const GET_FEATURES: u32 = 1;
    pub const SET_FEATURES: u32 = 2;
    pub const SET_OWNER: u32 = 3;
    pub const RESET_OWNER: u32 = 4;
    pub const SET_MEM_TABLE: u32 = 5;
    pub const SET_VRING_NUM: u32 = 8;
    pub const SET_VRING_ADDR: u32 = 9;
    pub const SET_VRING_BASE: u32 = 10;
    pub const GET_VRING_BASE: u32 = 11;
    pub const SET_VRING_KICK: u32 = 12;
    pub const SET_VRING_CALL: u32 = 13;
    pub const SET_VRING_ERR: u32 = 14;
    pub const GET_PROTOCOL_FEATURES: u32 = 15;
    pub const SET_PROTOCOL_FEATURES: u32 = 16;
    pub const GET_QUEUE_NUM: u32 = 17;
    pub const SET_VRING_ENABLE: u32 = 18;
    pub const SET_BACKEND_REQ_FD: u32 = 21;
    pub const GET_CONFIG: u32 = 24;
    pub const SET_CONFIG: u32 = 25;
    pub const GET_INFLIGHT_FD: u32 = 31;
    pub const SET_INFLIGHT_FD: u32 = 32;
    pub const RESET_DEVICE: u32 = 34;
    pub const GET_MAX_MEM_SLOTS: u32 = 36;
    pub const ADD_MEM_REG: u32 = 37;
    pub const REM_MEM_REG: u32 = 38;
}

/// Features of the protocol that are offered.
pub(super) mod feature {
    pub const MQ: u64 = 1 << 0;
    pub const REPLY_ACK: u64 = 1 << 3;
    pub const BACKEND_REQ: u64 = 1 << 5;
    pub const CONFIG: u64 = 1 << 9;
    pub const INFLIGHT_SHMFD: u64 = 1 << 12;
    pub const RESET_DEVICE: u64 = 1 << 13;
    pub const CONFIGURE_MEM_SLOTS: u64 = 1 << 15;
    pub const ALL: u64 =
        MQ | REPLY_ACK | BACKEND_REQ | CONFIG | INFLIGHT_SHMFD | RESET_DEVICE | CONFIGURE_MEM_SLOTS;
}

const HEADER_BYTES: usize = 12;
/// What no message is longer than.
const MOST_BYTES: usize = 4096;
/// Descriptors that may come with one message.
const MOST_FILES: usize = 32;

const VERSION: u32 = 1;
const VERSION_MASK: u32 = 3;
const REPLY: u32 = 1 << 2;
const NEED_REPLY: u32 = 1 << 3;

/// The request by which a client is told that the configuration changed.
const CONFIG_CHANGED: u32 = 2;

/// A message that came.
#[derive(Debug)]
pub(super) struct Message {
    pub request: u32,
    pub needs_reply: bool,
    pub payload: Vec<u8>,
    pub files: Vec<OwnedFd>,
}

/// A message that does not keep to the protocol ends the connection.
pub(super) fn violation(why: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

impl Message {
    /// The number at an offset of the payload.
    pub fn u32(&self, at: usize) -> io::Result<u32> {
        let bytes = self.payload.get(at..).and_then(|rest| rest.first_chunk());
        bytes.map(|bytes| u32::from_ne_bytes(*bytes)).ok_or_else(|| violation("a message that is too short"))
    }

    /// The number at an offset of the payload.
    pub fn u64(&self, at: usize) -> io::Result<u64> {
        let bytes = self.payload.get(at..).and_then(|rest| rest.first_chunk());
        bytes.map(|bytes| u64::from_ne_bytes(*bytes)).ok_or_else(|| violation("a message that is too short"))
    }

    /// The only file that came with it.
    pub fn file(&mut self) -> io::Result<OwnedFd> {
        let file = self.files.pop().filter(|_| self.files.is_empty());
        file.ok_or_else(|| violation("a message without its one file"))
    }
}

/// A connection. What came of a message stays here, so that waiting for the rest can be given up and begun
/// again.
#[derive(Debug)]
pub(super) struct Wire {
    stream: Arc<UnixStream>,
    bytes: Vec<u8>,
    files: Vec<OwnedFd>,
}

impl Wire {
    /// A connection that begins.
    pub fn new(stream: UnixStream) -> Self {
        Self { stream: Arc::new(stream), bytes: Vec::new(), files: Vec::new() }
    }

    /// The next message; nothing when the client is gone.
    ///
    /// # Errors
    /// It does not keep to the protocol.
    pub async fn next(&mut self) -> io::Result<Option<Message>> {
        loop {
            let wanted = match self.bytes.first_chunk::<HEADER_BYTES>() {
                None => HEADER_BYTES,
                Some(header) => HEADER_BYTES + length(header)?,
            };
            if self.bytes.len() >= HEADER_BYTES && self.bytes.len() == wanted {
                let mut bytes = std::mem::take(&mut self.bytes);
                let payload = bytes.split_off(HEADER_BYTES);
                let files = std::mem::take(&mut self.files);
                let word = |at: usize| {
                    let word = bytes.get(at..).and_then(|rest| rest.first_chunk());
                    word.map_or(0, |word| u32::from_ne_bytes(*word))
                };
                let needs_reply = word(4) & NEED_REPLY != 0;
                return Ok(Some(Message { request: word(0), needs_reply, payload, files }));
            }
            let missing = wanted - self.bytes.len();
            let received = self.receive(missing).await?;
            if received == 0 {
                return match self.bytes.is_empty() {
                    true => Ok(None),
                    false => Err(violation("a message that is cut short")),
                };
            }
        }
    }

    /// Receives up to so many bytes, and the files beside them.
    async fn receive(&mut self, most: usize) -> io::Result<usize> {
        let mut into = vec![0; most];
        let mut files = Vec::new();
        let stream = Arc::clone(&self.stream);
        let received = stream
            .async_io(Interest::READABLE, || {
                let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_FILES))];
                let mut beside = RecvAncillaryBuffer::new(&mut space);
                let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
                let got = recvmsg(&*stream, &mut [IoSliceMut::new(&mut into)], &mut beside, flags)?;
                for item in beside.drain() {
                    if let RecvAncillaryMessage::ScmRights(more) = item {
                        files.extend(more);
                    }
                }
                Ok(got.bytes)
            })
            .await?;
        self.files.append(&mut files);
        if self.files.len() > MOST_FILES {
            return Err(violation("a message with too many files"));
        }
        self.bytes.extend_from_slice(into.get(..received).unwrap_or_default());
        Ok(received)
    }

    /// Answers a request, with a file beside it where there is one.
    ///
    /// # Errors
    /// The client is gone.
    pub async fn reply(&self, request: u32, payload: &[u8], file: Option<&OwnedFd>) -> io::Result<()> {
        let mut bytes = header(request, VERSION | REPLY, payload);
        bytes.extend_from_slice(payload);
        send(&self.stream, &bytes, file).await
    }
}

/// Tells a client, on the connection that it made for that, that the configuration changed.
///
/// # Errors
/// The client is gone.
pub(super) async fn tell_config_changed(channel: &UnixStream) -> io::Result<()> {
    send(channel, &header(CONFIG_CHANGED, VERSION, &[]), None).await
}

fn header(request: u32, flags: u32, payload: &[u8]) -> Vec<u8> {
    // It is shorter than a message may be.
    [request, flags, payload.len() as u32].iter().flat_map(|word| word.to_ne_bytes()).collect()
}

async fn send(stream: &UnixStream, mut bytes: &[u8], mut file: Option<&OwnedFd>) -> io::Result<()> {
    while !bytes.is_empty() {
        let sent = stream
            .async_io(Interest::WRITABLE, || {
                let files: Vec<_> = file.iter().map(|file| file.as_fd()).collect();
                let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
                let mut beside = SendAncillaryBuffer::new(&mut space);
                if !files.is_empty() && !beside.push(SendAncillaryMessage::ScmRights(&files)) {
                    return Err(io::Error::other("no room for a descriptor"));
                }
                let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
                Ok(sendmsg(stream, &[io::IoSlice::new(bytes)], &mut beside, flags)?)
            })
            .await?;
        file = None;
        bytes = bytes.get(sent..).unwrap_or_default();
    }
    Ok(())
}

/// The length of a payload, by its header.
fn length(header: &[u8; HEADER_BYTES]) -> io::Result<usize> {
    let [_, _, _, _, f0, f1, f2, f3, l0, l1, l2, l3] = *header;
    let flags = u32::from_ne_bytes([f0, f1, f2, f3]);
    if flags & VERSION_MASK != VERSION || flags & REPLY != 0 {
        return Err(violation("a message of another version"));
    }
    let length = u32::from_ne_bytes([l0, l1, l2, l3]) as usize;
    if length > MOST_BYTES { Err(violation("a message that is too long")) } else { Ok(length) }
}
