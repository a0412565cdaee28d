//! Which blocks a cache device gets next: those that will be evicted soon.
//!
//! A feeder asks for the blocks at the old end of the lists ([`ArcCache::feedable`]), within a headroom. As
//! long as the ARC was never full, nothing will be evicted soon, and the feeder begins at the new end. What
//! it has written it reports ([`ArcCache::fed`]). Each shard is locked for a bounded number of steps.

use std::sync::atomic::Ordering;

use super::shard::{FREQUENT, NIL, RECENT, Shard};
use super::{ArcCache, Key, NODE_BYTES, lock};
use crate::cache::{Block, Candidate};

/// The most blocks of a list that are looked at under one lock.
const MAX_STEPS: usize = 2048;
/// The part of a shard's budget that physical bytes may take: one in so many.
pub(super) const PHYSICAL_SHARE: usize = 8;

/// The blocks that a feeder asks for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Selection {
    /// Of this pool.
    pub pool: u32,
    /// Metadata, or data.
    pub metadata: bool,
    /// Only blocks that were used again.
    pub only_frequent: bool,
    /// Only blocks whose physical bytes are kept for cache devices alone.
    pub only_physical: bool,
    /// Beginning with the blocks that will be evicted last.
    pub newest_first: bool,
    /// Only blocks that were born in this group or before.
    pub newest_birth: u64,
    /// Bytes of each list that are looked at, as the ARC keeps them; 0 for all.
    pub headroom_bytes: u64,
}

/// A block for a cache device.
#[derive(Clone, Debug)]
pub(crate) struct Feedable {
    /// Its key.
    pub key: Key,
    /// What is known of it.
    pub candidate: Candidate,
    /// Its bytes as they are in the pool.
    pub bytes: Block,
    /// Whether it was used again.
    pub frequent: bool,
}

impl ArcCache {
    /// Whether blocks had to be evicted already.
    pub(crate) fn is_warm(&self) -> bool {
        self.is_warm.load(Ordering::Relaxed)
    }

    /// Bytes that were evicted until now.
    pub(crate) fn evicted_bytes(&self) -> u64 {
        self.shards.iter().map(|shard| lock(shard).counts.evicted_bytes()).sum()
    }

    /// Adds blocks that a cache device may get to `found`, of about `bytes` physical bytes.
    pub(crate) fn feedable(&self, selection: &Selection, bytes: u64, found: &mut Vec<Feedable>) {
        let first = self.next_fed_shard.fetch_add(1, Ordering::Relaxed);
        let mut left = bytes;
        let share = Selection {
            headroom_bytes: selection.headroom_bytes.div_ceil(self.shards.len() as u64),
            ..*selection
        };
        for index in 0..self.shards.len() {
            let shard = &self.shards[(first + index) % self.shards.len()];
            for list in [FREQUENT, RECENT] {
                if left > 0 && !(selection.only_frequent && list == RECENT) {
                    lock(shard).feedable(list, &share, &mut left, found);
                }
            }
        }
    }

    /// A cache device has the block: what was there for it alone is dropped.
    pub(crate) fn fed(&self, key: &Key) {
        let hash = self.hash(key);
        let dropped = self.shard(hash).drop_candidate(hash, key);
        drop(dropped);
    }
}

impl Shard {
    fn feedable(&self, list: usize, selection: &Selection, left: &mut u64, found: &mut Vec<Feedable>) {
        let ends = &self.lists[list][usize::from(selection.metadata)];
        let mut next = if selection.newest_first { ends.newest } else { ends.oldest };
        let mut passed = 0;
        for _ in 0..MAX_STEPS {
            if next == NIL || *left == 0 {
                return;
            }
            let (index, node) = (next, &self.nodes[next as usize]);
            next = if selection.newest_first { node.older } else { node.newer };
            let Some(kept) = self.kept(index) else { continue };
            passed += (self.rests[index as usize].bytes - NODE_BYTES - kept.physical_bytes()) as u64;
            if selection.headroom_bytes != 0 && passed > selection.headroom_bytes {
                return;
            }
            let (Some(candidate), Some(bytes)) = (kept.candidate, kept.physical()) else { continue };
            if node.key.pool != selection.pool
                || (selection.only_physical && candidate.physical.is_none())
                || candidate.birth > selection.newest_birth
            {
                continue;
            }
            *left = left.saturating_sub(candidate.psize);
            found.push(Feedable {
                key: node.key,
                candidate: Candidate { physical: None, ..candidate.clone() },
                bytes: bytes.clone(),
                frequent: list == FREQUENT,
            });
        }
    }

    fn drop_candidate(&mut self, hash: u64, key: &Key) -> Option<Box<Candidate>> {
        let index = self.find(hash, key)?;
        self.change(index, |kept| kept.candidate.take()).flatten()
    }
}

#[cfg(test)]
mod tests {
    use device::IoBuf;
    use ondisk::blkptr::{CompressType, Dva};
    use ondisk::{Asize, ByteOffset, VdevId};

    use super::*;
    use crate::cache::{Loaded, Retain};

    fn key(number: u64) -> Key {
        let checksum_word = u64::from(number == METADATA);
        Key { pool: 1, vdev: 0, offset_bytes: number << 12, birth: number, checksum_word }
    }

    /// The block that is metadata.
    const METADATA: u64 = 3;

    /// A block of 16 KiB, whose bytes in the pool are 4 KiB.
    fn loaded(number: u64) -> Loaded {
        let offset = ByteOffset(number << 12);
        let candidate = Candidate {
            dva: Dva { vdev: VdevId(0), offset, asize: Asize(4096), gang: false },
            birth: number,
            lsize: 16384,
            psize: 4096,
            compress: CompressType::Lz4,
            is_metadata: number == METADATA,
            is_protected: false,
            is_encrypted: false,
            physical: Some(IoBuf::zeroed(4096).into()),
        };
        Loaded { block: IoBuf::zeroed(16384).into(), packed: None, candidate: Some(Box::new(candidate)) }
    }

    fn offered(cache: &ArcCache, selection: Selection, bytes: u64) -> Vec<u64> {
        let mut found = Vec::new();
        cache.feedable(&selection, bytes, &mut found);
        found.iter().map(|block| block.candidate.birth).collect()
    }

    const ALL: Selection = Selection {
        pool: 1,
        metadata: false,
        only_frequent: false,
        only_physical: false,
        newest_first: false,
        newest_birth: u64::MAX,
        headroom_bytes: 0,
    };

    #[test]
    fn blocks_that_will_be_evicted_soon_are_offered_first() {
        let cache = ArcCache::new(16 << 20);
        for number in 0..20 {
            cache.insert(key(number), loaded(number));
        }
        // Used again: it is in the other list, which comes first.
        assert!(cache.get(&key(0), Retain::In).is_some());
        assert_eq!(offered(&cache, ALL, 4 * 4096), [0, 1, 2, 4]);
        assert_eq!(offered(&cache, Selection { newest_first: true, ..ALL }, 3 * 4096), [0, 19, 18]);
        assert_eq!(offered(&cache, Selection { metadata: true, ..ALL }, 1 << 20), [3]);
        assert_eq!(offered(&cache, Selection { only_frequent: true, ..ALL }, 1 << 20), [0]);
        assert_eq!(offered(&cache, Selection { newest_birth: 2, ..ALL }, 1 << 20), [0, 1, 2]);
        assert_eq!(offered(&cache, Selection { only_physical: true, ..ALL }, 1 << 20).len(), 19);
        assert_eq!(offered(&cache, Selection { headroom_bytes: 3 * 16384, ..ALL }, 1 << 20), [0, 1, 2, 4]);
        assert!(offered(&cache, Selection { pool: 2, ..ALL }, 1 << 20).is_empty());
        let size = cache.stats().size_bytes;
        cache.fed(&key(1));
        assert_eq!(cache.stats().size_bytes, size - 4096 - size_of::<Candidate>() as u64);
        assert_eq!(offered(&cache, ALL, 3 * 4096), [0, 2, 4], "a device has it");
        assert!(cache.get(&key(1), Retain::In).is_some(), "the block stays");
    }

    #[test]
    fn physical_bytes_have_a_share_of_the_budget() {
        let cache = ArcCache::new(16 << 20);
        assert!(!cache.is_warm());
        for number in 0..2000 {
            cache.insert(key(number), loaded(number));
            assert!(lock(&cache.shards[0]).physical_bytes <= (16 << 20) / PHYSICAL_SHARE);
        }
        assert!(offered(&cache, ALL, u64::MAX).len() <= 512);
        cache.supersede(None, key(5000), || loaded(5000), Retain::In);
        assert!(cache.is_warm());
        cache.evict_pool(1);
        assert_eq!(lock(&cache.shards[0]).physical_bytes, 0);
    }
}
