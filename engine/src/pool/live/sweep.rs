//! Going through the free space of devices: initializing it, and trimming it by hand.
//!
//! # The idea
//! Both do something to each range that is free, device by device, and take long. What is worked on must not
//! be handed out meanwhile, and no state of the pool that could still be wanted may refer to it. Both
//! follow from taking free space the way an allocation does: [`crate::alloc::Allocator::borrow_free`] takes
//! runs out of what may be handed out, as part of the group that is being written, and
//! [`crate::alloc::Allocator::give_back`] returns them before that group's space maps are written. So nothing
//! of it reaches a space map; and what can be taken was freed long enough ago that neither older uberblocks
//! that are kept safe nor views refer to it.
//!
//! Each is a job ([`crate::jobs`]) of a leaf. Those of a top-level vdev that are equally far and fast are
//! done together: a step goes through a bounded number of runs of one metaslab, in one group. How far it is
//! is in the ZAP of each leaf, written with the group; so it goes on where it was when the pool is
//! imported again, here or by OpenZFS.
//!
//! | what | does | runs that are left out |
//! |---|---|---|
//! | initialize | writes a pattern, so that thin devices get their space, or are tried | none |
//! | trim | tells devices what they need not keep | those that cost more than they give back |
//!
//! # Places
//! A leaf's progress is stored as an offset of its device, as OpenZFS does. For mirrors that is the offset in
//! the top-level vdev, behind the labels; a raidz vdev with n children is as far in all of them when they are
//! an n-th of its own offset far.
//!
//! # Devices that go away
//! A sweep of a leaf that went away stays active, and a thread takes it up again when the leaf is back. One
//! of a leaf that failed is given up.
//!
//! Source of the facts: OpenZFS 2.3 `vdev_initialize.c`, `vdev_trim.c`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::LocalBoxFuture;
use ondisk::pool_directory::leaf_zap;
use ondisk::vdev_config::VdevConfig;
use ondisk::{Guid, ObjectId, VdevId};

use super::parts::{Doing, Part};
use super::{JobKey, LivePool, Syncing};
use crate::alloc::{MetaslabId, Run};
use crate::dmu::zap;
use crate::dsl::history;
use crate::dsl::{Dsl, Mos};
use crate::error::{Error, Result};
use crate::jobs::{Job, JobState, JobStatus, Step, Stop, Target, Turn, Unit, Work};
use crate::tunables;
use crate::vdev::write::Unused;
use crate::vdev::{Kind, LABEL_START_BYTES, State, Vdev};

/// Most runs that one group works on.
const MAX_RUNS: usize = 1024;

/// What is done to free space.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Sweep {
    /// A pattern is written.
    Initialize,
    /// It is discarded.
    Trim,
}

impl Sweep {
    const ALL: [Self; 2] = [Self::Initialize, Self::Trim];

    /// Its name in the pool's history.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Initialize => "initialize",
            Self::Trim => "trim",
        }
    }

    /// Its entries in the ZAP of a leaf: how far, how, when, and bytes a second.
    fn entries(self) -> (&'static str, &'static str, &'static str, Option<&'static str>) {
        match self {
            Self::Initialize => (
                leaf_zap::INITIALIZE_LAST_OFFSET,
                leaf_zap::INITIALIZE_STATE,
                leaf_zap::INITIALIZE_ACTION_TIME,
                None,
            ),
            Self::Trim => (
                leaf_zap::TRIM_LAST_OFFSET,
                leaf_zap::TRIM_STATE,
                leaf_zap::TRIM_ACTION_TIME,
                Some(leaf_zap::TRIM_RATE),
            ),
        }
    }

    /// The shortest run that is worked on, and most bytes in one group: what is done to them holds the group
    /// up.
    fn bounds(self) -> (u64, u64) {
        match self {
            Self::Initialize => (1, 16 << 20),
            Self::Trim => (tunables::ZFS_TRIM_EXTENT_BYTES_MIN.get(), 4 << 30),
        }
    }

    /// Why a leaf cannot be worked on, if so.
    fn refuses(self, top: &Vdev, leaf: &Vdev) -> Option<Error> {
        let cannot_discard = self == Self::Trim && leaf.cannot_discard.load(Ordering::Relaxed);
        if !matches!(leaf.kind, Kind::Leaf(_)) || !leaf.status().is_readable() {
            Some(Error::Busy(format!("{}: device is not writable", leaf.name)))
        } else if cannot_discard || matches!(top.kind, Kind::Draid(_)) {
            Some(Error::Unsupported(format!("{}: {} operations are not supported", leaf.name, self.name())))
        } else {
            None
        }
    }
}

/// The word for a state in the pool's history.
fn word(state: JobState) -> &'static str {
    match state {
        JobState::Active => "activated",
        JobState::Canceled => "canceled",
        JobState::Suspended => "suspended",
        JobState::Complete => "complete",
    }
}

/// How all of a pool stand.
type Runs = BTreeMap<(Sweep, Guid), JobStatus>;

/// How the sweeps of a pool stand, as its MOS tells.
pub async fn sweeps_of(dsl: &Dsl) -> Result<Runs> {
    let mut runs = Runs::new();
    let config = dsl.mos().config().await?;
    for top in config.vdev_tree.iter().flat_map(|root| &root.children) {
        for leaf in top.leaves() {
            let Some(zap) = leaf.leaf_zap else { continue };
            for work in Sweep::ALL {
                if let Some(status) = read(dsl.mos(), work, zap, top).await? {
                    runs.insert((work, leaf.guid), status);
                }
            }
        }
    }
    Ok(runs)
}

async fn read(mos: &Mos, work: Sweep, zap: ObjectId, top: &VdevConfig) -> Result<Option<JobStatus>> {
    let (offset, state, time, rate) = work.entries();
    let Some(state) = mos.u64(zap, state).await?.and_then(JobState::from_number) else { return Ok(None) };
    let total_bytes = top.asize.map_or(0, |asize| asize.get());
    let offset = mos.u64(zap, offset).await?.unwrap_or(0);
    let done_bytes = match state {
        JobState::Complete => total_bytes,
        _ => offset.saturating_sub(LABEL_START_BYTES).saturating_mul(width(top)).min(total_bytes),
    };
    let rate_limit = match rate {
        Some(rate) => mos.u64(zap, rate).await?.unwrap_or(0),
        None => 0,
    };
    let time = mos.u64(zap, time).await?.unwrap_or(0);
    let begun = JobStatus::begun(Unit::Bytes, time, rate_limit);
    Ok(Some(JobStatus { state, done: done_bytes, total: total_bytes, ..begun }))
}

/// How many bytes of a top-level vdev go with one of a leaf.
fn width(top: &VdevConfig) -> u64 {
    match top.kind {
        ondisk::vdev_config::VdevKind::Raidz { .. } => top.children.len().max(1) as u64,
        _ => 1,
    }
}

/// Goes through the free space of leaves.
#[derive(Debug, Default)]
pub(super) struct Sweeps;

impl Part for Sweeps {
    fn load<'a>(&'a self, pool: &'a Arc<LivePool>, dsl: &'a Dsl) -> Doing<'a> {
        let load = async {
            let sweeps = sweeps_of(dsl).await?.into_iter();
            pool.jobs.take_up(sweeps.map(|((work, leaf), status)| (JobKey::Sweep(work, leaf), status)));
            Ok(())
        };
        load.boxed()
    }

    fn target(&self, pool: &LivePool, key: JobKey) -> Target {
        let Some((_, leaf)) = key.sweep() else { return Target::Here };
        match pool.pool.vdevs().find(leaf).map(Vdev::status) {
            Some(status) if status.is_readable() => Target::Here,
            Some(status) if status.state == State::Faulted => Target::Failed,
            _ => Target::Away,
        }
    }

    fn keeps_jobs(&self) -> bool {
        true
    }

    fn keep<'a>(&'a self, s: &'a Syncing, keys: &'a [JobKey]) -> Doing<'a> {
        keep(s, keys).boxed()
    }

    fn work(&self, pool: &Arc<LivePool>, keys: &[(JobKey, JobStatus)]) -> Vec<Work<LivePool>> {
        let sweeps = keys.iter().filter_map(|(key, status)| Some((key.sweep()?, *status)));
        pool.sweep_work(&sweeps.collect::<Vec<_>>())
    }
}

impl JobKey {
    fn sweep(self) -> Option<(Sweep, Guid)> {
        match self {
            JobKey::Sweep(work, leaf) => Some((work, leaf)),
            _ => None,
        }
    }

    /// Whether it is work on this leaf.
    pub(super) fn is_on(self, leaf: Guid) -> bool {
        self.sweep().is_some_and(|(_, of)| of == leaf)
    }
}

impl LivePool {
    /// How the sweeps stand, by what they do and leaf.
    pub fn sweeps(&self) -> Runs {
        let all = self.job_statuses().into_iter();
        all.filter_map(|(key, status)| Some((key.sweep()?, status))).collect()
    }

    /// Begins to sweep leaves, or goes on with those that were suspended. `rate_bytes` bounds the bytes a
    /// second.
    ///
    /// # Errors
    /// A vdev that is no leaf with a device that can be written, that cannot do this, or does it already.
    pub async fn sweep(self: &Arc<Self>, work: Sweep, leaves: &[Guid], rate_bytes: u64) -> Result<()> {
        for guid in leaves {
            let (Some(top), Some(leaf)) = (self.top_of(*guid), self.leaf_of(*guid)) else {
                return Err(Error::NotFound(format!("device {guid}")));
            };
            if let Some(error) = work.refuses(top, leaf) {
                return Err(error);
            }
            if self.jobs.state_of(&JobKey::Sweep(work, *guid)) == Some(JobState::Active) {
                let doing = match work {
                    Sweep::Initialize => "currently initializing",
                    Sweep::Trim => "currently trimming",
                };
                return Err(Error::Busy(format!("{}: {doing}", leaf.name)));
            }
        }
        self.jobs.start(self, &keys(work, leaves), (Unit::Bytes, rate_bytes)).await
    }

    /// Ends sweeps, for good or for now. Returns how many there were.
    pub async fn stop_sweep(self: &Arc<Self>, work: Sweep, leaves: &[Guid], how: Stop) -> Result<usize> {
        self.jobs.stop(self, &keys(work, leaves), how).await
    }

    /// Forgets that leaves were initialized.
    ///
    /// # Errors
    /// One of them is being initialized.
    pub async fn uninitialize(self: &Arc<Self>, leaves: &[Guid]) -> Result<()> {
        let work = Sweep::Initialize;
        let is_active = |key: &JobKey| self.jobs.state_of(key) == Some(JobState::Active);
        if keys(work, leaves).iter().any(is_active) {
            return Err(Error::Busy("currently initializing".into()));
        }
        let leaves = leaves.to_vec();
        self.change(move |s| async move {
            for leaf in leaves {
                s.pool.jobs.forget(&JobKey::Sweep(work, leaf));
                let Some(zap) = leaf_zap_of(&s, leaf).await? else { continue };
                let (offset, state, time, _) = work.entries();
                for entry in [offset, state, time] {
                    zap::edit::remove(&zap, &s.tx, &zap::Key::Name(entry.into())).await?;
                }
                note(&s, "uninitialize", leaf, None).await?;
            }
            Ok(())
        })
        .await
    }

    fn leaf_of(&self, guid: Guid) -> Option<&Vdev> {
        self.pool.vdevs().leaves().find(|leaf| leaf.guid == guid)
    }

    /// The top-level vdev that a vdev is a part of.
    fn top_of(&self, guid: Guid) -> Option<&Vdev> {
        self.pool.vdevs().tops.iter().find(|top| top.walk().any(|vdev| vdev.guid == guid))
    }

    /// How sweeps are to be done: for each top-level vdev those of its leaves together that are equally far
    /// and fast. What a device cannot do is left out, and stays active.
    fn sweep_work(&self, sweeps: &[((Sweep, Guid), JobStatus)]) -> Vec<Work<Self>> {
        let mut together: BTreeMap<(Sweep, u32, u64, u64), BTreeSet<JobKey>> = BTreeMap::new();
        for ((work, guid), status) in sweeps {
            let (Some(top), Some(leaf)) = (self.top_of(*guid), self.leaf_of(*guid)) else { continue };
            if work.refuses(top, leaf).is_none() {
                let top = u32::try_from(top.id).unwrap_or(u32::MAX);
                let pass = (*work, top, status.done, status.rate_limit);
                together.entry(pass).or_default().insert(JobKey::Sweep(*work, *guid));
            }
        }
        let work = |((work, top, from, rate_bytes), keys)| {
            let total = self.pool.vdevs().top(top).map_or(0, Vdev::asize);
            let job = Box::new(Pass { work, top, from, rate_bytes, place: 0, at: 0 });
            Work { keys, total, job }
        };
        together.into_iter().map(work).collect()
    }
}

fn keys(work: Sweep, leaves: &[Guid]) -> Vec<JobKey> {
    leaves.iter().map(|leaf| JobKey::Sweep(work, *leaf)).collect()
}

/// One pass through the free space of a top-level vdev.
#[derive(Debug)]
struct Pass {
    work: Sweep,
    top: u32,
    /// What lies before was done when it began.
    from: u64,
    rate_bytes: u64,
    /// The metaslab that it is at, and what lies before in it is done.
    place: usize,
    at: u64,
}

impl Job<LivePool> for Pass {
    fn name(&self) -> &'static str {
        self.work.name()
    }

    fn step<'a>(&'a mut self, turn: &'a Turn<'a, LivePool>) -> LocalBoxFuture<'a, Result<Step>> {
        self.next(turn).boxed_local()
    }
}

impl Pass {
    async fn next(&mut self, turn: &Turn<'_, LivePool>) -> Result<Step> {
        let pool = turn.host()?;
        // The vdev may grow meanwhile.
        let (id, from) = loop {
            let id = MetaslabId { vdev: VdevId(self.top), place: self.place };
            let Some((start, end)) = pool.allocator().extent(id) else { return Ok(Step::Complete) };
            let from = start.max(self.from).max(self.at);
            if from < end {
                break (id, from);
            }
            (self.place, self.at) = (self.place + 1, 0);
        };
        let leaves = turn.keys().iter().filter_map(|key| Some(key.sweep()?.1)).collect();
        let share = Share { work: self.work, id, from, leaves, rate_bytes: self.rate_bytes };
        let (next, bytes) = pool.change(move |s| async move { share.take(&s).await }).await?;
        self.at = next;
        let pause = bytes.saturating_mul(1000).checked_div(self.rate_bytes).unwrap_or(0);
        Ok(Step::More { pause: Duration::from_millis(pause) })
    }
}

/// What one group does of a sweep.
struct Share {
    work: Sweep,
    id: MetaslabId,
    from: u64,
    leaves: BTreeSet<Guid>,
    rate_bytes: u64,
}

impl Share {
    /// Works on some of a metaslab. Gives where to go on, and the bytes.
    async fn take(self, s: &Syncing) -> Result<(u64, u64)> {
        let allocator = s.pool.allocator();
        // Here, because the last step may be groups ago, and what is idle is let go.
        allocator.load_metaslab(self.id).await?;
        let (min, most) = self.work.bounds();
        // With a limit, a second's worth.
        let most = if self.rate_bytes > 0 { most.min(self.rate_bytes.max(min)) } else { most };
        let Some((_, end)) = allocator.extent(self.id) else { return Ok((u64::MAX, 0)) };
        let runs = allocator.borrow_free(self.id, (self.from, end), min, MAX_RUNS, most, s.txg());
        let unused: Vec<Unused> = runs.iter().map(unused).collect();
        let is_chosen = |leaf: &Vdev| self.leaves.contains(&leaf.guid);
        let vdevs = s.pool.pool.vdevs();
        let bytes = match self.work {
            Sweep::Initialize => vdevs.initialize(&unused, &is_chosen).await,
            Sweep::Trim => vdevs.discard(&unused, &is_chosen).await,
        };
        tracing::debug!(work = self.work.name(), runs = runs.len(), bytes, "swept");
        allocator.give_back(&runs, s.txg());
        let at = runs.last().map_or(end, |run| run.to);
        let total = s.pool.pool.vdevs().top(self.id.vdev.get()).map_or(0, Vdev::asize);
        for leaf in &self.leaves {
            if let Some(run) = s.pool.jobs.advance(&s.pool, &JobKey::Sweep(self.work, *leaf), at, total) {
                write(s, self.work, *leaf, &run).await?;
            }
        }
        Ok((at, runs.iter().map(|run| run.to - run.from).sum()))
    }
}

/// The ranges of devices that a run of free space stands for.
pub(super) fn unused(run: &Run) -> Unused {
    Unused { top: run.vdev.get(), offset_bytes: run.from, size_bytes: run.to - run.from }
}

/// The ZAP of a leaf; pools of some age have none.
async fn leaf_zap_of(s: &Syncing, leaf: Guid) -> Result<Option<Arc<crate::dmu::LiveObject>>> {
    let id = s.pool.config().find_mut(leaf).and_then(|config| config.leaf_zap);
    match id {
        Some(id) => s.mos().object(id).await.map(Some),
        None => Ok(None),
    }
}

/// Writes down how sweeps stand, and that they came to be so.
async fn keep(s: &Syncing, keys: &[JobKey]) -> Result<()> {
    for key in keys {
        let (Some((work, leaf)), Some(run)) = (key.sweep(), s.pool.jobs.status(key)) else { continue };
        write(s, work, leaf, &run).await?;
        note(s, work.name(), leaf, Some(run.state)).await?;
        // OpenZFS has no events of initializing.
        if work == Sweep::Trim {
            let event = match run.state {
                JobState::Active if run.done > 0 => "trim_resume",
                JobState::Active => "trim_start",
                JobState::Canceled => "trim_cancel",
                JobState::Suspended => "trim_suspend",
                JobState::Complete => "trim_finish",
            };
            s.pool.sysevent(event, Some(leaf));
        }
    }
    Ok(())
}

/// Writes down how a sweep stands.
async fn write(s: &Syncing, work: Sweep, leaf: Guid, run: &JobStatus) -> Result<()> {
    let Some(zap) = leaf_zap_of(s, leaf).await? else { return Ok(()) };
    let width = {
        let config = s.pool.config();
        let top = config.root.children.iter().find(|top| top.leaves().iter().any(|vdev| vdev.guid == leaf));
        top.map_or(1, width)
    };
    let (offset, state, time, rate) = work.entries();
    // What lies between is worked on again.
    let stored = match run.done / width {
        0 => 0,
        done => done.saturating_add(LABEL_START_BYTES),
    };
    let mut entries = vec![(offset, stored), (state, run.state as u64), (time, run.time)];
    entries.extend(rate.map(|rate| (rate, run.rate_limit)));
    for (entry, number) in entries {
        zap::edit::set_u64(&zap, &s.tx, entry, number).await?;
    }
    Ok(())
}

/// Notes in the pool's history what became of a leaf.
async fn note(s: &Syncing, name: &str, leaf: Guid, state: Option<JobState>) -> Result<()> {
    let path = s.pool.pool.vdevs().find(leaf).map(|vdev| vdev.name.clone()).unwrap_or_default();
    let text = match state {
        Some(state) => format!("vdev={path} {}", word(state)),
        None => format!("vdev={path}"),
    };
    let host = s.pool.config().host.1.clone();
    let event = history::event(name, &text, None, s.txg().get(), s.now(), &host);
    s.append_history(&event).await
}
