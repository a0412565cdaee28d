//! `zil`: intent logs, of the process and of each dataset.

use super::counted;

counted! {
    /// What intent logs did.
    ZilStats by ZilCounters in "zil" {
        zil_commit_count: Counter, "Requests to make changes stable (fsync, flush, a stable write).";
        zil_commit_writer_count: Counter,
            "Batches that were written for them: fewer than requests, where callers shared one.";
        zil_commit_error_count: Counter, "Batches that failed for an error of a device.";
        zil_commit_stall_count: Counter,
            "Batches that waited for their transaction group in place of being logged.";
        zil_commit_suspend_count: Counter, "Commits while logs were suspended: always 0, as logs are not.";
        zil_commit_crash_count: Counter, "Commits of a log that was given up after a crash: always 0.";
        zil_itx_count: Counter, "Changes that went into logs.";
        zil_itx_indirect_count: Counter, "Writes that were logged by a pointer to their block.";
        zil_itx_indirect_bytes: Counter, "Bytes of these writes.";
        zil_itx_copied_count: Counter, "Writes whose data were kept with their note: always 0.";
        zil_itx_copied_bytes: Counter, "Bytes of these writes: always 0.";
        zil_itx_needcopy_count: Counter, "Writes that were logged with their data.";
        zil_itx_needcopy_bytes: Counter, "Bytes of these writes.";
        zil_itx_metaslab_normal_count: Counter,
            "Log blocks that were written to other devices than log devices.";
        zil_itx_metaslab_normal_bytes: Counter, "Bytes of records in these blocks.";
        zil_itx_metaslab_normal_write: Counter, "Sizes of these blocks.";
        zil_itx_metaslab_normal_alloc: Counter, "Space that was allocated for these blocks.";
        zil_itx_metaslab_slog_count: Counter, "Log blocks that were written to log devices.";
        zil_itx_metaslab_slog_bytes: Counter, "Bytes of records in these blocks.";
        zil_itx_metaslab_slog_write: Counter, "Sizes of these blocks.";
        zil_itx_metaslab_slog_alloc: Counter, "Space that was allocated for these blocks.";
    }
}

/// The counters of all intent logs of the process.
pub static ZIL: ZilCounters = ZilCounters::new();
