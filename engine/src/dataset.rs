//! What a pool holds for people: datasets, their properties and keys, filesystems and volumes.

pub mod dsl;
pub mod keys;
pub mod properties;
mod range_locks;
pub mod zpl;
pub mod zvol;
