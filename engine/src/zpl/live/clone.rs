//! Ranges of files that share their blocks with the ranges of which they are copies.
//!
//! # The idea
//! A copy of whole blocks need not move data: the blocks of the target become references to the stored blocks
//! of the source, which are counted when the group is written (`crate::tables`, feature `block_cloning`).
//! Other data are copied as usual: blocks that were written since the last commit and are not stored yet,
//! parts of blocks, files with different block sizes, deduplicated blocks whose entries were pruned.
//!
//! # Rules
//! - Offsets are at the beginnings of blocks. The end is too, unless it is the end of the source and not
//!   before the end of the target.
//! - Both files have the same block size; a target without content takes the source's.
//! - Both ranges are locked while pointers are copied from one to the other, so that no change of the source
//!   comes in between. The range of the file with the lower number, or the lower range, is locked first. Code
//!   that holds one range of content and waits for another must lock in this order.
//! - The intent log contains the pointers; or the data, as for a write, if a pointer would be of no use after
//!   a crash. OpenZFS applies pointers to a file whose blocks are not larger than those that they point to.
//!
//! Source of the facts: OpenZFS 2.3 `zfs_vnops.c` (`zfs_clone_range`), `dmu.c` (`dmu_brt_clone`).

use ondisk::ObjectId;
use ondisk::accounting::Counted;
use ondisk::blkptr::Blkptr;
use ondisk::sa::Attr;
use ondisk::zil::Record;

use super::LiveZpl;
use super::content::stamped;
use super::nodes::Node;
use crate::dmu::{Piece, Pieces};
use crate::error::Result;
use crate::range_locks::Access;
use crate::txg::Tx;
use crate::zpl::Time;

/// The most bytes that are cloned in one group.
const PIECE_BYTES: u64 = 16 << 20;
/// The most blocks of these: each has an entry in the block reference table.
const PIECE_BLOCKS: u64 = 512;
/// The number of pointers in one record of the intent log.
const RECORD_BLOCKS: usize = 512;
/// The same in a record of OpenZFS, which fills a block of the log.
const MAX_LOGGED_BLOCKS: u64 = 1024;

/// The blocks to which a record of the intent log has pointers.
#[derive(Debug, Clone, Copy)]
pub(super) struct LoggedClone<'a> {
    pub(super) object: ObjectId,
    pub(super) offset: u64,
    pub(super) length: u64,
    pub(super) block_bytes: u64,
    pub(super) blocks: &'a [Blkptr],
}

/// A requested copy.
#[derive(Debug, Clone, Copy)]
pub(super) struct Copy {
    pub(super) from: ObjectId,
    pub(super) from_offset: u64,
    pub(super) to: ObjectId,
    pub(super) to_offset: u64,
    pub(super) length: u64,
}

impl LiveZpl {
    /// Makes the beginning of a range share the blocks of another, and returns how many bytes; the caller
    /// copies the rest.
    pub(super) async fn clone_range(&self, copy: Copy) -> Result<u64> {
        let mut done = 0;
        while self.objset().can_clone() && done < copy.length {
            let rest = Copy {
                from_offset: copy.from_offset + done,
                to_offset: copy.to_offset + done,
                length: copy.length - done,
                ..copy
            };
            match self.clone_piece(rest).await? {
                0 => break,
                here => done += here,
            }
        }
        Ok(done)
    }

    async fn clone_piece(&self, copy: Copy) -> Result<u64> {
        let of = self.range(copy.from, copy.from_offset, copy.length)?;
        let whole = 0..super::locks::CONTENT_END;
        // The target may get another block size, which is a change of all of it.
        let _held = if copy.from == copy.to {
            [Some(self.locks.whole(copy.to).await), None]
        } else if copy.from < copy.to {
            let source = self.locks.content(copy.from, of, Access::Shared).await;
            [Some(source), Some(self.locks.content(copy.to, whole, Access::Alone).await)]
        } else {
            let target = self.locks.content(copy.to, whole, Access::Alone).await;
            [Some(target), Some(self.locks.content(copy.from, of, Access::Shared).await)]
        };
        let source = self.content(copy.from).await?;
        let _described = self.locks.describe(copy.to, Access::Alone).await;
        let target = self.content(copy.to).await?;
        target.require_writable(copy.to_offset)?;
        self.require_quota(target.owners()?, &[Counted::Bytes]).await?;
        let block_size = source.object.block_size();
        let Some(length) = cloneable(&copy, &source, &target)? else { return Ok(0) };
        let pieces = source.object.pieces(copy.from_offset / block_size, length.div_ceil(block_size)).await?;
        let length = length.min(pieces.len() as u64 * block_size);
        if length == 0 {
            return Ok(0);
        }
        let was_block_size = target.object.block_size();
        let tx = self.refer(&target, (copy.to_offset, length), block_size, &pieces).await?;
        // Uncommitted blocks are not there after a crash.
        let newest = pieces.all().iter().map(|piece| piece.pointer().physical_birth()).max();
        let is_committed = newest.is_none_or(|newest| newest <= self.txgs.synced_txg());
        if pieces.are_copied() || !is_committed || was_block_size > block_size {
            self.log_written(&tx, &target, copy.to_offset, length)?;
            return Ok(length);
        }
        let mut offset = copy.to_offset;
        for pieces in pieces.all().chunks(RECORD_BLOCKS) {
            let length = (pieces.len() as u64 * block_size).min(copy.to_offset + length - offset);
            let blocks = pieces.iter().map(Piece::pointer).collect();
            let object = target.id();
            let record = Record::CloneRange { object, offset, length, block_bytes: block_size, blocks };
            self.log_object(&tx, &target, &record)?;
            offset += length;
        }
        Ok(length)
    }

    /// Makes the blocks of a range those in the pieces, and returns the group. The range ends with a block,
    /// or is the end of the file.
    async fn refer(
        &self,
        target: &Node,
        (offset, length): (u64, u64),
        block_size: u64,
        pieces: &Pieces,
    ) -> Result<Tx> {
        let range = offset..offset + length;
        target.object.prepare_write(range.clone()).await?;
        let dirtied = |txg| {
            let content = target.object.newly_dirty_by_pieces(txg, &range, block_size, pieces);
            content.plus(target.object.newly_dirty_description(txg))
        };
        let tx = self.begin(dirtied).await?;
        if target.object.block_size() != block_size {
            target.object.set_block_size(&tx, block_size as u32).await?;
        }
        target.object.put_pieces(&tx, offset, pieces).await?;
        let values = stamped(range.end, target.flags()?.0, Time::now());
        let values = values.number(Attr::Size, range.end.max(target.number(Attr::Size)?));
        self.update(&target.object, &tx, values).await?;
        Ok(tx)
    }

    /// Applies a record of the log by sharing the blocks that it points to. Returns false, without a change,
    /// if they cannot be shared: then their contents have to be written.
    pub(super) async fn refer_as_logged(&self, logged: LoggedClone<'_>) -> Result<bool> {
        let LoggedClone { object, offset, length, block_bytes, blocks } = logged;
        let can_be_shared = |bp: &Blkptr| {
            let has_key = !bp.is_embedded() && bp.uses_crypt() == self.objset().is_encrypted();
            let is_of_this_key = has_key || (bp.is_embedded() && !self.objset().is_encrypted());
            bp.is_hole() || (is_of_this_key && !bp.is_redacted() && bp.lsize().get() == block_bytes)
        };
        let fits = block_bytes > 0
            && length.div_ceil(block_bytes.max(1)) == blocks.len() as u64
            && blocks.len() as u64 <= MAX_LOGGED_BLOCKS
            && self.objset().can_clone()
            && blocks.iter().all(can_be_shared);
        if !fits {
            return Ok(false);
        }
        self.range(object, offset, length)?;
        let _content = self.locks.whole(object).await;
        let _described = self.locks.describe(object, Access::Alone).await;
        let target = self.content(object).await?;
        let size = target.number(Attr::Size)?;
        let is_whole = length.is_multiple_of(block_bytes) || offset + length >= size;
        if !is_whole || !takes(&target, offset, length, block_bytes)? {
            return Ok(false);
        }
        let mut pieces = Vec::with_capacity(blocks.len());
        for (id, bp) in (offset / block_bytes..).zip(blocks) {
            pieces.push(match bp {
                hole if hole.is_hole() => Piece::Hole,
                embedded if embedded.is_embedded() => {
                    Piece::Data(target.object.read_cloned(embedded, id).await?, *embedded)
                }
                stored => Piece::Reference(*stored),
            });
        }
        let Some(pieces) = Pieces::logged(self.objset(), pieces).await? else { return Ok(false) };
        let tx = self.refer(&target, (offset, length), block_bytes, &pieces).await?;
        self.log_written(&tx, &target, offset, length)?;
        Ok(true)
    }
}

/// How much of a copy can be whole blocks, within one group.
fn cloneable(copy: &Copy, source: &Node, target: &Node) -> Result<Option<u64>> {
    let block_size = source.object.block_size();
    let (source_size, target_size) = (source.number(Attr::Size)?, target.number(Attr::Size)?);
    let length = copy.length.min(source_size.saturating_sub(copy.from_offset));
    if !copy.from_offset.is_multiple_of(block_size) || !takes(target, copy.to_offset, length, block_size)? {
        return Ok(None);
    }
    let piece = (PIECE_BYTES / block_size).clamp(1, PIECE_BLOCKS) * block_size;
    if length > piece {
        return Ok(Some(piece));
    }
    let reaches_the_end =
        copy.from_offset + length == source_size && copy.to_offset.saturating_add(length) >= target_size;
    let length = if reaches_the_end { length } else { length - length % block_size };
    Ok(Some(length).filter(|length| *length > 0))
}

/// Whether a file can have blocks of this size in a range: it has such blocks, or has no content yet.
fn takes(target: &Node, offset: u64, length: u64, block_size: u64) -> Result<bool> {
    let may_take = || u64::from(target.object.fitting_block_size(block_size as u32)) == block_size;
    let is_empty = target.number(Attr::Size)? == 0 && target.object.end() == 0;
    let same = target.object.block_size() == block_size || (is_empty && may_take());
    // With a size that is no power of two, there is only one block.
    let one = block_size.is_power_of_two() || (offset == 0 && length <= block_size);
    Ok(same && one && offset.is_multiple_of(block_size) && length > 0)
}
