//! Requests about the devices of open pools.

use serde::{Deserialize, Serialize};

use super::{Action, Listed, State};

/// Forgets errors, takes devices back that failed, and lets a suspended pool go on.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
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
    const NAME: &'static str = "pool-clear";
    type Reply = ();
}

/// Takes devices offline.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
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
    const NAME: &'static str = "device-offline";
    /// The devices that were taken offline.
    type Reply = Listed<String>;
}

/// Takes devices back.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct OnlineDevices {
    /// The pool.
    pub pool: String,
    /// Names or guids.
    pub devices: Vec<String>,
    /// For the history.
    pub command: Option<String>,
}

/// A device that was asked back, and the state that it has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OnlinedDevice {
    /// The device, as it was called.
    pub device: String,
    /// Its state.
    pub state: State,
}

impl Action for OnlineDevices {
    const NAME: &'static str = "device-online";
    type Reply = Listed<OnlinedDevice>;
}

/// Removes devices that hold no data: spares and cache devices.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
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
    const NAME: &'static str = "device-remove";
    /// The devices that were removed.
    type Reply = Listed<String>;
}

/// Looks again for devices that are missing.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ReopenPools {
    /// Names; empty for all.
    pub pools: Vec<String>,
}

impl Action for ReopenPools {
    const NAME: &'static str = "pool-reopen";
    /// The pools whose devices were looked for.
    type Reply = Listed<String>;
}
