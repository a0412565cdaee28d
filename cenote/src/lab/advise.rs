//! `cenote lab advise`: what to change about a live pool.

use std::process::Command;

use anyhow::{Context, Result};
use clap::Args;
use lab::advice::{Advised, Commands, Seen};
use lab::target::output;
use serde_json::Value;

use crate::output::print;

/// Whose pools, and how it is told.
#[derive(Debug, Args)]
pub struct AdviseArguments {
    /// The pools; all that are open if none is named
    pools: Vec<String>,
    /// Look at the pools of this host's OpenZFS, through its own commands
    #[arg(long)]
    host: bool,
    /// Print JSON
    #[arg(short, long)]
    json: bool,
}

/// Looks, and tells.
pub fn run(arguments: &AdviseArguments) -> Result<()> {
    let program = std::env::current_exe().context("cannot tell where this program is")?;
    let ask = |name: &str, words: &[&str]| {
        let mut command = if arguments.host { Command::new(name) } else { Command::new(&program) };
        output(command.args((!arguments.host).then_some(name)).args(words))
    };
    let (zpool, zfs) = (|words: &[&str]| ask("zpool", words), |words: &[&str]| ask("zfs", words));
    let pools = match arguments.pools.is_empty() {
        true => {
            let listed: Value =
                serde_json::from_str(&zpool(&["list", "-j"])?).context("zpool list printed no JSON")?;
            let pools = listed.get("pools").and_then(Value::as_object);
            pools.map(|pools| pools.keys().cloned().collect()).unwrap_or_default()
        }
        false => arguments.pools.clone(),
    };
    let commands = Commands { zpool: &zpool, zfs: &zfs };
    let advised: Vec<Advised> = pools
        .iter()
        .map(|pool| Ok(Advised::of(&Seen::look(&commands, pool)?)))
        .collect::<lab::Result<_>>()?;
    if arguments.json {
        return print(&format!("{}\n", serde_json::to_string_pretty(&advised)?));
    }
    print(&advised.iter().map(Advised::to_string).collect::<Vec<_>>().join("\n"))
}
