//! `cenote lab advise`: what to change about a live pool.

use std::process::Command;

use anyhow::{Context, Result, bail};
use clap::Args;
use lab::advice::{Advised, Commands, Observations};
use lab::subprocess::output;

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

/// Where pools are looked for.
fn whose(is_host: bool) -> String {
    match is_host {
        true => "this host's OpenZFS".to_owned(),
        false => format!("the daemon at {}", server::socket::default_socket().display()),
    }
}

/// That there are no pools, and what makes some.
fn none_there(is_host: bool) -> String {
    let (has, opens) = match is_host {
        true => ("this host's OpenZFS has no pool imported", "zpool import"),
        false => ("no pool is open", "cenote zpool import"),
    };
    format!("{has}: `{opens}` lists the pools that can be imported, and imports one by name")
}

/// That a pool is not among those that are open.
fn not_there(is_host: bool, pool: &str, open: &[String]) -> String {
    if open.is_empty() {
        return format!("{} has no such pool: {}", whose(is_host), none_there(is_host));
    }
    let hint = match pool.split_once(['/', '@']) {
        Some((pool, _)) if open.iter().any(|it| it == pool) => {
            format!("; advice is about whole pools: `cenote lab advise {pool}`")
        }
        _ => ondisk::nearest::meant(pool, open.iter().map(String::as_str)),
    };
    format!("{} has no pool of that name{hint}; its pools are {}", whose(is_host), open.join(", "))
}

/// Looks, and prints the advice.
pub fn run(arguments: &AdviseArguments) -> Result<()> {
    let program = std::env::current_exe().context("cannot find out where this program is")?;
    let ask = |name: &str, words: &[&str]| {
        let mut command = if arguments.host { Command::new(name) } else { Command::new(&program) };
        output(command.args((!arguments.host).then_some(name)).args(words))
    };
    let (zpool, zfs) = (|words: &[&str]| ask("zpool", words), |words: &[&str]| ask("zfs", words));
    let listed = zpool(&["list", "-H", "-o", "name"]);
    let listed = listed.with_context(|| format!("cannot ask {} for its pools", whose(arguments.host)))?;
    let open: Vec<String> = listed.lines().map(str::to_owned).collect();
    if let Some(missing) = arguments.pools.iter().find(|pool| !open.contains(pool)) {
        bail!("cannot advise on '{missing}': {}", not_there(arguments.host, missing, &open));
    }
    let pools = if arguments.pools.is_empty() { open } else { arguments.pools.clone() };
    if pools.is_empty() && !arguments.json {
        return print(&format!("{}\n", none_there(arguments.host)));
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
