//! Extended attributes.
//!
//! The kernel checks which namespace a user may see and change, except in lists of names. Attributes are
//! stored under their full names. An attribute that another platform stored as `NAME`, and that is shown as
//! `user.NAME`, is replaced when it is set.
//!
//! A POSIX access ACL contains the permission bits too: the engine sets them with it. As with `chmod`,
//! set-group-id does not survive if the owner who sets it is not a member of the file's group. Newer kernels
//! report that by an extension of `setxattr`; for older ones the membership is looked up here.

use std::sync::Arc;

use engine::zpl::live::{SetAttributes, XattrSet};
use engine::zpl::{LiveZpl, POSIX_ACL_ACCESS, POSIX_ACL_DEFAULT};
use engine::{Error, Result};
use fuser::INodeNo;
use ondisk::ObjectId;

use super::node::Tree;
use super::served::Served;
use super::wire::Caller;

impl Served {
    /// The value of an extended attribute.
    pub(super) fn xattr(&self, number: INodeNo, name: &[u8]) -> Result<Option<Vec<u8>>> {
        if self.place(number).is_none() || self.is_hidden(name) {
            return Ok(None);
        }
        match self.changing(number) {
            Some((zpl, object)) => device::block_on(zpl.xattr(object, name)),
            None => device::block_on(self.znode(number)?.1.xattr(name)),
        }
    }

    /// The names of all extended attributes that `by` may see, each with its end.
    pub(super) fn xattr_names(&self, number: INodeNo, by: Caller) -> Result<Vec<u8>> {
        if self.place(number).is_none() {
            return Ok(Vec::new());
        }
        let names = match self.changing(number) {
            Some((zpl, object)) => device::block_on(zpl.list_xattrs(object))?,
            None => device::block_on(self.znode(number)?.1.list_xattrs())?,
        };
        // The kernel checks each name that is asked for, and none in a list.
        let is_secret = |name: &[u8]| by.uid != 0 && name.starts_with(b"trusted.");
        let shown = names.iter().filter(|name| !self.is_hidden(name) && !is_secret(name));
        Ok(shown.flat_map(|name| name.iter().copied().chain([0])).collect())
    }

    /// Sets an extended attribute, by the flags of `setxattr`.
    pub(super) fn set_xattr(
        &self,
        number: INodeNo,
        name: &[u8],
        value: &[u8],
        flags: i32,
        by: Caller,
    ) -> Result<()> {
        let how = match flags {
            0 => XattrSet::Any,
            libc::XATTR_CREATE => XattrSet::Create,
            libc::XATTR_REPLACE => XattrSet::Replace,
            _ => return Err(Error::Invalid(format!("setxattr with flags {flags:#x}"))),
        };
        let (zpl, object) = self.changeable(number)?;
        self.check_xattr_name(name)?;
        // Behind `user.` nothing may stand that is another namespace to other platforms, nor nothing at all:
        // it could not be read.
        if name.starts_with(b"user.") && bare_name(name).is_none() {
            let what = format!("extended attribute {}", name.escape_ascii());
            return Err(Error::Os { what, errno: libc::EINVAL });
        }
        device::block_on(async {
            if name == POSIX_ACL_ACCESS {
                let stat = zpl.zpl().stat(object).await?;
                if stat.mode & libc::S_ISGID != 0 && !by.is_of_group(stat.gid) {
                    let mode = Some(stat.mode & !libc::S_ISGID);
                    zpl.set_attributes(object, &SetAttributes { mode, ..SetAttributes::default() }).await?;
                }
            }
            self.with_room_for(|| zpl.set_xattr(object, name, value, how, zpl.xattr_place())).await?;
            if let Some(bare) = bare_name(name) {
                none_is_fine(zpl.remove_xattr(object, bare).await)?;
            }
            Ok(())
        })
    }

    /// Removes an extended attribute.
    pub(super) fn remove_xattr(&self, number: INodeNo, name: &[u8]) -> Result<()> {
        let (zpl, object) = self.changeable(number)?;
        self.check_xattr_name(name)?;
        device::block_on(async {
            match (zpl.remove_xattr(object, name).await, bare_name(name)) {
                (Err(Error::Os { errno: libc::ENODATA, .. }), Some(bare)) => {
                    zpl.remove_xattr(object, bare).await
                }
                (result, _) => result,
            }
        })
    }

    /// Whether the mount shows no attribute of that name, though the filesystem may have one (`xattr=off`,
    /// `-o noxattr`).
    fn is_hidden(&self, name: &[u8]) -> bool {
        name.starts_with(b"user.") && !self.habits().user_xattrs
    }

    /// A file that may be changed while it is read.
    fn changing(&self, number: INodeNo) -> Option<(&Arc<LiveZpl>, ObjectId)> {
        match self.place(number)? {
            (Tree::Head, object) => Some((self.live()?, object)),
            _ => None,
        }
    }

    /// Refuses namespaces that this filesystem has not.
    fn check_xattr_name(&self, name: &[u8]) -> Result<()> {
        let known = if name.starts_with(b"user.") {
            self.habits().user_xattrs
        } else if name == POSIX_ACL_ACCESS || name == POSIX_ACL_DEFAULT {
            self.posix_acls
        } else {
            name.starts_with(b"trusted.") || name.starts_with(b"security.")
        };
        match known {
            true => Ok(()),
            false => Err(Error::Unsupported(format!("extended attribute {}", name.escape_ascii()))),
        }
    }
}

/// How other platforms spell a name in `user.`, unless that is a name of its own here.
fn bare_name(name: &[u8]) -> Option<&[u8]> {
    const PREFIXES: [&[u8]; 5] = [b"user.", b"trusted.", b"security.", b"system.", b"freebsd:"];
    let bare = name.strip_prefix(b"user.").filter(|bare| !bare.is_empty())?;
    (!PREFIXES.iter().any(|prefix| bare.starts_with(prefix))).then_some(bare)
}

/// An attribute that was to go may be gone.
fn none_is_fine(removed: Result<()>) -> Result<()> {
    match removed {
        Err(Error::Os { errno: libc::ENODATA, .. }) => Ok(()),
        other => other,
    }
}
