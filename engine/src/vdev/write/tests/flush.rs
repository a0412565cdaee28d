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
    assert_eq!(block_on(tree.flush()).unwrap_err().len(), 2);
}
