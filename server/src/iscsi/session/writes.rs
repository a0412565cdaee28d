//! Commands that begin, and the data of writes.

use std::sync::Arc;

use device::IoBuf;

use super::super::pdu::{Header, NO_TAG, answer};
use super::super::scsi::{Command, Outcome, Sense, Unit};
use super::{Connection, Ended, Postponed, Task};
use crate::block::{Export, ListedRequest};

/// A write whose data have not all come.
pub(super) struct Transfer<E> {
    pub(super) task: Task,
    pub(super) unit: Arc<Unit<E>>,
    pub(super) command: Command,
    pub(super) data: IoBuf,
    /// The bytes that came.
    filled: usize,
    /// The tag of what was asked for.
    asked: u32,
    /// The number of the next request for data.
    next_request: u32,
    /// The number of the next unit of data.
    next_data: u32,
    is_damaged: bool,
    /// That it waits, for a person who asks.
    listed: Option<ListedRequest>,
}

impl<E: Export> Connection<E> {
    /// Begins the first postponed command, for which there is memory.
    pub(super) fn go_on(&mut self) {
        let Some(first) = self.postponed.pop_front() else { return };
        let Postponed { task, unit, command, came, .. } = first;
        self.held_bytes += command.memory_bytes();
        let needed = command.sends().min(task.expected) as usize;
        let mut data = IoBuf::for_overwrite(needed);
        let filled = came.len().min(needed);
        data[..filled].copy_from_slice(&came[..filled]);
        let transfer = Transfer {
            task,
            unit,
            command,
            data,
            filled,
            asked: NO_TAG,
            next_request: 0,
            next_data: 0,
            is_damaged: false,
            listed: None,
        };
        match filled == needed {
            true => self.run(transfer),
            false => self.ask(transfer),
        }
    }

    /// Asks for the next burst of a write.
    fn ask(&mut self, mut transfer: Transfer<E>) {
        self.next_transfer = self.next_transfer.wrapping_add(1);
        if self.next_transfer == NO_TAG {
            self.next_transfer = 0;
        }
        (transfer.asked, transfer.next_data) = (self.next_transfer, 0);
        let length = (transfer.data.len() - transfer.filled).min(self.agreed.burst_bytes as usize);
        let header = Header::new(answer::R2T).set(8, &transfer.task.lun).set_word(16, transfer.task.tag);
        let header = header.set_word(20, transfer.asked).set_word(24, self.status);
        let header = header.set_word(36, transfer.next_request).set_word(40, transfer.filled as u32);
        transfer.next_request += 1;
        if transfer.listed.is_none() {
            transfer.listed = transfer.unit.list(&transfer.command, "the initiator's data");
        }
        self.incoming.insert(transfer.task.tag, transfer);
        self.append(header.set_word(44, length as u32), &[]);
    }

    pub(super) fn data_out(&mut self, header: &Header, data: &[u8], is_damaged: bool) {
        // Of a command that was refused or aborted: passed over.
        let Some(mut transfer) = self.incoming.remove(&header.task_tag()) else { return };
        let (offset, asked) = (header.word(40) as usize, header.word(20));
        let is_in_place = offset == transfer.filled || transfer.filled == transfer.data.len();
        if asked != transfer.asked || header.word(36) != transfer.next_data || !is_in_place {
            self.held_bytes -= transfer.command.memory_bytes();
            let outcome = Outcome::Check(Sense::ABORTED);
            return self.respond(&Ended { task: transfer.task, outcome, sends: 0, held_bytes: 0 });
        }
        transfer.is_damaged |= is_damaged;
        transfer.next_data = transfer.next_data.wrapping_add(1);
        let rest = transfer.data.get_mut(transfer.filled..).unwrap_or_default();
        // What is beyond the command's own length is passed over.
        let taken = data.len().min(rest.len());
        rest[..taken].copy_from_slice(&data[..taken]);
        transfer.filled += taken;
        match (header.is_final(), transfer.filled == transfer.data.len()) {
            (false, _) => drop(self.incoming.insert(transfer.task.tag, transfer)),
            (true, false) => self.ask(transfer),
            (true, true) if transfer.is_damaged => {
                self.held_bytes -= transfer.command.memory_bytes();
                let outcome = Outcome::Check(Sense::DAMAGED_DATA);
                self.respond(&Ended { task: transfer.task, outcome, sends: 0, held_bytes: 0 });
            }
            (true, true) => self.run(transfer),
        }
    }
}
