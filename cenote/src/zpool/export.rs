//! `zpool export`: closes pools.

use anyhow::Result;
use server::api::{ApiError, ExportPool};

use crate::output::{self, complain, usage};
use crate::{client, command_line};

/// Arguments of `zpool export`.
#[derive(Debug, clap::Args)]
#[command(args_override_self = true)]
pub struct Arguments {
    /// All open pools
    #[arg(short)]
    all: bool,
    /// Even if they are in use
    #[arg(short)]
    force: bool,
    /// As -f, but labels and cache file do not say that they are exported: the next start opens them again
    #[arg(short = 'F')]
    hard: bool,
    /// The pools
    #[arg(value_name = "POOL")]
    pools: Vec<String>,
}

impl Arguments {
    /// Closes the pools, each although others may fail.
    pub fn run(self) -> Result<()> {
        match (self.all, self.pools.is_empty()) {
            (true, false) => return Err(usage("too many arguments")),
            (false, true) => return Err(usage("missing pool argument")),
            _ => {}
        }
        let request = |pools| ExportPool {
            pools,
            all: self.all,
            force: self.force || self.hard,
            stays_open: self.hard,
            command: command_line::command(),
        };
        if self.all {
            output::ask(&request(Vec::new()), |_| Vec::new())?;
            return Ok(());
        }
        let mut failed = Vec::new();
        for name in &self.pools {
            match client::call_running(&request(vec![name.clone()])) {
                Ok(Some(_)) => {}
                Ok(None) => failed.extend(output::none_of([name], "no such pool")),
                Err(error) => failed.push(error.downcast::<ApiError>()?),
            }
        }
        complain(&failed)
    }
}
