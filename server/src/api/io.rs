//! What was read and written, by vdev: the numbers of `zpool iostat`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Action, Declaration, Delegated, Listed, Part, Role, VdevNode};

/// Asks for the counters of open pools. They only grow: rates are differences of two answers.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct GetIoStats {
    /// Names; empty for all.
    pub pools: Vec<String>,
}

impl Action for GetIoStats {
    const DECLARED: Declaration = Declaration::reads(
        "pool-iostat",
        Part::Pools,
        Role::Viewer,
        "The counters of open pools; they only grow, so that rates are differences of two answers",
    );
    const DELEGATED: Delegated<Self> = Delegated::Never;
    type Reply = Listed<PoolIo>;
}

/// The counters of one pool.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct PoolIo {
    /// Name.
    pub name: String,
    /// Guid.
    pub guid: u64,
    /// Nanoseconds since the pool was opened, when counting began.
    pub age_ns: u64,
    /// The root vdev, with all vdevs below it, and their space where it is known.
    pub vdevs: VdevNode,
    /// Why nothing is written at the moment, where that is so: the pool waits for its devices, or was given
    /// up.
    #[serde(default)]
    pub suspended: Option<String>,
    /// Written bytes layer by layer, of a pool that is open for writing.
    #[serde(default)]
    pub written: Option<Written>,
    /// The counters, by guid of vdev. The root has none of its own.
    pub counters: Vec<VdevIo>,
}

/// Written bytes, layer by layer, since the pool was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Written {
    /// Blocks of files and volumes, before compression: whole blocks, also where less was written.
    pub logical_bytes: u64,
    /// The same after compression.
    pub compressed_bytes: u64,
    /// The same with copies, parity and padding.
    pub allocated_bytes: u64,
    /// The same, once for each device of a mirror.
    #[serde(default)]
    pub device_bytes: u64,
    /// Everything else that belongs to a group, as it is allocated: pointers, dnodes, space maps.
    pub metadata_bytes: u64,
    /// The same, once for each device of a mirror.
    #[serde(default)]
    pub metadata_device_bytes: u64,
    /// Blocks of intent logs, as they are allocated.
    pub log_bytes: u64,
    /// The same, once for each device of a mirror.
    #[serde(default)]
    pub log_device_bytes: u64,
}

/// The counters of one vdev.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct VdevIo {
    /// The vdev.
    pub guid: u64,
    /// Reads.
    pub read: Transfers,
    /// Those of them that were a sweep's.
    #[serde(default)]
    pub scrub: Transfers,
    /// Writes.
    pub write: Transfers,
    /// Those of them that were to be durable at once: the intent log's.
    #[serde(default)]
    pub sync_write: Transfers,
    /// Flushes.
    pub flush: Transfers,
    /// Ranges given up.
    pub trim: Transfers,
    /// Transfers under way.
    pub under_way: ActiveTransfers,
    /// What writes of groups waited for before they went to the device, and which were joined of several.
    #[serde(default)]
    pub async_queue: Queued,
    /// Stable writes that were joined of several.
    #[serde(default)]
    pub sync_queue: Queued,
}

/// Transfers of one class, before they went to the device.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Queued {
    /// How many waited at least `1 << n` and less than `1 << (n + 1)` nanoseconds.
    pub waited: Vec<u64>,
    /// How many were joined of several, and had at least `512 << n` and less than `1024 << n` bytes.
    pub joined: Vec<u64>,
}

/// How many transfers are under way, by what they are for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ActiveTransfers {
    /// Reads of blocks.
    pub sync_read: u64,
    /// Writes that are to be durable at once.
    pub sync_write: u64,
    /// Writes of transaction groups.
    pub async_write: u64,
    /// Reads of sweeps.
    pub scrub: u64,
    /// Ranges that are given up.
    pub trim: u64,
    /// Writes of transaction groups that wait for stable writes.
    pub async_write_pending: u64,
}

/// Transfers of one kind.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Transfers {
    /// How many.
    pub operations: u64,
    /// Their bytes.
    pub bytes: u64,
    /// How long they took together, in nanoseconds.
    #[serde(default)]
    pub total_ns: u64,
    /// How many took at least `1 << n` and less than `1 << (n + 1)` nanoseconds.
    pub latency: Vec<u64>,
    /// The same with the time that they waited before.
    #[serde(default)]
    pub total_latency: Vec<u64>,
    /// How many had at least `512 << n` and less than `1024 << n` bytes.
    pub sizes: Vec<u64>,
}
