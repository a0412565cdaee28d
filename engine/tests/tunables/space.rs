//! Space: how it is divided, chosen, remembered, initialized and trimmed.

use std::os::unix::fs::FileExt;

use device::block_on;
use engine::jobs::JobState;
use engine::pool::live::{Layout, Sweep, properties};
use engine::tunables;
use engine::vdev::Class;
use engine::vdev::stats::Transfer;

use crate::bed::{Bed, MIB, Turn};
use crate::support::{Disks, new_pool};

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
fn a_large_vdev_has_no_more_metaslabs_than_is_said() {
    let turn = Turn::take();
    let shift = || {
        let bed = Bed::on(16384 * MIB);
        let config = bed.pool.view().config().vdev_tree.clone().unwrap();
        bed.end();
        config.children[0].metaslab_shift.unwrap()
    };
    assert_eq!(shift(), 29);
    turn.set(&tunables::ZFS_VDEV_DEFAULT_MS_COUNT, 16);
    assert_eq!(shift(), 30, "16 of 1 GiB instead of 32");
}

/// Bytes that two vdevs got of 32 MiB in small blocks, the smaller part first.
fn bytes_of_vdevs() -> [u64; 2] {
    let disks = Disks::new(256 * MIB);
    let tops = ["d", "e"].map(|prefix| disks.top(Layout::Single, Class::Normal, prefix, 1));
    let new = new_pool(tops.into(), 12);
    let bed = Bed::of(disks, new);
    let written = |index: usize| bed.leaf(index).stats.snapshot(Transfer::Write).bytes;
    let before = [0, 1].map(written);
    for at in 0..32 {
        bed.write(at * MIB, MIB);
    }
    bed.commit();
    let mut got = [written(0) - before[0], written(1) - before[1]];
    got.sort_unstable();
    bed.end();
    got
}

#[test]
fn a_vdev_has_its_turn_for_as_many_bytes_as_is_said() {
    let turn = Turn::take();
    let [less, more] = bytes_of_vdevs();
    assert!(less > more / 2, "{less} {more}");
    turn.set(&tunables::METASLAB_ALIQUOT, 1 << 30);
    let [less, more] = bytes_of_vdevs();
    assert!(less < more / 4, "{less} {more}");
}

#[test]
fn maps_of_metaslabs_leave_the_memory_after_as_many_groups_as_is_said() {
    let (turn, bed) = (Turn::take(), Bed::new());
    let overwrite = |bed: &Bed| {
        (0..48).for_each(|at| bed.write(at * MIB, MIB));
        bed.commit();
    };
    overwrite(&bed);
    // The maps are on disk afterwards.
    let bed = bed.again();
    overwrite(&bed);
    let loaded = || {
        for group in 0..8 {
            bed.write(group * 8192, 8192);
            bed.commit();
        }
        bed.pool.allocator().loaded_metaslabs().0
    };
    let usual = loaded();
    turn.set(&tunables::METASLAB_UNLOAD_DELAY, 0);
    let fewer = loaded();
    assert!(fewer < usual, "{usual} {fewer}");
    bed.end();
}

/// Bytes that devices were told to discard.
fn discarded(bed: &Bed) -> u64 {
    bed.leaf(0).stats.snapshot(Transfer::Discard).bytes
}

#[test]
fn short_free_ranges_are_not_trimmed() {
    let (turn, bed) = (Turn::take(), Bed::new());
    let trim = || {
        let before = discarded(&bed);
        block_on(bed.pool.sweep(Sweep::Trim, &[bed.leaf(0).guid], 0)).unwrap();
        block_on(bed.pool.wait_for_jobs(|_, state| state == JobState::Active));
        discarded(&bed) - before
    };
    assert!(trim() > 100 * MIB);
    turn.set(&tunables::ZFS_TRIM_EXTENT_BYTES_MIN, 1 << 30);
    assert_eq!(trim(), 0);
    bed.end();
}

#[test]
fn what_becomes_free_is_trimmed_once_in_so_many_groups() {
    let (turn, bed) = (Turn::take(), Bed::new());
    block_on(bed.pool.change(|s| async move { properties::set(&s, "autotrim", "on").await })).unwrap();
    let trimmed = || {
        bed.write(0, 16 * MIB);
        bed.commit();
        let before = discarded(&bed);
        block_on(bed.volume.trim(0, 16 * MIB, false)).unwrap();
        (0..6).for_each(|_| bed.commit());
        discarded(&bed) - before
    };
    turn.set(&tunables::ZFS_TRIM_TXG_BATCH, 10_000);
    assert_eq!(trimmed(), 0);
    turn.set(&tunables::ZFS_TRIM_TXG_BATCH, 1);
    assert!(trimmed() >= 15 * MIB);
    bed.end();
}
