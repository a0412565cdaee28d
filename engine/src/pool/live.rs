//! A pool that is written.

mod create;

pub use create::{Layout, NewLeaf, NewPool, NewTop, Surroundings, default_features};

use std::collections::HashMap;
use std::future::Future;
use std::sync::{Arc, Mutex, RwLock};

use ondisk::{ObjsetId, Txg};

use super::Pool;
use crate::alloc::Allocator;
use crate::dmu::LiveObjset;
use crate::error::Result;
use crate::txg::{Tx, Txgs};
use crate::zil::Zil;
use crate::zio::Writer;

/// A pool that is written, shared as `Arc<LivePool>`.
pub struct LivePool {
    pool: Arc<Pool>,
    writer: Writer,
    txgs: Arc<Txgs>,
    mos: Arc<LiveObjset>,
    datasets: Mutex<HashMap<ObjsetId, Arc<LiveDataset>>>,
    view: RwLock<Arc<Pool>>,
}

/// A head dataset that is open for writing.
pub struct LiveDataset {
    /// Its objects. The number of the object set is that of the dataset in the MOS.
    pub objset: Arc<LiveObjset>,
    /// Its intent log.
    pub zil: Zil,
}

/// The sync of one group, for whoever changes the MOS as part of it: the dataset layer's changes happen nowhere else, so that they never meet
/// each other, and what one of them reads is as all before it left it.
#[derive(Clone)]
pub struct Syncing {
    /// The pool.
    pub pool: Arc<LivePool>,
    /// The group.
    pub tx: Arc<Tx>,
}

impl Syncing {
    /// The group's number.
    pub fn txg(&self) -> Txg {
        self.tx.txg()
    }

    /// The meta object set.
    pub fn mos(&self) -> &Arc<LiveObjset> {
        &self.pool.mos
    }

    /// Seconds since 1970.
    pub fn now(&self) -> u64 {
        todo!()
    }

    /// A random number, for guids.
    pub fn random(&self) -> u64 {
        todo!()
    }

    /// Takes up the object set of a dataset that was just created, so that this group writes it.
    pub fn adopt(&self, _objset: Arc<LiveObjset>) {
        todo!()
    }

    /// Counts one more (or less) use of a feature (`spa_feature_incr`/`decr`). The first use activates it.
    pub async fn use_feature(&self, _feature: ondisk::features::Feature, _change: i64) -> Result<()> {
        todo!()
    }

    /// Whether a feature is enabled, used or not.
    pub fn feature_enabled(&self, _feature: ondisk::features::Feature) -> bool {
        todo!()
    }
}

impl LivePool {
    /// Opens a found pool for writing: claims and replays intent logs, and takes the pool over for this host. `options.readonly` must not be set.
    pub async fn import(
        _found: &super::discovery::FoundPool,
        _options: &super::import::ImportOptions,
        _surroundings: Surroundings,
    ) -> Result<Arc<Self>, super::import::ImportError> {
        todo!()
    }

    /// Starts the thread that commits groups. Without it nothing is committed but by [`LivePool::sync`].
    pub fn start(self: &Arc<Self>) -> Result<()> {
        todo!()
    }

    /// Commits the open group here and now. For tests, and for whoever runs without the thread.
    pub async fn sync(self: &Arc<Self>) -> Result<Txg> {
        todo!()
    }

    /// Commits everything, gives the logs back, marks the labels as exported (or destroyed) and stops. The pool must not be in use.
    pub async fn close(self: &Arc<Self>, _state: ondisk::vdev_config::PoolState) -> Result<()> {
        todo!()
    }

    /// The pool as devices, cache and keys see it. Its uberblock is not the newest: for that see [`LivePool::view`].
    pub fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    /// The pool as of the last committed group, for everything that only reads. Space that it refers to is not reused while it is held.
    pub fn view(&self) -> Arc<Pool> {
        todo!()
    }

    /// The transaction groups.
    pub fn txgs(&self) -> &Arc<Txgs> {
        &self.txgs
    }

    /// Writes blocks.
    pub fn writer(&self) -> &Writer {
        &self.writer
    }

    /// Where space comes from.
    pub fn allocator(&self) -> &Arc<Allocator> {
        self.writer.allocator()
    }

    /// The head dataset `id`, open for writing.
    pub async fn dataset(self: &Arc<Self>, _id: ObjsetId) -> Result<Arc<LiveDataset>> {
        todo!()
    }

    /// Runs `task` as part of the sync of the next group and waits until that is committed. A task that fails must not have changed anything.
    pub async fn change<T, F>(
        self: &Arc<Self>,
        _task: impl FnOnce(Syncing) -> F + Send + 'static,
    ) -> Result<T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T>> + Send + 'static,
    {
        todo!()
    }
}
