//! [`DslPool`]: what the dataset layer knows of a pool that is written (OpenZFS: `dsl_pool`).
//!
//! # The idea
//! The pool layer makes one of what it opened, and hands it to every [`SyncTask`]. It holds the
//! MOS, the transaction groups, the tables of shared blocks, the gauges that say how much room is left, and
//! the datasets that are open. It knows nothing of labels, uberblocks, health or jobs, which stand above.
//!
//! The pool layer calls it at four points of a group's sync: [`SyncTask::count_clones`],
//! [`SyncTask::sync_datasets`], [`DslPool::committed`], and [`DslPool::close_idle`].
//!
//! # Invariants
//! - Datasets are opened, and the MOS is read by [`DslPool::reading`], only by the holder of the pool's turn
//!   of syncing: during a sync the MOS is between two states.
//! - A dataset is in the map as long as anything uses it, so that all users share one.
//!
//! | lock | guards | order |
//! |---|---|---|
//! | `datasets`, `stalled_trees`, `receiving`, `lineage` | the map, the sets, the notes; for a few lines, never across an await | alone; but logs and groups are asked while `datasets` is held, so that nothing opens what is being closed |

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard};

use device::IgnorePoison;
use futures_util::future::BoxFuture;
use ondisk::blkptr::Blkptr;
use ondisk::features::Feature;
use ondisk::{ObjectId, ObjsetId, Txg};

use super::lineage::Lineage;
use super::live_dataset::LiveDataset;
use super::space_check::{DatasetRoom, LogSpace, PoolGauge, Shares};
use super::sync_task::SyncTask;
use super::{Dsl, edit};
use crate::Pool;
use crate::alloc::Allocator;
use crate::dmu::LiveObjset;
use crate::dmu::references::References;
use crate::env::Env;
use crate::error::{Error, Result};
use crate::mos::{LiveFeatures, LiveMos};
use crate::tables::Tables;
use crate::tables::ddt::Newest;
use crate::txg::{Tx, Txgs};
use crate::zil::Zil;
use crate::zio::Writer;

/// What the pool layer opened, of which it makes a [`DslPool`].
pub(crate) struct Opened {
    pub txgs: Arc<Txgs>,
    pub mos: Arc<LiveObjset>,
    pub allocator: Arc<Allocator>,
    pub features: LiveFeatures,
    pub tables: Tables,
    pub views: Arc<dyn Newest>,
    pub env: Arc<dyn Env>,
    /// The name of this host, for the history.
    pub host_name: String,
}

/// The datasets of a pool that is written, with what they are written by.
#[derive(Debug)]
pub struct DslPool {
    mos: Arc<LiveMos>,
    txgs: Arc<Txgs>,
    tables: Tables,
    references: Arc<dyn References>,
    host_name: String,
    pub(super) room: Arc<PoolGauge>,
    pub(super) shares: Arc<Shares>,
    datasets: Mutex<HashMap<ObjsetId, Arc<LiveDataset>>>,
    /// Places of the list of destroyed datasets' trees that cannot be freed, as they are damaged.
    stalled_trees: Mutex<BTreeSet<u64>>,
    /// Datasets into which a stream is being received.
    receiving: Mutex<BTreeSet<ObjsetId>>,
    /// Changes of who follows whom that the sync of the group has not taken yet.
    pub(super) lineage: Mutex<Vec<Lineage>>,
}

impl DslPool {
    /// A pool of which no dataset is open yet.
    pub(crate) fn new(opened: Opened) -> Arc<Self> {
        let Opened { txgs, mos, allocator, features, tables, views, env, host_name } = opened;
        let room = Arc::new(PoolGauge::new(&allocator));
        let log_space = Arc::new(LogSpace { pool: Arc::clone(&room), txgs: Arc::clone(&txgs) });
        let writer = Writer::new(Arc::clone(mos.pool().store()), allocator);
        let writer = writer.with_log_room(log_space).with_dedup(tables.for_writer()).with_env(&env);
        let references = tables.references(&txgs, views);
        Arc::new(Self {
            mos: LiveMos::new(mos, writer, Arc::new(features), env),
            txgs,
            tables,
            references,
            host_name,
            room,
            shares: Arc::default(),
            datasets: Mutex::default(),
            stalled_trees: Mutex::default(),
            receiving: Mutex::default(),
            lineage: Mutex::default(),
        })
    }

    /// The meta object set, with what changes of it need.
    pub(crate) fn mos(&self) -> &Arc<LiveMos> {
        &self.mos
    }

    /// The pool as devices, cache and keys see it.
    pub(crate) fn pool(&self) -> &Arc<Pool> {
        self.mos.pool()
    }

    /// The transaction groups.
    pub(crate) fn txgs(&self) -> &Arc<Txgs> {
        &self.txgs
    }

    /// Where space comes from.
    pub(crate) fn allocator(&self) -> &Arc<Allocator> {
        self.mos.allocator()
    }

    /// The tables of blocks with several references.
    pub(crate) fn tables(&self) -> &Tables {
        &self.tables
    }

    /// The host that the pool is open on, as its labels have it.
    pub(crate) fn host_name(&self) -> &str {
        &self.host_name
    }

    /// The datasets that are open.
    pub(crate) fn datasets(&self) -> MutexGuard<'_, HashMap<ObjsetId, Arc<LiveDataset>>> {
        self.datasets.lock().ignore_poison()
    }

    /// The dataset `id`, if it is open and may be used as it is.
    pub(crate) fn opened(&self, id: ObjsetId) -> Option<Arc<LiveDataset>> {
        let datasets = self.datasets();
        datasets.get(&id).filter(|open| !open.objset.is_unauthenticated()).cloned()
    }

    /// Places in the list of destroyed datasets' trees that are not tried again for now.
    pub(crate) fn stalled_trees(&self) -> MutexGuard<'_, BTreeSet<u64>> {
        self.stalled_trees.lock().ignore_poison()
    }

    /// Datasets into which a stream is being received: they belong to the receiver.
    pub(crate) fn receiving(&self) -> MutexGuard<'_, BTreeSet<ObjsetId>> {
        self.receiving.lock().ignore_poison()
    }

    /// For reading the MOS as it is now. For those who have the turn.
    pub(crate) fn reading(self: &Arc<Self>) -> SyncTask {
        SyncTask::new(self, Tx::syncing(self.txgs.open_txg()))
    }

    /// The head dataset `id`, open for writing. For those who have the turn.
    ///
    /// # Errors
    /// [`Error::ReadOnly`] for a snapshot: nothing can change one.
    // In a box, so that opening is compiled once, and not with everything that may have to open a dataset.
    pub(crate) fn dataset(self: &Arc<Self>, id: ObjsetId) -> BoxFuture<'_, Result<Arc<LiveDataset>>> {
        Box::pin(self.find_or_open(id))
    }

    async fn find_or_open(self: &Arc<Self>, id: ObjsetId) -> Result<Arc<LiveDataset>> {
        if let Some(open) = self.opened(id) {
            return Ok(open);
        }
        if !self.close(id) {
            return Err(Error::Busy(format!("dataset {id} was opened without its key, and is in use")));
        }
        let dsl = Dsl::open_in(self.mos.objset().view()).await?;
        let dataset = dsl.dataset_of_object(ObjectId(id.get())).await?;
        if dataset.is_snapshot() {
            return Err(Error::ReadOnly(format!("snapshot {id} of {}", self.pool().name())));
        }
        let s = self.reading();
        let policy = edit::policy(&s, id).await?;
        let objset = LiveObjset::open(self.pool(), id, &dataset.phys.bp, policy).await?;
        objset.list_births(edit::has_livelist(&s, id).await?);
        let settings = edit::settings(&s, id).await?;
        let logs_xattrs = edit::logs_xattrs(&s, id).await?;
        let open = self.adopt(objset, dataset.name.clone());
        if logs_xattrs {
            open.zil.set_logs_xattrs();
        }
        open.set(settings);
        self.set_room(&open).await?;
        Ok(open)
    }

    fn adopt(&self, objset: Arc<LiveObjset>, name: String) -> Arc<LiveDataset> {
        objset.set_progress(&self.txgs);
        objset.set_can_clone(self.can_clone());
        objset.set_references(&self.references);
        objset.set_can_count_projects(self.mos.features().count(Feature::ProjectQuota).is_some());
        let zil = Zil::open(&objset, self.mos.writer(), &self.txgs, self.mos.env());
        let room = DatasetRoom::new(objset.id(), (&self.room, &self.shares), &self.txgs, name);
        let dataset = LiveDataset::new(objset, zil, room);
        self.datasets().insert(dataset.objset.id(), Arc::clone(&dataset));
        dataset
    }

    fn can_clone(&self) -> bool {
        self.mos.features().count(Feature::BlockCloning).is_some()
    }

    /// Closes a dataset, if it is open and nothing uses it. Whether it is closed. For those who have the
    /// turn.
    pub(crate) fn close(&self, id: ObjsetId) -> bool {
        let mut datasets = self.datasets();
        let can_be_closed = datasets.get(&id).is_none_or(LiveDataset::can_be_closed);
        if can_be_closed {
            datasets.remove(&id);
        }
        can_be_closed
    }

    /// Closes datasets that were not used for some groups. For those who have the turn.
    pub(crate) fn close_idle(&self) {
        self.datasets().retain(|_, dataset| dataset.stays_open());
    }

    /// The group `txg` is committed, and what its sync found free is free. For those who have the turn.
    pub(crate) async fn committed(self: &Arc<Self>, txg: Txg) -> Result<()> {
        self.tables.committed();
        let can_clone = self.can_clone();
        for dataset in self.datasets().values() {
            dataset.committed(txg);
            dataset.objset.set_can_clone(can_clone);
        }
        self.set_rooms(txg).await
    }
}

impl SyncTask {
    /// Open datasets, the one called `from` and all below it, are called `to` from now on.
    pub(crate) fn rename_open(&self, from: &str, to: &str) {
        self.dsl_pool().datasets().values().for_each(|dataset| dataset.room.rename(from, to));
    }

    /// Counts the references that cloning files made in this group, before anything is freed.
    pub(crate) async fn count_clones(&self) -> Result<()> {
        let open: Vec<_> = self.dsl_pool().datasets().values().cloned().collect();
        let cloned: Vec<Blkptr> = open.iter().flat_map(|dataset| dataset.objset.cloned(self.txg())).collect();
        self.dsl_pool().tables().reference(self, &cloned).await
    }

    /// Writes every dataset that the group changed, and gives those that are open. The logs of those that
    /// were given `before` know of the sync already.
    pub(crate) async fn sync_datasets(&self, before: &[Arc<LiveDataset>]) -> Result<Vec<Arc<LiveDataset>>> {
        let mut open: Vec<_> = self.dsl_pool().datasets().values().cloned().collect();
        open.sort_by_key(|dataset| dataset.objset.id());
        let before: HashSet<usize> = before.iter().map(|known| Arc::as_ptr(known).addr()).collect();
        for dataset in &open {
            if !before.contains(&Arc::as_ptr(dataset).addr()) {
                for bp in dataset.zil.sync(&self.tx).await? {
                    if self.release(&bp).await? {
                        self.writer().free(self.txg(), &bp).await?;
                    }
                }
            }
            dataset.begin_xattr_log(self).await?;
            if dataset.objset.is_dirty(self.txg()) {
                let synced = dataset.objset.sync(self.writer(), self.txg()).await?;
                edit::synced(self, dataset.objset.id(), &synced).await?;
                self.pool().vdevs().reporter().wrote(dataset.objset.id());
            }
            if let Some(point) = dataset.take_resume_point(self.txg()) {
                edit::receive::note_point(self, dataset.objset.id(), point).await?;
            }
        }
        Ok(open)
    }
}
