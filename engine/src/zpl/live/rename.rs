//! Renaming.

use ondisk::ObjectId;
use ondisk::sa::Attr;
use ondisk::zil::record::{NewObject as LoggedObject, RenameKind};
use ondisk::zpl::{Dirent, FileType, ZnodeFlags};

use super::log::Named;
use super::names::{NewKind, NewNode};
use super::nodes::{Node, Values};
use super::{LiveZpl, errno};
use crate::dmu::zap::{Key, Value, edit};
use crate::error::{Error, Result};
use crate::patience;
use crate::txg::Tx;
use crate::zpl::Time;

/// The number of implicit entries of a directory: `.` and `..`.
const EMPTY_DIRECTORY: u64 = 2;
/// The most directories above a directory; more mean a cycle.
const MAX_DEPTH: u32 = 1 << 16;

/// The treatment of a file that already has the new name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RenameMode {
    /// It loses the name.
    Replace,
    /// Nothing is renamed.
    NoReplace,
    /// It gets the old name.
    Exchange,
    /// It loses the name, and the old name becomes a *whiteout*, a character device 0/0 with this owner.
    Whiteout {
        /// Owner.
        uid: u32,
        /// Group.
        gid: u32,
    },
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
        self.check_new_name(to)?;
        let (old, new) = (Named { dir: from_dir, name: from }, Named { dir: to_dir, name: to });
        let renamed = patience::once_changed(self.rename_entry(old, new, mode, None)).await;
        self.settled(renamed).await
    }

    /// Renames an entry. A whiteout is created as it was `logged`, if it was.
    pub(super) async fn rename_entry(
        &self,
        old: Named<'_>,
        new: Named<'_>,
        mode: RenameMode,
        logged: Option<&LoggedObject>,
    ) -> Result<()> {
        let (from_dir, to_dir) = (old.dir, new.dir);
        // Only moves between directories can make a cycle.
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
                return self.renamed(old, new, (mode, logged), file, other).await;
            }
        }
    }

    async fn both(&self, old: Named<'_>, new: Named<'_>) -> Result<(Entry, Option<Entry>)> {
        let file = self.require_entry(&self.node(old.dir).await?, old.name).await?;
        let other = self.entry(&self.node(new.dir).await?, new.name).await?;
        Ok((file, other))
    }

    /// Renames with all locks held.
    async fn renamed(
        &self,
        old: Named<'_>,
        new: Named<'_>,
        (mode, logged): (RenameMode, Option<&LoggedObject>),
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
            (Some(entry), RenameMode::Replace | RenameMode::Whiteout { .. }) if same_place(entry) => None,
            (Some(_), RenameMode::NoReplace) => {
                return Err(Error::Exists(String::from_utf8_lossy(new.name).into_owned()));
            }
            // Two names of one file: both stay.
            (Some((_, target)), _) if target.object == dirent.object => return Ok(()),
            (Some((name, target)), _) => Some((name.clone(), self.node(target.object).await?, *target)),
        };
        from.require_removable(&node)?;
        match &target {
            Some((_, target, _)) => to.require_removable(target)?,
            None => to.require_addable()?,
        }
        if old.dir != new.dir {
            self.require_project(&to, &node, new.name)?;
            if let (Some((_, target, _)), RenameMode::Exchange) = (&target, mode) {
                self.require_project(&from, target, old.name)?;
            }
        }
        match target {
            Some((name, target, target_dirent)) if mode == RenameMode::Exchange => {
                if target.is_directory() && old.dir != new.dir {
                    self.refuse_circle(target.id(), old).await?;
                }
                let tx = self.begin_naming(&[&from, &to]).await?;
                let now = Time::now();
                self.point(&from, &tx, &stored, target_dirent).await?;
                self.point(&to, &tx, &name, dirent).await?;
                self.moved(&node, &tx, new.dir, now).await?;
                self.moved(&target, &tx, old.dir, now).await?;
                let links = i64::from(node.is_directory()) - i64::from(target.is_directory());
                self.directory_changed(&self.node(old.dir).await?, &tx, 0, -links, now).await?;
                self.directory_changed(&self.node(new.dir).await?, &tx, 0, links, now).await?;
                let names = (Named { name: &stored, ..old }, Named { name: &name, ..new });
                self.log_renamed(&tx, RenameKind::Exchange, names, &[&node, &target], None);
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
                self.prepare_to_lose_name(&target).await?;
                let tx = self.begin_naming(&[&from, &to]).await?;
                let now = Time::now();
                let links = i64::from(node.is_directory());
                let kind = self.kind(&from, &tx, (mode, logged), now).await?;
                self.leave(&from, &tx, &stored, kind).await?;
                self.point(&to, &tx, &name, dirent).await?;
                self.moved(&node, &tx, new.dir, now).await?;
                self.directory_changed(&self.node(old.dir).await?, &tx, entries_left(kind), -links, now)
                    .await?;
                self.directory_changed(
                    &self.node(new.dir).await?,
                    &tx,
                    0,
                    links - i64::from(target.is_directory()),
                    now,
                )
                .await?;
                let gone = self.lost_name(&target, &tx, now).await?;
                let names = (Named { name: &stored, ..old }, Named { name: &name, ..new });
                self.log_renamed(&tx, kind, names, &[&node], gone.then(|| target.id()));
            }
            None => {
                let tx = self.begin_naming(&[&from, &to]).await?;
                let now = Time::now();
                let links = i64::from(node.is_directory());
                let mut kind = RenameKind::Replace;
                if other.is_some() {
                    self.leave(&from, &tx, &stored, kind).await?;
                    self.add_entry(&to.object, &tx, new.name, dirent).await?;
                } else {
                    kind = self.kind(&from, &tx, (mode, logged), now).await?;
                    self.add_entry(&to.object, &tx, new.name, dirent).await?;
                    self.leave(&from, &tx, &stored, kind).await?;
                }
                self.moved(&node, &tx, new.dir, now).await?;
                self.directory_changed(&self.node(old.dir).await?, &tx, entries_left(kind), -links, now)
                    .await?;
                self.directory_changed(&self.node(new.dir).await?, &tx, 1, links, now).await?;
                let names = (Named { name: &stored, ..old }, new);
                self.log_renamed(&tx, kind, names, &[&node], None);
            }
        }
        Ok(())
    }

    /// Changes an existing entry so that it names another file.
    async fn point(&self, dir: &Node, tx: &Tx, name: &[u8], to: Dirent) -> Result<()> {
        edit::set(&dir.object, tx, &Key::Name(name.to_vec()), &Value::U64(vec![to.to_raw()])).await
    }

    /// The kind of a rename in the log, if it is no exchange. The whiteout is created, if there shall be one.
    async fn kind(
        &self,
        dir: &Node,
        tx: &Tx,
        (mode, logged): (RenameMode, Option<&LoggedObject>),
        now: Time,
    ) -> Result<RenameKind> {
        let RenameMode::Whiteout { uid, gid } = mode else { return Ok(RenameKind::Replace) };
        let kind = NewKind::Special(FileType::CharDevice, logged.map_or(0, |object| object.rdev));
        let new = NewNode { kind, mode: 0, umask: 0, uid, gid };
        let made = self.make_as(dir, tx, &new, ZnodeFlags(0), now, logged).await?;
        Ok(RenameKind::Whiteout(self.node(made.id()).await?.as_logged()?))
    }

    /// Removes the entry of a file that moves to another name, or makes it name the whiteout.
    async fn leave(&self, dir: &Node, tx: &Tx, stored: &[u8], kind: RenameKind) -> Result<()> {
        let RenameKind::Whiteout(whiteout) = kind else {
            return edit::remove(&dir.object, tx, &Key::Name(stored.to_vec())).await.map(drop);
        };
        let dirent = Dirent { object: whiteout.object(), file_type: Some(FileType::CharDevice) };
        self.point(dir, tx, stored, dirent).await
    }

    /// Notes that a file is in this directory now.
    async fn moved(&self, node: &Node, tx: &Tx, dir: ObjectId, now: Time) -> Result<()> {
        let values = Values::default().number(Attr::Parent, dir.0).time(Attr::Ctime, now);
        self.update(&node.object, tx, values).await
    }

    /// Refuses to move a directory to a place below itself.
    async fn refuse_circle(&self, moved: ObjectId, to: Named<'_>) -> Result<()> {
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

/// The change in the number of a directory's entries after one of them moved.
fn entries_left(kind: RenameKind) -> i64 {
    if matches!(kind, RenameKind::Whiteout(_)) { 0 } else { -1 }
}
