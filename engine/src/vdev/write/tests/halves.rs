//! A spare or replacing vdev inside raidz and draid: a block is read as long as its columns are anywhere, and
//! the leaf whose bytes were wrong is the one that is blamed.

use std::sync::atomic::Ordering;

use super::super::heal::{Known, Missed};
use super::*;
use crate::vdev::Vdev;
use crate::vdev::scrub::{Scratch, Window};

/// The device that a spare stands in for, and the spare. The tops have it at child 1.
const ORIGINAL: Guid = Guid(2);
const SPARE: Guid = Guid(51);

/// A top-level vdev whose child 1 is this, with as many further leaves as may be wrong.
fn with_halves(inside: Nvlist) -> Vec<(Nvlist, Vec<Guid>)> {
    let children = |count| {
        let mut children = leaves(count);
        children[1] = inside.clone();
        children
    };
    vec![
        (raidz(1, children(3), &[]), vec![Guid(1)]),
        (raidz(2, children(5), &[]), vec![Guid(1), Guid(4)]),
        (raidz(3, children(8), &[]), vec![Guid(3), Guid(5), Guid(8)]),
        (raidz(1, children(6), &[TXG.get() + 1]), vec![Guid(4)]),
        (draid(2, 3, 1, children(7)), vec![Guid(3), Guid(5)]),
    ]
}

fn every_inside() -> Vec<Nvlist> {
    let two = |kind, first, second| config(kind, 1, 50, vec![first, second]);
    vec![
        two("spare", leaf(0, ORIGINAL.get()), leaf(1, SPARE.get())),
        two("replacing", leaf(0, ORIGINAL.get()), leaf(1, SPARE.get())),
        two(
            "spare",
            config("replacing", 0, 52, vec![leaf(0, ORIGINAL.get()), leaf(1, 53)]),
            leaf(1, SPARE.get()),
        ),
    ]
}

/// Makes the sectors of a device wrong for which this is true.
fn garble(disk: &MemoryDevice, is_chosen: impl Fn(usize) -> bool) {
    let content = disk.content();
    let end = content.len() - LABEL_END_BYTES as usize;
    let mut place = content[LABEL_START_BYTES as usize..end].to_vec();
    for (_, sector) in place.chunks_mut(512).enumerate().filter(|(number, _)| is_chosen(*number)) {
        sector.iter_mut().for_each(|byte| *byte ^= 0x5a);
    }
    block_on(disk.write(LABEL_START_BYTES, IoBuf::from(&place[..]))).expect("in memory");
}

/// The leaves that have checksum errors counted.
fn blamed(tree: &VdevTree) -> Vec<Guid> {
    let blamed = tree.tops.iter().flat_map(Vdev::walk).filter(|vdev| vdev.errors.checksum() > 0);
    let mut blamed: Vec<Guid> = blamed.map(|vdev| vdev.guid).collect();
    blamed.sort();
    blamed
}

/// Has the other half read first.
fn avoid(tree: &VdevTree, leaf: Guid) {
    tree.find(leaf).expect("there").in_flight.fetch_add(1 << 20, Ordering::Relaxed);
}

fn read(tree: &VdevTree, blocks: &[(u64, Vec<u8>)]) {
    for (offset, bytes) in blocks {
        let verdict = |read: &[u8]| if read == bytes { Ok(()) } else { Err(Failure::Checksum) };
        let request = Request::new(tree, *offset, bytes.len(), TXG.get(), Some(&verdict));
        assert!(&*block_on(tree.tops[0].read(request)).expect("reads") == bytes);
    }
}

/// Scrubs blocks. Returns how many have wrong bytes somewhere, and how many look right in their windows.
fn scrub(tree: &VdevTree, blocks: &[(u64, Vec<u8>)]) -> (usize, usize) {
    blocks.iter().fold((0, 0), |(bad, right), (offset, bytes)| {
        let verdict = |read: &[u8]| if read == bytes { Ok(()) } else { Err(Failure::Checksum) };
        let request = Request::new(tree, *offset, bytes.len(), TXG.get(), Some(&verdict));
        let mut extents = Vec::new();
        tree.tops[0].extents(&request, &mut extents);
        let window = block_on(Window::read(extents));
        let is_right = tree.tops[0].right_in_window(&request, &window, &mut Scratch::default()).is_some();
        let by_window = block_on(tree.tops[0].scrub(request, &window));
        let by_reading = block_on(tree.tops[0].scrub(request, &Window::default()));
        assert_eq!(by_window.bad.is_empty(), by_reading.bad.is_empty());
        assert!(by_window.bytes.is_some_and(|found| &*found == bytes));
        (bad + usize::from(!by_window.bad.is_empty()), right + usize::from(is_right))
    })
}

const SIZES: [usize; 6] = [512, 1000, 7 * 512, 512, 40 * 512, 23 * 512];

/// A written tree for each top-level vdev.
fn each(check: impl Fn(&VdevTree, &Disks, &[(u64, Vec<u8>)], &[Guid])) {
    for (top, others) in every_inside().into_iter().flat_map(with_halves) {
        let root = parsed(top);
        let disks = Disks::of(&root.children[0]);
        let tree = tree(&root, &disks.without(&[]));
        let blocks = blocks(&tree, &SIZES);
        assert!(write(&tree, &blocks).iter().all(Result::is_ok));
        check(&tree, &disks, &blocks, &others);
    }
}

#[test]
fn both_halves_are_tried_and_the_bad_one_is_blamed_whatever_else_is_wrong() {
    for avoided in [SPARE, ORIGINAL] {
        each(|tree, disks, blocks, others| {
            avoid(tree, avoided);
            let mut wrong: Vec<Guid> = others.iter().copied().chain([ORIGINAL]).collect();
            // A draid vdev uses not all of its children for few blocks.
            wrong.retain(|guid| disks.is_touched(*guid));
            wrong.sort();
            wrong.iter().for_each(|guid| garble(&disks.memory[guid], |_| true));
            read(tree, blocks);
            assert_eq!(blamed(tree), wrong);
        });
    }
}

#[test]
fn columns_that_are_wrong_in_all_halves_are_rebuilt_with_the_parity_that_is_left() {
    each(|tree, disks, blocks, others| {
        garble(&disks.memory[&ORIGINAL], |sector| sector % 2 == 0);
        for other in [SPARE, Guid(53)].iter().filter_map(|other| disks.memory.get(other)) {
            garble(other, |sector| sector % 2 == 1);
        }
        others.iter().skip(1).for_each(|other| garble(&disks.memory[other], |_| true));
        read(tree, blocks);
    });
}

#[test]
fn halves_make_up_for_each_other_column_by_column() {
    let inside = config("spare", 1, 50, vec![leaf(0, ORIGINAL.get()), leaf(1, SPARE.get())]);
    let mut children = leaves(6);
    children[1] = inside;
    // Written before the vdev was expanded: a column for every sector.
    let root = parsed(raidz(1, children, &[TXG.get() + 1]));
    let disks = Disks::of(&root.children[0]);
    let tree = tree(&root, &disks.without(&[]));
    let blocks = blocks(&tree, &[7 * 512; 12]);
    assert!(write(&tree, &blocks).iter().all(Result::is_ok));
    garble(&disks.memory[&ORIGINAL], |sector| sector % 2 == 0);
    garble(&disks.memory[&SPARE], |sector| sector % 2 == 1);
    garble(&disks.memory[&Guid(4)], |_| true);
    read(&tree, &blocks);
    assert_eq!(blamed(&tree), [ORIGINAL, Guid(4), SPARE]);
}

#[test]
fn a_scrub_finds_what_is_wrong_in_either_half_and_it_is_mended() {
    for victim in [ORIGINAL, SPARE] {
        each(|tree, disks, blocks, _| {
            assert_eq!(scrub(tree, blocks), (0, blocks.len()), "nothing is wrong");
            if !disks.is_touched(victim) {
                return;
            }
            garble(&disks.memory[&victim], |_| true);
            let (bad, right) = scrub(tree, blocks);
            assert!(bad > 0 && bad + right == blocks.len(), "{bad} and {right}");
            assert_eq!(blamed(tree), [victim]);
            for (offset, bytes) in blocks {
                let piece = Piece { top: 0, offset_bytes: *offset, data: IoBuf::from(&bytes[..]).into() };
                let known = Known { piece, birth: TXG, counted: &[victim], missed: Missed::Left };
                assert!(block_on(tree.heal(known, Txg(TXG.get() + 5))).failed.is_empty());
            }
            let healed = |leaf: &&Vdev| leaf.stats.healed_bytes() > 0;
            assert_eq!(tree.leaves().filter(healed).map(|leaf| leaf.guid).collect::<Vec<_>>(), [victim]);
            assert_eq!(scrub(tree, blocks), (0, blocks.len()), "all is right again");
        });
    }
}

#[test]
fn a_half_that_missed_the_group_is_read_when_nothing_else_is_right() {
    each(|tree, disks, blocks, others| {
        tree.find(SPARE).expect("there").missing_txgs.note(TXG);
        garble(&disks.memory[&ORIGINAL], |_| true);
        if let Some(third) = disks.memory.get(&Guid(53)) {
            garble(third, |_| true);
        }
        others.iter().for_each(|other| garble(&disks.memory[other], |_| true));
        // It has the bytes by now, as during a resilver.
        read(tree, blocks);
        assert!(!blamed(tree).contains(&SPARE));
    });
}
