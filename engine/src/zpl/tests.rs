//! Filesystems that no golden pool has: in either byte order, with files from before system attributes, and
//! with extended attributes in directories.

use std::collections::BTreeMap;
use std::sync::Arc;

use device::block_on;
use ondisk::dmu::DmuType;
use ondisk::nvlist::{Encoding, NvValue, Nvlist};
use ondisk::objset::ObjsetType;
use ondisk::sa::{Attr, Registration, Tables};
use ondisk::zap::{Cursor, FatHeader, LeafBuilder, PointerTable, ZapFlags, ZapValue};
use ondisk::zpl::{Ace, AceType, AceWho, AclPhys, FileType, ace_flags, ace_mask, write_aces};
use ondisk::{BlockId, ByteOrder, ObjectId, Writer};

use super::*;
use crate::dmu::forge::Forge;

const ORDERS: [ByteOrder; 2] = [ByteOrder::Little, ByteOrder::Big];

/// Objects of the filesystem.
const DELETE_QUEUE: u64 = 2;
const ROOT: u64 = 3;
const FILE: u64 = 4;
const SHORT_LINK: u64 = 5;
const LONG_LINK: u64 = 6;
const DEVICE: u64 = 7;
const XATTR_DIR: u64 = 8;
const XATTR_A: u64 = 9;
const XATTR_B: u64 = 10;
const ACL: u64 = 11;
const SA_ATTRS: u64 = 20;
const SA_REGISTRY: u64 = 21;
const SA_LAYOUTS: u64 = 22;

/// The attributes of one file.
struct Facts {
    mode: u64,
    size: u64,
    xattr: u64,
    rdev: u64,
}

impl Facts {
    fn new(mode: u64, size: u64) -> Self {
        Self { mode, size, xattr: 0, rdev: 0 }
    }

    /// The words of a `znode_phys` up to the padding.
    fn words(&self) -> [u64; 18] {
        let (seconds, nanoseconds) = (1_700_000_000, 123_456_789);
        let times = [seconds, nanoseconds, seconds + 1, 5, seconds + 2, 6, (-3i64) as u64, 7];
        let mut words = [0; 18];
        words[..8].copy_from_slice(&times);
        words[8..].copy_from_slice(&[
            77,
            self.mode,
            self.size,
            ROOT,
            1,
            self.xattr,
            self.rdev,
            0x104,
            1001,
            7 << 32 | 2000,
        ]);
        words
    }

    fn znode(&self, order: ByteOrder, acl: &[u8], after: &[u8]) -> Vec<u8> {
        let mut writer = Writer::new(order);
        writer.u64s(&self.words()).zeros(32).bytes(acl).zeros_to(264).bytes(after);
        writer.finish()
    }

    /// The values of layout 2: the attributes of an old znode, without padding and ACL, and two of variable
    /// length.
    fn areas(&self, order: ByteOrder, variable: [&[u8]; 2]) -> Vec<u8> {
        let words: Vec<[u8; 8]> = self.words().iter().map(|word| order.u64_bytes(*word)).collect();
        let times = words[..8].chunks(2).map(|pair| pair.concat());
        let mut values: Vec<Vec<u8>> = times.chain(words[8..].iter().map(|word| word.to_vec())).collect();
        values.extend(variable.iter().map(|value| value.to_vec()));
        let values: Vec<&[u8]> = values.iter().map(Vec::as_slice).collect();
        tables().encode(2, &values, order).unwrap()
    }
}

const LAYOUT: [Attr; 16] = [
    Attr::Atime,
    Attr::Mtime,
    Attr::Ctime,
    Attr::Crtime,
    Attr::Gen,
    Attr::Mode,
    Attr::Size,
    Attr::Parent,
    Attr::Links,
    Attr::Xattr,
    Attr::Rdev,
    Attr::Flags,
    Attr::Uid,
    Attr::Gid,
    Attr::Symlink,
    Attr::Dxattr,
];

fn registry() -> Vec<(&'static str, u64)> {
    // Numbers beyond the old attributes are each filesystem's own.
    let number = |attr: Attr| if (attr as u16) < 16 { attr as u16 } else { 200 - attr as u16 };
    let raw = |attr: Attr| Registration {
        number: number(attr),
        byteswap: attr.byteswap() as u8,
        length: attr.length(),
    };
    Attr::ALL.iter().map(|attr| (attr.name(), raw(*attr).to_raw())).collect()
}

fn layout_numbers() -> Vec<u16> {
    let registry: BTreeMap<_, _> = registry().into_iter().collect();
    LAYOUT.iter().map(|attr| Registration::from_raw(registry[attr.name()]).number).collect()
}

fn tables() -> Tables {
    let registry = registry();
    Tables::new(registry.iter().map(|(name, raw)| (name.as_bytes(), *raw)), [(&b"2"[..], layout_numbers())])
        .unwrap()
}

/// A fat ZAP of one leaf, as its two blocks.
fn fat_zap(order: ByteOrder, entries: &[(&str, ZapValue)]) -> BTreeMap<u64, Vec<u8>> {
    const SHIFT: u32 = 14;
    let header = FatHeader {
        block_shift: SHIFT,
        order,
        table: PointerTable {
            block: BlockId(0),
            blocks: 0,
            shift: SHIFT - 4,
            next_block: BlockId(0),
            blocks_copied: 0,
        },
        free_block: BlockId(2),
        leaves: 1,
        entries: entries.len() as u64,
        salt: 0x55aa_55aa_1234_5679,
        normalization: 0,
        flags: ZapFlags::default(),
    };
    let mut leaf = LeafBuilder::new(SHIFT, order, 0, 0).unwrap();
    for (name, value) in entries {
        let position = Cursor { hash: header.hash_name(name.as_bytes()), cd: 0 };
        assert!(leaf.insert_name(position, name.as_bytes(), value).unwrap());
    }
    let table = vec![1; 1 << (SHIFT - 4)];
    BTreeMap::from([(0, header.encode(&table).unwrap()), (1, leaf.finish())])
}

/// An entry that allows reading and writing.
fn ace(who: u16) -> Ace {
    let mask = ace_mask::READ_DATA | ace_mask::WRITE_DATA;
    Ace { ace_type: AceType::Allow, flags: who, mask, fuid: None, object: None }
}

fn entry(kind: FileType, object: u64) -> u64 {
    u64::from(kind.raw()) << 60 | object
}

/// A filesystem with one file of each kind, with or without system attributes.
fn filesystem(order: ByteOrder, old: bool) -> Option<Arc<Zpl>> {
    let mut forge = Forge::new(order)?;
    let zap = DmuType::DIRECTORY_CONTENTS;
    let master = [
        ("VERSION", if old { 2 } else { 5 }),
        ("ROOT", ROOT),
        ("DELETE_QUEUE", DELETE_QUEUE),
        ("SA_ATTRS", SA_ATTRS),
    ];
    let master = forge.micro_zap(0, if old { &master[..3] } else { &master });
    forge.file(1, DmuType::MASTER_NODE, &master, (DmuType::NONE, &[]));
    let queue = forge.micro_zap(0, &[("20", FILE * 8)]);
    forge.file(DELETE_QUEUE, DmuType::UNLINKED_SET, &queue, (DmuType::NONE, &[]));
    let attrs = forge.micro_zap(0, &[("REGISTRY", SA_REGISTRY), ("LAYOUTS", SA_LAYOUTS)]);
    forge.file(SA_ATTRS, DmuType::SA_MASTER_NODE, &attrs, (DmuType::NONE, &[]));
    let attrs = forge.micro_zap(0, &registry());
    forge.file(SA_REGISTRY, DmuType::SA_ATTR_REGISTRATION, &attrs, (DmuType::NONE, &[]));
    let layouts = fat_zap(order, &[("2", ZapValue::U16(layout_numbers()))]);
    forge.add(SA_LAYOUTS, forge.dnode(DmuType::SA_ATTR_LAYOUTS, 1 << 14, &layouts));

    let add = |forge: &mut Forge, id, kind, facts: Facts, content: &[u8], target: &[u8], dxattr: &[u8]| {
        let aces = [ace(ace_flags::OWNER)];
        let mut inline = [0; 72];
        inline[..8].copy_from_slice(&write_aces(&aces, 1, order).unwrap());
        let (bonus_type, bonus) = if old {
            let external = (id == FILE * 8).then_some(ObjectId(ACL));
            let (count, size) = if external.is_some() { (3, 24) } else { (1, 8) };
            let acl = AclPhys { external, version: 1, count, size, inline, order }.encode().unwrap();
            // A target longer than this goes to the first block.
            let after = if target.len() <= 56 { target } else { &[] };
            (DmuType::ZNODE, facts.znode(order, &acl, after))
        } else {
            (DmuType::SA, facts.areas(order, [target, dxattr]))
        };
        if bonus.len() <= 320 {
            forge.file(id, kind, content, (bonus_type, &bonus));
        } else {
            // Attributes that do not fit go to a large dnode.
            forge.file(id, kind, content, (DmuType::NONE, &[]));
            let dnode = forge.take(id);
            forge.add(id, ondisk::dnode::Dnode { extra_slots: 3, bonus_type, bonus: bonus.into(), ..dnode });
        }
    };
    let plain = DmuType::PLAIN_FILE_CONTENTS;
    let root = forge.micro_zap(
        0,
        &[
            ("file", entry(FileType::Regular, FILE * 8)),
            ("short", entry(FileType::Symlink, SHORT_LINK * 8)),
            ("long", entry(FileType::Symlink, LONG_LINK * 8)),
            ("device", if old { DEVICE * 8 } else { entry(FileType::CharDevice, DEVICE * 8) }),
        ],
    );
    add(&mut forge, ROOT, zap, Facts::new(0o40755, 6), &root, b"", b"");
    let mut dxattr = Nvlist::default();
    dxattr.push("user.c", NvValue::ByteArray(b"in the attributes".to_vec()));
    let dxattr = if old { Vec::new() } else { dxattr.encode(Encoding::Native(order)).unwrap() };
    let facts = Facts { xattr: XATTR_DIR * 8, ..Facts::new(0o100640, 11) };
    add(&mut forge, FILE * 8, plain, facts, b"hello world", b"", &dxattr);
    add(&mut forge, SHORT_LINK * 8, plain, Facts::new(0o120777, 6), b"", b"target", b"");
    let long = "x".repeat(300);
    let content = if old { long.as_bytes() } else { &[] };
    let target = if old { &[][..] } else { long.as_bytes() };
    add(&mut forge, LONG_LINK * 8, plain, Facts::new(0o120777, 300), content, target, b"");
    let facts = Facts { rdev: 8 << 20 | 17, ..Facts::new(0o20600, 0) };
    add(&mut forge, DEVICE * 8, plain, facts, b"", b"", b"");
    let xattrs = forge.micro_zap(0, &[("user.a", entry(FileType::Regular, XATTR_A * 8)), ("b", XATTR_B * 8)]);
    add(&mut forge, XATTR_DIR * 8, zap, Facts::new(0o41777, 4), &xattrs, b"", b"");
    add(&mut forge, XATTR_A * 8, plain, Facts::new(0o100640, 3), b"one", b"", b"");
    add(&mut forge, XATTR_B * 8, plain, Facts::new(0o100640, 3), b"two", b"", b"");
    let aces = [
        ace(ace_flags::OWNER),
        ace(ace_flags::GROUP | ace_flags::IDENTIFIER_GROUP),
        ace(ace_flags::EVERYONE),
    ];
    forge.file(ACL, DmuType::ACL, &write_aces(&aces, 1, order).unwrap(), (DmuType::NONE, &[]));
    let objset = forge.objset(ObjsetType::Zfs);
    Some(block_on(Zpl::open(&objset, ZplOptions::default())).unwrap())
}

fn all_kinds() -> impl Iterator<Item = (Arc<Zpl>, bool)> {
    ORDERS.into_iter().flat_map(|order| [true, false].map(|old| (order, old))).filter_map(|(order, old)| {
        let zpl = filesystem(order, old)?;
        Some((zpl, old))
    })
}

fn node(zpl: &Arc<Zpl>, name: &str) -> Znode {
    block_on(async {
        let root = zpl.node(zpl.root()).await.unwrap();
        let id = root.lookup(name.as_bytes()).await.unwrap().unwrap();
        zpl.node(id).await.unwrap()
    })
}

#[test]
fn attributes_are_the_same_from_old_and_new_files_in_either_order() {
    for (zpl, _) in all_kinds() {
        let stat = node(&zpl, "file").stat().unwrap();
        assert_eq!((stat.mode, stat.size, stat.nlink, stat.generation), (0o100640, 11, 1, 77));
        // The group is in a domain, which Linux does not show.
        assert_eq!((stat.uid, stat.gid), (1001, 2000));
        assert_eq!(stat.atime, Time { seconds: 1_700_000_000, nanoseconds: 123_456_789 });
        assert_eq!(stat.crtime.as_nanoseconds(), -2_999_999_993);
        assert_eq!((stat.parent, stat.ino), (ROOT, FILE * 8));
        assert_eq!(node(&zpl, "device").stat().unwrap().device, (8, 17));
    }
}

#[test]
fn content_and_links_are_read_wherever_they_lie() {
    for (zpl, _) in all_kinds() {
        let mut content = [0; 20];
        assert_eq!(block_on(node(&zpl, "file").read_at(6, &mut content)).unwrap(), 5);
        assert_eq!(&content[..5], b"world");
        assert_eq!(block_on(node(&zpl, "file").read_at(11, &mut content)).unwrap(), 0);
        assert_eq!(block_on(node(&zpl, "short").read_link()).unwrap(), b"target");
        assert_eq!(block_on(node(&zpl, "long").read_link()).unwrap(), "x".repeat(300).as_bytes());
        assert!(matches!(block_on(node(&zpl, "file").read_link()), Err(Error::WrongType { .. })));
        let root = block_on(zpl.node(zpl.root())).unwrap();
        assert!(matches!(block_on(root.read_at(0, &mut content)), Err(Error::WrongType { .. })));
        assert_eq!(block_on(zpl.unlinked()).unwrap(), [ObjectId(FILE * 8)]);
    }
}

#[test]
fn extended_attributes_are_found_in_directories_and_in_the_file() {
    for (zpl, old) in all_kinds() {
        let file = node(&zpl, "file");
        let mut names = block_on(file.list_xattrs()).unwrap();
        names.sort();
        let expected: &[&[u8]] =
            if old { &[b"user.a", b"user.b"] } else { &[b"user.a", b"user.b", b"user.c"] };
        assert_eq!(names, expected);
        let value = |name: &str| block_on(file.xattr(name.as_bytes())).unwrap();
        assert_eq!(value("user.a").as_deref(), Some(&b"one"[..]));
        assert_eq!(value("user.b").as_deref(), Some(&b"two"[..]));
        assert_eq!(value("user.c").is_some(), !old);
        assert_eq!(value("user.d"), None);
        assert_eq!(block_on(node(&zpl, "short").list_xattrs()).unwrap(), [b""; 0]);
        let path = block_on(zpl.path_of(ObjectId(XATTR_A * 8))).unwrap();
        // The attribute's directory has the root as its parent here, which does not list it.
        assert_eq!(path, None);
    }
}

#[test]
fn directories_tell_types_where_they_know_them() {
    for (zpl, old) in all_kinds() {
        let root = block_on(zpl.node(zpl.root())).unwrap();
        let entries = block_on(async {
            let mut cursor = root.read_dir(0).await.unwrap();
            let mut found = BTreeMap::new();
            while let Some(entry) = cursor.next().await.unwrap() {
                found.insert(entry.name, entry.file_type);
            }
            found
        });
        assert_eq!(entries.len(), 6);
        assert_eq!(entries[&b".."[..]], Some(FileType::Directory));
        assert_eq!(entries[&b"short"[..]], Some(FileType::Symlink));
        assert_eq!(entries[&b"device"[..]], (!old).then_some(FileType::CharDevice));
    }
}

#[test]
fn the_acl_of_an_old_file_may_be_an_object_of_its_own() {
    for (zpl, old) in all_kinds() {
        let who = |name: &str| -> Vec<AceWho> {
            block_on(node(&zpl, name).acl()).unwrap().iter().map(Ace::who).collect()
        };
        if old {
            assert_eq!(who("file"), [AceWho::Owner, AceWho::OwningGroup, AceWho::Everyone]);
            assert_eq!(who("short"), [AceWho::Owner]);
        } else {
            assert_eq!(who("file"), []);
        }
    }
}
