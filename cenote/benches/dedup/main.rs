//! Deduplicated writes and deletions beside plain ones, and beside OpenZFS's own engine, as ratios of one
//! run.
//!
//!     CENOTE_BENCH_DIR=DIR cargo bench -p cenote --bench dedup
//!
//! `DIR` is on a file system that takes direct I/O, and has 20 GiB free; with `CENOTE_BENCH_QUICK=1` 3 GiB
//! are enough, and figures scatter. `CENOTE_BENCH_ROWS` names parts by a piece of their names, if not all.
//! With `CENOTE_OZBENCH` (the path of a program that drives OpenZFS's engine in userspace, as `--bench
//! writes` describes it) that engine runs beside. It writes only data that never occurred before.
//!
//! - `writes of 128K`, `writes of 8K`: writes with `dedup=off`, `on` (SHA-256), `verify` and `blake3`, of data
//!   that never occurred before and of data that are stored already; the table fits into memory.
//! - `curve`: 4K writes of new data while the table grows to four times the ARC, by its size in memory, and
//!   plain writes to a pool of the same age.
//! - `scale`: a table of 33.6 million entries, simulated: rate of inserts, memory, import.
//!   `CENOTE_BENCH_ENTRIES` is another number.
//! - `rm`: the 99th percentile of reads and of stable writes of a volume, idle and while a large file is
//!   deleted, plain and deduplicated: of 10 GiB, or of `CENOTE_BENCH_FILE_MIB`.
//!
//! A row of `writes` has a new pool in each round, and variants take turns; the table has medians. All rates
//! include the commit at their end.

mod beside;
mod pools;
mod scale;

#[path = "../../../engine/benches/support/mod.rs"]
#[allow(dead_code, reason = "its volumes have no dedup")]
mod support;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use device::block_on;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;

use self::pools::{Bed, Contents};

/// As in the product.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const DEDUPS: [&str; 4] = ["off", "on", "verify", "blake3"];
/// Writes under way.
const DEPTH: usize = 16;
/// Blocks that are written again and again as data that are stored already.
const KNOWN_BLOCKS: u64 = 1024;

/// How much is done.
pub struct Scale {
    dir: PathBuf,
    ozbench: Option<PathBuf>,
    rounds: usize,
    seconds: u64,
    /// The ARC of the curve; its table grows to four times that.
    small_arc_bytes: u64,
    /// The file that is deleted.
    file_bytes: u64,
    /// Entries of the table that is simulated, and its ARC.
    entries: u64,
    large_arc_bytes: u64,
}

/// A part of the bench: it measures and prints its table.
type Part = fn(&Scale);

fn main() {
    let Some(dir) = std::env::var_os("CENOTE_BENCH_DIR").map(PathBuf::from) else {
        println!("set CENOTE_BENCH_DIR to a directory with 20 GiB free");
        return;
    };
    let ozbench = std::env::var_os("CENOTE_OZBENCH").map(PathBuf::from);
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let is_quick = std::env::var_os("CENOTE_BENCH_QUICK").is_some();
    let whole = Scale {
        dir,
        ozbench,
        rounds: 3,
        seconds: 5,
        small_arc_bytes: 64 << 20,
        file_bytes: number("CENOTE_BENCH_FILE_MIB").unwrap_or(10 << 10) << 20,
        entries: number("CENOTE_BENCH_ENTRIES").unwrap_or(33_600_000),
        large_arc_bytes: 4 << 30,
    };
    let scale = match is_quick {
        true => Scale {
            rounds: 1,
            seconds: 2,
            small_arc_bytes: 8 << 20,
            file_bytes: number("CENOTE_BENCH_FILE_MIB").unwrap_or(512) << 20,
            entries: number("CENOTE_BENCH_ENTRIES").unwrap_or(400_000),
            large_arc_bytes: 256 << 20,
            ..whole
        },
        false => whole,
    };
    let wanted = std::env::var("CENOTE_BENCH_ROWS").unwrap_or_default();
    let parts: [(&str, Part); 5] = [
        ("writes of 128K", |scale| writes(scale, 128 << 10)),
        ("writes of 8K", |scale| writes(scale, 8 << 10)),
        ("curve", curve),
        ("rm", rm),
        ("scale", scale::scale),
    ];
    for (name, part) in parts.into_iter().filter(|(name, _)| name.contains(&wanted)) {
        println!("{name}:");
        part(&scale);
    }
}

fn median(all: &mut [f64]) -> Option<f64> {
    all.sort_by(f64::total_cmp);
    all.get(all.len() / 2).copied()
}

fn shown(figure: Option<f64>) -> String {
    figure.map_or("-".into(), |figure| format!("{figure:.0}"))
}

fn ratio(part: Option<f64>, whole: Option<f64>) -> String {
    match (part, whole) {
        (Some(part), Some(whole)) => format!("{:.2}", part / whole),
        _ => "-".into(),
    }
}

fn writes(scale: &Scale, block_bytes: u64) {
    println!(
        "{:<21} {:>7} {:>7} {:>7} {:>7} {:>7} {:>7} {:>7} {:>8} {:>7} {:>7} {:>7}",
        "operations a second",
        "off",
        "on",
        "verify",
        "blake3",
        "on/off",
        "ver/off",
        "b3/off",
        "ozfs off",
        "ozfs on",
        "ozfs",
        "on/ozfs"
    );
    for contents in [Contents::New, Contents::Known] {
        let mut rates = [const { Vec::new() }; 6];
        for _ in 0..scale.rounds {
            for (rates, dedup) in rates.iter_mut().zip(DEDUPS) {
                rates.push(write_rate(scale, block_bytes, contents, dedup));
            }
            if contents == Contents::New {
                for (rates, dedup) in rates.iter_mut().skip(DEDUPS.len()).zip(DEDUPS) {
                    rates.extend(beside::write_rate(scale, block_bytes, dedup));
                }
            }
        }
        let [off, on, verify, blake3, their_off, their_on] = rates.map(|mut all| median(&mut all));
        println!(
            "{:<21} {:>7} {:>7} {:>7} {:>7} {:>7} {:>7} {:>7} {:>8} {:>7} {:>7} {:>7}",
            format!("{}K, {}", block_bytes >> 10, contents.name()),
            shown(off),
            shown(on),
            shown(verify),
            shown(blake3),
            ratio(on, off),
            ratio(verify, off),
            ratio(blake3, off),
            shown(their_off),
            shown(their_on),
            ratio(their_on, their_off),
            ratio(on, their_on),
        );
    }
}

/// Writes a second, with the commit.
fn write_rate(scale: &Scale, block_bytes: u64, contents: Contents, dedup: &str) -> f64 {
    let bed = Bed::new(&scale.dir, 1 << 30);
    let volume_bytes = 2 << 30;
    let volume = bed.volume("bench/vol", volume_bytes, block_bytes, dedup);
    let slots = volume_bytes / block_bytes;
    if contents == Contents::Known {
        let first = bed.volume("bench/first", KNOWN_BLOCKS * block_bytes, block_bytes, dedup);
        block_on(pools::write_all(&first, block_bytes, 0..KNOWN_BLOCKS, |block| block));
        bed.commit();
    }
    let began = Instant::now();
    let mut number = 0;
    let done = block_on(async {
        let mut flying = FuturesUnordered::new();
        while began.elapsed() < Duration::from_secs(scale.seconds) || !flying.is_empty() {
            while flying.len() < DEPTH && began.elapsed() < Duration::from_secs(scale.seconds) {
                let (volume, slot) = (&volume, number % slots);
                let bytes = pools::block(contents.of(number), block_bytes);
                flying.push(async move { volume.write_at(slot * block_bytes, &bytes, false).await });
                number += 1;
            }
            flying.next().await.transpose().expect("a write");
        }
        number
    });
    bed.commit();
    let rate = done as f64 / began.elapsed().as_secs_f64();
    drop(volume);
    bed.end();
    rate
}

fn curve(scale: &Scale) {
    const BLOCK: u64 = 4096;
    println!(
        "{:>9} {:>10} {:>10} {:>10} {:>10} {:>8}   the ARC has {} MiB",
        "table/ARC",
        "entries",
        "MiB",
        "writes/s",
        "plain/s",
        "ratio",
        scale.small_arc_bytes >> 20
    );
    // More than the largest table has entries.
    let most = 4 * scale.small_arc_bytes / 64;
    let beds = ["on", "off"].map(|dedup| {
        let dir = scale.dir.join(dedup);
        std::fs::create_dir_all(&dir).expect("a directory in CENOTE_BENCH_DIR");
        let bed = Bed::new(&dir, scale.small_arc_bytes);
        let volume = bed.volume("bench/vol", most * BLOCK, BLOCK, dedup);
        (bed, volume)
    });
    let step = (scale.small_arc_bytes / 8 / 192).max(1);
    let (mut written, mut next) = (0, 0.25);
    while written + step <= most {
        let [on, off] = beds.each_ref().map(|(bed, volume)| {
            let began = Instant::now();
            block_on(pools::write_all(volume, BLOCK, written..written + step, |block| block));
            bed.commit();
            step as f64 / began.elapsed().as_secs_f64()
        });
        written += step;
        let table = beds[0].0.table();
        let share = table.memory_bytes as f64 / scale.small_arc_bytes as f64;
        if share >= next {
            println!(
                "{share:>9.2} {:>10} {:>10} {on:>10.0} {off:>10.0} {:>8.2}",
                table.entries,
                table.memory_bytes >> 20,
                on / off
            );
            next *= 2.0;
        }
        if share >= 4.0 {
            break;
        }
    }
    for (bed, volume) in beds {
        drop(volume);
        bed.end();
    }
    beside::curve(scale, written, BLOCK);
}

fn rm(scale: &Scale) {
    println!(
        "{:<8} {:>9} {:>9} {:>6} {:>9} {:>9} {:>6} {:>9} {:>9}",
        "file", "reads us", "during", "ratio", "stable us", "during", "ratio", "worst ms", "freed s"
    );
    for dedup in ["off", "on"] {
        let bed = Bed::new(&scale.dir, 1 << 30);
        let volume = bed.volume("bench/vol", 256 << 20, 8 << 10, "off");
        block_on(pools::write_all(&volume, 8 << 10, 0..32 << 10, |block| block + (1 << 40)));
        bed.commit();
        let before = bed.allocated_bytes();
        let files = bed.file("bench/files", "large", scale.file_bytes, dedup);
        let idle = pools::foreground(&volume, Duration::from_secs(scale.seconds), || false);
        let began = Instant::now();
        let mut freed = None;
        let busy = std::thread::scope(|scope| {
            let remove = scope.spawn(|| files.remove("large"));
            let busy = pools::foreground(&volume, Duration::from_secs(120), || {
                if bed.allocated_bytes() < before + (64 << 20) {
                    freed.get_or_insert(began.elapsed().as_secs_f64());
                }
                freed.is_some()
            });
            remove.join().expect("the file is removed");
            busy
        });
        println!(
            "{:<8} {:>9.0} {:>9.0} {:>6.2} {:>9.0} {:>9.0} {:>6.2} {:>9.0} {:>9}",
            if dedup == "off" { "plain" } else { "dedup" },
            idle.reads_us,
            busy.reads_us,
            busy.reads_us / idle.reads_us,
            idle.stable_us,
            busy.stable_us,
            busy.stable_us / idle.stable_us,
            busy.worst_ms,
            freed.map_or("> 120".into(), |seconds| format!("{seconds:.1}")),
        );
        drop((volume, files));
        bed.end();
    }
}
