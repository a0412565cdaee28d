//! An open pool.
//!
//! [`Pool`] owns the vdev tree, the keystore and its share of the ARC, and knows the uberblock that
//! everything is read from. It never changes after import except for counters, loaded keys and what the ARC
//! holds: a pool that is open for reading is a snapshot in time.

mod damage;
pub mod discovery;
pub mod errlog;
pub mod features;
pub mod history;
pub mod import;
pub mod live;
mod load;
pub mod properties;
mod repairs;
pub mod replayed;
pub mod space;
pub mod status;
pub mod suspend;
pub mod verify;

use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use codec::crypt::DatasetKey;
use ondisk::blkptr::{Blkptr, Protection};
use ondisk::dmu::DmuType;
use ondisk::uberblock::Uberblock;
use ondisk::vdev_config::PoolConfig;
use ondisk::{Guid, ObjsetId};

pub use damage::Damage;

use crate::background;
use crate::cache::arc::Key;
use crate::cache::{ArcCache, Block, Retain};
use crate::error::{Error, Result};
use crate::vdev::{ErrorCounters, VdevTree};
use crate::zio::{self, Bookmark, Keystore};

/// An open pool, shared as `Arc<Pool>`.
#[derive(Debug)]
pub struct Pool {
    name: String,
    guid: Guid,
    config: PoolConfig,
    uberblock: Uberblock,
    checkpoint: Option<Uberblock>,
    altroot: Option<PathBuf>,
    pub(crate) shared: Arc<Shared>,
}

/// What all views of an open pool share: see [`Pool::at`].
#[derive(Debug)]
#[doc(hidden)]
pub struct Shared {
    pub(crate) vdevs: VdevTree,
    pub(crate) root_errors: ErrorCounters,
    pub(crate) damage: Damage,
    pub(crate) repairs: Arc<repairs::Repairs>,
    pub(crate) suspension: suspend::Suspension,
    pub(crate) salt: OnceLock<[u8; 32]>,
    pub(crate) keystore: Keystore,
    pub(crate) cache: Arc<ArcCache>,
    pub(crate) cache_id: u32,
    /// Loads that nobody waits for yet.
    pub(crate) ahead: Arc<AtomicUsize>,
}

/// One of what is counted, as long as it is there.
struct Counted(Arc<AtomicUsize>);

impl Counted {
    fn new(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::AcqRel);
        Self(Arc::clone(count))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Deref for Pool {
    type Target = Shared;

    fn deref(&self) -> &Shared {
        &self.shared
    }
}

impl Pool {
    /// A pool of which nothing is committed yet.
    pub(crate) fn new_empty(
        name: &str,
        guid: Guid,
        config: PoolConfig,
        uberblock: Uberblock,
        altroot: Option<PathBuf>,
        vdevs: VdevTree,
        cache: Arc<ArcCache>,
    ) -> Arc<Pool> {
        let cache_id = cache.register_pool();
        let shared = Shared {
            vdevs,
            root_errors: ErrorCounters::default(),
            damage: Damage::default(),
            repairs: Arc::default(),
            suspension: Default::default(),
            salt: OnceLock::new(),
            keystore: Keystore::default(),
            cache,
            cache_id,
            ahead: Arc::default(),
        };
        let shared = Arc::new(shared);
        Arc::new(Pool { name: name.to_owned(), guid, config, uberblock, checkpoint: None, altroot, shared })
    }

    /// The salt of checksums, known once the MOS was read.
    pub(crate) fn salt(&self) -> &OnceLock<[u8; 32]> {
        &self.salt
    }

    /// The same pool as of another uberblock, with the guid that the config has: devices, cache, keys and
    /// counters are shared.
    pub(crate) fn at(
        &self,
        uberblock: Uberblock,
        config: PoolConfig,
        checkpoint: Option<Uberblock>,
    ) -> Arc<Pool> {
        Arc::new(Pool {
            name: self.name.clone(),
            guid: config.pool_guid.unwrap_or(self.guid),
            config,
            uberblock,
            checkpoint,
            altroot: self.altroot.clone(),
            shared: Arc::clone(&self.shared),
        })
    }

    /// The same pool as of the same uberblock, in a view of its own.
    pub(crate) fn again(&self) -> Arc<Pool> {
        self.at(self.uberblock.clone(), self.config.clone(), self.checkpoint.clone())
    }

    /// The name under which the pool is imported.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The pool's guid.
    pub fn guid(&self) -> Guid {
        self.guid
    }

    /// The pool's config: of the MOS once imported.
    pub fn config(&self) -> &PoolConfig {
        &self.config
    }

    /// The uberblock that the pool was opened at.
    pub fn uberblock(&self) -> &Uberblock {
        &self.uberblock
    }

    /// The pool's checkpoint, if it has one: the uberblock that it can be opened at instead.
    pub fn checkpoint(&self) -> Option<&Uberblock> {
        self.checkpoint.as_ref()
    }

    /// Where the pool's mount points begin, if not at the root.
    pub fn altroot(&self) -> Option<&Path> {
        self.altroot.as_deref()
    }

    /// The block pointer of the meta object set.
    pub fn root_blkptr(&self) -> &Blkptr {
        &self.uberblock.root_bp
    }

    /// The vdevs.
    pub fn vdevs(&self) -> &VdevTree {
        &self.vdevs
    }

    /// Errors that no redundancy could make up for.
    pub fn root_errors(&self) -> &ErrorCounters {
        &self.root_errors
    }

    /// Blocks that could not be read since the pool was opened.
    pub fn damage(&self) -> &Damage {
        &self.damage
    }

    /// The loaded keys.
    pub fn keystore(&self) -> &Keystore {
        &self.keystore
    }

    /// Does `task` in the background. Whoever closes the pool waits for it, since it keeps devices open.
    pub(crate) fn load_ahead(&self, task: impl Future<Output = ()> + Send + 'static) {
        let counted = Counted::new(&self.ahead);
        background::spawn(async move {
            // Until all that the task had is dropped.
            let _counted = counted;
            task.await;
        });
    }

    /// Waits until nothing is loaded any more that nobody waits for, or that takes longer than `patience`.
    /// Blocks the thread.
    pub(crate) fn end_loads_ahead(&self, patience: Duration) {
        let start = Instant::now();
        while self.ahead.load(Ordering::Acquire) > 0 && start.elapsed() < patience {
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// The cache, which the pool may share with others.
    pub fn cache(&self) -> &Arc<ArcCache> {
        &self.cache
    }

    /// The block that `bp` points to: from the ARC, or read, verified, decrypted and decompressed.
    ///
    /// A hole reads as zeroes of its logical size. `at` says which block this is, for error messages and the
    /// choice of the key. When the block is cached the future completes in its first poll without allocating.
    ///
    /// Of an encrypted dataset whose key is not loaded, object sets and indirect blocks can be read, all else
    /// is [`Error::KeyNotLoaded`].
    pub async fn read_block(&self, bp: &Blkptr, at: &Bookmark) -> Result<Block> {
        self.read_retaining(bp, at, Retain::In).await
    }

    /// As [`Pool::read_block`], and says what of it is to be in the ARC afterwards.
    pub(crate) async fn read_retaining(&self, bp: &Blkptr, at: &Bookmark, retain: Retain) -> Result<Block> {
        if bp.is_hole() {
            return Ok(Block::zero(bp.lsize().to_usize().unwrap_or(usize::MAX)));
        }
        if let Some(embedded) = bp.embedded() {
            return zio::decode_embedded(&embedded, at);
        }
        let key = self.key_for(bp, at)?;
        self.read_cached(bp, at, key, retain).await
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

    /// As [`Pool::read_block`], for those who look at the structure of datasets whose keys are not loaded:
    /// what is in the clear is not authenticated, and the private parts of dnodes are ciphertext. Encrypted
    /// data are [`Error::KeyNotLoaded`].
    pub async fn read_block_without_key(&self, bp: &Blkptr, at: &Bookmark) -> Result<Block> {
        match bp.protection() {
            Protection::Encrypted if bp.dmu_type() != DmuType::DNODE => Err(Error::KeyNotLoaded { at: *at }),
            _ if bp.is_hole() || bp.is_embedded() => self.read_block(bp, at).await,
            _ => self.read_cached(bp, at, None, Retain::In).await,
        }
    }

    async fn read_cached(
        &self,
        bp: &Blkptr,
        at: &Bookmark,
        key: Option<Arc<DatasetKey>>,
        retain: Retain,
    ) -> Result<Block> {
        let cache_key = self.cache_key(bp, key.is_some());
        if let Some(block) = self.cache.get(&cache_key, retain) {
            return Ok(block);
        }
        Box::pin(self.cache.get_or_load(cache_key, retain, || async move {
            let bytes = self.read_raw(bp, at).await?;
            zio::decode(bp, at, bytes, key.as_deref())
        }))
        .await
    }

    /// What was decoded with a key and what was not are different blocks to the cache.
    pub(crate) fn cache_key(&self, bp: &Blkptr, with_key: bool) -> Key {
        let (vdev, offset_bytes) =
            bp.dva(0).map_or((u32::MAX, u64::MAX), |dva| (dva.vdev.get(), dva.offset.get()));
        // All of it: a block that is written again in its place differs in nothing else, and sums may agree
        // in a word.
        let mix = |mixed: u64, word: u64| (mixed.rotate_left(23) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let checksum_word = bp.checksum().into_iter().fold(0, mix);
        let checksum_word = if with_key { !checksum_word } else { checksum_word };
        Key { pool: self.cache_id, vdev, offset_bytes, birth: bp.physical_birth().get(), checksum_word }
    }
}

/// What a dataset shows of itself while its key is not loaded.
fn is_readable_without_key(bp: &Blkptr) -> bool {
    bp.protection() == Protection::IndirectMac || bp.dmu_type() == DmuType::OBJSET
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.cache.evict_pool(self.cache_id);
    }
}
