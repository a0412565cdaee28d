//! What counts, and by which figure.

use serde::{Deserialize, Serialize};

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
    /// The time that one operation of a hundred exceeds, in nanoseconds.
    LatencyP99,
    /// CPU seconds of the server for a gigabyte.
    Cpu,
    /// Bytes written to devices for each byte that the client wrote.
    Amplification,
    /// Bytes read from devices for each byte that the client read: what the caches did not have, and what was read beside it.
    ReadAmplification,
    /// Bytes that the variant takes on the devices for each byte in it.
    Space,
}

impl Metric {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Iops,
        Self::Throughput,
        Self::Latency,
        Self::LatencyP99,
        Self::Cpu,
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
            Self::LatencyP99 => "99th percentile latency",
            Self::Cpu => "CPU",
            Self::Amplification => "write amplification",
            Self::ReadAmplification => "reads outside the cache",
            Self::Space => "space",
        }
    }

    /// What it is, where its title does not say.
    pub fn meaning(self) -> Option<&'static str> {
        match self {
            Self::Iops | Self::Throughput | Self::Latency => None,
            Self::LatencyP99 => Some("the time that one operation of a hundred exceeds"),
            Self::Cpu => Some(
                "processor seconds of the process that serves the pool, for each gigabyte read or written",
            ),
            Self::Amplification => {
                Some("bytes that the devices were given for each byte that the client wrote")
            }
            Self::ReadAmplification => Some("bytes read from the devices for each byte that the client read"),
            Self::Space => Some("bytes taken on the devices, with copies and parity, for each byte stored"),
        }
    }

    /// Whether more is better.
    pub fn more_is_better(self) -> bool {
        matches!(self, Self::Iops | Self::Throughput)
    }
}
