//! Shows the progress of an experiment, and lets the user stop it.
//!
//! Preparations before a run, which may take longer than the run, are shown with their own progress in the
//! terminal's second line. Without a terminal, a line now and then says how far the experiment or a
//! preparation is and how long the rest takes. For a program, a file says so ([`Watch`]): then there are no
//! such lines.

use std::fmt;
use std::future::poll_fn;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::Args;
use device::IgnorePoison;
use indicatif::{ProgressBar, ProgressState, ProgressStyle};
use lab::experiment::Metric;
use lab::progress::{Part, Progress};
use lab::report::written;
use lab::store::{Run, Stage};
use server::progress_file::{self, Process, Standing};
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::output;

/// How often lines are written where there is no terminal, and from when on.
const LINE_EVERY: Duration = Duration::from_secs(30);

/// How often a file with the progress is written at most.
const FILE_EVERY: Duration = Duration::from_millis(250);

/// A program that watches.
#[derive(Debug, Clone, Default, Args)]
pub struct Watch {
    /// Keep in this file how far it is, as JSON, for a program: state, runs, of_runs, seconds_left, now,
    /// error. The file is replaced as a whole. A second signal does not end the experiment at once then
    #[arg(long, value_name = "FILE")]
    progress: Option<PathBuf>,
}

impl Watch {
    /// Begins to keep the file, where one is asked for.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn begin(&self) -> Result<Kept> {
        let told = progress_file::Progress { process: Process::own(), ..progress_file::Progress::default() };
        if let Some(file) = &self.progress {
            told.write(file).with_context(|| format!("cannot write {}", file.display()))?;
        }
        let state = State { told, written: Instant::now(), is_newer: false, is_faulty: false };
        Ok(Kept { file: self.progress.clone(), state: Arc::new(Mutex::new(state)) })
    }
}

/// The file with the progress, where there is one.
#[derive(Debug, Clone, Default)]
pub struct Kept {
    file: Option<PathBuf>,
    state: Arc<Mutex<State>>,
}

#[derive(Debug)]
struct State {
    told: progress_file::Progress,
    /// When the file was written.
    written: Instant,
    /// Than the file.
    is_newer: bool,
    /// The file could not be written, which was told.
    is_faulty: bool,
}

impl Default for State {
    fn default() -> Self {
        let told = progress_file::Progress::default();
        Self { told, written: Instant::now(), is_newer: false, is_faulty: false }
    }
}

impl Kept {
    /// Does all of it, and keeps how it ended.
    pub fn over(&self, work: impl FnOnce() -> Result<()>) -> Result<()> {
        let done = work();
        self.change(true, |told| match &done {
            Ok(()) => told.state = Standing::Ended,
            // What was interrupted has said so.
            Err(_) if told.state == Standing::Stopped => {}
            Err(error) => {
                told.state = Standing::Failed;
                told.error = Some(format!("{error:#}"));
            }
        });
        done
    }

    /// It was interrupted.
    pub fn stopped(&self) {
        self.change(true, |told| told.state = Standing::Stopped);
    }

    /// Changes what is kept; the file is written `now`, or when it is its turn.
    fn change(&self, now: bool, change: impl FnOnce(&mut progress_file::Progress)) {
        let Some(file) = &self.file else { return };
        let mut state = self.state.lock().ignore_poison();
        let before = state.told.clone();
        change(&mut state.told);
        state.is_newer |= before != state.told;
        if !now && (!state.is_newer || state.written.elapsed() < FILE_EVERY) {
            return;
        }
        state.written = Instant::now();
        match state.told.write(file) {
            Ok(()) => (state.is_newer, state.is_faulty) = (false, false),
            // It is tried again, and is no reason to stop.
            Err(error) => {
                if !std::mem::replace(&mut state.is_faulty, true) {
                    eprintln!("cannot write {}: {error}", file.display());
                }
            }
        }
    }
}

/// A bar on the terminal; Ctrl-C, a hang-up or a request to terminate ends the run that is under way, or what
/// is made ready, and the experiment with it. A second one ends this process at once.
pub struct Shown {
    bar: ProgressBar,
    /// How long the rest takes, for the bar.
    rest: Arc<Mutex<Rest>>,
    stops: Arc<AtomicBool>,
    lines: Mutex<Lines>,
    kept: Kept,
}

/// The output without a terminal.
struct Lines {
    /// When the last line was written.
    told: Instant,
    /// Runs that are done.
    done: usize,
    total: usize,
    rest: Rest,
    /// The run that is under way.
    what: String,
}

/// How long the rest took as of a moment, if that was known.
#[derive(Debug, Default, Clone, Copy)]
struct Rest(Option<(Duration, Instant)>);

impl Rest {
    /// As of now, to be put behind other words; nothing where it is not known.
    fn words(self) -> String {
        self.0.map_or_else(String::new, |(rest, at)| left(rest.saturating_sub(at.elapsed())))
    }
}

impl Lines {
    /// Whether it is time for another, which is then taken as written.
    fn is_due(&mut self, every: Duration) -> bool {
        let is_due = self.told.elapsed() >= every;
        if is_due {
            self.told = Instant::now();
        }
        is_due
    }

    /// How far the experiment is: runs that are done, of how many, and how long the rest takes.
    fn far(&self) -> String {
        format!("{} of {} runs{}; {}", self.done, self.total, self.rest.words(), self.what)
    }
}

impl Shown {
    /// Begins, and keeps the file with the progress, where there is one.
    pub fn start(kept: &Kept) -> Result<Self> {
        let style = ProgressStyle::with_template("{elapsed_precise} [{wide_bar}] {pos}/{len}{rest}\n{msg}")
            .context("the progress bar's template is wrong")?;
        let rest = Arc::new(Mutex::new(Rest::default()));
        let shown = Arc::clone(&rest);
        let style = style.with_key("rest", move |_: &ProgressState, text: &mut dyn fmt::Write| {
            let rest = *shown.lock().ignore_poison();
            // A bar that cannot be written is not shown.
            let _ = text.write_str(&rest.words());
        });
        let bar = ProgressBar::new(0).with_style(style);
        bar.enable_steady_tick(Duration::from_millis(500));
        let now = Instant::now();
        let what = String::new();
        let lines = Mutex::new(Lines { told: now, done: 0, total: 0, rest: Rest::default(), what });
        let last_words = "ended at once; its files and pools are left: `cenote lab resume` goes on with \
            them, `cenote lab clean` removes them";
        // A program has other means, and one that ends all processes of a service sends it several signals.
        let last_words = kept.file.is_none().then_some(last_words);
        Ok(Self { bar, rest, stops: interrupted(last_words)?, lines, kept: kept.clone() })
    }

    /// Writes a line where there is no terminal, if it is time for one.
    fn tell(&self, words: impl FnOnce(&Lines) -> String) {
        let mut lines = self.lines.lock().ignore_poison();
        if self.kept.file.is_none() && self.bar.is_hidden() && lines.is_due(LINE_EVERY) {
            eprintln!("{}", words(&lines));
        }
    }

    /// Ends.
    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

/// A flag that becomes true when Ctrl-C is pressed, the terminal goes away, or another process asks this
/// process to terminate. Where that happens again, the process ends at once, with these words, if there are
/// any.
pub fn interrupted(last_words: Option<&'static str>) -> Result<Arc<AtomicBool>> {
    let stops = Arc::new(AtomicBool::new(false));
    let noted = Arc::clone(&stops);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut signals = vec![SignalKind::interrupt(), SignalKind::terminate()];
    // Under `nohup` it goes on.
    if !ignores_hangups() {
        signals.push(SignalKind::hangup());
    }
    let watched: io::Result<Vec<Signal>> = {
        let _entered = runtime.enter();
        signals.into_iter().map(signal).collect()
    };
    let mut watched = watched.context("cannot watch for Ctrl-C")?;
    let watch = move || {
        let mut wait = || {
            runtime.block_on(poll_fn(|context| {
                match watched.iter_mut().any(|signal| signal.poll_recv(context).is_ready()) {
                    true => Poll::Ready(()),
                    false => Poll::Pending,
                }
            }));
        };
        wait();
        noted.store(true, Ordering::Release);
        let Some(last_words) = last_words else {
            loop {
                wait();
            }
        };
        wait();
        eprintln!("{last_words}");
        std::process::exit(output::FAILED.into());
    };
    std::thread::Builder::new().name("interrupt".into()).spawn(watch)?;
    Ok(stops)
}

/// Whether the process was started to outlive the terminal.
fn ignores_hangups() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    ignored.is_some_and(|mask| mask & 1 << (libc::SIGHUP - 1) != 0)
}

/// How far something is, how fast it goes, and how long the rest takes.
fn far(part: &Part<'_>) -> String {
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    let mut words = format!("{}: {:.0} of {:.0} MiB", part.what, mib(part.done.0), mib(part.total.0));
    if let Some(rate) = part.rate() {
        words.push_str(&format!(", {}", written(Metric::Throughput, rate)));
    }
    words.push_str(&part.left().map_or_else(String::new, left));
    words
}

/// How long the rest takes, to be put behind other words; nothing where there is no rest.
fn left(rest: Duration) -> String {
    let seconds = rest.as_secs_f64();
    match rest.as_secs() {
        _ if rest.is_zero() => String::new(),
        0..90 => format!(", {seconds:.0} s left"),
        90..5400 => format!(", {:.0} min left", seconds / 60.0),
        _ => format!(", {:.1} h left", seconds / 3600.0),
    }
}

impl Progress for Shown {
    fn begins(&self, done: usize, total: usize, left: Option<Duration>, what: &str) {
        let rest = Rest(left.map(|left| (left, Instant::now())));
        *self.rest.lock().ignore_poison() = rest;
        self.bar.set_length(total as u64);
        self.bar.set_position(done as u64);
        self.bar.set_message(what.to_owned());
        {
            let mut lines = self.lines.lock().ignore_poison();
            (lines.done, lines.total, lines.rest) = (done, total, rest);
            what.clone_into(&mut lines.what);
        }
        self.kept.change(false, |told| {
            (told.runs, told.of_runs) = (done as u64, total as u64);
            told.seconds_left = left.map(|left| left.as_secs_f64());
            what.clone_into(&mut told.now);
        });
        self.tell(Lines::far);
    }

    fn failed(&self, what: &str, error: &lab::Error, is_tried_again: bool) {
        let next = if is_tried_again { "it is tried again" } else { "it failed each time that it was tried" };
        self.bar.suspend(|| eprintln!("{what}: {error}; {next}"));
    }

    fn ended(&self, run: &Run) {
        self.kept.change(false, |told| told.runs += 1);
        if run.stage == Stage::LeftOut {
            self.bar.set_message(format!("{}, {}: left out", run.variant, run.workload));
            return self.bar.inc(1);
        }
        self.bar.set_message(format!(
            "{}, {}: {}",
            run.variant,
            run.workload,
            written(Metric::Iops, run.figures.iops)
        ));
        self.bar.inc(1);
    }

    fn goes_on(&self, part: Part<'_>) {
        self.kept.change(false, |told| told.now = far(&part));
        if !self.bar.is_hidden() {
            return self.bar.set_message(far(&part));
        }
        if part.elapsed >= LINE_EVERY {
            self.tell(|_| far(&part));
        }
    }

    fn stops(&self) -> bool {
        // This is asked again and again while a run goes on, however long it is.
        self.tell(Lines::far);
        self.kept.change(false, |_| {});
        self.stops.load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lab::size::Size;

    #[test]
    fn a_program_reads_how_far_it_is_and_how_it_ended() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("progress.json");
        let watch = Watch { progress: Some(file.clone()) };
        let read = || progress_file::Progress::read(&file).unwrap();
        let kept = watch.begin().unwrap();
        assert!(read().state == Standing::Running && read().process.is_alive());
        kept.over(|| {
            kept.change(true, |told| told.runs = 2);
            assert_eq!(read().runs, 2);
            // What comes soon after waits for its turn, and is not lost.
            kept.change(false, |told| told.runs = 3);
            Ok(())
        })
        .unwrap();
        assert_eq!((read().runs, read().state), (3, Standing::Ended));
        let stopped = watch.begin().unwrap();
        let ended = stopped.over(|| {
            stopped.stopped();
            Err(crate::output::Exit(output::FAILED).into())
        });
        assert!(ended.is_err() && read().state == Standing::Stopped && read().error.is_none());
        watch.begin().unwrap().over(|| anyhow::bail!("no room")).unwrap_err();
        assert_eq!((read().state, read().error.as_deref()), (Standing::Failed, Some("no room")));
        Watch::default().begin().unwrap().over(|| Ok(())).unwrap();
        let nowhere = Watch { progress: Some(directory.path().join("none/file")) };
        assert!(nowhere.begin().is_err());
    }

    #[test]
    fn it_is_told_how_many_runs_are_done_and_how_long_the_rest_takes() {
        let what = "a".to_owned();
        let rest = Rest::default();
        let mut lines = Lines { told: Instant::now(), done: 4, total: 100, rest, what };
        assert_eq!(lines.far(), "4 of 100 runs; a");
        let mut far = |seconds| {
            let seconds = Duration::from_secs(seconds) + Duration::from_millis(499);
            lines.rest = Rest(Some((seconds, Instant::now())));
            lines.far()
        };
        assert_eq!(far(80), "4 of 100 runs, 80 s left; a");
        assert_eq!(far(8000), "4 of 100 runs, 2.2 h left; a");
        assert!(!lines.is_due(Duration::from_secs(60)) && lines.is_due(Duration::ZERO));
    }

    #[test]
    fn it_is_told_how_far_how_fast_and_how_long_still() {
        let part = |done: u64, seconds| Part {
            what: "filling v",
            done: Size(done << 20),
            total: Size(4096 << 20),
            elapsed: Duration::from_secs(seconds),
        };
        assert_eq!(far(&part(0, 0)), "filling v: 0 of 4096 MiB");
        assert_eq!(far(&part(1024, 10)), "filling v: 1024 of 4096 MiB, 102 MiB/s, 30 s left");
        assert_eq!(far(&part(1024, 100)), "filling v: 1024 of 4096 MiB, 10.2 MiB/s, 5 min left");
        assert_eq!(far(&part(4096, 40)), "filling v: 4096 of 4096 MiB, 102 MiB/s");
    }
}
