//! What commands mean: SCSI block commands over an export.
//!
//! | module | what it owns |
//! |---|---|
//! | `command` | command descriptor blocks, read and checked before data are asked for |
//! | `attention` | what an initiator is told without having asked |
//! | `sense` | what an initiator is told of a command that failed |
//! | `copy` | what EXTENDED COPY is to copy |
//! | `inquiry` | what the unit is |
//! | `interruptions` | commands that another session ends |
//! | `mode` | mode pages |
//! | `provisioning` | room for thin units, and the threshold |
//! | `reservations` | which initiators may use the unit |
//! | `unit` | doing commands |
//! | `units` | the units of a target |
//!
//! A unit has blocks of 512 bytes, as every initiator takes them, or of 4096 where its volume's share says
//! so. It says that its physical blocks are as long as those of the volume, so that initiators align what
//! they write.
//!
//! Source of the facts: SPC-4, SBC-3 (the drafts of T10).

mod attention;
mod command;
mod copy;
mod inquiry;
mod interruptions;
mod mode;
mod provisioning;
mod reservations;
mod sense;
mod unit;
mod units;

use std::ops::Range;

use crate::block::Gathered;

pub(super) use command::Command;
pub(super) use interruptions::Interruption;
pub(super) use reservations::Refusal;
pub(super) use sense::Sense;
pub(super) use unit::{Shared, Surroundings, Unit};
pub(super) use units::{Opened, Reach, Units};

/// The most bytes that one command moves; initiators are told.
pub(super) const MOST_BYTES: u64 = 32 << 20;

/// Reads bytes as a command and its parameters.
pub(super) fn read_untrusted(bytes: &[u8]) {
    let (descriptor, parameters) = bytes.split_at(bytes.len().min(16));
    let mut whole = [0; 16];
    whole.iter_mut().zip(descriptor).for_each(|(into, byte)| *into = *byte);
    for (capacity, block_bytes) in [(1 << 20, 512), (1 << 60, 4096), (0, 512)] {
        let shape = command::Shape { capacity, block_bytes, is_writable: true };
        if let Ok(command) = Command::parse(&whole, shape) {
            assert!(command.sends() <= 2 * MOST_BYTES && command.memory_bytes() as u64 <= 4 * MOST_BYTES);
        }
    }
    for segment in copy::parse(parameters).unwrap_or_default() {
        assert!(segment.count <= 0xffff);
    }
    let _ = (mode::select(false, parameters, None), mode::select(true, parameters, None));
    let _ = reservations::Change::parse(0, 0, parameters);
    if let Ok(text) = std::str::from_utf8(bytes) {
        let _ = reservations::Reservations::from_text(text, 1);
    }
}

/// The data that a command asked for.
#[derive(Debug)]
pub(super) enum Found {
    /// In one piece.
    Bytes(device::IoBuf),
    /// What was read, where the cache has it.
    Read(Gathered),
}

impl Found {
    /// No data.
    pub(super) fn nothing() -> Self {
        Self::Bytes(device::IoBuf::zeroed(0))
    }

    /// How many bytes there are.
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Bytes(bytes) => bytes.len(),
            Self::Read(gathered) => gathered.len(),
        }
    }

    /// The bytes of a range, in order.
    pub(super) fn parts(&self, range: Range<usize>) -> impl Iterator<Item = &[u8]> {
        let (bytes, gathered) = match self {
            Self::Bytes(bytes) => (Some(&bytes[..]), None),
            Self::Read(gathered) => (None, Some(gathered.parts())),
        };
        let mut begins = 0;
        bytes.into_iter().chain(gathered.into_iter().flatten()).filter_map(move |part| {
            let (from, to) = (range.start.saturating_sub(begins), range.end.saturating_sub(begins));
            begins += part.len();
            part.get(from.min(part.len())..to.min(part.len())).filter(|part| !part.is_empty())
        })
    }
}

/// How a command ended.
#[derive(Debug)]
pub(super) enum Outcome {
    /// It is done, and these are the data that it asked for.
    Good(Found),
    /// It failed.
    Check(Sense),
    /// A reservation of others is in the way.
    Conflict,
    /// Another session ended it.
    Aborted,
    /// It was not begun, because the initiator is to send so many bytes less than it says.
    Lacks(u64),
}
