//! `cenote up` without arguments: a pool of one's own, on which clients and machines may rely, also across
//! `kill -9`.

#![allow(clippy::unwrap_used, reason = "a test")]
#![allow(unsafe_code, reason = "signals and times of files")]

mod files;
mod guest;
mod kills;

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

/// A running `cenote up`. Ended by force when dropped.
struct Up {
    child: Child,
    told: serde_json::Value,
}

impl Up {
    fn command(place: &Path) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cenote"));
        command.args(["up", "--json"]).current_dir(place).stdin(Stdio::null());
        command
    }

    fn start(place: &Path) -> Self {
        let mut command = Self::command(place);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        if line.is_empty() {
            let mut errors = String::new();
            child.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
            panic!("cenote up: {:?}\n{errors}", child.wait());
        }
        Self { child, told: serde_json::from_str(&line).unwrap() }
    }

    fn uri(&self) -> &str {
        self.told["volumes"][0]["uri"].as_str().unwrap()
    }

    /// Where the volumes are served.
    fn socket(&self) -> PathBuf {
        Path::new(self.told["socket"].as_str().unwrap()).with_file_name("nbd.sock")
    }

    /// Where its filesystem is mounted; `None` on a machine where none can be.
    fn mountpoint(&self) -> Option<PathBuf> {
        let at = self.told["mounts"][0]["mountpoint"].as_str().map(PathBuf::from);
        assert!(at.is_some() || testkit::skipped("fuse", "cenote up"), "{}", self.told);
        at
    }

    fn end(mut self, signal: libc::c_int) -> ExitStatus {
        // SAFETY: the child was not waited for, so that its number is still its own.
        assert_eq!(unsafe { libc::kill(self.child.id() as libc::pid_t, signal) }, 0);
        self.child.wait().unwrap()
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        // A process that died leaves its mount to the next one.
        if let Some(at) = self.told["mounts"][0]["mountpoint"].as_str().filter(|_| std::thread::panicking()) {
            let _ = Command::new("fusermount3").args(["-u", "-z", at]).output();
        }
    }
}

/// `qemu-io` on the volume; what it says when all went well.
fn qemu_io(uri: &str, commands: &[&str]) -> String {
    let mut command = Command::new("qemu-io");
    command.args(["-f", "raw", uri]);
    commands.iter().for_each(|line| {
        command.args(["-c", line]);
    });
    let output = command.output().expect("qemu-io cannot be run; install qemu-utils");
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success() && !text.contains("failed"), "{commands:?}\n{text}");
    text
}

/// Lets `zdb` judge the pool in `place`, which is down.
fn judge(place: &Path) {
    let Some(verdict) = testkit::oracle::zdb_of(&place.join("cenote"), "-bcc", "tank", &[]) else { return };
    assert!(verdict.contains("No leaks (block sum matches space maps exactly)"), "{verdict}");
}

#[test]
fn a_pool_of_ones_own_keeps_what_it_promised() {
    let place = tempfile::tempdir().unwrap();
    let up = Up::start(place.path());
    assert_eq!(up.told["pool"], "tank");
    assert_eq!(up.told["readonly"], false);
    assert_eq!(up.told["volumes"][0]["name"], "tank/vol");
    assert_eq!(up.told["volumes"][0]["size_bytes"], 4u64 << 30);
    qemu_io(up.uri(), &["write -P 0x5a 1M 3M", "flush", "write -P 0x77 -f 100M 64k"]);

    if let Some(at) = up.mountpoint() {
        fs::create_dir(at.join("directory")).unwrap();
        fs::write(at.join("directory/file"), b"stable").unwrap();
        File::open(at.join("directory/file")).unwrap().sync_all().unwrap();
    }

    let second = Up::command(place.path()).output().unwrap();
    let said = String::from_utf8_lossy(&second.stderr);
    assert!(!second.status.success() && said.contains("is up already"), "{said}");

    // What was flushed, or written through, is there after the process died.
    up.end(libc::SIGKILL);
    let up = Up::start(place.path());
    qemu_io(up.uri(), &["read -P 0x5a 1M 3M", "read -P 0x77 100M 64k", "read -P 0 200M 1M"]);
    if let Some(at) = up.mountpoint() {
        assert_eq!(fs::read(at.join("directory/file")).unwrap(), b"stable");
        fs::write(at.join("another"), b"file").unwrap();
    }
    assert!(up.end(libc::SIGINT).success());
    let directory = place.path().join("cenote");
    assert!(!directory.join("api.sock").exists());
    judge(place.path());
    let up = Up::start(place.path());
    qemu_io(up.uri(), &["read -P 0x5a 1M 3M", "read -P 0x77 100M 64k"]);
    if let Some(at) = up.mountpoint() {
        assert_eq!(fs::read(at.join("another")).unwrap(), b"file");
    }
    assert!(up.end(libc::SIGINT).success());
}

#[test]
fn a_pool_whose_devices_take_nothing_more_is_given_up_by_a_second_ctrl_c() {
    let place = tempfile::tempdir().unwrap();
    let mut up = Up::start(place.path());
    let socket = up.told["socket"].as_str().unwrap().to_owned();
    let ask = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cenote"));
        command.args(arguments).env("CENOTE_SOCKET", &socket).output().unwrap()
    };
    let mut said = BufReader::new(up.child.stderr.take().unwrap()).lines();
    let mut hears = |word: &str| said.by_ref().map(Result::unwrap).find(|line| line.contains(word)).unwrap();
    let pid = up.child.id().to_string();
    let limited = Command::new("prlimit").args(["--pid", &pid, "--fsize=0:unlimited"]).status();
    assert!(limited.unwrap().success());
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| ask(&["zfs", "create", "tank/waits"]));
        hears("the pool is suspended");
        let interrupt = || Command::new("kill").args(["-INT", &pid]).status().unwrap();
        assert!(interrupt().success());
        assert!(hears("cannot export 'tank'").contains("suspended"));
        hears("Ctrl-C again takes it down by force");
        assert!(interrupt().success());
        assert!(hears("closed as after a crash").contains("File too large"));
        assert_eq!(waiting.join().unwrap().status.code(), Some(1));
    });
    assert_eq!(up.child.wait().unwrap().code(), Some(1));
    // What had been committed is there.
    let up = Up::start(place.path());
    assert_eq!(up.told["volumes"][0]["name"], "tank/vol");
    assert!(up.end(libc::SIGINT).success());
    judge(place.path());
}
