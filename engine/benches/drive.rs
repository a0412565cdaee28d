//! A volume driven in process, as a program that drives OpenZFS's engine in userspace drives one, so that the
//! engines can be compared without any protocol. `scripts/benchmarks` runs both in turns.
//!
//!     drive create DIR single|mirror|raidz1 VOLBLOCKSIZE COMPRESSION SIZE_MIB FILE...
//!     drive run DIR read|write|mix|sync seq|random|zipf BYTES DEPTH SECONDS SET_BYTES
//!
//! `create` makes a pool on files in `DIR` and writes its volume whole, in order. `run` imports that pool, so
//! that its cache is empty, and keeps `DEPTH` requests under way until the time is over, within the first
//! `SET_BYTES` of the volume. `mix` is 70 reads to 30 writes, and each write of `sync` is stable before it
//! counts. The requests are spread over as many threads as there are processors, as the daemon's are.
//! `ARC_MB` is the budget of the ARC, `RANDPCT` says how much of the data does not compress, in per cent, and
//! with `BESIDE_READ` the set is read once, in order, before. Printed are operations a second up to the end
//! of the commit of the last group, and the processor time of one.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use device::{OpenOptions, block_on};
use engine::cache::ArcCache;
use engine::dsl::Dsl;
use engine::dsl::edit::{NewContents, NewDataset, create};
use engine::env::System;
use engine::pool::discovery;
use engine::pool::import::{ImportOptions, select};
use engine::pool::live::{
    Layout, LivePool, NewLeaf, NewPool, NewTop, Surroundings, Syncing, default_features,
};
use engine::txg::Limits;
use engine::vdev::Class;
use engine::zvol::{LiveReader, LiveZvol};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use ondisk::vdev_config::PoolState;

use self::random::Random;

#[path = "support/random.rs"]
mod random;

/// As in the product.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Of a write while a volume is filled.
const FILL_BYTES: usize = 1 << 20;
/// Writes of a mix, in per cent.
const WRITES_OF_MIX: u64 = 30;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["create", dir, layout, block, compression, mib, ref files @ ..] => {
            let size = mib.parse::<u64>().context("SIZE_MIB")? << 20;
            let pool = made(layout, files)?;
            fill(&pool, size, block, compression, Path::new(dir))
        }
        ["run", dir, kind, pattern, bytes, depth, seconds, set] => {
            let work = Work {
                kind: Kind::parse(kind)?,
                pattern: Pattern::parse(pattern)?,
                bytes: bytes.parse().context("BYTES")?,
                depth: depth.parse().context("DEPTH")?,
                seconds: seconds.parse().context("SECONDS")?,
                set: set.parse().context("SET_BYTES")?,
            };
            work.run(Path::new(dir))
        }
        _ => {
            println!("drive is run by scripts/benchmarks; engine/benches/drive.rs says how");
            Ok(())
        }
    }
}

fn number(name: &str, or: f64) -> f64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(or)
}

fn surroundings() -> Surroundings {
    let cache = Arc::new(ArcCache::new((number("ARC_MB", 256.0) as u64) << 20));
    let limits = Limits::beside(&cache);
    Surroundings { env: Arc::new(System), limits, cache: Some(cache), host: (1, "bench".into()) }
}

fn made(layout: &str, files: &[&str]) -> Result<Arc<LivePool>> {
    let layout = match layout {
        "single" => Layout::Single,
        "mirror" => Layout::Mirror,
        "raidz1" => Layout::Raidz { nparity: 1 },
        _ => bail!("'{layout}' is not a layout"),
    };
    let leaves = files.iter().map(|file| {
        let device = Arc::new(OpenOptions::read_write().open(file)?);
        Ok(NewLeaf { device, path: PathBuf::from(file), is_file: true, whole_disk: false })
    });
    let new = NewPool {
        name: "bench".into(),
        tops: vec![NewTop { layout, class: Class::Normal, leaves: leaves.collect::<Result<_>>()? }],
        spares: Vec::new(),
        l2cache: Vec::new(),
        ashift: Some(12),
        version: ondisk::pool_version::FEATURES,
        features: default_features(),
        properties: Vec::new(),
        root_properties: Vec::new(),
        altroot: None,
        command: None,
    };
    Ok(block_on(LivePool::create(new, surroundings()))?)
}

fn fill(pool: &Arc<LivePool>, size: u64, block: &str, compression: &str, dir: &Path) -> Result<()> {
    let new = NewDataset {
        name: "bench/vol".into(),
        contents: NewContents::Volume { size, sparse: true },
        properties: vec![("volblocksize".into(), block.into()), ("compression".into(), compression.into())],
    };
    let id = block_on(pool.change(move |s: Syncing| async move { create(&s, &new).await }))?;
    pool.start()?;
    block_on(async {
        let volume = pool.volume(id).await?;
        let mut data = Data::new(FILL_BYTES, 1);
        for at in (0..size).step_by(FILL_BYTES) {
            volume.write_at(at, data.next(), false).await?;
        }
        pool.txgs().wait_synced(pool.txgs().open_txg()).await
    })
    .with_context(|| format!("cannot fill the volume of the pool in {}", dir.display()))?;
    Ok(block_on(pool.close(PoolState::Exported))?)
}

fn imported(dir: &Path) -> Result<(Arc<LivePool>, Arc<LiveZvol>)> {
    block_on(async {
        let found = select(discovery::scan(&[dir]).await?, "bench")?.for_writing().await?;
        let options = ImportOptions { force: true, ..Default::default() };
        let pool = LivePool::import(&found, &options, surroundings()).await?;
        let id = Dsl::open(&pool.view()).await?.find("bench/vol").await?.objset_id();
        let volume = pool.volume(id).await?;
        pool.start()?;
        Ok((pool, volume))
    })
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Read,
    Write,
    Mix,
    Sync,
}

impl Kind {
    fn parse(word: &str) -> Result<Self> {
        Ok(match word {
            "read" => Kind::Read,
            "write" => Kind::Write,
            "mix" => Kind::Mix,
            "sync" => Kind::Sync,
            _ => bail!("'{word}' is not a kind of work"),
        })
    }
}

#[derive(Clone, Copy)]
enum Pattern {
    Sequential,
    Random,
    Zipf,
}

impl Pattern {
    fn parse(word: &str) -> Result<Self> {
        Ok(match word {
            "seq" => Pattern::Sequential,
            "random" => Pattern::Random,
            "zipf" => Pattern::Zipf,
            _ => bail!("'{word}' is not a pattern"),
        })
    }
}

/// Where the requests of a lane go.
struct Place {
    pattern: Pattern,
    blocks: u64,
    next: u64,
    random: Random,
}

impl Place {
    /// The number of a block. Zipf is with an exponent of 1, its ranks scattered over the volume.
    fn next(&mut self) -> u64 {
        match self.pattern {
            Pattern::Sequential => {
                self.next += 1;
                (self.next - 1) % self.blocks
            }
            Pattern::Random => self.random.next() % self.blocks,
            Pattern::Zipf => {
                let part = (self.random.next() >> 11) as f64 / (1u64 << 53) as f64;
                let rank = (part * (self.blocks as f64).ln()).exp() as u64;
                rank.wrapping_mul(0x9e37_79b9_7f4a_7c15) % self.blocks
            }
        }
    }
}

/// Bytes to write, of which so many per cent do not compress, and no two pieces are the same.
struct Data {
    bytes: Vec<u8>,
    random: Random,
}

impl Data {
    fn new(bytes: usize, seed: u64) -> Self {
        let mut random = Random(seed);
        let noise = number("RANDPCT", 100.0) as usize;
        let word = |at: usize| if at % 256 * 8 < noise * 20 { random.next() } else { 0 };
        let bytes = (0..bytes / 8).map(word).flat_map(u64::to_le_bytes).collect();
        Self { bytes, random }
    }

    fn next(&mut self) -> &[u8] {
        for word in self.bytes.chunks_mut(512) {
            word[..8].copy_from_slice(&self.random.next().to_le_bytes());
        }
        &self.bytes
    }
}

/// One of the requests that are under way at a time.
struct Lane {
    reader: LiveReader,
    place: Place,
    data: Data,
    into: Vec<u8>,
}

impl Lane {
    async fn step(mut self, kind: Kind) -> engine::error::Result<Self> {
        let at = self.place.next() * self.into.len() as u64;
        let writes = match kind {
            Kind::Read => false,
            Kind::Mix => self.place.random.next() % 100 < WRITES_OF_MIX,
            Kind::Write | Kind::Sync => true,
        };
        if writes {
            self.reader.volume().write_at(at, self.data.next(), kind == Kind::Sync).await?;
        } else {
            self.reader.read_at(at, &mut self.into).await?;
        }
        Ok(self)
    }
}

/// What `run` is asked.
#[derive(Clone, Copy)]
struct Work {
    kind: Kind,
    pattern: Pattern,
    bytes: u64,
    depth: usize,
    seconds: f64,
    set: u64,
}

impl Work {
    fn run(self, dir: &Path) -> Result<()> {
        let (pool, volume) = imported(dir)?;
        if std::env::var_os("BESIDE_READ").is_some() {
            block_on(self.read_all(&volume))?;
        }
        let threads = std::thread::available_parallelism()?.get().min(self.depth);
        let (cpu, began) = (processor_seconds(), Instant::now());
        let counts = std::thread::scope(|scope| {
            let volume = &volume;
            let all: Vec<_> = (0..threads)
                .map(|thread| scope.spawn(move || block_on(self.lanes(volume, thread, threads, began))))
                .collect();
            all.into_iter().map(|one| one.join().expect("a thread that ends")).collect::<Result<Vec<_>>>()
        })?;
        block_on(pool.txgs().wait_synced(pool.txgs().open_txg()))?;
        let (took, done) = (began.elapsed().as_secs_f64(), counts.iter().sum::<u64>() as f64);
        let cpu_us = (processor_seconds() - cpu) * 1e6 / done;
        println!("{{\"iops_counted\":{:.0},\"cpu_us\":{cpu_us:.2}}}", done / took);
        drop(volume);
        Ok(block_on(pool.close(PoolState::Exported))?)
    }

    async fn read_all(self, volume: &Arc<LiveZvol>) -> Result<()> {
        let (reader, mut into) = (volume.reader().await?, vec![0; FILL_BYTES]);
        for at in (0..self.set).step_by(FILL_BYTES) {
            reader.read_at(at, &mut into).await?;
        }
        Ok(())
    }

    /// The lanes of one thread, until the time is over: how many operations.
    async fn lanes(
        self,
        volume: &Arc<LiveZvol>,
        thread: usize,
        threads: usize,
        began: Instant,
    ) -> Result<u64> {
        let blocks = self.set / self.bytes;
        let mut flying = FuturesUnordered::new();
        for number in (thread..self.depth).step_by(threads) {
            let next = number as u64 * (blocks / self.depth as u64);
            let random = Random(number as u64 + 1);
            let lane = Lane {
                reader: volume.reader().await?,
                place: Place { pattern: self.pattern, blocks, next, random },
                data: Data::new(self.bytes as usize, number as u64 + 1),
                into: vec![0; self.bytes as usize],
            };
            flying.push(lane.step(self.kind));
        }
        let (end, mut done) = (Duration::from_secs_f64(self.seconds), 0);
        while let Some(lane) = flying.next().await {
            let lane = lane?;
            done += 1;
            if began.elapsed() < end {
                flying.push(lane.step(self.kind));
            }
        }
        Ok(done)
    }
}

/// Of all threads of this process.
fn processor_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // After the name in parentheses; ticks are hundredths of a second.
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks = |at: usize| fields.get(at).and_then(|field| field.parse::<f64>().ok()).unwrap_or(0.0);
    (ticks(11) + ticks(12)) / 100.0
}
