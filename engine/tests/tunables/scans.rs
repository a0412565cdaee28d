//! Scrubs and resilvers.

use std::os::unix::fs::FileExt;
use std::time::Duration;

use device::block_on;
use engine::dsl::{Dsl, history};
use engine::inject::{ALWAYS, Fault, Operation};
use engine::pool::live::{JobKey, Layout, ScrubRange, TakeOffline};
use engine::scan::ScanLimits;
use engine::tunables;
use engine::vdev::Class;

use crate::bed::{Bed, MIB, Turn, count};
use crate::support::{Disks, new_pool};

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
    // Each of these blocks has an indirect block of its own.
    (0..8).for_each(|at| bed.write(at * 8 * MIB, 8192));
    bed.commit();
    let usual = bed.groups_of_a_scrub();
    // There is no room for pointers, so each indirect block is a batch.
    turn.set(&tunables::ZFS_SCAN_MEM_LIM_FACT, u64::from(u32::MAX));
    let small = bed.groups_of_a_scrub();
    assert!(small > usual + 4, "{usual} {small}");
    turn.set(&tunables::ZFS_SCAN_MEM_LIM_FACT, 20);
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

/// Resilvers that begin, and whether one was deferred, when a second device comes back while the first one
/// gets what it missed.
fn resilvers() -> (usize, bool) {
    let disks = Disks::new(128 * MIB);
    let new = new_pool(vec![disks.top(Layout::Mirror, Class::Normal, "d", 3)], 12);
    let bed = Bed::of(disks, new);
    for index in [1, 2] {
        block_on(bed.pool.offline(bed.leaf(index).guid, TakeOffline::Persistently)).unwrap();
        bed.write(index as u64 * 8 * MIB, 4 * MIB);
        bed.commit();
    }
    // The only device that has all is so slow that nothing ends by itself.
    let (leaf, latency) = (bed.leaf(0).guid.get(), Duration::from_secs(1));
    bed.pool.inject(Fault::Delay { leaf, latency, lanes: 1, operation: Operation::Read }, ALWAYS).unwrap();
    let events = bed.events();
    for index in [1, 2] {
        block_on(bed.pool.online(bed.leaf(index).guid)).unwrap();
    }
    let starts = count(&events, "sysevent.fs.zfs.resilver_start");
    bed.pool.clear_injections(None);
    let lacks = || bed.pool.pool().vdevs().leaves().any(|leaf| !leaf.missing_txgs.is_empty());
    while lacks() {
        bed.wait_for_scan(Duration::from_secs(1));
        std::thread::sleep(Duration::from_millis(5));
    }
    let history =
        block_on(async { history::read(&Dsl::open(&bed.pool.view()).await.unwrap()).await.unwrap() });
    let is_deferred = format!("{history:?}").contains("starting deferred resilver");
    bed.end();
    (starts, is_deferred)
}

#[test]
fn a_resilver_begins_anew_or_later_as_is_said() {
    let turn = Turn::take();
    assert_eq!(resilvers(), (2, true), "it had just begun");
    turn.set(&tunables::ZFS_RESILVER_DEFER_PERCENT, 0);
    assert_eq!(resilvers(), (1, true), "the second one has to wait");
    turn.set(&tunables::ZFS_RESILVER_DISABLE_DEFER, 1);
    assert_eq!(resilvers(), (2, false));
}

#[test]
fn an_error_scrub_reads_as_many_blocks_in_a_step_as_is_said() {
    const DAMAGED: u64 = 12;
    let (turn, bed) = (Turn::take(), Bed::new());
    for block in 0..DAMAGED {
        bed.write_word(block * 8192, 0x5eed_0000 + block);
    }
    let bed = bed.damaged(|file, bytes| {
        for block in 0..DAMAGED {
            let word = (0x5eed_0000 + block).to_le_bytes().repeat(512);
            let at = bytes.chunks(4096).position(|sector| sector == word).unwrap() as u64;
            file.write_all_at(&[1; 512], at * 4096).unwrap();
        }
    });
    bed.scrub();
    let groups = || {
        let before = bed.synced().get();
        block_on(bed.pool.scrub_errors()).unwrap();
        block_on(bed.pool.wait_for_jobs(|key, state| {
            *key == JobKey::ErrorScrub && state == engine::jobs::JobState::Active
        }));
        bed.synced().get() - before
    };
    let usual = groups();
    turn.set(&tunables::ZFS_SCRUB_ERROR_BLOCKS_PER_TXG, 1);
    let single = groups();
    // A group each for the blocks, and as many more as the scrub takes to begin and to end.
    assert!(usual < DAMAGED && single >= DAMAGED, "{usual} {single}");
    bed.end();
}
