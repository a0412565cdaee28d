//! Scrubs: what is wrong in any layout is found and mended, the pool says how far they are, and datasets may
//! change meanwhile.

use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use device::block_on;
use device::simulated::Fault;
use engine::dsl::edit::{self, NewContents, NewDataset};
use engine::dsl::{Dsl, with_room};
use engine::pool::live::{Layout, LivePool, NewTop, ScrubRange};
use engine::pool::status::{Progress, Scan, ScanKind};
use engine::scan::ScanLimits;
use engine::vdev::stats::Transfer;
use engine::vdev::{Class, LABEL_END_BYTES, LABEL_START_BYTES};
use ondisk::features::Feature;
use ondisk::vdev_config::PoolState;
use testkit::tree::Change;

use crate::faults::simulated;
use crate::support::{Disks, full, make_change, new_pool, objset_of, surroundings};

pub const MIB: u64 = 1 << 20;

pub fn content(at: u64) -> Vec<u8> {
    (0..MIB).map(|byte| ((byte ^ (byte >> 9)).wrapping_mul(at + 3) >> 1) as u8 | 1).collect()
}

pub async fn create_volume(pool: &Arc<LivePool>, name: &str, properties: &[(&str, &str)], size: u64) {
    let properties = properties.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
    let contents = NewContents::Volume { size, sparse: true };
    let new = NewDataset { name: full(name), contents, properties };
    pool.change(move |s| async move { edit::create(&s, &new).await }).await.unwrap();
}

/// Fills MiBs of a volume, each with the contents of `seed` and its place.
pub async fn fill(pool: &Arc<LivePool>, name: &str, mibs: std::ops::Range<u64>, seed: u64) {
    let volume = pool.volume(objset_of(pool, name).await.unwrap()).await.unwrap();
    for at in mibs {
        let bytes = content(at + seed);
        with_room(pool.txgs(), || volume.write_at(at * MIB, &bytes, false)).await.unwrap();
    }
    drop(volume);
    committed(pool).await;
}

pub async fn holds(pool: &Arc<LivePool>, name: &str, mibs: std::ops::Range<u64>, seed: u64) {
    let volume = pool.volume(objset_of(pool, name).await.unwrap()).await.unwrap();
    for at in mibs {
        let mut read = vec![0; MIB as usize];
        volume.read_at(at * MIB, &mut read).await.unwrap();
        assert!(read == content(at + seed), "other bytes at {at} MiB of {name}");
    }
}

pub async fn committed(pool: &Arc<LivePool>) {
    pool.txgs().wait_synced(pool.txgs().open_txg()).await.unwrap();
}

/// Waits until no scan is under way.
pub async fn scanned(pool: &Arc<LivePool>) -> Scan {
    use engine::pool::live::JobKey;
    loop {
        pool.wait_for_jobs(|key, state| {
            let is_scan = matches!(key, JobKey::Scan | JobKey::LookForResilver | JobKey::ErrorScrub);
            is_scan && state == engine::jobs::JobState::Active
        })
        .await;
        match pool.scan_status() {
            Some(scan) if scan.state != Progress::Running => return scan,
            _ => std::thread::yield_now(),
        }
    }
}

pub async fn scrubbed(pool: &Arc<LivePool>) -> Scan {
    pool.scrub(ScrubRange::default()).await.unwrap();
    let scan = scanned(pool).await;
    assert_eq!((scan.kind, scan.state), (ScanKind::Scrub, Progress::Finished));
    scan
}

/// Makes all that a file holds wrong, labels aside. `every` says which of its sectors.
pub fn garble(path: &Path, every: impl Fn(u64) -> bool) {
    let file = std::fs::OpenOptions::new().read(true).write(true).open(path).unwrap();
    let end = file.metadata().unwrap().len() - LABEL_END_BYTES;
    let mut sector = vec![0; 4096];
    for at in (LABEL_START_BYTES..end).step_by(sector.len()) {
        file.read_exact_at(&mut sector, at).unwrap();
        if sector.iter().any(|byte| *byte != 0) && every(at / 4096) {
            sector.iter_mut().for_each(|byte| *byte ^= 0x5a);
            file.write_all_at(&sector, at).unwrap();
        }
    }
}

const PLAIN: [(&str, &str); 1] = [("compression", "off")];

/// A scrub mends what is wrong with some devices; the second one finds nothing.
fn mends(victims: &[&str], tops: impl Fn(&Disks) -> Vec<NewTop>, properties: &[(&str, &str)], size: u64) {
    let disks = Disks::new(128 * MIB);
    block_on(async {
        let pool = LivePool::create(new_pool(tops(&disks), 12), surroundings(1)).await.unwrap();
        pool.start().unwrap();
        create_volume(&pool, "vol", properties, size).await;
        fill(&pool, "vol", 0..size / MIB, 0).await;
        pool.close(PoolState::Exported).await.unwrap();
        drop(pool);
        // Each sector is wrong on one of them.
        for (index, victim) in (0u64..).zip(victims) {
            garble(&disks.path().join(victim), |sector| sector % victims.len() as u64 == index);
        }
        let pool = disks.import("tank", 2).await;
        pool.start().unwrap();
        let scan = scrubbed(&pool).await;
        let counted: u64 = pool.pool().vdevs().leaves().map(|leaf| leaf.errors.checksum()).sum();
        assert!(scan.processed > 0 && scan.errors == 0 && counted > 0, "{scan:?}, {counted} errors");
        assert!(scan.issued >= size && scan.examined >= scan.issued, "{scan:?}");
        pool.clear(None).await.unwrap();
        let again = scrubbed(&pool).await;
        let counted: u64 = pool.pool().vdevs().leaves().map(|leaf| leaf.errors.checksum()).sum();
        assert_eq!((again.processed, again.errors, counted), (0, 0, 0), "the second finds nothing wrong");
        holds(&pool, "vol", 0..size / MIB, 0).await;
        assert!(damaged(&pool).await.is_empty());
        pool.close(PoolState::Exported).await.unwrap();
    });
    disks.judge("tank");
}

/// The blocks of the error log.
async fn damaged(pool: &Arc<LivePool>) -> Vec<u64> {
    committed(pool).await;
    let known = engine::pool::errlog::read(&Dsl::open(&pool.view()).await.unwrap()).await.unwrap();
    known.iter().map(|block| block.block.get()).collect()
}

#[test]
fn mirrors_raidz_and_draid_are_mended() {
    let raidz = |nparity| Layout::Raidz { nparity };
    let draid = Layout::Draid { nparity: 1, ndata: 2, nspares: 1 };
    for (layout, count, victims) in [
        (Layout::Mirror, 3, &["d0", "d2"][..]),
        (raidz(1), 3, &["d0"]),
        (raidz(2), 5, &["d1", "d4"]),
        (raidz(3), 6, &["d0", "d2", "d3"]),
        (draid, 4, &["d1"]),
    ] {
        mends(victims, |disks| vec![disks.top(layout, Class::Normal, "d", count)], &PLAIN, 4 * MIB);
    }
}

#[test]
fn other_copies_and_gangs_are_mended() {
    let two = |disks: &Disks| {
        ["d", "e"].map(|prefix| disks.top(Layout::Single, Class::Normal, prefix, 1)).into_iter().collect()
    };
    mends(&["d0"], two, &[("compression", "off"), ("copies", "2")], 4 * MIB);
    let properties = [("compression", "off"), ("volblocksize", "16M")];
    let raidz = |disks: &Disks| vec![disks.top(Layout::Raidz { nparity: 1 }, Class::Normal, "d", 2)];
    mends(&["d1"], raidz, &properties, 16 * MIB);
}

#[test]
fn what_no_redundancy_makes_up_for_is_listed_and_only_that() {
    let disks = Disks::new(80 * MIB);
    block_on(async {
        let new = new_pool(vec![disks.top(Layout::Single, Class::Normal, "d", 1)], 12);
        let pool = LivePool::create(new, surroundings(1)).await.unwrap();
        pool.start().unwrap();
        create_volume(&pool, "vol", &PLAIN, 4 * MIB).await;
        fill(&pool, "vol", 0..4, 0).await;
        pool.close(PoolState::Exported).await.unwrap();
        drop(pool);
        // Two blocks of 16 KiB of the volume.
        let wanted = [content(1)[32 << 10..36 << 10].to_vec(), content(3)[..4096].to_vec()];
        let path = disks.path().join("d0");
        let mut bytes = std::fs::read(&path).unwrap();
        for wanted in wanted {
            let at = bytes.chunks(4096).position(|sector| sector == wanted).unwrap();
            bytes[at * 4096 + 5] ^= 1;
        }
        std::fs::write(&path, bytes).unwrap();
        let pool = disks.import("tank", 2).await;
        pool.start().unwrap();
        let scan = scrubbed(&pool).await;
        assert_eq!((scan.processed, scan.errors), (0, 2));
        assert_eq!(damaged(&pool).await, [66, 192]);
        // What was written anew is not there any more. The error scrub looks at the rest.
        fill(&pool, "vol", 1..2, 0).await;
        pool.scrub_errors().await.unwrap();
        scanned(&pool).await;
        assert_eq!(damaged(&pool).await, [192]);
        let errors = pool.error_scrub_status().unwrap();
        assert_eq!((errors.state, errors.examined, errors.errors), (Progress::Finished, 1, 1));
        pool.close(PoolState::Exported).await.unwrap();
    });
}

#[test]
fn an_error_scrub_needs_a_log_that_says_where_blocks_are() {
    let disks = Disks::new(80 * MIB);
    block_on(async {
        let mut new = new_pool(vec![disks.top(Layout::Single, Class::Normal, "d", 1)], 12);
        new.features.retain(|feature| *feature != Feature::HeadErrlog);
        let pool = LivePool::create(new, surroundings(1)).await.unwrap();
        pool.start().unwrap();
        let refused = pool.scrub_errors().await.unwrap_err();
        assert!(refused.to_string().contains("head_errlog"), "{refused}");
        pool.close(PoolState::Exported).await.unwrap();
    });
}

/// Batches of a few blocks.
pub fn small_batches() -> ScanLimits {
    ScanLimits { memory_bytes: 8 << 10, ..ScanLimits::default() }
}

#[test]
fn a_scrub_goes_on_after_pauses_exports_and_crashes() {
    let disks = Disks::new(128 * MIB);
    block_on(async {
        let new = new_pool(vec![disks.top(Layout::Mirror, Class::Normal, "d", 2)], 12);
        let pool = LivePool::create(new, surroundings(1)).await.unwrap();
        pool.start().unwrap();
        create_volume(&pool, "vol", &PLAIN, 8 * MIB).await;
        fill(&pool, "vol", 0..8, 0).await;
        pool.close(PoolState::Exported).await.unwrap();
        drop(pool);
        garble(&disks.path().join("d1"), |_| true);
        let mut start_time = 0;
        for round in 0..6 {
            let pool = disks.import("tank", 2 + round).await;
            pool.set_scan_limits(small_batches());
            pool.start().unwrap();
            if round == 0 {
                pool.scrub(ScrubRange::default()).await.unwrap();
                start_time = pool.scan_status().unwrap().start_time;
                assert!(pool.scrub(ScrubRange::default()).await.is_err(), "it is under way");
            }
            for _ in 0..3 {
                committed(&pool).await;
            }
            let scan = pool.scan_status().unwrap();
            if scan.state == Progress::Running && scan.paused_time.is_some() {
                pool.scrub(ScrubRange::default()).await.unwrap();
            } else if scan.state == Progress::Running {
                pool.pause_scrub().await.unwrap();
                let paused = pool.scan_status().unwrap();
                assert!(pool.pause_scrub().await.is_err() && paused.paused_time.is_some());
                committed(&pool).await;
                assert_eq!(pool.scan_status().unwrap().examined, paused.examined);
                if round % 2 == 0 {
                    pool.scrub(ScrubRange::default()).await.unwrap();
                }
            }
            if round % 3 == 0 {
                pool.abandon("a crash");
                assert!(pool.close(PoolState::Exported).await.is_err());
            } else {
                pool.close(PoolState::Exported).await.unwrap();
            }
        }
        let pool = disks.import("tank", 9).await;
        pool.start().unwrap();
        let scan = pool.scan_status().unwrap();
        if scan.state == Progress::Running && scan.paused_time.is_some() {
            pool.scrub(ScrubRange::default()).await.unwrap();
        }
        let scan = scanned(&pool).await;
        assert_eq!((scan.state, scan.start_time, scan.errors), (Progress::Finished, start_time, 0));
        assert!(scan.examined <= scan.to_examine + MIB, "each block is met once: {scan:?}");
        assert_eq!(scrubbed(&pool).await.processed, 0);
        pool.close(PoolState::Exported).await.unwrap();
    });
    disks.judge("tank");
}

#[test]
fn a_paused_scrub_shows_what_is_done_and_reads_only_the_rest() {
    block_on(async {
        let (devices, leaves) = simulated(2);
        let top = NewTop { layout: Layout::Mirror, class: Class::Normal, leaves };
        let pool = LivePool::create(new_pool(vec![top], 12), surroundings(1)).await.unwrap();
        pool.start().unwrap();
        create_volume(&pool, "vol", &PLAIN, 24 * MIB).await;
        fill(&pool, "vol", 0..24, 0).await;
        // Windows of 64 KiB, each of which takes some time, in a single batch.
        pool.set_scan_limits(ScanLimits { reading_bytes: 256 << 10, ..ScanLimits::default() });
        let slow = |delay_ns| Fault::Delay { range: 0..u64::MAX, delay_ns };
        devices.iter().for_each(|device| device.inject(slow(20_000_000)));
        pool.scrub(ScrubRange::default()).await.unwrap();
        let mut seen = pool.scan_status().unwrap();
        while seen.issued < seen.to_examine / 3 {
            assert_eq!(seen.state, Progress::Running);
            std::thread::yield_now();
            seen = pool.scan_status().unwrap();
        }
        pool.pause_scrub().await.unwrap();
        devices.iter().for_each(|device| device.heal());
        for _ in 0..2 {
            let paused = pool.scan_status().unwrap();
            assert!(paused.paused_time.is_some() && paused.issued >= seen.issued, "{seen:?} {paused:?}");
            committed(&pool).await;
        }
        // Datasets go on changing: what is written now is of no interest to the scrub.
        fill(&pool, "vol", 0..4, 1).await;
        let bytes_read = || -> u64 {
            let leaves = pool.pool().vdevs().leaves();
            leaves.map(|leaf| leaf.stats.snapshot(Transfer::Scrub).bytes).sum()
        };
        let before = bytes_read();
        pool.scrub(ScrubRange::default()).await.unwrap();
        assert!(pool.scan_status().unwrap().issued >= seen.issued);
        let scan = scanned(&pool).await;
        assert_eq!((scan.state, scan.errors, scan.processed), (Progress::Finished, 0, 0));
        // Both children of the mirror are read.
        let (rest, whole) = (bytes_read() - before, 2 * scan.to_examine);
        assert!(rest < whole - whole / 4, "{rest} of {whole} bytes are read after the pause");
        // Nothing of that is left for the next one.
        let before = bytes_read();
        assert_eq!(scrubbed(&pool).await.errors, 0);
        assert!(bytes_read() - before >= 2 * 24 * MIB);
        pool.close(PoolState::Exported).await.unwrap();
    });
}

#[test]
fn datasets_may_change_while_a_scrub_is_under_way() {
    let disks = Disks::new(256 * MIB);
    block_on(async {
        let new = new_pool(vec![disks.top(Layout::Mirror, Class::Normal, "d", 2)], 12);
        let pool = LivePool::create(new, surroundings(1)).await.unwrap();
        pool.start().unwrap();
        let change = |change: Change| {
            let pool = &pool;
            async move { make_change(pool, &change).await.unwrap() }
        };
        let snapshot = |of: &str, name: &str| Change::Snapshot { of: of.into(), to: format!("{of}@{name}") };
        create_volume(&pool, "a", &PLAIN, 8 * MIB).await;
        create_volume(&pool, "z", &PLAIN, 8 * MIB).await;
        for round in 0..4 {
            fill(&pool, "a", round..round + 2, round).await;
            fill(&pool, "z", round..round + 2, round + 50).await;
            change(snapshot("a", &format!("s{round}"))).await;
            change(snapshot("z", &format!("s{round}"))).await;
        }
        change(Change::Clone { from: "a@s2".into(), to: "c".into() }).await;
        fill(&pool, "c", 6..8, 200).await;
        pool.close(PoolState::Exported).await.unwrap();
        drop(pool);
        garble(&disks.path().join("d0"), |_| true);
        let pool = disks.import("tank", 2).await;
        pool.set_scan_limits(small_batches());
        pool.start().unwrap();
        pool.scrub(ScrubRange::default()).await.unwrap();
        let change = |change: Change| {
            let pool = &pool;
            async move { make_change(pool, &change).await.unwrap() }
        };
        change(snapshot("a", "new")).await;
        change(Change::DestroySnapshot("a@s1".into())).await;
        change(Change::Promote("c".into())).await;
        change(Change::DestroySnapshot("z@s0".into())).await;
        fill(&pool, "z", 0..1, 77).await;
        change(Change::Rollback { of: "z".into(), to: "z@s3".into() }).await;
        change(Change::DestroySnapshot("z@s2".into())).await;
        change(Change::DestroySnapshot("a@s3".into())).await;
        change(Change::DestroySnapshot("a@new".into())).await;
        change(Change::DestroyHead("a".into())).await;
        change(snapshot("z", "last")).await;
        let scan = scanned(&pool).await;
        assert_eq!((scan.state, scan.errors), (Progress::Finished, 0), "{scan:?}");
        assert!(damaged(&pool).await.is_empty());
        // What is there was mended, all of it.
        let again = scrubbed(&pool).await;
        assert_eq!((again.processed, again.errors), (0, 0), "{again:?}");
        let dsl = Dsl::open(&pool.view()).await.unwrap();
        assert!(dsl.find("tank/c@s2").await.is_ok());
        drop(dsl);
        pool.close(PoolState::Exported).await.unwrap();
    });
    disks.judge("tank");
}

#[test]
fn pools_of_openzfs_are_scrubbed_and_resilvered() {
    // Damaged on one side of a mirror; without a device of a raidz; moved, expanded, gang blocks, classes.
    for name in ["corrupt", "degraded", "removed", "expanded", "gang24", "clones24", "dr2", "rz3"] {
        let Some(disks) = Disks::of_golden(name) else { continue };
        block_on(async {
            let pool = disks.import(name, 1).await;
            pool.start().unwrap();
            while pool.looks_for_resilver() {
                std::thread::yield_now();
            }
            let found = pool.scan_status();
            if found.is_some_and(|scan| scan.state == Progress::Running) {
                let ended = scanned(&pool).await;
                assert_eq!((ended.state, ended.errors), (Progress::Finished, 0), "{name}: {ended:?}");
            }
            let scan = scrubbed(&pool).await;
            assert_eq!(scan.errors, 0, "{name}: {scan:?}");
            assert_eq!(scan.processed > 0, name == "corrupt", "{name}: {scan:?}");
            assert_eq!(scrubbed(&pool).await.processed, 0, "{name}");
            let counted = pool.pool().vdevs().leaves().map(|leaf| leaf.errors.checksum()).sum::<u64>();
            assert_eq!(counted > 0, name == "corrupt", "{name}: {counted} errors");
            pool.close(PoolState::Exported).await.unwrap();
        });
        // The zdb that is installed does not know what is new in 2.4.
        if !name.ends_with("24") {
            disks.judge(name);
        }
    }
}
