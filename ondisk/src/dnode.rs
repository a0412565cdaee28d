//! Dnodes: the root of each object.
//!
//! A dnode occupies one to 32 slots of 512 bytes in a 16 KiB block of the meta-dnode. It names the object's
//! type, holds up to three block pointers of its block tree, a bonus area for a small structure (a
//! directory's DSL data, a file's attributes) and, when that is too small, the pointer of one spill block.
//!
//! | offset | size | name | meaning |
//! |---|---|---|---|
//! | 0 | 1 | type | object type, 0: slot is free |
//! | 1 | 1 | indblkshift | log2 of the size of indirect blocks |
//! | 2 | 1 | nlevels | levels of the tree; 1: the pointers here are of data blocks |
//! | 3 | 1 | nblkptr | pointers used here, 1 to 3 |
//! | 4 | 1 | bonustype | type of the bonus area |
//! | 5 | 1 | checksum | function chosen for this object, 0: inherited |
//! | 6 | 1 | compress | function chosen for this object, 0: inherited |
//! | 7 | 1 | flags | see [`Dnode`] |
//! | 8 | 2 | datablkszsec | size of data blocks in sectors of 512 bytes |
//! | 10 | 2 | bonuslen | bytes used in the bonus area |
//! | 12 | 1 | extra_slots | slots beyond the first |
//! | 13 | 3 | | zero |
//! | 16 | 8 | maxblkid | highest block id in use |
//! | 24 | 8 | used | space allocated, in bytes or (old) in sectors |
//! | 32 | 32 | | zero |
//! | 64 | 128 × nblkptr | blkptr | the tree |
//! | 64 + 128 × nblkptr | bonuslen | bonus | |
//! | end - 128 | 128 | spill | with flag bit 2 |
//!
//! Source: OpenZFS 2.3 `dnode.h`, `dnode.c`.

use crate::blkptr::{Blkptr, ChecksumType, CompressType, MAX_BLOCK_SIZE};
use crate::dmu::DmuType;
use crate::{BlockId, ByteOrder, Error, Level, Reader, Result, Writer};

/// Size of a slot and of the smallest dnode.
pub const DNODE_MIN_SIZE: usize = 512;
/// Size of a block of the meta-dnode and of the largest dnode.
pub const DNODE_BLOCK_SIZE: usize = 1 << 14;
/// Slots of a block of the meta-dnode.
pub const DNODES_PER_BLOCK: u64 = (DNODE_BLOCK_SIZE / DNODE_MIN_SIZE) as u64;
/// Fixed part before the block pointers.
pub const DNODE_CORE_SIZE: usize = 64;
/// Highest object number plus one.
pub const MAX_OBJECT: u64 = 1 << 48;

/// `used` counts bytes.
pub const FLAG_USED_BYTES: u8 = 1 << 0;
/// Counted in the space per user, group and project.
pub const FLAG_USERUSED_ACCOUNTED: u8 = 1 << 1;
/// There is a spill pointer.
pub const FLAG_SPILL_BLKPTR: u8 = 1 << 2;
/// Counted in the objects per user, group and project.
pub const FLAG_USEROBJUSED_ACCOUNTED: u8 = 1 << 3;

/// Flags of a dnode that take part in the MAC of its block.
pub const CRYPT_PORTABLE_FLAGS: u8 = FLAG_SPILL_BLKPTR;

/// A dnode in use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dnode {
    /// Type of the object.
    pub dmu_type: DmuType,
    /// log2 of the size of indirect blocks.
    pub indirect_block_shift: u8,
    /// Levels of the block tree, at least 1.
    pub levels: u8,
    /// The tops of the block tree: one to three.
    pub blkptrs: Vec<Blkptr>,
    /// Type of the bonus area.
    pub bonus_type: DmuType,
    /// Checksum function chosen for this object.
    pub checksum: ChecksumType,
    /// Compression chosen for this object.
    pub compress: CompressType,
    /// Raw flags.
    pub flags: u8,
    /// Size of data blocks in sectors of 512 bytes, not 0.
    pub data_block_sectors: u16,
    /// Slots beyond the first.
    pub extra_slots: u8,
    /// Highest block id in use.
    pub max_block_id: BlockId,
    /// Raw `used` field, see [`Dnode::used_bytes`].
    pub used: u64,
    /// Bonus area, as on disk in [`Dnode::order`].
    pub bonus: Box<[u8]>,
    /// Block pointer of the spill block.
    pub spill: Option<Blkptr>,
    /// Byte order of the block that the dnode stood in, and thus of its bonus area.
    pub order: ByteOrder,
}

impl Dnode {
    /// Parses the dnode at the start of `bytes`, which reach to the end of the dnode block (or at least of
    /// the dnode). `None` when the slot is free.
    pub fn parse(bytes: &[u8], order: ByteOrder) -> Result<Option<Dnode>> {
        let mut reader = Reader::new("dnode", bytes, order);
        let raw_type = reader.u8()?;
        if raw_type == DmuType::NONE.raw() {
            return Ok(None);
        }
        let dmu_type = DmuType::from_raw(raw_type)?;
        let indirect_block_shift = reader.u8()?;
        let levels = reader.u8()?;
        let nblkptr = reader.u8()?;
        let bonus_type = DmuType::from_raw(reader.u8()?)?;
        let checksum = ChecksumType::from_raw(reader.u8()?)?;
        let compress = CompressType::from_raw(reader.u8()?)?;
        let flags = reader.u8()?;
        let data_block_sectors = reader.u16()?;
        let bonus_len = usize::from(reader.u16()?);
        let extra_slots = reader.u8()?;
        reader.skip(3)?;
        let max_block_id = BlockId(reader.u64()?);
        let used = reader.u64()?;

        let size = dnode_size(extra_slots)?;
        if !(1..=3).contains(&nblkptr) {
            return Err(Error::invalid("dnode", format!("{nblkptr} block pointers")));
        }
        if levels == 0 || levels > Dnode::MAX_LEVELS {
            return Err(Error::invalid("dnode", format!("{levels} levels")));
        }
        if levels > 1 && !(9..=24).contains(&indirect_block_shift) {
            return Err(Error::invalid("dnode", format!("indirect block shift {indirect_block_shift}")));
        }
        let data_block_size = u64::from(data_block_sectors) << 9;
        if data_block_size == 0 || data_block_size > MAX_BLOCK_SIZE {
            return Err(Error::invalid("dnode", format!("data blocks of {data_block_size} bytes")));
        }
        let tail = Reader::new("dnode", bytes, order).bytes(size)?;
        let has_spill = flags & FLAG_SPILL_BLKPTR != 0;
        let bonus_start = DNODE_CORE_SIZE + usize::from(nblkptr) * Blkptr::SIZE;
        let bonus_end = bonus_start + bonus_len;
        let spill_start = size - Blkptr::SIZE;
        if bonus_end > if has_spill { spill_start } else { size } {
            return Err(Error::invalid("dnode", format!("bonus of {bonus_len} bytes does not fit")));
        }
        let mut pointers = Reader::new("dnode", tail, order);
        pointers.seek(DNODE_CORE_SIZE)?;
        let blkptrs = (0..nblkptr).map(|_| Blkptr::read(&mut pointers)).collect::<Result<Vec<_>>>()?;
        let bonus = pointers.bytes(bonus_len)?.into();
        let spill = if has_spill {
            pointers.seek(spill_start)?;
            Some(Blkptr::read(&mut pointers)?)
        } else {
            None
        };
        Ok(Some(Dnode {
            dmu_type,
            indirect_block_shift,
            levels,
            blkptrs,
            bonus_type,
            checksum,
            compress,
            flags,
            data_block_sectors,
            extra_slots,
            max_block_id,
            used,
            bonus,
            spill,
            order,
        }))
    }

    /// The dnode in all its slots, in [`Dnode::order`].
    pub fn encode(&self) -> Result<Vec<u8>> {
        let size = dnode_size(self.extra_slots)?;
        let bonus_len = u16::try_from(self.bonus.len())
            .map_err(|_| Error::TooLarge { what: "bonus", limit: u16::MAX.into() })?;
        let mut writer = Writer::new(self.order);
        writer
            .u8(self.dmu_type.raw())
            .u8(self.indirect_block_shift)
            .u8(self.levels)
            .u8(self.blkptrs.len() as u8)
            .u8(self.bonus_type.raw())
            .u8(self.checksum.raw())
            .u8(self.compress.raw())
            .u8(self.flags)
            .u16(self.data_block_sectors)
            .u16(bonus_len)
            .u8(self.extra_slots)
            .zeros(3)
            .u64(self.max_block_id.0)
            .u64(self.used)
            .zeros(32);
        for bp in &self.blkptrs {
            bp.write(&mut writer);
        }
        writer.bytes(&self.bonus);
        if let Some(spill) = &self.spill {
            writer.zeros_to(size - Blkptr::SIZE);
            spill.write(&mut writer);
        }
        writer.zeros_to(size);
        let bytes = writer.finish();
        match Dnode::parse(&bytes, self.order) {
            Ok(Some(parsed)) if bytes.len() == size && parsed == *self => Ok(bytes),
            Err(error) => Err(error),
            Ok(_) => Err(Error::invalid("dnode", "parts contradict each other")),
        }
    }

    /// No tree of valid block sizes is higher.
    pub const MAX_LEVELS: u8 = 30;

    /// Slots that the dnode occupies.
    pub fn slots(&self) -> u64 {
        u64::from(self.extra_slots) + 1
    }

    /// Size of data blocks. Only an object of a single block may have one that is no power of two.
    pub fn data_block_size(&self) -> u64 {
        u64::from(self.data_block_sectors) << 9
    }

    /// Size of indirect blocks.
    pub fn indirect_block_size(&self) -> u64 {
        1u64.checked_shl(self.indirect_block_shift.into()).unwrap_or(0)
    }

    /// log2 of the number of block pointers in an indirect block.
    pub fn pointers_per_indirect_shift(&self) -> u32 {
        u32::from(self.indirect_block_shift).saturating_sub(Blkptr::SHIFT)
    }

    /// The block of `level` above the data block `id`; the top pointers of the dnode are the blocks of level
    /// `levels - 1`.
    pub fn ancestor(&self, id: BlockId, level: Level) -> BlockId {
        let shift =
            self.pointers_per_indirect_shift().saturating_mul(u32::from(level.0.max(0).unsigned_abs()));
        BlockId(id.0.checked_shr(shift).unwrap_or(0))
    }

    /// Space allocated for the object in bytes.
    pub fn used_bytes(&self) -> u64 {
        if self.flags & FLAG_USED_BYTES != 0 { self.used } else { self.used.saturating_mul(512) }
    }

    /// The `used` field counts bytes.
    pub fn counts_used_in_bytes(&self) -> bool {
        self.flags & FLAG_USED_BYTES != 0
    }

    /// Counted in the used space per user, group and project.
    pub fn is_user_used_accounted(&self) -> bool {
        self.flags & FLAG_USERUSED_ACCOUNTED != 0
    }

    /// Counted in the number of objects per user, group and project.
    pub fn is_user_object_used_accounted(&self) -> bool {
        self.flags & FLAG_USEROBJUSED_ACCOUNTED != 0
    }

    /// Where the bonus area begins in the bytes of the slots.
    pub fn bonus_offset(&self) -> usize {
        DNODE_CORE_SIZE + self.blkptrs.len() * Blkptr::SIZE
    }

    /// Bytes that the bonus area could hold.
    pub fn bonus_capacity(&self) -> usize {
        let end = (usize::from(self.extra_slots) + 1) * DNODE_MIN_SIZE;
        let spill = if self.spill.is_some() { Blkptr::SIZE } else { 0 };
        end.saturating_sub(DNODE_CORE_SIZE + self.blkptrs.len() * Blkptr::SIZE + spill)
    }
}

fn dnode_size(extra_slots: u8) -> Result<usize> {
    let size = (usize::from(extra_slots) + 1) * DNODE_MIN_SIZE;
    if size > DNODE_BLOCK_SIZE {
        return Err(Error::invalid("dnode", format!("{extra_slots} extra slots")));
    }
    Ok(size)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn file(order: ByteOrder) -> Dnode {
        Dnode {
            dmu_type: DmuType::PLAIN_FILE_CONTENTS,
            indirect_block_shift: 17,
            levels: 2,
            blkptrs: vec![Blkptr::HOLE],
            bonus_type: DmuType::SA,
            checksum: ChecksumType::Inherit,
            compress: CompressType::Inherit,
            flags: FLAG_USED_BYTES,
            data_block_sectors: 256,
            extra_slots: 0,
            max_block_id: BlockId(5),
            used: 4096,
            bonus: vec![7; 168].into(),
            spill: None,
            order,
        }
    }

    #[test]
    fn a_free_slot_is_none() {
        assert_eq!(Dnode::parse(&[0; 512], ByteOrder::Little), Ok(None));
    }

    #[test]
    fn a_dnode_that_reaches_past_its_block_is_refused() {
        let mut bytes = Dnode { extra_slots: 1, ..file(ByteOrder::Little) }.encode().unwrap();
        assert!(Dnode::parse(&bytes[..512], ByteOrder::Little).is_err());
        bytes[12] = 32;
        bytes.resize(DNODE_BLOCK_SIZE * 2, 0);
        assert!(Dnode::parse(&bytes, ByteOrder::Little).is_err());
    }

    #[test]
    fn a_bonus_that_runs_into_the_spill_pointer_is_refused() {
        let dnode = file(ByteOrder::Little);
        let spilled = Dnode {
            flags: FLAG_SPILL_BLKPTR,
            spill: Some(Blkptr::HOLE),
            bonus: vec![1; 192].into(),
            ..dnode.clone()
        };
        assert!(spilled.encode().is_ok());
        assert!(Dnode { bonus: vec![1; 193].into(), ..spilled }.encode().is_err());
        assert!(Dnode { bonus: vec![1; 320].into(), ..dnode }.encode().is_ok());
    }

    #[test]
    fn ancestors_follow_the_fan_out() {
        let dnode = file(ByteOrder::Little);
        assert_eq!(dnode.pointers_per_indirect_shift(), 10);
        assert_eq!(dnode.ancestor(BlockId(1025), Level(1)), BlockId(1));
        assert_eq!(dnode.ancestor(BlockId(u64::MAX), Level(30)), BlockId(0));
    }

    #[test]
    fn old_dnodes_count_used_sectors() {
        let dnode = Dnode { flags: 0, ..file(ByteOrder::Little) };
        assert_eq!(dnode.used_bytes(), 4096 * 512);
    }

    proptest! {
        #[test]
        fn dnodes_round_trip_in_both_orders(
            big: bool, extra_slots in 0u8..32, nblkptr in 1usize..=3, spill: bool, max: u64, used: u64,
            bonus_len in 0usize..64,
        ) {
            let order = if big { ByteOrder::Big } else { ByteOrder::Little };
            let spill = spill && nblkptr == 1;
            let bonus_len = if nblkptr == 3 && extra_slots == 0 { 0 } else { bonus_len };
            let dnode = Dnode {
                extra_slots,
                blkptrs: vec![Blkptr::HOLE; nblkptr],
                spill: spill.then_some(Blkptr::HOLE),
                flags: if spill { FLAG_SPILL_BLKPTR } else { 0 },
                max_block_id: BlockId(max),
                used,
                bonus: vec![3; bonus_len].into(),
                ..file(order)
            };
            let bytes = dnode.encode().unwrap();
            prop_assert_eq!(bytes.len(), dnode.slots() as usize * 512);
            prop_assert_eq!(Dnode::parse(&bytes, order).unwrap(), Some(dnode));
        }

        #[test]
        fn arbitrary_bytes_never_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..2048), big: bool) {
            if let Some(first) = bytes.first_mut() {
                *first |= 1;
            }
            let order = if big { ByteOrder::Big } else { ByteOrder::Little };
            let _ = Dnode::parse(&bytes, order);
        }
    }
}
