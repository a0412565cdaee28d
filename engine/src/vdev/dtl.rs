//! Dirty time logs: the transaction groups that a device missed.
//!
//! A leaf that was unavailable while the pool was written has an object in the MOS, which `DTL` in the vdev's
//! config names. It is a space map whose "offsets" are txgs and whose "sizes" are numbers of txgs.
//! Resilvering empties it.
//!
//! [`Missed`] is such a log in memory: the ranges read from the pool at import, and the groups that the
//! device has missed since. Reads check it for every transfer; the check takes no lock for a device that
//! missed nothing, as nearly all devices.
//!
//! | lock | guards | order |
//! |---|---|---|
//! | `Missed::ranges` | the ranges of one vdev | taken alone, for a few lines |
//!
//! Source: OpenZFS 2.3 `vdev.c` (the comment on dirty time logs, `vdev_dtl_load`).

use std::sync::RwLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use device::IgnorePoison;
use ondisk::{ObjectId, Txg};

/// A set of transaction groups, as sorted ranges that do not touch.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TxgRanges {
    /// Half-open: first txg, and the first one after the range.
    ranges: Vec<(u64, u64)>,
}

impl TxgRanges {
    /// The union of half-open ranges in any order; empty ranges are left out.
    pub fn new(ranges: impl IntoIterator<Item = (u64, u64)>) -> Self {
        let mut sorted: Vec<_> = ranges.into_iter().filter(|(start, end)| start < end).collect();
        sorted.sort_unstable();
        let mut ranges: Vec<(u64, u64)> = Vec::new();
        for (start, end) in sorted {
            match ranges.last_mut() {
                Some(last) if start <= last.1 => last.1 = last.1.max(end),
                _ => ranges.push((start, end)),
            }
        }
        Self { ranges }
    }

    /// Adds the half-open range `start..end`.
    pub fn add(&mut self, start: u64, end: u64) {
        if start >= end {
            return;
        }
        // Ranges that touch the new one are merged with it.
        let first = self.ranges.partition_point(|range| range.1 < start);
        let last = self.ranges.partition_point(|range| range.0 <= end).max(first);
        let touched = self.ranges.get(first..last).unwrap_or_default();
        let start = touched.first().map_or(start, |range| range.0.min(start));
        let end = touched.last().map_or(end, |range| range.1.max(end));
        self.ranges.splice(first..last, [(start, end)]);
    }

    /// Removes the half-open range `start..end`.
    pub fn remove(&mut self, start: u64, end: u64) {
        if start >= end {
            return;
        }
        let left = self.ranges.iter().flat_map(|&(from, to)| [(from, to.min(start)), (from.max(end), to)]);
        self.ranges = left.filter(|(from, to)| from < to).collect();
    }

    /// Whether `txg` was missed.
    pub fn contains(&self, txg: u64) -> bool {
        let index = self.ranges.partition_point(|&(_, end)| end <= txg);
        self.ranges.get(index).is_some_and(|&(start, _)| start <= txg)
    }

    /// Whether nothing was missed.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// The ranges, ascending: first txg, and the first one after the range.
    pub fn ranges(&self) -> &[(u64, u64)] {
        &self.ranges
    }
}

/// The groups that one vdev missed; they may change while they are read.
#[derive(Debug, Default)]
pub struct Missed {
    /// Whether `ranges` is not empty.
    any: AtomicBool,
    /// Counts changes.
    version: AtomicU64,
    /// The change up to which the log is stored in the pool.
    stored: AtomicU64,
    /// The log's object, once this process made one; 0 before.
    object: AtomicU64,
    ranges: RwLock<TxgRanges>,
}

impl Missed {
    /// Whether `txg` was missed.
    pub fn contains(&self, txg: u64) -> bool {
        self.any.load(Ordering::Acquire) && self.read(|ranges| ranges.contains(txg))
    }

    /// Whether nothing was missed.
    pub fn is_empty(&self) -> bool {
        !self.any.load(Ordering::Acquire)
    }

    /// All missed groups.
    pub fn ranges(&self) -> TxgRanges {
        self.read(TxgRanges::clone)
    }

    /// A number that changes with the ranges.
    pub fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// Replaces all ranges by those that the pool has at import.
    pub fn load(&self, ranges: TxgRanges) {
        self.change(|known| *known = ranges);
        self.stored.store(self.version(), Ordering::Release);
    }

    /// Notes that the vdev missed a write of `txg`.
    pub fn note(&self, txg: Txg) {
        if !self.contains(txg.get()) {
            self.note_range(txg, txg);
        }
    }

    /// Notes that the vdev missed writes of the groups from `first` to `last`.
    pub fn note_range(&self, first: Txg, last: Txg) {
        self.change(|ranges| ranges.add(first.get(), last.get().saturating_add(1)));
    }

    /// Notes that the vdev now has the data of the groups `start..end`.
    pub fn forget(&self, start: Txg, end: Txg) {
        if !self.is_empty() {
            self.change(|ranges| ranges.remove(start.get(), end.get()));
        }
    }

    /// Whether there are changes that are not stored in the pool.
    pub fn is_unstored(&self) -> bool {
        self.version() != self.stored.load(Ordering::Acquire)
    }

    /// Notes that the ranges of [`Missed::version`] `version` are stored.
    pub(crate) fn set_stored(&self, version: u64) {
        self.stored.store(version, Ordering::Release);
    }

    /// The object of a log that was created since the pool was opened.
    pub(crate) fn object(&self) -> Option<ObjectId> {
        Some(ObjectId(self.object.load(Ordering::Acquire))).filter(|object| object.get() != 0)
    }

    /// Sets the object of the log.
    pub(crate) fn set_object(&self, object: ObjectId) {
        self.object.store(object.get(), Ordering::Release);
    }

    fn read<T>(&self, look: impl FnOnce(&TxgRanges) -> T) -> T {
        look(&self.ranges.read().ignore_poison())
    }

    fn change(&self, change: impl FnOnce(&mut TxgRanges)) {
        let mut ranges = self.ranges.write().ignore_poison();
        change(&mut ranges);
        self.any.store(!ranges.is_empty(), Ordering::Release);
        self.version.fetch_add(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[test]
    fn ranges_are_half_open_and_merged() {
        let ranges = TxgRanges::new([(10, 12), (1, 3), (3, 4), (11, 15), (20, 20)]);
        assert_eq!(ranges.ranges(), [(1, 4), (10, 15)]);
        let inside: Vec<u64> = (0..25).filter(|&txg| ranges.contains(txg)).collect();
        assert_eq!(inside, [1, 2, 3, 10, 11, 12, 13, 14]);
        assert!(TxgRanges::default().is_empty());
    }

    proptest! {
        #[test]
        fn ranges_are_the_set_of_their_txgs(changes in proptest::collection::vec((any::<bool>(), 0u64..40, 0u64..10), 0..40)) {
            let mut ranges = TxgRanges::default();
            let mut model = BTreeSet::new();
            for (add, start, length) in changes {
                let end = start + length;
                if add {
                    ranges.add(start, end);
                    model.extend(start..end);
                } else {
                    ranges.remove(start, end);
                    model.retain(|txg| !(start..end).contains(txg));
                }
                prop_assert_eq!(&ranges, &TxgRanges::new(model.iter().map(|txg| (*txg, txg + 1))));
            }
        }
    }

    #[test]
    fn what_was_missed_is_known_until_it_is_forgotten() {
        let missed = Missed::default();
        let untouched = missed.version();
        missed.forget(Txg(0), Txg(100));
        assert_eq!((missed.is_empty(), missed.version()), (true, untouched));
        missed.note(Txg(7));
        missed.note(Txg(8));
        assert_eq!(missed.ranges(), TxgRanges::new([(7, 9)]));
        let noted = missed.version();
        missed.note(Txg(8));
        assert_eq!(missed.version(), noted);
        missed.forget(Txg(0), Txg(8));
        assert_eq!([7, 8].map(|txg| missed.contains(txg)), [false, true]);
    }
}
