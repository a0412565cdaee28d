//! The protocol of FUSE: requests out of bytes, answers into bytes.
//!
//! # The idea
//! A request is a header, a fixed part that depends on what is asked, and a rest of names or data. They come
//! in one piece ([`request`]). The answer to it is a header with an error or none, and then what was asked
//! for ([`answer`]). Nothing here knows a filesystem or a transport.
//!
//! # Layout
//! All numbers are in the order of the machine, since both sides are on it. Version 7.40, which the handshake
//! agrees on.
//!
//! Header of a request, 40 bytes:
//!
//! | offset | size | name | meaning |
//! |---|---|---|---|
//! | 0 | 4 | len | of the request, with the header |
//! | 4 | 4 | opcode | what is asked |
//! | 8 | 8 | unique | what the answer names |
//! | 16 | 8 | nodeid | what it is asked of |
//! | 24 | 4 | uid | of the process |
//! | 28 | 4 | gid | |
//! | 32 | 4 | pid | |
//! | 36 | 4 | | extensions, which are not agreed on |
//!
//! Header of an answer, 16 bytes:
//!
//! | offset | size | name | meaning |
//! |---|---|---|---|
//! | 0 | 4 | len | of the answer, with the header |
//! | 4 | 4 | error | 0, or a negative error number; then nothing follows |
//! | 8 | 8 | unique | the request's |
//!
//! Source: Linux, `include/uapi/linux/fuse.h`.

pub mod answer;
pub mod request;

pub use answer::{Attributes, Figures, NameAnswer, Room, answer_header};
pub use request::{Caller, LONG_BYTES, Operation, Request, WRITE_HEAD_BYTES, Wanted, When};

/// Bytes of a request's header.
pub const REQUEST_HEADER_BYTES: usize = 40;
/// Bytes of an answer's header.
pub const ANSWER_HEADER_BYTES: usize = 16;
