//! Filesystems (the ZFS POSIX layer).
//!
//! Object 1 of a filesystem, the *master node*, is a ZAP that lists everything else: the version, the root
//! directory, the registry of system attributes, the queue of unlinked files, and the properties that can
//! only be set at creation (`normalization`, `utf8only`, `casesensitivity`). A file is an object; its inode
//! number is its object number, its attributes are system attributes ([`crate::dmu::sa`]), its content is the
//! object's content. A directory's object is a ZAP from names to object numbers with the file type in the top
//! bits.
//!
//! A [`LiveZpl`] is a filesystem that is open for writing; all its users share it.
//!
//! A [`Zpl`] reads a filesystem, a clone or a snapshot alike, as of the moment at which its object set was
//! opened. It shows the same as the Linux port: inode numbers, link counts, device numbers, names of extended
//! attributes. Access control is the caller's task.
//!
//! Source: OpenZFS 2.3 `zfs_znode.h`, `zfs_vfsops.c`, `zfs_vnops_os.c`, `zfs_dir.c`.

mod acl;
pub mod attr;
pub mod create;
pub mod diff;
pub mod dir;
pub mod file;
pub mod live;
mod nfs4;
mod options;
mod path;
mod posix_acl;
mod settings;
pub mod statfs;
mod trivial;
pub mod xattr;
mod xattr_names;

pub use attr::{Stat, Time};
pub use dir::{DirCursor, DirEntry};
pub use file::{File, Znode};
pub use live::LiveZpl;
pub use nfs4::{AclInherit, AclMode, AclRules};
pub use settings::Settings;
pub use statfs::{Space, StatFs};
pub use xattr_names::{POSIX_ACL_ACCESS, POSIX_ACL_DEFAULT};

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use device::IgnorePoison;
use ondisk::ObjectId;
use ondisk::objset::ObjsetType;
use ondisk::zpl::{MASTER_NODE, ZPL_VERSION, master};

use crate::dmu::zap::normalize::NameRules;
use crate::dmu::{Objset, sa, zap::Zap};
use crate::{Error, Result};

/// The longest name in bytes that an entry can have, if it got the name while the property `longname` was
/// `on`.
pub const LONGEST_NAME: u32 = 1023;
/// The inode number of the root of a mounted snapshot is this, less the number of its object set
/// (`ZFSCTL_INO_SNAPDIRS`).
const SNAPSHOT_ROOT_INO: u64 = 0xffff_ffff_fffc;

/// The kind of ACLs of files, by the property `acltype`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AclType {
    /// No ACLs are shown.
    #[default]
    Off,
    /// POSIX ACLs, as two extended attributes.
    Posix,
    /// NFSv4 ACLs, which the Linux port stores but does not show.
    Nfs4,
}

/// How a filesystem distinguishes names, by the property `casesensitivity`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CaseSensitivity {
    /// Upper and lower case differ.
    #[default]
    Sensitive,
    /// Upper and lower case are the same.
    Insensitive,
    /// Upper and lower case differ, unless a client asks otherwise.
    Mixed,
}

/// How a filesystem is shown, according to its dataset's properties.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZplOptions {
    /// Whether it is a snapshot: its root has another inode number.
    pub snapshot: bool,
    /// Whether `xattr` is not `off`.
    pub xattr: bool,
    /// The property `acltype`.
    pub acl: AclType,
    /// The property `longname`: names may have 1023 bytes instead of 255.
    pub long_names: bool,
}

impl Default for ZplOptions {
    fn default() -> Self {
        Self { snapshot: false, xattr: true, acl: AclType::Off, long_names: false }
    }
}

/// An open filesystem.
#[derive(Debug)]
pub struct Zpl {
    objset: Arc<Objset>,
    options: Mutex<ZplOptions>,
    version: AtomicU64,
    root: ObjectId,
    unlinked_set: Option<ObjectId>,
    shares: Option<ObjectId>,
    case: CaseSensitivity,
    utf8_only: bool,
    rules: NameRules,
    attributes: sa::Registry,
}

impl Zpl {
    /// Opens the filesystem of an object set.
    pub async fn open(objset: &Arc<Objset>, options: ZplOptions) -> Result<Arc<Self>> {
        if objset.objset_type() != ObjsetType::Zfs {
            let detail = format!("is a {} object set, not a filesystem", objset.objset_type());
            return Err(Error::WrongType { what: format!("objset {}", objset.id()), detail });
        }
        let master_node = objset.object(MASTER_NODE).await?;
        let names = Zap::open(&master_node).await?;
        let number =
            async |name: &str, default: u64| Ok::<_, Error>(names.lookup_u64(name).await?.unwrap_or(default));

        let version = number(master::VERSION, ZPL_VERSION).await?;
        if version == 0 || version > ZPL_VERSION {
            return Err(Error::Unsupported(format!(
                "objset {}: filesystem version {version} is newer than {ZPL_VERSION}, the newest that is known",
                objset.id()
            )));
        }
        let case = match number(master::CASESENSITIVITY, 0).await? {
            0 => CaseSensitivity::Sensitive,
            1 => CaseSensitivity::Insensitive,
            2 => CaseSensitivity::Mixed,
            other => return Err(master_node.corrupt(format!("casesensitivity is {other}"))),
        };
        let flags = number(master::NORMALIZATION, 0).await?;
        let form = NameRules::from_flags(flags)
            .ok_or_else(|| master_node.corrupt(format!("normalization is {flags:#x}")))?;
        let rules = NameRules { form: form.form, fold_case: case != CaseSensitivity::Sensitive };
        let object = async |name: &str| {
            let id = number(name, 0).await?;
            Ok::<_, Error>(Some(ObjectId(id)).filter(|id| !id.is_none()))
        };
        let root = object(master::ROOT).await?;
        let root = root.ok_or_else(|| master_node.corrupt("a filesystem without a root directory"))?;
        let attributes = match object(master::SA_ATTRS).await? {
            None => sa::Registry::default(),
            Some(id) => sa::Registry::load(objset, id).await?,
        };
        Ok(Arc::new(Self {
            options: Mutex::new(options),
            version: AtomicU64::new(version),
            root,
            unlinked_set: object(master::DELETE_QUEUE).await?,
            shares: object(master::SHARES).await?,
            case,
            utf8_only: number(master::UTF8ONLY, 0).await? != 0,
            rules,
            attributes,
            objset: Arc::clone(objset),
        }))
    }

    /// The object set.
    pub fn objset(&self) -> &Arc<Objset> {
        &self.objset
    }

    /// The version of the layout of files, 1 to 5.
    pub fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// Sets the version after an upgrade.
    pub(super) fn set_version(&self, version: u64) {
        self.version.store(version, Ordering::Release);
    }

    /// The object number of the root directory.
    pub fn root(&self) -> ObjectId {
        self.root
    }

    /// The directory of SMB shares, which no name leads to.
    pub(crate) fn shares(&self) -> Option<ObjectId> {
        self.shares
    }

    /// How names are distinguished.
    pub fn case_sensitivity(&self) -> CaseSensitivity {
        self.case
    }

    /// Whether only names in UTF-8 may be created.
    pub fn utf8_only(&self) -> bool {
        self.utf8_only
    }

    /// How names are prepared before they are compared.
    pub fn name_rules(&self) -> NameRules {
        self.rules
    }

    /// The options with which it is shown.
    pub fn options(&self) -> ZplOptions {
        *self.options.lock().ignore_poison()
    }

    /// Sets the options from now on: properties of its dataset were set.
    pub(super) fn set_options(&self, options: ZplOptions) {
        *self.options.lock().ignore_poison() = options;
    }

    /// The longest name in bytes that a new entry can get. Existing entries may have longer names, of up to
    /// [`LONGEST_NAME`], from the time when `longname` was `on`.
    pub fn max_name(&self) -> u32 {
        if self.options().long_names { LONGEST_NAME } else { 255 }
    }

    /// The result of `statfs`, given the figures of the dataset and its `recordsize`.
    pub fn statfs(&self, space: Space, record_bytes: u64) -> StatFs {
        StatFs::new(space, record_bytes, self.max_name())
    }

    /// Opens the file of any type with this object number.
    pub async fn node(self: &Arc<Self>, id: ObjectId) -> Result<Znode> {
        Znode::open(self, id).await
    }

    /// The result of `stat` for the object `id`.
    pub async fn stat(self: &Arc<Self>, id: ObjectId) -> Result<Stat> {
        self.node(id).await?.stat()
    }

    /// Files that were unlinked while they were open, as of the time when the object set was written.
    pub async fn unlinked(&self) -> Result<Vec<ObjectId>> {
        let Some(id) = self.unlinked_set else {
            return Ok(Vec::new());
        };
        const MOST: usize = 1 << 20;
        let set = Zap::open(&self.objset.object(id).await?).await?;
        let entries = set.entries(MOST).await?;
        Ok(entries.iter().filter_map(|entry| entry.value.as_u64()).map(ObjectId).collect())
    }

    /// Whether a file is among [`Zpl::unlinked`].
    pub(crate) async fn is_unlinked(&self, id: ObjectId) -> Result<bool> {
        let Some(set) = self.unlinked_set else { return Ok(false) };
        let set = Zap::open(&self.objset.object(set).await?).await?;
        Ok(set.lookup(format!("{id:x}")).await?.is_some())
    }

    /// The inode number of object `id`.
    fn ino(&self, id: ObjectId) -> u64 {
        if id == self.root && self.options().snapshot {
            SNAPSHOT_ROOT_INO.wrapping_sub(self.objset.id().0)
        } else {
            id.0
        }
    }
}

#[cfg(test)]
mod tests;
