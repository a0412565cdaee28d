//! [`RangeSet`]: a set of numbers kept as disjoint ranges (OpenZFS: range tree).

use std::collections::BTreeMap;

/// A set of numbers as half-open ranges that neither overlap nor touch.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RangeSet {
    /// From start to end.
    ranges: BTreeMap<u64, u64>,
    total: u64,
}

impl RangeSet {
    /// Adds `[start, end)` and returns how much of it was in the set before.
    pub fn add(&mut self, start: u64, end: u64) -> u64 {
        if start >= end {
            return 0;
        }
        let (mut low, mut high, mut known) = (start, end, 0);
        // Ranges that touch are merged too.
        while let Some((from, to)) = self.last_before(high.saturating_add(1)).filter(|&(_, to)| to >= low) {
            known += to.min(end).saturating_sub(from.max(start));
            (low, high) = (low.min(from), high.max(to));
            self.ranges.remove(&from);
        }
        self.ranges.insert(low, high);
        self.total += end - start - known;
        known
    }

    /// Removes `[start, end)` and returns how much of it was in the set.
    pub fn remove(&mut self, start: u64, end: u64) -> u64 {
        if start >= end {
            return 0;
        }
        let mut removed = 0;
        while let Some((from, to)) = self.last_before(end).filter(|&(_, to)| to > start) {
            self.ranges.remove(&from);
            if to > end {
                self.ranges.insert(end, to);
            }
            removed += to.min(end) - from.max(start);
            if from < start {
                self.ranges.insert(from, start);
                break;
            }
        }
        self.total -= removed;
        removed
    }

    /// The range that starts last before `limit`.
    fn last_before(&self, limit: u64) -> Option<(u64, u64)> {
        self.ranges.range(..limit).next_back().map(|(&from, &to)| (from, to))
    }

    /// Whether all of `[start, end)` is in the set.
    pub fn contains(&self, start: u64, end: u64) -> bool {
        start >= end || self.last_before(start.saturating_add(1)).is_some_and(|(_, to)| to >= end)
    }

    /// The parts of `[start, end)` that are in the set, ascending.
    pub fn within(&self, start: u64, end: u64) -> impl Iterator<Item = (u64, u64)> + '_ {
        let first = self.last_before(start).map_or(start, |(from, _)| from);
        let cut = move |(&from, &to): (&u64, &u64)| (from.max(start), to.min(end));
        self.ranges.range(first..end.max(first)).map(cut).filter(|(from, to)| from < to)
    }

    /// How many numbers are in the set.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// How many ranges there are.
    pub fn runs(&self) -> usize {
        self.ranges.len()
    }

    /// Whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// The ranges, ascending.
    pub fn iter(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.ranges.iter().map(|(&from, &to)| (from, to))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[test]
    fn taking_out_nothing_splits_nothing() {
        let mut ranges = RangeSet::default();
        ranges.add(0, 10);
        assert_eq!(ranges.remove(5, 5), 0);
        assert_eq!(ranges.iter().collect::<Vec<_>>(), [(0, 10)]);
    }

    proptest! {
        #[test]
        fn agrees_with_a_set_of_single_numbers(steps in proptest::collection::vec((any::<bool>(), 0u64..60, 0u64..20), 0..60)) {
            let (mut ranges, mut model) = (RangeSet::default(), BTreeSet::new());
            for (add, start, length) in steps {
                let end = start + length;
                let before: u64 = (start..end).filter(|n| model.contains(n)).count() as u64;
                if add {
                    prop_assert_eq!(ranges.add(start, end), before);
                    model.extend(start..end);
                } else {
                    prop_assert_eq!(ranges.remove(start, end), before);
                    (start..end).for_each(|n| { model.remove(&n); });
                }
                prop_assert_eq!(ranges.total(), model.len() as u64);
                let listed: Vec<u64> = ranges.iter().flat_map(|(from, to)| from..to).collect();
                prop_assert_eq!(&listed, &model.iter().copied().collect::<Vec<_>>());
                prop_assert!(ranges.iter().zip(ranges.iter().skip(1)).all(|(a, b)| a.1 < b.0));
                let within: Vec<u64> = ranges.within(start, end).flat_map(|(from, to)| from..to).collect();
                prop_assert_eq!(within, model.range(start..end).copied().collect::<Vec<_>>());
                prop_assert_eq!(ranges.contains(start, end), (start..end).all(|n| model.contains(&n)));
            }
        }
    }
}
