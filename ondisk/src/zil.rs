//! The intent log (ZIL): what was promised to be stable before its txg was synced.
//!
//! Every object set has a log of its own: the header lies in the object set's block, and points to the first
//! block of a chain. Blocks are written ahead of need, so that the pointer to the next block is known before
//! its contents are; a chain ends at the first block that is not what its pointer announced. For that the
//! checksum words of a pointer to a log block are not a checksum but a seed: two random words, the object
//! set's id and a sequence number that grows by one a block. The block contains the real checksum, computed
//! over itself with the seed in the checksum's place.
//!
//! Header (192 bytes):
//!
//! | offset | size | name | meaning |
//! |---|---|---|---|
//! | 0 | 8 | `zh_claim_txg` | txg in which the blocks were claimed after a crash, 0 if not |
//! | 8 | 8 | `zh_replay_seq` | last record already replayed |
//! | 16 | 128 | `zh_log` | first block, a hole when the log is empty |
//! | 144 | 8 | `zh_claim_blk_seq` | last block claimed |
//! | 152 | 8 | `zh_flags` | [`FLAG_REPLAY_NEEDED`], [`FLAG_CLAIM_LR_SEQ_VALID`] |
//! | 160 | 8 | `zh_claim_lr_seq` | last record claimed |
//! | 168 | 24 | | reserved |
//!
//! Block: with checksum function `zilog2` the chain structure is at the beginning and records follow it, up
//! to `zc_nused` bytes, the chain structure included; with the older `zilog` the records are first,
//! `zc_nused` bytes of them, and the chain structure is at the very end. Chain structure (184 bytes):
//!
//! | offset | size | name | meaning |
//! |---|---|---|---|
//! | 0 | 8 | | zero |
//! | 8 | 128 | `zc_next_blk` | next block; its seed is this block's with the sequence number plus one |
//! | 136 | 8 | `zc_nused` | bytes used |
//! | 144 | 8 | `zec_magic` | [`ECK_MAGIC`], tells the byte order |
//! | 152 | 32 | `zec_cksum` | checksum |
//!
//! Under encryption the headers of records and their block pointers stay in clear, so that a log can be
//! claimed without a key; the rest of each record must be decrypted before [`record::Record::parse`].
//!
//! Source of the facts: OpenZFS 2.3 `zil.h`, `zil.c`, `zio.h`.

use crate::blkptr::{Blkptr, ChecksumType};
use crate::words::word_struct;
use crate::{ByteOrder, Error, ObjsetId, Reader, Result, Txg, Writer};

pub mod record;

pub use record::{Record, RecordHeader};

const WHAT: &str = "intent log block";

/// The magic number of the checksum inside a block (`ZEC_MAGIC`).
pub const ECK_MAGIC: u64 = 0x0210_da7a_b10c_7a11;

/// Smallest log block, and the unit up to which a `zilog2` block is checksummed.
pub const MIN_BLOCK_SIZE: usize = 4096;

/// Internal to a running OpenZFS: replay has not happened yet.
pub const FLAG_REPLAY_NEEDED: u64 = 1;
/// `zh_claim_lr_seq` is valid.
pub const FLAG_CLAIM_LR_SEQ_VALID: u64 = 1 << 1;

word_struct! {
    /// The header of an object set's log (`zil_header_t`).
    pub struct ZilHeader + 3 {
        /// When the blocks were claimed, 0 if they were not.
        pub claim_txg: Txg,
        /// Last record already replayed.
        pub replay_seq: u64,
        /// First block.
        pub log: Blkptr,
        /// Last block claimed.
        pub claim_blk_seq: u64,
        /// `FLAG_*`.
        pub flags: u64,
        /// Last record claimed, see [`ZilHeader::includes_record`].
        pub claim_lr_seq: u64,
    }
}

impl ZilHeader {
    /// True when there is nothing to replay.
    pub fn is_empty(&self) -> bool {
        self.log.is_hole()
    }

    /// True when a block with this sequence number belongs to the log; every one does before claiming.
    pub fn includes_block(&self, seq: u64) -> bool {
        self.claim_txg == Txg::NONE || seq <= self.claim_blk_seq
    }

    /// True when a record with this sequence number belongs to the log.
    pub fn includes_record(&self, seq: u64) -> bool {
        let known = self.claim_txg != Txg::NONE && self.flags & FLAG_CLAIM_LR_SEQ_VALID != 0;
        !known || seq <= self.claim_lr_seq
    }
}

/// The checksum words of a pointer to a log block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ChainSeed {
    /// Random, chosen when the chain was begun.
    pub guid: [u64; 2],
    /// Object set.
    pub objset: ObjsetId,
    /// Sequence number, from 1.
    pub seq: u64,
}

impl ChainSeed {
    /// The seed of the block that `bp` points to.
    pub const fn of(bp: &Blkptr) -> ChainSeed {
        let [first, second, objset, seq] = bp.checksum();
        ChainSeed { guid: [first, second], objset: ObjsetId(objset), seq }
    }

    /// The checksum words.
    pub const fn words(&self) -> [u64; 4] {
        [self.guid[0], self.guid[1], self.objset.get(), self.seq]
    }

    /// The seed of the block after this one.
    pub const fn next(&self) -> ChainSeed {
        ChainSeed { seq: self.seq.wrapping_add(1), ..*self }
    }
}

/// The chain structure of a log block (`zil_chain_t`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZilChain {
    /// Next block.
    pub next: Blkptr,
    /// Bytes used: of records, plus this structure's own when it is at the beginning.
    pub used_bytes: u64,
    /// The checksum inside the block.
    pub checksum: [u64; 4],
}

impl ZilChain {
    /// Bytes on disk.
    pub const SIZE: usize = 184;
    const MAGIC_OFFSET: usize = 144;

    /// Where the chain structure of a block is.
    pub fn offset(checksum: ChecksumType, block_bytes: usize) -> Result<usize> {
        match checksum {
            ChecksumType::Zilog2 if block_bytes >= Self::SIZE => Ok(0),
            ChecksumType::Zilog if block_bytes >= Self::SIZE => Ok(block_bytes - Self::SIZE),
            other => Err(Error::invalid(WHAT, format!("checksum function {other}, {block_bytes} bytes"))),
        }
    }

    /// Reads the structure; the magic number has the byte order.
    pub fn parse(bytes: &[u8]) -> Result<(ZilChain, ByteOrder)> {
        let magic = Reader::new(WHAT, bytes, ByteOrder::Little).sub(Self::SIZE).and_then(|mut chain| {
            chain.skip(Self::MAGIC_OFFSET)?;
            chain.array()
        })?;
        let order = ByteOrder::of_magic(ECK_MAGIC, magic)
            .ok_or(Error::BadMagic { what: WHAT, found: ByteOrder::Little.u64(magic) })?;
        let mut reader = Reader::new(WHAT, bytes, order);
        reader.skip(8)?;
        let next = Blkptr::read(&mut reader)?;
        let used_bytes = reader.u64()?;
        reader.skip(8)?;
        Ok((ZilChain { next, used_bytes, checksum: reader.u64s()? }, order))
    }

    /// The bytes on disk.
    pub fn encode(&self, order: ByteOrder) -> Vec<u8> {
        let mut writer = Writer::new(order);
        writer.u64(0);
        self.next.write(&mut writer);
        writer.u64(self.used_bytes).u64(ECK_MAGIC).u64s(&self.checksum);
        writer.finish()
    }
}

/// A log block whose link to its predecessor is proven.
#[derive(Clone, Copy, Debug)]
pub struct LogBlock<'a> {
    /// Next block; it need not exist.
    pub next: Blkptr,
    /// This block's sequence number.
    pub seq: u64,
    /// Byte order of the records.
    pub order: ByteOrder,
    records: &'a [u8],
}

impl<'a> LogBlock<'a> {
    /// Takes apart the block that `bp` points to. Its checksum must have been verified (it is the caller's
    /// who knows the algorithm). Any error means that the chain ended at the block before.
    pub fn parse(bp: &Blkptr, block: &'a [u8]) -> Result<LogBlock<'a>> {
        let function = bp.checksum_type();
        let at = ZilChain::offset(function, block.len())?;
        let (chain, order) = ZilChain::parse(block.get(at..).unwrap_or_default())?;
        let seed = ChainSeed::of(bp);
        if ChainSeed::of(&chain.next) != seed.next() {
            return Err(Error::invalid(WHAT, format!("the link after block {} is broken", seed.seq)));
        }
        let used = usize::try_from(chain.used_bytes).unwrap_or(usize::MAX);
        let records = match function {
            ChecksumType::Zilog2 => block.get(ZilChain::SIZE..used),
            _ => block.get(..at).and_then(|records| records.get(..used)),
        };
        let records = records.ok_or_else(|| {
            Error::invalid(WHAT, format!("{} bytes used of {}", chain.used_bytes, block.len()))
        })?;
        Ok(LogBlock { next: chain.next, seq: seed.seq, order, records })
    }

    /// The records in order. It ends after an error.
    pub fn records(&self) -> Records<'a> {
        Records { reader: Reader::new(WHAT, self.records, self.order) }
    }
}

/// A record of which only the header is taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawRecord<'a> {
    /// The header.
    pub header: RecordHeader,
    /// The whole record, header included.
    pub bytes: &'a [u8],
    /// Byte order.
    pub order: ByteOrder,
}

impl<'a> RawRecord<'a> {
    /// Takes the rest apart (after decryption, if the object set is encrypted: then parse those bytes
    /// instead).
    pub fn parse(&self) -> Result<Record<'a>> {
        Record::parse(self.bytes, self.order)
    }
}

/// Iterator over the records of a block.
#[derive(Clone, Debug)]
pub struct Records<'a> {
    reader: Reader<'a>,
}

impl<'a> Records<'a> {
    fn decode(&mut self) -> Result<RawRecord<'a>> {
        let order = self.reader.order();
        let header = RecordHeader::read(&mut self.reader.clone())?;
        let bytes = self.reader.bytes(header.record_bytes()?)?;
        Ok(RawRecord { header, bytes, order })
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = Result<RawRecord<'a>>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.reader.is_empty() {
            return None;
        }
        let found = self.decode();
        if found.is_err() {
            self.reader = Reader::new(WHAT, &[], self.reader.order());
        }
        Some(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blkptr::{BlkptrParts, CompressType, Dva};
    use crate::dmu::DmuType;
    use crate::{Level, Lsize, ObjectId, Psize};
    use proptest::prelude::*;

    fn pointer(function: ChecksumType, seed: ChainSeed, bytes: u64) -> Blkptr {
        let parts = BlkptrParts {
            dvas: vec![Dva { vdev: 0.into(), offset: 0.into(), asize: bytes.into(), gang: false }],
            lsize: Lsize(bytes),
            psize: Psize(bytes),
            compress: CompressType::Off,
            checksum_type: function,
            checksum: seed.words(),
            dmu_type: DmuType::INTENT_LOG,
            level: Level::DATA,
            dedup: false,
            byte_order: ByteOrder::Little,
            logical_birth: Txg(5),
            physical_birth: Txg(5),
            fill: 0,
            crypt: None,
        };
        parts.build().unwrap()
    }

    fn block(function: ChecksumType, next: ChainSeed, records: &[u8], order: ByteOrder) -> Vec<u8> {
        let mut block = vec![0; 4096];
        let first = if function == ChecksumType::Zilog2 { ZilChain::SIZE } else { 0 };
        block[first..first + records.len()].copy_from_slice(records);
        let chain = ZilChain {
            next: pointer(function, next, 4096),
            used_bytes: (first + records.len()) as u64,
            checksum: [0; 4],
        };
        let at = ZilChain::offset(function, block.len()).unwrap();
        block[at..at + ZilChain::SIZE].copy_from_slice(&chain.encode(order));
        block
    }

    const SEED: ChainSeed = ChainSeed { guid: [7, 8], objset: ObjsetId(54), seq: 3 };

    #[test]
    fn sizes_are_those_of_openzfs() {
        assert_eq!(ZilHeader::SIZE, 192);
        let chain = ZilChain { next: Blkptr::HOLE, used_bytes: 0, checksum: [0; 4] };
        assert_eq!(chain.encode(ByteOrder::Big).len(), ZilChain::SIZE);
    }

    #[test]
    fn both_kinds_of_block_give_their_records() {
        for function in [ChecksumType::Zilog, ChecksumType::Zilog2] {
            for order in [ByteOrder::Little, ByteOrder::Big] {
                let truncate = Record::Truncate { object: ObjectId(9), offset: 1, length: 2 };
                let one = truncate.encode(Txg(5), 1, order).unwrap();
                let records = [one.clone(), one].concat();
                let block = block(function, SEED.next(), &records, order);
                let found = LogBlock::parse(&pointer(function, SEED, 4096), &block).unwrap();
                assert_eq!((found.seq, found.order), (3, order));
                assert_eq!(ChainSeed::of(&found.next).seq, 4);
                let parsed: Vec<_> = found.records().map(|r| r.unwrap().parse().unwrap()).collect();
                assert_eq!(parsed, [truncate.clone(), truncate]);
            }
        }
    }

    #[test]
    fn a_block_of_another_chain_ends_this_one() {
        let stranger = ChainSeed { guid: [1, 2], ..SEED };
        let block = block(ChecksumType::Zilog2, stranger.next(), &[], ByteOrder::Little);
        assert!(LogBlock::parse(&pointer(ChecksumType::Zilog2, SEED, 4096), &block).is_err());
        let empty = vec![0; 4096];
        assert!(LogBlock::parse(&pointer(ChecksumType::Zilog2, SEED, 4096), &empty).is_err());
        assert!(LogBlock::parse(&pointer(ChecksumType::Fletcher4, SEED, 4096), &empty).is_err());
    }

    #[test]
    fn a_record_that_claims_to_be_longer_than_the_rest_is_an_error_and_the_end() {
        let mut writer = Writer::new(ByteOrder::Little);
        writer.u64s(&[10, 4096, 5, 1]);
        let block = block(ChecksumType::Zilog2, SEED.next(), &writer.finish(), ByteOrder::Little);
        let found = LogBlock::parse(&pointer(ChecksumType::Zilog2, SEED, 4096), &block).unwrap();
        let mut records = found.records();
        assert!(records.next().unwrap().is_err());
        assert!(records.next().is_none());
    }

    #[test]
    fn claiming_limits_blocks_and_records() {
        let mut header = ZilHeader { claim_blk_seq: 5, claim_lr_seq: 9, ..ZilHeader::default() };
        assert!(header.is_empty() && header.includes_block(6) && header.includes_record(10));
        header.claim_txg = Txg(100);
        assert!(!header.includes_block(6) && header.includes_record(10));
        header.flags = FLAG_CLAIM_LR_SEQ_VALID;
        assert!(header.includes_block(5) && header.includes_record(9) && !header.includes_record(10));
    }

    proptest! {
        #[test]
        fn a_header_round_trips(before: [u64; 2], after: [u64; 3], big: bool) {
            let order = if big { ByteOrder::Big } else { ByteOrder::Little };
            let words = before.iter().chain(&[0; 16]).chain(&after).chain(&[0; 3]);
            let bytes: Vec<u8> = words.flat_map(|&w| order.u64_bytes(w)).collect();
            prop_assert_eq!(ZilHeader::parse(&bytes, order).unwrap().encode(order), bytes);
        }

        #[test]
        fn arbitrary_records_end(bytes in proptest::collection::vec(any::<u8>(), 0..3000), order_big: bool) {
            let order = if order_big { ByteOrder::Big } else { ByteOrder::Little };
            let records = Records { reader: Reader::new(WHAT, &bytes, order) };
            prop_assert!(records.count() <= bytes.len() / RecordHeader::SIZE + 1);
        }
    }
}
