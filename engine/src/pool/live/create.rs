//! New pools.
//!
//! # The idea
//! A new pool is a pool of which nothing is committed yet: its vdevs have labels without a pool's state, its
//! MOS is empty, and its first group, number 4, is synced like any other. One task of that group makes what a
//! pool has from the beginning: the pool directory, features, the ZAPs and metaslabs of all vdevs, the
//! dataset layer's first directories, the history, the configuration. Until the uberblock of that group is
//! written there is no pool.
//!
//! # Sizes
//! A leaf's size is rounded down to whole labels (256 KiB); less what labels and boot area take it is the
//! leaf's allocatable size. A mirror has that of its smallest leaf, raidz as many times that as it has
//! leaves, draid whole rows of 16 MiB less two that are kept for a later reflow.
//!
//! Source of the facts: OpenZFS 2.3 `spa.c` (`spa_create`), `vdev.c`, `vdev_label.c`, `vdev_raidz.c`,
//! `vdev_draid.c`.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use device::Device;
use ondisk::blkptr::Blkptr;
use ondisk::dmu::DmuType;
use ondisk::features::Feature;
use ondisk::nvlist::{ByteString, Nvlist};
use ondisk::objset::ObjsetType;
use ondisk::pool_directory::{self as directory, DIRECTORY_OBJECT};
use ondisk::uberblock::Uberblock;
use ondisk::vdev_config::{AllocationBias, PoolConfig, PoolState, VdevConfig, VdevKind};
use ondisk::{Asize, ByteOrder, Guid, ObjectId, ObjsetId, Txg, VdevId};

use super::add::cannot_label;
use super::attach::note;
use super::claims::{Wanted, refuse_twice};
use super::config::{Config, Needed};
use super::sync::{new_packed_nvlist, write_packed_nvlist};
use super::{LivePool, Syncing, upgrade, version};
use crate::alloc::Allocator;
use crate::cache::ArcCache;
use crate::dmu::{LiveObjset, NewObject, zap};
use crate::dsl::edit;
use crate::dsl::history;
use crate::dsl::keys::UserKey;
use crate::env::{Env, System};
use crate::error::{Error, Result};
use crate::mos::LiveFeatures;
use crate::properties::Types;
use crate::store::{Pool, Store};
use crate::tables::Tables;
use crate::txg::{Limits, Tx};
use crate::vdev::Class;
use crate::vdev::capacity::{size_of_parent, usable_bytes};
use crate::vdev::config::{Devices, build_auxiliary, build_tree};
use crate::vdev::spares::shared_guid;

/// The smallest device.
const MIN_DEVICE_BYTES: u64 = 64 << 20;
/// The largest sector size that is chosen unasked, 16 KiB, and the smallest.
pub(super) const AUTOMATIC_ASHIFT: std::ops::RangeInclusive<u8> = 9..=14;

/// Bytes in a block of the list of frees that are put off.
const DEFERRED_BLOCK_BYTES: u32 = 16 << 10;

/// How a top-level vdev is made of its leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// One leaf without redundancy.
    Single,
    /// Every leaf holds everything.
    Mirror,
    /// Stripes with 1 to 3 parity columns.
    Raidz {
        /// Parity columns.
        nparity: u8,
    },
    /// Distributed parity groups and spares.
    Draid {
        /// Parity columns of a group.
        nparity: u8,
        /// Data columns of a group.
        ndata: u8,
        /// Distributed spares.
        nspares: u8,
    },
}

/// A device of a new vdev.
#[derive(Debug, Clone)]
pub struct NewLeaf {
    /// The device, open for writing.
    pub device: Arc<dyn Device>,
    /// Where it will be found again: an absolute path.
    pub path: PathBuf,
    /// A regular file, not a block device.
    pub is_file: bool,
    /// A partition that was made on a disk given as a whole.
    pub whole_disk: bool,
}

/// A new top-level vdev.
#[derive(Debug, Clone)]
pub struct NewTop {
    /// How it is made of its leaves.
    pub layout: Layout,
    /// What it is for.
    pub class: Class,
    /// Its leaves.
    pub leaves: Vec<NewLeaf>,
}

/// A new pool.
#[derive(Debug, Clone)]
pub struct NewPool {
    /// Its name, already checked.
    pub name: String,
    /// Its top-level vdevs; at least one of the normal class.
    pub tops: Vec<NewTop>,
    /// Hot spares.
    pub spares: Vec<NewLeaf>,
    /// Cache devices.
    pub l2cache: Vec<NewLeaf>,
    /// Sector size as a power of two; the devices' own where absent.
    pub ashift: Option<u8>,
    /// Its version, one that [exists](version::exists).
    pub version: u64,
    /// Features to enable; dependencies must be among them. None in a pool of an older version.
    pub features: Vec<Feature>,
    /// Pool properties, as typed. `tname` is the name that the pool has as long as it is open this time.
    pub properties: Vec<(String, String)>,
    /// Properties of the root filesystem, as typed.
    pub root_properties: Vec<(String, String)>,
    /// Where the pool's mount points begin, if not at the root.
    pub altroot: Option<PathBuf>,
    /// For the history.
    pub command: Option<String>,
}

/// What an open pool runs with.
#[derive(Debug, Clone)]
pub struct Surroundings {
    /// Time and randomness.
    pub env: Arc<dyn Env>,
    /// The cache to use; a new one when absent.
    pub cache: Option<Arc<ArcCache>>,
    /// How much may be dirty.
    pub limits: Limits,
    /// This host's id and name, which go into the labels.
    pub host: (u64, String),
}

impl NewPool {
    /// Refuses what cannot become a pool, without touching the devices.
    ///
    /// # Errors
    /// Versions that do not exist, features that are lacking, properties of the root filesystem, layouts or
    /// devices that do not go.
    pub fn check(&self) -> Result<()> {
        check_version(self)?;
        let is_enabled = |feature: Feature| self.features.contains(&feature);
        edit::check_properties(Types::FILESYSTEM, &self.root_properties, self.version, is_enabled)?;
        check_tops(&self.tops, self.ashift, self.version, is_enabled)?;
        if !self.spares.is_empty() {
            check_since("add hot spares", self.version, version::SPARES)?;
        }
        if !self.l2cache.is_empty() {
            check_since("add cache devices", self.version, version::L2CACHE)?;
        }
        if !self.tops.iter().any(|top| top.class == Class::Normal) {
            return Err(Error::Invalid("a pool needs at least one device for its data".into()));
        }
        Ok(())
    }
}

/// Refuses what pools of a version do not have.
pub(super) fn check_since(what: &str, version: u64, since: u64) -> Result<()> {
    match version >= since {
        true => Ok(()),
        false => Err(Error::Unsupported(format!(
            "pool must be upgraded to {what}: it has version {version}, and {since} is needed"
        ))),
    }
}

/// What top-level vdevs would be configured as; refuses those that a pool with these features cannot have.
/// Their devices are not touched.
pub(super) fn check_tops(
    tops: &[NewTop],
    ashift: Option<u8>,
    version: u64,
    is_enabled: impl Fn(Feature) -> bool,
) -> Result<Vec<VdevConfig>> {
    for top in tops {
        let since = match (top.layout, top.class) {
            (Layout::Raidz { nparity: 2 }, _) => version::RAIDZ2,
            (Layout::Raidz { nparity: 3 }, _) => version::RAIDZ3,
            (_, Class::Log) => version::SLOGS,
            _ => version::OLDEST,
        };
        check_since("add these vdevs", version, since)?;
        let of_layout = matches!(top.layout, Layout::Draid { .. }).then_some(Feature::Draid);
        let of_class =
            matches!(top.class, Class::Special | Class::Dedup).then_some(Feature::AllocationClasses);
        let mut needed = of_layout.into_iter().chain(of_class);
        if let Some(feature) = needed.find(|feature| !is_enabled(*feature)) {
            let name = feature.name();
            return Err(Error::Unsupported(format!("the feature '{name}' is not enabled, which this needs")));
        }
    }
    top_configs(tops, 0, ashift, Txg::INITIAL, &System, &mut Devices::new())
}

impl LivePool {
    /// Creates a pool: returns when its first group is committed. Everything that the devices held is lost.
    pub async fn create(new: NewPool, surroundings: Surroundings) -> Result<Arc<LivePool>> {
        Self::create_with_key(new, None, surroundings).await
    }

    /// The same, with the user's key of the root filesystem, where its properties make it an encryption root.
    pub async fn create_with_key(
        new: NewPool,
        key: Option<Arc<UserKey>>,
        surroundings: Surroundings,
    ) -> Result<Arc<LivePool>> {
        new.check()?;
        let all = new.tops.iter().flat_map(|top| &top.leaves).chain(&new.spares).chain(&new.l2cache);
        refuse_twice(&all.map(Wanted::from).collect::<Vec<_>>())?;
        let env = &surroundings.env;
        let pool_guid = random_guid(&**env);
        let mut devices = Devices::new();
        let mut root = VdevConfig::blank(VdevKind::Root, pool_guid);
        (root.id, root.create_txg) = (Some(VdevId(0)), Some(Txg::INITIAL));
        let configs = top_configs(&new.tops, 0, new.ashift, Txg::INITIAL, &**env, &mut devices)?;
        root.children = configs;
        let mut spares = distributed_spares(&root.children, &**env);
        spares.extend(leaf_configs(&new.spares, true, &**env, &mut devices));
        let l2cache = leaf_configs(&new.l2cache, false, &**env, &mut devices);
        let config = Config {
            name: new.name.clone(),
            state: PoolState::Active,
            guid: pool_guid,
            errata: 0,
            comment: None,
            compatibility: None,
            host: surroundings.host.clone(),
            root,
            has_vdev_zaps: true,
        };
        let mut tree = build_tree(&config.root, &devices, None)?;
        tree.spares = build_auxiliary(&spares, &devices)?;
        tree.l2cache = build_auxiliary(&l2cache, &devices)?;
        for (top, new) in tree.tops.iter().zip(&new.tops) {
            let _ = top.class.set(new.class);
        }
        let list = config.for_mos(Txg::NONE, Needed::version(new.version));
        let parsed = PoolConfig::parse(list).map_err(Error::format("pool configuration"))?;
        let cache = ArcCache::or_default(surroundings.cache.as_ref());
        let before_first = Uberblock {
            order: ByteOrder::Little,
            version: new.version,
            txg: Txg(Txg::INITIAL.get() - 1),
            guid_sum: config.guid_sum(),
            timestamp: env.now().as_secs(),
            root_bp: Blkptr::HOLE,
            software_version: version::FEATURES,
            mmp: None,
            checkpoint_txg: Txg::NONE,
            raidz_reflow_info: 0,
        };
        // The name that is on the devices may be another than the one it has while it is open.
        let temporary = new.properties.iter().rev().find(|(property, _)| property == "tname");
        let name = temporary.map_or(&new.name, |(_, name)| name).clone();
        let store = Store::new(name, new.altroot.clone(), tree, cache);
        let pool = Pool::of(store, pool_guid, parsed, before_first, None);
        let salt: Vec<u8> = (0..4).flat_map(|_| env.random().to_le_bytes()).collect();
        if let Ok(salt) = <[u8; 32]>::try_from(salt) {
            let _ = pool.salt().set(salt);
        }
        for top in &config.root.children {
            label_new(&pool, new.version, &config, top).await?;
        }
        let allocator = Allocator::empty(pool.store(), new.version >= version::RAIDZ_DEFLATE);
        let first = Tx::syncing(Txg::INITIAL);
        let mos = LiveObjset::create(&pool, ObjsetId::MOS, ObjsetType::Meta, super::policy_of_mos(), &first);
        if new.version < version::USERSPACE {
            mos.count_nothing();
        }
        let features = LiveFeatures::new(new.version, []);
        let tables = Tables::none(&mos);
        let live = Self::of(pool, &surroundings, config, mos, allocator, features, tables);
        // Before the first group: a pool that is committed is there, and nothing may fail any more.
        live.label_auxiliary().await?;
        live.list_spares();
        live.change(move |s| async move { make_contents(&s, new, key, &spares, &l2cache).await }).await?;
        Ok(live)
    }
}

/// Checks that a new pool can have its version and features.
fn check_version(new: &NewPool) -> Result<()> {
    let is_enabled = |feature: &Feature| new.features.contains(feature);
    if !version::exists(new.version) {
        return Err(Error::Unsupported(format!(
            "there is no version {} of pools; there are versions {} to {} and {}",
            new.version,
            version::OLDEST,
            version::LAST_NUMBERED,
            version::FEATURES
        )));
    }
    if new.version != version::FEATURES && !new.features.is_empty() {
        return Err(Error::Invalid(format!("pools of version {} have no features", new.version)));
    }
    let lacks = |needed: &&Feature| !is_enabled(needed);
    for feature in &new.features {
        if let Some(needed) = feature.info().depends.iter().find(lacks) {
            let (name, needed) = (feature.name(), needed.name());
            return Err(Error::Invalid(format!(
                "feature@{name} needs feature@{needed}, which is not enabled"
            )));
        }
    }
    Ok(())
}

/// Makes the leaves of a new top-level vdev devices of the pool, which none of its states refers to yet.
pub(super) async fn label_new(pool: &Pool, version: u64, config: &Config, top: &VdevConfig) -> Result<()> {
    for leaf in top.leaves() {
        let label = config.for_label(Txg::NONE, top, leaf.guid, Needed::version(version));
        pool.vdevs().initialize_label(leaf.guid, &label).await.map_err(|tried| cannot_label(&tried))?;
    }
    Ok(())
}

/// What a pool has from the beginning.
async fn make_contents(
    s: &Syncing,
    new: NewPool,
    key: Option<Arc<UserKey>>,
    spares: &[VdevConfig],
    l2cache: &[VdevConfig],
) -> Result<()> {
    let directory = NewObject {
        dmu_type: DmuType::OBJECT_DIRECTORY,
        block_size: 512,
        bonus_type: DmuType::NONE,
        bonus: Vec::new(),
        slots: 1,
    };
    let directory = s.mos().claim(&s.tx, DIRECTORY_OBJECT, directory).await?;
    zap::edit::initialize(&directory, &s.tx, zap::edit::NewZap::of(DmuType::OBJECT_DIRECTORY)).await?;
    if new.version == version::FEATURES {
        upgrade::create_lists(s).await?;
    }
    // The txgs of the others are recorded once this one is there.
    for feature in new.features.iter().filter(|feature| **feature == Feature::EnabledTxg).chain(&new.features)
    {
        s.enable_feature(*feature).await?;
    }
    let number = |value: u64| zap::Value::U64(vec![value]);
    s.set_in_directory(directory::CREATION_VERSION, number(new.version)).await?;
    if s.has_version(version::RAIDZ_DEFLATE) {
        s.set_in_directory(directory::DEFLATE, number(1)).await?;
    }
    make_vdev_objects(s, &new.tops).await?;
    let salt = s.pool.pool.salt().get().copied().unwrap_or_default();
    s.set_in_directory(directory::CHECKSUM_SALT, zap::Value::U8(salt.to_vec())).await?;
    edit::create_pool(s, &new.root_properties, key.as_ref()).await?;
    // Frees are never put off to a later group here, but OpenZFS looks for the list.
    let deferred = edit::create_list(s, DEFERRED_BLOCK_BYTES).await?;
    s.set_in_directory(directory::SYNC_BPOBJ, number(deferred.get())).await?;
    for (name, devices) in [(directory::SPARES, spares), (directory::L2CACHE, l2cache)] {
        if !devices.is_empty() {
            write_auxiliary(s, name, devices).await?;
        }
    }
    for (name, value) in new.properties.iter().filter(|(name, _)| name != "tname") {
        super::properties::set(s, name, value).await?;
    }
    if let Some(command) = &new.command {
        let host = s.pool.config().host.1.clone();
        let record = history::command(command, s.now(), s.owner().0.into(), &host);
        s.append_history(&record).await?;
    }
    note_version(s, "create").await?;
    s.pool.config_changed();
    Ok(())
}

/// Notes in the history which version a pool has, and which software created or imported it.
pub async fn note_version(s: &Syncing, event: &str) -> Result<()> {
    let version = s.pool.version();
    let host = s.pool.config().host.1.clone();
    let software = concat!("Cenote ", env!("CARGO_PKG_VERSION"));
    note(s, event, &format!("pool version {version}; software version {software}; host {host}")).await
}

/// Metaslab arrays and ZAPs of all vdevs of a new pool.
async fn make_vdev_objects(s: &Syncing, tops: &[NewTop]) -> Result<()> {
    let map = s.create_in_directory(directory::VDEV_ZAP_MAP).await?;
    if s.feature_enabled(Feature::VdevZapsV2) {
        let zap = new_vdev_zap(s, &map).await?;
        s.pool.config().root.root_zap = Some(zap);
        s.use_feature(Feature::VdevZapsV2, 1).await?;
    }
    for id in 0..tops.len() {
        take_up_top(s, id).await?;
    }
    Ok(())
}

/// Gives the vdevs of a pool that has no ZAPs for them such, as OpenZFS does when it opens one.
pub(super) async fn complete_vdev_zaps(s: &Syncing) -> Result<()> {
    if s.directory_u64(directory::VDEV_ZAP_MAP).await?.is_some() {
        return Ok(());
    }
    let map = s.create_in_directory(directory::VDEV_ZAP_MAP).await?;
    for (id, top) in s.pool.pool.vdevs().tops.iter().enumerate() {
        if matches!(top.config.kind, VdevKind::Hole | VdevKind::Missing | VdevKind::Indirect) {
            continue;
        }
        let top_zap = new_top_zap(s, &map, top.class()).await?;
        s.pool.allocator().set_top_zap(id, top_zap)?;
        let leaf_zaps = new_leaf_zaps(s, &map, top).await?;
        let mut config = s.pool.config();
        if let Some(top) = config.root.children.get_mut(id) {
            top.top_zap = Some(top_zap);
            set_leaf_zaps(top, &leaf_zaps);
        }
    }
    s.pool.config().has_vdev_zaps = true;
    s.pool.config_changed();
    Ok(())
}

/// The ZAP of a top-level vdev.
async fn new_top_zap(s: &Syncing, map: &Arc<crate::dmu::LiveObject>, class: Class) -> Result<ObjectId> {
    let top_zap = new_vdev_zap(s, map).await?;
    let bias = match class {
        Class::Normal => None,
        Class::Special => Some(AllocationBias::Special),
        Class::Dedup => Some(AllocationBias::Dedup),
        Class::Log => Some(AllocationBias::Log),
    };
    if let Some(bias) = bias {
        let zap = s.mos().object(top_zap).await?;
        let key = zap::Key::Name(directory::top_zap::ALLOCATION_BIAS.into());
        let text = bias.name().bytes().chain([0]).collect();
        zap::edit::set(&zap, &s.tx, &key, &zap::Value::U8(text)).await?;
    }
    Ok(top_zap)
}

/// The ZAPs of the leaves of a top-level vdev.
async fn new_leaf_zaps(
    s: &Syncing,
    map: &Arc<crate::dmu::LiveObject>,
    top: &crate::vdev::Vdev,
) -> Result<HashMap<Guid, ObjectId>> {
    let mut zaps = HashMap::new();
    for leaf in top.walk().filter(|vdev| vdev.children.is_empty()) {
        zaps.insert(leaf.guid, new_vdev_zap(s, map).await?);
    }
    Ok(zaps)
}

/// Makes what the MOS keeps for the top-level vdev `id`, which the tree and the configuration already have.
pub(super) async fn take_up_top(s: &Syncing, id: usize) -> Result<()> {
    let map = s.directory_object(directory::VDEV_ZAP_MAP).await?;
    let vdevs = s.pool.pool.vdevs();
    let top = u32::try_from(id).ok().and_then(|id| vdevs.top(id));
    let top = top.ok_or_else(|| Error::corrupt("vdev tree", format!("no top-level vdev {id}")))?;
    let top_zap = new_top_zap(s, &map, top.class()).await?;
    if matches!(top.class(), Class::Special | Class::Dedup) {
        s.use_feature(Feature::AllocationClasses, 1).await?;
    }
    let (array, shift) = s.pool.allocator().add_top(s.mos(), &s.tx, top, Some(top_zap)).await?;
    let leaf_zaps = new_leaf_zaps(s, &map, top).await?;
    let draid = {
        let mut config = s.pool.config();
        let Some(top) = config.root.children.get_mut(id) else {
            return Err(Error::corrupt("pool configuration", format!("no top-level vdev {id}")));
        };
        (top.metaslab_array, top.metaslab_shift, top.top_zap) = (Some(array), Some(shift), Some(top_zap));
        set_leaf_zaps(top, &leaf_zaps);
        matches!(top.kind, VdevKind::Draid { .. })
    };
    if draid {
        s.use_feature(Feature::Draid, 1).await?;
    }
    s.pool.config_changed();
    Ok(())
}

fn set_leaf_zaps(vdev: &mut VdevConfig, zaps: &HashMap<Guid, ObjectId>) {
    if let Some(zap) = zaps.get(&vdev.guid) {
        vdev.leaf_zap = Some(*zap);
    }
    vdev.children.iter_mut().for_each(|child| set_leaf_zaps(child, zaps));
}

/// A ZAP for a vdev, entered in the map of all of them.
pub(super) async fn new_vdev_zap(s: &Syncing, map: &Arc<crate::dmu::LiveObject>) -> Result<ObjectId> {
    let zap = s.create_zap(zap::metadata_type()).await?.id();
    let key = zap::Key::Name(format!("{:x}", zap.get()).into_bytes());
    zap::edit::set(map, &s.tx, &key, &zap::Value::U64(vec![zap.get()])).await?;
    Ok(zap)
}

/// Writes the list of spares or cache devices.
pub(super) async fn write_auxiliary(s: &Syncing, name: &str, devices: &[VdevConfig]) -> Result<()> {
    let object = match s.directory_u64(name).await? {
        Some(_) => s.directory_object(name).await?,
        None => {
            let object = new_packed_nvlist(s).await?;
            s.set_in_directory(name, zap::Value::U64(vec![object.id().get()])).await?;
            object
        }
    };
    let mut list = Nvlist::new();
    list.push(name, devices.iter().map(VdevConfig::to_nvlist).collect::<Vec<_>>());
    write_packed_nvlist(s, &object, &list).await
}

pub(super) fn random_guid(env: &dyn Env) -> Guid {
    loop {
        match env.random() {
            0 => {}
            guid => return Guid(guid),
        }
    }
}

/// The configurations of new top-level vdevs with numbers from `first` on. Their devices go into `devices`
/// under the guids that they get.
pub(super) fn top_configs(
    tops: &[NewTop],
    first: usize,
    ashift: Option<u8>,
    txg: Txg,
    env: &dyn Env,
    devices: &mut Devices,
) -> Result<Vec<VdevConfig>> {
    let numbered = (first..).zip(tops).map(|(id, top)| {
        let id = u32::try_from(id).map_err(|_| Error::Invalid("there are too many vdevs".into()))?;
        top_config(top, VdevId(id), ashift, txg, env, devices)
    });
    numbered.collect()
}

/// The configuration of a new top-level vdev. Its devices go into `devices` under the guids that they get.
fn top_config(
    top: &NewTop,
    id: VdevId,
    ashift: Option<u8>,
    txg: Txg,
    env: &dyn Env,
    devices: &mut Devices,
) -> Result<VdevConfig> {
    let needed = |least: usize, what: &str| match top.leaves.len() {
        count if count < least => Err(Error::Invalid(format!("{what} needs at least {least} devices"))),
        _ => Ok(()),
    };
    let children = top.leaves.len();
    let (kind, leaf_parent) = match top.layout {
        Layout::Single => (None, false),
        Layout::Mirror => {
            needed(2, "a mirror")?;
            (Some(VdevKind::Mirror), true)
        }
        Layout::Raidz { nparity } => {
            needed(usize::from(nparity) + 1, "this raidz")?;
            let kind = VdevKind::Raidz { nparity, expanding: false, expand_txgs: Vec::new() };
            (Some(kind), true)
        }
        Layout::Draid { nparity, ndata, nspares } => {
            let width = usize::from(nparity) + usize::from(ndata);
            needed(width + usize::from(nspares), "this draid")?;
            let disks = children - usize::from(nspares);
            let ngroups = (1..=disks).find(|groups| (groups * width).is_multiple_of(disks));
            let ngroups = ngroups.and_then(|groups| u8::try_from(groups).ok());
            let ngroups = ngroups.ok_or_else(|| Error::Invalid("draid: too many groups".into()))?;
            (Some(VdevKind::Draid { nparity, ndata, nspares, ngroups }), true)
        }
    };
    let mut leaves = Vec::with_capacity(children);
    let mut smallest = u64::MAX;
    let mut physical_ashift = *AUTOMATIC_ASHIFT.start();
    let mut logical_ashift = *AUTOMATIC_ASHIFT.start();
    for (index, leaf) in (0u32..).zip(&top.leaves) {
        let guid = random_guid(env);
        let size = leaf.device.size_bytes();
        if size < MIN_DEVICE_BYTES {
            let path = leaf.path.display();
            return Err(Error::Invalid(format!("{path}: device is too small (less than 64 MiB)")));
        }
        smallest = smallest.min(usable_bytes(size));
        let sectors = leaf.device.sector_sizes();
        logical_ashift = logical_ashift.max(log2(sectors.logical_bytes));
        physical_ashift = physical_ashift.max(log2(sectors.physical_bytes));
        devices.insert(guid, Arc::clone(&leaf.device));
        leaves.push(leaf_config(leaf, VdevId(index), guid, txg));
    }
    let automatic = physical_ashift.min(*AUTOMATIC_ASHIFT.end());
    let ashift = ashift.unwrap_or(automatic);
    if ashift < logical_ashift {
        return Err(Error::Invalid(format!(
            "ashift={ashift} is less than the devices' sectors need ({logical_ashift})"
        )));
    }
    let asize = kind.as_ref().map_or(smallest, |kind| size_of_parent(kind, children, smallest));
    let mut config = match (kind, leaves.pop()) {
        (None, Some(leaf)) if leaves.is_empty() => leaf,
        (Some(kind), Some(last)) if leaf_parent => {
            leaves.push(last);
            let mut config = VdevConfig::blank(kind, random_guid(env));
            config.create_txg = Some(txg);
            config.children = leaves;
            config
        }
        _ => return Err(Error::Invalid("a plain device is one device".into())),
    };
    config.id = Some(id);
    config.ashift = Some(ashift);
    config.asize = Some(Asize(asize >> ashift << ashift));
    config.is_log = top.class == Class::Log;
    Ok(config)
}

pub(super) fn leaf_config(leaf: &NewLeaf, id: VdevId, guid: Guid, txg: Txg) -> VdevConfig {
    let mut config = VdevConfig::blank(if leaf.is_file { VdevKind::File } else { VdevKind::Disk }, guid);
    config.id = Some(id);
    config.path = Some(path_string(&leaf.path));
    config.whole_disk = (!leaf.is_file).then_some(leaf.whole_disk);
    config.create_txg = Some(txg);
    config
}

fn path_string(path: &Path) -> ByteString {
    use std::os::unix::ffi::OsStrExt;
    ByteString::new(path.as_os_str().as_bytes())
}

/// The configurations of the spares that draid vdevs have in themselves.
pub(super) fn distributed_spares(tops: &[VdevConfig], env: &dyn Env) -> Vec<VdevConfig> {
    let mut configs = Vec::new();
    for top in tops {
        let VdevKind::Draid { nparity, nspares, .. } = &top.kind else { continue };
        for spare in 0..u64::from(*nspares) {
            let kind = VdevKind::DraidSpare { top_guid: top.guid, spare_id: spare };
            let mut config = VdevConfig::blank(kind, random_guid(env));
            let top_id = top.id.map_or(0, |id| id.get());
            config.path = Some(ByteString::new(format!("draid{nparity}-{top_id}-{spare}").as_bytes()));
            (config.whole_disk, config.is_spare) = (Some(true), true);
            configs.push(config);
        }
    }
    configs
}

/// The configurations of spares or cache devices. Their devices go into `devices` under the guids that they
/// get.
pub(super) fn leaf_configs(
    leaves: &[NewLeaf],
    are_spares: bool,
    env: &dyn Env,
    devices: &mut Devices,
) -> Vec<VdevConfig> {
    let mut configs = Vec::new();
    for leaf in leaves {
        // Pools that share a spare know it by the same guid.
        let known = shared_guid(&*leaf.device).filter(|_| are_spares);
        let guid = known.unwrap_or_else(|| random_guid(env));
        devices.insert(guid, Arc::clone(&leaf.device));
        let mut config = leaf_config(leaf, VdevId(0), guid, Txg::NONE);
        (config.id, config.create_txg) = (None, None);
        if are_spares {
            config.is_spare = true;
        } else {
            config.ashift = Some(log2(leaf.device.sector_sizes().physical_bytes));
        }
        configs.push(config);
    }
    configs
}

pub(super) fn log2(bytes: u32) -> u8 {
    bytes.max(512).next_power_of_two().trailing_zeros() as u8
}

/// The features that a new pool gets unless the user says otherwise: all of OpenZFS 2.3, so that what the
/// stable distributions have can open it. What is not maintained here is never made use of.
pub fn default_features() -> Vec<Feature> {
    Feature::ALL.iter().copied().filter(|feature| feature.is_usual()).collect()
}
