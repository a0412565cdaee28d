//! Protocol data units: a header of 48 bytes, an additional header, digests, and data.
//!
//! | bytes | what |
//! |---|---|
//! | 0 | bit 6: immediate; bits 5 to 0: operation |
//! | 1 | flags; bit 7 is "final" in most operations |
//! | 4 | length of the additional header in words of 4 bytes |
//! | 5 to 7 | length of the data, without the padding to a word |
//! | 8 to 15 | LUN, or what the operation has there |
//! | 16 to 19 | the initiator's task tag |
//! | 24 to 27 | CmdSN of requests, StatSN of answers |
//! | 28 to 31 | ExpStatSN of requests, ExpCmdSN of answers |
//! | 32 to 35 | MaxCmdSN of answers |
//!
//! A header digest follows the headers, a data digest the padded data: CRC32C, the lowest byte first.
//!
//! Source of the facts: RFC 7143, sections 11 and 13.1.

use std::io;

use device::IoBuf;
use tokio::io::{AsyncRead, AsyncReadExt};

/// Bytes of a header.
pub(super) const HEADER_BYTES: usize = 48;
/// The tag that means none.
pub(super) const NO_TAG: u32 = u32::MAX;

/// Operations of initiators.
pub(super) mod request {
    pub const NOP_OUT: u8 = 0x00;
    pub const SCSI_COMMAND: u8 = 0x01;
    pub const TASK_MANAGEMENT: u8 = 0x02;
    pub const LOGIN: u8 = 0x03;
    pub const TEXT: u8 = 0x04;
    pub const DATA_OUT: u8 = 0x05;
    pub const LOGOUT: u8 = 0x06;
    pub const SNACK: u8 = 0x10;
}

/// Operations of targets.
pub(super) mod answer {
    pub const NOP_IN: u8 = 0x20;
    pub const SCSI_RESPONSE: u8 = 0x21;
    pub const TASK_MANAGEMENT: u8 = 0x22;
    pub const LOGIN: u8 = 0x23;
    pub const TEXT: u8 = 0x24;
    pub const DATA_IN: u8 = 0x25;
    pub const LOGOUT: u8 = 0x26;
    pub const R2T: u8 = 0x31;
    pub const ASYNC: u8 = 0x32;
    pub const REJECT: u8 = 0x3f;
}

/// A header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Header(pub [u8; HEADER_BYTES]);

impl Header {
    /// A header of this operation, with the "final" bit.
    pub fn new(operation: u8) -> Self {
        let mut bytes = [0; HEADER_BYTES];
        bytes[0] = operation;
        bytes[1] = FINAL;
        Self(bytes)
    }

    pub fn operation(&self) -> u8 {
        self.0[0] & 0x3f
    }

    pub fn is_immediate(&self) -> bool {
        self.0[0] & 0x40 != 0
    }

    pub fn flags(&self) -> u8 {
        self.0[1]
    }

    pub fn is_final(&self) -> bool {
        self.flags() & FINAL != 0
    }

    pub fn data_bytes(&self) -> usize {
        u32::from_be_bytes([0, self.0[5], self.0[6], self.0[7]]) as usize
    }

    pub fn task_tag(&self) -> u32 {
        self.word(16)
    }

    /// The word that begins at this byte.
    pub fn word(&self, at: usize) -> u32 {
        u32::from_be_bytes(self.array(at))
    }

    /// The bytes that begin at this one.
    pub fn array<const N: usize>(&self, at: usize) -> [u8; N] {
        self.0.get(at..).and_then(|rest| rest.first_chunk()).copied().unwrap_or([0; N])
    }

    pub fn set_flags(mut self, flags: u8) -> Self {
        self.0[1] = flags;
        self
    }

    pub fn set_word(self, at: usize, word: u32) -> Self {
        self.set(at, &word.to_be_bytes())
    }

    pub fn set(mut self, at: usize, bytes: &[u8]) -> Self {
        if let Some(place) = self.0.get_mut(at..at + bytes.len()) {
            place.copy_from_slice(bytes);
        }
        self
    }

    /// With the length of the data, which is at most 16 MiB.
    pub fn with_data_bytes(self, bytes: usize) -> Self {
        let [_, length @ ..] = (bytes as u32).to_be_bytes();
        self.set(5, &length)
    }
}

/// The "final" bit of the flags.
pub(super) const FINAL: u8 = 0x80;

/// Which digests a connection has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Digests {
    pub header: bool,
    pub data: bool,
}

/// A unit that was read.
#[derive(Debug)]
pub(super) struct Pdu {
    pub header: Header,
    pub data: IoBuf,
    /// The data are not what their digest says.
    pub is_damaged: bool,
}

/// Reads a unit whose data are at most `most_bytes` long.
///
/// # Errors
/// The socket's; a header that breaks the framing.
pub(super) async fn read(
    socket: &mut (impl AsyncRead + Unpin),
    digests: Digests,
    most_bytes: usize,
) -> io::Result<Pdu> {
    let mut header = [0; HEADER_BYTES];
    socket.read_exact(&mut header).await?;
    // At most 1020 bytes. No command here needs them.
    let mut additional = vec![0; usize::from(header[4]) * 4];
    socket.read_exact(&mut additional).await?;
    if digests.header {
        let is_right =
            socket.read_u32_le().await? == crc32c::crc32c_append(crc32c::crc32c(&header), &additional);
        if !is_right {
            return Err(violation("the digest of a header is wrong"));
        }
    }
    let header = Header(header);
    let data_bytes = header.data_bytes();
    if data_bytes > most_bytes {
        return Err(violation("a unit has more data than was agreed"));
    }
    let padded = data_bytes.next_multiple_of(4);
    let mut data = IoBuf::for_overwrite(padded);
    if padded > 0 {
        socket.read_exact(&mut data).await?;
    }
    let is_damaged = digests.data && padded > 0 && socket.read_u32_le().await? != crc32c::crc32c(&data);
    Ok(Pdu { header, data: data.narrow(0..data_bytes), is_damaged })
}

/// Appends a unit to what is sent.
pub(super) fn write(into: &mut Vec<u8>, header: Header, data: &[u8], digests: Digests) {
    write_parts(into, header, (data.len(), std::iter::once(data)), digests);
}

/// The same, of data that lie in parts: their bytes in all, and the parts.
pub(super) fn write_parts<'a>(
    into: &mut Vec<u8>,
    header: Header,
    (len_bytes, parts): (usize, impl Iterator<Item = &'a [u8]>),
    digests: Digests,
) {
    let header = header.with_data_bytes(len_bytes).0;
    into.extend(header);
    if digests.header {
        into.extend(crc32c::crc32c(&header).to_le_bytes());
    }
    if len_bytes > 0 {
        let start = into.len();
        into.reserve(len_bytes.next_multiple_of(4));
        parts.for_each(|part| into.extend_from_slice(part));
        into.resize(start + len_bytes.next_multiple_of(4), 0);
        if digests.data {
            let digest = crc32c::crc32c(into.get(start..).unwrap_or_default());
            into.extend(digest.to_le_bytes());
        }
    }
}

/// A unit that breaks the protocol.
pub(super) fn violation(why: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_is_written_is_read() {
        for digests in [Digests::default(), Digests { header: true, data: true }] {
            let mut bytes = Vec::new();
            write(&mut bytes, Header::new(answer::TEXT).set_word(16, 7), b"SendTargets=All", digests);
            write(&mut bytes, Header::new(answer::NOP_IN), &[], digests);
            let mut socket = bytes.as_slice();
            let first = read(&mut socket, digests, 100).await.expect("a unit");
            assert_eq!((first.header.task_tag(), &*first.data), (7, &b"SendTargets=All"[..]));
            let second = read(&mut socket, digests, 100).await.expect("a unit");
            assert_eq!((second.header.operation(), second.data.len()), (answer::NOP_IN, 0));
            assert!(socket.is_empty() && !first.is_damaged);
        }
    }

    #[tokio::test]
    async fn flipped_bits_are_found() {
        let digests = Digests { header: true, data: true };
        let mut bytes = Vec::new();
        write(&mut bytes, Header::new(answer::TEXT), b"data", digests);
        let of_data = bytes.len() - 6;
        bytes[of_data] ^= 1;
        assert!(read(&mut bytes.as_slice(), digests, 100).await.expect("a unit").is_damaged);
        bytes[20] ^= 1;
        assert!(read(&mut bytes.as_slice(), digests, 100).await.is_err());
    }

    #[tokio::test]
    async fn lengths_are_bounded() {
        let header = Header::new(request::NOP_OUT).with_data_bytes(101);
        assert!(read(&mut header.0.as_slice(), Digests::default(), 100).await.is_err());
    }
}
