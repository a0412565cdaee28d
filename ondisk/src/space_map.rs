//! Space maps: logs of what was allocated and freed.
//!
//! A space map is an object in the MOS whose contents are 64-bit words, appended in time; replaying them
//! gives the set of allocated (or free) segments of a region. Metaslabs, the obsolete parts of removed vdevs,
//! the checkpoint and the log space maps all use the same form. Offsets and lengths count units of
//! `1 << shift` bytes, where the user of the map knows the shift (the vdev's ashift, as a rule) and the start
//! of its region.
//!
//! The header is the bonus of the object (type `SPACE_MAP_HEADER`): 24 bytes in old pools, 320 with the
//! feature `spacemap_histogram`.
//!
//! | offset | size | name | meaning |
//! |---|---|---|---|
//! | 0 | 8 | `smp_object` | unused |
//! | 8 | 8 | `smp_length` | bytes of contents that count |
//! | 16 | 8 | `smp_alloc` | bytes allocated, signed |
//! | 24 | 40 | | reserved |
//! | 64 | 256 | `smp_histogram` | entry `i`: number of free segments of `[2^(i+shift), 2^(i+shift+1))` bytes |
//!
//! The words:
//!
//! | kind | bits |
//! |---|---|
//! | debug | 63-62 = `10`, 61-60 action, 59-50 sync pass, 49-0 txg; all of them 0: padding |
//! | one-word | 63 = `0`, 62-16 offset, 15 type, 14-0 run less one |
//! | two-word, first | 63-62 = `11`, 61-60 zero, 59-24 run less one, 23-0 vdev (0 where the map is of one vdev anyway) |
//! | two-word, second | 63 type, 62-0 offset |
//!
//! A two-word entry never straddles two blocks of the object; the writer pads with a debug entry instead.
//! Hence each block can be decoded alone ([`Entries`]).
//!
//! Source of the facts: OpenZFS 2.3 `space_map.h`, `space_map.c`.

use crate::{ByteOffset, ByteOrder, Error, ObjectId, Reader, Result, VdevId, Writer};

const WHAT: &str = "space map";

/// Buckets of the histogram.
pub const HISTOGRAM_BUCKETS: usize = 32;

/// The header of a space map (`space_map_phys_t`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct SpaceMapPhys {
    /// Unused since long.
    pub object: ObjectId,
    /// Bytes of contents that count.
    pub length_bytes: u64,
    /// Bytes allocated in the region.
    pub allocated_bytes: i64,
    /// Free segments by size, if the pool keeps count.
    pub histogram: Option<[u64; HISTOGRAM_BUCKETS]>,
}

impl SpaceMapPhys {
    /// Bytes of a header without histogram.
    pub const SIZE_V0: usize = 24;
    /// Bytes of a header with histogram.
    pub const SIZE: usize = 64 + 8 * HISTOGRAM_BUCKETS;

    /// Reads a header from a bonus buffer of either size.
    pub fn parse(bonus: &[u8], order: ByteOrder) -> Result<SpaceMapPhys> {
        let mut reader = Reader::new(WHAT, bonus, order);
        let object = ObjectId(reader.u64()?);
        let length_bytes = reader.u64()?;
        let allocated_bytes = reader.i64()?;
        if length_bytes % 8 != 0 {
            return Err(Error::invalid(
                WHAT,
                format!("length {length_bytes} is not a whole number of words"),
            ));
        }
        let histogram = if bonus.len() >= Self::SIZE {
            reader.seek(64)?;
            Some(reader.u64s()?)
        } else {
            None
        };
        Ok(SpaceMapPhys { object, length_bytes, allocated_bytes, histogram })
    }

    /// The bytes on disk: 320 with a histogram, 24 without.
    pub fn encode(&self, order: ByteOrder) -> Vec<u8> {
        let mut writer = Writer::new(order);
        writer.u64(self.object.get()).u64(self.length_bytes).u64(self.allocated_bytes as u64);
        if let Some(histogram) = &self.histogram {
            writer.zeros_to(64).u64s(histogram);
        }
        writer.finish()
    }
}

/// The action on a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MapType {
    /// It was allocated.
    Alloc,
    /// It was freed.
    Free,
}

impl MapType {
    const fn from_bit(bit: u64) -> MapType {
        if bit == 0 { MapType::Alloc } else { MapType::Free }
    }

    const fn bit(self) -> u64 {
        match self {
            MapType::Alloc => 0,
            MapType::Free => 1,
        }
    }
}

/// One change of one segment. Offset and run count units of `1 << shift` bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Segment {
    /// The action.
    pub kind: MapType,
    /// Which top-level vdev. Only log space maps mean it; elsewhere it is absent (one word) or 0 (two words).
    pub vdev: Option<VdevId>,
    /// Where it starts, relative to the map's region.
    pub offset_units: u64,
    /// How long it is, at least 1.
    pub run_units: u64,
}

/// Width of the vdev field.
const VDEV_BITS: u32 = 24;

impl Segment {
    /// Longest run of a one-word entry.
    pub const MAX_ONE_WORD_RUN: u64 = 1 << 15;
    /// Offsets of a one-word entry are below this.
    pub const ONE_WORD_OFFSET_LIMIT: u64 = 1 << 47;
    /// Longest run of a two-word entry.
    pub const MAX_TWO_WORD_RUN: u64 = 1 << 36;
    /// Offsets of a two-word entry are below this.
    pub const TWO_WORD_OFFSET_LIMIT: u64 = 1 << 63;

    /// The segment as a one-word entry, if it fits and names no vdev.
    pub fn one_word(&self) -> Option<u64> {
        let fits = self.vdev.is_none()
            && self.offset_units < Self::ONE_WORD_OFFSET_LIMIT
            && (1..=Self::MAX_ONE_WORD_RUN).contains(&self.run_units);
        fits.then(|| self.offset_units << 16 | self.kind.bit() << 15 | (self.run_units - 1))
    }

    /// The segment as a two-word entry, if it fits. A segment without vdev is stored with vdev 0.
    pub fn two_words(&self) -> Option<[u64; 2]> {
        let vdev = u64::from(self.vdev.map_or(0, VdevId::get));
        let fits = vdev < 1 << VDEV_BITS
            && self.offset_units < Self::TWO_WORD_OFFSET_LIMIT
            && (1..=Self::MAX_TWO_WORD_RUN).contains(&self.run_units);
        fits.then(|| {
            let first = 0b11 << 62 | (self.run_units - 1) << VDEV_BITS | vdev;
            [first, self.kind.bit() << 63 | self.offset_units]
        })
    }

    /// Where the segment lies on the vdev, in bytes, for a map of the region `[start, start + size_bytes)`.
    pub fn bytes(&self, start: ByteOffset, size_bytes: u64, shift: u8) -> Result<(ByteOffset, u64)> {
        let scale = |units: u64| units.checked_mul(1u64.checked_shl(shift.into())?);
        let found = scale(self.offset_units).zip(scale(self.run_units)).and_then(|(offset, length)| {
            (offset.checked_add(length)? <= size_bytes).then_some(())?;
            let first = start.checked_add_bytes(offset)?;
            // The caller may add the segment's length.
            first.checked_add_bytes(length)?;
            Some((first, length))
        });
        found.ok_or_else(|| {
            let Segment { offset_units, run_units, .. } = self;
            Error::invalid(WHAT, format!("segment {offset_units:#x}+{run_units:#x} is outside of its region"))
        })
    }
}

/// A decoded entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Entry {
    /// A change.
    Segment(Segment),
    /// When the following changes were made; or padding.
    Debug(DebugEntry),
}

/// When changes were made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct DebugEntry {
    /// Unused: 0 for allocations, 1 for frees, as written.
    pub action: u8,
    /// Pass of the sync, 10 bits.
    pub sync_pass: u16,
    /// Lower 50 bits of the txg, 0 for padding.
    pub txg: u64,
}

impl DebugEntry {
    /// The entry that fills the last word of a block.
    pub const PADDING: DebugEntry = DebugEntry { action: 0, sync_pass: 0, txg: 0 };

    /// True for [`DebugEntry::PADDING`] and whatever else says nothing of a txg.
    pub const fn is_padding(&self) -> bool {
        self.txg == 0
    }

    /// The word on disk; values too large for their bits are cut.
    pub const fn word(&self) -> u64 {
        let action = (self.action as u64 & 3) << 60;
        let pass = (self.sync_pass as u64 & 0x3ff) << 50;
        0b10 << 62 | action | pass | self.txg & ((1 << 50) - 1)
    }

    const fn from_word(word: u64) -> DebugEntry {
        DebugEntry {
            action: (word >> 60 & 3) as u8,
            sync_pass: (word >> 50 & 0x3ff) as u16,
            txg: word & ((1 << 50) - 1),
        }
    }
}

/// The entries of one block of a space map, in order.
///
/// Give it only the bytes below `smp_length`. It ends after an error.
#[derive(Clone, Debug)]
pub struct Entries<'a> {
    reader: Reader<'a>,
}

impl<'a> Entries<'a> {
    /// Iterates over `block`.
    pub const fn new(block: &'a [u8], order: ByteOrder) -> Entries<'a> {
        Entries { reader: Reader::new(WHAT, block, order) }
    }

    fn decode(&mut self) -> Result<Entry> {
        let word = self.reader.u64()?;
        let kind = |bit| MapType::from_bit(bit);
        Ok(match word >> 62 {
            0b10 => Entry::Debug(DebugEntry::from_word(word)),
            0b11 => {
                let second = self.reader.u64()?;
                Entry::Segment(Segment {
                    kind: kind(second >> 63),
                    vdev: Some(VdevId((word & ((1 << VDEV_BITS) - 1)) as u32)),
                    offset_units: second & (Segment::TWO_WORD_OFFSET_LIMIT - 1),
                    run_units: (word >> VDEV_BITS & (Segment::MAX_TWO_WORD_RUN - 1)) + 1,
                })
            }
            _ => Entry::Segment(Segment {
                kind: kind(word >> 15 & 1),
                vdev: None,
                offset_units: word >> 16,
                run_units: (word & (Segment::MAX_ONE_WORD_RUN - 1)) + 1,
            }),
        })
    }
}

impl Iterator for Entries<'_> {
    type Item = Result<Entry>;

    fn next(&mut self) -> Option<Result<Entry>> {
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
    use proptest::prelude::*;

    fn words(words: &[u64], order: ByteOrder) -> Vec<u8> {
        words.iter().flat_map(|&w| order.u64_bytes(w)).collect()
    }

    fn any_segment() -> impl Strategy<Value = Segment> {
        let one = (0..Segment::ONE_WORD_OFFSET_LIMIT, 1..=Segment::MAX_ONE_WORD_RUN, Just(None));
        let vdev = (0..1u32 << VDEV_BITS).prop_map(|v| Some(VdevId(v)));
        let two = (0..Segment::TWO_WORD_OFFSET_LIMIT, 1..=Segment::MAX_TWO_WORD_RUN, vdev);
        (any::<bool>(), prop_oneof![one, two]).prop_map(|(free, (offset_units, run_units, vdev))| {
            let kind = if free { MapType::Free } else { MapType::Alloc };
            Segment { kind, vdev, offset_units, run_units }
        })
    }

    #[test]
    fn a_segment_never_ends_beyond_the_end_of_numbers() {
        let segment = Segment { kind: MapType::Alloc, vdev: None, offset_units: 1, run_units: 8 };
        assert!(segment.bytes(ByteOffset(u64::MAX - 9 * 512), u64::MAX, 9).is_ok());
        assert!(segment.bytes(ByteOffset(u64::MAX - 8 * 512), u64::MAX, 9).is_err());
    }

    proptest! {
        #[test]
        fn entries_round_trip(segments in proptest::collection::vec(any_segment(), 0..50), txg in 1..1u64 << 50, big: bool) {
            let order = if big { ByteOrder::Big } else { ByteOrder::Little };
            let debug = DebugEntry { action: 1, sync_pass: 3, txg };
            let mut raw = vec![debug.word()];
            for s in &segments {
                match s.one_word() {
                    Some(word) => raw.push(word),
                    None => raw.extend(s.two_words().unwrap()),
                }
            }
            raw.push(DebugEntry::PADDING.word());
            let bytes = words(&raw, order);
            let mut expected = vec![Entry::Debug(debug)];
            expected.extend(segments.into_iter().map(Entry::Segment));
            expected.push(Entry::Debug(DebugEntry::PADDING));
            let found: Vec<Entry> = Entries::new(&bytes, order).collect::<Result<_>>().unwrap();
            prop_assert_eq!(found, expected);
        }

        #[test]
        fn no_bytes_make_the_iterator_run_on(bytes: Vec<u8>) {
            prop_assert!(Entries::new(&bytes, ByteOrder::Little).count() <= bytes.len() / 8 + 1);
        }

        #[test]
        fn headers_of_both_sizes_round_trip(length in 0..1u64 << 60, alloc: i64, histogram: Option<[u64; 32]>, big: bool) {
            let order = if big { ByteOrder::Big } else { ByteOrder::Little };
            let phys = SpaceMapPhys {
                object: ObjectId(1), length_bytes: length * 8, allocated_bytes: alloc, histogram,
            };
            let bytes = phys.encode(order);
            prop_assert_eq!(bytes.len(), if histogram.is_some() { SpaceMapPhys::SIZE } else { SpaceMapPhys::SIZE_V0 });
            prop_assert_eq!(SpaceMapPhys::parse(&bytes, order).unwrap(), phys);
        }
    }

    #[test]
    fn half_of_a_two_word_entry_is_an_error_and_the_end() {
        let segment =
            Segment { kind: MapType::Free, vdev: Some(VdevId(2)), offset_units: 5, run_units: 1 << 20 };
        let bytes = words(&segment.two_words().unwrap()[..1], ByteOrder::Little);
        let mut entries = Entries::new(&bytes, ByteOrder::Little);
        assert!(matches!(entries.next(), Some(Err(Error::Truncated { .. }))));
        assert_eq!(entries.next(), None);
    }

    #[test]
    fn a_segment_outside_of_its_region_is_refused() {
        let mut segment = Segment { kind: MapType::Alloc, vdev: None, offset_units: 6, run_units: 2 };
        let start = ByteOffset(1 << 20);
        assert_eq!(segment.bytes(start, 8 << 12, 12), Ok((ByteOffset((1 << 20) + (6 << 12)), 2 << 12)));
        assert!(segment.bytes(start, 7 << 12, 12).is_err());
        segment.offset_units = u64::MAX >> 1;
        assert!(segment.bytes(start, u64::MAX, 12).is_err());
        assert!(segment.bytes(start, u64::MAX, 64).is_err());
    }
}
