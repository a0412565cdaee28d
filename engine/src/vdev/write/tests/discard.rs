//! Which ranges are discarded, and which are counted.

use super::*;

#[test]
fn what_is_discarded_is_all_of_a_block_and_nothing_of_its_neighbours() {
    // Draid vdevs take no discards.
    for (top, _) in every_kind().into_iter().take(8) {
        let root = parsed(top);
        let disks = Disks::of(&root.children[0]);
        let tree = tree(&root, &disks.without(&[]));
        let blocks = blocks(&tree, &[512, 1024, 7 * 512, 512, 40 * 512, 9 * 512, 512 * 33]);
        assert!(write(&tree, &blocks).iter().all(Result::is_ok));
        let used = |disks: &Disks| -> usize {
            let contents = disks.memory.values().map(|disk| disk.content());
            contents.map(|bytes| bytes.iter().filter(|byte| **byte == 0).count()).sum()
        };
        let zeroes = used(&disks);
        let unused: Vec<Unused> = blocks
            .windows(2)
            .step_by(2)
            .map(|pair| Unused { top: 0, offset_bytes: pair[0].0, size_bytes: pair[1].0 - pair[0].0 })
            .collect();
        let discarded = block_on(tree.discard(&unused, &|_| true));
        let copies = match tree.tops[0].kind {
            Kind::Mirror => tree.tops[0].children.len() as u64,
            _ => 1,
        };
        let allocated: u64 = unused.iter().map(|unused| unused.size_bytes).sum();
        // A child that is being replaced has two copies of its data.
        assert!(discarded >= copies * allocated && used(&disks) > zeroes, "{}", tree.tops[0].name);
        let kept: Vec<_> = blocks.iter().skip(1).step_by(2).cloned().collect();
        assert_reads(&tree, &kept);
        let replaced = tree.tops[0].walk().any(|vdev| matches!(vdev.kind, Kind::Replacing));
        assert!(replaced || discarded == copies * allocated, "{}", tree.tops[0].name);
    }
}

#[test]
fn a_device_that_cannot_discard_is_asked_once() {
    let root = parsed(leaf(0, 1));
    let disks = Disks::of(&root.children[0]);
    let tree = tree(&root, &disks.without(&[]));
    let unused = [Unused { top: 0, offset_bytes: SPACE_BYTES - 512, size_bytes: 1024 }];
    assert_eq!(block_on(tree.discard(&unused, &|_| true)), 0, "labels are never discarded");
    let unused = [0, 512, 4096].map(|offset_bytes| Unused { top: 0, offset_bytes, size_bytes: 512 });
    assert_eq!(block_on(tree.discard(&unused, &|_| true)), 3 * 512);
    assert_eq!(tree.tops[0].stats.snapshot(Transfer::Discard).operations, 2, "neighbours go together");
    tree.tops[0].cannot_discard.store(true, Relaxed);
    assert_eq!(block_on(tree.discard(&unused, &|_| true)), 0);
}

#[test]
fn transfers_are_counted_where_they_happen() {
    let root = parsed(config("mirror", 0, 99, leaves(2)));
    let disks = Disks::of(&root.children[0]);
    let tree = tree(&root, &disks.without(&[]));
    let blocks = blocks(&tree, &[4096, 512]);
    write(&tree, &blocks);
    block_on(tree.flush()).expect("flushes");
    block_on(tree.tops[0].read(Request::new(&tree, 0, 4096, TXG.get(), None))).expect("reads");
    let of = |vdev: &Vdev, transfer| {
        let counted = vdev.stats.snapshot(transfer);
        (counted.operations, counted.bytes)
    };
    let top = &tree.tops[0];
    assert_eq!((of(top, Transfer::Write), of(top, Transfer::Read)), ((2, 4608), (1, 4096)));
    for leaf in &top.children {
        assert_eq!((of(leaf, Transfer::Write), of(leaf, Transfer::Flush)), ((1, 4608), (1, 0)));
    }
    let reads: u64 = top.children.iter().map(|leaf| of(leaf, Transfer::Read).0).sum();
    assert_eq!(reads, 1);
}
