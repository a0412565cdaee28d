//! What a user may do with a file: the checks that a kernel makes for those who mount.
//!
//! The rules are Linux's: owner, group and others by the mode, or by the POSIX ACL where there is one; root
//! may all, but executes only what may be executed. The NFSv4 ACLs that every file has are stored and not
//! obeyed on Linux, and so it is here.
//!
//! Two rules are those of NFS servers, whose clients have no open files: the owner of a file may read and
//! write it whatever the mode is, because the client checked that when it was opened; and who may execute a
//! file may read it, because executing is reading.
//!
//! Source of the facts: POSIX 1003.1e draft 17; behaviour of Linux `fs/namei.c`, `fs/posix_acl.c`,
//! `fs/attr.c`, `nfsd/vfs.c`.

use ondisk::zpl::FileType;

use super::rpc::Credentials;
use super::xdr::Garbage;
use crate::files::Attributes;

/// May read.
pub const READ: u32 = 4;
/// May write.
pub const WRITE: u32 = 2;
/// May execute, or look up names.
pub const EXECUTE: u32 = 1;
/// Only owners remove entries of a directory.
const STICKY: u32 = 0o1000;

/// Tags of entries of an ACL.
mod tag {
    pub const USER: u16 = 0x02;
    pub const OWNING_GROUP: u16 = 0x04;
    pub const GROUP: u16 = 0x08;
    pub const MASK: u16 = 0x10;
    pub const OTHER: u16 = 0x20;
}

impl Credentials {
    /// Whether the user may all.
    pub fn is_root(&self) -> bool {
        self.uid == 0
    }

    /// Whether the user is of a group.
    pub fn is_of(&self, gid: u32) -> bool {
        self.gid == gid || self.groups.contains(&gid)
    }
}

/// Whether a user may do all that is wanted of [`READ`], [`WRITE`] and [`EXECUTE`], by mode and ACL.
pub fn allows(file: &Attributes, acl: Option<&[u8]>, by: &Credentials, wanted: u32) -> bool {
    let mode = file.mode;
    if by.is_root() {
        let is_executable = file.kind == FileType::Directory || mode & 0o111 != 0;
        return wanted & EXECUTE == 0 || is_executable;
    }
    if by.uid == file.uid {
        return has(mode >> 6, wanted);
    }
    match acl {
        // One that makes no sense gives nothing to those whom it may have named.
        Some(acl) => of_acl(file, acl, by, wanted).unwrap_or(false),
        None => has(if by.is_of(file.gid) { mode >> 3 } else { mode }, wanted),
    }
}

fn has(rights: u32, wanted: u32) -> bool {
    rights & wanted == wanted
}

/// The same by an ACL, of a user who is not the owner: version 4, and entries of tag 2, rights 2, user or
/// group 4, all with the lowest byte first.
fn of_acl(file: &Attributes, acl: &[u8], by: &Credentials, wanted: u32) -> Result<bool, Garbage> {
    let entries = acl.strip_prefix(&2u32.to_le_bytes()).ok_or(Garbage)?;
    let entry = |bytes: &[u8]| match *bytes {
        [t0, t1, r0, r1, a, b, c, d] => Ok((
            u16::from_le_bytes([t0, t1]),
            u32::from(u16::from_le_bytes([r0, r1])),
            u32::from_le_bytes([a, b, c, d]),
        )),
        _ => Err(Garbage),
    };
    let entries: Vec<_> = entries.chunks(8).map(entry).collect::<Result<_, _>>()?;
    let of = |wanted: u16| entries.iter().find(|(tag, ..)| *tag == wanted).map(|(_, rights, _)| *rights);
    let mask = of(tag::MASK).unwrap_or(7);
    if let Some((_, rights, _)) = entries.iter().find(|(tag, _, id)| *tag == tag::USER && *id == by.uid) {
        return Ok(has(rights & mask, wanted));
    }
    let is_of_user = |(tag, _, id): &&(u16, u32, u32)| match *tag {
        tag::OWNING_GROUP => by.is_of(file.gid),
        tag::GROUP => by.is_of(*id),
        _ => false,
    };
    let mut groups = entries.iter().filter(is_of_user).peekable();
    if groups.peek().is_some() {
        // One entry has to give all that is wanted.
        return Ok(groups.any(|(_, rights, _)| has(rights & mask, wanted)));
    }
    of(tag::OTHER).map(|rights| has(rights, wanted)).ok_or(Garbage)
}

/// The same for an access to the content of a file, without an open file behind it.
pub fn allows_content(file: &Attributes, acl: Option<&[u8]>, by: &Credentials, wanted: u32) -> bool {
    let is_owner = by.uid == file.uid && wanted & EXECUTE == 0;
    file.kind == FileType::Regular && is_owner
        || allows(file, acl, by, wanted)
        || file.kind == FileType::Regular && wanted == READ && allows(file, acl, by, EXECUTE)
}

/// Whether a user may take an entry away from a directory in which he may write: of a sticky one only those
/// who own the file or the directory do.
pub fn may_take(dir: &Attributes, file: &Attributes, by: &Credentials) -> bool {
    dir.mode & STICKY == 0 || by.is_root() || by.uid == file.uid || by.uid == dir.uid
}

#[cfg(test)]
mod tests {
    use engine::zpl::Time;

    use super::*;
    use crate::files::FileId;

    fn file(mode: u32) -> Attributes {
        Attributes {
            id: FileId { snapshot: 0, object: 9, generation: 1 },
            number: 9,
            kind: FileType::Regular,
            mode,
            links: 1,
            uid: 10,
            gid: 20,
            size: 0,
            used_bytes: 0,
            device: (0, 0),
            atime: Time::default(),
            mtime: Time::default(),
            ctime: Time::default(),
        }
    }

    fn user(uid: u32, gid: u32, groups: &[u32]) -> Credentials {
        Credentials { uid, gid, groups: groups.to_vec() }
    }

    fn rights(file: &Attributes, acl: Option<&[u8]>, by: &Credentials) -> u32 {
        [READ, WRITE, EXECUTE].into_iter().filter(|right| allows(file, acl, by, *right)).sum()
    }

    #[test]
    fn the_first_class_that_fits_decides() {
        let of = |mode, by: &Credentials| rights(&file(mode), None, by);
        assert_eq!(of(0o750, &user(10, 1, &[])), 7);
        assert_eq!(of(0o077, &user(10, 20, &[])), 0, "the owner is not one of the others");
        assert_eq!(of(0o750, &user(11, 20, &[])), 5);
        assert_eq!(of(0o750, &user(11, 1, &[20])), 5);
        assert_eq!(of(0o757, &user(11, 1, &[2])), 7);
        assert_eq!(of(0o000, &user(0, 1, &[])), READ | WRITE);
        assert_eq!(of(0o010, &user(0, 1, &[])), 7);
        let directory = Attributes { kind: FileType::Directory, ..file(0) };
        assert_eq!(rights(&directory, None, &user(0, 0, &[])), 7);
        assert!(!allows(&file(0o755), None, &user(11, 1, &[]), READ | WRITE), "all that is wanted");
        assert!(allows_content(&file(0), None, &user(10, 1, &[]), READ | WRITE));
        assert!(!allows_content(&file(0), None, &user(10, 1, &[]), EXECUTE));
        assert!(allows_content(&file(0o001), None, &user(11, 1, &[]), READ));
        assert!(!allows_content(&file(0o001), None, &user(11, 1, &[]), WRITE));
        assert!(!allows_content(&directory, None, &user(10, 1, &[]), READ));
    }

    #[test]
    fn an_acl_decides_for_those_it_names() {
        let acl = |entries: &[(u16, u16, u32)]| {
            let mut bytes = 2u32.to_le_bytes().to_vec();
            for (tag, rights, id) in entries {
                bytes.extend_from_slice(&tag.to_le_bytes());
                bytes.extend_from_slice(&rights.to_le_bytes());
                bytes.extend_from_slice(&id.to_le_bytes());
            }
            bytes
        };
        let none = u32::MAX;
        let acl =
            acl(&[(1, 6, none), (2, 7, 30), (4, 4, none), (8, 3, 40), (0x10, 6, none), (0x20, 1, none)]);
        let of = |by: &Credentials| rights(&file(0o661), Some(&acl), by);
        assert_eq!(of(&user(10, 1, &[])), 6);
        assert_eq!(of(&user(30, 1, &[])), 6, "by the mask");
        assert_eq!(of(&user(31, 20, &[])), 4);
        assert_eq!(of(&user(31, 20, &[40])), 6);
        assert!(!allows(&file(0o661), Some(&acl), &user(31, 20, &[40]), READ | WRITE), "of one entry");
        assert_eq!(of(&user(31, 40, &[])), 2);
        assert_eq!(of(&user(31, 1, &[])), 1);
        assert_eq!(of(&user(0, 0, &[])), 7);
        for cut in [0, 3, 5, 11, acl.len() - 1] {
            assert_eq!(rights(&file(0o777), Some(&acl[..cut]), &user(31, 1, &[])), 0, "cut at {cut}");
        }
    }

    #[test]
    fn a_sticky_directory_keeps_files_of_others() {
        let dir = Attributes { uid: 50, mode: 0o1777, ..file(0) };
        assert!(may_take(&dir, &file(0), &user(10, 1, &[])));
        assert!(may_take(&dir, &file(0), &user(50, 1, &[])));
        assert!(may_take(&dir, &file(0), &user(0, 1, &[])));
        assert!(!may_take(&dir, &file(0), &user(11, 1, &[])));
        assert!(may_take(&Attributes { mode: 0o777, ..dir }, &file(0), &user(11, 1, &[])));
    }
}
