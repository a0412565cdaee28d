//! Pools that `ztest` leaves behind: OpenZFS's own stress test, which adds and removes devices, snapshots,
//! clones, scrubs, damages devices within what redundancy survives, and is killed at random moments.
//!
//! The options follow from a seed. `ztest` itself is not deterministic: the seed gives the same kind of pool,
//! not the same pool.

#![allow(unsafe_code, reason = "`kill` of a process group")]

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use tempfile::TempDir;

use crate::mutate::Rng;
use crate::skip::skipped;

/// Name of the pool.
pub const POOL: &str = "ztest";
/// How much longer than its run time `ztest` may take to make the pool, and to verify it after each kill.
const PATIENCE: Duration = Duration::from_secs(240);

/// A pool that `ztest` left behind, deleted with this.
#[derive(Debug)]
pub struct ZtestPool {
    dir: TempDir,
    /// The options that it was made with.
    pub options: Vec<String>,
    /// Whether `ztest` ended well; its own checks may fail, or it was ended for taking too long.
    pub succeeded: bool,
}

impl ZtestPool {
    /// Runs `ztest` for about `seconds`. `None` when `$CENOTE_SKIP` lists `openzfs`.
    pub fn make(seed: u64, seconds: u64) -> Option<Result<ZtestPool>> {
        if skipped("openzfs", "ztest") { None } else { Some(Self::run(seed, seconds)) }
    }

    fn run(seed: u64, seconds: u64) -> Result<ZtestPool> {
        let dir = tempfile::Builder::new().prefix("cenote-ztest-").tempdir()?;
        let options = options(seed, seconds);
        let path = format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default());
        let log = std::fs::File::create(dir.path().join("ztest.log"))?;
        let child = Command::new("ztest")
            .args(&options)
            .arg("-f")
            .arg(dir.path())
            .env("PATH", path)
            .stdin(Stdio::null())
            .stderr(log.try_clone()?)
            .stdout(log)
            .process_group(0)
            .spawn()
            .context("ztest cannot be run; install OpenZFS's tools, or set CENOTE_SKIP=openzfs")?;
        let succeeded = wait(child, Duration::from_secs(seconds) + PATIENCE)?;
        let pool = ZtestPool { dir, options, succeeded };
        if !pool.path().join("ztest.0a").exists() {
            bail!("ztest {} made no pool:\n{}", pool.options.join(" "), pool.log());
        }
        Ok(pool)
    }

    /// The directory of the devices.
    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// The last lines of what `ztest` said.
    pub fn log(&self) -> String {
        let log = std::fs::read(self.path().join("ztest.log")).unwrap_or_default();
        String::from_utf8_lossy(&log[log.len().saturating_sub(2000)..]).into_owned()
    }

    /// Keeps the devices and returns their place, to be examined after a failure.
    pub fn keep(self) -> std::path::PathBuf {
        self.dir.keep()
    }
}

fn wait(mut child: Child, limit: Duration) -> Result<bool> {
    let began = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status.success());
        }
        if began.elapsed() > limit {
            let group = i32::try_from(child.id()).context("process id")?;
            // SAFETY: kill takes any numbers. The child leads a group of its own, and is not yet waited for.
            unsafe { libc::kill(-group, libc::SIGKILL) };
            child.wait()?;
            return Ok(false);
        }
        thread::sleep(Duration::from_millis(100));
    }
}

/// Topology, sector size, gang blocks and kills by seed.
fn options(seed: u64, seconds: u64) -> Vec<String> {
    let mut rng = Rng::new(seed);
    let mut pick = |choices: &[&'static str]| rng.pick(choices).copied().unwrap_or_default();
    let kind = pick(&["raidz", "draid", "raidz", "eraidz"]);
    let parity = pick(&["1", "2", "3"]);
    let disks = if kind == "draid" { "9" } else { pick(&["1", "4", "6"]) };
    let pairs = [
        ("-K", kind),
        ("-R", if disks == "1" { "1" } else { parity }),
        ("-r", disks),
        ("-m", pick(&["0", "1", "2", "3"])),
        ("-v", pick(&["1", "2", "3"])),
        ("-a", pick(&["9", "12", "0"])),
        ("-k", pick(&["100", "70", "50", "0"])),
        ("-C", pick(&["special=on", "special=off", "special=random"])),
        ("-g", pick(&["8192", "16384", "65536"])),
        ("-d", pick(&["2", "4", "7"])),
        ("-t", "8"),
        ("-s", "192m"),
    ];
    let mut options: Vec<String> =
        pairs.iter().flat_map(|(option, value)| [option, value].map(|s| s.to_string())).collect();
    options.extend([format!("-T{seconds}"), format!("-P{}", (seconds / 2).max(2))]);
    options
}
