//! An entry of a queue: memory for one request and its answer, with the commands that give it to the kernel.
//!
//! # Layout
//! Two pieces of memory, of which the kernel is told when an entry is registered. All numbers are in the
//! order of the machine.
//!
//! The header, 288 bytes:
//!
//! | offset | size | meaning |
//! |---|---|---|
//! | 0 | 128 | header of the request; later that of the answer |
//! | 128 | 128 | fixed part of the request |
//! | 256 | 8 | flags, of which there are none |
//! | 264 | 8 | number of the request, for the command that answers it |
//! | 272 | 4 | bytes of the payload; later those of the answer's |
//! | 276 | 12 | reserved |
//!
//! The payload: names and data of the request; later the answer without its header.
//!
//! A command, in the 80 bytes that an entry of 128 bytes has for it:
//!
//! | offset | size | meaning |
//! |---|---|---|
//! | 0 | 8 | flags, of which there are none |
//! | 8 | 8 | number of the request that is answered |
//! | 16 | 2 | number of the queue |
//! | 18 | 62 | 0 |
//!
//! Source: Linux, `include/uapi/linux/fuse.h`, `include/uapi/linux/io_uring.h`.

#![allow(unsafe_code, reason = "memory that is shared with the kernel")]

use std::mem::ManuallyDrop;
use std::os::fd::RawFd;

use device::IoBuf;
use fuser::Errno;
use io_uring::{opcode, squeue, types};

use crate::fuse::connection::MAX_DATA_BYTES;
use crate::fuse::wire::{ANSWER_HEADER_BYTES, Request, answer_header};

const HEADER_BYTES: usize = 288;
const FIXED_AT: usize = 128;
const FIXED_BYTES: usize = 128;
const NUMBER_AT: usize = 264;
const PAYLOAD_BYTES_AT: usize = 272;

/// The kernel is told of the memory, and brings a request.
const REGISTER: u32 = 1;
/// The kernel takes an answer, and brings the next request.
const COMMIT_AND_FETCH: u32 = 2;

/// Room for answers to requests with a payload. None of them is longer than an extended attribute can be.
const ASIDE_BYTES: usize = 128 << 10;

/// An entry that is ours.
pub struct RingEntry {
    queue: u16,
    header: IoBuf,
    payload: IoBuf,
    /// For answers to requests whose payload is still read while they are answered.
    aside: IoBuf,
    /// Where header and payload are, for the kernel.
    places: Box<[libc::iovec; 2]>,
}

impl RingEntry {
    /// An entry of a queue, of which the kernel does not know yet.
    pub fn new(queue: u16) -> Self {
        let mut header = IoBuf::zeroed(HEADER_BYTES);
        let mut payload = IoBuf::for_overwrite(MAX_DATA_BYTES);
        let place =
            |memory: &mut IoBuf| libc::iovec { iov_base: memory.as_mut_ptr().cast(), iov_len: memory.len() };
        let places = Box::new([place(&mut header), place(&mut payload)]);
        Self { queue, header, payload, aside: IoBuf::for_overwrite(ASIDE_BYTES), places }
    }

    /// Gives it to the kernel for the first request.
    pub fn register(self, device: RawFd) -> Given {
        let addr = Some(self.places.as_ptr() as u64);
        let command = opcode::UringCmd80::new(types::Fd(device), REGISTER).addr(addr).cmd(self.command(0));
        Given {
            command: with_length(command.build(), self.places.len() as u32),
            entry: ManuallyDrop::new(self),
        }
    }

    /// Gives it to the kernel with an answer, for the next request.
    pub fn commit(self, device: RawFd) -> Given {
        let command = self.command(self.number());
        let command = opcode::UringCmd80::new(types::Fd(device), COMMIT_AND_FETCH).cmd(command);
        Given { command: command.build(), entry: ManuallyDrop::new(self) }
    }

    fn command(&self, number: u64) -> [u8; 80] {
        let mut bytes = [0; 80];
        bytes[8..16].copy_from_slice(&number.to_ne_bytes());
        bytes[16..18].copy_from_slice(&self.queue.to_ne_bytes());
        bytes
    }

    fn number(&self) -> u64 {
        self.header[NUMBER_AT..].first_chunk().map_or(0, |bytes| u64::from_ne_bytes(*bytes))
    }

    fn payload_bytes(&self) -> usize {
        let bytes =
            self.header[PAYLOAD_BYTES_AT..].first_chunk().map_or(0, |bytes| u32::from_ne_bytes(*bytes));
        (bytes as usize).min(self.payload.len())
    }

    /// Has the request that came answered by `answer`, which writes into the room that it is given: an error,
    /// or how many bytes it wrote.
    pub fn answer(&mut self, answer: impl FnOnce(&Request<'_>, &mut [u8]) -> Result<usize, Errno>) {
        let came = self.payload_bytes();
        // The answer to what has no payload goes where the kernel reads it.
        let (rest, room) = match came {
            0 => (&[][..], &mut self.payload[..]),
            _ => (&self.payload[..came], &mut self.aside[..]),
        };
        let fixed = &self.header[FIXED_AT..FIXED_AT + FIXED_BYTES];
        let (unique, answer) = match Request::of_parts(&self.header, fixed, rest) {
            Some(request) => (request.unique, answer(&request, room)),
            None => (0, Err(Errno::EINVAL)),
        };
        let length = answer.unwrap_or(0);
        if came > 0 {
            self.payload[..length].copy_from_slice(&self.aside[..length]);
        }
        self.header[..ANSWER_HEADER_BYTES].copy_from_slice(&answer_header(unique, answer));
        // No room has 4 GiB.
        self.header[PAYLOAD_BYTES_AT..PAYLOAD_BYTES_AT + 4].copy_from_slice(&(length as u32).to_ne_bytes());
    }
}

/// An entry that the kernel has, or is about to have. Dropping it frees nothing: the kernel may write to it.
pub struct Given {
    command: squeue::Entry128,
    entry: ManuallyDrop<RingEntry>,
}

impl Given {
    /// The command that gives it to the kernel.
    pub fn command(&self) -> &squeue::Entry128 {
        &self.command
    }

    /// The entry.
    ///
    /// # Safety
    /// The kernel has completed the command, or never seen it.
    pub unsafe fn back(self) -> RingEntry {
        ManuallyDrop::into_inner(self.entry)
    }
}

/// Where a submission says how many pieces of memory its address means; `io_uring` has no other way to say
/// it.
const LENGTH_AT: usize = 24;

fn with_length(mut command: squeue::Entry128, length: u32) -> squeue::Entry128 {
    const { assert!(size_of::<squeue::Entry128>() == 128) };
    // SAFETY: an `Entry128` is the kernel's submission of 128 bytes, plain numbers throughout, of which these
    // four are one; it is borrowed mutably.
    unsafe {
        let place = (&raw mut command).cast::<u8>().add(LENGTH_AT).cast::<u32>();
        place.write_unaligned(length);
    }
    command
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fuse::wire::Operation;

    /// An entry that came with a request: its opcode, fixed part and payload.
    fn came(opcode: u32, fixed: &[u8], payload: &[u8]) -> RingEntry {
        let mut entry = RingEntry::new(3);
        entry.header[4..8].copy_from_slice(&opcode.to_ne_bytes());
        entry.header[8..16].copy_from_slice(&77u64.to_ne_bytes());
        entry.header[FIXED_AT..FIXED_AT + fixed.len()].copy_from_slice(fixed);
        entry.header[NUMBER_AT..NUMBER_AT + 8].copy_from_slice(&88u64.to_ne_bytes());
        let bytes = payload.len() as u32;
        entry.header[PAYLOAD_BYTES_AT..PAYLOAD_BYTES_AT + 4].copy_from_slice(&bytes.to_ne_bytes());
        entry.payload[..payload.len()].copy_from_slice(payload);
        entry
    }

    #[test]
    fn a_request_with_a_payload_is_read_until_its_answer_takes_its_place() {
        let mut entry = came(1, &[], b"name\0");
        entry.answer(|request, room| {
            assert_eq!(request.operation, Operation::Lookup { name: b"name" });
            room[..6].copy_from_slice(b"answer");
            assert_eq!(request.operation, Operation::Lookup { name: b"name" });
            Ok(6)
        });
        assert_eq!(entry.header[..ANSWER_HEADER_BYTES], answer_header(77, Ok(6)));
        assert_eq!((entry.payload_bytes(), &entry.payload[..6]), (6, &b"answer"[..]));
        let command = entry.command(entry.number());
        assert_eq!(command[8..18], [&88u64.to_ne_bytes()[..], &3u16.to_ne_bytes()].concat());
    }

    #[test]
    fn data_are_written_where_the_kernel_reads_them_and_errors_have_none() {
        let fixed = [9u64.to_ne_bytes(), 4096u64.to_ne_bytes(), 512u64.to_ne_bytes()].concat();
        let mut entry = came(15, &fixed, b"");
        entry.answer(|request, room| {
            assert!(matches!(request.operation, Operation::Read { offset: 4096, size: 512, .. }));
            room[..MAX_DATA_BYTES].fill(5);
            Ok(MAX_DATA_BYTES)
        });
        assert_eq!(entry.payload_bytes(), MAX_DATA_BYTES);
        assert!(entry.payload.iter().all(|byte| *byte == 5));
        let mut entry = came(15, &fixed, b"");
        entry.answer(|_, _| Err(Errno::EIO));
        assert_eq!(entry.header[..ANSWER_HEADER_BYTES], answer_header(77, Err(Errno::EIO)));
        assert_eq!(entry.payload_bytes(), 0);
    }
}
