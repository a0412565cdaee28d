//! Space maps of whole vdevs, in addition to those of their metaslabs.
//!
//! # The idea
//! A block that is freed does not always become free space:
//!
//! - A block whose address is on a *removed* vdev lies elsewhere ([`crate::vdev::indirect`]), and its space
//!   becomes free there. The old range is recorded as *obsolete*: no block refers to it any more. From the
//!   obsolete ranges OpenZFS sees which part of the mapping can be left out, and `zdb` which blocks there
//!   are.
//! - A block that the pool's *checkpoint* refers to stays allocated. The freed ranges of such blocks are
//!   recorded, and really freed when the checkpoint is discarded ([`super::checkpoint`]).
//!
//! Each such vdev has a space map that is only appended to. It is created with the first range, and the
//! vdev's ZAP names it.
//!
//! | for | entries | unit | bounds |
//! |---|---|---|---|
//! | obsolete ranges | allocations | a byte | none |
//! | the checkpoint | frees | a sector | an entry lies in one metaslab |
//!
//! Plain data without a lock; the allocator's guards it. Source of the facts: OpenZFS 2.3 `vdev_indirect.c`,
//! `metaslab.c` (`metaslab_sync`).

use std::collections::BTreeMap;

use ondisk::pool_directory::top_zap;
use ondisk::space_map::MapType;
use ondisk::{ObjectId, Txg, VdevId};

use super::allocator::State;
use super::metaslab::OnDisk;
use crate::error::{Error, Result};
use crate::range_set::RangeSet;

/// The purpose of a map.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// Ranges of a removed vdev that no block refers to any more.
    Obsolete,
    /// Ranges that only the checkpoint refers to.
    Checkpoint {
        /// Sector size of the vdev as a power of two.
        shift: u8,
        /// Size of its metaslabs as a power of two.
        ms_shift: u8,
    },
}

impl Purpose {
    /// The name of its entry in the vdev's ZAP.
    pub fn entry(self) -> &'static str {
        match self {
            Self::Obsolete => top_zap::INDIRECT_OBSOLETE_SM,
            Self::Checkpoint { .. } => top_zap::POOL_CHECKPOINT_SM,
        }
    }

    pub(crate) fn kind(self) -> MapType {
        match self {
            Self::Obsolete => MapType::Alloc,
            Self::Checkpoint { .. } => MapType::Free,
        }
    }

    /// The unit of entries, as a power of two.
    pub fn shift(self) -> u8 {
        match self {
            Self::Obsolete => 0,
            Self::Checkpoint { shift, .. } => shift,
        }
    }

    /// Cuts a range into valid entries.
    pub(crate) fn entries(self, (from, to): (u64, u64)) -> impl Iterator<Item = (u64, u64)> {
        let mut from = from;
        std::iter::from_fn(move || {
            let end = match self {
                Self::Obsolete => to,
                Self::Checkpoint { ms_shift, .. } => to.min(((from >> ms_shift) + 1) << ms_shift),
            };
            let entry = (from < to).then_some((from, end));
            from = end;
            entry
        })
    }
}

/// The map of one vdev.
#[derive(Debug, Clone)]
pub struct VdevMap {
    pub purpose: Purpose,
    /// The vdev's ZAP.
    pub top_zap: ObjectId,
    pub on_disk: OnDisk,
    /// Ranges that groups add.
    pending: BTreeMap<Txg, RangeSet>,
}

impl VdevMap {
    /// A map that is created with its first range.
    pub fn new(purpose: Purpose, top_zap: ObjectId) -> Self {
        Self { purpose, top_zap, on_disk: OnDisk::default(), pending: BTreeMap::new() }
    }

    /// Adds a range.
    pub fn add(&mut self, from: u64, to: u64, txg: Txg) -> Result<()> {
        if self.pending.entry(txg).or_default().add(from, to) != 0 {
            return Err(Error::corrupt(
                "a space map of a vdev",
                format!("{from:#x}..{to:#x} is freed twice"),
            ));
        }
        Ok(())
    }

    /// Whether group `txg` adds ranges that are not written yet.
    pub fn has_changes(&self, txg: Txg) -> bool {
        self.pending.contains_key(&txg)
    }

    /// The bytes of all its written ranges.
    pub fn total_bytes(&self) -> u64 {
        self.on_disk.allocated_bytes.unsigned_abs()
    }
}

impl State {
    /// The present maps, and the ranges to add to each.
    pub(crate) fn take_vdev_maps(&mut self, txg: Txg) -> Vec<(VdevId, VdevMap, RangeSet)> {
        let maps = self.vdev_maps.iter_mut();
        maps.filter_map(|(vdev, map)| {
            let ranges = map.pending.remove(&txg)?;
            let map = VdevMap { on_disk: map.on_disk, ..VdevMap::new(map.purpose, map.top_zap) };
            Some((*vdev, map, ranges))
        })
        .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_for_the_checkpoint_is_cut_at_metaslabs() {
        let purpose = Purpose::Checkpoint { shift: 12, ms_shift: 20 };
        let cut = |range| purpose.entries(range).collect::<Vec<_>>();
        assert_eq!(cut((4096, 8192)), [(4096, 8192)]);
        assert_eq!(
            cut((0xff000, 0x201000)),
            [(0xff000, 0x100000), (0x100000, 0x200000), (0x200000, 0x201000)]
        );
        assert_eq!(Purpose::Obsolete.entries((512, 1 << 40)).collect::<Vec<_>>(), [(512, 1 << 40)]);
    }
}
