//! Figures of a run, and how their values are written.
//!
//! # Values
//! | metric | words | a number without quotes |
//! |---|---|---|
//! | latencies | `5ms`, `800us`, `1.5s`, `20000ns`: never without a unit | nanoseconds |
//! | throughput | `500M`, `500 MiB/s`: powers of 1024, a second, never without a unit | bytes a second |
//! | memory | `2G`: powers of 1024, never without a unit | bytes |
//! | amplification, space | `5`, `5x`: times | the same |
//! | all others | `20000`, `20k`: the unit of the metric, thousands | the same |

use serde::{Deserialize, Serialize};

use crate::size::Size;

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
    pub(crate) fn exact(self, value: f64) -> Option<String> {
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

/// A figure in the unit that people read it in.
pub fn written(metric: Metric, value: f64) -> String {
    let digits = |value: f64| match value.abs() {
        100.0.. => 0,
        10.0..100.0 => 1,
        _ => 2,
    };
    let scaled = |value: f64, unit: &str| format!("{value:.*} {unit}", digits(value));
    match metric {
        Metric::Iops if value >= 10_000.0 => format!("{:.1}k", value / 1000.0),
        Metric::Iops => format!("{value:.0}"),
        Metric::Throughput => scaled(value / 1048576.0, "MiB/s"),
        Metric::Latency | Metric::LatencyP50 | Metric::LatencyP99 | Metric::LatencyP999 => {
            let (unit_ns, unit) = match value {
                1e9.. => (1e9, "s"),
                1e6.. => (1e6, "ms"),
                _ => (1e3, "us"),
            };
            scaled(value / unit_ns, unit)
        }
        Metric::Memory => scaled(value / 1048576.0, "MiB"),
        Metric::Cpu => scaled(value, "s/GB"),
        Metric::Amplification | Metric::ReadAmplification | Metric::Space => format!("{value:.2}"),
    }
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
}
