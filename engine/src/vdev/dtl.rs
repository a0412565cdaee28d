//! Dirty time logs: the transaction groups that a device missed.
//!
//! A leaf that was unavailable while the pool was written has an object in the MOS, named by `DTL` in the vdev's config. It is
//! a space map whose "offsets" are txgs and whose "sizes" are numbers of txgs. Resilvering empties it.
//!
//! Source: OpenZFS 2.3 `vdev.c` (the comment on dirty time logs, `vdev_dtl_load`).

/// A set of transaction groups, as sorted ranges that do not touch.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TxgRanges {
    /// Half-open: first txg, and the first one after the range.
    ranges: Vec<(u64, u64)>,
}

impl TxgRanges {
    /// The union of half-open ranges in any order; empty ones are left out.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_half_open_and_merged() {
        let ranges = TxgRanges::new([(10, 12), (1, 3), (3, 4), (11, 15), (20, 20)]);
        assert_eq!(ranges.ranges(), [(1, 4), (10, 15)]);
        let inside: Vec<u64> = (0..25).filter(|&txg| ranges.contains(txg)).collect();
        assert_eq!(inside, [1, 2, 3, 10, 11, 12, 13, 14]);
        assert!(TxgRanges::default().is_empty());
    }
}
