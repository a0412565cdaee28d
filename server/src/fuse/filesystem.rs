//! The answers to the kernel's requests.
//!
//! Every request is answered on the thread that read it, in [`device::block_on`]. Directories and attributes need no state; an open
//! regular file has a handle that notices reads in order and loads ahead of them.
//!
//! | lock | guards | order |
//! |---|---|---|
//! | `files` | the open files; held to look one up | taken alone |

use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use engine::Result;
use engine::dataset::zpl::{AclType, File, Stat, Znode, Zpl};
use fuser::{
    Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, InitFlags,
    KernelConfig, LockOwner, OpenFlags, ReplyAttr, ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty,
    ReplyEntry, ReplyLseek, ReplyOpen, ReplyStatfs, ReplyXattr, Request,
};
use ondisk::ObjectId;

use super::MountOptions;
use super::attributes::{attributes, errno, file_type, nothing, synthetic_directory};
use super::node::{Node, SNAPSHOT_DIR, Tree, ZFS_DIR, same_number};
use super::trees::Trees;

/// Nothing ever changes: as long as the kernel likes.
const FOREVER: Duration = Duration::from_secs(24 * 60 * 60);

/// Largest read that is answered, in bytes; the kernel asks for at most 1 MiB.
const MAX_READ_BYTES: usize = 16 << 20;

const ZFS_NAME: &[u8] = b".zfs";
const SNAPSHOT_NAME: &[u8] = b"snapshot";

/// Cookie after `.zfs` in the root directory; the walk of the directory itself goes on behind it.
const AFTER_ZFS_DIR: u64 = 3;

/// A filesystem that answers all that only reads.
#[derive(Debug)]
pub struct ReadOnly {
    trees: Trees,
    zfs_dir_visible: bool,
    posix_acls: bool,
    files: Mutex<HashMap<u64, Arc<File>>>,
    next_handle: AtomicU64,
}

impl ReadOnly {
    /// Answers out of `trees`.
    pub fn new(trees: Trees, options: &MountOptions) -> Self {
        Self {
            zfs_dir_visible: options.snapdir_visible && trees.has_snapshot_dir(),
            posix_acls: options.zpl.acl == AclType::Posix,
            trees,
            files: Mutex::default(),
            next_handle: AtomicU64::new(1),
        }
    }

    fn files(&self) -> MutexGuard<'_, HashMap<u64, Arc<File>>> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The object behind a node, if it is one.
    fn place(&self, number: INodeNo) -> Option<(Tree, ObjectId)> {
        match Node::from_number(number) {
            Node::Root => Some((Tree::Head, self.trees.head().root())),
            Node::Object(tree, object) => Some((tree, object)),
            Node::ZfsDir | Node::SnapshotDir => None,
        }
    }

    /// The number by which the kernel is to call an object.
    fn number(&self, tree: Tree, object: ObjectId) -> Result<INodeNo> {
        if tree == Tree::Head && object == self.trees.head().root() {
            return Ok(INodeNo(1));
        }
        Node::number_of(tree, object).ok_or_else(|| {
            engine::Error::corrupt(self.trees.describe(tree, object), "not a number that a file can have")
        })
    }

    fn znode(&self, number: INodeNo) -> Result<(Tree, Znode)> {
        let Some((tree, object)) = self.place(number) else {
            return Err(engine::Error::Invalid("a directory of .zfs is no file".into()));
        };
        let node = device::block_on(async { self.trees.zpl(tree).await?.node(object).await })?;
        Ok((tree, node))
    }

    /// Logs what went wrong, with its place, and says what the program is told.
    fn failed(&self, what: &str, number: INodeNo, error: &engine::Error) -> Errno {
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

    fn control_attributes(&self, node: Node) -> Result<FileAttr> {
        let root = self.trees.head();
        let like = device::block_on(root.stat(root.root()))?;
        Ok(match node {
            Node::ZfsDir => synthetic_directory(INodeNo(ZFS_DIR), 3, &like),
            _ => {
                let links =
                    u32::try_from(self.trees.snapshot_names()?.len()).unwrap_or(u32::MAX).saturating_add(2);
                synthetic_directory(INodeNo(SNAPSHOT_DIR), links, &like)
            }
        })
    }

    /// The root of a snapshot: its number and its attributes.
    fn snapshot_root(&self, place: usize) -> Result<(FileAttr, Duration, u64)> {
        let tree = Tree::Snapshot(place);
        let zpl = device::block_on(self.trees.zpl(tree))?;
        self.entry_of(tree, &zpl, zpl.root())
    }

    /// What a lookup tells about an object: attributes, how long they last, generation.
    fn entry_of(&self, tree: Tree, zpl: &Arc<Zpl>, object: ObjectId) -> Result<(FileAttr, Duration, u64)> {
        let stat = device::block_on(zpl.stat(object))?;
        let number = self.number(tree, object)?;
        let lasts = if same_number(number, &stat) { FOREVER } else { Duration::ZERO };
        Ok((attributes(number, &stat), lasts, stat.generation))
    }

    fn find(&self, parent: INodeNo, name: &[u8]) -> Result<Option<(FileAttr, Duration, u64)>> {
        match Node::from_number(parent) {
            Node::ZfsDir => match name {
                SNAPSHOT_NAME => {
                    self.control_attributes(Node::SnapshotDir).map(|attr| Some((attr, FOREVER, 0)))
                }
                _ => Ok(None),
            },
            Node::SnapshotDir => {
                let place = std::str::from_utf8(name).ok().map(|name| self.trees.snapshot_place(name));
                place.transpose()?.flatten().map(|place| self.snapshot_root(place)).transpose()
            }
            Node::Root if name == ZFS_NAME && self.trees.has_snapshot_dir() => {
                self.control_attributes(Node::ZfsDir).map(|attr| Some((attr, FOREVER, 0)))
            }
            Node::Root | Node::Object(..) => {
                let (tree, dir) = self.znode(parent)?;
                let Some(object) = device::block_on(dir.lookup(name))? else {
                    return Ok(None);
                };
                let zpl = device::block_on(self.trees.zpl(tree))?;
                self.entry_of(tree, &zpl, object).map(Some)
            }
        }
    }

    /// Gives `each` the entries of a directory that follow `cookie`, until it says that it is full.
    fn walk(&self, number: INodeNo, cookie: u64, each: &mut dyn FnMut(Entry<'_>) -> bool) -> Result<()> {
        let control = |names: &mut dyn Iterator<Item = (&[u8], u64)>,
                       each: &mut dyn FnMut(Entry<'_>) -> bool| {
            let skipped = usize::try_from(cookie).unwrap_or(usize::MAX);
            for (place, (name, ino)) in (1..).zip(names).skip(skipped) {
                if each(Entry { name, ino, kind: FileType::Directory, cookie: place, object: None }) {
                    return;
                }
            }
        };
        match Node::from_number(number) {
            Node::ZfsDir => {
                let names: [(&[u8], u64); 3] = [(b".", ZFS_DIR), (b"..", 1), (SNAPSHOT_NAME, SNAPSHOT_DIR)];
                control(&mut names.into_iter(), each);
                Ok(())
            }
            Node::SnapshotDir => {
                let fixed: [(&[u8], u64); 2] = [(b".", SNAPSHOT_DIR), (b"..", ZFS_DIR)];
                let snapshots = self.trees.snapshot_names()?.enumerate();
                // Downwards from the directory's own, as OpenZFS numbers them.
                let snapshots =
                    snapshots.map(|(place, name)| (name.as_bytes(), SNAPSHOT_DIR - 1 - place as u64));
                control(&mut fixed.into_iter().chain(snapshots), each);
                Ok(())
            }
            Node::Root | Node::Object(..) => self.walk_directory(number, cookie, each),
        }
    }

    fn walk_directory(
        &self,
        number: INodeNo,
        cookie: u64,
        each: &mut dyn FnMut(Entry<'_>) -> bool,
    ) -> Result<()> {
        let (tree, dir) = self.znode(number)?;
        let zpl = device::block_on(self.trees.zpl(tree))?;
        let zfs_dir = Entry {
            name: ZFS_NAME,
            ino: ZFS_DIR,
            kind: FileType::Directory,
            cookie: AFTER_ZFS_DIR,
            object: None,
        };
        let mut zfs_dir_due = self.zfs_dir_visible && number.0 == 1 && cookie < AFTER_ZFS_DIR;
        let mut cursor = device::block_on(dir.read_dir(cookie))?;
        while let Some(entry) = device::block_on(cursor.next())? {
            // Behind `.` and `..`, whose cookies are the first two.
            if zfs_dir_due && entry.cookie >= AFTER_ZFS_DIR {
                zfs_dir_due = false;
                if each(zfs_dir) {
                    return Ok(());
                }
            }
            let kind = match entry.file_type {
                Some(kind) => file_type(kind),
                // Filesystems of the first version keep no types in directories.
                None => device::block_on(zpl.node(entry.object))
                    .map_or(FileType::RegularFile, |node| file_type(node.file_type())),
            };
            let object = Some((tree, entry.object));
            if each(Entry { name: &entry.name, ino: entry.ino, kind, cookie: entry.cookie, object }) {
                return Ok(());
            }
        }
        if zfs_dir_due {
            each(zfs_dir);
        }
        Ok(())
    }

    /// What `readdirplus` tells about an entry beside its name.
    fn entry_plus(&self, parent: INodeNo, entry: &Entry<'_>) -> (FileAttr, Duration, u64) {
        // Attributes that are not to be believed: the kernel asks again when somebody wants them.
        let unknown =
            || (FileAttr { ino: INodeNo(entry.ino), kind: entry.kind, ..nothing() }, Duration::ZERO, 0);
        if entry.name == b"." || entry.name == b".." {
            // The kernel takes no more than the name of these.
            return unknown();
        }
        let found = match entry.object {
            Some((tree, object)) => device::block_on(self.trees.zpl(tree))
                .and_then(|zpl| self.entry_of(tree, &zpl, object))
                .map(Some),
            None => self.find(parent, entry.name),
        };
        found.ok().flatten().unwrap_or_else(unknown)
    }

    fn file(&self, number: INodeNo, handle: FileHandle) -> Result<Arc<File>> {
        if let Some(file) = self.files().get(&handle.0) {
            return Ok(Arc::clone(file));
        }
        self.znode(number).map(|(_, node)| Arc::new(node.open_file()))
    }
}

/// One entry of a directory.
#[derive(Debug, Clone, Copy)]
struct Entry<'a> {
    name: &'a [u8],
    ino: u64,
    kind: FileType,
    /// Where the walk goes on behind it.
    cookie: u64,
    /// The object, unless it is a directory of `.zfs`.
    object: Option<(Tree, ObjectId)>,
}

thread_local! {
    /// Where a read gathers its bytes: grows to the largest read of the thread, and is not cleared in between.
    static READ_BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

impl Filesystem for ReadOnly {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> std::io::Result<()> {
        let mut wanted = InitFlags::FUSE_ASYNC_READ
            | InitFlags::FUSE_DO_READDIRPLUS
            | InitFlags::FUSE_READDIRPLUS_AUTO
            | InitFlags::FUSE_PARALLEL_DIROPS
            | InitFlags::FUSE_CACHE_SYMLINKS
            | InitFlags::FUSE_EXPORT_SUPPORT
            | InitFlags::FUSE_NO_OPENDIR_SUPPORT
            | InitFlags::FUSE_MAX_PAGES
            | InitFlags::FUSE_ASYNC_DIO;
        if self.posix_acls {
            wanted |= InitFlags::FUSE_POSIX_ACL;
        }
        // One by one: an older kernel lacks some, and none is needed.
        for flag in wanted.iter() {
            let _ = config.add_capabilities(flag);
        }
        if let Err(most) = config.set_max_readahead(MAX_READ_BYTES as u32) {
            let _ = config.set_max_readahead(most);
        }
        let _ = config.set_max_background(64);
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match self.find(parent, name.as_bytes()) {
            Ok(Some((attr, lasts, generation))) => {
                reply.entry_with_ttls(&lasts, &FOREVER, &attr, Generation(generation));
            }
            Ok(None) => reply.entry_with_ttls(&FOREVER, &FOREVER, &nothing(), Generation(0)),
            Err(error) => reply.error(self.failed("look up a name in", parent, &error)),
        }
    }

    fn getattr(&self, _: &Request, number: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        let found = match Node::from_number(number) {
            control @ (Node::ZfsDir | Node::SnapshotDir) => self.control_attributes(control),
            Node::Root | Node::Object(..) => self.znode(number).and_then(|(_, node)| {
                let stat: Stat = node.stat()?;
                // Here the inode number that programs see may differ from the node's.
                Ok(attributes(INodeNo(stat.ino), &stat))
            }),
        };
        match found {
            Ok(attr) => reply.attr(&FOREVER, &attr),
            Err(error) => reply.error(self.failed("read the attributes of", number, &error)),
        }
    }

    fn readlink(&self, _: &Request, number: INodeNo, reply: ReplyData) {
        match self.znode(number).and_then(|(_, node)| device::block_on(node.read_link())) {
            Ok(target) => reply.data(&target),
            Err(error) => reply.error(self.failed("read the link", number, &error)),
        }
    }

    fn open(&self, _: &Request, number: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        if flags.0 & libc::O_ACCMODE != libc::O_RDONLY {
            return reply.error(Errno::EROFS);
        }
        match self.znode(number) {
            Ok((_, node)) => {
                let handle = self.next_handle.fetch_add(1, Ordering::Relaxed);
                self.files().insert(handle, Arc::new(node.open_file()));
                reply.opened(FileHandle(handle), FopenFlags::FOPEN_KEEP_CACHE | FopenFlags::FOPEN_NOFLUSH);
            }
            Err(error) => reply.error(self.failed("open", number, &error)),
        }
    }

    fn read(
        &self,
        _: &Request,
        number: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let file = match self.file(number, handle) {
            Ok(file) => file,
            Err(error) => return reply.error(self.failed("open", number, &error)),
        };
        let size = (size as usize).min(MAX_READ_BYTES);
        READ_BUFFER.with_borrow_mut(|buffer| {
            if buffer.len() < size {
                buffer.resize(size, 0);
            }
            let into = &mut buffer[..size];
            match device::block_on(file.read_at(offset, into)) {
                Ok(read) => reply.data(&into[..read]),
                Err(error) => reply.error(self.failed(&format!("read offset {offset} of"), number, &error)),
            }
        });
    }

    fn release(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        self.files().remove(&handle.0);
        reply.ok();
    }

    fn opendir(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        reply.opened(FileHandle(0), FopenFlags::FOPEN_KEEP_CACHE | FopenFlags::FOPEN_CACHE_DIR);
    }

    fn readdir(&self, _: &Request, number: INodeNo, _: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        let walked = self.walk(number, offset, &mut |entry| {
            reply.add(INodeNo(entry.ino), entry.cookie, entry.kind, OsStr::from_bytes(entry.name))
        });
        match walked {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(self.failed("list", number, &error)),
        }
    }

    fn readdirplus(
        &self,
        _: &Request,
        number: INodeNo,
        _: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        let walked = self.walk(number, offset, &mut |entry| {
            let (attr, lasts, generation) = self.entry_plus(number, &entry);
            let name = OsStr::from_bytes(entry.name);
            reply.add(attr.ino, entry.cookie, name, &lasts, &attr, Generation(generation))
        });
        match walked {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(self.failed("list", number, &error)),
        }
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        let stat = self.trees.statfs();
        let size = u32::try_from(stat.block_size).unwrap_or(u32::MAX);
        let (blocks, free) = (stat.blocks, stat.free_blocks);
        reply.statfs(blocks, free, free, stat.inodes, stat.free_inodes, size, stat.max_name, size);
    }

    fn getxattr(&self, _: &Request, number: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        if self.place(number).is_none() {
            return reply.error(Errno::ENODATA);
        }
        match self.znode(number).and_then(|(_, node)| device::block_on(node.xattr(name.as_bytes()))) {
            Ok(Some(value)) => sized(reply, size, &value),
            Ok(None) => reply.error(Errno::ENODATA),
            Err(error) => reply.error(self.failed("read an extended attribute of", number, &error)),
        }
    }

    fn listxattr(&self, _: &Request, number: INodeNo, size: u32, reply: ReplyXattr) {
        if self.place(number).is_none() {
            return sized(reply, size, &[]);
        }
        match self.znode(number).and_then(|(_, node)| device::block_on(node.list_xattrs())) {
            Ok(names) => {
                let list: Vec<u8> = names.iter().flat_map(|name| name.iter().copied().chain([0])).collect();
                sized(reply, size, &list);
            }
            Err(error) => reply.error(self.failed("list the extended attributes of", number, &error)),
        }
    }

    fn lseek(
        &self,
        _: &Request,
        number: INodeNo,
        handle: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        let Ok(from) = u64::try_from(offset) else {
            return reply.error(Errno::ENXIO);
        };
        let found = self.file(number, handle).and_then(|file| {
            let node = file.node();
            if from >= node.size() {
                return Ok(None);
            }
            match whence {
                libc::SEEK_DATA => device::block_on(node.next_data(from)),
                libc::SEEK_HOLE => device::block_on(node.next_hole(from)),
                _ => Err(engine::Error::Invalid(format!("seek of kind {whence}"))),
            }
        });
        match found.map(|found| found.and_then(|found| i64::try_from(found).ok())) {
            Ok(Some(found)) => reply.offset(found),
            Ok(None) => reply.error(Errno::ENXIO),
            Err(error) => reply.error(self.failed("look for data or holes in", number, &error)),
        }
    }
}

/// Answers with a value, with its size where only that was asked for, or that there is too little room.
fn sized(reply: ReplyXattr, room: u32, value: &[u8]) {
    match u32::try_from(value.len()) {
        Ok(length) if room == 0 => reply.size(length),
        Ok(length) if length <= room => reply.data(value),
        Ok(_) => reply.error(Errno::ERANGE),
        Err(_) => reply.error(Errno::E2BIG),
    }
}
