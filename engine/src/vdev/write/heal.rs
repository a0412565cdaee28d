//! Rewriting the bytes of a block on a leaf when they are wrong.
//!
//! # The idea
//! The right bytes of a block are known. The block is split as for a new write (`plan`): mirror children,
//! raidz and draid columns, parity and spares included. Each part is read back and compared; the parts that
//! differ, or cannot be read, are written.
//!
//! The caller guarantees that the place belongs to the block until the repair is done
//! ([`crate::pool::live`]), and that the bytes are right.
//!
//! # Leaves that missed the group
//! What a leaf holds of a group that it missed is never trusted, and not even read. A read repair leaves such
//! a leaf alone ([`Missed::Left`]). A scan writes its part ([`Missed::Written`]); a resilver writes nothing
//! else ([`Missed::OnlyWritten`]).
//!
//! # What is left alone
//! - Leaves that cannot be used now, or that are gone.
//! - Unused sectors of a raidz block.
//! - Removed vdevs: their pieces are rewritten in their new places, as far as they are whole sectors there.
//!
//! A part that cannot be written counts as a write error of its leaf. The leaf does not miss any data that it
//! had before, so its dirty time log stays as it is.

use std::time::Instant;

use futures_util::future::join_all;
use ondisk::{ByteOffset, Guid, Txg};

use super::super::health::is_gone;
use super::super::read::{Load, MAX_DEPTH};
use super::super::stats::{Queue, Transfer};
use super::super::{Kind, Vdev, VdevTree};
use super::plan::{Part, Plan};
use super::{Piece, Until};

/// What becomes of the parts of leaves that missed the group of a block.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Missed {
    /// They are left as they are.
    #[default]
    Left,
    /// They are written; the parts of other leaves are compared.
    Written,
    /// They are written; the parts of other leaves are left as they are.
    OnlyWritten,
}

/// A block whose right bytes are known, in one of its places.
#[derive(Debug, Clone)]
pub(crate) struct Known<'a> {
    /// The place, and the bytes.
    pub piece: Piece,
    /// The group in which it was written there.
    pub birth: Txg,
    /// Leaves whose errors were counted when the block was read.
    pub counted: &'a [Guid],
    /// What becomes of leaves that missed the group.
    pub missed: Missed,
}

/// The result of the repair of one place of a block.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Healed {
    /// Bytes that were rewritten.
    pub bytes: u64,
    /// The leaf of each part that should have been rewritten and could not be.
    pub failed: Vec<Guid>,
}

/// The bytes of a leaf in the place of a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Holds {
    Right,
    Wrong,
    Unreadable,
    /// The leaf cannot be used.
    Nothing,
}

impl VdevTree {
    /// Rewrites the parts that differ. `txg` is the open group: a failed flush concerns the writes of that
    /// group.
    pub(crate) async fn heal(&self, known: Known<'_>, txg: Txg) -> Healed {
        let (stale, parts) = self.parts_of(known.piece, known.birth);
        let (mut wrong, parts) = match known.missed {
            Missed::Left => (Vec::new(), parts),
            Missed::Written => (stale, parts),
            Missed::OnlyWritten => (stale, Vec::new()),
        };
        let copied = wrong.len();
        let held = join_all(parts.iter().map(holds)).await;
        for (part, held) in parts.into_iter().zip(held) {
            let (leaf, is_counted) = (part.owner(), known.counted.contains(&part.owner().guid));
            let is_wrong = match held {
                Holds::Right | Holds::Nothing => continue,
                Holds::Wrong => true,
                Holds::Unreadable => false,
            };
            if !is_counted {
                let is_new = self.report_found(leaf, is_wrong, part.position, part.data.len() as u64);
                match (is_wrong, known.missed) {
                    (true, Missed::Left) => leaf.errors.count_checksum(is_new),
                    // What a scan finds and mends is no reason to give the device up.
                    (true, _) => leaf.errors.count_checksum_of_scan(is_new),
                    (false, _) => leaf.errors.count_read(is_new),
                }
            }
            // A leaf may have been taken away meanwhile.
            if leaf.status().is_readable() && part.leaf.status().is_readable() {
                wrong.push(part);
            }
        }
        let failed = self.perform(txg, &wrong, Until::Taken).await;
        let mut healed = Healed::default();
        for (index, part) in wrong.iter().enumerate() {
            let bytes = part.data.len() as u64;
            if failed.contains_key(&index) {
                healed.failed.push(part.owner().guid);
                continue;
            }
            if known.missed != Missed::Left {
                part.owner().stats.count_scanned(bytes);
            }
            if index >= copied {
                part.owner().stats.count_healed(bytes);
            }
            healed.bytes += bytes;
        }
        healed
    }

    /// Writes the parts of leaves that missed the group of a piece, for many pieces at a time, so that
    /// neighbours become one transfer. Each comes with its group. Returns the bytes that were written, and
    /// the leaf and the group of each part that could not be.
    pub(crate) async fn copy_missed(&self, pieces: Vec<(Piece, Txg)>, txg: Txg) -> (u64, Vec<(Guid, Txg)>) {
        let (mut plan, mut births) = (Plan::of_missed(self), Vec::new());
        for (piece, birth) in pieces {
            for piece in self.present_places(piece) {
                plan.missed_piece(piece, birth);
            }
            births.resize(plan.parts().len(), birth);
        }
        let parts = plan.into_parts();
        let failed = self.perform(txg, &parts, Until::Taken).await;
        let (mut bytes, mut lacking) = (0, Vec::new());
        for (index, (part, birth)) in parts.iter().zip(births).enumerate() {
            if failed.contains_key(&index) {
                lacking.push((part.owner().guid, birth));
            } else {
                part.owner().stats.count_scanned(part.data.len() as u64);
                bytes += part.data.len() as u64;
            }
        }
        (bytes, lacking)
    }

    /// The parts of a piece: those of leaves that missed its group, and the others.
    fn parts_of(&self, piece: Piece, birth: Txg) -> (Vec<Part<'_>>, Vec<Part<'_>>) {
        let mut plan = Plan::new(self, birth);
        for piece in self.present_places(piece) {
            // Not judged: a part that cannot be written now is missing from no leaf that had it.
            let _ = plan.piece(piece);
        }
        let parts = plan.into_parts().into_iter().filter(|part| !part.filler);
        parts.partition(|part| part.owner().is_stale(birth.get()))
    }

    /// A piece, or the present places of its bytes on a removed vdev. Bytes that are not whole sectors there
    /// are left out.
    fn present_places(&self, piece: Piece) -> Vec<Piece> {
        let mut present = Vec::new();
        let mut pending = vec![(piece, 0)];
        while let Some((piece, moves)) = pending.pop() {
            let Some(top) = self.top(piece.top) else { continue };
            let Kind::Indirect(moved) = &top.kind else {
                present.push(piece);
                continue;
            };
            let Some(moved) = moved.get().filter(|_| moves < MAX_DEPTH) else { continue };
            let source = ByteOffset(piece.offset_bytes);
            let Ok(places) = moved.mapping.pieces(source, piece.data.len() as u64) else { continue };
            let mut start = 0;
            for place in places {
                // At most as long as the piece.
                let length = place.length_bytes as usize;
                let sector = self.top(place.vdev.get()).and_then(|top| 1u64.checked_shl(top.ashift));
                let is_whole = sector
                    .is_some_and(|sector| (place.offset.get() | place.length_bytes).is_multiple_of(sector));
                if is_whole && start + length <= piece.data.len() {
                    let data = piece.data.slice(start..start + length);
                    let (top, offset_bytes) = (place.vdev.get(), place.offset.get());
                    pending.push((Piece { top, offset_bytes, data }, moves + 1));
                }
                start += length;
            }
        }
        present
    }
}

impl<'a> Part<'a> {
    /// The leaf on which its errors are counted.
    fn owner(&self) -> &'a Vdev {
        self.spare.unwrap_or(self.leaf)
    }
}

async fn holds(part: &Part<'_>) -> Holds {
    let size = part.data.len();
    let _load = Load::on(part.leaf, Queue::Scrub);
    let started = Instant::now();
    match part.device.read(part.position, size).await {
        Ok(bytes) => {
            part.leaf.stats.count(Transfer::Read, size as u64, started);
            part.leaf.stats.count(Transfer::Scrub, size as u64, started);
            let right: &[u8] = &part.data;
            if bytes[..] == *right { Holds::Right } else { Holds::Wrong }
        }
        Err(error) if is_gone(&error) => {
            part.leaf.errors.count_read(true);
            Holds::Nothing
        }
        Err(_) => Holds::Unreadable,
    }
}
