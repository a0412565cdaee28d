//! Pools that OpenZFS made, read with this crate's arithmetic alone.

mod crypt;
mod raidz;
mod walk;
