//! Writing the changes of a group: space maps and their headers, or the group's log.
//!
//! # The idea
//! A pass takes, under the lock, the changes of a group since the last pass, and writes them without the
//! lock: first allocations, then frees. This makes blocks of the MOS dirty, which are allocated when the MOS
//! is written, and so may change metaslabs again; the next pass appends those changes. The passes end,
//! because blocks that were born in the group are overwritten in place.
//!
//! In pools with the feature `log_spacemap`, changes go to the log of the group ([`crate::alloc::log`]); in
//! other pools, to each metaslab's own map. A map that has become much longer than its contents is rewritten
//! from memory (*condensed*): when it is flushed, or in the first pass.

use std::sync::Arc;

use ondisk::dmu::DmuType;
use ondisk::features::Feature;
use ondisk::pool_directory::{self, DIRECTORY_OBJECT};
use ondisk::space_map::{HISTOGRAM_BUCKETS, MapType, SpaceMapPhys};
use ondisk::{ByteOffset, ByteOrder, ObjectId, Txg};

use super::append::{Form, Words};
use crate::alloc::Allocator;
use crate::alloc::allocator::{MetaslabId, State};
use crate::alloc::free_set;
use crate::alloc::metaslab::{Bounds, Changes, OnDisk};
use crate::dmu::zap;
use crate::dmu::{LiveObject, LiveObjset, NewObject, Objset};
use crate::error::{Error, Result};
use crate::txg::Tx;

/// Bytes in a block of a new space map: one sector of most vdevs, so that overwriting it never changes its
/// size.
pub const MAP_BLOCK_BYTES: u32 = 4096;
/// The same in pools with logs, where a map gets many changes at once.
const LOGGED_MAP_BLOCK_BYTES: u32 = 16 << 10;

/// The features of space maps that the pool may use.
#[derive(Debug, Clone, Copy, Default)]
pub struct Enabled {
    pub histogram: bool,
    pub two_words: bool,
    pub logs: bool,
    pub obsolete: bool,
}

impl Enabled {
    pub async fn read(mos: &Arc<Objset>) -> Result<Self> {
        let root = mos.object(DIRECTORY_OBJECT).await?;
        let Some(id) = zap::lookup_u64(&root, pool_directory::FEATURES_FOR_WRITE).await? else {
            return Ok(Self::default());
        };
        let features = zap::Zap::open(&mos.object(ObjectId(id)).await?).await?;
        Ok(Self {
            histogram: features.lookup(Feature::SpacemapHistogram.guid()).await?.is_some(),
            two_words: features.lookup(Feature::SpacemapV2.guid()).await?.is_some(),
            logs: features.lookup(Feature::LogSpacemap.guid()).await?.is_some(),
            obsolete: features.lookup(Feature::ObsoleteCounts.guid()).await?.is_some(),
        })
    }
}

/// The changes to write to the map of one metaslab.
#[derive(Debug)]
pub struct Job {
    pub id: MetaslabId,
    /// The object with the numbers of the vdev's maps.
    pub array: ObjectId,
    pub bounds: Bounds,
    pub on_disk: OnDisk,
    pub changes: Changes,
    /// All allocated ranges including the changes, if the map is to be rewritten.
    pub rewrite: Option<Vec<(u64, u64)>>,
    /// Free runs by size; absent while the metaslab is not loaded.
    pub histogram: Option<[u64; HISTOGRAM_BUCKETS]>,
}

impl State {
    /// The number of this pass of the sync of `txg`, from 1.
    fn next_pass(&mut self, txg: Txg) -> u16 {
        let before = if self.pass.0 == txg { self.pass.1 } else { 0 };
        self.pass = (txg, before.saturating_add(1));
        self.pass.1
    }

    /// Whether a sync of `txg` has anything to write.
    fn has_changes(&self, txg: Txg) -> bool {
        let to_flush = self.flush_all && self.logs.has_dirty() && self.logs.log(txg).is_none();
        to_flush
            || self.groups.iter().flatten().any(|group| !group.changed(txg).is_empty())
            || self.vdev_maps.values().any(|map| map.has_changes(txg))
    }

    /// Takes the changes of `txg`: those for the log, and those for the metaslabs' own maps.
    fn take_changes(&mut self, txg: Txg, pass: u16, logs: bool) -> (Vec<(MetaslabId, Changes)>, Vec<Job>) {
        let (mut logged, mut jobs) = (Vec::new(), Vec::new());
        for group in self.groups.iter_mut().flatten() {
            let (vdev, array) = (ondisk::VdevId(group.vdev), group.array);
            let is_logged = logs && group.top_zap.is_some();
            for place in group.changed(txg) {
                let id = MetaslabId { vdev, place };
                let Some(metaslab) = group.metaslab_mut(place) else { continue };
                let changes = metaslab.take(txg);
                if is_logged {
                    logged.push((id, changes));
                    continue;
                }
                let rewrite = if pass == 1 { metaslab.rewrite(MAP_BLOCK_BYTES.into()) } else { None };
                let histogram = metaslab.histogram(txg);
                let (bounds, on_disk) = (metaslab.bounds(), metaslab.on_disk);
                jobs.push(Job { id, array, bounds, on_disk, changes, rewrite, histogram });
            }
        }
        (logged, jobs)
    }
}

impl Allocator {
    /// Writes the allocations and frees of the group of `tx` since the last call. Returns false when there
    /// were none.
    ///
    /// After the last call, [`Allocator::take_feature_changes`] returns the uses of features to count.
    pub async fn sync(&self, mos: &Arc<LiveObjset>, tx: &Tx) -> Result<bool> {
        let txg = tx.txg();
        let _turn = self.maps.lock().await;
        let pass = {
            let mut state = self.state();
            let pass = state.next_pass(txg);
            if !state.has_changes(txg) {
                return Ok(false);
            }
            pass
        };
        let enabled = Enabled::read(&mos.view()).await?;
        if enabled.logs {
            // A flush writes changes from before this group, so no changes of the group may have been taken
            // yet.
            self.log_of(mos, tx, pass, enabled).await?;
        }
        self.write_vdev_maps(mos, tx, pass, enabled).await?;
        let (logged, jobs) = self.state().take_changes(txg, pass, enabled.logs);
        if !logged.is_empty() {
            self.append_to_log(mos, tx, pass, enabled, logged).await?;
        }
        for job in jobs {
            let (id, is_new) = (job.id, job.on_disk.object.is_none());
            let on_disk = write_map(mos, tx, pass, enabled, job).await?;
            let mut state = self.state();
            if enabled.histogram && is_new {
                state.feature_changes.push((Feature::SpacemapHistogram, 1));
            }
            if let Some(metaslab) = state.group(id.vdev)?.metaslab_mut(id.place) {
                metaslab.on_disk = on_disk;
            }
        }
        Ok(true)
    }
}

/// Writes changes to a metaslab's own map.
pub async fn write_map(
    mos: &Arc<LiveObjset>,
    tx: &Tx,
    pass: u16,
    enabled: Enabled,
    job: Job,
) -> Result<OnDisk> {
    let Job { bounds, changes, .. } = &job;
    let object = match job.on_disk.object {
        Some(id) => mos.object(id).await?,
        None => create_map(mos, tx, enabled, &job).await?,
    };
    let when = (tx.txg(), pass);
    let form = Form {
        start: ByteOffset(bounds.start),
        shift: bounds.shift,
        block_bytes: object.block_size(),
        two_words: enabled.two_words,
    };
    let (at, words, allocated_bytes) = match &job.rewrite {
        Some(allocated) => {
            let mut words = Words::new(form, 0);
            words.batch(MapType::Alloc, when, None, allocated.iter().copied())?;
            (0, words, allocated.iter().map(|(from, to)| (to - from) as i64).sum())
        }
        None => {
            let at = job.on_disk.length_bytes;
            let mut words = Words::new(form, at);
            words.batch(MapType::Alloc, when, None, changes.allocs.iter())?;
            words.batch(MapType::Free, when, None, changes.frees.iter())?;
            let change = changes.allocs.total() as i64 - changes.frees.total() as i64;
            (at, words, job.on_disk.allocated_bytes.saturating_add(change))
        }
    };
    let on_disk = OnDisk { object: Some(object.id()), length_bytes: words.length_bytes(), allocated_bytes };
    object.write_at(tx, at, &words.bytes()).await?;
    if job.rewrite.is_some() {
        let kept = on_disk.length_bytes.next_multiple_of(object.block_size());
        object.punch(tx, kept, u64::MAX).await?;
    }
    set_header(&object, tx, on_disk.length_bytes, allocated_bytes, |mut old| {
        // While a metaslab is not loaded, its histogram loses some accuracy.
        job.histogram.unwrap_or_else(|| {
            for (from, to) in changes.frees.iter() {
                free_set::count(&mut old, (to - from) >> bounds.shift);
            }
            old
        })
    })?;
    Ok(on_disk)
}

/// Writes the header of a map. A header without a histogram does not get one.
pub fn set_header(
    object: &LiveObject,
    tx: &Tx,
    length_bytes: u64,
    allocated_bytes: i64,
    histogram: impl FnOnce([u64; HISTOGRAM_BUCKETS]) -> [u64; HISTOGRAM_BUCKETS],
) -> Result<()> {
    let what = || format!("space map {}", object.id());
    let old = SpaceMapPhys::parse(&object.bonus(), ByteOrder::Little).map_err(Error::format(what()))?;
    let histogram = old.histogram.map(histogram);
    let header = SpaceMapPhys { object: object.id(), length_bytes, allocated_bytes, histogram };
    object.set_bonus(tx, DmuType::SPACE_MAP_HEADER, &header.encode(ByteOrder::Little));
    Ok(())
}

/// Whether the header of a map has a histogram, and so counts as a use of that feature.
pub fn has_histogram(object: &LiveObject) -> Result<bool> {
    let phys = SpaceMapPhys::parse(&object.bonus(), ByteOrder::Little);
    let phys = phys.map_err(Error::format(format!("space map {}", object.id())))?;
    Ok(phys.histogram.is_some())
}

/// An empty space map.
pub fn new_map(block_size: u32, enabled: Enabled) -> NewObject {
    let empty = SpaceMapPhys {
        histogram: enabled.histogram.then_some([0; HISTOGRAM_BUCKETS]),
        ..SpaceMapPhys::default()
    };
    NewObject {
        dmu_type: DmuType::SPACE_MAP,
        block_size,
        bonus_type: DmuType::SPACE_MAP_HEADER,
        bonus: empty.encode(ByteOrder::Little),
        slots: 1,
    }
}

/// Creates the map of a metaslab that is used for the first time.
pub async fn create_map(
    mos: &Arc<LiveObjset>,
    tx: &Tx,
    enabled: Enabled,
    job: &Job,
) -> Result<Arc<LiveObject>> {
    let block_bytes = if enabled.logs { LOGGED_MAP_BLOCK_BYTES } else { MAP_BLOCK_BYTES };
    let object = mos.allocate(tx, new_map(block_bytes, enabled)).await?;
    let array = mos.object(job.array).await?;
    array.write_at(tx, job.id.place as u64 * 8, &object.id().get().to_le_bytes()).await?;
    Ok(object)
}
