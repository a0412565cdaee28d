//! Requests about faults on demand.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::edge::{Edge, mirrored};
use super::{Action, Declaration, Delegated, Effects, Part, Role};

mirrored! {
    /// What a transfer does.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
    #[serde(rename_all = "lowercase")]
    pub enum InjectedOperation for engine::inject::Operation {
        /// Bytes are read.
        Read,
        /// Bytes are written.
        Write,
        /// A range is discarded.
        Trim,
        /// Written bytes are made durable.
        Flush,
        /// The pool finds out whether a device works.
        Probe,
        /// All but probes: as in OpenZFS, these must be asked for.
        All,
    }
}

mirrored! {
    /// The part of a label.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
    #[serde(rename_all = "lowercase")]
    pub enum LabelPart for engine::inject::LabelPart {
        /// The blank part.
        Pad1,
        /// The boot block.
        Pad2,
        /// The configuration.
        Nvlist,
        /// The uberblocks.
        Uber,
    }
}

mirrored! {
    /// What a transfer of a device ends with.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
    #[serde(rename_all = "lowercase")]
    pub enum DeviceError for engine::inject::DeviceError {
        /// An I/O error.
        Io,
        /// No such device.
        Nxio,
        /// A flipped bit in what is read, as of a device that does not notice.
        Checksum,
        /// A flipped bit in what is read or written.
        Corrupt,
        /// Success, without anything being done.
        Noop,
    }
}

mirrored! {
    /// What reading a block ends with.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
    #[serde(rename_all = "lowercase")]
    pub enum BlockError for engine::inject::BlockError {
        /// An I/O error.
        Io,
        /// Wrong bytes on each device.
        Checksum,
        /// Bytes that cannot be decompressed.
        Decompress,
    }
}

mirrored! {
    /// When a bit of a block in memory flips.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
    #[serde(rename_all = "kebab-case")]
    pub enum Flip for engine::inject::Flip {
        /// A block to be written, before its checksum is made: the wrong bytes have the right checksum.
        BeforeChecksum,
        /// A block to be written, after its checksum was made.
        AfterChecksum,
        /// A block that was read, before its checksum is checked.
        BeforeCheck,
        /// A block that was read, after its checksum was checked: the reader gets wrong bytes.
        AfterCheck,
    }
}

mirrored! {
    /// Blocks of an object set.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
    pub struct Blocks for engine::inject::Blocks {
        /// The object set; 0 is the MOS.
        pub objset: u64,
        /// The object; `None` for all.
        pub object: Option<u64>,
        /// The level; `None` for all.
        pub level: Option<i64>,
        /// The first and the last block of it.
        pub blocks: (u64, u64),
        /// The copies, as bits: 1 for the first; 0 for all.
        pub copies: u8,
    }
}

/// What goes wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Fault {
    /// Transfers of a leaf.
    Device {
        /// The leaf.
        leaf: u64,
        /// What they end with.
        error: DeviceError,
        /// Which of them.
        operation: InjectedOperation,
        /// Only those of this part of its labels; those of labels are left alone otherwise.
        label: Option<LabelPart>,
    },
    /// Transfers of a leaf take longer.
    Delay {
        /// The leaf.
        leaf: u64,
        /// The least time that one takes.
        latency: Duration,
        /// As many as this at a time.
        lanes: usize,
        /// Which of them.
        operation: InjectedOperation,
    },
    /// The device of a leaf is gone.
    Gone {
        /// The leaf.
        leaf: u64,
    },
    /// Reads of blocks.
    Block {
        /// The blocks.
        blocks: Blocks,
        /// What the reads end with.
        error: BlockError,
    },
    /// A bit flips in memory.
    Memory {
        /// The blocks.
        blocks: Blocks,
        /// When.
        flip: Flip,
    },
}

impl Flip {
    /// Its word.
    pub fn word(self) -> &'static str {
        match self {
            Self::BeforeChecksum => "before-checksum",
            Self::AfterChecksum => "after-checksum",
            Self::BeforeCheck => "before-check",
            Self::AfterCheck => "after-check",
        }
    }
}

impl Edge<Fault> for engine::inject::Fault {
    fn edge(self) -> Fault {
        use engine::inject::Fault as Engine;
        match self {
            Engine::Device { leaf, error, operation, label } => {
                Fault::Device { leaf, error: error.edge(), operation: operation.edge(), label: label.edge() }
            }
            Engine::Delay { leaf, latency, lanes, operation } => {
                Fault::Delay { leaf, latency, lanes, operation: operation.edge() }
            }
            Engine::Gone { leaf } => Fault::Gone { leaf },
            Engine::Block { blocks, error } => Fault::Block { blocks: blocks.edge(), error: error.edge() },
            Engine::Memory { blocks, flip } => Fault::Memory { blocks: blocks.edge(), flip: flip.edge() },
        }
    }
}

/// Asks for a fault. Without `target` only the cache is emptied.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
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
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum BlockFault {
    /// Reading them fails.
    Read(BlockError),
    /// A bit of them flips in memory.
    Flip(Flip),
}

/// Asks which faults are made.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
pub struct ListInjections {}

impl Action for ListInjections {
    const DECLARED: Declaration =
        Declaration::reads("fault-list", Part::Events, Role::Operator, "Lists the faults that are made")
            .in_words("show injected faults", "");
    const DELEGATED: Delegated<Self> = Delegated::Never;
    type Reply = Vec<Injection>;
}

/// A fault that is being made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
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
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
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
