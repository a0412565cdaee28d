//! Writing volumes, against the raw device and OpenZFS's own engine, in turns, as ratios.
//!
//!     CENOTE_BENCH_DIR=DIR cargo bench -p cenote-engine --bench writes
//!
//! In `DIR` (a file system that takes direct I/O) each round makes a pool on one file anew and runs every row once; the table has the medians. Rates of
//! buffered rows include the commit at their end. With `CENOTE_OZBENCH` (the path of a program that drives OpenZFS's engine in userspace through a
//! volume: `ozbench create POOL stripe BLOCK COMPRESSION off SIZE_MB FILE`, `ozbench run POOL DIR randwrite|write BLOCK THREADS SECONDS`, printing JSON with `iops_synced`)
//! it is run beside. After the rates of each row stand, of this engine, bytes written to the device for each byte of data and processor
//! time for each operation; at the end the most memory held.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use device::{OpenOptions, block_on};
use engine::dataset::dsl::edit::{NewContents, NewDataset, create};
use engine::dataset::zvol::LiveZvol;
use engine::env::System;
use engine::pool::live::{Layout, LivePool, NewLeaf, NewPool, NewTop, Surroundings, default_features};
use engine::txg::Limits;
use engine::vdev::Class;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use ondisk::vdev_config::PoolState;

const ROUNDS: usize = 3;
const FILE_BYTES: u64 = 6 << 30;
const VOLUME_BYTES: u64 = 2 << 30;
const SECONDS: u64 = 5;

/// One row: block of the volume, size of a write, writes under way, in order, stable.
struct Row {
    name: &'static str,
    volblocksize: usize,
    write_bytes: usize,
    depth: usize,
    random: bool,
    stable: bool,
    /// How much of the data does not compress, in percent.
    noise: usize,
}

const ROWS: &[Row] = &[
    Row {
        name: "8K random write, depth 32",
        volblocksize: 8 << 10,
        write_bytes: 8 << 10,
        depth: 32,
        random: true,
        stable: false,
        noise: 100,
    },
    Row {
        name: "the same, compressible 2:1",
        volblocksize: 8 << 10,
        write_bytes: 8 << 10,
        depth: 32,
        random: true,
        stable: false,
        noise: 50,
    },
    Row {
        name: "128K sequential write",
        volblocksize: 128 << 10,
        write_bytes: 128 << 10,
        depth: 8,
        random: false,
        stable: false,
        noise: 100,
    },
    Row {
        name: "4K sync write, depth 1",
        volblocksize: 8 << 10,
        write_bytes: 4 << 10,
        depth: 1,
        random: true,
        stable: true,
        noise: 100,
    },
    Row {
        name: "4K sync write, depth 16",
        volblocksize: 8 << 10,
        write_bytes: 4 << 10,
        depth: 16,
        random: true,
        stable: true,
        noise: 100,
    },
    Row {
        name: "128K sync write, depth 4",
        volblocksize: 128 << 10,
        write_bytes: 128 << 10,
        depth: 4,
        random: true,
        stable: true,
        noise: 100,
    },
];

fn main() {
    let Some(dir) = std::env::var_os("CENOTE_BENCH_DIR").map(PathBuf::from) else {
        println!("set CENOTE_BENCH_DIR to a directory with 10 GiB free");
        return;
    };
    let ozbench = std::env::var_os("CENOTE_OZBENCH").map(PathBuf::from);
    println!(
        "{:28} {:>12} {:>12} {:>12} {:>7} {:>7} {:>9} {:>9}",
        "operations a second", "cenote", "raw", "openzfs", "/raw", "/ozfs", "written", "us of CPU"
    );
    for row in ROWS {
        let mut rates = [Vec::new(), Vec::new(), Vec::new()];
        let (mut written, mut processor) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            let run = ours(&dir, row);
            rates[0].extend(run.as_ref().map(|run| run.rate));
            written.extend(run.as_ref().map(|run| run.written));
            processor.extend(run.map(|run| run.processor_us));
            rates[1].extend(raw(&dir, row));
            rates[2].extend(ozbench.as_deref().and_then(|program| theirs(program, &dir, row)));
        }
        let [ours, raw, theirs] = rates.map(|mut all| median(&mut all));
        let show = |rate: Option<f64>| rate.map_or("-".into(), |rate| format!("{rate:.0}"));
        let ratio = |peer: Option<f64>| match (ours, peer) {
            (Some(ours), Some(peer)) => format!("{:.2}", ours / peer),
            _ => "-".into(),
        };
        println!(
            "{:28} {:>12} {:>12} {:>12} {:>7} {:>7} {:>9.2} {:>9.1}",
            row.name,
            show(ours),
            show(raw),
            show(theirs),
            ratio(raw),
            ratio(theirs),
            median(&mut written).unwrap_or(0.0),
            median(&mut processor).unwrap_or(0.0),
        );
    }
    println!("most memory held: {} MiB", peak_memory_kib() >> 10);
}

fn median(all: &mut [f64]) -> Option<f64> {
    all.sort_by(f64::total_cmp);
    all.get(all.len() / 2).copied()
}

fn peak_memory_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.trim().split(' ').next()?.parse().ok()).unwrap_or(0)
}

/// What a run of ours says.
struct Run {
    /// Operations a second.
    rate: f64,
    /// Bytes written to the device for each byte of data.
    written: f64,
    /// Processor time of an operation, all threads.
    processor_us: f64,
}

/// Bytes that this process had written, and its processor time in seconds.
fn usage() -> (f64, f64) {
    let io = std::fs::read_to_string("/proc/self/io").unwrap_or_default();
    let line = io.lines().find_map(|line| line.strip_prefix("write_bytes:"));
    let bytes = line.and_then(|line| line.trim().parse().ok()).unwrap_or(0.0);
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // After the name in parentheses; ticks are hundredths of a second.
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks = |at: usize| fields.get(at).and_then(|field| field.parse::<f64>().ok()).unwrap_or(0.0);
    (bytes, (ticks(11) + ticks(12)) / 100.0)
}

/// SplitMix64: the same offsets for everybody.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

fn new_file(dir: &Path) -> PathBuf {
    let path = dir.join("bench-disk");
    let _ = std::fs::remove_file(&path);
    let file = std::fs::File::create(&path).expect("a file in CENOTE_BENCH_DIR");
    file.set_len(FILE_BYTES).expect("room");
    path
}

fn ours(dir: &Path, row: &Row) -> Option<Run> {
    let path = new_file(dir);
    let device = Arc::new(OpenOptions::read_write().open(&path).ok()?);
    let leaf = NewLeaf { device, path, is_file: true, whole_disk: false };
    let new = NewPool {
        name: "bench".into(),
        tops: vec![NewTop { layout: Layout::Single, class: Class::Normal, leaves: vec![leaf] }],
        spares: Vec::new(),
        l2cache: Vec::new(),
        ashift: Some(12),
        features: default_features(),
        properties: Vec::new(),
        root_properties: Vec::new(),
        altroot: None,
        command: None,
    };
    let surroundings = Surroundings {
        env: Arc::new(System),
        cache: None,
        limits: Limits::default(),
        host: (1, "bench".into()),
    };
    let pool = block_on(LivePool::create(new, surroundings)).expect("a pool");
    let volume = NewDataset {
        name: "bench/vol".into(),
        contents: NewContents::Volume { size: VOLUME_BYTES, sparse: true },
        properties: vec![
            ("volblocksize".into(), row.volblocksize.to_string()),
            ("compression".into(), "lz4".into()),
        ],
    };
    let id = block_on(pool.change(move |s| async move { create(&s, &volume).await })).expect("a volume");
    pool.start().expect("a thread");
    let run = block_on(async {
        let dataset = pool.dataset(id).await.expect("open");
        let volume = LiveZvol::open(pool.txgs(), &dataset.objset, &dataset.zil).await.expect("open");
        volume.set_room(dataset.room.clone());
        let mut random = Random(1);
        let data: Vec<u8> = (0..row.write_bytes / 8 + 65536)
            .flat_map(|word| if word % 128 * 100 < row.noise * 128 { random.next() } else { 0 }.to_le_bytes())
            .collect();
        let before = usage();
        let began = Instant::now();
        let (mut written, mut done) = (0u64, 0u64);
        let mut flying = FuturesUnordered::new();
        let slots = VOLUME_BYTES / row.write_bytes as u64;
        while began.elapsed() < Duration::from_secs(SECONDS) {
            while flying.len() < row.depth {
                let slot = if row.random { random.next() % slots } else { written % slots };
                let from = (written as usize * 64) % 65536;
                let bytes = &data[from..from + row.write_bytes];
                flying.push(volume.write_at(slot * row.write_bytes as u64, bytes, row.stable));
                written += 1;
            }
            flying.next().await.transpose().expect("a write");
            done += 1;
        }
        while let Some(result) = flying.next().await {
            result.expect("a write");
            done += 1;
        }
        if !row.stable {
            pool.txgs().wait_synced(pool.txgs().open_txg()).await.expect("a commit");
        }
        let rate = done as f64 / began.elapsed().as_secs_f64();
        let after = usage();
        let data = done as f64 * row.write_bytes as f64;
        Run {
            rate,
            written: (after.0 - before.0) / data,
            processor_us: (after.1 - before.1) * 1e6 / done as f64,
        }
    });
    block_on(pool.close(PoolState::Exported)).expect("an export");
    Some(run)
}

fn raw(dir: &Path, row: &Row) -> Option<f64> {
    let path = new_file(dir);
    let mut fio = Command::new("fio");
    fio.args(["--name=raw", "--ioengine=io_uring", "--direct=1", "--time_based", "--output-format=json"])
        .arg(format!("--filename={}", path.display()))
        .arg(format!("--size={VOLUME_BYTES}"))
        .arg(format!("--runtime={SECONDS}"))
        .arg(format!("--bs={}", row.write_bytes))
        .arg(format!("--iodepth={}", if row.stable { 1 } else { row.depth }))
        .arg(if row.random { "--rw=randwrite" } else { "--rw=write" });
    if row.stable {
        fio.arg("--sync=dsync");
    }
    let output = fio.output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    // The first rate of the "write" section.
    let write = text.split("\"write\" :").nth(1)?;
    write.split("\"iops\" :").nth(1)?.split(',').next()?.trim().parse().ok()
}

fn theirs(program: &Path, dir: &Path, row: &Row) -> Option<f64> {
    if row.stable {
        return None;
    }
    let path = new_file(dir);
    let megabytes = (VOLUME_BYTES >> 20).to_string();
    let block = row.volblocksize.to_string();
    let created = Command::new(program)
        .args(["create", "bench", "stripe", &block, "lz4", "off", &megabytes])
        .arg(&path)
        .output()
        .ok()?;
    created.status.success().then_some(())?;
    let kind = if row.random { "randwrite" } else { "write" };
    let run = Command::new(program)
        .args(["run", "bench"])
        .arg(dir)
        .args([kind, &row.write_bytes.to_string(), &row.depth.to_string(), &SECONDS.to_string()])
        .env("ARC_MB", "512")
        .env("RANDPCT", row.noise.to_string())
        .output()
        .ok()?;
    let text = String::from_utf8_lossy(&run.stdout).into_owned();
    text.split("\"iops_synced\":").nth(1)?.split([',', '}']).next()?.trim().parse().ok()
}
