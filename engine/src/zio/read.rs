//! From a block pointer to its block: the single entry point of the block layer.

use std::sync::Arc;
use std::time::Instant;

use codec::crypt::DatasetKey;
use ondisk::blkptr::{Blkptr, Protection};
use ondisk::dmu::DmuType;
use ondisk::{Level, ObjsetId};

use super::{decode_embedded, decode_keeping};
use crate::Bookmark;
use crate::cache::arc::Key;
use crate::cache::what_if::Read;
use crate::cache::{Block, ForDevice, Loaded, Retain, kept_bytes};
use crate::error::{Error, Result};
use crate::store::Store;
use crate::tunables;

impl Store {
    /// The block that `bp` points to: from the ARC, or read, verified, decrypted and decompressed.
    ///
    /// A hole reads as zeroes of its logical size. `at` identifies the block, for error messages and the
    /// choice of the key. When the block is cached, the future completes in its first poll without
    /// allocating.
    ///
    /// In an encrypted dataset whose key is not loaded, object sets and indirect blocks can be read; other
    /// blocks return [`Error::KeyNotLoaded`].
    pub async fn read_block(&self, bp: &Blkptr, at: &Bookmark) -> Result<Block> {
        self.read_retaining(bp, at, Retain::In, true).await
    }

    /// Like [`Store::read_block`]; the caller also says how much of the block the ARC keeps afterwards, and
    /// whether a cache device may get it then.
    pub(crate) async fn read_retaining(
        &self,
        bp: &Blkptr,
        at: &Bookmark,
        retain: Retain,
        may_feed: bool,
    ) -> Result<Block> {
        if bp.is_hole() {
            return Ok(Block::zero(bp.lsize().to_usize().unwrap_or(usize::MAX)));
        }
        if let Some(embedded) = bp.embedded() {
            return decode_embedded(&embedded, at);
        }
        if retain != Retain::Ahead {
            self.cache.what_if().note(self.cache_id, at, || Read {
                bytes: kept_bytes(bp.lsize().get(), bp.psize().get()),
                stored_bytes: bp.psize().get(),
                is_metadata: bp.is_metadata(),
            });
        }
        let key = self.key_for(bp, at)?;
        self.read_cached(bp, at, key, retain, may_feed).await
    }

    /// The key that a block needs, if it needs one.
    fn key_for(&self, bp: &Blkptr, at: &Bookmark) -> Result<Option<Arc<DatasetKey>>> {
        if !bp.uses_crypt() {
            return Ok(None);
        }
        match self.keystore.get(ObjsetId(at.objset)) {
            None if !is_readable_without_key(bp) => Err(Error::KeyNotLoaded { at: *at }),
            key => Ok(key),
        }
    }

    /// Like [`Store::read_block`], for callers that look at the structure of datasets whose keys are not
    /// loaded. Plaintext is not authenticated, and the private parts of dnodes are ciphertext. Encrypted data
    /// return [`Error::KeyNotLoaded`].
    pub async fn read_block_without_key(&self, bp: &Blkptr, at: &Bookmark) -> Result<Block> {
        match bp.protection() {
            Protection::Encrypted if bp.dmu_type() != DmuType::DNODE => Err(Error::KeyNotLoaded { at: *at }),
            _ if bp.is_hole() || bp.is_embedded() => self.read_block(bp, at).await,
            _ => self.read_cached(bp, at, None, Retain::In, true).await,
        }
    }

    /// By the ARC; where the caller waits for devices, until it is read.
    async fn read_cached(
        &self,
        bp: &Blkptr,
        at: &Bookmark,
        key: Option<Arc<DatasetKey>>,
        retain: Retain,
        may_feed: bool,
    ) -> Result<Block> {
        let mut failed = false;
        loop {
            match self.try_cached(bp, at, key.clone(), retain, may_feed).await {
                Err(error) => self.until_readable(error).await?,
                Ok(block) => {
                    if failed {
                        self.damage.mended(at, bp.physical_birth());
                    }
                    return Ok(block);
                }
            }
            failed = true;
        }
    }

    async fn try_cached(
        &self,
        bp: &Blkptr,
        at: &Bookmark,
        key: Option<Arc<DatasetKey>>,
        retain: Retain,
        may_feed: bool,
    ) -> Result<Block> {
        let cache_key = self.cache_key(bp, key.is_some());
        if let Some(block) = self.cache.get(&cache_key, retain) {
            return Ok(block);
        }
        Box::pin(
            self.cache.get_or_load(cache_key, retain, || async move {
                self.load(bp, at, key, retain, may_feed).await
            }),
        )
        .await
    }

    /// Reads a block from a cache device or from the pool.
    async fn load(
        &self,
        bp: &Blkptr,
        at: &Bookmark,
        key: Option<Arc<DatasetKey>>,
        retain: Retain,
        may_feed: bool,
    ) -> Result<Loaded> {
        // Errors that are made on demand are those of the pool's devices.
        if !self.vdevs.injections().has_blocks()
            && let Some(bytes) = self.l2arc.read(bp, |bytes| self.verify(bp, bytes)).await
            && let Ok((block, physical)) = decode_keeping(bp, at, bytes, key.as_deref())
        {
            return Ok(Loaded::of(block, bp, physical.map(Block::from), ForDevice::No));
        }
        let started = Instant::now();
        let bytes = self.try_raw(bp, at).await?;
        self.l2arc.note_pool_read(started);
        let stats = self.datasets.of(ObjsetId(at.objset));
        stats.count_load(bp.lsize().get(), bp.psize().get());
        let is_for_device = match retain {
            Retain::In => may_feed,
            // What is read ahead comes from devices in order, which they do well.
            Retain::Ahead => may_feed && tunables::L2ARC_NOPREFETCH.get() == 0,
            Retain::ForChange | Retain::AsItWas | Retain::Out => false,
        };
        let is_for_device = is_for_device && self.l2arc.wants(bp, &self.vdevs) && !self.l2arc.has(bp);
        let for_device = if is_for_device { ForDevice::of(bp, &bytes) } else { ForDevice::No };
        let (block, physical) = decode_keeping(bp, at, bytes, key.as_deref())?;
        Ok(Loaded::of(block, bp, physical.map(Block::from), for_device))
    }

    /// The cache keeps blocks that were decoded with a key apart from blocks that were decoded without one.
    pub(crate) fn cache_key(&self, bp: &Blkptr, with_key: bool) -> Key {
        let (vdev, offset_bytes) =
            bp.dva(0).map_or((u32::MAX, u64::MAX), |dva| (dva.vdev.get(), dva.offset.get()));
        // The key mixes the whole checksum: a block that is overwritten in place differs in nothing else, and
        // two checksums may agree in a word.
        let mix = |mixed: u64, word: u64| (mixed.rotate_left(23) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let checksum_word = bp.checksum().into_iter().fold(0, mix);
        let checksum_word = if with_key { !checksum_word } else { checksum_word };
        let is_metadata = bp.level() != Level::DATA || bp.dmu_type().is_metadata();
        let checksum_word = checksum_word & !1 | u64::from(is_metadata);
        Key { pool: self.cache_id, vdev, offset_bytes, birth: bp.physical_birth().get(), checksum_word }
    }
}

/// Whether a block of a dataset is readable while its key is not loaded.
fn is_readable_without_key(bp: &Blkptr) -> bool {
    bp.protection() == Protection::IndirectMac || bp.dmu_type() == DmuType::OBJSET
}
