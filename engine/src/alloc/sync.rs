//! Writing what a group changed: space maps, their headers, and the log space maps that others left.
//!
//! # The idea
//! A pass takes, under the lock, what a group changed since the last pass, and writes it without the lock: first allocations, then frees. Blocks that this
//! makes dirty in the MOS are allocated when the MOS is written, which may change metaslabs again; the next pass appends that. It ends, because blocks that were
//! born in the group are written in place.
//!
//! A space map that has become much longer than what it says is written anew from memory (*condensed*), in the first pass only.
//!
//! # Log space maps
//! Pools may come with log space maps: changes that the metaslabs' own maps lack. The first sync folds them all into those and
//! ends the logs, so that none exist while the pool is written here.

use std::collections::BTreeMap;
use std::sync::Arc;

use ondisk::dmu::DmuType;
use ondisk::features::Feature;
use ondisk::pool_directory::{self, DIRECTORY_OBJECT, top_zap};
use ondisk::space_map::{HISTOGRAM_BUCKETS, MapType, SpaceMapPhys};
use ondisk::{ByteOffset, ByteOrder, ObjectId, Txg, VdevId};

use super::allocator::{Allocator, State};
use super::metaslab::{Bounds, OnDisk, Taken};
use super::space_map::{Form, Words};
use crate::dmu::zap::{self, Key, edit};
use crate::dmu::{LiveObject, LiveObjset, NewObject, Objset};
use crate::error::{Error, Result};
use crate::txg::Tx;

/// Bytes in a block of a new space map. One sector of most vdevs, so that writing it again never changes its size.
const BLOCK_BYTES: u32 = 4096;

/// One log space map.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Log {
    /// Its object.
    pub object: ObjectId,
    /// Bytes of it that count.
    pub length_bytes: u64,
    /// Whether its header has a histogram, and so counts as a use of that feature.
    pub has_histogram: bool,
}

/// The log space maps of a pool.
#[derive(Debug, Default)]
pub struct Logs {
    zap: Option<ObjectId>,
    by_txg: BTreeMap<Txg, Log>,
    /// For each vdev the object that says how far its metaslabs are flushed.
    arrays: Vec<(VdevId, ObjectId)>,
}

impl Logs {
    /// Those that were found when the pool was opened.
    pub fn take_up(
        &mut self,
        (zap, by_txg): (Option<ObjectId>, BTreeMap<Txg, Log>),
        arrays: Vec<(VdevId, ObjectId)>,
    ) {
        *self = Self { zap, by_txg, arrays };
    }

    /// Whether there is anything of them in the MOS.
    fn exist(&self) -> bool {
        self.zap.is_some() || !self.arrays.is_empty()
    }
}

/// Which features of space maps the pool may use.
#[derive(Debug, Clone, Copy, Default)]
struct Enabled {
    histogram: bool,
    two_words: bool,
}

impl Enabled {
    async fn read(mos: &Arc<Objset>) -> Result<Self> {
        let root = mos.object(DIRECTORY_OBJECT).await?;
        let Some(id) = zap::lookup_u64(&root, pool_directory::FEATURES_FOR_WRITE).await? else {
            return Ok(Self::default());
        };
        let features = zap::Zap::open(&mos.object(ObjectId(id)).await?).await?;
        Ok(Self {
            histogram: features.lookup(Feature::SpacemapHistogram.guid()).await?.is_some(),
            two_words: features.lookup(Feature::SpacemapV2.guid()).await?.is_some(),
        })
    }
}

/// What is to be written for one metaslab.
#[derive(Debug)]
struct Job {
    vdev: VdevId,
    place: usize,
    array: ObjectId,
    bounds: Bounds,
    on_disk: OnDisk,
    taken: Taken,
}

impl State {
    /// Which pass of the sync of `txg` this is, from 1.
    fn next_pass(&mut self, txg: Txg) -> u16 {
        let before = if self.pass.0 == txg { self.pass.1 } else { 0 };
        self.pass = (txg, before.saturating_add(1));
        self.pass.1
    }

    /// Takes what `txg` changed; with `fold` also what was only in logs.
    fn take_jobs(&mut self, txg: Txg, pass: u16, fold: bool) -> Vec<Job> {
        let mut jobs = Vec::new();
        for group in self.groups.iter_mut().flatten() {
            let mut places = group.changed(txg);
            if fold {
                let metaslabs = group.metaslabs().iter().enumerate();
                places.extend(metaslabs.filter(|(_, slab)| !slab.unflushed.is_empty()).map(|(at, _)| at));
                places.sort_unstable();
                places.dedup();
            }
            let (vdev, array) = (VdevId(group.vdev), group.array);
            for place in places {
                let Some(metaslab) = group.metaslab_mut(place) else { continue };
                let mut taken = metaslab.take(txg, pass == 1, BLOCK_BYTES.into());
                if !metaslab.unflushed.is_empty() {
                    let mut all = std::mem::take(&mut metaslab.unflushed);
                    taken.changes.allocs.iter().for_each(|(from, to)| all.alloc(from, to));
                    taken.changes.frees.iter().for_each(|(from, to)| all.free(from, to));
                    taken.changes = all;
                }
                let (bounds, on_disk) = (metaslab.bounds(), metaslab.on_disk);
                jobs.push(Job { vdev, place, array, bounds, on_disk, taken });
            }
        }
        jobs
    }
}

impl Allocator {
    /// Appends what was allocated and freed in the group of `tx` since the last call to the space maps. False when there was nothing.
    ///
    /// After the last call, [`Allocator::take_feature_changes`] tells what to count.
    pub async fn sync(&self, mos: &Arc<LiveObjset>, tx: &Tx) -> Result<bool> {
        let txg = tx.txg();
        let (pass, jobs, logs) = {
            let mut state = self.state();
            let pass = state.next_pass(txg);
            let logs = state.logs.exist().then(|| std::mem::take(&mut state.logs));
            (pass, state.take_jobs(txg, pass, logs.is_some()), logs)
        };
        if jobs.is_empty() && logs.is_none() {
            return Ok(false);
        }
        let enabled = Enabled::read(&mos.view()).await?;
        let mut new_maps = 0;
        for job in jobs {
            let (vdev, place) = (job.vdev, job.place);
            new_maps += i64::from(job.on_disk.object.is_none());
            let on_disk = write(mos, tx, pass, enabled, job).await?;
            if let Some(metaslab) = self.state().group(vdev)?.metaslab_mut(place) {
                metaslab.on_disk = on_disk;
            }
        }
        let mut changes = Vec::new();
        if enabled.histogram && new_maps > 0 {
            changes.push((Feature::SpacemapHistogram, new_maps));
        }
        if let Some(logs) = logs {
            changes.extend(self.end_logs(mos, tx, logs).await?);
        }
        self.state().feature_changes.extend(changes);
        Ok(true)
    }

    /// Removes all log space maps: the metaslabs' own maps have everything now. Gives the uses of features that end with them.
    async fn end_logs(&self, mos: &Arc<LiveObjset>, tx: &Tx, logs: Logs) -> Result<Vec<(Feature, i64)>> {
        let mut changes = Vec::new();
        for log in logs.by_txg.values() {
            mos.free(tx, log.object).await?;
            if log.has_histogram {
                changes.push((Feature::SpacemapHistogram, -1));
            }
        }
        if let Some(zap) = logs.zap {
            let root = mos.object(DIRECTORY_OBJECT).await?;
            edit::remove(&root, tx, &name(pool_directory::LOG_SPACEMAP_ZAP)).await?;
            mos.free(tx, zap).await?;
            changes.push((Feature::LogSpacemap, -1));
        }
        for (vdev, array) in logs.arrays {
            let top_zap_id = self.state().group(vdev)?.top_zap;
            if let Some(id) = top_zap_id {
                let top = mos.object(id).await?;
                edit::remove(&top, tx, &name(top_zap::MS_UNFLUSHED_PHYS_TXGS)).await?;
            }
            mos.free(tx, array).await?;
        }
        Ok(changes)
    }
}

fn name(name: &str) -> Key {
    Key::Name(name.as_bytes().to_vec())
}

/// Writes one metaslab's changes to its space map.
async fn write(mos: &Arc<LiveObjset>, tx: &Tx, pass: u16, enabled: Enabled, job: Job) -> Result<OnDisk> {
    let Job { bounds, taken, .. } = &job;
    let object = match job.on_disk.object {
        Some(id) => mos.object(id).await?,
        None => create(mos, tx, enabled, &job).await?,
    };
    let when = (tx.txg(), pass);
    let form = Form {
        start: ByteOffset(bounds.start),
        shift: bounds.shift,
        block_bytes: object.block_size(),
        two_words: enabled.two_words,
    };
    let (at, words, allocated_bytes) = match &taken.rewrite {
        Some(allocated) => {
            let mut words = Words::new(form, 0);
            words.batch(MapType::Alloc, when, None, allocated.iter().copied())?;
            (0, words, allocated.iter().map(|(from, to)| (to - from) as i64).sum())
        }
        None => {
            let at = job.on_disk.length_bytes;
            let mut words = Words::new(form, at);
            let changes = &taken.changes;
            words.batch(MapType::Alloc, when, None, changes.allocs.iter())?;
            words.batch(MapType::Free, when, None, changes.frees.iter())?;
            let change = changes.allocs.total() as i64 - changes.frees.total() as i64;
            (at, words, job.on_disk.allocated_bytes.saturating_add(change))
        }
    };
    let on_disk = OnDisk { object: Some(object.id()), length_bytes: words.length_bytes(), allocated_bytes };
    object.write_at(tx, at, &words.bytes()).await?;
    if taken.rewrite.is_some() {
        let kept = on_disk.length_bytes.next_multiple_of(object.block_size());
        object.punch(tx, kept, u64::MAX).await?;
    }
    set_header(&object, tx, on_disk, taken.histogram)?;
    Ok(on_disk)
}

/// Writes the header. A map whose header has no histogram gets none.
fn set_header(
    object: &LiveObject,
    tx: &Tx,
    on_disk: OnDisk,
    histogram: Option<[u64; HISTOGRAM_BUCKETS]>,
) -> Result<()> {
    let what = || format!("space map {}", object.id());
    let old = SpaceMapPhys::parse(&object.bonus(), ByteOrder::Little).map_err(Error::format(what()))?;
    let header = SpaceMapPhys {
        object: object.id(),
        length_bytes: on_disk.length_bytes,
        allocated_bytes: on_disk.allocated_bytes,
        histogram: old.histogram.map(|old| histogram.unwrap_or(old)),
    };
    object.set_bonus(tx, DmuType::SPACE_MAP_HEADER, &header.encode(ByteOrder::Little));
    Ok(())
}

/// Creates the space map of a metaslab that is used for the first time.
async fn create(mos: &Arc<LiveObjset>, tx: &Tx, enabled: Enabled, job: &Job) -> Result<Arc<LiveObject>> {
    let empty = SpaceMapPhys {
        histogram: enabled.histogram.then_some([0; HISTOGRAM_BUCKETS]),
        ..SpaceMapPhys::default()
    };
    let new = NewObject {
        dmu_type: DmuType::SPACE_MAP,
        block_size: BLOCK_BYTES,
        bonus_type: DmuType::SPACE_MAP_HEADER,
        bonus: empty.encode(ByteOrder::Little),
        slots: 1,
    };
    let object = mos.allocate(tx, new).await?;
    let array = mos.object(job.array).await?;
    array.write_at(tx, job.place as u64 * 8, &object.id().get().to_le_bytes()).await?;
    Ok(object)
}
