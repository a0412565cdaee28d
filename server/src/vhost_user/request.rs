//! Requests of a virtio block device: what is asked, where its data are, where its status goes.
//!
//! # The layout
//! | part | bytes | content |
//! |---|---|---|
//! | header, readable | 16 | type (4), reserved (4), sector (8), little-endian |
//! | data | any | readable for writes, discards and zeroes; writable for reads and the name |
//! | status, writable | 1 | the last byte that can be written |
//!
//! How these are spread over descriptors is up to the driver. Sectors have 512 bytes, whatever the device's
//! blocks are.
//!
//! Source of the facts: Virtual I/O Device (VIRTIO) Version 1.2, 5.2.6.

use std::sync::Arc;

use device::IoBuf;
use vm_memory::{Bytes, GuestAddress};

use super::chain::{Chain, Violation};
use super::device::Disk;
use super::memory::{Memory, Piece};
use crate::block::Export;

/// Bytes of a sector.
pub(super) const SECTOR_BYTES: u64 = 512;
/// Data of one request.
pub(super) const MOST_DATA_BYTES: u64 = 32 << 20;
/// Ranges of one discard, or of one request to write zeroes. More would save nothing, and QEMU's devices have
/// one, so that guests are used to it.
pub(super) const MOST_RANGES: u32 = 1;
/// Bytes of the device's name.
const NAME_BYTES: usize = 20;
const HEADER_BYTES: usize = 16;
const RANGE_BYTES: usize = 16;

const READ: u32 = 0;
const WRITE: u32 = 1;
const FLUSH: u32 = 4;
const GET_ID: u32 = 8;
const DISCARD: u32 = 11;
const WRITE_ZEROES: u32 = 13;

/// The flag of a range that may take no space afterwards.
const UNMAP: u32 = 1;

/// How a request ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Status {
    Ok = 0,
    Failed = 1,
    Unsupported = 2,
}

/// What is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operation {
    Read,
    Write,
    Flush,
    Name,
    Discard,
    WriteZeroes,
    Unknown,
}

impl Operation {
    fn of(number: u32) -> Self {
        match number {
            READ => Self::Read,
            WRITE => Self::Write,
            FLUSH => Self::Flush,
            GET_ID => Self::Name,
            DISCARD => Self::Discard,
            WRITE_ZEROES => Self::WriteZeroes,
            _ => Self::Unknown,
        }
    }

    /// Whether it changes what the device holds, or what of that is stable.
    pub fn changes(self) -> bool {
        matches!(self, Self::Write | Self::Flush | Self::Discard | Self::WriteZeroes)
    }
}

/// A request.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Request {
    /// The chain's first descriptor, which names it in the ring.
    pub head: u16,
    pub operation: Operation,
    sector: u64,
    data: Vec<Piece>,
    data_bytes: u64,
    status: GuestAddress,
}

/// A request that ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ended {
    pub head: u16,
    pub status: Status,
    /// Where the status goes.
    pub status_at: GuestAddress,
    /// Bytes written to the guest, the status included.
    pub written: u32,
    /// The memory that it had.
    pub held_bytes: usize,
}

impl Request {
    /// The request of a chain.
    ///
    /// # Errors
    /// Its header or its status is not there.
    pub fn parse(memory: &Memory, head: u16, chain: Chain) -> Result<Self, Violation> {
        let Chain { mut readable, mut writable } = chain;
        let mut header = [0; HEADER_BYTES];
        memory.gather(&readable, &mut header).ok_or(Violation("a request without a header"))?;
        skip(&mut readable, HEADER_BYTES as u64);
        let status = take_last(&mut writable).ok_or(Violation("a request without room for its status"))?;
        if !memory.has(status, 1) {
            return Err(Violation("a status outside of guest memory"));
        }
        let [t0, t1, t2, t3, _, _, _, _, sector @ ..] = header;
        let operation = Operation::of(u32::from_le_bytes([t0, t1, t2, t3]));
        let data = match operation {
            Operation::Read | Operation::Name => writable,
            _ => readable,
        };
        let data_bytes = data.iter().map(|piece| u64::from(piece.len)).sum();
        Ok(Self { head, operation, sector: u64::from_le_bytes(sector), data, data_bytes, status })
    }

    /// Where its data are in guest memory. Not checked.
    pub fn data(&self) -> &[Piece] {
        &self.data
    }

    /// Bytes that it needs while it is under way.
    pub fn memory_bytes(&self) -> usize {
        match self.operation {
            Operation::Read | Operation::Write if self.data_bytes <= MOST_DATA_BYTES => {
                self.data_bytes as usize
            }
            _ => 0,
        }
    }

    /// Does it. The caller writes the status.
    pub async fn execute<E: Export>(self, disk: Arc<Disk<E>>, memory: Arc<Memory>) -> Ended {
        let (status, data_bytes) = match disk.has_lost_writes() {
            // What it holds is not what the guest left there.
            true if self.operation != Operation::Name => (Status::Failed, 0),
            _ => self.run(&disk, &memory).await,
        };
        self.ended(status, data_bytes)
    }

    /// Its end, with so many bytes written to the guest before the status.
    pub fn ended(&self, status: Status, data_bytes: u32) -> Ended {
        Ended {
            head: self.head,
            status,
            status_at: self.status,
            written: data_bytes + 1,
            held_bytes: self.memory_bytes(),
        }
    }

    /// The status, and how many bytes were written to the guest.
    async fn run<E: Export>(&self, disk: &Disk<E>, memory: &Memory) -> (Status, u32) {
        let export = disk.export();
        let done = match self.operation {
            Operation::Read => return self.read(disk, memory).await,
            Operation::Name => return self.name(disk, memory),
            Operation::Unknown => return (Status::Unsupported, 0),
            Operation::Write | Operation::Discard | Operation::WriteZeroes if !export.is_writable() => {
                Err(Status::Failed)
            }
            Operation::Write => self.write(disk, memory).await,
            Operation::Flush => disk.flush().await.map_err(|error| disk.failed(&error)),
            Operation::Discard | Operation::WriteZeroes => self.range(disk, memory).await,
        };
        (done.err().unwrap_or(Status::Ok), 0)
    }

    /// The offset of its data, if they lie within the device.
    fn offset<E: Export>(&self, disk: &Disk<E>) -> Option<u64> {
        if self.data_bytes > MOST_DATA_BYTES || !self.data_bytes.is_multiple_of(SECTOR_BYTES) {
            return None;
        }
        within(disk, self.sector, self.data_bytes)
    }

    async fn read<E: Export>(&self, disk: &Disk<E>, memory: &Memory) -> (Status, u32) {
        let Some(offset) = self.offset(disk) else { return (Status::Failed, 0) };
        let mut target = memory.target(&self.data);
        if let Err(error) = disk.export().read_to(offset, self.data_bytes as usize, &mut target).await {
            return (disk.failed(&error), 0);
        }
        match target.is_intact() {
            // It is not more than `MOST_DATA_BYTES`.
            true => (Status::Ok, self.data_bytes as u32),
            false => (Status::Failed, 0),
        }
    }

    async fn write<E: Export>(&self, disk: &Disk<E>, memory: &Memory) -> Result<(), Status> {
        let offset = self.offset(disk).ok_or(Status::Failed)?;
        let mut data = IoBuf::for_overwrite(self.data_bytes as usize);
        memory.gather(&self.data, &mut data).ok_or(Status::Failed)?;
        if !memory.is_intact() {
            return Err(Status::Failed);
        }
        let promise = disk.promise();
        disk.export().write(offset, data, promise.is_asked).await.map_err(|error| disk.failed(&error))?;
        disk.wrote(promise);
        Ok(())
    }

    /// Fills in the name that the device has.
    fn name<E: Export>(&self, disk: &Disk<E>, memory: &Memory) -> (Status, u32) {
        let mut name = [0; NAME_BYTES];
        for (byte, from) in name.iter_mut().zip(disk.name().bytes()) {
            *byte = from;
        }
        let most = self.data_bytes.min(NAME_BYTES as u64) as usize;
        match memory.scatter(&self.data, name.get(..most).unwrap_or_default()) {
            Some(()) => (Status::Ok, most as u32),
            None => (Status::Failed, 0),
        }
    }

    /// Discards a range, or makes it read as zeroes.
    async fn range<E: Export>(&self, disk: &Disk<E>, memory: &Memory) -> Result<(), Status> {
        let count = self.data_bytes / RANGE_BYTES as u64;
        if count == 0 || !self.data_bytes.is_multiple_of(RANGE_BYTES as u64) {
            return Err(Status::Failed);
        }
        if count > u64::from(MOST_RANGES) {
            return Err(Status::Unsupported);
        }
        let mut range = [0; RANGE_BYTES];
        memory.gather(&self.data, &mut range).ok_or(Status::Failed)?;
        if !memory.is_intact() {
            return Err(Status::Failed);
        }
        let [s0, s1, s2, s3, s4, s5, s6, s7, n0, n1, n2, n3, flags @ ..] = range;
        let sector = u64::from_le_bytes([s0, s1, s2, s3, s4, s5, s6, s7]);
        let len_bytes = u64::from(u32::from_le_bytes([n0, n1, n2, n3])) * SECTOR_BYTES;
        let flags = u32::from_le_bytes(flags);
        let is_zeroes = self.operation == Operation::WriteZeroes;
        if flags & !(if is_zeroes { UNMAP } else { 0 }) != 0 {
            return Err(Status::Unsupported);
        }
        let offset = within(disk, sector, len_bytes).ok_or(Status::Failed)?;
        let promise = disk.promise();
        let done = match is_zeroes {
            true => disk.export().write_zeroes(offset, len_bytes, flags & UNMAP == 0, promise.is_asked).await,
            false => disk.export().trim(offset, len_bytes, promise.is_asked).await,
        };
        done.map_err(|error| disk.failed(&error))?;
        disk.wrote(promise);
        Ok(())
    }
}

/// The offset of a range in bytes, if it lies within the device.
fn within<E: Export>(disk: &Disk<E>, sector: u64, len_bytes: u64) -> Option<u64> {
    let offset = sector.checked_mul(SECTOR_BYTES)?;
    let end = offset.checked_add(len_bytes)?;
    // The guest may learn of a smaller size only later.
    (end <= disk.size_bytes()).then_some(offset)
}

/// Leaves out the first `bytes`, which are there.
fn skip(pieces: &mut Vec<Piece>, mut bytes: u64) {
    let mut gone = 0;
    for piece in pieces.iter_mut() {
        if u64::from(piece.len) > bytes {
            piece.address.0 = piece.address.0.saturating_add(bytes);
            piece.len -= bytes as u32;
            break;
        }
        bytes -= u64::from(piece.len);
        gone += 1;
    }
    pieces.drain(..gone);
}

/// Takes the last byte.
fn take_last(pieces: &mut Vec<Piece>) -> Option<GuestAddress> {
    while pieces.last()?.len == 0 {
        pieces.pop();
    }
    let last = pieces.last_mut()?;
    last.len -= 1;
    let at = last.address.0.checked_add(u64::from(last.len)).map(GuestAddress);
    if last.len == 0 {
        pieces.pop();
    }
    at
}

/// Writes the status of a request that ended.
pub(super) fn write_status(memory: &Memory, ended: &Ended) -> Result<(), Violation> {
    let written = memory.map().write_obj(ended.status as u8, ended.status_at);
    written.map_err(|_| Violation("a status outside of guest memory"))
}

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;

    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

    use super::super::memory::Described;
    use super::*;

    const MEMORY_BYTES: u64 = 64 << 10;
    const BASE: u64 = 1 << 20;
    const SIZE: u16 = 16;

    fn memory() -> Memory {
        let file: OwnedFd = memfd_create("test", MemfdFlags::CLOEXEC).unwrap();
        ftruncate(&file, MEMORY_BYTES).unwrap();
        let described =
            Described { guest_address: BASE, len_bytes: MEMORY_BYTES, user_address: 1 << 40, file_offset: 0 };
        Memory::default().with(described, file).unwrap()
    }

    fn describe(memory: &Memory, at: u64, (address, len, flags, next): (u64, u32, u16, u16)) {
        let bytes =
            [&address.to_le_bytes()[..], &len.to_le_bytes(), &flags.to_le_bytes(), &next.to_le_bytes()];
        memory.map().write_slice(&bytes.concat(), GuestAddress(at)).unwrap();
    }

    #[test]
    fn a_header_and_a_status_may_lie_anywhere_in_their_descriptors() {
        let memory = memory();
        memory.map().write_slice(&[1, 0, 0, 0, 0, 0, 0, 0, 9], GuestAddress(BASE + 0x1000)).unwrap();
        // The header is spread over three, the last of which has data too; the status follows other bytes.
        for (index, (address, len, flags)) in
            [(0x1000, 1, 1), (0x1001, 14, 1), (0x100f, 513, 1), (0x2000, 3, 3), (0x3000, 0, 2)]
                .into_iter()
                .enumerate()
        {
            let next = index as u16 + 1;
            describe(&memory, BASE + index as u64 * 16, (BASE + address, len, flags, next));
        }
        let chain = Chain::read(&memory, GuestAddress(BASE), SIZE, 0).unwrap();
        let request = Request::parse(&memory, 0, chain).unwrap();
        assert_eq!((request.operation, request.sector, request.data_bytes), (Operation::Write, 9, 512));
        assert_eq!(request.data, [Piece { address: GuestAddress(BASE + 0x1010), len: 512 }]);
        assert_eq!(request.status, GuestAddress(BASE + 0x2002));
    }

    #[test]
    fn pieces_are_filled_in_order_up_to_their_end() {
        use engine::dmu::Sink;

        let memory = memory();
        memory.map().write_slice(&[7; 64], GuestAddress(BASE)).unwrap();
        let piece = |at: u64, len| Piece { address: GuestAddress(BASE + at), len };
        let pieces = [piece(0, 3), piece(9, 0), piece(8, 4)];
        let mut target = memory.target(&pieces);
        for bytes in [&[1, 2][..], &[3, 4], &[]] {
            target.put(bytes);
        }
        target.put_zeroes(2);
        target.put(&[5]);
        assert!(target.is_intact());
        let mut found = [0; 14];
        memory.map().read_slice(&mut found, GuestAddress(BASE)).unwrap();
        assert_eq!(found, [1, 2, 3, 7, 7, 7, 7, 7, 4, 0, 0, 5, 7, 7]);
        // What is beyond the pieces, or beyond the memory, is not written.
        target.put(&[6]);
        assert!(!target.is_intact());
        let pieces = [piece(MEMORY_BYTES - 1, 2)];
        let mut target = memory.target(&pieces);
        target.put_zeroes(2);
        assert!(!target.is_intact());
    }
}
