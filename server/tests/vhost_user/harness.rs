//! A server with disks in memory.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

use device::IoBuf;
use server::block::{
    Announcer, Caller, Changes, Durability, Export, ExportError, Exports, Extent, Limits, Listed, Stability,
    Unopened,
};
use server::runtime::Shards;
use server::vhost_user;
use tempfile::TempDir;
use tokio::sync::{Semaphore, oneshot};

/// A disk in memory.
pub struct Disk {
    bytes: Mutex<Vec<u8>>,
    is_writable: bool,
    /// Whether it was taken away from its clients.
    pub is_gone: AtomicBool,
    /// The group that writes go to, and the one that is committed.
    pub group: AtomicU64,
    pub committed: AtomicU64,
    /// Which writes are stable when they are answered.
    pub stability: Mutex<Stability>,
    /// Where it is 0, reads and writes wait.
    pub gate: Semaphore,
    /// Writes that came, and those that are done.
    pub begun: AtomicUsize,
    pub writes: AtomicUsize,
    pub stable_writes: AtomicUsize,
    pub flushes: AtomicUsize,
    pub trims: AtomicUsize,
    pub allocated_zeroes: AtomicUsize,
}

impl Disk {
    pub fn new(size: usize, is_writable: bool) -> Arc<Self> {
        Arc::new(Self {
            bytes: Mutex::new(vec![0; size]),
            is_writable,
            is_gone: AtomicBool::new(false),
            group: AtomicU64::new(1),
            committed: AtomicU64::new(0),
            stability: Mutex::default(),
            gate: Semaphore::new(1),
            begun: AtomicUsize::new(0),
            writes: AtomicUsize::new(0),
            stable_writes: AtomicUsize::new(0),
            flushes: AtomicUsize::new(0),
            trims: AtomicUsize::new(0),
            allocated_zeroes: AtomicUsize::new(0),
        })
    }

    /// Has requests wait.
    pub fn close(&self) {
        assert_eq!(self.gate.forget_permits(1), 1);
    }

    pub fn open(&self) {
        self.gate.add_permits(1);
    }

    pub fn resize(&self, size: usize) {
        self.bytes.lock().unwrap().resize(size, 0);
    }

    pub fn bytes(&self, at: usize, len: usize) -> Vec<u8> {
        self.bytes.lock().unwrap()[at..][..len].to_vec()
    }
}

/// One opening of the disks.
pub struct Opened {
    disk: Arc<Disk>,
    number: u64,
    opened_at: u64,
}

impl Export for Opened {
    fn size_bytes(&self) -> u64 {
        let is_gone = self.disk.is_gone.load(Ordering::Relaxed);
        if is_gone { 0 } else { self.disk.bytes.lock().unwrap().len() as u64 }
    }

    fn block_bytes(&self) -> u32 {
        16384
    }

    fn guid(&self) -> u64 {
        0x1234_5678_9abc_def0
    }

    fn is_writable(&self) -> bool {
        self.disk.is_writable
    }

    async fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), ExportError> {
        let _inside = self.disk.gate.acquire().await.unwrap();
        into.copy_from_slice(&self.disk.bytes.lock().unwrap()[offset as usize..][..into.len()]);
        Ok(())
    }

    async fn extent(&self, _: u64) -> Result<Extent, ExportError> {
        Ok(Extent { len_bytes: self.size_bytes(), is_hole: false })
    }

    async fn write(&self, offset: u64, data: IoBuf, stable: bool) -> Result<(), ExportError> {
        self.disk.begun.fetch_add(1, Ordering::Relaxed);
        let _inside = self.disk.gate.acquire().await.unwrap();
        self.disk.bytes.lock().unwrap()[offset as usize..][..data.len()].copy_from_slice(&data);
        self.disk.writes.fetch_add(1, Ordering::Relaxed);
        self.disk.stable_writes.fetch_add(usize::from(stable), Ordering::Relaxed);
        Ok(())
    }

    async fn trim(&self, offset: u64, len: u64, _: bool) -> Result<(), ExportError> {
        self.disk.trims.fetch_add(1, Ordering::Relaxed);
        self.disk.bytes.lock().unwrap()[offset as usize..][..len as usize].fill(0);
        Ok(())
    }

    async fn write_zeroes(&self, offset: u64, len: u64, allocate: bool, _: bool) -> Result<(), ExportError> {
        self.disk.allocated_zeroes.fetch_add(usize::from(allocate), Ordering::Relaxed);
        self.disk.bytes.lock().unwrap()[offset as usize..][..len as usize].fill(0);
        Ok(())
    }

    fn durability(&self) -> Option<Durability> {
        let group = self.disk.group.load(Ordering::Relaxed);
        Some(Durability { opened: self.number, opened_at: self.opened_at, group })
    }

    fn stability(&self) -> Stability {
        *self.disk.stability.lock().unwrap()
    }

    async fn flush(&self) -> Result<(), ExportError> {
        self.disk.flushes.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

/// The disks of a server, by name.
#[derive(Clone, Default)]
pub struct Disks {
    by_name: Arc<Mutex<BTreeMap<String, Arc<Disk>>>>,
    announcer: Announcer,
}

impl Disks {
    pub fn insert(&self, name: &str, disk: Arc<Disk>) {
        self.by_name.lock().unwrap().insert(name.to_owned(), disk);
        self.announcer.announce();
    }

    pub fn rename(&self, from: &str, to: &str) {
        let disk = self.by_name.lock().unwrap().remove(from).unwrap();
        self.insert(to, disk);
    }
}

struct Opening {
    disks: Disks,
    number: u64,
}

static OPENINGS: AtomicU64 = AtomicU64::new(1);

impl Exports for Opening {
    type Export = Opened;

    async fn listed(&self, _: Caller<'_>) -> Vec<Listed> {
        self.disks.by_name.lock().unwrap().keys().map(Listed::to_all).collect()
    }

    async fn open(&self, name: &str, _: Caller<'_>) -> Result<Arc<Opened>, Unopened> {
        let disk = self.disks.by_name.lock().unwrap().get(name).cloned().ok_or(Unopened::Unknown)?;
        let opened_at = disk.committed.load(Ordering::Relaxed);
        Ok(Arc::new(Opened { disk, number: self.number, opened_at }))
    }

    fn changes(&self) -> Changes {
        self.disks.announcer.listen()
    }
}

/// A running server. Stops when dropped, at once.
pub struct Served {
    folder: PathBuf,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Served {
    pub fn start(folder: &Path, disks: &Disks, limits: Limits) -> Self {
        let (stop, stopped) = oneshot::channel();
        let number = OPENINGS.fetch_add(1, Ordering::Relaxed);
        let opening = Arc::new(Opening { disks: disks.clone(), number });
        let served = (folder.to_owned(), vhost_user::Faults::default());
        let thread = thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let shards = Arc::new(Shards::start().unwrap());
                tokio::select! {
                    end = vhost_user::serve_folder(served, opening, shards, limits) => match end {},
                    _ = stopped => {}
                }
            });
        });
        Self { folder: folder.to_owned(), stop: Some(stop), thread: Some(thread) }
    }

    pub fn socket(&self, name: &str) -> PathBuf {
        vhost_user::socket_of(&self.folder, name).unwrap()
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        drop(self.stop.take());
        if self.thread.take().unwrap().join().is_err() && !thread::panicking() {
            panic!("the server failed");
        }
    }
}

/// A server with one disk of so many bytes, `tank/disk`.
pub fn one(size: usize) -> (TempDir, Arc<Disk>, Disks, Served) {
    let folder = TempDir::new().unwrap();
    let disk = Disk::new(size, true);
    let disks = Disks::default();
    disks.insert("tank/disk", Arc::clone(&disk));
    let served = Served::start(folder.path(), &disks, Limits::default());
    (folder, disk, disks, served)
}
