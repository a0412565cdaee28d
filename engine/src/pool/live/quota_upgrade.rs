//! Filesystems that count more since the pool got features: files (`userobj_accounting`) and what projects
//! use (`project_quota`); and what users use, since it has version 15.
//!
//! An open filesystem is queued as soon as a file comes to it, or a project, after the features were enabled;
//! others when they are opened to be changed. Enabling features alone begins nothing.
//! Each is a job ([`crate::jobs`]), and all of a pool stand in one line: all files are written again for it,
//! which many at a time would only do to each other's disadvantage. A filesystem that was closed before its
//! turn, or during it, is queued again when it is opened. Nothing of this is kept in the pool: a
//! filesystem says itself what it lacks.

use std::cell::Cell;
use std::sync::{Arc, Weak};

use futures_util::FutureExt;
use futures_util::future::{LocalBoxFuture, ready};
use ondisk::ObjsetId;
use ondisk::features::Feature;

use super::parts::{Doing, Part};
use super::{JobKey, LivePool, Syncing, version};
use crate::dsl::edit;
use crate::error::Result;
use crate::jobs::{Job, Step, Turn, Unit};
use crate::zpl::LiveZpl;

/// The line in which filesystems stand.
const LINE: &str = "quota upgrade";

/// How far the counting in a pool is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QuotaUpgradeStatus {
    /// The filesystem that is gone through.
    pub filesystem: ObjsetId,
    /// Objects of it, files for the most part, that were gone through.
    pub done_objects: u64,
    /// Of about so many.
    pub total_objects: u64,
    /// Filesystems that come after it.
    pub waiting: usize,
    /// When it was begun with this filesystem, in seconds since 1970.
    pub start_time: u64,
}

/// Has filesystems count what they did not count before.
#[derive(Debug, Default)]
pub(super) struct QuotaUpgrades;

impl Part for QuotaUpgrades {
    /// What was used before a feature comes begins nothing.
    fn before_tasks(&self, pool: &Arc<LivePool>) {
        pool.count_what_is_used();
    }

    fn sync<'a>(&'a self, s: &'a Syncing) -> Doing<'a> {
        s.pool.tell_what_counts();
        ready(Ok(())).boxed()
    }
}

impl JobKey {
    fn filesystem(self) -> Option<ObjsetId> {
        match self {
            JobKey::QuotaUpgrade(filesystem) => Some(filesystem),
            _ => None,
        }
    }
}

impl LivePool {
    /// How far it is with counting what filesystems did not count before the pool got features; `None` when
    /// there is nothing to do.
    pub fn quota_upgrade(&self) -> Option<QuotaUpgradeStatus> {
        let begun = |key: &JobKey| self.jobs.is_worked_on(key);
        let mut all = self.job_statuses().into_iter().filter(|(key, job)| job.total > 0 && begun(key));
        let (filesystem, job) = all.find_map(|(key, job)| Some((key.filesystem()?, job)))?;
        Some(QuotaUpgradeStatus {
            filesystem,
            // Files that came meanwhile are gone through too.
            done_objects: job.done.min(job.total),
            total_objects: job.total,
            waiting: self.jobs.waiting(LINE),
            start_time: job.time,
        })
    }

    /// Tells open filesystems what enabled features ask for.
    fn tell_what_counts(&self) {
        let projects = self.features.count(Feature::ProjectQuota).is_some();
        let files = self.features.count(Feature::UserobjAccounting).is_some();
        for dataset in self.datasets().values() {
            dataset.objset.set_can_count_projects(projects);
            let lacks_counts =
                self.version() >= version::USERSPACE && dataset.objset.has_to_count(files, projects);
            dataset.objset.set_lacks_counts(lacks_counts);
        }
    }

    /// Has open filesystems that were used count what enabled features ask for, those first that were created
    /// first.
    fn count_what_is_used(self: &Arc<Self>) {
        let mut used: Vec<_> = {
            let datasets = self.datasets();
            let used = datasets.iter().filter(|(_, dataset)| dataset.objset.take_use());
            let used = used.filter(|(_, dataset)| !dataset.is_read_only());
            used.filter_map(|(id, dataset)| Some((*id, dataset.open_filesystem()?))).collect()
        };
        // What is gone through notices what comes meanwhile.
        used.retain(|(id, _)| !self.jobs.is_worked_on(&JobKey::QuotaUpgrade(*id)));
        used.sort_unstable_by_key(|(id, _)| *id);
        used.iter().for_each(|(id, zpl)| self.complete_counts(*id, zpl));
    }

    /// Has a filesystem count all that enabled features ask for, and returns when it does or that failed.
    ///
    /// # Errors
    /// It cannot be opened, or the pool commits nothing any more.
    pub async fn count_all(self: &Arc<Self>, id: ObjsetId) -> Result<()> {
        let zpl = self.filesystem(id).await?;
        self.complete_counts(id, &zpl);
        self.wait_for_jobs(|key, _| *key == JobKey::QuotaUpgrade(id)).await;
        self.change(|_| async { Ok(()) }).await
    }

    /// Puts a filesystem in line that does not count all that it should.
    pub(super) fn complete_counts(self: &Arc<Self>, id: ObjsetId, zpl: &Arc<LiveZpl>) {
        if !self.has_to_count(zpl) {
            return;
        }
        let job = Box::new(QuotaUpgrade { filesystem: id });
        if let Err(error) = self.jobs.line_up(self, LINE, JobKey::QuotaUpgrade(id), (Unit::Objects, job)) {
            tracing::warn!(%error, "objset {id}: what is used is not counted completely");
        }
    }

    fn has_to_count(&self, zpl: &LiveZpl) -> bool {
        let (objects, projects) = self.counts();
        self.version() >= version::USERSPACE && zpl.objset().has_to_count(objects, projects)
    }

    /// Whether filesystems are to count files, and by projects.
    fn counts(&self) -> (bool, bool) {
        let is_enabled = |feature| self.features.count(feature).is_some();
        (is_enabled(Feature::UserobjAccounting), is_enabled(Feature::ProjectQuota))
    }
}

/// Goes through one filesystem, if it is open and does not count everything. Neither it nor the pool is kept
/// for that.
#[derive(Debug)]
struct QuotaUpgrade {
    filesystem: ObjsetId,
}

impl Job<LivePool> for QuotaUpgrade {
    fn name(&self) -> &'static str {
        LINE
    }

    /// One step is all; it asks after each file whether to go on.
    fn step<'a>(&'a mut self, turn: &'a Turn<'a, LivePool>) -> LocalBoxFuture<'a, Result<Step>> {
        async move { self.count(turn).await.map(|()| Step::Complete) }.boxed_local()
    }
}

impl QuotaUpgrade {
    async fn count(&self, turn: &Turn<'_, LivePool>) -> Result<()> {
        let (id, key) = (self.filesystem, JobKey::QuotaUpgrade(self.filesystem));
        let Some((pool, zpl, total)) = self.begin(turn).await? else { return Ok(()) };
        let done = Cell::new(0);
        let goes_on = || {
            done.set(done.get() + 1);
            if let Some(pool) = pool.upgrade() {
                pool.jobs.advance(&pool, &key, done.get(), total);
            }
            turn.goes_on()
        };
        if LiveZpl::count_all(&zpl, &goes_on).await?
            && let Some(pool) = pool.upgrade()
        {
            // Only what is committed is known to be complete.
            pool.change(|_| async { Ok(()) }).await?;
        }
        tracing::debug!("objset {id}: {} objects counted", done.get());
        Ok(())
    }

    /// The filesystem, and how many objects there are in it, if it is to be gone through.
    async fn begin(&self, turn: &Turn<'_, LivePool>) -> Result<Option<(Weak<LivePool>, Weak<LiveZpl>, u64)>> {
        let (pool, id) = (turn.host()?, self.filesystem);
        let dataset = pool.datasets().get(&id).cloned();
        let Some(zpl) = dataset.and_then(|dataset| dataset.open_filesystem()) else { return Ok(None) };
        if !pool.has_to_count(&zpl) {
            return Ok(None);
        }
        let total = zpl.objset().used_objects();
        pool.jobs.advance(&pool, &JobKey::QuotaUpgrade(id), 0, total);
        let (objects, projects) = pool.counts();
        zpl.objset().begin_counting(objects, projects);
        let (zpl, open) = (Arc::downgrade(&zpl), zpl);
        drop(open);
        pool.change(move |s| async move { edit::count_files(&s, id).await }).await?;
        Ok(Some((Arc::downgrade(&pool), zpl, total)))
    }
}
