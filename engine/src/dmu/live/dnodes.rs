//! Dnodes in their slots: free slots, and the contents of new dnodes.
//!
//! A block of the meta-dnode has 32 slots. A dnode occupies one or more slots of one block; its number is
//! that of its first slot.

use ondisk::blkptr::{Blkptr, ChecksumType, CompressType};
use ondisk::dmu::DmuType;
use ondisk::dnode::{
    DNODE_BLOCK_SIZE, DNODE_CORE_SIZE, DNODE_MIN_SIZE, DNODES_PER_BLOCK, Dnode, FLAG_USED_BYTES,
};
use ondisk::objset::{
    FLAG_USER_ACCOUNTING_COMPLETE, OBJSET_SIZE_V3, Objset as ObjsetPhys, ObjsetType, ZIL_HEADER_SIZE,
};
use ondisk::{BlockId, ByteOrder};

use super::NewObject;
use crate::dmu::objset::first_slots;
use crate::error::{Error, Result};

/// The most block pointers of a dnode.
const MAX_POINTERS: usize = 3;
/// log2 of the size of indirect blocks (`DN_MAX_INDBLKSHIFT`).
const INDIRECT_BLOCK_SHIFT: u8 = 17;
/// The levels of a new dataset's meta-dnode: enough for all object numbers, so that it never has to grow.
const META_LEVELS: u8 = 6;
/// The offset in a dnode of the number of slots beyond its first.
const EXTRA_SLOTS_OFFSET: usize = 12;

/// The used slots of one dnode block, a bit each.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Slots(u32);

impl Slots {
    /// No slot is free.
    pub(super) const FULL: Self = Self(u32::MAX);

    /// The slots of a dnode block.
    pub(super) fn of(block: &[u8]) -> Self {
        let mut slots = Self::default();
        for first in first_slots(block) {
            let extra = block.get(first * DNODE_MIN_SIZE + EXTRA_SLOTS_OFFSET).copied().unwrap_or(0);
            slots.take(first, usize::from(extra) + 1);
        }
        slots
    }

    /// Marks `count` slots.
    pub(super) fn take(&mut self, first: usize, count: usize) {
        self.0 |= mask(first, count);
    }

    /// Whether `count` slots from `first` on are free and in the block.
    pub(super) fn is_free(self, first: usize, count: usize) -> bool {
        first.saturating_add(count) <= DNODES_PER_BLOCK as usize && self.0 & mask(first, count) == 0
    }

    /// The first place from `from` on where `count` slots are free.
    pub(super) fn find(self, from: usize, count: usize) -> Option<usize> {
        (from..DNODES_PER_BLOCK as usize).find(|first| self.is_free(*first, count))
    }
}

fn mask(first: usize, count: usize) -> u32 {
    let ones = if count >= 32 { u32::MAX } else { (1u32 << count) - 1 };
    ones.checked_shl(first as u32).unwrap_or(0)
}

/// The dnode of an object without data.
pub(super) fn new_dnode(new: &NewObject) -> Result<Dnode> {
    let size = usize::from(new.slots) * DNODE_MIN_SIZE;
    let block_size = new.block_size.next_multiple_of(512);
    let room = size.checked_sub(DNODE_CORE_SIZE + Blkptr::SIZE);
    let free = room.and_then(|room| room.checked_sub(new.bonus.len()));
    let (Some(free), true) = (free, (1..=32).contains(&new.slots)) else {
        let detail = format!("an object of {} slots with a bonus of {} bytes", new.slots, new.bonus.len());
        return Err(Error::Invalid(detail));
    };
    if block_size == 0 || block_size > 16 << 20 {
        return Err(Error::Invalid(format!("an object with blocks of {block_size} bytes")));
    }
    // Attributes use all the space that there is; other bonus types leave it to pointers.
    let pointers =
        if new.bonus_type == DmuType::SA { 1 } else { MAX_POINTERS.min(1 + (free >> Blkptr::SHIFT)) };
    Ok(Dnode {
        dmu_type: new.dmu_type,
        indirect_block_shift: INDIRECT_BLOCK_SHIFT,
        levels: 1,
        blkptrs: vec![Blkptr::HOLE; pointers],
        bonus_type: new.bonus_type,
        checksum: ChecksumType::Inherit,
        compress: CompressType::Inherit,
        flags: FLAG_USED_BYTES,
        data_block_sectors: (block_size >> 9) as u16,
        extra_slots: new.slots - 1,
        max_block_id: BlockId(0),
        used: 0,
        bonus: new.bonus.as_slice().into(),
        spill: None,
        order: ByteOrder::Little,
    })
}

/// The block of an object set without objects.
pub(super) fn new_objset(kind: ObjsetType) -> ObjsetPhys {
    let meta_dnode = Dnode {
        dmu_type: DmuType::DNODE,
        indirect_block_shift: INDIRECT_BLOCK_SHIFT,
        // The MOS is written several times in a group, so fewer levels are better; it may grow at any time.
        levels: if kind == ObjsetType::Meta { 1 } else { META_LEVELS },
        blkptrs: vec![Blkptr::HOLE; MAX_POINTERS],
        bonus_type: DmuType::NONE,
        checksum: ChecksumType::Inherit,
        compress: CompressType::Inherit,
        flags: FLAG_USED_BYTES,
        data_block_sectors: (DNODE_BLOCK_SIZE >> 9) as u16,
        extra_slots: 0,
        max_block_id: BlockId(0),
        used: 0,
        bonus: Box::new([]),
        spill: None,
        order: ByteOrder::Little,
    };
    ObjsetPhys {
        meta_dnode,
        zil_header: [0; ZIL_HEADER_SIZE],
        objset_type: kind,
        // Nothing is counted, and there is nothing else to count.
        flags: if kind == ObjsetType::Zfs { FLAG_USER_ACCOUNTING_COMPLETE } else { 0 },
        portable_mac: [0; 32],
        local_mac: [0; 32],
        user_used_dnode: None,
        group_used_dnode: None,
        project_used_dnode: None,
        size: OBJSET_SIZE_V3,
        order: ByteOrder::Little,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn new(slots: u8, bonus_type: DmuType, bonus: usize) -> NewObject {
        let bonus = vec![1; bonus];
        NewObject { dmu_type: DmuType::PLAIN_OTHER, block_size: 512, bonus_type, bonus, slots }
    }

    #[test]
    fn large_dnodes_take_their_slots_and_never_leave_their_block() {
        let mut block = vec![0u8; DNODE_BLOCK_SIZE];
        block[DNODE_MIN_SIZE] = 19;
        block[DNODE_MIN_SIZE + EXTRA_SLOTS_OFFSET] = 2;
        let slots = Slots::of(&block);
        assert_eq!(slots.find(0, 1), Some(0));
        assert_eq!(slots.find(1, 1), Some(4));
        assert_eq!(slots.find(0, 2), Some(4));
        assert!(slots.is_free(4, 28) && !slots.is_free(4, 29) && !slots.is_free(3, 1));
        assert_eq!(slots.find(30, 3), None);
        assert_eq!(Slots::default().find(0, 32), Some(0));
        assert_eq!(slots.find(0, 32), None);
    }

    #[test]
    fn a_dnode_has_as_many_pointers_as_its_bonus_leaves_room_for() {
        let pointers =
            |new: NewObject| new_dnode(&new).map(|dnode| (dnode.blkptrs.len(), dnode.encode().is_ok())).ok();
        assert_eq!(pointers(new(1, DmuType::NONE, 0)), Some((3, true)));
        assert_eq!(pointers(new(1, DmuType::DSL_DATASET, 64)), Some((3, true)));
        assert_eq!(pointers(new(1, DmuType::DSL_DATASET, 65)), Some((2, true)));
        assert_eq!(pointers(new(1, DmuType::DSL_DIR, 256)), Some((1, true)));
        assert_eq!(pointers(new(1, DmuType::DSL_DATASET, 320)), Some((1, true)));
        assert_eq!(pointers(new(1, DmuType::DSL_DATASET, 321)), None);
        assert_eq!(pointers(new(2, DmuType::SA, 0)), Some((1, true)));
        assert_eq!(pointers(new(0, DmuType::NONE, 0)), None);
    }

    #[test]
    fn a_new_object_set_encodes() {
        for kind in [ObjsetType::Meta, ObjsetType::Zfs, ObjsetType::Zvol] {
            assert_eq!(new_objset(kind).encode().unwrap().len(), 4096);
        }
    }
}
