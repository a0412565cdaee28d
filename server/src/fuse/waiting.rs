//! Requests that wait for a commit, away from the threads that read requests.
//!
//! `fsync` takes as long as a device takes to flush, and many of them together take no longer than one. So they wait on threads of their own, which come when they
//! are needed and go when they are not; the threads of a mount answer others meanwhile. All mounts share them. When [`MAX_THREADS`] wait, more stand in line.
//!
//! | lock | guards | order |
//! |---|---|---|
//! | `state` | the line and the counts; for a few lines | taken alone |

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

type Work = Box<dyn FnOnce() + Send>;

/// Most threads.
const MAX_THREADS: usize = 64;
/// A thread that had nothing to do for so long ends.
const IDLE: Duration = Duration::from_secs(10);

#[derive(Default)]
struct State {
    line: VecDeque<Work>,
    threads: usize,
    idle: usize,
}

/// Threads that wait.
#[derive(Default)]
struct Waiters {
    state: Mutex<State>,
    more: Condvar,
}

static WAITERS: Waiters =
    Waiters { state: Mutex::new(State { line: VecDeque::new(), threads: 0, idle: 0 }), more: Condvar::new() };

/// Does `work` on another thread; on this one where there can be none.
pub fn elsewhere(work: impl FnOnce() + Send + 'static) {
    let mut state = WAITERS.state();
    state.line.push_back(Box::new(work));
    if state.idle >= state.line.len() || state.threads >= MAX_THREADS {
        WAITERS.more.notify_one();
        return;
    }
    state.threads += 1;
    drop(state);
    let spawned = std::thread::Builder::new().name("fuse-wait".into()).spawn(|| WAITERS.serve());
    if let Err(error) = spawned {
        tracing::warn!(%error, "no thread for an fsync");
        let mut state = WAITERS.state();
        state.threads -= 1;
        let own = if state.threads == 0 { state.line.pop_back() } else { None };
        drop(state);
        if let Some(work) = own {
            work();
        }
    }
}

impl Waiters {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn serve(&self) {
        let mut state = self.state();
        loop {
            if let Some(work) = state.line.pop_front() {
                drop(state);
                work();
                state = self.state();
                continue;
            }
            state.idle += 1;
            let (back, waited) = self.more.wait_timeout(state, IDLE).unwrap_or_else(PoisonError::into_inner);
            state = back;
            state.idle -= 1;
            if waited.timed_out() && state.line.is_empty() {
                state.threads -= 1;
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Barrier};

    use super::*;

    #[test]
    fn many_wait_at_once() {
        // Each returns only when all are there.
        let all = Arc::new(Barrier::new(17));
        for _ in 0..16 {
            let all = Arc::clone(&all);
            elsewhere(move || {
                all.wait();
            });
        }
        all.wait();
    }
}
