//! Counters of the devices and of the process that serves a pool: what a run cost there.
//!
//! They only grow; a run's own are the difference of two readings ([`Counters::since`]). [`Layers`] splits
//! written bytes by the layer that wrote them, from the client to the devices.

use serde::{Deserialize, Serialize};

/// Counters that only grow.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Counters {
    /// Bytes read from the pool's devices.
    pub read_bytes: u64,
    /// Bytes written to them.
    pub written_bytes: u64,
    /// CPU time of the serving process, in seconds.
    pub cpu_seconds: f64,
    /// The most memory it held since it was asked the last time, in bytes.
    pub peak_memory_bytes: u64,
    /// Written bytes layer by layer, if known.
    #[serde(default)]
    pub layers: Option<Layers>,
    /// Whether they count more than what a run measured: then no figure is made of them but that of memory.
    #[serde(default, skip_serializing_if = "is_false")]
    pub is_of_more: bool,
}

fn is_false(value: &bool) -> bool {
    !value
}

/// The bytes that a client wrote, layer by layer: each is written because of the one before, or
/// beside it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Layers {
    /// Whole blocks of data, before compression.
    pub logical: u64,
    /// The same after compression.
    pub compressed: u64,
    /// The same with copies, parity and padding.
    pub allocated: u64,
    /// The same, once for each device of a mirror. Results from before it was counted do not have it, and
    /// their metadata and logs count a mirror once.
    #[serde(default)]
    pub mirrored: Option<u64>,
    /// Pointers, dnodes, space maps and all else that describes data, once for each device of a mirror.
    pub metadata: u64,
    /// Intent logs, once for each device of a mirror.
    pub log: u64,
    /// All that went to the devices.
    pub device: u64,
}

impl Layers {
    /// The layers' names, from the client to the devices.
    pub const NAMES: [&'static str; 7] =
        ["logical", "compressed", "allocated", "mirrored", "metadata", "intent log", "devices"];

    /// Their bytes, in that order, where they were counted.
    pub fn bytes(&self) -> [Option<u64>; 7] {
        let [before, after] =
            [[self.logical, self.compressed, self.allocated], [self.metadata, self.log, self.device]];
        let ([logical, compressed, allocated], [metadata, log, device]) = (before.map(Some), after.map(Some));
        [logical, compressed, allocated, self.mirrored, metadata, log, device]
    }

    fn since(&self, before: &Self) -> Self {
        Self {
            logical: self.logical.saturating_sub(before.logical),
            compressed: self.compressed.saturating_sub(before.compressed),
            allocated: self.allocated.saturating_sub(before.allocated),
            mirrored: self.mirrored.zip(before.mirrored).map(|(now, before)| now.saturating_sub(before)),
            metadata: self.metadata.saturating_sub(before.metadata),
            log: self.log.saturating_sub(before.log),
            device: self.device.saturating_sub(before.device),
        }
    }
}

impl Counters {
    /// The difference of the counters since `before`.
    pub fn since(&self, before: &Self) -> Self {
        Self {
            read_bytes: self.read_bytes.saturating_sub(before.read_bytes),
            written_bytes: self.written_bytes.saturating_sub(before.written_bytes),
            cpu_seconds: (self.cpu_seconds - before.cpu_seconds).max(0.0),
            peak_memory_bytes: self.peak_memory_bytes,
            layers: self.layers.zip(before.layers).map(|(now, before)| now.since(&before)),
            is_of_more: self.is_of_more,
        }
    }
}
