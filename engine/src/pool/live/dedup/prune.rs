//! Removing old entries from dedup tables ([`crate::tables::ddt`]), some in each group.
//!
//! Prunes stand in one line, each with a number: who asked waits for the end of its own. A prune ends soon
//! when its asker is gone. Nothing of it is kept in the pool but what it did.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use device::IgnorePoison;
use futures_util::FutureExt;
use futures_util::future::LocalBoxFuture;

use crate::error::{Error, Result};
use crate::jobs::{Job, Step, Turn, Unit};
use crate::pool::live::parts::Part;
use crate::pool::live::{JobKey, LivePool, Prune, Syncing};
use crate::tables::ddt::Pruning;

const LINE: &str = "dedup-prune";

/// Numbers of prunes.
static NEXT: AtomicU64 = AtomicU64::new(1);

/// Prunes dedup tables when that is asked for.
#[derive(Debug, Default)]
pub(in crate::pool::live) struct Prunes {
    /// Entries that the last prune removed.
    pruned_entries: AtomicU64,
}

impl Part for Prunes {}

/// How far a prune is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DedupPruneStatus {
    /// Entries that were looked at.
    pub looked_at: u64,
    /// Of about so many; those of which the ages must be known are looked at twice.
    pub total: u64,
    /// Entries that were removed.
    pub pruned: u64,
    /// Prunes that come after it.
    pub waiting: usize,
    /// When it began, in seconds since 1970.
    pub start_time: u64,
}

/// What an asker waits for.
#[derive(Debug, Default)]
struct Outcome {
    pruned: AtomicU64,
    ended: Mutex<Option<Result<()>>>,
}

impl LivePool {
    /// Removes entries of old blocks with one reference from the dedup tables, some in each group. Gives
    /// their number. When its future is dropped, what was removed until then stays so.
    ///
    /// # Errors
    /// A table cannot be read; or the pool commits nothing any more, or is closed.
    pub async fn prune_dedup(self: &Arc<Self>, prune: Prune) -> Result<u64> {
        let outcome = Arc::new(Outcome::default());
        let mut job = Pruner { prune, pruning: None, outcome: Arc::downgrade(&outcome), number: 0 };
        if self.has_thread() {
            job.number = NEXT.fetch_add(1, Ordering::Relaxed);
            let key = JobKey::DedupPrune(job.number);
            self.jobs.line_up(self, LINE, key, (Unit::Objects, Box::new(job)))?;
            self.wait_for_jobs(|other, _| *other == key).await;
        } else {
            while job.next(self).await? {}
        }
        let ended = outcome.ended.lock().ignore_poison().take();
        ended.unwrap_or_else(|| Err(Error::Busy("the pool is being closed".into())))?;
        Ok(outcome.pruned.load(Ordering::Relaxed))
    }

    /// How far the prune of the dedup tables is that is under way.
    pub fn dedup_prune(&self) -> Option<DedupPruneStatus> {
        let mut all = self.job_statuses().into_iter();
        let (_, job) =
            all.find(|(key, _)| matches!(key, JobKey::DedupPrune(_)) && self.jobs.is_worked_on(key))?;
        Some(DedupPruneStatus {
            looked_at: job.done.min(job.total),
            total: job.total,
            pruned: self.parts.prunes.pruned_entries.load(Ordering::Relaxed),
            waiting: self.jobs.waiting(LINE),
            start_time: job.time,
        })
    }
}

/// Prunes.
#[derive(Debug)]
struct Pruner {
    prune: Prune,
    /// None before its first step.
    pruning: Option<Pruning>,
    outcome: Weak<Outcome>,
    number: u64,
}

impl Job<LivePool> for Pruner {
    fn name(&self) -> &'static str {
        LINE
    }

    fn step<'a>(&'a mut self, turn: &'a Turn<'a, LivePool>) -> LocalBoxFuture<'a, Result<Step>> {
        async move {
            Ok(match self.next(&turn.host()?).await? {
                true => Step::More { pause: Duration::ZERO },
                false => Step::Complete,
            })
        }
        .boxed_local()
    }
}

impl Pruner {
    /// Takes the next step. False when it is over.
    async fn next(&mut self, pool: &Arc<LivePool>) -> Result<bool> {
        let Some(outcome) = self.outcome.upgrade() else { return Ok(false) };
        let more = self.go_on(pool).await;
        if let Some(pruning) = &self.pruning {
            outcome.pruned.store(pruning.pruned, Ordering::Relaxed);
            pool.parts.prunes.pruned_entries.store(pruning.pruned, Ordering::Relaxed);
            let key = JobKey::DedupPrune(self.number);
            pool.jobs.advance(pool, &key, pruning.looked_at, pruning.total);
        }
        let ended = match &more {
            Ok(true) => None,
            Ok(false) => Some(Ok(())),
            Err(error) => Some(Err(error.clone())),
        };
        *outcome.ended.lock().ignore_poison() = ended;
        more
    }

    async fn go_on(&mut self, pool: &Arc<LivePool>) -> Result<bool> {
        let mut pruning = match self.pruning.take() {
            Some(pruning) => pruning,
            None => {
                let entries = pool.dsl.tables().ddt().prunable();
                Pruning::begin(self.prune, pool.env.now().as_secs(), entries)
            }
        };
        if pruning.is_learning() {
            pruning.learn_some(&pool.view()).await?;
            self.pruning = Some(pruning);
            return Ok(true);
        }
        let step = move |s: Syncing| async move {
            let mut pruning = pruning;
            let has_more = s.pool.dsl.tables().ddt().prune_some(&s, &mut pruning).await;
            Ok((s.or_stop(has_more)?, pruning))
        };
        let (has_more, pruning) = pool.change(step).await?;
        self.pruning = Some(pruning);
        Ok(has_more)
    }
}
