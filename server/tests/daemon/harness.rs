//! A daemon of the test's own, with a golden pool.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use device::block_on;
use server::api::{ExportPool, ImportPool, Imported};
use server::daemon::{Daemon, Endpoints};
use server::http::{self, ApiSocket};
use server::runtime::Shards;
use server::socket;
use tempfile::TempDir;
use testkit::GoldenPool;
use tokio::sync::oneshot;

/// The golden pool `name`; `None` where `CENOTE_SKIP` lists `golden`.
pub fn golden(name: &str) -> Option<GoldenPool> {
    testkit::golden::pool(name)
}

/// Whether tests that mount are to be left out. Without that, a missing `/dev/fuse` fails them.
pub fn skips_fuse() -> bool {
    testkit::skipped("fuse", "mounts")
}

/// The request that imports what is in `dir`, read-only, below `altroot`.
pub fn import_request(pool: &str, dir: &Path, altroot: &Path) -> ImportPool {
    ImportPool {
        pool: Some(pool.to_owned()),
        search: vec![dir.to_owned()],
        altroot: Some(altroot.to_owned()),
        properties: vec![("readonly".into(), "on".into())],
        ..ImportPool::default()
    }
}

/// A daemon, and a directory for its mounts and sockets. Everything goes down with it.
pub struct Running {
    pub daemon: Arc<Daemon>,
    pub place: TempDir,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Running {
    /// Starts it, serving volumes on a socket.
    pub fn start() -> Self {
        Self::start_as(Daemon::default())
    }

    /// The same with a daemon that was made otherwise.
    pub fn start_as(daemon: Daemon) -> Self {
        Self::start_with(daemon, |_| Endpoints::default())
    }

    /// The same, with volumes served elsewhere, too.
    pub fn start_with(daemon: Daemon, endpoints: impl FnOnce(&Path) -> Endpoints) -> Self {
        let place = tempfile::tempdir().unwrap();
        let endpoints = endpoints(place.path());
        let daemon = Arc::new(daemon);
        let (stop, stopped) = oneshot::channel();
        let (ready, is_ready) = std::sync::mpsc::channel();
        let serving = Arc::clone(&daemon);
        let path = place.path().join("nbd.sock");
        let thread = thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let socket = socket::listen(&path).await.unwrap();
                let shards = Arc::new(Shards::start().unwrap());
                let serve = serving.serve_volumes(socket, endpoints, shards);
                let mut serve = std::pin::pin!(serve);
                tokio::select! { biased; ended = &mut serve => panic!("{ended:?}"), () = async {} => {} }
                ready.send(()).unwrap();
                tokio::select! { ended = serve => panic!("{ended:?}"), _ = stopped => {} }
            });
        });
        is_ready.recv().unwrap();
        Self { daemon, place, stop: Some(stop), thread: Some(thread) }
    }

    /// Answers requests over a socket, until that is to end.
    pub fn serve_api(&self) -> ServedApi {
        let socket = self.place.path().join("api.sock");
        let (stop, stopped) = oneshot::channel::<()>();
        let (ready, is_ready) = std::sync::mpsc::channel();
        let (daemon, path) = (Arc::clone(&self.daemon), socket.clone());
        let thread = thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let socket = ApiSocket::bind(&path).await.unwrap();
                ready.send(()).unwrap();
                http::serve(socket, daemon, async move { drop(stopped.await) }).await.unwrap();
            });
        });
        is_ready.recv().unwrap();
        ServedApi { socket, stop, thread }
    }

    /// Where mountpoints begin.
    pub fn altroot(&self) -> PathBuf {
        self.place.path().join("mnt")
    }

    /// Imports a golden pool.
    pub fn import(&self, golden: &GoldenPool) -> Imported {
        let request = import_request(&golden.name, &golden.dir, &self.altroot());
        block_on(self.daemon.import(request)).unwrap()
    }
}

/// An API server of a running daemon.
pub struct ServedApi {
    pub socket: PathBuf,
    stop: oneshot::Sender<()>,
    thread: JoinHandle<()>,
}

impl ServedApi {
    /// Ends it, whatever clients it has.
    pub fn end(self) {
        self.stop.send(()).unwrap();
        self.thread.join().unwrap();
    }
}

impl Drop for Running {
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
