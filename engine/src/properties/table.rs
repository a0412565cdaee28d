//! The native properties of datasets, in the order of `zfs get all`.
//!
//! One row for each property: its name, the kind of its value, its attribute (who may set it), the kinds of
//! dataset that have it, and its default. The rows are in OpenZFS's numbering ([`Prop`] is the index into
//! [`TABLE`]), which is also the order of `zfs get all`; hidden rows keep their place and are left out there.
//! Values in a properties ZAP are numbers (8-byte integers; index properties too, by the tables of
//! [`super::index`]) or strings (bytes with a terminating NUL). Source of the facts: OpenZFS 2.4 `zfs_prop.c`
//! and `zfs.h`.

use ondisk::accounting::{AccountingObject, Counted};

use super::index::{self, Names};

/// Who may set a property, and whether children inherit it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attr {
    /// Settable; not inherited.
    Default,
    /// Computed; never settable.
    Readonly,
    /// Settable; a dataset without its own value inherits its parent's.
    Inherit,
    /// Settable when the dataset is created, and shown as `-` afterwards.
    Onetime,
    /// Settable when the dataset is created; has a default.
    OnetimeDefault,
}

/// The kind of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A number, with its default.
    Number(u64),
    /// A number shown as a word, with its default.
    Index(u64, Names),
    /// A string, with its default if there is one.
    Text(Option<&'static str>),
}

/// A set of dataset types, as bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Types(u8);

impl Types {
    /// Filesystems.
    pub const FILESYSTEM: Types = Types(1);
    /// Snapshots.
    pub const SNAPSHOT: Types = Types(2);
    /// Volumes.
    pub const VOLUME: Types = Types(4);
    /// Bookmarks.
    pub const BOOKMARK: Types = Types(16);
    /// Filesystems, volumes and snapshots.
    pub const DATASET: Types = Types(7);

    /// Both sets together.
    pub const fn or(self, other: Types) -> Types {
        Types(self.0 | other.0)
    }

    /// Whether the sets share a type.
    pub const fn meets(self, other: Types) -> bool {
        self.0 & other.0 != 0
    }
}

/// One native property.
#[derive(Debug, Clone, Copy)]
pub struct Desc {
    /// Its number.
    pub prop: Prop,
    /// The name that users type and that is stored.
    pub name: &'static str,
    /// The heading of its column in `zfs list`; accepted as a name too, in lower case.
    pub column: &'static str,
    /// The kind of its value.
    pub kind: Kind,
    /// Who may set it.
    pub attr: Attr,
    /// The kinds of dataset that have it.
    pub types: Types,
    /// Whether `zfs get all` shows it.
    pub visible: bool,
}

impl Desc {
    /// Whether a dataset without its own value inherits its parent's.
    pub fn inheritable(&self) -> bool {
        self.attr == Attr::Inherit
    }

    /// Whether the value is computed or fixed at creation.
    pub fn readonly(&self) -> bool {
        matches!(self.attr, Attr::Readonly | Attr::Onetime | Attr::OnetimeDefault)
    }

    /// Whether the value is fixed at creation.
    pub fn set_once(&self) -> bool {
        matches!(self.attr, Attr::Onetime | Attr::OnetimeDefault)
    }

    /// Whether its column is aligned to the right.
    pub fn right_aligned(&self) -> bool {
        let date = matches!(self.prop, Prop::Creation | Prop::SnapshotsChanged);
        matches!(self.kind, Kind::Number(_)) && !date
    }

    /// Whether a dataset of these types has the property.
    ///
    /// With `of_head`, `types` is the type of a snapshot's dataset, and properties that only snapshots have
    /// count as present.
    pub fn valid_for(&self, types: Types, of_head: bool) -> bool {
        (of_head && self.types == Types::SNAPSHOT) || self.types.meets(types)
    }

    /// The default of a number or index.
    pub fn default_number(&self) -> u64 {
        match self.kind {
            Kind::Number(default) | Kind::Index(default, _) => default,
            Kind::Text(_) => 0,
        }
    }

    /// The default of a string.
    pub fn default_text(&self) -> Option<&'static str> {
        match self.kind {
            Kind::Text(default) => default,
            _ => None,
        }
    }

    /// Whether OpenZFS has a word for `value` of this index property; `None` if it is not an index property.
    pub fn knows_index(&self, value: u64) -> Option<bool> {
        match self.kind {
            Kind::Index(_, names) => Some(index::word(names, value).is_some()),
            _ => None,
        }
    }
}

const FS: Types = Types::FILESYSTEM;
const SNAP: Types = Types::SNAPSHOT;
const VOL: Types = Types::VOLUME;
const BOOK: Types = Types::BOOKMARK;
const ALL: Types = Types::DATASET;
const FS_VOL: Types = FS.or(VOL);
const FS_SNAP: Types = FS.or(SNAP);
const ALL_BOOK: Types = ALL.or(BOOK);
const NONE: u64 = u64::MAX;

const fn num(default: u64) -> Kind {
    Kind::Number(default)
}
const fn idx(default: u64, names: Names) -> Kind {
    Kind::Index(default, names)
}
const fn text(default: &'static str) -> Kind {
    Kind::Text(Some(default))
}
const UNSET: Kind = Kind::Text(None);

macro_rules! properties {
    ($($prop:ident $name:literal $column:literal $attr:ident $types:ident $kind:expr $(, $hidden:ident)? ;)*) => {
        /// A native property, by OpenZFS's number.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[allow(missing_docs)]
        pub enum Prop { $($prop),* }

        /// Every native property; `TABLE[prop as usize]` describes `prop`.
        pub static TABLE: &[Desc] = &[$(Desc {
            prop: Prop::$prop,
            name: $name,
            column: $column,
            kind: $kind,
            attr: Attr::$attr,
            types: $types,
            visible: true $(&& properties!($hidden))?,
        }),*];
    };
    (hidden) => { false };
}

properties! {
    Type "type" "TYPE" Readonly ALL_BOOK UNSET;
    Creation "creation" "CREATION" Readonly ALL_BOOK num(0);
    Used "used" "USED" Readonly ALL num(0);
    Available "available" "AVAIL" Readonly FS_VOL num(0);
    Referenced "referenced" "REFER" Readonly ALL_BOOK num(0);
    CompressRatio "compressratio" "RATIO" Readonly ALL_BOOK num(0);
    Mounted "mounted" "MOUNTED" Readonly FS idx(0, index::BOOLEAN);
    Origin "origin" "ORIGIN" Readonly FS_VOL UNSET;
    Quota "quota" "QUOTA" Default FS num(0);
    Reservation "reservation" "RESERV" Default FS_VOL num(0);
    Volsize "volsize" "VOLSIZE" Default VOL_SNAP num(0);
    Volblocksize "volblocksize" "VOLBLOCK" Onetime VOL num(16 << 10);
    Recordsize "recordsize" "RECSIZE" Inherit FS num(128 << 10);
    Mountpoint "mountpoint" "MOUNTPOINT" Inherit FS text("/");
    Sharenfs "sharenfs" "SHARENFS" Inherit FS text("off");
    Checksum "checksum" "CHECKSUM" Inherit FS_VOL idx(1, index::CHECKSUM);
    Compression "compression" "COMPRESS" Inherit FS_VOL idx(1, index::COMPRESSION);
    Atime "atime" "ATIME" Inherit FS idx(1, index::BOOLEAN);
    Devices "devices" "DEVICES" Inherit FS_SNAP idx(1, index::BOOLEAN);
    Exec "exec" "EXEC" Inherit FS_SNAP idx(1, index::BOOLEAN);
    Setuid "setuid" "SETUID" Inherit FS_SNAP idx(1, index::BOOLEAN);
    Readonly "readonly" "RDONLY" Inherit FS_VOL idx(0, index::BOOLEAN);
    Zoned "zoned" "ZONED" Inherit FS idx(0, index::BOOLEAN);
    Snapdir "snapdir" "SNAPDIR" Inherit FS idx(0, index::SNAPDIR);
    Aclmode "aclmode" "ACLMODE" Inherit FS idx(0, index::ACLMODE);
    Aclinherit "aclinherit" "ACLINHERIT" Inherit FS idx(4, index::ACLINHERIT);
    Createtxg "createtxg" "CREATETXG" Readonly ALL_BOOK num(0);
    Name "name" "NAME" Readonly ALL_BOOK UNSET, hidden;
    Canmount "canmount" "CANMOUNT" Default FS idx(1, index::CANMOUNT);
    Iscsioptions "iscsioptions" "ISCSIOPTIONS" Inherit VOL UNSET, hidden;
    Xattr "xattr" "XATTR" Inherit FS_SNAP idx(2, index::XATTR);
    Numclones "numclones" "NUMCLONES" Readonly SNAP num(0), hidden;
    Copies "copies" "COPIES" Inherit FS_VOL idx(1, index::COPIES);
    Version "version" "VERSION" Default FS_SNAP idx(0, index::VERSION);
    Utf8only "utf8only" "UTF8ONLY" Onetime FS_SNAP idx(0, index::BOOLEAN);
    Normalization "normalization" "NORMALIZATION" Onetime FS_SNAP idx(0, index::NORMALIZATION);
    Casesensitivity "casesensitivity" "CASE" Onetime FS_SNAP idx(0, index::CASE);
    Vscan "vscan" "VSCAN" Inherit FS idx(0, index::BOOLEAN);
    Nbmand "nbmand" "NBMAND" Inherit FS_SNAP idx(0, index::BOOLEAN);
    Sharesmb "sharesmb" "SHARESMB" Inherit FS text("off");
    Refquota "refquota" "REFQUOTA" Default FS num(0);
    Refreservation "refreservation" "REFRESERV" Default FS_VOL num(0);
    Guid "guid" "GUID" Readonly ALL_BOOK num(0);
    Primarycache "primarycache" "PRIMARYCACHE" Inherit ALL idx(2, index::NONE_METADATA_ALL);
    Secondarycache "secondarycache" "SECONDARYCACHE" Inherit ALL idx(2, index::NONE_METADATA_ALL);
    UsedBySnapshots "usedbysnapshots" "USEDSNAP" Readonly FS_VOL num(0);
    UsedByDataset "usedbydataset" "USEDDS" Readonly FS_VOL num(0);
    UsedByChildren "usedbychildren" "USEDCHILD" Readonly FS_VOL num(0);
    UsedByRefreservation "usedbyrefreservation" "USEDREFRESERV" Readonly FS_VOL num(0);
    Useraccounting "useraccounting" "USERACCOUNTING" Readonly ALL num(0), hidden;
    StmfShareinfo "stmf_sbd_lu" "STMF_SBD_LU" Inherit VOL UNSET, hidden;
    DeferDestroy "defer_destroy" "DEFER_DESTROY" Readonly SNAP idx(0, index::BOOLEAN);
    Userrefs "userrefs" "USERREFS" Readonly SNAP num(0);
    Logbias "logbias" "LOGBIAS" Inherit FS_VOL idx(0, index::LOGBIAS);
    Unique "unique" "UNIQUE" Readonly ALL num(0), hidden;
    Objsetid "objsetid" "OBJSETID" Readonly ALL num(0);
    Dedup "dedup" "DEDUP" Inherit FS_VOL idx(2, index::DEDUP);
    Mlslabel "mlslabel" "MLSLABEL" Inherit ALL text("none");
    Sync "sync" "SYNC" Inherit FS_VOL idx(0, index::SYNC);
    Dnodesize "dnodesize" "DNSIZE" Inherit FS idx(0, index::DNODESIZE);
    Refratio "refcompressratio" "REFRATIO" Readonly ALL num(0);
    Written "written" "WRITTEN" Readonly ALL num(0);
    Clones "clones" "CLONES" Readonly SNAP UNSET;
    LogicalUsed "logicalused" "LUSED" Readonly FS_VOL num(0);
    LogicalReferenced "logicalreferenced" "LREFER" Readonly ALL_BOOK num(0);
    Inconsistent "inconsistent" "INCONSISTENT" Readonly ALL num(0), hidden;
    Volmode "volmode" "VOLMODE" Inherit FS_VOL idx(0, index::VOLMODE);
    FilesystemLimit "filesystem_limit" "FSLIMIT" Default FS num(NONE);
    SnapshotLimit "snapshot_limit" "SSLIMIT" Default FS_VOL num(NONE);
    FilesystemCount "filesystem_count" "FSCOUNT" Readonly FS num(NONE);
    SnapshotCount "snapshot_count" "SSCOUNT" Readonly FS_VOL num(NONE);
    Snapdev "snapdev" "SNAPDEV" Inherit FS_VOL idx(0, index::SNAPDEV);
    Acltype "acltype" "ACLTYPE" Inherit FS_SNAP idx(0, index::ACLTYPE);
    Context "context" "CONTEXT" Default ALL text("none");
    Fscontext "fscontext" "FSCONTEXT" Default ALL text("none");
    Defcontext "defcontext" "DEFCONTEXT" Default ALL text("none");
    Rootcontext "rootcontext" "ROOTCONTEXT" Default ALL text("none");
    Relatime "relatime" "RELATIME" Inherit FS idx(1, index::BOOLEAN);
    RedundantMetadata "redundant_metadata" "REDUND_MD" Inherit FS_VOL idx(0, index::REDUNDANT_METADATA);
    Overlay "overlay" "OVERLAY" Inherit FS idx(1, index::BOOLEAN);
    PrevSnap "prevsnap" "PREVSNAP" Readonly FS_VOL UNSET, hidden;
    ReceiveResumeToken "receive_resume_token" "RESUMETOK" Readonly FS_VOL UNSET;
    Encryption "encryption" "ENCRYPTION" Onetime ALL idx(2, index::ENCRYPTION);
    Keylocation "keylocation" "KEYLOCATION" Default FS_VOL text("none");
    Keyformat "keyformat" "KEYFORMAT" OnetimeDefault FS_VOL idx(0, index::KEYFORMAT);
    Pbkdf2Salt "pbkdf2salt" "PBKDF2SALT" OnetimeDefault FS_VOL num(0), hidden;
    Pbkdf2Iters "pbkdf2iters" "PBKDF2ITERS" OnetimeDefault FS_VOL num(0);
    EncryptionRoot "encryptionroot" "ENCROOT" Readonly ALL UNSET;
    KeyGuid "keyguid" "KEYGUID" Readonly ALL num(0), hidden;
    Keystatus "keystatus" "KEYSTATUS" Readonly ALL idx(0, index::KEYSTATUS);
    Remaptxg "remaptxg" "REMAPTXG" Readonly ALL num(0), hidden;
    SpecialSmallBlocks "special_small_blocks" "SPECIAL_SMALL_BLOCKS" Inherit FS_VOL num(0);
    IvsetGuid "ivsetguid" "IVSETGUID" Readonly ALL_BOOK num(0), hidden;
    Redacted "redacted" "REDACTED" Readonly ALL num(0), hidden;
    RedactSnaps "redact_snaps" "RSNAPS" Readonly ALL_BOOK UNSET;
    SnapshotsChanged "snapshots_changed" "SNAPSHOTS_CHANGED" Readonly FS_VOL num(0);
    Prefetch "prefetch" "PREFETCH" Inherit ALL idx(2, index::NONE_METADATA_ALL);
    Volthreading "volthreading" "zvol threading" Default VOL idx(1, index::BOOLEAN);
    Direct "direct" "DIRECT" Inherit FS idx(1, index::DIRECT);
    Longname "longname" "LONGNAME" Inherit FS idx(0, index::BOOLEAN);
    DefaultUserQuota "defaultuserquota" "DEFAULTUSERQUOTA" Default FS_SNAP num(0);
    DefaultGroupQuota "defaultgroupquota" "DEFAULTGROUPQUOTA" Default FS_SNAP num(0);
    DefaultProjectQuota "defaultprojectquota" "DEFAULTPROJECTQUOTA" Default FS_SNAP num(0);
    DefaultUserObjQuota "defaultuserobjquota" "DEFAULTUSEROBJQUOTA" Default FS_SNAP num(0);
    DefaultGroupObjQuota "defaultgroupobjquota" "DEFAULTGROUPOBJQUOTA" Default FS_SNAP num(0);
    DefaultProjectObjQuota "defaultprojectobjquota" "DEFAULTPROJECTOBJQUOTA" Default FS_SNAP num(0);
}

const VOL_SNAP: Types = VOL.or(SNAP);

/// Settable properties that do not affect the cost of reading and writing here, each with the reason.
///
/// A comparison of speeds need not try them. A property that the engine begins to use leaves this list.
pub const IDLE: &[(Prop, &str)] = &[
    (Prop::Quota, "it limits how much may be written, not how"),
    (Prop::Reservation, "it promises room, and does not change how blocks are written"),
    (Prop::Refquota, "it limits how much may be written, not how"),
    (Prop::DefaultUserQuota, "it limits how much may be written, not how"),
    (Prop::DefaultGroupQuota, "it limits how much may be written, not how"),
    (Prop::DefaultProjectQuota, "it limits how much may be written, not how"),
    (Prop::DefaultUserObjQuota, "it limits how many files there may be"),
    (Prop::DefaultGroupObjQuota, "it limits how many files there may be"),
    (Prop::DefaultProjectObjQuota, "it limits how many files there may be"),
    (Prop::FilesystemLimit, "it limits how many filesystems there may be"),
    (Prop::SnapshotLimit, "it limits how many snapshots there may be"),
    (Prop::Sharenfs, "it says who may read and write over NFS, not what that costs"),
    (Prop::Sharesmb, "it says who may read and write over SMB, not what that costs"),
    (Prop::Devices, "it says what may be opened, not what reading and writing cost"),
    (Prop::Exec, "it says what may be executed, not what reading and writing cost"),
    (Prop::Setuid, "it says what programs may become, not what reading and writing cost"),
    (Prop::Snapdir, "it says whether .zfs is listed"),
    (Prop::Snapdev, "it says which snapshots are devices, and the lab uses volumes over NBD"),
    (Prop::Volmode, "it says which volumes are devices, and the lab uses them over NBD"),
    (Prop::Vscan, "nothing scans files, and Cenote only keeps it"),
    (Prop::Nbmand, "Linux has no mandatory locks, and Cenote only shows it"),
    (Prop::Mlslabel, "Cenote only keeps it"),
    (Prop::Context, "Cenote labels no mounts, and only keeps it"),
    (Prop::Fscontext, "Cenote labels no mounts, and only keeps it"),
    (Prop::Defcontext, "Cenote labels no mounts, and only keeps it"),
    (Prop::Rootcontext, "Cenote labels no mounts, and only keeps it"),
    (Prop::Overlay, "it says whether a directory that holds something may be mounted over"),
    (Prop::Longname, "only names of more than 255 bytes are stored otherwise"),
    (Prop::Prefetch, "Cenote reads ahead whatever it says, and only keeps it"),
    (
        Prop::Volthreading,
        "Cenote has no threads of volumes as OpenZFS's kernel module has, and only keeps it",
    ),
];

impl Prop {
    /// The row of this property.
    pub fn desc(self) -> &'static Desc {
        &TABLE[self as usize]
    }

    /// The reason why it does not affect the cost of reading and writing here; `None` if it does.
    pub fn idle(self) -> Option<&'static str> {
        IDLE.iter().find(|(prop, _)| *prop == self).map(|(_, why)| *why)
    }

    /// The kind of owner and of count, if it is a default quota; `None` for other properties.
    pub fn default_quota(self) -> Option<(AccountingObject, Counted)> {
        use AccountingObject::{Group, Project, User};
        use Counted::{Bytes, Objects};
        match self {
            Self::DefaultUserQuota => Some((User, Bytes)),
            Self::DefaultGroupQuota => Some((Group, Bytes)),
            Self::DefaultProjectQuota => Some((Project, Bytes)),
            Self::DefaultUserObjQuota => Some((User, Objects)),
            Self::DefaultGroupObjQuota => Some((Group, Objects)),
            Self::DefaultProjectObjQuota => Some((Project, Objects)),
            _ => None,
        }
    }

    /// The property with the name `name`, or with the column heading `name` in lower case.
    pub fn from_name(name: &str) -> Option<Prop> {
        let by_column = |desc: &&Desc| {
            !name.bytes().any(|byte| byte.is_ascii_uppercase()) && desc.column.eq_ignore_ascii_case(name)
        };
        let exact = TABLE.iter().find(|desc| desc.name == name);
        exact.or_else(|| TABLE.iter().find(by_column)).map(|desc| desc.prop)
    }

    /// The native property stored under `name`.
    pub fn from_stored_name(name: &str) -> Option<Prop> {
        TABLE.iter().find(|desc| desc.name == name).map(|desc| desc.prop)
    }
}

/// Whether `name` is a well-formed user property: lower-case letters, digits and `-_.:`, with at least one
/// colon.
pub fn is_user(name: &str) -> bool {
    let valid = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_.:".contains(&byte);
    name.bytes().all(valid) && name.contains(':')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_property_indexes_its_own_row() {
        for (index, desc) in TABLE.iter().enumerate() {
            assert_eq!(desc.prop as usize, index, "{}", desc.name);
        }
    }

    #[test]
    fn what_policies_are_made_of_is_not_idle() {
        let policies = include_str!("../dsl/edit/policy.rs");
        for (prop, _) in IDLE {
            assert_ne!(prop.desc().attr, Attr::Readonly, "{prop:?}");
            let read = format!("Prop::{prop:?})");
            let is_kept = *prop == Prop::Longname;
            assert!(is_kept || !policies.contains(&read), "{prop:?} is read");
        }
        assert!(Prop::Prefetch.idle().is_some() && Prop::Primarycache.idle().is_none());
    }

    #[test]
    fn default_quotas_have_the_names_under_which_they_are_stored() {
        let quotas: Vec<_> =
            TABLE.iter().filter_map(|desc| Some((desc, desc.prop.default_quota()?))).collect();
        assert_eq!(quotas.len(), 6);
        for (desc, (owner, counted)) in quotas {
            assert_eq!(desc.name, ondisk::accounting::default_quota_name(owner, counted));
        }
    }

    #[test]
    fn names_and_column_headings_are_understood() {
        assert_eq!(Prop::from_name("refer"), Some(Prop::Referenced));
        assert_eq!(Prop::from_name("compression"), Some(Prop::Compression));
        assert_eq!(Prop::from_name("compress"), Some(Prop::Compression));
        assert_eq!(Prop::from_name("REFER"), None);
        assert_eq!(Prop::from_stored_name("refer"), None);
    }

    #[test]
    fn user_properties_have_a_colon() {
        assert!(is_user("org.example:note"));
        assert!(!is_user("note"));
        assert!(!is_user("Org:note"));
    }

    #[test]
    fn defaults_have_a_word() {
        for desc in TABLE {
            if let Kind::Index(default, _) = desc.kind {
                // A filesystem always records its version; the property has no default.
                assert!(
                    desc.prop == Prop::Version || desc.knows_index(default) == Some(true),
                    "{}",
                    desc.name
                );
            }
        }
    }
}
