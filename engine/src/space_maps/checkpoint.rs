//! Freeing the space that was kept for a checkpoint ([`crate::alloc::checkpoint`]).

use std::sync::Arc;

use ondisk::features::Feature;
use ondisk::space_map::{Entries, Entry, MapType};
use ondisk::{ByteOffset, ByteOrder, VdevId};

use super::flush::name;
use super::sync::set_header;
use crate::alloc::Allocator;
use crate::alloc::metaslab::OnDisk;
use crate::alloc::vdev_map::VdevMap;
use crate::dmu::LiveObjset;
use crate::dmu::zap::edit;
use crate::error::{Error, Result};
use crate::txg::Tx;

/// The most blocks of maps that one group handles: some hundred thousand entries.
const DISCARD_BLOCKS: usize = 8;

impl Allocator {
    /// Frees some of the space that was kept for a discarded checkpoint. Returns false when none is left.
    pub async fn discard_kept(&self, mos: &Arc<LiveObjset>, tx: &Tx) -> Result<bool> {
        for _ in 0..DISCARD_BLOCKS {
            let last = self.state().kept().next_back().map(|(vdev, map)| (vdev, map.clone()));
            let Some((vdev, map)) = last else { return Ok(false) };
            self.discard_block(mos, tx, vdev, &map).await?;
        }
        Ok(self.state().kept().next().is_some())
    }

    /// Frees the ranges in the last block of a map; the map itself after its last block.
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
