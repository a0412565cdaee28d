//! The wrong bytes of a block on a leaf are rewritten, parity included, and no other bytes.

use super::super::heal::{Healed, Known, Missed};
use super::*;

fn healed(tree: &VdevTree, blocks: &[(u64, Vec<u8>)]) -> Healed {
    blocks.iter().fold(Healed::default(), |sum, (offset, bytes)| {
        let piece = Piece { top: 0, offset_bytes: *offset, data: IoBuf::from(&bytes[..]).into() };
        let known = Known { piece, birth: TXG, counted: &[], missed: Missed::Left };
        let healed = block_on(tree.heal(known, Txg(TXG.get() + 5)));
        let failed = [sum.failed, healed.failed].concat();
        Healed { bytes: sum.bytes + healed.bytes, failed }
    })
}

/// Every byte between the labels is wrong.
fn garble(disk: &MemoryDevice) {
    let mut content = disk.content();
    let end = content.len() - LABEL_END_BYTES as usize;
    let place = &mut content[LABEL_START_BYTES as usize..end];
    place.iter_mut().for_each(|byte| *byte ^= 0x5a);
    let place = place.to_vec();
    block_on(disk.write(LABEL_START_BYTES, IoBuf::from(&place[..]))).expect("in memory");
}

const SIZES: [usize; 6] = [512, 1000, 7 * 512, 512, 40 * 512, 79 * 512];

#[test]
fn every_leaf_of_every_kind_gets_back_what_it_held_and_then_all_others_may_be_missing() {
    for (top, may_fail) in every_kind().into_iter().filter(|(_, may_fail)| *may_fail > 0) {
        let root = parsed(top);
        for victim in guids_of_leaves(&root.children[0]) {
            let disks = Disks::of(&root.children[0]);
            let all = tree(&root, &disks.without(&[]));
            let blocks = blocks(&all, &SIZES);
            assert!(write(&all, &blocks).iter().all(Result::is_ok));
            assert_eq!(healed(&all, &blocks), Healed::default(), "nothing is wrong");
            let is_touched = disks.is_touched(victim);
            garble(&disks.memory[&victim]);
            let healed_now = healed(&all, &blocks);
            assert_eq!((healed_now.bytes > 0, healed_now.failed.len()), (is_touched, 0));
            for leaf in all.leaves().filter(|leaf| !matches!(leaf.kind, Kind::DraidSpare { .. })) {
                // In a draid a part of it may have belonged to a distributed spare.
                let counted = leaf.errors.checksum() > 0;
                assert!(!counted || leaf.guid == victim, "{} is blamed", leaf.name);
                assert_eq!(leaf.stats.healed_bytes() > 0, counted);
                assert!(leaf.missing_txgs.is_empty());
            }
            assert_eq!(healed(&all, &blocks), Healed::default(), "all is right again");
            for missing in losses(&root.children[0], may_fail) {
                assert_reads(&tree(&root, &disks.without(&missing)), &blocks);
            }
        }
    }
}

#[test]
fn a_sector_that_cannot_be_read_is_written_anew_and_labels_stay() {
    let root = parsed(config("mirror", 0, 99, leaves(2)));
    let disks = Disks::of(&root.children[0]);
    let tree = tree(&root, &disks.without(&[]));
    let blocks = blocks(&tree, &SIZES);
    assert!(write(&tree, &blocks).iter().all(Result::is_ok));
    let bad = LABEL_START_BYTES + blocks[4].0;
    disks.faulty[&Guid(2)].inject(Fault::ReadError(bad + 512..bad + 600));
    assert_eq!(healed(&tree, &blocks).bytes, blocks[4].1.len() as u64);
    let leaf = tree.find(Guid(2)).expect("there");
    assert_eq!((leaf.errors.read(), leaf.errors.checksum(), leaf.errors.write()), (1, 0, 0));
    assert_eq!(healed(&tree, &blocks), Healed::default());
    let content = disks.memory[&Guid(2)].content();
    assert!(content[..LABEL_START_BYTES as usize].iter().all(|byte| *byte == 0xee));
}

#[test]
fn a_repair_that_fails_counts_against_the_device_and_nothing_else() {
    let root = parsed(config("mirror", 0, 99, leaves(2)));
    let disks = Disks::of(&root.children[0]);
    let tree = tree(&root, &disks.without(&[]));
    let blocks = blocks(&tree, &[512]);
    assert!(write(&tree, &blocks)[0].is_ok());
    garble(&disks.memory[&Guid(1)]);
    disks.faulty[&Guid(1)].inject(Fault::WriteError(0..u64::MAX));
    assert_eq!(healed(&tree, &blocks), Healed { bytes: 0, failed: vec![Guid(1)] });
    let leaf = tree.find(Guid(1)).expect("there");
    assert_eq!((leaf.errors.write(), leaf.stats.healed_bytes()), (1, 0));
    assert!(leaf.missing_txgs.is_empty(), "it misses nothing that it had");
    assert_eq!(tree.tops[0].errors.write(), 0);
}

#[test]
fn leaves_that_are_away_or_missed_the_group_are_left_alone() {
    let root = parsed(config("mirror", 0, 99, leaves(3)));
    let disks = Disks::of(&root.children[0]);
    let tree = tree(&root, &disks.without(&[]));
    let blocks = blocks(&tree, &SIZES);
    assert!(write(&tree, &blocks).iter().all(Result::is_ok));
    [1, 2].iter().for_each(|guid| garble(&disks.memory[&Guid(*guid)]));
    let before = [1, 2].map(|guid| disks.memory[&Guid(guid)].content());
    tree.find(Guid(1)).expect("there").missing_txgs.note(TXG);
    let offline = Status { state: State::Offline, aux: Aux::None };
    tree.set_status(tree.find(Guid(2)).expect("there"), offline);
    assert_eq!(healed(&tree, &blocks), Healed::default());
    assert!(before == [1, 2].map(|guid| disks.memory[&Guid(guid)].content()));
    assert!(tree.leaves().all(|leaf| leaf.errors.checksum() == 0));
}
