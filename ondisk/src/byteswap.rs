//! Blocks of big-endian machines, turned into what a little-endian one would have written.
//!
//! Big-endian blocks are not written any more, and a change of one must write it as a whole in one order. The
//! class of the object's type ([`Byteswap`]) says where its numbers are. System attributes say themselves
//! what order they are in, and their numbers are known by tables only: what contains them stays as it is.
//!
//! Source of the facts: OpenZFS 2.4 `dmu.c` (`dmu_ot_byteswap`), `zap_micro.c` (`mzap_byteswap`),
//! `zap_leaf.c` (`zap_leaf_byteswap`), `dnode.c` (`dnode_byteswap`), `zfs_byteswap.c`.

use crate::dmu::{Byteswap, DmuType};
use crate::dnode::{DNODE_MIN_SIZE, Dnode};
use crate::{ByteOrder, Error, Result};

/// First word of a ZAP's block: a leaf, and a ZAP of one block.
const ZAP_LEAF: u64 = 1 << 63;
const ZAP_MICRO: u64 = (1 << 63) | 3;
/// Bytes of a ZAP leaf before its hash table, and those of one of its chunks.
const LEAF_HEADER_BYTES: usize = 48;
const LEAF_CHUNK_BYTES: usize = 24;
/// Bytes of an entry of a ZAP of one block, and of its header.
const MICRO_BYTES: usize = 64;
/// The kinds of chunks of a ZAP leaf.
const CHUNK_ENTRY: u8 = 252;
const CHUNK_FREE: u8 = 253;
const CHUNK_ARRAY: u8 = 251;
/// Bytes of an old znode before its ACL, and with it.
const ZNODE_WORDS_BYTES: usize = 176;
const ZNODE_BYTES: usize = 264;
/// Kinds of ACL entries that name no user.
const ACE_WHO: u16 = 0x7000;
const ACE_SHORT: [u16; 3] = [0x1000, 0x2040, 0x4000];
/// Types of entries of ACLs that name objects.
const ACE_OBJECTS: std::ops::RangeInclusive<u16> = 5..=8;

/// A big-endian block converted to little-endian order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Turned {
    /// The same: it contains no numbers.
    Same,
    /// These bytes.
    Bytes(Vec<u8>),
    /// Not known: it contains system attributes.
    Not,
}

/// Turns a big-endian block of an object of this type, of level 0 or an indirect one.
///
/// # Errors
/// Parts of it contradict each other.
pub fn to_little(bytes: &[u8], dmu_type: DmuType, level: i8) -> Result<Turned> {
    let mut turned = bytes.to_vec();
    if level > 0 {
        swap(&mut turned, 8);
        return Ok(Turned::Bytes(turned));
    }
    if dmu_type == DmuType::SA {
        return Ok(Turned::Not);
    }
    match dmu_type.byteswap() {
        Byteswap::Uint8 => return Ok(Turned::Same),
        Byteswap::Uint16 => swap(&mut turned, 2),
        Byteswap::Uint32 => swap(&mut turned, 4),
        Byteswap::Uint64 => swap(&mut turned, 8),
        Byteswap::Zap => zap(&mut turned)?,
        Byteswap::Dnode => {
            if !dnodes(&mut turned)? {
                return Ok(Turned::Not);
            }
        }
        Byteswap::Znode => znode(&mut turned),
        Byteswap::OldAcl => old_aces(&mut turned),
        Byteswap::Acl => aces(&mut turned),
        Byteswap::Objset => return Err(Error::unsupported("byte order", "of an object set by itself")),
    }
    Ok(Turned::Bytes(turned))
}

/// Turns each number of so many bytes; what is left at the end is no number.
fn swap(bytes: &mut [u8], size: usize) {
    bytes.chunks_exact_mut(size).for_each(<[u8]>::reverse);
}

/// Turns the numbers of these sizes at the beginning.
fn swap_fields(bytes: &mut [u8], sizes: &[usize]) {
    let mut at = 0;
    for size in sizes {
        if let Some(field) = bytes.get_mut(at..at + size) {
            field.reverse();
        }
        at += size;
    }
}

fn zap(bytes: &mut [u8]) -> Result<()> {
    let first = bytes.first_chunk().map_or(0, |word| u64::from_be_bytes(*word));
    match first {
        ZAP_MICRO => {
            let (header, entries) = bytes.split_at_mut(MICRO_BYTES.min(bytes.len()));
            swap(header, 8);
            for entry in entries.chunks_exact_mut(MICRO_BYTES) {
                swap_fields(entry, &[8, 4]);
            }
        }
        ZAP_LEAF => leaf(bytes)?,
        _ => swap(bytes, 8),
    }
    Ok(())
}

fn leaf(bytes: &mut [u8]) -> Result<()> {
    let hashes = bytes.len() / 32;
    let chunks = LEAF_HEADER_BYTES + hashes * 2;
    if !bytes.len().is_power_of_two() || chunks > bytes.len() {
        return Err(Error::invalid("ZAP leaf", format!("of {} bytes", bytes.len())));
    }
    let (head, chunks) = bytes.split_at_mut(chunks);
    let (header, table) = head.split_at_mut(LEAF_HEADER_BYTES);
    swap_fields(header, &[8, 8, 8, 4, 2, 2, 2, 2]);
    swap(table, 2);
    for chunk in chunks.chunks_exact_mut(LEAF_CHUNK_BYTES) {
        match chunk.first().copied() {
            Some(CHUNK_ENTRY) => swap_fields(chunk, &[1, 1, 2, 2, 2, 2, 2, 4, 8]),
            Some(CHUNK_FREE | CHUNK_ARRAY) => {
                if let Some(next) = chunk.get_mut(LEAF_CHUNK_BYTES - 2..) {
                    next.reverse();
                }
            }
            kind => return Err(Error::invalid("ZAP leaf", format!("a chunk of kind {kind:?}"))),
        }
    }
    Ok(())
}

/// False when there are system attributes.
fn dnodes(bytes: &mut [u8]) -> Result<bool> {
    let mut at = 0;
    while let Some(slot) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
        let Some(mut dnode) = Dnode::parse(slot, ByteOrder::Big)? else {
            at += DNODE_MIN_SIZE;
            continue;
        };
        match to_little(&dnode.bonus, dnode.bonus_type, 0)? {
            Turned::Same => {}
            Turned::Bytes(bonus) => dnode.bonus = bonus.into(),
            Turned::Not => return Ok(false),
        }
        dnode.order = ByteOrder::Little;
        let turned = dnode.encode()?;
        let place = bytes.get_mut(at..at + turned.len());
        place.ok_or_else(|| Error::invalid("dnode", "leaves its block"))?.copy_from_slice(&turned);
        at += turned.len();
    }
    Ok(true)
}

fn znode(bytes: &mut [u8]) {
    let (words, rest) = bytes.split_at_mut(ZNODE_WORDS_BYTES.min(bytes.len()));
    swap(words, 8);
    let Some(acl) = rest.get_mut(..ZNODE_BYTES - ZNODE_WORDS_BYTES) else { return };
    let (header, entries) = acl.split_at_mut(16);
    swap_fields(header, &[8, 4, 2, 2]);
    let is_old = header.get(12..14).is_none_or(|version| version == [0, 0]);
    if is_old { old_aces(entries) } else { aces(entries) }
}

fn old_aces(bytes: &mut [u8]) {
    bytes.chunks_exact_mut(12).for_each(|entry| swap_fields(entry, &[4, 4, 2, 2]));
}

fn aces(mut bytes: &mut [u8]) {
    while bytes.len() >= 8 {
        swap_fields(bytes, &[2, 2, 4]);
        let number = |at: usize| bytes.get(at..).and_then(|bytes| bytes.first_chunk()).copied();
        let kind = number(0).map_or(0, u16::from_le_bytes);
        let who = number(2).map_or(0, u16::from_le_bytes) & (ACE_WHO | 0x40);
        let is_short = ACE_SHORT.contains(&who);
        let size = match (is_short, ACE_OBJECTS.contains(&kind)) {
            (true, _) => 8,
            (false, false) => 16,
            (false, true) => 48,
        };
        if size > 8 {
            swap_fields(bytes.get_mut(8..).unwrap_or_default(), &[8]);
        }
        bytes = bytes.get_mut(size..).unwrap_or_default();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::BlockId;
    use crate::blkptr::{Blkptr, ChecksumType, CompressType};
    use crate::zap::{Cursor, LeafBuilder, ZapValue};
    use crate::zpl::{Ace, AceType, AclPhys, Fuid, parse_aces, write_aces};

    fn turned(bytes: &[u8], dmu_type: DmuType) -> Vec<u8> {
        match to_little(bytes, dmu_type, 0).unwrap() {
            Turned::Bytes(bytes) => bytes,
            other => panic!("{other:?}"),
        }
    }

    fn dnode(order: ByteOrder, bonus_type: DmuType, bonus: &[u8]) -> Dnode {
        Dnode {
            dmu_type: DmuType::PLAIN_FILE_CONTENTS,
            indirect_block_shift: 17,
            levels: 2,
            blkptrs: vec![Blkptr::HOLE],
            bonus_type,
            checksum: ChecksumType::Inherit,
            compress: CompressType::Inherit,
            flags: 0,
            data_block_sectors: 256,
            extra_slots: 0,
            max_block_id: BlockId(77),
            used: 5,
            bonus: bonus.into(),
            spill: None,
            order,
        }
    }

    #[test]
    fn dnodes_with_their_bonus_areas() {
        let words = |order: ByteOrder| [order.u64_bytes(1), order.u64_bytes(2)].concat();
        let mut block = dnode(ByteOrder::Big, DmuType::DSL_DIR, &words(ByteOrder::Big)).encode().unwrap();
        block.extend([0; DNODE_MIN_SIZE]);
        let little = dnode(ByteOrder::Little, DmuType::DSL_DIR, &words(ByteOrder::Little));
        let found = turned(&block, DmuType::DNODE);
        assert_eq!(Dnode::parse(&found, ByteOrder::Little).unwrap(), Some(little));
        assert!(found[DNODE_MIN_SIZE..].iter().all(|byte| *byte == 0));

        let attributes = dnode(ByteOrder::Big, DmuType::SA, &[7; 16]).encode().unwrap();
        assert_eq!(to_little(&attributes, DmuType::DNODE, 0), Ok(Turned::Not));
        assert_eq!(to_little(&block, DmuType::PLAIN_FILE_CONTENTS, 0), Ok(Turned::Same));
    }

    #[test]
    fn znodes_with_their_acls() {
        let who = Some(Fuid(7));
        let all = [(0x1000, None), (0x40, who), (0x2040, None), (0, who), (0x4000, None)];
        let ace = |(flags, fuid)| Ace { ace_type: AceType::Allow, flags, mask: 0x1234, fuid, object: None };
        let entries: Vec<Ace> = all.into_iter().map(ace).collect();
        for version in [0u16, 1] {
            let znode = |order: ByteOrder| {
                let aces = write_aces(&entries, version, order).unwrap();
                let mut inline = [0; 72];
                inline[..aces.len()].copy_from_slice(&aces);
                let (count, size) = (entries.len() as u64, aces.len() as u64);
                let acl = AclPhys { external: None, version, count, size, inline, order };
                let mut bytes: Vec<u8> = (1..=22u64).flat_map(|word| order.u64_bytes(word)).collect();
                bytes.extend(acl.encode().unwrap());
                bytes.extend(b"target");
                bytes
            };
            assert_eq!(turned(&znode(ByteOrder::Big), DmuType::ZNODE), znode(ByteOrder::Little));
            let mut block = write_aces(&entries, version, ByteOrder::Big).unwrap();
            block.resize(512, 0);
            let acl = if version == 0 { DmuType::OLDACL } else { DmuType::ACL };
            let found = parse_aces(&turned(&block, acl), version, 5, ByteOrder::Little);
            assert_eq!(found, parse_aces(&block, version, 5, ByteOrder::Big));
        }
    }

    proptest! {
        #[test]
        fn any_bytes_end(mut bytes in proptest::collection::vec(any::<u8>(), 0..1100), first: u8, raw: u8, level in 0i8..2) {
            if let (Some(place), true) = (bytes.first_mut(), first < 128) {
                *place = first;
            }
            if let Ok(dmu_type) = DmuType::from_raw(raw) {
                let _ = to_little(&bytes, dmu_type, level);
            }
        }
    }

    #[test]
    fn leaves_of_zaps() {
        let leaf = |order: ByteOrder| {
            let mut builder = LeafBuilder::new(11, order, 1 << 63, 1).unwrap();
            for number in 0..20u64 {
                let cursor = Cursor { hash: 1 << 63 | number << 50, cd: number as u32 % 3 };
                let name = vec![b'n'; 2 + number as usize * 3];
                let value = match number % 3 {
                    0 => ZapValue::U64(vec![number, number << 40]),
                    1 => ZapValue::U16(vec![1, 2, number as u16]),
                    _ => ZapValue::U8(vec![9; 30]),
                };
                builder.insert_name(cursor, &name, &value).unwrap();
            }
            builder.finish()
        };
        assert_eq!(turned(&leaf(ByteOrder::Big), DmuType::ZAP_OTHER), leaf(ByteOrder::Little));
    }

    #[test]
    fn pointers_and_small_zaps() {
        let words: Vec<u8> = (0..16u64).flat_map(u64::to_be_bytes).collect();
        let expected: Vec<u8> = (0..16u64).flat_map(u64::to_le_bytes).collect();
        assert_eq!(to_little(&words, DmuType::ZAP_OTHER, 1), Ok(Turned::Bytes(expected)));

        let mut micro = vec![0; 512];
        micro[..8].copy_from_slice(&ZAP_MICRO.to_be_bytes());
        micro[64..72].copy_from_slice(&9u64.to_be_bytes());
        micro[72..76].copy_from_slice(&3u32.to_be_bytes());
        micro[78..82].copy_from_slice(b"name");
        let found = turned(&micro, DmuType::ZAP_OTHER);
        assert_eq!(found[..8], ZAP_MICRO.to_le_bytes());
        assert_eq!((&found[64..72], &found[72..76]), (&9u64.to_le_bytes()[..], &3u32.to_le_bytes()[..]));
        assert_eq!(&found[78..82], b"name");
    }
}
