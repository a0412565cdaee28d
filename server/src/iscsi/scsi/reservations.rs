//! Persistent reservations: which initiators may use a unit, as they agree among themselves.
//!
//! An initiator registers a key. Registered ones can reserve the unit, and take a reservation from another
//! by its key, which is how a cluster fences a member that does not answer. What belongs to an initiator is
//! known by its name and the number of its session, so that it outlives connections.
//!
//! | type | others read | others write | who counts as its holder |
//! |---|---|---|---|
//! | 1, 3 | with 1 | no | one initiator |
//! | 5, 6 | with 5 | no | one initiator; all that are registered may use the unit |
//! | 7, 8 | with 7 | no | all that are registered |
//!
//! An initiator that registers says whether all of this is to outlast a loss of power. Then it is kept with
//! the volume, in its pool ([`crate::block::Export::keep`]), before the command is answered, and goes where
//! the pool goes; otherwise it lives as long as the daemon.
//!
//! Beside these there is the reservation of SPC-2 (RESERVE and RELEASE): of one initiator, as long as its
//! session lives, and not together with registrations.
//!
//! Source of the facts: SPC-4, sections 5.13, 6.15 and 6.16; SPC-2, sections 7.21 and 7.22.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use super::super::login::Initiator;
use super::sense::Sense;
use crate::block::MOST_KEPT_BYTES;

/// Initiators that are registered with a unit.
const MOST_REGISTERED: usize = 1024;

/// The types that there are, as REPORT CAPABILITIES has them.
const TYPES: [u8; 2] = [0xea, 0x01];

/// Why a command is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::iscsi) enum Refusal {
    /// A reservation of others is in the way.
    Conflict,
    /// It makes no sense.
    Check(Sense),
}

/// What a command does to the unit's contents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Use {
    Nothing,
    Reads,
    Writes,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "u8", into = "u8")]
struct Kind(u8);

impl From<Kind> for u8 {
    fn from(kind: Kind) -> Self {
        kind.0
    }
}

impl TryFrom<u8> for Kind {
    type Error = String;

    fn try_from(byte: u8) -> Result<Self, String> {
        Self::new(byte).ok_or_else(|| format!("there is no reservation of type {byte}"))
    }
}

impl Kind {
    fn new(byte: u8) -> Option<Self> {
        matches!(byte, 1 | 3 | 5..=8).then_some(Self(byte))
    }

    fn lets_others_read(self) -> bool {
        matches!(self.0, 1 | 5 | 7)
    }

    fn lets_registered(self) -> bool {
        self.0 >= 5
    }

    fn is_of_all(self) -> bool {
        self.0 >= 7
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Held {
    /// None where it is of all that are registered.
    by: Option<Initiator>,
    kind: Kind,
}

/// What is kept of reservations.
#[derive(Debug, Serialize, Deserialize)]
struct Kept {
    /// The volume's number: what a copy of the volume was sent with is not its own.
    volume: u64,
    generation: u32,
    registered: Vec<(Initiator, u64)>,
    held: Option<Held>,
}

/// All that another daemon has to know of reservations, those that are not kept included.
#[derive(Debug, Serialize, Deserialize)]
struct AsTheyAre {
    is_kept: bool,
    generation: u32,
    taken: Option<Initiator>,
    registered: Vec<(Initiator, u64)>,
    held: Option<Held>,
}

/// The registrations and the reservation of a unit.
#[derive(Debug, Default, Clone)]
pub(super) struct Reservations {
    generation: u32,
    /// All this is to outlast a loss of power.
    is_kept: bool,
    /// Who took the unit by RESERVE.
    taken: Option<Initiator>,
    /// In the order in which they came.
    registered: Vec<(Initiator, u64)>,
    held: Option<Held>,
    /// What initiators are to be told.
    attentions: HashMap<Initiator, Sense>,
}

/// The parameters of PERSISTENT RESERVE OUT.
#[derive(Debug, Clone, Copy)]
pub(super) struct Change {
    pub action: u8,
    pub kind: u8,
    key: u64,
    new_key: u64,
    /// It is to outlast a loss of power.
    pub is_kept: bool,
}

impl Change {
    /// Reads the parameters that follow a descriptor.
    ///
    /// # Errors
    /// They are too short, or ask for what there is not.
    pub fn parse(action: u8, kind: u8, data: &[u8]) -> Result<Self, Sense> {
        let number =
            |at: usize| data.get(at..).and_then(|rest| rest.first_chunk()).copied().map(u64::from_be_bytes);
        let (key, new_key) = number(0).zip(number(8)).ok_or(Sense::PARAMETER_LENGTH)?;
        let flags = data.get(20).filter(|_| data.len() == 24).ok_or(Sense::PARAMETER_LENGTH)?;
        // Initiators named in the list.
        if flags & 0x08 != 0 {
            return Err(Sense::INVALID_PARAMETER);
        }
        Ok(Self { action, kind, key, new_key, is_kept: flags & 1 != 0 })
    }
}

impl Reservations {
    /// What was kept of the reservations of a volume.
    ///
    /// # Errors
    /// It is not understood, for a person.
    pub fn from_text(text: &str, volume: u64) -> Result<Self, String> {
        let kept: Kept = serde_json::from_str(text).map_err(|error| error.to_string())?;
        let Kept { generation, registered, held, .. } = kept;
        match kept.volume == volume {
            true => Ok(Self { generation, is_kept: true, registered, held, ..Self::default() }),
            false => Ok(Self::default()),
        }
    }

    /// What is to be kept of them.
    ///
    /// # Errors
    /// It is more than can be kept.
    pub fn to_text(&self, volume: u64) -> Result<Option<String>, Sense> {
        if !self.is_kept || self.registered.is_empty() {
            return Ok(None);
        }
        let Self { generation, registered, held, .. } = self.clone();
        let text = serde_json::to_string(&Kept { volume, generation, registered, held });
        let text = text.map_err(|_| Sense::TOO_MANY_REGISTERED)?;
        if text.len() < MOST_KEPT_BYTES { Ok(Some(text)) } else { Err(Sense::TOO_MANY_REGISTERED) }
    }

    /// All of them, for another daemon. Nothing where there are none.
    pub fn as_they_are(&self) -> Option<String> {
        if self.taken.is_none() && self.registered.is_empty() && self.generation == 0 {
            return None;
        }
        let Self { is_kept, generation, taken, registered, held, .. } = self.clone();
        serde_json::to_string(&AsTheyAre { is_kept, generation, taken, registered, held }).ok()
    }

    /// Those of another daemon.
    ///
    /// # Errors
    /// They are not understood, for a person.
    pub fn as_they_were(text: &str) -> Result<Self, String> {
        let AsTheyAre { is_kept, generation, taken, registered, held } =
            serde_json::from_str(text).map_err(|error| error.to_string())?;
        Ok(Self { is_kept, generation, taken, registered, held, ..Self::default() })
    }

    /// Takes the unit for one initiator.
    ///
    /// # Errors
    /// Another one has it, or some are registered.
    pub fn reserve_unit(&mut self, initiator: &Initiator) -> Result<(), Refusal> {
        if self.is_taken_from(initiator) || !self.registered.is_empty() {
            return Err(Refusal::Conflict);
        }
        self.taken = Some(initiator.clone());
        Ok(())
    }

    /// Gives the unit up, if the initiator has it.
    pub fn release_unit(&mut self, initiator: &Initiator) {
        self.taken.take_if(|taken| taken == initiator);
    }

    /// Takes the unit from the initiator that has it.
    pub fn release_all_units(&mut self) {
        self.taken = None;
    }

    /// Whether another initiator has taken the unit.
    pub fn is_taken_from(&self, initiator: &Initiator) -> bool {
        self.taken.as_ref().is_some_and(|taken| taken != initiator)
    }

    /// What an initiator is to be told before its next command is done.
    pub fn attention(&mut self, initiator: &Initiator) -> Option<Sense> {
        if self.attentions.is_empty() { None } else { self.attentions.remove(initiator) }
    }

    /// Whether an initiator may use the unit.
    pub fn lets(&self, initiator: &Initiator, usage: Use) -> bool {
        let Some(held) = &self.held else { return true };
        let is_holder = self.is_holder(initiator, held);
        let is_let = held.kind.lets_registered() && self.key(initiator).is_some();
        is_holder || is_let || usage == Use::Nothing || usage == Use::Reads && held.kind.lets_others_read()
    }

    fn key(&self, initiator: &Initiator) -> Option<u64> {
        self.registered.iter().find(|(known, _)| known == initiator).map(|(_, key)| *key)
    }

    fn is_holder(&self, initiator: &Initiator, held: &Held) -> bool {
        match &held.by {
            Some(holder) => holder == initiator,
            None => self.key(initiator).is_some(),
        }
    }

    /// Tells others that are registered.
    fn tell(&mut self, but: &Initiator, which: impl Fn(&Initiator, u64) -> bool, what: Sense) {
        let told = self.registered.iter().filter(|(other, key)| other != but && which(other, *key));
        self.attentions.extend(told.map(|(other, _)| (other.clone(), what)));
    }

    /// Gives the reservation up.
    fn release(&mut self, from: &Initiator) {
        let Some(held) = self.held.take() else { return };
        if held.kind.lets_registered() {
            self.tell(from, |_, _| true, Sense::RESERVATIONS_RELEASED);
        }
    }

    /// Does PERSISTENT RESERVE OUT.
    ///
    /// # Errors
    /// The initiator has no such key, others are in the way, or it makes no sense.
    pub fn change(&mut self, initiator: &Initiator, change: Change) -> Result<(), Refusal> {
        let own = self.key(initiator);
        let kind = || Kind::new(change.kind).ok_or(Refusal::Check(Sense::INVALID_FIELD));
        match change.action {
            // REGISTER; the same whatever the old key is.
            0 | 6 => {
                if change.action == 0 && own.unwrap_or(0) != change.key {
                    return Err(Refusal::Conflict);
                }
                if own.is_none() && change.new_key != 0 && self.registered.len() >= MOST_REGISTERED {
                    return Err(Refusal::Check(Sense::TOO_MANY_REGISTERED));
                }
                self.is_kept = change.is_kept;
                self.register(initiator, own.is_some(), change.new_key);
                return Ok(());
            }
            1..=5 if own != Some(change.key) => return Err(Refusal::Conflict),
            _ => {}
        }
        match change.action {
            1 => {
                let kind = kind()?;
                let is_kept = self
                    .held
                    .as_ref()
                    .is_none_or(|held| held.kind == kind && self.is_holder(initiator, held));
                if !is_kept {
                    return Err(Refusal::Conflict);
                }
                self.hold(initiator, kind);
            }
            2 => {
                let kind = kind()?;
                match &self.held {
                    Some(held) if self.is_holder(initiator, held) => match held.kind == kind {
                        true => self.release(initiator),
                        false => return Err(Refusal::Check(Sense::INVALID_RELEASE)),
                    },
                    _ => {}
                }
            }
            3 => {
                self.tell(initiator, |_, _| true, Sense::RESERVATIONS_PREEMPTED);
                self.registered.clear();
                self.held = None;
                self.generation = self.generation.wrapping_add(1);
            }
            4 | 5 => self.preempt(initiator, kind()?, change.new_key)?,
            _ => return Err(Refusal::Check(Sense::INVALID_FIELD)),
        }
        Ok(())
    }

    fn hold(&mut self, initiator: &Initiator, kind: Kind) {
        let by = (!kind.is_of_all()).then(|| initiator.clone());
        self.held = Some(Held { by, kind });
    }

    fn register(&mut self, initiator: &Initiator, is_known: bool, key: u64) {
        self.generation = self.generation.wrapping_add(1);
        match (is_known, key) {
            (false, 0) => {}
            (false, key) => self.registered.push((initiator.clone(), key)),
            (true, 0) => {
                self.registered.retain(|(known, _)| known != initiator);
                let is_last = self.registered.is_empty();
                let is_held = |held: &Held| held.by.as_ref().map_or(is_last, |holder| holder == initiator);
                if self.held.as_ref().is_some_and(is_held) {
                    self.release(initiator);
                }
            }
            (true, key) => {
                let known = self.registered.iter_mut().filter(|(known, _)| known == initiator);
                known.for_each(|(_, known)| *known = key);
            }
        }
    }

    /// Takes the registrations of a key away, and the reservation if it was of one of them.
    fn preempt(&mut self, initiator: &Initiator, kind: Kind, key: u64) -> Result<(), Refusal> {
        let takes_all = key == 0 && self.held.as_ref().is_some_and(|held| held.kind.is_of_all());
        if key == 0 && !takes_all {
            return Err(Refusal::Check(Sense::INVALID_PARAMETER));
        }
        let is_meant = |known: u64| takes_all || known == key;
        if !self.registered.iter().any(|(_, known)| is_meant(*known)) {
            return Err(Refusal::Conflict);
        }
        let holder = self.held.as_ref().and_then(|held| held.by.as_ref());
        let takes_over = takes_all || holder.is_some_and(|holder| self.key(holder) == Some(key));
        self.tell(initiator, |_, known| is_meant(known), Sense::REGISTRATIONS_PREEMPTED);
        self.registered.retain(|(known, of_known)| {
            known == initiator && (takes_over || !is_meant(*of_known)) || !is_meant(*of_known)
        });
        if takes_over {
            let changed = self.held.as_ref().is_some_and(|held| held.kind != kind);
            self.hold(initiator, kind);
            if changed {
                self.tell(initiator, |_, _| true, Sense::RESERVATIONS_RELEASED);
            }
        }
        self.generation = self.generation.wrapping_add(1);
        Ok(())
    }

    /// The initiators that are registered here and not there.
    pub fn lost_by(&self, next: &Self) -> Vec<Initiator> {
        let registered = self.registered.iter().map(|(initiator, _)| initiator);
        registered.filter(|initiator| next.key(initiator).is_none()).cloned().collect()
    }

    /// Answers PERSISTENT RESERVE IN.
    ///
    /// # Errors
    /// There is no such action.
    pub fn tell_of(&self, action: u8, can_be_kept: bool) -> Result<Vec<u8>, Sense> {
        let list = |body: Vec<u8>| {
            let mut data = self.generation.to_be_bytes().to_vec();
            data.extend((body.len() as u32).to_be_bytes());
            data.extend(body);
            data
        };
        Ok(match action {
            0 => list(self.registered.iter().flat_map(|(_, key)| key.to_be_bytes()).collect()),
            1 => list(self.held.as_ref().map_or_else(Vec::new, |held| {
                let key = held.by.as_ref().and_then(|holder| self.key(holder)).unwrap_or(0);
                let mut body = key.to_be_bytes().to_vec();
                body.extend([0, 0, 0, 0, 0, held.kind.0, 0, 0]);
                body
            })),
            // Whether they can be kept, and are.
            2 => {
                let (can, are) = (u8::from(can_be_kept), 0x80 | u8::from(self.is_kept));
                vec![0, 8, can, are, TYPES[0], TYPES[1], 0, 0]
            }
            3 => list(
                self.registered.iter().flat_map(|(initiator, key)| self.status(initiator, *key)).collect(),
            ),
            _ => return Err(Sense::INVALID_FIELD),
        })
    }

    fn status(&self, initiator: &Initiator, key: u64) -> Vec<u8> {
        let held = self.held.as_ref().filter(|held| self.is_holder(initiator, held));
        let isid: String = initiator.isid.iter().map(|byte| format!("{byte:02x}")).collect();
        let mut name = format!("{},i,0x{isid}", initiator.name).into_bytes();
        name.resize((name.len() + 1).next_multiple_of(4), 0);
        let mut body = key.to_be_bytes().to_vec();
        body.extend([
            0,
            0,
            0,
            0,
            u8::from(held.is_some()),
            held.map_or(0, |held| held.kind.0),
            0,
            0,
            0,
            0,
            0,
            1,
        ]);
        body.extend((name.len() as u32 + 4).to_be_bytes());
        // A port of an initiator, over iSCSI.
        body.extend([0x45, 0]);
        body.extend((name.len() as u16).to_be_bytes());
        body.extend(name);
        body
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn initiator(name: &str) -> Initiator {
        Initiator { name: name.into(), isid: [0; 6] }
    }

    fn change(action: u8, kind: u8, key: u64, new_key: u64) -> Change {
        Change { action, kind, key, new_key, is_kept: false }
    }

    #[test]
    fn each_type_lets_who_it_says() {
        let [holder, registered, other] = ["holder", "registered", "other"].map(initiator);
        for (kind, expected) in [
            (1, [(true, false), (true, false)]),
            (3, [(false, false), (false, false)]),
            (5, [(true, true), (true, false)]),
            (6, [(true, true), (false, false)]),
            (7, [(true, true), (true, false)]),
            (8, [(true, true), (false, false)]),
        ] {
            let mut unit = Reservations::default();
            assert_eq!(unit.change(&holder, change(1, kind, 7, 0)), Err(Refusal::Conflict));
            unit.change(&holder, change(0, 0, 0, 7)).expect("registers");
            unit.change(&registered, change(0, 0, 0, 8)).expect("registers");
            unit.change(&holder, change(1, kind, 7, 0)).expect("reserves");
            let lets = |who: &Initiator| (unit.lets(who, Use::Reads), unit.lets(who, Use::Writes));
            assert_eq!(lets(&holder), (true, true));
            assert_eq!([lets(&registered), lets(&other)], expected, "type {kind}");
            assert!(unit.lets(&other, Use::Nothing));
        }
    }

    #[test]
    fn a_reservation_is_taken_by_its_key() {
        let [dead, alive] = ["dead", "alive"].map(initiator);
        let mut unit = Reservations::default();
        unit.change(&dead, change(0, 0, 0, 1)).expect("registers");
        unit.change(&alive, change(0, 0, 0, 2)).expect("registers");
        unit.change(&dead, change(1, 1, 1, 0)).expect("reserves");
        assert_eq!(unit.change(&alive, change(4, 1, 2, 9)), Err(Refusal::Conflict), "no such key");
        unit.change(&alive, change(4, 1, 2, 1)).expect("takes it");
        assert!(unit.lets(&alive, Use::Writes) && !unit.lets(&dead, Use::Writes));
        assert_eq!(unit.attention(&dead), Some(Sense::REGISTRATIONS_PREEMPTED));
        assert_eq!(unit.attention(&dead), None);
        assert_eq!(
            unit.change(&dead, change(1, 1, 1, 0)),
            Err(Refusal::Conflict),
            "it is registered no more"
        );
        unit.change(&alive, change(0, 0, 2, 0)).expect("leaves");
        assert!(unit.lets(&dead, Use::Writes));
        assert_eq!(unit.tell_of(0, true).map(|data| data.len()), Ok(8));
    }

    #[test]
    fn what_is_kept_comes_back_for_its_volume_only() {
        let [one, other] = ["one", "other"].map(initiator);
        let mut unit = Reservations::default();
        unit.change(&one, Change { is_kept: true, ..change(0, 0, 0, 7) }).expect("registers");
        unit.change(&one, change(1, 3, 7, 0)).expect("reserves");
        let text = unit.to_text(99).expect("short").expect("to be kept");
        let again = Reservations::from_text(&text, 99).expect("understood");
        assert!(again.lets(&one, Use::Writes) && !again.lets(&other, Use::Reads));
        assert_eq!(again.tell_of(0, true), unit.tell_of(0, true));
        assert!(Reservations::from_text(&text, 98).expect("understood").lets(&other, Use::Writes));
        assert!(Reservations::from_text(&text.replace("\"kind\":3", "\"kind\":4"), 99).is_err());
        // The last who registers says whether it is to be kept.
        unit.change(&other, change(0, 0, 0, 8)).expect("registers");
        assert_eq!(unit.to_text(99), Ok(None));
        let mut many = Reservations::default();
        for index in 0..200 {
            let name = initiator(&format!("iqn.2001-01.org.example:{index:0100}"));
            many.change(&name, Change { is_kept: true, ..change(0, 0, 0, 7) }).expect("registers");
        }
        assert_eq!(many.to_text(99), Err(Sense::TOO_MANY_REGISTERED));
    }

    #[test]
    fn a_unit_that_one_took_is_of_no_other() {
        let [one, other] = ["one", "other"].map(initiator);
        let mut unit = Reservations::default();
        unit.reserve_unit(&one).expect("takes it");
        assert!(unit.is_taken_from(&other) && !unit.is_taken_from(&one));
        assert_eq!(unit.reserve_unit(&other), Err(Refusal::Conflict));
        unit.release_unit(&other);
        assert!(unit.is_taken_from(&other));
        unit.release_unit(&one);
        unit.change(&one, change(0, 0, 0, 7)).expect("registers");
        assert_eq!(unit.reserve_unit(&other), Err(Refusal::Conflict), "some are registered");
    }
}
