//! What a dedup table of all data would hold, by the block pointers of a pool: no data are read.
//!
//! # The sample
//! A table of all different blocks takes memory for each of them. With a limit, a block is followed only when
//! the hash of its key begins with so many zero bits. Equal blocks have equal keys, so a block is in the
//! sample with all of its copies or not at all, and how often blocks occur is what it is in the whole. The
//! sample starts with everything; whenever it grows too large, one more zero bit is asked for, and half of it
//! goes. With `n` blocks left, figures are right to about `1 / sqrt(n)`.
//!
//! Keys have the checksums that blocks were stored with. So blocks that were compressed in different ways, or
//! have different checksum functions, count as different ones, as `zdb -S` of OpenZFS counts.
//!
//! Source: Wegman's adaptive sampling (Flajolet, "On adaptive sampling", 1990).

use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex};

use device::{IgnorePoison, block_on};
use ondisk::blkptr::{Blkptr, ChecksumType};
use ondisk::ddt::DdtKey;

use super::stats::BlockKind;
use super::{Depth, Progress, Shared, VerifyOptions, roots};
use crate::Pool;
use crate::dsl::Dsl;
use crate::dsl::pool_space::PoolSpace;
use crate::error::{Error, Result};

/// How often a block is there.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct References {
    /// So often.
    pub count: u64,
    /// Allocated size of all of them without parity.
    pub dsize: u64,
}

/// What a dedup table of all data would hold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Simulated {
    /// One block in so many was followed.
    pub one_in: u64,
    /// These blocks.
    pub blocks: HashMap<DdtKey, References>,
}

/// The table while it is made.
pub(super) struct Simulation {
    space: PoolSpace,
    most: usize,
    sample: Mutex<Sample>,
}

#[derive(Default)]
struct Sample {
    zero_bits: u32,
    blocks: HashMap<DdtKey, References>,
}

fn zero_bits(key: &DdtKey) -> u32 {
    let mut hasher = DefaultHasher::new();
    key.words().hash(&mut hasher);
    hasher.finish().leading_zeros()
}

impl Sample {
    fn add(&mut self, key: DdtKey, dsize: u64, most: usize) {
        if zero_bits(&key) < self.zero_bits {
            return;
        }
        let references = self.blocks.entry(key).or_default();
        references.count += 1;
        references.dsize = references.dsize.saturating_add(dsize);
        while self.blocks.len() > most && self.zero_bits < u64::BITS - 1 {
            self.zero_bits += 1;
            let asked = self.zero_bits;
            self.blocks.retain(|key, _| zero_bits(key) >= asked);
        }
    }
}

impl Simulation {
    /// Enters a block of data.
    pub(super) fn add(&self, bp: &Blkptr, kind: BlockKind) {
        let is_data = !bp.is_metadata() && !bp.is_embedded() && kind != BlockKind::DeferredFree;
        if is_data && bp.checksum_type() != ChecksumType::Off {
            let dsize = self.space.block_bytes(bp);
            self.sample.lock().ignore_poison().add(DdtKey::of(bp), dsize, self.most);
        }
    }
}

/// What a dedup table of all data would hold: for each block that is there once or more, how often it is
/// there and how large all of that is together. Follows `most` different blocks at most. Blocks the calling
/// thread until done.
///
/// # Errors
/// A block of metadata could not be read, for a reason that may pass or that all reads have.
pub fn simulate_dedup(
    pool: &Arc<Pool>,
    threads: usize,
    most: usize,
    progress: &Progress,
) -> Result<Simulated> {
    let options = VerifyOptions { threads, depth: Depth::Structure, check_space: false };
    let (roots, space) = block_on(async {
        let dsl = Dsl::open(pool).await?;
        Ok::<_, Error>((roots::of(pool).await?, dsl.pool_space().await?.clone()))
    })?;
    let shared = Shared::new(pool, options, progress, HashSet::new());
    let simulation = Simulation { space, most: most.max(1), sample: Mutex::default() };
    let shared = Shared { simulated: Some(simulation), ..shared };
    let results = shared.run(roots.work)?;
    if let Some(error) = results.errors.into_iter().find_map(|error| error.fatal) {
        return Err(error);
    }
    let sample = shared.simulated.map(|simulation| simulation.sample.into_inner().ignore_poison());
    let Sample { zero_bits, blocks } = sample.unwrap_or_default();
    Ok(Simulated { one_in: 1 << zero_bits, blocks })
}

#[cfg(test)]
mod tests {
    use ondisk::blkptr::CompressType;
    use ondisk::{Lsize, Psize};

    use super::*;

    #[test]
    fn a_sample_has_blocks_with_all_of_their_copies() {
        // Checksums that do not look random, as those of fletcher4 do not.
        let key = |number: u64| {
            DdtKey::of_parts([number, number * 2, 7, 0], Lsize(4096), Psize(4096), CompressType::Off)
        };
        let of = |most| {
            let mut sample = Sample::default();
            for round in 0..4 {
                for number in 0..20_000 {
                    if round == 0 || number % 4 == 0 {
                        sample.add(key(number), 4096, most);
                    }
                }
            }
            sample
        };
        let whole = of(usize::MAX);
        assert_eq!((whole.zero_bits, whole.blocks.len()), (0, 20_000));
        let sampled = of(1000);
        assert!(sampled.zero_bits >= 5 && sampled.blocks.len() <= 1000, "{}", sampled.zero_bits);
        for (key, references) in &sampled.blocks {
            assert_eq!(whole.blocks.get(key), Some(references));
        }
        let one_in = (1u64 << sampled.zero_bits) as f64;
        let counted: u64 = sampled.blocks.values().map(|references| references.count).sum();
        assert!((counted as f64 * one_in / 35_000.0 - 1.0).abs() < 0.2, "{counted} times {one_in}");
    }
}
