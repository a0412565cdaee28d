//! Writing the log of a group, and the metaslabs that are flushed in it.
//!
//! Before the first change of a group is written, metaslabs are flushed ([`super::log`] chooses them). The
//! changes *from before the group* that their own maps lack are appended to the maps, or the map is rewritten
//! without obsolete entries. Then the changes of the group go to the group's log, pass by pass. Logs that no
//! metaslab needs any more are freed.
//!
//! An entry of a log names its vdev, so it has two words. Offsets and lengths are in units of 512 bytes,
//! whatever the vdev's sector size is.

use std::sync::Arc;

use ondisk::dmu::{Byteswap, DmuType};
use ondisk::features::Feature;
use ondisk::pool_directory::{self, DIRECTORY_OBJECT, top_zap};
use ondisk::space_map::MapType;
use ondisk::{ByteOffset, ObjectId, Txg, VdevId, log_space_map};

use super::append::{Form, Words};
use super::load::{LOG_SHIFT, new_array};
use super::sync::{Enabled, Job, MAP_BLOCK_BYTES, create_map, new_map, set_header, write_map};
use crate::alloc::Allocator;
use crate::alloc::allocator::{MetaslabId, State};
use crate::alloc::log::Log;
use crate::alloc::metaslab::Changes;
use crate::dmu::zap::{self, Key, Value, edit};
use crate::dmu::{LiveObjset, NewObject};
use crate::error::{Error, Result};
use crate::txg::Tx;

/// Bytes in a block of a log.
const LOG_BLOCK_BYTES: u32 = 128 << 10;

/// A key of a ZAP.
pub fn name(name: &str) -> Key {
    Key::Name(name.as_bytes().to_vec())
}

/// A value of a ZAP.
pub fn number(value: u64) -> Value {
    Value::U64(vec![value])
}

impl State {
    fn job(&mut self, id: MetaslabId, changes: Changes) -> Result<Job> {
        let group = self.group(id.vdev)?;
        let array = group.array;
        let metaslab = group.metaslab_mut(id.place).ok_or_else(|| {
            Error::corrupt(format!("top-level vdev {}", id.vdev), format!("it has no metaslab {}", id.place))
        })?;
        Ok(Job {
            id,
            array,
            bounds: metaslab.bounds(),
            on_disk: metaslab.on_disk,
            changes,
            rewrite: None,
            histogram: None,
        })
    }

    /// The work of a flush in `txg`: dirty metaslabs as jobs, and the clean ones that only get a new *since*.
    fn plan_flush(&mut self, txg: Txg) -> Result<(Vec<Job>, Vec<MetaslabId>)> {
        let all = std::mem::take(&mut self.flush_all);
        let runs_of = |id: MetaslabId| {
            let group = self.groups.get(id.vdev.get() as usize).and_then(Option::as_ref);
            group.and_then(|group| group.metaslabs().get(id.place)).map_or(0, |slab| slab.unflushed.runs())
        };
        let plan = self.logs.plan(txg, all, self.unflushed_runs, runs_of);
        let (mut jobs, mut clean) = (Vec::new(), Vec::new());
        for (id, dirty) in plan {
            if !dirty {
                clean.push(id);
                continue;
            }
            let mut job = self.job(id, Changes::default())?;
            if let Some(metaslab) = self.group(id.vdev)?.metaslab_mut(id.place) {
                job.changes = metaslab.unflushed.clone();
                job.rewrite = metaslab.rewrite(MAP_BLOCK_BYTES.into());
                job.histogram = metaslab.histogram(txg);
            }
            jobs.push(job);
        }
        Ok((jobs, clean))
    }
}

impl Allocator {
    /// The log of the group of `tx`, which is created if necessary. The first pass also flushes metaslabs.
    pub(crate) async fn log_of(
        &self,
        mos: &Arc<LiveObjset>,
        tx: &Tx,
        pass: u16,
        enabled: Enabled,
    ) -> Result<Log> {
        if let Some(log) = self.state().logs.log(tx.txg()) {
            return Ok(log);
        }
        let log = self.begin_log(mos, tx, enabled).await?;
        self.flush(mos, tx, pass, enabled).await?;
        self.free_old_logs(mos, tx).await?;
        Ok(log)
    }

    async fn begin_log(&self, mos: &Arc<LiveObjset>, tx: &Tx, enabled: Enabled) -> Result<Log> {
        let zap = self.state().logs.zap;
        let zap = match zap {
            Some(zap) => zap,
            None => {
                let zap = edit::create(mos, tx, edit::NewZap::of(zap::metadata_type())).await?.id();
                let root = mos.object(DIRECTORY_OBJECT).await?;
                edit::set(&root, tx, &name(pool_directory::LOG_SPACEMAP_ZAP), &number(zap.get())).await?;
                let mut state = self.state();
                state.logs.zap = Some(zap);
                state.feature_changes.push((Feature::LogSpacemap, 1));
                zap
            }
        };
        let object = mos.allocate(tx, new_map(LOG_BLOCK_BYTES, enabled)).await?;
        let key = name(&log_space_map::key(tx.txg()));
        edit::set(&mos.object(zap).await?, tx, &key, &number(object.id().get())).await?;
        let log = Log {
            object: object.id(),
            length_bytes: 0,
            block_bytes: object.block_size(),
            allocated_bytes: 0,
            has_histogram: enabled.histogram,
        };
        let mut state = self.state();
        state.logs.set_log(tx.txg(), log);
        if enabled.histogram {
            state.feature_changes.push((Feature::SpacemapHistogram, 1));
        }
        Ok(log)
    }

    /// Flushes the metaslabs that are due.
    async fn flush(&self, mos: &Arc<LiveObjset>, tx: &Tx, pass: u16, enabled: Enabled) -> Result<()> {
        let (jobs, clean) = self.state().plan_flush(tx.txg())?;
        let mut moved = clean;
        for job in jobs {
            let (id, runs) = (job.id, job.changes.runs());
            let on_disk = write_map(mos, tx, pass, enabled, job).await?;
            let mut state = self.state();
            if let Some(metaslab) = state.group(id.vdev)?.metaslab_mut(id.place) {
                metaslab.on_disk = on_disk;
                metaslab.unflushed = Changes::default();
            }
            state.unflushed_runs = state.unflushed_runs.saturating_sub(runs);
            moved.push(id);
        }
        for id in &moved {
            self.state().logs.set(*id, tx.txg(), false);
        }
        self.write_since(mos, tx, &moved).await
    }

    /// Records in the MOS that changes of these metaslabs count from the group of `tx` on.
    async fn write_since(&self, mos: &Arc<LiveObjset>, tx: &Tx, ids: &[MetaslabId]) -> Result<()> {
        for id in ids {
            let known = self.state().logs.array(id.vdev);
            let array = match known {
                Some(array) => array,
                None => self.new_since_array(mos, tx, id.vdev).await?,
            };
            let array = mos.object(array).await?;
            array.write_at(tx, id.place as u64 * 8, &tx.txg().get().to_le_bytes()).await?;
        }
        Ok(())
    }

    async fn new_since_array(&self, mos: &Arc<LiveObjset>, tx: &Tx, vdev: VdevId) -> Result<ObjectId> {
        let top_zap_id = self.state().group(vdev)?.top_zap;
        let top_zap_id = top_zap_id
            .ok_or_else(|| Error::corrupt(format!("top-level vdev {vdev}"), "it is logged and has no ZAP"))?;
        let words = DmuType::self_describing(Byteswap::Uint64, true, false);
        let array = mos.allocate(tx, NewObject { dmu_type: words, ..new_array() }).await?.id();
        let top = mos.object(top_zap_id).await?;
        edit::set(&top, tx, &name(top_zap::MS_UNFLUSHED_PHYS_TXGS), &number(array.get())).await?;
        self.state().logs.set_array(vdev, array);
        Ok(array)
    }

    async fn free_old_logs(&self, mos: &Arc<LiveObjset>, tx: &Tx) -> Result<()> {
        let (old, zap) = {
            let mut state = self.state();
            (state.logs.take_old(), state.logs.zap)
        };
        let Some(zap) = zap.filter(|_| !old.is_empty()) else { return Ok(()) };
        let zap = mos.object(zap).await?;
        for (txg, log) in old {
            edit::remove(&zap, tx, &name(&log_space_map::key(txg))).await?;
            mos.free(tx, log.object).await?;
            if log.has_histogram {
                self.state().feature_changes.push((Feature::SpacemapHistogram, -1));
            }
        }
        Ok(())
    }

    /// Appends the changes of metaslabs in this pass to the log.
    pub(crate) async fn append_to_log(
        &self,
        mos: &Arc<LiveObjset>,
        tx: &Tx,
        pass: u16,
        enabled: Enabled,
        changes: Vec<(MetaslabId, Changes)>,
    ) -> Result<()> {
        let mut log = self.log_of(mos, tx, pass, enabled).await?;
        let mut since_now = Vec::new();
        for (id, changes) in &changes {
            let is_new = {
                let mut state = self.state();
                let metaslab = state.group(id.vdev)?.metaslab_mut(id.place);
                let (before, after) = metaslab.map_or((0, 0), |metaslab| {
                    let before = metaslab.unflushed.runs();
                    metaslab.unflushed.then(changes);
                    (before, metaslab.unflushed.runs())
                });
                state.unflushed_runs = (state.unflushed_runs + after).saturating_sub(before);
                if state.logs.change(*id, tx.txg()) {
                    since_now.push(*id);
                }
                state
                    .group(id.vdev)?
                    .metaslab_mut(id.place)
                    .is_some_and(|metaslab| metaslab.on_disk.object.is_none())
            };
            if is_new {
                self.begin_map(mos, tx, *id, enabled).await?;
            }
        }
        self.write_since(mos, tx, &since_now).await?;
        let form =
            Form { start: ByteOffset(0), shift: LOG_SHIFT, block_bytes: log.block_bytes, two_words: true };
        let mut words = Words::new(form, log.length_bytes);
        for of_vdev in changes.chunk_by(|(one, _), (next, _)| one.vdev == next.vdev) {
            let Some(vdev) = of_vdev.first().map(|(id, _)| id.vdev) else { continue };
            let allocs = of_vdev.iter().flat_map(|(_, changes)| changes.allocs.iter());
            words.batch(MapType::Alloc, (tx.txg(), pass), Some(vdev), allocs)?;
            let frees = of_vdev.iter().flat_map(|(_, changes)| changes.frees.iter());
            words.batch(MapType::Free, (tx.txg(), pass), Some(vdev), frees)?;
        }
        for (_, changes) in &changes {
            log.allocated_bytes += changes.allocs.total() as i64 - changes.frees.total() as i64;
        }
        let object = mos.object(log.object).await?;
        object.write_at(tx, log.length_bytes, &words.bytes()).await?;
        log.length_bytes = words.length_bytes();
        set_header(&object, tx, log.length_bytes, log.allocated_bytes, |old| old)?;
        self.state().logs.set_log(tx.txg(), log);
        Ok(())
    }

    /// Creates the map of a metaslab that is used for the first time: empty, with the sizes of its free runs
    /// in the header.
    async fn begin_map(
        &self,
        mos: &Arc<LiveObjset>,
        tx: &Tx,
        id: MetaslabId,
        enabled: Enabled,
    ) -> Result<()> {
        let job = self.state().job(id, Changes::default())?;
        let object = create_map(mos, tx, enabled, &job).await?;
        let mut state = self.state();
        if enabled.histogram {
            state.feature_changes.push((Feature::SpacemapHistogram, 1));
        }
        let Some(metaslab) = state.group(id.vdev)?.metaslab_mut(id.place) else { return Ok(()) };
        metaslab.on_disk.object = Some(object.id());
        let histogram = metaslab.histogram(tx.txg());
        set_header(&object, tx, 0, 0, |old| histogram.unwrap_or(old))
    }
}
