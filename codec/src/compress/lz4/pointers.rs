//! LZ4 of an indirect block: an array of block pointers.
//!
//! # The idea
//! LZ4 looks for earlier bytes with a hash table. In an indirect block the place is known: what a pointer
//! has in common with others, it has in common with the last one of its kind, a hole or a block, at the same
//! place. So each word is compared with that one, runs of equal bytes become matches at that distance, and
//! all else literals. The result is a block that every decoder of LZ4 reads, as small as with a search, in
//! half of its time.
//!
//! # Invariant
//! A pointer decides only about itself and the next ones of both kinds. So a block with some other pointers
//! is larger by at most [`POINTER_GROWTH`] for each of them. What accepts data before they are written counts
//! on that.
//!
//! The rules of the format for the end of a block: the last five bytes are literals, and the last match
//! begins at least twelve bytes before the end.

use ondisk::blkptr::Blkptr;

/// The most bytes by which an indirect block grows when one of its pointers changes: up to three pointers
/// become literals, and matches around them are cut.
pub const POINTER_GROWTH: usize = 512;

/// The shortest match of the format.
const LEAST_MATCH: usize = 4;
/// A shorter match saves nothing: its token and distance take three bytes.
const LEAST_WORTH: usize = LEAST_MATCH + 1;
/// Bytes at the end of a block that are literals.
const LAST_LITERALS: usize = 5;
/// No match begins in the last bytes of a block.
const LAST_MATCH_BEFORE: usize = 12;
/// From this number on, a length in a token goes on in further bytes.
const LONG: usize = 15;
const WORD: usize = 8;
/// Bytes of the first address, which are zero in a hole.
const ADDRESS: usize = 16;

/// Encodes `src` into `dst`; the number of bytes, or `None` when they are more than `dst` holds.
pub(super) fn compress(src: &[u8], dst: &mut [u8]) -> Option<usize> {
    let mut block = Block { src, dst, at: 0, literals_from: 0, run: None };
    // Where the last hole and the last block are.
    let mut last = [None; 2];
    for (number, pointer) in src.chunks_exact(Blkptr::SIZE).enumerate() {
        let from = number * Blkptr::SIZE;
        let kind = usize::from(pointer.iter().take(ADDRESS).any(|byte| *byte != 0));
        let before = last[kind].replace(from);
        let alike = before.and_then(|before| {
            Some((u16::try_from(from - before).ok()?, src.get(before..before + Blkptr::SIZE)?))
        });
        match alike {
            Some((distance, like)) => block.compare(from, pointer, distance, like)?,
            None => block.end_run(from)?,
        }
    }
    block.end_run(src.len() / Blkptr::SIZE * Blkptr::SIZE)?;
    let rest = src.get(block.literals_from..)?;
    block.put_literals(rest, 0)?;
    Some(block.at)
}

fn word(bytes: &[u8]) -> u64 {
    bytes.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

/// A block in the making.
struct Block<'a> {
    src: &'a [u8],
    dst: &'a mut [u8],
    /// Bytes written.
    at: usize,
    /// The first byte of `src` that is not in the block yet.
    literals_from: usize,
    /// Where the present run of equal bytes begins, and their distance.
    run: Option<(usize, u16)>,
}

impl Block<'_> {
    /// The pointer at `from`, beside one that lies `distance` before it.
    fn compare(&mut self, from: usize, pointer: &[u8], distance: u16, like: &[u8]) -> Option<()> {
        if self.run.is_some_and(|(_, other)| other != distance) {
            self.end_run(from)?;
        }
        let words = pointer.chunks_exact(WORD).zip(like.chunks_exact(WORD));
        for (here, (now, before)) in (from..).step_by(WORD).zip(words) {
            let differs = word(now) ^ word(before);
            if differs == 0 {
                self.run.get_or_insert((here, distance));
                continue;
            }
            let (low, high) = (differs.trailing_zeros() as usize / 8, differs.leading_zeros() as usize / 8);
            self.run.get_or_insert((here, distance));
            self.end_run(here + low)?;
            self.run = (high > 0).then_some((here + WORD - high, distance));
        }
        Some(())
    }

    /// The run ends before the byte `to`: it becomes a match, where that saves something.
    fn end_run(&mut self, to: usize) -> Option<()> {
        let Some((from, distance)) = self.run.take() else { return Some(()) };
        let to = to.min(self.src.len().saturating_sub(LAST_LITERALS));
        if to < from + LEAST_WORTH || from + LAST_MATCH_BEFORE > self.src.len() {
            return Some(());
        }
        let literals = self.src.get(self.literals_from..from)?;
        let length = to - from - LEAST_MATCH;
        self.put_literals(literals, length.min(LONG) as u8)?;
        self.put(&distance.to_le_bytes())?;
        if length >= LONG {
            self.put_length(length - LONG)?;
        }
        self.literals_from = to;
        Some(())
    }

    /// A token with the low half `low`, and literals.
    fn put_literals(&mut self, literals: &[u8], low: u8) -> Option<()> {
        let length = literals.len();
        self.put(&[(length.min(LONG) as u8) << 4 | low])?;
        if length >= LONG {
            self.put_length(length - LONG)?;
        }
        self.put(literals)
    }

    /// What is left of a length that its token could not hold.
    fn put_length(&mut self, mut length: usize) -> Option<()> {
        while length >= 255 {
            self.put(&[255])?;
            length -= 255;
        }
        self.put(&[length as u8])
    }

    fn put(&mut self, bytes: &[u8]) -> Option<()> {
        self.dst.get_mut(self.at..self.at + bytes.len())?.copy_from_slice(bytes);
        self.at += bytes.len();
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn decoded(block: &[u8], len: usize) -> Vec<u8> {
        let mut out = vec![0xee; len];
        let got = lz4::block::decompress_to_buffer(block, i32::try_from(len).ok(), &mut out);
        assert_eq!(got.ok(), Some(len));
        assert_eq!(lz4_flex::block::decompress(block, len).ok().as_deref(), Some(&out[..]));
        out
    }

    fn encoded(data: &[u8]) -> Vec<u8> {
        let mut block = vec![0; data.len() + data.len() / 200 + 64];
        let len = compress(data, &mut block).expect("there is room");
        block.truncate(len);
        block
    }

    /// Pointers to blocks of one size without a second copy, as random writes leave them.
    fn pointers(count: usize, is_hole: impl Fn(usize) -> bool) -> Vec<u8> {
        let mut random = 7u64;
        let mut next = || {
            random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            random >> 16
        };
        let mut data = Vec::new();
        for number in 0..count {
            if is_hole(number) {
                data.extend([0; Blkptr::SIZE]);
                continue;
            }
            // Size and vdev; an offset; no other copies; properties; births and fill; a checksum.
            data.extend((16u64 | 1 << 32).to_le_bytes());
            data.extend((next() % (1 << 24)).to_le_bytes());
            data.extend([0; 32]);
            data.extend(0x8018_0702_000f_000fu64.to_le_bytes());
            data.extend([0; 24]);
            data.extend((70_000 + next() % 500).to_le_bytes());
            data.extend(1u64.to_le_bytes());
            data.extend((next() % (1 << 43)).to_le_bytes());
            (0..3).for_each(|_| data.extend((next() << 16 ^ next()).to_le_bytes()));
        }
        data
    }

    #[test]
    fn pointers_become_about_as_small_as_with_a_search() {
        for data in
            [pointers(1024, |_| false), pointers(1024, |number| number % 3 != 1), pointers(1024, |n| n > 9)]
        {
            let ours = encoded(&data);
            assert!(decoded(&ours, data.len()) == data);
            let mut searched = vec![0; 2 * data.len()];
            let searched = lz4::block::compress_to_buffer(&data, None, false, &mut searched).unwrap();
            assert!(ours.len() < searched + searched / 16 + 256, "{} and {searched}", ours.len());
        }
    }

    #[test]
    fn ends_are_as_the_format_wants_them() {
        for tail in 0..64 {
            let mut data = vec![0; 512];
            data[511 - tail] = 1;
            let block = encoded(&data);
            assert!(decoded(&block, 512) == data, "{tail}");
        }
        assert!(encoded(&vec![0; 1 << 17]).len() < 800);
        assert_eq!(encoded(b"short"), b"\x50short");
    }

    #[test]
    fn what_does_not_fit_is_none() {
        let data = pointers(32, |_| false);
        let block = encoded(&data);
        assert_eq!(compress(&data, &mut vec![0; block.len() - 1]), None);
    }

    proptest! {
        #[test]
        fn other_pointers_grow_it_by_no_more_than_stated(
            kinds in prop::collection::vec(0u8..4, 1..300),
            changes in prop::collection::vec((any::<prop::sample::Index>(), 0u8..5, any::<u8>()), 1..60),
        ) {
            let mut data = pointers(kinds.len(), |number| kinds[number] == 0);
            for (pointer, kind) in data.chunks_exact_mut(Blkptr::SIZE).zip(&kinds) {
                // All alike, so that they take next to nothing before.
                if *kind == 1 {
                    pointer.fill(9);
                }
            }
            let mut block = encoded(&data);
            prop_assert!(decoded(&block, data.len()) == data);
            for (at, kind, byte) in changes {
                let at = at.index(kinds.len()) * Blkptr::SIZE;
                let other = pointers(3 + usize::from(byte), |_| false);
                match kind {
                    0 => data[at..at + Blkptr::SIZE].fill(0),
                    1 => data[at..at + Blkptr::SIZE].fill(byte),
                    2 => data[at + usize::from(byte) % 100..at + Blkptr::SIZE].fill(byte),
                    _ => data[at..at + Blkptr::SIZE].copy_from_slice(&other[other.len() - Blkptr::SIZE..]),
                }
                let after = encoded(&data);
                prop_assert!(decoded(&after, data.len()) == data);
                let (before, most) = (block.len(), block.len() + POINTER_GROWTH);
                prop_assert!(after.len() <= most, "{before} and {}", after.len());
                block = after;
            }
        }

        #[test]
        fn all_decoders_return_what_went_in(
            record in prop::collection::vec(any::<u8>(), 8..200),
            changes in prop::collection::vec((any::<prop::sample::Index>(), 0usize..40, any::<u8>()), 0..40),
            count in 1usize..40,
        ) {
            let mut data = record.repeat(count);
            for (at, length, byte) in changes {
                let at = at.index(data.len());
                let to = data.len().min(at + length);
                data[at..to].fill(byte);
            }
            prop_assert!(decoded(&encoded(&data), data.len()) == data);
        }
    }
}
