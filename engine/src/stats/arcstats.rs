//! `arcstats`: the ARC.

use super::counters;

counters! {
    /// The ARC of the process, and the cache devices of its pools.
    Arcstats in "arcstats" {
        hits: Counter, "Reads of blocks that were in memory, prefetches included.";
        iohits: Counter, "Reads that waited for a load that another reader had begun.";
        misses: Counter, "Reads that had to load their block.";
        demand_data_hits: Counter, "Hits of readers, of blocks of files and volumes.";
        demand_data_iohits: Counter, "Readers of such blocks that waited for a load of another one.";
        demand_data_misses: Counter, "Readers of such blocks that had to load them.";
        demand_metadata_hits: Counter, "Hits of readers, of all other blocks.";
        demand_metadata_iohits: Counter, "Readers of other blocks that waited for a load of another one.";
        demand_metadata_misses: Counter, "Readers of other blocks that had to load them.";
        prefetch_data_hits: Counter, "Prefetches of blocks of files and volumes that were in memory.";
        prefetch_data_iohits: Counter, "Prefetches of such blocks that were being loaded.";
        prefetch_data_misses: Counter, "Prefetches of such blocks that loaded them.";
        prefetch_metadata_hits: Counter, "Prefetches of other blocks that were in memory.";
        prefetch_metadata_iohits: Counter, "Prefetches of other blocks that were being loaded.";
        prefetch_metadata_misses: Counter, "Prefetches of other blocks that loaded them.";
        mru_hits: Counter, "Hits of blocks that had been used once.";
        mru_ghost_hits: Counter, "Loads of blocks that had been evicted after one use.";
        mfu_hits: Counter, "Hits of blocks that had been used more often.";
        mfu_ghost_hits: Counter, "Loads of blocks that had been evicted after more uses.";
        uncached_hits: Counter,
            "Hits of blocks that left with the read, because their dataset is not cached.";
        deleted: Counter, "Blocks that were evicted to make room.";
        mutex_miss: Counter, "Evictions that found a lock taken: always 0.";
        access_skip: Counter, "Hits that did not move the block: touches of the same use.";
        evict_skip: Counter, "Blocks that eviction passed over: always 0.";
        evict_not_enough: Counter,
            "Evictions that did not make enough room: the newest block stays, however large.";
        evict_l2_cached: Counter,
            "Bytes of evicted blocks that an L2ARC device has: not counted, 0.";
        evict_l2_eligible: Counter,
            "Bytes, as stored, of evicted blocks that waited for an L2ARC device. Without a device, none do.";
        evict_l2_eligible_mfu: Counter, "Those of blocks that were used more often.";
        evict_l2_eligible_mru: Counter, "Those of blocks that were used once.";
        evict_l2_ineligible: Counter,
            "Bytes of evicted blocks that an L2ARC device must not take: not counted, 0.";
        evict_l2_skip: Counter,
            "Evictions that passed over a block that was being written to an L2ARC device: always 0.";
        hash_elements: Gauge, "Blocks and ghosts in the tables.";
        hash_elements_max: Gauge, "The most that there were.";
        hash_collisions: Counter, "Collisions in the tables: always 0, as they are open.";
        hash_chains: Gauge, "Chains in the tables: always 0.";
        hash_chain_max: Gauge, "The longest chain: always 0.";
        meta: Gauge, "The share of cached bytes that metadata may have, in parts of 2^32.";
        pd: Gauge, "The share of cached data that blocks used once may have, in parts of 2^32.";
        pm: Gauge, "The same of cached metadata.";
        c: Gauge, "The budget for blocks and for data not on disk yet, at the moment.";
        c_min: Gauge, "The least budget, also when memory is scarce.";
        c_max: Gauge, "The largest budget, while memory is not scarce.";
        size: Gauge, "Memory in use: blocks, their headers, and dirty data.";
        compressed_size: Gauge, "Bytes of blocks as they are kept, compressed or not.";
        uncompressed_size: Gauge, "Bytes of these blocks without compression.";
        overhead_size: Gauge,
            "Bytes of uncompressed copies beside compressed blocks, and of compressed ones for the L2ARC.";
        hdr_size: Gauge, "Memory for the headers of blocks and ghosts.";
        data_size: Gauge, "Bytes of blocks of files and volumes, dirty data included.";
        metadata_size: Gauge, "Bytes of all other blocks.";
        dbuf_size: Gauge, "Memory for handles on blocks: not counted, 0.";
        dnode_size: Gauge, "Memory for open objects: not counted, 0.";
        bonus_size: Gauge, "Memory for bonus buffers: not counted, 0.";
        other_size: Gauge, "The three above together.";
        anon_size: Gauge, "Dirty data, which the budget lends memory for.";
        anon_data: Gauge, "The same; it is not divided by kind.";
        anon_metadata: Gauge, "Always 0.";
        anon_evictable_data: Gauge, "Always 0: dirty data stay until they are on disk.";
        anon_evictable_metadata: Gauge, "Always 0.";
        mru_size: Gauge, "Bytes of blocks that were used once, without those of overhead_size.";
        mru_data: Gauge, "Those of files and volumes.";
        mru_metadata: Gauge, "Those of all other blocks.";
        mru_evictable_data: Gauge, "Those that may be evicted: all of mru_data.";
        mru_evictable_metadata: Gauge, "Those that may be evicted: all of mru_metadata.";
        mru_ghost_size: Gauge, "Bytes that blocks evicted after one use had, as far as they are remembered.";
        mru_ghost_data: Gauge, "Those of files and volumes.";
        mru_ghost_metadata: Gauge, "Those of all other blocks.";
        mru_ghost_evictable_data: Gauge, "The same as mru_ghost_data.";
        mru_ghost_evictable_metadata: Gauge, "The same as mru_ghost_metadata.";
        mfu_size: Gauge, "Bytes of blocks that were used more often, without those of overhead_size.";
        mfu_data: Gauge, "Those of files and volumes.";
        mfu_metadata: Gauge, "Those of all other blocks.";
        mfu_evictable_data: Gauge, "Those that may be evicted: all of mfu_data.";
        mfu_evictable_metadata: Gauge, "Those that may be evicted: all of mfu_metadata.";
        mfu_ghost_size: Gauge,
            "Bytes that blocks evicted after more uses had, as far as they are remembered.";
        mfu_ghost_data: Gauge, "Those of files and volumes.";
        mfu_ghost_metadata: Gauge, "Those of all other blocks.";
        mfu_ghost_evictable_data: Gauge, "The same as mfu_ghost_data.";
        mfu_ghost_evictable_metadata: Gauge, "The same as mfu_ghost_metadata.";
        uncached_size: Gauge,
            "Bytes of blocks of uncached datasets that wait for their reader: counted in mru_size, 0 here.";
        uncached_data: Gauge, "Always 0.";
        uncached_metadata: Gauge, "Always 0.";
        uncached_evictable_data: Gauge, "Always 0.";
        uncached_evictable_metadata: Gauge, "Always 0.";
        l2_ndev: Gauge, "Cache devices in use.";
        l2_hits: Counter, "Reads that a cache device answered.";
        l2_misses: Counter, "Reads that no cache device could answer, while there was one.";
        l2_prefetch_asize: Gauge, "Bytes on cache devices of blocks that were read ahead.";
        l2_mru_asize: Gauge, "Bytes on cache devices of blocks that were used once.";
        l2_mfu_asize: Gauge, "Bytes on cache devices of blocks that were used more often.";
        l2_bufc_data_asize: Gauge, "Bytes on cache devices of blocks of files and volumes.";
        l2_bufc_metadata_asize: Gauge, "Bytes on cache devices of all other blocks.";
        l2_feeds: Counter, "Rounds of feeding cache devices.";
        l2_rw_clash: Counter, "Reads of a block that was being written to a cache device.";
        l2_read_bytes: Counter, "Bytes that were read from cache devices.";
        l2_write_bytes: Counter, "Bytes that were written to cache devices.";
        l2_writes_sent: Counter, "Writes to cache devices that began.";
        l2_writes_done: Counter, "Writes to cache devices that ended.";
        l2_writes_error: Counter, "Writes to cache devices that failed.";
        l2_writes_lock_retry: Counter, "Writes that found a lock taken.";
        l2_evict_lock_retry: Counter, "Evictions from cache devices that found a lock taken.";
        l2_evict_reading: Counter, "Evictions from cache devices of a block that was being read.";
        l2_evict_l1cached: Counter, "Evictions from cache devices of a block that was in memory.";
        l2_free_on_write: Counter, "Buffers that were freed when their write to a cache device ended.";
        l2_abort_lowmem: Counter, "Rounds of feeding that were left out for want of memory.";
        l2_cksum_bad: Counter, "Reads from cache devices with wrong bytes.";
        l2_io_error: Counter, "Reads from cache devices that failed.";
        l2_size: Gauge, "Bytes of the blocks on cache devices, uncompressed.";
        l2_asize: Gauge, "Bytes of the blocks on cache devices, as stored.";
        l2_hdr_size: Gauge, "Memory for the headers of blocks on cache devices.";
        l2_log_blk_writes: Counter, "Log blocks that were written to cache devices.";
        l2_log_blk_avg_asize: Gauge, "The average size of a log block.";
        l2_log_blk_asize: Gauge, "Bytes of log blocks on cache devices.";
        l2_log_blk_count: Gauge, "Log blocks on cache devices.";
        l2_data_to_meta_ratio: Gauge, "Bytes of blocks for each byte of log blocks.";
        l2_rebuild_success: Counter, "Cache devices whose contents were known again after an import.";
        l2_rebuild_unsupported: Counter, "Cache devices whose header could not be used.";
        l2_rebuild_io_errors: Counter, "Reads of log blocks that failed.";
        l2_rebuild_dh_errors: Counter, "Reads of the header of a cache device that failed.";
        l2_rebuild_cksum_lb_errors: Counter, "Log blocks with wrong bytes.";
        l2_rebuild_lowmem: Counter, "Imports that stopped for want of memory.";
        l2_rebuild_size: Counter, "Bytes of the blocks that became known again, uncompressed.";
        l2_rebuild_asize: Counter, "Bytes of the blocks that became known again, as stored.";
        l2_rebuild_bufs: Counter, "Blocks that became known again.";
        l2_rebuild_bufs_precached: Counter, "Blocks that were known already.";
        l2_rebuild_log_blks: Counter, "Log blocks that were read.";
        memory_throttle_count: Counter, "Changes that waited for memory: always 0.";
        memory_direct_count: Counter, "Times that the system asked for memory at once: not counted, 0.";
        memory_indirect_count: Counter,
            "Times that the system asked for memory in the background: not counted, 0.";
        memory_all_bytes: Gauge, "Memory of the machine.";
        memory_free_bytes: Gauge, "Free memory of the machine.";
        memory_available_bytes: Signed, "Memory that the machine could give without swapping.";
        arc_no_grow: Gauge, "Whether the cache must not grow.";
        arc_tempreserve: Gauge, "Bytes that changes reserved: counted in anon_size, 0 here.";
        arc_loaned_bytes: Gauge, "Bytes of the budget that are lent to dirty data.";
        arc_prune: Counter, "Times that open objects were dropped to make room: always 0.";
        arc_meta_used: Gauge, "Bytes of metadata, with the headers of all blocks.";
        arc_dnode_limit: Gauge, "The most memory for open objects: there is no such limit, so the budget.";
        async_upgrade_sync: Counter, "Readers that waited for a prefetch of their block.";
        predictive_prefetch: Counter, "Prefetches of blocks ahead of a stream.";
        demand_hit_predictive_prefetch: Counter, "Prefetched blocks that a reader found in memory.";
        demand_iohit_predictive_prefetch: Counter, "Prefetched blocks that a reader waited for.";
        prescient_prefetch: Counter,
            "Prefetches of blocks that were known to be needed: not distinguished, 0.";
        demand_hit_prescient_prefetch: Counter, "Always 0.";
        demand_iohit_prescient_prefetch: Counter, "Always 0.";
        arc_need_free: Gauge, "Bytes that the system asked for and that are not free yet.";
        arc_sys_free: Gauge, "Bytes that are to stay free on the machine.";
        arc_raw_size: Gauge, "Bytes of blocks that are kept encrypted: always 0.";
        cached_only_in_progress: Counter, "Reads of only cached blocks that found a load: always 0.";
        abd_chunk_waste_size: Gauge, "Bytes that blocks take in memory beyond their size.";
    }
}
