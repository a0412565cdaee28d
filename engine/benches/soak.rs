//! Random overwrites in a pool that is nearly full, for as long as one likes; and what it takes to open a large pool.
//!
//!     CENOTE_BENCH_DIR=DIR CENOTE_SOAK_SECONDS=600 cargo bench -p cenote-engine --bench soak
//!
//! In `DIR` (a file system that takes direct I/O, 8 GiB free) a volume fills a pool on one file to nine tenths; then blocks of it are written over at random.
//! Every tenth part of the time a line says how fast that was, how much memory the process holds, how much is allocated, how many metaslabs are loaded, and
//! what was written to the device for each byte of data. At the end the volume is trimmed as a whole, and what stays allocated is compared with what was before it was
//! filled; `zdb -bcc` says whether space leaked, where it is installed.
//!
//! Before that: how long it takes to open a pool of 10 TB, and what small groups write to the device with and without log space maps.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use device::{OpenOptions, block_on};
use engine::cache::ArcCache;
use engine::dataset::dsl::edit::{NewContents, NewDataset, create};
use engine::dataset::zvol::LiveZvol;
use engine::env::System;
use engine::pool::discovery;
use engine::pool::import::{ImportOptions, select};
use engine::pool::live::{Layout, LivePool, NewLeaf, NewPool, NewTop, Surroundings, default_features};
use engine::txg::Limits;
use engine::vdev::Class;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use ondisk::ObjsetId;
use ondisk::features::Feature;
use ondisk::vdev_config::PoolState;

const FILE_BYTES: u64 = 6 << 30;
const LARGE_FILE_BYTES: u64 = 10 << 40;
const BLOCK: usize = 8 << 10;
const DEPTH: usize = 32;
const LINES: u32 = 10;

fn main() {
    let Some(dir) = std::env::var_os("CENOTE_BENCH_DIR").map(PathBuf::from) else {
        println!("set CENOTE_BENCH_DIR to a directory with 8 GiB free");
        return;
    };
    let seconds = std::env::var("CENOTE_SOAK_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(60);
    let dir = dir.join("soak");
    large(&dir.join("large"));
    small_groups(&dir.join("small"), "own space maps", |feature| *feature != Feature::LogSpacemap);
    small_groups(&dir.join("small"), "log space maps", |_| true);
    soak(&dir.join("full"), Duration::from_secs(seconds));
    let _ = std::fs::remove_dir_all(&dir);
}

fn number_in(file: &str, name: &str) -> u64 {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|line| line.trim().split(' ').next()?.parse().ok()).unwrap_or(0)
}

fn memory_mib() -> u64 {
    number_in("/proc/self/status", "VmRSS:") >> 10
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

fn surroundings() -> Surroundings {
    let cache_bytes =
        std::env::var("CENOTE_SOAK_CACHE_MIB").ok().and_then(|text| text.parse().ok()).unwrap_or(512u64)
            << 20;
    Surroundings {
        env: Arc::new(System),
        cache: Some(Arc::new(ArcCache::new(cache_bytes))),
        limits: Limits::default(),
        host: (1, "soak".into()),
    }
}

fn new_pool(dir: &Path, bytes: u64, features: Vec<Feature>) -> Arc<LivePool> {
    std::fs::create_dir_all(dir).expect("a directory in CENOTE_BENCH_DIR");
    let path = dir.join("disk");
    let _ = std::fs::remove_file(&path);
    let file = std::fs::File::create(&path).expect("a file in CENOTE_BENCH_DIR");
    file.set_len(bytes).expect("room");
    let device = Arc::new(OpenOptions::read_write().open(&path).expect("the file"));
    let leaf = NewLeaf { device, path, is_file: true, whole_disk: false };
    let new = NewPool {
        name: "soak".into(),
        tops: vec![NewTop { layout: Layout::Single, class: Class::Normal, leaves: vec![leaf] }],
        spares: Vec::new(),
        l2cache: Vec::new(),
        ashift: Some(12),
        features,
        properties: Vec::new(),
        root_properties: Vec::new(),
        altroot: None,
        command: None,
    };
    block_on(LivePool::create(new, surroundings())).expect("a pool")
}

fn new_volume(pool: &Arc<LivePool>, size: u64) -> ObjsetId {
    let volume = NewDataset {
        name: "soak/vol".into(),
        contents: NewContents::Volume { size, sparse: true },
        properties: vec![("volblocksize".into(), BLOCK.to_string()), ("compression".into(), "lz4".into())],
    };
    block_on(pool.change(move |s| async move { create(&s, &volume).await })).expect("a volume")
}

fn import(dir: &Path) -> Arc<LivePool> {
    block_on(async {
        let found = discovery::scan(&[dir]).await.expect("a scan");
        let mut found = select(found, "soak").expect("the pool");
        for candidate in found.candidates.values_mut() {
            let device = OpenOptions::read_write().open(candidate.device.path()).expect("the file");
            candidate.device = Arc::new(device);
        }
        LivePool::import(&found, &ImportOptions { force: true, ..Default::default() }, surroundings())
            .await
            .expect("an import")
    })
}

/// Touches all metaslabs of a pool of 10 TB, and opens it again.
fn large(dir: &Path) {
    let pool = new_pool(dir, LARGE_FILE_BYTES, default_features());
    let (_, metaslabs) = pool.allocator().loaded_metaslabs();
    block_on(pool.close(PoolState::Exported)).expect("an export");
    drop(pool);
    let before = memory_mib();
    let began = Instant::now();
    let pool = import(dir);
    let took = began.elapsed().as_millis();
    let (loaded, _) = pool.allocator().loaded_metaslabs();
    println!(
        "10 TB, {metaslabs} metaslabs: opened in {took} ms, {} MiB more memory, {loaded} metaslabs loaded",
        memory_mib() - before.min(memory_mib())
    );
    block_on(pool.close(PoolState::Exported)).expect("an export");
}

/// Writes a few blocks at random places of a filled volume in each of many groups.
fn small_groups(dir: &Path, what: &str, with: impl Fn(&Feature) -> bool) {
    const GROUPS: u64 = 200;
    const WRITES: u64 = 16;
    let features = default_features().into_iter().filter(with).collect();
    let pool = new_pool(dir, FILE_BYTES, features);
    let size = 1 << 30;
    let id = new_volume(&pool, size);
    pool.start().expect("a thread");
    block_on(async {
        let volume = open(&pool, id).await;
        let mut random = Random(1);
        let mut next = 0..size / BLOCK as u64;
        write(&pool, &volume, || next.next(), &mut random).await;
        pool.txgs().wait_synced(pool.txgs().open_txg()).await.expect("a commit");
        let before = number_in("/proc/self/io", "write_bytes:");
        let mut places = Random(2);
        for _ in 0..GROUPS {
            let mut left = WRITES;
            let block = || {
                left = left.checked_sub(1)?;
                Some(places.next() % (size / BLOCK as u64))
            };
            write(&pool, &volume, block, &mut random).await;
            pool.txgs().wait_synced(pool.txgs().open_txg()).await.expect("a commit");
        }
        let written = number_in("/proc/self/io", "write_bytes:") - before;
        println!("{what}: {} KiB to the device for a group of {WRITES} blocks", (written / GROUPS) >> 10);
    });
    block_on(pool.close(PoolState::Exported)).expect("an export");
}

async fn open(pool: &Arc<LivePool>, id: ObjsetId) -> Arc<LiveZvol> {
    let dataset = pool.dataset(id).await.expect("open");
    let volume = LiveZvol::open(pool.txgs(), &dataset.objset, &dataset.zil).await.expect("open");
    volume.set_room(dataset.room.clone());
    volume
}

/// Writes `blocks` until the clock or the blocks end; gives how many were written.
async fn write(
    pool: &Arc<LivePool>,
    volume: &LiveZvol,
    mut block: impl FnMut() -> Option<u64>,
    random: &mut Random,
) -> u64 {
    let data: Vec<u8> = (0..(BLOCK + 65536) / 8).flat_map(|_| random.next().to_le_bytes()).collect();
    let mut flying = FuturesUnordered::new();
    let (mut written, mut refused) = (0u64, 0u64);
    loop {
        while flying.len() < DEPTH {
            let Some(block) = block() else { break };
            let from = (random.next() % 8192) as usize * 8;
            let bytes = &data[from..from + BLOCK];
            flying.push(async move { (block, volume.write_at(block * BLOCK as u64, bytes, false).await) });
        }
        match flying.next().await {
            None => break,
            Some((_, Ok(()))) => written += 1,
            Some((_, Err(engine::Error::NoSpace(_)))) => {
                refused += 1;
                pool.txgs().wait_synced(pool.txgs().open_txg()).await.expect("a commit");
            }
            Some((_, Err(error))) => panic!("{error}"),
        }
    }
    if refused > 0 {
        println!("    {refused} writes were refused for a while: no space left on the pool");
    }
    written
}

fn soak(dir: &Path, time: Duration) {
    let pool = new_pool(dir, FILE_BYTES, default_features());
    let usable = pool.allocator().usable_bytes();
    let size = usable / 10 * 9 / (1 << 20) * (1 << 20);
    let id = new_volume(&pool, size);
    pool.start().expect("a thread");
    let mut random = Random(1);
    block_on(async {
        let empty = pool.allocator().space(Class::Normal).allocated_bytes;
        let volume = open(&pool, id).await;
        let began = Instant::now();
        let mut next = 0..size / BLOCK as u64;
        let filled = write(&pool, &volume, || next.next(), &mut random).await;
        let fill_rate = filled as f64 / began.elapsed().as_secs_f64();
        println!("filled {} MiB at {fill_rate:.0} blocks a second", (filled * BLOCK as u64) >> 20);
        println!(
            "{:>8} {:>10} {:>11} {:>12} {:>9} {:>12}",
            "seconds", "writes/s", "memory MiB", "allocated", "metaslabs", "device/data"
        );
        let began = Instant::now();
        for line in 1..=LINES {
            let from = Instant::now();
            let device_bytes = number_in("/proc/self/io", "write_bytes:");
            let mut places = Random(u64::from(line));
            let until = time * line / LINES;
            let block = || (began.elapsed() < until).then(|| places.next() % (size / BLOCK as u64));
            let written = write(&pool, &volume, block, &mut random).await;
            let space = pool.allocator().space(Class::Normal);
            let device_bytes = number_in("/proc/self/io", "write_bytes:") - device_bytes;
            println!(
                "{:>8} {:>10.0} {:>11} {:>11.1}% {:>9} {:>12.2}",
                began.elapsed().as_secs(),
                written as f64 / from.elapsed().as_secs_f64(),
                memory_mib(),
                space.allocated_bytes as f64 * 100.0 / space.size_bytes as f64,
                pool.allocator().loaded_metaslabs().0,
                device_bytes as f64 / (written.max(1) * BLOCK as u64) as f64,
            );
        }
        volume.trim(0, size, false).await.expect("a trim");
        for _ in 0..6 {
            pool.change(|_| async { Ok(()) }).await.expect("a commit");
        }
        let left = pool.allocator().space(Class::Normal).allocated_bytes;
        println!("allocated when empty: {} KiB before, {} KiB after", empty >> 10, left >> 10);
        println!("most memory held: {} MiB", number_in("/proc/self/status", "VmHWM:") >> 10);
    });
    block_on(pool.close(PoolState::Exported)).expect("an export");
    drop(pool);
    let output = Command::new("zdb").args(["-e", "-bcc", "-p"]).arg(dir).arg("soak").output();
    if let Ok(output) = output {
        let text = String::from_utf8_lossy(&output.stdout);
        let verdict = text.lines().find(|line| line.contains("leak")).unwrap_or("zdb says nothing of leaks");
        println!("{}", verdict.trim());
    }
}
