//! `cenote lab advise`: what to change about a live pool.

use std::process::Command;

use anyhow::{Context, Result};
use clap::Args;
use lab::advice::{Advised, Commands, Observations};
use lab::target::output;

use super::reads::cache_reads;
use crate::output::print;

/// Which pools, and the form of the output.
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

/// Looks, and prints the advice.
pub fn run(arguments: &AdviseArguments) -> Result<()> {
    let program = std::env::current_exe().context("cannot find out where this program is")?;
    let ask = |name: &str, words: &[&str]| {
        let mut command = if arguments.host { Command::new(name) } else { Command::new(&program) };
        output(command.args((!arguments.host).then_some(name)).args(words))
    };
    let (zpool, zfs) = (|words: &[&str]| ask("zpool", words), |words: &[&str]| ask("zfs", words));
    let pools = match arguments.pools.is_empty() {
        true => zpool(&["list", "-H", "-o", "name"])?.lines().map(str::to_owned).collect(),
        false => arguments.pools.clone(),
    };
    if pools.is_empty() && !arguments.json {
        let opens = if arguments.host { "zpool import" } else { "cenote zpool import" };
        let whose =
            if arguments.host { "this host's OpenZFS has no pool imported" } else { "no pool is open" };
        return print(&format!(
            "{whose}: `{opens}` lists the pools that can be imported, and imports one by \
            name\n"
        ));
    }
    let program = if arguments.host { "" } else { "cenote " };
    // Of OpenZFS's pools, and of those that were not read yet, nothing is known.
    let reads = |pool: &str| {
        let known = (!arguments.host).then(|| cache_reads(pool, None));
        Ok(known.and_then(anyhow::Result::ok))
    };
    let commands = Commands { zpool: &zpool, zfs: &zfs, reads: &reads, program };
    let advised: Vec<Advised> = pools
        .iter()
        .map(|pool| Ok(Advised::of(&Observations::look(&commands, pool)?)))
        .collect::<lab::Result<_>>()?;
    if arguments.json {
        return print(&format!("{}\n", serde_json::to_string_pretty(&advised)?));
    }
    print(&advised.iter().map(Advised::to_string).collect::<Vec<_>>().join("\n"))
}
