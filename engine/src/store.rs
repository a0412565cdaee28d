//! The layer below a block: devices, cache, keys, damage, repairs and suspension.
//!
//! [`Store`] is the state that all readers and writers of a pool's blocks share, from the import to the
//! export. [`Pool`] is a store as of one committed group: a view. While a view is held, the space that it
//! refers to is not reused. A pool that is open for reading is one such view; a pool that is open for writing
//! has a new view after each group ([`crate::pool::live`]).
//!
//! This module does not know what pools are made of, nor how a pool is found, opened and written. The block
//! layer ([`crate::zio`]), objects, space and logs are built on this module, and [`crate::pool`] is built on
//! those.
//!
//! | module | what it owns |
//! |---|---|
//! | `damage` | blocks that could not be read, until the error log has them |
//! | `repairs` | blocks of which some place held wrong bytes: the work of read repair |
//! | `suspend` | callers that wait while the devices of the pool fail |
//! | `keystore` | the loaded keys |

mod damage;
pub mod keystore;
pub(crate) mod repairs;
pub mod suspend;

use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use ondisk::Guid;
use ondisk::blkptr::Blkptr;
use ondisk::uberblock::Uberblock;
use ondisk::vdev_config::PoolConfig;

pub use damage::Damage;
pub(crate) use damage::Noted;
pub use keystore::Keystore;

use crate::background;
use crate::cache::ArcCache;
use crate::cache::what_if::Report;
use crate::l2arc::L2arc;
use crate::stats::Datasets;
use crate::vdev::{ErrorCounters, VdevTree};

/// A pool as of one committed group, shared as `Arc<Pool>`.
///
/// It never changes, except for the counters and maps of its [`Store`].
#[derive(Debug)]
pub struct Pool {
    guid: Guid,
    config: PoolConfig,
    uberblock: Uberblock,
    checkpoint: Option<Uberblock>,
    shown_name: Option<String>,
    store: Arc<Store>,
}

/// The state that all readers and writers of an open pool share, whichever group they belong to.
#[derive(Debug)]
pub struct Store {
    name: String,
    altroot: Option<PathBuf>,
    pub(crate) vdevs: VdevTree,
    pub(crate) l2arc: L2arc,
    pub(crate) root_errors: ErrorCounters,
    pub(crate) damage: Damage,
    pub(crate) repairs: Arc<repairs::Repairs>,
    pub(crate) suspension: suspend::Suspension,
    pub(crate) salt: OnceLock<[u8; 32]>,
    pub(crate) keystore: Keystore,
    pub(crate) cache: Arc<ArcCache>,
    pub(crate) cache_id: u32,
    pub(crate) datasets: Datasets,
    /// Loads in the background that no caller waits for yet.
    pub(crate) ahead: Arc<AtomicUsize>,
}

/// Adds one to a counter for as long as it exists.
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
    type Target = Store;

    fn deref(&self) -> &Store {
        &self.store
    }
}

impl Store {
    /// A store on these vdevs. `name` is the name under which the pool is imported. `altroot` is the
    /// directory below which its mount points begin, if that is not the root.
    pub(crate) fn new(
        name: String,
        altroot: Option<PathBuf>,
        vdevs: VdevTree,
        cache: Arc<ArcCache>,
    ) -> Arc<Store> {
        let cache_id = cache.register_pool();
        let suspension = suspend::Suspension::reported_by(vdevs.reporter());
        Arc::new(Store {
            name,
            altroot,
            vdevs,
            l2arc: L2arc::default(),
            root_errors: ErrorCounters::default(),
            damage: Damage::default(),
            repairs: Arc::default(),
            suspension,
            salt: OnceLock::new(),
            keystore: Keystore::default(),
            cache,
            cache_id,
            datasets: Datasets::default(),
            ahead: Arc::default(),
        })
    }

    /// What caches of other sizes would do for the reads of this pool.
    pub fn what_if(&self) -> Vec<Report> {
        self.cache.what_if().reports(self.cache_id)
    }

    /// The salt of checksums, known once the MOS has been read.
    pub(crate) fn salt(&self) -> &OnceLock<[u8; 32]> {
        &self.salt
    }

    /// The name under which the pool is imported.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The directory below which the pool's mount points begin, if that is not the root.
    pub fn altroot(&self) -> Option<&Path> {
        self.altroot.as_deref()
    }

    /// The vdevs.
    pub fn vdevs(&self) -> &VdevTree {
        &self.vdevs
    }

    /// The cache devices.
    pub fn l2arc(&self) -> &L2arc {
        &self.l2arc
    }

    /// Errors that no redundancy could make up for.
    pub fn root_errors(&self) -> &ErrorCounters {
        &self.root_errors
    }

    /// Blocks that could not be read and that the pool's error log does not have yet.
    pub fn damage(&self) -> &Damage {
        &self.damage
    }

    /// The loaded keys.
    pub fn keystore(&self) -> &Keystore {
        &self.keystore
    }

    /// Runs `task` in the background. Closing the pool waits for the task, because the task keeps devices
    /// open.
    pub(crate) fn load_ahead(&self, task: impl Future<Output = ()> + Send + 'static) {
        let counted = Counted::new(&self.ahead);
        background::spawn(async move {
            // Dropped after everything that the task owned.
            let _counted = counted;
            task.await;
        });
    }

    /// Waits until no background load is left that no caller waits for, at most for `patience`. Blocks the
    /// thread.
    pub(crate) fn end_loads_ahead(&self, patience: Duration) {
        let start = Instant::now();
        while self.ahead.load(Ordering::Acquire) > 0 && start.elapsed() < patience {
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// The counters of its datasets.
    pub fn dataset_stats(&self) -> &Datasets {
        &self.datasets
    }

    /// The cache, which the pool may share with other pools.
    pub fn cache(&self) -> &Arc<ArcCache> {
        &self.cache
    }
}

impl Pool {
    /// A store as of an uberblock.
    pub(crate) fn of(
        store: Arc<Store>,
        guid: Guid,
        config: PoolConfig,
        uberblock: Uberblock,
        checkpoint: Option<Uberblock>,
    ) -> Arc<Pool> {
        store.vdevs.reporter().set_pool(&store.name, guid);
        Arc::new(Pool { guid, config, uberblock, checkpoint, shown_name: None, store })
    }

    /// The same pool as of another uberblock, with the guid of that config. Devices, cache, keys and counters
    /// are shared.
    pub(crate) fn at(
        &self,
        uberblock: Uberblock,
        config: PoolConfig,
        checkpoint: Option<Uberblock>,
    ) -> Arc<Pool> {
        let guid = config.pool_guid.unwrap_or(self.guid);
        Self::of(Arc::clone(&self.store), guid, config, uberblock, checkpoint)
    }

    /// A new view of the same pool as of the same uberblock.
    pub(crate) fn again(&self) -> Arc<Pool> {
        self.at(self.uberblock.clone(), self.config.clone(), self.checkpoint.clone())
    }

    /// The same view under another name.
    pub fn renamed(&self, name: &str) -> Arc<Pool> {
        Arc::new(Pool {
            guid: self.guid,
            config: self.config.clone(),
            uberblock: self.uberblock.clone(),
            checkpoint: self.checkpoint.clone(),
            shown_name: Some(name.to_owned()),
            store: Arc::clone(&self.store),
        })
    }

    /// The name under which the pool is imported, or the name that this view was given.
    pub fn name(&self) -> &str {
        self.shown_name.as_deref().unwrap_or_else(|| self.store.name())
    }

    /// The store, which all views of the pool share.
    pub fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// The pool's guid.
    pub fn guid(&self) -> Guid {
        self.guid
    }

    /// The pool's config; once the pool is imported, the config in the MOS.
    pub fn config(&self) -> &PoolConfig {
        &self.config
    }

    /// The uberblock at which the pool was opened.
    pub fn uberblock(&self) -> &Uberblock {
        &self.uberblock
    }

    /// The pool's checkpoint, if it has one: the uberblock at which the pool can be opened instead.
    pub fn checkpoint(&self) -> Option<&Uberblock> {
        self.checkpoint.as_ref()
    }

    /// The block pointer of the meta object set.
    pub fn root_blkptr(&self) -> &Blkptr {
        &self.uberblock.root_bp
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        self.cache.evict_pool(self.cache_id);
        self.l2arc.give_memory_back(&self.cache);
    }
}
