//! The counters of the cache, summed over the shards.

use super::super::counting::{Counts, Sizes};
use super::{ArcCache, NODE_BYTES, lock};
use crate::stats::Arcstats;

/// Counters of the whole cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ArcStats {
    /// Reads answered from memory.
    pub hits: u64,
    /// Reads that had to load.
    pub misses: u64,
    /// Reads that waited for another reader's load.
    pub shared_loads: u64,
    /// Blocks evicted to make room.
    pub evictions: u64,
    /// Bytes of blocks in memory, in all their forms.
    pub size_bytes: u64,
    /// The budget.
    pub budget_bytes: u64,
    /// Bytes of it that are lent to dirty data.
    pub lent_bytes: u64,
}

impl ArcCache {
    /// The present counters, summed over the shards.
    pub fn stats(&self) -> ArcStats {
        let lent_bytes = self.lent_bytes();
        let mut stats = ArcStats { budget_bytes: self.budget_bytes(), lent_bytes, ..ArcStats::default() };
        for shard in &self.shards {
            let shard = lock(shard);
            let (demand, prefetch) = (shard.counts.sum(false), shard.counts.sum(true));
            stats.hits += demand.hits;
            stats.misses += demand.misses + prefetch.misses;
            stats.shared_loads += demand.io_hits + prefetch.io_hits;
            stats.evictions += shard.counts.evictions();
            stats.size_bytes += shard.held_bytes() as u64;
        }
        stats
    }

    /// The present counters under OpenZFS's names, without those of the machine and of cache devices.
    pub fn arcstats(&self) -> Arcstats {
        let (mut counts, mut sizes) = (Counts::default(), Sizes::default());
        for shard in &self.shards {
            let (of_shard, held) = {
                let shard = lock(shard);
                (shard.counts, shard.sizes())
            };
            counts.add(&of_shard);
            sizes.add(&held);
        }
        let mut stats = Arcstats::default();
        counts.fill(&mut stats);
        sizes.fill(NODE_BYTES as u64, self.lent_bytes(), &mut stats);
        let budget_bytes = self.budget_bytes();
        (stats.c, stats.c_min, stats.c_max) = (budget_bytes, budget_bytes, budget_bytes);
        stats.arc_dnode_limit = budget_bytes;
        stats
    }
}
