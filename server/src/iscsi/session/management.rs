//! Requests to end tasks.

use std::collections::HashSet;

use super::super::pdu::{Header, answer};
use super::{Abort, Connection};
use crate::block::Export;

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
        match (function, &self.units) {
            (5, _) => unit.into_iter().for_each(|unit| unit.reset()),
            (6 | 7, Some(units)) => units.iter().for_each(|(_, unit)| unit.reset()),
            _ => {}
        }
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
                self.aborted.insert(task);
                tasks.insert(task);
            } else {
                self.postponed.retain(|postponed| postponed.task.tag != task);
            }
        }
        match tasks.is_empty() {
            true => self.answer_management(tag, COMPLETE),
            false => self.aborts.push(Abort { tag, tasks }),
        }
    }

    pub(super) fn answer_management(&mut self, tag: u32, response: u8) {
        let header = Header::new(answer::TASK_MANAGEMENT).set(2, &[response]).set_word(16, tag);
        self.answer(header, &[]);
    }
}
