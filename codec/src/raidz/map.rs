//! The map of one block: which piece of which child holds which piece of the block.
//!
//! A map is a rectangle of columns, `width` of them to a row. The first `nparity` columns of a row are P, Q
//! and R, the rest are data from left to right. Plain raidz has one row whose columns are long. An expanded
//! raidz has one row a stripe, with columns of one sector. dRAID has one or two rows. A column of size 0 is a
//! phantom: nothing is stored, but it counts as zeros in the parity's arithmetic, so it must stay in its
//! place. The same holds for the missing last sector of the shorter columns.
//!
//! # Silent damage
//! When every column was read without an error and the block's checksum is still wrong, some child returned
//! wrong bytes. [`Map::hypotheses`] lists the sets of children that could be to blame, smallest sets first;
//! the caller rebuilds under each until the checksum is right. In an expanded vdev a sector may have been
//! damaged before it was moved, so a "child" there is any child of any width that the vdev has had. Source of
//! the rule: OpenZFS 2.3 `vdev_raidz.c` (`vdev_raidz_combrec`).

use std::ops::RangeInclusive;

use ondisk::label::{BOOT_REGION, FRONT_SIZE};

/// One piece of a block on one child.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Column {
    /// Index of the child in its parent.
    pub child: usize,
    /// Offset on the child in bytes, counted from the end of its front labels and boot area.
    pub offset: u64,
    /// Bytes stored; 0 for a phantom column.
    pub size: u64,
    /// For a data column, where its bytes belong in the block. 0 for parity.
    pub block_offset: u64,
    /// The sector waits in the scratch area of an interrupted expansion; see
    /// [`Column::label_relative_offset`].
    pub scratch: bool,
}

impl Column {
    /// Offset in bytes from the very beginning of the device, labels included. `None` when it does not fit in
    /// 64 bits.
    pub fn label_relative_offset(&self) -> Option<u64> {
        let front = if self.scratch { BOOT_REGION.start } else { FRONT_SIZE };
        self.offset.checked_add(front)
    }
}

/// Where one block lies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Map {
    pub(crate) nparity: usize,
    pub(crate) width: usize,
    pub(crate) columns: Vec<Column>,
    pub(crate) data_bytes: u64,
    pub(crate) skip_sectors: u64,
    pub(crate) ashift: u32,
    /// Physical width, and the smallest width that sectors of this vdev were ever laid out with.
    pub(crate) widths: (usize, usize),
}

impl Map {
    /// Parity columns at the start of each row.
    pub fn nparity(&self) -> usize {
        self.nparity
    }

    /// Columns in each row, parity included.
    pub fn width(&self) -> usize {
        self.width
    }

    /// All columns, row after row.
    pub fn columns(&self) -> &[Column] {
        &self.columns
    }

    /// The rows, each `[P, Q, R, data…]`.
    pub fn rows(&self) -> impl ExactSizeIterator<Item = &[Column]> {
        self.columns.chunks_exact(self.width)
    }

    /// The data columns in no particular order of the block, phantoms left out.
    pub fn data_columns(&self) -> impl Iterator<Item = &Column> {
        self.rows().flat_map(|row| row.iter().skip(self.nparity)).filter(|column| column.size > 0)
    }

    /// Bytes that the data columns hold together: the block's physical size rounded up to whole sectors.
    pub fn data_bytes(&self) -> u64 {
        self.data_bytes
    }

    /// Sectors left unused after the block so that no gap too small to be allocated can arise.
    pub fn skip_sectors(&self) -> u64 {
        self.skip_sectors
    }

    /// The sets of columns to distrust, one after the other, when `known_bad` (indices into [`Map::columns`]:
    /// unreadable or stale) is not the whole truth.
    ///
    /// Each set contains `known_bad`, blames one to `nparity` children more, leaves every row recoverable and
    /// changes what the block's data will be. `known_bad` alone is not repeated.
    pub fn hypotheses(&self, known_bad: &[usize]) -> Hypotheses<'_> {
        Hypotheses::new(self, known_bad, 1..=self.nparity)
    }

    /// Those of [`Map::hypotheses`] that blame so many children.
    pub fn hypotheses_blaming(&self, known_bad: &[usize], children: usize) -> Hypotheses<'_> {
        Hypotheses::new(self, known_bad, children..=children)
    }

    /// The columns that child `child` of a `width` wide layout of this vdev would have stored.
    fn columns_of(&self, width: usize, child: usize) -> Vec<usize> {
        let physical_width = self.widths.0 as u64;
        let stored_there = |column: &Column| {
            let sector = physical_width * (column.offset >> self.ashift) + column.child as u64;
            column.size > 0 && sector % width as u64 == child as u64
        };
        (0..self.columns.len()).filter(|&index| stored_there(&self.columns[index])).collect()
    }
}

/// Iterator of [`Map::hypotheses`]: each item is a sorted list of indices into [`Map::columns`] to treat as
/// lost.
#[derive(Debug)]
pub struct Hypotheses<'a> {
    map: &'a Map,
    known_bad: Vec<usize>,
    /// For each child to blame, the columns it would spoil beyond the known ones.
    suspects: Vec<Vec<usize>>,
    /// The suspects blamed at present, strictly ascending; empty before the first step.
    blamed: Vec<usize>,
    /// How many are blamed, at least and at most.
    counts: RangeInclusive<usize>,
}

impl<'a> Hypotheses<'a> {
    fn new(map: &'a Map, known_bad: &[usize], counts: RangeInclusive<usize>) -> Self {
        let mut known_bad = known_bad.to_vec();
        known_bad.sort_unstable();
        known_bad.dedup();
        let mut suspects: Vec<Vec<usize>> = Vec::new();
        let (physical, original) = map.widths;
        for width in (original..=physical).rev() {
            for child in 0..width {
                let mut columns = map.columns_of(width, child);
                columns.retain(|column| known_bad.binary_search(column).is_err());
                if !columns.is_empty() && !suspects.contains(&columns) {
                    suspects.push(columns);
                }
            }
        }
        Self { map, known_bad, suspects, blamed: Vec::new(), counts }
    }

    /// Steps `blamed` to the next combination: all of one size, then of the next. False when none is left.
    fn advance(&mut self) -> bool {
        let count = self.suspects.len();
        let size = self.blamed.len();
        for position in 0..size {
            let limit = self.blamed.get(position + 1).copied().unwrap_or(count);
            if self.blamed[position] + 1 < limit {
                self.blamed[position] += 1;
                for (lower, suspect) in self.blamed[..position].iter_mut().enumerate() {
                    *suspect = lower;
                }
                return true;
            }
        }
        let larger = (size + 1).max(*self.counts.start());
        if larger > *self.counts.end() || larger > count {
            return false;
        }
        self.blamed = (0..larger).collect();
        true
    }

    fn lost(&self) -> Vec<usize> {
        let mut lost = self.known_bad.clone();
        for &suspect in &self.blamed {
            lost.extend_from_slice(&self.suspects[suspect]);
        }
        lost.sort_unstable();
        lost.dedup();
        lost
    }

    fn recoverable(&self, lost: &[usize]) -> bool {
        lost.chunk_by(|a, b| a / self.map.width == b / self.map.width)
            .all(|row| row.len() <= self.map.nparity)
    }

    /// Without a data column in it, a set leaves the block as it was read, which is known to be wrong.
    fn changes_data(&self, lost: &[usize]) -> bool {
        lost.iter().any(|column| column % self.map.width >= self.map.nparity)
    }
}

impl Iterator for Hypotheses<'_> {
    type Item = Vec<usize>;

    fn next(&mut self) -> Option<Vec<usize>> {
        while self.advance() {
            let lost = self.lost();
            if self.recoverable(&lost) && self.changes_data(&lost) {
                return Some(lost);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use crate::raidz::Raidz;

    #[test]
    fn one_child_is_blamed_before_two() {
        let map = Raidz::new(12, 2, 5).unwrap().map(0, 3 * 4096, 1).unwrap();
        let sets: Vec<_> = map.hypotheses(&[]).collect();
        // Three of the columns are data; both parity columns together change nothing.
        assert_eq!(sets.len(), 3 + 9);
        assert!(sets[..3].iter().all(|set| set.len() == 1));
        assert!(sets[3..].iter().all(|set| set.len() == 2));
        let unique: std::collections::HashSet<_> = sets.iter().collect();
        assert_eq!(unique.len(), sets.len());
    }

    #[test]
    fn the_hypotheses_of_each_number_of_children_together_are_all() {
        let map = Raidz::new(12, 3, 7).unwrap().map(0, 4 * 4096, 1).unwrap();
        let by_number = (0..=4).flat_map(|children| map.hypotheses_blaming(&[5], children));
        assert_eq!(by_number.collect::<Vec<_>>(), map.hypotheses(&[5]).collect::<Vec<_>>());
    }

    #[test]
    fn known_bad_columns_leave_less_parity_for_guessing() {
        let map = Raidz::new(12, 2, 5).unwrap().map(0, 3 * 4096, 1).unwrap();
        let sets: Vec<_> = map.hypotheses(&[4]).collect();
        assert_eq!(sets, vec![vec![0, 4], vec![1, 4], vec![2, 4], vec![3, 4]]);
        assert_eq!(map.hypotheses(&[3, 4]).next(), None);
    }

    #[test]
    fn children_that_hold_nothing_are_never_blamed() {
        let map = Raidz::new(9, 1, 200).unwrap().map(0, 512, 1).unwrap();
        assert_eq!(map.hypotheses(&[]).count(), 1);
    }

    #[test]
    fn damage_from_before_an_expansion_is_traced_to_the_child_of_that_time() {
        let map = Raidz::expanded(12, 1, 4, &[10], None).unwrap().map(0, 6 * 4096, 1).unwrap();
        // Three rows over what was then three children; sector 3 * row + 1 lay on child 1, whatever child it
        // is on now.
        let once_on_child_1: Vec<usize> = (0..9).filter(|sector| sector % 3 == 1).collect();
        assert!(map.hypotheses(&[]).any(|set| set == once_on_child_1));
        let now_on_child_1: Vec<usize> = (0..9).filter(|sector| sector % 4 == 1).collect();
        assert!(map.hypotheses(&[]).any(|set| set == now_on_child_1));
    }
}
