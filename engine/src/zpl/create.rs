//! The contents of a new filesystem: its master node, the tables of attributes, the queue of unlinked files,
//! the root directory.
//!
//! Source: behaviour of OpenZFS 2.3 `zfs_create_fs`, `zfs_mknode`.

use std::sync::Arc;

use ondisk::dmu::DmuType;
use ondisk::sa::{Attr, ZNODE_SIZE};
use ondisk::zpl::{MASTER_NODE, ZnodeFlags, master};

use super::CaseSensitivity;
use super::attr::Time;
use super::live::{acl_of, flags_of, place};
use super::nfs4::FileAcl;
use crate::dmu::sa::edit::{self as sa, LiveRegistry};
use crate::dmu::zap::edit as zap;
use crate::dmu::zap::normalize::FOLD_UPPER;
use crate::dmu::{LiveObjset, NewObject};
use crate::error::{Error, Result};
use crate::txg::Tx;

/// The first version with system attributes (`ZPL_VERSION_SA`).
const SYSTEM_ATTRIBUTES: u64 = 5;
/// The file type of a directory in a mode.
const DIRECTORY: u32 = 0o040000;

/// The description of a new filesystem.
#[derive(Debug, Clone, Copy)]
pub struct NewFilesystem {
    /// Owner of the root directory.
    pub uid: u32,
    /// Group of the root directory.
    pub gid: u32,
    /// Permissions of the root directory (OpenZFS: 0755).
    pub mode: u32,
    /// Property `version`, 1 to 5.
    pub version: u64,
    /// Property `utf8only`.
    pub utf8_only: bool,
    /// Property `normalization` in its form in the master node: `U8_*` bits of the form.
    pub normalization: u64,
    /// Property `casesensitivity`.
    pub case: CaseSensitivity,
    /// The time.
    pub now: Time,
}

/// Fills an object set that was just created.
pub async fn create_filesystem(objset: &Arc<LiveObjset>, tx: &Tx, new: &NewFilesystem) -> Result<()> {
    let master_zap = zap::NewZap::of(DmuType::MASTER_NODE);
    let master_node = objset.claim(tx, MASTER_NODE, master_zap.object()).await?;
    zap::initialize(&master_node, tx, master_zap).await?;
    let case = match new.case {
        CaseSensitivity::Sensitive => 0,
        CaseSensitivity::Insensitive => 1,
        CaseSensitivity::Mixed => 2,
    };
    zap::set_u64(&master_node, tx, master::UTF8ONLY, new.utf8_only.into()).await?;
    zap::set_u64(&master_node, tx, master::NORMALIZATION, new.normalization).await?;
    zap::set_u64(&master_node, tx, master::CASESENSITIVITY, case).await?;
    zap::set_u64(&master_node, tx, master::VERSION, new.version).await?;
    let attributes = match new.version >= SYSTEM_ATTRIBUTES {
        true => Some(sa::create(objset, tx).await?),
        false => None,
    };
    if let Some(attributes) = attributes {
        zap::set_u64(&master_node, tx, master::SA_ATTRS, attributes.0).await?;
    }
    let unlinked = zap::create(objset, tx, zap::NewZap::of(DmuType::UNLINKED_SET)).await?;
    zap::set_u64(&master_node, tx, master::DELETE_QUEUE, unlinked.id().0).await?;

    let fold = if new.case == CaseSensitivity::Sensitive { 0 } else { FOLD_UPPER };
    let directory = zap::NewZap {
        normalization: new.normalization | fold,
        ..zap::NewZap::of(DmuType::DIRECTORY_CONTENTS)
    };
    let (bonus_type, bonus) = match attributes {
        Some(_) => (DmuType::SA, Vec::new()),
        None => (DmuType::ZNODE, vec![0; ZNODE_SIZE]),
    };
    let root = objset.allocate(tx, NewObject { bonus_type, bonus, ..directory.object() }).await?;
    zap::initialize(&root, tx, directory).await?;
    let root_id = root.id().0;
    let mode = DIRECTORY | new.mode & 0o7777;
    let acl = FileAcl::trivial(mode, true);
    let flags = acl.flags_after(ZnodeFlags::ARCHIVE.0 | ZnodeFlags::AV_MODIFIED.0);
    let flags = flags_of(new.version, flags);
    let now = new.now.stored();
    let (count, aces) = acl.stored()?;
    let word = u64::to_le_bytes;
    let (mode, uid, gid) = (word(mode.into()), word(new.uid.into()), word(new.gid.into()));
    let (two, generation, parent) = (word(2), word(tx.txg().get()), word(root_id));
    let (flags, dacl_count) = (word(flags), word(count));
    let attributes_of_root: [(Attr, &[u8]); 12] = [
        (Attr::Mode, &mode),
        (Attr::Size, &two),
        (Attr::Gen, &generation),
        (Attr::Uid, &uid),
        (Attr::Gid, &gid),
        (Attr::Parent, &parent),
        (Attr::Flags, &flags),
        (Attr::Atime, &now),
        (Attr::Mtime, &now),
        (Attr::Ctime, &now),
        (Attr::Crtime, &now),
        (Attr::Links, &two),
    ];
    match attributes {
        Some(tables) => {
            let registry = LiveRegistry::load(objset, tables).await?;
            let mut set = Default::default();
            let acl: [(Attr, &[u8]); 2] = [(Attr::DaclCount, &dacl_count), (Attr::DaclAces, &aces)];
            let all: Vec<_> =
                attributes_of_root.iter().chain(&acl).map(|(attr, value)| (*attr, Some(*value))).collect();
            registry.change(&mut set, &all)?;
            registry.write(&root, tx, &set).await?;
        }
        None => {
            let mut znode = vec![0; ZNODE_SIZE];
            // A trivial list always fits.
            let (acl, _) = acl_of(new.version, count, &aces)?;
            let acl = acl.encode().map_err(Error::format("an ACL"))?;
            let all = attributes_of_root.iter().copied().chain([(Attr::ZnodeAcl, &acl[..])]);
            for (attr, value) in all {
                if let Some(target) = place(attr).and_then(|place| znode.get_mut(place)) {
                    target.copy_from_slice(value);
                }
            }
            root.set_bonus(tx, DmuType::ZNODE, &znode);
        }
    }
    zap::set_u64(&master_node, tx, master::ROOT, root_id).await
}

#[cfg(test)]
mod tests {
    use device::block_on;
    use ondisk::objset::ObjsetType;
    use ondisk::{ByteOrder, ObjsetId, Txg};

    use super::*;
    use crate::dmu::forge::Forge;
    use crate::zpl::{Zpl, ZplOptions};

    #[test]
    fn a_new_filesystem_is_an_empty_directory() {
        let Some(forge) = Forge::new(ByteOrder::Little) else { return };
        let tx = Tx::syncing(Txg(4));
        let policy = crate::dmu::live::tests::policy();
        let objset = LiveObjset::create(&forge.pool, ObjsetId(70), ObjsetType::Zfs, policy, &tx);
        let now = Time { seconds: 7, nanoseconds: 9 };
        let new = NewFilesystem {
            uid: 12,
            gid: 13,
            mode: 0o755,
            version: 5,
            utf8_only: true,
            normalization: 0x10,
            case: CaseSensitivity::Mixed,
            now,
        };
        block_on(async {
            create_filesystem(&objset, &tx, &new).await.unwrap();
            let zpl = Zpl::open(&objset.view(), ZplOptions::default()).await.unwrap();
            assert_eq!(zpl.version(), 5);
            assert_eq!(zpl.case_sensitivity(), CaseSensitivity::Mixed);
            assert!(zpl.utf8_only());
            assert!(zpl.unlinked().await.unwrap().is_empty());
            let root = zpl.node(zpl.root()).await.unwrap();
            let stat = root.stat().unwrap();
            assert_eq!((stat.mode, stat.uid, stat.gid, stat.nlink), (0o040755, 12, 13, 2));
            assert_eq!((stat.crtime, stat.mtime, stat.generation), (now, now, 4));
            assert_eq!(stat.flags.0, 0x408_0000_0144, "as in pools made by OpenZFS");
            assert_eq!(root.acl().await.unwrap().len(), 3);
            assert_eq!(root.lookup(b"..").await.unwrap(), Some(zpl.root()));
            assert_eq!(root.lookup(b"a").await.unwrap(), None);
            let mut names = root.read_dir(2).await.unwrap();
            assert_eq!(names.next().await.unwrap(), None);
        });
    }
}
