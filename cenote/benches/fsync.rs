//! How long a small stable write takes beside others who write much, who want the processors, or who use the
//! device: median, 99 of 100, and the longest.
//!
//!     CENOTE_BENCH_DIR=DIR cargo bench -p cenote --bench fsync
//!
//! As root. A pool lies on one file in `DIR`. A program writes 4 KiB and calls `fsync`, fifty times a second:
//! into a file of the dataset `quick`, over NBD into a volume that was made a moment before (a write and a
//! flush), and into a file of the filesystem that `DIR` is on. Beside it another program writes, as fast as
//! it can, what does not compress: nothing, into a dataset with `compression=off`, or into one with
//! `compression=gzip-9`; for the filesystem of `DIR` into a file there.
//!
//! Each is measured on the machine as it is, with `CENOTE_BENCH_LOOPS` (default: eight for each processor)
//! programs that compute all the time, and with another program that writes and calls `fdatasync` in `DIR`.
//! `CENOTE_BENCH_SECONDS` (default 10) is for each figure.
//!
//! What bounds the figures: a thread that wakes among `n` others on a processor waits up to `n` slices of the
//! scheduler (3 ms each by default), and an `fsync` wakes three threads one after the other; the device takes
//! as long as the last column says. Compression is no part of either.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

const MIB: usize = 1 << 20;
/// Between two stable writes.
const PAUSE: Duration = Duration::from_millis(20);
/// How long others write before anything is measured.
const AHEAD: Duration = Duration::from_secs(3);
/// What is written over and over by those who write much.
const BULK_BYTES: u64 = 1 << 30;

fn main() {
    let Some(dir) = std::env::var_os("CENOTE_BENCH_DIR").map(PathBuf::from) else {
        println!("set CENOTE_BENCH_DIR to a directory with 8 GiB free");
        return;
    };
    let number =
        |name: &str, or: usize| std::env::var(name).ok().and_then(|set| set.parse().ok()).unwrap_or(or);
    let processors = thread::available_parallelism().map_or(1, usize::from);
    let loops = number("CENOTE_BENCH_LOOPS", 8 * processors);
    let seconds = Duration::from_secs(number("CENOTE_BENCH_SECONDS", 10) as u64);
    let bench =
        Bench::begin(&dir, seconds).expect("a pool on a file in CENOTE_BENCH_DIR, mounted: needs root");
    println!("{processors} processors; milliseconds: p50, p99, longest; of the others MiB a second");
    println!(
        "{:34} {:>26} {:>26} {:>26} {:>7} {:>7}",
        "", "alone", "beside off", "beside gzip-9", "off", "gzip-9"
    );
    for load in [Load::None, Load::Processors(loops), Load::Device] {
        let _load = load.begin(&dir);
        for target in [Target::File, Target::Nbd, Target::Below] {
            let cells = [None, Some("off"), Some("g9")].map(|beside| bench.measure(target, beside));
            let shown: Vec<_> =
                cells.iter().map(|cell| cell.as_ref().map_or("-".into(), Cell::show)).collect();
            let rate =
                |at: usize| cells[at].as_ref().map_or("-".into(), |cell| format!("{:.1}", cell.others));
            println!(
                "{:34} {:>26} {:>26} {:>26} {:>7} {:>7}",
                format!("{}, {}", target.name(), load.name()),
                shown[0],
                shown[1],
                shown[2],
                rate(1),
                rate(2)
            );
            let ratio = |of: usize, to: usize| {
                let longest = |at: usize| cells[at].as_ref().map(|cell| cell.percentile(1.0));
                longest(of).zip(longest(to)).map_or("-".into(), |(one, other)| format!("{:.1}", one / other))
            };
            println!("{:34} longest, gzip-9 / off: {}", "", ratio(2, 1));
        }
    }
}

/// What uses the machine besides.
#[derive(Clone, Copy)]
enum Load {
    None,
    Processors(usize),
    Device,
}

impl Load {
    fn name(self) -> String {
        match self {
            Load::None => "idle".into(),
            Load::Processors(loops) => format!("{loops} loops"),
            Load::Device => "busy device".into(),
        }
    }

    fn begin(self, dir: &Path) -> Vec<Helper> {
        match self {
            Load::None => Vec::new(),
            Load::Processors(loops) => {
                // Programs, not threads of this one: they are not to share what the scheduler gives it.
                let program = || Command::new("sh").args(["-c", "while :; do :; done"]).spawn();
                (0..loops).filter_map(|_| program().ok().map(Helper::Program)).collect()
            }
            Load::Device => vec![Helper::writer(dir.join("busy"), true)],
        }
    }
}

/// Something that goes on until it is dropped.
enum Helper {
    Program(Child),
    Writer { ends: Arc<AtomicBool>, bytes: Arc<AtomicU64>, thread: Option<JoinHandle<()>> },
}

impl Helper {
    /// Writes over and over. With `syncs` each 16 MiB are made stable.
    fn writer(path: PathBuf, syncs: bool) -> Self {
        let (ends, bytes) = (Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default());
        let thread = thread::spawn({
            let (ends, bytes) = (Arc::clone(&ends), Arc::clone(&bytes));
            move || {
                let mut random = fastrand::Rng::new();
                let noise: Vec<u8> = (0..2 * MIB / 8).flat_map(|_| random.u64(..).to_le_bytes()).collect();
                let file = File::create(path).expect("a file to write");
                for number in 0u64.. {
                    if ends.load(Ordering::Relaxed) {
                        return;
                    }
                    let at = (number as usize * 4096) % MIB;
                    let offset = number * MIB as u64 % BULK_BYTES;
                    file.write_all_at(&noise[at..at + MIB], offset).expect("room");
                    bytes.fetch_add(MIB as u64, Ordering::Relaxed);
                    if syncs && number % 16 == 0 {
                        file.sync_data().expect("a stable file");
                    }
                }
            }
        });
        Helper::Writer { ends, bytes, thread: Some(thread) }
    }

    fn bytes(&self) -> u64 {
        match self {
            Helper::Program(_) => 0,
            Helper::Writer { bytes, .. } => bytes.load(Ordering::Relaxed),
        }
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        match self {
            Helper::Program(child) => {
                let _ = child.kill();
                let _ = child.wait();
            }
            Helper::Writer { ends, thread, .. } => {
                ends.store(true, Ordering::Relaxed);
                if let Some(thread) = thread.take() {
                    let _ = thread.join();
                }
            }
        }
    }
}

/// Where the stable writes go.
#[derive(Clone, Copy, PartialEq)]
enum Target {
    File,
    Nbd,
    /// The filesystem that the pool's file is on.
    Below,
}

impl Target {
    fn name(self) -> &'static str {
        match self {
            Target::File => "file on a mount",
            Target::Nbd => "new volume over NBD",
            Target::Below => "filesystem below",
        }
    }
}

/// What was measured of one target.
struct Cell {
    /// Seconds, ascending.
    took: Vec<f64>,
    /// What the others wrote, in MiB a second.
    others: f64,
}

impl Cell {
    fn percentile(&self, part: f64) -> f64 {
        let last = self.took.len().saturating_sub(1);
        self.took.get((last as f64 * part).round() as usize).copied().unwrap_or(f64::NAN)
    }

    fn show(&self) -> String {
        let [p50, p99, longest] = [0.5, 0.99, 1.0].map(|part| self.percentile(part) * 1000.0);
        format!("{p50:.1} {p99:.1} {longest:.0}")
    }
}

/// A daemon with a pool.
struct Bench {
    dir: PathBuf,
    seconds: Duration,
    daemon: Child,
    api: PathBuf,
}

impl Bench {
    fn begin(dir: &Path, seconds: Duration) -> Option<Self> {
        let api = dir.join("bench.sock");
        let mut serve = Command::new(env!("CARGO_BIN_EXE_cenote"));
        serve.arg("serve").arg("--socket").arg(&api).env("CENOTE_LOG", "error").stdin(Stdio::null());
        let bench = Self { dir: dir.into(), seconds, daemon: serve.spawn().ok()?, api };
        let began = Instant::now();
        while UnixStream::connect(&bench.api).is_err() {
            (began.elapsed() < Duration::from_secs(20)).then_some(())?;
            thread::sleep(Duration::from_millis(5));
        }
        let disk = dir.join("bench-disk");
        let _ = std::fs::remove_file(&disk);
        File::create(&disk).ok()?.set_len(8 << 30).ok()?;
        bench.ask(&["zpool", "create", "-f", "-R", dir.join("mnt").to_str()?, "bench", disk.to_str()?])?;
        for (name, compression) in [("quick", "lz4"), ("off", "off"), ("g9", "gzip-9")] {
            bench.ask(&[
                "zfs",
                "create",
                "-o",
                &format!("compression={compression}"),
                &format!("bench/{name}"),
            ])?;
        }
        Some(bench)
    }

    fn ask(&self, arguments: &[&str]) -> Option<()> {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cenote"));
        command.args(arguments).env("CENOTE_SOCKET", &self.api).status().ok()?.success().then_some(())
    }

    fn mounted(&self, name: &str) -> PathBuf {
        self.dir.join("mnt/bench").join(name)
    }

    fn measure(&self, target: Target, beside: Option<&str>) -> Option<Cell> {
        let other = match (target, beside) {
            (_, None) => None,
            // It compresses nothing.
            (Target::Below, Some("g9")) => return None,
            (Target::Below, Some(_)) => Some(Helper::writer(self.dir.join("bulk"), false)),
            (_, Some(name)) => Some(Helper::writer(self.mounted(name).join("bulk"), false)),
        };
        if other.is_some() {
            thread::sleep(AHEAD);
        }
        let (began, before) = (Instant::now(), other.as_ref().map_or(0, Helper::bytes));
        let mut took = match target {
            Target::File => self.file(&self.mounted("quick").join("log"))?,
            Target::Below => self.file(&self.dir.join("log"))?,
            Target::Nbd => self.volume()?,
        };
        let written = other.as_ref().map_or(0, Helper::bytes) - before;
        let others = written as f64 / MIB as f64 / began.elapsed().as_secs_f64();
        drop(other);
        self.ask(&["zpool", "sync", "bench"])?;
        took.sort_by(f64::total_cmp);
        Some(Cell { took, others })
    }

    /// Does `write` again and again, and says how long each took.
    fn again(&self, mut write: impl FnMut(u64) -> Option<()>) -> Option<Vec<f64>> {
        let (until, mut took) = (Instant::now() + self.seconds, Vec::new());
        while Instant::now() < until {
            let began = Instant::now();
            write(took.len() as u64 % 16 * 4096)?;
            took.push(began.elapsed().as_secs_f64());
            thread::sleep(PAUSE);
        }
        Some(took)
    }

    fn file(&self, path: &Path) -> Option<Vec<f64>> {
        let file = OpenOptions::new().create(true).truncate(false).write(true).open(path).ok()?;
        self.again(|offset| {
            file.write_all_at(&noise(), offset).ok()?;
            file.sync_all().ok()
        })
    }

    fn volume(&self) -> Option<Vec<f64>> {
        self.ask(&["zfs", "create", "-s", "-V", "1G", "bench/vol"])?;
        let mut client = Nbd::connect(&self.api.with_file_name("nbd.sock"), "bench/vol")?;
        let took = self.again(|offset| {
            client.request(Nbd::WRITE, offset, &noise())?;
            client.request(Nbd::FLUSH, 0, &[])
        });
        drop(client);
        self.ask(&["zfs", "destroy", "-f", "bench/vol"])?;
        took
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        let _ = self.ask(&["zpool", "export", "-f", "bench"]);
        let _ = Command::new("kill").arg(self.daemon.id().to_string()).status();
        let _ = self.daemon.wait();
        for file in ["bench-disk", "busy", "bulk", "log"] {
            let _ = std::fs::remove_file(self.dir.join(file));
        }
    }
}

/// Four kibibytes that do not compress.
fn noise() -> Vec<u8> {
    (0..512).flat_map(|_| fastrand::u64(..).to_le_bytes()).collect()
}

/// A client of one export, with one request at a time.
struct Nbd(UnixStream);

impl Nbd {
    const WRITE: u16 = 1;
    const FLUSH: u16 = 3;

    fn connect(socket: &Path, export: &str) -> Option<Self> {
        let mut stream = UnixStream::connect(socket).ok()?;
        let mut greeting = [0; 18];
        stream.read_exact(&mut greeting).ok()?;
        // Fixed newstyle without zeroes, and the export by name.
        let length = u32::try_from(export.len()).ok()?;
        let option = [b"IHAVEOPT".as_slice(), &1u32.to_be_bytes(), &length.to_be_bytes(), export.as_bytes()];
        stream.write_all(&[&3u32.to_be_bytes(), option.concat().as_slice()].concat()).ok()?;
        let mut size_and_flags = [0; 10];
        stream.read_exact(&mut size_and_flags).ok()?;
        Some(Self(stream))
    }

    fn request(&mut self, command: u16, offset: u64, data: &[u8]) -> Option<()> {
        let length = if command == Self::WRITE { u32::try_from(data.len()).ok()? } else { 0 };
        let mut request = Vec::from(0x2560_9513u32.to_be_bytes());
        request.extend([0, 0]);
        request.extend(command.to_be_bytes());
        request.extend([0; 8]);
        request.extend(offset.to_be_bytes());
        request.extend(length.to_be_bytes());
        request.extend(data);
        self.0.write_all(&request).ok()?;
        let mut reply = [0; 16];
        self.0.read_exact(&mut reply).ok()?;
        (reply[4..8] == [0; 4]).then_some(())
    }
}
