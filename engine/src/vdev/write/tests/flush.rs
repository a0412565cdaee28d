//! Who is flushed, and what a flush that fails means.

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
    // An intent log asks first, then the sync.
    assert!(block_on(tree.flush_tops(&[0])).is_err());
    disks[0].flushes_fail.store(false, Relaxed);
    assert!(block_on(tree.flush()).is_err());
    assert!(block_on(tree.flush()).is_err());
    // Until it is there again.
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
    // Whoever else flushed them meanwhile.
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
