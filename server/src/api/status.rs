//! What is known of a pool's health: of open pools, and of pools that could be imported.
//!
//! States, reasons and vdevs carry OpenZFS's terms; the sentences around them are the command line's.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::{Action, Listed};

pub use engine::vdev::{Aux, State};

/// Asks for the health of open pools.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct GetStatus {
    /// Names; empty for all.
    pub pools: Vec<String>,
    /// Tell the files with errors.
    pub files: bool,
    /// Tell the statistics of the dedup tables.
    pub dedup: bool,
}

impl Action for GetStatus {
    const NAME: &'static str = "pool-status";
    type Reply = Listed<PoolStatus>;
}

/// The health of an open pool.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct PoolStatus {
    /// Name.
    pub name: String,
    /// Guid.
    pub guid: u64,
    /// State of the root vdev.
    pub state: State,
    /// The transaction group that it is open at.
    pub txg: u64,
    /// Version of the pool: 5000 with feature flags.
    pub version: u64,
    /// The most severe thing to say.
    pub reason: Reason,
    /// Number of the known defect behind [`Reason::Errata`].
    pub errata: u64,
    /// The root vdev, with all vdevs below it.
    pub vdevs: VdevNode,
    /// The last scrub or resilver.
    pub scan: Option<Scan>,
    /// The last removal of a vdev.
    pub removal: Option<Removal>,
    /// The last expansion of a raidz vdev.
    pub expansion: Option<Expansion>,
    /// The pool's checkpoint.
    pub checkpoint: Option<Checkpoint>,
    /// Entries of the log of data errors that last until a scrub finds them gone.
    pub error_count: u64,
    /// The files behind them, where asked for: `dataset:/path`, `dataset:<0x…>`, `<metadata>:<0x…>`.
    pub error_files: Vec<String>,
    /// The dedup tables, where asked for and where the pool has some.
    pub dedup: Option<Dedup>,
}

/// The most severe thing to say of a pool's health (`zpool_status_t`), worst first where several hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
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
    /// A device had errors.
    FailingDevice,
    /// A device is offline.
    OfflineDevice,
    /// A device was removed.
    RemovedDevice,
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
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
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
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct VdevNode {
    /// Name as `zpool status` prints it with `-P`: a leaf's path, or `mirror-0`. A leaf without a device shows its guid.
    pub name: String,
    /// Type: `root`, `mirror`, `raidz`, `draid`, `disk`, `file`, `replacing`, `spare`, `indirect`, `hole`, `missing`, `dspare`.
    pub kind: String,
    /// Guid.
    pub guid: u64,
    /// Where a leaf's device is, or was when it was last seen.
    pub path: Option<String>,
    /// Identity of the device's hardware.
    pub devid: Option<String>,
    /// Physical location of the device.
    pub phys_path: Option<String>,
    /// The pool partitioned the whole disk itself.
    pub whole_disk: bool,
    /// A leaf whose device was not found: `was /dev/…`.
    pub not_present: bool,
    /// What its top-level vdev is for; of spares and cache devices, what they are.
    pub class: VdevClass,
    /// State.
    pub state: State,
    /// Why.
    pub aux: Aux,
    /// Failed reads.
    pub read_errors: u64,
    /// Failed writes.
    pub write_errors: u64,
    /// Reads that gave wrong bytes.
    pub checksum_errors: u64,
    /// Size of a leaf's device, in whole labels.
    pub device_bytes: Option<u64>,
    /// Space of the root and of top-level vdevs of open pools, where asked for.
    pub space: Option<VdevSpace>,
    /// The vdevs below. Of the root: top-level vdevs in order, then spares, then cache devices.
    pub children: Vec<VdevNode>,
}

impl VdevNode {
    /// This vdev and all below it, parents first.
    pub fn walk(&self) -> Box<dyn Iterator<Item = &VdevNode> + '_> {
        Box::new(std::iter::once(self).chain(self.children.iter().flat_map(VdevNode::walk)))
    }
}

/// Space of a vdev, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VdevSpace {
    /// Size.
    pub size: u64,
    /// Allocated.
    pub allocated: u64,
    /// Free.
    pub free: u64,
    /// By how much the vdev could grow.
    pub expandable: u64,
    /// Fragmentation in percent, where known.
    pub fragmentation: Option<u64>,
    /// How full it is, in percent.
    pub capacity: u64,
}

/// Where a scan, a removal or an expansion stands (`dsl_scan_state_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
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

/// What a scan looks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
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
}

/// The last removal of a top-level vdev.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checkpoint {
    /// When it was made.
    pub start_time: u64,
    /// Bytes that only it refers to.
    pub space: u64,
}

/// Statistics of the dedup tables.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dedup {
    /// Entries.
    pub entries: u64,
    /// Their bytes on disk.
    pub bytes_on_disk: u64,
    /// Their bytes in memory.
    pub bytes_in_core: u64,
    /// By reference count, as a power of two: what the blocks hold once, and as often as they are referred to.
    pub histogram: Vec<DedupRow>,
}

/// One row of the dedup histogram: entries whose reference count has this logarithm.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DedupRow {
    /// log2 of the reference count.
    pub log2_references: u32,
    /// Blocks, and their bytes before compression, after it, and as allocated.
    pub blocks: u64,
    /// Bytes before compression.
    pub lsize: u64,
    /// Bytes after compression.
    pub psize: u64,
    /// Bytes allocated.
    pub dsize: u64,
    /// The same, counted once for each reference.
    pub referenced_blocks: u64,
    /// Bytes before compression, for each reference.
    pub referenced_lsize: u64,
    /// Bytes after compression, for each reference.
    pub referenced_psize: u64,
    /// Bytes allocated, for each reference.
    pub referenced_dsize: u64,
}

/// Looks for pools that could be imported.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct DiscoverPools {
    /// Directories and devices to look into; empty means the places under `/dev`.
    pub search: Vec<PathBuf>,
    /// Destroyed pools instead of the others.
    pub destroyed: bool,
    /// Only the pool of this name or guid.
    pub pool: Option<String>,
}

impl Action for DiscoverPools {
    const NAME: &'static str = "pool-discover";
    /// Pools that are not open already.
    type Reply = Vec<ImportablePool>;
}

/// A pool that was found on devices.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ImportablePool {
    /// Name.
    pub name: String,
    /// Guid.
    pub guid: u64,
    /// State that the pool would have.
    pub state: State,
    /// Whether it was destroyed.
    pub destroyed: bool,
    /// Whether it was exported (or destroyed), so that no other host can be using it.
    pub exported: bool,
    /// Version of the pool: 5000 with feature flags.
    pub version: u64,
    /// The most severe thing to say.
    pub reason: Reason,
    /// Number of the known defect behind [`Reason::Errata`].
    pub errata: u64,
    /// Comment property.
    pub comment: Option<String>,
    /// The host that used it last.
    pub hostname: Option<String>,
    /// Id of that host.
    pub hostid: u64,
    /// When it was last written, in seconds since 1970.
    pub timestamp: u64,
    /// Features in use that this program does not know.
    pub unknown_features: Vec<String>,
    /// Missing top-level vdevs, of which the configuration knows nothing.
    pub missing_tops: u64,
    /// The root vdev, with all vdevs below it.
    pub vdevs: VdevNode,
    /// Devices that claim to be a vdev of which a better one was found.
    pub duplicates: Vec<PathBuf>,
}
