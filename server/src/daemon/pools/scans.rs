//! Scrubs and resilvers of open pools.
//!
//! Source of the texts: OpenZFS 2.4 `libzfs_pool.c` (`zpool_scan_range`).

use std::sync::Arc;

use engine::Result;
use engine::pool::live::{LivePool, ScrubRange};
use ondisk::Txg;

use crate::api::{self, ApiError, ScanAction};
use crate::daemon::Daemon;
use crate::daemon::refusals::refused;
use crate::daemon::sync_tasks;

impl Daemon {
    /// Begins, pauses or ends a scan.
    ///
    /// # Errors
    /// The pool is open read-only, or another scan is under way.
    pub async fn scan_pool(&self, request: api::ScanPool) -> std::result::Result<bool, ApiError> {
        let pool = self.pool(&request.pool)?;
        let name = &request.pool;
        let doing = match request.action {
            ScanAction::Scrub => format!("cannot scrub {name}"),
            ScanAction::Pause => format!("cannot pause scrubbing {name}"),
            ScanAction::Stop => format!("cannot cancel scrubbing {name}"),
            ScanAction::Resilver => format!("cannot restart resilver on {name}"),
        };
        let live = pool.writable(&doing)?;
        let done = async {
            match request.action {
                ScanAction::Scrub if request.errors_only => live.scrub_errors().await,
                ScanAction::Scrub => live.scrub(range(live, &request).await?).await,
                ScanAction::Pause if request.errors_only => live.pause_error_scrub().await,
                ScanAction::Pause => live.pause_scrub().await,
                ScanAction::Stop => live.cancel_scan().await,
                ScanAction::Resilver => live.restart_resilver().await,
            }
        };
        done.await.map_err(|error| refused(&doing, error))?;
        sync_tasks::change(live, request.command, |_| async { Ok(()) }).await?;
        Ok(live.view().checkpoint().is_some())
    }
}

/// The groups that a request means.
async fn range(live: &Arc<LivePool>, request: &api::ScanPool) -> Result<ScrubRange> {
    let mut range = ScrubRange::default();
    if request.after_last {
        range.after = live.last_scrubbed_txg().await?;
    }
    if request.since != 0 {
        range.after = live.group_before(request.since).await?;
    }
    if request.until != 0 {
        range.until = live.group_after(request.until).await?.filter(|until| *until != Txg::NONE);
    }
    Ok(range)
}
