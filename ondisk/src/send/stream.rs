//! Reading and writing a send stream piece by piece.
//!
//! The checksum runs from a stream's `BEGIN` on and is a fletcher4 over 32-bit words in the sender's order.
//! For each record: the first 280 bytes are added; of all records but `BEGIN` the last 32 bytes then hold the
//! checksum as it is now (or zero, which claims nothing); those 32 bytes are added too; then the payload is.
//! `END` has in its own body the checksum before that `END`. After `END` the checksum starts again at zero.
//!
//! [`StreamReader`] does no I/O: it says how many bytes it wants next, and takes exactly those. A payload is
//! therefore never copied, and never larger than [`MAX_PAYLOAD_BYTES`] (or [`MAX_BEGIN_PAYLOAD_BYTES`] for
//! the nvlist of `BEGIN`).

use super::{CHECKSUM_OFFSET, MAGIC, RECORD_SIZE, Record, WHAT};
use crate::{ByteOrder, Error, Reader, Result};

/// Largest payload of any record but `BEGIN`: the largest block.
pub const MAX_PAYLOAD_BYTES: u64 = crate::blkptr::MAX_BLOCK_SIZE;
/// Largest nvlist of a `BEGIN`.
pub const MAX_BEGIN_PAYLOAD_BYTES: u64 = 64 << 20;

/// A running fletcher4.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Running(pub(super) [u64; 4]);

impl Running {
    /// Adds whole 32-bit words; bytes beyond the last whole word do not count.
    pub(super) fn add(&mut self, bytes: &[u8], order: ByteOrder) {
        let [mut a, mut b, mut c, mut d] = self.0;
        for &word in bytes.as_chunks::<4>().0 {
            a = a.wrapping_add(order.u32(word).into());
            b = b.wrapping_add(a);
            c = c.wrapping_add(b);
            d = d.wrapping_add(c);
        }
        self.0 = [a, b, c, d];
    }

    /// Adds so many 32-bit words of which the checksum by themselves is known.
    fn append(&mut self, words: u64, sums: [u64; 4]) {
        let n = u128::from(words);
        // Sums of the first `n` numbers, and of the first `n` of such sums. All sums are modulo 2^64.
        let (triangle, tetrahedron) = (n * (n + 1) / 2, n * (n + 1) / 2 * (n + 2) / 3);
        let times = |factor: u128, sum: u64| (factor as u64).wrapping_mul(sum);
        let ([a, b, c, d], [a2, b2, c2, d2]) = (self.0, sums);
        self.0 = [
            a.wrapping_add(a2),
            b.wrapping_add(times(n, a)).wrapping_add(b2),
            c.wrapping_add(times(n, b)).wrapping_add(times(triangle, a)).wrapping_add(c2),
            d.wrapping_add(times(n, c))
                .wrapping_add(times(triangle, b))
                .wrapping_add(times(tetrahedron, a))
                .wrapping_add(d2),
        ];
    }
}

/// A record with its payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item<'a> {
    /// The record.
    pub record: Record,
    /// What follows it.
    pub payload: &'a [u8],
}

#[derive(Debug)]
enum State {
    /// A record comes next.
    Record,
    /// The payload of this record comes next.
    Payload(Record),
}

/// Takes a stream apart and verifies its checksums.
#[derive(Debug)]
pub struct StreamReader {
    order: ByteOrder,
    running: Running,
    state: State,
    inside: bool,
    verifies: bool,
}

impl Default for StreamReader {
    fn default() -> StreamReader {
        StreamReader::new()
    }
}

impl StreamReader {
    /// A reader before the beginning of a stream.
    pub const fn new() -> StreamReader {
        StreamReader {
            order: ByteOrder::Little,
            running: Running([0; 4]),
            state: State::Record,
            inside: false,
            verifies: true,
        }
    }

    /// The same, which takes records whatever their checksums are: to look at a damaged stream.
    pub fn unverified() -> StreamReader {
        StreamReader { verifies: false, ..StreamReader::new() }
    }

    /// How many bytes the next call of [`StreamReader::accept`] must get.
    pub fn wants(&self) -> usize {
        match &self.state {
            State::Record => RECORD_SIZE,
            State::Payload(record) => usize::try_from(record.payload_bytes()).unwrap_or(usize::MAX),
        }
    }

    /// True where the input may end: between streams.
    pub const fn may_end(&self) -> bool {
        !self.inside && matches!(self.state, State::Record)
    }

    /// Byte order of the stream, known after `BEGIN`.
    pub const fn order(&self) -> ByteOrder {
        self.order
    }

    /// Takes the bytes that [`StreamReader::wants`] asked for. Gives a record once its payload is there too.
    pub fn accept<'a>(&mut self, bytes: &'a [u8]) -> Result<Option<Item<'a>>> {
        if bytes.len() != self.wants() {
            let (needed, available) = (self.wants(), bytes.len());
            return Err(Error::Truncated { what: WHAT, offset: 0, needed, available });
        }
        match std::mem::replace(&mut self.state, State::Record) {
            State::Payload(record) => {
                self.running.add(bytes, self.order);
                Ok(Some(Item { record, payload: bytes }))
            }
            State::Record => {
                let record = self.record(bytes)?;
                if record.payload_bytes() == 0 {
                    return Ok(Some(Item { record, payload: &[] }));
                }
                self.state = State::Payload(record);
                Ok(None)
            }
        }
    }

    /// Takes the next record and its payload from a whole stream in memory; nothing at its end.
    pub fn next_in<'a>(&mut self, input: &mut &'a [u8]) -> Result<Option<Item<'a>>> {
        while !(input.is_empty() && self.may_end()) {
            let needed = self.wants();
            let (bytes, rest) = input.split_at_checked(needed).ok_or(Error::Truncated {
                what: WHAT,
                offset: 0,
                needed,
                available: input.len(),
            })?;
            *input = rest;
            if let Some(item) = self.accept(bytes)? {
                return Ok(Some(item));
            }
        }
        Ok(None)
    }

    fn record(&mut self, bytes: &[u8]) -> Result<Record> {
        let mut fields = Reader::new(WHAT, bytes, ByteOrder::Little);
        let begins = fields.u32()? == 0;
        if begins {
            fields.skip(4)?;
            let magic = fields.array()?;
            self.order = ByteOrder::of_magic(MAGIC, magic)
                .ok_or(Error::BadMagic { what: WHAT, found: u64::from_le_bytes(magic) })?;
            if self.inside {
                return Err(Error::invalid(WHAT, "a stream begins inside another"));
            }
            self.running = Running::default();
        }
        let before = self.running;
        let record = Record::parse(bytes, self.order)?;
        self.add_record(bytes, begins)?;
        let limit = if begins { MAX_BEGIN_PAYLOAD_BYTES } else { MAX_PAYLOAD_BYTES };
        if record.payload_bytes() > limit {
            return Err(Error::TooLarge { what: "payload of a send stream's record, in bytes", limit });
        }
        match &record {
            Record::Begin(_) => self.inside = true,
            Record::End(end) => {
                // The end of a compound stream stands outside of any stream and claims nothing.
                let claims_nothing = !self.inside && end.checksum == [0; 4];
                if self.verifies && end.checksum != before.0 && !claims_nothing {
                    return Err(Error::BadChecksum { what: "end of a send stream" });
                }
                self.inside = false;
                self.running = Running::default();
            }
            _ if !self.inside => return Err(Error::invalid(WHAT, "a record stands outside of any stream")),
            _ => {}
        }
        Ok(record)
    }

    fn add_record(&mut self, bytes: &[u8], begins: bool) -> Result<()> {
        let (fields, place) = bytes.split_at_checked(CHECKSUM_OFFSET).unwrap_or((bytes, &[]));
        self.running.add(fields, self.order);
        let claimed: [u64; 4] = Reader::new(WHAT, place, self.order).u64s()?;
        if self.verifies && !begins && claimed != [0; 4] && claimed != self.running.0 {
            return Err(Error::BadChecksum { what: "record of a send stream" });
        }
        self.running.add(place, self.order);
        Ok(())
    }
}

/// Puts the running checksum into records.
#[derive(Debug)]
pub struct StreamWriter {
    order: ByteOrder,
    running: Running,
}

impl StreamWriter {
    /// A writer before the beginning of a stream.
    pub const fn new(order: ByteOrder) -> StreamWriter {
        StreamWriter { order, running: Running([0; 4]) }
    }

    /// The bytes of a record, after which the same payload must be sent. The checksum of [`Record::End`] is
    /// filled in. Fails when the payload is not as long as the record says.
    pub fn put(&mut self, record: &Record, payload: &[u8]) -> Result<Vec<u8>> {
        let bytes = self.put_record(record, payload.len() as u64)?;
        self.running.add(payload, self.order);
        Ok(bytes)
    }

    /// Like [`StreamWriter::put`], for a payload of which the caller has the fletcher4 checksum in the order
    /// of the stream: so another thread can compute it.
    pub fn put_summed(&mut self, record: &Record, bytes: u64, sums: [u64; 4]) -> Result<Vec<u8>> {
        let put = self.put_record(record, bytes)?;
        self.running.append(bytes / 4, sums);
        Ok(put)
    }

    /// The record that ends the list of a compound stream. It has a checksum of what came before it, but none
    /// of itself, as `zfs` makes it and not the kernel.
    pub fn end_of_list(&mut self) -> Vec<u8> {
        let end = super::End { checksum: self.running.0, to_guid: crate::Guid(0) };
        self.running = Running::default();
        Record::End(end).encode(self.order)
    }

    /// The record after all streams of a compound one: it claims nothing.
    pub fn conclusion(&self) -> Vec<u8> {
        Record::End(super::End { checksum: [0; 4], to_guid: crate::Guid(0) }).encode(self.order)
    }

    /// Adds a record, but not its payload.
    fn put_record(&mut self, record: &Record, payload_bytes: u64) -> Result<Vec<u8>> {
        if payload_bytes != record.payload_bytes() {
            let expected = record.payload_bytes();
            return Err(Error::invalid(WHAT, format!("payload of {payload_bytes} bytes, not {expected}")));
        }
        let order = self.order;
        let mut bytes = match record {
            Record::Begin(_) => {
                self.running = Running::default();
                record.encode(order)
            }
            Record::End(end) => {
                Record::End(super::End { checksum: self.running.0, to_guid: end.to_guid }).encode(order)
            }
            _ => record.encode(order),
        };
        let (fields, place) = bytes.split_at_mut(CHECKSUM_OFFSET);
        self.running.add(fields, order);
        if !matches!(record, Record::Begin(_)) {
            for (slot, word) in place.as_chunks_mut::<8>().0.iter_mut().zip(self.running.0) {
                *slot = order.u64_bytes(word);
            }
        }
        self.running.add(place, order);
        if matches!(record, Record::End(_)) {
            self.running = Running::default();
        }
        Ok(bytes)
    }
}
