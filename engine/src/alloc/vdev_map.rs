//! Space maps of whole vdevs, beside those of their metaslabs.
//!
//! # The idea
//! A block that is freed does not always become free space:
//!
//! - A block whose address is on a *removed* vdev lies elsewhere ([`crate::vdev::indirect`]), and there its space becomes free. Of the old range it is noted that
//!   nothing refers to it any more. From these *obsolete* ranges OpenZFS sees which part of the mapping can be left out, and `zdb` which blocks there are.
//!
//! Each such vdev has a space map that only grows, in units of a byte. It is begun with the first range, and named in the vdev's ZAP.
//!
//! Plain data without a lock; the allocator's guards it. Source of the facts: OpenZFS 2.3 `vdev_indirect.c`.

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
use crate::dmu::{LiveObjset, Objset};
use crate::error::{Error, Result};
use crate::txg::Tx;
use crate::vdev::Vdev;

/// Bytes in a block of a map.
const BLOCK_BYTES: u32 = 128 << 10;

/// What is obsolete of one removed vdev.
#[derive(Debug)]
pub struct VdevMap {
    /// The vdev's ZAP.
    top_zap: ObjectId,
    on_disk: OnDisk,
    /// Ranges that groups add.
    pending: BTreeMap<Txg, RangeSet>,
}

impl VdevMap {
    /// As the MOS has it.
    pub async fn load(mos: &Arc<Objset>, top: &Vdev) -> Result<Self> {
        let top_zap = top.config.top_zap.ok_or_else(|| {
            Error::Unsupported(format!("{}: it has no ZAP; the pool can be read only", top.name))
        })?;
        let map = zap::lookup_u64(&mos.object(top_zap).await?, top_zap::INDIRECT_OBSOLETE_SM).await?;
        let on_disk = match map {
            Some(map) => read_header(mos, ObjectId(map)).await?.0,
            None => OnDisk::default(),
        };
        Ok(Self { top_zap, on_disk, pending: BTreeMap::new() })
    }

    /// Adds a range.
    pub fn add(&mut self, from: u64, to: u64, txg: Txg) -> Result<()> {
        if self.pending.entry(txg).or_default().add(from, to) != 0 {
            return Err(Error::corrupt("a removed vdev", format!("{from:#x}..{to:#x} is freed twice")));
        }
        Ok(())
    }

    /// Whether group `txg` adds anything that is not written.
    pub fn has_changes(&self, txg: Txg) -> bool {
        self.pending.contains_key(&txg)
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
        for (vdev, top_zap, before, ranges) in jobs {
            let object = match before.object {
                Some(id) => mos.object(id).await?,
                None => {
                    let object = mos.allocate(tx, new_map(BLOCK_BYTES, enabled)).await?;
                    let top = mos.object(top_zap).await?;
                    let key = name(top_zap::INDIRECT_OBSOLETE_SM);
                    edit::set(&top, tx, &key, &number(object.id().get())).await?;
                    let mut state = self.state();
                    state.feature_changes.push((Feature::ObsoleteCounts, 1));
                    if enabled.histogram {
                        state.feature_changes.push((Feature::SpacemapHistogram, 1));
                    }
                    object
                }
            };
            let form = Form {
                start: ByteOffset(0),
                shift: 0,
                block_bytes: object.block_size(),
                two_words: enabled.two_words,
            };
            let mut words = Words::new(form, before.length_bytes);
            words.batch(MapType::Alloc, (tx.txg(), pass), None, ranges.iter())?;
            object.write_at(tx, before.length_bytes, &words.bytes()).await?;
            let on_disk = OnDisk {
                object: Some(object.id()),
                length_bytes: words.length_bytes(),
                allocated_bytes: before.allocated_bytes.saturating_add(ranges.total() as i64),
            };
            set_header(&object, tx, on_disk.length_bytes, on_disk.allocated_bytes, |old| old)?;
            if let Some(map) = self.state().vdev_maps.get_mut(&vdev) {
                map.on_disk = on_disk;
            }
        }
        Ok(())
    }
}

/// A vdev, its ZAP, its map as it is, and what is to be added.
type Job = (VdevId, ObjectId, OnDisk, RangeSet);

impl State {
    fn take_vdev_maps(&mut self, txg: Txg) -> Vec<Job> {
        let maps = self.vdev_maps.iter_mut();
        maps.filter_map(|(vdev, map)| Some((*vdev, map.top_zap, map.on_disk, map.pending.remove(&txg)?)))
            .collect()
    }
}
