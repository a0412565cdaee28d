//! `zpool destroy`: gives a pool's devices back.

use anyhow::Result;
use server::api::DestroyPool;

use crate::output::usage;
use crate::{client, command_line};

/// Arguments of `zpool destroy`.
#[derive(Debug, clap::Args)]
#[command(args_override_self = true)]
pub struct Arguments {
    /// Even if it is in use
    #[arg(short)]
    force: bool,
    /// The pool
    #[arg(value_name = "POOL")]
    pools: Vec<String>,
}

impl Arguments {
    /// Destroys it.
    pub fn run(self) -> Result<()> {
        let pool = match self.pools.as_slice() {
            [] => return Err(usage("missing pool argument")),
            [pool] => pool.clone(),
            _ => return Err(usage("too many arguments")),
        };
        let request = DestroyPool { pool: pool.clone(), force: self.force, command: command_line::command() };
        let done = client::call_running(&request)?.ok_or_else(|| super::no_such_pool(&pool))?;
        done.warnings.iter().for_each(|warning| eprintln!("{warning}"));
        Ok(())
    }
}
