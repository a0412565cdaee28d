//! How fast a pool heals: scrubs and resilvers against what the devices can do, in one run, as ratios.
//!
//!     CENOTE_BENCH_DIR=DIR cargo bench -p cenote --bench heal
//!
//! In `DIR` (a file system that takes direct I/O, with 12 GiB free; `CENOTE_BENCH_BLOCKS` makes it smaller,
//! `CENOTE_BENCH_LAYOUT=mirror` leaves the raidz2 out) a mirror and a raidz2 are filled with a million blocks
//! of 4 KiB in random order. Then, in turns:
//!
//! | row | what is measured | against |
//! |---|---|---|
//! | scrub | bytes that all devices gave, a second | 1 MiB reads in order of the used part of all devices at once, and what one core can checksum |
//! | resilver | bytes that the device got, a second, after it was offline while all was written | 1 MiB writes in order to one device, alone, and beside as many reads of the others |
//! | reads | the 99th percentile of random 8 KiB reads while a scrub runs | the same without one |
//!
//! The pool's cache is small, so that reads come from devices.

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use device::{Device, IoBuf, OpenOptions, SharedBuf, block_on};
use engine::cache::ArcCache;
use engine::dsl::edit::{NewContents, NewDataset, create};
use engine::env::System;
use engine::pool::live::{
    Layout, LivePool, NewLeaf, NewPool, NewTop, ScrubRange, Surroundings, TakeOffline, default_features,
};
use engine::pool::status::Progress;
use engine::txg::Limits;
use engine::vdev::Class;
use engine::vdev::stats::Transfer;
use engine::zvol::LiveZvol;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use ondisk::vdev_config::PoolState;

/// As in the product.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const ROUNDS: usize = 3;
const BLOCKS: u64 = 1_000_000;
const BLOCK_BYTES: u64 = 4096;
const RAW_BYTES: usize = 1 << 20;
/// Transfers of raw reads and writes under way on each device.
const RAW_DEPTH: usize = 4;
const READS_SECONDS: u64 = 5;
const READ_BYTES: u64 = 8192;
const READ_DEPTH: usize = 4;

fn main() {
    let Some(dir) = std::env::var_os("CENOTE_BENCH_DIR").map(PathBuf::from) else {
        println!("set CENOTE_BENCH_DIR to a directory with 12 GiB free");
        return;
    };
    let blocks = std::env::var("CENOTE_BENCH_BLOCKS").ok().and_then(|text| text.parse().ok());
    let blocks: u64 = blocks.unwrap_or(BLOCKS);
    println!("one core checksums {:.0} MiB/s (fletcher4)", mib(checksums()));
    let only = std::env::var("CENOTE_BENCH_LAYOUT").unwrap_or_default();
    let layouts = [("mirror of 2", Layout::Mirror, 2), ("raidz2 of 5", Layout::Raidz { nparity: 2 }, 5)];
    for (name, layout, count) in layouts.into_iter().filter(|(name, ..)| name.contains(&only)) {
        let bed = Bed::new(&dir, layout, count, blocks);
        bed.scrubs(name);
        bed.reads(name);
        bed.resilvers(name);
        bed.end();
    }
}

/// Bytes that one core can checksum in a second.
fn checksums() -> f64 {
    let data = vec![7u8; RAW_BYTES];
    let began = Instant::now();
    let mut rounds = 0u32;
    while began.elapsed() < Duration::from_secs(1) {
        std::hint::black_box(codec::checksum::fletcher4(
            std::hint::black_box(&data),
            ondisk::ByteOrder::Little,
        ));
        rounds += 1;
    }
    f64::from(rounds) * RAW_BYTES as f64 / began.elapsed().as_secs_f64()
}

fn mib(bytes: f64) -> f64 {
    bytes / f64::from(1u32 << 20)
}

fn median(mut all: Vec<f64>) -> f64 {
    all.sort_by(f64::total_cmp);
    all.get(all.len() / 2).copied().unwrap_or(0.0)
}

/// A filled pool.
struct Bed {
    paths: Vec<PathBuf>,
    pool: Arc<LivePool>,
    volume: Arc<LiveZvol>,
    /// Bytes of each device that are in use, from its beginning.
    used_bytes: u64,
    blocks: u64,
}

impl Bed {
    fn new(dir: &Path, layout: Layout, count: usize, blocks: u64) -> Self {
        // A raidz of 4 KiB blocks has two sectors of parity for each of data.
        let device_bytes = (blocks * BLOCK_BYTES * 5 / 4).next_multiple_of(1 << 20) + (256 << 20);
        let paths: Vec<PathBuf> = (0..count).map(|index| dir.join(format!("heal-disk{index}"))).collect();
        let leaves = paths.iter().map(|path| {
            let _ = std::fs::remove_file(path);
            let file = std::fs::File::create(path).expect("a file in CENOTE_BENCH_DIR");
            file.set_len(device_bytes).expect("room");
            let device = Arc::new(OpenOptions::read_write().open(path).expect("opens"));
            NewLeaf { device, path: path.clone(), is_file: true, whole_disk: false }
        });
        let new = NewPool {
            name: "bench".into(),
            tops: vec![NewTop { layout, class: Class::Normal, leaves: leaves.collect() }],
            spares: Vec::new(),
            l2cache: Vec::new(),
            ashift: Some(12),
            version: ondisk::pool_version::FEATURES,
            features: default_features(),
            properties: Vec::new(),
            root_properties: Vec::new(),
            altroot: None,
            command: None,
        };
        let cache = Arc::new(ArcCache::new(256 << 20));
        let surroundings = Surroundings {
            env: Arc::new(System),
            limits: Limits::beside(&cache),
            cache: Some(cache),
            host: (1, "bench".into()),
        };
        let pool = block_on(LivePool::create(new, surroundings)).expect("a pool");
        pool.start().expect("a thread");
        let volume = NewDataset {
            name: "bench/vol".into(),
            contents: NewContents::Volume { size: blocks * BLOCK_BYTES, sparse: true },
            properties: vec![
                ("volblocksize".into(), BLOCK_BYTES.to_string()),
                ("compression".into(), "off".into()),
            ],
        };
        let id = block_on(pool.change(move |s| async move { create(&s, &volume).await })).expect("a volume");
        let volume = block_on(pool.volume(id)).expect("opens");
        let mut bed = Self { paths, pool, volume, used_bytes: 0, blocks };
        bed.fill(1);
        bed.used_bytes = bed.used();
        bed
    }

    /// The last byte of a device that holds data, about.
    fn used(&self) -> u64 {
        let top = &self.pool.pool().vdevs().tops[0];
        let allocated = self.pool.allocator().space(Class::Normal).allocated_bytes;
        let share = if top.type_name() == "mirror" { 1 } else { self.paths.len() as u64 };
        (allocated / share).next_multiple_of(RAW_BYTES as u64)
    }

    /// Writes each block once, in random order.
    fn fill(&self, seed: u64) {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut order: Vec<u32> = (0..self.blocks as u32).collect();
        random.shuffle(&mut order);
        let noise: Vec<u8> = (0..65536).flat_map(|_| random.u64(..).to_le_bytes()).collect();
        block_on(async {
            let mut flying = FuturesUnordered::new();
            for (number, block) in order.iter().enumerate() {
                let from = number * 8 % (noise.len() - BLOCK_BYTES as usize);
                let bytes = &noise[from..from + BLOCK_BYTES as usize];
                flying.push(self.volume.write_at(u64::from(*block) * BLOCK_BYTES, bytes, false));
                if flying.len() >= 32 {
                    flying.next().await.transpose().expect("a write");
                }
            }
            while let Some(written) = flying.next().await {
                written.expect("a write");
            }
            self.commit().await;
        });
    }

    async fn commit(&self) {
        self.pool.txgs().wait_synced(self.pool.txgs().open_txg()).await.expect("a commit");
    }

    /// Bytes that scans read of all devices, and bytes that were written to them.
    fn transferred(&self) -> (u64, u64) {
        let leaves = self.pool.pool().vdevs().leaves();
        leaves.fold((0, 0), |(read, written), leaf| {
            let of = |transfer| leaf.stats.snapshot(transfer).bytes;
            (read + of(Transfer::Scrub), written + of(Transfer::Write))
        })
    }

    fn wait_for_scan(&self) {
        while self.pool.scan_status().is_none_or(|scan| scan.state == Progress::Running) {
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    fn scrubs(&self, name: &str) {
        let (mut ours, mut raw) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            raw.push(self.raw_reads());
            let (before, began) = (self.transferred().0, Instant::now());
            block_on(self.pool.scrub(ScrubRange::default())).expect("a scrub");
            self.wait_for_scan();
            ours.push((self.transferred().0 - before) as f64 / began.elapsed().as_secs_f64());
            let scan = self.pool.scan_status().expect("a scan");
            assert_eq!((scan.errors, scan.processed), (0, 0), "{scan:?}");
        }
        let (ours, raw) = (median(ours), median(raw));
        println!(
            "{name}: scrub {:.0} MiB/s, raw reads {:.0} MiB/s: {:.2}; peak memory {} MiB",
            mib(ours),
            mib(raw),
            ours / raw,
            peak_memory_kib() >> 10
        );
    }

    /// Reads the used part of all devices in order. Bytes a second.
    fn raw_reads(&self) -> f64 {
        let began = Instant::now();
        std::thread::scope(|scope| {
            for path in &self.paths {
                scope.spawn(move || {
                    let device = OpenOptions::read_only().open(path).expect("opens");
                    block_on(async {
                        let mut flying = FuturesUnordered::new();
                        for at in (0..self.used_bytes).step_by(RAW_BYTES) {
                            flying.push(device.read((4 << 20) + at, RAW_BYTES));
                            if flying.len() >= RAW_DEPTH {
                                flying.next().await.transpose().expect("a read");
                            }
                        }
                        while let Some(read) = flying.next().await {
                            read.expect("a read");
                        }
                    });
                });
            }
        });
        self.used_bytes as f64 * self.paths.len() as f64 / began.elapsed().as_secs_f64()
    }

    fn reads(&self, name: &str) {
        let (mut idle, mut busy) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            idle.push(self.p99());
            block_on(self.pool.scrub(ScrubRange::default())).expect("a scrub");
            busy.push(self.p99());
            let still_runs = self.pool.scan_status().is_some_and(|scan| scan.state == Progress::Running);
            println!("  a scrub {} while reads were measured", if still_runs { "ran" } else { "ended" });
            self.wait_for_scan();
        }
        let (idle, busy) = (median(idle), median(busy));
        println!("{name}: reads' p99 {idle:.0} us idle, {busy:.0} us during a scrub: {:.2}", busy / idle);
    }

    /// The 99th percentile of random reads, in microseconds.
    fn p99(&self) -> f64 {
        let mut random = fastrand::Rng::with_seed(2);
        let slots = self.blocks * BLOCK_BYTES / READ_BYTES;
        let mut took = Vec::new();
        let began = Instant::now();
        block_on(async {
            let mut flying = FuturesUnordered::new();
            while began.elapsed() < Duration::from_secs(READS_SECONDS) {
                while flying.len() < READ_DEPTH {
                    let slot = random.u64(..slots);
                    flying.push(async move {
                        let began = Instant::now();
                        let mut into = vec![0; READ_BYTES as usize];
                        self.volume.read_at(slot * READ_BYTES, &mut into).await.expect("a read");
                        began.elapsed().as_secs_f64() * 1e6
                    });
                }
                took.extend(flying.next().await);
            }
        });
        took.sort_by(f64::total_cmp);
        took[took.len() * 99 / 100]
    }

    fn resilvers(&self, name: &str) {
        let (mut ours, mut writes, mut copies) = (Vec::new(), Vec::new(), Vec::new());
        let leaf = self.pool.pool().vdevs().leaves().last().expect("a leaf").guid;
        for round in 0..ROUNDS as u64 {
            block_on(self.pool.offline(leaf, TakeOffline::Temporarily)).expect("offline");
            self.fill(10 + round);
            writes.push(self.raw_writes(false));
            copies.push(self.raw_writes(true));
            let (before, began) = (self.transferred().1, Instant::now());
            block_on(self.pool.online(leaf)).expect("online");
            let is_stale = || self.pool.pool().vdevs().leaves().any(|leaf| !leaf.missing_txgs.is_empty());
            while is_stale() {
                std::thread::sleep(Duration::from_millis(2));
            }
            ours.push((self.transferred().1 - before) as f64 / began.elapsed().as_secs_f64());
            self.wait_for_scan();
        }
        let (ours, writes, copies) = (median(ours), median(writes), median(copies));
        println!(
            "{name}: resilver {:.0} MiB/s, raw writes {:.0} MiB/s: {:.2}; raw writes beside reads of the \
             others {:.0} MiB/s: {:.2}",
            mib(ours),
            mib(writes),
            ours / writes,
            mib(copies),
            ours / copies
        );
    }

    /// Writes as much as a device of the pool holds to a file beside it, in order. Bytes a second. With
    /// `reads`, each transfer comes after a read of the same place of all devices but the last.
    fn raw_writes(&self, reads: bool) -> f64 {
        let path = self.paths[0].with_file_name("heal-raw");
        let file = std::fs::File::create(&path).expect("a file");
        file.set_len(self.used_bytes).expect("room");
        // As the device of the pool, it was written before.
        let piece = vec![1u8; 4 << 20];
        for at in (0..self.used_bytes).step_by(piece.len()) {
            let count = piece.len().min((self.used_bytes - at) as usize);
            file.write_all_at(&piece[..count], at).expect("room");
        }
        file.sync_all().expect("stable");
        let device = OpenOptions::read_write().open(&path).expect("opens");
        let others = self.paths.iter().rev().skip(1).filter(|_| reads);
        let others: Vec<_> = others.map(|path| OpenOptions::read_only().open(path).expect("opens")).collect();
        let data = SharedBuf::from(IoBuf::from(&vec![3u8; RAW_BYTES][..]));
        let began = Instant::now();
        let transfer = async |at| {
            let read = others.iter().map(|other| other.read((4 << 20) + at, RAW_BYTES));
            let read = futures_util::future::join_all(read).await;
            let read = read.into_iter().next().map(|read| SharedBuf::from(read.expect("a read")));
            device.write_gather(at, vec![read.unwrap_or_else(|| data.clone())]).await
        };
        block_on(async {
            let mut flying = FuturesUnordered::new();
            for at in (0..self.used_bytes).step_by(RAW_BYTES) {
                flying.push(transfer(at));
                if flying.len() >= if reads { 2 * RAW_DEPTH } else { RAW_DEPTH } {
                    flying.next().await.transpose().expect("a write");
                }
            }
            while let Some(written) = flying.next().await {
                written.expect("a write");
            }
            device.flush().await.expect("a flush");
        });
        let rate = self.used_bytes as f64 / began.elapsed().as_secs_f64();
        let _ = std::fs::remove_file(path);
        rate
    }

    fn end(self) {
        block_on(self.pool.close(PoolState::Exported)).expect("an export");
        self.paths.iter().for_each(|path| drop(std::fs::remove_file(path)));
    }
}

fn peak_memory_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.trim().split(' ').next()?.parse().ok()).unwrap_or(0)
}
