//! Blocks of an expanded raidz vdev: laid out for fewer children than there are.
//!
//! Widening a vdev from `w` to `w + 1` children does not rewrite blocks. It moves sectors: the vdev's address
//! space keeps its numbering, and sector `n` moves from child `n % w`, row `n / w` to child `n % (w + 1)`,
//! row `n / (w + 1)`. A block keeps the division into rows and columns that it was born with (its logical
//! width), but the sectors of one logical column are now spread over all children. So the map has one row a
//! stripe, and each column is one sector. The last row keeps its full width with phantom columns, because the
//! factors of Q and R depend on the number of columns.
//!
//! # While the expansion runs
//! The uberblock records how far sectors have been moved ([`Reflow::synced_offset`]). A row that ends beyond
//! it is read at its old place, the others at their new place. The very first sectors cannot be moved in
//! place, for a crash would leave neither copy; they go through the boot area of each child first. When a
//! crash left that scratch copy as the valid one ([`Reflow::scratch_valid`]), moved sectors are read from
//! there: at the new place, minus the size of the boot area.
//!
//! Source of the facts: OpenZFS 2.3 `vdev_raidz.c` (`vdev_raidz_map_alloc_expanded`), `uberblock_impl.h`
//! (`ub_raidz_reflow_info`).

use super::geometry::{Raidz, Shape};
use super::map::{Column, Map};

/// How far a running expansion has come, as stored in the uberblock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reflow {
    /// Logical offset in the vdev, in bytes, up to which all sectors are at their new place.
    pub synced_offset: u64,
    /// The moved sectors are still in the boot areas.
    pub scratch_valid: bool,
}

/// State in `ub_raidz_reflow_info` that says that the scratch area holds the valid copy.
const SCRATCH_VALID: u64 = 1;

impl Reflow {
    /// Reads the uberblock's `ub_raidz_reflow_info`: bits 0..55 are the offset in 512-byte units, bits 55..64
    /// the state of the scratch area.
    pub fn from_uberblock(info: u64) -> Self {
        Self { synced_offset: (info & ((1 << 55) - 1)) << 9, scratch_valid: info >> 55 == SCRATCH_VALID }
    }
}

impl Raidz {
    pub(super) fn expanded_map(&self, offset: u64, shape: &Shape) -> Map {
        let logical_width = shape.width as u64;
        let rows = shape.total_sectors.div_ceil(logical_width);
        let width = shape.total_sectors.min(logical_width);
        let nparity = self.nparity as u64;
        let mut columns = Vec::with_capacity((rows * width) as usize);
        for row in 0..rows {
            let first_sector = (offset >> self.ashift) + row * logical_width;
            let place = self.place_of_row(first_sector, width);
            let row_start = columns.len();
            for index in 0..width {
                let sector = first_sector + index;
                let beyond_end = row == rows - 1 && shape.big_columns != 0 && index >= shape.big_columns;
                let block_sector = match index.checked_sub(nparity) {
                    Some(data_column) if !beyond_end => shape.first_sector_of(data_column) + row,
                    _ => 0,
                };
                columns.push(Column {
                    child: (sector % place.width) as usize,
                    offset: (sector / place.width) << self.ashift,
                    size: if beyond_end { 0 } else { 1 << self.ashift },
                    block_offset: block_sector << self.ashift,
                    scratch: place.scratch,
                });
            }
            self.swap_single_parity(offset, &mut columns[row_start..]);
        }
        Map {
            nparity: self.nparity,
            width: width as usize,
            columns,
            data_bytes: shape.data_sectors << self.ashift,
            skip_sectors: shape.skip_sectors(self.nparity),
            ashift: self.ashift,
            widths: (self.physical_width, self.original_width),
        }
    }

    fn place_of_row(&self, first_sector: u64, width: u64) -> Place {
        let new_width = self.physical_width as u64;
        match self.reflow {
            None => Place { width: new_width, scratch: false },
            Some(reflow) if first_sector + width > reflow.synced_offset >> self.ashift => {
                Place { width: new_width - 1, scratch: false }
            }
            Some(reflow) => Place { width: new_width, scratch: reflow.scratch_valid },
        }
    }
}

/// Over how many children a row is spread at this moment.
struct Place {
    width: u64,
    scratch: bool,
}

impl Shape {
    /// Where in the block, in sectors, data column `data_column` begins.
    fn first_sector_of(&self, data_column: u64) -> u64 {
        data_column * self.full_rows + data_column.min(self.remainder)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;

    const ASHIFT: u32 = 12;

    fn sectors(map: &Map) -> Vec<(usize, u64)> {
        map.columns()
            .iter()
            .filter(|column| column.size > 0)
            .map(|column| (column.child, column.offset >> ASHIFT))
            .collect()
    }

    #[test]
    fn a_row_is_read_at_its_old_place_until_all_of_it_has_moved() {
        let reflow = |synced_sectors: u64| {
            Some(Reflow { synced_offset: synced_sectors << ASHIFT, scratch_valid: false })
        };
        let children = |synced| -> Vec<usize> {
            let raidz = Raidz::expanded(ASHIFT, 1, 4, &[], reflow(synced)).unwrap();
            let map = raidz.map(3 << ASHIFT, 4 << ASHIFT, 1).unwrap();
            map.columns().iter().map(|column| column.child).collect()
        };
        // Two rows of three sectors: 3, 4, 5 and 6, 7, 8.
        assert_eq!(children(5), [0, 1, 2, 0, 1, 2]);
        assert_eq!(children(6), [3, 0, 1, 0, 1, 2]);
        assert_eq!(children(9), [3, 0, 1, 2, 3, 0]);
    }

    #[test]
    fn moved_rows_are_read_from_the_scratch_area_when_it_is_the_valid_copy() {
        let reflow = Some(Reflow { synced_offset: 1 << 20, scratch_valid: true });
        let map = Raidz::expanded(ASHIFT, 1, 4, &[], reflow).unwrap().map(0, 4096, 1).unwrap();
        assert!(map.columns().iter().all(|column| column.scratch));
        assert_eq!(map.columns()[0].label_relative_offset(), Some(512 << 10));
    }

    #[test]
    fn uberblock_word_is_offset_and_state() {
        let reflow = Reflow::from_uberblock((1 << 55) | 16);
        assert_eq!(reflow, Reflow { synced_offset: 8192, scratch_valid: true });
        assert!(!Reflow::from_uberblock((2 << 55) | 16).scratch_valid);
    }

    proptest! {
        #[test]
        fn an_expanded_block_takes_the_same_run_of_sectors(
            nparity in 1usize..=3, data in 1usize..=8, grown in 1usize..=3, first in 0u64..10_000, count in 1u64..200, synced in proptest::option::of(0u64..20_000),
        ) {
            let old_width = nparity + data;
            let reflow = synced.map(|sectors| Reflow { synced_offset: sectors << ASHIFT, scratch_valid: false });
            let finished = grown - usize::from(reflow.is_some());
            let txgs: Vec<u64> = (0..finished as u64).map(|n| 10 + n).collect();
            let raidz = Raidz::expanded(ASHIFT, nparity, old_width + grown, &txgs, reflow).unwrap();
            let plain = Raidz::new(ASHIFT, nparity, old_width).unwrap();
            let map = raidz.map(first << ASHIFT, count << ASHIFT, 1).unwrap();
            prop_assert_eq!(raidz.asize(count << ASHIFT, 1), plain.asize(count << ASHIFT, 1));

            let used = sectors(&map);
            let unique: HashSet<_> = used.iter().copied().collect();
            prop_assert_eq!(used.len() as u64 + map.skip_sectors(), plain.asize(count << ASHIFT, 1).unwrap() >> ASHIFT);
            if reflow.is_none() {
                prop_assert_eq!(unique.len(), used.len());
                let width = (old_width + grown) as u64;
                let run: HashSet<_> = (first..first + used.len() as u64).map(|sector| ((sector % width) as usize, sector / width)).collect();
                prop_assert_eq!(&unique, &run);
            }
            // Each sector of the block is in exactly one data column, and rows pair it with the same parity
            // as before the expansion.
            let in_plain: HashSet<(u64, u64)> = plain.map(first << ASHIFT, count << ASHIFT, 1).unwrap().data_columns()
                .flat_map(|column| (0..column.size >> ASHIFT).map(move |row| (row, (column.block_offset >> ASHIFT) + row))).collect();
            let in_expanded: HashSet<(u64, u64)> = map.rows().enumerate()
                .flat_map(|(row, columns)| columns[nparity..].iter().filter(|column| column.size > 0)
                    .map(move |column| (row as u64, column.block_offset >> ASHIFT))).collect();
            prop_assert_eq!(in_plain, in_expanded);
        }
    }
}
