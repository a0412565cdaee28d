//! What an ARC that keeps blocks compressed gives, and what it costs, in one run.
//!
//!     cargo bench -p cenote-engine --bench compressed
//!
//! Volumes of data that compress to half lie on a modelled SSD, one in a pool whose ARC keeps blocks
//! compressed (`on`), one in a pool whose ARC does not (`off`). Both ARCs have 64 MiB. Random reads at depth
//! 16 go to a part of the volumes, whose logical size is 0.5 to 3 times the ARC. After a warm-up without the
//! SSD's timing, the two are measured in turns. Printed are the shares of reads of data that the ARC
//! answered, the processor time for a read, the rate with `off`, and the ratio of the rates of `on` and
//! `off`: the median over turns, least and largest.
//!
//! `CENOTE_BENCH_SECONDS` is the length of each turn, 1 without it; `CENOTE_BENCH_MEDIUM` a medium other than
//! `sata-ssd`: `nvme`, `hdd-7200`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use device::simulated::{Model, RealClock, SimulatedDevice};
use device::{Device, MemoryDevice, block_on};
use engine::cache::ArcCache;
use engine::pool::live::LivePool;
use engine::tunables;
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
const DISK_BYTES: usize = 512 << 20;
const VOLUME_BYTES: u64 = 3 * ARC_BYTES;
const DEPTH: usize = 16;
const TURNS: usize = 5;
/// Sizes of what is read, in halves of the ARC.
const SETS: [u64; 5] = [1, 2, 3, 4, 6];

fn main() {
    let seconds = std::env::var("CENOTE_BENCH_SECONDS").ok().and_then(|text| text.parse().ok());
    let length = Duration::from_secs_f64(seconds.unwrap_or(1.0));
    let model = match std::env::var("CENOTE_BENCH_MEDIUM").as_deref() {
        Ok("nvme") => Model::NVME,
        Ok("hdd-7200") => Model::HDD_7200,
        _ => Model::SATA_SSD,
    };
    println!(
        "{model}\n{:<7} {:>6} {:>6} {:>4}  {:>7} {:>7}  {:>9} {:>9}  {:>9}  ratio of rates",
        "", "blocks", "reads", "set", "hits on", "off", "CPU on", "off", "rate off"
    );
    for (compression, block, read) in [
        ("lz4", 16 << 10, 4096),
        ("lz4", 128 << 10, 4096),
        ("lz4", 128 << 10, 128 << 10),
        ("zstd", 16 << 10, 4096),
        ("zstd", 128 << 10, 4096),
    ] {
        let beds = [true, false].map(|is_on| Bed::new(is_on, model, compression, block));
        for halves in SETS {
            let set = ARC_BYTES / 2 * halves;
            let [on, off] = measured(&beds, read, set, length);
            let mut ratios: Vec<f64> = on.iter().zip(&off).map(|(on, off)| on.rate / off.rate).collect();
            ratios.sort_by(f64::total_cmp);
            let median = |of: &[Measured], what: fn(&Measured) -> f64| {
                let mut all: Vec<f64> = of.iter().map(what).collect();
                all.sort_by(f64::total_cmp);
                all[all.len() / 2]
            };
            println!(
                "{compression:<7} {:>5}K {:>5}K {:>4.1}  {:>6.1}% {:>6.1}%  {:>6.1} us {:>6.1} us  {:>9.0}  \
                 {:.2} ({:.2} to {:.2})",
                block >> 10,
                read >> 10,
                halves as f64 / 2.0,
                median(&on, |of| of.answered) * 100.0,
                median(&off, |of| of.answered) * 100.0,
                median(&on, |of| of.processor_us),
                median(&off, |of| of.processor_us),
                median(&off, |of| of.rate),
                ratios[TURNS / 2],
                ratios[0],
                ratios[TURNS - 1],
            );
        }
        beds.into_iter().for_each(Bed::end);
    }
}

/// What a turn found.
struct Measured {
    /// The share of reads of data that the ARC answered.
    answered: f64,
    /// Processor time of the reading thread for a read.
    processor_us: f64,
    /// Reads a second.
    rate: f64,
}

/// Both in turns.
fn measured(beds: &[Bed; 2], read: u64, set: u64, length: Duration) -> [Vec<Measured>; 2] {
    for bed in beds {
        bed.warm_up(set);
    }
    let mut found = [Vec::new(), Vec::new()];
    for turn in 0..TURNS {
        for (bed, found) in beds.iter().zip(&mut found) {
            found.push(bed.read(turn as u64, read, set, length));
        }
    }
    found
}

struct Bed {
    is_on: bool,
    block_bytes: u64,
    disk: Arc<Disk>,
    cache: Arc<ArcCache>,
    pool: Arc<LivePool>,
    volume: Arc<LiveZvol>,
}

impl Bed {
    fn new(is_on: bool, model: Model, compression: &str, block_bytes: u64) -> Self {
        let plain: Arc<dyn Device> = Arc::new(MemoryDevice::new("/bench/disk", DISK_BYTES));
        let timed = SimulatedDevice::new(Arc::clone(&plain), 1).with_model(model, Arc::new(RealClock));
        let disk = Arc::new(Disk { plain, timed: timed.unflushed(), is_timed: AtomicBool::new(false) });
        let cache = Arc::new(ArcCache::new(ARC_BYTES));
        set_tunable(is_on);
        let pool = support::pool(Arc::clone(&disk) as Arc<dyn Device>, Arc::clone(&cache));
        let content = |block| half_noise(block, block_bytes);
        let volume = support::volume(&pool, VOLUME_BYTES / block_bytes, block_bytes, compression, content);
        Self { is_on, block_bytes, disk, cache, pool, volume }
    }

    /// Reads all of the set a few times.
    fn warm_up(&self, set: u64) {
        set_tunable(self.is_on);
        self.pool.flush_cache();
        self.disk.is_timed.store(false, Ordering::Relaxed);
        let blocks = set / self.block_bytes;
        let mut random = Random(7);
        let mut into = vec![0; 4096];
        for _ in 0..8 * blocks {
            let at = random.next() % blocks * self.block_bytes;
            block_on(self.volume.read_at(at, &mut into)).expect("a read");
        }
    }

    fn read(&self, turn: u64, bytes: u64, set: u64, length: Duration) -> Measured {
        set_tunable(self.is_on);
        self.disk.is_timed.store(true, Ordering::Relaxed);
        let mut random = Random(turn + 1);
        let before = self.accesses();
        let (began, processor) = (Instant::now(), processor_ns());
        let mut reads = 0u64;
        block_on(async {
            let mut flying = FuturesUnordered::new();
            let mut buffers: Vec<Vec<u8>> = (0..DEPTH).map(|_| vec![0; bytes as usize]).collect();
            // The clock is asked now and then.
            while !reads.is_multiple_of(16) || began.elapsed() < length {
                while let Some(mut into) = buffers.pop() {
                    let at = random.next() % (set / bytes) * bytes;
                    flying.push(async move {
                        self.volume.read_at(at, &mut into).await.expect("a read");
                        into
                    });
                }
                buffers.extend(flying.next().await);
                reads += 1;
            }
            while flying.next().await.is_some() {
                reads += 1;
            }
        });
        let took = began.elapsed().as_secs_f64();
        let (hits, all) = self.accesses();
        Measured {
            answered: (hits - before.0) as f64 / (all - before.1) as f64,
            processor_us: (processor_ns() - processor) / 1000.0 / reads as f64,
            rate: reads as f64 / took,
        }
    }

    /// Reads of data that the ARC answered, and all of them.
    fn accesses(&self) -> (u64, u64) {
        let arc = self.cache.arcstats();
        let hits = arc.demand_data_hits + arc.demand_data_iohits;
        (hits, hits + arc.demand_data_misses)
    }

    fn end(self) {
        let Self { pool, volume, .. } = self;
        drop(volume);
        block_on(pool.close(PoolState::Exported)).expect("an export");
    }
}

fn set_tunable(is_on: bool) {
    tunables::ZFS_COMPRESSED_ARC_ENABLED.set(is_on.into()).expect("a switch");
}

/// Bytes of which a little less than half is noise, in pieces of 64 bytes.
fn half_noise(block: u64, bytes: u64) -> Vec<u8> {
    let mut random = Random(block + 1);
    let word = |at: u64| if at % 16 < 7 { random.next() } else { at % 16 };
    (0..bytes / 8).map(word).flat_map(u64::to_le_bytes).collect()
}

/// What this thread has had of a processor.
fn processor_ns() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("a system that counts it");
    text.split(' ').next().and_then(|word| word.parse().ok()).expect("a number")
}
