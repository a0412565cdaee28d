//! Requests about what a cache of another size would do.

use engine::cache::what_if::Points;
use serde::{Deserialize, Serialize};

use super::{Action, Listed};

/// Asks for the miss-ratio curves of the reads of pools.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct GetWhatIf {
    /// The pools; empty for all open ones.
    pub pools: Vec<String>,
}

impl Action for GetWhatIf {
    const NAME: &'static str = "what-if";
    type Reply = Listed<PoolWhatIf>;
}

/// The curves of a pool.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PoolWhatIf {
    /// The pool.
    pub name: String,
    /// The budget of the ARC, which all pools share, in bytes.
    pub arc_bytes: u64,
    /// The most that the ARC may have.
    pub arc_max_bytes: u64,
    /// Of all reads of the pool first, then of each dataset that was read.
    pub curves: Vec<Curve>,
}

/// What caches of different sizes would answer, by the reads since the pool was opened; older ones count
/// less.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Curve {
    /// The dataset; none for all of the pool.
    pub dataset: Option<String>,
    /// Reads that were followed.
    pub samples: f64,
    /// The share of blocks that is followed.
    pub rate: f64,
    /// The number of blocks that were read.
    pub distinct_blocks: u64,
    /// Bytes of all blocks that were read.
    pub distinct_bytes: u64,
    /// The same as they are stored, without copies and parity: what they would take on a cache device.
    pub distinct_stored_bytes: u64,
    /// The part of the bytes that is metadata.
    pub distinct_metadata_bytes: u64,
    /// The share of reads that were of metadata.
    pub metadata_share: f64,
    /// Sizes in bytes, with the share of reads that a cache of that size answers without read-ahead.
    pub points: Points,
    /// Sizes in bytes, with the share of all reads that are of metadata and that a cache of that size
    /// answers.
    pub metadata_points: Points,
}

impl Curve {
    /// The share of reads that a cache of `bytes` would answer.
    pub fn hit_ratio(&self, bytes: u64) -> f64 {
        self.points.hit_ratio(bytes)
    }

    /// The share of reads that are of metadata, and that a cache of `bytes` would not answer. A special vdev
    /// would get them.
    pub fn metadata_misses(&self, bytes: u64) -> f64 {
        (self.metadata_share - self.metadata_points.hit_ratio(bytes)).max(0.0)
    }

    /// The mean size of a block as it is stored.
    pub fn mean_stored_bytes(&self) -> u64 {
        self.distinct_stored_bytes.checked_div(self.distinct_blocks).unwrap_or(0)
    }

    /// The same for a cache in memory with a cache device behind it, which holds blocks as they are stored.
    pub fn hit_ratio_with_device(&self, memory_bytes: u64, device_bytes: u64) -> f64 {
        let stretch = self.distinct_bytes as f64 / self.distinct_stored_bytes.max(1) as f64;
        let device_bytes = (device_bytes as f64 * stretch.max(1.0)) as u64;
        self.points.hit_ratio_with_device(memory_bytes, device_bytes, self.distinct_bytes)
    }
}
