//! Looking again at the blocks of the error log: what is right now leaves the log.
//!
//! Its state stands in the MOS beside that of the scan. The log is looked at in order, and what is right
//! leaves it. So after a pause, an import or a crash the first blocks of the log, as many as were found
//! damaged, are those that were looked at; the rest is left. A block that was found damaged meanwhile may
//! stay in the log without a look, until the next time. A scrub or a resilver that begins takes its place.
//!
//! Source of the facts: OpenZFS 2.4 `dsl_scan.c` (`dsl_errorscrub_setup_sync`, `dsl_errorscrub_done`).

mod looking;

use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::ready;
use ondisk::features::Feature;
use ondisk::pool_directory::ERROR_SCRUB;
use ondisk::scan::{ErrorScrubPhys, Function, ScanState};

use super::jobs::each_alone;
use super::parts::{Doing, Part};
use super::scan::End;
use super::scan::asked::{error_scrub_paused, error_scrubbing, no_scrub, resilvering, scrubbing};
use super::{JobKey, LivePool, Syncing, rotate_error_log};
use crate::dmu::zap;
use crate::dsl::Dsl;
use crate::error::{Error, Result};
use crate::jobs::{JobState, JobStatus, Stop, Unit, Work};
use crate::pool::errlog::{self, DamagedBlock};

/// Looks again at the blocks of the error log. What is known of it is in the state of the scan, since there
/// is never one beside the other.
#[derive(Debug, Default)]
pub(super) struct ErrorScrubs;

impl Part for ErrorScrubs {
    /// Its state is that of the scan, which is loaded before.
    fn load<'a>(&'a self, pool: &'a Arc<LivePool>, _: &'a Dsl) -> Doing<'a> {
        let known = pool.scan().error_scrub;
        if known.is_running() {
            let state = if known.paused == 0 { JobState::Active } else { JobState::Suspended };
            let begun = JobStatus::begun(Unit::Objects, known.start_time, 0);
            pool.jobs.take_up([(JobKey::ErrorScrub, JobStatus { state, ..begun })]);
        }
        ready(Ok(())).boxed()
    }

    fn work(&self, _: &Arc<LivePool>, keys: &[(JobKey, JobStatus)]) -> Vec<Work<LivePool>> {
        each_alone(keys, |_| Some(looking::Looking::default()))
    }
}

impl LivePool {
    /// Looks again at the blocks of the error log, or goes on with that. Nothing where the log is empty.
    ///
    /// # Errors
    /// [`Error::Busy`] when a scan is under way, paused or not; [`Error::Unsupported`] for a pool without
    /// `head_errlog`, whose log does not say where a block is.
    pub async fn scrub_errors(self: &Arc<Self>) -> Result<()> {
        self.ask_devices().await;
        let count = self.known_errors().await?.len() as u64;
        let begun = self.change(move |s| async move { s.begin_error_scrub(count).await }).await?;
        let Some(event) = begun else { return Ok(()) };
        self.sysevent(event, None);
        self.jobs.start(self, &[JobKey::ErrorScrub], (Unit::Objects, 0)).await
    }

    /// Pauses it, if it is under way.
    ///
    /// # Errors
    /// [`Error::Busy`] when it is paused.
    pub async fn pause_error_scrub(self: &Arc<Self>) -> Result<()> {
        let is_paused = self
            .change(|s| async move {
                {
                    let mut state = s.pool.scan();
                    match state.error_scrub {
                        known if !known.is_running() => return Ok(false),
                        known if known.paused != 0 => return Err(error_scrub_paused()),
                        _ => state.error_scrub.paused = 1,
                    }
                }
                s.pool.jobs.stop_here(&s.pool, &[JobKey::ErrorScrub], Stop::Suspend);
                s.store_error_scrub().await.map(|()| true)
            })
            .await?;
        if is_paused {
            self.sysevent("errorscrub_paused", None);
        }
        Ok(())
    }

    /// Gives it up.
    pub(super) async fn cancel_error_scrub(self: &Arc<Self>) -> Result<()> {
        self.change(|s| async move {
            if !s.pool.scan().error_scrub.is_running() {
                return Err(no_scrub());
            }
            s.pool.jobs.stop_here(&s.pool, &[JobKey::ErrorScrub], Stop::Cancel);
            s.end_error_scrub(End::Canceled).await
        })
        .await?;
        self.sysevent("errorscrub_abort", None);
        Ok(())
    }

    /// The blocks that are known to be damaged.
    async fn known_errors(&self) -> Result<Vec<DamagedBlock>> {
        errlog::read(&Dsl::open(&self.view()).await?).await
    }
}

impl Syncing {
    /// Begins, or goes on: gives the name of the event. None when there is nothing to look at.
    async fn begin_error_scrub(&self, count: u64) -> Result<Option<&'static str>> {
        if !self.feature_enabled(Feature::HeadErrlog) {
            let why =
                "an error scrub needs the feature 'head_errlog'; use 'zpool scrub', or enable the feature";
            return Err(Error::Unsupported(why.into()));
        }
        {
            let state = self.pool.scan();
            if state.phys.is_running() {
                return Err(match state.phys.function {
                    Function::Resilver => resilvering(),
                    _ if state.phys.is_paused() => Error::Busy(
                        "scrub is paused; use 'zpool scrub' to resume or 'zpool scrub -s' to cancel scrub"
                            .into(),
                    ),
                    _ => scrubbing(),
                });
            }
            if state.error_scrub.is_running() && state.error_scrub.paused == 0 {
                return Err(error_scrubbing());
            }
        }
        if self.pool.scan().error_scrub.is_running() {
            self.pool.scan().error_scrub.paused = 0;
            self.store_error_scrub().await?;
            return Ok(Some("errorscrub_resume"));
        }
        if count == 0 {
            return Ok(None);
        }
        self.pool.scan().error_scrub = ErrorScrubPhys {
            function: Function::ErrorScrub,
            state: ScanState::ErrorScrubbing,
            start_time: self.now(),
            to_examine: count,
            ..ErrorScrubPhys::default()
        };
        self.store_error_scrub().await?;
        self.pool.config_changed();
        let text = format!("func={} mintxg=0 maxtxg={}", Function::ErrorScrub as u64, self.txg());
        self.note_scan("error scrub setup", &text).await?;
        Ok(Some("errorscrub_start"))
    }

    /// Some blocks were looked at. False when it is not under way any more.
    async fn advance_error_scrub(&self, examined: u64, errors: u64, is_all: bool) -> Result<bool> {
        {
            let mut state = self.pool.scan();
            let known = &mut state.error_scrub;
            if !known.is_running() {
                return Ok(false);
            }
            known.examined += examined;
            known.to_examine = known.to_examine.saturating_sub(examined);
            known.errors += errors;
        }
        match is_all {
            true => self.end_error_scrub(End::Complete).await?,
            false => self.store_error_scrub().await?,
        }
        Ok(true)
    }

    /// Ends it.
    async fn end_error_scrub(&self, end: End) -> Result<()> {
        let is_complete = end == End::Complete;
        {
            let mut state = self.pool.scan();
            state.error_scrub.state = if is_complete { ScanState::Finished } else { ScanState::Canceled };
            state.error_scrub.end_time = self.now();
            state.error_scrub.paused = 0;
        }
        self.store_error_scrub().await?;
        let name = if is_complete { "error scrub done" } else { "error scrub canceled" };
        if is_complete {
            rotate_error_log(self).await?;
        }
        let errors = self.pool.scan().error_scrub.errors;
        self.note_scan(name, &format!("errors={errors}")).await
    }

    /// Writes the state.
    pub(super) async fn store_error_scrub(&self) -> Result<()> {
        let words = self.pool.scan().error_scrub.to_words().to_vec();
        self.set_in_directory(ERROR_SCRUB, zap::Value::U64(words)).await
    }
}
