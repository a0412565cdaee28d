//! What many metaslabs take: the opening of a large pool, what small groups write to the device with and
//! without log space maps, and what random writes take in a pool that is half full and one that is nearly so.
//!
//!     CENOTE_BENCH_DIR=DIR cargo bench -p cenote-engine --bench metaslabs [-- fullness]
//!
//! With `fullness` only the last of these.
//! In `DIR` (a file system that takes direct I/O, 8 GiB free). `scripts/endure-volumes` is for pools that are
//! nearly full and written for long.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use device::{OpenOptions, block_on};
use engine::cache::ArcCache;
use engine::dsl::edit::{NewContents, NewDataset, create};
use engine::env::System;
use engine::pool::discovery;
use engine::pool::import::{ImportOptions, select};
use engine::pool::live::{Layout, LivePool, NewLeaf, NewPool, NewTop, Surroundings, default_features};
use engine::txg::Limits;
use engine::vdev::Class;
use engine::zvol::LiveZvol;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use ondisk::ObjsetId;
use ondisk::features::Feature;
use ondisk::vdev_config::PoolState;

const FILE_BYTES: u64 = 6 << 30;
const LARGE_FILE_BYTES: u64 = 10 << 40;
const BLOCK: usize = 8 << 10;
const DEPTH: usize = 32;
const CACHE_BYTES: u64 = 512 << 20;

fn main() {
    let Some(dir) = std::env::var_os("CENOTE_BENCH_DIR").map(PathBuf::from) else {
        println!("set CENOTE_BENCH_DIR to a directory with 8 GiB free");
        return;
    };
    let dir = dir.join("metaslabs");
    if !std::env::args().any(|argument| argument == "fullness") {
        large(&dir.join("large"));
        small_groups(&dir.join("small"), "own space maps", |feature| *feature != Feature::LogSpacemap);
        small_groups(&dir.join("small"), "log space maps", |_| true);
    }
    for permille in [885, 450] {
        fullness(&dir.join("full"), permille);
    }
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

fn surroundings() -> Surroundings {
    Surroundings {
        env: Arc::new(System),
        cache: Some(Arc::new(ArcCache::new(CACHE_BYTES))),
        limits: Limits::default(),
        host: (1, "bench".into()),
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
        name: "bench".into(),
        tops: vec![NewTop { layout: Layout::Single, class: Class::Normal, leaves: vec![leaf] }],
        spares: Vec::new(),
        l2cache: Vec::new(),
        ashift: Some(12),
        version: ondisk::pool_version::FEATURES,
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
        name: "bench/vol".into(),
        contents: NewContents::Volume { size, sparse: true },
        properties: vec![("volblocksize".into(), BLOCK.to_string()), ("compression".into(), "lz4".into())],
    };
    block_on(pool.change(move |s| async move { create(&s, &volume).await })).expect("a volume")
}

fn import(dir: &Path) -> Arc<LivePool> {
    block_on(async {
        let found = discovery::scan(&[dir]).await.expect("a scan");
        let mut found = select(found, "bench").expect("the pool");
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
        let mut random = testkit::Rng::new(1);
        let mut next = 0..size / BLOCK as u64;
        write(&volume, || next.next(), &mut random).await;
        pool.txgs().wait_synced(pool.txgs().open_txg()).await.expect("a commit");
        let before = number_in("/proc/self/io", "write_bytes:");
        let mut places = testkit::Rng::new(2);
        for _ in 0..GROUPS {
            let mut left = WRITES;
            let block = || {
                left = left.checked_sub(1)?;
                Some(places.next_u64() % (size / BLOCK as u64))
            };
            write(&volume, block, &mut random).await;
            pool.txgs().wait_synced(pool.txgs().open_txg()).await.expect("a commit");
        }
        let written = number_in("/proc/self/io", "write_bytes:") - before;
        println!("{what}: {} KiB to the device for a group of {WRITES} blocks", (written / GROUPS) >> 10);
    });
    block_on(pool.close(PoolState::Exported)).expect("an export");
}

/// Writes at random all over a volume of so many thousandths of a pool, when most of it was overwritten
/// before.
fn fullness(dir: &Path, permille: u64) {
    const POOL_BYTES: u64 = 4 << 30;
    let pool = new_pool(dir, POOL_BYTES, default_features());
    let size = (pool.allocator().space(Class::Normal).size_bytes / 1000 * permille) >> 24 << 24;
    let blocks = size / BLOCK as u64;
    let id = new_volume(&pool, size);
    pool.start().expect("a thread");
    block_on(async {
        let volume = open(&pool, id).await;
        let mut random = testkit::Rng::new(1);
        let mut next = 0..blocks;
        write(&volume, || next.next(), &mut random).await;
        let mut places = testkit::Rng::new(2);
        for is_measured in [false, true] {
            pool.txgs().wait_synced(pool.txgs().open_txg()).await.expect("a commit");
            let before = (number_in("/proc/self/io", "write_bytes:"), pool.txgs().synced_txg().get());
            let mut left = blocks / 4;
            let began = Instant::now();
            let block = || {
                left = left.checked_sub(1)?;
                Some(places.next_u64() % blocks)
            };
            write(&volume, block, &mut random).await;
            pool.txgs().wait_synced(pool.txgs().open_txg()).await.expect("a commit");
            let data = blocks / 4 * BLOCK as u64;
            let written = number_in("/proc/self/io", "write_bytes:") - before.0;
            let groups = pool.txgs().synced_txg().get() - before.1;
            if is_measured {
                println!(
                    "{}.{} % full: {:.1} kIOPS, {:.2} bytes to the device for each byte, groups of {} MiB",
                    permille / 10,
                    permille % 10,
                    blocks as f64 / 4e3 / began.elapsed().as_secs_f64(),
                    written as f64 / data as f64,
                    (data / groups) >> 20,
                );
            }
        }
    });
    block_on(pool.close(PoolState::Exported)).expect("an export");
}

async fn open(pool: &Arc<LivePool>, id: ObjsetId) -> Arc<LiveZvol> {
    let dataset = pool.dataset(id).await.expect("open");
    let volume = LiveZvol::open(pool.txgs(), &dataset.objset, &dataset.zil).await.expect("open");
    volume.set_room(dataset.room.clone());
    volume
}

/// Writes `blocks` until they end.
async fn write(volume: &LiveZvol, mut block: impl FnMut() -> Option<u64>, random: &mut testkit::Rng) {
    let data: Vec<u8> = (0..(BLOCK + 65536) / 8).flat_map(|_| random.next_u64().to_le_bytes()).collect();
    let mut flying = FuturesUnordered::new();
    loop {
        while flying.len() < DEPTH {
            let Some(block) = block() else { break };
            let from = (random.next_u64() % 8192) as usize * 8;
            flying.push(volume.write_at(block * BLOCK as u64, &data[from..from + BLOCK], false));
        }
        match flying.next().await {
            None => break,
            Some(written) => written.expect("a write"),
        }
    }
}
