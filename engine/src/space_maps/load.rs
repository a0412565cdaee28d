//! Reading the allocated space when a pool is opened, and laying out a new vdev.
//!
//! The state of a metaslab is its space map plus the log space maps of the groups since its last flush.
//! Opening a pool reads only the headers of the maps, and all logs. Then the amount of allocated space is
//! known everywhere; the free runs of a metaslab are read when its space is requested.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use ondisk::dmu::DmuType;
use ondisk::metaslab::{MetaslabLayout, MetaslabUnflushedPhys, space_maps};
use ondisk::pool_directory::{self, DIRECTORY_OBJECT, top_zap};
use ondisk::space_map::{HISTOGRAM_BUCKETS, MapType, SpaceMapPhys};
use ondisk::{ByteOffset, ObjectId, Reader, Txg, VdevId, log_space_map};

use super::replay;
use super::sync::Enabled;
use crate::alloc::Allocator;
use crate::alloc::allocator::{MetaslabId, SpaceMaps, State};
use crate::alloc::group::{Group, GroupConfig};
use crate::alloc::grow::{MAX_METASLABS, bounds};
use crate::alloc::log::Log;
use crate::alloc::metaslab::{Bounds, Changes, Metaslab, OnDisk};
use crate::alloc::vdev_map::{Purpose, VdevMap};
use crate::dmu::{LiveObjset, NewObject, Objset, zap};
use crate::error::{Error, Result};
use crate::range_set::RangeSet;
use crate::store::Store;
use crate::tunables;
use crate::txg::Tx;
use crate::vdev::capacity::choose_ms_shift;
use crate::vdev::{Kind, Vdev};

/// The most log space maps.
const MAX_LOGS: usize = 1 << 20;
/// Log space maps count in sectors of 512 bytes, whatever the vdev's sector size.
pub const LOG_SHIFT: u8 = 9;
/// The block whose raw size determines the share of parity on a vdev.
const DEFLATE_BLOCK_BYTES: u64 = 128 << 10;

/// The relevant parts of a vdev's config.
fn config_of(top: &Vdev, array: ObjectId, ms_shift: u8, added: Option<Txg>) -> Result<GroupConfig> {
    let vdev = u32::try_from(top.id).map_err(|_| Error::corrupt(&top.name, "its number is too large"))?;
    // The size before any expansion.
    let asize = top.psize_to_asize(DEFLATE_BLOCK_BYTES, 0);
    let asize = asize.ok_or_else(|| Error::corrupt(&top.name, "has no sizes of blocks"))?;
    Ok(GroupConfig {
        vdev,
        class: top.class(),
        ms_shift,
        array,
        top_zap: top.config.top_zap,
        deflate_ratio: DEFLATE_BLOCK_BYTES / (asize >> 9).max(1),
        aliquot_bytes: tunables::METASLAB_ALIQUOT.get() * top.children.len().max(1) as u64,
        added,
        allocating: !top.config.non_allocating,
    })
}

/// Lays out a new vdev. Its ZAP is not in its config yet.
pub async fn new_group(
    mos: &Arc<LiveObjset>,
    tx: &Tx,
    top: &Vdev,
    top_zap: Option<ObjectId>,
) -> Result<(Group, ObjectId, u8)> {
    let ms_shift = choose_ms_shift(top.asize());
    let layout = MetaslabLayout::new(ms_shift.into(), top.asize()).map_err(Error::format(&top.name))?;
    let metaslabs = bounds(top, layout)?.into_iter().map(Metaslab::unused).collect::<Vec<_>>();
    if metaslabs.is_empty() {
        return Err(Error::Invalid(format!("{}: too small for a metaslab", top.name)));
    }
    let array = mos.allocate(tx, new_array()).await?;
    array.write_at(tx, 0, &vec![0; metaslabs.len() * 8]).await?;
    let config = GroupConfig { top_zap, ..config_of(top, array.id(), ms_shift, Some(tx.txg()))? };
    let group = Group::new(config, metaslabs);
    Ok((group, array.id(), ms_shift))
}

/// An array of numbers.
pub fn new_array() -> NewObject {
    NewObject {
        dmu_type: DmuType::OBJECT_ARRAY,
        block_size: 4096,
        bonus_type: DmuType::NONE,
        bonus: Vec::new(),
        slots: 1,
    }
}

/// The MOS as the source of space maps.
#[derive(Debug)]
struct Mos(Arc<LiveObjset>);

impl SpaceMaps for Mos {
    fn read(&self, map: ObjectId, bounds: Bounds) -> BoxFuture<'_, Result<RangeSet>> {
        async move { replay::load(&self.0.view(), map, bounds.start, bounds.size, bounds.shift).await }
            .boxed()
    }
}

impl Allocator {
    /// The space of a pool, according to the MOS and its log space maps.
    pub async fn load(store: &Arc<Store>, mos: &Arc<LiveObjset>) -> Result<Arc<Self>> {
        let allocator = Self::of(store, load(store, &mos.view()).await?);
        let _ = allocator.source.set(Box::new(Mos(Arc::clone(mos))));
        Ok(allocator)
    }

    /// Adds a new top-level vdev with this ZAP: creates its metaslab array in the MOS. Returns (metaslab
    /// array, ms_shift). Until the group of `tx` is committed, only blocks of that group are placed on it.
    pub async fn add_top(
        &self,
        mos: &Arc<LiveObjset>,
        tx: &Tx,
        top: &Vdev,
        top_zap: Option<ObjectId>,
    ) -> Result<(ObjectId, u8)> {
        let (group, array, ms_shift) = new_group(mos, tx, top, top_zap).await?;
        let _ = self.source.set(Box::new(Mos(Arc::clone(mos))));
        self.state().add_group(group);
        Ok((array, ms_shift))
    }
}

/// Reads the space of all vdevs.
pub async fn load(store: &Store, mos: &Arc<Objset>) -> Result<State> {
    let root = mos.object(DIRECTORY_OBJECT).await?;
    let deflate = zap::lookup_u64(&root, pool_directory::DEFLATE).await?;
    let mut state = State::new(deflate.is_some_and(|on| on != 0));
    let (zap, mut logs) = read_logs(mos).await?;
    state.logs.zap = zap;
    let mut unflushed = Unflushed::default();
    for top in &store.vdevs().tops {
        if let Some((array, since)) = unflushed_txgs(mos, top).await? {
            state.logs.set_array(VdevId(top.id as u32), array);
            unflushed.since.insert(top.id, since);
        }
    }
    read_changes(store, mos, &mut logs, &mut unflushed).await?;
    for (txg, log) in logs {
        state.logs.set_log(txg, log);
    }
    if Enabled::read(mos).await?.obsolete {
        for top in store.vdevs().tops.iter().filter(|top| matches!(top.kind, Kind::Indirect(_))) {
            let top_zap = top.config.top_zap.ok_or_else(|| {
                Error::Unsupported(format!("{}: it has no ZAP; the pool can be read only", top.name))
            })?;
            let begun = VdevMap::load(mos, Purpose::Obsolete, top_zap).await?;
            let map = begun.unwrap_or_else(|| VdevMap::new(Purpose::Obsolete, top_zap));
            state.vdev_maps.insert(VdevId(top.id as u32), map);
        }
    }
    for top in &store.vdevs().tops {
        let Some(group) = load_group(mos, top, &mut unflushed).await? else { continue };
        if zap.is_some() && group.top_zap.is_none() {
            let detail = "log space maps need one; the pool can be read only";
            return Err(Error::Unsupported(format!("{}: it has no ZAP, and {detail}", top.name)));
        }
        let since = unflushed.since.get(&top.id);
        for (place, metaslab) in group.metaslabs().iter().enumerate() {
            let since = since.and_then(|since| since.get(place)).copied().unwrap_or(Txg::NONE);
            let dirty = !metaslab.unflushed.is_empty();
            if dirty || since != Txg::NONE {
                state.logs.set(MetaslabId { vdev: VdevId(group.vdev), place }, since, dirty);
            }
            state.unflushed_runs += metaslab.unflushed.runs();
        }
        if let Some(top_zap) = group.top_zap {
            let purpose = Purpose::Checkpoint { shift: top.ashift as u8, ms_shift: group.ms_shift };
            if let Some(kept) = VdevMap::load(mos, purpose, top_zap).await? {
                state.vdev_maps.insert(VdevId(group.vdev), kept);
            }
        }
        state.add_group(group);
    }
    Ok(state)
}

/// The changes of metaslabs in log space maps.
#[derive(Default)]
struct Unflushed {
    /// By vdev, for each metaslab the group since which its changes are only in logs.
    since: BTreeMap<u64, Vec<Txg>>,
    /// By vdev and metaslab.
    changes: BTreeMap<(u64, u64), Changes>,
}

/// The metaslabs of a vdev; `None` if it has none.
async fn load_group(mos: &Arc<Objset>, top: &Vdev, unflushed: &mut Unflushed) -> Result<Option<Group>> {
    let Some((array, layout)) = layout_of(top)? else { return Ok(None) };
    if top.config.removing {
        return Err(Error::Unsupported(format!("{}: is being removed; the pool can be read only", top.name)));
    }
    let bounds = bounds(top, layout)?;
    let words = array_of_words(mos, array, layout.count()).await?;
    let mut metaslabs = Vec::with_capacity(bounds.len());
    for ((index, bounds), map) in (0u64..).zip(bounds).zip(words.into_iter().chain(std::iter::repeat(None))) {
        let mut metaslab = match map {
            None => Metaslab::unused(bounds),
            Some(map) => unloaded_metaslab(mos, bounds, map).await?,
        };
        if let Some(changes) = unflushed.changes.remove(&(top.id, index)) {
            metaslab.set_unflushed(changes)?;
        }
        metaslabs.push(metaslab);
    }
    let ms_shift = layout.size_bytes().trailing_zeros() as u8;
    Ok(Some(Group::new(config_of(top, array, ms_shift, None)?, metaslabs)))
}

/// A metaslab according to the header of its map.
async fn unloaded_metaslab(mos: &Arc<Objset>, bounds: Bounds, map: ObjectId) -> Result<Metaslab> {
    let (on_disk, histogram) = read_header(mos, map).await?;
    if u64::try_from(on_disk.allocated_bytes).ok().is_none_or(|allocated| allocated > bounds.size) {
        let detail = format!("{} bytes allocated of {}", on_disk.allocated_bytes, bounds.size);
        return Err(Error::corrupt(format!("space map {map}"), detail));
    }
    Ok(Metaslab::unloaded(bounds, on_disk, histogram))
}

/// The header of a map.
pub async fn read_header(
    mos: &Arc<Objset>,
    map: ObjectId,
) -> Result<(OnDisk, Option<[u64; HISTOGRAM_BUCKETS]>)> {
    let object = mos.object(map).await?;
    let (bonus, order) = object.bonus();
    let phys = SpaceMapPhys::parse(bonus, order).map_err(Error::format(format!("space map {map}")))?;
    let SpaceMapPhys { length_bytes, allocated_bytes, histogram, .. } = phys;
    Ok((OnDisk { object: Some(map), length_bytes, allocated_bytes }, histogram))
}

/// The metaslab array of a vdev, and the layout of its metaslabs; `None` for a vdev without metaslabs.
fn layout_of(top: &Vdev) -> Result<Option<(ObjectId, MetaslabLayout)>> {
    if matches!(top.kind, Kind::Indirect(_) | Kind::Hole | Kind::Missing) {
        return Ok(None);
    }
    let (Some(array), Some(shift)) = (top.config.metaslab_array, top.config.metaslab_shift) else {
        return Ok(None);
    };
    let layout = MetaslabLayout::new(shift.into(), top.asize()).map_err(Error::format(&top.name))?;
    Ok(Some((array, layout)))
}

/// The numbers in an object; 0 means none, and so do numbers beyond its end.
async fn array_of_words(mos: &Arc<Objset>, id: ObjectId, count: u64) -> Result<Vec<Option<ObjectId>>> {
    let object = mos.object(id).await?;
    let length = object.end().min(count.min(MAX_METASLABS) * 8);
    let bytes = object.read_all(length, length as usize).await?;
    let order = object.block(0).await?.map_or(object.bonus().1, |found| found.order);
    Ok(space_maps(&bytes, order).collect())
}

/// How far the metaslabs of a vdev are flushed, and the object that records it.
async fn unflushed_txgs(mos: &Arc<Objset>, top: &Vdev) -> Result<Option<(ObjectId, Vec<Txg>)>> {
    let Some(zap_id) = top.config.top_zap else { return Ok(None) };
    let zap_object = mos.object(zap_id).await?;
    let found = zap::lookup_u64(&zap_object, top_zap::MS_UNFLUSHED_PHYS_TXGS).await?;
    let (Some(id), Some((_, layout))) = (found, layout_of(top)?) else { return Ok(None) };
    let object = mos.object(ObjectId(id)).await?;
    let length = object.end().min(layout.count().min(MAX_METASLABS) * 8);
    let bytes = object.read_all(length, length as usize).await?;
    let order = object.block(0).await?.map_or(object.bonus().1, |found| found.order);
    let mut reader = Reader::new("unflushed txgs", &bytes, order);
    let txgs = std::iter::from_fn(|| MetaslabUnflushedPhys::read(&mut reader).ok());
    Ok(Some((ObjectId(id), txgs.map(|phys| phys.unflushed_txg).collect())))
}

/// The log space maps of a pool, oldest first.
async fn read_logs(mos: &Arc<Objset>) -> Result<(Option<ObjectId>, BTreeMap<Txg, Log>)> {
    let root = mos.object(DIRECTORY_OBJECT).await?;
    let Some(id) = zap::lookup_u64(&root, pool_directory::LOG_SPACEMAP_ZAP).await? else {
        return Ok((None, BTreeMap::new()));
    };
    let entries = zap::Zap::open(&mos.object(ObjectId(id)).await?).await?.entries(MAX_LOGS).await?;
    let mut logs = BTreeMap::new();
    for entry in entries {
        let key = entry.key.name().unwrap_or_default();
        let txg = log_space_map::parse_key(key).map_err(Error::format("log space maps"))?;
        let object = ObjectId(entry.value.as_u64().unwrap_or(0));
        let empty = Log { object, length_bytes: 0, block_bytes: 1, allocated_bytes: 0, has_histogram: false };
        logs.insert(txg, empty);
    }
    Ok((Some(ObjectId(id)), logs))
}

/// Reads all log space maps.
async fn read_changes(
    store: &Store,
    mos: &Arc<Objset>,
    logs: &mut BTreeMap<Txg, Log>,
    unflushed: &mut Unflushed,
) -> Result<()> {
    let mut layouts = BTreeMap::new();
    for top in &store.vdevs().tops {
        if let Some((_, layout)) = layout_of(top)? {
            layouts.insert(top.id, layout);
        }
    }
    for (&log_txg, log) in logs.iter_mut() {
        let (since, changes) = (&unflushed.since, &mut unflushed.changes);
        let phys = replay::for_each(mos, log.object, |segment| {
            let what = || format!("log space map {}", log.object);
            let vdev = u64::from(segment.vdev.map_or(0, VdevId::get));
            // The vdev was removed since, with its space.
            let Some(layout) = layouts.get(&vdev) else { return Ok(()) };
            let (start, length) =
                segment.bytes(ByteOffset(0), u64::MAX, LOG_SHIFT).map_err(Error::format(what()))?;
            let (from, to) = (start.get(), start.get().saturating_add(length));
            let last = layout.index_of(ByteOffset(to.saturating_sub(1)));
            let Some(index) = layout.index_of(start).filter(|index| last == Some(*index)) else {
                return Err(Error::corrupt(what(), format!("{from:#x}..{to:#x} is not in one metaslab")));
            };
            let txgs = since.get(&vdev).and_then(|txgs| txgs.get(usize::try_from(index).ok()?));
            let unflushed_txg = txgs.copied().unwrap_or(Txg::NONE);
            if log_space_map::applies(log_txg, MetaslabUnflushedPhys { unflushed_txg }) {
                let changes = changes.entry((vdev, index)).or_default();
                match segment.kind {
                    MapType::Alloc => changes.alloc(from, to),
                    MapType::Free => changes.free(from, to),
                }
            }
            Ok(())
        })
        .await?;
        log.block_bytes = mos.object(log.object).await?.block_size();
        log.length_bytes = phys.length_bytes;
        log.allocated_bytes = phys.allocated_bytes;
        log.has_histogram = phys.histogram.is_some();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metaslabs_are_as_large_as_openzfs_makes_them() {
        let shifts = [64 << 20, 1 << 30, 8 << 30, 100 << 30, 1 << 40, 3 << 40, 1 << 50, 4 << 50]
            .map(|asize: u64| (choose_ms_shift(asize), asize >> choose_ms_shift(asize)));
        assert_eq!(
            shifts,
            [(24, 4), (27, 8), (29, 16), (29, 200), (33, 128), (34, 192), (34, 65536), (36, 65536)]
        );
    }
}
