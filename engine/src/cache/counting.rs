//! What a shard of the ARC counts, and how `arcstats` is made of it.
//!
//! A shard counts under its lock, which each access holds anyway, in plain numbers.

use crate::cache::Retain;
use crate::stats::Arcstats;

/// Hits, waits and misses of one kind of access.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Accesses {
    /// Answered from memory.
    pub(super) hits: u64,
    /// Waited for a load of another reader.
    pub(super) io_hits: u64,
    /// Had to load.
    pub(super) misses: u64,
}

/// What was counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    /// By reader or prefetch, and within these by data or metadata.
    accesses: [[Accesses; 2]; 2],
    /// Hits in the list of blocks seen once, and in that of blocks seen again.
    list_hits: [u64; 2],
    /// Loads of blocks whose key was in a ghost list.
    ghost_hits: [u64; 2],
    uncached_hits: u64,
    /// Hits that left the block in its place.
    access_skips: u64,
    /// Evicted blocks, their bytes, and the bytes by list of those that waited for a cache device.
    evictions: u64,
    evicted_bytes: u64,
    evicted_waiting_bytes: [u64; 2],
    evict_not_enough: u64,
    hit_prefetches: u64,
    waited_prefetches: u64,
}

/// Bytes and blocks of one kind in one list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Held {
    pub blocks: u64,
    pub bytes: u64,
}

/// What the lists hold, by list, and within these data and metadata; with the headers of blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sizes {
    pub(super) lists: [[Held; 2]; 4],
    /// Blocks and ghosts, and the most that there were.
    pub(super) elements: u64,
    pub(super) most_elements: u64,
    /// The share of the budgets that blocks seen once may have, of data and of metadata.
    pub(super) recent_target: [u64; 2],
    /// The share of the budgets that metadata may have.
    pub(super) metadata_target: u64,
    pub(super) shares: u64,
    /// The memory that all blocks would take decompressed.
    pub(super) plain_bytes: u64,
    /// Decompressed copies beside compressed blocks, of data and of metadata; the lists are without them.
    pub(super) copy_bytes: [u64; 2],
    /// What is there for cache devices alone; the lists are with it.
    pub(super) physical_bytes: u64,
}

impl Counts {
    fn of(&mut self, retain: Retain, is_metadata: bool) -> &mut Accesses {
        &mut self.accesses[usize::from(retain == Retain::Ahead)][usize::from(is_metadata)]
    }

    /// A block was in memory.
    pub(super) fn hit(&mut self, retain: Retain, is_metadata: bool) {
        self.of(retain, is_metadata).hits += 1;
    }

    /// A reader found a block in one of the two lists of blocks. `is_first`: it had been prefetched for it.
    pub(super) fn hit_in(&mut self, list: usize, is_first: bool) {
        if let Some(hits) = self.list_hits.get_mut(list) {
            *hits += 1;
        }
        self.hit_prefetches += u64::from(is_first);
    }

    /// A block left with its reader.
    pub(super) fn hit_uncached(&mut self, was_prefetched: bool) {
        self.uncached_hits += 1;
        self.hit_prefetches += u64::from(was_prefetched);
    }

    /// A hit did not move its block.
    pub(super) fn skip(&mut self) {
        self.access_skips += 1;
    }

    /// A reader waits for a load. `for_prefetch`: a prefetch had begun it.
    pub(super) fn wait(&mut self, retain: Retain, is_metadata: bool, for_prefetch: bool) {
        self.of(retain, is_metadata).io_hits += 1;
        self.waited_prefetches += u64::from(for_prefetch && retain != Retain::Ahead);
    }

    /// A block has to be loaded.
    pub(super) fn miss(&mut self, retain: Retain, is_metadata: bool) {
        self.of(retain, is_metadata).misses += 1;
    }

    /// A block came back whose key was in a ghost list: of those seen once, or again.
    pub(super) fn ghost(&mut self, list: usize) {
        if let Some(hits) = self.ghost_hits.get_mut(list) {
            *hits += 1;
        }
    }

    /// A block of so many bytes was evicted from a list. So many of them waited for a cache device.
    pub(super) fn evict(&mut self, list: usize, bytes: u64, waiting_bytes: u64) {
        self.evictions += 1;
        self.evicted_bytes += bytes;
        if let Some(evicted) = self.evicted_waiting_bytes.get_mut(list) {
            *evicted += waiting_bytes;
        }
    }

    /// Only the newest block was left to evict.
    pub(super) fn not_enough(&mut self) {
        self.evict_not_enough += 1;
    }

    /// Bytes of evicted blocks.
    pub(super) fn evicted_bytes(&self) -> u64 {
        self.evicted_bytes
    }

    /// Blocks that were evicted.
    pub(super) fn evictions(&self) -> u64 {
        self.evictions
    }

    /// The accesses of readers, or of prefetches.
    pub(super) fn sum(&self, prefetch: bool) -> Accesses {
        let [data, metadata] = self.accesses[usize::from(prefetch)];
        Accesses {
            hits: data.hits + metadata.hits,
            io_hits: data.io_hits + metadata.io_hits,
            misses: data.misses + metadata.misses,
        }
    }

    /// Adds what another shard counted.
    pub(super) fn add(&mut self, other: &Self) {
        let own = self.accesses.iter_mut().flatten();
        for (own, other) in own.zip(other.accesses.iter().flatten()) {
            own.hits += other.hits;
            own.io_hits += other.io_hits;
            own.misses += other.misses;
        }
        for (own, other) in [
            (&mut self.list_hits, other.list_hits),
            (&mut self.ghost_hits, other.ghost_hits),
            (&mut self.evicted_waiting_bytes, other.evicted_waiting_bytes),
        ] {
            own.iter_mut().zip(other).for_each(|(own, other)| *own += other);
        }
        self.uncached_hits += other.uncached_hits;
        self.access_skips += other.access_skips;
        self.evictions += other.evictions;
        self.evicted_bytes += other.evicted_bytes;
        self.evict_not_enough += other.evict_not_enough;
        self.hit_prefetches += other.hit_prefetches;
        self.waited_prefetches += other.waited_prefetches;
    }

    /// The fields of `arcstats` that count.
    pub(super) fn fill(&self, stats: &mut Arcstats) {
        let [[demand_data, demand_metadata], [prefetch_data, prefetch_metadata]] = self.accesses;
        let (demand, prefetch) = (self.sum(false), self.sum(true));
        stats.hits = demand.hits + prefetch.hits;
        stats.iohits = demand.io_hits + prefetch.io_hits;
        stats.misses = demand.misses + prefetch.misses;
        (stats.demand_data_hits, stats.demand_metadata_hits) = (demand_data.hits, demand_metadata.hits);
        (stats.demand_data_iohits, stats.demand_metadata_iohits) =
            (demand_data.io_hits, demand_metadata.io_hits);
        (stats.demand_data_misses, stats.demand_metadata_misses) =
            (demand_data.misses, demand_metadata.misses);
        (stats.prefetch_data_hits, stats.prefetch_metadata_hits) =
            (prefetch_data.hits, prefetch_metadata.hits);
        (stats.prefetch_data_iohits, stats.prefetch_metadata_iohits) =
            (prefetch_data.io_hits, prefetch_metadata.io_hits);
        (stats.prefetch_data_misses, stats.prefetch_metadata_misses) =
            (prefetch_data.misses, prefetch_metadata.misses);
        [stats.mru_hits, stats.mfu_hits] = self.list_hits;
        [stats.mru_ghost_hits, stats.mfu_ghost_hits] = self.ghost_hits;
        stats.uncached_hits = self.uncached_hits;
        stats.deleted = self.evictions;
        stats.access_skip = self.access_skips;
        stats.evict_not_enough = self.evict_not_enough;
        [stats.evict_l2_eligible_mru, stats.evict_l2_eligible_mfu] = self.evicted_waiting_bytes;
        stats.evict_l2_eligible = self.evicted_waiting_bytes.iter().sum();
        stats.predictive_prefetch = prefetch.hits + prefetch.io_hits + prefetch.misses;
        stats.demand_hit_predictive_prefetch = self.hit_prefetches;
        stats.demand_iohit_predictive_prefetch = self.waited_prefetches;
        stats.async_upgrade_sync = self.waited_prefetches;
    }
}

impl Sizes {
    /// Adds what another shard holds.
    pub(super) fn add(&mut self, other: &Self) {
        let own = self.lists.iter_mut().flatten();
        for (own, other) in own.zip(other.lists.iter().flatten()) {
            own.blocks += other.blocks;
            own.bytes += other.bytes;
        }
        self.elements += other.elements;
        self.most_elements += other.most_elements;
        self.recent_target.iter_mut().zip(other.recent_target).for_each(|(own, other)| *own += other);
        self.metadata_target += other.metadata_target;
        self.shares += other.shares;
        self.plain_bytes += other.plain_bytes;
        self.physical_bytes += other.physical_bytes;
        self.copy_bytes.iter_mut().zip(other.copy_bytes).for_each(|(own, other)| *own += other);
    }

    /// The fields of `arcstats` that are sizes; each block and each ghost takes `header_bytes` besides.
    pub(super) fn fill(&self, header_bytes: u64, lent_bytes: u64, stats: &mut Arcstats) {
        let bytes = |held: Held| held.bytes.saturating_sub(held.blocks * header_bytes);
        let [recent, frequent, ghost_recent, ghost_frequent] = self.lists.map(|kinds| kinds.map(bytes));
        [stats.mru_data, stats.mru_metadata] = recent;
        [stats.mfu_data, stats.mfu_metadata] = frequent;
        [stats.mru_ghost_data, stats.mru_ghost_metadata] = ghost_recent;
        [stats.mfu_ghost_data, stats.mfu_ghost_metadata] = ghost_frequent;
        [stats.mru_evictable_data, stats.mru_evictable_metadata] = recent;
        [stats.mfu_evictable_data, stats.mfu_evictable_metadata] = frequent;
        [stats.mru_ghost_evictable_data, stats.mru_ghost_evictable_metadata] = ghost_recent;
        [stats.mfu_ghost_evictable_data, stats.mfu_ghost_evictable_metadata] = ghost_frequent;
        stats.mru_size = stats.mru_data + stats.mru_metadata;
        stats.mfu_size = stats.mfu_data + stats.mfu_metadata;
        stats.mru_ghost_size = stats.mru_ghost_data + stats.mru_ghost_metadata;
        stats.mfu_ghost_size = stats.mfu_ghost_data + stats.mfu_ghost_metadata;
        (stats.anon_size, stats.anon_data) = (lent_bytes, lent_bytes);
        let blocks = stats.mru_size + stats.mfu_size;
        stats.compressed_size = blocks.saturating_sub(self.physical_bytes);
        stats.uncompressed_size = self.plain_bytes;
        let [data_copies, metadata_copies] = self.copy_bytes;
        stats.overhead_size = data_copies + metadata_copies + self.physical_bytes;
        stats.hash_elements = self.elements;
        stats.hash_elements_max = self.most_elements;
        stats.hdr_size = self.elements * header_bytes;
        stats.data_size = stats.mru_data + stats.mfu_data + data_copies + lent_bytes;
        stats.metadata_size = stats.mru_metadata + stats.mfu_metadata + metadata_copies;
        stats.arc_meta_used = stats.metadata_size + stats.hdr_size;
        stats.size = stats.data_size + stats.metadata_size + stats.hdr_size;
        stats.arc_loaned_bytes = lent_bytes;
        stats.meta = fraction(self.metadata_target, self.shares);
        [stats.pd, stats.pm] = self.recent_target.map(|target| fraction(target, self.shares));
    }
}

/// A share in parts of 2^32.
fn fraction(part: u64, whole: u64) -> u64 {
    let parts = (u128::from(part) << 32).checked_div(u128::from(whole)).unwrap_or(0);
    u64::try_from(parts).unwrap_or(u64::MAX).min(1 << 32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_access_counts_once_in_its_kind_and_in_the_sums() {
        let mut counts = Counts::default();
        counts.hit(Retain::In, false);
        counts.hit_in(0, true);
        counts.hit(Retain::In, true);
        counts.hit_in(1, false);
        counts.hit(Retain::Ahead, true);
        counts.wait(Retain::In, false, true);
        counts.miss(Retain::Ahead, false);
        counts.miss(Retain::AsItWas, true);
        counts.ghost(1);
        counts.evict(0, 8192, 4096);
        let mut twice = counts;
        twice.add(&counts);
        let mut stats = Arcstats::default();
        twice.fill(&mut stats);
        assert_eq!((stats.hits, stats.iohits, stats.misses), (6, 2, 4));
        assert_eq!((stats.demand_data_hits, stats.demand_metadata_hits), (2, 2));
        assert_eq!((stats.prefetch_metadata_hits, stats.prefetch_data_misses), (2, 2));
        assert_eq!((stats.mru_hits, stats.mfu_hits, stats.mfu_ghost_hits), (2, 2, 2));
        assert_eq!((stats.deleted, stats.evict_l2_eligible_mru), (2, 8192));
        assert_eq!((stats.demand_hit_predictive_prefetch, stats.demand_iohit_predictive_prefetch), (2, 2));
        assert_eq!(stats.predictive_prefetch, 4);
    }

    #[test]
    fn the_sizes_add_up_to_the_size() {
        let mut sizes = Sizes { elements: 3, recent_target: [1, 2], shares: 4, ..Sizes::default() };
        sizes.lists[0][0] = Held { blocks: 1, bytes: 4096 + 128 };
        sizes.lists[1][1] = Held { blocks: 1, bytes: 512 + 128 };
        sizes.lists[2][0] = Held { blocks: 1, bytes: 1024 + 128 };
        (sizes.plain_bytes, sizes.copy_bytes, sizes.physical_bytes) = (9000, [200, 100], 50);
        let mut stats = Arcstats::default();
        sizes.fill(128, 1000, &mut stats);
        assert_eq!((stats.mru_data, stats.mfu_metadata, stats.mru_ghost_data), (4096, 512, 1024));
        assert_eq!((stats.data_size, stats.metadata_size, stats.hdr_size), (5296, 612, 3 * 128));
        assert_eq!((stats.size, stats.pd, stats.pm), (5296 + 612 + 384, 1 << 30, 1 << 31));
        let forms = (stats.compressed_size, stats.uncompressed_size, stats.overhead_size);
        assert_eq!(forms, (4096 + 512 - 50, 9000, 350));
    }
}
