//! Extended attributes.
//!
//! With `xattr=sa` they are an nvlist in the system attribute `ZPL_DXATTR`, as long as each is at most 32 KiB
//! and all together less than 64 KiB. Others, and all with `xattr=dir`, are files in a directory that belongs
//! to the file. A name exists at most once: setting it in one place removes it from the other.
//!
//! Source: behaviour of OpenZFS 2.3 `zpl_xattr.c`.

use ondisk::ObjectId;
use ondisk::dmu::DmuType;
use ondisk::nvlist::{ByteString, Encoding, NvValue, Nvlist, UNIQUE_NAME};
use ondisk::sa::Attr;
use ondisk::zil::Record;
use ondisk::zpl::{Dirent, FileType, ZnodeFlags};

use super::log::Named;
use super::names::{NewKind, NewNode};
use super::nodes::{Node, Values};
use super::{LiveZpl, errno};
use crate::dmu::Dirtied;
use crate::dmu::zap::{Key, edit};
use crate::error::{Error, Result};
use crate::patience;
use crate::range_locks::Access;
use crate::txg::Tx;
use crate::zpl::Time;

/// The largest value in the attributes of a file (`DXATTR_MAX_ENTRY_SIZE`).
const MAX_INNER_VALUE: usize = 32 << 10;
/// The most bytes of all values there, packed (`DXATTR_MAX_SA_SIZE`).
const MAX_INNER_BYTES: usize = (64 << 10) - 1;
/// The largest value at all (Linux's own limit).
const MAX_VALUE: usize = 64 << 10;
/// The mode of the directory: sticky, all permissions.
const DIRECTORY_MODE: u32 = 0o1777;
const FILE_MODE: u32 = 0o644;

/// The place of new extended attributes: the property `xattr`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum XattrPlace {
    /// `sa`: into the attributes of the file, if they fit.
    Attributes,
    /// `dir`: into a directory.
    Directory,
}

/// Which extended attributes may be set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum XattrSet {
    /// Any.
    Any,
    /// One that does not exist.
    Create,
    /// One that exists.
    Replace,
}

impl LiveZpl {
    /// Sets the extended attribute with this stored name. The mode follows an ACL.
    pub async fn set_xattr(
        &self,
        file: ObjectId,
        name: &[u8],
        value: &[u8],
        how: XattrSet,
        place: XattrPlace,
    ) -> Result<()> {
        let set = match self.is_acl(name) {
            true => patience::once_changed(self.set_acl(file, name, value)).await,
            false => patience::once_changed(self.store_xattr(file, name, value, how, place)).await,
        };
        self.settled(set).await
    }

    pub(super) async fn store_xattr(
        &self,
        file: ObjectId,
        name: &[u8],
        value: &[u8],
        how: XattrSet,
        place: XattrPlace,
    ) -> Result<()> {
        if value.len() > MAX_VALUE {
            return Err(self.refuse(name, errno::E2BIG));
        }
        if name.is_empty() || name.len() > 255 || name.contains(&0) {
            return Err(self.refuse(name, errno::EINVAL));
        }
        let _locked = self.locks.lock(&[file]).await;
        let node = self.node(file).await?;
        node.require_changeable()?;
        let place = self.place_for(&node.znode, place);
        let mut list = inner(&node)?;
        let dir = self.xattr_dir(&node).await?;
        let outer = match &dir {
            Some(dir) => self.entry(dir, name).await?,
            None => None,
        };
        let exists = list.get_bytes(name).is_some() || outer.is_some();
        match how {
            XattrSet::Create if exists => {
                return Err(Error::Exists(String::from_utf8_lossy(name).into_owned()));
            }
            XattrSet::Replace if !exists => return Err(self.refuse(name, errno::ENODATA)),
            _ => {}
        }
        let had_inner = remove(&mut list, name);
        let packed = (place == XattrPlace::Attributes && value.len() <= MAX_INNER_VALUE)
            .then(|| {
                let mut list = list.clone();
                list.push(ByteString::new(name), NvValue::ByteArray(value.into()));
                list.encode(Encoding::Xdr)
            })
            .transpose()
            .map_err(Error::format("extended attributes"))?
            .filter(|packed| packed.len() <= MAX_INNER_BYTES);
        let tx = self.begin(|_| Dirtied::attributes(value.len() as u64)).await?;
        let now = Time::now();
        if let Some(packed) = packed {
            let values = Values::default().bytes(Attr::Dxattr, &packed).time(Attr::Ctime, now);
            self.update(&node.object, &tx, values).await?;
            self.log_inner_xattr(&tx, &node, name, Some(value))?;
            if let (Some(dir), Some((stored, dirent))) = (&dir, outer) {
                // Any `fsync` makes the removal of the old value stable; the new value must be stable no
                // later.
                self.log_ordered(&tx, &node);
                self.drop_outer(&node, dir, &tx, stored, dirent, now).await?;
            }
            return Ok(());
        }
        let mut values = Values::default().time(Attr::Ctime, now);
        if had_inner {
            values = store_inner(values, &list)?;
        }
        let dir = match dir {
            Some(dir) => dir,
            None => {
                let new = self.xattr_node(&node, NewKind::Directory, DIRECTORY_MODE)?;
                let made = self.make(&node, &tx, &new, ZnodeFlags::XATTR, now).await?;
                values = values.number(Attr::Xattr, made.id().0);
                self.log_xattr_dir(&tx, &node, made.id()).await?;
                self.node(made.id()).await?
            }
        };
        self.update(&node.object, &tx, values).await?;
        let target = match outer {
            Some((_, dirent)) => dirent.object,
            None => {
                let new = self.xattr_node(&node, NewKind::Regular, FILE_MODE)?;
                let made = self.make(&dir, &tx, &new, ZnodeFlags::XATTR, now).await?;
                let dirent = Dirent { object: made.id(), file_type: Some(FileType::Regular) };
                self.add_entry(&dir.object, &tx, name, dirent).await?;
                self.directory_changed(&dir, &tx, 1, 0, now).await?;
                self.log_xattr_file(&tx, &node, Named { dir: dir.id(), name }, made.id()).await?;
                made.id()
            }
        };
        self.replace_content(target, &tx, value).await?;
        self.log_content(&node, &tx, target, value)?;
        if had_inner {
            // Any `fsync` makes the new value stable; then the old one must be removed too, so that it does
            // not come back.
            self.log_inner_xattr(&tx, &node, name, None)?;
            self.log_ordered(&tx, &node);
        }
        Ok(())
    }

    /// The value of the extended attribute `name`. Sees all of a change or nothing of it. Costs little if the
    /// file has none.
    pub async fn xattr(&self, file: ObjectId, name: &[u8]) -> Result<Option<Vec<u8>>> {
        if self.has_no_xattrs(file).await {
            return Ok(None);
        }
        let _locked = self.locks.describe(file, Access::Shared).await;
        self.zpl.node(file).await?.xattr(name).await
    }

    /// The names of all extended attributes. See [`LiveZpl::xattr`].
    pub async fn list_xattrs(&self, file: ObjectId) -> Result<Vec<Vec<u8>>> {
        if self.has_no_xattrs(file).await {
            return Ok(Vec::new());
        }
        let _locked = self.locks.describe(file, Access::Shared).await;
        self.zpl.node(file).await?.list_xattrs().await
    }

    /// Whether a file certainly has no extended attributes now; takes no lock.
    async fn has_no_xattrs(&self, file: ObjectId) -> bool {
        match self.objset.object(file).await {
            Ok(object) if object.bonus_type() == DmuType::SA => {
                let inside = [Attr::Dxattr, Attr::Xattr];
                self.registry().is_ok_and(|registry| registry.has_none(&object, &inside))
            }
            _ => false,
        }
    }

    /// Removes the extended attribute with this stored name.
    pub async fn remove_xattr(&self, file: ObjectId, name: &[u8]) -> Result<()> {
        let removed = patience::once_changed(self.remove_one_xattr(file, name)).await;
        self.settled(removed).await
    }

    pub(super) async fn remove_one_xattr(&self, file: ObjectId, name: &[u8]) -> Result<()> {
        let _locked = self.locks.lock(&[file]).await;
        let node = self.node(file).await?;
        node.require_changeable()?;
        let mut list = inner(&node)?;
        let dir = self.xattr_dir(&node).await?;
        let now = Time::now();
        let mut values = Values::default().time(Attr::Ctime, now);
        if remove(&mut list, name) {
            values = store_inner(values, &list)?;
            let tx = self.begin_freeing().await?;
            self.update(&node.object, &tx, values).await?;
            return self.log_inner_xattr(&tx, &node, name, None);
        }
        let outer = match &dir {
            Some(dir) => self.entry(dir, name).await?,
            None => None,
        };
        let (Some(dir), Some((stored, dirent))) = (dir, outer) else {
            return Err(self.refuse(name, errno::ENODATA));
        };
        let tx = self.begin_freeing().await?;
        self.drop_outer(&node, &dir, &tx, stored, dirent, now).await?;
        self.update(&node.object, &tx, values).await
    }

    async fn xattr_dir(&self, node: &Node) -> Result<Option<Node>> {
        match node.znode.attributes.number(Attr::Xattr).unwrap_or(0) {
            0 => Ok(None),
            id => self.node(ObjectId(id)).await.map(Some),
        }
    }

    /// The description of a new file or directory that belongs to the owner of `node`.
    fn xattr_node<'a>(&self, node: &Node, kind: NewKind<'a>, mode: u32) -> Result<NewNode<'a>> {
        let (uid, gid) = (node.number(Attr::Uid)? as u32, node.number(Attr::Gid)? as u32);
        Ok(NewNode { kind, mode, umask: 0, uid, gid })
    }

    async fn drop_outer(
        &self,
        owner: &Node,
        dir: &Node,
        tx: &Tx,
        stored: Vec<u8>,
        dirent: Dirent,
        now: Time,
    ) -> Result<()> {
        self.objset.object(dirent.object).await?.prepare_free().await?;
        edit::remove(&dir.object, tx, &Key::Name(stored.clone())).await?;
        self.directory_changed(dir, tx, -1, 0, now).await?;
        self.objset.free(tx, dirent.object).await?;
        self.log_named(owner, tx, &Record::Remove { directory: dir.id(), name: &stored })
    }

    /// Replaces the content of a small file.
    async fn replace_content(&self, file: ObjectId, tx: &Tx, content: &[u8]) -> Result<()> {
        let node = self.node(file).await?;
        node.object.prepare_punch(0..u64::MAX).await?;
        node.object.punch(tx, 0, u64::MAX).await?;
        self.grow(&node, tx, content.len() as u64).await?;
        node.object.write_at(tx, 0, content).await?;
        self.content_changed(&node, tx, content.len() as u64).await
    }
}

/// The extended attributes that are stored in the attributes of the file.
pub(super) fn inner(node: &Node) -> Result<Nvlist> {
    match node.znode.attributes.bytes(Attr::Dxattr).filter(|packed| !packed.is_empty()) {
        Some(packed) => Nvlist::parse(packed).map_err(|error| node.object.corrupt(error)),
        None => {
            let mut list = Nvlist::new();
            list.flags = UNIQUE_NAME;
            Ok(list)
        }
    }
}

/// Removes a name; returns false when it does not exist.
pub(super) fn remove(list: &mut Nvlist, name: &[u8]) -> bool {
    let found = list.get_bytes(name).is_some();
    if found {
        let mut rest = Nvlist::new();
        rest.flags = list.flags;
        for (other, value) in list.iter().filter(|(other, _)| other.as_bytes() != name) {
            rest.push(other.clone(), value.clone());
        }
        *list = rest;
    }
    found
}

pub(super) fn store_inner(values: Values, list: &Nvlist) -> Result<Values> {
    if list.is_empty() {
        return Ok(values.without(Attr::Dxattr));
    }
    let packed = list.encode(Encoding::Xdr).map_err(Error::format("extended attributes"))?;
    Ok(values.bytes(Attr::Dxattr, &packed))
}
