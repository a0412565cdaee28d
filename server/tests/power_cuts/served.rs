//! A daemon that serves the volumes of a given pool by every protocol.

use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use device::block_on;
use engine::pool::live::LivePool;
use server::api::{CreateDataset, ExportPool};
use server::daemon::{Daemon, Endpoints, IscsiEndpoint};
use server::runtime::Shards;
use server::socket;
use tempfile::TempDir;
use tokio::sync::oneshot;

use crate::support::POOL;

/// A running daemon. Exports the pool and ends when dropped.
pub struct Served {
    folder: TempDir,
    pub iscsi: SocketAddr,
    daemon: Arc<Daemon>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Served {
    /// Serves the pool, with new volumes of these names and this size.
    pub fn start<const N: usize>(pool: &Arc<LivePool>, volumes: [&str; N], bytes: u64) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let daemon = Arc::new(Daemon::default());
        block_on(daemon.adopt(Arc::clone(pool))).unwrap();
        for name in volumes {
            let volume = CreateDataset {
                name: format!("{POOL}/{name}"),
                volume_bytes: Some(bytes),
                sparse: true,
                properties: vec![("compression".into(), "off".into()), ("volblocksize".into(), "16K".into())],
                ..CreateDataset::default()
            };
            block_on(daemon.create_dataset(volume)).unwrap();
        }
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let iscsi = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel();
        let (serving, place) = (Arc::clone(&daemon), folder.path().to_owned());
        let thread = thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let socket = socket::listen(&place.join("nbd.sock")).await.unwrap();
                let listener = tokio::net::TcpListener::from_std(listener).unwrap();
                let iscsi = Some(IscsiEndpoint { listener, secrets: None });
                let others = Endpoints { tcp: None, iscsi, vhost_user: Some(place.join("vu")) };
                let shards = Arc::new(Shards::start().unwrap());
                tokio::select! {
                    ended = serving.serve_volumes(socket, others, shards) => panic!("{ended:?}"),
                    _ = stopped => {}
                }
            });
        });
        Self { folder, iscsi, daemon, stop: Some(stop), thread: Some(thread) }
    }

    pub fn nbd(&self) -> PathBuf {
        self.folder.path().join("nbd.sock")
    }

    pub fn vhost_user(&self, volume: &str) -> PathBuf {
        self.folder.path().join(format!("vu/{POOL}/{volume}.sock"))
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let all = ExportPool { all: true, force: true, ..ExportPool::default() };
        let exported = block_on(self.daemon.export(all));
        drop(self.stop.take());
        let ended = self.thread.take().map(JoinHandle::join);
        if !thread::panicking() {
            exported.unwrap();
            ended.unwrap().unwrap();
        }
    }
}
