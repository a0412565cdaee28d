//! `zpool trim`: tells devices which of their space is free.

use std::time::Duration;

use anyhow::Result;
use server::api::{GetStatus, TrimAction, TrimDevices, TrimState};

use crate::output::{complain, usage};
use crate::{client, typed};

/// How often the state is asked for while waiting.
const LOOK_INTERVAL: Duration = Duration::from_millis(200);

/// Arguments of `zpool trim`.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Make sure that what was there cannot be read again, which this version cannot
    #[arg(short = 'd', long)]
    secure: bool,
    /// Bytes a second at most
    #[arg(short, long, value_name = "RATE")]
    rate: Option<String>,
    /// Give up
    #[arg(short, long, conflicts_with = "suspend")]
    cancel: bool,
    /// Stop, to go on later
    #[arg(short, long)]
    suspend: bool,
    /// Return when it is done
    #[arg(short, long)]
    wait: bool,
    /// The pool, and devices of it if not all are meant
    #[arg(value_name = "POOL [DEVICE…]", num_args = 0..)]
    words: Vec<String>,
}

impl Arguments {
    /// Begins, or stops.
    pub fn run(self) -> Result<()> {
        let mut words = self.words.into_iter();
        let pool = words.next().ok_or_else(|| usage("missing pool name argument"))?;
        let action = match (self.cancel, self.suspend) {
            (true, _) => TrimAction::Cancel,
            (_, true) => TrimAction::Suspend,
            _ => TrimAction::Start,
        };
        if action != TrimAction::Start && (self.rate.is_some() || self.secure || self.wait) {
            return Err(usage("-r, -w, or -d options not compatible with -c or -s"));
        }
        if self.secure {
            anyhow::bail!("cannot trim '{pool}': secure trim is not supported");
        }
        let rate = self.rate.as_deref().map(|rate| server::sizes::parse_size(rate).map_err(usage));
        let request = TrimDevices {
            pool: pool.clone(),
            devices: words.collect(),
            action,
            rate_bytes: rate.transpose()?.unwrap_or(0),
            command: typed::command(),
        };
        let done = client::call_running(&request)?.ok_or_else(|| super::no_such_pool(&pool))?;
        complain(&done.failed)?;
        if self.wait {
            wait_for(&pool)?;
        }
        Ok(())
    }
}

/// Returns when nothing of the pool is being trimmed.
fn wait_for(pool: &str) -> Result<()> {
    loop {
        let status = client::call(&GetStatus { pools: vec![pool.to_owned()], ..GetStatus::default() })?;
        let mut trims = status.entries.iter().flat_map(|pool| &pool.trims);
        if !trims.any(|trim| trim.state == TrimState::Active) {
            return Ok(());
        }
        std::thread::sleep(LOOK_INTERVAL);
    }
}
