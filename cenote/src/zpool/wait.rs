//! `zpool wait`: returns when the pool's background activities have ended.
//!
//! Only OpenZFS continues removals and expansions; a pool that was exported during one would continue it
//! there. A scrub that is paused is not waited for, nor is a copy of a volume that is, or that failed.
//!
//! It looks when the daemon's feed says that something changed ([`crate::feed`]).

use std::time::{Duration, Instant};

use anyhow::Result;
use clap::ValueEnum;
use server::api::{
    GetStatus, ListPools, PoolStatus, Progress, ReshapeState, ScanKind, State, Sweep, SweepState, VdevNode,
};

use crate::client;
use crate::feed::Feed;
use crate::output::usage;

/// How long an old device may take to go once the new one has everything. In a pool that is open read-only it
/// stays.
const SETTLE_LIMIT: Duration = Duration::from_secs(10);

/// The activities, in OpenZFS's words and order; what is ours comes last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
enum Activity {
    /// Freeing what a checkpoint kept
    Discard,
    /// Freeing what destroyed datasets had
    Free,
    /// Writing all free space of devices
    Initialize,
    /// Bringing a new device up to date
    Replace,
    /// Moving the blocks of a device that is removed
    Remove,
    /// Bringing devices up to date
    Resilver,
    /// Reading all blocks
    Scrub,
    /// Telling devices which of their space is free
    Trim,
    /// Spreading raidz over a new device
    RaidzExpand,
    /// Copying volumes that get another block size
    Reshape,
    /// Removing old entries of dedup tables
    DdtPrune,
}

/// Arguments of `zpool wait`.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Activities to wait for; all if not given
    #[arg(short = 't', value_name = "ACTIVITY", value_delimiter = ',', value_enum)]
    activities: Vec<Activity>,
    /// The pool
    #[arg(value_name = "POOL")]
    pool: Option<String>,
}

impl Arguments {
    /// Waits.
    pub fn run(self) -> Result<()> {
        let pool = self.pool.ok_or_else(|| usage("missing 'pool' argument"))?;
        let all = Activity::value_variants();
        let chosen = if self.activities.is_empty() { all } else { &self.activities[..] };
        let mut settling = None;
        let mut feed = Feed::begin()?;
        loop {
            let look = Look::at(&pool)?;
            let settles = chosen.contains(&Activity::Replace) && look.settles();
            let mut patience = None;
            if chosen.iter().any(|activity| look.shows(*activity)) {
                settling = None;
            } else {
                let waited = settling.get_or_insert_with(Instant::now).elapsed();
                if !settles || waited > SETTLE_LIMIT {
                    return Ok(());
                }
                patience = Some(SETTLE_LIMIT.saturating_sub(waited) + Duration::from_millis(1));
            }
            feed.as_mut().ok_or_else(|| super::no_such_pool(&pool))?.wait(patience)?;
        }
    }
}

/// A pool at one moment.
struct Look {
    status: PoolStatus,
    /// Bytes that destroyed datasets still have.
    freeing: u64,
}

impl Look {
    fn at(pool: &str) -> Result<Self> {
        let pools = || vec![pool.to_owned()];
        let missing = || super::no_such_pool(pool);
        let status = GetStatus { pools: pools(), ..GetStatus::default() };
        let status = client::call_running(&status)?.and_then(|listed| listed.entries.into_iter().next());
        let freeing = ListPools { pools: pools(), properties: vec!["freeing".into()], vdevs: false };
        let freeing = client::call_running(&freeing)?.and_then(|listed| listed.entries.into_iter().next());
        let mut properties = freeing.ok_or_else(missing)?.properties.into_iter();
        let freeing = properties.next().and_then(|property| property.parsable?.parse().ok());
        Ok(Self { status: status.ok_or_else(missing)?, freeing: freeing.unwrap_or(0) })
    }

    /// Whether the free space of a device is gone through.
    fn sweeps(&self, work: Sweep) -> bool {
        let mut sweeps = self.status.sweeps.iter();
        sweeps.any(|sweep| sweep.work == work && sweep.state == SweepState::Active)
    }

    /// Whether a new device has everything, and the old one is still to go.
    fn settles(&self) -> bool {
        let ends = |vdev: &VdevNode| {
            let new = vdev.children.last();
            new.is_some_and(|new| new.state == State::Healthy && !new.awaits_resilver)
        };
        self.status.health.vdevs.walk().any(|vdev| vdev.kind == "replacing" && ends(vdev))
    }

    fn shows(&self, activity: Activity) -> bool {
        let health = &self.status.health;
        let scans = |kind| {
            health.scan.as_ref().is_some_and(|scan| scan.kind == kind && scan.state == Progress::Running)
        };
        match activity {
            Activity::Discard => health.checkpoint.as_ref().is_some_and(|checkpoint| checkpoint.discarding),
            Activity::Free => self.freeing > 0,
            Activity::Initialize => self.sweeps(Sweep::Initialize),
            Activity::Replace if health.detaches => true,
            Activity::Replace => {
                let resilvers = scans(ScanKind::Resilver) || health.looks_for_resilver;
                resilvers && health.vdevs.walk().any(|vdev| vdev.kind == "replacing")
            }
            Activity::Remove => {
                health.removal.as_ref().is_some_and(|removal| removal.state == Progress::Running)
            }
            Activity::Resilver => scans(ScanKind::Resilver) || health.looks_for_resilver,
            Activity::Scrub => super::scrub::is_scrubbing(&self.status),
            Activity::Trim => self.sweeps(Sweep::Trim),
            Activity::RaidzExpand => {
                health.expansion.as_ref().is_some_and(|expansion| expansion.state == Progress::Running)
            }
            Activity::DdtPrune => self.status.pruning.is_some(),
            Activity::Reshape => {
                self.status.reshapes.iter().any(|reshape| reshape.state == ReshapeState::Active)
            }
        }
    }
}
