//! The shared stack of blocks still to be visited.
//!
//! One mutex guards the stack and the number of items that were taken and are not done; no other lock is
//! taken under it. The work is over when the stack is empty and nothing is being worked on that could add to
//! it.

use std::sync::{Condvar, Mutex, MutexGuard};

use device::IgnorePoison;

use super::Node;

/// Bytes on disk of the blocks of one batch, about.
const BATCH_BYTES: u64 = 1 << 20;
/// Most blocks of one batch.
const BATCH_BLOCKS: usize = 256;

pub(super) struct Queue<T> {
    state: Mutex<State<T>>,
    changed: Condvar,
}

struct State<T> {
    stack: Vec<Node<T>>,
    taken: usize,
    waiting: usize,
}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        let state = State { stack: Vec::new(), taken: 0, waiting: 0 };
        Self { state: Mutex::new(state), changed: Condvar::new() }
    }
}

impl<T> Queue<T> {
    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().ignore_poison()
    }

    pub fn push(&self, work: impl IntoIterator<Item = Node<T>>) {
        let mut state = self.lock();
        state.stack.extend(work);
        if state.waiting > 0 {
            self.changed.notify_all();
        }
    }

    /// Takes neighbours from the top of the stack; [`Queue::done`] must be told how many.
    pub fn take(&self) -> Option<Vec<Node<T>>> {
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
            state = self.changed.wait(state).ignore_poison();
            state.waiting -= 1;
        }
        !state.stack.is_empty()
    }

    /// Forgets what was not taken yet.
    pub fn clear(&self) {
        self.lock().stack.clear();
    }
}
