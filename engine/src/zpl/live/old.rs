//! Files from before system attributes: a `znode_phys` in the bonus area instead of attributes with a layout.
//!
//! # When files are old
//! All files of a filesystem of a version below 5 are old, and so are new files in it. A filesystem that was
//! upgraded ([`LiveZpl::upgrade`]) keeps its old files; new ones have system attributes. An old file is
//! changed in place and stays old. OpenZFS converts an old file when it changes while its ACL is cached and
//! its lock is free, but never a symbolic link; so OpenZFS too has old files in filesystems of version 5 for
//! as long as they exist.
//!
//! # Places of attributes
//! | attribute | place |
//! |---|---|
//! | the first sixteen | at fixed offsets of the `znode_phys` |
//! | the ACL | its last 88 bytes; a list of more than 72 bytes is in an object of its own |
//! | the target of a symbolic link | after the `znode_phys` when it fits the bonus area, else in the content |
//! | extended attributes | files in a directory, whatever the value of the property `xattr` |
//! | a project | none: such a file cannot have one |
//!
//! | version | change |
//! |---|---|
//! | 2 | entries of directories contain the types of files |
//! | 3 | flags beyond bit 31, and ACLs of version 1 |
//!
//! Source: OpenZFS 2.4 `zfs_znode.h`, `zfs_sa.c` (`zfs_sa_upgrade`), `zfs_acl.c` (`zfs_aclset_common`),
//! `zfs_znode_os.c` (`zfs_mknode`).

use std::ops::Range;
use std::sync::Arc;

use ondisk::dmu::DmuType;
use ondisk::nvlist::{NvValue, Nvlist};
use ondisk::sa::{Attr, ZNODE_SIZE};
use ondisk::zpl::{AclPhys, Dirent, MASTER_NODE, ZPL_VERSION, master, parse_aces, write_aces};
use ondisk::{ByteOrder, ObjectId};

use super::nodes::Values;
use super::{LiveZpl, XattrPlace, XattrSet, errno};
use crate::dmu::sa::edit::{self as sa, LiveRegistry};
use crate::dmu::zap::edit as zap;
use crate::dmu::{Dirtied, LiveObject, NewObject};
use crate::error::{Error, Result};
use crate::txg::Tx;
use crate::zpl::Znode;

/// The attributes of a `znode_phys`, in their sequence there.
const STORED: usize = 16;
/// The longest list of entries in the znode itself.
const INLINE_ACL_BYTES: usize = 72;
/// The bonus area of a dnode of one slot.
const BONUS_BYTES: usize = 320;
const SECTOR: usize = 512;
/// The first version whose directories contain the types of files (`ZPL_VERSION_DIRENT_TYPE`).
const DIRENT_TYPE: u64 = 2;
/// The first version with more flags and ACLs of version 1 (`ZPL_VERSION_FUID`).
const FUID: u64 = 3;
/// The first version with system attributes (`ZPL_VERSION_SA`).
const SYSTEM_ATTRIBUTES: u64 = 5;

/// The place of an attribute in a `znode_phys`.
pub(in crate::zpl) fn place(attr: Attr) -> Option<Range<usize>> {
    let at = Attr::ALL.iter().take(STORED).position(|stored| *stored == attr)?;
    let start: usize = Attr::ALL.iter().take(at).map(|before| usize::from(before.length())).sum();
    Some(start..start + usize::from(attr.length()))
}

/// The ACL of an old file as bytes of its znode, and the part that goes into an object of its own.
pub(in crate::zpl) fn acl_of(version: u64, count: u64, aces: &[u8]) -> Result<(AclPhys, Vec<u8>)> {
    let (acl_version, aces) = match version >= FUID {
        true => (1, aces.to_vec()),
        false => {
            let parsed = parse_aces(aces, 1, count, ByteOrder::Little).map_err(Error::format("an ACL"))?;
            (0, write_aces(&parsed, 0, ByteOrder::Little).map_err(Error::format("an ACL"))?)
        }
    };
    let mut inline = [0; INLINE_ACL_BYTES];
    let mut outside = Vec::new();
    match inline.get_mut(..aces.len()) {
        Some(place) => place.copy_from_slice(&aces),
        None => outside = aces.clone(),
    }
    let size = aces.len() as u64;
    let acl = AclPhys { external: None, version: acl_version, count, size, inline, order: ByteOrder::Little };
    Ok((acl, outside))
}

/// The flags that a filesystem of this version keeps.
pub(in crate::zpl) fn flags_of(version: u64, flags: u64) -> u64 {
    if version >= FUID { flags } else { flags & u64::from(u32::MAX) }
}

impl LiveZpl {
    /// Whether new files have system attributes.
    pub(super) fn has_system_attributes(&self) -> bool {
        self.registry.get().is_some()
    }

    /// The tables of system attributes.
    pub(super) fn registry(&self) -> Result<&LiveRegistry> {
        self.registry.get().ok_or_else(|| {
            let what = format!("objset {}", self.objset.id());
            Error::Unsupported(format!("{what}: filesystem of version {} (zfs upgrade)", self.zpl.version()))
        })
    }

    /// Reads the tables of system attributes, if the filesystem has some.
    pub(super) async fn load_registry(&self) -> Result<()> {
        let master_node = self.objset.object(MASTER_NODE).await?;
        if self.zpl.version() < SYSTEM_ATTRIBUTES || self.has_system_attributes() {
            return Ok(());
        }
        let tables = zap::lookup_u64(&master_node, master::SA_ATTRS).await?;
        let tables = tables.ok_or_else(|| master_node.corrupt(format!("no {}", master::SA_ATTRS)))?;
        let registry = LiveRegistry::load(&self.objset, ObjectId(tables)).await?;
        registry.show_to(&self.zpl.attributes)?;
        let _ = self.registry.set(registry);
        Ok(())
    }

    /// The initial bonus area of new files. Its length determines the number of pointers of a dnode.
    pub(super) fn new_bonus(&self) -> (DmuType, Vec<u8>) {
        match self.has_system_attributes() {
            true => (DmuType::SA, Vec::new()),
            false => (DmuType::ZNODE, vec![0; ZNODE_SIZE]),
        }
    }

    /// An entry in the form of this filesystem's directories.
    pub(super) fn entry_for(&self, to: Dirent) -> Dirent {
        let tells = self.zpl.version() >= DIRENT_TYPE;
        Dirent { file_type: to.file_type.filter(|_| tells), ..to }
    }

    /// The place of new extended attributes of a file.
    pub(super) fn place_for(&self, znode: &Znode, wanted: XattrPlace) -> XattrPlace {
        if znode.attributes.is_old() { XattrPlace::Directory } else { wanted }
    }

    /// Stores the extended attributes that a new file inherits and that do not fit inside it.
    pub(super) async fn store_inherited(&self, file: ObjectId, packed: &[u8]) -> Result<()> {
        let list = Nvlist::parse(packed).map_err(Error::format("inherited attributes"))?;
        for (name, value) in list.iter() {
            let NvValue::ByteArray(bytes) = value else { continue };
            self.store_xattr(file, name.as_bytes(), bytes, XattrSet::Any, XattrPlace::Directory).await?;
        }
        Ok(())
    }

    /// Changes attributes of an old file.
    pub(super) async fn update_old(&self, object: &Arc<LiveObject>, tx: &Tx, values: &Values) -> Result<()> {
        let mut bonus = object.bonus().to_vec();
        if bonus.len() < ZNODE_SIZE {
            return Err(object.corrupt("a file without attributes"));
        }
        let version = self.zpl.version();
        let mut acl = None;
        let mut count = None;
        for (attr, value) in values.iter() {
            match (attr, value) {
                (Attr::DaclCount, Some(value)) => {
                    count = value.first_chunk().map(|raw| u64::from_le_bytes(*raw))
                }
                (Attr::DaclAces, Some(value)) => acl = Some(value),
                (Attr::Dxattr, None) => {}
                (Attr::ProjectId, _) => {
                    return Err(self.refuse(format!("object {}", object.id()), errno::ENOTSUP));
                }
                (_, Some(value)) => {
                    let target = place(attr).and_then(|place| bonus.get_mut(place));
                    let target = target.filter(|target| target.len() == value.len()).ok_or_else(|| {
                        Error::Unsupported(format!("{object:?}: {} in an old file", attr.name()))
                    })?;
                    target.copy_from_slice(value);
                    if let (Attr::Flags, Some(word)) = (attr, target.first_chunk_mut::<8>()) {
                        *word = flags_of(version, u64::from_le_bytes(*word)).to_le_bytes();
                    }
                }
                (_, None) => {}
            }
        }
        if let (Some(count), Some(aces)) = (count, acl) {
            let at = place(Attr::ZnodeAcl).unwrap_or_default();
            let before = bonus.get(at.clone()).unwrap_or_default();
            if let Ok(AclPhys { external: Some(id), .. }) = AclPhys::parse(before, ByteOrder::Little) {
                self.objset.free(tx, id).await?;
            }
            let (mut phys, outside) = acl_of(version, count, aces)?;
            if !outside.is_empty() {
                phys.external = Some(self.store_acl(tx, phys.version, &outside).await?);
            }
            let packed = phys.encode().map_err(|error| object.corrupt(error))?;
            if let Some(target) = bonus.get_mut(at) {
                target.copy_from_slice(&packed);
            }
        }
        object.set_bonus(tx, DmuType::ZNODE, &bonus);
        Ok(())
    }

    /// Creates an object for a list of entries that is too long for a znode.
    async fn store_acl(&self, tx: &Tx, version: u16, aces: &[u8]) -> Result<ObjectId> {
        let (dmu_type, bonus_type) = match version {
            0 => (DmuType::OLDACL, DmuType::NONE),
            _ => (DmuType::ACL, DmuType::SYSACL),
        };
        let block_size = aces.len().next_multiple_of(SECTOR);
        let block_size = u32::try_from(block_size).map_err(|_| self.refuse("an ACL", errno::EINVAL))?;
        let new = NewObject { dmu_type, block_size, bonus_type, bonus: Vec::new(), slots: 1 };
        let object = self.objset.allocate(tx, new).await?;
        object.write_at(tx, 0, aces).await?;
        Ok(object.id())
    }

    /// The object of an old file's ACL, if the ACL is too long for the file.
    pub(super) fn acl_object(&self, znode: &Znode) -> Option<ObjectId> {
        let attributes = &znode.attributes;
        let bytes = attributes.bytes(Attr::ZnodeAcl).filter(|_| attributes.is_old())?;
        AclPhys::parse(bytes, attributes.order(Attr::ZnodeAcl)).ok()?.external
    }

    /// Sets the attributes of an old file that was just created.
    pub(super) async fn fill_old(&self, object: &Arc<LiveObject>, tx: &Tx, values: Values) -> Result<()> {
        let mut bonus = vec![0; ZNODE_SIZE];
        let (target, rest) = values.take(Attr::Symlink);
        if let Some(target) = &target {
            if ZNODE_SIZE + target.len() <= BONUS_BYTES {
                bonus.extend_from_slice(target);
            } else {
                let size = target.len().next_multiple_of(SECTOR);
                object.set_block_size(tx, u32::try_from(size).unwrap_or(u32::MAX)).await?;
                object.write_at(tx, 0, target).await?;
            }
        }
        object.set_bonus(tx, DmuType::ZNODE, &bonus);
        self.update_old(object, tx, &rest).await
    }

    /// Merges values into an old file, like [`LiveRegistry::merge`].
    pub(super) fn merge_old(
        &self,
        object: &Arc<LiveObject>,
        tx: &Tx,
        values: &[(Attr, &[u8])],
        how: impl Fn(Attr, &mut [u8], &[u8]),
    ) -> Result<bool> {
        let version = self.zpl.version();
        object.merge_bonus(tx, DmuType::ZNODE, |area| {
            for (attr, value) in values {
                let target = place(*attr).and_then(|place| area.get_mut(place));
                let Some(target) = target.filter(|target| target.len() == value.len()) else {
                    return Ok(false);
                };
                how(*attr, target, value);
                if let (Attr::Flags, Some(word)) = (attr, target.first_chunk_mut::<8>()) {
                    *word = flags_of(version, u64::from_le_bytes(*word)).to_le_bytes();
                }
            }
            Ok(true)
        })
    }

    /// Upgrades the filesystem to a newer version; returns when that is committed. Files stay as they are;
    /// new files have the new version.
    ///
    /// # Errors
    /// The version does not exist, or is older.
    pub async fn upgrade(&self, version: u64) -> Result<()> {
        let now = self.zpl.version();
        if version == now {
            return Ok(());
        }
        if version < now || version > ZPL_VERSION {
            return Err(Error::Invalid(format!(
                "version {version}: the filesystem has version {now}, and can get up to {ZPL_VERSION}"
            )));
        }
        let _moving = self.moving.lock().await;
        let txg = {
            let tx = self.begin(|_| Dirtied::new_file()).await?;
            let master_node = self.objset.object(MASTER_NODE).await?;
            if version >= SYSTEM_ATTRIBUTES
                && zap::lookup_u64(&master_node, master::SA_ATTRS).await?.is_none()
            {
                let tables = sa::create(&self.objset, &tx).await?;
                zap::set_u64(&master_node, &tx, master::SA_ATTRS, tables.0).await?;
            }
            zap::set_u64(&master_node, &tx, master::VERSION, version).await?;
            tx.txg()
        };
        // Changes of earlier groups must not rely on tables that come with this one.
        self.txgs.wait_synced(txg).await?;
        self.zpl.set_version(version);
        self.load_registry().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::zpl::nfs4::FileAcl;

    #[test]
    fn attributes_stand_where_old_software_looks() {
        assert_eq!(place(Attr::Atime), Some(0..16));
        assert_eq!(place(Attr::Gen), Some(64..72));
        assert_eq!(place(Attr::Uid), Some(128..136));
        assert_eq!(place(Attr::ZnodeAcl), Some(176..264));
        assert_eq!(place(Attr::Symlink), None);
    }

    #[test]
    fn acls_are_of_the_filesystems_version() {
        let (count, aces) = FileAcl::trivial(0o100640, false).stored().unwrap();
        for (version, acl_version) in [(2, 0), (4, 1)] {
            let (phys, outside) = acl_of(version, count, &aces).unwrap();
            assert_eq!((phys.version, phys.count, outside.len()), (acl_version, count, 0));
            let parsed = AclPhys::parse(&phys.encode().unwrap(), ByteOrder::Little).unwrap();
            let expected = parse_aces(&aces, 1, count, ByteOrder::Little).unwrap();
            let found = parsed.inline_aces().unwrap();
            assert_eq!(found.len(), expected.len());
            assert!(found.iter().zip(&expected).all(|(one, other)| one.mask == other.mask), "{found:?}");
        }
        assert_eq!(flags_of(2, 0x400_0000_0144), 0x144);
        assert_eq!(flags_of(3, 0x400_0000_0144), 0x400_0000_0144);
    }
}
