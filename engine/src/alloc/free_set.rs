//! [`FreeSet`]: the free runs of one metaslab, found by place and by length.
//!
//! # The idea
//! Two ordered trees hold the same runs: one by start, to find neighbours and the next run after a cursor;
//! one by length, to find the longest run and the tightest fit. Positions are counted in sectors from the
//! metaslab's start, so that a run takes two `u32` in each tree.
//!
//! # The open run
//! Blocks of one sync should lie one behind the other. So the run that is being handed out, the *open run*,
//! is in neither tree, and only its start moves: most allocations touch no tree. It returns to the trees when
//! it has become too short for a request.
//!
//! The next open run is the first one after the cursor that is long enough (*next fit*), if it is near, else
//! the longest: a sync then moves upwards through the metaslab. When little space is left, or only short
//! runs, the tightest fit is taken instead, so that long runs stay long.
//!
//! # What is sure to find room
//! Blocks are taken from the start of a run, so a run of `n` sectors still has one of `least` until more than
//! `n - least` of it are taken. The sum of `n - least + 1` over all runs that long is what may be taken, in
//! pieces of any size, before a block of `least` sectors can lack a run ([`FreeSet::in_runs_of`]). The runs
//! are counted by powers of two as they come and go, so the sum is known without a walk.
//!
//! Invariants: runs neither overlap nor touch, the open run included; both trees hold the same runs, and
//! `lengths` counts them.

use std::collections::{BTreeMap, BTreeSet};

use ondisk::space_map::HISTOGRAM_BUCKETS;

/// The number of runs after the cursor that are examined.
const LOOK_AHEAD: usize = 32;
/// Below this share of free sectors (one in this many) the tightest fit is taken.
const NEARLY_FULL: u64 = 25;

/// Runs of about the same length.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Lengths {
    runs: u64,
    sectors: u64,
}

/// Free runs of a metaslab, in sectors from its start.
#[derive(Debug, Clone)]
pub struct FreeSet {
    /// Start to length.
    by_start: BTreeMap<u32, u32>,
    /// Length and start.
    by_length: BTreeSet<(u32, u32)>,
    /// The runs of both trees by the power of two of their length.
    lengths: [Lengths; HISTOGRAM_BUCKETS],
    /// Start and length of the open run; in neither tree.
    open: Option<(u32, u32)>,
    /// The end of the last allocation.
    cursor: u32,
    /// All free sectors, including the open run.
    total: u64,
    size: u32,
    /// Runs shorter than this are not searched by place, but found by length.
    short: u32,
}

impl FreeSet {
    /// A set without free sectors, for a metaslab of `size` sectors. When no run has `short` sectors any more
    /// the tightest fit is taken.
    pub fn new(size: u32, short: u32) -> Self {
        Self {
            by_start: BTreeMap::new(),
            by_length: BTreeSet::new(),
            lengths: [Lengths::default(); HISTOGRAM_BUCKETS],
            open: None,
            cursor: 0,
            total: 0,
            size,
            short,
        }
    }

    /// How many sectors are free.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// How many runs there are.
    pub fn runs(&self) -> usize {
        self.by_start.len() + usize::from(self.open.is_some())
    }

    /// The length of the longest run.
    pub fn longest(&self) -> u32 {
        let in_trees = self.by_length.last().map_or(0, |&(length, _)| length);
        in_trees.max(self.open.map_or(0, |(_, length)| length))
    }

    /// The sectors that may be taken, in pieces of any size, while a run of `least` sectors is still sure to
    /// be found. It is exact where `least` is a power of two, and less than that otherwise.
    pub(crate) fn in_runs_of(&self, least: u32) -> u64 {
        let least = least.max(1);
        let bucket = least.checked_next_power_of_two().map_or(HISTOGRAM_BUCKETS, bucket_of);
        let lost = u64::from(least) - 1;
        let in_trees = self.lengths.iter().skip(bucket).map(|these| these.sectors - these.runs * lost);
        let open = self.open.map_or(0, |(_, length)| u64::from(length).saturating_sub(lost));
        in_trees.sum::<u64>() + open
    }

    /// Takes `length` sectors in one run and returns their start.
    pub fn allocate(&mut self, length: u32) -> Option<u32> {
        if length == 0 {
            return None;
        }
        if self.open.is_none_or(|(_, left)| left < length) {
            self.close();
            let (start, found) = self.choose(length)?;
            self.take(start, found);
            self.open = Some((start, found));
        }
        let (start, left) = self.open?;
        self.open = (left > length).then(|| (start + length, left - length));
        self.cursor = start + length;
        self.total -= u64::from(length);
        Some(start)
    }

    /// A run of at least `length` sectors: its start and its length.
    fn choose(&self, length: u32) -> Option<(u32, u32)> {
        let &(longest, at) = self.by_length.last().filter(|(longest, _)| *longest >= length)?;
        let tight = longest < self.short || self.total * NEARLY_FULL < u64::from(self.size);
        if tight {
            return self.by_length.range((length, 0)..).next().map(|&(length, start)| (start, length));
        }
        let ahead = self.by_start.range(self.cursor..).take(LOOK_AHEAD);
        let next = ahead.map(|(&start, &found)| (start, found)).find(|&(_, found)| found >= length);
        next.or(Some((at, longest)))
    }

    /// Returns the open run to the trees.
    fn close(&mut self) {
        if let Some((start, length)) = self.open.take() {
            self.put(start, length);
        }
    }

    /// Removes a run from the trees.
    fn take(&mut self, start: u32, length: u32) {
        self.by_start.remove(&start);
        self.by_length.remove(&(length, start));
        if let Some(these) = self.lengths.get_mut(bucket_of(length)) {
            these.runs -= 1;
            these.sectors -= u64::from(length);
        }
    }

    /// Adds a run to the trees, merged with the runs that it touches.
    fn put(&mut self, mut start: u32, mut length: u32) {
        if let Some((&before, &its_length)) = self.by_start.range(..start).next_back()
            && before + its_length == start
        {
            self.take(before, its_length);
            (start, length) = (before, length + its_length);
        }
        if let Some(&after) = self.by_start.get(&(start + length)) {
            self.take(start + length, after);
            length += after;
        }
        self.by_start.insert(start, length);
        self.by_length.insert((length, start));
        if let Some(these) = self.lengths.get_mut(bucket_of(length)) {
            these.runs += 1;
            these.sectors += u64::from(length);
        }
    }

    /// Makes a run free. Returns false, and changes nothing, when some of it is free already or it reaches
    /// beyond the end.
    #[must_use]
    pub fn add(&mut self, start: u32, length: u32) -> bool {
        let fits = start.checked_add(length).is_some_and(|end| end <= self.size);
        if length == 0 || !fits || self.touches_any(start, length) {
            return false;
        }
        if self.open.is_some_and(|(open, left)| open + left == start || start + length == open) {
            self.close();
        }
        self.put(start, length);
        self.total += u64::from(length);
        true
    }

    /// Takes a given run. Returns false, and changes nothing, unless all of it is free.
    #[must_use]
    pub fn remove(&mut self, start: u32, length: u32) -> bool {
        self.close();
        let Some((&from, &found)) = self.by_start.range(..=start).next_back() else { return false };
        let Some(end) = start.checked_add(length).filter(|end| *end <= from + found) else { return false };
        if length == 0 {
            return false;
        }
        self.take(from, found);
        if from < start {
            self.put(from, start - from);
        }
        if end < from + found {
            self.put(end, from + found - end);
        }
        self.total -= u64::from(length);
        true
    }

    /// Whether any sector of a run is free.
    pub fn touches_any(&self, start: u32, length: u32) -> bool {
        let end = start.saturating_add(length);
        let hits = |(from, found): (u32, u32)| from < end && from + found > start;
        let last = self.by_start.range(..end).next_back().map(|(&from, &found)| (from, found));
        last.is_some_and(hits) || self.open.is_some_and(hits)
    }

    /// All runs, ascending: start and length.
    pub fn iter(&mut self) -> impl Iterator<Item = (u32, u32)> + '_ {
        self.close();
        self.by_start.iter().map(|(&start, &length)| (start, length))
    }

    /// How many runs there are of each power of two, in sectors.
    pub fn histogram(&self) -> [u64; HISTOGRAM_BUCKETS] {
        let mut histogram = self.lengths.map(|these| these.runs);
        if let Some((_, length)) = self.open {
            count(&mut histogram, length.into());
        }
        histogram
    }
}

/// The power of two of a run's length. A `u32` has no more than there are buckets.
fn bucket_of(sectors: u32) -> usize {
    sectors.checked_ilog2().unwrap_or(0) as usize
}

/// Counts a run of `sectors` in a histogram of powers of two; a run longer than the last bucket counts as
/// several of that bucket.
pub fn count(histogram: &mut [u64; HISTOGRAM_BUCKETS], sectors: u64) {
    let Some(power) = sectors.checked_ilog2() else { return };
    let last = HISTOGRAM_BUCKETS as u32 - 1;
    let (bucket, times) = (power.min(last), 1u64 << power.saturating_sub(last));
    if let Some(counted) = histogram.get_mut(bucket as usize) {
        *counted = counted.saturating_add(times);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SIZE: u32 = 200;

    fn free(size: u32) -> FreeSet {
        let mut set = FreeSet::new(size, 8);
        assert!(set.add(0, size));
        set
    }

    #[test]
    fn blocks_of_one_sync_lie_one_behind_the_other() {
        let mut set = free(SIZE);
        let starts: Vec<u32> = (1..=9).filter_map(|length| set.allocate(length)).collect();
        assert_eq!(starts, [0, 1, 3, 6, 10, 15, 21, 28, 36]);
    }

    #[test]
    fn what_is_freed_behind_the_cursor_waits_for_its_turn() {
        let mut set = free(SIZE);
        set.allocate(50);
        assert!(set.add(0, 20));
        assert_eq!(set.allocate(10), Some(50));
        assert_eq!(set.allocate(140), Some(60));
        assert_eq!(set.allocate(10), Some(0));
    }

    #[test]
    fn a_nearly_full_set_takes_the_tightest_fit() {
        let mut set = FreeSet::new(10_000, 8);
        assert!(set.add(100, 20) && set.add(200, 5) && set.add(300, 7));
        assert_eq!(set.allocate(4), Some(200));
        assert_eq!(set.allocate(6), Some(300));
        assert_eq!(set.allocate(21), None);
        assert_eq!(set.total(), 32 - 10);
    }

    #[test]
    fn long_runs_fill_the_last_bucket() {
        let mut histogram = [0; HISTOGRAM_BUCKETS];
        count(&mut histogram, 1 << 33);
        count(&mut histogram, 5);
        assert_eq!((histogram[31], histogram[2]), (4, 1));
    }

    proptest! {
        #[test]
        fn agrees_with_single_sectors(steps in proptest::collection::vec((0u8..4, 0u32..SIZE, 1u32..30), 0..150)) {
            let mut set = FreeSet::new(SIZE, 8);
            let mut model = [false; SIZE as usize];
            for (what, start, length) in steps {
                let range = start as usize..(start + length).min(SIZE) as usize;
                let inside = start + length <= SIZE;
                match what {
                    0 => {
                        let possible = inside && !model[range.clone()].contains(&true);
                        prop_assert_eq!(set.add(start, length), possible);
                        if possible { model[range].fill(true); }
                    }
                    1 => {
                        let possible = inside && !model[range.clone()].contains(&false);
                        prop_assert_eq!(set.remove(start, length), possible);
                        if possible { model[range].fill(false); }
                    }
                    _ => {
                        let longest = model.split(|free| !free).map(<[bool]>::len).max().unwrap_or(0);
                        let found = set.allocate(length);
                        match found {
                            Some(at) => {
                                let range = at as usize..(at + length) as usize;
                                prop_assert!(!model[range.clone()].contains(&false));
                                model[range].fill(false);
                            }
                            None => prop_assert!((longest as u32) < length),
                        }
                    }
                }
                prop_assert_eq!(set.total(), model.iter().filter(|free| **free).count() as u64);
                let listed: Vec<bool> = {
                    let mut listed = vec![false; SIZE as usize];
                    for (start, length) in set.clone().iter() {
                        listed[start as usize..(start + length) as usize].fill(true);
                    }
                    listed
                };
                prop_assert_eq!(&listed[..], &model[..]);
                for least in 1..=17u32 {
                    let runs = model.split(|free| !free).map(|run| run.len() as u64);
                    let in_runs = |from: u32| {
                        let long = runs.clone().filter(|run| *run >= u64::from(from));
                        long.map(|run| run + 1 - u64::from(least)).sum::<u64>()
                    };
                    let found = set.in_runs_of(least);
                    prop_assert!(found <= in_runs(least));
                    prop_assert!(found >= in_runs(least.next_power_of_two()));
                }
                prop_assert_eq!(set.in_runs_of(1), set.total());
                let counted: u64 = set.histogram().iter().sum();
                prop_assert_eq!(counted, set.runs() as u64);
                prop_assert_eq!(set.by_start.len(), set.by_length.len());
            }
        }

        #[test]
        fn a_run_is_found_as_long_as_it_is_sure(
            taken in proptest::collection::vec((0u32..2000, 1u32..40), 0..60),
            least in 1u32..24,
            pieces in proptest::collection::vec(1u32..40, 1..400),
        ) {
            let mut set = free(2000);
            for (start, length) in taken {
                let _ = set.remove(start, length);
            }
            let mut left = set.in_runs_of(least);
            for piece in pieces {
                if left > 0 {
                    prop_assert!(set.clone().allocate(least).is_some());
                }
                if set.allocate(piece).is_some() {
                    left = left.saturating_sub(u64::from(piece));
                }
            }
        }
    }
}
