//! A server with a few exports on a socket of its own.

use std::{
    collections::BTreeMap,
    net::{SocketAddr, TcpListener},
    ops::Range,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread::{self, JoinHandle},
};

use device::{Device, FileDevice, IoBuf, MemoryDevice, OpenOptions};
use server::{
    block::{Caller, Export, ExportError, Exports, Extent, FailureKind, Limits, Listed, Unopened},
    nbd::{self, Tls},
    runtime::Shards,
};
use tempfile::TempDir;
use tokio::{net::UnixListener, sync::oneshot};

/// What the blocks of `pattern` repeat over: nothing that a block size divides.
const PERIOD_BYTES: usize = 251;

/// Content in which every place is different from its neighbours.
pub fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|index| (index % PERIOD_BYTES) as u8 ^ (index >> 12) as u8).collect()
}

/// A device as an export.
pub struct DeviceExport {
    device: Arc<dyn Device>,
    holes: Vec<Range<u64>>,
    bad: Range<u64>,
    writes: Option<Arc<Writes>>,
}

/// What a writable export was asked to.
#[derive(Debug, Default)]
pub struct Writes {
    /// Writes, trims and zeroes that were to be stable.
    pub stable: AtomicUsize,
    pub flushes: AtomicUsize,
    pub trims: AtomicUsize,
}

impl DeviceExport {
    pub fn new(device: impl Device + 'static) -> Self {
        Self { device: Arc::new(device), holes: Vec::new(), bad: 0..0, writes: None }
    }

    pub fn with_writes(self, writes: &Arc<Writes>) -> Self {
        Self { writes: Some(Arc::clone(writes)), ..self }
    }

    /// A disk in a file that can be written.
    pub fn in_writable_file(path: &Path, len: usize) -> Self {
        std::fs::write(path, vec![0; len]).unwrap();
        Self::new(OpenOptions::read_write().open(path).unwrap())
    }

    async fn change(&self, offset: u64, bytes: &[u8], stable: bool) -> Result<(), ExportError> {
        let writes = self.writes.as_ref().expect("a writable export");
        writes.stable.fetch_add(usize::from(stable), Ordering::Relaxed);
        let end = offset + bytes.len() as u64;
        let sectors = offset / 512 * 512..end.next_multiple_of(512);
        let failed =
            |error: device::IoError| ExportError { kind: FailureKind::Io, message: error.to_string() };
        let read = self.device.read(sectors.start, (sectors.end - sectors.start) as usize).await;
        let mut data = read.map_err(failed)?;
        data[(offset - sectors.start) as usize..][..bytes.len()].copy_from_slice(bytes);
        self.device.write(sectors.start, data).await.map_err(failed)?;
        Ok(())
    }

    /// Answered in the first poll.
    pub fn in_memory(content: Vec<u8>) -> Self {
        Self::new(MemoryDevice::with_content("<memory>", content))
    }

    /// Answered by the shard's ring.
    pub fn in_file(path: &Path, content: &[u8]) -> Self {
        std::fs::write(path, content).unwrap();
        Self::new(FileDevice::open(path).unwrap())
    }

    pub fn with_holes(self, holes: Vec<Range<u64>>) -> Self {
        Self { holes, ..self }
    }

    /// Reads that touch the range fail.
    pub fn with_bad_range(self, bad: Range<u64>) -> Self {
        Self { bad, ..self }
    }
}

impl Export for DeviceExport {
    fn size_bytes(&self) -> u64 {
        self.device.size_bytes()
    }

    fn block_bytes(&self) -> u32 {
        16384
    }

    fn is_writable(&self) -> bool {
        self.writes.is_some()
    }

    async fn write(&self, offset: u64, data: IoBuf, stable: bool) -> Result<(), ExportError> {
        self.change(offset, &data, stable).await
    }

    async fn trim(&self, offset: u64, len_bytes: u64, stable: bool) -> Result<(), ExportError> {
        if let Some(writes) = &self.writes {
            writes.trims.fetch_add(1, Ordering::Relaxed);
        }
        self.change(offset, &vec![0; len_bytes as usize], stable).await
    }

    async fn write_zeroes(
        &self,
        offset: u64,
        len_bytes: u64,
        _allocate: bool,
        stable: bool,
    ) -> Result<(), ExportError> {
        self.change(offset, &vec![0; len_bytes as usize], stable).await
    }

    async fn flush(&self) -> Result<(), ExportError> {
        if let Some(writes) = &self.writes {
            writes.flushes.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    async fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), ExportError> {
        if offset < self.bad.end && offset + into.len() as u64 > self.bad.start {
            return Err(ExportError { kind: FailureKind::Io, message: "block 3 is damaged".into() });
        }
        let read = self.device.read(offset, into.len()).await;
        let data = read.map_err(|error| ExportError { kind: FailureKind::Io, message: error.to_string() })?;
        device::copy(into, &data);
        Ok(())
    }

    async fn extent(&self, offset: u64) -> Result<Extent, ExportError> {
        if let Some(hole) = self.holes.iter().find(|hole| hole.contains(&offset)) {
            return Ok(Extent { len_bytes: hole.end - offset, is_hole: true });
        }
        let next = self.holes.iter().map(|hole| hole.start).filter(|start| *start > offset).min();
        // In short pieces, as a tree of blocks has them: the server joins them.
        let len_bytes = (next.unwrap_or(u64::MAX) - offset).min(4096);
        Ok(Extent { len_bytes, is_hole: false })
    }
}

/// Exports by name.
#[derive(Default)]
pub struct Named(BTreeMap<String, Arc<DeviceExport>>);

impl Named {
    pub fn with(mut self, name: &str, export: DeviceExport) -> Self {
        self.0.insert(name.to_owned(), Arc::new(export));
        self
    }
}

impl Exports for Named {
    type Export = DeviceExport;

    async fn listed(&self, _: Caller<'_>) -> Vec<Listed> {
        self.0.keys().map(Listed::to_all).collect()
    }

    async fn open(&self, name: &str, _: Caller<'_>) -> Result<Arc<DeviceExport>, Unopened> {
        self.0.get(name).cloned().ok_or(Unopened::Unknown)
    }
}

/// A running server. Stops when dropped.
pub struct Served {
    pub directory: TempDir,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Served {
    pub fn start(exports: impl FnOnce(&Path) -> Named) -> Self {
        Self::start_with(exports, |_| None, Limits::default())
    }

    /// Of any kind of exports, within limits.
    pub fn start_limited<X: Exports>(exports: X, limits: Limits) -> Self {
        Self::start_with(|_| exports, |_| None, limits)
    }

    /// Over TCP too, with TLS only.
    pub fn start_secured(
        exports: impl FnOnce(&Path) -> Named,
        tls: impl FnOnce(&Path) -> Tls,
    ) -> (Self, SocketAddr) {
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = tcp.local_addr().unwrap();
        (Self::start_with(exports, |directory| Some((tcp, tls(directory))), Limits::default()), address)
    }

    fn start_with<X: Exports>(
        exports: impl FnOnce(&Path) -> X,
        tcp: impl FnOnce(&Path) -> Option<(TcpListener, Tls)>,
        limits: Limits,
    ) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let exports = Arc::new(exports(directory.path()));
        let tcp = tcp(directory.path());
        let listener = std::os::unix::net::UnixListener::bind(directory.path().join("nbd")).unwrap();
        listener.set_nonblocking(true).unwrap();
        let (stop, stopped) = oneshot::channel();
        let thread = thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let listener = UnixListener::from_std(listener).unwrap();
                let shards = Arc::new(Shards::start().unwrap());
                let on_tcp = async {
                    let Some((tcp, tls)) = tcp else { return std::future::pending().await };
                    tcp.set_nonblocking(true)?;
                    let tcp = tokio::net::TcpListener::from_std(tcp)?;
                    let tcp = server::listening::Listener::of("NBD", tcp, Some(tls))?;
                    match nbd::serve_tcp(tcp, Arc::clone(&exports), Arc::clone(&shards), limits.clone()).await {}
                };
                tokio::select! {
                    served = nbd::serve_unix(listener, Arc::clone(&exports), Arc::clone(&shards), limits.clone()) => panic!("{served:?}"),
                    served = on_tcp => { let served: std::io::Result<()> = served; panic!("{served:?}") }
                    _ = stopped => {}
                }
            });
        });
        Self { directory, stop: Some(stop), thread: Some(thread) }
    }

    pub fn socket(&self) -> PathBuf {
        self.directory.path().join("nbd")
    }

    pub fn uri(&self, name: &str) -> String {
        format!("nbd+unix:///{name}?socket={}", self.socket().display())
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        drop(self.stop.take());
        if self.thread.take().unwrap().join().is_err() && !thread::panicking() {
            panic!("the server panicked");
        }
    }
}
