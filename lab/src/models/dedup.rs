//! What deduplication would find in real data, and what its table costs.
//!
//! # The sample
//! Every block is hashed, and a block is in the sample when its hash begins with so many zero bits. Equal
//! blocks have equal hashes, so a block is in it with all of its copies or not at all: how often blocks occur
//! is what it is in the whole, which a sample of places would get wrong. The sample starts with everything;
//! whenever it grows too large, one more zero bit is asked for, and half of it goes. With `n` of them left
//! the figures are right to about `1 / sqrt(n)`.
//!
//! Holes of a file are no blocks. Blocks of zeros are holes too where there is compression, and what
//! compresses to 112 bytes or less lies in its block pointer: none of these has an entry.
//!
//! # The table
//! An entry is a record of a ZAP: 1 chunk of 24 bytes for the record, `ceil(40 / 21)` for the key,
//! `ceil(value / 21)` for the value. That of a fast table has 73 bytes, as the engine writes it
//! ([`ondisk::ddt::PhysForm`]); that of a traditional one is packed, mostly to less than 42. A leaf of 32 KiB
//! has 1278 chunks; it splits in two when it is full. Keys are hashes, so leaves of one depth hold numbers of
//! entries that scatter like Poisson's around `entries / 2^depth`, and a leaf is there for each that fits
//! whose parent did not.

use std::collections::HashMap;
use std::fmt;
use std::path::PathBuf;

use codec::checksum::{self, Digest};
use ondisk::ByteOrder;
use ondisk::blkptr::ChecksumType;
use ondisk::ddt::{DdtKey, PhysForm};
use serde::Serialize;
use statrs::distribution::{ContinuousCDF, Normal};

use super::compression::{Algorithm, Stored, block_bytes, store};
use super::{Model, bytes, percent, sample};
use crate::error::{Error, Result};
use crate::size::Size;
use crate::table;

/// Blocks of the sample.
const MOST_SAMPLED: usize = 1 << 18;
/// Size of a block of the table.
const LEAF_BYTES: f64 = 32768.0;
/// Chunks in it: what its 1024 hash buckets and its header leave.
const LEAF_CHUNKS: u64 = 1278;
/// Bytes that a chunk holds.
const CHUNK_BYTES: usize = 21;
/// Share of the cache that a table may take before it drives out what the cache is for.
const CACHE_SHARE: f64 = 0.25;

/// The kind of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Of pools with the feature `fast_dedup`.
    Fast,
    /// Of the others.
    Traditional,
}

impl Kind {
    /// The most entries of a leaf: each has chunks for the record, the key and the value.
    fn entries_of_a_leaf(self) -> u64 {
        let key = (DdtKey::WORDS * 8).div_ceil(CHUNK_BYTES);
        let value = match self {
            // A byte says how it is packed, which makes so short a value no shorter.
            Self::Fast => (1 + PhysForm::Flat.size()).div_ceil(CHUNK_BYTES),
            Self::Traditional => 2,
        };
        LEAF_CHUNKS / (1 + key + value) as u64
    }
}

/// A block that occurs in a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Occurring {
    /// How often.
    pub copies: u64,
    /// Its size before compression.
    pub lsize: u64,
    /// What it takes once.
    pub allocated: u64,
}

/// How data would be deduplicated.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Dedup {
    /// Size of a block.
    pub block: Size,
    /// The algorithm that blocks are compressed by.
    pub compression: String,
    /// One block in so many is in the sample.
    pub one_in: u64,
    /// Blocks of the sample.
    pub sampled: u64,
    /// Blocks that are written.
    pub blocks: u64,
    /// Entries that the table has: blocks that differ.
    pub entries: u64,
    /// Entries of blocks that occur once only, for which the table is no use.
    pub unique: u64,
    /// Bytes of all blocks, compressed.
    pub referenced: u64,
    /// Bytes of those that differ.
    pub allocated: u64,
    /// How many times less space the data take.
    pub ratio: f64,
    /// Bytes of the table in memory, where all of it is.
    pub memory: u64,
    /// The cache that it was compared with.
    pub cache: Size,
    /// Whether it fits that, and what each write costs where it does not.
    #[serde(flatten)]
    pub fit: Fit,
    /// How many blocks occur how often.
    pub histogram: Vec<Bucket>,
}

/// Whether a table fits the cache that it shares.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Fit {
    /// Whether it fits a quarter of the cache.
    pub fits: bool,
    /// Random reads that each write costs in the mean, where it does not.
    pub reads_a_write: f64,
}

impl Fit {
    /// Of a table with so many bytes of memory.
    pub(super) fn of(memory: f64, cache: Size) -> Self {
        let room = cache.0 as f64 * CACHE_SHARE;
        Self { fits: memory <= room, reads_a_write: (1.0 - room / memory).max(0.0) }
    }

    /// In words.
    pub(super) fn words(self, cache: Size) -> String {
        match self.fits {
            true => format!("that is at most a quarter of a cache of {cache}"),
            false => format!(
                "that is more than a quarter of a cache of {cache}: each write costs {:.2} more random reads \
                 on average",
                self.reads_a_write
            ),
        }
    }
}

/// Blocks that occur about equally often.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Bucket {
    /// From so many times on, up to twice that.
    pub copies: u64,
    /// So many blocks that differ.
    pub blocks: u64,
}

/// A block that is in the sample.
struct Seen {
    copies: u64,
    psize: u64,
}

/// The sample while it grows.
struct Sample {
    zero_bits: u32,
    seen: HashMap<Digest, Option<Seen>>,
    most: usize,
}

impl Sample {
    fn add(&mut self, digest: Digest, psize: impl FnOnce() -> Option<u64>) {
        if digest[0].leading_zeros() < self.zero_bits {
            return;
        }
        let seen = self.seen.entry(digest).or_insert_with(|| psize().map(|psize| Seen { copies: 0, psize }));
        if let Some(seen) = seen {
            seen.copies += 1;
        }
        while self.seen.len() > self.most {
            self.zero_bits += 1;
            let zero_bits = self.zero_bits;
            self.seen.retain(|digest, _| digest[0].leading_zeros() >= zero_bits);
        }
    }
}

impl Dedup {
    /// Of the files at `paths`, in blocks of `block` bytes compressed by `compression`, with sectors of
    /// `2^ashift` bytes and a cache of `cache`.
    pub fn of(paths: &[PathBuf], block: Size, compression: &str, ashift: u32, cache: Size) -> Result<Self> {
        Self::with_sample_of(MOST_SAMPLED, paths, block, compression, ashift, cache)
    }

    fn with_sample_of(
        most: usize,
        paths: &[PathBuf],
        block: Size,
        compression: &str,
        ashift: u32,
        cache: Size,
    ) -> Result<Self> {
        let (block_bytes, algorithm) = (block_bytes(block, ashift)?, Algorithm::named(compression)?);
        super::require_size("cache", cache, super::LEAST, super::MOST)?;
        let mut sample = Sample { zero_bits: 0, seen: HashMap::new(), most };
        let mut packed = vec![0; block_bytes];
        let mut has_data = false;
        for (path, size) in sample::data(paths)? {
            sample::blocks(&path, size, block_bytes, |block| {
                has_data = true;
                // It has no salt, so it cannot fail.
                let Ok(digest) = checksum::compute(ChecksumType::Sha256, block, ByteOrder::Little, None)
                else {
                    return;
                };
                sample.add(digest, || match store(algorithm, ashift, block, &mut packed) {
                    Stored::Hole | Stored::Embedded => None,
                    stored => Some(stored.bytes(block.len(), ashift)),
                });
            })?;
        }
        if !has_data {
            return Err(sample::no_data());
        }
        let seen: Vec<&Seen> = sample.seen.values().flatten().collect();
        Ok(Self::told_by(&seen, 1 << sample.zero_bits, block, compression, cache))
    }

    /// Of a pool of which one block in `one_in` was looked at, each with all of its copies.
    pub fn of_pool(one_in: u64, blocks: impl IntoIterator<Item = Occurring>, cache: Size) -> Result<Self> {
        super::require_size("cache", cache, super::LEAST, super::MOST)?;
        let (mut seen, mut bytes, mut copies) = (Vec::new(), 0u64, 0u64);
        for block in blocks {
            bytes = bytes.saturating_add(block.lsize.saturating_mul(block.copies));
            copies = copies.saturating_add(block.copies);
            seen.push(Seen { copies: block.copies.max(1), psize: block.allocated });
        }
        let Some(mean) = bytes.checked_div(copies) else {
            return Err(Error::Model("the pool has no data that could be deduplicated".into()));
        };
        let seen: Vec<&Seen> = seen.iter().collect();
        Ok(Self::told_by(&seen, one_in, Size(mean), "what they were written with", cache))
    }

    fn told_by(seen: &[&Seen], one_in: u64, block: Size, compression: &str, cache: Size) -> Self {
        let whole = |of: &dyn Fn(&Seen) -> u64| {
            let sum = seen.iter().fold(0u64, |sum, seen| sum.saturating_add(of(seen)));
            sum.saturating_mul(one_in)
        };
        let (referenced, allocated) =
            (whole(&|seen| seen.psize.saturating_mul(seen.copies)), whole(&|seen| seen.psize));
        let entries = (seen.len() as u64).saturating_mul(one_in);
        let memory = table_bytes(entries, Kind::Fast);
        let mut histogram: Vec<Bucket> = Vec::new();
        for power in 0..64 {
            let copies = 1_u64 << power;
            let blocks = whole(&|seen| u64::from(seen.copies.ilog2() == power));
            if blocks > 0 {
                histogram.push(Bucket { copies, blocks });
            }
        }
        Self {
            block,
            compression: compression.to_owned(),
            one_in,
            sampled: seen.len() as u64,
            blocks: whole(&|seen| seen.copies),
            entries,
            unique: whole(&|seen| u64::from(seen.copies == 1)),
            referenced,
            allocated,
            // What takes nothing is not deduplicated.
            ratio: if allocated == 0 { 1.0 } else { referenced as f64 / allocated as f64 },
            memory: memory as u64,
            cache,
            fit: Fit::of(memory, cache),
            histogram,
        }
    }
}

/// Bytes of a table of `entries`: its header, and its leaves.
pub(super) fn table_bytes(entries: u64, kind: Kind) -> f64 {
    let most = kind.entries_of_a_leaf();
    if entries == 0 {
        return 0.0;
    }
    let mut leaves = 0.0;
    // The chance that the entries of a leaf's parent fit a leaf; the first leaf has no parent.
    let mut above_fits = 0.0;
    for depth in 0..56 {
        let count = (1_u64 << depth) as f64;
        let fits = match depth {
            0 => f64::from(u8::from(entries <= most)),
            _ => at_most(most, entries as f64 / count),
        };
        // What fits the parent fits the leaf too, so the difference is the chance of a leaf just here.
        leaves += (fits - above_fits).max(0.0) * count;
        above_fits = fits;
        if fits > 1.0 - 1e-12 {
            break;
        }
    }
    (1.0 + leaves) * LEAF_BYTES
}

/// The chance that a number that scatters like Poisson's around `expected` is at most `most`.
fn at_most(most: u64, expected: f64) -> f64 {
    // Close to normal where it is not certain, as numbers are large.
    let deviations = (most as f64 + 0.5 - expected) / expected.max(1e-9).sqrt();
    Normal::standard().cdf(deviations)
}

/// How the memory of a table is computed, and where that comes from.
pub(super) const FORMULA_OF_TABLES: &str =
    "memory: (1 + leaves) * 32 KiB, a leaf of 1278 / 7 entries (old: / 5); reads a write: 1 - room / memory";
pub(super) const SOURCE_OF_TABLES: &str = "OpenZFS 2.3, ddt.c, ddt_zap.c, zap_leaf.h";

impl Model for Dedup {
    const FORMULA: &'static str = "entries: sampled blocks that differ * 2^zero bits; memory: (1 + leaves) * \
        32 KiB, a leaf of at most 1278 / 7 entries; reads a write: 1 - room / memory";
    const SOURCE: &'static str =
        "OpenZFS 2.3, ddt.c, ddt_zap.c, zap_leaf.h; Wegman's adaptive sampling (Flajolet 1990)";
}

impl fmt::Display for Dedup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "blocks of {}, compressed by {}; one in {} sampled\n",
            self.block, self.compression, self.one_in
        )?;
        let rows: Vec<Vec<String>> = self
            .histogram
            .iter()
            .map(|bucket| {
                let share = bucket.blocks as f64 / self.entries.max(1) as f64;
                vec![bucket.copies.to_string(), bucket.blocks.to_string(), percent(share), super::bar(share)]
            })
            .collect();
        writeln!(f, "{}", table::plain(&["copies", "blocks", "", ""], &rows))?;
        let (referenced, allocated) = (bytes(self.referenced as f64), bytes(self.allocated as f64));
        writeln!(f, "{referenced} become {allocated}: {:.2} times less", self.ratio)?;
        writeln!(
            f,
            "{} entries, {} of memory; {} occur once only",
            self.entries,
            bytes(self.memory as f64),
            self.unique
        )?;
        writeln!(f, "{}", self.fit.words(self.cache))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_tells_what_the_whole_would() {
        let directory = tempfile::tempdir().unwrap();
        let mut rng = fastrand::Rng::with_seed(5);
        // 20000 blocks that differ, of which every fourth is there three times, and holes.
        let mut data = Vec::new();
        for index in 0..20_000_u32 {
            let mut block = vec![0; 512];
            rng.fill(&mut block);
            data.extend_from_slice(&block);
            if index % 4 == 0 {
                data.extend_from_slice(&block);
                data.extend_from_slice(&block);
            }
            if index % 10 == 0 {
                data.extend_from_slice(&[0; 512]);
            }
        }
        let path = directory.path().join("data");
        std::fs::write(&path, data).unwrap();
        let of = |most| {
            Dedup::with_sample_of(most, std::slice::from_ref(&path), Size(512), "lz4", 9, Size(1 << 30))
                .unwrap()
        };
        let whole = of(usize::MAX);
        assert_eq!((whole.one_in, whole.entries, whole.blocks, whole.unique), (1, 20_000, 30_000, 15_000));
        assert_eq!(
            whole.histogram,
            [Bucket { copies: 1, blocks: 15_000 }, Bucket { copies: 2, blocks: 5_000 }]
        );
        assert_eq!(whole.ratio, 1.5);
        let sampled = of(4096);
        assert!(sampled.one_in >= 4 && sampled.sampled <= 4096);
        for (sampled, whole) in [(sampled.entries, whole.entries), (sampled.blocks, whole.blocks)] {
            assert!((sampled as f64 / whole as f64 - 1.0).abs() < 0.05, "{sampled} {whole}");
        }
        assert!((sampled.ratio / whole.ratio - 1.0).abs() < 0.03, "{}", sampled.ratio);
    }

    #[test]
    fn holes_of_a_file_are_not_deduplicated() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("sparse");
        let mut noise = vec![0; 1 << 20];
        fastrand::Rng::with_seed(1).fill(&mut noise);
        // Zeros that were written are data without compression, and holes with it.
        if !sample::sparse(&path, &[(64 << 20, &noise), (128 << 20, &[0; 1 << 20])]) {
            return;
        }
        let of = |compression| {
            Dedup::of(std::slice::from_ref(&path), Size(128 << 10), compression, 12, Size(1 << 30)).unwrap()
        };
        let (packed, plain) = (of("lz4"), of("off"));
        assert_eq!((packed.blocks, packed.entries, packed.ratio), (8, 8, 1.0));
        assert_eq!((plain.blocks, plain.entries), (16, 9));
        sample::sparse(&path, &[]);
        let told = Dedup::of(&[path], Size(128 << 10), "off", 12, Size(1 << 30)).unwrap_err();
        assert!(told.to_string().contains("no data"), "{told}");
    }

    #[test]
    fn tables_grow_leaf_by_leaf() {
        let table_bytes = |entries| table_bytes(entries, Kind::Traditional);
        assert_eq!(table_bytes(0), 0.0);
        assert_eq!((Kind::Traditional.entries_of_a_leaf(), Kind::Fast.entries_of_a_leaf()), (255, 182));
        // One leaf and the header, as zdb says of tables with 173 entries.
        assert!((table_bytes(173) - 65536.0).abs() < 1.0, "{}", table_bytes(173));
        // Played through: entries fall on leaves by their hashes, full leaves split.
        for entries in [1000, 5000, 40_000, 100_000] {
            let mut rng = fastrand::Rng::with_seed(1);
            let mut leaves: Vec<Vec<u64>> = vec![Vec::new()];
            let mut prefixes: Vec<(u64, u32)> = vec![(0, 0)];
            for _ in 0..entries {
                let hash = rng.u64(..);
                let mut at = prefixes
                    .iter()
                    .position(|(prefix, bits)| *bits == 0 || hash >> (64 - bits) == *prefix)
                    .unwrap();
                while leaves[at].len() as u64 == Kind::Traditional.entries_of_a_leaf() {
                    let (prefix, bits) = prefixes[at];
                    let (upper, lower): (Vec<u64>, Vec<u64>) =
                        leaves[at].iter().partition(|hash| *hash >> (63 - bits) & 1 == 1);
                    leaves[at] = lower;
                    prefixes[at] = (prefix << 1, bits + 1);
                    leaves.push(upper);
                    prefixes.push((prefix << 1 | 1, bits + 1));
                    if hash >> (63 - bits) & 1 == 1 {
                        at = leaves.len() - 1;
                    }
                }
                leaves[at].push(hash);
            }
            let played = (1 + leaves.len()) as f64 * LEAF_BYTES;
            let model = table_bytes(entries);
            assert!((model / played - 1.0).abs() < 0.1, "{entries}: {model} {played}");
        }
    }

    #[test]
    fn a_table_that_does_not_fit_costs_reads() {
        let block = Occurring { copies: 1, lsize: 8192, allocated: 4096 };
        let told = |cache| Dedup::of_pool(1024, vec![block; 1000], Size(cache)).unwrap();
        assert!(told(16 << 30).fit.fits && told(16 << 30).fit.reads_a_write == 0.0);
        assert!(!told(64 << 20).fit.fits && told(64 << 20).fit.reads_a_write > 0.5);
        assert!(told(64 << 20).to_string().contains("more random reads"));
    }

    #[test]
    fn blocks_of_a_pool_count_by_what_they_take() {
        let blocks = [(3, 16384, 4096), (1, 8192, 8192), (2, 4096, 4096)];
        let blocks = blocks.map(|(copies, lsize, allocated)| Occurring { copies, lsize, allocated });
        let told = Dedup::of_pool(4, blocks, Size(1 << 30)).unwrap();
        assert_eq!((told.entries, told.blocks, told.unique, told.sampled), (12, 24, 4, 3));
        assert_eq!((told.referenced, told.allocated), (4 * 28_672, 4 * 16_384));
        assert_eq!((told.block, told.one_in), (Size(10_922), 4));
        assert!(Dedup::of_pool(1, [], Size(1 << 30)).unwrap_err().to_string().contains("no data"));
    }
}
