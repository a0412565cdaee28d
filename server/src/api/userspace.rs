//! What users, groups and projects use of a filesystem, and may use.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Action, Declaration, Delegated, Need, Part, Role};

/// The kind of owner whose use is counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Owner {
    /// Users.
    #[default]
    User,
    /// Groups.
    Group,
    /// Projects.
    Project,
}

/// Lists what all users, groups or projects use of a filesystem or snapshot.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ListSpace {
    /// The filesystem or snapshot.
    pub dataset: String,
    /// Whose.
    pub owner: Owner,
}

impl Action for ListSpace {
    const DECLARED: Declaration = Declaration::reads(
        "userspace",
        Part::Datasets,
        Role::Operator,
        "What users, groups or projects use, and their quotas",
    )
    .in_words("get used/quota for", "dataset");
    const DELEGATED: Delegated<Self> = Delegated::Needs(
        "`userused`, `userquota`, `userobjused` and `userobjquota`, or those of groups",
        |request| {
            let of = match request.owner {
                Owner::User => "user",
                Owner::Group => "group",
                Owner::Project => "project",
            };
            let kinds = ["used", "quota", "objused", "objquota"];
            let needs = kinds.iter().map(|kind| Need::on(&format!("{of}{kind}"), &request.dataset)).collect();
            Ok((request, needs))
        },
    );
    type Reply = Vec<SpaceOf>;
}

/// The space used by one user, group or project.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SpaceOf {
    /// Number of the user, group or project.
    pub id: u64,
    /// Name of the user or group, if it has one on this machine.
    pub name: Option<String>,
    /// Bytes of its files.
    pub used: u64,
    /// Bytes that it may use; 0 for any.
    pub quota: u64,
    /// Its files. `None` where files are not counted.
    pub objects: Option<u64>,
    /// Files that it may have; 0 for any.
    pub object_quota: u64,
}
