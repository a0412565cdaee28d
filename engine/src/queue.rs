//! Waiting without a thread, first come, first served.
//!
//! A [`Queue`] is part of a state that some lock guards; whoever waits has a [`Place`] in it from the first
//! time that it must. One that gives up waiting leaves the queue, and the next one looks again.

use std::collections::VecDeque;
use std::task::Waker;

/// Those who wait, in the order in which they came.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    waiting: VecDeque<(u64, Waker)>,
    next_ticket: u64,
}

impl Queue {
    /// Whether nobody waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Has the first look again.
    pub(crate) fn wake_first(&self) {
        if let Some((_, first)) = self.waiting.front() {
            first.wake_by_ref();
        }
    }

    /// Has all look again.
    pub(crate) fn wake_all(&self) {
        self.waiting.iter().for_each(|(_, waker)| waker.wake_by_ref());
    }
}

/// What has a queue, behind a lock.
pub(crate) trait Queued {
    /// Does something to the queue.
    fn with_queue(&self, change: impl FnOnce(&mut Queue));
}

/// A place in the queue of `of`, once one waits.
pub(crate) struct Place<'a, Q: Queued> {
    of: &'a Q,
    ticket: Option<u64>,
}

impl<'a, Q: Queued> Place<'a, Q> {
    /// Of one who comes.
    pub(crate) fn new(of: &'a Q) -> Self {
        Self { of, ticket: None }
    }

    /// Whether nobody came before.
    pub(crate) fn is_first(&self, queue: &Queue) -> bool {
        queue.waiting.front().is_none_or(|(first, _)| Some(*first) == self.ticket)
    }

    /// Waits at the end of the queue, or goes on waiting where it is.
    pub(crate) fn wait(&mut self, queue: &mut Queue, waker: &Waker) {
        match self.ticket {
            None => {
                queue.next_ticket += 1;
                self.ticket = Some(queue.next_ticket);
                queue.waiting.push_back((queue.next_ticket, waker.clone()));
            }
            Some(ticket) => {
                if let Some((_, own)) = queue.waiting.iter_mut().find(|(number, _)| *number == ticket) {
                    own.clone_from(waker);
                }
            }
        }
    }

    /// Leaves the queue. Whether it was in it.
    pub(crate) fn leave(&mut self, queue: &mut Queue) -> bool {
        let Some(ticket) = self.ticket.take() else { return false };
        queue.waiting.retain(|(number, _)| *number != ticket);
        true
    }
}

impl<Q: Queued> Drop for Place<'_, Q> {
    fn drop(&mut self) {
        if self.ticket.is_some() {
            let of = self.of;
            of.with_queue(|queue| {
                self.leave(queue);
                queue.wake_first();
            });
        }
    }
}
