//! `vdev`: what a vdev transferred. Its histograms are in [`crate::vdev::stats`].

use super::counters;

counters! {
    /// What a vdev transferred. A top-level vdev with children counts the requests to it.
    VdevStats in "vdev" {
        reads: Counter, "Reads.";
        nread: Counter, "Bytes of these reads.";
        read_ns: Counter, "How long they took together, in nanoseconds.";
        writes: Counter, "Writes.";
        nwritten: Counter, "Bytes of these writes.";
        write_ns: Counter, "How long they took together, in nanoseconds.";
        sync_writes: Counter, "Writes that had to be durable at once. They are part of writes.";
        scrub_reads: Counter, "Reads of scrubs and resilvers. They are part of reads.";
        flushes: Counter, "Flushes.";
        flush_ns: Counter, "How long they took together, in nanoseconds.";
        trims: Counter, "Ranges that were given up.";
        ntrimmed: Counter, "Bytes of these ranges.";
        asyncq_wait_ns: Counter, "How long writes of groups waited for stable writes, in nanoseconds.";
        slow: Counter, "Transfers that took as long as zio_slow_io_ms, since errors were cleared.";
        self_healed: Counter, "Bytes that were wrong and were rewritten.";
        active: Gauge, "Transfers under way.";
        read_errors: Counter, "Reads that failed, since errors were cleared.";
        write_errors: Counter, "Writes that failed, since errors were cleared.";
        checksum_errors: Counter, "Reads with wrong bytes, since errors were cleared.";
    }
}
