//! What is read of the machine: files of the kernel, and a few system calls. Rules are in the checks alone.

#![allow(unsafe_code, reason = "io_uring_setup and adjtimex")]

use std::fs::{self, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

use rustix::process::{Resource, geteuid, getrlimit};

/// The bytes of `struct io_uring_params`.
const URING_PARAMS_BYTES: usize = 120;
/// The clock is not in sync, in `struct timex`.
const STA_UNSYNC: i32 = 0x40;

/// What a program may have of something; none for no limit.
pub type Limit = Option<u64>;

/// The machine as it is.
#[derive(Debug)]
pub struct Machine {
    /// Where its files are: `/`, in tests another directory.
    pub root: PathBuf,
    pub is_root: bool,
    pub memory_bytes: u64,
    /// Why no ring could be made, where none could.
    pub ring_fault: Option<io::Error>,
    /// Whether `/dev/fuse` opens.
    pub fuse_fault: Option<io::Error>,
    /// Whether the clock is in sync; none where the system does not tell.
    pub is_clock_in_sync: Option<bool>,
    pub open_files: Limit,
    pub locked_bytes: Limit,
    /// The version and number of the process of the daemon that runs, if one does.
    pub daemon: Option<(String, u32)>,
    /// The TCP port where it serves volumes.
    pub own_port: Option<u16>,
}

impl Machine {
    /// This machine, seen by this process.
    pub fn this() -> Self {
        let fuse = OpenOptions::new().read(true).write(true).open("/dev/fuse");
        Self {
            root: PathBuf::from("/"),
            is_root: geteuid().is_root(),
            memory_bytes: device::machine_memory_bytes(),
            ring_fault: ring_fault(),
            fuse_fault: fuse.err(),
            is_clock_in_sync: is_clock_in_sync(),
            open_files: getrlimit(Resource::Nofile).maximum,
            locked_bytes: getrlimit(Resource::Memlock).maximum,
            daemon: None,
            own_port: None,
        }
    }

    fn path(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    /// The text of a file; none where it cannot be read.
    pub fn text(&self, path: &str) -> Option<String> {
        fs::read_to_string(self.path(path)).ok()
    }

    /// Whether there is such a file or directory.
    pub fn has(&self, path: &str) -> bool {
        self.path(path).exists()
    }

    /// The names of directories in a directory.
    pub fn directories(&self, path: &str) -> Vec<String> {
        let Ok(entries) = fs::read_dir(self.path(path)) else { return Vec::new() };
        let is_directory = |entry: &fs::DirEntry| entry.file_type().is_ok_and(|kind| kind.is_dir());
        let found = entries.flatten().filter(is_directory);
        let mut names: Vec<String> =
            found.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    /// Whether a link of the kernel's files leads to the same for two processes.
    pub fn is_same_link(&self, one: &str, other: &str) -> Option<bool> {
        let target = |path: &str| fs::read_link(self.path(path)).ok();
        Some(target(one)? == target(other)?)
    }

    /// How a module of the kernel stands.
    pub fn module(&self, name: &str) -> Module {
        if self.has(&format!("/sys/module/{name}")) {
            return Module::Loaded;
        }
        let release = self.text("/proc/sys/kernel/osrelease").unwrap_or_default();
        let is_named = |list: &str| {
            let list = self.text(&format!("/lib/modules/{}/{list}", release.trim())).unwrap_or_default();
            let is_it = |line: &str| {
                let path = line.split(':').next().unwrap_or_default();
                let file =
                    Path::new(path).file_name().unwrap_or_default().to_string_lossy().replace('-', "_");
                file.split('.').next() == Some(name)
            };
            list.lines().any(is_it)
        };
        match (is_named("modules.builtin"), is_named("modules.dep")) {
            (true, _) => Module::Loaded,
            (_, true) => Module::Installed,
            _ => Module::Absent,
        }
    }
}

/// How a module of the kernel stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Module {
    Loaded,
    /// It can be loaded.
    Installed,
    Absent,
}

/// Makes a ring and gives it back.
fn ring_fault() -> Option<io::Error> {
    let mut params = [0_u8; URING_PARAMS_BYTES];
    // SAFETY: the kernel reads and writes the bytes of the structure, all of which are there, for the call.
    let made = unsafe { libc::syscall(libc::SYS_io_uring_setup, 2_u32, params.as_mut_ptr()) };
    let Ok(descriptor) = i32::try_from(made) else { return Some(io::Error::last_os_error()) };
    if descriptor < 0 {
        return Some(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new, and nothing else has it.
    unsafe { libc::close(descriptor) };
    None
}

fn is_clock_in_sync() -> Option<bool> {
    // SAFETY: plain integers, for which zeroes are a valid value; they ask for no change.
    let mut told: libc::timex = unsafe { std::mem::zeroed() };
    // SAFETY: the pointer is valid for the call.
    let state = unsafe { libc::adjtimex(&mut told) };
    (state >= 0).then_some(told.status & STA_UNSYNC == 0)
}
