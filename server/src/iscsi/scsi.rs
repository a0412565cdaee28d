//! What commands mean: SCSI block commands over an export.
//!
//! | module | what it owns |
//! |---|---|
//! | `command` | command descriptor blocks, read and checked before data are asked for |
//! | `sense` | what an initiator is told of a command that failed |
//! | `copy` | what EXTENDED COPY is to copy |
//! | `inquiry` | what the unit is |
//! | `mode` | mode pages |
//! | `reservations` | which initiators may use the unit |
//! | `unit` | doing commands |
//! | `units` | the units of a target |
//!
//! A unit has blocks of 512 bytes, as every initiator takes them, or of 4096 where its volume's share says so.
//! It says that its physical blocks are as long as those of the volume, so that initiators align what they
//! write.
//!
//! Source of the facts: SPC-4, SBC-3 (the drafts of T10).

mod command;
mod copy;
mod inquiry;
mod mode;
mod reservations;
mod sense;
mod unit;
mod units;

pub(super) use command::Command;
pub(super) use reservations::Refusal;
pub(super) use sense::Sense;
pub(super) use unit::{Shared, Surroundings, Unit};
pub(super) use units::{Reach, Units};

/// The most bytes that one command moves; initiators are told.
pub(super) const MOST_BYTES: u64 = 32 << 20;

/// How a command ended.
#[derive(Debug)]
pub(super) enum Outcome {
    /// It is done, and these are the data that it asked for.
    Good(device::IoBuf),
    /// It failed.
    Check(Sense),
    /// A reservation of others is in the way.
    Conflict,
}
