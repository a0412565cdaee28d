//! Blocks of volumes that become references to equal blocks of other volumes, or of the same one.
//!
//! The bytes of a volume stay, so that its intent log has no record of it: after a crash without the group
//! its blocks are as they were, with the same bytes. The rest is as for files (`zpl::live::share`).

use std::sync::Arc;

use super::LiveZvol;
use crate::dmu::{Pieces, Shared, StoredBlocks, pieces_of};
use crate::error::{Error, Result};

impl LiveZvol {
    /// The blocks from `first` on that may be shared; see
    /// [`LiveObject::stored_blocks`](crate::dmu::LiveObject::stored_blocks).
    pub async fn stored_blocks(&self, first: u64, most: u64) -> Result<StoredBlocks> {
        self.content.stored_blocks(first, most).await
    }

    /// Makes `count` blocks from `to` on references to those of `source` from `from` on that are equal. Those
    /// that differ stay as they are.
    ///
    /// # Errors
    /// Volumes of different pools, a pool without block cloning, ranges that overlap or lie beyond the end.
    pub async fn share_blocks(&self, to: u64, source: &Self, from: u64, count: u64) -> Result<Shared> {
        let block_size = self.block_size;
        if !Arc::ptr_eq(&self.txgs, &source.txgs) || !self.objset.can_clone() {
            return Err(Error::Unsupported(format!(
                "volume {}: blocks can only be shared within a pool with the feature block_cloning",
                self.objset.id()
            )));
        }
        if source.block_size != block_size {
            return Ok(Shared { different: count, ..Shared::default() });
        }
        let [into, of] = [to, from].map(|first| first.saturating_mul(block_size));
        let length = count.saturating_mul(block_size);
        self.check(into, length)?;
        source.check(of, length)?;
        if self.objset.id() == source.objset.id() && of < into + length && into < of + length {
            return Err(Error::Invalid(format!("volume {}: blocks that overlap", self.objset.id())));
        }
        let mut all = Shared::default();
        for (after, count) in pieces_of(count, block_size) {
            all = all.plus(self.share_piece(to + after, source, from + after, count).await?);
        }
        Ok(all)
    }

    async fn share_piece(&self, to: u64, source: &Self, from: u64, count: u64) -> Result<Shared> {
        let [into, of, length] = [to, from, count].map(|blocks| blocks * self.block_size);
        // Read before, so that no range is locked while a device is waited for.
        for (volume, first) in [(self, to), (source, from)] {
            for id in first..first + count {
                volume.content.warm(id).await?;
            }
        }
        // All lock in the same order: by volume, then by place.
        let _locked = match (source.objset.id(), of) < (self.objset.id(), into) {
            true => [source.lock(of, length).await?, self.lock(into, length).await?],
            false => [self.lock(into, length).await?, source.lock(of, length).await?],
        };
        let (equal, shared) = self.content.equal_blocks(to, &source.content, from, count).await?;
        if !equal.is_empty() {
            let tx = self.begin_cloning(into, length, &Pieces::default()).await?;
            self.content.put_equal(&tx, &equal)?;
        }
        Ok(shared)
    }
}
