//! Daemons on one socket, one after the other.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

pub const LIMIT: Duration = Duration::from_secs(120);

/// Waits until something is so.
pub fn until(what: &str, is_so: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < LIMIT, "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// The daemons of a test, and where they keep what they have.
pub struct Place {
    directory: TempDir,
    arguments: Vec<String>,
    pub daemon: Child,
}

impl Place {
    /// Starts a daemon.
    pub fn start(arguments: &[&str]) -> Self {
        Self::start_in(arguments, &[])
    }

    /// Starts a daemon with these variables.
    pub fn start_in(arguments: &[&str], environment: &[(&str, &str)]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let arguments: Vec<String> = arguments.iter().map(|argument| (*argument).to_owned()).collect();
        let mut command = Self::serve(directory.path(), &arguments);
        command.envs(environment.iter().copied());
        let daemon = command.stdout(Stdio::null()).spawn().unwrap();
        let place = Self { directory, arguments, daemon };
        until("the daemon does not listen", || UnixStream::connect(place.socket()).is_ok());
        place
    }

    fn serve(directory: &Path, arguments: &[String]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cenote"));
        command.arg("serve").arg("--socket").arg(directory.join("api.sock")).args(arguments);
        command.env("CENOTE_LOG", "error").stdin(Stdio::null());
        command
    }

    /// A daemon that is about to take over.
    pub fn successor(&self) -> Child {
        let mut command = Self::serve(self.path(), &self.arguments);
        command.arg("--take-over").stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    /// Has another daemon take over, and waits for the end of the one before.
    pub fn replace(&mut self) -> Duration {
        let began = Instant::now();
        let mut successor = self.successor();
        let mut said = String::new();
        BufReader::new(successor.stdout.as_mut().unwrap()).read_line(&mut said).unwrap();
        let took = began.elapsed();
        if !said.starts_with("took over") {
            let mut why = String::new();
            successor.stderr.take().unwrap().read_to_string(&mut why).unwrap();
            panic!("not taken over: {said}{why}");
        }
        // It may say more later.
        let mut stderr = successor.stderr.take().unwrap();
        std::thread::spawn(move || std::io::copy(&mut stderr, &mut std::io::stderr()));
        let mut before = std::mem::replace(&mut self.daemon, successor);
        assert!(before.wait().unwrap().success());
        took
    }

    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    pub fn socket(&self) -> PathBuf {
        self.path().join("api.sock")
    }

    /// Where daemons hand over.
    pub fn hand_over_socket(&self) -> PathBuf {
        self.path().join("hand-over.sock")
    }

    /// A file for a pool.
    pub fn disk(&self, name: &str, mib: u64) -> String {
        let disk = self.path().join(name);
        File::create(&disk).unwrap().set_len(mib << 20).unwrap();
        disk.to_str().unwrap().to_owned()
    }

    pub fn run_with(&self, arguments: &[&str], input: &[u8]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cenote"));
        command.args(arguments).env("CENOTE_SOCKET", self.socket());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let _ = child.stdin.take().unwrap().write_all(input);
        child.wait_with_output().unwrap()
    }

    /// What a command prints that must not fail.
    pub fn print(&self, arguments: &[&str]) -> String {
        let output = self.run_with(arguments, b"");
        let err = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {err}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// A volume over the Unix socket, for clients of NBD.
    pub fn uri(&self, volume: &str) -> String {
        format!("nbd+unix:///{volume}?socket={}", self.path().join("nbd.sock").display())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = self.daemon.kill();
        let _ = self.daemon.wait();
    }
}

/// A port that is free now.
pub fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// An `fio` that writes, and verifies what it wrote, until [`longest`] ends it.
pub fn fio(place: &Place, name: &str, uri: &str) -> Child {
    let report = File::create(place.path().join(format!("{name}.json"))).unwrap();
    Command::new("fio")
        .args(["--ioengine=nbd", "--rw=randwrite", "--bs=16k", "--size=32m", "--iodepth=16"])
        .args(["--verify=crc32c", "--verify_fatal=1", "--verify_backlog=64", "--serialize_overlap=1"])
        .args(["--thread", "--rate_iops=400,400", "--time_based", "--runtime=600", "--output-format=json"])
        .args([format!("--name={name}"), format!("--uri={uri}")])
        .current_dir(place.path())
        .stdout(report)
        .spawn()
        .unwrap()
}

/// Ends it. The longest time that a request took, in milliseconds.
pub fn longest(place: &Place, name: &str, mut fio: Child) -> u64 {
    assert!(fio.try_wait().unwrap().is_none(), "fio ended by itself");
    let id = fio.id().to_string();
    assert!(Command::new("kill").args(["-INT", &id]).status().unwrap().success());
    fio.wait().unwrap();
    let report = std::fs::read_to_string(place.path().join(format!("{name}.json"))).unwrap();
    let json = report.get(report.find('{').unwrap()..).unwrap();
    let mut values = serde_json::Deserializer::from_str(json).into_iter::<serde_json::Value>();
    let report = values.next().unwrap().unwrap();
    let job = &report["jobs"][0];
    assert_eq!(job["error"], 0, "{report}");
    let longest = |way: &str| job[way]["clat_ns"]["max"].as_u64().unwrap() / 1_000_000;
    assert!(
        job["write"]["total_ios"].as_u64().unwrap() > 0 && job["read"]["total_ios"].as_u64().unwrap() > 0
    );
    longest("read").max(longest("write"))
}
