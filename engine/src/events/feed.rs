//! One feed of all that changes: what committed groups changed, and what happened beside them.
//!
//! # The idea
//! A [`Change`] says of which pool and group it is, and what became different ([`What`]), with names and
//! guids as they were at that moment. Each change gets the next number and lies in a ring; a reader has the
//! number of the last change that it knows, and nothing else of it is kept here. So a reader that is slow
//! costs no memory: when the ring no longer has what comes next, the reader is told that it missed something
//! ([`Batch::missed`]) and looks at the whole state again.
//!
//! Who changes something as part of a group announces it (`Reporter::announce`), and the pool hands
//! it over when the group is committed and readers of the pool see it, before the callers that wait for the
//! commit go on. So a caller that was answered finds its change here. A change that was not committed is
//! never told. What belongs to no group (the state of a device, a job that ended, an event) is told at once.
//!
//! Besides changes there are *figures*: space that is used, how far a job is. Only the newest ones are worth
//! anything, so they have no numbers and are not kept. The feed only says that they moved
//! (`Feed::moved`), which costs one addition where no reader waits for that; who wants them looks.
//!
//! # Bounds
//! The ring has [`MAX_CHANGES`] places. A group announces no more than that; of one with more, readers miss
//! all. A data path announces nothing. An error of a transfer, which is an event, takes the lock of the ring
//! for a few lines, and waits for no reader.
//!
//! | lock | guards | order |
//! |---|---|---|
//! | `Feed::ring` | the ring, and who waits; for a few lines, never across an await | last |

use std::collections::{BTreeMap, VecDeque};
use std::future::poll_fn;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::task::{Poll, Waker};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use device::IgnorePoison;
use ondisk::{Guid, Txg};

use super::Event;

/// Changes that the ring keeps, and the most that a group announces.
pub const MAX_CHANGES: usize = 4096;

/// What became different.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum What {
    /// The pool is open from now on.
    Opened,
    /// The pool is not open any more.
    Closed,
    /// A filesystem, volume, snapshot (`@`) or bookmark (`#`) is new.
    Created {
        /// Its name.
        name: String,
        /// Its guid; of a bookmark that of the snapshot.
        guid: Guid,
        /// The size of a volume in bytes.
        volume_bytes: Option<u64>,
    },
    /// The same is there no more.
    Destroyed {
        /// The name that it had.
        name: String,
        /// Its guid.
        guid: Guid,
    },
    /// A dataset has another name, and so has all below it; or a snapshot has.
    Renamed {
        /// The name that it had.
        from: String,
        /// The name that it has.
        to: String,
        /// Its guid.
        guid: Guid,
    },
    /// A clone changed places with its origin: snapshots of that are its own now.
    Promoted {
        /// Its name.
        name: String,
        /// Its guid.
        guid: Guid,
    },
    /// A dataset has other contents, from a snapshot or a stream.
    Replaced {
        /// Its name.
        name: String,
        /// Its guid.
        guid: Guid,
    },
    /// A volume has another size.
    Resized {
        /// Its name.
        name: String,
        /// In bytes.
        bytes: u64,
    },
    /// A property of a dataset or snapshot was set, inherited or received; or the holds of a snapshot are
    /// others (`userrefs`).
    Set {
        /// The dataset.
        name: String,
        /// Its guid.
        guid: Guid,
        /// The property, as it is stored.
        property: String,
    },
    /// A property of the pool was set.
    PoolSet {
        /// The property.
        property: String,
    },
    /// The configuration in the labels is another one: vdevs, their places, features.
    Configured,
    /// A device is in another state.
    VdevState {
        /// The vdev.
        guid: Guid,
        /// The path of its device.
        path: Option<String>,
        /// OpenZFS's number of its state (`vdev_state_t`).
        state: u64,
    },
    /// A job began, was stopped, or ended.
    Job {
        /// Which: `initialize`, `trim`, `scan`, `error_scrub`, `reshape` and others.
        job: &'static str,
        /// The vdev or the object of the dataset that it works on; 0 for the pool.
        target: u64,
        /// How it stands: `active`, `suspended`, `canceled`, `complete`, or `over` for one that is forgotten.
        state: &'static str,
    },
    /// Devices fail, and writers wait.
    Suspended,
    /// They go on.
    Resumed,
    /// The log of damaged blocks is another one.
    Errors,
    /// An event, as `zpool events` shows it.
    Event(Arc<Event>),
    /// What programs outside of the pool see is another one: a filesystem was mounted or unmounted, a key was
    /// loaded or unloaded, a volume became a block device or is one no more.
    Served {
        /// The dataset.
        name: String,
        /// What happened: `mounted`, `unmounted`, `key-loaded`, `key-unloaded`, `attached`, `detached`.
        how: &'static str,
    },
}

/// Something that became different in a pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// The pool's name.
    pub pool: String,
    /// The pool's guid.
    pub guid: Guid,
    /// The group that it was committed with; none for what belongs to no group.
    pub txg: Txg,
    /// What it was.
    pub what: What,
}

/// The feed of a daemon.
#[derive(Debug)]
pub struct Feed {
    ring: Mutex<Ring>,
    /// For threads that wait.
    posted: Condvar,
    /// Tells this feed from others, of which numbers mean other changes.
    epoch: u64,
    /// How often figures moved.
    moves: AtomicU64,
    /// How many readers wait until they do.
    waiting: AtomicUsize,
    readers: AtomicUsize,
}

#[derive(Debug, Default)]
struct Ring {
    changes: VecDeque<Arc<Change>>,
    /// The number of the last change of all.
    last: u64,
    /// Readers that wait, by their numbers.
    wakers: BTreeMap<u64, Waker>,
    last_reader: u64,
    is_over: bool,
}

/// Changes after one that a reader knows.
#[derive(Debug, Clone, Default)]
pub struct Batch {
    /// With their numbers, the oldest first.
    pub changes: Vec<(u64, Arc<Change>)>,
    /// There were others before them, of which nothing is known any more.
    pub missed: bool,
}

impl Default for Feed {
    fn default() -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self {
            ring: Mutex::default(),
            posted: Condvar::new(),
            epoch: u64::try_from(since.as_nanos()).unwrap_or(u64::MAX),
            moves: AtomicU64::new(0),
            waiting: AtomicUsize::new(0),
            readers: AtomicUsize::new(0),
        }
    }
}

impl Feed {
    fn ring(&self) -> MutexGuard<'_, Ring> {
        self.ring.lock().ignore_poison()
    }

    /// The number that tells this feed from that of another process.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// The number of the last change.
    pub fn last(&self) -> u64 {
        self.ring().last
    }

    /// Adds changes, in their order.
    pub(super) fn publish(&self, changes: impl IntoIterator<Item = Change>) {
        let mut ring = self.ring();
        for change in changes {
            if ring.changes.len() >= MAX_CHANGES {
                ring.changes.pop_front();
            }
            ring.changes.push_back(Arc::new(change));
            ring.last += 1;
        }
        self.posted.notify_all();
        ring.wake();
    }

    /// There were more changes than can be told: all readers miss them.
    pub(super) fn lose(&self) {
        let mut ring = self.ring();
        ring.changes.clear();
        ring.last += 1;
        self.posted.notify_all();
        ring.wake();
    }

    /// Figures are others than before.
    pub(super) fn moved(&self) {
        self.moves.fetch_add(1, Ordering::SeqCst);
        if self.waiting.load(Ordering::SeqCst) > 0 {
            self.ring().wake();
        }
    }

    /// How often figures moved.
    pub fn moves(&self) -> u64 {
        self.moves.load(Ordering::SeqCst)
    }

    /// Whether it has readers. Threads that wait are none.
    pub(super) fn has_readers(&self) -> bool {
        self.readers.load(Ordering::Relaxed) > 0
    }

    /// At most so many changes after the one with this number, without waiting.
    pub fn after(&self, number: u64, most: usize) -> Batch {
        self.ring().after(number, most)
    }

    /// For threads: waits for a change after the one with this number, until `until` or the end.
    pub fn wait_after(&self, number: u64, until: Instant) {
        let mut ring = self.ring();
        while ring.last <= number && !ring.is_over {
            let left = until.saturating_duration_since(Instant::now());
            if left == Duration::ZERO {
                return;
            }
            ring = self.posted.wait_timeout(ring, left).ignore_poison().0;
        }
    }

    /// No thread waits any more.
    pub(super) fn end(&self) {
        self.ring().is_over = true;
        self.posted.notify_all();
    }

    /// A reader that knows the change with this number.
    pub fn reader(self: &Arc<Self>, number: u64) -> Reader {
        let mut ring = self.ring();
        ring.last_reader += 1;
        self.readers.fetch_add(1, Ordering::Relaxed);
        Reader { feed: Arc::clone(self), id: ring.last_reader, last: number, moves: 0 }
    }
}

impl Ring {
    fn after(&self, number: u64, most: usize) -> Batch {
        let first = self.last + 1 - self.changes.len() as u64;
        // A number that was never given is of a reader that cannot be helped otherwise.
        let missed = number.saturating_add(1) < first || number > self.last;
        let from = if missed { first } else { number.saturating_add(1) };
        let place = usize::try_from(from - first).unwrap_or(usize::MAX);
        let found = self.changes.iter().skip(place).take(most);
        let changes = found.enumerate().map(|(at, change)| (from + at as u64, Arc::clone(change)));
        Batch { changes: changes.collect(), missed }
    }

    fn wake(&mut self) {
        std::mem::take(&mut self.wakers).into_values().for_each(Waker::wake);
    }
}

/// A reader of a feed, for tasks.
#[derive(Debug)]
pub struct Reader {
    feed: Arc<Feed>,
    id: u64,
    /// The last change that it knows.
    last: u64,
    /// How often figures had moved when it looked.
    moves: u64,
}

impl Reader {
    /// The number of the last change that it knows.
    pub fn last(&self) -> u64 {
        self.last
    }

    /// Knows all up to this change from now on.
    pub fn skip_to(&mut self, number: u64) {
        self.last = number;
    }

    /// Waits for changes, and gives at most so many, which it knows from then on. Where that is wanted, ends
    /// also when figures moved since it looked for the last time, and says so. Nothing is lost when this is
    /// dropped before.
    pub async fn next(&mut self, most: usize, wants_figures: bool) -> (Batch, bool) {
        let waiting = wants_figures.then(|| Waiting::begin(&self.feed));
        poll_fn(|context| {
            let feed = Arc::clone(&self.feed);
            let mut ring = feed.ring();
            // After the count of those who wait was raised: who moves figures from now on sees it.
            let moves = feed.moves.load(Ordering::SeqCst);
            let has_moved = waiting.is_some() && moves != self.moves;
            let has_changes = ring.last != self.last;
            if !has_changes && !has_moved {
                ring.wakers.insert(self.id, context.waker().clone());
                return Poll::Pending;
            }
            if has_moved {
                self.moves = moves;
            }
            let mut batch = Batch::default();
            if has_changes {
                batch = ring.after(self.last, most);
                self.last = batch.changes.last().map_or(ring.last, |(number, _)| *number);
            }
            Poll::Ready((batch, has_moved))
        })
        .await
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.feed.readers.fetch_sub(1, Ordering::Relaxed);
        self.feed.ring().wakers.remove(&self.id);
    }
}

/// Counted among those who wait for figures.
struct Waiting(Arc<Feed>);

impl Waiting {
    fn begin(feed: &Arc<Feed>) -> Self {
        feed.waiting.fetch_add(1, Ordering::SeqCst);
        Self(Arc::clone(feed))
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    fn change(txg: u64) -> Change {
        Change { pool: "tank".into(), guid: Guid(7), txg: Txg(txg), what: What::Configured }
    }

    fn txgs(batch: &Batch) -> Vec<u64> {
        batch.changes.iter().map(|(_, change)| change.txg.get()).collect()
    }

    #[test]
    fn a_reader_gets_each_change_once_and_learns_what_it_missed() {
        let feed = Arc::<Feed>::default();
        let mut reader = feed.reader(0);
        assert!(reader.next(10, false).now_or_never().is_none());
        feed.publish((1..=3).map(change));
        let (batch, _) = reader.next(2, false).now_or_never().unwrap();
        assert_eq!((txgs(&batch), batch.missed, reader.last()), (vec![1, 2], false, 2));
        let (batch, _) = reader.next(2, false).now_or_never().unwrap();
        assert_eq!((txgs(&batch), batch.missed), (vec![3], false));
        assert!(reader.next(2, false).now_or_never().is_none());
        feed.publish((4..4 + MAX_CHANGES as u64).map(change));
        assert!(!feed.after(3, 1).missed, "the ring has all after it");
        feed.publish([change(9999)]);
        let (batch, _) = reader.next(1, false).now_or_never().unwrap();
        assert_eq!((txgs(&batch), batch.missed), (vec![5], true));
        assert!(feed.after(0, 1).missed && feed.after(u64::MAX, 1).missed);
        assert!(feed.after(feed.last(), 1).changes.is_empty());
        feed.lose();
        let batch = feed.after(feed.last() - 1, 1);
        assert!(batch.missed && batch.changes.is_empty());
        reader.skip_to(feed.last() - 1);
        assert!(reader.next(1, false).now_or_never().unwrap().0.missed);
        assert!(reader.next(1, false).now_or_never().is_none(), "it is told once");
    }

    #[test]
    fn a_reader_is_woken_by_figures_only_where_it_wants_them() {
        let feed = Arc::<Feed>::default();
        let mut reader = feed.reader(0);
        feed.moved();
        assert!(reader.next(1, false).now_or_never().is_none());
        assert!(reader.next(1, true).now_or_never().unwrap().1);
        assert!(reader.next(1, true).now_or_never().is_none());
        assert!(feed.ring().wakers.len() == 1);
        let woken = Arc::<std::sync::atomic::AtomicBool>::default();
        let waker = futures_util::task::waker(Arc::new(Flag(Arc::clone(&woken))));
        let mut next = Box::pin(reader.next(1, true));
        assert!(next.as_mut().poll(&mut std::task::Context::from_waker(&waker)).is_pending());
        feed.moved();
        assert!(woken.load(Ordering::SeqCst));
        drop(next);
        assert_eq!(feed.waiting.load(Ordering::SeqCst), 0);
        drop(reader);
        assert!(feed.ring().wakers.is_empty());
    }

    struct Flag(Arc<std::sync::atomic::AtomicBool>);

    impl futures_util::task::ArcWake for Flag {
        fn wake_by_ref(this: &Arc<Self>) {
            this.0.store(true, Ordering::SeqCst);
        }
    }
}
