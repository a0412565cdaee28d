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
    /// Use all of the space of devices that have grown.
    pub expand: bool,
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

/// Removes devices that hold no data: spares, cache and log devices.
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

/// What is to be done about trimming.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TrimAction {
    /// Begin, or go on.
    #[default]
    Start,
    /// Stop for now.
    Suspend,
    /// Stop for good.
    Cancel,
}

/// Tells devices which ranges of theirs are free. Answered when that has begun; the status tells how far it is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TrimDevices {
    /// The pool.
    pub pool: String,
    /// Names or guids; all that can if none is named.
    pub devices: Vec<String>,
    /// What to do.
    pub action: TrimAction,
    /// Bytes a second at most; 0 for as fast as it goes.
    pub rate_bytes: u64,
    /// For the history.
    pub command: Option<String>,
}

impl Action for TrimDevices {
    const NAME: &'static str = "device-trim";
    /// Names of the devices that this is about.
    type Reply = Listed<String>;
}

/// How the trim of a device stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trimming {
    /// The device.
    pub guid: u64,
    /// How it stands.
    pub state: TrimState,
    /// Bytes done, of those that there are.
    pub done_bytes: u64,
    /// Bytes that there are.
    pub total_bytes: u64,
    /// When it began or ended, in seconds since 1970.
    pub time: u64,
}

/// The states of a trim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TrimState {
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
