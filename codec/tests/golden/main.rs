//! Pools that OpenZFS made, read with this crate's arithmetic alone.

#![allow(clippy::unwrap_used, reason = "a test")]

mod crypt;
mod raidz;
mod walk;
