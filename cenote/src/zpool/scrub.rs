//! `zpool scrub` and `zpool resilver`: verifying all blocks, and copying what devices missed.

use anyhow::Result;
use server::api::{GetStatus, PoolStatus, Progress, Scan, ScanAction, ScanKind, ScanPool};

use crate::output::{self, usage};
use crate::{client, command_line, feed};

/// Arguments of `zpool scrub`.
#[derive(Debug, clap::Args)]
#[command(disable_version_flag = true)]
pub struct ScrubArguments {
    /// Stop scrubbing
    #[arg(short = 's')]
    stop: bool,
    /// Pause scrubbing; 'zpool scrub' goes on with it
    #[arg(short = 'p')]
    pause: bool,
    /// Return when it is done
    #[arg(short = 'w')]
    wait: bool,
    /// Only the blocks that the error log names
    #[arg(short = 'e')]
    errors: bool,
    /// Only what was written after the last scrub
    #[arg(short = 'C')]
    after_last: bool,
    /// Only what was written since about this date (2026-11-27, or "2026-11-27 12:00")
    #[arg(short = 'S', value_name = "DATE")]
    since: Option<String>,
    /// Only what was written up to about this date
    #[arg(short = 'E', value_name = "DATE")]
    until: Option<String>,
    /// All pools
    #[arg(short = 'a')]
    all: bool,
    /// The pools
    #[arg(value_name = "POOL")]
    pools: Vec<String>,
}

impl ScrubArguments {
    /// Begins, pauses or stops scrubs.
    pub fn run(self) -> Result<()> {
        self.check()?;
        let date = |text: &Option<String>, is_end| match text {
            Some(text) => output::date_in(text, is_end).ok_or_else(|| usage("Failed to parse the date.")),
            None => Ok(0),
        };
        let (since, until) = (date(&self.since, false)?, date(&self.until, true)?);
        if since != 0 && until != 0 && since > until {
            return Err(usage("invalid arguments: end date has to be later than start date"));
        }
        let action = match (self.stop, self.pause) {
            (true, _) => ScanAction::Stop,
            (_, true) => ScanAction::Pause,
            _ => ScanAction::Scrub,
        };
        let pools = if self.all { all_pools()? } else { self.pools };
        let request = |pool: &String| ScanPool {
            pool: pool.clone(),
            action,
            errors_only: self.errors,
            after_last: self.after_last,
            since,
            until,
            command: command_line::command(),
        };
        let mut failed = None;
        for pool in &pools {
            match ask(&request(pool)) {
                Ok(true) if action == ScanAction::Scrub && !self.errors => output::print(&format!(
                    "warning: will not scrub state that belongs to the checkpoint of pool '{pool}'\n"
                ))?,
                Ok(_) => {}
                Err(error) => {
                    // A pool that refuses keeps none of the others from it.
                    if let Some(before) = failed.replace(error) {
                        eprintln!("{before}");
                    }
                }
            }
        }
        match failed {
            Some(error) => Err(error),
            None if self.wait => pools.iter().try_for_each(|pool| wait_for_scrub(pool)),
            None => Ok(()),
        }
    }

    fn check(&self) -> Result<()> {
        let exclusive = |one, other| {
            usage(format!("invalid option combination: -{one} and -{other} are mutually exclusive"))
        };
        if self.pause && self.stop {
            return Err(exclusive('s', 'p'));
        }
        if self.pause && self.after_last {
            return Err(exclusive('p', 'C'));
        }
        if self.stop && self.after_last {
            return Err(exclusive('s', 'C'));
        }
        if self.errors && self.after_last {
            return Err(exclusive('e', 'C'));
        }
        let is_ranged = self.since.is_some() || self.until.is_some();
        if is_ranged && (self.pause || self.after_last) {
            return Err(usage(
                "invalid option combination: start/end date is available only with normal scrub",
            ));
        }
        if self.wait && (self.pause || self.stop) {
            return Err(usage("invalid option combination: -w cannot be used with -p or -s"));
        }
        if self.pools.is_empty() && !self.all {
            return Err(usage("missing pool name argument"));
        }
        Ok(())
    }
}

/// Arguments of `zpool resilver`.
#[derive(Debug, clap::Args)]
#[command(disable_version_flag = true)]
pub struct ResilverArguments {
    /// The pools
    #[arg(value_name = "POOL")]
    pools: Vec<String>,
}

impl ResilverArguments {
    /// Begins resilvers anew.
    pub fn run(self) -> Result<()> {
        if self.pools.is_empty() {
            return Err(usage("missing pool name argument"));
        }
        for pool in self.pools {
            let command = command_line::command();
            ask(&ScanPool { pool, action: ScanAction::Resilver, command, ..ScanPool::default() })?;
        }
        Ok(())
    }
}

fn ask(request: &ScanPool) -> Result<bool> {
    client::call_running(request)?.ok_or_else(|| super::no_such_pool(&request.pool))
}

/// The names of all pools that are open; none where nothing runs that has some.
fn all_pools() -> Result<Vec<String>> {
    let status = client::call_running(&GetStatus::default())?;
    Ok(status.map_or_else(Vec::new, |status| status.entries.into_iter().map(|pool| pool.name).collect()))
}

/// Whether a scrub of the pool, or one of its error log, goes on and is not paused.
pub(super) fn is_scrubbing(pool: &PoolStatus) -> bool {
    let goes_on = |scan: &Scan| scan.state == Progress::Running && scan.paused_time.is_none();
    let scrub = pool.health.scan.iter().filter(|scan| scan.kind == ScanKind::Scrub);
    scrub.chain(&pool.health.error_scrub).any(goes_on)
}

fn wait_for_scrub(pool: &str) -> Result<()> {
    feed::until(|| {
        let request = GetStatus { pools: vec![pool.to_owned()], ..GetStatus::default() };
        let status = client::call_running(&request)?.ok_or_else(|| super::no_such_pool(pool))?;
        Ok(!status.entries.iter().any(is_scrubbing))
    })
}
