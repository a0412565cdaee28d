//! Pool properties as `zpool get` shows them.
//!
//! [`table`] says which properties pools and vdevs have, [`set`] what values one pool has, [`vdev`] those of
//! one vdev.

pub mod set;
pub mod table;
pub mod vdev;

pub use set::{PoolEnvironment, PoolProperties};
pub use table::{PoolProp, VdevProp};
pub use vdev::VdevProperties;
