//! Applying the intent log of a filesystem after a crash.
//!
//! # The idea
//! A record is applied by its operation, without that operation's rules for users: logged changes were
//! allowed. Files get the object numbers, generations, times, modes and owners of the records, because later
//! records refer to them. Each record is applied in one group, which is reported to the log ([`Applied`]). If
//! that takes several groups, the groups before the last one report that the previous record was applied, and
//! repeating their part does no harm.
//!
//! An object number that an earlier record freed can be used after the group of that record is committed: the
//! replay waits for that.
//!
//! Records with ids or ACLs of other systems' identities, which Linux never writes, are refused.
//!
//! Source of the facts: OpenZFS 2.3 `zfs_replay.c`, `zfs_znode_os.c` (`zfs_mknode`).

use ondisk::ObjectId;
use ondisk::blkptr::Blkptr;
use ondisk::nvlist::{ByteString, NvValue};
use ondisk::sa::Attr;
use ondisk::zil::Record;
use ondisk::zil::record::{
    self, CreateKind, NewObject as LoggedObject, RenameKind, WriteData, attribute, set_attr_mask,
};
use ondisk::zpl::{FileType, ZnodeFlags};

use super::clone::LoggedClone;
use super::log::{FLAGS, Named};
use super::names::{NewKind, NewNode};
use super::nodes::{Node, Values};
use super::{LiveZpl, RenameMode, SetAttributes, xattrs};
use crate::dmu::Dirtied;
use crate::error::{Error, Result};
use crate::zil::{Applied, Replay};
use crate::zpl::Time;

/// The most bytes that are written in one group.
const PIECE_BYTES: usize = 1 << 20;
/// The bits of a mode that are not the type.
const PERMISSIONS: u64 = 0o7777;

impl Replay for LiveZpl {
    async fn apply(&self, record: &Record<'_>, applied: &Applied) -> Result<()> {
        self.journal.applying(Some(applied.clone()));
        let mut done = self.apply_record(record, applied).await;
        if let Err(Error::Busy(_)) = done {
            // The open group, or the one before it, freed the number. Nothing was changed yet.
            self.txgs.wait_synced(self.txgs.open_txg()).await?;
            self.journal.applying(Some(applied.clone()));
            done = self.apply_record(record, applied).await;
        }
        self.journal.applying(None);
        done
    }

    async fn share(
        &self,
        (object, offset, length): (ObjectId, u64, u64),
        (block_bytes, blocks): (u64, &[Blkptr]),
        applied: &Applied,
    ) -> Result<bool> {
        self.journal.applying(Some(applied.clone()));
        let logged = LoggedClone { object, offset, length, block_bytes, blocks };
        let done = self.refer_as_logged(logged).await;
        self.journal.applying(None);
        done
    }
}

impl LiveZpl {
    async fn apply_record(&self, record: &Record<'_>, applied: &Applied) -> Result<()> {
        match record {
            Record::Create { acl: Some(_), .. } | Record::Acl { .. } | Record::AclV0 { .. } => {
                Err(self.unsupported("an ACL"))
            }
            Record::Create { kind: CreateKind::XattrDirectory, directory, object, .. } => {
                self.create_xattr_dir(*directory, object).await
            }
            Record::Create { directory, object, attributes, name, .. } => {
                let kind = match FileType::from_mode(object.mode as u32) {
                    FileType::Directory => NewKind::Directory,
                    FileType::Regular => NewKind::Regular,
                    other => NewKind::Special(other, object.rdev),
                };
                self.create_logged(Named { dir: *directory, name }, kind, object, attributes.as_ref()).await
            }
            Record::Symlink { directory, object, name, target } => {
                let at = Named { dir: *directory, name };
                self.create_logged(at, NewKind::Symlink(target), object, None).await
            }
            Record::Remove { directory, name } => self.remove(*directory, name, false).await,
            Record::Rmdir { directory, name } => self.remove(*directory, name, true).await,
            Record::Link { directory, object, name } => self.link_entry(*object, *directory, name).await,
            Record::Rename { kind, source, target, source_name, target_name } => {
                let (old, new) =
                    (Named { dir: *source, name: source_name }, Named { dir: *target, name: target_name });
                match kind {
                    RenameKind::Replace => self.rename_entry(old, new, RenameMode::Replace, None).await,
                    RenameKind::Exchange => self.rename_entry(old, new, RenameMode::Exchange, None).await,
                    RenameKind::Whiteout(object) => {
                        let (uid, gid) = (self.posix_id(object.uid)?, self.posix_id(object.gid)?);
                        self.rename_entry(old, new, RenameMode::Whiteout { uid, gid }, Some(object)).await
                    }
                }
            }
            Record::Write { object, offset, length, data: WriteData::Inline(data) } => {
                self.write_logged(*object, *offset, *length, data, applied).await
            }
            Record::Write { data: WriteData::Block(_), .. } | Record::CloneRange { .. } => {
                Err(self.unsupported("a record whose data were not read"))
            }
            Record::Write2 { object, offset, length, .. } => {
                self.write_logged(*object, *offset, *length, &[], applied).await
            }
            Record::Truncate { object, offset, length: 0 } => {
                self.punch_parts(*object, *offset..u64::MAX).await?;
                let _content = self.locks.whole(*object).await;
                self.truncate_locked(*object, *offset).await
            }
            Record::Truncate { object, offset, length } => {
                let end = offset.saturating_add(*length);
                if end > self.content(*object).await?.number(Attr::Size)? {
                    self.journal.applying(Some(applied.before()));
                    let _content = self.locks.whole(*object).await;
                    self.truncate_locked(*object, end).await?;
                    self.journal.applying(Some(applied.clone()));
                }
                self.punch_range(*object, *offset, *length).await
            }
            Record::SetAttr { object, mask, mode, uid, gid, size, atime, mtime, attributes, .. } => {
                let given = |bit: u64| mask & bit != 0;
                let node = self.node(*object).await?;
                let mut set = SetAttributes {
                    mode: given(set_attr_mask::MODE).then_some((mode & PERMISSIONS) as u32),
                    uid: given(set_attr_mask::UID).then(|| self.posix_id(*uid)).transpose()?,
                    gid: given(set_attr_mask::GID).then(|| self.posix_id(*gid)).transpose()?,
                    size: given(set_attr_mask::SIZE).then_some(*size),
                    atime: given(set_attr_mask::ATIME).then(|| time(*atime)),
                    mtime: given(set_attr_mask::MTIME).then(|| time(*mtime)),
                    ..SetAttributes::default()
                };
                if let Some(attributes) = attributes {
                    let more = self.beyond_posix(node.flags()?, attributes)?;
                    (set.flags, set.btime, set.project) = (more.flags, more.btime, more.project);
                }
                self.change_attributes(*object, &set).await
            }
            Record::SetSaXattr { object, name, value } => self.set_inner_xattr(*object, name, value).await,
        }
    }

    async fn create_logged(
        &self,
        at: Named<'_>,
        kind: NewKind<'_>,
        object: &LoggedObject,
        attributes: Option<&record::Attributes>,
    ) -> Result<()> {
        let new = self.logged_node(kind, object)?;
        self.create_as(at, &new, Some((object, attributes))).await.map(drop)
    }

    /// The attributes of a new file beyond POSIX in records.
    pub(super) fn logged_attributes(&self, node: &Node, attributes: &record::Attributes) -> Result<Values> {
        let old = node.flags()?;
        let set = self.beyond_posix(old, attributes)?;
        let mut flags = set.flags.unwrap_or(old).0;
        let mut values = Values::default();
        if let Some(time) = set.btime {
            values = values.time(Attr::Crtime, time);
        }
        if let Some(project) = set.project {
            flags |= ZnodeFlags::PROJID.0;
            values = values.number(Attr::ProjectId, project);
        }
        Ok(values.number(Attr::Flags, flags))
    }

    async fn create_xattr_dir(&self, file: ObjectId, object: &LoggedObject) -> Result<()> {
        let new = self.logged_node(NewKind::Directory, object)?;
        let _locked = self.locks.lock(&[file]).await;
        let node = self.node(file).await?;
        if node.znode.attributes.number(Attr::Xattr).unwrap_or(0) != 0 {
            return Err(Error::Exists(format!("extended attributes of object {file}")));
        }
        let tx = self.begin(|_| Dirtied::new_file()).await?;
        let now = time(object.crtime);
        let made = self.make_as(&node, &tx, &new, ZnodeFlags::XATTR, now, Some(object)).await?;
        let values = Values::default().number(Attr::Xattr, made.id().0).time(Attr::Ctime, now);
        self.update(&node.object, &tx, values).await?;
        self.log_xattr_dir(&tx, &node, made.id()).await
    }

    /// Writes data, of which the file must contain at least `length` bytes. Further bytes exist when a block
    /// was logged as a whole; they are bytes that the block contains already according to later records.
    async fn write_logged(
        &self,
        file: ObjectId,
        offset: u64,
        length: u64,
        data: &[u8],
        applied: &Applied,
    ) -> Result<()> {
        let eof = self.range(file, offset, length)?.end;
        self.range(file, offset, data.len() as u64)?;
        let _content = self.locks.whole(file).await;
        let _locked = self.locks.lock(&[file]).await;
        let mut pieces = data.chunks(PIECE_BYTES).peekable();
        let mut at = offset;
        loop {
            let piece = pieces.next().unwrap_or_default();
            let is_last = pieces.peek().is_none();
            self.journal.applying(Some(if is_last { applied.clone() } else { applied.before() }));
            let node = self.content(file).await?;
            let end = at + piece.len() as u64;
            node.object.prepare_write(at..end).await?;
            let tx = self.begin_writing(&node, at..end, end.max(eof)).await?;
            self.grow(&node, &tx, end.max(eof)).await?;
            node.object.write_at(&tx, at, piece).await?;
            let size = if is_last { eof } else { end.min(eof) };
            self.content_changed(&node, &tx, size.max(node.number(Attr::Size)?)).await?;
            self.log_written(&tx, &node, at, piece.len() as u64)?;
            if is_last {
                return Ok(());
            }
            at = end;
        }
    }

    /// Sets one extended attribute inside a file, or removes it when there is no value. An attribute of the
    /// same name elsewhere belongs to another record.
    async fn set_inner_xattr(&self, file: ObjectId, name: &[u8], value: &[u8]) -> Result<()> {
        let _locked = self.locks.lock(&[file]).await;
        let node = self.node(file).await?;
        let mut list = xattrs::inner(&node)?;
        xattrs::remove(&mut list, name);
        if !value.is_empty() {
            list.push(ByteString::new(name), NvValue::ByteArray(value.into()));
        }
        let values = xattrs::store_inner(Values::default().time(Attr::Ctime, Time::now()), &list)?;
        let tx = self.begin(|_| Dirtied::attributes(value.len() as u64)).await?;
        self.update(&node.object, &tx, values).await?;
        self.log_inner_xattr(&tx, &node, name, Some(value).filter(|value| !value.is_empty()))
    }

    fn logged_node<'a>(&self, kind: NewKind<'a>, object: &LoggedObject) -> Result<NewNode<'a>> {
        let (uid, gid) = (self.posix_id(object.uid)?, self.posix_id(object.gid)?);
        Ok(NewNode { kind, mode: (object.mode & PERMISSIONS) as u32, umask: 0, uid, gid })
    }

    fn posix_id(&self, id: u64) -> Result<u32> {
        u32::try_from(id).map_err(|_| self.unsupported("an owner of a domain"))
    }

    fn unsupported(&self, what: &str) -> Error {
        let objset = self.objset.id();
        Error::Unsupported(format!(
            "the intent log of filesystem {objset} has {what}, which cannot be applied"
        ))
    }

    /// The attributes beyond POSIX in a record, for a file with the flags `old`.
    fn beyond_posix(&self, old: ZnodeFlags, attributes: &record::Attributes) -> Result<SetAttributes> {
        if attributes.has(attribute::AV_SCANSTAMP) {
            return Err(self.unsupported("the stamp of a virus scanner"));
        }
        let mut flags = old.0;
        for (flag, bit) in FLAGS.iter().filter(|(_, bit)| attributes.has(*bit)) {
            let is_set = attributes.bits & u64::from(*bit) != 0;
            flags = if is_set { flags | flag.0 } else { flags & !flag.0 };
        }
        Ok(SetAttributes {
            flags: (flags != old.0).then_some(ZnodeFlags(flags)),
            btime: attributes.has(attribute::CREATETIME).then(|| time(attributes.crtime)),
            project: attributes.project_id(ondisk::ByteOrder::Little),
            ..SetAttributes::default()
        })
    }
}

/// The time in a record.
pub(super) fn time(logged: record::Time) -> Time {
    Time { seconds: logged.seconds, nanoseconds: u32::try_from(logged.nanoseconds).unwrap_or(0) }
}
