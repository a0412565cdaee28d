//! A daemon of the experiment's own, so that nothing else is in its memory, and nothing of it is in others'.
//!
//! Its counters are the kernel's: `/proc/PID/io` has what the process transferred to and from devices (files in a file system of memory count as nothing), `/proc/PID/stat` its CPU time,
//! `/proc/PID/status` the most memory that it had.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use lab::fio::Endpoint;
use lab::target::{Counters, Programs, output};
use tempfile::TempDir;

/// How long the daemon may take to listen.
const START_LIMIT: Duration = Duration::from_secs(10);
/// How long it may take to end.
const STOP_LIMIT: Duration = Duration::from_secs(60);

/// The daemon and its sockets.
pub struct Private {
    program: PathBuf,
    sockets: TempDir,
    child: Child,
}

impl Private {
    /// Starts it. Files in `modelled` are slowed down to what their directories are named after, clients to what `link` is.
    pub fn start(modelled: &Path, link: Option<&str>) -> Result<Self> {
        let program = std::env::current_exe().context("cannot tell where this program is")?;
        let sockets =
            tempfile::Builder::new().prefix("cenote-lab-").tempdir().context("cannot make a directory")?;
        let socket = sockets.path().join("api.sock");
        let mut serve = Command::new(&program);
        serve.arg("serve").arg("--socket").arg(&socket).arg("--modelled").arg(modelled);
        serve.args(link.map(|link| ["--modelled-link", link]).into_iter().flatten());
        // Ctrl-C is for the lab, which ends it in order.
        serve.stdin(Stdio::null()).stdout(Stdio::null()).process_group(0);
        let child = serve.spawn().context("cannot start the experiment's daemon")?;
        let mut started = Self { program, sockets, child };
        let deadline = Instant::now() + START_LIMIT;
        while !socket.exists() {
            if let Some(status) = started.child.try_wait()? {
                bail!("the experiment's daemon ended at once: {status}");
            }
            if Instant::now() > deadline {
                bail!("the experiment's daemon does not listen");
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(started)
    }

    fn run(&self, command: &str, arguments: &[String]) -> lab::Result<String> {
        let socket = self.sockets.path().join("api.sock");
        output(Command::new(&self.program).arg(command).args(arguments).env("CENOTE_SOCKET", socket))
    }
}

impl Programs for Private {
    fn zpool(&self, arguments: &[String]) -> lab::Result<String> {
        self.run("zpool", arguments)
    }

    fn zfs(&self, arguments: &[String]) -> lab::Result<String> {
        self.run("zfs", arguments)
    }

    fn volume(&self, name: &str) -> lab::Result<Endpoint> {
        let socket = self.sockets.path().join("nbd.sock");
        Ok(Endpoint::Nbd(format!("nbd+unix:///{name}?socket={}", socket.display())))
    }

    fn counters(&self, _: &str) -> lab::Result<Option<Counters>> {
        let read =
            |file: &str| fs::read_to_string(format!("/proc/{}/{file}", self.child.id())).unwrap_or_default();
        let (io, status, stat) = (read("io"), read("status"), read("stat"));
        let number = |text: &str, name: &str| -> Option<u64> {
            let line = text.lines().find_map(|line| line.strip_prefix(name))?;
            line.split_whitespace().next()?.parse().ok()
        };
        // The name of the program, in brackets, may have spaces.
        let after_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
        let ticks: Option<u64> =
            (11..=12).map(|at| after_name.split_whitespace().nth(at)?.parse::<u64>().ok()).sum();
        // SAFETY: asks for a constant.
        let ticks_a_second = unsafe { libc::sysconf(libc::_SC_CLK_TCK) }.max(1) as f64;
        let counters = || {
            Some(Counters {
                read_bytes: number(&io, "read_bytes:")?,
                written_bytes: number(&io, "write_bytes:")?,
                cpu_seconds: ticks? as f64 / ticks_a_second,
                peak_memory_bytes: number(&status, "VmHWM:")? << 10,
            })
        };
        Ok(counters())
    }
}

impl Drop for Private {
    fn drop(&mut self) {
        // SAFETY: the process is our child, not yet waited for, so that its number is its own.
        unsafe { libc::kill(self.child.id() as libc::pid_t, libc::SIGTERM) };
        let deadline = Instant::now() + STOP_LIMIT;
        while matches!(self.child.try_wait(), Ok(None)) {
            if Instant::now() > deadline {
                let _ = self.child.kill();
                let _ = self.child.wait();
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}
