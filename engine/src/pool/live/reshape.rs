//! Volumes that get another block size while clients use them.
//!
//! # The idea
//! The block size of a volume's object cannot change. So a *copy* with the new block size is made beside it,
//! and takes its name when it is complete. Writes of clients are not mirrored: nothing is in their way.
//! Instead, the volume is copied in *passes*. Each begins with a snapshot of the volume and copies what
//! differs from the snapshot of the pass before; the first one copies everything. Data that are compared are
//! not read: two snapshots share the blocks, and the trees of indirect blocks, that were not written between
//! them. Holes stay holes, and ranges that were trimmed meanwhile become holes in the copy.
//!
//! Each pass is shorter than the one before, as long as copying is faster than the clients. When one was
//! short, clients are held for a moment: their requests wait, the last pass copies what came since, and one
//! change of the pool exchanges the names. Then the requests go on, with the new volume.
//!
//! # Crashes
//! What is to be done next follows from what is in the pool, at each moment:
//! - The mark of the copy ([`crate::dsl::reshape`]) names the snapshot of which the copy has everything, and
//!   the one that is being copied. It is written with the data or after them.
//! - Snapshots that are named are held. If a user destroyed one all the same, the next pass copies everything
//!   and makes holes where the volume has some.
//! - Before the last pass the intent log of the volume is closed, so that it has no record that the snapshot
//!   has not. The exchange of names checks that nothing was written since that snapshot.
//! - Until the exchange is committed the volume is as ever; from then on it is the copy, which is complete.
//!
//! # Who does it
//! Each copy is a job (`copying`). What serves volumes registers as [`VolumeUsers`]; without that nothing is
//! exchanged.
//!
//! | lock | guards | order |
//! |---|---|---|
//! | `Reshapes::all`, `Reshapes::users` | the values; for a few lines, never across an await | taken alone |
//!
//! | module | what it owns |
//! |---|---|
//! | `copying` | the job of a copy |
//! | `pass` | copying what differs between two snapshots |

mod copying;
mod pass;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

use device::IgnorePoison;
use futures_util::FutureExt;
use futures_util::future::LocalBoxFuture;
use ondisk::ObjsetId;

use super::jobs::each_alone;
use super::parts::{Doing, Part};
use super::{JobKey, LivePool, Syncing};
use crate::dsl::edit::reshape as edit;
use crate::dsl::reshape::{COPY_SUFFIX, Mark};
use crate::dsl::{Dataset, Dsl};
use crate::error::{Error, Result};
use crate::jobs::{JobState, JobStatus, Stop, Unit, Work};
use crate::zvol::Zvol;

use copying::Copying;
pub use edit::{Plan as ReshapePlan, Swapped};
use pass::Pass;

/// What serves volumes to clients.
pub trait VolumeUsers: Send + Sync {
    /// Has the requests of all clients of a volume wait, awaits `exchange`, and lets them go on with what has
    /// the volume's name then. `None` when that cannot be done now: then `exchange` was not begun.
    fn exchange<'a>(
        &'a self,
        volume: &'a str,
        exchange: LocalBoxFuture<'a, Result<Swapped>>,
    ) -> LocalBoxFuture<'a, Result<Option<Swapped>>>;
}

/// How a volume that gets another block size stands.
#[derive(Debug, Clone)]
pub struct ReshapeStatus {
    /// The volume.
    pub volume: String,
    /// The name of the copy until it is complete.
    pub copy: String,
    /// The name of the old volume, when the copy has taken its place.
    pub kept: Option<String>,
    /// Size of a block before, in bytes.
    pub old_block_bytes: u64,
    /// Size of a block of the copy, in bytes.
    pub new_block_bytes: u64,
    /// Whether it goes on, was paused, or is complete. It counts bytes of the first pass.
    pub job: JobStatus,
    /// The number of the pass, from 1 on.
    pub pass: u32,
    /// How long the last pass took that was complete.
    pub last_pass: Option<Duration>,
    /// Why it does not go on.
    pub error: Option<String>,
    /// Whether it was canceled.
    pub is_canceled: bool,
}

/// What is known of one copy beside its job.
#[derive(Debug, Clone)]
pub(super) struct Reshape {
    pub volume: String,
    pub copy: String,
    /// `None` where the volume is gone.
    pub source: Option<ObjsetId>,
    pub blocks: [u64; 2],
    pub mark: Mark,
    pub last_pass: Option<Duration>,
    pub error: Option<String>,
    pub swapped: Option<Swapped>,
    /// A user gave it up.
    pub cancels: bool,
    pub is_canceled: bool,
}

impl Reshape {
    fn is_over(&self) -> bool {
        self.swapped.is_some() || self.is_canceled
    }
}

/// The copies of a pool, by the object sets of the copies.
#[derive(Default)]
pub(super) struct Reshapes {
    all: Mutex<BTreeMap<ObjsetId, Reshape>>,
    users: Mutex<Option<Weak<dyn VolumeUsers>>>,
}

impl fmt::Debug for Reshapes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reshapes").field("all", &self.all).finish_non_exhaustive()
    }
}

impl Reshapes {
    pub fn all(&self) -> MutexGuard<'_, BTreeMap<ObjsetId, Reshape>> {
        self.all.lock().ignore_poison()
    }

    /// What is known of one.
    pub fn get(&self, copy: ObjsetId) -> Result<Reshape> {
        self.all().get(&copy).cloned().ok_or_else(|| Error::NotFound(format!("the copy {copy}")))
    }

    /// Changes what is known of one.
    pub fn update(&self, copy: ObjsetId, change: impl FnOnce(&mut Reshape)) {
        self.all().get_mut(&copy).map(change);
    }

    pub fn users(&self) -> Option<Arc<dyn VolumeUsers>> {
        self.users.lock().ignore_poison().as_ref().and_then(Weak::upgrade)
    }

    /// The copy of a volume that is not finished.
    fn of_volume(&self, volume: &str) -> Result<ObjsetId> {
        let all = self.all();
        let mut going = all.iter().filter(|(_, reshape)| !reshape.is_over());
        let found = going.find(|(_, reshape)| reshape.volume == volume || reshape.copy == volume);
        let missing = || Error::NotFound(format!("{volume}: its volblocksize is not being changed"));
        found.map(|(copy, _)| *copy).ok_or_else(missing)
    }
}

impl Part for Reshapes {
    /// A copy that cannot be taken up keeps no pool from being opened.
    fn load<'a>(&'a self, pool: &'a Arc<LivePool>, dsl: &'a Dsl) -> Doing<'a> {
        let load = async {
            if let Err(error) = pool.load_reshapes(dsl).await {
                tracing::warn!(%error, "copies of volumes are not taken up");
            }
            Ok(())
        };
        load.boxed()
    }

    fn keeps_jobs(&self) -> bool {
        true
    }

    fn keep<'a>(&'a self, s: &'a Syncing, keys: &'a [JobKey]) -> Doing<'a> {
        let keep = async {
            for copy in keys.iter().filter_map(|key| key.copy()) {
                copying::keep(s, copy).await?;
            }
            Ok(())
        };
        keep.boxed()
    }

    fn work(&self, _: &Arc<LivePool>, keys: &[(JobKey, JobStatus)]) -> Vec<Work<LivePool>> {
        each_alone(keys, |key| key.copy().map(Copying::new))
    }
}

impl JobKey {
    fn copy(self) -> Option<ObjsetId> {
        match self {
            JobKey::Reshape(copy) => Some(copy),
            _ => None,
        }
    }
}

impl LivePool {
    /// What it would take to give a volume blocks of `block_bytes`. Nothing is changed.
    ///
    /// # Errors
    /// It cannot be done, for a reason that has nothing to do with room.
    pub async fn plan_reshape(self: &Arc<Self>, volume: &str, block_bytes: u64) -> Result<ReshapePlan> {
        self.refuse_second(volume)?;
        let name = volume.to_owned();
        self.change(move |s| async move { edit::plan(&s, &name, block_bytes).await }).await
    }

    /// Begins to give a volume blocks of `block_bytes`.
    ///
    /// # Errors
    /// It cannot be done, it is under way, or there is no room.
    pub async fn reshape(self: &Arc<Self>, volume: &str, block_bytes: u64) -> Result<ReshapePlan> {
        self.refuse_second(volume)?;
        let name = volume.to_owned();
        let begin = self.change(move |s| async move { edit::begin(&s, &name, block_bytes).await });
        let edit::Begun { plan, copy, mark } = begin.await?;
        let reshape = Reshape {
            volume: plan.volume.clone(),
            copy: plan.copy.clone(),
            source: Some(plan.source),
            blocks: [plan.old_block_bytes, plan.new_block_bytes],
            mark,
            last_pass: None,
            error: None,
            swapped: None,
            cancels: false,
            is_canceled: false,
        };
        {
            let mut all = self.parts.reshape.all();
            // What is over is told until the next one of the same volume.
            all.retain(|_, other| other.volume != plan.volume);
            all.insert(copy, reshape);
        }
        self.jobs.start(self, &[JobKey::Reshape(copy)], (Unit::Bytes, 0)).await?;
        Ok(plan)
    }

    fn refuse_second(&self, volume: &str) -> Result<()> {
        match self.parts.reshape.of_volume(volume) {
            Ok(_) => Err(Error::Busy(format!("{volume}: its volblocksize is being changed already"))),
            Err(_) => Ok(()),
        }
    }

    /// Has a copy wait until it is resumed, also when the pool is imported again.
    ///
    /// # Errors
    /// There is none, or that cannot be written down.
    pub async fn pause_reshape(self: &Arc<Self>, volume: &str) -> Result<()> {
        let copy = self.parts.reshape.of_volume(volume)?;
        self.jobs.stop(self, &[JobKey::Reshape(copy)], Stop::Suspend).await.map(drop)
    }

    /// Goes on with a copy that was paused, or that failed.
    ///
    /// # Errors
    /// There is none, or that cannot be written down.
    pub async fn resume_reshape(self: &Arc<Self>, volume: &str) -> Result<()> {
        let copy = self.parts.reshape.of_volume(volume)?;
        self.parts.reshape.update(copy, |reshape| reshape.error = None);
        let key = JobKey::Reshape(copy);
        match self.jobs.is_worked_on(&key) && self.jobs.state_of(&key) == Some(JobState::Active) {
            true => Ok(()),
            false => self.jobs.start(self, &[key], (Unit::Bytes, 0)).await,
        }
    }

    /// Gives a copy up, and returns when it is gone.
    ///
    /// # Errors
    /// There is none, or it cannot be destroyed.
    pub async fn cancel_reshape(self: &Arc<Self>, volume: &str) -> Result<()> {
        let copy = self.parts.reshape.of_volume(volume)?;
        self.parts.reshape.update(copy, |reshape| reshape.cancels = true);
        self.resume_reshape(volume).await?;
        let key = JobKey::Reshape(copy);
        self.wait_for_jobs(|other, state| *other == key && state == JobState::Active).await;
        let reshape = self.parts.reshape.get(copy)?;
        match (reshape.is_canceled, reshape.swapped, reshape.error) {
            (true, _, _) => Ok(()),
            (_, Some(Swapped { kept, .. }), _) => {
                Err(Error::Busy(format!("{volume}: the copy was complete, and the old volume is {kept}")))
            }
            (_, _, Some(error)) => Err(Error::Busy(error)),
            _ => Err(Error::Busy(format!("{volume}: the pool is being closed"))),
        }
    }

    /// The volumes that get another block size, and those that did since the pool was opened.
    pub fn reshapes(&self) -> Vec<ReshapeStatus> {
        let jobs = self.job_statuses();
        let all = self.parts.reshape.all();
        let status = |(copy, reshape): (&ObjsetId, &Reshape)| {
            let mut job = *jobs.get(&JobKey::Reshape(*copy))?;
            // Before that, what was decided is not committed yet, or clients do not go on yet.
            if reshape.is_over() && job.state != JobState::Active {
                job.state = if reshape.is_canceled { JobState::Canceled } else { JobState::Complete };
            }
            Some(ReshapeStatus {
                volume: reshape.volume.clone(),
                copy: reshape.copy.clone(),
                kept: reshape.swapped.as_ref().map(|swapped| swapped.kept.clone()),
                old_block_bytes: reshape.blocks[0],
                new_block_bytes: reshape.blocks[1],
                job,
                pass: reshape.mark.pass,
                last_pass: reshape.last_pass,
                error: reshape.error.clone(),
                is_canceled: reshape.is_canceled,
            })
        };
        all.iter().filter_map(status).collect()
    }

    /// Says what serves volumes to clients. Complete copies wait for that.
    pub fn set_volume_users(&self, users: Weak<dyn VolumeUsers>) {
        *self.parts.reshape.users.lock().ignore_poison() = Some(users);
    }

    /// Takes up the copies that the pool has. Before the pool is started.
    async fn load_reshapes(&self, dsl: &Dsl) -> Result<()> {
        let dirs = dsl.dirs(dsl.root()).await?;
        for dir in dirs.iter().filter(|dir| dir.name.ends_with(COPY_SUFFIX)) {
            if dir.phys.head_dataset.is_none() {
                continue;
            }
            let copy = dsl.head(dir).await?;
            let Some(text) = dsl.mark(&copy).await? else { continue };
            let Some(mark) = Mark::parse(&text) else {
                tracing::warn!(volume = copy.name, mark = text, "the mark of a copy makes no sense");
                continue;
            };
            let source = find_source(dsl, &copy, mark).await?;
            match found(dsl, &copy, source, mark).await {
                Ok(reshape) => {
                    let state = if mark.is_paused { JobState::Suspended } else { JobState::Active };
                    let begun = JobStatus::begun(Unit::Bytes, copy.phys.creation_time, 0);
                    let key = JobKey::Reshape(copy.objset_id());
                    self.jobs.take_up([(key, JobStatus { state, ..begun })]);
                    self.parts.reshape.all().insert(copy.objset_id(), reshape);
                }
                Err(error) => tracing::warn!(volume = copy.name, %error, "a copy is not taken up"),
            }
        }
        Ok(())
    }
}

/// The volume that a copy is of: the one beside it, or one that was renamed.
async fn find_source(dsl: &Dsl, copy: &Dataset, mark: Mark) -> Result<Option<Dataset>> {
    let beside = copy.name.strip_suffix(COPY_SUFFIX).unwrap_or_default();
    match dsl.find(beside).await {
        Ok(source) if source.phys.guid == mark.source => return Ok(Some(source)),
        Ok(_) | Err(Error::NotFound(_)) => {}
        Err(error) => return Err(error),
    }
    for dir in dsl.dirs(dsl.root()).await? {
        if !dir.phys.head_dataset.is_none() {
            let head = dsl.head(&dir).await?;
            if head.phys.guid == mark.source {
                return Ok(Some(head));
            }
        }
    }
    Ok(None)
}

async fn found(dsl: &Dsl, copy: &Dataset, source: Option<Dataset>, mark: Mark) -> Result<Reshape> {
    let new = Zvol::open(&dsl.open_objset(copy).await?).await?;
    let old = match &source {
        Some(source) => Zvol::open(&dsl.open_objset(source).await?).await?.block_size(),
        None => new.block_size(),
    };
    let lost = || format!("the volume that {} is a copy of is gone", copy.name);
    let beside = || copy.name.strip_suffix(COPY_SUFFIX).unwrap_or(&copy.name).to_owned();
    Ok(Reshape {
        volume: source.as_ref().map_or_else(beside, |source| source.name.clone()),
        copy: copy.name.clone(),
        source: source.as_ref().map(Dataset::objset_id),
        blocks: [old, new.block_size()],
        mark,
        last_pass: None,
        error: source.is_none().then(lost),
        swapped: None,
        cancels: false,
        is_canceled: false,
    })
}
