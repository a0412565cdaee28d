//! `memory`: where the memory of the process is.

use super::counters;

counters! {
    /// The memory of the process, in bytes. `buffers` has the blocks of the ARC, dirty data and what is on
    /// its way; `program`, `shared`, `buffers`, `buffers_kept` and `heap` together are `resident`.
    MemoryStats in "memory" {
        resident: Gauge, "Memory of the process.";
        resident_most: Gauge, "The most that it was.";
        resident_limit: Gauge, "What it is kept to: one and a half times the largest ARC, and 96 MiB.";
        program: Gauge, "Of these the program itself, as far as it was used.";
        shared: Gauge, "Memory of guests that is mapped here (vhost-user); no limit counts it.";
        buffers: Gauge, "Buffers in use that are a page or more: blocks, dirty data, requests and transfers.";
        buffers_kept: Gauge, "Such buffers kept for the next ones; what none needs goes back in 10 seconds.";
        heap: Gauge, "All else: small blocks, indexes, names, maps of free space, the allocator's own.";
        arc_blocks: Gauge, "Blocks of the ARC with their headers, in buffers and on the heap.";
        dirty: Gauge, "Dirty data, which the ARC's budget lends memory for.";
        requests: Gauge, "Memory of requests of clients of volumes under way.";
        requests_limit: Gauge, "What they share of it, beside 2 MiB for each client.";
        l2_index: Gauge, "The indexes of cache devices, which are part of the ARC's budget.";
        held_back: Gauge, "How much smaller the ARC is kept, because all else takes too much.";
    }
}
