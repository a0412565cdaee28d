//! Tunables change what they say. They belong to the process, so this program has nothing else to test, and
//! its tests take turns.

#![allow(clippy::unwrap_used, reason = "a test")]

#[path = "../live/support.rs"]
#[allow(dead_code, reason = "other tests use the rest")]
mod support;

use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use device::{IgnorePoison, block_on};
use engine::cache::ArcCache;
use engine::dsl::edit::{self, NewContents, NewDataset};
use engine::dsl::with_room;
use engine::env::Multihost;
use engine::events::Events;
use engine::pool::live::{Layout, LivePool, ScrubRange, Surroundings, Sweep};
use engine::pool::status::Progress;
use engine::scan::ScanLimits;
use engine::tunables::{self, Tunable};
use engine::txg::Limits;
use engine::vdev::Class;
use engine::vdev::stats::Transfer;
use engine::zvol::LiveZvol;
use ondisk::Txg;
use ondisk::vdev_config::PoolState;

use support::{Disks, full, new_pool, objset_of, surroundings};

const MIB: u64 = 1 << 20;

static TURN: Mutex<()> = Mutex::new(());

/// The right to set tunables. At its end all have their defaults.
struct Turn(#[allow(dead_code, reason = "it is held")] MutexGuard<'static, ()>);

impl Turn {
    fn take() -> Self {
        Self(TURN.lock().ignore_poison())
    }

    fn set(&self, tunable: &Tunable, value: u64) {
        tunable.set(value).unwrap();
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        tunables::all().iter().for_each(|tunable| tunable.reset());
    }
}

/// A pool with a volume, whose groups are only committed when something asks for it.
struct Bed {
    disks: Disks,
    pool: Arc<LivePool>,
    volume: Arc<LiveZvol>,
}

impl Bed {
    fn new() -> Self {
        Self::on(256 * MIB)
    }

    /// On a device of this size.
    fn on(bytes: u64) -> Self {
        let disks = Disks::new(bytes);
        let new = new_pool(vec![disks.top(Layout::Single, Class::Normal, "d", 1)], 12);
        let limits = Limits { timeout: Duration::from_secs(3600), ..Limits::default() };
        let cache = Some(Arc::new(ArcCache::new(64 << 20)));
        let surroundings = Surroundings { limits, cache, ..surroundings(1) };
        let pool = block_on(LivePool::create(new, surroundings)).unwrap();
        pool.start().unwrap();
        let contents = NewContents::Volume { size: 64 * MIB, sparse: true };
        let properties = vec![("volblocksize".into(), "8K".into()), ("compression".into(), "off".into())];
        let new = NewDataset { name: full("vol"), contents, properties };
        block_on(pool.change(move |s| async move { edit::create(&s, &new).await })).unwrap();
        let volume = block_on(async { pool.volume(objset_of(&pool, "vol").await.unwrap()).await.unwrap() });
        Self { disks, pool, volume }
    }

    fn write(&self, at: u64, bytes: u64) {
        let data: Vec<u8> = (0..bytes).map(|byte| (byte * 7 + at) as u8 | 1).collect();
        block_on(with_room(self.pool.txgs(), || self.volume.write_at(at, &data, false))).unwrap();
    }

    fn commit(&self) {
        block_on(self.pool.txgs().wait_synced(self.pool.txgs().open_txg())).unwrap();
    }

    fn synced(&self) -> Txg {
        self.pool.view().uberblock().txg
    }

    /// Whether a group is committed within this time.
    fn commits_within(&self, patience: Duration) -> bool {
        let (before, until) = (self.synced(), Instant::now() + patience);
        while self.synced() == before && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(10));
        }
        self.synced() != before
    }

    /// Bytes and number of reads of the devices.
    fn reads(&self, transfer: Transfer) -> (u64, u64) {
        let leaves = self.pool.pool().vdevs().leaves();
        let snapshots = leaves.map(|leaf| leaf.stats.snapshot(transfer));
        snapshots.fold((0, 0), |(bytes, count), of| (bytes + of.bytes, count + of.operations))
    }

    fn scrub(&self) -> u64 {
        let before = self.reads(Transfer::Scrub).1;
        block_on(self.pool.scrub(ScrubRange::default())).unwrap();
        self.wait_for_scan(Duration::from_secs(60));
        self.reads(Transfer::Scrub).1 - before
    }

    fn wait_for_scan(&self, patience: Duration) -> bool {
        let until = Instant::now() + patience;
        let runs = || self.pool.scan_status().is_none_or(|scan| scan.state == Progress::Running);
        while runs() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(5));
        }
        !runs()
    }

    fn end(self) {
        let Self { disks, pool, volume } = self;
        drop(volume);
        block_on(pool.close(PoolState::Exported)).unwrap();
        drop(disks);
    }
}

#[test]
fn a_group_is_committed_after_its_time() {
    let (turn, bed) = (Turn::take(), Bed::new());
    bed.write(0, 8192);
    assert!(!bed.commits_within(Duration::from_millis(1500)), "this pool's groups have an hour");
    turn.set(&tunables::ZFS_TXG_TIMEOUT, 1);
    bed.write(8192, 8192);
    assert!(bed.commits_within(Duration::from_secs(20)));
    bed.end();
}

#[test]
fn a_group_is_committed_with_its_share_of_dirty_data() {
    let (turn, bed) = (Turn::take(), Bed::new());
    bed.write(0, 2 * MIB);
    assert!(!bed.commits_within(Duration::from_millis(500)), "so little is dirty");
    turn.set(&tunables::ZFS_DIRTY_DATA_MAX, 64 * MIB);
    turn.set(&tunables::ZFS_DIRTY_DATA_SYNC_PERCENT, 2);
    bed.write(4 * MIB, 2 * MIB);
    assert!(bed.commits_within(Duration::from_secs(20)));
    bed.end();
}

/// Bytes that devices gave for some reads in order.
fn read_in_order(reads: u64) -> u64 {
    let bed = Bed::new();
    for at in 0..32 {
        bed.write(at * MIB, MIB);
    }
    bed.commit();
    let Bed { disks, pool, volume } = bed;
    drop(volume);
    block_on(pool.close(PoolState::Exported)).unwrap();
    drop(pool);
    let pool = block_on(disks.import("tank", 2));
    let volume = block_on(async { pool.volume(objset_of(&pool, "vol").await.unwrap()).await.unwrap() });
    let bed = Bed { disks, pool, volume };
    let before = bed.reads(Transfer::Read).0;
    let reader = block_on(bed.volume.reader()).unwrap();
    let mut into = vec![0; 8192];
    for at in 0..reads {
        block_on(reader.read_at(at * 8192, &mut into)).unwrap();
    }
    drop(reader);
    // What was asked for ahead may still be on its way.
    std::thread::sleep(Duration::from_millis(300));
    let read = bed.reads(Transfer::Read).0 - before;
    bed.end();
    read
}

#[test]
fn blocks_are_loaded_ahead_as_far_as_is_said_or_not_at_all() {
    let turn = Turn::take();
    let usual = read_in_order(128);
    turn.set(&tunables::ZFETCH_MAX_DISTANCE, 64 << 10);
    let short = read_in_order(128);
    turn.set(&tunables::ZFS_PREFETCH_DISABLE, 1);
    let none = read_in_order(128);
    assert!(none < short && short < usual, "{none} {short} {usual}");
    assert!(short - none <= 256 << 10 && usual - none > MIB, "{none} {short} {usual}");
}

#[test]
fn the_ring_of_events_has_its_length() {
    let turn = Turn::take();
    turn.set(&tunables::ZFS_ZEVENT_LEN_MAX, 10);
    let events = Events::default();
    for _ in 0..25 {
        events.post("sysevent.fs.zfs.probe".into(), Vec::new());
    }
    assert_eq!(events.since(0).events.len(), 10);
}

#[test]
fn a_scan_has_its_limits_and_can_be_held() {
    let turn = Turn::take();
    let usual = ScanLimits::default();
    turn.set(&tunables::ZFS_SCAN_MEM_LIM_FACT, 40);
    turn.set(&tunables::ZFS_SCAN_VDEV_LIMIT, MIB);
    let limits = ScanLimits::default();
    assert_eq!(limits.memory_bytes, usual.memory_bytes / 2);
    assert_eq!((usual.reading_bytes, limits.reading_bytes), (3 * MIB, MIB));
    let bed = Bed::new();
    bed.write(0, 4 * MIB);
    bed.commit();
    turn.set(&tunables::ZFS_SCAN_SUSPEND_PROGRESS, 1);
    block_on(bed.pool.scrub(ScrubRange::default())).unwrap();
    assert!(!bed.wait_for_scan(Duration::from_millis(600)), "it is held");
    turn.set(&tunables::ZFS_SCAN_SUSPEND_PROGRESS, 0);
    assert!(bed.wait_for_scan(Duration::from_secs(30)));
    bed.end();
}

#[test]
fn reads_of_a_scrub_are_joined_as_far_as_is_said() {
    let (turn, bed) = (Turn::take(), Bed::new());
    (0..16).for_each(|at| bed.write(at * MIB, MIB));
    bed.commit();
    let usual = bed.scrub();
    turn.set(&tunables::ZFS_VDEV_AGGREGATION_LIMIT, 16 << 10);
    let small = bed.scrub();
    assert!(small > usual * 10, "{usual} {small}");
    turn.set(&tunables::ZFS_VDEV_AGGREGATION_LIMIT, MIB);
    turn.set(&tunables::ZFS_VDEV_READ_GAP_LIMIT, 0);
    let without_gaps = bed.scrub();
    assert!((usual..small).contains(&without_gaps), "{usual} {without_gaps} {small}");
    bed.end();
}

#[test]
fn free_space_is_initialized_with_the_word_that_is_said() {
    let (turn, bed) = (Turn::take(), Bed::new());
    turn.set(&tunables::ZFS_INITIALIZE_VALUE, 0x1122_3344_5566_7788);
    turn.set(&tunables::ZFS_INITIALIZE_CHUNK_SIZE, 64 << 10);
    let leaves: Vec<_> = bed.pool.pool().vdevs().leaves().map(|leaf| leaf.guid).collect();
    let before = bed.reads(Transfer::Write).1;
    block_on(bed.pool.sweep(Sweep::Initialize, &leaves, 0)).unwrap();
    block_on(bed.pool.wait_for_jobs(|_, state| state == engine::jobs::JobState::Active));
    let writes = bed.reads(Transfer::Write).1 - before;
    assert!(writes > 1000, "pieces of 64K: {writes}");
    let file = std::fs::File::open(bed.disks.file("d0")).unwrap();
    let mut word = [0; 8];
    file.read_exact_at(&mut word, 200 << 20).unwrap();
    assert_eq!(u64::from_le_bytes(word), 0x1122_3344_5566_7788);
    bed.end();
}

#[test]
fn a_vdev_has_about_as_many_metaslabs_as_is_said() {
    let turn = Turn::take();
    let shift = || {
        let bed = Bed::on(4096 * MIB);
        let config = bed.pool.view().config().vdev_tree.clone().unwrap();
        bed.end();
        config.children[0].metaslab_shift.unwrap()
    };
    let usual = shift();
    turn.set(&tunables::ZFS_VDEV_MIN_MS_COUNT, 64);
    assert_eq!(shift() + 2, usual, "a quarter of the size");
}

#[test]
fn marks_of_multihost_pools_come_as_is_said() {
    let turn = Turn::take();
    turn.set(&tunables::ZFS_MULTIHOST_INTERVAL, 250);
    turn.set(&tunables::ZFS_MULTIHOST_FAIL_INTERVALS, 4);
    turn.set(&tunables::ZFS_MULTIHOST_IMPORT_INTERVALS, 7);
    let Multihost { interval, fail_intervals, import_intervals } = Multihost::tuned();
    assert_eq!((interval, fail_intervals, import_intervals), (Duration::from_millis(250), 4, 7));
}

/// Bytes that the log got for stable writes of this size.
fn logged(bytes: u64) -> u64 {
    let bed = Bed::new();
    // The first stable write begins the log.
    bed.write(0, 8192);
    block_on(bed.volume.flush()).unwrap();
    let before = bed.pool.writer().written().log_bytes;
    for at in 1..9 {
        bed.write(at * MIB, bytes);
        block_on(bed.volume.flush()).unwrap();
    }
    let logged = bed.pool.writer().written().log_bytes - before;
    bed.end();
    logged
}

#[test]
fn large_writes_do_not_go_through_the_log_from_the_size_that_is_said() {
    let turn = Turn::take();
    let small = logged(16 << 10);
    assert!(small > 8 * (16 << 10), "with their data: {small}");
    turn.set(&tunables::ZFS_IMMEDIATE_WRITE_SZ, 8 << 10);
    let immediate = logged(16 << 10);
    assert!(immediate < small / 2, "{immediate} {small}");
}
