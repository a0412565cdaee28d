//! Top-level vdevs whose devices change while they are read and written.

use super::super::super::config::Renamed;
use super::*;

const OLD: Guid = Guid(1);
const NEW: Guid = Guid(2);
const MIRROR: Guid = Guid(99);

fn top(kind: &str, guid: u64, children: Vec<Nvlist>) -> VdevConfig {
    parsed(config(kind, 0, guid, children)).children.remove(0)
}

#[test]
fn a_device_goes_on_when_another_is_attached_to_it() {
    let mirror = top("mirror", 99, leaves(2));
    let disks = Disks::of(&mirror);
    let tree = tree(&parsed(leaf(0, 1)), &disks.without(&[NEW]));
    let blocks = blocks(&tree, &[4096, 512]);
    write(&tree, &blocks).into_iter().for_each(|written| written.expect("is written"));
    let before = tree.top(0).expect("there");
    let version = tree.status_version();
    let after = tree.rebuild_top(0, &mirror, None, &disks.without(&[]), |_| {}).expect("changes");
    assert!(tree.status_version() > version);
    assert_eq!((after.guid, after.children.len(), &after.name[..]), (MIRROR, 2, "mirror-0"));
    let written = |vdev: &Vdev| vdev.stats.snapshot(Transfer::Write).operations;
    assert!(written(before) > 0 && written(before) == written(&after.children[0]));

    // What the old version is still asked for counts in the new one.
    let bytes = &blocks[0].1;
    let verdict = |read: &[u8]| if read == bytes { Ok(()) } else { Err(Failure::Checksum) };
    let request = Request::new(&tree, 0, bytes.len(), TXG.get(), Some(&verdict));
    let reads = after.children[0].stats.snapshot(Transfer::Read).operations;
    block_on(before.read(request)).expect("reads");
    assert_eq!(after.children[0].stats.snapshot(Transfer::Read).operations, reads + 1);

    // The new device is not trusted with what it does not have, and gets what is written from now on.
    after.children[1].missing_txgs.note_range(Txg::INITIAL, TXG);
    assert_reads(&tree, &blocks);
    assert_eq!(after.children[1].errors.checksum(), 0);
    assert!(!tree.can_do_without(&after.children[0]) && tree.can_do_without(&after.children[1]));
    let later = vec![Piece { top: 0, offset_bytes: 8192, data: IoBuf::zeroed(512).into() }];
    block_on(tree.write(Txg(TXG.get() + 1), later)).pop().expect("one").expect("is written");
    assert!(disks.is_touched(NEW));
}

#[test]
fn the_last_device_of_a_mirror_goes_on_with_its_guid() {
    let mirror = top("mirror", 99, leaves(2));
    let disks = Disks::of(&mirror);
    let tree = tree(&parsed(config("mirror", 0, 99, leaves(2))), &disks.without(&[]));
    let blocks = blocks(&tree, &[4096, 512]);
    write(&tree, &blocks);
    let old = tree.find(NEW).expect("there");
    old.errors.count_checksum(true);
    tree.top(0).expect("there").errors.count_read(true);
    let renamed = Some(Renamed { from: NEW, to: MIRROR });
    let after =
        tree.rebuild_top(0, &top("file", 99, Vec::new()), renamed, &Devices::new(), |_| {}).expect("changes");
    assert_eq!((after.guid, after.errors.checksum(), after.errors.read()), (MIRROR, 1, 0));
    // A configuration without a path.
    assert_eq!(after.name, MIRROR.to_string());
    assert!(tree.find(OLD).is_none() && tree.find(NEW).is_none());
    assert_reads(&tree, &blocks);
    block_on(tree.flush()).expect("flushes what the old version wrote");
}

#[test]
fn states_of_the_vdevs_above_follow() {
    let mirror = top("mirror", 99, leaves(2));
    let disks = Disks::of(&mirror);
    let tree = tree(&parsed(leaf(0, 1)), &disks.without(&[NEW]));
    // Attached, and not there.
    let after = tree.rebuild_top(0, &mirror, None, &Devices::new(), |_| {}).expect("changes");
    assert_eq!((after.status().state, after.children[1].status().state), (State::Degraded, State::CantOpen));
    let mut other = mirror.clone();
    other.ashift = Some(12);
    assert!(tree.rebuild_top(0, &other, None, &Devices::new(), |_| {}).is_err(), "other sectors");
    assert!(tree.rebuild_top(1, &mirror, None, &Devices::new(), |_| {}).is_err(), "no such vdev");
}
