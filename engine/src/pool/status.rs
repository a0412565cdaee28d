//! The state of a pool and of each vdev, as data for `zpool status` and `zpool import`.
//!
//! [`health`] tells of an open pool, [`preview`] of one that could be imported. Both judge as OpenZFS does:
//! of all that could be said the most severe is the [`Reason`]. The sentences are the command line's.
//!
//! Source of the facts: OpenZFS 2.3 `libzfs_status.c` (`check_status`), `dsl_scan.h`, `spa_misc.c`
//! (`spa_scan_get_stats`), `vdev_raidz.c` (`spa_raidz_expand_get_stats`), `vdev_removal.c`
//! (`spa_removal_get_stats`).

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{SystemTime, UNIX_EPOCH};

use ondisk::features::Feature;
use ondisk::indirect::{MappingEntry, SpaRemovingPhys};
use ondisk::label::aligned_size;
use ondisk::pool_directory::{self as directory, DIRECTORY_OBJECT, top_zap};
use ondisk::scan::{ErrorScrubPhys, Function, ScanPhys, ScanState};
use ondisk::vdev_config::{PoolState, VdevConfig, VdevKind};
use ondisk::{ByteOrder, Guid, ObjectId, Reader};

use super::discovery::FoundPool;
use super::errlog;
use super::import::{ImportOptions, uberblocks, unknown_features, version_is_supported};
use super::live::LivePool;
use super::load::{Assembly, provisional};
use super::properties::PoolProp;
use crate::Pool;
use crate::cache::ArcCache;
use crate::dsl::Dsl;
use crate::dsl::pool_features::Features;
use crate::dsl::pool_space::PoolSpace;
use crate::error::{Error, Result};
use crate::store::suspend::FailMode;
use crate::vdev::{
    Aux, Class, ErrorCounters, Kind, LABEL_END_BYTES, LABEL_START_BYTES, State, Status, Vdev, VdevTree,
    state_of_parent,
};

/// The newest version with a number; after it come feature flags.
const FEATURES_VERSION: u64 = 5000;
/// Memory for looking at a pool that is not going to be opened.
const PREVIEW_CACHE_BYTES: u64 = 16 << 20;
/// Mark in a scan's flags that it is paused.
const SCAN_PAUSED: u64 = 1 << 1;

/// The health of an open pool.
#[derive(Debug, Clone)]
pub struct PoolHealth {
    /// State of the root vdev.
    pub state: State,
    /// The most severe thing to say.
    pub reason: Reason,
    /// Number of the known defect behind [`Reason::Errata`].
    pub errata: u64,
    /// The root vdev, with all vdevs below it.
    pub vdevs: VdevNode,
    /// The last scrub or resilver.
    pub scan: Option<Scan>,
    /// The last error scrub, if no scrub began since.
    pub error_scrub: Option<Scan>,
    /// A resilver may begin in a moment.
    pub looks_for_resilver: bool,
    /// A device is being detached, and not free for others yet.
    pub gives_up_device: bool,
    /// Devices whose work is done are being detached.
    pub detaches: bool,
    /// The last removal of a vdev.
    pub removal: Option<Removal>,
    /// The last expansion of a raidz vdev.
    pub expansion: Option<Expansion>,
    /// The pool's checkpoint.
    pub checkpoint: Option<Checkpoint>,
    /// Entries of the log of data errors.
    pub error_count: u64,
}

/// The most severe thing to say of a pool's health (`zpool_status_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// Nothing to say.
    Ok,
    /// A resilver runs (or ran when the pool was closed).
    Resilvering,
    /// Last accessed by another host.
    HostidMismatch,
    /// In use by another host now.
    HostidActive,
    /// Multihost protection is on and this host has no id.
    HostidRequired,
    /// Its version is newer than this program.
    VersionNewer,
    /// It uses features that cannot be read.
    UnsupportedFeaturesRead,
    /// It uses features that can be read but not written.
    UnsupportedFeaturesWrite,
    /// Top-level vdevs are missing from the configuration.
    BadGuidSum,
    /// The intent log cannot be read.
    BadLog,
    /// A faulted device without replicas.
    FaultedNoReplicas,
    /// A missing device without replicas.
    MissingNoReplicas,
    /// A device with a bad label and without replicas.
    CorruptLabelNoReplicas,
    /// The pool cannot be written, and writers wait.
    IoFailureWait,
    /// The pool cannot be written, and writes are refused.
    IoFailureContinue,
    /// The pool's metadata is damaged.
    CorruptPool,
    /// There are data errors.
    CorruptData,
    /// A faulted device, with replicas.
    FaultedReplicas,
    /// A missing device, with replicas.
    MissingReplicas,
    /// A device with a bad label, with replicas.
    CorruptLabelReplicas,
    /// A device came back and does not hold what was written while it was away.
    AwaitingResilver,
    /// A device had errors.
    FailingDevice,
    /// A device is offline.
    OfflineDevice,
    /// A device was removed.
    RemovedDevice,
    /// A device writes larger sectors in one piece than the pool uses.
    NonNativeAshift,
    /// A known defect of the software that wrote the pool.
    Errata,
    /// Its version is older than could be.
    VersionOlder,
    /// Not all supported features are enabled.
    FeaturesDisabled,
    /// The `compatibility` property cannot be made sense of.
    CompatibilityError,
    /// Features are enabled that the `compatibility` property does not list.
    IncompatibleFeatures,
}

/// What a vdev stands among.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum VdevClass {
    /// Data.
    #[default]
    Normal,
    /// Metadata and small blocks.
    Special,
    /// Dedup tables.
    Dedup,
    /// The intent log.
    Log,
    /// Hot spares.
    Spare,
    /// Cache devices.
    L2cache,
}

/// One vdev and everything below it.
#[derive(Debug, Clone)]
pub struct VdevNode {
    /// Name as `zpool status` prints it with `-P`: a leaf's path, or `mirror-0`. A leaf without a device
    /// shows its guid.
    pub name: String,
    /// Type: `root`, `mirror`, `raidz`, `draid`, `disk`, `file`, `replacing`, `spare`, `indirect`, `hole`,
    /// `missing`, `dspare`.
    pub kind: String,
    /// Guid.
    pub guid: u64,
    /// Where a leaf's device is, or was when it was last seen.
    pub path: Option<String>,
    /// Identity of the device's hardware.
    pub devid: Option<String>,
    /// Physical location of the device.
    pub phys_path: Option<String>,
    /// The medium that a leaf's device only plays ([`device::Device::modelled`]).
    pub modelled: Option<String>,
    /// The pool partitioned the whole disk itself.
    pub whole_disk: bool,
    /// The device could not be found: `was /dev/…`.
    pub not_present: bool,
    /// What its top-level vdev is for; of spares and cache devices, what they are.
    pub class: VdevClass,
    /// State.
    pub state: State,
    /// Why.
    pub aux: Aux,
    /// The other pool of this machine that uses a hot spare.
    pub in_use_by: Option<String>,
    /// A leaf that works and does not hold what it missed ([`crate::vdev::dtl`]).
    pub awaits_resilver: bool,
    /// A leaf that takes no discards, or was not open since the pool was imported.
    pub cannot_trim: bool,
    /// Sector size of the top-level vdev, as a power of two; of leaves whose device states its own.
    pub configured_ashift: u32,
    /// Size that the device of a leaf writes in one piece, as a power of two; 0 where that is not known, and
    /// for files.
    pub physical_ashift: u32,
    /// No new blocks are put on its top-level vdev.
    pub is_not_allocating: bool,
    /// A top-level vdev that is being removed.
    pub is_being_removed: bool,
    /// Transfers of a leaf that took half a minute or more.
    pub slow_ios: u64,
    /// Bytes that the scrub or resilver that is under way wrote to a leaf.
    pub scan_processed: u64,
    /// A leaf whose resilver waits for another one.
    pub resilver_deferred: bool,
    /// Failed reads.
    pub read_errors: u64,
    /// Failed writes.
    pub write_errors: u64,
    /// Reads that gave wrong bytes.
    pub checksum_errors: u64,
    /// Bytes of a leaf that were rewritten because they were wrong.
    pub self_healed: u64,
    /// Size of a leaf's device, in whole labels.
    pub device_bytes: Option<u64>,
    /// The smallest size of a device that could replace a leaf; of other vdevs what is in use of their size.
    pub required_bytes: Option<u64>,
    /// Space of the root, of top-level vdevs and of cache devices, where it is known.
    pub space: Option<VdevSpace>,
    /// The vdevs below. Of the root: top-level vdevs in order, then spares, then cache devices.
    pub children: Vec<VdevNode>,
}

impl VdevNode {
    /// This vdev and all below it, parents first.
    pub fn walk(&self) -> Box<dyn Iterator<Item = &VdevNode> + '_> {
        Box::new(std::iter::once(self).chain(self.children.iter().flat_map(VdevNode::walk)))
    }

    /// Whether the device of this leaf writes larger sectors in one piece than the pool uses.
    pub fn is_non_native(&self) -> bool {
        self.children.is_empty()
            && self.class != VdevClass::Spare
            && self.configured_ashift < self.physical_ashift
    }

    /// The leaves below that hold blocks, intent logs included.
    fn data_leaves(&self) -> impl Iterator<Item = &VdevNode> {
        let is_auxiliary = |node: &VdevNode| matches!(node.class, VdevClass::Spare | VdevClass::L2cache);
        self.walk().filter(move |node| node.children.is_empty() && !is_auxiliary(node))
    }
}

/// Space of a vdev, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct VdevSpace {
    /// Size.
    pub size: u64,
    /// Allocated.
    pub allocated: u64,
    /// Free.
    pub free: u64,
    /// The size that data find, without parity: that of blocks of 128 KiB. 0 where that is not known.
    pub deflated: u64,
    /// By how much the vdev could grow.
    pub expandable: u64,
    /// Fragmentation in percent, where known.
    pub fragmentation: Option<u64>,
    /// How full it is, in percent.
    pub capacity: u64,
}

/// Where a scan, a removal or an expansion stands (`dsl_scan_state_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// Never ran.
    None,
    /// Runs, or ran when the pool was closed.
    Running,
    /// Came to its end.
    Finished,
    /// Was cancelled.
    Canceled,
}

impl Progress {
    fn from_raw(raw: u64) -> Self {
        match raw {
            1 => Self::Running,
            2 => Self::Finished,
            3 => Self::Canceled,
            _ => Self::None,
        }
    }
}

/// What a scan looks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScanKind {
    /// Nothing.
    None,
    /// Everything.
    Scrub,
    /// What devices missed.
    Resilver,
    /// Blocks in the error log.
    ErrorScrub,
}

/// The last scrub or resilver (`pool_scan_stat_t`). Times in seconds since 1970, sizes in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scan {
    /// What it was.
    pub kind: ScanKind,
    /// Where it stands.
    pub state: Progress,
    /// When it began.
    pub start_time: u64,
    /// When it ended.
    pub end_time: u64,
    /// How much there is to look at.
    pub to_examine: u64,
    /// How much was found so far.
    pub examined: u64,
    /// How much needed no look.
    pub skipped: u64,
    /// How much was repaired.
    pub processed: u64,
    /// Errors that could not be repaired.
    pub errors: u64,
    /// When it was paused, if it is.
    pub paused_time: Option<u64>,
    /// How much was read so far.
    pub issued: u64,
    /// When it began or the pool was opened, whatever was later; 0 in a pool that is open for reading.
    pub pass_start: u64,
    /// For so many seconds since then it was paused.
    pub pass_spent_paused: u64,
    /// How much was found since then.
    pub pass_examined: u64,
    /// How much was read since then.
    pub pass_issued: u64,
    /// Bytes a second that devices read lately; none where that is not known.
    pub rate: Option<u64>,
}

/// The last removal of a top-level vdev.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Removal {
    /// Where it stands.
    pub state: Progress,
    /// Number of the vdev.
    pub vdev: u64,
    /// When it began.
    pub start_time: u64,
    /// When it ended.
    pub end_time: u64,
    /// Bytes to copy.
    pub to_copy: u64,
    /// Bytes copied.
    pub copied: u64,
    /// Memory for the mappings of all removed vdevs.
    pub mapping_memory: u64,
}

/// The last expansion of a raidz vdev.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Expansion {
    /// Where it stands.
    pub state: Progress,
    /// Number of the vdev.
    pub vdev: u64,
    /// When it began.
    pub start_time: u64,
    /// When it ended.
    pub end_time: u64,
    /// Bytes to move.
    pub to_reflow: u64,
    /// Bytes moved.
    pub reflowed: u64,
    /// Whether it waits for a resilver.
    pub waiting_for_resilver: bool,
}

/// The pool's checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Checkpoint {
    /// When it was made.
    pub start_time: u64,
    /// Bytes that only it refers to.
    pub space: u64,
    /// It is given up, and what it kept is being freed.
    pub discarding: bool,
}

/// A pool that could be imported.
#[derive(Debug, Clone)]
pub struct Preview {
    /// State that the pool would have.
    pub state: State,
    /// The most severe thing to say.
    pub reason: Reason,
    /// Number of the known defect behind [`Reason::Errata`].
    pub errata: u64,
    /// When it was last written, in seconds since 1970.
    pub timestamp: u64,
    /// Features in use that are unknown here and needed to read the pool.
    pub unknown_features: Vec<String>,
    /// Top-level vdevs of which not even the config is known.
    pub missing_tops: u64,
    /// The root vdev, with all vdevs below it.
    pub vdevs: VdevNode,
    /// Devices that claim to be a vdev of which a better one was found.
    pub duplicates: Vec<PathBuf>,
}

/// The health of an open pool.
pub async fn health(dsl: &Dsl) -> Result<PoolHealth> {
    let (scan, error_scrub) = (scan(dsl).await?, error_scrub(dsl).await?);
    health_with(dsl, scan, error_scrub).await
}

/// The health of a pool that is written. `dsl` is its last committed state; how far a scan is is known only
/// in memory.
pub async fn health_of_live(dsl: &Dsl, live: &LivePool) -> Result<PoolHealth> {
    let health = health_with(dsl, live.scan_status(), live.error_scrub_status()).await?;
    let mut health = PoolHealth {
        looks_for_resilver: live.looks_for_resilver(),
        gives_up_device: live.gives_up_device(),
        detaches: live.is_detaching(),
        ..health
    };
    let mut left = vec![&mut health.vdevs];
    while let Some(node) = left.pop() {
        node.resilver_deferred = node.children.is_empty() && live.is_resilver_deferred(Guid(node.guid));
        left.extend(&mut node.children);
    }
    Ok(health)
}

async fn health_with(dsl: &Dsl, scan: Option<Scan>, error_scrub: Option<Scan>) -> Result<PoolHealth> {
    let pool = dsl.pool();
    let space = dsl.pool_space().await?;
    let features = Features::load(dsl.mos()).await?;
    let vdevs = vdevs_with_space(dsl).await?;
    let error_count = errlog::read(dsl).await?.len() as u64;
    let told = |start_time, discarding| Checkpoint { start_time, space: space.checkpoint_bytes, discarding };
    let checkpoint = match pool.checkpoint() {
        Some(uberblock) => Some(told(uberblock.timestamp, false)),
        None => features.is_active(Feature::ZpoolCheckpoint).then(|| told(0, true)),
    };
    let facts = Facts {
        vdevs: &vdevs,
        resilvering: scan
            .is_some_and(|scan| scan.kind == ScanKind::Resilver && scan.state == Progress::Running),
        data_errors: error_count,
        count_errors: true,
        errata: pool.config().errata,
        version: pool.uberblock().version,
        features_disabled: Feature::ALL
            .iter()
            .any(|feature| feature.is_usual() && !features.is_enabled(*feature)),
        compatibility: compatibility(pool.config()),
        ashift: stored_ashift(dsl).await?,
    };
    Ok(PoolHealth {
        state: vdevs.state,
        reason: facts.reason(),
        errata: pool.config().errata,
        scan,
        error_scrub,
        looks_for_resilver: false,
        gives_up_device: false,
        detaches: false,
        removal: removal(dsl).await?,
        expansion: expansion(dsl, space).await?,
        checkpoint,
        error_count,
        vdevs,
    })
}

/// The word for a pool that waits for its devices.
pub const SUSPENDED: &str = "SUSPENDED";

/// The health of a pool that is suspended: as much as is known. What stands on devices may be out of reach.
pub async fn health_of_suspended(pool: &Arc<Pool>, mode: FailMode) -> PoolHealth {
    let mut known = match Dsl::open(pool).await {
        Ok(dsl) => health(&dsl).await.ok(),
        Err(_) => None,
    };
    let vdevs = vdevs(pool);
    let health = known.get_or_insert_with(|| PoolHealth {
        state: vdevs.state,
        reason: Reason::Ok,
        errata: pool.config().errata,
        vdevs,
        scan: None,
        error_scrub: None,
        looks_for_resilver: false,
        gives_up_device: false,
        detaches: false,
        removal: None,
        expansion: None,
        checkpoint: None,
        error_count: 0,
    });
    health.reason = match mode {
        FailMode::Continue => Reason::IoFailureContinue,
        FailMode::Wait | FailMode::Panic => Reason::IoFailureWait,
    };
    health.clone()
}

/// The root vdev of an open pool with all vdevs below it. Nothing is read.
pub fn vdevs(pool: &Pool) -> VdevNode {
    node_of(pool)
}

/// The root vdev of an open pool with all vdevs below it, and their space.
pub async fn vdevs_with_space(dsl: &Dsl) -> Result<VdevNode> {
    let space = dsl.pool_space().await?;
    let mut root = vdevs(dsl.pool());
    let counted = space.vdevs.iter().filter(|vdev| vdev.class != Class::Log);
    root.space = Some(VdevSpace {
        size: space.size_bytes(),
        allocated: space.allocated_bytes(),
        free: space.free_bytes(),
        deflated: counted.fold(0, |sum, vdev| sum.saturating_add(vdev.deflated_bytes())),
        expandable: dsl.pool().vdevs().expandable_bytes(),
        fragmentation: space.fragmentation(),
        capacity: space.capacity(),
    });
    for vdev in &space.vdevs {
        let Ok(place) = usize::try_from(vdev.id) else { continue };
        let Some(top) = root.children.get_mut(place) else { continue };
        top.space = Some(VdevSpace {
            size: vdev.size_bytes,
            allocated: vdev.allocated_bytes,
            free: vdev.free_bytes(),
            deflated: vdev.deflated_bytes(),
            expandable: dsl.pool().vdevs().tops.get(place).map_or(0, Vdev::expandable_bytes),
            fragmentation: vdev.fragmentation,
            capacity: vdev.capacity(),
        });
    }
    Ok(root)
}

/// What importing a pool would give. The pool is not opened, and nothing is refused.
pub async fn preview(found: &FoundPool, host_id: u64) -> Preview {
    let uberblocks = uberblocks(found).await;
    let options = ImportOptions::read_only();
    let cache = Arc::new(ArcCache::new(PREVIEW_CACHE_BYTES));
    let assembly = Assembly { found, options: &options, cache };
    let loaded = match uberblocks.first() {
        Some(newest) if version_is_supported(newest.version) => provisional(&assembly, newest).await,
        _ => Err(Error::corrupt(&found.name, "no uberblock that could be read")),
    };
    let unknown_features = match &loaded {
        Ok(loaded) => loaded.unknown_features.clone(),
        Err(_) => unknown_features(&found.label),
    };
    let (vdevs, features_disabled) = match &loaded {
        Ok(loaded) => (node_of(&loaded.pool), loaded.features_disabled),
        Err(_) => (assembly.node_of_labels(), false),
    };
    let facts = Facts {
        vdevs: &vdevs,
        resilvering: loaded.as_ref().is_ok_and(|loaded| loaded.resilvering),
        data_errors: 0,
        count_errors: false,
        errata: found.label.errata,
        version: found.label.version,
        features_disabled,
        compatibility: compatibility(&found.label),
        ashift: 0,
    };
    let used_elsewhere = found.state() == PoolState::Active
        && found.label.host_id.is_some_and(|other| other != 0 && other != host_id);
    let reason = match (&loaded, facts.reason()) {
        (_, Reason::Resilvering) => Reason::Resilvering,
        _ if used_elsewhere => Reason::HostidMismatch,
        _ if !version_is_supported(found.label.version) => Reason::VersionNewer,
        _ if !unknown_features.is_empty() => Reason::UnsupportedFeaturesRead,
        // Damage that missing devices explain is not the pool's.
        (Err(_), Reason::MissingNoReplicas | Reason::FaultedNoReplicas) => facts.reason(),
        (Err(_), _) => Reason::CorruptPool,
        (Ok(_), reason) => reason,
    };
    let unusable = loaded.is_err()
        || matches!(reason, Reason::VersionNewer | Reason::UnsupportedFeaturesRead | Reason::CorruptPool);
    Preview {
        state: if unusable { State::CantOpen } else { vdevs.state },
        reason,
        errata: found.label.errata,
        timestamp: uberblocks.first().map_or(0, |newest| newest.timestamp),
        unknown_features,
        missing_tops: vdevs.children.iter().filter(|top| top.kind == "missing").count() as u64,
        vdevs,
        duplicates: found.duplicates.clone(),
    }
}

/// All that the reason is decided by.
struct Facts<'a> {
    vdevs: &'a VdevNode,
    resilvering: bool,
    data_errors: u64,
    /// The error counters mean something.
    count_errors: bool,
    errata: u64,
    version: u64,
    features_disabled: bool,
    compatibility: Option<String>,
    /// The sector size that the user chose, as a power of two, or 0: it is not warned of.
    ashift: u64,
}

impl Facts<'_> {
    /// The first of OpenZFS's questions that is answered with yes.
    fn reason(&self) -> Reason {
        let unusable = self.vdevs.state == State::CantOpen;
        let any = |problem: fn(&VdevNode) -> bool| self.vdevs.data_leaves().any(problem);
        let faulted = any(|node| node.state == State::Faulted);
        let missing = any(|node| node.state == State::CantOpen && node.aux == Aux::OpenFailed);
        let broken = any(|node| node.state == State::CantOpen);
        let failing = any(|node| node.read_errors + node.write_errors + node.checksum_errors > 0);
        let is_legacy = self.compatibility.as_deref() == Some("legacy");
        match () {
            () if self.resilvering => Reason::Resilvering,
            () if unusable && self.vdevs.aux == Aux::BadGuidSum => Reason::BadGuidSum,
            () if unusable && self.only_logs_unusable() => Reason::BadLog,
            () if unusable && faulted => Reason::FaultedNoReplicas,
            () if unusable && missing => Reason::MissingNoReplicas,
            () if unusable && broken => Reason::CorruptLabelNoReplicas,
            () if unusable && self.vdevs.aux == Aux::CorruptData => Reason::CorruptPool,
            () if self.data_errors > 0 => Reason::CorruptData,
            () if faulted => Reason::FaultedReplicas,
            () if missing => Reason::MissingReplicas,
            () if broken => Reason::CorruptLabelReplicas,
            () if any(|node| node.awaits_resilver) => Reason::AwaitingResilver,
            () if self.count_errors && failing => Reason::FailingDevice,
            () if any(|node| node.state == State::Offline) => Reason::OfflineDevice,
            () if any(|node| node.state == State::Removed) => Reason::RemovedDevice,
            () if self.count_errors && self.has_unwanted_sectors() => Reason::NonNativeAshift,
            () if self.errata > 0 => Reason::Errata,
            () if self.version < FEATURES_VERSION && !is_legacy => Reason::VersionOlder,
            // Other values name lists of features, which belong to the installation and not to the pool.
            () if self.features_disabled && self.compatibility.is_none() => Reason::FeaturesDisabled,
            () => Reason::Ok,
        }
    }

    fn has_unwanted_sectors(&self) -> bool {
        let is_unwanted = |node: &VdevNode| {
            node.is_non_native() && (self.ashift == 0 || u64::from(node.configured_ashift) < self.ashift)
        };
        self.vdevs.data_leaves().any(is_unwanted)
    }

    fn only_logs_unusable(&self) -> bool {
        let mut unusable = self.vdevs.children.iter().filter(|top| top.state < State::Degraded).peekable();
        unusable.peek().is_some() && unusable.all(|top| top.class == VdevClass::Log)
    }
}

/// The sector size that was chosen for the pool, as a power of two; 0 for none.
async fn stored_ashift(dsl: &Dsl) -> Result<u64> {
    let properties = dsl.mos().u64(DIRECTORY_OBJECT, directory::PROPS).await?;
    let Some(properties) = properties else { return Ok(0) };
    Ok(dsl.mos().u64(ObjectId(properties), PoolProp::Ashift.desc().name).await?.unwrap_or(0))
}

/// The compatibility property, unless it is `off`.
fn compatibility(config: &ondisk::vdev_config::PoolConfig) -> Option<String> {
    let value = config.compatibility.as_ref()?.to_str()?;
    (value != "off").then(|| value.to_owned())
}

fn node_of(pool: &Pool) -> VdevNode {
    let root = root_node(pool.name(), pool.guid(), pool.vdevs(), pool.root_errors());
    VdevNode { state: state_of(pool), aux: status_of(pool.vdevs()).aux, ..root }
}

/// The state of an open pool: intent logs that it had to do without degrade it, and no more. Devices that are
/// there and lack data, because they are being resilvered, do not.
pub fn state_of(pool: &Pool) -> State {
    status_of(pool.vdevs()).state
}

/// Whether the devices of all top-level vdevs are there.
pub fn is_complete(pool: &Pool) -> bool {
    status_of(pool.vdevs()).state == State::Healthy
}

/// Whether the device of a leaf is there, and does not hold what it missed.
fn awaits_resilver(vdev: &Vdev) -> bool {
    let is_device = matches!(vdev.kind, Kind::Leaf(_));
    is_device && vdev.status().state == State::Healthy && !vdev.missing_txgs.is_empty()
}

fn status_of(tree: &VdevTree) -> Status {
    let of_top = |top: &Vdev| match (top.class(), top.status().is_readable()) {
        (Class::Log, false) => Status::new(State::Degraded, Aux::None),
        _ => top.status(),
    };
    let tops: Vec<Status> = tree.tops.iter().map(of_top).collect();
    state_of_parent(&tops, 0)
}

/// The root vdev over a tree.
pub(super) fn root_node(name: &str, guid: Guid, tree: &VdevTree, errors: &ErrorCounters) -> VdevNode {
    let mut children: Vec<VdevNode> = Vec::new();
    for top in &tree.tops {
        let class = match top.class() {
            Class::Normal => VdevClass::Normal,
            Class::Special => VdevClass::Special,
            Class::Dedup => VdevClass::Dedup,
            Class::Log => VdevClass::Log,
        };
        children.push(node(top, class, &top.config));
    }
    let of_tops: Vec<Status> = tree.tops.iter().map(|top| top.status()).collect();
    let status = state_of_parent(&of_tops, 0);
    children.extend(tree.spares.iter().map(|spare| VdevNode {
        in_use_by: tree.user_of_spare(spare),
        ..node(spare, VdevClass::Spare, &spare.config)
    }));
    children.extend(tree.l2cache.iter().map(|cache| node(cache, VdevClass::L2cache, &cache.config)));
    VdevNode {
        name: name.to_owned(),
        kind: "root".into(),
        guid: guid.get(),
        path: None,
        devid: None,
        phys_path: None,
        modelled: None,
        whole_disk: false,
        not_present: false,
        class: VdevClass::Normal,
        state: status.state,
        aux: status.aux,
        in_use_by: None,
        awaits_resilver: false,
        cannot_trim: false,
        configured_ashift: 0,
        physical_ashift: 0,
        is_not_allocating: false,
        is_being_removed: false,
        slow_ios: 0,
        scan_processed: 0,
        resilver_deferred: false,
        read_errors: errors.read(),
        write_errors: errors.write(),
        checksum_errors: errors.checksum(),
        self_healed: 0,
        device_bytes: None,
        required_bytes: None,
        space: None,
        children,
    }
}

/// The space of a cache device that is in use, and how much of it holds blocks.
fn space_of_cache(vdev: &Vdev) -> Option<VdevSpace> {
    let (size, allocated) = vdev.cache_space.get();
    let capacity = allocated.saturating_mul(100).checked_div(size)?;
    let free = size.saturating_sub(allocated);
    Some(VdevSpace { size, allocated, free, capacity, ..VdevSpace::default() })
}

/// The smallest size of a device that could replace a leaf; of other vdevs what is in use of their size.
fn required_bytes(vdev: &Vdev, device_bytes: Option<u64>, class: VdevClass) -> Option<u64> {
    let needed = vdev.bytes_needed.load(Ordering::Relaxed);
    match class {
        VdevClass::L2cache => device_bytes,
        _ if needed == 0 => None,
        _ if vdev.children.is_empty() => Some(needed + LABEL_START_BYTES + LABEL_END_BYTES),
        _ => Some(needed),
    }
}

/// A vdev and those below it; `top` is the configuration of the top-level vdev.
fn node(vdev: &Vdev, class: VdevClass, top: &VdevConfig) -> VdevNode {
    let text = |bytes: &Option<ondisk::nvlist::ByteString>| {
        bytes.as_ref().map(|bytes| String::from_utf8_lossy(bytes.as_bytes()).into_owned())
    };
    let device = match &vdev.kind {
        Kind::Leaf(slot) => Some(slot.device()),
        _ => None,
    };
    let missing = matches!(device, Some(None));
    // Only what was not there when the pool was opened is called by its guid: others are known by their path.
    // The device of a spare in use is that of a leaf.
    let is_known = matches!(vdev.status().aux, Aux::Spared | Aux::BadLabel | Aux::CorruptData);
    let not_present = missing && vdev.status().state == State::CantOpen && !is_known;
    let device_bytes = device.iter().flatten().map(|device| aligned_size(device.size_bytes())).next();
    let modelled = device.iter().flatten().find_map(|device| device.modelled());
    // What files state is not what they are on.
    let physical_bytes = device.iter().flatten().next().filter(|_| vdev.config.kind != VdevKind::File);
    let physical_bytes = physical_bytes.map_or(1, |device| device.sector_sizes().physical_bytes);
    let (path, name) = match device.flatten() {
        Some(device) => (Some(device.path().display().to_string()), vdev.name.clone()),
        None if not_present => (text(&vdev.config.path), vdev.guid.to_string()),
        None => (text(&vdev.config.path), vdev.name.clone()),
    };
    VdevNode {
        name,
        kind: vdev.config.kind.type_name().to_owned(),
        guid: vdev.guid.get(),
        path,
        devid: text(&vdev.config.devid),
        phys_path: text(&vdev.config.phys_path),
        modelled,
        whole_disk: vdev.config.whole_disk.unwrap_or(false),
        not_present,
        class,
        state: vdev.status().state,
        aux: vdev.status().aux,
        in_use_by: None,
        awaits_resilver: awaits_resilver(vdev),
        cannot_trim: vdev.cannot_discard.load(Ordering::Relaxed),
        configured_ashift: top.ashift.map_or(0, u32::from),
        physical_ashift: physical_bytes.checked_ilog2().unwrap_or(0),
        is_not_allocating: top.non_allocating,
        is_being_removed: vdev.config.removing,
        slow_ios: vdev.stats.slow(),
        scan_processed: vdev.stats.scanned_bytes(),
        resilver_deferred: false,
        read_errors: vdev.errors.read(),
        write_errors: vdev.errors.write(),
        checksum_errors: vdev.errors.checksum(),
        self_healed: vdev.stats.healed_bytes(),
        device_bytes,
        required_bytes: required_bytes(vdev, device_bytes, class),
        space: space_of_cache(vdev).filter(|_| class == VdevClass::L2cache),
        children: vdev.children.iter().map(|child| node(child, class, top)).collect(),
    }
}

async fn scan(dsl: &Dsl) -> Result<Option<Scan>> {
    let Some(value) = dsl.mos().value(DIRECTORY_OBJECT, directory::SCAN).await? else { return Ok(None) };
    Ok(scan_of(&value.to_u64s()))
}

/// Words of `dsl_scan_phys`: function, state, queue, four txgs, start, end, to examine, examined, skipped,
/// processed, errors, ten words of position, flags.
pub(crate) fn scan_of(words: &[u64]) -> Option<Scan> {
    let word = |index: usize| words.get(index).copied().unwrap_or(0);
    let kind = match word(0) {
        1 => ScanKind::Scrub,
        2 => ScanKind::Resilver,
        3 => ScanKind::ErrorScrub,
        _ => return None,
    };
    let is_paused = word(23) & SCAN_PAUSED != 0;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |elapsed| elapsed.as_secs());
    Some(Scan {
        kind,
        state: Progress::from_raw(word(1)),
        start_time: word(7),
        end_time: word(8),
        to_examine: word(9),
        examined: word(10),
        skipped: word(11),
        processed: word(12),
        errors: word(13),
        // The pool does not say since when; OpenZFS shows the time of the import.
        paused_time: is_paused.then_some(now),
        issued: word(10).saturating_sub(word(11)),
        pass_start: 0,
        pass_spent_paused: 0,
        pass_examined: 0,
        pass_issued: 0,
        rate: None,
    })
}

/// The error scrub, if there was one since the last scrub began.
pub(crate) fn error_scrub_of(phys: &ErrorScrubPhys) -> Option<Scan> {
    let state = match phys.state {
        ScanState::None => return None,
        ScanState::Scanning | ScanState::ErrorScrubbing => Progress::Running,
        ScanState::Finished => Progress::Finished,
        ScanState::Canceled => Progress::Canceled,
    };
    let words = ScanPhys { function: Function::ErrorScrub, ..ScanPhys::default() }.to_words();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |elapsed| elapsed.as_secs());
    Some(Scan {
        state,
        start_time: phys.start_time,
        end_time: phys.end_time,
        to_examine: phys.to_examine,
        examined: phys.examined,
        errors: phys.errors,
        paused_time: (phys.paused != 0 && state == Progress::Running).then_some(now),
        ..scan_of(&words)?
    })
}

async fn error_scrub(dsl: &Dsl) -> Result<Option<Scan>> {
    let value = dsl.mos().value(DIRECTORY_OBJECT, directory::ERROR_SCRUB).await?;
    let phys = value.and_then(|value| ErrorScrubPhys::from_words(&value.to_u64s()));
    Ok(phys.as_ref().and_then(error_scrub_of))
}

async fn removal(dsl: &Dsl) -> Result<Option<Removal>> {
    let Some(value) = dsl.mos().value(DIRECTORY_OBJECT, directory::REMOVING).await? else { return Ok(None) };
    let bytes: Vec<u8> = value.to_u64s().iter().flat_map(|word| word.to_le_bytes()).collect();
    let mut reader = Reader::new("removal state", &bytes, ByteOrder::Little);
    let phys = SpaRemovingPhys::read(&mut reader).map_err(Error::format("removal state"))?;
    let state = Progress::from_raw(phys.state);
    if state == Progress::None {
        return Ok(None);
    }
    let entries = dsl.pool().vdevs().tops.iter().filter_map(|top| match &top.kind {
        Kind::Indirect(moved) => Some(moved.get()?.mapping.entries().len() as u64),
        _ => None,
    });
    Ok(Some(Removal {
        state,
        vdev: phys.removing_vdev,
        start_time: phys.start_time,
        end_time: phys.end_time,
        to_copy: phys.to_copy_bytes,
        copied: phys.copied_bytes,
        mapping_memory: entries.sum::<u64>().saturating_mul(MappingEntry::SIZE as u64),
    }))
}

/// The expansion that runs, or the one that ended last.
async fn expansion(dsl: &Dsl, space: &PoolSpace) -> Result<Option<Expansion>> {
    let mut last: Option<Expansion> = None;
    for top in &dsl.pool().vdevs().tops {
        let (Kind::Raidz(_), Some(zap)) = (&top.kind, top.config.top_zap) else { continue };
        let mos = dsl.mos();
        let Some(state) = mos.u64(zap, top_zap::RAIDZ_EXPAND_STATE).await? else { continue };
        let number = async |name| Ok::<_, Error>(mos.u64(zap, name).await?.unwrap_or(0));
        let allocated = space.vdevs.iter().find(|vdev| vdev.id == top.id);
        let found = Expansion {
            state: Progress::from_raw(state),
            vdev: top.id,
            start_time: number(top_zap::RAIDZ_EXPAND_START_TIME).await?,
            end_time: number(top_zap::RAIDZ_EXPAND_END_TIME).await?,
            to_reflow: allocated.map_or(0, |vdev| vdev.allocated_bytes),
            reflowed: number(top_zap::RAIDZ_EXPAND_BYTES_COPIED).await?,
            waiting_for_resilver: false,
        };
        if found.state == Progress::Running {
            return Ok(Some(found));
        }
        let is_later = last.is_none_or(|last| found.end_time > last.end_time);
        if found.end_time != 0 && is_later {
            last = Some(found);
        }
    }
    Ok(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A mirror of two disks of 4096-byte sectors in a vdev of sectors of `1 << ashift` bytes.
    fn mirror(ashift: u32) -> VdevNode {
        let nothing = VdevNode {
            configured_ashift: ashift,
            ..root_node("tank", Guid(1), &VdevTree::default(), &ErrorCounters::default())
        };
        let of_kind = |kind: &str, children| VdevNode {
            kind: kind.into(),
            state: State::Healthy,
            aux: Aux::None,
            children,
            ..nothing.clone()
        };
        let disk = VdevNode { physical_ashift: 12, ..of_kind("disk", Vec::new()) };
        of_kind("root", vec![of_kind("mirror", vec![disk.clone(), disk])])
    }

    #[test]
    fn sectors_that_are_too_small_for_the_devices_are_told_unless_they_were_asked_for() {
        let reason = |vdevs: &VdevNode, ashift: u64, count_errors: bool| {
            let facts = Facts {
                vdevs,
                resilvering: false,
                data_errors: 0,
                count_errors,
                errata: 0,
                version: FEATURES_VERSION,
                features_disabled: true,
                compatibility: None,
                ashift,
            };
            facts.reason()
        };
        assert_eq!(reason(&mirror(9), 0, true), Reason::NonNativeAshift);
        assert_eq!(reason(&mirror(12), 0, true), Reason::FeaturesDisabled);
        assert_eq!(reason(&mirror(9), 9, true), Reason::FeaturesDisabled, "as the user wanted");
        assert_eq!(reason(&mirror(9), 12, true), Reason::NonNativeAshift);
        assert_eq!(reason(&mirror(9), 0, false), Reason::FeaturesDisabled, "not before it is imported");
        let mut with_error = mirror(9);
        with_error.children[0].children[0].read_errors = 1;
        assert_eq!(reason(&with_error, 0, true), Reason::FailingDevice, "the graver one");
    }
}
