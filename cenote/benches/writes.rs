//! Writing volumes, in process and over NBD, against the raw device and OpenZFS's own engine, in turns, as
//! ratios.
//!
//!     CENOTE_BENCH_DIR=DIR cargo bench -p cenote --bench writes
//!
//! In `DIR` (a file system that takes direct I/O) each round makes a pool on one file anew and runs every row
//! once; the table has the medians. Rates of buffered rows include the commit at their end. Rows of stable
//! writes use a file and a volume that were written before, as are a disk and a virtual machine's: otherwise
//! each write would wait for the journal of the file system to note that a block has data now.
//! `CENOTE_BENCH_ROWS` names rows by a part of their names, if not all. With `CENOTE_OZBENCH` (the path of a
//! program that drives OpenZFS's engine in userspace through a volume: `ozbench create POOL stripe BLOCK
//! COMPRESSION off SIZE_MB FILE`, `ozbench run POOL DIR randwrite|write BLOCK THREADS SECONDS`, printing JSON
//! with `iops_synced`) it is run beside. Over NBD fio writes to a volume of `cenote serve`, whose memory is
//! bounded as that of OpenZFS's engine; fio has no FUA, so that a stable write is a write and a flush there,
//! and as many connections as the row has writes under way. After the rates of each row stand, of the engine
//! in process, bytes written to the device for each byte of data, processor time for each operation, and the
//! most memory that the process held meanwhile.

use std::os::unix::fs::{FileExt, MetadataExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use device::{OpenOptions, block_on};
use engine::cache::ArcCache;
use engine::dsl::edit::{NewContents, NewDataset, create};
use engine::env::System;
use engine::pool::live::{Layout, LivePool, NewLeaf, NewPool, NewTop, Surroundings, default_features};
use engine::txg::Limits;
use engine::vdev::Class;
use engine::zvol::LiveZvol;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use ondisk::vdev_config::PoolState;

/// As in the product.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const ROUNDS: usize = 3;
const FILE_BYTES: u64 = 6 << 30;
const VOLUME_BYTES: u64 = 2 << 30;
const SECONDS: u64 = 5;
/// What a volume is written whole with.
const WHOLE_BYTES: u64 = 1 << 20;
/// Stable writes are measured on a volume that was written whole, after as long.
const WARM_UP_SECONDS: u64 = 3;

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

impl Row {
    /// The cache of each engine, in MiB: little where OpenZFS's engine is beside, so that neither can keep
    /// everything in memory; for stable writes, what a daemon takes of 16 GiB.
    fn cache_mib(&self) -> u64 {
        if self.stable { 4096 } else { 512 }
    }
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
        volblocksize: 4 << 10,
        write_bytes: 4 << 10,
        depth: 1,
        random: true,
        stable: true,
        noise: 100,
    },
    Row {
        name: "4K sync write, depth 16",
        volblocksize: 4 << 10,
        write_bytes: 4 << 10,
        depth: 16,
        random: true,
        stable: true,
        noise: 100,
    },
    Row {
        name: "4K sync, 8K blocks, depth 16",
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
        "{:28} {:>8} {:>8} {:>8} {:>8} {:>6} {:>6} {:>6} {:>6} {:>8} {:>9} {:>6}",
        "operations a second",
        "cenote",
        "nbd",
        "raw",
        "openzfs",
        "/raw",
        "/ozfs",
        "n/raw",
        "n/ozfs",
        "written",
        "us of CPU",
        "MiB"
    );
    let wanted = std::env::var("CENOTE_BENCH_ROWS").unwrap_or_default();
    for row in ROWS.iter().filter(|row| row.name.contains(&wanted)) {
        let mut rates = [Vec::new(), Vec::new(), Vec::new(), Vec::new()];
        let (mut written, mut processor) = (Vec::new(), Vec::new());
        forget_peak();
        for _ in 0..ROUNDS {
            let run = ours(&dir, row);
            rates[0].extend(run.as_ref().map(|run| run.rate));
            written.extend(run.as_ref().map(|run| run.written));
            processor.extend(run.map(|run| run.processor_us));
            rates[1].extend(over_nbd(&dir, row));
            rates[2].extend(raw(&dir, row));
            rates[3].extend(ozbench.as_deref().and_then(|program| theirs(program, &dir, row)));
        }
        let [ours, nbd, raw, theirs] = rates.map(|mut all| median(&mut all));
        let show = |rate: Option<f64>| rate.map_or("-".into(), |rate| format!("{rate:.0}"));
        let ratio = |ours: Option<f64>, peer: Option<f64>| match (ours, peer) {
            (Some(ours), Some(peer)) => format!("{:.2}", ours / peer),
            _ => "-".into(),
        };
        println!(
            "{:28} {:>8} {:>8} {:>8} {:>8} {:>6} {:>6} {:>6} {:>6} {:>8.2} {:>9.1} {:>6}",
            row.name,
            show(ours),
            show(nbd),
            show(raw),
            show(theirs),
            ratio(ours, raw),
            ratio(ours, theirs),
            ratio(nbd, raw),
            ratio(nbd, theirs),
            median(&mut written).unwrap_or(0.0),
            median(&mut processor).unwrap_or(0.0),
            peak_memory_kib() >> 10,
        );
    }
}

fn median(all: &mut [f64]) -> Option<f64> {
    all.sort_by(f64::total_cmp);
    all.get(all.len() / 2).copied()
}

/// Begins a new peak with what is held now (proc_pid_clear_refs(5)).
fn forget_peak() {
    let _ = std::fs::write("/proc/self/clear_refs", "5");
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

/// The disk of a row, whatever is on it.
fn disk(dir: &Path, row: &Row) -> PathBuf {
    if row.stable { written_file(dir) } else { new_file(dir) }
}

/// A file that was written from beginning to end once. In a directory of its own: OpenZFS's engine opens none
/// of several pools of one name.
fn written_file(dir: &Path) -> PathBuf {
    let dir = dir.join("written");
    std::fs::create_dir_all(&dir).expect("a directory in CENOTE_BENCH_DIR");
    let path = dir.join("bench-disk");
    if std::fs::metadata(&path).is_ok_and(|is| is.len() == FILE_BYTES && is.blocks() >= FILE_BYTES / 512) {
        return path;
    }
    let file = std::fs::File::create(&path).expect("a file in CENOTE_BENCH_DIR");
    let piece = vec![1; 4 << 20];
    for number in 0..FILE_BYTES / piece.len() as u64 {
        file.write_all_at(&piece, number * piece.len() as u64).expect("room");
    }
    file.sync_all().expect("a stable file");
    path
}

fn new_file(dir: &Path) -> PathBuf {
    let path = dir.join("bench-disk");
    let _ = std::fs::remove_file(&path);
    let file = std::fs::File::create(&path).expect("a file in CENOTE_BENCH_DIR");
    file.set_len(FILE_BYTES).expect("room");
    path
}

fn ours(dir: &Path, row: &Row) -> Option<Run> {
    let path = disk(dir, row);
    let device = Arc::new(OpenOptions::read_write().open(&path).ok()?);
    let leaf = NewLeaf { device, path, is_file: true, whole_disk: false };
    let new = NewPool {
        name: "bench".into(),
        tops: vec![NewTop { layout: Layout::Single, class: Class::Normal, leaves: vec![leaf] }],
        spares: Vec::new(),
        l2cache: Vec::new(),
        ashift: Some(12),
        version: ondisk::pool_version::FEATURES,
        features: default_features(),
        properties: Vec::new(),
        root_properties: Vec::new(),
        altroot: None,
        command: None,
    };
    let cache = Arc::new(ArcCache::new(row.cache_mib() << 20));
    let surroundings = Surroundings {
        env: Arc::new(System),
        limits: Limits::beside(&cache),
        cache: Some(cache),
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
        let mut random = fastrand::Rng::with_seed(1);
        let whole: Vec<u8> =
            (0..WHOLE_BYTES / 8 + 65536).flat_map(|_| random.u64(..).to_le_bytes()).collect();
        let data: Vec<u8> = (0..row.write_bytes / 8 + 65536)
            .flat_map(|word| {
                if word % 128 * 100 < row.noise * 128 { random.u64(..) } else { 0 }.to_le_bytes()
            })
            .collect();
        for slot in 0..if row.stable { VOLUME_BYTES / WHOLE_BYTES } else { 0 } {
            let bytes = &whole[(slot as usize * 64) % 65536..][..WHOLE_BYTES as usize];
            volume.write_at(slot * WHOLE_BYTES, bytes, false).await.expect("a write");
        }
        pool.txgs().wait_synced(pool.txgs().open_txg()).await.expect("a commit");
        let mut before = usage();
        let mut began = Instant::now();
        let mut warm_up = if row.stable { WARM_UP_SECONDS } else { 0 };
        let (mut written, mut done) = (0u64, 0u64);
        let mut flying = FuturesUnordered::new();
        let slots = VOLUME_BYTES / row.write_bytes as u64;
        while warm_up > 0 || began.elapsed() < Duration::from_secs(SECONDS) {
            if warm_up > 0 && began.elapsed() >= Duration::from_secs(warm_up) {
                (before, began, warm_up, done) = (usage(), Instant::now(), 0, 0);
            }
            while flying.len() < row.depth {
                let slot = if row.random { random.u64(..slots) } else { written % slots };
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
    let path = disk(dir, row);
    let mut fio = fio(row);
    fio.args(["--ioengine=io_uring", "--direct=1"])
        .arg(format!("--filename={}", path.display()))
        .arg(format!("--iodepth={}", if row.stable { 1 } else { row.depth }));
    if row.stable {
        fio.arg("--sync=dsync");
    }
    written(&mut fio)?["iops"].as_f64()
}

/// fio with what is the same for each of its targets.
fn fio(row: &Row) -> Command {
    let mut fio = Command::new("fio");
    // What fio scrambles compresses by 5 %: too little to be kept, and the slowest of all for an encoder.
    fio.args(["--name=writes", "--time_based", "--group_reporting", "--output-format=json"])
        .arg("--scramble_buffers=0")
        .arg(format!("--size={VOLUME_BYTES}"))
        .arg(format!("--runtime={SECONDS}"))
        .arg(format!("--bs={}", row.write_bytes))
        .arg(if row.random { "--rw=randwrite" } else { "--rw=write" });
    if row.stable {
        fio.arg(format!("--ramp_time={WARM_UP_SECONDS}"));
    }
    if row.noise < 100 {
        fio.arg(format!("--buffer_compress_percentage={}", 100 - row.noise))
            .arg(format!("--buffer_compress_chunk={}", row.write_bytes));
    }
    fio
}

/// What fio says of its writes.
fn written(fio: &mut Command) -> Option<serde_json::Value> {
    let output = fio.output().ok()?;
    let json = output.stdout.get(output.stdout.iter().position(|byte| *byte == b'{')?..)?;
    let mut report: serde_json::Value = serde_json::from_slice(json).ok()?;
    Some(report["jobs"][0]["write"].take())
}

/// A daemon that ends with its owner.
struct Daemon {
    child: Child,
    api: PathBuf,
}

impl Daemon {
    fn start(dir: &Path, cache_mib: u64) -> Option<Self> {
        let api = dir.join("bench.sock");
        let child = Command::new(env!("CARGO_BIN_EXE_cenote"))
            .args(["serve", "--arc-max", &format!("{cache_mib}M"), "--socket"])
            .arg(&api)
            .env("CENOTE_LOG", "error")
            .stdin(Stdio::null())
            .spawn()
            .ok()?;
        let daemon = Self { child, api };
        let began = Instant::now();
        while UnixStream::connect(&daemon.api).is_err() {
            (began.elapsed() < Duration::from_secs(20)).then_some(())?;
            std::thread::sleep(Duration::from_millis(5));
        }
        Some(daemon)
    }

    fn ask(&self, arguments: &[&str]) -> Option<()> {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cenote"));
        command.args(arguments).env("CENOTE_SOCKET", &self.api).status().ok()?.success().then_some(())
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = Command::new("kill").arg(self.child.id().to_string()).status();
        let _ = self.child.wait();
    }
}

fn over_nbd(dir: &Path, row: &Row) -> Option<f64> {
    let path = disk(dir, row);
    let daemon = Daemon::start(dir, row.cache_mib())?;
    let block = format!("volblocksize={}", row.volblocksize);
    let size = VOLUME_BYTES.to_string();
    daemon.ask(&["zpool", "create", "-f", "-O", "compression=lz4", "-m", "none", "bench", path.to_str()?])?;
    daemon.ask(&["zfs", "create", "-s", "-o", &block, "-V", &size, "bench/vol"])?;
    let nbd = daemon.api.with_file_name("nbd.sock");
    let over_nbd = ["--ioengine=nbd".into(), format!("--uri=nbd+unix:///bench/vol?socket={}", nbd.display())];
    if row.stable {
        let mut whole = Command::new("fio");
        whole.args(["--name=whole", "--rw=write", "--bs=1M", "--iodepth=4", "--scramble_buffers=0"]);
        let written = whole.arg(format!("--size={VOLUME_BYTES}")).args(&over_nbd).output().ok()?;
        written.status.success().then_some(())?;
        daemon.ask(&["zpool", "sync", "bench"])?;
    }
    let mut fio = fio(row);
    fio.args(&over_nbd);
    if row.stable {
        fio.arg("--fsync=1").arg(format!("--numjobs={}", row.depth));
    } else {
        fio.arg(format!("--iodepth={}", row.depth));
    }
    let write = written(&mut fio)?;
    let commit = Instant::now();
    daemon.ask(&["zpool", "sync", "bench"])?;
    let seconds = write["runtime"].as_f64()? / 1000.0 + commit.elapsed().as_secs_f64();
    daemon.ask(&["zpool", "export", "bench"])?;
    if row.stable {
        return write["iops"].as_f64();
    }
    Some(write["total_ios"].as_f64()? / seconds)
}

fn theirs(program: &Path, dir: &Path, row: &Row) -> Option<f64> {
    if row.stable {
        return None;
    }
    let path = disk(dir, row);
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
        .env("ARC_MB", row.cache_mib().to_string())
        .env("RANDPCT", row.noise.to_string())
        .output()
        .ok()?;
    let text = String::from_utf8_lossy(&run.stdout).into_owned();
    text.split("\"iops_synced\":").nth(1)?.split([',', '}']).next()?.trim().parse().ok()
}
