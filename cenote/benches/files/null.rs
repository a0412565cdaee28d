//! A filesystem in memory that only answers: what remains is the way through the kernel. It keeps names and
//! sizes, drops what is written, and reads zeroes.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use std::{fs, io};

use device::IgnorePoison;
use fuser::{
    BsdFileFlags, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo,
    InitFlags, KernelConfig, LockOwner, MountOption, OpenFlags, ReplyAttr, ReplyCreate, ReplyData,
    ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyWrite, Request, SessionACL,
    TimeOrNow, WriteFlags,
};

use super::systems::Kind;

const FOREVER: Duration = Duration::from_secs(3600);
const LARGEST: usize = 1 << 20;

/// One that is mounted.
pub struct Null(#[allow(dead_code, reason = "unmounts when it is dropped")] fuser::BackgroundSession);

impl Null {
    /// Mounts one at `place/null`.
    pub fn make(place: &Path) -> io::Result<Self> {
        let at = place.join("null");
        fs::create_dir_all(&at)?;
        let mut config = Config::default();
        // As Cenote has them.
        config.n_threads = Some(8);
        config.clone_fd = true;
        config.acl = SessionACL::All;
        config.mount_options =
            vec![MountOption::FSName("null".into()), MountOption::DefaultPermissions, MountOption::NoAtime];
        let root = Node { is_directory: true, size: 0 };
        let files = Files {
            nodes: HashMap::from([(1, root)]),
            names: HashMap::new(),
            places: HashMap::new(),
            next: 2,
        };
        fuser::Session::new(Nothing(Mutex::new(files)), &at, &config)?.spawn().map(Self)
    }
}

impl Kind for Null {
    fn unmount(&self) -> io::Result<()> {
        Ok(())
    }

    fn mount(&self) -> io::Result<()> {
        Ok(())
    }

    fn keeps(&self) -> bool {
        false
    }

    /// Cenote's daemon keeps processors awake while there is much to do, if it may.
    fn hold(&self) -> io::Result<Option<fs::File>> {
        let mut latency = fs::OpenOptions::new().write(true).open("/dev/cpu_dma_latency")?;
        latency.write_all(&0i32.to_ne_bytes())?;
        Ok(Some(latency))
    }
}

#[derive(Clone, Copy)]
struct Node {
    is_directory: bool,
    size: u64,
}

/// A name and the number of its node.
type Entry = (Vec<u8>, u64);

struct Files {
    nodes: HashMap<u64, Node>,
    /// By directory, the names in it, and gaps where names were; and where each stands.
    names: HashMap<u64, Vec<Option<Entry>>>,
    places: HashMap<(u64, Vec<u8>), usize>,
    next: u64,
}

impl Files {
    fn find(&self, parent: u64, name: &OsStr) -> Option<u64> {
        let place = *self.places.get(&(parent, name.as_bytes().to_owned()))?;
        self.names.get(&parent)?.get(place)?.as_ref().map(|(_, number)| *number)
    }

    fn add(&mut self, parent: u64, name: &OsStr, is_directory: bool) -> u64 {
        let number = self.next;
        self.next += 1;
        self.nodes.insert(number, Node { is_directory, size: 0 });
        let names = self.names.entry(parent).or_default();
        self.places.insert((parent, name.as_bytes().to_owned()), names.len());
        names.push(Some((name.as_bytes().to_owned(), number)));
        number
    }

    fn remove(&mut self, parent: u64, name: &OsStr) -> bool {
        let Some(place) = self.places.remove(&(parent, name.as_bytes().to_owned())) else { return false };
        let gone = self.names.get_mut(&parent).and_then(|names| names.get_mut(place)?.take());
        gone.is_some_and(|(_, number)| self.nodes.remove(&number).is_some())
    }

    fn attributes(&self, number: u64) -> Option<FileAttr> {
        let node = self.nodes.get(&number)?;
        let kind = if node.is_directory { FileType::Directory } else { FileType::RegularFile };
        Some(FileAttr {
            ino: INodeNo(number),
            size: node.size,
            blocks: node.size.div_ceil(512),
            atime: UNIX_EPOCH,
            mtime: UNIX_EPOCH,
            ctime: UNIX_EPOCH,
            crtime: UNIX_EPOCH,
            kind,
            perm: 0o755,
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        })
    }
}

struct Nothing(Mutex<Files>);

impl Nothing {
    fn files(&self) -> MutexGuard<'_, Files> {
        self.0.lock().ignore_poison()
    }
}

impl Filesystem for Nothing {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        let wanted = InitFlags::FUSE_ASYNC_READ
            | InitFlags::FUSE_BIG_WRITES
            | InitFlags::FUSE_DO_READDIRPLUS
            | InitFlags::FUSE_READDIRPLUS_AUTO
            | InitFlags::FUSE_PARALLEL_DIROPS
            | InitFlags::FUSE_HANDLE_KILLPRIV_V2
            | InitFlags::FUSE_MAX_PAGES;
        for flag in wanted.iter() {
            let _ = config.add_capabilities(flag);
        }
        let _ = config.set_max_write(LARGEST as u32);
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let files = self.files();
        match files.find(parent.0, name).and_then(|number| files.attributes(number)) {
            Some(attr) => reply.entry(&FOREVER, &attr, Generation(0)),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _: &Request, number: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.files().attributes(number.0) {
            Some(attr) => reply.attr(&FOREVER, &attr),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn setattr(
        &self,
        _: &Request,
        number: INodeNo,
        _: Option<u32>,
        _: Option<u32>,
        _: Option<u32>,
        size: Option<u64>,
        _: Option<TimeOrNow>,
        _: Option<TimeOrNow>,
        _: Option<SystemTime>,
        _: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let mut files = self.files();
        if let (Some(node), Some(size)) = (files.nodes.get_mut(&number.0), size) {
            node.size = size;
        }
        match files.attributes(number.0) {
            Some(attr) => reply.attr(&FOREVER, &attr),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn mkdir(&self, _: &Request, parent: INodeNo, name: &OsStr, _: u32, _: u32, reply: ReplyEntry) {
        let mut files = self.files();
        let number = files.add(parent.0, name, true);
        match files.attributes(number) {
            Some(attr) => reply.entry(&FOREVER, &attr, Generation(0)),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn create(&self, _: &Request, parent: INodeNo, name: &OsStr, _: u32, _: u32, _: i32, reply: ReplyCreate) {
        let mut files = self.files();
        let number = files.add(parent.0, name, false);
        match files.attributes(number) {
            Some(attr) => {
                let flags = FopenFlags::FOPEN_KEEP_CACHE | FopenFlags::FOPEN_NOFLUSH;
                reply.created(&FOREVER, &attr, Generation(0), FileHandle(0), flags);
            }
            None => reply.error(Errno::ENOENT),
        }
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        reply.opened(FileHandle(0), FopenFlags::FOPEN_KEEP_CACHE | FopenFlags::FOPEN_NOFLUSH);
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        _: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        static ZEROES: [u8; LARGEST] = [0; LARGEST];
        reply.data(&ZEROES[..LARGEST.min(size as usize)]);
    }

    fn write(
        &self,
        _: &Request,
        number: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        if let Some(node) = self.files().nodes.get_mut(&number.0) {
            node.size = node.size.max(offset + data.len() as u64);
        }
        reply.written(data.len() as u32);
    }

    fn release(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        reply.ok();
    }

    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        reply.ok();
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        if self.files().remove(parent.0, name) { reply.ok() } else { reply.error(Errno::ENOENT) }
    }

    fn rmdir(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        if self.files().remove(parent.0, name) { reply.ok() } else { reply.error(Errno::ENOENT) }
    }

    fn opendir(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        reply.opened(FileHandle(0), FopenFlags::FOPEN_KEEP_CACHE | FopenFlags::FOPEN_CACHE_DIR);
    }

    fn readdir(&self, _: &Request, number: INodeNo, _: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        let files = self.files();
        let names = files.names.get(&number.0).map(Vec::as_slice).unwrap_or_default();
        for (next, entry) in (1..).zip(names).skip(offset as usize) {
            let Some((name, number)) = entry else { continue };
            let is_directory = files.nodes.get(number).is_some_and(|node| node.is_directory);
            let kind = if is_directory { FileType::Directory } else { FileType::RegularFile };
            if reply.add(INodeNo(*number), next, kind, OsStr::from_bytes(name)) {
                break;
            }
        }
        reply.ok();
    }

    fn readdirplus(
        &self,
        _: &Request,
        number: INodeNo,
        _: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        let files = self.files();
        let names = files.names.get(&number.0).map(Vec::as_slice).unwrap_or_default();
        for (next, entry) in (1..).zip(names).skip(offset as usize) {
            let Some((name, number)) = entry else { continue };
            let Some(attr) = files.attributes(*number) else { continue };
            if reply.add(INodeNo(*number), next, OsStr::from_bytes(name), &FOREVER, &attr, Generation(0)) {
                break;
            }
        }
        reply.ok();
    }

    fn releasedir(&self, _: &Request, _: INodeNo, _: FileHandle, _: OpenFlags, reply: ReplyEmpty) {
        reply.ok();
    }
}
