//! Entries of directories: looking up, listing, creating, linking.

use std::sync::Arc;

use ondisk::ObjectId;
use ondisk::accounting::Counted;
use ondisk::dmu::DmuType;
use ondisk::sa::Attr;
use ondisk::zil::record::{self, NewObject as LoggedObject};
use ondisk::zpl::{Dirent, FileType, ZnodeFlags};

use super::acls::Inherited;
use super::log::Named;
use super::nodes::{Node, Values};
use super::quotas::Owners;
use super::replay::time;
use super::{LiveZpl, errno};
use crate::dmu::zap::{Key, Match, Value, Zap, edit};
use crate::dmu::{LiveObject, NewObject};
use crate::error::{Error, Result};
use crate::patience;
use crate::txg::Tx;
use crate::zpl::nfs4::Subject;
use crate::zpl::{CaseSensitivity, DirEntry, LONGEST_NAME, Time};

/// The block size of a file before it has content.
const FIRST_BLOCK_BYTES: u32 = 512;
/// The longest target of a symbolic link (`MAXPATHLEN`).
const MAX_TARGET: usize = 4096;
const SETGID: u32 = 0o2000;

/// The kind of a new file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NewKind<'a> {
    /// A regular file.
    Regular,
    /// A directory.
    Directory,
    /// A symbolic link to this target.
    Symlink(&'a [u8]),
    /// A fifo, socket or device, with the device number as the kernel encodes it.
    Special(FileType, u64),
}

/// The description of a new file.
#[derive(Debug, Clone, Copy)]
pub struct NewNode<'a> {
    /// Its kind.
    pub kind: NewKind<'a>,
    /// Permission bits.
    pub mode: u32,
    /// Bits to clear in `mode`, unless the directory has a default ACL, which then limits it.
    pub umask: u32,
    /// Owner.
    pub uid: u32,
    /// Group, unless the directory passes its own on (set-group-id).
    pub gid: u32,
}

impl NewNode<'_> {
    fn file_type(&self) -> FileType {
        match self.kind {
            NewKind::Regular => FileType::Regular,
            NewKind::Directory => FileType::Directory,
            NewKind::Symlink(_) => FileType::Symlink,
            NewKind::Special(file_type, _) => file_type,
        }
    }
}

impl LiveZpl {
    /// The object with the name `name` in a directory.
    pub async fn lookup(&self, dir: ObjectId, name: &[u8]) -> Result<Option<ObjectId>> {
        let _locked = self.locks.lock(&[dir]).await;
        self.zpl.node(dir).await?.lookup(name).await
    }

    /// Up to `limit` entries of a directory from `cookie` on; 0 is the beginning.
    pub async fn read_dir(&self, dir: ObjectId, cookie: u64, limit: usize) -> Result<Vec<DirEntry>> {
        let _locked = self.locks.lock(&[dir]).await;
        let mut cursor = self.zpl.node(dir).await?.read_dir(cookie).await?;
        let mut found = Vec::new();
        while found.len() < limit
            && let Some(entry) = cursor.next().await?
        {
            found.push(entry);
        }
        Ok(found)
    }

    /// Refuses names that a new entry cannot get. An existing longer name from the time when `longname` was
    /// on stays.
    pub(super) fn check_new_name(&self, name: &[u8]) -> Result<()> {
        if name.len() > self.zpl.max_name() as usize {
            return Err(self.refuse(name, errno::ENAMETOOLONG));
        }
        self.check_name(name)
    }

    /// Refuses names that no entry can have.
    pub(super) fn check_name(&self, name: &[u8]) -> Result<()> {
        if name.len() > LONGEST_NAME as usize {
            return Err(self.refuse(name, errno::ENAMETOOLONG));
        }
        if name.is_empty() || name == b"." || name == b".." || name.contains(&0) || name.contains(&b'/') {
            return Err(self.refuse(name, errno::EINVAL));
        }
        if self.zpl.utf8_only() && std::str::from_utf8(name).is_err() {
            return Err(self.refuse(name, errno::EILSEQ));
        }
        Ok(())
    }

    /// The entry of a name in a directory whose lock is held: the stored name, and its object.
    pub(super) async fn entry(&self, dir: &Node, name: &[u8]) -> Result<Option<(Vec<u8>, Dirent)>> {
        if !dir.is_directory() {
            return Err(self.refuse(name, errno::ENOTDIR));
        }
        let zap = Zap::open(dir.znode.object()).await?;
        let rules = self.zpl.name_rules();
        let found = if rules.is_exact() {
            zap.lookup(name).await?.map(|value| (name.to_vec(), value))
        } else {
            let how = match self.zpl.case_sensitivity() {
                CaseSensitivity::Mixed => Match::NormalizedCase,
                _ => Match::Normalized,
            };
            zap.lookup_normalized(name, how).await?.map(|found| (found.name, found.value))
        };
        let Some((stored, value)) = found else { return Ok(None) };
        let number = value.as_u64().ok_or_else(|| dir.object.corrupt("an entry that is not a number"))?;
        Ok(Some((stored, Dirent::from_raw(number))))
    }

    /// The entry of a name, which must be there.
    pub(super) async fn require_entry(&self, dir: &Node, name: &[u8]) -> Result<(Vec<u8>, Dirent)> {
        let found = self.entry(dir, name).await?;
        found.ok_or_else(|| Error::NotFound(String::from_utf8_lossy(name).into_owned()))
    }

    /// Adds an entry for a file with a name that is free in a directory.
    pub(super) async fn add_entry(
        &self,
        dir: &Arc<LiveObject>,
        tx: &Tx,
        name: &[u8],
        to: Dirent,
    ) -> Result<()> {
        let to = self.entry_for(to);
        let added = edit::insert(dir, tx, &Key::Name(name.to_vec()), &Value::U64(vec![to.to_raw()])).await?;
        if added { Ok(()) } else { Err(Error::Exists(String::from_utf8_lossy(name).into_owned())) }
    }

    /// Creates a file, directory, link or device.
    pub async fn create(&self, dir: ObjectId, name: &[u8], new: &NewNode<'_>) -> Result<ObjectId> {
        let created = patience::once_changed(self.create_entry(dir, name, new)).await;
        self.settled(created).await
    }

    async fn create_entry(&self, dir: ObjectId, name: &[u8], new: &NewNode<'_>) -> Result<ObjectId> {
        self.check_new_name(name)?;
        if let NewKind::Symlink(target) = new.kind
            && (target.is_empty() || target.len() >= MAX_TARGET)
        {
            return Err(
                self.refuse(name, if target.is_empty() { errno::EINVAL } else { errno::ENAMETOOLONG })
            );
        }
        self.create_as(Named { dir, name }, new, None).await
    }

    /// Creates a file; during a replay, as it was logged.
    pub(super) async fn create_as(
        &self,
        at: Named<'_>,
        new: &NewNode<'_>,
        logged: Option<(&LoggedObject, Option<&record::Attributes>)>,
    ) -> Result<ObjectId> {
        let Named { dir, name } = at;
        let locked = self.locks.lock(&[dir]).await;
        let parent = self.node(dir).await?;
        if parent.number(Attr::Links)? == 0 {
            return Err(Error::NotFound(format!("directory {dir}")));
        }
        if self.entry(&parent, name).await?.is_some() {
            return Err(Error::Exists(String::from_utf8_lossy(name).into_owned()));
        }
        parent.require_addable()?;
        let inherited = match logged {
            None => {
                let owners = self.owners_of_new(&parent, new)?;
                self.require_quota(owners, &[Counted::Bytes, Counted::Objects]).await?;
                self.inherit(&parent, new).await?
            }
            Some(_) => Inherited { mode: new.mode, xattrs: None },
        };
        let new = &NewNode { mode: inherited.mode, ..*new };
        let tx = self.begin_naming(&[&parent]).await?;
        let now = Time::now();
        let object =
            self.make_as(&parent, &tx, new, ZnodeFlags(0), now, logged.map(|(object, _)| object)).await?;
        let dirent = Dirent { object: object.id(), file_type: Some(new.file_type()) };
        if let Err(error) = self.add_entry(&parent.object, &tx, name, dirent).await {
            self.objset.free(&tx, object.id()).await?;
            return Err(error);
        }
        if let Some((_, Some(attributes))) = logged {
            let values = self.logged_attributes(&self.node(object.id()).await?, attributes)?;
            self.update(&object, &tx, values).await?;
        }
        if inherited.xattrs.is_some() || parent.passes_acl_on()? {
            self.log_inherited(&tx);
        }
        let (inside, outside) = match self.has_system_attributes() {
            true => (inherited.xattrs, None),
            false => (None, inherited.xattrs),
        };
        if let Some(xattrs) = inside {
            self.update(&object, &tx, Values::default().bytes(Attr::Dxattr, &xattrs)).await?;
        }
        let links = i64::from(new.kind == NewKind::Directory);
        self.directory_changed(&parent, &tx, 1, links, now).await?;
        let target = match new.kind {
            NewKind::Symlink(target) => Some(target),
            _ => None,
        };
        self.log_created(&tx, at, object.id(), target).await?;
        drop((tx, locked));
        if let Some(xattrs) = outside {
            self.store_inherited(object.id(), &xattrs).await?;
        }
        Ok(object.id())
    }

    /// Creates the object of a file that has no name yet.
    pub(super) async fn make(
        &self,
        parent: &Node,
        tx: &Tx,
        new: &NewNode<'_>,
        extra: ZnodeFlags,
        now: Time,
    ) -> Result<Arc<LiveObject>> {
        self.make_as(parent, tx, new, extra, now, None).await
    }

    /// The same; during a replay, as it was logged. [`Error::Busy`] when the number is not free; then nothing
    /// was changed.
    pub(super) async fn make_as(
        &self,
        parent: &Node,
        tx: &Tx,
        new: &NewNode<'_>,
        extra: ZnodeFlags,
        now: Time,
        logged: Option<&LoggedObject>,
    ) -> Result<Arc<LiveObject>> {
        let is_directory = new.kind == NewKind::Directory;
        let slots = match logged {
            Some(object) => u8::try_from(object.dnode_slots()).unwrap_or(u8::MAX),
            None if !self.has_system_attributes() => 1,
            None => self.dnode_slots(),
        };
        let (bonus_type, bonus) = self.new_bonus();
        let allocate = async |new: NewObject| match logged {
            Some(object) => self.objset.claim(tx, object.object(), new).await,
            None => self.objset.allocate(tx, new).await,
        };
        let object = if is_directory {
            let zap = edit::NewZap {
                normalization: self.zpl.name_rules().flags(),
                ..edit::NewZap::of(DmuType::DIRECTORY_CONTENTS)
            };
            let new = NewObject { bonus_type, bonus, slots, ..zap.object() };
            let object = allocate(new).await?;
            edit::initialize(&object, tx, zap).await?;
            object
        } else {
            let new = NewObject {
                dmu_type: DmuType::PLAIN_FILE_CONTENTS,
                block_size: FIRST_BLOCK_BYTES,
                bonus_type,
                bonus,
                slots,
            };
            allocate(new).await?
        };
        let mut mode = new.mode & 0o7777;
        let mut gid = self.group_of_new(parent, new)?;
        if parent.znode.mode() & SETGID != 0 && is_directory {
            mode |= SETGID;
        }
        let (mut now, mut generation) = (now, tx.txg().get());
        if let Some(object) = logged {
            (mode, gid) = (new.mode & 0o7777, new.gid.into());
            (now, generation) = (time(object.crtime), object.generation);
        }
        let mode = u32::from(new.file_type().raw()) << 12 | mode;
        let file = Subject { kind: new.file_type(), mode, owner: new.uid.into(), group: gid };
        let acl = self.acl_of_new(parent, file).await?;
        let inherited = parent.flags()?;
        let mut flags = ZnodeFlags::ARCHIVE.0 | ZnodeFlags::AV_MODIFIED.0 | extra.0;
        flags = acl.flags_after(flags | inherited.0 & ZnodeFlags::XATTR.0);
        let project = Some(self.project_of_new(parent)?);
        let has_projects = self.has_system_attributes() && self.objset.counts_projects();
        let project = project.filter(|project| *project != 0 || has_projects);
        if project.is_some() {
            flags |= ZnodeFlags::PROJID.0;
        }
        if is_directory || new.kind == NewKind::Regular {
            flags |= inherited.0 & ZnodeFlags::PROJINHERIT.0;
        }
        let size = match new.kind {
            NewKind::Directory => 2,
            NewKind::Symlink(target) => target.len() as u64,
            _ => 0,
        };
        let (count, aces) = acl.stored()?;
        let mut values = Values::default()
            .number(Attr::Mode, acl.mode.into())
            .number(Attr::Size, size)
            .number(Attr::Gen, generation)
            .number(Attr::Uid, new.uid.into())
            .number(Attr::Gid, gid)
            .number(Attr::Parent, parent.id().0)
            .number(Attr::Flags, flags)
            .time(Attr::Atime, now)
            .time(Attr::Mtime, now)
            .time(Attr::Ctime, now)
            .time(Attr::Crtime, now)
            .number(Attr::Links, if is_directory { 2 } else { 1 });
        if let Some(project) = project {
            values = values.number(Attr::ProjectId, project);
        }
        if let NewKind::Special(FileType::CharDevice | FileType::BlockDevice, device) = new.kind {
            values = values.number(Attr::Rdev, device);
        }
        values = values.number(Attr::DaclCount, count).bytes(Attr::DaclAces, &aces);
        if let NewKind::Symlink(target) = new.kind {
            values = values.bytes(Attr::Symlink, target);
        }
        self.fill(&object, tx, values).await?;
        Ok(object)
    }

    /// The owners for whose quotas new files in a directory count.
    pub(super) fn owners_of_new(&self, parent: &Node, new: &NewNode<'_>) -> Result<Owners> {
        let project = Some(self.project_of_new(parent)?).filter(|project| *project != 0);
        let group = self.group_of_new(parent, new)?;
        Ok(Owners { user: Some(new.uid.into()), group: Some(group), project })
    }

    /// The project of new files in a directory, 0 for none.
    fn project_of_new(&self, parent: &Node) -> Result<u64> {
        Ok(if parent.flags()?.contains(ZnodeFlags::PROJINHERIT) { parent.project()? } else { 0 })
    }

    fn group_of_new(&self, parent: &Node, new: &NewNode<'_>) -> Result<u64> {
        Ok(if parent.znode.mode() & SETGID != 0 { parent.number(Attr::Gid)? } else { new.gid.into() })
    }

    /// Fails when a file of another project would get into a directory that accepts only its own project.
    pub(super) fn require_project(&self, dir: &Node, file: &Node, name: &[u8]) -> Result<()> {
        let apart = dir.flags()?.contains(ZnodeFlags::PROJINHERIT) && dir.project()? != file.project()?;
        if apart && !file.is_replayed {
            return Err(self.refuse(name, errno::EXDEV));
        }
        Ok(())
    }

    /// Gives a file one more name; its first, if it was created without one and may have one.
    pub async fn link(&self, file: ObjectId, dir: ObjectId, name: &[u8]) -> Result<()> {
        let linked = patience::once_changed(self.link_entry(file, dir, name)).await;
        self.settled(linked).await
    }

    pub(super) async fn link_entry(&self, file: ObjectId, dir: ObjectId, name: &[u8]) -> Result<()> {
        self.check_new_name(name)?;
        let _locked = self.locks.lock(&[dir, file]).await;
        let (parent, node) = (self.node(dir).await?, self.node(file).await?);
        if node.is_directory()
            || node.flags()?.0 & ZnodeFlags::XATTR.0 != parent.flags()?.0 & ZnodeFlags::XATTR.0
        {
            return Err(self.refuse(name, errno::EPERM));
        }
        parent.require_addable()?;
        node.require_linkable()?;
        self.require_project(&parent, &node, name)?;
        let links = node.number(Attr::Links)?;
        let is_first = links == 0 && self.is_linkable(file);
        if links == 0 && !is_first || parent.number(Attr::Links)? == 0 {
            return Err(Error::NotFound(format!("object {file}")));
        }
        if self.entry(&parent, name).await?.is_some() {
            return Err(Error::Exists(String::from_utf8_lossy(name).into_owned()));
        }
        let tx = self.begin_naming(&[&parent]).await?;
        let now = Time::now();
        let dirent = Dirent { object: file, file_type: Some(node.znode.file_type()) };
        self.add_entry(&parent.object, &tx, name, dirent).await?;
        let values = Values::default()
            .number(Attr::Links, links + 1)
            .number(Attr::Parent, dir.0)
            .time(Attr::Ctime, now);
        self.update(&node.object, &tx, values).await?;
        if is_first {
            self.got_name(file, &tx);
        }
        self.directory_changed(&parent, &tx, 1, 0, now).await?;
        self.log_linked(&tx, Named { dir, name }, &node)
    }
}
