//! Reading a block of a raidz or draid vdev: the columns of the children, and the reaction when some are
//! missing or wrong.
//!
//! # The order of attempts
//! 1. Only data columns are read, and as many parity columns as columns are known to be lost (an absent or
//!    stale child).
//! 2. If a transfer failed, the remaining columns are read too, and the lost ones are rebuilt.
//! 3. If no transfer failed and the verdict is still "wrong", all columns are read. Each set of children that
//!    could have returned wrong bytes is distrusted in turn, smallest sets first, until the rebuilt block is
//!    right. The children whose bytes differ get a checksum error counted.
//! 4. Children that missed the block's txg are read like the others, since the verdict can refuse old bytes.
//!
//! Neighbouring columns of one child are read in one transfer: a block of an expanded raidz has a column for
//! every sector.
//!
//! Source of the facts: OpenZFS 2.3 `vdev_raidz.c` (the comment on reconstruction, `vdev_raidz_io_done`).

use std::collections::BTreeSet;

use codec::raidz::{self, Column, Map};
use device::IoBuf;
use futures_util::future::join_all;

use super::Vdev;
use super::read::{ReadResult, Request, yield_now};
use crate::error::{Attempt, Failure};

/// Columns of one child that are no further apart than this are read in one transfer.
const MERGE_GAP_BYTES: u64 = 16 << 10;

/// The most sets of children that are distrusted. Every set of three of 84 children fits.
const MAX_HYPOTHESES: usize = 100_000;

/// The most bytes that are rebuilt and checked for one block before it is given up.
const MAX_TRIED_BYTES: usize = 64 << 30;
/// After this many bytes, the thread yields to its other work.
const TURN_BYTES: usize = 64 << 20;

/// The state of one column.
enum Piece {
    /// Not read yet.
    Unread,
    /// Its bytes are `bytes[start..]` of a transfer.
    Read { transfer: usize, start: usize },
    /// It cannot be read, or must not be trusted.
    Lost { stale: bool },
}

/// A block while it is being read.
struct Columns<'a> {
    vdev: &'a Vdev,
    map: &'a Map,
    request: Request<'a>,
    pieces: Vec<Piece>,
    transfers: Vec<IoBuf>,
    tried: Vec<Attempt>,
}

impl Vdev {
    /// Reads a block by its map of columns.
    pub(super) async fn read_columns(&self, request: Request<'_>, map: &Map) -> ReadResult {
        let mut columns = Columns::new(self, map, request);
        let failures = match columns.run().await {
            Ok(block) => return Ok(block),
            Err(failure) => {
                let mut tried = columns.tried;
                tried.extend(failure.map_or(Vec::new(), |failure| self.failed(request.offset, failure)));
                tried
            }
        };
        request.count_failure(self, &failures);
        Err(failures)
    }
}

impl<'a> Columns<'a> {
    fn new(vdev: &'a Vdev, map: &'a Map, request: Request<'a>) -> Self {
        let pieces = map.columns().iter().map(|_| Piece::Unread).collect();
        let mut columns = Self { vdev, map, request, pieces, transfers: Vec::new(), tried: Vec::new() };
        columns.distrust_absent_and_stale();
        columns
    }

    /// Runs the steps of the module's description. The error is the failure of the block as a whole, unless a
    /// column's failure explains it.
    async fn run(&mut self) -> Result<IoBuf, Option<Failure>> {
        self.read(self.needed_at_least()).await;
        let mut failure = None;
        for take_stale in [false, true] {
            if take_stale && !self.trust_stale() {
                break;
            }
            if !self.lost_data_is_covered() {
                self.read(self.unread()).await;
            }
            match self.assemble() {
                Ok(block) => match self.request.judge(&block) {
                    Ok(()) => return Ok(block),
                    Err(wrong) => failure = Some(wrong),
                },
                Err(TooManyLost) => continue,
            }
            self.read(self.unread()).await;
            if let Some(block) = self.try_hypotheses().await {
                return Ok(block);
            }
        }
        if failure.is_some() {
            self.blame_everyone();
        }
        Err(failure)
    }

    fn column(&self, index: usize) -> &Column {
        &self.map.columns()[index]
    }

    fn row_of(&self, index: usize) -> std::ops::Range<usize> {
        let start = index - index % self.map.width();
        start..start + self.map.width()
    }

    fn is_data(&self, index: usize) -> bool {
        index % self.map.width() >= self.map.nparity()
    }

    fn is_lost(&self, index: usize) -> bool {
        matches!(self.pieces[index], Piece::Lost { .. })
    }

    fn rows(&self) -> impl Iterator<Item = std::ops::Range<usize>> + use<> {
        let width = self.map.width().max(1);
        (0..self.pieces.len()).step_by(width).map(move |start| start..start + width)
    }

    fn distrust_absent_and_stale(&mut self) {
        for index in 0..self.pieces.len() {
            let column = self.map.columns()[index];
            if column.size == 0 {
                continue;
            }
            let failure = match self.vdev.children.get(column.child) {
                Some(child) if !child.status().is_readable() => Failure::Unavailable,
                Some(child) if child.is_stale(self.request.txg) => Failure::Stale,
                Some(_) => continue,
                None => Failure::Unavailable,
            };
            self.pieces[index] = Piece::Lost { stale: failure == Failure::Stale };
            let name = self.vdev.children.get(column.child).unwrap_or(self.vdev);
            self.tried.extend(name.failed(column.offset, failure));
        }
    }

    /// Makes stale columns readable after all. Returns false when there are none, or no verdict could refuse
    /// old bytes.
    fn trust_stale(&mut self) -> bool {
        if self.request.verdict.is_none() {
            return false;
        }
        let mut any = false;
        for piece in &mut self.pieces {
            if matches!(piece, Piece::Lost { stale: true }) {
                *piece = Piece::Unread;
                any = true;
            }
        }
        any
    }

    /// All data columns, and for each lost one of a row a parity column of it.
    fn needed_at_least(&self) -> Vec<usize> {
        let mut needed = Vec::new();
        for row in self.rows() {
            let lost = row.clone().filter(|&index| self.is_data(index) && self.is_lost(index)).count();
            let readable = |&index: &usize| !self.is_lost(index) && self.column(index).size > 0;
            needed.extend(row.clone().filter(|&index| self.is_data(index)).filter(readable));
            needed.extend(row.filter(|&index| !self.is_data(index)).filter(readable).take(lost));
        }
        needed
    }

    fn unread(&self) -> Vec<usize> {
        let unread =
            |&index: &usize| matches!(self.pieces[index], Piece::Unread) && self.column(index).size > 0;
        (0..self.pieces.len()).filter(unread).collect()
    }

    /// Whether every row has read as much parity as it lost data.
    fn lost_data_is_covered(&self) -> bool {
        self.rows().all(|row| {
            let lost = row.clone().filter(|&index| self.is_data(index) && !self.is_read(index)).count();
            let parity = row.filter(|&index| !self.is_data(index) && self.is_read(index)).count();
            lost <= parity
        })
    }

    /// A phantom column counts as read: it contains zeroes.
    fn is_read(&self, index: usize) -> bool {
        self.column(index).size == 0 || matches!(self.pieces[index], Piece::Read { .. })
    }

    async fn read(&mut self, mut wanted: Vec<usize>) {
        wanted.sort_by_key(|&index| {
            let column = self.column(index);
            (column.child, column.scratch, column.offset)
        });
        let joins = |&a: &usize, &b: &usize| {
            let (a, b) = (self.column(a), self.column(b));
            let end = a.offset + a.size;
            (a.child, a.scratch) == (b.child, b.scratch)
                && b.offset >= end
                && b.offset - end <= MERGE_GAP_BYTES
        };
        let groups: Vec<Vec<usize>> = wanted.chunk_by(joins).map(<[usize]>::to_vec).collect();
        let mut alone = Vec::new();
        for (group, result) in self.transfer(groups).await {
            match result {
                Ok(bytes) => self.keep(&group, bytes),
                // One bad sector must not cost its neighbours.
                Err(_) if group.len() > 1 => alone.extend(group.into_iter().map(|index| vec![index])),
                Err(tried) => self.lose(&group, tried),
            }
        }
        for (group, result) in self.transfer(alone).await {
            match result {
                Ok(bytes) => self.keep(&group, bytes),
                Err(tried) => self.lose(&group, tried),
            }
        }
    }

    async fn transfer(&self, groups: Vec<Vec<usize>>) -> Vec<(Vec<usize>, ReadResult)> {
        join_all(groups.into_iter().map(|group| async move {
            let result = self.transfer_one(&group).await;
            (group, result)
        }))
        .await
    }

    async fn transfer_one(&self, group: &[usize]) -> ReadResult {
        let (Some(first), Some(last)) = (group.first(), group.last()) else { return Ok(IoBuf::zeroed(0)) };
        let (first, last) = (self.column(*first), self.column(*last));
        let Some(child) = self.vdev.children.get(first.child) else {
            return Err(self.vdev.failed(first.offset, Failure::Unavailable));
        };
        // The size of the block, its parity and the gaps between columns bound this.
        let size = (last.offset + last.size - first.offset) as usize;
        let request =
            Request { offset: first.offset, size, verdict: None, scratch: first.scratch, ..self.request };
        child.read(request.deeper()).await
    }

    fn keep(&mut self, group: &[usize], bytes: IoBuf) {
        let Some(&first) = group.first() else { return };
        let start = self.column(first).offset;
        for &index in group {
            let within = (self.column(index).offset - start) as usize;
            self.pieces[index] = Piece::Read { transfer: self.transfers.len(), start: within };
        }
        self.transfers.push(bytes);
    }

    fn lose(&mut self, group: &[usize], tried: Vec<Attempt>) {
        for &index in group {
            self.pieces[index] = Piece::Lost { stale: false };
        }
        self.tried.extend(tried);
    }

    /// The bytes of a column that was read; empty for a phantom or lost one.
    fn bytes(&self, index: usize) -> &[u8] {
        match self.pieces[index] {
            Piece::Read { transfer, start } => {
                let size = self.column(index).size as usize;
                self.transfers[transfer].get(start..start + size).unwrap_or(&[])
            }
            _ => &[],
        }
    }

    /// The block from the columns that were read, with lost data rebuilt.
    fn assemble(&self) -> Result<IoBuf, TooManyLost> {
        let mut block = IoBuf::for_overwrite(self.map.data_bytes() as usize);
        for row in self.rows() {
            let rebuilt = if row.clone().all(|index| !self.is_data(index) || self.is_read(index)) {
                None
            } else {
                let missing: Vec<usize> = row.clone().filter(|&index| !self.is_read(index)).collect();
                Some(self.rebuild_row(row.clone(), &missing)?)
            };
            for index in row.clone().filter(|&index| self.is_data(index)) {
                let bytes = match &rebuilt {
                    Some(columns) => &columns[index - row.start],
                    None => self.bytes(index),
                };
                put(&mut block, self.column(index), bytes);
            }
        }
        block.truncate(self.request.size);
        Ok(block)
    }

    /// All columns of a row; those in `missing` (indices into the map) are computed from the others.
    fn rebuild_row(
        &self,
        row: std::ops::Range<usize>,
        missing: &[usize],
    ) -> Result<Vec<Vec<u8>>, TooManyLost> {
        let start = row.start;
        let mut columns: Vec<Vec<u8>> = row
            .map(|index| match self.bytes(index) {
                [] => vec![0; self.column(index).size as usize],
                bytes => bytes.to_vec(),
            })
            .collect();
        let missing: Vec<usize> = missing.iter().map(|index| index - start).collect();
        let mut slices: Vec<&mut [u8]> = columns.iter_mut().map(Vec::as_mut_slice).collect();
        raidz::reconstruct(self.map.nparity(), &mut slices, &missing).map_err(|_| TooManyLost)?;
        Ok(columns)
    }

    /// Every readable column was read, but the block is wrong: distrusts children in turn.
    async fn try_hypotheses(&mut self) -> Option<IoBuf> {
        self.request.verdict?;
        let lost: Vec<usize> = (0..self.pieces.len()).filter(|&index| !self.is_read(index)).collect();
        let mut block = IoBuf::for_overwrite(self.map.data_bytes() as usize);
        let size = block.len().max(1);
        let per_turn = TURN_BYTES.div_ceil(size);
        let limit = MAX_HYPOTHESES.min(MAX_TRIED_BYTES / size);
        for (tried, hypothesis) in self.map.hypotheses(&lost).take(limit).enumerate() {
            if tried % per_turn == per_turn - 1 {
                yield_now().await;
            }
            let Ok(rows) = self.rebuild(&hypothesis) else { continue };
            for (row, columns) in self.rows().zip(&rows) {
                for index in row.clone().filter(|&index| self.is_data(index)) {
                    let bytes =
                        columns.as_ref().map_or(self.bytes(index), |columns| &columns[index - row.start]);
                    put(&mut block, self.column(index), bytes);
                }
            }
            let right = &block[..self.request.size.min(block.len())];
            if self.request.judge(right).is_ok() {
                self.blame(&hypothesis, &rows);
                block.truncate(self.request.size);
                return Some(block);
            }
        }
        None
    }

    /// The rows with the columns of `hypothesis` recomputed; `None` for rows that it does not touch.
    fn rebuild(&self, hypothesis: &[usize]) -> Result<Vec<Option<Vec<Vec<u8>>>>, TooManyLost> {
        let rows = self.rows().map(|row| {
            let missing: Vec<usize> =
                hypothesis.iter().copied().filter(|index| row.contains(index)).collect();
            if missing.is_empty() { Ok(None) } else { self.rebuild_row(row, &missing).map(Some) }
        });
        rows.collect()
    }

    /// Counts a checksum error on each child whose bytes differ from the rebuilt ones.
    fn blame(&self, hypothesis: &[usize], rows: &[Option<Vec<Vec<u8>>>]) {
        let mut guilty = BTreeSet::new();
        for &index in hypothesis.iter().filter(|&&index| self.is_read(index)) {
            let row = self.row_of(index);
            let rebuilt = rows.get(row.start / self.map.width().max(1)).and_then(Option::as_ref);
            if rebuilt.is_some_and(|columns| columns[index - row.start] != self.bytes(index)) {
                guilty.insert(self.column(index).child);
            }
        }
        self.count_checksums(guilty);
    }

    /// No set of children explains the damage: any of them may have caused it.
    fn blame_everyone(&self) {
        let read = (0..self.pieces.len()).filter(|&index| matches!(self.pieces[index], Piece::Read { .. }));
        self.count_checksums(read.map(|index| self.column(index).child).collect());
    }

    fn count_checksums(&self, children: BTreeSet<usize>) {
        for child in children {
            if let Some(child) = self.vdev.children.get(child) {
                self.request.count_checksum(child);
            }
        }
    }
}

/// More columns of a row are lost than its parity can restore.
struct TooManyLost;

fn put(block: &mut [u8], column: &Column, bytes: &[u8]) {
    let start = column.block_offset as usize;
    if let Some(place) = block.get_mut(start..start + bytes.len()) {
        device::copy(place, bytes);
    }
}
