//! NFS as clients see it: through libnfs's programs, and by a client of these tests for what those do not do.

#![allow(clippy::unwrap_used, reason = "a test")]
#![allow(unsafe_code, reason = "system calls under test")]

mod client;
mod hostile;
mod programs;
mod served;
#[allow(dead_code, reason = "tests of commands use the rest")]
#[path = "../commands/session.rs"]
mod session;
mod shares;

use std::fs::File;
use std::net::SocketAddr;

use client::{Client, Handle, User};
use serde_json::Value;
use session::Session;
use tempfile::TempPath;

/// A daemon that serves NFS, with a pool.
pub struct Served {
    session: Session,
    address: SocketAddr,
    disk: TempPath,
}

/// Where a daemon serves NFS.
pub fn address(session: &Session) -> SocketAddr {
    let listing: Value = serde_json::from_str(&session.print(&["nfs", "--json"])).unwrap();
    listing["addresses"][0].as_str().unwrap().parse().unwrap()
}

impl Served {
    /// With the pool `tank`, whose filesystems are below `/nfs-test` for clients, and not mounted.
    pub fn start() -> Self {
        let disk = tempfile::NamedTempFile::new().unwrap().into_temp_path();
        File::create(&disk).unwrap().set_len(512 << 20).unwrap();
        let session = Session::start_serving(&["--nfs", "127.0.0.1:0"]);
        let address = address(&session);
        let path = disk.to_str().unwrap();
        session.print(&["zpool", "create", "-O", "mountpoint=none", "tank", path]);
        Self { session, address, disk }
    }

    /// A filesystem of the pool that is shared so.
    pub fn share(&self, name: &str, options: &str) -> String {
        let (dataset, path) = (format!("tank/{name}"), format!("/nfs-test/{name}"));
        let (mountpoint, sharenfs) = (format!("mountpoint={path}"), format!("sharenfs={options}"));
        let create = ["zfs", "create", "-u", "-o", &mountpoint, "-o", &sharenfs, &dataset];
        self.session.print(&create);
        path
    }

    fn connect(&self, user: User) -> Client {
        Client::connect(self.address, user)
    }

    /// A client of root's, and the root of a new share that root may write.
    pub fn root(&self, name: &str, options: &str) -> (Client, Handle) {
        let path = self.share(name, options);
        let mut client = self.connect(User::root());
        let root = client.mount(&path).unwrap();
        (client, root)
    }

    /// Exports the pool and ends the daemon; one that starts again has the same pool.
    pub fn restart(self) -> Self {
        let Self { session, disk, .. } = self;
        session.print(&["zpool", "export", "tank"]);
        session.stop();
        Self::begin_again(disk)
    }

    /// The same after the daemon was killed.
    pub fn crash(self) -> Self {
        let Self { session, disk, .. } = self;
        session.kill();
        Self::begin_again(disk)
    }

    fn begin_again(disk: TempPath) -> Self {
        let session = Session::start_serving(&["--nfs", "127.0.0.1:0"]);
        session.print(&["zpool", "import", "-f", "-N", "-d", disk.to_str().unwrap(), "tank"]);
        Self { address: address(&session), session, disk }
    }
}
