//! Space that only the pool's checkpoint refers to.
//!
//! # The idea
//! A checkpoint is the uberblock of a group. A block that was born up to that group, and is freed later,
//! stays allocated in the space maps of metaslabs; it is recorded in a space map of its vdev
//! ([`super::vdev_map`]). So no block that the checkpoint refers to is ever overwritten, and a rewind only
//! has to use the checkpoint's uberblock.
//!
//! When the checkpoint is discarded, the recorded ranges are really freed, from the end of the maps to their
//! beginning, a bounded number of blocks of maps in each group.
//!
//! Source of the facts: OpenZFS 2.3 `spa_checkpoint.c`, `metaslab.c` (`metaslab_free`).

use std::sync::atomic::Ordering;

use ondisk::blkptr::Blkptr;
use ondisk::space_map::Segment;
use ondisk::{Txg, VdevId};

use super::allocator::{Allocator, State};
use super::group::Group;
use super::metaslab::Bounds;
use super::vdev_map::{Purpose, VdevMap};
use crate::error::{Error, Result};

impl Allocator {
    /// From now on, blocks that were born up to group `txg` are kept; with `None`, none are.
    pub fn set_checkpoint(&self, txg: Option<Txg>) {
        self.checkpoint.store(txg.unwrap_or(Txg::NONE).get(), Ordering::Release);
    }

    /// Whether a block that is freed in `txg` must be kept for the checkpoint.
    pub fn keeps(&self, bp: &Blkptr, txg: Txg) -> bool {
        let checkpoint = Txg(self.checkpoint.load(Ordering::Acquire));
        // A cloned block is older than its pointer; a rewritten block is younger than its contents.
        let born = bp.birth().min(bp.physical_birth());
        checkpoint != Txg::NONE && born <= checkpoint && txg > checkpoint
    }

    /// Refuses a checkpoint if a vdev cannot record the ranges to keep.
    ///
    /// # Errors
    /// [`Error::Unsupported`]: a vdev of a very old pool has no ZAP, or is larger than the one-word entries
    /// of a space map reach.
    pub fn require_keeping(&self, two_words: bool) -> Result<()> {
        self.state().groups.iter().flatten().try_for_each(|group| group.require_keeping(two_words))
    }

    /// Bytes that only the checkpoint refers to.
    pub fn kept_bytes(&self) -> u64 {
        let state = self.state();
        state.kept().map(|(_, map)| map.total_bytes()).sum()
    }
}

impl Group {
    /// See [`Allocator::require_keeping`].
    fn require_keeping(&self, two_words: bool) -> Result<()> {
        let vdev = self.vdev;
        if self.top_zap.is_none() {
            let why = "has no ZAP, as in pools of very old versions";
            return Err(Error::Unsupported(format!("top-level vdev {vdev} {why}")));
        }
        // The reach of an entry of one word from the beginning of its vdev, in sectors.
        let is_within = |last: Bounds| {
            last.start.saturating_add(last.size) >> last.shift <= Segment::ONE_WORD_OFFSET_LIMIT
        };
        if two_words || self.metaslabs().last().is_none_or(|last| is_within(last.bounds())) {
            return Ok(());
        }
        Err(Error::Unsupported(format!(
            "top-level vdev {vdev} exceeds the size that space maps of whole vdevs describe without \
             feature@spacemap_v2, which is not enabled; see zpool upgrade"
        )))
    }
}

impl State {
    /// The maps of the kept ranges.
    pub(crate) fn kept(&self) -> impl DoubleEndedIterator<Item = (VdevId, &VdevMap)> {
        let maps = self.vdev_maps.iter().map(|(vdev, map)| (*vdev, map));
        maps.filter(|(_, map)| matches!(map.purpose, Purpose::Checkpoint { .. }))
    }

    /// Records that from group `txg` on only the checkpoint refers to a range, which stays allocated.
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

#[cfg(test)]
mod tests {
    use ondisk::ObjectId;

    use super::*;
    use crate::alloc::group::GroupConfig;
    use crate::alloc::metaslab::Metaslab;
    use crate::vdev::Class;

    #[test]
    fn a_checkpoint_needs_space_maps_that_describe_the_whole_vdev() {
        // With 512-byte sectors, 64 PiB.
        let most = Segment::ONE_WORD_OFFSET_LIMIT << 9;
        let group = |end: u64, top_zap| {
            let config = GroupConfig {
                vdev: 0,
                class: Class::Normal,
                ms_shift: 39,
                array: ObjectId(1),
                top_zap,
                deflate_ratio: 512,
                aliquot_bytes: 1 << 20,
                added: None,
                allocating: true,
            };
            let size = 1 << 39;
            let last = Bounds { start: end - size, size, shift: 9 };
            Group::new(config, vec![Metaslab::unused(last)])
        };
        let zap = Some(ObjectId(2));
        assert!(group(most, zap).require_keeping(false).is_ok());
        assert!(group(most, None).require_keeping(true).is_err(), "nothing names its map");
        let larger = group(most + (1 << 39), zap);
        assert!(larger.require_keeping(false).unwrap_err().to_string().contains("feature@spacemap_v2"));
        assert!(larger.require_keeping(true).is_ok());
    }
}
