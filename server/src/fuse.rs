//! Filesystems mounted through FUSE.
//!
//! # The parts
//! [`mount()`] makes a session with the kernel (`session`). Its threads answer requests from
//! `mounted_datasets::MountedDatasets`: the filesystem itself and, below `.zfs/snapshot`, its snapshots, each
//! opened at its first use. A request is answered on the thread that read it: a request for cached data
//! finishes at once, others wait for the device in that thread's own ring.
//!
//! | module | what it does |
//! |---|---|
//! | `mountpoint` | where a filesystem is mounted, and whether it still is |
//! | `elsewhere` | where else it is mounted, in all mount namespaces |
//! | `holders` | which processes keep it busy |
//! | `unused` | whether several can be unmounted, before one is |
//! | `rename_mount` | its name in the kernel's table of mounts |
//! | `detached_mount` | mounts below it, moved when it is mounted around them |
//! | `freeze` | lets requests wait while the filesystem is replaced |
//! | `given` | a session that another daemon goes on with |
//! | `notifier` | what the kernel is told without having asked |
//! | `rollback` | another filesystem behind a mount that stays (`zfs rollback`) |
//! | `seek_hole` | where data and holes are, also in pages that only the kernel has |
//! | `snapshot_dir`, `snapshot_taker` | `mkdir` in `.zfs/snapshot` |
//! | `outside` | changes that came through another protocol |
//! | `mmap_times` | times that are set for files that are mapped and changed |
//! | `wire` | the protocol: bytes and requests |
//! | `connection` | what all threads of a session share |
//! | `channel` | how requests and answers travel: through the device |
//! | `readers` | which of a mount's threads read requests there |
//! | `idle` | one thread that waits for all mounts without requests |
//! | `ring` | the same through memory that is shared with the kernel, on request and where the kernel has it |
//! | `filesystem` | which request calls which method of `served` |
//!
//! # Caching
//! Only this kernel changes a mounted filesystem, so it may keep names, attributes, directories and pages.
//! `lookup` says for how long and lists the exceptions; `files` says why writes go through instead of staying
//! in the kernel. A snapshot never changes.
//!
//! # While it is mounted
//! Properties that change reach a mount through [`FuseMount::update`]. The server applies its own at once;
//! those that the kernel keeps for a mount (`exec` and the like) need a remount, which takes root. `acltype`
//! is negotiated when the session begins, and changes with the next session.
//!
//! # Unmounting
//! When the daemon has unmounted a filesystem, all data written to it are on disk. When another program
//! unmounts it (`umount`), the session ends first, and the daemon commits then.
//!
//! Like `umount`, [`FuseMount::take_away`] refuses while files are open. It leaves mounts alone that other
//! programs made: at the same place, or of this filesystem at another place (a bind mount, a container),
//! which keep the session alive. When the filesystem is mounted again, it gets that session back
//! ([`FuseMount::put_back`]): each of two sessions of one filesystem would keep data that the other changes.
//!
//! A forced unmount always succeeds. Mapped pages that programs changed are written back, as long as the
//! pool's devices answer; then the connection is cut, and programs with open files get errors. A daemon that
//! was killed leaves a mount that answers nothing; [`clear_stale`] removes it.

mod attributes;
mod buffer;
mod changes;
mod channel;
mod commit_threads;
mod connection;
mod detached_mount;
mod elsewhere;
mod files;
mod filesystem;
mod flags;
mod freeze;
mod given;
mod groups;
mod holders;
mod idle;
mod listing;
mod lookup;
mod mmap_times;
mod mounted_datasets;
mod mountpoint;
mod node;
mod notifier;
mod options;
mod outside;
mod readers;
mod receive_buffer;
mod rename_mount;
mod ring;
mod rollback;
mod seek_hole;
mod served;
mod session;
mod snapshot_dir;
mod snapshot_taker;
mod unused;
mod wire;
mod writeback;
mod xattrs;

pub use detached_mount::{DetachedMount, clone_mount_tree, move_mount};
pub use elsewhere::{Elsewhere, OtherMount};
pub use flags::{REWRITE_KEEPS_BIRTHS, ZFS_IOC_REWRITE};
pub use given::{GivenMount, NotResumed};
pub use holders::Holders;
pub(crate) use mountpoint::unescaped;
pub use mountpoint::{Table, answers, clear_stale, clear_stale_of, dead_mounts, device_at};
pub use node::ZFS_DIR as ZFS_DIRECTORY_INODE;
pub(crate) use node::{Node, SNAPSHOT_DIR, SNAPSHOT_NAME, Tree, ZFS_DIR, ZFS_NAME};
pub use options::MountOptions;
pub(crate) use options::Snapdir;
pub use outside::Outside;
pub use rollback::Difference;
pub use snapshot_taker::SnapshotTaker;
pub use unused::require_unused;

pub use mounted_datasets::{LiveSource, SnapshotsClosed, Source};

use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, mpsc};
use std::time::{Duration, Instant};

use device::IgnorePoison;
use engine::zpl::{AclType, LiveZpl};

use crate::commit_on_unmount::commit;
use freeze::{Freezable, Frozen};
pub(crate) use mounted_datasets::MountedDatasets;
use mountpoint::{Mountpoint, SpareMount};
use rename_mount::RenameError;
use served::Served;
use session::Session;

/// Most threads that take turns at reading requests: misses wait on the thread that took them, so that more
/// of them than cores keep a device busy. So do writes for which too much is dirty; several programs that
/// write must leave a thread for the request that makes data stable.
const THREADS: usize = 32;

/// Bytes that the kernel reads ahead in a file, where we may tell it. Enough that requests overlap.
const KERNEL_READ_AHEAD_KIB: u32 = 1024;

/// A session whose mount is gone ends within this time after the last file was closed, unless another program
/// else has files open or has it mounted.
const ENDS_WITHIN: Duration = Duration::from_secs(3);

/// Requests that were begun end within this time, unless the pool's devices do not answer.
const ENDS_AT_MOST: Duration = Duration::from_secs(30);

/// Changed mapped pages are written back within this time when a mount is cut, or lost.
const WRITTEN_WITHIN: Duration = Duration::from_secs(20);
/// How long is waited for what a mount that was cut lets go.
const RELEASED_WITHIN: Duration = Duration::from_millis(500);

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
        /// The error of the system.
        #[source]
        error: std::io::Error,
    },
    /// Files are open below the mountpoint.
    #[error("cannot unmount '{}': pool or dataset is busy{holders}", at.display())]
    Busy {
        /// The mountpoint.
        at: PathBuf,
        /// The processes that have them open, as far as they are visible.
        holders: Holders,
    },
    /// Something else was mounted over it.
    #[error("cannot unmount '{}': pool or dataset is busy: something else was mounted over it", at.display())]
    Covered {
        /// The mountpoint.
        at: PathBuf,
    },
    /// It is in use at another place than its mountpoint.
    #[error("'{dataset}' is in use apart from {}: {}", at.display(), used_by(by.as_deref()))]
    BusyElsewhere {
        /// The dataset.
        dataset: String,
        /// Where it is or was mounted.
        at: PathBuf,
        /// Another mount of it, where one was found.
        by: Option<Box<OtherMount>>,
    },
    /// Requests are under way that do not end.
    #[error("requests of the filesystem at {} do not finish", at.display())]
    Stuck {
        /// The mountpoint.
        at: PathBuf,
    },
    /// The system refused to unmount.
    #[error("cannot unmount {}: {error}", at.display())]
    Unmount {
        /// The mountpoint.
        at: PathBuf,
        /// The error of the system.
        error: String,
    },
}

fn used_by(by: Option<&OtherMount>) -> String {
    match by {
        Some(place) => place.to_string(),
        None => {
            "it is mounted at another place too (a bind mount, a container), or files in it are open".into()
        }
    }
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

/// What is left of a mount after unmounting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Left {
    /// Nothing: its session ended.
    Nothing,
    /// It is mounted at another place too, and so has its session.
    Elsewhere,
}

/// A mounted filesystem. Dropping it unmounts, forced.
#[derive(Debug)]
pub struct FuseMount {
    dataset: String,
    /// Where it is, or was last.
    place: Mutex<Mountpoint>,
    /// Where it is kept while it is only elsewhere.
    aside: Mutex<Option<SpareMount>>,
    /// It lost its place for a moment, and comes back.
    is_kept: AtomicBool,
    /// As they are now; held to look or change.
    options: Mutex<MountOptions>,
    /// Held while they are changed, which may wait for devices. Before `options`.
    updating: Mutex<()>,
    /// Those of them that wait for another session, and were reported.
    postponed: Mutex<Option<AgreedOn>>,
    freezable: Arc<Freezable>,
    /// Held to look or to take it.
    session: Mutex<Option<Session>>,
}

/// The capabilities that the kernel and a session negotiate when it begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct AgreedOn {
    has_posix_acls: bool,
    has_rings: bool,
}

impl AgreedOn {
    fn of(options: &MountOptions) -> Self {
        Self { has_posix_acls: options.zpl.acl == AclType::Posix, has_rings: options.ring }
    }
}

/// Mounts a filesystem or snapshot at the directory `at`. Blocks until the kernel has answered.
///
/// # Errors
/// [`MountError::Open`] when the dataset is no filesystem or cannot be read, [`MountError::Refused`] by the
/// system.
pub fn mount(source: Source, at: &Path, options: &MountOptions) -> Result<FuseMount, MountError> {
    let name = source.dataset().name.clone();
    let mut options = options.clone();
    match source.live() {
        Some(zpl) => options.apply_to(zpl),
        None => options = options.of_what_is_fixed(),
    }
    let options = &options;
    let trees = device::block_on(MountedDatasets::open(source, options))
        .map_err(|error| MountError::Open { dataset: name.clone(), error })?;
    let freezable = Arc::new(Freezable::new(Served::new(trees, options)));
    let acl = if options.allow_other { fuser::SessionACL::All } else { fuser::SessionACL::Owner };
    let refused = |error| MountError::Refused { dataset: name.clone(), at: at.to_owned(), error };
    let (place, connection) = Mountpoint::mount(&name, at, options).map_err(refused)?;
    let session = Session::begin(&freezable, connection, acl, options.ring).map_err(|error| {
        let _ = place.unmount(true);
        refused(error)
    })?;
    if let Some(served) = freezable.served() {
        served.set_notifier(session.notifier());
    }
    raise_read_ahead(place.device());
    Ok(FuseMount {
        dataset: name,
        place: Mutex::new(place),
        aside: Mutex::default(),
        is_kept: AtomicBool::new(false),
        options: Mutex::new(options.clone()),
        updating: Mutex::default(),
        postponed: Mutex::default(),
        freezable,
        session: Mutex::new(Some(session)),
    })
}

/// The kernel's default window of 128 KiB keeps one request in flight; more must be asked for in sysfs, as
/// root. Best effort.
fn raise_read_ahead(device: libc::dev_t) {
    let (major, minor) = (libc::major(device), libc::minor(device));
    let knob = format!("/sys/class/bdi/{major}:{minor}/read_ahead_kb");
    if let Err(error) = std::fs::write(&knob, KERNEL_READ_AHEAD_KIB.to_string()) {
        tracing::debug!(%error, knob, "cannot change the kernel's read-ahead");
    }
}

impl FuseMount {
    /// Name of the dataset.
    pub fn dataset_name(&self) -> &str {
        &self.dataset
    }

    /// Where it is mounted.
    pub fn mountpoint(&self) -> PathBuf {
        self.place().shown().to_owned()
    }

    fn place(&self) -> Mountpoint {
        self.place.lock().ignore_poison().clone()
    }

    fn aside(&self) -> MutexGuard<'_, Option<SpareMount>> {
        self.aside.lock().ignore_poison()
    }

    /// Has snapshots taken that processes ask for by `mkdir` in `.zfs/snapshot`.
    pub fn take_snapshots_by(&self, taker: SnapshotTaker) {
        if let Some(served) = self.freezable.served() {
            served.take_snapshots_by(taker);
        }
    }

    /// The words of the mount table.
    pub fn options_words(&self) -> Vec<String> {
        let mut words = self.options().words();
        if self.answered_through_rings().is_some() {
            words.push("ring".into());
        }
        words
    }

    /// The same where the kernel forbids more than it was told to (`mountpoint::Forbidden`).
    pub fn options_words_in(&self, table: &Table) -> Vec<String> {
        let (words, forbidden) = (self.options_words(), table.forbidden(&self.place()));
        let Some(forbidden) = forbidden else { return words };
        let now = self.options_now();
        // What comes behind those has no other side.
        let others = words.into_iter().skip(now.words().len());
        forbidden.applied_to(&now).words().into_iter().chain(others).collect()
    }

    /// Options as they are now.
    pub fn options_now(&self) -> MountOptions {
        self.options().clone()
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
    pub fn live(&self) -> Option<Arc<LiveZpl>> {
        self.freezable.served()?.live().cloned()
    }

    /// Whether these options take another session: what is fixed cannot become writable, and whether there
    /// are POSIX ACLs and how requests come is agreed on once.
    pub fn needs_another_session(&self, options: &MountOptions) -> bool {
        (options.writable && self.live().is_none()) || AgreedOn::of(&self.options()) != AgreedOn::of(options)
    }

    fn postponed(&self) -> MutexGuard<'_, Option<AgreedOn>> {
        self.postponed.lock().ignore_poison()
    }

    /// Whether these options wait for another session, and that was reported.
    pub fn is_postponed(&self, options: &MountOptions) -> bool {
        *self.postponed() == Some(AgreedOn::of(options))
    }

    /// Nothing waits for another session any more.
    pub fn forget_postponed(&self) {
        *self.postponed() = None;
    }

    /// These options without those that need another session. True with it if it was not reported yet that
    /// the rest has to wait.
    pub fn without_another_session(&self, mut options: MountOptions) -> (MountOptions, bool) {
        let wanted = AgreedOn::of(&options);
        let is_new = self.postponed().replace(wanted) != Some(wanted);
        let current = self.options();
        (options.zpl.acl, options.ring) = (current.zpl.acl, current.ring);
        options.writable &= self.live().is_some();
        (options, is_new)
    }

    fn options(&self) -> MutexGuard<'_, MountOptions> {
        self.options.lock().ignore_poison()
    }

    fn session(&self) -> MutexGuard<'_, Option<Session>> {
        self.session.lock().ignore_poison()
    }

    /// Applies its present properties to the mount; where the kernel was told otherwise, only
    /// what is another than it was, or all `anew`. Blocks the thread, for as long as devices take.
    ///
    /// # Errors
    /// The kernel's options cannot be changed: this is not root, or files are open for writing that a program
    /// wants to end (`anew`; a property ends it all the same). The rest is changed.
    pub fn update(&self, options: &MountOptions, anew: bool) -> Result<(), MountError> {
        let _updating = self.updating.lock().ignore_poison();
        let current = self.options().clone();
        let mut wanted = MountOptions { allow_other: current.allow_other, ..options.clone() };
        let Some(served) = self.freezable.served() else { return Ok(()) };
        match served.live() {
            Some(zpl) => wanted.apply_to(zpl),
            None => wanted = wanted.of_what_is_fixed(),
        }
        served.set_snapdir(wanted.snapdir);
        served.set_habits(&wanted);
        let place = self.place();
        if !wanted.writable {
            // What is mapped and changed is written back first, as long as that is allowed.
            self.write_back();
        }
        let was_writable = served.is_writable();
        served.set_writable(wanted.writable);
        if let Some(pool) = served.trees.pool().filter(|_| was_writable && !wanted.writable)
            && let Err(error) = commit(pool, None)
        {
            tracing::warn!(
                dataset = self.dataset,
                "read-only, and the last changes are not on disk: {error}"
            );
        }
        let is_kept = |options: &MountOptions| {
            let MountOptions { writable, exec, setuid, devices, sync_all, sync_names, .. } = *options;
            (writable, exec, setuid, devices, sync_all, sync_names)
        };
        let forbidden = Table::read().ok().and_then(|table| table.forbidden(&place)).unwrap_or_default();
        let (known, mut told) = (forbidden.applied_to(&current), wanted.clone());
        if !anew {
            let stays = |was: bool, is: bool, known: bool| if was == is { is && known } else { is };
            told.writable = stays(current.writable, wanted.writable, known.writable);
            told.exec = stays(current.exec, wanted.exec, known.exec);
            told.setuid = stays(current.setuid, wanted.setuid, known.setuid);
            told.devices = stays(current.devices, wanted.devices, known.devices);
        }
        let is_same = is_kept(&known) == is_kept(&told);
        if (is_same && current.atime == wanted.atime) || !place.is_taken() {
            *self.options() = wanted;
            return Ok(());
        }
        let mut remounted = mountpoint::remount(place.path(), &told);
        let is_busy = |error: &std::io::Error| error.raw_os_error() == Some(libc::EBUSY);
        if !anew && current.writable && !told.writable && remounted.as_ref().is_err_and(is_busy) {
            // Files are open for writing. Nothing is written through them from now on, whatever the kernel
            // believes.
            told.writable = true;
            remounted = mountpoint::remount(place.path(), &told);
        }
        match remounted {
            // That access times are kept otherwise is only shown.
            Err(error) if !is_same => {
                // The server goes back to what the kernel believes.
                served.set_writable(current.writable);
                let at = self.mountpoint();
                return Err(MountError::Refused { dataset: self.dataset.clone(), at, error });
            }
            _ => *self.options() = wanted,
        }
        Ok(())
    }

    /// False once the kernel has ended the session, for example after `umount`.
    pub fn is_alive(&self) -> bool {
        self.session().as_ref().is_some_and(|session| !session.is_finished())
    }

    /// Files that are open, or that are kept for the kernel.
    pub fn files_held(&self) -> usize {
        self.freezable.served().map_or(0, |served| served.files_held())
    }

    /// All was committed: the space that files take is known, and the kernel is to ask for it.
    pub fn space_is_known(&self) {
        if let Some(served) = self.freezable.served() {
            served.forget_brief();
        }
    }

    /// Refuses to open files of snapshots below `.zfs/snapshot`, as long as the returned guard
    /// is kept.
    ///
    /// # Errors
    /// The name of a snapshot in which a file is open; none is closed.
    pub fn close_snapshots(&self, names: &[&str]) -> Result<Option<SnapshotsClosed>, String> {
        self.freezable.served().map(|served| SnapshotsClosed::of(&served, names)).transpose()
    }

    /// Whether it is still at its mountpoint: an unmount removes it before the session ends. True
    /// where that cannot be found out.
    pub fn is_in_place(&self) -> bool {
        self.place().is_taken()
    }

    /// Whether the kernel's table of mounts has it at its mountpoint.
    pub fn is_listed(&self, table: &Table) -> bool {
        table.has(&self.place())
    }

    /// Has the kernel write back what programs mapped and changed. Blocks the thread.
    pub fn write_back(&self) {
        if let (Some(served), Some(directory)) = (self.freezable.served(), self.directory()) {
            writeback::write_back(&directory, &served);
        }
    }

    /// The root directory, wherever it is.
    fn directory(&self) -> Option<std::fs::File> {
        let place = self.place();
        match &*self.aside() {
            Some(aside) => aside.directory().ok(),
            None if place.is_taken() => std::fs::File::open(place.path()).ok(),
            None => None,
        }
    }

    /// Unmounts it. When it is dropped then, mounts at other places lose it too.
    ///
    /// # Errors
    /// As [`Self::take_away`], with the mount, which stays as it was.
    pub fn unmount(self, force: bool) -> Result<(), Box<(Self, MountError)>> {
        self.take_away(force, None).map(drop).map_err(|error| Box::new((self, error)))
    }

    /// Unmounts it from its mountpoint, as `umount` does, if it is there. With `force` no program has it any
    /// longer, and nothing is waited for but that what was mapped and changed is written back. Who unmounts
    /// many filesystems has looked `before` where else they are mounted; else all is looked through for it.
    ///
    /// # Errors
    /// [`MountError::Busy`], [`MountError::Covered`] or [`MountError::Unmount`]; it stays as it was.
    pub fn take_away(&self, force: bool, before: Option<&Elsewhere>) -> Result<Left, MountError> {
        if force {
            self.cut();
            return Ok(Left::Nothing);
        }
        let place = self.place();
        if self.is_alive() {
            if place.is_covered() {
                return Err(MountError::Covered { at: self.mountpoint() });
            }
            let kept = self.aside().take();
            let aside = kept.or_else(|| place.aside().ok());
            match place.unmount(false) {
                Err(MountError::Busy { at, .. }) => {
                    // It is not this that keeps it busy.
                    drop(aside);
                    return Err(MountError::Busy { at, holders: Holders::of(place.device(), place.path()) });
                }
                unmounted => drop(unmounted?),
            }
            let is_elsewhere = || match before {
                Some(all) => {
                    all.staying(&place).is_some()
                        || all.apart_from(&place).into_iter().any(OtherMount::is_still_there)
                }
                None => Elsewhere::read().is_ok_and(|all| all.has(place.device())),
            };
            if aside.is_some() && is_elsewhere() {
                *self.aside() = aside;
                return Ok(Left::Elsewhere);
            }
        }
        if !self.has_ended() {
            return Ok(Left::Elsewhere);
        }
        if let Some(session) = self.session().take() {
            session.join();
            place.clear();
        }
        Ok(Left::Nothing)
    }

    /// Mounts it at a mountpoint again, while it is still mounted at another place: with the session that
    /// it has. Blocks the thread.
    ///
    /// # Errors
    /// [`MountError::BusyElsewhere`] where this is not possible; [`MountError::Refused`] by the system.
    pub fn put_back(&self, at: &Path, options: &MountOptions) -> Result<(), MountError> {
        let busy = || self.busy_elsewhere(None);
        if self.needs_another_session(options) {
            return Err(busy());
        }
        let mut kept = self.aside();
        let elsewhere = kept.take().or_else(|| self.place().aside().ok());
        // Where it is in no directory any more, and files are open in it, the connection has a mount of it
        // made.
        let aside = elsewhere.or_else(|| self.another(options)).ok_or_else(busy)?;
        match aside.put(at) {
            Ok(place) => *self.place.lock().ignore_poison() = place,
            Err(error) => {
                *kept = Some(aside);
                return Err(MountError::Refused { dataset: self.dataset.clone(), at: at.to_owned(), error });
            }
        }
        drop(kept);
        self.update(options, true)
    }

    /// The error about another mount of it, or open files.
    pub fn busy_elsewhere(&self, by: Option<OtherMount>) -> MountError {
        MountError::BusyElsewhere {
            dataset: self.dataset.clone(),
            at: self.mountpoint(),
            by: by.map(Box::new),
        }
    }

    /// Another mount of it, in no directory.
    fn another(&self, options: &MountOptions) -> Option<SpareMount> {
        let connection = self.session().as_ref().map(Session::connection)?;
        let attributes = rename_mount::attributes_of(options);
        rename_mount::named(connection.as_fd(), &mountpoint::shown(&self.dataset), attributes)
            .ok()
            .map(SpareMount::new)
    }

    /// Has the kernel's table of mounts call it by the name that its dataset has now, which takes another
    /// mount in its place. If a process uses it, or a filesystem is mounted inside, or this is not root, it
    /// keeps the one that it has. Blocks the thread.
    ///
    /// # Errors
    /// [`MountError::Refused`] where it is not mounted any more.
    pub fn name_anew(&self, dataset: &str) -> Result<(), MountError> {
        let _updating = self.updating.lock().ignore_poison();
        let Some(connection) = self.session().as_ref().map(Session::connection) else { return Ok(()) };
        let place = self.place();
        match rename_mount::rename(&place, connection.as_fd(), dataset) {
            Ok(()) => Ok(()),
            Err(RenameError::Kept(error)) => {
                tracing::debug!(%error, dataset, "the kernel's table of mounts keeps the old name");
                Ok(())
            }
            Err(RenameError::Lost(error)) => {
                let at = place.shown().to_owned();
                Err(MountError::Refused { dataset: dataset.to_owned(), at, error })
            }
        }
    }

    /// Where it is, without symbolic links.
    pub fn real_path(&self) -> PathBuf {
        self.place().path().to_owned()
    }

    /// Keeps its session although the directory that it is mounted on may go, until it is put back
    /// ([`Self::put_back`]) or [`Self::settle`].
    pub fn keep(&self) {
        let mut aside = self.aside();
        if aside.is_none() {
            *aside = self.place().aside().ok();
        }
        self.is_kept.store(aside.is_some(), Ordering::Release);
    }

    /// It is where it is to be, or is not to come back: nothing is kept for it any longer, unless it is
    /// mounted elsewhere ([`Self::let_go_if_unused`]).
    pub fn settle(&self) {
        self.is_kept.store(false, Ordering::Release);
        if self.is_in_place() {
            *self.aside() = None;
        }
    }

    /// The number of its filesystem in the kernel's table of mounts.
    pub fn device(&self) -> libc::dev_t {
        self.place.lock().ignore_poison().device()
    }

    /// Releases a filesystem that is at no mountpoint, if it is not mounted at any other place as of `now`:
    /// its session ends then.
    pub fn let_go_if_unused(&self, now: &Elsewhere) {
        if self.is_kept.load(Ordering::Acquire) {
            return;
        }
        let mut aside = self.aside();
        if aside.is_some() && !now.has(self.device()) {
            *aside = None;
        }
    }

    /// Whether it is kept for who has it elsewhere.
    pub fn is_aside(&self) -> bool {
        self.aside().is_some()
    }

    /// Ends it even if it is in use: writes back changed mapped pages, leaves the tree, and answers nothing
    /// any longer.
    fn cut(&self) {
        let place = self.place();
        let is_alive = self.is_alive();
        if is_alive {
            self.write_back_in_time();
            match place.unmount(true) {
                Ok(true) => {}
                Ok(false) => place.abort(),
                Err(error) => tracing::warn!(%error, "a mount stays that the daemon does not serve any more"),
            }
        }
        *self.aside() = None;
        if let Some(served) = self.freezable.end() {
            // Files that cannot be reached any more are freed; where devices do not answer, that waits.
            let (tell, told) = mpsc::channel::<()>();
            let release = move || {
                let _tell = tell;
                served.release_all();
            };
            if let Err(error) = std::thread::Builder::new().name("fuse-end".into()).spawn(release) {
                tracing::warn!(%error, "files that were unlinked are freed with the next import");
            }
            let _ = told.recv_timeout(RELEASED_WITHIN);
        }
        let Some(session) = self.session().take() else { return };
        // Where the connection could not be cut, it ends with the last who has it.
        if session.ends_within(RELEASED_WITHIN) {
            session.join();
            place.clear();
        }
    }

    /// Has written back what programs mapped and changed, unless the pool's devices are away, for as long as
    /// that goes on.
    fn write_back_in_time(&self) {
        let Some(served) = self.freezable.served().filter(|served| served.is_writable()) else { return };
        if served.trees.pool().is_some_and(|pool| pool.suspended().is_some()) {
            return;
        }
        let (place, aside) = (self.place(), self.aside().take());
        let write = move || {
            let directory = match aside {
                Some(aside) => aside.directory(),
                None if place.is_taken() => std::fs::File::open(place.path()),
                None => return,
            };
            if let Ok(directory) = directory {
                writeback::write_back(&directory, &served);
            }
        };
        if mountpoint::within(WRITTEN_WITHIN, write).is_none() {
            tracing::warn!(dataset = self.dataset, "not all mapped pages were written back in time");
        }
    }

    /// Holds all requests back, until what is returned is dropped or goes on. What programs mapped and
    /// changed is written back before. Blocks the thread.
    ///
    /// # Errors
    /// [`MountError::Stuck`] where requests under way do not end.
    pub fn freeze(self: &Arc<Self>) -> Result<FrozenMount, MountError> {
        self.write_back();
        let closed = self.freezable.freeze(ENDS_AT_MOST);
        let closed = closed.ok_or_else(|| MountError::Stuck { at: self.mountpoint() })?;
        Ok(FrozenMount { mount: Arc::clone(self), closed })
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

/// A mount whose requests wait.
#[derive(Debug)]
pub struct FrozenMount {
    mount: Arc<FuseMount>,
    closed: Frozen,
}

impl FrozenMount {
    /// Goes on with another tree of the same filesystem, and has the kernel forget what is not the same in
    /// it. Blocks the thread.
    ///
    /// # Errors
    /// [`MountError::Open`] when it cannot be opened; requests are answered out of the tree before then.
    pub fn thaw_with(self, source: Source, difference: &Difference) -> Result<(), MountError> {
        let Self { mount, closed } = self;
        let options = mount.options().clone();
        let trees = device::block_on(MountedDatasets::open(source, &options))
            .map_err(|error| MountError::Open { dataset: mount.dataset.clone(), error })?;
        let Some(before) = mount.freezable.served() else { return Ok(()) };
        let after = Served::after(&before, trees, difference, &options);
        if let Some(live) = after.live() {
            options.apply_to(live);
            live.remember_unlinked();
        }
        // Other references are dropped in a moment.
        drop((before, closed.thaw_with(after)));
        if let Some(served) = mount.freezable.served() {
            if let Some(notifier) = served.notifier() {
                difference.tell(notifier);
            }
            if let Some(live) = served.live().filter(|_| mount.is_in_place()) {
                let open = served.open_live_files();
                rollback::look_again(mount.place().path(), live.zpl(), open.into_iter());
            }
        }
        mount.freezable.accept_writeback();
        Ok(())
    }
}

impl Drop for FuseMount {
    fn drop(&mut self) {
        self.cut();
    }
}
