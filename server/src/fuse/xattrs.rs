//! Extended attributes.
//!
//! The kernel checks who may see and change which namespace. Attributes are stored under their full names; one that another platform stored as `NAME`, and that is shown
//! as `user.NAME`, gives way to the one that is set.
//!
//! A POSIX access ACL says the permission bits too: they are set with it. One that says no more than the bits is not stored.

use engine::dataset::zpl::live::{SetAttributes, XattrSet};
use engine::dataset::zpl::{POSIX_ACL_ACCESS, POSIX_ACL_DEFAULT};
use engine::{Error, Result};
use fuser::INodeNo;

use super::served::Served;

/// Version of an ACL between kernel and programs (`POSIX_ACL_XATTR_VERSION`).
const ACL_VERSION: u32 = 2;
/// Size of its header and of each entry: tag and permissions of two bytes each, id of four.
const ACL_HEADER_BYTES: usize = 4;
const ACL_ENTRY_BYTES: usize = 8;
const USER_OBJ: u16 = 0x01;
const GROUP_OBJ: u16 = 0x04;
const MASK: u16 = 0x10;
const OTHER: u16 = 0x20;

impl Served {
    /// The value of an extended attribute.
    pub(super) fn xattr(&self, number: INodeNo, name: &[u8]) -> Result<Option<Vec<u8>>> {
        if self.place(number).is_none() {
            return Ok(None);
        }
        device::block_on(self.znode(number)?.1.xattr(name))
    }

    /// The names of all extended attributes, each with its end.
    pub(super) fn xattr_names(&self, number: INodeNo) -> Result<Vec<u8>> {
        if self.place(number).is_none() {
            return Ok(Vec::new());
        }
        let names = device::block_on(self.znode(number)?.1.list_xattrs())?;
        Ok(names.iter().flat_map(|name| name.iter().copied().chain([0])).collect())
    }

    /// Sets an extended attribute, by the flags of `setxattr`.
    pub(super) fn set_xattr(&self, number: INodeNo, name: &[u8], value: &[u8], flags: i32) -> Result<()> {
        let how = match flags {
            0 => XattrSet::Any,
            libc::XATTR_CREATE => XattrSet::Create,
            libc::XATTR_REPLACE => XattrSet::Replace,
            _ => return Err(Error::Invalid(format!("setxattr with flags {flags:#x}"))),
        };
        let (zpl, object) = self.changeable(number)?;
        self.check_xattr_name(name)?;
        device::block_on(async {
            let mut mode = None;
            if name == POSIX_ACL_ACCESS {
                let acl = parse_acl(value).ok_or_else(|| Error::Invalid("a bad ACL".into()))?;
                mode = Some(zpl.zpl().node(object).await?.mode() & 0o7000 | acl.permissions);
                if acl.is_minimal {
                    none_is_fine(zpl.remove_xattr(object, name).await)?;
                    let set = SetAttributes { mode, ..SetAttributes::default() };
                    return zpl.set_attributes(object, &set).await;
                }
            }
            zpl.set_xattr(object, name, value, how, self.trees.xattr_place()).await?;
            if let Some(bare) = bare_name(name) {
                none_is_fine(zpl.remove_xattr(object, bare).await)?;
            }
            match mode {
                Some(_) => {
                    zpl.set_attributes(object, &SetAttributes { mode, ..SetAttributes::default() }).await
                }
                None => Ok(()),
            }
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

    /// Refuses namespaces that this filesystem has not.
    fn check_xattr_name(&self, name: &[u8]) -> Result<()> {
        let known = if name.starts_with(b"user.") {
            self.trees.has_user_xattrs()
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

/// What of an ACL the mode of its file tells too.
#[derive(Debug, PartialEq, Eq)]
struct Acl {
    permissions: u32,
    /// It says nothing else.
    is_minimal: bool,
}

/// Reads an access ACL as the kernel hands it over; `None` for one that makes no sense.
fn parse_acl(bytes: &[u8]) -> Option<Acl> {
    let (version, entries) = bytes.split_first_chunk::<ACL_HEADER_BYTES>()?;
    if u32::from_le_bytes(*version) != ACL_VERSION || entries.len() % ACL_ENTRY_BYTES != 0 {
        return None;
    }
    let (mut user, mut group, mut mask, mut other, mut others) = (None, None, None, None, 0);
    for entry in entries.chunks_exact(ACL_ENTRY_BYTES) {
        let (tag, rest) = entry.split_first_chunk::<2>()?;
        let permissions = u16::from_le_bytes(*rest.first_chunk::<2>()?);
        if permissions > 7 {
            return None;
        }
        match u16::from_le_bytes(*tag) {
            USER_OBJ => user = Some(permissions),
            GROUP_OBJ => group = Some(permissions),
            MASK => mask = Some(permissions),
            OTHER => other = Some(permissions),
            _ => others += 1,
        }
    }
    if others > 0 && mask.is_none() {
        return None;
    }
    let group = mask.or(group?.into())?;
    let permissions = u32::from(user?) << 6 | u32::from(group) << 3 | u32::from(other?);
    Some(Acl { permissions, is_minimal: mask.is_none() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn acl(entries: &[(u16, u16)]) -> Vec<u8> {
        let mut bytes = ACL_VERSION.to_le_bytes().to_vec();
        for (tag, permissions) in entries {
            bytes.extend(tag.to_le_bytes());
            bytes.extend(permissions.to_le_bytes());
            bytes.extend(u32::MAX.to_le_bytes());
        }
        bytes
    }

    #[test]
    fn the_group_bits_are_the_mask_of_an_acl() {
        let minimal = acl(&[(USER_OBJ, 7), (GROUP_OBJ, 5), (OTHER, 1)]);
        assert_eq!(parse_acl(&minimal), Some(Acl { permissions: 0o751, is_minimal: true }));
        let named = acl(&[(USER_OBJ, 6), (0x02, 7), (GROUP_OBJ, 0), (MASK, 4), (OTHER, 0)]);
        assert_eq!(parse_acl(&named), Some(Acl { permissions: 0o640, is_minimal: false }));
    }

    #[test]
    fn what_is_no_acl_is_refused() {
        assert_eq!(parse_acl(&[]), None);
        assert_eq!(parse_acl(&acl(&[(USER_OBJ, 7), (OTHER, 1)])), None, "nothing for the group");
        assert_eq!(parse_acl(&acl(&[(USER_OBJ, 8), (GROUP_OBJ, 5), (OTHER, 1)])), None);
        assert_eq!(parse_acl(&acl(&[(USER_OBJ, 7), (0x02, 7), (GROUP_OBJ, 5), (OTHER, 1)])), None, "no mask");
        let mut cut = acl(&[(USER_OBJ, 7), (GROUP_OBJ, 5), (OTHER, 1)]);
        cut.pop();
        assert_eq!(parse_acl(&cut), None);
    }
}
