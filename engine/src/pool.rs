//! An open pool.

pub mod discovery;
pub mod errlog;
pub mod features;
pub mod history;
pub mod import;
pub mod properties;
pub mod status;
pub mod verify;

/// An open pool, shared as `Arc<Pool>`.
#[derive(Debug)]
pub struct Pool {
    name: String,
}

impl Pool {
    /// The name under which the pool is imported.
    pub fn name(&self) -> &str {
        &self.name
    }
}
