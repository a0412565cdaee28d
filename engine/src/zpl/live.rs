//! Filesystems that are open for writing.
//!
//! # The idea
//! A [`LiveZpl`] is a [`Zpl`] over the live objects of its dataset, with the operations that change it. Each
//! operation locks the files that it changes, holds the open group, changes objects in memory, and releases
//! both. Nothing is written to devices here.
//!
//! | file | operations |
//! |---|---|
//! | `locks` | locks of files and of ranges of their content |
//! | `nodes` | reading and changing a file's attributes |
//! | `old` | files from before system attributes; upgrades of filesystems to a newer version |
//! | `names` | entries of directories: look up, list, create, link |
//! | `remove` | unlink, rmdir |
//! | `nameless` | files without a name that are still open |
//! | `rename` | rename, with exchange and without replacing |
//! | `content` | read, write, truncate |
//! | `allocate` | reserve, zero and punch ranges; copy ranges; look for holes |
//! | `clone` | ranges that share blocks |
//! | `share` | blocks that become references to equal ones |
//! | `attributes` | mode, owner, times, flags, size; access times |
//! | `log` | the records for the intent log; fsync |
//! | `replay` | applying the log after a crash |
//! | `counting` | completing the counts of users, groups and projects |
//! | `quotas` | the quotas of users, groups and projects |
//! | `permit` | operations that attributes of files forbid |
//! | `acls` | ACLs, the mode and their inheritance by new files |
//! | `xattrs` | extended attributes, in the attributes of the file or in a directory |
//!
//! # Order
//! An operation takes its locks first, then the group ([`Txgs::begin`]): a later change of the same file is
//! never in an earlier group. A directory is locked for reading too, because an entry may just be moving from
//! one leaf of its ZAP to another. The lock of a file also protects the files of its extended attributes.
//!
//! # Whole operations
//! As far as possible, the steps that can fail come before the first change. The future of a change must be
//! polled to its end: one that is dropped half-way leaves a part of the operation in the group.
//!
//! Access control is the caller's task.
//!
//! Each operation notes its record for the intent log while it holds the group, and ends with `settled` after
//! it released everything.
//!
//! | lock | guards | order |
//! |---|---|---|
//! | `moving` | moves of directories, so that none gets below itself | first |
//! | locks of content | ranges of a file; two at once in `clone` and `share` only, the lower first | second |
//! | locks of files | a file's attributes, and a directory's entries | third, by number |
//! | `opened` | the numbers of users of open files | taken alone |
//! | `large` | the numbers of large files without a name | taken alone |
//!
//! Source: behaviour of OpenZFS 2.3 `zfs_vnops_os.c`, `zfs_dir.c`, `zfs_znode_os.c`, `zfs_vnops.c`,
//! `zpl_xattr.c`.

mod acls;
mod allocate;
mod attributes;
mod clone;
mod content;
mod counting;
mod locks;
mod log;
mod nameless;
mod names;
mod nodes;
mod old;
mod permit;
mod quotas;
mod remove;
mod rename;
mod replay;
mod share;
#[cfg(test)]
mod tests;
mod xattrs;

pub use allocate::AllocateMode;
pub use attributes::{AtimeMode, SetAttributes};
pub use content::WriteOptions;
pub use names::{NewKind, NewNode};
pub(super) use old::{acl_of, flags_of, place};
pub use rename::RenameMode;
pub use share::FileBlocks;
pub use xattrs::{XattrPlace, XattrSet};

use std::collections::{BTreeSet, HashMap};
use std::ops::Range;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, RwLock, Weak};
use std::time::{SystemTime, UNIX_EPOCH};

use device::IgnorePoison;
use futures_util::lock::Mutex as AsyncMutex;
use ondisk::sa::Attr;
use ondisk::zpl::{MASTER_NODE, master};
use ondisk::{ObjectId, Txg};

use super::{AclRules, Settings, Space, StatFs, Time, Zpl, ZplOptions};
use crate::dmu::room::{Room, begin_freeing};
use crate::dmu::sa::edit::LiveRegistry;
use crate::dmu::zap::edit as zap;
use crate::dmu::{Dirtied, LiveObjset};
use crate::error::{Error, Result};
use crate::txg::{Tx, Txgs};
use crate::zil::Zil;
use log::Journal;
use nodes::Node;

/// Error numbers of Linux without a variant of [`Error`].
pub mod errno {
    /// Operation not permitted.
    pub const EPERM: i32 = 1;
    /// No such device or address: no data, or no hole, after an offset.
    pub const ENXIO: i32 = 6;
    /// Permission denied.
    pub const EACCES: i32 = 13;
    /// Not in the same project, as if it were another filesystem.
    pub const EXDEV: i32 = 18;
    /// Not a directory.
    pub const ENOTDIR: i32 = 20;
    /// Is a directory.
    pub const EISDIR: i32 = 21;
    /// Invalid argument.
    pub const EINVAL: i32 = 22;
    /// File too large.
    pub const EFBIG: i32 = 27;
    /// File name too long.
    pub const ENAMETOOLONG: i32 = 36;
    /// Directory not empty.
    pub const ENOTEMPTY: i32 = 39;
    /// No data available: no such extended attribute.
    pub const ENODATA: i32 = 61;
    /// Argument list too long: an extended attribute too large.
    pub const E2BIG: i32 = 7;
    /// A quota is used up.
    pub const EDQUOT: i32 = 122;
    /// Not supported: a file that cannot have a project.
    pub const ENOTSUP: i32 = 95;
    /// Invalid byte sequence: a name that is not UTF-8.
    pub const EILSEQ: i32 = 84;
}

/// The average number of dirty bytes of an operation that changes names or attributes: entries share blocks.
const CHANGE_BYTES: u64 = 2 << 10;

/// A filesystem that is open for writing; all its users share one.
#[derive(Debug)]
pub struct LiveZpl {
    zpl: Arc<Zpl>,
    txgs: Arc<Txgs>,
    objset: Arc<LiveObjset>,
    /// The tables of system attributes; absent while the filesystem has a version without them.
    registry: OnceLock<LiveRegistry>,
    journal: Journal,
    unlinked_set: ObjectId,
    quotas: quotas::Quotas,
    locks: locks::FileLocks,
    moving: AsyncMutex<()>,
    opened: Mutex<HashMap<u64, nameless::Opened>>,
    /// Large files without a name, which are freed in parts.
    large: Mutex<BTreeSet<u64>>,
    /// The number of users that know files by number that are not open.
    remember: AtomicU32,
    record_size: AtomicU32,
    dnode_slots: AtomicU32,
    atime: AtomicU8,
    xattr_place: AtomicU8,
    acl_rules: RwLock<AclRules>,
    room: RwLock<Option<Arc<dyn Room>>>,
}

impl LiveZpl {
    /// Opens the filesystem of an object set that is open for writing, and frees the files that can no longer
    /// be reached. `zil` is its intent log.
    pub async fn open(
        txgs: &Arc<Txgs>,
        objset: &Arc<LiveObjset>,
        zil: &Zil,
        options: ZplOptions,
    ) -> Result<Arc<Self>> {
        let opened = Self::open_as_it_is(txgs, objset, zil, options).await?;
        opened.free_unlinked().await?;
        Ok(opened)
    }

    /// Like [`LiveZpl::open`], without changes: those files stay until it is opened again.
    pub async fn open_as_it_is(
        txgs: &Arc<Txgs>,
        objset: &Arc<LiveObjset>,
        zil: &Zil,
        options: ZplOptions,
    ) -> Result<Arc<Self>> {
        let zpl = Zpl::open(&objset.view(), options).await?;
        let master_node = objset.object(MASTER_NODE).await?;
        let name = async |name: &str| -> Result<ObjectId> {
            let found = zap::lookup_u64(&master_node, name).await?;
            found.map(ObjectId).ok_or_else(|| master_node.corrupt(format!("no {name}")))
        };
        let opened = Arc::new(Self {
            unlinked_set: name(master::DELETE_QUEUE).await?,
            quotas: quotas::Quotas::load(&master_node).await?,
            zpl,
            txgs: Arc::clone(txgs),
            objset: Arc::clone(objset),
            registry: OnceLock::new(),
            journal: Journal::new(zil),
            locks: locks::FileLocks::default(),
            moving: AsyncMutex::new(()),
            opened: Mutex::new(HashMap::new()),
            large: Mutex::default(),
            remember: AtomicU32::new(0),
            record_size: AtomicU32::new(128 << 10),
            dnode_slots: AtomicU32::new(1),
            atime: AtomicU8::new(AtimeMode::Relative as u8),
            xattr_place: AtomicU8::new(XattrPlace::Attributes as u8),
            acl_rules: RwLock::default(),
            room: RwLock::new(None),
        });
        opened.load_registry().await?;
        let source: Weak<Self> = Arc::downgrade(&opened);
        zil.set_source(source);
        Ok(opened)
    }

    /// The filesystem for reading: it shows all changes up to now. Directories are read through
    /// [`LiveZpl::lookup`] and [`LiveZpl::read_dir`] instead, extended attributes through [`LiveZpl::xattr`]
    /// and [`LiveZpl::list_xattrs`], which wait for changes in progress.
    pub fn zpl(&self) -> &Arc<Zpl> {
        &self.zpl
    }

    /// The object set.
    pub fn objset(&self) -> &Arc<LiveObjset> {
        &self.objset
    }

    /// Applies the present values of its properties.
    pub fn set(&self, settings: &Settings) {
        self.set_record_size(settings.record_size);
        self.set_dnode_slots(settings.dnode_slots);
        self.set_atime(settings.atime);
        let place = settings.xattrs.unwrap_or(XattrPlace::Attributes);
        self.xattr_place.store(place as u8, Ordering::Release);
        *self.acl_rules.write().ignore_poison() = settings.acl_rules;
        self.zpl.set_options(settings.options());
    }

    /// The properties `aclinherit` and `aclmode`.
    fn acl_rules(&self) -> AclRules {
        *self.acl_rules.read().ignore_poison()
    }

    /// The place of new extended attributes, by the property `xattr`.
    pub fn xattr_place(&self) -> XattrPlace {
        match self.xattr_place.load(Ordering::Acquire) {
            place if place == XattrPlace::Directory as u8 => XattrPlace::Directory,
            _ => XattrPlace::Attributes,
        }
    }

    /// The property `recordsize`, in bytes.
    pub fn record_size(&self) -> u32 {
        self.record_size.load(Ordering::Acquire)
    }

    /// Sets the record size.
    pub fn set_record_size(&self, bytes: u32) {
        self.record_size.store(bytes.clamp(512, 16 << 20), Ordering::Release);
    }

    /// Sets the size of the dnodes of new files, in slots of 512 bytes: the property `dnodesize`.
    pub fn set_dnode_slots(&self, slots: u8) {
        self.dnode_slots.store(slots.clamp(1, 32).into(), Ordering::Release);
    }

    fn dnode_slots(&self) -> u8 {
        self.dnode_slots.load(Ordering::Acquire) as u8
    }

    /// The result of `statfs`. Without a source of space ([`LiveZpl::set_room`]) nothing is free.
    pub fn statfs(&self) -> StatFs {
        let (referenced_bytes, available_bytes) = self.room_figures();
        let used_objects = self.objset.used_objects();
        let record_bytes = self.record_size().into();
        self.zpl.statfs(Space { referenced_bytes, available_bytes, used_objects }, record_bytes)
    }

    /// The bytes that the dataset refers to, and the bytes that it may still allocate.
    fn room_figures(&self) -> (u64, u64) {
        let room = self.room.read().ignore_poison().clone();
        room.map_or((0, 0), |room| room.figures())
    }

    /// Sets the source of space, which is asked before a change is accepted that takes some.
    pub fn set_room(&self, room: Arc<dyn Room>) {
        *self.room.write().ignore_poison() = Some(room);
    }

    /// Holds the open group for an operation that makes these blocks dirty.
    async fn begin(&self, dirtied: impl Fn(Txg) -> Dirtied) -> Result<Tx> {
        let dirtied = |txg| {
            let dirtied = dirtied(txg);
            let bytes = dirtied.data_bytes().saturating_add(dirtied.attribute_bytes);
            (dirtied, bytes.saturating_add(CHANGE_BYTES))
        };
        let require = |txg, all| self.require_room(|room| room.require(txg, &all));
        self.txgs.begin_dirtying(self.objset.id(), dirtied, require).await
    }

    /// Holds the open group for an operation that changes entries of these directories, and creates or moves
    /// files.
    async fn begin_naming(&self, dirs: &[&Node]) -> Result<Tx> {
        let entries = |txg| {
            let of = |dir: &&Node| dir.object.newly_dirty_by_entry(txg);
            dirs.iter().map(of).fold(Dirtied::new_file(), Dirtied::plus)
        };
        self.begin(entries).await
    }

    /// Holds the open group for an operation that writes a range of a file that then ends at `end` or later.
    /// All blocks that this makes dirty count.
    async fn begin_writing(&self, node: &Node, range: Range<u64>, end: u64) -> Result<Tx> {
        let grown = self.grown(node, end);
        let dirtied = |txg| {
            let object = &node.object;
            let written = object.newly_dirty(txg, &range, grown);
            // A block that grows is rewritten, wherever the range lies.
            let resized = grown.filter(|grown| range.is_empty() || range.start >= u64::from(*grown));
            let resized = resized.map(|grown| object.newly_dirty(txg, &(0..1), Some(grown)));
            let content = resized.map_or(written, |resized| resized.plus(written));
            content.plus(object.newly_dirty_description(txg))
        };
        self.begin(dirtied).await
    }

    /// Holds the open group for an operation that frees space and cuts the content of a file at `edges`:
    /// blocks that lose a part are rewritten. Space is reserved for them that other operations do not get.
    async fn begin_cutting(&self, node: &Node, edges: &[u64]) -> Result<Tx> {
        let dirtied = |txg| {
            let cut = edges.iter().map(|edge| node.object.newly_dirty_by_cut(txg, *edge));
            let dirtied = cut.fold(Dirtied::file(), Dirtied::plus);
            (dirtied, dirtied.data_bytes().saturating_add(CHANGE_BYTES))
        };
        let require = |txg, all| self.require_room(|room| room.require_to_free(txg, &all));
        self.txgs.begin_dirtying(self.objset.id(), dirtied, require).await
    }

    /// Holds the open group for an operation that changes the size of a file.
    async fn begin_resizing(&self, node: &Node, size: u64) -> Result<Tx> {
        match size < node.number(Attr::Size)? {
            true => self.begin_cutting(node, &[size]).await,
            false if self.grown(node, size).is_some() => self.begin_writing(node, 0..0, size).await,
            false => self.begin_freeing().await,
        }
    }

    fn require_room(&self, require: impl Fn(&dyn Room) -> Result<()>) -> Result<()> {
        match &*self.room.read().ignore_poison() {
            Some(room) => require(&**room),
            None => Ok(()),
        }
    }

    /// Holds the open group for an operation that frees space, which continues when no space is left.
    async fn begin_freeing(&self) -> Result<Tx> {
        let room = self.room.read().ignore_poison().clone();
        begin_freeing((&self.txgs, self.objset.id()), room, CHANGE_BYTES, |_| Dirtied::file()).await
    }

    fn opened(&self) -> MutexGuard<'_, HashMap<u64, nameless::Opened>> {
        self.opened.lock().ignore_poison()
    }

    fn refuse(&self, what: impl AsRef<[u8]>, errno: i32) -> Error {
        Error::Os { what: String::from_utf8_lossy(what.as_ref()).into_owned(), errno }
    }
}

impl Time {
    /// The time of this machine.
    pub fn now() -> Self {
        match SystemTime::now().duration_since(UNIX_EPOCH) {
            Ok(since) => Self { seconds: since.as_secs() as i64, nanoseconds: since.subsec_nanos() },
            Err(_) => Self::default(),
        }
    }
}
