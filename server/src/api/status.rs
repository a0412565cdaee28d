//! What is known of a pool's health: of open pools, and of pools that could be imported.
//!
//! States, reasons and vdevs carry OpenZFS's terms; the sentences around them are the command line's.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    Action, ApiError, Declaration, Delegated, Listed, Part, PoolHealth, Reason, Reshaping, Role, State,
    Sweeping, VdevNode,
};

/// Asks for the health of open pools.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct GetStatus {
    /// Names; empty for all.
    pub pools: Vec<String>,
    /// Report the files with errors.
    pub files: bool,
    /// Report the statistics of the dedup tables.
    pub dedup: bool,
    /// With these, report how much of the tables is in the ARC.
    pub dedup_cached: bool,
}

impl Action for GetStatus {
    const DECLARED: Declaration =
        Declaration::reads("pool-status", Part::Pools, Role::Viewer, "The health of open pools");
    const DELEGATED: Delegated<Self> = Delegated::Never;
    type Reply = Listed<PoolStatus>;

    /// Not the names of damaged files.
    fn for_viewer(self) -> Result<Self, ApiError> {
        Ok(Self { files: false, ..self })
    }
}

/// Bytes that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DamagedRange {
    /// The file or volume, as in the list of files.
    pub file: String,
    /// The first byte.
    pub offset: u64,
    /// How many bytes.
    pub length: u64,
}

/// The health of an open pool.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct PoolStatus {
    /// Name.
    pub name: String,
    /// Guid.
    pub guid: u64,
    /// The transaction group that it is open at.
    pub txg: u64,
    /// Version of the pool: 5000 with feature flags.
    pub version: u64,
    /// Its health.
    #[serde(flatten)]
    pub health: PoolHealth,
    /// The files behind the data errors, where asked for: `dataset:/path`, `dataset:<0x…>`,
    /// `<metadata>:<0x…>`.
    pub error_files: Vec<String>,
    /// The damaged bytes of these files and volumes, where asked for.
    #[serde(default)]
    pub damaged: Vec<DamagedRange>,
    /// The dedup tables, where asked for.
    pub dedup: Option<Dedup>,
    /// How far the free space of devices is, or was, trimmed or initialized.
    #[serde(default)]
    pub sweeps: Vec<Sweeping>,
    /// How far filesystems are with counting what they did not count before the pool got features; absent
    /// when nothing is counted.
    #[serde(default)]
    pub counting: Option<Counting>,
    /// How far a prune of the dedup tables is that is under way.
    #[serde(default)]
    pub pruning: Option<Pruning>,
    /// Volumes that get another block size, or did since the pool was opened.
    #[serde(default)]
    pub reshapes: Vec<Reshaping>,
}

/// How far it is with counting the files of filesystems, one after the other, for quotas that the pool did
/// not have before it was upgraded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Counting {
    /// The filesystem that is gone through.
    pub filesystem: String,
    /// When that was begun, in seconds since 1970.
    pub start_time: u64,
    /// Objects, files for the most part, that are to be counted.
    pub to_count: u64,
    /// How many of them are.
    pub counted: u64,
    /// Filesystems that come after it.
    pub waiting: u64,
}

/// How far it is with removing old entries of dedup tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Pruning {
    /// When that was begun, in seconds since 1970.
    pub start_time: u64,
    /// Entries that are to be looked at; twice, where their ages must be known first.
    pub to_look_at: u64,
    /// How many of them were.
    pub looked_at: u64,
    /// Entries that were removed.
    pub pruned: u64,
    /// Prunes that come after it.
    pub waiting: u64,
}

/// Statistics of the dedup tables.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Dedup {
    /// Entries.
    pub entries: u64,
    /// Their bytes on disk.
    pub bytes_on_disk: u64,
    /// Their bytes in memory.
    pub bytes_in_core: u64,
    /// Bytes of the ARC that tables and logs take, where asked for.
    #[serde(default)]
    pub bytes_cached: Option<u64>,
    /// Those of them that are in the logs, and not in the tables yet; 0 for a pool that is open read-only.
    #[serde(default)]
    pub logged_entries: u64,
    /// Those of the logged entries that are being moved into the tables.
    #[serde(default)]
    pub flushing_entries: u64,
    /// By reference count, as a power of two: what the blocks hold once, and as often as they are referred
    /// to.
    pub histogram: Vec<DedupRow>,
}

/// One row of the dedup histogram: entries whose reference count has this logarithm.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
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
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct DiscoverPools {
    /// Directories and devices to look into; empty means the places under `/dev`.
    pub search: Vec<PathBuf>,
    /// Look for the pools of this cache file instead.
    pub cachefile: Option<PathBuf>,
    /// Only destroyed pools.
    pub destroyed: bool,
    /// Only the pool of this name or guid.
    pub pool: Option<String>,
}

impl Action for DiscoverPools {
    const DECLARED: Declaration = Declaration::reads(
        "pool-discover",
        Part::Pools,
        Role::Operator,
        "Looks for pools that could be imported",
    )
    .in_words("discover pools", "");
    const DELEGATED: Delegated<Self> = Delegated::Never;
    /// Pools that are not open already.
    type Reply = Vec<ImportablePool>;
}

/// A pool that was found on devices.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
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
