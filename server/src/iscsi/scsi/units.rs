//! The units of a target, by their numbers, and those that an initiator has open anywhere.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, Weak};

use device::IgnorePoison;

use super::{Command, Sense, Unit};
use crate::block::Export;

/// The units of a target as one session has them.
pub(in crate::iscsi) struct Units<E> {
    target: String,
    by_number: BTreeMap<u8, Arc<Unit<E>>>,
}

impl<E: Export> Units<E> {
    /// Those of a target.
    pub fn new(target: String, units: impl IntoIterator<Item = (u8, Unit<E>)>) -> Self {
        let by_number = units.into_iter().map(|(number, unit)| (number, Arc::new(unit))).collect();
        Self { target, by_number }
    }

    /// The target's name.
    pub fn target(&self) -> &str {
        &self.target
    }

    /// The unit that a command is for.
    pub fn get(&self, lun: [u8; 8]) -> Option<&Arc<Unit<E>>> {
        self.by_number.get(&number(lun)?)
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = (u8, &Arc<Unit<E>>)> {
        self.by_number.iter().map(|(number, unit)| (*number, unit))
    }

    /// Reads a command to a unit that does not exist, which another one answers.
    ///
    /// # Errors
    /// What the initiator is told.
    pub fn of_missing(&self, descriptor: &[u8; 16]) -> Result<(Arc<Unit<E>>, Command), Sense> {
        let (_, unit) = self.iter().next().ok_or(Sense::NO_SUCH_UNIT)?;
        Ok((Arc::clone(unit), unit.of_missing(descriptor)?))
    }
}

/// The number of a unit, in the peripheral or the flat form of one level.
fn number(lun: [u8; 8]) -> Option<u8> {
    match lun {
        [0 | 0x40, number, 0, 0, 0, 0, 0, 0] => Some(number),
        _ => None,
    }
}

/// The list of units that REPORT LUNS gives.
pub(super) fn list(numbers: &[u8]) -> Vec<u8> {
    let mut list = (numbers.len() as u32 * 8).to_be_bytes().to_vec();
    list.extend([0; 4]);
    for number in numbers {
        list.extend([0, *number, 0, 0, 0, 0, 0, 0]);
    }
    list
}

/// The initiator's name, and the unit's.
type Opened = (String, [u8; 8]);

/// The units that initiators have open, through any target: what EXTENDED COPY can reach.
pub(in crate::iscsi) struct Reach<E> {
    units: Mutex<HashMap<Opened, Weak<Unit<E>>>>,
}

impl<E> Default for Reach<E> {
    fn default() -> Self {
        Self { units: Mutex::default() }
    }
}

impl<E: Export> Reach<E> {
    /// An initiator opened these.
    pub fn add(&self, initiator: &str, opened: &Units<E>) {
        let mut units = self.units.lock().ignore_poison();
        units.retain(|_, unit| unit.strong_count() > 0);
        for (_, unit) in opened.iter() {
            units.insert((initiator.to_owned(), unit.naa()), Arc::downgrade(unit));
        }
    }

    /// The unit of this name, if the initiator has it open.
    pub fn find(&self, initiator: &str, name: [u8; 8]) -> Option<Arc<Unit<E>>> {
        self.units.lock().ignore_poison().get(&(initiator.to_owned(), name)).and_then(Weak::upgrade)
    }
}
