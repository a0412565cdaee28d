//! How much a vdev transferred, and how long that took: the figures of `zpool iostat`.
//!
//! A leaf counts the transfers of its device. A top-level vdev with children counts the requests to it: a
//! block that a mirror writes to two children is one write of the mirror and one of each child. So the sum
//! over the top-level vdevs is the work of the pool.
//!
//! Counters only grow; a caller that wants rates takes two [`Stats::snapshot`]s and subtracts them. There are
//! no locks: a snapshot that is taken while a transfer ends may count it in one number and not yet in
//! another.

use std::array;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use device::IgnorePoison;

use crate::tunables;

/// Buckets of a latency histogram: bucket `n` counts transfers of at least `1 << n` and less than
/// `1 << (n + 1)` nanoseconds; the last bucket counts all longer ones.
pub const LATENCY_BUCKETS: usize = 37;

/// Buckets of a histogram of sizes: bucket `n` counts transfers of at least `512 << n` and less than
/// `1024 << n` bytes; the first bucket counts all smaller ones, the last bucket all larger ones.
pub const SIZE_BUCKETS: usize = 16;

/// The most slow transfers that are remembered until they are reported.
const MAX_SLOW: usize = 64;

/// A transfer that was slow.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SlowTransfer {
    /// Its kind.
    pub transfer: Transfer,
    /// Bytes.
    pub bytes: u64,
    /// How long it took.
    pub duration: Duration,
    /// When it ended.
    pub ended: Instant,
}

/// The kind of a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Transfer {
    /// Bytes were read from the vdev.
    Read,
    /// Bytes were written to the vdev.
    Write,
    /// Written bytes were made durable.
    Flush,
    /// Ranges were discarded.
    Discard,
    /// Writes that had to be durable at once: those of the intent log. They count as [`Transfer::Write`] too.
    SyncWrite,
    /// Reads of a sweep. They count as [`Transfer::Read`] too.
    Scrub,
}

/// The purpose of a transfer in progress. Reads go to the system at once; a
/// write of a group may wait for stable writes. These are the columns of `zpool iostat -q`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Queue {
    /// A read of a block that a reader waits for.
    SyncRead,
    /// A write that must be durable at once: the intent log's.
    SyncWrite,
    /// A write of a transaction group.
    AsyncWrite,
    /// A read of a sweep.
    Scrub,
    /// A discard.
    Trim,
}

/// The counters of one vdev.
#[derive(Debug)]
pub struct Stats {
    since: Instant,
    by_transfer: [Counters; 6],
    under_way: [AtomicU64; 5],
    pending: [AtomicU64; 5],
    by_queue: [QueueCounters; 5],
    healed_bytes: AtomicU64,
    scanned_bytes: AtomicU64,
    slow: AtomicU64,
    unseen_slow: Mutex<Vec<SlowTransfer>>,
}

/// A transfer that is in progress, or waits, as long as this lives.
#[derive(Debug)]
pub(crate) struct UnderWay<'a>(&'a AtomicU64);

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Default for Stats {
    fn default() -> Self {
        Self {
            since: Instant::now(),
            by_transfer: Default::default(),
            under_way: Default::default(),
            pending: Default::default(),
            by_queue: Default::default(),
            healed_bytes: AtomicU64::new(0),
            scanned_bytes: AtomicU64::new(0),
            slow: AtomicU64::new(0),
            unseen_slow: Mutex::default(),
        }
    }
}

#[derive(Debug)]
struct Counters {
    bytes: AtomicU64,
    latency: [AtomicU64; LATENCY_BUCKETS],
    total: [AtomicU64; LATENCY_BUCKETS],
    sizes: [AtomicU64; SIZE_BUCKETS],
    total_ns: AtomicU64,
}

impl Default for Counters {
    fn default() -> Self {
        Self {
            bytes: Default::default(),
            latency: array::from_fn(|_| AtomicU64::new(0)),
            total: array::from_fn(|_| AtomicU64::new(0)),
            sizes: Default::default(),
            total_ns: Default::default(),
        }
    }
}

#[derive(Debug)]
struct QueueCounters {
    waited: [AtomicU64; LATENCY_BUCKETS],
    waited_ns: AtomicU64,
    joined: [AtomicU64; SIZE_BUCKETS],
}

impl Default for QueueCounters {
    fn default() -> Self {
        Self {
            waited: array::from_fn(|_| AtomicU64::new(0)),
            waited_ns: Default::default(),
            joined: Default::default(),
        }
    }
}

/// What transfers of one class waited for, and which were joined, until some moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Queued {
    /// Transfers by the time that they waited before they went to the device.
    pub waited: [u64; LATENCY_BUCKETS],
    /// The sum of these times.
    pub waited_ns: u64,
    /// Transfers that were joined of several, by size.
    pub joined: [u64; SIZE_BUCKETS],
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

fn latency_bucket(ns: u64) -> usize {
    (ns.max(1).ilog2() as usize).min(LATENCY_BUCKETS - 1)
}

fn size_bucket(bytes: u64) -> usize {
    ((bytes >> 9).max(1).ilog2() as usize).min(SIZE_BUCKETS - 1)
}

/// The counters of one kind of transfer at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Snapshot {
    /// Successful transfers.
    pub operations: u64,
    /// The sum of their bytes.
    pub bytes: u64,
    /// The sum of their durations.
    pub total_ns: u64,
    /// Transfers by latency.
    pub latency: [u64; LATENCY_BUCKETS],
    /// The same with the time that they waited before.
    pub total: [u64; LATENCY_BUCKETS],
    /// Transfers by size.
    pub sizes: [u64; SIZE_BUCKETS],
}

impl Stats {
    /// A transfer begins.
    pub(crate) fn begin(&self, queue: Queue) -> UnderWay<'_> {
        let under_way = &self.under_way[queue as usize];
        under_way.fetch_add(1, Ordering::Relaxed);
        UnderWay(under_way)
    }

    /// A transfer waits for others, until what is returned is dropped.
    pub(crate) fn wait(&self, queue: Queue) -> UnderWay<'_> {
        let pending = &self.pending[queue as usize];
        pending.fetch_add(1, Ordering::Relaxed);
        UnderWay(pending)
    }

    /// The number of transfers that wait for others.
    pub fn pending(&self, queue: Queue) -> u64 {
        self.pending[queue as usize].load(Ordering::Relaxed)
    }

    /// The number of transfers in progress.
    pub fn under_way(&self, queue: Queue) -> u64 {
        self.under_way[queue as usize].load(Ordering::Relaxed)
    }

    /// Transfers that succeeded, and their bytes.
    pub(crate) fn totals(&self, transfer: Transfer) -> (u64, u64) {
        let counters = &self.by_transfer[transfer as usize];
        let operations = counters.latency.iter().map(|bucket| bucket.load(Ordering::Relaxed)).sum();
        (operations, counters.bytes.load(Ordering::Relaxed))
    }

    /// A transfer of a class, which began at `start`, ended: how long it had waited, and of how many parts it
    /// was joined.
    pub(crate) fn count_queued(&self, queue: Queue, bytes: u64, waited: Duration, parts: usize) {
        let Some(counters) = self.by_queue.get(queue as usize) else { return };
        counters.waited[latency_bucket(nanos(waited))].fetch_add(1, Ordering::Relaxed);
        counters.waited_ns.fetch_add(nanos(waited), Ordering::Relaxed);
        if parts > 1 {
            counters.joined[size_bucket(bytes)].fetch_add(1, Ordering::Relaxed);
        }
    }

    /// What was counted of a class.
    pub fn queued(&self, queue: Queue) -> Queued {
        let counters = &self.by_queue[queue as usize];
        Queued {
            waited: array::from_fn(|bucket| counters.waited[bucket].load(Ordering::Relaxed)),
            waited_ns: counters.waited_ns.load(Ordering::Relaxed),
            joined: array::from_fn(|bucket| counters.joined[bucket].load(Ordering::Relaxed)),
        }
    }

    /// A transfer that began at `start` succeeded.
    pub(crate) fn count(&self, transfer: Transfer, bytes: u64, start: Instant) {
        self.count_lasting(transfer, bytes, start.elapsed(), Duration::ZERO);
    }

    /// The same of a transfer that had waited before it began.
    pub(crate) fn count_after(&self, transfer: Transfer, bytes: u64, start: Instant, waited: Duration) {
        self.count_lasting(transfer, bytes, start.elapsed(), waited);
    }

    fn count_lasting(&self, transfer: Transfer, bytes: u64, duration: Duration, waited: Duration) {
        let counters = &self.by_transfer[transfer as usize];
        let ns = nanos(duration);
        let bucket = latency_bucket(ns);
        counters.bytes.fetch_add(bytes, Ordering::Relaxed);
        counters.total_ns.fetch_add(ns, Ordering::Relaxed);
        counters.latency[bucket].fetch_add(1, Ordering::Relaxed);
        let total = nanos(duration.saturating_add(waited));
        counters.total[latency_bucket(total)].fetch_add(1, Ordering::Relaxed);
        counters.sizes[size_bucket(bytes)].fetch_add(1, Ordering::Relaxed);
        let is_of_another = matches!(transfer, Transfer::SyncWrite | Transfer::Scrub);
        if duration.as_millis() >= u128::from(tunables::ZIO_SLOW_IO_MS.get()) && !is_of_another {
            self.slow.fetch_add(1, Ordering::Relaxed);
            let mut unseen = self.unseen_slow.lock().ignore_poison();
            if unseen.len() < MAX_SLOW {
                unseen.push(SlowTransfer { transfer, bytes, duration, ended: Instant::now() });
            }
        }
    }

    /// Whether there were slow transfers since the last [`Stats::take_slow`].
    pub(crate) fn has_unseen_slow(&self) -> bool {
        !self.unseen_slow.lock().ignore_poison().is_empty()
    }

    /// The slow transfers since the last call.
    pub(crate) fn take_slow(&self) -> Vec<SlowTransfer> {
        std::mem::take(&mut *self.unseen_slow.lock().ignore_poison())
    }

    /// Successful transfers that took half a minute or more, since the errors were cleared.
    pub fn slow(&self) -> u64 {
        self.slow.load(Ordering::Relaxed)
    }

    /// Sets the number of slow transfers to zero, as `zpool clear` does.
    pub(crate) fn clear_slow(&self) {
        self.slow.store(0, Ordering::Relaxed);
    }

    /// Wrong bytes of the vdev were replaced by right ones.
    pub(crate) fn count_healed(&self, bytes: u64) {
        self.healed_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Bytes that were wrong when they were read, and were rewritten (`vs_self_healed`).
    pub fn healed_bytes(&self) -> u64 {
        self.healed_bytes.load(Ordering::Relaxed)
    }

    /// The scan that is under way wrote bytes to the vdev.
    pub(crate) fn count_scanned(&self, bytes: u64) {
        self.scanned_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// A scan begins.
    pub(crate) fn clear_scanned(&self) {
        self.scanned_bytes.store(0, Ordering::Relaxed);
    }

    /// Bytes that the last scrub or resilver wrote to the vdev (`vs_scan_processed`).
    pub(crate) fn scanned_bytes(&self) -> u64 {
        self.scanned_bytes.load(Ordering::Relaxed)
    }

    /// The time for which the counters have run.
    pub fn age(&self) -> Duration {
        self.since.elapsed()
    }

    /// The present counters.
    pub fn snapshot(&self, transfer: Transfer) -> Snapshot {
        let counters = &self.by_transfer[transfer as usize];
        let latency = array::from_fn(|bucket| counters.latency[bucket].load(Ordering::Relaxed));
        Snapshot {
            operations: latency.iter().sum(),
            bytes: counters.bytes.load(Ordering::Relaxed),
            total_ns: counters.total_ns.load(Ordering::Relaxed),
            latency,
            total: array::from_fn(|bucket| counters.total[bucket].load(Ordering::Relaxed)),
            sizes: array::from_fn(|bucket| counters.sizes[bucket].load(Ordering::Relaxed)),
        }
    }
}

impl Snapshot {
    /// The difference to `earlier`.
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            operations: self.operations.saturating_sub(earlier.operations),
            bytes: self.bytes.saturating_sub(earlier.bytes),
            total_ns: self.total_ns.saturating_sub(earlier.total_ns),
            latency: array::from_fn(|bucket| self.latency[bucket].saturating_sub(earlier.latency[bucket])),
            total: array::from_fn(|bucket| self.total[bucket].saturating_sub(earlier.total[bucket])),
            sizes: array::from_fn(|bucket| self.sizes[bucket].saturating_sub(earlier.sizes[bucket])),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transfer_counts_in_the_bucket_of_its_duration() {
        let stats = Stats::default();
        for ns in [0, 1, 1023, 1024, 1 << 60] {
            stats.count_lasting(Transfer::Write, 512, Duration::from_nanos(ns), Duration::ZERO);
        }
        let before = stats.snapshot(Transfer::Write);
        assert_eq!((before.operations, before.bytes, before.sizes[0]), (5, 5 * 512, 5));
        assert_eq!([0, 9, 10, 36].map(|bucket| before.latency[bucket]), [2, 1, 1, 1]);
        stats.count_lasting(Transfer::Write, 128 << 20, Duration::from_nanos(1500), Duration::ZERO);
        assert_eq!(stats.snapshot(Transfer::Write).sizes[SIZE_BUCKETS - 1], 1);
        let since = stats.snapshot(Transfer::Write).since(&before);
        assert_eq!(
            (since.operations, since.bytes, since.total_ns, since.latency[10]),
            (1, 128 << 20, 1500, 1)
        );
        assert_eq!(stats.snapshot(Transfer::Read).operations, 0);
    }

    #[test]
    fn what_waited_before_its_transfer_is_in_the_total_and_in_its_queue() {
        let stats = Stats::default();
        let waited = Duration::from_nanos(1 << 20);
        stats.count_lasting(Transfer::Write, 8192, Duration::from_nanos(1000), waited);
        stats.count_queued(Queue::AsyncWrite, 8192, waited, 2);
        stats.count_queued(Queue::AsyncWrite, 512, Duration::ZERO, 1);
        let written = stats.snapshot(Transfer::Write);
        assert_eq!((written.latency[9], written.total[9], written.total[20]), (1, 0, 1));
        let queued = stats.queued(Queue::AsyncWrite);
        assert_eq!((queued.waited[20], queued.waited[0], queued.waited_ns), (1, 1, 1 << 20));
        assert_eq!((queued.joined[4], queued.joined.iter().sum::<u64>()), (1, 1));
    }

    #[test]
    fn transfers_of_half_a_minute_are_slow_until_errors_are_cleared() {
        let stats = Stats::default();
        const SLOW: Duration = Duration::from_secs(30);
        stats.count_lasting(Transfer::Read, 512, SLOW - Duration::from_millis(1), Duration::ZERO);
        assert_eq!(stats.slow(), 0);
        // Such a transfer counts in two kinds, but once as slow.
        for transfer in [Transfer::Write, Transfer::SyncWrite, Transfer::Read, Transfer::Scrub] {
            stats.count_lasting(transfer, 512, SLOW, Duration::ZERO);
        }
        assert_eq!((stats.slow(), stats.take_slow().len(), stats.take_slow().len()), (2, 2, 0));
        stats.clear_slow();
        assert_eq!(stats.slow(), 0);
    }

    #[test]
    fn what_is_under_way_is_told_by_what_it_is_for() {
        let stats = Stats::default();
        let (one, other) = (stats.begin(Queue::SyncRead), stats.begin(Queue::Scrub));
        let all = || [Queue::SyncRead, Queue::AsyncWrite, Queue::Scrub].map(|queue| stats.under_way(queue));
        assert_eq!(all(), [1, 0, 1]);
        drop(one);
        assert_eq!(all(), [0, 0, 1]);
        drop(other);
        assert_eq!(all(), [0, 0, 0]);
        let waits = stats.wait(Queue::AsyncWrite);
        assert_eq!((stats.pending(Queue::AsyncWrite), all()), (1, [0, 0, 0]));
        drop(waits);
        assert_eq!(stats.pending(Queue::AsyncWrite), 0);
    }
}
