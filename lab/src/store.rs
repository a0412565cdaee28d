//! The directory of results.
//!
//! | file | what |
//! |---|---|
//! | `experiment.toml` | the experiment, as it was run |
//! | `environment.json` | the machine |
//! | `runs.jsonl` | one line for each run, written and made durable when the run has ended |
//! | `report.html`, `report.md`, `report.csv`, `report.json` | the findings |
//! | `devices/` | the pools, while the experiment runs |
//!
//! A line that a crash cut short is the last one, and is dropped; the run is done again.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::environment::Environment;
use crate::error::{Error, Result};
use crate::experiment::{Experiment, Metric};
use crate::fio::Figures;
use crate::target::Counters;

/// One run that ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// In which round, from zero.
    pub round: usize,
    /// The variant's name.
    pub variant: String,
    /// The workload's name.
    pub workload: String,
    /// When it began: seconds since 1970.
    pub began: u64,
    /// fio's arguments, to repeat it.
    pub command: Vec<String>,
    /// What fio found.
    pub figures: Figures,
    /// What the server did meanwhile (the difference of its counters), where it tells.
    pub served: Option<Counters>,
    /// Bytes that the volume takes, and bytes in it.
    pub space: Option<(u64, u64)>,
}

impl Run {
    /// A figure of it, where it has it.
    pub fn metric(&self, metric: Metric) -> Option<f64> {
        let figures = &self.figures;
        let bytes = (figures.read_bytes + figures.written_bytes) as f64;
        match metric {
            Metric::Iops => Some(figures.iops),
            Metric::Throughput => Some(figures.throughput),
            Metric::Latency => Some(figures.latency),
            Metric::LatencyP99 => Some(figures.latency_p99),
            Metric::Cpu => self.served.filter(|_| bytes > 0.0).map(|served| served.cpu_seconds / bytes * 1e9),
            Metric::Amplification => self
                .served
                .filter(|_| figures.written_bytes > 0)
                .map(|served| served.written_bytes as f64 / figures.written_bytes as f64),
            Metric::Space => self
                .space
                .filter(|(_, logical)| *logical > 0)
                .map(|(used, logical)| used as f64 / logical as f64),
        }
    }
}

/// A directory of results.
#[derive(Debug)]
pub struct Store {
    directory: PathBuf,
    experiment: Experiment,
    environment: Environment,
    runs: Vec<Run>,
}

impl Store {
    /// Makes one for a new experiment. The directory must not hold another.
    pub fn create(directory: &Path, experiment: Experiment, environment: Environment) -> Result<Self> {
        fs::create_dir_all(directory).map_err(Error::file(directory))?;
        let path = directory.join("experiment.toml");
        if path.exists() {
            let what =
                "there are results of an experiment already; resume it, or choose another directory".into();
            return Err(Error::Results { path: directory.to_owned(), what });
        }
        let json = serde_json::to_vec_pretty(&environment)
            .map_err(|error| Error::Results { path: directory.to_owned(), what: error.to_string() })?;
        write_durably(&directory.join("environment.json"), &json)?;
        write_durably(&path, experiment.to_toml()?.as_bytes())?;
        Ok(Self { directory: directory.to_owned(), experiment, environment, runs: Vec::new() })
    }

    /// Opens what is there.
    pub fn open(directory: &Path) -> Result<Self> {
        let read = |name: &str| {
            let path = directory.join(name);
            fs::read_to_string(&path).map_err(Error::file(&path))
        };
        let experiment = Experiment::parse(&read("experiment.toml")?)?;
        let environment = serde_json::from_str(&read("environment.json")?).map_err(|error| {
            Error::Results { path: directory.join("environment.json"), what: error.to_string() }
        })?;
        let path = directory.join("runs.jsonl");
        let mut text = String::new();
        match File::open(&path) {
            Ok(mut file) => file.read_to_string(&mut text).map(|_| ()).map_err(Error::file(&path))?,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(Error::File { path, error }),
        }
        let whole = text.rfind('\n').map_or(0, |end| end + 1);
        let mut runs = Vec::new();
        for (number, line) in text[..whole].lines().enumerate() {
            let run = serde_json::from_str(line).map_err(|error| Error::Results {
                path: path.clone(),
                what: format!("line {}: {error}", number + 1),
            })?;
            runs.push(run);
        }
        if whole < text.len() {
            let file = File::options().write(true).open(&path).map_err(Error::file(&path))?;
            file.set_len(whole as u64).map_err(Error::file(&path))?;
        }
        Ok(Self { directory: directory.to_owned(), experiment, environment, runs })
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

    /// Whether a run was done.
    pub fn has(&self, round: usize, variant: &str, workload: &str) -> bool {
        self.runs.iter().any(|run| run.round == round && run.variant == variant && run.workload == workload)
    }

    /// Keeps a run.
    pub fn add(&mut self, run: Run) -> Result<()> {
        let path = self.directory.join("runs.jsonl");
        let mut line = serde_json::to_vec(&run)
            .map_err(|error| Error::Results { path: path.clone(), what: error.to_string() })?;
        line.push(b'\n');
        let mut file = File::options().append(true).create(true).open(&path).map_err(Error::file(&path))?;
        file.write_all(&line).and_then(|()| file.sync_data()).map_err(Error::file(&path))?;
        self.runs.push(run);
        Ok(())
    }

    /// Writes a file of the report; where it is.
    pub fn write(&self, name: &str, text: &str) -> Result<PathBuf> {
        let path = self.directory.join(name);
        write_durably(&path, text.as_bytes())?;
        Ok(path)
    }
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

    fn run(round: usize) -> Run {
        Run {
            round,
            variant: "v".into(),
            workload: "w".into(),
            began: 0,
            command: vec![],
            figures: Figures { iops: 2.0, read_bytes: 1 << 30, ..Figures::default() },
            served: None,
            space: Some((1, 2)),
        }
    }

    #[test]
    fn runs_outlive_a_line_that_was_cut_short() {
        let directory = tempfile::tempdir().unwrap();
        let experiment = recipes::find("sync").unwrap().experiment();
        let mut store =
            Store::create(directory.path(), experiment.clone(), Environment::of_this_machine()).unwrap();
        assert!(Store::create(directory.path(), experiment.clone(), Environment::of_this_machine()).is_err());
        store.add(run(0)).unwrap();
        store.add(run(1)).unwrap();
        let path = directory.path().join("runs.jsonl");
        let whole = fs::read_to_string(&path).unwrap();
        fs::write(&path, &whole[..whole.len() - 10]).unwrap();
        let mut store = Store::open(directory.path()).unwrap();
        assert_eq!(store.experiment(), &experiment);
        assert_eq!((store.runs().len(), store.has(0, "v", "w"), store.has(1, "v", "w")), (1, true, false));
        store.add(run(1)).unwrap();
        assert_eq!(Store::open(directory.path()).unwrap().runs(), [run(0), run(1)]);
        fs::write(&path, "nonsense\n").unwrap();
        assert!(Store::open(directory.path()).is_err());
    }

    #[test]
    fn metrics_that_nobody_told_are_not_made_up() {
        assert_eq!(run(0).metric(Metric::Iops), Some(2.0));
        assert_eq!(run(0).metric(Metric::Space), Some(0.5));
        assert_eq!(run(0).metric(Metric::Cpu), None);
        assert_eq!(run(0).metric(Metric::Amplification), None);
    }
}
