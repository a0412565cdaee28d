//! The shared stack of block pointers still to be visited.
//!
//! One mutex guards the stack and the number of items that were taken and are not done; no other lock is
//! taken under it. The work is over when the stack is empty and nothing is being worked on that could add to
//! it.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use ondisk::Txg;
use ondisk::blkptr::Blkptr;

use crate::Bookmark;

/// Bytes on disk of the blocks of one batch, about.
const BATCH_BYTES: u64 = 1 << 20;
/// Most blocks of one batch.
const BATCH_BLOCKS: usize = 256;

/// A block to visit.
#[derive(Clone, Copy)]
pub(super) struct Work {
    pub bp: Blkptr,
    pub at: Bookmark,
    /// Blocks that are not younger were met in an older snapshot.
    pub min_txg: Txg,
    /// Part of a snapshot, whose intent log is a stale copy.
    pub is_snapshot: bool,
    /// The object set was met in a snapshot; only its intent log, which is the head's alone, is to be
    /// visited.
    pub log_only: bool,
    /// Part of a dataset that is being destroyed: counted as waiting to be freed.
    pub is_leaving: bool,
}

#[derive(Default)]
pub(super) struct Queue {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    stack: Vec<Work>,
    taken: usize,
    waiting: usize,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn push(&self, work: impl IntoIterator<Item = Work>) {
        let mut state = self.lock();
        state.stack.extend(work);
        if state.waiting > 0 {
            self.changed.notify_all();
        }
    }

    /// Takes neighbours from the top of the stack; [`Queue::done`] must be told how many.
    pub fn take(&self) -> Option<Vec<Work>> {
        let mut state = self.lock();
        let mut bytes = 0;
        let limit = state.stack.len().min(BATCH_BLOCKS);
        let count = state.stack.iter().rev().take(limit).take_while(|work| {
            let fits = bytes < BATCH_BYTES;
            bytes += work.bp.asize().get();
            fits
        });
        let count = count.count();
        let rest = state.stack.len() - count;
        let batch = state.stack.split_off(rest);
        state.taken += batch.len();
        if batch.is_empty() { None } else { Some(batch) }
    }

    pub fn done(&self, count: usize) {
        let mut state = self.lock();
        state.taken = state.taken.saturating_sub(count);
        if state.taken == 0 && state.stack.is_empty() {
            self.changed.notify_all();
        }
    }

    /// Waits until there may be work. False when all work is done.
    pub fn wait(&self) -> bool {
        let mut state = self.lock();
        while state.stack.is_empty() && state.taken > 0 {
            state.waiting += 1;
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.waiting -= 1;
        }
        !state.stack.is_empty()
    }

    /// Forgets what nobody took yet.
    pub fn clear(&self) {
        self.lock().stack.clear();
    }
}
