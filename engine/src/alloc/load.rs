//! Reading what is allocated when a pool is opened, and laying out a new vdev.
//!
//! A metaslab's state is its space map, and on top of it the log space maps of groups since it was last flushed. What came from logs is remembered apart
//! ([`super::metaslab::Changes`]), since its own map lacks it.

use std::collections::BTreeMap;
use std::sync::Arc;

use ondisk::dmu::DmuType;
use ondisk::metaslab::{MetaslabLayout, MetaslabUnflushedPhys, space_maps};
use ondisk::pool_directory::{self, DIRECTORY_OBJECT, top_zap};
use ondisk::space_map::{MapType, SpaceMapPhys};
use ondisk::{ByteOffset, ObjectId, Reader, Txg, VdevId, log_space_map};

use super::allocator::State;
use super::class::ALIQUOT_BYTES;
use super::group::{Group, GroupConfig};
use super::metaslab::{Bounds, Changes, Metaslab, OnDisk};
use super::space_map;
use super::sync::Log;
use crate::Pool;
use crate::dmu::{LiveObjset, NewObject, Objset, zap};
use crate::error::{Error, Result};
use crate::txg::Tx;
use crate::vdev::{Kind, Vdev};

/// More metaslabs than a vdev can have: OpenZFS aims at 200 and allows 128 K.
const MAX_METASLABS: u64 = 1 << 20;
/// Most log space maps.
const MAX_LOGS: usize = 1 << 20;
/// Log space maps count in sectors of 512 bytes, whatever the vdev's sector size.
pub const LOG_SHIFT: u8 = 9;
/// A block whose raw size tells how much of a vdev is parity.
const DEFLATE_BLOCK_BYTES: u64 = 128 << 10;

/// Metaslabs are at least as large as the largest block.
const MIN_MS_SHIFT: u32 = 24;
/// The usual size.
const DEFAULT_MS_SHIFT: u32 = 29;
/// The largest, unless there would be too many.
const MAX_MS_SHIFT: u32 = 34;
/// Fewer make metaslabs smaller than usual.
const MIN_METASLABS: u64 = 16;
/// More make them larger.
const USUAL_METASLABS: u64 = 200;
/// More than this many make them larger than the largest.
const METASLABS_LIMIT: u64 = 1 << 17;

/// The size of metaslabs of a new vdev of `asize` bytes, as a power of two (`vdev_metaslab_set_size`).
pub fn choose_ms_shift(asize: u64) -> u8 {
    let above = |number: u64| number.checked_ilog2().map_or(0, |power| power + 1);
    let usual = asize >> DEFAULT_MS_SHIFT;
    let shift = if usual < MIN_METASLABS {
        above(asize / MIN_METASLABS)
    } else if usual > USUAL_METASLABS {
        above(asize / USUAL_METASLABS)
    } else {
        DEFAULT_MS_SHIFT
    };
    let mut shift = shift.max(MIN_MS_SHIFT);
    if shift > MAX_MS_SHIFT {
        shift = MAX_MS_SHIFT;
        if asize >> shift > METASLABS_LIMIT {
            shift = above(asize / METASLABS_LIMIT);
        }
    }
    shift as u8
}

/// What of a vdev's config matters here.
fn config_of(top: &Vdev, array: ObjectId, ms_shift: u8, added: Option<Txg>) -> Result<GroupConfig> {
    let vdev = u32::try_from(top.id).map_err(|_| Error::corrupt(&top.name, "its number is too large"))?;
    // As it was before any expansion.
    let asize = top.psize_to_asize(DEFLATE_BLOCK_BYTES, 0);
    let asize = asize.ok_or_else(|| Error::corrupt(&top.name, "has no sizes of blocks"))?;
    Ok(GroupConfig {
        vdev,
        class: top.class(),
        ms_shift,
        array,
        top_zap: top.config.top_zap,
        deflate_ratio: DEFLATE_BLOCK_BYTES / (asize >> 9).max(1),
        aliquot_bytes: ALIQUOT_BYTES * top.children.len().max(1) as u64,
        added,
        allocating: !top.config.non_allocating,
    })
}

/// Lays out a new vdev.
pub async fn new_group(mos: &Arc<LiveObjset>, tx: &Tx, top: &Vdev) -> Result<(Group, ObjectId, u8)> {
    let ms_shift = choose_ms_shift(top.asize);
    let layout = MetaslabLayout::new(ms_shift.into(), top.asize).map_err(Error::format(&top.name))?;
    let metaslabs = bounds(top, layout)?.into_iter().map(Metaslab::unused).collect::<Vec<_>>();
    if metaslabs.is_empty() {
        return Err(Error::Invalid(format!("{}: too small for a metaslab", top.name)));
    }
    let array = mos.allocate(tx, new_array()).await?;
    array.write_at(tx, 0, &vec![0; metaslabs.len() * 8]).await?;
    let group = Group::new(config_of(top, array.id(), ms_shift, Some(tx.txg()))?, metaslabs);
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

/// Where the metaslabs of a vdev lie.
fn bounds(top: &Vdev, layout: MetaslabLayout) -> Result<Vec<Bounds>> {
    if layout.count() > MAX_METASLABS {
        return Err(Error::corrupt(&top.name, format!("{} metaslabs", layout.count())));
    }
    let starts = (0..layout.count()).filter_map(|index| layout.start(index));
    starts.map(|start| Bounds::of(top, start.get(), layout.size_bytes())).collect()
}

/// Reads the space of all vdevs.
pub async fn load(pool: &Arc<Pool>, mos: &Arc<Objset>) -> Result<State> {
    if let Some(removed) = pool.vdevs().tops.iter().find(|top| matches!(top.kind, Kind::Indirect(_))) {
        return Err(Error::Unsupported(format!("{}: was removed; the pool can be read only", removed.name)));
    }
    let root = mos.object(DIRECTORY_OBJECT).await?;
    let deflate = zap::lookup_u64(&root, pool_directory::DEFLATE).await?;
    let mut state = State::new(deflate.is_some_and(|on| on != 0));
    let mut logs = read_logs(mos).await?;
    let mut unflushed = Unflushed::default();
    for top in &pool.vdevs().tops {
        if let Some(since) = unflushed_txgs(mos, top).await? {
            unflushed.arrays.push((VdevId(top.id as u32), since.0));
            unflushed.since.insert(top.id, since.1);
        }
    }
    read_changes(pool, mos, &mut logs, &mut unflushed).await?;
    for top in &pool.vdevs().tops {
        if let Some(group) = load_group(mos, top, &mut unflushed).await? {
            state.add_group(group);
        }
    }
    state.logs.take_up(logs, unflushed.arrays);
    Ok(state)
}

/// What log space maps add to the metaslabs.
#[derive(Default)]
struct Unflushed {
    /// For each vdev the object that says how far its metaslabs are flushed.
    arrays: Vec<(VdevId, ObjectId)>,
    /// By vdev, for each metaslab the group since which changes are only in logs.
    since: BTreeMap<u64, Vec<Txg>>,
    /// By vdev and metaslab.
    changes: BTreeMap<(u64, u64), Changes>,
}

/// The metaslabs of a vdev; `None` where it has none.
async fn load_group(mos: &Arc<Objset>, top: &Vdev, unflushed: &mut Unflushed) -> Result<Option<Group>> {
    let Some((array, layout)) = layout_of(top)? else { return Ok(None) };
    if top.config.removing {
        return Err(Error::Unsupported(format!("{}: is being removed; the pool can be read only", top.name)));
    }
    let bounds = bounds(top, layout)?;
    let words = array_of_words(mos, array, layout.count()).await?;
    let mut metaslabs = Vec::with_capacity(bounds.len());
    for ((index, bounds), map) in (0u64..).zip(bounds).zip(words.into_iter().chain(std::iter::repeat(None))) {
        let mut changes = unflushed.changes.remove(&(top.id, index)).unwrap_or_default();
        let mut metaslab = match map {
            None if changes.is_empty() => Metaslab::unused(bounds),
            map => load_metaslab(mos, bounds, map, &mut changes).await?,
        };
        metaslab.unflushed = changes;
        metaslabs.push(metaslab);
    }
    let ms_shift = layout.size_bytes().trailing_zeros() as u8;
    Ok(Some(Group::new(config_of(top, array, ms_shift, None)?, metaslabs)))
}

async fn load_metaslab(
    mos: &Arc<Objset>,
    bounds: Bounds,
    map: Option<ObjectId>,
    changes: &mut Changes,
) -> Result<Metaslab> {
    let Bounds { start, size, shift } = bounds;
    let (on_disk, mut allocated) = match map {
        None => (OnDisk::default(), super::RangeSet::default()),
        Some(map) => {
            let allocated = space_map::load(mos, map, start, size, shift).await?;
            let object = mos.object(map).await?;
            let (bonus, order) = object.bonus();
            let what = || format!("space map {map}");
            let phys = SpaceMapPhys::parse(bonus, order).map_err(Error::format(what()))?;
            if i64::try_from(allocated.total()).ok() != Some(phys.allocated_bytes) {
                return Err(Error::corrupt(what(), "its header and its entries disagree"));
            }
            let SpaceMapPhys { length_bytes, allocated_bytes, .. } = phys;
            (OnDisk { object: Some(map), length_bytes, allocated_bytes }, allocated)
        }
    };
    let wrong = |what: &str, from: u64| {
        Error::corrupt("log space maps", format!("{what} twice at {from:#x} of a metaslab at {start:#x}"))
    };
    for (from, to) in changes.frees.iter() {
        if allocated.remove(from, to) != to - from {
            return Err(wrong("freed", from));
        }
    }
    for (from, to) in changes.allocs.iter() {
        if allocated.add(from, to) != 0 {
            return Err(wrong("allocated", from));
        }
    }
    let mut metaslab = Metaslab::unloaded(bounds, on_disk);
    metaslab.load(&allocated)?;
    Ok(metaslab)
}

/// The metaslab array of a vdev, and how it is cut; `None` for one without metaslabs.
fn layout_of(top: &Vdev) -> Result<Option<(ObjectId, MetaslabLayout)>> {
    if matches!(top.kind, Kind::Indirect(_) | Kind::Hole | Kind::Missing) {
        return Ok(None);
    }
    let (Some(array), Some(shift)) = (top.config.metaslab_array, top.config.metaslab_shift) else {
        return Ok(None);
    };
    let layout = MetaslabLayout::new(shift.into(), top.asize).map_err(Error::format(&top.name))?;
    Ok(Some((array, layout)))
}

/// The numbers in an object; 0 is none. Beyond its end there are none.
async fn array_of_words(mos: &Arc<Objset>, id: ObjectId, count: u64) -> Result<Vec<Option<ObjectId>>> {
    let object = mos.object(id).await?;
    let length = object.end().min(count.min(MAX_METASLABS) * 8);
    let bytes = object.read_all(length, length as usize).await?;
    let order = object.block(0).await?.map_or(object.bonus().1, |found| found.order);
    Ok(space_maps(&bytes, order).collect())
}

/// How far the metaslabs of a vdev are flushed, and the object that says so.
async fn unflushed_txgs(mos: &Arc<Objset>, top: &Vdev) -> Result<Option<(ObjectId, Vec<Txg>)>> {
    let Some(zap_id) = top.config.top_zap else { return Ok(None) };
    let zap_object = mos.object(zap_id).await?;
    if zap::lookup_u64(&zap_object, top_zap::POOL_CHECKPOINT_SM).await?.is_some() {
        return Err(Error::Unsupported(format!(
            "{}: keeps space for a checkpoint; the pool can be read only",
            top.name
        )));
    }
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
        logs.insert(txg, Log { object, length_bytes: 0, has_histogram: false });
    }
    Ok((Some(ObjectId(id)), logs))
}

/// Reads all log space maps.
async fn read_changes(
    pool: &Arc<Pool>,
    mos: &Arc<Objset>,
    (_, logs): &mut (Option<ObjectId>, BTreeMap<Txg, Log>),
    unflushed: &mut Unflushed,
) -> Result<()> {
    let mut layouts = BTreeMap::new();
    for top in &pool.vdevs().tops {
        if let Some((_, layout)) = layout_of(top)? {
            layouts.insert(top.id, layout);
        }
    }
    for (&log_txg, log) in logs.iter_mut() {
        let (since, changes) = (&unflushed.since, &mut unflushed.changes);
        let phys = space_map::for_each(mos, log.object, |segment| {
            let what = || format!("log space map {}", log.object);
            let vdev = u64::from(segment.vdev.map_or(0, VdevId::get));
            // Removed since: its space is gone with it.
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
        log.length_bytes = phys.length_bytes;
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
