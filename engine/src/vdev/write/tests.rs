//! What is written is read back through the read side, whole and with every child missing that may be; what fails is noted and judged.

use std::collections::BTreeMap;
use std::sync::Arc;

use device::simulated::{Fault, SimulatedDevice};
use device::{Device, IoBuf, MemoryDevice, SectorSizes, block_on};
use ondisk::label::label_offset;
use ondisk::nvlist::Nvlist;
use ondisk::uberblock::{UBERBLOCK_SIZE, Uberblock};
use ondisk::vdev_config::VdevConfig;
use ondisk::{Guid, Txg};
use proptest::prelude::*;

use super::super::config::{Devices, build_tree};
use super::super::label::{best_label, read_labels, read_uberblocks};
use super::super::read::Request;
use super::super::{LABEL_END_BYTES, LABEL_START_BYTES, State, VdevTree};
use super::*;

const ASHIFT: u64 = 9;
const SPACE_BYTES: u64 = 2 << 20;
const TXG: Txg = Txg(100);

fn config(kind: &str, id: u64, guid: u64, children: Vec<Nvlist>) -> Nvlist {
    let mut config = Nvlist::new();
    config.push("type", kind);
    config.push("id", id);
    config.push("guid", guid);
    config.push("ashift", ASHIFT);
    if !children.is_empty() {
        config.push("children", children);
    }
    config
}

fn leaf(id: u64, guid: u64) -> Nvlist {
    config("file", id, guid, Vec::new())
}

fn leaves(count: u64) -> Vec<Nvlist> {
    (0..count).map(|id| leaf(id, id + 1)).collect()
}

fn raidz(nparity: u64, children: Vec<Nvlist>, expanded_in: &[u64]) -> Nvlist {
    let mut top = config("raidz", 0, 99, children);
    top.push("nparity", nparity);
    if !expanded_in.is_empty() {
        top.push("raidz_expand_txgs", expanded_in.to_vec());
    }
    top
}

fn draid(nparity: u64, data: u64, spares: u64, children: Vec<Nvlist>) -> Nvlist {
    let disks = children.len() as u64 - spares;
    let groups = (1..256).find(|groups| ((data + nparity) * groups).is_multiple_of(disks)).expect("some");
    let mut top = config("draid", 0, 99, children);
    for (name, value) in
        [("nparity", nparity), ("draid_ndata", data), ("draid_nspares", spares), ("draid_ngroups", groups)]
    {
        top.push(name, value);
    }
    top
}

fn distributed_spare(id: u64, guid: u64) -> Nvlist {
    let mut spare = config("dspare", id, guid, Vec::new());
    spare.push("top_guid", 99u64);
    spare.push("spareid", 0u64);
    spare
}

/// Every kind of top-level vdev, with how many of its children it can do without.
fn every_kind() -> Vec<(Nvlist, usize)> {
    let mut spared = leaves(6);
    spared[1] = config("spare", 1, 50, vec![leaf(0, 2), distributed_spare(1, 51)]);
    let mut replaced = leaves(4);
    replaced[2] = config("replacing", 2, 50, vec![leaf(0, 3), leaf(1, 51)]);
    vec![
        (leaf(0, 1), 0),
        (config("mirror", 0, 99, leaves(3)), 2),
        (raidz(1, leaves(3), &[]), 1),
        (raidz(2, leaves(5), &[]), 2),
        (raidz(3, leaves(8), &[]), 3),
        (raidz(1, leaves(5), &[TXG.get() - 1]), 1),
        (raidz(2, leaves(6), &[TXG.get() + 1]), 2),
        (raidz(1, replaced, &[]), 1),
        (draid(1, 2, 1, leaves(5)), 1),
        (draid(2, 3, 1, spared), 2),
    ]
}

/// Devices of a tree by guid, each with a layer in which faults can be injected.
struct Disks {
    memory: BTreeMap<Guid, Arc<MemoryDevice>>,
    faulty: BTreeMap<Guid, Arc<SimulatedDevice>>,
}

impl Disks {
    fn of(top: &VdevConfig) -> Self {
        // A row of draid is 16 MiB of each child; other kinds are content with less.
        let size = LABEL_START_BYTES + SPACE_BYTES + LABEL_END_BYTES;
        let mut disks = Self { memory: BTreeMap::new(), faulty: BTreeMap::new() };
        for guid in guids_of_leaves(top) {
            let name = format!("disk-{}", guid.get());
            let memory = Arc::new(MemoryDevice::with_content(name, vec![0xee; size as usize]));
            let faulty = SimulatedDevice::new(Arc::clone(&memory) as Arc<dyn Device>, guid.get());
            disks.memory.insert(guid, memory);
            disks.faulty.insert(guid, Arc::new(faulty));
        }
        disks
    }

    /// Whether something was ever written to it.
    fn is_touched(&self, guid: Guid) -> bool {
        self.memory[&guid].content().iter().any(|byte| *byte != 0xee)
    }

    fn without(&self, missing: &[Guid]) -> Devices {
        let there = self.faulty.iter().filter(|(guid, _)| !missing.contains(guid));
        there.map(|(guid, disk)| (*guid, Arc::clone(disk) as Arc<dyn Device>)).collect()
    }
}

fn guids_of_leaves(config: &VdevConfig) -> Vec<Guid> {
    if config.children.is_empty() && config.kind.type_name() != "dspare" {
        return vec![config.guid];
    }
    config.children.iter().flat_map(guids_of_leaves).collect()
}

fn parsed(top: Nvlist) -> VdevConfig {
    VdevConfig::parse(&config("root", 0, 100, vec![top])).expect("well-formed")
}

fn tree(root: &VdevConfig, devices: &Devices) -> VdevTree {
    build_tree(root, devices, None).expect("builds")
}

/// Blocks that lie side by side, of these sizes, each with bytes of its own.
fn blocks(tree: &VdevTree, sizes: &[usize]) -> Vec<(u64, Vec<u8>)> {
    let top = tree.top(0).expect("there");
    let mut offset = 0;
    let mut blocks = Vec::new();
    for (index, &size) in sizes.iter().enumerate() {
        let bytes = (0..size).map(|at| (at * 7 + at / 251 + index * 31) as u8).collect();
        blocks.push((offset, bytes));
        offset += top.psize_to_asize(size as u64, TXG.get()).expect("a size");
    }
    blocks
}

fn write(tree: &VdevTree, blocks: &[(u64, Vec<u8>)]) -> Vec<Result<(), Vec<Attempt>>> {
    let piece = |(offset, bytes): &(u64, Vec<u8>)| Piece {
        top: 0,
        offset_bytes: *offset,
        data: IoBuf::from(&bytes[..]).into(),
    };
    block_on(tree.write(TXG, blocks.iter().map(piece).collect()))
}

fn assert_reads(tree: &VdevTree, blocks: &[(u64, Vec<u8>)]) {
    for (offset, bytes) in blocks {
        let verdict = |read: &[u8]| if read == bytes { Ok(()) } else { Err(Failure::Checksum) };
        // Once believing whatever comes, as an intent log is read, and once with a checksum.
        for verdict in [None, Some(&verdict as _)] {
            let request = Request::new(tree, *offset, bytes.len(), TXG.get(), verdict);
            let read = block_on(tree.tops[0].read(request)).expect("reads");
            assert!(&*read == bytes, "other bytes at offset {offset}");
        }
    }
}

/// All sets of at most `most` of the leaves below one child each.
fn losses(top: &VdevConfig, most: usize) -> Vec<Vec<Guid>> {
    let mut sets = vec![Vec::new()];
    for child in &top.children {
        let below = guids_of_leaves(child);
        let more: Vec<_> = sets.iter().map(|set: &Vec<Guid>| [&set[..], &below].concat()).collect();
        sets.extend(more);
    }
    let children_in = |set: &[Guid]| {
        top.children.iter().filter(|child| guids_of_leaves(child).iter().any(|g| set.contains(g))).count()
    };
    sets.retain(|set| children_in(set) <= most);
    sets
}

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
        assert!(failed.is_stale(TXG.get()) && !failed.is_stale(TXG.get() + 1));
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
            // What it holds is also in space of the others.
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
    assert_eq!(tree.find(Guid(3)).map(|leaf| leaf.status.state), Some(State::Offline));
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

/// Counts the transfers and flushes of a device.
#[derive(Debug)]
struct Counting(MemoryDevice, Mutex<(usize, usize)>, std::sync::atomic::AtomicBool);

impl Device for Counting {
    fn path(&self) -> &std::path::Path {
        self.0.path()
    }
    fn size_bytes(&self) -> u64 {
        self.0.size_bytes()
    }
    fn sector_sizes(&self) -> SectorSizes {
        self.0.sector_sizes()
    }
    fn is_read_only(&self) -> bool {
        false
    }
    fn read(&self, offset: u64, len: usize) -> device::IoFuture<'_, IoBuf> {
        self.0.read(offset, len)
    }
    fn write(&self, offset: u64, data: IoBuf) -> device::IoFuture<'_, IoBuf> {
        self.1.lock().unwrap().0 += 1;
        self.0.write(offset, data)
    }
    fn flush(&self) -> device::IoFuture<'_, ()> {
        self.1.lock().unwrap().1 += 1;
        if self.2.load(std::sync::atomic::Ordering::Relaxed) {
            let error =
                device::IoError::new(self.path(), device::Operation::Flush, 0, 0, device::Cause::Missing);
            return Box::pin(async { Err(error) });
        }
        self.0.flush()
    }
    fn discard(&self, offset: u64, len: u64) -> device::IoFuture<'_, ()> {
        self.0.discard(offset, len)
    }
}

fn counted(root: &VdevConfig, count: u64) -> (Vec<Arc<Counting>>, VdevTree) {
    let size = (LABEL_START_BYTES + SPACE_BYTES + LABEL_END_BYTES) as usize;
    let disk = |n| Counting(MemoryDevice::new(format!("disk-{n}"), size), Default::default(), false.into());
    let disks: Vec<_> = (0..count).map(|n| Arc::new(disk(n))).collect();
    let devices =
        disks.iter().enumerate().map(|(n, d)| (Guid(n as u64 + 1), Arc::clone(d) as Arc<dyn Device>));
    let tree = tree(root, &devices.collect());
    (disks, tree)
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
        assert_eq!(disk.1.lock().unwrap().0, 1);
    }
}

#[test]
fn only_leaves_that_were_written_to_are_flushed() {
    let root = parsed(config("mirror", 0, 99, leaves(2)));
    let (disks, tree) = counted(&root, 2);
    let flushes = || disks.iter().map(|disk| disk.1.lock().unwrap().1).collect::<Vec<_>>();
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
    disks[0].2.store(true, std::sync::atomic::Ordering::Relaxed);
    block_on(tree.write(Txg(5), piece()));
    block_on(tree.write(Txg(6), piece()));
    block_on(tree.flush()).expect("the other child has it");
    let leaf = tree.find(Guid(1)).expect("there");
    assert_eq!((leaf.missing_txgs.ranges().ranges(), leaf.errors.write()), (&[(5, 7)][..], 1));
    disks[1].2.store(true, std::sync::atomic::Ordering::Relaxed);
    block_on(tree.write(Txg(7), piece()));
    assert_eq!(block_on(tree.flush()).unwrap_err().len(), 2);
}

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
        let discarded = block_on(tree.discard(&unused));
        let copies = match tree.tops[0].kind {
            Kind::Mirror => tree.tops[0].children.len() as u64,
            _ => 1,
        };
        let allocated: u64 = unused.iter().map(|unused| unused.size_bytes).sum();
        // A child that is being replaced has all it holds twice.
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
    assert_eq!(block_on(tree.discard(&unused)), 0, "labels are never discarded");
    let unused = [0, 512, 4096].map(|offset_bytes| Unused { top: 0, offset_bytes, size_bytes: 512 });
    assert_eq!(block_on(tree.discard(&unused)), 3 * 512);
    assert_eq!(tree.tops[0].stats.snapshot(Transfer::Discard).operations, 2, "neighbours go together");
    tree.tops[0].cannot_discard.store(true, std::sync::atomic::Ordering::Relaxed);
    assert_eq!(block_on(tree.discard(&unused)), 0);
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
