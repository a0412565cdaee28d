//! The units of a target, by their numbers, and those that an initiator has open anywhere.
//!
//! What does not depend on a unit, the target answers: which units there are, and commands to units that
//! there are not.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, Weak};

use device::{IgnorePoison, IoBuf};
use tokio::sync::Notify;

use super::command::{Shape, What};
use super::{Command, Found, Outcome, Sense, Unit, inquiry};
use crate::block::{Export, Listed};

/// Units that were opened, with their numbers.
pub(in crate::iscsi) type Opened<E> = Vec<(u8, Arc<Unit<E>>)>;

/// The units of a target as one session has them.
pub(in crate::iscsi) struct Units<E> {
    target: String,
    /// The number of the volume that the target belongs to, if it is a volume's own.
    own: Option<u64>,
    by_number: BTreeMap<u8, Arc<Unit<E>>>,
    wake: Arc<Notify>,
}

impl<E: Export> Units<E> {
    /// Those of a target, which wake their session through this.
    pub fn new(target: String, own: Option<u64>, units: Opened<E>, wake: Arc<Notify>) -> Self {
        Self { target, own, by_number: units.into_iter().collect(), wake }
    }

    /// Wakes the session when another one interrupts commands.
    pub fn wake(&self) -> &Arc<Notify> {
        &self.wake
    }

    /// The number of the volume that the target belongs to, if it is a volume's own.
    pub fn own(&self) -> Option<u64> {
        self.own
    }

    /// Takes away those that are not among the members. The members that are not open yet, and whether some
    /// were taken away.
    pub fn keep(&mut self, mut members: BTreeMap<u8, Listed>) -> (BTreeMap<u8, Listed>, bool) {
        let before = self.by_number.len();
        self.by_number.retain(|number, unit| {
            let Some(member) = members.get(number).filter(|member| unit.is_of(member)) else { return false };
            unit.set_threshold(member.share.threshold);
            members.remove(number);
            true
        });
        let is_changed = self.by_number.len() != before;
        if is_changed {
            self.iter().for_each(|(_, unit)| unit.has_other_neighbours());
        }
        (members, is_changed)
    }

    /// Adds units. Whether there were some.
    pub fn add(&mut self, units: Opened<E>) -> bool {
        let is_changed = !units.is_empty();
        self.by_number.extend(units);
        if is_changed {
            self.iter().for_each(|(_, unit)| unit.has_other_neighbours());
        }
        is_changed
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

    /// Answers a command that needs no unit.
    pub fn answer(&self, lun: [u8; 8], descriptor: &[u8; 16]) -> Option<Outcome> {
        let is_missing = self.get(lun).is_none();
        if !is_missing && descriptor.first() != Some(&REPORT_LUNS) {
            return None;
        }
        let (room, data) = match Command::parse(descriptor, Shape::NONE) {
            Ok(Command { what: What::ReportLuns, room, .. }) => {
                self.iter().for_each(|(_, unit)| unit.knows_its_neighbours());
                (room, list(self.by_number.keys()))
            }
            Ok(Command { what: What::Inquiry { .. }, room, .. }) if is_missing => (room, inquiry::missing()),
            Err(sense) if is_missing && Command::is_always_answered(descriptor) => {
                return Some(Outcome::Check(sense));
            }
            _ => return is_missing.then_some(Outcome::Check(Sense::NO_SUCH_UNIT)),
        };
        let data = data.get(..data.len().min(room)).unwrap_or_default();
        Some(Outcome::Good(Found::Bytes(IoBuf::from(data))))
    }
}

/// The operation that all units answer alike.
const REPORT_LUNS: u8 = 0xa0;

/// The number of a unit, in the peripheral or the flat form of one level.
fn number(lun: [u8; 8]) -> Option<u8> {
    match lun {
        [0 | 0x40, number, 0, 0, 0, 0, 0, 0] => Some(number),
        _ => None,
    }
}

/// The list of units that REPORT LUNS gives.
fn list<'a>(numbers: impl ExactSizeIterator<Item = &'a u8>) -> Vec<u8> {
    let mut list = (numbers.len() as u32 * 8).to_be_bytes().to_vec();
    list.extend([0; 4]);
    for number in numbers {
        list.extend([0, *number, 0, 0, 0, 0, 0, 0]);
    }
    list
}

/// The initiator's name, and the unit's.
type Names = (String, [u8; 8]);

/// The units that initiators have open, through any target: what EXTENDED COPY can reach.
pub(in crate::iscsi) struct Reach<E> {
    units: Mutex<HashMap<Names, Weak<Unit<E>>>>,
}

impl<E> Default for Reach<E> {
    fn default() -> Self {
        Self { units: Mutex::default() }
    }
}

impl<E: Export> Reach<E> {
    /// An initiator opened these.
    pub fn add<'a>(&self, initiator: &str, opened: impl Iterator<Item = &'a Arc<Unit<E>>>) {
        let mut units = self.units.lock().ignore_poison();
        units.retain(|_, unit| unit.strong_count() > 0);
        for unit in opened {
            units.insert((initiator.to_owned(), unit.naa()), Arc::downgrade(unit));
        }
    }

    /// The unit of this name, if the initiator has it open.
    pub fn find(&self, initiator: &str, name: [u8; 8]) -> Option<Arc<Unit<E>>> {
        self.units.lock().ignore_poison().get(&(initiator.to_owned(), name)).and_then(Weak::upgrade)
    }
}
