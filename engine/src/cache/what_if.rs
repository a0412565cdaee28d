//! What a cache of another size would do: the miss-ratio curve of the reads as they come.
//!
//! # The idea
//! A least-recently-used cache holds a block at its next read if less than its size was read in between: the
//! *reuse distance* of the read. So the distances of all reads say how many of them any size of cache would
//! answer. Following all blocks would cost as much as the cache itself. SHARDS (Waldspurger and others, FAST
//! 2015) follows a few: those whose hash is below a threshold. A block is followed always or never, so its
//! distances, divided by the share of blocks that is followed (the *rate*), are right on average. When more
//! than `MAX_OBJECTS` blocks are followed, the threshold falls, and those above it are forgotten: memory and
//! work are bounded whatever the size of the data.
//!
//! A block is what a reader means by it: its place in an object ([`Bookmark`]). A block that is overwritten
//! stays the same block, as in the ARC, where the new version takes the place of the old one. What clones
//! share counts for each of them.
//!
//! The first read of a block says only that its distance is larger than all that was read until then. For
//! caches of that size and below it is a miss; about larger ones it says nothing, and is left out there
//! (Kaplan and Meier's estimator). Otherwise each block would count as a miss once, and the curve of a pool
//! that was opened lately would be too low.
//!
//! How far a curve can be trusted: [`Report::followed_blocks`] says how many blocks it was made of,
//! [`Report::passes`] how often each of them was read, and [`Report::least_points`] are the curve with all
//! first reads as misses, which it falls to if what was left out never comes back.
//!
//! Reads in advance are not uses. So the curve shows what a cache alone would do; read-ahead answers more.
//!
//! # Cost
//! A read that no curve follows costs a hash and a comparison. One that is followed takes the lock of its
//! curves, if it is free: the sample is left out otherwise, so that no reader waits. Then it costs one access
//! of a table and three of a Fenwick tree. `curves_of_known_reads` tests the curve, and the benchmark
//! `cached` measures the cost.
//!
//! | lock | guards | order |
//! |---|---|---|
//! | `curves` | all curves; held for one sample or a report | taken alone |

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use device::IgnorePoison;
use hashbrown::HashMap;

use crate::Bookmark;

/// The share of blocks that is followed at first: one in so many.
const FIRST_RATE: u64 = 8;
/// The threshold of a new curve.
const FIRST_THRESHOLD: u64 = u64::MAX / FIRST_RATE;
/// The most blocks that a curve follows.
const MAX_OBJECTS: usize = 8 << 10;
/// The part of the threshold that stays when it falls.
const KEPT_PERCENT: u64 = 90;
/// The clock is looked at each time after so many samples.
const CLOCK_SAMPLES: u32 = 64;
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
#[derive(Debug)]
pub struct WhatIf {
    curves: Mutex<HashMap<Readers, Curve>>,
    /// The largest threshold of the curves, or that of a new one: blocks whose hash is above are followed by
    /// none. A new curve begins with a block that is below.
    highest: AtomicU64,
}

impl Default for WhatIf {
    fn default() -> Self {
        Self { curves: Mutex::default(), highest: AtomicU64::new(FIRST_THRESHOLD) }
    }
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
    /// The number of blocks that are followed.
    pub followed_blocks: u64,
    /// How often a block was read on average, the older reads counting less.
    pub passes: f64,
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
    pub points: Points,
    /// The same sizes, with the share if each first read were a miss at any size.
    pub least_points: Points,
    /// The same sizes, with the share of all reads that are of metadata and that each would answer.
    pub metadata_points: Points,
}

/// Sizes of caches in bytes, in order, with the share of reads that each would answer.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Points(pub Vec<(u64, f64)>);

impl Points {
    /// The share of reads that a cache of `bytes` would answer. Between two sizes it grows evenly.
    pub fn hit_ratio(&self, bytes: u64) -> f64 {
        ratio_at(&self.0, bytes)
    }
}

/// The same, of points that are kept elsewhere.
pub fn ratio_at(points: &[(u64, f64)], bytes: u64) -> f64 {
    let after = points.partition_point(|(size, _)| *size <= bytes);
    let before = after.checked_sub(1).and_then(|index| points.get(index)).copied();
    let (Some((size, ratio)), next) = (before, points.get(after)) else { return 0.0 };
    let Some((next_size, next_ratio)) = next else { return ratio };
    ratio + (next_ratio - ratio) * (bytes - size) as f64 / (next_size - size).max(1) as f64
}

/// The same for a cache in memory with a cache device behind it. A block that is read from the device stays
/// there, too. So of what the device holds the same share is in memory as of all that is read.
pub fn ratio_with_device(
    points: &[(u64, f64)],
    memory_bytes: u64,
    device_bytes: u64,
    distinct_bytes: u64,
) -> f64 {
    if device_bytes >= distinct_bytes {
        // It holds all that is read again.
        return points.last().map_or(0.0, |(_, ratio)| *ratio);
    }
    let elsewhere = 1.0 - memory_bytes as f64 / distinct_bytes.max(1) as f64;
    let added = (device_bytes as f64 * elsewhere.max(0.0)) as u64;
    ratio_at(points, memory_bytes.saturating_add(added))
}

impl WhatIf {
    /// Notes a read of a block.
    #[inline]
    pub fn note(&self, pool: u32, at: &Bookmark, read: impl FnOnce() -> Read) {
        let hash = hash(pool, at);
        if hash <= self.highest.load(Ordering::Relaxed) {
            self.sample(pool, at, read(), hash);
        }
    }

    #[cold]
    fn sample(&self, pool: u32, at: &Bookmark, read: Read, hash: u64) {
        let Ok(mut curves) = self.curves.try_lock() else { return };
        for objset in [None, Some(at.objset)] {
            let readers = Readers { pool, objset };
            if curves.len() >= MAX_CURVES && !curves.contains_key(&readers) {
                continue;
            }
            let mut has_changed = false;
            let curve = curves.entry(readers).or_insert_with(|| {
                has_changed = true;
                Curve::new()
            });
            let threshold = curve.threshold;
            curve.note(hash, read);
            if has_changed || curve.threshold != threshold {
                self.note_thresholds(&curves);
            }
        }
    }

    fn note_thresholds(&self, curves: &HashMap<Readers, Curve>) {
        let highest = curves.values().map(|curve| curve.threshold).max();
        self.highest.store(highest.unwrap_or(FIRST_THRESHOLD), Ordering::Relaxed);
    }

    /// Forgets what is known of a pool that was closed.
    pub fn forget_pool(&self, pool: u32) {
        let mut curves = self.curves.lock().ignore_poison();
        curves.retain(|readers, _| readers.pool != pool);
        self.note_thresholds(&curves);
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
    objects: HashMap<u64, Object>,
    /// Hashes above are not followed.
    threshold: u64,
    order: Order,
    /// Reads by distance, each for as many as one stands for.
    reads: Vec<f64>,
    /// Those of metadata.
    metadata_reads: Vec<f64>,
    /// First reads, by the bytes that were read until then.
    first: Vec<f64>,
    of_metadata: f64,
    samples: f64,
    aged: Instant,
    /// Samples until the clock is looked at.
    until_clock: u32,
}

impl Curve {
    fn new() -> Self {
        Self {
            objects: HashMap::new(),
            threshold: FIRST_THRESHOLD,
            order: Order::new(4 * MAX_OBJECTS),
            reads: vec![0.0; BUCKETS],
            metadata_reads: vec![0.0; BUCKETS],
            first: vec![0.0; BUCKETS],
            of_metadata: 0.0,
            samples: 0.0,
            aged: Instant::now(),
            until_clock: CLOCK_SAMPLES,
        }
    }

    fn rate(&self) -> f64 {
        self.threshold as f64 / u64::MAX as f64
    }

    fn note(&mut self, hash: u64, read: Read) {
        if hash > self.threshold {
            return;
        }
        self.age();
        let rate = self.rate();
        let weight = 1.0 / rate;
        self.samples += 1.0;
        let bytes = read.bytes;
        self.of_metadata += if read.is_metadata { weight } else { 0.0 };
        if self.order.is_full() {
            self.order.renumber(&mut self.objects);
        }
        let slot = self.order.put(bytes);
        let scaled = |between: u64| bucket((between as f64 / rate) as u64);
        match self.objects.insert(hash, Object { slot, read }) {
            None => {
                let until_now = self.order.all_bytes().saturating_sub(bytes);
                if let Some(first) = self.first.get_mut(scaled(until_now)) {
                    *first += weight;
                }
            }
            Some(before) => {
                // The block itself has to be in the cache, too: it is the last of those after its last read.
                let between = self.order.bytes_after(before.slot);
                let place = scaled(between);
                if let Some(reads) = self.reads.get_mut(place) {
                    *reads += weight;
                }
                if let Some(reads) = self.metadata_reads.get_mut(place).filter(|_| read.is_metadata) {
                    *reads += weight;
                }
                self.order.take(before.slot, before.read.bytes);
            }
        }
        if self.objects.len() > MAX_OBJECTS {
            self.follow_fewer();
        }
    }

    /// Lowers the threshold, and forgets the blocks above it.
    fn follow_fewer(&mut self) {
        self.threshold = self.threshold / 100 * KEPT_PERCENT;
        let (threshold, order) = (self.threshold, &mut self.order);
        self.objects.retain(|hash, object| {
            let is_followed = *hash <= threshold;
            if !is_followed {
                order.take(object.slot, object.read.bytes);
            }
            is_followed
        });
    }

    fn age(&mut self) {
        self.until_clock -= 1;
        if self.until_clock > 0 {
            return;
        }
        self.until_clock = CLOCK_SAMPLES;
        let now = Instant::now();
        if now.saturating_duration_since(self.aged) < HALF_LIFE {
            return;
        }
        self.aged = now;
        let counted = [&mut self.of_metadata, &mut self.samples];
        let reads = self.reads.iter_mut().chain(&mut self.metadata_reads).chain(&mut self.first);
        reads.chain(counted).for_each(|count| *count /= 2.0);
    }

    fn report(&self, readers: Readers) -> Report {
        let all = self.first.iter().chain(&self.reads).sum::<f64>();
        let share = |part: f64| if all > 0.0 { part / all } else { 0.0 };
        let scaled = |bytes: u64| (bytes as f64 / self.rate()) as u64;
        let bytes =
            |of: &dyn Fn(&Read) -> u64| scaled(self.objects.values().map(|object| of(&object.read)).sum());
        let (points, metadata_points) = self.points(all);
        let mut answered = 0.0;
        let with_first = self.reads.iter().enumerate().filter(|(_, reads)| **reads > 0.0);
        let least_points = with_first.map(|(index, reads)| {
            answered += reads;
            (bucket_end(index), share(answered))
        });
        let distinct_blocks = scaled(self.objects.len() as u64);
        Report {
            readers,
            samples: self.samples,
            rate: self.rate(),
            followed_blocks: self.objects.len() as u64,
            passes: all / distinct_blocks.max(1) as f64,
            distinct_blocks,
            distinct_bytes: bytes(&|read| read.bytes),
            distinct_stored_bytes: bytes(&|read| read.stored_bytes),
            distinct_metadata_bytes: bytes(&|read| if read.is_metadata { read.bytes } else { 0 }),
            metadata_share: share(self.of_metadata),
            points,
            least_points: Points(least_points.collect()),
            metadata_points,
        }
    }

    /// The curve of `all` reads that were counted, and that of metadata among them.
    fn points(&self, all: f64) -> (Points, Points) {
        let (mut points, mut of_metadata) = (Vec::new(), Vec::new());
        // Reads whose distance is this or larger, the share of all reads that smaller caches miss, and that
        // of reads of metadata that they answer.
        let (mut left, mut missed, mut metadata) = (all, 1.0, 0.0);
        let buckets = self.reads.iter().zip(&self.metadata_reads).zip(&self.first).enumerate();
        for (index, ((reads, metadata_reads), first)) in buckets {
            left -= first;
            if *reads > 0.0 {
                let before = missed;
                missed *= (1.0 - reads / left).max(0.0);
                metadata += (before - missed) * metadata_reads / reads;
                points.push((bucket_end(index), 1.0 - missed));
                of_metadata.push((bucket_end(index), metadata));
            }
            left -= reads;
        }
        (Points(points), Points(of_metadata))
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

/// The unit in which bytes are summed: a sum of the largest blocks fits into 32 bits.
const UNIT_SHIFT: u32 = 9;

fn units(bytes: u64) -> u32 {
    u32::try_from(bytes.div_ceil(1 << UNIT_SHIFT)).unwrap_or(u32::MAX)
}

fn to_bytes(units: u32) -> u64 {
    u64::from(units) << UNIT_SHIFT
}

/// Bytes in the order of their last reads: a Fenwick tree over places in that order.
#[derive(Debug)]
struct Order {
    sums: Vec<u32>,
    all: u32,
    next: usize,
}

impl Order {
    fn new(places: usize) -> Self {
        Self { sums: vec![0; places + 1], all: 0, next: 0 }
    }

    fn is_full(&self) -> bool {
        self.next + 1 >= self.sums.len()
    }

    /// Puts bytes at the end. Returns their place.
    fn put(&mut self, bytes: u64) -> usize {
        let slot = self.next;
        self.next += 1;
        self.add(slot, units(bytes));
        slot
    }

    fn add(&mut self, slot: usize, units: u32) {
        self.all = self.all.wrapping_add(units);
        let mut at = slot + 1;
        while let Some(sum) = self.sums.get_mut(at) {
            *sum = sum.wrapping_add(units);
            at += at & at.wrapping_neg();
        }
    }

    fn take(&mut self, slot: usize, bytes: u64) {
        self.add(slot, units(bytes).wrapping_neg());
    }

    /// Bytes at places after this one.
    fn bytes_after(&self, slot: usize) -> u64 {
        let mut at = slot + 1;
        let mut after = self.all;
        while at > 0 {
            after = after.wrapping_sub(self.sums.get(at).copied().unwrap_or(0));
            at &= at - 1;
        }
        to_bytes(after)
    }

    /// Bytes at all places.
    fn all_bytes(&self) -> u64 {
        to_bytes(self.all)
    }

    /// Gives all objects new places, without gaps.
    fn renumber(&mut self, objects: &mut HashMap<u64, Object>) {
        let mut places: Vec<&mut Object> = objects.values_mut().collect();
        places.sort_unstable_by_key(|object| object.slot);
        self.sums.iter_mut().for_each(|sum| *sum = 0);
        (self.all, self.next) = (0, 0);
        for object in places {
            object.slot = self.put(object.read.bytes);
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
        assert_eq!(all.points.hit_ratio(BLOCKS * BYTES * 8 / 10), 0.0);
        // The first reads say nothing about a cache that holds all of it.
        let most = all.points.hit_ratio(BLOCKS * BYTES * 12 / 10);
        assert!((0.97..=1.0).contains(&most), "{most}");
        let with_first = all.least_points.hit_ratio(BLOCKS * BYTES * 12 / 10);
        assert!((with_first - 2.0 / 3.0).abs() < 0.05 && (all.passes - 3.0).abs() < 0.2, "{with_first}");
        let distinct = all.distinct_bytes as f64 / (BLOCKS * BYTES) as f64;
        assert!((0.95..1.05).contains(&distinct), "{distinct}");
        assert!(all.rate < 0.042 && all.rate > 0.034, "fewer are followed: {}", all.rate);
    }

    #[test]
    fn random_reads_are_answered_by_the_share_that_fits() {
        const BLOCKS: u64 = 100_000;
        let (what_if, mut random) = (WhatIf::default(), random(BLOCKS));
        // So few reads that a third of the blocks is read for the first time.
        (0..BLOCKS * 3 / 2).for_each(|_| what_if.note(7, &at(random()), || read(4096)));
        for _ in 0..2 {
            let all = report(&what_if);
            for tenths in [1, 3, 5, 7] {
                let ratio = all.points.hit_ratio(BLOCKS * 4096 / 10 * tenths);
                assert!((ratio - tenths as f64 / 10.0).abs() < 0.06, "{tenths}: {ratio}");
            }
            (0..BLOCKS * 10).for_each(|_| what_if.note(7, &at(random()), || read(4096)));
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
        let answered = |bytes: u64| all.metadata_points.hit_ratio(bytes);
        assert!((all.metadata_share - 0.25).abs() < 0.02, "{}", all.metadata_share);
        // All of the metadata is read again after 8,000 + 24,000 blocks.
        assert!(answered(16_000 * 4096) < 0.02, "{}", answered(16_000 * 4096));
        assert!((answered(40_000 * 4096) - 0.23).abs() < 0.03, "{}", answered(40_000 * 4096));
        let blocks = all.distinct_blocks as f64;
        assert!((100_000.0..112_000.0).contains(&blocks), "{blocks}");
    }

    #[test]
    fn blocks_that_are_read_once_stay_misses() {
        // Every second read is of a new block, the others are of a small set.
        let (what_if, mut random) = (WhatIf::default(), random(10_000));
        for n in 0..200_000 {
            what_if.note(7, &at(random()), || read(4096));
            what_if.note(7, &at(100_000 + n), || read(4096));
        }
        let ratio = report(&what_if).points.hit_ratio(50_000 * 4096);
        assert!((ratio - 0.5).abs() < 0.03, "{ratio}");
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
