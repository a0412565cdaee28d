//! The gate in front of what is served: requests pass it one by one, and wait while the filesystem behind it
//! is exchanged.
//!
//! # The idea
//! A mount outlives what it shows: `zfs rollback` puts another tree behind it, and a pool that is exported by
//! force is let go although somebody still has the mount. So a request does not keep the filesystem but gets
//! it at the gate, and is inside until its answer is with the kernel. Whoever exchanges the filesystem closes
//! the gate, waits until nobody is inside, and opens it again ([`Closed`]).
//!
//! While it is closed, the threads of the mount stand before it with one request each; all others wait in the
//! kernel, where a program that is killed takes its own back.
//!
//! | lock | guards | order |
//! |---|---|---|
//! | `state` | who is inside, and whether it is open; for a few lines | taken alone |

use std::ops::Deref;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::served::Served;

/// What is served, behind its gate.
#[derive(Debug)]
pub struct Gate<T = Served> {
    state: Mutex<State<T>>,
    changed: Condvar,
}

#[derive(Debug)]
struct State<T> {
    /// `None` once nothing is served any more.
    served: Option<Arc<T>>,
    is_closed: bool,
    inside: usize,
    drops_pages: bool,
}

/// A request that is inside.
#[derive(Debug)]
pub struct Pass<'a, T = Served> {
    gate: &'a Gate<T>,
    served: Arc<T>,
    /// Pages that the kernel writes back are of a tree that is not there any more.
    pub drops_pages: bool,
}

/// A closed gate with nobody inside. It opens when this is dropped.
#[derive(Debug)]
pub struct Closed<T = Served>(Arc<Gate<T>>);

impl<T> Gate<T> {
    /// An open gate.
    pub fn new(served: T) -> Self {
        let served = Some(Arc::new(served));
        let state = State { served, is_closed: false, inside: 0, drops_pages: false };
        Self { state: Mutex::new(state), changed: Condvar::new() }
    }

    fn state(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets a request in; waits while the gate is closed. `None` when nothing is served any more.
    pub fn pass(&self) -> Option<Pass<'_, T>> {
        let mut state = self.state();
        while state.is_closed {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        let served = Arc::clone(state.served.as_ref()?);
        state.inside += 1;
        Some(Pass { gate: self, served, drops_pages: state.drops_pages })
    }

    /// What is served, for whoever is no request.
    pub fn served(&self) -> Option<Arc<T>> {
        self.state().served.clone()
    }

    /// Closes the gate, and waits until nobody is inside. `None` when that takes longer than `limit`; then it
    /// is open again. Blocks the thread.
    pub fn close(self: &Arc<Self>, limit: Duration) -> Option<Closed<T>> {
        let deadline = Instant::now() + limit;
        let mut state = self.state();
        while state.is_closed {
            let left = deadline.checked_duration_since(Instant::now())?;
            (state, _) = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner);
        }
        state.is_closed = true;
        let closed = Closed(Arc::clone(self));
        while state.inside > 0 {
            let Some(left) = deadline.checked_duration_since(Instant::now()) else {
                drop(state);
                return None;
            };
            (state, _) = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner);
        }
        Some(closed)
    }

    /// Serves nothing any longer: who comes now is turned away, and who is inside ends what it began.
    pub fn end(&self) -> Option<Arc<T>> {
        let mut state = self.state();
        state.is_closed = false;
        let served = state.served.take();
        drop(state);
        self.changed.notify_all();
        served
    }

    /// From now on pages that the kernel writes back are of what is served.
    pub fn takes_pages(&self) {
        self.state().drops_pages = false;
    }
}

impl<T> Closed<T> {
    /// Serves something else from now on, and opens the gate. Until [`Gate::takes_pages`] pages that the
    /// kernel writes back are dropped: they were changed before. What was served before.
    pub fn open_to(self, served: T) -> Option<Arc<T>> {
        let mut state = self.0.state();
        let before = state.served.as_mut().map(|before| std::mem::replace(before, Arc::new(served)));
        state.drops_pages = true;
        drop(state);
        before
    }
}

impl<T> Drop for Closed<T> {
    fn drop(&mut self) {
        self.0.state().is_closed = false;
        self.0.changed.notify_all();
    }
}

impl<T> Deref for Pass<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.served
    }
}

impl<T> Drop for Pass<'_, T> {
    fn drop(&mut self) {
        let mut state = self.gate.state();
        state.inside -= 1;
        let is_awaited = state.is_closed && state.inside == 0;
        drop(state);
        if is_awaited {
            self.gate.changed.notify_all();
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
    fn who_comes_while_it_is_exchanged_gets_the_new_one() {
        let gate = Arc::new(Gate::new(1));
        let inside = gate.pass().unwrap();
        assert!(gate.close(Duration::from_millis(1)).is_none(), "somebody is inside");
        let closing = {
            let gate = Arc::clone(&gate);
            thread::spawn(move || gate.close(LONG).unwrap())
        };
        assert_eq!(*inside, 1);
        while !gate.state().is_closed {
            thread::yield_now();
        }
        let (tell, told) = mpsc::channel();
        let late = Arc::clone(&gate);
        let waits = thread::spawn(move || {
            let pass = late.pass().unwrap();
            tell.send((*pass, pass.drops_pages)).unwrap();
        });
        drop(inside);
        let closed = closing.join().unwrap();
        assert!(told.try_recv().is_err(), "it waits");
        assert_eq!(closed.open_to(2).as_deref(), Some(&1));
        assert_eq!(told.recv().unwrap(), (2, true));
        waits.join().unwrap();
        gate.takes_pages();
        assert!(!gate.pass().unwrap().drops_pages);
    }

    #[test]
    fn who_comes_too_late_is_turned_away() {
        let gate = Arc::new(Gate::new(1));
        drop(gate.close(LONG).unwrap());
        let inside = gate.pass().unwrap();
        assert_eq!(gate.end().as_deref(), Some(&1));
        assert_eq!(*inside, 1);
        drop(inside);
        assert!(gate.pass().is_none() && gate.served().is_none());
    }
}
