//! Operations and bytes in each time step of a run.
//!
//! The figure of a run hides its course: caches that filled, a log that ran full, commits that every client
//! waited for. The series shows it. A step is so long that a run has about forty of them, and never shorter
//! than [`LEAST_STEP`].
//!
//! # Where series come from
//! | run | how it is counted |
//! |---|---|
//! | fio for a time, or a trace with its own pauses | fio's logs of latencies as histograms (`write_hist_log`): each job records the number of operations since its last record |
//! | a load in the process | each operation counts in the step in which it ends |
//! | a copy | pieces by the time when they were written; steps are chosen afterwards |
//! | files, a trace replayed at once | not at all: the length of such a run is not known before |
//!
//! fio's other ways were tried with 3.33 and are of no use: `write_iops_log` is written by one thread for all
//! jobs, which on a busy machine is late and leaves steps out, and after `ramp_time` ends early for some
//! jobs; with `status-interval` fio stops now and then. Histograms are recorded by the jobs themselves as
//! operations end, so their sums are exact. Their times are exact to the end of the operation that ended a
//! step.
//!
//! Where records are not at the ends of steps, operations between two records count as evenly spread. The sum
//! over all steps is the count of the run.

use serde::{Deserialize, Serialize};

/// Steps that a run should have.
const STEPS: f64 = 40.0;
/// The shortest step, in seconds.
pub const LEAST_STEP: f64 = 0.1;
/// A last step that is shorter than this share of one has no rate.
const LEAST_SHARE: f64 = 0.45;

/// The step for a run of so many seconds: whole milliseconds.
pub fn step(seconds: f64) -> f64 {
    ((seconds / STEPS * 1000.0).ceil() / 1000.0).max(LEAST_STEP)
}

/// How much was done by when: from nothing at 0 on, straight from point to point.
#[derive(Debug, Clone, Default)]
pub(crate) struct Course(Vec<(f64, f64)>);

impl Course {
    /// By `seconds`, not before the last point's, so many more were done.
    pub fn add(&mut self, seconds: f64, count: f64) {
        let (at, all) = self.last();
        self.0.push((seconds.max(at), all + count));
    }

    /// The last point.
    pub fn last(&self) -> (f64, f64) {
        self.0.last().copied().unwrap_or_default()
    }

    fn at(&self, seconds: f64) -> f64 {
        let next = self.0.partition_point(|(at, _)| *at <= seconds);
        let (from, done) = next.checked_sub(1).map_or((0.0, 0.0), |before| self.0[before]);
        let Some((to, then)) = self.0.get(next) else { return done };
        done + (then - done) * (seconds - from) / (to - from)
    }
}

/// Operations and bytes, step by step.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Series {
    /// Seconds of a step; the last may be shorter.
    pub step: f64,
    /// Seconds of all.
    pub seconds: f64,
    /// Operations that ended in each.
    pub operations: Vec<u64>,
    /// Their bytes.
    pub bytes: Vec<u64>,
}

impl Series {
    /// Of operations that have these courses, each with the bytes of one operation.
    pub(crate) fn of(courses: &[(Course, f64)], seconds: f64, step: f64) -> Self {
        // What is a step but for a rounding is one.
        let steps = (seconds / step - 1e-6).ceil().max(0.0) as usize;
        let ends = (1..=steps).map(|number| (number as f64 * step).min(seconds));
        let (mut operations, mut bytes) = (Vec::new(), Vec::new());
        let mut before = (0, 0);
        for end in ends {
            let all = |weight: fn(f64) -> f64| {
                courses.iter().map(|(course, each)| course.at(end) * weight(*each)).sum::<f64>().round()
                    as u64
            };
            let now = (all(|_| 1.0), all(|each| each));
            operations.push(now.0.saturating_sub(before.0));
            bytes.push(now.1.saturating_sub(before.1));
            before = now;
        }
        Self { step, seconds, operations, bytes }
    }

    /// The same in steps of another length, at least as long as its own.
    pub fn in_steps_of(&self, step: f64) -> Self {
        let course = |counts: &[u64]| {
            let mut course = Course::default();
            for (number, count) in (1..).zip(counts) {
                course.add((f64::from(number) * self.step).min(self.seconds), *count as f64);
            }
            course
        };
        let operations = Self::of(&[(course(&self.operations), 1.0)], self.seconds, step).operations;
        let bytes = Self::of(&[(course(&self.bytes), 1.0)], self.seconds, step).operations;
        Self { step, seconds: self.seconds, operations, bytes }
    }

    /// Of `counts`, which are its operations or its bytes, how many in a second, step by step; without a last
    /// step that is too short to count.
    pub fn rates(&self, counts: &[u64]) -> Vec<f64> {
        let lengths = (0..).map(|number| (self.seconds - f64::from(number) * self.step).min(self.step));
        let rates = lengths.zip(counts).filter(|(length, _)| *length >= LEAST_SHARE * self.step);
        rates.map(|(length, count)| *count as f64 / length).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_have_some_forty_steps_and_none_is_too_short() {
        for (seconds, expected) in
            [(0.2, 0.1), (1.0, 0.1), (4.0, 0.1), (10.0, 0.25), (60.0, 1.5), (86_400.0, 2160.0)]
        {
            assert!((step(seconds) - expected).abs() < 1e-9, "{seconds}");
        }
    }

    #[test]
    fn notes_between_steps_are_spread_and_sums_are_kept() {
        let mut course = Course::default();
        for (at, count) in [(0.15, 30.0), (0.25, 5.0), (0.25, 1.0)] {
            course.add(at, count);
        }
        let series = Series::of(&[(course, 4096.0)], 0.25, 0.1);
        assert_eq!(series.operations, [20, 13, 3]);
        assert_eq!(series.bytes.iter().sum::<u64>(), 36 * 4096);
        // The last step is half as long, and counts as such.
        let rates: Vec<f64> = series.rates(&series.operations).iter().map(|rate| rate.round()).collect();
        assert_eq!(rates, [200.0, 130.0, 60.0]);
        let short = Series { seconds: 0.24, ..series };
        assert_eq!(short.rates(&short.operations).len(), 2);
    }

    #[test]
    fn longer_steps_have_what_shorter_ones_had() {
        let series = Series {
            step: 0.1,
            seconds: 0.5,
            operations: vec![1, 2, 3, 4, 5],
            bytes: vec![10, 20, 30, 40, 50],
        };
        let longer = series.in_steps_of(0.2);
        assert_eq!((longer.operations, longer.bytes), (vec![3, 7, 5], vec![30, 70, 50]));
        assert_eq!(series.in_steps_of(0.1), series);
    }

    #[test]
    fn nothing_is_done_before_the_first_note_of_nothing() {
        assert_eq!(Series::of(&[], 0.3, 0.1).operations, [0, 0, 0]);
        assert_eq!(Series::of(&[(Course::default(), 1.0)], 0.1, 0.1).operations, [0]);
    }
}
