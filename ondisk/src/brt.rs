//! Block reference tables: how often cloned blocks are referenced beyond the first time.
//!
//! Each top-level vdev that has cloned blocks has a table, found in the pool directory under
//! `com.fudosecurity:brt:vdev:N` ([`directory_key`]). The object's bonus is a header; its contents are an
//! array of u16, for each range of the vdev the number of entries that fall into it, so that most frees need
//! not look further. The entries are a ZAP with u64 keys: byte offset of the block on the vdev to a count of
//! 8 bytes. The key is one word (hashed with 64 bits). The value is one u64 in pools in which the feature
//! `block_cloning_endian` is active; in others, 8 integers of one byte, that is, a u64 in the byte order of
//! the writer. The feature becomes active with the first table of a pool, and then all tables are so.
//!
//! | offset | size | name | meaning |
//! |---|---|---|---|
//! | 0 | 8 | `bvp_mos_entries` | ZAP of the entries |
//! | 8 | 8 | `bvp_size` | length of the array, in ranges |
//! | 16 | 8 | `bvp_byteorder` | of the array: 0 little endian, 1 big endian |
//! | 24 | 8 | `bvp_totalcount` | entries in all |
//! | 32 | 8 | `bvp_rangesize` | bytes a range |
//! | 40 | 8 | `bvp_usedspace` | space that the cloned blocks take |
//! | 48 | 8 | `bvp_savedspace` | space that they would take more if they were copies |
//!
//! Source of the facts: OpenZFS 2.4 `brt_impl.h`, `brt.c`.

use crate::words::word_struct;
use crate::{ByteOffset, ByteOrder, Error, ObjectId, Reader, Result, VdevId};

/// The prefix of the directory key.
pub const DIRECTORY_KEY_PREFIX: &str = "com.fudosecurity:brt:vdev:";

/// The key of a vdev's table in the pool directory.
pub fn directory_key(vdev: VdevId) -> String {
    format!("{DIRECTORY_KEY_PREFIX}{vdev}")
}

word_struct! {
    /// The header of a vdev's table (`brt_vdev_phys_t`).
    pub struct BrtVdevPhys {
        /// ZAP of the entries.
        pub mos_entries: ObjectId,
        /// Length of the array, in ranges.
        pub size: u64,
        /// See [`BrtVdevPhys::array_order`].
        pub byteorder: u64,
        /// Entries in all.
        pub totalcount: u64,
        /// Bytes a range.
        pub rangesize_bytes: u64,
        /// Space that the cloned blocks take.
        pub usedspace_bytes: u64,
        /// Space saved by not copying.
        pub savedspace_bytes: u64,
    }
}

impl BrtVdevPhys {
    /// Byte order of the array, and of the counts in the entries.
    pub fn array_order(&self) -> Result<ByteOrder> {
        match self.byteorder {
            0 => Ok(ByteOrder::Little),
            1 => Ok(ByteOrder::Big),
            other => Err(Error::unsupported("block reference table", format!("byte order {other}"))),
        }
    }

    /// The place in the array that counts the entries near `offset`; nothing if the table does not reach so
    /// far.
    pub fn range_of(&self, offset: ByteOffset) -> Option<u64> {
        offset.get().checked_div(self.rangesize_bytes).filter(|&range| range < self.size)
    }
}

/// The counts in a block of the array.
pub fn entry_counts(block: &[u8], array_order: ByteOrder) -> impl Iterator<Item = u16> {
    let mut reader = Reader::new("block reference table", block, array_order);
    std::iter::from_fn(move || reader.u16().ok())
}

/// The count in the value of an entry of 8 bytes: references beyond the first.
pub fn parse_entry_count(value: &[u8], array_order: ByteOrder) -> Result<u64> {
    match <[u8; 8]>::try_from(value) {
        Ok(bytes) => Ok(array_order.u64(bytes)),
        Err(_) => Err(Error::invalid("block reference table", format!("entry of {} bytes", value.len()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::words::word_struct_round_trips;

    word_struct_round_trips! { a_header_round_trips: BrtVdevPhys; }

    #[test]
    fn a_header_takes_56_bytes() {
        assert_eq!(BrtVdevPhys::SIZE, 56);
        assert_eq!(directory_key(VdevId(12)), "com.fudosecurity:brt:vdev:12");
    }

    proptest::proptest! {
        #[test]
        fn counts_are_read_in_both_orders(counts in proptest::collection::vec(0u16.., 0..40), value: u64, big: bool) {
            let order = if big { ByteOrder::Big } else { ByteOrder::Little };
            let block: Vec<u8> = counts.iter().flat_map(|&count| order.u16_bytes(count)).collect();
            proptest::prop_assert_eq!(entry_counts(&block, order).collect::<Vec<_>>(), counts);
            proptest::prop_assert_eq!(parse_entry_count(&order.u64_bytes(value), order), Ok(value));
        }
    }

    #[test]
    fn an_offset_beyond_the_array_has_no_range() {
        let mut phys = BrtVdevPhys { size: 2, rangesize_bytes: 16 << 20, ..BrtVdevPhys::default() };
        assert_eq!(phys.range_of(ByteOffset((16 << 20) - 1)), Some(0));
        assert_eq!(phys.range_of(ByteOffset(32 << 20)), None);
        phys.rangesize_bytes = 0;
        assert_eq!(phys.range_of(ByteOffset(0)), None);
    }

    #[test]
    fn counts_are_in_the_order_that_the_header_states() {
        let phys = BrtVdevPhys { byteorder: 1, ..BrtVdevPhys::default() };
        let order = phys.array_order().unwrap();
        assert_eq!(entry_counts(&[0, 1, 0, 2, 9], order).collect::<Vec<_>>(), [1, 2]);
        assert_eq!(parse_entry_count(&[0, 0, 0, 0, 0, 0, 0, 3], order), Ok(3));
        assert!(parse_entry_count(&[0; 7], order).is_err());
        assert!(BrtVdevPhys { byteorder: 2, ..phys }.array_order().is_err());
    }
}
