//! Filesystems for protocols of a network, whatever protocol they are served through.
//!
//! # The idea
//! A protocol ([`crate::nfs`]) knows [`Shares`], opens one by its number, and asks it to look up, read,
//! write and so on. What a share is ([`crate::daemon`]), and what becomes of its requests while a filesystem
//! is renamed, rolled back or destroyed, no protocol knows. It is for files what [`crate::block`] is for
//! volumes.
//!
//! FUSE ([`crate::fuse`]) does not stand on this trait: the kernel that mounts a filesystem keeps names,
//! attributes and pages, has files open, and asks for permissions itself, and its answers need no staleness
//! check. Both share what lies below: the filesystem with its snapshots (`MountedDatasets`), the numbers of
//! files, and the engine's operations, which check all but permissions.
//!
//! # Numbers of files
//! A [`FileId`] outlives the daemon: a snapshot has its guid, and a file its object number and generation.
//! One that is gone, or whose number is another file's now, is answered with `ESTALE`.
//!
//! # Who may what
//! Permissions are the protocol's task, for it knows the users. All methods wait for devices on the thread
//! that called them ([`device::block_on`]).

use std::sync::Arc;

use engine::Result;
use engine::zpl::live::{NewNode, SetAttributes, WriteOptions};
use engine::zpl::{StatFs, Time};
use ondisk::zpl::FileType;

/// The number of a filesystem, which it keeps whatever its name is and wherever its pool is imported.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FilesystemId {
    /// The pool's guid.
    pub pool: u64,
    /// The dataset's guid.
    pub dataset: u64,
}

/// The number of a file in a filesystem, which it keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FileId {
    /// The guid of the snapshot that it is in; 0 for the filesystem itself.
    pub snapshot: u64,
    /// The object number, or the inode number of a directory of `.zfs`.
    pub object: u64,
    /// The generation; 0 of a directory of `.zfs`.
    pub generation: u64,
}

/// The attributes of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attributes {
    /// Which it is.
    pub id: FileId,
    /// The inode number.
    pub number: u64,
    /// Its type.
    pub kind: FileType,
    /// Permission bits, with set-user-id, set-group-id and the sticky bit.
    pub mode: u32,
    /// Names.
    pub links: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Size in bytes.
    pub size: u64,
    /// Space that it takes.
    pub used_bytes: u64,
    /// Major and minor number of a device.
    pub device: (u32, u32),
    /// Last access.
    pub atime: Time,
    /// Last change of the content.
    pub mtime: Time,
    /// Last change of the attributes.
    pub ctime: Time,
}

/// One entry of a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its name.
    pub name: Vec<u8>,
    /// The inode number.
    pub number: u64,
    /// Where the walk goes on behind it.
    pub cookie: u64,
}

/// A part of a directory.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Part {
    /// Its entries.
    pub entries: Vec<Entry>,
    /// Behind them there are none.
    pub is_end: bool,
}

/// A file by its directory and its name there.
#[derive(Debug, Clone, Copy)]
pub struct Named<'a> {
    /// The directory.
    pub dir: FileId,
    /// The name.
    pub name: &'a [u8],
}

/// The shares that a protocol serves.
pub trait Shares: Send + Sync + 'static {
    /// How a filesystem is shared.
    type Share: Share;
    /// The files of one, as long as a request needs them.
    type Files: Files;

    /// All that are shared at present, in the order of their names.
    fn listed(&self) -> Vec<Arc<Self::Share>>;

    /// The share of a filesystem, if it is shared.
    fn find(&self, id: FilesystemId) -> Option<Arc<Self::Share>>;

    /// Opens a share for one request.
    ///
    /// # Errors
    /// [`engine::Error::Busy`] while the filesystem is being changed; [`engine::Error::Suspended`] where its
    /// devices are away; or why it cannot be opened.
    fn open(&self, share: &Arc<Self::Share>) -> Result<Self::Files>;

    /// Whether all shares are there that are about to come.
    fn is_complete(&self) -> bool {
        true
    }
}

/// How a filesystem is shared.
pub trait Share: Send + Sync + 'static {
    /// How clients are let in.
    type Rules: Send + Sync + 'static;

    /// Its number.
    fn id(&self) -> FilesystemId;
    /// The name of the dataset.
    fn name(&self) -> &str;
    /// Where clients find it: its mountpoint.
    fn path(&self) -> &[u8];
    /// How clients are let in; `None` where the property is not understood.
    fn rules(&self) -> Option<&Self::Rules>;
}

/// The files of a filesystem and of its snapshots.
pub trait Files {
    /// Whether changes are accepted.
    fn is_writable(&self) -> bool;

    /// A number that is another one when changes may be lost that were not made stable.
    fn verifier(&self) -> u64;

    /// Whether names are told apart by case.
    fn is_case_sensitive(&self) -> bool;

    /// The root directory.
    ///
    /// # Errors
    /// It cannot be read.
    fn root(&self) -> Result<Attributes>;

    /// The attributes of a file.
    ///
    /// # Errors
    /// `ESTALE` for one that is gone, or one that cannot be read.
    fn stat(&self, file: FileId) -> Result<Attributes>;

    /// The file of a name, if there is one.
    ///
    /// # Errors
    /// The directory cannot be read, or is none.
    fn lookup(&self, at: Named<'_>) -> Result<Option<Attributes>>;

    /// Up to about `limit` entries that follow `cookie`; 0 is the beginning.
    ///
    /// # Errors
    /// The directory cannot be read, or is none.
    fn entries(&self, dir: FileId, cookie: u64, limit: usize) -> Result<Part>;

    /// The attributes of the file of an entry, if they can be had without much work.
    fn attributes_of(&self, dir: FileId, entry: &Entry) -> Option<Attributes> {
        self.lookup(Named { dir, name: &entry.name }).ok().flatten()
    }

    /// Reads until `into` is full or the file ends; how much it was.
    ///
    /// # Errors
    /// It cannot be read.
    fn read(&self, file: FileId, offset: u64, into: &mut [u8]) -> Result<usize>;

    /// Where a symbolic link leads.
    ///
    /// # Errors
    /// It cannot be read, or is none.
    fn read_link(&self, file: FileId) -> Result<Vec<u8>>;

    /// The POSIX ACL of a file, as Linux has it in an extended attribute, where files have such.
    ///
    /// # Errors
    /// It cannot be read.
    fn acl(&self, file: FileId) -> Result<Option<Vec<u8>>>;

    /// The room of the filesystem, as seen from a file.
    ///
    /// # Errors
    /// It cannot be read.
    fn space(&self, file: FileId) -> Result<StatFs>;

    /// Creates a file.
    ///
    /// # Errors
    /// It is there already, the filesystem is read-only or full, or the name cannot be.
    fn create(&self, at: Named<'_>, new: &NewNode<'_>) -> Result<Attributes>;

    /// Gives a file one more name.
    ///
    /// # Errors
    /// As those of [`Files::create`].
    fn link(&self, file: FileId, at: Named<'_>) -> Result<()>;

    /// Removes a name that is no directory's.
    ///
    /// # Errors
    /// It is not there, or the filesystem is read-only.
    fn unlink(&self, at: Named<'_>) -> Result<()>;

    /// Removes an empty directory.
    ///
    /// # Errors
    /// It is not there or not empty, or the filesystem is read-only.
    fn remove_directory(&self, at: Named<'_>) -> Result<()>;

    /// Moves an entry, over the one that is there.
    ///
    /// # Errors
    /// As those of [`Files::create`] and [`Files::unlink`].
    fn rename(&self, from: Named<'_>, to: Named<'_>) -> Result<()>;

    /// Changes attributes.
    ///
    /// # Errors
    /// The filesystem is read-only or full.
    fn set(&self, file: FileId, set: &SetAttributes) -> Result<()>;

    /// Refuses to write to a regular file whose attributes forbid it; `by_root`: by a user who may write
    /// whatever the mode is.
    ///
    /// # Errors
    /// It is immutable, append-only or read-only.
    fn require_writable(&self, file: FileId, by_root: bool) -> Result<()>;

    /// Writes all of `data`.
    ///
    /// # Errors
    /// The filesystem is read-only or full.
    fn write(&self, file: FileId, offset: u64, data: &[u8], options: &WriteOptions) -> Result<()>;

    /// Returns when all changes of a file, and of names, are stable.
    ///
    /// # Errors
    /// The pool cannot commit any more.
    fn make_stable(&self, file: FileId) -> Result<()>;
}

/// Of a file that is no more.
pub fn stale() -> engine::Error {
    engine::Error::Os { what: "a file that is gone".into(), errno: libc::ESTALE }
}
