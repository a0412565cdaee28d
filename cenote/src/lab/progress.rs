//! Shows the progress of an experiment, and lets the user stop it.
//!
//! Preparations before a run, which may take longer than the run, are shown with their own progress in the
//! terminal's second line. Without a terminal, a line now and then says how far the experiment or a
//! preparation is and how long the rest takes.

use std::fmt;
use std::future::poll_fn;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use device::IgnorePoison;
use indicatif::{ProgressBar, ProgressState, ProgressStyle};
use lab::experiment::Metric;
use lab::progress::{Part, Progress};
use lab::report::written;
use lab::store::{Run, Stage};
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::output;

/// How often lines are written where there is no terminal, and from when on.
const LINE_EVERY: Duration = Duration::from_secs(30);

/// A bar on the terminal; Ctrl-C, a hang-up or a request to terminate ends the run that is under way, or what
/// is made ready, and the experiment with it. A second one ends this process at once.
pub struct Shown {
    bar: ProgressBar,
    /// How long the rest takes, for the bar.
    rest: Arc<Mutex<Rest>>,
    stops: Arc<AtomicBool>,
    lines: Mutex<Lines>,
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
    /// Begins.
    pub fn start() -> Result<Self> {
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
        Ok(Self { bar, rest, stops: interrupted(last_words)?, lines })
    }

    /// Writes a line where there is no terminal, if it is time for one.
    fn tell(&self, words: impl FnOnce(&Lines) -> String) {
        let mut lines = self.lines.lock().ignore_poison();
        if self.bar.is_hidden() && lines.is_due(LINE_EVERY) {
            eprintln!("{}", words(&lines));
        }
    }

    /// Ends.
    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

/// A flag that becomes true when Ctrl-C is pressed, the terminal goes away, or another process asks this
/// process to terminate. Who does that again ends it at once, with these words.
pub fn interrupted(last_words: &'static str) -> Result<Arc<AtomicBool>> {
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
        self.tell(Lines::far);
    }

    fn failed(&self, what: &str, error: &lab::Error, is_tried_again: bool) {
        let next = if is_tried_again { "it is tried again" } else { "it failed each time that it was tried" };
        self.bar.suspend(|| eprintln!("{what}: {error}; {next}"));
    }

    fn ended(&self, run: &Run) {
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
        self.stops.load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lab::size::Size;

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
