//! Requests about scrubs by schedule.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Action, Declaration, Delegated, Effects, Listed, Part, Role};

/// Asks for the schedules of pools, or of all.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct GetScrubSchedules {
    /// The pools.
    pub pools: Vec<String>,
}

impl Action for GetScrubSchedules {
    const DECLARED: Declaration = Declaration::reads(
        "scrub-schedules",
        Part::Events,
        Role::Operator,
        "When pools are scrubbed by themselves",
    )
    .in_words("show the schedule of", "pools");
    const DELEGATED: Delegated<Self> = Delegated::Never;
    type Reply = Listed<ScrubSchedule>;
}

/// Sets the schedule of a pool.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct SetScrubSchedule {
    /// The pool.
    pub pool: String,
    /// `daily`, `weekly`, `monthly`, a number of days such as `10d`, or `off`.
    pub schedule: String,
    /// The command, for the history.
    pub command: Option<String>,
}

impl Action for SetScrubSchedule {
    const DECLARED: Declaration = Declaration::changes(
        "scrub-schedule-set",
        Part::Events,
        Role::Operator,
        Effects::SETTINGS,
        "Sets that",
    )
    .in_words("schedule scrubs of", "pool");
    const DELEGATED: Delegated<Self> = Delegated::Never;
    type Reply = ScrubSchedule;
}

/// When a pool is scrubbed by itself.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ScrubSchedule {
    /// The pool.
    pub pool: String,
    /// How often; `None` for never.
    pub schedule: Option<String>,
    /// When the last scrub began, in seconds since 1970.
    pub last: Option<u64>,
    /// When the next one is due, in seconds since 1970.
    pub next: Option<u64>,
    /// Whether a scan runs.
    pub is_scanning: bool,
}
