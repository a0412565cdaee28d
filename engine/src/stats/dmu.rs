//! `zfetchstats`: reading ahead. `dmu_tx`: how changes begin.

use super::{Striped, counted, counters};

counters! {
    /// What the reading ahead of sequential streams did, in the whole process.
    ZfetchStats in "zfetchstats" {
        hits: Counter, "Reads that continued a stream.";
        future: Counter, "Reads that skipped ahead within a stream.";
        stride: Counter, "Reads that continued a stream with a stride.";
        past: Counter, "Reads of a block that a stream has read already, or that came a little late.";
        misses: Counter, "Reads that continued no stream, and began one.";
        max_streams: Counter, "Reads that began a stream in the place of one that was idle longest.";
        io_issued: Counter, "Blocks that were requested ahead of a stream.";
        io_active: Gauge, "Blocks that are being loaded ahead of a stream.";
    }
}

/// The counters of [`ZfetchStats`], in their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(dead_code, reason = "one name for each number, whether it is counted already or not")]
pub(crate) enum Zfetch {
    Hits,
    Future,
    Stride,
    Past,
    Misses,
    MaxStreams,
    IoIssued,
    IoActive,
}

/// Counts [`ZfetchStats`].
#[derive(Debug)]
pub struct ZfetchCounters(Striped);

/// The counters of reading ahead.
pub static ZFETCH: ZfetchCounters = ZfetchCounters(Striped::new());

impl ZfetchCounters {
    /// Adds one.
    pub(crate) fn bump(&self, what: Zfetch) {
        self.0.add(what as usize, 1);
    }

    /// This many blocks were requested ahead.
    pub(crate) fn issued(&self, blocks: u64) {
        self.0.add(Zfetch::IoIssued as usize, blocks);
        self.0.add(Zfetch::IoActive as usize, blocks);
    }

    /// Loading this many of them ended.
    pub(crate) fn loaded(&self, blocks: u64) {
        self.0.add(Zfetch::IoActive as usize, blocks.wrapping_neg());
    }

    /// The numbers now.
    pub fn snapshot(&self) -> ZfetchStats {
        let of = |what: Zfetch| self.0.get(what as usize);
        ZfetchStats {
            hits: of(Zfetch::Hits),
            future: of(Zfetch::Future),
            stride: of(Zfetch::Stride),
            past: of(Zfetch::Past),
            misses: of(Zfetch::Misses),
            max_streams: of(Zfetch::MaxStreams),
            io_issued: of(Zfetch::IoIssued),
            io_active: of(Zfetch::IoActive),
        }
    }
}

counted! {
    /// How changes began, in the whole process.
    DmuTxStats by DmuTxCounters in "dmu_tx" {
        dmu_tx_assigned: Counter, "Changes that began in a transaction group.";
        dmu_tx_delay: Counter, "Changes that waited before they began, for whatever reason.";
        dmu_tx_error: Counter, "Changes that were refused because the pool cannot commit any more.";
        dmu_tx_suspended: Counter, "Changes that were refused because the pool waits for its devices.";
        dmu_tx_group: Counter, "Changes that waited for the next group. Here no change does: always 0.";
        dmu_tx_memory_reserve: Counter,
            "Changes without memory for their data: always 0, as dirty data are lent by the ARC.";
        dmu_tx_memory_reclaim: Counter, "Changes that waited for memory to be reclaimed: always 0.";
        dmu_tx_dirty_throttle: Counter,
            "Changes that waited because the pool, or its share of the ARC, had no room for more dirty data.";
        dmu_tx_dirty_delay: Counter, "Changes that waited behind other changes of their dataset.";
        dmu_tx_dirty_over_max: Counter,
            "Changes that waited with more dirty data than the limit. Included in dmu_tx_dirty_throttle.";
        dmu_tx_dirty_frees_delay: Counter, "Changes that waited because frees filled a group: always 0.";
        dmu_tx_wrlog_delay: Counter, "Changes that waited because of the write log: always 0.";
        dmu_tx_quota: Counter, "Changes that were refused by a quota, or for want of space.";
    }
}

/// The counters of changes.
pub static DMU_TX: DmuTxCounters = DmuTxCounters::new();
