//! Labels and uberblocks, judged by the reading side and by `zdb`.

use super::*;

fn uberblock(txg: u64) -> Vec<u8> {
    let golden = Uberblock {
        order: ondisk::ByteOrder::Little,
        version: 5000,
        txg: Txg(txg),
        guid_sum: 1,
        timestamp: txg,
        root_bp: ondisk::blkptr::Blkptr::HOLE,
        software_version: 5000,
        mmp: None,
        checkpoint_txg: Txg::NONE,
        raidz_reflow_info: 0,
    };
    golden.encode()
}

#[test]
fn labels_and_uberblocks_are_found_where_they_belong() {
    let root = parsed(leaf(0, 1));
    let disks = Disks::of(&root.children[0]);
    let tree = tree(&root, &disks.without(&[]));
    let label_of = |txg: u64| {
        let mut label = Nvlist::new();
        for (name, value) in [("version", 5000), ("state", 0), ("txg", txg), ("pool_guid", 5), ("guid", 1)] {
            label.push(name, value);
        }
        label.push("name", "tank");
        label
    };
    block_on(tree.initialize_label(Guid(1), &label_of(4))).expect("writes");
    let disk = &*disks.memory[&Guid(1)];
    let txgs =
        || block_on(read_labels(disk)).map(|label| label.ok().and_then(|label| label.txg).map(Txg::get));
    assert_eq!(txgs(), [Some(4); 4]);
    assert!(block_on(read_uberblocks(disk, ASHIFT as u32)).is_empty());

    block_on(tree.write_label(Guid(1), true, &label_of(5))).expect("writes");
    assert_eq!(txgs(), [Some(4), Some(5), Some(4), Some(5)]);
    block_on(tree.write_label(Guid(1), false, &label_of(6))).expect("writes");
    assert_eq!(best_label(block_on(read_labels(disk))).and_then(|label| label.txg), Some(Txg(6)));

    assert!(uberblock(1).len() <= UBERBLOCK_SIZE.next_multiple_of(512));
    for txg in [1, 127, 128, 129] {
        block_on(tree.write_uberblock(&[Guid(1)], Txg(txg), &uberblock(txg))).expect("writes");
    }
    let mut found: Vec<(usize, u64, u64)> = block_on(read_uberblocks(disk, ASHIFT as u32))
        .iter()
        .map(|(l, slot, u)| (*l, *slot, u.txg.get()))
        .collect();
    found.sort_unstable();
    // Txg 129 took the slot of txg 1.
    let expected = (0..4).flat_map(|label| [(label, 0, 128), (label, 1, 129), (label, 127, 127)]);
    assert_eq!(found, expected.collect::<Vec<_>>());
    // The boot area is not ours.
    let content = disk.content();
    assert!(content[512 << 10..4 << 20].iter().all(|byte| *byte == 0xee));
}

#[test]
fn an_uberblock_needs_one_leaf_and_one_label() {
    let root = parsed(config("mirror", 0, 99, leaves(2)));
    let disks = Disks::of(&root.children[0]);
    let tree = tree(&root, &disks.without(&[]));
    let both = [Guid(1), Guid(2)];
    disks.faulty[&Guid(1)].inject(Fault::Missing);
    let last = label_offset(disks.memory[&Guid(2)].size_bytes(), 3).expect("fits").get();
    disks.faulty[&Guid(2)].inject(Fault::WriteError(0..last));
    block_on(tree.write_uberblock(&both, TXG, &uberblock(100))).expect("the last label of the second has it");
    disks.faulty[&Guid(2)].inject(Fault::Missing);
    assert!(block_on(tree.write_uberblock(&both, TXG, &uberblock(100))).is_err());
    assert!(block_on(tree.initialize_label(Guid(2), &Nvlist::new())).is_err());
    assert!(block_on(tree.write_label(Guid(7), true, &Nvlist::new())).is_err());
}

#[test]
fn zdb_reads_the_labels() {
    let file = tempfile::NamedTempFile::new().expect("a file");
    file.as_file().set_len(64 << 20).expect("grows");
    let device = device::OpenOptions::read_write().open(&file).expect("opens");
    let root = parsed(leaf(0, 1));
    let tree = tree(&root, &[(Guid(1), Arc::new(device) as Arc<dyn Device>)].into());
    let path = file.path().to_str().expect("is text");
    let mut top = leaf(0, 1);
    for (name, value) in
        [("metaslab_array", 0), ("metaslab_shift", 24), ("asize", 59 << 20), ("create_txg", 4)]
    {
        top.push(name, value);
    }
    top.push("path", path);
    let mut label = Nvlist::new();
    label.push("name", "tank");
    for (name, value) in [
        ("version", 5000),
        ("state", 0),
        ("txg", 4),
        ("pool_guid", 5),
        ("top_guid", 1),
        ("guid", 1),
        ("vdev_children", 1),
    ] {
        label.push(name, value);
    }
    label.push("vdev_tree", top);
    block_on(tree.initialize_label(Guid(1), &label)).expect("writes");
    label.set("txg", 8u64);
    block_on(tree.write_label(Guid(1), false, &label)).expect("writes");
    block_on(tree.write_uberblock(&[Guid(1)], Txg(77), &uberblock(77))).expect("writes");
    block_on(tree.flush()).expect("flushes");
    let Some(text) = testkit::oracle::zdb(&["-lllu", path]) else { return };
    assert!(!text.contains("failed") && !text.contains("Bad label"), "{text}");
    assert_eq!(text.matches("name: 'tank'").count(), 4, "{text}");
    assert!(text.contains("txg: 4\n") && text.contains("txg: 8\n"), "{text}");
    assert!(text.contains("txg = 77"), "{text}");
}
