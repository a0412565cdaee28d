//! What encryption costs: encrypted volumes beside a plain one of the same pool, in one run, as ratios.
//!
//!     CENOTE_BENCH_DIR=DIR cargo bench -p cenote --bench crypt
//!
//! In `DIR` (a file system that takes direct I/O, with 12 GiB free; a folder in memory shows what the
//! processor alone does) a pool on one file gets for each suite, and without one, a volume with blocks of
//! 128 KiB and one with blocks of 8 KiB. In each round every cell of the table is measured once, with the
//! volumes in turns, so that what else the machine does falls on all of them. The table has the medians of
//! rounds, of operations a second, and what these are of the plain volume's.
//!
//! | row | what is measured |
//! |---|---|
//! | 128K sequential writes | all of the volume, then a commit |
//! | 128K sequential reads | the same, with nothing in the cache |
//! | 8K random writes | each block of the volume once, then a commit |
//! | 8K random reads | the same, with nothing in the cache |
//!
//! | variable | meaning |
//! |---|---|
//! | `CENOTE_BENCH_MIB` | the size of each volume; 512 without it |
//! | `CENOTE_BENCH_ROUNDS` | rounds; 5 without it |

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use device::{OpenOptions, block_on};
use engine::cache::ArcCache;
use engine::dsl::edit::{NewContents, NewDataset, create_with_key};
use engine::dsl::keys::{KeyFormat, UserKey};
use engine::env::System;
use engine::pool::live::{Layout, LivePool, NewLeaf, NewPool, NewTop, Surroundings, default_features};
use engine::txg::Limits;
use engine::vdev::Class;
use engine::zvol::LiveZvol;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use ondisk::vdev_config::PoolState;

/// As in the product.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const MIB: u64 = 1 << 20;
/// Transfers under way.
const DEPTH: usize = 8;
/// The first one is what the others are compared with.
const SUITES: [&str; 7] =
    ["off", "aes-128-gcm", "aes-192-gcm", "aes-256-gcm", "aes-128-ccm", "aes-192-ccm", "aes-256-ccm"];
const SEQUENTIAL_BYTES: u64 = 128 << 10;
const RANDOM_BYTES: u64 = 8 << 10;

/// What is measured of a volume.
#[derive(Clone, Copy)]
struct Row {
    name: &'static str,
    block_bytes: u64,
    is_read: bool,
}

const ROWS: [Row; 4] = [
    Row { name: "128K sequential writes", block_bytes: SEQUENTIAL_BYTES, is_read: false },
    Row { name: "128K sequential reads", block_bytes: SEQUENTIAL_BYTES, is_read: true },
    Row { name: "8K random writes", block_bytes: RANDOM_BYTES, is_read: false },
    Row { name: "8K random reads", block_bytes: RANDOM_BYTES, is_read: true },
];

fn main() {
    let Some(dir) = std::env::var_os("CENOTE_BENCH_DIR").map(PathBuf::from) else {
        println!("set CENOTE_BENCH_DIR to a directory with 12 GiB free");
        return;
    };
    let number = |name: &str| std::env::var(name).ok()?.parse::<u64>().ok();
    let volume_bytes = number("CENOTE_BENCH_MIB").unwrap_or(512) * MIB;
    let rounds = number("CENOTE_BENCH_ROUNDS").unwrap_or(5);
    let bed = Bed::new(&dir, volume_bytes);
    // By row and suite.
    let mut rates = vec![vec![Vec::new(); SUITES.len()]; ROWS.len()];
    for round in 0..rounds {
        for (row, rates) in ROWS.iter().zip(&mut rates) {
            for turn in 0..SUITES.len() {
                // Each suite is the first one once.
                let suite = (turn + round as usize) % SUITES.len();
                rates[suite].push(bed.measure(*row, suite, round));
            }
        }
    }
    print(rates);
    bed.end();
}

fn print(rates: Vec<Vec<Vec<f64>>>) {
    print!("{:24}", "operations a second");
    SUITES.iter().for_each(|suite| print!(" {suite:>18}"));
    println!();
    for (row, rates) in ROWS.iter().zip(rates) {
        print!("{:24}", row.name);
        let medians: Vec<f64> = rates.into_iter().map(median).collect();
        for rate in &medians {
            print!(" {rate:>11.0} ({:.2})", rate / medians[0]);
        }
        println!();
    }
}

fn median(mut all: Vec<f64>) -> f64 {
    all.sort_by(f64::total_cmp);
    all.get(all.len() / 2).copied().unwrap_or(0.0)
}

/// The pool, with the volumes of each suite: of large blocks and of small ones.
struct Bed {
    path: PathBuf,
    pool: Arc<LivePool>,
    volumes: Vec<[Arc<LiveZvol>; 2]>,
    noise: Vec<u8>,
}

impl Bed {
    fn new(dir: &Path, volume_bytes: u64) -> Self {
        let path = dir.join("crypt-disk");
        let _ = std::fs::remove_file(&path);
        let file = std::fs::File::create(&path).expect("a file in CENOTE_BENCH_DIR");
        // What is overwritten is free some groups later.
        file.set_len(volume_bytes * 2 * SUITES.len() as u64 * 3 / 2 + 1024 * MIB).expect("room");
        let device = Arc::new(OpenOptions::read_write().open(&path).expect("opens"));
        let leaf = NewLeaf { device, path: path.clone(), is_file: true, whole_disk: false };
        let new = NewPool {
            name: "bench".into(),
            tops: vec![NewTop { layout: Layout::Single, class: Class::Normal, leaves: vec![leaf] }],
            spares: Vec::new(),
            l2cache: Vec::new(),
            ashift: Some(12),
            version: ondisk::pool_version::FEATURES,
            features: default_features(),
            properties: Vec::new(),
            root_properties: vec![("compression".into(), "off".into())],
            altroot: None,
            command: None,
        };
        let cache = Arc::new(ArcCache::new(256 << 20));
        let surroundings = Surroundings {
            env: Arc::new(System),
            limits: Limits::beside(&cache),
            cache: Some(cache),
            host: (1, "bench".into()),
        };
        let pool = block_on(LivePool::create(new, surroundings)).expect("a pool");
        pool.start().expect("a thread");
        let volumes = SUITES.iter().map(|suite| {
            [SEQUENTIAL_BYTES, RANDOM_BYTES].map(|block| volume(&pool, suite, block, volume_bytes))
        });
        let volumes = volumes.collect();
        let mut random = fastrand::Rng::with_seed(1);
        let noise = (0..MIB / 8).flat_map(|_| random.u64(..).to_le_bytes()).collect();
        Self { path, pool, volumes, noise }
    }

    /// Operations a second.
    fn measure(&self, row: Row, suite: usize, round: u64) -> f64 {
        let Row { block_bytes, is_read, .. } = row;
        let is_random = block_bytes == RANDOM_BYTES;
        let volume = &self.volumes[suite][usize::from(is_random)];
        let mut blocks: Vec<u64> = (0..volume.size() / block_bytes).collect();
        if is_random {
            fastrand::Rng::with_seed(round).shuffle(&mut blocks);
        }
        self.pool.flush_cache();
        let began = Instant::now();
        block_on(async {
            let mut flying = FuturesUnordered::new();
            for block in &blocks {
                flying.push(self.transfer(volume, *block, block_bytes, is_read));
                if flying.len() >= DEPTH {
                    flying.next().await;
                }
            }
            while flying.next().await.is_some() {}
            if !is_read {
                self.pool.txgs().wait_synced(self.pool.txgs().open_txg()).await.expect("a commit");
            }
        });
        blocks.len() as f64 / began.elapsed().as_secs_f64()
    }

    async fn transfer(&self, volume: &LiveZvol, block: u64, bytes: u64, is_read: bool) {
        let (offset, length) = (block * bytes, bytes as usize);
        if is_read {
            let mut into = vec![0; length];
            volume.read_at(offset, &mut into).await.expect("a read");
        } else {
            let from = (block * 512) as usize % (self.noise.len() - length);
            volume.write_at(offset, &self.noise[from..from + length], false).await.expect("a write");
        }
    }

    fn end(self) {
        drop(self.volumes);
        block_on(self.pool.close(PoolState::Exported)).expect("an export");
        let _ = std::fs::remove_file(self.path);
    }
}

fn volume(pool: &Arc<LivePool>, suite: &str, block_bytes: u64, size: u64) -> Arc<LiveZvol> {
    let mut new = NewDataset {
        name: format!("bench/{suite}-{block_bytes}"),
        contents: NewContents::Volume { size, sparse: true },
        properties: vec![("volblocksize".into(), block_bytes.to_string())],
    };
    let mut key = None;
    if suite != SUITES[0] {
        let encryption = [("encryption", suite), ("keyformat", "raw")];
        new.properties.extend(encryption.map(|(name, value)| (name.into(), value.into())));
        key = Some(Arc::new(UserKey::new(KeyFormat::Raw, &[7; 32], None, &System).expect("a key")));
    }
    let create = pool.change(move |s| async move { create_with_key(&s, &new, key.as_ref()).await });
    let id = block_on(create).expect("a volume");
    block_on(pool.volume(id)).expect("opens")
}
