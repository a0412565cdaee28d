//! What pools on object stores cost: requests, bytes and money, and how fast they are, on a store in memory
//! with the latency and the throughput of S3 (`model=s3-standard`: 25 ms to the first byte of a read, 35 ms
//! for a write, 80 MB/s for one request).
//!
//!     cargo bench -p cenote --bench objects
//!
//! | part | what is measured |
//! |---|---|
//! | requests | what the store is asked for each MiB that a client writes, deletes or reads, through a pool |
//! | streams | reads in order through a pool, cold and warm, beside the store's own `GET` |
//! | amplification | bytes written for each byte of random overwrites at 80 % full, in steady state, by the device alone; time is simulated |
//!
//! The pool has a small cache in memory (64 MiB), and a cache device in memory where the row says so.

use std::cell::Cell;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use device::{Device, MemoryDevice, block_on};
use engine::cache::ArcCache;
use engine::dsl::Dsl;
use engine::dsl::edit::{NewContents, NewDataset, create};
use engine::env::System;
use engine::pool::live::{Layout, LivePool, NewLeaf, NewPool, NewTop, Surroundings, default_features};
use engine::txg::Limits;
use engine::vdev::Class;
use engine::zpl::live::{NewKind, NewNode, WriteOptions};
use engine::zpl::{LiveZpl, ZplOptions};
use engine::zvol::LiveZvol;
use futures_util::StreamExt;
use futures_util::stream::{self, FuturesUnordered};
use objects::bucket::{Bucket, MemoryBucket, ModelledBucket, Requests, StoreModel};
use objects::{Mode, ObjectDevice, Options};
use ondisk::ObjsetId;
use ondisk::vdev_config::PoolState;
use tokio::runtime::Builder;
use tokio::task::LocalSet;

/// As in the product.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const DEVICE_BYTES: u64 = 2 << 30;
const VOLUME_BYTES: u64 = 256 << 20;
const ARC_BYTES: u64 = 64 << 20;
const CACHE_DEVICE_BYTES: usize = 1 << 30;
const RANDOM_WRITES: u64 = 20_000;
const RANDOM_READS: u64 = 2_000;
const FILES: u64 = 5_000;
const SMALL: u64 = 8 << 10;
const LARGE: u64 = 128 << 10;
const FILE_BYTES: u64 = 4 << 10;
/// Requests of the client at once.
const DEPTH: usize = 32;
/// `GET`s of the store alone, at once.
const STREAMS: usize = 10;

fn main() {
    let model = StoreModel::find("s3-standard").expect("a model");
    println!("requests for each MiB of the client, bytes for each of its bytes, dollars for 10^12 bytes:");
    println!("  {:34} {:>8} {:>8} {:>8} {:>8} {:>9}", "", "PUT", "GET", "written", "read", "dollars");
    for has_cache in [false, true] {
        let bed = Bed::new(model, has_cache);
        bed.requests();
        if !has_cache {
            bed.streams();
        }
        bed.end();
    }
    println!("write amplification of random overwrites of 8 KiB at 80 % full, 10 times the set:");
    for (name, segment_bytes, device_bytes) in
        [("segments of 1 MiB, 512 MiB", 1 << 20, 512 << 20), ("segments of 16 MiB, 1 GiB", 16 << 20, 1 << 30)]
    {
        amplification(name, segment_bytes, device_bytes, model);
    }
}

/// A pool on a store.
struct Bed {
    pool: Arc<LivePool>,
    bucket: Arc<ModelledBucket>,
    has_cache: bool,
}

impl Bed {
    fn new(model: StoreModel, has_cache: bool) -> Self {
        let bucket = Arc::new(ModelledBucket::new(Arc::new(MemoryBucket::default()), model));
        let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(objects::create(&*bucket, DEVICE_BYTES, &Options::default())).expect("a device");
        let of = Arc::clone(&bucket) as Arc<dyn Bucket>;
        let device = ObjectDevice::open(of, Mode::Write, Options::default()).expect("opens");
        let leaf = |device: Arc<dyn Device>, path: &str| NewLeaf {
            device,
            path: path.into(),
            is_file: true,
            whole_disk: false,
        };
        let cache_device = || leaf(Arc::new(MemoryDevice::new("/cache", CACHE_DEVICE_BYTES)), "/cache");
        let new = NewPool {
            name: "bench".into(),
            tops: vec![NewTop {
                layout: Layout::Single,
                class: Class::Normal,
                leaves: vec![leaf(Arc::new(device), "/store")],
            }],
            spares: Vec::new(),
            l2cache: if has_cache { vec![cache_device()] } else { Vec::new() },
            ashift: Some(12),
            version: ondisk::pool_version::FEATURES,
            features: default_features(),
            properties: Vec::new(),
            root_properties: vec![("compression".into(), "off".into())],
            altroot: None,
            command: None,
        };
        let cache = Arc::new(ArcCache::new(ARC_BYTES));
        let surroundings = Surroundings {
            env: Arc::new(System),
            limits: Limits::beside(&cache),
            cache: Some(cache),
            host: (1, "bench".into()),
        };
        let pool = block_on(LivePool::create(new, surroundings)).expect("a pool");
        pool.start().expect("a thread");
        Self { pool, bucket, has_cache }
    }

    fn dataset(&self, name: &str, contents: NewContents, properties: &[(&str, String)]) -> ObjsetId {
        let properties = properties.iter().map(|(name, value)| ((*name).to_owned(), value.clone()));
        let new = NewDataset { name: format!("bench/{name}"), contents, properties: properties.collect() };
        block_on(self.pool.change(move |s| async move { create(&s, &new).await })).expect("a dataset")
    }

    fn volume(&self, name: &str, block: u64) -> Arc<LiveZvol> {
        let contents = NewContents::Volume { size: VOLUME_BYTES, sparse: true };
        let id = self.dataset(name, contents, &[("volblocksize", block.to_string())]);
        block_on(self.pool.volume(id)).expect("opens")
    }

    fn commit(&self) {
        block_on(self.pool.txgs().wait_synced(self.pool.txgs().open_txg())).expect("a commit");
    }

    /// Does it, commits it, and shows what the store was asked.
    fn row(&self, name: &str, client_bytes: u64, work: impl FnOnce()) {
        let (before, began) = (self.bucket.requests(), Instant::now());
        work();
        self.commit();
        let asked = self.bucket.requests().since(before);
        let name = if self.has_cache { format!("{name}, L2ARC") } else { name.to_owned() };
        show(&name, client_bytes, asked, self.bucket.model());
        println!("  {:34} {:.1} MB/s", "", client_bytes as f64 / 1e6 / began.elapsed().as_secs_f64());
    }

    fn write(&self, volume: &LiveZvol, offsets: impl Iterator<Item = u64>, bytes: u64) {
        let mut random = fastrand::Rng::with_seed(1);
        let noise: Vec<u8> = (0..bytes / 4).flat_map(|_| random.u64(..).to_le_bytes()).collect();
        block_on(async {
            let mut flying = FuturesUnordered::new();
            for (number, offset) in offsets.enumerate() {
                let from = number * 8 % bytes as usize;
                flying.push(volume.write_at(offset, &noise[from..from + bytes as usize], false));
                if flying.len() >= DEPTH {
                    flying.next().await.transpose().expect("a write");
                }
            }
            while let Some(written) = flying.next().await {
                written.expect("a write");
            }
        });
    }

    fn read(&self, volume: &LiveZvol, offsets: impl Iterator<Item = u64>, bytes: u64) {
        block_on(
            stream::iter(offsets)
                .map(async |offset| {
                    let mut into = vec![0; bytes as usize];
                    volume.read_at(offset, &mut into).await.expect("a read");
                })
                .buffer_unordered(DEPTH)
                .for_each(async |()| {}),
        );
    }

    fn requests(&self) {
        let mut random = fastrand::Rng::with_seed(2);
        let mut places = |count: u64| -> Vec<u64> {
            (0..count).map(|_| random.u64(..VOLUME_BYTES / SMALL) * SMALL).collect()
        };
        let small = self.volume("small", SMALL);
        self.write(&small, (0..VOLUME_BYTES / SMALL).map(|at| at * SMALL), SMALL);
        self.commit();
        let all = places(RANDOM_WRITES);
        self.row("8 KiB random writes", RANDOM_WRITES * SMALL, || self.write(&small, all.into_iter(), SMALL));
        let large = self.volume("large", LARGE);
        self.row("128 KiB writes in order", VOLUME_BYTES, || {
            self.write(&large, (0..VOLUME_BYTES / LARGE).map(|at| at * LARGE), LARGE);
        });
        let zpl = self.files();
        let root = zpl.zpl().root();
        let name = |number: u64| format!("file-{number}").into_bytes();
        self.row("files of 4 KiB", FILES * FILE_BYTES, || {
            let node = NewNode { kind: NewKind::Regular, mode: 0o640, umask: 0, uid: 7, gid: 8 };
            let mut random = fastrand::Rng::with_seed(3);
            for number in 0..FILES {
                let bytes: Vec<u8> = (0..FILE_BYTES).map(|_| random.u8(..)).collect();
                block_on(async {
                    let file = zpl.create(root, &name(number), &node).await.expect("a file");
                    zpl.write(file, 0, &bytes, &WriteOptions::default()).await.expect("a write");
                });
            }
        });
        self.row("the same deleted", FILES * FILE_BYTES, || {
            (0..FILES).for_each(|number| block_on(zpl.unlink(root, &name(number))).expect("deleted"));
        });
        let all = places(RANDOM_READS);
        self.row("8 KiB random reads", RANDOM_READS * SMALL, || {
            self.read(&small, all.iter().copied(), SMALL);
        });
        self.row("the same again", RANDOM_READS * SMALL, || self.read(&small, all.iter().copied(), SMALL));
    }

    fn files(&self) -> Arc<LiveZpl> {
        self.dataset("files", NewContents::Filesystem, &[]);
        block_on(async {
            let dsl = Dsl::open(&self.pool.view()).await.expect("opens");
            let head = dsl.find("bench/files").await.expect("found");
            let dataset = self.pool.dataset(head.objset_id()).await.expect("opens");
            let opened =
                LiveZpl::open(self.pool.txgs(), &dataset.objset, &dataset.zil, ZplOptions::default()).await;
            opened.expect("opens")
        })
    }

    /// Reads in order, beside the store's own throughput.
    fn streams(&self) {
        let own = self.own_throughput();
        println!("streams: the store alone, {STREAMS} GETs of 16 MiB at once: {own:.0} MB/s");
        let volume = self.volume("stream", LARGE);
        self.write(&volume, (0..VOLUME_BYTES / LARGE).map(|at| at * LARGE), LARGE);
        self.commit();
        // What was written just now is in the cache in memory.
        let other = self.volume("other", LARGE);
        self.write(&other, (0..VOLUME_BYTES / LARGE).map(|at| at * LARGE), LARGE);
        self.commit();
        let rate = |of: &dyn Fn(), bytes: u64| {
            let began = Instant::now();
            of();
            bytes as f64 / 1e6 / began.elapsed().as_secs_f64()
        };
        let in_order = |bytes: u64, piece: u64| {
            rate(&|| self.read(&volume, (0..bytes / piece).map(|at| at * piece), piece), bytes)
        };
        let cold = in_order(VOLUME_BYTES, 1 << 20);
        println!("  cold, 1 MiB, 32 at once: {cold:.0} MB/s, {:.0} % of that", cold / own * 100.0);
        in_order(32 << 20, 1 << 20);
        let warm = in_order(32 << 20, 1 << 20);
        println!("  warm: {warm:.0} MB/s");
    }

    fn own_throughput(&self) -> f64 {
        const COUNT: usize = 40;
        const BYTES: usize = 16 << 20;
        let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            self.bucket.put("own", Bytes::from(vec![0; BYTES])).await.expect("a write");
            let began = Instant::now();
            let get = async |_| self.bucket.get_all("own", BYTES as u64).await.expect("a read");
            stream::iter(0..COUNT).map(get).buffer_unordered(STREAMS).for_each(async |_| {}).await;
            (COUNT * BYTES) as f64 / 1e6 / began.elapsed().as_secs_f64()
        })
    }

    fn end(self) {
        block_on(self.pool.close(PoolState::Exported)).expect("an export");
    }
}

fn show(name: &str, client_bytes: u64, asked: Requests, model: StoreModel) {
    let mib = client_bytes as f64 / f64::from(1 << 20);
    let share = |bytes: u64| bytes as f64 / client_bytes as f64;
    let dollars = model.prices.of_requests(asked.puts, asked.gets) / client_bytes as f64 * 1e12;
    println!(
        "  {name:34} {:8.3} {:8.3} {:8.2} {:8.2} {dollars:9.2}",
        asked.puts as f64 / mib,
        asked.gets as f64 / mib,
        share(asked.put_bytes),
        share(asked.got_bytes),
    );
}

/// Overwrites pieces of 8 KiB at random until what is written for each byte does not change any more.
fn amplification(name: &str, segment_bytes: usize, device_bytes: u64, model: StoreModel) {
    let runtime = Builder::new_current_thread().enable_time().start_paused(true).build().expect("a runtime");
    let puts = Cell::new(0);
    LocalSet::new().block_on(&runtime, async {
        let bucket = Arc::new(ModelledBucket::new(Arc::new(MemoryBucket::default()), model));
        let options = Options { segment_bytes, patience: Duration::from_secs(3600), ..Options::default() };
        objects::create(&*bucket, device_bytes, &options).await.expect("a device");
        let core = objects::open(Arc::clone(&bucket) as Arc<dyn Bucket>, options).await.expect("opens");
        let pieces = device_bytes * 8 / 10 / SMALL;
        let data = Bytes::from(vec![7; SMALL as usize]);
        for piece in 0..pieces {
            core.write(piece * SMALL, data.clone()).await.expect("a write");
        }
        core.flush().await.expect("a flush");
        let mut random = fastrand::Rng::with_seed(4);
        let mut rounds = Vec::new();
        for _ in 0..10 {
            let (before, asked) = (core.counts(), bucket.requests());
            for number in 0..pieces {
                core.write(random.u64(..pieces) * SMALL, data.clone()).await.expect("a write");
                // A group of the pool: 50 MiB.
                if number % 6400 == 0 {
                    core.flush().await.expect("a flush");
                }
            }
            core.settle().await;
            let (after, asked) = (core.counts(), bucket.requests().since(asked));
            let written = (after.written_bytes - before.written_bytes) as f64;
            puts.set(asked.puts);
            rounds.push((
                (after.moved_bytes - before.moved_bytes) as f64 / written,
                asked.put_bytes as f64 / written,
                asked.got_bytes as f64 / written,
            ));
        }
        let shown: Vec<String> = rounds.iter().map(|(moved, ..)| format!("{moved:.2}")).collect();
        println!("  {name}: moved for each byte, by rounds: {}", shown.join(" "));
        let (live, total) = core.space();
        if let Some((_, put, got)) = rounds.last() {
            println!(
                "    last round: {put:.2} written and {got:.2} read for a byte, {:.2} PUT for a MiB; kept: \
                 {:.2} of what is needed",
                puts.get() as f64 / (pieces * SMALL) as f64 * f64::from(1 << 20),
                total as f64 / live as f64
            );
        }
    });
}
