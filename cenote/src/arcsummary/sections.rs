//! The sections of the report.

use super::{INDENT, Report, bytes, hits, one, percent, share, two};

/// 2^32: shares in `arcstats` are parts of it.
const PARTS: f64 = 4_294_967_296.0;
/// The width of the graph.
const GRAPH: usize = 70;

/// A label and the name of a counter.
type Labelled = (&'static str, &'static str);

const STRUCTURE: [Labelled; 8] = [
    ("Compressed size:", "compressed_size"),
    ("Overhead size:", "overhead_size"),
    ("Bonus size:", "bonus_size"),
    ("Dnode size:", "dnode_size"),
    ("Dbuf size:", "dbuf_size"),
    ("Header size:", "hdr_size"),
    ("L2 header size:", "l2_hdr_size"),
    ("ABD chunk waste size:", "abd_chunk_waste_size"),
];

const STATES: [&str; 8] = [
    "anon_data",
    "anon_metadata",
    "mfu_data",
    "mfu_metadata",
    "mru_data",
    "mru_metadata",
    "uncached_data",
    "uncached_metadata",
];

const L2ARC_ERRORS: [Labelled; 6] = [
    ("Low memory aborts:", "l2_abort_lowmem"),
    ("Free on write:", "l2_free_on_write"),
    ("R/W clashes:", "l2_rw_clash"),
    ("Bad checksums:", "l2_cksum_bad"),
    ("Read errors:", "l2_io_error"),
    ("Write errors:", "l2_writes_error"),
];

const L2ARC_SIZES: [Labelled; 5] = [
    ("MFU allocated size:", "l2_mfu_asize"),
    ("MRU allocated size:", "l2_mru_asize"),
    ("Prefetch allocated size:", "l2_prefetch_asize"),
    ("Data (buffer content) allocated size:", "l2_bufc_data_asize"),
    ("Metadata (buffer content) allocated size:", "l2_bufc_metadata_asize"),
];

impl Report<'_> {
    fn of_size(&self, label: &str, name: &str, whole: u64) -> String {
        let number = self.arcstat(name);
        two(true, label, &share(number, whole), &bytes(number))
    }

    fn count(&self, label: &str, name: &str) -> String {
        one(true, label, &hits(self.arcstat(name)))
    }

    fn size(&self, label: &str, name: &str) -> String {
        one(true, label, &bytes(self.arcstat(name)))
    }

    /// The size and the parts of the ARC.
    pub(super) fn arc(&self) -> String {
        let [memory, size, target, most, least] =
            ["memory_all_bytes", "size", "c", "c_max", "c_min"].map(|name| self.arcstat(name));
        let mut text = "ARC status:\n".to_owned();
        text += &one(true, "Total memory size:", &bytes(memory));
        text += &two(true, "Min target size:", &share(least, memory), &bytes(least));
        text += &two(true, "Max target size:", &share(most, memory), &bytes(most));
        text += &two(true, "Target size (adaptive):", &share(size, most), &bytes(target));
        text += &two(true, "Current size:", &share(size, most), &bytes(size));
        text += &self.size("Free memory size:", "memory_free_bytes");
        text += &self.size("Available memory size:", "memory_available_bytes");
        text.push('\n');
        text += &one(false, "ARC structural breakdown (current size):", &bytes(size));
        text.extend(STRUCTURE.iter().map(|(label, name)| self.of_size(label, name, size)));
        text.push('\n');
        let cached = self.sum(&STATES);
        text += &one(false, "ARC types breakdown (compressed + overhead):", &bytes(cached));
        text += &self.of_size("Data size:", "data_size", cached);
        text += &self.of_size("Metadata size:", "metadata_size", cached);
        text.push('\n');
        text += &self.states(cached);
        text += "ARC hash breakdown:\n";
        text += &self.count("Elements:", "hash_elements");
        text += &self.count("Collisions:", "hash_collisions");
        text += &self.count("Chain max:", "hash_chain_max");
        text += &self.count("Chains:", "hash_chains");
        text.push('\n');
        text + &self.misc()
    }

    fn states(&self, cached: u64) -> String {
        let [pd, pm, meta] = ["pd", "pm", "meta"].map(|name| self.arcstat(name) as f64);
        let target = |label: &str, part: f64| {
            let target = part / 65536.0 * cached as f64 / 65536.0;
            two(true, label, &percent(part, PARTS), &bytes(target as u64))
        };
        let mut text = one(false, "ARC states breakdown (compressed + overhead):", &bytes(cached));
        text += &self.of_size("Anonymous data size:", "anon_data", cached);
        text += &self.of_size("Anonymous metadata size:", "anon_metadata", cached);
        for (list, name, data, metadata) in [
            ("MFU", "mfu", (PARTS - pd) * (PARTS - meta) / PARTS, (PARTS - pm) * meta / PARTS),
            ("MRU", "mru", pd * (PARTS - meta) / PARTS, pm * meta / PARTS),
        ] {
            for (kind, part) in [("data", data), ("metadata", metadata)] {
                text += &target(&format!("{list} {kind} target:"), part);
                text += &self.of_size(&format!("{list} {kind} size:"), &format!("{name}_{kind}"), cached);
                let evictable = format!("{name}_evictable_{kind}");
                text += &self.of_size(&format!("{list} evictable {kind} size:"), &evictable, cached);
                text += &self.size(&format!("{list} ghost {kind} size:"), &format!("{name}_ghost_{kind}"));
            }
        }
        text += &self.of_size("Uncached data size:", "uncached_data", cached);
        text += &self.of_size("Uncached metadata size:", "uncached_metadata", cached);
        text + "\n"
    }

    /// Where the memory of the process is. OpenZFS's report has no such lines.
    pub(super) fn process(&self) -> String {
        let memory = |name: &str| self.number("memory", name);
        let resident = memory("resident");
        let mut text = one(false, "Process memory breakdown:", &bytes(resident));
        for (label, name) in [
            ("Program:", "program"),
            ("Memory of guests:", "shared"),
            ("Buffers in use:", "buffers"),
            ("Buffers kept for reuse:", "buffers_kept"),
            ("All else:", "heap"),
        ] {
            text += &two(true, label, &share(memory(name), resident), &bytes(memory(name)));
        }
        text += &one(true, "Most so far:", &bytes(memory("resident_most")));
        text += &one(true, "Kept to:", &bytes(memory("resident_limit")));
        text += &one(true, "ARC kept smaller by:", &bytes(memory("held_back")));
        text + "\n"
    }

    fn misc(&self) -> String {
        let mut text = "ARC misc:\n".to_owned();
        text += &self.of_size("Uncompressed size:", "uncompressed_size", self.arcstat("compressed_size"));
        for (label, name) in [
            ("Memory throttles:", "memory_throttle_count"),
            ("Memory direct reclaims:", "memory_direct_count"),
            ("Memory indirect reclaims:", "memory_indirect_count"),
        ] {
            text += &one(true, label, &self.arcstat(name).to_string());
        }
        text += &self.count("Deleted:", "deleted");
        text += &self.count("Mutex misses:", "mutex_miss");
        text += &self.count("Eviction skips:", "evict_skip");
        text += &self.count("Eviction skips due to L2 writes:", "evict_l2_skip");
        text += &self.size("L2 cached evictions:", "evict_l2_cached");
        text += &self.size("L2 eligible evictions:", "evict_l2_eligible");
        let eligible = self.arcstat("evict_l2_eligible");
        text += &self.of_size("L2 eligible MFU evictions:", "evict_l2_eligible_mfu", eligible);
        text += &self.of_size("L2 eligible MRU evictions:", "evict_l2_eligible_mru", eligible);
        text += &self.size("L2 ineligible evictions:", "evict_l2_ineligible");
        text + "\n"
    }

    /// Hits and misses of the ARC.
    pub(super) fn archits(&self) -> String {
        let all = self.sum(&["hits", "iohits", "misses"]);
        let counted = |label: &str, name: &str, whole: u64| {
            let number = self.arcstat(name);
            two(true, label, &share(number, whole), &hits(number))
        };
        let mut text = one(false, "ARC total accesses:", &hits(all));
        text += &counted("Total hits:", "hits", all);
        text += &counted("Total I/O hits:", "iohits", all);
        text += &counted("Total misses:", "misses", all);
        text.push('\n');
        for (what, name) in [
            ("demand data", "demand_data"),
            ("demand metadata", "demand_metadata"),
            ("prefetch data", "prefetch_data"),
            ("prefetch metadata", "prefetch_metadata"),
        ] {
            let [hit, waited, missed] = ["hits", "iohits", "misses"].map(|end| format!("{name}_{end}"));
            let total = self.sum(&[&hit, &waited, &missed]);
            let mut label = what.to_owned();
            if let Some(first) = label.get_mut(..1) {
                first.make_ascii_uppercase();
            }
            text += &two(false, &format!("ARC {what} accesses:"), &share(total, all), &hits(total));
            text += &counted(&format!("{label} hits:"), &hit, total);
            text += &counted(&format!("{label} I/O hits:"), &waited, total);
            text += &counted(&format!("{label} misses:"), &missed, total);
            text.push('\n');
        }
        let prefetches = self.sum(&["predictive_prefetch", "prescient_prefetch"]);
        for what in ["predictive", "prescient"] {
            let total = self.arcstat(&format!("{what}_prefetch"));
            let [hit, waited] = ["hit", "iohit"].map(|how| format!("demand_{how}_{what}_prefetch"));
            let never = total.saturating_sub(self.sum(&[&hit, &waited]));
            text += &two(false, &format!("ARC {what} prefetches:"), &share(total, prefetches), &hits(total));
            text += &counted(&format!("Demand hits after {what}:"), &hit, total);
            text += &counted(&format!("Demand I/O hits after {what}:"), &waited, total);
            text += &two(true, &format!("Never demanded after {what}:"), &share(never, total), &hits(never));
            text.push('\n');
        }
        text += "ARC states hits of all accesses:\n";
        text += &counted("Most frequently used (MFU):", "mfu_hits", all);
        text += &counted("Most recently used (MRU):", "mru_hits", all);
        text += &counted("Most frequently used (MFU) ghost:", "mfu_ghost_hits", all);
        text += &counted("Most recently used (MRU) ghost:", "mru_ghost_hits", all);
        text += &counted("Uncached:", "uncached_hits", all);
        text + "\n"
    }

    /// Reading ahead.
    pub(super) fn dmu(&self) -> String {
        let [hit, future, stride, past, missed, most, issued] =
            ["hits", "future", "stride", "past", "misses", "max_streams", "io_issued"]
                .map(|name| self.number("zfetchstats", name));
        let all = hit + future + stride + past + missed;
        let counted =
            |label: &str, number: u64, whole: u64| two(true, label, &share(number, whole), &hits(number));
        let mut text = one(false, "DMU predictive prefetcher calls:", &hits(all));
        text += &counted("Stream hits:", hit, all);
        text += &counted("Hits ahead of stream:", future + stride, all);
        text += &counted("Hits behind stream:", past, all);
        text += &counted("Stream misses:", missed, all);
        text += &counted("Streams limit reached:", most, missed);
        text += &one(true, "Stream strides:", &hits(stride));
        text += &one(true, "Prefetches issued", &hits(issued));
        text + "\n"
    }

    /// Cache devices.
    pub(super) fn l2arc(&self) -> String {
        if self.sum(&["l2_ndev", "l2_size"]) == 0 {
            return "L2ARC not detected, skipping section\n\n".to_owned();
        }
        let errors = self.sum(&["l2_writes_error", "l2_cksum_bad", "l2_io_error"]);
        let mut text = one(false, "L2ARC status:", if errors > 0 { "DEGRADED" } else { "HEALTHY" });
        text.extend(L2ARC_ERRORS.iter().map(|(label, name)| self.count(label, name)));
        let [size, stored] = ["l2_size", "l2_asize"].map(|name| self.arcstat(name));
        text.push('\n');
        text += &one(false, "L2ARC size (adaptive):", &bytes(size));
        text += &self.of_size("Compressed:", "l2_asize", size);
        text += &self.of_size("Header size:", "l2_hdr_size", size);
        text.extend(L2ARC_SIZES.iter().map(|(label, name)| self.of_size(label, name, stored)));
        let accesses = self.sum(&["l2_hits", "l2_misses"]);
        let counted = |label: &str, name: &str| {
            let number = self.arcstat(name);
            two(true, label, &share(number, accesses), &hits(number))
        };
        text.push('\n');
        text += &one(false, "L2ARC breakdown:", &hits(accesses));
        text += &counted("Hit ratio:", "l2_hits");
        text += &counted("Miss ratio:", "l2_misses");
        text += "\nL2ARC I/O:\n";
        for (label, moved, count) in
            [("Reads:", "l2_read_bytes", "l2_hits"), ("Writes:", "l2_write_bytes", "l2_writes_sent")]
        {
            text += &two(true, label, &bytes(self.arcstat(moved)), &hits(self.arcstat(count)));
        }
        text += "\nL2ARC evicts:\n";
        text += &self.count("L1 cached:", "l2_evict_l1cached");
        text += &self.count("While reading:", "l2_evict_reading");
        text + "\n"
    }

    /// Devices of open pools.
    pub(super) fn vdev(&self) -> String {
        let mut text = "VDEV transfers (operations, bytes):\n".to_owned();
        for group in &self.vdevs {
            let (Some(pool), Some(vdev)) = (&group.pool, &group.vdev) else { continue };
            text += &format!("{}{pool} {}\n", " ".repeat(INDENT), vdev.name);
            for (label, count, moved) in [("  Reads:", "reads", "nread"), ("  Writes:", "writes", "nwritten")]
            {
                let counters = &group.counters;
                text += &two(true, label, &hits(counters.get(count)), &bytes(counters.get(moved)));
            }
        }
        text + "\n"
    }

    /// Intent logs.
    pub(super) fn zil(&self) -> String {
        let zil = |name: &str| self.number("zil", name);
        let mut text = one(false, "ZIL committed transactions:", &hits(zil("zil_itx_count")));
        text += &one(true, "Commit requests:", &hits(zil("zil_commit_count")));
        text += &one(true, "Flushes to stable storage:", &hits(zil("zil_commit_writer_count")));
        for (label, name) in [
            ("Transactions to SLOG storage pool:", "zil_itx_metaslab_slog"),
            ("Transactions to non-SLOG storage pool:", "zil_itx_metaslab_normal"),
        ] {
            let [moved, count] = ["bytes", "count"].map(|end| zil(&format!("{name}_{end}")));
            text += &two(true, label, &bytes(moved), &hits(count));
        }
        text + "\n"
    }

    /// A line that shows how full the ARC is.
    pub(super) fn graph(&self) -> String {
        let [most, size, data, metadata, dnodes] =
            ["c_max", "size", "data_size", "metadata_size", "dnode_size"].map(|name| self.arcstat(name));
        let info = format!(
            "ARC: {} ({}) Data: {} Meta: {} Dnode: {}",
            bytes(size),
            share(size, most),
            bytes(data),
            bytes(metadata),
            bytes(dnodes)
        );
        let ticks = |part: u64| part as f64 / most.max(1) as f64 * GRAPH as f64;
        let other = (ticks(size) - ticks(data) - ticks(metadata) - ticks(dnodes)).max(0.0);
        let bar: String = [('D', ticks(data)), ('M', ticks(metadata)), ('N', ticks(dnodes)), ('O', other)]
            .into_iter()
            .flat_map(|(letter, ticks)| std::iter::repeat_n(letter, ticks as usize))
            .take(GRAPH - 2)
            .collect();
        let indent = " ".repeat(4);
        let centred = " ".repeat(GRAPH.saturating_sub(info.len()) / 2);
        let edge = format!("{indent}+{}+\n", "-".repeat(GRAPH - 2));
        let inside = GRAPH - 2;
        format!("\n{indent}{centred}{info}\n{edge}{indent}|{bar:<inside$}|\n{edge}\n")
    }
}
