//! A pool that is written.
//!
//! # The idea
//! [`LivePool`] puts together what writing takes: the transaction groups ([`crate::txg`]), the live object
//! sets ([`crate::dmu::live`]), the block writer and the allocator, and the sync of a group that turns all of
//! it into a new uberblock (`sync`). Datasets that somebody writes are open as [`LiveDataset`]s, and closed
//! when nobody has used them for some groups; everything that only reads takes a [view](LivePool::view), the
//! pool as of the last committed group.
//!
//! # Who may change what
//! Objects of datasets are changed by whoever holds a [`Tx`] of the open group. The MOS is changed in syncing
//! context only, by one task after the other: [`LivePool::change`] hands such a task to the next sync and
//! waits until the group is committed. So the dataset layer never sees half of another change.
//!
//! # When something cannot be written
//! Then whoever writes waits for the devices ([`crate::store::suspend`]). Where a second try cannot help nothing
//! more is written: the groups stop with the error, whoever waits gets it, and the devices keep the last
//! committed state.
//!
//! | lock | guards | order |
//! |---|---|---|
//! | `syncing` | that one sync, or one opening of a dataset, runs at a time; held across awaits | first |
//! | `datasets`, `tasks`, `config`, views | the maps; for a few lines, never across an await | after it, alone; but logs and groups are asked while `datasets` is held, so that nobody opens what is being closed |
//!
//! | module | what it owns |
//! |---|---|
//! | `create` | new pools |
//! | `add` | more vdevs, another guid |
//! | `devices` | devices that fail, are taken offline and come back |
//! | `grow` | vdevs that grow with their devices |
//! | `multihost` | marking the pool as in use, and watching for such marks |
//! | `open` | pools that are imported for writing |
//! | `sync` | the sync of a group; tasks |
//! | `config` | what the MOS and the labels say |
//! | `properties` | setting pool properties |
//! | `room` | refusing data for which there is no room |
//! | `changes` | the same of changes of datasets and properties |
//! | `features` | reference counts of features |
//! | `repair` | read repair |
//! | `scan` | scrubs that OpenZFS left unfinished |
//! | `brt` | blocks with several references |
//! | `checkpoint` | the state that the pool can go back to |
//! | `counting` | filesystems that count what features ask for that came later |
//! | `sweep` | going through free space: initializing and trimming it by hand |
//! | `trim` | telling devices what became free |
//! | `upgrade` | taking pools of old versions to newer ones |
//! | `views` | committed states that are being read |
//! | `turns` | who may sync or open a dataset now |

mod add;
mod brt;
mod changes;
mod checkpoint;
mod config;
mod costs;
mod counting;
mod create;
mod devices;
mod features;
mod grow;
mod multihost;
mod open;
pub mod properties;
mod remove;
mod repair;
mod room;
mod scan;
mod shares;
mod sweep;
mod sync;
mod trim;
mod turns;
mod upgrade;
mod views;

pub use add::Auxiliary;
pub use changes::Spare;
pub use counting::CountingStatus;
pub use create::{Layout, NewLeaf, NewPool, NewTop, Surroundings, default_features};
pub use devices::TakeOffline;
pub use room::{DatasetRoom, with_room};
pub use shares::Level;
pub use sweep::{Stop, Sweep, SweepState, SweepStatus, sweeps_of};
pub use upgrade::set_version;
pub use views::Lent;

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::JoinHandle;

use futures_util::lock::Mutex as AsyncMutex;
use ondisk::blkptr::{Blkptr, ChecksumType, CompressType};
use ondisk::dmu::DmuType;
use ondisk::features::Feature;
use ondisk::history::HistoryRecord;
use ondisk::pool_directory::DIRECTORY_OBJECT;
use ondisk::pool_version as version;
use ondisk::uberblock::Uberblock;
use ondisk::{ObjectId, ObjsetId, Txg};

use crate::Pool;
use crate::alloc::Allocator;
use crate::cache::Primary;
use crate::dataset::dsl::history;
use crate::dataset::dsl::{Dsl, edit};
use crate::dataset::zpl::{self, LiveZpl};
use crate::dataset::zvol::LiveZvol;
use crate::dmu::zap::{self, edit as zap_edit};
use crate::dmu::{LiveObject, LiveObjset, Policy};
use crate::env::Env;
use crate::error::{Error, Result};
use crate::txg::{Tx, Txgs};
use crate::zil::{SyncMode, Zil};
use crate::zio::Writer;
use brt::Brt;
use config::Config;
use counting::Counting;
use devices::DeviceStates;
use features::LiveFeatures;
use grow::Growth;
use multihost::Heartbeat;
use room::{LogSpace, PoolGauge};
use shares::Shares;
use sweep::Sweeps;
use sync::Task;
use turns::Turns;
use views::Views;

/// A dataset that nobody used for so many groups is closed.
const IDLE_TXGS: u32 = 16;

/// A pool that is written, shared as `Arc<LivePool>`.
#[derive(Debug)]
pub struct LivePool {
    pool: Arc<Pool>,
    writer: Writer,
    txgs: Arc<Txgs>,
    mos: Arc<LiveObjset>,
    env: Arc<dyn Env>,
    features: LiveFeatures,
    brt: Brt,
    views: Views,
    room: Arc<PoolGauge>,
    shares: Arc<Shares>,
    config: Mutex<Config>,
    config_changed: AtomicBool,
    devices: DeviceStates,
    growth: Growth,
    heartbeat: Heartbeat,
    autotrim: AtomicBool,
    sweeps: Sweeps,
    counting: Arc<Counting>,
    datasets: Mutex<HashMap<ObjsetId, Arc<LiveDataset>>>,
    tasks: Mutex<Vec<Task>>,
    /// Places of the list of destroyed datasets' trees that cannot be freed, as they are damaged.
    stalled_trees: Mutex<BTreeSet<u64>>,
    checkpoint: Mutex<Option<Uberblock>>,
    syncing: Turns,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// A head dataset that is open for writing.
#[derive(Debug)]
pub struct LiveDataset {
    /// Its objects. The number of the object set is that of the dataset in the MOS.
    pub objset: Arc<LiveObjset>,
    /// Its intent log.
    pub zil: Zil,
    /// Asked before data are accepted.
    pub room: Arc<DatasetRoom>,
    read_only: AtomicBool,
    settings: Mutex<Settings>,
    /// The volume in it, while somebody has it.
    volume: Mutex<Weak<LiveZvol>>,
    /// The filesystem in it, while somebody has it.
    filesystem: Mutex<Weak<LiveZpl>>,
    /// Held while the filesystem is opened, which frees files: once.
    opening: AsyncMutex<()>,
    /// Its log may have records of extended attributes inside files when the group that is being written is
    /// committed.
    begins_xattr_log: AtomicBool,
    /// Groups committed since somebody used it.
    idle_txgs: AtomicU32,
}

/// What properties say of a dataset that is open, beside how its blocks are written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Settings {
    /// `sync`.
    pub sync: SyncMode,
    /// `logbias=throughput`.
    pub for_throughput: bool,
    /// `readonly`.
    pub read_only: bool,
    /// `primarycache`.
    pub primary_cache: Primary,
    /// What concerns filesystems.
    pub filesystem: zpl::Settings,
}

impl LiveDataset {
    /// Whether nobody has anything of it, and all of it is committed.
    fn is_unused(&self) -> bool {
        // The log has the object set too.
        Arc::strong_count(&self.objset) <= 2 && self.objset.is_clean()
    }

    /// Whether users may not change it. Whoever serves it asks before each change: the property may be set at
    /// any time.
    pub fn is_read_only(&self) -> bool {
        self.read_only.load(Ordering::Acquire)
    }

    fn filesystem_settings(&self) -> zpl::Settings {
        self.settings.lock().unwrap_or_else(PoisonError::into_inner).filesystem
    }

    /// Lets it behave as its properties say now.
    pub fn set(&self, settings: Settings) {
        self.zil.set_sync_mode(settings.sync);
        self.zil.set_for_throughput(settings.for_throughput);
        self.read_only.store(settings.read_only, Ordering::Release);
        self.objset.primary().set(settings.primary_cache);
        *self.settings.lock().unwrap_or_else(PoisonError::into_inner) = settings;
        if let Some(filesystem) = self.open_filesystem() {
            filesystem.set(&settings.filesystem);
        }
    }

    /// The filesystem in it, if somebody has it.
    fn open_filesystem(&self) -> Option<Arc<LiveZpl>> {
        self.filesystem.lock().unwrap_or_else(PoisonError::into_inner).upgrade()
    }
}

/// The sync of one group, for whoever changes the MOS as part of it: the dataset layer's changes happen
/// nowhere else, so that they never meet each other, and what one of them reads is as all before it left it.
#[derive(Clone, Debug)]
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
        self.pool.env.now().as_secs()
    }

    /// A random number, for guids.
    pub fn random(&self) -> u64 {
        self.pool.env.random()
    }

    /// User and group that the root of a new filesystem belongs to.
    pub fn owner(&self) -> (u32, u32) {
        self.pool.env.owner()
    }

    /// Takes up the object set of a dataset that was just created, so that this group writes it.
    pub fn adopt(&self, objset: Arc<LiveObjset>) {
        self.pool.adopt(objset);
    }

    /// The head dataset `id`, opened if it is not.
    pub async fn dataset(&self, id: ObjsetId) -> Result<Arc<LiveDataset>> {
        self.pool.open_dataset(id).await
    }

    /// Forgets a head dataset that was destroyed, or whose contents were replaced; what it had not written is
    /// dropped. Whoever has it open gets errors from now on.
    pub fn forget_dataset(&self, id: ObjsetId) {
        if let Some(gone) = self.pool.datasets().remove(&id) {
            gone.objset.set_gone();
        }
    }

    /// The head dataset `id`, if it is open.
    pub fn open_dataset(&self, id: ObjsetId) -> Option<Arc<LiveDataset>> {
        self.pool.datasets().get(&id).cloned()
    }

    /// Counts more (or fewer) uses of a feature (`spa_feature_incr`/`decr`). The first use activates it.
    pub async fn use_feature(&self, feature: Feature, change: i64) -> Result<()> {
        features::change(self, feature, change).await
    }

    /// A reference to a block of a dataset is gone. True when it was the last one, so that the block is to be
    /// freed.
    pub async fn release(&self, bp: &Blkptr) -> Result<bool> {
        brt::release(self, bp).await
    }

    /// Enables a feature and those that it depends on.
    pub async fn enable_feature(&self, feature: Feature) -> Result<()> {
        features::enable(self, feature).await
    }

    /// Whether the pool has this version or a newer one.
    pub fn has_version(&self, version: u64) -> bool {
        self.pool.version() >= version
    }

    /// Adds a record to the pool's history, which pools of the first versions have not.
    pub async fn append_history(&self, record: &HistoryRecord) -> Result<()> {
        match self.has_version(version::HISTORY) {
            true => history::append(self.mos(), &self.tx, record, self.pool.allocator().usable_bytes()).await,
            false => Ok(()),
        }
    }

    /// Whether a feature is enabled, used or not.
    pub fn feature_enabled(&self, feature: Feature) -> bool {
        self.pool.feature_count(feature).is_some()
    }

    /// The number under `name` in the pool directory.
    pub async fn directory_u64(&self, name: &str) -> Result<Option<u64>> {
        let directory = self.mos().object(DIRECTORY_OBJECT).await?;
        let value = zap_edit::lookup(&directory, &zap::Key::Name(name.into())).await?;
        Ok(value.and_then(|value| value.as_u64()))
    }

    /// The object that the pool directory calls `name`.
    pub async fn directory_object(&self, name: &str) -> Result<Arc<LiveObject>> {
        let id = self.directory_u64(name).await?;
        let id = id.ok_or_else(|| Error::corrupt("pool directory", format!("no entry {name}")))?;
        self.mos().object(ObjectId(id)).await
    }

    /// Sets an entry of the pool directory.
    pub async fn set_in_directory(&self, name: &str, value: zap::Value) -> Result<()> {
        let directory = self.mos().object(DIRECTORY_OBJECT).await?;
        zap_edit::set(&directory, &self.tx, &zap::Key::Name(name.into()), &value).await
    }

    /// Creates a ZAP of metadata and enters it in the pool directory.
    pub async fn create_in_directory(&self, name: &str) -> Result<Arc<LiveObject>> {
        let zap = self.create_zap(zap::metadata_type()).await?;
        self.set_in_directory(name, zap::Value::U64(vec![zap.id().get()])).await?;
        Ok(zap)
    }

    /// Creates a ZAP in the MOS.
    pub async fn create_zap(&self, dmu_type: DmuType) -> Result<Arc<LiveObject>> {
        zap_edit::create(self.mos(), &self.tx, zap_edit::NewZap::of(dmu_type)).await
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
    }
}

impl LivePool {
    /// A pool whose configuration and metadata are known, and of which nothing is open yet. `counts` are the
    /// features that it has.
    fn of(
        pool: Arc<Pool>,
        surroundings: &Surroundings,
        config: Config,
        mos: Arc<LiveObjset>,
        allocator: Arc<Allocator>,
        counts: LiveFeatures,
        brt: Brt,
    ) -> Arc<Self> {
        let txgs = Txgs::beside(pool.uberblock().txg, surroundings.limits, pool.cache());
        let room = Arc::new(PoolGauge::new(&allocator));
        let shares = Arc::<Shares>::default();
        let log_space = Arc::new(LogSpace { pool: Arc::clone(&room), txgs: Arc::clone(&txgs) });
        let writer = Writer::new(Arc::clone(pool.store()), allocator).with_log_room(log_space);
        writer.set_features(upgrade::writer_features(config.version, &counts));
        Arc::new(Self {
            writer,
            txgs,
            mos,
            env: Arc::clone(&surroundings.env),
            features: counts,
            // A view of its own: one that is held keeps space from being used again.
            views: Views::new(pool.again()),
            brt,
            room,
            shares,
            config: Mutex::new(config),
            config_changed: true.into(),
            devices: DeviceStates::default(),
            growth: Growth::default(),
            heartbeat: Heartbeat::default(),
            autotrim: AtomicBool::new(false),
            sweeps: Sweeps::default(),
            counting: Arc::default(),
            datasets: Mutex::default(),
            tasks: Mutex::default(),
            stalled_trees: Mutex::default(),
            checkpoint: Mutex::default(),
            syncing: Turns::default(),
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

    /// The same for somebody who may hold it for long: it is taken back when it keeps more space from being
    /// used again than is free otherwise.
    pub fn lend_view(&self) -> (Arc<Pool>, Arc<Lent>) {
        self.views.lend()
    }

    /// The pool as of the last committed group, for whoever reads snapshots only: what it refers to besides
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
        &self.writer
    }

    /// Where space comes from.
    pub fn allocator(&self) -> &Arc<Allocator> {
        self.writer.allocator()
    }

    /// Time and randomness.
    pub fn env(&self) -> &Arc<dyn Env> {
        &self.env
    }

    /// Deflated bytes that cloned blocks would take more if they were copies.
    pub fn saved_by_clones(&self) -> u64 {
        self.brt.saved_bytes()
    }

    /// How often a feature is used; absent when it is not enabled.
    pub fn feature_count(&self, feature: Feature) -> Option<u64> {
        self.features.count(feature)
    }

    /// The head dataset `id`, open for writing.
    ///
    /// # Errors
    /// [`Error::ReadOnly`] for a snapshot: nothing can change one.
    pub async fn dataset(self: &Arc<Self>, id: ObjsetId) -> Result<Arc<LiveDataset>> {
        if let Some(open) = self.datasets().get(&id) {
            return Ok(Arc::clone(open));
        }
        // While a group is synced, the MOS is between two states.
        let _turn = self.syncing.take().await;
        self.open_dataset(id).await
    }

    /// As [`LivePool::dataset`], for those who have the turn.
    async fn open_dataset(self: &Arc<Self>, id: ObjsetId) -> Result<Arc<LiveDataset>> {
        if let Some(open) = self.datasets().get(&id) {
            return Ok(Arc::clone(open));
        }
        let dataset = self.dsl().await?.dataset_of_object(ObjectId(id.get())).await?;
        if dataset.is_snapshot() {
            return Err(Error::ReadOnly(format!("snapshot {id} of {}", self.pool.name())));
        }
        let policy = edit::policy(&self.reading(), id).await?;
        let objset = LiveObjset::open(&self.pool, id, &dataset.phys.bp, policy).await?;
        objset.list_births(edit::has_livelist(&self.reading(), id).await?);
        let settings = edit::settings(&self.reading(), id).await?;
        let logs_xattrs = edit::logs_xattrs(&self.reading(), id).await?;
        let open = self.adopt(objset);
        if logs_xattrs {
            open.zil.set_logs_xattrs();
        }
        open.set(settings);
        self.set_room(&open).await?;
        Ok(open)
    }

    /// The volume of a head dataset, the same for all who ask for it: their changes must be ordered.
    pub async fn volume(self: &Arc<Self>, id: ObjsetId) -> Result<Arc<LiveZvol>> {
        let dataset = self.dataset(id).await?;
        let of = || dataset.volume.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(volume) = of().upgrade() {
            return Ok(volume);
        }
        let opened = LiveZvol::open(&self.txgs, &dataset.objset, &dataset.zil).await?;
        opened.set_room(dataset.room.clone());
        {
            let mut volume = of();
            if let Some(meanwhile) = volume.upgrade() {
                return Ok(meanwhile);
            }
            *volume = Arc::downgrade(&opened);
        }
        Ok(opened)
    }

    /// The filesystem of a head dataset, the same for all who ask for it, as its properties say now and from
    /// now on: that of a mount that was taken away by force, too.
    pub async fn filesystem(self: &Arc<Self>, id: ObjsetId) -> Result<Arc<LiveZpl>> {
        let dataset = self.dataset(id).await?;
        let of = || dataset.filesystem.lock().unwrap_or_else(PoisonError::into_inner);
        let _opening = dataset.opening.lock().await;
        if let Some(filesystem) = of().upgrade() {
            return Ok(filesystem);
        }
        let (objset, zil) = (&dataset.objset, &dataset.zil);
        let options = dataset.filesystem_settings().options();
        let opened = match dataset.is_read_only() {
            // Its users change nothing, so neither does opening it.
            true => LiveZpl::open_as_it_is(&self.txgs, objset, zil, options).await?,
            false => LiveZpl::open(&self.txgs, objset, zil, options).await?,
        };
        opened.set_room(dataset.room.clone());
        *of() = Arc::downgrade(&opened);
        // They may have been set since.
        opened.set(&dataset.filesystem_settings());
        if !dataset.is_read_only() {
            self.complete_counts(id, &opened);
        }
        Ok(opened)
    }

    /// For reading the MOS as it is now. For those who have the turn.
    fn reading(self: &Arc<Self>) -> Syncing {
        Syncing { pool: Arc::clone(self), tx: Arc::new(Tx::syncing(self.txgs.open_txg())) }
    }

    /// The datasets as the MOS has them now. For those who have the turn.
    async fn dsl(&self) -> Result<Dsl> {
        Dsl::open_in(self.mos.view()).await
    }

    fn adopt(&self, objset: Arc<LiveObjset>) -> Arc<LiveDataset> {
        objset.set_progress(&self.txgs);
        objset.set_can_clone(self.feature_count(Feature::BlockCloning).is_some());
        objset.set_can_count_projects(self.feature_count(Feature::ProjectQuota).is_some());
        let zil = Zil::open(&objset, &self.writer, &self.txgs, &self.env);
        let name = format!("objset {} of {}", objset.id(), self.pool.name());
        let room = DatasetRoom::new(objset.id(), (&self.room, &self.shares), &self.txgs, name);
        let read_only = AtomicBool::new(false);
        let dataset = Arc::new(LiveDataset {
            objset,
            zil,
            room,
            read_only,
            settings: Mutex::default(),
            volume: Mutex::default(),
            filesystem: Mutex::default(),
            opening: AsyncMutex::new(()),
            begins_xattr_log: AtomicBool::new(false),
            idle_txgs: AtomicU32::new(0),
        });
        self.datasets().insert(dataset.objset.id(), Arc::clone(&dataset));
        dataset
    }

    /// How many datasets are open.
    pub fn open_datasets(&self) -> usize {
        self.datasets().len()
    }

    /// Closes datasets that nobody has used for some groups. For those who have the turn.
    fn close_idle(&self) {
        // Whoever opens one gets it from this map.
        self.datasets().retain(|_, dataset| {
            if Arc::strong_count(dataset) > 1 || !dataset.is_unused() {
                dataset.idle_txgs.store(0, Ordering::Relaxed);
                return true;
            }
            dataset.idle_txgs.fetch_add(1, Ordering::Relaxed) < IDLE_TXGS || !dataset.zil.settles()
        });
    }

    fn datasets(&self) -> MutexGuard<'_, HashMap<ObjsetId, Arc<LiveDataset>>> {
        self.datasets.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The host that the pool is open on, as its labels have it.
    pub(crate) fn host_name(&self) -> String {
        self.config().host.1.clone()
    }

    fn config(&self) -> MutexGuard<'_, Config> {
        self.config.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next sync writes the configuration.
    fn config_changed(&self) {
        self.config_changed.store(true, Ordering::Relaxed);
    }
}
