//! What blocks take on the devices of a pool, before they are written: upper bounds.
//!
//! All figures are deflated bytes, those in which free space and datasets are counted. A block takes whole
//! sectors; on raidz and draid its parity and padding, which are more than usual when it is small; and all
//! that once for each copy. That is the *exact* figure of a block that does not compress and finds a free
//! run.
//!
//! Where no free run is long enough the block becomes a gang: at worst, leaves of the smallest size that can
//! be allocated, and headers above them. A gang splits in three, of whole units (or more where headers are
//! larger, which takes fewer of them; a part that finds more than its third leaves less to the others); so
//! `n` leaves have fewer than `3n/4` headers (two leaves have one, four or five have two or three, and
//! tripling the leaves adds one header to three times as many). Headers have two copies at least. That is the
//! *worst* figure.
//!
//! # What is sure to find a run
//! Counting everything as such a gang would bound the groups of a pool that is nearly full by half of what
//! they may be. But it is known which free runs there are ([`Allocator::free_in_runs_of`]): while no more is
//! taken than these have beyond a block of some size each, blocks up to that size are no gangs, and a larger
//! one is cut no further than to that size: if that is `t` units, `n` leaves have at most `3n/(2(t+1))`
//! headers. So there is a figure for each of the sizes [`WHOLE_BYTES`], the first of which is that nothing is
//! sure to find more than one unit. All that is accepted fits if it does by *one* of them: what it takes,
//! counted by this size, is no more than the runs of this size have ([`Worst::fits`]).

use std::ops::{Add, Mul};

use hashbrown::HashMap;
use ondisk::Txg;
use ondisk::blkptr::GANG_HEADER_SIZE;

use super::LARGE_METADATA_BYTES;
use crate::alloc::Allocator;
use crate::zio::min_alloc;

/// Copies of a gang header at least.
const GANG_HEADER_COPIES: u64 = 2;
/// Sizes that are remembered: files of one block have all kinds of sizes.
const MOST_KNOWN: usize = 4096;

/// How many sizes there are of which blocks may be sure to find a run.
const SIZES: usize = 6;
/// Blocks of up to so many bytes find a run each. The first: whatever is a smallest allocation.
const WHOLE_BYTES: [u64; SIZES] = [0, 8 << 10, 16 << 10, 32 << 10, 64 << 10, 128 << 10];

/// What blocks take at worst, or may take, by each of the sizes that are sure to find a run.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Worst([u64; SIZES]);

impl Worst {
    /// So many bytes, whichever blocks find a run.
    pub(super) fn all(bytes: u64) -> Self {
        Self([bytes; SIZES])
    }

    /// What may be taken of a pool's space for data.
    pub(super) fn free(allocator: &Allocator, txg: Txg) -> Self {
        let mut free = allocator.free_in_runs_of(WHOLE_BYTES, txg);
        // That needs no runs, and is known of all metaslabs.
        free[0] = allocator.free_for_data();
        Self(free)
    }

    fn each(self, other: Self, of_both: impl Fn(u64, u64) -> u64) -> Self {
        Self(std::array::from_fn(|at| of_both(self.0[at], other.0[at])))
    }

    /// What of this is left after `other`.
    pub(super) fn less(self, other: Self) -> Self {
        self.each(other, u64::saturating_sub)
    }

    /// Each by a function.
    pub(super) fn map(self, of_each: impl Fn(u64) -> u64) -> Self {
        Self(self.0.map(of_each))
    }

    /// Whether there is room for this by one of the sizes.
    pub(super) fn fits(self, room: Self) -> bool {
        self.0.iter().zip(room.0).any(|(takes, room)| *takes <= room)
    }

    /// The most of all sizes.
    pub(super) fn most(self) -> u64 {
        self.0.into_iter().max().unwrap_or(0)
    }

    /// Where no block is sure to find a run.
    pub(super) fn as_smallest(self) -> u64 {
        self.0[0]
    }
}

impl Add for Worst {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        self.each(other, u64::saturating_add)
    }
}

impl Mul<u64> for Worst {
    type Output = Self;

    fn mul(self, times: u64) -> Self {
        self.map(|bytes| bytes.saturating_mul(times))
    }
}

/// What blocks of a pool take. What was worked out once is remembered until its vdevs may have changed.
#[derive(Debug, Default)]
pub(super) struct Costs {
    txg: Txg,
    /// The smallest allocation; 0 while that is not known.
    unit: u64,
    /// Of one copy of a block, by its size.
    known: HashMap<u64, u64>,
    /// Of all copies of a block at worst, by its size and their number.
    known_worst: HashMap<(u64, u64), Worst>,
}

impl Costs {
    /// Vdevs may have changed with this group.
    pub(super) fn forget(&mut self, txg: Txg) {
        *self = Self { txg, ..Self::default() };
    }

    /// One copy of a block of `bytes`.
    fn copy(&mut self, allocator: &Allocator, bytes: u64) -> u64 {
        if let Some(known) = self.known.get(&bytes) {
            return *known;
        }
        if self.known.len() >= MOST_KNOWN {
            self.known.clear();
        }
        let takes = allocator.most_for(bytes, self.txg);
        self.known.insert(bytes, takes);
        takes
    }

    /// A block of `bytes` that finds a free run for each of its copies.
    pub(super) fn exact(&mut self, allocator: &Allocator, bytes: u64, copies: u64) -> u64 {
        match bytes {
            0 => 0,
            _ => self.copy(allocator, bytes).saturating_mul(copies),
        }
    }

    /// Bytes of the smallest allocation.
    pub(super) fn unit(&mut self, allocator: &Allocator) -> u64 {
        if self.unit == 0 {
            self.unit = min_alloc(allocator.vdevs()).max(1);
        }
        self.unit
    }

    /// A block of `bytes` wherever there is space for it.
    pub(super) fn worst(&mut self, allocator: &Allocator, bytes: u64, copies: u64) -> Worst {
        if let Some(known) = self.known_worst.get(&(bytes, copies)) {
            return *known;
        }
        if self.known_worst.len() >= MOST_KNOWN {
            self.known_worst.clear();
        }
        let unit = self.unit(allocator);
        let exact = self.exact(allocator, bytes, copies);
        let leaves = bytes.div_ceil(unit);
        let (leaf, header) = self.parts(allocator, copies);
        let worst = Worst(WHOLE_BYTES.map(|whole| match bytes <= whole || leaves <= 1 {
            true => exact,
            false => {
                let headers = headers(leaves, sure_units(whole, unit));
                exact.max(leaves.saturating_mul(leaf).saturating_add(headers.saturating_mul(header)))
            }
        }));
        self.known_worst.insert((bytes, copies), worst);
        worst
    }

    /// `bytes` of blocks of metadata, none of them larger than [`LARGE_METADATA_BYTES`]; whole units of each.
    pub(super) fn worst_of_metadata(&mut self, allocator: &Allocator, bytes: u64, copies: u64) -> Worst {
        let unit = self.unit(allocator);
        let leaves = LARGE_METADATA_BYTES.div_ceil(unit);
        let (leaf, header) = self.parts(allocator, copies);
        // With parity, the smaller a block is, the more it takes.
        let whole_block =
            self.exact(allocator, LARGE_METADATA_BYTES, copies).max(leaves.saturating_mul(leaf));
        Worst(WHOLE_BYTES.map(|whole| {
            // Rounded up, as each takes a share.
            let headers = match LARGE_METADATA_BYTES <= whole {
                true => 0,
                false => headers(leaves, sure_units(whole, unit)) + 1,
            };
            let of_large = whole_block.saturating_add(headers.saturating_mul(header));
            let taken = (u128::from(bytes) * u128::from(of_large)).div_ceil(LARGE_METADATA_BYTES.into());
            u64::try_from(taken).unwrap_or(u64::MAX)
        }))
    }

    /// What a smallest leaf of a gang takes, and a header of it.
    fn parts(&mut self, allocator: &Allocator, copies: u64) -> (u64, u64) {
        let unit = self.unit(allocator);
        let (leaf, header) = (self.copy(allocator, unit), self.copy(allocator, GANG_HEADER_SIZE as u64));
        (leaf.saturating_mul(copies), header.saturating_mul(copies.max(GANG_HEADER_COPIES)))
    }

    /// What a block of `bytes` takes that may lie anywhere, and so cuts a run in two: a part that is too
    /// short for a block of each size is lost to those.
    pub(super) fn apart(&mut self, allocator: &Allocator, bytes: u64, copies: u64) -> Worst {
        let exact = self.exact(allocator, bytes, copies);
        Worst(WHOLE_BYTES.map(|whole| exact.saturating_add(self.exact(allocator, whole, copies))))
    }
}

/// The units of which runs are sure to be found where blocks of `whole` bytes are.
fn sure_units(whole: u64, unit: u64) -> u64 {
    (whole / unit).max(1)
}

/// The most headers of a gang of so many leaves, where so many in one piece are sure to find room.
fn headers(leaves: u64, sure: u64) -> u64 {
    leaves.saturating_mul(3) / sure.saturating_add(1).saturating_mul(2)
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::Worst;

    /// Most headers of a gang of so many units, wherever its parts find room: headers with so many pointers
    /// each, and parts of so many units that find room for sure.
    #[derive(Default)]
    struct Headers {
        pointers: usize,
        sure: usize,
        gangs: HashMap<usize, usize>,
        parts: HashMap<(usize, usize), usize>,
    }

    impl Headers {
        fn of(&mut self, units: usize) -> usize {
            if let Some(known) = self.gangs.get(&units) {
                return *known;
            }
            // The whole found no room, so that no part is as large.
            let most = (1..units).rev().map(|first| self.beginning_with(first, units)).max();
            let most = 1 + most.unwrap_or(0);
            self.gangs.insert(units, most);
            most
        }

        /// Headers below one whose first part has so many units, or is a gang where that is the least.
        fn beginning_with(&mut self, first: usize, units: usize) -> usize {
            let least = units.div_ceil(self.pointers);
            match first < least {
                true => 0,
                false => self.part(first, first == least) + self.below(units - first, self.pointers - 1),
            }
        }

        /// Headers of a part that found room, or perhaps did not.
        fn part(&mut self, units: usize, may_be_gang: bool) -> usize {
            if may_be_gang && units > self.sure { self.of(units) } else { 0 }
        }

        /// Headers below the last `pointers` of one that are left for so many units.
        fn below(&mut self, units: usize, pointers: usize) -> usize {
            if units == 0 || pointers == 0 {
                assert_eq!(units, 0, "the last part takes all that is left");
                return 0;
            }
            if let Some(known) = self.parts.get(&(units, pointers)) {
                return *known;
            }
            let least = units.div_ceil(pointers);
            let mut most = 0;
            for part in least..=units {
                let headers = self.part(part, part == least) + self.below(units - part, pointers - 1);
                most = most.max(headers);
            }
            self.parts.insert((units, pointers), most);
            most
        }
    }

    #[test]
    fn what_fits_by_one_size_fits() {
        let room = Worst([100, 60, 50, 40, 30, 20]);
        assert!(Worst([101, 61, 51, 40, 31, 21]).fits(room));
        assert!(!Worst([101, 61, 51, 41, 31, 21]).fits(room));
        assert_eq!(room.less(Worst([90, 55, 60, 10, 0, 0])).most(), 30);
    }

    #[test]
    fn no_gang_has_more_headers_than_counted() {
        for (pointers, most_units) in [(3, 1200), (7, 200), (31, 120), (95, 120)] {
            for sure in [1, 2, 4, 5, 8, 16, 32, 100] {
                let most_units = if sure == 1 { most_units } else { most_units.min(330) };
                let mut headers = Headers { pointers, sure, ..Headers::default() };
                for units in sure + 1..most_units {
                    let most = headers.of(units);
                    let counted = super::headers(units as u64, sure as u64) as usize;
                    assert!(
                        most <= counted,
                        "{units} units, {sure} sure, {pointers} pointers: {most} headers"
                    );
                }
            }
        }
    }
}
