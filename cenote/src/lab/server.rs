//! A daemon of the experiment's own, so that its memory holds nothing else and other daemons hold nothing of
//! it.
//!
//! Its sockets are in a directory of their own below the system's for temporary files, because their paths
//! must be short. A lab that is killed leaves that directory behind. So the directory has a file that the lab
//! and its daemon keep locked as long as one of them lives, and the next lab, or `lab clean`, removes
//! directories whose file is not locked ([`remove_left`]).
//!
//! Its byte counters are the pool's own; `/proc/PID/stat` has its CPU time, and `/proc/PID/status` the most
//! memory that it used since the last look.

#![allow(unsafe_code, reason = "`pre_exec`, `sysconf` and `kill`")]

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use lab::counters::{Counters, Layers};
use lab::experiment::Settings;
use lab::fio::Endpoint;
use lab::guest::Wire;
use lab::load::{Load, Share};
use lab::programs::Programs;
use lab::series::{self, Series};
use lab::size::Size;
use lab::subprocess::output;
use rustix::fs::{FlockOperation, flock};
use rustix::io::FdFlags;
use rustix::process::Signal;
use serde_json::json;
use server::api::{
    AttachVolume, GetIoStats, ListShares, ListVolumes, Loaded, Requested, RunLoad, SetTunables, SizeShare,
};
use tempfile::TempDir;

use crate::client;

/// How long the daemon may take to listen.
const START_LIMIT: Duration = Duration::from_secs(60);
/// How long it may take to end.
const STOP_LIMIT: Duration = Duration::from_secs(60);

/// What the names of directories of sockets begin with.
const PREFIX: &str = "cenote-lab-";
/// The file in them that who uses them has locked.
const OWNER: &str = "owner";
/// So often a directory is made, where others take it for one that was left.
const TRIES: usize = 8;

/// The daemon and its sockets.
pub struct Private {
    program: PathBuf,
    sockets: TempDir,
    /// Locked by this process, and by the daemon.
    _owner: File,
    child: Child,
}

/// A directory of sockets below `within`, and its locked file.
fn make_sockets(within: &Path) -> Result<(TempDir, File)> {
    for _ in 0..TRIES {
        let sockets = tempfile::Builder::new()
            .prefix(PREFIX)
            .tempdir_in(within)
            .with_context(|| format!("cannot make a directory in {}", within.display()))?;
        let path = sockets.path().join(OWNER);
        let owner = File::create_new(&path).and_then(|owner| {
            flock(&owner, FlockOperation::LockExclusive)?;
            Ok(owner)
        });
        // Before it was locked, another lab may have removed it as left over.
        if let Ok(owner) = owner
            && fs::metadata(&path).is_ok()
        {
            return Ok((sockets, owner));
        }
    }
    bail!("cannot make a directory for sockets in {}", within.display())
}

/// Removes the directories of sockets that labs left which were killed, and whose daemons are gone too. What
/// cannot be removed is no reason to stop.
pub fn remove_left() {
    remove_left_in(&std::env::temp_dir());
}

fn remove_left_in(within: &Path) {
    let own = rustix::process::geteuid().as_raw();
    for entry in fs::read_dir(within).into_iter().flatten().flatten() {
        let path = entry.path();
        let is_of_a_lab = entry.file_name().to_string_lossy().starts_with(PREFIX);
        // Links, and what others have there, are not looked into.
        if !is_of_a_lab || !fs::symlink_metadata(&path).is_ok_and(|it| it.is_dir() && it.uid() == own) {
            continue;
        }
        let Ok(owner) = File::options().write(true).open(path.join(OWNER)) else { continue };
        if flock(&owner, FlockOperation::NonBlockingLockExclusive).is_ok() {
            unmount_below(&path);
            let _ = fs::remove_dir_all(&path);
        }
    }
}

/// Takes away what a lab mounted in its directory, the newest first; files in it are not looked at before.
fn unmount_below(directory: &Path) {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let points = mounts.lines().filter_map(|line| line.split(' ').nth(4));
    let points: Vec<&str> = points.filter(|point| Path::new(point).starts_with(directory)).collect();
    for point in points.into_iter().rev() {
        let _ = output(Command::new("umount").arg("-l").arg(point));
    }
}

impl Private {
    /// Starts it with the settings that such a process is started with ([`lab::experiment::TUNABLES`]), as
    /// its options. Files in `modelled` are slowed down to what their directories are named after, clients to
    /// what `link` is.
    pub fn start(
        settings: &Settings,
        modelled: &Path,
        link: Option<&str>,
        serves_guests: bool,
    ) -> Result<Self> {
        let program = std::env::current_exe().context("cannot find out where this program is")?;
        remove_left();
        let (sockets, owner) = make_sockets(&std::env::temp_dir())?;
        let socket = sockets.path().join("api.sock");
        let mut serve = Command::new(&program);
        // No administrator is there to repair devices: a run that waited for that would never end.
        serve
            .arg("serve")
            .args(["--give-up", "--take-loads"])
            .arg("--socket")
            .arg(&socket)
            .arg("--modelled")
            .arg(modelled);
        if serves_guests {
            serve.arg("--vhost-user").arg(sockets.path().join("vhost")).args(["--iscsi", "127.0.0.1:0"]);
        }
        serve.args(link.map(|link| ["--modelled-link", link]).into_iter().flatten());
        // What devices do is the experiment's own doing, and what it cannot help is told as its error.
        if std::env::var_os("CENOTE_LOG").is_none() {
            serve.env("CENOTE_LOG", "error");
        }
        for (name, value) in settings {
            serve.arg(format!("--{}={value}", name.replace('_', "-")));
        }
        // Ctrl-C is for the lab, which ends it in order.
        serve.stdin(Stdio::null()).stdout(Stdio::null()).process_group(0);
        // A lab that is killed takes it along, so that no pool and no mount stays behind.
        let kept = owner.try_clone().context("cannot keep the daemon's directory")?;
        let orphan = move || {
            rustix::process::set_parent_process_death_signal(Some(Signal::TERM))?;
            // It keeps its directory for as long as it lives.
            Ok(rustix::io::fcntl_setfd(kept.as_fd(), FdFlags::empty())?)
        };
        // SAFETY: these are two system calls, with no memory and no lock in them.
        unsafe { serve.pre_exec(orphan) };
        let child = serve.spawn().context("cannot start the experiment's daemon")?;
        let mut started = Self { program, sockets, _owner: owner, child };
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

    fn wire(&self, name: &str, wire: Wire) -> lab::Result<String> {
        let failed =
            |output: String| lab::Error::Failed { command: format!("serving {name} to a guest"), output };
        let listed = client::call_at(&self.sockets.path().join("api.sock"), &ListVolumes {});
        let listed = listed.map_err(|error| failed(format!("{error:#}")))?;
        let volume = listed.into_iter().find(|volume| volume.name == name);
        let volume = volume.ok_or_else(|| failed("there is no such volume".into()))?;
        let at = match wire {
            Wire::Nbd => volume.uri,
            Wire::Iscsi => volume.iscsi_uris.into_iter().next(),
            Wire::VhostUser => {
                // The daemon looks for new volumes again and again.
                let deadline = Instant::now() + START_LIMIT;
                while volume.vhost_user_socket.as_ref().is_some_and(|socket| !socket.exists()) {
                    if Instant::now() > deadline {
                        return Err(failed("its socket does not appear".into()));
                    }
                    std::thread::sleep(Duration::from_millis(10));
                }
                volume.vhost_user_socket.map(|socket| socket.display().to_string())
            }
        };
        at.ok_or_else(|| failed(format!("it is not served by {wire:?}")))
    }

    fn block_device(&self, name: &str) -> lab::Result<PathBuf> {
        let socket = self.sockets.path().join("api.sock");
        let attached = client::call_at(&socket, &AttachVolume { volume: name.to_owned(), through: None });
        let command = format!("cenote attach {name}");
        let failed = |error: anyhow::Error| lab::Error::Failed { command, output: format!("{error:#}") };
        attached.map(|attached| attached.node).map_err(failed)
    }

    fn sockets(&self) -> lab::Result<PathBuf> {
        Ok(self.sockets.path().to_owned())
    }

    fn tune(&self, tunables: &[(String, Option<String>)]) -> lab::Result<()> {
        if tunables.is_empty() {
            return Ok(());
        }
        let socket = self.sockets.path().join("api.sock");
        let request = SetTunables { settings: tunables.to_vec(), save: false };
        let failed = |error: anyhow::Error| lab::Error::Failed {
            command: "setting tunables".into(),
            output: format!("{error:#}"),
        };
        client::call_at(&socket, &request).map(drop).map_err(failed)
    }

    fn load(&self, name: &str, load: &Load, stops: &dyn Fn() -> bool) -> lab::Result<String> {
        let failed = |output: String| lab::Error::Failed { command: load.words(name).join(" "), output };
        let bytes = |what: &str, size: Size| {
            u32::try_from(size.0).map_err(|_| failed(format!("{what} {size} is too large")))
        };
        let [read_sizes, write_sizes] = load.sizes.clone().unwrap_or_default().map(|shares| {
            let share = |share: &Share| {
                Ok(SizeShare { bytes: bytes("bssplit", share.size)?, percent: share.percent })
            };
            shares.iter().map(share).collect::<lab::Result<Vec<_>>>()
        });
        let asked = RunLoad {
            volume: name.to_owned(),
            load: server::api::Load {
                is_random: load.is_random,
                read_percent: load.read_percent,
                block_bytes: bytes("bs", load.bs)?,
                read_sizes: read_sizes?,
                write_sizes: write_sizes?,
                extent_bytes: load.extent.0,
                offset_increment_bytes: load.offset_increment.0,
                depth: load.iodepth,
                clients: load.numjobs,
                flush_every: load.fsync,
                zipf: load.zipf,
                compressible_percent: load.compressible,
                seconds: load.seconds,
                ramp_seconds: load.ramp_seconds,
                step_ms: (series::step(load.seconds) * 1000.0).round() as u32,
                seed: load.seed,
            },
        };
        let loaded = client::call_at_unless(&self.sockets.path().join("api.sock"), &asked, stops);
        let loaded = loaded.map_err(|error| failed(format!("{error:#}")))?.ok_or(lab::Error::Stopped)?;
        Ok(as_fio(load, &loaded))
    }

    fn waiting(&self, name: &str) -> Option<Vec<String>> {
        let asked = ListShares { names: vec![name.to_owned()] };
        let listed = client::call_at(&self.sockets.path().join("api.sock"), &asked).ok()?;
        Some(listed.entries.iter().flat_map(|volume| &volume.waiting).map(ToString::to_string).collect())
    }

    fn lost(&self, pool: &str) -> Option<String> {
        let asked = GetIoStats { pools: vec![pool.to_owned()] };
        let listed = client::call_at(&self.sockets.path().join("api.sock"), &asked).ok()?;
        listed.entries.into_iter().next()?.suspended
    }

    fn counters(&self, pool: &str) -> lab::Result<Option<Counters>> {
        let transferred = self.transferred(pool).map_err(|error| lab::Error::Failed {
            command: format!("zpool iostat {pool}"),
            output: format!("{error:#}"),
        })?;
        let read =
            |file: &str| fs::read_to_string(format!("/proc/{}/{file}", self.child.id())).unwrap_or_default();
        let (status, stat) = (read("status"), read("stat"));
        // From here on the most memory is counted anew; a kernel that does not do that goes on with the old.
        let _ = fs::write(format!("/proc/{}/clear_refs", self.child.id()), "5");
        let peak_kib = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let peak_kib: Option<u64> = peak_kib.and_then(|line| line.split_whitespace().next()?.parse().ok());
        // The name of the program, in brackets, may have spaces.
        let after_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
        let ticks: Option<u64> =
            (11..=12).map(|at| after_name.split_whitespace().nth(at)?.parse::<u64>().ok()).sum();
        // SAFETY: asks for a constant.
        let ticks_a_second = unsafe { libc::sysconf(libc::_SC_CLK_TCK) }.max(1) as f64;
        let counters = || {
            Some(Counters {
                cpu_seconds: ticks? as f64 / ticks_a_second,
                peak_memory_bytes: peak_kib? << 10,
                ..transferred
            })
        };
        Ok(counters())
    }
}

impl Private {
    /// The counters of a pool's bytes, from its clients to its devices.
    fn transferred(&self, pool: &str) -> Result<Counters> {
        let asked = GetIoStats { pools: vec![pool.to_owned()] };
        let listed = client::call_at(&self.sockets.path().join("api.sock"), &asked)?;
        let pool = listed.entries.into_iter().next().context("the pool is not open")?;
        let leaves: Vec<u64> =
            pool.vdevs.walk().filter(|vdev| vdev.children.is_empty()).map(|vdev| vdev.guid).collect();
        let of_leaves = pool.counters.iter().filter(|vdev| leaves.contains(&vdev.guid));
        let (read, written) = of_leaves
            .fold((0, 0), |(read, written), vdev| (read + vdev.read.bytes, written + vdev.write.bytes));
        let layers = pool.written.map(|bytes| Layers {
            logical: bytes.logical_bytes,
            compressed: bytes.compressed_bytes,
            allocated: bytes.allocated_bytes,
            mirrored: Some(bytes.device_bytes),
            metadata: bytes.metadata_device_bytes,
            log: bytes.log_device_bytes,
            device: written,
        });
        Ok(Counters { read_bytes: read, written_bytes: written, layers, ..Counters::default() })
    }
}

/// In the form of fio's JSON, and what happened within its time, which fio's does not have. The client's
/// processor time is the server's, and part of that.
fn as_fio(load: &Load, loaded: &Loaded) -> String {
    let seconds = (loaded.elapsed_ns as f64 / 1e9).max(1e-9);
    let latency = |of: &Requested| {
        json!({
            "min": of.least_ns, "max": of.most_ns, "mean": of.mean_ns, "N": of.requests,
            "percentile": { "50.000000": of.p50_ns, "99.000000": of.p99_ns, "99.900000": of.p999_ns },
            "bins": of.times.iter().copied().collect::<BTreeMap<u64, u64>>(),
        })
    };
    let direction = |of: &Requested| {
        json!({
            "io_bytes": of.bytes, "bw_bytes": of.bytes as f64 / seconds, "iops": of.requests as f64 / seconds,
            "runtime": loaded.elapsed_ns / 1_000_000, "total_ios": of.requests, "lat_ns": latency(of),
        })
    };
    let flushes = json!({ "total_ios": loaded.flushes.requests, "lat_ns": latency(&loaded.flushes) });
    let job = json!({
        "jobname": "lab", "error": 0, "read": direction(&loaded.reads), "write": direction(&loaded.writes), "sync": flushes,
    });
    let by = concat!("cenote ", env!("CARGO_PKG_VERSION"), ", through the process");
    let series = Series {
        step: series::step(load.seconds),
        seconds: load.seconds,
        operations: loaded.steps.iter().map(|step| step.requests).collect(),
        bytes: loaded.steps.iter().map(|step| step.bytes).collect(),
    };
    format!("{:#}", json!({ "made by": by, "jobs": [job], "series": series }))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_tunable_is_an_option_of_the_process() {
        use clap::CommandFactory;
        let command = crate::cli::Cli::command();
        let serve = command.find_subcommand("serve").unwrap();
        for tunable in lab::experiment::TUNABLES {
            let long = tunable.name.replace('_', "-");
            assert!(serve.get_arguments().any(|it| it.get_long() == Some(&long)), "{long}");
        }
    }

    #[test]
    fn directories_of_sockets_are_removed_when_neither_the_lab_nor_its_daemon_lives() {
        let within = tempfile::tempdir().unwrap();
        let (sockets, owner) = make_sockets(within.path()).unwrap();
        fs::write(sockets.path().join("api.sock"), "").unwrap();
        // Of the same lock, as the daemon has it.
        let daemon = owner.try_clone().unwrap();
        let theirs = within.path().join("cenote-lab-notes");
        fs::create_dir(&theirs).unwrap();
        remove_left_in(within.path());
        assert!(sockets.path().join("api.sock").exists());
        // As a lab ends that is killed.
        let path = sockets.keep();
        drop(owner);
        remove_left_in(within.path());
        assert!(path.exists());
        drop(daemon);
        remove_left_in(within.path());
        assert!(!path.exists() && theirs.exists());
    }
}
