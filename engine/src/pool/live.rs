//! A pool that is written.
//!
//! # The idea
//! [`LivePool`] puts together what writing takes: the devices ([`crate::store`]), the transaction groups
//! ([`crate::txg`]), and the datasets with all that changes of them need ([`DslPool`]). It owns what turns a
//! group into a new uberblock (`sync`), what labels say, the health of devices, and long work. Everything
//! that only reads takes a [view](LivePool::view), the pool as of the last committed group.
//!
//! # Core and parts
//! The *core* turns a group into a new uberblock: `sync`, `open`, `config`, `views`, and what changes the
//! tree of vdevs (`add`, `attach`, `spares` and the others). Everything that a pool can do besides is a
//! *part*: a type that implements `parts::Part` and a line of the table in `parts`. A part has its own state,
//! takes it up when the pool is opened, follows its property, does its share of a group, and does its jobs.
//! The core asks all parts in the order of the table, and names none of them. What it asks:
//!
//! | point | in the life of the pool | parts that need it |
//! |---|---|---|
//! | `load` | opened; nothing runs, and no group was written | `sweep`, `reshape`, `scan`, `error_scrub`, `checkpoint` |
//! | `property`, `turn` | a property turns it on or off, stored or set now | `autotrim`, `grow`, `multihost` |
//! | `start` | the thread that commits runs | `repair`, `l2arc`, `resilver`, `detach` |
//! | `before_tasks` | a group is quiesced | `quota_upgrade` |
//! | `sync` | the datasets of a group are written, the MOS is not | `quota_upgrade`, `free_files`, `scan`, `checkpoint`, `errlog`, `autotrim`, `devices`, `grow` |
//! | `committed` | a group is committed | `dedup` |
//! | `stop` | nothing more is written | `repair`, `l2arc` |
//! | `close` | the pool is closed | `l2arc`, `multihost` |
//! | `target`, `keep`, `work` | its jobs: whether what they work on is there, what is written down, who does them | `sweep`, `reshape`, `scan`, `error_scrub` |
//!
//! How a part stands has no form in common but that of its jobs ([`LivePool::job_statuses`]): a scan, a
//! checkpoint and a copy of a volume tell different things, each by a method of the pool in the file of the
//! part. The configuration, the thresholds of vdevs, and the dirty time logs are no parts: each belongs to
//! one step of the sync, in which nothing else has a share.
//!
//! A new part is a file or folder here, with its `mod` and its row below, and a line of the table.
//!
//! # Who may change what
//! Objects of datasets are changed by holders of a [`Tx`] of the open group. The MOS is changed in syncing
//! context only, by one task after the other: [`LivePool::change`] hands such a task to the next sync and
//! waits until the group is committed. A task gets a [`Syncing`], which is the dataset layer's [`SyncTask`]
//! with the pool beside it. No layer below knows this one.
//!
//! # When something cannot be written
//! Then the writer waits for the devices ([`crate::store::suspend`]). Where a second try cannot help nothing
//! more is written: the groups stop with the error, all who wait get it, and the devices keep the last
//! committed state.
//!
//! | lock | guards | order |
//! |---|---|---|
//! | `syncing` | that one sync, or one opening of a dataset, runs at a time; held across awaits | first |
//! | `tasks`, `config`, views | the values; for a few lines, never across an await | after it, alone |
//! | locks of [`DslPool`] | open datasets | after it; see there |
//!
//! | module | what it owns |
//! |---|---|
//! | `create` | new pools |
//! | `add` | more vdevs, another guid |
//! | `claims` | that a device has one place at most |
//! | `attach` | devices that are attached to others and replace them |
//! | `detach` | devices that are detached, and what follows a resilver |
//! | `remove` | log devices that are taken away |
//! | `spares`, `unspare` | hot spares that come into use and go back |
//! | `devices` | devices that fail, are taken offline and come back |
//! | `grow` | vdevs that grow with their devices |
//! | `multihost` | marking the pool as in use, and watching for such marks |
//! | `parts` | the table of parts, and what they have in common |
//! | `open` | pools that are imported for writing |
//! | `sync` | the sync of a group; tasks |
//! | `config` | what the MOS and the labels say |
//! | `properties` | setting pool properties |
//! | `repair` | read repair |
//! | `resilver` | looking whether devices must be resilvered |
//! | `events` | what happened to the pool |
//! | `errlog` | the error log |
//! | `inject` | faults on demand |
//! | `scan` | scrubs and resilvers |
//! | `error_scrub` | looking again at the blocks of the error log |
//! | `checkpoint` | the state that the pool can go back to |
//! | `jobs` | long work: whose it is |
//! | `sweep` | initializing and trimming free space by hand |
//! | `quota_upgrade` | counting files for quotas |
//! | `encrypted` | encrypted datasets whose keys come and go |
//! | `free_files` | freeing large files without a name |
//! | `dedup` | pruning dedup tables, reading them ahead, filling their filters |
//! | `reshape` | volumes that get another block size |
//! | `l2arc` | feeding cache devices |
//! | `thresholds` | how many errors of a device are too many |
//! | `autotrim` | telling devices what became free |
//! | `upgrade` | taking pools of old versions to newer ones |
//! | `views` | committed states that are being read |
//! | `fair_lock` | who may sync or open a dataset now |

mod add;
mod attach;
mod autotrim;
mod checkpoint;
mod claims;
mod config;
mod create;
mod dedup;
mod detach;
mod devices;
mod encrypted;
mod errlog;
mod error_scrub;
mod events;
mod fair_lock;
mod free_files;
mod grow;
mod inject;
mod jobs;
mod l2arc;
mod multihost;
mod open;
mod parts;
pub mod properties;
mod quota_upgrade;
mod remove;
mod repair;
mod reshape;
mod resilver;
mod scan;
mod spares;
mod sweep;
mod sync;
mod thresholds;
mod unspare;
mod upgrade;
mod views;

pub use add::Auxiliary;
pub use create::{Layout, NewLeaf, NewPool, NewTop, Surroundings, default_features, note_version};
pub use dedup::{DedupCounters, DedupPruneStatus, Prune};
pub use devices::TakeOffline;
pub use errlog::rotate_error_log;
pub use parts::JobKey;
pub use quota_upgrade::QuotaUpgradeStatus;
pub use reshape::{ReshapePlan, ReshapeStatus, Swapped, VolumeUsers};
pub use scan::ScrubRange;
pub use sweep::{Sweep, sweeps_of};
pub use upgrade::set_version;
pub use views::Lent;

use std::collections::HashMap;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;

use device::IgnorePoison;
use ondisk::blkptr::{ChecksumType, CompressType};
use ondisk::features::Feature;
use ondisk::pool_version as version;
use ondisk::{ObjsetId, Txg};

use crate::Pool;
use crate::alloc::Allocator;
use crate::dmu::{LiveObjset, Policy};
use crate::dsl::{self, Asker, DslPool, LiveDataset, SyncTask};
use crate::env::Env;
use crate::error::Result;
use crate::jobs::Jobs;
use crate::mos::LiveFeatures;
use crate::tables::Tables;
use crate::tables::ddt::Newest;
use crate::txg::{Tx, Txgs};
use crate::zio::Writer;
use crate::zpl::LiveZpl;
use crate::zvol::LiveZvol;
use config::Config;
use fair_lock::FairLock;
use parts::Parts;
use sync::Task;
use unspare::Doubts;
use views::Views;

/// A pool that is written, shared as `Arc<LivePool>`.
#[derive(Debug)]
pub struct LivePool {
    pool: Arc<Pool>,
    /// The datasets, with all that changes of them need.
    dsl: Arc<DslPool>,
    /// The parts of it that are asked for all the time.
    txgs: Arc<Txgs>,
    features: Arc<LiveFeatures>,
    env: Arc<dyn Env>,
    views: Arc<Views>,
    config: Mutex<Config>,
    config_changed: AtomicBool,
    doubts: Doubts,
    jobs: Arc<Jobs<LivePool>>,
    parts: Parts,
    tasks: Mutex<Vec<Task>>,
    syncing: FairLock,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// A task of the pool layer, as part of the sync of one group: a [`SyncTask`], with the pool that stands
/// above datasets. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Syncing {
    /// The pool.
    pub pool: Arc<LivePool>,
    task: SyncTask,
}

impl Deref for Syncing {
    type Target = SyncTask;

    fn deref(&self) -> &SyncTask {
        &self.task
    }
}

impl Syncing {
    fn new(pool: &Arc<LivePool>, txg: Txg) -> Self {
        Self { pool: Arc::clone(pool), task: SyncTask::new(&pool.dsl, Tx::syncing(txg)) }
    }

    /// The same, which this one asked for.
    #[must_use]
    pub fn asked_by(self, asker: Asker) -> Self {
        Self { task: self.task.asked_by(asker), ..self }
    }
}

/// How the MOS is written.
fn policy_of_mos() -> Policy {
    Policy {
        checksum: ChecksumType::Fletcher4,
        compress: CompressType::On,
        zstd_level: 0,
        copies: 3,
        redundant_metadata: 0,
        special_small_blocks: 0,
        dedup: None,
    }
}

impl LivePool {
    /// A pool whose configuration and metadata are known, and of which nothing is open yet. `features` are
    /// those that it has.
    fn of(
        pool: Arc<Pool>,
        surroundings: &Surroundings,
        config: Config,
        mos: Arc<LiveObjset>,
        allocator: Arc<Allocator>,
        features: LiveFeatures,
        tables: Tables,
    ) -> Arc<Self> {
        let txgs = Txgs::beside(pool.uberblock().txg, surroundings.limits, pool.cache());
        let parts = Parts::default();
        parts.errlog.has_form_of(&features);
        let (env, host_name) = (Arc::clone(&surroundings.env), config.host.1.clone());
        pool.damage().is_written_with(&txgs, false);
        // A view of its own: one that is held keeps space from being used again.
        let views = Arc::new(Views::new(pool.again()));
        let newest = Arc::clone(&views) as Arc<dyn Newest>;
        let of_datasets =
            dsl::Opened { txgs, mos, allocator, features, tables, views: newest, env, host_name };
        let dsl = DslPool::new(of_datasets);
        Arc::new(Self {
            txgs: Arc::clone(dsl.txgs()),
            features: Arc::clone(dsl.mos().features()),
            env: Arc::clone(dsl.mos().env()),
            dsl,
            views,
            config: Mutex::new(config),
            config_changed: true.into(),
            doubts: Doubts::default(),
            jobs: Arc::default(),
            parts,
            tasks: Mutex::default(),
            syncing: FairLock::default(),
            thread: Mutex::default(),
            pool,
        })
    }

    /// The pool as devices, cache and keys see it. Its uberblock is not the newest: for that see
    /// [`LivePool::view`].
    pub fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    /// The pool as of the last committed group, for everything that only reads. Space that it refers to is
    /// not reused while it is held.
    pub fn view(&self) -> Arc<Pool> {
        self.views.newest()
    }

    /// The same for a reader that may hold it for long: it is taken back when it keeps more space from being
    /// used again than is free otherwise.
    pub fn lend_view(&self) -> (Arc<Pool>, Arc<Lent>) {
        self.views.lend()
    }

    /// The pool as of the last committed group, for readers of snapshots only: what it refers to besides
    /// may be reused at any time.
    pub fn view_of_snapshots(&self) -> Arc<Pool> {
        let newest = self.views.newest();
        newest.again()
    }

    /// The transaction groups.
    pub fn txgs(&self) -> &Arc<Txgs> {
        &self.txgs
    }

    /// Writes blocks.
    pub fn writer(&self) -> &Writer {
        self.dsl.mos().writer()
    }

    /// The meta object set.
    fn mos(&self) -> &Arc<LiveObjset> {
        self.dsl.mos().objset()
    }

    /// Where space comes from.
    pub fn allocator(&self) -> &Arc<Allocator> {
        self.dsl.allocator()
    }

    /// Time and randomness.
    pub fn env(&self) -> &Arc<dyn Env> {
        &self.env
    }

    /// Deflated bytes that cloned and deduplicated blocks would take more if they were copies.
    pub fn saved_by_clones(&self) -> u64 {
        self.dsl.tables().saved_bytes()
    }

    /// The version of the pool.
    pub fn version(&self) -> u64 {
        self.features.version()
    }

    /// How often a feature is used; absent when it is not enabled.
    pub fn feature_count(&self, feature: Feature) -> Option<u64> {
        self.features.count(feature)
    }

    /// The head dataset `id`, open for writing.
    ///
    /// # Errors
    /// [`Error::ReadOnly`](crate::Error::ReadOnly) for a snapshot: nothing can change one.
    pub async fn dataset(self: &Arc<Self>, id: ObjsetId) -> Result<Arc<LiveDataset>> {
        if let Some(open) = self.dsl.opened(id) {
            return Ok(open);
        }
        // While a group is synced, the MOS is between two states.
        let _turn = self.syncing.take().await;
        self.dsl.dataset(id).await
    }

    /// The volume of a head dataset, the same for all who ask for it: their changes must be ordered.
    pub async fn volume(self: &Arc<Self>, id: ObjsetId) -> Result<Arc<LiveZvol>> {
        let dataset = self.dataset(id).await?;
        self.unlocked(&dataset).await?;
        dataset.volume(&self.txgs).await
    }

    /// The filesystem of a head dataset, the same for all who ask for it, as its properties say now and from
    /// now on: that of a mount that was taken away by force, too.
    pub async fn filesystem(self: &Arc<Self>, id: ObjsetId) -> Result<Arc<LiveZpl>> {
        let dataset = self.dataset(id).await?;
        self.unlocked(&dataset).await?;
        let (filesystem, may_change) = dataset.filesystem(&self.txgs).await?;
        if may_change {
            self.complete_counts(id, &filesystem);
        }
        Ok(filesystem)
    }

    /// How many datasets are open.
    pub fn open_datasets(&self) -> usize {
        self.datasets().len()
    }

    fn datasets(&self) -> MutexGuard<'_, HashMap<ObjsetId, Arc<LiveDataset>>> {
        self.dsl.datasets()
    }

    fn config(&self) -> MutexGuard<'_, Config> {
        self.config.lock().ignore_poison()
    }

    /// The next sync writes the configuration.
    fn config_changed(&self) {
        self.config_changed.store(true, Ordering::Relaxed);
    }
}
