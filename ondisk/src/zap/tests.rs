use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

const ORDERS: [ByteOrder; 2] = [ByteOrder::Little, ByteOrder::Big];

#[test]
fn the_crc_is_that_of_ecma_182() {
    assert_eq!(CRC64[0][128], 0xc96c_5795_d787_0f42);
    // The check value of CRC-64/XZ, which begins with and is finished by all ones.
    let hash = crc64(u64::MAX, b"123456789");
    // Words, and byte for byte.
    assert_eq!(hash, b"123456789".iter().fold(u64::MAX, |hash, byte| crc64(hash, &[*byte])));
    assert_eq!(!hash, 0x995d_c9bb_df19_39fa);
}

#[test]
fn hashes_keep_the_bits_that_cursors_have_room_for() {
    let (short, long) = (ZapFlags::default(), ZapFlags::HASH64);
    let hash = long.hash_name(1, b"name");
    assert_eq!(hash & 0xffff, 0);
    assert_eq!(short.hash_name(1, b"name"), hash >> 36 << 36);
    assert_eq!(long.hash_words(1, &[u64::from_le_bytes(*b"namename")]), long.hash_name(1, b"namename"));
    let pre_hashed = ZapFlags::UINT64_KEY | ZapFlags::PRE_HASHED_KEY;
    assert_eq!(pre_hashed.hash_words(1, &[u64::MAX, 3]), u64::MAX >> 36 << 36);
    for flags in [short, long] {
        let cursor = Cursor { hash: flags.hash_name(1, b"name"), cd: 7 };
        assert_eq!(Cursor::deserialize(cursor.serialize(flags), flags), cursor);
    }
}

#[test]
fn micro_names_are_found_exactly() {
    for order in ORDERS {
        let long = [b'x'; MICRO_NAME_MAX];
        let entries =
            [MicroEntry { name: b"a", value: 1, cd: 0 }, MicroEntry { name: &long, value: u64::MAX, cd: 3 }];
        let block = MicroZap::encode(512, order, 9, 0, &entries).unwrap();
        assert_eq!(ZapKind::of(&block, order), Ok(ZapKind::Micro));
        let zap = MicroZap::parse(&block, order).unwrap();
        assert_eq!(zap.entries().collect::<Vec<_>>(), entries);
        assert_eq!(zap.lookup(&long), Some(entries[1]));
        assert_eq!((zap.lookup(b"A"), zap.lookup(b"")), (None, None));
    }
    let entry = MicroEntry { name: &[b'x'; 50], value: 0, cd: 0 };
    assert!(MicroZap::encode(512, ByteOrder::Little, 1, 0, &[entry]).is_err());
    assert!(MicroZap::encode(64, ByteOrder::Little, 1, 0, &[MicroEntry { name: b"a", ..entry }]).is_err());
}

#[test]
fn micro_names_that_are_alike_are_told_apart() {
    let long = [b'x'; MICRO_NAME_MAX];
    let other = [&long[..MICRO_NAME_MAX - 1], b"y"].concat();
    let names: [&[u8]; 9] =
        [b"a", b"ab", b"file123", b"file1234", b"file12345", b"1234567", b"xfile1234567", &long, &other];
    let entries: Vec<_> = (0..).zip(names).map(|(value, name)| MicroEntry { name, value, cd: 0 }).collect();
    let mut block = MicroZap::encode(4096, ByteOrder::Little, 9, 0, &entries).unwrap();
    // Bytes after the NUL of a name are ignored.
    block[64 + 14 + 2..64 + 64].fill(b'z');
    let zap = MicroZap::parse(&block, ByteOrder::Little).unwrap();
    for (place, entry) in (1..).zip(&entries) {
        assert_eq!(zap.find(entry.name), Some((place * 64, *entry)));
    }
    let absent: [&[u8]; 8] = [
        b"b",
        b"file12",
        b"ile1234",
        b"34567",
        b"xfile123456",
        &long[1..],
        b"a\0z",
        &[b'x'; MICRO_NAME_MAX + 2],
    ];
    for name in absent {
        assert_eq!(zap.find(name), None, "{}", name.escape_ascii());
    }
}

fn header(order: ByteOrder, blocks: u64, shift: u32) -> FatHeader {
    FatHeader {
        block_shift: 14,
        order,
        table: PointerTable { block: BlockId(2), blocks, shift, next_block: BlockId(0), blocks_copied: 0 },
        free_block: BlockId(9),
        leaves: 2,
        entries: 3,
        salt: 5,
        normalization: 0,
        flags: ZapFlags::HASH64,
    }
}

#[test]
fn pointers_are_embedded_or_in_blocks_of_their_own() {
    for order in ORDERS {
        let embedded = header(order, 0, 10);
        let block = embedded.encode(&[1; 1024]).unwrap();
        assert_eq!(FatHeader::parse(&block, order).as_ref(), Ok(&embedded));
        let place = embedded.pointer(u64::MAX);
        assert_eq!(place, PointerPlace { block: BlockId(0), offset: 16384 - 8 });
        assert_eq!(embedded.leaf_at(&block, place), Ok(BlockId(1)));

        let external = header(order, 4, 13);
        assert_eq!(FatHeader::parse(&external.encode(&[]).unwrap(), order).as_ref(), Ok(&external));
        assert_eq!(external.pointer(0), PointerPlace { block: BlockId(2), offset: 0 });
        assert_eq!(external.pointer(u64::MAX), PointerPlace { block: BlockId(5), offset: 16384 - 8 });
        assert!(external.leaf_at(&[0xff; 16384], external.pointer(0)).is_err(), "a leaf beyond the object");
    }
    assert!(header(ByteOrder::Little, 0, 11).encode(&[]).is_err());
    assert!(header(ByteOrder::Little, 5, 13).encode(&[]).is_err());
    assert!(header(ByteOrder::Little, 1, 64).encode(&[]).is_err());
}

#[test]
fn a_loop_of_entries_is_an_error() {
    let mut builder = LeafBuilder::new(12, ByteOrder::Little, 0, 0).unwrap();
    builder.insert_name(Cursor::default(), b"a", &ZapValue::U64(vec![1])).unwrap();
    let mut block = builder.finish();
    let chunks = 48 + 4096 / 16;
    block[chunks + 2..chunks + 4].copy_from_slice(&[0, 0]);
    let leaf = Leaf::parse(&block, ByteOrder::Little).unwrap();
    assert!(leaf.lookup(0, b"b").is_err());
    assert!(leaf.entries_from(Cursor::default()).is_err());
    assert!(leaf.lookup(0, b"a").unwrap().is_some());
}

#[test]
fn a_leaf_says_where_the_next_begins() {
    let next = |prefix, prefix_len| {
        let block = LeafBuilder::new(12, ByteOrder::Little, prefix, prefix_len).unwrap().finish();
        Leaf::parse(&block, ByteOrder::Little).unwrap().next_hash()
    };
    assert_eq!(next(0, 0), None);
    assert_eq!(next(0, 1), Some(1 << 63));
    assert_eq!(next(1, 1), None);
    assert_eq!(next(2, 10), Some(3 << 54));
}

fn zap_value() -> impl Strategy<Value = ZapValue> {
    prop_oneof![
        proptest::collection::vec(any::<u8>(), 0..60).prop_map(ZapValue::U8),
        proptest::collection::vec(any::<u16>(), 0..9).prop_map(ZapValue::U16),
        proptest::collection::vec(any::<u32>(), 0..9).prop_map(ZapValue::U32),
        proptest::collection::vec(any::<u64>(), 0..9).prop_map(ZapValue::U64),
    ]
}

proptest! {
    #[test]
    fn leaves_hold_what_was_inserted(
        model in proptest::collection::btree_map(proptest::collection::vec(1u8.., 1..60), zap_value(), 0..12),
        big: bool, shift in 12u32..15, collide: bool,
    ) {
        let order = ORDERS[usize::from(big)];
        let flags = ZapFlags::default();
        let hash = |name: &[u8]| if collide { 3 << 62 } else { flags.hash_name(77, name) };
        let mut builder = LeafBuilder::new(shift, order, 0, 0).unwrap();
        for (cd, (name, value)) in model.iter().enumerate().rev() {
            let cursor = Cursor { hash: hash(name), cd: cd as u32 };
            prop_assert!(builder.insert_name(cursor, name, value).unwrap());
        }
        let block = builder.finish();
        prop_assert_eq!(block.len(), 1 << shift);
        let leaf = Leaf::parse(&block, order).unwrap();
        for (name, value) in &model {
            let entry = leaf.lookup(hash(name), name).unwrap().unwrap();
            prop_assert_eq!(&entry.value().unwrap(), value);
            prop_assert_eq!(entry.value_u64().unwrap(), match value {
                ZapValue::U64(_) => value.as_u64(),
                _ => None,
            });
        }
        prop_assert!(leaf.lookup(hash(b"\x01\x02absent"), b"\x01\x02absent").unwrap().is_none());
        let sorted = leaf.entries_from(Cursor::default()).unwrap();
        prop_assert!(sorted.is_sorted_by_key(|entry| entry.cursor()));
        let walked: BTreeMap<_, _> =
            sorted.iter().map(|entry| (entry.name().unwrap(), entry.value().unwrap())).collect();
        prop_assert_eq!(walked, model);
    }

    #[test]
    fn integer_keys_are_found(keys in proptest::collection::btree_set(any::<[u64; 3]>(), 0..20), big: bool) {
        let order = ORDERS[usize::from(big)];
        let flags = ZapFlags::HASH64 | ZapFlags::UINT64_KEY;
        let mut builder = LeafBuilder::new(14, order, 0, 0).unwrap();
        for key in &keys {
            let cursor = Cursor { hash: flags.hash_words(1, key), cd: 0 };
            prop_assert!(builder.insert_words(cursor, key, &ZapValue::U8(vec![7])).unwrap());
        }
        let block = builder.finish();
        let leaf = Leaf::parse(&block, order).unwrap();
        for key in &keys {
            let entry = leaf.lookup_words(flags.hash_words(1, key), key).unwrap().unwrap();
            prop_assert_eq!(entry.key_words().unwrap(), key);
        }
        prop_assert!(leaf.lookup_words(0, &[1]).unwrap().is_none());
    }

    #[test]
    fn damaged_leaves_never_panic(damage: Vec<(prop::sample::Index, u8)>, big: bool) {
        let order = ORDERS[usize::from(big)];
        let mut builder = LeafBuilder::new(10, order, 0, 0).unwrap();
        for cd in 0..4 {
            let _ = builder.insert_name(Cursor { hash: 0, cd }, &[b'n'; 40], &ZapValue::U32(vec![1; 9]));
        }
        let mut block = builder.finish();
        for (at, byte) in damage {
            let at = at.index(block.len());
            block[at] = byte;
        }
        if let Ok(leaf) = Leaf::parse(&block, order) {
            for entry in leaf.entries().flatten() {
                let _ = (entry.name(), entry.key_words(), entry.value(), entry.value_u64(), entry.name_is(b"x"));
            }
            let _ = (leaf.lookup(0, b"n"), leaf.next_hash());
        }
    }
}
