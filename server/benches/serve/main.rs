//! Protocols of virtual machines beside other servers of theirs, with the same client in the same run.
//!
//!     cargo bench -p cenote-server --bench serve [-- vhost-user|iscsi]
//!
//! | module | protocol | beside |
//! |---|---|---|
//! | `vhost_user` | vhost-user-blk | `qemu-storage-daemon` |
//! | `iscsi` | iSCSI | `tgt` |
//! | `load` | the requests of virtual machines; also of `examples/vhost-user-load.rs` | |
//!
//! Our volume is one that OpenZFS made, with blocks of 16 KiB, all of it in the ARC. Servers take turns,
//! several rounds each, so that what else the machine does falls on both; ratios are of rounds.

#![allow(clippy::unwrap_used, reason = "a bench")]
#![allow(unsafe_code, reason = "system calls of the machine's side")]

#[path = "../../tests/vhost_user/driver.rs"]
mod driver;
mod iscsi;
mod load;
#[path = "../support/mod.rs"]
mod support;
mod vhost_user;

use std::sync::Arc;
use std::time::Duration;

use support::{One, median};

const DEPTH: u16 = 32;
const ROUNDS: usize = 5;
const ROUND: Duration = Duration::from_secs(1);
const MOST_CLIENTS: usize = 64;

/// What clients read: 4 KiB anywhere, or 128 KiB in order.
#[derive(Clone, Copy)]
struct Reads {
    clients: usize,
    is_random: bool,
}

impl Reads {
    fn bytes(self) -> u64 {
        if self.is_random { 4096 } else { 128 << 10 }
    }
}

/// Measures all reads by turns, and prints a table. `measure` gives reads a second, of the peer if it is told
/// so.
fn compare(protocol: &str, peer: &str, measure: impl Fn(bool, Reads) -> f64) {
    println!("{protocol}, cached reads, depth {DEPTH}; median of {ROUNDS} rounds");
    println!("reads          clients     cenote {peer:>20}  ratio");
    for (name, is_random) in [("4K random", true), ("128K in order", false)] {
        for clients in [1, MOST_CLIENTS] {
            let reads = Reads { clients, is_random };
            let rounds: Vec<[f64; 2]> =
                (0..ROUNDS).map(|_| [false, true].map(|is_peer| measure(is_peer, reads))).collect();
            let column = |of: fn(&[f64; 2]) -> f64| median(rounds.iter().map(of).collect());
            let unit = |done: f64| match is_random {
                true => format!("{:.1} kIOPS", done / 1e3),
                false => format!("{:.2} GB/s", done * reads.bytes() as f64 / 1e9),
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

fn main() {
    // `cargo test --all-targets` runs benchmarks too, but without this argument.
    let words: Vec<String> = std::env::args().skip(1).collect();
    if !words.iter().any(|word| word == "--bench") {
        return;
    }
    let Some((exports, size_bytes)) = One::open() else { return };
    let is_asked = |name: &str| words.iter().all(|word| word.starts_with('-') || word == name);
    if is_asked("vhost-user") {
        vhost_user::run(Arc::clone(&exports), size_bytes);
    }
    if is_asked("iscsi") {
        iscsi::run(exports, size_bytes);
    }
}
