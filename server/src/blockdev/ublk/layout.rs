//! The numbers and structures of ublk, in the order of bytes of the machine.
//!
//! A control command is in the 80 bytes that a submission of 128 bytes has for it:
//!
//! | offset | size | meaning |
//! |---|---|---|
//! | 0 | 4 | number of the device, all ones where the kernel is to choose it |
//! | 4 | 2 | number of the queue; all ones where none is meant |
//! | 6, 8 | 2, 8 | length and address of the structure that goes with it |
//! | 16 | 8 | a number that goes with it |
//! | 24 | 8 | path of the device, for users without privileges only |
//!
//! What a device is, 64 bytes, given and changed by `ADD_DEV`, told by `GET_DEV_INFO`:
//!
//! | offset | size | meaning |
//! |---|---|---|
//! | 0, 2 | 2, 2 | queues, and requests of each that may be under way |
//! | 4 | 2 | state: 0 where there is no block device |
//! | 8 | 4 | most bytes of a request |
//! | 12 | 4 | number |
//! | 16 | 4 | process that serves it |
//! | 24 | 8 | features |
//! | 32 | 8 | what the server likes to keep here |
//! | 40 | 24 | owner, reserved |
//!
//! Its parameters, for `SET_PARAMS`, of which we give the first 60 bytes:
//!
//! | offset | size | meaning |
//! |---|---|---|
//! | 0, 4 | 4, 4 | bytes of all of it, and a bit for each part that is given |
//! | 8 | 4 | attributes |
//! | 12 .. 16 | 1 each | powers of two: logical and physical block, best and least request |
//! | 16, 20 | 4, 4 | most sectors of a request; boundary that none may cross |
//! | 24 | 8 | sectors |
//! | 32 | 8 | boundary within memory |
//! | 40, 44 | 4, 4 | discarding: where units begin, and their bytes |
//! | 48, 52 | 4, 4 | most sectors to discard, and to write zeroes to |
//! | 56, 58 | 2, 2 | ranges of a request to discard; reserved |
//!
//! A request, 24 bytes in memory that the kernel shares, by queue and tag:
//!
//! | offset | size | meaning |
//! |---|---|---|
//! | 0 | 4 | operation (8 bits), flags |
//! | 4 | 4 | sectors |
//! | 8 | 8 | first sector |
//! | 16 | 8 | address of the data; unused here |
//!
//! A command of a queue, in the 16 bytes that any submission has for it: queue u16, tag u16, result i32,
//! address u64, which has to be 0 here.
//!
//! Source of the facts: `include/uapi/linux/ublk_cmd.h`, `Documentation/block/ublk.rst` and
//! `drivers/block/ublk_drv.c` of Linux 6.12 and 6.16.

use super::super::SECTOR_BYTES;

/// Asks the kernel's ublk driver something, or has it do something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Command {
    /// The description of a device.
    GetInfo = 0x8020_7502,
    /// A new device, without a block device yet.
    Add = 0xc020_7504,
    /// Removes a device, and waits until nothing has it open.
    Delete = 0xc020_7505,
    /// Makes the block device.
    Start = 0xc020_7506,
    /// Removes the block device.
    Stop = 0xc020_7507,
    /// The parameters of the block device.
    SetParameters = 0xc020_7508,
    /// The kernel's capabilities.
    GetFeatures = 0x8020_7513,
    /// Removes a device as soon as nothing has it open.
    DeleteLater = 0x8020_7514,
    /// Another size.
    UpdateSize = 0xc020_7515,
}

/// The first request of a tag is to be brought.
pub const FETCH: u32 = 0xc010_7520;
/// A request was answered, and the next one of its tag is to be brought.
pub const COMMIT_AND_FETCH: u32 = 0xc010_7521;

/// Commands are encoded as ioctls are. Linux 6.4.
pub const IOCTL_ENCODED: u64 = 1 << 6;
/// Data are copied by reading and writing the device. Linux 6.5.
pub const USER_COPY: u64 = 1 << 7;
/// [`Command::UpdateSize`]. Linux 6.16.
pub const UPDATE_SIZE: u64 = 1 << 10;

/// Bytes of the answer to [`Command::GetFeatures`].
pub const FEATURES_BYTES: usize = 8;
/// Bytes of a request.
pub const REQUEST_BYTES: usize = 24;
/// Most requests of a queue, for which the kernel leaves room where it shares them.
pub const MOST_REQUESTS: usize = 4096;

/// No device, or no queue, in particular.
pub const ANY_DEVICE: u32 = u32::MAX;
const NO_QUEUE: u16 = u16::MAX;

/// The arguments of a [`Command`] besides a structure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The device that is meant.
    pub device: u32,
    /// A number.
    pub data: u64,
}

impl Header {
    /// The command for the kernel, with a structure of `length` bytes at `address`.
    pub fn encode(self, length: u16, address: u64) -> [u8; 80] {
        let mut bytes = [0; 80];
        put(&mut bytes, 0, &self.device.to_ne_bytes());
        put(&mut bytes, 4, &NO_QUEUE.to_ne_bytes());
        put(&mut bytes, 6, &length.to_ne_bytes());
        put(&mut bytes, 8, &address.to_ne_bytes());
        put(&mut bytes, 16, &self.data.to_ne_bytes());
        bytes
    }
}

/// The description of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Info {
    /// Queues of requests.
    pub queues: u16,
    /// Requests of each that may be under way.
    pub depth: u16,
    /// Whether there is no block device, or none any more.
    pub is_dead: bool,
    /// Most bytes of a request.
    pub request_bytes: u32,
    /// Its number.
    pub id: u32,
    /// The driver's features for it.
    pub features: u64,
    /// The server's private data.
    pub mark: u64,
}

impl Info {
    /// Its bytes.
    pub const BYTES: usize = 64;

    /// Reads it.
    pub fn parse(bytes: &[u8; Self::BYTES]) -> Self {
        Self {
            queues: u16_at(bytes, 0),
            depth: u16_at(bytes, 2),
            is_dead: u16_at(bytes, 4) == 0,
            request_bytes: u32_at(bytes, 8),
            id: u32_at(bytes, 12),
            features: u64_at(bytes, 24),
            mark: u64_at(bytes, 32),
        }
    }

    /// For a new device. The kernel says itself what its state is.
    pub fn encode(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        put(&mut bytes, 0, &self.queues.to_ne_bytes());
        put(&mut bytes, 2, &self.depth.to_ne_bytes());
        put(&mut bytes, 8, &self.request_bytes.to_ne_bytes());
        put(&mut bytes, 12, &self.id.to_ne_bytes());
        put(&mut bytes, 24, &self.features.to_ne_bytes());
        put(&mut bytes, 32, &self.mark.to_ne_bytes());
        bytes
    }
}

const ATTRIBUTE_READ_ONLY: u32 = 1 << 0;
const ATTRIBUTE_VOLATILE_CACHE: u32 = 1 << 2;
const ATTRIBUTE_FUA: u32 = 1 << 3;
const PART_BASIC: u32 = 1 << 0;
const PART_DISCARD: u32 = 1 << 1;
/// Most bytes to discard, or to write zeroes to, by one request.
const MOST_DISCARDED_BYTES: u64 = 1 << 30;

/// The parameters of a block device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameters {
    /// Its size.
    pub size_bytes: u64,
    /// Requests of this size and alignment cost least. A power of two, of a sector at least.
    pub block_bytes: u32,
    /// Most bytes of a request.
    pub request_bytes: u32,
    /// Whether it can be written. Then it keeps what is written until it is flushed, has FUA, and discards.
    pub is_writable: bool,
}

impl Parameters {
    /// Bytes that the kernel is given.
    pub const BYTES: usize = 60;

    /// For the kernel.
    pub fn encode(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        let attributes = match self.is_writable {
            true => ATTRIBUTE_VOLATILE_CACHE | ATTRIBUTE_FUA,
            false => ATTRIBUTE_READ_ONLY,
        };
        let parts = if self.is_writable { PART_BASIC | PART_DISCARD } else { PART_BASIC };
        let sector = SECTOR_BYTES.trailing_zeros() as u8;
        let block = self.block_bytes.trailing_zeros() as u8;
        put(&mut bytes, 0, &(Self::BYTES as u32).to_ne_bytes());
        put(&mut bytes, 4, &parts.to_ne_bytes());
        put(&mut bytes, 8, &attributes.to_ne_bytes());
        put(&mut bytes, 12, &[sector, block, block, block]);
        put(&mut bytes, 16, &(self.request_bytes / SECTOR_BYTES as u32).to_ne_bytes());
        put(&mut bytes, 24, &(self.size_bytes / SECTOR_BYTES).to_ne_bytes());
        if self.is_writable {
            let most = MOST_DISCARDED_BYTES.max(self.block_bytes.into()) / SECTOR_BYTES;
            put(&mut bytes, 44, &self.block_bytes.to_ne_bytes());
            // A block has less than 4 GiB.
            put(&mut bytes, 48, &(most as u32).to_ne_bytes());
            put(&mut bytes, 52, &(most as u32).to_ne_bytes());
            put(&mut bytes, 56, &1u16.to_ne_bytes());
        }
        bytes
    }
}

/// The operation of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Data from the device.
    Read,
    /// Data to the device.
    Write,
    /// Makes stable what was written.
    Flush,
    /// Gives space back.
    Discard,
    /// Zeroes.
    WriteZeroes {
        /// That take space.
        allocate: bool,
    },
}

/// A request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The operation.
    pub operation: Operation,
    /// It is to be stable when it is answered.
    pub stable: bool,
    /// Where it begins.
    pub offset: u64,
    /// Its length.
    pub len_bytes: u64,
}

const FLAG_FUA: u32 = 1 << 13;
const FLAG_NO_UNMAP: u32 = 1 << 15;

impl Request {
    /// Reads it; `None` for an operation that is not known, or a place that no device has.
    pub fn parse(bytes: &[u8; REQUEST_BYTES]) -> Option<Self> {
        let word = u32_at(bytes, 0);
        // The flags are numbered by their bits in the whole word.
        let has = |flag: u32| word & flag != 0;
        let operation = match word & 0xff {
            0 => Operation::Read,
            1 => Operation::Write,
            2 => Operation::Flush,
            3 => Operation::Discard,
            5 => Operation::WriteZeroes { allocate: has(FLAG_NO_UNMAP) },
            _ => return None,
        };
        let len_bytes = u64::from(u32_at(bytes, 4)) * SECTOR_BYTES;
        let offset = match operation {
            // It is about the whole device, and the kernel says no place.
            Operation::Flush => 0,
            _ => u64_at(bytes, 8).checked_mul(SECTOR_BYTES)?,
        };
        offset.checked_add(len_bytes)?;
        Some(Self { operation, stable: has(FLAG_FUA), offset, len_bytes })
    }
}

/// A command of a queue.
pub fn queue_command(queue: u16, tag: u16, result: i32) -> [u8; 16] {
    let mut bytes = [0; 16];
    put(&mut bytes, 0, &queue.to_ne_bytes());
    put(&mut bytes, 2, &tag.to_ne_bytes());
    put(&mut bytes, 4, &result.to_ne_bytes());
    bytes
}

/// Where the data of a request are read and written.
pub fn position_of_data(queue: u16, tag: u16) -> u64 {
    0x8000_0000 + (u64::from(queue) << 41) + (u64::from(tag) << 25)
}

/// Where the requests of a queue of that depth are mapped, and how many bytes they have.
pub fn place_of_requests(queue: u16, depth: u16, page_bytes: usize) -> (u64, usize) {
    let room = (MOST_REQUESTS * REQUEST_BYTES).next_multiple_of(page_bytes) as u64;
    (u64::from(queue) * room, (usize::from(depth) * REQUEST_BYTES).next_multiple_of(page_bytes))
}

fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    bytes[at..at + value.len()].copy_from_slice(value);
}

fn chunk<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut chunk = [0; N];
    chunk.copy_from_slice(&bytes[at..at + N]);
    chunk
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_ne_bytes(chunk(bytes, at))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(chunk(bytes, at))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(chunk(bytes, at))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_control_command_is_as_the_kernel_reads_it() {
        let bytes = Header { device: 7, data: 0x0102_0304_0506_0708 }.encode(64, 0x7fff_0000_1000);
        let expected = [
            &7u32.to_ne_bytes()[..],
            &[0xff, 0xff],
            &64u16.to_ne_bytes(),
            &0x7fff_0000_1000u64.to_ne_bytes(),
            &0x0102_0304_0506_0708u64.to_ne_bytes(),
            &[0; 56],
        ];
        assert_eq!(bytes[..], expected.concat());
    }

    #[test]
    fn what_a_device_is_survives_the_way_to_the_kernel() {
        let info = Info {
            queues: 2,
            depth: 64,
            is_dead: true,
            request_bytes: 512 << 10,
            id: ANY_DEVICE,
            features: USER_COPY | IOCTL_ENCODED,
            mark: 0x1122_3344_5566_7788,
        };
        let mut bytes = info.encode();
        assert_eq!(Info::parse(&bytes), info);
        assert_eq!(bytes[8..16], [0, 0, 8, 0, 255, 255, 255, 255]);
        assert_eq!(
            bytes[24..40],
            [0xc0, 0, 0, 0, 0, 0, 0, 0, 0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11]
        );
        bytes[4] = 1;
        assert!(!Info::parse(&bytes).is_dead);
    }

    #[test]
    fn parameters_say_what_a_volume_is_like() {
        let parameters = Parameters {
            size_bytes: 8 << 20,
            block_bytes: 16 << 10,
            request_bytes: 512 << 10,
            is_writable: true,
        };
        let words = |bytes: [u8; 60]| -> Vec<u32> { (0..15).map(|word| u32_at(&bytes, 4 * word)).collect() };
        let powers = u32::from_ne_bytes([9, 14, 14, 14]);
        let discard = [0, 16 << 10, 2 << 20, 2 << 20, 1];
        let basic = [60, 3, 0b1100, powers, 1024, 0, 16 << 10, 0, 0, 0];
        assert_eq!(words(parameters.encode()), [&basic[..], &discard].concat());
        let read_only = Parameters { is_writable: false, ..parameters };
        let basic = [60, 1, 0b0001, powers, 1024, 0, 16 << 10, 0, 0, 0];
        assert_eq!(words(read_only.encode()), [&basic[..], &[0; 5]].concat());
    }

    fn described(word: u32, sectors: u32, first: u64) -> Option<Request> {
        let parts = [&word.to_ne_bytes()[..], &sectors.to_ne_bytes(), &first.to_ne_bytes(), &[0; 8]];
        Request::parse(parts.concat().first_chunk().unwrap())
    }

    #[test]
    fn requests_are_read_and_those_that_make_no_sense_refused() {
        let request =
            |operation, stable, offset, len_bytes| Some(Request { operation, stable, offset, len_bytes });
        assert_eq!(described(0, 8, 3), request(Operation::Read, false, 1536, 4096));
        assert_eq!(described(1 | 1 << 13 | 1 << 11, 1, 0), request(Operation::Write, true, 0, 512));
        assert_eq!(described(2, 0, u64::MAX), request(Operation::Flush, false, 0, 0));
        assert_eq!(described(3, 2, 2), request(Operation::Discard, false, 1024, 1024));
        let zeroes = |allocate| Operation::WriteZeroes { allocate };
        assert_eq!(described(5, 1, 1), request(zeroes(false), false, 512, 512));
        assert_eq!(described(5 | 1 << 15, 1, 1), request(zeroes(true), false, 512, 512));
        assert_eq!(described(4, 1, 1), None);
        assert_eq!(described(0, 1, u64::MAX), None);
        assert_eq!(described(0, u32::MAX, (u64::MAX >> 9) - 1), None);
    }

    #[test]
    fn commands_of_a_queue_and_places_of_data_are_as_the_kernel_has_them() {
        let command = queue_command(3, 500, -5);
        let expected = [&3u16.to_ne_bytes()[..], &500u16.to_ne_bytes(), &(-5i32).to_ne_bytes(), &[0; 8]];
        assert_eq!(command[..], expected.concat());
        assert_eq!(position_of_data(0, 0), 0x8000_0000);
        assert_eq!(position_of_data(1, 2), 0x8000_0000 + (1 << 41) + (2 << 25));
        assert_eq!(place_of_requests(0, 64, 4096), (0, 4096));
        assert_eq!(place_of_requests(2, 256, 4096), (2 * 98304, 8192));
    }
}
