//! What is written: bytes of which a stated share compresses away, and no two blocks alike.
//!
//! As with fio's `buffer_compress_percentage`, each [`SEGMENT`] begins with bytes that do not compress and
//! ends with zeroes. The former are copied from a stock of [`Noise`], from another place for each block,
//! because copying costs less than making them; a stamp at the beginning of each segment makes it differ from
//! all others.

use super::requests::{Random, mixed};
use crate::api::Load;

/// Bytes that have their share of zeroes by themselves.
const SEGMENT: usize = 512;
/// Bytes of the stock: more than any volume's block has, so that nothing is in a block twice.
const STOCK: usize = 1 << 20;
/// Bytes of a stamp.
const STAMP: usize = 8;

/// Bytes that do not compress, for all clients of a load.
#[derive(Debug)]
pub struct Noise(Vec<u8>);

impl Noise {
    /// The same for the same seed.
    pub fn new(seed: u64) -> Self {
        let mut random = Random::new(seed, u64::MAX);
        Self((0..STOCK / 8).flat_map(|_| random.next().to_le_bytes()).collect())
    }
}

/// The data of one client's writes.
#[derive(Debug)]
pub(super) struct Data<'a> {
    noise: &'a [u8],
    /// Bytes of a segment that do not compress.
    kept: usize,
    random: Random,
}

impl<'a> Data<'a> {
    pub fn new(noise: &'a Noise, load: &Load, client: u32) -> Self {
        let kept = SEGMENT * (100 - load.compressible_percent.min(99) as usize) / 100;
        // Another sequence than that of the client's requests.
        Self { noise: &noise.0, kept, random: Random::new(mixed(load.seed), u64::from(client)) }
    }

    /// Fills a block.
    pub fn fill(&mut self, block: &mut [u8]) {
        let mut place = self.random.below((STOCK / SEGMENT) as u64) as usize * SEGMENT;
        for segment in block.chunks_mut(SEGMENT) {
            let (kept, zeroes) = segment.split_at_mut(self.kept.min(segment.len()));
            kept.copy_from_slice(&self.noise[place..place + kept.len()]);
            let stamp = kept.len().min(STAMP);
            kept[..stamp].copy_from_slice(&self.random.next().to_le_bytes()[..stamp]);
            zeroes.fill(0);
            place = (place + SEGMENT) % STOCK;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::load::tests::load;

    #[test]
    fn the_stated_share_is_zeroes_and_no_segment_is_there_twice() {
        let noise = Noise::new(1);
        for percent in [0, 30, 50, 99] {
            let mut data = Data::new(&noise, &Load { compressible_percent: percent, ..load() }, 0);
            let mut blocks = vec![0; 4 << 20];
            blocks.chunks_mut(128 << 10).for_each(|block| data.fill(block));
            let zeroes = blocks.iter().filter(|byte| **byte == 0).count() as f64 / blocks.len() as f64;
            // One of 256 random bytes is zero as well.
            let wanted = f64::from(percent) / 100.0;
            assert!((zeroes - wanted - (1.0 - wanted) / 256.0).abs() < 0.01, "{percent}: {zeroes}");
            let segments: BTreeSet<&[u8]> = blocks.chunks(SEGMENT).collect();
            assert_eq!(segments.len(), blocks.len() / SEGMENT, "{percent}");
        }
    }

    #[test]
    fn a_block_of_any_length_is_filled() {
        let noise = Noise::new(1);
        for length in [1, 511, 513, 1025] {
            let mut block = vec![0; length];
            Data::new(&noise, &load(), 0).fill(&mut block);
            let zeroes = block.iter().filter(|byte| **byte == 0).count();
            assert!(zeroes <= 1 + length / 64, "{length}: {zeroes}");
        }
    }
}
