//! The files of a share, as protocols ask for them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use device::block_on;
use engine::dmu::Reader;
use engine::dsl::with_room;
use engine::zpl::live::{NewNode, RenameMode, SetAttributes, WriteOptions, XattrSet};
use engine::zpl::{
    AclType, CaseSensitivity, LONGEST_NAME, LiveZpl, POSIX_ACL_ACCESS, Stat, StatFs, Time, Znode,
};
use engine::{Error, Result};
use fuser::INodeNo;
use ondisk::ObjectId;
use ondisk::zpl::{FileType, ZnodeFlags};

use super::FileShare;
use crate::daemon::{OpenPool, lock};
use crate::files::{Attributes, Entry, FileId, Files, Named, Part, stale};
use crate::fuse::{
    MountedDatasets, Node, Outside, SNAPSHOT_DIR, SNAPSHOT_NAME, Snapdir, Tree, ZFS_DIR, ZFS_NAME,
};

/// Cookie behind `.zfs` in the root directory; the walk of the directory itself goes on behind it.
const AFTER_ZFS_DIR: u64 = 3;
/// Most files of which it is kept how they are read.
const MOST_READERS: usize = 256;
/// The extended attribute that gives a program privileges, until the file is changed.
const CAPABILITY: &[u8] = b"security.capability";

/// A filesystem that is open for clients.
pub(in crate::daemon) struct OpenFiles {
    trees: MountedDatasets,
    /// How files are read, to read ahead of it.
    readers: Mutex<HashMap<FileId, Arc<Reader>>>,
}

impl std::fmt::Debug for OpenFiles {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OpenFiles").field("trees", &self.trees).finish_non_exhaustive()
    }
}

/// A share for one request.
#[derive(Debug)]
pub(in crate::daemon) struct OpenedShare {
    request: Request,
    files: Arc<OpenFiles>,
}

/// A request under way.
#[derive(Debug)]
struct Request {
    pool: Arc<OpenPool>,
    share: Arc<FileShare>,
}

impl Request {
    /// Opens the filesystem.
    fn open(&self) -> Result<MountedDatasets> {
        let Self { pool, share } = self;
        block_on(async {
            let dsl = pool.dsl().await?;
            let dataset = dsl.find(&share.name).await?;
            if dataset.phys.guid.get() != share.id.dataset {
                return Err(stale());
            }
            let writable = share.options.writable && pool.live().is_some();
            let source = pool.source(&dsl, &dataset, writable).await?;
            drop(dsl);
            MountedDatasets::open(source, &share.options).await
        })
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        self.pool.shares.leave(&self.share.name);
    }
}

/// What a number of a file stands for.
enum Found {
    /// `.zfs` or `.zfs/snapshot`.
    Control(u64),
    /// A file, with its attributes.
    File(Tree, Znode, Box<Stat>),
}

fn errno(what: &str, errno: i32) -> Error {
    Error::Os { what: what.into(), errno }
}

impl OpenedShare {
    /// Opens a share for a request.
    pub(super) fn open(pool: Arc<OpenPool>, share: &Arc<FileShare>) -> Result<Self> {
        let known = pool.shares.enter(&share.name)?;
        let request = Request { pool, share: Arc::clone(share) };
        if let Some(files) = known {
            return Ok(Self { request, files });
        }
        let files = Arc::new(OpenFiles { trees: request.open()?, readers: Mutex::default() });
        request.pool.shares.opened(&share.name, &files);
        Ok(Self { request, files })
    }

    /// Opens a filesystem for a request of the daemon's own, which does not stay open behind it.
    pub(super) fn open_alone(pool: Arc<OpenPool>, share: &Arc<FileShare>) -> Result<Self> {
        let known = pool.shares.enter(&share.name)?;
        let request = Request { pool, share: Arc::clone(share) };
        let files = match known {
            Some(files) => files,
            None => Arc::new(OpenFiles { trees: request.open()?, readers: Mutex::default() }),
        };
        Ok(Self { request, files })
    }

    /// Gives a file of the filesystem the extended attributes of another one, ACLs included.
    pub(super) fn copy_xattrs(&self, from: FileId, to: FileId) -> Result<()> {
        let Found::File(_, node, _) = self.found(from)? else { return Err(stale()) };
        let (live, object) = (self.changeable()?, self.own(to)?);
        for name in block_on(node.list_xattrs())? {
            let Some(value) = block_on(node.xattr(&name))? else { continue };
            let (how, place) = (XattrSet::Any, live.xattr_place());
            self.with_room(|| live.set_xattr(object, &name, &value, how, place))?;
        }
        self.tell(&[Outside::Attributes(object)]);
        Ok(())
    }

    fn trees(&self) -> &MountedDatasets {
        &self.files.trees
    }

    fn snapdir(&self) -> Snapdir {
        self.request.share.options.snapdir
    }

    /// The filesystem where it may change.
    fn changeable(&self) -> Result<&Arc<LiveZpl>> {
        let live = self.trees().live().filter(|_| self.is_writable());
        live.ok_or_else(|| Error::ReadOnly(self.trees().name().to_owned()))
    }

    /// The object of a file of the filesystem itself, which is there.
    fn own(&self, file: FileId) -> Result<ObjectId> {
        match self.found(file)? {
            Found::File(Tree::Head, node, _) => Ok(node.id()),
            _ => Err(Error::ReadOnly(self.trees().name().to_owned())),
        }
    }

    fn tree(&self, file: FileId) -> Result<Tree> {
        match file.snapshot {
            0 => Ok(Tree::Head),
            _ if self.snapdir() == Snapdir::Disabled => Err(stale()),
            guid => self.trees().place_of_guid(guid)?.map(Tree::Snapshot).ok_or_else(stale),
        }
    }

    fn found(&self, file: FileId) -> Result<Found> {
        if file.snapshot == 0 && (file.object == ZFS_DIR || file.object == SNAPSHOT_DIR) {
            return match self.snapdir() {
                Snapdir::Disabled => Err(stale()),
                _ => Ok(Found::Control(file.object)),
            };
        }
        let tree = self.tree(file)?;
        let (node, stat) = self.node(tree, ObjectId(file.object))?;
        let is_it =
            stat.generation == file.generation && stat.nlink > 0 && stat.flags.0 & ZnodeFlags::XATTR.0 == 0;
        if is_it { Ok(Found::File(tree, node, Box::new(stat))) } else { Err(stale()) }
    }

    fn node(&self, tree: Tree, object: ObjectId) -> Result<(Znode, Stat)> {
        let opened = block_on(async { self.trees().zpl(tree).await?.node(object).await });
        let node = opened.map_err(|error| match error {
            // Of an object that is no file, or none at all.
            Error::NotFound(_) | Error::WrongType { .. } | Error::Invalid(_) => stale(),
            other => other,
        })?;
        let stat = node.stat()?;
        Ok((node, stat))
    }

    /// The attributes of an object.
    fn told(&self, tree: Tree, object: ObjectId) -> Result<Attributes> {
        let (_, stat) = self.node(tree, object)?;
        self.attributes(tree, object, &stat)
    }

    fn attributes(&self, tree: Tree, object: ObjectId, stat: &Stat) -> Result<Attributes> {
        let snapshot = match tree {
            Tree::Head => 0,
            Tree::Snapshot(place) => self.trees().snapshot_guid(place)?,
        };
        let is_root = tree == Tree::Head && object == self.trees().head().root();
        let has_zfs_dir = is_root && self.snapdir() == Snapdir::Visible;
        Ok(Attributes {
            id: FileId { snapshot, object: object.0, generation: stat.generation },
            number: Node::number_of(tree, object).map_or(object.0, |number| number.0),
            kind: FileType::from_mode(stat.mode),
            mode: stat.mode & 0o7777,
            links: stat.nlink.saturating_add(u32::from(has_zfs_dir)),
            uid: stat.uid,
            gid: stat.gid,
            size: stat.size,
            used_bytes: stat.blocks.saturating_mul(512),
            device: stat.device,
            atime: stat.atime,
            mtime: stat.mtime,
            ctime: stat.ctime,
        })
    }

    /// The attributes of a directory of `.zfs`.
    fn control(&self, number: u64) -> Result<Attributes> {
        let root = self.root()?;
        let (links, changed) = match number {
            ZFS_DIR => (3, root.mtime),
            _ => {
                let snapshots = self.trees().snapshot_names()?.len();
                let seconds = self.trees().snapshots_changed()?.unwrap_or(0);
                let changed = Time { seconds: i64::try_from(seconds).unwrap_or(0), nanoseconds: 0 };
                (u32::try_from(snapshots).unwrap_or(u32::MAX).saturating_add(2), changed)
            }
        };
        Ok(Attributes {
            id: FileId { snapshot: 0, object: number, generation: 0 },
            number,
            mode: 0o555,
            links,
            uid: 0,
            gid: 0,
            size: u64::from(links),
            used_bytes: 0,
            atime: changed,
            mtime: changed,
            ctime: changed,
            ..root
        })
    }

    fn lookup_control(&self, directory: u64, name: &[u8]) -> Result<Option<Attributes>> {
        match (directory, name) {
            (_, b".") => self.control(directory).map(Some),
            (ZFS_DIR, b"..") => self.root().map(Some),
            (ZFS_DIR, SNAPSHOT_NAME) => self.control(SNAPSHOT_DIR).map(Some),
            (ZFS_DIR, _) => Ok(None),
            (_, b"..") => self.control(ZFS_DIR).map(Some),
            _ => {
                let Ok(name) = std::str::from_utf8(name) else { return Ok(None) };
                let Some(place) = self.trees().snapshot_slot(name)? else { return Ok(None) };
                let tree = Tree::Snapshot(place);
                let root = block_on(self.trees().zpl(tree))?.root();
                self.told(tree, root).map(Some)
            }
        }
    }

    fn entries_of_control(&self, directory: u64, cookie: u64, limit: usize) -> Result<Part> {
        let entry = |name: &[u8], number, cookie| Entry { name: name.to_vec(), number, cookie };
        let above = if directory == ZFS_DIR { self.trees().head().root().0 } else { ZFS_DIR };
        let mut all = vec![entry(b".", directory, 1), entry(b"..", above, 2)];
        if directory == ZFS_DIR {
            all.push(entry(SNAPSHOT_NAME, SNAPSHOT_DIR, 3));
        } else {
            for (place, name) in self.trees().snapshot_names()? {
                let place = place as u64;
                // Downwards from the directory's own, as OpenZFS numbers them. A place is kept.
                all.push(entry(name.as_bytes(), SNAPSHOT_DIR - 1 - place, 3 + place));
            }
        }
        all.retain(|entry| entry.cookie > cookie);
        let is_end = all.len() <= limit;
        all.truncate(limit);
        Ok(Part { entries: all, is_end })
    }

    /// `.zfs` in the root directory cannot be made or removed.
    fn refuse_zfs_dir(&self, dir: ObjectId, name: &[u8]) -> Result<()> {
        let is_root = dir == self.trees().head().root();
        match is_root && name == ZFS_NAME && self.snapdir() != Snapdir::Disabled {
            true => Err(errno(".zfs", libc::EPERM)),
            false => Ok(()),
        }
    }

    /// Makes a change that may be refused because there seems to be no room.
    fn with_room<T, F: Future<Output = Result<T>>>(&self, change: impl Fn() -> F) -> Result<T> {
        match self.trees().pool() {
            Some(pool) => block_on(with_room(pool.txgs(), change)),
            None => block_on(change()),
        }
    }

    /// Tells a kernel that has the filesystem mounted what was changed.
    fn tell(&self, changes: &[Outside<'_>]) {
        if let Some(mount) = self.request.pool.live_mount(&self.request.share.name) {
            mount.changed_outside(changes);
        }
    }

    /// A file lost a name. Where it was the last one, no kernel keeps it for a program that has it not open.
    fn forget(&self, live: &LiveZpl, file: Option<ObjectId>) {
        let Some(file) = file else { return };
        self.tell(&[Outside::Attributes(file)]);
        if let Err(error) = block_on(live.forget(file)) {
            tracing::warn!(%error, object = file.0, "a file that was unlinked could not be freed");
        }
    }

    /// A file that was changed loses the privileges that its content had before.
    fn drop_capability(&self, live: &LiveZpl, file: ObjectId) -> Result<()> {
        block_on(async {
            match live.xattr(file, CAPABILITY).await? {
                None => Ok(()),
                Some(_) => live.remove_xattr(file, CAPABILITY).await,
            }
        })
    }

    /// Loads ahead of a file that is read from the front to the back.
    fn load_ahead(&self, file: FileId, node: &Znode, offset: u64, length: usize) {
        let reader = {
            let mut readers = lock(&self.files.readers);
            if readers.len() >= MOST_READERS && !readers.contains_key(&file) {
                readers.clear();
            }
            let new = || Arc::new(Reader::new(node.object().clone()));
            Arc::clone(readers.entry(file).or_insert_with(new))
        };
        reader.load_ahead(offset, length as u64);
    }

    fn note_access(&self, tree: Tree, file: ObjectId) {
        let (Tree::Head, Some(live)) = (tree, self.trees().live()) else { return };
        if !self.is_writable() {
            return;
        }
        match block_on(live.accessed(file, Time::now())) {
            Ok(true) => self.tell(&[Outside::Attributes(file)]),
            Ok(false) => {}
            Err(error) => tracing::debug!(%error, object = file.0, "cannot update an access time"),
        }
    }
}

impl Files for OpenedShare {
    fn is_writable(&self) -> bool {
        self.request.share.options.writable && self.trees().live().is_some()
    }

    fn verifier(&self) -> u64 {
        self.request.pool.load_guid()
    }

    fn is_case_sensitive(&self) -> bool {
        self.trees().head().case_sensitivity() == CaseSensitivity::Sensitive
    }

    fn root(&self) -> Result<Attributes> {
        self.told(Tree::Head, self.trees().head().root())
    }

    fn stat(&self, file: FileId) -> Result<Attributes> {
        match self.found(file)? {
            Found::Control(number) => self.control(number),
            Found::File(tree, node, stat) => self.attributes(tree, node.id(), &stat),
        }
    }

    fn lookup(&self, at: Named<'_>) -> Result<Option<Attributes>> {
        let (tree, node) = match self.found(at.dir)? {
            Found::Control(number) => return self.lookup_control(number, at.name),
            Found::File(tree, node, _) => (tree, node),
        };
        let dir = node.id();
        match tree {
            Tree::Head
                if dir == self.trees().head().root()
                    && at.name == ZFS_NAME
                    && self.snapdir() != Snapdir::Disabled =>
            {
                return self.control(ZFS_DIR).map(Some);
            }
            Tree::Snapshot(_) if at.name == b".." && block_on(self.trees().zpl(tree))?.root() == dir => {
                return self.control(SNAPSHOT_DIR).map(Some);
            }
            _ => {}
        }
        let too_long = || errno("a name", libc::ENAMETOOLONG);
        if at.name.len() > LONGEST_NAME as usize {
            return Err(too_long());
        }
        match block_on(self.trees().lookup(tree, dir, at.name))? {
            Some(object) => self.told(tree, object).map(Some),
            None if at.name.len() > self.trees().head().max_name() as usize => Err(too_long()),
            None => Ok(None),
        }
    }

    fn entries(&self, dir: FileId, cookie: u64, limit: usize) -> Result<Part> {
        let (tree, node) = match self.found(dir)? {
            Found::Control(number) => return self.entries_of_control(number, cookie, limit),
            Found::File(tree, node, _) => (tree, node),
        };
        let object = node.id();
        if cookie == 0 {
            self.note_access(tree, object);
        }
        let found = block_on(self.trees().entries(tree, object, cookie, limit))?;
        let mut part = Part { entries: Vec::with_capacity(found.len() + 1), is_end: found.len() < limit };
        let is_root = tree == Tree::Head && object == self.trees().head().root();
        let mut zfs_dir_due = is_root && self.snapdir() == Snapdir::Visible && cookie < AFTER_ZFS_DIR;
        let zfs_dir = || Entry { name: ZFS_NAME.to_vec(), number: ZFS_DIR, cookie: AFTER_ZFS_DIR };
        for entry in found {
            if zfs_dir_due && entry.cookie >= AFTER_ZFS_DIR {
                part.entries.push(zfs_dir());
                zfs_dir_due = false;
            }
            let number = Node::number_of(tree, entry.object).map_or(entry.ino, |number| number.0);
            part.entries.push(Entry { name: entry.name, number, cookie: entry.cookie });
        }
        if zfs_dir_due && part.is_end {
            part.entries.push(zfs_dir());
        }
        Ok(part)
    }

    fn attributes_of(&self, dir: FileId, entry: &Entry) -> Option<Attributes> {
        if dir.object == SNAPSHOT_DIR && dir.snapshot == 0 {
            // Each would have to be opened.
            return None;
        }
        match Node::from_number(INodeNo(entry.number)) {
            Node::Object(tree, object) => self.told(tree, object).ok(),
            Node::Root => self.root().ok(),
            Node::ZfsDir => self.control(ZFS_DIR).ok(),
            Node::SnapshotDir => self.control(SNAPSHOT_DIR).ok(),
        }
    }

    fn read(&self, file: FileId, offset: u64, into: &mut [u8]) -> Result<usize> {
        let Found::File(tree, node, _) = self.found(file)? else {
            return Err(errno("a directory of .zfs", libc::EISDIR));
        };
        self.load_ahead(file, &node, offset, into.len());
        let read = match (tree, self.trees().live()) {
            (Tree::Head, Some(live)) => block_on(live.read(node.id(), offset, into))?,
            _ => block_on(node.read_at(offset, into))?,
        };
        self.note_access(tree, node.id());
        Ok(read)
    }

    fn read_link(&self, file: FileId) -> Result<Vec<u8>> {
        let Found::File(tree, node, _) = self.found(file)? else {
            return Err(errno("a directory of .zfs", libc::EINVAL));
        };
        let target = block_on(node.read_link())?;
        self.note_access(tree, node.id());
        Ok(target)
    }

    fn acl(&self, file: FileId) -> Result<Option<Vec<u8>>> {
        if self.request.share.options.zpl.acl != AclType::Posix {
            return Ok(None);
        }
        match (self.found(file)?, self.trees().live()) {
            (Found::Control(_), _) => Ok(None),
            (Found::File(Tree::Head, node, _), Some(live)) => {
                block_on(live.xattr(node.id(), POSIX_ACL_ACCESS))
            }
            (Found::File(_, node, _), _) => block_on(node.xattr(POSIX_ACL_ACCESS)),
        }
    }

    fn space(&self, file: FileId) -> Result<StatFs> {
        Ok(match self.found(file)? {
            Found::Control(_) => self.trees().statfs(None),
            Found::File(tree, node, _) => self.trees().statfs(Some((tree, node.id()))),
        })
    }

    fn create(&self, at: Named<'_>, new: &NewNode<'_>) -> Result<Attributes> {
        let (live, dir) = (self.changeable()?, self.own(at.dir)?);
        self.refuse_zfs_dir(dir, at.name)?;
        let object = self.with_room(|| live.create(dir, at.name, new))?;
        self.tell(&[Outside::Name(dir, at.name)]);
        self.told(Tree::Head, object)
    }

    fn link(&self, file: FileId, at: Named<'_>) -> Result<()> {
        let (live, object, dir) = (self.changeable()?, self.own(file)?, self.own(at.dir)?);
        self.refuse_zfs_dir(dir, at.name)?;
        self.with_room(|| live.link(object, dir, at.name))?;
        self.tell(&[Outside::Name(dir, at.name), Outside::Attributes(object)]);
        Ok(())
    }

    fn unlink(&self, at: Named<'_>) -> Result<()> {
        let (live, dir) = (self.changeable()?, self.own(at.dir)?);
        self.refuse_zfs_dir(dir, at.name)?;
        let file = block_on(live.lookup(dir, at.name))?;
        block_on(live.unlink(dir, at.name))?;
        self.tell(&[Outside::Name(dir, at.name)]);
        self.forget(live, file);
        Ok(())
    }

    fn remove_directory(&self, at: Named<'_>) -> Result<()> {
        let (live, dir) = (self.changeable()?, self.own(at.dir)?);
        self.refuse_zfs_dir(dir, at.name)?;
        let file = block_on(live.lookup(dir, at.name))?;
        block_on(live.rmdir(dir, at.name))?;
        self.tell(&[Outside::Name(dir, at.name)]);
        self.forget(live, file);
        Ok(())
    }

    fn rename(&self, from: Named<'_>, to: Named<'_>) -> Result<()> {
        let (live, old, new) = (self.changeable()?, self.own(from.dir)?, self.own(to.dir)?);
        self.refuse_zfs_dir(old, from.name)?;
        self.refuse_zfs_dir(new, to.name)?;
        let moved = block_on(live.lookup(old, from.name))?;
        let replaced = block_on(live.lookup(new, to.name))?.filter(|file| Some(*file) != moved);
        self.with_room(|| live.rename(old, from.name, new, to.name, RenameMode::Replace))?;
        self.tell(&[Outside::Name(old, from.name), Outside::Name(new, to.name)]);
        if let Some(moved) = moved {
            self.tell(&[Outside::Attributes(moved)]);
        }
        self.forget(live, replaced);
        Ok(())
    }

    fn set(&self, file: FileId, set: &SetAttributes) -> Result<()> {
        let (live, object) = (self.changeable()?, self.own(file)?);
        self.with_room(|| live.set_attributes(object, set))?;
        match set.size {
            Some(size) => self.tell(&[Outside::Content(object, size, 0)]),
            None => self.tell(&[Outside::Attributes(object)]),
        }
        if set.uid.is_some() || set.gid.is_some() || set.size.is_some() {
            self.drop_capability(live, object)?;
        }
        Ok(())
    }

    fn require_writable(&self, file: FileId, by_root: bool) -> Result<()> {
        let (live, object) = (self.changeable()?, self.own(file)?);
        block_on(live.require_open_for_writing(object, true, by_root))
    }

    fn write(&self, file: FileId, offset: u64, data: &[u8], options: &WriteOptions) -> Result<()> {
        let (live, object) = (self.changeable()?, self.own(file)?);
        self.with_room(|| live.write(object, offset, data, options))?;
        self.tell(&[Outside::Content(object, offset, data.len() as u64)]);
        self.drop_capability(live, object)
    }

    fn make_stable(&self, file: FileId) -> Result<()> {
        let Found::File(tree, node, _) = self.found(file)? else { return Ok(()) };
        block_on(self.trees().fsync(tree, node.id()))
    }
}
