//! What is measured.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::Place;
use crate::size::Size;

/// What is measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Target {
    /// Volumes of pools that the lab makes, over NBD, or from inside the process that has their pool open.
    Volume(Pools),
    /// Filesystems of such pools, mounted.
    Filesystem(Pools),
    /// A file, directory or block device.
    Path {
        /// Where.
        path: PathBuf,
        /// How much of it is used.
        size: Size,
    },
    /// An NBD export.
    Nbd {
        /// Its URI.
        uri: String,
        /// How much of it is used.
        size: Size,
    },
    /// A disk behind iSCSI.
    Iscsi {
        /// Its URI.
        uri: String,
        /// How much of it is used.
        size: Size,
    },
    /// Layers of a stack, each measured by itself: the factor `layer` has them.
    Layers {
        /// The layers, from the lowest to the highest.
        #[serde(rename = "layer")]
        layers: Vec<Layer>,
        /// How much of each is used.
        size: Size,
    },
    /// Volumes on a host that runs OpenZFS.
    Host {
        /// The dataset below which they are made, and removed afterwards.
        dataset: String,
        /// Size of a volume.
        size: Size,
    },
}

/// A layer of a stack.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Layer {
    /// What it is.
    pub name: String,
    /// Where it is: a path, or the URI of an NBD export or of a disk behind iSCSI.
    pub at: String,
}

/// Pools that the lab makes, on files in the experiment's directory.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pools {
    /// Size of a volume, or of the file that is worked on.
    pub size: Size,
    /// The vdevs, where the setting `layout` says nothing: `mirror 2`, `raidz1 3` …, several with `+`.
    #[serde(default = "one_device")]
    pub layout: String,
    /// Size of each device's file; what the variants need twice, where left out.
    #[serde(default)]
    pub device_size: Option<Size>,
    /// The medium that the devices play, where the setting `devices` says nothing: `hdd-7200` and others, `hdd-7200+10%` for one that takes a tenth longer; real files where left out.
    #[serde(default)]
    pub devices: Option<String>,
    /// The link that clients are behind: `1gbe`, `10gbe`; none where left out.
    #[serde(default)]
    pub link: Option<String>,
}

fn one_device() -> String {
    "1".to_owned()
}

impl Target {
    /// Bytes that workloads use.
    pub fn size(&self) -> Size {
        match self {
            Self::Volume(pools) | Self::Filesystem(pools) => pools.size,
            Self::Path { size, .. }
            | Self::Nbd { size, .. }
            | Self::Iscsi { size, .. }
            | Self::Layers { size, .. }
            | Self::Host { size, .. } => *size,
        }
    }

    /// The pools that are made for it.
    pub fn pools(&self) -> Option<&Pools> {
        match self {
            Self::Volume(pools) | Self::Filesystem(pools) => Some(pools),
            _ => None,
        }
    }

    /// Whether variants can differ in a setting of `place`.
    pub fn has(&self, place: Place) -> bool {
        match self {
            _ if place == Place::Job => true,
            Self::Volume(_) => true,
            Self::Filesystem(_) => place != Place::Way,
            Self::Host { .. } => place == Place::Dataset,
            Self::Layers { .. } => place == Place::Layer,
            Self::Path { .. } | Self::Nbd { .. } | Self::Iscsi { .. } => false,
        }
    }

    /// The layers of a stack; none of any other target.
    pub fn layers(&self) -> &[Layer] {
        match self {
            Self::Layers { layers, .. } => layers,
            _ => &[],
        }
    }

    /// Whether workloads can make files in it.
    pub fn holds_files(&self) -> bool {
        match self {
            Self::Filesystem(_) => true,
            Self::Path { path, .. } => path.is_dir(),
            _ => false,
        }
    }
}
