//! The disks of the machine.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Action, Declaration, Delegated, Part, Role};

/// Asks for the disks of the machine, with what lies on them. Their beginnings are read, which wakes disks
/// that sleep.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ListDisks {
    /// Also ask each for its health, by `smartctl` where that is installed. Disks that sleep are not woken by
    /// this alone.
    pub smart: bool,
}

/// A disk, or another block device of the machine that a pool could be made of.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct DiskEntry {
    /// Its path: `/dev/sda`.
    pub path: PathBuf,
    /// Its path by a name that stays the same, for pools.
    pub by_id: Option<PathBuf>,
    /// Its maker's name for it.
    pub model: Option<String>,
    /// Its serial number.
    pub serial: Option<String>,
    /// Bytes.
    pub size: u64,
    /// Bytes of a sector, as it takes requests.
    pub sector: u32,
    /// Bytes of a sector, as it stores them.
    pub physical_sector: u32,
    /// Whether it turns.
    pub rotational: bool,
    /// Whether it can be taken out.
    pub removable: bool,
    /// Whether it takes no writes.
    pub read_only: bool,
    /// Who has it or what lies on it, in words; none where nothing is known to be lost.
    pub in_use: Option<String>,
    /// The pool that has it, as its label says.
    pub pool: Option<String>,
    /// Whether a new pool could have it if `force` is given: no program uses it now.
    pub may_be_forced: bool,
    /// Its partitions.
    pub partitions: Vec<DiskPartition>,
    /// How it is, where that was asked for and is known.
    pub smart: Option<DiskHealth>,
}

/// A partition of a disk.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct DiskPartition {
    /// Its path.
    pub path: PathBuf,
    /// Bytes.
    pub size: u64,
    /// Who has it or what lies on it, in words.
    pub in_use: Option<String>,
}

/// How a disk is, as it says itself (SMART).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct DiskHealth {
    /// Its own verdict.
    pub healthy: Option<bool>,
    /// Degrees Celsius.
    pub temperature: Option<i64>,
    /// Hours that it has been on.
    pub hours: Option<u64>,
    /// Sectors that it replaced by others.
    pub reallocated: Option<u64>,
    /// Sectors that it could not read, and may replace.
    pub pending: Option<u64>,
    /// Reads that failed for good.
    pub uncorrectable: Option<u64>,
    /// How much of its life it has used up, in hundredths.
    pub wear_percent: Option<u64>,
    /// Why nothing is known.
    pub fault: Option<String>,
}

impl Action for ListDisks {
    const DECLARED: Declaration = Declaration::reads(
        "disk-list",
        Part::Devices,
        Role::Operator,
        "Lists the disks of the machine, with what lies on them",
    )
    .in_words("list disks", "");
    const DELEGATED: Delegated<Self> = Delegated::Never;
    type Reply = Vec<DiskEntry>;
}
