//! `cenote dedup-files`: equal blocks of files and volumes, found and made to share their space, without
//! dedup tables.
//!
//! # The idea
//! Blocks that seem to be equal are found by what their pointers say, which the daemon lists; no data are
//! read for that. This program keeps the list, sorts it by digest, and asks the daemon to share the blocks of
//! each group with the one that was stored first: that one is in the most snapshots. The daemon locks and
//! compares each pair before it shares it, so that nothing depends on this list being up to date, or on
//! checksums.
//!
//! The list takes 48 bytes for each block that can be shared.

mod found;
mod pairs;
mod report;

use std::collections::BTreeSet;
use std::io::IsTerminal;
use std::path::PathBuf;

use anyhow::{Result, anyhow};
use server::api::{ListBlocks, ShareBlocks, SyncPools};

use crate::client;
use crate::output::{self, Exit, FAILED, in_words};
use crate::progress::Progress;
use found::Found;
use pairs::{Block, Pairs};
use report::Report;

const ABOUT: &str = "\
PATH is a file or directory on a mounted filesystem, or a volume: its name, or its block device. Equal \
blocks of all of them that are in one pool are made to share their space, as `cp --reflink` would have it. \
Blocks are found by their checksums, without reading data, and compared byte for byte, while nothing else \
can change them, before they are shared. Contents and times stay, and what is written meanwhile is left \
alone.

Only blocks of the same size, checksum and compression are found, of files with those of files, and of \
volumes with those of volumes. Space is free when no snapshot refers to it. The pool needs the feature \
block_cloning.";

/// Arguments of `cenote dedup-files`.
#[derive(Debug, clap::Args)]
#[command(after_help = ABOUT)]
pub struct Arguments {
    /// Files, directories with all that is in them, and volumes
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<PathBuf>,
    /// Only report what could be shared, by the checksums
    #[arg(long, short = 'n')]
    dry_run: bool,
    /// Do not cross into other filesystems
    #[arg(long, short = 'x')]
    one_filesystem: bool,
    /// As JSON
    #[arg(long)]
    json: bool,
}

impl Arguments {
    /// Does it.
    pub fn run(self) -> Result<()> {
        self.act().map_err(output::report)
    }

    fn act(self) -> Result<()> {
        let mut found = Found::default();
        found.look(&self.paths, self.one_filesystem)?;
        let mut report = Report { dry_run: self.dry_run, ..Report::default() };
        found.complaints.drain(..).for_each(|complaint| report.complain(complaint));
        let pools: BTreeSet<String> =
            found.subjects.iter().map(|subject| subject.pool().to_owned()).collect();
        if !pools.is_empty() {
            // What was written just now has no pointers yet.
            require(&SyncPools { pools: pools.into_iter().collect() })?;
        }
        let mut progress = self.progress(None);
        let blocks = list(&found, &mut report, &mut progress)?;
        drop(progress);
        let pairs = Pairs::of(blocks, &found.subjects, &mut report);
        if !self.dry_run {
            let mut progress = self.progress(Some(report.equal_bytes));
            share(&pairs, &found, &mut report, &mut progress)?;
        }
        match self.json {
            true => output::print(&format!("{}\n", serde_json::to_string_pretty(&report)?))?,
            false => output::print(&report.lines())?,
        }
        if report.errors.is_empty() { Ok(()) } else { Err(Exit(FAILED).into()) }
    }

    fn progress(&self, total_bytes: Option<u64>) -> Progress {
        match !self.json && std::io::stderr().is_terminal() {
            true => Progress::shown(total_bytes),
            false => Progress::hidden(),
        }
    }
}

/// Asks the daemon, which must run.
fn require<A: server::api::Action>(action: &A) -> Result<A::Reply> {
    client::call_running(action)?.ok_or_else(|| anyhow!("no pool is open: no daemon runs"))
}

/// All blocks of what was found that can be shared.
fn list(found: &Found, report: &mut Report, progress: &mut Progress) -> Result<Vec<Block>> {
    let mut blocks = Vec::new();
    for (dataset, members) in found.by_dataset() {
        let (mut at, mut first_block) = (0, 0);
        while let Some(rest) = members.get(at..).filter(|rest| !rest.is_empty()) {
            let files = rest.iter().take(found::MOST_AT_ONCE);
            let files: Vec<u64> = files.filter_map(|(_, subject)| subject.file).collect();
            let request = ListBlocks { dataset: dataset.to_owned(), files, first_block };
            let listed = match client::call_running(&request) {
                Ok(listed) => listed.unwrap_or_default(),
                Err(error) => {
                    report.complain(in_words(&error));
                    break;
                }
            };
            if listed.is_empty() {
                report.complain(format!("cannot list the blocks of '{dataset}': the daemon gave none"));
                break;
            }
            for of in listed {
                let Some((number, subject)) = members.get(at) else { break };
                if first_block == 0 {
                    report.count(subject);
                }
                if let Some(error) = &of.error {
                    report.complain(format!("{}: {error}", subject.shown()));
                }
                for block in &of.blocks {
                    report.blocks += 1;
                    report.bytes = report.bytes.saturating_add(of.block_bytes);
                    progress.advance(of.block_bytes);
                    blocks.push(Block::of(block, *number, of.block_bytes));
                }
                match of.next_block {
                    Some(next) if next > first_block => first_block = next,
                    _ => (at, first_block) = (at + 1, 0),
                }
            }
        }
    }
    Ok(blocks)
}

/// Has all pairs compared and shared.
fn share(pairs: &Pairs, found: &Found, report: &mut Report, progress: &mut Progress) -> Result<()> {
    for (_, of_pool) in pairs.by_pool() {
        let mut rest = of_pool;
        while !rest.is_empty() {
            let now = rest.get(..rest.len().min(server::api::MOST_PAIRS)).unwrap_or_default();
            let request =
                ShareBlocks { pairs: now.iter().map(|pair| pair.request(&found.subjects)).collect() };
            let outcomes = require(&request)?;
            if outcomes.is_empty() {
                return Err(anyhow!("the daemon looked at none of the blocks"));
            }
            for (pair, outcome) in now.iter().zip(&outcomes) {
                progress.advance(pair.bytes());
                report.add(outcome, found.subjects.get(pair.other.subject));
            }
            rest = rest.get(outcomes.len()..).unwrap_or_default();
        }
    }
    Ok(())
}
