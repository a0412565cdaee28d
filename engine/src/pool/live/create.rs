//! New pools.

use std::path::PathBuf;
use std::sync::Arc;

use device::Device;
use ondisk::features::Feature;

use super::LivePool;
use crate::cache::ArcCache;
use crate::env::Env;
use crate::error::Result;
use crate::txg::Limits;
use crate::vdev::Class;

/// How a top-level vdev is made of its leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// One leaf without redundancy.
    Single,
    /// Every leaf holds everything.
    Mirror,
    /// Stripes with 1 to 3 parity columns.
    Raidz {
        /// Parity columns.
        nparity: u8,
    },
    /// Distributed parity groups and spares.
    Draid {
        /// Parity columns of a group.
        nparity: u8,
        /// Data columns of a group.
        ndata: u8,
        /// Distributed spares.
        nspares: u8,
    },
}

/// A device of a new vdev.
#[derive(Debug, Clone)]
pub struct NewLeaf {
    /// The device, open for writing.
    pub device: Arc<dyn Device>,
    /// Where it will be found again: an absolute path.
    pub path: PathBuf,
    /// A regular file, not a block device.
    pub is_file: bool,
    /// A partition that was made on a disk given as a whole.
    pub whole_disk: bool,
}

/// A new top-level vdev.
#[derive(Debug, Clone)]
pub struct NewTop {
    /// How it is made of its leaves.
    pub layout: Layout,
    /// What it is for.
    pub class: Class,
    /// Its leaves.
    pub leaves: Vec<NewLeaf>,
}

/// A new pool.
#[derive(Debug, Clone)]
pub struct NewPool {
    /// Its name, already checked.
    pub name: String,
    /// Its top-level vdevs; at least one of the normal class.
    pub tops: Vec<NewTop>,
    /// Hot spares.
    pub spares: Vec<NewLeaf>,
    /// Cache devices.
    pub l2cache: Vec<NewLeaf>,
    /// Sector size as a power of two; the devices' own where absent.
    pub ashift: Option<u8>,
    /// Features to enable; dependencies must be among them.
    pub features: Vec<Feature>,
    /// Pool properties, as typed.
    pub properties: Vec<(String, String)>,
    /// Properties of the root filesystem, as typed.
    pub root_properties: Vec<(String, String)>,
    /// Where the pool's mount points begin, if not at the root.
    pub altroot: Option<PathBuf>,
    /// What the history begins with.
    pub command: Option<String>,
}

/// What an open pool runs with.
#[derive(Debug, Clone)]
pub struct Surroundings {
    /// Time and randomness.
    pub env: Arc<dyn Env>,
    /// The cache to use; a new one when absent.
    pub cache: Option<Arc<ArcCache>>,
    /// How much may be dirty.
    pub limits: Limits,
    /// This host's id and name, which go into the labels.
    pub host: (u64, String),
}

impl LivePool {
    /// Creates a pool: returns when its first group is committed. Everything that the devices held is lost.
    pub async fn create(_new: NewPool, _surroundings: Surroundings) -> Result<Arc<LivePool>> {
        todo!()
    }
}

/// The features that a new pool gets when nobody says otherwise: those that OpenZFS 2.3 enables and that we maintain.
pub fn default_features() -> Vec<Feature> {
    todo!()
}
