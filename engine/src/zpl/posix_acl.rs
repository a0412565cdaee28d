//! POSIX ACLs: permissions of a file beyond its mode, and the permissions of new files in a directory.
//!
//! A file has an *access* ACL, a directory also a *default* ACL; with `acltype=posix` they are extended
//! attributes in the form that Linux passes to programs. The mode and the access ACL agree: the bits of the
//! owner and of others are entries, and the group's bits are the *mask*, the most that named users, the group
//! and named groups may do. An ACL without named entries means no more than the mode and is not stored.
//!
//! | offset | size | name | meaning |
//! |---|---|---|---|
//! | 0 | 4 | version | 2 |
//! | 4 + 8 n | 2 | tag | 1 owner, 2 user, 4 group, 8 named group, 16 mask, 32 others |
//! | 6 + 8 n | 2 | permissions | 4 read, 2 write, 1 execute |
//! | 8 + 8 n | 4 | id | of a user or named group, -1 otherwise |
//!
//! All little-endian. Source: Linux `posix_acl_xattr.h`; behaviour of Linux `posix_acl.c`.

use crate::error::{Error, Result};

const VERSION: u32 = 2;
const HEADER_BYTES: usize = 4;
const ENTRY_BYTES: usize = 8;
const READ_WRITE_EXECUTE: u16 = 7;

/// The subject of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Who {
    Owner,
    User(u32),
    Group,
    NamedGroup(u32),
    Mask,
    Others,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Entry {
    who: Who,
    permissions: u16,
}

/// A POSIX ACL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PosixAcl(Vec<Entry>);

impl PosixAcl {
    /// Parses an ACL. `None` for one without entries, which removes an ACL.
    pub(super) fn parse(bytes: &[u8]) -> Result<Option<Self>> {
        let refuse = || Error::Invalid("not a POSIX ACL".to_owned());
        let (version, rest) = bytes.split_first_chunk::<HEADER_BYTES>().ok_or_else(refuse)?;
        let (entries, after) = rest.as_chunks::<ENTRY_BYTES>();
        if u32::from_le_bytes(*version) != VERSION || !after.is_empty() {
            return Err(refuse());
        }
        let entry = |[t0, t1, p0, p1, id @ ..]: &[u8; ENTRY_BYTES]| -> Option<Entry> {
            let id = u32::from_le_bytes(*id);
            let permissions = u16::from_le_bytes([*p0, *p1]);
            let who = match u16::from_le_bytes([*t0, *t1]) {
                0x01 => Who::Owner,
                0x02 => Who::User(id),
                0x04 => Who::Group,
                0x08 => Who::NamedGroup(id),
                0x10 => Who::Mask,
                0x20 => Who::Others,
                _ => return None,
            };
            (permissions <= READ_WRITE_EXECUTE).then_some(Entry { who, permissions })
        };
        let entries: Option<Vec<Entry>> = entries.iter().map(entry).collect();
        let acl = Self(entries.ok_or_else(refuse)?);
        if acl.0.is_empty() {
            return Ok(None);
        }
        let has = |who| acl.0.iter().any(|entry| entry.who == who);
        let needs_mask = acl.0.iter().any(|entry| matches!(entry.who, Who::User(_) | Who::NamedGroup(_)));
        // Sorted by kind, and the kinds without a name once each.
        let rank = |entry: &Entry| match entry.who {
            Who::User(_) => Who::User(0),
            Who::NamedGroup(_) => Who::NamedGroup(0),
            who => who,
        };
        let named = |entry: &Entry| matches!(entry.who, Who::User(_) | Who::NamedGroup(_));
        let ordered = acl.0.windows(2).all(|pair| match pair {
            [one, two] => rank(one) < rank(two) || (rank(one) == rank(two) && named(one)),
            _ => true,
        });
        let complete = has(Who::Owner) && has(Who::Group) && has(Who::Others);
        if !ordered || !complete || (needs_mask && !has(Who::Mask)) {
            return Err(refuse());
        }
        Ok(Some(acl))
    }

    /// The stored form.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = VERSION.to_le_bytes().to_vec();
        for Entry { who, permissions } in &self.0 {
            let (tag, id) = match *who {
                Who::Owner => (0x01u16, u32::MAX),
                Who::User(id) => (0x02, id),
                Who::Group => (0x04, u32::MAX),
                Who::NamedGroup(id) => (0x08, id),
                Who::Mask => (0x10, u32::MAX),
                Who::Others => (0x20, u32::MAX),
            };
            bytes.extend_from_slice(&tag.to_le_bytes());
            bytes.extend_from_slice(&permissions.to_le_bytes());
            bytes.extend_from_slice(&id.to_le_bytes());
        }
        bytes
    }

    /// Whether it means no more than a mode.
    pub(super) fn is_mode(&self) -> bool {
        self.0.iter().all(|entry| matches!(entry.who, Who::Owner | Who::Group | Who::Others))
    }

    /// `mode` with the permissions of the ACL.
    pub(super) fn mode(&self, mode: u32) -> u32 {
        let bits =
            self.classes().fold(0, |bits, (shift, at)| bits | u32::from(self.0[at].permissions) << shift);
        mode & !0o777 | bits
    }

    /// Updates the ACL of a file whose mode becomes `mode`.
    pub(super) fn set_mode(&mut self, mode: u32) {
        for (shift, at) in self.classes().collect::<Vec<_>>() {
            self.0[at].permissions = (mode >> shift) as u16 & READ_WRITE_EXECUTE;
        }
    }

    /// The access ACL of a file that is created with `mode` in a directory with this default ACL, and its
    /// mode: both limit the permissions.
    pub(super) fn inherited(&self, mode: u32) -> (Self, u32) {
        let mut acl = self.clone();
        for (shift, at) in self.classes().collect::<Vec<_>>() {
            acl.0[at].permissions &= (mode >> shift) as u16;
        }
        let mode = acl.mode(mode);
        (acl, mode)
    }

    /// The entries for the bits of the mode, with the position of the bits.
    fn classes(&self) -> impl Iterator<Item = (u32, usize)> + '_ {
        let has_mask = self.0.iter().any(|entry| entry.who == Who::Mask);
        self.0.iter().enumerate().filter_map(move |(at, entry)| match entry.who {
            Who::Owner => Some((6, at)),
            Who::Mask => Some((3, at)),
            Who::Group if !has_mask => Some((3, at)),
            Who::Others => Some((0, at)),
            _ => None,
        })
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// An ACL of (tag, permissions, id).
    pub(in crate::zpl) fn acl(entries: &[(u16, u16, u32)]) -> Vec<u8> {
        let mut bytes = VERSION.to_le_bytes().to_vec();
        for (tag, permissions, id) in entries {
            bytes.extend([tag.to_le_bytes(), permissions.to_le_bytes()].concat());
            bytes.extend(id.to_le_bytes());
        }
        bytes
    }

    const NAMED: [(u16, u16, u32); 5] =
        [(1, 7, u32::MAX), (2, 6, 501), (4, 5, u32::MAX), (16, 6, u32::MAX), (32, 4, u32::MAX)];

    #[test]
    fn what_is_read_is_written_and_what_makes_no_sense_is_refused() {
        let bytes = acl(&NAMED);
        assert_eq!(PosixAcl::parse(&bytes).unwrap().unwrap().encode(), bytes);
        assert_eq!(PosixAcl::parse(&acl(&[])).unwrap(), None);
        let without = |index: usize| {
            let mut entries = NAMED.to_vec();
            entries.remove(index);
            PosixAcl::parse(&acl(&entries)).is_err()
        };
        assert_eq!([0, 1, 2, 3, 4].map(without), [true, false, true, true, true]);
        let mut swapped = NAMED;
        swapped.swap(1, 2);
        assert!(PosixAcl::parse(&acl(&swapped)).is_err());
        assert!(PosixAcl::parse(&bytes[..bytes.len() - 1]).is_err());
        assert!(PosixAcl::parse(&[]).is_err());
    }

    #[test]
    fn the_mask_is_what_the_mode_says_of_the_group() {
        let mut named = PosixAcl::parse(&acl(&NAMED)).unwrap().unwrap();
        assert_eq!((named.mode(0o100_000), named.is_mode()), (0o100_764, false));
        named.set_mode(0o640);
        let want = [(1, 6, u32::MAX), (2, 6, 501), (4, 5, u32::MAX), (16, 4, u32::MAX), (32, 0, u32::MAX)];
        assert_eq!(named.encode(), acl(&want));
        let plain = acl(&[(1, 7, u32::MAX), (4, 5, u32::MAX), (32, 5, u32::MAX)]);
        let plain = PosixAcl::parse(&plain).unwrap().unwrap();
        assert_eq!((plain.mode(0), plain.is_mode()), (0o755, true));
        assert_eq!(plain.inherited(0o666).1, 0o644);
    }
}
