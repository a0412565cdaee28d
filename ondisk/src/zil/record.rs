//! Records of the intent log.
//!
//! All begin with the same header; the body depends on the kind. Everything is a u64 unless stated; names are
//! NUL-terminated; a record is padded with zeros to a multiple of 8.
//!
//! | offset | size | name | meaning |
//! |---|---|---|---|
//! | 0 | 8 | `lrc_txtype` | kind; bit 63: names were matched without regard to case |
//! | 8 | 8 | `lrc_reclen` | bytes of the whole record |
//! | 16 | 8 | `lrc_txg` | txg to which the change belongs; a record of a synced txg is not replayed |
//! | 24 | 8 | `lrc_seq` | sequence number |
//!
//! | number | kind | body |
//! |---|---|---|
//! | 1, 2, 3 | create, mkdir, mkxattr | *create*, domains, name |
//! | 4 | symlink | *create*, name, target |
//! | 5, 6 | remove, rmdir | directory, name |
//! | 7 | link | directory, object, name |
//! | 8, 22 | rename, exchange | source directory, target directory, source name, target name |
//! | 9 | write | object, offset, length, unused, block pointer; then the data, unless the pointer says where it is |
//! | 10 | truncate | object, offset, length |
//! | 11 | setattr | object, mask, mode, uid, gid, size, atime (2), mtime (2), *attributes* if bit 31 of the mask, domains |
//! | 12 | acl v0 | object, count, old entries |
//! | 13 | acl | object, *acl counts*, entries (padded to 8), FUIDs, domains |
//! | 14, 17 | create, mkdir with ACL | *create*, *acl counts*, entries (padded to 8), FUIDs, domains, name |
//! | 15, 18 | create, mkdir with attributes | *create*, *attributes*, domains, name |
//! | 16, 19 | create, mkdir with both | *create*, *acl counts*, *attributes*, entries (padded to 8), FUIDs, domains, name |
//! | 20 | write2 | as write, without data: the block is in the file already, only its size may lag |
//! | 21 | setsaxattr | object, size of the value, name, value (none: remove) |
//! | 23 | whiteout | as rename, then *create* without directory for the whiteout, before the names |
//! | 24 | clone range | object, offset, length, block size, count, block pointers |
//!
//! - *create*: directory, object (bits 0-47; bits 56-63: slots of its dnode less one), mode, uid, gid,
//!   generation, creation time (2), rdev.
//! - *acl counts*: entries, domains, FUIDs, bytes of entries, flags.
//! - *attributes*: u32 count of mask words, that many u32 mask words (which are set), u64 of bits (their
//!   values), creation time (2), 32 bytes that are an anti-virus stamp or begin with a project id.
//! - *domains*: NUL-terminated strings that the FUIDs of this record refer to by number, from 1. Without a
//!   count there are as many as the uid and gid have different domain numbers (their upper 32 bits).
//!
//! Source of the facts: OpenZFS 2.3 `zil.h`, `zfs_log.c`, `zfs_replay.c`.

use crate::blkptr::Blkptr;
use crate::words::word_struct;
use crate::{ByteOrder, Error, ObjectId, Reader, Result, Txg, Writer};

mod decode;
mod encode;

const WHAT: &str = "intent log record";

/// Numbers of the kinds.
mod kind {
    pub const CREATE: u64 = 1;
    pub const MKDIR: u64 = 2;
    pub const MKXATTR: u64 = 3;
    pub const SYMLINK: u64 = 4;
    pub const REMOVE: u64 = 5;
    pub const RMDIR: u64 = 6;
    pub const LINK: u64 = 7;
    pub const RENAME: u64 = 8;
    pub const WRITE: u64 = 9;
    pub const TRUNCATE: u64 = 10;
    pub const SETATTR: u64 = 11;
    pub const ACL_V0: u64 = 12;
    pub const ACL: u64 = 13;
    pub const CREATE_ACL: u64 = 14;
    pub const CREATE_ATTR: u64 = 15;
    pub const CREATE_ACL_ATTR: u64 = 16;
    pub const MKDIR_ACL: u64 = 17;
    pub const MKDIR_ATTR: u64 = 18;
    pub const MKDIR_ACL_ATTR: u64 = 19;
    pub const WRITE2: u64 = 20;
    pub const SETSAXATTR: u64 = 21;
    pub const RENAME_EXCHANGE: u64 = 22;
    pub const RENAME_WHITEOUT: u64 = 23;
    pub const CLONE_RANGE: u64 = 24;
}

const CASE_INSENSITIVE_BIT: u64 = 1 << 63;

word_struct! {
    /// The head of every record (`lr_t`).
    pub struct RecordHeader {
        /// Kind and flag, see [`RecordHeader::kind_number`].
        pub txtype: u64,
        /// Bytes of the whole record.
        pub reclen: u64,
        /// Txg of the change.
        pub txg: Txg,
        /// Sequence number.
        pub seq: u64,
    }
}

impl RecordHeader {
    /// The number of the kind.
    pub const fn kind_number(&self) -> u64 {
        self.txtype & !CASE_INSENSITIVE_BIT
    }

    /// True when the names of the record are to be matched without regard to case.
    pub const fn is_case_insensitive(&self) -> bool {
        self.txtype & CASE_INSENSITIVE_BIT != 0
    }

    /// The length of the record, if it can be one.
    pub fn record_bytes(&self) -> Result<usize> {
        let length = usize::try_from(self.reclen).ok().filter(|&length| length >= Self::SIZE);
        length.ok_or_else(|| Error::invalid(WHAT, format!("length {}", self.reclen)))
    }
}

word_struct! {
    /// A time.
    pub struct Time {
        /// Since 1970.
        pub seconds: i64,
        /// Of the second.
        pub nanoseconds: u64,
    }
}

word_struct! {
    /// An object that is made (the create part of a record, without the directory).
    pub struct NewObject {
        /// Object number and dnode slots, see [`NewObject::object`].
        pub foid: u64,
        /// Mode.
        pub mode: u64,
        /// Owner: an id, or a FUID whose domain is in the record.
        pub uid: u64,
        /// Group, likewise.
        pub gid: u64,
        /// Generation.
        pub generation: u64,
        /// Creation time.
        pub crtime: Time,
        /// Device number.
        pub rdev: u64,
    }
}

impl NewObject {
    const OBJECT_BITS: u32 = 48;
    const SLOTS_SHIFT: u32 = 56;

    /// The two parts of [`NewObject::foid`]. `slots` is how many slots of 512 bytes the dnode takes.
    pub const fn foid_of(object: ObjectId, slots: u8) -> u64 {
        object.get() & ((1 << Self::OBJECT_BITS) - 1) | (slots.wrapping_sub(1) as u64) << Self::SLOTS_SHIFT
    }

    /// The object number.
    pub const fn object(&self) -> ObjectId {
        ObjectId(self.foid & ((1 << Self::OBJECT_BITS) - 1))
    }

    /// How many slots of 512 bytes its dnode takes.
    pub const fn dnode_slots(&self) -> u16 {
        (self.foid >> Self::SLOTS_SHIFT) as u16 + 1
    }

    /// How many domains follow a record without a count.
    fn domains(&self) -> u64 {
        domains_of(self.uid, self.gid)
    }
}

fn domains_of(uid: u64, gid: u64) -> u64 {
    let (uid, gid) = (uid >> 32, gid >> 32);
    u64::from(uid != 0) + u64::from(gid != 0 && gid != uid)
}

/// Attributes beyond the POSIX ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// Which are set, see [`attribute`]; in practice three words of which the first has all bits.
    pub mask: Vec<u32>,
    /// The values of those that are one bit.
    pub bits: u64,
    /// The creation time, if it is among them.
    pub crtime: Time,
    /// The anti-virus stamp, or in its first word the project id, if one of them is.
    pub stamp: [u8; 32],
}

/// Bits of the first mask word, and of the values.
pub mod attribute {
    /// [`Attributes::crtime`](super::Attributes::crtime) is set.
    pub const CREATETIME: u32 = 0x1;
    /// DOS archive.
    pub const ARCHIVE: u32 = 0x2;
    /// DOS system.
    pub const SYSTEM: u32 = 0x4;
    /// DOS read-only.
    pub const READONLY: u32 = 0x8;
    /// DOS hidden.
    pub const HIDDEN: u32 = 0x10;
    /// May not be unlinked.
    pub const NOUNLINK: u32 = 0x20;
    /// May not be changed.
    pub const IMMUTABLE: u32 = 0x40;
    /// May only be appended to.
    pub const APPENDONLY: u32 = 0x80;
    /// Not to be dumped.
    pub const NODUMP: u32 = 0x100;
    /// Opaque directory of a union file system.
    pub const OPAQUE: u32 = 0x200;
    /// Quarantined by a virus scanner.
    pub const AV_QUARANTINED: u32 = 0x400;
    /// Changed since the last virus scan.
    pub const AV_MODIFIED: u32 = 0x800;
    /// [`Attributes::stamp`](super::Attributes::stamp) is a stamp.
    pub const AV_SCANSTAMP: u32 = 0x1000;
    /// Reparse point.
    pub const REPARSE: u32 = 0x2000;
    /// Generation number.
    pub const GEN: u32 = 0x4000;
    /// Offline.
    pub const OFFLINE: u32 = 0x8000;
    /// Sparse.
    pub const SPARSE: u32 = 0x1_0000;
    /// New files inherit the project.
    pub const PROJINHERIT: u32 = 0x2_0000;
    /// [`Attributes::stamp`](super::Attributes::stamp) begins with a project id.
    pub const PROJID: u32 = 0x4_0000;
}

impl Attributes {
    const MAX_MASK_WORDS: u32 = 64;

    fn read(reader: &mut Reader<'_>) -> Result<Attributes> {
        let words = reader.u32()?;
        if words == 0 || words > Self::MAX_MASK_WORDS {
            return Err(Error::invalid(WHAT, format!("{words} attribute mask words")));
        }
        let mask = (0..words).map(|_| reader.u32()).collect::<Result<_>>()?;
        Ok(Attributes { mask, bits: reader.u64()?, crtime: Time::read(reader)?, stamp: reader.array()? })
    }

    fn write(&self, writer: &mut Writer) {
        writer.u32(self.mask.len() as u32);
        for &word in &self.mask {
            writer.u32(word);
        }
        writer.u64(self.bits);
        self.crtime.write(writer);
        writer.bytes(&self.stamp);
    }

    /// True when this attribute is set by the record.
    pub fn has(&self, attribute: u32) -> bool {
        self.mask.first().is_some_and(|mask| mask & attribute == attribute)
    }

    /// The project id, if the record sets it.
    pub fn project_id(&self, order: ByteOrder) -> Option<u64> {
        let first = *self.stamp.first_chunk()?;
        self.has(attribute::PROJID).then(|| order.u64(first))
    }
}

/// An access control list in a record.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Acl<'a> {
    /// Number of entries.
    pub count: u64,
    /// Flags.
    pub flags: u64,
    /// The entries, of varying length, in the byte order of the record.
    pub entries: &'a [u8],
    /// FUIDs of the entries whose ids are not POSIX ids.
    pub fuids: Vec<u64>,
}

/// How an object is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CreateKind {
    /// Any file but a directory or symbolic link.
    File,
    /// A directory.
    Directory,
    /// A directory of extended attributes; it has no name.
    XattrDirectory,
}

/// How something is renamed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RenameKind {
    /// The target, if there is one, goes.
    Replace,
    /// Source and target change places.
    Exchange,
    /// A whiteout appears in the place of the source.
    Whiteout(NewObject),
}

/// Where the data of a write is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteData<'a> {
    /// Here.
    Inline(&'a [u8]),
    /// In a block of its own: the whole block of the file that contains the written range. A hole means
    /// zeros.
    Block(Blkptr),
}

/// A record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record<'a> {
    /// Something is made in a directory.
    Create {
        /// What.
        kind: CreateKind,
        /// Where.
        directory: ObjectId,
        /// The new object.
        object: NewObject,
        /// Its attributes beyond POSIX, if given.
        attributes: Option<Attributes>,
        /// Its ACL, if given.
        acl: Option<Acl<'a>>,
        /// Domains of FUIDs.
        domains: Vec<&'a [u8]>,
        /// Name.
        name: &'a [u8],
    },
    /// A symbolic link is made.
    Symlink {
        /// Where.
        directory: ObjectId,
        /// The new object.
        object: NewObject,
        /// Name.
        name: &'a [u8],
        /// Its target.
        target: &'a [u8],
    },
    /// A name goes, of anything but a directory.
    Remove {
        /// Where.
        directory: ObjectId,
        /// Which.
        name: &'a [u8],
    },
    /// A directory goes.
    Rmdir {
        /// Where.
        directory: ObjectId,
        /// Which.
        name: &'a [u8],
    },
    /// A further name for an object.
    Link {
        /// Where.
        directory: ObjectId,
        /// Of what.
        object: ObjectId,
        /// Name.
        name: &'a [u8],
    },
    /// A name changes.
    Rename {
        /// How.
        kind: RenameKind,
        /// From where.
        source: ObjectId,
        /// To where.
        target: ObjectId,
        /// From which name.
        source_name: &'a [u8],
        /// To which name.
        target_name: &'a [u8],
    },
    /// Data is written (to a file or a volume).
    Write {
        /// To what.
        object: ObjectId,
        /// Where.
        offset: u64,
        /// How much.
        length: u64,
        /// The data.
        data: WriteData<'a>,
    },
    /// Data that is in the file already was written; only the size may have to grow.
    Write2 {
        /// To what.
        object: ObjectId,
        /// Where.
        offset: u64,
        /// How much.
        length: u64,
        /// The block it was written to.
        block: Blkptr,
    },
    /// Data is cut off or punched out.
    Truncate {
        /// Of what.
        object: ObjectId,
        /// From where.
        offset: u64,
        /// How much, 0: all from there.
        length: u64,
    },
    /// Attributes are set.
    SetAttr {
        /// Of what.
        object: ObjectId,
        /// Which, see [`set_attr_mask`].
        mask: u64,
        /// Mode.
        mode: u64,
        /// Owner.
        uid: u64,
        /// Group.
        gid: u64,
        /// Size.
        size: u64,
        /// Access time.
        atime: Time,
        /// Modification time.
        mtime: Time,
        /// Attributes beyond POSIX.
        attributes: Option<Attributes>,
        /// Domains of FUIDs.
        domains: Vec<&'a [u8]>,
    },
    /// An ACL is set, in the form of ZPL versions before 3.
    AclV0 {
        /// Of what.
        object: ObjectId,
        /// Number of entries.
        count: u64,
        /// The entries, in the byte order of the record.
        entries: &'a [u8],
    },
    /// An ACL is set.
    Acl {
        /// Of what.
        object: ObjectId,
        /// The ACL.
        acl: Acl<'a>,
        /// Domains of FUIDs.
        domains: Vec<&'a [u8]>,
    },
    /// An extended attribute kept in a system attribute is set or removed.
    SetSaXattr {
        /// Of what.
        object: ObjectId,
        /// Which.
        name: &'a [u8],
        /// Value; empty: the attribute goes.
        value: &'a [u8],
    },
    /// Blocks are cloned into a file or volume.
    CloneRange {
        /// Into what.
        object: ObjectId,
        /// Where.
        offset: u64,
        /// How much.
        length: u64,
        /// Block size of the file.
        block_bytes: u64,
        /// The blocks.
        blocks: Vec<Blkptr>,
    },
}

/// Bits of [`Record::SetAttr`]'s mask, as Linux has them.
pub mod set_attr_mask {
    /// Mode.
    pub const MODE: u64 = 1;
    /// Owner.
    pub const UID: u64 = 1 << 1;
    /// Group.
    pub const GID: u64 = 1 << 2;
    /// Size.
    pub const SIZE: u64 = 1 << 3;
    /// Access time.
    pub const ATIME: u64 = 1 << 4;
    /// Modification time.
    pub const MTIME: u64 = 1 << 5;
    /// Change time.
    pub const CTIME: u64 = 1 << 6;
    /// Attributes beyond POSIX follow.
    pub const XVATTR: u64 = 1 << 31;
}
impl Record<'_> {
    /// The number of the kind.
    pub const fn kind_number(&self) -> u64 {
        use CreateKind::{Directory, File, XattrDirectory};
        match self {
            Record::Create { kind, attributes, acl, .. } => {
                match (*kind, acl.is_some(), attributes.is_some()) {
                    (XattrDirectory, ..) => kind::MKXATTR,
                    (File, false, false) => kind::CREATE,
                    (File, true, false) => kind::CREATE_ACL,
                    (File, false, true) => kind::CREATE_ATTR,
                    (File, true, true) => kind::CREATE_ACL_ATTR,
                    (Directory, false, false) => kind::MKDIR,
                    (Directory, true, false) => kind::MKDIR_ACL,
                    (Directory, false, true) => kind::MKDIR_ATTR,
                    (Directory, true, true) => kind::MKDIR_ACL_ATTR,
                }
            }
            Record::Symlink { .. } => kind::SYMLINK,
            Record::Remove { .. } => kind::REMOVE,
            Record::Rmdir { .. } => kind::RMDIR,
            Record::Link { .. } => kind::LINK,
            Record::Rename { kind: RenameKind::Replace, .. } => kind::RENAME,
            Record::Rename { kind: RenameKind::Exchange, .. } => kind::RENAME_EXCHANGE,
            Record::Rename { kind: RenameKind::Whiteout(_), .. } => kind::RENAME_WHITEOUT,
            Record::Write { .. } => kind::WRITE,
            Record::Write2 { .. } => kind::WRITE2,
            Record::Truncate { .. } => kind::TRUNCATE,
            Record::SetAttr { .. } => kind::SETATTR,
            Record::AclV0 { .. } => kind::ACL_V0,
            Record::Acl { .. } => kind::ACL,
            Record::SetSaXattr { .. } => kind::SETSAXATTR,
            Record::CloneRange { .. } => kind::CLONE_RANGE,
        }
    }

    /// True for the kinds that may be logged in another order than they happened, because they commute with
    /// all but their own object's.
    pub const fn may_be_out_of_order(&self) -> bool {
        matches!(
            self,
            Record::Write { .. }
                | Record::Write2 { .. }
                | Record::Truncate { .. }
                | Record::SetAttr { .. }
                | Record::AclV0 { .. }
                | Record::Acl { .. }
                | Record::SetSaXattr { .. }
                | Record::CloneRange { .. }
        )
    }
}

#[cfg(test)]
mod tests;
