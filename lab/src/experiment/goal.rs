//! What counts, and by which figure.

use device::simulated::Model;
use serde::{Deserialize, Serialize};

use crate::size::Size;

/// What counts.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Goal {
    /// By what variants are judged.
    #[serde(default)]
    pub metric: Metric,
    /// With which workload; the first where left out.
    #[serde(default)]
    pub workload: Option<String>,
    /// Other metrics that count, where no variant is the best in all: see [`crate::pareto`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub also: Vec<Metric>,
    /// A value that must be reached.
    #[serde(default)]
    pub at_least: Option<f64>,
    /// A value that must not be exceeded.
    #[serde(default)]
    pub at_most: Option<f64>,
}

/// What nothing can beat, because all bytes must pass it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bound {
    /// What it is.
    pub name: String,
    /// What it carries: the name of a link, or bytes a second.
    pub rate: String,
}

impl Bound {
    /// What it carries in a second.
    pub fn bytes_per_second(&self) -> Option<f64> {
        match Model::link(&self.rate) {
            Some(link) => Some(link.read_bytes_per_second as f64),
            None => self.rate.parse::<Size>().ok().map(|size| size.0 as f64).filter(|rate| *rate > 0.0),
        }
    }
}

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
    /// Bytes read from devices for each byte that the client read: what the caches did not have, and what was read beside it.
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

    /// What it is, where its title does not say.
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

    /// Whether it is told of where nobody asked for it.
    pub fn is_common(self) -> bool {
        !matches!(self, Self::LatencyP50 | Self::LatencyP999)
    }

    /// Whether more is better.
    pub fn more_is_better(self) -> bool {
        matches!(self, Self::Iops | Self::Throughput)
    }
}
