//! Pool properties as `zpool get` shows them.
//!
//! [`table`] says which properties pools and vdevs have, [`set`] what values one pool has.

pub mod set;
pub mod table;

pub use set::{PoolEnvironment, PoolProperties};
pub use table::{PoolProp, VdevProp};
