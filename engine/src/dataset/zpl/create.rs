//! What a new filesystem holds: its master node, the tables of attributes, the queue of unlinked files, the root directory.
//!
//! Source: behaviour of OpenZFS 2.3 `zfs_create_fs`, `zfs_mknode`.

use std::sync::Arc;

use ondisk::dmu::DmuType;
use ondisk::sa::Attr;
use ondisk::zpl::{MASTER_NODE, ZPL_VERSION, ZnodeFlags, master};

use super::CaseSensitivity;
use super::attr::Time;
use super::nfs4::FileAcl;
use crate::dmu::sa::edit::{self as sa, LiveRegistry};
use crate::dmu::zap::edit as zap;
use crate::dmu::zap::normalize::FOLD_UPPER;
use crate::dmu::{LiveObjset, NewObject};
use crate::error::Result;
use crate::txg::Tx;

/// File type of a directory in a mode.
const DIRECTORY: u32 = 0o040000;

/// What a new filesystem is like.
#[derive(Debug, Clone, Copy)]
pub struct NewFilesystem {
    /// Owner of the root directory.
    pub uid: u32,
    /// Group of the root directory.
    pub gid: u32,
    /// Permissions of the root directory (OpenZFS: 0755).
    pub mode: u32,
    /// Property `utf8only`.
    pub utf8_only: bool,
    /// Property `normalization` as the master node keeps it: `U8_*` bits of the form.
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
    zap::set_u64(&master_node, tx, master::VERSION, ZPL_VERSION).await?;
    let attributes = sa::create(objset, tx).await?;
    zap::set_u64(&master_node, tx, master::SA_ATTRS, attributes.0).await?;
    let unlinked = zap::create(objset, tx, zap::NewZap::of(DmuType::UNLINKED_SET)).await?;
    zap::set_u64(&master_node, tx, master::DELETE_QUEUE, unlinked.id().0).await?;

    let fold = if new.case == CaseSensitivity::Sensitive { 0 } else { FOLD_UPPER };
    let directory = zap::NewZap {
        normalization: new.normalization | fold,
        ..zap::NewZap::of(DmuType::DIRECTORY_CONTENTS)
    };
    let root = objset.allocate(tx, NewObject { bonus_type: DmuType::SA, ..directory.object() }).await?;
    zap::initialize(&root, tx, directory).await?;
    let registry = LiveRegistry::load(objset, attributes).await?;
    let root_id = root.id().0;
    let mode = DIRECTORY | new.mode & 0o7777;
    let acl = FileAcl::trivial(mode, true);
    let flags = acl.flags_after(ZnodeFlags::ARCHIVE.0 | ZnodeFlags::AV_MODIFIED.0);
    let now = new.now.stored();
    let (count, aces) = acl.stored()?;
    let word = u64::to_le_bytes;
    let mut set = Default::default();
    registry.change(
        &mut set,
        &[
            (Attr::Mode, Some(&word(mode.into()))),
            (Attr::Size, Some(&word(2))),
            (Attr::Gen, Some(&word(tx.txg().get()))),
            (Attr::Uid, Some(&word(new.uid.into()))),
            (Attr::Gid, Some(&word(new.gid.into()))),
            (Attr::Parent, Some(&word(root_id))),
            (Attr::Flags, Some(&word(flags))),
            (Attr::Atime, Some(&now)),
            (Attr::Mtime, Some(&now)),
            (Attr::Ctime, Some(&now)),
            (Attr::Crtime, Some(&now)),
            (Attr::Links, Some(&word(2))),
            (Attr::DaclCount, Some(&word(count))),
            (Attr::DaclAces, Some(&aces)),
        ],
    )?;
    registry.write(&root, tx, &set).await?;
    zap::set_u64(&master_node, tx, master::ROOT, root_id).await
}

#[cfg(test)]
mod tests {
    use device::block_on;
    use ondisk::objset::ObjsetType;
    use ondisk::{ByteOrder, ObjsetId, Txg};

    use super::*;
    use crate::dataset::zpl::{Zpl, ZplOptions};
    use crate::dmu::forge::Forge;

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
