//! Metaslabs: the slices of a top-level vdev in which space is allocated.
//!
//! A top-level vdev is cut into slices of `1 << metaslab_shift` bytes; both the shift and the number of the
//! metaslab array's object stand in the vdev's configuration. Two objects of the MOS are arrays with one
//! entry a metaslab, in the byte order of their blocks:
//!
//! | object | bytes an entry | meaning |
//! |---|---|---|
//! | the metaslab array | 8 | object of the metaslab's space map, 0 while nothing was ever allocated there |
//! | [`MS_UNFLUSHED_PHYS_TXGS`](crate::pool_directory::top_zap::MS_UNFLUSHED_PHYS_TXGS) of the vdev's ZAP, with log space maps | 8 | [`MetaslabUnflushedPhys`] |
//!
//! Source of the facts: OpenZFS 2.3 `metaslab_impl.h`, `metaslab.c`, `vdev.c`.

use crate::words::word_struct;
use crate::{ByteOffset, ByteOrder, Error, ObjectId, Reader, Result, Txg};

word_struct! {
    /// Up to where a metaslab is flushed.
    pub struct MetaslabUnflushedPhys {
        /// Logs from this txg on hold changes that the metaslab's own space map lacks.
        pub unflushed_txg: Txg,
    }
}

/// How a top-level vdev is cut into metaslabs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetaslabLayout {
    shift: u8,
    count: u64,
}

impl MetaslabLayout {
    /// From the vdev's `metaslab_shift` and `asize`. What is left over at the end belongs to no metaslab.
    pub fn new(shift: u64, asize_bytes: u64) -> Result<MetaslabLayout> {
        match u8::try_from(shift) {
            Ok(shift @ 9..=63) => Ok(MetaslabLayout { shift, count: asize_bytes >> shift }),
            _ => Err(Error::invalid("metaslab", format!("shift {shift} is out of range"))),
        }
    }

    /// Number of metaslabs.
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// Bytes of each.
    pub const fn size_bytes(&self) -> u64 {
        1 << self.shift
    }

    /// Where a metaslab starts on its vdev.
    pub fn start(&self, index: u64) -> Option<ByteOffset> {
        (index < self.count).then(|| ByteOffset(index << self.shift))
    }

    /// The metaslab that contains an offset.
    pub fn index_of(&self, offset: ByteOffset) -> Option<u64> {
        Some(offset.get() >> self.shift).filter(|&index| index < self.count)
    }
}

/// The space map objects in a block of the metaslab array; nothing for a metaslab that was never used.
pub fn space_maps(array: &[u8], order: ByteOrder) -> impl Iterator<Item = Option<ObjectId>> {
    let mut reader = Reader::new("metaslab array", array, order);
    std::iter::from_fn(move || reader.u64().ok()).map(|object| (object != 0).then_some(ObjectId(object)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::words::word_struct_round_trips;

    word_struct_round_trips! { unflushed_round_trips: MetaslabUnflushedPhys; }

    #[test]
    fn every_offset_below_the_last_whole_metaslab_belongs_to_one() {
        let layout = MetaslabLayout::new(29, (5 << 29) + 4096).unwrap();
        assert_eq!(layout.count(), 5);
        assert_eq!(layout.index_of(ByteOffset((1 << 29) - 1)), Some(0));
        assert_eq!(layout.index_of(ByteOffset(1 << 29)), Some(1));
        assert_eq!(layout.index_of(ByteOffset(5 << 29)), None);
        assert_eq!(layout.start(4), Some(ByteOffset(4 << 29)));
        assert_eq!(layout.start(5), None);
        assert!(MetaslabLayout::new(64, 1).is_err());
    }

    proptest::proptest! {
        #[test]
        fn the_array_is_read_in_both_orders(objects in proptest::collection::vec(0u64.., 0..40), big: bool) {
            let order = if big { ByteOrder::Big } else { ByteOrder::Little };
            let array: Vec<u8> = objects.iter().flat_map(|&object| order.u64_bytes(object)).collect();
            let found = space_maps(&array, order).map(|object| object.map_or(0, ObjectId::get));
            proptest::prop_assert_eq!(found.collect::<Vec<_>>(), objects);
        }
    }

    #[test]
    fn an_unused_metaslab_has_no_space_map() {
        let array: Vec<u8> = [7u64, 0, 9].iter().flat_map(|o| o.to_be_bytes()).collect();
        let found: Vec<_> = space_maps(&array, ByteOrder::Big).collect();
        assert_eq!(found, [Some(ObjectId(7)), None, Some(ObjectId(9))]);
    }
}
