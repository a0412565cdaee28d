//! A daemon that serves the volumes of a given pool by every protocol.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use device::block_on;
use engine::pool::live::LivePool;
use server::api::CreateDataset;
use tempfile::TempDir;

use crate::running::{NBD_SOCKET, RunningDaemon};
use crate::support::POOL;

/// A running daemon. Exports the pool and ends when dropped.
pub struct Served {
    running: RunningDaemon,
    folder: TempDir,
}

impl Served {
    /// Serves the pool, with new volumes of these names and this size.
    pub fn start<const N: usize>(pool: &Arc<LivePool>, volumes: [&str; N], bytes: u64) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let running = RunningDaemon::start(folder.path(), Some(folder.path().join("vu")));
        block_on(running.daemon.adopt(Arc::clone(pool))).unwrap();
        for name in volumes {
            let volume = CreateDataset {
                name: format!("{POOL}/{name}"),
                volume_bytes: Some(bytes),
                sparse: true,
                properties: vec![("compression".into(), "off".into()), ("volblocksize".into(), "16K".into())],
                ..CreateDataset::default()
            };
            block_on(running.daemon.create_dataset(volume)).unwrap();
        }
        Self { running, folder }
    }

    pub fn nbd(&self) -> PathBuf {
        self.folder.path().join(NBD_SOCKET)
    }

    pub fn iscsi(&self) -> SocketAddr {
        self.running.iscsi
    }

    pub fn vhost_user(&self, volume: &str) -> PathBuf {
        self.folder.path().join(format!("vu/{POOL}/{volume}.sock"))
    }
}
