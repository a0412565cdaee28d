//! Open files: reading, writing, and operations on ranges.
//!
//! A handle notices sequential reads and loads ahead of them. In a filesystem that is written it also keeps
//! its file: a file that loses its last name is freed when its last handle is released.
//!
//! # Access times
//! The kernel reads cached pages without asking the daemon. So a file counts as read when it is opened for
//! reading only, and whenever a part of it is requested. When a file is opened for reading and writing and an
//! access would be recorded, the kernel has to drop its pages of the file. A directory counts as read when
//! its entries are requested; if that access would be recorded, the kernel is told at `opendir` not to keep
//! them. Links count when they are read. `O_NOATIME` is honoured.
//!
//! With `primarycache=none` or `metadata` the kernel drops its pages of a file whenever that is opened, so
//! that it is no cache beside the one that the property takes away.
//!
//! One access is not recorded: whole pages that a program wrote, and that a handle for reading and writing,
//! open by then, reads before the kernel drops them. No request reports that read, and dropping the pages
//! after each write would make databases read everything again.
//!
//! # Why writes go through
//! Each `write` of a program becomes requests at once (of up to a mebibyte), while the kernel keeps the pages
//! for readers. So times, sizes, quotas and "no space" are the filesystem's own and are reported to the
//! program that wrote; a snapshot holds everything written before it; and the daemon knows everything that a
//! program has written. Changes of pages that are mapped shared arrive when the kernel writes them back
//! (`msync`, `munmap`). A cache of writes in the kernel would make small files slower: closing a file would
//! wait for the write all the same, and for another request that reports its times.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use engine::dmu::{Payload, Reader};
use engine::zpl::live::{AllocateMode, SetAttributes, WriteOptions};
use engine::zpl::{File, LiveZpl, Stat, Time};
use engine::{Error, Result};
use fuser::{FileHandle, INodeNo};
use ondisk::ObjectId;
use ondisk::zpl::FileType;

use super::mounted_datasets::SnapshotHeld;
use super::node::Tree;
use super::served::{Habits, Served};
use super::wire::Caller;

/// Set-user-id and set-group-id.
const PRIVILEGES: u32 = libc::S_ISUID | libc::S_ISGID;
/// The extended attribute that gives a program privileges, until the file is changed.
const CAPABILITY: &[u8] = b"security.capability";

/// An open file or directory.
#[derive(Debug)]
pub enum OpenFile {
    /// One that never changes.
    Fixed(FixedFile),
    /// One that may change.
    Live(LiveFile),
    /// One that is no more: the filesystem went back to a snapshot that does not have it.
    Stale,
}

/// An open file of a filesystem that never changes.
#[derive(Debug)]
pub struct FixedFile {
    pub(super) file: File,
    /// Where it is in a snapshot below `.zfs`, keeps that from being destroyed.
    _held: Option<SnapshotHeld>,
}

/// An open file of a filesystem that is written.
#[derive(Debug)]
pub struct LiveFile {
    pub(super) zpl: Arc<LiveZpl>,
    pub(super) object: ObjectId,
    access: Access,
    /// Absent for a directory.
    reader: Option<Reader>,
    /// It is open for reading and writing.
    may_be_mapped: AtomicBool,
}

/// Whether what is read through a handle counts as an access.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// As far as properties say so.
    Noted,
    /// The program that opened it does not want that (`O_NOATIME`), or the mount (`nodiratime`).
    Secret,
}

impl Access {
    /// By the flags of `open`.
    pub fn of(flags: i32) -> Self {
        if flags & libc::O_NOATIME != 0 { Self::Secret } else { Self::Noted }
    }

    /// The same of a directory.
    pub fn of_directory(flags: i32, habits: Habits) -> Self {
        if habits.directories_accessed { Self::of(flags) } else { Self::Secret }
    }
}

impl LiveFile {
    fn open(zpl: &Arc<LiveZpl>, object: ObjectId, access: Access) -> Result<Self> {
        zpl.hold(object);
        Self::held(zpl, object, access)
    }

    /// One that is held already. From here on it is released, whatever happens.
    fn held(zpl: &Arc<LiveZpl>, object: ObjectId, access: Access) -> Result<Self> {
        let may_be_mapped = AtomicBool::new(false);
        let mut opened = Self { zpl: Arc::clone(zpl), object, access, reader: None, may_be_mapped };
        let node = device::block_on(zpl.zpl().node(object))?;
        if node.file_type() == FileType::Regular {
            opened.reader = Some(Reader::new(node.object().clone()));
        }
        Ok(opened)
    }

    /// The same file of another tree.
    pub(super) fn again(&self, zpl: &Arc<LiveZpl>) -> Result<Self> {
        let again = Self::open(zpl, self.object, self.access)?;
        again.may_be_mapped.store(self.may_be_mapped.load(Ordering::Acquire), Ordering::Release);
        Ok(again)
    }

    /// What another daemon needs to have it open: its number, and whether it is read in secret, and may be
    /// mapped.
    pub(super) fn told(&self) -> (u64, bool, bool) {
        (self.object.0, self.access == Access::Secret, self.may_be_mapped.load(Ordering::Acquire))
    }

    /// One that another daemon had open.
    pub(super) fn of_another(
        zpl: &Arc<LiveZpl>,
        (object, secret, mapped): (u64, bool, bool),
    ) -> Result<Self> {
        let access = if secret { Access::Secret } else { Access::Noted };
        let opened = Self::open(zpl, ObjectId(object), access)?;
        opened.may_be_mapped.store(mapped, Ordering::Release);
        Ok(opened)
    }

    /// It is open in such a way that programs may change it where they mapped it.
    pub(super) fn may_be_mapped(&self) {
        self.may_be_mapped.store(true, Ordering::Release);
    }

    /// Which it is.
    pub(super) fn object(&self) -> ObjectId {
        self.object
    }

    pub(super) fn is_regular(&self) -> bool {
        self.reader.is_some()
    }
}

impl Drop for LiveFile {
    fn drop(&mut self) {
        if self.zpl.objset().is_gone() {
            // So is what was to be freed.
            return;
        }
        if let Err(error) = device::block_on(self.zpl.close(self.object, 1)) {
            tracing::warn!(%error, object = self.object.0, "a file that was unlinked could not be freed");
        }
    }
}

impl OpenFile {
    /// Which file it is, if programs may have mapped it to change it there.
    pub(super) fn perhaps_mapped(&self) -> Option<ObjectId> {
        match self {
            Self::Live(file) if file.may_be_mapped.load(Ordering::Acquire) => Some(file.object),
            _ => None,
        }
    }
}

/// Of a file that is no more.
pub(super) fn stale() -> Error {
    Error::Os { what: "a file that is gone".into(), errno: libc::ESTALE }
}

/// Whether set-group-id goes also where the group may not execute the file: `by` is not of it.
pub(super) fn is_strangers(stat: &Stat, by: Caller) -> bool {
    stat.mode & libc::S_ISGID != 0 && !by.is_of_group(stat.gid)
}

impl Served {
    /// Opens a file, by the flags of `open`; the number of its handle.
    pub(super) fn open(&self, number: INodeNo, flags: i32, by: Caller) -> Result<FileHandle> {
        if flags & libc::O_ACCMODE != libc::O_RDONLY {
            let (zpl, object) = self.changeable(number)?;
            let append = flags & libc::O_APPEND != 0;
            device::block_on(zpl.require_open_for_writing(object, append, by.uid == 0))?;
        }
        let (tree, object) = self.object(number)?;
        let access = Access::of(flags);
        let handle = self.open_object(tree, object, access)?;
        if let (Tree::Head, Some(live)) = (tree, self.live())
            && flags & libc::O_ACCMODE == libc::O_RDONLY
            && access == Access::Noted
            && self.note_access(live, object)
        {
            self.forget_attributes(number);
        }
        Ok(handle)
    }

    /// Whether the kernel may keep what it has of a file that is opened. Not where `primarycache` says that
    /// data are not cached; and not where it would not ask for what is read, and reading is to be noted.
    pub(super) fn may_keep(&self, number: INodeNo, flags: i32) -> bool {
        let primary = self.live().map(|live| live.objset().primary().get());
        if primary.is_some_and(|primary| !primary.takes(false)) {
            return false;
        }
        if flags & libc::O_ACCMODE != libc::O_RDWR || Access::of(flags) == Access::Secret {
            return true;
        }
        match (self.place(number), self.live()) {
            (Some((Tree::Head, object)), Some(live)) => !self.access_is_due(live, object),
            _ => true,
        }
    }

    /// Opens an object; the number of its handle.
    pub(super) fn open_object(&self, tree: Tree, object: ObjectId, access: Access) -> Result<FileHandle> {
        let opened = match (tree, self.live()) {
            (Tree::Head, Some(live)) => OpenFile::Live(LiveFile::open(live, object, access)?),
            _ => {
                let held = self.trees.hold(tree)?;
                let node = device::block_on(async { self.trees.zpl(tree).await?.node(object).await })?;
                OpenFile::Fixed(FixedFile { file: node.open_file(), _held: held })
            }
        };
        Ok(self.keep(opened))
    }

    /// Opens an object that is held already; the number of its handle.
    pub(super) fn keep_open(&self, zpl: &Arc<LiveZpl>, object: ObjectId) -> Result<FileHandle> {
        Ok(self.keep(OpenFile::Live(LiveFile::held(zpl, object, Access::Noted)?)))
    }

    fn keep(&self, opened: OpenFile) -> FileHandle {
        let handle = self.next_handle();
        self.files().insert(handle, Arc::new(opened));
        FileHandle(handle)
    }

    /// Forgets a handle.
    pub(super) fn release(&self, handle: FileHandle) {
        self.listings.forget(handle);
        let released = self.files().remove(&handle.0);
        // Freeing a file that was unlinked takes its time.
        drop(released);
    }

    /// Forgets all handles, and what the kernel knew.
    pub(super) fn release_all(&self) {
        let released = std::mem::take(&mut *self.files());
        drop(released);
        if let Some(live) = self.live()
            && let Err(error) = device::block_on(live.forget_all())
        {
            tracing::warn!(%error, "files that were unlinked could not be freed");
        }
    }

    /// The kernel knows a file no more. That it may forget one of several lookups only does no harm: a file
    /// without a name is freed too early then, and answers that it is gone.
    pub(super) fn forget(&self, number: INodeNo) {
        if let (Some((Tree::Head, object)), Some(live)) = (self.place(number), self.live())
            && let Err(error) = device::block_on(live.forget(object))
        {
            tracing::warn!(%error, object = object.0, "a file that was unlinked could not be freed");
        }
    }

    /// The file behind a handle.
    pub(super) fn file(&self, number: INodeNo, handle: FileHandle) -> Result<Arc<OpenFile>> {
        if let Some(file) = self.files().get(&handle.0) {
            return Ok(Arc::clone(file));
        }
        let (tree, node) = self.znode(number)?;
        Ok(Arc::new(match (tree, self.live()) {
            (Tree::Head, Some(live)) => OpenFile::Live(LiveFile::open(live, node.id(), Access::Noted)?),
            _ => OpenFile::Fixed(FixedFile { file: node.open_file(), _held: None }),
        }))
    }

    /// Reads; how much it was.
    pub(super) fn read(
        &self,
        number: INodeNo,
        handle: FileHandle,
        offset: u64,
        into: &mut [u8],
    ) -> Result<usize> {
        match &*self.file(number, handle)? {
            OpenFile::Fixed(FixedFile { file, .. }) => device::block_on(file.read_at(offset, into)),
            OpenFile::Live(file) => self.read_live(file, offset, into),
            OpenFile::Stale => Err(stale()),
        }
    }

    fn read_live(&self, file: &LiveFile, offset: u64, into: &mut [u8]) -> Result<usize> {
        if let Some(reader) = &file.reader {
            reader.load_ahead(offset, into.len() as u64);
        }
        let read = device::block_on(file.zpl.read(file.object, offset, into))?;
        if file.access == Access::Noted {
            self.note_access(&file.zpl, file.object);
        }
        Ok(read)
    }

    /// Where a symbolic link leads.
    pub(super) fn read_link(&self, number: INodeNo) -> Result<Vec<u8>> {
        let (tree, node) = self.znode(number)?;
        let target = device::block_on(node.read_link())?;
        if let (Tree::Head, Some(live)) = (tree, self.live()) {
            self.note_access(live, node.id());
        }
        Ok(target)
    }

    /// Brings the access time of a file that was read, or a directory that was listed, up to date, as far as
    /// properties say so. Whether that changed it.
    pub(super) fn note_access(&self, zpl: &Arc<LiveZpl>, object: ObjectId) -> bool {
        let noted = self.is_writable().then(|| device::block_on(zpl.accessed(object, Time::now())));
        if let Some(Err(error)) = &noted {
            tracing::debug!(%error, object = object.0, "cannot update an access time");
        }
        matches!(noted, Some(Ok(true)))
    }

    /// Whether [`Served::note_access`] would change it.
    pub(super) fn access_is_due(&self, zpl: &Arc<LiveZpl>, object: ObjectId) -> bool {
        self.is_writable() && device::block_on(zpl.access_is_due(object, Time::now())).unwrap_or(false)
    }

    /// Whether listing a directory through this handle counts as an access.
    pub(super) fn notes_listing(&self, handle: FileHandle) -> bool {
        match self.files().get(&handle.0).map(|file| &**file) {
            Some(OpenFile::Live(file)) => file.access == Access::Noted,
            _ => true,
        }
    }

    /// Writes all of `payload`, which is of a mapped page if the kernel says so. Privileges are removed if a
    /// user is given who must not keep them.
    pub(super) fn write(
        &self,
        number: INodeNo,
        offset: u64,
        (payload, is_of_page): (Payload<'_>, bool),
        without_privileges: Option<Caller>,
    ) -> Result<()> {
        let (zpl, object) = self.changeable(number)?;
        let keeps_times = is_of_page && self.kept_times.keeps(number);
        let mut options = WriteOptions { keeps_times, ..WriteOptions::default() };
        let mut loses = false;
        if let Some(by) = without_privileges {
            let stat = device::block_on(zpl.zpl().stat(object))?;
            loses = stat.mode & PRIVILEGES != 0;
            options.kill_privileges = true;
            options.kill_setgid = loses && is_strangers(&stat, by);
        }
        self.with_room(|| zpl.write_payload(object, offset, payload, &options))?;
        if loses {
            // Direct writes leave the mode that the kernel knows as it is.
            self.forget_attributes(number);
        }
        self.drop_capability(zpl, object)
    }

    /// A file that was changed loses the privileges that its content had before.
    pub(super) fn drop_capability(&self, zpl: &Arc<LiveZpl>, object: ObjectId) -> Result<()> {
        device::block_on(async {
            if zpl.xattr(object, CAPABILITY).await?.is_none() {
                return Ok(());
            }
            zpl.remove_xattr(object, CAPABILITY).await
        })
    }

    /// Makes a file stable. Blocks the thread until it is.
    pub(super) fn fsync(&self, number: INodeNo) -> Result<()> {
        let (tree, object) = self.object(number)?;
        device::block_on(self.trees.fsync(tree, object))
    }

    /// Takes the set-user-id and set-group-id bits away before a change by `by`, of which the kernel does not
    /// say whether they go. Only root keeps them; for a file that its group may not execute, a member of the
    /// group keeps set-group-id too.
    fn drop_bits(&self, zpl: &Arc<LiveZpl>, number: INodeNo, object: ObjectId, by: Caller) -> Result<()> {
        if by.uid == 0 {
            return Ok(());
        }
        device::block_on(async {
            let stat = zpl.zpl().node(object).await?.stat()?;
            if stat.mode & PRIVILEGES == 0 {
                return Ok(());
            }
            let kill_setgid = is_strangers(&stat, by);
            let set = SetAttributes { kill_privileges: true, kill_setgid, ..SetAttributes::default() };
            zpl.set_attributes(object, &set).await
        })?;
        self.forget_attributes(number);
        Ok(())
    }

    /// Reserves, zeroes or punches a range, by the flags of `fallocate`.
    pub(super) fn allocate(
        &self,
        number: INodeNo,
        offset: u64,
        length: u64,
        flags: i32,
        by: Caller,
    ) -> Result<()> {
        let (zpl, object) = self.changeable(number)?;
        let keep_size = flags & libc::FALLOC_FL_KEEP_SIZE != 0;
        let mode = match flags & !libc::FALLOC_FL_KEEP_SIZE {
            0 => AllocateMode::Reserve { keep_size },
            libc::FALLOC_FL_PUNCH_HOLE => AllocateMode::Punch,
            libc::FALLOC_FL_ZERO_RANGE => AllocateMode::ZeroRange { keep_size },
            _ => return Err(Error::Unsupported(format!("fallocate with flags {flags:#x}"))),
        };
        self.drop_bits(zpl, number, object, by)?;
        self.with_room(|| zpl.allocate(object, mode, offset, length))?;
        self.drop_capability(zpl, object)
    }

    /// Copies a range, up to the end of its file; how much it was.
    pub(super) fn copy_range(
        &self,
        from: (INodeNo, u64),
        to: (INodeNo, u64),
        length: u64,
        by: Caller,
    ) -> Result<u64> {
        let (zpl, target) = self.changeable(to.0)?;
        let (Tree::Head, source) = self.object(from.0)? else {
            return Err(Error::Os { what: "copy_file_range".into(), errno: libc::EXDEV });
        };
        self.drop_bits(zpl, to.0, target, by)?;
        self.drop_capability(zpl, target)?;
        self.with_room(|| zpl.copy_range(source, from.1, target, to.1, length))
    }
}
