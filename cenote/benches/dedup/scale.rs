//! A large table by simulation: blocks of 4 KiB, whose data no device keeps.
//!
//! The pool is a real one, and all of its metadata are written: the table, its logs, the pointers to the
//! blocks. Only the sectors of the volume's data begin with a mark, and the device leaves them out, so that
//! millions of entries need no more room than the metadata of their blocks.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use device::{Device, IoBuf, IoFuture, OpenOptions, SectorSizes, block_on};
use engine::cache::ArcCache;
use engine::env::System;
use engine::pool::discovery::scan;
use engine::pool::import::{ImportOptions, select};
use engine::pool::live::{LivePool, Surroundings};
use engine::txg::Limits;

use super::Scale;
use super::pools::{Bed, write_all_of};

const BLOCK: u64 = 4096;
const MARK: [u8; 16] = *b"data of a block\0";
/// Where the table is measured: at so many parts of its entries.
const STEPS: u64 = 8;
const PATIENCE: Duration = Duration::from_secs(600);

/// A device that leaves out sectors that begin with [`MARK`].
#[derive(Debug)]
struct WithoutData(Arc<dyn Device>);

impl Device for WithoutData {
    fn path(&self) -> &Path {
        self.0.path()
    }

    fn size_bytes(&self) -> u64 {
        self.0.size_bytes()
    }

    fn sector_sizes(&self) -> SectorSizes {
        self.0.sector_sizes()
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn read(&self, offset: u64, len: usize) -> IoFuture<'_, IoBuf> {
        self.0.read(offset, len)
    }

    fn write(&self, offset: u64, data: IoBuf) -> IoFuture<'_, IoBuf> {
        Box::pin(async move {
            let sectors: Vec<&[u8]> = data.chunks(BLOCK as usize).collect();
            let mut at = 0;
            for run in sectors.chunk_by(|a, b| a.starts_with(&MARK) == b.starts_with(&MARK)) {
                let length = run.iter().map(|sector| sector.len()).sum::<usize>();
                if !run.first().is_some_and(|first| first.starts_with(&MARK)) {
                    self.0.write(offset + at as u64, IoBuf::from(&data[at..at + length])).await?;
                }
                at += length;
            }
            Ok(data)
        })
    }

    fn flush(&self) -> IoFuture<'_, ()> {
        self.0.flush()
    }

    fn discard(&self, offset: u64, len: u64) -> IoFuture<'_, ()> {
        self.0.discard(offset, len)
    }
}

/// A block with this content, which the device leaves out.
fn block(content: u64) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(content);
    let mut block = vec![0; BLOCK as usize];
    random.fill(&mut block);
    block[..MARK.len()].copy_from_slice(&MARK);
    block
}

/// The memory of this process, in bytes.
fn resident_bytes() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: u64 = pages.split(' ').nth(1).and_then(|pages| pages.parse().ok()).unwrap_or(0);
    pages * 4096
}

fn imported(dir: &Path, cache: &Arc<ArcCache>) -> Arc<LivePool> {
    block_on(async {
        let mut found = select(scan(&[dir]).await.expect("a search"), "bench").expect("the pool");
        for candidate in found.candidates.values_mut() {
            let path = PathBuf::from(candidate.device.path());
            candidate.device = Arc::new(OpenOptions::read_write().open(&path).expect("opens"));
        }
        let (limits, env) = (Limits::beside(cache), Arc::new(System));
        let surroundings =
            Surroundings { env, limits, cache: Some(Arc::clone(cache)), host: (1, "bench".into()) };
        let options = ImportOptions { force: true, ..ImportOptions::default() };
        LivePool::import(&found, &options, surroundings).await.expect("an import")
    })
}

/// Waits until a filter knows of new blocks; how long that took.
fn filter_of(pool: &Arc<LivePool>) -> Option<f64> {
    let began = Instant::now();
    while !pool.dedup_counters().has_filter {
        if began.elapsed() > PATIENCE {
            return None;
        }
        let txgs = pool.txgs();
        block_on(txgs.wait_synced(txgs.open_txg())).expect("a commit");
    }
    Some(began.elapsed().as_secs_f64())
}

/// Fills a table, and opens its pool again.
pub fn scale(scale: &Scale) {
    let cache = Arc::new(ArcCache::new(scale.large_arc_bytes));
    let dir = scale.dir.join("scale");
    std::fs::create_dir_all(&dir).expect("a directory in CENOTE_BENCH_DIR");
    let disk_bytes = (2 * scale.entries * BLOCK).max(4 << 30).next_multiple_of(1 << 30);
    let bed = Bed::with(&dir, Arc::clone(&cache), disk_bytes, |device| Arc::new(WithoutData(device)));
    let volume = bed.volume_of("bench/vol", scale.entries * BLOCK, BLOCK, ("off", "on"));
    let before = resident_bytes();
    println!(
        "{:>12} {:>10} {:>9} {:>9} {:>9} {:>9} {:>9}   the ARC has {} MiB",
        "entries",
        "writes/s",
        "disk MiB",
        "ARC MiB",
        "filter MB",
        "memory MB",
        "look-ups",
        scale.large_arc_bytes >> 20
    );
    let step = scale.entries / STEPS;
    let mut found = bed.pool().dedup_counters();
    for part in 0..STEPS {
        let began = Instant::now();
        block_on(write_all_of(&volume, BLOCK, part * step..(part + 1) * step, block));
        bed.commit();
        let rate = step as f64 / began.elapsed().as_secs_f64();
        let (table, now) = (bed.table(), bed.pool().dedup_counters());
        println!(
            "{:>12} {rate:>10.0} {:>9} {:>9} {:>9.1} {:>9.1} {:>8.2}%",
            table.entries,
            table.table_bytes >> 20,
            bed.cached_table_bytes() >> 20,
            now.filter_bytes as f64 / 1e6,
            resident_bytes().saturating_sub(before) as f64 / 1e6,
            100.0 * (now.not_found - found.not_found) as f64 / step as f64,
        );
        found = now;
    }
    drop(volume);
    bed.close();
    let cache = Arc::new(ArcCache::new(scale.large_arc_bytes));
    let began = Instant::now();
    let pool = imported(&dir, &cache);
    pool.start().expect("a thread");
    let opened = began.elapsed().as_secs_f64();
    let filter = filter_of(&pool);
    let bed = Bed::of(&dir, pool);
    println!(
        "import: {opened:.2} s; new blocks need no look-up after {} s more; {} MiB of tables are cached",
        filter.map_or("more than 600".into(), |seconds| format!("{seconds:.1}")),
        bed.cached_table_bytes() >> 20,
    );
    let volume = bed.volume_of("bench/more", step * BLOCK, BLOCK, ("off", "on"));
    let began = Instant::now();
    block_on(write_all_of(&volume, BLOCK, 0..step / 4, |number| block(scale.entries + number)));
    bed.commit();
    println!(
        "writes of new data after the import: {:.0}/s",
        (step / 4) as f64 / began.elapsed().as_secs_f64()
    );
    drop(volume);
    bed.end();
}
