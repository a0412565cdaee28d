//! The shape of a raidz vdev: how large a block becomes, and on which children its sectors lie.
//!
//! The vdev's address space is numbered in sectors that run across the children: sector `n` lies on child
//! `n % width`, in row `n / width`. A block takes a run of consecutive sectors, from any child on, and wraps.
//! The run is read as columns, one to each child it touches: the first `nparity` columns are parity, and the
//! data fills the others column by column (not row by row), so that each child holds one contiguous piece of
//! the block.
//!
//! With `s` data sectors over `d = width - nparity` data columns, `q = s / d` and `r = s % d`: every column
//! has `q` sectors and, when `r > 0`, the first `nparity + r` columns ("big") have one more. The allocated
//! size is rounded up to a multiple of `nparity + 1` sectors, so that a freed block never leaves a gap that
//! no block could fill. These skip sectors hold nothing.
//!
//! Single parity has one oddity, which has become format: where bit 20 of the block's offset is set, its
//! first two columns change places, so the parity moves to the second child.
//!
//! Source of the facts: OpenZFS 2.3 `vdev_raidz.c` (`vdev_raidz_map_alloc`, `vdev_raidz_asize`,
//! `vdev_raidz_init`).

use super::expansion::Reflow;
use super::map::{Column, Map};
use super::{Error, MAX_BLOCK_BYTES, MAX_CHILDREN, MAX_PARITY};

/// The layout of one raidz vdev over its whole life.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Raidz {
    pub(super) ashift: u32,
    pub(super) nparity: usize,
    pub(super) physical_width: usize,
    pub(super) original_width: usize,
    /// Ascending: blocks born at or after the txg are laid out with the width.
    pub(super) widths_by_txg: Vec<(u64, usize)>,
    pub(super) reflow: Option<Reflow>,
}

impl Raidz {
    /// A vdev of `children` children that was never expanded, with sectors of `1 << ashift` bytes.
    pub fn new(ashift: u32, nparity: usize, children: usize) -> Result<Self, Error> {
        Self::expanded(ashift, nparity, children, &[], None)
    }

    /// A vdev that now has `children` children and was widened by one child in each of `expand_txgs` (the
    /// label's `raidz_expand_txgs`, ascending). `reflow` is the state of one more expansion that is still
    /// running (the label has `raidz_expanding`); its txg is not yet in the list.
    pub fn expanded(
        ashift: u32,
        nparity: usize,
        children: usize,
        expand_txgs: &[u64],
        reflow: Option<Reflow>,
    ) -> Result<Self, Error> {
        if !(9..=16).contains(&ashift) {
            return Err(Error::Layout("sector size is not between 512 bytes and 64 KiB"));
        }
        if !(1..=MAX_PARITY).contains(&nparity) {
            return Err(Error::Layout("parity is not 1, 2 or 3"));
        }
        if children > MAX_CHILDREN {
            return Err(Error::Layout("more than 255 children"));
        }
        let settled_width = children.saturating_sub(usize::from(reflow.is_some()));
        let original_width = settled_width.saturating_sub(expand_txgs.len());
        if original_width <= nparity {
            return Err(Error::Layout("no child is left for data"));
        }
        if !expand_txgs.is_sorted_by(|a, b| a < b) {
            return Err(Error::Layout("expansion txgs are not ascending"));
        }
        let widths_by_txg = expand_txgs.iter().copied().zip(original_width + 1..).collect();
        Ok(Self { ashift, nparity, physical_width: children, original_width, widths_by_txg, reflow })
    }

    /// Parity columns of every block.
    pub fn nparity(&self) -> usize {
        self.nparity
    }

    /// Children that the vdev has now.
    pub fn children(&self) -> usize {
        self.physical_width
    }

    /// Children over which a block born in `txg` is laid out.
    pub fn logical_width(&self, txg: u64) -> usize {
        let expansions = self.widths_by_txg.partition_point(|&(since, _)| since <= txg);
        match expansions.checked_sub(1).and_then(|last| self.widths_by_txg.get(last)) {
            Some(&(_, width)) => width,
            None => self.original_width,
        }
    }

    /// Allocated size of a block of `psize` bytes born in `txg`, parity and skip sectors included.
    pub fn asize(&self, psize: u64, txg: u64) -> Result<u64, Error> {
        let shape = Shape::new(self, 0, psize, self.logical_width(txg))?;
        Ok((shape.total_sectors + shape.skip_sectors(self.nparity)) << self.ashift)
    }

    /// Where the block of `psize` bytes at `offset` (of its DVA), born in `txg`, lies. A `psize` that is no
    /// multiple of the sector size is rounded up.
    pub fn map(&self, offset: u64, psize: u64, txg: u64) -> Result<Map, Error> {
        let width = self.logical_width(txg);
        let shape = Shape::new(self, offset, psize, width)?;
        if width == self.physical_width {
            Ok(self.plain_map(offset, &shape))
        } else {
            Ok(self.expanded_map(offset, &shape))
        }
    }

    fn plain_map(&self, offset: u64, shape: &Shape) -> Map {
        let width = shape.width as u64;
        let first_sector = offset >> self.ashift;
        let touched = if shape.full_rows == 0 { shape.big_columns } else { width };
        let mut block_offset = 0;
        let mut columns: Vec<Column> = (0..touched)
            .map(|index| {
                let sector = first_sector + index;
                let sectors = shape.full_rows + u64::from(index < shape.big_columns);
                let mut column = Column {
                    child: (sector % width) as usize,
                    offset: (sector / width) << self.ashift,
                    size: sectors << self.ashift,
                    block_offset: 0,
                    scratch: false,
                };
                if index >= self.nparity as u64 {
                    column.block_offset = block_offset;
                    block_offset += column.size;
                }
                column
            })
            .collect();
        self.swap_single_parity(offset, &mut columns);
        Map {
            nparity: self.nparity,
            width: columns.len(),
            columns,
            data_bytes: shape.data_sectors << self.ashift,
            skip_sectors: shape.skip_sectors(self.nparity),
            ashift: self.ashift,
            widths: (self.physical_width, self.original_width),
        }
    }

    /// Single parity: the first two columns of a row change places in every other MiB of the vdev.
    pub(super) fn swap_single_parity(&self, block_offset: u64, row: &mut [Column]) {
        if self.nparity != 1 || block_offset & (1 << 20) == 0 {
            return;
        }
        if let [first, second, ..] = row {
            std::mem::swap(&mut first.child, &mut second.child);
            std::mem::swap(&mut first.offset, &mut second.offset);
            std::mem::swap(&mut first.scratch, &mut second.scratch);
        }
    }
}

/// The division of a block into rows and columns, before it is placed.
#[derive(Debug)]
pub(super) struct Shape {
    pub width: usize,
    pub data_sectors: u64,
    /// Sectors in each of the smaller columns.
    pub full_rows: u64,
    /// Data columns that have one sector more; 0 when all are equal.
    pub remainder: u64,
    /// All columns that have one sector more, parity included; 0 when all are equal.
    pub big_columns: u64,
    pub total_sectors: u64,
}

impl Shape {
    fn new(raidz: &Raidz, offset: u64, psize: u64, width: usize) -> Result<Self, Error> {
        let out_of_range = Error::Range { offset, size: psize };
        if psize == 0
            || psize > MAX_BLOCK_BYTES
            || offset >= 1 << 62
            || offset & ((1 << raidz.ashift) - 1) != 0
        {
            return Err(out_of_range);
        }
        let nparity = raidz.nparity as u64;
        let data_columns = width as u64 - nparity;
        let data_sectors = psize.div_ceil(1 << raidz.ashift);
        let remainder = data_sectors % data_columns;
        Ok(Self {
            width,
            data_sectors,
            full_rows: data_sectors / data_columns,
            remainder,
            big_columns: if remainder == 0 { 0 } else { remainder + nparity },
            total_sectors: data_sectors + nparity * data_sectors.div_ceil(data_columns),
        })
    }

    pub fn skip_sectors(&self, nparity: usize) -> u64 {
        let unit = nparity as u64 + 1;
        self.total_sectors.next_multiple_of(unit) - self.total_sectors
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;

    /// Every sector `(child, row)` of the map, in `sector` units.
    fn sectors(map: &Map, ashift: u32) -> Vec<(usize, u64)> {
        map.columns()
            .iter()
            .flat_map(|column| {
                (0..column.size >> ashift)
                    .map(move |sector| (column.child, (column.offset >> ashift) + sector))
            })
            .collect()
    }

    #[test]
    fn a_small_block_takes_only_the_columns_it_needs() {
        let map = Raidz::new(12, 2, 6).unwrap().map(5 * 4096, 4096, 1).unwrap();
        let children: Vec<_> = map.columns().iter().map(|column| (column.child, column.offset)).collect();
        assert_eq!(children, [(5, 0), (0, 4096), (1, 4096)]);
        assert_eq!(map.skip_sectors(), 0);
    }

    #[test]
    fn single_parity_changes_places_in_odd_mebibytes() {
        let raidz = Raidz::new(12, 1, 4).unwrap();
        let even = raidz.map(0, 4096, 1).unwrap();
        let odd = raidz.map(1 << 20, 4096, 1).unwrap();
        assert_eq!((even.columns()[0].child, even.columns()[1].child), (0, 1));
        assert_eq!((odd.columns()[0].child, odd.columns()[1].child), (1, 0));
        assert_eq!(odd.columns()[1].block_offset, 0);
    }

    #[test]
    fn width_follows_the_birth_of_the_block() {
        let raidz = Raidz::expanded(12, 1, 5, &[100, 200], None).unwrap();
        assert_eq!([0, 99, 100, 199, 200, u64::MAX].map(|txg| raidz.logical_width(txg)), [3, 3, 4, 4, 5, 5]);
    }

    #[test]
    fn impossible_layouts_are_refused() {
        assert!(Raidz::new(12, 0, 4).is_err());
        assert!(Raidz::new(12, 4, 9).is_err());
        assert!(Raidz::new(12, 2, 2).is_err());
        assert!(Raidz::new(12, 1, 256).is_err());
        assert!(Raidz::new(64, 1, 4).is_err());
        assert!(Raidz::expanded(12, 1, 4, &[3, 2], None).is_err());
        assert!(Raidz::expanded(12, 1, 4, &[1, 2, 3], None).is_err());
        assert!(Raidz::new(12, 1, 4).unwrap().map(1, 4096, 0).is_err());
        assert!(Raidz::new(12, 1, 4).unwrap().map(0, 0, 0).is_err());
        assert!(Raidz::new(12, 1, 4).unwrap().map(!4095, 4096, 0).is_err());
    }

    proptest! {
        #[test]
        fn every_sector_of_a_block_has_its_own_place(
            nparity in 1usize..=3, data in 1usize..=12, ashift in 9u32..=13, first in 0u64..100_000, sectors_wanted in 1u64..300,
        ) {
            let raidz = Raidz::new(ashift, nparity, nparity + data).unwrap();
            let (offset, psize) = (first << ashift, sectors_wanted << ashift);
            let map = raidz.map(offset, psize, 1).unwrap();
            let used = sectors(&map, ashift);
            let unique: HashSet<_> = used.iter().copied().collect();
            prop_assert_eq!(unique.len(), used.len());
            // The block takes exactly the run of sectors from `first` on.
            let width = (nparity + data) as u64;
            let run: HashSet<_> = (first..first + used.len() as u64).map(|sector| ((sector % width) as usize, sector / width)).collect();
            prop_assert_eq!(&unique, &run);
            prop_assert_eq!(raidz.asize(psize, 1).unwrap(), (used.len() as u64 + map.skip_sectors()) << ashift);
            // Data columns cover the block once, in order.
            let mut next = 0;
            for column in map.data_columns() {
                prop_assert_eq!(column.block_offset, next);
                next += column.size;
            }
            prop_assert_eq!(next, psize);
        }
    }
}
