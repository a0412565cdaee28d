//! Progress: what is said while an experiment is carried out, and whether the user stops it.

use std::time::Duration;

use crate::error::Error;
use crate::size::Size;
use crate::store::Run;

/// Something that is made ready before a run, or copied by one.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Part<'a> {
    /// The workload and the variant.
    pub what: &'a str,
    /// Bytes that are done.
    pub done: Size,
    /// Bytes in all.
    pub total: Size,
    /// How long that took.
    pub elapsed: Duration,
}

impl Part<'_> {
    /// Bytes in a second; nothing before there are any.
    pub fn rate(&self) -> Option<f64> {
        let rate = self.done.0 as f64 / self.elapsed.as_secs_f64();
        (rate.is_finite() && rate > 0.0).then_some(rate)
    }

    /// How long the rest takes, if it goes on like that.
    pub fn left(&self) -> Option<Duration> {
        let rest = self.total.0.saturating_sub(self.done.0) as f64;
        Duration::try_from_secs_f64(rest / self.rate()?).ok()
    }
}

/// Receives progress.
pub trait Progress {
    /// A run begins: how many are done, how many there are at least, how long these take with this one as far
    /// as that is known, and what it is.
    fn begins(&self, done: usize, total: usize, left: Option<Duration>, what: &str);
    /// A run ended.
    fn ended(&self, run: &Run);
    /// A run failed: which one it was, why, and whether it is tried again.
    fn failed(&self, _what: &str, _error: &Error, _is_tried_again: bool) {}
    /// A part goes on.
    fn goes_on(&self, _: Part<'_>) {}
    /// Whether the user stopped it: at once. A run under way is not kept then, and is repeated when the
    /// experiment continues.
    fn stops(&self) -> bool;
}

/// How an experiment ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// All rounds are done.
    Complete,
    /// The user stopped it; it can be continued.
    Stopped,
}
