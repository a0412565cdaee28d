//! Requests about the vdevs of one pool.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Action, Declaration, Delegated, Listed, Part, Property, Role, VdevNode};

/// Lists vdevs of an open pool with their properties.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ListVdevs {
    /// The pool.
    pub pool: String,
    /// Names, paths, last parts of paths, or guids; empty for the root and all that hold blocks. One that the
    /// pool does not have becomes an entry of [`Listed::failed`].
    pub vdevs: Vec<String>,
    /// Properties to report, in this order; `all` stands for everything that `zpool get all` shows.
    pub properties: Vec<String>,
}

/// One vdev.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct VdevEntry {
    /// The vdev, with those below it.
    pub vdev: VdevNode,
    /// The properties asked for.
    pub properties: Vec<Property>,
}

impl Action for ListVdevs {
    const DECLARED: Declaration =
        Declaration::reads("vdev-list", Part::Devices, Role::Viewer, "Lists vdevs with their properties");
    const DELEGATED: Delegated<Self> = Delegated::Never;
    type Reply = Listed<VdevEntry>;
}
