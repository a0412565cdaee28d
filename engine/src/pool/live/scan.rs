//! The scan of a pool that is written: what the pool stores of it, and what users ask of it.
//!
//! # What is stored
//! The state and the queue of datasets stand in the MOS in OpenZFS's form ([`ondisk::scan`]). They change in
//! syncing context only: when a scan begins, ends, is paused or goes on; when a batch is done; and when
//! datasets change, in the group in which they do ([`LivePool::follow_lineage`]).
//!
//! # Batches
//! A batch (`batches`) begins with the cursor as the pool stores it and a view that it is true of.
//! While it works, datasets go on changing. These changes are recorded, and what the batch gives back is the
//! cursor at its end with the changes applied. A batch that was overtaken, because its scan was paused, given
//! up, or begun anew, gives nothing back but the places that it has verified: the next batch of the scan
//! leaves them out, and what users see of the progress stays.
//!
//! # The end
//! A leaf that was there all the time holds now what it missed before, except for what could not be read or
//! written. So these groups are taken out of its dirty time log, in the same group that ends the scan. Not in
//! a pool with a checkpoint: blocks that only the checkpoint has are not scanned.
//!
//! | lock | guards | order |
//! |---|---|---|
//! | `ScanControl::state` | all of it; for a few lines, never across an await | taken alone |
//!
//! Source of the facts: OpenZFS 2.4 `dsl_scan.c` (`dsl_scan_setup_sync`, `dsl_scan_done`, `dsl_scan_init`),
//! `vdev.c` (`vdev_dtl_reassess`, `vdev_dtl_should_excise`).

pub(super) mod asked;
mod batches;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use device::IgnorePoison;
use futures_util::FutureExt;
use ondisk::dmu::DmuType;
use ondisk::pool_directory::{self, DIRECTORY_OBJECT, ERROR_SCRUB, LAST_SCRUBBED_TXG, SCAN, hex_key};
use ondisk::scan::{DDT_DONE, ErrorScrubPhys, FLAG_PAUSED, Function, ScanPhys, ScanState};
use ondisk::{Guid, ObjectId, Txg};

use super::jobs::each_alone;
use super::parts::{Doing, Part};
use super::{JobKey, LivePool, Syncing, rotate_error_log};
use crate::dmu::zap::{self, edit};
use crate::dsl::{Dsl, Lineage, history};
use crate::error::{Error, Result};
use crate::jobs::{JobState, JobStatus, Unit, Work};
use crate::pool::load::FUTURE_GROUPS;
use crate::pool::status;
use crate::scan::{Counters, Cursor, Failed, Purpose, ScanLimits, Verified};
use crate::store::Pool;
use crate::vdev::{Class, Kind, Vdev};
use asked::{error_scrub_paused, error_scrubbing, resilvering, scrubbing};

pub use asked::ScrubRange;

/// Pools of this version and newer ones have a type of their own for the queue (`SPA_VERSION_DSL_SCRUB`).
const VERSION_OF_QUEUE: u64 = 11;

/// The pause while scans are held.
pub(super) const HELD: Duration = Duration::from_millis(100);

/// The scan of a pool.
#[derive(Debug, Default)]
pub(super) struct ScanControl {
    state: Mutex<State>,
}

/// What is known of the scan.
#[derive(Debug)]
pub(super) struct State {
    /// What the pool stores.
    pub phys: ScanPhys,
    pub error_scrub: ErrorScrubPhys,
    /// Its position, as the pool stores it.
    pub cursor: Cursor,
    /// The queue as its object has it.
    stored_queue: BTreeMap<u64, Txg>,
    /// The group in which the position changed last.
    as_of: Txg,
    /// The number of the batch that is under way or was the last one. It changes with all that overtakes a
    /// batch.
    batch: u64,
    /// The number of the scan that is under way.
    scan: u64,
    /// What was verified since the cursor moved.
    verified: Arc<Verified>,
    /// Changes of datasets since the batch began.
    recorded: Vec<Lineage>,
    /// How often each leaf had been away when the scan began, of those that were there.
    present: HashMap<Guid, u64>,
    /// Groups that leaves lack still.
    failed: Failed,
    /// A resilver that was taken up failed to write something before, and it is not known what.
    pub is_flawed: bool,
    pub pass: Pass,
    /// Bounds other than those of the tunables.
    pub limits: Option<ScanLimits>,
}

impl Default for State {
    fn default() -> Self {
        Self {
            phys: ScanPhys::default(),
            error_scrub: ErrorScrubPhys::default(),
            cursor: Cursor::beginning(),
            stored_queue: BTreeMap::new(),
            as_of: Txg::NONE,
            batch: 0,
            scan: 0,
            verified: Arc::default(),
            recorded: Vec::new(),
            present: HashMap::new(),
            failed: Failed::new(),
            is_flawed: false,
            pass: Pass::default(),
            limits: None,
        }
    }
}

/// What was done since the scan began or the pool was opened.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Pass {
    /// When that was, in seconds since 1970.
    pub start: u64,
    /// Since when it is paused; 0 if it is not.
    pub paused: u64,
    /// Seconds for which it was paused.
    pub spent_paused: u64,
    /// Of batches that are done.
    pub done: Counters,
    /// Of the batch that is under way.
    pub batch: Counters,
    /// Of batches that did not come to their end since the cursor moved: the next one goes on from there.
    pub kept: Counters,
}

impl Pass {
    /// What was done since the cursor moved. What is read again is met again; what was repaired is right
    /// then.
    fn unfinished(&self) -> Counters {
        let processed = self.kept.processed + self.batch.processed;
        Counters { processed, ..self.kept.or_more(self.batch) }
    }
}

/// A batch that begins.
struct Batch {
    pub number: u64,
    /// The number of its scan.
    pub scan: u64,
    /// Blocks up to this group are in its view, and of its scan.
    pub as_of: Txg,
    /// What needs not be read.
    pub known: Arc<Verified>,
    pub cursor: Cursor,
    pub purpose: Purpose,
    pub limits: ScanLimits,
}

/// What a batch gives back.
struct Done {
    pub number: u64,
    pub cursor: Cursor,
    pub counters: Counters,
    pub failed: Failed,
    /// Leaves that did not take something.
    pub unwritten: BTreeSet<Guid>,
    /// Nothing is left.
    pub is_all: bool,
}

impl ScanControl {
    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().ignore_poison()
    }
}

impl State {
    /// What the batches of the scan look for.
    fn purpose(&self) -> Purpose {
        Purpose {
            is_resilver: self.phys.function == Function::Resilver,
            after: self.phys.min_txg,
            until: self.phys.max_txg,
        }
    }

    /// What is under way gives nothing back any more.
    fn overtake(&mut self) {
        self.batch += 1;
        self.recorded.clear();
        self.pass.kept = self.pass.unfinished();
        self.pass.batch = Counters::default();
    }

    /// The cursor moved, or another scan begins.
    fn forget_verified(&mut self) {
        self.verified = Arc::default();
        self.pass.kept = Counters::default();
    }

    /// Keeps what a batch of this scan has verified and did not come to its end.
    fn keep(&mut self, scan: u64, verified: Verified) {
        if self.scan == scan {
            Arc::make_mut(&mut self.verified).add(verified);
        }
    }

    /// What a batch did so far. False when it was overtaken.
    fn note_progress(&mut self, number: u64, counters: &Counters) -> bool {
        let is_current = self.batch == number && self.phys.is_running();
        if is_current {
            self.pass.batch = *counters;
        }
        is_current
    }

    /// The leaves that are there from now on.
    fn note_present(&mut self, pool: &Pool) {
        let leaves = pool.vdevs().leaves().filter(|leaf| leaf.status().is_readable());
        self.present = leaves.map(|leaf| (leaf.guid, absences(leaf))).collect();
        self.failed.clear();
    }

    /// A number that goes up when a scan begins and when it ends.
    pub(super) fn number(&self) -> u64 {
        self.scan
    }

    /// Whether a leaf was there since the scan began.
    pub(super) fn was_present(&self, leaf: &Vdev) -> bool {
        leaf.status().is_readable() && self.present.get(&leaf.guid) == Some(&absences(leaf))
    }
}

fn absences(leaf: &Vdev) -> u64 {
    leaf.absences.load(std::sync::atomic::Ordering::Acquire)
}

impl Part for ScanControl {
    fn load<'a>(&'a self, pool: &'a Arc<LivePool>, dsl: &'a Dsl) -> Doing<'a> {
        pool.load_scan(dsl).boxed()
    }

    fn sync<'a>(&'a self, s: &'a Syncing) -> Doing<'a> {
        s.pool.follow_lineage(s).boxed()
    }

    fn work(&self, _: &Arc<LivePool>, keys: &[(JobKey, JobStatus)]) -> Vec<Work<LivePool>> {
        each_alone(keys, |_| Some(batches::Scanning::default()))
    }
}

impl LivePool {
    pub(super) fn scan(&self) -> MutexGuard<'_, State> {
        self.parts.scan.state()
    }

    /// Bounds of scans from now on. For tests.
    pub fn set_scan_limits(&self, limits: ScanLimits) {
        self.scan().limits = Some(limits);
    }

    /// Takes up the scan that the pool stores. Before the pool is started.
    async fn load_scan(&self, dsl: &Dsl) -> Result<()> {
        let words = async |name| Ok::<_, Error>(dsl.mos().value(DIRECTORY_OBJECT, name).await?);
        let phys = words(SCAN).await?.and_then(|value| ScanPhys::from_words(&value.to_u64s()));
        let error_scrub = words(ERROR_SCRUB).await?;
        let error_scrub = error_scrub.and_then(|value| ErrorScrubPhys::from_words(&value.to_u64s()));
        let mut phys = phys.unwrap_or_default();
        // No scan waits for groups that are far away, and none says anything of those.
        let latest = self.pool.uberblock().txg.get().saturating_add(FUTURE_GROUPS);
        phys.max_txg = phys.max_txg.min(Txg(latest));
        let mut queue = BTreeMap::new();
        if phys.is_running() && !phys.queue.is_none() {
            for (key, after) in dsl.mos().u64_entries(phys.queue).await? {
                let object = pool_directory::parse_hex_key(key.as_bytes());
                let object =
                    object.ok_or_else(|| Error::corrupt("queue of a scan", format!("key {key:?}")))?;
                queue.insert(object, Txg(after));
            }
        }
        let mut state = self.scan();
        (state.phys, state.error_scrub) = (phys, error_scrub.unwrap_or_default());
        state.stored_queue.clone_from(&queue);
        state.cursor = Cursor::load(&phys, queue);
        // As OpenZFS does, no device forgets what it missed when a scan had errors before it was interrupted.
        if !phys.is_running() || phys.errors == 0 {
            state.note_present(&self.pool);
        }
        state.is_flawed = phys.function == Function::Resilver && phys.is_running() && phys.errors > 0;
        state.pass = Pass { start: self.env.now().as_secs(), ..Pass::default() };
        if phys.is_paused() {
            state.pass.paused = state.pass.start;
        }
        if phys.is_running() {
            let begun = JobStatus::begun(Unit::Bytes, phys.start_time, 0);
            let state = if phys.is_paused() { JobState::Suspended } else { JobState::Active };
            self.jobs.take_up([(JobKey::Scan, JobStatus { state, total: phys.to_examine, ..begun })]);
        }
        Ok(())
    }

    /// Has a thread go on with the scan.
    pub(super) async fn work_on_scan(self: &Arc<Self>) -> Result<()> {
        self.jobs.start(self, &[JobKey::Scan], (Unit::Bytes, 0)).await
    }

    /// The scan with its progress, as of now; nothing when there never was one.
    pub fn scan_status(&self) -> Option<status::Scan> {
        let job = self.job_statuses().get(&JobKey::Scan).copied();
        let state = self.scan();
        let mut scan = status::scan_of(&state.phys.to_words())?;
        let Pass { start, paused, spent_paused, done, .. } = state.pass;
        let batch = state.pass.unfinished();
        let pass = done.plus(batch);
        scan.issued = scan.examined.saturating_sub(scan.skipped).saturating_add(batch.issued);
        scan.examined = scan.examined.saturating_add(batch.examined);
        scan.skipped = scan.skipped.saturating_add(batch.skipped);
        scan.processed = scan.processed.saturating_add(batch.processed);
        scan.errors = scan.errors.saturating_add(batch.errors);
        scan.pass_start = start;
        scan.pass_spent_paused = spent_paused;
        scan.pass_examined = pass.examined;
        scan.pass_issued = pass.issued;
        scan.rate = job.filter(|job| job.state == JobState::Active).and_then(|job| job.rate);
        scan.paused_time = (paused != 0 && state.phys.is_paused()).then_some(paused);
        Some(scan)
    }

    /// The error scrub; nothing when there was none since the last scrub.
    pub fn error_scrub_status(&self) -> Option<status::Scan> {
        status::error_scrub_of(&self.scan().error_scrub)
    }

    /// Begins a batch, together with the view that its cursor is true of. None when no scan is under way.
    async fn begin_batch(&self) -> Result<Option<(Batch, Arc<super::Lent>)>> {
        loop {
            let (mut batch, as_of) = {
                let mut state = self.scan();
                if !state.phys.is_running() || state.phys.is_paused() {
                    return Ok(None);
                }
                state.overtake();
                let batch = Batch {
                    number: state.batch,
                    scan: state.scan,
                    as_of: state.purpose().until,
                    known: Arc::clone(&state.verified),
                    cursor: state.cursor.clone(),
                    purpose: state.purpose(),
                    limits: state.limits.unwrap_or_default(),
                };
                (batch, state.as_of)
            };
            // What leaves missed may be of groups that are not committed yet.
            let least = if batch.purpose.is_resilver { as_of.max(batch.purpose.until) } else { as_of };
            self.txgs.wait_synced(least).await?;
            let (view, lent) = self.lend_view();
            let state = self.scan();
            let is_true = state.recorded.is_empty() && state.batch == batch.number;
            batch.as_of = batch.as_of.min(view.uberblock().txg);
            if is_true && view.uberblock().txg >= least {
                return Ok(Some((batch, lent)));
            }
        }
    }

    /// Follows what became of datasets in the group that is being written.
    async fn follow_lineage(&self, s: &Syncing) -> Result<()> {
        let changes = self.dsl.take_lineage();
        let changed = {
            let mut state = self.scan();
            if changes.is_empty() || !state.phys.is_running() {
                return Ok(());
            }
            state.recorded.extend(&changes);
            // The view of a batch that begins now does not have them yet.
            state.as_of = s.txg();
            changes.into_iter().fold(false, |changed, change| state.cursor.follow(change) | changed)
        };
        if changed { s.store_scan().await } else { Ok(()) }
    }
}

/// How a scan ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    Complete,
    Canceled,
    /// It begins anew, or another one does.
    Restarting,
}

impl Syncing {
    /// Begins a scrub, or goes on with one that is paused: true for that.
    async fn begin_scrub(&self, range: ScrubRange) -> Result<bool> {
        {
            let mut state = self.pool.scan();
            if state.error_scrub.is_running() {
                return Err(match state.error_scrub.paused {
                    0 => error_scrubbing(),
                    _ => error_scrub_paused(),
                });
            }
            if state.phys.is_running() && !state.phys.is_paused() {
                return Err(match state.phys.function {
                    Function::Resilver => resilvering(),
                    _ => scrubbing(),
                });
            }
            if state.phys.is_paused() {
                state.phys.flags &= !FLAG_PAUSED;
                let paused = std::mem::take(&mut state.pass.paused);
                state.pass.spent_paused += self.now().saturating_sub(paused);
            }
        }
        if self.pool.scan().phys.is_running() {
            self.store_scan().await?;
            return Ok(true);
        }
        // What is newer is in no view of the first batch.
        let until = range.until.map_or(self.txg(), |until| until.min(self.txg()));
        self.set_scan_up(Function::Scrub, range.after, until).await?;
        Ok(false)
    }

    /// Begins a scan.
    pub(super) async fn set_scan_up(&self, function: Function, after: Txg, until: Txg) -> Result<()> {
        let dmu_type = match self.has_version(VERSION_OF_QUEUE) {
            true => DmuType::SCAN_QUEUE,
            false => DmuType::ZAP_OTHER,
        };
        let queue = self.create_zap(dmu_type).await?;
        let classes = [Class::Normal, Class::Special, Class::Dedup, Class::Log];
        let space = classes.map(|class| self.pool.allocator().space(class).allocated_bytes);
        let to_examine =
            space.iter().sum::<u64>() + self.pool.allocator().embedded_log_space().allocated_bytes;
        {
            let mut state = self.pool.scan();
            state.overtake();
            state.scan += 1;
            state.forget_verified();
            state.phys = ScanPhys {
                function,
                state: ScanState::Scanning,
                queue: queue.id(),
                min_txg: after,
                max_txg: until,
                start_time: self.now(),
                to_examine,
                // No dedup table is walked first: OpenZFS must not leave out blocks because they are in one.
                ddt_class_max: 0,
                ..ScanPhys::default()
            };
            state.error_scrub = ErrorScrubPhys::default();
            state.cursor = Cursor::beginning();
            state.stored_queue.clear();
            state.is_flawed = false;
            state.note_present(&self.pool.pool);
            state.pass = Pass { start: self.now(), ..Pass::default() };
        }
        self.pool.pool.vdevs().leaves().for_each(|leaf| leaf.stats.clear_scanned());
        self.store_error_scrub().await?;
        self.store_scan().await?;
        self.pool.config_changed();
        let text = format!("func={} mintxg={after} maxtxg={until}", function as u64);
        self.note_scan("scan setup", &text).await
    }

    /// Writes the state, and what is different in the queue.
    pub(super) async fn store_scan(&self) -> Result<()> {
        let (phys, removed, set) = {
            let mut state = self.pool.scan();
            let State { phys, cursor, stored_queue, as_of, .. } = &mut *state;
            *as_of = self.txg();
            cursor.store(phys);
            let removed: Vec<u64> =
                stored_queue.keys().filter(|object| !cursor.queue.contains_key(object)).copied().collect();
            let set = cursor.queue.iter().filter(|(object, after)| stored_queue.get(object) != Some(after));
            let set: Vec<(u64, Txg)> = set.map(|(object, after)| (*object, *after)).collect();
            stored_queue.clone_from(&cursor.queue);
            (*phys, removed, set)
        };
        let is_changed = !removed.is_empty() || !set.is_empty();
        if is_changed && !phys.queue.is_none() {
            let queue = self.mos().object(phys.queue).await?;
            for object in removed {
                edit::remove(&queue, &self.tx, &zap::Key::Name(hex_key(object).into())).await?;
            }
            for (object, after) in set {
                edit::set_u64(&queue, &self.tx, hex_key(object), after.get()).await?;
            }
        }
        self.set_in_directory(SCAN, zap::Value::U64(phys.to_words().to_vec())).await
    }

    /// Takes over what a batch gives back, and ends the scan when nothing is left: true for that. A batch
    /// that was overtaken gives nothing back.
    async fn finish_batch(&self, done: Done) -> Result<bool> {
        self.pool.follow_lineage(self).await?;
        // After an import it is not known what failed: these leaves are resilvered once more.
        let lacking: Vec<Guid> = done.unwritten.iter().copied().collect();
        let is_all = {
            let mut state = self.pool.scan();
            if state.batch != done.number || !state.phys.is_running() || state.phys.is_paused() {
                return Ok(false);
            }
            let mut cursor = done.cursor;
            for change in std::mem::take(&mut state.recorded) {
                cursor.follow(change);
            }
            // What followed a dataset that went away meanwhile came into the queue.
            let is_all = done.is_all && cursor.queue.is_empty();
            state.cursor = cursor;
            let mut counters = done.counters;
            counters.processed += state.pass.kept.processed;
            state.phys.examined = state.phys.examined.saturating_add(counters.examined);
            state.phys.skipped = state.phys.skipped.saturating_add(counters.skipped);
            state.phys.processed = state.phys.processed.saturating_add(counters.processed);
            state.phys.errors = state.phys.errors.saturating_add(counters.errors);
            (state.phys.ddt_bookmark, state.phys.ddt_class_max) = ([DDT_DONE, 0, 0, 0], 0);
            state.pass.done = state.pass.done.plus(counters);
            for (leaf, groups) in done.failed {
                let known = state.failed.entry(leaf).or_default();
                groups.ranges().iter().for_each(|(start, end)| known.add(*start, *end));
            }
            state.overtake();
            state.forget_verified();
            is_all
        };
        if self.pool.scan().phys.function == Function::Resilver {
            self.defer(&lacking).await?;
        }
        match is_all {
            true => self.end_scan(End::Complete).await?,
            false => self.store_scan().await?,
        }
        Ok(is_all)
    }

    /// Ends the scan that is under way.
    pub(super) async fn end_scan(&self, end: End) -> Result<()> {
        let queue = {
            let mut state = self.pool.scan();
            state.overtake();
            state.scan += 1;
            state.forget_verified();
            state.phys.flags &= !FLAG_PAUSED;
            state.stored_queue.clear();
            state.cursor.queue.clear();
            state.cursor.again = false;
            std::mem::replace(&mut state.phys.queue, ObjectId(0))
        };
        if !queue.is_none() {
            self.mos().free(&self.tx, queue).await?;
        }
        let name = match end {
            End::Complete => "scan done",
            End::Canceled => "scan cancelled",
            End::Restarting => "scan aborted, restarting",
        };
        let phys = self.pool.scan().phys;
        self.note_scan(name, &format!("errors={}", phys.errors)).await?;
        let is_scrub = phys.function == Function::Scrub;
        if end == End::Complete && is_scrub {
            self.set_in_directory(LAST_SCRUBBED_TXG, zap::Value::U64(vec![phys.max_txg.get()])).await?;
        }
        if end == End::Complete {
            self.forget_what_was_scanned();
            if is_scrub && phys.min_txg == Txg::NONE {
                self.pool.resolve_doubts();
            }
            // What a scan that was given up did not come to is damaged still.
            rotate_error_log(self).await?;
        }
        {
            let mut state = self.pool.scan();
            state.phys.state = if end == End::Complete { ScanState::Finished } else { ScanState::Canceled };
            state.phys.end_time = self.now();
        }
        self.store_scan().await?;
        if end == End::Complete {
            match is_scrub {
                true => self.pool.sysevent("scrub_finish", None),
                false => self.pool.resilver_event("resilver_finish"),
            }
        }
        self.clear_deferred(end).await
    }

    /// Leaves that were there all the time hold now what they missed, but for what failed.
    fn forget_what_was_scanned(&self) {
        let pool = &self.pool;
        // Blocks that only the checkpoint has were not looked at.
        if pool.refuse_with_checkpoint().is_err() {
            return;
        }
        let state = pool.scan();
        let phys = state.phys;
        let mut config = pool.config();
        for leaf in pool.pool.vdevs().leaves() {
            let is_leaf = matches!(leaf.kind, Kind::Leaf(_) | Kind::DraidSpare { .. });
            if !is_leaf || leaf.missing_txgs.is_empty() || !state.was_present(leaf) {
                continue;
            }
            let Some(told) = config.find_mut(leaf.guid) else { continue };
            let last = leaf.missing_txgs.ranges().ranges().last().map_or(0, |(_, end)| *end);
            // A device that was attached is complete only with all of its past.
            if told.resilver_deferred || (told.resilver_txg.is_some() && last > phys.max_txg.get()) {
                continue;
            }
            // A scrub of a part says nothing of what is older.
            let is_partial = phys.function == Function::Scrub && phys.min_txg != Txg::NONE;
            let first = if is_partial { phys.min_txg.get().saturating_add(1) } else { 0 };
            let failed = state.failed.get(&leaf.guid).cloned().unwrap_or_default();
            // As OpenZFS does, which looks only at what is older than the last group.
            leaf.missing_txgs.forget(Txg(first), phys.max_txg);
            for (start, end) in failed.ranges() {
                leaf.missing_txgs.note_range(Txg(*start), Txg(end.saturating_sub(1)));
            }
            if leaf.missing_txgs.is_empty() {
                told.resilver_txg = None;
            }
        }
        drop(config);
        pool.config_changed();
    }

    /// Notes in the pool's history what became of the scan.
    pub(super) async fn note_scan(&self, name: &str, text: &str) -> Result<()> {
        let host = self.pool.config().host.1.clone();
        let event = history::event(name, text, None, self.txg().get(), self.now(), &host);
        self.append_history(&event).await
    }
}
