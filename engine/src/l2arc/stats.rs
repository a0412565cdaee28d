//! The counters of cache devices, under the names that OpenZFS has for them in `arcstats`.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::stats::{Arcstats, Group, Kind};

/// A counter, or a sum that can shrink.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// The present value.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    pub(super) fn add(&self, by: u64) {
        self.0.fetch_add(by, Ordering::Relaxed);
    }

    pub(super) fn sub(&self, by: u64) {
        self.0.fetch_sub(by, Ordering::Relaxed);
    }
}

macro_rules! counters {
    (
        sums { $($(#[$meta:meta])* $name:ident,)* }
        averages { $($(#[$average_meta:meta])* $average:ident,)* }
        own { $($(#[$own_meta:meta])* $own:ident,)* }
    ) => {
        /// The counters of a pool's cache devices, or of one of them.
        #[derive(Debug, Default)]
        pub struct L2arcStats {
            $($(#[$meta])* pub $name: Counter,)*
            $($(#[$average_meta])* pub $average: Counter,)*
            $($(#[$own_meta])* pub $own: Counter,)*
        }

        impl L2arcStats {
            /// All zero.
            const fn new() -> Self {
                Self {
                    $($name: Counter::new(),)*
                    $($average: Counter::new(),)*
                    $($own: Counter::new(),)*
                }
            }

            /// Takes the sums of what is on devices out of others, and leaves none.
            pub(super) fn take_back(&self, others: &[&Self]) {
                $(if !only_grows(stringify!($name)) {
                    let mine = self.$name.get();
                    others.iter().chain(&[self]).for_each(|stats| stats.$name.sub(mine));
                })*
            }

            /// All counters by name.
            pub fn all(&self) -> Vec<(&'static str, u64)> {
                vec![
                    $((stringify!($name), self.$name.get()),)*
                    $((stringify!($average), self.$average.get()),)*
                    $((stringify!($own), self.$own.get()),)*
                ]
            }

            /// Shows them in `stats`.
            fn show(&self, stats: &mut Arcstats) {
                $(stats.$name = self.$name.get();)*
                $(stats.$average = self.$average.get();)*
            }
        }
    };
}

counters! {
    sums {
        /// Blocks that were read from a cache device, or should have been.
        l2_hits,
        /// Blocks that no cache device had, while there was one.
        l2_misses,
        /// Physical bytes of cached blocks that were prefetched; always 0 here.
        l2_prefetch_asize,
        /// Bytes on devices of blocks that were used once.
        l2_mru_asize,
        /// Bytes on devices of blocks that were used again.
        l2_mfu_asize,
        /// Bytes on devices of data.
        l2_bufc_data_asize,
        /// Bytes on devices of metadata.
        l2_bufc_metadata_asize,
        /// Times that a device was fed, or there was nothing for it.
        l2_feeds,
        /// Reads of blocks that were being written to a device.
        l2_rw_clash,
        /// Physical bytes read.
        l2_read_bytes,
        /// Bytes written.
        l2_write_bytes,
        /// Feeds that wrote something.
        l2_writes_sent,
        /// Those of them that have ended.
        l2_writes_done,
        /// Those of them that failed.
        l2_writes_error,
        /// Always 0 here: no lock is tried twice.
        l2_writes_lock_retry,
        /// Always 0 here: no lock is tried twice.
        l2_evict_lock_retry,
        /// Blocks that were overwritten while they were read.
        l2_evict_reading,
        /// Always 0 here: the ARC does not know what cache devices have.
        l2_evict_l1cached,
        /// Buffers that were copied for writing.
        l2_free_on_write,
        /// Feeds that were left out because the index would need too much memory.
        l2_abort_lowmem,
        /// Blocks whose bytes on a device were wrong.
        l2_cksum_bad,
        /// Reads of a device that failed.
        l2_io_error,
        /// Logical bytes of all cached blocks.
        l2_size,
        /// Physical bytes of all cached blocks.
        l2_asize,
        /// Memory of the index, in bytes.
        l2_hdr_size,
        /// Log blocks written.
        l2_log_blk_writes,
        /// Bytes of all log blocks on devices.
        l2_log_blk_asize,
        /// Log blocks on devices.
        l2_log_blk_count,
        /// Devices of which everything was found again.
        l2_rebuild_success,
        /// Headers of other pools, devices or versions.
        l2_rebuild_unsupported,
        /// Log blocks that could not be read.
        l2_rebuild_io_errors,
        /// Headers that could not be read.
        l2_rebuild_dh_errors,
        /// Log blocks with a wrong checksum.
        l2_rebuild_cksum_lb_errors,
        /// Rebuilds that ended because the index would need too much memory.
        l2_rebuild_lowmem,
        /// Logical bytes of blocks that were found again.
        l2_rebuild_size,
        /// Their bytes on devices.
        l2_rebuild_asize,
        /// Their number.
        l2_rebuild_bufs,
        /// Those of them that were known already.
        l2_rebuild_bufs_precached,
        /// Log blocks that were found again.
        l2_rebuild_log_blks,
    }
    averages {
        /// Average bytes of a log block.
        l2_log_blk_avg_asize,
        /// Average ratio of the bytes of blocks to those of their log block.
        l2_data_to_meta_ratio,
    }
    own {
        /// Reads that went to the pool because the device is slower than the pool, or busy. OpenZFS has no
        /// such counter.
        l2_bypassed,
        /// Bytes trimmed. OpenZFS has no such counter.
        l2_trim_bytes,
    }
}

/// The counters of all pools together, closed ones too, but for the memory of their indexes.
pub(super) static PROCESS: L2arcStats = L2arcStats::new();

/// Shows the counters of all pools since the process began.
pub fn show(stats: &mut Arcstats) {
    PROCESS.show(stats);
}

/// Whether a number is a counter, and not a state.
fn only_grows(name: &str) -> bool {
    Arcstats::FIELDS.iter().any(|field| field.name == name && field.kind == Kind::Counter)
}

impl Counter {
    /// Moves an average by an eighth towards `value` (`ARCSTAT_F_AVG`).
    pub(super) fn average(&self, value: u64) {
        let now = self.get();
        let next = if now == 0 { value } else { (now.saturating_mul(7).saturating_add(value)) / 8 };
        self.0.store(next, Ordering::Relaxed);
    }

    pub(super) fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }
}
