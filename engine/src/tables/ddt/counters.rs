//! Counters of look-ups in the dedup tables of a pool.

use std::sync::atomic::{AtomicU64, Ordering};

use super::table::Found;

/// What became of look-ups of keys that were not in memory, since the import.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DedupCounters {
    /// Keys that the filter knew to be new: nothing was read.
    pub surely_new: u64,
    /// Keys that were looked for in the ZAPs and found.
    pub found: u64,
    /// Keys that were looked for in the ZAPs in vain.
    pub not_found: u64,
    /// Whether there is a filter.
    pub has_filter: bool,
    /// Bytes of memory of filters.
    pub filter_bytes: u64,
    /// Entries in the logs.
    pub logged_entries: u64,
    /// Those of them that are being moved into the ZAPs.
    pub flushing_entries: u64,
}

#[derive(Debug, Default)]
pub(super) struct Counters {
    pub surely_new: AtomicU64,
    found: AtomicU64,
    not_found: AtomicU64,
}

impl Counters {
    /// These keys were looked for in the ZAPs.
    pub(super) fn read(&self, keys: &[Found]) {
        let found = keys.iter().filter(|(_, found)| found.is_some()).count() as u64;
        self.found.fetch_add(found, Ordering::Relaxed);
        self.not_found.fetch_add(keys.len() as u64 - found, Ordering::Relaxed);
    }

    /// As of now, without what filters and logs say.
    pub(super) fn get(&self) -> DedupCounters {
        DedupCounters {
            surely_new: self.surely_new.load(Ordering::Relaxed),
            found: self.found.load(Ordering::Relaxed),
            not_found: self.not_found.load(Ordering::Relaxed),
            ..DedupCounters::default()
        }
    }
}
