//! The jobs of a pool that is written ([`crate::jobs`]).
//!
//! | job | on | kept in |
//! |---|---|---|
//! | [`sweep`] | a leaf: initialize or trim its free space | the ZAP of the leaf |
//! | [`scan`] | the pool: scrub or resilver its blocks | the MOS ([`super::scan`]) |
//! | `dedup_filter` | the pool: fill a filter of its dedup tables | nothing |
//! | [`dedup_prune`] | the pool: remove old entries of dedup tables | nothing |
//! | `free_files` | a filesystem: free large files without a name | nothing: the filesystem's unlinked set |
//! | `error_scrub` | the pool: look again at the blocks of the error log | the MOS |
//! | `super::resilver` | the pool: look whether a resilver is needed | nothing |
//! | `reshape` | the copy of a volume that gets another block size: copy it | a property of the copy |
//! | [`quota_upgrade`] | a filesystem: count its files for quotas | nothing: the filesystem itself says what it lacks |

mod dedup_filter;
mod dedup_prune;
mod error_scrub;
mod free_files;
mod quota_upgrade;
mod reshape;
mod scan;
mod sweep;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use ondisk::{Guid, ObjsetId};

use super::LivePool;
use crate::error::Result;
use crate::events::feed::What;
use crate::jobs::{Host, Job, JobState, JobStatus, Jobs, Target, Work};
use crate::vdev::{State, Vdev};

pub use dedup_prune::DedupPruneStatus;
pub use quota_upgrade::QuotaUpgradeStatus;
pub(super) use sweep::unused;
pub use sweep::{Sweep, sweeps_of};

/// Which job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum JobKey {
    /// Going through the free space of a leaf.
    Sweep(Sweep, Guid),
    /// Counting the files of a filesystem.
    QuotaUpgrade(ObjsetId),
    /// Freeing large files of a filesystem that have no name.
    FreeFiles(ObjsetId),
    /// Copying a volume, to this one, whose blocks have another size.
    Reshape(ObjsetId),
    /// A scrub or a resilver.
    Scan,
    /// Looking again at the blocks of the error log.
    ErrorScrub,
    /// Filling a filter of the dedup tables.
    DedupFilter,
    /// Removing old entries of dedup tables: the prune with this number.
    DedupPrune(u64),
    /// Looking whether a resilver is needed.
    LookForResilver,
    /// Detaching devices whose work is done.
    DetachResilvered,
}

impl Host for LivePool {
    type Key = JobKey;

    fn jobs(&self) -> &Arc<Jobs<Self>> {
        &self.jobs
    }

    fn name(&self) -> &str {
        self.pool.name()
    }

    fn now(&self) -> Duration {
        self.env.now()
    }

    fn target(&self, key: &JobKey) -> Target {
        match key {
            JobKey::QuotaUpgrade(_)
            | JobKey::FreeFiles(_)
            | JobKey::Reshape(_)
            | JobKey::Scan
            | JobKey::ErrorScrub
            | JobKey::DedupFilter
            | JobKey::DedupPrune(_)
            | JobKey::LookForResilver
            | JobKey::DetachResilvered => Target::Here,
            JobKey::Sweep(_, leaf) => {
                let status = self.pool.vdevs().find(*leaf).map(Vdev::status);
                match status {
                    Some(status) if status.is_readable() => Target::Here,
                    Some(status) if status.state == State::Faulted => Target::Failed,
                    _ => Target::Away,
                }
            }
        }
    }

    async fn keep(self: &Arc<Self>, keys: Vec<JobKey>) -> Result<()> {
        let sweeps: Vec<(Sweep, Guid)> = keys.iter().copied().filter_map(JobKey::sweep).collect();
        let copies: Vec<ObjsetId> = keys.into_iter().filter_map(JobKey::copy).collect();
        if sweeps.is_empty() && copies.is_empty() {
            return Ok(());
        }
        self.change(move |s| async move {
            for copy in copies {
                reshape::keep(&s, copy).await?;
            }
            match sweeps.is_empty() {
                true => Ok(()),
                false => sweep::keep(&s, &sweeps).await,
            }
        })
        .await
    }

    fn told(&self, key: &JobKey, state: Option<JobState>) {
        let (job, target) = key.words();
        let reporter = self.pool.vdevs().reporter();
        reporter.tell(What::Job { job, target, state: state.map_or("over", JobState::word) });
        reporter.moved();
    }

    fn moved(&self) {
        self.pool.vdevs().reporter().moved();
    }

    fn work(self: &Arc<Self>, keys: &[(JobKey, JobStatus)]) -> Vec<Work<Self>> {
        let sweeps = keys.iter().filter_map(|(key, status)| Some((key.sweep()?, *status)));
        let mut work = self.sweep_work(&sweeps.collect::<Vec<_>>());
        for (key, status) in keys {
            let job: Box<dyn Job<Self>> = match key {
                JobKey::Scan => Box::new(scan::Scanning::default()),
                JobKey::ErrorScrub => Box::new(error_scrub::Looking::default()),
                JobKey::Reshape(copy) => Box::new(reshape::Copying::new(*copy)),
                _ => continue,
            };
            work.push(Work { keys: BTreeSet::from([*key]), total: status.total, job });
        }
        work
    }
}

impl JobKey {
    /// Which, in a word, and the vdev or the object of the dataset that it works on; 0 for the pool.
    pub fn words(self) -> (&'static str, u64) {
        match self {
            JobKey::Sweep(work, leaf) => (work.name(), leaf.get()),
            JobKey::QuotaUpgrade(filesystem) => ("quota_upgrade", filesystem.get()),
            JobKey::FreeFiles(filesystem) => ("free_files", filesystem.get()),
            JobKey::Reshape(copy) => ("reshape", copy.get()),
            JobKey::Scan => ("scan", 0),
            JobKey::ErrorScrub => ("error_scrub", 0),
            JobKey::DedupFilter => ("dedup_filter", 0),
            JobKey::DedupPrune(_) => ("dedup_prune", 0),
            JobKey::LookForResilver => ("look_for_resilver", 0),
            JobKey::DetachResilvered => ("detach", 0),
        }
    }

    fn sweep(self) -> Option<(Sweep, Guid)> {
        match self {
            JobKey::Sweep(work, leaf) => Some((work, leaf)),
            _ => None,
        }
    }

    fn copy(self) -> Option<ObjsetId> {
        match self {
            JobKey::Reshape(copy) => Some(copy),
            _ => None,
        }
    }

    /// Whether it is work on this leaf.
    pub(super) fn is_on(self, leaf: Guid) -> bool {
        matches!(self, JobKey::Sweep(_, of) if of == leaf)
    }

    fn filesystem(self) -> Option<ObjsetId> {
        match self {
            JobKey::QuotaUpgrade(filesystem) => Some(filesystem),
            _ => None,
        }
    }
}

impl LivePool {
    /// How all jobs stand, and how fast they go.
    pub fn job_statuses(&self) -> BTreeMap<JobKey, JobStatus> {
        self.jobs.statuses(self.env.now())
    }

    /// Waits as long as there is a job of which `is_waited_for` says so, but not beyond the closing of the
    /// pool.
    pub async fn wait_for_jobs(&self, is_waited_for: impl Fn(&JobKey, JobState) -> bool) {
        self.jobs.wait_while(is_waited_for).await;
    }
}
