//! What a cache device gives, and whether the curve of `what-if` predicted it, in one run.
//!
//!     cargo bench -p cenote-engine --bench l2arc
//!
//! A volume of three times the ARC lies on a modelled disk of 7200 turns, the cache device is a modelled SATA
//! SSD. For each trace (`uniform`: each block as often; `zipf`: few blocks often) and each size of the cache
//! device, as a share of the ARC:
//!
//! 1. The trace is read without the disk's timing, and the curve says what the device would give.
//! 2. The trace is read from the disk alone.
//! 3. The device is added, and the pool's thread feeds it with the default tunables, until it holds all it
//!    can.
//! 4. The trace is read again.
//!
//! Printed are the share of reads that ARC and device answered, predicted and measured; reads a second with
//! the device and without it; and the memory of the index for each block on the device.
//! `CENOTE_BENCH_SECONDS` is the length of each measurement, 20 without it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use device::simulated::{Model, RealClock, SimulatedDevice};
use device::{Device, MemoryDevice, block_on};
use engine::cache::ArcCache;
use engine::cache::what_if::{Report, ratio_with_device};
use engine::pool::live::{Auxiliary, LivePool};
use engine::zvol::LiveZvol;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use ondisk::vdev_config::PoolState;

use self::random::Random;
use self::timed::Disk;

mod support;

#[path = "support/random.rs"]
mod random;
#[path = "support/timed.rs"]
mod timed;

const ARC_BYTES: u64 = 64 << 20;
const BLOCK_BYTES: u64 = 32 << 10;
const BLOCKS: u64 = 3 * ARC_BYTES / BLOCK_BYTES;
/// The volume takes a small part of the disk, as data that are read together do.
const DISK_BYTES: usize = 8 << 30;
/// Reads from which the curve is made.
const OBSERVED: u64 = 10 * BLOCKS;
const DEPTH: usize = 16;
/// A pause between looks at what the device holds.
const LOOK: Duration = Duration::from_secs(5);
const MOST_LOOKS: usize = 100;

fn main() {
    let seconds = std::env::var("CENOTE_BENCH_SECONDS").ok().and_then(|text| text.parse().ok());
    let length = Duration::from_secs(seconds.unwrap_or(20));
    println!(
        "{:<8} {:>6}  {:>9} {:>8} {:>6}  {:>9} {:>9} {:>6}  {:>11}",
        "trace", "device", "predicted", "measured", "points", "disk", "with it", "ratio", "bytes/block"
    );
    for exponent in [0.0, 0.9] {
        for share in [4.0, 1.0] {
            row(exponent, share, length);
        }
    }
}

fn row(exponent: f64, share: f64, length: Duration) {
    let bed = Bed::new();
    let mut trace = Trace::new(exponent);
    bed.read(&mut trace, |reads, _| reads >= OBSERVED);
    let [report, ..] = &bed.pool.pool().what_if()[..] else { panic!("a curve") };
    let device_bytes = (ARC_BYTES as f64 * share) as u64;
    let predicted = ratio_with_device(&report.points.0, ARC_BYTES, device_bytes, report.distinct_bytes);
    let predicted = of_data(predicted, report);
    bed.disk.is_timed.store(true, Ordering::Relaxed);
    let alone = bed.read(&mut trace, |_, began| began.elapsed() >= length);
    bed.add_device(device_bytes);
    bed.warm_up(&mut trace, device_bytes);
    let with = bed.read(&mut trace, |_, began| began.elapsed() >= length);
    let (memory, blocks) = bed.index();
    println!(
        "{:<8} {share:>5}x  {:>8.1}% {:>7.1}% {:>6.1}  {:>9.0} {:>9.0} {:>6.1}  {:>11.1}",
        if exponent == 0.0 { "uniform" } else { "zipf" },
        predicted * 100.0,
        with.answered * 100.0,
        (with.answered - predicted) * 100.0,
        alone.rate,
        with.rate,
        with.rate / alone.rate,
        memory as f64 / blocks as f64,
    );
    bed.end();
}

/// The curve is of all reads; those of metadata are answered from memory here.
fn of_data(ratio: f64, report: &Report) -> f64 {
    (ratio - report.metadata_share) / (1.0 - report.metadata_share)
}

/// What a measurement found.
struct Measured {
    /// The share of reads of data that did not go to the disk.
    answered: f64,
    /// Reads a second.
    rate: f64,
}

struct Bed {
    disk: Arc<Disk>,
    cache: Arc<ArcCache>,
    pool: Arc<LivePool>,
    volume: Arc<LiveZvol>,
}

impl Bed {
    fn new() -> Self {
        let plain: Arc<dyn Device> = Arc::new(MemoryDevice::new("/bench/disk", DISK_BYTES));
        let timed = modelled(Arc::clone(&plain), Model::HDD_7200);
        let disk = Arc::new(Disk { plain, timed, is_timed: AtomicBool::new(false) });
        let cache = Arc::new(ArcCache::new(ARC_BYTES));
        let pool = support::pool(Arc::clone(&disk) as Arc<dyn Device>, Arc::clone(&cache));
        let volume = support::volume(&pool, BLOCKS, BLOCK_BYTES, "off", noise);
        Self { disk, cache, pool, volume }
    }

    /// Reads blocks of the trace until `is_enough` of their number and the beginning.
    fn read(&self, trace: &mut Trace, is_enough: impl Fn(u64, Instant) -> bool) -> Measured {
        let before = self.accesses();
        let (began, mut reads) = (Instant::now(), 0);
        block_on(async {
            let mut flying = FuturesUnordered::new();
            while !is_enough(reads, began) {
                while flying.len() < DEPTH {
                    let block = trace.next();
                    let read = async move {
                        let mut into = vec![0; BLOCK_BYTES as usize];
                        self.volume.read_at(block * BLOCK_BYTES, &mut into).await.expect("a read");
                        assert!(into[..8] == noise(block)[..8], "block {block}");
                    };
                    flying.push(read);
                }
                flying.next().await;
                reads += 1;
            }
            while flying.next().await.is_some() {}
        });
        let (all, disk) = self.accesses();
        Measured {
            answered: 1.0 - (disk - before.1) as f64 / (all - before.0) as f64,
            rate: reads as f64 / began.elapsed().as_secs_f64(),
        }
    }

    /// Reads of data, and how many of these the disk answered.
    fn accesses(&self) -> (u64, u64) {
        let arc = self.cache.arcstats();
        let misses = arc.demand_data_misses;
        let from_device = self.pool.pool().l2arc().stats().l2_hits.get();
        (arc.demand_data_hits + arc.demand_data_iohits + misses, misses - from_device.min(misses))
    }

    fn add_device(&self, bytes: u64) {
        // Its labels lie outside of what it holds.
        let size = usize::try_from(bytes).expect("a size") + (5 << 20);
        let device = modelled(Arc::new(MemoryDevice::new("/bench/cache", size)), Model::SATA_SSD);
        let leaf = support::leaf(Arc::new(device), "/bench/cache");
        block_on(self.pool.add_auxiliary(Auxiliary::Cache, vec![leaf])).expect("a cache device");
    }

    /// Reads until the device was written once, or nothing new comes to it.
    fn warm_up(&self, trace: &mut Trace, device_bytes: u64) {
        let stats = self.pool.pool().l2arc().stats();
        let mut written = 0;
        for _ in 0..MOST_LOOKS {
            self.read(trace, |_, began| began.elapsed() >= LOOK);
            let now = stats.l2_write_bytes.get();
            if now > device_bytes * 3 / 2 || (written > 0 && now - written < device_bytes / 200) {
                return;
            }
            written = now;
        }
    }

    /// The memory of the index, and the blocks on the device.
    fn index(&self) -> (u64, u64) {
        let stats = self.pool.pool().l2arc().stats();
        (stats.l2_hdr_size.get(), stats.l2_size.get() / BLOCK_BYTES)
    }

    fn end(self) {
        let Self { pool, volume, .. } = self;
        drop(volume);
        block_on(pool.close(PoolState::Exported)).expect("an export");
    }
}

fn modelled(device: Arc<dyn Device>, model: Model) -> SimulatedDevice {
    SimulatedDevice::new(device, 1).with_model(model, Arc::new(RealClock)).unflushed()
}

fn noise(block: u64) -> Vec<u8> {
    let mut random = Random(block + 1);
    (0..BLOCK_BYTES / 8).flat_map(|_| random.next().to_le_bytes()).collect()
}

/// Blocks in the order in which they are read.
struct Trace {
    random: Random,
    /// Sums of weights, of which each block has one.
    sums: Vec<f64>,
}

impl Trace {
    fn new(exponent: f64) -> Self {
        let mut sum = 0.0;
        let weight = |rank: u64| {
            sum += (rank as f64).powf(-exponent);
            sum
        };
        Self { random: Random(1), sums: (1..=BLOCKS).map(weight).collect() }
    }

    fn next(&mut self) -> u64 {
        let part = (self.random.next() >> 11) as f64 / (1u64 << 53) as f64;
        let wanted = part * self.sums.last().copied().unwrap_or(0.0);
        let rank = self.sums.partition_point(|sum| *sum < wanted) as u64;
        // Blocks that are read often do not lie beside each other.
        rank * 2_741 % BLOCKS
    }
}
