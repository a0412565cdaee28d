//! Where volumes are served beside the socket of NBD, as the daemon is told when it starts.

use std::path::PathBuf;

use tokio::net::TcpListener;

use crate::{iscsi, nbd};

/// Where volumes are served over TCP.
#[derive(Debug)]
pub struct TcpEndpoint {
    /// The socket.
    pub listener: TcpListener,
    /// Nothing is served without it where it is given.
    pub tls: Option<nbd::Tls>,
}

/// Where volumes are served by iSCSI.
#[derive(Debug)]
pub struct IscsiEndpoint {
    /// The socket.
    pub listener: TcpListener,
    /// Nothing is served without a proof where they are given.
    pub secrets: Option<iscsi::Secrets>,
}

/// Where volumes are served beside the Unix socket.
#[derive(Debug, Default)]
pub struct Endpoints {
    /// NBD over TCP.
    pub tcp: Option<TcpEndpoint>,
    /// iSCSI.
    pub iscsi: Option<IscsiEndpoint>,
    /// The folder of the sockets for vhost-user-blk.
    pub vhost_user: Option<PathBuf>,
}
