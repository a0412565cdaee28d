//! The rules for NFSv4 ACLs when files are created, and when modes and owners change.
//!
//! This code does not enforce these entries (see [`super::acl`]). They are updated as on systems that enforce
//! them, so that a pool that moves there and back protects its files as before.
//!
//! # Inheritance
//! The flags of a directory record whether it has inheritable entries. A new file in it inherits them
//! according to `aclinherit`:
//!
//! | `aclinherit` | entries that allow | entries that deny | the requested mode |
//! |---|---|---|---|
//! | `discard` | not inherited | not inherited | counts |
//! | `noallow` | not inherited | inherited | counts |
//! | `restricted` | without changing ACL and owner | inherited | counts |
//! | `passthrough` | inherited | inherited | counts where no entry for owner, group or everyone is inherited |
//! | `passthrough-x` | without execution, unless the mode has some | inherited | as `passthrough` |
//!
//! If the mode counts, entries for it are placed around the inherited ones. In any case the final mode
//! follows from the ACL.
//!
//! # Changes of the mode
//!
//! | `aclmode` | entries for others than owner, group and everyone, and entries to be inherited |
//! |---|---|
//! | `discard` | are removed |
//! | `groupmask` | allow no more than the group may do |
//! | `passthrough` | stay |
//! | `restricted` | stay, and the mode of a file that has such cannot be changed |
//!
//! Source: behaviour of OpenZFS 2.3 `zfs_acl.c` (Linux), `zfsprops.7`.

use ondisk::ByteOrder;
use ondisk::zpl::{Ace, AceType, AceWho, FileType, ZnodeFlags, ace_flags, ace_mask, write_aces};

use super::trivial;
use crate::error::{Error, Result};

/// Flags of a file that only an explicitly set ACL causes.
const KEPT: u64 = ZnodeFlags::ACL_PROTECTED.0 | ZnodeFlags::ACL_DEFAULTED.0 | ZnodeFlags::ACL_AUTO_INHERIT.0;
/// All flags of files that describe the ACL.
const FLAGS: u64 = KEPT
    | ZnodeFlags::ACL_TRIVIAL.0
    | ZnodeFlags::INHERIT_ACE.0
    | ZnodeFlags::ACL_OBJ_ACE.0
    | ZnodeFlags::NO_EXECS_DENIED.0;

/// Permission bits of a class, and the access that they allow.
const BITS: [(u32, u32); 3] =
    [(0o4, ace_mask::READ_DATA), (0o2, ace_mask::WRITE_DATA), (0o1, ace_mask::EXECUTE)];
/// The shift of the bits of a class.
const OWNER: u32 = 6;
const GROUP: u32 = 3;
const OTHERS: u32 = 0;
const PERMISSIONS: u32 = 0o777;
/// All three bits that allow execution.
const EXECUTE: u32 = 0o111;

const FILE_OR_DIRECTORY: u16 = ace_flags::FILE_INHERIT | ace_flags::DIRECTORY_INHERIT;
/// The flags of an entry about inheritance.
const INHERITANCE: u16 = FILE_OR_DIRECTORY | ace_flags::NO_PROPAGATE_INHERIT | ace_flags::INHERIT_ONLY;
/// The last defined type of entry.
const LAST_TYPE: u16 = 16;

/// The entries that new files inherit: the property `aclinherit`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AclInherit {
    /// Nothing.
    Discard,
    /// Entries that deny.
    NoAllow,
    /// All, but not the right to change ACL and owner.
    Restricted,
    /// All.
    Passthrough,
    /// All, but execution only where it was asked for.
    PassthroughX,
}

/// The effect of a change of the mode on an ACL: the property `aclmode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AclMode {
    /// Only the mode remains.
    Discard,
    /// Other users may do no more than the group.
    GroupMask,
    /// The other entries stay.
    Passthrough,
    /// The mode of a file with an ACL cannot be changed.
    Restricted,
}

/// The properties about ACLs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AclRules {
    /// `aclinherit`.
    pub inherit: AclInherit,
    /// `aclmode`.
    pub mode: AclMode,
}

impl Default for AclRules {
    fn default() -> Self {
        Self { inherit: AclInherit::Restricted, mode: AclMode::Discard }
    }
}

impl AclRules {
    /// The rules for the stored numbers of the properties.
    pub(crate) fn from_numbers(aclinherit: u64, aclmode: u64) -> Self {
        Self {
            inherit: match aclinherit {
                0 => AclInherit::Discard,
                1 => AclInherit::NoAllow,
                3 => AclInherit::Passthrough,
                5 => AclInherit::PassthroughX,
                _ => AclInherit::Restricted,
            },
            mode: match aclmode {
                2 => AclMode::GroupMask,
                3 => AclMode::Passthrough,
                4 => AclMode::Restricted,
                _ => AclMode::Discard,
            },
        }
    }

    /// Whether the requested mode gives way to inherited entries.
    fn passes_through(self) -> bool {
        matches!(self.inherit, AclInherit::Passthrough | AclInherit::PassthroughX)
    }
}

/// The file of an ACL.
#[derive(Debug, Clone, Copy)]
pub(super) struct Subject {
    /// Its type.
    pub(super) kind: FileType,
    /// Its mode, or the requested one.
    pub(super) mode: u32,
    /// Its stored owner.
    pub(super) owner: u64,
    /// Its stored group.
    pub(super) group: u64,
}

impl Subject {
    fn is_directory(&self) -> bool {
        self.kind == FileType::Directory
    }
}

/// An ACL, with the mode and flags of its file.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct FileAcl {
    /// The entries.
    pub(super) aces: Vec<Ace>,
    /// The mode of the file.
    pub(super) mode: u32,
    /// The flags of the file that describe its ACL.
    flags: u64,
}

impl FileAcl {
    /// The ACL of a file that has only a mode.
    pub(super) fn trivial(mode: u32, is_directory: bool) -> Self {
        Self { aces: trivial::aces(mode, is_directory), mode, flags: trivial::flags(mode, is_directory) }
    }

    /// The ACL of a new file in a directory with these entries.
    pub(super) fn inherited(parent: &[Ace], rules: AclRules, file: Subject) -> Self {
        let (mut aces, mode_counts) = inherit(parent, rules, file);
        let mut flags = 0;
        if mode_counts {
            let trim = rules.mode == AclMode::GroupMask && !rules.passes_through();
            aces = with_mode(aces, file, false, trim);
            flags |= if file.is_directory() { ZnodeFlags::ACL_AUTO_INHERIT.0 } else { 0 };
        }
        Self::of(aces, flags, file)
    }

    /// The ACL after a change of the mode to that of `file`, for a file with these entries and the flags
    /// `flags`.
    pub(super) fn changed(aces: Vec<Ace>, flags: ZnodeFlags, rules: AclRules, file: Subject) -> Self {
        let aces = if rules.mode == AclMode::Discard { Vec::new() } else { aces };
        let aces = with_mode(aces, file, true, rules.mode == AclMode::GroupMask);
        Self::of(aces, flags.0 & KEPT, file)
    }

    /// The ACL after a change of the owner, for a file with these entries and the flags `flags`: an entry may
    /// be about the new owner.
    pub(super) fn given_away(aces: Vec<Ace>, flags: ZnodeFlags, file: Subject) -> Self {
        Self::of(aces, flags.0 & KEPT, file)
    }

    /// An ACL of these entries, which determine the permission bits.
    fn of(aces: Vec<Ace>, mut flags: u64, file: Subject) -> Self {
        let (mode, all_may_execute) = mode_of(&aces, file);
        if file.is_directory() && aces.iter().any(|ace| ace.flags & FILE_OR_DIRECTORY != 0) {
            flags |= ZnodeFlags::INHERIT_ACE.0;
        }
        if aces.iter().any(|ace| ace.ace_type.has_object()) {
            flags |= ZnodeFlags::ACL_OBJ_ACE.0;
        }
        if all_may_execute {
            flags |= ZnodeFlags::NO_EXECS_DENIED.0;
        }
        if is_trivial(&aces) {
            flags |= ZnodeFlags::ACL_TRIVIAL.0;
        }
        Self { aces, mode, flags }
    }

    /// The new flags of the file, which had the flags `old`.
    pub(super) fn flags_after(&self, old: u64) -> u64 {
        old & !FLAGS | self.flags
    }

    /// The stored form: the number of entries, and the entries.
    pub(super) fn stored(&self) -> Result<(u64, Vec<u8>)> {
        let bytes = write_aces(&self.aces, 1, ByteOrder::Little).map_err(Error::format("an ACL"))?;
        Ok((self.aces.len() as u64, bytes))
    }
}

/// Whether an entry has a defined meaning.
fn is_known(ace: &Ace) -> bool {
    match ace.ace_type {
        AceType::Other(number) => number <= LAST_TYPE,
        _ => {
            let who = ace.flags & ace_flags::WHO;
            who == 0 || who == ace_flags::IDENTIFIER_GROUP || is_class(ace)
        }
    }
}

/// Whether it is about the owner, the group or everyone, like a mode.
fn is_class(ace: &Ace) -> bool {
    matches!(ace.who(), AceWho::Owner | AceWho::OwningGroup | AceWho::Everyone)
}

/// The entries that a new file inherits from its directory, and whether the requested mode counts.
fn inherit(parent: &[Ace], rules: AclRules, file: Subject) -> (Vec<Ace>, bool) {
    if rules.inherit == AclInherit::Discard || file.kind == FileType::Symlink {
        return (Vec::new(), true);
    }
    let is_directory = file.is_directory();
    let is_for_it = |ace: &&Ace| {
        let has = |flag| ace.flags & flag != 0;
        match is_directory && has(ace_flags::DIRECTORY_INHERIT) {
            true => true,
            false => has(ace_flags::FILE_INHERIT) && !(is_directory && has(ace_flags::NO_PROPAGATE_INHERIT)),
        }
    };
    let mut mode_counts = true;
    let mut aces = Vec::new();
    for ace in parent.iter().filter(|ace| is_known(ace)).filter(is_for_it) {
        let allows = ace.ace_type == AceType::Allow;
        if allows && rules.inherit == AclInherit::NoAllow {
            continue;
        }
        let is_for_files = file.kind == FileType::Regular;
        let is_for_directories = is_directory && ace.flags & ace_flags::DIRECTORY_INHERIT != 0;
        if rules.passes_through() && is_class(ace) && (is_for_files || is_for_directories) {
            mode_counts = false;
        }
        let mut ace = *ace;
        if allows && rules.inherit == AclInherit::PassthroughX && !is_directory && file.mode & EXECUTE == 0 {
            ace.mask &= !ace_mask::EXECUTE;
        }
        if allows && rules.inherit == AclInherit::Restricted {
            ace.mask &= !(ace_mask::WRITE_ACL | ace_mask::WRITE_OWNER);
        }
        if !is_directory || ace.flags & ace_flags::NO_PROPAGATE_INHERIT != 0 {
            ace.flags &= !INHERITANCE;
        } else if ace.flags & FILE_OR_DIRECTORY == ace_flags::FILE_INHERIT {
            ace.flags |= ace_flags::INHERIT_ONLY;
        } else {
            ace.flags &= !ace_flags::INHERIT_ONLY;
        }
        ace.flags |= ace_flags::INHERITED;
        aces.push(ace);
    }
    if rules.mode == AclMode::Restricted && !aces.is_empty() {
        mode_counts = false;
    }
    (aces, mode_counts)
}

/// Entries that include those for a mode. With `split`, inheritable entries that the mode replaces stay for
/// others to inherit; with `trim`, no entry allows more than the group may do.
fn with_mode(aces: Vec<Ace>, file: Subject, split: bool, trim: bool) -> Vec<Ace> {
    let is_directory = file.is_directory();
    let trivial::Parts { exceptions, classes, group_mask } = trivial::parts(file.mode, is_directory);
    let mut all = exceptions;
    for mut ace in aces {
        if split && is_class(&ace) {
            if !is_directory || ace.flags & FILE_OR_DIRECTORY == 0 {
                continue;
            }
            ace.flags |= ace_flags::INHERIT_ONLY;
        }
        if trim && ace.ace_type == AceType::Allow && ace.flags & ace_flags::INHERIT_ONLY == 0 {
            ace.mask &= group_mask;
        }
        all.push(ace);
    }
    all.extend(classes);
    all
}

/// The mode of a file with an ACL, and whether execution is denied to no user. The first entry about a right
/// of a class counts.
fn mode_of(aces: &[Ace], file: Subject) -> (u32, bool) {
    let (mut seen, mut allowed, mut some_may_not) = (0, 0, false);
    for ace in aces.iter().filter(|ace| is_known(ace) && ace.flags & ace_flags::INHERIT_ONLY == 0) {
        let classes: &[u32] = match ace.who() {
            AceWho::Owner => &[OWNER],
            AceWho::User(user) if user.0 == file.owner => &[OWNER],
            AceWho::OwningGroup => &[GROUP],
            AceWho::Group(group) if group.0 == file.group => &[GROUP],
            AceWho::Everyone => &[OWNER, GROUP, OTHERS],
            AceWho::User(_) | AceWho::Group(_) => {
                some_may_not |= ace.ace_type == AceType::Deny && ace.mask & ace_mask::EXECUTE != 0;
                continue;
            }
        };
        let bits = BITS.iter().filter(|(_, mask)| ace.mask & mask != 0).map(|(bit, _)| bit);
        let told =
            bits.flat_map(|bit| classes.iter().map(move |class| bit << class)).fold(0, |all, bit| all | bit);
        if ace.ace_type == AceType::Allow {
            allowed |= told & !seen;
        }
        seen |= told;
    }
    let mode = file.mode & !PERMISSIONS | allowed;
    (mode, !some_may_not && mode & EXECUTE == EXECUTE)
}

/// Whether the entries mean no more than a mode.
fn is_trivial(aces: &[Ace]) -> bool {
    const OWNERS: u32 = ace_mask::WRITE_OWNER
        | ace_mask::WRITE_ACL
        | ace_mask::WRITE_ATTRIBUTES
        | ace_mask::WRITE_NAMED_ATTRS;
    const EVERYBODYS: u32 = ace_mask::READ_ACL | ace_mask::READ_ATTRIBUTES;
    aces.iter().all(|ace| {
        let has = |mask| ace.mask & mask != 0;
        is_class(ace)
            && ace.flags & INHERITANCE == 0
            && !(ace.ace_type == AceType::Deny && has(EVERYBODYS))
            && !has(ace_mask::DELETE)
            && (!has(ace_mask::DELETE_CHILD) || has(ace_mask::WRITE_DATA))
            && !(ace.ace_type == AceType::Allow && ace.who() != AceWho::Owner && has(OWNERS))
    })
}

#[cfg(test)]
mod tests {
    use ondisk::zpl::Fuid;

    use super::*;

    const READ: u32 = ace_mask::READ_DATA;
    const WRITE: u32 = ace_mask::WRITE_DATA;
    const RUN: u32 = ace_mask::EXECUTE;
    const INHERIT_ALL: u16 = FILE_OR_DIRECTORY;

    fn file(kind: FileType, mode: u32) -> Subject {
        Subject { kind, mode, owner: 10, group: 20 }
    }

    fn user(id: u64, flags: u16, mask: u32) -> Ace {
        Ace { ace_type: AceType::Allow, flags, mask, fuid: Some(Fuid(id)), object: None }
    }

    fn everyone(flags: u16, mask: u32) -> Ace {
        let flags = flags | ace_flags::EVERYONE;
        Ace { ace_type: AceType::Allow, flags, mask, fuid: None, object: None }
    }

    fn rules(inherit: AclInherit, mode: AclMode) -> AclRules {
        AclRules { inherit, mode }
    }

    #[test]
    fn the_acl_of_a_mode_says_that_mode_and_nothing_else() {
        for mode in 0..0o1000 {
            for kind in [FileType::Regular, FileType::Directory] {
                let is_directory = kind == FileType::Directory;
                let acl = FileAcl::of(trivial::aces(mode, is_directory), 0, file(kind, 0o4000));
                assert_eq!(acl.mode, 0o4000 | mode, "{mode:o}");
                let trivial = FileAcl::trivial(mode, is_directory);
                assert_eq!(acl.flags, trivial.flags & !ZnodeFlags::ACL_AUTO_INHERIT.0, "{mode:o}");
                // A change of the mode has the same result, whatever the rules.
                for mode_rule in [AclMode::Discard, AclMode::GroupMask, AclMode::Passthrough] {
                    let rules = rules(AclInherit::Restricted, mode_rule);
                    let changed = FileAcl::changed(
                        trivial::aces(0o715, is_directory),
                        ZnodeFlags(trivial.flags),
                        rules,
                        file(kind, mode),
                    );
                    assert_eq!(changed, trivial, "{mode:o} {mode_rule:?}");
                }
            }
        }
    }

    #[test]
    fn a_new_file_inherits_by_aclinherit() {
        let all = READ | WRITE | RUN | ace_mask::WRITE_ACL;
        let deny = Ace { ace_type: AceType::Deny, ..user(8, INHERIT_ALL, WRITE) };
        let parent = [user(7, INHERIT_ALL, all), deny, user(9, 0, all)];
        let masks = |inherit, mode| {
            let acl =
                FileAcl::inherited(&parent, rules(inherit, AclMode::Discard), file(FileType::Regular, mode));
            assert_eq!(acl.mode, mode, "none of these decides on the mode");
            let inherited = acl.aces.iter().filter(|ace| ace.flags & ace_flags::INHERITED != 0);
            inherited.map(|ace| (ace.fuid.unwrap().0, ace.flags, ace.mask)).collect::<Vec<_>>()
        };
        const MARK: u16 = ace_flags::INHERITED;
        assert_eq!(masks(AclInherit::Discard, 0o640), []);
        assert_eq!(masks(AclInherit::NoAllow, 0o640), [(8, MARK, WRITE)]);
        assert_eq!(masks(AclInherit::Restricted, 0o640), [(7, MARK, READ | WRITE | RUN), (8, MARK, WRITE)]);
        assert_eq!(masks(AclInherit::Passthrough, 0o640), [(7, MARK, all), (8, MARK, WRITE)]);
        assert_eq!(masks(AclInherit::PassthroughX, 0o640), [(7, MARK, all & !RUN), (8, MARK, WRITE)]);
        assert_eq!(masks(AclInherit::PassthroughX, 0o750), [(7, MARK, all), (8, MARK, WRITE)]);
    }

    #[test]
    fn with_passthrough_inherited_entries_for_everyone_decide_on_the_mode() {
        let parent = [everyone(INHERIT_ALL, READ | WRITE)];
        let asked = file(FileType::Regular, 0o100700);
        let passed = FileAcl::inherited(&parent, rules(AclInherit::Passthrough, AclMode::Discard), asked);
        assert_eq!((passed.mode, passed.aces.len()), (0o100666, 1));
        let restricted = FileAcl::inherited(&parent, AclRules::default(), asked);
        // Inherited entries are before those of the mode, and the first entry about a right counts.
        assert_eq!((restricted.mode, restricted.aces.len()), (0o100766, 4));
    }

    #[test]
    fn directories_pass_on_what_is_for_files_and_stop_where_they_are_told() {
        let parent = [
            user(1, ace_flags::FILE_INHERIT, READ),
            user(2, ace_flags::DIRECTORY_INHERIT | ace_flags::INHERIT_ONLY, READ),
            user(3, INHERIT_ALL | ace_flags::NO_PROPAGATE_INHERIT, READ),
            user(4, ace_flags::FILE_INHERIT | ace_flags::NO_PROPAGATE_INHERIT, READ),
        ];
        let acl = FileAcl::inherited(&parent, AclRules::default(), file(FileType::Directory, 0o755));
        let inherited =
            acl.aces.iter().filter_map(|ace| Some((ace.fuid?.0, ace.flags & !ace_flags::INHERITED)));
        assert_eq!(
            inherited.collect::<Vec<_>>(),
            [
                (1, ace_flags::FILE_INHERIT | ace_flags::INHERIT_ONLY),
                (2, ace_flags::DIRECTORY_INHERIT),
                (3, 0)
            ]
        );
        assert_ne!(acl.flags & ZnodeFlags::INHERIT_ACE.0, 0);
        assert_eq!(acl.flags & ZnodeFlags::ACL_TRIVIAL.0, 0);
        let link = FileAcl::inherited(&parent, AclRules::default(), file(FileType::Symlink, 0o777));
        assert_eq!(link.aces, trivial::aces(0o777, false));
    }

    #[test]
    fn a_change_of_the_mode_keeps_what_aclmode_says() {
        let old = vec![
            user(7, 0, READ | WRITE),
            everyone(INHERIT_ALL, READ | WRITE | RUN),
            user(8, INHERIT_ALL | ace_flags::INHERIT_ONLY, WRITE),
        ];
        let change = |mode| {
            let rules = rules(AclInherit::Restricted, mode);
            let acl = FileAcl::changed(
                old.clone(),
                ZnodeFlags::ACL_PROTECTED,
                rules,
                file(FileType::Directory, 0o740),
            );
            assert_eq!(acl.mode, 0o740);
            assert_ne!(acl.flags & ZnodeFlags::ACL_PROTECTED.0, 0);
            acl.aces[..acl.aces.len() - 3].to_vec()
        };
        let inherit_only = everyone(INHERIT_ALL | ace_flags::INHERIT_ONLY, READ | WRITE | RUN);
        assert_eq!(change(AclMode::Discard), []);
        assert_eq!(change(AclMode::Passthrough), [old[0], inherit_only, old[2]]);
        assert_eq!(change(AclMode::GroupMask), [user(7, 0, READ), inherit_only, old[2]]);
    }

    #[test]
    fn entries_about_the_owner_by_number_count_as_the_owners() {
        let acl = FileAcl::of(vec![user(10, 0, READ), user(11, 0, WRITE)], 0, file(FileType::Regular, 0o777));
        assert_eq!(acl.mode, 0o400);
        let group = Ace { flags: ace_flags::IDENTIFIER_GROUP, ..user(20, 0, WRITE) };
        assert_eq!(FileAcl::of(vec![group], 0, file(FileType::Regular, 0)).mode, 0o020);
    }
}
