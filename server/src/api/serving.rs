//! Requests about the daemon itself and what it serves.

use std::net::SocketAddr;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Action, Declaration, Delegated, Effects, Listed, Part, Role, WaitingRequest};

/// Asks who answers.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
pub struct Hello {}

/// The daemon's answer to [`Hello`].
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct DaemonInfo {
    /// Version of the program.
    pub version: String,
    /// Process id.
    pub pid: u32,
    /// Names of the open pools.
    pub pools: Vec<String>,
    /// Unix socket of the NBD exports.
    pub nbd_socket: Option<PathBuf>,
    /// TCP address of the NBD exports, where asked for.
    pub nbd_address: Option<SocketAddr>,
}

impl Action for Hello {
    const DECLARED: Declaration = Declaration::reads(
        "hello",
        Part::Daemon,
        Role::Viewer,
        "Says which daemon answers: version, process, open pools, NBD sockets",
    );
    const DELEGATED: Delegated<Self> = Delegated::Never;
    type Reply = DaemonInfo;
}

/// One volume, or snapshot of one, that is served, or would be if it could be read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ServedVolume {
    /// Export name: the dataset's name.
    pub name: String,
    /// Size in bytes; 0 while it cannot be read.
    pub size_bytes: u64,
    /// Block size in bytes; 0 while it cannot be read.
    pub block_bytes: u32,
    /// Why clients are refused: its encryption key is not loaded. Without a place where they connect then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unavailable: Option<String>,
    /// Where a client connects, as an NBD URI. `None` while the daemon serves no volumes.
    pub uri: Option<String>,
    /// The same over TCP, for each address where that was asked for.
    pub tcp_uris: Vec<String>,
    /// Where iSCSI initiators find it, for each portal.
    pub iscsi_uris: Vec<String>,
    /// The socket for virtual machines, where that was asked for.
    pub vhost_user_socket: Option<PathBuf>,
}

/// Asks how volumes are shared.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ListShares {
    /// Volumes, or what they are below; without names all. Snapshots only by their own names.
    pub names: Vec<String>,
}

impl Action for ListShares {
    const DECLARED: Declaration = Declaration::reads(
        "share-list",
        Part::Volumes,
        Role::Operator,
        "Which protocols serve volumes, to whom, and where, and requests that take long",
    )
    .in_words("show the shares of", "names");
    const DELEGATED: Delegated<Self> = Delegated::Never;
    type Reply = Listed<VolumeShares>;
}

/// How a volume is shared.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct VolumeShares {
    /// The volume.
    pub name: String,
    /// The protocols.
    pub through: Vec<SharedThrough>,
    /// Why the property is not understood. Then no protocol serves the volume.
    pub fault: Option<String>,
    /// Requests of its clients that are under way for more than 10 s.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waiting: Vec<WaitingRequest>,
}

/// How a protocol serves a volume.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SharedThrough {
    /// `nbd`, `iscsi` or `vhost-user`.
    pub protocol: String,
    /// Where clients find it; none while the daemon does not listen for the protocol.
    pub uris: Vec<String>,
    /// The initiators that may have it; all if empty.
    pub initiators: Vec<String>,
    /// The addresses and networks from which clients may come; all if empty.
    pub addresses: Vec<String>,
    /// Bytes of a sector as clients are told, where the protocol has sectors.
    pub sector_bytes: u32,
    /// The percentage of the room beyond which clients are told, where the protocol has that.
    pub threshold_percent: u8,
    /// Why it is not served all the same.
    pub fault: Option<String>,
    /// What the daemon waits for before it listens for the protocol everywhere where it is to.
    #[serde(default)]
    pub not_listening: Vec<String>,
}

/// Lists the volumes that are served, and those that would be if their encryption keys were loaded.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
pub struct ListVolumes {}

impl Action for ListVolumes {
    const DECLARED: Declaration = Declaration::reads(
        "volume-list",
        Part::Volumes,
        Role::Operator,
        "Lists the volumes that are served, with their URIs, and those whose encryption keys are not loaded",
    );
    const DELEGATED: Delegated<Self> = Delegated::Never;
    type Reply = Vec<ServedVolume>;
}

/// Exports every pool and ends the daemon.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
pub struct Shutdown {}

impl Action for Shutdown {
    const DECLARED: Declaration = Declaration::changes(
        "shutdown",
        Part::Daemon,
        Role::Admin,
        Effects::POOLS,
        "Exports every pool and ends the daemon",
    )
    .on_this_machine();
    const DELEGATED: Delegated<Self> = Delegated::Never;
    type Reply = ();
}
