//! `zpool export`: closes pools.

use anyhow::Result;
use server::api::{ApiError, ExportPool};

use crate::output::{self, complain, usage};
use crate::{client, typed};

/// Arguments of `zpool export`.
#[derive(Debug, clap::Args)]
#[command(args_override_self = true)]
pub struct Arguments {
    /// All open pools
    #[arg(short)]
    all: bool,
    /// Although something uses them
    #[arg(short, short_alias = 'F')]
    force: bool,
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
        if self.all {
            let command = typed::command();
            let all = ExportPool { pools: Vec::new(), all: true, force: self.force, command };
            output::ask(&all, |_| Vec::new())?;
            return Ok(());
        }
        let mut failed = Vec::new();
        for name in &self.pools {
            let command = typed::command();
            let one = ExportPool { pools: vec![name.clone()], all: false, force: self.force, command };
            match client::call_running(&one) {
                Ok(Some(_)) => {}
                Ok(None) => failed.extend(output::none_of([name], "no such pool")),
                Err(error) => failed.push(error.downcast::<ApiError>()?),
            }
        }
        complain(&failed)
    }
}
