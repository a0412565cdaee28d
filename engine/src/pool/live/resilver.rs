//! Looking whether devices must be resilvered, and resilvers that wait for their turn.
//!
//! A leaf that is there and lacks groups needs a resilver. It is looked for when the pool is opened, when a
//! device comes back or is attached, and when a scan ends. What becomes of it:
//!
//! | what runs | what happens |
//! |---|---|
//! | nothing | a resilver begins |
//! | a scrub | it is given up, and a resilver begins |
//! | a resilver that covers the leaf | nothing |
//! | another resilver, at its beginning, or in a pool without the feature `resilver_defer` | it begins anew and covers the leaf too |
//! | another resilver | the leaf is marked as deferred in the configuration, and the next resilver begins when this one is done |
//!
//! A running scan covers a leaf that was there since the scan began, and that lacks nothing that is newer
//! than the scan's last group.
//!
//! Source of the facts: OpenZFS 2.4 `dsl_scan.c` (`dsl_scan_assess_vdev`, `dsl_scan_sync`), `vdev.c`
//! (`vdev_resilver_needed`, `vdev_defer_resilver`).

use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::LocalBoxFuture;
use ondisk::Guid;
use ondisk::Txg;
use ondisk::features::Feature;
use ondisk::scan::Function;

use super::parts::Part;
use super::scan::End;
use super::{JobKey, LivePool, Syncing};
use crate::error::{Error, Result};
use crate::events::Value;
use crate::jobs::{Job, JobState, Step, Turn, Unit};
use crate::scan::is_stale_leaf;
use crate::tunables;
use crate::vdev::Vdev;

/// The line of jobs that look for resilvers.
const LINE: &str = "resilver-look";

/// Looks whether a resilver is needed.
#[derive(Debug, Default)]
pub(super) struct Looks;

impl Part for Looks {
    fn start(&self, pool: &Arc<LivePool>) {
        pool.look_for_resilver();
    }
}

/// What a look for a resilver came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Found {
    Nothing,
    Begun,
}

/// Looks for a resilver.
struct Look;

impl Job<LivePool> for Look {
    fn name(&self) -> &'static str {
        LINE
    }

    fn step<'a>(&'a mut self, turn: &'a Turn<'a, LivePool>) -> LocalBoxFuture<'a, Result<Step>> {
        async move {
            let pool = turn.host()?;
            pool.resilver_if_needed().await?;
            pool.scrub_if_awaited().await?;
            Ok(Step::Complete)
        }
        .boxed_local()
    }
}

impl LivePool {
    /// A device came back, or a new one was attached: if it misses groups that other devices have, a resilver
    /// begins, and if a spare waits for a scrub and none of that is needed, a scrub.
    pub(super) fn look_for_resilver(self: &Arc<Self>) {
        let is_needed = self.stale_leaves().next().is_some() || self.awaits_scrub();
        if is_needed && self.has_thread() {
            let look = (Unit::Objects, Box::new(Look) as Box<dyn Job<Self>>);
            if let Err(error) = self.jobs.line_up(self, LINE, JobKey::LookForResilver, look) {
                tracing::warn!(pool = self.pool.name(), %error, "no resilver was looked for");
            }
        }
    }

    /// As [`LivePool::look_for_resilver`], and returns when the resilver has begun. In a suspended pool that
    /// happens later, and this returns at once.
    pub(super) async fn begin_due_resilver(self: &Arc<Self>) {
        if self.suspended().is_some() || !self.has_thread() {
            return self.look_for_resilver();
        }
        if self.stale_leaves().next().is_some()
            && let Err(error) = self.resilver_if_needed().await
        {
            tracing::warn!(pool = self.pool.name(), %error, "no resilver was begun");
        }
    }

    /// Has a resilver begin if a leaf needs one that it would not get otherwise.
    async fn resilver_if_needed(self: &Arc<Self>) -> Result<()> {
        if self.change(|s| async move { s.begin_resilver_if_needed().await }).await? == Found::Begun {
            self.resilver_event("resilver_start");
            self.work_on_scan().await?;
        }
        Ok(())
    }

    /// Whether it is being looked whether a resilver is needed: one may begin in a moment.
    pub fn looks_for_resilver(&self) -> bool {
        self.jobs.state_of(&JobKey::LookForResilver) == Some(JobState::Active)
    }

    /// Has a resilver begin, or begin anew.
    ///
    /// # Errors
    /// [`Error::Unsupported`] in a pool without the feature `resilver_defer`.
    pub async fn restart_resilver(self: &Arc<Self>) -> Result<()> {
        if self.feature_count(Feature::ResilverDefer).is_none() {
            return Err(Error::Unsupported("this action requires the resilver_defer feature".into()));
        }
        self.ask_devices().await;
        let found = self
            .change(|s| async move {
                if s.pool.stale_leaves().next().is_none() {
                    return Ok(Found::Nothing);
                }
                s.begin_resilver().await
            })
            .await?;
        if found == Found::Begun {
            self.resilver_event("resilver_start");
            self.work_on_scan().await?;
        }
        Ok(())
    }

    /// Posts an event about the resilver, which is one that goes by block pointers.
    pub(super) fn resilver_event(&self, name: &str) {
        self.sysevent_with(name, None, vec![("resilver_type".into(), Value::Text("healing".into()))]);
    }

    /// Whether the resilver of a leaf waits for another one.
    pub(crate) fn is_resilver_deferred(&self, leaf: Guid) -> bool {
        self.config().find_mut(leaf).is_some_and(|leaf| leaf.resilver_deferred)
    }

    /// The leaves that are there and lack groups.
    fn stale_leaves(&self) -> impl Iterator<Item = &Vdev> {
        self.pool.vdevs().tops.iter().flat_map(|top| top.walk()).filter(|vdev| is_stale_leaf(vdev))
    }
}

impl Syncing {
    async fn begin_resilver_if_needed(&self) -> Result<Found> {
        let pool = &self.pool;
        let (uncovered, is_resilver, is_early) = {
            let state = pool.scan();
            let is_resilver = state.phys.is_running() && state.phys.function == Function::Resilver;
            let is_covered = |leaf: &&Vdev| {
                let last = leaf.missing_txgs.ranges().ranges().last().map_or(0, |(_, end)| *end);
                is_resilver && !state.is_flawed && state.was_present(leaf) && last <= state.phys.max_txg.get()
            };
            let uncovered: Vec<Guid> =
                pool.stale_leaves().filter(|leaf| !is_covered(leaf)).map(|leaf| leaf.guid).collect();
            let phys = &state.phys;
            let to_issue = phys.to_examine.saturating_sub(phys.skipped);
            let issued = phys.examined.saturating_sub(phys.skipped).saturating_add(state.pass.batch.issued);
            (uncovered, is_resilver, issued < to_issue / 100 * tunables::ZFS_RESILVER_DEFER_PERCENT.get())
        };
        if uncovered.is_empty() {
            return Ok(Found::Nothing);
        }
        let may_defer = self.feature_count(Feature::ResilverDefer).is_some()
            && !tunables::ZFS_RESILVER_DISABLE_DEFER.is_on();
        let is_flawed = pool.scan().is_flawed;
        if is_resilver && may_defer && !is_flawed {
            self.defer(&uncovered).await?;
            if !is_early {
                return Ok(Found::Nothing);
            }
        }
        self.begin_resilver().await
    }

    /// Begins a resilver of all leaves that lack something.
    async fn begin_resilver(&self) -> Result<Found> {
        if self.pool.scan().phys.is_running() {
            self.end_scan(End::Restarting).await?;
        }
        let ranges: Vec<(u64, u64)> =
            self.pool.stale_leaves().flat_map(|leaf| leaf.missing_txgs.ranges().ranges().to_vec()).collect();
        let first = ranges.iter().map(|(start, _)| *start).min().unwrap_or(1);
        let end = ranges.iter().map(|(_, end)| *end).max().unwrap_or(0);
        self.set_scan_up(Function::Resilver, Txg(first.saturating_sub(1)), Txg(end)).await?;
        Ok(Found::Begun)
    }

    /// Notes that leaves wait for the next resilver.
    pub(super) async fn defer(&self, leaves: &[Guid]) -> Result<()> {
        let is_new = {
            let mut config = self.pool.config();
            let mut is_new = false;
            for guid in leaves {
                if let Some(leaf) = config.find_mut(*guid) {
                    is_new |= !leaf.resilver_deferred;
                    leaf.resilver_deferred = true;
                }
            }
            is_new
        };
        if is_new {
            self.pool.config_changed();
            if self.feature_count(Feature::ResilverDefer) == Some(0) {
                self.use_feature(Feature::ResilverDefer, 1).await?;
            }
        }
        Ok(())
    }

    /// A scan ended: what waited for it begins.
    pub(super) async fn clear_deferred(&self, end: End) -> Result<()> {
        let any = {
            let leaves: Vec<Guid> = self.pool.pool.vdevs().leaves().map(|leaf| leaf.guid).collect();
            let mut config = self.pool.config();
            let mut any = false;
            for guid in leaves {
                if let Some(leaf) = config.find_mut(guid) {
                    any |= std::mem::take(&mut leaf.resilver_deferred);
                }
            }
            any
        };
        if any {
            self.pool.config_changed();
            if self.feature_count(Feature::ResilverDefer).is_some_and(|count| count > 0) {
                self.use_feature(Feature::ResilverDefer, -1).await?;
            }
            let errors = self.pool.scan().phys.errors;
            self.note_scan("starting deferred resilver", &format!("errors={errors}")).await?;
        }
        if end != End::Restarting {
            self.pool.devices_resilvered();
        }
        // A leaf that was not there all the time lacks still what it lacked. What could not be read is no
        // reason to read it again.
        let is_uncovered = {
            let state = self.pool.scan();
            self.pool.stale_leaves().any(|leaf| !state.was_present(leaf))
        };
        let is_awaited = || self.pool.awaits_scrub();
        if end != End::Restarting && (any || (end == End::Complete && (is_uncovered || is_awaited()))) {
            self.pool.look_for_resilver();
        }
        Ok(())
    }
}
