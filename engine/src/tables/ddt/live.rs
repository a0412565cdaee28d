//! Entries that the open sync looks at and changes.
//!
//! An entry is *live* from the time when a group first needs it until the group's changes are written. It
//! remembers what it was before, so that statistics are corrected once for all changes of a group, and an
//! entry that ends up as it began is not written at all.

use ondisk::blkptr::Blkptr;
use ondisk::ddt::{DdtClass, DdtFlat, DdtKey, DdtPhys, DdtSlot, PhysForm};

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

/// The value, and what each slot counted when the entry was found.
#[derive(Debug, Clone)]
enum Held {
    Flat(DdtFlat, u64),
    Traditional(Box<([DdtSlot; 4], [u64; 4])>),
}

/// A live entry.
#[derive(Debug, Clone)]
pub(super) struct Live {
    held: Held,
    /// The slots that were in use when it was found, a bit each. Until the group's changes are written no
    /// slot in use gets another block: so these bits and the counts are all that was different.
    had: u8,
    pub origin: Origin,
    /// The class in whose ZAP the key is.
    pub class: Option<DdtClass>,
}

impl Live {
    /// An entry that was found.
    pub(super) fn found(phys: DdtPhys, origin: Origin, class: Option<DdtClass>) -> Self {
        let used = phys.all_slots().iter().enumerate().filter(|(_, slot)| slot.is_used());
        let had = used.fold(0, |had, (place, _)| had | 1u8 << (place & 7));
        let held = match phys {
            DdtPhys::Flat(flat) => Held::Flat(flat, flat.slot.refcount),
            DdtPhys::Traditional(slots) => {
                Held::Traditional(Box::new((slots, slots.map(|slot| slot.refcount))))
            }
        };
        Self { held, had, origin, class }
    }

    /// An entry that is nowhere yet.
    pub(super) fn new(form: PhysForm) -> Self {
        Self::found(DdtPhys::unused(form), Origin::New, None)
    }

    /// Its value.
    pub(super) fn phys(&self) -> DdtPhys {
        match &self.held {
            Held::Flat(flat, _) => DdtPhys::Flat(*flat),
            Held::Traditional(held) => DdtPhys::Traditional(held.0),
        }
    }

    /// The form of its value.
    pub(super) fn form(&self) -> PhysForm {
        match &self.held {
            Held::Flat(..) => PhysForm::Flat,
            Held::Traditional(_) => PhysForm::Traditional,
        }
    }

    fn slots(&self) -> &[DdtSlot] {
        match &self.held {
            Held::Flat(flat, _) => std::slice::from_ref(&flat.slot),
            Held::Traditional(held) => &held.0,
        }
    }

    fn slots_mut(&mut self) -> &mut [DdtSlot] {
        match &mut self.held {
            Held::Flat(flat, _) => std::slice::from_mut(&mut flat.slot),
            Held::Traditional(held) => &mut held.0,
        }
    }

    fn counted_before(&self) -> &[u64] {
        match &self.held {
            Held::Flat(_, before) => std::slice::from_ref(before),
            Held::Traditional(held) => &held.1,
        }
    }

    const fn had(&self, place: usize) -> bool {
        self.had & 1 << (place & 7) != 0
    }

    /// The value when it was found.
    pub(super) fn before(&self) -> DdtPhys {
        let mut phys = self.phys();
        let before = phys.all_slots_mut().iter_mut().zip(self.counted_before());
        for (place, (slot, counted)) in before.enumerate() {
            *slot = match self.had(place) {
                true => DdtSlot { refcount: *counted, ..*slot },
                false => DdtSlot::default(),
            };
        }
        phys
    }

    /// Whether it is in no table and no block was stored for it yet.
    pub(super) fn is_nowhere(&self) -> bool {
        self.origin == Origin::New && self.slots().iter().all(|slot| !slot.is_used())
    }

    /// Whether it must be written.
    pub(super) fn is_changed(&self) -> bool {
        let mut slots = self.slots().iter().zip(self.counted_before()).enumerate();
        slots.any(|(place, (slot, counted))| {
            slot.is_used() != self.had(place) || (slot.is_used() && slot.refcount != *counted)
        })
    }

    fn slot(&self, copies: u8) -> Option<&DdtSlot> {
        self.slots().get(DdtPhys::place_of(self.form(), copies))
    }

    fn slot_mut(&mut self, copies: u8) -> Result<&mut DdtSlot> {
        let place = DdtPhys::place_of(self.form(), copies);
        self.slots_mut().get_mut(place).ok_or_else(|| contradiction("a slot that does not exist"))
    }

    fn slot_of(&mut self, bp: &Blkptr) -> Option<&mut DdtSlot> {
        self.slots_mut().iter_mut().find(|slot| slot.is_of(bp))
    }

    /// What it says of a block that shall have so many copies. A block whose references are all gone, and
    /// whose space is not free yet, is used again.
    pub(super) fn entry(&self, key: &DdtKey, copies: u8) -> Entry {
        let Some(slot) = self.slot(copies).filter(|slot| slot.is_used()) else { return Entry::New };
        let Ok(dvas) = slot.dvas(key.is_encrypted()) else { return Entry::Unfit };
        let is_gang = dvas.iter().any(|dva| dva.gang);
        let is_misread = is_gang && self.form() == PhysForm::Traditional;
        match dvas.len() < usize::from(copies) || is_misread || slot.refcount == u64::MAX {
            true => Entry::Unfit,
            false => Entry::Shared(SharedBlock {
                dvas,
                salt_and_iv: slot.salt_and_iv(key.is_encrypted()),
                physical_birth: slot.phys_birth,
            }),
        }
    }

    /// A block is stored for it, with one reference.
    pub(super) fn store(&mut self, copies: u8, block: &SharedBlock) -> Result<()> {
        let slot = self.slot_mut(copies)?;
        if slot.is_used() {
            return Err(contradiction("a block that is entered twice"));
        }
        let new = DdtSlot::of_block(&block.dvas, block.salt_and_iv, block.physical_birth);
        *slot = DdtSlot { refcount: 1, ..new.map_err(Error::format("a dedup table"))? };
        Ok(())
    }

    /// One reference more to the block for so many copies.
    pub(super) fn refer(&mut self, copies: u8) -> Result<()> {
        count_up(self.slot_mut(copies)?)
    }

    /// One reference more to the block that a pointer leads to. False when the entry does not know it.
    pub(super) fn refer_to(&mut self, bp: &Blkptr) -> Result<bool> {
        match self.slot_of(bp) {
            // A pruned entry's block is not in the slot, and one without references has no pointer.
            Some(slot) if slot.refcount > 0 => count_up(slot).map(|()| true),
            _ => Ok(false),
        }
    }

    /// One reference less to the block that a pointer leads to. False when the entry does not know it.
    pub(super) fn release(&mut self, bp: &Blkptr) -> Result<bool> {
        let Some(slot) = self.slot_of(bp) else { return Ok(false) };
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
        SharedBlock { dvas: vec![dva; copies], salt_and_iv: None, physical_birth: Txg(7) }
    }

    fn key() -> DdtKey {
        DdtKey::of_parts([1, 2, 3, 4], Lsize(4096), Psize(4096), CompressType::Off)
    }

    fn pointer(live: &Live, place: usize) -> Blkptr {
        live.phys().all_slots()[place].blkptr(&key(), ChecksumType::Sha256).unwrap()
    }

    #[test]
    fn a_traditional_entry_has_a_slot_for_each_number_of_copies() {
        let mut live = Live::new(PhysForm::Traditional);
        assert_eq!(live.entry(&key(), 1), Entry::New);
        live.store(1, &block(0x1000, 1, false)).unwrap();
        assert_eq!(live.entry(&key(), 1), Entry::Shared(block(0x1000, 1, false)));
        assert_eq!(live.entry(&key(), 2), Entry::New);
        live.store(2, &block(0x2000, 2, false)).unwrap();
        assert_eq!(live.phys().total_refcount(), 2);
        assert!(live.store(2, &block(0x3000, 2, false)).is_err());
        assert!(live.refer_to(&pointer(&live, 2)).unwrap());
        assert!(live.release(&pointer(&live, 1)).unwrap());
        assert!(live.release(&pointer(&live, 1)).is_err(), "no reference is left");
        let mut left = live.phys();
        let gone = take_unreferenced(&mut left);
        assert_eq!(gone.len(), 1);
        assert_eq!(gone[0].dvas(false).unwrap(), block(0x1000, 1, false).dvas);
        assert_eq!(left.total_refcount(), 2);
    }

    #[test]
    fn a_flat_entry_serves_blocks_of_no_more_copies_than_it_has() {
        let mut live = Live::new(PhysForm::Flat);
        live.store(2, &block(0x1000, 2, false)).unwrap();
        assert_eq!(live.entry(&key(), 1), Entry::Shared(block(0x1000, 2, false)));
        assert_eq!(live.entry(&key(), 3), Entry::Unfit);
        live.refer(1).unwrap();
        assert_eq!(live.phys().total_refcount(), 2);
        let elsewhere = {
            let mut other = Live::new(PhysForm::Flat);
            other.store(1, &block(0x9000, 1, false)).unwrap();
            pointer(&other, 0)
        };
        assert!(!live.release(&elsewhere).unwrap() && !live.refer_to(&elsewhere).unwrap());
    }

    #[test]
    fn an_entry_of_an_encrypted_block_gives_its_salt_and_iv_and_two_copies_at_most() {
        let key = key().encrypted();
        for form in [PhysForm::Flat, PhysForm::Traditional] {
            let mut live = Live::new(form);
            let sealed = SharedBlock { salt_and_iv: Some([3, 5]), ..block(0x1000, 2, false) };
            live.store(2, &sealed).unwrap();
            assert_eq!(live.entry(&key, 2), Entry::Shared(sealed.clone()), "{form:?}");
            if form == PhysForm::Flat {
                assert_eq!(live.entry(&key, 3), Entry::Unfit);
            }
            let place = DdtPhys::place_of(form, 2);
            let bp = live.phys().all_slots()[place].blkptr(&key, ChecksumType::Sha256).unwrap();
            assert_eq!((bp.copies(), bp.salt_and_iv_words()), (2, Some([3, 5])));
            assert!(live.refer_to(&bp).unwrap() && live.release(&bp).unwrap());
            let three = SharedBlock { salt_and_iv: Some([3, 5]), ..block(0x1000, 3, false) };
            assert!(Live::new(form).store(3, &three).is_err());
        }
    }

    #[test]
    fn gangs_of_traditional_entries_are_left_alone() {
        for (form, is_used) in [(PhysForm::Flat, true), (PhysForm::Traditional, false)] {
            let mut live = Live::new(form);
            live.store(1, &block(0x1000, 2, true)).unwrap();
            assert_eq!(matches!(live.entry(&key(), 1), Entry::Shared(_)), is_used, "{form:?}");
        }
    }

    #[test]
    fn an_entry_that_ends_as_it_began_is_not_changed() {
        let mut live = Live::new(PhysForm::Flat);
        live.store(1, &block(0x1000, 1, false)).unwrap();
        let mut again = Live::found(live.phys(), Origin::Stored(DdtClass::Unique), Some(DdtClass::Unique));
        let bp = pointer(&again, 0);
        again.refer(1).unwrap();
        assert!(again.is_changed());
        assert_eq!((again.before(), again.phys().total_refcount()), (live.phys(), 2));
        assert!(again.release(&bp).unwrap() && !again.is_changed());
        assert!(again.release(&bp).unwrap() && again.is_changed(), "no reference is left");
        assert_eq!(again.before(), live.phys());
        let mut new = Live::new(PhysForm::Traditional);
        assert!(new.is_nowhere() && !again.is_nowhere());
        new.store(3, &block(0x5000, 3, false)).unwrap();
        assert!(new.is_changed() && new.before().is_unused() && !new.is_nowhere());
    }

    #[test]
    fn ditto_slots_go_whatever_they_count() {
        let mut phys = DdtPhys::unused(PhysForm::Traditional);
        let ditto = DdtSlot::of_block(&block(0x4000, 3, false).dvas, None, Txg(3)).unwrap();
        phys.all_slots_mut()[0] = DdtSlot { refcount: 5, ..ditto };
        assert_eq!(take_unreferenced(&mut phys).len(), 1);
        assert!(phys.is_unused());
    }
}
