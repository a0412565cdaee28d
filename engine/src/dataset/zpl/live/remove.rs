//! Removing names; files that have none any more.
//!
//! A file that loses its last name is freed, unless somebody has it open: then it goes into the *unlinked set*, a ZAP of object numbers, and
//! is freed by the last who closes it, or when the filesystem is opened after a crash. Freeing costs the same for a file of any size.
//!
//! # Files that a kernel knows
//! A kernel that the filesystem is served to knows files that nobody has open: the working directory of a process, what was opened with `O_PATH`, what is just about to be
//! opened. Any that loses its last name is known at that moment. So with [`LiveZpl::remember_unlinked`] it stays until [`LiveZpl::forget`].

use std::sync::Arc;
use std::sync::atomic::Ordering;

use futures_util::lock::Mutex as AsyncMutex;
use ondisk::ObjectId;
use ondisk::sa::Attr;
use ondisk::zpl::Dirent;

use super::log::Named;
use super::nodes::{Node, Values};
use super::{LiveZpl, Opened, errno};
use crate::dataset::zpl::Time;
use crate::dmu::LiveObjset;
use crate::dmu::zap::{Key, Value, Zap, edit};
use crate::error::{Error, Result};
use crate::txg::Tx;

/// Entries of a directory that nobody made: `.` and `..`.
const EMPTY_DIRECTORY: u64 = 2;
/// Most entries of a directory of extended attributes, or of the unlinked set, that are looked at.
const MOST_ENTRIES: usize = 1 << 20;

/// The unlinked set. Files of all directories come and go at the same time, so it has a lock of its own, which is taken last.
#[derive(Debug)]
pub(super) struct UnlinkedSet {
    id: ObjectId,
    changing: AsyncMutex<()>,
}

impl UnlinkedSet {
    pub(super) fn new(id: ObjectId) -> Self {
        Self { id, changing: AsyncMutex::new(()) }
    }

    async fn add(&self, objset: &Arc<LiveObjset>, tx: &Tx, file: ObjectId) -> Result<()> {
        let set = objset.object(self.id).await?;
        let _changing = self.changing.lock().await;
        edit::insert(&set, tx, &unlinked_key(file), &Value::U64(vec![file.0])).await.map(drop)
    }

    async fn remove(&self, objset: &Arc<LiveObjset>, tx: &Tx, key: &Key) -> Result<()> {
        let set = objset.object(self.id).await?;
        let _changing = self.changing.lock().await;
        edit::remove(&set, tx, key).await.map(drop)
    }
}

impl LiveZpl {
    /// Says that somebody has a file open: it is not freed before [`LiveZpl::close`].
    pub fn hold(&self, file: ObjectId) {
        self.opened().entry(file.0).or_default().count += 1;
    }

    /// From now on somebody knows files by number: those that lose their last name stay until [`LiveZpl::forget`], or [`LiveZpl::forget_all`].
    pub fn remember_unlinked(&self) {
        self.remember.fetch_add(1, Ordering::AcqRel);
    }

    /// A file is not known any more; it is freed if it has no name and is not open.
    pub async fn forget(&self, file: ObjectId) -> Result<()> {
        let is_remembered = match self.opened().get_mut(&file.0) {
            Some(state) => std::mem::take(&mut state.remembered),
            None => false,
        };
        if is_remembered { self.close(file, 1).await } else { Ok(()) }
    }

    /// One who knew files by number is gone; when it was the last, no file is known any more.
    pub async fn forget_all(&self) -> Result<()> {
        if self.remember.fetch_sub(1, Ordering::AcqRel) > 1 {
            return Ok(());
        }
        let known: Vec<u64> = {
            let opened = self.opened();
            opened.iter().filter(|(_, state)| state.remembered).map(|(file, _)| *file).collect()
        };
        for file in known {
            self.forget(ObjectId(file)).await?;
        }
        Ok(())
    }

    /// `count` fewer have a file open. The last one frees it if it has no name.
    pub async fn close(&self, file: ObjectId, count: u64) -> Result<()> {
        let last = {
            let mut opened = self.opened();
            let Some(state) = opened.get_mut(&file.0) else { return Ok(()) };
            state.count = state.count.saturating_sub(count);
            let last = state.count == 0 && state.unlinked;
            if state.count == 0 {
                opened.remove(&file.0);
            }
            last
        };
        if !last {
            return Ok(());
        }
        let _locked = self.locks.lock(&[file]).await;
        let node = self.node(file).await?;
        let tx = self.begin_freeing().await?;
        self.unlinked_set.remove(&self.objset, &tx, &unlinked_key(file)).await?;
        self.free_file(&node, &tx).await
    }

    /// Frees the files in the unlinked set: nobody has them open yet.
    pub(super) async fn free_unlinked(&self) -> Result<()> {
        let set = Zap::open(&self.objset.view().object(self.unlinked_set.id).await?).await?;
        for entry in set.entries(MOST_ENTRIES).await? {
            let Some(id) = entry.value.as_u64().map(ObjectId) else { continue };
            let tx = self.begin_freeing().await?;
            match self.node(id).await {
                Ok(node) => self.free_file(&node, &tx).await?,
                Err(Error::NotFound(_)) => {}
                Err(error) => return Err(error),
            }
            self.unlinked_set.remove(&self.objset, &tx, &entry.key).await?;
        }
        Ok(())
    }

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
            self.unlinked_set.add(&self.objset, tx, node.id()).await?;
        }
        let values = Values::default().number(Attr::Links, left).time(Attr::Ctime, now);
        self.update(&node.object, tx, values).await?;
        Ok(left == 0)
    }

    /// Whether a file that lost its last name is to stay, because it is open or known; from now on whoever lets it go frees it.
    fn stays(&self, file: ObjectId) -> bool {
        let mut opened = self.opened();
        if self.remember.load(Ordering::Acquire) == 0 {
            return opened.get_mut(&file.0).map(|Opened { unlinked, .. }| *unlinked = true).is_some();
        }
        let state = opened.entry(file.0).or_default();
        state.unlinked = true;
        if !std::mem::replace(&mut state.remembered, true) {
            state.count += 1;
        }
        true
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

/// The unlinked set has numbers in hexadecimal for names.
fn unlinked_key(file: ObjectId) -> Key {
    Key::Name(format!("{:x}", file.0).into())
}
