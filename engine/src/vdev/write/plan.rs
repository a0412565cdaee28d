//! From pieces to parts: which bytes go to which place of which leaf, and how many of them may fail.
//!
//! # Unused sectors
//! - The skip sectors of a raidz block belong to it and are never read. They are planned as *filler*: zeroes
//!   that are written only if they join two transfers to one.
//! - All columns of a draid row are filled up with zeroes to the length of the longest one. The row's parity
//!   covers the zeroes, and a rebuild by rows (without block pointers) relies on them.
//!
//! Source of the facts: OpenZFS 2.3 `vdev_raidz.c`, `vdev_draid.c` (`vdev_draid_map_alloc_write`).

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use codec::raidz::{Map, Raidz, generate_parity};
use device::{Device, IoBuf, SharedBuf, copy};
use ondisk::Txg;
use ondisk::label::aligned_size;
use ondisk::vdev_config::VdevKind;

use super::super::read::{MAX_DEPTH, behind_spare};
use super::super::stats::Transfer;
use super::super::{Kind, LABEL_END_BYTES, LABEL_START_BYTES, Vdev, VdevTree};
use super::Piece;
use crate::error::{Attempt, Failure, Result};

/// Zeroes of one transfer, for filler.
const ZEROES_BYTES: usize = 64 << 10;

/// Bytes for one place of one leaf.
#[derive(Debug)]
pub(super) struct Part<'a> {
    pub leaf: &'a Vdev,
    pub device: Arc<dyn Device>,
    /// The offset from the beginning of the device.
    pub position: u64,
    pub data: SharedBuf,
    /// The distributed spare for which it is written, whose space is on `leaf`.
    pub spare: Option<&'a Vdev>,
    /// Zeroes that may be left out.
    pub filler: bool,
}

/// The condition under which a vdev can return a piece.
#[derive(Debug)]
enum Need {
    /// This part is written.
    Part(usize),
    /// It is not to be written.
    Nothing,
    /// It cannot be written at all.
    Lost,
    /// All but `may_fail` of these are met.
    Group { may_fail: usize, of: Vec<Need> },
}

impl Need {
    fn is_met(&self, failed: &HashMap<usize, Attempt>) -> bool {
        match self {
            Self::Part(part) => !failed.contains_key(part),
            Self::Nothing => true,
            Self::Lost => false,
            Self::Group { may_fail, of } => {
                of.iter().filter(|need| !need.is_met(failed)).count() <= *may_fail
            }
        }
    }
}

/// A piece that was split.
#[derive(Debug)]
pub(super) struct Planned<'a> {
    top: Option<&'a Vdev>,
    size_bytes: u64,
    need: Need,
    parts: std::ops::Range<usize>,
    lost: Vec<Attempt>,
    missed: Vec<&'a Vdev>,
}

impl<'a> Planned<'a> {
    /// Whether the piece is written when these parts are not. Only then the leaves that miss it are noted: a
    /// piece that was not written at all will be written again, or is never committed.
    pub(super) fn judge(
        self,
        txg: Txg,
        parts: &[Part<'a>],
        failed: &HashMap<usize, Attempt>,
        started: Instant,
    ) -> Result<(), Vec<Attempt>> {
        // A leaf counts its errors itself.
        let top = self.top.filter(|top| !matches!(top.kind, Kind::Leaf(_)));
        if self.need.is_met(failed) {
            let failed =
                self.parts.filter(|part| failed.contains_key(part)).filter_map(|part| parts.get(part));
            let failed = failed.flat_map(|part| std::iter::once(part.leaf).chain(part.spare));
            failed.chain(self.missed).for_each(|leaf| leaf.missing_txgs.note(txg));
            if let Some(top) = top {
                top.stats.count(Transfer::Write, self.size_bytes, started);
            }
            return Ok(());
        }
        if let Some(top) = top {
            top.errors.count_write(true);
        }
        let mut attempts = self.lost;
        attempts.extend(self.parts.filter_map(|part| failed.get(&part).cloned()));
        Err(attempts)
    }
}

/// The parts of a batch, in the order in which they are found.
pub(super) struct Plan<'a> {
    tree: &'a VdevTree,
    txg: Txg,
    parts: Vec<Part<'a>>,
    /// The failures of the present piece.
    lost: Vec<Attempt>,
    /// The vdevs that miss the present piece.
    missed: Vec<&'a Vdev>,
    spare: Option<&'a Vdev>,
    filler: bool,
    /// Only parts of leaves that missed `txg` are planned.
    only_missed: bool,
}

impl<'a> Plan<'a> {
    pub(super) fn new(tree: &'a VdevTree, txg: Txg) -> Self {
        Self {
            tree,
            txg,
            parts: Vec::new(),
            lost: Vec::new(),
            missed: Vec::new(),
            spare: None,
            filler: false,
            only_missed: false,
        }
    }

    /// A plan of nothing but the parts of leaves that missed the group of a piece ([`Plan::missed_piece`]).
    pub(super) fn of_missed(tree: &'a VdevTree) -> Self {
        Self { only_missed: true, ..Self::new(tree, Txg::NONE) }
    }

    pub(super) fn parts(&self) -> &[Part<'a>] {
        &self.parts
    }

    /// Adds the parts of leaves that missed `birth`, in which the piece was written.
    pub(super) fn missed_piece(&mut self, piece: Piece, birth: Txg) {
        self.txg = birth;
        // Not judged: a part that cannot be written now is missing from no leaf that had it.
        let _ = self.piece(piece);
    }

    pub(super) fn into_parts(self) -> Vec<Part<'a>> {
        self.parts
    }

    /// Splits a piece into parts.
    pub(super) fn piece(&mut self, piece: Piece) -> Planned<'a> {
        let start = self.parts.len();
        let size_bytes = piece.data.len() as u64;
        let top = self.tree.top(piece.top);
        let need = match top {
            Some(top) => {
                let sector = 1usize.checked_shl(top.ashift).unwrap_or(1);
                let size = piece.data.len().next_multiple_of(sector);
                self.vdev(top, piece.offset_bytes, padded(piece.data, size), 0)
            }
            None => {
                let vdev = format!("top-level vdev {}", piece.top);
                let failure = Failure::Malformed("there is no such vdev".into());
                self.lost.push(Attempt { vdev, offset_bytes: piece.offset_bytes, failure });
                Need::Lost
            }
        };
        Planned {
            top,
            size_bytes,
            need,
            parts: start..self.parts.len(),
            lost: std::mem::take(&mut self.lost),
            missed: std::mem::take(&mut self.missed),
        }
    }

    fn vdev(&mut self, vdev: &'a Vdev, offset: u64, data: SharedBuf, depth: u32) -> Need {
        if !vdev.status().is_readable() {
            return self.lost(vdev, offset, Failure::Unavailable);
        }
        if depth > MAX_DEPTH {
            let circle = Failure::Malformed("vdevs lead to each other in a circle".into());
            return self.lost(vdev, offset, circle);
        }
        match &vdev.kind {
            Kind::Leaf(_) if self.has(vdev) => Need::Nothing,
            Kind::Leaf(slot) => match slot.device() {
                Some(device) => self.leaf(vdev, device, offset, data),
                None => self.lost(vdev, offset, Failure::Unavailable),
            },
            Kind::Mirror | Kind::Replacing | Kind::Spare => {
                let write = |child| self.vdev(child, offset, data.clone(), depth + 1);
                let of: Vec<_> = vdev.children.iter().map(write).collect();
                Need::Group { may_fail: of.len().saturating_sub(1), of }
            }
            Kind::DraidSpare { top, spare } => match behind_spare(self.tree, offset, *top, *spare) {
                Some(child) => {
                    let outer = self.spare.replace(vdev);
                    let need = self.vdev(child, offset, data, depth + 1);
                    self.spare = outer;
                    need
                }
                None => self.lost(vdev, offset, Failure::Unavailable),
            },
            Kind::Raidz(_) if is_expanding(vdev) => {
                let why = "a raidz vdev that is being expanded can only be read".into();
                self.lost(vdev, offset, Failure::Malformed(why))
            }
            Kind::Raidz(raidz) => match raidz.map(offset, data.len() as u64, self.txg.get()) {
                Ok(map) => {
                    let need = self.columns(vdev, &map, data, false, depth);
                    if !self.only_missed {
                        self.skip_sectors(vdev, raidz, &map, offset, depth);
                    }
                    need
                }
                Err(error) => self.lost(vdev, offset, Failure::Malformed(error.to_string())),
            },
            Kind::Draid(draid) => match draid.map(offset, data.len() as u64) {
                Ok(map) => self.columns(vdev, &map, data, true, depth),
                Err(error) => self.lost(vdev, offset, Failure::Malformed(error.to_string())),
            },
            Kind::Indirect(_) => {
                self.lost(vdev, offset, Failure::Malformed("a removed vdev cannot be written".into()))
            }
            Kind::Hole | Kind::Missing => self.lost(vdev, offset, Failure::Unavailable),
        }
    }

    fn leaf(&mut self, leaf: &'a Vdev, device: Arc<dyn Device>, offset: u64, data: SharedBuf) -> Need {
        let end = aligned_size(device.size_bytes()).saturating_sub(LABEL_END_BYTES);
        let position = offset.checked_add(LABEL_START_BYTES);
        let fits = |position: &u64| position.checked_add(data.len() as u64).is_some_and(|last| last <= end);
        let Some(position) = position.filter(fits) else {
            // Never over a label.
            return self.lost(leaf, offset, Failure::Malformed("it would end past the device".into()));
        };
        let (spare, filler) = (self.spare, self.filler);
        self.parts.push(Part { leaf, device, position, data, spare, filler });
        Need::Part(self.parts.len() - 1)
    }

    /// Whether nothing is to be planned for a leaf.
    fn has(&self, leaf: &Vdev) -> bool {
        self.only_missed && !self.spare.unwrap_or(leaf).is_stale(self.txg.get())
    }

    /// Notes that `vdev` and all below it miss this write.
    fn lost(&mut self, vdev: &'a Vdev, offset: u64, failure: Failure) -> Need {
        if !self.filler && !self.only_missed {
            let below = vdev.walk().filter(|vdev| vdev.children.is_empty());
            self.missed.extend(below.chain(self.spare));
            self.lost.extend(vdev.failed(offset, failure));
        }
        Need::Lost
    }

    /// The columns of a block, with computed parity. With `even`, all columns of a row get the length of its
    /// longest.
    fn columns(&mut self, vdev: &'a Vdev, map: &Map, data: SharedBuf, even: bool, depth: u32) -> Need {
        let data = padded(data, map.data_bytes() as usize);
        let parity = match parity_of(map, &data) {
            Ok(parity) => parity,
            Err(why) => return self.lost(vdev, 0, Failure::Malformed(why)),
        };
        let mut parity_start = 0;
        let mut rows = Vec::with_capacity(map.rows().len());
        for row in map.rows() {
            let longest = longest(row);
            let mut of = Vec::with_capacity(row.len());
            for (index, column) in row.iter().enumerate() {
                let Some(child) = vdev.children.get(column.child) else {
                    of.push(Need::Lost);
                    continue;
                };
                let size = column.size as usize;
                let bytes = if index < map.nparity() {
                    parity_start += longest;
                    parity.slice(parity_start - longest..parity_start - longest + size)
                } else {
                    let start = column.block_offset as usize;
                    data.slice(start..start + size)
                };
                if size > 0 {
                    of.push(self.vdev(child, column.offset, bytes, depth + 1));
                }
                if even && size < longest {
                    let offset = column.offset.saturating_add(column.size);
                    self.vdev(child, offset, zeroes(longest - size), depth + 1);
                }
            }
            rows.push(Need::Group { may_fail: map.nparity(), of });
        }
        Need::Group { may_fail: 0, of: rows }
    }

    /// The sectors that belong to the block after its last used one.
    fn skip_sectors(&mut self, vdev: &'a Vdev, raidz: &Raidz, map: &Map, offset: u64, depth: u32) {
        let ashift = vdev.ashift;
        let used: u64 = map.columns().iter().map(|column| column.size >> ashift).sum();
        let width = raidz.children().max(1) as u64;
        self.filler = true;
        for sector in (0..map.skip_sectors()).map(|skipped| (offset >> ashift) + used + skipped) {
            if let Some(child) = vdev.children.get((sector % width) as usize) {
                self.vdev(child, (sector / width) << ashift, zeroes(1 << ashift), depth + 1);
            }
        }
        self.filler = false;
    }
}

fn is_expanding(vdev: &Vdev) -> bool {
    matches!(vdev.config.kind, VdevKind::Raidz { expanding: true, .. })
}

fn longest(row: &[codec::raidz::Column]) -> usize {
    // The size of the block bounds this.
    row.iter().map(|column| column.size).max().unwrap_or(0) as usize
}

/// The parity columns of all rows, one after the other, each as long as the longest column of its row.
fn parity_of(map: &Map, data: &[u8]) -> Result<SharedBuf, String> {
    let nparity = map.nparity();
    let total = map.rows().map(|row| nparity * longest(row)).sum();
    let mut buf = IoBuf::for_overwrite(total);
    let mut rest = &mut buf[..];
    for row in map.rows() {
        let longest = longest(row).max(1);
        let (of_row, after) = rest.split_at_mut_checked(nparity * longest).ok_or("an empty row")?;
        rest = after;
        let mut parity: Vec<&mut [u8]> = of_row.chunks_exact_mut(longest).collect();
        let columns: Option<Vec<&[u8]>> = row
            .iter()
            .skip(nparity)
            .map(|column| data.get(column.block_offset as usize..)?.get(..column.size as usize))
            .collect();
        let columns = columns.ok_or("a column lies outside of the block")?;
        generate_parity(&mut parity, &columns).map_err(|error| error.to_string())?;
    }
    Ok(buf.into())
}

/// The bytes, padded with zeroes.
fn padded(data: SharedBuf, size: usize) -> SharedBuf {
    if data.len() >= size {
        return data;
    }
    let mut longer = IoBuf::for_overwrite(size);
    let (bytes, rest) = longer.split_at_mut(data.len());
    copy(bytes, &data);
    rest.fill(0);
    longer.into()
}

fn zeroes(size: usize) -> SharedBuf {
    static ZEROES: OnceLock<SharedBuf> = OnceLock::new();
    if size > ZEROES_BYTES {
        return IoBuf::zeroed(size).into();
    }
    ZEROES.get_or_init(|| IoBuf::zeroed(ZEROES_BYTES).into()).slice(0..size)
}
