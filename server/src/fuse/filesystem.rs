//! The kernel's requests: what each asks of [`Served`], and how it is answered.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use engine::dataset::zpl::live::NewKind;
use fuser::{
    BsdFileFlags, CopyFileRangeFlags, Errno, FileHandle, Filesystem, FopenFlags, Generation, INodeNo,
    InitFlags, IoctlFlags, KernelConfig, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate,
    ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyIoctl, ReplyLseek, ReplyOpen,
    ReplyStatfs, ReplyWrite, ReplyXattr, Request, TimeOrNow, WriteFlags,
};

use super::attributes::nothing;
use super::changes::{Creator, Wanted};
use super::files::MAX_READ_BYTES;
use super::names::{FOREVER, Told};
use super::node::{Node, Tree};
use super::served::Served;
use super::waiting;
use crate::wakeful;

/// Largest write that the kernel asks for: what its pages for one request hold.
const MAX_WRITE_BYTES: u32 = 1 << 20;

/// A session's end of what is served.
#[derive(Debug)]
pub struct Mounted(pub Arc<Served>);

impl Mounted {
    /// What answers a request that somebody waits for.
    fn served(&self) -> &Arc<Served> {
        wakeful::note_request();
        &self.0
    }

    /// Answers a request about `number` that has no other answer than that it was done.
    fn done(&self, reply: ReplyEmpty, what: &str, number: INodeNo, result: engine::Result<()>) {
        match result {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(self.0.failed(what, number, &error)),
        }
    }

    fn entry(&self, reply: ReplyEntry, what: &str, parent: INodeNo, told: engine::Result<Told>) {
        match told {
            Ok(told) => {
                let generation = Generation(told.generation);
                reply.entry_with_ttls(&told.lasts, &told.name_lasts, &told.attr, generation);
            }
            Err(error) => reply.error(self.0.failed(what, parent, &error)),
        }
    }

    /// Answers when a file is stable.
    fn stable(&self, number: INodeNo, reply: ReplyEmpty) {
        let served = Arc::clone(self.served());
        waiting::wait(move || match served.fsync(number) {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(served.failed("make stable", number, &error)),
        });
    }
}

impl Filesystem for Mounted {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> std::io::Result<()> {
        let mut wanted = InitFlags::FUSE_ASYNC_READ
            | InitFlags::FUSE_BIG_WRITES
            | InitFlags::FUSE_DO_READDIRPLUS
            | InitFlags::FUSE_READDIRPLUS_AUTO
            | InitFlags::FUSE_PARALLEL_DIROPS
            | InitFlags::FUSE_CACHE_SYMLINKS
            | InitFlags::FUSE_EXPORT_SUPPORT
            | InitFlags::FUSE_HANDLE_KILLPRIV_V2
            | InitFlags::FUSE_HAS_IOCTL_DIR
            | InitFlags::FUSE_MAX_PAGES;
        // Not FUSE_ASYNC_DIO: the kernel would leave pages in its cache that somebody read while they were written past it.
        if self.0.posix_acls {
            wanted |= InitFlags::FUSE_POSIX_ACL | InitFlags::FUSE_DONT_MASK;
        }
        // One by one: an older kernel lacks some, and none is needed.
        for flag in wanted.iter() {
            let _ = config.add_capabilities(flag);
        }
        if let Err(most) = config.set_max_readahead(MAX_READ_BYTES as u32) {
            let _ = config.set_max_readahead(most);
        }
        let _ = config.set_max_write(MAX_WRITE_BYTES);
        let _ = config.set_max_background(64);
        if let Some(live) = self.0.live() {
            live.remember_unlinked();
        }
        Ok(())
    }

    fn destroy(&mut self) {
        self.0.release_all();
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match self.served().find(parent, name.as_bytes()) {
            Ok(Some(told)) => self.entry(reply, "look up", parent, Ok(told)),
            Ok(None) => {
                reply.entry_with_ttls(&FOREVER, &self.0.names_last(parent), &nothing(), Generation(0));
            }
            Err(error) => reply.error(self.0.failed("look up a name in", parent, &error)),
        }
    }

    fn forget(&self, _: &Request, number: INodeNo, _: u64) {
        self.0.forget(number);
    }

    fn getattr(&self, _: &Request, number: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.served().stat(number) {
            Ok((attr, lasts)) => reply.attr(&lasts, &attr),
            Err(error) => reply.error(self.0.failed("read the attributes of", number, &error)),
        }
    }

    fn setattr(
        &self,
        request: &Request,
        number: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        ctime: Option<SystemTime>,
        _: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let wanted = Wanted { mode, uid, gid, size, atime, mtime, ctime };
        let set = self.served().set_attributes(number, &wanted, request.uid());
        match set.and_then(|()| self.0.stat(number)) {
            Ok((attr, lasts)) => reply.attr(&lasts, &attr),
            Err(error) => reply.error(self.0.failed("change the attributes of", number, &error)),
        }
    }

    fn readlink(&self, _: &Request, number: INodeNo, reply: ReplyData) {
        match self.served().znode(number).and_then(|(_, node)| device::block_on(node.read_link())) {
            Ok(target) => reply.data(&target),
            Err(error) => reply.error(self.0.failed("read the link", number, &error)),
        }
    }

    fn mknod(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        rdev: u32,
        reply: ReplyEntry,
    ) {
        let by = Creator::new(request, mode, umask);
        let told = self.served().make_node(parent, name.as_bytes(), rdev, by);
        self.entry(reply, "create a node in", parent, told);
    }

    fn mkdir(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        reply: ReplyEntry,
    ) {
        let by = Creator::new(request, mode, umask);
        let told = self.served().create(parent, name.as_bytes(), NewKind::Directory, by);
        self.entry(reply, "create a directory in", parent, told);
    }

    fn symlink(&self, request: &Request, parent: INodeNo, name: &OsStr, target: &Path, reply: ReplyEntry) {
        let kind = NewKind::Symlink(target.as_os_str().as_bytes());
        let told = self.served().create(parent, name.as_bytes(), kind, Creator::new(request, 0o777, 0));
        self.entry(reply, "create a link in", parent, told);
    }

    fn link(&self, _: &Request, file: INodeNo, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let told = self.served().link(file, parent, name.as_bytes());
        self.entry(reply, "create a name in", parent, told);
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        self.done(reply, "remove a name from", parent, self.served().unlink(parent, name.as_bytes()));
    }

    fn rmdir(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        self.done(reply, "remove a directory from", parent, self.served().rmdir(parent, name.as_bytes()));
    }

    fn rename(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let (from, to) = ((parent, name.as_bytes()), (new_parent, new_name.as_bytes()));
        let by = (request.uid(), request.gid());
        self.done(reply, "rename in", parent, self.served().rename(from, to, flags, by));
    }

    fn open(&self, _: &Request, number: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        match self.served().open(number, flags) {
            Ok(handle) => {
                reply.opened(handle, FopenFlags::FOPEN_KEEP_CACHE | FopenFlags::FOPEN_NOFLUSH);
            }
            Err(error) => reply.error(self.0.failed("open", number, &error)),
        }
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let by = Creator::new(request, mode, umask);
        let is_new = flags & libc::O_EXCL != 0;
        match self.served().create_and_open(parent, name.as_bytes(), by, is_new) {
            Ok((told, handle)) => {
                // The library has one time for name and attributes. Those of an empty file last: nothing of it changes with the commit.
                let generation = Generation(told.generation);
                let flags = FopenFlags::FOPEN_KEEP_CACHE | FopenFlags::FOPEN_NOFLUSH;
                reply.created(&told.name_lasts, &told.attr, generation, handle, flags);
            }
            Err(error) => reply.error(self.0.failed("create a file in", parent, &error)),
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
        self.served().read(number, handle, offset, size, |read| match read {
            Ok(bytes) => reply.data(bytes),
            Err(error) => reply.error(self.0.failed(&format!("read offset {offset} of"), number, &error)),
        });
    }

    fn write(
        &self,
        _: &Request,
        number: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        flags: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let kill = flags.contains(WriteFlags::FUSE_WRITE_KILL_SUIDGID);
        match self.served().write(number, offset, data, kill) {
            // No longer than MAX_WRITE_BYTES.
            Ok(()) => reply.written(data.len() as u32),
            Err(error) => reply.error(self.0.failed(&format!("write offset {offset} of"), number, &error)),
        }
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        // What was written is here already, and locks are the kernel's.
        reply.ok();
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
        self.0.release(handle);
        reply.ok();
    }

    fn fsync(&self, _: &Request, number: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        self.stable(number, reply);
    }

    fn opendir(&self, _: &Request, number: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        // A directory that is removed while it is open can still be asked for its attributes.
        let handle = match (self.served().place(number), self.0.live()) {
            (Some((Tree::Head, object)), Some(_)) => self.0.open_object(Tree::Head, object),
            _ => Ok(FileHandle(0)),
        };
        let keeps = FopenFlags::FOPEN_KEEP_CACHE | FopenFlags::FOPEN_CACHE_DIR;
        let comes_and_goes = Node::from_number(number) == Node::SnapshotDir && self.0.live().is_some();
        match handle {
            Ok(handle) => reply.opened(handle, if comes_and_goes { FopenFlags::empty() } else { keeps }),
            Err(error) => reply.error(self.0.failed("open", number, &error)),
        }
    }

    fn readdir(&self, _: &Request, number: INodeNo, _: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        let walked = self.served().walk(number, offset, &mut |entry| {
            reply.add(INodeNo(entry.ino), entry.cookie, entry.kind, OsStr::from_bytes(entry.name))
        });
        match walked {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(self.0.failed("list", number, &error)),
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
        let walked = self.served().walk(number, offset, &mut |entry| {
            let told = self.0.told_of(number, &entry);
            let name = OsStr::from_bytes(entry.name);
            let generation = Generation(told.generation);
            reply.add(told.attr.ino, entry.cookie, name, &told.lasts, &told.attr, generation)
        });
        match walked {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(self.0.failed("list", number, &error)),
        }
    }

    fn releasedir(&self, _: &Request, _: INodeNo, handle: FileHandle, _: OpenFlags, reply: ReplyEmpty) {
        self.0.release(handle);
        reply.ok();
    }

    fn fsyncdir(&self, _: &Request, number: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        self.stable(number, reply);
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        let stat = self.served().trees.statfs();
        let size = u32::try_from(stat.block_size).unwrap_or(u32::MAX);
        let (blocks, free) = (stat.blocks, stat.free_blocks);
        reply.statfs(blocks, free, free, stat.inodes, stat.free_inodes, size, stat.max_name, size);
    }

    fn setxattr(
        &self,
        request: &Request,
        number: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _: u32,
        reply: ReplyEmpty,
    ) {
        let set = self.served().set_xattr(number, name.as_bytes(), value, flags, request);
        self.done(reply, "set an extended attribute of", number, set);
    }

    fn getxattr(&self, _: &Request, number: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        match self.served().xattr(number, name.as_bytes()) {
            Ok(Some(value)) => sized(reply, size, &value),
            Ok(None) => reply.error(Errno::ENODATA),
            Err(error) => reply.error(self.0.failed("read an extended attribute of", number, &error)),
        }
    }

    fn listxattr(&self, _: &Request, number: INodeNo, size: u32, reply: ReplyXattr) {
        match self.served().xattr_names(number) {
            Ok(list) => sized(reply, size, &list),
            Err(error) => reply.error(self.0.failed("list the extended attributes of", number, &error)),
        }
    }

    fn removexattr(&self, _: &Request, number: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let removed = self.served().remove_xattr(number, name.as_bytes());
        self.done(reply, "remove an extended attribute of", number, removed);
    }

    fn ioctl(
        &self,
        _: &Request,
        number: INodeNo,
        _: FileHandle,
        _: IoctlFlags,
        command: u32,
        argument: &[u8],
        _: u32,
        reply: ReplyIoctl,
    ) {
        match self.served().ioctl(number, command, argument) {
            Ok(answer) => reply.ioctl(0, &answer),
            Err(error) => reply.error(self.0.failed("change the flags of", number, &error)),
        }
    }

    fn fallocate(
        &self,
        _: &Request,
        number: INodeNo,
        _: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        self.done(reply, "allocate in", number, self.served().allocate(number, offset, length, mode));
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
        let found = self.served().seek(number, handle, from, whence);
        match found.map(|found| found.and_then(|found| i64::try_from(found).ok())) {
            Ok(Some(found)) => reply.offset(found),
            Ok(None) => reply.error(Errno::ENXIO),
            Err(error) => reply.error(self.0.failed("look for data or holes in", number, &error)),
        }
    }

    fn copy_file_range(
        &self,
        request: &Request,
        from: INodeNo,
        _: FileHandle,
        from_offset: u64,
        to: INodeNo,
        _: FileHandle,
        to_offset: u64,
        length: u64,
        _: CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        // The answer has 32 bits for what was copied.
        let length = length.min(u64::from(u32::MAX >> 1));
        let kill = request.uid() != 0;
        match self.served().copy_range((from, from_offset), (to, to_offset), length, kill) {
            Ok(copied) => reply.written(u32::try_from(copied).unwrap_or(u32::MAX)),
            Err(error) => reply.error(self.0.failed("copy into", to, &error)),
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
