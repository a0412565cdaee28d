//! Reading everything that is stored of a block: all children of mirrors, all columns of raidz; parity is
//! compared.
//!
//! [`Vdev::read`] stops at the first good copy. [`Vdev::scrub`] looks at every copy and reports which are
//! bad, also when others are good.
//!
//! # Windows
//! Blocks that lie side by side are best read together. [`Vdev::extents`] lists the ranges of leaves that a
//! scrub of a block will read. The caller joins the ranges of many blocks, reads them into a [`Window`], and
//! scrubs the blocks from memory. Ranges that are not in the window are read as usual.
//!
//! Nearly all blocks are right. [`Vdev::right_in_window`] finds that out without copying and without reading;
//! only the others need [`Vdev::scrub`].

use std::collections::HashMap;
use std::ops::{Deref, Range};
use std::time::Instant;

use codec::raidz::{self, Map};
use device::{IoBuf, SharedBuf};
use futures_util::future::{BoxFuture, join_all};
use ondisk::{ByteOffset, Guid};

use super::read::{Request, behind_spare};
use super::stats::{Queue, Transfer};
use super::{BOOT_AREA_OFFSET, Kind, LABEL_START_BYTES, Vdev};
use crate::error::{Attempt, Failure};
use crate::tunables;

/// A range of a leaf, from the beginning of the device.
#[derive(Debug, Clone, Copy)]
pub struct Extent<'a> {
    leaf: &'a Vdev,
    start: u64,
    end: u64,
}

/// Ranges of leaves in memory.
#[derive(Debug, Default)]
pub struct Window {
    /// Sorted by start, not overlapping.
    leaves: HashMap<Guid, Vec<(u64, SharedBuf)>>,
}

impl Window {
    /// Reads all extents, joined where they are near each other. Failed transfers are left out.
    pub async fn read(mut extents: Vec<Extent<'_>>) -> Self {
        let gap_bytes = tunables::ZFS_VDEV_READ_GAP_LIMIT.get();
        let most_bytes = tunables::ZFS_VDEV_AGGREGATION_LIMIT.get();
        extents.sort_by_key(|extent| (extent.leaf.guid, extent.start));
        let mut joined: Vec<Extent<'_>> = Vec::new();
        for extent in extents {
            match joined.last_mut() {
                Some(last)
                    if last.leaf.guid == extent.leaf.guid
                        && extent.start <= last.end.saturating_add(gap_bytes)
                        && extent.end.max(last.end) - last.start <= most_bytes =>
                {
                    last.end = last.end.max(extent.end);
                }
                // It overlaps a transfer that is long enough already: only the rest is read.
                Some(last) if last.leaf.guid == extent.leaf.guid && extent.start < last.end => {
                    let start = last.end;
                    if extent.end > start {
                        joined.push(Extent { start, ..extent });
                    }
                }
                _ => joined.push(extent),
            }
        }
        let transfers = joined.into_iter().filter_map(|extent| {
            let Kind::Leaf(slot) = &extent.leaf.kind else { return None };
            let device = slot.device()?;
            // The limit or one block bounds this.
            let size = (extent.end - extent.start) as usize;
            Some(async move {
                let _under_way = extent.leaf.stats.begin(Queue::Scrub);
                let started = Instant::now();
                let result = device.read(extent.start, size).await;
                if result.is_ok() {
                    extent.leaf.stats.count(Transfer::Read, size as u64, started);
                    extent.leaf.stats.count(Transfer::Scrub, size as u64, started);
                }
                (extent, result)
            })
        });
        let mut window = Self::default();
        for (extent, result) in join_all(transfers).await {
            if let Ok(bytes) = result {
                window.leaves.entry(extent.leaf.guid).or_default().push((extent.start, bytes.into()));
            }
        }
        window
    }

    /// The bytes of a range of a leaf, if all are in the window.
    pub(super) fn get(&self, leaf: Guid, start: u64, size: usize) -> Option<&[u8]> {
        self.place(leaf, start, size).and_then(|(bytes, range)| bytes.get(range))
    }

    /// The buffer that has all bytes of a range of a leaf, and where they are in it.
    fn place(&self, leaf: Guid, start: u64, size: usize) -> Option<(&SharedBuf, Range<usize>)> {
        let pieces = self.leaves.get(&leaf)?;
        let index = pieces.partition_point(|(from, _)| *from <= start).checked_sub(1)?;
        let (from, bytes) = pieces.get(index)?;
        let within = usize::try_from(start - from).ok()?;
        let end = within.checked_add(size).filter(|end| *end <= bytes.len())?;
        Some((bytes, within..end))
    }
}

/// Right bytes of a block.
#[derive(Debug)]
pub enum Right<'w> {
    /// A part of a window.
    InWindow(&'w SharedBuf, Range<usize>),
    /// Put together from columns.
    Joined(&'w [u8]),
}

impl Deref for Right<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::InWindow(bytes, range) => bytes.get(range.clone()).unwrap_or_default(),
            Self::Joined(bytes) => bytes,
        }
    }
}

impl From<Right<'_>> for SharedBuf {
    /// Copies only what was put together.
    fn from(right: Right<'_>) -> Self {
        match right {
            Right::InWindow(bytes, range) => bytes.slice(range),
            Right::Joined(bytes) => IoBuf::from(bytes).into(),
        }
    }
}

/// Memory for blocks of raidz and their parity, which is used again for each block.
#[derive(Debug, Default)]
pub struct Scratch {
    block: Vec<u8>,
    parity: Vec<Vec<u8>>,
}

/// The result of a scrub of one copy of a block.
#[derive(Debug, Default)]
pub struct Scrubbed {
    /// The right bytes, from any place that had them.
    pub bytes: Option<IoBuf>,
    /// Every place that had wrong bytes.
    pub bad: Vec<Attempt>,
}

impl Vdev {
    /// Adds the ranges of leaves that a scrub of this request will read.
    pub fn extents<'a>(&'a self, request: &Request<'a>, extents: &mut Vec<Extent<'a>>) {
        if !self.status().is_readable() || request.is_too_deep() {
            return;
        }
        let size = request.size as u64;
        match &self.kind {
            Kind::Leaf(_) => {
                let front_bytes = if request.scratch { BOOT_AREA_OFFSET } else { LABEL_START_BYTES };
                let start = request.offset.saturating_add(front_bytes);
                extents.push(Extent { leaf: self, start, end: start.saturating_add(size) });
            }
            Kind::Mirror | Kind::Replacing | Kind::Spare => {
                let children = self.children.iter().filter(|child| !child.is_stale(request.txg));
                children.for_each(|child| child.extents(&request.deeper(), extents));
            }
            Kind::DraidSpare { top, spare } => {
                if let Some(child) = behind_spare(request.tree, request.offset, *top, *spare) {
                    child.extents(&request.deeper(), extents);
                }
            }
            Kind::Raidz(_) | Kind::Draid(_) => {
                for column in self.map(request).iter().flat_map(Map::columns).filter(|column| column.size > 0)
                {
                    let child = self.children.get(column.child);
                    if let Some(child) = child.filter(|child| !child.is_stale(request.txg)) {
                        let (offset, size) = (column.offset, column.size as usize);
                        let request = Request { offset, size, scratch: column.scratch, ..*request };
                        child.extents(&request.deeper(), extents);
                    }
                }
            }
            Kind::Indirect(moved) => {
                let source = ByteOffset(request.offset);
                let pieces = moved.get().and_then(|moved| moved.mapping.pieces(source, size).ok());
                for piece in pieces.unwrap_or_default() {
                    if let Some(top) = request.tree.top(piece.vdev.get()) {
                        let (offset, size) = (piece.offset.get(), piece.length_bytes as usize);
                        top.extents(&Request { offset, size, ..*request }.deeper(), extents);
                    }
                }
            }
            Kind::Hole | Kind::Missing => {}
        }
    }

    /// The bytes of a block, where everything that is stored of it here is in the window and right. Counts
    /// nothing.
    pub fn right_in_window<'w>(
        &self,
        request: &Request<'_>,
        window: &'w Window,
        scratch: &'w mut Scratch,
    ) -> Option<Right<'w>> {
        match &self.kind {
            Kind::Raidz(_) | Kind::Draid(_) => {
                self.right_columns(request, window, scratch).map(Right::Joined)
            }
            _ => self.right_copies(request, window),
        }
    }

    fn right_copies<'w>(&self, request: &Request<'_>, window: &'w Window) -> Option<Right<'w>> {
        if !self.status().is_readable() || request.is_too_deep() {
            return None;
        }
        match &self.kind {
            Kind::Leaf(_) => {
                let front_bytes = if request.scratch { BOOT_AREA_OFFSET } else { LABEL_START_BYTES };
                let start = request.offset.saturating_add(front_bytes);
                let (bytes, range) = window.place(self.guid, start, request.size)?;
                request.judge(bytes.get(range.clone())?).ok()?;
                Some(Right::InWindow(bytes, range))
            }
            Kind::Mirror | Kind::Replacing | Kind::Spare => {
                let is_used = |child: &Vdev| child.status().is_readable() && !child.is_stale(request.txg);
                let mut found: Option<Right<'w>> = None;
                for child in self.children.iter().filter(|child| is_used(child)) {
                    let copy = child.right_copies(&request.deeper(), window)?;
                    // Without a verdict, copies that differ are not known to be right.
                    if request.verdict.is_none() && found.as_ref().is_some_and(|one| **one != *copy) {
                        return None;
                    }
                    found.get_or_insert(copy);
                }
                found
            }
            Kind::DraidSpare { top, spare } => {
                let child = behind_spare(request.tree, request.offset, *top, *spare)?;
                child.right_copies(&request.deeper(), window)
            }
            _ => None,
        }
    }

    fn right_columns<'w>(
        &self,
        request: &Request<'_>,
        window: &'w Window,
        scratch: &'w mut Scratch,
    ) -> Option<&'w [u8]> {
        let map = self.map(request)?;
        let mut columns: Vec<&[u8]> = Vec::with_capacity(map.columns().len());
        for column in map.columns() {
            let (offset, size) = (column.offset, column.size as usize);
            columns.push(match self.children.get(column.child) {
                _ if size == 0 => &[],
                Some(child) if !child.is_stale(request.txg) => {
                    let request =
                        Request { offset, size, verdict: None, scratch: column.scratch, ..*request };
                    match child.right_copies(&request.deeper(), window)? {
                        Right::InWindow(bytes, range) => bytes.get(range)?,
                        Right::Joined(bytes) => bytes,
                    }
                }
                _ => return None,
            });
        }
        let Scratch { block, parity } = scratch;
        block.resize(map.data_bytes() as usize, 0);
        for (column, bytes) in data_columns(&map, &columns) {
            let start = column.block_offset as usize;
            block.get_mut(start..start.checked_add(bytes.len())?)?.copy_from_slice(bytes);
        }
        block.truncate(request.size);
        request.judge(block).ok()?;
        if request.verdict.is_some() {
            for (row, columns) in map.rows().zip(columns.chunks_exact(map.width())) {
                let (stored, data) = columns.split_at(map.nparity());
                parity.resize(map.nparity(), Vec::new());
                for (right, column) in parity.iter_mut().zip(row) {
                    right.resize(column.size as usize, 0);
                }
                let mut slices: Vec<&mut [u8]> = parity.iter_mut().map(Vec::as_mut_slice).collect();
                if raidz::generate_parity(&mut slices, data).is_ok() && parity.as_slice() != stored {
                    return None;
                }
            }
        }
        Some(block)
    }

    /// Reads and judges everything that is stored of a block here.
    pub fn scrub<'a>(&'a self, request: Request<'a>, window: &'a Window) -> BoxFuture<'a, Scrubbed> {
        Box::pin(async move {
            if !self.status().is_readable() || request.is_too_deep() {
                return Scrubbed { bytes: None, bad: self.failed(request.offset, Failure::Unavailable) };
            }
            match &self.kind {
                Kind::Leaf(_) => self.scrub_leaf(request, window).await,
                Kind::Mirror | Kind::Replacing | Kind::Spare => self.scrub_mirror(request, window).await,
                Kind::Raidz(_) | Kind::Draid(_) => self.scrub_raidz(request, window).await,
                Kind::Indirect(moved) => {
                    let source = ByteOffset(request.offset);
                    let pieces = moved.get().map(|moved| moved.mapping.pieces(source, request.size as u64));
                    match pieces {
                        Some(Ok(pieces)) if pieces.len() == 1 => {
                            let target = pieces.first().and_then(|piece| {
                                Some((request.tree.top(piece.vdev.get())?, piece.offset.get()))
                            });
                            match target {
                                Some((top, offset)) => {
                                    top.scrub(Request { offset, ..request }.deeper(), window).await
                                }
                                None => self.scrub_by_reading(request).await,
                            }
                        }
                        _ => self.scrub_by_reading(request).await,
                    }
                }
                _ => self.scrub_by_reading(request).await,
            }
        })
    }

    /// For vdevs without parts that could be judged alone.
    async fn scrub_by_reading(&self, request: Request<'_>) -> Scrubbed {
        match self.read(request).await {
            Ok(bytes) => Scrubbed { bytes: Some(bytes), bad: Vec::new() },
            Err(bad) => Scrubbed { bytes: None, bad },
        }
    }

    async fn scrub_leaf(&self, request: Request<'_>, window: &Window) -> Scrubbed {
        let front_bytes = if request.scratch { BOOT_AREA_OFFSET } else { LABEL_START_BYTES };
        let start = request.offset.saturating_add(front_bytes);
        match window.get(self.guid, start, request.size) {
            Some(bytes) => match request.judge(bytes) {
                Ok(()) => Scrubbed { bytes: Some(IoBuf::from(bytes)), bad: Vec::new() },
                Err(failure) => {
                    request.count_checksum(self);
                    Scrubbed { bytes: None, bad: self.failed(request.offset, failure) }
                }
            },
            None => self.scrub_by_reading(request).await,
        }
    }

    async fn scrub_mirror(&self, request: Request<'_>, window: &Window) -> Scrubbed {
        let mut found = Scrubbed::default();
        for child in &self.children {
            // Groups that a device missed are not damage; an absent device is known without reading.
            if !child.status().is_readable() || child.is_stale(request.txg) {
                continue;
            }
            let of_child = child.scrub(request.deeper(), window).await;
            found.bad.extend(of_child.bad);
            found.bytes = found.bytes.or(of_child.bytes);
        }
        match found.bytes {
            Some(_) => found,
            None => self.scrub_by_reading(request).await,
        }
    }

    /// The layout of a block on a raidz or draid vdev.
    fn map(&self, request: &Request<'_>) -> Option<Map> {
        match &self.kind {
            Kind::Raidz(raidz) => raidz.map(request.offset, request.size as u64, request.txg).ok(),
            Kind::Draid(draid) => draid.map(request.offset, request.size as u64).ok(),
            _ => None,
        }
    }

    async fn scrub_raidz(&self, request: Request<'_>, window: &Window) -> Scrubbed {
        match self.map(&request) {
            Some(map) => self.scrub_columns(request, &map, window).await,
            None => self.scrub_by_reading(request).await,
        }
    }
}

/// The data columns with their bytes.
fn data_columns<'a>(
    map: &'a Map,
    columns: &'a [&'a [u8]],
) -> impl Iterator<Item = (&'a raidz::Column, &'a [u8])> {
    let rows = map.rows().zip(columns.chunks_exact(map.width()));
    rows.flat_map(|(row, columns)| row.iter().zip(columns).skip(map.nparity()))
        .map(|(column, bytes)| (column, *bytes))
}
