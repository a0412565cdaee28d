//! Requests that create, change and destroy pools.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    Action, Declaration, Delegated, Effects, Listed, OpenedPool, Part, Role, Secret, VdevNode, Warnings,
};

/// How the devices of a new top-level vdev stand together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum NewLayout {
    /// One device, without redundancy.
    Single,
    /// Each device holds everything.
    Mirror,
    /// Stripes with parity.
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

/// The use of a new top-level vdev.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum NewClass {
    /// Everything.
    #[default]
    Normal,
    /// The intent logs.
    Log,
    /// Metadata and small blocks.
    Special,
    /// Dedup tables.
    Dedup,
}

/// A new top-level vdev.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NewVdev {
    /// How its devices stand together.
    pub layout: NewLayout,
    /// Its use.
    #[serde(default)]
    pub class: NewClass,
    /// Its devices: absolute paths, or names of devices in `/dev`.
    pub devices: Vec<PathBuf>,
}

/// The devices of a new pool, or of what a pool gets.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct NewDevices {
    /// The top-level vdevs.
    pub vdevs: Vec<NewVdev>,
    /// Hot spares.
    pub spares: Vec<PathBuf>,
    /// Cache devices.
    pub cache: Vec<PathBuf>,
}

/// Creates a pool. What its devices held is lost.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct CreatePool {
    /// Its name.
    pub name: String,
    /// Its name while it is open this time.
    pub temporary_name: Option<String>,
    /// Its devices.
    pub devices: NewDevices,
    /// Use devices even if they seem to be in use, or vdevs differ in kind.
    pub force: bool,
    /// Only check.
    pub dry_run: bool,
    /// Enable no features but those named by `feature@…` properties.
    pub no_features: bool,
    /// Pool properties, as given by `-o name=value`.
    pub properties: Vec<(String, String)>,
    /// Properties of the root filesystem, as given by `-O name=value`.
    pub root_properties: Vec<(String, String)>,
    /// The key of the root filesystem, where its properties make it an encryption root whose `keylocation` is
    /// `prompt`.
    pub key: Option<Secret>,
    /// Directory under which all mountpoints are placed.
    pub altroot: Option<PathBuf>,
    /// Mount nothing.
    pub no_mount: bool,
    /// For the history.
    pub command: Option<String>,
}

impl Action for CreatePool {
    const DECLARED: Declaration = Declaration::changes(
        "pool-create",
        Part::Pools,
        Role::Admin,
        Effects::POOLS,
        "Creates a pool; what its devices held is lost",
    )
    .in_words("create", "name");
    const DELEGATED: Delegated<Self> = Delegated::Never;
    type Reply = OpenedPool;
}

/// Adds vdevs to a pool.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct AddVdevs {
    /// The pool.
    pub pool: String,
    /// The new devices.
    pub devices: NewDevices,
    /// All that the three below allow.
    pub force: bool,
    /// Use devices even if they seem to be in use.
    pub allow_in_use: bool,
    /// Add the new vdevs even if their redundancy differs than those that the pool has.
    pub allow_replication_mismatch: bool,
    /// Add the new vdevs even if their sector sizes differ than those that the pool has.
    pub allow_ashift_mismatch: bool,
    /// Only check.
    pub dry_run: bool,
    /// Pool properties for the new vdevs: `ashift`.
    pub properties: Vec<(String, String)>,
    /// For the history.
    pub command: Option<String>,
}

impl Action for AddVdevs {
    const DECLARED: Declaration =
        Declaration::changes("pool-add", Part::Devices, Role::Admin, Effects::VDEVS, "Adds vdevs")
            .in_words("add to", "pool");
    const DELEGATED: Delegated<Self> = Delegated::Never;
    /// The vdevs of the pool before the addition.
    type Reply = VdevNode;
}

/// Destroys pools: their devices are free to be used again. Until they are, an import with `destroyed` brings
/// the pool back.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct DestroyPool {
    /// The pool.
    pub pool: String,
    /// Even if it is in use.
    pub force: bool,
    /// For the history.
    pub command: Option<String>,
}

impl Action for DestroyPool {
    const DECLARED: Declaration = Declaration::changes(
        "pool-destroy",
        Part::Pools,
        Role::Admin,
        Effects::POOLS,
        "Destroys a pool; an import with `destroyed` brings it back until its devices are used again",
    )
    .in_words("destroy", "pool");
    const DELEGATED: Delegated<Self> = Delegated::Never;
    type Reply = Warnings;
}

/// Commits what was written so far.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct SyncPools {
    /// Names; empty for all.
    pub pools: Vec<String>,
}

impl Action for SyncPools {
    const DECLARED: Declaration = Declaration::changes(
        "pool-sync",
        Part::Pools,
        Role::Operator,
        Effects::VDEVS,
        "Commits what was written so far",
    )
    .in_words("sync", "pools");
    const DELEGATED: Delegated<Self> = Delegated::Never;
    /// The pools that were synced.
    type Reply = Listed<String>;
}

/// Stops committing a pool, so that only its intent logs grow, until it is exported and imported again. For
/// tests.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct FreezePool {
    /// The pool.
    pub pool: String,
}

impl Action for FreezePool {
    const DECLARED: Declaration = Declaration::changes(
        "pool-freeze",
        Part::Pools,
        Role::Admin,
        Effects::VDEVS,
        "For tests: commits nothing until the pool is exported",
    )
    .in_words("freeze", "pool");
    const DELEGATED: Delegated<Self> = Delegated::Never;
    type Reply = ();
}

/// Sets a property of a pool, or of one of its vdevs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct SetPoolProperty {
    /// The pool.
    pub pool: String,
    /// The vdev that has the property: a name or guid; `root` is the one above all others. The pool itself
    /// where absent.
    pub vdev: Option<String>,
    /// The property.
    pub property: String,
    /// Its value, as typed.
    pub value: String,
    /// For the history.
    pub command: Option<String>,
}

impl Action for SetPoolProperty {
    const DECLARED: Declaration = Declaration::changes(
        "pool-set",
        Part::Pools,
        Role::Admin,
        Effects::VDEVS,
        "Sets a property of a pool or of one of its vdevs",
    )
    .in_words("set property for", "pool");
    const DELEGATED: Delegated<Self> = Delegated::Never;
    type Reply = ();
}

/// Gives a pool another guid.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ReguidPool {
    /// The pool.
    pub pool: String,
    /// The new guid; a random one where absent.
    pub guid: Option<u64>,
    /// For the history.
    pub command: Option<String>,
}

impl Action for ReguidPool {
    const DECLARED: Declaration = Declaration::changes(
        "pool-reguid",
        Part::Pools,
        Role::Admin,
        Effects::VDEVS,
        "Gives a pool another guid",
    )
    .in_words("reguid", "pool");
    const DELEGATED: Delegated<Self> = Delegated::Never;
    type Reply = ();
}

/// Takes a checkpoint of a pool, or gives it up.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct CheckpointPool {
    /// The pool.
    pub pool: String,
    /// Give it up.
    pub discard: bool,
    /// Answer when all that it kept is freed.
    pub wait: bool,
    /// For the history.
    pub command: Option<String>,
}

impl Action for CheckpointPool {
    const DECLARED: Declaration = Declaration::changes(
        "pool-checkpoint",
        Part::Pools,
        Role::Admin,
        Effects::VDEVS,
        "Takes a checkpoint, or gives it up",
    )
    .in_words("checkpoint", "pool");
    const DELEGATED: Delegated<Self> = Delegated::Never;
    type Reply = ();
}

/// Takes pools to a version and enables all features that they may have, or reports which those are.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct UpgradePools {
    /// Names; empty for all.
    pub pools: Vec<String>,
    /// Only report.
    pub dry_run: bool,
    /// The version that they are to get; the newest, that of features, where absent. No features are enabled
    /// in an older one.
    pub version: Option<u64>,
    /// For the history.
    pub command: Option<String>,
}

/// The result of upgrading a pool, or of a dry run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct UpgradedPool {
    /// The pool.
    pub pool: String,
    /// Its version before.
    pub version: u64,
    /// Features that were not enabled before. When it only reports: those too that an upgrade does not
    /// enable, and none of a pool of an older version.
    pub features: Vec<String>,
}

impl Action for UpgradePools {
    const DECLARED: Declaration = Declaration::changes(
        "pool-upgrade",
        Part::Pools,
        Role::Admin,
        Effects::VDEVS,
        "Takes pools to a version and enables features, or lists what could be",
    )
    .in_words("upgrade", "pools");
    const DELEGATED: Delegated<Self> = Delegated::Never;
    type Reply = Listed<UpgradedPool>;
}

/// Wipes the labels of a device that no pool uses.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ClearLabel {
    /// The device.
    pub device: PathBuf,
    /// Clear it even if it seems to be part of an exported or foreign pool.
    pub force: bool,
}

impl Action for ClearLabel {
    const DECLARED: Declaration = Declaration::changes(
        "label-clear",
        Part::Devices,
        Role::Admin,
        Effects::VDEVS,
        "Wipes the labels of a device that no pool uses",
    )
    .in_words("clear the label of", "device");
    const DELEGATED: Delegated<Self> = Delegated::Never;
    type Reply = ();
}
