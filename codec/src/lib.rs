//! Checksums, compression, encryption and parity arithmetic of OpenZFS, as pure functions.
//!
//! Everything here is slices in, slices out: no I/O, no policy, no state but per-thread scratch. Input comes
//! from disks and peers, so a decoder returns an error and never panics, never reads or writes outside its
//! slices, and never works longer than its input and output justify.

pub mod checksum;
pub mod compress;
pub mod crypt;
pub mod draid;
mod error;
pub mod raidz;
mod zero;

pub use error::{Error, Result};
pub use zero::is_all_zero;
