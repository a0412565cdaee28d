//! How a job stands: its state, how far it is, and how fast it goes.

use std::time::Duration;

/// A measurement is this long at least, and at most twice as long.
const PACE_WINDOW: Duration = Duration::from_secs(10);

/// The state of a job. The numbers are those that OpenZFS keeps for devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobState {
    /// It goes on.
    Active = 1,
    /// It was given up.
    Canceled = 2,
    /// It waits to be started again.
    Suspended = 3,
    /// It came to its end.
    Complete = 4,
}

impl JobState {
    /// It in a word.
    pub fn word(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Canceled => "canceled",
            Self::Suspended => "suspended",
            Self::Complete => "complete",
        }
    }

    /// The state that has a number, if one has.
    pub fn from_number(number: u64) -> Option<Self> {
        [Self::Active, Self::Canceled, Self::Suspended, Self::Complete]
            .into_iter()
            .find(|state| *state as u64 == number)
    }
}

/// What the progress of a job counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Bytes.
    Bytes,
    /// Objects.
    Objects,
}

/// How a job stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JobStatus {
    /// Its state.
    pub state: JobState,
    /// What is done, in [`JobStatus::unit`].
    pub done: u64,
    /// Of so much. 0 as long as that is not known.
    pub total: u64,
    /// What these two count.
    pub unit: Unit,
    /// When it began or ended, in seconds since 1970.
    pub time: u64,
    /// So much a second is done at most; 0 for as fast as it goes.
    pub rate_limit: u64,
    /// So much a second is done, when it was long enough under way to say.
    pub rate: Option<u64>,
}

impl JobStatus {
    /// How a job stands that begins.
    pub const fn begun(unit: Unit, time: u64, rate_limit: u64) -> Self {
        Self { state: JobState::Active, done: 0, total: 0, unit, time, rate_limit, rate: None }
    }

    /// How long it will take, at the rate at which it goes. `None` when that is not known, or when nothing
    /// moves.
    pub fn time_left(&self) -> Option<Duration> {
        let left = self.total.saturating_sub(self.done);
        let rate = self.rate.filter(|rate| *rate > 0)?;
        (self.state == JobState::Active).then(|| Duration::from_secs(left.div_ceil(rate)))
    }
}

/// Measures how fast a job goes, from what was done in the last 10 to 20 seconds.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Pace {
    /// Two moments and what was done then, the older one first.
    marks: Option<[(Duration, u64); 2]>,
}

impl Pace {
    /// So much is done now.
    pub fn mark(&mut self, now: Duration, done: u64) {
        match &mut self.marks {
            None => self.marks = Some([(now, done); 2]),
            Some([older, newer]) if now.saturating_sub(newer.0) >= PACE_WINDOW => {
                (*older, *newer) = (*newer, (now, done));
            }
            Some(_) => {}
        }
    }

    /// How much a second is done, if so much is now.
    pub fn rate(&self, now: Duration, done: u64) -> Option<u64> {
        let [(since, before), _] = self.marks?;
        let millis = u64::try_from(now.saturating_sub(since).as_millis()).ok()?;
        done.saturating_sub(before).saturating_mul(1000).checked_div(millis)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn the_pace_is_that_of_the_last_seconds() {
        let mut pace = Pace::default();
        assert_eq!(pace.rate(at(5), 100), None);
        pace.mark(at(0), 0);
        assert_eq!(pace.rate(at(0), 0), None);
        assert_eq!(pace.rate(at(2), 100), Some(50));
        // Ten times as fast after a while.
        for second in 1..=60 {
            pace.mark(at(second), 50 * second.min(30) + 500 * second.saturating_sub(30));
        }
        assert_eq!(pace.rate(at(60), 1500 + 15_000), Some(500));
        // Then nothing moves.
        (61..=90).for_each(|second| pace.mark(at(second), 16_500));
        assert_eq!(pace.rate(at(90), 16_500), Some(0));
    }

    #[test]
    fn the_time_left_is_told_as_long_as_something_moves() {
        let status = JobStatus { total: 1000, ..JobStatus::begun(Unit::Bytes, 1, 0) };
        assert_eq!(status.time_left(), None);
        assert_eq!(JobStatus { done: 400, rate: Some(7), ..status }.time_left(), Some(at(86)));
        assert_eq!(JobStatus { done: 400, rate: Some(0), ..status }.time_left(), None);
        let suspended = JobStatus { state: JobState::Suspended, rate: Some(7), ..status };
        assert_eq!(suspended.time_left(), None);
    }

    #[test]
    fn states_have_the_numbers_of_openzfs() {
        for (number, state) in [
            (1, JobState::Active),
            (2, JobState::Canceled),
            (3, JobState::Suspended),
            (4, JobState::Complete),
        ] {
            assert_eq!(JobState::from_number(number), Some(state));
        }
        assert_eq!((JobState::from_number(0), JobState::from_number(5)), (None, None));
    }
}
