//! Taking turns: a lock for tasks that wait without a thread, first come, first served.
//!
//! Whoever syncs in a loop asks again at once when it is done; the others that wait are before it nevertheless. One that gives up waiting
//! leaves the queue.
//!
//! | lock | guards | order |
//! |---|---|---|
//! | `state` | the queue; for a few lines, never across an await | last |

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

/// Whose turn it is, and who waits.
#[derive(Debug, Default)]
pub(super) struct Turns {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    is_taken: bool,
    queue: VecDeque<(u64, Waker)>,
    next_ticket: u64,
}

/// One's turn; dropped, it is the next one's.
pub(super) struct Turn<'a> {
    turns: &'a Turns,
}

/// A place in the queue.
struct Place<'a> {
    turns: &'a Turns,
    ticket: Option<u64>,
}

impl Turns {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for one's turn.
    pub(super) async fn take(&self) -> Turn<'_> {
        let mut place = Place { turns: self, ticket: None };
        poll_fn(|context| {
            let mut state = self.state();
            let is_first = state.queue.front().is_none_or(|(first, _)| Some(*first) == place.ticket);
            if !state.is_taken && is_first {
                state.is_taken = true;
                if place.ticket.take().is_some() {
                    state.queue.pop_front();
                }
                return Poll::Ready(());
            }
            match place.ticket {
                None => {
                    state.next_ticket += 1;
                    let ticket = state.next_ticket;
                    place.ticket = Some(ticket);
                    state.queue.push_back((ticket, context.waker().clone()));
                }
                Some(ticket) => {
                    let own = state.queue.iter_mut().find(|(number, _)| *number == ticket);
                    if let Some((_, waker)) = own {
                        waker.clone_from(context.waker());
                    }
                }
            }
            Poll::Pending
        })
        .await;
        Turn { turns: self }
    }
}

impl State {
    fn wake_first(&self) {
        if let Some((_, first)) = self.queue.front() {
            first.wake_by_ref();
        }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut state = self.turns.state();
        state.is_taken = false;
        state.wake_first();
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket {
            let mut state = self.turns.state();
            state.queue.retain(|(number, _)| *number != ticket);
            state.wake_first();
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[test]
    fn whoever_comes_again_at_once_waits_behind_the_others() {
        let turns = Turns::default();
        let turn = turns.take().now_or_never().expect("nobody has it");
        let mut waiting: Vec<_> = (0..3).map(|_| Box::pin(turns.take())).collect();
        for waiter in &mut waiting {
            assert!(waiter.as_mut().now_or_never().is_none());
        }
        drop(turn);
        let mut again = Box::pin(turns.take());
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
