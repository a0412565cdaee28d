//! Reading what [`PoolSpace`] adds up: the trusted configuration, the headers of all space maps, the log
//! space maps.
//!
//! A metaslab's own space map may be behind: changes since its last flush are in log space maps. Replayed in
//! order, a log only ever allocates what is free and frees what is allocated, so that its bytes can simply be
//! added and taken away.

use std::collections::HashMap;

use ondisk::features::Feature;
use ondisk::metaslab::{MetaslabLayout, MetaslabUnflushedPhys};
use ondisk::pool_directory::{self, DIRECTORY_OBJECT, top_zap};
use ondisk::space_map::{Entries, Entry, MapType, SpaceMapPhys};
use ondisk::vdev_config::{VdevConfig, VdevKind};
use ondisk::{ByteOffset, ObjectId, Reader, Txg, log_space_map};

use codec::draid::{Draid, DraidConfig};
use codec::raidz::Raidz;

use super::{Metaslab, PoolSpace, VdevSpace, fragmentation, tables};
use crate::dsl::pool_features::Features;
use crate::dsl::{Dsl, Mos};
use crate::error::{Error, Result};
use crate::vdev::Class;

/// More metaslabs than a vdev can have: OpenZFS aims at 200 and allows 128 K.
const MAX_METASLABS: u64 = 1 << 20;
/// Logs count in sectors of 512 bytes, whatever the vdev's sector size.
const LOG_SHIFT: u8 = 9;
/// A longer log space map than any pool has: OpenZFS flushes when all logs together hold a quarter of that.
const MAX_LOG_BYTES: u64 = 1 << 32;

/// One top-level vdev while it is being read.
struct Top<'a> {
    id: u64,
    config: &'a VdevConfig,
    layout: MetaslabLayout,
    /// Bytes allocated, and the mark for fragmentation, of each metaslab.
    metaslabs: Vec<(i64, Option<u64>)>,
    /// For each metaslab, from which txg on logs hold changes that its space map lacks.
    unflushed: Vec<MetaslabUnflushedPhys>,
}

impl PoolSpace {
    /// Reads the space accounting of the pool.
    pub async fn load(dsl: &Dsl) -> Result<PoolSpace> {
        let mos = dsl.mos();
        let config = mos.config().await?;
        let tree = config.vdev_tree.as_ref();
        let tree =
            tree.ok_or_else(|| Error::corrupt(dsl.pool().name(), "no vdev tree in its configuration"))?;
        let histograms = Features::load(mos).await?.is_enabled(Feature::SpacemapHistogram);
        let mut tops = Vec::new();
        let mut checkpoint_bytes = 0u64;
        for (id, config) in (0u64..).zip(&tree.children) {
            if let Some(top) = read_top(mos, id, config, histograms).await? {
                tops.push(top);
            }
            checkpoint_bytes = checkpoint_bytes.saturating_add(checkpoint_of(mos, config).await?);
        }
        replay_logs(mos, &mut tops).await?;
        let class_of = |id: u64| {
            let top = u32::try_from(id).ok().and_then(|id| dsl.pool().vdevs().top(id));
            top.map_or(Class::Normal, |top| top.class())
        };
        let mut space = PoolSpace {
            vdevs: tops.iter().map(|top| add_up(top, class_of(top.id))).collect::<Result<_>>()?,
            deflate: mos.u64(DIRECTORY_OBJECT, pool_directory::DEFLATE).await?.is_some_and(|on| on != 0),
            checkpoint_bytes,
            deferred_frees_bytes: deferred_frees(mos).await?,
            ..PoolSpace::default()
        };
        space.dedup = tables::dedup(mos, &space).await?;
        space.clones = tables::clones(mos, tree.children.len()).await?;
        Ok(space)
    }
}

/// A top-level vdev's metaslabs; `None` where it has none (a hole, a removed or missing vdev).
async fn read_top<'a>(
    mos: &Mos,
    id: u64,
    config: &'a VdevConfig,
    histograms: bool,
) -> Result<Option<Top<'a>>> {
    let concrete = !matches!(config.kind, VdevKind::Indirect | VdevKind::Hole | VdevKind::Missing);
    let parts = (config.metaslab_shift, config.asize, config.metaslab_array);
    let (Some(shift), Some(asize), Some(array), true) = (parts.0, parts.1, parts.2, concrete) else {
        return Ok(None);
    };
    let what = || format!("metaslabs of top-level vdev {id}");
    let layout = MetaslabLayout::new(shift.into(), asize.0).map_err(|error| Error::corrupt(what(), error))?;
    if layout.count() > MAX_METASLABS {
        return Err(Error::corrupt(what(), format!("{} are too many", layout.count())));
    }
    let count = layout.count() as usize;
    let mut maps = array_of_words(mos, array, count).await?;
    maps.resize(count, 0);
    let mut metaslabs = Vec::with_capacity(count);
    for map in maps {
        // A metaslab that was never used has no space map, and is free in one piece.
        metaslabs.push(match map {
            0 => (0, histograms.then_some(0)),
            map => {
                let (_, phys) = mos.bonus(ObjectId(map), SpaceMapPhys::parse).await?;
                let shift = u32::from(config.ashift.unwrap_or(9));
                let mark = phys.histogram.filter(|_| histograms).map(|counts| fragmentation(&counts, shift));
                (phys.allocated_bytes, mark)
            }
        });
    }
    let mut unflushed = Vec::new();
    let object = match config.top_zap {
        Some(zap) => mos.u64(zap, top_zap::MS_UNFLUSHED_PHYS_TXGS).await?,
        None => None,
    };
    if let Some(object) = object {
        let words = array_of_words(mos, ObjectId(object), count).await?;
        unflushed.extend(words.into_iter().map(|txg| MetaslabUnflushedPhys { unflushed_txg: Txg(txg) }));
    }
    Ok(Some(Top { id, config, layout, metaslabs, unflushed }))
}

/// An array of at most `count` words that is an object's contents.
async fn array_of_words(mos: &Mos, id: ObjectId, count: usize) -> Result<Vec<u64>> {
    let object = mos.object(id).await?;
    let bytes = object.read_all(object.end().min(count as u64 * 8), count * 8).await?;
    let order = object.block(0).await?.map_or(object.bonus().1, |found| found.order);
    let mut reader = Reader::new("array of words", &bytes, order);
    Ok(std::iter::from_fn(|| reader.u64().ok()).collect())
}

/// Bytes on one vdev that only the checkpoint still refers to.
async fn checkpoint_of(mos: &Mos, config: &VdevConfig) -> Result<u64> {
    let Some(zap) = config.top_zap else { return Ok(0) };
    let Some(map) = mos.u64(zap, top_zap::POOL_CHECKPOINT_SM).await? else { return Ok(0) };
    // The map holds frees only.
    Ok(mos.bonus(ObjectId(map), SpaceMapPhys::parse).await?.1.allocated_bytes.unsigned_abs())
}

async fn deferred_frees(mos: &Mos) -> Result<u64> {
    match mos.u64(DIRECTORY_OBJECT, pool_directory::SYNC_BPOBJ).await? {
        Some(list) => Ok(mos.bonus(ObjectId(list), ondisk::bpobj::BpobjPhys::parse).await?.1.bytes),
        None => Ok(0),
    }
}

/// Adds what the log space maps say to the metaslabs that lack it.
async fn replay_logs(mos: &Mos, tops: &mut [Top<'_>]) -> Result<()> {
    let Some(zap) = mos.u64(DIRECTORY_OBJECT, pool_directory::LOG_SPACEMAP_ZAP).await? else { return Ok(()) };
    let places: HashMap<u64, usize> = tops.iter().enumerate().map(|(place, top)| (top.id, place)).collect();
    for (key, map) in mos.u64_entries(ObjectId(zap)).await? {
        let txg = log_space_map::parse_key(key.as_bytes())
            .map_err(|error| Error::corrupt(format!("log space maps (object {zap})"), error))?;
        let object = mos.object(ObjectId(map)).await?;
        let (_, phys) = mos.bonus(ObjectId(map), SpaceMapPhys::parse).await?;
        if phys.length_bytes > object.end().min(MAX_LOG_BYTES) {
            return Err(object.corrupt("a log space map that is longer than its object"));
        }
        let mut offset = 0;
        while offset < phys.length_bytes {
            let Some(found) = object.block(offset / object.block_size()).await? else {
                return Err(object.corrupt("a hole in a log space map"));
            };
            let here = (phys.length_bytes - offset).min(found.block.len().max(1) as u64);
            let bytes = found.block.get(..here as usize).unwrap_or_default();
            for entry in Entries::new(bytes, found.order) {
                let entry = entry.map_err(|error| object.corrupt(error))?;
                let Entry::Segment(segment) = entry else { continue };
                let place = segment.vdev.and_then(|vdev| places.get(&u64::from(vdev.0)));
                let Some(top) = place.and_then(|place| tops.get_mut(*place)) else { continue };
                let (start, length) = segment
                    .bytes(ByteOffset(0), u64::MAX, LOG_SHIFT)
                    .map_err(|error| object.corrupt(error))?;
                let index = top.layout.index_of(start).unwrap_or(u64::MAX) as usize;
                let since = top.unflushed.get(index).copied();
                let since = since.unwrap_or(MetaslabUnflushedPhys { unflushed_txg: Txg(0) });
                if let Some(metaslab) =
                    top.metaslabs.get_mut(index).filter(|_| log_space_map::applies(txg, since))
                {
                    let length = i64::try_from(length).unwrap_or(i64::MAX);
                    metaslab.0 = match segment.kind {
                        MapType::Alloc => metaslab.0.saturating_add(length),
                        MapType::Free => metaslab.0.saturating_sub(length),
                    };
                }
            }
            offset += here;
        }
    }
    Ok(())
}

fn add_up(top: &Top<'_>, class: Class) -> Result<VdevSpace> {
    let config = top.config;
    let what = || format!("top-level vdev {}", top.id);
    let ratio = deflate_ratio(config).map_err(|error| Error::corrupt(what(), error))?;
    let metaslabs: Vec<Metaslab> = top
        .metaslabs
        .iter()
        .zip(0..)
        .map(|(&(allocated, fragmentation), index)| Metaslab {
            size_bytes: metaslab_size(config, top.layout, index),
            allocated_bytes: u64::try_from(allocated).unwrap_or(0),
            fragmentation,
        })
        .collect();
    let mut space = VdevSpace::new(top.id, class, ratio, &metaslabs);
    space.allocating = !config.non_allocating;
    Ok(space)
}

/// The size of one metaslab. On dRAID vdevs it is cut to whole rows of a group, both where it begins and
/// where it ends.
fn metaslab_size(config: &VdevConfig, layout: MetaslabLayout, index: u64) -> u64 {
    let size = layout.size_bytes();
    let VdevKind::Draid { nparity, ndata, .. } = &config.kind else { return size };
    let row = (u64::from(*nparity) + u64::from(*ndata)) << config.ashift.unwrap_or(9);
    let start = layout.start(index).unwrap_or(ByteOffset(0)).0;
    let row = row.max(1);
    let cut = start.checked_next_multiple_of(row).map_or(size, |aligned| aligned - start);
    let left = size.saturating_sub(cut);
    left - left % row
}

/// Data bytes that 512 raw bytes of a 128 KiB block hold, as the vdev was before any expansion.
pub(super) fn deflate_ratio(config: &VdevConfig) -> std::result::Result<u64, codec::raidz::Error> {
    const BLOCK_BYTES: u64 = 128 << 10;
    let ashift = u32::from(config.ashift.unwrap_or(9));
    let children = config.children.len();
    let asize = match &config.kind {
        VdevKind::Raidz { nparity, expanding, expand_txgs } => {
            let original = children.saturating_sub(expand_txgs.len() + usize::from(*expanding));
            Raidz::new(ashift, usize::from(*nparity), original)?.asize(BLOCK_BYTES, 0)?
        }
        VdevKind::Draid { nparity, ndata, nspares, ngroups } => {
            let config = DraidConfig {
                data: usize::from(*ndata),
                nparity: usize::from(*nparity),
                spares: usize::from(*nspares),
                groups: usize::from(*ngroups),
                children,
                ashift,
            };
            Draid::new(config)?.asize(BLOCK_BYTES)?
        }
        _ => BLOCK_BYTES,
    };
    Ok(BLOCK_BYTES / (asize >> 9).max(1))
}
