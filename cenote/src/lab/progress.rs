//! How an experiment goes, as it is seen and stopped.

use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;

use anyhow::{Context, Result};
use indicatif::{ProgressBar, ProgressStyle};
use lab::experiment::Metric;
use lab::report::written;
use lab::run::Progress;
use lab::store::Run;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// A bar on the terminal; Ctrl-C, a hang-up or a request to terminate ends the experiment after the run that is under way.
pub struct Shown {
    bar: ProgressBar,
    stops: Arc<AtomicBool>,
}

impl Shown {
    /// Begins.
    pub fn start() -> Result<Self> {
        let style =
            ProgressStyle::with_template("{elapsed_precise} [{wide_bar}] {pos}/{len}, {eta} left\n{msg}")
                .context("the progress bar's template is wrong")?;
        let bar = ProgressBar::new(0).with_style(style);
        bar.enable_steady_tick(Duration::from_millis(500));
        Ok(Self { bar, stops: interrupted()? })
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

    fn stops(&self) -> bool {
        self.stops.load(Ordering::Acquire)
    }
}
