//! Blocks of files that become references to equal blocks of other files, also of another filesystem of the
//! pool.
//!
//! Only how content is stored changes: bytes, size, times and all other attributes stay. So the intent log
//! has no record of it. After a crash without the group the blocks are as they were, with the same content.
//!
//! The locks are those of a clone ([`super::clone`]), but only the ranges of the blocks are locked, as no
//! file gets another block size. With two filesystems, that with the lower number of its object set is locked
//! first, as volumes do it.

use std::sync::Arc;

use ondisk::ObjectId;

use super::LiveZpl;
use crate::dmu::{Shared, StoredBlocks, pieces_of};
use crate::error::{Error, Result};
use crate::range_locks::Access;

/// Blocks of a file, from one of them on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileBlocks {
    /// The file.
    pub file: ObjectId,
    /// The number of the first one.
    pub first: u64,
}

impl LiveZpl {
    /// The size of the blocks of a regular file, and those of them that may be shared; see
    /// [`LiveObject::stored_blocks`](crate::dmu::LiveObject::stored_blocks).
    ///
    /// # Errors
    /// It is no regular file.
    pub async fn stored_blocks(&self, from: FileBlocks, most: u64) -> Result<(u64, StoredBlocks)> {
        let object = self.content(from.file).await?.object;
        Ok((object.block_size(), object.stored_blocks(from.first, most).await?))
    }

    /// Makes `count` blocks of a file references to those of a file of `source` that are equal. Nothing else
    /// of either file changes, and blocks that differ stay as they are.
    ///
    /// # Errors
    /// Filesystems of different pools, a pool without block cloning, ranges that overlap, files that may not
    /// be changed.
    pub async fn share_blocks(
        &self,
        to: FileBlocks,
        source: &Self,
        from: FileBlocks,
        count: u64,
    ) -> Result<Shared> {
        if !Arc::ptr_eq(&self.txgs, &source.txgs) || !self.objset.can_clone() {
            return Err(Error::Unsupported(format!(
                "objset {}: blocks can only be shared within a pool with the feature block_cloning",
                self.objset.id()
            )));
        }
        let block_size = self.content(to.file).await?.object.block_size();
        let bytes = |first: u64| (first.saturating_mul(block_size), count.saturating_mul(block_size));
        let ((into, length), (of, _)) = (bytes(to.first), bytes(from.first));
        let (into, of) = (self.range(to.file, into, length)?, source.range(from.file, of, length)?);
        let is_same_file = self.objset.id() == source.objset.id() && to.file == from.file;
        if is_same_file && of.start < into.end && into.start < of.end {
            return Err(self.refuse(format!("object {}", to.file), super::errno::EINVAL));
        }
        let mut all = Shared::default();
        for (after, count) in pieces_of(count, block_size) {
            let of = |blocks: FileBlocks| FileBlocks { first: blocks.first + after, ..blocks };
            all = all.plus(self.share_piece(of(to), source, of(from), (count, block_size)).await?);
        }
        Ok(all)
    }

    async fn share_piece(
        &self,
        to: FileBlocks,
        source: &Self,
        from: FileBlocks,
        (count, block_size): (u64, u64),
    ) -> Result<Shared> {
        let bytes = |blocks: FileBlocks| blocks.first * block_size..(blocks.first + count) * block_size;
        let (into, of) = (bytes(to), bytes(from));
        self.warm_blocks(to, count).await?;
        source.warm_blocks(from, count).await?;
        let place = |zpl: &Self, blocks: FileBlocks| (zpl.objset.id(), blocks.file, blocks.first);
        let _held = match place(source, from) < place(self, to) {
            true => [
                source.locks.content(from.file, of, Access::Shared).await,
                self.locks.content(to.file, into.clone(), Access::Alone).await,
            ],
            false => [
                self.locks.content(to.file, into.clone(), Access::Alone).await,
                source.locks.content(from.file, of, Access::Shared).await,
            ],
        };
        let _described = self.locks.describe(to.file, Access::Shared).await;
        let (target, other) = (self.content(to.file).await?, source.content(from.file).await?);
        target.require_writable(into.start)?;
        if target.object.block_size() != block_size || other.object.block_size() != block_size {
            return Ok(Shared { different: count, ..Shared::default() });
        }
        let (equal, shared) = target.object.equal_blocks(to.first, &other.object, from.first, count).await?;
        if equal.is_empty() {
            return Ok(shared);
        }
        target.object.prepare_write(into.clone()).await?;
        let dirtied = |txg| {
            let cloned = target.object.newly_dirty_by_clone(txg, &into, block_size);
            cloned.plus(target.object.newly_dirty_description(txg))
        };
        let tx = self.begin(dirtied).await?;
        target.object.put_equal(&tx, &equal)?;
        Ok(shared)
    }

    /// Reads blocks, so that no range is locked while a device is waited for.
    async fn warm_blocks(&self, blocks: FileBlocks, count: u64) -> Result<()> {
        let object = self.content(blocks.file).await?.object;
        for id in blocks.first..blocks.first.saturating_add(count) {
            object.warm(id).await?;
        }
        Ok(())
    }
}
