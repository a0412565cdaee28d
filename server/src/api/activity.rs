//! What goes on in a filesystem: what `zfs wait` waits for.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Action, Declaration, Delegated, Part, Role};

/// Asks what goes on in a filesystem.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct GetActivity {
    /// The filesystem.
    pub dataset: String,
}

impl Action for GetActivity {
    const DECLARED: Declaration = Declaration::reads(
        "dataset-activity",
        Part::Datasets,
        Role::Viewer,
        "What goes on in a filesystem: what `zfs wait` waits for",
    );
    const DELEGATED: Delegated<Self> = Delegated::Never;
    type Reply = Activity;
}

/// What goes on in a filesystem.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Activity {
    /// Files that were removed and are still there, because programs have them open or their blocks are being
    /// freed; 0 where it is not mounted, so that nothing goes on.
    pub delete_queue: u64,
}
