//! The table of tunables. To add one: an entry here, in the order of names, and its use.

use super::{Effect, Tunable, Unit};

/// Declares the statics, and `ALL` with all of them.
macro_rules! table {
    ($(
        $(#[doc = $text:literal])+
        $id:ident = $name:literal, $unit:ident, $default:expr, $least:expr, $most:expr, $effect:ident;
    )+) => {
        $(
            $(#[doc = $text])+
            pub static $id: Tunable = Tunable::new(
                $name,
                concat!($($text),+),
                Unit::$unit,
                ($default, $least, $most),
                Effect::$effect,
            );
        )+
        pub(super) const ALL: &[&Tunable] = &[$(&$id),+];
    };
}

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
/// As much as fits everywhere.
const ANY: u64 = i64::MAX as u64;
const U32: u64 = u32::MAX as u64;
/// The least size of the ARC that a user may ask for, in bytes.
pub const LEAST_ARC_BYTES: u64 = 64 * MIB;

table! {
    /// While reads of a cache device take longer than those of the pool, the pool is read instead, when this
    /// is not 0. No reader waits for such a device: a few reads beside find out whether it became faster.
    L2ARC_BYPASS_SLOW = "l2arc_bypass_slow", Switch, 1, 0, 1, AtOnce;
    /// Blocks of the special class, which is fast already, are not put on cache devices while this is not
    /// 0.
    L2ARC_EXCLUDE_SPECIAL = "l2arc_exclude_special", Switch, 0, 0, 1, AtOnce;
    /// While blocks wait to be put on cache devices, they are fed again sooner than after l2arc_feed_secs.
    L2ARC_FEED_AGAIN = "l2arc_feed_again", Switch, 1, 0, 1, AtOnce;
    /// The least time between two feedings of cache devices while l2arc_feed_again is on. It is longer where
    /// l2arc_write_max requires that.
    L2ARC_FEED_MIN_MS = "l2arc_feed_min_ms", Milliseconds, 200, 1, 1_000_000, AtOnce;
    /// The time between two feedings of cache devices.
    L2ARC_FEED_SECS = "l2arc_feed_secs", Seconds, 1, 1, 86_400, AtOnce;
    /// How far from eviction blocks are looked for that may be put on cache devices, in multiples of what
    /// may be written; 0 looks at the whole ARC.
    L2ARC_HEADROOM = "l2arc_headroom", Count, 8, 0, 1 << 20, AtOnce;
    /// How much further than l2arc_headroom is looked while much of what is found is compressed; 100 is as
    /// far.
    L2ARC_HEADROOM_BOOST = "l2arc_headroom_boost", Percent, 200, 0, 10_000, AtOnce;
    /// The share of the ARC that headers of blocks on cache devices may take; blocks are put there no faster
    /// than this allows.
    L2ARC_META_PERCENT = "l2arc_meta_percent", Percent, 33, 0, 100, AtOnce;
    /// Which blocks are put on cache devices: 0 for all, 1 for those used again, 2 for metadata of both and
    /// data used again.
    L2ARC_MFUONLY = "l2arc_mfuonly", Count, 0, 0, 2, AtOnce;
    /// Blocks that were loaded ahead of a reader are not put on cache devices while this is not 0.
    L2ARC_NOPREFETCH = "l2arc_noprefetch", Switch, 1, 0, 1, AtOnce;
    /// Cache devices are not read while they are written, when this is not 0.
    L2ARC_NORW = "l2arc_norw", Switch, 0, 0, 1, AtOnce;
    /// Cache devices smaller than this get no log of what is on them, so they are empty after an import.
    L2ARC_REBUILD_BLOCKS_MIN_L2SIZE = "l2arc_rebuild_blocks_min_l2size", Bytes, GIB, 0, ANY, AtImport;
    /// What is on a cache device is used again after an import while this is not 0.
    L2ARC_REBUILD_ENABLED = "l2arc_rebuild_enabled", Switch, 1, 0, 1, AtImport;
    /// How much of a cache device is discarded ahead of what is written, in hundredths of
    /// l2arc_write_max; 0 discards nothing.
    L2ARC_TRIM_AHEAD = "l2arc_trim_ahead", Percent, 0, 0, 10_000, AtOnce;
    /// Bytes more than l2arc_write_max that a second may write to a cache device until it was full once.
    L2ARC_WRITE_BOOST = "l2arc_write_boost", BytesPerSecond, 32 * MIB, 0, ANY, AtOnce;
    /// Bytes that a second may write to a cache device. Large values wear out flash, and take time from
    /// reads of the device.
    L2ARC_WRITE_MAX = "l2arc_write_max", BytesPerSecond, 32 * MIB, 4 * KIB, ANY, AtOnce;
    /// Bytes that are allocated on one top-level vdev before the next one has its turn, for each of its
    /// children.
    METASLAB_ALIQUOT = "metaslab_aliquot", Bytes, 512 * KIB, 4 * KIB, GIB, AtImport;
    /// The map of a metaslab that was not used for so many groups leaves the memory.
    METASLAB_UNLOAD_DELAY = "metaslab_unload_delay", Groups, 64, 0, U32, AtOnce;
    /// The most bytes that are loaded ahead of a stream of reads; 0 for none.
    ZFETCH_MAX_DISTANCE = "zfetch_max_distance", Bytes, 16 * MIB, 0, GIB, AtOnce;
    /// The number of streams that are followed in a file or a volume by each of its users.
    ZFETCH_MAX_STREAMS = "zfetch_max_streams", Count, 8, 1, 64, ForNew;
    /// `mkdir` in `.zfs/snapshot` takes a snapshot while this is not 0, for whom the command would take it.
    ZFS_ADMIN_SNAPSHOT = "zfs_admin_snapshot", Switch, 0, 0, 1, AtOnce;
    /// The most bytes of the ARC; 0 leaves it at what `--arc-max` gave, or a quarter of the machine's memory.
    ZFS_ARC_MAX = "zfs_arc_max", Bytes, 0, LEAST_ARC_BYTES, ANY, AtOnce;
    /// How much more a block of metadata that comes back soon after its eviction counts than one of data, for
    /// the share that metadata may have of the ARC; 100 counts both the same.
    ZFS_ARC_META_BALANCE = "zfs_arc_meta_balance", Percent, 500, 1, 1_000_000, AtOnce;
    /// The ARC does not become smaller than this for the memory of others, unless its most bytes are less; 0
    /// means a thirty-second part of the machine's memory, and at least 64 MiB.
    ZFS_ARC_MIN = "zfs_arc_min", Bytes, 0, 0, ANY, AtOnce;
    /// The ARC becomes smaller when less memory than this is free; 0 means a sixty-fourth part of the
    /// machine's memory, and at least 512 MiB.
    ZFS_ARC_SYS_FREE = "zfs_arc_sys_free", Bytes, 0, 0, ANY, AtOnce;
    /// Blocks of destroyed datasets and snapshots that a group frees at most.
    ZFS_ASYNC_BLOCK_MAX_BLOCKS = "zfs_async_block_max_blocks", Count, 100_000, 1, ANY, AtOnce;
    /// Checksum errors of a vdev that become events in a second.
    ZFS_CHECKSUM_EVENTS_PER_SECOND = "zfs_checksum_events_per_second", Count, 20, 0, U32, AtOnce;
    /// Blocks that come into the ARC from now on are kept compressed, as they are in the pool, while memory
    /// is short, when this is not 0.
    ZFS_COMPRESSED_ARC_ENABLED = "zfs_compressed_arc_enabled", Switch, 1, 0, 1, ForNew;
    /// Memory that the filters of each pool may take that know of new blocks that no dedup table has them; 0
    /// for no filter.
    ZFS_DEDUP_FILTER_MAX = "zfs_dedup_filter_max", Bytes, 128 * MIB, 0, ANY, AtOnce;
    /// The most entries that a group moves from the log of a dedup table into the table.
    ZFS_DEDUP_LOG_FLUSH_ENTRIES_MAX = "zfs_dedup_log_flush_entries_max", Count, U32, 1, U32, AtOnce;
    /// The least number of entries that a group moves from the log of a dedup table into the table.
    ZFS_DEDUP_LOG_FLUSH_ENTRIES_MIN = "zfs_dedup_log_flush_entries_min", Count, 200, 1, U32, AtOnce;
    /// Groups that share the work of moving all that is in the logs of a dedup table into the table.
    ZFS_DEDUP_LOG_FLUSH_TXGS = "zfs_dedup_log_flush_txgs", Groups, 100, 1, U32, AtOnce;
    /// Memory that the entries in the logs of a dedup table may take before flushing begins early.
    ZFS_DEDUP_LOG_MEM_MAX = "zfs_dedup_log_mem_max", Bytes, 64 * MIB, MIB, ANY, AtOnce;
    /// Groups after which the log of a dedup table begins to be flushed, however short it is.
    ZFS_DEDUP_LOG_TXG_MAX = "zfs_dedup_log_txg_max", Groups, 8, 1, U32, AtOnce;
    /// Files with more blocks are deleted, cut, and made holes in parts of about so many blocks; a group
    /// frees eight such parts.
    ZFS_DELETE_BLOCKS = "zfs_delete_blocks", Count, 20_480, 1, U32, AtOnce;
    /// The most dirty data of a pool; 0 means a quarter of the ARC, at least 256 MiB and at most 4 GiB.
    ZFS_DIRTY_DATA_MAX = "zfs_dirty_data_max", Bytes, 0, 0, ANY, AtOnce;
    /// With this share of the most dirty data a group is committed before its time is over.
    ZFS_DIRTY_DATA_SYNC_PERCENT = "zfs_dirty_data_sync_percent", Percent, 25, 1, 100, AtOnce;
    /// A group frees no further blocks of destroyed datasets and snapshots, nor those that files left for
    /// later groups, after this time.
    ZFS_FREE_MIN_TIME_MS = "zfs_free_min_time_ms", Milliseconds, 1000, 1, 1_000_000, AtOnce;
    /// Stable writes of at least this size, to files and volumes, do not go through the log with their data,
    /// where there is no log device: their blocks are written at once, and the log refers to them.
    ZFS_IMMEDIATE_WRITE_SZ = "zfs_immediate_write_sz", Bytes, 32 * KIB, 0, GIB, AtOnce;
    /// Bytes that `zpool initialize` writes at a time.
    ZFS_INITIALIZE_CHUNK_SIZE = "zfs_initialize_chunk_size", Bytes, MIB, 4 * KIB, 16 * MIB, ForNew;
    /// The word that `zpool initialize` writes.
    ZFS_INITIALIZE_VALUE = "zfs_initialize_value", Count, 0xdead_beef_dead_beee, 0, u64::MAX - 1, ForNew;
    /// A clone that shares no more of what it refers to with its origin loses its livelist, and is destroyed
    /// by a search of its tree.
    ZFS_LIVELIST_MIN_PERCENT_SHARED = "zfs_livelist_min_percent_shared", Percent, 75, 0, 100, AtOnce;
    /// Deduplicated blocks that a group frees at most, of destroyed datasets and snapshots, and of what large
    /// files left for later groups.
    ZFS_MAX_ASYNC_DEDUP_FREES = "zfs_max_async_dedup_frees", Count, 250_000, 1, ANY, AtOnce;
    /// A pool with multihost protection is given up after so many intervals without a mark; 0 for never.
    ZFS_MULTIHOST_FAIL_INTERVALS = "zfs_multihost_fail_intervals", Count, 10, 0, 65_535, AtImport;
    /// For so many intervals another host's pool is watched for marks before it is imported.
    ZFS_MULTIHOST_IMPORT_INTERVALS = "zfs_multihost_import_intervals", Count, 20, 1, 100_000, AtImport;
    /// The time between two marks on a device of a pool with multihost protection.
    ZFS_MULTIHOST_INTERVAL = "zfs_multihost_interval", Milliseconds, 1000, 100, 1_000_000, AtImport;
    /// Nothing is loaded ahead of readers while this is not 0.
    ZFS_PREFETCH_DISABLE = "zfs_prefetch_disable", Switch, 0, 0, 1, AtOnce;
    /// Combinations of copies that are tried to put a block of a removed device together.
    ZFS_RECONSTRUCT_INDIRECT_COMBINATIONS_MAX =
        "zfs_reconstruct_indirect_combinations_max", Count, 4096, 0, U32, AtOnce;
    /// A resilver that has done less than this share begins anew for a device that is added, instead of
    /// leaving it to a second one.
    ZFS_RESILVER_DEFER_PERCENT = "zfs_resilver_defer_percent", Percent, 10, 0, 100, AtOnce;
    /// A resilver always begins anew for a device that is added, when this is not 0.
    ZFS_RESILVER_DISABLE_DEFER = "zfs_resilver_disable_defer", Switch, 0, 0, 1, AtOnce;
    /// The memory that pointers of a scrub or a resilver may take, as one part in so many of the machine's
    /// memory.
    ZFS_SCAN_MEM_LIM_FACT = "zfs_scan_mem_lim_fact", Count, 20, 2, U32, ForNew;
    /// Scrubs and resilvers make no progress while this is not 0.
    ZFS_SCAN_SUSPEND_PROGRESS = "zfs_scan_suspend_progress", Switch, 0, 0, 1, AtOnce;
    /// Bytes that a scrub or a resilver reads of a device at a time while nothing else uses the devices.
    ZFS_SCAN_VDEV_LIMIT = "zfs_scan_vdev_limit", Bytes, 3 * MIB, 64 * KIB, GIB, ForNew;
    /// Blocks of the error log that an error scrub reads in a step.
    ZFS_SCRUB_ERROR_BLOCKS_PER_TXG = "zfs_scrub_error_blocks_per_txg", Count, 64, 1, 65_536, AtOnce;
    /// Slow transfers of a vdev that become events in a second.
    ZFS_SLOW_IO_EVENTS_PER_SECOND = "zfs_slow_io_events_per_second", Count, 20, 0, U32, AtOnce;
    /// Free ranges shorter than this are not trimmed.
    ZFS_TRIM_EXTENT_BYTES_MIN = "zfs_trim_extent_bytes_min", Bytes, 32 * KIB, 0, GIB, AtOnce;
    /// With autotrim, freed space is trimmed once in so many groups.
    ZFS_TRIM_TXG_BATCH = "zfs_trim_txg_batch", Groups, 32, 1, 10_000, AtOnce;
    /// Groups that are remembered with their times, for `cenote counters txgs`.
    ZFS_TXG_HISTORY = "zfs_txg_history", Groups, 100, 0, 65_536, AtOnce;
    /// A group with changes is committed after this time.
    ZFS_TXG_TIMEOUT = "zfs_txg_timeout", Seconds, 5, 1, 86_400, AtOnce;
    /// Transfers of a scrub are joined to at most this size.
    ZFS_VDEV_AGGREGATION_LIMIT = "zfs_vdev_aggregation_limit", Bytes, MIB, 0, 16 * MIB, AtOnce;
    /// The number of metaslabs that a new top-level vdev gets, about.
    ZFS_VDEV_DEFAULT_MS_COUNT = "zfs_vdev_default_ms_count", Count, 200, 16, 1 << 17, ForNew;
    /// The least number of metaslabs of a new top-level vdev.
    ZFS_VDEV_MIN_MS_COUNT = "zfs_vdev_min_ms_count", Count, 16, 16, 1 << 17, ForNew;
    /// Ranges of a device that are no further apart than this are read in one transfer by a scrub.
    ZFS_VDEV_READ_GAP_LIMIT = "zfs_vdev_read_gap_limit", Bytes, 32 * KIB, 0, MIB, AtOnce;
    /// Events that are kept.
    ZFS_ZEVENT_LEN_MAX = "zfs_zevent_len_max", Count, 512, 1, 65_536, AtOnce;
    /// The largest block of an intent log, unless a single record needs a larger one.
    ZIL_MAXBLOCKSIZE = "zil_maxblocksize", Bytes, 128 * KIB, 8 * KIB, 128 * KIB, AtOnce;
    /// Transfers that take this long are slow: they are counted, and become events.
    ZIO_SLOW_IO_MS = "zio_slow_io_ms", Milliseconds, 30_000, 1, 86_400_000, AtOnce;
    /// What `volmode=default` means: 1 and 2 for a block device where the kernel has ublk, 3 for none.
    /// OpenZFS has 1; so does the configuration of the Debian package.
    ZVOL_VOLMODE = "zvol_volmode", Count, 3, 1, 3, ForNew;
}
