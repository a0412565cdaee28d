//! Requests about block devices of the kernel for volumes.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Action, Declaration, Delegated, Effects, Part, Role};

/// How the kernel gets at the volume of a block device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Through {
    /// Its ublk driver: `/dev/ublkbN`.
    Ublk,
    /// Its NBD client: `/dev/nbdN`.
    Nbd,
}

impl Through {
    /// Its name.
    pub fn word(self) -> &'static str {
        match self {
            Self::Ublk => "ublk",
            Self::Nbd => "nbd",
        }
    }
}

/// Makes a block device of the kernel for a volume, until it is detached, the volume goes, or the daemon
/// ends.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct AttachVolume {
    /// The volume, or a snapshot of one.
    pub volume: String,
    /// How; the first one that the kernel has where none is given.
    pub through: Option<Through>,
}

/// A volume that is a block device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AttachedVolume {
    /// The volume.
    pub volume: String,
    /// How the kernel gets at it.
    pub through: Through,
    /// The device.
    pub node: PathBuf,
    /// The link to it that has the volume's name.
    pub link: PathBuf,
}

impl Action for AttachVolume {
    const DECLARED: Declaration = Declaration::changes(
        "volume-attach",
        Part::Volumes,
        Role::Admin,
        Effects::VOLUMES,
        "Makes a block device of the kernel",
    )
    .in_words("attach", "volume");
    const DELEGATED: Delegated<Self> = Delegated::Never;
    type Reply = AttachedVolume;
}

/// Ends the block device of a volume.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct DetachVolume {
    /// The volume.
    pub volume: String,
    /// Although it is mounted or otherwise in use: who uses it gets errors.
    pub force: bool,
}

impl Action for DetachVolume {
    const DECLARED: Declaration =
        Declaration::changes("volume-detach", Part::Volumes, Role::Admin, Effects::VOLUMES, "Ends it");
    const DELEGATED: Delegated<Self> = Delegated::Never;
    type Reply = ();
}

/// Lists the volumes that are block devices.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
pub struct ListAttached {}

impl Action for ListAttached {
    const DECLARED: Declaration =
        Declaration::reads("volume-attached", Part::Volumes, Role::Operator, "Lists these devices");
    const DELEGATED: Delegated<Self> = Delegated::Never;
    type Reply = Vec<AttachedVolume>;
}
