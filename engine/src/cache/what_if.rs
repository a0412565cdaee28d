//! What a cache of another size would do: the miss-ratio curve of the reads as they come.
//!
//! # The idea
//! A least-recently-used cache holds a block at its next read if less than its size was read in between: the
//! *reuse distance* of the read. So the distances of all reads say how many of them any size of cache would
//! answer. Following all blocks would cost as much as the cache itself. SHARDS (Waldspurger and others, FAST
//! 2015) follows a few: those whose hash is below a threshold. A block is followed always or never, so its
//! distances, divided by the share of blocks that is followed (the *rate*), are right on average. When more
//! than `MAX_OBJECTS` blocks are followed, those with the largest hashes are forgotten, and the threshold
//! falls: memory and work are bounded whatever the size of the data.
//!
//! A block is what a reader means by it: its place in an object ([`Bookmark`]). A block that is overwritten
//! stays the same block, as in the ARC, where the new version takes the place of the old one. What clones
//! share counts for each of them.
//!
//! Reads in advance are not uses. So the curve shows what a cache alone would do; read-ahead answers more.
//!
//! # Cost
//! A read that is not followed costs a hash and a comparison. One that is followed takes the lock of its
//! curves, if it is free: the sample is left out otherwise, so that no reader waits. `curves_of_known_reads`
//! tests the curve, and the benchmark `cached` measures the cost.
//!
//! | lock | guards | order |
//! |---|---|---|
//! | `curves` | all curves; held for one sample or a report | taken alone |

use std::collections::{BTreeMap, HashMap};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use device::IgnorePoison;

use crate::Bookmark;

/// The share of blocks that is followed at first: one in so many.
const FIRST_RATE: u64 = 8;
/// The most blocks that a curve follows.
const MAX_OBJECTS: usize = 16 << 10;
/// The most curves: one for each pool and for each dataset that is read.
const MAX_CURVES: usize = 256;
/// Steps of a curve in each doubling of the size.
const STEPS: u32 = 8;
/// The smallest size that a curve tells apart, as a power of two.
const FIRST_SHIFT: u32 = 12;
const BUCKETS: usize = ((64 - FIRST_SHIFT) * STEPS) as usize;
/// After this time, what was counted before counts half.
const HALF_LIFE: Duration = Duration::from_secs(600);

/// Whose reads a curve has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Readers {
    /// Number of the open pool ([`super::ArcCache::register_pool`]).
    pub pool: u32,
    /// The object set; none for all of the pool.
    pub objset: Option<u64>,
}

/// A read of a block.
#[derive(Debug, Clone, Copy)]
pub struct Read {
    /// Bytes of the block in memory.
    pub bytes: u64,
    /// Bytes of it as it is stored, without copies and parity.
    pub stored_bytes: u64,
    /// Whether it is metadata.
    pub is_metadata: bool,
}

/// The miss-ratio curves of what a cache was asked for.
#[derive(Debug, Default)]
pub struct WhatIf {
    curves: Mutex<HashMap<Readers, Curve>>,
}

/// A curve, as of now.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    /// Whose reads.
    pub readers: Readers,
    /// Reads that were followed, the older ones counting less.
    pub samples: f64,
    /// The share of blocks that is followed.
    pub rate: f64,
    /// The number of blocks that were read, about.
    pub distinct_blocks: u64,
    /// Bytes of all blocks that were read, about.
    pub distinct_bytes: u64,
    /// What these are as they are stored, without copies and parity.
    pub distinct_stored_bytes: u64,
    /// The part of the bytes that is metadata.
    pub distinct_metadata_bytes: u64,
    /// The share of reads that were of metadata.
    pub metadata_share: f64,
    /// Sizes of caches in bytes, with the share of reads that each would answer.
    pub points: Vec<(u64, f64)>,
    /// The same sizes, with the share of all reads that are of metadata and that each would answer.
    pub metadata_points: Vec<(u64, f64)>,
}

impl WhatIf {
    /// Notes a read of a block.
    #[inline]
    pub fn note(&self, pool: u32, at: &Bookmark, read: impl FnOnce() -> Read) {
        let hash = hash(pool, at);
        if hash <= u64::MAX / FIRST_RATE {
            self.sample(pool, at, read(), hash);
        }
    }

    #[cold]
    fn sample(&self, pool: u32, at: &Bookmark, read: Read, hash: u64) {
        let Ok(mut curves) = self.curves.try_lock() else { return };
        let now = Instant::now();
        for objset in [None, Some(at.objset)] {
            let readers = Readers { pool, objset };
            if curves.len() >= MAX_CURVES && !curves.contains_key(&readers) {
                continue;
            }
            curves.entry(readers).or_insert_with(|| Curve::new(now)).note(hash, read, now);
        }
    }

    /// Forgets what is known of a pool that was closed.
    pub fn forget_pool(&self, pool: u32) {
        self.curves.lock().ignore_poison().retain(|readers, _| readers.pool != pool);
    }

    /// The curves of a pool: of all of it first, then of its object sets.
    pub fn reports(&self, pool: u32) -> Vec<Report> {
        let curves = self.curves.lock().ignore_poison();
        let of_pool = curves.iter().filter(|(readers, _)| readers.pool == pool);
        let mut reports: Vec<Report> = of_pool.map(|(readers, curve)| curve.report(*readers)).collect();
        reports.sort_by_key(|report| report.readers);
        reports
    }
}

/// Evenly spread over all numbers, and the same for the same block each time.
fn hash(pool: u32, at: &Bookmark) -> u64 {
    let mix = |mixed: u64, word: u64| {
        let mixed = (mixed ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        mixed ^ (mixed >> 32)
    };
    let mixed = [at.objset, at.object, at.level as u64, at.blkid].into_iter().fold(u64::from(pool), mix);
    mix(mixed, 0x2545_f491_4f6c_dd1d)
}

/// A block that is followed.
#[derive(Debug, Clone, Copy)]
struct Object {
    /// When it was read last, as a place in the order of reads.
    slot: usize,
    read: Read,
}

#[derive(Debug)]
struct Curve {
    /// By hash.
    objects: BTreeMap<u64, Object>,
    /// Hashes above are not followed.
    threshold: u64,
    order: Order,
    /// Reads by distance, each for as many as one stands for.
    reads: Vec<f64>,
    /// Those of metadata.
    metadata_reads: Vec<f64>,
    /// First reads.
    first: f64,
    of_metadata: f64,
    samples: f64,
    aged: Instant,
}

impl Curve {
    fn new(now: Instant) -> Self {
        Self {
            objects: BTreeMap::new(),
            threshold: u64::MAX / FIRST_RATE,
            order: Order::new(4 * MAX_OBJECTS),
            reads: vec![0.0; BUCKETS],
            metadata_reads: vec![0.0; BUCKETS],
            first: 0.0,
            of_metadata: 0.0,
            samples: 0.0,
            aged: now,
        }
    }

    fn rate(&self) -> f64 {
        self.threshold as f64 / u64::MAX as f64
    }

    fn note(&mut self, hash: u64, read: Read, now: Instant) {
        if hash > self.threshold {
            return;
        }
        self.age(now);
        let weight = 1.0 / self.rate();
        self.samples += 1.0;
        let bytes = read.bytes;
        self.of_metadata += if read.is_metadata { weight } else { 0.0 };
        match self.objects.get(&hash) {
            None => self.first += weight,
            Some(object) => {
                // The block itself has to be in the cache, too.
                let between = self.order.after(object.slot).saturating_add(bytes);
                let distance = between as f64 / self.rate();
                let bucket = bucket(distance as u64);
                if let Some(reads) = self.reads.get_mut(bucket) {
                    *reads += weight;
                }
                if let Some(reads) = self.metadata_reads.get_mut(bucket).filter(|_| read.is_metadata) {
                    *reads += weight;
                }
                self.order.take(object.slot, object.read.bytes);
            }
        }
        if self.order.is_full() {
            self.order.renumber(&mut self.objects, hash);
        }
        let slot = self.order.put(bytes);
        self.objects.insert(hash, Object { slot, read });
        if self.objects.len() > MAX_OBJECTS {
            self.follow_fewer();
        }
    }

    /// Forgets the block with the largest hash.
    fn follow_fewer(&mut self) {
        if let Some((hash, object)) = self.objects.pop_last() {
            self.order.take(object.slot, object.read.bytes);
            self.threshold = hash.saturating_sub(1);
        }
    }

    fn age(&mut self, now: Instant) {
        if now.saturating_duration_since(self.aged) < HALF_LIFE {
            return;
        }
        self.aged = now;
        let counted = [&mut self.first, &mut self.of_metadata, &mut self.samples];
        let reads = self.reads.iter_mut().chain(&mut self.metadata_reads);
        reads.chain(counted).for_each(|count| *count /= 2.0);
    }

    fn report(&self, readers: Readers) -> Report {
        let all = self.first + self.reads.iter().sum::<f64>();
        let share = |part: f64| if all > 0.0 { part / all } else { 0.0 };
        let scaled = |bytes: u64| (bytes as f64 / self.rate()) as u64;
        let bytes =
            |of: &dyn Fn(&Read) -> u64| scaled(self.objects.values().map(|object| of(&object.read)).sum());
        let points = |reads: &[f64]| {
            let mut points = Vec::new();
            let mut answered = 0.0;
            for (index, reads) in reads.iter().enumerate().filter(|(_, reads)| **reads > 0.0) {
                answered += reads;
                points.push((bucket_end(index), share(answered)));
            }
            points
        };
        Report {
            readers,
            samples: self.samples,
            rate: self.rate(),
            distinct_blocks: scaled(self.objects.len() as u64),
            distinct_bytes: bytes(&|read| read.bytes),
            distinct_stored_bytes: bytes(&|read| read.stored_bytes),
            distinct_metadata_bytes: bytes(&|read| if read.is_metadata { read.bytes } else { 0 }),
            metadata_share: share(self.of_metadata),
            points: points(&self.reads),
            metadata_points: points(&self.metadata_reads),
        }
    }
}

/// The bucket of a distance.
fn bucket(bytes: u64) -> usize {
    let steps = (bytes.max(1) as f64).log2() - f64::from(FIRST_SHIFT);
    ((steps * f64::from(STEPS)).ceil().max(0.0) as usize).min(BUCKETS - 1)
}

/// The largest distance in a bucket.
fn bucket_end(index: usize) -> u64 {
    (f64::from(FIRST_SHIFT) + index as f64 / f64::from(STEPS)).exp2() as u64
}

/// Bytes in the order of their last reads: a Fenwick tree over places in that order.
#[derive(Debug)]
struct Order {
    sums: Vec<u64>,
    next: usize,
}

impl Order {
    fn new(places: usize) -> Self {
        Self { sums: vec![0; places + 1], next: 0 }
    }

    fn is_full(&self) -> bool {
        self.next + 1 >= self.sums.len()
    }

    /// Puts bytes at the end. Returns their place.
    fn put(&mut self, bytes: u64) -> usize {
        let slot = self.next;
        self.next += 1;
        self.add(slot, bytes);
        slot
    }

    fn add(&mut self, slot: usize, bytes: u64) {
        let mut at = slot + 1;
        while let Some(sum) = self.sums.get_mut(at) {
            *sum = sum.wrapping_add(bytes);
            at += at & at.wrapping_neg();
        }
    }

    fn take(&mut self, slot: usize, bytes: u64) {
        self.add(slot, bytes.wrapping_neg());
    }

    /// Bytes at places up to and with this one.
    fn until(&self, slot: usize) -> u64 {
        let mut at = slot + 1;
        let mut bytes = 0u64;
        while at > 0 {
            bytes = bytes.wrapping_add(self.sums.get(at).copied().unwrap_or(0));
            at &= at - 1;
        }
        bytes
    }

    /// Bytes at places after this one.
    fn after(&self, slot: usize) -> u64 {
        match self.next {
            0 => 0,
            next => self.until(next - 1).wrapping_sub(self.until(slot)),
        }
    }

    /// Gives all objects but `leaving` new places, without gaps.
    fn renumber(&mut self, objects: &mut BTreeMap<u64, Object>, leaving: u64) {
        let mut places: Vec<(usize, u64)> = objects
            .iter()
            .filter(|(hash, _)| **hash != leaving)
            .map(|(hash, object)| (object.slot, *hash))
            .collect();
        places.sort_unstable();
        self.sums.iter_mut().for_each(|sum| *sum = 0);
        self.next = 0;
        for (_, hash) in places {
            if let Some(object) = objects.get_mut(&hash) {
                object.slot = self.put(object.read.bytes);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(blkid: u64) -> Bookmark {
        Bookmark { objset: 54, object: 1, level: 0, blkid }
    }

    fn read(bytes: u64) -> Read {
        Read { bytes, stored_bytes: bytes / 2, is_metadata: false }
    }

    /// Numbers below `most` that look random.
    fn random(most: u64) -> impl FnMut() -> u64 {
        let mut state = 3u64;
        move || {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 20) % most
        }
    }

    /// The share of reads that a cache of `bytes` would answer.
    fn hit_ratio(report: &Report, bytes: u64) -> f64 {
        report.points.iter().take_while(|(size, _)| *size <= bytes).last().map_or(0.0, |(_, ratio)| *ratio)
    }

    fn report(what_if: &WhatIf) -> Report {
        what_if.reports(7).remove(0)
    }

    #[test]
    fn curves_of_known_reads() {
        // In turn: nothing is there again in a cache that is smaller than all of it.
        const BLOCKS: u64 = 200_000;
        const BYTES: u64 = 8192;
        let what_if = WhatIf::default();
        (0..BLOCKS * 3).for_each(|n| what_if.note(7, &at(n % BLOCKS), || read(BYTES)));
        let all = report(&what_if);
        assert_eq!(hit_ratio(&all, BLOCKS * BYTES * 8 / 10), 0.0);
        let most = hit_ratio(&all, BLOCKS * BYTES * 12 / 10);
        assert!((0.62..0.70).contains(&most), "{most}");
        let distinct = all.distinct_bytes as f64 / (BLOCKS * BYTES) as f64;
        assert!((0.95..1.05).contains(&distinct), "{distinct}");
        assert!(all.rate < 0.09 && all.rate > 0.07, "fewer are followed: {}", all.rate);
    }

    #[test]
    fn random_reads_are_answered_by_the_share_that_fits() {
        const BLOCKS: u64 = 100_000;
        let (what_if, mut random) = (WhatIf::default(), random(BLOCKS));
        (0..BLOCKS * 20).for_each(|_| what_if.note(7, &at(random()), || read(4096)));
        let all = report(&what_if);
        for tenths in [1, 3, 5, 9] {
            let ratio = hit_ratio(&all, BLOCKS * 4096 / 10 * tenths);
            let expected = tenths as f64 / 10.0 * 0.95;
            assert!((ratio - expected).abs() < 0.06, "{tenths}: {ratio}");
        }
    }

    #[test]
    fn reads_of_metadata_have_a_curve_of_their_own() {
        // Of four reads one is of a few blocks of metadata, the others are of many blocks of data.
        let (what_if, mut random) = (WhatIf::default(), random(100_000));
        for n in 0..400_000u64 {
            match n % 4 {
                0 => what_if.note(7, &Bookmark { level: 1, ..at(n / 4 % 8000) }, || Read {
                    is_metadata: true,
                    ..read(4096)
                }),
                _ => what_if.note(7, &at(random()), || read(4096)),
            }
        }
        let all = report(&what_if);
        let answered = |bytes: u64| {
            all.metadata_points
                .iter()
                .take_while(|(size, _)| *size <= bytes)
                .last()
                .map_or(0.0, |(_, ratio)| *ratio)
        };
        assert!((all.metadata_share - 0.25).abs() < 0.02, "{}", all.metadata_share);
        // All of the metadata is read again after 8,000 + 24,000 blocks.
        assert_eq!(answered(16_000 * 4096), 0.0);
        assert!((answered(40_000 * 4096) - 0.23).abs() < 0.03, "{}", answered(40_000 * 4096));
        let blocks = all.distinct_blocks as f64;
        assert!((100_000.0..112_000.0).contains(&blocks), "{blocks}");
    }

    #[test]
    fn pools_and_datasets_have_curves_of_their_own_until_they_are_closed() {
        let what_if = WhatIf::default();
        for n in 0..20_000 {
            what_if.note(7, &at(n), || Read { is_metadata: n % 4 == 0, ..read(4096) });
            what_if.note(8, &Bookmark { objset: 55, ..at(n) }, || read(4096));
        }
        let readers: Vec<_> = what_if.reports(7).iter().map(|report| report.readers.objset).collect();
        assert_eq!(readers, [None, Some(54)]);
        let of_pool = report(&what_if);
        assert!((of_pool.metadata_share - 0.25).abs() < 0.03, "{}", of_pool.metadata_share);
        what_if.forget_pool(7);
        assert_eq!((what_if.reports(7).len(), what_if.reports(8).len()), (0, 2));
    }

    #[test]
    fn distances_are_in_the_bucket_that_ends_at_or_above_them() {
        for bytes in [1, 4096, 4097, 8192, 1 << 20, (1 << 20) + 1, 1 << 45] {
            let end = bucket_end(bucket(bytes));
            assert!(end + 1 >= bytes && (end as f64) < bytes.max(4096) as f64 * 1.1, "{bytes}: {end}");
        }
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }
}
