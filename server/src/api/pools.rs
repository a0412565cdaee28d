//! Requests that open, close and describe pools.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    Action, ApiError, Declaration, Delegated, Effects, Mounted, Part, Property, Role, ServedVolume, State,
    VdevNode,
};

/// Imports one pool, or every pool that is found.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ImportPool {
    /// Name or guid; `None` imports every pool found.
    pub pool: Option<String>,
    /// Name to import it under.
    pub new_name: Option<String>,
    /// The new name is for this time only: the devices keep the old one.
    pub temporary: bool,
    /// Directories and devices to look into; empty means the places under `/dev`.
    pub search: Vec<PathBuf>,
    /// Look for the pools of this cache file instead.
    pub cachefile: Option<PathBuf>,
    /// Also pools that were destroyed.
    pub destroyed: bool,
    /// Import although another machine seems to use the pool.
    pub force: bool,
    /// Go back to an earlier transaction group if the newest does not load.
    pub rewind: Option<Rewind>,
    /// Open at the pool's checkpoint.
    pub rewind_to_checkpoint: bool,
    /// Import even if log devices are missing.
    pub missing_log: bool,
    /// Mount nothing.
    pub no_mount: bool,
    /// Load keys whose location can be read without asking.
    pub load_keys: bool,
    /// Directory under which all mountpoints are placed.
    pub altroot: Option<PathBuf>,
    /// Pool properties (`readonly`, `altroot`, `cachefile`, and those that `zpool set` knows) as given by
    /// `-o name=value`.
    pub properties: Vec<(String, String)>,
    /// Mount options as given by `-o`.
    pub mount_options: Vec<String>,
    /// For the history.
    pub command: Option<String>,
}

/// How far an import may go back.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Rewind {
    /// Only say whether it would work.
    pub dry_run: bool,
    /// Try any older transaction group, however long ago.
    pub extreme: bool,
    /// Go to just this transaction group.
    pub txg: Option<u64>,
}

/// The result of an import.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
pub struct Imported {
    /// The pools that are now open.
    pub pools: Vec<OpenedPool>,
    /// Pools that were found but not opened, and why. When one pool was asked for by name its failure is the
    /// request's.
    pub failed: Vec<ApiError>,
}

/// A pool that an import opened (or, with a dry run, would have).
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
pub struct OpenedPool {
    /// Its name now.
    pub name: String,
    /// Its guid.
    pub guid: u64,
    /// The transaction group that it was opened at.
    pub txg: u64,
    /// When that was written, in seconds since 1970.
    pub timestamp: u64,
    /// Filesystems that were mounted.
    pub mounts: Vec<Mounted>,
    /// Volumes that are served.
    pub volumes: Vec<ServedVolume>,
    /// Things that went wrong without stopping the import, each a sentence.
    pub warnings: Vec<String>,
}

impl Action for ImportPool {
    const DECLARED: Declaration = Declaration::changes(
        "pool-import",
        Part::Pools,
        Role::Admin,
        Effects::POOLS.and(Effects::MOUNTS),
        "Imports one pool, or every pool that is found",
    )
    .in_words("import", "pool");
    const DELEGATED: Delegated<Self> = Delegated::Never;
    type Reply = Imported;
}

/// Closes pools: unmounts, takes exports down, releases the devices.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ExportPool {
    /// Names; empty with `all`.
    pub pools: Vec<String>,
    /// Every open pool.
    pub all: bool,
    /// Even if it is in use.
    pub force: bool,
    /// Labels and cache files go on saying that it is open here.
    pub stays_open: bool,
    /// For the history.
    pub command: Option<String>,
}

impl Action for ExportPool {
    const DECLARED: Declaration = Declaration::changes(
        "pool-export",
        Part::Pools,
        Role::Admin,
        Effects::POOLS,
        "Closes pools: unmounts, ends exports, releases the devices",
    )
    .in_words("export", "pools");
    const DELEGATED: Delegated<Self> = Delegated::Never;
    /// Names of the pools that were closed.
    type Reply = Vec<String>;
}

/// Lists open pools with their properties.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ListPools {
    /// Names; empty for all. A name that is not open becomes an entry of [`Listed::failed`].
    pub pools: Vec<String>,
    /// Properties to report, in this order; `all` stands for everything that `zpool get all` shows.
    pub properties: Vec<String>,
    /// Report the vdevs too, with their space.
    pub vdevs: bool,
}

/// The entries that were found, and errors for the others.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct Listed<T> {
    /// The entries, in the order of OpenZFS's listings.
    pub entries: Vec<T>,
    /// Why others are absent.
    pub failed: Vec<ApiError>,
}

impl<T> Default for Listed<T> {
    fn default() -> Self {
        Self { entries: Vec::new(), failed: Vec::new() }
    }
}

/// One open pool.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct PoolEntry {
    /// Name.
    pub name: String,
    /// Guid.
    pub guid: u64,
    /// State of the root vdev.
    pub state: State,
    /// The pool waits for its devices.
    #[serde(default)]
    pub suspended: bool,
    /// The transaction group that it is open at.
    pub txg: u64,
    /// Version of the pool: 5000 with feature flags.
    pub version: u64,
    /// The properties asked for.
    pub properties: Vec<Property>,
    /// The root vdev, where asked for.
    pub vdevs: Option<VdevNode>,
}

impl Action for ListPools {
    const DECLARED: Declaration = Declaration::reads(
        "pool-list",
        Part::Pools,
        Role::Viewer,
        "Lists open pools with their properties and, on request, vdevs",
    );
    const DELEGATED: Delegated<Self> = Delegated::Never;
    type Reply = Listed<PoolEntry>;
}

/// Reads the command history of pools.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct PoolHistory {
    /// Names; empty for all.
    pub pools: Vec<String>,
    /// Internal events too.
    pub internal: bool,
    /// The user, and the host.
    pub long: bool,
}

/// The history of one pool.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct History {
    /// The pool.
    pub pool: String,
    /// Its records, oldest first.
    pub records: Vec<HistoryRecord>,
}

/// One record of a pool's history.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct HistoryRecord {
    /// When, in seconds since 1970. The reader writes the date, in the time zone of its user, in front of
    /// `text`.
    pub time: Option<u64>,
    /// The text after the date; one line or several, each with its line end.
    pub text: String,
}

impl Action for PoolHistory {
    const DECLARED: Declaration =
        Declaration::reads("pool-history", Part::Pools, Role::Operator, "The command history")
            .in_words("show history for pool", "pools");
    const DELEGATED: Delegated<Self> = Delegated::Never;
    type Reply = Listed<History>;
}
