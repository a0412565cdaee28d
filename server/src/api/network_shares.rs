//! Requests about filesystems that are shared with a network.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Action, ApiError, Declaration, Delegated, Effects, Need, Part, Role};

/// A protocol by which filesystems are shared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ShareProtocol {
    /// The daemon serves it.
    Nfs,
    /// Samba serves it.
    Smb,
}

/// Shares one filesystem again, or all that their properties say are shared.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ShareFilesystems {
    /// The filesystem; `None` for all.
    pub dataset: Option<String>,
    /// Only by this protocol.
    pub protocol: Option<ShareProtocol>,
}

/// The result of sharing, or of ending that.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
pub struct SharesChanged {
    /// The filesystems.
    pub done: Vec<String>,
    /// Those that cannot be shared, with reasons. If one was asked for by name, that is the request's error.
    pub failed: Vec<ApiError>,
    /// Things that a user may not expect, each a sentence.
    pub warnings: Vec<String>,
}

impl Action for ShareFilesystems {
    const DECLARED: Declaration = Declaration::changes(
        "share",
        Part::Mounts,
        Role::Operator,
        Effects::SETTINGS,
        "Shares one filesystem with the network, or all whose properties say so",
    )
    .in_words("share", "dataset");
    const DELEGATED: Delegated<Self> = Delegated::Needs("`share`, for one filesystem", |request| {
        let needs = vec![request.dataset.as_ref().map_or(Need::Never, |name| Need::on("share", name))];
        Ok((request, needs))
    });
    type Reply = SharesChanged;
}

/// Ends the sharing of one filesystem, or of all, until they are shared again or the pool is imported again.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct UnshareFilesystems {
    /// The filesystem or its mountpoint; `None` for all.
    pub target: Option<String>,
    /// Only by this protocol.
    pub protocol: Option<ShareProtocol>,
}

impl Action for UnshareFilesystems {
    const DECLARED: Declaration = Declaration::changes(
        "unshare",
        Part::Mounts,
        Role::Operator,
        Effects::SETTINGS,
        "Ends the sharing of one filesystem with the network, or of all",
    )
    .in_words("unshare", "target");
    const DELEGATED: Delegated<Self> =
        Delegated::Needs("`share`, for one filesystem by its name", |request| {
            let name = request.target.as_ref().filter(|target| !target.starts_with('/'));
            let needs = vec![name.map_or(Need::Never, |name| Need::on("share", name))];
            Ok((request, needs))
        });
    type Reply = SharesChanged;
}

/// Lists what is shared by NFS, and the clients.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
pub struct ListNfs {}

impl Action for ListNfs {
    const DECLARED: Declaration = Declaration::reads(
        "nfs-list",
        Part::Mounts,
        Role::Operator,
        "Which filesystems are shared by NFS, with whom and where, and the clients",
    );
    const DELEGATED: Delegated<Self> = Delegated::Never;
    type Reply = NfsListing;
}

/// The answer to [`ListNfs`].
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
pub struct NfsListing {
    /// Where NFS is served; nowhere where the daemon was not asked to.
    pub addresses: Vec<SocketAddr>,
    /// What is waited for before it is served everywhere where it is to be.
    pub waiting: Vec<String>,
    /// The filesystems with the property.
    pub shares: Vec<NfsShare>,
    /// The clients, by address.
    pub clients: Vec<NfsClient>,
    /// What clients asked for since the daemon started.
    pub procedures: Vec<NfsProcedure>,
    /// Bytes that clients read since then.
    pub read_bytes: u64,
    /// Bytes that clients wrote since then.
    pub written_bytes: u64,
}

/// The requests of a procedure of NFS.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct NfsProcedure {
    /// Its name.
    pub name: String,
    /// Requests that were answered.
    pub requests: u64,
    /// Those that were answered with an error.
    pub errors: u64,
}

/// A filesystem with the property `sharenfs`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct NfsShare {
    /// Its name.
    pub dataset: String,
    /// Where clients find it: its mountpoint.
    pub path: PathBuf,
    /// The options that count.
    pub options: String,
    /// Why it is not served: `zfs unshare` ended it, or an option cannot be honoured.
    pub fault: Option<String>,
}

/// A client of NFS.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct NfsClient {
    /// Where it comes from.
    pub address: IpAddr,
    /// Its connections now.
    pub connections: usize,
    /// The directories that it mounted, as far as the daemon knows since its start.
    pub mounts: Vec<String>,
    /// Its requests.
    pub requests: u64,
    /// Bytes that it read.
    pub read_bytes: u64,
    /// Bytes that it wrote.
    pub written_bytes: u64,
    /// When it asked for something last, in seconds since 1970.
    pub last_seconds: u64,
}
