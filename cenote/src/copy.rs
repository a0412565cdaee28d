//! `cenote ls`, `cat` and `extract`: out of an exported pool without root, daemon or mount.
//!
//! Each opens the pool read-only in its own process ([`crate::exported`]) and names what it wants as
//! `POOL/FS[@SNAPSHOT][:/PATH]`.

pub mod cat;
pub mod extract;
pub mod ls;
mod sink;
pub(crate) mod target;
