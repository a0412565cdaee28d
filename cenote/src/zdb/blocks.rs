//! `-b`, `-c`: the traversal of the pool, its statistics and what it found wrong.
//!
//! The work is done by [`engine::pool::verify`]; here it is started, followed by a progress bar, and its
//! report is laid out as `zdb -b` lays out its own: the summary, with `-bb` the table by type of object and
//! the histogram of sizes, with `-bbb` the levels too.

use std::collections::{BTreeMap, BTreeSet};
use std::io::IsTerminal;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Result, bail};
use engine::pool::verify::{
    self, BlockKind, BlockStats, Counters, Depth, Progress, Range, Report, Simulated, VerifyOptions, verify,
};
use engine::vdev::{Class, Kind};
use indicatif::{ProgressBar, ProgressStyle};
use ondisk::dmu::DmuType;
use serde_json::{Value, json};

use super::{Out, View};

/// How often the progress bar is brought up to date.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(100);
/// Powers of two in the histogram of sizes: 512 bytes to 16 MiB.
const HISTOGRAM: std::ops::RangeInclusive<usize> = 9..=24;
/// Most damaged blocks and ranges that are listed.
const MAX_LISTED: usize = 100;

/// Traverses the pool and shows what was found. An error when something is wrong with the pool.
pub(super) fn dump(view: &View<'_>, out: &mut Out<'_>) -> Result<()> {
    let arguments = view.arguments;
    writeln!(
        out,
        "\nTraversing all blocks {}{}{}{}{}...\n",
        if arguments.checksums > 0 || !arguments.ignore_leaks { "to verify " } else { "" },
        if arguments.checksums == 1 { "metadata " } else { "" },
        if arguments.checksums > 0 { "checksums " } else { "" },
        if arguments.checksums > 0 && !arguments.ignore_leaks { "and verify " } else { "" },
        if arguments.ignore_leaks { "" } else { "nothing leaked " },
    )?;
    out.flush()?;
    let report = traverse(view)?;
    write_errors(&report, out)?;
    write_space(&report, out)?;
    write_summary(view, &report, out)?;
    if arguments.blocks >= 2 {
        write_table(view, &report.stats, out)?;
        write_histogram(view, &report.stats, out)?;
    }
    writeln!(out)?;
    verdict(&report)
}

/// `-y`: space maps that contradict themselves, and blocks of destroyed clones that are not allocated.
pub(super) fn check_livelists(view: &View<'_>, out: &mut Out<'_>) -> Result<()> {
    writeln!(out, "Verifying deleted livelist entries")?;
    writeln!(out, "Verifying metaslab entries")?;
    let wrong = device::block_on(verify::livelists_not_allocated(view.dsl.pool()))?;
    for dva in &wrong {
        writeln!(
            out,
            "ERROR: <{}:{:x}:{:x}> waits to be freed and is not allocated",
            dva.vdev.get(),
            dva.offset.get(),
            dva.asize.get()
        )?;
    }
    match wrong.len() {
        0 => Ok(()),
        count => bail!("{count} blocks of destroyed clones are not allocated"),
    }
}

/// Traverses the pool, with a progress bar on a terminal.
pub(super) fn traverse(view: &View<'_>) -> Result<Report> {
    let arguments = view.arguments;
    let defaults = VerifyOptions::default();
    let options = VerifyOptions {
        threads: arguments.threads.unwrap_or(defaults.threads),
        depth: match arguments.checksums {
            0 => Depth::Structure,
            1 => Depth::Metadata,
            _ => Depth::Everything,
        },
        check_space: !arguments.ignore_leaks,
    };
    followed(view, |progress| Ok(verify(view.dsl.pool(), options, progress)?))
}

/// Traverses the pool for what a dedup table of all data would hold, by a sample of `most` blocks.
pub(super) fn simulate_dedup(view: &View<'_>, most: usize) -> Result<Simulated> {
    let threads = view.arguments.threads.unwrap_or(VerifyOptions::default().threads);
    followed(view, |progress| Ok(verify::simulate_dedup(view.dsl.pool(), threads, most, progress)?))
}

/// Does what traverses the pool, with a progress bar beside it.
fn followed<T>(view: &View<'_>, traverse: impl FnOnce(&Progress) -> Result<T>) -> Result<T> {
    let expected = device::block_on(view.dsl.pool_space())?.allocated_bytes();
    let progress = Progress::default();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let bar = scope.spawn(|| follow(&progress, expected, &done));
        let found = traverse(&progress);
        done.store(true, Ordering::Relaxed);
        bar.thread().unpark();
        found
    })
}

/// Shows how far the traversal is, until it is done.
fn follow(progress: &Progress, expected: u64, done: &AtomicBool) {
    if !std::io::stderr().is_terminal() {
        return;
    }
    let bar = ProgressBar::new(expected);
    let style = "{bar:32} {binary_bytes}/{binary_total_bytes} {binary_bytes_per_sec}, {eta} left{msg}";
    bar.set_style(ProgressStyle::with_template(style).unwrap_or_else(|_| ProgressStyle::default_bar()));
    while !done.load(Ordering::Relaxed) {
        let met = progress.asize.load(Ordering::Relaxed);
        bar.set_length(expected.max(met));
        bar.set_position(met);
        match progress.errors.load(Ordering::Relaxed) {
            0 => {}
            errors => bar.set_message(format!(", {errors} damaged")),
        }
        std::thread::park_timeout(PROGRESS_INTERVAL);
    }
    bar.finish_and_clear();
}

/// What is wrong, in one line.
pub(super) fn verdict(report: &Report) -> Result<()> {
    let space = report.space.as_ref();
    let leaked = space.map_or(0, |space| space.leaked_bytes);
    let misplaced = space.map_or(0, |space| space.unallocated_bytes.saturating_add(space.shared_bytes));
    match (report.unreadable_blocks, report.damaged_blocks, misplaced, leaked) {
        _ if report.cancelled => bail!("the traversal was ended early"),
        (0, 0, 0, 0) => Ok(()),
        (0, 0, 0, leaked) => bail!("{leaked} bytes are allocated and nothing refers to them"),
        (0, 0, misplaced, _) => bail!("{misplaced} bytes of blocks are free space, or claimed twice"),
        (0, damaged, ..) => bail!("{damaged} blocks are damaged in some copy or parity; all can be read"),
        (unreadable, ..) => bail!("{unreadable} blocks cannot be read"),
    }
}

fn write_errors(report: &Report, out: &mut Out<'_>) -> Result<()> {
    for error in report.errors.iter().take(MAX_LISTED) {
        let Some(fatal) = &error.fatal else {
            writeln!(out, "{}: damaged, and can be read", error.at)?;
            for attempt in &error.tried {
                writeln!(out, "\t{attempt}")?;
            }
            continue;
        };
        // Tells the block and what was tried.
        writeln!(out, "{fatal}")?;
    }
    for note in &report.notes {
        writeln!(out, "{note}")?;
    }
    let all = report.unreadable_blocks + report.damaged_blocks;
    if all > MAX_LISTED as u64 {
        writeln!(out, "... and {} more", all - MAX_LISTED as u64)?;
    }
    if all > 0 {
        writeln!(out, "\nError counts:\n")?;
        writeln!(out, "\t{:>14}  blocks that cannot be read", report.unreadable_blocks)?;
        writeln!(out, "\t{:>14}  blocks of which some copy or parity is wrong", report.damaged_blocks)?;
    }
    Ok(())
}

fn write_space(report: &Report, out: &mut Out<'_>) -> Result<()> {
    let Some(space) = &report.space else { return Ok(()) };
    if space.is_clean() {
        writeln!(out, "\n\tNo leaks (block sum matches space maps exactly)")?;
        return Ok(());
    }
    let mut list = |what: &str, bytes: u64, ranges: &[Range]| -> Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        writeln!(out, "\n\t{bytes} bytes {what}:")?;
        for range in ranges.iter().take(MAX_LISTED) {
            let (vdev, start, size) = (range.vdev, range.start, range.end.saturating_sub(range.start));
            writeln!(out, "\tvdev {vdev}, offset 0x{start:x}, size 0x{size:x}")?;
        }
        Ok(())
    };
    list("leaked: allocated, and nothing refers to them", space.leaked_bytes, &space.leaked)?;
    list("of blocks lie in free space", space.unallocated_bytes, &space.unallocated)?;
    list("belong to more than one block", space.shared_bytes, &space.shared)
}

fn write_summary(view: &View<'_>, report: &Report, out: &mut Out<'_>) -> Result<()> {
    let (stats, total) = (&report.stats, report.stats.total());
    let average = |bytes: u64| bytes.checked_div(total.count).unwrap_or(0);
    writeln!(out)?;
    writeln!(out, "\t{:<16} {:>14}", "bp count:", total.count)?;
    writeln!(out, "\t{:<16} {:>14}", "ganged count:", total.gangs)?;
    writeln!(out, "\t{:<16} {:>14}      avg: {:>6}", "bp logical:", total.lsize, average(total.lsize))?;
    for (name, bytes) in [("bp physical:", total.psize), ("bp allocated:", total.asize)] {
        let compression = ratio(total.lsize, bytes);
        writeln!(
            out,
            "\t{name:<16} {bytes:>14}      avg: {:>6}     compression: {compression:>6.2}",
            average(bytes)
        )?;
    }
    writeln!(
        out,
        "\t{:<16} {:>14}    ref>1: {:>6}   deduplication: {:>6.2}",
        "bp deduped:",
        stats.dedup_asize,
        stats.dedup_blocks,
        ratio(stats.dedup_asize, total.asize) + 1.0
    )?;
    writeln!(out, "\t{:<16} {:>14}    count: {:>6}", "bp cloned:", stats.cloned_asize, stats.cloned_blocks)?;
    write_classes(view, out)?;
    for (kind, count) in stats.embedded.iter().enumerate().filter(|(_, count)| **count > 0) {
        writeln!(out, "\n\tadditional, non-pointer bps of type {kind}: {count:>10}")?;
    }
    if total.ditto_same_vdev > 0 {
        writeln!(out, "\tDittoed blocks on same vdev: {}", total.ditto_same_vdev)?;
    }
    if total.ditto_same_metaslab > 0 {
        writeln!(out, "\tDittoed blocks in same metaslab: {}", total.ditto_same_metaslab)?;
    }
    for vdev in &view.dsl.pool().vdevs().tops {
        if let Kind::Indirect(moved) = &vdev.kind {
            let segments = moved.get().map_or(0, |moved| moved.mapping.entries().len());
            writeln!(out, "\tindirect vdev id {} has {segments} segments", vdev.id)?;
        }
    }
    let seconds = report.elapsed.as_secs_f64();
    let rate = ratio(total.asize, 1 << 20) / seconds.max(1e-9);
    writeln!(out, "\n\ttraversed in {seconds:.2} s: {rate:.0} MiB/s of allocated space")?;
    Ok(())
}

fn write_classes(view: &View<'_>, out: &mut Out<'_>) -> Result<()> {
    let space = device::block_on(view.dsl.pool_space())?;
    let classes =
        [(Class::Normal, "Normal class:"), (Class::Special, "Special class"), (Class::Dedup, "Dedup class")];
    for (class, name) in classes {
        let of_class = || space.vdevs.iter().filter(|vdev| vdev.class == class);
        let sum = |bytes: fn(&engine::dsl::pool_space::VdevSpace) -> u64| {
            of_class().map(bytes).fold(0, u64::saturating_add)
        };
        let (allocated, size) = (sum(|vdev| vdev.allocated_bytes), sum(|vdev| vdev.size_bytes));
        if class == Class::Normal || size > 0 {
            let used = 100.0 * ratio(allocated, size);
            writeln!(out, "\t{name:<16} {allocated:>14}     used: {used:>5.2}%")?;
        }
    }
    Ok(())
}

/// The rows of the table: all numbered types, then those of `zdb` itself.
fn rows() -> impl Iterator<Item = (Option<BlockKind>, &'static str)> {
    let types = (0..DmuType::NUMBERED).filter_map(|raw| DmuType::from_raw(raw).ok());
    let types = types.map(|ty| (Some(BlockKind::Type(ty)), ty.name()));
    types.chain([
        (Some(BlockKind::DeferredFree), "deferred free"),
        // No pool that can be opened has these.
        (None, "dedup ditto"),
        (Some(BlockKind::Other), "other"),
    ])
}

fn write_table(view: &View<'_>, stats: &BlockStats, out: &mut Out<'_>) -> Result<()> {
    let total = stats.total();
    let mut by_kind: BTreeMap<BlockKind, Vec<(i8, &Counters)>> = BTreeMap::new();
    for (kind, level, counters) in stats.levels() {
        by_kind.entry(kind).or_default().push((level, counters));
    }
    writeln!(out, "\nBlocks\tLSIZE\tPSIZE\tASIZE\t  avg\t comp\t%Total\tType")?;
    for (kind, name) in rows() {
        let sum = kind.map(|kind| stats.kind(kind)).unwrap_or_default();
        if sum.asize == 0 {
            writeln!(out, "     -\t    -\t    -\t    -\t    -\t    -\t     -\t{name}")?;
            continue;
        }
        let levels = kind.and_then(|kind| by_kind.get(&kind)).filter(|_| view.arguments.blocks >= 3);
        for (level, counters) in levels.into_iter().flatten().rev() {
            // Where all is data, the sum says the same.
            if counters.asize > 0 && !(*level == 0 && counters.asize == sum.asize) {
                write_row(view, counters, &total, &format!("    L{level} {name}"), out)?;
            }
        }
        write_row(view, &sum, &total, name, out)?;
    }
    if view.arguments.blocks >= 3 {
        let levels: BTreeSet<i8> = stats.levels().map(|(_, level, _)| level).collect();
        for level in levels.into_iter().rev() {
            let sum = stats.level(level);
            if sum.asize > 0 && sum.asize < total.asize {
                write_row(view, &sum, &total, &format!("    L{level} Total"), out)?;
            }
        }
    }
    write_row(view, &total, &total, "Total", out)?;
    write_row(view, &stats.metadata(), &total, "Metadata Total", out)
}

fn write_row(view: &View<'_>, row: &Counters, total: &Counters, name: &str, out: &mut Out<'_>) -> Result<()> {
    let show = |value| view.numbers.show(value);
    writeln!(
        out,
        "{:>6}\t{:>5}\t{:>5}\t{:>5}\t{:>5}\t{:>5.2}\t{:>6.2}\t{name}",
        show(row.count),
        show(row.lsize),
        show(row.psize),
        show(row.asize),
        show(row.asize.checked_div(row.count).unwrap_or(0)),
        ratio(row.lsize, row.psize),
        100.0 * ratio(row.asize, total.asize),
    )?;
    if view.arguments.blocks >= 3 && row.gangs > 0 {
        writeln!(out, "\t number of ganged blocks: {}", show(row.gangs))?;
    }
    Ok(())
}

fn write_histogram(view: &View<'_>, stats: &BlockStats, out: &mut Out<'_>) -> Result<()> {
    writeln!(out, "\nBlock Size Histogram\n")?;
    let columns = [("psize", &stats.psizes), ("lsize", &stats.lsizes), ("asize", &stats.asizes)];
    writeln!(out, "{:>7}   {:<7}              {:<7}              asize", "block", "psize", "lsize")?;
    write!(out, "{:>7} ", "size")?;
    for _ in columns {
        write!(out, "{:>7}{:>7}{:>7}", "Count", "Size", "Cum.")?;
    }
    writeln!(out)?;
    let mut cumulative = [0u64; 3];
    for power in HISTOGRAM {
        write!(out, "{:>7}:", view.numbers.show(1 << power))?;
        for ((_, histogram), cumulative) in columns.iter().zip(&mut cumulative) {
            let count = histogram.count.get(power).copied().unwrap_or(0);
            let bytes = histogram.bytes.get(power).copied().unwrap_or(0);
            *cumulative = cumulative.saturating_add(bytes);
            for value in [count, bytes, *cumulative] {
                write!(out, "{:>7}", view.numbers.show(value))?;
            }
        }
        writeln!(out)?;
    }
    Ok(())
}

/// The report for programs.
pub(super) fn json(report: &Report) -> Value {
    let counters = |row: &Counters| {
        json!({
            "count": row.count,
            "lsize": row.lsize,
            "psize": row.psize,
            "asize": row.asize,
            "gangs": row.gangs,
        })
    };
    let mut by_type = serde_json::Map::new();
    for (kind, name) in rows() {
        let Some(kind) = kind else { continue };
        let levels: serde_json::Map<String, Value> = report
            .stats
            .levels()
            .filter(|(of, ..)| *of == kind)
            .map(|(_, level, row)| (level.to_string(), counters(row)))
            .collect();
        if !levels.is_empty() {
            let mut row = counters(&report.stats.kind(kind));
            row["levels"] = Value::Object(levels);
            by_type.insert(name.into(), row);
        }
    }
    let ranges = |ranges: &[Range]| -> Value {
        ranges
            .iter()
            .map(|range| json!({"vdev": range.vdev, "start": range.start, "end": range.end}))
            .collect()
    };
    let errors = report.errors.iter().map(|error| {
        json!({
            "objset": error.at.objset,
            "object": error.at.object,
            "level": error.at.level,
            "block": error.at.blkid,
            "readable": error.fatal.is_none(),
            "error": error.fatal.as_ref().map(ToString::to_string),
            "tried": error.tried.iter().map(ToString::to_string).collect::<Vec<_>>(),
        })
    });
    json!({
        "total": counters(&report.stats.total()),
        "metadata": counters(&report.stats.metadata()),
        "by_type": by_type,
        "embedded": report.stats.embedded,
        "deduplicated": {"blocks": report.stats.dedup_blocks, "asize": report.stats.dedup_asize},
        "cloned": {"blocks": report.stats.cloned_blocks, "asize": report.stats.cloned_asize},
        "unreadable_blocks": report.unreadable_blocks,
        "damaged_blocks": report.damaged_blocks,
        "notes": report.notes,
        "errors": errors.collect::<Vec<_>>(),
        "space": report.space.as_ref().map(|space| json!({
            "clean": space.is_clean(),
            "allocated": space.allocated_bytes,
            "checkpoint": space.checkpoint_bytes,
            "leaked": {"bytes": space.leaked_bytes, "ranges": ranges(&space.leaked)},
            "unallocated": {"bytes": space.unallocated_bytes, "ranges": ranges(&space.unallocated)},
            "shared": {"bytes": space.shared_bytes, "ranges": ranges(&space.shared)},
        })),
        "seconds": report.elapsed.as_secs_f64(),
    })
}

fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}
