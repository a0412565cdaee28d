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
//! tripling the leaves adds one header to three times as many). Headers have two copies at least. That is the *worst*
//! figure.

use hashbrown::HashMap;
use ondisk::Txg;
use ondisk::blkptr::GANG_HEADER_SIZE;

use crate::alloc::Allocator;
use crate::zio::min_alloc;

/// Copies of a gang header at least.
const GANG_HEADER_COPIES: u64 = 2;
/// Sizes that are remembered: files of one block have all kinds of sizes.
const MOST_KNOWN: usize = 4096;

/// What blocks of a pool take. What was worked out once is remembered until its vdevs may have changed.
#[derive(Debug, Default)]
pub(super) struct Costs {
    txg: Txg,
    /// The smallest allocation; 0 while that is not known.
    unit: u64,
    /// Of one copy of a block, by its size.
    known: HashMap<u64, u64>,
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
    pub(super) fn worst(&mut self, allocator: &Allocator, bytes: u64, copies: u64) -> u64 {
        let unit = self.unit(allocator);
        let exact = self.exact(allocator, bytes, copies);
        let leaves = bytes.div_ceil(unit);
        if leaves <= 1 {
            return exact;
        }
        let (leaf, header) = (self.copy(allocator, unit), self.copy(allocator, GANG_HEADER_SIZE as u64));
        exact.max(gang(
            leaves,
            leaf.saturating_mul(copies),
            header.saturating_mul(copies.max(GANG_HEADER_COPIES)),
        ))
    }
}

/// A gang of so many leaves.
fn gang(leaves: u64, leaf: u64, header: u64) -> u64 {
    let headers = leaves.saturating_mul(3) / 4;
    leaves.saturating_mul(leaf).saturating_add(headers.saturating_mul(header))
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    /// Most headers of a gang of so many units, wherever its parts find room: headers with so many pointers
    /// each.
    #[derive(Default)]
    struct Headers {
        pointers: usize,
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
            if may_be_gang && units > 1 { self.of(units) } else { 0 }
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
    fn no_gang_has_more_headers_than_counted() {
        for (pointers, most_units) in [(3, 1200), (7, 200), (31, 120), (95, 120)] {
            let mut headers = Headers { pointers, ..Headers::default() };
            for units in 2..most_units {
                let most = headers.of(units);
                assert!(most <= units * 3 / 4, "{units} units, {pointers} pointers: {most} headers");
            }
        }
    }
}
