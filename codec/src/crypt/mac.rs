//! The tree of MACs: from data blocks up to the object set.
//!
//! Each block pointer of an encrypted dataset carries a MAC. Above level 0 it is a hash of the MACs below, so
//! that blocks cannot be removed or exchanged; at the top, two keyed MACs in the object set close the tree.
//!
//! # Portable fields of a block pointer (32 bytes)
//! | offset | size | meaning |
//! |---|---|---|
//! | 0 | 8 | property word, little-endian, masked |
//! | 8 | 16 | MAC as stored; zeros when it points to an object set |
//! | 24 | 8 | zeros; absent in format version 0 |
//!
//! Masked out of the property word: the dedup bit and the checksum type; above level 0 also byte order,
//! compression and physical size; for a hole, everything. Version 0 masked out dedup, checksum and physical
//! size, at every level and for holes.
//!
//! # Object sets
//! The portable MAC covers: type (8 bytes, big-endian), portable flags (8, little-endian; none are),
//! meta-dnode. The local MAC covers: the other flags (little-endian), then the accounting dnodes that exist
//! (user, group, project). It is all zeros as long as accounting is not complete. A dnode counts as its core
//! with numbers in little-endian, masked as in `super::layout`, and the portable fields of its block
//! pointers. Both are HMAC-SHA512 cut to 32 bytes.
//!
//! Source: OpenZFS 2.3 `zio_crypt.c`, `dsl_crypt.c` (`spa_do_crypt_objset_mac_abd`), `dmu_objset.h`.

use super::key::{CURRENT_VERSION, DatasetKey};
use super::layout::DnodeParts;
use super::{Error, MAC_BYTES, Result};
use ondisk::ByteOrder;
use ondisk::blkptr::Blkptr;
use ondisk::dmu::DmuType;
use ondisk::dnode::{DNODE_CORE_SIZE, DNODE_MIN_SIZE};
use ondisk::objset::{OBJSET_SIZE_V1, OBJSET_SIZE_V2, OBJSET_SIZE_V3};
use ring::{digest, hmac};
use std::ops::Range;

/// The parts of a block pointer that enter a MAC. Read from raw words: a pointer is judged by its MAC before
/// it is parsed.
pub(super) struct BlkptrFields {
    is_hole: bool,
    property: u64,
    mac: [u8; MAC_BYTES],
}

const PROPERTY_WORD: usize = 6;
const MAC_WORD: usize = 14;
const PSIZE: Range<u32> = 16..32;
const COMPRESS: Range<u32> = 32..39;
const EMBEDDED_BIT: u32 = 39;
const CHECKSUM: Range<u32> = 40..48;
const TYPE: Range<u32> = 48..56;
const LEVEL: Range<u32> = 56..61;
const DEDUP: Range<u32> = 62..63;
const BYTE_ORDER: Range<u32> = 63..64;

const fn mask(bits: Range<u32>) -> u64 {
    ((1 << (bits.end - bits.start)) - 1) << bits.start
}

impl BlkptrFields {
    /// `bytes` are the 128 bytes of a block pointer in a block of this byte order.
    pub fn of(bytes: &[u8], order: ByteOrder) -> Result<Self> {
        let word = |index: usize| match bytes.get(8 * index..).and_then(|rest| rest.first_chunk()) {
            Some(word) => Ok(order.u64(*word)),
            None => Err(Error::Malformed("truncated block pointer")),
        };
        let property = word(PROPERTY_WORD)?;
        let is_embedded = property >> EMBEDDED_BIT & 1 != 0;
        let is_hole = !is_embedded && word(0)? == 0 && word(1)? == 0;
        let mut mac = [0; MAC_BYTES];
        if (property & mask(TYPE)) >> TYPE.start != u64::from(DmuType::OBJSET.raw()) {
            // The MAC's bytes follow the order of the block pointed to, which the top bit states.
            let target_order =
                if property & mask(BYTE_ORDER) != 0 { ByteOrder::Little } else { ByteOrder::Big };
            mac[..8].copy_from_slice(&target_order.u64_bytes(word(MAC_WORD)?));
            mac[8..].copy_from_slice(&target_order.u64_bytes(word(MAC_WORD + 1)?));
        }
        Ok(Self { is_hole, property, mac })
    }

    pub fn portable(&self, version: u64) -> Portable {
        let property = match version {
            0 => self.property & !(mask(DEDUP) | mask(CHECKSUM) | mask(PSIZE)),
            _ if self.is_hole => 0,
            _ if self.property & mask(LEVEL) != 0 => {
                self.property
                    & !(mask(DEDUP) | mask(CHECKSUM) | mask(BYTE_ORDER) | mask(COMPRESS) | mask(PSIZE))
            }
            _ => self.property & !(mask(DEDUP) | mask(CHECKSUM)),
        };
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&property.to_le_bytes());
        bytes[8..24].copy_from_slice(&self.mac);
        Portable { bytes, length: if version == 0 { 24 } else { 32 } }
    }
}

/// The portable fields of a block pointer as bytes.
pub(super) struct Portable {
    bytes: [u8; 32],
    length: usize,
}

impl Portable {
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

/// The MAC for the pointer to an indirect block with this (uncompressed) content.
pub fn indirect_mac(block: &[u8], order: ByteOrder) -> Result<[u8; MAC_BYTES]> {
    indirect_mac_of_version(block, order, CURRENT_VERSION)
}

fn indirect_mac_of_version(block: &[u8], order: ByteOrder, version: u64) -> Result<[u8; MAC_BYTES]> {
    let mut context = digest::Context::new(&digest::SHA512);
    for blkptr in block.chunks_exact(Blkptr::SIZE) {
        context.update(BlkptrFields::of(blkptr, order)?.portable(version).bytes());
    }
    let digest = context.finish();
    digest.as_ref().first_chunk().copied().ok_or(Error::Malformed("digest length"))
}

/// Checks the decompressed content of the indirect block that `bp` points to. Needs no key.
///
/// Both format versions are accepted, because the version is known only together with the key.
pub fn verify_indirect_mac(bp: &Blkptr, block: &[u8]) -> Result<()> {
    for version in [CURRENT_VERSION, 0] {
        if indirect_mac_of_version(block, bp.byte_order(), version)? == bp.mac() {
            return Ok(());
        }
    }
    Err(Error::Authentication)
}

/// The two MACs of an object set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ObjsetMacs {
    /// Over what a raw send preserves.
    pub portable: [u8; 32],
    /// Over the accounting objects; zeros while they are incomplete.
    pub local: [u8; 32],
}

const OBJSET_TYPE: usize = 704;
const OBJSET_FLAGS: usize = 712;
const OBJSET_PORTABLE_MAC: usize = 720;
const OBJSET_LOCAL_MAC: usize = 752;
const META_DNODE: usize = 0;
const USER_USED_DNODE: usize = OBJSET_SIZE_V1;
const GROUP_USED_DNODE: usize = OBJSET_SIZE_V1 + DNODE_MIN_SIZE;
const PROJECT_USED_DNODE: usize = OBJSET_SIZE_V2;
const FLAG_USER_ACCOUNTING_COMPLETE: u64 = 1;
/// No flag of an object set is portable in this version of the format.
const PORTABLE_FLAGS: u64 = 0;

/// Computes the MACs that belong into this object set block.
pub fn objset_macs(key: &DatasetKey, block: &[u8], order: ByteOrder) -> Result<ObjsetMacs> {
    let flags = word(block, OBJSET_FLAGS, order)?;
    let mut portable = key.hmac();
    portable.update(&word(block, OBJSET_TYPE, order)?.to_be_bytes());
    portable.update(&(flags & PORTABLE_FLAGS).to_le_bytes());
    add_dnode(&mut portable, block, META_DNODE, order, key.version())?;

    let exists = |at: usize, objset_size: usize| {
        block.len() >= objset_size && block.get(at).is_some_and(|&ty| ty != DmuType::NONE.raw())
    };
    let has_user = exists(USER_USED_DNODE, OBJSET_SIZE_V2);
    let has_group = exists(GROUP_USED_DNODE, OBJSET_SIZE_V2);
    let has_project = exists(PROJECT_USED_DNODE, OBJSET_SIZE_V3);
    let accounted = flags & FLAG_USER_ACCOUNTING_COMPLETE != 0 && (has_user || has_group);
    let mut macs = ObjsetMacs { portable: finish(portable)?, local: [0; 32] };
    if accounted {
        let mut local = key.hmac();
        local.update(&(flags & !PORTABLE_FLAGS).to_le_bytes());
        let dnodes =
            [(USER_USED_DNODE, has_user), (GROUP_USED_DNODE, has_group), (PROJECT_USED_DNODE, has_project)];
        for (at, _) in dnodes.into_iter().filter(|(_, exists)| *exists) {
            add_dnode(&mut local, block, at, order, key.version())?;
        }
        macs.local = finish(local)?;
    }
    Ok(macs)
}

/// Checks the MACs of an object set block. A local MAC beside incomplete accounting is not judged.
pub fn verify_objset_macs(key: &DatasetKey, block: &[u8], order: ByteOrder) -> Result<()> {
    let expected = objset_macs(key, block, order)?;
    let stored = |at: usize| block.get(at..at + 32).ok_or(Error::Malformed("object set block too short"));
    let portable_matches = stored(OBJSET_PORTABLE_MAC)? == expected.portable;
    let local_matches = expected.local == [0; 32] || stored(OBJSET_LOCAL_MAC)? == expected.local;
    if portable_matches && local_matches { Ok(()) } else { Err(Error::Authentication) }
}

fn word(block: &[u8], at: usize, order: ByteOrder) -> Result<u64> {
    let bytes = block.get(at..).and_then(|rest| rest.first_chunk());
    bytes.map(|bytes| order.u64(*bytes)).ok_or(Error::Malformed("object set block too short"))
}

fn finish(context: hmac::Context) -> Result<[u8; 32]> {
    context.sign().as_ref().first_chunk().copied().ok_or(Error::Malformed("digest length"))
}

fn add_dnode(
    context: &mut hmac::Context,
    block: &[u8],
    at: usize,
    order: ByteOrder,
    version: u64,
) -> Result<()> {
    let bytes = block.get(at..at + DNODE_MIN_SIZE).ok_or(Error::Malformed("object set block too short"))?;
    let dnode = DnodeParts::cut(bytes)?;
    let mut core = dnode.portable_core();
    if order == ByteOrder::Big {
        to_little_endian(&mut core);
    }
    context.update(&core);
    for blkptr in &dnode.blkptrs {
        context.update(BlkptrFields::of(blkptr, order)?.portable(version).bytes());
    }
    Ok(())
}

/// Turns the numbers of a big-endian dnode core around: data block size, bonus length, highest block id
/// (`used` is zero here).
fn to_little_endian(core: &mut [u8; DNODE_CORE_SIZE]) {
    for number in [8..10, 10..12, 16..24] {
        core[number].reverse();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crypt::Suite;
    use ondisk::blkptr::{BlkptrParts, ChecksumType, CompressType, CryptParts};
    use ondisk::{Asize, ByteOffset, Level, Lsize, Psize, Txg, VdevId};

    fn blkptr(level: i8, change: impl FnOnce(&mut BlkptrParts)) -> Blkptr {
        let mut parts = BlkptrParts {
            dvas: vec![ondisk::blkptr::Dva {
                vdev: VdevId(0),
                offset: ByteOffset(4096),
                asize: Asize(4096),
                gang: false,
            }],
            lsize: Lsize(131_072),
            psize: Psize(4096),
            compress: CompressType::Lz4,
            checksum_type: ChecksumType::Fletcher4,
            checksum: [1, 2, 3, 4],
            dmu_type: DmuType::PLAIN_FILE_CONTENTS,
            level: Level(level),
            dedup: false,
            byte_order: ByteOrder::Little,
            logical_birth: Txg(5),
            physical_birth: Txg(5),
            fill: 1,
            crypt: Some(CryptParts { salt: [1; 8], iv: [2; 12], mac: [3; 16] }),
        };
        change(&mut parts);
        parts.build().unwrap()
    }

    fn portable(bp: &Blkptr) -> Vec<u8> {
        BlkptrFields::of(&bp.encode(ByteOrder::Little), ByteOrder::Little)
            .unwrap()
            .portable(1)
            .bytes()
            .to_vec()
    }

    #[test]
    fn portable_fields_do_not_change_where_a_raw_send_may_change_them() {
        let data = blkptr(0, |_| {});
        assert_eq!(portable(&data), portable(&blkptr(0, |parts| parts.checksum_type = ChecksumType::Sha256)));
        assert_eq!(portable(&data), portable(&blkptr(0, |parts| parts.dvas[0].offset = ByteOffset(8192))));
        assert_ne!(portable(&data), portable(&blkptr(0, |parts| parts.psize = Psize(512))));
        assert_ne!(portable(&data), portable(&blkptr(0, |parts| parts.compress = CompressType::Zle)));
        let indirect = blkptr(1, |_| {});
        assert_eq!(portable(&indirect), portable(&blkptr(1, |parts| parts.psize = Psize(512))));
        assert_eq!(portable(&indirect), portable(&blkptr(1, |parts| parts.compress = CompressType::Zle)));
        assert_ne!(portable(&indirect), portable(&blkptr(1, |parts| parts.lsize = Lsize(4096))));
        assert_ne!(portable(&indirect), portable(&data));
    }

    #[test]
    fn portable_fields_do_not_depend_on_the_byte_order_of_the_pointer() {
        let bp = blkptr(0, |_| {});
        let big = BlkptrFields::of(&bp.encode(ByteOrder::Big), ByteOrder::Big).unwrap();
        assert_eq!(big.portable(1).bytes(), portable(&bp));
        assert_eq!(portable(&bp)[8..24], [3; 16]);
        assert_eq!(portable(&Blkptr::HOLE), [0; 32]);
    }

    #[test]
    fn an_indirect_mac_notices_exchanged_blocks() {
        let (a, b) = (blkptr(0, |_| {}), blkptr(0, |parts| parts.crypt.as_mut().unwrap().mac = [9; 16]));
        let content = |order: [&Blkptr; 2]| order.map(|bp| bp.encode(ByteOrder::Little)).concat();
        let mac = indirect_mac(&content([&a, &b]), ByteOrder::Little).unwrap();
        let parent = blkptr(1, |parts| parts.crypt.as_mut().unwrap().mac = mac);
        assert_eq!(verify_indirect_mac(&parent, &content([&a, &b])), Ok(()));
        assert_eq!(verify_indirect_mac(&parent, &content([&b, &a])), Err(Error::Authentication));
    }

    #[test]
    fn objset_macs_cover_type_dnodes_and_complete_accounting() {
        let key = DatasetKey::from_random(Suite::Aes256Gcm, 1, [1; 32], [2; 64]);
        let order = ByteOrder::Little;
        let mut block = vec![0; OBJSET_SIZE_V3];
        block[META_DNODE] = DmuType::DNODE.raw();
        block[OBJSET_TYPE] = 2;
        block[USER_USED_DNODE] = DmuType::USERGROUP_USED.raw();
        let seal = |block: &mut Vec<u8>| {
            let macs = objset_macs(&key, block, order).unwrap();
            block[OBJSET_PORTABLE_MAC..][..32].copy_from_slice(&macs.portable);
            block[OBJSET_LOCAL_MAC..][..32].copy_from_slice(&macs.local);
            macs
        };
        assert_eq!(seal(&mut block).local, [0; 32]);
        block[OBJSET_FLAGS] = 1;
        assert_ne!(seal(&mut block).local, [0; 32]);
        assert_eq!(verify_objset_macs(&key, &block, order), Ok(()));
        // The intent log's header is written without the key, so nothing protects it.
        block[600] ^= 1;
        assert_eq!(verify_objset_macs(&key, &block, order), Ok(()));
        for at in [OBJSET_TYPE, OBJSET_FLAGS + 1, META_DNODE + 16, USER_USED_DNODE + 16] {
            let mut changed = block.clone();
            changed[at] ^= 1;
            assert_eq!(verify_objset_macs(&key, &changed, order), Err(Error::Authentication), "byte {at}");
        }
        assert!(verify_objset_macs(&key, &block[..700], order).is_err());
    }
}
