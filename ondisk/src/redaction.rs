//! Redaction lists: which blocks a redacted send leaves out.
//!
//! A redaction bookmark names an object in the MOS (type `DMU_OTN_UINT64_METADATA`). Its bonus, or its spill
//! block when the feature `redaction_list_spill` was needed, is a header; its contents are an array of
//! entries sorted by object and block.
//!
//! Header:
//!
//! | offset | size | name | meaning |
//! |---|---|---|---|
//! | 0 | 8 | `rlp_last_object` | all ones when the list is complete, else how far its making got |
//! | 8 | 8 | `rlp_last_blkid` | likewise |
//! | 16 | 8 | `rlp_num_entries` | entries in the contents |
//! | 24 | 8 | `rlp_num_snaps` | guids that follow |
//! | 32 | 8 each | `rlp_snaps` | guids of the redaction snapshots |
//!
//! Entry (32 bytes):
//!
//! | offset | size | name | meaning |
//! |---|---|---|---|
//! | 0 | 8 | `rbp_object` | object |
//! | 8 | 8 | `rbp_blkid` | first block |
//! | 16 | 8 | `rbp_size_count` | bits 48-63: block size in sectors of 512; bits 0-47: count of blocks less one |
//! | 24 | 8 | | zero |
//!
//! Source of the facts: OpenZFS 2.3 `dsl_bookmark.h`, `dmu_redact.h`.

use crate::words::word_struct;
use crate::{BlockId, ByteOrder, Error, Guid, ObjectId, Reader, Result, Writer};

/// Most snapshots that a header may name: as many guids as a spill block of 128 KiB holds.
const MAX_SNAPS: u64 = (128 << 10) / 8;

/// The header of a redaction list (`redaction_list_phys_t`).
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct RedactionListPhys {
    /// How far the making got.
    pub last_object: u64,
    /// How far the making got.
    pub last_blkid: u64,
    /// Entries in the object.
    pub num_entries: u64,
    /// Guids of the redaction snapshots.
    pub snaps: Vec<Guid>,
}

impl RedactionListPhys {
    /// Reads a header.
    pub fn parse(bytes: &[u8], order: ByteOrder) -> Result<RedactionListPhys> {
        let mut reader = Reader::new("redaction list", bytes, order);
        let [last_object, last_blkid, num_entries, num_snaps] = reader.u64s()?;
        if num_snaps > MAX_SNAPS {
            return Err(Error::TooLarge { what: "snapshots of a redaction list", limit: MAX_SNAPS });
        }
        let snaps = (0..num_snaps).map(|_| reader.u64().map(Guid)).collect::<Result<_>>()?;
        Ok(RedactionListPhys { last_object, last_blkid, num_entries, snaps })
    }

    /// The bytes on disk.
    pub fn encode(&self, order: ByteOrder) -> Vec<u8> {
        let mut writer = Writer::new(order);
        writer.u64s(&[self.last_object, self.last_blkid, self.num_entries, self.snaps.len() as u64]);
        for snap in &self.snaps {
            writer.u64(snap.get());
        }
        writer.finish()
    }

    /// True when the list was finished; an unfinished one must not be used.
    pub fn is_complete(&self) -> bool {
        self.last_object == u64::MAX && self.last_blkid == u64::MAX
    }
}

word_struct! {
    /// A run of redacted blocks (`redact_block_phys_t`).
    pub struct RedactBlockPhys + 1 {
        /// Object.
        pub object: ObjectId,
        /// First block.
        pub block: BlockId,
        /// Block size and count, see [`RedactBlockPhys::block_bytes`] and [`RedactBlockPhys::count`].
        pub size_count: u64,
    }
}

impl RedactBlockPhys {
    const COUNT_BITS: u32 = 48;

    /// A run of `count` blocks of `block_bytes` each; nothing if they cannot be expressed.
    pub fn new(object: ObjectId, block: BlockId, block_bytes: u32, count: u64) -> Option<RedactBlockPhys> {
        let sectors = u64::from(block_bytes >> 9);
        let fits = block_bytes.is_multiple_of(512)
            && sectors < 1 << 16
            && (1..=1 << Self::COUNT_BITS).contains(&count);
        fits.then(|| RedactBlockPhys { object, block, size_count: sectors << Self::COUNT_BITS | (count - 1) })
    }

    /// Size of each block.
    pub const fn block_bytes(&self) -> u32 {
        ((self.size_count >> Self::COUNT_BITS) as u32) << 9
    }

    /// How many blocks.
    pub const fn count(&self) -> u64 {
        (self.size_count & ((1 << Self::COUNT_BITS) - 1)) + 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::words::word_struct_round_trips;
    use proptest::prelude::*;

    word_struct_round_trips! { an_entry_round_trips: RedactBlockPhys; }

    #[test]
    fn size_and_count_share_a_word() {
        let run = RedactBlockPhys::new(ObjectId(1), BlockId(2), 131072, 5).unwrap();
        assert_eq!(run.size_count, 256 << 48 | 4);
        assert_eq!((run.block_bytes(), run.count()), (131072, 5));
        assert_eq!(RedactBlockPhys::new(ObjectId(1), BlockId(2), 100, 5), None);
        assert_eq!(RedactBlockPhys::new(ObjectId(1), BlockId(2), 512, 0), None);
    }

    #[test]
    fn a_count_of_snapshots_beyond_reason_is_refused() {
        let bytes: Vec<u8> = [0, 0, 0, u64::MAX].iter().flat_map(|w| w.to_le_bytes()).collect();
        assert!(matches!(RedactionListPhys::parse(&bytes, ByteOrder::Little), Err(Error::TooLarge { .. })));
    }

    proptest! {
        #[test]
        fn a_header_round_trips(a: u64, b: u64, n: u64, snaps in proptest::collection::vec(any::<u64>(), 0..9), big: bool) {
            let order = if big { ByteOrder::Big } else { ByteOrder::Little };
            let snaps = snaps.into_iter().map(Guid).collect();
            let header = RedactionListPhys { last_object: a, last_blkid: b, num_entries: n, snaps };
            let bytes = header.encode(order);
            prop_assert_eq!(RedactionListPhys::parse(&bytes, order).unwrap(), header.clone());
            prop_assert!(RedactionListPhys::parse(&bytes[..bytes.len() - 1], order).is_err());
        }
    }
}
