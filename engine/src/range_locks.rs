//! Range locks: changes of overlapping ranges happen one after the other, in the order of the requests.
//!
//! A change of a volume or a file is a change of the object and a note in the intent log. Both must happen in
//! the same order for all changes of the same bytes, or a replay would end with other bytes than those that
//! were read before the crash. Readers of a volume take no lock: a block device promises nothing about a read
//! that overlaps a write. Readers of a file share its ranges with each other, so that they see whole writes.
//!
//! Every requested range is in one list, in order of arrival. It is held as soon as no earlier range
//! overlaps, unless both are shared. The list is as long as the number of requests in progress, so that
//! walking it costs less than a cleverer structure.
//!
//! | lock | guards | order |
//! |---|---|---|
//! | `ranges` | the list; held to walk it, never across an await | taken alone |

use std::collections::VecDeque;
use std::future::poll_fn;
use std::ops::{Deref, Range};
use std::sync::{Mutex, MutexGuard};
use std::task::{Poll, Waker};

use device::IgnorePoison;

use crate::waits;

/// Whether other holders may have the same bytes at the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    /// No other holder.
    Alone,
    /// All holders with shared access.
    Shared,
}

/// The locked and the waiting ranges of one object.
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
    access: Access,
    waker: Option<Waker>,
}

impl Entry {
    fn excludes(&self, other: &Entry) -> bool {
        let shared = self.access == Access::Shared && other.access == Access::Shared;
        !shared && self.range.start < other.range.end && other.range.start < self.range.end
    }
}

impl Ranges {
    fn is_held(&self, ticket: u64) -> bool {
        let Some(at) = self.list.iter().position(|entry| entry.ticket == ticket) else { return true };
        let Some(entry) = self.list.get(at) else { return true };
        self.list.iter().take(at).all(|before| !before.excludes(entry))
    }
}

/// A locked or waiting range. Dropping it lets others continue.
#[derive(Debug)]
pub(super) struct Locked<L: Deref<Target = RangeLocks>> {
    locks: L,
    ticket: u64,
}

impl RangeLocks {
    fn ranges(&self) -> MutexGuard<'_, Ranges> {
        self.ranges.lock().ignore_poison()
    }

    /// Locks a range exclusively.
    pub(super) async fn lock(&self, range: Range<u64>) -> Locked<&Self> {
        Self::lock_in(self, range, Access::Alone).await
    }

    /// Locks a range of `locks`, to which the lock keeps a handle.
    pub(super) async fn lock_in<L: Deref<Target = Self>>(
        locks: L,
        range: Range<u64>,
        access: Access,
    ) -> Locked<L> {
        let ticket = {
            let mut ranges = locks.ranges();
            let ticket = ranges.next;
            ranges.next += 1;
            ranges.list.push_back(Entry { ticket, range, access, waker: None });
            ticket
        };
        let locked = Locked { locks, ticket };
        poll_fn(|context| {
            let mut ranges = locked.locks.ranges();
            if ranges.is_held(locked.ticket) {
                return Poll::Ready(());
            }
            waits::note("earlier requests of the same bytes");
            if let Some(entry) = ranges.list.iter_mut().find(|entry| entry.ticket == locked.ticket) {
                entry.waker = Some(context.waker().clone());
            }
            Poll::Pending
        })
        .await;
        locked
    }
}

impl<L: Deref<Target = RangeLocks>> Drop for Locked<L> {
    fn drop(&mut self) {
        let mut ranges = self.locks.ranges();
        let Some(at) = ranges.list.iter().position(|entry| entry.ticket == self.ticket) else { return };
        let Some(gone) = ranges.list.remove(at) else { return };
        for entry in ranges.list.iter_mut().skip(at).filter(|entry| gone.excludes(entry)) {
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
    fn those_who_share_wait_for_nobody_but_those_who_want_to_be_alone() {
        let locks = RangeLocks::default();
        let shared = || RangeLocks::lock_in(&locks, 0..10, Access::Shared);
        let first = futures_util::FutureExt::now_or_never(shared()).unwrap();
        let second = futures_util::FutureExt::now_or_never(shared()).unwrap();
        let mut alone = pin!(locks.lock(5..6));
        assert!(!is_ready(alone.as_mut()));
        let mut late = pin!(shared());
        assert!(!is_ready(late.as_mut()), "it would hold up who came before it");
        drop(first);
        assert!(!is_ready(alone.as_mut()));
        drop(second);
        assert!(is_ready(alone.as_mut()));
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
