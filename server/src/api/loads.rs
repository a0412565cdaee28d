//! Requests for load on volumes, made by the process that has their pool open.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Action, Declaration, Delegated, Effects, Form, Part, Role};

/// Reads and writes a volume for a while, and reports the result. Only a daemon that was started for it does
/// so. **What is in the volume is overwritten.** The load ends when its client goes away.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RunLoad {
    /// The volume.
    pub volume: String,
    /// The operation.
    pub load: Load,
}

impl Action for RunLoad {
    const DECLARED: Declaration = Declaration::changes(
        "volume-load",
        Part::Volumes,
        Role::Admin,
        Effects::VOLUMES,
        "For the lab: load on a volume, by the process that has its pool open",
    )
    .answered(Form::OnceByServer)
    .on_this_machine();
    const DELEGATED: Delegated<Self> = Delegated::Never;
    type Reply = Loaded;
}

/// A load on a volume, in the terms of a job of fio.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Load {
    /// Whether blocks are chosen at random; else each client goes from the beginning to the end and begins
    /// anew.
    pub is_random: bool,
    /// How many of a hundred requests read; the others write.
    pub read_percent: u32,
    /// Bytes of a request, where the next two say nothing.
    pub block_bytes: u32,
    /// Sizes of reads; places are multiples of the smallest.
    #[serde(default)]
    pub read_sizes: Vec<SizeShare>,
    /// Sizes of writes, likewise.
    #[serde(default)]
    pub write_sizes: Vec<SizeShare>,
    /// Bytes that each client works on, as far as the volume has them.
    pub extent_bytes: u64,
    /// How much further on in the volume each client begins than the one before, rounded up to a multiple of
    /// the smallest request.
    #[serde(default)]
    pub offset_increment_bytes: u64,
    /// Requests that each client has under way.
    pub depth: u32,
    /// How many clients there are.
    pub clients: u32,
    /// A flush after so many writes of a client; none for 0.
    #[serde(default)]
    pub flush_every: u32,
    /// Where blocks are chosen at random: how uneven, as fio's `zipf:THETA`; evenly where left out.
    #[serde(default)]
    pub zipf: Option<f64>,
    /// Share of what is written that compresses away, in per cent.
    #[serde(default)]
    pub compressible_percent: u32,
    /// How long.
    pub seconds: f64,
    /// For how long before that, without being counted.
    #[serde(default)]
    pub ramp_seconds: f64,
    /// How long the steps are in which requests are counted; 0 for no steps.
    #[serde(default)]
    pub step_ms: u32,
    /// The seed of all random numbers.
    pub seed: u64,
}

/// How many of a hundred requests have a size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SizeShare {
    /// The size.
    pub bytes: u32,
    /// The percentage; those of all sizes add up to 100.
    pub percent: u32,
}

/// How a load went.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Loaded {
    /// The reads.
    pub reads: Requested,
    /// The writes.
    pub writes: Requested,
    /// The flushes; not the one with which each client ends that wrote something.
    pub flushes: Requested,
    /// How long it took, with that last flush.
    pub elapsed_ns: u64,
    /// The reads and writes of each step of the time that counts; those that were under way at its end are in
    /// the last.
    #[serde(default)]
    pub steps: Vec<Step>,
}

/// Reads and writes of a step.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Step {
    /// How many.
    pub requests: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// Requests of one kind.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Requested {
    /// How many.
    pub requests: u64,
    /// Their bytes.
    pub bytes: u64,
    /// The mean of what they took.
    pub mean_ns: f64,
    /// The least.
    pub least_ns: u64,
    /// The most.
    pub most_ns: u64,
    /// The median. This and the next two are exact to 0.8 per cent.
    pub p50_ns: u64,
    /// The 99th percentile.
    pub p99_ns: u64,
    /// The 99.9th percentile.
    pub p999_ns: u64,
    /// How many took about as many nanoseconds, the shortest first: what percentiles of several kinds
    /// together are made of.
    #[serde(default)]
    pub times: Vec<(u64, u64)>,
}
