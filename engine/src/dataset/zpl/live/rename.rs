//! Renaming.

use ondisk::ObjectId;
use ondisk::sa::Attr;
use ondisk::zpl::Dirent;

use super::nodes::{Node, Values};
use super::{LiveZpl, errno};
use crate::dataset::zpl::Time;
use crate::dmu::zap::{Key, Value, edit};
use crate::error::{Error, Result};
use crate::txg::Tx;

/// Entries of a directory that nobody made: `.` and `..`.
const EMPTY_DIRECTORY: u64 = 2;
/// Directories above a directory; more is a circle.
const MAX_DEPTH: u32 = 1 << 16;

/// What happens to a file that has the new name already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RenameMode {
    /// It loses the name.
    Replace,
    /// Nothing is renamed.
    NoReplace,
    /// It gets the old name.
    Exchange,
}

/// A name in a directory.
#[derive(Clone, Copy)]
struct Place<'a> {
    dir: ObjectId,
    name: &'a [u8],
}

impl LiveZpl {
    /// Moves the entry `from` of directory `from_dir` to `to` in `to_dir`.
    pub async fn rename(
        &self,
        from_dir: ObjectId,
        from: &[u8],
        to_dir: ObjectId,
        to: &[u8],
        mode: RenameMode,
    ) -> Result<()> {
        self.check_name(from)?;
        self.check_name(to)?;
        let (old, new) = (Place { dir: from_dir, name: from }, Place { dir: to_dir, name: to });
        // Only moves between directories can make a circle.
        let _moving = if from_dir == to_dir { None } else { Some(self.moving.lock().await) };
        loop {
            let (file, other) = {
                let _locked = self.locks.lock(&[from_dir, to_dir]).await;
                self.both(old, new).await?
            };
            let mut files = vec![from_dir, to_dir, file.1.object];
            files.extend(other.as_ref().map(|(_, dirent)| dirent.object));
            let _locked = self.locks.lock(&files).await;
            if self.both(old, new).await? == (file.clone(), other.clone()) {
                return self.renamed(old, new, mode, file, other).await;
            }
        }
    }

    async fn both(&self, old: Place<'_>, new: Place<'_>) -> Result<(Entry, Option<Entry>)> {
        let file = self.require_entry(&self.node(old.dir).await?, old.name).await?;
        let other = self.entry(&self.node(new.dir).await?, new.name).await?;
        Ok((file, other))
    }

    /// All locks are held.
    async fn renamed(
        &self,
        old: Place<'_>,
        new: Place<'_>,
        mode: RenameMode,
        (stored, dirent): Entry,
        other: Option<Entry>,
    ) -> Result<()> {
        let (from, to) = (self.node(old.dir).await?, self.node(new.dir).await?);
        let node = self.node(dirent.object).await?;
        if to.number(Attr::Links)? == 0 || from.number(Attr::Links)? == 0 {
            return Err(Error::NotFound(String::from_utf8_lossy(new.name).into_owned()));
        }
        if node.is_directory() && old.dir != new.dir {
            self.refuse_circle(node.id(), new).await?;
        }
        let same_place = |entry: &Entry| old.dir == new.dir && entry.0 == stored;
        if other.as_ref().is_some_and(same_place) && stored == new.name {
            return Ok(());
        }
        let target = match (&other, mode) {
            (None, RenameMode::Exchange) => {
                return Err(Error::NotFound(String::from_utf8_lossy(new.name).into_owned()));
            }
            (None, _) => None,
            // Another spelling of its own name.
            (Some(entry), RenameMode::Replace) if same_place(entry) => None,
            (Some(_), RenameMode::NoReplace) => {
                return Err(Error::Exists(String::from_utf8_lossy(new.name).into_owned()));
            }
            // Two names of one file: both stay.
            (Some((_, target)), _) if target.object == dirent.object => return Ok(()),
            (Some((name, target)), _) => Some((name.clone(), self.node(target.object).await?, *target)),
        };
        match target {
            Some((name, target, target_dirent)) if mode == RenameMode::Exchange => {
                if target.is_directory() && old.dir != new.dir {
                    self.refuse_circle(target.id(), old).await?;
                }
                let tx = self.begin(0).await?;
                let now = Time::now();
                self.point(&from, &tx, &stored, target_dirent).await?;
                self.point(&to, &tx, &name, dirent).await?;
                self.moved(&node, &tx, new.dir, now).await?;
                self.moved(&target, &tx, old.dir, now).await?;
                let links = i64::from(node.is_directory()) - i64::from(target.is_directory());
                self.directory_changed(old.dir, &tx, 0, -links, now).await?;
                self.directory_changed(new.dir, &tx, 0, links, now).await
            }
            Some((name, target, _)) => {
                match (node.is_directory(), target.is_directory()) {
                    (true, false) => return Err(self.refuse(new.name, errno::ENOTDIR)),
                    (false, true) => return Err(self.refuse(new.name, errno::EISDIR)),
                    (true, true) if target.number(Attr::Size)? > EMPTY_DIRECTORY => {
                        return Err(self.refuse(new.name, errno::ENOTEMPTY));
                    }
                    _ => {}
                }
                let tx = self.begin(0).await?;
                let now = Time::now();
                let links = i64::from(node.is_directory());
                self.point(&to, &tx, &name, dirent).await?;
                edit::remove(&from.object, &tx, &Key::Name(stored)).await?;
                self.moved(&node, &tx, new.dir, now).await?;
                self.directory_changed(old.dir, &tx, -1, -links, now).await?;
                self.directory_changed(new.dir, &tx, 0, links - i64::from(target.is_directory()), now)
                    .await?;
                self.lost_name(&target, &tx, now).await
            }
            None => {
                let tx = self.begin(0).await?;
                let now = Time::now();
                let links = i64::from(node.is_directory());
                if other.is_some() {
                    edit::remove(&from.object, &tx, &Key::Name(stored)).await?;
                    self.add_entry(&to.object, &tx, new.name, dirent).await?;
                } else {
                    self.add_entry(&to.object, &tx, new.name, dirent).await?;
                    edit::remove(&from.object, &tx, &Key::Name(stored)).await?;
                }
                self.moved(&node, &tx, new.dir, now).await?;
                self.directory_changed(old.dir, &tx, -1, -links, now).await?;
                self.directory_changed(new.dir, &tx, 1, links, now).await
            }
        }
    }

    /// Lets an entry that is there name another file.
    async fn point(&self, dir: &Node, tx: &Tx, name: &[u8], to: Dirent) -> Result<()> {
        edit::set(&dir.object, tx, &Key::Name(name.to_vec()), &Value::U64(vec![to.to_raw()])).await
    }

    /// A file is in this directory now.
    async fn moved(&self, node: &Node, tx: &Tx, dir: ObjectId, now: Time) -> Result<()> {
        let values = Values::default().number(Attr::Parent, dir.0).time(Attr::Ctime, now);
        self.update(&node.object, tx, values).await
    }

    /// Refuses to move a directory to a place below itself.
    async fn refuse_circle(&self, moved: ObjectId, to: Place<'_>) -> Result<()> {
        let mut at = to.dir;
        for _ in 0..MAX_DEPTH {
            if at == moved {
                return Err(self.refuse(to.name, errno::EINVAL));
            }
            if at == self.zpl.root() {
                return Ok(());
            }
            at = self.zpl.node(at).await?.parent()?;
        }
        Err(Error::corrupt(format!("objset {}", self.objset.id()), "a directory that is above itself"))
    }
}

type Entry = (Vec<u8>, Dirent);
