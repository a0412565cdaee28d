//! Requests about volumes that get another block size.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Action, Declaration, Delegated, Effects, Part, Role};

/// Begins to give a volume blocks of another size, while clients use it; or pauses that, goes on with it, or
/// gives it up.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ReshapeVolume {
    /// The volume.
    pub volume: String,
    /// What is done.
    pub action: ReshapeAction,
    /// To begin: the new size of a block, in bytes.
    pub volblocksize: u64,
    /// To begin: only report what it takes.
    pub dry_run: bool,
    /// For the history.
    pub command: Option<String>,
}

/// What is done about a volume that gets another block size.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ReshapeAction {
    /// It begins.
    #[default]
    Start,
    /// It waits until it is resumed, also when the pool is imported again.
    Pause,
    /// It goes on.
    Resume,
    /// The copy is destroyed, and the volume stays as it is. Answered when that is done.
    Cancel,
}

impl Action for ReshapeVolume {
    const DECLARED: Declaration = Declaration::changes(
        "volume-reshape",
        Part::Volumes,
        Role::Admin,
        Effects::DATASETS.and(Effects::VOLUMES),
        "Begins to give a volume another block size, or says what that takes; pauses, resumes or cancels it",
    );
    const DELEGATED: Delegated<Self> = Delegated::Never;
    /// What it takes, where it begins or would.
    type Reply = Option<ReshapePlan>;
}

/// What giving a volume another block size takes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ReshapePlan {
    /// The volume.
    pub volume: String,
    /// What its copy is called until it is complete.
    pub copy: String,
    /// What the old volume is called then, unless that name is taken meanwhile.
    pub kept: String,
    /// Size of a block at present, in bytes.
    pub old_volblocksize: u64,
    /// The new size of a block.
    pub new_volblocksize: u64,
    /// Bytes of data that are copied, before compression.
    pub data_bytes: u64,
    /// About what the copy takes of the pool, with what is reserved meanwhile.
    pub needed_bytes: u64,
    /// Bytes that the pool has for it.
    pub available_bytes: u64,
    /// How long copying takes at least; absent where there is nothing to measure.
    pub time: Option<ReshapeTime>,
}

/// How long giving a volume another block size takes at least, by how fast a part of the volume was read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ReshapeTime {
    /// How long copying takes at least: reading all data as fast as that part, and writing them no faster.
    pub seconds: u64,
    /// Bytes that were read, here and there in the volume.
    pub sampled_bytes: u64,
    /// How fast.
    pub bytes_per_second: u64,
}

/// Asks for the volumes that get another block size, and those that did since the pool was opened.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ListReshapes {
    /// Only of these volumes; empty for all.
    pub volumes: Vec<String>,
}

impl Action for ListReshapes {
    const DECLARED: Declaration = Declaration::reads(
        "reshape-list",
        Part::Volumes,
        Role::Operator,
        "How volumes stand that get another block size",
    );
    const DELEGATED: Delegated<Self> = Delegated::Never;
    type Reply = Vec<Reshaping>;
}

/// How a volume stands that gets another block size.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Reshaping {
    /// The volume.
    pub volume: String,
    /// What its copy is called until it is complete.
    pub copy: String,
    /// What the old volume is called, once the copy has taken its place.
    pub kept: Option<String>,
    /// Size of a block before, in bytes.
    pub old_volblocksize: u64,
    /// The new size of a block.
    pub new_volblocksize: u64,
    /// How it stands.
    pub state: ReshapeState,
    /// Number of the pass over the volume: the first one copies everything, each later one what was written
    /// during the one before.
    pub pass: u32,
    /// Bytes of data that the first pass copied, of those that there are.
    pub done_bytes: u64,
    /// Bytes of data that there are, before compression.
    pub total_bytes: u64,
    /// Bytes copied in a second, when that is known.
    pub bytes_per_second: Option<u64>,
    /// About how long the first pass still takes, when that is known.
    pub seconds_left: Option<u64>,
    /// How long the last pass took: about as long, clients wait at the end.
    pub last_pass_milliseconds: Option<u64>,
    /// When it was begun, in seconds since 1970.
    pub start_time: u64,
    /// Why it does not go on.
    pub error: Option<String>,
}

/// The states of a volume that gets another block size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ReshapeState {
    /// It is copied.
    Active,
    /// It was paused, or something failed.
    Paused,
    /// The copy has taken its place.
    Complete,
    /// It was given up.
    Canceled,
}
