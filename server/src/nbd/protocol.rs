//! The numbers and layouts of the protocol. Everything is big-endian.
//!
//! Greeting: `NBDMAGIC`, `IHAVEOPT`, flags u16; the client answers with its flags u32.
//!
//! | option (client) | bytes | | option reply (server) | bytes |
//! |---|---|---|---|---|
//! | `IHAVEOPT` | 8 | | magic | 8 |
//! | option | 4 | | option | 4 |
//! | length | 4 | | type | 4 |
//! | data | length | | length, data | 4 + length |
//!
//! | request | bytes | | simple reply | bytes | | structured chunk | bytes |
//! |---|---|---|---|---|---|---|---|
//! | magic | 4 | | magic | 4 | | magic | 4 |
//! | flags | 2 | | error | 4 | | flags | 2 |
//! | type | 2 | | cookie | 8 | | type | 2 |
//! | cookie | 8 | | data of a read | | | cookie | 8 |
//! | offset | 8 | | | | | length | 4 |
//! | length | 4 | | | | | payload | length |

/// `NBDMAGIC`
pub(super) const GREETING_MAGIC: u64 = 0x4e42_444d_4147_4943;
/// `IHAVEOPT`
pub(super) const OPTION_MAGIC: u64 = 0x4948_4156_454f_5054;
pub(super) const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
pub(super) const REQUEST_MAGIC: u32 = 0x2560_9513;
pub(super) const SIMPLE_REPLY_MAGIC: u32 = 0x6744_6698;
pub(super) const CHUNK_MAGIC: u32 = 0x668e_33ef;

/// Flags of the greeting, and of the client's answer.
pub(super) const FLAG_FIXED_NEWSTYLE: u16 = 1;
pub(super) const FLAG_NO_ZEROES: u16 = 2;

/// Zeros after the answer to `NBD_OPT_EXPORT_NAME`, unless the client wants none.
pub(super) const EXPORT_NAME_ZEROES: usize = 124;

/// Options.
pub(super) mod option {
    pub const EXPORT_NAME: u32 = 1;
    pub const ABORT: u32 = 2;
    pub const LIST: u32 = 3;
    pub const STARTTLS: u32 = 5;
    pub const INFO: u32 = 6;
    pub const GO: u32 = 7;
    pub const STRUCTURED_REPLY: u32 = 8;
    pub const LIST_META_CONTEXT: u32 = 9;
    pub const SET_META_CONTEXT: u32 = 10;
}

/// Types of option replies.
pub(super) mod reply {
    pub const ACK: u32 = 1;
    pub const SERVER: u32 = 2;
    pub const INFO: u32 = 3;
    pub const META_CONTEXT: u32 = 4;
    const ERROR: u32 = 1 << 31;
    pub const ERR_UNSUP: u32 = ERROR | 1;
    pub const ERR_POLICY: u32 = ERROR | 2;
    pub const ERR_INVALID: u32 = ERROR | 3;
    pub const ERR_TLS_REQD: u32 = ERROR | 5;
    pub const ERR_UNKNOWN: u32 = ERROR | 6;
}

/// Kinds of information about an export.
pub(super) mod info {
    pub const EXPORT: u16 = 0;
    pub const NAME: u16 = 1;
    pub const BLOCK_SIZE: u16 = 3;
}

/// The capabilities of an export.
pub(super) mod transmission {
    pub const HAS_FLAGS: u16 = 1 << 0;
    pub const READ_ONLY: u16 = 1 << 1;
    pub const SEND_FLUSH: u16 = 1 << 2;
    pub const SEND_FUA: u16 = 1 << 3;
    pub const SEND_TRIM: u16 = 1 << 5;
    pub const SEND_WRITE_ZEROES: u16 = 1 << 6;
    pub const SEND_DF: u16 = 1 << 7;
    pub const CAN_MULTI_CONN: u16 = 1 << 8;
    pub const SEND_FAST_ZERO: u16 = 1 << 11;
}

/// Commands.
pub(super) mod command {
    pub const READ: u16 = 0;
    pub const WRITE: u16 = 1;
    pub const DISC: u16 = 2;
    pub const FLUSH: u16 = 3;
    pub const TRIM: u16 = 4;
    pub const CACHE: u16 = 5;
    pub const WRITE_ZEROES: u16 = 6;
    pub const BLOCK_STATUS: u16 = 7;
}

/// Flags of commands.
pub(super) mod command_flag {
    pub const FUA: u16 = 1 << 0;
    pub const NO_HOLE: u16 = 1 << 1;
    pub const DF: u16 = 1 << 2;
    pub const REQ_ONE: u16 = 1 << 3;
    pub const FAST_ZERO: u16 = 1 << 4;
}

/// Structured reply chunks.
pub(super) mod chunk {
    pub const FLAG_DONE: u16 = 1;
    pub const OFFSET_DATA: u16 = 1;
    pub const BLOCK_STATUS: u16 = 5;
    pub const ERROR: u16 = (1 << 15) | 1;
}

/// The one metadata context that is offered.
pub(super) const BASE_ALLOCATION: &str = "base:allocation";
/// Its number on every connection.
pub(super) const BASE_ALLOCATION_ID: u32 = 1;
pub(super) const STATE_HOLE: u32 = 1;
pub(super) const STATE_ZERO: u32 = 2;

/// Errors that the protocol knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Errno {
    /// Not permitted: a write to what is read-only.
    Perm = 1,
    /// The data could not be read.
    Io = 5,
    /// The request makes no sense.
    Inval = 22,
    /// There is no room for it, or it begins or ends beyond the end.
    NoSpace = 28,
    /// It cannot be done in the way asked for.
    NotSupported = 95,
    /// The server is going away.
    Shutdown = 108,
}

/// A request, as it arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Request {
    pub flags: u16,
    pub command: u16,
    pub cookie: u64,
    pub offset: u64,
    pub len_bytes: u32,
}

impl Request {
    pub(super) const BYTES: usize = 28;

    /// Reads a request; `None` when it does not begin with the magic number.
    pub(super) fn parse(bytes: &[u8; Self::BYTES]) -> Option<Self> {
        let [m0, m1, m2, m3, f0, f1, c0, c1, rest @ ..] = bytes;
        let [k0, k1, k2, k3, k4, k5, k6, k7, rest @ ..] = rest;
        let [o0, o1, o2, o3, o4, o5, o6, o7, l0, l1, l2, l3] = rest;
        if u32::from_be_bytes([*m0, *m1, *m2, *m3]) != REQUEST_MAGIC {
            return None;
        }
        Some(Self {
            flags: u16::from_be_bytes([*f0, *f1]),
            command: u16::from_be_bytes([*c0, *c1]),
            cookie: u64::from_be_bytes([*k0, *k1, *k2, *k3, *k4, *k5, *k6, *k7]),
            offset: u64::from_be_bytes([*o0, *o1, *o2, *o3, *o4, *o5, *o6, *o7]),
            len_bytes: u32::from_be_bytes([*l0, *l1, *l2, *l3]),
        })
    }

    /// Its bytes, as they came.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(Self::BYTES);
        bytes.extend(REQUEST_MAGIC.to_be_bytes());
        bytes.extend(self.flags.to_be_bytes());
        bytes.extend(self.command.to_be_bytes());
        bytes.extend(self.cookie.to_be_bytes());
        bytes.extend(self.offset.to_be_bytes());
        bytes.extend(self.len_bytes.to_be_bytes());
        bytes
    }
}

/// The bytes of a reply before its payload.
#[derive(Clone, Copy, Debug)]
pub(super) struct Head {
    bytes: [u8; Self::MAX_BYTES],
    len: usize,
}

impl Head {
    /// A chunk's header and the offset that precedes data.
    const MAX_BYTES: usize = 28;

    fn new() -> Self {
        Self { bytes: [0; Self::MAX_BYTES], len: 0 }
    }

    fn put<const N: usize>(mut self, bytes: [u8; N]) -> Self {
        self.bytes[self.len..self.len + N].copy_from_slice(&bytes);
        self.len += N;
        self
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// Of bytes that are on their way already, with their head.
    pub(super) fn none() -> Self {
        Self::new()
    }

    /// A simple reply; `None` is success.
    pub(super) fn simple(cookie: u64, error: Option<Errno>) -> Self {
        Self::new()
            .put(SIMPLE_REPLY_MAGIC.to_be_bytes())
            .put(error.map_or(0, |errno| errno as u32).to_be_bytes())
            .put(cookie.to_be_bytes())
    }

    /// The only chunk of a structured reply.
    pub(super) fn chunk(cookie: u64, kind: u16, payload_bytes: u32) -> Self {
        Self::new()
            .put(CHUNK_MAGIC.to_be_bytes())
            .put(chunk::FLAG_DONE.to_be_bytes())
            .put(kind.to_be_bytes())
            .put(cookie.to_be_bytes())
            .put(payload_bytes.to_be_bytes())
    }

    /// The only chunk of a structured reply to a read.
    pub(super) fn data_chunk(cookie: u64, offset: u64, data_bytes: u32) -> Self {
        Self::chunk(cookie, chunk::OFFSET_DATA, data_bytes.saturating_add(8)).put(offset.to_be_bytes())
    }
}

/// Takes an option's data apart; `None` at the first thing that does not fit.
pub(super) struct OptionData<'a>(pub &'a [u8]);

impl<'a> OptionData<'a> {
    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(taken)
    }

    pub(super) fn u16(&mut self) -> Option<u16> {
        Some(u16::from_be_bytes(self.take(2)?.try_into().ok()?))
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        Some(u32::from_be_bytes(self.take(4)?.try_into().ok()?))
    }

    /// A length and that many bytes of UTF-8.
    pub(super) fn string(&mut self) -> Option<&'a str> {
        let len = self.u32()?;
        std::str::from_utf8(self.take(usize::try_from(len).ok()?)?).ok()
    }

    pub(super) fn end(&self) -> Option<()> {
        self.0.is_empty().then_some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_read_field_by_field() {
        let bytes =
            [0x25, 0x60, 0x95, 0x13, 0, 8, 0, 7, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 16, 0];
        let request = Request {
            flags: command_flag::REQ_ONE,
            command: command::BLOCK_STATUS,
            cookie: 0x0102_0304_0506_0708,
            offset: 1 << 32,
            len_bytes: 4096,
        };
        assert_eq!(request.encode(), bytes);
        assert_eq!(Request::parse(&bytes), Some(request));
        assert_eq!(Request::parse(&[0; 28]), None);
    }

    #[test]
    fn replies_have_the_layout_of_the_protocol() {
        let simple = Head::simple(7, Some(Errno::Perm));
        assert_eq!(simple.as_bytes(), [0x67, 0x44, 0x66, 0x98, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 7]);
        let data = Head::data_chunk(7, 512, 4096);
        let expected =
            [0x66, 0x8e, 0x33, 0xef, 0, 1, 0, 1, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 16, 8, 0, 0, 0, 0, 0, 0, 2, 0];
        assert_eq!(data.as_bytes(), expected);
    }

    #[test]
    fn option_data_that_lies_about_its_lengths_is_refused() {
        assert_eq!(OptionData(&[0, 0, 0, 2, b'a', b'b']).string(), Some("ab"));
        assert_eq!(OptionData(&[0, 0, 0, 3, b'a', b'b']).string(), None);
        assert_eq!(OptionData(&[0xff, 0xff, 0xff, 0xff]).string(), None);
        assert_eq!(OptionData(&[0, 0, 0, 1, 0xff]).string(), None);
        assert_eq!(OptionData(&[0]).u16(), None);
    }
}
