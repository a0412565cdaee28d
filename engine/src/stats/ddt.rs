//! `ddt`: dedup tables of a pool.

use super::counters;

counters! {
    /// The dedup tables of a pool, as of the last commit.
    DdtStats in "ddt" {
        entries: Gauge, "Entries of all dedup tables, those in their logs included.";
        table_bytes: Gauge, "Bytes that the tables and logs take on vdevs.";
        memory_bytes: Gauge, "Bytes that OpenZFS would take to hold all of them in memory.";
        cached_bytes: Gauge, "Bytes of the ARC that blocks of the tables and logs take.";
        stored_blocks: Gauge, "Deduplicated blocks that are stored.";
        stored_bytes: Gauge, "Bytes that these take.";
        references: Gauge, "References to these blocks.";
        referenced_bytes: Gauge, "Bytes that they would take if each reference had a block of its own.";
    }
}
