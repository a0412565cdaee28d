//! dRAID: raidz groups spread over many children, with spare space spread over all of them.
//!
//! A vdev has `children` children, of which `spares` many are worth of distributed spare space; the remaining
//! `disks` hold groups of `width = data + parity` columns. Each child is cut into slices; in each slice the
//! children change places by a permutation, so that every child is at times data, parity and spare.
//!
//! # From a logical offset to children
//! - A *row* is 16 MiB of each child. A *group* is 16 MiB in each of its `width` columns, `width * 16 MiB` of
//!   address space.
//! - Groups are laid side by side over the `disks`, wrapping to the next row. After `groups` groups the
//!   pattern ends evenly with a row: this is a *slice*.
//! - Slice `n` uses permutation `n mod (table rows * children)`: row `p / children` of the table, each entry
//!   shifted by `p % children` (mod `children`). Position `c` of the slice is child
//!   `(row[c] + shift) % children`. Positions from `disks` on are the spares, spare 0 the last one.
//! - Inside a group a block is laid out as in raidz, but always over all `width` columns: it starts at column
//!   0 and takes whole rows of sectors. Sectors without data hold zeros and count in the parity. A block that
//!   crosses the end of its group continues in the next, as a second row of the map.
//!
//! # The table
//! A Fisher-Yates shuffle, each row starting from the one before, driven by xoroshiro128++ with the state
//! (`0xd7a1d5eed`, seed of that number of children).
//!
//! Source of the facts: OpenZFS 2.3 `vdev_draid.c`, `vdev_draid.h`, `vdev_draid_rand.c`.

mod seeds;

use crate::raidz::{Column, Error, MAX_BLOCK_BYTES, MAX_CHILDREN, MAX_PARITY, Map};
use std::fmt;

/// Bytes of each child in one row of groups.
const ROW_HEIGHT: u64 = 16 << 20;

/// First half of the generator's state.
const GENERATOR_STATE: u64 = 0xd_7a1d_5eed;

/// The numbers in a dRAID vdev's label (`draid_ndata`, `nparity`, `draid_nspares`, `draid_ngroups`, children
/// and ashift).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DraidConfig {
    /// Data columns of a group.
    pub data: usize,
    /// Parity columns of a group.
    pub nparity: usize,
    /// Distributed spares.
    pub spares: usize,
    /// Groups in a slice.
    pub groups: usize,
    /// Children of the vdev.
    pub children: usize,
    /// Sector size as a power of two.
    pub ashift: u32,
}

/// The layout of one dRAID vdev.
#[derive(Clone, PartialEq, Eq)]
pub struct Draid {
    config: DraidConfig,
    /// Rows of `children` entries.
    permutations: Box<[u8]>,
    width: u64,
    disks: u64,
    group_bytes: u64,
    slice_rows: u64,
}

impl fmt::Debug for Draid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Draid").field(&self.config).finish()
    }
}

impl Draid {
    /// Checks the label's numbers and draws the permutation table.
    pub fn new(config: DraidConfig) -> Result<Self, Error> {
        let DraidConfig { data, nparity, spares, groups, children, ashift } = config;
        if !(9..=16).contains(&ashift) {
            return Err(Error::Layout("sector size is not between 512 bytes and 64 KiB"));
        }
        if !(1..=MAX_PARITY).contains(&nparity) || data == 0 {
            return Err(Error::Layout(
                "a dRAID group needs 1 to 3 parity columns and at least one data column",
            ));
        }
        if children > MAX_CHILDREN
            || data > MAX_CHILDREN
            || spares > 100
            || data + nparity + spares > children
        {
            return Err(Error::Layout("a dRAID group and the spares need more children than there are"));
        }
        let (width, disks) = (data + nparity, children - spares);
        if groups == 0 || groups > MAX_CHILDREN || !(width * groups).is_multiple_of(disks) {
            return Err(Error::Layout("dRAID groups do not fill whole rows"));
        }
        Ok(Self {
            config,
            permutations: permutation_table(children)?,
            width: width as u64,
            disks: disks as u64,
            group_bytes: width as u64 * ROW_HEIGHT,
            slice_rows: (width * groups / disks) as u64,
        })
    }

    /// The numbers that the layout was made from.
    pub fn config(&self) -> &DraidConfig {
        &self.config
    }

    /// Allocated size of a block of `psize` bytes: whole rows of sectors over the group.
    pub fn asize(&self, psize: u64) -> Result<u64, Error> {
        self.check(0, psize)?;
        Ok(self.asize_of_sectors(psize.div_ceil(1 << self.config.ashift)))
    }

    fn asize_of_sectors(&self, sectors: u64) -> u64 {
        (sectors.div_ceil(self.config.data as u64) * self.width) << self.config.ashift
    }

    /// Where the block of `psize` bytes at `offset` (of its DVA) lies. A `psize` that is no multiple of the
    /// sector size is rounded up.
    pub fn map(&self, offset: u64, psize: u64) -> Result<Map, Error> {
        self.check(offset, psize)?;
        let ashift = self.config.ashift;
        let sectors = psize.div_ceil(1 << ashift);
        let left_in_group =
            ((self.group_bytes - offset % self.group_bytes) >> ashift) / self.width * self.config.data as u64;
        let in_first_group = sectors.min(left_in_group);
        let mut columns = Vec::with_capacity(2 * self.width as usize);
        self.push_row(&mut columns, offset, 0, in_first_group);
        if in_first_group < sectors {
            let next_group = (offset / self.group_bytes + 1) * self.group_bytes;
            self.push_row(&mut columns, next_group, in_first_group << ashift, sectors - in_first_group);
        }
        let stored: u64 = columns.iter().map(|column| column.size >> ashift).sum();
        Ok(Map {
            nparity: self.config.nparity,
            width: self.width as usize,
            columns,
            data_bytes: sectors << ashift,
            skip_sectors: (self.asize_of_sectors(sectors) >> ashift) - stored,
            ashift,
            widths: (self.config.children, self.config.children),
        })
    }

    fn push_row(&self, columns: &mut Vec<Column>, offset: u64, mut block_offset: u64, sectors: u64) {
        let DraidConfig { data, nparity, groups, ashift, .. } = self.config;
        let (full_rows, remainder) = (sectors / data as u64, sectors % data as u64);
        let big_columns = if remainder == 0 { 0 } else { remainder + nparity as u64 };

        let group = offset / self.group_bytes;
        let slice = group / groups as u64;
        let first_position = group * self.width % self.disks;
        let row = slice * self.slice_rows + group % groups as u64 * self.width / self.disks;
        let child_offset = row * ROW_HEIGHT + offset % self.group_bytes / self.width;

        for index in 0..self.width {
            let position = first_position + index;
            let sectors = full_rows + u64::from(index < big_columns);
            let mut column = Column {
                child: self.child_at(slice, (position % self.disks) as usize),
                offset: child_offset + position / self.disks * ROW_HEIGHT,
                size: sectors << ashift,
                block_offset: 0,
                scratch: false,
            };
            if index >= nparity as u64 {
                column.block_offset = block_offset;
                block_offset += column.size;
            }
            columns.push(column);
        }
    }

    /// The child whose space distributed spare `spare` uses at `child_offset` of the spare (in bytes, without
    /// label).
    ///
    /// The child may itself be a distributed spare that replaces a failed child; then ask again for that
    /// one. `None` when there is no such spare.
    pub fn spare_child(&self, spare: usize, child_offset: u64) -> Option<usize> {
        if spare >= self.config.spares {
            return None;
        }
        let slice = child_offset / (self.slice_rows * ROW_HEIGHT);
        Some(self.child_at(slice, self.config.children - 1 - spare))
    }

    fn child_at(&self, slice: u64, position: usize) -> usize {
        let children = self.config.children;
        let permutation = (slice % self.permutations.len() as u64) as usize;
        let (row, shift) = (permutation / children, permutation % children);
        (usize::from(self.permutations[row * children + position]) + shift) % children
    }

    fn check(&self, offset: u64, psize: u64) -> Result<(), Error> {
        let row_of_sectors = self.width << self.config.ashift;
        if psize == 0
            || psize > MAX_BLOCK_BYTES
            || offset >= 1 << 62
            || !offset.is_multiple_of(row_of_sectors)
        {
            return Err(Error::Range { offset, size: psize });
        }
        Ok(())
    }
}

fn permutation_table(children: usize) -> Result<Box<[u8]>, Error> {
    let seed = seeds::for_children(children)
        .ok_or(Error::Layout("no dRAID permutation for this number of children"))?;
    let mut generator = Xoroshiro128PlusPlus(GENERATOR_STATE, seed.seed);
    let mut row: Vec<u8> = (0..=u8::MAX).take(children).collect();
    let mut table = Vec::with_capacity(children * seeds::permutations(children));
    for _ in 0..seeds::permutations(children) {
        for last in (1..children).rev() {
            row.swap(last, (generator.next() % (last as u64 + 1)) as usize);
        }
        table.extend_from_slice(&row);
    }
    // The first word of a fletcher4 checksum is the sum of the 32-bit words.
    let sum: u64 = table
        .chunks_exact(4)
        .map(|word| u64::from(u32::from_le_bytes([word[0], word[1], word[2], word[3]])))
        .sum();
    if sum != seed.checksum {
        return Err(Error::Layout("dRAID permutation table does not match its checksum"));
    }
    Ok(table.into_boxed_slice())
}

/// Blackman and Vigna's generator of 2019, "xoroshiro128++ 1.0".
struct Xoroshiro128PlusPlus(u64, u64);

impl Xoroshiro128PlusPlus {
    fn next(&mut self) -> u64 {
        let Self(a, b) = *self;
        let mixed = a ^ b;
        *self = Self(a.rotate_left(49) ^ mixed ^ (mixed << 21), mixed.rotate_left(28));
        a.wrapping_add(b).rotate_left(17).wrapping_add(a)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;

    fn config(data: usize, nparity: usize, spares: usize, children: usize) -> DraidConfig {
        let groups = (1..=MAX_CHILDREN)
            .find(|groups| ((data + nparity) * groups).is_multiple_of(children - spares))
            .unwrap();
        DraidConfig { data, nparity, spares, groups, children, ashift: 12 }
    }

    #[test]
    fn every_table_matches_its_checksum() {
        for children in 2..=MAX_CHILDREN {
            assert!(permutation_table(children).is_ok(), "{children} children");
        }
        assert!(permutation_table(1).is_err());
        assert!(permutation_table(256).is_err());
    }

    #[test]
    fn impossible_layouts_are_refused() {
        let good = config(4, 2, 1, 8);
        assert!(Draid::new(good).is_ok());
        assert!(Draid::new(DraidConfig { groups: 6, ..good }).is_err());
        assert!(Draid::new(DraidConfig { groups: 0, ..good }).is_err());
        assert!(Draid::new(DraidConfig { spares: 3, ..good }).is_err());
        assert!(Draid::new(DraidConfig { data: 0, ..good }).is_err());
        assert!(Draid::new(DraidConfig { data: usize::MAX, ..good }).is_err());
        assert!(Draid::new(DraidConfig { ashift: 40, ..good }).is_err());
        assert!(Draid::new(good).unwrap().map(4096, 4096).is_err());
    }

    #[test]
    fn a_block_at_the_end_of_its_group_continues_in_the_next() {
        let draid = Draid::new(config(4, 2, 1, 8)).unwrap();
        let row_of_sectors = 6 * 4096;
        let map = draid.map(6 * ROW_HEIGHT - row_of_sectors, 9 * 4096).unwrap();
        let sizes: Vec<Vec<u64>> =
            map.rows().map(|row| row.iter().map(|column| column.size / 4096).collect()).collect();
        assert_eq!(sizes, [vec![1, 1, 1, 1, 1, 1], vec![2, 2, 2, 1, 1, 1]]);
        let covered: Vec<u64> = map.data_columns().map(|column| column.block_offset / 4096).collect();
        assert_eq!(covered, [0, 1, 2, 3, 4, 6, 7, 8]);
    }

    #[test]
    fn spares_and_groups_share_each_slice_without_overlap() {
        let draid = Draid::new(config(3, 1, 2, 10)).unwrap();
        for slice in 0..40 {
            let spares =
                (0..2).map(|spare| draid.spare_child(spare, slice * draid.slice_rows * ROW_HEIGHT).unwrap());
            let mut children: HashSet<usize> = spares.collect();
            for group in 0..draid.config.groups as u64 {
                let offset = (slice * draid.config.groups as u64 + group) * draid.group_bytes;
                children
                    .extend(draid.map(offset, 4096 * 3).unwrap().columns().iter().map(|column| column.child));
            }
            assert_eq!(children.len(), 10);
        }
        assert_eq!(draid.spare_child(2, 0), None);
    }

    proptest! {
        #[test]
        fn no_two_blocks_of_a_vdev_share_a_sector(
            data in 1usize..=8, nparity in 1usize..=3, spares in 0usize..=3, extra in 0usize..=6, blocks in proptest::collection::vec((0u64..2000, 1u64..200), 2..20),
        ) {
            let draid = Draid::new(config(data, nparity, spares, data + nparity + spares + extra)).unwrap();
            let mut used = HashSet::new();
            let mut next = 0;
            // Near the ends of groups, which is where mistakes would be.
            for (gap, sectors) in blocks {
                let psize = sectors * 4096;
                let end_of_group = (next / draid.group_bytes + 1) * draid.group_bytes;
                let row_of_sectors = draid.width * 4096;
                let offset = next.max(end_of_group - (gap % 50 + 1) * row_of_sectors);
                let map = draid.map(offset, psize).unwrap();
                let mut stored = 0;
                for column in map.columns() {
                    for sector in 0..column.size >> 12 {
                        prop_assert!(used.insert((column.child, (column.offset >> 12) + sector)));
                        stored += 1;
                    }
                }
                let asize = draid.asize(psize).unwrap();
                prop_assert_eq!((stored + map.skip_sectors()) << 12, asize);
                let mut covered = 0;
                for column in map.data_columns() {
                    prop_assert_eq!(column.block_offset, covered);
                    covered += column.size;
                }
                prop_assert_eq!(covered, psize);
                next = offset + asize;
            }
        }
    }
}
