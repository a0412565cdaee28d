//! The filesystems that are compared.

use std::fs;
use std::io::{self, Error};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::null::Null;

/// Size of the sparse file of each.
const BYTES: u64 = 8 << 30;
/// How long a daemon may take to start.
const START: Duration = Duration::from_secs(20);

/// The kernel's switch of FUSE over io_uring.
const RING: &str = "/sys/module/fuse/parameters/enable_uring";

/// Makes a filesystem in a directory.
type Make = fn(&Path, usize) -> io::Result<System>;

/// Each, by its name.
pub const ALL: [(&str, Make); 7] = [
    ("cenote", |place, number| {
        Cenote::make(place, "cenote", env!("CARGO_BIN_EXE_cenote").into(), None)
            .and_then(|made| System::new("cenote", place, number, made))
    }),
    ("ring", |place, number| {
        let on = fs::read_to_string(RING).is_ok_and(|on| on.trim() == "Y");
        if !on {
            return Err(Error::other(format!("'echo Y > {RING}' switches it on, on Linux 6.14 and later")));
        }
        Cenote::make(place, "ring", env!("CARGO_BIN_EXE_cenote").into(), Some("ring"))
            .and_then(|made| System::new("ring", place, number, made))
    }),
    ("before", |place, number| {
        let binary = std::env::var_os("CENOTE_BENCH_BEFORE")
            .ok_or_else(|| Error::other("CENOTE_BENCH_BEFORE is not set"))?;
        System::new("before", place, number, Cenote::make(place, "before", binary.into(), None)?)
    }),
    ("ext4", |place, number| {
        Loop::make(place, "ext4").and_then(|made| System::new("ext4", place, number, made))
    }),
    ("btrfs", |place, number| {
        Loop::make(place, "btrfs").and_then(|made| System::new("btrfs", place, number, made))
    }),
    ("zfs-fuse", |place, number| {
        ZfsFuse::make(place).and_then(|made| System::new("zfs-fuse", place, number, made))
    }),
    ("null", |place, number| Null::make(place).and_then(|made| System::new("null", place, number, made))),
];

/// A filesystem that is mounted at `place/NAME`.
pub trait Kind {
    /// Unmounts it, so that nothing of it is in memory.
    fn unmount(&self) -> io::Result<()>;
    /// Mounts it.
    fn mount(&self) -> io::Result<()>;
    /// What `syncfs` does not do: the kernel tells no FUSE filesystem of it.
    fn settle(&self) -> io::Result<()> {
        Ok(())
    }
    /// The process that serves it.
    fn daemon(&self) -> Option<u32> {
        None
    }
    /// Whether what was written can be read again.
    fn keeps(&self) -> bool {
        true
    }
    /// What is held while it is measured.
    fn hold(&self) -> io::Result<Option<fs::File>> {
        Ok(None)
    }
}

/// A filesystem that is measured.
pub struct System {
    /// Its name.
    pub name: &'static str,
    /// Its number in the table.
    pub place: usize,
    /// Where it is mounted.
    pub at: PathBuf,
    kind: Box<dyn Kind>,
}

impl System {
    fn new(name: &'static str, place: &Path, number: usize, kind: impl Kind + 'static) -> io::Result<Self> {
        let system = Self { name, place: number, at: place.join(name), kind: Box::new(kind) };
        system.kind.mount()?;
        // Where files have records of 8 KiB, if it has such a thing.
        fs::create_dir_all(system.at.join("db"))?;
        Ok(system)
    }

    /// Forgets all that is cached of it anywhere.
    pub fn cold(&self) -> io::Result<()> {
        self.kind.unmount()?;
        fs::write("/proc/sys/vm/drop_caches", "3")?;
        self.kind.mount()
    }

    /// Has the kernel forget names and attributes.
    pub fn forget_names(&self) -> io::Result<()> {
        self.settle()?;
        fs::write("/proc/sys/vm/drop_caches", "2")
    }

    /// Waits until all that was changed is stable.
    pub fn settle(&self) -> io::Result<()> {
        let root = fs::File::open(&self.at)?;
        // SAFETY: the descriptor is open.
        if unsafe { libc::syncfs(root.as_raw_fd()) } != 0 {
            return Err(Error::last_os_error());
        }
        self.kind.settle()
    }

    /// What is to be held while it is measured.
    pub fn hold(&self) -> io::Result<Option<fs::File>> {
        self.kind.hold()
    }

    /// Whether what was written can be read again.
    pub fn keeps(&self) -> bool {
        self.kind.keeps()
    }

    /// Seconds of processor time that its daemon took up to now.
    pub fn daemon_seconds(&self) -> Option<f64> {
        let text = fs::read_to_string(format!("/proc/{}/stat", self.kind.daemon()?)).ok()?;
        // Behind the name, which ends with a bracket, the times are the twelfth and thirteenth field, in
        // hundredths of a second.
        let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
        let ticks: f64 = fields.get(11)?.parse::<f64>().ok()? + fields.get(12)?.parse::<f64>().ok()?;
        Some(ticks / 100.0)
    }

    /// Counts the peak of its daemon's memory from now on.
    pub fn forget_peak(&self) {
        if let Some(daemon) = self.kind.daemon() {
            let _ = fs::write(format!("/proc/{daemon}/clear_refs"), "5");
        }
    }

    /// The peak of its daemon's memory.
    pub fn peak_mib(&self) -> Option<f64> {
        let text = fs::read_to_string(format!("/proc/{}/status", self.kind.daemon()?)).ok()?;
        let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
        line.trim().strip_suffix(" kB")?.parse::<f64>().ok().map(|kib| kib / 1024.0)
    }
}

impl Drop for System {
    fn drop(&mut self) {
        if let Err(error) = self.kind.unmount() {
            println!("{}: {error}", self.name);
        }
    }
}

/// Runs a command that must not fail; what it says otherwise is the error.
fn run(command: &mut Command) -> io::Result<String> {
    let output = command.stdin(Stdio::null()).output()?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned());
    }
    Err(Error::other(format!("{command:?}: {}", String::from_utf8_lossy(&output.stderr).trim())))
}

fn image(place: &Path, name: &str) -> io::Result<PathBuf> {
    let directory = place.join(format!("{name}.d"));
    fs::create_dir_all(&directory)?;
    let image = directory.join("image");
    fs::File::create(&image)?.set_len(BYTES)?;
    Ok(image)
}

/// Tries until it works or time is up.
fn wait_for<T>(mut attempt: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    let began = Instant::now();
    loop {
        match attempt() {
            Err(_) if began.elapsed() < START => std::thread::sleep(Duration::from_millis(20)),
            done => return done,
        }
    }
}

fn end(child: &mut Child) {
    // SAFETY: the child was not waited for, so that its number is still its own.
    unsafe { libc::kill(child.id() as libc::pid_t, libc::SIGTERM) };
    let _ = child.wait();
}

/// ext4 or btrfs.
struct Loop {
    device: String,
    kind: &'static str,
    at: PathBuf,
}

impl Loop {
    fn make(place: &Path, kind: &'static str) -> io::Result<Self> {
        let image = image(place, kind)?;
        let mut mkfs = Command::new(format!("mkfs.{kind}"));
        run(mkfs.arg("-q").arg(&image))?;
        let device = run(Command::new("losetup").args(["--find", "--show", "--direct-io=on"]).arg(&image))?;
        let at = place.join(kind);
        fs::create_dir_all(&at)?;
        Ok(Self { device, kind, at })
    }
}

impl Kind for Loop {
    fn unmount(&self) -> io::Result<()> {
        run(Command::new("umount").arg(&self.at)).map(drop)
    }

    fn mount(&self) -> io::Result<()> {
        run(Command::new("mount").args(["-t", self.kind, &self.device]).arg(&self.at)).map(drop)
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = run(Command::new("losetup").args(["-d", &self.device]));
    }
}

/// A pool of Cenote in a daemon of its own.
struct Cenote {
    binary: PathBuf,
    /// The pool's name too.
    name: &'static str,
    directory: PathBuf,
    daemon: Child,
    /// Mount options.
    options: Option<&'static str>,
}

impl Cenote {
    fn make(
        place: &Path,
        name: &'static str,
        binary: PathBuf,
        options: Option<&'static str>,
    ) -> io::Result<Self> {
        let image = image(place, name)?;
        let directory = place.join(format!("{name}.d"));
        let socket = directory.join("api.sock");
        let mut serve = Command::new(&binary);
        let daemon = serve.arg("serve").arg("--socket").arg(&socket).stdin(Stdio::null()).spawn()?;
        let made = Self { binary, name, directory, daemon, options };
        wait_for(|| std::os::unix::net::UnixStream::connect(&socket))?;
        let at = place.join(name);
        made.ask(&["zpool", "create", "-m", &at.to_string_lossy(), name, &image.to_string_lossy()])?;
        made.ask(&["zfs", "create", "-o", "recordsize=8K", &format!("{name}/db")])?;
        made.unmount()?;
        Ok(made)
    }

    fn ask(&self, arguments: &[&str]) -> io::Result<String> {
        run(Command::new(&self.binary).args(arguments).env("CENOTE_SOCKET", self.directory.join("api.sock")))
    }
}

impl Kind for Cenote {
    fn unmount(&self) -> io::Result<()> {
        self.ask(&["zpool", "export", self.name]).map(drop)
    }

    fn mount(&self) -> io::Result<()> {
        let directory = self.directory.to_string_lossy();
        let options = self.options.map(|options| ["-o", options]);
        let mut arguments = vec!["zpool", "import", "-d", &directory];
        arguments.extend(options.iter().flatten());
        arguments.push(self.name);
        self.ask(&arguments).map(drop)
    }

    fn settle(&self) -> io::Result<()> {
        self.ask(&["zpool", "sync", self.name]).map(drop)
    }

    fn daemon(&self) -> Option<u32> {
        Some(self.daemon.id())
    }
}

impl Drop for Cenote {
    fn drop(&mut self) {
        end(&mut self.daemon);
    }
}

/// A pool of zfs-fuse.
struct ZfsFuse {
    unpacked: PathBuf,
    directory: PathBuf,
    daemon: Child,
}

impl ZfsFuse {
    fn make(place: &Path) -> io::Result<Self> {
        let unpacked = std::env::var_os("CENOTE_ZFS_FUSE").map(PathBuf::from);
        let unpacked = unpacked.ok_or_else(|| Error::other("CENOTE_ZFS_FUSE is not set"))?;
        let image = image(place, "zfs-fuse")?;
        let mut daemon = Self::command(&unpacked, "zfs-fuse");
        let daemon = daemon.args(["--no-daemon", "--no-kstat-mount"]).stdin(Stdio::null()).spawn()?;
        let made = Self { unpacked, directory: place.join("zfs-fuse.d"), daemon };
        let at = place.join("zfs-fuse");
        fs::create_dir_all(&at)?;
        wait_for(|| made.ask("zpool", &["list"]))?;
        let (at, image) = (at.to_string_lossy(), image.to_string_lossy());
        made.ask("zpool", &["create", "-m", &at, "-O", "compression=on", "fusebench", &image])?;
        made.ask("zfs", &["create", "-o", "recordsize=8K", "fusebench/db"])?;
        made.unmount()?;
        Ok(made)
    }

    fn command(unpacked: &Path, tool: &str) -> Command {
        let mut command = Command::new(unpacked.join("sbin").join(tool));
        command.env("LD_LIBRARY_PATH", unpacked.join("lib/x86_64-linux-gnu"));
        command
    }

    fn ask(&self, tool: &str, arguments: &[&str]) -> io::Result<String> {
        run(Self::command(&self.unpacked, tool).args(arguments))
    }
}

impl Kind for ZfsFuse {
    fn unmount(&self) -> io::Result<()> {
        self.ask("zpool", &["export", "fusebench"]).map(drop)
    }

    fn mount(&self) -> io::Result<()> {
        self.ask("zpool", &["import", "-d", &self.directory.to_string_lossy(), "fusebench"]).map(drop)
    }

    fn settle(&self) -> io::Result<()> {
        let at = self.directory.with_file_name("zfs-fuse").join("settled");
        fs::File::create(&at)?.sync_all()?;
        fs::remove_file(at)
    }

    fn daemon(&self) -> Option<u32> {
        Some(self.daemon.id())
    }
}

impl Drop for ZfsFuse {
    fn drop(&mut self) {
        end(&mut self.daemon);
    }
}
