//! Reading and writing the space maps of whole vdevs ([`crate::alloc::vdev_map`]).

use std::sync::Arc;

use ondisk::features::Feature;
use ondisk::space_map::MapType;
use ondisk::{ByteOffset, ObjectId};

use super::append::{Form, Words};
use super::flush::{name, number};
use super::load::read_header;
use super::sync::{Enabled, new_map, set_header};
use crate::alloc::Allocator;
use crate::alloc::metaslab::OnDisk;
use crate::alloc::vdev_map::{Purpose, VdevMap};
use crate::dmu::zap::{self, edit};
use crate::dmu::{LiveObject, LiveObjset, Objset};
use crate::error::Result;
use crate::txg::Tx;

/// Bytes in a block of a map.
const BLOCK_BYTES: u32 = 128 << 10;

impl VdevMap {
    /// The map according to the MOS; `None` when it was not created yet.
    pub async fn load(mos: &Arc<Objset>, purpose: Purpose, top_zap: ObjectId) -> Result<Option<Self>> {
        let map = zap::lookup_u64(&mos.object(top_zap).await?, purpose.entry()).await?;
        let Some(map) = map.filter(|map| *map != 0) else { return Ok(None) };
        let (on_disk, _) = read_header(mos, ObjectId(map)).await?;
        let mut found = Self::new(purpose, top_zap);
        found.on_disk = on_disk;
        Ok(Some(found))
    }
}

impl Allocator {
    /// Writes the ranges that the group of `tx` added to maps of vdevs.
    pub(crate) async fn write_vdev_maps(
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
