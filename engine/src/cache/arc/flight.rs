//! A load in progress, and those who wait for it.
//!
//! The loader lands the flight with its result, or abandons it when it is dropped before. Waiters get the
//! result, or learn that one of them has to load.
//!
//! | lock | guards | order |
//! |---|---|---|
//! | `state` | outcome and waiters; held for a few lines | taken alone |

use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use device::IgnorePoison;

use super::super::Block;
use crate::error::Result;
use crate::waits;

/// A load in progress, with its waiters.
#[derive(Default)]
pub(super) struct Flight {
    state: Mutex<FlightState>,
    /// Whether it was begun for a reader that will come.
    pub(super) is_ahead: bool,
}

#[derive(Default)]
struct FlightState {
    outcome: Option<Outcome>,
    wakers: Vec<Option<Waker>>,
}

/// How a load ended.
#[derive(Clone)]
pub(super) enum Outcome {
    /// With this result.
    Done(Result<Block>),
    /// The loader went away.
    Abandoned,
}

impl Flight {
    /// A flight that a reader, or a prefetch, begins.
    pub(super) fn begun(is_ahead: bool) -> Arc<Self> {
        Arc::new(Self { is_ahead, ..Self::default() })
    }

    /// Whether it has not ended.
    pub(super) fn is_under_way(&self) -> bool {
        self.state.lock().ignore_poison().outcome.is_none()
    }

    /// Ends it, and wakes those who wait.
    pub(super) fn land(&self, outcome: Outcome) {
        let wakers = {
            let mut state = self.state.lock().ignore_poison();
            state.outcome = Some(outcome);
            std::mem::take(&mut state.wakers)
        };
        wakers.into_iter().flatten().for_each(Waker::wake);
    }
}

/// Waits for a load in progress: its result, or `None` when the loader went away.
pub(super) struct Wait {
    flight: Arc<Flight>,
    slot: Option<usize>,
}

impl Wait {
    /// Waits for this flight.
    pub(super) fn new(flight: Arc<Flight>) -> Self {
        Self { flight, slot: None }
    }
}

impl Future for Wait {
    type Output = Option<Result<Block>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let mut state = this.flight.state.lock().ignore_poison();
        match &state.outcome {
            Some(Outcome::Done(result)) => return Poll::Ready(Some(result.clone())),
            Some(Outcome::Abandoned) => return Poll::Ready(None),
            None => waits::note("a block that another request reads"),
        }
        match this.slot.and_then(|slot| state.wakers.get_mut(slot)) {
            Some(Some(waker)) => waker.clone_from(context.waker()),
            Some(empty) => *empty = Some(context.waker().clone()),
            None => {
                this.slot = Some(state.wakers.len());
                state.wakers.push(Some(context.waker().clone()));
            }
        }
        Poll::Pending
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        if let Some(slot) = self.slot
            && let Some(waker) = self.flight.state.lock().ignore_poison().wakers.get_mut(slot)
        {
            *waker = None;
        }
    }
}
