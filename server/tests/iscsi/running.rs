//! A daemon that serves volumes by NBD and iSCSI. Tests of other kinds take this file along.

use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use device::block_on;
use server::api::ExportPool;
use server::daemon::{Daemon, Endpoints};
use server::listening::Listener;
use server::runtime::Shards;
use server::socket;
use tokio::sync::oneshot;

/// The socket of NBD in a daemon's folder.
pub const NBD_SOCKET: &str = "nbd.sock";

/// A running daemon. Exports its pools and ends when dropped.
pub struct RunningDaemon {
    pub daemon: Arc<Daemon>,
    pub iscsi: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl RunningDaemon {
    /// Serves by NBD in this folder, by iSCSI, and for virtual machines where a folder is given for that.
    pub fn start(place: &Path, vhost_user: Option<PathBuf>) -> Self {
        let daemon = Arc::new(Daemon::default());
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let iscsi = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel();
        let (serving, path) = (Arc::clone(&daemon), place.join(NBD_SOCKET));
        let thread = thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let socket = socket::listen(&path).await.unwrap();
                let listener = tokio::net::TcpListener::from_std(listener).unwrap();
                let iscsi = Some(Listener::of("iSCSI", listener, None).unwrap());
                let others = Endpoints { iscsi, vhost_user, ..Endpoints::default() };
                let shards = Arc::new(Shards::start().unwrap());
                tokio::select! {
                    ended = serving.serve_volumes(socket, others, shards) => panic!("{ended:?}"),
                    _ = stopped => {}
                }
            });
        });
        Self { daemon, iscsi, stop: Some(stop), thread: Some(thread) }
    }
}

impl Drop for RunningDaemon {
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
