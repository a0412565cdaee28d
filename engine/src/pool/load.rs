//! From an uberblock to an open pool.
//!
//! [`super::import`] decides which uberblock; here it is loaded. Nothing is written and nothing remembered: a
//! load that fails can be tried again with another uberblock.

use std::sync::Arc;

use codec::raidz::Reflow;
use ondisk::features::Feature;
use ondisk::indirect::{BirthEntry, MappingPhys, SpaRemovingPhys, mapping_entries};
use ondisk::nvlist::Nvlist;
use ondisk::pool_directory::{self as directory, DIRECTORY_OBJECT};
use ondisk::space_map::MapType;
use ondisk::uberblock::Uberblock;
use ondisk::vdev_config::{AllocationBias, PoolConfig, VdevConfig};
use ondisk::{Guid, ObjectId, ObjsetId, Reader};

use super::discovery::FoundPool;
use super::import::{ImportError, ImportOptions, version_is_supported};
use super::status::{Progress, ScanKind, VdevNode, root_node, scan_of};
use crate::cache::ArcCache;
use crate::dmu::{Object, Objset, zap};
use crate::error::{Error, Result};
use crate::range_set::RangeSet;
use crate::space_maps::replay;
use crate::store::{Pool, Store};
use crate::vdev::config::{Devices, build_auxiliary, build_tree};
use crate::vdev::dtl::TxgRanges;
use crate::vdev::indirect::Moved;
use crate::vdev::spares::IN_USE;
use crate::vdev::{Class, ErrorCounters, Kind, State, Vdev, VdevTree};

/// Largest packed config that is read.
const MAX_CONFIG_BYTES: usize = 16 << 20;
/// Largest indirect mapping that is kept in memory: eleven million segments.
const MAX_MAPPING_BYTES: usize = 256 << 20;
/// Most features that a pool may have.
const MAX_FEATURES: usize = 4096;

/// What a pool is put together from.
pub(super) struct Assembly<'a> {
    pub found: &'a FoundPool,
    pub options: &'a ImportOptions,
    pub cache: Arc<ArcCache>,
}

/// Opens the pool as of `uberblock`.
pub(super) async fn load(assembly: &Assembly<'_>, uberblock: &Uberblock) -> Result<Arc<Pool>, ImportError> {
    let name = assembly.found.name.clone();
    if !version_is_supported(uberblock.version) {
        return Err(ImportError::Version { name, version: uberblock.version });
    }
    let damaged = |error| ImportError::Damaged {
        name: assembly.found.name.clone(),
        error: Box::new(error),
        rewind: None,
    };
    let devices = assembly.found.devices();
    let mut uberblock = uberblock.clone();
    let mut read = read_config(assembly, &devices, &uberblock).await.map_err(damaged)?;
    if assembly.options.rewind_to_checkpoint {
        uberblock = read.checkpoint.take().ok_or(ImportError::NoCheckpoint(name))?;
        read = read_config(assembly, &devices, &uberblock).await.map_err(damaged)?;
    }
    let pool = open_trusted(assembly, &devices, &uberblock, read).map_err(damaged)?;
    refuse_missing(&pool, assembly.options)?;
    let mos = open_mos(&pool).await.map_err(damaged)?;
    load_dependencies(&pool, &mos).await.map_err(damaged)?;
    let features = unknown_features(&mos).await.map_err(damaged)?;
    if !features.is_empty() {
        return Err(ImportError::UnsupportedFeatures { name: pool.name().to_owned(), features });
    }
    Ok(pool)
}

/// A pool as far as it can be looked at without refusing anything.
pub(super) struct Looked {
    pub pool: Arc<Pool>,
    pub unknown_features: Vec<String>,
    pub features_disabled: bool,
    pub resilvering: bool,
}

/// Looks at the pool as of `uberblock` without opening it for use.
pub(super) async fn provisional(assembly: &Assembly<'_>, uberblock: &Uberblock) -> Result<Looked> {
    let devices = assembly.found.devices();
    let read = read_config(assembly, &devices, uberblock).await?;
    let pool = open_trusted(assembly, &devices, uberblock, read)?;
    let mos = open_mos(&pool).await?;
    load_dependencies(&pool, &mos).await?;
    let directory = mos.object(DIRECTORY_OBJECT).await?;
    let scan = zap::lookup(&directory, directory::SCAN).await?;
    let scan = scan.and_then(|value| scan_of(&value.to_u64s()));
    let mut enabled = 0;
    for list in [directory::FEATURES_FOR_READ, directory::FEATURES_FOR_WRITE] {
        if let Some(features) = object_at(&mos, &directory, list).await? {
            let entries = zap::Zap::open(&features).await?.entries(MAX_FEATURES).await?;
            let names = entries.iter().filter_map(|entry| std::str::from_utf8(entry.key.name()?).ok());
            enabled += names.filter_map(Feature::from_guid).filter(|feature| feature.is_usual()).count();
        }
    }
    Ok(Looked {
        unknown_features: unknown_features(&mos).await?,
        features_disabled: enabled < Feature::ALL.iter().filter(|feature| feature.is_usual()).count(),
        resilvering: scan
            .is_some_and(|scan| scan.kind == ScanKind::Resilver && scan.state == Progress::Running),
        pool,
    })
}

async fn open_mos(pool: &Arc<Pool>) -> Result<Arc<Objset>> {
    Objset::open(pool, ObjsetId::MOS, pool.root_blkptr()).await
}

/// What the provisional tree is needed for.
struct Provisional {
    config: PoolConfig,
    checkpoint: Option<Uberblock>,
    spares: Vec<VdevConfig>,
    l2cache: Vec<VdevConfig>,
}

async fn read_config(
    assembly: &Assembly<'_>,
    devices: &Devices,
    uberblock: &Uberblock,
) -> Result<Provisional> {
    let reflow = Reflow::from_uberblock(uberblock.raidz_reflow_info);
    let tree = build_tree(&assembly.found.tree, devices, Some(reflow))?;
    let pool = assembly.pool(tree, assembly.found.label.clone(), uberblock, None);
    let mos = open_mos(&pool).await?;
    let directory = mos.object(DIRECTORY_OBJECT).await?;
    let packed = object_at(&mos, &directory, directory::CONFIG).await?;
    let packed = packed.ok_or_else(|| Error::corrupt("pool directory", "no pool configuration"))?;
    let config =
        PoolConfig::parse(read_nvlist(&packed).await?).map_err(Error::format("pool configuration"))?;
    if config.pool_guid.is_some_and(|guid| guid != assembly.found.guid) {
        return Err(Error::corrupt("pool configuration", "it is of another pool"));
    }
    let checkpoint = read_checkpoint(&directory).await?;
    let spares = read_auxiliary(&mos, &directory, directory::SPARES).await?;
    let l2cache = read_auxiliary(&mos, &directory, directory::L2CACHE).await?;
    Ok(Provisional { config, checkpoint, spares, l2cache })
}

/// The pool as the trusted config describes it.
fn open_trusted(
    assembly: &Assembly<'_>,
    devices: &Devices,
    uberblock: &Uberblock,
    read: Provisional,
) -> Result<Arc<Pool>> {
    let reflow = Reflow::from_uberblock(uberblock.raidz_reflow_info);
    let root = read.config.vdev_tree.as_ref();
    let root = root.ok_or_else(|| Error::corrupt("pool configuration", "it has no vdev tree"))?;
    let mut tree = build_tree(root, devices, Some(reflow))?;
    tree.spares = build_auxiliary(&read.spares, devices)?;
    tree.l2cache = build_auxiliary(&read.l2cache, devices)?;
    let in_use: Vec<Guid> = tree.tops.iter().flat_map(Vdev::walk).map(|vdev| vdev.guid).collect();
    for spare in tree.spares.iter().filter(|spare| in_use.contains(&spare.guid)) {
        tree.set_status(spare, IN_USE);
        spare.close();
    }
    check_guid_sum(assembly.found.guid.get(), &tree, uberblock);
    Ok(assembly.pool(tree, read.config, uberblock, read.checkpoint))
}

/// The sum of all guids tells whether the config knows all vdevs. Every block read is verified all the same,
/// so that a wrong sum is no reason to refuse reading.
fn check_guid_sum(pool: u64, tree: &VdevTree, uberblock: &Uberblock) {
    let vdevs = tree.tops.iter().flat_map(Vdev::walk);
    let sum = vdevs.fold(pool, |sum, vdev| sum.wrapping_add(vdev.guid.get()));
    if sum != uberblock.guid_sum {
        tracing::warn!(sum, expected = uberblock.guid_sum, "the sum of vdev guids is wrong");
    }
}

/// Top-level vdevs without which the pool is not whole.
fn refuse_missing(pool: &Pool, options: &ImportOptions) -> Result<(), ImportError> {
    let unusable = |vdev: &&Vdev| !vdev.status().is_readable();
    let (logs, others): (Vec<&Vdev>, Vec<&Vdev>) =
        pool.vdevs.tops.iter().filter(unusable).partition(|vdev| vdev.config.is_log);
    // What a person took offline is not missing: its logs were emptied before, and whether any goes on there
    // is checked when they are claimed.
    let is_offline = |vdev: &Vdev| vdev.children.is_empty() && vdev.status().state == State::Offline;
    let is_away = |top: &&Vdev| {
        let mut leaves = top.walk().filter(|vdev| vdev.children.is_empty());
        !leaves.all(is_offline)
    };
    let logs: Vec<&Vdev> = logs.into_iter().filter(is_away).collect();
    let names = |vdevs: Vec<&Vdev>| vdevs.into_iter().map(|vdev| vdev.name.clone()).collect();
    if !others.is_empty() {
        return Err(ImportError::MissingDevices { name: pool.name().to_owned(), missing: names(others) });
    }
    if !logs.is_empty() && !options.missing_log {
        return Err(ImportError::MissingLog { name: pool.name().to_owned(), missing: names(logs) });
    }
    Ok(())
}

impl Assembly<'_> {
    /// The vdevs as the labels describe them, for pools whose MOS cannot be read.
    pub(super) fn node_of_labels(&self) -> VdevNode {
        let devices = self.found.devices();
        let empty = VdevTree::default();
        let tree = build_tree(&self.found.tree, &devices, None).unwrap_or(empty);
        root_node(&self.found.name, self.found.guid, &tree, &ErrorCounters::default())
    }

    fn pool(
        &self,
        vdevs: VdevTree,
        config: PoolConfig,
        uberblock: &Uberblock,
        checkpoint: Option<Uberblock>,
    ) -> Arc<Pool> {
        let name = self.options.new_name.clone().unwrap_or_else(|| self.found.name.clone());
        let store = Store::new(name, self.options.altroot.clone(), vdevs, Arc::clone(&self.cache));
        Pool::of(store, self.found.guid, config, uberblock.clone(), checkpoint)
    }
}

/// What reading through the tree depends on, in the order in which each needs the one before.
async fn load_dependencies(pool: &Pool, mos: &Arc<Objset>) -> Result<()> {
    let directory = mos.object(DIRECTORY_OBJECT).await?;
    // All that is read before this point is never left on removed vdevs.
    load_indirect(pool, mos, &directory).await?;
    if let Some(salt) = zap::lookup(&directory, directory::CHECKSUM_SALT).await? {
        let salt = salt.as_bytes().and_then(|bytes| <[u8; 32]>::try_from(bytes).ok());
        let salt =
            salt.ok_or_else(|| Error::corrupt("pool directory", "the checksum salt is not 32 bytes"))?;
        // Set once: the pool is new.
        let _ = pool.salt.set(salt);
    }
    for top in &pool.vdevs.tops {
        load_class(mos, top).await?;
    }
    for leaf in pool.vdevs.leaves() {
        load_missing_txgs(mos, leaf).await?;
    }
    Ok(())
}

/// Loads the mappings of removed vdevs, the last removed first: a mapping may itself lie on a vdev that was
/// removed later.
async fn load_indirect(pool: &Pool, mos: &Arc<Objset>, directory: &Object) -> Result<()> {
    let Some(words) = zap::lookup(directory, directory::REMOVING).await? else { return Ok(()) };
    let words = words.to_u64s();
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let mut reader = Reader::new("removal state", &bytes, ondisk::ByteOrder::Little);
    let removing = SpaRemovingPhys::read(&mut reader).map_err(Error::format("removal state"))?;
    let mut next = u32::try_from(removing.prev_indirect_vdev).ok();
    // Each step goes to a vdev that is not loaded yet, so that there are no more steps than vdevs.
    while let Some(vdev) = next.and_then(|id| pool.vdevs.top(id)) {
        let Kind::Indirect(moved) = &vdev.kind else { break };
        if moved.get().is_some() {
            return Err(Error::corrupt(&vdev.name, "removed vdevs lead to each other in a circle"));
        }
        let _ = moved.set(read_moved(mos, vdev).await?);
        next = vdev.config.prev_indirect_vdev.map(|id| id.get());
    }
    Ok(())
}

pub(super) async fn read_moved(mos: &Arc<Objset>, vdev: &Vdev) -> Result<Moved> {
    let missing = || Error::corrupt(&vdev.name, "its mapping is not named");
    let object = mos.object(vdev.config.indirect_object.ok_or_else(missing)?).await?;
    let (bonus, order) = object.bonus();
    let header = MappingPhys::parse(bonus, order).map_err(Error::format(&vdev.name))?;
    let length = header.num_entries.saturating_mul(ondisk::indirect::MappingEntry::SIZE as u64);
    let bytes = object.read_all(length, MAX_MAPPING_BYTES).await?;
    let entries: ondisk::Result<Vec<_>> = mapping_entries(&bytes, order).collect();
    let mapping = ondisk::indirect::IndirectMapping::new(entries.map_err(Error::format(&vdev.name))?);
    let mapping = mapping.map_err(Error::format(&vdev.name))?;

    let object = mos.object(vdev.config.indirect_births.ok_or_else(missing)?).await?;
    let (bonus, order) = object.bonus();
    let count = Reader::new("indirect births", bonus, order).u64().map_err(Error::format(&vdev.name))?;
    let bytes = object.read_all(count.saturating_mul(16), MAX_MAPPING_BYTES).await?;
    let mut reader = Reader::new("indirect births", &bytes, order);
    let births: ondisk::Result<Vec<_>> = (0..count).map(|_| BirthEntry::read(&mut reader)).collect();
    Ok(Moved { mapping, births: births.map_err(Error::format(&vdev.name))? })
}

/// What a top-level vdev is reserved for is in its ZAP.
async fn load_class(mos: &Arc<Objset>, top: &Vdev) -> Result<()> {
    let mut bias = top.config.allocation_bias;
    if let Some(object) = top.config.top_zap {
        let value = zap::lookup(&mos.object(object).await?, directory::top_zap::ALLOCATION_BIAS).await?;
        if let Some(text) = value.as_ref().and_then(|value| value.as_text()) {
            bias = AllocationBias::from_name(text);
        }
    }
    let class = match bias {
        _ if top.config.is_log => Class::Log,
        Some(AllocationBias::Log) => Class::Log,
        Some(AllocationBias::Special) => Class::Special,
        Some(AllocationBias::Dedup) => Class::Dedup,
        None => Class::Normal,
    };
    let _ = top.class.set(class);
    Ok(())
}

/// How many groups after the committed one a dirty time log may name: a device that was just attached lacks
/// the next ones too (OpenZFS notes three). A log that names later ones is wrong, and a resilver would wait
/// for them.
pub(super) const FUTURE_GROUPS: u64 = 16;

async fn load_missing_txgs(mos: &Arc<Objset>, leaf: &Vdev) -> Result<()> {
    let Some(object) = leaf.config.dtl_object else { return Ok(()) };
    let mut txgs = RangeSet::default();
    replay::for_each(mos, object, |segment| {
        let end = segment.offset_units.saturating_add(segment.run_units);
        match segment.kind {
            MapType::Alloc => txgs.add(segment.offset_units, end),
            MapType::Free => txgs.remove(segment.offset_units, end),
        };
        Ok(())
    })
    .await?;
    let latest = mos.pool().uberblock().txg.get().saturating_add(FUTURE_GROUPS);
    leaf.missing_txgs.load(TxgRanges::new(txgs.iter().map(|(start, end)| (start, end.min(latest)))));
    if !leaf.missing_txgs.is_empty() {
        // What was read of it before is no error of the device: it was not known what it lacks.
        leaf.errors.clear();
    }
    Ok(())
}

/// Features in use that one must know to read the pool, and that are unknown here.
async fn unknown_features(mos: &Arc<Objset>) -> Result<Vec<String>> {
    let directory = mos.object(DIRECTORY_OBJECT).await?;
    let Some(features) = object_at(mos, &directory, directory::FEATURES_FOR_READ).await? else {
        return Ok(Vec::new());
    };
    let mut unknown = Vec::new();
    for entry in zap::Zap::open(&features).await?.entries(MAX_FEATURES).await? {
        let name = String::from_utf8_lossy(entry.key.name().unwrap_or_default()).into_owned();
        if entry.value.as_u64() != Some(0) && Feature::from_guid(&name).is_none() {
            unknown.push(name);
        }
    }
    Ok(unknown)
}

/// The object that the directory names.
async fn object_at(mos: &Arc<Objset>, directory: &Object, name: &str) -> Result<Option<Object>> {
    match zap::lookup_u64(directory, name).await? {
        Some(id) if id != 0 => Ok(Some(mos.object(ObjectId(id)).await?)),
        _ => Ok(None),
    }
}

/// An object that holds a packed nvlist, whose length is in the bonus area.
async fn read_nvlist(object: &Object) -> Result<Nvlist> {
    let what = || format!("packed nvlist in object {}", object.id());
    let (bonus, order) = object.bonus();
    let length = Reader::new("packed nvlist", bonus, order).u64().map_err(Error::format(what()))?;
    let bytes = object.read_all(length, MAX_CONFIG_BYTES).await?;
    Nvlist::parse(&bytes).map_err(Error::format(what()))
}

async fn read_auxiliary(mos: &Arc<Objset>, directory: &Object, name: &str) -> Result<Vec<VdevConfig>> {
    match object_at(mos, directory, name).await? {
        Some(object) => VdevConfig::parse_auxiliary(&read_nvlist(&object).await?, name)
            .map_err(Error::format(format!("list of {name}"))),
        None => Ok(Vec::new()),
    }
}

/// The uberblock that was kept as the pool's checkpoint. It is stored as numbers, so that byte order does not
/// matter.
async fn read_checkpoint(directory: &Object) -> Result<Option<Uberblock>> {
    let Some(value) = zap::lookup(directory, directory::ZPOOL_CHECKPOINT).await? else { return Ok(None) };
    let words = value.to_u64s();
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    Uberblock::parse(&bytes).map(Some).map_err(Error::format("checkpoint"))
}
