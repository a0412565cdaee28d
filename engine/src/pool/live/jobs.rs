//! The jobs of a pool that is written ([`crate::jobs`]). What a job does is in the file of its part
//! ([`super::parts`]); here the pool hands each part what belongs to its jobs.
//!
//! | job | on | kept in |
//! |---|---|---|
//! | [`super::sweep`] | a leaf: initialize or trim its free space | the ZAP of the leaf |
//! | [`super::scan`] | the pool: scrub or resilver its blocks | the MOS ([`super::scan`]) |
//! | [`super::dedup`] | the pool: fill a filter of its dedup tables, or remove old entries of them | nothing |
//! | [`super::error_scrub`] | the pool: look again at the blocks of the error log | the MOS |
//! | [`super::resilver`] | the pool: look whether a resilver is needed | nothing |
//! | [`super::detach`] | the pool: detach devices whose work is done | nothing |
//! | [`super::reshape`] | the copy of a volume that gets another block size: copy it | a property of the copy |
//! | [`super::free_files`] | a filesystem: free large files without a name | nothing: the filesystem's unlinked set |
//! | [`super::quota_upgrade`] | a filesystem: count its files for quotas | nothing: the filesystem itself says what it lacks |

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::{JobKey, LivePool};
use crate::error::Result;
use crate::events::feed::What;
use crate::jobs::{Host, Job, JobState, JobStatus, Jobs, Target, Work};

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
        key.part(&self.parts).target(self, *key)
    }

    async fn keep(self: &Arc<Self>, mut keys: Vec<JobKey>) -> Result<()> {
        keys.retain(|key| key.part(&self.parts).keeps_jobs());
        if keys.is_empty() {
            return Ok(());
        }
        self.change(move |s| async move {
            for (part, keys) in s.pool.parts.by_part(&keys, |key| *key) {
                part.keep(&s, &keys).await?;
            }
            Ok(())
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
        let parts = self.parts.by_part(keys, |(key, _)| *key).into_iter();
        parts.flat_map(|(part, keys)| part.work(self, &keys)).collect()
    }
}

/// Jobs each of which has a thread of its own.
pub(super) fn each_alone<J: Job<LivePool> + 'static>(
    keys: &[(JobKey, JobStatus)],
    job: impl Fn(JobKey) -> Option<J>,
) -> Vec<Work<LivePool>> {
    let alone = |(key, status): &(JobKey, JobStatus)| {
        let job = Box::new(job(*key)?);
        Some(Work { keys: BTreeSet::from([*key]), total: status.total, job })
    };
    keys.iter().filter_map(alone).collect()
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
