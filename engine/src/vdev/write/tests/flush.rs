//! Which leaves are flushed, and the consequences of a failed flush.

use super::*;

#[test]
fn only_leaves_that_were_written_to_are_flushed() {
    let root = parsed(config("mirror", 0, 99, leaves(2)));
    let (disks, tree) = counted(&root, 2);
    let flushes = || disks.iter().map(|disk| disk.flushes.load(Relaxed)).collect::<Vec<_>>();
    block_on(tree.flush()).expect("nothing to do");
    assert_eq!(flushes(), [0, 0]);
    write(&tree, &blocks(&tree, &[4096]));
    block_on(tree.flush()).expect("flushes");
    block_on(tree.flush()).expect("nothing to do");
    assert_eq!(flushes(), [1, 1]);
    block_on(tree.write_label(Guid(2), true, &Nvlist::new())).expect("writes");
    block_on(tree.flush_tops(&[5])).expect("nothing to do");
    block_on(tree.flush_tops(&[0])).expect("flushes");
    assert_eq!(flushes(), [1, 2]);
}

#[test]
fn only_devices_that_cannot_write_durably_are_flushed_after_it() {
    let root = parsed(config("mirror", 0, 99, leaves(2)));
    let (disks, tree) = counted(&root, 2);
    let flushes = || disks.iter().map(|disk| disk.flushes.load(Relaxed)).collect::<Vec<_>>();
    let write = || {
        block_on(
            tree.write_durably(Txg(5), Piece { top: 0, offset_bytes: 0, data: IoBuf::zeroed(512).into() }),
        )
    };
    disks[0].has_durable_writes.store(true, Relaxed);
    write().expect("is written");
    assert_eq!(flushes(), [0, 1]);
    disks[1].flushes_fail.store(true, Relaxed);
    write().expect("the other child has it");
    let missed = |guid| tree.find(Guid(guid)).expect("there").missing_txgs.ranges().ranges().to_vec();
    assert_eq!((missed(1), missed(2)), (vec![], vec![(5, 6)]));
    block_on(tree.flush()).expect("nothing to do");
    assert_eq!(flushes(), [0, 2]);
}

#[test]
fn a_flush_that_fails_is_a_failure_of_all_that_was_written_since_the_last() {
    let root = parsed(config("mirror", 0, 99, leaves(2)));
    let (disks, tree) = counted(&root, 2);
    let piece = || vec![Piece { top: 0, offset_bytes: 0, data: IoBuf::zeroed(512).into() }];
    block_on(tree.write(Txg(4), piece()));
    block_on(tree.flush()).expect("flushes");
    disks[0].flushes_fail.store(true, Relaxed);
    block_on(tree.write(Txg(5), piece()));
    block_on(tree.write(Txg(6), piece()));
    block_on(tree.flush()).expect("the other child has it");
    let leaf = tree.find(Guid(1)).expect("there");
    assert_eq!((leaf.missing_txgs.ranges().ranges(), leaf.errors.write()), (&[(5, 7)][..], 1));
    disks[1].flushes_fail.store(true, Relaxed);
    block_on(tree.write(Txg(7), piece()));
    let failed = block_on(tree.flush()).unwrap_err();
    assert_eq!(
        failed.iter().map(|attempt| &attempt.vdev[..]).collect::<Vec<_>>(),
        ["disk-0", "disk-1", "mirror-0"]
    );
}

#[test]
fn what_one_flush_lost_no_later_flush_denies() {
    let root = parsed(leaf(0, 1));
    let (disks, tree) = counted(&root, 1);
    write(&tree, &[(0, vec![1; 512])]);
    disks[0].flushes_fail.store(true, Relaxed);
    // First an intent log flushes, then the sync.
    assert!(block_on(tree.flush_tops(&[0])).is_err());
    disks[0].flushes_fail.store(false, Relaxed);
    assert!(block_on(tree.flush()).is_err());
    assert!(block_on(tree.flush()).is_err());
    // Until the data are there again.
    tree.tops[0].missing_txgs.forget(TXG, Txg(TXG.get() + 1));
    block_on(tree.flush()).expect("nothing is missing");
}

#[test]
fn an_uberblock_must_be_durable_on_one_leaf() {
    let root = parsed(config("mirror", 0, 99, leaves(2)));
    let (disks, tree) = counted(&root, 2);
    let both = [Guid(1), Guid(2)];
    disks[0].flushes_fail.store(true, Relaxed);
    block_on(tree.write_uberblock(&both, TXG, &[])).expect("writes");
    block_on(tree.flush()).expect("the second has it");
    disks[1].flushes_fail.store(true, Relaxed);
    block_on(tree.write_uberblock(&both, TXG, &[])).expect("writes");
    // Another caller may have flushed them meanwhile.
    let _ = block_on(tree.flush_tops(&[0]));
    disks.iter().for_each(|disk| disk.flushes_fail.store(false, Relaxed));
    assert!(block_on(tree.flush()).is_err());
    block_on(tree.write_uberblock(&both, TXG, &[])).expect("writes");
    block_on(tree.flush()).expect("both have it");
    // The labels of both are one round.
    disks[0].flushes_fail.store(true, Relaxed);
    for leaf in both {
        block_on(tree.write_label(leaf, false, &Nvlist::new())).expect("writes");
    }
    block_on(tree.flush()).expect("the second has it");
    block_on(tree.write_label(both[0], true, &Nvlist::new())).expect("writes");
    assert!(block_on(tree.flush()).is_err());
}

#[test]
fn what_went_away_with_a_device_is_in_doubt_until_it_is_read_back() {
    for there in [true, false] {
        let root = parsed(leaf(0, 1));
        let disks = Disks::of(&root);
        let tree = tree(&root, &disks.without(&[]));
        let write = |txg| {
            let piece = Piece { top: 0, offset_bytes: 0, data: IoBuf::zeroed(512).into() };
            block_on(tree.write(Txg(txg), vec![piece]))
        };
        assert_eq!(tree.can_be_read_back(Txg(5)), None, "nothing is in doubt");
        write(5);
        write(6);
        disks.faulty[&Guid(1)].inject(Fault::Missing);
        assert!(block_on(tree.flush_group(Txg(5))).is_err());
        disks.faulty[&Guid(1)].heal();
        assert!(block_on(tree.flush_group(Txg(5))).is_err() && block_on(tree.flush_tops(&[0])).is_err());
        assert_eq!((tree.can_be_read_back(Txg(5)), tree.has_lost()), (Some(true), false));
        let leaf = tree.find(Guid(1)).expect("there");
        if there {
            tree.believe(Txg(5));
            assert_eq!(tree.can_be_read_back(Txg(5)), None);
            block_on(tree.flush_group(Txg(5))).expect("it was read back");
            assert!(block_on(tree.flush_tops(&[0])).is_err(), "the next group is still in doubt");
            tree.believe(Txg(6));
            block_on(tree.flush()).expect("all was read back");
            assert!(leaf.missing_txgs.is_empty());
        } else {
            tree.disbelieve();
            assert!(tree.has_lost() && block_on(tree.flush()).is_err());
            assert_eq!(leaf.missing_txgs.ranges().ranges(), [(5, 7)]);
        }
    }
}

#[test]
fn of_two_devices_that_go_away_one_is_believed_at_most() {
    let root = parsed(config("mirror", 0, 99, leaves(2)));
    let disks = Disks::of(&root);
    let tree = tree(&root, &disks.without(&[]));
    write(&tree, &[(0, vec![1; 512])]);
    disks.faulty.values().for_each(|disk| disk.inject(Fault::Missing));
    assert!(block_on(tree.flush()).is_err());
    disks.faulty.values().for_each(|disk| disk.heal());
    assert!(block_on(tree.flush()).is_err());
    let missed = tree.leaves().filter(|leaf| !leaf.missing_txgs.is_empty()).count();
    assert_eq!((missed, tree.can_be_read_back(TXG)), (1, Some(true)));
    tree.believe(TXG);
    block_on(tree.flush()).expect("one has it");
}
