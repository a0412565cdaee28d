//! A fair lock for tasks that wait without a thread: first come, first served.
//!
//! A thread that syncs in a loop asks again at once when it is done; the others that wait are before it
//! nevertheless. One that gives up waiting leaves the queue.
//!
//! | lock | guards | order |
//! |---|---|---|
//! | `state` | the queue; for a few lines, never across an await | last |

use std::future::poll_fn;
use std::sync::{Mutex, MutexGuard};
use std::task::Poll;

use device::IgnorePoison;

use crate::queue::{Place, Queue, Queued};

/// Whose turn it is, and who waits.
#[derive(Debug, Default)]
pub(super) struct FairLock {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    is_taken: bool,
    queue: Queue,
}

/// One's turn; dropped, it is the next one's.
pub(super) struct Turn<'a> {
    lock: &'a FairLock,
}

impl FairLock {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().ignore_poison()
    }

    /// Waits for one's turn.
    pub(super) async fn take(&self) -> Turn<'_> {
        let mut place = Place::new(self);
        poll_fn(|context| {
            let mut state = self.state();
            if !state.is_taken && place.is_first(&state.queue) {
                state.is_taken = true;
                place.leave(&mut state.queue);
                return Poll::Ready(());
            }
            place.wait(&mut state.queue, context.waker());
            Poll::Pending
        })
        .await;
        Turn { lock: self }
    }
}

impl Queued for FairLock {
    fn with_queue(&self, change: impl FnOnce(&mut Queue)) {
        change(&mut self.state().queue);
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut state = self.lock.state();
        state.is_taken = false;
        state.queue.wake_first();
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[test]
    fn whoever_comes_again_at_once_waits_behind_the_others() {
        let lock = FairLock::default();
        let turn = lock.take().now_or_never().expect("nobody has it");
        let mut waiting: Vec<_> = (0..3).map(|_| Box::pin(lock.take())).collect();
        for waiter in &mut waiting {
            assert!(waiter.as_mut().now_or_never().is_none());
        }
        drop(turn);
        let mut again = Box::pin(lock.take());
        assert!(again.as_mut().now_or_never().is_none(), "others were here before");
        // The first gives up.
        drop(waiting.remove(0));
        assert!(waiting[1].as_mut().now_or_never().is_none(), "one is before it");
        for waiter in &mut waiting {
            assert!(waiter.as_mut().now_or_never().is_some());
        }
        assert!(again.as_mut().now_or_never().is_some());
    }
}
