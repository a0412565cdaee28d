//! The directory of results.
//!
//! | file | contents |
//! |---|---|
//! | `experiment.toml` | the experiment, as it was run |
//! | `environment.json` | the machine |
//! | `results.redb` | each run with fio's whole output, durable when the run has ended |
//! | `report.html`, `report.md`, `report.csv`, `report.json` | the findings |
//! | `devices/`, `mnt/` | the pools, while the experiment runs |
//! | `.watcher/` | what a program that had it run keeps: nothing of the lab's |
//! | `claims.json` | files and devices of the user that are written ([`crate::target::in_use`]) |
//!
//! # The database
//! Runs are numbered from 1 as they end. Table `runs` has each by its number as JSON, with its series; table
//! `fio` has fio's own JSON of it. Both are written in one transaction, so a run that a crash cut short is
//! not there at all, and is repeated. An interrupted round is repeated as a whole: its runs become
//! [`Stage::Torn`] where they are. Table `kept` has the experiment of the runs as TOML: if `experiment.toml`
//! was changed so that it measures something else, the results are not opened. A running experiment holds the
//! database, and a second one is refused. Reading results needs no permission to write them, and removing
//! what a killed lab left needs no intact database ([`Left`]). `database` has the details of opening it.

mod database;

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use redb::{Database, ReadableDatabase, ReadableTable, TableDefinition};
use serde::{Deserialize, Serialize};

use crate::counters::Counters;
use crate::environment::Environment;
use crate::error::{Error, Result};
use crate::experiment::{self, Experiment, Metric, Rates};
use crate::fio::Figures;
use crate::input_file;
use crate::machine::Busy;
use crate::series::Series;

const RUNS: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("runs");
const FIO: TableDefinition<'_, u64, &str> = TableDefinition::new("fio");
const KEPT: TableDefinition<'_, &str, &str> = TableDefinition::new("kept");
/// The key of the experiment there.
const EXPERIMENT: &str = "experiment";
const DATABASE: &str = "results.redb";
/// The folder of a program that watches the experiment, such as the daemon: the lab leaves it alone.
const WATCHER: &str = ".watcher";

/// The use of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// Looking for the variant to compare.
    Search,
    /// Comparing variants round by round.
    #[default]
    Rounds,
    /// Either, in a round that was interrupted, or that replayed a trace fewer times than others: it was done
    /// again as a whole, and this run counts nowhere.
    Torn,
    /// A place in a round without a run: what was to run there failed each time that it was tried. It has no
    /// figures, and its notes say why.
    LeftOut,
}

/// One run that ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// Its use.
    pub stage: Stage,
    /// In which round of that, from zero.
    pub round: usize,
    /// The variant's name.
    pub variant: String,
    /// The workload's name.
    pub workload: String,
    /// When it began: seconds since 1970.
    pub began: u64,
    /// The command that repeats it: fio with its arguments.
    pub command: Vec<String>,
    /// fio's result.
    pub figures: Figures,
    /// The server's work meanwhile (the difference of its counters), if it reports that.
    pub served: Option<Counters>,
    /// Bytes that the volume takes on the devices, and bytes in it.
    pub space: Option<(u64, u64)>,
    /// Bytes of a sector of the pool, where it was made for this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sector: Option<u64>,
    /// The series of steps within it, if they were counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub series: Option<Series>,
    /// How often it replayed a trace on end, where it replayed one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub passes: Option<usize>,
    /// The filling before it, if there was any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prepared: Option<Prepared>,
    /// The processors' time meanwhile, if the kernel reports it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub busy: Option<Busy>,
    /// Notes for readers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// Volumes, and files to work on, that were written once so that no run finds them empty.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Prepared {
    /// How many.
    pub count: usize,
    /// Their bytes.
    pub bytes: u64,
    /// How long that took.
    pub seconds: f64,
    /// How often a volume that holds data was rewritten for another block size.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub rewritten: usize,
    /// How long that took.
    #[serde(default)]
    pub rewrite_seconds: f64,
}

fn is_zero(number: &usize) -> bool {
    *number == 0
}

impl Run {
    /// Seconds in which what was missing was filled before it.
    pub(crate) fn seconds_to_prepare(&self) -> f64 {
        self.prepared.map_or(0.0, |prepared| prepared.seconds + prepared.rewrite_seconds)
    }

    /// Bytes that were read from the devices so that others could be written, where the client read none and
    /// the counters have the run alone.
    pub fn read_to_write(&self) -> Option<u64> {
        let served = self.served.filter(|served| !served.is_of_more)?;
        let only_wrote = self.figures.written_bytes > 0 && self.figures.read_bytes == 0;
        only_wrote.then_some(served.read_bytes)
    }

    /// The place of one that was left out, and why.
    pub(crate) fn left_out(round: usize, variant: &str, workload: &str, why: String) -> Self {
        Self { round, notes: vec![why], ..Self::of(Stage::LeftOut, variant, workload) }
    }

    /// One that found nothing.
    pub(crate) fn of(stage: Stage, variant: &str, workload: &str) -> Self {
        Self {
            stage,
            round: 0,
            variant: variant.into(),
            workload: workload.into(),
            began: 0,
            command: Vec::new(),
            figures: Figures::default(),
            served: None,
            space: None,
            sector: None,
            series: None,
            passes: None,
            prepared: None,
            busy: None,
            notes: Vec::new(),
        }
    }

    /// A figure of it, where it has it.
    pub fn metric(&self, metric: Metric) -> Option<f64> {
        let figures = &self.figures;
        let bytes = (figures.read_bytes + figures.written_bytes) as f64;
        let counted = self.served.filter(|served| !served.is_of_more);
        match metric {
            Metric::Iops => Some(figures.iops),
            // Looking at files and removing them moves no bytes.
            Metric::Throughput => Some(figures.throughput).filter(|bytes| *bytes > 0.0),
            Metric::Latency => Some(figures.latency),
            Metric::LatencyP50 => Some(figures.latency_p50),
            Metric::LatencyP99 => Some(figures.latency_p99),
            Metric::LatencyP999 => Some(figures.latency_p999),
            Metric::Cpu => counted.filter(|_| bytes > 0.0).map(|served| served.cpu_seconds / bytes * 1e9),
            Metric::Memory => {
                self.served.map(|served| served.peak_memory_bytes as f64).filter(|bytes| *bytes > 0.0)
            }
            Metric::Amplification => counted
                .filter(|_| figures.written_bytes > 0)
                .map(|served| served.written_bytes as f64 / figures.written_bytes as f64),
            Metric::ReadAmplification => counted
                .filter(|_| figures.read_bytes > 0)
                .map(|served| served.read_bytes as f64 / figures.read_bytes as f64),
            Metric::Space => self
                .space
                .filter(|(_, logical)| *logical > 0)
                .map(|(used, logical)| used as f64 / logical as f64),
        }
    }
}

/// A directory of results.
pub struct Store {
    directory: PathBuf,
    experiment: Experiment,
    environment: Environment,
    runs: Vec<Run>,
    /// Held by who carries the experiment out.
    database: Option<Database>,
}

impl Store {
    /// Makes one for a new experiment. The directory must be empty, or not exist yet: what is made in it is
    /// removed again, and nothing else may be in its way.
    pub fn create(directory: &Path, experiment: Experiment, environment: Environment) -> Result<Self> {
        require_free(directory)?;
        fs::create_dir_all(directory).map_err(Error::file(directory))?;
        let path = directory.join("experiment.toml");
        let json = serde_json::to_vec_pretty(&environment)
            .map_err(|error| Error::Results { path: directory.to_owned(), what: error.to_string() })?;
        write_durably(&directory.join("environment.json"), &json)?;
        write_durably(&path, experiment.to_toml()?.as_bytes())?;
        Ok(Self {
            directory: directory.to_owned(),
            experiment,
            environment,
            runs: Vec::new(),
            database: None,
        })
    }

    /// One that is nowhere.
    #[cfg(test)]
    pub(crate) fn of_runs(experiment: Experiment, runs: Vec<Run>) -> Self {
        let environment = Environment::default();
        Self { directory: PathBuf::new(), experiment, environment, runs, database: None }
    }

    /// One of six rounds with these IOPS by variant and workload, 1 % apart from round to round.
    #[cfg(test)]
    pub(crate) fn planted(experiment: &str, planted: &[(&str, &str, f64)]) -> Self {
        let mut rng = fastrand::Rng::with_seed(3);
        let mut runs = Vec::new();
        for round in 0..6 {
            for (variant, workload, iops) in planted {
                let iops = iops * (0.01 * crate::stats::normal(&mut rng)).exp();
                let figures = Figures { iops, ..Figures::default() };
                runs.push(Run { round, figures, ..Run::of(Stage::Rounds, variant, workload) });
            }
        }
        Self::of_runs(Experiment::parse(experiment).unwrap(), runs)
    }

    /// One without runs that keeps them in memory.
    #[cfg(test)]
    pub(crate) fn in_memory(experiment: Experiment) -> Self {
        let database = Database::builder().create_with_backend(redb::backends::InMemoryBackend::new());
        Self { database: Some(database.unwrap()), ..Self::of_runs(experiment, Vec::new()) }
    }

    /// Opens existing results. To continue them, the caller checks the experiment first.
    pub fn open(directory: &Path) -> Result<Self> {
        let experiment = experiment_in(directory)?;
        let read = |name| read(directory, name);
        let environment = serde_json::from_str(&read("environment.json")?).map_err(|error| {
            Error::Results { path: directory.join("environment.json"), what: error.to_string() }
        })?;
        let directory = directory.to_owned();
        let mut store = Self { directory, experiment, environment, runs: Vec::new(), database: None };
        if let Some(runs) = store.look(runs_of)? {
            for (number, run) in runs {
                let run = serde_json::from_slice(&run);
                store.runs.push(
                    run.map_err(|error| database::damaged(&store.path(), format!("run {number}: {error}")))?,
                );
            }
        }
        store.require_unchanged()?;
        Ok(store)
    }

    /// Refuses runs that were made with another experiment than what is written now. Results that were made
    /// before this was kept have none to compare with.
    fn require_unchanged(&self) -> Result<()> {
        let Some(kept) = self.look(kept_in)?.flatten() else { return Ok(()) };
        let counting = self.runs.iter().filter(|run| !matches!(run.stage, Stage::Torn | Stage::LeftOut));
        let measured: BTreeSet<&str> = counting.map(|run| run.workload.as_str()).collect();
        if measured.is_empty() {
            return Ok(());
        }
        let changed = experiment::changed(&Experiment::read(&kept)?, &self.experiment, &measured)?;
        if changed.is_empty() {
            return Ok(());
        }
        let path = self.directory.join("experiment.toml");
        let what = format!(
            "it was changed after runs were made, and runs of different experiments must not be mixed: {}. \
             Restore it, or `cenote lab run` it into another directory (-o)",
            changed.join("; ")
        );
        Err(Error::Results { path, what })
    }

    fn failed(&self, error: impl std::fmt::Display) -> Error {
        Error::Results { path: self.path(), what: error.to_string() }
    }

    fn path(&self) -> PathBuf {
        self.directory.join(DATABASE)
    }

    /// Looks at the database; `None` before the first run.
    fn look<T>(
        &self,
        see: impl FnOnce(&Database) -> std::result::Result<T, redb::Error>,
    ) -> Result<Option<T>> {
        let path = self.path();
        match fs::metadata(&path) {
            Ok(metadata) if metadata.len() > 0 => database::look(&path, see).map(Some),
            // Who made it came no further.
            Ok(_) => Ok(None),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(Error::file(&path)(error)),
        }
    }

    /// All that fio said of a run, by its number from 1 on.
    pub fn fio_json(&self, number: usize) -> Result<String> {
        if self.runs().is_empty() {
            return Err(self.failed("no run has ended yet"));
        }
        let look = |database: &Database| -> std::result::Result<Option<String>, redb::Error> {
            let table = database.begin_read()?.open_table(FIO)?;
            Ok(table.get(number as u64)?.map(|json| json.value().to_owned()))
        };
        let found = match &self.database {
            Some(database) => look(database).map_err(|error| database::failed(&self.path(), error))?,
            None => self.look(look)?.flatten(),
        };
        found.ok_or_else(|| self.failed(format!("there is no run {number}")))
    }

    /// The directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The experiment.
    pub fn experiment(&self) -> &Experiment {
        &self.experiment
    }

    /// The machine that it ran on.
    pub fn environment(&self) -> &Environment {
        &self.environment
    }

    /// All runs, as they ended.
    pub fn runs(&self) -> &[Run] {
        &self.runs
    }

    /// Whether a run of the rounds was done, or left out.
    pub fn has(&self, round: usize, variant: &str, workload: &str) -> bool {
        self.in_rounds().any(|run| run.round == round && run.variant == variant && run.workload == workload)
    }

    /// The places of rounds that are decided: the runs of the rounds, and those that were left out.
    pub fn in_rounds(&self) -> impl Iterator<Item = &Run> {
        self.runs.iter().filter(|run| matches!(run.stage, Stage::Rounds | Stage::LeftOut))
    }

    /// The runs that were left out of rounds, because they failed each time.
    pub fn left_out(&self) -> impl Iterator<Item = &Run> {
        self.runs.iter().filter(|run| run.stage == Stage::LeftOut)
    }

    /// The runs of the rounds, without those of a search, each with its number.
    pub fn compared(&self) -> impl Iterator<Item = (usize, &Run)> {
        (1..).zip(&self.runs).filter(|(_, run)| run.stage == Stage::Rounds)
    }

    /// Takes the database, which is made where there is none, so that no second lab carries the experiment
    /// out meanwhile.
    pub fn hold(&mut self) -> Result<()> {
        self.held().map(drop)
    }

    fn held(&mut self) -> Result<&Database> {
        if self.database.is_none() {
            let path = self.path();
            let database = database::hold(&path)?;
            let runs = database::quietly(&path, || runs_of(&database))?;
            if runs.len() != self.runs.len() {
                return Err(self.failed("another process has just continued this experiment"));
            }
            self.database = Some(database);
        }
        self.database.as_ref().ok_or_else(|| self.failed("it is not open"))
    }

    /// Keeps a run, and what fio said of it.
    pub fn add(&mut self, run: &Run, fio_json: &str) -> Result<()> {
        let bytes = serde_json::to_vec(run).map_err(|error| self.failed(error))?;
        let number = self.runs.len() as u64 + 1;
        let experiment = self.experiment.to_toml()?;
        keep(self.held()?, number, &bytes, fio_json, &experiment).map_err(|error| self.failed(error))?;
        // As it is read later: the last digit of a figure may not survive being written.
        self.runs.push(serde_json::from_slice(&bytes).map_err(|error| self.failed(error))?);
        Ok(())
    }

    /// Marks runs that count no more, because they are done again.
    pub fn tear(&mut self, is_torn: impl Fn(&Run) -> bool) -> Result<()> {
        self.hold()?;
        for at in 0..self.runs.len() {
            if !is_torn(&self.runs[at]) {
                continue;
            }
            let torn = Run { stage: Stage::Torn, ..self.runs[at].clone() };
            let bytes = serde_json::to_vec(&torn).map_err(|error| self.failed(error))?;
            replace(self.held()?, at as u64 + 1, &bytes).map_err(|error| self.failed(error))?;
            self.runs[at] = torn;
        }
        Ok(())
    }

    /// Asks for so many rounds at least of an experiment that was begun with fewer.
    pub fn want_rounds(&mut self, rounds: usize) -> Result<()> {
        let least = self.experiment.least_rounds();
        if rounds <= least {
            return Err(Error::Experiment(format!("it has at least {least} rounds already: ask for more")));
        }
        self.hold()?;
        let experiment = Experiment { more_rounds: Some(rounds), ..self.experiment.clone() };
        experiment.check()?;
        write_durably(&self.directory.join("experiment.toml"), experiment.to_toml()?.as_bytes())?;
        self.experiment = experiment;
        Ok(())
    }

    /// Leaves out all rounds after so many, since there is no time for them.
    pub fn leave_out_rounds_after(&mut self, rounds: usize) -> Result<()> {
        let left_out = self.experiment.least_rounds().saturating_sub(rounds);
        self.experiment.left_out_rounds += left_out;
        (self.experiment.rounds, self.experiment.max_rounds) = (rounds, None);
        write_durably(&self.directory.join("experiment.toml"), self.experiment.to_toml()?.as_bytes())
    }

    /// Sets how long a guest may take to boot, from the next one on.
    pub fn set_boot_seconds(&mut self, seconds: f64) -> Result<()> {
        self.hold()?;
        let experiment = Experiment { boot_seconds: Some(seconds), ..self.experiment.clone() };
        experiment.check()?;
        write_durably(&self.directory.join("experiment.toml"), experiment.to_toml()?.as_bytes())?;
        self.experiment = experiment;
        Ok(())
    }

    /// Keeps what the target's disks did by themselves.
    pub fn keep_measured(&mut self, rates: Rates) -> Result<()> {
        self.experiment.measured = Some(rates);
        write_durably(&self.directory.join("experiment.toml"), self.experiment.to_toml()?.as_bytes())
    }

    /// Writes a file of the report; where it is.
    pub fn write(&self, name: &str, text: &str) -> Result<PathBuf> {
        let path = self.directory.join(name);
        write_durably(&path, text.as_bytes())?;
        Ok(path)
    }
}

/// The leftovers of an experiment that is not running, and cannot run while this is held. Only its file is
/// read, so that what a killed lab left can be removed whatever became of the results.
pub struct Left {
    /// The experiment.
    pub experiment: Experiment,
    _lock: Box<dyn Send>,
}

impl Left {
    /// Of the experiment in `directory`.
    pub fn in_directory(directory: &Path) -> Result<Self> {
        let experiment = experiment_in(directory)?;
        Ok(Self { experiment, _lock: Box::new(database::lock(&directory.join(DATABASE))?) })
    }
}

/// The text of a file of the results.
fn read(directory: &Path, name: &str) -> Result<String> {
    let path = directory.join(name);
    input_file::read(&path, input_file::MOST_OF_EXPERIMENT).map_err(Error::file(&path))
}

/// The experiment whose results are in `directory`. What it found stays readable, whatever is asked of new
/// ones since.
fn experiment_in(directory: &Path) -> Result<Experiment> {
    if !directory.join("experiment.toml").exists() {
        let what =
            "this is not a directory with an experiment's results: name the one that `lab run` wrote (-o)"
                .into();
        return Err(Error::Results { path: directory.to_owned(), what });
    }
    Experiment::read(&read(directory, "experiment.toml")?)
}

/// Says why results cannot go into a directory, where they cannot: it must be empty, or not exist yet.
pub(crate) fn require_free(directory: &Path) -> Result<()> {
    let refused =
        |path: &Path, what: &str| Err(Error::Results { path: path.to_owned(), what: what.to_owned() });
    for above in directory.ancestors().filter(|above| !above.as_os_str().is_empty()) {
        match fs::metadata(above) {
            Ok(metadata) if !metadata.is_dir() => {
                return refused(
                    above,
                    "this is not a directory: results need one that is empty or does not exist yet (-o DIR)",
                );
            }
            Ok(_) => break,
            Err(error) if error.kind() != ErrorKind::NotFound && error.kind() != ErrorKind::NotADirectory => {
                return Err(Error::file(above)(error));
            }
            Err(_) if fs::symlink_metadata(above).is_ok() => {
                return refused(above, "this is a link that leads nowhere: name another directory (-o DIR)");
            }
            Err(_) => {}
        }
    }
    let entries = match fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(Error::file(directory)(error)),
    };
    if directory.join("experiment.toml").exists() {
        return refused(
            directory,
            "it has results of an experiment already; resume that, or choose another directory",
        );
    }
    // A filesystem that is new has the one in it, and who watches the experiment keeps the other.
    let is_allowed = |name: &OsStr| name == "lost+found" || name == WATCHER;
    if entries.flatten().any(|entry| !is_allowed(&entry.file_name())) {
        return refused(
            directory,
            "this directory is not empty: results need one that is, or that does not exist yet (-o DIR)",
        );
    }
    Ok(())
}

/// The runs of a database as they are kept there, with their numbers.
fn runs_of(database: &Database) -> std::result::Result<Vec<(u64, Vec<u8>)>, redb::Error> {
    let mut runs = Vec::new();
    let table = match database.begin_read()?.open_table(RUNS) {
        // Nothing was kept yet.
        Err(redb::TableError::TableDoesNotExist(_)) => return Ok(runs),
        table => table?,
    };
    for entry in table.iter()? {
        let (number, bytes) = entry?;
        runs.push((number.value(), bytes.value().to_vec()));
    }
    Ok(runs)
}

/// The experiment that the runs of a database were made with, where it is kept.
fn kept_in(database: &Database) -> std::result::Result<Option<String>, redb::Error> {
    let table = match database.begin_read()?.open_table(KEPT) {
        Err(redb::TableError::TableDoesNotExist(_)) => return Ok(None),
        table => table?,
    };
    Ok(table.get(EXPERIMENT)?.map(|text| text.value().to_owned()))
}

fn keep(
    database: &Database,
    number: u64,
    run: &[u8],
    fio_json: &str,
    experiment: &str,
) -> std::result::Result<(), redb::Error> {
    let transaction = database.begin_write()?;
    transaction.open_table(RUNS)?.insert(number, run)?;
    transaction.open_table(FIO)?.insert(number, fio_json)?;
    transaction.open_table(KEPT)?.insert(EXPERIMENT, experiment)?;
    transaction.commit()?;
    Ok(())
}

/// Keeps a run in the place of what was kept of it.
fn replace(database: &Database, number: u64, run: &[u8]) -> std::result::Result<(), redb::Error> {
    let transaction = database.begin_write()?;
    transaction.open_table(RUNS)?.insert(number, run)?;
    transaction.commit()?;
    Ok(())
}

fn write_durably(path: &Path, bytes: &[u8]) -> Result<()> {
    let beside = path.with_extension("new");
    let mut file = File::create(&beside).map_err(Error::file(&beside))?;
    file.write_all(bytes).and_then(|()| file.sync_all()).map_err(Error::file(&beside))?;
    fs::rename(&beside, path).map_err(Error::file(path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recipes;

    #[test]
    fn of_no_runs_none_is_told() {
        let store = Store::in_memory(recipes::find("sync").unwrap().experiment());
        let told = store.fio_json(1).unwrap_err().to_string();
        assert!(told.contains("no run has ended yet"), "{told}");
    }

    fn run(round: usize) -> Run {
        Run {
            round,
            figures: Figures { iops: 2.0, read_bytes: 1 << 30, ..Figures::default() },
            space: Some((1, 2)),
            sector: Some(4096),
            ..Run::of(Stage::Rounds, "v", "w")
        }
    }

    #[test]
    fn counters_of_more_than_was_measured_make_no_figures() {
        let served = Counters {
            written_bytes: 3 << 30,
            read_bytes: 1 << 30,
            cpu_seconds: 2.0,
            peak_memory_bytes: 9,
            ..Counters::default()
        };
        let of = |is_of_more| {
            let mut run = Run { served: Some(Counters { is_of_more, ..served }), ..run(0) };
            run.figures.written_bytes = 1 << 30;
            let of_devices = [Metric::Amplification, Metric::ReadAmplification, Metric::Cpu]
                .map(|it| run.metric(it).is_some());
            (of_devices, run.metric(Metric::Memory))
        };
        assert_eq!(of(false), ([true; 3], Some(9.0)));
        assert_eq!(of(true), ([false; 3], Some(9.0)));
    }

    #[test]
    fn results_go_into_a_directory_of_their_own() {
        let directory = tempfile::tempdir().unwrap();
        let experiment = recipes::find("sync").unwrap().experiment();
        fs::create_dir(directory.path().join("mnt")).unwrap();
        let refused = Store::create(directory.path(), experiment.clone(), Environment::default());
        assert!(refused.is_err_and(|error| error.to_string().contains("not empty")));
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
        let file = directory.path().join("mnt/file");
        fs::write(&file, "theirs").unwrap();
        for at in [file.clone(), file.join("below/it")] {
            let refused = Store::create(&at, experiment.clone(), Environment::default());
            let told = refused.err().unwrap().to_string();
            assert!(told.starts_with(file.to_str().unwrap()) && told.contains("not a directory"), "{told}");
        }
        Store::create(&directory.path().join("new"), experiment, Environment::default()).unwrap();
    }

    #[test]
    fn runs_are_kept_with_what_fio_said() {
        let directory = tempfile::tempdir().unwrap();
        let experiment = recipes::find("sync").unwrap().experiment();
        let environment = Environment::of_this_machine();
        let mut store = Store::create(directory.path(), experiment.clone(), environment.clone()).unwrap();
        assert!(Store::create(directory.path(), experiment.clone(), environment).is_err());
        assert!(Store::open(directory.path()).unwrap().runs().is_empty());
        store.hold().unwrap();
        assert!(Store::open(directory.path()).is_err(), "somebody carries it out");
        store.add(&run(0), "{\"first\": 1}").unwrap();
        store.add(&run(1), "{}").unwrap();
        drop(store);
        // Two look at it before either goes on with it.
        let (mut early, mut late) =
            (Store::open(directory.path()).unwrap(), Store::open(directory.path()).unwrap());
        early.hold().unwrap();
        assert!(late.hold().is_err());
        drop((early, late));
        let nothing = tempfile::tempdir().unwrap();
        assert!(
            Store::open(nothing.path())
                .is_err_and(|error| error.to_string().contains("not a directory with"))
        );
        let mut store = Store::open(directory.path()).unwrap();
        assert_eq!(store.experiment(), &experiment);
        assert_eq!((store.has(0, "v", "w"), store.has(2, "v", "w")), (true, false));
        assert_eq!(store.fio_json(1).unwrap(), "{\"first\": 1}");
        assert!(store.fio_json(3).is_err());
        store.add(&run(2), "{}").unwrap();
        drop(store);
        assert_eq!(Store::open(directory.path()).unwrap().runs(), [run(0), run(1), run(2)]);
        fs::write(directory.path().join(DATABASE), "nonsense").unwrap();
        assert!(Store::open(directory.path()).is_err());
    }

    /// Results of so many runs, and where they are.
    fn results(count: usize) -> (tempfile::TempDir, PathBuf) {
        let directory = tempfile::tempdir().unwrap();
        let experiment = recipes::find("sync").unwrap().experiment();
        let mut store = Store::create(directory.path(), experiment, Environment::default()).unwrap();
        for round in 0..count {
            store.add(&run(round), &"fio said this. ".repeat(900)).unwrap();
        }
        let path = store.path();
        (directory, path)
    }

    #[test]
    fn damage_is_told_with_what_to_do_and_no_panic() {
        let (directory, path) = results(40);
        let whole = fs::read(&path).unwrap();
        let all = Store::open(directory.path()).unwrap().runs;
        let mut told = 0;
        let mut look = |bytes: &[u8], what: &str| {
            fs::write(&path, bytes).unwrap();
            let error = match Store::open(directory.path()) {
                Ok(mut store) => {
                    // It lies in unused space, or the state before is still there: the next run
                    // finds the same.
                    assert!(all.starts_with(store.runs()), "{what}");
                    store.hold().unwrap();
                    assert_eq!(store.fio_json(1).is_ok(), !store.runs().is_empty(), "{what}");
                    return;
                }
                Err(error) => error.to_string(),
            };
            assert!(error.starts_with(path.to_str().unwrap()), "{what}: {error}");
            assert!(error.contains("it is damaged: "), "{what}: {error}");
            assert!(error.contains("lab run") && error.contains("lab clean"), "{what}: {error}");
            told += 1;
        };
        for at in (0..whole.len()).step_by(whole.len() / 150) {
            let mut bytes = whole.clone();
            let end = (at + 700).min(bytes.len());
            bytes[at..end].fill(0xa5);
            look(&bytes, &format!("{at} overwritten"));
        }
        for at in [1, 100, 4096, whole.len() / 2, whole.len() - 1] {
            look(&whole[..at], &format!("cut at {at}"));
        }
        look(&vec![0; whole.len()], "zeros");
        assert!(told > 50, "{told}");
        fs::write(&path, whole).unwrap();
        assert_eq!(Store::open(directory.path()).unwrap().runs, all);
    }

    #[test]
    fn what_is_left_is_found_whatever_became_of_the_results() {
        let (directory, path) = results(1);
        let experiment = Store::open(directory.path()).unwrap().experiment.clone();
        fs::write(&path, "nonsense").unwrap();
        let left = Left::in_directory(directory.path()).unwrap();
        assert_eq!(left.experiment, experiment);
        let second = Left::in_directory(directory.path()).err().unwrap().to_string();
        assert!(second.contains("another 'cenote lab' works on these results"), "{second}");
        drop(left);
        fs::remove_file(&path).unwrap();
        drop(Left::in_directory(directory.path()).unwrap());
        let mut store = Store::open(directory.path()).unwrap();
        assert!(store.runs().is_empty());
        store.hold().unwrap();
        assert!(Left::in_directory(directory.path()).is_err());
    }

    #[test]
    fn runs_of_unlike_experiments_are_not_put_together() {
        let directory = tempfile::tempdir().unwrap();
        let text = |bs: &str| {
            format!(
                "name = \"x\"\n[target]\nkind = \"path\"\npath = \"/a\"\nsize = \"4M\"\n[[workload]]\nname = \
                 \"w\"\nrw = \"read\"\nbs = \"{bs}\"\n"
            )
        };
        let write = |text: &str| fs::write(directory.path().join("experiment.toml"), text).unwrap();
        let open = || Store::open(directory.path());
        let experiment = Experiment::parse(&text("8K")).unwrap();
        let mut store = Store::create(directory.path(), experiment, Environment::default()).unwrap();
        store.hold().unwrap();
        drop(store);
        // Nothing was measured yet.
        write(&text("16K"));
        let mut store = open().unwrap();
        store.add(&run(0), "{}").unwrap();
        store.want_rounds(9).unwrap();
        drop(store);
        assert_eq!(open().unwrap().experiment().more_rounds, Some(9));
        write(&text("8K"));
        let told = open().err().unwrap().to_string();
        let expected =
            "workload 'w': bs is 8K in experiment.toml, and its runs were made with 16K. Restore it";
        assert!(told.contains("experiment.toml: it was changed") && told.contains(expected), "{told}");
        write(&text("16K"));
        let mut store = open().unwrap();
        // Those of before this was kept are opened, and have it from the next run on.
        let transaction = store.held().unwrap().begin_write().unwrap();
        transaction.delete_table(KEPT).unwrap();
        transaction.commit().unwrap();
        drop(store);
        write(&text("8K"));
        open().unwrap().add(&run(1), "{}").unwrap();
        write(&text("16K"));
        assert!(open().is_err());
    }

    #[test]
    fn metrics_that_nobody_told_are_not_made_up() {
        assert_eq!(run(0).metric(Metric::Iops), Some(2.0));
        assert_eq!(run(0).metric(Metric::Space), Some(0.5));
        assert_eq!(run(0).metric(Metric::Cpu), None);
        assert_eq!(run(0).metric(Metric::Amplification), None);
    }
}
