//! Entries that the open sync looks at and changes.
//!
//! An entry is *live* from the time when a group first needs it until the group's changes are written. It
//! remembers what it was before, so that statistics are corrected once for all changes of a group, and an
//! entry that ends up as it began is not written at all.

use ondisk::blkptr::Blkptr;
use ondisk::ddt::{DdtClass, DdtKey, DdtPhys, DdtSlot, PhysForm};

use crate::Block;
use crate::error::{Error, Result};
use crate::zio::dedup::{Entry, SharedBlock};

/// Where an entry was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Origin {
    /// Nowhere: it is new.
    New,
    /// In the ZAP of this class.
    Stored(DdtClass),
    /// In a log.
    Logged,
}

/// A live entry.
#[derive(Debug, Clone)]
pub(super) struct Live {
    pub phys: DdtPhys,
    pub origin: Origin,
    /// What it was when it was found.
    pub before: DdtPhys,
    /// The class in whose ZAP the key is.
    pub class: Option<DdtClass>,
    /// The bytes of blocks that are being written, by slot.
    pub being_written: [Option<Block>; 4],
}

impl Live {
    /// An entry that was found.
    pub(super) fn found(phys: DdtPhys, origin: Origin, class: Option<DdtClass>) -> Self {
        Self { phys, origin, before: phys, class, being_written: [const { None }; 4] }
    }

    /// An entry that is nowhere yet.
    pub(super) fn new(form: PhysForm) -> Self {
        Self::found(DdtPhys::unused(form), Origin::New, None)
    }

    /// Whether it must be written.
    pub(super) fn is_changed(&self) -> bool {
        self.phys != self.before
    }

    fn slot(&self, copies: u8) -> Option<&DdtSlot> {
        self.phys.all_slots().get(DdtPhys::place_of(self.phys.form(), copies))
    }

    fn slot_mut(&mut self, copies: u8) -> Result<&mut DdtSlot> {
        let place = DdtPhys::place_of(self.phys.form(), copies);
        self.phys.all_slots_mut().get_mut(place).ok_or_else(|| contradiction("a slot that does not exist"))
    }

    /// What it says of a block that shall have so many copies. A block whose references are all gone, and
    /// whose space is not free yet, is used again.
    pub(super) fn entry(&self, key: &DdtKey, copies: u8) -> Entry {
        let Some(slot) = self.slot(copies).filter(|slot| slot.is_used()) else { return Entry::New };
        let Ok(dvas) = slot.dvas(key.is_encrypted()) else { return Entry::Unfit };
        let is_gang = dvas.iter().any(|dva| dva.gang);
        let is_misread = is_gang && self.phys.form() == PhysForm::Traditional;
        match dvas.len() < usize::from(copies) || is_misread || slot.refcount == u64::MAX {
            true => Entry::Unfit,
            false => Entry::Shared(SharedBlock { dvas, physical_birth: slot.phys_birth }),
        }
    }

    /// A block is stored for it, with one reference.
    pub(super) fn store(&mut self, copies: u8, block: &SharedBlock, bytes: Option<Block>) -> Result<()> {
        let slot = self.slot_mut(copies)?;
        if slot.is_used() {
            return Err(contradiction("a block that is entered twice"));
        }
        let new = DdtSlot::of_block(&block.dvas, block.physical_birth);
        *slot = DdtSlot { refcount: 1, ..new.map_err(Error::format("a dedup table"))? };
        let place = DdtPhys::place_of(self.phys.form(), copies);
        if let Some(being_written) = self.being_written.get_mut(place) {
            *being_written = bytes;
        }
        Ok(())
    }

    /// One reference more to the block for so many copies.
    pub(super) fn refer(&mut self, copies: u8) -> Result<()> {
        count_up(self.slot_mut(copies)?)
    }

    /// One reference more to the block that a pointer leads to. False when the entry does not know it.
    pub(super) fn refer_to(&mut self, bp: &Blkptr) -> Result<bool> {
        match self.phys.slot_of(bp).and_then(|place| self.phys.all_slots_mut().get_mut(place)) {
            // A pruned entry's block is not in the slot, and one without references has no pointer.
            Some(slot) if slot.refcount > 0 => count_up(slot).map(|()| true),
            _ => Ok(false),
        }
    }

    /// One reference less to the block that a pointer leads to. False when the entry does not know it.
    pub(super) fn release(&mut self, bp: &Blkptr) -> Result<bool> {
        let Some(place) = self.phys.slot_of(bp) else { return Ok(false) };
        let Some(slot) = self.phys.all_slots_mut().get_mut(place) else { return Ok(false) };
        let left = slot.refcount.checked_sub(1);
        slot.refcount = left.ok_or_else(|| contradiction("a block with more pointers than references"))?;
        Ok(true)
    }
}

fn count_up(slot: &mut DdtSlot) -> Result<()> {
    slot.refcount = slot.refcount.checked_add(1).ok_or_else(|| contradiction("a count that overflows"))?;
    Ok(())
}

fn contradiction(detail: &str) -> Error {
    Error::corrupt("a dedup table", detail)
}

/// Takes the slots out of an entry whose blocks have no references, and those of ditto copies, which no
/// pointer leads to. They are free.
pub(super) fn take_unreferenced(phys: &mut DdtPhys) -> Vec<DdtSlot> {
    let is_ditto: Vec<bool> = (0..phys.all_slots().len()).map(|place| phys.is_ditto(place)).collect();
    let slots = phys.all_slots_mut().iter_mut().zip(is_ditto);
    let gone = slots.filter(|(slot, is_ditto)| slot.is_used() && (*is_ditto || slot.refcount == 0));
    gone.map(|(slot, _)| std::mem::take(slot)).collect()
}

#[cfg(test)]
mod tests {
    use ondisk::blkptr::{ChecksumType, CompressType, Dva};
    use ondisk::{Lsize, Psize, Txg};

    use super::*;

    fn block(offset: u64, copies: usize, gang: bool) -> SharedBlock {
        let dva = Dva { vdev: 0.into(), offset: offset.into(), asize: 4096.into(), gang };
        SharedBlock { dvas: vec![dva; copies], physical_birth: Txg(7) }
    }

    fn key() -> DdtKey {
        DdtKey::of_parts([1, 2, 3, 4], Lsize(4096), Psize(4096), CompressType::Off)
    }

    fn pointer(live: &Live, place: usize) -> Blkptr {
        live.phys.all_slots()[place].blkptr(&key(), ChecksumType::Sha256).unwrap()
    }

    #[test]
    fn a_traditional_entry_has_a_slot_for_each_number_of_copies() {
        let mut live = Live::new(PhysForm::Traditional);
        assert_eq!(live.entry(&key(), 1), Entry::New);
        live.store(1, &block(0x1000, 1, false), None).unwrap();
        assert_eq!(live.entry(&key(), 1), Entry::Shared(block(0x1000, 1, false)));
        assert_eq!(live.entry(&key(), 2), Entry::New);
        live.store(2, &block(0x2000, 2, false), None).unwrap();
        assert_eq!(live.phys.total_refcount(), 2);
        assert!(live.store(2, &block(0x3000, 2, false), None).is_err());
        assert!(live.refer_to(&pointer(&live, 2)).unwrap());
        assert!(live.release(&pointer(&live, 1)).unwrap());
        assert!(live.release(&pointer(&live, 1)).is_err(), "no reference is left");
        let gone = take_unreferenced(&mut live.phys);
        assert_eq!(gone.len(), 1);
        assert_eq!(gone[0].dvas(false).unwrap(), block(0x1000, 1, false).dvas);
        assert_eq!(live.phys.total_refcount(), 2);
    }

    #[test]
    fn a_flat_entry_serves_blocks_of_no_more_copies_than_it_has() {
        let mut live = Live::new(PhysForm::Flat);
        live.store(2, &block(0x1000, 2, false), None).unwrap();
        assert_eq!(live.entry(&key(), 1), Entry::Shared(block(0x1000, 2, false)));
        assert_eq!(live.entry(&key(), 3), Entry::Unfit);
        live.refer(1).unwrap();
        assert_eq!(live.phys.total_refcount(), 2);
        let elsewhere = {
            let mut other = Live::new(PhysForm::Flat);
            other.store(1, &block(0x9000, 1, false), None).unwrap();
            pointer(&other, 0)
        };
        assert!(!live.release(&elsewhere).unwrap() && !live.refer_to(&elsewhere).unwrap());
    }

    #[test]
    fn gangs_of_traditional_entries_are_left_alone() {
        for (form, is_used) in [(PhysForm::Flat, true), (PhysForm::Traditional, false)] {
            let mut live = Live::new(form);
            live.store(1, &block(0x1000, 2, true), None).unwrap();
            assert_eq!(matches!(live.entry(&key(), 1), Entry::Shared(_)), is_used, "{form:?}");
        }
    }

    #[test]
    fn an_entry_that_ends_as_it_began_is_not_changed() {
        let mut live = Live::new(PhysForm::Flat);
        live.store(1, &block(0x1000, 1, false), None).unwrap();
        let mut again = Live::found(live.phys, Origin::Stored(DdtClass::Unique), Some(DdtClass::Unique));
        let bp = pointer(&again, 0);
        again.refer(1).unwrap();
        assert!(again.is_changed());
        assert!(again.release(&bp).unwrap() && !again.is_changed());
    }

    #[test]
    fn ditto_slots_go_whatever_they_count() {
        let mut phys = DdtPhys::unused(PhysForm::Traditional);
        let ditto = DdtSlot::of_block(&block(0x4000, 3, false).dvas, Txg(3)).unwrap();
        phys.all_slots_mut()[0] = DdtSlot { refcount: 5, ..ditto };
        assert_eq!(take_unreferenced(&mut phys).len(), 1);
        assert!(phys.is_unused());
    }
}
