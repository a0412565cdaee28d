//! Pruning the dedup tables of open pools, and reading tables ahead.

use engine::pool::live::Prune;

use crate::api::{self, ApiError, PrunedEntries, TableKind};
use crate::daemon::Daemon;
use crate::daemon::refusals::refused;
use crate::daemon::sync_tasks;

impl Daemon {
    /// Removes entries of old blocks with one reference from dedup tables.
    ///
    /// # Errors
    /// The pool is open read-only, or a table cannot be read.
    pub async fn prune_pool(&self, request: api::PrunePool) -> Result<u64, ApiError> {
        let pool = self.pool(&request.pool)?;
        let doing = format!("cannot prune dedup table on '{}'", request.pool);
        let live = pool.writable(&doing)?;
        let prune = match request.which {
            PrunedEntries::OlderThanDays(days) => Prune::OlderThanDays(days),
            PrunedEntries::Percent(percent) => Prune::Percent(percent),
        };
        let pruned = live.prune_dedup(prune).await.map_err(|error| refused(&doing, error))?;
        sync_tasks::change(live, request.command, |_| async { Ok(()) }).await?;
        Ok(pruned)
    }

    /// Reads tables into the ARC.
    ///
    /// # Errors
    /// One of them cannot be read.
    pub async fn prefetch_pool(&self, request: api::PrefetchPool) -> Result<u64, ApiError> {
        let pool = self.pool(&request.pool)?;
        let doing = format!("cannot prefetch {}", request.pool);
        let live = pool.writable(&doing)?;
        let mut bytes = 0;
        if request.kind != Some(TableKind::Brt) {
            bytes += live.prefetch_dedup().await.map_err(|error| refused(&doing, error))?;
        }
        if request.kind != Some(TableKind::Ddt) {
            bytes += live.prefetch_cloned().await.map_err(|error| refused(&doing, error))?;
        }
        Ok(bytes)
    }
}
