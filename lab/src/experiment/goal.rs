//! What counts, and by which figure.
//!
//! # Values
//! | metric | words | a number without quotes |
//! |---|---|---|
//! | latencies | `5ms`, `800us`, `1.5s`, `20000ns`: never without a unit | nanoseconds |
//! | throughput | `500M`, `500 MiB/s`: powers of 1024, a second, never without a unit | bytes a second |
//! | memory | `2G`: powers of 1024, never without a unit | bytes |
//! | amplification, space | `5`, `5x`: times | the same |
//! | all others | `20000`, `20k`: the unit of the metric, thousands | the same |
//!
//! Reports show the goal in words beside the figure, so that a reader notices a misunderstood value.

use device::simulated::Model;
use serde::{Deserialize, Serialize};

use super::{Target, Workload};
use crate::size::Size;

/// The goal.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(try_from = "Written", into = "Written")]
pub struct Goal {
    /// The metric by which variants are judged.
    pub metric: Metric,
    /// With which workload; the first where left out.
    pub workload: Option<String>,
    /// Other metrics that count, where no variant is the best in all: see [`crate::pareto`].
    pub also: Vec<Metric>,
    /// A value that must be reached, in the metric's own unit.
    pub at_least: Option<f64>,
    /// A value that must not be exceeded.
    pub at_most: Option<f64>,
}

/// A goal as written in a file.
#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    #[serde(default)]
    metric: Metric,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    workload: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    also: Vec<Metric>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    at_least: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    at_most: Option<Value>,
}

/// A value as written in a file.
#[derive(Serialize, Deserialize)]
#[serde(untagged, expecting = "it must be a number, or text with a unit, such as \"5ms\"")]
enum Value {
    Number(f64),
    Words(String),
}

impl TryFrom<Written> for Goal {
    type Error = String;

    fn try_from(written: Written) -> Result<Self, String> {
        let metric = written.metric;
        let of = |name: &str, value: Option<Value>| match value {
            None => Ok(None),
            Some(Value::Number(number)) if number > 0.0 && number.is_finite() => Ok(Some(number)),
            Some(Value::Number(number)) => Err(format!("{name}: {number} is not above zero")),
            Some(Value::Words(words)) => {
                metric.value(&words).map(Some).map_err(|what| format!("{name}: {what}"))
            }
        };
        let (at_least, at_most) = (of("at_least", written.at_least)?, of("at_most", written.at_most)?);
        Ok(Self { metric, workload: written.workload, also: written.also, at_least, at_most })
    }
}

impl From<Goal> for Written {
    fn from(goal: Goal) -> Self {
        let metric = goal.metric;
        let of = |value: Option<f64>| {
            value.map(|value| metric.exact(value).map_or(Value::Number(value), Value::Words))
        };
        let (at_least, at_most) = (of(goal.at_least), of(goal.at_most));
        Self { metric, workload: goal.workload, also: goal.also, at_least, at_most }
    }
}

impl Goal {
    /// Its faults for a target with such a workload.
    pub(super) fn faults(&self, target: &Target, workload: Option<&Workload>) -> Vec<String> {
        let mut faults = Vec::new();
        let title = self.metric.title();
        let more = self.metric.more_is_better();
        let (wrong, right) = if more { (self.at_most, "at_least") } else { (self.at_least, "at_most") };
        if wrong.is_some() {
            let (word, better) = if more { ("at_most", "more") } else { ("at_least", "less") };
            faults.push(format!(
                "goal: {word} makes no sense for {title}, where {better} is better: write {right}"
            ));
        }
        if let (Some(least), Some(most)) = (self.at_least, self.at_most)
            && least > most
        {
            faults
                .push(format!("goal: at_least is more than at_most, so no value of {title} satisfies both"));
        }
        let metrics = [("metric", self.metric)].into_iter().chain(self.also.iter().map(|it| ("also", *it)));
        for (key, metric) in metrics {
            let why = target.has_no(metric).or(workload.and_then(|workload| workload.has_no(metric)));
            faults
                .extend(why.map(|why| format!("goal: {key}: {} cannot be measured: {why}", metric.title())));
        }
        faults
    }
}

/// A bound that all bytes must pass.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bound {
    /// Its kind.
    pub name: String,
    /// Its capacity: the name of a link, or bytes a second.
    pub rate: String,
}

impl Bound {
    /// Its capacity in bytes a second.
    pub fn bytes_per_second(&self) -> Option<f64> {
        match Model::link(&self.rate) {
            Some(link) => Some(link.read_bytes_per_second as f64),
            None => self.rate.parse::<Size>().ok().map(|size| size.0 as f64).filter(|rate| *rate > 0.0),
        }
    }
}

/// Units of time, in nanoseconds; those that end others come last.
const TIMES: [(&str, f64); 4] = [("ns", 1.0), ("us", 1e3), ("ms", 1e6), ("s", 1e9)];

/// A figure of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Metric {
    /// Operations in a second.
    #[default]
    Iops,
    /// Bytes in a second.
    Throughput,
    /// Mean time of an operation, in nanoseconds.
    Latency,
    /// The time that half of the operations take at most, in nanoseconds.
    LatencyP50,
    /// The time that one operation of a hundred exceeds, in nanoseconds.
    LatencyP99,
    /// The time that one operation of a thousand exceeds, in nanoseconds.
    LatencyP999,
    /// CPU seconds of the server for a gigabyte.
    Cpu,
    /// The most memory that the server held, in bytes.
    Memory,
    /// Bytes written to devices for each byte that the client wrote.
    Amplification,
    /// Bytes read from devices for each byte that the client read: what the caches did not have, and what was
    /// read beside it.
    ReadAmplification,
    /// Bytes that the variant takes on the devices for each byte in it.
    Space,
}

impl Metric {
    /// All of them.
    pub const ALL: [Self; 11] = [
        Self::Iops,
        Self::Throughput,
        Self::Latency,
        Self::LatencyP50,
        Self::LatencyP99,
        Self::LatencyP999,
        Self::Cpu,
        Self::Memory,
        Self::Amplification,
        Self::ReadAmplification,
        Self::Space,
    ];

    /// Its name in a file.
    pub fn name(self) -> String {
        // As it is written there, so that it is the same.
        toml::Value::try_from(self).ok().and_then(|name| name.as_str().map(str::to_owned)).unwrap_or_default()
    }

    /// Its title.
    pub fn title(self) -> &'static str {
        match self {
            Self::Iops => "IOPS",
            Self::Throughput => "throughput",
            Self::Latency => "mean latency",
            Self::LatencyP50 => "median latency",
            Self::LatencyP99 => "99th percentile latency",
            Self::LatencyP999 => "99.9th percentile latency",
            Self::Cpu => "CPU",
            Self::Memory => "peak memory",
            Self::Amplification => "write amplification",
            Self::ReadAmplification => "reads outside the cache",
            Self::Space => "space",
        }
    }

    /// Its explanation, if the title is not enough.
    pub fn meaning(self) -> Option<&'static str> {
        match self {
            Self::Iops | Self::Throughput | Self::Latency => None,
            Self::LatencyP50 => Some("the time that half of the operations take at most"),
            Self::LatencyP99 => Some("the time that one operation of a hundred exceeds"),
            Self::LatencyP999 => Some("the time that one operation of a thousand exceeds"),
            Self::Cpu => Some(
                "processor seconds of the process that serves the pool, for each gigabyte read or written",
            ),
            Self::Memory => Some("the most memory that the process that serves the pool held during a run"),
            Self::Amplification => {
                Some("bytes that the devices were given for each byte that the client wrote")
            }
            Self::ReadAmplification => Some("bytes read from the devices for each byte that the client read"),
            Self::Space => Some("bytes taken on the devices, with copies and parity, for each byte stored"),
        }
    }

    /// Whether reports show it without being asked.
    pub fn is_common(self) -> bool {
        !matches!(self, Self::LatencyP50 | Self::LatencyP999)
    }

    fn is_time(self) -> bool {
        matches!(self, Self::Latency | Self::LatencyP50 | Self::LatencyP99 | Self::LatencyP999)
    }

    fn is_ratio(self) -> bool {
        matches!(self, Self::Amplification | Self::ReadAmplification | Self::Space)
    }

    fn is_bytes(self) -> bool {
        matches!(self, Self::Throughput | Self::Memory)
    }

    /// A value of it, as people write it, in its own unit; what is wrong with it, where something is.
    pub fn value(self, text: &str) -> Result<f64, String> {
        let text = text.trim();
        let number = |text: &str| text.trim().parse::<f64>().ok();
        let of_unit = |(unit, times): (&str, f64)| Some(number(text.strip_suffix(unit)?)? * times);
        let (value, example) = if self.is_time() {
            (TIMES.into_iter().find_map(of_unit), "5ms")
        } else if self.is_bytes() {
            let bytes = if self == Self::Throughput { text.trim_end_matches("/s").trim_end() } else { text };
            let has_unit = bytes.ends_with(|last: char| last.is_ascii_alphabetic());
            let size = has_unit.then(|| bytes.parse::<Size>().ok()).flatten();
            (
                size.map(|size| size.0 as f64),
                if self == Self::Throughput { "500M, or 500 MiB/s" } else { "500M" },
            )
        } else if self.is_ratio() {
            (number(text.strip_suffix('x').unwrap_or(text)), "5x")
        } else {
            let thousands = [("k", 1e3), ("K", 1e3)].into_iter().find_map(of_unit);
            (thousands.or_else(|| number(text)), "20000")
        };
        let value = value.filter(|value| *value > 0.0 && value.is_finite());
        value.ok_or_else(|| {
            format!(
                "'{text}' is not a value of {}: write for example \
            {example}",
                self.title()
            )
        })
    }

    /// A value in words that [`Metric::value`] reads as just that; none where a number says as much.
    fn exact(self, value: f64) -> Option<String> {
        let words = if self.is_time() {
            let of_unit = |(unit, times): (&str, f64)| {
                Some(format!("{}{unit}", value / times)).filter(|_| value >= times)
            };
            TIMES.into_iter().rev().find_map(of_unit)
        } else if self.is_bytes() {
            let size = Size(value as u64).to_string();
            Some(if size.ends_with(|last: char| last.is_ascii_digit()) { size + "B" } else { size })
        } else {
            None
        };
        words.filter(|words| self.value(words) == Ok(value))
    }

    /// Whether more is better.
    pub fn more_is_better(self) -> bool {
        matches!(self, Self::Iops | Self::Throughput)
    }
}

/// Bytes a second of a device, in the mean of several.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rates {
    /// That are read.
    pub read: f64,
    /// That are written.
    pub write: f64,
    /// That are read and written together, as many of each.
    pub mixed: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_the_units_of_their_metric() {
        for (metric, text, expected) in [
            (Metric::Iops, "20000", 20000.0),
            (Metric::Iops, "20k", 20000.0),
            (Metric::Throughput, "500M", 524_288_000.0),
            (Metric::Throughput, "500 MiB/s", 524_288_000.0),
            (Metric::Memory, "2GiB", 2147483648.0),
            (Metric::Latency, "1.5ms", 1.5e6),
            (Metric::Latency, " 20 us ", 20e3),
            (Metric::LatencyP999, "2s", 2e9),
            (Metric::Space, "0.5", 0.5),
            (Metric::Amplification, "5x", 5.0),
            (Metric::ReadAmplification, "1.5 x", 1.5),
        ] {
            assert_eq!(metric.value(text), Ok(expected), "{text}");
        }
        // A number without a unit means neither nanoseconds nor bytes.
        for (metric, text) in [
            (Metric::Iops, "5ms"),
            (Metric::Iops, "5x"),
            (Metric::Latency, "5"),
            (Metric::Throughput, "500"),
            (Metric::Throughput, "500/s"),
            (Metric::Memory, "2/s"),
            (Metric::Space, "-1"),
        ] {
            assert!(metric.value(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_goal_is_written_as_it_is_read() {
        let read = |text: &str| toml::from_str::<Goal>(text);
        for (text, value) in [
            ("metric = \"latency_p99\"\nat_most = \"5ms\"", 5e6),
            ("metric = \"latency_p99\"\nat_most = 5000000", 5e6),
            ("metric = \"latency\"\nat_most = \"123.5us\"", 123_500.0),
            ("metric = \"throughput\"\nat_most = \"500 MiB/s\"", 524_288_000.0),
            ("metric = \"throughput\"\nat_most = 1234567.0", 1_234_567.0),
            ("at_most = 20000.5", 20000.5),
        ] {
            let goal = read(text).unwrap();
            assert_eq!(goal.at_most, Some(value), "{text}");
            assert_eq!(read(&toml::to_string(&goal).unwrap()).unwrap(), goal, "{text}");
        }
        let written = toml::to_string(&read("metric = \"latency\"\nat_most = 5000000").unwrap()).unwrap();
        assert!(written.contains("at_most = \"5ms\""), "{written}");
        for wrong in
            ["at_most = -1", "at_most = \"5ms\"", "metric = \"latency\"\nat_most = \"5\"", "best = 1"]
        {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
