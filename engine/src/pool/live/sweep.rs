//! Going through the free space of devices: initializing it, and trimming it by hand.
//!
//! # The idea
//! Both do something to each range that is free, device by device, and take long. What is worked on must not
//! be handed out meanwhile, and no state of the pool that somebody could still want may refer to it. Both
//! follow from taking free space the way an allocation does: [`crate::alloc::Allocator::borrow_free`] takes
//! runs out of what may be handed out, as part of the group that is being written, and
//! [`crate::alloc::Allocator::give_back`] returns them before that group's space maps are written. So nothing
//! of it reaches a space map; and what can be taken was freed long enough ago that neither older uberblocks
//! that are kept safe nor views refer to it.
//!
//! A thread for each top-level vdev goes through its metaslabs, a bounded number of runs in each group. How
//! far it is stands in the ZAP of each leaf, written with the group; so it goes on where it was when the pool
//! is imported again, here or by OpenZFS.
//!
//! | what | does | runs that are left out |
//! |---|---|---|
//! | initialize | writes a pattern, so that thin devices get their space, or are tried | none |
//! | trim | tells devices what they need not keep | those that cost more than they give back |
//!
//! # Places
//! A leaf's progress is told as an offset of its device, as OpenZFS does. For mirrors that is the offset in
//! the top-level vdev, behind the labels; a raidz vdev with n children is as far in all of them when they are
//! an n-th of its own offset far.
//!
//! | lock | guards | order |
//! |---|---|---|
//! | `Sweeps::runs` | how each stands, by what it does and leaf; for a few lines, never across an await | taken alone |
//! | `Sweeps::worked_on` | which thread works on a leaf; for a few lines, never across an await | before `Sweeps::runs` |
//! | `Sweeps::threads` | threads, until they are waited for; never across an await | taken alone |
//!
//! # Devices that go away
//! A sweep of a leaf that went away stays active, and a thread takes it up again when the leaf is back
//! ([`LivePool::resume_sweeps`]). One of a leaf that failed is given up.
//!
//! Source of the facts: OpenZFS 2.3 `vdev_initialize.c`, `vdev_trim.c`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use ondisk::pool_directory::leaf_zap;
use ondisk::vdev_config::VdevConfig;
use ondisk::{Guid, ObjectId, VdevId};

use super::trim::MIN_RUN_BYTES;
use super::{LivePool, Syncing};
use crate::alloc::{MetaslabId, Run};
use crate::dmu::zap;
use crate::dsl::history;
use crate::dsl::{Dsl, Mos};
use crate::error::{Error, Result};
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
    fn name(self) -> &'static str {
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
            Self::Trim => (MIN_RUN_BYTES, 4 << 30),
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

/// How a sweep stands. The numbers are OpenZFS's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SweepState {
    /// It goes on.
    Active = 1,
    /// It was given up.
    Canceled = 2,
    /// It waits to be started again.
    Suspended = 3,
    /// It came to its end.
    Complete = 4,
}

impl SweepState {
    fn from_number(number: u64) -> Option<Self> {
        [Self::Active, Self::Canceled, Self::Suspended, Self::Complete]
            .into_iter()
            .find(|state| *state as u64 == number)
    }

    /// The word for it in the pool's history.
    fn word(self) -> &'static str {
        match self {
            Self::Active => "activated",
            Self::Canceled => "canceled",
            Self::Suspended => "suspended",
            Self::Complete => "complete",
        }
    }
}

/// How a sweep of one leaf stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SweepStatus {
    /// How it stands.
    pub state: SweepState,
    /// Bytes of the top-level vdev that were looked at.
    pub done_bytes: u64,
    /// Of so many.
    pub total_bytes: u64,
    /// When it began or ended, in seconds since 1970.
    pub time: u64,
    /// Bytes a second at most; 0 for as fast as it goes.
    pub rate_bytes: u64,
}

/// What is to become of sweeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// They wait to be started again.
    Suspend,
    /// They are given up.
    Cancel,
}

/// How all of a pool stand.
type Runs = BTreeMap<(Sweep, Guid), SweepStatus>;

/// The sweeps of a pool.
#[derive(Debug, Default)]
pub(super) struct Sweeps {
    runs: Mutex<Runs>,
    /// Which thread works on which of them, by the threads' numbers.
    worked_on: Mutex<BTreeMap<(Sweep, Guid), u64>>,
    next_thread: AtomicU64,
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// The pool is being closed. What is active goes on when it is opened again.
    ending: Mutex<bool>,
    ended: Condvar,
}

impl Sweeps {
    /// As they were when the pool was closed.
    pub(super) fn take_up(&self, runs: Runs) {
        *self.runs() = runs;
    }

    fn runs(&self) -> MutexGuard<'_, Runs> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn state(&self, work: Sweep, leaf: Guid) -> Option<SweepState> {
        self.runs().get(&(work, leaf)).map(|run| run.state)
    }

    fn worked_on(&self) -> MutexGuard<'_, BTreeMap<(Sweep, Guid), u64>> {
        self.worked_on.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_ending(&self) -> bool {
        *self.ending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Pauses, unless the pool is being closed.
    fn pause(&self, pause: Duration) {
        let ending = self.ending.lock().unwrap_or_else(PoisonError::into_inner);
        drop(self.ended.wait_timeout_while(ending, pause, |ending| !*ending));
    }

    /// Ends all threads and waits for them. Somebody must commit groups meanwhile.
    pub(super) fn end(&self) {
        *self.ending.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.ended.notify_all();
        let threads = std::mem::take(&mut *self.threads.lock().unwrap_or_else(PoisonError::into_inner));
        for thread in threads {
            let _ = thread.join();
        }
    }
}

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

async fn read(mos: &Mos, work: Sweep, zap: ObjectId, top: &VdevConfig) -> Result<Option<SweepStatus>> {
    let (offset, state, time, rate) = work.entries();
    let Some(state) = mos.u64(zap, state).await?.and_then(SweepState::from_number) else { return Ok(None) };
    let total_bytes = top.asize.map_or(0, |asize| asize.get());
    let offset = mos.u64(zap, offset).await?.unwrap_or(0);
    let done_bytes = match state {
        SweepState::Complete => total_bytes,
        _ => offset.saturating_sub(LABEL_START_BYTES).saturating_mul(width(top)).min(total_bytes),
    };
    let rate_bytes = match rate {
        Some(rate) => mos.u64(zap, rate).await?.unwrap_or(0),
        None => 0,
    };
    let time = mos.u64(zap, time).await?.unwrap_or(0);
    Ok(Some(SweepStatus { state, done_bytes, total_bytes, time, rate_bytes }))
}

/// How many bytes of a top-level vdev go with one of a leaf.
fn width(top: &VdevConfig) -> u64 {
    match top.kind {
        ondisk::vdev_config::VdevKind::Raidz { .. } => top.children.len().max(1) as u64,
        _ => 1,
    }
}

/// What one thread does.
#[derive(Debug, Clone)]
struct Job {
    work: Sweep,
    top: u32,
    from: u64,
    rate_bytes: u64,
}

impl LivePool {
    /// How the sweeps stand, by what they do and leaf.
    pub fn sweeps(&self) -> BTreeMap<(Sweep, Guid), SweepStatus> {
        self.sweeps.runs().clone()
    }

    /// Begins to sweep leaves, or goes on with those that were suspended. `rate_bytes` bounds the bytes a
    /// second.
    ///
    /// # Errors
    /// A vdev that is no leaf with a device that can be written, that cannot do this, or does it already.
    pub async fn sweep(self: &Arc<Self>, work: Sweep, leaves: &[Guid], rate_bytes: u64) -> Result<()> {
        let vdevs = self.pool.vdevs();
        for guid in leaves {
            let top = vdevs.tops.iter().find(|top| top.walk().any(|vdev| vdev.guid == *guid));
            let leaf = vdevs.leaves().find(|leaf| leaf.guid == *guid);
            let (Some(top), Some(leaf)) = (top, leaf) else {
                return Err(Error::NotFound(format!("device {guid}")));
            };
            if let Some(error) = work.refuses(top, leaf) {
                return Err(error);
            }
            if self.sweeps.state(work, *guid) == Some(SweepState::Active) {
                let doing = match work {
                    Sweep::Initialize => "currently initializing",
                    Sweep::Trim => "currently trimming",
                };
                return Err(Error::Busy(format!("{}: {doing}", leaf.name)));
            }
        }
        let now = self.env.now().as_secs();
        for leaf in leaves {
            let mut runs = self.sweeps.runs();
            let before = runs.get(&(work, *leaf)).copied();
            let resumed = before.filter(|run| run.state == SweepState::Suspended);
            let run = SweepStatus {
                state: SweepState::Active,
                done_bytes: resumed.map_or(0, |run| run.done_bytes),
                total_bytes: 0,
                time: resumed.map_or(now, |run| run.time),
                // One that goes on keeps its rate unless another one is given.
                rate_bytes: match resumed {
                    Some(run) if rate_bytes == 0 => run.rate_bytes,
                    _ => rate_bytes,
                },
            };
            runs.insert((work, *leaf), run);
        }
        self.tell(work, leaves).await?;
        self.begin(work, leaves.to_vec())
    }

    /// Goes on with what is active and not worked on: after the pool was opened, or a device came back. What
    /// a device cannot do yet stays active.
    pub(super) fn resume_sweeps(self: &Arc<Self>) {
        let vdevs = self.pool.vdevs();
        for work in Sweep::ALL {
            let can_go_on = |guid: Guid| {
                let leaf = vdevs.leaves().find(|leaf| leaf.guid == guid);
                let top = vdevs.tops.iter().find(|top| top.walk().any(|vdev| vdev.guid == guid));
                matches!((top, leaf), (Some(top), Some(leaf)) if work.refuses(top, leaf).is_none())
            };
            let mut leaves: Vec<Guid> = {
                let runs = self.sweeps.runs();
                let active =
                    runs.iter().filter(|((of, _), run)| *of == work && run.state == SweepState::Active);
                active.map(|((_, guid), _)| *guid).filter(|guid| can_go_on(*guid)).collect()
            };
            {
                let worked_on = self.sweeps.worked_on();
                leaves.retain(|guid| !worked_on.contains_key(&(work, *guid)));
            }
            if let Err(error) = self.begin(work, leaves) {
                tracing::warn!(%error, work = work.name(), "what was under way does not go on");
            }
        }
    }

    /// Starts a thread for each top-level vdev and the leaves of it that are equally far and fast. One that
    /// still works on a leaf leaves it to the new one.
    fn begin(self: &Arc<Self>, work: Sweep, leaves: Vec<Guid>) -> Result<()> {
        for top in &self.pool.vdevs().tops {
            let own = top.walk().map(|vdev| vdev.guid).filter(|guid| leaves.contains(guid));
            let mut jobs: BTreeMap<(u64, u64), BTreeSet<Guid>> = BTreeMap::new();
            {
                let mut runs = self.sweeps.runs();
                for leaf in own {
                    let Some(run) = runs.get_mut(&(work, leaf)) else { continue };
                    run.total_bytes = top.asize();
                    jobs.entry((run.done_bytes, run.rate_bytes)).or_default().insert(leaf);
                }
            }
            for ((from, rate_bytes), leaves) in jobs {
                let top = u32::try_from(top.id).unwrap_or(u32::MAX);
                self.start_thread(Job { work, top, from, rate_bytes }, leaves)?;
            }
        }
        Ok(())
    }

    fn start_thread(self: &Arc<Self>, job: Job, leaves: BTreeSet<Guid>) -> Result<()> {
        let name = format!("{} {}", job.work.name(), self.pool.name());
        let mut leaves = WorkedOn::take(self, job.work, leaves);
        let pool = Arc::clone(self);
        let run = move || {
            if let Err(error) = device::block_on(pool.run(&job, &mut leaves)) {
                // The pool was closed or cannot be written; what is active goes on when it is opened again.
                tracing::info!(%error, work = job.work.name(), "interrupted");
            }
        };
        let thread = std::thread::Builder::new().name(name).spawn(run);
        let thread = thread.map_err(|error| Error::os("starting the thread for free space", &error))?;
        self.sweeps.threads.lock().unwrap_or_else(PoisonError::into_inner).push(thread);
        Ok(())
    }

    /// Ends sweeps, for good or for now. Returns how many there were.
    pub async fn stop_sweep(self: &Arc<Self>, work: Sweep, leaves: &[Guid], how: Stop) -> Result<usize> {
        let stopped: Vec<Guid> = {
            let mut runs = self.sweeps.runs();
            let now = self.env.now().as_secs();
            let mut stop = |leaf: &Guid| {
                let run = runs.get_mut(&(work, *leaf))?;
                match (how, run.state) {
                    (Stop::Suspend, SweepState::Active) => run.state = SweepState::Suspended,
                    (Stop::Cancel, SweepState::Active | SweepState::Suspended) => {
                        (run.state, run.time) = (SweepState::Canceled, now);
                    }
                    _ => return None,
                }
                Some(*leaf)
            };
            leaves.iter().filter_map(&mut stop).collect()
        };
        self.tell(work, &stopped).await?;
        Ok(stopped.len())
    }

    /// Gives up what is active on a leaf that failed.
    pub(super) async fn give_up_sweeps(self: &Arc<Self>, leaf: Guid) -> Result<()> {
        for work in Sweep::ALL {
            if self.sweeps.state(work, leaf) == Some(SweepState::Active) {
                self.stop_sweep(work, &[leaf], Stop::Cancel).await?;
            }
        }
        Ok(())
    }

    /// Forgets that leaves were initialized.
    ///
    /// # Errors
    /// One of them is being initialized.
    pub async fn uninitialize(self: &Arc<Self>, leaves: &[Guid]) -> Result<()> {
        let work = Sweep::Initialize;
        if leaves.iter().any(|leaf| self.sweeps.state(work, *leaf) == Some(SweepState::Active)) {
            return Err(Error::Busy("currently initializing".into()));
        }
        let leaves = leaves.to_vec();
        self.change(move |s| async move {
            for leaf in leaves {
                s.pool.sweeps.runs().remove(&(work, leaf));
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

    /// Writes down how sweeps stand, and that they came to be so.
    async fn tell(self: &Arc<Self>, work: Sweep, leaves: &[Guid]) -> Result<()> {
        let leaves = leaves.to_vec();
        self.change(move |s| async move {
            for leaf in leaves {
                let Some(run) = s.pool.sweeps.runs().get(&(work, leaf)).copied() else { continue };
                write(&s, work, leaf, &run).await?;
                note(&s, work.name(), leaf, Some(run.state)).await?;
            }
            Ok(())
        })
        .await
    }

    async fn run(self: &Arc<Self>, job: &Job, leaves: &mut WorkedOn) -> Result<()> {
        let Job { work, top, from, rate_bytes } = job;
        // The vdev may grow meanwhile.
        for place in 0.. {
            let id = MetaslabId { vdev: VdevId(*top), place };
            let Some((start, end)) = self.allocator().extent(id) else { break };
            let mut at = start.max(*from);
            if at >= end {
                continue;
            }
            while at < end {
                for failed in leaves.leave_out_what_stopped() {
                    self.stop_sweep(*work, &[failed], Stop::Cancel).await?;
                }
                let left = leaves.leaves.clone();
                if left.is_empty() || self.sweeps.is_ending() {
                    return Ok(());
                }
                let step = Step { work: *work, id, from: at, leaves: left, rate_bytes: *rate_bytes };
                let (next, bytes) = self.change(move |s| async move { step.take(&s).await }).await?;
                at = next;
                if let Some(pause) = (bytes.saturating_mul(1000)).checked_div(*rate_bytes) {
                    self.sweeps.pause(Duration::from_millis(pause));
                }
            }
        }
        let now = self.env.now().as_secs();
        let mut complete = Vec::new();
        for leaf in &leaves.leaves {
            if let Some(run) = self.sweeps.runs().get_mut(&(*work, *leaf))
                && run.state == SweepState::Active
            {
                (run.state, run.time, run.done_bytes) = (SweepState::Complete, now, run.total_bytes);
                complete.push(*leaf);
            }
        }
        self.tell(*work, &complete).await
    }
}

/// The leaves that a thread works on, until it ends.
struct WorkedOn {
    pool: Arc<LivePool>,
    work: Sweep,
    thread: u64,
    leaves: BTreeSet<Guid>,
}

impl WorkedOn {
    /// The thread that works on them now leaves them.
    fn take(pool: &Arc<LivePool>, work: Sweep, leaves: BTreeSet<Guid>) -> Self {
        let thread = pool.sweeps.next_thread.fetch_add(1, Ordering::Relaxed);
        let mut worked_on = pool.sweeps.worked_on();
        worked_on.extend(leaves.iter().map(|leaf| ((work, *leaf), thread)));
        drop(worked_on);
        Self { pool: Arc::clone(pool), work, thread, leaves }
    }

    /// Gives up the leaves that another thread has taken, that are to be worked on no more, or whose devices
    /// went away. Returns those that failed.
    fn leave_out_what_stopped(&mut self) -> Vec<Guid> {
        // Under this lock, so that who brings a device back finds that no thread works on it, or is seen
        // here.
        let mut worked_on = self.pool.sweeps.worked_on();
        let mut failed = Vec::new();
        for leaf in self.leaves.clone() {
            let status = self.pool.pool.vdevs().find(leaf).map(Vdev::status);
            let is_there = status.is_some_and(|status| status.is_readable());
            let is_ours = worked_on.get(&(self.work, leaf)) == Some(&self.thread);
            let is_active = self.pool.sweeps.state(self.work, leaf) == Some(SweepState::Active);
            if is_ours && is_there && is_active {
                continue;
            }
            if is_ours {
                worked_on.remove(&(self.work, leaf));
                failed.extend(status.filter(|status| status.state == State::Faulted).map(|_| leaf));
            }
            self.leaves.remove(&leaf);
        }
        failed
    }
}

impl Drop for WorkedOn {
    fn drop(&mut self) {
        let mut worked_on = self.pool.sweeps.worked_on();
        worked_on.retain(|(work, leaf), thread| {
            *work != self.work || *thread != self.thread || !self.leaves.contains(leaf)
        });
    }
}

/// What one group does of a sweep.
struct Step {
    work: Sweep,
    id: MetaslabId,
    from: u64,
    leaves: BTreeSet<Guid>,
    rate_bytes: u64,
}

impl Step {
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
        for leaf in &self.leaves {
            let run = s.pool.sweeps.runs().get_mut(&(self.work, *leaf)).map(|run| {
                run.done_bytes = at;
                *run
            });
            if let Some(run) = run {
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

/// Writes down how a sweep stands.
async fn write(s: &Syncing, work: Sweep, leaf: Guid, run: &SweepStatus) -> Result<()> {
    let Some(zap) = leaf_zap_of(s, leaf).await? else { return Ok(()) };
    let width = {
        let config = s.pool.config();
        let top = config.root.children.iter().find(|top| top.leaves().iter().any(|vdev| vdev.guid == leaf));
        top.map_or(1, width)
    };
    let (offset, state, time, rate) = work.entries();
    // What lies between is worked on again.
    let told = match run.done_bytes / width {
        0 => 0,
        done => done.saturating_add(LABEL_START_BYTES),
    };
    let mut entries = vec![(offset, told), (state, run.state as u64), (time, run.time)];
    entries.extend(rate.map(|rate| (rate, run.rate_bytes)));
    for (entry, number) in entries {
        zap::edit::set_u64(&zap, &s.tx, entry, number).await?;
    }
    Ok(())
}

/// Notes in the pool's history what became of a leaf.
async fn note(s: &Syncing, name: &str, leaf: Guid, state: Option<SweepState>) -> Result<()> {
    let path = s.pool.pool.vdevs().find(leaf).map(|vdev| vdev.name.clone()).unwrap_or_default();
    let text = match state {
        Some(state) => format!("vdev={path} {}", state.word()),
        None => format!("vdev={path}"),
    };
    let host = s.pool.config().host.1.clone();
    let event = history::event(name, &text, None, s.txg().get(), s.now(), &host);
    s.append_history(&event).await
}
