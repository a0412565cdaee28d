//! Direct reads of a file, beside fio on the same file in the same run.
//!
//!     cargo bench -p cenote-device --bench read
//!
//! Both keep the same number of reads under way through one io_uring. They take turns, so that what else the
//! machine does falls on both; the ratio is the median of rounds. `CENOTE_BENCH_DIR` says where the file is
//! made (1 GiB), by default in the directory for temporary files; on a file system without direct I/O the
//! numbers mean nothing.

use std::{
    path::Path,
    process::Command,
    time::{Duration, Instant},
};

use device::{Device, FileDevice, IoBuf, OpenOptions, block_on};
use futures_util::{StreamExt, stream};

const SIZE_BYTES: u64 = 1 << 30;
const ROUNDS: usize = 5;
const SECONDS_PER_ROUND: u64 = 2;

#[derive(Clone, Copy)]
struct Load {
    name: &'static str,
    fio_name: &'static str,
    block_bytes: usize,
    depth: usize,
}

const LOADS: [Load; 3] = [
    Load { name: "sequential", fio_name: "read", block_bytes: 128 << 10, depth: 16 },
    Load { name: "random", fio_name: "randread", block_bytes: 4 << 10, depth: 32 },
    Load { name: "random", fio_name: "randread", block_bytes: 4 << 10, depth: 1 },
];

/// Megabytes a second that our device reads.
fn measure_ours(device: &FileDevice, load: Load) -> f64 {
    let blocks = SIZE_BYTES / load.block_bytes as u64;
    let begin = Instant::now();
    let mut place = 0x9e37_79b9_7f4a_7c15u64;
    let offsets = (0u64..).map(|number| {
        place = place.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let block = if load.fio_name == "read" { number } else { place >> 33 };
        block % blocks * load.block_bytes as u64
    });
    let until = Duration::from_secs(SECONDS_PER_ROUND);
    let reads = stream::iter(offsets.take_while(|_| begin.elapsed() < until))
        .map(|offset| device.read(offset, load.block_bytes))
        .buffer_unordered(load.depth)
        .fold(0, async |bytes, read| bytes + read.expect("read").len());
    let bytes = block_on(reads);
    bytes as f64 / 1e6 / begin.elapsed().as_secs_f64()
}

/// Megabytes a second that fio reads.
fn measure_fio(path: &Path, load: Load) -> f64 {
    let output = Command::new("fio")
        .args([
            "--name=reads",
            "--ioengine=io_uring",
            "--direct=1",
            "--time_based",
            "--output-format=json",
            "--readonly",
        ])
        .args([
            format!("--rw={}", load.fio_name),
            format!("--bs={}", load.block_bytes),
            format!("--iodepth={}", load.depth),
        ])
        .args([format!("--runtime={SECONDS_PER_ROUND}"), format!("--filename={}", path.display())])
        .output()
        .expect("fio; see scripts/install-test-tools");
    let report = String::from_utf8_lossy(&output.stdout);
    // The first "bw_bytes" is the reads'; a JSON library for one number would be too much.
    let value = report.split("\"bw_bytes\"").nth(1).and_then(|rest| rest.split([':', ',']).nth(1));
    let bytes = value.and_then(|text| text.trim().parse::<f64>().ok());
    bytes.unwrap_or_else(|| panic!("fio: {}", String::from_utf8_lossy(&output.stderr))) / 1e6
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() {
    // `cargo test --all-targets` runs benchmarks too, but without this argument.
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    let parent = std::env::var_os("CENOTE_BENCH_DIR").map_or_else(std::env::temp_dir, Into::into);
    let directory = tempfile::tempdir_in(parent).expect("temporary directory");
    let path = directory.path().join("disk");
    std::fs::File::create(&path).and_then(|file| file.set_len(SIZE_BYTES)).expect("file");
    let writer = OpenOptions::read_write().open(&path).expect("open");
    let mut block = IoBuf::for_overwrite(1 << 20);
    for offset in (0..SIZE_BYTES).step_by(block.len()) {
        block.fill((offset >> 20) as u8);
        block = block_on(writer.write(offset, block)).expect("write");
    }
    block_on(writer.flush()).expect("flush");
    drop(writer);
    let device = FileDevice::open(&path).expect("open");
    println!("{}", if device.is_direct() { "direct reads; MB/s" } else { "NOT direct; MB/s" });
    println!("load        block  depth   cenote      fio   ratio");
    for load in LOADS {
        let rounds: Vec<[f64; 2]> =
            (0..ROUNDS).map(|_| [measure_ours(&device, load), measure_fio(&path, load)]).collect();
        let column = |of: fn(&[f64; 2]) -> f64| median(rounds.iter().map(of).collect());
        let [ours, fio] = [column(|round| round[0]), column(|round| round[1])];
        let ratio = column(|round| round[0] / round[1]);
        println!(
            "{:<10} {:>6} {:>6} {ours:>8.1} {fio:>8.1} {ratio:>7.2}",
            load.name, load.block_bytes, load.depth
        );
    }
}
