//! Trees of every kind over devices in memory, written and read.
//!
//! The read side is the judge: everything that was written is read back, with all children, and without every
//! set of children that may be missing.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::task::Poll;

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
use super::super::{Aux, LABEL_END_BYTES, LABEL_START_BYTES, State, Status, VdevTree};
use super::*;

mod blocks;
mod discard;
mod flush;
mod halves;
mod heal;
mod labels;
mod rebuild;
mod stable;

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

/// The devices of a tree by guid, each with a layer that injects faults.
struct Disks {
    memory: BTreeMap<Guid, Arc<MemoryDevice>>,
    faulty: BTreeMap<Guid, Arc<SimulatedDevice>>,
}

impl Disks {
    fn of(top: &VdevConfig) -> Self {
        // A row of draid is 16 MiB of each child; other kinds need less.
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

    /// Whether it was ever written.
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
        // Once trusting all bytes, as an intent log is read, and once with a checksum.
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

/// Counts the transfers and flushes of a device, each of which takes a moment.
#[derive(Debug)]
struct Counting {
    memory: MemoryDevice,
    writes: AtomicUsize,
    under_way: AtomicUsize,
    most_under_way: AtomicUsize,
    flushes: AtomicUsize,
    flushes_fail: AtomicBool,
    has_durable_writes: AtomicBool,
}

impl Device for Counting {
    fn path(&self) -> &std::path::Path {
        self.memory.path()
    }
    fn size_bytes(&self) -> u64 {
        self.memory.size_bytes()
    }
    fn sector_sizes(&self) -> SectorSizes {
        self.memory.sector_sizes()
    }
    fn is_read_only(&self) -> bool {
        false
    }
    fn read(&self, offset: u64, len: usize) -> device::IoFuture<'_, IoBuf> {
        self.memory.read(offset, len)
    }
    fn write(&self, offset: u64, data: IoBuf) -> device::IoFuture<'_, IoBuf> {
        self.writes.fetch_add(1, Relaxed);
        Box::pin(async move {
            let under_way = self.under_way.fetch_add(1, Relaxed) + 1;
            self.most_under_way.fetch_max(under_way, Relaxed);
            let mut waited = false;
            poll_fn(|context| {
                context.waker().wake_by_ref();
                if std::mem::replace(&mut waited, true) { Poll::Ready(()) } else { Poll::Pending }
            })
            .await;
            self.under_way.fetch_sub(1, Relaxed);
            self.memory.write(offset, data).await
        })
    }
    fn has_durable_writes(&self) -> bool {
        self.has_durable_writes.load(Relaxed)
    }
    fn write_durably(&self, offset: u64, parts: Vec<device::SharedBuf>) -> device::IoFuture<'_, ()> {
        self.writes.fetch_add(1, Relaxed);
        self.memory.write_gather(offset, parts)
    }
    fn flush(&self) -> device::IoFuture<'_, ()> {
        self.flushes.fetch_add(1, Relaxed);
        if self.flushes_fail.load(Relaxed) {
            let error = device::IoError::new(
                self.path(),
                device::Operation::Flush,
                0,
                0,
                device::Cause::Os { errno: 5 },
            );
            return Box::pin(async { Err(error) });
        }
        self.memory.flush()
    }
    fn discard(&self, offset: u64, len: u64) -> device::IoFuture<'_, ()> {
        self.memory.discard(offset, len)
    }
}

fn counted(root: &VdevConfig, count: u64) -> (Vec<Arc<Counting>>, VdevTree) {
    let size = (LABEL_START_BYTES + SPACE_BYTES + LABEL_END_BYTES) as usize;
    let disk = |n| Counting {
        memory: MemoryDevice::new(format!("disk-{n}"), size),
        writes: AtomicUsize::new(0),
        under_way: AtomicUsize::new(0),
        most_under_way: AtomicUsize::new(0),
        flushes: AtomicUsize::new(0),
        flushes_fail: AtomicBool::new(false),
        has_durable_writes: AtomicBool::new(false),
    };
    let disks: Vec<_> = (0..count).map(|n| Arc::new(disk(n))).collect();
    let devices =
        disks.iter().enumerate().map(|(n, d)| (Guid(n as u64 + 1), Arc::clone(d) as Arc<dyn Device>));
    let tree = tree(root, &devices.collect());
    (disks, tree)
}
