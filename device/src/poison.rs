//! Locks that a panic left poisoned are taken anyway.
//!
//! The standard library poisons a lock when a thread panics while it holds the lock, and every later attempt
//! to take it returns an error. Cenote takes the lock all the same, for two reasons:
//!
//! - A panic ends one request, and only that one. With poison, the next request would panic at the same lock,
//!   then the next pool, and at last the daemon.
//! - Guarded data stay valid at every line where a thread could panic: the lines under a lock move values in
//!   and out and do not call code that may fail half-way. What a panic can leave half done is the change of a
//!   pool, and that has its own guard: a transaction knows whether it was changed, and such a pool stops.

use std::sync::{LockResult, PoisonError};

/// Takes a lock although a thread panicked while it held the lock; the module says why.
///
/// It is for every result of a lock: `Mutex::lock`, `RwLock::read` and `write`, `Condvar::wait` and
/// `wait_timeout`, `get_mut`, `into_inner`.
pub trait IgnorePoison {
    /// The guard, or what the lock holds.
    type Guard;

    /// The guard or the value, whether the lock is poisoned or not.
    fn ignore_poison(self) -> Self::Guard;
}

impl<T> IgnorePoison for LockResult<T> {
    type Guard = T;

    fn ignore_poison(self) -> T {
        self.unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::thread;

    use super::*;

    #[test]
    fn a_lock_that_a_panic_poisoned_is_taken() {
        let lock = Mutex::new(1);
        let panicked = thread::scope(|scope| {
            let holder = scope.spawn(|| {
                let mut held = lock.lock().unwrap();
                *held = 2;
                panic!("a panic under the lock");
            });
            holder.join().is_err()
        });
        assert!(panicked && lock.is_poisoned());
        assert_eq!(*lock.lock().ignore_poison(), 2);
    }
}
