//! Removing names. Freeing a file that has none any more costs the same whatever its size.

use ondisk::ObjectId;
use ondisk::sa::Attr;
use ondisk::zpl::Dirent;

use super::log::Named;
use super::nodes::{Node, Values};
use super::{LiveZpl, errno};
use crate::dataset::zpl::Time;
use crate::dmu::zap::{Key, Zap, edit};
use crate::error::Result;
use crate::txg::Tx;

/// Entries of a directory that nobody made: `.` and `..`.
const EMPTY_DIRECTORY: u64 = 2;
/// Most entries of a directory of extended attributes that are looked at.
const MOST_ENTRIES: usize = 1 << 20;

impl LiveZpl {
    /// Removes a name of a file that is no directory.
    pub async fn unlink(&self, dir: ObjectId, name: &[u8]) -> Result<()> {
        let removed = self.remove(dir, name, false).await;
        self.settled(removed).await
    }

    /// Removes an empty directory.
    pub async fn rmdir(&self, dir: ObjectId, name: &[u8]) -> Result<()> {
        let removed = self.remove(dir, name, true).await;
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
        let tx = self.begin_freeing().await?;
        let now = Time::now();
        edit::remove(&parent.object, &tx, &Key::Name(stored.clone())).await?;
        self.directory_changed(&parent, &tx, -1, -i64::from(directory), now).await?;
        let gone = self.lost_name(&node, &tx, now).await?;
        self.log_removed(&tx, Named { dir, name: &stored }, &node, gone);
        Ok(())
    }

    /// A file lost one of its names; true if that was its last.
    pub(super) async fn lost_name(&self, node: &Node, tx: &Tx, now: Time) -> Result<bool> {
        let links = node.number(Attr::Links)?;
        let left = if node.is_directory() { 0 } else { links.saturating_sub(1) };
        if left == 0 {
            if !self.stays(node.id()) {
                self.free_file(node, tx).await?;
                return Ok(true);
            }
            self.objset.put_in_set(tx, self.unlinked_set, node.id().0);
        }
        let values = Values::default().number(Attr::Links, left).time(Attr::Ctime, now);
        self.update(&node.object, tx, values).await?;
        Ok(left == 0)
    }

    /// The objects that a file's extended attributes are in: files, and at last their directory.
    pub(super) async fn xattr_objects(&self, node: &Node) -> Result<Vec<ObjectId>> {
        let Some(id) = node.znode.attributes.number(Attr::Xattr).filter(|id| *id != 0) else {
            return Ok(Vec::new());
        };
        let dir = self.zpl.node(ObjectId(id)).await?;
        let entries = Zap::open(dir.object()).await?.entries(MOST_ENTRIES).await?;
        let files = entries.iter().filter_map(|entry| entry.value.as_u64());
        Ok(files.map(|raw| Dirent::from_raw(raw).object).chain([ObjectId(id)]).collect())
    }

    /// Frees a file and its extended attributes.
    pub(super) async fn free_file(&self, node: &Node, tx: &Tx) -> Result<()> {
        for id in self.xattr_objects(node).await? {
            self.objset.free(tx, id).await?;
        }
        self.objset.free(tx, node.id()).await
    }
}
