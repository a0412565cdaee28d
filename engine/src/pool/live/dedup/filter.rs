//! Filling a filter of the dedup tables in the background ([`crate::tables::ddt`]).

use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::LocalBoxFuture;

use crate::error::Result;
use crate::jobs::{Job, Step, Turn, Unit};
use crate::pool::live::{JobKey, LivePool};
use crate::tables::ddt::Fill;

const LINE: &str = "dedup-filter";

impl LivePool {
    /// Has a filter filled that has begun with the group that was just committed.
    pub(super) fn fill_begun_filter(self: &std::sync::Arc<Self>) {
        let Some(fill) = self.has_thread().then(|| self.dsl.tables().ddt().fill()).flatten() else { return };
        let job = (Unit::Objects, Box::new(Filling(fill)) as Box<dyn Job<Self>>);
        if let Err(error) = self.jobs.line_up(self, LINE, JobKey::DedupFilter, job) {
            tracing::warn!(pool = self.pool.name(), %error, "new blocks are looked for in dedup tables");
        }
    }
}

#[derive(Debug)]
struct Filling(Fill);

impl Job<LivePool> for Filling {
    fn name(&self) -> &'static str {
        LINE
    }

    fn step<'a>(&'a mut self, turn: &'a Turn<'a, LivePool>) -> LocalBoxFuture<'a, Result<Step>> {
        async move {
            let pool = turn.host()?;
            let has_more = pool.dsl.tables().ddt().fill_some(&mut self.0, &pool.view()).await?;
            if has_more {
                pool.jobs.advance(&pool, &JobKey::DedupFilter, self.0.keys, 0);
                return Ok(Step::More { pause: Duration::ZERO });
            }
            tracing::debug!(
                pool = pool.pool.name(),
                keys = self.0.keys,
                "a filter of dedup tables is complete"
            );
            Ok(Step::Complete)
        }
        .boxed_local()
    }
}
