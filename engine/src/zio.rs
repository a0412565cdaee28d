//! One logical block: choose a copy, gang, verify the checksum, decrypt, decompress; the keystore.
//!
//! | module | what it owns |
//! |---|---|
//! | `bookmark` | which block, for messages |
//! | `physical` | from a block pointer to verified bytes: copies, gangs, checksums |
//! | `heal` | rewriting places that do not hold what the block is made of |
//! | `transform` | from verified bytes to the block: authentication, decryption, decompression |
//! | `keystore` | the loaded keys |
//! | `write` | from a block to its pointer: compress, checksum, embed, place, gang, write |

pub mod bookmark;
mod heal;
pub mod keystore;
mod physical;
mod transform;
pub mod write;

pub use bookmark::Bookmark;
pub(crate) use heal::Healing;
pub use keystore::Keystore;
pub(crate) use physical::{GangTree, How};
pub(crate) use transform::{decode, decode_embedded};
pub(crate) use write::min_alloc;
pub use write::{GangHeaders, LogRoom, WriteRequest, Writer, WriterFeatures};
pub(crate) use write::{Meter, is_heavy};
