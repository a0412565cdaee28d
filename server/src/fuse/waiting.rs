//! Requests that wait for a commit, away from the threads that read requests.
//!
//! `fsync` takes as long as a device takes to flush, and many of them together take no longer than one. A few wait on the threads that read them, which is the
//! shortest way. More wait on threads of their own, which come when they are needed and go when they are not, so that the threads of a mount
//! answer others meanwhile. All mounts share them. When [`MAX_THREADS`] wait, more stand in line.
//!
//! | lock | guards | order |
//! |---|---|---|
//! | `state` | the line and the counts; for a few lines | taken alone |

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

type Work = Box<dyn FnOnce() + Send>;

/// Most that wait where they were read: fewer than the threads of a mount.
const MAX_HERE: usize = 3;
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

/// How many wait where they were read.
static HERE: AtomicUsize = AtomicUsize::new(0);

/// A place among [`MAX_HERE`].
struct Place;

impl Place {
    fn take() -> Option<Self> {
        let taken = HERE.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |taken| {
            (taken < MAX_HERE).then_some(taken + 1)
        });
        taken.ok().map(|_| Self)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        HERE.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Does `work`, which waits: on this thread, or on another one when some of a mount's wait already.
pub fn wait(work: impl FnOnce() + Send + 'static) {
    match Place::take() {
        Some(_place) => work(),
        None => elsewhere(work),
    }
}

/// Does `work` on another thread; on this one where there can be none.
fn elsewhere(work: impl FnOnce() + Send + 'static) {
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

    const _: () = assert!(MAX_HERE < super::super::THREADS, "a mount must have threads left");

    #[test]
    fn many_wait_at_once_wherever_they_were_read() {
        // Each returns only when all are there.
        let all = Arc::new(Barrier::new(17));
        let readers: Vec<_> = (0..16)
            .map(|_| {
                let all = Arc::clone(&all);
                std::thread::spawn(|| {
                    wait(move || {
                        all.wait();
                    });
                })
            })
            .collect();
        all.wait();
        readers.into_iter().for_each(|reader| reader.join().unwrap());
    }
}
