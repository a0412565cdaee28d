//! The ACL of a file that has only a mode, and the mode's part in the file's flags.
//!
//! Every file has NFSv4 entries with the same meaning as its mode (a *trivial* ACL): the permissions of its
//! owner, its group and everyone. If a class has fewer permissions than a later one, entries before these
//! deny the difference; if the owner may do something that is denied to the group but not to others, a first
//! entry allows it.
//!
//! Source: behaviour of OpenZFS 2.3 `zfs_acl.c` (Linux).

use ondisk::zpl::{Ace, AceType, ZnodeFlags, ace_flags, ace_mask};

/// Access that all users have to a file's attributes.
const LOOK: u32 =
    ace_mask::READ_ACL | ace_mask::READ_ATTRIBUTES | ace_mask::READ_NAMED_ATTRS | ace_mask::SYNCHRONIZE;
/// Access that the owner always has.
const OWN: u32 = LOOK
    | ace_mask::WRITE_ATTRIBUTES
    | ace_mask::WRITE_OWNER
    | ace_mask::WRITE_ACL
    | ace_mask::WRITE_NAMED_ATTRS;

const OWNER: u16 = ace_flags::OWNER;
const GROUP: u16 = ace_flags::GROUP | ace_flags::IDENTIFIER_GROUP;
const EVERYONE: u16 = ace_flags::EVERYONE;
/// All three bits that allow execution.
const EXECUTE: u32 = 0o111;

/// The entries for a mode.
pub(super) struct Parts {
    /// The first entries, for classes with fewer permissions than a later one.
    pub(super) exceptions: Vec<Ace>,
    /// The permissions of owner, group and everyone, at the end.
    pub(super) classes: [Ace; 3],
    /// The permissions of the group.
    pub(super) group_mask: u32,
}

/// The entries of the trivial ACL of a mode.
pub(super) fn aces(mode: u32, is_directory: bool) -> Vec<Ace> {
    let Parts { mut exceptions, classes, .. } = parts(mode, is_directory);
    exceptions.extend(classes);
    exceptions
}

/// The same, in parts.
pub(super) fn parts(mode: u32, is_directory: bool) -> Parts {
    let child = if is_directory { ace_mask::DELETE_CHILD } else { 0 };
    let kinds = [
        (0o4, ace_mask::READ_DATA),
        (0o2, ace_mask::WRITE_DATA | ace_mask::APPEND_DATA | child),
        (0o1, ace_mask::EXECUTE),
    ];
    let (mut allow_owner, mut deny_owner, mut deny_group) = (0, 0, 0);
    let (mut owner, mut group, mut everyone) = (OWN, LOOK, LOOK);
    for (bit, mask) in kinds {
        let may = |class: u32| mode >> class & bit != 0;
        match (may(6), may(3), may(0)) {
            (false, true, _) | (false, _, true) => deny_owner |= mask,
            (true, false, true) => allow_owner |= mask,
            _ => {}
        }
        if !may(3) && may(0) {
            deny_group |= mask;
        }
        owner |= if may(6) { mask } else { 0 };
        group |= if may(3) { mask } else { 0 };
        everyone |= if may(0) { mask } else { 0 };
    }
    let entry = |ace_type, flags, mask| Ace { ace_type, flags, mask, fuid: None, object: None };
    let exceptions = [
        (AceType::Allow, OWNER, allow_owner),
        (AceType::Deny, OWNER, deny_owner),
        (AceType::Deny, GROUP, deny_group),
    ];
    let exceptions = exceptions.into_iter().filter(|(_, _, mask)| *mask != 0);
    let classes = [(OWNER, owner), (GROUP, group), (EVERYONE, everyone)];
    Parts {
        exceptions: exceptions.map(|(ace_type, flags, mask)| entry(ace_type, flags, mask)).collect(),
        classes: classes.map(|(flags, mask)| entry(AceType::Allow, flags, mask)),
        group_mask: group,
    }
}

/// The bits for the mode and its trivial ACL in the flags of a file.
pub(super) fn flags(mode: u32, is_directory: bool) -> u64 {
    let mut flags = ZnodeFlags::ACL_TRIVIAL.0;
    if is_directory {
        flags |= ZnodeFlags::ACL_AUTO_INHERIT.0;
    }
    if mode & EXECUTE == EXECUTE {
        flags |= ZnodeFlags::NO_EXECS_DENIED.0;
    }
    flags
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_that_may_less_than_one_below_it_is_denied_that_first() {
        let shape = |mode| {
            aces(mode, false).iter().map(|ace| (ace.ace_type, ace.flags, ace.mask & 0x27)).collect::<Vec<_>>()
        };
        assert_eq!(
            shape(0o604),
            [
                (AceType::Allow, OWNER, 0x1),
                (AceType::Deny, GROUP, 0x1),
                (AceType::Allow, OWNER, 0x7),
                (AceType::Allow, GROUP, 0),
                (AceType::Allow, EVERYONE, 0x1),
            ]
        );
        assert_eq!(shape(0o050)[0], (AceType::Deny, OWNER, 0x21));
        assert_eq!(shape(0o755).len(), 3);
    }
}
