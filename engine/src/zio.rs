//! One logical block: choose a copy, gang, verify the checksum, decrypt, decompress.
//!
//! | module | what it owns |
//! |---|---|
//! | `read` | from a block pointer to its block, by the ARC |
//! | `physical` | from a block pointer to verified bytes: copies, gangs, checksums |
//! | `heal` | rewriting the places of a block that hold wrong bytes |
//! | `transform` | from verified bytes to the block: authentication, decryption, decompression |
//! | `write` | from a block to its pointer: compress, checksum, embed, place, gang, write |

mod heal;
mod physical;
mod read;
mod transform;
pub mod write;

pub(crate) use heal::{Healing, Repaired};
pub(crate) use physical::{GangTree, How};
pub(crate) use transform::{decode, decode_embedded, decode_keeping};
pub(crate) use write::dedup;
pub(crate) use write::min_alloc;
pub use write::{Dedup, GangHeaders, LogRoom, Seal, WriteRequest, Writer, WriterFeatures};
pub(crate) use write::{Meter, is_heavy};
