//! Other writes give way on leaves with stable writes.

use super::*;

/// The number of transfers of a batch of 1 MiB on each device, and how many of them were in progress at once.
fn transfers(disks: &[Arc<Counting>], tree: &VdevTree) -> Vec<(usize, usize)> {
    let blocks = blocks(tree, &[64 << 10; 16]);
    disks.iter().for_each(|disk| {
        disk.writes.store(0, Relaxed);
        disk.most_under_way.store(0, Relaxed);
    });
    assert!(write(tree, &blocks).into_iter().all(|result| result.is_ok()));
    assert_reads(tree, &blocks);
    disks.iter().map(|disk| (disk.writes.load(Relaxed), disk.most_under_way.load(Relaxed))).collect()
}

fn write_durably(tree: &VdevTree) {
    let data = IoBuf::zeroed(512).into();
    block_on(tree.write_durably(TXG, Piece { top: 0, offset_bytes: 1 << 20, data })).expect("is written");
}

#[test]
fn transfers_beside_stable_writes_are_small_and_one_at_a_time_for_a_while() {
    let root = parsed(leaf(0, 1));
    for has_durable_writes in [false, true] {
        let (disks, tree) = counted(&root, 1);
        disks[0].has_durable_writes.store(has_durable_writes, Relaxed);
        assert_eq!(transfers(&disks, &tree), [(1, 1)], "nobody asked for stable writes");
        write_durably(&tree);
        // Sixteen transfers, of a quarter of the batch each.
        for _ in 0..4 {
            assert_eq!(transfers(&disks, &tree), [(4, 1)]);
        }
        assert_eq!(transfers(&disks, &tree), [(1, 1)], "nobody asked for a while");
    }
}

#[test]
fn what_is_left_of_a_batch_when_no_stable_write_came_is_given_together() {
    let (disks, tree) = counted(&parsed(leaf(0, 1)), 1);
    block_on(tree.flush_tops(&[0])).expect("nothing to do, but asked for");
    for _ in 0..3 {
        assert_eq!(transfers(&disks, &tree), [(4, 1)]);
    }
    // Four of sixteen are left, and this batch has eight places.
    let scattered: Vec<_> = blocks(&tree, &[32 << 10; 16]).into_iter().step_by(2).collect();
    disks[0].writes.store(0, Relaxed);
    disks[0].most_under_way.store(0, Relaxed);
    assert!(write(&tree, &scattered).into_iter().all(|result| result.is_ok()));
    assert_eq!((disks[0].writes.load(Relaxed), disks[0].most_under_way.load(Relaxed)), (8, 4));
}

#[test]
fn only_the_devices_that_stable_writes_go_to_give_way() {
    let root = parsed(config("mirror", 0, 99, leaves(2)));
    let (disks, tree) = counted(&root, 2);
    tree.find(Guid(2)).expect("there").stable.asked();
    assert_eq!(transfers(&disks, &tree), [(1, 1), (4, 1)]);
}

#[test]
fn stable_writes_are_counted_among_all_writes_and_by_themselves() {
    let (_, tree) = counted(&parsed(leaf(0, 1)), 1);
    write_durably(&tree);
    let blocks = blocks(&tree, &[4096]);
    assert!(write(&tree, &blocks).into_iter().all(|result| result.is_ok()));
    let of = |transfer| tree.tops[0].stats.snapshot(transfer).bytes;
    assert_eq!((of(Transfer::Write), of(Transfer::SyncWrite)), (4096 + 512, 512));
}
