//! NFS version 3: filesystems for a network, without FUSE and without root.
//!
//! # The idea
//! A client names a file by a handle, and each request stands for itself: the server keeps nothing of a
//! client that it would need after a restart. A handle is made of numbers that a file keeps (`handle`), so
//! that clients go on when the daemon or the machine was started anew, or the pool was imported elsewhere.
//!
//! Requests go straight to [`crate::files`]. What a kernel does for a mounted filesystem is done here: who
//! may do what (`permission`), by the user that the client says (`rpc`) or that stands for it (`rules`).
//!
//! NFS and the protocol by which clients mount are served on the same TCP port. There is no portmapper: a
//! client is told the port (`mount -o port=N,mountport=N`). Locks (NLM) are not served: `nolock`.
//!
//! | module | what it owns |
//! |---|---|
//! | `xdr` | numbers and bytes |
//! | `rpc` | records, calls, credentials |
//! | `handle` | file handles |
//! | `names` | names of hosts in it |
//! | `rules` | the property `sharenfs` |
//! | `permission` | what a user may do with a file |
//! | `status` | errors as clients are told them |
//! | `call` | a call with its share and its user |
//! | `procedures` | NFS |
//! | `mounting` | the protocol for mounting |
//! | `repeated` | requests that come twice and are done once |
//! | `clients` | who asks |
//! | `counted` | how often, and with which outcome |
//! | `serving` | connections and threads |
//!
//! # Stable and not
//! A write is buffered, made stable when the client asks for it, and lost with a crash before that. The
//! client finds that out by the verifier, which is another one after each import of the pool, and writes
//! again. Changes of names and attributes are stable when they are answered, unless the share is `async`.
//!
//! # What a client cannot do
//! Have memory taken on the word of a length, be served without being let in by `sharenfs` (each request is
//! checked), have more requests under way or more connections than there is room for, or take for ever to
//! send a request or to take an answer (`serving`).
//!
//! Source of the facts: RFC 1813 (NFS), RFC 5531 (RPC), RFC 4506 (XDR).

mod call;
mod clients;
mod counted;
mod handle;
mod mounting;
mod names;
mod permission;
mod procedures;
mod repeated;
mod rpc;
mod rules;
mod serving;
mod status;
mod xdr;

pub use clients::{Client, Clients};
pub use counted::{Counted, Procedure};
pub use rules::{Grant, Rules};
pub use serving::serve;

/// The port where clients look for it.
pub const PORT: u16 = 2049;
