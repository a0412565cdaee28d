//! Views: the pool as of committed groups, and who still reads which.
//!
//! A view refers to blocks by the uberblock of its group. Space that a later group freed must not be reused
//! while a view from before that group is held, or its reader would find other bytes there. So each view that
//! is handed out is remembered weakly, and the oldest one that is still alive bounds what the allocator may
//! reuse. One that is lent to a reader that may take long is taken back when it keeps more space than is
//! free otherwise. A reader that reads for long what is protected by other means (a snapshot's blocks) takes
//! one that does not count.

use std::future::poll_fn;
use std::sync::{Arc, Mutex, Weak};
use std::task::Poll;

use device::IgnorePoison;
use futures_util::task::AtomicWaker;
use ondisk::Txg;

use crate::Pool;
use crate::tables::ddt::Newest;

/// The newest view, and those from before it that are still held.
#[derive(Debug)]
pub(super) struct Views {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    newest: Arc<Pool>,
    older: Vec<Weak<Pool>>,
    lent: Vec<Weak<Lent>>,
}

/// A view that is lent: it ends when its space is needed, when it is taken back, or when this is dropped.
#[derive(Debug)]
pub struct Lent {
    view: Mutex<Option<Arc<Pool>>>,
    waker: AtomicWaker,
}

impl Lent {
    /// Lends a view of a pool that never changes, so that its space is never needed.
    pub fn of(view: Arc<Pool>) -> Arc<Self> {
        Arc::new(Self { view: Mutex::new(Some(view)), waker: AtomicWaker::new() })
    }

    /// Takes it back.
    pub fn end(&self) {
        // The last user of a state frees what belongs to it: not under the lock.
        let view = self.view.lock().ignore_poison().take();
        drop(view);
        self.waker.wake();
    }

    /// The view, if it has not ended: its space is not reused while what this returns is held.
    pub(super) fn hold(&self) -> Option<Arc<Pool>> {
        self.view.lock().ignore_poison().clone()
    }

    /// Whether it has ended.
    pub fn has_ended(&self) -> bool {
        self.view.lock().ignore_poison().is_none()
    }

    /// Waits until it has ended. One task may wait.
    pub async fn ended(&self) {
        poll_fn(|context| {
            self.waker.register(context.waker());
            if self.has_ended() { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }
}

impl Newest for Views {
    fn newest(&self) -> Arc<Pool> {
        Self::newest(self)
    }
}

impl Views {
    pub(super) fn new(newest: Arc<Pool>) -> Self {
        Self { state: Mutex::new(State { newest, older: Vec::new(), lent: Vec::new() }) }
    }

    pub(super) fn newest(&self) -> Arc<Pool> {
        Arc::clone(&self.state.lock().ignore_poison().newest)
    }

    /// The newest view, and what it is lent by.
    pub(super) fn lend(&self) -> (Arc<Pool>, Arc<Lent>) {
        let mut state = self.state.lock().ignore_poison();
        let (view, lent) = (Arc::clone(&state.newest), Lent::of(Arc::clone(&state.newest)));
        state.lent.retain(|lent| lent.strong_count() > 0);
        state.lent.push(Arc::downgrade(&lent));
        (view, lent)
    }

    /// Takes back all that are lent.
    pub(super) fn end_lent(&self) {
        let lent = std::mem::take(&mut self.state.lock().ignore_poison().lent);
        lent.iter().filter_map(Weak::upgrade).for_each(|lent| lent.end());
    }

    /// A group was committed.
    pub(super) fn replace(&self, newest: Arc<Pool>) {
        let mut state = self.state.lock().ignore_poison();
        let old = std::mem::replace(&mut state.newest, newest);
        state.older.push(Arc::downgrade(&old));
    }

    /// The group of the oldest view that is held.
    pub(super) fn oldest(&self) -> Txg {
        let mut state = self.state.lock().ignore_poison();
        state.older.retain(|view| view.strong_count() > 0);
        let oldest = state.older.iter().filter_map(Weak::upgrade).map(|view| view.uberblock().txg).min();
        oldest.unwrap_or(state.newest.uberblock().txg)
    }
}
