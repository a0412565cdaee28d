//! `INTERVAL [COUNT]` at the end of a command: it is repeated every so many seconds, so many times or until
//! it is interrupted. `-T` writes above each what time it is.
//!
//! A pool's name begins with a letter, so that what is a number is no pool.

use std::time::Duration;

use anyhow::Result;
use serde_json::{Map, Value};

use crate::output::{self, usage};

/// The time of each report.
#[derive(Debug, Clone, Copy, Default, clap::Args)]
pub struct TimeStamp {
    /// Show the time: u in seconds since 1970, d as date(1) does
    #[arg(short = 'T', value_name = "u|d")]
    time: Option<TimeForm>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum TimeForm {
    #[value(name = "u")]
    Seconds,
    #[value(name = "d")]
    Date,
}

impl TimeStamp {
    fn text(self) -> Option<String> {
        let now = output::now();
        self.time.map(|form| match form {
            TimeForm::Seconds => now.to_string(),
            TimeForm::Date => output::timestamp(now),
        })
    }

    /// The line above a report; nothing where none is asked for.
    pub fn line(self) -> String {
        self.text().map_or_else(String::new, |text| text + "\n")
    }

    /// The same in JSON.
    pub fn add_json(self, as_integers: bool, document: &mut Map<String, Value>) {
        if let Some(text) = self.text() {
            let time = if as_integers { output::now().into() } else { text.into() };
            document.insert("time".into(), time);
        }
    }
}

/// How often a command is repeated.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Repeat {
    interval: Option<Duration>,
    count: Option<u64>,
}

impl Repeat {
    /// Takes the numbers off the end of the arguments.
    pub fn take(arguments: &mut Vec<String>) -> Result<Self> {
        let seconds = |text: &String| text.parse::<f32>().ok().filter(|number| number.is_finite());
        let numbers = arguments.iter().rev().take(2).take_while(|text| seconds(text).is_some()).count();
        let taken = arguments.split_off(arguments.len() - numbers);
        let Some(interval) = taken.first().and_then(seconds) else { return Ok(Self::default()) };
        let count = match taken.get(1) {
            Some(text) => Some(text.parse().map_err(|_| usage(format!("invalid count '{text}'")))?),
            None => None,
        };
        let interval = Duration::try_from_secs_f32(interval).ok().filter(|interval| !interval.is_zero());
        match interval {
            Some(interval) if count != Some(0) => Ok(Self { interval: Some(interval), count }),
            Some(_) => Err(usage("count cannot be zero")),
            None => Err(usage("interval cannot be zero")),
        }
    }

    /// Waits for the interval once.
    pub fn wait(self) {
        if let Some(interval) = self.interval {
            std::thread::sleep(interval);
        }
    }

    /// Calls `show` as often; its argument says whether it is the first time.
    pub fn run(self, mut show: impl FnMut(bool) -> Result<()>) -> Result<()> {
        show(true)?;
        let Some(interval) = self.interval else { return Ok(()) };
        let mut left = self.count.map(|count| count.saturating_sub(1));
        while left != Some(0) {
            std::thread::sleep(interval);
            show(false)?;
            left = left.map(|left| left.saturating_sub(1));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(words: &[&str]) -> (Vec<String>, Result<Repeat>) {
        let mut arguments: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        let repeat = Repeat::take(&mut arguments);
        (arguments, repeat)
    }

    #[test]
    fn numbers_at_the_end_are_an_interval_and_a_count() {
        let (pools, repeat) = take(&["tank", "0.5", "3"]);
        assert_eq!(pools, ["tank"]);
        assert_eq!(repeat.unwrap(), Repeat { interval: Some(Duration::from_millis(500)), count: Some(3) });
        let (pools, repeat) = take(&["tank"]);
        assert_eq!((pools.len(), repeat.unwrap()), (1, Repeat::default()));
        assert!(take(&["0"]).1.is_err());
    }

    #[test]
    fn a_count_of_two_shows_twice() {
        let repeat = Repeat { interval: Some(Duration::from_nanos(1)), count: Some(2) };
        let mut shown = Vec::new();
        let show = |first| {
            shown.push(first);
            Ok(())
        };
        repeat.run(show).unwrap();
        assert_eq!(shown, [true, false]);
    }
}
