//! Range locks: changes of ranges that overlap happen one after the other, in the order in which they asked.
//!
//! A change of a volume is a change of the object and a note in the intent log. Both must come in the same order for all who change the same
//! bytes, or a replay would end with other bytes than those that were read before the crash. Readers take no lock: a block device promises nothing about
//! a read that overlaps a write.
//!
//! Every range asked for stands in one list, in order of arrival. It is held as soon as no range before it overlaps. The list is as long as there are
//! requests under way, so that walking it costs less than anything cleverer.
//!
//! | lock | guards | order |
//! |---|---|---|
//! | `ranges` | the list; held to walk it, never across an await | taken alone |

use std::collections::VecDeque;
use std::future::poll_fn;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

/// The ranges of one volume that are locked, and those that wait.
#[derive(Debug, Default)]
pub(super) struct RangeLocks {
    ranges: Mutex<Ranges>,
}

#[derive(Debug, Default)]
struct Ranges {
    next: u64,
    list: VecDeque<Entry>,
}

#[derive(Debug)]
struct Entry {
    ticket: u64,
    range: Range<u64>,
    waker: Option<Waker>,
}

impl Ranges {
    fn is_held(&self, ticket: u64) -> bool {
        let Some(at) = self.list.iter().position(|entry| entry.ticket == ticket) else { return true };
        let Some(range) = self.list.get(at).map(|entry| entry.range.clone()) else { return true };
        self.list.iter().take(at).all(|before| !overlap(&before.range, &range))
    }
}

fn overlap(one: &Range<u64>, other: &Range<u64>) -> bool {
    one.start < other.end && other.start < one.end
}

/// A range that is locked, or waits to be. Dropped, it lets others go on.
#[derive(Debug)]
pub(super) struct Locked<'a> {
    locks: &'a RangeLocks,
    ticket: u64,
}

impl RangeLocks {
    fn ranges(&self) -> MutexGuard<'_, Ranges> {
        self.ranges.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks a range.
    pub(super) async fn lock(&self, range: Range<u64>) -> Locked<'_> {
        let locked = {
            let mut ranges = self.ranges();
            let ticket = ranges.next;
            ranges.next += 1;
            ranges.list.push_back(Entry { ticket, range, waker: None });
            Locked { locks: self, ticket }
        };
        poll_fn(|context| {
            let mut ranges = self.ranges();
            if ranges.is_held(locked.ticket) {
                return Poll::Ready(());
            }
            if let Some(entry) = ranges.list.iter_mut().find(|entry| entry.ticket == locked.ticket) {
                entry.waker = Some(context.waker().clone());
            }
            Poll::Pending
        })
        .await;
        locked
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        let mut ranges = self.locks.ranges();
        let Some(at) = ranges.list.iter().position(|entry| entry.ticket == self.ticket) else { return };
        let Some(gone) = ranges.list.remove(at) else { return };
        for entry in ranges.list.iter_mut().skip(at).filter(|entry| overlap(&entry.range, &gone.range)) {
            if let Some(waker) = entry.waker.take() {
                waker.wake();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::pin;
    use std::task::Context;

    fn is_ready(future: std::pin::Pin<&mut impl Future>) -> bool {
        future.poll(&mut Context::from_waker(Waker::noop())).is_ready()
    }

    #[test]
    fn ranges_that_only_touch_do_not_wait() {
        let locks = RangeLocks::default();
        let first = futures_util::FutureExt::now_or_never(locks.lock(0..10));
        assert!(is_ready(pin!(locks.lock(10..20))));
        drop(first);
        assert!(locks.ranges().list.is_empty());
    }

    #[test]
    fn those_that_overlap_come_in_the_order_in_which_they_asked() {
        let locks = RangeLocks::default();
        let first = futures_util::FutureExt::now_or_never(locks.lock(0..10)).unwrap();
        let mut second = pin!(locks.lock(5..15));
        let mut third = pin!(locks.lock(12..20));
        assert!(!is_ready(second.as_mut()));
        assert!(!is_ready(third.as_mut()), "the third overlaps the second, which came before it");
        drop(first);
        assert!(!is_ready(third.as_mut()));
        assert!(is_ready(second.as_mut()));
    }

    #[test]
    fn who_gives_up_waiting_holds_nobody_up() {
        let locks = RangeLocks::default();
        let first = futures_util::FutureExt::now_or_never(locks.lock(0..10)).unwrap();
        let mut third = Box::pin(locks.lock(12..20));
        {
            let mut second = Box::pin(locks.lock(5..15));
            assert!(!is_ready(second.as_mut()));
            let mut behind = Box::pin(locks.lock(14..16));
            assert!(!is_ready(behind.as_mut()));
            drop(second);
            assert!(is_ready(behind.as_mut()));
        }
        assert!(is_ready(third.as_mut()));
        drop(first);
    }
}
