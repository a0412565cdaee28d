//! Reading a block of a raidz or draid vdev: the columns of the children, and the reaction when some are
//! missing or wrong.
//!
//! # The order of attempts
//! 1. Only data columns are read, and as many parity columns as columns are known to be lost (an absent or
//!    stale child).
//! 2. If a transfer failed, the remaining columns are read too, and the lost ones are rebuilt.
//! 3. If no transfer failed and the verdict is still "wrong", everything that is stored is read: all columns,
//!    and of each column the bytes of every leaf that has it ([`super::sources`]). A spare or replacing vdev
//!    has several such *copies*, which may differ.
//! 4. The combinations of differing copies are tried, until the block is right ([`combinations`]).
//! 5. Each set of children that could have returned wrong bytes is distrusted in turn, smallest sets first,
//!    with every combination of copies of the others.
//! 6. Children that missed the block's txg are read like the others, since the verdict can refuse old bytes.
//!
//! When the block is right, each leaf whose bytes of a column differ from the right ones gets a checksum
//! error counted. A [scrub](super::scrub) begins with everything read.
//!
//! Neighbouring columns of one child are read in one transfer: a block of an expanded raidz has a column for
//! every sector.
//!
//! Source of the facts: OpenZFS 2.3 `vdev_raidz.c` (the comment on reconstruction, `vdev_raidz_io_done`),
//! which takes one copy of a column for the only one.

mod combinations;

use std::ops::Range;

use codec::raidz::{self, Column, Map};
use device::IoBuf;
use futures_util::future::join_all;

use super::read::{ReadResult, Request};
use super::scrub::{Scrubbed, Window};
use super::sources::Source;
use super::{BOOT_AREA_OFFSET, Kind, LABEL_START_BYTES, Vdev};
use crate::error::{Attempt, Failure};

/// Columns of one child that are no further apart than this are read in one transfer.
const MERGE_GAP_BYTES: u64 = 16 << 10;

/// The state of one column.
#[derive(Clone, Copy)]
enum Piece {
    /// Not read yet.
    Unread,
    /// It was read, and this one of its copies is taken for right.
    Read(usize),
    /// It cannot be read, or must not be trusted.
    Lost { stale: bool },
}

/// The bytes of a column as a leaf has them: `bytes[start..]` of a transfer.
#[derive(Clone, Copy)]
struct Stored<'a> {
    source: Source<'a>,
    transfer: usize,
    start: usize,
}

/// A block while it is being read.
struct Columns<'a> {
    vdev: &'a Vdev,
    map: &'a Map,
    request: Request<'a>,
    /// What is thought of each column.
    pieces: Vec<Piece>,
    /// The copies of each column that were read.
    copies: Vec<Vec<Stored<'a>>>,
    /// The columns that could not be read from a leaf.
    failed: Vec<(usize, Source<'a>)>,
    /// Whether leaves that missed the txg are read.
    takes_stale: bool,
    transfers: Vec<IoBuf>,
    tried: Vec<Attempt>,
}

/// A block that is right.
struct Settled {
    /// Its data columns, whole sectors.
    block: IoBuf,
    /// Bytes that were read turned out to be wrong.
    was_wrong: bool,
}

/// A transfer of neighbouring columns: the leaves that failed, and the bytes of the one that did not.
type Transferred<'a> = (Vec<Source<'a>>, Result<(IoBuf, Source<'a>), Vec<Attempt>>);

impl Vdev {
    /// Reads a block by its map of columns.
    pub(super) async fn read_columns(&self, request: Request<'_>, map: &Map) -> ReadResult {
        let mut columns = Columns::new(self, map, request);
        columns.read(columns.needed_at_least()).await;
        match columns.settle().await {
            Ok(Settled { mut block, was_wrong }) => {
                if was_wrong {
                    columns.blame(&block);
                }
                block.truncate(request.size);
                Ok(block)
            }
            Err(failure) => Err(columns.give_up(failure)),
        }
    }

    /// Reads everything that is stored of a block, or takes it from the window, and judges all of it.
    pub(super) async fn scrub_columns(&self, request: Request<'_>, map: &Map, window: &Window) -> Scrubbed {
        let mut columns = Columns::new(self, map, request);
        columns.take_from(window);
        columns.read(columns.unread()).await;
        columns.read_alternatives().await;
        match columns.settle().await {
            Ok(Settled { mut block, .. }) => {
                let mut bad = columns.blame(&block);
                bad.extend(columns.tried.into_iter().filter(|tried| matches!(tried.failure, Failure::Io(_))));
                block.truncate(request.size);
                Scrubbed { bytes: Some(block), bad }
            }
            Err(failure) => Scrubbed { bytes: None, bad: columns.give_up(failure) },
        }
    }
}

impl<'a> Columns<'a> {
    fn new(vdev: &'a Vdev, map: &'a Map, request: Request<'a>) -> Self {
        let count = map.columns().len();
        let mut columns = Self {
            vdev,
            map,
            request,
            pieces: vec![Piece::Unread; count],
            copies: vec![Vec::new(); count],
            failed: Vec::new(),
            takes_stale: false,
            transfers: Vec::new(),
            tried: Vec::new(),
        };
        columns.distrust_absent_and_stale();
        columns
    }

    /// Runs the steps of the module's description, after the first reads. The error is the failure of the
    /// block as a whole, unless a column's failure explains it.
    async fn settle(&mut self) -> Result<Settled, Option<Failure>> {
        let mut failure = None;
        for takes_stale in [false, true] {
            if takes_stale && !self.trust_stale() {
                break;
            }
            if !self.lost_data_is_covered() {
                self.read(self.unread()).await;
            }
            match self.assemble() {
                Ok(block) => match self.request.judge(self.wanted(&block)) {
                    Ok(()) => return Ok(Settled { block, was_wrong: failure.is_some() }),
                    Err(wrong) => failure = Some(wrong),
                },
                Err(TooManyLost) => continue,
            }
            self.read(self.unread()).await;
            self.read_alternatives().await;
            if let Some(block) = self.try_combinations().await {
                return Ok(Settled { block, was_wrong: true });
            }
        }
        Err(failure)
    }

    /// Counts the failure of the block, and gives the attempts.
    fn give_up(self, failure: Option<Failure>) -> Vec<Attempt> {
        if failure.is_some() {
            self.blame_everyone();
        }
        let mut tried = self.tried;
        tried.extend(failure.map_or(Vec::new(), |failure| self.vdev.failed(self.request.offset, failure)));
        self.request.count_failure(self.vdev, &tried);
        tried
    }

    /// The bytes of the data columns that were asked for.
    fn wanted<'b>(&self, block: &'b [u8]) -> &'b [u8] {
        &block[..self.request.size.min(block.len())]
    }

    fn column(&self, index: usize) -> &Column {
        &self.map.columns()[index]
    }

    fn is_data(&self, index: usize) -> bool {
        index % self.map.width() >= self.map.nparity()
    }

    fn is_lost(&self, index: usize) -> bool {
        matches!(self.pieces[index], Piece::Lost { .. })
    }

    fn rows(&self) -> impl Iterator<Item = Range<usize>> + use<> {
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

    /// Makes stale leaves readable after all. Returns false when there are none, or no verdict could refuse
    /// old bytes.
    fn trust_stale(&mut self) -> bool {
        if self.request.verdict.is_none() {
            return false;
        }
        self.takes_stale = true;
        for piece in &mut self.pieces {
            if matches!(piece, Piece::Lost { stale: true }) {
                *piece = Piece::Unread;
            }
        }
        !self.unread().is_empty() || !self.alternatives().is_empty()
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
        self.column(index).size == 0 || matches!(self.pieces[index], Piece::Read(_))
    }

    async fn read(&mut self, mut wanted: Vec<usize>) {
        wanted.sort_by_key(|&index| {
            let column = self.column(index);
            (column.child, column.scratch, column.offset)
        });
        let joins = |&a: &usize, &b: &usize| self.are_neighbours(a, b);
        let groups: Vec<Vec<usize>> = wanted.chunk_by(joins).map(<[usize]>::to_vec).collect();
        let mut alone = Vec::new();
        for (group, (failed, result)) in self.transfer(groups).await {
            match result {
                Ok((bytes, source)) => self.keep(&group, bytes, source, &failed),
                // One bad sector must not cost its neighbours.
                Err(_) if group.len() > 1 => alone.extend(group.into_iter().map(|index| vec![index])),
                Err(tried) => self.lose(&group, tried),
            }
        }
        for (group, (failed, result)) in self.transfer(alone).await {
            match result {
                Ok((bytes, source)) => self.keep(&group, bytes, source, &failed),
                Err(tried) => self.lose(&group, tried),
            }
        }
    }

    /// Whether one transfer may read both columns.
    fn are_neighbours(&self, before: usize, after: usize) -> bool {
        let (a, b) = (self.column(before), self.column(after));
        let end = a.offset + a.size;
        // A distributed spare is elsewhere for each row of its draid vdev.
        let are_in_one_place = match (&self.vdev.kind, self.vdev.children.get(a.child)) {
            (Kind::Draid(_), Some(child)) => matches!(child.kind, Kind::Leaf(_)),
            _ => true,
        };
        (a.child, a.scratch) == (b.child, b.scratch)
            && are_in_one_place
            && b.offset >= end
            && b.offset - end <= MERGE_GAP_BYTES
    }

    async fn transfer(&self, groups: Vec<Vec<usize>>) -> Vec<(Vec<usize>, Transferred<'a>)> {
        join_all(groups.into_iter().map(|group| async move {
            let result = self.transfer_one(&group).await;
            (group, result)
        }))
        .await
    }

    /// The request for the bytes between two columns of a child, both included.
    fn request_for(&self, first: &Column, last: &Column) -> Request<'a> {
        // The size of the block, its parity and the gaps between columns bound this.
        let size = (last.offset + last.size - first.offset) as usize;
        Request { offset: first.offset, size, scratch: first.scratch, ..self.request }
    }

    /// The leaves from which a column may be read, best first.
    fn sources(&self, child: usize, request: &Request<'a>) -> Vec<Source<'a>> {
        let mut sources = self.vdev.children.get(child).map_or(Vec::new(), |child| child.sources(request));
        sources.retain(|source| self.takes_stale || !source.is_stale);
        sources
    }

    async fn transfer_one(&self, group: &[usize]) -> Transferred<'a> {
        let (mut failed, mut tried) = (Vec::new(), Vec::new());
        let (Some(first), Some(last)) = (group.first(), group.last()) else { return (failed, Err(tried)) };
        let (first, last) = (self.column(*first), self.column(*last));
        let request = self.request_for(first, last);
        for source in self.sources(first.child, &request) {
            match source.read(request).await {
                Ok(bytes) => return (failed, Ok((bytes, source))),
                Err(more) => {
                    tried.extend(more);
                    failed.push(source);
                }
            }
        }
        let child = self.vdev.children.get(first.child).unwrap_or(self.vdev);
        if tried.is_empty() {
            tried = child.failed(first.offset, Failure::Unavailable);
        }
        if !child.children.is_empty() {
            self.request.count_failure(child, &tried);
        }
        (failed, Err(tried))
    }

    fn keep(&mut self, group: &[usize], bytes: IoBuf, source: Source<'a>, failed: &[Source<'a>]) {
        let Some(&first) = group.first() else { return };
        let first_offset = self.column(first).offset;
        for &index in group {
            let start = (self.column(index).offset - first_offset) as usize;
            self.pieces[index] = Piece::Read(self.copies[index].len());
            self.copies[index].push(Stored { source, transfer: self.transfers.len(), start });
        }
        // Of several columns, only some may be unreadable.
        if group.len() == 1 {
            self.failed.extend(failed.iter().map(|source| (first, *source)));
        }
        self.transfers.push(bytes);
    }

    fn lose(&mut self, group: &[usize], tried: Vec<Attempt>) {
        for &index in group {
            self.pieces[index] = Piece::Lost { stale: false };
        }
        self.tried.extend(tried);
    }

    /// The leaves that have a column that was read from another one.
    fn alternatives(&self) -> Vec<(usize, Source<'a>)> {
        let mut alternatives = Vec::new();
        for (index, copies) in self.copies.iter().enumerate().filter(|(_, copies)| !copies.is_empty()) {
            let column = self.column(index);
            let is_known = |source: &Source<'a>| {
                let has_failed = |(at, failed): &(usize, Source<'a>)| *at == index && failed.is(source);
                copies.iter().any(|copy| copy.source.is(source)) || self.failed.iter().any(has_failed)
            };
            let sources = self.sources(column.child, &self.request_for(column, column));
            alternatives.extend(sources.into_iter().filter(|s| !is_known(s)).map(|source| (index, source)));
        }
        alternatives
    }

    /// Reads what other leaves have of the columns that were read.
    async fn read_alternatives(&mut self) {
        let reads = self.alternatives().into_iter().map(|(index, source)| {
            let request = self.request_for(self.column(index), self.column(index));
            async move { (index, source, source.read(request).await) }
        });
        for (index, source, result) in join_all(reads).await {
            match result {
                Ok(bytes) => {
                    self.copies[index].push(Stored { source, transfer: self.transfers.len(), start: 0 });
                    self.transfers.push(bytes);
                }
                Err(tried) => {
                    self.failed.push((index, source));
                    self.tried.extend(tried);
                }
            }
        }
    }

    /// Takes every copy of a column that is in the window.
    fn take_from(&mut self, window: &Window) {
        for index in self.unread() {
            let column = *self.column(index);
            let front_bytes = if column.scratch { BOOT_AREA_OFFSET } else { LABEL_START_BYTES };
            let position = column.offset.saturating_add(front_bytes);
            for source in self.sources(column.child, &self.request_for(&column, &column)) {
                if let Some(bytes) = window.get(source.leaf.guid, position, column.size as usize) {
                    self.pieces[index] = Piece::Read(0);
                    self.copies[index].push(Stored { source, transfer: self.transfers.len(), start: 0 });
                    self.transfers.push(IoBuf::from(bytes));
                }
            }
        }
    }

    /// The bytes of a column that are taken for right; empty for a phantom or lost one.
    fn bytes(&self, index: usize) -> &[u8] {
        match self.pieces[index] {
            Piece::Read(copy) => self.copies[index].get(copy).map_or(&[], |copy| self.copy(index, copy)),
            _ => &[],
        }
    }

    /// The bytes of a copy of a column.
    fn copy(&self, index: usize, copy: &Stored<'a>) -> &[u8] {
        let size = self.column(index).size as usize;
        self.transfers[copy.transfer].get(copy.start..copy.start + size).unwrap_or(&[])
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
        Ok(block)
    }

    /// All columns of a row; those in `missing` (indices into the map) are computed from the others.
    fn rebuild_row(&self, row: Range<usize>, missing: &[usize]) -> Result<Vec<Vec<u8>>, TooManyLost> {
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

    /// Counts a checksum error on each leaf whose bytes of a column differ from those of the right block.
    /// Returns the leaves.
    fn blame(&self, right: &[u8]) -> Vec<Attempt> {
        if self.request.verdict.is_none() {
            return Vec::new();
        }
        let mut guilty = Vec::new();
        for row in self.rows() {
            let nparity = self.map.nparity();
            let data = row.clone().skip(nparity).map(|index| {
                let Column { block_offset, size, .. } = *self.column(index);
                let start = block_offset as usize;
                right.get(start..start + size as usize).unwrap_or(&[])
            });
            let data: Vec<&[u8]> = data.collect();
            let has_parity = row.clone().take(nparity).any(|index| !self.copies[index].is_empty());
            let parity = if has_parity { self.parity_of(row.clone(), &data) } else { None };
            let parity = parity.unwrap_or_default();
            let parity = (0..nparity).map(|index| parity.get(index).map(Vec::as_slice));
            for (index, right) in row.zip(parity.chain(data.into_iter().map(Some))) {
                let Some(right) = right else { continue };
                // What a leaf missed is no damage.
                let copies = self.copies[index].iter().filter(|copy| !copy.source.is_stale);
                for copy in copies.filter(|copy| self.copy(index, copy) != right) {
                    guilty.push((copy.source, self.column(index).offset));
                }
            }
        }
        self.count_checksums(guilty)
    }

    /// The parity of the data columns of a row.
    fn parity_of(&self, row: Range<usize>, data: &[&[u8]]) -> Option<Vec<Vec<u8>>> {
        let sizes = row.take(self.map.nparity()).map(|index| self.column(index).size as usize);
        let mut parity: Vec<Vec<u8>> = sizes.map(|size| vec![0; size]).collect();
        let mut slices: Vec<&mut [u8]> = parity.iter_mut().map(Vec::as_mut_slice).collect();
        raidz::generate_parity(&mut slices, data).ok()?;
        Some(parity)
    }

    /// Nothing explains the damage: any of the leaves may have caused it.
    fn blame_everyone(&self) {
        let read = self.copies.iter().enumerate();
        let all = read.flat_map(|(index, copies)| copies.iter().map(move |copy| (copy.source, index)));
        let all = all.filter(|(source, _)| !source.is_stale);
        self.count_checksums(all.map(|(source, index)| (source, self.column(index).offset)).collect());
    }

    /// Counts one error for each leaf.
    fn count_checksums(&self, mut guilty: Vec<(Source<'a>, u64)>) -> Vec<Attempt> {
        guilty.sort_by_key(|(source, _)| source.owner.guid);
        guilty.dedup_by_key(|(source, _)| source.owner.guid);
        let count = |(source, offset): (Source<'a>, u64)| {
            self.request.count_checksum(source.owner);
            source.owner.failed(offset, Failure::Checksum)
        };
        guilty.into_iter().flat_map(count).collect()
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
