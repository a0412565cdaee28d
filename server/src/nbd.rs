//! NBD: volumes as block devices for any program that speaks the protocol.
//!
//! # The idea
//! One connection is one task on one shard. It reads as many requests as the socket has, starts each of them,
//! and polls it once on the spot. A request for cached data is answered by that first poll: no task, no
//! thread, no allocation. A request that waits for a disk stays with the connection as a future. All answers
//! that are ready leave in one vectored write. A buffered write is as quick: its bytes are read from the
//! socket into the memory that the export gets.
//!
//! | module | what it owns |
//! |---|---|
//! | `protocol` | the numbers and layouts of the protocol, as pure functions |
//! | `handshake` | from the greeting to an opened export |
//! | `transmission` | requests and replies |
//! | `extents` | block status |
//! | `listener` | sockets, and which shard gets a connection |
//! | `limits` | the number of clients, and the memory that they may use together |
//! | `client` | the client's side of a handshake, for the kernel |
//! | `tls` | certificates, and the beginning of TLS |
//!
//! # What a client cannot do
//! Ask for more than [`MAX_REQUEST_BYTES`] at once, have more than a bounded number of requests and bytes
//! under way, send an option longer than the protocol needs, take for ever to choose an export, or affect
//! other clients ([`Limits`]). A request that breaks the framing ends the connection; any other invalid
//! request gets an error.
//!
//! Source of the facts: the NBD project's `doc/proto.md`.

mod client;
mod extents;
mod handshake;
mod limits;
mod listener;
mod protocol;
mod tls;
mod transmission;

use std::{future::Future, sync::Arc};

use device::IoBuf;

pub use client::{Chosen, choose};
pub use limits::{Limits, OWN_BYTES};
pub use listener::{serve_tcp, serve_unix};
pub use protocol::Errno;
pub use tls::Tls;

/// The longest read or write that is served; clients are told.
pub const MAX_REQUEST_BYTES: u32 = 32 << 20;

/// The exports, by name.
pub trait Exports: Send + Sync + 'static {
    /// The kind of export.
    type Export: Export;

    /// The names to list. An export may exist without being listed.
    fn names(&self) -> impl Future<Output = Vec<String>> + Send;

    /// The export of that name. May take as long as it takes: clients are told when it takes too long.
    fn open(&self, name: &str) -> impl Future<Output = Result<Arc<Self::Export>, Unopened>> + Send;
}

/// Why an export was not opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unopened {
    /// There is none of that name.
    Unknown,
    /// It cannot be used at present, for a reason that the client is told.
    Unavailable(String),
}

/// A block device. Read-only, unless it says otherwise and has all methods. Any number of connections may
/// have it at once: what a reply to one of them says is done, all others see.
pub trait Export: Send + Sync + 'static {
    /// Its size at present.
    fn size_bytes(&self) -> u64;

    /// The size and alignment of requests that cost the least. A power of two.
    fn block_bytes(&self) -> u32;

    /// Whether it can be written.
    fn is_writable(&self) -> bool {
        false
    }

    /// Fills `into` with what is at `offset`; the range lies within the size. Ready in the first poll when
    /// cached.
    fn read(&self, offset: u64, into: &mut [u8]) -> impl Future<Output = Result<(), ExportError>> + Send;

    /// The state of the bytes from `offset` on, which lies within the size. The extent may be shorter
    /// than the whole run of its kind, but not empty, and may reach past the end.
    fn extent(&self, offset: u64) -> impl Future<Output = Result<Extent, ExportError>> + Send;

    /// Writes. When `stable`, the bytes survive a crash once this is ready (FUA). Ready in the first poll
    /// when only buffered.
    fn write(
        &self,
        _offset: u64,
        _data: IoBuf,
        _stable: bool,
    ) -> impl Future<Output = Result<(), ExportError>> + Send {
        async { Err(ExportError::read_only()) }
    }

    /// Gives space back: what lies in the range reads as zeroes or as before.
    fn trim(
        &self,
        _offset: u64,
        _len_bytes: u64,
        _stable: bool,
    ) -> impl Future<Output = Result<(), ExportError>> + Send {
        async { Err(ExportError::read_only()) }
    }

    /// Makes a range read as zeroes, in less time than writing them takes unless `allocate`: then the range
    /// takes space afterwards as if they were written.
    fn write_zeroes(
        &self,
        _offset: u64,
        _len_bytes: u64,
        _allocate: bool,
        _stable: bool,
    ) -> impl Future<Output = Result<(), ExportError>> + Send {
        async { Err(ExportError::read_only()) }
    }

    /// Makes everything stable whose write was replied to, on any connection.
    fn flush(&self) -> impl Future<Output = Result<(), ExportError>> + Send {
        async { Ok(()) }
    }
}

/// A run of bytes of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Its length.
    pub len_bytes: u64,
    /// Never written: it takes no space and reads as zeros.
    pub is_hole: bool,
}

/// Why an export could not answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ExportError {
    /// The protocol's error number for it.
    pub errno: Errno,
    /// For a person. Clients see it where they take structured replies.
    pub message: String,
}

impl ExportError {
    fn read_only() -> Self {
        Self { errno: Errno::Perm, message: "the export is read-only".into() }
    }
}
