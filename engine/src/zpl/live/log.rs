//! The records of changes for the intent log, and making changes stable.
//!
//! An operation notes its record at the end, while it holds its group and its locks, so that the notes of a
//! file are in the order of its changes. An operation that discards bytes (truncate, punch) notes it before,
//! so that a log that finds the bytes missing finds the reason too. The records are those of OpenZFS, and
//! OpenZFS can apply them. This table shows when they are made stable:
//!
//! | change | made stable by |
//! |---|---|
//! | names; extended attributes in directories, including their content | `fsync` of any file |
//! | content, attributes, extended attributes inside the file | `fsync` of the file |
//! | the same, pending when the file is renamed or an extended attribute moves into or out of it | `fsync` of any file |
//! | changes of a file without a name | never: after a crash the file is gone |
//!
//! Some changes have no record: extended attributes inside the file, while the dataset does not use the
//! feature `zilsaxattr` ([`Zil::logs_xattrs`]) or when they are empty, and the first name of a file that was
//! created without one. A caller that wants these stable waits for their group.
//!
//! While a log is applied ([`super::replay`]), nothing is noted; instead the log gets the group in which its
//! record was applied.
//!
//! Source of the facts: OpenZFS 2.3 `zfs_log.c`, `zfs_vnops.c` (`zfs_get_data`).

use std::sync::Mutex;

use device::IgnorePoison;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use ondisk::ObjectId;
use ondisk::sa::Attr;
use ondisk::zil::Record;
use ondisk::zil::record::{self, CreateKind, NewObject, RenameKind, WriteData, attribute, set_attr_mask};
use ondisk::zpl::{FileType, ZnodeFlags};

use super::attributes::SETTABLE;
use super::nodes::Node;
use super::{LiveZpl, SetAttributes};
use crate::error::{Error, Result};
use crate::txg::Tx;
use crate::zil::{Applied, Fetched, Source, SyncMode, Written, Zil};
use crate::zpl::Time;

/// Flags of files, and their bits in records.
pub(super) const FLAGS: [(ZnodeFlags, u32); 15] = [
    (ZnodeFlags::ARCHIVE, attribute::ARCHIVE),
    (ZnodeFlags::SYSTEM, attribute::SYSTEM),
    (ZnodeFlags::READONLY, attribute::READONLY),
    (ZnodeFlags::HIDDEN, attribute::HIDDEN),
    (ZnodeFlags::NOUNLINK, attribute::NOUNLINK),
    (ZnodeFlags::IMMUTABLE, attribute::IMMUTABLE),
    (ZnodeFlags::APPENDONLY, attribute::APPENDONLY),
    (ZnodeFlags::NODUMP, attribute::NODUMP),
    (ZnodeFlags::OPAQUE, attribute::OPAQUE),
    (ZnodeFlags::AV_QUARANTINED, attribute::AV_QUARANTINED),
    (ZnodeFlags::AV_MODIFIED, attribute::AV_MODIFIED),
    (ZnodeFlags::REPARSE, attribute::REPARSE),
    (ZnodeFlags::OFFLINE, attribute::OFFLINE),
    (ZnodeFlags::SPARSE, attribute::SPARSE),
    (ZnodeFlags::PROJINHERIT, attribute::PROJINHERIT),
];
/// Words of the mask in [`record::Attributes`], as OpenZFS always has them.
const MASK_WORDS: usize = 3;

/// The log of a filesystem, and whether changes come from users or from a replay.
#[derive(Debug)]
pub(super) struct Journal {
    pub(super) zil: Zil,
    /// The record that is being applied.
    applying: Mutex<Option<Applied>>,
}

impl Journal {
    pub(super) fn new(zil: &Zil) -> Self {
        Self { zil: zil.clone(), applying: Mutex::default() }
    }

    /// From now on, changes come from a record that is being applied, or from users again.
    pub(super) fn applying(&self, record: Option<Applied>) {
        *self.applying.lock().ignore_poison() = record;
    }

    /// Whether changes come from a record.
    pub(super) fn is_applying(&self) -> bool {
        self.applying.lock().ignore_poison().is_some()
    }

    fn note(&self, tx: &Tx, note: impl FnOnce(&Zil)) {
        match &*self.applying.lock().ignore_poison() {
            None => note(&self.zil),
            Some(applied) => applied.with(tx),
        }
    }
}

/// A name in a directory whose lock is held.
#[derive(Clone, Copy)]
pub(super) struct Named<'a> {
    pub(super) dir: ObjectId,
    pub(super) name: &'a [u8],
}

impl LiveZpl {
    /// Makes all changes of a file stable, and all names. Fails only when the pool can no longer commit.
    pub async fn fsync(&self, file: ObjectId) -> Result<()> {
        self.journal.zil.commit_object(file.0).await
    }

    /// Makes everything stable.
    pub async fn sync_all(&self) -> Result<()> {
        self.journal.zil.commit().await
    }

    /// The property `sync`.
    pub fn set_sync_mode(&self, mode: SyncMode) {
        self.journal.zil.set_sync_mode(mode);
    }

    /// Ends an operation, after its locks and group are released: with `sync=always` it returns when all is
    /// stable.
    pub(super) async fn settled<T>(&self, done: Result<T>) -> Result<T> {
        if done.is_ok() && self.journal.zil.sync_mode() == SyncMode::Always {
            self.journal.zil.commit().await?;
        }
        done
    }

    /// A file was created. A symbolic link has a target.
    pub(super) async fn log_created(
        &self,
        tx: &Tx,
        at: Named<'_>,
        file: ObjectId,
        target: Option<&[u8]>,
    ) -> Result<()> {
        let node = self.node(file).await?;
        let object = node.as_logged()?;
        self.journal.note(tx, |zil| {
            zil.note(
                tx,
                &match target {
                    Some(target) => Record::Symlink { directory: at.dir, object, name: at.name, target },
                    None => {
                        let kind = if node.is_directory() { CreateKind::Directory } else { CreateKind::File };
                        created(kind, at, object)
                    }
                },
            );
        });
        Ok(())
    }

    /// A new file inherited attributes that the record of its creation does not contain.
    pub(super) fn log_inherited(&self, tx: &Tx) {
        self.journal.note(tx, |zil| zil.note_unloggable(tx, None));
    }

    /// A file got its directory of extended attributes.
    pub(super) async fn log_xattr_dir(&self, tx: &Tx, file: &Node, dir: ObjectId) -> Result<()> {
        let object = self.node(dir).await?.as_logged()?;
        self.log_named(
            file,
            tx,
            &created(CreateKind::XattrDirectory, Named { dir: file.id(), name: b"" }, object),
        )
    }

    /// A file was created in the directory of extended attributes of `file`.
    pub(super) async fn log_xattr_file(
        &self,
        tx: &Tx,
        file: &Node,
        at: Named<'_>,
        new: ObjectId,
    ) -> Result<()> {
        let object = self.node(new).await?.as_logged()?;
        self.log_named(file, tx, &created(CreateKind::File, at, object))
    }

    /// Something that belongs to a file changed, which is made stable with any file.
    pub(super) fn log_named(&self, file: &Node, tx: &Tx, record: &Record<'_>) -> Result<()> {
        let has_name = file.has_name()?;
        self.journal.note(tx, |zil| {
            if has_name {
                zil.note(tx, record);
            }
        });
        Ok(())
    }

    /// The content of a small file that belongs to another file, and is made stable with any file.
    pub(super) fn log_content(&self, owner: &Node, tx: &Tx, object: ObjectId, content: &[u8]) -> Result<()> {
        self.log_named(owner, tx, &Record::Truncate { object, offset: 0, length: 0 })?;
        if content.is_empty() {
            // A record without data would be a pointer record.
            return Ok(());
        }
        let data = WriteData::Inline(content);
        self.log_named(owner, tx, &Record::Write { object, offset: 0, length: content.len() as u64, data })
    }

    /// A file lost a name. If it was its last, `gone`: its pending records are useless.
    pub(super) fn log_removed(&self, tx: &Tx, at: Named<'_>, file: &Node, gone: bool) {
        let (directory, name) = (at.dir, at.name);
        self.journal.note(tx, |zil| {
            zil.note(
                tx,
                &match file.is_directory() {
                    true => Record::Rmdir { directory, name },
                    false => Record::Remove { directory, name },
                },
            );
            if gone {
                zil.forget_object(file.id().0);
            }
        });
    }

    /// A file got one more name; its first, if it was created without one.
    pub(super) fn log_linked(&self, tx: &Tx, at: Named<'_>, file: &Node) -> Result<()> {
        let had_name = file.has_name()?;
        self.journal.note(tx, |zil| match had_name {
            true => zil.note(tx, &Record::Link { directory: at.dir, object: file.id(), name: at.name }),
            false => zil.note_unloggable(tx, None),
        });
        Ok(())
    }

    /// A file was renamed. The pending records of the moved files are made stable no later than this. The
    /// file that lost its last name by it is `gone`.
    pub(super) fn log_renamed(
        &self,
        tx: &Tx,
        kind: RenameKind,
        (from, to): (Named<'_>, Named<'_>),
        moved: &[&Node],
        gone: Option<ObjectId>,
    ) {
        self.journal.note(tx, |zil| {
            moved.iter().for_each(|node| zil.order_object(node.id().0));
            zil.note(
                tx,
                &Record::Rename {
                    kind,
                    source: from.dir,
                    target: to.dir,
                    source_name: from.name,
                    target_name: to.name,
                },
            );
            if let Some(gone) = gone {
                zil.forget_object(gone.0);
            }
        });
    }

    /// A range of a file was written.
    pub(super) fn log_written(&self, tx: &Tx, file: &Node, offset: u64, length: u64) -> Result<()> {
        let (has_name, generation) = (file.has_name()?, file.number(Attr::Gen)?);
        self.journal.note(tx, |zil| {
            if has_name {
                zil.note_write_of(tx, (file.id().0, generation), offset, length);
            }
        });
        Ok(())
    }

    /// A range of a file is about to become a hole. It ends within the file.
    pub(super) fn log_punched(&self, tx: &Tx, file: &Node, offset: u64, length: u64) -> Result<()> {
        self.log_object(tx, file, &Record::Truncate { object: file.id(), offset, length })
    }

    /// Attributes of a file have changed; the size is about to change.
    pub(super) fn log_attributes(&self, tx: &Tx, file: &Node, set: &SetAttributes) -> Result<()> {
        self.log_object(tx, file, &set_attributes(file.id(), set, file.flags()?))
    }

    /// An extended attribute inside a file was set or removed.
    pub(super) fn log_inner_xattr(
        &self,
        tx: &Tx,
        file: &Node,
        name: &[u8],
        value: Option<&[u8]>,
    ) -> Result<()> {
        let has_name = file.has_name()?;
        // A record with an empty value means that the attribute is removed.
        let has_record = value.is_none_or(|value| !value.is_empty());
        let record = Record::SetSaXattr { object: file.id(), name, value: value.unwrap_or_default() };
        self.journal.note(tx, |zil| match has_record && zil.logs_xattrs() {
            _ if !has_name => {}
            true => zil.note_object(tx, file.id().0, &record),
            false => zil.note_unloggable(tx, Some(file.id().0)),
        });
        Ok(())
    }

    /// The pending records of a file are made stable with any file from now on, before later notes.
    pub(super) fn log_ordered(&self, tx: &Tx, file: &Node) {
        self.journal.note(tx, |zil| zil.order_object(file.id().0));
    }

    pub(super) fn log_object(&self, tx: &Tx, file: &Node, record: &Record<'_>) -> Result<()> {
        let has_name = file.has_name()?;
        self.journal.note(tx, |zil| {
            if has_name {
                zil.note_object(tx, file.id().0, record);
            }
        });
        Ok(())
    }
}

impl Node {
    /// Whether any directory leads to it. Changes of other files are not logged.
    pub(super) fn has_name(&self) -> Result<bool> {
        Ok(self.number(Attr::Links)? > 0)
    }

    /// The description of a new file in a record.
    pub(super) fn as_logged(&self) -> Result<NewObject> {
        let crtime = self.znode.stat()?.crtime;
        Ok(NewObject {
            foid: NewObject::foid_of(self.id(), self.object.dnode().extra_slots.saturating_add(1)),
            mode: self.number(Attr::Mode)?,
            uid: self.number(Attr::Uid)?,
            gid: self.number(Attr::Gid)?,
            generation: self.number(Attr::Gen)?,
            crtime: logged_time(crtime),
            rdev: self.znode.attributes.number(Attr::Rdev).unwrap_or(0),
        })
    }
}

fn logged_time(time: Time) -> record::Time {
    record::Time { seconds: time.seconds, nanoseconds: time.nanoseconds.into() }
}

fn created<'a>(kind: CreateKind, at: Named<'a>, object: NewObject) -> Record<'a> {
    Record::Create {
        kind,
        directory: at.dir,
        object,
        attributes: None,
        acl: None,
        domains: Vec::new(),
        name: at.name,
    }
}

/// The record of changed attributes of a file that has the flags `old`.
fn set_attributes(object: ObjectId, set: &SetAttributes, old: ZnodeFlags) -> Record<'static> {
    let new = set.flags.unwrap_or(old);
    let changed = FLAGS.iter().filter(|(flag, _)| (old.0 ^ new.0) & flag.0 & SETTABLE != 0);
    let (mut bits, mut values) = (0, 0);
    for (flag, bit) in changed {
        bits |= bit;
        values |= if new.contains(*flag) { u64::from(*bit) } else { 0 };
    }
    let mut stamp = [0; 32];
    if let Some(project) = set.project {
        bits |= attribute::PROJID;
        stamp[..8].copy_from_slice(&project.to_le_bytes());
    }
    if set.btime.is_some() {
        bits |= attribute::CREATETIME;
    }
    let attributes = (bits != 0).then(|| record::Attributes {
        mask: [bits].into_iter().chain([0; MASK_WORDS - 1]).collect(),
        bits: values,
        crtime: logged_time(set.btime.unwrap_or_default()),
        stamp,
    });
    let mask = [
        (set.mode.is_some(), set_attr_mask::MODE),
        (set.uid.is_some(), set_attr_mask::UID),
        (set.gid.is_some(), set_attr_mask::GID),
        (set.size.is_some(), set_attr_mask::SIZE),
        (set.atime.is_some(), set_attr_mask::ATIME),
        (set.mtime.is_some(), set_attr_mask::MTIME),
        (attributes.is_some(), set_attr_mask::XVATTR),
    ];
    Record::SetAttr {
        object,
        mask: mask.iter().filter(|(is_set, _)| *is_set).fold(0, |mask, (_, bit)| mask | bit),
        mode: set.mode.unwrap_or(0).into(),
        uid: set.uid.unwrap_or(0).into(),
        gid: set.gid.unwrap_or(0).into(),
        size: set.size.unwrap_or(0),
        atime: logged_time(set.atime.unwrap_or_default()),
        mtime: logged_time(set.mtime.unwrap_or_default()),
        attributes,
        domains: Vec::new(),
    }
}

impl Source for LiveZpl {
    /// Takes no lock: a concurrent change of the file has noted, or will note, its record.
    fn fetch<'a>(&'a self, write: Written, into: &'a mut [u8]) -> BoxFuture<'a, Result<Fetched>> {
        async move {
            let left = match self.left_of(write).await? {
                Some(left) => into.len().min(usize::try_from(left).unwrap_or(usize::MAX)),
                None => return Ok(Fetched::Gone),
            };
            let object = match self.objset.object(write.object).await {
                Err(Error::NotFound(_)) => return Ok(Fetched::Gone),
                object => object?,
            };
            object.read_at(write.offset, into.get_mut(..left).unwrap_or_default()).await?;
            // The file may have become shorter, or been freed, during the read.
            Ok(match self.left_of(write).await? {
                Some(now) => Fetched::Bytes(left.min(usize::try_from(now).unwrap_or(usize::MAX))),
                None => Fetched::Gone,
            })
        }
        .boxed()
    }

    fn left(&self, write: Written) -> BoxFuture<'_, Result<Option<u64>>> {
        self.left_of(write).boxed()
    }
}

impl LiveZpl {
    /// How many bytes the file has from the start of a write on. `None` when the file is gone, and its number
    /// perhaps reused. The generation shows that. It need not be a group of this pool: a received file keeps
    /// the generation of its origin.
    async fn left_of(&self, write: Written) -> Result<Option<u64>> {
        let node = match self.zpl.node(write.object).await {
            Err(Error::NotFound(_)) => return Ok(None),
            node => node?,
        };
        let is_same = node.attributes.required(Attr::Gen)? == write.generation;
        let is_regular = node.file_type() == FileType::Regular;
        Ok((is_regular && is_same).then(|| node.size().saturating_sub(write.offset)))
    }
}
