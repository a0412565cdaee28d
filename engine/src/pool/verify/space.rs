//! What the space maps call allocated, and whether that is what was claimed.
//!
//! Allocated is: each metaslab's space map, plus what the log space maps say that was not flushed to it yet,
//! minus what only the checkpoint still refers to. What a removal under way has copied is allocated twice,
//! and claimed in both places. A claim on a removed vdev is a claim on the places that its blocks were moved
//! to.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use ondisk::blkptr::{Dva, GANG_HEADER_SIZE};
use ondisk::brt::{BrtVdevPhys, directory_key};
use ondisk::metaslab::{MetaslabLayout, MetaslabUnflushedPhys, space_maps};
use ondisk::pool_directory::{self as directory, DIRECTORY_OBJECT, top_zap};
use ondisk::space_map::MapType;
use ondisk::{ByteOffset, ByteOrder, ObjectId, ObjsetId, Reader, Txg, VdevId, log_space_map};

use crate::Pool;
use crate::dmu::{Objset, zap};
use crate::error::{Error, Result};
use crate::pool::load::read_moved;
use crate::range_set::RangeSet;
use crate::space_maps::replay;
use crate::vdev::{Kind, Vdev};

/// Most metaslabs of one vdev: OpenZFS makes some hundreds, at most 131072.
const MAX_METASLABS: u64 = 1 << 20;
/// Most log space maps.
const MAX_LOGS: usize = 1 << 20;
/// Most entries of a block reference table.
const MAX_CLONES: usize = 1 << 28;
/// Most ranges that are listed in a report.
const MAX_RANGES: usize = 1000;
/// Log space maps count in sectors of 512 bytes.
const LOG_SHIFT: u8 = 9;

/// Space that a block takes on a vdev.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Claim {
    vdev: u32,
    start: u64,
    size: u64,
}

impl Claim {
    /// What one copy of a block takes itself: of a gang, the header.
    pub(super) fn of(pool: &Pool, dva: &Dva, birth: u64) -> Self {
        let vdev = dva.vdev.get();
        let header = GANG_HEADER_SIZE as u64;
        let size = match pool.vdevs().top(vdev) {
            Some(top) if dva.gang => top.psize_to_asize(header, birth).unwrap_or(header),
            _ => dva.asize.get(),
        };
        Self { vdev, start: dva.offset.get(), size }
    }
}

/// A range of a vdev.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range {
    /// The top-level vdev.
    pub vdev: u32,
    /// First byte.
    pub start: u64,
    /// First byte after it.
    pub end: u64,
}

/// The comparison of what was claimed with what is allocated. Lists hold the first ranges only.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SpaceReport {
    /// Bytes that the space maps call allocated.
    pub allocated_bytes: u64,
    /// Bytes kept for the checkpoint alone.
    pub checkpoint_bytes: u64,
    /// Bytes that are allocated and belong to nothing.
    pub leaked_bytes: u64,
    /// Where.
    pub leaked: Vec<Range>,
    /// Bytes that belong to a block and are not allocated: they may be overwritten.
    pub unallocated_bytes: u64,
    /// Where.
    pub unallocated: Vec<Range>,
    /// Bytes that belong to several blocks.
    pub shared_bytes: u64,
    /// Where.
    pub shared: Vec<Range>,
}

impl SpaceReport {
    /// Whether claims and space maps agree to the byte.
    pub fn is_clean(&self) -> bool {
        self.leaked_bytes == 0 && self.unallocated_bytes == 0 && self.shared_bytes == 0
    }
}

/// What is allocated, by top-level vdev.
#[derive(Default)]
pub(super) struct Allocated {
    vdevs: BTreeMap<u32, RangeSet>,
    checkpoint_bytes: u64,
    /// Where a removal that is under way has copied what still counts as being on the old vdev.
    copied: Vec<Claim>,
}

/// Reads all space maps.
pub(super) async fn allocated(pool: &Arc<Pool>) -> Result<Allocated> {
    let mos = Objset::open(pool, ObjsetId::MOS, pool.root_blkptr()).await?;
    let mut allocated = Allocated::default();
    let mut unflushed: BTreeMap<u32, (MetaslabLayout, Vec<Txg>)> = BTreeMap::new();
    for (id, top) in (0u32..).zip(&pool.vdevs().tops) {
        if matches!(top.kind, Kind::Indirect(_) | Kind::Hole | Kind::Missing) {
            continue;
        }
        let (Some(array), Some(shift)) = (top.config.metaslab_array, top.config.metaslab_shift) else {
            continue;
        };
        let layout = MetaslabLayout::new(shift.into(), top.asize()).map_err(Error::format(&top.name))?;
        if layout.count() > MAX_METASLABS {
            return Err(Error::corrupt(&top.name, format!("{} metaslabs", layout.count())));
        }
        let ranges = allocated.vdevs.entry(id).or_default();
        read_metaslabs(&mos, top, array, &layout, ranges).await?;
        unflushed.insert(id, (layout, unflushed_txgs(&mos, top, &layout).await?));
    }
    apply_logs(&mos, &unflushed, &mut allocated).await?;
    for (id, top) in (0u32..).zip(&pool.vdevs().tops) {
        claim_copied(&mos, id, top, &mut allocated).await?;
    }
    for (id, top) in (0u32..).zip(&pool.vdevs().tops) {
        exclude_checkpoint(&mos, id, top, &mut allocated).await?;
    }
    Ok(allocated)
}

async fn read_metaslabs(
    mos: &Arc<Objset>,
    top: &Vdev,
    array: ObjectId,
    layout: &MetaslabLayout,
    ranges: &mut RangeSet,
) -> Result<()> {
    let array = mos.object(array).await?;
    let length = layout.count() * 8;
    let bytes = array.read_all(length, length as usize).await?;
    let order = array_order(&array).await?;
    for (index, map) in (0u64..).zip(space_maps(&bytes, order)) {
        let (Some(map), Some(start)) = (map, layout.start(index)) else { continue };
        let (start, size) = metaslab_bounds(top, start.get(), layout.size_bytes());
        let of_metaslab = replay::load(mos, map, start, size, top.ashift as u8).await?;
        of_metaslab.iter().for_each(|(start, end)| {
            ranges.add(start, end);
        });
    }
    Ok(())
}

/// Offset and size of the usable part of a metaslab: on draid it begins and ends with a whole row of a group.
pub fn metaslab_bounds(top: &Vdev, start: u64, size: u64) -> (u64, u64) {
    let Kind::Draid(draid) = &top.kind else { return (start, size) };
    let config = draid.config();
    // Both are at most 255, and the shift at most 16.
    let row = ((config.data + config.nparity) as u64) << config.ashift;
    let first = start.div_ceil(row).saturating_mul(row);
    (first, size.saturating_sub(first - start) / row * row)
}

/// The byte order of the data of an object that holds plain numbers.
async fn array_order(object: &crate::dmu::Object) -> Result<ByteOrder> {
    Ok(object.block(0).await?.map_or(object.dnode().order, |first| first.order))
}

/// For each metaslab the txg since which changes are only in the logs.
async fn unflushed_txgs(mos: &Arc<Objset>, top: &Vdev, layout: &MetaslabLayout) -> Result<Vec<Txg>> {
    let Some(zap_id) = top.config.top_zap else { return Ok(Vec::new()) };
    let zap_object = mos.object(zap_id).await?;
    let Some(id) = zap::lookup_u64(&zap_object, top_zap::MS_UNFLUSHED_PHYS_TXGS).await? else {
        return Ok(Vec::new());
    };
    let object = mos.object(ObjectId(id)).await?;
    let order = array_order(&object).await?;
    let length = layout.count() * 8;
    let bytes = object.read_all(length, length as usize).await?;
    let mut reader = Reader::new("unflushed txgs", &bytes, order);
    let txgs: ondisk::Result<Vec<Txg>> = (0..layout.count())
        .map(|_| MetaslabUnflushedPhys::read(&mut reader).map(|phys| phys.unflushed_txg))
        .collect();
    txgs.map_err(Error::format(&top.name))
}

/// Applies the log space maps, oldest first, to the metaslabs that were not flushed since.
async fn apply_logs(
    mos: &Arc<Objset>,
    unflushed: &BTreeMap<u32, (MetaslabLayout, Vec<Txg>)>,
    allocated: &mut Allocated,
) -> Result<()> {
    let root = mos.object(DIRECTORY_OBJECT).await?;
    let Some(id) = zap::lookup_u64(&root, directory::LOG_SPACEMAP_ZAP).await? else { return Ok(()) };
    let logs = zap::Zap::open(&mos.object(ObjectId(id)).await?).await?.entries(MAX_LOGS).await?;
    let mut by_txg = BTreeMap::new();
    for entry in logs {
        let key = entry.key.name().unwrap_or_default();
        let txg = log_space_map::parse_key(key).map_err(Error::format("log space maps"))?;
        by_txg.insert(txg, ObjectId(entry.value.as_u64().unwrap_or(0)));
    }
    for (log_txg, object) in by_txg {
        replay::for_each(mos, object, |segment| {
            let what = || format!("log space map {object}");
            let vdev = segment.vdev.map_or(0, VdevId::get);
            // Removed since: its space map is gone with it.
            let (Some((layout, txgs)), Some(ranges)) = (unflushed.get(&vdev), allocated.vdevs.get_mut(&vdev))
            else {
                return Ok(());
            };
            let (start, length) =
                segment.bytes(ByteOffset(0), u64::MAX, LOG_SHIFT).map_err(Error::format(what()))?;
            let metaslab = layout.index_of(start).and_then(|index| txgs.get(usize::try_from(index).ok()?));
            let applies = metaslab.is_some_and(|&unflushed_txg| {
                log_space_map::applies(log_txg, MetaslabUnflushedPhys { unflushed_txg })
            });
            if applies {
                let end = start.get().saturating_add(length);
                match segment.kind {
                    MapType::Alloc => ranges.add(start.get(), end),
                    MapType::Free => ranges.remove(start.get(), end),
                };
            }
            Ok(())
        })
        .await?;
    }
    Ok(())
}

/// Claims the new places of what a removal has copied so far: blocks are still read from the old ones.
async fn claim_copied(mos: &Arc<Objset>, id: u32, top: &Vdev, allocated: &mut Allocated) -> Result<()> {
    let is_being_removed = top.config.removing && top.config.indirect_object.is_some();
    let Some(ranges) = allocated.vdevs.get(&id).filter(|_| is_being_removed) else { return Ok(()) };
    let moved = read_moved(mos, top).await?;
    for entry in moved.mapping.entries() {
        let (source, vdev) = (entry.source.get(), entry.target.vdev.get());
        for (from, to) in ranges.within(source, source.saturating_add(entry.target.asize.get())) {
            let start = entry.target.offset.get().saturating_add(from - source);
            allocated.copied.push(Claim { vdev, start, size: to - from });
        }
    }
    Ok(())
}

/// Takes out what was freed since the checkpoint and is kept for it.
async fn exclude_checkpoint(mos: &Arc<Objset>, id: u32, top: &Vdev, allocated: &mut Allocated) -> Result<()> {
    let (Some(zap_id), Some(ranges)) = (top.config.top_zap, allocated.vdevs.get_mut(&id)) else {
        return Ok(());
    };
    let zap_object = mos.object(zap_id).await?;
    let Some(map) = zap::lookup_u64(&zap_object, top_zap::POOL_CHECKPOINT_SM).await? else { return Ok(()) };
    let mut kept = 0;
    replay::for_each(mos, ObjectId(map), |segment| {
        let shift = top.ashift as u8;
        let (start, length) =
            segment.bytes(ByteOffset(0), u64::MAX, shift).map_err(Error::format(&top.name))?;
        kept += ranges.remove(start.get(), start.get().saturating_add(length));
        Ok(())
    })
    .await?;
    allocated.checkpoint_bytes += kept;
    Ok(())
}

impl Allocated {
    /// Bytes that are allocated.
    pub(super) fn total(&self) -> u64 {
        self.vdevs.values().map(RangeSet::total).sum()
    }

    /// Whether all of a copy is allocated. On a removed vdev nothing says so.
    pub(super) fn has(&self, pool: &Pool, dva: &Dva, birth: u64) -> bool {
        let Claim { vdev, start, size } = Claim::of(pool, dva, birth);
        match self.vdevs.get(&vdev) {
            Some(ranges) => {
                let found = ranges.within(start, start.saturating_add(size));
                found.map(|(from, to)| to - from).sum::<u64>() == size
            }
            None => pool.vdevs().top(vdev).is_some_and(|top| matches!(top.kind, Kind::Indirect(_))),
        }
    }

    /// Compares with all claims.
    pub(super) async fn compare(mut self, pool: &Pool, claims: Vec<Claim>) -> SpaceReport {
        let mut report = SpaceReport {
            allocated_bytes: self.total(),
            checkpoint_bytes: self.checkpoint_bytes,
            ..SpaceReport::default()
        };
        let mut claims = claims;
        claims.append(&mut self.copied);
        let mut claims = remap(pool, claims);
        claims.sort_unstable();
        let mut claimed = RangeSet::default();
        let mut vdev = None;
        for claim in claims {
            if vdev != Some(claim.vdev) {
                claimed = RangeSet::default();
                vdev = Some(claim.vdev);
            }
            let end = claim.start.saturating_add(claim.size);
            let range = Range { vdev: claim.vdev, start: claim.start, end };
            let again = claimed.add(claim.start, end);
            let found = self.vdevs.get_mut(&claim.vdev).map_or(0, |ranges| ranges.remove(claim.start, end));
            if again > 0 {
                report.shared_bytes += again;
                keep(&mut report.shared, range);
            }
            let unallocated = claim.size.saturating_sub(again).saturating_sub(found);
            if unallocated > 0 {
                report.unallocated_bytes += unallocated;
                keep(&mut report.unallocated, range);
            }
        }
        for (vdev, ranges) in self.vdevs {
            for (start, end) in ranges.iter() {
                report.leaked_bytes += end - start;
                keep(&mut report.leaked, Range { vdev, start, end });
            }
        }
        report
    }
}

fn keep(ranges: &mut Vec<Range>, range: Range) {
    if ranges.len() < MAX_RANGES {
        ranges.push(range);
    }
}

/// Claims on removed vdevs as claims on where their space went.
fn remap(pool: &Pool, claims: Vec<Claim>) -> Vec<Claim> {
    let mut concrete = Vec::with_capacity(claims.len());
    for claim in claims {
        let end = claim.start.saturating_add(claim.size);
        match pool.vdevs().places(VdevId(claim.vdev), claim.start, end) {
            Ok(places) => {
                concrete.extend(places.into_iter().filter(|place| !place.is_removed).map(|place| Claim {
                    vdev: place.vdev.get(),
                    start: place.from,
                    size: place.to - place.from,
                }))
            }
            Err(_) => concrete.push(claim),
        }
    }
    concrete
}

/// The blocks of the block reference table, by vdev and offset.
pub(super) async fn cloned_blocks(pool: &Arc<Pool>) -> Result<HashSet<(u32, u64)>> {
    let mos = Objset::open(pool, ObjsetId::MOS, pool.root_blkptr()).await?;
    let root = mos.object(DIRECTORY_OBJECT).await?;
    let mut cloned = HashSet::new();
    for vdev in (0u32..).take(pool.vdevs().tops.len()) {
        let Some(id) = zap::lookup_u64(&root, directory_key(VdevId(vdev))).await? else { continue };
        let table = mos.object(ObjectId(id)).await?;
        let (bonus, order) = table.bonus();
        let mut reader = Reader::new("block reference table", bonus, order);
        let phys = BrtVdevPhys::read(&mut reader).map_err(Error::format("block reference table"))?;
        if phys.mos_entries == ObjectId(0) {
            continue;
        }
        let entries = zap::Zap::open(&mos.object(phys.mos_entries).await?).await?.entries(MAX_CLONES).await?;
        for entry in entries {
            if let zap::Key::Words(words) = &entry.key
                && let Some(&offset) = words.first()
            {
                cloned.insert((vdev, offset));
            }
        }
    }
    Ok(cloned)
}
