//! vhost-user-blk beside `qemu-storage-daemon`'s.
//!
//! The client is the driver of the tests: a guest without a machine, which keeps requests under way and takes
//! the rings' notifications as Linux does. With 64 clients, each has a connection and a ring of its own, and
//! a thread serves several of them. The peer exports a raw file of the same size in tmpfs.

use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use server::block::Limits;
use server::runtime::Shards;
use server::vhost_user;

use crate::driver::{self, Machine, OK, Options, READ, SLOTS};
use crate::support::{NAME, One};
use crate::{DEPTH, MOST_CLIENTS, ROUND, Reads, compare};

/// Before a round, all pages of the guests' memory are touched by both sides.
const WARMING: Duration = Duration::from_millis(800);

/// Measures both, and prints it.
pub fn run(exports: Arc<One>, size_bytes: u64) {
    let folder = tempfile::tempdir().expect("temporary directory");
    let ours = [serve_ours(&folder.path().join("ours"), exports)];
    let peer = Peer::start(folder.path(), size_bytes);
    compare("vhost-user-blk", "qemu-storage-daemon", |is_peer, reads| {
        let sockets = if is_peer { &peer.sockets[..] } else { &ours };
        measure(sockets, reads, size_bytes)
    });
}

/// Serves until the process ends. The socket.
fn serve_ours(folder: &Path, exports: Arc<One>) -> PathBuf {
    let served = (folder.to_owned(), vhost_user::Faults::default());
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("runtime");
        runtime.block_on(async {
            let shards = Arc::new(Shards::start().expect("shards"));
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
fn measure(sockets: &[PathBuf], reads: Reads, size_bytes: u64) -> f64 {
    let Reads { clients, is_random } = reads;
    let read_bytes = reads.bytes();
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
