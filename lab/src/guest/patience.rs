//! How long guests are waited for.
//!
//! # The idea
//! How long a guest takes to boot depends on the machine more than on the guest: with KVM a second, emulated
//! beside other work minutes. So the limit follows what was measured here: a multiple of the longest boot so
//! far, and no less than a floor. Nothing is known before the first boot, which gets a limit of its own. What
//! else is waited for in guests gets more time in proportion.
//!
//! The user may set the limit (`boot_seconds`, `--boot-seconds`); then it holds from the first guest on.

use std::time::Duration;

/// The limit of the first boot where guests are emulated.
const FIRST_EMULATED: Duration = Duration::from_secs(600);
/// The least limit that is derived; that of the first boot with KVM too.
const FLOOR: Duration = Duration::from_secs(120);
/// How many times the longest boot so far the next one may take.
const TIMES: u32 = 10;
/// How long a guest may take that only finds out whether KVM is of use here.
const PROBE: Duration = Duration::from_secs(15);
/// The time for the preparation of what is measured, where a boot has the least limit.
const PREPARATION: Duration = Duration::from_secs(300);

/// The boots of guests of an experiment.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Boots {
    /// The limit that the user set.
    set: Option<Duration>,
    /// The longest boot so far.
    longest: Option<Duration>,
}

/// How long one guest is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Patience {
    /// Until it takes scripts.
    pub boot: Duration,
    /// Until what is measured in it is ready.
    pub preparation: Duration,
}

impl Boots {
    /// None yet; the limit is so many seconds, where the user says so.
    pub(crate) fn of(set: Option<f64>) -> Self {
        Self { set: set.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()), longest: None }
    }

    /// Notes how long one took.
    pub(crate) fn note(&mut self, took: Duration) {
        self.longest = self.longest.max(Some(took));
    }

    fn limit(&self, is_emulated: bool) -> Duration {
        let first = if is_emulated { FIRST_EMULATED } else { FLOOR };
        let derived = self.longest.map_or(first, |longest| longest.saturating_mul(TIMES).max(FLOOR));
        self.set.unwrap_or(derived)
    }

    /// How long the next guest is waited for.
    pub(crate) fn patience(&self, is_emulated: bool) -> Patience {
        let boot = self.limit(is_emulated);
        let preparation = boot.saturating_mul(5) / 2;
        Patience { boot, preparation: preparation.max(PREPARATION) }
    }

    /// The same of the guest that finds out whether KVM is of use.
    pub(crate) fn patience_of_probe() -> Patience {
        Patience { boot: PROBE, preparation: PREPARATION }
    }

    /// The additional time that a run in a guest has until it is given up, for as slow as this machine is.
    pub(crate) fn beyond(&self) -> Duration {
        self.limit(false).saturating_sub(FLOOR) / 2
    }

    /// Where the limit comes from, and how another is set, for the error of a boot that took longer.
    pub(crate) fn words(&self) -> String {
        let why = match (self.set, self.longest) {
            (Some(_), _) => "which was set".to_owned(),
            (None, Some(longest)) => format!(
                "{TIMES} times the longest boot so far ({:.1} s), and at least {} s",
                longest.as_secs_f64(),
                FLOOR.as_secs()
            ),
            (None, None) => "the limit of a first boot".to_owned(),
        };
        format!("{why}; `--boot-seconds N` of `lab run` and `lab resume` sets another limit")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_follows_the_boots_that_were_measured() {
        let seconds = Duration::from_secs;
        let mut boots = Boots::of(None);
        assert_eq!([boots.patience(true).boot, boots.patience(false).boot], [seconds(600), seconds(120)]);
        assert!(boots.words().contains("first boot"), "{}", boots.words());
        boots.note(seconds(2));
        assert_eq!((boots.patience(true).boot, boots.beyond()), (seconds(120), Duration::ZERO));
        assert_eq!(boots.patience(true).preparation, seconds(300));
        // The slowest counts.
        boots.note(seconds(40));
        boots.note(seconds(3));
        assert_eq!((boots.patience(true).boot, boots.beyond()), (seconds(400), seconds(140)));
        assert_eq!(boots.patience(true).preparation, seconds(1000));
        assert!(boots.words().contains("10 times the longest boot so far (40.0 s)"), "{}", boots.words());
    }

    #[test]
    fn a_limit_that_was_set_holds_whatever_was_measured() {
        let mut boots = Boots::of(Some(900.0));
        boots.note(Duration::from_secs(1));
        assert_eq!(boots.patience(true).boot, Duration::from_secs(900));
        assert!(boots.words().starts_with("which was set"), "{}", boots.words());
        assert_eq!(Boots::of(Some(0.5)).patience(false).preparation, PREPARATION);
    }
}
