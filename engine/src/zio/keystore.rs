//! The keys of encrypted datasets that are loaded, by objset.

/// The loaded keys of a pool.
#[derive(Debug, Default)]
pub struct Keystore {}
