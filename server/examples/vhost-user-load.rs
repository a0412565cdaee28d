//! A virtual machine's requests to a vhost-user-blk device that another process serves: a client alone, so
//! that the same client measures several servers. `scripts/compare-speed` does that.
//!
//!     cargo run --release -p cenote-server --example vhost-user-load -- \
//!         SOCKET KIND BYTES DEPTH SECONDS [SEED]
//!
//! KIND is `read`, `write`, `randread` or `randwrite`, as fio names them; BYTES are those of a request, DEPTH
//! is how many are under way, and another SEED takes other places. What is written does not compress. It
//! prints one line of JSON: `iops`, which leaves out the first part of a second, and `total_ios`, all that
//! were answered, by which the server's processor time can be divided.

#![allow(clippy::unwrap_used, reason = "a program of measurements")]
#![allow(unsafe_code, reason = "system calls of the machine's side")]

#[path = "../tests/vhost_user/driver.rs"]
mod driver;
#[path = "../benches/serve/load.rs"]
mod load;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use driver::{DATA_BYTES, Machine, Options, SLOTS};
use load::Work;

/// Not counted at the beginning.
const WARMING: Duration = Duration::from_millis(300);

/// What is to be done on which socket, without the size of the device.
fn parse(words: &[String]) -> Option<(PathBuf, Work)> {
    let [socket, kind, bytes, depth, seconds, rest @ ..] = words else { return None };
    let (is_write, is_random) = match kind.as_str() {
        "read" => (false, false),
        "write" => (true, false),
        "randread" => (false, true),
        "randwrite" => (true, true),
        _ => return None,
    };
    let seed = match rest {
        [] => 0,
        [seed] => u64::from(seed.parse::<u32>().ok()?),
        _ => return None,
    };
    let work = Work {
        is_write,
        is_random,
        request_bytes: bytes.parse().ok().filter(|b| *b > 0 && b % 512 == 0 && *b <= DATA_BYTES as u64)?,
        size_bytes: 0,
        depth: depth.parse().ok().filter(|depth| (1..=SLOTS).contains(depth))?,
        clients: 1,
        warming: WARMING,
        timed: seconds.parse().ok().filter(|s| *s > 0.0).and_then(|s| Duration::try_from_secs_f64(s).ok())?,
        seed,
    };
    Some((socket.into(), work))
}

/// Bytes of the device on a socket, by its configuration.
fn size_of(socket: &Path) -> u64 {
    let mut machine = Machine::connect(socket, Options { has_inflight: false, ..Options::default() });
    let config = machine.config();
    let sectors = config.first_chunk().copied().map_or(0, u64::from_le_bytes);
    sectors * 512
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let Some((socket, work)) = parse(&words) else {
        eprintln!(
            "usage: vhost-user-load SOCKET read|write|randread|randwrite BYTES DEPTH SECONDS [SEED]\n\
             BYTES: a multiple of 512, at most {DATA_BYTES}; DEPTH: 1 to {SLOTS}"
        );
        return ExitCode::from(2);
    };
    let size_bytes = size_of(&socket);
    if size_bytes < work.request_bytes {
        eprintln!("vhost-user-load: {}: a device of {size_bytes} bytes is too small", socket.display());
        return ExitCode::FAILURE;
    }
    let done = load::measure(&[socket], Work { size_bytes, ..work });
    let iops = done.timed as f64 / work.timed.as_secs_f64();
    println!("{{\"iops\": {iops:.1}, \"total_ios\": {}}}", done.all);
    ExitCode::SUCCESS
}
