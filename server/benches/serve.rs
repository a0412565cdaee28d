//! Protocols of virtual machines beside other servers of theirs: vhost-user-blk beside
//! `qemu-storage-daemon`'s, with the same client in the same run.
//!
//!     cargo bench -p cenote-server --bench serve
//!
//! The client is the driver of the tests: a guest without a machine, which keeps requests under way and takes
//! the rings' notifications as Linux does. With 64 clients, each has a connection and a ring of its own, and
//! a thread serves several of them.
//!
//! Our volume is one that OpenZFS made, with blocks of 16 KiB, all of it in the ARC. The peer exports a raw
//! file of the same size in tmpfs. Servers take turns, several rounds each, so that what else the machine
//! does falls on both; ratios are of rounds.

#![allow(clippy::unwrap_used, reason = "a bench")]
#![allow(unsafe_code, reason = "system calls of the machine's side")]

#[path = "../tests/vhost_user/driver.rs"]
mod driver;

use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use driver::{Machine, OK, Options, READ, SLOTS};
use engine::dmu::Sink;
use engine::dsl::Dsl;
use engine::pool::discovery;
use engine::pool::import::{self, ImportOptions};
use engine::zvol::Zvol;
use server::block::{Caller, Export, ExportError, Exports, Extent, FailureKind, Limits, Listed, Unopened};
use server::runtime::Shards;
use server::vhost_user;
use testkit::GoldenPool;

const VOLUME: &str = "volumes/v16K";
const NAME: &str = "v";
const DEPTH: u16 = 32;
const ROUNDS: usize = 5;
const ROUND: Duration = Duration::from_secs(1);
/// Before that, all pages of the guests' memory are touched by both sides.
const WARMING: Duration = Duration::from_millis(800);
const MOST_CLIENTS: usize = 64;

/// A volume of a golden pool, cached by the engine.
struct Volume(Arc<Zvol>);

impl Export for Volume {
    fn size_bytes(&self) -> u64 {
        self.0.size()
    }

    fn block_bytes(&self) -> u32 {
        self.0.block_size() as u32
    }

    async fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), ExportError> {
        let failed = |error: engine::Error| ExportError { kind: FailureKind::Io, message: error.to_string() };
        self.0.read_at(offset, into).await.map_err(failed)
    }

    async fn read_to(&self, offset: u64, len_bytes: usize, sink: &mut dyn Sink) -> Result<(), ExportError> {
        let failed = |error: engine::Error| ExportError { kind: FailureKind::Io, message: error.to_string() };
        self.0.read_to(offset, len_bytes as u64, sink).await.map_err(failed)
    }

    async fn extent(&self, offset: u64) -> Result<Extent, ExportError> {
        Ok(Extent { len_bytes: self.size_bytes() - offset, is_hole: false })
    }
}

struct One(Arc<Volume>);

impl Exports for One {
    type Export = Volume;

    async fn listed(&self, _: Caller<'_>) -> Vec<Listed> {
        vec![Listed::to_all(NAME)]
    }

    async fn open(&self, _: &str, _: Caller<'_>) -> Result<Arc<Volume>, Unopened> {
        Ok(Arc::clone(&self.0))
    }
}

/// Opens the volume and reads all of it once, so that it is cached.
async fn open_volume(pool: &GoldenPool) -> engine::Result<Arc<Zvol>> {
    let found = discovery::scan(&[&pool.dir]).await?;
    let found = import::select(found, &pool.name).expect("the golden pool");
    let pool = import::import(&found, &ImportOptions::read_only()).await.expect("the golden pool opens");
    let dsl = Dsl::open(&pool).await?;
    let objset = dsl.open_objset(&dsl.find(VOLUME).await?).await?;
    let volume = Zvol::open(&objset).await?;
    let mut all = vec![0; volume.size() as usize];
    volume.read_at(0, &mut all).await?;
    Ok(volume)
}

/// Serves until the process ends. The socket.
fn serve_ours(folder: &Path, volume: Arc<Zvol>) -> PathBuf {
    let served = folder.to_owned();
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("runtime");
        runtime.block_on(async {
            let shards = Arc::new(Shards::start().expect("shards"));
            let exports = Arc::new(One(Arc::new(Volume(volume))));
            vhost_user::serve_folder(served, exports, shards, Limits::default()).await
        })
    });
    vhost_user::socket_of(folder, NAME).expect("a short path")
}

/// `qemu-storage-daemon` with as many exports as there are clients, each of which takes one. Ended when
/// dropped.
struct Peer {
    child: Child,
    sockets: Vec<PathBuf>,
}

impl Peer {
    fn start(folder: &Path, size_bytes: u64) -> Self {
        let file = Path::new("/dev/shm").join(format!("cenote-bench-{}", std::process::id()));
        std::fs::write(&file, vec![0xa5; size_bytes as usize]).expect("a file in tmpfs");
        let mut command = Command::new("qemu-storage-daemon");
        // Its own best: the file is read in the thread that serves.
        let blockdev = format!("driver=file,node-name=file,filename={},aio=threads", file.display());
        command.args(["--blockdev", &blockdev, "--blockdev", "driver=raw,node-name=disk,file=file"]);
        // As many threads as we have shards.
        let threads = thread::available_parallelism().map_or(1, usize::from);
        for number in 0..threads {
            command.args(["--object", &format!("iothread,id=thread{number}")]);
        }
        let sockets: Vec<PathBuf> =
            (0..MOST_CLIENTS).map(|number| folder.join(format!("peer-{number}.sock"))).collect();
        for (number, socket) in sockets.iter().enumerate() {
            let socket = socket.display();
            let export = format!(
                "type=vhost-user-blk,id=export{number},node-name=disk,addr.type=unix,addr.path={socket},\
                 num-queues=1,iothread=thread{}",
                number % threads
            );
            command.args(["--export", &export]);
        }
        let child = command.spawn().expect("qemu-storage-daemon; see scripts/install-test-tools");
        let peer = Self { child, sockets };
        // They are made in this order.
        if let Some(last) = peer.sockets.last() {
            while !last.exists() {
                thread::sleep(Duration::from_millis(10));
            }
        }
        // Open already; it is gone with the daemon.
        std::fs::remove_file(&file).expect("the file in tmpfs");
        peer
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // It is gone, or it is going.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Where a client reads next.
struct Places {
    seed: u64,
    is_random: bool,
    read_bytes: u64,
    size_bytes: u64,
}

impl Places {
    fn next(&mut self) -> u64 {
        let count = self.size_bytes / self.read_bytes;
        self.seed = match self.is_random {
            true => self.seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1),
            false => self.seed + 1,
        };
        let number = if self.is_random { self.seed >> 33 } else { self.seed };
        number % count * self.read_bytes / 512
    }
}

/// Reads that a thread's clients had answered.
fn load(mut machines: Vec<Machine>, mut places: Places) -> u64 {
    let pieces = [places.read_bytes as u32];
    let mut ask = |machine: &mut Machine, slots: &[u16]| {
        let before = machine.available(0);
        for slot in slots {
            let head = machine.prepare(0, *slot, (READ, places.next()), &pieces);
            machine.offer(0, head);
        }
        machine.kick(0, before);
    };
    let all: Vec<u16> = (0..DEPTH.min(SLOTS)).collect();
    machines.iter_mut().for_each(|machine| ask(machine, &all));
    let begun = Instant::now();
    let mut done = 0;
    let mut is_warm = false;
    while begun.elapsed() < WARMING + ROUND {
        if !is_warm && begun.elapsed() >= WARMING {
            (is_warm, done) = (true, 0);
        }
        let mut moved = false;
        for machine in &mut machines {
            let answered = machine.answered(0);
            if answered.is_empty() {
                continue;
            }
            moved = true;
            done += answered.len() as u64;
            let slots: Vec<u16> = answered.iter().map(|(head, _)| machine.slot(*head)).collect();
            assert!(slots.iter().all(|slot| machine.status(0, *slot) == OK));
            ask(machine, &slots);
        }
        if !moved {
            // All are to tell of their next answer; who has one already is not waited for.
            if machines.iter_mut().all(|machine| machine.wants_call(0)) {
                let calls: Vec<i32> = machines.iter().map(|machine| machine.call(0)).collect();
                driver::any_readable(&calls, Duration::from_millis(100));
            }
        }
    }
    // What is under way ends before its memory goes.
    for machine in machines {
        let _ = machine.stop(0);
    }
    done
}

/// Reads a second of all clients together.
fn measure(sockets: &[PathBuf], clients: usize, is_random: bool, size_bytes: u64) -> f64 {
    let read_bytes = if is_random { 4096 } else { 128 << 10 };
    let threads = if clients == 1 { 1 } else { 2 };
    let workers: Vec<_> = (0..threads)
        .map(|thread| {
            let own = (thread..clients).step_by(threads).map(|client| {
                let options = Options { has_inflight: false, ..Options::default() };
                Machine::connect(&sockets[client % sockets.len()], options)
            });
            let own: Vec<Machine> = own.collect();
            let seed = if is_random { thread as u64 * 7919 + 1 } else { thread as u64 * 100 };
            let places = Places { seed, is_random, read_bytes, size_bytes };
            thread::spawn(move || load(own, places))
        })
        .collect();
    let done: u64 = workers.into_iter().map(|worker| worker.join().expect("a client")).sum();
    done as f64 / ROUND.as_secs_f64()
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
    let Some(pool) = testkit::golden::pool("volumes") else { return };
    let volume = device::block_on(open_volume(&pool)).unwrap_or_else(|error| panic!("{VOLUME}: {error}"));
    let size_bytes = volume.size();
    let folder = tempfile::tempdir().expect("temporary directory");
    let ours = [serve_ours(&folder.path().join("ours"), volume)];
    let peer = Peer::start(folder.path(), size_bytes);
    println!("vhost-user-blk, cached reads, depth {DEPTH}; median of {ROUNDS} rounds");
    println!("reads          clients     cenote  qemu-storage-daemon  ratio");
    for (name, is_random) in [("4K random", true), ("128K in order", false)] {
        for clients in [1, MOST_CLIENTS] {
            let rounds: Vec<[f64; 2]> = (0..ROUNDS)
                .map(|_| {
                    [&ours[..], &peer.sockets].map(|sockets| measure(sockets, clients, is_random, size_bytes))
                })
                .collect();
            let column = |of: fn(&[f64; 2]) -> f64| median(rounds.iter().map(of).collect());
            let unit = |reads: f64| match is_random {
                true => format!("{:.1} kIOPS", reads / 1e3),
                false => format!("{:.2} GB/s", reads * f64::from(128 << 10) / 1e9),
            };
            println!(
                "{name:<14} {clients:>7} {:>10} {:>20} {:>6.2}",
                unit(column(|round| round[0])),
                unit(column(|round| round[1])),
                column(|round| round[0] / round[1])
            );
        }
    }
}
