//! Pools: found, opened, described, verified, and written.
//!
//! What an open pool is to those who read its blocks is [`crate::store`]. Here is what stands on the block
//! layer, objects and datasets: discovery of devices, import, the trusted configuration, status, properties,
//! verification; and [`live`], pools that are written.

pub mod discovery;
pub mod errlog;
pub mod import;
pub mod live;
mod load;
pub mod properties;
pub mod replayed;
pub mod status;
pub mod verify;
