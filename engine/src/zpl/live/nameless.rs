//! Files without a name that are open or known.
//!
//! A file that loses its last name is freed, unless it is open. An open file goes into the *unlinked set*, a
//! ZAP of object numbers that is changed when the group is written ([`crate::dmu::LiveObjset::put_in_set`]).
//! It is freed when its last user closes it, or when the filesystem is opened after a crash. The same is true
//! for a file that is created without a name (`O_TMPFILE`), until it gets one.
//!
//! # Files that a kernel knows
//! A kernel that mounts the filesystem knows files that are not open: the working directory of a process, a
//! file opened with `O_PATH`, a file that is about to be opened. Any file that loses its last name is known
//! at that moment. So after [`LiveZpl::remember_unlinked`] it stays until [`LiveZpl::forget`].
//!
//! # Large files
//! A file with more than `zfs_delete_blocks` blocks goes into the unlinked set too, and is freed in parts
//! ([`LiveObject::last_part`]) by a job of the pool: its blocks from the end, then the file itself. What is
//! not freed when the filesystem is closed, or after a crash, is freed when it is opened again.
//!
//! Source: behaviour of OpenZFS 2.3 `zfs_dir.c`, `zfs_vnops_os.c` (`zfs_tmpfile`, `zfs_link`).

use std::collections::BTreeSet;
use std::sync::MutexGuard;
use std::sync::atomic::Ordering;

use device::IgnorePoison;

use ondisk::ObjectId;
use ondisk::accounting::Counted;
use ondisk::sa::Attr;
use ondisk::zpl::ZnodeFlags;

use super::names::{NewKind, NewNode};
use super::nodes::Values;
use super::{LiveZpl, errno};
use crate::dmu::Dirtied;
use crate::dmu::zap::Zap;
use crate::error::{Error, Result};
use crate::patience;
use crate::txg::Tx;
use crate::zpl::Time;

/// The number of entries of the unlinked set that are read at once.
const ENTRIES_AT_ONCE: usize = 1000;

/// The users of a file.
#[derive(Debug, Default)]
pub(super) struct Opened {
    count: u64,
    /// It has lost its last name, or has none yet.
    unlinked: bool,
    /// It was created without a name, and may get one.
    linkable: bool,
    /// A user knows its number, and has not forgotten it.
    remembered: bool,
}

impl LiveZpl {
    /// Notes that a file is open: it is not freed before [`LiveZpl::close`].
    pub fn hold(&self, file: ObjectId) {
        self.opened().entry(file.0).or_default().count += 1;
    }

    /// The number of open or known files.
    pub fn files_held(&self) -> usize {
        self.opened().len()
    }

    /// From now on a user knows files by number: files that lose their last name stay until
    /// [`LiveZpl::forget`], or [`LiveZpl::forget_all`].
    pub fn remember_unlinked(&self) {
        self.remember.fetch_add(1, Ordering::AcqRel);
    }

    /// A file is no longer known; it is freed if it has no name and is not open.
    pub async fn forget(&self, file: ObjectId) -> Result<()> {
        let is_remembered = match self.opened().get_mut(&file.0) {
            Some(state) => std::mem::take(&mut state.remembered),
            None => false,
        };
        if is_remembered { self.close(file, 1).await } else { Ok(()) }
    }

    /// A user that knew files by number is gone; when it was the last, no file is known any more.
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

    /// Removes `count` users of a file. The last one frees it if it has no name.
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
        if node.has_name()? {
            return Ok(());
        }
        if node.object.has_parts() {
            self.free_later(file);
            return Ok(());
        }
        self.prepare_to_lose_name(&node).await?;
        let tx = self.begin_freeing().await?;
        self.free_file(&node, &tx).await?;
        self.objset.take_from_set(&tx, self.unlinked_set, file.0);
        Ok(())
    }

    /// The files in the unlinked set, including the changes of uncommitted groups.
    pub async fn unlinked(&self) -> Result<Vec<ObjectId>> {
        // First, because a group that is written meanwhile has changed the set before its changes are
        // forgotten.
        let changes = self.objset.set_changes(self.unlinked_set);
        let mut files: BTreeSet<u64> = self.zpl.unlinked().await?.iter().map(|file| file.0).collect();
        for (file, put) in changes {
            if put {
                files.insert(file)
            } else {
                files.remove(&file)
            };
        }
        Ok(files.into_iter().map(ObjectId).collect())
    }

    /// Frees the files in the unlinked set: none of them is open yet. A file that is in it by mistake,
    /// because it has a name, stays. If the set cannot be read, the other files can be used; the files in the
    /// set keep their space.
    pub(super) async fn free_unlinked(&self) -> Result<()> {
        match self.free_listed().await {
            Err(error) if error.is_damage() => {
                let objset = self.objset.id();
                tracing::warn!(%objset, %error, "the list of files that lost their names cannot be read: those that are in it are not freed");
                Ok(())
            }
            freed => freed,
        }
    }

    async fn free_listed(&self) -> Result<()> {
        for (file, _) in self.objset.set_changes(self.unlinked_set).into_iter().filter(|(_, put)| *put) {
            self.free_nameless(ObjectId(file)).await?;
        }
        let mut cookie = 0;
        loop {
            let set = Zap::open(&self.objset.view().object(self.unlinked_set).await?).await?;
            let mut cursor = set.cursor(cookie);
            let mut entries = Vec::new();
            while entries.len() < ENTRIES_AT_ONCE
                && let Some(entry) = cursor.next().await?
            {
                entries.push(entry);
            }
            let Some(last) = entries.last() else { return Ok(()) };
            cookie = last.cookie;
            for file in entries.iter().filter_map(|entry| entry.value.as_u64()) {
                self.free_nameless(ObjectId(file)).await?;
            }
        }
    }

    /// Frees a file of the unlinked set, if it has no name, and removes it from the set. A file that cannot
    /// be read stays in the set, and does not prevent opening the filesystem.
    async fn free_nameless(&self, file: ObjectId) -> Result<()> {
        let tx = self.begin_freeing().await?;
        let freed = async {
            let node = match self.node(file).await {
                Err(Error::NotFound(_)) => return Ok(true),
                node => node?,
            };
            match node.has_name()? {
                true => Ok(true),
                false if node.object.has_parts() => Ok(false),
                false => self.free_file(&node, &tx).await.map(|()| true),
            }
        };
        match freed.await {
            Ok(false) => self.free_later(file),
            Ok(true) => self.objset.take_from_set(&tx, self.unlinked_set, file.0),
            Err(error) => self.left_unlinked(file, &error),
        }
        Ok(())
    }

    fn large(&self) -> MutexGuard<'_, BTreeSet<u64>> {
        self.large.lock().ignore_poison()
    }

    /// A large file of the unlinked set is freed in parts, from the next commit on.
    pub(super) fn free_later(&self, file: ObjectId) {
        self.large().insert(file.0);
        self.txgs.want_in_time();
    }

    /// Whether large files without a name are to be freed ([`LiveZpl::free_part`]).
    pub(crate) fn has_large_nameless(&self) -> bool {
        !self.large().is_empty()
    }

    /// Frees the next part of a large file without a name. Gives how many blocks that were; `None` when there
    /// is no such file.
    ///
    /// # Errors
    /// The pool commits nothing any more. What is wrong with the file itself is only logged.
    pub(crate) async fn free_part(&self) -> Result<Option<u64>> {
        let Some(file) = self.large().first().copied().map(ObjectId) else { return Ok(None) };
        match self.free_part_of(file).await {
            Ok((blocks, true)) => Ok(Some(blocks)),
            Ok((blocks, false)) => {
                self.large().remove(&file.0);
                Ok(Some(blocks))
            }
            Err(error) => {
                self.large().remove(&file.0);
                self.left_unlinked(file, &error);
                self.txgs.stopped().map_or(Ok(Some(0)), Err)
            }
        }
    }

    /// Frees the last part of a large file, unless it has a name or a user. How many blocks that were, and
    /// whether there is more.
    async fn free_part_of(&self, file: ObjectId) -> Result<(u64, bool)> {
        let is_gone = |error: &Error| matches!(error, Error::NotFound(_));
        let object = match self.objset.object(file).await {
            Err(error) if is_gone(&error) => return Ok((0, false)),
            object => object?,
        };
        let (at, blocks) = patience::failing(object.last_part(&(0..u64::MAX))).await?;
        self.txgs.wait_to_free(blocks).await?;
        let _locked = self.locks.lock(&[file]).await;
        let node = match self.node(file).await {
            Err(error) if is_gone(&error) => return Ok((0, false)),
            node => node?,
        };
        if node.has_name()? || self.opened().contains_key(&file.0) {
            return Ok((0, false));
        }
        if at > 0 {
            patience::failing(object.prepare_punch(at..u64::MAX)).await?;
            let tx = self.begin_freeing().await?;
            object.punch(&tx, at, u64::MAX - at).await?;
            return Ok((blocks, true));
        }
        let tx = self.begin_freeing().await?;
        self.free_file(&node, &tx).await?;
        self.objset.take_from_set(&tx, self.unlinked_set, file.0);
        Ok((blocks, false))
    }

    /// A file without a name could not be freed: it is tried again when the filesystem is opened.
    pub(super) fn left_unlinked(&self, file: ObjectId, error: &Error) {
        let objset = self.objset.id();
        tracing::warn!(%objset, object = file.0, %error, "a file without a name stays for now");
    }

    /// Creates a file without a name, which is open until [`LiveZpl::close`]. [`LiveZpl::link`] can give it a
    /// name. Mode, group and quotas are those of a file in `dir`.
    ///
    /// After a crash it is gone. After it got a name, a caller that wants it stable waits for its group.
    pub async fn create_nameless(
        &self,
        dir: ObjectId,
        new: &NewNode<'_>,
        linkable: bool,
    ) -> Result<ObjectId> {
        if new.kind != NewKind::Regular {
            return Err(self.refuse("a file without a name", errno::EINVAL));
        }
        let locked = self.locks.lock(&[dir]).await;
        let parent = self.node(dir).await?;
        if !parent.is_directory() {
            return Err(self.refuse(format!("object {dir}"), errno::ENOTDIR));
        }
        if !parent.has_name()? {
            return Err(Error::NotFound(format!("directory {dir}")));
        }
        parent.require_addable()?;
        self.require_quota(self.owners_of_new(&parent, new)?, &[Counted::Bytes, Counted::Objects]).await?;
        let inherited = self.inherit(&parent, new).await?;
        let new = &NewNode { mode: inherited.mode, ..*new };
        let tx = self.begin(|_| Dirtied::new_file()).await?;
        let object = self.make(&parent, &tx, new, ZnodeFlags(0), Time::now()).await?;
        let mut values = Values::default().number(Attr::Links, 0);
        let has_inside = self.has_system_attributes();
        if let Some(xattrs) = inherited.xattrs.as_ref().filter(|_| has_inside) {
            values = values.bytes(Attr::Dxattr, xattrs);
        }
        if let Err(error) = self.update(&object, &tx, values).await {
            // Otherwise it would never be freed.
            self.objset.free(&tx, object.id()).await?;
            return Err(error);
        }
        self.objset.put_in_set(&tx, self.unlinked_set, object.id().0);
        self.hold(object.id());
        self.stays(object.id());
        if let Some(state) = self.opened().get_mut(&object.id().0) {
            state.linkable = linkable;
        }
        drop((tx, locked));
        if let Some(xattrs) = inherited.xattrs.filter(|_| !has_inside) {
            self.store_inherited(object.id(), &xattrs).await?;
        }
        Ok(object.id())
    }

    /// Whether a file without a name may get one.
    pub(super) fn is_linkable(&self, file: ObjectId) -> bool {
        self.opened().get(&file.0).is_some_and(|state| state.linkable)
    }

    /// A file that was created without a name gets its first name.
    pub(super) fn got_name(&self, file: ObjectId, tx: &Tx) {
        self.objset.take_from_set(tx, self.unlinked_set, file.0);
        if let Some(state) = self.opened().get_mut(&file.0) {
            (state.unlinked, state.linkable) = (false, false);
        }
    }

    /// Whether a file that lost its last name stays, because it is open or known; then its last user frees
    /// it.
    pub(super) fn stays(&self, file: ObjectId) -> bool {
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
}
