//! iSCSI beside Debian's `tgt` on a file in tmpfs.
//!
//! The client is `iscsi-perf` of libiscsi, a process for each client, all at the same time: what they say
//! they read is added up. They take turns with the processor as initiators on the same machine do, so that
//! this is a bound of the client too.

use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use server::block::{Limits, Shares};
use server::iscsi;
use server::runtime::Shards;

use crate::support::{NAME, One};
use crate::{DEPTH, ROUND, Reads, compare};

const TARGET: &str = "iqn.2026-01.bench:peer";
/// Bytes of a sector, which both have.
const SECTOR_BYTES: u64 = 512;

/// Measures both, and prints it.
pub fn run(exports: Arc<One>, size_bytes: u64) {
    let Some(peer) = Peer::start(size_bytes) else {
        println!("iSCSI: not measured; tgtd or iscsi-perf is not there (Debian: tgt, libiscsi-bin)");
        return;
    };
    let ours = serve_ours(exports);
    compare("iSCSI", "tgt", |is_peer, reads| measure(if is_peer { &peer.uri } else { &ours }, reads));
}

/// Serves until the process ends. Where.
fn serve_ours(exports: Arc<One>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
    listener.set_nonblocking(true).expect("non-blocking socket");
    let address = listener.local_addr().expect("an address");
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("runtime");
        runtime.block_on(async {
            let listener = tokio::net::TcpListener::from_std(listener).expect("listener");
            let shards = Arc::new(Shards::start().expect("shards"));
            let listener = server::listening::Listener::of("iSCSI", listener, None).expect("listener");
            iscsi::serve_tcp(listener, exports, shards, Limits::default()).await
        })
    });
    let shares = Shares::default();
    let share = shares.through(server::block::Protocol::Iscsi).expect("all protocols");
    iscsi::uri(address, NAME, share).expect("a short name")
}

/// `tgtd` with one unit. Ended when dropped.
struct Peer {
    child: Child,
    file: PathBuf,
    uri: String,
}

impl Peer {
    fn start(size_bytes: u64) -> Option<Self> {
        let is_there = |name: &str| {
            let path = std::env::var_os("PATH").unwrap_or_default();
            std::env::split_paths(&path).chain(["/usr/sbin".into()]).any(|folder| folder.join(name).exists())
        };
        if !["tgtd", "tgtadm", "iscsi-perf"].into_iter().all(is_there) {
            return None;
        }
        let free = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
        let address: SocketAddr = free.expect("a free port");
        // The number of its control socket, so that it can stand beside another one. It has to be small.
        let control = (address.port() % 10_000).to_string();
        let file = Path::new("/dev/shm").join(format!("cenote-bench-tgt-{}", std::process::id()));
        std::fs::write(&file, vec![0xa5; size_bytes as usize]).expect("a file in tmpfs");
        let child = tool("tgtd")
            .args(["-f", "-C", &control, "--iscsi", &format!("portal={address}")])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("tgtd");
        let uri = format!("iscsi://{address}/{TARGET}/1");
        let peer = Self { child, file, uri };
        let disk = peer.file.to_str().expect("a plain path");
        for words in [
            &["--op", "new", "--mode", "target", "--tid", "1", "-T", TARGET][..],
            &["--op", "new", "--mode", "logicalunit", "--tid", "1", "--lun", "1", "-b", disk],
            &["--op", "bind", "--mode", "target", "--tid", "1", "-I", "ALL"],
        ] {
            let patience = Instant::now() + Duration::from_secs(10);
            let done = || {
                let mut command = tool("tgtadm");
                command.args(["-C", &control, "--lld", "iscsi"]).args(words).stderr(Stdio::null());
                command.status().is_ok_and(|status| status.success())
            };
            while !done() {
                assert!(Instant::now() < patience, "tgtadm {words:?}");
                thread::sleep(Duration::from_millis(100));
            }
        }
        Some(peer)
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // It is gone, or it is going.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_file(&self.file);
    }
}

/// Tools of the administrator are not in the path of all users.
fn tool(name: &str) -> Command {
    let mut command = Command::new(name);
    let path = std::env::var("PATH").unwrap_or_default();
    command.env("PATH", format!("{path}:/usr/sbin:/sbin"));
    command
}

/// Reads a second of all clients together.
fn measure(uri: &str, reads: Reads) -> f64 {
    let blocks = reads.bytes() / SECTOR_BYTES;
    let depth = DEPTH.to_string();
    // One round is a second more: the clients do not begin at the same time.
    let seconds = (ROUND.as_secs() + 1).to_string();
    let clients: Vec<Child> = (0..reads.clients)
        .map(|number| {
            let mut command = Command::new("iscsi-perf");
            command.args(["-m", &depth, "-b", &blocks.to_string(), "-t", &seconds]);
            if reads.is_random {
                command.arg("-r");
            }
            let initiator = format!("iqn.2026-01.bench:client-{number}");
            command.args(["-i", &initiator, uri]).stdout(Stdio::piped()).stderr(Stdio::null());
            command.spawn().expect("iscsi-perf")
        })
        .collect();
    let read = clients.into_iter().map(|client| {
        let said = client.wait_with_output().expect("iscsi-perf's words").stdout;
        let said = String::from_utf8_lossy(&said).into_owned();
        average(&said).unwrap_or_else(|| panic!("iscsi-perf {uri}: {said}"))
    });
    read.sum()
}

/// What it says last.
fn average(said: &str) -> Option<f64> {
    let rest = said.rsplit_once("iops average ")?.1;
    rest.split_whitespace().next()?.parse().ok()
}
