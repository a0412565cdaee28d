//! Pools of ours in a daemon, as their users handle them: commands, mounts and clients of volumes.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::session::Session;

const OURS: &str = include_str!("scripts/ours.sh");
pub const OBSERVE: &str = include_str!("scripts/observe.sh");
pub const CHANGE: &str = include_str!("scripts/change.sh");

/// A daemon and a shell in which `zpool` and `zfs` ask it.
pub struct Hand {
    session: Session,
    path: String,
}

impl Hand {
    pub fn new() -> Self {
        let session = Session::start();
        let programs = session.directory().join("bin");
        std::fs::create_dir(&programs).expect("a folder");
        for name in ["zpool", "zfs"] {
            std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_cenote"), programs.join(name)).expect("a link");
        }
        let path = std::env::var("PATH").unwrap_or_default();
        Self { path: format!("{}:{path}", programs.display()), session }
    }

    fn socket(&self, name: &str) -> PathBuf {
        self.session.directory().join(name)
    }

    /// Runs lines of shell that may use the functions of the scripts.
    fn shell(&self, lines: &str) -> Output {
        let script = [OURS, OBSERVE, CHANGE, lines].join("\n");
        let mut command = Command::new("sh");
        command.args(["-c", &script]).env("PATH", &self.path).env("NBD", self.socket("nbd.sock"));
        command.env("CENOTE_SOCKET", self.socket("api.sock")).output().expect("a shell")
    }

    /// What lines of shell print that must not fail.
    pub fn run(&self, lines: &str) -> String {
        let output = self.shell(&format!("set -e\n{lines}"));
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{lines}: {:?}\n{errors}", output.status);
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Opens the pool whose disks are in a folder.
    pub fn import(&self, name: &str, folder: &Path, options: &str) {
        self.run(&format!("zpool import -N {options} -d '{}' {name}", folder.display()));
    }

    pub fn export(&self, name: &str) {
        self.run(&format!("zpool export {name}"));
    }

    /// A place for a mount.
    fn place(&self, name: &str) -> PathBuf {
        let place = self.session.directory().join("at").join(name);
        std::fs::create_dir_all(&place).expect("a folder");
        place
    }

    /// All that can be seen of a pool whose disks are not in use.
    pub fn observe(&self, name: &str, folder: &Path) -> String {
        self.import(name, folder, "-o readonly=on");
        let seen = self.run(&format!("observe {name} '{}'", self.place(name).display()));
        self.export(name);
        seen
    }

    /// What its filesystems and volumes hold. The pool is open.
    pub fn observe_contents(&self, name: &str) -> String {
        self.run(&format!("observe_contents {name} '{}'", self.place(name).display()))
    }

    /// Changes everything that a pool has. What cannot be changed stays; why is returned.
    pub fn change(&self, name: &str) -> String {
        let output = self.shell(&format!("change {name} '{}' ours", self.place(name).display()));
        String::from_utf8_lossy(&output.stderr).into_owned()
    }

    /// Does something in a mounted filesystem.
    pub fn mounted<T>(&self, name: &str, work: impl FnOnce(&Path) -> T) -> T {
        let place = self.place(&name.replace('/', "."));
        self.run(&format!("attach {name} '{}'", place.display()));
        let done = work(&place);
        self.run(&format!("detach '{}'", place.display()));
        done
    }

    /// Writes to the start of a volume.
    pub fn fill_volume(&self, name: &str, bytes: &[u8]) {
        let file = self.socket("bytes");
        std::fs::write(&file, bytes).expect("a file");
        self.run(&format!("nbdcopy '{}' \"nbd+unix:///{name}?socket=$NBD\"", file.display()));
    }
}
