//! Scrubs by schedule: a pool is scrubbed by itself when its last scrub began long enough ago.
//!
//! The schedule is a user property of the pool ([`PROPERTY`]), so that it goes where the pool goes. A second
//! one ([`SINCE`]) has the time when it was set: the first scrub is due one period later. A scrub that is
//! begun by hand counts too, so that a pool is never scrubbed twice in a period. A scrub that is due while
//! another scan runs, or while the pool is suspended, begins when that is over.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use engine::pool::live::LivePool;
use engine::pool::properties::{PoolEnvironment, PoolProperties};
use engine::pool::status::{Progress, ScanKind};
use engine::properties::Style;

use crate::api::{self, ApiError, Listed, ScrubSchedule};
use crate::daemon::refusals::refused;
use crate::daemon::sync_tasks;
use crate::daemon::{Daemon, OpenPool};

/// The user property of pools with the schedule: `daily`, `weekly`, `monthly` or a number of days such as
/// `10d`.
const PROPERTY: &str = "org.cenote:scrub";
/// The user property with the time when the schedule was set, in seconds since 1970.
const SINCE: &str = "org.cenote:scrub-since";
const DAY_S: u64 = 24 * 60 * 60;
/// The longest period, in days.
const MAX_DAYS: u64 = 3650;

/// The seconds between two scrubs of a schedule.
fn period_s(schedule: &str) -> Option<u64> {
    let days = match schedule {
        "daily" => 1,
        "weekly" => 7,
        "monthly" => 30,
        _ => schedule.strip_suffix('d')?.parse().ok().filter(|days| (1..=MAX_DAYS).contains(days))?,
    };
    Some(days * DAY_S)
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

impl Daemon {
    /// The schedules of pools.
    ///
    /// # Errors
    /// None: a pool that is not open, or cannot be read, becomes an entry of `failed`.
    pub async fn scrub_schedules(
        &self,
        request: api::GetScrubSchedules,
    ) -> Result<Listed<ScrubSchedule>, ApiError> {
        let (pools, failed) = self.pools_named(&request.pools);
        let mut listed = Listed { entries: Vec::new(), failed };
        for open in pools {
            match schedule_of(&open).await {
                Ok(schedule) => listed.entries.push(schedule),
                Err(error) => {
                    listed
                        .failed
                        .push(refused(&format!("cannot read the schedule of '{}'", open.name()), error));
                }
            }
        }
        Ok(listed)
    }

    /// Sets the schedule of a pool.
    ///
    /// # Errors
    /// No such pool, one that is open read-only, or something that is no schedule.
    pub async fn set_scrub_schedule(
        &self,
        request: api::SetScrubSchedule,
    ) -> Result<ScrubSchedule, ApiError> {
        let doing = format!("cannot schedule scrubs of '{}'", request.pool);
        if request.schedule != "off" && period_s(&request.schedule).is_none() {
            return Err(ApiError::invalid(format!(
                "{doing}: '{}' is none of daily, weekly, monthly, off, and no number of days such as 10d",
                request.schedule
            )));
        }
        let open = self.pool(&request.pool)?;
        let live = open.writable(&doing)?;
        let (schedule, since) = match request.schedule.as_str() {
            "off" => (String::new(), String::new()),
            other => (other.to_owned(), now().to_string()),
        };
        let set = sync_tasks::change(live, request.command, move |s| async move {
            sync_tasks::set_pool_property(&s, PROPERTY, &schedule).await?;
            sync_tasks::set_pool_property(&s, SINCE, &since).await
        });
        set.await.map_err(|error| refused(&doing, error))?;
        schedule_of(&open).await.map_err(|error| refused(&doing, error))
    }

    /// Begins the scrubs that are due.
    pub(in crate::daemon) async fn begin_due_scrubs(&self) {
        for open in self.open_pools() {
            let Some(live) = open.live().filter(|_| !open.is_suspended()) else { continue };
            match schedule_of(&open).await {
                Ok(schedule) if schedule.next.is_some_and(|next| next <= now()) && !schedule.is_scanning => {
                    begin(&open, live).await;
                }
                Ok(_) => {}
                Err(error) => tracing::debug!(pool = open.name(), %error, "its schedule cannot be read"),
            }
        }
    }
}

async fn begin(open: &OpenPool, live: &Arc<LivePool>) {
    let pool = open.name();
    match live.scrub(Default::default()).await {
        Ok(()) => tracing::info!(pool, "a scrub that was due has begun"),
        Err(error) => tracing::warn!(pool, %error, "a scrub that is due cannot begin"),
    }
}

/// The schedule of a pool, as of its last commit.
async fn schedule_of(open: &OpenPool) -> engine::Result<ScrubSchedule> {
    let dsl = open.dsl().await?;
    let environment = PoolEnvironment {
        cachefile: None,
        load_guid: open.load_guid(),
        suspended: false,
        read_only: open.live().is_none(),
        dedup_cached_bytes: 0,
    };
    let properties = PoolProperties::load(&dsl, &environment).await?;
    let value = |name: &str| properties.get_named(name, Style::PARSABLE).map(|shown| shown.value);
    let schedule = value(PROPERTY).filter(|schedule| period_s(schedule).is_some());
    let since = value(SINCE).and_then(|since| since.parse().ok()).unwrap_or(0);
    let scan = open.live().and_then(|live| live.scan_status());
    let is_scanning = scan.as_ref().is_some_and(|scan| scan.state == Progress::Running);
    let last = scan.filter(|scan| scan.kind == ScanKind::Scrub).map(|scan| scan.start_time);
    let period = schedule.as_deref().and_then(period_s);
    let next = period.map(|period| last.unwrap_or(0).max(since).saturating_add(period));
    Ok(ScrubSchedule { pool: open.name().to_owned(), schedule, last, next, is_scanning })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schedule_is_a_word_or_a_number_of_days() {
        let days = |schedule| period_s(schedule).map(|seconds| seconds / DAY_S);
        assert_eq!(["daily", "weekly", "monthly", "10d"].map(days), [Some(1), Some(7), Some(30), Some(10)]);
        assert_eq!(["", "0d", "off", "yearly", "4000d", "d"].map(days), [None; 6]);
    }
}
