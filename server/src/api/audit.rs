//! Who asked for which change.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Action, Declaration, Delegated, Part, Role};

/// Asks for the newest lines of the audit log.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct GetAudit {
    /// How many; at most 10,000.
    pub count: usize,
}

/// A line of the audit log.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct AuditEntry {
    /// When the request came, in seconds since 1970.
    pub time: u64,
    /// The user of the process that asked. A person of the dashboard of whom no user of the system is known
    /// has 4294967295.
    pub uid: u32,
    /// The name of that user, if it has one, or of the person.
    pub user: Option<String>,
    /// Where a person came from who asked by the dashboard.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// The token by which it came.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// The process, for people: another one may have its number now.
    pub pid: Option<i32>,
    /// The role of the user, if it has one. Someone may have been allowed more by `zfs allow`.
    pub role: Option<String>,
    /// The action.
    pub action: String,
    /// What it was about, or the first of several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub object: Option<String>,
    /// How many more it was about.
    #[serde(skip_serializing_if = "is_zero")]
    pub and_more: u64,
    /// "ok", or what went wrong.
    pub result: String,
    /// How many lines before this one were left out: the log could not be written, or there were many
    /// refusals.
    #[serde(skip_serializing_if = "is_zero")]
    pub lost: u64,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde's form")]
fn is_zero(count: &u64) -> bool {
    *count == 0
}

impl Action for GetAudit {
    const DECLARED: Declaration =
        Declaration::reads("audit", Part::Daemon, Role::Operator, "The newest lines of the audit log")
            .in_words("show the audit log", "");
    const DELEGATED: Delegated<Self> = Delegated::Never;
    type Reply = Vec<AuditEntry>;
}
