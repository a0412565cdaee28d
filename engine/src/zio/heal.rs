//! Rewriting the places of a block that hold wrong bytes: all copies, and the headers and members of gangs.
//!
//! The right bytes come from any place whose bytes satisfy the block's checksum. A block without a checksum
//! is never rewritten, because nothing shows which of two contents is right. The contents of a gang's members
//! follow from the whole block, so that one copy of a gang can repair another. Members are checked by their
//! own checksums before they are trusted.
//!
//! Reads here have no waiting reader. Only the vdev tree counts failures, for leaves whose errors the reader
//! did not count ([`crate::vdev::write`]).

use device::SharedBuf;
use futures_util::future::BoxFuture;
use ondisk::blkptr::{Blkptr, ChecksumType};
use ondisk::{Guid, Txg};

use super::physical::How;
use crate::Bookmark;
use crate::store::Store;
use crate::vdev::write::{Known, Missed, Piece};

/// The parameters of the repair of a block.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Healing<'a> {
    /// The open group.
    pub txg: Txg,
    /// Leaves whose errors were counted when the block was read.
    pub counted: &'a [Guid],
    /// What becomes of leaves that missed the block's group.
    pub missed: Missed,
}

/// The result of the repair of a block.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Repaired {
    /// Bytes that were rewritten.
    pub bytes: u64,
    /// Parts that should have been rewritten and could not be: the leaf, and the group of the part.
    pub failed: Vec<(Guid, Txg)>,
    /// No place had right bytes.
    pub is_unreadable: bool,
}

impl Store {
    /// Rewrites the wrong places of the block at this bookmark. The block must stay allocated until this is
    /// done.
    pub(crate) async fn heal(&self, bp: &Blkptr, at: &Bookmark, healing: Healing<'_>) -> Repaired {
        // Of bytes without a checksum only those are known to be right that no leaf with the group lacks.
        let has_checksum = has_checksum(bp);
        let missed = if has_checksum { healing.missed } else { Missed::OnlyWritten };
        let is_judged = has_checksum || healing.missed != Missed::Left;
        let healing = Healing { missed, ..healing };
        if bp.is_hole() || bp.is_embedded() || !is_judged {
            return Repaired::default();
        }
        let how = How { speculative: true, at: Some(*at), ..How::default() };
        let Ok(right) = self.read_copies(bp, &how).await else {
            return Repaired { is_unreadable: true, ..Repaired::default() };
        };
        let mut done = Repaired::default();
        self.heal_known(bp, right.into(), &how.counting(bp), healing, &mut done).await;
        done
    }

    /// Writes blocks whose right bytes are these to the leaves that missed their groups. The blocks must stay
    /// allocated until this is done, and have no gangs.
    pub(crate) async fn copy_missed(&self, blocks: Vec<(Blkptr, SharedBuf)>, txg: Txg) -> Repaired {
        let pieces = blocks.iter().flat_map(|(bp, data)| {
            bp.dvas().filter(|dva| self.top_for(dva).is_ok()).map(|dva| {
                let (top, offset_bytes) = (dva.vdev.get(), dva.offset.get());
                (Piece { top, offset_bytes, data: data.clone() }, bp.physical_birth())
            })
        });
        let (bytes, failed) = self.vdevs.copy_missed(pieces.collect(), txg).await;
        Repaired { bytes, failed, is_unreadable: false }
    }

    /// Rewrites the wrong places of a block whose right bytes are these.
    fn heal_known<'a>(
        &'a self,
        bp: &'a Blkptr,
        right: SharedBuf,
        how: &'a How<'a>,
        healing: Healing<'a>,
        done: &'a mut Repaired,
    ) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let mut gang = None;
            for dva in bp.dvas() {
                let Ok(top) = self.top_for(&dva) else { continue };
                if !dva.gang {
                    self.heal_place(bp, &dva, right.clone(), healing, done).await;
                } else if gang.is_none() {
                    // All copies of a header are the same.
                    gang = self.whole_gang_header(bp, &dva, top, how).await.ok();
                }
            }
            let Some((members, header)) = gang else { return };
            let header = SharedBuf::from(header);
            for dva in bp.dvas().filter(|dva| dva.gang && self.top_for(dva).is_ok()) {
                self.heal_place(bp, &dva, header.clone(), healing, done).await;
            }
            let mut start = 0;
            for member in &members {
                // The sizes were compared with the block's.
                let end = start + member.psize().get() as usize;
                if end > right.len() {
                    return;
                }
                let part = right.slice(start..end);
                let is_right = match has_checksum(member) {
                    true => self.verify(member, &part).is_ok(),
                    // Parts that are not compared need no proof: the whole was read where nothing is missing.
                    false => healing.missed == Missed::OnlyWritten,
                };
                if is_right {
                    self.heal_known(member, part, &how.deeper(), healing, done).await;
                }
                start = end;
            }
        })
    }

    async fn heal_place(
        &self,
        bp: &Blkptr,
        dva: &ondisk::blkptr::Dva,
        data: SharedBuf,
        healing: Healing<'_>,
        done: &mut Repaired,
    ) {
        let piece = Piece { top: dva.vdev.get(), offset_bytes: dva.offset.get(), data };
        let birth = bp.physical_birth();
        let known = Known { piece, birth, counted: healing.counted, missed: healing.missed };
        let healed = self.vdevs.heal(known, healing.txg).await;
        done.bytes += healed.bytes;
        done.failed.extend(healed.failed.into_iter().map(|leaf| (leaf, birth)));
    }
}

fn has_checksum(bp: &Blkptr) -> bool {
    !matches!(bp.checksum_type(), ChecksumType::Off | ChecksumType::NoParity)
}
