//! Listing directories.
//!
//! # Reading ahead
//! A kernel asks for a directory in parts of at most 32 KiB. Finding where a part begins costs almost as much
//! as reading everything, because the names of a small directory are not stored in the order of the walk. So
//! more is read than was requested, and the rest is kept with the open directory for the next request. A
//! program that begins again at cookie 0 gets the current entries. At most [`MOST_KEPT`] open directories
//! keep entries.
//!
//! # Never stale
//! All programs that have a directory open share the kernel's cached list: the kernel appends entries from
//! one program's answer to those from another's, where the positions fit. So an answer must never be older
//! than a change that the kernel knows of, even for a program that began before it: otherwise the shared list
//! would lack a file. Each change of a directory's entries advances one of the [`STAMPS`], and entries that
//! were read under another stamp are not used. The kernel changes nothing in a directory while it waits for a
//! part of its list.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use device::IgnorePoison;
use engine::Result;
use engine::zpl::DirEntry;
use fuser::{FileHandle, INodeNo};
use ondisk::ObjectId;
use ondisk::zpl::FileType;

use super::attributes::type_bits;
use super::node::{Node, SNAPSHOT_DIR, SNAPSHOT_NAME, Tree, ZFS_DIR, ZFS_NAME};
use super::served::Served;

/// Cookie after `.zfs` in the root directory; the walk of the directory itself goes on behind it.
const AFTER_ZFS_DIR: u64 = 3;
/// Most entries that are read at once.
const AT_ONCE: usize = 1024;
/// Most open directories that keep entries.
const MOST_KEPT: usize = 64;
/// How many counts of changes directories share. Two that share one only cost each other what was read ahead.
const STAMPS: usize = 256;

/// One entry of a directory.
#[derive(Debug, Clone, Copy)]
pub struct DirectoryEntry<'a> {
    /// Its name.
    pub name: &'a [u8],
    /// The inode number that programs see.
    pub ino: u64,
    /// The type bits of its mode.
    pub type_bits: u32,
    /// Where the walk goes on behind it.
    pub cookie: u64,
    /// The object, unless it is a directory of `.zfs`.
    pub(super) object: Option<(Tree, ObjectId)>,
}

/// The kind of listing that a request asks for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Part {
    /// The handle of the open directory.
    pub(super) handle: FileHandle,
    /// Entries after this one.
    pub(super) cookie: u64,
    /// For how many entries with attributes there is room at most; absent where only names are wanted.
    pub(super) with_attributes: Option<usize>,
}

impl Part {
    /// Entries to read at once. The kernel asks for attributes at first, and goes on with names alone where
    /// the files are not looked at.
    fn at_once(&self) -> usize {
        match self.with_attributes {
            Some(most) if self.cookie != 0 => most.clamp(1, AT_ONCE),
            _ => AT_ONCE,
        }
    }
}

/// Entries of a directory that were read and not asked for yet.
#[derive(Debug)]
struct Ahead {
    /// The count of changes when they were read.
    stamp: u64,
    /// The cookie behind which `entries` begin.
    from: u64,
    entries: Vec<DirEntry>,
    /// Behind them there are none.
    is_end: bool,
}

impl Ahead {
    /// The number of the first entry behind `cookie`, if that is one of a place in it.
    fn place_behind(&self, cookie: u64) -> Option<usize> {
        if cookie == self.from {
            return Some(0);
        }
        // Cookies go up.
        let at = self.entries.binary_search_by_key(&cookie, |entry| entry.cookie).ok()?;
        Some(at + 1)
    }
}

/// Entries that open directories keep for the next request.
#[derive(Debug)]
pub(super) struct Listings {
    /// By the handle.
    kept: Mutex<HashMap<u64, Ahead>>,
    /// How often entries of directories changed, by the last bits of the directory's number.
    stamps: [AtomicU64; STAMPS],
}

impl Default for Listings {
    fn default() -> Self {
        Self { kept: Mutex::default(), stamps: [const { AtomicU64::new(0) }; STAMPS] }
    }
}

impl Listings {
    fn stamp(&self, dir: ObjectId) -> &AtomicU64 {
        &self.stamps[dir.0 as usize % STAMPS]
    }

    /// Entries of a directory changed: to be called before the kernel is told so.
    pub(super) fn changed(&self, dir: ObjectId) {
        self.stamp(dir).fetch_add(1, Ordering::AcqRel);
    }

    /// Takes what a directory keeps; with it the number of the next entry, if the walk may go on in it.
    fn take(&self, part: &Part, dir: ObjectId) -> Option<(Ahead, usize)> {
        let ahead = self.kept.lock().ignore_poison().remove(&part.handle.0)?;
        let is_old = ahead.stamp != self.stamp(dir).load(Ordering::Acquire);
        if part.cookie == 0 || part.with_attributes.is_some() || is_old {
            return None;
        }
        let at = ahead.place_behind(part.cookie)?;
        // In the middle of it, or at the end of all.
        (at < ahead.entries.len() || ahead.is_end).then_some((ahead, at))
    }

    fn keep(&self, handle: FileHandle, ahead: Ahead) {
        let mut kept = self.kept.lock().ignore_poison();
        if kept.len() < MOST_KEPT {
            kept.insert(handle.0, ahead);
        }
    }

    /// Forgets what the directory with this handle, which is closed, kept.
    pub(super) fn forget(&self, handle: FileHandle) {
        self.kept.lock().ignore_poison().remove(&handle.0);
    }
}

impl Served {
    /// Gives `each` the wanted entries of a directory, until it says that it is full.
    pub(super) fn walk(
        &self,
        number: INodeNo,
        part: Part,
        each: &mut dyn FnMut(DirectoryEntry<'_>) -> bool,
    ) -> Result<()> {
        let control = |names: &mut dyn Iterator<Item = (&[u8], u64)>,
                       each: &mut dyn FnMut(DirectoryEntry<'_>) -> bool| {
            let skipped = usize::try_from(part.cookie).unwrap_or(usize::MAX);
            for (place, (name, ino)) in (1..).zip(names).skip(skipped) {
                if each(DirectoryEntry { name, ino, type_bits: libc::S_IFDIR, cookie: place, object: None }) {
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
                let snapshots = self.trees.snapshot_names()?;
                // Downwards from the directory's own, as OpenZFS numbers them.
                let snapshots =
                    snapshots.iter().map(|(place, name)| (name.as_bytes(), SNAPSHOT_DIR - 1 - *place as u64));
                control(&mut fixed.into_iter().chain(snapshots), each);
                Ok(())
            }
            Node::Root | Node::Object(..) => self.walk_directory(number, part, each),
        }
    }

    fn walk_directory(
        &self,
        number: INodeNo,
        part: Part,
        each: &mut dyn FnMut(DirectoryEntry<'_>) -> bool,
    ) -> Result<()> {
        let (tree, dir) = self.object(number)?;
        let mut cookie = part.cookie;
        if let (Tree::Head, Some(live), 0) = (tree, self.live(), cookie)
            && self.notes_listing(part.handle)
        {
            self.note_access(live, dir);
        }
        let zfs_dir = DirectoryEntry {
            name: ZFS_NAME,
            ino: ZFS_DIR,
            type_bits: libc::S_IFDIR,
            cookie: AFTER_ZFS_DIR,
            object: None,
        };
        let mut zfs_dir_due = self.zfs_dir_is_visible() && number.0 == 1 && cookie < AFTER_ZFS_DIR;
        let mut kept = self.listings.take(&part, dir);
        let mut given = false;
        loop {
            let (ahead, first) = match kept.take() {
                Some(kept) => kept,
                None => {
                    let stamp = self.listings.stamp(dir).load(Ordering::Acquire);
                    let entries = device::block_on(self.trees.entries(tree, dir, cookie, part.at_once()))?;
                    let is_end = entries.len() < part.at_once();
                    (Ahead { stamp, from: cookie, entries, is_end }, 0)
                }
            };
            for entry in ahead.entries.get(first..).unwrap_or_default() {
                // Behind `.` and `..`, whose cookies are the first two.
                if zfs_dir_due && entry.cookie >= AFTER_ZFS_DIR {
                    zfs_dir_due = false;
                    if each(zfs_dir) {
                        return Ok(());
                    }
                }
                let kind = match entry.file_type {
                    Some(kind) => kind,
                    // Filesystems of the first version keep no types in directories.
                    None => device::block_on(async { self.trees.zpl(tree).await?.node(entry.object).await })
                        .map_or(FileType::Regular, |node| node.file_type()),
                };
                let object = Some((tree, entry.object));
                let ino = match tree {
                    Tree::Head => entry.ino,
                    Tree::Snapshot(_) => {
                        Node::number_of(tree, entry.object).map_or(entry.ino, |number| number.0)
                    }
                };
                let (name, type_bits) = (&*entry.name, type_bits(kind));
                if each(DirectoryEntry { name, ino, type_bits, cookie: entry.cookie, object }) {
                    self.listings.keep(part.handle, ahead);
                    return Ok(());
                }
                given = true;
                cookie = entry.cookie;
            }
            if ahead.is_end {
                // The next request gets an empty answer, which ends the list.
                if given {
                    self.listings.keep(part.handle, ahead);
                }
                break;
            }
        }
        if zfs_dir_due {
            each(zfs_dir);
        }
        Ok(())
    }
}
