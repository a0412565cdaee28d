//! What a cached read costs in process, and how much of that is what only watches: the sampler of `what-if`,
//! and the streams of read-ahead.
//!
//!     cargo bench -p cenote-engine --bench cached
//!
//! 4 KiB are read here and there from a volume that is in memory, on one thread; with read-ahead, and in
//! turns with it switched off (`zfs_prefetch_disable`). The same blocks are noted in a sampler of their own.
//! Printed are the processor time of a read and of both parts, what they are of a read, and the share of one
//! core that they take at 100,000 reads a second. A large set is followed by a smaller share of its blocks
//! than a small one.

use std::sync::Arc;

use device::{MemoryDevice, block_on};
use engine::Bookmark;
use engine::cache::ArcCache;
use engine::cache::what_if::{Read, WhatIf};
use engine::tunables;
use ondisk::vdev_config::PoolState;

use self::random::Random;

mod support;

#[path = "support/random.rs"]
mod random;

const ROUNDS: usize = 9;
const READS: u64 = 200_000;
const BLOCK_BYTES: u64 = 4096;

fn main() {
    println!(
        "{:>8}  {:>8} {:>10} {:>10} {:>8} {:>14}",
        "blocks", "read", "of sampler", "of streams", "together", "at 100 kIOPS"
    );
    for blocks in [10_000, 100_000, 400_000] {
        let cache = Arc::new(ArcCache::new(4 << 30));
        let pool = support::pool(Arc::new(MemoryDevice::new("disk", 4 << 30)), cache);
        let content = |block: u64| vec![block as u8; BLOCK_BYTES as usize];
        let volume = support::volume(&pool, blocks, BLOCK_BYTES, "off", content);
        let volume = block_on(volume.reader()).expect("a reader");
        let mut into = vec![0; BLOCK_BYTES as usize];
        for block in 0..blocks {
            block_on(volume.read_at(block * BLOCK_BYTES, &mut into)).expect("a read");
        }
        let sampler = WhatIf::default();
        let note = |block: u64| {
            let at = Bookmark { objset: 54, object: 1, level: 0, blkid: block };
            let read = || Read { bytes: BLOCK_BYTES, stored_bytes: BLOCK_BYTES, is_metadata: false };
            sampler.note(1, &at, read);
        };
        let mut random = Random(1);
        (0..10 * READS).for_each(|_| note(random.next() % blocks));
        let (mut reads, mut streamless, mut notes) = (Vec::new(), Vec::new(), Vec::new());
        for round in 0..2 * ROUNDS {
            let is_off = round % 2 == 1;
            tunables::ZFS_PREFETCH_DISABLE.set(is_off.into()).expect("a switch");
            let taken = each(|| {
                let block = random.next() % blocks;
                block_on(volume.read_at(block * BLOCK_BYTES, &mut into)).expect("a read");
            });
            if is_off { &mut streamless } else { &mut reads }.push(taken);
            notes.push(each(|| note(random.next() % blocks)));
        }
        let (read, streamless, noted) = (median(reads), median(streamless), median(notes));
        let streams = read - streamless;
        let together = noted + streams;
        println!(
            "{blocks:>8}  {read:>5.0} ns {noted:>7.0} ns {streams:>7.0} ns {:>6.1} % {:>12.2} %",
            together / read * 100.0,
            together * 100_000.0 / 1e9 * 100.0
        );
        drop(volume);
        block_on(pool.close(PoolState::Exported)).expect("an export");
    }
}

/// The processor time of one, in nanoseconds.
fn each(mut work: impl FnMut()) -> f64 {
    let began = processor_ns();
    (0..READS).for_each(|_| work());
    (processor_ns() - began) / READS as f64
}

/// What this thread has had of a processor.
fn processor_ns() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("a system that counts it");
    text.split(' ').next().and_then(|word| word.parse().ok()).expect("a number")
}

fn median(mut all: Vec<f64>) -> f64 {
    all.sort_by(f64::total_cmp);
    all.get(all.len() / 2).copied().unwrap_or(0.0)
}
