//! Discarding the unused ranges of devices (`autotrim`, `zpool trim`).
//!
//! A range of a top-level vdev becomes at most one range of each leaf: all children of a mirror discard the
//! same range, and a run of raidz sectors occupies one run of each child. Draid vdevs are left out. A discard
//! is advice: failures change nothing, and a device that does not support it is not asked again.
//!
//! The caller ensures that no block is allocated in the ranges meanwhile, and that no state of the pool to
//! which a rewind could go refers to them.
//!
//! Source of the facts: OpenZFS 2.3 `vdev_raidz.c` (`vdev_raidz_xlate`), `vdev_trim.c`.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use device::{Device, Overwriting};
use futures_util::future::join_all;
use ondisk::VdevId;
use ondisk::label::aligned_size;
use ondisk::vdev_config::VdevKind;

use super::super::read::MAX_DEPTH;
use super::super::stats::{Queue, Transfer};
use super::super::{Kind, LABEL_END_BYTES, LABEL_START_BYTES, Vdev, VdevTree};

/// The error numbers with which a system reports that it does not support discards.
const NOT_SUPPORTED: [i32; 3] = [EOPNOTSUPP, ENOSYS, ENOTTY];
const EOPNOTSUPP: i32 = 95;
const ENOSYS: i32 = 38;
const ENOTTY: i32 = 25;

/// Unused space of a top-level vdev.
#[derive(Debug, Clone, Copy)]
pub struct Unused {
    /// Top-level vdev.
    pub top: u32,
    /// Offset in its allocatable space, a multiple of its sector.
    pub offset_bytes: u64,
    /// Allocated bytes, parity included; whole sectors.
    pub size_bytes: u64,
}

/// A range of a leaf's device.
pub(super) struct Range<'a> {
    pub leaf: &'a Vdev,
    pub device: Arc<dyn Device>,
    pub start: u64,
    pub end: u64,
}

impl Vdev {
    /// Whether it is a leaf whose device keeps what was freed until it is discarded.
    pub(crate) fn keeps_freed(&self) -> bool {
        let Kind::Leaf(slot) = &self.kind else { return false };
        slot.device().is_some_and(|device| device.traits().overwriting == Overwriting::Elsewhere)
    }
}

impl VdevTree {
    /// The top-level vdevs with leaves that keep what was freed until it is discarded.
    pub(crate) fn tops_that_keep_freed(&self) -> Vec<VdevId> {
        let tops = self.tops.iter().enumerate().filter(|(_, top)| top.walk().any(Vdev::keeps_freed));
        tops.map(|(id, _)| VdevId(id as u32)).collect()
    }

    /// Discards ranges, on the leaves that `is_chosen` selects. Returns the number of device bytes that were
    /// discarded.
    pub async fn discard(&self, unused: &[Unused], is_chosen: &(dyn Fn(&Vdev) -> bool + Sync)) -> u64 {
        let mut ranges = self.ranges(unused, is_chosen);
        ranges.retain(|range| !range.leaf.cannot_discard.load(Ordering::Relaxed));
        join_all(ranges.into_iter().map(discard)).await.into_iter().sum()
    }

    /// The ranges of the leaves that `is_chosen` selects, by leaf and place.
    pub(super) fn ranges(
        &self,
        unused: &[Unused],
        is_chosen: &(dyn Fn(&Vdev) -> bool + Sync),
    ) -> Vec<Range<'_>> {
        let mut ranges = Vec::new();
        for unused in unused {
            if let Some(top) = self.top(unused.top)
                && let Some(end) = unused.offset_bytes.checked_add(unused.size_bytes)
            {
                top.unused(unused.offset_bytes, end, 0, &mut ranges);
            }
        }
        ranges.retain(|range| is_chosen(range.leaf));
        ranges.sort_by_key(|range| (range.leaf.guid, range.start));
        ranges.dedup_by(|next, last| {
            let joins = next.leaf.guid == last.leaf.guid && next.start <= last.end;
            if joins {
                last.end = last.end.max(next.end);
            }
            joins
        });
        ranges
    }
}

impl Vdev {
    fn unused<'a>(&'a self, start: u64, end: u64, depth: u32, ranges: &mut Vec<Range<'a>>) {
        if !self.status().is_readable() || depth > MAX_DEPTH || start >= end {
            return;
        }
        match &self.kind {
            Kind::Leaf(slot) => {
                let Some(device) = slot.device() else { return };
                let space = aligned_size(device.size_bytes()).saturating_sub(LABEL_END_BYTES);
                let range = start.checked_add(LABEL_START_BYTES).zip(end.checked_add(LABEL_START_BYTES));
                if let Some((start, end)) = range.filter(|(_, end)| *end <= space) {
                    ranges.push(Range { leaf: self, device, start, end });
                }
            }
            Kind::Mirror | Kind::Replacing | Kind::Spare => {
                self.children.iter().for_each(|child| child.unused(start, end, depth + 1, ranges));
            }
            // While sectors are being moved, both their places are in use.
            Kind::Raidz(_) if !matches!(self.config.kind, VdevKind::Raidz { expanding: true, .. }) => {
                let width = self.children.len() as u64;
                let (first, last) = (start.div_ceil(1 << self.ashift), end >> self.ashift);
                for (index, child) in (0u64..).zip(&self.children) {
                    let row_of = |sector: u64| sector.saturating_sub(index).div_ceil(width) << self.ashift;
                    child.unused(row_of(first), row_of(last), depth + 1, ranges);
                }
            }
            _ => {}
        }
    }
}

async fn discard(range: Range<'_>) -> u64 {
    let _under_way = range.leaf.stats.begin(Queue::Trim);
    let started = Instant::now();
    let length = range.end - range.start;
    match range.device.discard(range.start, length).await {
        Ok(()) => {
            range.leaf.stats.count(Transfer::Discard, length, started);
            length
        }
        Err(error) => {
            if NOT_SUPPORTED.contains(&error.errno()) {
                range.leaf.cannot_discard.store(true, Ordering::Relaxed);
            }
            tracing::debug!(leaf = range.leaf.name, %error, "not discarded");
            0
        }
    }
}
