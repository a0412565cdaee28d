//! Requests about mounted filesystems.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Action, ApiError, Declaration, Delegated, Effects, Part, Role};

/// Mounts one filesystem, or all that are to be mounted.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Mount {
    /// The filesystem or snapshot; `None` mounts all with `canmount=on`.
    pub dataset: Option<String>,
    /// Only of this pool, when all are mounted.
    pub pool: Option<String>,
    /// Where, instead of its `mountpoint` property.
    pub at: Option<PathBuf>,
    /// Mount options, as given by `-o`.
    pub options: Vec<String>,
    /// Mount over a directory that is not empty.
    pub overlay: bool,
    /// Load keys whose location can be read without asking.
    pub load_keys: bool,
    /// As `mount` of the system asks for it: only what its property says is mounted so (`mountpoint=legacy`),
    /// and snapshots; over whatever is there.
    pub legacy: bool,
    /// With all below it: those of them that are mounted without being asked for by name.
    pub recursive: bool,
}

/// The result of mounting or unmounting.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
pub struct MountsChanged {
    /// The filesystems that were mounted or unmounted, in that order.
    pub done: Vec<Mounted>,
    /// Failures, with reasons. If one filesystem was asked for by name, its failure is that of the request.
    pub failed: Vec<ApiError>,
    /// Filesystems that were left out although a user may expect them, each with the reason in a sentence.
    pub warnings: Vec<String>,
}

/// One mounted filesystem.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Mounted {
    /// Name of the filesystem.
    pub dataset: String,
    /// Where it is mounted.
    pub mountpoint: PathBuf,
    /// Words of its mount options.
    pub options: Vec<String>,
    /// Those that were given when it was mounted, and do not come from its properties.
    #[serde(default)]
    pub given: Vec<String>,
    /// The system's `mount` mounted it (`mountpoint=legacy`, snapshots), so that its `umount` is to unmount
    /// it.
    #[serde(default)]
    pub by_system: bool,
    /// How many requests came through rings; absent where they come through the device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answered_through_rings: Option<u64>,
}

impl Action for Mount {
    const DECLARED: Declaration = Declaration::changes(
        "mount",
        Part::Mounts,
        Role::Operator,
        Effects::MOUNTS,
        "Mounts one filesystem, or all that are to be mounted",
    )
    .in_words("mount", "dataset");
    const DELEGATED: Delegated<Self> = Delegated::Never;
    type Reply = MountsChanged;

    /// Only where the properties say, and as they say: a place of the caller's choice could be `/etc`.
    fn for_operator(self) -> Result<Self, ApiError> {
        let is_as_kept = self.at.is_none() && self.options.is_empty() && !self.overlay && !self.load_keys;
        match is_as_kept && !self.legacy {
            true => Ok(self),
            false => Err(ApiError::refused(
                "an operator mounts filesystems where and how their properties say: permission denied",
            )),
        }
    }
}

/// Unmounts one filesystem, or all.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Unmount {
    /// The filesystem's name or its mountpoint; `None` unmounts all.
    pub target: Option<String>,
    /// Although it is in use.
    pub force: bool,
    /// Unload the keys of encryption roots that are unmounted.
    pub unload_keys: bool,
}

impl Action for Unmount {
    const DECLARED: Declaration = Declaration::changes(
        "unmount",
        Part::Mounts,
        Role::Operator,
        Effects::MOUNTS,
        "Unmounts one filesystem, or all",
    )
    .in_words("unmount", "target");
    const DELEGATED: Delegated<Self> = Delegated::Never;
    type Reply = MountsChanged;

    /// Keys stay.
    fn for_operator(self) -> Result<Self, ApiError> {
        match self.unload_keys {
            false => Ok(self),
            true => Err(ApiError::refused("cannot unload keys: permission denied")),
        }
    }
}

/// Lists what is mounted.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
pub struct ListMounts {}

impl Action for ListMounts {
    const DECLARED: Declaration =
        Declaration::reads("mount-list", Part::Mounts, Role::Viewer, "Lists mounted filesystems");
    const DELEGATED: Delegated<Self> = Delegated::Never;
    type Reply = Vec<Mounted>;
}
