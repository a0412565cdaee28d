//! The work of runs: what it is, and doing it.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::{Bench, Placement};
use crate::copy;
use crate::created_files;
use crate::error::{Error, Result};
use crate::experiment::{PROCESS, SettingOwner, THROUGH, Work, Workload};
use crate::fio::{self, Endpoint};
use crate::load::Load;
use crate::progress::{Part, Progress};
use crate::size::Size;
use crate::trace::Trace;
use crate::workload::Sort;

/// A trace that is over sooner is replayed several times on end: fio counts milliseconds.
const LEAST_REPLAY: Duration = Duration::from_millis(100);

/// The trace that fio replays.
const REPLAYED: &str = "replayed.trace";
/// The directory of what fio notes of the time within a run.
const STEPS: &str = "steps";

/// The work of a run.
#[derive(Debug, Clone, PartialEq)]
pub enum Job {
    /// fio does it.
    Fio {
        /// Its arguments.
        arguments: Vec<String>,
        /// How long that takes, if it is known before.
        seconds: Option<f64>,
        /// The command that runs a shell where it does it; no words where that is here.
        by: Vec<String>,
        /// How long that is waited for.
        limit: Duration,
    },
    /// fio replays a trace.
    Replay {
        /// Its arguments.
        arguments: Vec<String>,
        /// How long one time takes, if it is known before.
        seconds: Option<f64>,
        /// The trace.
        trace: Trace,
        /// From where it was read.
        path: PathBuf,
        /// The workload that does.
        workload: String,
        /// The file that fio reads it from, and the name that it has for what it goes to.
        here: (PathBuf, String),
    },
    /// Files are copied.
    Copy {
        /// Which.
        stream: Stream,
        /// To where.
        at: Endpoint,
    },
    /// The process that has the pool open does it by itself.
    Load {
        /// To which volume.
        volume: String,
        /// Its effect.
        load: Load,
    },
}

impl Job {
    /// It in words, to repeat it.
    pub fn words(&self) -> Vec<String> {
        match self {
            Self::Fio { arguments, by, .. } => [by, &["fio".to_owned()][..], arguments].concat(),
            Self::Replay { arguments, .. } => {
                std::iter::once("fio".to_owned()).chain(arguments.iter().cloned()).collect()
            }
            Self::Copy { stream, at } => stream.words(at),
            Self::Load { volume, load } => load.words(volume),
        }
    }
}

/// Files that are copied.
#[derive(Debug, Clone, PartialEq)]
pub struct Stream {
    source: PathBuf,
    as_disk: bool,
    only: Option<Sort>,
    /// How many bytes at most.
    extent: Size,
    /// Bytes of a piece.
    bs: Size,
}

impl Stream {
    /// The source of a workload's copies to a target of `size`; nothing if it is not a copy.
    pub(super) fn of(workload: &Workload, size: Size) -> Option<Self> {
        let (as_disk, only, extent, bs) =
            (workload.as_disk, workload.only, workload.extent(size), workload.bs);
        Some(Self { source: workload.source.clone()?, as_disk, only, extent, bs })
    }

    fn words(&self, at: &Endpoint) -> Vec<String> {
        let as_disk = self.as_disk.then_some(["as", "a", "disk"]).into_iter().flatten().map(str::to_owned);
        let (source, at) = (self.source.display().to_string(), at.file());
        let what = self.only.map(|only| format!("{} in", only.words()));
        let words = ["copy".into(), self.extent.to_string(), "of".into()].into_iter().chain(what);
        let words = words.chain([source, "to".into(), at]);
        words.chain(["by".into(), self.bs.to_string()]).chain(as_disk).collect()
    }

    pub(super) fn run(&self, at: &Endpoint, what: &str, progress: &dyn Progress) -> Result<fio::Outcome> {
        let began = Instant::now();
        let files = copy::Files { source: &self.source, as_disk: self.as_disk, only: self.only };
        copy::run(files, at, self.extent, self.bs, &mut |done| {
            progress.goes_on(Part { what, done, total: self.extent, elapsed: began.elapsed() });
            progress.stops()
        })
    }
}

impl Bench<'_> {
    /// The work of a run in a round.
    pub fn job(
        &mut self,
        lodging: &Placement,
        workload: &Workload,
        round: usize,
        progress: &dyn Progress,
    ) -> Result<Job> {
        let seed = self.experiment.seed_of_round(round);
        let at = self.endpoint(lodging, workload, progress)?;
        let way = lodging.settings.get(THROUGH);
        if let Some(home) = self.homes.get(lodging).filter(|_| way.is_some_and(|way| way == PROCESS)) {
            let load = Load::of(workload, self.experiment.target.size(), seed)?;
            return Ok(Job::Load { volume: home.dataset.clone(), load });
        }
        if let Some(stream) = Stream::of(workload, self.experiment.target.size()) {
            return Ok(Job::Copy { stream, at });
        }
        self.fio_job(&at, workload, seed)
    }

    /// Does a job, unless it is to stop.
    pub fn run(&mut self, lodging: &Placement, job: &Job, progress: &dyn Progress) -> Result<fio::Outcome> {
        let mut stops = || progress.stops();
        match job {
            Job::Replay { .. } => self.replay(job, progress),
            Job::Fio { arguments, seconds: None, by, limit } => {
                fio::run_by(by, arguments, *limit, &mut stops)
            }
            Job::Fio { arguments, seconds: Some(seconds), .. } => {
                fio::in_steps(arguments, *seconds, &self.steps()?, &mut stops)
            }
            Job::Copy { stream, at } => {
                stream.run(at, &format!("copying {}", stream.source.display()), progress)
            }
            Job::Load { volume, load } => {
                let server = SettingOwner::Server.pick(&lodging.settings);
                fio::outcome(&self.servers.programs(&server)?.load(volume, load, &stops)?, load.fsync > 0)
            }
        }
    }

    /// Replays a trace: several times on end, where one time is over before that can be measured. How often
    /// is found by the first run of a workload, and the same for all that follow, whatever they take: figures
    /// of unlike numbers of passes cannot be compared.
    fn replay(&mut self, job: &Job, progress: &dyn Progress) -> Result<fio::Outcome> {
        let Job::Replay { arguments, seconds, trace, path, workload, here: (here, name) } = job else {
            return Err(Error::Experiment("this is no trace".into()));
        };
        let mut stops = || progress.stops();
        let steps = self.steps()?;
        let held = self.replays.passes(workload);
        let mut passes = held.unwrap_or(1);
        loop {
            fs::write(here, trace.for_fio(name, passes)).map_err(Error::file(here))?;
            let outcome = match seconds {
                Some(seconds) => fio::in_steps(arguments, seconds * passes as f64, &steps, &mut stops)?,
                None => fio::run_unless(arguments, &mut stops)?,
            };
            let took = fio::runtime(&outcome)?;
            let more = (LEAST_REPLAY.as_secs_f64() * 1.5 / took.as_secs_f64().max(1e-3)).ceil() as usize;
            let more = passes.saturating_mul(more).min(trace.most_times());
            if held.is_some() || took >= LEAST_REPLAY || more <= passes {
                self.replays.hold(workload, passes);
                if passes > 1 {
                    self.remarks.note(format!(
                        "{} is too short to be measured: each run replays it several times in a row, and its \
                         figures are of all of these.",
                        path.display()
                    ));
                }
                if took < LEAST_REPLAY {
                    self.remarks.note(format!(
                        "Some runs of '{workload}' took less than {} ms, and fio counts whole milliseconds: \
                         their figures are rough.",
                        LEAST_REPLAY.as_millis()
                    ));
                }
                return Ok(outcome);
            }
            passes = more;
            self.replays.note_more();
        }
    }

    /// Has a workload replay its trace so often on end, as its runs did before.
    pub fn hold_passes(&mut self, workload: &str, passes: usize) {
        self.replays.hold(workload, passes);
    }

    /// How often a workload replays its trace on end; nothing before its first run.
    pub fn passes(&self, workload: &str) -> Option<usize> {
        self.replays.passes(workload)
    }

    /// Where fio notes what happens within a run.
    fn steps(&self) -> Result<PathBuf> {
        created_files::take_files(&self.folders.devices, &format!("{STEPS}/{}", fio::STEP_LOGS))
    }

    /// Whether the last run did more than what it measured, so that counters have more too; asked once.
    pub fn did_more(&mut self) -> bool {
        self.replays.take_more()
    }

    fn fio_job(&mut self, endpoint: &Endpoint, workload: &Workload, seed: u64) -> Result<Job> {
        let size = self.experiment.target.size();
        if let Some(path) = &workload.trace {
            let trace = Trace::read(path)
                .and_then(|trace| trace.within(workload.extent(size)))
                .map_err(|what| Error::Results { path: path.clone(), what })?;
            let trims = trace.trims();
            if trims > 0 {
                self.remarks.note(format!(
                    "{trims} of the {} requests in {} are trims, which fio does not replay: they were left \
                     out.",
                    trace.events.len(),
                    path.display()
                ));
            }
            let here = created_files::take(&self.folders.devices, REPLAYED)?;
            let mut arguments = fio::replay(workload, endpoint, &here, !trace.writes(), size);
            arguments.push(format!("--randseed={seed}"));
            let seconds = (!workload.at_once).then(|| trace.seconds()).filter(|seconds| *seconds > 0.0);
            let here = (here, endpoint.file());
            let (path, workload) = (path.clone(), workload.name.clone());
            return Ok(Job::Replay { arguments, seconds, trace, path, workload, here });
        }
        let by = endpoint.by().to_vec();
        if !by.is_empty() && self.guests.is_none() {
            self.remarks.note(format!(
                "Steps within a run are not reported for {}: fio writes them to files on the machine where \
                 '{}' runs it.",
                endpoint.file(),
                by.join(" ")
            ));
        }
        let is_in_steps = workload.work() == Work::Transfers && by.is_empty() && !workload.once;
        let seconds = is_in_steps.then_some(workload.seconds);
        let limit = self.guests.limit(workload.seconds + workload.ramp_seconds, 0);
        Ok(Job::Fio { arguments: fio::arguments(workload, endpoint, size, seed), seconds, by, limit })
    }
}
