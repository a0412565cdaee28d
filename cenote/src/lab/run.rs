//! `cenote lab run`: an experiment from its file or recipe to its results, or only its plan.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use clap::Args;
use lab::experiment::{Experiment, SettingOwner};
use lab::preflight::{self, Planned};
use lab::store::Store;

use super::known_properties::OwnProperties;
use super::progress::{Kept, Watch};
use super::{QUICK_SECONDS, bench, carry_out, default_directory, load, refuse};
use crate::output::{self, Exit, print};

/// The experiment, and how it is run.
#[derive(Debug, Args)]
pub struct RunArguments {
    /// The name of a recipe or scenario, or a file such as `new` writes
    pub(super) experiment: String,
    /// The directory for results and, while it runs, pools: empty, or not existing yet (default:
    /// ./lab-NAME)
    #[arg(short, long, value_name = "DIR")]
    pub(super) output: Option<PathBuf>,
    /// On a host that runs OpenZFS: measure volumes below this dataset, through its zpool and zfs, and
    /// remove them afterwards; if the lab was killed, `resume` and `clean` remove them
    #[arg(long, value_name = "DATASET")]
    pub(super) host: Option<String>,
    /// An impression, with wide intervals: at most five rounds of one second a run, fewer and shorter
    /// ones if there are many runs, and on a slow machine as many as fit into four minutes, at least two;
    /// only the values that a factor's `quick` names, and no workload with `quick = false`
    #[arg(long)]
    pub(super) quick: bool,
    /// The least number of rounds, of the quick form too
    #[arg(long, value_name = "N")]
    pub(super) rounds: Option<usize>,
    /// How guests are run: by the processor or emulated; by default KVM is tried first
    #[arg(long, value_parser = ["auto", "tcg", "kvm"])]
    accel: Option<String>,
    /// How long a guest may take to boot; by default 10 times the longest boot so far, and at least 120
    #[arg(long, value_name = "SECONDS")]
    boot_seconds: Option<f64>,
    /// Make the pools of these disks or files, instead of files in the directory of results:
    /// as `disks` in [target]
    #[arg(long, value_name = "DISK,…", value_delimiter = ',')]
    pub(super) use_disks: Vec<PathBuf>,
    /// Overwrite the contents of the measured file, device, export or disks, where workloads write to
    /// them. `resume` needs it again only for a device without wwid or serial number after a restart of
    /// the machine. A device that is mounted, in an open pool or otherwise in use is never written
    #[arg(long)]
    pub(super) overwrite: bool,
    /// Refuse what would need --overwrite even if the file says overwrite = true, disks that are named, and
    /// datasets of a host: how the daemon runs experiments
    #[arg(long, conflicts_with = "overwrite")]
    no_overwrite: bool,
    /// Report what would be run and all faults, and make nothing
    #[arg(long)]
    pub(super) dry_run: bool,
    #[command(flatten)]
    watch: Watch,
    /// Print the findings as JSON; with --dry-run the plan, with its faults if it has any
    #[arg(short, long)]
    pub(super) json: bool,
}

impl RunArguments {
    /// Runs it, or says what would be run.
    pub fn run(self) -> Result<()> {
        if self.dry_run && self.json {
            return self.print_plan();
        }
        let kept = self.watch.begin()?;
        kept.over(|| self.carry_out(&kept))
    }

    fn carry_out(self, kept: &Kept) -> Result<()> {
        let (mut experiment, remarks) = self.experiment()?;
        for remark in remarks {
            eprintln!("{remark}");
        }
        let directory = self.directory(&experiment);
        refuse(&self.faults(&experiment, &directory))?;
        refuse(&bench(&experiment, &directory)?.faults_of_server()?)?;
        if self.dry_run {
            return print(&preflight::told(&experiment));
        }
        let environment = experiment.target.environment(&directory)?;
        experiment.draw_seed();
        let overwrite = self.overwrite || experiment.target.may_overwrite();
        let store = Store::create(&directory, experiment, environment)?;
        carry_out(store, overwrite, kept, self.json)
    }

    /// Prints the plan for programs. What cannot be read has one fault.
    fn print_plan(self) -> Result<()> {
        let planned = match self.experiment() {
            Err(error) => Planned { faults: vec![format!("{error:#}")], ..Planned::default() },
            Ok((experiment, remarks)) => {
                let directory = self.directory(&experiment);
                let mut faults = self.faults(&experiment, &directory);
                if faults.is_empty() {
                    let told =
                        bench(&experiment, &directory).and_then(|mut bench| Ok(bench.faults_of_server()?));
                    faults = told.unwrap_or_else(|error| vec![format!("{error:#}")]);
                }
                preflight::planned(&experiment, faults, remarks)
            }
        };
        print(&format!("{}\n", serde_json::to_string_pretty(&planned)?))?;
        match planned.faults.is_empty() {
            true => Ok(()),
            false => Err(Exit(output::FAILED).into()),
        }
    }

    /// The experiment with what options make of it, and what was left out.
    fn experiment(&self) -> Result<(Experiment, Vec<String>)> {
        let mut remarks = Vec::new();
        let mut experiment = load(&self.experiment, &mut remarks)?;
        if let Some(dataset) = &self.host {
            for (name, value) in experiment.move_to_host(dataset.clone()) {
                remarks.push(format!(
                    "left out, because the host decides it or does not report it: {name}={value}"
                ));
            }
        }
        if !self.use_disks.is_empty() {
            let Some(pools) = experiment.target.pools_mut() else {
                bail!(
                    "--use-disks: only for targets of kind volume and filesystem, whose pools can be made of \
                     disks"
                );
            };
            pools.disks.clone_from(&self.use_disks);
            experiment.make_absolute()?;
        }
        if let Some(accel) = &self.accel {
            if !experiment.target.has(SettingOwner::Guest) {
                bail!("--accel: only for targets of kind guest");
            }
            experiment.settings.insert("accel".to_owned(), accel.clone());
        }
        experiment.boot_seconds = self.boot_seconds.or(experiment.boot_seconds);
        // What is wrong with it is told later.
        if self.quick && experiment.faults().is_empty() {
            experiment.quick(QUICK_SECONDS);
            remarks.extend(
                experiment
                    .left_out()
                    .into_iter()
                    .map(|left_out| format!("left out, because its quick form has less: {left_out}")),
            );
        }
        // The given number applies to the quick form too.
        if let Some(rounds) = self.rounds {
            experiment.rounds = rounds;
            experiment.max_rounds = experiment.max_rounds.filter(|most| *most >= rounds);
            experiment.within_seconds = None;
        }
        Ok((experiment, remarks))
    }

    fn directory(&self, experiment: &Experiment) -> PathBuf {
        self.output.clone().unwrap_or_else(|| default_directory(experiment))
    }

    /// All that is wrong with it, anywhere and here.
    fn faults(&self, experiment: &Experiment, directory: &Path) -> Vec<String> {
        let mut faults = preflight::faults(experiment, &OwnProperties);
        if self.no_overwrite {
            faults.extend(faults_without_consent(experiment));
        }
        faults.extend(preflight::faults_here(experiment, directory, self.overwrite));
        faults
    }
}

/// What of an experiment only a person at the command line may have.
fn faults_without_consent(experiment: &Experiment) -> Vec<String> {
    let target = &experiment.target;
    let only = "only on the command line, by `cenote lab run`";
    let mut faults = Vec::new();
    if target.may_overwrite() {
        faults.push(format!("overwrite = true: what is there is overwritten {only}"));
    }
    if let Some(disk) = target.disks().first() {
        faults.push(format!("disks: pools are made of {} and other disks {only}", disk.display()));
    }
    if let Some(dataset) = target.below() {
        faults.push(format!("host:{dataset}: volumes of a host's pools are measured {only}"));
    }
    if experiment.design().overwrites()
        && let Some(device) = target.paths().into_iter().find(|path| is_device(path))
    {
        faults.push(format!("{}: a device is written {only}", device.display()));
    }
    faults
}

/// Whether it is a device, by any name.
fn is_device(path: &Path) -> bool {
    use std::os::unix::fs::FileTypeExt;
    let found = std::fs::metadata(path);
    found.is_ok_and(|found| found.file_type().is_block_device() || found.file_type().is_char_device())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(target: &str, rw: &str) -> Vec<String> {
        let text = format!(
            "name = \"x\"\n[target]\n{target}\nsize = \"64M\"\n[[workload]]\nname = \"w\"\nrw = \"{rw}\"\n"
        );
        faults_without_consent(&Experiment::read(&text).unwrap())
    }

    #[test]
    fn what_needs_consent_is_for_persons_at_the_command_line() {
        for (target, rw, named) in [
            ("kind = \"path\"\npath = \"/tmp/x\"\noverwrite = true", "write", "overwrite = true"),
            ("kind = \"volume\"\ndisks = [\"/dev/sdx\"]", "read", "/dev/sdx"),
            ("kind = \"host\"\ndataset = \"tank/lab\"", "read", "host:tank/lab"),
            ("kind = \"path\"\npath = \"/dev/null\"", "write", "a device is written"),
        ] {
            let told = faults(target, rw);
            assert!(told.iter().any(|fault| fault.contains(named)), "{target}: {told:?}");
            assert!(told.iter().all(|fault| fault.contains("cenote lab run")), "{told:?}");
        }
        for (target, rw) in [
            ("kind = \"volume\"", "write"),
            ("kind = \"path\"\npath = \"/tmp/x\"", "write"),
            ("kind = \"path\"\npath = \"/dev/null\"", "read"),
        ] {
            assert!(faults(target, rw).is_empty(), "{target}: {:?}", faults(target, rw));
        }
    }
}
