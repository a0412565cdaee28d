//! ZAPs of every shape, forged: micro and fat, with the pointer table inside and outside of the header, in
//! both byte orders, with and without normalization.

use std::collections::{BTreeMap, BTreeSet};

use device::block_on;
use ondisk::dmu::DmuType;
use ondisk::objset::ObjsetType;
use ondisk::zap::{Cursor as Position, FatHeader, LeafBuilder, MicroEntry, MicroZap, PointerTable, ZapFlags};
use ondisk::{BlockId, ByteOrder, ObjectId};
use proptest::prelude::*;

use super::normalize::Form;
use super::*;
use crate::dmu::forge::Forge;

/// Blocks of 1 KiB: a pointer table in the header has 64 pointers, one outside 128 in each of its blocks.
const SHIFT: u32 = 10;
const SALT: u64 = 0x9e37_79b9_7f4a_7c15;
/// Upper case and form D.
const FOLDED: u64 = 0x12;

/// The shape of a ZAP to make.
#[derive(Clone, Copy, Debug)]
struct Shape {
    order: ByteOrder,
    /// log2 of the number of pointers; `None`: a micro ZAP.
    table: Option<u32>,
    /// Bits of the hash that leaves share.
    prefix: u32,
    flags: u64,
    normalization: u64,
}

fn shapes() -> impl Strategy<Value = Shape> {
    let table = prop_oneof![Just(None), Just(Some(SHIFT - 4)), (SHIFT - 2..SHIFT + 2).prop_map(Some)];
    (any::<bool>(), table, 2u32..6, 0u64..2, prop_oneof![Just(0), Just(FOLDED)]).prop_map(
        |(big, table, prefix, flags, normalization)| Shape {
            order: if big { ByteOrder::Big } else { ByteOrder::Little },
            table,
            prefix,
            flags: if table.is_some() { flags } else { 0 },
            normalization,
        },
    )
}

/// The position that OpenZFS would give each name: names of equal hash are numbered.
fn positions(shape: Shape, names: &BTreeSet<String>) -> BTreeMap<Position, String> {
    let rules = NameRules::from_flags(shape.normalization).unwrap();
    let mut positions = BTreeMap::new();
    for name in names {
        let hash = ZapFlags(shape.flags).hash_name(SALT, &rules.prepare(name.as_bytes()));
        let cd = positions.range(Position { hash, cd: 0 }..=Position { hash, cd: u32::MAX }).count() as u32;
        positions.insert(Position { hash, cd }, name.clone());
    }
    positions
}

fn value_of(name: &str) -> u64 {
    name.bytes().fold(7, |sum, byte| sum * 31 + u64::from(byte))
}

/// The blocks of the ZAP; `None` when a leaf would be too full.
fn blocks(shape: Shape, positions: &BTreeMap<Position, String>) -> Option<(usize, BTreeMap<u64, Vec<u8>>)> {
    let Some(table_shift) = shape.table else {
        let entries: Vec<_> = positions
            .iter()
            .map(|(at, name)| MicroEntry { name: name.as_bytes(), value: value_of(name), cd: at.cd })
            .collect();
        let size = ((entries.len() + 1) * 64).next_multiple_of(512);
        let block = MicroZap::encode(size, shape.order, SALT, shape.normalization, &entries).unwrap();
        return Some((size, BTreeMap::from([(0, block)])));
    };
    let embedded = table_shift == SHIFT - 4;
    let table_blocks = if embedded { 0 } else { 1u64 << (table_shift - (SHIFT - 3)) };
    let leaves = 1u64 << shape.prefix;
    let first_leaf = 1 + table_blocks;
    let header = FatHeader {
        block_shift: SHIFT,
        order: shape.order,
        table: PointerTable {
            block: BlockId(if embedded { 0 } else { 1 }),
            blocks: table_blocks,
            shift: table_shift,
            next_block: BlockId(0),
            blocks_copied: 0,
        },
        free_block: BlockId(first_leaf + leaves),
        leaves,
        entries: positions.len() as u64,
        salt: SALT,
        normalization: shape.normalization,
        flags: ZapFlags(shape.flags),
    };
    let mut made = BTreeMap::new();
    for leaf in 0..leaves {
        let mut builder = LeafBuilder::new(SHIFT, shape.order, leaf, shape.prefix).unwrap();
        for (at, name) in positions.iter().filter(|(at, _)| at.hash >> (64 - shape.prefix) == leaf) {
            if !builder.insert_name(*at, name.as_bytes(), &Value::U64(vec![value_of(name)])).unwrap() {
                return None;
            }
        }
        made.insert(first_leaf + leaf, builder.finish());
    }
    let pointers: Vec<u64> =
        (0..1u64 << table_shift).map(|index| first_leaf + (index >> (table_shift - shape.prefix))).collect();
    made.insert(0, header.encode(if embedded { &pointers } else { &[] }).unwrap());
    if !embedded {
        for (id, part) in (1..).zip(pointers.chunks(1 << (SHIFT - 3))) {
            made.insert(id, part.iter().flat_map(|pointer| shape.order.u64_bytes(*pointer)).collect());
        }
    }
    Some((1 << SHIFT, made))
}

fn forged(shape: Shape, positions: &BTreeMap<Position, String>) -> Option<Zap> {
    let (size, blocks) = blocks(shape, positions)?;
    let mut forge = Forge::new(shape.order)?;
    forge.add(5, forge.dnode(DmuType::DIRECTORY_CONTENTS, size, &blocks));
    let objset = forge.objset(ObjsetType::Other);
    Some(block_on(async { Zap::open(&objset.object(ObjectId(5)).await.unwrap()).await.unwrap() }))
}

fn walk(zap: &Zap, cookie: u64) -> Vec<Entry> {
    block_on(async {
        let mut cursor = zap.cursor(cookie);
        let mut found = Vec::new();
        while let Some(entry) = cursor.next().await.unwrap() {
            found.push(entry);
        }
        found
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn every_entry_is_found_by_name_and_by_walking(
        shape in shapes(),
        names in proptest::collection::btree_set("[a-dA-D\u{e9}\u{c9}]{1,6}", 0..30),
    ) {
        let positions = positions(shape, &names);
        let Some(zap) = forged(shape, &positions) else { return Ok(()) };
        prop_assert_eq!(zap.count().unwrap(), names.len() as u64);
        for name in &names {
            prop_assert_eq!(block_on(zap.lookup_u64(name)).unwrap(), Some(value_of(name)));
        }
        for missing in ["", "e", "aaaaaaa"] {
            prop_assert_eq!(block_on(zap.lookup(missing)).unwrap(), None);
        }

        let all = walk(&zap, 0);
        let found: Vec<_> = all.iter().filter_map(|entry| Some(String::from_utf8_lossy(entry.key.name()?))).collect();
        prop_assert!(found.iter().eq(positions.values()), "{found:?}");
        for (number, entry) in all.iter().enumerate() {
            prop_assert_eq!(&walk(&zap, entry.cookie)[..], &all[number + 1..]);
        }
    }

    #[test]
    fn names_that_differ_by_case_or_form_are_one_where_the_zap_says_so(
        shape in shapes(),
        names in proptest::collection::btree_set("[a-cA-C\u{e9}\u{c9}]{1,3}", 1..20),
    ) {
        let shape = Shape { normalization: FOLDED, ..shape };
        let rules = NameRules { form: Some(Form::D), fold_case: true };
        let positions = positions(shape, &names);
        let Some(zap) = forged(shape, &positions) else { return Ok(()) };
        for name in &names {
            let asked = name.to_lowercase().replace('\u{e9}', "e\u{301}");
            let first = positions.values().find(|other| rules.prepare(other.as_bytes()) == rules.prepare(name.as_bytes()));
            let found = block_on(zap.lookup_normalized(asked.as_bytes(), Match::Normalized)).unwrap().unwrap();
            prop_assert_eq!(found.name, first.unwrap().as_bytes());
            let found = block_on(zap.lookup_normalized(name.as_bytes(), Match::NormalizedCase)).unwrap().unwrap();
            prop_assert_eq!(found.name, name.as_bytes());
        }
    }
}

#[test]
fn a_pointer_table_that_leads_to_the_wrong_leaf_is_damage() {
    let shape =
        Shape { order: ByteOrder::Little, table: Some(SHIFT - 4), prefix: 2, flags: 0, normalization: 0 };
    let names: BTreeSet<String> = ["one", "two", "three", "four"].map(str::to_owned).into();
    let (size, mut made) = blocks(shape, &positions(shape, &names)).unwrap();
    // All leaves are the first one now.
    let first = made[&1].clone();
    (2..5).for_each(|id| *made.get_mut(&id).unwrap() = first.clone());
    let Some(mut forge) = Forge::new(shape.order) else { return };
    forge.add(5, forge.dnode(DmuType::DIRECTORY_CONTENTS, size, &made));
    let objset = forge.objset(ObjsetType::Other);
    block_on(async {
        let zap = Zap::open(&objset.object(ObjectId(5)).await.unwrap()).await.unwrap();
        let mut cursor = zap.cursor(0);
        let end = loop {
            match cursor.next().await {
                Ok(Some(_)) => {}
                end => break end,
            }
        };
        assert!(matches!(end, Err(Error::Corrupt { .. })), "{end:?}");
    });
}
