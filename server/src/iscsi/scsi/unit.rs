//! Doing commands on an export.
//!
//! # Order
//! Commands run at the same time, as the export allows it. Only COMPARE AND WRITE keeps all other writes of
//! the same export's sessions away while it compares and writes ([`Shared`]).

use std::sync::{Arc, Mutex};

use device::{IgnorePoison, IoBuf};
use tokio::sync::RwLock;

use super::super::login::Initiator;
use super::command::{BLOCK_BYTES, Blocks, Command, Compares, OPERATIONS, What};
use super::inquiry::{self, Identity, MOST_RANGES};
use super::reservations::{Change, Refusal, Reservations};
use super::{Outcome, Sense, mode};
use crate::block::{Export, ExportError};

/// Bytes that are read or written at a time where a command names a long run.
const PIECE_BYTES: u64 = 1 << 20;

/// What all sessions of a target share.
#[derive(Debug, Default)]
pub(in crate::iscsi) struct Shared {
    /// Writes hold it together, COMPARE AND WRITE alone.
    exclusive: RwLock<()>,
    reservations: Mutex<Reservations>,
}

/// A logical unit as one session has it.
pub(in crate::iscsi) struct Unit<E> {
    export: Arc<E>,
    identity: Identity,
    initiator: Initiator,
    shared: Arc<Shared>,
}

impl<E: Export> Unit<E> {
    /// The only unit of a target.
    pub fn new(export: Arc<E>, target: String, port: u16, initiator: Initiator, shared: Arc<Shared>) -> Self {
        let identity =
            Identity { guid: export.guid(), target, port, volume_block_bytes: export.block_bytes() };
        Self { export, identity, initiator, shared }
    }

    /// Blocks of the unit at present.
    pub fn capacity(&self) -> u64 {
        self.export.size_bytes() / BLOCK_BYTES
    }

    /// Reads a command.
    ///
    /// # Errors
    /// What the initiator is told.
    pub fn parse(&self, descriptor: &[u8; 16]) -> Result<Command, Sense> {
        Command::parse(descriptor, self.capacity(), self.export.is_writable())
    }

    /// Whether a command is to be done now.
    ///
    /// # Errors
    /// A reservation is in the way, or the initiator is to be told of something first.
    pub fn admits(&self, command: &Command) -> Result<(), Refusal> {
        let mut reservations = self.shared.reservations.lock().ignore_poison();
        if let Some(attention) = reservations.attention(&self.initiator) {
            return Err(Refusal::Check(attention));
        }
        match reservations.lets(&self.initiator, command.usage()) {
            true => Ok(()),
            false => Err(Refusal::Conflict),
        }
    }

    /// Reads a command to a unit that does not exist.
    ///
    /// # Errors
    /// What the initiator is told.
    pub fn of_missing(&self, descriptor: &[u8; 16]) -> Result<Command, Sense> {
        let command = self.parse(descriptor)?;
        match command.what {
            What::Inquiry { .. } => Ok(Command { what: What::InquiryOfMissing, ..command }),
            What::ReportLuns => Ok(command),
            _ => Err(Sense::NO_SUCH_UNIT),
        }
    }

    /// The name of its target.
    pub fn target(&self) -> &str {
        &self.identity.target
    }

    /// Does a command with the data that the initiator sent, of which there may be too few.
    pub async fn perform(&self, command: Command, data: IoBuf) -> Outcome {
        if let What::ReserveOut { action, kind } = command.what {
            let change = Change::parse(action, kind, &data).map_err(Refusal::Check);
            let mut reservations = self.shared.reservations.lock().ignore_poison();
            return match change.and_then(|change| reservations.change(&self.initiator, change)) {
                Ok(()) => Outcome::Good(nothing()),
                Err(Refusal::Conflict) => Outcome::Conflict,
                Err(Refusal::Check(sense)) => Outcome::Check(sense),
            };
        }
        let result = self.answer(command, data).await;
        match result {
            Ok(found) => Outcome::Good(found),
            Err(sense) => Outcome::Check(sense),
        }
    }

    async fn answer(&self, command: Command, data: IoBuf) -> Result<IoBuf, Sense> {
        let found = match command.what {
            What::Read(blocks) => return self.read(blocks).await,
            What::Write { blocks, stable } => {
                return self.write(blocks, data, stable).await.map(|()| nothing());
            }
            What::TestUnitReady | What::Nothing | What::Prefetch | What::ReserveOut { .. } => Vec::new(),
            What::ReserveIn { action } => self.shared.reservations.lock().ignore_poison().tell_of(action)?,
            What::RequestSense => Sense::NONE.to_bytes().to_vec(),
            What::InquiryOfMissing => inquiry::missing(),
            What::Inquiry { page: None } => inquiry::standard(),
            What::Inquiry { page: Some(page) } => inquiry::page(page, &self.identity)?,
            What::ModeSense { is_long, page, subpage, control, without_blocks } => {
                let asked = mode::Asked { is_long, page, subpage, control, without_blocks };
                mode::sense(asked, self.capacity(), self.export.is_writable())?
            }
            What::ModeSelect { is_long } => mode::select(is_long, &data).map(|()| Vec::new())?,
            What::ReadCapacity => {
                let last = u32::try_from(self.capacity().saturating_sub(1)).unwrap_or(u32::MAX);
                [last.to_be_bytes(), (BLOCK_BYTES as u32).to_be_bytes()].concat()
            }
            What::ReadCapacity16 => self.capacity16(),
            What::LbaStatus { first } => self.lba_status(first, command.room).await?,
            What::Flush => {
                self.export.flush().await.map_err(|error| Sense::of(&error, true))?;
                Vec::new()
            }
            What::Verify { blocks, compares } => {
                self.verify(blocks, compares, &data).await.map(|()| Vec::new())?
            }
            What::Unmap => self.unmap(&data).await.map(|()| Vec::new())?,
            What::WriteSame { blocks, is_zeroes } => {
                self.write_same(blocks, is_zeroes, &data).await.map(|()| Vec::new())?
            }
            What::CompareAndWrite { blocks, stable } => {
                self.compare_and_write(blocks, &data, stable).await.map(|()| Vec::new())?
            }
            // The only one is number 0.
            What::ReportLuns => vec![0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
            What::SupportedOperations { options, operation, action } => {
                supported(options, operation, action)?
            }
            What::PortGroups => {
                let [high, low] = self.identity.port.to_be_bytes();
                // Active and optimized, which is the only state; one port.
                vec![0, 0, 0, 12, 0, 1, high, low, 0, 0, 0, 1, 0, 0, 0, 1]
            }
        };
        let found = found.get(..found.len().min(command.room)).unwrap_or_default();
        Ok(IoBuf::from(found))
    }

    async fn read(&self, blocks: Blocks) -> Result<IoBuf, Sense> {
        // The descriptor was checked: at most as much as a command may move.
        let mut data = IoBuf::for_overwrite(blocks.bytes() as usize);
        if blocks.count > 0 {
            self.export.read(blocks.offset(), &mut data).await.map_err(|error| Sense::of(&error, false))?;
        }
        Ok(data)
    }

    /// Writes the whole blocks among the data.
    async fn write(&self, blocks: Blocks, data: IoBuf, stable: bool) -> Result<(), Sense> {
        let whole = data.len() - data.len() % BLOCK_BYTES as usize;
        if whole == 0 {
            return Ok(());
        }
        let _together = self.shared.exclusive.read().await;
        let data = data.narrow(0..whole.min(blocks.bytes() as usize));
        self.export.write(blocks.offset(), data, stable).await.map_err(failed_write)
    }

    async fn verify(&self, blocks: Blocks, compares: Compares, data: &[u8]) -> Result<(), Sense> {
        let end = blocks.offset() + blocks.bytes();
        let mut at = blocks.offset();
        while at < end {
            let size = (end - at).min(PIECE_BYTES);
            let mut found = IoBuf::for_overwrite(size as usize);
            self.export.read(at, &mut found).await.map_err(|error| Sense::of(&error, false))?;
            let start = (at - blocks.offset()) as usize;
            let differs = match compares {
                Compares::Nothing => None,
                Compares::All => {
                    let given = data.get(start..).unwrap_or_default();
                    first_difference(&found, given.get(..found.len().min(given.len())).unwrap_or_default())
                }
                Compares::One => {
                    let mut pieces = found.chunks(BLOCK_BYTES as usize).enumerate();
                    pieces.find_map(|(index, block)| {
                        Some(index * BLOCK_BYTES as usize + first_difference(block, data)?)
                    })
                }
            };
            if let Some(place) = differs {
                return Err(Sense::miscompare((start + place) as u32));
            }
            at += size;
        }
        Ok(())
    }

    async fn unmap(&self, data: &[u8]) -> Result<(), Sense> {
        if data.is_empty() {
            return Ok(());
        }
        let length = |at: usize| {
            let bytes = data.get(at..at + 2)?;
            Some(usize::from(u16::from_be_bytes(bytes.try_into().ok()?)))
        };
        let bytes = length(2).ok_or(Sense::PARAMETER_LENGTH)?;
        let list = data.get(8..).ok_or(Sense::PARAMETER_LENGTH)?;
        let list = list.get(..bytes.min(list.len())).unwrap_or_default();
        let ranges = list.chunks_exact(16).filter_map(|range| {
            let first = u64::from_be_bytes(*range.first_chunk()?);
            let count = u32::from_be_bytes(range.get(8..12)?.try_into().ok()?);
            Some(Blocks { first, count: u64::from(count) })
        });
        let ranges: Vec<_> = ranges.collect();
        if ranges.len() > MOST_RANGES as usize {
            return Err(Sense::INVALID_PARAMETER);
        }
        let capacity = self.capacity();
        if ranges.iter().any(|range| range.first.checked_add(range.count).is_none_or(|end| end > capacity)) {
            return Err(Sense::OUT_OF_RANGE);
        }
        let _together = self.shared.exclusive.read().await;
        for range in ranges.iter().filter(|range| range.count > 0) {
            self.zero(*range).await.map_err(failed_write)?;
        }
        Ok(())
    }

    /// Makes blocks read as zeroes, and gives their space back.
    async fn zero(&self, blocks: Blocks) -> Result<(), ExportError> {
        let end = blocks.offset() + blocks.bytes();
        let mut at = blocks.offset();
        while at < end {
            let size = (end - at).min(1 << 30);
            self.export.write_zeroes(at, size, false, false).await?;
            at += size;
        }
        Ok(())
    }

    async fn write_same(&self, blocks: Blocks, is_zeroes: bool, data: &[u8]) -> Result<(), Sense> {
        let _together = self.shared.exclusive.read().await;
        let is_zeroes = is_zeroes || data.iter().all(|byte| *byte == 0);
        if is_zeroes {
            return self.zero(blocks).await.map_err(failed_write);
        }
        if data.len() != BLOCK_BYTES as usize {
            return Err(Sense::PARAMETER_LENGTH);
        }
        let end = blocks.offset() + blocks.bytes();
        let mut at = blocks.offset();
        while at < end {
            let size = (end - at).min(PIECE_BYTES) as usize;
            let mut piece = IoBuf::for_overwrite(size);
            piece.chunks_exact_mut(data.len()).for_each(|block| block.copy_from_slice(data));
            self.export.write(at, piece, false).await.map_err(failed_write)?;
            at += size as u64;
        }
        Ok(())
    }

    async fn compare_and_write(&self, blocks: Blocks, data: &[u8], stable: bool) -> Result<(), Sense> {
        let (compared, written) =
            data.split_at_checked(blocks.bytes() as usize).ok_or(Sense::PARAMETER_LENGTH)?;
        if written.len() != compared.len() {
            return Err(Sense::PARAMETER_LENGTH);
        }
        if compared.is_empty() {
            return Ok(());
        }
        let _alone = self.shared.exclusive.write().await;
        let found = self.read(blocks).await?;
        if let Some(place) = first_difference(&found, compared) {
            return Err(Sense::miscompare(place as u32));
        }
        self.export.write(blocks.offset(), IoBuf::from(written), stable).await.map_err(failed_write)
    }

    fn capacity16(&self) -> Vec<u8> {
        let mut data = self.capacity().saturating_sub(1).to_be_bytes().to_vec();
        data.extend((BLOCK_BYTES as u32).to_be_bytes());
        // No protection; the length of a physical block as a power of two; thin, and zeroes where unmapped.
        let exponent = (u64::from(self.identity.volume_block_bytes) / BLOCK_BYTES).max(1).ilog2() as u8;
        data.extend([0, exponent.min(15), 0xc0, 0]);
        data.resize(32, 0);
        data
    }

    async fn lba_status(&self, first: u64, room: usize) -> Result<Vec<u8>, Sense> {
        let capacity = self.capacity();
        let mut runs: Vec<(u64, u64, bool)> = Vec::new();
        let mut at = first;
        while at < capacity && 8 + 16 * runs.len() < room.min(8 + 16 * 64) {
            let extent =
                self.export.extent(at * BLOCK_BYTES).await.map_err(|error| Sense::of(&error, false))?;
            // What is not known to be a hole is data.
            let count =
                extent.len_bytes.div_ceil(BLOCK_BYTES).clamp(1, capacity - at).min(u64::from(u32::MAX));
            runs.push((at, count, extent.is_hole));
            at += count;
        }
        let mut data = ((4 + 16 * runs.len()) as u32).to_be_bytes().to_vec();
        data.extend([0; 4]);
        for (first, count, is_hole) in runs {
            data.extend(first.to_be_bytes());
            data.extend((count as u32).to_be_bytes());
            data.extend([u8::from(is_hole), 0, 0, 0]);
        }
        Ok(data)
    }
}

fn nothing() -> IoBuf {
    IoBuf::zeroed(0)
}

fn failed_write(error: ExportError) -> Sense {
    Sense::of(&error, true)
}

/// The first byte that differs.
fn first_difference(one: &[u8], other: &[u8]) -> Option<usize> {
    if one == other {
        return None;
    }
    let pairs = one.iter().zip(other);
    pairs.enumerate().find(|(_, (one, other))| one != other).map(|(place, _)| place)
}

/// The operations that there are, or one of them.
fn supported(options: u8, operation: u8, action: u16) -> Result<Vec<u8>, Sense> {
    let has_timeouts = options & 0x80 != 0;
    let of_code = || OPERATIONS.iter().filter(|(code, ..)| *code == operation);
    let one = |found: Option<&[u8]>| {
        let mut data = vec![0, if found.is_some() { 3 } else { 1 }];
        let usage = found.unwrap_or_default();
        if has_timeouts && found.is_some() {
            data = vec![0, 0x83];
        }
        data.extend((usage.len() as u16).to_be_bytes());
        data.extend_from_slice(usage);
        if has_timeouts && found.is_some() {
            data.extend([0, 10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        }
        data
    };
    match options & 7 {
        0 => {
            let mut list = Vec::new();
            for (code, action, usage) in OPERATIONS {
                let [high, low] = action.unwrap_or(0).to_be_bytes();
                let flags = u8::from(action.is_some()) | if has_timeouts { 2 } else { 0 };
                let [length_high, length_low] = (usage.len() as u16).to_be_bytes();
                list.extend([*code, 0, high, low, 0, flags, length_high, length_low]);
                if has_timeouts {
                    list.extend([0, 10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
                }
            }
            let mut data = (list.len() as u32).to_be_bytes().to_vec();
            data.extend(list);
            Ok(data)
        }
        // Of one code that has no actions.
        1 => match of_code().any(|(_, action, _)| action.is_some()) {
            true => Err(Sense::INVALID_FIELD),
            false => Ok(one(of_code().next().map(|(.., usage)| *usage))),
        },
        // Of one action.
        2 => match of_code().any(|(_, action, _)| action.is_none()) {
            true => Err(Sense::INVALID_FIELD),
            false => {
                let found = of_code().find(|(_, known, _)| *known == Some(action));
                Ok(one(found.map(|(.., usage)| *usage)))
            }
        },
        3 => {
            let found = of_code().find(|(_, known, _)| known.unwrap_or(0) == action);
            Ok(one(found.map(|(.., usage)| *usage)))
        }
        _ => Err(Sense::INVALID_FIELD),
    }
}
