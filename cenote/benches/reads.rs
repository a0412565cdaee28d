//! Cold sequential reads against the raw device, and the full verify against `zdb -bcc`, in turns, as ratios.
//!
//!     scripts/make-bench-pool DIR && CENOTE_BENCH_POOL=DIR cargo bench -p cenote --bench reads
//!
//! `DIR` holds a pool `bench` with a volume `bench/vol` on one file, `d0`. Each round runs every row once, so that what else
//! the machine does falls on all of them; the table has the medians. Before each read the system's page cache is dropped where we may;
//! fio reads with direct I/O, and so does Cenote.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

const ROUNDS: usize = 5;
/// What each row reads, at most: the size of the volume by default.
const BYTES: f64 = 1024.0 * 1024.0 * 1024.0;

type Run = fn(&Path) -> Option<f64>;

fn main() {
    let Some(dir) = std::env::var_os("CENOTE_BENCH_POOL").map(PathBuf::from) else {
        println!("set CENOTE_BENCH_POOL to a directory that scripts/make-bench-pool has filled");
        return;
    };
    let rows: [(&str, Run, usize); 5] = [
        ("fio, raw device, 128K, depth 16", fio, 0),
        ("cenote cat, volume", cat, 0),
        ("nbdcopy from cenote, volume", nbdcopy, 0),
        ("zdb -bcc", zdb, 3),
        ("cenote zdb -bcc", verify, 3),
    ];
    let mut seconds: Vec<Vec<f64>> = vec![Vec::new(); rows.len()];
    for _ in 0..ROUNDS {
        for (place, (_, run, _)) in rows.iter().enumerate() {
            drop_caches();
            seconds[place].extend(run(&dir));
        }
    }
    println!("{:34} {:>8} {:>9} {:>7}", "", "seconds", "MiB/s", "ratio");
    let medians: Vec<Option<f64>> = seconds.iter_mut().map(|all| median(all)).collect();
    for ((name, _, peer), taken) in rows.iter().zip(&medians) {
        match (taken, medians[*peer]) {
            (Some(taken), Some(peer)) => {
                println!("{name:34} {taken:8.3} {:9.0} {:7.2}", BYTES / taken / 1048576.0, peer / taken);
            }
            _ => println!("{name:34}  could not be run"),
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

/// fio's own rate, so that its start does not count: the time for as much as the others read.
fn fio(dir: &Path) -> Option<f64> {
    let mut command = Command::new("fio");
    command.args([
        "--name=raw",
        "--rw=read",
        "--bs=128k",
        "--iodepth=16",
        "--ioengine=io_uring",
        "--direct=1",
    ]);
    command.args(["--size=1G", "--readonly", "--output-format=terse", "--terse-version=3"]);
    let output = command.arg(format!("--filename={}", dir.join("d0").display())).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let kib_a_second: f64 = text.split(';').nth(6)?.parse().ok()?;
    Some(BYTES / 1024.0 / kib_a_second)
}

fn cat(dir: &Path) -> Option<f64> {
    timed(cenote().arg("cat").arg("-d").arg(dir).arg("bench/vol"))
}

/// The copy alone: the pool is imported before the clock starts.
fn nbdcopy(dir: &Path) -> Option<f64> {
    use std::io::{BufRead, BufReader};
    let mut up = cenote();
    up.arg("up")
        .arg("-d")
        .arg(dir)
        .arg("bench")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let mut up = up.spawn().ok()?;
    let mut uri = None;
    for line in BufReader::new(up.stdout.take()?).lines() {
        let line = line.ok()?;
        if let Some(found) = line.split_whitespace().find(|word| word.starts_with("nbd+unix:")) {
            uri = Some(found.trim_matches('\'').to_owned());
            break;
        }
    }
    let taken = uri.and_then(|uri| timed(Command::new("nbdcopy").arg(uri).arg("null:")));
    let _ = Command::new("kill").arg(up.id().to_string()).status();
    let _ = up.wait();
    taken
}

fn zdb(dir: &Path) -> Option<f64> {
    timed(Command::new("zdb").arg("-e").arg("-p").arg(dir).args(["-bcc", "bench"]))
}

fn verify(dir: &Path) -> Option<f64> {
    timed(cenote().arg("zdb").arg("-p").arg(dir).args(["-bcc", "bench"]))
}
