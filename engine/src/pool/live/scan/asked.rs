//! What users ask of scans: to begin, to pause, to be given up.

use std::sync::Arc;

use ondisk::Txg;
use ondisk::pool_directory::{DIRECTORY_OBJECT, LAST_SCRUBBED_TXG};
use ondisk::scan::{FLAG_PAUSED, Function};

use super::End;
use crate::dsl::{Dsl, history};
use crate::error::{Error, Result};
use crate::jobs::Stop;
use crate::pool::live::{JobKey, LivePool};

/// What a scrub looks at.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ScrubRange {
    /// Blocks born after this group; `Txg::NONE` for all.
    pub after: Txg,
    /// And not after this one; none for all.
    pub until: Option<Txg>,
}

impl LivePool {
    /// Begins a scrub, or goes on with one that is paused.
    ///
    /// # Errors
    /// [`Error::Busy`] when a scan is under way.
    pub async fn scrub(self: &Arc<Self>, range: ScrubRange) -> Result<()> {
        self.ask_devices().await;
        let resumed = self.change(move |s| async move { s.begin_scrub(range).await }).await?;
        self.sysevent(if resumed { "scrub_resume" } else { "scrub_start" }, None);
        self.work_on_scan().await
    }

    /// The group up to which the last scrub that came to its end looked; `Txg::NONE` when there was none.
    pub async fn last_scrubbed_txg(self: &Arc<Self>) -> Result<Txg> {
        let view = self.view();
        let dsl = Dsl::open(&view).await?;
        Ok(Txg(dsl.mos().u64(DIRECTORY_OBJECT, LAST_SCRUBBED_TXG).await?.unwrap_or(0)))
    }

    /// A group before this time, in seconds since 1970, and not long before, as far as the pool's history
    /// says.
    /// `Txg::NONE` where nothing is known to be older.
    pub async fn group_before(self: &Arc<Self>, time: u64) -> Result<Txg> {
        let groups = self.dated_groups().await?;
        let before = groups.into_iter().filter(|(then, _)| *then <= time).map(|(_, txg)| txg);
        Ok(Txg(before.max().unwrap_or(0)))
    }

    /// A group after this time and not long after, as far as the pool's history says. None where nothing is
    /// known to be newer.
    pub async fn group_after(self: &Arc<Self>, time: u64) -> Result<Option<Txg>> {
        let groups = self.dated_groups().await?;
        let after = groups.into_iter().filter(|(then, _)| *then >= time).map(|(_, txg)| txg);
        Ok(after.min().map(Txg))
    }

    /// Times, with the groups in which the history noted something then.
    async fn dated_groups(&self) -> Result<Vec<(u64, u64)>> {
        let records = history::read(&Dsl::open(&self.view()).await?).await?;
        Ok(records.iter().filter_map(|record| Some((record.time()?, record.txg()?))).collect())
    }

    /// Gives up the scan that is under way: a scrub, an error scrub or a resilver.
    ///
    /// # Errors
    /// [`Error::Busy`] when none is.
    pub async fn cancel_scan(self: &Arc<Self>) -> Result<()> {
        if self.scan().error_scrub.is_running() {
            return self.cancel_error_scrub().await;
        }
        self.change(|s| async move {
            if !s.pool.scan().phys.is_running() {
                return Err(no_scrub());
            }
            // Here and not later: the end of a scan may begin a resilver, which is not to be stopped.
            s.pool.jobs.stop_here(&s.pool, &[JobKey::Scan], Stop::Cancel);
            s.end_scan(End::Canceled).await
        })
        .await?;
        self.sysevent("scrub_abort", None);
        Ok(())
    }

    /// Pauses a scrub or an error scrub, if one is under way.
    ///
    /// # Errors
    /// [`Error::Busy`] when it is paused, or a resilver runs.
    pub async fn pause_scrub(self: &Arc<Self>) -> Result<()> {
        if self.scan().error_scrub.is_running() {
            return self.pause_error_scrub().await;
        }
        self.change(|s| async move {
            {
                let mut state = s.pool.scan();
                match state.phys {
                    phys if !phys.is_running() => return Ok(()),
                    phys if phys.function != Function::Scrub => return Err(resilvering()),
                    phys if phys.is_paused() => return Err(paused()),
                    _ => {}
                }
                state.phys.flags |= FLAG_PAUSED;
                state.pass.paused = s.now();
                state.overtake();
            }
            s.pool.jobs.stop_here(&s.pool, &[JobKey::Scan], Stop::Suspend);
            s.store_scan().await
        })
        .await?;
        self.sysevent("scrub_paused", None);
        Ok(())
    }
}

pub(in crate::pool::live) fn scrubbing() -> Error {
    Error::Busy("currently scrubbing; use 'zpool scrub -s' to cancel scrub".into())
}

pub(in crate::pool::live) fn resilvering() -> Error {
    Error::Busy("currently resilvering".into())
}

pub(in crate::pool::live) fn error_scrubbing() -> Error {
    Error::Busy("currently error scrubbing; use 'zpool scrub -s' to cancel error scrub".into())
}

pub(in crate::pool::live) fn error_scrub_paused() -> Error {
    Error::Busy("error scrub is paused; use 'zpool scrub -e' to resume error scrub".into())
}

fn paused() -> Error {
    Error::Busy("scrub is paused; use 'zpool scrub' to resume scrub".into())
}

pub(in crate::pool::live) fn no_scrub() -> Error {
    Error::Busy("there is no active scrub".into())
}
