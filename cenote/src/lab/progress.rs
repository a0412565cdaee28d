//! How an experiment goes, as it is seen and stopped.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use indicatif::{ProgressBar, ProgressStyle};
use lab::experiment::Metric;
use lab::report::written;
use lab::run::Progress;
use lab::store::Run;
use tokio::signal::unix::{SignalKind, signal};

/// A bar on the terminal; Ctrl-C ends the experiment after the run that is under way.
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

/// What becomes true when Ctrl-C is pressed.
pub fn interrupted() -> Result<Arc<AtomicBool>> {
    let stops = Arc::new(AtomicBool::new(false));
    let noted = Arc::clone(&stops);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut interrupt = {
        let _entered = runtime.enter();
        signal(SignalKind::interrupt()).context("cannot watch for Ctrl-C")?
    };
    let watch = move || {
        runtime.block_on(interrupt.recv());
        noted.store(true, Ordering::Release);
    };
    std::thread::Builder::new().name("interrupt".into()).spawn(watch)?;
    Ok(stops)
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
