//! Cache devices. The tunables of the feed's speed, of what is cached, and of what an import finds again have
//! their tests beside those of cache devices (`tests/live/l2arc.rs`).

use std::sync::Arc;
use std::time::Duration;

use device::{IoBuf, block_on};
use engine::cache::arc::Key;
use engine::cache::{ArcCache, Block, Retain};
use engine::dsl::edit::{self, NewContents, NewDataset};
use engine::dsl::with_room;
use engine::inject::{ALWAYS, Fault, Operation};
use engine::pool::live::{Layout, LivePool, NewPool};
use engine::tunables;
use engine::vdev::Class;

use crate::bed::{Bed, MIB, Turn};
use crate::support::{Disks, full, new_pool, objset_of};

/// A pool with a cache device, and data of which nothing is in memory.
fn with_cache_device() -> Bed {
    let disks = Disks::new(256 * MIB);
    let new = NewPool {
        l2cache: vec![disks.leaf("cache")],
        ..new_pool(vec![disks.top(Layout::Single, Class::Normal, "d", 1)], 12)
    };
    let bed = Bed::of(disks, new);
    for at in 0..16 {
        bed.write(at * MIB, MIB);
    }
    bed.commit();
    bed.commit();
    // The device is taken up.
    block_on(bed.pool.feed_l2arc());
    bed
}

/// Reads everything here and there, so that nothing is read ahead.
fn read_all(bed: &Bed) {
    bed.pool.flush_cache();
    let mut into = vec![0; 8192];
    for step in 0..2048 {
        block_on(bed.volume.read_at(step * 1021 % 2048 * 8192, &mut into)).unwrap();
    }
}

fn written(pool: &LivePool) -> u64 {
    pool.pool().l2arc().stats().l2_write_bytes.get()
}

/// Feeds until nothing more is found.
fn fed(bed: &Bed) -> u64 {
    read_all(bed);
    let before = written(&bed.pool);
    for _ in 0..1000 {
        let last = written(&bed.pool);
        block_on(bed.pool.feed_l2arc());
        if written(&bed.pool) == last {
            return last - before;
        }
    }
    panic!("feeding does not end");
}

#[test]
fn blocks_are_looked_for_as_far_from_eviction_as_is_said() {
    let turn = Turn::take();
    turn.set(&tunables::L2ARC_WRITE_MAX, 256 << 10);
    turn.set(&tunables::L2ARC_WRITE_BOOST, 0);
    turn.set(&tunables::L2ARC_HEADROOM, 1);
    turn.set(&tunables::L2ARC_HEADROOM_BOOST, 100);
    let bed = with_cache_device();
    let near = fed(&bed);
    assert!(near <= 2 * MIB, "both ends of the lists: {near}");
    turn.set(&tunables::L2ARC_HEADROOM_BOOST, 800);
    let boosted = near + fed(&bed);
    assert!(boosted >= near + MIB && boosted <= 10 * MIB, "{near} {boosted}");
    turn.set(&tunables::L2ARC_HEADROOM, 0);
    let all = boosted + fed(&bed);
    assert!(all >= 12 * MIB, "of 16 MiB: {near} {boosted} {all}");
    bed.end();
}

#[test]
fn blocks_are_kept_compressed_or_not_as_is_said() {
    let turn = Turn::take();
    let bed = Bed::new();
    let properties = vec![("volblocksize".into(), "16K".into()), ("compression".into(), "lz4".into())];
    let new = NewDataset {
        name: full("packed"),
        contents: NewContents::Volume { size: MIB, sparse: true },
        properties,
    };
    let pool = &bed.pool;
    block_on(pool.change(move |s| async move { edit::create(&s, &new).await })).unwrap();
    let volume = block_on(async { pool.volume(objset_of(pool, "packed").await.unwrap()).await.unwrap() });
    let noise = |at: u64| at.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(31).wrapping_mul(at | 1) >> 56;
    let data: Vec<u8> = (1..=MIB).map(|at| if at % 64 < 24 { noise(at) as u8 } else { 1 }).collect();
    block_on(with_room(pool.txgs(), || volume.write_at(0, &data, false))).unwrap();
    bed.commit();
    // Bytes of blocks as they are kept, and without compression.
    let kept = |is_on| {
        turn.set(&tunables::ZFS_COMPRESSED_ARC_ENABLED, is_on);
        pool.flush_cache();
        let mut bytes = vec![0; MIB as usize];
        block_on(volume.read_at(0, &mut bytes)).unwrap();
        assert!(bytes == data);
        let stats = pool.view().cache().arcstats();
        (stats.compressed_size, stats.uncompressed_size)
    };
    let (compressed, uncompressed) = kept(1);
    assert!(uncompressed >= MIB && compressed < MIB * 3 / 4, "{compressed} {uncompressed}");
    let (compressed, uncompressed) = kept(0);
    assert!(uncompressed >= MIB && compressed == uncompressed, "{compressed} {uncompressed}");
    drop(volume);
    bed.end();
}

/// Hits of metadata, of 3000 reads beside four times as many of data. Both do not fit into the ARC.
fn metadata_hits() -> usize {
    let cache = ArcCache::new(8 * MIB);
    let mut state = 1u64;
    let mut next = |limit: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % limit
    };
    let mut read = |is_metadata: bool| {
        let number = next(if is_metadata { 300 } else { 800 });
        let word = u64::from(is_metadata);
        let key = Key { pool: 0, vdev: 0, offset_bytes: number << 14, birth: 1, checksum_word: word };
        let is_hit = cache.get(&key, Retain::In).is_some();
        if !is_hit {
            let load = || async { Ok(Block::from(IoBuf::zeroed(16384))) };
            block_on(cache.get_or_load(key, Retain::In, load)).unwrap();
        }
        is_hit
    };
    let mut hits = 0;
    for step in 0..6000 {
        for _ in 0..4 {
            read(false);
        }
        hits += usize::from(read(true) && step >= 3000);
    }
    hits
}

#[test]
fn metadata_that_come_back_count_as_is_said() {
    let turn = Turn::take();
    turn.set(&tunables::ZFS_ARC_META_BALANCE, 10_000);
    let many = metadata_hits();
    assert!(many > 2700, "{many}: all metadata stay");
    turn.set(&tunables::ZFS_ARC_META_BALANCE, 10);
    let few = metadata_hits();
    assert!(few < 600, "{few}: data take their place");
}

#[test]
fn a_device_that_is_written_is_read_or_not_as_is_said() {
    let turn = Turn::take();
    turn.set(&tunables::L2ARC_BYPASS_SLOW, 0);
    turn.set(&tunables::L2ARC_HEADROOM, 0);
    let bed = with_cache_device();
    fed(&bed);
    // Something new, which takes long to write to the device.
    bed.write(32 * MIB, 4 * MIB);
    bed.commit();
    let cache = bed.pool.pool().vdevs().l2cache.iter().next().unwrap().guid.get();
    let (latency, operation) = (Duration::from_millis(600), Operation::Write);
    bed.pool.inject(Fault::Delay { leaf: cache, latency, lanes: 64, operation }, ALWAYS).unwrap();
    // Hits, and reads that were not allowed, while the device is written.
    let reads = |block: u64| {
        let mut into = vec![0; 8192];
        for at in 0..16 {
            block_on(bed.volume.read_at(32 * MIB + (block * 16 + at) * 8192, &mut into)).unwrap();
        }
        let stats = || {
            let stats = bed.pool.pool().l2arc().stats();
            [stats.l2_writes_sent.get(), stats.l2_writes_done.get()]
        };
        let [sent, _] = stats();
        let pool = Arc::clone(&bed.pool);
        let feeder = std::thread::spawn(move || block_on(pool.feed_l2arc()));
        while stats()[0] == sent {
            std::thread::yield_now();
        }
        let counts = || {
            let stats = bed.pool.pool().l2arc().stats();
            [stats.l2_hits.get(), stats.l2_rw_clash.get()]
        };
        let before = counts();
        for at in 0..8 {
            block_on(bed.volume.read_at((block * 8 + at) * 8192, &mut into)).unwrap();
        }
        let after = counts();
        assert_eq!(stats()[1], sent, "the device is still written");
        feeder.join().unwrap();
        [after[0] - before[0], after[1] - before[1]]
    };
    bed.pool.flush_cache();
    // What leads to the blocks may be read too.
    let [hits, refused] = reads(0);
    assert!(hits >= 8 && refused == 0, "{hits} {refused}");
    turn.set(&tunables::L2ARC_NORW, 1);
    let [hits, refused] = reads(4);
    assert!(hits == 0 && refused >= 8, "{hits} {refused}");
    bed.pool.clear_injections(None);
    bed.end();
}
