//! A daemon with a private socket, ended with the test, and commands that ask it.

use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// How long a daemon may take to listen.
const START_LIMIT: Duration = Duration::from_secs(60);

/// A running daemon.
pub struct Session {
    directory: TempDir,
    daemon: Child,
}

/// How a command ended.
#[derive(Debug)]
pub struct Ended {
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl Session {
    pub fn start() -> Self {
        Self::start_with(Stdio::inherit())
    }

    /// A daemon whose log is this file.
    pub fn start_logging(log: File) -> Self {
        Self::start_with(log.into())
    }

    /// A daemon whose log is discarded.
    pub fn start_silent() -> Self {
        Self::start_with(Stdio::null())
    }

    /// A daemon whose words are told when it ends ([`Session::end`]). It must not say much before.
    pub fn start_heard() -> Self {
        Self::start_with(Stdio::piped())
    }

    /// A daemon whose pools come back by this cache file.
    pub fn start_keeping(cachefile: &Path, environment: &[(&str, &str)]) -> Self {
        let cachefile = cachefile.to_str().unwrap();
        Self::start_as(Stdio::inherit(), &["--cachefile", cachefile], environment)
    }

    /// A daemon with further arguments, whose log is discarded.
    pub fn start_serving(arguments: &[&str]) -> Self {
        Self::start_as(Stdio::null(), arguments, &[])
    }

    /// A daemon with further arguments and these variables, which say which host it is of.
    pub fn start_on_host(arguments: &[&str], environment: &[(&str, &str)]) -> Self {
        Self::start_as(Stdio::null(), arguments, environment)
    }

    /// Ends the daemon with SIGTERM.
    pub fn stop(mut self) {
        self.terminate();
        assert!(self.daemon.wait().unwrap().success());
    }

    /// Ends the daemon as a crash does.
    pub fn kill(mut self) {
        self.daemon.kill().unwrap();
        self.daemon.wait().unwrap();
    }

    /// Ends the daemon with SIGTERM, and tells how it ended.
    pub fn end(mut self) -> Ended {
        self.terminate();
        let code = self.daemon.wait().unwrap().code().unwrap_or(-1);
        let mut err = String::new();
        self.daemon.stderr.take().unwrap().read_to_string(&mut err).unwrap();
        Ended { code, out: String::new(), err }
    }

    fn terminate(&self) {
        let pid = libc::pid_t::try_from(self.daemon.id()).unwrap();
        // SAFETY: the process is our child and not yet waited for, so that the number is still its own.
        unsafe { libc::kill(pid, libc::SIGTERM) };
    }

    fn start_with(log: Stdio) -> Self {
        Self::start_as(log, &[], &[])
    }

    fn start_as(log: Stdio, arguments: &[&str], environment: &[(&str, &str)]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("api.sock");
        let mut command = Command::new(env!("CARGO_BIN_EXE_cenote"));
        let daemon = command
            .arg("serve")
            .arg("--socket")
            .arg(&socket)
            .args(arguments)
            .envs(environment.iter().copied())
            .env("CENOTE_LOG", "error")
            .stdin(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        let mut session = Self { directory, daemon };
        let began = Instant::now();
        while std::os::unix::net::UnixStream::connect(&socket).is_err() {
            assert_eq!(session.daemon.try_wait().unwrap(), None, "the daemon ended");
            assert!(began.elapsed() < START_LIMIT, "the daemon does not listen");
            std::thread::sleep(Duration::from_millis(5));
        }
        session
    }

    /// A directory of the test.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cenote"));
        command.args(arguments).env("CENOTE_SOCKET", self.directory.path().join("api.sock")).env("TZ", "UTC");
        command
    }

    /// Runs a command with these variables in its environment.
    pub fn run_in(&self, environment: &[(&str, &str)], arguments: &[&str]) -> Ended {
        ended(self.command(arguments).envs(environment.iter().copied()).output().unwrap())
    }

    pub fn daemon_id(&self) -> u32 {
        self.daemon.id()
    }

    /// Where the daemon answers.
    pub fn socket(&self) -> PathBuf {
        self.directory.path().join("api.sock")
    }

    /// Where the daemon serves volumes.
    pub fn nbd_socket(&self) -> PathBuf {
        self.directory.path().join("nbd.sock")
    }

    /// Runs a command with this on its standard input.
    pub fn run_with(&self, arguments: &[&str], input: &[u8]) -> Ended {
        let mut child = self
            .command(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // A command that does not read its input may be gone already.
        let _ = child.stdin.take().unwrap().write_all(input);
        ended(child.wait_with_output().unwrap())
    }

    pub fn run(&self, arguments: &[&str]) -> Ended {
        self.run_with(arguments, b"")
    }

    /// Lets other users get to the socket for them.
    pub fn open_to_others(&self) {
        std::fs::set_permissions(self.directory(), std::fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// Runs a command as another user, which root can, with this on its standard input.
    pub fn run_as(&self, uid: u32, arguments: &[&str], input: &[u8]) -> (Vec<u8>, Ended) {
        let mut command = self.command(arguments);
        command.uid(uid).gid(uid).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut to = child.stdin.take().unwrap();
        let input = input.to_vec();
        // A command that does not read its input may be gone already.
        let feeding = std::thread::spawn(move || drop(to.write_all(&input)));
        let mut output = child.wait_with_output().unwrap();
        feeding.join().unwrap();
        let bytes = std::mem::take(&mut output.stdout);
        (bytes, ended(output))
    }

    /// Runs a command whose output is bytes: those, and how it ended.
    pub fn run_bytes(&self, arguments: &[&str]) -> (Vec<u8>, Ended) {
        let mut output = self.command(arguments).stdin(Stdio::null()).output().unwrap();
        let bytes = std::mem::take(&mut output.stdout);
        (bytes, ended(output))
    }

    /// Starts a command of which the test reads the output.
    pub fn start_command(&self, arguments: &[&str]) -> Child {
        let mut command = self.command(arguments);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    /// What a command prints that must not fail. It may only note what is not used yet.
    pub fn print(&self, arguments: &[&str]) -> String {
        let ended = self.run(arguments);
        let said: Vec<&str> = ended.err.lines().filter(|line| !line.starts_with("note: ")).collect();
        assert_eq!((ended.code, &said[..]), (0, &[][..]), "{arguments:?} {}", ended.out);
        ended.out
    }

    /// Imports a golden pool, mounting nothing.
    pub fn import(&self, directory: &Path, pool: &str) {
        let altroot = format!("/m/{pool}");
        let directory = directory.to_str().unwrap();
        let options = ["-N", "-o", "readonly=on", "-R", &altroot, "-d", directory, pool];
        assert_eq!(self.print(&[&["zpool", "import"], &options[..]].concat()), "");
    }
}

fn ended(output: Output) -> Ended {
    Ended {
        code: output.status.code().unwrap_or(-1),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if matches!(self.daemon.try_wait(), Ok(None)) {
            self.terminate();
            let _ = self.daemon.wait();
        }
    }
}
