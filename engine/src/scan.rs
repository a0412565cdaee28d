//! Scrub and resilver: going through all blocks of a pool, verifying what is stored of them, and writing what
//! is wrong or missing.
//!
//! # The idea
//! A scan walks the meta object set and then every dataset, each snapshot before the one that follows it, so
//! that each block is met once: in the dataset in which it was born. The place is a `Cursor`, which OpenZFS
//! stores in the same form; so either goes on with what the other began. What becomes of the cursor when a
//! dataset is snapshotted, destroyed or exchanged with its clone is a pure function
//! (`Cursor::follow`).
//!
//! A scan works in *batches*. A batch borrows a view of the pool, walks from the cursor on and gathers the
//! pointers that it meets (`Gathered`). When the memory for them is used up, or all is walked, it reads them
//! in the order of their places on devices (`Issue`): all copies, all children of mirrors, all parity. Only
//! then the cursor moves on in the pool, together with the counters, in one group. So a crash or an export
//! repeats one batch, which takes about half a minute. A pause loses nothing: what the interrupted batch has
//! verified is kept in memory (`Verified`).
//!
//! # Never a wrong write
//! A batch may take long, and the view that it borrows can be taken back when the pool needs its space. From
//! then on a block of the view may be freed, and its place may hold another block. So a batch reads without
//! counting errors. What looks wrong is judged again, counted and written only while the view is held
//! (`Guard::hold`), which is refused once it was taken back. Then the batch ends, and nothing of it counts
//! but what was right; the next one is smaller.
//!
//! # Which blocks
//! | scan | reads | writes |
//! |---|---|---|
//! | scrub | every block of its range, all that is stored of it | what is wrong; what leaves missed |
//! | resilver | blocks of groups that a leaf below their vdevs missed | the parts of these leaves |
//!
//! An intent log that a crash left behind waits until its dataset is mounted. Until then its blocks, and what
//! its records point to, are read and written like those of the dataset, but their errors are not counted:
//! the crash may have come between the writes of two devices. Other logs are not read here: what they hold is
//! no older than the scan.
//!
//! | module | what it owns |
//! |---|---|
//! | `cursor` | the place of a scan, and what becomes of it |
//! | `lineage` | who follows a dataset |
//! | `gathered` | pointers, packed and sorted by place |
//! | `walk` | from the cursor on, until the memory is used up |
//! | `issue` | reading and repairing what was gathered |
//! | `verified` | what a batch that was interrupted needs not read again |
//!
//! Source of the facts: OpenZFS 2.4 `dsl_scan.c`.

mod cursor;
mod gathered;
mod issue;
mod lineage;
mod verified;
mod walk;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use ondisk::blkptr::Blkptr;
use ondisk::{Guid, Txg};

use crate::store::Pool;
use crate::tunables;
use crate::vdev::dtl::TxgRanges;
use crate::vdev::{Kind, Vdev, VdevTree};

pub(crate) use cursor::Cursor;
pub(crate) use gathered::Gathered;
pub(crate) use issue::{Issue, Others, Pilot};
pub(crate) use verified::Verified;
pub(crate) use walk::{Interrupted, Walked, Walking, walk};

/// Keeps the blocks of a view from being overwritten.
pub(crate) trait Guard: Send + Sync {
    /// The view, whose blocks stay as they are while it is held; nothing when it was taken back.
    fn hold(&self) -> Option<Arc<Pool>>;
}

/// What a scan looks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Purpose {
    /// Only what leaves missed.
    pub is_resilver: bool,
    /// Blocks born after this group,
    pub after: Txg,
    /// and not after this one.
    pub until: Txg,
}

/// Bounds of a scan.
#[derive(Debug, Clone, Copy)]
pub struct ScanLimits {
    /// Bytes of memory for gathered pointers.
    pub memory_bytes: u64,
    /// Bytes on devices that one batch reads, about.
    pub batch_bytes: u64,
    /// Bytes that are read of a leaf at a time while nothing else is read or written.
    pub reading_bytes: u64,
    /// The most of that while others use the devices.
    pub busy_window_bytes: u64,
}

impl Default for ScanLimits {
    fn default() -> Self {
        Self {
            memory_bytes: memory_bytes() / tunables::ZFS_SCAN_MEM_LIM_FACT.get().max(1),
            batch_bytes: 8 << 30,
            reading_bytes: tunables::ZFS_SCAN_VDEV_LIMIT.get(),
            busy_window_bytes: 1 << 20,
        }
    }
}

/// The memory of this machine; a small one where that is not known.
fn memory_bytes() -> u64 {
    let told = std::fs::read_to_string("/proc/meminfo").ok();
    let line = told.as_deref().and_then(|text| text.lines().find_map(|line| line.strip_prefix("MemTotal:")));
    let kib = line.and_then(|line| line.split_whitespace().next()).and_then(|number| number.parse().ok());
    kib.unwrap_or(1u64 << 20).saturating_mul(1 << 10)
}

/// What was counted, in bytes on devices but for errors.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counters {
    /// Met.
    pub examined: u64,
    /// Of that, needed no look.
    pub skipped: u64,
    /// Read.
    pub issued: u64,
    /// Written.
    pub processed: u64,
    /// Blocks that could not be made right.
    pub errors: u64,
}

impl Counters {
    /// The larger number of each.
    pub(crate) fn or_more(self, other: Self) -> Self {
        Self {
            examined: self.examined.max(other.examined),
            skipped: self.skipped.max(other.skipped),
            issued: self.issued.max(other.issued),
            processed: self.processed.max(other.processed),
            errors: self.errors.max(other.errors),
        }
    }

    /// Both together.
    pub(crate) fn plus(self, more: Self) -> Self {
        Self {
            examined: self.examined + more.examined,
            skipped: self.skipped + more.skipped,
            issued: self.issued + more.issued,
            processed: self.processed + more.processed,
            errors: self.errors + more.errors,
        }
    }
}

/// The groups that leaves lack still after a scan, because a block could not be read or written.
pub(crate) type Failed = BTreeMap<Guid, TxgRanges>;

/// The groups that readable leaves missed, by the number of their top-level vdev.
#[derive(Debug, Default)]
pub(crate) struct StaleTops(HashMap<u32, TxgRanges>);

impl StaleTops {
    /// Of all vdevs as they are now.
    pub fn of(tree: &VdevTree) -> Self {
        let mut tops: HashMap<u32, TxgRanges> = HashMap::new();
        for top in &tree.tops {
            let Ok(id) = u32::try_from(top.id) else { continue };
            for leaf in top.walk().filter(|vdev| is_stale_leaf(vdev)) {
                for (start, end) in leaf.missing_txgs.ranges().ranges() {
                    tops.entry(id).or_default().add(*start, *end);
                }
            }
        }
        Self(tops)
    }

    /// Whether a leaf below one of the block's vdevs may lack it.
    pub(crate) fn lack(&self, tree: &VdevTree, bp: &Blkptr) -> bool {
        if self.0.is_empty() {
            return false;
        }
        let birth = bp.physical_birth().get();
        bp.dvas().any(|dva| {
            let id = dva.vdev.get();
            // The parts of gangs, and of removed vdevs, are elsewhere.
            let is_elsewhere =
                dva.gang || tree.top(id).is_some_and(|top| matches!(top.kind, Kind::Indirect(_)));
            is_elsewhere || self.0.get(&id).is_some_and(|missed| missed.contains(birth))
        })
    }
}

/// Whether a leaf is there, and lacks groups that it missed.
pub(crate) fn is_stale_leaf(vdev: &Vdev) -> bool {
    let is_leaf = matches!(vdev.kind, Kind::Leaf(_) | Kind::DraidSpare { .. });
    is_leaf && vdev.status().is_readable() && !vdev.missing_txgs.is_empty()
}
