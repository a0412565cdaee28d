//! From notes to log blocks: the contents of each block, and its bytes.
//!
//! The first block of a batch is the one that ends the chain and was allocated before, so its size is given.
//! Notes that do not fit there go to further blocks of at most [`MAX_BLOCK_BYTES`], or what the tunable
//! `zil_maxblocksize` says, each no larger than needed. The data of a write may be spread over several
//! blocks, each with a record of its own; cuts are at multiples of [`CUT_BYTES`] of the offset, so that no
//! sector of a volume is cut.
//!
//! A block (`zilog2`) contains the chain structure, records, and zeroes. A record of a write is 192 bytes and
//! the data, padded to 8.

use std::ops::Range;

use device::IoBuf;
use ondisk::blkptr::{Blkptr, ChecksumType};
use ondisk::zil::record::WriteData;
use ondisk::zil::{ChainSeed, MIN_BLOCK_SIZE, Record, RecordHeader, ZilChain};
use ondisk::{ByteOrder, Error, ObjectId, Txg, Writer};

use super::itx::{Noted, What};
use crate::tunables;

/// Largest log block.
pub(super) const MAX_BLOCK_BYTES: usize = 128 << 10;
/// The largest block that is allocated from now on, unless a single record needs a larger one.
pub(super) fn most_block_bytes() -> usize {
    tunables::ZIL_MAXBLOCKSIZE.size().next_multiple_of(MIN_BLOCK_SIZE).clamp(MIN_BLOCK_SIZE, MAX_BLOCK_BYTES)
}

/// Largest record.
pub(super) const MAX_RECORD_BYTES: usize = MAX_BLOCK_BYTES - ZilChain::SIZE;
/// The bytes before the data of a write.
pub(super) const WRITE_HEAD_BYTES: usize = 192;
/// Writes may be cut at multiples of this.
const CUT_BYTES: u64 = 4096;
/// The place of the sequence number of a record.
const SEQ: Range<usize> = 24..32;
/// The place of the length of a write.
const LENGTH: Range<usize> = 48..56;

/// A record that goes into a block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Part {
    /// An encoded record.
    Record(Vec<u8>),
    /// A write, whose data are still to be read.
    Write {
        /// Group.
        txg: Txg,
        /// The object.
        object: u64,
        /// Its generation.
        generation: u64,
        /// The offset.
        offset: u64,
        /// The length.
        length: usize,
    },
}

impl Part {
    fn bytes(&self) -> usize {
        match self {
            Part::Record(bytes) => bytes.len(),
            Part::Write { length, .. } => WRITE_HEAD_BYTES + length.next_multiple_of(8),
        }
    }
}

/// The planned contents of a block.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Planned {
    pub parts: Vec<Part>,
    /// The newest group of its records.
    pub max_txg: Txg,
    used: usize,
}

impl Planned {
    /// The bytes that it needs.
    pub(super) fn block_bytes(&self) -> usize {
        (ZilChain::SIZE + self.used).next_multiple_of(MIN_BLOCK_SIZE)
    }

    /// The bytes of its records.
    pub(super) fn record_bytes(&self) -> usize {
        self.used
    }

    fn room(&self, block_bytes: usize) -> usize {
        block_bytes.saturating_sub(ZilChain::SIZE + self.used)
    }

    fn push(&mut self, txg: Txg, part: Part) {
        self.used += part.bytes();
        self.max_txg = self.max_txg.max(txg);
        self.parts.push(part);
    }
}

/// Roughly, the bytes of log that notes will take.
pub(super) fn weigh(notes: &[Noted]) -> u64 {
    let weight = |noted: &Noted| match &noted.what {
        What::Record(bytes) => bytes.len() as u64,
        What::Write { length, .. } => WRITE_HEAD_BYTES as u64 + length,
        What::Unloggable => 0,
    };
    notes.iter().map(weight).sum()
}

/// Distributes notes over blocks. The first block has `first_bytes` bytes and may stay empty.
/// [`What::Unloggable`] is left out.
pub(super) fn plan(notes: Vec<Noted>, first_bytes: usize) -> Vec<Planned> {
    let mut plan = Plan { done: Vec::new(), block: Planned::default(), block_bytes: first_bytes };
    for Noted { txg, what } in notes {
        match what {
            What::Unloggable => {}
            What::Record(bytes) => plan.record(txg, bytes),
            What::Write { object, generation, offset, length } => {
                plan.write(txg, (object, generation), offset, length)
            }
        }
    }
    plan.done.push(plan.block);
    plan.done
}

struct Plan {
    done: Vec<Planned>,
    block: Planned,
    block_bytes: usize,
}

impl Plan {
    fn next_block(&mut self) {
        self.done.push(std::mem::take(&mut self.block));
        self.block_bytes = most_block_bytes();
    }

    fn record(&mut self, txg: Txg, bytes: Vec<u8>) {
        if bytes.len() > self.block.room(self.block_bytes) {
            self.next_block();
            // A record cannot be cut.
            let least = (ZilChain::SIZE + bytes.len()).next_multiple_of(MIN_BLOCK_SIZE);
            self.block_bytes = self.block_bytes.max(least);
        }
        self.block.push(txg, Part::Record(bytes));
    }

    fn write(&mut self, txg: Txg, (object, generation): (u64, u64), mut offset: u64, mut rest: u64) {
        while rest > 0 {
            let room = self.block.room(self.block_bytes).saturating_sub(WRITE_HEAD_BYTES) as u64 & !7;
            let length = if rest <= room {
                rest
            } else {
                // The last place for a cut that fits.
                ((offset + room) / CUT_BYTES * CUT_BYTES).saturating_sub(offset)
            };
            if length == 0 {
                self.next_block();
                continue;
            }
            // At most the size of a block.
            self.block.push(txg, Part::Write { txg, object, generation, offset, length: length as usize });
            offset += length;
            rest -= length;
        }
    }
}

/// The bytes of a block without the data of writes and the link to the next block, which are zeroes. Also
/// returns the places of the data of each [`Part::Write`], in order. Sequence numbers start at `seq`.
pub(super) fn lay_out(planned: &Planned, block_bytes: usize, seq: &mut u64) -> (IoBuf, Vec<Range<usize>>) {
    let mut buf = IoBuf::zeroed(block_bytes);
    let mut places = Vec::new();
    let mut at = ZilChain::SIZE;
    for part in &planned.parts {
        *seq += 1;
        let head = match part {
            Part::Record(bytes) => {
                buf[at..at + bytes.len()].copy_from_slice(bytes);
                buf[at + SEQ.start..at + SEQ.end].copy_from_slice(&seq.to_le_bytes());
                at += bytes.len();
                continue;
            }
            Part::Write { txg, object, offset, length, .. } => {
                write_head(*txg, *seq, ObjectId(*object), *offset, *length as u64)
            }
        };
        buf[at..at + head.len()].copy_from_slice(&head);
        if let Part::Write { length, .. } = part {
            places.push(at + head.len()..at + head.len() + length);
        }
        at += part.bytes();
    }
    (buf, places)
}

/// Changes the record of the write whose data are at `place`: only `left` bytes of them are left.
pub(super) fn shorten(buf: &mut IoBuf, place: &Range<usize>, left: usize) {
    let at = place.start - WRITE_HEAD_BYTES + LENGTH.start;
    buf[at..at + LENGTH.len()].copy_from_slice(&(left as u64).to_le_bytes());
    buf[place.start + left..place.end].fill(0);
}

/// The bytes before the data of a write in its record.
fn write_head(txg: Txg, seq: u64, object: ObjectId, offset: u64, length: u64) -> Vec<u8> {
    const KIND: u64 =
        Record::Write { object: ObjectId(0), offset: 0, length: 0, data: WriteData::Inline(&[]) }
            .kind_number();
    let reclen = WRITE_HEAD_BYTES as u64 + length.next_multiple_of(8);
    let mut writer = Writer::new(ByteOrder::Little);
    RecordHeader { txtype: KIND, reclen, txg, seq }.write(&mut writer);
    writer.u64s(&[object.get(), offset, length, 0]).zeros(Blkptr::SIZE);
    writer.finish()
}

/// Puts the link to `next` into a laid-out block.
pub(super) fn link(buf: &mut IoBuf, planned: &Planned, next: &Blkptr) {
    let used_bytes = (ZilChain::SIZE + planned.used) as u64;
    let chain = ZilChain { next: *next, used_bytes, checksum: [0; 4] }.encode(ByteOrder::Little);
    buf[..ZilChain::SIZE].copy_from_slice(&chain);
}

/// Puts the checksum into a linked block that `bp` points to. Of an encrypted block, the MAC stays.
pub(super) fn seal(buf: &mut IoBuf, bp: &Blkptr) -> Result<(), codec::Error> {
    let (ty, is_encrypted) = (ChecksumType::Zilog2, bp.uses_crypt());
    codec::checksum::seal_zilog(ty, buf, &bp.checksum(), is_encrypted, ByteOrder::Little)
}

/// The pointer to a log block, with `seed` in its checksum words.
pub(super) fn with_seed(bp: &Blkptr, seed: &ChainSeed) -> Result<Blkptr, Error> {
    let mut words = *bp.words();
    let [.., a, b, c, d] = &mut words;
    [*a, *b, *c, *d] = seed.words();
    Blkptr::from_words(words)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn write(offset: u64, length: u64) -> Noted {
        Noted { txg: Txg(7), what: What::Write { object: 1, generation: 0, offset, length } }
    }

    fn writes(planned: &[Planned]) -> Vec<(u64, usize)> {
        let parts = planned.iter().flat_map(|block| &block.parts);
        parts
            .filter_map(|part| match part {
                Part::Write { offset, length, .. } => Some((*offset, *length)),
                Part::Record(_) => None,
            })
            .collect()
    }

    #[test]
    fn what_fits_into_the_waiting_block_goes_there() {
        let planned = plan(vec![write(0, 3720)], 4096);
        assert_eq!((planned.len(), planned[0].block_bytes()), (1, 4096));
        assert_eq!(planned[0].max_txg, Txg(7));
    }

    #[test]
    fn what_does_not_fit_opens_a_block_of_the_size_that_it_needs() {
        let planned = plan(vec![write(0, 8192)], 4096);
        assert_eq!(writes(&planned), [(0, 8192)]);
        assert_eq!((planned[0].parts.len(), planned[1].block_bytes()), (0, 12288));
    }

    #[test]
    fn a_write_larger_than_a_block_is_cut_between_sectors() {
        let planned = plan(vec![write(512, 300_000)], 4096);
        let parts = writes(&planned);
        assert_eq!(parts.iter().map(|(_, length)| length).sum::<usize>(), 300_000);
        assert!(parts.iter().skip(1).all(|(offset, _)| offset % 4096 == 0));
        // The waiting block has room for the bytes before the first cut.
        assert_eq!(parts[0], (512, 3584));
    }

    #[test]
    fn a_record_is_never_cut() {
        let record = Noted { txg: Txg(9), what: What::Record(vec![1; MAX_RECORD_BYTES]) };
        let planned = plan(vec![write(0, 8), record], 4096);
        assert_eq!((planned[0].max_txg, planned[1].max_txg), (Txg(7), Txg(9)));
        assert_eq!(planned[1].block_bytes(), MAX_BLOCK_BYTES);
    }

    proptest! {
        #[test]
        fn every_byte_is_planned_once_in_order_and_no_block_overflows(
            lengths in prop::collection::vec((0u64..1 << 20, 1u64..200_000), 1..20),
            first in 1usize..33,
        ) {
            let notes: Vec<_> = lengths.iter().map(|(offset, length)| write(*offset, *length)).collect();
            let planned = plan(notes, first * 4096);
            let mut expected = lengths.into_iter();
            let mut left: Option<(u64, u64)> = None;
            for (offset, length) in writes(&planned) {
                let (at, rest) = left.take().or_else(|| expected.next()).unwrap();
                prop_assert_eq!(offset, at);
                prop_assert!(length as u64 <= rest);
                left = Some((at + length as u64, rest - length as u64)).filter(|(_, rest)| *rest > 0);
            }
            prop_assert!(left.is_none() && expected.next().is_none());
            for (index, block) in planned.iter().enumerate() {
                let limit = if index == 0 { first * 4096 } else { MAX_BLOCK_BYTES };
                prop_assert!(block.block_bytes() <= limit);
            }
        }
    }
}
