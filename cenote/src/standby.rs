//! `cenote standby`: pools in object stores that this host takes over from another one.

use anyhow::Result;
use server::api::{ListStandby, StandbyPool, StandbyState, TakeOverPool};

use crate::output;
use crate::{client, command_line};

/// Arguments of `cenote standby`.
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Arguments {
    /// What to do; without it, the pools are listed
    #[command(subcommand)]
    what: Option<What>,
    /// Print JSON
    #[arg(short = 'j', long)]
    json: bool,
}

/// What can be done.
#[derive(Debug, clap::Subcommand)]
enum What {
    /// Take a pool over from the host that has it, now. That host can write nothing from then on, whatever it
    /// is doing
    TakeOver {
        /// The pool
        #[arg(value_name = "POOL")]
        pool: String,
        /// Where its devices are, where the daemon was not told at its start (may be given several times)
        #[arg(long, value_name = "ADDRESS")]
        address: Vec<String>,
    },
    /// Say by the exit code whether this host has a pool: 0 if so, 1 if not. For scripts of keepalived and
    /// other managers
    Active {
        /// The pool
        #[arg(value_name = "POOL")]
        pool: String,
    },
}

impl Arguments {
    /// Does it.
    pub fn run(self) -> Result<()> {
        self.act().map_err(output::report)
    }

    fn act(self) -> Result<()> {
        match self.what {
            Some(What::TakeOver { pool, address: addresses }) => {
                let warnings =
                    client::call(&TakeOverPool { pool, addresses, command: command_line::command() })?;
                warnings.iter().for_each(|warning| eprintln!("cenote: {warning}"));
                Ok(())
            }
            Some(What::Active { pool }) => match is_active(&pool)? {
                true => Ok(()),
                false => anyhow::bail!("this host does not have pool '{pool}'"),
            },
            None => show(self.json, &output::ask(&ListStandby {}, |_| Vec::new())?),
        }
    }
}

/// Whether the daemon that runs here has a pool.
fn is_active(pool: &str) -> Result<bool> {
    if let Some(pools) = client::call_running(&ListStandby {})?
        && let Some(known) = pools.iter().find(|known| known.pool == pool)
    {
        return Ok(known.state == StandbyState::Active);
    }
    let daemon = client::call_running(&server::api::Hello {})?;
    Ok(daemon.is_some_and(|daemon| daemon.pools.iter().any(|open| open == pool)))
}

fn show(as_json: bool, pools: &[StandbyPool]) -> Result<()> {
    if as_json {
        let mut document = output::document("cenote standby");
        document.insert("pools".into(), serde_json::to_value(pools)?);
        return output::print_json(&document);
    }
    let seconds = |milliseconds: Option<u64>| match milliseconds {
        Some(milliseconds) => format!("{:.1} s", milliseconds as f64 / 1000.0),
        None => "-".to_owned(),
    };
    let mut text = format!(
        "{:<16}  {:<11}  {:<7}  {:<20}  {:>9}  {:>5}  {:>8}\n",
        "POOL", "STATE", "BY", "OWNER", "UNCHANGED", "TAKEN", "TOOK"
    );
    for pool in pools {
        let by = if pool.by_lease { "lease" } else { "command" };
        text += &format!(
            "{:<16}  {:<11}  {by:<7}  {:<20}  {:>9}  {:>5}  {:>8}\n",
            pool.pool,
            pool.state.word(),
            pool.owner.as_deref().unwrap_or("-"),
            seconds(pool.unchanged_ms),
            pool.take_overs,
            seconds(pool.took_ms)
        );
        if let Some(message) = &pool.message {
            text += &format!("    {message}\n");
        }
    }
    if pools.is_empty() {
        text = "no pools: start the daemon with --standby POOL=ADDRESS\n".to_owned();
    }
    output::print(&text)
}
