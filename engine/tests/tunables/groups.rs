//! Transaction groups: when they are committed, what they free, how many are remembered.

use std::time::Duration;

use device::block_on;
use engine::tunables;
use testkit::tree::Change;

use crate::bed::{Bed, MIB, Turn};
use crate::support::make_change;

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
    let synced = || pool.view().uberblock().txg.get();
    let before = synced();
    let mut last = before - 1;
    // A group with more to free is followed by the next one at once.
    while last != synced() {
        last = synced();
        std::thread::sleep(Duration::from_millis(400));
    }
    block_on(pool.close(ondisk::vdev_config::PoolState::Exported)).unwrap();
    drop(disks);
    last - before
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
