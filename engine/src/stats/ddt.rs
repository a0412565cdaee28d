//! `ddt`: dedup tables of a pool.

use super::counters;

counters! {
    /// The dedup tables of a pool, as of the last commit, and look-ups in them since the import.
    DdtStats in "ddt" {
        entries: Gauge, "Entries of all dedup tables, those in their logs included.";
        table_bytes: Gauge, "Bytes that the tables and logs take on vdevs.";
        memory_bytes: Gauge, "Bytes that OpenZFS would take to hold all of them in memory.";
        logged_entries: Gauge, "Entries in the logs, which are not in the tables yet.";
        flushing_entries: Gauge, "Those of them that are being moved into the tables.";
        filter_bytes: Gauge, "Bytes of memory of filters that know of new blocks that no table has them.";
        surely_new: Counter, "Look-ups that such a filter answered.";
        found: Counter, "Look-ups in a table that found an entry.";
        not_found: Counter, "Look-ups in a table in vain.";
        cached_bytes: Gauge, "Bytes of the ARC that blocks of the tables and logs take.";
        stored_blocks: Gauge, "Deduplicated blocks that are stored.";
        stored_bytes: Gauge, "Bytes that these take.";
        references: Gauge, "References to these blocks.";
        referenced_bytes: Gauge, "Bytes that they would take if each reference had a block of its own.";
    }
}
