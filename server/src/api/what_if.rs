//! Requests about what a cache of another size would do.

use engine::cache::what_if::{ratio_at, ratio_with_device};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Action, Declaration, Delegated, Listed, Part, Role};

/// Asks for the miss-ratio curves of the reads of pools.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct GetWhatIf {
    /// The pools; empty for all open ones.
    pub pools: Vec<String>,
}

impl Action for GetWhatIf {
    const DECLARED: Declaration = Declaration::reads(
        "what-if",
        Part::Events,
        Role::Operator,
        "Says what caches of other sizes would answer",
    )
    .in_words("show what caches would do for", "pools");
    const DELEGATED: Delegated<Self> = Delegated::Never;
    type Reply = Listed<PoolWhatIf>;
}

/// The curves of a pool.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
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

/// How far a prediction can be trusted, by how far apart the shares are between which it may turn out.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Trust {
    /// More than 15 in a hundred, or few reads.
    #[default]
    Low,
    /// At most 15 in a hundred.
    Fair,
    /// At most 5 in a hundred.
    Good,
}

/// What a cache of some size would do.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Prediction {
    /// The share of reads that it would answer.
    pub hit_ratio: f64,
    /// The least share that this may turn out to be.
    pub least: f64,
    /// The largest share.
    pub most: f64,
    /// How far this can be trusted.
    pub trust: Trust,
}

/// With fewer reads, a curve says little.
const FEW_SAMPLES: f64 = 500.0;
/// With fewer reads of each block, the largest cache is as unknown as the others.
const FEW_PASSES: f64 = 2.0;

/// What caches of different sizes would answer, by the reads since the pool was opened; older ones count
/// less.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Curve {
    /// The dataset; none for all of the pool.
    pub dataset: Option<String>,
    /// Reads that were followed.
    pub samples: f64,
    /// The share of blocks that is followed.
    pub rate: f64,
    /// The number of blocks that are followed.
    #[serde(default)]
    pub followed_blocks: u64,
    /// How often a block was read on average; older reads count less.
    #[serde(default)]
    pub passes: f64,
    /// What the ARC of now would answer, and how far that can be trusted.
    #[serde(default)]
    pub now: Prediction,
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
    /// The same, if each first read of a block were a miss at any size.
    #[serde(default)]
    pub least_points: Points,
    /// Sizes in bytes, with the share of all reads that are of metadata and that a cache of that size
    /// answers.
    pub metadata_points: Points,
}

/// Sizes of caches in bytes, in order, with the share of reads that each would answer.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Points(pub Vec<(u64, f64)>);

impl Points {
    /// The share of reads that a cache of `bytes` would answer. Between two sizes it grows evenly.
    pub fn hit_ratio(&self, bytes: u64) -> f64 {
        ratio_at(&self.0, bytes)
    }

    /// The same for a cache in memory with a cache device behind it.
    pub fn hit_ratio_with_device(&self, memory_bytes: u64, device_bytes: u64, distinct_bytes: u64) -> f64 {
        ratio_with_device(&self.0, memory_bytes, device_bytes, distinct_bytes)
    }
}

impl Curve {
    /// The share of reads that a cache of `bytes` would answer.
    pub fn hit_ratio(&self, bytes: u64) -> f64 {
        self.points.hit_ratio(bytes)
    }

    /// What a cache of `bytes` would answer, and how far that can be trusted. Three things may be otherwise:
    ///
    /// - first reads say nothing, and may never come back: the lower end has them as misses;
    /// - only some blocks are followed: both ends have a margin of two standard errors;
    /// - the curve is that of a cache that drops what was used least recently. Of blocks that are read in
    ///   turn it keeps nothing, where the ARC may keep as much as fits: the upper end has that.
    pub fn prediction(&self, bytes: u64) -> Prediction {
        let hit_ratio = self.hit_ratio(bytes);
        let error = (hit_ratio * (1.0 - hit_ratio) / self.followed_blocks.max(1) as f64).sqrt();
        let largest = match self.points.0.last() {
            Some((_, ratio)) if self.passes >= FEW_PASSES => *ratio,
            _ => 1.0,
        };
        let kept = largest * (bytes as f64 / self.distinct_bytes.max(1) as f64).min(1.0);
        let least = (self.least_points.hit_ratio(bytes).min(hit_ratio) - 2.0 * error).max(0.0);
        let most = (kept.max(hit_ratio) + 2.0 * error).min(1.0);
        let trust = match most - least {
            _ if self.samples < FEW_SAMPLES => Trust::Low,
            width if width <= 0.05 => Trust::Good,
            width if width <= 0.15 => Trust::Fair,
            _ => Trust::Low,
        };
        Prediction { hit_ratio, least, most, trust }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn curve(samples: f64, passes: f64, points: &[(u64, f64)], least_points: &[(u64, f64)]) -> Curve {
        Curve {
            dataset: None,
            samples,
            rate: 1.0,
            followed_blocks: 4000,
            passes,
            now: Prediction::default(),
            distinct_blocks: 4000,
            distinct_bytes: 1000,
            distinct_stored_bytes: 1000,
            distinct_metadata_bytes: 0,
            metadata_share: 0.0,
            points: Points(points.to_vec()),
            least_points: Points(least_points.to_vec()),
            metadata_points: Points::default(),
        }
    }

    #[test]
    fn what_a_device_adds_is_partly_in_memory() {
        let points = Points((1..=10).map(|tenth| (tenth * 100, tenth as f64 / 10.0)).collect());
        let with = |device| points.hit_ratio_with_device(300, device, 1000);
        for (device, expected) in [(0, 0.3), (500, 0.65), (1000, 1.0), (5000, 1.0)] {
            assert!((with(device) - expected).abs() < 1e-9, "{device}: {}", with(device));
        }
        assert_eq!(points.hit_ratio_with_device(2000, 500, 1000), 1.0, "all is in memory");
    }

    #[test]
    fn many_passes_over_blocks_at_random_can_be_trusted_and_few_cannot() {
        let even: Vec<(u64, f64)> = (0..=10).map(|tenth| (tenth * 100, tenth as f64 / 10.0)).collect();
        let least = |share: f64| even.iter().map(|(size, ratio)| (*size, ratio * share)).collect::<Vec<_>>();
        let good = curve(400_000.0, 100.0, &even, &least(0.99)).prediction(300);
        assert!((good.hit_ratio - 0.3).abs() < 1e-9 && good.trust == Trust::Good, "{good:?}");
        assert!(good.least < 0.3 && good.most > 0.3 && good.most < 0.32, "{good:?}");
        // Three passes: the reads of the first one were misses, which a cache of any size has.
        let fair = curve(12_000.0, 3.0, &even, &least(0.67)).prediction(300);
        assert!(fair.trust == Trust::Fair && fair.least < 0.2, "{fair:?}");
        assert_eq!(curve(400.0, 100.0, &even, &least(0.99)).prediction(300).trust, Trust::Low);
    }

    #[test]
    fn a_loop_and_a_single_pass_are_not_trusted() {
        // In turn, again and again: the least recently used block is the next one. The ARC does better.
        let in_turn = curve(400_000.0, 100.0, &[(900, 0.0), (1000, 1.0)], &[(900, 0.0), (1000, 0.99)]);
        let half = in_turn.prediction(500);
        assert!(half.least < 0.01 && half.most >= 0.5 && half.trust == Trust::Low, "{half:?}");
        assert_eq!(in_turn.prediction(2000).trust, Trust::Good, "all of it fits");
        let once = curve(4000.0, 1.0, &[], &[]).prediction(2000);
        assert_eq!((once.least, once.most, once.trust), (0.0, 1.0, Trust::Low));
    }
}
