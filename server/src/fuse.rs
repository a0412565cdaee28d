//! Filesystems mounted through FUSE.
//!
//! # The parts
//! [`mount()`] makes a session with the kernel (`session`) whose threads answer requests out of a `trees::Trees`: the filesystem itself
//! and, below `.zfs/snapshot`, its snapshots, each opened when somebody first looks into it. A request is answered on the thread that
//! read it: what is cached finishes at once, the rest waits for the device in that thread's own ring.
//!
//! | module | what it knows |
//! |---|---|
//! | `wire` | the protocol: bytes and requests |
//! | `channel` | how requests and answers travel: through the device |
//! | `readers` | which of a mount's threads reads them there |
//! | `ring` | the same through memory that is shared with the kernel, where that is wanted and the kernel has it |
//! | `filesystem` | which request asks for what of `served` |
//!
//! # Caching
//! What is mounted is changed by this kernel alone, so that it may keep names, attributes, directories and pages. `names` says for how long, and what the
//! exceptions are; `files` why writes go through instead of staying in the kernel. A snapshot never changes.
//!
//! # While it is mounted
//! Properties that change reach a mount through [`FuseMount::update`]: what the server decides at once, what the kernel keeps for a mount (`exec` and the like) by
//! a remount, which takes root. `acltype` is agreed on when the session begins, and changes with the next one.
//!
//! # Unmounting
//! [`FuseMount::unmount`] refuses while files are open, unless forced: then the mount leaves the tree at once and the session ends when the
//! last file is closed. A daemon that was killed leaves a mount that answers nothing; [`clear_stale`] takes it away.

mod attributes;
mod changes;
mod channel;
mod files;
mod filesystem;
mod flags;
mod listing;
mod names;
mod node;
mod options;
mod readers;
mod ring;
mod served;
mod session;
mod trees;
mod waiting;
mod wire;
mod xattrs;

pub use options::MountOptions;
pub use trees::{LiveSource, SnapshotsClosed, Source};

use std::ffi::{CString, OsString};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use engine::dataset::zpl::LiveZpl;

use served::Served;
use session::Session;
use trees::Trees;

/// Threads that take turns at reading requests: misses wait on the thread that took them, so that more of them than cores keep a device busy.
const THREADS: usize = 8;

/// Bytes that the kernel reads ahead in a file, where we may tell it. Enough that requests overlap.
const KERNEL_READ_AHEAD_KIB: u32 = 1024;

/// Why a filesystem could not be mounted or unmounted.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// The dataset cannot be opened as a filesystem.
    #[error("cannot open '{dataset}': {error}")]
    Open {
        /// The dataset.
        dataset: String,
        /// Why.
        #[source]
        error: engine::Error,
    },
    /// The system refused the mount.
    #[error("cannot mount '{dataset}' at {}: {error}{}", at.display(), hint(error))]
    Refused {
        /// The dataset.
        dataset: String,
        /// The mountpoint.
        at: PathBuf,
        /// What the system says.
        #[source]
        error: std::io::Error,
    },
    /// Files are open below the mountpoint.
    #[error("cannot unmount {}: it is in use; close what uses it, or force", at.display())]
    Busy {
        /// The mountpoint.
        at: PathBuf,
    },
    /// The system refused to unmount.
    #[error("cannot unmount {}: {error}", at.display())]
    Unmount {
        /// The mountpoint.
        at: PathBuf,
        /// What the system says.
        error: String,
    },
}

fn hint(error: &std::io::Error) -> &'static str {
    match error.kind() {
        std::io::ErrorKind::NotFound => " (is the fuse kernel module loaded, and fuse3 installed?)",
        std::io::ErrorKind::PermissionDenied => {
            " (without root, fusermount3 and access to /dev/fuse are needed)"
        }
        _ => "",
    }
}

/// A mounted filesystem. Dropping it unmounts, forced.
#[derive(Debug)]
pub struct FuseMount {
    dataset: String,
    at: PathBuf,
    /// The number by which the kernel knows it.
    device: libc::dev_t,
    /// As they are now; held to look or change.
    options: Mutex<MountOptions>,
    /// Held while they are changed, which may wait for devices. Before `options`.
    updating: Mutex<()>,
    served: Arc<Served>,
    /// Held to look or to take it.
    session: Mutex<Option<Session>>,
}

/// Mounts a filesystem or snapshot at the directory `at`. Blocks until the kernel has answered.
///
/// # Errors
/// [`MountError::Open`] when the dataset is no filesystem or cannot be read, [`MountError::Refused`] by the system.
pub fn mount(source: Source, at: &Path, options: &MountOptions) -> Result<FuseMount, MountError> {
    let name = source.dataset().name.clone();
    let mut options = options.clone();
    match source.live() {
        Some(zpl) => options.apply_to(zpl),
        None => options = options.of_what_is_fixed(),
    }
    let options = &options;
    let trees = device::block_on(Trees::open(source, options))
        .map_err(|error| MountError::Open { dataset: name.clone(), error })?;
    let served = Arc::new(Served::new(trees, options));
    let mut config = fuser::Config::default();
    config.acl = if options.allow_other { fuser::SessionACL::All } else { fuser::SessionACL::Owner };
    config.mount_options = mount_options(&name, options);
    let refused = |error| MountError::Refused { dataset: name.clone(), at: at.to_owned(), error };
    let session = Session::begin(&served, at, &config, options.ring).map_err(refused)?;
    served.set_notifier(session.notifier());
    let device = std::fs::metadata(at).map_err(refused)?.dev();
    raise_read_ahead(device);
    Ok(FuseMount {
        dataset: name,
        at: at.to_owned(),
        device,
        options: Mutex::new(options.clone()),
        updating: Mutex::default(),
        served,
        session: Mutex::new(Some(session)),
    })
}

fn mount_options(dataset: &str, options: &MountOptions) -> Vec<fuser::MountOption> {
    use fuser::MountOption as O;
    // A comma would end the option early in the mount table.
    let shown = dataset.replace(',', "_");
    let mut list = vec![O::FSName(shown), O::Subtype("cenote".into()), O::DefaultPermissions];
    list.push(if options.writable { O::RW } else { O::RO });
    // Access times are the filesystem's own; the kernel would only ask for what it is not to do.
    list.push(O::NoAtime);
    list.push(if options.exec { O::Exec } else { O::NoExec });
    if is_root() {
        list.push(if options.setuid { O::Suid } else { O::NoSuid });
        list.push(if options.devices { O::Dev } else { O::NoDev });
    }
    list
}

/// Tells the kernel what holds for a mount from now on. Only root may.
fn remount(at: &Path, options: &MountOptions) -> std::io::Result<()> {
    let path = CString::new(at.as_os_str().as_bytes())?;
    let mut flags = libc::MS_REMOUNT | libc::MS_NOATIME;
    for (wanted, flag) in [
        (!options.writable, libc::MS_RDONLY),
        (!options.exec, libc::MS_NOEXEC),
        (!options.setuid, libc::MS_NOSUID),
        (!options.devices, libc::MS_NODEV),
    ] {
        if wanted {
            flags |= flag;
        }
    }
    // SAFETY: `path` is a terminated string that lives through the call; no other argument is used by a remount.
    let code =
        unsafe { libc::mount(std::ptr::null(), path.as_ptr(), std::ptr::null(), flags, std::ptr::null()) };
    if code == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}

/// The kernel's default window of 128 KiB keeps one request in flight; more must be asked for in sysfs, as root. Best effort.
fn raise_read_ahead(device: libc::dev_t) {
    let (major, minor) = (libc::major(device), libc::minor(device));
    let knob = format!("/sys/class/bdi/{major}:{minor}/read_ahead_kb");
    if let Err(error) = std::fs::write(&knob, KERNEL_READ_AHEAD_KIB.to_string()) {
        tracing::debug!(%error, knob, "the kernel's read-ahead stays as it is");
    }
}

fn is_root() -> bool {
    // SAFETY: geteuid has no preconditions and cannot fail.
    unsafe { libc::geteuid() == 0 }
}

impl FuseMount {
    /// Name of the dataset.
    pub fn dataset_name(&self) -> &str {
        &self.dataset
    }

    /// Where it is mounted.
    pub fn mountpoint(&self) -> &Path {
        &self.at
    }

    /// The words of the mount table.
    pub fn options_words(&self) -> Vec<String> {
        let mut words = self.options().words();
        if self.answered_through_rings().is_some() {
            words.push("ring".into());
        }
        words
    }

    /// How many requests came through rings; `None` where they come through the device.
    pub fn answered_through_rings(&self) -> Option<u64> {
        Some(self.session().as_ref()?.rings()?.answered())
    }

    /// How many threads answer what comes through rings.
    pub fn ring_threads(&self) -> usize {
        self.session().as_ref().and_then(Session::rings).map_or(0, |rings| rings.threads())
    }

    /// The filesystem, where it may change.
    pub fn live(&self) -> Option<&Arc<LiveZpl>> {
        self.served.live()
    }

    /// Whether these options take another session: what is fixed cannot become writable, and how files are shown and requests come is agreed on once.
    pub fn needs_another_session(&self, options: &MountOptions) -> bool {
        let current = self.options();
        let shown = |options: &MountOptions| {
            (options.zpl.acl, options.zpl.xattr, options.zpl.long_names, options.ring)
        };
        (options.writable && self.served.live().is_none()) || shown(&current) != shown(options)
    }

    fn options(&self) -> MutexGuard<'_, MountOptions> {
        self.options.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn session(&self) -> MutexGuard<'_, Option<Session>> {
        self.session.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets what its properties say now hold for the mount. Blocks the thread, for as long as devices take.
    ///
    /// # Errors
    /// What the kernel keeps cannot be changed: files are open for writing that is to end, or this is not root. The rest is changed.
    pub fn update(&self, options: &MountOptions) -> Result<(), MountError> {
        let _updating = self.updating.lock().unwrap_or_else(PoisonError::into_inner);
        let current = self.options().clone();
        let mut wanted = MountOptions { allow_other: current.allow_other, ..options.clone() };
        match self.served.live() {
            Some(zpl) => wanted.apply_to(zpl),
            None => wanted = wanted.of_what_is_fixed(),
        }
        self.served.set_snapdir(wanted.snapdir);
        if !wanted.writable {
            // What is mapped and changed is written back first, as long as that is allowed.
            write_back(&self.at);
        }
        self.served.set_writable(wanted.writable);
        let is_kept =
            |options: &MountOptions| (options.writable, options.exec, options.setuid, options.devices);
        if is_kept(&current) == is_kept(&wanted) {
            *self.options() = wanted;
            return Ok(());
        }
        remount(&self.at, &wanted).map_err(|error| {
            // The server goes back to what the kernel believes.
            self.served.set_writable(current.writable);
            MountError::Refused { dataset: self.dataset.clone(), at: self.at.clone(), error }
        })?;
        *self.options() = wanted;
        Ok(())
    }

    /// False once the kernel has ended the session, for example because somebody ran `umount`.
    pub fn is_alive(&self) -> bool {
        self.session().as_ref().is_some_and(|session| !session.is_finished())
    }

    /// Files that somebody has open, or that are kept for the kernel.
    pub fn files_held(&self) -> usize {
        self.served.files_held()
    }

    /// Closes snapshots below `.zfs/snapshot` to whoever would open a file there, as long as what is returned is kept.
    ///
    /// # Errors
    /// The name of a snapshot in which a file is open; none is closed.
    pub fn close_snapshots(&self, names: &[&str]) -> Result<SnapshotsClosed, String> {
        SnapshotsClosed::of(&self.served, names)
    }

    /// Whether it is still at its mountpoint: whoever unmounts it takes it away before the session ends. True where that cannot be found out.
    pub fn is_in_place(&self) -> bool {
        let Ok(path) = CString::new(self.at.as_os_str().as_bytes()) else { return true };
        // SAFETY: an all-zero `statx` is a valid one.
        let mut answer: libc::statx = unsafe { std::mem::zeroed() };
        // Which filesystem it is the kernel knows by itself, also when the session does not answer.
        // SAFETY: `path` is a terminated string, and both live through the call.
        let code = unsafe {
            libc::statx(
                libc::AT_FDCWD,
                path.as_ptr(),
                libc::AT_STATX_DONT_SYNC,
                libc::STATX_TYPE,
                &mut answer,
            )
        };
        code != 0 || libc::makedev(answer.stx_dev_major, answer.stx_dev_minor) == self.device
    }

    /// Unmounts and waits for the session to end. With `force` a mount in use leaves the tree at once.
    ///
    /// # Errors
    /// [`MountError::Busy`] or [`MountError::Unmount`], with the mount, which stays as it was.
    pub fn unmount(self, force: bool) -> Result<(), Box<(Self, MountError)>> {
        self.take_away(force).map_err(|error| Box::new((self, error)))
    }

    /// The same where somebody else looks at it.
    ///
    /// # Errors
    /// [`MountError::Busy`] or [`MountError::Unmount`]: the mount stays as it was.
    pub fn take_away(&self, force: bool) -> Result<(), MountError> {
        if self.is_alive() {
            unmount_path(&self.at, force)?;
        }
        let session = self.session().take();
        if let Some(session) = session {
            if force && !session.is_finished() {
                // Whoever still has a file open keeps the session; it ends with them. Until then they may read.
                self.served.set_writable(false);
                self.served.set_detached();
                drop(session);
            } else {
                session.join();
            }
        }
        Ok(())
    }
}

impl Drop for FuseMount {
    fn drop(&mut self) {
        if self.is_alive() {
            let _ = unmount_path(&self.at, true);
        }
    }
}

/// Has the kernel write back what it holds of the filesystem at `at`: pages that were mapped and changed. Blocks the thread.
pub fn write_back(at: &Path) {
    let Ok(directory) = std::fs::File::open(at) else { return };
    // SAFETY: the descriptor is open.
    if unsafe { libc::syncfs(directory.as_raw_fd()) } != 0 {
        let error = std::io::Error::last_os_error();
        tracing::warn!(%error, at = %at.display(), "not all mapped pages were written back");
    }
}

/// Takes away what daemons left behind that are gone: mounts of this pool's datasets, wherever they are.
pub fn clear_stale_of(pool: &str) {
    let Ok(table) = std::fs::read_to_string("/proc/self/mountinfo") else { return };
    // Those that were mounted first come first: what is mounted in them goes with them.
    for at in mounts_of(pool, &table) {
        clear_stale(&at);
    }
}

/// Where datasets of a pool are mounted, by the kernel's table of mounts.
fn mounts_of(pool: &str, table: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for line in table.lines() {
        // The mountpoint is the fifth word; behind a dash come the type and what is mounted.
        let Some((before, behind)) = line.split_once(" - ") else { continue };
        let (Some(at), Some(("fuse.cenote", behind))) = (before.split(' ').nth(4), behind.split_once(' '))
        else {
            continue;
        };
        let dataset = unescaped(behind.split(' ').next().unwrap_or_default());
        let rest = dataset.strip_prefix(pool.as_bytes());
        if rest.is_some_and(|rest| rest.first().is_none_or(|next| b"/@".contains(next))) {
            found.push(PathBuf::from(OsString::from_vec(unescaped(at))));
        }
    }
    found
}

/// A word of the table of mounts, in which blanks and the like are octal numbers.
fn unescaped(word: &str) -> Vec<u8> {
    let number = |digits: &[u8]| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok();
    let mut bytes = Vec::new();
    let mut rest = word.as_bytes();
    while let Some((&first, later)) = rest.split_first() {
        let escaped = later.get(..3).filter(|_| first == b'\\').and_then(number);
        bytes.push(escaped.unwrap_or(first));
        rest = if escaped.is_some() { later.get(3..).unwrap_or_default() } else { later };
    }
    bytes
}

/// Takes away a mount whose daemon is gone: where every access answers "transport endpoint is not connected".
pub fn clear_stale(at: &Path) {
    let Ok(path) = CString::new(at.as_os_str().as_bytes()) else { return };
    // Asks the file system itself: attributes and names may be known from before.
    let is_stale = || {
        // SAFETY: an all-zero `statfs` is a valid one.
        let mut answer: libc::statfs = unsafe { std::mem::zeroed() };
        // SAFETY: `path` is a terminated string, and both live through the call.
        let code = unsafe { libc::statfs(path.as_ptr(), &mut answer) };
        code != 0 && std::io::Error::last_os_error().raw_os_error() == Some(libc::ENOTCONN)
    };
    // Several may lie upon each other.
    for _ in 0..16 {
        if !is_stale() || unmount_path(at, true).is_err() {
            return;
        }
        tracing::info!(at = %at.display(), "took away a mount whose daemon is gone");
    }
}

fn unmount_path(at: &Path, lazily: bool) -> Result<(), MountError> {
    let failed = |error: String| MountError::Unmount { at: at.to_owned(), error };
    let path = CString::new(at.as_os_str().as_bytes()).map_err(|error| failed(error.to_string()))?;
    let flags = libc::UMOUNT_NOFOLLOW | if lazily { libc::MNT_DETACH } else { 0 };
    // SAFETY: `path` is a terminated string that lives through the call.
    if unsafe { libc::umount2(path.as_ptr(), flags) } == 0 {
        return Ok(());
    }
    let error = std::io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::EBUSY) => return Err(MountError::Busy { at: at.to_owned() }),
        Some(libc::EPERM) => {}
        _ => return Err(failed(error.to_string())),
    }
    // Not root: the helper may unmount what its user mounted.
    let mut helper = Command::new("fusermount3");
    // Ctrl-C goes to the whole group of the terminal; it must not end the helper half-way.
    helper.process_group(0);
    helper.arg("-u").args(lazily.then_some("-z")).arg("--").arg(at);
    let output = helper.output().map_err(|error| failed(format!("fusermount3: {error}")))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    // Unmounted meanwhile, by whoever.
    if said.contains("not found in /etc/mtab") {
        return Ok(());
    }
    if said.contains("busy") { Err(MountError::Busy { at: at.to_owned() }) } else { Err(failed(said)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_of_mounts_says_where_a_pool_is_mounted() {
        let table = "\
            22 1 0:20 / /proc rw - proc proc rw\n\
            90 22 0:50 / /tank rw,noatime shared:1 - fuse.cenote tank rw,user_id=0\n\
            91 90 0:51 / /a\\040b ro - fuse.cenote tank/c\\040d ro\n\
            92 22 0:52 / /snap ro - fuse.cenote tank/c@one ro\n\
            93 22 0:53 / /tank2 rw - fuse.cenote tank2 rw\n\
            94 22 0:54 / /other rw - fuse.sshfs tank/x rw\n";
        let expected = ["/tank", "/a b", "/snap"].map(PathBuf::from);
        assert_eq!(mounts_of("tank", table), expected);
    }
}
