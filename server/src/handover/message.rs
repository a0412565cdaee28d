//! What the two daemons say.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::api::Mounted;
use crate::gate::Told;

/// The form of the hand-over. It counts up with each change that the other side has to know of: daemons of
/// different forms refuse each other.
pub const FORM: u32 = 1;

/// A message. Descriptors and bytes come beside some.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Message {
    /// The new daemon asks for everything.
    TakeOver {
        /// Its version, for a person.
        version: String,
        /// Also what is in use and cannot be handed over without an error for its users.
        force: bool,
    },
    /// The old one goes on, for this reason.
    Refused {
        /// For a person.
        why: String,
    },
    /// A listening socket, which is beside.
    Listener {
        /// Of which service.
        service: String,
        /// Where, as it was asked for.
        place: String,
    },
    /// A client, whose socket and bytes are beside.
    Client(Told),
    /// A pool that was open.
    Pool(OpenedAs),
    /// A mounted filesystem, whose connection with the kernel is beside.
    Mount(MountTold),
    /// The key of an encryption root, which is beside.
    Key {
        /// The guid of the pool.
        pool: u64,
        /// The encryption root.
        root: String,
    },
    /// How the service manager is told.
    Manager(Manager),
    /// That is all, and the pools are closed.
    Given,
    /// The new daemon has the pools open, and owns everything.
    Took,
    /// The new daemon could not, and has no pool open.
    Failed {
        /// For a person.
        why: String,
    },
}

/// How a pool was open, so that it is opened in the same way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OpenedAs {
    /// Its name.
    pub name: String,
    /// Its guid.
    pub guid: u64,
    /// Where its devices were, and their guids.
    pub devices: Vec<(u64, PathBuf)>,
    /// It was only read.
    pub is_read_only: bool,
    /// Where its mountpoints begin.
    pub altroot: Option<PathBuf>,
    /// The file that it is kept in, where that is not the daemon's own.
    pub cachefile: Option<String>,
    /// Options for each mount.
    pub mount_options: Vec<String>,
    /// What was mounted, the deepest first.
    pub mounts: Vec<Mounted>,
    /// What is not shared until that is said. Daemons that do not know it say and hear nothing of it, as long
    /// as there is none.
    #[serde(default, skip_serializing_if = "Unshared::is_empty")]
    pub unshared: Unshared,
}

/// Filesystems that `zfs unshare` took away from a network.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Unshared {
    /// From clients of NFS: their objects.
    pub nfs: Vec<u64>,
    /// From Samba: their names.
    pub smb: Vec<String>,
}

impl Unshared {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.nfs.is_empty() && self.smb.is_empty()
    }
}

/// The number of an open handle; the file's object, whether it is read in secret, and may be mapped.
pub type ToldHandle = (u64, (u64, bool, bool));

/// A mounted filesystem, whose session with the kernel goes on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MountTold {
    /// How it is mounted.
    pub mounted: Mounted,
    /// Directories that were made for it, the deepest first.
    pub made: Vec<PathBuf>,
    /// The path without links.
    pub at: PathBuf,
    /// The number of its filesystem.
    pub device: u64,
    /// The most bytes of a request, as was agreed with the kernel.
    pub data_bytes: u64,
    /// POSIX ACLs were agreed on.
    pub has_posix_acls: bool,
    /// The only user who may look in, unless all may.
    pub only_for: Option<u32>,
    /// Open files: handle, file, whether it is read in secret, whether programs may have mapped it.
    pub handles: Vec<ToldHandle>,
    /// The number of the next handle.
    pub next_handle: u64,
    /// The object sets of its snapshots, in their places.
    pub snapshots: Vec<u64>,
}

impl MountTold {
    /// Whether it is of a dataset of this pool.
    pub fn is_of(&self, pool: &str) -> bool {
        self.mounted.dataset.split(['/', '@']).next() == Some(pool)
    }
}

/// How a service manager is told how the daemon is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manager {
    /// Its socket, as the environment has it.
    pub socket: Option<String>,
    /// How often it wants to hear a sign of life.
    pub watchdog_micros: Option<u64>,
}
