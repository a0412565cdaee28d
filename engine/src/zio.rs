//! One logical block: choose a copy, gang, verify the checksum, decrypt, decompress; the keystore.

pub mod bookmark;

pub use bookmark::Bookmark;
