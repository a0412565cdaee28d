//! The health of a pool as it travels: OpenZFS's terms, in types of the API's own.
//!
//! What the engine knows becomes these types at the edge ([`Edge`]); no other type of the engine travels.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::edge::{Edge, mirrored};

/// The word for a pool that waits for its devices.
pub const SUSPENDED: &str = "SUSPENDED";

mirrored! {
    /// The states of OpenZFS, worst first.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
    #[serde(rename_all = "UPPERCASE")]
    pub enum State of engine::vdev::State {
        /// An administrator took it offline.
        Offline,
        /// It was removed from the system.
        Removed,
        /// It cannot be opened.
        #[serde(rename = "UNAVAIL")]
        CantOpen,
        /// It was declared unusable.
        Faulted,
        /// It works with less redundancy than it should have.
        Degraded,
        /// It works, with all its redundancy.
        #[serde(rename = "ONLINE")]
        Healthy,
    }
}

mirrored! {
    /// More about a state (`vdev_aux_t`).
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
    #[serde(rename_all = "kebab-case")]
    pub enum Aux of engine::vdev::Aux {
        /// No further information.
        #[default]
        None,
        /// The device could not be opened.
        OpenFailed,
        /// Its label could not be read.
        CorruptData,
        /// Too many children are unusable.
        NoReplicas,
        /// The sum of all guids differs from the uberblock's: a top-level vdev is missing from the config.
        BadGuidSum,
        /// The device is smaller than its config says.
        TooSmall,
        /// The label belongs to another pool or vdev, or is damaged.
        BadLabel,
        /// Another pool, or another host, uses it (a spare).
        Spared,
        /// Too many errors made it unusable.
        ErrorsExceeded,
        /// An outside agent declared it unusable.
        External,
        /// All children are offline.
        ChildrenOffline,
    }
}

mirrored! {
    /// The most severe thing to say of a pool's health (`zpool_status_t`).
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
    #[serde(rename_all = "kebab-case")]
    pub enum Reason of engine::pool::status::Reason {
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
}

mirrored! {
    /// What a vdev stands among.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
    #[serde(rename_all = "kebab-case")]
    pub enum VdevClass of engine::pool::status::VdevClass {
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
}

mirrored! {
    /// Where a scan, a removal or an expansion stands (`dsl_scan_state_t`).
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
    #[serde(rename_all = "kebab-case")]
    pub enum Progress of engine::pool::status::Progress {
        /// Never ran.
        None,
        /// Runs, or ran when the pool was closed.
        Running,
        /// Came to its end.
        Finished,
        /// Was cancelled.
        Canceled,
    }
}

mirrored! {
    /// What a scan looks for.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
    #[serde(rename_all = "kebab-case")]
    pub enum ScanKind of engine::pool::status::ScanKind {
        /// Nothing.
        None,
        /// Everything.
        Scrub,
        /// What devices missed.
        Resilver,
        /// Blocks in the error log.
        ErrorScrub,
    }
}

mirrored! {
    /// Space of a vdev, in bytes.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
    pub struct VdevSpace of engine::pool::status::VdevSpace {
        /// Size.
        pub size: u64,
        /// Allocated.
        pub allocated: u64,
        /// Free.
        pub free: u64,
        /// The size that data find, without parity: that of blocks of 128 KiB. 0 where that is not known.
        #[serde(default)]
        pub deflated: u64,
        /// By how much the vdev could grow.
        pub expandable: u64,
        /// Fragmentation in percent, where known.
        pub fragmentation: Option<u64>,
        /// How full it is, in percent.
        pub capacity: u64,
    }
}

mirrored! {
    /// The last scrub or resilver (`pool_scan_stat_t`). Times in seconds since 1970, sizes in bytes.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
    pub struct Scan of engine::pool::status::Scan {
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
        #[serde(default)]
        pub issued: u64,
        /// When it began or the pool was opened, whatever was later; 0 in a pool that is open for reading.
        #[serde(default)]
        pub pass_start: u64,
        /// For so many seconds since then it was paused.
        #[serde(default)]
        pub pass_spent_paused: u64,
        /// How much was found since then.
        #[serde(default)]
        pub pass_examined: u64,
        /// How much was read since then.
        #[serde(default)]
        pub pass_issued: u64,
        /// Bytes a second that devices read lately; none where that is not known.
        #[serde(default)]
        pub rate: Option<u64>,
    }
}

mirrored! {
    /// The last removal of a top-level vdev.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
    pub struct Removal of engine::pool::status::Removal {
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
}

mirrored! {
    /// The last expansion of a raidz vdev.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
    pub struct Expansion of engine::pool::status::Expansion {
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
}

mirrored! {
    /// The pool's checkpoint.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
    pub struct Checkpoint of engine::pool::status::Checkpoint {
        /// When it was made.
        pub start_time: u64,
        /// Bytes that only it refers to.
        pub space: u64,
        /// It is given up, and what it kept is being freed.
        #[serde(default)]
        pub discarding: bool,
    }
}

mirrored! {
    /// One vdev and everything below it.
    #[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
    pub struct VdevNode of engine::pool::status::VdevNode {
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
        /// The medium that a leaf's device only plays .
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
        #[serde(default)]
        pub in_use_by: Option<String>,
        /// A leaf that works and does not hold what it missed (DTL).
        #[serde(default)]
        pub awaits_resilver: bool,
        /// A leaf that takes no discards, or was not open since the pool was imported.
        #[serde(default)]
        pub cannot_trim: bool,
        /// Sector size of the top-level vdev, as a power of two; of leaves whose device states its own.
        #[serde(default)]
        pub configured_ashift: u32,
        /// Size that the device of a leaf writes in one piece, as a power of two; 0 where that is not known, and
        /// for files.
        #[serde(default)]
        pub physical_ashift: u32,
        /// No new blocks are put on its top-level vdev.
        #[serde(default)]
        pub is_not_allocating: bool,
        /// A top-level vdev that is being removed.
        #[serde(default)]
        pub is_being_removed: bool,
        /// Transfers of a leaf that took half a minute or more.
        #[serde(default)]
        pub slow_ios: u64,
        /// Bytes that the scrub or resilver that is under way wrote to a leaf.
        #[serde(default)]
        pub scan_processed: u64,
        /// A leaf whose resilver waits for another one.
        #[serde(default)]
        pub resilver_deferred: bool,
        /// Failed reads.
        pub read_errors: u64,
        /// Failed writes.
        pub write_errors: u64,
        /// Reads that gave wrong bytes.
        pub checksum_errors: u64,
        /// Bytes of a leaf that were rewritten because they were wrong.
        #[serde(default)]
        pub self_healed: u64,
        /// Size of a leaf's device, in whole labels.
        pub device_bytes: Option<u64>,
        /// The smallest size of a device that could replace a leaf; of other vdevs what is in use of their size.
        #[serde(default)]
        pub required_bytes: Option<u64>,
        /// Space of the root, of top-level vdevs and of cache devices, where it is known.
        pub space: Option<VdevSpace>,
        /// The vdevs below. Of the root: top-level vdevs in order, then spares, then cache devices.
        pub children: Vec<VdevNode>,
    }
}

mirrored! {
    /// The health of an open pool.
    #[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
    pub struct PoolHealth of engine::pool::status::PoolHealth {
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
        #[serde(default)]
        pub error_scrub: Option<Scan>,
        /// A resilver may begin in a moment.
        #[serde(default)]
        pub looks_for_resilver: bool,
        /// A device is being detached, and not free for others yet.
        #[serde(default)]
        pub gives_up_device: bool,
        /// Devices whose work is done are being detached.
        #[serde(default)]
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
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Offline => "OFFLINE",
            Self::Removed => "REMOVED",
            Self::CantOpen => "UNAVAIL",
            Self::Faulted => "FAULTED",
            Self::Degraded => "DEGRADED",
            Self::Healthy => "ONLINE",
        })
    }
}

impl PoolHealth {
    /// Whether the pool waits for its devices.
    pub fn is_suspended(&self) -> bool {
        matches!(self.reason, Reason::IoFailureWait | Reason::IoFailureContinue)
    }
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
}
