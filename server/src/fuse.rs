//! Filesystems mounted through FUSE, read-only.
//!
//! # The parts
//! [`mount()`] makes a session with the kernel ([`fuser`]) whose threads answer requests out of a `trees::Trees`: the filesystem itself
//! and, below `.zfs/snapshot`, its snapshots, each opened when somebody first looks into it. A request is answered on the thread that
//! read it: what is cached finishes at once, the rest waits for the device in that thread's own ring.
//!
//! # Caching
//! What is mounted read-only from a pool that is open read-only never changes, so that the kernel may keep names, attributes,
//! directories and pages for as long as it likes. See `node` for the one exception (attributes inside snapshots).
//!
//! # Unmounting
//! [`FuseMount::unmount`] refuses while files are open, unless forced: then the mount leaves the tree at once and the session ends when the
//! last file is closed. A daemon that was killed leaves a mount that answers nothing; [`clear_stale`] takes it away.

mod attributes;
mod filesystem;
mod node;
mod trees;

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use engine::dataset::dsl::{Dataset, Dsl};
use engine::dataset::properties::{Prop, PropertySet, Style};
use engine::dataset::zpl::ZplOptions;
use engine::dmu::Objset;

use filesystem::ReadOnly;
use trees::Trees;

/// Threads that read requests: misses wait on the thread that took them, so that more of them than cores keep a device busy.
const THREADS: usize = 8;

/// Bytes that the kernel reads ahead in a file, where we may tell it. Enough that requests overlap.
const KERNEL_READ_AHEAD_KIB: u32 = 1024;

/// How a filesystem is mounted: what its dataset's properties and the caller say.
#[derive(Debug, Clone)]
pub struct MountOptions {
    /// Users other than the one who mounts may look in. Needs root, or `user_allow_other` in `/etc/fuse.conf`.
    pub allow_other: bool,
    /// Programs may be run (`exec`).
    pub exec: bool,
    /// Set-user-id bits count (`setuid`). Ignored where the mount is not made by root.
    pub setuid: bool,
    /// Device nodes work (`devices`). Ignored where the mount is not made by root.
    pub devices: bool,
    /// `.zfs` is listed in the root directory (`snapdir=visible`). It can be entered even when it is not.
    pub snapdir_visible: bool,
    /// How files are shown (`xattr`, `acltype`, `longname`).
    pub zpl: ZplOptions,
}

impl Default for MountOptions {
    fn default() -> Self {
        Self {
            allow_other: false,
            exec: true,
            setuid: true,
            devices: true,
            snapdir_visible: false,
            zpl: ZplOptions::default(),
        }
    }
}

impl MountOptions {
    /// What the dataset's properties say. Whether others may look in is left to the caller.
    pub fn from_properties(properties: &PropertySet) -> Self {
        let is_on = |prop| properties.number(prop) != Some(0);
        let snapdir = properties.get(Prop::Snapdir, Style::PARSABLE).map(|shown| shown.value);
        Self {
            allow_other: false,
            exec: is_on(Prop::Exec),
            setuid: is_on(Prop::Setuid),
            devices: is_on(Prop::Devices),
            snapdir_visible: snapdir.as_deref() == Some("visible"),
            zpl: ZplOptions::from_properties(properties),
        }
    }

    /// The words of the mount table, for the properties that a mount option overrides.
    pub fn words(&self) -> Vec<String> {
        let word = |on: bool, name: &str| if on { name.to_owned() } else { format!("no{name}") };
        vec![
            "ro".into(),
            word(self.exec, "exec"),
            word(self.setuid, "suid"),
            word(self.devices, "dev"),
            "noatime".into(),
            word(self.zpl.xattr, "xattr"),
        ]
    }
}

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
    options: MountOptions,
    session: Option<fuser::BackgroundSession>,
}

/// Mounts the filesystem or snapshot `dataset` at the directory `at`; `objset` are its objects, where the pool is open for writing. Blocks until the kernel has answered.
///
/// # Errors
/// [`MountError::Open`] when the dataset is no filesystem or cannot be read, [`MountError::Refused`] by the system.
pub fn mount(
    dsl: Arc<Dsl>,
    dataset: Dataset,
    objset: Option<Arc<Objset>>,
    at: &Path,
    options: &MountOptions,
) -> Result<FuseMount, MountError> {
    let name = dataset.name.clone();
    let trees = device::block_on(Trees::open(dsl, dataset, objset, options))
        .map_err(|error| MountError::Open { dataset: name.clone(), error })?;
    let filesystem = ReadOnly::new(trees, options);
    let mut config = fuser::Config::default();
    config.n_threads = Some(THREADS);
    config.clone_fd = true;
    config.acl = if options.allow_other { fuser::SessionACL::All } else { fuser::SessionACL::Owner };
    config.mount_options = mount_options(&name, options);
    let refused = |error| MountError::Refused { dataset: name.clone(), at: at.to_owned(), error };
    let session =
        fuser::Session::new(filesystem, at, &config).and_then(fuser::Session::spawn).map_err(refused)?;
    raise_read_ahead(at);
    Ok(FuseMount { dataset: name, at: at.to_owned(), options: options.clone(), session: Some(session) })
}

fn mount_options(dataset: &str, options: &MountOptions) -> Vec<fuser::MountOption> {
    use fuser::MountOption as O;
    // A comma would end the option early in the mount table.
    let shown = dataset.replace(',', "_");
    let mut list =
        vec![O::FSName(shown), O::Subtype("cenote".into()), O::RO, O::NoAtime, O::DefaultPermissions];
    list.push(if options.exec { O::Exec } else { O::NoExec });
    if is_root() {
        list.push(if options.setuid { O::Suid } else { O::NoSuid });
        list.push(if options.devices { O::Dev } else { O::NoDev });
    }
    list
}

/// The kernel's default window of 128 KiB keeps one request in flight; more must be asked for in sysfs, as root. Best effort.
fn raise_read_ahead(at: &Path) {
    let Ok(metadata) = std::fs::metadata(at) else { return };
    let (major, minor) = (libc::major(metadata.dev()), libc::minor(metadata.dev()));
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
        self.options.words()
    }

    /// False once the kernel has ended the session, for example because somebody ran `umount`.
    pub fn is_alive(&self) -> bool {
        self.session.as_ref().is_some_and(|session| !session.guard.is_finished())
    }

    /// Unmounts and waits for the session to end. With `force` a mount in use leaves the tree at once.
    ///
    /// # Errors
    /// [`MountError::Busy`] or [`MountError::Unmount`], with the mount, which stays as it was.
    pub fn unmount(mut self, force: bool) -> Result<(), Box<(Self, MountError)>> {
        if self.is_alive()
            && let Err(error) = unmount_path(&self.at, force)
        {
            return Err(Box::new((self, error)));
        }
        if let Some(session) = self.session.take() {
            if force && !session.guard.is_finished() {
                // Whoever still has a file open keeps the session; it ends with them.
                drop(session);
            } else if let Err(error) = session.join() {
                tracing::debug!(%error, dataset = self.dataset, "the FUSE session ended with an error");
            }
        }
        Ok(())
    }
}

impl Drop for FuseMount {
    fn drop(&mut self) {
        if self.session.is_some() && self.is_alive() {
            let _ = unmount_path(&self.at, true);
        }
    }
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
