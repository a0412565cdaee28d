//! Requests about pools that this host may take over from another one.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Action, Declaration, Delegated, Effects, Part, Role};

/// How a pool that this host stands by for is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum StandbyState {
    /// This host has it.
    Active,
    /// Another host has it, or this one does not know yet that none has.
    #[default]
    Watching,
    /// Its owner closed it, or is gone. It is taken over now, or on command.
    Free,
    /// It was exported: it is taken over on command only.
    Exported,
    /// Its store does not answer.
    Unreachable,
    /// Taking it over failed; it is tried again.
    Failed,
}

impl StandbyState {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Active, Self::Watching, Self::Free, Self::Exported, Self::Unreachable, Self::Failed];

    /// Its name.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Watching => "watching",
            Self::Free => "free",
            Self::Exported => "exported",
            Self::Unreachable => "unreachable",
            Self::Failed => "failed",
        }
    }
}

/// A pool that this host stands by for.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StandbyPool {
    /// The pool.
    pub pool: String,
    /// Where its devices are. The lease of the first one is watched.
    pub addresses: Vec<String>,
    /// How it is.
    pub state: StandbyState,
    /// Whether it is taken over when its lease is over. Else only on command.
    pub by_lease: bool,
    /// The host that has it, as its lease says.
    pub owner: Option<String>,
    /// For how long the lease has not changed, in milliseconds.
    pub unchanged_ms: Option<u64>,
    /// How often it was taken over since the daemon began.
    pub take_overs: u64,
    /// How long the last time took, from the decision to clients being served, in milliseconds.
    pub took_ms: Option<u64>,
    /// What went wrong, or what it waits for.
    pub message: Option<String>,
}

/// Lists the pools that this host stands by for.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ListStandby {}

impl Action for ListStandby {
    const DECLARED: Declaration = Declaration::reads(
        "standby-list",
        Part::Pools,
        Role::Viewer,
        "Lists pools that this host may take over from another one, with their leases",
    )
    .got_at("standby");
    const DELEGATED: Delegated<Self> = Delegated::Never;
    type Reply = Vec<StandbyPool>;
}

/// Takes a pool over from the host that has it, which can write nothing from then on. Done at once where this
/// host has it.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct TakeOverPool {
    /// The pool.
    pub pool: String,
    /// Where its devices are; without them, where the daemon was told when it began.
    pub addresses: Vec<String>,
    /// For the history.
    pub command: Option<String>,
}

impl Action for TakeOverPool {
    const DECLARED: Declaration = Declaration::changes(
        "pool-take-over",
        Part::Pools,
        Role::Admin,
        Effects::POOLS.and(Effects::MOUNTS),
        "Takes a pool in an object store over from another host",
    )
    .in_words("take over", "pool");
    const DELEGATED: Delegated<Self> = Delegated::Never;
    /// Things that went wrong without stopping it, each a sentence.
    type Reply = Vec<String>;
}
