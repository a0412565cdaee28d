//! Transaction groups: when they are committed, what they free, how many are remembered.

use std::time::Duration;

use device::block_on;
use engine::pool::live::{Layout, LivePool};
use engine::tunables;
use engine::vdev::Class;
use testkit::tree::Change;

use crate::bed::{Bed, MIB, Turn};
use crate::support::{Disks, make_change, new_pool};

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

/// Groups that are committed until no further one follows at once, as one with more to free does.
fn groups_that_follow(pool: &LivePool) -> u64 {
    let synced = || pool.view().uberblock().txg.get();
    let before = synced();
    let mut last = before - 1;
    while last != synced() {
        last = synced();
        std::thread::sleep(Duration::from_millis(400));
    }
    last - before
}

/// Groups that are committed until 2,048 blocks of a destroyed volume are free.
fn groups_to_free() -> u64 {
    let bed = Bed::new();
    for at in 0..16 {
        bed.write(at * MIB, MIB);
    }
    bed.commit();
    let Bed { disks, pool, volume } = bed;
    drop(volume);
    block_on(make_change(&pool, &Change::DestroyHead("vol".into()))).unwrap();
    let groups = groups_that_follow(&pool);
    block_on(pool.close(ondisk::vdev_config::PoolState::Exported)).unwrap();
    drop(disks);
    groups
}

fn allocated(pool: &LivePool) -> u64 {
    pool.allocator().space(Class::Normal).allocated_bytes
}

/// Groups after the one that discards 2,048 deduplicated blocks of a volume, until they are free.
fn groups_to_free_deduplicated() -> u64 {
    let disks = Disks::new(256 * MIB);
    let mut new = new_pool(vec![disks.top(Layout::Single, Class::Normal, "d", 1)], 12);
    new.root_properties.push(("dedup".into(), "on".into()));
    let bed = Bed::of(disks, new);
    for block in 0..2048 {
        bed.write_word(block * 8192, block + 1);
    }
    bed.commit();
    let used = allocated(&bed.pool);
    assert!(used > 16 * MIB);
    block_on(bed.volume.trim(0, 16 * MIB, false)).unwrap();
    bed.commit();
    let groups = groups_that_follow(&bed.pool);
    // What was freed is free two groups later.
    (0..3).for_each(|_| bed.commit());
    let left = allocated(&bed.pool);
    assert!(left < used - 15 * MIB, "{used} {left}");
    bed.end();
    groups
}

#[test]
fn a_group_frees_so_many_deduplicated_blocks() {
    let turn = Turn::take();
    assert_eq!(groups_to_free_deduplicated(), 0, "few enough for one group");
    turn.set(&tunables::ZFS_MAX_ASYNC_DEDUP_FREES, 100);
    let groups = groups_to_free_deduplicated();
    assert!((9..=12).contains(&groups), "1,024 of them at once, and 100 in each group: {groups}");
}

#[test]
fn a_group_frees_so_many_blocks() {
    let turn = Turn::take();
    let usual = groups_to_free();
    turn.set(&tunables::ZFS_ASYNC_BLOCK_MAX_BLOCKS, 150);
    let small = groups_to_free();
    assert!(small >= usual + 10, "{usual} {small}");
}

#[test]
fn as_many_groups_are_remembered_as_is_said() {
    let (turn, bed) = (Turn::take(), Bed::new());
    let remembered = || {
        (0..12).for_each(|_| bed.commit());
        bed.pool.txgs().history().snapshot().len()
    };
    assert!(remembered() > 10);
    turn.set(&tunables::ZFS_TXG_HISTORY, 5);
    assert_eq!(remembered(), 5);
    turn.set(&tunables::ZFS_TXG_HISTORY, 0);
    assert_eq!(remembered(), 0);
    bed.end();
}
