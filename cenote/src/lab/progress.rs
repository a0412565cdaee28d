//! How an experiment goes, as it is seen and stopped.
//!
//! What is made ready before a run, and may take longer than that, is told of by how far it is: in the terminal's second line, and where there is no terminal in a line of its own now and then.

use std::future::poll_fn;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use indicatif::{ProgressBar, ProgressStyle};
use lab::experiment::Metric;
use lab::report::written;
use lab::run::{Part, Progress};
use lab::store::Run;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// How often lines are written where there is no terminal, and from when on.
const LINE_EVERY: Duration = Duration::from_secs(30);

/// A bar on the terminal; Ctrl-C, a hang-up or a request to terminate ends the experiment after the run that is under way, and what is made ready at once.
pub struct Shown {
    bar: ProgressBar,
    stops: Arc<AtomicBool>,
    /// When the last line was written.
    told: Mutex<Instant>,
}

impl Shown {
    /// Begins.
    pub fn start() -> Result<Self> {
        let style =
            ProgressStyle::with_template("{elapsed_precise} [{wide_bar}] {pos}/{len}, {eta} left\n{msg}")
                .context("the progress bar's template is wrong")?;
        let bar = ProgressBar::new(0).with_style(style);
        bar.enable_steady_tick(Duration::from_millis(500));
        Ok(Self { bar, stops: interrupted()?, told: Mutex::new(Instant::now()) })
    }

    /// Ends.
    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

/// What becomes true when Ctrl-C is pressed, the terminal goes away, or somebody asks this process to terminate.
pub fn interrupted() -> Result<Arc<AtomicBool>> {
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
        runtime.block_on(poll_fn(|context| {
            match watched.iter_mut().any(|signal| signal.poll_recv(context).is_ready()) {
                true => Poll::Ready(()),
                false => Poll::Pending,
            }
        }));
        noted.store(true, Ordering::Release);
    };
    std::thread::Builder::new().name("interrupt".into()).spawn(watch)?;
    Ok(stops)
}

/// Whether whoever started this process wants it to outlive the terminal.
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
    match part.left() {
        Some(left) if left >= Duration::from_secs(90) => {
            words.push_str(&format!(", {:.0} min left", left.as_secs_f64() / 60.0));
        }
        Some(left) if !left.is_zero() => words.push_str(&format!(", {:.0} s left", left.as_secs_f64())),
        _ => {}
    }
    words
}

impl Progress for Shown {
    fn begins(&self, done: usize, total: usize, what: &str) {
        self.bar.set_length(total as u64);
        self.bar.set_position(done as u64);
        self.bar.set_message(what.to_owned());
    }

    fn ended(&self, run: &Run) {
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
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if part.elapsed >= LINE_EVERY && told.elapsed() >= LINE_EVERY {
            *told = Instant::now();
            eprintln!("{}", far(&part));
        }
    }

    fn stops(&self) -> bool {
        self.stops.load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lab::size::Size;

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
