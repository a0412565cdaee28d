//! Checksums, compression, encryption and parity arithmetic of OpenZFS, as pure functions.

pub mod draid;
pub mod raidz;
