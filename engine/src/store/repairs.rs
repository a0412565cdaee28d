//! Blocks of which some place held wrong bytes when they were read: the work of read repair.
//!
//! A read that had to pass over wrong bytes asks for a repair here and goes on. A pool that is open for
//! writing handles the requests ([`crate::pool::live`], its module `repair`). A pool that is open only for
//! reading never handles them, and remembers few of them.
//!
//! Blocks of intent logs are not noted. A log is read when a pool is imported, and freed as soon as it is
//! replayed.
//!
//! | lock | guards | order |
//! |---|---|---|
//! | `state` | everything; for a few lines, never across an await | taken alone |

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Poll, Waker};

use device::IgnorePoison;
use ondisk::blkptr::Blkptr;
use ondisk::{Guid, Txg};

use crate::Bookmark;

/// The most requests that wait in a pool that is open for writing: about 16 MiB. A block that finds no room
/// here is requested again when it is read again.
const MAX_WAITING: usize = 1 << 16;
/// The most requests that wait for a pool to be opened for writing.
const MAX_BEFORE_OPENING: usize = 1 << 10;

/// A block that was not right in every place.
#[derive(Debug, Clone)]
pub(crate) struct Repair {
    /// The pointer by which it was read.
    pub bp: Blkptr,
    /// The bookmark of the block.
    pub at: Bookmark,
    /// The leaves whose errors were counted.
    pub counted: Vec<Guid>,
}

/// The requests.
#[derive(Default)]
pub(crate) struct Repairs {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Repair>,
    /// Blocks of groups that are not committed yet.
    later: Vec<Repair>,
    /// Starts the task that handles requests; absent in a pool that handles none.
    start: Option<Arc<dyn Fn(Running) + Send + Sync>>,
    is_running: bool,
    is_over: bool,
    waiters: Vec<Waker>,
}

/// The token of the running task that handles requests.
pub(crate) struct Running(Option<Arc<Repairs>>);

impl std::fmt::Debug for Repairs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let state = self.state();
        f.debug_struct("Repairs").field("waiting", &state.waiting.len()).finish_non_exhaustive()
    }
}

impl Repairs {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().ignore_poison()
    }

    /// Asks for a repair of a block in which these leaves were wrong.
    pub(crate) fn ask(self: &Arc<Self>, bp: &Blkptr, at: &Bookmark, counted: Vec<Guid>) {
        if at.level == Bookmark::LEVEL_ZIL {
            return;
        }
        let mut state = self.state();
        let limit = if state.start.is_some() { MAX_WAITING } else { MAX_BEFORE_OPENING };
        if !state.is_over && state.waiting.len() + state.later.len() < limit {
            state.waiting.push_back(Repair { bp: *bp, at: *at, counted });
            self.run(state);
        }
    }

    /// From now on, `start` starts the task that handles requests.
    pub(crate) fn begin(self: &Arc<Self>, start: impl Fn(Running) + Send + Sync + 'static) {
        let mut state = self.state();
        state.start = Some(Arc::new(start));
        self.run(state);
    }

    fn run(self: &Arc<Self>, mut state: MutexGuard<'_, State>) {
        if state.is_running || state.waiting.is_empty() {
            return;
        }
        let Some(start) = state.start.clone() else { return };
        state.is_running = true;
        drop(state);
        start(Running(Some(Arc::clone(self))));
    }

    /// A group was committed: its blocks can be looked up now.
    pub(crate) fn committed(self: &Arc<Self>, txg: Txg) {
        let mut state = self.state();
        if state.later.is_empty() {
            return;
        }
        let ripe: Vec<Repair> =
            state.later.extract_if(.., |repair| repair.bp.physical_birth() <= txg).collect();
        state.waiting.extend(ripe);
        self.run(state);
    }

    /// Forgets all requests, and accepts no more.
    pub(crate) fn give_up(&self) {
        let mut state = self.state();
        state.is_over = true;
        state.start = None;
        state.waiting.clear();
        state.later.clear();
        state.waiters.drain(..).for_each(Waker::wake);
    }

    /// Waits until no request is left that can be handled now, or all requests were given up.
    pub(crate) async fn done(&self) {
        poll_fn(|context| {
            let mut state = self.state();
            if state.is_over || (!state.is_running && state.waiting.is_empty()) {
                return Poll::Ready(());
            }
            state.waiters.push(context.waker().clone());
            Poll::Pending
        })
        .await;
    }
}

impl Running {
    /// Takes up to `count` requests. The task ends when none are left.
    pub(crate) fn take(&mut self, count: usize) -> Vec<Repair> {
        let Some(repairs) = &self.0 else { return Vec::new() };
        let mut state = repairs.state();
        if state.waiting.is_empty() {
            state.end();
            drop(state);
            self.0 = None;
            return Vec::new();
        }
        let count = count.min(state.waiting.len());
        state.waiting.drain(..count).collect()
    }

    /// Keeps a request until a later group is committed.
    pub(crate) fn put_off(&self, repair: Repair) {
        if let Some(repairs) = &self.0 {
            let mut state = repairs.state();
            if !state.is_over {
                state.later.push(repair);
            }
        }
    }
}

impl State {
    fn end(&mut self) {
        self.is_running = false;
        self.waiters.drain(..).for_each(Waker::wake);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(repairs) = &self.0 {
            // The task ended early: with its pool, or by a panic.
            let mut state = repairs.state();
            state.waiting.clear();
            state.end();
        }
    }
}
