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
//! | `handed` | clients that another task or another daemon served before |
//! | `client` | the client's side of a handshake, for the kernel |
//! | `tls` | certificates, and the beginning of TLS |
//!
//! # What a client cannot do
//! Ask for more than [`MAX_REQUEST_BYTES`] at once, have more than a bounded number of requests and bytes
//! under way, send an option longer than the protocol needs, take for ever to choose an export, or affect
//! other clients ([`block::Limits`]). A request that breaks the framing ends the connection; any other
//! invalid request gets an error.
//!
//! Source of the facts: the NBD project's `doc/proto.md`.

mod client;
mod extents;
mod handed;
mod handshake;
mod listener;
mod protocol;
mod tls;
mod transmission;

use crate::block;

pub use client::{Chosen, choose};
pub use listener::{serve_tcp, serve_unix};
pub use tls::Tls;

/// The name of the protocol, among clients that are handed over.
pub(crate) const PROTOCOL: &str = "nbd";
/// The same over TCP.
pub(crate) const PROTOCOL_OVER_TCP: &str = "nbd-tcp";

/// The longest read or write that is served; clients are told.
pub const MAX_REQUEST_BYTES: u32 = 32 << 20;

use protocol::Errno;

impl From<block::FailureKind> for Errno {
    fn from(kind: block::FailureKind) -> Self {
        match kind {
            block::FailureKind::ReadOnly => Self::Perm,
            block::FailureKind::Io => Self::Io,
            block::FailureKind::Invalid => Self::Inval,
            block::FailureKind::NoSpace => Self::NoSpace,
            block::FailureKind::Gone => Self::Shutdown,
        }
    }
}
