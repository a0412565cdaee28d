//! Pointers that a scan has met and not read yet, packed, and sorted by their places on devices.
//!
//! A pointer is kept without its empty words, together with its place in the object set. A block has an entry
//! for each copy, because the copies lie far from each other. With one copy that is about 120 bytes.

use std::ops::Range;

use ondisk::blkptr::Blkptr;

use super::ScanLimits;
use crate::Bookmark;

/// Words of a block pointer.
const POINTER_WORDS: usize = 16;
/// The number of a record is told in so many bits, the copy in the others.
const RECORD_BITS: u32 = 30;

/// One copy of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Entry {
    vdev: u32,
    offset: u64,
    /// Where its record begins, and which copy it is.
    record: u32,
}

/// Gathered pointers.
#[derive(Debug, Default)]
pub(crate) struct Gathered {
    entries: Vec<Entry>,
    records: Vec<u64>,
    objsets: Vec<u64>,
    asize_bytes: u64,
}

impl Gathered {
    /// Bytes of memory.
    pub fn memory_bytes(&self) -> u64 {
        (self.entries.len() * size_of::<Entry>() + self.records.len() * size_of::<u64>()) as u64
    }

    /// Whether no more is to be gathered.
    pub fn is_full(&self, limits: &ScanLimits) -> bool {
        // The vectors may have grown to twice of that.
        self.memory_bytes().saturating_mul(2) > limits.memory_bytes
            || self.asize_bytes > limits.batch_bytes
            // As much again is for a log, which is gathered as a whole.
            || self.records.len() + 4 * POINTER_WORDS >= 1 << (RECORD_BITS - 1)
            || self.objsets.len() >= 1 << 24
    }

    /// Adds a block that has addresses: an entry for each of its copies, or one for all of them together.
    pub fn push(&mut self, bp: &Blkptr, at: &Bookmark, is_each: bool) {
        let Ok(start) = u32::try_from(self.records.len()) else { return };
        if self.objsets.last() != Some(&at.objset) {
            self.objsets.push(at.objset);
        }
        let objset = self.objsets.len() as u64 - 1;
        let kept = bp.words().iter().enumerate().filter(|(_, word)| **word != 0);
        let map = kept.clone().fold(0u64, |map, (index, _)| map | 1 << index);
        // Levels are few, and -1 is one of them.
        let level = u64::from(at.level as u8);
        self.records.extend([map | level << 16 | objset << 24, at.object, at.blkid]);
        self.records.extend(kept.map(|(_, word)| *word));
        let copies = if is_each { bp.copies() } else { 1 };
        for (copy, dva) in (0u32..).zip(bp.dvas()).take(copies) {
            let record = start | copy << RECORD_BITS;
            self.entries.push(Entry { vdev: dva.vdev.get(), offset: dva.offset.get(), record });
        }
        self.asize_bytes += bp.asize().get();
    }

    /// Leaves out entries that this says are not to be read.
    pub fn retain(&mut self, is_wanted: impl Fn(&Blkptr, usize) -> bool) {
        let mut entries = std::mem::take(&mut self.entries);
        entries.retain(|entry| self.block(entry).is_none_or(|(bp, _, copy)| is_wanted(&bp, copy)));
        self.entries = entries;
    }

    /// All entries, in the order of their places.
    pub fn sort(&mut self) {
        self.entries.sort_unstable();
    }

    /// The entries from this one on.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Which entries each top-level vdev has, once they are sorted.
    pub fn by_vdev(&self) -> impl Iterator<Item = Range<usize>> {
        self.entries.chunk_by(|entry, next| entry.vdev == next.vdev).scan(0, |start, entries| {
            let range = *start..*start + entries.len();
            *start = range.end;
            Some(range)
        })
    }

    /// The block of an entry: its pointer, its place, and which of its addresses the entry is.
    pub fn block(&self, entry: &Entry) -> Option<(Blkptr, Bookmark, usize)> {
        let start = (entry.record & ((1 << RECORD_BITS) - 1)) as usize;
        let &[head, object, blkid] = self.records.get(start..start + 3)?.first_chunk()?;
        let mut words = [0; POINTER_WORDS];
        let mut kept = self.records.get(start + 3..)?.iter();
        for (index, word) in words.iter_mut().enumerate() {
            if head & 1 << index != 0 {
                *word = *kept.next()?;
            }
        }
        let level = i64::from((head >> 16) as u8 as i8);
        let objset = *self.objsets.get((head >> 24) as usize)?;
        let at = Bookmark { objset, object, level, blkid };
        Some((Blkptr::from_words(words).ok()?, at, (entry.record >> RECORD_BITS) as usize))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pointer(places: &[(u64, u64)]) -> Blkptr {
        let mut words = [0; 16];
        for (index, (vdev, sector)) in places.iter().enumerate() {
            words[2 * index] = vdev << 32 | 8;
            words[2 * index + 1] = *sector;
        }
        // 4 KiB of plain file contents with a checksum of fletcher4, little-endian.
        words[6] = 1 << 63 | 19 << 48 | 7 << 40 | 2 << 32 | 7 << 16 | 7;
        words[10] = 77;
        words[12..].copy_from_slice(&[1, 0, 3, 4]);
        Blkptr::from_words(words).expect("well-formed")
    }

    #[test]
    fn blocks_come_back_in_the_order_of_their_places() {
        let mut gathered = Gathered::default();
        let blocks = [
            (pointer(&[(1, 64), (0, 800)]), Bookmark::data(54, 7, 1)),
            (pointer(&[(0, 16)]), Bookmark { objset: 54, object: 0, level: -1, blkid: 0 }),
            (pointer(&[(0, 900)]), Bookmark { objset: 3, object: 1 << 40, level: 5, blkid: u64::MAX }),
        ];
        blocks.iter().for_each(|(bp, at)| gathered.push(bp, at, true));
        gathered.sort();
        let found: Vec<_> = gathered.entries().iter().filter_map(|entry| gathered.block(entry)).collect();
        let expected = [(1, 0), (0, 1), (2, 0), (0, 0)].map(|(block, copy)| {
            let (bp, at) = blocks[block];
            (bp, at, copy)
        });
        assert_eq!(found, expected);
        assert!(gathered.memory_bytes() < 4 * 120, "{}", gathered.memory_bytes());
    }

    /// Gathers blocks as a walk does, batch by batch. Gives the most memory that was allocated at a time.
    fn most_memory(blocks: u64, limits: &ScanLimits) -> u64 {
        let mut gathered = Gathered::default();
        let mut most = 0;
        for number in 0..blocks {
            let bp = pointer(&[(number % 3, number.wrapping_mul(0x9e37_79b9) & 0xffff_ffff)]);
            gathered.push(&bp, &Bookmark::data(54, 1 + number / 1000, number % 1000), true);
            let Gathered { entries, records, objsets, .. } = &gathered;
            let allocated =
                entries.capacity() * size_of::<Entry>() + (records.capacity() + objsets.capacity()) * 8;
            most = most.max(allocated as u64);
            if gathered.is_full(limits) {
                gathered = Gathered::default();
            }
        }
        most
    }

    #[test]
    fn memory_stays_within_its_limit() {
        let limits = ScanLimits { memory_bytes: 16 << 20, batch_bytes: u64::MAX, ..ScanLimits::default() };
        let most = most_memory(500_000, &limits);
        assert!(most <= limits.memory_bytes && most > limits.memory_bytes / 4, "{most}");
    }

    #[test]
    #[ignore = "it takes a minute"]
    fn memory_stays_within_its_limit_at_ten_million_blocks() {
        let limits = ScanLimits { memory_bytes: 1 << 30, batch_bytes: u64::MAX, ..ScanLimits::default() };
        let most = most_memory(10_000_000, &limits);
        println!("10 million blocks: at most {} MiB of {} MiB", most >> 20, limits.memory_bytes >> 20);
        assert!(most <= limits.memory_bytes, "{most}");
    }
}
