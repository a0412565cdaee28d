//! Views: the pool as of committed groups, and who still reads which.
//!
//! A view refers to blocks by the uberblock of its group. Space that a later group freed must not be reused while a view from before that group is
//! held, or its reader would find other bytes there. So each view that is handed out is remembered weakly, and the oldest one that is still alive
//! bounds what the allocator may reuse. Whoever reads for long what is protected by other means (a snapshot's blocks) takes one that does not count.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use ondisk::Txg;

use crate::pool::Pool;

/// The newest view, and those from before it that are still held.
#[derive(Debug)]
pub(super) struct Views {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    newest: Arc<Pool>,
    older: Vec<Weak<Pool>>,
}

impl Views {
    pub(super) fn new(newest: Arc<Pool>) -> Self {
        Self { state: Mutex::new(State { newest, older: Vec::new() }) }
    }

    pub(super) fn newest(&self) -> Arc<Pool> {
        Arc::clone(&self.state.lock().unwrap_or_else(PoisonError::into_inner).newest)
    }

    /// A group was committed.
    pub(super) fn replace(&self, newest: Arc<Pool>) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let old = std::mem::replace(&mut state.newest, newest);
        state.older.push(Arc::downgrade(&old));
    }

    /// The group of the oldest view that somebody holds.
    pub(super) fn oldest(&self) -> Txg {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.older.retain(|view| view.strong_count() > 0);
        let oldest = state.older.iter().filter_map(Weak::upgrade).map(|view| view.uberblock().txg).min();
        oldest.unwrap_or(state.newest.uberblock().txg)
    }
}
