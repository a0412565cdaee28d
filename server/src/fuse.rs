//! Filesystems mounted through FUSE.
//!
//! # The parts
//! [`mount()`] makes a session with the kernel (`session`) whose threads answer requests out of a `trees::Trees`: the filesystem itself
//! and, below `.zfs/snapshot`, its snapshots, each opened when somebody first looks into it. A request is answered on the thread that
//! read it: what is cached finishes at once, the rest waits for the device in that thread's own ring.
//!
//! | module | what it knows |
//! |---|---|
//! | `place` | where it is mounted, and whether it still is |
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
//! last file is closed. What others mounted at the same place is left alone, and what they mounted of this filesystem elsewhere (a bind mount, a container) keeps the session, as an open
//! file does. A daemon that was killed leaves a mount that answers nothing; [`clear_stale`] takes it away.

mod attributes;
mod buffer;
mod changes;
mod channel;
mod files;
mod filesystem;
mod flags;
mod groups;
mod listing;
mod names;
mod node;
mod options;
mod place;
mod readers;
mod ring;
mod served;
mod session;
mod trees;
mod waiting;
mod wire;
mod xattrs;

pub use options::MountOptions;
pub use place::{clear_stale, clear_stale_of};
pub use trees::{LiveSource, SnapshotsClosed, Source};

use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use engine::dataset::zpl::LiveZpl;

use place::Place;
use served::Served;
use session::Session;
use trees::Trees;

/// Most threads that take turns at reading requests: misses wait on the thread that took them, so that more of them than cores keep a device busy.
const THREADS: usize = 8;

/// Bytes that the kernel reads ahead in a file, where we may tell it. Enough that requests overlap.
const KERNEL_READ_AHEAD_KIB: u32 = 1024;

/// A session whose mount was taken away ends within this time after it let the last file go, unless somebody else has files open or has it mounted.
const ENDS_WITHIN: Duration = Duration::from_secs(3);

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
    /// It is not at its mountpoint any more, and still in use.
    #[error(
        "cannot unmount {}: it is not there any more, but in use: files are open, it is mounted elsewhere too (a bind mount, a container), \
         or something was mounted over it; end that, or force",
        at.display()
    )]
    BusyElsewhere {
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
    place: Place,
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
    let acl = if options.allow_other { fuser::SessionACL::All } else { fuser::SessionACL::Owner };
    let refused = |error| MountError::Refused { dataset: name.clone(), at: at.to_owned(), error };
    let (place, connection) = Place::mount(&name, at, options).map_err(refused)?;
    let session = Session::begin(&served, connection, acl, options.ring).map_err(|error| {
        let _ = place.unmount(true);
        refused(error)
    })?;
    served.set_notifier(session.notifier());
    raise_read_ahead(place.device());
    Ok(FuseMount {
        dataset: name,
        at: at.to_owned(),
        place,
        options: Mutex::new(options.clone()),
        updating: Mutex::default(),
        served,
        session: Mutex::new(Some(session)),
    })
}

/// The kernel's default window of 128 KiB keeps one request in flight; more must be asked for in sysfs, as root. Best effort.
fn raise_read_ahead(device: libc::dev_t) {
    let (major, minor) = (libc::major(device), libc::minor(device));
    let knob = format!("/sys/class/bdi/{major}:{minor}/read_ahead_kb");
    if let Err(error) = std::fs::write(&knob, KERNEL_READ_AHEAD_KIB.to_string()) {
        tracing::debug!(%error, knob, "the kernel's read-ahead stays as it is");
    }
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
        self.served.set_habits(&wanted);
        if !wanted.writable {
            // What is mapped and changed is written back first, as long as that is allowed.
            write_back(self.place.path());
        }
        self.served.set_writable(wanted.writable);
        let is_kept = |options: &MountOptions| {
            let MountOptions { writable, exec, setuid, devices, sync_all, sync_names, .. } = *options;
            (writable, exec, setuid, devices, sync_all, sync_names)
        };
        if is_kept(&current) == is_kept(&wanted) {
            *self.options() = wanted;
            return Ok(());
        }
        place::remount(self.place.path(), &wanted).map_err(|error| {
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
        self.place.is_taken()
    }

    /// Unmounts and waits for the session to end. With `force` a mount in use leaves the tree at once, and nothing is waited for.
    ///
    /// # Errors
    /// [`MountError::Busy`] or [`MountError::Unmount`], with the mount, which stays as it was. [`MountError::BusyElsewhere`], with the mount, which is not in its place.
    pub fn unmount(self, force: bool) -> Result<(), Box<(Self, MountError)>> {
        self.take_away(force).map_err(|error| Box::new((self, error)))
    }

    /// The same where somebody else looks at it.
    ///
    /// # Errors
    /// As [`Self::unmount`].
    pub fn take_away(&self, force: bool) -> Result<(), MountError> {
        if self.is_alive() {
            self.place.unmount(force)?;
        }
        if !force && !self.has_ended() {
            return Err(MountError::BusyElsewhere { at: self.at.clone() });
        }
        let Some(session) = self.session().take() else { return Ok(()) };
        if !force || session.is_finished() {
            session.join();
            self.place.clear();
        } else {
            // Whoever still has a file open keeps the session; it ends with them. Until then they may read.
            self.served.set_writable(false);
            self.served.set_detached();
        }
        Ok(())
    }

    /// Waits for the session of a mount that was taken away, as long as it lets files go. Whether it ended.
    fn has_ended(&self) -> bool {
        let ends = || self.session().as_ref().is_none_or(|session| session.ends_within(ENDS_WITHIN / 100));
        let mut last = usize::MAX;
        let mut deadline = Instant::now() + ENDS_WITHIN;
        while !ends() {
            let held = self.files_held();
            if held < last {
                (last, deadline) = (held, Instant::now() + ENDS_WITHIN);
            } else if Instant::now() >= deadline {
                return false;
            }
        }
        true
    }
}

impl Drop for FuseMount {
    fn drop(&mut self) {
        let Some(session) = self.session().take() else { return };
        if session.is_finished() {
            self.place.clear();
            return;
        }
        self.served.set_writable(false);
        if let Err(error) = self.place.unmount(true) {
            tracing::warn!(%error, "a mount that nobody serves any longer stays");
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
