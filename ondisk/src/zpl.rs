//! Filesystems: names of the master node, directory entries, flags of files.
//!
//! Object 1 of a filesystem is its *master node*, a ZAP that names everything else. A file is an object whose
//! attributes are system attributes ([`crate::sa`]); a directory is a ZAP too.
//!
//! | ZAP | key | value |
//! |---|---|---|
//! | master node | names of [`master`] | one u64 |
//! | directory | name | one u64: a [`Dirent`] |
//! | [`master::DELETE_QUEUE`] | object in hexadecimal | one u64: the object |
//!
//! Source: OpenZFS 2.3 `zfs_znode.h`, `zfs_sa.h`.

use crate::ObjectId;

mod acl;
mod fuid;

pub use acl::{Ace, AceObject, AceType, AceWho, AclPhys, ace_flags, ace_mask, parse_aces, write_aces};
pub use fuid::{Fuid, FuidTable};

/// Object of the master node.
pub const MASTER_NODE: ObjectId = ObjectId(1);
/// Newest version of filesystems (`ZPL_VERSION`): system attributes.
pub const ZPL_VERSION: u64 = 5;

/// Names in the master node.
pub mod master {
    /// Version of the filesystem.
    pub const VERSION: &str = "VERSION";
    /// Object of the root directory.
    pub const ROOT: &str = "ROOT";
    /// ZAP of files that are open but have no name any more; its names are object numbers in hexadecimal.
    pub const DELETE_QUEUE: &str = "DELETE_QUEUE";
    /// Object of the table of domains, see [`super::FuidTable`].
    pub const FUID: &str = "FUID";
    /// Directory of SMB shares.
    pub const SHARES: &str = "SHARES";
    /// Object that names the registry and the layouts of system attributes.
    pub const SA_ATTRS: &str = "SA_ATTRS";
    /// Identity of the filesystem for NFS.
    pub const FSID: &str = "FSID";
    /// How names are normalised: `u8_textprep` flags.
    pub const NORMALIZATION: &str = "normalization";
    /// Names must be UTF-8.
    pub const UTF8ONLY: &str = "utf8only";
    /// 0: sensitive, 1: insensitive, 2: mixed.
    pub const CASESENSITIVITY: &str = "casesensitivity";
    /// In the object of [`SA_ATTRS`]: the registry.
    pub const SA_REGISTRY: &str = "REGISTRY";
    /// In the object of [`SA_ATTRS`]: the layouts.
    pub const SA_LAYOUTS: &str = "LAYOUTS";
}

/// Type of a file: bits 12 to 15 of its mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FileType {
    /// Named pipe.
    Fifo,
    /// Character device.
    CharDevice,
    /// Directory.
    Directory,
    /// Block device.
    BlockDevice,
    /// Regular file.
    Regular,
    /// Symbolic link.
    Symlink,
    /// Socket.
    Socket,
    /// A number that Linux has no type for (doors and event ports of illumos).
    Other(u8),
}

impl FileType {
    /// The type in a mode.
    pub const fn from_mode(mode: u32) -> FileType {
        FileType::from_raw((mode >> 12) as u8 & 0xf)
    }

    /// The type of this number (`DT_*`).
    pub const fn from_raw(raw: u8) -> FileType {
        match raw {
            1 => FileType::Fifo,
            2 => FileType::CharDevice,
            4 => FileType::Directory,
            6 => FileType::BlockDevice,
            8 => FileType::Regular,
            10 => FileType::Symlink,
            12 => FileType::Socket,
            other => FileType::Other(other),
        }
    }

    /// The number (`DT_*`).
    pub const fn raw(self) -> u8 {
        match self {
            FileType::Fifo => 1,
            FileType::CharDevice => 2,
            FileType::Directory => 4,
            FileType::BlockDevice => 6,
            FileType::Regular => 8,
            FileType::Symlink => 10,
            FileType::Socket => 12,
            FileType::Other(other) => other,
        }
    }
}

/// Value of a directory's ZAP.
///
/// | bits | meaning |
/// |---|---|
/// | 0-47 | object |
/// | 48-59 | unused |
/// | 60-63 | type, 0 in filesystems before version 2 |
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Dirent {
    /// The file.
    pub object: ObjectId,
    /// Its type, if the directory has it.
    pub file_type: Option<FileType>,
}

impl Dirent {
    /// Unpacks a value.
    pub const fn from_raw(raw: u64) -> Dirent {
        let file_type = match (raw >> 60) as u8 {
            0 => None,
            number => Some(FileType::from_raw(number)),
        };
        Dirent { object: ObjectId(raw & 0xffff_ffff_ffff), file_type }
    }

    /// Packs a value; the object has 48 bits.
    pub const fn to_raw(self) -> u64 {
        let file_type = match self.file_type {
            Some(file_type) => file_type.raw() as u64,
            None => 0,
        };
        self.object.0 & 0xffff_ffff_ffff | file_type << 60
    }
}

/// Flags of a file (`ZPL_FLAGS`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct ZnodeFlags(pub u64);

macro_rules! flags {
    ($($constant:ident = $value:literal $doc:literal;)*) => {
        impl ZnodeFlags {
            $(#[doc = $doc] pub const $constant: ZnodeFlags = ZnodeFlags($value);)*
        }
    };
}

flags! {
    XATTR = 0x1 "An extended attribute, or the directory of them.";
    INHERIT_ACE = 0x2 "The ACL has entries that children inherit.";
    ACL_TRIVIAL = 0x4 "The ACL says no more than the mode.";
    ACL_OBJ_ACE = 0x8 "The ACL has object entries.";
    ACL_PROTECTED = 0x10 "The ACL does not inherit.";
    ACL_DEFAULTED = 0x20 "The ACL was made by default.";
    ACL_AUTO_INHERIT = 0x40 "The ACL was inherited.";
    BONUS_SCANSTAMP = 0x80 "Mark of a virus scanner behind an old znode.";
    NO_EXECS_DENIED = 0x100 "No entry of the ACL denies execution.";
    READONLY = 0x1_0000_0000 "Read only (DOS attribute).";
    HIDDEN = 0x2_0000_0000 "Hidden (DOS attribute).";
    SYSTEM = 0x4_0000_0000 "System (DOS attribute).";
    ARCHIVE = 0x8_0000_0000 "To be archived (DOS attribute).";
    IMMUTABLE = 0x10_0000_0000 "May not be changed.";
    NOUNLINK = 0x20_0000_0000 "May not be removed.";
    APPENDONLY = 0x40_0000_0000 "May only grow.";
    NODUMP = 0x80_0000_0000 "Not for backups.";
    OPAQUE = 0x100_0000_0000 "Opaque in a union.";
    AV_QUARANTINED = 0x200_0000_0000 "Quarantined by a virus scanner.";
    AV_MODIFIED = 0x400_0000_0000 "Modified since it was scanned.";
    REPARSE = 0x800_0000_0000 "A reparse point.";
    OFFLINE = 0x1000_0000_0000 "Offline (DOS attribute).";
    SPARSE = 0x2000_0000_0000 "Sparse (DOS attribute).";
    PROJINHERIT = 0x4000_0000_0000 "Children inherit the project.";
    PROJID = 0x8000_0000_0000 "The file has a project.";
}

impl ZnodeFlags {
    /// True when all of `other` are set.
    pub const fn contains(self, other: ZnodeFlags) -> bool {
        self.0 & other.0 == other.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn types_of_entries_and_of_modes_agree() {
        assert_eq!(FileType::from_mode(0o040755), FileType::Directory);
        assert_eq!(FileType::from_mode(0o120777), FileType::Symlink);
        assert_eq!(Dirent::from_raw(4 << 60 | 34).file_type, Some(FileType::Directory));
        assert_eq!(Dirent::from_raw(34), Dirent { object: ObjectId(34), file_type: None });
    }

    proptest! {
        #[test]
        fn entries_round_trip(raw: u64) {
            let used = raw & !(0xfff << 48);
            prop_assert_eq!(Dirent::from_raw(raw).to_raw(), used);
        }
    }
}
