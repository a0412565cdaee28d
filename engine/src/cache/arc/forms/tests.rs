use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use device::{IoBuf, block_on};
use ondisk::blkptr::{CompressType, Dva};
use ondisk::{Asize, ByteOffset, VdevId};
use proptest::prelude::*;

use super::super::lock;
use super::super::shard::{FREQUENT, RECENT};
use super::*;
use crate::cache::packed::sample;

const LSIZE: usize = 16384;
const PSIZE: usize = LSIZE / 2;

/// Some blocks are metadata.
fn is_metadata(number: u64) -> bool {
    number % 8 == 7
}

fn key(number: u64) -> Key {
    let checksum_word = u64::from(is_metadata(number));
    Key { pool: 0, vdev: 0, offset_bytes: number << 14, birth: 1, checksum_word }
}

/// A block that compresses to half.
fn compressed(number: u64) -> Loaded {
    let (block, packed) = sample(LSIZE, number as u8);
    Loaded { block, packed: Some(packed), candidate: None }
}

/// A block that does not compress.
fn plain(number: u64) -> Loaded {
    Block::from(IoBuf::from([number as u8; LSIZE].as_slice())).into()
}

/// For a cache device.
fn candidate(number: u64, physical: Option<Block>) -> Box<Candidate> {
    let offset = ByteOffset(number << 14);
    Box::new(Candidate {
        dva: Dva { vdev: VdevId(0), offset, asize: Asize(PSIZE as u64), gang: false },
        birth: 1,
        lsize: LSIZE as u64,
        psize: PSIZE as u64,
        compress: CompressType::Lz4,
        is_metadata: is_metadata(number),
        is_protected: false,
        is_encrypted: false,
        physical,
    })
}

/// A cache of one shard that has room for so many of these blocks decompressed.
fn cache_for(blocks: usize) -> ArcCache {
    ArcCache::new((blocks * (LSIZE + NODE_BYTES)) as u64)
}

/// Reads a block. True if it was in memory.
fn read(cache: &ArcCache, number: u64) -> bool {
    if let Some(block) = cache.get(&key(number), Retain::In) {
        assert!(block.len() == LSIZE && block.iter().all(|byte| *byte == number as u8), "{number}");
        return true;
    }
    let load = || async { Ok(compressed(number)) };
    block_on(cache.get_or_load(key(number), Retain::In, load)).unwrap();
    false
}

/// Hits of reads of `set` blocks here and there, of as many as there are.
fn hits(cache: &ArcCache, set: u64) -> u64 {
    (0..set).map(|step| u64::from(read(cache, step * 1021 % set))).sum()
}

/// Whether a block is in memory decompressed.
fn is_decompressed(cache: &ArcCache, number: u64) -> bool {
    let shard = lock(&cache.shards[0]);
    let index = shard.find(cache.hash(&key(number)), &key(number));
    index.is_some_and(|index| shard.nodes[index as usize].plain.is_some())
}

/// Compares all sums with what the nodes hold.
fn check(shard: &Shard) {
    let (mut both, mut plain, mut physical, mut copies) = (0, 0, 0, [0; 2]);
    for list in [RECENT, FREQUENT] {
        for (kind, copies) in copies.iter_mut().enumerate() {
            let (mut bytes, mut blocks) = (0, 0);
            let mut next = shard.lists[list][kind].newest;
            while next != NIL {
                let (node, rest) = (&shard.nodes[next as usize], &shard.rests[next as usize]);
                let kept = shard.kept(next).unwrap();
                assert_eq!((rest.bytes, kind_of(&node.key)), (kept.bytes() + NODE_BYTES, kind));
                assert_eq!(node.list(), list);
                (bytes, blocks) = (bytes + rest.bytes, blocks + 1);
                (plain, physical) = (plain + kept.plain_bytes(), physical + kept.physical_bytes());
                *copies += kept.copy_bytes();
                both += usize::from(kept.has_copy());
                next = node.older;
            }
            assert_eq!((shard.lists[list][kind].bytes, shard.lists[list][kind].blocks), (bytes, blocks));
        }
    }
    let mut next = shard.copies.newest;
    while next != NIL {
        assert!(shard.kept(next).unwrap().has_copy());
        both -= 1;
        next = shard.rests[next as usize].older_copy;
    }
    assert_eq!(both, 0, "copies are linked once");
    let counted = (shard.plain_bytes, shard.physical_bytes, shard.copies.bytes);
    assert_eq!(counted, (plain, physical, copies));
    assert!(shard.held_bytes() <= shard.budget || shard.blocks() <= 1);
}

proptest! {
    #[test]
    fn the_budget_holds_and_all_forms_are_counted(
        steps in prop::collection::vec((0u8..10, 0u64..60), 1..600),
    ) {
        let cache = cache_for(24);
        for (what, number) in steps {
            match what {
                0..5 => drop(read(&cache, number)),
                5 => cache.insert(key(number), plain(number)),
                6 => {
                    let candidate = Some(candidate(number, None));
                    cache.insert(key(number), Loaded { candidate, ..compressed(number) });
                }
                7 => {
                    let physical = Some(IoBuf::zeroed(PSIZE).into());
                    let candidate = Some(candidate(number, physical));
                    cache.insert(key(number), Loaded { candidate, ..plain(number) });
                }
                8 => cache.fed(&key(number)),
                _ => {
                    cache.get(&key(number), Retain::Out);
                    cache.resize((16 + number % 2 * 8) * (LSIZE + NODE_BYTES) as u64);
                }
            }
            check(&lock(&cache.shards[0]));
        }
        cache.evict_pool(0);
        check(&lock(&cache.shards[0]));
        prop_assert_eq!(cache.stats().size_bytes, 0);
    }
}

#[test]
fn a_set_that_fits_ends_up_decompressed() {
    let cache = cache_for(100);
    hits(&cache, 95);
    for _ in 0..3 {
        assert_eq!(hits(&cache, 95), 95);
    }
    let stats = cache.arcstats();
    assert_eq!(stats.uncompressed_size, 95 * LSIZE as u64);
    // Those that never had to become small have both forms.
    assert!(stats.compressed_size > 80 * LSIZE as u64, "{stats:?}");
    assert!((0..95).all(|number| is_decompressed(&cache, number)));
}

#[test]
fn a_set_of_one_and_a_half_times_the_budget_is_held_in_any_order() {
    let cache = cache_for(100);
    for _ in 0..4 {
        hits(&cache, 150);
    }
    assert_eq!(hits(&cache, 150), 150);
    // Read in order again and again, which never hits in a cache that is too small.
    let cache = cache_for(100);
    let in_order = || (0..150).map(|number| u64::from(read(&cache, number))).sum::<u64>();
    for _ in 0..4 {
        in_order();
    }
    assert_eq!(in_order(), 150);
    let stats = cache.arcstats();
    assert_eq!(stats.uncompressed_size, 150 * LSIZE as u64);
    // Those that came while all seemed to fit may have lost their compressed form.
    assert!(stats.compressed_size + stats.overhead_size <= 100 * LSIZE as u64, "{stats:?}");
}

#[test]
fn a_set_that_became_smaller_is_decompressed_again() {
    let cache = cache_for(100);
    for _ in 0..4 {
        hits(&cache, 180);
    }
    for _ in 0..400 {
        assert_eq!(hits(&cache, 60), 60, "they were in memory");
    }
    assert!((0..60).filter(|number| is_decompressed(&cache, *number)).count() >= 50);
}

#[test]
fn a_hot_block_keeps_its_copy() {
    let cache = cache_for(100);
    for step in 0..2000 {
        read(&cache, 1);
        read(&cache, 2 + step % 190);
    }
    let misses = cache.stats().misses;
    for step in 0..2000 {
        assert!(is_decompressed(&cache, 1), "{step}");
        read(&cache, 1);
        read(&cache, 2 + step % 190);
    }
    assert!(cache.stats().misses - misses < 400, "most of the others are there, too");
}

/// Random reads of a volume of 8K blocks that is eight times as large as the cache, each through its indirect
/// block. The decompressed indirect blocks take an eighth of the cache.
#[test]
fn indirect_blocks_keep_their_copies_beside_data_that_does_not_compress() {
    const DATA_BYTES: usize = 8 << 10;
    const INDIRECT_BYTES: usize = 128 << 10;
    const INDIRECT_BLOCKS: u64 = 16;
    const DATA_BLOCKS: u64 = INDIRECT_BLOCKS * 1024;
    const READS: u64 = 100_000;
    let cache = ArcCache::new(16 << 20);
    let key = |offset_bytes, checksum_word| Key { pool: 0, vdev: 0, offset_bytes, birth: 1, checksum_word };
    let packed_hits = AtomicU64::new(0);
    let mut state = 1u64;
    for step in 0..2 * READS {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let data = (state >> 33) % DATA_BLOCKS;
        let indirect = key((data / 1024) << 17 | 1 << 40, 1);
        let hash = cache.hash(&indirect);
        {
            let shard = cache.shard(hash);
            let index = shard.find(hash, &indirect);
            let is_packed = |index: u32| shard.kept(index).is_some_and(|kept| kept.plain.is_none());
            if step >= READS && index.is_some_and(is_packed) {
                packed_hits.fetch_add(1, Ordering::Relaxed);
            }
        }
        let load = || async {
            let (block, packed) = sample(INDIRECT_BYTES, 1);
            Ok(Loaded { block, packed: Some(packed), candidate: None })
        };
        block_on(cache.get_or_load(indirect, Retain::In, load)).unwrap();
        let load = || async { Ok(Loaded::from(Block::from(IoBuf::zeroed(DATA_BYTES)))) };
        block_on(cache.get_or_load(key(data << 13, 0), Retain::In, load)).unwrap();
    }
    assert!(packed_hits.load(Ordering::Relaxed) < READS / 50, "{packed_hits:?}");
    // Those of data, of which an eighth would fit if nothing else were there.
    let hits = cache.stats().hits - 2 * READS;
    assert!(hits > 2 * READS * 9 / 100, "{hits}");
}

#[test]
fn a_block_that_cannot_be_decompressed_is_loaded_again() {
    for retain in [Retain::In, Retain::Out] {
        let cache = cache_for(100);
        let (block, _) = sample(LSIZE, 1);
        let bytes = Block::from(IoBuf::from([0xff; PSIZE].as_slice()));
        let damaged = Packed::of(&bytes, CompressType::Lz4, &block).unwrap();
        cache.insert(key(1), Loaded { block, packed: Some(Arc::clone(&damaged)), candidate: None });
        {
            let mut shard = lock(&cache.shards[0]);
            let index = shard.find(cache.hash(&key(1)), &key(1)).unwrap();
            shard.unlink_copy(index);
            shard.change(index, |kept| (kept.plain, kept.packed) = (None, Some(damaged)));
        }
        let load = || async { Ok(compressed(1)) };
        let block = block_on(cache.get_or_load(key(1), retain, load)).unwrap();
        assert!(block.iter().all(|byte| *byte == 1));
        assert_eq!(
            (cache.stats().misses, cache.get(&key(1), Retain::In).is_some()),
            (1, retain == Retain::In)
        );
        check(&lock(&cache.shards[0]));
    }
}

#[test]
fn readers_of_many_threads_get_their_blocks() {
    let cache = cache_for(40);
    let loads = AtomicU64::new(0);
    thread::scope(|scope| {
        for thread in 0..4u64 {
            let (cache, loads) = (&cache, &loads);
            scope.spawn(move || {
                let mut state = thread + 1;
                for _ in 0..4000 {
                    state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    let number = (state >> 33) % 70;
                    let retain = if (state >> 60) == 0 { Retain::Out } else { Retain::In };
                    let load = || async {
                        loads.fetch_add(1, Ordering::Relaxed);
                        Ok(compressed(number))
                    };
                    let block = block_on(cache.get_or_load(key(number), retain, load)).unwrap();
                    assert!(block.iter().all(|byte| *byte == number as u8), "{number}");
                }
            });
        }
    });
    let stats = cache.stats();
    assert_eq!(stats.misses, loads.load(Ordering::Relaxed));
    assert_eq!(stats.hits + stats.misses + stats.shared_loads, 16_000);
    check(&lock(&cache.shards[0]));
}
