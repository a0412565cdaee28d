//! What an initiator is answered.

use super::super::login::LOGIN_DATA_BYTES;
use super::super::pdu::{self, FINAL, Header, NO_TAG, answer};
use super::super::scsi::{Found, Outcome, Sense};
use super::super::text::Text;
use super::{Connection, Directory, Ended, MOST_COMMANDS, is_after};
use crate::block::Export;

const OVERFLOW: u8 = 0x04;
const UNDERFLOW: u8 = 0x02;
const HAS_STATUS: u8 = 0x01;
const CONTINUE: u8 = 0x40;

const GOOD: u8 = 0;
const CHECK_CONDITION: u8 = 2;
const RESERVATION_CONFLICT: u8 = 0x18;
const TASK_ABORTED: u8 = 0x40;

/// Sense data as units of the protocol have them.
pub(super) fn with_length(sense: Sense) -> Vec<u8> {
    let bytes = sense.to_bytes();
    [&(bytes.len() as u16).to_be_bytes(), &bytes[..]].concat()
}

impl<E: Export> Connection<E> {
    /// Appends an answer with the next number.
    pub(super) fn answer(&mut self, header: Header, data: &[u8]) {
        let header = self.numbered(header);
        self.append(header, data);
    }

    fn numbered(&mut self, header: Header) -> Header {
        let header = header.set_word(24, self.status);
        self.status = self.status.wrapping_add(1);
        header
    }

    /// Appends an answer that has no number of its own.
    pub(super) fn append(&mut self, header: Header, data: &[u8]) {
        self.append_parts(header, (data.len(), std::iter::once(data)));
    }

    /// The same, of data that lie in parts.
    fn append_parts<'a>(&mut self, header: Header, data: (usize, impl Iterator<Item = &'a [u8]>)) {
        let room = MOST_COMMANDS.saturating_sub(self.under_way()) as u32;
        let header = header.set_word(28, self.expected_command);
        let end = self.expected_command.wrapping_add(room).wrapping_sub(1);
        if is_after(end, self.window_end) {
            self.window_end = end;
        }
        let header = header.set_word(32, self.window_end);
        pdu::write_parts(&mut self.out, header, data, self.agreed.digests);
    }

    /// Tells the initiator how a command ended, with the data that it asked for.
    pub(super) fn respond(&mut self, ended: &Ended) {
        let Ended { task, outcome, sends, .. } = ended;
        let (status, found, sense) = match outcome {
            Outcome::Good(found) => (GOOD, Some(found), None),
            Outcome::Check(sense) => (CHECK_CONDITION, None, Some(sense)),
            Outcome::Conflict => (RESERVATION_CONFLICT, None, None),
            Outcome::Aborted => (TASK_ABORTED, None, None),
            Outcome::Lacks(_) => (CHECK_CONDITION, None, Some(&Sense::TOO_FEW_BYTES)),
        };
        let found_bytes = found.map_or(0, Found::len);
        let moves = if task.reads || *sends == 0 { found_bytes as u64 } else { *sends };
        let moves = match outcome {
            Outcome::Good(_) => moves,
            Outcome::Lacks(bytes) => task.expected + bytes,
            Outcome::Check(_) | Outcome::Conflict | Outcome::Aborted => 0,
        };
        let (residual_flag, residual) = match moves.cmp(&task.expected) {
            std::cmp::Ordering::Less => (UNDERFLOW, task.expected - moves),
            std::cmp::Ordering::Equal => (0, 0),
            std::cmp::Ordering::Greater => (OVERFLOW, moves - task.expected),
        };
        let residual = u32::try_from(residual).unwrap_or(u32::MAX);
        let sent = found_bytes.min(usize::try_from(task.expected).unwrap_or(usize::MAX));
        let mut pieces = 0;
        if let Some(found) = found.filter(|_| task.reads && sent > 0) {
            let burst = self.agreed.burst_bytes as usize;
            let mut at = 0;
            while at < sent {
                // To the end of the burst at most.
                let end = (at + self.agreed.their_data_bytes).min((at / burst + 1) * burst).min(sent);
                let header = Header::new(answer::DATA_IN).set(8, &task.lun).set_word(16, task.tag);
                let header = header.set_word(20, NO_TAG).set_word(36, pieces).set_word(40, at as u32);
                let is_last = end == sent;
                let is_burst_over = is_last || end.is_multiple_of(burst);
                let header = if is_last {
                    let header = header.set_flags(FINAL | HAS_STATUS | residual_flag).set(3, &[GOOD]);
                    self.numbered(header.set_word(44, residual))
                } else {
                    header.set_flags(if is_burst_over { FINAL } else { 0 })
                };
                self.append_parts(header, (end - at, found.parts(at..end)));
                pieces += 1;
                at = end;
            }
            return;
        }
        let header = Header::new(answer::SCSI_RESPONSE).set_flags(FINAL | residual_flag);
        let header = header.set(3, &[status]).set_word(16, task.tag).set_word(44, residual);
        let sense = sense.map(|sense| with_length(*sense));
        self.answer(header, sense.as_deref().unwrap_or_default());
    }

    pub(super) async fn answer_text(&mut self, header: &Header, data: &[u8], directory: &impl Directory<E>) {
        // An initiator that goes on asks for the rest.
        if header.word(20) == NO_TAG {
            let Some(text) = Text::parse(data) else { return self.reject(header, 9) };
            let mut reply = Text::default();
            for (key, value) in &text.0 {
                match key.as_str() {
                    "SendTargets" => {
                        let of_session = self.units.as_ref().map(|units| units.target().to_owned());
                        for (target, addresses) in directory.targets().await {
                            let is_meant = match value.as_str() {
                                "All" => of_session.is_none(),
                                "" => of_session.as_ref() == Some(&target),
                                name => *name == target,
                            };
                            if is_meant {
                                reply.push("TargetName", &target);
                                for address in addresses {
                                    reply.push("TargetAddress", address);
                                }
                            }
                        }
                    }
                    "MaxRecvDataSegmentLength" => {}
                    key => reply.push(key, "NotUnderstood"),
                }
            }
            self.text = reply.to_bytes();
        }
        let most = self.agreed.their_data_bytes.min(LOGIN_DATA_BYTES);
        let rest = self.text.split_off(self.text.len().min(most));
        let piece = std::mem::replace(&mut self.text, rest);
        let is_last = self.text.is_empty();
        let reply = Header::new(answer::TEXT).set_flags(if is_last { FINAL } else { CONTINUE });
        let reply = reply.set_word(16, header.task_tag()).set_word(20, if is_last { NO_TAG } else { 1 });
        self.answer(reply, &piece);
    }
}
