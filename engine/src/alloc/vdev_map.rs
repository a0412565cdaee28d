//! Space maps of whole vdevs, beside those of their metaslabs.
//!
//! # The idea
//! A block that is freed does not always become free space:
//!
//! - A block whose address is on a *removed* vdev lies elsewhere ([`crate::vdev::indirect`]), and there its
//!   space becomes free. Of the old range it is noted that nothing refers to it any more. From these *obsolete*
//!   ranges OpenZFS sees which part of the mapping can be left out, and `zdb` which blocks there are.
//! - A block that the pool's *checkpoint* refers to stays allocated. What is freed of such blocks is noted,
//!   to be freed in earnest when the checkpoint is given up ([`super::checkpoint`]).
//!
//! Each such vdev has a space map that is only appended to. It is begun with the first range, and named in
//! the vdev's ZAP.
//!
//! | for | entries | unit | bounds |
//! |---|---|---|---|
//! | obsolete ranges | allocations | a byte | none |
//! | the checkpoint | frees | a sector | an entry lies in one metaslab |
//!
//! Plain data without a lock; the allocator's guards it. Source of the facts: OpenZFS 2.3 `vdev_indirect.c`,
//! `metaslab.c` (`metaslab_sync`).

use std::collections::BTreeMap;
use std::sync::Arc;

use ondisk::features::Feature;
use ondisk::pool_directory::top_zap;
use ondisk::space_map::MapType;
use ondisk::{ByteOffset, ObjectId, Txg, VdevId};

use super::RangeSet;
use super::allocator::{Allocator, State};
use super::flush::{name, number};
use super::load::read_header;
use super::metaslab::OnDisk;
use super::space_map::{Form, Words};
use super::sync::{Enabled, new_map, set_header};
use crate::dmu::zap::{self, edit};
use crate::dmu::{LiveObject, LiveObjset, Objset};
use crate::error::{Error, Result};
use crate::txg::Tx;

/// Bytes in a block of a map.
const BLOCK_BYTES: u32 = 128 << 10;

/// What a map is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// What nothing refers to any more, of a removed vdev.
    Obsolete,
    /// What only the checkpoint refers to.
    Checkpoint {
        /// Sector size of the vdev as a power of two.
        shift: u8,
        /// Size of its metaslabs as a power of two.
        ms_shift: u8,
    },
}

impl Purpose {
    /// The entry of the vdev's ZAP.
    pub fn entry(self) -> &'static str {
        match self {
            Self::Obsolete => top_zap::INDIRECT_OBSOLETE_SM,
            Self::Checkpoint { .. } => top_zap::POOL_CHECKPOINT_SM,
        }
    }

    fn kind(self) -> MapType {
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

    /// Cuts a range as entries must be.
    fn entries(self, (from, to): (u64, u64)) -> impl Iterator<Item = (u64, u64)> {
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
    /// A map that is begun with its first range.
    pub fn new(purpose: Purpose, top_zap: ObjectId) -> Self {
        Self { purpose, top_zap, on_disk: OnDisk::default(), pending: BTreeMap::new() }
    }

    /// As the MOS has it; `None` when it was not begun.
    pub async fn load(mos: &Arc<Objset>, purpose: Purpose, top_zap: ObjectId) -> Result<Option<Self>> {
        let map = zap::lookup_u64(&mos.object(top_zap).await?, purpose.entry()).await?;
        let Some(map) = map.filter(|map| *map != 0) else { return Ok(None) };
        let (on_disk, _) = read_header(mos, ObjectId(map)).await?;
        Ok(Some(Self { on_disk, ..Self::new(purpose, top_zap) }))
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

    /// Whether group `txg` adds anything that is not written.
    pub fn has_changes(&self, txg: Txg) -> bool {
        self.pending.contains_key(&txg)
    }

    /// Bytes of all its ranges that are written.
    pub fn total_bytes(&self) -> u64 {
        self.on_disk.allocated_bytes.unsigned_abs()
    }
}

impl Allocator {
    /// Writes what the group of `tx` added to maps of vdevs.
    pub(super) async fn write_vdev_maps(
        &self,
        mos: &Arc<LiveObjset>,
        tx: &Tx,
        pass: u16,
        enabled: Enabled,
    ) -> Result<()> {
        let jobs = self.state().take_vdev_maps(tx.txg());
        for (vdev, map, ranges) in jobs {
            let object = match map.on_disk.object {
                Some(id) => mos.object(id).await?,
                None => self.begin_vdev_map(mos, tx, &map, enabled).await?,
            };
            let form = Form {
                start: ByteOffset(0),
                shift: map.purpose.shift(),
                block_bytes: object.block_size(),
                two_words: enabled.two_words,
            };
            let at = map.on_disk.length_bytes;
            let mut words = Words::new(form, at);
            let entries = ranges.iter().flat_map(|range| map.purpose.entries(range));
            words.batch(map.purpose.kind(), (tx.txg(), pass), None, entries)?;
            object.write_at(tx, at, &words.bytes()).await?;
            let bytes = match map.purpose.kind() {
                MapType::Alloc => ranges.total() as i64,
                MapType::Free => -(ranges.total() as i64),
            };
            let on_disk = OnDisk {
                object: Some(object.id()),
                length_bytes: words.length_bytes(),
                allocated_bytes: map.on_disk.allocated_bytes.saturating_add(bytes),
            };
            set_header(&object, tx, on_disk.length_bytes, on_disk.allocated_bytes, |old| old)?;
            if let Some(map) = self.state().vdev_maps.get_mut(&vdev) {
                map.on_disk = on_disk;
            }
        }
        Ok(())
    }

    async fn begin_vdev_map(
        &self,
        mos: &Arc<LiveObjset>,
        tx: &Tx,
        map: &VdevMap,
        enabled: Enabled,
    ) -> Result<Arc<LiveObject>> {
        let object = mos.allocate(tx, new_map(BLOCK_BYTES, enabled)).await?;
        let top = mos.object(map.top_zap).await?;
        edit::set(&top, tx, &name(map.purpose.entry()), &number(object.id().get())).await?;
        let mut state = self.state();
        if map.purpose == Purpose::Obsolete {
            state.feature_changes.push((Feature::ObsoleteCounts, 1));
        }
        if enabled.histogram {
            state.feature_changes.push((Feature::SpacemapHistogram, 1));
        }
        Ok(object)
    }
}

impl State {
    /// Maps as they are, and what is to be added to each.
    fn take_vdev_maps(&mut self, txg: Txg) -> Vec<(VdevId, VdevMap, RangeSet)> {
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
