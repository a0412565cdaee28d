//! Processes of this program: `cenote lab …`.
//!
//! The program is the very file that the daemon runs, also where another version lies in its place by now. It
//! asks this daemon, by its socket, and is told nothing else of the daemon's environment that would make it
//! the daemon of a service, or one with the same pools.

use std::fs::File;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use super::failed;
use super::folder::{Folder, Record};
use crate::api::ApiError;
use crate::daemon::{Daemon, lock};
use crate::progress_file::Process;

/// This process's own file.
const OWN_PROGRAM: &str = "/proc/self/exe";
/// The most that a program may answer, in bytes.
pub(super) const MOST_BYTES: u64 = 64 << 20;
/// The most that is kept of what it says besides, in bytes.
const MOST_WORDS: u64 = 64 << 10;
/// The most programs that answer at a time.
const AT_A_TIME: usize = 4;
/// How often a process is looked at.
const LOOK: Duration = Duration::from_millis(10);
/// What a child of the daemon is not to have of its environment: the service manager's, and where pools of
/// this daemon are.
const NOT_ITS: [&str; 7] = [
    "NOTIFY_SOCKET",
    "WATCHDOG_USEC",
    "WATCHDOG_PID",
    "LISTEN_FDS",
    "LISTEN_PID",
    "LISTEN_FDNAMES",
    "CENOTE_CACHEFILE",
];

/// What a program answered.
#[derive(Debug)]
pub(super) struct Said {
    /// It ended without an error.
    pub is_done: bool,
    /// Its standard output.
    pub output: Vec<u8>,
    /// Its standard error.
    pub words: String,
}

impl Said {
    /// Its error, for a person.
    pub fn words(&self) -> String {
        let words = self.words.trim();
        match words.strip_prefix("cenote: ").unwrap_or(words) {
            "" => "the lab ended without a word".to_owned(),
            words => words.to_owned(),
        }
    }
}

/// A program that runs, counted as long as it lasts.
struct Counted<'a>(&'a AtomicUsize);

impl<'a> Counted<'a> {
    fn begin(count: &'a AtomicUsize) -> Option<Self> {
        let more = |running: usize| (running < AT_A_TIME).then_some(running + 1);
        count.fetch_update(Ordering::AcqRel, Ordering::Acquire, more).ok()?;
        Some(Self(count))
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Daemon {
    fn program(&self, arguments: &[String], directory: &Path) -> Command {
        let program = self.lab.program.get().cloned().unwrap_or_else(|| PathBuf::from(OWN_PROGRAM));
        let mut command = Command::new(program);
        command.arg0("cenote").args(arguments).current_dir(directory).stdin(Stdio::null());
        for name in NOT_ITS {
            command.env_remove(name);
        }
        if let Some(socket) = self.lab.socket.get() {
            command.env("CENOTE_SOCKET", socket);
        }
        // A group of its own, so that all of it can be ended, and signals of a terminal do not reach it.
        command.process_group(0);
        command
    }

    /// Has the program answer something, within a limit of time. Blocks the thread.
    ///
    /// # Errors
    /// It cannot be run, takes too long, or answers too much; too many run.
    pub(super) fn ask_program(
        &self,
        arguments: &[String],
        directory: &Path,
        limit: Duration,
    ) -> Result<Said, ApiError> {
        let Some(_counted) = Counted::begin(&self.lab.running) else {
            return Err(ApiError::busy("the lab answers other requests: try again in a moment"));
        };
        let mut command = self.program(arguments, directory);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let cannot = |error: std::io::Error| ApiError::failed(format!("cannot run 'cenote lab': {error}"));
        let mut child = command.spawn().map_err(cannot)?;
        let (output, words) = (child.stdout.take(), child.stderr.take());
        let (ended, output, words) = std::thread::scope(|scope| {
            let output = scope.spawn(move || output.map(|from| read(from, MOST_BYTES)));
            let words = scope.spawn(move || words.map(|from| read(from, MOST_WORDS)));
            let ended = wait(&mut child, limit);
            let all = |read: std::thread::ScopedJoinHandle<'_, Option<Vec<u8>>>| {
                read.join().ok().flatten().unwrap_or_default()
            };
            (ended, all(output), all(words))
        });
        let is_done = ended?;
        if output.len() as u64 > MOST_BYTES {
            return Err(ApiError::failed(format!("the lab answers more than {} MiB", MOST_BYTES >> 20)));
        }
        Ok(Said { is_done, output, words: String::from_utf8_lossy(&words).into_owned() })
    }

    /// Starts the process that carries out an experiment, and keeps which one it is.
    ///
    /// # Errors
    /// The system's: it does not run then.
    pub(super) fn spawn(
        &self,
        folder: &Folder,
        record: Record,
        arguments: &[String],
    ) -> Result<(), ApiError> {
        *lock(&self.lab.starting) = Some(folder.name().to_owned());
        let spawned = self.spawn_now(folder, record, arguments);
        *lock(&self.lab.starting) = None;
        spawned
    }

    fn spawn_now(&self, folder: &Folder, record: Record, arguments: &[String]) -> Result<(), ApiError> {
        let name = folder.name();
        let cannot = |error: std::io::Error| failed("start", name, &error);
        folder.forget_progress().map_err(cannot)?;
        let words = File::create(folder.words()).map_err(cannot)?;
        let mut command = self.program(arguments, Path::new("/"));
        let mut child = command.stdout(Stdio::null()).stderr(words).spawn().map_err(cannot)?;
        // The daemon is spared when memory is short; what it runs for clients is not.
        let _ = std::fs::write(format!("/proc/{}/oom_score_adj", child.id()), "0");
        let process = Process::of(child.id());
        if let Err(error) = folder.write(&Record { process: process.clone(), ..record }) {
            if let Some(process) = &process {
                // It has made nothing, or little: it removes that.
                interrupt(process, super::END_LIMIT);
                kill(process);
            }
            let _ = child.wait();
            return Err(cannot(error));
        }
        // Where the daemon began to end meanwhile, it may have looked for what runs before this was there.
        if self.lab.is_ending.load(Ordering::SeqCst)
            && let Some(process) = &process
        {
            interrupt(process, super::END_LIMIT);
            kill(process);
        }
        let name = name.to_owned();
        let wait = move || {
            let ended = child.wait().map_or_else(|error| error.to_string(), |status| status.to_string());
            tracing::info!(experiment = name, ended, "the process of an experiment ended");
        };
        if let Err(error) = std::thread::Builder::new().name("lab".into()).spawn(wait) {
            // It runs all the same. Its number stays taken until the daemon ends.
            tracing::warn!(%error, "no thread waits for the end of an experiment");
        }
        Ok(())
    }
}

/// What comes until the end, or one byte more than a limit. What comes after that is not kept.
fn read(from: impl Read, most: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    // What was read before an error is all that there is.
    let _ = from.take(most + 1).read_to_end(&mut bytes);
    bytes
}

/// Waits for a program; whether it ended without an error. One that takes too long is ended with its group.
fn wait(child: &mut Child, limit: Duration) -> Result<bool, ApiError> {
    let until = Instant::now() + limit;
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Ok(status.success()),
            Ok(None) if Instant::now() < until => std::thread::sleep(LOOK),
            ended => {
                if let Some(group) = pid(child.id()) {
                    let _ = kill_process_group(group, Signal::KILL);
                }
                let _ = child.wait();
                return Err(match ended {
                    Err(error) => ApiError::failed(format!("'cenote lab' cannot be waited for: {error}")),
                    Ok(_) => ApiError::failed(format!("the lab did not answer within {} s", limit.as_secs())),
                });
            }
        }
    }
}

fn pid(id: u32) -> Option<Pid> {
    i32::try_from(id).ok().and_then(Pid::from_raw)
}

/// Tells a process to end, and waits for that; whether it did.
pub(super) fn interrupt(process: &Process, limit: Duration) -> bool {
    if let Some(id) = pid(process.id).filter(|_| process.is_alive()) {
        let _ = kill_process(id, Signal::TERM);
    }
    is_gone(process, limit)
}

/// Ends a process at once, with its group.
pub(super) fn kill(process: &Process) {
    if let Some(id) = pid(process.id).filter(|_| process.is_alive()) {
        let _ = kill_process_group(id, Signal::KILL);
        is_gone(process, super::END_LIMIT);
    }
}

fn is_gone(process: &Process, limit: Duration) -> bool {
    let until = Instant::now() + limit;
    while process.is_alive() {
        if Instant::now() >= until {
            return false;
        }
        std::thread::sleep(LOOK);
    }
    true
}
