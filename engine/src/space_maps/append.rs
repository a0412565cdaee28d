//! Appending to space maps: the words of a change.
//!
//! A segment is one word if it fits. It is two words if the pool has the feature `spacemap_v2` and the
//! segment does not fit into one (or names its vdev, as in log space maps), and several one-word entries
//! otherwise. Each batch begins with a word that records its time. An entry of two words never spans two
//! blocks of the object: a padding word fills the block.

use ondisk::space_map::{DebugEntry, MapType, Segment};
use ondisk::{ByteOffset, Txg, VdevId};

use crate::error::{Error, Result};

/// The form of the segments of one map.
#[derive(Debug, Clone, Copy)]
pub struct Form {
    /// The start of the map's region on its vdev.
    pub start: ByteOffset,
    /// The unit of offsets and lengths, as a power of two.
    pub shift: u8,
    /// Bytes in a block of the object.
    pub block_bytes: u64,
    /// Whether entries of two words may be written.
    pub two_words: bool,
}

/// Words to append to a map.
#[derive(Debug)]
pub struct Words {
    form: Form,
    /// Bytes of the map before these.
    length_bytes: u64,
    words: Vec<u64>,
}

impl Words {
    /// Words for a map of which `length_bytes` bytes are valid.
    pub fn new(form: Form, length_bytes: u64) -> Self {
        Self { form, length_bytes, words: Vec::new() }
    }

    /// Bytes of the map, including these words.
    pub fn length_bytes(&self) -> u64 {
        self.length_bytes + self.words.len() as u64 * 8
    }

    /// The bytes to write at the old end of the map.
    pub fn bytes(&self) -> Vec<u8> {
        self.words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    /// Appends the allocations or frees, as byte ranges of the vdev, of one pass of the sync of `txg`. `vdev`
    /// is for log space maps.
    pub fn batch(
        &mut self,
        kind: MapType,
        (txg, pass): (Txg, u16),
        vdev: Option<VdevId>,
        ranges: impl IntoIterator<Item = (u64, u64)>,
    ) -> Result<()> {
        let mut ranges = ranges.into_iter().peekable();
        if ranges.peek().is_none() {
            return Ok(());
        }
        let action = u8::from(kind == MapType::Free);
        self.words.push(DebugEntry { action, sync_pass: pass, txg: txg.get() }.word());
        for (from, to) in ranges {
            self.segment(kind, vdev, from, to)?;
        }
        Ok(())
    }

    fn segment(&mut self, kind: MapType, vdev: Option<VdevId>, from: u64, to: u64) -> Result<()> {
        let Form { start, shift, .. } = self.form;
        let start = start.get();
        let (mut offset_units, mut left) = match (from.checked_sub(start), to.checked_sub(from)) {
            (Some(offset), Some(length)) if (offset | length).trailing_zeros() >= shift.into() => {
                (offset >> shift, length >> shift)
            }
            _ => return Err(outside(from, to)),
        };
        let is_short = left <= Segment::MAX_ONE_WORD_RUN
            && offset_units < Segment::ONE_WORD_OFFSET_LIMIT
            && vdev.is_none();
        let long = self.form.two_words && !is_short;
        let longest = if long { Segment::MAX_TWO_WORD_RUN } else { Segment::MAX_ONE_WORD_RUN };
        while left > 0 {
            let run_units = left.min(longest);
            let segment = Segment { kind, vdev, offset_units, run_units };
            if long {
                if (self.length_bytes() + 8).is_multiple_of(self.form.block_bytes) {
                    self.words.push(DebugEntry::PADDING.word());
                }
                self.words.extend(segment.two_words().ok_or_else(|| outside(from, to))?);
            } else {
                self.words.push(segment.one_word().ok_or_else(|| outside(from, to))?);
            }
            offset_units += run_units;
            left -= run_units;
        }
        Ok(())
    }
}

fn outside(from: u64, to: u64) -> Error {
    Error::corrupt("space map", format!("{from:#x}..{to:#x} cannot be written in this map"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ondisk::ByteOrder;
    use ondisk::space_map::{Entries, Entry};
    use proptest::prelude::*;

    const START: u64 = 1 << 40;

    fn decode(bytes: &[u8], block_bytes: usize) -> Vec<(MapType, Option<VdevId>, u64, u64)> {
        let blocks = bytes.chunks(block_bytes).flat_map(|block| Entries::new(block, ByteOrder::Little));
        blocks
            .filter_map(|entry| match entry.unwrap() {
                Entry::Segment(segment) => {
                    let (from, length) = segment.bytes(ByteOffset(START), 1 << 50, 12).unwrap();
                    Some((segment.kind, segment.vdev, from.get(), from.get() + length))
                }
                Entry::Debug(_) => None,
            })
            .collect()
    }

    proptest! {
        #[test]
        fn what_was_appended_is_read_again(
            ranges in proptest::collection::vec((0u64..1 << 30, 1u64..1 << 18), 1..60),
            two_words: bool,
            logged: bool,
        ) {
            let form = Form { start: ByteOffset(START), shift: 12, block_bytes: 64, two_words };
            let vdev = (logged && two_words).then_some(VdevId(3));
            let ranges: Vec<(u64, u64)> = ranges.iter().map(|(at, length)| (START + (at << 12), START + ((at + length) << 12))).collect();
            let mut words = Words::new(form, 0);
            words.batch(MapType::Free, (Txg(7), 1), vdev, ranges.iter().copied()).unwrap();
            let bytes = words.bytes();
            prop_assert_eq!(bytes.len() as u64, words.length_bytes());
            let mut found = decode(&bytes, 64).into_iter();
            for (from, to) in ranges {
                let mut at = from;
                while at < to {
                    let (kind, its_vdev, start, end) = found.next().unwrap();
                    prop_assert_eq!((kind, start), (MapType::Free, at));
                    prop_assert!(!two_words || end == to);
                    prop_assert_eq!(its_vdev.is_some_and(|id| id.get() == 3), vdev.is_some());
                    at = end;
                }
                prop_assert_eq!(at, to);
            }
            prop_assert_eq!(found.next(), None);
        }
    }

    #[test]
    fn nothing_becomes_no_word() {
        let form = Form { start: ByteOffset(0), shift: 9, block_bytes: 4096, two_words: true };
        let mut words = Words::new(form, 80);
        words.batch(MapType::Alloc, (Txg(7), 1), None, []).unwrap();
        assert_eq!(words.length_bytes(), 80);
    }

    #[test]
    fn half_a_unit_is_refused() {
        let form = Form { start: ByteOffset(4096), shift: 12, block_bytes: 4096, two_words: true };
        let mut words = Words::new(form, 0);
        assert!(words.batch(MapType::Alloc, (Txg(7), 1), None, [(4096, 4608)]).is_err());
        assert!(words.batch(MapType::Alloc, (Txg(7), 1), None, [(0, 8192)]).is_err());
    }
}
