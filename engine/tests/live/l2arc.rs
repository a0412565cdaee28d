//! Cache devices: what is read from them, what they keep over an import, and what bad ones do.
//!
//! Tunables belong to the process. Tests that set some take [`ALONE`] for writing, the others for reading.

use std::os::unix::fs::FileExt;
use std::sync::{Arc, RwLock};
use std::time::Duration;

use device::{Device, FileDevice, IgnorePoison, OpenOptions, block_on};
use engine::dsl::Dsl;
use engine::dsl::edit::{self, NewContents, NewDataset};
use engine::inject::{ALWAYS, DeviceError, Fault, Operation};
use engine::l2arc::inspect::{Inspection, inspect};
use engine::l2arc::stats::L2arcStats;
use engine::pool::live::{Auxiliary, Layout, LivePool, NewLeaf, NewPool, Syncing, TakeOffline};
use engine::tunables::{self, Tunable};
use engine::vdev::stats::Transfer;
use engine::vdev::{Class, State};
use engine::zvol::LiveZvol;
use ondisk::Guid;
use ondisk::l2arc::HEADER_BYTES;
use ondisk::vdev_config::PoolState;

use crate::random::{KEYS, user_key};
use crate::support::{Disks, committing, new_pool, objset_of, surroundings};

const MIB: u64 = 1 << 20;
const BLOCK: u64 = 16 << 10;
const BLOCKS: u64 = 600;
/// Large enough for log blocks, of 79 entries.
const CACHE_BYTES: u64 = 1280 * MIB;

static ALONE: RwLock<()> = RwLock::new(());

/// A tunable that has another value for a while.
struct Set(&'static Tunable);

fn set(tunable: &'static Tunable, value: u64) -> Set {
    tunable.set(value).unwrap();
    Set(tunable)
}

impl Drop for Set {
    fn drop(&mut self) {
        self.0.reset();
    }
}

/// What is in a block: every second one can be compressed.
fn content(block: u64, version: u8) -> Vec<u8> {
    let mut state = block.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let word = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        if block.is_multiple_of(2) { state } else { state & 0xff }
    };
    let words: Vec<u64> = (0..BLOCK / 8).map(word).collect();
    words.iter().flat_map(|word| (word ^ u64::from(version)).to_le_bytes()).collect()
}

fn cache_leaf(disks: &Disks, name: &str) -> NewLeaf {
    let path = disks.file(name);
    std::fs::File::create(&path).unwrap().set_len(CACHE_BYTES).unwrap();
    reused_leaf(disks, name)
}

fn reused_leaf(disks: &Disks, name: &str) -> NewLeaf {
    let path = disks.file(name);
    let device: Arc<dyn Device> = Arc::new(OpenOptions::read_write().open(&path).unwrap());
    NewLeaf { device, path, is_file: true, whole_disk: false }
}

/// A pool with a volume, and these cache devices. Everything is committed, and nothing is in the ARC.
async fn create(disks: &Disks, caches: &[&str], secondary: &str) -> Arc<LivePool> {
    create_as(disks, caches, secondary, 1).await
}

async fn create_as(disks: &Disks, caches: &[&str], secondary: &str, seed: u64) -> Arc<LivePool> {
    create_with(disks, caches, secondary, seed, None).await
}

/// The same, with a suite with which the volume is encrypted, or without.
async fn create_with(
    disks: &Disks,
    caches: &[&str],
    secondary: &str,
    seed: u64,
    suite: Option<&str>,
) -> Arc<LivePool> {
    // A busy machine makes any device slow.
    tunables::L2ARC_BYPASS_SLOW.set(0).unwrap();
    let new = NewPool {
        l2cache: caches.iter().map(|name| cache_leaf(disks, name)).collect(),
        ..new_pool(vec![disks.top(Layout::Single, Class::Normal, "d", 1)], 12)
    };
    let pool = LivePool::create(new, surroundings(seed)).await.unwrap();
    let mut properties = vec![("volblocksize", "16K"), ("compression", "lz4"), ("secondarycache", secondary)];
    properties.extend(suite.into_iter().flat_map(|suite| [("encryption", suite), ("keyformat", "hex")]));
    let volume = NewDataset {
        name: "tank/vol".into(),
        contents: NewContents::Volume { size: BLOCKS * BLOCK, sparse: true },
        properties: properties.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect(),
    };
    let key = suite.map(|_| user_key(KEYS[0], &**pool.env()));
    let create = |s: Syncing| async move { edit::create_with_key(&s, &volume, key.as_ref()).await };
    pool.change(create).await.unwrap();
    let volume = open(&pool).await;
    for block in 0..BLOCKS {
        volume.write_at(block * BLOCK, &content(block, 0), false).await.unwrap();
    }
    drop(volume);
    pool.sync().await.unwrap();
    pool.sync().await.unwrap();
    pool.flush_cache();
    pool
}

async fn open(pool: &Arc<LivePool>) -> Arc<LiveZvol> {
    pool.volume(objset_of(pool, "vol").await.unwrap()).await.unwrap()
}

/// Reads all blocks, here and there, so that nothing is read ahead.
async fn read_all(pool: &Arc<LivePool>) {
    let volume = open(pool).await;
    let mut bytes = vec![0; BLOCK as usize];
    for step in 0..BLOCKS {
        let block = step * 257 % BLOCKS;
        volume.read_at(block * BLOCK, &mut bytes).await.unwrap();
        assert!(bytes == content(block, 0), "block {block}");
    }
}

fn stats(pool: &LivePool) -> &L2arcStats {
    pool.pool().l2arc().stats()
}

/// Feeds until nothing new is written.
async fn feed(pool: &Arc<LivePool>) {
    for _ in 0..100 {
        let before = stats(pool).l2_write_bytes.get();
        pool.feed_l2arc().await;
        if stats(pool).l2_write_bytes.get() == before {
            return;
        }
    }
    panic!("feeding does not end");
}

/// Reads everything into the ARC, feeds, and forgets what the ARC has.
async fn warm_up(pool: &Arc<LivePool>) {
    pool.feed_l2arc().await;
    read_all(pool).await;
    feed(pool).await;
    pool.flush_cache();
}

fn pool_reads(pool: &LivePool) -> u64 {
    pool.pool().vdevs().tops[0].stats.snapshot(Transfer::Read).operations
}

/// How many reads of everything were answered by cache devices, and how many by the pool.
async fn hits(pool: &Arc<LivePool>) -> (u64, u64) {
    pool.flush_cache();
    let before = (stats(pool).l2_hits.get(), pool_reads(pool));
    read_all(pool).await;
    (stats(pool).l2_hits.get() - before.0, pool_reads(pool) - before.1)
}

async fn export(pool: Arc<LivePool>) {
    pool.close(PoolState::Exported).await.unwrap();
}

fn cache(pool: &LivePool, name: &str) -> Guid {
    pool.pool().vdevs().l2cache.iter().find(|cache| cache.name.ends_with(name)).unwrap().guid
}

fn number(text: &str, label: &str) -> u64 {
    let rest = text.split(label).nth(1).unwrap_or_else(|| panic!("no '{label}' in {text}"));
    rest.split_whitespace().next().unwrap().parse().unwrap()
}

#[test]
fn blocks_that_left_the_arc_come_from_the_cache_device() {
    let _shared = ALONE.read().ignore_poison();
    let disks = Disks::new(256 * MIB);
    block_on(async {
        let pool = create(&disks, &["cache"], "all").await;
        warm_up(&pool).await;
        let written = stats(&pool).l2_bufc_data_asize.get();
        assert!(written >= BLOCKS * BLOCK / 2, "{:?}", stats(&pool).all());
        let (hits, reads) = hits(&pool).await;
        assert!(hits >= BLOCKS && reads < 20, "{hits} hits, {reads} reads of the pool");
        assert_eq!((stats(&pool).l2_cksum_bad.get(), stats(&pool).l2_io_error.get()), (0, 0));
        // The device shows what it holds.
        let vdevs = engine::pool::status::vdevs(&pool.view());
        let space = vdevs.children.last().unwrap().space.unwrap();
        let expected = CACHE_BYTES - (512 << 10) - (4 * MIB);
        assert!((expected - 4096..expected).contains(&space.size), "{}", space.size);
        let held = stats(&pool).l2_bufc_data_asize.get() + stats(&pool).l2_bufc_metadata_asize.get();
        assert_eq!(space.allocated, held + stats(&pool).l2_log_blk_asize.get());
        export(pool).await;
    });
    disks.judge("tank");
}

/// What the cache device says of itself.
async fn inspected(disks: &Disks) -> Inspection {
    let device = FileDevice::open(disks.file("cache")).unwrap();
    inspect(&device, 9).await.unwrap().expect("a header")
}

#[test]
fn what_a_cache_device_holds_is_found_again_after_an_import() {
    let _shared = ALONE.read().ignore_poison();
    let disks = Disks::new(256 * MIB);
    let (mut blocks, mut data) = (0, 0);
    block_on(async {
        let pool = create(&disks, &["cache"], "all").await;
        warm_up(&pool).await;
        data = stats(&pool).l2_bufc_data_asize.get();
        blocks = stats(&pool).l2_log_blk_count.get();
        assert!(blocks >= BLOCKS / 79, "{blocks}");
        export(pool).await;
    });
    if let Some(said) = testkit::oracle::cache_device(&disks.file("cache")) {
        // The last log block is written when the pool is closed.
        assert_eq!(number(&said, "log_blk_count:"), blocks + 1, "{said}");
        assert!(said.contains(" 0 with invalid cksum"), "{said}");
        assert_eq!(number(&said, "lb_count_refcount:"), blocks + 1, "{said}");
        assert_eq!(number(&said, "log_blk_ent:"), 79);
    }
    let found = block_on(inspected(&disks));
    assert_eq!((found.header.log_blocks, found.logs.len() as u64), (blocks + 1, blocks + 1));
    assert!(found.logs.iter().all(|log| log.entries == Some(79)), "{found:?}");
    for seed in 2..4 {
        block_on(async {
            let pool = disks.import("tank", seed).await;
            pool.feed_l2arc().await;
            let stats = stats(&pool);
            assert_eq!(stats.l2_rebuild_success.get(), 1, "{:?}", stats.all());
            assert_eq!(stats.l2_bufc_data_asize.get(), data, "all of it, and each block once");
            let (hits, reads) = hits(&pool).await;
            assert!(hits >= BLOCKS && reads < 40, "{hits} hits, {reads} reads of the pool");
            assert_eq!(stats.l2_cksum_bad.get(), 0);
            export(pool).await;
        });
    }
    disks.judge("tank");
}

async fn load_key(pool: &Arc<LivePool>) {
    let dsl = Dsl::open(&pool.view()).await.unwrap();
    dsl.load_key("tank/vol", KEYS[0].as_bytes(), false).await.unwrap();
}

/// Ciphertext goes there and comes from there, is found again before there is a key, and
/// stays when the key goes.
#[test]
fn encrypted_blocks_are_on_a_cache_device_as_they_are_in_the_pool() {
    let _shared = ALONE.read().ignore_poison();
    for (suite, is_packed) in [("aes-256-gcm", true), ("aes-128-ccm", false)] {
        let disks = Disks::new(256 * MIB);
        let mut data = 0;
        block_on(async {
            let pool = create_with(&disks, &["cache"], "all", 1, Some(suite)).await;
            warm_up(&pool).await;
            data = stats(&pool).l2_bufc_data_asize.get();
            assert!(data >= BLOCKS * BLOCK / 2, "{:?}", stats(&pool).all());
            let (hits, reads) = hits(&pool).await;
            assert!(hits >= BLOCKS && reads < 20, "{hits} hits, {reads} reads of the pool");
            assert_eq!((stats(&pool).l2_cksum_bad.get(), stats(&pool).l2_io_error.get()), (0, 0));
            // What is written is fed from the write, not from a read.
            let volume = open(&pool).await;
            for block in 0..BLOCKS {
                volume.write_at(block * BLOCK, &content(block, 0), false).await.unwrap();
            }
            drop(volume);
            pool.sync().await.unwrap();
            pool.sync().await.unwrap();
            feed(&pool).await;
            let (hits, reads) = self::hits(&pool).await;
            assert!(hits >= BLOCKS && reads < 20, "{hits} hits, {reads} reads of the pool");
            if !is_packed {
                // Keys go while blocks wait for the device: what waits is ciphertext.
                feed(&pool).await;
                committing(&pool, pool.unload_key("tank/vol")).await.unwrap();
                feed(&pool).await;
                load_key(&pool).await;
                read_all(&pool).await;
            }
            export(pool).await;
        });
        for seed in 2..4 {
            block_on(async {
                let pool = disks.import("tank", seed).await;
                pool.feed_l2arc().await;
                let stats = stats(&pool);
                assert_eq!(stats.l2_rebuild_success.get(), 1, "{:?}", stats.all());
                assert!(stats.l2_bufc_data_asize.get() >= data);
                assert!(pool.volume(objset_of(&pool, "vol").await.unwrap()).await.is_err(), "it is locked");
                load_key(&pool).await;
                let (hits, reads) = hits(&pool).await;
                assert!(hits >= BLOCKS && reads < 40, "{hits} hits, {reads} reads of the pool");
                assert_eq!(stats.l2_cksum_bad.get(), 0);
                export(pool).await;
            });
        }
        for name in ["cache", "d0"] {
            for block in [1, 7, 301] {
                let found = testkit::search::find(&disks.file(name), &content(block, 0)[..48]).unwrap();
                assert_eq!(found, None, "block {block} on {name}");
            }
        }
        disks.judge("tank");
    }
}

#[test]
fn bad_cache_devices_never_give_wrong_bytes() {
    let _shared = ALONE.read().ignore_poison();
    let disks = Disks::new(256 * MIB);
    block_on(async {
        let pool = create(&disks, &["cache"], "all").await;
        warm_up(&pool).await;
        // Noise over everything behind the header, while the pool is open.
        let file = std::fs::OpenOptions::new().write(true).open(disks.file("cache")).unwrap();
        for at in 0..32 {
            file.write_all_at(&[0x5a; 1 << 20], (4 + at) * MIB + 4096).unwrap();
        }
        let (tried, reads) = hits(&pool).await;
        assert!(tried >= BLOCKS && reads >= BLOCKS, "{tried} {reads}");
        assert!(stats(&pool).l2_cksum_bad.get() >= BLOCKS);
        let (tried, _) = hits(&pool).await;
        assert_eq!(tried, 0, "what was wrong is not asked for again");
        feed(&pool).await;
        assert!(hits(&pool).await.0 >= BLOCKS, "it is fed again");
        export(pool).await;
    });
    // Torn: the newest log block, then the header.
    let said = testkit::oracle::cache_device(&disks.file("cache"));
    let file = std::fs::OpenOptions::new().write(true).read(true).open(disks.file("cache")).unwrap();
    if let Some(said) = said {
        file.write_all_at(&[7; 64], number(&said, "start_lbps[0]:") + 100).unwrap();
        block_on(async {
            let pool = disks.import("tank", 2).await;
            pool.feed_l2arc().await;
            assert_eq!(stats(&pool).l2_rebuild_cksum_lb_errors.get(), 1);
            assert_eq!(stats(&pool).l2_rebuild_success.get(), 0);
            read_all(&pool).await;
            export(pool).await;
        });
    }
    let mut header = [0; 4096];
    file.read_exact_at(&mut header, 4 * MIB).unwrap();
    header[200] ^= 1;
    file.write_all_at(&header, 4 * MIB).unwrap();
    block_on(async {
        let pool = disks.import("tank", 3).await;
        pool.feed_l2arc().await;
        assert_eq!(stats(&pool).l2_rebuild_dh_errors.get(), 1);
        warm_up(&pool).await;
        assert!(hits(&pool).await.0 >= BLOCKS);
        export(pool).await;
    });
    disks.judge("tank");
}

#[test]
fn a_cache_device_of_another_pool_begins_anew() {
    let _shared = ALONE.read().ignore_poison();
    let (one, other) = (Disks::new(256 * MIB), Disks::new(256 * MIB));
    for (disks, seed) in [(&one, 1), (&other, 2)] {
        block_on(async {
            let pool = create_as(disks, &["cache"], "all", seed).await;
            warm_up(&pool).await;
            export(pool).await;
        });
    }
    // The contents change places; the labels stay.
    let open =
        |disks: &Disks| std::fs::OpenOptions::new().read(true).write(true).open(disks.file("cache")).unwrap();
    let (mut of_one, mut of_other) = (vec![0; 64 << 20], vec![0; 64 << 20]);
    open(&one).read_exact_at(&mut of_one, 4 * MIB).unwrap();
    open(&other).read_exact_at(&mut of_other, 4 * MIB).unwrap();
    open(&one).write_all_at(&of_other, 4 * MIB).unwrap();
    open(&other).write_all_at(&of_one, 4 * MIB).unwrap();
    block_on(async {
        let pool = one.import("tank", 2).await;
        pool.feed_l2arc().await;
        assert_eq!(stats(&pool).l2_rebuild_unsupported.get(), 1, "{:?}", stats(&pool).all());
        assert_eq!(hits(&pool).await.0, 0);
        feed(&pool).await;
        assert!(hits(&pool).await.0 >= BLOCKS);
        export(pool).await;
    });
    one.judge("tank");
}

#[test]
fn cache_devices_come_and_go_while_blocks_are_read() {
    let _shared = ALONE.read().ignore_poison();
    let disks = Disks::new(256 * MIB);
    block_on(async {
        let pool = create(&disks, &["c0"], "all").await;
        pool.start().unwrap();
        let done = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let readers: Vec<_> = (0..2)
            .map(|_| {
                let (pool, done) = (Arc::clone(&pool), Arc::clone(&done));
                std::thread::spawn(move || {
                    let mut rounds = 0;
                    while rounds < 3 || !done.load(std::sync::atomic::Ordering::Relaxed) {
                        block_on(read_all(&pool));
                        pool.flush_cache();
                        rounds += 1;
                    }
                })
            })
            .collect();
        for round in 0..4 {
            pool.feed_l2arc().await;
            let c0 = cache(&pool, "c0");
            pool.offline(c0, TakeOffline::Temporarily).await.unwrap();
            pool.add_auxiliary(Auxiliary::Cache, vec![cache_leaf(&disks, &format!("n{round}"))])
                .await
                .unwrap();
            pool.feed_l2arc().await;
            assert_eq!(pool.online(c0).await.unwrap().state, State::Healthy);
            pool.feed_l2arc().await;
            pool.remove(cache(&pool, &format!("n{round}"))).await.unwrap();
        }
        done.store(true, std::sync::atomic::Ordering::Relaxed);
        readers.into_iter().for_each(|reader| reader.join().unwrap());
        warm_up(&pool).await;
        let (hits, _) = hits(&pool).await;
        assert!(hits >= BLOCKS / 2, "{hits}: {:?}", stats(&pool).all());
        pool.remove(cache(&pool, "c0")).await.unwrap();
        pool.feed_l2arc().await;
        let sums =
            ["l2_size", "l2_asize", "l2_mru_asize", "l2_mfu_asize", "l2_log_blk_count", "l2_log_blk_asize"];
        let left: Vec<_> = stats(&pool)
            .all()
            .into_iter()
            .filter(|(name, value)| sums.contains(name) && *value > 0)
            .collect();
        assert_eq!(left, [], "nothing is left");
        read_all(&pool).await;
        export(pool).await;
    });
    disks.judge("tank");
}

#[test]
fn a_device_that_is_offline_for_a_while_has_its_blocks_afterwards() {
    let _shared = ALONE.read().ignore_poison();
    let disks = Disks::new(256 * MIB);
    block_on(async {
        let pool = create(&disks, &["cache"], "all").await;
        warm_up(&pool).await;
        let guid = cache(&pool, "cache");
        let on_it = |pool: &LivePool| {
            let stats = stats(pool);
            [&stats.l2_size, &stats.l2_bufc_data_asize, &stats.l2_log_blk_count].map(|sum| sum.get())
        };
        let before = on_it(&pool);
        pool.offline(guid, TakeOffline::Temporarily).await.unwrap();
        assert_eq!(hits(&pool).await.0, 0);
        assert_eq!(on_it(&pool), before, "it is still on the device");
        pool.online(guid).await.unwrap();
        pool.feed_l2arc().await;
        assert_eq!(stats(&pool).l2_rebuild_success.get(), 1);
        // What had no log block yet is lost.
        assert!(on_it(&pool)[0] <= before[0] && on_it(&pool)[2] == before[2], "each block counts once");
        assert!(hits(&pool).await.0 >= BLOCKS - 79);
        let counted = || {
            let mut all = engine::stats::Arcstats::default();
            engine::l2arc::stats::show(&mut all);
            [all.l2_hits, all.l2_feeds, all.l2_write_bytes]
        };
        let open = counted();
        export(pool).await;
        let closed = counted();
        assert!(open[0] >= BLOCKS - 79 && (0..3).all(|at| closed[at] >= open[at]), "{open:?} {closed:?}");
    });
}

#[test]
fn a_device_with_errors_is_given_up_and_a_slow_one_is_left_alone() {
    let _alone = ALONE.write().ignore_poison();
    let disks = Disks::new(256 * MIB);
    block_on(async {
        let pool = create(&disks, &["cache"], "all").await;
        warm_up(&pool).await;
        let leaf = cache(&pool, "cache").get();
        tunables::L2ARC_BYPASS_SLOW.set(1).unwrap();
        let (latency, operation) = (Duration::from_millis(50), Operation::Read);
        let delay = Fault::Delay { leaf, latency, lanes: 64, operation };
        let id = pool.inject(delay, ALWAYS).unwrap();
        hits(&pool).await;
        let bypassed = stats(&pool).l2_bypassed.get();
        assert!(bypassed > BLOCKS / 2, "{bypassed} of {BLOCKS}");
        // A few reads of the pool that are held up do not make it the slower one.
        let (top, latency) = (pool.pool().vdevs().tops[0].guid.get(), Duration::from_secs(1));
        let held_up = Fault::Delay { leaf: top, latency, lanes: 64, operation };
        let held_up = pool.inject(held_up, ALWAYS).unwrap();
        pool.flush_cache();
        open(&pool).await.read_at(0, &mut vec![0; BLOCK as usize]).await.unwrap();
        pool.clear_injections(Some(held_up));
        // No reader waits for it any more: the feeder reads a few of the blocks.
        let hits_before = stats(&pool).l2_hits.get();
        hits(&pool).await;
        let slow_hits = stats(&pool).l2_hits.get() - hits_before;
        assert!(slow_hits < BLOCKS / 8, "{slow_hits} of {BLOCKS}");
        let hits_before = stats(&pool).l2_hits.get();
        let device_reads = || {
            let vdevs = pool.pool().vdevs();
            let leaf = vdevs.l2cache.iter().next().unwrap();
            leaf.stats.snapshot(Transfer::Read).operations
        };
        let reads_before = device_reads();
        pool.feed_l2arc().await;
        assert!((1..=8).contains(&(device_reads() - reads_before)));
        pool.clear_injections(Some(id));
        // It is as fast as before: sooner or later readers get their blocks from it again.
        let until = std::time::Instant::now() + Duration::from_secs(120);
        while stats(&pool).l2_hits.get() == hits_before {
            assert!(std::time::Instant::now() < until, "the device is never used again");
            hits(&pool).await;
            pool.feed_l2arc().await;
        }
        tunables::L2ARC_BYPASS_SLOW.set(0).unwrap();

        let error = Fault::Device { leaf, error: DeviceError::Io, operation: Operation::All, label: None };
        pool.inject(error, ALWAYS).unwrap();
        hits(&pool).await;
        pool.feed_l2arc().await;
        let status = pool.pool().vdevs().l2cache.iter().next().unwrap().status();
        assert_eq!(status.state, State::Faulted);
        assert_eq!(hits(&pool).await.0, 0);
        pool.clear_injections(None);
        pool.clear(None).await.unwrap();
        warm_up(&pool).await;
        assert!(hits(&pool).await.0 > 0);
        export(pool).await;
    });
}

#[test]
fn secondarycache_says_what_may_be_cached() {
    let _shared = ALONE.read().ignore_poison();
    for (secondary, has_data) in [("metadata", false), ("none", false), ("all", true)] {
        let disks = Disks::new(256 * MIB);
        block_on(async {
            let pool = create(&disks, &["cache"], secondary).await;
            warm_up(&pool).await;
            assert_eq!(stats(&pool).l2_bufc_data_asize.get() > 0, has_data, "{secondary}");
            assert!(stats(&pool).l2_bufc_metadata_asize.get() > 0, "{secondary}: the pool's own");
            export(pool).await;
        });
    }
}

#[test]
fn tunables_of_cache_devices_have_effects() {
    let _alone = ALONE.write().ignore_poison();
    let disks = Disks::new(256 * MIB);
    block_on(async {
        let pool = create(&disks, &["cache"], "all").await;
        pool.feed_l2arc().await;
        read_all(&pool).await;
        let stats = stats(&pool);
        let written = async |pool: &Arc<LivePool>| {
            let before = stats.l2_write_bytes.get();
            pool.feed_l2arc().await;
            stats.l2_write_bytes.get() - before
        };
        {
            let _none = set(&tunables::L2ARC_META_PERCENT, 0);
            assert_eq!((written(&pool).await, stats.l2_abort_lowmem.get()), (0, 1));
        }
        {
            let _frequent = set(&tunables::L2ARC_MFUONLY, 1);
            pool.feed_l2arc().await;
            assert_eq!(stats.l2_mru_asize.get(), 0);
        }
        let small = set(&tunables::L2ARC_WRITE_MAX, 256 << 10);
        {
            let _no_boost = set(&tunables::L2ARC_WRITE_BOOST, 0);
            let wrote = written(&pool).await;
            assert!((128 << 10..=272 << 10).contains(&wrote), "{wrote}");
            let _near = set(&tunables::L2ARC_HEADROOM, 1);
            assert!(written(&pool).await <= 272 << 10);
        }
        {
            let _boost = set(&tunables::L2ARC_WRITE_BOOST, 1 << 20);
            let wrote = written(&pool).await;
            assert!((512 << 10..=1400 << 10).contains(&wrote), "{wrote}");
            let _secs = set(&tunables::L2ARC_FEED_SECS, 7);
            let _ms = set(&tunables::L2ARC_FEED_MIN_MS, 300);
            let before = stats.l2_write_bytes.get();
            let pause = pool.feed_l2arc().await;
            let wrote = stats.l2_write_bytes.get() - before;
            assert!((Duration::from_millis(300)..Duration::from_secs(7)).contains(&pause), "{pause:?}");
            // The header of the device, which some feeds write, is beside the rate.
            let rate = wrote.saturating_sub(HEADER_BYTES as u64) as f64 / pause.as_secs_f64();
            assert!(
                rate <= f64::from((256 << 10) + (1 << 20)),
                "{rate} bytes a second: {wrote} in {pause:?}"
            );
            let _often = set(&tunables::L2ARC_FEED_MIN_MS, 1);
            let _never = set(&tunables::L2ARC_FEED_AGAIN, 0);
            assert_eq!(pool.feed_l2arc().await, Duration::from_secs(7));
        }
        drop(small);
        feed(&pool).await;
        assert!(hits(&pool).await.0 >= BLOCKS);
        export(pool).await;
    });
    {
        let _off = set(&tunables::L2ARC_REBUILD_ENABLED, 0);
        block_on(async {
            let pool = disks.import("tank", 2).await;
            pool.feed_l2arc().await;
            assert_eq!((stats(&pool).l2_rebuild_success.get(), hits(&pool).await.0), (0, 0));
            feed(&pool).await;
            export(pool).await;
        });
    }
    if let Some(said) = testkit::oracle::cache_device(&disks.file("cache")) {
        assert!(said.contains(" 0 with invalid cksum"), "{said}");
    }
    let _larger = set(&tunables::L2ARC_REBUILD_BLOCKS_MIN_L2SIZE, 2 << 30);
    block_on(async {
        let pool = disks.import("tank", 3).await;
        warm_up(&pool).await;
        assert_eq!(stats(&pool).l2_log_blk_writes.get(), 0);
        assert!(hits(&pool).await.0 >= BLOCKS);
        export(pool).await;
    });
}

#[test]
fn a_full_cache_device_gives_up_the_oldest_blocks_and_trims_ahead() {
    let _alone = ALONE.write().ignore_poison();
    let disks = Disks::new(256 * MIB);
    let _small = set(&tunables::L2ARC_REBUILD_BLOCKS_MIN_L2SIZE, 0);
    let _max = set(&tunables::L2ARC_WRITE_MAX, 2 << 20);
    let _boost = set(&tunables::L2ARC_WRITE_BOOST, 0);
    let _trim = set(&tunables::L2ARC_TRIM_AHEAD, 1);
    block_on(async {
        let pool = create(&disks, &[], "all").await;
        let path = disks.file("small");
        std::fs::File::create(&path).unwrap().set_len(24 * MIB).unwrap();
        pool.add_auxiliary(Auxiliary::Cache, vec![reused_leaf(&disks, "small")]).await.unwrap();
        pool.feed_l2arc().await;
        assert!(stats(&pool).l2_trim_bytes.get() >= 19 * MIB, "it is trimmed as a whole at first");
        for round in 1..6u8 {
            let volume = open(&pool).await;
            for block in 0..BLOCKS {
                volume.write_at(block * BLOCK, &content(block, round), false).await.unwrap();
            }
            pool.sync().await.unwrap();
            feed(&pool).await;
            pool.flush_cache();
            let mut bytes = vec![0; BLOCK as usize];
            for step in 0..BLOCKS {
                let block = step * 257 % BLOCKS;
                volume.read_at(block * BLOCK, &mut bytes).await.unwrap();
                assert!(bytes == content(block, round), "block {block} of round {round}");
            }
            feed(&pool).await;
        }
        let stats = stats(&pool);
        assert!(stats.l2_write_bytes.get() > 30 * MIB, "more than once around");
        assert!(stats.l2_bufc_data_asize.get() < 20 * MIB);
        assert!(stats.l2_trim_bytes.get() > 21 * MIB, "{}", stats.l2_trim_bytes.get());
        export(pool).await;
    });
    if let Some(said) = testkit::oracle::cache_device(&disks.file("small")) {
        assert!(said.contains(" 0 with invalid cksum"), "{said}");
        assert!(number(&said, "lb_count_refcount:") <= number(&said, "log_blk_count:"), "{said}");
        assert_eq!(number(&said, "trim_state:"), 4, "{said}");
    }
    disks.judge("tank");
}

#[test]
fn what_is_read_ahead_and_what_is_special_is_left_out() {
    let _alone = ALONE.write().ignore_poison();
    for (ahead, expected) in [(1, false), (0, true)] {
        let _ahead = set(&tunables::L2ARC_NOPREFETCH, ahead);
        let disks = Disks::new(256 * MIB);
        block_on(async {
            let pool = create(&disks, &["cache"], "all").await;
            pool.feed_l2arc().await;
            let dsl = Dsl::open(&pool.view()).await.unwrap();
            let volume = dsl.find("tank/vol").await.unwrap();
            let object = dsl.open_objset(&volume).await.unwrap().object(ondisk::ObjectId(1)).await.unwrap();
            for block in 0..BLOCKS {
                object.warm(block).await.unwrap();
            }
            feed(&pool).await;
            assert_eq!(stats(&pool).l2_bufc_data_asize.get() > 0, expected, "{ahead}");
            drop((object, dsl));
            export(pool).await;
        });
    }
    for (exclude, expected) in [(1, false), (0, true)] {
        let _exclude = set(&tunables::L2ARC_EXCLUDE_SPECIAL, exclude);
        let disks = Disks::new(256 * MIB);
        block_on(async {
            let tops = vec![
                disks.top(Layout::Single, Class::Normal, "d", 1),
                disks.top(Layout::Single, Class::Special, "s", 1),
            ];
            let new = NewPool { l2cache: vec![cache_leaf(&disks, "cache")], ..new_pool(tops, 12) };
            let pool = LivePool::create(new, surroundings(1)).await.unwrap();
            pool.feed_l2arc().await;
            let make = NewDataset {
                name: "tank/fs".into(),
                contents: NewContents::Filesystem,
                properties: Vec::new(),
            };
            pool.change(move |s: Syncing| async move { edit::create(&s, &make).await }).await.unwrap();
            pool.sync().await.unwrap();
            pool.sync().await.unwrap();
            feed(&pool).await;
            assert_eq!(stats(&pool).l2_bufc_metadata_asize.get() > 0, expected, "{exclude}");
            export(pool).await;
        });
    }
}

#[test]
fn the_cache_device_of_a_pool_that_openzfs_made_is_taken_up() {
    let _shared = ALONE.read().ignore_poison();
    let Some(disks) = Disks::of_golden("classes") else { return };
    block_on(async {
        let pool = disks.import("classes", 1).await;
        pool.feed_l2arc().await;
        let stats = stats(&pool);
        assert_eq!(
            stats.l2_rebuild_dh_errors.get() + stats.l2_rebuild_unsupported.get(),
            0,
            "{:?}",
            stats.all()
        );
        assert!(stats.l2_feeds.get() == 1 && pool.pool().l2arc().is_active());
        export(pool).await;
    });
    disks.judge("classes");
}
