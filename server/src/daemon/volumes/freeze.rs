//! Freezing a volume under its connections, so that it can be replaced.
//!
//! Each request enters the volume and keeps it until the answer is sent. A rollback freezes the volume, waits
//! until no request is inside, and thaws it with the new contents; requests that arrive meanwhile wait. A
//! volume that is gone answers no request.
//!
//! | lock | guards | order |
//! |---|---|---|
//! | `state` | whether it is frozen, and the volume; held for a few lines | taken alone |

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use device::IgnorePoison;
use engine::waits;
use tokio::sync::Notify;

/// How often it is looked whether all requests have come out.
const STEP: Duration = Duration::from_millis(5);

/// An entrance to an `A`.
#[derive(Debug)]
pub(in crate::daemon) struct Freezable<A> {
    state: Mutex<State<A>>,
    changed: Notify,
}

#[derive(Debug)]
enum State<A> {
    Open(Arc<A>),
    /// Requests wait.
    Frozen(Arc<A>),
    /// It is gone.
    Gone,
}

impl<A> Freezable<A> {
    /// One that is open.
    pub fn new(access: A) -> Self {
        Self { state: Mutex::new(State::Open(Arc::new(access))), changed: Notify::new() }
    }

    fn state(&self) -> MutexGuard<'_, State<A>> {
        self.state.lock().ignore_poison()
    }

    /// Goes in, as soon as it is open; `None` where it is gone.
    pub async fn enter(&self) -> Option<Arc<A>> {
        if let State::Open(access) = &*self.state() {
            return Some(Arc::clone(access));
        }
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            // From here on no change is missed.
            changed.as_mut().enable();
            match &*self.state() {
                State::Open(access) => return Some(Arc::clone(access)),
                State::Gone => return None,
                State::Frozen(_) => {}
            }
            waits::noting("the volume, which is being exchanged for another one", changed).await;
        }
    }

    /// Calls `look` with the volume without entering.
    pub fn look<T>(&self, look: impl FnOnce(&A) -> T) -> Option<T> {
        match &*self.state() {
            State::Open(access) | State::Frozen(access) => Some(look(access)),
            State::Gone => None,
        }
    }

    /// Closes it, and waits until all requests have come out. False where that takes longer than `limit`: it
    /// is open then. Blocks the thread. There must be one at a time who closes it.
    pub fn freeze(&self, limit: Duration) -> bool {
        let began = Instant::now();
        {
            let mut state = self.state();
            if let State::Open(access) = &*state {
                let access = Arc::clone(access);
                *state = State::Frozen(access);
            }
        }
        loop {
            match &*self.state() {
                State::Frozen(access) if Arc::strong_count(access) > 1 => {}
                _ => return true,
            }
            if began.elapsed() > limit {
                self.thaw();
                return false;
            }
            std::thread::sleep(STEP);
        }
    }

    /// Opens it as it was, if it is closed.
    pub fn thaw(&self) {
        let mut state = self.state();
        if let State::Frozen(access) = &*state {
            let access = Arc::clone(access);
            *state = State::Open(access);
        }
        drop(state);
        self.changed.notify_waiters();
    }

    /// Opens it with something else inside, unless it is gone.
    pub fn thaw_with(&self, access: A) {
        let mut state = self.state();
        if !matches!(&*state, State::Gone) {
            *state = State::Open(Arc::new(access));
        }
        drop(state);
        self.changed.notify_waiters();
    }

    /// Nothing is inside any more, if it is closed.
    pub fn remove_frozen(&self) {
        let mut state = self.state();
        if matches!(&*state, State::Frozen(_)) {
            *state = State::Gone;
        }
        drop(state);
        self.changed.notify_waiters();
    }

    /// Nothing is inside any more.
    pub fn remove(&self) {
        *self.state() = State::Gone;
        self.changed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use device::block_on;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(20);

    #[test]
    fn who_exchanges_it_waits_for_who_is_inside_and_others_get_the_new_one() {
        let volume = Freezable::new(1);
        let inside = block_on(volume.enter()).unwrap();
        assert!(!volume.freeze(Duration::ZERO), "somebody is inside");
        assert_eq!(block_on(volume.enter()).as_deref(), Some(&1), "it is open again");
        thread::scope(|scope| {
            let closing = scope.spawn(|| volume.freeze(PATIENCE));
            while !matches!(&*volume.state(), State::Frozen(_)) {
                thread::yield_now();
            }
            let waits = scope.spawn(|| block_on(volume.enter()));
            drop(inside);
            assert!(closing.join().unwrap());
            assert_eq!(volume.look(|inside| *inside), Some(1));
            volume.thaw_with(2);
            assert_eq!(waits.join().unwrap().as_deref(), Some(&2));
        });
        assert!(volume.freeze(PATIENCE));
        volume.remove();
        volume.thaw_with(3);
        assert_eq!(block_on(volume.enter()), None);
    }
}
