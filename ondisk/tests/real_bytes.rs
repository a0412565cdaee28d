//! Structures that OpenZFS 2.3.2 wrote: pieces of the golden pools `single` and `rz1`. What is expected was
//! printed by `zdb`.

#![allow(clippy::unwrap_used, reason = "a test")]

use ondisk::blkptr::CompressType;
use ondisk::dmu::DmuType;
use ondisk::dnode::Dnode;
use ondisk::nvlist::{Encoding, Nvlist};
use ondisk::sa::{AreaKind, Attr, Tables};
use ondisk::uberblock::Uberblock;
use ondisk::vdev_config::{PoolConfig, PoolState, VdevKind};
use ondisk::zap::MicroZap;
use ondisk::zpl::{FileType, ZnodeFlags};
use ondisk::{BlockId, ByteOrder, Txg};

const LABEL: &[u8] = include_bytes!("data/label.nvlist");
const UBERBLOCK: &[u8] = include_bytes!("data/uberblock");
const DNODE: &[u8] = include_bytes!("data/directory.dnode");
const REGISTRY: &[u8] = include_bytes!("data/sa_registry.zap");

/// The names of the registry in the order in which `zdb` walks it: by hash.
const WALK: [&str; 22] = [
    "ZPL_DXATTR",
    "ZPL_FLAGS",
    "ZPL_ZNODE_ACL",
    "ZPL_GEN",
    "ZPL_CRTIME",
    "ZPL_MTIME",
    "ZPL_CTIME",
    "ZPL_RDEV",
    "ZPL_DACL_COUNT",
    "ZPL_XATTR",
    "ZPL_SYMLINK",
    "ZPL_SCANSTAMP",
    "ZPL_PROJID",
    "ZPL_UID",
    "ZPL_PARENT",
    "ZPL_MODE",
    "ZPL_ATIME",
    "ZPL_LINKS",
    "ZPL_SIZE",
    "ZPL_PAD",
    "ZPL_GID",
    "ZPL_DACL_ACES",
];

#[test]
fn a_label_is_read_and_written_back_byte_for_byte() {
    let (list, encoding, length) = Nvlist::parse_packed(LABEL).unwrap();
    assert_eq!(encoding, Encoding::Xdr);
    assert_eq!(list.encode(Encoding::Xdr).unwrap(), &LABEL[..length]);

    let config = PoolConfig::parse(list.clone()).unwrap();
    assert_eq!((config.version, config.state), (5000, PoolState::Exported));
    assert_eq!(config.name, Some("rz1".into()));
    let tree = config.vdev_tree.unwrap();
    assert_eq!(tree.kind, VdevKind::Raidz { nparity: 1, expanding: false, expand_txgs: vec![] });
    assert_eq!(tree.children.len(), 4);
    assert_eq!(tree.guid, config.top_guid.unwrap());
    assert_eq!(tree.to_nvlist(), *list.get_nvlist("vdev_tree").unwrap());
}

#[test]
fn an_uberblock_is_read_and_written_back() {
    let uberblock = Uberblock::parse(UBERBLOCK).unwrap();
    assert_eq!(uberblock.encode(), UBERBLOCK);
    assert_eq!((uberblock.order, uberblock.version, uberblock.txg), (ByteOrder::Little, 5000, Txg(79)));
    assert_eq!(uberblock.root_bp.dmu_type(), DmuType::OBJSET);
    assert_eq!((uberblock.root_bp.copies(), uberblock.root_bp.compress()), (3, CompressType::Lz4));
    assert!(!uberblock.is_multihost() && !uberblock.is_checkpoint());
}

#[test]
fn a_registry_is_walked_in_the_order_of_its_hashes() {
    let zap = MicroZap::parse(REGISTRY, ByteOrder::Little).unwrap();
    let mut entries: Vec<_> = zap.entries().collect();
    entries.sort_by_key(|entry| (zap.hash_name(entry.name), entry.cd));
    let names: Vec<_> = entries.iter().map(|entry| std::str::from_utf8(entry.name).unwrap()).collect();
    assert_eq!(names, WALK);
    assert_eq!(zap.lookup(b"ZPL_DACL_ACES").unwrap().value, 0x40013);
}

#[test]
fn a_directory_tells_its_attributes() {
    let dnode = Dnode::parse(DNODE, ByteOrder::Little).unwrap().unwrap();
    assert_eq!(dnode.encode().unwrap(), DNODE);
    assert_eq!((dnode.dmu_type, dnode.bonus_type), (DmuType::DIRECTORY_CONTENTS, DmuType::SA));
    assert_eq!((dnode.max_block_id, dnode.data_block_size(), dnode.bonus.len()), (BlockId(0), 512, 176));
    let embedded = dnode.blkptrs[0].embedded().unwrap();
    assert_eq!((embedded.lsize.0, embedded.psize.0), (0x200, 0x2b));

    let registry = MicroZap::parse(REGISTRY, ByteOrder::Little).unwrap();
    let layout = vec![5, 6, 4, 12, 13, 7, 11, 0, 1, 2, 3, 8, 21, 16, 19];
    let tables =
        Tables::new(registry.entries().map(|entry| (entry.name, entry.value)), [(b"2".as_slice(), layout)])
            .unwrap();
    let found = tables.locate(&dnode.bonus, AreaKind::Sa, dnode.order).unwrap();
    let number = |attr| found.u64(&dnode.bonus, attr).unwrap();
    assert_eq!(number(Attr::Mode), 0o40755);
    assert_eq!(FileType::from_mode(number(Attr::Mode) as u32), FileType::Directory);
    assert_eq!((number(Attr::Gen), number(Attr::Parent), number(Attr::Links)), (10, 34, 3));
    assert_eq!(number(Attr::Flags), 0x8408_0000_0144);
    assert!(ZnodeFlags(number(Attr::Flags)).contains(ZnodeFlags::PROJID));
    assert!(!found.contains(Attr::Xattr));
}
