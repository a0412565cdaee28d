//! The error log of a pool that is written: notes of blocks that could not be read become entries on disk.
//!
//! Reads note their failures in [`crate::store::Damage`]. Each group writes down what was noted before it
//! ([`crate::dsl::edit`], its module `errlog`). What could not be read while a scan runs belongs to the log
//! of that scan, and when the scan ends its log takes the place of the last one. The state of scans is that
//! in the pool directory, so that a scan which goes on after an import goes on with its log.
//!
//! Source of the facts: OpenZFS 2.4 `spa_errlog.c` (`spa_errlog_sync`, `spa_errlog_rotate`).

use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::FutureExt;
use ondisk::features::Feature;
use ondisk::pool_directory::{DIRECTORY_OBJECT, ERROR_SCRUB, SCAN};
use ondisk::scan::ScanState;

use super::Syncing;
use super::parts::{Doing, Part};
use crate::dmu::zap::{self, edit as zap_edit};
use crate::dsl::edit;
use crate::error::Result;
use crate::events::feed::What;
use crate::mos::LiveFeatures;

/// The position of the state in the words of a scan, and its value while the scan runs.
const STATE: usize = 1;
const RUNNING: [u64; 2] = [ScanState::Scanning as u64, ScanState::ErrorScrubbing as u64];

/// The error log, in one of its two forms.
#[derive(Debug, Default)]
pub(super) struct ErrorLog {
    /// Whether it is by head dataset.
    is_by_head: AtomicBool,
}

impl ErrorLog {
    /// The pool is opened: its log has the form that goes with its features.
    pub(super) fn has_form_of(&self, features: &LiveFeatures) {
        self.is_by_head.store(features.count(Feature::HeadErrlog).is_some(), Ordering::Relaxed);
    }

    async fn upgrade(&self, s: &Syncing) -> Result<()> {
        let by_head = s.feature_count(Feature::HeadErrlog).is_some();
        if by_head && !self.is_by_head.swap(true, Ordering::Relaxed) {
            edit::upgrade_error_log(s).await?;
        }
        Ok(())
    }
}

impl Part for ErrorLog {
    /// Writes down what was noted, as part of a group. Logs of the old form are rewritten when the feature
    /// `head_errlog` was enabled in this group.
    fn sync<'a>(&'a self, s: &'a Syncing) -> Doing<'a> {
        let sync = async {
            self.upgrade(s).await?;
            let damage = s.pool.pool.damage();
            if let Some(noted) = damage.take() {
                let has_log = edit::sync_error_log(s, &noted, is_scanning(s).await?).await?;
                damage.written(has_log);
                s.announce(What::Errors);
            }
            Ok(())
        };
        sync.boxed()
    }
}

/// From now on, notes are written down with groups.
pub(super) async fn begin(s: &Syncing) -> Result<()> {
    let has_log = edit::has_error_log(s).await?;
    s.pool.pool.damage().is_written_with(s.pool.txgs(), has_log);
    Ok(())
}

/// A scrub or resilver ended, or was stopped: with this group, what it found takes the place of what was
/// known before (`spa_errlog_rotate`).
pub async fn rotate_error_log(s: &Syncing) -> Result<()> {
    s.pool.pool.damage().rotate();
    // Asked for as part of a group; a caller need not know that nothing is written here.
    std::future::ready(Ok(())).await
}

async fn is_scanning(s: &Syncing) -> Result<bool> {
    let directory = s.mos().object(DIRECTORY_OBJECT).await?;
    for name in [SCAN, ERROR_SCRUB] {
        let value = zap_edit::lookup(&directory, &zap::Key::Name(name.into())).await?;
        if value.is_some_and(|value| value.to_u64s().get(STATE).is_some_and(|state| RUNNING.contains(state)))
        {
            return Ok(true);
        }
    }
    Ok(false)
}
