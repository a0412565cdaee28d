//! A bar on the terminal for bytes that go through a command.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// How often the bar is drawn anew, in a second.
const DRAWS: u8 = 5;
/// What is done sooner than this needs no bar.
const BEFORE: Duration = Duration::from_millis(500);

/// How far a stream of bytes is, on standard error.
#[derive(Debug)]
pub struct Progress {
    bar: Option<ProgressBar>,
    /// It counts things and not bytes.
    is_count: bool,
    total_bytes: Option<u64>,
    began: Instant,
    done_bytes: u64,
}

impl Progress {
    /// Nothing is shown.
    pub fn hidden() -> Self {
        Self { bar: None, is_count: false, total_bytes: None, began: Instant::now(), done_bytes: 0 }
    }

    /// A bar, for so many bytes where that is known.
    pub fn shown(total_bytes: Option<u64>) -> Self {
        let bar = ProgressBar::with_draw_target(total_bytes, ProgressDrawTarget::stderr_with_hz(DRAWS));
        Self { bar: Some(bar), total_bytes, ..Self::hidden() }
    }

    /// A bar for things that are counted.
    pub fn counting() -> Self {
        let mut this = Self::shown(None);
        this.is_count = true;
        this
    }

    /// How many there will be, where that is known.
    pub fn total(&mut self, total: Option<u64>) {
        self.total_bytes = total;
    }

    /// How many bytes there will be, as far as that can be said before.
    pub fn expect(&mut self, more_bytes: u64) {
        self.total_bytes = Some(self.total_bytes.unwrap_or(0).saturating_add(more_bytes));
    }

    /// So many bytes more went through.
    pub fn advance(&mut self, bytes: u64) {
        self.done_bytes = self.done_bytes.saturating_add(bytes);
        let Some(bar) = self.bar.as_ref().filter(|_| self.began.elapsed() >= BEFORE) else { return };
        let style = match self.total_bytes {
            Some(_) if self.is_count => "{bar:32} {pos}/{len} {wide_msg}",
            None if self.is_count => "{spinner} {pos} {wide_msg}",
            Some(_) => {
                "{bar:32} {binary_bytes}/{binary_total_bytes} {binary_bytes_per_sec}, {eta} left {wide_msg}"
            }
            None => "{spinner} {binary_bytes} {binary_bytes_per_sec}, {elapsed} {wide_msg}",
        };
        if let Ok(style) = ProgressStyle::with_template(style) {
            bar.set_style(style);
        }
        if let Some(total) = self.total_bytes {
            bar.set_length(total.max(self.done_bytes));
        }
        bar.set_position(self.done_bytes);
    }

    /// What goes through now.
    pub fn name(&self, name: &str) {
        if let Some(bar) = &self.bar {
            bar.set_message(name.to_owned());
        }
    }

    /// Makes place for lines of text; the bar comes back with the next bytes.
    pub fn suspend<T>(&self, print: impl FnOnce() -> T) -> T {
        match &self.bar {
            Some(bar) => bar.suspend(print),
            None => print(),
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
