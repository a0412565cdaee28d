//! Command descriptor blocks, read and checked before data are asked for.
//!
//! Source of the facts: SPC-4, section 6; SBC-3, section 5.

use super::reservations::Use;
use super::sense::Sense;
use super::{MOST_BYTES, Outcome};

/// What descriptors are checked against.
#[derive(Debug, Clone, Copy)]
pub(in crate::iscsi) struct Shape {
    /// Blocks of the unit.
    pub capacity: u64,
    /// Bytes of a block.
    pub block_bytes: u32,
    pub is_writable: bool,
}

impl Shape {
    /// That of a unit that does not exist.
    pub const NONE: Self = Self { capacity: 0, block_bytes: 512, is_writable: false };
}

/// A run of blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Blocks {
    pub first: u64,
    pub count: u64,
    /// Bytes of a block.
    pub each: u32,
}

impl Blocks {
    pub fn offset(self) -> u64 {
        self.first * u64::from(self.each)
    }

    pub fn bytes(self) -> u64 {
        self.count * u64::from(self.each)
    }
}

/// A command whose fields make sense.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::iscsi) struct Command {
    pub(super) what: What,
    /// The most bytes that the initiator takes of a list or page.
    pub(super) room: usize,
    /// The bytes that it sends.
    pub(super) sends: u64,
}

/// What is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum What {
    TestUnitReady,
    RequestSense,
    Inquiry {
        page: Option<u8>,
    },
    ModeSense {
        is_long: bool,
        page: u8,
        subpage: u8,
        control: u8,
        without_blocks: bool,
    },
    ModeSelect {
        is_long: bool,
    },
    LogSense {
        page: u8,
        subpage: u8,
        first: u16,
    },
    ReadCapacity,
    ReadCapacity16,
    Read(Blocks),
    Write {
        blocks: Blocks,
        stable: bool,
    },
    Verify {
        blocks: Blocks,
        compares: Compares,
    },
    Prefetch,
    Flush,
    Unmap,
    /// Zeroes are not stored, whether the initiator says that they may be unmapped or not.
    WriteSame {
        blocks: Blocks,
        is_zeroes: bool,
    },
    CompareAndWrite {
        blocks: Blocks,
        stable: bool,
    },
    /// Each bit that is set in the data is set in the blocks.
    OrWrite {
        blocks: Blocks,
        stable: bool,
    },
    /// EXTENDED COPY: what is to be copied is in the data.
    Copy,
    CopyParameters,
    CopyStatus {
        list: u8,
    },
    LbaStatus {
        first: u64,
    },
    ReportLuns,
    SupportedOperations {
        options: u8,
        operation: u8,
        action: u16,
    },
    PortGroups,
    ReserveIn {
        action: u8,
    },
    ReserveOut {
        action: u8,
        kind: u8,
    },
    /// The reservations of SPC-2: taken, or given up.
    ReserveUnit,
    ReleaseUnit,
    Nothing,
}

/// What a verification compares with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Compares {
    /// Nothing: the blocks are to be readable.
    Nothing,
    /// The blocks that are sent.
    All,
    /// One block that is sent.
    One,
}

/// Bits of PERSISTENT RESERVE IN that are used, for each action.
const RESERVE_IN: [[u8; 10]; 4] = of_actions([0x5e, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0]);
/// The same of PERSISTENT RESERVE OUT.
const RESERVE_OUT: [[u8; 10]; 7] = of_actions([0x5f, 0, 0xff, 0, 0, 0xff, 0xff, 0xff, 0xff, 0]);

/// The same for each of so many actions; the field of the action has five bits.
const fn of_actions<const N: usize>(mut usage: [u8; 10]) -> [[u8; 10]; N] {
    usage[1] = 0x1f;
    [usage; N]
}

/// The operations that there are: code, service action, and which bits of the descriptor are used.
pub(super) const OPERATIONS: &[(u8, Option<u16>, &[u8])] = &[
    (0x00, None, &[0, 0, 0, 0, 0, 0]),
    (0x03, None, &[0x03, 1, 0, 0, 0xff, 0]),
    (0x08, None, &[0x08, 0x1f, 0xff, 0xff, 0xff, 0]),
    (0x0a, None, &[0x0a, 0x1f, 0xff, 0xff, 0xff, 0]),
    (0x12, None, &[0x12, 1, 0xff, 0xff, 0xff, 0]),
    (0x15, None, &[0x15, 0x11, 0, 0, 0xff, 0]),
    (0x16, None, &[0x16, 0, 0, 0, 0, 0]),
    (0x17, None, &[0x17, 0, 0, 0, 0, 0]),
    (0x1a, None, &[0x1a, 8, 0xff, 0xff, 0xff, 0]),
    (0x1b, None, &[0x1b, 1, 0, 0x0f, 0xf7, 0]),
    (0x1e, None, &[0x1e, 0, 0, 0, 3, 0]),
    (0x25, None, &[0x25, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
    (0x28, None, &[0x28, 0xf8, 0xff, 0xff, 0xff, 0xff, 0x3f, 0xff, 0xff, 0]),
    (0x2a, None, &[0x2a, 0xf8, 0xff, 0xff, 0xff, 0xff, 0x3f, 0xff, 0xff, 0]),
    (0x2e, None, &[0x2e, 0xf6, 0xff, 0xff, 0xff, 0xff, 0x3f, 0xff, 0xff, 0]),
    (0x2f, None, &[0x2f, 0xf6, 0xff, 0xff, 0xff, 0xff, 0x3f, 0xff, 0xff, 0]),
    (0x34, None, &[0x34, 2, 0xff, 0xff, 0xff, 0xff, 0x3f, 0xff, 0xff, 0]),
    (0x35, None, &[0x35, 2, 0xff, 0xff, 0xff, 0xff, 0x3f, 0xff, 0xff, 0]),
    (0x41, None, &[0x41, 0xf8, 0xff, 0xff, 0xff, 0xff, 0x3f, 0xff, 0xff, 0]),
    (0x42, None, &[0x42, 1, 0, 0, 0, 0, 0x3f, 0xff, 0xff, 0]),
    (0x5e, Some(0), &RESERVE_IN[0]),
    (0x5e, Some(1), &RESERVE_IN[1]),
    (0x5e, Some(2), &RESERVE_IN[2]),
    (0x5e, Some(3), &RESERVE_IN[3]),
    (0x5f, Some(0), &RESERVE_OUT[0]),
    (0x5f, Some(1), &RESERVE_OUT[1]),
    (0x5f, Some(2), &RESERVE_OUT[2]),
    (0x5f, Some(3), &RESERVE_OUT[3]),
    (0x5f, Some(4), &RESERVE_OUT[4]),
    (0x5f, Some(5), &RESERVE_OUT[5]),
    (0x5f, Some(6), &RESERVE_OUT[6]),
    (0x56, None, &[0x56, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
    (0x57, None, &[0x57, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
    (0x4d, None, &[0x4d, 0, 0xff, 0xff, 0, 0xff, 0xff, 0xff, 0xff, 0]),
    (0x55, None, &[0x55, 0x11, 0, 0, 0, 0, 0, 0xff, 0xff, 0]),
    (0x5a, None, &[0x5a, 0x18, 0xff, 0xff, 0, 0, 0, 0xff, 0xff, 0]),
    (0x83, Some(0), &[0x83, 0x1f, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0]),
    (0x84, Some(0), &[0x84, 0x1f, 0xff, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0]),
    (0x84, Some(3), &[0x84, 0x1f, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0]),
    (
        0x88,
        None,
        &[0x88, 0xf8, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x3f, 0],
    ),
    (0x89, None, &[0x89, 0xf8, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0xff, 0x3f, 0]),
    (
        0x8a,
        None,
        &[0x8a, 0xf8, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x3f, 0],
    ),
    (
        0x8b,
        None,
        &[0x8b, 0xf8, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x3f, 0],
    ),
    (
        0x8e,
        None,
        &[0x8e, 0xf6, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x3f, 0],
    ),
    (
        0x8f,
        None,
        &[0x8f, 0xf6, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x3f, 0],
    ),
    (0x90, None, &[0x90, 2, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x3f, 0]),
    (0x91, None, &[0x91, 2, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x3f, 0]),
    (
        0x93,
        None,
        &[0x93, 0xf9, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x3f, 0],
    ),
    (
        0x9e,
        Some(0x10),
        &[0x9e, 0x1f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 0],
    ),
    (
        0x9e,
        Some(0x12),
        &[0x9e, 0x1f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 0],
    ),
    (0xa0, None, &[0xa0, 0, 0xff, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0]),
    (0xa3, Some(0x0a), &[0xa3, 0x1f, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0]),
    (0xa3, Some(0x0c), &[0xa3, 0x1f, 0x87, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0]),
    (0xa8, None, &[0xa8, 0xf8, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x3f, 0]),
    (0xaa, None, &[0xaa, 0xf8, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x3f, 0]),
    (0xae, None, &[0xae, 0xf6, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x3f, 0]),
    (0xaf, None, &[0xaf, 0xf6, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x3f, 0]),
];

/// What the fields of a descriptor say, for a unit of this shape.
struct Fields<'a> {
    descriptor: &'a [u8; 16],
    shape: Shape,
}

impl Fields<'_> {
    fn byte(&self, at: usize) -> u8 {
        self.descriptor.get(at).copied().unwrap_or(0)
    }

    fn number<const N: usize>(&self, at: usize) -> u64 {
        let bytes = self.descriptor.get(at..at + N).unwrap_or_default();
        bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
    }

    /// A bit of the second byte.
    fn flag(&self, bit: u8) -> bool {
        self.byte(1) & bit != 0
    }

    /// The blocks that the descriptor names, which the unit has.
    fn blocks(&self) -> Result<Blocks, Sense> {
        let (first, count) = match self.byte(0) {
            // Of 6 bytes: none means 256.
            0x08 | 0x0a => match self.number::<1>(4) {
                0 => (self.number::<3>(1) & 0x1f_ffff, 256),
                count => (self.number::<3>(1) & 0x1f_ffff, count),
            },
            0x20..=0x5f => (self.number::<4>(2), self.number::<2>(7)),
            0xa0..=0xbf => (self.number::<4>(2), self.number::<4>(6)),
            0x89 => (self.number::<8>(2), self.number::<1>(13)),
            _ => (self.number::<8>(2), self.number::<4>(10)),
        };
        let end = first.checked_add(count).filter(|end| *end <= self.shape.capacity);
        end.map(|_| Blocks { first, count, each: self.shape.block_bytes }).ok_or(Sense::OUT_OF_RANGE)
    }

    /// The blocks whose bytes are moved.
    fn moved_blocks(&self) -> Result<Blocks, Sense> {
        let blocks = self.blocks()?;
        if blocks.bytes() <= MOST_BYTES { Ok(blocks) } else { Err(Sense::INVALID_FIELD) }
    }

    /// There is no protection information on any unit.
    fn is_protected(&self) -> bool {
        self.byte(1) & 0xe0 != 0 && !matches!(self.byte(0), 0x08 | 0x0a)
    }

    fn needs_writable(&self) -> Result<(), Sense> {
        if self.shape.is_writable { Ok(()) } else { Err(Sense::WRITE_PROTECTED) }
    }
}

impl Command {
    /// Reads a descriptor for a unit of this shape.
    ///
    /// # Errors
    /// What the initiator is told: it is no operation of this unit, or its fields make no sense.
    pub fn parse(descriptor: &[u8; 16], shape: Shape) -> Result<Self, Sense> {
        let fields = Fields { descriptor, shape };
        match fields.byte(0) {
            0x08 | 0x28 | 0x88 | 0xa8 | 0x2f | 0x8f | 0xaf | 0x34 | 0x90 | 0x35 | 0x91 => {
                Self::reading(&fields)
            }
            0x0a | 0x2a | 0x8a | 0xaa | 0x2e | 0x8e | 0xae | 0x41 | 0x93 | 0x42 | 0x89 | 0x8b => {
                Self::writing(&fields)
            }
            0x15 | 0x55 | 0x1a | 0x5a | 0x4d | 0x5e | 0x5f => Self::of_mode(&fields),
            0x83 | 0x84 => Self::of_copies(&fields),
            _ => Self::of_unit(&fields),
        }
    }

    /// One that is answered with at most so many bytes.
    fn told(what: What, room: u64) -> Self {
        Self { what, room: room as usize, sends: 0 }
    }

    fn sent(what: What, sends: u64) -> Self {
        Self { what, room: 0, sends }
    }

    /// What reads blocks.
    fn reading(fields: &Fields<'_>) -> Result<Self, Sense> {
        if fields.is_protected() {
            return Err(Sense::INVALID_FIELD);
        }
        match fields.byte(0) {
            0x2f | 0x8f | 0xaf => {
                let compares = match fields.byte(1) >> 1 & 3 {
                    0 => Compares::Nothing,
                    1 => Compares::All,
                    3 => Compares::One,
                    _ => return Err(Sense::INVALID_FIELD),
                };
                let blocks = fields.blocks()?;
                let sends = match compares {
                    Compares::Nothing => 0,
                    Compares::All => fields.moved_blocks()?.bytes(),
                    Compares::One => u64::from(blocks.each).min(blocks.bytes()),
                };
                Ok(Self::sent(What::Verify { blocks, compares }, sends))
            }
            0x34 | 0x90 => fields.blocks().map(|_| Self::told(What::Prefetch, 0)),
            0x35 | 0x91 => fields.blocks().map(|_| Self::told(What::Flush, 0)),
            _ => fields.moved_blocks().map(|blocks| Self::told(What::Read(blocks), u64::MAX)),
        }
    }

    /// What writes blocks.
    fn writing(fields: &Fields<'_>) -> Result<Self, Sense> {
        let operation = fields.byte(0);
        if fields.is_protected() {
            return Err(Sense::INVALID_FIELD);
        }
        let (what, sends) = match operation {
            0x42 if fields.flag(1) => return Err(Sense::INVALID_FIELD),
            0x42 => (What::Unmap, fields.number::<2>(7)),
            0x41 | 0x93 => {
                let is_zeroes = operation == 0x93 && fields.flag(1);
                // No block is anchored, and only what is unmapped needs no data.
                if fields.flag(0x10) || is_zeroes && !fields.flag(8) {
                    return Err(Sense::INVALID_FIELD);
                }
                let mut blocks = fields.blocks()?;
                if blocks.count == 0 {
                    // To the end.
                    blocks.count = fields.shape.capacity - blocks.first;
                }
                if blocks.bytes() > MOST_SAME_BYTES {
                    return Err(Sense::INVALID_FIELD);
                }
                (What::WriteSame { blocks, is_zeroes }, if is_zeroes { 0 } else { u64::from(blocks.each) })
            }
            0x8b => {
                let blocks = fields.moved_blocks()?;
                (What::OrWrite { blocks, stable: fields.flag(8) }, blocks.bytes())
            }
            0x89 => {
                let blocks = fields.blocks()?;
                if blocks.count > MOST_COMPARED {
                    return Err(Sense::INVALID_FIELD);
                }
                (What::CompareAndWrite { blocks, stable: fields.flag(8) }, 2 * blocks.bytes())
            }
            _ => {
                let is_verified = matches!(operation, 0x2e | 0x8e | 0xae);
                if is_verified && fields.flag(4) {
                    return Err(Sense::INVALID_FIELD);
                }
                let blocks = fields.moved_blocks()?;
                let stable = is_verified || operation != 0x0a && fields.flag(8);
                (What::Write { blocks, stable }, blocks.bytes())
            }
        };
        fields.needs_writable()?;
        Ok(Self::sent(what, sends))
    }

    /// Mode pages, log pages and reservations.
    fn of_mode(fields: &Fields<'_>) -> Result<Self, Sense> {
        let operation = fields.byte(0);
        let (is_long, action) = (operation >= 0x4d, fields.byte(1) & 0x1f);
        let length = if is_long { fields.number::<2>(7) } else { fields.number::<1>(4) };
        match operation {
            0x1a | 0x5a => {
                let (page, subpage) = (fields.byte(2) & 0x3f, fields.byte(3));
                let (control, without_blocks) = (fields.byte(2) >> 6, fields.flag(8));
                Ok(Self::told(What::ModeSense { is_long, page, subpage, control, without_blocks }, length))
            }
            // Only as it is now, and nothing is kept.
            0x4d if action & 3 != 0 => Err(Sense::INVALID_FIELD),
            0x4d => {
                let (page, subpage, first) =
                    (fields.byte(2) & 0x3f, fields.byte(3), fields.number::<2>(5) as u16);
                Ok(Self::told(What::LogSense { page, subpage, first }, fields.number::<2>(7)))
            }
            // Nothing is kept.
            0x15 | 0x55 if fields.flag(1) => Err(Sense::INVALID_FIELD),
            0x15 | 0x55 => Ok(Self::sent(What::ModeSelect { is_long }, length)),
            0x5e => Ok(Self::told(What::ReserveIn { action }, length)),
            _ => {
                let kind = fields.byte(2) & 0xf;
                match (fields.byte(2) >> 4, fields.number::<4>(5)) {
                    (0, 24) => Ok(Self::sent(What::ReserveOut { action, kind }, 24)),
                    (0, _) => Err(Sense::PARAMETER_LENGTH),
                    _ => Err(Sense::INVALID_FIELD),
                }
            }
        }
    }

    /// EXTENDED COPY in its first form, what it can do, and what became of the last one.
    fn of_copies(fields: &Fields<'_>) -> Result<Self, Sense> {
        let length = fields.number::<4>(10);
        match (fields.byte(0), fields.byte(1) & 0x1f) {
            (0x83, 0) if length <= MOST_COPY_LIST_BYTES => Ok(Self::sent(What::Copy, length)),
            (0x83, 0) => Err(Sense::PARAMETER_LENGTH),
            (0x84, 0) => Ok(Self::told(What::CopyStatus { list: fields.byte(2) }, length)),
            (0x84, 3) => Ok(Self::told(What::CopyParameters, length)),
            _ => Err(Sense::INVALID_FIELD),
        }
    }

    /// What is asked of the unit itself.
    fn of_unit(fields: &Fields<'_>) -> Result<Self, Sense> {
        let action = fields.byte(1) & 0x1f;
        let (what, room) = match fields.byte(0) {
            0x00 => (What::TestUnitReady, 0),
            0x03 => (What::RequestSense, fields.number::<1>(4)),
            0x12 => match (fields.flag(1), fields.byte(2)) {
                (true, page) => (What::Inquiry { page: Some(page) }, fields.number::<2>(3)),
                (false, 0) => (What::Inquiry { page: None }, fields.number::<2>(3)),
                (false, _) => return Err(Sense::INVALID_FIELD),
            },
            0x16 | 0x56 if action & 0x13 == 0 => (What::ReserveUnit, 0),
            0x17 | 0x57 if action & 0x13 == 0 => (What::ReleaseUnit, 0),
            0x1b | 0x1e => (What::Nothing, 0),
            0x25 if !fields.flag(1) && fields.byte(8) & 1 == 0 && fields.number::<4>(2) == 0 => {
                (What::ReadCapacity, 8)
            }
            0x9e if action == 0x10 => (What::ReadCapacity16, fields.number::<4>(10)),
            0x9e if action == 0x12 => match fields.number::<8>(2) {
                first if first < fields.shape.capacity => (What::LbaStatus { first }, fields.number::<4>(10)),
                _ => return Err(Sense::OUT_OF_RANGE),
            },
            0xa0 if fields.byte(2) <= 2 && fields.number::<4>(6) >= 16 => {
                (What::ReportLuns, fields.number::<4>(6))
            }
            0xa3 if action == 0x0a => (What::PortGroups, fields.number::<4>(6)),
            0xa3 if action == 0x0c => {
                let (options, operation) = (fields.byte(2), fields.byte(3));
                let action = fields.number::<2>(4) as u16;
                (What::SupportedOperations { options, operation, action }, fields.number::<4>(6))
            }
            0x16 | 0x17 | 0x56 | 0x57 | 0x25 | 0x9e | 0xa0 | 0xa3 => return Err(Sense::INVALID_FIELD),
            _ => return Err(Sense::INVALID_OPERATION),
        };
        Ok(Self::told(what, room))
    }

    /// Whether it is answered whatever the initiator has not been told yet.
    pub fn is_always_answered(descriptor: &[u8; 16]) -> bool {
        matches!(descriptor.first(), Some(0x03 | 0x12 | 0xa0))
    }

    /// The memory that it takes.
    pub fn memory_bytes(&self) -> usize {
        let reads = match self.what {
            What::Read(blocks) => blocks.bytes(),
            What::Verify { .. } | What::WriteSame { .. } | What::Copy => 1 << 20,
            What::OrWrite { blocks, .. } => blocks.bytes(),
            _ => 4096,
        };
        (reads + self.sends) as usize
    }

    /// What it does to the unit's contents.
    pub(super) fn usage(&self) -> Use {
        match self.what {
            What::Read(_) | What::Verify { .. } | What::LbaStatus { .. } | What::Prefetch => Use::Reads,
            What::Write { .. } | What::Unmap | What::WriteSame { .. } | What::CompareAndWrite { .. } => {
                Use::Writes
            }
            What::OrWrite { .. } | What::Flush | What::ModeSelect { .. } => Use::Writes,
            _ => Use::Nothing,
        }
    }

    /// Whether it makes sense where the initiator is to send so many bytes.
    ///
    /// # Errors
    /// What the initiator is told: with too few of them the command would be done in part, and answered as if
    /// it were done.
    pub fn check_sent(&self, bytes: u64) -> Result<(), Outcome> {
        let is_exact = matches!(self.what, What::CompareAndWrite { .. } | What::WriteSame { .. });
        match bytes.cmp(&self.sends) {
            std::cmp::Ordering::Equal => Ok(()),
            _ if is_exact => Err(Outcome::Check(Sense::INVALID_FIELD)),
            std::cmp::Ordering::Less => Err(Outcome::Lacks(self.sends - bytes)),
            std::cmp::Ordering::Greater => Ok(()),
        }
    }

    /// The bytes that the initiator has to send.
    pub fn sends(&self) -> u64 {
        self.sends
    }
}

/// The most blocks of one COMPARE AND WRITE; initiators are told.
pub(super) const MOST_COMPARED: u64 = 128;

/// The most bytes that say what EXTENDED COPY copies; initiators are told.
pub(super) const MOST_COPY_LIST_BYTES: u64 = 16 << 10;

/// The most bytes of one WRITE SAME; initiators are told.
pub(super) const MOST_SAME_BYTES: u64 = 1 << 30;

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: Shape = Shape { capacity: 1000, block_bytes: 512, is_writable: true };

    fn parse(bytes: &[u8]) -> Result<Command, Sense> {
        let mut descriptor = [0; 16];
        descriptor[..bytes.len()].copy_from_slice(bytes);
        Command::parse(&descriptor, SHAPE)
    }

    #[test]
    fn blocks_are_read_from_each_form() {
        let read = |first, count| Ok(What::Read(Blocks { first, count, each: 512 }));
        let what = |bytes: &[u8]| parse(bytes).map(|command| command.what);
        assert_eq!(what(&[0x08, 0, 1, 2, 3, 0]), read(258, 3));
        assert_eq!(what(&[0x08, 0xe0, 0, 0, 0, 0]), read(0, 256));
        assert_eq!(what(&[0x28, 0, 0, 0, 3, 0xe0, 0, 0, 8, 0]), read(992, 8));
        assert_eq!(what(&[0xa8, 0, 0, 0, 0, 4, 0, 0, 0, 5, 0, 0]), read(4, 5));
        assert_eq!(what(&[0x88, 0, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 7, 0, 0]), read(9, 7));
    }

    #[test]
    fn what_lies_beyond_the_end_is_refused() {
        assert_eq!(parse(&[0x28, 0, 0, 0, 3, 0xe1, 0, 0, 8, 0]), Err(Sense::OUT_OF_RANGE));
        assert_eq!(parse(&[0x28, 0, 0, 0, 3, 0xe9, 0, 0, 0, 0]), Err(Sense::OUT_OF_RANGE));
        assert!(parse(&[0x28, 0, 0, 0, 3, 0xe8, 0, 0, 0, 0]).is_ok());
        let far = [0x88, 0, 255, 255, 255, 255, 255, 255, 255, 255, 0, 0, 0, 2, 0, 0];
        assert_eq!(parse(&far), Err(Sense::OUT_OF_RANGE));
    }

    #[test]
    fn writes_say_what_they_send_and_units_may_refuse_them() {
        assert_eq!(parse(&[0x2a, 8, 0, 0, 0, 0, 0, 0, 2, 0]).map(|command| command.sends()), Ok(1024));
        assert_eq!(
            parse(&[0x89, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0]).map(|command| command.sends()),
            Ok(1024)
        );
        assert_eq!(parse(&[0x2a, 0x20, 0, 0, 0, 0, 0, 0, 2, 0]), Err(Sense::INVALID_FIELD));
        let mut descriptor = [0; 16];
        descriptor[..10].copy_from_slice(&[0x2a, 0, 0, 0, 0, 0, 0, 0, 2, 0]);
        assert_eq!(
            Command::parse(&descriptor, Shape { is_writable: false, ..SHAPE }),
            Err(Sense::WRITE_PROTECTED)
        );
    }

    #[test]
    fn each_operation_that_is_done_is_listed() {
        for code in 0..=u8::MAX {
            let is_done = (0..32).any(|action| {
                let mut descriptor = [0; 16];
                descriptor[..2].copy_from_slice(&[code, action]);
                !matches!(Command::parse(&descriptor, SHAPE), Err(Sense::INVALID_OPERATION))
            });
            let is_listed = OPERATIONS.iter().any(|(listed, ..)| *listed == code);
            assert_eq!(is_done, is_listed, "{code:#x}");
        }
        assert!(OPERATIONS.iter().all(|(code, _, usage)| usage.first() == Some(code)));
    }

    #[test]
    fn no_descriptor_makes_trouble() {
        let mut random = 7u64;
        for _ in 0..200_000 {
            let mut descriptor = [0; 16];
            for byte in &mut descriptor {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                *byte = (random >> 56) as u8 & (random >> 48) as u8;
            }
            for block_bytes in [512, 4096] {
                let shape = Shape { capacity: 1 << 31, block_bytes, is_writable: true };
                if let Ok(command) = Command::parse(&descriptor, shape) {
                    assert!(command.sends() <= 2 * MOST_BYTES);
                }
            }
        }
    }
}
