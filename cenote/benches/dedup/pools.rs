//! Pools of the benchmark, and what is done in them.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use device::{Device, OpenOptions, block_on};
use engine::cache::ArcCache;
use engine::dsl::Dsl;
use engine::dsl::edit::{NewContents, NewDataset, create};
use engine::dsl::pool_space::DedupSpace;
use engine::pool::live::{LivePool, Syncing};
use engine::vdev::Class;
use engine::zpl::LiveZpl;
use engine::zpl::live::{NewKind, NewNode, WriteOptions};
use engine::zvol::LiveZvol;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use ondisk::ObjsetId;
use ondisk::vdev_config::PoolState;

use super::{DEPTH, KNOWN_BLOCKS, support};

const DISK: &str = "bench-disk";
/// The size of that file, if not another is wanted.
pub const DISK_BYTES: u64 = 16 << 30;
const FILE_BLOCK: u64 = 128 << 10;

/// What is written.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Contents {
    /// Data that never occurred before.
    New,
    /// Data that are stored already.
    Known,
}

impl Contents {
    pub fn name(self) -> &'static str {
        match self {
            Self::New => "new data",
            Self::Known => "known data",
        }
    }

    /// The content of the write numbered `number`.
    pub fn of(self, number: u64) -> u64 {
        match self {
            Self::New => number,
            Self::Known => number.wrapping_mul(0x9e37_79b9) % KNOWN_BLOCKS,
        }
    }
}

/// A block with this content, which does not compress.
pub fn block(content: u64, bytes: u64) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(content);
    let mut block = vec![0; bytes as usize];
    random.fill(&mut block);
    block
}

/// Writes these blocks, each with the content that `content` says.
pub async fn write_all(volume: &LiveZvol, bytes: u64, blocks: Range<u64>, content: impl Fn(u64) -> u64) {
    write_all_of(volume, bytes, blocks, |number| block(content(number), bytes)).await;
}

/// Writes these blocks, each with the bytes that `data` makes for it.
pub async fn write_all_of(volume: &LiveZvol, bytes: u64, blocks: Range<u64>, data: impl Fn(u64) -> Vec<u8>) {
    let mut flying = FuturesUnordered::new();
    for number in blocks {
        let data = data(number);
        flying.push(async move { volume.write_at(number * bytes, &data, false).await });
        if flying.len() >= DEPTH {
            flying.next().await.transpose().expect("a write");
        }
    }
    while let Some(written) = flying.next().await {
        written.expect("a write");
    }
}

/// What users of a volume noticed.
pub struct Foreground {
    /// The 99th percentile of reads, in microseconds.
    pub reads_us: f64,
    /// That of stable writes.
    pub stable_us: f64,
    /// The slowest of all, in milliseconds.
    pub worst_ms: f64,
}

/// Reads and stable writes in turns, for so long or until `is_done`.
pub fn foreground(volume: &LiveZvol, length: Duration, mut is_done: impl FnMut() -> bool) -> Foreground {
    const BYTES: u64 = 8 << 10;
    let mut random = fastrand::Rng::with_seed(3);
    let slots = volume.size() / BYTES;
    let (mut reads, mut writes) = (Vec::new(), Vec::new());
    let began = Instant::now();
    let mut into = vec![0; BYTES as usize];
    while began.elapsed() < length && !is_done() {
        let at = random.u64(..slots) * BYTES;
        let read = Instant::now();
        block_on(volume.read_at(at, &mut into)).expect("a read");
        reads.push(read.elapsed().as_secs_f64());
        random.fill(&mut into);
        let write = Instant::now();
        block_on(volume.write_at(at, &into, true)).expect("a write");
        writes.push(write.elapsed().as_secs_f64());
    }
    let of = |all: &mut Vec<f64>| {
        all.sort_by(f64::total_cmp);
        all.get(all.len() * 99 / 100).copied().unwrap_or(f64::NAN)
    };
    let (reads_us, stable_us) = (of(&mut reads) * 1e6, of(&mut writes) * 1e6);
    let worst = reads.last().into_iter().chain(writes.last()).fold(0.0, |worst: f64, one| worst.max(*one));
    Foreground { reads_us, stable_us, worst_ms: worst * 1e3 }
}

/// A pool on a new file.
pub struct Bed {
    path: PathBuf,
    pool: Arc<LivePool>,
}

/// A filesystem of it.
pub struct Files(Arc<LiveZpl>);

impl Files {
    pub fn remove(&self, name: &str) {
        block_on(self.0.unlink(self.0.zpl().root(), name.as_bytes())).expect("a file");
    }
}

/// A file of `bytes` bytes, without content.
pub fn new_disk(dir: &Path, bytes: u64) -> PathBuf {
    let path = dir.join(DISK);
    let _ = std::fs::remove_file(&path);
    let file = std::fs::File::create(&path).expect("a file in CENOTE_BENCH_DIR");
    file.set_len(bytes).expect("room");
    path
}

impl Bed {
    pub fn new(dir: &Path, arc_bytes: u64) -> Self {
        Self::with(dir, Arc::new(ArcCache::new(arc_bytes)), DISK_BYTES, |device| device)
    }

    /// With this cache, and what `wrap` makes of a file of `disk_bytes`.
    pub fn with(
        dir: &Path,
        cache: Arc<ArcCache>,
        disk_bytes: u64,
        wrap: impl FnOnce(Arc<dyn Device>) -> Arc<dyn Device>,
    ) -> Self {
        let path = new_disk(dir, disk_bytes);
        let device = Arc::new(OpenOptions::read_write().open(&path).expect("opens"));
        let pool = support::pool(wrap(device), cache);
        Self { path, pool }
    }

    /// A pool that is open, on the file in `dir`.
    pub fn of(dir: &Path, pool: Arc<LivePool>) -> Self {
        Self { path: dir.join(DISK), pool }
    }

    pub fn pool(&self) -> &Arc<LivePool> {
        &self.pool
    }

    fn create(&self, name: &str, contents: NewContents, properties: &[(&str, &str)]) -> ObjsetId {
        let properties = properties.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let new = NewDataset { name: name.into(), contents, properties: properties.collect() };
        block_on(self.pool.change(move |s: Syncing| async move { create(&s, &new).await })).expect("created")
    }

    pub fn volume(&self, name: &str, size: u64, block_bytes: u64, dedup: &str) -> Arc<LiveZvol> {
        self.volume_of(name, size, block_bytes, ("lz4", dedup))
    }

    /// The same, with another compression.
    pub fn volume_of(
        &self,
        name: &str,
        size: u64,
        block_bytes: u64,
        (compression, dedup): (&str, &str),
    ) -> Arc<LiveZvol> {
        let block_bytes = block_bytes.to_string();
        let properties = [("volblocksize", &*block_bytes), ("compression", compression), ("dedup", dedup)];
        let id = self.create(name, NewContents::Volume { size, sparse: true }, &properties);
        block_on(self.pool.volume(id)).expect("opens")
    }

    /// A filesystem with one file, which is committed. Each of its blocks occurs once.
    pub fn file(&self, name: &str, file: &str, bytes: u64, dedup: &str) -> Files {
        let id = self.create(name, NewContents::Filesystem, &[("compression", "lz4"), ("dedup", dedup)]);
        let files = block_on(self.pool.filesystem(id)).expect("opens");
        let node = NewNode { kind: NewKind::Regular, mode: 0o644, umask: 0, uid: 0, gid: 0 };
        let root = files.zpl().root();
        let object = block_on(files.create(root, file.as_bytes(), &node)).expect("a file");
        for number in 0..bytes / FILE_BLOCK {
            let data = block(number, FILE_BLOCK);
            let options = WriteOptions::default();
            block_on(files.write(object, number * FILE_BLOCK, &data, &options)).expect("a write");
        }
        self.commit();
        Files(files)
    }

    pub fn commit(&self) {
        let txgs = self.pool.txgs();
        block_on(txgs.wait_synced(txgs.open_txg())).expect("a commit");
    }

    pub fn allocated_bytes(&self) -> u64 {
        self.pool.allocator().space(Class::Normal).allocated_bytes
    }

    /// What the dedup tables take.
    pub fn table(&self) -> DedupSpace {
        let table = async {
            let dsl = Dsl::open(&self.pool.view()).await?;
            Ok::<_, engine::Error>(dsl.pool_space().await?.dedup.clone())
        };
        block_on(table).expect("the pool's space")
    }

    /// Bytes of the ARC that the dedup tables take.
    pub fn cached_table_bytes(&self) -> u64 {
        let bytes = async { Dsl::open(&self.pool.view()).await?.dedup_cached_bytes().await };
        block_on(bytes).expect("the tables in the ARC")
    }

    /// Exports the pool. Its file stays.
    pub fn close(self) {
        block_on(self.pool.close(PoolState::Exported)).expect("an export");
    }

    pub fn end(self) {
        let path = self.path.clone();
        self.close();
        let _ = std::fs::remove_file(path);
    }
}
