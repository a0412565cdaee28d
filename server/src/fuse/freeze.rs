//! Freezing a mounted filesystem: requests that arrive meanwhile wait, and the filesystem behind the mount
//! can be replaced.
//!
//! # The idea
//! A mount lives longer than the filesystem behind it: `zfs rollback` replaces the contents, and a forced
//! export closes a pool whose mounts are still in use. So a request does not own the filesystem. It enters a
//! [`Freezable`] and stays inside until its answer has reached the kernel. A rollback freezes the mount,
//! waits until no request is inside, replaces the filesystem and thaws the mount ([`Frozen`]).
//!
//! While the mount is frozen, each of its threads holds at most one request; the other requests wait in the
//! kernel, which can still interrupt them when their program is killed.
//!
//! | lock | guards | order |
//! |---|---|---|
//! | `state` | the number of requests inside, and whether it is frozen; held for a few lines | taken alone |

use std::ops::Deref;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use device::IgnorePoison;

use super::served::Served;

/// A filesystem that requests enter one by one, and that can be frozen.
#[derive(Debug)]
pub struct Freezable<T = Served> {
    state: Mutex<State<T>>,
    changed: Condvar,
}

#[derive(Debug)]
struct State<T> {
    /// `None` after [`Freezable::end`].
    served: Option<Arc<T>>,
    is_frozen: bool,
    inside: usize,
    drops_writeback: bool,
}

/// A request that is inside.
#[derive(Debug)]
pub struct Entered<'a, T = Served> {
    freezable: &'a Freezable<T>,
    served: Arc<T>,
    /// Pages that the kernel writes back belong to a filesystem that was replaced.
    pub drops_writeback: bool,
}

/// A frozen filesystem without requests inside. Dropping it thaws the filesystem.
#[derive(Debug)]
pub struct Frozen<T = Served>(Arc<Freezable<T>>);

impl<T> Freezable<T> {
    /// A filesystem that is not frozen.
    pub fn new(served: T) -> Self {
        let served = Some(Arc::new(served));
        let state = State { served, is_frozen: false, inside: 0, drops_writeback: false };
        Self { state: Mutex::new(state), changed: Condvar::new() }
    }

    fn state(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().ignore_poison()
    }

    /// Lets a request in, after waiting until the filesystem is not frozen. `None` after [`Self::end`].
    pub fn enter(&self) -> Option<Entered<'_, T>> {
        let mut state = self.state();
        while state.is_frozen {
            state = self.changed.wait(state).ignore_poison();
        }
        let served = Arc::clone(state.served.as_ref()?);
        state.inside += 1;
        Some(Entered { freezable: self, served, drops_writeback: state.drops_writeback })
    }

    /// The filesystem, for callers that are not requests.
    pub fn served(&self) -> Option<Arc<T>> {
        self.state().served.clone()
    }

    /// Freezes the filesystem and waits until no request is inside. `None` after `limit`; the filesystem is
    /// thawed then. Blocks the thread.
    pub fn freeze(self: &Arc<Self>, limit: Duration) -> Option<Frozen<T>> {
        let deadline = Instant::now() + limit;
        let mut state = self.state();
        while state.is_frozen {
            let left = deadline.checked_duration_since(Instant::now())?;
            (state, _) = self.changed.wait_timeout(state, left).ignore_poison();
        }
        state.is_frozen = true;
        let frozen = Frozen(Arc::clone(self));
        while state.inside > 0 {
            let Some(left) = deadline.checked_duration_since(Instant::now()) else {
                drop(state);
                return None;
            };
            (state, _) = self.changed.wait_timeout(state, left).ignore_poison();
        }
        Some(frozen)
    }

    /// Ends the service: new requests are refused, and requests inside finish.
    pub fn end(&self) -> Option<Arc<T>> {
        let mut state = self.state();
        state.is_frozen = false;
        let served = state.served.take();
        drop(state);
        self.changed.notify_all();
        served
    }

    /// From now on pages that the kernel writes back belong to the current filesystem.
    pub fn accept_writeback(&self) {
        self.state().drops_writeback = false;
    }
}

impl<T> Frozen<T> {
    /// Replaces the filesystem and thaws it. Returns the one that was replaced. Until
    /// [`Freezable::accept_writeback`] pages that the kernel writes back are dropped: they belong to the old
    /// filesystem.
    pub fn thaw_with(self, served: T) -> Option<Arc<T>> {
        let mut state = self.0.state();
        let before = state.served.as_mut().map(|before| std::mem::replace(before, Arc::new(served)));
        state.drops_writeback = true;
        drop(state);
        before
    }
}

impl<T> Drop for Frozen<T> {
    fn drop(&mut self) {
        self.0.state().is_frozen = false;
        self.0.changed.notify_all();
    }
}

impl<T> Deref for Entered<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.served
    }
}

impl<T> Drop for Entered<'_, T> {
    fn drop(&mut self) {
        let mut state = self.freezable.state();
        state.inside -= 1;
        let is_awaited = state.is_frozen && state.inside == 0;
        drop(state);
        if is_awaited {
            self.freezable.changed.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn a_request_during_an_exchange_gets_the_new_filesystem() {
        let freezable = Arc::new(Freezable::new(1));
        let inside = freezable.enter().unwrap();
        assert!(freezable.freeze(Duration::from_millis(1)).is_none(), "a request is inside");
        let closing = {
            let freezable = Arc::clone(&freezable);
            thread::spawn(move || freezable.freeze(LONG).unwrap())
        };
        assert_eq!(*inside, 1);
        while !freezable.state().is_frozen {
            thread::yield_now();
        }
        let (tell, told) = mpsc::channel();
        let late = Arc::clone(&freezable);
        let waits = thread::spawn(move || {
            let entered = late.enter().unwrap();
            tell.send((*entered, entered.drops_writeback)).unwrap();
        });
        drop(inside);
        let closed = closing.join().unwrap();
        assert!(told.try_recv().is_err(), "it waits");
        assert_eq!(closed.thaw_with(2).as_deref(), Some(&1));
        assert_eq!(told.recv().unwrap(), (2, true));
        waits.join().unwrap();
        freezable.accept_writeback();
        assert!(!freezable.enter().unwrap().drops_writeback);
    }

    #[test]
    fn a_request_after_the_end_is_refused() {
        let freezable = Arc::new(Freezable::new(1));
        drop(freezable.freeze(LONG).unwrap());
        let inside = freezable.enter().unwrap();
        assert_eq!(freezable.end().as_deref(), Some(&1));
        assert_eq!(*inside, 1);
        drop(inside);
        assert!(freezable.enter().is_none() && freezable.served().is_none());
    }
}
