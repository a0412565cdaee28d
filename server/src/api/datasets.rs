//! Requests about datasets.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::Action;

/// Loads the key of an encryption root, or only checks it.
#[derive(Clone, Serialize, Deserialize)]
pub struct LoadKey {
    /// The encryption root.
    pub dataset: String,
    /// The passphrase, hex digits or raw bytes, as the root's `keyformat` says.
    pub key: Vec<u8>,
    /// Check the key and load nothing.
    pub dry_run: bool,
}

impl std::fmt::Debug for LoadKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The key must not reach a log.
        f.debug_struct("LoadKey")
            .field("dataset", &self.dataset)
            .field("dry_run", &self.dry_run)
            .finish_non_exhaustive()
    }
}

impl Action for LoadKey {
    const NAME: &'static str = "key-load";
    type Reply = ();
}

/// Forgets the key of an encryption root.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct UnloadKey {
    /// The encryption root.
    pub dataset: String,
}

impl Action for UnloadKey {
    const NAME: &'static str = "key-unload";
    type Reply = ();
}

/// Mounts one filesystem, or all that are to be mounted.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Mount {
    /// The filesystem or snapshot; `None` mounts all with `canmount=on`.
    pub dataset: Option<String>,
    /// Where, instead of its `mountpoint` property.
    pub at: Option<PathBuf>,
    /// Mount options, as given by `-o`.
    pub options: Vec<String>,
    /// Mount over a directory that is not empty.
    pub overlay: bool,
}

/// One mounted filesystem.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Mounted {
    /// Name of the filesystem.
    pub dataset: String,
    /// Where it is mounted.
    pub mountpoint: PathBuf,
}

impl Action for Mount {
    const NAME: &'static str = "mount";
    type Reply = Vec<Mounted>;
}

/// Unmounts one filesystem, or all.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Unmount {
    /// The filesystem's name or its mountpoint; `None` unmounts all.
    pub target: Option<String>,
    /// Although it is in use.
    pub force: bool,
}

impl Action for Unmount {
    const NAME: &'static str = "unmount";
    type Reply = Vec<Mounted>;
}

/// Lists what is mounted.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct ListMounts {}

impl Action for ListMounts {
    const NAME: &'static str = "mounts";
    type Reply = Vec<Mounted>;
}
