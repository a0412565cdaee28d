//! Files on a mount beside those on other filesystems, in turns, as ratios.
//!
//!     cargo bench -p cenote --bench files -- [--quick] [--rounds N] [--only GROUP,…] [--systems NAME,…]
//!
//! Each system has one sparse file in one directory (`CENOTE_BENCH_DIR`, or a temporary directory): a pool of
//! Cenote, ext4 and btrfs through a loop device with direct I/O, and a pool of zfs-fuse 0.7, if
//! `CENOTE_ZFS_FUSE` names a directory into which its Debian package and `libfuse2` were unpacked
//! (`dpkg -x`). `ring` is Cenote whose requests come through io_uring, where the kernel's switch is on.
//! `before` is another build of Cenote, `CENOTE_BENCH_BEFORE`. `null` is a filesystem in memory that does
//! nothing but answer: what no FUSE filesystem with these options can beat. Needs root; what cannot run is
//! left out, by name.
//!
//! How it is on a slower device is seen by limiting the one below the directory while it runs, to 500 MiB/s
//! by `echo "MAJOR:MINOR 524288000" > /sys/fs/cgroup/blkio/blkio.throttle.write_bps_device`, and the same of
//! `read_bps_device` (0 ends it), or within a control group whose `io.max` says so.
//!
//! In each round every system does the same work one after the other, so that what else the machine does
//! falls on all of them. The table has medians. Writes end when they are stable (`fsync`, `syncfs`). Before a
//! cold read the pool is exported and imported, or the filesystem mounted again, and the system's page cache
//! is dropped.

#![allow(unsafe_code, reason = "system calls")]

mod null;
mod systems;
mod work;

use std::io;
use std::time::Instant;

use systems::System;
use work::{GROUPS, Scale};

/// What was measured of one row on one system.
#[derive(Default)]
struct Measured {
    /// Seconds of each round.
    seconds: Vec<f64>,
    /// Seconds of processor time of the daemon.
    processor: Vec<f64>,
    /// Most memory of the daemon, in MiB.
    memory: f64,
}

/// One kind of work.
struct Row {
    name: String,
    /// How much of it, in `unit`.
    amount: f64,
    unit: &'static str,
    /// By system.
    measured: Vec<Measured>,
}

/// All that was measured.
pub struct Table {
    systems: usize,
    rows: Vec<Row>,
}

impl Table {
    /// Measures `work`.
    ///
    /// # Errors
    /// Those of the work.
    pub fn time(
        &mut self,
        on: &System,
        name: &str,
        (amount, unit): (f64, &'static str),
        work: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<()> {
        let before = on.daemon_seconds();
        on.forget_peak();
        let began = Instant::now();
        work()?;
        let seconds = began.elapsed().as_secs_f64();
        let place = self.rows.iter().position(|row| row.name == name).unwrap_or_else(|| {
            let measured = (0..self.systems).map(|_| Measured::default()).collect();
            self.rows.push(Row { name: name.to_owned(), amount, unit, measured });
            self.rows.len() - 1
        });
        // The results so far when it is stopped.
        eprintln!("{name}: {}: {:.0} {unit}", on.name, amount / seconds);
        let measured = &mut self.rows[place].measured[on.place];
        measured.seconds.push(seconds);
        if let (Some(before), Some(after)) = (before, on.daemon_seconds()) {
            measured.processor.push(after - before);
        }
        measured.memory = measured.memory.max(on.peak_mib().unwrap_or(0.0));
        Ok(())
    }

    fn print(&self, systems: &[System]) {
        let Some(own) = systems.first() else { return };
        let others: Vec<&System> = systems.iter().filter(|system| system.place != own.place).collect();
        print!("{:34} {:>9} {:>7}", "", own.name, "");
        others.iter().for_each(|other| print!(" {:>9} {:>6}", other.name, "ratio"));
        println!(" {:>6} {:>5}", "CPU s", "MiB");
        for row in &self.rows {
            let of = |system: &System| median(&row.measured[system.place].seconds);
            let rate =
                |seconds: Option<f64>| seconds.map_or("-".into(), |s| format!("{:.0}", row.amount / s));
            let taken = of(own);
            print!("{:34} {:>9} {:>7}", row.name, rate(taken), row.unit);
            for other in &others {
                let peer = of(other);
                let ratio = taken.zip(peer).map_or("-".into(), |(own, peer)| format!("{:.2}", peer / own));
                print!(" {:>9} {ratio:>6}", rate(peer));
            }
            let measured = &row.measured[own.place];
            println!(" {:6.2} {:5.0}", median(&measured.processor).unwrap_or(0.0), measured.memory);
        }
        println!(
            "ratio: how many times as fast Cenote is; CPU and MiB: Cenote's daemon, processor time and most \
             memory"
        );
    }
}

fn median(all: &[f64]) -> Option<f64> {
    let mut sorted = all.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied()
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let after = |name: &str| {
        let place = arguments.iter().position(|argument| argument == name)?;
        arguments.get(place + 1).map(String::as_str)
    };
    let chosen =
        |list: Option<&str>, name: &str| list.is_none_or(|list| list.split(',').any(|one| one == name));
    let scale =
        if arguments.iter().any(|argument| argument == "--quick") { Scale::QUICK } else { Scale::FULL };
    let rounds: usize = after("--rounds").and_then(|text| text.parse().ok()).unwrap_or(3);
    let (only, wanted) = (after("--only"), after("--systems"));

    let place = match std::env::var_os("CENOTE_BENCH_DIR") {
        Some(directory) => tempfile::tempdir_in(directory),
        None => tempfile::tempdir(),
    };
    let place = place.expect("a directory for the files");
    let mut systems: Vec<System> = Vec::new();
    for (name, make) in systems::ALL {
        if !chosen(wanted, name) {
            continue;
        }
        match make(place.path(), systems.len()) {
            Ok(system) => systems.push(system),
            Err(error) => println!("{name} is left out: {error}"),
        }
    }
    let mut table = Table { systems: systems.len(), rows: Vec::new() };
    for _ in 0..rounds {
        for (group, run) in GROUPS {
            if !chosen(only, group) {
                continue;
            }
            for system in &systems {
                let measured = system.hold().and_then(|_held| run(system, &scale, &mut table));
                if let Err(error) = measured {
                    println!("{group} on {}: {error}", system.name);
                }
            }
        }
    }
    table.print(&systems);
}
