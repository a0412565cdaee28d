//! `zpool initialize` and `zpool trim`: writing or trimming the free space of devices.

use anyhow::Result;
use server::api::{GetStatus, Sweep, SweepAction, SweepDevices, SweepState, Sweeping};

use crate::output::usage;
use crate::{client, command_line, feed};

/// The common options of both.
#[derive(Debug, clap::Args)]
struct Common {
    /// Cancel
    #[arg(short, long, conflicts_with = "suspend")]
    cancel: bool,
    /// Stop, to go on later
    #[arg(short, long)]
    suspend: bool,
    /// Return when it is done
    #[arg(short, long)]
    wait: bool,
    /// All pools
    #[arg(short, long)]
    all: bool,
    /// The pool, and optionally some of its devices
    #[arg(value_name = "POOL [DEVICE…]", num_args = 0..)]
    words: Vec<String>,
}

/// Arguments of `zpool initialize`.
#[derive(Debug, clap::Args)]
pub struct InitializeArguments {
    #[command(flatten)]
    common: Common,
    /// Forget that devices were initialized
    #[arg(short, long, conflicts_with_all = ["cancel", "suspend"])]
    uninit: bool,
}

impl InitializeArguments {
    /// Begins, or stops.
    pub fn run(self) -> Result<()> {
        if self.uninit && self.common.wait {
            return Err(usage("-w cannot be used with -c, -s, or -u"));
        }
        let action = self.uninit.then_some(SweepAction::Forget);
        self.common.run(Sweep::Initialize, action, 0)
    }
}

/// Arguments of `zpool trim`.
#[derive(Debug, clap::Args)]
pub struct TrimArguments {
    #[command(flatten)]
    common: Common,
    /// Erase securely (not supported by this version)
    #[arg(short = 'd', long)]
    secure: bool,
    /// Bytes a second at most
    #[arg(short, long, value_name = "RATE")]
    rate: Option<String>,
}

impl TrimArguments {
    /// Begins, or stops.
    pub fn run(self) -> Result<()> {
        if (self.common.cancel || self.common.suspend) && (self.rate.is_some() || self.secure) {
            return Err(usage("-r, -w, or -d options not compatible with -c or -s"));
        }
        if self.secure {
            let pool = self.common.words.first().map_or("", String::as_str);
            anyhow::bail!("cannot trim '{pool}': secure trim is not supported");
        }
        let rate = self.rate.as_deref().map(|rate| server::sizes::parse_size(rate).map_err(usage));
        self.common.run(Sweep::Trim, None, rate.transpose()?.unwrap_or(0))
    }
}

impl Common {
    fn run(self, work: Sweep, action: Option<SweepAction>, rate_bytes: u64) -> Result<()> {
        if self.all && !self.words.is_empty() {
            return Err(usage("-a cannot be combined with individual pools or vdevs"));
        }
        let mut words = self.words.into_iter();
        let pool = match words.next() {
            Some(pool) => Some(pool),
            None if self.all => None,
            None => return Err(usage("missing pool name argument")),
        };
        let action = action.unwrap_or(match (self.cancel, self.suspend) {
            (true, _) => SweepAction::Cancel,
            (_, true) => SweepAction::Suspend,
            _ => SweepAction::Start,
        });
        if action != SweepAction::Start && self.wait {
            return Err(usage("-w cannot be used with -c, -s, or -u"));
        }
        let devices: Vec<String> = words.collect();
        let pools = match pool {
            Some(pool) => vec![pool],
            None => all_pools()?,
        };
        let begin = |pool: String| -> Result<(String, Vec<u64>)> {
            let (devices, command) = (devices.clone(), command_line::command());
            let request = SweepDevices { pool: pool.clone(), devices, work, action, rate_bytes, command };
            let begun = client::call_running(&request)?.ok_or_else(|| super::no_such_pool(&pool))?;
            Ok((pool, begun))
        };
        // A pool that refuses keeps none of the others from it.
        let begun: Vec<Result<(String, Vec<u64>)>> = pools.into_iter().map(begin).collect();
        for begun in begun {
            let (pool, devices) = begun?;
            if self.wait {
                wait_for(&pool, work, &devices)?;
            }
        }
        Ok(())
    }
}

/// The names of all pools that are open; none where nothing runs that has some.
fn all_pools() -> Result<Vec<String>> {
    let status = client::call_running(&GetStatus::default())?;
    Ok(status.map_or_else(Vec::new, |status| status.entries.into_iter().map(|pool| pool.name).collect()))
}

/// Returns when none of these devices is worked on any more.
fn wait_for(pool: &str, work: Sweep, devices: &[u64]) -> Result<()> {
    feed::until(|| {
        let request = GetStatus { pools: vec![pool.to_owned()], ..GetStatus::default() };
        let status = client::call_running(&request)?.ok_or_else(|| super::no_such_pool(pool))?;
        let mut sweeps = status.entries.iter().flat_map(|pool| &pool.sweeps);
        let is_ours = |sweep: &Sweeping| sweep.work == work && devices.contains(&sweep.guid);
        Ok(!sweeps.any(|sweep| is_ours(sweep) && sweep.state == SweepState::Active))
    })
}
