//! Experiments of the lab, which the daemon starts, watches and ends for its clients.
//!
//! # The idea
//! The daemon knows nothing of experiments. It runs its own program as `cenote lab …`, in a process of its
//! own: one that lasts for each experiment, and short ones that answer questions. What an experiment is and
//! how it stands lies in its folder, so that it outlives a page, a daemon, and an upgrade in place.
//!
//! | below `STATE/lab` | what it is |
//! |---|---|
//! | `NAME/` | the directory of results, as `cenote lab run -o` makes it; `cenote lab resume` goes on with it |
//! | `NAME/.watcher/` | what the daemon keeps of it (`folder`): the text that was asked for, how it was started, how far it is, what was applied |
//! | `.planned-…` | a text that is looked at; `.removed-…` one that is being removed |
//!
//! `STATE` is the directory of the cache file. A daemon without one has a directory of its own below the
//! system's for temporary files, named after its socket.
//!
//! # Who runs
//! One experiment at a time. A process is known by its number and the moment at which it began
//! ([`crate::progress_file`]); whether it runs is asked of the kernel each time. So the state that is shown
//! is true after a crash of the daemon, of the machine, or of the experiment, and after another daemon took
//! over: the process goes on meanwhile, whose child it is does not matter.
//!
//! | event | what becomes of the experiment that runs |
//! |---|---|
//! | the client goes away | it goes on |
//! | `lab-stop`; the daemon is told to end | it gets SIGTERM, removes its pools, keeps what was measured; it can be resumed |
//! | the daemon is killed | it goes on, unless a service manager ends it too; then it is as after a crash |
//! | another daemon takes over | it goes on |
//! | it crashes | it is shown as stopped; resuming or removing it removes what it left (`lab clean`) |
//!
//! SIGTERM goes to the lab alone, which ends fio and its private daemon in order. Only what does not end when
//! the daemon has to is ended by SIGKILL, with its group.
//!
//! # What it may do
//! What needs consent to overwrite something is for persons at the command line (`--no-overwrite`). Texts,
//! answers and times are bounded, and few programs run at a time.
//!
//! | lock | guards | order |
//! |---|---|---|
//! | `Lab::turn` | starting, resuming, removing, applying, reverting: one after the other; across `.await` | before `OpenPool::changes` |
//! | `Lab::starting` | the name of the experiment whose process is being started; for a few lines | taken alone |
//! | `Lab::briefs` | answers of experiments as last read; for a few lines | taken alone |
//!
//! | module | what it owns |
//! |---|---|
//! | `folder` | the files that the daemon keeps of an experiment |
//! | `programs` | processes of this program: bounded ones, and the one that lasts |
//! | `asking` | recipes, drafts, plans, reports, advice: what short processes answer |
//! | `applying` | properties that an experiment found better, on a dataset, and back |

mod applying;
mod asking;
mod folder;
mod programs;

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::{Daemon, lock};
use crate::api::{self, ApiError, LabExperiment, LabProgress, LabState};
use crate::progress_file::{Progress, Standing};
use folder::{Folder, Record};

/// How long an experiment may take to end when it is stopped. Guests and large pools take a while.
const STOP_LIMIT: Duration = Duration::from_secs(120);
/// The same when the daemon ends: what lasts longer is ended by force.
const END_LIMIT: Duration = Duration::from_secs(60);
/// How long removing what a killed experiment left may take.
const CLEAN_LIMIT: Duration = Duration::from_secs(300);
/// The most experiments.
const MOST: usize = 1000;
/// Why nothing is started any more.
const ENDING: &str = "the daemon ends";

/// What the daemon needs for experiments.
#[derive(Debug, Default)]
pub(super) struct Lab {
    /// Where it answers, once it does: that is asked by what it runs.
    socket: OnceLock<PathBuf>,
    /// Another program than its own, for tests.
    program: OnceLock<PathBuf>,
    turn: tokio::sync::Mutex<()>,
    /// Programs that run and end soon.
    running: AtomicUsize,
    is_ending: AtomicBool,
    /// The experiment whose process is being started.
    starting: Mutex<Option<String>>,
    briefs: Mutex<BTreeMap<String, Brief>>,
}

/// The answer of an experiment, as of a report's file.
#[derive(Debug, Clone, Default)]
struct Brief {
    /// When that was written, and how long it is.
    of: Option<(SystemTime, u64)>,
    is_answered: Option<bool>,
    answer: Option<String>,
}

/// The names of the fields of a report that a list shows.
#[derive(Debug, Default, serde::Deserialize)]
#[serde(default)]
struct Answered {
    is_answered: Option<bool>,
    verdict: Option<String>,
}

/// Refuses what is no name of an experiment.
fn check_name(name: &str) -> Result<(), ApiError> {
    let is_right = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    if (1..=64).contains(&name.len()) && name.bytes().all(is_right) && !name.starts_with('.') {
        return Ok(());
    }
    Err(ApiError::invalid(
        "the name of an experiment has 1 to 64 letters, digits, '.', '_' and '-', and does not begin with a \
         dot",
    ))
}

fn check_text(text: &str) -> Result<(), ApiError> {
    match text.len() {
        0 => Err(ApiError::invalid("the text of the experiment is empty")),
        length if length > api::MOST_OF_EXPERIMENT => Err(ApiError::invalid(format!(
            "the text of the experiment has {length} bytes: at most {} are taken",
            api::MOST_OF_EXPERIMENT
        ))),
        _ => Ok(()),
    }
}

fn none_of_name(name: &str) -> ApiError {
    ApiError::not_found(format!("there is no experiment '{name}'"))
}

/// The error about a file of an experiment.
fn failed(what: &str, name: &str, error: &io::Error) -> ApiError {
    ApiError::failed(format!("cannot {what} the experiment '{name}': {error}"))
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// Whether a directory is this user's alone.
fn is_own(directory: &Path) -> bool {
    let own = rustix::process::geteuid().as_raw();
    let found = fs::symlink_metadata(directory);
    found.is_ok_and(|it| it.is_dir() && it.uid() == own && it.mode() & 0o022 == 0)
}

impl Daemon {
    /// Says where the daemon answers, for the programs that it runs.
    pub(crate) fn answers_at(&self, socket: &Path) {
        if let Ok(socket) = std::path::absolute(socket) {
            let _ = self.lab.socket.set(socket);
        }
    }

    /// The same daemon, which runs this program instead of its own for experiments.
    #[cfg(test)]
    pub(crate) fn with_lab_program(self, program: PathBuf) -> Self {
        let _ = self.lab.program.set(program);
        self
    }

    /// Where experiments are.
    fn lab_directory(&self) -> PathBuf {
        if let Some(state) = self.cachefile.as_deref().and_then(Path::parent) {
            return state.join("lab");
        }
        let of = match self.lab.socket.get() {
            Some(socket) => socket.display().to_string().trim_start_matches('/').replace('/', "-"),
            None => std::process::id().to_string(),
        };
        let user = rustix::process::geteuid().as_raw();
        std::env::temp_dir().join(format!("cenote-experiments-{user}-{of}"))
    }

    /// The same, which is made where it is not there.
    fn made_lab_directory(&self) -> Result<PathBuf, ApiError> {
        let directory = self.lab_directory();
        let shown = directory.display();
        let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(&directory);
        made.map_err(|error| ApiError::failed(format!("cannot make {shown}: {error}")))?;
        // Below the system's directory for temporary files, another user may have made it.
        match is_own(&directory) {
            true => Ok(directory),
            false => Err(ApiError::refused(format!(
                "{shown}: experiments need a directory that belongs to the daemon's user, and that no other \
                 user can write"
            ))),
        }
    }

    /// The folders of all experiments.
    fn experiments(&self) -> Vec<Folder> {
        let directory = self.lab_directory();
        if !is_own(&directory) {
            return Vec::new();
        }
        let entries = fs::read_dir(&directory).into_iter().flatten().flatten();
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        let names = names.filter(|name| check_name(name).is_ok());
        names.map(|name| Folder::of(&directory, &name)).filter(Folder::is_there).take(MOST).collect()
    }

    /// The folder of an experiment that is there.
    fn experiment(&self, name: &str) -> Result<Folder, ApiError> {
        check_name(name)?;
        let directory = self.lab_directory();
        let folder = Folder::of(&directory, name);
        match is_own(&directory) && folder.is_there() {
            true => Ok(folder),
            false => Err(none_of_name(name)),
        }
    }

    /// Refuses where an experiment runs, or none may begin.
    fn refuse_second(&self) -> Result<(), ApiError> {
        if self.lab.is_ending.load(Ordering::Acquire) {
            return Err(ApiError::busy(ENDING));
        }
        match self.experiments().into_iter().find(|folder| folder.process().is_some()) {
            Some(running) => Err(ApiError::busy(format!(
                "the experiment '{}' runs, and one runs at a time: wait for its end, or stop it",
                running.name()
            ))),
            None => Ok(()),
        }
    }

    /// Starts an experiment, whose faults are told before anything is made.
    ///
    /// # Errors
    /// It has faults, one runs, there is one of this name, the system refuses.
    pub async fn lab_start(&self, request: api::StartLab) -> Result<(), ApiError> {
        let api::StartLab { name, experiment, quick, rounds } = request;
        check_name(&name)?;
        check_text(&experiment)?;
        self.refuse_second()?;
        let asked = api::PlanLab { experiment, quick, rounds };
        let planned = self.plan_of(&asked)?;
        if !planned.plan.faults.is_empty() {
            let faults = planned.plan.faults.join("\n  ");
            return Err(ApiError::invalid(format!("cannot start the experiment '{name}':\n  {faults}")));
        }
        let _turn = self.lab.turn.lock().await;
        self.refuse_second()?;
        let directory = self.made_lab_directory()?;
        if self.experiments().len() >= MOST {
            return Err(ApiError::refused(format!("there are {MOST} experiments already: remove some")));
        }
        let folder = Folder::of(&directory, &name);
        folder.make().map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => {
                ApiError::refused(format!("there is an experiment '{name}' already: choose another name"))
            }
            _ => failed("make the folder of", &name, &error),
        })?;
        let record = Record { quick, rounds, question: planned.question, began: now(), process: None };
        let written = folder.write_asked(&asked.experiment).and_then(|()| folder.write(&record));
        let started = written.map_err(|error| failed("write the files of", &name, &error));
        let started =
            started.and_then(|()| self.spawn(&folder, record, &first_arguments(&folder, quick, rounds)));
        if started.is_err() {
            // Nothing was measured yet.
            folder.remove();
        }
        started
    }

    /// Goes on with an experiment, or adds rounds to it. One that made no directory of results begins anew.
    ///
    /// # Errors
    /// There is none of this name, one runs, the system refuses.
    pub async fn lab_resume(&self, request: api::ResumeLab) -> Result<(), ApiError> {
        let _turn = self.lab.turn.lock().await;
        let folder = self.experiment(&request.name)?;
        self.refuse_second()?;
        let record = folder.record().map_err(|error| failed("resume", &request.name, &error))?;
        let arguments = match folder.has_results() {
            true => {
                let mut arguments = vec!["lab".to_owned(), "resume".to_owned()];
                arguments.extend(folder.progress_arguments());
                arguments.extend(request.more_rounds.map(|more| format!("--more-rounds={more}")));
                arguments.push(folder.path().display().to_string());
                arguments
            }
            false => {
                let more = request.more_rounds.unwrap_or(0);
                first_arguments(
                    &folder,
                    record.quick,
                    record.rounds.map(|rounds| rounds.saturating_add(more)),
                )
            }
        };
        self.spawn(&folder, record, &arguments)
    }

    /// Interrupts an experiment, and waits for its end.
    ///
    /// # Errors
    /// There is none of this name, it does not run, or does not end soon.
    pub fn lab_stop(&self, request: &api::StopLab) -> Result<(), ApiError> {
        let folder = self.experiment(&request.name)?;
        let Some(process) = folder.process() else {
            return Err(ApiError::refused(format!("the experiment '{}' does not run", request.name)));
        };
        match programs::interrupt(&process, STOP_LIMIT) {
            true => Ok(()),
            false => Err(ApiError::busy(format!(
                "the experiment '{}' was told to end, and has not done so within {} s: it still removes what \
                 it made",
                request.name,
                STOP_LIMIT.as_secs()
            ))),
        }
    }

    /// Removes an experiment, and what it left where it was killed.
    ///
    /// # Errors
    /// There is none of this name, it runs, properties are set according to it, what it left cannot be
    /// removed.
    pub async fn lab_remove(&self, request: api::RemoveLab) -> Result<(), ApiError> {
        let name = &request.name;
        let _turn = self.lab.turn.lock().await;
        let folder = self.experiment(name)?;
        if folder.process().is_some() {
            return Err(ApiError::busy(format!("the experiment '{name}' runs: stop it first")));
        }
        let applied = folder.applied().map_err(|error| failed("read what was applied of", name, &error));
        if !request.force
            && let Some(first) = applied?.first()
        {
            return Err(ApiError::refused(format!(
                "properties of '{}' are set according to the experiment '{name}': revert that first, or \
                 remove it by force, which forgets what they were before",
                first.dataset
            )));
        }
        if folder.has_results() {
            let arguments = ["lab", "clean", "--"].map(str::to_owned).into_iter();
            let arguments: Vec<String> = arguments.chain([folder.path().display().to_string()]).collect();
            let said = self.ask_program(&arguments, Path::new("/"), CLEAN_LIMIT)?;
            if !said.is_done {
                return Err(ApiError::failed(format!(
                    "cannot remove what the experiment '{name}' left: {}",
                    said.words()
                )));
            }
        }
        lock(&self.lab.briefs).remove(name);
        match folder.remove() {
            true => Ok(()),
            false => Err(ApiError::failed(format!(
                "not all files of the experiment '{name}' could be removed: look at {}",
                self.lab_directory().display()
            ))),
        }
    }

    /// All experiments, the newest first.
    ///
    /// # Errors
    /// None.
    pub fn lab_list(&self, _: api::ListLab) -> Result<Vec<LabExperiment>, ApiError> {
        let mut all: Vec<LabExperiment> =
            self.experiments().iter().map(|folder| self.told_of(folder)).collect();
        all.sort_by(|one, other| other.began.cmp(&one.began).then_with(|| one.name.cmp(&other.name)));
        Ok(all)
    }

    /// How an experiment stands.
    fn told_of(&self, folder: &Folder) -> LabExperiment {
        let record = folder.record();
        let unreadable =
            record.as_ref().err().map(|error| format!("what is kept of it cannot be read: {error}"));
        let record = record.unwrap_or_default();
        // Before its last word is read: what ends meanwhile has said it then.
        let is_starting = lock(&self.lab.starting).as_deref() == Some(folder.name());
        let is_running = is_starting || folder.process().is_some();
        let said = folder.progress();
        let (state, error) = match unreadable {
            Some(why) => (LabState::Failed, Some(why)),
            None => stands(is_running, said.as_ref(), || folder.last_words()),
        };
        let brief = if is_running { Brief::default() } else { self.brief(folder) };
        LabExperiment {
            name: folder.name().to_owned(),
            question: record.question,
            state,
            began: record.began,
            quick: record.quick,
            progress: said.map(|said| LabProgress {
                runs: said.runs,
                of_runs: said.of_runs,
                seconds_left: said.seconds_left.filter(|_| is_running),
                now: if is_running { said.now } else { String::new() },
            }),
            is_answered: brief.is_answered,
            answer: brief.answer,
            error,
            space_bytes: folder.space_bytes(),
            applied: folder.applied().unwrap_or_default().into_iter().map(|it| it.told()).collect(),
        }
    }

    /// The answer of an experiment, where it has a report.
    fn brief(&self, folder: &Folder) -> Brief {
        let file = folder.report();
        let of = fs::metadata(&file).ok().and_then(|found| Some((found.modified().ok()?, found.len())));
        if of.is_none() {
            return Brief::default();
        }
        if let Some(known) = lock(&self.lab.briefs).get(folder.name()).filter(|known| known.of == of) {
            return known.clone();
        }
        let read: Option<Answered> = folder::read(&file, programs::MOST_BYTES)
            .ok()
            .and_then(|text| serde_json::from_slice(&text).ok());
        let answered = read.unwrap_or_default();
        let answer = answered.verdict.filter(|text| !text.is_empty());
        let brief = Brief { of, is_answered: answered.is_answered, answer };
        lock(&self.lab.briefs).insert(folder.name().to_owned(), brief.clone());
        brief
    }

    /// Interrupts the experiment that runs, because this daemon ends, and waits for its end, not for ever.
    /// None is started from now on. Blocks the thread.
    pub fn end_experiments(&self) {
        self.lab.is_ending.store(true, Ordering::SeqCst);
        for folder in self.experiments() {
            let Some(process) = folder.process() else { continue };
            tracing::info!(experiment = folder.name(), "an experiment is interrupted");
            if !programs::interrupt(&process, END_LIMIT) {
                tracing::warn!(experiment = folder.name(), "an experiment does not end, and is killed");
                programs::kill(&process);
            }
        }
    }
}

/// How an experiment stands by what its process says of itself, which runs or does not.
fn stands(
    is_running: bool,
    said: Option<&Progress>,
    last_words: impl FnOnce() -> Option<String>,
) -> (LabState, Option<String>) {
    if is_running {
        return (LabState::Running, None);
    }
    match said.map(|said| (said.state, said.error.clone())) {
        Some((Standing::Ended, _)) => (LabState::Ended, None),
        Some((Standing::Stopped, _)) => (LabState::Stopped, None),
        Some((Standing::Failed, error)) => (LabState::Failed, error.or_else(last_words)),
        Some((Standing::Running, _)) => {
            let killed = "its process is gone, and said nothing: it was killed, or the machine was restarted";
            (LabState::Stopped, Some(killed.to_owned()))
        }
        None => {
            let words = last_words().unwrap_or_else(|| "it ended before it began".to_owned());
            (LabState::Failed, Some(words))
        }
    }
}

/// The arguments with which an experiment begins.
fn first_arguments(folder: &Folder, quick: bool, rounds: Option<u32>) -> Vec<String> {
    let mut arguments = ["lab", "run", "--no-overwrite"].map(str::to_owned).to_vec();
    arguments.extend(quick.then(|| "--quick".to_owned()));
    arguments.extend(rounds.map(|rounds| format!("--rounds={rounds}")));
    arguments.extend(folder.progress_arguments());
    arguments.push(format!("--output={}", folder.path().display()));
    arguments.push(folder.asked().display().to_string());
    arguments
}

#[cfg(test)]
mod tests;
