//! Ranges of volumes that share their blocks with the ranges of which they are copies.
//!
//! The rules are those of files (`zpl::live::clone`): whole blocks, of volumes with blocks of the same size
//! in the same pool. The intent log has the data, as of a write, and only where stable data are asked for
//! before the group is committed: volumes of older software know no other records.

use std::sync::Arc;

use super::{CONTENT, LiveZvol};
use crate::Result;
use crate::dmu::{Dirtied, Pieces};
use crate::txg::Tx;

/// The most bytes that are cloned in one group.
const PIECE_BYTES: u64 = 16 << 20;
/// The most blocks of these: each has an entry in the block reference table.
const PIECE_BLOCKS: u64 = 512;

impl LiveZvol {
    /// Makes the beginning of a range share the blocks of a range of another volume, or of this one, and
    /// returns how many bytes; the caller copies the rest. The ranges do not overlap.
    ///
    /// What was written to the source since its last commit is waited for once.
    pub async fn clone_range_from(&self, source: &Self, from: u64, to: u64, length: u64) -> Result<u64> {
        source.check(from, length)?;
        self.check(to, length)?;
        let block_size = self.block_size;
        let is_cloneable = Arc::ptr_eq(&self.txgs, &source.txgs)
            && self.objset.can_clone()
            && self.objset.may_share_with(&source.objset)
            && source.block_size == block_size
            && block_size.is_power_of_two()
            && from.is_multiple_of(block_size)
            && to.is_multiple_of(block_size);
        let length = if is_cloneable { length - length % block_size } else { 0 };
        let most = (PIECE_BYTES / block_size).clamp(1, PIECE_BLOCKS) * block_size;
        let (mut done, mut has_waited) = (0, false);
        while done < length {
            let here = (length - done).min(most);
            match self.clone_piece(source, from + done, to + done, here).await? {
                0 if has_waited => break,
                0 => {
                    has_waited = true;
                    self.txgs.wait_synced(self.txgs.open_txg()).await?;
                }
                cloned => done += cloned,
            }
        }
        Ok(done)
    }

    /// Clones what fits a group; nothing if the first block is not stored yet.
    async fn clone_piece(&self, source: &Self, from: u64, to: u64, length: u64) -> Result<u64> {
        // All lock in the same order: by volume, then by place.
        let is_source_first = (source.objset.id().get(), from) < (self.objset.id().get(), to);
        let _locked = match is_source_first {
            true => [source.lock(from, length).await?, self.lock(to, length).await?],
            false => [self.lock(to, length).await?, source.lock(from, length).await?],
        };
        let pieces = source.content.pieces(from / self.block_size, length / self.block_size).await?;
        let length = pieces.len() as u64 * self.block_size;
        if length == 0 {
            return Ok(0);
        }
        let tx = self.begin_cloning(to, length, &pieces).await?;
        self.content.put_pieces(&tx, to, &pieces).await?;
        self.zil.note_write(&tx, CONTENT.get(), to, length);
        Ok(length)
    }

    /// Holds the open group for a range that becomes these pieces, or references where there are none.
    pub(super) async fn begin_cloning(&self, offset: u64, length: u64, pieces: &Pieces) -> Result<Tx> {
        let range = offset..offset + length;
        self.content.prepare_write(range.clone()).await?;
        let dirtied = |txg| {
            let dirtied = self.content.newly_dirty_by_pieces(txg, &range, self.block_size, pieces);
            (dirtied, dirtied.data_bytes())
        };
        let require = |txg, dirtied: Dirtied| self.require_room(txg, &dirtied);
        self.txgs.begin_dirtying(self.objset.id(), dirtied, require).await
    }
}
