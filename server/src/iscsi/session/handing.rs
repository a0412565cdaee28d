//! What goes over to the task that goes on with a session.

use std::collections::BTreeMap;
use std::os::fd::AsFd;

use super::super::login::Initiator;
use super::super::pdu::{self, Pdu, request};
use super::super::{PROTOCOL, RESERVATIONS};
use super::{Connection, Place};
use crate::block::Export;
use crate::gate::{Parked, Told};

impl<E: Export> Connection<E> {
    /// Whether nothing is under way.
    pub(super) fn is_at_boundary(&self) -> bool {
        self.under_way() == 0
            && self.running.is_empty()
            && self.ended.is_empty()
            && self.interrupting.is_empty()
            && self.aborts.is_empty()
            && self.text.is_empty()
            && self.out.is_empty()
            && !self.is_leaving
    }

    /// Whether a unit has data that a write under way waits for.
    pub(super) fn awaits(&self, unit: &Pdu) -> bool {
        unit.header.operation() == request::DATA_OUT && self.is_known(unit.header.task_tag())
    }

    /// What the task that goes on needs; `aside` are units that came and were not taken. Nothing where none
    /// can go on: a discovery, or a unit that is to be refused because it was damaged on its way.
    pub(super) fn parked(
        &self,
        place: &Place,
        (initiator, shared_with): &(Initiator, Option<String>),
        aside: &[Pdu],
    ) -> Option<Parked> {
        let units = self.units.as_ref()?;
        if aside.iter().any(|unit| unit.is_damaged) {
            return None;
        }
        let socket = place.socket.as_ref()?.as_fd().try_clone_to_owned().ok()?;
        let mut bytes = Vec::new();
        for unit in aside {
            // What was additional in its header was passed over.
            pdu::write(&mut bytes, unit.header.set(4, &[0]), &unit.data, self.agreed.digests);
        }
        let [i0, i1, i2, i3, i4, i5] = initiator.isid;
        let mut facts: BTreeMap<String, u64> = [
            ("isid", u64::from_be_bytes([0, 0, i0, i1, i2, i3, i4, i5])),
            ("tsih", u64::from(place.tsih)),
            ("header-digest", u64::from(self.agreed.digests.header)),
            ("data-digest", u64::from(self.agreed.digests.data)),
            ("their-data", self.agreed.their_data_bytes as u64),
            ("burst", u64::from(self.agreed.burst_bytes)),
            ("first-burst", u64::from(self.agreed.first_burst_bytes)),
            ("immediate-data", u64::from(self.agreed.immediate_data)),
            ("command", u64::from(self.expected_command)),
            ("window-end", u64::from(self.window_end)),
            ("status", u64::from(self.status)),
            ("own", units.own().unwrap_or_default()),
        ]
        .into_iter()
        .map(|(name, fact)| (name.to_owned(), fact))
        .collect();
        let mut texts = BTreeMap::from([
            ("initiator".to_owned(), initiator.name.clone()),
            ("target".to_owned(), units.target().to_owned()),
        ]);
        texts.extend(shared_with.iter().map(|name| ("shared-with".to_owned(), name.clone())));
        for (guid, turn, text) in units.iter().filter_map(|(_, unit)| unit.reservations_as_they_are()) {
            facts.insert(format!("{RESERVATIONS}{guid}"), turn);
            texts.insert(format!("{RESERVATIONS}{guid}"), text);
        }
        let read_bytes = bytes.len() as u64;
        let volume = units.target().to_owned();
        let told = Told { protocol: PROTOCOL.to_owned(), volume, facts, texts, read_bytes };
        Some(Parked { socket, told, bytes })
    }
}
