//! Requests about the devices of open pools.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Action, Declaration, Delegated, Effects, Listed, Part, Role, State};

/// Forgets errors, takes devices back that failed, and lets a suspended pool go on.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ClearErrors {
    /// The pool.
    pub pool: String,
    /// Only of this vdev and those below it: a name or guid.
    pub device: Option<String>,
    /// For the history.
    pub command: Option<String>,
}

impl Action for ClearErrors {
    const DECLARED: Declaration = Declaration::changes(
        "pool-clear",
        Part::Devices,
        Role::Operator,
        Effects::VDEVS,
        "Forgets errors, takes failed devices back, lets a suspended pool go on",
    )
    .in_words("clear errors for", "pool");
    const DELEGATED: Delegated<Self> = Delegated::Never;
    type Reply = ();
}

/// Takes devices offline.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct OfflineDevices {
    /// The pool.
    pub pool: String,
    /// Names or guids.
    pub devices: Vec<String>,
    /// Only until the next import.
    pub temporary: bool,
    /// As if they had failed.
    pub fault: bool,
    /// For the history.
    pub command: Option<String>,
}

impl Action for OfflineDevices {
    const DECLARED: Declaration = Declaration::changes(
        "device-offline",
        Part::Devices,
        Role::Operator,
        Effects::VDEVS,
        "Takes devices offline",
    )
    .in_words("offline", "devices");
    const DELEGATED: Delegated<Self> = Delegated::Never;
    /// The devices that were taken offline.
    type Reply = Listed<String>;
}

/// Takes devices back.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct OnlineDevices {
    /// The pool.
    pub pool: String,
    /// Names or guids.
    pub devices: Vec<String>,
    /// Use all of the space of devices that have grown.
    pub expand: bool,
    /// For the history.
    pub command: Option<String>,
}

/// A device that was asked back, and the state that it has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OnlinedDevice {
    /// The device, as it was called.
    pub device: String,
    /// Its state.
    pub state: State,
    /// It does not hold what was written while it was away.
    #[serde(default)]
    pub awaits_resilver: bool,
}

impl Action for OnlineDevices {
    const DECLARED: Declaration = Declaration::changes(
        "device-online",
        Part::Devices,
        Role::Operator,
        Effects::VDEVS,
        "Takes devices back",
    )
    .in_words("online", "devices");
    const DELEGATED: Delegated<Self> = Delegated::Never;
    type Reply = Listed<OnlinedDevice>;
}

/// Attaches a device to another one: as one more copy of what it holds, or to replace it. What the new device
/// held is lost.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct AttachDevice {
    /// The pool.
    pub pool: String,
    /// The device of the pool: a name or guid.
    pub device: String,
    /// The new device: an absolute path, the name of a device in `/dev`, or a hot spare of the pool; the path
    /// of the old one if absent.
    pub new_device: Option<PathBuf>,
    /// Detach the old device when the new one has everything.
    pub replace: bool,
    /// Use the new device even if it seems to be in use.
    pub force: bool,
    /// Properties of the new device: `ashift`.
    pub properties: Vec<(String, String)>,
    /// For the history.
    pub command: Option<String>,
}

impl Action for AttachDevice {
    const DECLARED: Declaration = Declaration::changes(
        "device-attach",
        Part::Devices,
        Role::Admin,
        Effects::VDEVS,
        "Attaches a device to another one, or replaces that one by it",
    )
    .in_words("attach to or replace", "device");
    const DELEGATED: Delegated<Self> = Delegated::Never;
    /// The guid of the new device.
    type Reply = u64;
}

/// Detaches a device from others that hold the same data.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct DetachDevice {
    /// The pool.
    pub pool: String,
    /// A name or guid.
    pub device: String,
    /// For the history.
    pub command: Option<String>,
}

impl Action for DetachDevice {
    const DECLARED: Declaration =
        Declaration::changes("device-detach", Part::Devices, Role::Admin, Effects::VDEVS, "Detaches a copy")
            .in_words("detach", "device");
    const DELEGATED: Delegated<Self> = Delegated::Never;
    type Reply = ();
}

/// Removes devices that hold no data: spares, cache and log devices.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct RemoveDevices {
    /// The pool.
    pub pool: String,
    /// Names or guids.
    pub devices: Vec<String>,
    /// For the history.
    pub command: Option<String>,
}

impl Action for RemoveDevices {
    const DECLARED: Declaration = Declaration::changes(
        "device-remove",
        Part::Devices,
        Role::Admin,
        Effects::VDEVS,
        "Removes spares, cache and log devices",
    )
    .in_words("remove", "devices");
    const DELEGATED: Delegated<Self> = Delegated::Never;
    /// The devices that were removed.
    type Reply = Listed<String>;
}

/// The operation on the free space of devices.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Sweep {
    /// Telling devices that it is free.
    #[default]
    Trim,
    /// Writing a pattern over it.
    Initialize,
}

/// The command for that operation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SweepAction {
    /// Begin, or go on.
    #[default]
    Start,
    /// Stop for now.
    Suspend,
    /// Stop for good.
    Cancel,
    /// Forget that it was done; of initializing only.
    Forget,
}

/// Goes through the free space of devices. Answered when that has begun; the status reports its progress.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct SweepDevices {
    /// The pool.
    pub pool: String,
    /// Names or guids; all that can if none is named.
    pub devices: Vec<String>,
    /// The operation.
    pub work: Sweep,
    /// The command for it.
    pub action: SweepAction,
    /// Bytes a second at most; 0 for as fast as it goes.
    pub rate_bytes: u64,
    /// For the history.
    pub command: Option<String>,
}

impl Action for SweepDevices {
    const DECLARED: Declaration = Declaration::changes(
        "device-sweep",
        Part::Devices,
        Role::Operator,
        Effects::VDEVS,
        "Initializes or trims free space; answered when that has begun",
    )
    .in_words("trim or initialize", "pool");
    const DELEGATED: Delegated<Self> = Delegated::Never;
    /// Guids of the devices that this is about.
    type Reply = Vec<u64>;
}

/// How far the free space of a device is gone through.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Sweeping {
    /// The device.
    pub guid: u64,
    /// The operation.
    pub work: Sweep,
    /// How it stands.
    pub state: SweepState,
    /// Bytes done, of those that there are.
    pub done_bytes: u64,
    /// Bytes that there are.
    pub total_bytes: u64,
    /// When it began or ended, in seconds since 1970.
    pub time: u64,
}

/// The states of going through free space.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SweepState {
    /// It goes on.
    Active,
    /// It waits to be started again.
    Suspended,
    /// It came to its end.
    Complete,
    /// It was given up.
    Canceled,
}

/// Looks again for devices that are missing.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ReopenPools {
    /// Names; empty for all.
    pub pools: Vec<String>,
}

impl Action for ReopenPools {
    const DECLARED: Declaration = Declaration::changes(
        "pool-reopen",
        Part::Pools,
        Role::Operator,
        Effects::VDEVS,
        "Looks again for devices that are missing",
    )
    .in_words("reopen", "pools");
    const DELEGATED: Delegated<Self> = Delegated::Never;
    /// The pools whose devices were looked for.
    type Reply = Listed<String>;
}
