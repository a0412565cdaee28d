//! The connection of a mount with the kernel, as all threads that answer share it.

use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};

use super::freeze::Freezable;

/// Most bytes of a read or write: what the kernel's pages for one request hold.
pub const MAX_DATA_BYTES: usize = 1 << 20;

/// The connection of a mount.
pub type Device = Arc<dyn AsFd + Send + Sync>;

/// The shared state of all threads that answer. With the last of them the session ends.
#[derive(Debug)]
pub struct Life {
    freezable: Arc<Freezable>,
    /// The kernel did not end the session: other threads go on with it, here or in another process.
    is_stopped: Arc<AtomicBool>,
    _session: mpsc::Sender<()>,
}

impl Drop for Life {
    fn drop(&mut self) {
        if self.is_stopped.load(Ordering::Acquire) {
            return;
        }
        if let Some(served) = self.freezable.end() {
            served.release_all();
            // The system's `umount` returned already. What was written is to be on disk soon.
            if let Some(pool) = served.trees.pool() {
                pool.txgs().kick();
            }
        }
    }
}

impl Life {
    /// Of a session whose other end hears when the last thread ends.
    pub fn new(freezable: Arc<Freezable>, session: mpsc::Sender<()>) -> Self {
        Self { freezable, is_stopped: Arc::default(), _session: session }
    }

    /// Set where the threads end although the session goes on.
    pub fn is_stopped(&self) -> &Arc<AtomicBool> {
        &self.is_stopped
    }
}
