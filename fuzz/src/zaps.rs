//! ZAPs: microzaps, and the header and leaves of fat ones.

use ondisk::BlockId;
use ondisk::zap::Leaf;
use ondisk::zap::MicroZap;
use ondisk::zap::{Cursor, FatHeader, LeafKey, LeafMut, LeafValue, ZapFlags, ZapKind, ZapValue};

use crate::input::{Input, ORDERS, ends};

/// Microzaps.
pub fn micro(bytes: &[u8]) {
    for order in ORDERS {
        let _ = ZapKind::of(bytes, order);
        let Ok(zap) = MicroZap::parse(bytes, order) else { continue };
        let entries = ends(bytes, zap.entries());
        for entry in entries.iter().take(16) {
            let found = zap.lookup(entry.name).expect("what is listed is found");
            assert_eq!(found.name, entry.name);
            let _ = zap.hash_name(entry.name);
        }
        if let Ok(block) = MicroZap::encode(bytes.len(), order, zap.salt, zap.normalization, &entries) {
            let again = MicroZap::parse(&block, order).expect("what was encoded parses");
            assert!(
                again
                    .entries()
                    .map(|e| (e.name, e.value, e.cd))
                    .eq(entries.iter().map(|e| (e.name, e.value, e.cd)))
            );
        }
    }
}

/// Headers of fat ZAPs, and the pointer tables in them.
pub fn header(bytes: &[u8]) {
    for order in ORDERS {
        let Ok(header) = FatHeader::parse(bytes, order) else { continue };
        let mut input = Input(bytes);
        for hash in [0, u64::MAX, 1 << 63, input.u64()] {
            let place = header.pointer(hash);
            for block in [bytes, &bytes[..bytes.len() / 2]] {
                let _ = header.leaf_at(block, place);
            }
        }
        let _ = (header.hash_name(b"name"), header.hash_words(&[1, 2]), BlockId(header.table.blocks));
    }
}

/// Leaves of fat ZAPs.
pub fn leaf(bytes: &[u8]) {
    for order in ORDERS {
        let Ok(leaf) = Leaf::parse(bytes, order) else { continue };
        let _ = leaf.next_hash();
        let mut hashes = vec![0, u64::MAX];
        for entry in ends(bytes, leaf.entries()).into_iter().flatten() {
            hashes.push(entry.hash);
            let (name, words, value) = (entry.name(), entry.key_words(), entry.value());
            let _ = (entry.cursor(), entry.value_u64());
            if let Ok(name) = &name {
                let _ = entry.name_is(name);
                let _ = leaf.lookup(entry.hash, name);
            }
            if let Ok(words) = &words {
                let _ = leaf.lookup_words(entry.hash, words);
            }
            if let Ok(value) = value {
                assert!(value.len() <= usize::from(entry.integers));
                let _ = (
                    value.as_u64(),
                    value.to_u64s(),
                    value.as_bytes(),
                    value.as_text(),
                    value.integer_size(),
                );
            }
        }
        hashes.truncate(64);
        for hash in hashes {
            let _ = ends(bytes, leaf.chain(hash));
            let _ = leaf.lookup(hash, b"absent");
            let cursor = Cursor { hash, cd: 0 };
            let _ = leaf.entries_from(cursor);
            for flags in [ZapFlags(0), ZapFlags::HASH64] {
                let cookie = cursor.serialize(flags);
                let _ = Cursor::deserialize(cookie, flags);
            }
        }
    }
}

/// Leaves of fat ZAPs that are changed where they lie.
pub fn edit(bytes: &[u8]) {
    let names: Vec<(u64, LeafKey)> = match Leaf::parse(bytes, ORDERS[0]) {
        Ok(leaf) => ends(bytes, leaf.entries())
            .into_iter()
            .flatten()
            .filter_map(|entry| Some((entry.hash, LeafKey::name(&entry.name().ok()?))))
            .take(8)
            .collect(),
        Err(_) => return,
    };
    let values = [ZapValue::U64(vec![7]), ZapValue::U8(vec![7; 300]), ZapValue::U16(Vec::new())];
    let new = LeafKey::name(b"a name that is not there");
    for value in values.map(|value| LeafValue::new(&value)) {
        let (mut block, mut sibling) = (bytes.to_vec(), vec![0; bytes.len()]);
        let Ok(mut leaf) = LeafMut::parse(&mut block) else { return };
        for (hash, name) in &names {
            let _ = leaf.update(*hash, name, &value);
        }
        for (hash, cd) in [(0, None), (u64::MAX, Some(3))] {
            let _ = (leaf.has_room_when_empty(&new, &value), leaf.insert(hash, cd, &new, &value));
        }
        if leaf.split(&mut sibling, false).is_ok() {
            let _ = LeafMut::parse(&mut sibling).map(|mut sibling| sibling.widen());
        }
        for (hash, name) in &names {
            let _ = leaf.remove(*hash, name);
        }
        let _ = (leaf.entry_count(), leaf.free_chunks(), leaf.widen());
        let _ = leaf.view().map(|leaf| ends(bytes, leaf.entries()).len());
    }
}
