//! Indirect vdevs: where the blocks of a removed top-level vdev went.
//!
//! When a top-level vdev is removed, its allocated segments are copied elsewhere, and the vdev stays as an
//! indirect one whose configuration names two objects in the MOS, the mapping and the births.
//!
//! **Mapping.** The contents are entries of 24 bytes, sorted by source and not overlapping: word 0 has the
//! source offset (bits 0-62, in sectors of 512) and a mark that only `zdb` uses (bit 63); words 1-2 are a
//! DVA, whose asize is the length. A segment of the old vdev may need several entries. The bonus is a header
//! of 24 or 32 bytes:
//!
//! | offset | size | name | meaning |
//! |---|---|---|---|
//! | 0 | 8 | `vimp_max_offset` | end of the last source |
//! | 8 | 8 | `vimp_bytes_mapped` | sum of the lengths |
//! | 16 | 8 | `vimp_num_entries` | entries in the contents |
//! | 24 | 8 | `vimp_counts_object` | object with one u32 an entry: bytes of it no longer used (feature `obsolete_counts`) |
//!
//! **Births.** The bonus is one word, the number of entries; the contents are entries of 16 bytes
//! ([`BirthEntry`]): everything on the old vdev before `vibe_offset` (and not before the previous entry's)
//! was copied in that txg, and what was copied is "born" again then, for the purpose of resilvering.
//!
//! **Progress.** The pool directory holds [`SpaRemovingPhys`] and, while a mapping is being made smaller,
//! [`SpaCondensingIndirectPhys`], each as an array of u64.
//!
//! Source of the facts: OpenZFS 2.3 `vdev_indirect_mapping.h`, `vdev_indirect_births.h`, `vdev_indirect.c`,
//! `spa_impl.h`.

use crate::blkptr::Dva;
use crate::words::word_struct;
use crate::{ByteOffset, ByteOrder, Error, ObjectId, Reader, Result, Txg, VdevId, Writer};

const WHAT: &str = "indirect mapping";

/// The header of an indirect mapping (`vdev_indirect_mapping_phys_t`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct MappingPhys {
    /// End of the last source.
    pub max_offset: ByteOffset,
    /// Sum of the lengths.
    pub bytes_mapped: u64,
    /// Entries in the contents.
    pub num_entries: u64,
    /// Object with the obsolete bytes of each entry, if kept.
    pub counts_object: Option<ObjectId>,
}

impl MappingPhys {
    /// Bytes without the counts object.
    pub const SIZE_V0: usize = 24;
    /// Bytes with it.
    pub const SIZE: usize = 32;

    /// Reads a header from a bonus buffer of either size.
    pub fn parse(bonus: &[u8], order: ByteOrder) -> Result<MappingPhys> {
        let mut reader = Reader::new(WHAT, bonus, order);
        let [max_offset, bytes_mapped, num_entries] = reader.u64s()?;
        let counts_object = if reader.remaining() >= 8 { Some(ObjectId(reader.u64()?)) } else { None };
        Ok(MappingPhys { max_offset: ByteOffset(max_offset), bytes_mapped, num_entries, counts_object })
    }

    /// The bytes on disk.
    pub fn encode(&self, order: ByteOrder) -> Vec<u8> {
        let mut writer = Writer::new(order);
        writer.u64s(&[self.max_offset.get(), self.bytes_mapped, self.num_entries]);
        if let Some(object) = self.counts_object {
            writer.u64(object.get());
        }
        writer.finish()
    }
}

/// One moved segment (`vdev_indirect_mapping_entry_phys_t`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MappingEntry {
    /// Where it was on the removed vdev.
    pub source: ByteOffset,
    /// Where it is now; its asize is the length.
    pub target: Dva,
}

impl MappingEntry {
    /// Bytes on disk.
    pub const SIZE: usize = 24;

    /// Consumes an entry.
    pub fn read(reader: &mut Reader<'_>) -> Result<MappingEntry> {
        let [source, first, second] = reader.u64s()?;
        let sectors = source & (u64::MAX >> 1);
        let source = sectors.checked_mul(512).map(ByteOffset);
        let target = Dva::from_words([first, second])?;
        match source.zip(target) {
            Some((source, target))
                if !target.gang && source.checked_add_bytes(target.asize.get()).is_some() =>
            {
                Ok(MappingEntry { source, target })
            }
            _ => Err(Error::invalid(WHAT, format!("entry for sector {sectors:#x} is not a segment"))),
        }
    }

    /// Appends the entry. Fails when an offset or length is no multiple of 512 or too large.
    pub fn write(&self, writer: &mut Writer) -> Result<()> {
        if !self.source.get().is_multiple_of(512) {
            return Err(Error::invalid(WHAT, format!("source {:#x} is not a multiple of 512", self.source)));
        }
        let [first, second] = self.target.to_words()?;
        writer.u64s(&[self.source.get() / 512, first, second]);
        Ok(())
    }

    fn end(&self) -> u64 {
        self.source.get().saturating_add(self.target.asize.get())
    }
}

/// The entries in a block of the mapping (cut it to those that count).
pub fn mapping_entries(block: &[u8], order: ByteOrder) -> impl Iterator<Item = Result<MappingEntry>> {
    block
        .chunks(MappingEntry::SIZE)
        .map(move |entry| MappingEntry::read(&mut Reader::new(WHAT, entry, order)))
}

/// Obsolete bytes of each entry, from a block of the counts object.
pub fn obsolete_counts(block: &[u8], order: ByteOrder) -> impl Iterator<Item = u32> {
    let mut reader = Reader::new(WHAT, block, order);
    std::iter::from_fn(move || reader.u32().ok())
}

/// A part of a range of the removed vdev that lies in one piece on another vdev.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Where it was on the removed vdev.
    pub source: ByteOffset,
    /// Which top-level vdev has it now (perhaps again an indirect one).
    pub vdev: VdevId,
    /// Where it is there.
    pub offset: ByteOffset,
    /// How long it is.
    pub length_bytes: u64,
}

/// A mapping in memory, sorted and without overlaps.
#[derive(Clone, Debug, Default)]
pub struct IndirectMapping {
    entries: Vec<MappingEntry>,
}

impl IndirectMapping {
    /// Checks that the entries are sorted by source and do not overlap.
    pub fn new(entries: Vec<MappingEntry>) -> Result<IndirectMapping> {
        for (one, next) in entries.iter().zip(entries.iter().skip(1)) {
            if one.end() > next.source.get() {
                let (a, b) = (one.source, next.source);
                return Err(Error::invalid(WHAT, format!("entries at {a:#x} and {b:#x} are out of order")));
            }
        }
        Ok(IndirectMapping { entries })
    }

    /// All entries.
    pub fn entries(&self) -> &[MappingEntry] {
        &self.entries
    }

    /// Where `length_bytes` from `offset` of the removed vdev are now, in order and without gaps; an error
    /// when a part was not moved.
    pub fn pieces(&self, offset: ByteOffset, length_bytes: u64) -> Result<Vec<Piece>> {
        let gap = |at: u64| Error::invalid(WHAT, format!("offset {at:#x} was not moved"));
        let end = offset.checked_add_bytes(length_bytes).ok_or_else(|| gap(offset.get()))?.get();
        let first = self.entries.partition_point(|entry| entry.end() <= offset.get());
        let mut at = offset.get();
        let mut pieces = Vec::new();
        for entry in self.entries.iter().skip(first) {
            if at >= end {
                break;
            }
            let inside = at.checked_sub(entry.source.get()).ok_or_else(|| gap(at))?;
            let length_bytes = entry.end().min(end) - at;
            let target = entry.target.offset.checked_add_bytes(inside).ok_or_else(|| gap(at))?;
            pieces.push(Piece {
                source: ByteOffset(at),
                vdev: entry.target.vdev,
                offset: target,
                length_bytes,
            });
            at += length_bytes;
        }
        if at < end { Err(gap(at)) } else { Ok(pieces) }
    }
}

word_struct! {
    /// An entry of the births (`vdev_indirect_birth_entry_phys_t`).
    pub struct BirthEntry {
        /// Everything before this and not before the previous entry's …
        pub end_offset: ByteOffset,
        /// … was copied in this txg.
        pub phys_birth: Txg,
    }
}

/// The txg in which the block at `offset` was copied, by binary search in the sorted births.
pub fn phys_birth(births: &[BirthEntry], offset: ByteOffset) -> Option<Txg> {
    let index = births.partition_point(|entry| entry.end_offset <= offset);
    births.get(index).map(|entry| entry.phys_birth)
}

word_struct! {
    /// State of the last removal (`spa_removing_phys_t`), under
    /// [`REMOVING`](crate::pool_directory::REMOVING).
    pub struct SpaRemovingPhys {
        /// 0 none, 1 running, 2 finished, 3 cancelled (`dsl_scan_state_t`).
        pub state: u64,
        /// Vdev whose removal was last tried, all ones if none.
        pub removing_vdev: u64,
        /// Vdev that was last removed, all ones if none; each indirect vdev's configuration names the one
        /// before it.
        pub prev_indirect_vdev: u64,
        /// Seconds since 1970.
        pub start_time: u64,
        /// Seconds since 1970.
        pub end_time: u64,
        /// Bytes to copy.
        pub to_copy_bytes: u64,
        /// Bytes copied, or freed before they were.
        pub copied_bytes: u64,
    }
}

word_struct! {
    /// A mapping that is being made smaller (`spa_condensing_indirect_phys_t`), under
    /// [`CONDENSING_INDIRECT`](crate::pool_directory::CONDENSING_INDIRECT).
    pub struct SpaCondensingIndirectPhys {
        /// Vdev of the mapping.
        pub vdev: u64,
        /// Space map of obsolete segments that the new mapping leaves out.
        pub prev_obsolete_sm: ObjectId,
        /// The mapping being made.
        pub next_mapping: ObjectId,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Asize;
    use crate::words::word_struct_round_trips;
    use proptest::prelude::*;

    word_struct_round_trips! {
        births_round_trip: BirthEntry;
        removing_round_trips: SpaRemovingPhys;
        condensing_round_trips: SpaCondensingIndirectPhys;
    }

    fn entry(source: u64, length: u64, vdev: u32, target: u64) -> MappingEntry {
        let target =
            Dva { vdev: VdevId(vdev), offset: ByteOffset(target), asize: Asize(length), gang: false };
        MappingEntry { source: ByteOffset(source), target }
    }

    #[test]
    fn a_range_over_two_entries_is_two_pieces() {
        let mapping =
            IndirectMapping::new(vec![entry(0x1000, 0x1000, 1, 0x8000), entry(0x2000, 0x2000, 2, 0x400)])
                .unwrap();
        let pieces = mapping.pieces(ByteOffset(0x1800), 0x1000).unwrap();
        let piece = |source, vdev, offset, length_bytes| Piece {
            source: ByteOffset(source),
            vdev: VdevId(vdev),
            offset: ByteOffset(offset),
            length_bytes,
        };
        assert_eq!(pieces, [piece(0x1800, 1, 0x8800, 0x800), piece(0x2000, 2, 0x400, 0x800)]);
        assert!(mapping.pieces(ByteOffset(0x800), 0x1000).is_err());
        assert!(mapping.pieces(ByteOffset(0x3000), 0x1001).is_err());
        assert!(mapping.pieces(ByteOffset(u64::MAX), 2).is_err());
        assert_eq!(mapping.pieces(ByteOffset(0x1000), 0), Ok(vec![]));
    }

    #[test]
    fn overlapping_entries_are_refused() {
        assert!(IndirectMapping::new(vec![entry(0, 0x400, 1, 0), entry(0x200, 0x200, 1, 0x1000)]).is_err());
    }

    #[test]
    fn a_birth_holds_up_to_its_offset() {
        let births = [
            BirthEntry { end_offset: ByteOffset(100), phys_birth: Txg(5) },
            BirthEntry { end_offset: ByteOffset(200), phys_birth: Txg(6) },
        ];
        assert_eq!(phys_birth(&births, ByteOffset(99)), Some(Txg(5)));
        assert_eq!(phys_birth(&births, ByteOffset(100)), Some(Txg(6)));
        assert_eq!(phys_birth(&births, ByteOffset(200)), None);
    }

    proptest! {
        #[test]
        fn entries_round_trip(source in 0..1u64 << 40, length in 1..1u64 << 24, vdev in 0..1u32 << 24, target in 0..1u64 << 50, big: bool) {
            let order = if big { ByteOrder::Big } else { ByteOrder::Little };
            let entry = entry(source * 512, length * 512 % (1 << 33), vdev, target * 512);
            prop_assume!(!entry.target.asize.is_zero());
            let mut writer = Writer::new(order);
            entry.write(&mut writer).unwrap();
            let bytes = writer.finish();
            let found: Result<Vec<_>> = mapping_entries(&bytes, order).collect();
            prop_assert_eq!(found.unwrap(), vec![entry]);
        }

        #[test]
        fn headers_of_both_sizes_round_trip(a: u64, b: u64, c: u64, counts: Option<u64>, big: bool) {
            let order = if big { ByteOrder::Big } else { ByteOrder::Little };
            let phys = MappingPhys {
                max_offset: ByteOffset(a), bytes_mapped: b, num_entries: c, counts_object: counts.map(ObjectId),
            };
            prop_assert_eq!(MappingPhys::parse(&phys.encode(order), order).unwrap(), phys);
        }
    }
}
