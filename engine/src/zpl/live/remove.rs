//! Removing names. A file without names is freed at once, whatever its size, unless it has so many blocks
//! that it is freed in parts ([`super::nameless`]).

use std::sync::Arc;

use ondisk::ObjectId;
use ondisk::dmu::DmuType;
use ondisk::sa::Attr;
use ondisk::zpl::{Dirent, FileType, ZnodeFlags};

use super::log::Named;
use super::nodes::{Node, Values};
use super::{LiveZpl, errno};
use crate::dmu::LiveObject;
use crate::dmu::zap::{Key, Zap, edit};
use crate::error::{Error, Result};
use crate::patience;
use crate::txg::Tx;
use crate::zpl::{Time, Znode};

/// The number of implicit entries of a directory: `.` and `..`.
const EMPTY_DIRECTORY: u64 = 2;
/// The most entries of a directory of extended attributes that are read.
const MOST_ENTRIES: usize = 1 << 20;

impl LiveZpl {
    /// Removes a name of a file that is not a directory.
    pub async fn unlink(&self, dir: ObjectId, name: &[u8]) -> Result<()> {
        let removed = patience::once_changed(self.remove(dir, name, false)).await;
        self.settled(removed).await
    }

    /// Removes an empty directory.
    pub async fn rmdir(&self, dir: ObjectId, name: &[u8]) -> Result<()> {
        let removed = patience::once_changed(self.remove(dir, name, true)).await;
        self.settled(removed).await
    }

    pub(super) async fn remove(&self, dir: ObjectId, name: &[u8], directory: bool) -> Result<()> {
        let mut locked = self.locks.lock(&[dir]).await;
        let mut parent = self.node(dir).await?;
        let (mut stored, mut dirent) = self.require_entry(&parent, name).await?;
        while !locked.has(dirent.object).await {
            let file = dirent.object;
            drop(locked);
            locked = self.locks.lock(&[dir, file]).await;
            // Meanwhile the name may have become another file's.
            parent = self.node(dir).await?;
            (stored, dirent) = self.require_entry(&parent, name).await?;
        }
        let node = self.node(dirent.object).await?;
        parent.require_removable(&node)?;
        match (directory, node.is_directory()) {
            (true, false) => return Err(self.refuse(name, errno::ENOTDIR)),
            (false, true) => return Err(self.refuse(name, errno::EISDIR)),
            _ => {}
        }
        if directory && node.number(Attr::Size)? > EMPTY_DIRECTORY {
            return Err(self.refuse(name, errno::ENOTEMPTY));
        }
        self.prepare_to_lose_name(&node).await?;
        let tx = self.begin_freeing().await?;
        let now = Time::now();
        edit::remove(&parent.object, &tx, &Key::Name(stored.clone())).await?;
        self.directory_changed(&parent, &tx, -1, -i64::from(directory), now).await?;
        let gone = self.lost_name(&node, &tx, now).await?;
        self.log_removed(&tx, Named { dir, name: &stored }, &node, gone);
        Ok(())
    }

    /// Must be called before a group is held in which a file loses a name: it reads the indirect blocks of a
    /// large file without a group. [`LiveZpl::free_file`] reports its errors.
    pub(super) async fn prepare_to_lose_name(&self, node: &Node) -> Result<()> {
        const LEVELS_OF_LARGE: u8 = 3;
        let is_large = node.object.dnode().levels >= LEVELS_OF_LARGE && !node.object.has_parts();
        if is_large && node.number(Attr::Links)? <= 1 {
            let _ = node.object.prepare_free().await;
        }
        Ok(())
    }

    /// A file lost one of its names; true if that was its last.
    pub(super) async fn lost_name(&self, node: &Node, tx: &Tx, now: Time) -> Result<bool> {
        let links = node.number(Attr::Links)?;
        let left = if node.is_directory() { 0 } else { links.saturating_sub(1) };
        if left == 0 {
            self.objset.stats().count_unlink();
            if self.stays(node.id()) {
                // Its last user frees it.
            } else if node.object.has_parts() {
                self.free_later(node.id());
            } else {
                match self.free_file(node, tx).await {
                    Ok(()) => return Ok(true),
                    Err(error) => self.left_unlinked(node.id(), &error),
                }
            }
            self.objset.put_in_set(tx, self.unlinked_set, node.id().0);
        }
        let values = Values::default().number(Attr::Links, left).time(Attr::Ctime, now);
        self.update(&node.object, tx, values).await?;
        Ok(left == 0)
    }

    /// The objects of a file's extended attributes: files, and finally their directory.
    pub(super) async fn xattr_objects(&self, node: &Node) -> Result<Vec<ObjectId>> {
        Ok(self.open_xattrs(&node.znode).await?.iter().map(|object| object.id()).collect())
    }

    /// Frees a file and its extended attributes: all of them or, on an error, nothing. The steps that can
    /// fail come first: reading their attributes and their indirect blocks.
    pub(super) async fn free_file(&self, node: &Node, tx: &Tx) -> Result<()> {
        let xattrs = self.open_xattrs(&node.znode).await?;
        for object in xattrs.iter().chain([&node.object]) {
            // Without these the file is left for later.
            patience::failing(object.prepare_free()).await?;
        }
        for object in xattrs {
            self.free_if_there(object.id(), tx).await?;
        }
        if let Some(acl) = self.acl_object(&node.znode) {
            self.free_if_there(acl, tx).await?;
        }
        self.objset.free(tx, node.id()).await?;
        self.objset.stats().count_unlinked();
        Ok(())
    }

    /// Frees an object. An object with two names is freed once.
    async fn free_if_there(&self, id: ObjectId, tx: &Tx) -> Result<()> {
        match self.objset.free(tx, id).await {
            Err(Error::NotFound(_)) => Ok(()),
            freed => freed,
        }
    }

    /// The objects of a file's extended attributes, held open. For a directory of attributes that lost its
    /// file (OpenZFS puts such directories into the unlinked set), the objects of its entries.
    async fn open_xattrs(&self, node: &Znode) -> Result<Vec<Arc<LiveObject>>> {
        if node.file_type() == FileType::Directory && is_xattr(node) {
            return self.open_entries(node).await;
        }
        let Some(id) = node.attributes.number(Attr::Xattr).filter(|id| *id != 0) else {
            return Ok(Vec::new());
        };
        let Some((object, dir)) = self.open_xattr(ObjectId(id), node.id()).await? else {
            return Ok(Vec::new());
        };
        let mut opened = match dir.file_type() {
            FileType::Directory => self.open_entries(&dir).await?,
            _ => Vec::new(),
        };
        opened.push(object);
        Ok(opened)
    }

    async fn open_entries(&self, dir: &Znode) -> Result<Vec<Arc<LiveObject>>> {
        let mut opened = Vec::new();
        for entry in Zap::open(dir.object()).await?.entries(MOST_ENTRIES).await? {
            if let Some(raw) = entry.value.as_u64()
                && let Some((object, _)) = self.open_xattr(Dirent::from_raw(raw).object, dir.id()).await?
            {
                opened.push(object);
            }
        }
        Ok(opened)
    }

    /// An object of the extended attributes of `owner`. `None` when it is gone, or its number belongs to
    /// another file: that is reported, and the object left alone.
    async fn open_xattr(&self, id: ObjectId, owner: ObjectId) -> Result<Option<(Arc<LiveObject>, Znode)>> {
        let object = match self.objset.object(id).await {
            Err(Error::NotFound(_)) => return Ok(None),
            object => object?,
        };
        if [DmuType::SA, DmuType::ZNODE].contains(&object.dnode().bonus_type) {
            let node = self.zpl.node(id).await?;
            if is_xattr(&node) && node.attributes.number(Attr::Parent) == Some(owner.0) {
                return Ok(Some((object, node)));
            }
        }
        let objset = self.objset.id();
        tracing::warn!(%objset, object = id.0, owner = owner.0, "not an extended attribute of its owner: it stays");
        Ok(None)
    }
}

/// Whether it is a file, or the directory, of extended attributes.
fn is_xattr(node: &Znode) -> bool {
    node.attributes.number(Attr::Flags).is_some_and(|flags| ZnodeFlags(flags).contains(ZnodeFlags::XATTR))
}
