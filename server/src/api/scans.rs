//! Requests about scrubs and resilvers.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Action, Declaration, Delegated, Effects, Part, Role};

/// Begins, pauses or ends a scrub or a resilver.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ScanPool {
    /// The pool.
    pub pool: String,
    /// What is done.
    pub action: ScanAction,
    /// Only the blocks of the error log.
    pub errors_only: bool,
    /// Only what was written after the last scrub.
    pub after_last: bool,
    /// Only what was written since about this time, in seconds since 1970; 0 for all.
    pub since: u64,
    /// And not after about this time; 0 for all.
    pub until: u64,
    /// For the history.
    pub command: Option<String>,
}

/// What is done about a scan.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ScanAction {
    /// A scrub begins, or goes on.
    #[default]
    Scrub,
    /// A scrub is paused.
    Pause,
    /// What is under way is given up.
    Stop,
    /// A resilver begins, or begins anew.
    Resilver,
}

impl Action for ScanPool {
    const DECLARED: Declaration = Declaration::changes(
        "pool-scan",
        Part::Devices,
        Role::Operator,
        Effects::VDEVS,
        "Begins, pauses or ends a scrub or a resilver; answers whether blocks of a checkpoint are left out",
    )
    .in_words("scan", "pool");
    const DELEGATED: Delegated<Self> = Delegated::Never;
    /// Whether the pool has a checkpoint, whose blocks are left out.
    type Reply = bool;
}
