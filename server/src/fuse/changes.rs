//! Changes of names and attributes.
//!
//! The kernel checks permissions (`default_permissions`) before it asks, and forgets afterwards what its
//! request has made stale. Privileges that a change removes (set-user-id, set-group-id, capabilities) are
//! removed here, as negotiated with the kernel (`FUSE_HANDLE_KILLPRIV_V2`): so it need not look for them
//! before each write.
//!
//! # Umask
//! If files have POSIX ACLs, a default ACL of the directory replaces the umask. The kernel then leaves the
//! umask to the daemon.

use engine::zpl::Time;
use engine::zpl::live::{NewKind, NewNode, RenameMode, SetAttributes};
use engine::{Error, Result};
use fuser::{FileHandle, INodeNo};
use ondisk::ObjectId;
use ondisk::zpl::FileType;

use super::attributes::device_number;
use super::files::{Access, is_strangers};
use super::lookup::FoundNode;
use super::node::{Node, Tree};
use super::served::Served;
use super::wire::{Caller, Wanted, When};

/// The owner of a new file, and its mode.
#[derive(Debug, Clone, Copy)]
pub struct Creator {
    uid: u32,
    gid: u32,
    mode: u32,
    umask: u32,
}

impl Creator {
    /// The process behind a request.
    pub fn new(by: Caller, mode: u32, umask: u32) -> Self {
        Self { uid: by.uid, gid: by.gid, mode, umask }
    }

    /// A regular file of theirs.
    fn node(&self) -> NewNode<'static> {
        let Self { uid, gid, mode, umask } = *self;
        NewNode { kind: NewKind::Regular, mode: mode & 0o7777, umask, uid, gid }
    }
}

impl Served {
    /// Creates what `kind` says, and tells of it as a lookup would.
    pub(super) fn create(
        &self,
        parent: INodeNo,
        name: &[u8],
        kind: NewKind<'_>,
        by: Creator,
    ) -> Result<FoundNode> {
        let object = self.create_object(parent, name, kind, by)?;
        self.told_new(parent, object)
    }

    fn told_new(&self, parent: INodeNo, object: ObjectId) -> Result<FoundNode> {
        let told = self.told(Tree::Head, object)?;
        Ok(FoundNode { name_lasts: self.names_last(parent), ..told })
    }

    fn create_object(
        &self,
        parent: INodeNo,
        name: &[u8],
        kind: NewKind<'_>,
        by: Creator,
    ) -> Result<ObjectId> {
        let (zpl, dir) = self.changeable(parent)?;
        self.refuse_zfs_dir(parent, name)?;
        let new = NewNode { kind, ..by.node() };
        let created = self.with_room(|| zpl.create(dir, name, &new));
        self.listings.changed(dir);
        created
    }

    /// Creates a regular file, or finds the one that is there unless it is to be new, and opens it.
    pub(super) fn create_and_open(
        &self,
        parent: INodeNo,
        name: &[u8],
        by: Creator,
        exclusive: bool,
        access: Access,
    ) -> Result<(FoundNode, FileHandle)> {
        let told = match self.create(parent, name, NewKind::Regular, by) {
            Err(Error::Exists(_)) if !exclusive => {
                self.find(parent, name)?.ok_or_else(|| Error::NotFound(name.escape_ascii().to_string()))?
            }
            told => told?,
        };
        let (tree, object) = self.object(told.attr.number)?;
        Ok((told, self.open_object(tree, object, access)?))
    }

    /// Makes a regular file without a name, beside those of a directory, and opens it. If it is `linkable`,
    /// it may get a name.
    pub(super) fn create_nameless(
        &self,
        beside: INodeNo,
        by: Creator,
        linkable: bool,
    ) -> Result<(FoundNode, FileHandle)> {
        let (zpl, dir) = self.changeable(beside)?;
        let new = by.node();
        let object = self.with_room(|| zpl.create_nameless(dir, &new, linkable))?;
        // From here on it goes when the handle does.
        let handle = self.keep_open(zpl, object)?;
        match self.told(Tree::Head, object) {
            Ok(told) => Ok((told, handle)),
            Err(error) => {
                self.release(handle);
                Err(error)
            }
        }
    }

    /// Creates a node of the type that a mode says.
    pub(super) fn make_node(
        &self,
        parent: INodeNo,
        name: &[u8],
        rdev: u32,
        by: Creator,
    ) -> Result<FoundNode> {
        let kind = match FileType::from_mode(by.mode) {
            FileType::Regular => NewKind::Regular,
            kind @ (FileType::CharDevice | FileType::BlockDevice) => {
                NewKind::Special(kind, device_number(rdev))
            }
            kind @ (FileType::Fifo | FileType::Socket) => NewKind::Special(kind, 0),
            other => return Err(Error::Invalid(format!("mknod of {other:?}"))),
        };
        self.create(parent, name, kind, by)
    }

    /// Gives a file one more name.
    pub(super) fn link(&self, file: INodeNo, parent: INodeNo, name: &[u8]) -> Result<FoundNode> {
        let (zpl, dir) = self.changeable(parent)?;
        let (_, object) = self.changeable(file)?;
        self.refuse_zfs_dir(parent, name)?;
        let linked = self.with_room(|| zpl.link(object, dir, name));
        self.listings.changed(dir);
        linked?;
        self.told_new(parent, object)
    }

    /// Removes a name of a file.
    pub(super) fn unlink(&self, parent: INodeNo, name: &[u8]) -> Result<()> {
        let (zpl, dir) = self.changeable(parent)?;
        self.refuse_zfs_dir(parent, name)?;
        let unlinked = device::block_on(zpl.unlink(dir, name));
        self.listings.changed(dir);
        unlinked
    }

    /// Removes an empty directory.
    pub(super) fn rmdir(&self, parent: INodeNo, name: &[u8]) -> Result<()> {
        let (zpl, dir) = self.changeable(parent)?;
        self.refuse_zfs_dir(parent, name)?;
        let removed = device::block_on(zpl.rmdir(dir, name));
        self.listings.changed(dir);
        removed
    }

    /// Moves an entry, by the flags of `renameat2`. A whiteout that stays in its place belongs to `by`.
    pub(super) fn rename(
        &self,
        from: (INodeNo, &[u8]),
        to: (INodeNo, &[u8]),
        flags: u32,
        by: Caller,
    ) -> Result<()> {
        const WHITEOUT_NOREPLACE: u32 = libc::RENAME_WHITEOUT | libc::RENAME_NOREPLACE;
        let mode = match flags {
            0 => RenameMode::Replace,
            libc::RENAME_NOREPLACE => RenameMode::NoReplace,
            libc::RENAME_EXCHANGE => RenameMode::Exchange,
            libc::RENAME_WHITEOUT | WHITEOUT_NOREPLACE => RenameMode::Whiteout { uid: by.uid, gid: by.gid },
            other => return Err(Error::Invalid(format!("rename with flags {other:#x}"))),
        };
        let (zpl, old) = self.changeable(from.0)?;
        let (_, new) = self.changeable(to.0)?;
        self.refuse_zfs_dir(from.0, from.1)?;
        self.refuse_zfs_dir(to.0, to.1)?;
        // The kernel has both directories to itself until it is answered.
        if flags == WHITEOUT_NOREPLACE && self.find(to.0, to.1)?.is_some() {
            return Err(Error::Exists(to.1.escape_ascii().to_string()));
        }
        let renamed = self.with_room(|| zpl.rename(old, from.1, new, to.1, mode));
        self.listings.changed(old);
        self.listings.changed(new);
        renamed
    }

    /// Changes attributes.
    pub(super) fn set_attributes(&self, number: INodeNo, wanted: &Wanted, by: Caller) -> Result<()> {
        let (zpl, object) = self.changeable(number)?;
        let given = |at: When| match at {
            When::At(at) => at,
            When::Now => Time::now(),
        };
        let is_owned = wanted.uid.is_some() || wanted.gid.is_some();
        let kill_privileges = is_owned || wanted.kill_privileges;
        let kill_setgid = kill_privileges && is_strangers(&device::block_on(zpl.zpl().stat(object))?, by);
        let set = SetAttributes {
            mode: wanted.mode,
            uid: wanted.uid,
            gid: wanted.gid,
            size: wanted.size,
            atime: wanted.atime.map(given),
            mtime: wanted.mtime.map(given),
            ctime: wanted.ctime,
            touched: (wanted.atime, wanted.mtime) == (Some(When::Now), Some(When::Now)),
            kill_privileges,
            kill_setgid,
            ..SetAttributes::default()
        };
        let is_set = matches!(wanted.mtime, Some(When::At(_))) && self.is_perhaps_mapped(object);
        let kept = is_set.then(|| self.kept_times.keep(number));
        // A file that is cut has blocks that are written again.
        self.with_room(|| zpl.set_attributes(object, &set))?;
        if let (Some(kept), Some(notifier)) = (kept, self.notifier()) {
            let notifier = notifier.clone();
            kept.until_written(move |file| {
                // One that is not known has no pages.
                let _ = notifier.inval_inode(file, 0, 0);
            });
        }
        if is_owned || wanted.size.is_some() {
            self.drop_capability(zpl, object)?;
        }
        Ok(())
    }

    /// `.zfs` in the root directory cannot be made or removed.
    fn refuse_zfs_dir(&self, parent: INodeNo, name: &[u8]) -> Result<()> {
        let is_taken = name == b".zfs" && Node::from_number(parent) == Node::Root && self.has_zfs_dir();
        if is_taken { Err(Error::Os { what: ".zfs".into(), errno: libc::EPERM }) } else { Ok(()) }
    }
}
