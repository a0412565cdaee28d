//! Cold sequential reads against the raw device, and the full verify against `zdb -bcc`, in turns, as ratios.
//!
//!     scripts/make-bench-pool DIR && CENOTE_BENCH_POOL=DIR cargo bench -p cenote --bench reads
//!
//! `DIR` holds a pool `bench` on one file, `d0`, with a volume `bench/vol` and, in `bench/files`, a file
//! `data` of the same size. Each round runs every row once, so that what else the machine does falls on all
//! of them; the table has the medians. Before each read the system's page cache is dropped where we may; fio
//! reads with direct I/O, and so does Cenote. What serves or mounts the pool is started for each row, before
//! the clock, and so has an empty cache.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

const ROUNDS: usize = 5;
const MIB: f64 = 1024.0 * 1024.0;

/// The pool, and how many bytes its volume has, and its file.
struct Bench {
    dir: PathBuf,
    bytes: f64,
}

/// One row: what it runs, in seconds; how many times the volume's bytes that reads; and the row that it is
/// compared with.
struct Row {
    name: &'static str,
    run: fn(&Bench) -> Option<f64>,
    reads: f64,
    peer: usize,
}

const RAW: usize = 0;
const ZDB: usize = 6;
const ROWS: [Row; 8] = [
    Row { name: "fio, raw device, 128K, depth 16", run: raw, reads: 1.0, peer: RAW },
    Row { name: "cenote cat, volume", run: |bench| cat(bench, "bench/vol"), reads: 1.0, peer: RAW },
    Row { name: "nbdcopy from cenote, volume", run: nbdcopy, reads: 1.0, peer: RAW },
    Row { name: "cenote cat, file", run: |bench| cat(bench, "bench/files:/data"), reads: 1.0, peer: RAW },
    Row { name: "dd from the mount, file", run: dd, reads: 1.0, peer: RAW },
    Row { name: "the same fio, file in the mount", run: mounted, reads: 1.0, peer: RAW },
    Row { name: "zdb -bcc", run: zdb, reads: 2.0, peer: ZDB },
    Row { name: "cenote zdb -bcc", run: verify, reads: 2.0, peer: ZDB },
];

fn main() {
    let Some(dir) = std::env::var_os("CENOTE_BENCH_POOL").map(PathBuf::from) else {
        println!("set CENOTE_BENCH_POOL to a directory that scripts/make-bench-pool has filled");
        return;
    };
    let Some(bytes) = Up::start(&dir).and_then(|up| up.told["volumes"][0]["size_bytes"].as_f64()) else {
        println!("cannot open a pool 'bench' with a volume in {}", dir.display());
        return;
    };
    let bench = Bench { dir, bytes };
    let mut seconds: Vec<Vec<f64>> = vec![Vec::new(); ROWS.len()];
    for _ in 0..ROUNDS {
        for (row, seconds) in ROWS.iter().zip(&mut seconds) {
            drop_caches();
            seconds.extend((row.run)(&bench));
        }
    }
    println!("{:34} {:>8} {:>9} {:>7}", "", "seconds", "MiB/s", "ratio");
    let medians: Vec<Option<f64>> = seconds.iter_mut().map(|all| median(all)).collect();
    for (row, taken) in ROWS.iter().zip(&medians) {
        match (taken, medians[row.peer]) {
            (Some(taken), Some(peer)) => {
                let rate = row.reads * bytes / taken / MIB;
                println!("{:34} {taken:8.3} {rate:9.0} {:7.2}", row.name, peer / taken);
            }
            _ => println!("{:34}  could not be run", row.name),
        }
    }
}

fn median(all: &mut [f64]) -> Option<f64> {
    all.sort_by(f64::total_cmp);
    all.get(all.len() / 2).copied()
}

/// Best effort: only root may.
fn drop_caches() {
    let _ = std::fs::write("/proc/sys/vm/drop_caches", "3");
}

fn timed(command: &mut Command) -> Option<f64> {
    let began = Instant::now();
    let status = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status().ok()?;
    status.success().then(|| began.elapsed().as_secs_f64())
}

fn cenote() -> Command {
    Command::new(env!("CARGO_BIN_EXE_cenote"))
}

/// A running `cenote up`, taken down when dropped.
struct Up {
    child: Child,
    told: serde_json::Value,
}

impl Up {
    fn start(dir: &Path) -> Option<Self> {
        let mut command = cenote();
        command
            .args(["up", "--json", "--flat", "bench", "-d"])
            .arg(dir)
            .arg("--mount-at")
            .arg(dir.join("mnt"));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut up = Self { child: command.spawn().ok()?, told: serde_json::Value::Null };
        let mut line = String::new();
        BufReader::new(up.child.stdout.take()?).read_line(&mut line).ok()?;
        up.told = serde_json::from_str(&line).ok()?;
        Some(up)
    }

    fn file(&self) -> Option<PathBuf> {
        let mount = self.told["mounts"].as_array()?.iter().find(|mount| mount["dataset"] == "bench/files")?;
        Some(Path::new(mount["mountpoint"].as_str()?).join("data"))
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        let _ = Command::new("kill").arg(self.child.id().to_string()).status();
        let _ = self.child.wait();
    }
}

/// By fio's own rate, so that its start does not count: the time for as much as the others read.
fn fio(bench: &Bench, file: &Path) -> Option<f64> {
    let mut command = Command::new("fio");
    command.args([
        "--name=read",
        "--rw=read",
        "--bs=128k",
        "--iodepth=16",
        "--ioengine=io_uring",
        "--direct=1",
    ]);
    command.args(["--readonly", "--output-format=terse", "--terse-version=3"]);
    command.arg(format!("--size={}", bench.bytes)).arg(format!("--filename={}", file.display()));
    let text = String::from_utf8(command.output().ok()?.stdout).ok()?;
    let kib_a_second: f64 = text.split(';').nth(6)?.parse().ok()?;
    Some(bench.bytes / 1024.0 / kib_a_second)
}

fn raw(bench: &Bench) -> Option<f64> {
    fio(bench, &bench.dir.join("d0"))
}

fn cat(bench: &Bench, target: &str) -> Option<f64> {
    timed(cenote().arg("cat").arg("-d").arg(&bench.dir).arg(target))
}

fn nbdcopy(bench: &Bench) -> Option<f64> {
    let up = Up::start(&bench.dir)?;
    timed(Command::new("nbdcopy").arg(up.told["volumes"][0]["uri"].as_str()?).arg("null:"))
}

fn dd(bench: &Bench) -> Option<f64> {
    let up = Up::start(&bench.dir)?;
    timed(Command::new("dd").args(["of=/dev/null", "bs=1M"]).arg(format!("if={}", up.file()?.display())))
}

fn mounted(bench: &Bench) -> Option<f64> {
    let up = Up::start(&bench.dir)?;
    fio(bench, &up.file()?)
}

fn zdb(bench: &Bench) -> Option<f64> {
    timed(Command::new("zdb").arg("-e").arg("-p").arg(&bench.dir).args(["-bcc", "bench"]))
}

fn verify(bench: &Bench) -> Option<f64> {
    timed(cenote().arg("zdb").arg("-p").arg(&bench.dir).args(["-bcc", "bench"]))
}
