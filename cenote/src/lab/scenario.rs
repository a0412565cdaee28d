//! Scenarios of the lab: stories with faults, played once in this process with pools of their own.
//!
//! A pool of a scenario lies on files in the directory of results, behind devices that this process can spoil
//! ([`spoiled`]) and that may play the timing of a disk ([`bed`]). The files go when the story ends; the
//! reports stay. What a scenario is called, and how it is reported, is in [`lab::scenario`].

mod bed;
mod grow;
mod resilver;
mod scrub_of_death;
mod spoiled;

use std::path::Path;

use anyhow::{Result, bail};
use lab::scenario::{Results, Scenario, find, make_directory};

use super::Lab;
use super::run::RunArguments;
use crate::output::print;

impl Lab {
    /// The scenario that is to be played, if it is one.
    pub(super) fn scenario(&self) -> Option<Scenario> {
        match self {
            Self::Run(arguments) => find(&arguments.experiment),
            _ => None,
        }
    }

    /// Plays a scenario.
    pub(super) fn play(self, scenario: Scenario) -> Result<()> {
        let Self::Run(arguments) = self else { return Ok(()) };
        let RunArguments { output, host, quick, rounds, use_disks, overwrite, dry_run, json, .. } =
            *arguments;
        if host.is_some() || rounds.is_some() || !use_disks.is_empty() || overwrite || dry_run {
            bail!(
                "{} is a scenario: it takes --output, --quick and --json, and none of --host, --rounds, \
                 --use-disks, --overwrite and --dry-run",
                scenario.name
            );
        }
        let directory = output.unwrap_or_else(|| format!("lab-{}", scenario.name).into());
        make_directory(&directory)?;
        let results = played(scenario, &directory, quick)?;
        let written = results.write(&directory)?;
        if json {
            return print(&results.json()?);
        }
        let page = written.first().map(|path| path.display().to_string()).unwrap_or_default();
        print(&format!("{}\nwith plots: {page} (without: report.md beside it)\n", results.text()))
    }
}

fn played(scenario: Scenario, directory: &Path, quick: bool) -> Result<Results> {
    match scenario.name {
        "scrub-of-death" => scrub_of_death::play(scenario, directory, quick),
        "resilver" => resilver::play(scenario, directory, quick),
        "grow" => grow::play(scenario, directory, quick),
        other => bail!("the scenario {other} cannot be played"),
    }
}
