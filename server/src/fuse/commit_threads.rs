//! Threads for requests that wait for a commit, so that the threads that read requests need not.
//!
//! `fsync` takes as long as a device takes to flush, and many of them together take no longer than one. A few
//! wait on the threads that read them, which is the shortest way. More of them wait on threads of their own,
//! which start when needed and end when idle, so that the threads of a mount answer other requests meanwhile.
//! When [`MAX_THREADS`] wait, further ones are queued. Each mount has its own threads: a suspended pool
//! commits nothing, and requests that wait for it must not use up the threads of another pool.
//!
//! | lock | guards | order |
//! |---|---|---|
//! | `state` | the queue and the counts; held for a few lines | taken alone |

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

use device::IgnorePoison;

/// The work of a thread that waits.
pub type Work = Box<dyn FnOnce() + Send>;

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

/// Threads of a mount that wait.
#[derive(Default)]
pub struct CommitThreads {
    state: Mutex<State>,
    more: Condvar,
    /// How many wait where they were read.
    here: AtomicUsize,
}

impl std::fmt::Debug for CommitThreads {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let state = self.state();
        let mut shown = formatter.debug_struct("CommitThreads");
        shown.field("threads", &state.threads).field("line", &state.line.len()).finish_non_exhaustive()
    }
}

/// A thread of a caller that commits, among [`MAX_HERE`].
struct Committing<'a>(&'a AtomicUsize);

impl<'a> Committing<'a> {
    fn take(here: &'a AtomicUsize) -> Option<Self> {
        let taken = here.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |taken| {
            (taken < MAX_HERE).then_some(taken + 1)
        });
        taken.ok().map(|_| Self(here))
    }
}

impl Drop for Committing<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl CommitThreads {
    /// Does `work`, which waits: on this thread, or on another one when some of the mount's wait already.
    pub fn wait(self: &Arc<Self>, work: impl FnOnce() + Send + 'static) {
        match Committing::take(&self.here) {
            Some(_committing) => work(),
            None => {
                if let Err(work) = self.elsewhere(Box::new(work)) {
                    work();
                }
            }
        }
    }

    /// Does `work` on another thread.
    ///
    /// # Errors
    /// The work, where there can be no thread.
    pub fn elsewhere(self: &Arc<Self>, work: Work) -> Result<(), Work> {
        let mut state = self.state();
        state.line.push_back(work);
        if state.idle >= state.line.len() || state.threads >= MAX_THREADS {
            self.more.notify_one();
            return Ok(());
        }
        let waiters = Arc::clone(self);
        let spawned = std::thread::Builder::new()
            .name("fuse-wait".into())
            .stack_size(device::STACK_BYTES)
            .spawn(move || waiters.serve());
        match spawned {
            Ok(_) => state.threads += 1,
            Err(error) if state.threads > 0 => tracing::warn!(%error, "requests wait for too few threads"),
            Err(error) => {
                tracing::warn!(%error, "cannot start a thread for a request that waits");
                return state.line.pop_back().map_or(Ok(()), Err);
            }
        }
        Ok(())
    }

    /// Whether nothing waits.
    pub fn is_quiet(&self) -> bool {
        let state = self.state();
        state.line.is_empty() && state.threads == state.idle && self.here.load(Ordering::Acquire) == 0
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().ignore_poison()
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
            let (back, waited) = self.more.wait_timeout(state, IDLE).ignore_poison();
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
    use std::sync::Barrier;

    use super::*;

    const _: () = assert!(MAX_HERE < super::super::THREADS, "a mount must have threads left");

    /// Lets this number of threads wait for all of them and one more; returns the threads and the barrier.
    fn fill(waiters: &Arc<CommitThreads>, count: usize) -> (Vec<std::thread::JoinHandle<()>>, Arc<Barrier>) {
        let all = Arc::new(Barrier::new(count + 1));
        let readers = (0..count).map(|_| {
            let (all, waiters) = (Arc::clone(&all), Arc::clone(waiters));
            std::thread::spawn(move || {
                waiters.wait(move || {
                    all.wait();
                });
            })
        });
        (readers.collect(), all)
    }

    #[test]
    fn many_wait_at_once_wherever_they_were_read() {
        // Each returns only when all are there.
        let (readers, all) = fill(&Arc::default(), 16);
        all.wait();
        readers.into_iter().for_each(|reader| reader.join().unwrap());
    }

    #[test]
    fn what_waits_for_one_mount_holds_up_no_other() {
        let (suspended, other) = (Arc::<CommitThreads>::default(), Arc::<CommitThreads>::default());
        let (readers, all) = fill(&suspended, MAX_HERE + MAX_THREADS);
        while suspended.state().threads < MAX_THREADS || !suspended.state().line.is_empty() {
            std::thread::yield_now();
        }
        let (done, is_done) = std::sync::mpsc::channel();
        other.wait(move || done.send(()).unwrap());
        is_done.recv().unwrap();
        all.wait();
        readers.into_iter().for_each(|reader| reader.join().unwrap());
    }
}
