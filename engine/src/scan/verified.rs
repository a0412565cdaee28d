//! What a batch that did not come to its end has verified, so that the next one leaves it out.
//!
//! # The idea
//! A batch reads in the order of places, not in that of the walk, so the cursor cannot say what an
//! interrupted batch has done. The places of the blocks that were right can: they are kept in memory until a
//! batch of the same scan ends, which moves the cursor beyond them. A batch that goes on walks and gathers as
//! before, and leaves out what lies in these places.
//!
//! # Which block lies there
//! A place that was verified in a view had the blocks of that view. A block born later may have taken the
//! place since; one that was born until then, and still is, is the same. So only blocks that are no younger
//! than the view count here.

use std::collections::HashMap;

use ondisk::Txg;
use ondisk::blkptr::{Blkptr, Dva};

use crate::range_set::RangeSet;

/// The most runs of places, which bounds the memory.
const MOST_RUNS: usize = 1 << 20;

/// Places of copies that are right.
#[derive(Debug, Clone)]
pub(crate) struct Verified {
    /// Blocks born after this group do not count.
    as_of: Txg,
    places: HashMap<u32, RangeSet>,
}

impl Verified {
    /// Nothing yet, in a view of this group.
    pub fn as_of(as_of: Txg) -> Self {
        Self { as_of, places: HashMap::new() }
    }

    /// Whether there is nothing.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Notes a copy of a block that is right.
    pub fn note(&mut self, bp: &Blkptr, dva: &Dva) {
        let runs: usize = self.places.values().map(RangeSet::runs).sum();
        if bp.physical_birth() <= self.as_of && runs < MOST_RUNS {
            let (start, end) = bounds(dva);
            self.places.entry(dva.vdev.get()).or_default().add(start, end);
        }
    }

    /// Whether a copy of a block was right.
    pub fn has(&self, bp: &Blkptr, dva: &Dva) -> bool {
        let (start, end) = bounds(dva);
        let is_noted = |places: &RangeSet| places.contains(start, end);
        bp.physical_birth() <= self.as_of && self.places.get(&dva.vdev.get()).is_some_and(is_noted)
    }

    /// Adds what another batch of the same scan has verified.
    pub fn add(&mut self, more: Self) {
        if self.is_empty() {
            *self = more;
            return;
        }
        if more.is_empty() {
            return;
        }
        self.as_of = self.as_of.min(more.as_of);
        for (vdev, places) in more.places {
            let known = self.places.entry(vdev).or_default();
            for (start, end) in places.iter() {
                known.add(start, end);
            }
        }
    }
}

impl Default for Verified {
    fn default() -> Self {
        Self::as_of(Txg::NONE)
    }
}

fn bounds(dva: &Dva) -> (u64, u64) {
    (dva.offset.get(), dva.offset.get().saturating_add(dva.asize.get()))
}

#[cfg(test)]
mod tests {
    use ondisk::{Asize, ByteOffset, VdevId};

    use super::*;

    fn born(txg: u64) -> Blkptr {
        let mut words = [0; 16];
        (words[0], words[1]) = (1 << 32 | 8, 8);
        // 4 KiB of plain file contents with a checksum of fletcher4, little-endian.
        words[6] = 1 << 63 | 19 << 48 | 7 << 40 | 2 << 32 | 7 << 16 | 7;
        words[10] = txg;
        Blkptr::from_words(words).unwrap()
    }

    #[test]
    fn only_blocks_that_the_view_had_are_left_out() {
        let dva =
            |offset| Dva { vdev: VdevId(1), offset: ByteOffset(offset), asize: Asize(4096), gang: false };
        let mut first = Verified::as_of(Txg(7));
        first.note(&born(7), &dva(8192));
        first.note(&born(8), &dva(0));
        assert!(first.has(&born(5), &dva(8192)) && !first.has(&born(8), &dva(8192)));
        assert!(!first.has(&born(7), &dva(0)) && !first.has(&born(7), &dva(10240)));
        let mut second = Verified::as_of(Txg(9));
        second.note(&born(9), &dva(0));
        first.add(second);
        assert!(first.has(&born(7), &dva(0)) && !first.has(&born(8), &dva(0)));
        first.add(Verified::as_of(Txg(3)));
        assert!(first.has(&born(7), &dva(0)));
    }
}
