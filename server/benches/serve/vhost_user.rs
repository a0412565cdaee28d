//! vhost-user-blk beside `qemu-storage-daemon`'s.
//!
//! The client is the driver of the tests: a guest without a machine, which keeps requests under way and takes
//! the rings' notifications as Linux does. With 64 clients, each has a connection and a ring of its own, and
//! a thread serves several of them. The peer exports a raw file of the same size in tmpfs.

use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use server::block::Limits;
use server::runtime::Shards;
use server::vhost_user;

use crate::load::{self, Work};
use crate::support::{NAME, One};
use crate::{DEPTH, MOST_CLIENTS, ROUND, compare};

/// Before a round, all pages of the guests' memory are touched by both sides.
const WARMING: Duration = Duration::from_millis(800);

/// Measures both, and prints it.
pub fn run(exports: Arc<One>, size_bytes: u64) {
    let folder = tempfile::tempdir().expect("temporary directory");
    let ours = [serve_ours(&folder.path().join("ours"), exports)];
    let peer = Peer::start(folder.path(), size_bytes);
    compare("vhost-user-blk", "qemu-storage-daemon", |is_peer, reads| {
        let sockets = if is_peer { &peer.sockets[..] } else { &ours };
        let work = Work {
            is_write: false,
            is_random: reads.is_random,
            request_bytes: reads.bytes(),
            size_bytes,
            depth: DEPTH,
            clients: reads.clients,
            warming: WARMING,
            timed: ROUND,
            seed: 0,
        };
        load::measure(sockets, work).timed as f64 / ROUND.as_secs_f64()
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
