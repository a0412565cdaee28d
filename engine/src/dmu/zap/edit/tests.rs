//! Random changes against a map, on blocks in memory; the shape is checked as `zdb` and OpenZFS's assertions
//! do, and the read side must see the same entries.

use std::collections::{BTreeMap, BTreeSet};

use device::block_on;
use ondisk::objset::ObjsetType;
use ondisk::zap::{FatHeader, Leaf, MicroZap, ZapFlags, ZapKind};
use ondisk::{ByteOrder, ObjectId};
use proptest::prelude::*;

use super::*;
use crate::Block;
use crate::dmu::OrderedBlock;
use crate::dmu::forge::Forge;
use crate::dmu::zap::Zap;

const ORDER: ByteOrder = ByteOrder::Little;
const FOLDED: u64 = 0x12;

/// A ZAP that consists only of blocks.
struct Blocks {
    size: u32,
    blocks: BTreeMap<u64, Block>,
    /// Blocks that the last change wrote.
    written: usize,
}

impl Source for Blocks {
    fn block_bytes(&self) -> u64 {
        self.size.into()
    }

    async fn block(&self, id: u64) -> Result<Option<OrderedBlock>> {
        let block = self.blocks.get(&id).cloned();
        Ok(block.map(|block| OrderedBlock { block, order: ORDER }))
    }

    fn is_directory(&self) -> bool {
        true
    }

    fn describe(&self) -> String {
        "ZAP of a test".into()
    }
}

impl Blocks {
    fn new(new: NewZap) -> Self {
        let mut blocks = Self { size: new.micro_block_bytes, blocks: BTreeMap::new(), written: 0 };
        let changes = draft::initialize(&blocks, new, 0x1234_5678_9abc_def1).unwrap();
        blocks.apply(changes);
        blocks
    }

    fn apply(&mut self, changes: Changes) {
        match changes {
            Changes::Patch { offset, bytes } => {
                let at = offset as usize;
                self.change(0, |block| block[at..at + bytes.len()].copy_from_slice(&bytes));
                self.written = 1;
            }
            Changes::Blocks { block_bytes, written, freed } => {
                if block_bytes != self.size {
                    assert!(
                        self.blocks.keys().all(|id| *id == 0),
                        "the block size of one block only changes"
                    );
                    self.size = block_bytes;
                }
                self.written = written.len();
                for (id, block) in written {
                    assert_eq!(block.len(), self.size as usize);
                    self.blocks.insert(id, block.into());
                }
                for id in freed.into_iter().flatten() {
                    self.blocks.remove(&id);
                }
            }
        }
    }

    fn change(&mut self, id: u64, change: impl FnOnce(&mut [u8])) {
        let mut block = device::IoBuf::from(&*self.blocks[&id]);
        change(&mut block);
        self.blocks.insert(id, block.into());
    }

    fn put(&mut self, key: &Key, value: &Value, replace: bool) -> Result<bool> {
        let changes = block_on(draft::put(self, key, value, replace))?;
        Ok(changes.map(|changes| self.apply(changes)).is_some())
    }

    fn remove(&mut self, key: &Key) -> bool {
        let changes = block_on(draft::remove(self, key)).unwrap();
        changes.map(|changes| self.apply(changes)).is_some()
    }

    fn lookup(&self, key: &Key) -> Option<Value> {
        block_on(draft::lookup(self, key)).unwrap()
    }

    fn header(&self) -> Option<FatHeader> {
        match ZapKind::of(&self.blocks[&0], ORDER).unwrap() {
            ZapKind::Micro => None,
            ZapKind::Fat => Some(FatHeader::parse(&self.blocks[&0], ORDER).unwrap()),
        }
    }

    /// Checks everything that OpenZFS and zdb assume.
    fn verify(&self) -> BTreeMap<Key, Value> {
        let Some(header) = self.header() else {
            assert!(self.size.is_multiple_of(512) && self.size <= 128 << 10);
            return self.verify_micro();
        };
        let mut entries = BTreeMap::new();
        let mut leaves = BTreeSet::new();
        let mut index = 0u64;
        while index < 1 << header.table.shift {
            let pointer = |index: u64| {
                let place = header.pointer(index << (64 - header.table.shift));
                header.leaf_at(&self.blocks[&place.block.0], place).unwrap().0
            };
            let id = pointer(index);
            assert!(leaves.insert(id), "leaf {id} has pointers in two places");
            let leaf = Leaf::parse(&self.blocks[&id], ORDER).unwrap();
            let count = 1u64 << (header.table.shift - leaf.prefix_len);
            assert_eq!(leaf.prefix, index >> (header.table.shift - leaf.prefix_len));
            assert!((index..index + count).all(|other| pointer(other) == id));
            self.verify_leaf(&header, id, &leaf, &mut entries);
            index += count;
        }
        assert_eq!(header.leaves, leaves.len() as u64);
        assert_eq!(header.entries, entries.len() as u64);
        let table = header.table.block.0..header.table.block.0 + header.table.blocks;
        let known: BTreeSet<u64> = leaves.into_iter().chain(table).chain([0]).collect();
        assert!(known.iter().eq(self.blocks.keys()), "no block is lost: {known:?}");
        assert!(known.iter().all(|id| *id < header.free_block.0));
        entries
    }

    fn verify_micro(&self) -> BTreeMap<Key, Value> {
        let view = MicroZap::parse(&self.blocks[&0], ORDER).unwrap();
        let rules = draft::rules(self, view.normalization).unwrap();
        let mut positions = BTreeSet::new();
        for entry in view.entries() {
            assert!(positions.insert((view.hash_name(&rules.prepare(entry.name)), entry.cd)));
        }
        view.entries().map(|entry| (Key::Name(entry.name.to_vec()), Value::U64(vec![entry.value]))).collect()
    }

    fn verify_leaf(&self, header: &FatHeader, id: u64, leaf: &Leaf<'_>, all: &mut BTreeMap<Key, Value>) {
        let block = &self.blocks[&id];
        let word = |at: usize| u16::from_le_bytes([block[at], block[at + 1]]);
        let base = 48 + block.len() / 16;
        let chunks = (block.len() - base) / 24;
        let mut free = BTreeSet::new();
        let mut next = word(34);
        while next != 0xffff {
            assert!(free.insert(next), "the free list loops");
            assert_eq!(block[base + usize::from(next) * 24], 253);
            next = word(base + usize::from(next) * 24 + 22);
        }
        assert_eq!(free.len(), usize::from(word(28)));
        let marked = (0..chunks).filter(|chunk| block[base + chunk * 24] == 253).count();
        assert_eq!(marked, free.len(), "every free chunk is in the list");

        let (mut used, mut count) = (0, 0);
        let mut positions = BTreeSet::new();
        let mut last: Option<(u64, u32)> = None;
        for entry in leaf.entries() {
            let entry = entry.unwrap();
            let key = if header.flags.contains(ZapFlags::UINT64_KEY) {
                let key = entry.key_words().unwrap();
                assert_eq!(header.hash_words(&key), entry.hash);
                used += (key.len() * 8).div_ceil(21);
                Key::Words(key)
            } else {
                let name = entry.name().unwrap();
                let rules = draft::rules(self, header.normalization).unwrap();
                assert_eq!(header.hash_name(&rules.prepare(&name)), entry.hash);
                used += (name.len() + 1).div_ceil(21);
                Key::Name(name)
            };
            assert_eq!(entry.hash.checked_shr(64 - leaf.prefix_len).unwrap_or(0), leaf.prefix);
            assert!(positions.insert((entry.hash, entry.cd)), "cds tell equal hashes apart");
            if let Some((hash, cd)) = last.filter(|(hash, _)| *hash == entry.hash) {
                assert!(cd < entry.cd, "hash {hash:#x}: chains are sorted by cd");
            }
            last = Some((entry.hash, entry.cd));
            let value = entry.value().unwrap();
            used += 1 + (value.len() * value.integer_size()).div_ceil(21);
            count += 1;
            assert!(all.insert(key, value).is_none());
        }
        assert_eq!(usize::from(leaf.entry_count), count);
        assert_eq!(used + free.len(), chunks, "no chunk is lost");
    }

    /// The same blocks, as the read side finds them in a pool.
    fn read_back(&self) -> Option<BTreeMap<Key, Value>> {
        let mut forge = Forge::new(ORDER)?;
        let blocks = self.blocks.iter().map(|(id, block)| (*id, block.to_vec())).collect();
        forge.add(5, forge.dnode(DmuType::DIRECTORY_CONTENTS, self.size as usize, &blocks));
        let objset = forge.objset(ObjsetType::Other);
        let entries = block_on(async {
            let zap = Zap::open(&objset.object(ObjectId(5)).await.unwrap()).await.unwrap();
            for entry in zap.entries(100_000).await.unwrap().iter().take(50) {
                let found = match &entry.key {
                    Key::Name(name) => zap.lookup(name).await.unwrap(),
                    Key::Words(words) => zap.lookup_words(words).await.unwrap(),
                };
                assert_eq!(found.as_ref(), Some(&entry.value));
            }
            zap.entries(100_000).await.unwrap()
        });
        Some(entries.into_iter().map(|entry| (entry.key, entry.value)).collect())
    }
}

fn name(text: impl AsRef<[u8]>) -> Key {
    Key::Name(text.as_ref().to_vec())
}

fn number(value: u64) -> Value {
    Value::U64(vec![value])
}

fn new_zap() -> NewZap {
    NewZap::of(DmuType::DIRECTORY_CONTENTS)
}

/// Two strings of eight bytes that lead to the same hash from any start: found by elimination over the bits
/// of the CRC, which is linear.
fn twins(salt: u64, hash_bits: u32) -> impl Iterator<Item = Vec<u8>> {
    // Differences of text that change no used bit of the hash.
    let hash = |text: &[u8]| ZapFlags::HASH64.hash_name(salt, text) >> (64 - hash_bits);
    const LENGTH: usize = 16;
    let zero = hash(&[0; LENGTH]);
    let mut rows: Vec<(u64, [u8; LENGTH])> = Vec::new();
    let mut kernel: Vec<[u8; LENGTH]> = Vec::new();
    // Only the low four bits of each byte, so that letters stay letters.
    for bit in 0..LENGTH * 4 {
        let mut text = [0; LENGTH];
        text[bit / 4] = 1 << (bit % 4);
        let mut value = hash(&text) ^ zero;
        for (pivot, other) in &rows {
            if value & (1 << pivot.ilog2()) != 0 {
                value ^= pivot;
                text.iter_mut().zip(other).for_each(|(byte, other)| *byte ^= other);
            }
        }
        match value {
            0 => kernel.push(text),
            _ => rows.push((value, text)),
        }
    }
    assert!(kernel.len() >= 12);
    (0u32..1 << 12).map(move |choice| {
        let mut text = *b"@@@@@@@@@@@@@@@@";
        for (bit, difference) in kernel.iter().enumerate().take(12) {
            if choice & (1 << bit) != 0 {
                text.iter_mut().zip(difference).for_each(|(byte, other)| *byte ^= other);
            }
        }
        text.to_vec()
    })
}

fn value() -> impl Strategy<Value = Value> {
    prop_oneof![
        6 => any::<u64>().prop_map(number),
        1 => proptest::collection::vec(any::<u8>(), 0..300).prop_map(Value::U8),
        1 => proptest::collection::vec(any::<u16>(), 0..60).prop_map(Value::U16),
        1 => proptest::collection::vec(any::<u32>(), 0..60).prop_map(Value::U32),
        1 => proptest::collection::vec(any::<u64>(), 0..60).prop_map(Value::U64),
        1 => (8000usize..8193).prop_map(|length| Value::U8(vec![7; length])),
    ]
}

#[derive(Clone, Debug)]
enum Change {
    Insert(usize, Value),
    Set(usize, Value),
    Remove(usize),
}

fn changes(keys: usize) -> impl Strategy<Value = Vec<Change>> {
    let change = prop_oneof![
        3 => (0..keys, value()).prop_map(|(key, value)| Change::Insert(key, value)),
        2 => (0..keys, value()).prop_map(|(key, value)| Change::Set(key, value)),
        2 => (0..keys).prop_map(Change::Remove),
    ];
    proptest::collection::vec(change, 1..250)
}

/// Large values of keys of one hash may not fit into one leaf.
fn too_many(error: &Error) -> bool {
    error.to_string().contains("same hash")
}

fn play(blocks: &mut Blocks, keys: &[Key], changes: Vec<Change>) -> BTreeMap<Key, Value> {
    let mut model = BTreeMap::new();
    for change in changes {
        match change {
            Change::Insert(key, value) => match blocks.put(&keys[key], &value, false) {
                Ok(done) => {
                    assert_eq!(done, !model.contains_key(&keys[key]));
                    model.entry(keys[key].clone()).or_insert(value);
                }
                Err(error) => assert!(too_many(&error) && !model.contains_key(&keys[key]), "{error}"),
            },
            Change::Set(key, value) => match blocks.put(&keys[key], &value, true) {
                Ok(done) => {
                    assert!(done);
                    model.insert(keys[key].clone(), value);
                }
                Err(error) => assert!(too_many(&error), "{error}"),
            },
            Change::Remove(key) => {
                assert_eq!(blocks.remove(&keys[key]), model.remove(&keys[key]).is_some());
            }
        }
    }
    for key in keys {
        assert_eq!(blocks.lookup(key).as_ref(), model.get(key));
    }
    assert!(blocks.verify() == model);
    model
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn names_are_what_was_put(changes in changes(60), normalize: bool, long in 1usize..60) {
        let mut blocks = Blocks::new(NewZap { normalization: if normalize { FOLDED } else { 0 }, ..new_zap() });
        let keys: Vec<Key> = (0..60)
            .map(|index| name(format!("{}{}", ["a", "A", "\u{e9}", "e\u{301}"][index % 4], "x".repeat(index / 4 % long * 5))))
            .collect::<BTreeSet<_>>().into_iter().collect();
        let keys: Vec<Key> = (0..60).map(|index| keys[index % keys.len()].clone()).collect();
        let model = play(&mut blocks, &keys, changes);
        if let Some(found) = blocks.read_back() {
            prop_assert!(found == model);
        }
    }

    #[test]
    fn numbers_as_keys_are_what_was_put(changes in changes(40), pre_hashed: bool, shift in 14u32..16) {
        let pre_hashed = if pre_hashed { ZapFlags::PRE_HASHED_KEY } else { ZapFlags(0) };
        let flags = ZapFlags::HASH64 | ZapFlags::UINT64_KEY | pre_hashed;
        let mut blocks = Blocks::new(NewZap { flags: flags.0, micro_block_bytes: 1 << shift, ..new_zap() });
        // Equal first words: they are the same hash when the key supplies its own.
        let keys: Vec<Key> = (0..40).map(|index| Key::Words(vec![(index as u64 / 3) << 58, index as u64, 9])).collect();
        play(&mut blocks, &keys, changes);
    }

    #[test]
    fn names_of_one_hash_live_together(changes in changes(30)) {
        let mut blocks = Blocks::new(new_zap());
        let keys: Vec<Key> = twins(0x1234_5678_9abc_def1, 28).take(30).map(name).collect();
        play(&mut blocks, &keys, changes);
    }
}

/// Adds many names and removes them again; returns the most blocks that one addition wrote, and the header
/// when all were there.
fn come_and_go(new: NewZap, count: u64) -> (usize, FatHeader) {
    let mut blocks = Blocks::new(new);
    let key = |index: u64| {
        let tail = "y".repeat(index as usize % 40);
        name(format!("file-{:x}-{tail}", index.wrapping_mul(0x9e37_79b9)))
    };
    let mut most = 0;
    for index in 0..count {
        assert!(blocks.put(&key(index), &number(index), false).unwrap());
        most = most.max(blocks.written);
        if index.is_multiple_of(count / 4) {
            assert_eq!(blocks.verify().len() as u64, index + 1);
        }
    }
    let header = blocks.header().unwrap();
    assert_eq!(blocks.verify().len() as u64, count);
    let found = blocks.read_back();
    assert!(found.is_none_or(|found| found.len() as u64 == count));
    for index in 0..count {
        assert_eq!(blocks.lookup(&key(index)), Some(number(index)));
        assert!(blocks.remove(&key(index)));
        if index.is_multiple_of(count / 4) {
            blocks.verify();
        }
    }
    assert!(blocks.verify().is_empty());
    assert_eq!(blocks.header().unwrap().leaves, 1, "empty leaves were joined");
    (most, header)
}

#[test]
fn thousands_of_names_come_and_go() {
    let (most, header) = come_and_go(new_zap(), 12_000);
    assert!(header.leaves > 64);
    assert!(most <= 17, "{most}: the upgrade makes the first leaves, later a split makes one");
}

#[test]
fn the_pointer_table_leaves_the_header_and_doubles() {
    let new = NewZap { flags: ZapFlags::HASH64.0, micro_block_bytes: 1024, ..new_zap() };
    let (_, header) = come_and_go(new, 4_000);
    assert!(header.table.blocks >= 8, "{header:?}");
}

#[test]
fn a_micro_zap_grows_sector_by_sector_and_is_fat_beyond_128_kib() {
    let mut blocks = Blocks::new(new_zap());
    for index in 0..2047u64 {
        assert!(blocks.put(&name(format!("n{index}")), &number(index), false).unwrap());
        assert_eq!(blocks.written, 1);
        assert!(u64::from(blocks.size) <= (index + 2).next_multiple_of(8) * 64);
    }
    assert!(blocks.header().is_none());
    assert_eq!(blocks.size, 128 << 10);
    assert!(blocks.remove(&name("n7")));
    assert!(blocks.put(&name("again"), &number(7), false).unwrap(), "a free place is taken");
    assert!(blocks.header().is_none());
    assert!(blocks.put(&name("more"), &number(7), false).unwrap());
    assert_eq!(blocks.header().unwrap().entries, 2048);
    assert_eq!(blocks.verify().len(), 2048);
}

#[test]
fn more_names_of_one_hash_than_a_leaf_holds_are_refused_without_harm() {
    let mut blocks = Blocks::new(new_zap());
    let mut names = twins(0x1234_5678_9abc_def1, 28).map(name);
    let mut count = 0u64;
    let refused = loop {
        let key = names.next().unwrap();
        if let Err(error) = blocks.put(&key, &number(count), false) {
            break error;
        }
        count += 1;
    };
    assert!(too_many(&refused), "{refused}");
    assert!(count >= 200, "{count}");
    assert_eq!(blocks.verify().len() as u64, count);
    assert!(blocks.blocks.len() < 10, "the table did not grow for nothing");
}

#[test]
fn what_no_zap_can_hold_is_refused() {
    let mut blocks = Blocks::new(new_zap());
    for key in [name(""), name("a\0b"), name("x".repeat(1024)), Key::Words(vec![1])] {
        assert!(blocks.put(&key, &number(1), false).is_err(), "{key:?}");
    }
    assert!(blocks.put(&name("x".repeat(1023)), &Value::U8(vec![1; 8192]), false).unwrap());
    assert!(blocks.put(&name("y"), &Value::U8(vec![1; 8193]), false).is_err());
    assert!(blocks.put(&Key::Words(vec![1]), &number(1), false).is_err());
    assert_eq!(blocks.verify().len(), 1);
}

#[test]
fn a_table_that_openzfs_left_half_grown_is_finished() {
    let flags = ZapFlags::HASH64.0;
    let mut blocks = Blocks::new(NewZap { flags, micro_block_bytes: 1024, ..new_zap() });
    let mut count = 0u64;
    let mut add = |blocks: &mut Blocks| {
        assert!(blocks.put(&name(format!("name {count}")), &number(count), false).unwrap());
        count += 1;
    };
    while blocks.header().unwrap().table.blocks < 2 {
        add(&mut blocks);
    }
    // As OpenZFS would have begun: the first part is copied.
    let mut header = blocks.header().unwrap();
    let first = header.free_block.0;
    header.free_block.0 += header.table.blocks * 2;
    header.table.next_block.0 = first;
    header.table.blocks_copied = 1;
    let old = blocks.blocks[&header.table.block.0].clone();
    for (id, half) in (first..).zip(old.chunks(512)) {
        let twice: Vec<u8> = half.chunks(8).flat_map(|pointer| [pointer, pointer].concat()).collect();
        blocks.blocks.insert(id, device::IoBuf::from(&*twice).into());
    }
    blocks.change(0, |block| header.store(block).unwrap());
    while blocks.header().unwrap().table.next_block.0 != 0 {
        add(&mut blocks);
    }
    assert_eq!(blocks.header().unwrap().table.blocks, 4);
    assert_eq!(blocks.verify().len() as u64, count);
}

/// Batches of changes against a map, sorted by key and not, in tables whose keys are hashes and in others.
#[test]
fn many_changes_at_once_do_what_they_do_one_by_one() {
    use crate::env::{Env, Seeded};

    for (flags, is_sorted) in [
        (ZapFlags::HASH64.0 | ZapFlags::UINT64_KEY.0 | ZapFlags::PRE_HASHED_KEY.0, true),
        (ZapFlags::HASH64.0 | ZapFlags::UINT64_KEY.0, false),
    ] {
        let mut blocks = Blocks::new(NewZap { flags, micro_block_bytes: 4096, ..new_zap() });
        let (mut model, dice) = (BTreeMap::new(), Seeded::new(7));
        let key = |number: u64| Key::Words(vec![Seeded::new(number).random(), number]);
        let mut largest = 0;
        for round in 0..150u64 {
            let mut numbers: Vec<u64> = (0..1 + dice.random() % 150).map(|_| dice.random() % 1500).collect();
            numbers.sort_unstable();
            numbers.dedup();
            // It grows at first, and becomes empty at last.
            let removes_of_8 = if round < 60 { 2 } else { 7 };
            let mut edits: Vec<Edit> = numbers
                .into_iter()
                .map(key)
                .filter_map(|key| {
                    let value = Value::U8(vec![round as u8; (dice.random() % 80) as usize]);
                    let removes = dice.random() % 8 < removes_of_8;
                    match model.contains_key(&key) {
                        true if removes => Some(Edit::Remove(key)),
                        true => Some(Edit::Set(key, value)),
                        false => (round < 60).then_some(Edit::Insert(key, value)),
                    }
                })
                .collect();
            if is_sorted {
                edits.sort_by(|one, other| one.key().cmp(other.key()));
            }
            let mut left = edits.as_slice();
            while !left.is_empty() {
                let (done, changes) = block_on(draft::edit_many(&blocks, left, 12)).unwrap();
                assert!(done > 0);
                blocks.apply(changes);
                left = &left[done..];
            }
            for edit in edits {
                match edit {
                    Edit::Insert(key, value) | Edit::Set(key, value) => drop(model.insert(key, value)),
                    Edit::Remove(key) => drop(model.remove(&key)),
                }
            }
            assert!(blocks.verify() == model, "round {round}");
            largest = largest.max(model.len());
            let keys: Vec<Key> = (0..1500).map(key).collect();
            let found = block_on(draft::lookup_many(&blocks, &keys, 3)).unwrap();
            assert!(found.iter().zip(&keys).all(|(value, key)| value.as_ref() == model.get(key)));
            // What contradicts the ZAP changes nothing.
            let (there, not_there) = (model.keys().next().cloned(), key(5000));
            let wrong = [there.map(|key| Edit::Insert(key, number(1))), Some(Edit::Remove(not_there))];
            for wrong in wrong.into_iter().flatten() {
                assert!(block_on(draft::edit_many(&blocks, &[wrong], 12)).is_err());
            }
        }
        assert!(largest > 500 && model.len() < 400, "{largest} {}", model.len());
    }
}
