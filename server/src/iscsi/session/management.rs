//! Requests to end tasks, and tasks that another session ends.

use std::collections::HashSet;
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::join_all;

use super::super::pdu::{Header, answer};
use super::super::scsi::{Interruption, Outcome, Sense, Units};
use super::{Abort, Connection, Ended};
use crate::block::Export;

/// What other sessions are told of a reset.
const RESET: Interruption = Interruption::Reset(Sense::RESET);

/// What the initiator is told of a command that is aborted, when that has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AbortAnswer {
    Nothing,
    /// That another session aborted it.
    Aborted,
}

impl<E: Export> Connection<E> {
    /// Ends tasks.
    pub(super) fn manage(&mut self, header: &Header) {
        const COMPLETE: u8 = 0;
        const NO_TASK: u8 = 1;
        const NO_UNIT: u8 = 2;
        const NOT_SUPPORTED: u8 = 5;
        let (tag, function) = (header.task_tag(), header.flags() & 0x7f);
        let lun = header.array::<8>(8);
        let unit = self.units.as_ref().and_then(|units| units.get(lun));
        if matches!(function, 1..=5) && unit.is_none() {
            return self.answer_management(tag, NO_UNIT);
        }
        // There is one set of tasks for all initiators.
        let others: Vec<_> = match (function, &self.units) {
            (4, _) => unit.into_iter().map(|unit| unit.interrupt_others(Interruption::Cleared)).collect(),
            (5, _) => unit.into_iter().map(|unit| unit.interrupt_others(RESET)).collect(),
            (6 | 7, Some(units)) => units.iter().map(|(_, unit)| unit.interrupt_others(RESET)).collect(),
            _ => Vec::new(),
        };
        let meant: Vec<u32> = match function {
            1 => {
                let task = header.word(20);
                if !self.is_known(task) {
                    return self.answer_management(tag, NO_TASK);
                }
                vec![task]
            }
            // The set of tasks; the unit; the target.
            2 | 4..=7 => {
                let postponed =
                    self.postponed.iter().map(|postponed| (postponed.task.tag, postponed.task.lun));
                let incoming = self.incoming.iter().map(|(tag, transfer)| (*tag, transfer.task.lun));
                let active = self.active.iter().map(|(tag, lun)| (*tag, *lun));
                let tasks = active.chain(incoming).chain(postponed);
                tasks.filter(|(_, of)| function >= 6 || *of == lun).map(|(tag, _)| tag).collect()
            }
            _ => return self.answer_management(tag, NOT_SUPPORTED),
        };
        let mut tasks = HashSet::new();
        for task in meant {
            if let Some(transfer) = self.incoming.remove(&task) {
                self.held_bytes -= transfer.command.memory_bytes();
            } else if self.active.contains_key(&task) {
                self.aborted.insert(task, AbortAnswer::Nothing);
                tasks.insert(task);
            } else {
                self.postponed.retain(|postponed| postponed.task.tag != task);
            }
        }
        let waits_for_others = !others.is_empty();
        if waits_for_others {
            self.interrupting.push(join_all(others).map(move |_| tag).boxed());
        }
        match tasks.is_empty() && !waits_for_others {
            true => self.answer_management(tag, COMPLETE),
            false => self.aborts.push(Abort { tag, tasks, waits_for_others }),
        }
    }

    /// The commands have ended that ran in any session when this one interrupted them.
    pub(super) fn others_ended(&mut self, tag: u32) {
        let waiting = self.aborts.iter_mut().filter(|abort| abort.tag == tag);
        waiting.for_each(|abort| abort.waits_for_others = false);
        self.answer_aborts();
    }

    /// Answers requests to end tasks whose tasks have ended.
    pub(super) fn answer_aborts(&mut self) {
        for abort in std::mem::take(&mut self.aborts) {
            match abort.tasks.is_empty() && !abort.waits_for_others {
                true => self.answer_management(abort.tag, 0),
                false => self.aborts.push(abort),
            }
        }
    }

    /// Ends the commands that other sessions have interrupted.
    pub(super) fn take_interruptions(&mut self) {
        let units = self.units.iter().flat_map(Units::iter);
        let interrupted = units.filter_map(|(_, unit)| Some((Arc::clone(unit), unit.take_interruption()?)));
        for (unit, why) in interrupted.collect::<Vec<_>>() {
            let units = self.units.as_ref();
            let is_of =
                |lun| units.and_then(|units| units.get(lun)).is_some_and(|one| Arc::ptr_eq(one, &unit));
            let running: Vec<_> =
                self.active.iter().filter(|(_, lun)| is_of(**lun)).map(|(tag, _)| *tag).collect();
            let (mut ended, mut held_bytes) = (Vec::new(), 0);
            self.incoming.retain(|_, transfer| {
                let is_kept = !Arc::ptr_eq(&transfer.unit, &unit);
                if !is_kept {
                    ended.push(transfer.task);
                    held_bytes += transfer.command.memory_bytes();
                }
                is_kept
            });
            self.postponed.retain(|postponed| {
                let is_kept = !Arc::ptr_eq(&postponed.unit, &unit);
                if !is_kept {
                    ended.push(postponed.task);
                }
                is_kept
            });
            self.held_bytes -= held_bytes;
            if why == Interruption::Cleared && !(running.is_empty() && ended.is_empty()) {
                unit.tell_of_cleared_commands();
            }
            // Those that this session ends itself are not answered.
            running.into_iter().for_each(|tag| {
                self.aborted.entry(tag).or_insert(AbortAnswer::Aborted);
            });
            for task in ended {
                self.respond(&Ended { task, outcome: Outcome::Aborted, sends: 0, held_bytes: 0 });
            }
        }
    }

    pub(super) fn answer_management(&mut self, tag: u32, response: u8) {
        let header = Header::new(answer::TASK_MANAGEMENT).set(2, &[response]).set_word(16, tag);
        self.answer(header, &[]);
    }
}
