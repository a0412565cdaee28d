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

use std::sync::Arc;
use std::sync::atomic::Ordering;

use ondisk::blkptr::Blkptr;
use ondisk::features::Feature;
use ondisk::space_map::{Entries, Entry, MapType};
use ondisk::{ByteOffset, ByteOrder, Txg, VdevId};

use super::allocator::{Allocator, State};
use super::flush::name;
use super::metaslab::OnDisk;
use super::sync::set_header;
use super::vdev_map::{Purpose, VdevMap};
use crate::dmu::LiveObjset;
use crate::dmu::zap::edit;
use crate::error::{Error, Result};
use crate::txg::Tx;

/// Most blocks of maps that one group gives back: some hundred thousand entries.
const DISCARD_BLOCKS: usize = 8;

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

    /// Frees some of what was kept for a checkpoint that is given up. False when there is no more.
    pub async fn discard_kept(&self, mos: &Arc<LiveObjset>, tx: &Tx) -> Result<bool> {
        for _ in 0..DISCARD_BLOCKS {
            let last = self.state().kept().next_back().map(|(vdev, map)| (vdev, map.clone()));
            let Some((vdev, map)) = last else { return Ok(false) };
            self.discard_block(mos, tx, vdev, &map).await?;
        }
        Ok(self.state().kept().next().is_some())
    }

    /// Frees what the last block of a map has; the map itself when that was all.
    async fn discard_block(&self, mos: &Arc<LiveObjset>, tx: &Tx, vdev: VdevId, map: &VdevMap) -> Result<()> {
        let what = || format!("what the checkpoint keeps of top-level vdev {vdev}");
        let OnDisk { object: Some(id), length_bytes, allocated_bytes } = map.on_disk else {
            self.state().vdev_maps.remove(&vdev);
            return Ok(());
        };
        let object = mos.object(id).await?;
        let rest = length_bytes.saturating_sub(1) / object.block_size() * object.block_size();
        let mut bytes = vec![0; (length_bytes - rest) as usize];
        object.read_at(rest, &mut bytes).await?;
        let mut freed = 0i64;
        for entry in Entries::new(&bytes, ByteOrder::Little) {
            let Entry::Segment(segment) = entry.map_err(Error::format(what()))? else { continue };
            let range = segment.bytes(ByteOffset(0), u64::MAX, map.purpose.shift());
            let (from, length) = range.map_err(Error::format(what()))?;
            if segment.kind != MapType::Free {
                return Err(Error::corrupt(what(), "something is allocated there"));
            }
            let to = from.get().saturating_add(length);
            self.state().group(vdev)?.free(from.get(), to, tx.txg())?;
            freed = freed.saturating_add_unsigned(length);
        }
        if rest > 0 {
            let allocated_bytes = allocated_bytes.saturating_add(freed);
            object.punch(tx, rest, u64::MAX).await?;
            set_header(&object, tx, rest, allocated_bytes, |old| old)?;
            if let Some(map) = self.state().vdev_maps.get_mut(&vdev) {
                map.on_disk = OnDisk { object: Some(id), length_bytes: rest, allocated_bytes };
            }
            return Ok(());
        }
        let top = mos.object(map.top_zap).await?;
        edit::remove(&top, tx, &name(map.purpose.entry())).await?;
        let has_histogram = super::sync::has_histogram(&object)?;
        mos.free(tx, id).await?;
        let mut state = self.state();
        state.vdev_maps.remove(&vdev);
        if has_histogram {
            state.feature_changes.push((Feature::SpacemapHistogram, -1));
        }
        Ok(())
    }
}

impl State {
    /// The maps of what is kept.
    fn kept(&self) -> impl DoubleEndedIterator<Item = (VdevId, &VdevMap)> {
        let maps = self.vdev_maps.iter().map(|(vdev, map)| (*vdev, map));
        maps.filter(|(_, map)| matches!(map.purpose, Purpose::Checkpoint { .. }))
    }

    /// Notes that a range, which stays allocated, is only the checkpoint's from group `txg` on.
    pub(super) fn keep(&mut self, vdev: VdevId, from: u64, to: u64, txg: Txg) -> Result<()> {
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
