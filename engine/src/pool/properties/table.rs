//! The native properties of pools and of vdevs, in the order of `zpool get all`.
//!
//! As for datasets, [`PoolProp`] and [`VdevProp`] are OpenZFS's numbers and index their tables. After the
//! native properties of a pool follow its user properties, `feature@…` for each feature known, and
//! `unsupported@…`. Source of the facts: OpenZFS 2.3 `zpool_prop.c` and `zfs.h`.

use crate::properties::index::{self, Names};
use crate::properties::{Attr, Kind};

/// Number that stands for a pool with feature flags in place of a version.
pub const VERSION_FEATURES: u64 = 5000;
const UNLIMITED: u64 = u64::MAX;

/// One native property.
#[derive(Debug, Clone, Copy)]
pub struct Desc<P: 'static> {
    /// Its number.
    pub prop: P,
    /// The name that is typed and stored.
    pub name: &'static str,
    /// The heading of its column in `zpool list`; understood as a name too, in lower case.
    pub column: &'static str,
    /// What its value is.
    pub kind: Kind,
    /// Who may set it.
    pub attr: Attr,
    /// Whether `zpool get all` shows it.
    pub visible: bool,
}

impl<P> Desc<P> {
    /// Whether its column is aligned to the right.
    pub fn right_aligned(&self) -> bool {
        matches!(self.kind, Kind::Number(_))
    }

    /// The default of a number or index.
    pub fn default_number(&self) -> u64 {
        match self.kind {
            Kind::Number(default) | Kind::Index(default, _) => default,
            Kind::Text(_) => 0,
        }
    }

    fn is_called(&self, name: &str) -> bool {
        let lower = !name.bytes().any(|byte| byte.is_ascii_uppercase());
        self.name == name || lower && self.column.eq_ignore_ascii_case(name)
    }
}

const fn num(default: u64) -> Kind {
    Kind::Number(default)
}
const fn idx(default: u64, names: Names) -> Kind {
    Kind::Index(default, names)
}
const UNSET: Kind = Kind::Text(None);

macro_rules! properties {
    ($enum:ident $table:ident $what:literal
     $($prop:ident $name:literal $column:literal $attr:ident $kind:expr $(, $hidden:ident)? ;)*) => {
        #[doc = concat!("A native property of a ", $what, ", by OpenZFS's number.")]
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[allow(missing_docs)]
        pub enum $enum { $($prop),* }

        #[doc = concat!("Every native property of a ", $what, ", indexed by number.")]
        pub static $table: &[Desc<$enum>] = &[$(Desc {
            prop: $enum::$prop,
            name: $name,
            column: $column,
            kind: $kind,
            attr: Attr::$attr,
            visible: true $(&& properties!($hidden))?,
        }),*];

        impl $enum {
            /// The row of this property.
            pub fn desc(self) -> &'static Desc<$enum> {
                &$table[self as usize]
            }

            /// The property that a person calls `name`: its name, or its column's heading in lower case.
            pub fn from_name(name: &str) -> Option<$enum> {
                $table.iter().find(|desc| desc.is_called(name)).map(|desc| desc.prop)
            }

            /// The native property stored under `name`.
            pub fn from_stored_name(name: &str) -> Option<$enum> {
                $table.iter().find(|desc| desc.name == name).map(|desc| desc.prop)
            }
        }
    };
    (hidden) => { false };
}

properties! { PoolProp POOL_TABLE "pool"
    Name "name" "NAME" Readonly UNSET, hidden;
    Size "size" "SIZE" Readonly num(0);
    Capacity "capacity" "CAP" Readonly num(0);
    Altroot "altroot" "ALTROOT" Default UNSET;
    Health "health" "HEALTH" Readonly num(0);
    Guid "guid" "GUID" Readonly num(0);
    Version "version" "VERSION" Default num(VERSION_FEATURES);
    Bootfs "bootfs" "BOOTFS" Default UNSET;
    Delegation "delegation" "DELEGATION" Default idx(1, index::BOOLEAN);
    Autoreplace "autoreplace" "REPLACE" Default idx(0, index::BOOLEAN);
    Cachefile "cachefile" "CACHEFILE" Default UNSET;
    Failmode "failmode" "FAILMODE" Default idx(0, index::FAILMODE);
    Listsnapshots "listsnapshots" "LISTSNAPS" Default idx(0, index::BOOLEAN);
    Autoexpand "autoexpand" "EXPAND" Default idx(0, index::BOOLEAN);
    Dedupditto "dedupditto" "DEDUPDITTO" Default num(0), hidden;
    Dedupratio "dedupratio" "DEDUP" Readonly num(0);
    Free "free" "FREE" Readonly num(0);
    Allocated "allocated" "ALLOC" Readonly num(0);
    Readonly "readonly" "RDONLY" Default idx(0, index::BOOLEAN);
    Ashift "ashift" "ASHIFT" Default num(0);
    Comment "comment" "COMMENT" Default UNSET;
    Expandsize "expandsize" "EXPANDSZ" Readonly num(0);
    Freeing "freeing" "FREEING" Readonly num(0);
    Fragmentation "fragmentation" "FRAG" Readonly num(0);
    Leaked "leaked" "LEAKED" Readonly num(0);
    Maxblocksize "maxblocksize" "MAXBLOCKSIZE" Readonly num(0), hidden;
    Tname "tname" "TNAME" Onetime UNSET, hidden;
    Maxdnodesize "maxdnodesize" "MAXDNODESIZE" Readonly num(0), hidden;
    Multihost "multihost" "MULTIHOST" Default idx(0, index::BOOLEAN);
    Checkpoint "checkpoint" "CKPOINT" Readonly num(0);
    LoadGuid "load_guid" "LOAD_GUID" Readonly num(0);
    Autotrim "autotrim" "AUTOTRIM" Default idx(0, index::BOOLEAN);
    Compatibility "compatibility" "COMPATIBILITY" Default Kind::Text(Some("off"));
    Bcloneused "bcloneused" "BCLONE_USED" Readonly num(0);
    Bclonesaved "bclonesaved" "BCLONE_SAVED" Readonly num(0);
    Bcloneratio "bcloneratio" "BCLONE_RATIO" Readonly num(0);
    DedupTableSize "dedup_table_size" "DDTSIZE" Readonly num(0);
    DedupTableQuota "dedup_table_quota" "DDTQUOTA" Default num(UNLIMITED);
    Dedupcached "dedupcached" "DEDUPCACHED" Readonly num(0), hidden;
    LastScrubbedTxg "last_scrubbed_txg" "LAST_SCRUBBED_TXG" Readonly num(0);
}

/// Properties of pools that can be set and on which the cost of reading and writing does not depend here,
/// each with the reason; as [`IDLE`](crate::properties::table::IDLE).
pub const POOL_IDLE: &[(PoolProp, &str)] = &[
    (PoolProp::Bootfs, "it names what a machine starts from"),
    (PoolProp::Delegation, "it says whether delegated permissions count"),
    (PoolProp::Autoreplace, "Cenote replaces no device unasked yet, and only keeps it"),
    (PoolProp::Failmode, "it says what happens when devices fail"),
    (PoolProp::Listsnapshots, "it says what a list shows"),
    (PoolProp::Autoexpand, "it says what happens when devices grow"),
    (PoolProp::Comment, "it is a remark"),
    (PoolProp::DedupTableQuota, "it bounds dedup tables: beyond it, new blocks are written as without dedup"),
];

impl PoolProp {
    /// Why the cost of reading and writing does not depend on it here; `None` where it does.
    pub fn idle(self) -> Option<&'static str> {
        POOL_IDLE.iter().find(|(prop, _)| *prop == self).map(|(_, why)| *why)
    }
}

properties! { VdevProp VDEV_TABLE "vdev"
    Name "name" "NAME" Readonly UNSET, hidden;
    Capacity "capacity" "CAP" Readonly num(0);
    State "state" "STATE" Readonly num(0);
    Guid "guid" "GUID" Readonly num(0);
    Asize "asize" "ASIZE" Readonly num(0);
    Psize "psize" "PSIZE" Readonly num(0);
    Ashift "ashift" "ASHIFT" Readonly num(0);
    Size "size" "SIZE" Readonly num(0);
    Free "free" "FREE" Readonly num(0);
    Allocated "allocated" "ALLOC" Readonly num(0);
    Comment "comment" "COMMENT" Default UNSET;
    Expandsize "expandsize" "EXPANDSZ" Readonly num(0);
    Fragmentation "fragmentation" "FRAG" Readonly num(0);
    Bootsize "bootsize" "BOOTSIZE" Readonly num(0);
    Parity "parity" "PARITY" Readonly num(0);
    Path "path" "PATH" Default UNSET;
    Devid "devid" "DEVID" Readonly UNSET;
    PhysPath "physpath" "PHYSPATH" Readonly UNSET;
    EncPath "encpath" "ENCPATH" Readonly UNSET;
    Fru "fru" "FRU" Readonly UNSET;
    Parent "parent" "PARENT" Readonly UNSET;
    Children "children" "CHILDREN" Readonly UNSET;
    Numchildren "numchildren" "NUMCHILD" Readonly num(0);
    ReadErrors "read_errors" "RDERR" Readonly num(0);
    WriteErrors "write_errors" "WRERR" Readonly num(0);
    ChecksumErrors "checksum_errors" "CKERR" Readonly num(0);
    InitializeErrors "initialize_errors" "INITERR" Readonly num(0);
    NullOps "null_ops" "NULLOP" Readonly num(0);
    ReadOps "read_ops" "READOP" Readonly num(0);
    WriteOps "write_ops" "WRITEOP" Readonly num(0);
    FreeOps "free_ops" "FREEOP" Readonly num(0);
    ClaimOps "claim_ops" "CLAIMOP" Readonly num(0);
    TrimOps "trim_ops" "TRIMOP" Readonly num(0);
    NullBytes "null_bytes" "NULLBYTE" Readonly num(0);
    ReadBytes "read_bytes" "READBYTE" Readonly num(0);
    WriteBytes "write_bytes" "WRITEBYTE" Readonly num(0);
    FreeBytes "free_bytes" "FREEBYTE" Readonly num(0);
    ClaimBytes "claim_bytes" "CLAIMBYTE" Readonly num(0);
    TrimBytes "trim_bytes" "TRIMBYTE" Readonly num(0);
    Removing "removing" "REMOVING" Readonly idx(0, index::BOOLEAN);
    Allocating "allocating" "ALLOCATING" Default idx(1, index::BOOLEAN_NA);
    Failfast "failfast" "FAILFAST" Default idx(1, index::BOOLEAN);
    ChecksumN "checksum_n" "CKSUM_N" Default num(UNLIMITED);
    ChecksumT "checksum_t" "CKSUM_T" Default num(UNLIMITED);
    IoN "io_n" "IO_N" Default num(UNLIMITED);
    IoT "io_t" "IO_T" Default num(UNLIMITED);
    RaidzExpanding "raidz_expanding" "RAIDZ_EXPANDING" Readonly idx(0, index::BOOLEAN);
    SlowIoN "slow_io_n" "SLOW_IO_N" Default num(UNLIMITED);
    SlowIoT "slow_io_t" "SLOW_IO_T" Default num(UNLIMITED);
    TrimSupport "trim_support" "TRIMSUP" Readonly idx(0, index::BOOLEAN);
    TrimErrors "trim_errors" "TRIMERR" Readonly num(0);
    SlowIos "slow_ios" "SLOW" Readonly num(0);
    SitOut "sit_out" "SIT_OUT" Default idx(0, index::BOOLEAN);
    Autosit "autosit" "AUTOSIT" Default idx(0, index::BOOLEAN);
    SlowIoEvents "slow_io_events" "SLOW_IO_EVENTS" Default idx(1, index::BOOLEAN);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_property_indexes_its_own_row() {
        assert!(POOL_TABLE.iter().enumerate().all(|(index, desc)| desc.prop as usize == index));
        assert!(VDEV_TABLE.iter().enumerate().all(|(index, desc)| desc.prop as usize == index));
    }

    #[test]
    fn names_and_column_headings_are_understood() {
        assert_eq!(PoolProp::from_name("cap"), Some(PoolProp::Capacity));
        assert_eq!(VdevProp::from_name("checksum_errors"), Some(VdevProp::ChecksumErrors));
        assert_eq!(PoolProp::from_name("CAP"), None);
    }
}
