//! Cached 4 KiB random reads over NBD, beside nbdkit's `null` and `memory` plugins, with the same client in
//! the same run.
//!
//!     cargo bench -p cenote-server --bench nbd
//!
//! Two clients: fio's NBD engine, which is what people measure with but is itself the bottleneck at depth;
//! and a lean one that keeps as many requests under way and reads and writes in batches, so that the server
//! is.
//!
//! The servers take turns, several rounds each, so that what else the machine does falls on all of them.
//! `null` makes up its zeros and is the bound of what a server can do that copies nothing from anywhere;
//! `memory` is its nearest real relative. Our volume is one that OpenZFS made, with blocks of 16 KiB, all of
//! it in the ARC.

use std::{
    io::{Read, Write},
    os::unix::net::{UnixListener, UnixStream},
    path::Path,
    process::{Child, Command},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use server::{block, nbd, runtime::Shards};

use self::support::{One, median};

#[path = "support/mod.rs"]
mod support;

const READ_BYTES: usize = 4096;
const ROUNDS: usize = 9;
const SECONDS_PER_ROUND: u32 = 1;

/// Serves until the process ends.
fn serve_ours(socket: &Path, exports: Arc<One>) {
    let listener = UnixListener::bind(socket).expect("bind");
    listener.set_nonblocking(true).expect("non-blocking socket");
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("runtime");
        runtime.block_on(async {
            let listener = tokio::net::UnixListener::from_std(listener).expect("listener");
            let shards = Arc::new(Shards::start().expect("shards"));
            nbd::serve_unix(listener, exports, shards, block::Limits::default()).await
        })
    });
}

/// Another program's server, ended when dropped.
struct Peer(Child);

impl Peer {
    fn start(socket: &Path, plugin: &str, size_bytes: u64) -> Self {
        let size = format!("size={size_bytes}");
        // Without it, glibc's copies are slow at just the offset that an NBD header causes.
        let child = Command::new("nbdkit")
            .args(["--foreground", "--unix"])
            .arg(socket)
            .args([plugin, &size])
            .env("GLIBC_TUNABLES", "glibc.cpu.x86_rep_movsb_threshold=1073741824")
            .spawn()
            .expect("nbdkit; see scripts/install-test-tools");
        let peer = Self(child);
        for _ in 0..500 {
            if choose_export(socket).is_ok() {
                return peer;
            }
            thread::sleep(Duration::from_millis(10));
        }
        panic!("nbdkit {plugin} does not listen");
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // It is gone, or it is going.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Operations a second that fio sees.
fn measure_fio(socket: &Path, depth: usize, _: u64) -> f64 {
    let output = Command::new("fio")
        .args([
            "--name=reads",
            "--ioengine=nbd",
            "--rw=randread",
            "--bs=4k",
            "--time_based",
            "--output-format=json",
        ])
        .args([format!("--iodepth={depth}"), format!("--runtime={SECONDS_PER_ROUND}")])
        .arg(format!("--uri=nbd+unix:///volume?socket={}", socket.display()))
        .output()
        .expect("fio; see scripts/install-test-tools");
    let report = String::from_utf8_lossy(&output.stdout);
    let json = report.find('{').map_or("", |start| &report[start..]);
    let report: serde_json::Value = serde_json::from_str(json).unwrap_or_default();
    let iops = report["jobs"][0]["read"]["iops"].as_f64();
    iops.unwrap_or_else(|| panic!("fio: {}", String::from_utf8_lossy(&output.stderr)))
}

/// Operations a second that the lean client sees.
fn measure_lean(socket: &Path, depth: usize, size_bytes: u64) -> f64 {
    let mut stream = choose_export(socket).expect("handshake");
    let reply_bytes = 16 + READ_BYTES;
    let mut input = vec![0; 64 * reply_bytes];
    let mut filled = 0;
    let mut place = 0x9e37_79b9_7f4a_7c15u64;
    let mut requests = Vec::new();
    let mut to_send = depth;
    let mut under_way = 0;
    let mut done = 0u64;
    let begin = Instant::now();
    loop {
        if begin.elapsed() >= Duration::from_secs(SECONDS_PER_ROUND.into()) {
            // Nothing may be left under way: nbdkit does not survive a client that leaves then.
            to_send = 0;
        }
        requests.clear();
        under_way += to_send;
        for _ in 0..to_send {
            place = place.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let offset = (place >> 33) % (size_bytes / READ_BYTES as u64) * READ_BYTES as u64;
            requests.extend(0x2560_9513u32.to_be_bytes());
            requests.extend([0; 12]);
            requests.extend(offset.to_be_bytes());
            requests.extend((READ_BYTES as u32).to_be_bytes());
        }
        if under_way == 0 {
            break;
        }
        stream.write_all(&requests).expect("send");
        filled += stream.read(&mut input[filled..]).expect("receive");
        to_send = filled / reply_bytes;
        under_way -= to_send;
        done += to_send as u64;
        for reply in input[..filled].chunks_exact(reply_bytes) {
            assert_eq!(reply[..8], [0x67, 0x44, 0x66, 0x98, 0, 0, 0, 0]);
        }
        input.copy_within(to_send * reply_bytes..filled, 0);
        filled -= to_send * reply_bytes;
    }
    done as f64 / begin.elapsed().as_secs_f64()
}

/// Connects and chooses the export `volume`, with simple replies.
fn choose_export(socket: &Path) -> std::io::Result<UnixStream> {
    let mut stream = UnixStream::connect(socket)?;
    stream.read_exact(&mut [0; 18])?;
    let option = [b"IHAVEOPT".as_slice(), &1u32.to_be_bytes(), &6u32.to_be_bytes(), b"volume"].concat();
    stream.write_all(&[&3u32.to_be_bytes(), option.as_slice()].concat())?;
    stream.read_exact(&mut [0; 10])?;
    Ok(stream)
}

fn main() {
    // `cargo test --all-targets` runs benchmarks too, but without this argument.
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    let Some((exports, size_bytes)) = One::open() else { return };
    let directory = tempfile::tempdir().expect("temporary directory");
    let sockets = ["cenote", "null", "memory"].map(|name| (name, directory.path().join(name)));
    serve_ours(&sockets[0].1, exports);
    let _peers =
        [Peer::start(&sockets[1].1, "null", size_bytes), Peer::start(&sockets[2].1, "memory", size_bytes)];

    println!(
        "4 KiB random reads, cached, one connection over a Unix socket; kIOPS, median of {ROUNDS} rounds"
    );
    println!("client  depth    cenote  nbdkit null  nbdkit memory    / null  / memory");
    for (client, depth) in [("fio", 1), ("fio", 32), ("lean", 1), ("lean", 32)] {
        let rounds = (0..ROUNDS).map(|_| {
            let measure = if client == "fio" { measure_fio } else { measure_lean };
            sockets.each_ref().map(|(_, socket)| measure(socket, depth, size_bytes) / 1000.0)
        });
        let rounds: Vec<[f64; 3]> = rounds.collect();
        let column = |of: fn(&[f64; 3]) -> f64| median(rounds.iter().map(of).collect());
        println!(
            "{client:<6} {depth:>6} {:>9.1} {:>12.1} {:>14.1} {:>9.2} {:>9.2}",
            column(|round| round[0]),
            column(|round| round[1]),
            column(|round| round[2]),
            // Of rounds, not of medians: what else the machine does comes and goes.
            column(|round| round[0] / round[1]),
            column(|round| round[0] / round[2]),
        );
    }
}
