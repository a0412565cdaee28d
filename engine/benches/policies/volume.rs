//! The traces as reads of a volume, one block each, without read-ahead.
//!
//! The blocks of a trace are numbered anew, in the order of their first reads, so that they fill a volume.
//! Each has 128 KiB and is compressed; the cache has memory for as many of them as `blocks` says, the
//! indirect blocks included.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use device::{MemoryDevice, block_on};
use engine::cache::ArcCache;
use engine::tunables;
use ondisk::vdev_config::PoolState;

use super::support;
use super::traces::traces;

const BLOCK_BYTES: u64 = 128 << 10;
/// Room for all blocks of a trace, which take two sectors each.
const DEVICE_BYTES: usize = 4 << 30;

/// Writes the traces to `dir`, and prints the share of their reads that is answered from memory.
pub fn read_traces(dir: &Path, sizes: &[usize]) {
    tunables::ZFS_PREFETCH_DISABLE.set(1).expect("it may be set");
    let traces: Vec<(&str, Vec<u64>)> =
        traces().into_iter().map(|(name, trace)| (name, numbered(trace))).collect();
    let most = traces.iter().flat_map(|(_, trace)| trace.iter().max()).max().map_or(0, |last| last + 1);
    println!("\na volume of {most} blocks of {BLOCK_BYTES} bytes\n");
    println!("{:<8} {:>6}  {:>6}", "trace", "blocks", "volume");
    for (name, trace) in &traces {
        let bytes: Vec<u8> = trace.iter().flat_map(|block| block.to_le_bytes()).collect();
        std::fs::write(dir.join(format!("{name}.trace")), bytes).expect("a file in CENOTE_TRACES");
    }
    for size in sizes {
        let cache = Arc::new(ArcCache::new(*size as u64 * BLOCK_BYTES));
        let pool = support::pool(Arc::new(MemoryDevice::new("disk", DEVICE_BYTES)), Arc::clone(&cache));
        let volume = support::volume(&pool, most, BLOCK_BYTES, "lz4", content);
        let mut into = vec![0; 512];
        for (name, trace) in &traces {
            pool.flush_cache();
            let before = cache.arcstats().demand_data_misses;
            for block in trace {
                block_on(volume.read_at(block * BLOCK_BYTES, &mut into)).expect("a read");
            }
            let missed = (cache.arcstats().demand_data_misses - before) as f64 / trace.len() as f64;
            println!("{name:<8} {size:>6}  {:>6.1}", 100.0 - 100.0 * missed);
        }
        drop(volume);
        block_on(pool.close(PoolState::Exported)).expect("an export");
    }
}

/// The same trace with blocks that are numbered without gaps.
fn numbered(trace: Vec<u64>) -> Vec<u64> {
    let mut numbers = HashMap::new();
    let mut number = |block| {
        let next = numbers.len() as u64;
        *numbers.entry(block).or_insert(next)
    };
    trace.into_iter().map(&mut number).collect()
}

/// A word of noise in each 512 bytes.
fn content(block: u64) -> Vec<u8> {
    let mut bytes = vec![0; BLOCK_BYTES as usize];
    for (number, sector) in bytes.chunks_exact_mut(512).enumerate() {
        let word = (block + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) + number as u64;
        sector[..8].copy_from_slice(&word.to_le_bytes());
    }
    bytes
}
