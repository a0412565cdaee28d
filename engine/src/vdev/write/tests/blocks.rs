//! Written blocks are read back; failures are noted and judged.

use super::*;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]
    #[test]
    fn what_is_written_is_read_back_without_any_children_that_may_be_missing(
        sectors in proptest::collection::vec(1usize..80, 1..12), uneven in 0usize..512,
    ) {
        let mut sizes: Vec<usize> = sectors.iter().map(|sectors| sectors << ASHIFT).collect();
        // The last sector need not be whole.
        sizes.iter_mut().step_by(3).for_each(|size| *size -= uneven);
        for (top, may_fail) in every_kind() {
            let root = parsed(top);
            let disks = Disks::of(&root.children[0]);
            let all = tree(&root, &disks.without(&[]));
            let blocks = blocks(&all, &sizes);
            prop_assert!(write(&all, &blocks).iter().all(Result::is_ok));
            prop_assert!(all.leaves().all(|leaf| leaf.missing_txgs.is_empty()));
            for missing in losses(&root.children[0], may_fail) {
                assert_reads(&tree(&root, &disks.without(&missing)), &blocks);
            }
        }
    }
}

#[test]
fn nothing_is_written_outside_of_the_blocks() {
    for (top, _) in every_kind() {
        let root = parsed(top);
        let disks = Disks::of(&root.children[0]);
        let all = tree(&root, &disks.without(&[]));
        let blocks = blocks(&all, &[512, 1024, 7 * 512, 512, 40 * 512]);
        // Every second block is written by itself; those between must stay as they are.
        assert!(write(&all, &blocks).iter().all(Result::is_ok));
        let again: Vec<_> = blocks.iter().step_by(2).map(|(at, bytes)| (*at, vec![7; bytes.len()])).collect();
        assert!(write(&all, &again).iter().all(Result::is_ok));
        assert_reads(&all, &again);
        for block in blocks.iter().skip(1).step_by(2) {
            assert_reads(&all, std::slice::from_ref(block));
        }
        for disk in disks.memory.values() {
            let content = disk.content();
            assert!(content[..LABEL_START_BYTES as usize].iter().all(|byte| *byte == 0xee));
            assert!(content[content.len() - LABEL_END_BYTES as usize..].iter().all(|byte| *byte == 0xee));
        }
    }
}

#[test]
fn a_child_that_fails_is_noted_and_counted_and_the_block_is_written() {
    for (top, may_fail) in every_kind() {
        let root = parsed(top);
        let disks = Disks::of(&root.children[0]);
        let tree = tree(&root, &disks.without(&[]));
        let blocks = blocks(&tree, &[40 * 512, 80 * 512]);
        // In a draid not every child has a part.
        assert!(write(&tree, &blocks).iter().all(Result::is_ok));
        let victim = *disks.memory.keys().find(|guid| disks.is_touched(**guid)).expect("one");
        disks.faulty[&victim].inject(Fault::WriteError(0..u64::MAX));
        let written = write(&tree, &blocks).iter().all(Result::is_ok);
        assert_eq!(written, may_fail > 0, "{}", tree.tops[0].name);
        let failed = tree.find(victim).expect("there");
        assert!(failed.errors.write() > 0);
        // No leaf misses a block that was not written at all: it will be written again, or is never
        // committed.
        assert_eq!(failed.is_stale(TXG.get()), written);
        assert!(!failed.is_stale(TXG.get() + 1));
        let others = tree.leaves().filter(|leaf| leaf.guid != victim);
        // A distributed spare may have had its space there.
        let others = others.filter(|leaf| !matches!(leaf.kind, Kind::DraidSpare { .. }));
        assert!(others.into_iter().all(|leaf| leaf.missing_txgs.is_empty() && leaf.errors.write() == 0));
        if written {
            assert_reads(&tree, &blocks);
            block_on(tree.flush()).expect("flushes");
        } else {
            assert!(write(&tree, &blocks)[0].as_ref().unwrap_err()[0].vdev == failed.name);
        }
    }
}

#[test]
fn with_more_failures_than_parity_a_block_is_not_written() {
    for (top, may_fail) in every_kind().into_iter().filter(|(top, _)| top.contains("children")) {
        let root = parsed(top);
        let top = &root.children[0];
        if top.children.iter().any(|child| child.kind.type_name() == "spare") {
            // Its data are also in space of the others.
            continue;
        }
        let disks = Disks::of(top);
        let tree = tree(&root, &disks.without(&[]));
        // As wide as the vdev. In a draid not every child has a part nevertheless.
        let blocks = blocks(&tree, &[200 * 512]);
        assert!(write(&tree, &blocks)[0].is_ok());
        let leaves = top.children.iter().map(guids_of_leaves);
        let taking_part = leaves.filter(|leaves| leaves.iter().any(|leaf| disks.is_touched(*leaf)));
        let doomed: Vec<Guid> = taking_part.take(may_fail + 1).flatten().collect();
        doomed.iter().for_each(|guid| disks.faulty[guid].inject(Fault::Missing));
        let written = write(&tree, &blocks);
        assert!(written[0].is_err(), "{}", tree.tops[0].name);
        assert_eq!(tree.tops[0].errors.write(), 1);
    }
}

#[test]
fn one_bad_sector_does_not_cost_the_blocks_beside_it() {
    let root = parsed(leaf(0, 1));
    let disks = Disks::of(&root.children[0]);
    let tree = tree(&root, &disks.without(&[]));
    let bad = LABEL_START_BYTES + 1024;
    disks.faulty[&Guid(1)].inject(Fault::WriteError(bad..bad + 1));
    let written = write(&tree, &blocks(&tree, &[512; 5]));
    assert_eq!(written.iter().map(Result::is_ok).collect::<Vec<_>>(), [true, true, false, true, true]);
    assert_eq!(tree.tops[0].errors.write(), 1);
}

#[test]
fn leaves_that_are_away_are_noted_without_being_asked() {
    let mut offline = leaves(3);
    offline[2].push("offline", 1u64);
    let root = parsed(config("mirror", 0, 99, offline));
    let disks = Disks::of(&root.children[0]);
    let tree = tree(&root, &disks.without(&[Guid(1)]));
    assert_eq!(tree.find(Guid(3)).map(|leaf| leaf.status().state), Some(State::Offline));
    assert!(write(&tree, &blocks(&tree, &[4096])).iter().all(Result::is_ok));
    let missed = |guid| tree.find(Guid(guid)).expect("there").missing_txgs.ranges();
    assert_eq!(
        [1, 2, 3].map(|guid| missed(guid).ranges().to_vec()),
        [vec![(100, 101)], vec![], vec![(100, 101)]]
    );
    assert!(tree.leaves().all(|leaf| leaf.errors.write() == 0));
    assert!(disks.memory[&Guid(3)].content().iter().all(|byte| *byte == 0xee));
}

#[test]
fn writes_never_reach_a_label() {
    let root = parsed(leaf(0, 1));
    let disks = Disks::of(&root.children[0]);
    let tree = tree(&root, &disks.without(&[]));
    let bytes = vec![1; 1024];
    assert!(write(&tree, &[(SPACE_BYTES - 1024, bytes.clone())])[0].is_ok());
    for offset in [SPACE_BYTES - 512, SPACE_BYTES, u64::MAX - 511] {
        assert!(write(&tree, &[(offset, bytes.clone())])[0].is_err());
    }
    let unknown =
        block_on(tree.write(TXG, vec![Piece { top: 1, offset_bytes: 0, data: IoBuf::zeroed(512).into() }]));
    assert!(unknown[0].is_err());
}

#[test]
fn neighbours_become_one_transfer_also_across_skip_sectors() {
    let root = parsed(raidz(1, leaves(3), &[]));
    let (disks, tree) = counted(&root, 3);
    // Three sectors and one to skip each, side by side: every child gets one run.
    let blocks = blocks(&tree, &[512 * 3; 30]);
    assert!(write(&tree, &blocks).iter().all(Result::is_ok));
    assert_reads(&tree, &blocks);
    for disk in &disks {
        assert_eq!(disk.writes.load(Relaxed), 1);
    }
}

#[test]
fn an_added_vdev_is_written_and_read_and_the_others_stay_where_they_are() {
    let root = parsed(leaf(0, 1));
    let disks = Disks::of(&root.children[0]);
    let tree = tree(&root, &disks.without(&[]));
    let first: *const Vdev = &tree.tops[0];
    let mut added = config("mirror", 1, 98, leaves(2));
    added.push("metaslab_array", 0u64);
    let added = parsed(added).children.remove(0);
    let more = Disks::of(&added);
    assert_eq!(tree.add_top(&added, &more.without(&[])).expect("is the next"), 1);
    assert!(tree.add_top(&added, &more.without(&[])).is_err(), "its number is taken");
    assert!(std::ptr::eq(first, &raw const tree.tops[0]));
    assert_eq!(tree.tops.iter().rev().map(|top| top.guid.get()).collect::<Vec<_>>(), [98, 1]);
    let piece = Piece { top: 1, offset_bytes: 0, data: IoBuf::from(&[5; 512][..]).into() };
    assert!(block_on(tree.write(TXG, vec![piece]))[0].is_ok());
    let read = block_on(tree.tops[1].read(Request::new(&tree, 0, 512, TXG.get(), None))).expect("reads");
    assert_eq!(*read, [5; 512]);
}
