//! The handlers of the kernel's requests, and their shared state.
//!
//! | module | requests |
//! |---|---|
//! | `lookup` | looking up, attributes |
//! | `listing` | listing directories |
//! | `files` | open files: reading, writing, ranges |
//! | `seek_hole` | where data and holes are |
//! | `changes` | creating, linking, renaming, removing, changing attributes |
//! | `xattrs` | extended attributes, POSIX ACLs among them |
//! | `flags` | the ioctls of `lsattr`, `chattr` and projects |
//!
//! `filesystem` maps requests to these. All handlers wait in [`device::block_on`], on the thread that called
//! them.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, RwLock};
use std::time::Instant;

use device::IgnorePoison;
use engine::dsl::with_room;
use engine::zpl::{AclType, LiveZpl, Znode};
use engine::{Error, Result};
use fuser::{Errno, FileHandle, INodeNo};
use ondisk::ObjectId;

use super::MountOptions;
use super::attributes::errno;
use super::files::{LiveFile, OpenFile};
use super::listing::Listings;
use super::mmap_times::MmapTimes;
use super::mounted_datasets::MountedDatasets;
use super::node::{Node, Tree};
use super::notifier::Notifier;
use super::options::Snapdir;
use super::rollback::Difference;
use super::snapshot_taker::SnapshotTaker;
use super::wire::{Operation, Request};
use crate::handover::ToldHandle;

/// Mount options that affect all requests.
#[derive(Debug, Clone, Copy)]
pub struct Habits {
    /// All changes are stable before they are answered.
    pub sync_all: bool,
    /// Changes of names are.
    pub sync_names: bool,
    /// Listing a directory counts as an access.
    pub directories_accessed: bool,
    /// Programs may have extended attributes of their own.
    pub user_xattrs: bool,
}

impl Habits {
    fn of(options: &MountOptions) -> Self {
        let MountOptions { sync_all, sync_names, directories_accessed, .. } = *options;
        Self { sync_all, sync_names, directories_accessed, user_xattrs: options.zpl.xattr }
    }
}

/// A filesystem that is mounted.
///
/// | lock | guards | order |
/// |---|---|---|
/// | `habits` | what mount options ask for; held to look or change | taken alone |
/// | `files` | the open files; held to look one up | taken alone |
/// | `stale` | files that are gone; for a few lines | taken alone |
/// | `brief` | whose attributes do not last; for a few lines | taken alone |
/// | `listings` | what open directories keep of their lists; held to take or keep it | taken alone |
#[derive(Debug)]
pub struct Served {
    pub(super) trees: MountedDatasets,
    pub(super) posix_acls: bool,
    /// A [`Snapdir`].
    snapdir: AtomicU8,
    habits: RwLock<Habits>,
    writable: AtomicBool,
    files: Mutex<HashMap<u64, Arc<OpenFile>>>,
    /// Files of a tree that was exchanged for this one, which it does not have, and of which the kernel may
    /// know: until it is told of others with their numbers.
    stale: Mutex<HashSet<ObjectId>>,
    has_stale: AtomicBool,
    /// Directories that came back after they were removed: the kernel is told of them with another
    /// generation.
    reborn: HashSet<ObjectId>,
    pub(super) listings: Listings,
    next_handle: AtomicU64,
    pub(super) kept_times: MmapTimes,
    /// Nodes whose attributes were told and do not last, and when.
    brief: Mutex<HashMap<INodeNo, Instant>>,
    /// Tells the kernel what it does not know; absent until the session began.
    notifier: OnceLock<Notifier>,
    /// Takes snapshots for processes; absent where nothing does.
    taker: OnceLock<SnapshotTaker>,
}

impl Served {
    /// Answers out of `mounted_datasets`.
    pub fn new(trees: MountedDatasets, options: &MountOptions) -> Self {
        Self {
            snapdir: AtomicU8::new(options.snapdir as u8),
            habits: RwLock::new(Habits::of(options)),
            writable: AtomicBool::new(options.writable && trees.live().is_some()),
            posix_acls: options.zpl.acl == AclType::Posix,
            trees,
            files: Mutex::default(),
            stale: Mutex::default(),
            has_stale: AtomicBool::new(false),
            reborn: HashSet::new(),
            listings: Listings::default(),
            next_handle: AtomicU64::new(1),
            kept_times: MmapTimes::default(),
            brief: Mutex::default(),
            notifier: OnceLock::new(),
            taker: OnceLock::new(),
        }
    }

    /// Answers out of `mounted_datasets` for who was answered out of `before`: what is open goes on, but for
    /// files that are gone.
    pub fn after(
        before: &Self,
        mut trees: MountedDatasets,
        difference: &Difference,
        options: &MountOptions,
    ) -> Self {
        trees.take_snapshots_of(&before.trees);
        let gone = difference.gone().clone();
        let mut after = Self::new(trees, options);
        // One that came back twice may have the first generation again: that directory is unused.
        after.reborn = &before.reborn ^ difference.reborn();
        after.snapdir.store(before.snapdir.load(Ordering::Acquire), Ordering::Release);
        after.writable.store(before.is_writable() && after.live().is_some(), Ordering::Release);
        after.next_handle.store(before.next_handle(), Ordering::Release);
        if let Some(notifier) = before.notifier.get() {
            after.set_notifier(notifier.clone());
        }
        if let Some(taker) = before.snapshot_taker() {
            after.take_snapshots_by(taker.clone());
        }
        let opened = before.files().clone();
        for (handle, file) in opened {
            let again = match (&*file, after.live()) {
                (OpenFile::Live(file), Some(live)) if !gone.contains(&file.object()) => {
                    file.again(live).map_or(OpenFile::Stale, OpenFile::Live)
                }
                (OpenFile::Live(_) | OpenFile::Stale, _) => OpenFile::Stale,
                // Of a snapshot.
                (OpenFile::Fixed(_), _) => {
                    after.files().insert(handle, file);
                    continue;
                }
            };
            after.files().insert(handle, Arc::new(again));
        }
        after.has_stale.store(!gone.is_empty() || !after.reborn.is_empty(), Ordering::Release);
        *after.stale() = gone;
        after
    }

    /// Whether another daemon can go on with it: nothing is open or known to the kernel that has no name, and
    /// nothing was exchanged.
    pub(super) fn can_go_elsewhere(&self) -> bool {
        let has_nameless = match self.live() {
            Some(live) => device::block_on(live.unlinked()).map_or(true, |files| !files.is_empty()),
            None => false,
        };
        !has_nameless && !self.has_stale.load(Ordering::Acquire)
    }

    /// Handles of files that may change, as another daemon needs them, and the number of the next handle.
    pub(super) fn handles(&self) -> (Vec<ToldHandle>, u64) {
        let files = self.files();
        let live = files.iter().filter_map(|(handle, file)| match &**file {
            OpenFile::Live(file) => Some((*handle, file.told())),
            _ => None,
        });
        (live.collect(), self.next_handle.load(Ordering::Acquire))
    }

    /// Has files open that another daemon had open. One that is gone is not there.
    pub(super) fn take_handles(&self, handles: &[ToldHandle], next: u64) {
        self.next_handle.fetch_max(next, Ordering::AcqRel);
        let Some(live) = self.live() else { return };
        for (handle, told) in handles {
            let opened = LiveFile::of_another(live, *told).map_or(OpenFile::Stale, OpenFile::Live);
            self.files().insert(*handle, Arc::new(opened));
        }
    }

    fn stale(&self) -> MutexGuard<'_, HashSet<ObjectId>> {
        self.stale.lock().ignore_poison()
    }

    /// Whether a request is about a file that is gone.
    pub(super) fn is_stale(&self, request: &Request<'_>) -> bool {
        if !self.has_stale.load(Ordering::Acquire) {
            return false;
        }
        let other = match request.operation {
            Operation::Release { .. } | Operation::Destroy => return false,
            Operation::Rename { to, .. } | Operation::CopyRange { to, .. } => Some(to),
            Operation::Link { file, .. } => Some(file),
            _ => None,
        };
        let stale = self.stale();
        let is_gone =
            |number| matches!(self.place(number), Some((Tree::Head, file)) if stale.contains(&file));
        is_gone(request.node) || other.is_some_and(is_gone)
    }

    /// The generation by which the kernel is told of a file: from now on its number is not that of another
    /// one which is gone.
    pub(super) fn told_generation(&self, tree: Tree, object: ObjectId, generation: u64) -> u64 {
        // The kernel keeps 32 bits.
        const REBORN: u64 = 1 << 31;
        if tree != Tree::Head || !self.has_stale.load(Ordering::Acquire) {
            return generation;
        }
        self.stale().remove(&object);
        if self.reborn.contains(&object) { generation ^ REBORN } else { generation }
    }

    /// Regular files that are open and may change.
    pub(super) fn open_live_files(&self) -> HashSet<ObjectId> {
        let files = self.files();
        let live = files.values().filter_map(|file| match &**file {
            OpenFile::Live(file) if file.is_regular() => Some(file.object()),
            _ => None,
        });
        live.collect()
    }

    /// Says how a file was opened, by the flags of `open`.
    pub(super) fn is_opened(&self, handle: FileHandle, flags: i32) {
        if flags & libc::O_ACCMODE == libc::O_RDWR
            && let Some(OpenFile::Live(file)) = self.files().get(&handle.0).map(|file| &**file)
        {
            file.may_be_mapped();
        }
    }

    /// Whether programs may have mapped a file to change it there.
    pub(super) fn is_perhaps_mapped(&self, object: ObjectId) -> bool {
        self.files().values().any(|file| file.perhaps_mapped() == Some(object))
    }

    /// The files that programs may have mapped to change them there, each with its generation.
    pub(super) fn perhaps_mapped(&self) -> Vec<(INodeNo, u64)> {
        let files: Vec<_> = self.files().values().cloned().collect();
        let objects: HashSet<ObjectId> = files.iter().filter_map(|file| file.perhaps_mapped()).collect();
        let known = objects.into_iter().filter_map(|object| {
            let stat = device::block_on(self.trees.head().stat(object)).ok()?;
            Some((self.number(Tree::Head, object).ok()?, stat.generation))
        });
        known.collect()
    }

    /// Lets the kernel forget the content of a file, which it writes back before.
    pub(super) fn forget_content(&self, number: INodeNo) {
        self.forget_known(number, 0);
    }

    /// Tells the kernel what it does not know.
    pub(super) fn notifier(&self) -> Option<&Notifier> {
        self.notifier.get()
    }

    /// The name of the dataset.
    pub fn name(&self) -> &str {
        self.trees.name()
    }

    /// The mounted filesystem, where it may change.
    pub fn live(&self) -> Option<&Arc<LiveZpl>> {
        self.trees.live()
    }

    /// Has snapshots taken that processes ask for.
    pub fn take_snapshots_by(&self, taker: SnapshotTaker) {
        // There is one daemon.
        let _ = self.taker.set(taker);
    }

    /// What takes them.
    pub(super) fn snapshot_taker(&self) -> Option<&SnapshotTaker> {
        self.taker.get()
    }

    /// The session began.
    pub fn set_notifier(&self, notifier: Notifier) {
        // There is one session.
        let _ = self.notifier.set(notifier);
    }

    /// Lets the kernel forget the attributes of a file, where it does not know that its request changed them.
    pub(super) fn forget_attributes(&self, number: INodeNo) {
        // Below 0: of the content nothing.
        self.forget_known(number, -1);
    }

    /// Lets the kernel forget the attributes of a file and its content from an offset on; a directory's
    /// content is how it is listed.
    fn forget_known(&self, number: INodeNo, offset: i64) {
        if let Some(Err(error)) = self.notifier.get().map(|notifier| notifier.inval_inode(number, offset, 0))
        {
            tracing::debug!(%error, number = number.0, "the kernel keeps cached data");
        }
    }

    /// Whether changes are accepted.
    pub fn is_writable(&self) -> bool {
        self.writable.load(Ordering::Acquire)
    }

    /// Accepts changes from now on, or refuses them.
    pub fn set_writable(&self, writable: bool) {
        self.writable.store(writable && self.live().is_some(), Ordering::Release);
    }

    /// Follows what mount options say from now on.
    pub fn set_habits(&self, options: &MountOptions) {
        *self.habits.write().ignore_poison() = Habits::of(options);
    }

    /// The mount options.
    pub(super) fn habits(&self) -> Habits {
        *self.habits.read().ignore_poison()
    }

    /// Whether `.zfs` is listed.
    pub(super) fn zfs_dir_is_visible(&self) -> bool {
        self.trees.has_snapshot_dir() && self.snapdir.load(Ordering::Acquire) == Snapdir::Visible as u8
    }

    /// Whether there is a `.zfs`.
    pub(super) fn has_zfs_dir(&self) -> bool {
        self.trees.has_snapshot_dir() && self.snapdir.load(Ordering::Acquire) != Snapdir::Disabled as u8
    }

    /// Shows of `.zfs` what the property says from now on.
    pub fn set_snapdir(&self, snapdir: Snapdir) {
        if self.snapdir.swap(snapdir as u8, Ordering::AcqRel) != snapdir as u8 {
            // The kernel may have kept how the root is listed, and whether the name is there.
            self.forget_known(INodeNo(1), 0);
            if let Some(Err(error)) =
                self.notifier.get().map(|notifier| notifier.inval_entry(INodeNo(1), ".zfs".as_ref()))
            {
                tracing::debug!(%error, "the kernel keeps cached entries of .zfs");
            }
        }
    }

    pub(super) fn files(&self) -> MutexGuard<'_, HashMap<u64, Arc<OpenFile>>> {
        self.files.lock().ignore_poison()
    }

    pub(super) fn brief(&self) -> MutexGuard<'_, HashMap<INodeNo, Instant>> {
        self.brief.lock().ignore_poison()
    }

    /// Files that are open, or that are kept for the kernel.
    pub fn files_held(&self) -> usize {
        self.files().len() + self.live().map_or(0, |live| live.files_held())
    }

    pub(super) fn next_handle(&self) -> u64 {
        self.next_handle.fetch_add(1, Ordering::Relaxed)
    }

    /// The object behind a node, if it is one.
    pub(super) fn place(&self, number: INodeNo) -> Option<(Tree, ObjectId)> {
        match Node::from_number(number) {
            Node::Root => Some((Tree::Head, self.trees.head().root())),
            Node::Object(tree, object) => Some((tree, object)),
            Node::ZfsDir | Node::SnapshotDir => None,
        }
    }

    /// The object behind a node, which must be one.
    pub(super) fn object(&self, number: INodeNo) -> Result<(Tree, ObjectId)> {
        self.place(number).ok_or_else(|| Error::Invalid("a directory of .zfs is not a file".into()))
    }

    /// The filesystem and the object of a node that is to be changed.
    pub(super) fn changeable(&self, number: INodeNo) -> Result<(&Arc<LiveZpl>, ObjectId)> {
        let refuse = || Error::ReadOnly(self.trees.name().to_owned());
        match (self.place(number), self.live()) {
            (Some((Tree::Head, object)), Some(live)) if self.is_writable() => Ok((live, object)),
            _ => Err(refuse()),
        }
    }

    /// Makes a change that may be refused because there seems to be no room.
    pub(super) fn with_room<T, F: Future<Output = Result<T>>>(&self, change: impl Fn() -> F) -> Result<T> {
        device::block_on(self.with_room_for(change))
    }

    /// The same as a part of something else.
    pub(super) async fn with_room_for<T, F: Future<Output = Result<T>>>(
        &self,
        change: impl Fn() -> F,
    ) -> Result<T> {
        match self.trees.pool() {
            Some(pool) => with_room(pool.txgs(), change).await,
            None => change().await,
        }
    }

    /// The number by which the kernel is to call an object.
    pub(super) fn number(&self, tree: Tree, object: ObjectId) -> Result<INodeNo> {
        if tree == Tree::Head && object == self.trees.head().root() {
            return Ok(INodeNo(1));
        }
        Node::number_of(tree, object).ok_or_else(|| {
            Error::corrupt(self.trees.describe(tree, object), "not a number that a file can have")
        })
    }

    pub(super) fn znode(&self, number: INodeNo) -> Result<(Tree, Znode)> {
        let (tree, object) = self.object(number)?;
        let node = device::block_on(async { self.trees.zpl(tree).await?.node(object).await })?;
        Ok((tree, node))
    }

    /// Logs what went wrong, with its place, and says what the program is told.
    pub(super) fn failed(&self, what: &str, number: INodeNo, error: &Error) -> Errno {
        let number_of_error = errno(error);
        if number_of_error.code() == libc::EIO {
            let place = match self.place(number) {
                Some((tree, object)) => self.trees.describe(tree, object),
                None => self.trees.name().to_owned(),
            };
            tracing::error!("cannot {what} {place}: {error}");
        }
        number_of_error
    }
}
