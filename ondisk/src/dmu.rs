//! Object types: what an object or block contains, and hence how to print, byteswap, account and encrypt it.
//!
//! Two families share one byte. Types below 54 are numbered and have a row in the table here. Types with bit
//! 7 set describe themselves, so that a feature can add an object without taking a number:
//!
//! | bits | meaning |
//! |---|---|
//! | 7 | 1: self-describing |
//! | 6 | metadata (stored with extra copies, cached as metadata) |
//! | 5 | content is encrypted in encrypted datasets |
//! | 0-4 | byteswap class |
//!
//! Source: OpenZFS 2.3 `dmu.h` and the `dmu_ot` table in `dmu.c`.

use std::fmt;

use crate::{Error, Result};

/// How the content of an object changes between byte orders.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Byteswap {
    /// Bytes; nothing to swap.
    Uint8 = 0,
    /// Array of 16-bit integers.
    Uint16 = 1,
    /// Array of 32-bit integers.
    Uint32 = 2,
    /// Array of 64-bit integers.
    Uint64 = 3,
    /// ZAP blocks.
    Zap = 4,
    /// Array of dnodes.
    Dnode = 5,
    /// Object set.
    Objset = 6,
    /// Old znode in a bonus buffer.
    Znode = 7,
    /// Version 0 ACL.
    OldAcl = 8,
    /// ACL with variable-size entries.
    Acl = 9,
}

impl Byteswap {
    const ALL: [Byteswap; 10] = [
        Byteswap::Uint8,
        Byteswap::Uint16,
        Byteswap::Uint32,
        Byteswap::Uint64,
        Byteswap::Zap,
        Byteswap::Dnode,
        Byteswap::Objset,
        Byteswap::Znode,
        Byteswap::OldAcl,
        Byteswap::Acl,
    ];

    /// The name that `zdb` prints for self-describing types.
    pub const fn name(self) -> &'static str {
        match self {
            Byteswap::Uint8 => "uint8",
            Byteswap::Uint16 => "uint16",
            Byteswap::Uint32 => "uint32",
            Byteswap::Uint64 => "uint64",
            Byteswap::Zap => "zap",
            Byteswap::Dnode => "dnode",
            Byteswap::Objset => "objset",
            Byteswap::Znode => "znode",
            Byteswap::OldAcl => "oldacl",
            Byteswap::Acl => "acl",
        }
    }
}

/// A valid object type (`dmu_object_type_t`).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct DmuType(u8);

struct Row {
    byteswap: Byteswap,
    metadata: bool,
    encrypted: bool,
    name: &'static str,
}

macro_rules! types {
    ($($constant:ident = $byteswap:ident $class:ident $crypt:ident $name:literal;)*) => {
        /// The numbered types, in order of their numbers.
        static TABLE: &[Row] = &[$(Row {
            byteswap: Byteswap::$byteswap,
            metadata: types!(@metadata $class),
            encrypted: types!(@encrypted $crypt),
            name: $name,
        }),*];

        #[allow(non_camel_case_types, clippy::upper_case_acronyms)]
        #[repr(u8)]
        enum Number { $($constant),* }

        impl DmuType {
            $(#[doc = concat!("`", $name, "`")] pub const $constant: DmuType = DmuType(Number::$constant as u8);)*
        }
    };
    (@metadata meta) => { true };
    (@metadata data) => { false };
    (@encrypted enc) => { true };
    (@encrypted clear) => { false };
}

types! {
    NONE = Uint8 meta clear "unallocated";
    OBJECT_DIRECTORY = Zap meta clear "object directory";
    OBJECT_ARRAY = Uint64 meta clear "object array";
    PACKED_NVLIST = Uint8 meta clear "packed nvlist";
    PACKED_NVLIST_SIZE = Uint64 meta clear "packed nvlist size";
    BPOBJ = Uint64 meta clear "bpobj";
    BPOBJ_HDR = Uint64 meta clear "bpobj header";
    SPACE_MAP_HEADER = Uint64 meta clear "SPA space map header";
    SPACE_MAP = Uint64 meta clear "SPA space map";
    INTENT_LOG = Uint64 meta enc "ZIL intent log";
    DNODE = Dnode meta enc "DMU dnode";
    OBJSET = Objset meta clear "DMU objset";
    DSL_DIR = Uint64 meta clear "DSL directory";
    DSL_DIR_CHILD_MAP = Zap meta clear "DSL directory child map";
    DSL_DS_SNAP_MAP = Zap meta clear "DSL dataset snap map";
    DSL_PROPS = Zap meta clear "DSL props";
    DSL_DATASET = Uint64 meta clear "DSL dataset";
    ZNODE = Znode meta clear "ZFS znode";
    OLDACL = OldAcl meta enc "ZFS V0 ACL";
    PLAIN_FILE_CONTENTS = Uint8 data enc "ZFS plain file";
    DIRECTORY_CONTENTS = Zap meta enc "ZFS directory";
    MASTER_NODE = Zap meta clear "ZFS master node";
    UNLINKED_SET = Zap meta enc "ZFS delete queue";
    ZVOL = Uint8 data enc "zvol object";
    ZVOL_PROP = Zap meta clear "zvol prop";
    PLAIN_OTHER = Uint8 data enc "other uint8[]";
    UINT64_OTHER = Uint64 data enc "other uint64[]";
    ZAP_OTHER = Zap meta clear "other ZAP";
    ERROR_LOG = Zap meta clear "persistent error log";
    SPA_HISTORY = Uint8 meta clear "SPA history";
    SPA_HISTORY_OFFSETS = Uint64 meta clear "SPA history offsets";
    POOL_PROPS = Zap meta clear "Pool properties";
    DSL_PERMS = Zap meta clear "DSL permissions";
    ACL = Acl meta enc "ZFS ACL";
    SYSACL = Uint8 meta enc "ZFS SYSACL";
    FUID = Uint8 meta enc "FUID table";
    FUID_SIZE = Uint64 meta clear "FUID table size";
    NEXT_CLONES = Zap meta clear "DSL dataset next clones";
    SCAN_QUEUE = Zap meta clear "scan work queue";
    USERGROUP_USED = Zap meta enc "ZFS user/group/project used";
    USERGROUP_QUOTA = Zap meta enc "ZFS user/group/project quota";
    USERREFS = Zap meta clear "snapshot refcount tags";
    DDT_ZAP = Zap meta clear "DDT ZAP algorithm";
    DDT_STATS = Zap meta clear "DDT statistics";
    SA = Uint8 meta enc "System attributes";
    SA_MASTER_NODE = Zap meta enc "SA master node";
    SA_ATTR_REGISTRATION = Zap meta enc "SA attr registration";
    SA_ATTR_LAYOUTS = Zap meta enc "SA attr layouts";
    SCAN_XLATE = Zap meta clear "scan translations";
    DEDUP = Uint8 data enc "deduplicated block";
    DEADLIST = Zap meta clear "DSL deadlist map";
    DEADLIST_HDR = Uint64 meta clear "DSL deadlist map hdr";
    DSL_CLONES = Zap meta clear "DSL dir clones";
    BPOBJ_SUBOBJ = Uint64 meta clear "bpobj subobj";
}

const SELF_DESCRIBING: u8 = 0x80;
const METADATA: u8 = 0x40;
const ENCRYPTED: u8 = 0x20;
const BYTESWAP: u8 = 0x1f;

impl DmuType {
    /// Number of numbered types.
    pub const NUMBERED: u8 = TABLE.len() as u8;

    /// The type of this number, if there is one.
    pub fn from_raw(raw: u8) -> Result<DmuType> {
        let known = if raw & SELF_DESCRIBING != 0 {
            usize::from(raw & BYTESWAP) < Byteswap::ALL.len()
        } else {
            usize::from(raw) < TABLE.len()
        };
        if known { Ok(DmuType(raw)) } else { Err(Error::unsupported("object type", format!("number {raw}"))) }
    }

    /// A self-describing type (`DMU_OTN_*`).
    pub const fn self_describing(byteswap: Byteswap, metadata: bool, encrypted: bool) -> DmuType {
        let mut raw = SELF_DESCRIBING | byteswap as u8;
        if metadata {
            raw |= METADATA;
        }
        if encrypted {
            raw |= ENCRYPTED;
        }
        DmuType(raw)
    }

    /// The number on disk.
    pub const fn raw(self) -> u8 {
        self.0
    }

    /// True for types that carry their own description (`DMU_OTN_*`).
    pub const fn is_self_describing(self) -> bool {
        self.0 & SELF_DESCRIBING != 0
    }

    fn row(self) -> Option<&'static Row> {
        TABLE.get(usize::from(self.0))
    }

    /// How its content changes between byte orders.
    pub fn byteswap(self) -> Byteswap {
        match self.row() {
            Some(row) => row.byteswap,
            None => Byteswap::ALL.get(usize::from(self.0 & BYTESWAP)).copied().unwrap_or(Byteswap::Uint8),
        }
    }

    /// Metadata, as opposed to file or volume content.
    pub fn is_metadata(self) -> bool {
        self.row().map_or(self.0 & METADATA != 0, |row| row.metadata)
    }

    /// Encrypted in encrypted datasets; the content of other types is authenticated at most.
    pub fn is_encrypted(self) -> bool {
        DmuType::raw_is_encrypted(self.0)
    }

    /// [`DmuType::is_encrypted`] of a number, known or not.
    pub(crate) const fn raw_is_encrypted(raw: u8) -> bool {
        if (raw as usize) < TABLE.len() { TABLE[raw as usize].encrypted } else { raw & ENCRYPTED != 0 }
    }

    /// Block pointers to its data blocks use the fill count for more than presence, so they are never
    /// embedded.
    pub const fn has_fill(self) -> bool {
        matches!(self, DmuType::DNODE | DmuType::OBJSET)
    }

    /// The name that `zdb` prints. A self-describing type is named after its byteswap class.
    pub fn name(self) -> &'static str {
        match self.row() {
            Some(row) => row.name,
            None => self.byteswap().name(),
        }
    }
}

impl fmt::Debug for DmuType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DmuType({}, {})", self.0, self.name())
    }
}

impl fmt::Display for DmuType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbered_types_stand_at_their_numbers() {
        assert_eq!(DmuType::NUMBERED, 54);
        for (constant, number) in [
            (DmuType::DNODE, 10),
            (DmuType::OBJSET, 11),
            (DmuType::PLAIN_FILE_CONTENTS, 19),
            (DmuType::ZAP_OTHER, 27),
            (DmuType::SA, 44),
            (DmuType::BPOBJ_SUBOBJ, 53),
        ] {
            assert_eq!(constant.raw(), number);
        }
    }

    #[test]
    fn unknown_types_are_refused() {
        assert!(DmuType::from_raw(54).is_err());
        assert!(DmuType::from_raw(0x80 | 10).is_err());
        assert!(DmuType::from_raw(0xe4).is_ok());
    }

    #[test]
    fn self_describing_types_say_what_they_are() {
        let ty = DmuType::self_describing(Byteswap::Zap, true, false);
        assert_eq!(ty.raw(), 0xc4);
        assert!(ty.is_metadata() && !ty.is_encrypted());
        assert_eq!(ty.byteswap(), Byteswap::Zap);
    }
}
