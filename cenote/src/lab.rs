//! `cenote lab`: experiments, from the question to the report.

mod advise;
mod known_properties;
mod model;
mod new;
mod output_file;
mod progress;
mod reads;
mod record;
mod run;
mod running;
mod scenario;
mod server;

use std::io::{ErrorKind, Read, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::Subcommand;
use lab::compare::Compared;
use lab::experiment::{Experiment, Settings, format, presets};
use lab::programs::{KernelPrograms, Programs};
use lab::progress::Ended;
use lab::recipes::{self, RECIPES};
use lab::scenario::SCENARIOS;
use lab::setting::{DEVICE_LUKS, ON_EXT4};
use lab::site::Server;
use lab::store::{Left, Store};
use lab::target::{Bench, Launch, modelled_devices};
use serde_json::json;

use crate::output::{self, Exit, print};
use crate::table::pad_right;
use advise::AdviseArguments;
use model::ModelArguments;
use new::NewArguments;
use progress::{Kept, Shown, Watch};
use run::RunArguments;
use running::Running;
use server::Private;

/// Seconds of each run of `--quick`.
const QUICK_SECONDS: f64 = 1.0;

/// The commands of the lab.
#[derive(Debug, Subcommand)]
pub enum Lab {
    /// List the experiments that come with this program
    Recipes {
        /// Print JSON
        #[arg(short, long)]
        json: bool,
    },
    /// List the workloads that experiments can start from: preset = "NAME" in a [[workload]]
    Presets {
        /// Print JSON
        #[arg(short, long)]
        json: bool,
    },
    /// Print the reference of an experiment's file: every key, with what it takes, its default and an example
    Format {
        /// Print JSON
        #[arg(short, long)]
        json: bool,
    },
    /// Write an experiment's file, to be changed and run: from a recipe, from options, or from answers to
    /// questions
    New(Box<NewArguments>),
    /// Run an experiment: a recipe, a scenario or a file; everything happens in one directory
    Run(Box<RunArguments>),
    /// Resume an experiment that was interrupted, or add rounds to one that ended
    Resume {
        /// The directory of its results
        directory: PathBuf,
        /// The least number of rounds; the experiment may have ended with fewer
        #[arg(long, value_name = "N")]
        rounds: Option<usize>,
        /// So many rounds more than it has now
        #[arg(long, value_name = "N", conflicts_with = "rounds")]
        more_rounds: Option<usize>,
        /// How long a guest may take to boot, from now on
        #[arg(long, value_name = "SECONDS")]
        boot_seconds: Option<f64>,
        /// Overwrite the contents of the measured file, device or disks where these are not what the
        /// experiment found or left, or where that cannot be decided: a device without wwid or serial number
        /// after a restart of the machine
        #[arg(long)]
        overwrite: bool,
        #[command(flatten)]
        watch: Watch,
        /// Print the findings as JSON
        #[arg(short, long)]
        json: bool,
    },
    /// Remove what a killed experiment left: its pools, and on a host its volumes. Results stay, damaged ones
    /// too, and so do files that the lab did not make; it lists them
    Clean {
        /// The directory of its results
        directory: PathBuf,
    },
    /// Make the report of an experiment again and print it; if the directory cannot be written, only print it
    Report {
        /// The directory of its results
        directory: PathBuf,
        /// Print everything kept of one run instead, as JSON: the job, its figures, the counters of the
        /// pool's process, each byte from client to devices, and the output of fio (or of the process that
        /// did the work); its number is in report.csv, report.json and the page
        #[arg(long, value_name = "N")]
        run: Option<usize>,
        /// Print the findings as JSON
        #[arg(short, long)]
        json: bool,
    },
    /// Record what clients ask of a volume, until Ctrl-C: `rw = "replay"` in a [[workload]] replays it, and
    /// so does fio's --read_iolog
    Record {
        /// The volume, of a pool that the daemon has open
        volume: String,
        /// The file to write; it must not exist, except with --force
        #[arg(short, long, value_name = "FILE")]
        output: PathBuf,
        /// Replace the file if it exists
        #[arg(long)]
        force: bool,
        /// End after this number of seconds
        #[arg(short, long, value_name = "N")]
        seconds: Option<f64>,
        /// End after this number of requests
        #[arg(long, value_name = "N", default_value_t = 10_000_000)]
        most: usize,
    },
    /// List changes for a live pool, each with evidence, gain, cost, risk, and the command that would prove
    /// it
    Advise(AdviseArguments),
    /// Compare results: two, or many over time with the points where they change
    Compare {
        /// Directories of results
        #[arg(required = true, num_args = 2..)]
        directories: Vec<PathBuf>,
        /// Write a page with plots too, into a new file or over such a page
        #[arg(short, long, value_name = "FILE")]
        output: Option<PathBuf>,
        /// Replace the file if it exists
        #[arg(long, requires = "output")]
        force: bool,
        /// Print JSON
        #[arg(short, long)]
        json: bool,
    },
    /// Run a shell script, which comes by standard input, in a guest of an experiment that runs: how the lab
    /// itself does that
    #[command(hide = true)]
    InGuest {
        /// The folder of the guest's sockets
        folder: PathBuf,
        /// The name of the shell, which the guest chooses itself
        shell: Option<String>,
    },
    /// Predict by formulas: space, speed, rebuilds, dedup, caches, logs, compression
    Model(ModelArguments),
}

impl Lab {
    /// Does it.
    pub fn run(self) -> Result<()> {
        if let Some(scenario) = self.scenario() {
            return self.play(scenario);
        }
        match self {
            Self::Recipes { json } => list(json),
            Self::Presets { json } => list_presets(json),
            Self::Format { json: false } => print(&format::text()),
            Self::Format { json: true } => {
                print(&format!("{}\n", serde_json::to_string_pretty(&format::tables())?))
            }
            Self::New(arguments) => arguments.run(),
            Self::Run(arguments) => arguments.run(),
            Self::Resume { directory, rounds, more_rounds, boot_seconds, overwrite, watch, json } => {
                let kept = watch.begin()?;
                kept.over(|| {
                    let mut store = Store::open(&directory)?;
                    let more = |more: usize| store.experiment().least_rounds().saturating_add(more);
                    let rounds = rounds.or(more_rounds.map(more));
                    rounds.map_or(Ok(()), |rounds| store.want_rounds(rounds))?;
                    boot_seconds.map_or(Ok(()), |seconds| store.set_boot_seconds(seconds))?;
                    carry_out(store, overwrite, &kept, json)
                })
            }
            Self::Clean { directory } => clean(&directory),
            Self::Report { directory, run: Some(run), .. } => {
                print(&lab::report::of_run(&Store::open(&directory)?, run)?)
            }
            Self::Report { directory, run: None, json } => report(&Store::open(&directory)?, json),
            Self::Record { volume, output, force, seconds, most } => {
                record::run(&volume, &output, force, seconds, most)
            }
            Self::Advise(arguments) => advise::run(&arguments),
            Self::Compare { directories, output, force, json } => {
                compare(&directories, output.as_deref(), force, json)
            }
            Self::InGuest { folder, .. } => in_guest(&folder),
            Self::Model(arguments) => model::run(arguments),
        }
    }
}

fn list(json: bool) -> Result<()> {
    if json {
        let recipes: Vec<_> = RECIPES
            .iter()
            .map(|recipe| json!({ "name": recipe.name, "about": recipe.about, "experiment": recipe.experiment() }))
            .chain(SCENARIOS.iter().map(|it| json!({ "name": it.name, "about": it.about, "scenario": true })))
            .collect();
        return print(&format!("{}\n", serde_json::to_string_pretty(&recipes)?));
    }
    let line = |name, about| format!("{}  {about}\n", pad_right(name, 16));
    let recipes: String = RECIPES.iter().map(|recipe| line(recipe.name, recipe.about)).collect();
    let scenarios: String = SCENARIOS.iter().map(|scenario| line(scenario.name, scenario.about)).collect();
    print(&format!("{recipes}\nscenarios, stories with faults that are played once:\n{scenarios}"))
}

fn list_presets(json: bool) -> Result<()> {
    let presets = presets::all();
    if json {
        let presets: Vec<_> =
            presets.iter().map(|preset| json!({ "name": preset.name, "about": preset.about })).collect();
        return print(&format!("{}\n", serde_json::to_string_pretty(&presets)?));
    }
    let lines = presets.iter().map(|preset| format!("{}  {}\n", pad_right(&preset.name, 15), preset.about));
    print(&lines.collect::<String>())
}

fn recipe(name: &str) -> Result<recipes::Recipe> {
    if lab::scenario::find(name).is_some() {
        bail!("'{name}' is a scenario, which has no file; to play it: cenote lab run {name}");
    }
    recipes::find(name).with_context(|| {
        let names = recipe_names();
        format!("there is no recipe '{name}'{}; recipes are {names}", recipes::meant(name))
    })
}

fn recipe_names() -> String {
    RECIPES.iter().map(|recipe| recipe.name).collect::<Vec<_>>().join(", ")
}

/// Most files that an error names.
const MOST_NAMED: usize = 8;

/// That there is nothing of this name to run: what was looked for and where, and what there is.
fn nothing_to_run(name: &str) -> anyhow::Error {
    let path = Path::new(name);
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let shown = std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned());
    let shown = shown.display();
    let is_file_name = name.contains('/') || path.extension().is_some();
    let files = match std::fs::read_dir(folder) {
        Err(error) => return anyhow::anyhow!("there is no file '{name}': {shown}: {error}"),
        Ok(entries) => entries.flatten().map(|entry| entry.path()),
    };
    let mut files: Vec<String> = files
        .filter(|file| file.extension().is_some_and(|ending| ending == "toml") && file.is_file())
        .filter_map(|file| Some(file.file_name()?.to_string_lossy().into_owned()))
        .collect();
    files.sort();
    let more = if files.len() > MOST_NAMED { " and others" } else { "" };
    files.truncate(MOST_NAMED);
    let files = match files.is_empty() {
        true => format!("there is no experiment's file (*.toml) in {shown}"),
        false => format!("{shown} has {}{more}", files.join(", ")),
    };
    let scenarios: Vec<&str> = SCENARIOS.iter().map(|it| it.name).collect();
    let names = RECIPES.iter().map(|recipe| recipe.name).chain(scenarios.iter().copied());
    let all = format!("recipes are {}; scenarios are {}", recipe_names(), scenarios.join(", "));
    match is_file_name {
        true => anyhow::anyhow!(
            "there is no file '{name}': {files}. `cenote lab new RECIPE -o {name}` writes one from a recipe; \
             {all}"
        ),
        false => anyhow::anyhow!(
            "'{name}' is no recipe, no scenario and no file{}; {all}; {files}",
            ondisk::nearest::meant(name, names)
        ),
    }
}

/// A recipe, or a file. What was left out, because it cannot be had here, is added to `remarks`.
fn load(name: &str, remarks: &mut Vec<String>) -> Result<Experiment> {
    if let Some(recipe) = recipes::find(name) {
        let mut experiment = recipe.experiment();
        if !rustix::process::geteuid().is_root() && experiment.leave_out("disk", ON_EXT4) {
            remarks.push(format!("left out, because only root may make it: disk={ON_EXT4}"));
        }
        if let Some(why) = lab::target::fault_of_luks()
            && experiment.leave_out_here(DEVICE_LUKS, "on", &why)
        {
            remarks.push(format!("left out, because {why}: {DEVICE_LUKS}=on"));
        }
        return Ok(experiment);
    }
    if !Path::new(name).exists() {
        return Err(nothing_to_run(name));
    }
    let text = lab::input_file::read(Path::new(name), lab::input_file::MOST_OF_EXPERIMENT);
    let text = text.with_context(|| format!("cannot read {name}"))?;
    let mut experiment = Experiment::read(&text).with_context(|| format!("{name} is not an experiment"))?;
    // It may be resumed from elsewhere.
    experiment.make_absolute()?;
    Ok(experiment)
}

/// Where the experiment in `directory` takes place.
fn bench<'a>(experiment: &'a Experiment, directory: &Path) -> Result<Bench<'a>> {
    let directory = std::path::absolute(directory)?;
    let launch = experiment.target.server().map(|server| -> Launch<'_> {
        let directory = directory.clone();
        match server {
            Server::Own { link, serves_guests } => Box::new(move |settings: &Settings| {
                let modelled = modelled_devices(&directory)?;
                let failed = |error: anyhow::Error| lab::Error::Failed {
                    command: "cenote serve".to_owned(),
                    output: format!("{error:#}"),
                };
                let private = Private::start(settings, &modelled, link, serves_guests);
                Ok(Box::new(private.map_err(failed)?) as Box<dyn Programs>)
            }),
            Server::Running => Box::new(|_: &Settings| {
                let failed = |error: anyhow::Error| lab::Error::Experiment(format!("{error:#}"));
                Ok(Box::new(Running::find().map_err(failed)?) as Box<dyn Programs>)
            }),
            Server::Kernel => {
                Box::new(|_: &Settings| Ok(Box::<KernelPrograms>::default() as Box<dyn Programs>))
            }
        }
    });
    Ok(Bench::new(experiment, &directory, launch))
}

/// Has a guest carry out the script that comes by standard input, and says what it said.
fn in_guest(folder: &Path) -> Result<()> {
    let mut script = Vec::new();
    std::io::stdin().lock().read_to_end(&mut script).context("cannot read the script")?;
    let said = lab::guest::shell::run(folder, &script, &mut || Ok(()))
        .with_context(|| format!("cannot reach the guest in {}", folder.display()))?;
    std::io::stderr().lock().write_all(&said.stderr)?;
    std::io::stdout().lock().write_all(&said.stdout)?;
    match said.status {
        0 => Ok(()),
        status => Err(Exit(status).into()),
    }
}

/// Removes what a killed lab left; reports what others left.
fn remove_left(bench: &mut Bench<'_>) -> Result<()> {
    for (volume, owner) in bench.remove_left()? {
        let owner = owner.display();
        eprintln!(
            "{volume} is there already: the experiment in {owner} runs, or was killed: cenote lab clean \
             {owner}"
        );
    }
    Ok(())
}

/// Removes what an experiment left that is not running.
fn clean(directory: &Path) -> Result<()> {
    let left = Left::in_directory(directory)?;
    let mut bench = bench(&left.experiment, directory)?;
    remove_left(&mut bench)?;
    let mut set_back = Ok(());
    if bench.is_to_be_set_back() {
        let shown = Shown::start(&Kept::default())?;
        set_back = bench.set_back(&shown);
        shown.finish();
    }
    bench.remove()?;
    set_back?;
    server::remove_left();
    tell_left(&bench);
    Ok(())
}

/// Says what stays where the lab works, and why.
fn tell_left(bench: &Bench<'_>) {
    for path in bench.left_alone() {
        eprintln!("left alone, because the lab did not make it: {}", path.display());
    }
}

/// Where results go by default.
fn default_directory(experiment: &Experiment) -> PathBuf {
    format!("lab-{}", experiment.name).into()
}

/// Says all that is wrong, where something is.
fn refuse(faults: &[String]) -> Result<()> {
    match faults {
        [] => Ok(()),
        [fault] => bail!("experiment: {fault}"),
        faults => bail!("{} things are wrong with the experiment:\n  {}", faults.len(), faults.join("\n  ")),
    }
}

/// Carries out what is not done yet. Consent to overwrite, where it is not given now, is what was noted when
/// the experiment began: for what was there then.
fn carry_out(mut store: Store, overwrite: bool, kept: &Kept, json: bool) -> Result<()> {
    store.hold()?;
    let experiment = store.experiment().clone();
    if let Some(path) = experiment.target.paths().into_iter().find(|path| path.is_relative()) {
        let written = store.directory().join("experiment.toml");
        bail!(
            "the target {} is relative to the directory where the experiment began: write the whole path in \
             {}",
            path.display(),
            written.display()
        );
    }
    experiment.check()?;
    refuse(&lab::target::faults(&experiment, overwrite, Some(store.directory())))?;
    if overwrite {
        // Continuing it needs no new consent.
        lab::target::consent(&experiment, store.directory())?;
    }
    let mut bench = bench(&experiment, store.directory())?.overwriting(overwrite);
    remove_left(&mut bench)?;
    let shown = Shown::start(kept)?;
    // What a killed lab changed is set back first.
    let ready = bench.set_back(&shown).map_err(Into::into);
    let ready = ready.and_then(|()| refuse(&bench.faults_of_server()?));
    let ended = ready.and_then(|()| Ok(lab::run::run(&mut store, &mut bench, &shown)?));
    let set_back = bench.set_back(&shown);
    let removed = set_back.and(bench.remove());
    shown.finish();
    tell_left(&bench);
    drop(bench);
    let directory = store.directory().display();
    let removed = removed.with_context(|| {
        format!(
            "the files and pools of the experiment could not be removed; to try again: cenote lab clean \
            {directory}"
        )
    });
    let ended = ended.with_context(|| {
        format!("the experiment stopped; what was measured is kept: cenote lab resume {directory}")
    });
    let ended = match (ended, removed) {
        (Err(ended), Err(removed)) => {
            eprintln!("{removed:#}");
            return Err(ended);
        }
        (ended, removed) => removed.and(ended)?,
    };
    if ended == Ended::Stopped {
        kept.stopped();
        eprintln!("stopped; to go on: cenote lab resume {directory}");
        return Err(Exit(output::FAILED).into());
    }
    report(&store, json)
}

fn report(store: &Store, json: bool) -> Result<()> {
    if store.runs().is_empty() {
        bail!("{}: no run has ended yet", store.directory().display());
    }
    let written = match lab::report::write(store) {
        Ok(paths) => Ok(paths.first().map(|path| path.display().to_string()).unwrap_or_default()),
        // Results in read-only directories are reported all the same.
        Err(lab::Error::File { path, error })
            if matches!(error.kind(), ErrorKind::ReadOnlyFilesystem | ErrorKind::PermissionDenied) =>
        {
            Err(format!("{}: {error}", path.display()))
        }
        Err(error) => return Err(error.into()),
    };
    let findings = lab::analysis::findings(store);
    match json {
        true => print(&format!("{}\n", lab::report::json(store, &findings)?))?,
        false => print(&lab::report::brief(store, &findings))?,
    }
    match written {
        Ok(_) if json => Ok(()),
        Ok(page) => print(&format!(
            "\nwith all intervals, p-values, percentiles, and plots: {page} (without plots: report.md beside \
             it)\n"
        )),
        Err(why) => {
            eprintln!(
                "the report's files were not written ({why}): --json prints their contents, and a writable \
                 copy of the directory gets them"
            );
            Ok(())
        }
    }
}

fn compare(directories: &[PathBuf], output: Option<&Path>, force: bool, json: bool) -> Result<()> {
    // It takes a while: who would be refused in the end is at once.
    let force = force || output.is_some_and(output_file::is_page);
    output.map_or(Ok(()), |path| output_file::require(path, force))?;
    let compared = Compared::of(directories)?;
    if let Some(path) = output {
        output_file::write(path, lab::compare::page(&compared)?.as_bytes(), force)?;
    }
    if json {
        return print(&format!("{}\n", lab::compare::json(&compared)?));
    }
    print(&lab::compare::text(&compared))
}
