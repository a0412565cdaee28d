//! Which bytes of a block are secret, and what is authenticated beside them.
//!
//! Most blocks are secret as a whole. Two kinds are not, because a pool must be scrubbed, claimed and sent
//! without keys:
//!
//! **Dnode blocks.** The bonus area of each dnode is secret when its type is a private one. Its extent is all
//! the room up to the end of the dnode, or to the spill pointer. Authenticated, dnode by dnode: the 64 bytes
//! of the core, with `used` and all flags but "has a spill pointer" as zero; the portable fields (see
//! `super::mac`) of each block pointer and of the spill pointer; the bonus area if it is not secret.
//!
//! **Intent log blocks.** Authenticated: the chain header up to its checksum trailer, and of each record the
//! 32-byte header. The rest of a record is secret, except block pointers:
//!
//! | record | secret | authenticated |
//! |---|---|---|
//! | write (9) | 32..64, 192.. | 0..32, 64..192 (block pointer) |
//! | clone range (24) | 32..64 | 0..32, 64.. (count and block pointers) |
//! | others | 32.. | 0..32 |
//!
//! What follows the last record is neither; it becomes zeros.
//!
//! Source: OpenZFS 2.3 `zio_crypt.c`, `dnode.h`, `zil.h`.

use super::mac::BlkptrFields;
use super::{Error, MAC_BYTES, Result};
use ondisk::ByteOrder;
use ondisk::blkptr::Blkptr;
use ondisk::dmu::DmuType;
use ondisk::dnode::{CRYPT_PORTABLE_FLAGS, DNODE_CORE_SIZE, DNODE_MIN_SIZE};
use std::ops::Range;

/// The parts of one block.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Layout {
    /// Ascending and disjoint. Encrypted as if they were one text.
    pub secret: Vec<Range<usize>>,
    /// Additional authenticated data.
    pub aad: Vec<u8>,
    /// Where bytes begin that are neither.
    pub end: usize,
}

impl Layout {
    /// The layout of a block of this type, either encrypted or not: both are the same.
    pub fn of(ty: DmuType, version: u64, order: ByteOrder, block: &[u8]) -> Result<Self> {
        match ty {
            DmuType::DNODE => dnodes(version, order, block),
            DmuType::INTENT_LOG => intent_log(order, block),
            _ => Ok(Self { secret: vec![0..block.len(); 1], aad: Vec::new(), end: block.len() }),
        }
    }
}

const DNODE_TYPE: usize = 0;
const DNODE_NBLKPTR: usize = 3;
const DNODE_BONUS_TYPE: usize = 4;
const DNODE_FLAGS: usize = 7;
const DNODE_BONUS_LEN: Range<usize> = 10..12;
const DNODE_EXTRA_SLOTS: usize = 12;
pub(super) const DNODE_USED: Range<usize> = 24..32;

/// A dnode's bytes, cut where encryption cuts them. A free slot is cut like any other.
pub(super) struct DnodeParts<'a> {
    /// The fixed part.
    pub core: [u8; DNODE_CORE_SIZE],
    /// Its block pointers, and that of the spill block.
    pub blkptrs: Vec<&'a [u8]>,
    bonus: Range<usize>,
    size: usize,
    bonus_is_secret: bool,
}

impl<'a> DnodeParts<'a> {
    /// `bytes` begin with the dnode.
    pub fn cut(bytes: &'a [u8]) -> Result<Self> {
        let core: [u8; DNODE_CORE_SIZE] =
            bytes.first_chunk().copied().ok_or(Error::Malformed("dnode runs past its block"))?;
        let size = (usize::from(core[DNODE_EXTRA_SLOTS]) + 1) * DNODE_MIN_SIZE;
        let bytes = bytes.get(..size).ok_or(Error::Malformed("dnode runs past its block"))?;
        let count = usize::from(core[DNODE_NBLKPTR]);
        if count > 3 {
            return Err(Error::Malformed("dnode with more than three block pointers"));
        }
        let has_spill = core[DNODE_FLAGS] & CRYPT_PORTABLE_FLAGS != 0;
        let bonus_start = DNODE_CORE_SIZE + count * Blkptr::SIZE;
        let bonus_end = if has_spill { size - Blkptr::SIZE } else { size };
        if bonus_end < bonus_start {
            return Err(Error::Malformed("dnode without room for its spill pointer"));
        }
        let mut blkptrs: Vec<&[u8]> =
            bytes[DNODE_CORE_SIZE..bonus_start].chunks_exact(Blkptr::SIZE).collect();
        if has_spill {
            blkptrs.push(&bytes[bonus_end..]);
        }
        let private = DmuType::from_raw(core[DNODE_BONUS_TYPE]).is_ok_and(DmuType::is_encrypted);
        let bonus_is_secret =
            core[DNODE_TYPE] != DmuType::NONE.raw() && private && core[DNODE_BONUS_LEN] != [0, 0];
        Ok(Self { core, blkptrs, bonus: bonus_start..bonus_end, size, bonus_is_secret })
    }

    /// The core with the fields masked that a raw send does not preserve.
    pub fn portable_core(&self) -> [u8; DNODE_CORE_SIZE] {
        let mut core = self.core;
        core[DNODE_FLAGS] &= CRYPT_PORTABLE_FLAGS;
        core[DNODE_USED].fill(0);
        core
    }
}

fn dnodes(version: u64, order: ByteOrder, block: &[u8]) -> Result<Layout> {
    if !block.len().is_multiple_of(DNODE_MIN_SIZE) {
        return Err(Error::Malformed("dnode block of odd size"));
    }
    let mut layout = Layout { secret: Vec::new(), aad: Vec::with_capacity(block.len()), end: block.len() };
    let mut start = 0;
    while start < block.len() {
        let dnode = DnodeParts::cut(&block[start..])?;
        layout.aad.extend_from_slice(&dnode.portable_core());
        for blkptr in &dnode.blkptrs {
            layout.aad.extend_from_slice(BlkptrFields::of(blkptr, order)?.portable(version).bytes());
        }
        let bonus = start + dnode.bonus.start..start + dnode.bonus.end;
        if dnode.bonus_is_secret {
            layout.secret.push(bonus);
        } else {
            layout.aad.extend_from_slice(&block[bonus]);
        }
        start += dnode.size;
    }
    Ok(layout)
}

/// Offset of the number of bytes used, in the header of an intent log block.
const CHAIN_USED: usize = 136;
/// Where the checksum trailer begins.
const CHAIN_TRAILER: usize = 144;
/// Where the trailer's third checksum word lies, which holds the MAC together with the fourth.
const CHAIN_MAC: Range<usize> = 168..184;
/// Size of the header.
const CHAIN_HEADER_BYTES: usize = 184;

const RECORD_HEADER_BYTES: usize = 32;
/// Where the block pointer of a write record lies, and the count and block pointers of a clone record.
const RECORD_BLKPTR: usize = 64;
const WRITE_RECORD_BYTES: usize = RECORD_BLKPTR + Blkptr::SIZE;
const TX_WRITE: u64 = 9;
const TX_CLONE_RANGE: u64 = 24;

/// The MAC that an intent log block carries in its header.
pub(super) fn intent_log_mac(block: &[u8]) -> Result<[u8; MAC_BYTES]> {
    let bytes = block.get(CHAIN_MAC).ok_or(Error::Malformed("intent log block too short"))?;
    bytes.try_into().map_err(|_| Error::Malformed("intent log block too short"))
}

fn intent_log(order: ByteOrder, block: &[u8]) -> Result<Layout> {
    let word = |at: usize| {
        let bytes = block
            .get(at..)
            .and_then(|rest| rest.first_chunk())
            .ok_or(Error::Malformed("intent log block too short"))?;
        Ok(order.u64(*bytes))
    };
    let used = usize::try_from(word(CHAIN_USED)?).unwrap_or(usize::MAX);
    if used < CHAIN_HEADER_BYTES || used > block.len() {
        return Err(Error::Malformed("intent log block claims more bytes than it has"));
    }
    let mut layout = Layout { secret: Vec::new(), aad: block[..CHAIN_TRAILER].to_vec(), end: used };
    let mut start = CHAIN_HEADER_BYTES;
    while start < used {
        if used - start < RECORD_HEADER_BYTES {
            return Err(Error::Malformed("intent log record runs past its block"));
        }
        let (kind, length) = (word(start)?, word(start + 8)?);
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        let shortest = match kind {
            TX_WRITE => WRITE_RECORD_BYTES,
            TX_CLONE_RANGE => RECORD_BLKPTR,
            _ => RECORD_HEADER_BYTES,
        };
        if length < shortest || length > used - start {
            return Err(Error::Malformed("intent log record runs past its block"));
        }
        let end = start + length;
        let body = start + RECORD_HEADER_BYTES;
        let blkptr = start + RECORD_BLKPTR;
        layout.aad.extend_from_slice(&block[start..body]);
        match kind {
            TX_WRITE => {
                let data = start + WRITE_RECORD_BYTES;
                layout.aad.extend_from_slice(&block[blkptr..data]);
                layout.secret.extend([body..blkptr, data..end]);
            }
            TX_CLONE_RANGE => {
                layout.aad.extend_from_slice(&block[blkptr..end]);
                layout.secret.push(body..blkptr);
            }
            _ => layout.secret.push(body..end),
        }
        start = end;
    }
    layout.secret.retain(|range| !range.is_empty());
    Ok(layout)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// An intent log block of one record after the other, each `(type, length)`.
    fn log(order: ByteOrder, records: &[(u64, usize)]) -> Vec<u8> {
        let used = CHAIN_HEADER_BYTES + records.iter().map(|record| record.1).sum::<usize>();
        let mut block = vec![0x11; used.next_multiple_of(512)];
        block[CHAIN_USED..CHAIN_USED + 8].copy_from_slice(&order.u64_bytes(used as u64));
        let mut start = CHAIN_HEADER_BYTES;
        for &(kind, length) in records {
            block[start..start + 8].copy_from_slice(&order.u64_bytes(kind));
            block[start + 8..start + 16].copy_from_slice(&order.u64_bytes(length as u64));
            start += length;
        }
        block
    }

    #[test]
    fn block_pointers_of_log_records_stay_readable() {
        for order in [ByteOrder::Little, ByteOrder::Big] {
            let layout = intent_log(order, &log(order, &[(9, 200), (24, 200), (1, 40), (9, 192)])).unwrap();
            let at = CHAIN_HEADER_BYTES;
            let (clone, create, write) = (at + 200, at + 400, at + 440);
            let expected = vec![
                at + 32..at + 64,
                at + 192..at + 200,
                clone + 32..clone + 64,
                create + 32..create + 40,
                write + 32..write + 64,
            ];
            assert_eq!(layout.secret, expected);
            assert_eq!(layout.aad.len(), CHAIN_TRAILER + (32 + 128) + (32 + 136) + 32 + (32 + 128));
            assert_eq!(layout.end, at + 632);
        }
    }

    #[test]
    fn log_records_that_overrun_are_refused() {
        let order = ByteOrder::Little;
        for records in [&[(9, 191)][..], &[(24, 63)], &[(1, 31)]] {
            assert!(intent_log(order, &log(order, records)).is_err(), "{records:?}");
        }
        let mut endless = log(order, &[(1, 64)]);
        endless[CHAIN_HEADER_BYTES + 8..CHAIN_HEADER_BYTES + 16].fill(0);
        assert!(intent_log(order, &endless).is_err());
        endless[CHAIN_HEADER_BYTES + 8..CHAIN_HEADER_BYTES + 16].fill(0xff);
        assert!(intent_log(order, &endless).is_err());
        assert!(intent_log(order, &[0xff; 4096]).is_err());
        assert!(intent_log(order, &[0; 100]).is_err());
    }

    #[test]
    fn a_bonus_area_is_secret_up_to_the_spill_pointer() {
        let mut block = vec![0; 1536];
        // A file with a system-attribute bonus, one pointer and a spill block, over two slots.
        block[DNODE_TYPE] = DmuType::PLAIN_FILE_CONTENTS.raw();
        block[DNODE_NBLKPTR] = 1;
        block[DNODE_BONUS_TYPE] = DmuType::SA.raw();
        block[DNODE_FLAGS] = 0xff;
        block[10] = 8;
        block[DNODE_EXTRA_SLOTS] = 1;
        block[DNODE_USED].fill(0xee);
        let layout = dnodes(1, ByteOrder::Little, &block).unwrap();
        assert_eq!(layout.secret, vec![192..896; 1]);
        // Core, two pointers; then the free slot: core and the rest of it as a bonus area.
        assert_eq!(layout.aad.len(), 64 + 2 * 32 + 512);
        assert_eq!(layout.aad[DNODE_FLAGS], 4);
        assert_eq!(layout.aad[DNODE_USED], [0; 8]);

        block[DNODE_EXTRA_SLOTS] = 3;
        assert!(dnodes(1, ByteOrder::Little, &block).is_err());
    }

    proptest! {
        #[test]
        fn no_bytes_cause_a_panic_or_ranges_outside_the_block(bytes in proptest::collection::vec(any::<u8>(), 0..3000), ty in 10u8..12, big: bool) {
            let order = if big { ByteOrder::Big } else { ByteOrder::Little };
            for ty in [DmuType::DNODE, DmuType::INTENT_LOG, DmuType::from_raw(ty).unwrap()] {
                if let Ok(layout) = Layout::of(ty, 1, order, &bytes) {
                    let mut last = 0;
                    for range in layout.secret {
                        prop_assert!(last <= range.start && range.start <= range.end && range.end <= bytes.len());
                        last = range.end;
                    }
                }
            }
        }
    }
}
