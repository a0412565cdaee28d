//! The names of extended attributes on Linux, given the stored names.
//!
//! A stored name with one of the Linux prefixes is shown unchanged. A name without a prefix was written on
//! another platform and is shown in `user.`; a reader that asks for `user.NAME` gets the attribute stored as
//! `user.NAME` before the one stored as `NAME`. Names of FreeBSD's system namespace are hidden, POSIX ACLs
//! are shown only with `acltype=posix`, and `user.` only if `xattr` is not `off`. Access control is the
//! caller's task: `trusted.` is for privileged processes only.
//!
//! Source: OpenZFS 2.3 `zpl_xattr.c` (behaviour of list and get).

use super::AclType;

const USER: &[u8] = b"user.";
const TRUSTED: &[u8] = b"trusted.";
const SECURITY: &[u8] = b"security.";
const SYSTEM: &[u8] = b"system.";
const FREEBSD: &[u8] = b"freebsd:";
/// The access ACL of a file.
pub const POSIX_ACL_ACCESS: &[u8] = b"system.posix_acl_access";
/// The ACL that new files in a directory inherit.
pub const POSIX_ACL_DEFAULT: &[u8] = b"system.posix_acl_default";

/// Which extended attributes are visible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Visible {
    /// Whether `xattr` is not `off`.
    pub user: bool,
    /// The `acltype`.
    pub acl: AclType,
}

impl Visible {
    /// The name under which a stored attribute is listed.
    pub(crate) fn shown(self, stored: &[u8]) -> Option<Vec<u8>> {
        let shown = |yes: bool| yes.then(|| stored.to_vec());
        if stored.starts_with(USER) {
            shown(self.user)
        } else if stored.starts_with(TRUSTED) || stored.starts_with(SECURITY) {
            shown(true)
        } else if stored == POSIX_ACL_ACCESS || stored == POSIX_ACL_DEFAULT {
            shown(self.acl == AclType::Posix)
        } else if stored.starts_with(FREEBSD) || !self.user {
            None
        } else {
            Some([USER, stored].concat())
        }
    }

    /// The names under which an attribute may be stored, in the order in which they are tried.
    pub(crate) fn stored(self, asked: &[u8]) -> Vec<&[u8]> {
        if let Some(bare) = asked.strip_prefix(USER) {
            let reserved =
                [USER, TRUSTED, SECURITY, SYSTEM, FREEBSD].iter().any(|prefix| bare.starts_with(prefix));
            match self.user && !reserved && !bare.is_empty() {
                true => vec![asked, bare],
                false => Vec::new(),
            }
        } else {
            let acl = asked == POSIX_ACL_ACCESS || asked == POSIX_ACL_DEFAULT;
            let known = asked.starts_with(TRUSTED) || asked.starts_with(SECURITY);
            if known || (acl && self.acl == AclType::Posix) { vec![asked] } else { Vec::new() }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: Visible = Visible { user: true, acl: AclType::Posix };

    #[test]
    fn names_of_other_platforms_appear_as_user_names() {
        assert_eq!(ALL.shown(b"color").unwrap(), b"user.color");
        assert_eq!(ALL.shown(b"user.color").unwrap(), b"user.color");
        assert_eq!(ALL.stored(b"user.color"), [&b"user.color"[..], b"color"]);
        assert_eq!(ALL.shown(b"freebsd:system:x"), None);
    }

    #[test]
    fn a_user_name_cannot_reach_into_another_namespace() {
        assert!(ALL.stored(b"user.security.selinux").is_empty());
        assert!(ALL.stored(b"user.").is_empty());
        assert!(ALL.stored(b"color").is_empty());
    }

    #[test]
    fn properties_hide_namespaces() {
        let none = Visible { user: false, acl: AclType::Off };
        assert_eq!(none.shown(b"user.color"), None);
        assert_eq!(none.shown(b"color"), None);
        assert_eq!(none.shown(b"security.capability").unwrap(), b"security.capability");
        assert_eq!(none.shown(POSIX_ACL_ACCESS), None);
        assert!(none.stored(POSIX_ACL_ACCESS).is_empty());
        assert_eq!(ALL.stored(POSIX_ACL_DEFAULT), [POSIX_ACL_DEFAULT]);
    }
}
