//! Pool properties as `zpool get` shows them.
