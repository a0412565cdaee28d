//! Pool properties as `zpool get` shows them.

pub mod table;

pub use table::{PoolProp, VdevProp};
