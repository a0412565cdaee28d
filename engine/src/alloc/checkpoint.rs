//! Space that only the pool's checkpoint refers to.
//!
//! # The idea
//! A checkpoint is the uberblock of a group. What was born up to that group, and is freed later, stays
//! allocated in the space maps of metaslabs; it is noted in a space map of its vdev ([`super::vdev_map`]). So
//! nothing that the checkpoint refers to is ever written over, and going back to it is no more than using its
//! uberblock.
//!
//! When the checkpoint is given up, what was noted is freed in earnest, from the end of the maps to their
//! beginning, a bounded number of blocks of maps in each group.
//!
//! Source of the facts: OpenZFS 2.3 `spa_checkpoint.c`, `metaslab.c` (`metaslab_free`).

use std::sync::atomic::Ordering;

use ondisk::blkptr::Blkptr;
use ondisk::{Txg, VdevId};

use super::allocator::{Allocator, State};
use super::vdev_map::{Purpose, VdevMap};
use crate::error::{Error, Result};

impl Allocator {
    /// From now on, what was born up to group `txg` is kept; `None`: nothing is.
    pub fn set_checkpoint(&self, txg: Option<Txg>) {
        self.checkpoint.store(txg.unwrap_or(Txg::NONE).get(), Ordering::Release);
    }

    /// Whether a block that is freed in `txg` must be kept for the checkpoint.
    pub fn keeps(&self, bp: &Blkptr, txg: Txg) -> bool {
        let checkpoint = Txg(self.checkpoint.load(Ordering::Acquire));
        // A cloned block is older than its pointer; one that was rewritten is younger than its contents.
        let born = bp.birth().min(bp.physical_birth());
        checkpoint != Txg::NONE && born <= checkpoint && txg > checkpoint
    }

    /// Whether all vdevs can keep what a checkpoint needs: those of very old pools have no ZAP.
    pub fn can_keep(&self) -> bool {
        self.state().groups.iter().flatten().all(|group| group.top_zap.is_some())
    }

    /// Bytes that only the checkpoint refers to.
    pub fn kept_bytes(&self) -> u64 {
        let state = self.state();
        state.kept().map(|(_, map)| map.total_bytes()).sum()
    }
}

impl State {
    /// The maps of what is kept.
    pub(crate) fn kept(&self) -> impl DoubleEndedIterator<Item = (VdevId, &VdevMap)> {
        let maps = self.vdev_maps.iter().map(|(vdev, map)| (*vdev, map));
        maps.filter(|(_, map)| matches!(map.purpose, Purpose::Checkpoint { .. }))
    }

    /// Notes that a range, which stays allocated, is only the checkpoint's from group `txg` on.
    pub(crate) fn keep(&mut self, vdev: VdevId, from: u64, to: u64, txg: Txg) -> Result<()> {
        let group = self.group(vdev)?;
        let shift = group.check_allocated(from, to)?;
        let purpose = Purpose::Checkpoint { shift, ms_shift: group.ms_shift };
        let top_zap = group.top_zap.ok_or_else(|| {
            Error::corrupt(format!("top-level vdev {vdev}"), "it has no ZAP, and the pool has a checkpoint")
        })?;
        let map = self.vdev_maps.entry(vdev).or_insert_with(|| VdevMap::new(purpose, top_zap));
        map.add(from, to, txg)
    }
}
