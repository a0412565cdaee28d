//! What an initiator is told of a command that failed.
//!
//! | bytes of the fixed form | what |
//! |---|---|
//! | 0 | 0x70, with 0x80 where `information` is valid |
//! | 2 | sense key |
//! | 3 to 6 | information |
//! | 7 | bytes that follow: 10 |
//! | 12, 13 | additional sense code and its qualifier |
//!
//! Source of the facts: SPC-4, section 4.5.

use crate::block::{ExportError, FailureKind};

/// Why a command failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::iscsi) struct Sense {
    key: u8,
    /// Additional sense code and qualifier.
    code: u16,
    information: Option<u32>,
}

impl Sense {
    pub const INVALID_OPERATION: Self = Self::new(5, 0x2000);
    pub const INVALID_FIELD: Self = Self::new(5, 0x2400);
    pub const INVALID_PARAMETER: Self = Self::new(5, 0x2600);
    pub const PARAMETER_LENGTH: Self = Self::new(5, 0x1a00);
    pub const NO_SUCH_UNIT: Self = Self::new(5, 0x2500);
    pub const OUT_OF_RANGE: Self = Self::new(5, 0x2100);
    pub const SAVING_NOT_SUPPORTED: Self = Self::new(5, 0x3900);
    pub const WRITE_PROTECTED: Self = Self::new(7, 0x2700);
    pub const SPACE_FULL: Self = Self::new(7, 0x2707);
    pub const READ_FAILED: Self = Self::new(3, 0x1100);
    pub const WRITE_FAILED: Self = Self::new(3, 0x0c00);
    pub const NOT_READY: Self = Self::new(2, 0x0400);
    pub const ABORTED: Self = Self::new(0xb, 0);
    /// More data than was agreed came with a command.
    pub const UNEXPECTED_DATA: Self = Self::new(0xb, 0x0c0c);
    /// Data that were damaged on their way.
    pub const DAMAGED_DATA: Self = Self::new(0xb, 0x4705);
    /// The initiator is to move fewer bytes than the command says.
    pub const TOO_FEW_BYTES: Self = Self::new(5, 0x0e03);
    /// Another session reset the unit or the target.
    pub const RESET: Self = Self::new(6, 0x2903);
    /// Another session ended all commands.
    pub const COMMANDS_CLEARED: Self = Self::new(6, 0x2f00);
    pub const CAPACITY_CHANGED: Self = Self::new(6, 0x2a09);
    pub const INQUIRY_CHANGED: Self = Self::new(6, 0x3f03);
    /// More of the room for a thin unit is taken than its threshold.
    pub const THRESHOLD_REACHED: Self = Self::new(6, 0x3807);
    /// The target has other units than before.
    pub const OTHER_UNITS: Self = Self::new(6, 0x3f0e);
    pub const RESERVATIONS_PREEMPTED: Self = Self::new(6, 0x2a03);
    pub const RESERVATIONS_RELEASED: Self = Self::new(6, 0x2a04);
    pub const REGISTRATIONS_PREEMPTED: Self = Self::new(6, 0x2a05);
    pub const TOO_MANY_REGISTERED: Self = Self::new(5, 0x5504);
    pub const TOO_MANY_UNITS: Self = Self::new(5, 0x2606);
    pub const UNKNOWN_UNIT_DESCRIPTOR: Self = Self::new(5, 0x2607);
    pub const TOO_MANY_SEGMENTS: Self = Self::new(5, 0x2608);
    pub const UNKNOWN_SEGMENT: Self = Self::new(5, 0x2609);
    pub const INLINE_DATA_LENGTH: Self = Self::new(5, 0x260b);
    /// A copy cannot be done.
    pub const COPY_ABORTED: Self = Self::new(0xa, 0);
    /// A copy names a unit that is not there.
    pub const UNREACHABLE_UNIT: Self = Self::new(0xa, 0x0804);
    /// A copy failed on its way.
    pub const COPY_FAILED: Self = Self::new(0xa, 0x0d01);
    pub const INVALID_RELEASE: Self = Self::new(5, 0x2604);
    pub const NONE: Self = Self::new(0, 0);

    const fn new(key: u8, code: u16) -> Self {
        Self { key, code, information: None }
    }

    /// Two contents differ from this byte of the data on.
    pub const fn miscompare(at: u32) -> Self {
        Self { key: 0xe, code: 0x1d00, information: Some(at) }
    }

    /// What an export could not do.
    pub fn of(error: &ExportError, is_write: bool) -> Self {
        match error.kind {
            FailureKind::ReadOnly => Self::WRITE_PROTECTED,
            FailureKind::NoSpace => Self::SPACE_FULL,
            FailureKind::Invalid => Self::OUT_OF_RANGE,
            FailureKind::Gone => Self::NOT_READY,
            FailureKind::Io if is_write => Self::WRITE_FAILED,
            FailureKind::Io => Self::READ_FAILED,
        }
    }

    /// The fixed form.
    pub fn to_bytes(self) -> [u8; 18] {
        let [high, low] = self.code.to_be_bytes();
        let information = self.information.unwrap_or(0).to_be_bytes();
        let valid = if self.information.is_some() { 0x80 } else { 0 };
        let [i0, i1, i2, i3] = information;
        [0x70 | valid, 0, self.key, i0, i1, i2, i3, 10, 0, 0, 0, 0, high, low, 0, 0, 0, 0]
    }
}
