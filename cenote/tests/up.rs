//! `cenote up` on golden pools: what it serves, how it ends, and how it starts again after it was killed.
//!
//! Needs `/dev/fuse`; `CENOTE_SKIP=fuse` leaves these tests out.

#![allow(clippy::unwrap_used, reason = "a test")]
#![allow(unsafe_code, reason = "signals")]

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use testkit::GoldenPool;
use testkit::manifest::HostTree;

/// Number of a user without any right.
const NOBODY: u32 = 65534;

fn golden(name: &str) -> Option<GoldenPool> {
    if testkit::skipped("fuse", name) { None } else { testkit::golden::pool(name) }
}

/// How long it may take to go down.
const END_LIMIT: Duration = Duration::from_secs(30);

/// A running `cenote up`. Ended by force when dropped.
struct Up {
    child: Child,
    told: serde_json::Value,
}

impl Up {
    fn command(golden: &GoldenPool, at: &Path) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cenote"));
        command.args(["up", "--json", &golden.name, "-d"]).arg(&golden.dir).arg("--mount-at").arg(at);
        command
    }

    /// Starts it, and waits until it says what it serves.
    fn start(mut command: Command) -> Self {
        let mut child =
            command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        if line.is_empty() {
            let mut errors = String::new();
            child.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
            panic!("cenote up: {:?}\n{errors}", child.wait());
        }
        Self { child, told: serde_json::from_str(&line).unwrap() }
    }

    fn mountpoint(&self, dataset: &str) -> PathBuf {
        let mounts = self.told["mounts"].as_array().unwrap();
        let mount = mounts.iter().find(|mount| mount["dataset"] == dataset);
        let mount = mount.unwrap_or_else(|| panic!("{dataset} is not mounted: {}", self.told));
        mount["mountpoint"].as_str().unwrap().into()
    }

    fn signal(&self, signal: libc::c_int) {
        // SAFETY: the child was not waited for, so that its number is still its own.
        assert_eq!(unsafe { libc::kill(self.child.id() as libc::pid_t, signal) }, 0);
    }

    /// Waits for its end, which must come soon.
    fn wait(&mut self) -> ExitStatus {
        let began = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            if began.elapsed() > END_LIMIT {
                let _ = self.child.kill();
                let mut errors = String::new();
                let _ = self.child.stderr.take().map(|mut stderr| stderr.read_to_string(&mut errors));
                panic!("cenote up does not end\n{errors}");
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Reads a line of what it says to people.
    fn complaint(&mut self) -> String {
        let mut line = String::new();
        BufReader::new(self.child.stderr.as_mut().unwrap()).read_line(&mut line).unwrap();
        line
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            self.signal(libc::SIGTERM);
            let _ = self.child.wait();
        }
    }
}

/// Whether something is mounted below `place`.
fn is_mounted_below(place: &Path) -> bool {
    let table = std::fs::read_to_string("/proc/self/mounts").unwrap();
    table.lines().any(|line| line.split(' ').nth(1).is_some_and(|at| Path::new(at).starts_with(place)))
}

#[test]
fn whoever_asks_for_a_pool_that_is_not_there_is_told_what_is() {
    let Some(golden) = golden("single") else { return };
    let said = |directory: &Path, pool: &str| {
        let output = Command::new(env!("CARGO_BIN_EXE_cenote"))
            .args(["up", pool, "-d"])
            .arg(directory)
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(1));
        String::from_utf8(output.stderr).unwrap()
    };
    let other = said(&golden.dir, "tank");
    assert!(other.contains("cannot import 'tank': no such pool available; there is single"), "{other}");
    let empty = tempfile::tempdir().unwrap();
    let none = said(empty.path(), "single");
    assert!(none.contains("nor any other pool: -d names the directory"), "{none}");
}

#[test]
fn ctrl_c_takes_everything_down() {
    let Some(golden) = golden("volumes") else { return };
    let place = tempfile::tempdir().unwrap();
    let at = place.path().join("mnt");
    let mut up = Up::start(Up::command(&golden, &at));
    assert_eq!(up.told["pool"], "volumes");
    assert_eq!(up.told["warnings"], serde_json::json!([]));
    golden.manifest("volumes").unwrap().assert_same("volumes", &HostTree::new(up.mountpoint("volumes")));
    let socket = PathBuf::from(up.told["socket"].as_str().unwrap());
    let volume = up.told["volumes"][0]["uri"].as_str().unwrap().to_owned();
    let info = Command::new("nbdinfo").args(["--size", &volume]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&info.stdout).trim(), up.told["volumes"][0]["size_bytes"].to_string());
    up.signal(libc::SIGINT);
    assert!(up.wait().success());
    assert!(!is_mounted_below(&at) && !at.exists());
    assert!(!socket.parent().unwrap().exists());
}

#[test]
fn readers_and_clients_that_go_away_do_not_end_it() {
    let Some(golden) = golden("volumes") else { return };
    let place = tempfile::tempdir().unwrap();
    let mut up = Up::start(Up::command(&golden, place.path()));
    drop(up.child.stdout.take());
    let sockets = PathBuf::from(up.told["socket"].as_str().unwrap());
    for socket in [sockets.with_file_name("nbd.sock"), sockets] {
        for _ in 0..50 {
            drop(UnixStream::connect(&socket).unwrap());
        }
    }
    golden.manifest("volumes").unwrap().assert_same("volumes", &HostTree::new(up.mountpoint("volumes")));
    up.signal(libc::SIGINT);
    assert!(up.wait().success());
}

#[test]
fn what_is_in_use_waits_for_a_second_ctrl_c() {
    let Some(golden) = golden("single") else { return };
    let place = tempfile::tempdir().unwrap();
    let mut up = Up::start(Up::command(&golden, place.path()));
    let open = File::open(up.mountpoint("single/fs")).unwrap();
    up.signal(libc::SIGINT);
    assert!(up.complaint().contains("dataset is busy"));
    assert!(is_mounted_below(place.path()));
    up.signal(libc::SIGINT);
    assert!(up.wait().success());
    assert!(!is_mounted_below(place.path()));
    drop(open);
}

#[test]
fn it_starts_again_where_it_was_killed() {
    let Some(golden) = golden("single") else { return };
    let place = tempfile::tempdir().unwrap();
    let at = place.path().join("mnt");
    let mut up = Up::start(Up::command(&golden, &at));
    up.signal(libc::SIGKILL);
    up.wait();
    assert!(is_mounted_below(&at), "a killed process leaves its mounts");
    let mut up = Up::start(Up::command(&golden, &at));
    for filesystem in ["single", "single/fs", "single/clone"] {
        let tree = HostTree::new(up.mountpoint(filesystem));
        golden.manifest(filesystem).unwrap().assert_same(filesystem, &tree);
    }
    up.signal(libc::SIGINT);
    assert!(up.wait().success());
    assert!(!is_mounted_below(&at));
}

#[test]
fn keys_are_taken_from_files() {
    let Some(golden) = golden("crypt") else { return };
    let place = tempfile::tempdir().unwrap();
    let mut command = Up::command(&golden, place.path());
    for (dataset, file) in [("crypt/gcm", "pass"), ("crypt/ccm", "rawkey"), ("crypt/vol", "hex")] {
        command.arg("--key").arg(format!("{dataset}={}", golden.expect(file).display()));
    }
    let up = Up::start(command);
    assert_eq!(up.told["warnings"], serde_json::json!([]));
    for filesystem in ["crypt/gcm", "crypt/gcm/child", "crypt/ccm"] {
        let tree = HostTree::new(up.mountpoint(filesystem));
        golden.manifest(filesystem).unwrap().assert_same(filesystem, &tree);
    }
    assert_eq!(up.told["volumes"][0]["name"], "crypt/vol");
}

#[test]
fn without_root_each_filesystem_has_a_directory_of_its_own() {
    let Some(golden) = golden("single") else { return };
    let place = tempfile::tempdir().unwrap();
    let disks = golden.private_copy(place.path()).unwrap();
    let copy = GoldenPool { dir: place.path().to_owned(), ..golden };
    let at = place.path().join("mnt");
    let mut command = Up::command(&copy, &at);
    // SAFETY: geteuid has no preconditions and cannot fail.
    if unsafe { libc::geteuid() } == 0 {
        for path in disks.iter().map(PathBuf::as_path).chain([place.path()]) {
            std::os::unix::fs::chown(path, Some(NOBODY), Some(NOBODY)).unwrap();
        }
        command.uid(NOBODY).gid(NOBODY).env_remove("XDG_RUNTIME_DIR");
    }
    let mut up = Up::start(command);
    assert_eq!(up.told["warnings"], serde_json::json!([]));
    assert_eq!(up.mountpoint("single/fs"), at.join("single+fs"));
    assert_eq!(up.told["mounts"].as_array().unwrap().len(), 9);
    up.signal(libc::SIGINT);
    assert!(up.wait().success());
    assert!(!is_mounted_below(place.path()));
}
