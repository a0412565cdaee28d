//! Blocks that could not be read since the pool was opened. OpenZFS gathers the same for its error log
//! (`spa_log_error`).
//!
//! A pool that is open read-only cannot write them down. They are shown together with the persistent log
//! ([`crate::pool::errlog`]) and forgotten when the pool is closed.

use std::collections::BTreeSet;
use std::sync::Mutex;

use device::IgnorePoison;

use crate::Bookmark;

/// The largest number of blocks that are remembered. A pool with more damage than this has lost its disks,
/// and further blocks add no information.
const MAX_BLOCKS: usize = 100_000;

/// Blocks that could not be read.
#[derive(Debug, Default)]
pub struct Damage(Mutex<BTreeSet<Bookmark>>);

impl Damage {
    /// Remembers a block.
    pub(crate) fn note(&self, at: &Bookmark) {
        let mut blocks = self.0.lock().ignore_poison();
        if blocks.len() < MAX_BLOCKS {
            blocks.insert(*at);
        }
    }

    /// All remembered blocks, in order.
    pub fn blocks(&self) -> Vec<Bookmark> {
        self.0.lock().ignore_poison().iter().copied().collect()
    }
}
