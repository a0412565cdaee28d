//! Parameters of OpenZFS that mean nothing here, and why.

const QUEUES: &str = "transfers go to the system at once, so there are no queues with limits";
const THREADS: &str = "the work is spread over threads by other rules than OpenZFS's";
const KERNEL: &str = "it steers the kernel's memory or device layer, and this is a process";
const DANGER: &str = "it risks data, and only tests of OpenZFS need it";
const TESTS: &str = "it is a hook for tests of OpenZFS";
const OTHER_WAY: &str = "this is done in another way here, without such a limit";
const CACHE: &str = "the ARC has other lists and limits than OpenZFS's; see zfs_arc_max and zfs_arc_min";
const NOT_YET: &str = "what it steers is not there yet";
const CHOICE: &str = "the fastest implementation of this processor is always used";
const ALLOCATOR: &str = "the allocator chooses in another way than OpenZFS's";
const KEPT: &str = "the daemon keeps its own records of this";
const LOGS: &str = "the log of space maps is bounded by other rules";

/// Patterns of names, the first that fits counts. A `*` at an end stands for anything.
const REFUSED: &[(&str, &str)] = &[
    ("zfs_nocacheflush", DANGER),
    ("zil_nocacheflush", DANGER),
    ("zil_replay_disable", DANGER),
    ("zfs_recover", DANGER),
    ("zfs_free_leak_on_eio", DANGER),
    ("zfs_max_missing_tvds", DANGER),
    ("zfs_removal_ignore_errors", DANGER),
    ("zfs_scan_ignore_errors", DANGER),
    ("zfs_no_scrub_io", DANGER),
    ("zfs_disable_ivset_guid_check", DANGER),
    ("zfs_send_corrupt_data", DANGER),
    ("vdev_validate_skip", DANGER),
    ("spa_load_verify_*", DANGER),
    ("zfs_vdev_*_active", QUEUES),
    ("zfs_vdev_*_dirty_percent", QUEUES),
    ("zfs_vdev_nia_*", QUEUES),
    ("zfs_vdev_mirror_*", "a mirror reads from the child that answers first by its own measurements"),
    ("zfs_vdev_raidz_impl", CHOICE),
    ("zfs_fletcher_4_impl", CHOICE),
    ("zfs_blake3_impl", CHOICE),
    ("icp_*", CHOICE),
    ("zfs_qat_*", "there is no support for this hardware"),
    ("zio_taskq_*", THREADS),
    ("zio_requeue_io_start_cut_in_line", QUEUES),
    ("zio_dva_throttle_enabled", QUEUES),
    ("zio_deadman_*", "a device that does not answer is given up by the rules of 'zpool get failmode'"),
    ("zfs_deadman_*", "a device that does not answer is given up by the rules of 'zpool get failmode'"),
    ("zfs_zil_clean_taskq_*", THREADS),
    ("zvol_*", "volumes are served by the daemon, and not by the kernel module"),
    ("zfs_abd_*", KERNEL),
    ("spl_*", KERNEL),
    ("zfs_vdev_disk_*", KERNEL),
    ("zfs_vdev_failfast_mask", KERNEL),
    ("vdev_file_*", KERNEL),
    ("zfs_arc_*", CACHE),
    ("zfs_multilist_num_sublists", CACHE),
    ("dbuf_*", "there is no cache of dbufs besides the ARC"),
    ("zfs_object_mutex_size", THREADS),
    ("zfetch_*", "streams are followed by other rules; see zfetch_max_distance and zfetch_max_streams"),
    ("dmu_prefetch_max", OTHER_WAY),
    ("zfs_delay_*", "back-pressure is by dataset, and not a delay that grows"),
    ("zfs_dirty_data_max_*", "set zfs_dirty_data_max, which has no limit besides the ARC"),
    ("zfs_dirty_data_max_percent", "set zfs_dirty_data_max, in bytes"),
    ("zfs_wrlog_data_max", OTHER_WAY),
    ("zfs_per_txg_dirty_frees_percent", "a group frees at most zfs_async_block_max_blocks"),
    ("zfs_free_min_time_ms", "a group frees at most zfs_async_block_max_blocks"),
    ("zfs_free_bpobj_enabled", TESTS),
    ("zfs_async_free_zio_wait_interval", OTHER_WAY),
    ("zfs_dedup_*", NOT_YET),
    ("ddt_*", NOT_YET),
    ("dmu_ddt_copies", NOT_YET),
    ("zfs_ddt_data_is_special", NOT_YET),
    ("zfs_max_async_dedup_frees", NOT_YET),
    ("brt_*", OTHER_WAY),
    ("zfs_bclone_*", OTHER_WAY),
    ("zfs_rebuild_*", NOT_YET),
    ("zfs_removal_*", NOT_YET),
    ("zfs_remove_*", NOT_YET),
    ("zfs_condense_*", NOT_YET),
    ("zfs_obsolete_min_time_ms", NOT_YET),
    ("vdev_removal_max_span", NOT_YET),
    ("raidz_*", NOT_YET),
    ("zfs_scrub_after_expand", NOT_YET),
    ("vdev_raidz_outlier_*", NOT_YET),
    ("vdev_read_sit_out_secs", NOT_YET),
    ("zfs_livelist_*", OTHER_WAY),
    ("zfs_lua_*", "there are no channel programs"),
    ("zfs_key_max_salt_uses", NOT_YET),
    (
        "zfs_scan_*",
        "a scan works in batches beside the groups; see zfs_scan_vdev_limit and zfs_scan_mem_lim_fact",
    ),
    ("zfs_scrub_min_time_ms", "a scan works in batches beside the groups"),
    ("zfs_resilver_min_time_ms", "a scan works in batches beside the groups"),
    ("zfs_no_scrub_prefetch", OTHER_WAY),
    ("zfs_spa_*", KEPT),
    (
        "zfs_trim_*",
        "trimming is bounded by other rules; see zfs_trim_extent_bytes_min and zfs_trim_txg_batch",
    ),
    ("zfs_unflushed_*", LOGS),
    ("zfs_max_log*", LOGS),
    ("zfs_min_metaslabs_to_flush", LOGS),
    ("zfs_keep_log_spacemaps_at_export", LOGS),
    ("metaslab_*", ALLOCATOR),
    ("zfs_metaslab_*", ALLOCATOR),
    ("zfs_mg_*", ALLOCATOR),
    ("spa_*", "pools are opened and their space is kept by rules of their own here"),
    ("zfs_special_class_metadata_reserve_pct", ALLOCATOR),
    ("zfs_user_indirect_is_special", ALLOCATOR),
    ("zfs_embedded_slog_min_ms", ALLOCATOR),
    ("zil_slog_bulk", OTHER_WAY),
    ("zil_maxcopied", OTHER_WAY),
    ("zil_special_is_slog", OTHER_WAY),
    ("zfs_commit_timeout_pct", "a log block is written as soon as a thread is free for it"),
    ("zfs_sync_pass_*", "a group ends when nothing changes any more"),
    ("zfs_send_*", OTHER_WAY),
    ("zfs_recv_*", OTHER_WAY),
    ("zfs_override_estimate_recordsize", TESTS),
    ("send_holes_without_birth_time", DANGER),
    ("zfs_pd_bytes_max", OTHER_WAY),
    ("zfs_traverse_indirect_prefetch_limit", OTHER_WAY),
    ("zfs_delete_*", OTHER_WAY),
    ("zfs_unlink_suspend_progress", TESTS),
    ("zfs_max_recordsize", "record sizes up to 16M can always be set"),
    ("zfs_max_dataset_nesting", "names are bounded by their length"),
    ("zfs_max_nvlist_src_size", KERNEL),
    ("zfs_history_output_max", OTHER_WAY),
    ("zfs_nopwrite_enabled", OTHER_WAY),
    ("zfs_default_*", OTHER_WAY),
    ("zfs_dio_*", "direct I/O of files ends in the kernel's FUSE"),
    ("zfs_vdev_direct_write_verify", "direct I/O of files ends in the kernel's FUSE"),
    ("zfs_dmu_offset_next_sync", OTHER_WAY),
    ("zfs_fallocate_reserve_percent", OTHER_WAY),
    ("zfs_admin_snapshot", "'.zfs/snapshot' takes no mkdir, mv or rmdir"),
    ("zfs_expire_snapshot", OTHER_WAY),
    ("zfs_snapshot_no_setuid", OTHER_WAY),
    ("zfs_allow_redacted_dataset_mount", NOT_YET),
    ("zfs_xattr_compat", "extended attributes have Linux's names"),
    ("zfs_zil_saxattr", OTHER_WAY),
    ("zfs_vnops_read_chunk_size", OTHER_WAY),
    ("zap_*", OTHER_WAY),
    ("dmu_object_alloc_chunk_shift", OTHER_WAY),
    ("zstd_*", OTHER_WAY),
    ("zfs_btree_verify_intensity", TESTS),
    ("reference_*", TESTS),
    ("zfs_flags", TESTS),
    ("zfs_dbgmsg_*", "messages go to the log of the daemon"),
    ("zfs_dbuf_state_index", KEPT),
    ("zfs_read_history*", KEPT),
    ("zfs_multihost_history", KEPT),
    ("zfs_zevent_retain_*", KEPT),
    ("zfs_import_defer_txgs", OTHER_WAY),
    ("zfs_vdev_*", "devices are opened, sized and divided by rules of their own here"),
];

/// Why a parameter of OpenZFS has no effect here; nothing where it has one, or is none of OpenZFS's.
pub fn refusal(name: &str) -> Option<&'static str> {
    let fits = |pattern: &str| match pattern.split_once('*') {
        None => pattern == name,
        Some((start, end)) => {
            name.len() >= start.len() + end.len() && name.starts_with(start) && name.ends_with(end)
        }
    };
    if super::ALL.iter().any(|tunable| tunable.name() == name) {
        return None;
    }
    REFUSED.iter().find(|(pattern, _)| fits(pattern)).map(|(_, reason)| *reason)
}
