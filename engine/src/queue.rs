//! Waiting without a thread, first come, first served.
//!
//! A [`Queue`] is part of a state that a lock guards. A task that has to wait gets a [`Place`] in the queue
//! at its first wait. A task that gives up waiting leaves the queue, and the next one checks the state again.

use std::collections::VecDeque;
use std::task::Waker;

/// The waiting tasks, in the order of their arrival.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    waiting: VecDeque<(u64, Waker)>,
    next_ticket: u64,
}

impl Queue {
    /// Whether no task waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Wakes the first task, which checks the state again.
    pub(crate) fn wake_first(&self) {
        if let Some((_, first)) = self.waiting.front() {
            first.wake_by_ref();
        }
    }

    /// Wakes all tasks, which check the state again.
    pub(crate) fn wake_all(&self) {
        self.waiting.iter().for_each(|(_, waker)| waker.wake_by_ref());
    }
}

/// A state with a queue, behind a lock.
pub(crate) trait Queued {
    /// Applies a function to the queue.
    fn with_queue(&self, change: impl FnOnce(&mut Queue));
}

/// A place in the queue of `of`, after the first wait.
pub(crate) struct Place<'a, Q: Queued> {
    of: &'a Q,
    ticket: Option<u64>,
}

impl<'a, Q: Queued> Place<'a, Q> {
    /// The place of a new task, which does not wait yet.
    pub(crate) fn new(of: &'a Q) -> Self {
        Self { of, ticket: None }
    }

    /// Whether no other task came before.
    pub(crate) fn is_first(&self, queue: &Queue) -> bool {
        queue.waiting.front().is_none_or(|(first, _)| Some(*first) == self.ticket)
    }

    /// Waits at the end of the queue, or keeps its place there.
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

    /// Leaves the queue. Returns whether it was in it.
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
