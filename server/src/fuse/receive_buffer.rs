//! The buffer in which a thread receives requests.
//!
//! Most requests are small and fit in one contiguous buffer. A program that writes much sends one large write
//! after the other. After the first of them the thread receives into blocks as large as the dataset's records
//! ([`Payload`]). So a write of whole records is taken over without a copy, and the kernel copies to the
//! beginning of a page.
//!
//! # Layout
//! | | first piece, 80 bytes | further pieces |
//! |---|---|---|
//! | write | its header and fixed part | the data, from the first byte of the first block on |
//! | other requests | as much as fits | the rest; both are put together again |
//!
//! The kernel gives no request to a reader whose buffer is smaller than the largest request.

use std::io::IoSliceMut;
use std::os::fd::AsFd;

use device::IoBuf;
use engine::Block;
use engine::dmu::Payload;
use rustix::io::{Errno, read, readv};

use super::buffer::Buffer;
use super::connection::MAX_DATA_BYTES;
use super::wire::{LONG_BYTES, Operation, Request, WRITE_HEAD_BYTES};

/// Room for what precedes the data of a request.
const BEFORE_DATA_BYTES: usize = 4096;
/// The smallest records into which data are received: of smaller ones there would be too many.
const MIN_BLOCK_BYTES: usize = 16 << 10;
/// Requests in a row that were no large writes, after which the blocks are given back.
const PATIENCE: u32 = 8;

/// Room for one request.
#[derive(Debug)]
pub struct ReceiveBuffer {
    whole: Buffer,
    head: [u8; WRITE_HEAD_BYTES],
    /// None where no large writes are expected; else of one size, and as many as the largest request takes.
    blocks: Vec<Block>,
    /// Requests since the last large write.
    others: u32,
}

impl ReceiveBuffer {
    /// Room that takes no memory before there is something in it.
    ///
    /// # Errors
    /// There is no room for it.
    pub fn new() -> std::io::Result<Self> {
        let whole = Buffer::new(BEFORE_DATA_BYTES + MAX_DATA_BYTES)?;
        Ok(Self { whole, head: [0; WRITE_HEAD_BYTES], blocks: Vec::new(), others: 0 })
    }

    /// Receives a request; how many bytes it has.
    pub fn receive(&mut self, device: impl AsFd) -> Result<usize, Errno> {
        if self.blocks.is_empty() {
            return read(device, &mut *self.whole);
        }
        let mut pieces = Vec::with_capacity(1 + self.blocks.len());
        pieces.push(IoSliceMut::new(&mut self.head));
        for block in &mut self.blocks {
            // There are no other references: those that were taken over are others by now.
            pieces.extend(block.get_mut().map(IoSliceMut::new));
        }
        let size = readv(device, &mut pieces)?;
        if !Request::is_write(&self.head) {
            let beyond = size.saturating_sub(WRITE_HEAD_BYTES);
            let run = Payload::of_blocks(&self.blocks, beyond).to_run();
            self.whole[..WRITE_HEAD_BYTES].copy_from_slice(&self.head);
            self.whole[WRITE_HEAD_BYTES..WRITE_HEAD_BYTES + beyond].copy_from_slice(&run);
        }
        Ok(size)
    }

    /// The received request of `size` bytes; `None` if it has no header.
    pub fn request(&self, size: usize) -> Option<Request<'_>> {
        if self.blocks.is_empty() || !Request::is_write(&self.head) || size < WRITE_HEAD_BYTES {
            return Request::parse(self.whole.get(..size)?);
        }
        Request::of_write(&self.head, Payload::of_blocks(&self.blocks, size - WRITE_HEAD_BYTES))
    }

    /// The request is answered. After a large write others are expected, of data with records of so many
    /// bytes.
    pub fn expect(&mut self, is_large_write: bool, record_bytes: impl FnOnce() -> Option<usize>) {
        if !is_large_write {
            self.others += 1;
            if self.others >= PATIENCE && !self.blocks.is_empty() {
                self.blocks = Vec::new();
            }
        } else if self.others > 0 || self.blocks.is_empty() {
            self.others = 0;
            // Also for writes to a dataset whose record size has changed.
            let fits =
                |bytes: &usize| bytes.is_power_of_two() && (MIN_BLOCK_BYTES..=MAX_DATA_BYTES).contains(bytes);
            let bytes = record_bytes().filter(fits);
            if self.blocks.first().map(|block| block.len()) != bytes {
                let all = |bytes: usize| std::iter::repeat_n(bytes, MAX_DATA_BYTES / bytes);
                let new = |bytes: usize| Block::from(IoBuf::for_overwrite(bytes));
                self.blocks = bytes.into_iter().flat_map(all).map(new).collect();
            }
        }
        // Those that became blocks of a file are not this thread's any more.
        for block in &mut self.blocks {
            if block.get_mut().is_none() {
                *block = IoBuf::for_overwrite(block.len()).into();
            }
        }
    }

    /// Takes no memory until the next request.
    pub fn clear(&mut self) {
        self.whole.clear();
        self.blocks = Vec::new();
    }
}

/// Whether a request is one after which others like it are expected.
pub fn is_large_write(request: &Request<'_>) -> bool {
    matches!(request.operation, Operation::Write { payload, .. } if payload.len() >= LONG_BYTES)
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::net::UnixDatagram;

    use super::*;

    /// A request of the kernel in one piece.
    fn request(opcode: u32, fixed: &[u8], rest: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.write_all(&((40 + fixed.len() + rest.len()) as u32).to_ne_bytes()).unwrap();
        bytes.write_all(&opcode.to_ne_bytes()).unwrap();
        bytes.write_all(&[0; 32]).unwrap();
        bytes.write_all(fixed).unwrap();
        bytes.write_all(rest).unwrap();
        bytes
    }

    fn write(data: &[u8]) -> Vec<u8> {
        let mut fixed = [0; 40];
        fixed[8..16].copy_from_slice(&4096u64.to_ne_bytes());
        fixed[16..20].copy_from_slice(&(data.len() as u32).to_ne_bytes());
        request(16, &fixed, data)
    }

    fn written<'a>(incoming: &'a ReceiveBuffer, size: usize) -> Payload<'a> {
        match incoming.request(size).unwrap().operation {
            Operation::Write { payload, offset: 4096, .. } => payload,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn large_writes_come_in_blocks_and_all_else_is_put_together() {
        let (near, far) = UnixDatagram::pair().unwrap();
        let data: Vec<u8> = (0..LONG_BYTES).map(|at| (at / 13) as u8).collect();
        let mut incoming = ReceiveBuffer::new().unwrap();
        let receive = |incoming: &mut ReceiveBuffer, bytes: &[u8]| {
            far.send(bytes).unwrap();
            assert_eq!(incoming.receive(&near).unwrap(), bytes.len());
            bytes.len()
        };
        // The first comes in one run.
        let size = receive(&mut incoming, &write(&data));
        let first = incoming.request(size).unwrap();
        assert!(is_large_write(&first) && incoming.blocks.is_empty());
        assert_eq!(written(&incoming, size), Payload::from(&data[..]));
        incoming.expect(true, || Some(32 << 10));
        assert_eq!(incoming.blocks.len(), MAX_DATA_BYTES >> 15);
        // The next ones in blocks, which are taken over.
        for _ in 0..3 {
            let size = receive(&mut incoming, &write(&data));
            let payload = written(&incoming, size);
            assert_eq!(payload, Payload::from(&data[..]));
            let taken = incoming.blocks[1].clone();
            incoming.expect(true, || unreachable!("it is known"));
            assert!(!taken.is_same(&incoming.blocks[1]));
            assert_eq!(taken[..], data[32 << 10..]);
        }
        // A write that is short, a request that ends in the first piece, and one that goes on behind it.
        let size = receive(&mut incoming, &write(&data[..5]));
        assert_eq!(written(&incoming, size), Payload::from(&data[..5]));
        incoming.expect(false, || None);
        let size = receive(&mut incoming, &request(1, &[], b"name\0"));
        assert_eq!(incoming.request(size).unwrap().operation, Operation::Lookup { name: b"name" });
        let value: Vec<u8> = (0..50_000).map(|at| (at / 7) as u8).collect();
        let fixed = [50_000u32.to_ne_bytes(), [0; 4]].concat();
        let size = receive(&mut incoming, &request(21, &fixed, &[b"user.x\0", &value[..]].concat()));
        let wanted = Operation::SetXattr { name: b"user.x", value: &value, flags: 0 };
        assert_eq!(incoming.request(size).unwrap().operation, wanted);
        // One that says more than came is none.
        let mut cut = write(&data);
        cut.truncate(70_000.min(cut.len() - 1));
        let size = receive(&mut incoming, &cut);
        assert_eq!(incoming.request(size).unwrap().operation, Operation::Malformed);
        let size = receive(&mut incoming, &write(&[])[..60]);
        assert_eq!(incoming.request(size).unwrap().operation, Operation::Malformed);
        let size = receive(&mut incoming, &[1, 2, 3]);
        assert!(incoming.request(size).is_none());
        // Other records, and then none of a size that is of use.
        incoming.expect(true, || Some(64 << 10));
        assert_eq!((incoming.blocks.len(), incoming.blocks[0].len()), (16, 64 << 10));
        (0..PATIENCE).for_each(|_| incoming.expect(false, || None));
        assert!(incoming.blocks.is_empty());
        for unfit in [None, Some(4096), Some(16 << 20), Some(40 << 10)] {
            incoming.expect(true, || unfit);
            assert!(incoming.blocks.is_empty());
        }
    }
}
