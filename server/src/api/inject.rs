//! Requests about faults on demand.

use serde::{Deserialize, Serialize};

use super::{Action, Declaration, Delegated, Effects, Part, Role};

pub use engine::inject::{
    BlockError, Blocks, DeviceError, Fault, Flip, LabelPart, Operation as InjectedOperation,
};

/// Asks for a fault. Without `target` only the cache is emptied.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct InjectFault {
    /// The pool; empty where the target is a file, whose pool is found.
    pub pool: String,
    /// What goes wrong, and where.
    pub target: Option<InjectTarget>,
    /// How often, out of a million; 0 for always.
    pub frequency: u32,
    /// Even if it damages what is stored, or gives wrong bytes to readers.
    pub force: bool,
    /// Forget cached blocks first.
    pub empty_cache: bool,
}

impl Action for InjectFault {
    const DECLARED: Declaration = Declaration::changes(
        "fault-inject",
        Part::Events,
        Role::Admin,
        Effects::SETTINGS,
        "Makes a fault from now on",
    )
    .in_words("inject faults into", "pool");
    const DELEGATED: Delegated<Self> = Delegated::Never;
    /// The numbers of the handlers that were added.
    type Reply = Vec<u64>;
}

/// What goes wrong, and where.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum InjectTarget {
    /// Transfers of a device.
    Device {
        /// The device, by path or guid.
        device: String,
        /// What they end with.
        error: DeviceError,
        /// Which of them.
        operation: InjectedOperation,
        /// Only those of this part of its labels.
        label: Option<LabelPart>,
    },
    /// Transfers of a device take longer.
    Delay {
        /// The device, by path or guid.
        device: String,
        /// The least time that one takes.
        latency_ms: u64,
        /// As many as this at a time.
        lanes: usize,
        /// Which of them.
        operation: InjectedOperation,
    },
    /// The device is gone until the handler is cleared.
    Gone {
        /// The device, by path or guid.
        device: String,
    },
    /// The device is declared faulted, or degraded.
    Declare {
        /// The device, by path or guid.
        device: String,
        /// Faulted, and not only degraded.
        faulted: bool,
    },
    /// All devices drop what is written to them, and say that they have it.
    IgnoreWrites,
    /// Blocks by their numbers.
    Blocks {
        /// The blocks.
        blocks: Blocks,
        /// What happens to them.
        what: BlockFault,
    },
    /// Blocks of a file, by its path in a mounted filesystem, or of a volume, by its name.
    File {
        /// The path or the name.
        path: String,
        /// The file's dnode, instead of its data.
        dnode: bool,
        /// The level.
        level: i64,
        /// The first byte and the last byte.
        range: Option<(u64, u64)>,
        /// The copies, as bits; 0 for all.
        copies: u8,
        /// What happens to them.
        what: BlockFault,
    },
}

/// What happens to blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BlockFault {
    /// Reading them fails.
    Read(BlockError),
    /// A bit of them flips in memory.
    Flip(Flip),
}

/// Asks which faults are made.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct ListInjections {}

impl Action for ListInjections {
    const DECLARED: Declaration =
        Declaration::reads("fault-list", Part::Events, Role::Operator, "Lists the faults that are made")
            .in_words("show injected faults", "");
    const DELEGATED: Delegated<Self> = Delegated::Never;
    type Reply = Vec<Injection>;
}

/// A fault that is being made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Injection {
    /// Its number.
    pub id: u64,
    /// The pool.
    pub pool: String,
    /// What goes wrong.
    pub fault: Fault,
    /// The path of the device that it is about.
    pub device: Option<String>,
    /// How often, out of a million.
    pub frequency: u32,
    /// How often it could have been made.
    pub matched: u64,
    /// How often it was made.
    pub injected: u64,
}

/// Stops making a fault, or all.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ClearInjections {
    /// Its number; `None` for all.
    pub id: Option<u64>,
}

impl Action for ClearInjections {
    const DECLARED: Declaration = Declaration::changes(
        "fault-clear",
        Part::Events,
        Role::Admin,
        Effects::SETTINGS,
        "Stops making a fault, or all",
    )
    .in_words("clear injected faults", "");
    const DELEGATED: Delegated<Self> = Delegated::Never;
    /// How many there were.
    type Reply = u64;
}
