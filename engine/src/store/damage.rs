//! Blocks that could not be read since the pool was opened: what OpenZFS gathers for its error log
//! (`spa_log_error`).
//!
//! A pool that is open read-only cannot write them down; they are shown together with what its persistent log
//! says ([`crate::pool::errlog`]) and forgotten when it is closed.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use crate::Bookmark;

/// Blocks that are remembered. A pool that lost more than this has lost its disks, and every further block
/// says the same.
const MAX_BLOCKS: usize = 100_000;

/// Blocks that could not be read.
#[derive(Debug, Default)]
pub struct Damage(Mutex<BTreeSet<Bookmark>>);

impl Damage {
    /// Remembers a block.
    pub(crate) fn note(&self, at: &Bookmark) {
        let mut blocks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if blocks.len() < MAX_BLOCKS {
            blocks.insert(*at);
        }
    }

    /// All of them, in order.
    pub fn blocks(&self) -> Vec<Bookmark> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().copied().collect()
    }
}
