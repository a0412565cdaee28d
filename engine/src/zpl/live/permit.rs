//! Operations that attributes of files forbid: immutable, append-only, nounlink, read-only.
//!
//! The attributes apply to all users, whatever the mode is; but root may open a read-only file for writing,
//! as with a mode that permits no writes. They do not apply to a replay of the intent log: its operations
//! were allowed when they were done. A file that must not be changed keeps its name and links; a directory
//! keeps its entries.
//!
//! | attribute | write, truncate | attributes, xattrs | remove, rename | link | entries of a directory |
//! |---|---|---|---|---|---|
//! | immutable | no | only attributes like this one; reads still set the access time | no | no | cannot change |
//! | append-only | at the end | as immutable, and both times set to now | no | no | can only be added |
//! | nounlink | yes | yes | no | yes | no effect |
//! | read-only | root, and files that are open already | yes | yes | yes | no effect |
//!
//! Source: behaviour of OpenZFS 2.3 `zfs_acl.c`, `zfs_vnops.c`, and of Linux `may_create`, `may_delete`,
//! `notify_change`.

use ondisk::ObjectId;
use ondisk::sa::Attr;
use ondisk::zpl::ZnodeFlags;

use super::nodes::Node;
use super::{LiveZpl, SetAttributes, errno};
use crate::error::{Error, Result};

const FIXED: u64 = ZnodeFlags::IMMUTABLE.0 | ZnodeFlags::APPENDONLY.0;

impl LiveZpl {
    /// Whether a regular file may be opened for writing; `append`: at its end only. `by_root`: by a user who
    /// may write whatever the mode is.
    pub async fn require_open_for_writing(&self, file: ObjectId, append: bool, by_root: bool) -> Result<()> {
        let node = self.node(file).await?;
        let append_only = if append { 0 } else { ZnodeFlags::APPENDONLY.0 };
        let read_only = if by_root { 0 } else { ZnodeFlags::READONLY.0 };
        node.forbid(ZnodeFlags::IMMUTABLE.0 | read_only | append_only)
    }
}

impl Node {
    /// Fails when the file has one of these attributes.
    fn forbid(&self, flags: u64) -> Result<()> {
        if self.is_replayed || self.flags()?.0 & flags == 0 {
            return Ok(());
        }
        let what = format!("object {}: its attributes (immutable, append-only or nounlink)", self.id());
        Err(Error::Os { what, errno: errno::EPERM })
    }

    /// Fails when the content must not be changed from `offset` on.
    pub(super) fn require_writable(&self, offset: u64) -> Result<()> {
        let within = offset < self.number(Attr::Size)?;
        self.forbid(ZnodeFlags::IMMUTABLE.0 | if within { ZnodeFlags::APPENDONLY.0 } else { 0 })
    }

    /// Fails when the size must not be changed.
    pub(super) fn require_resizable(&self) -> Result<()> {
        self.forbid(FIXED)
    }

    /// Fails when extended attributes must not be changed.
    pub(super) fn require_changeable(&self) -> Result<()> {
        self.forbid(FIXED)
    }

    /// Fails when these of its attributes must not be changed.
    pub(super) fn require_settable(&self, set: &SetAttributes) -> Result<()> {
        let SetAttributes { mode, uid, gid, size, atime, mtime, btime, project, touched, .. } = set;
        let fixed = mode.is_some() || uid.is_some() || gid.is_some() || size.is_some() || project.is_some();
        let times = match (atime.is_some() || mtime.is_some(), touched) {
            (false, _) => 0,
            (true, false) => FIXED,
            (true, true) => ZnodeFlags::IMMUTABLE.0,
        };
        self.forbid(if fixed || btime.is_some() { FIXED } else { times })
    }

    /// Fails when a directory must not get another entry.
    pub(super) fn require_addable(&self) -> Result<()> {
        self.forbid(ZnodeFlags::IMMUTABLE.0)
    }

    /// Fails when the file must not get another name.
    pub(super) fn require_linkable(&self) -> Result<()> {
        self.forbid(FIXED)
    }

    /// Fails when the entry of `file` in this directory must not be removed or replaced.
    pub(super) fn require_removable(&self, file: &Node) -> Result<()> {
        self.forbid(FIXED)?;
        file.forbid(FIXED | ZnodeFlags::NOUNLINK.0)
    }
}
