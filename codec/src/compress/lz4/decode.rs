//! The LZ4 block decoder.
//!
//! A block is a row of sequences: literals, then a match (the last has literals only).
//!
//! | size | meaning |
//! |---:|---|
//! | 1 | token: literal length in the high four bits, match length less 4 in the low four |
//! | 0… | more literal length, when it is 15: bytes to add, up to and including the first that is not 255 |
//! | … | literals |
//! | 2 | distance back to the match, little-endian, not 0 |
//! | 0… | more match length, when it is 15, as above |
//!
//! Nearly all sequences are short, so their copies are of fixed sizes, written past their end where later output will
//! come anyway ([`ROOM_IN`], [`ROOM_OUT`]); near the ends of the slices, and for the rest, exact copies are made. All of
//! it is safe code: whatever the input says, only the two slices are touched. The sizes are chosen so that the compiler
//! can drop most checks; with them it runs as fast as decoders that do without (`cargo bench -p cenote-codec -- lz4`).
//!
//! Source: the LZ4 block format description (`lz4_Block_format.md`).

/// With so many bytes of input a token, 16 bytes of literals and, after 14 of them, a distance can be read at once.
const ROOM_IN: usize = 19;
/// With so many bytes of output 14 literals and a match of a token's own length can be written carelessly.
const ROOM_OUT: usize = 32;

/// Longest match of a token's own length. So many bytes are copied when they all lie before the sequence.
const MATCH_ROOM: usize = 18;
/// Long matches are copied in pieces of this size.
const PIECE: usize = 16;

const MATCH_MIN: usize = 4;
/// A length field that is continued.
const CONTINUED: usize = 15;

/// Decodes `src` into `dst`. Gives the length, or `None` when the block is not well-formed or needs more room.
pub(super) fn decode(mut src: &[u8], dst: &mut [u8]) -> Option<usize> {
    let mut to = 0;
    loop {
        // The short way, for as long as there is room and all is short.
        while let Some(input) = src.first_chunk::<ROOM_IN>() {
            let token = usize::from(input[0]);
            let (literals, length) = (token >> 4, (token & CONTINUED) + MATCH_MIN);
            let Some((before, ahead)) = dst.split_at_mut_checked(to) else { break };
            let Some(room) = ahead.first_chunk_mut::<ROOM_OUT>() else { break };
            if literals == CONTINUED {
                break;
            }
            room[..16].copy_from_slice(&input[1..17]);
            let distance = usize::from(u16::from_le_bytes([input[1 + literals], input[2 + literals]]));
            src = &src[3 + literals..];
            if length < CONTINUED + MATCH_MIN
                && let Some(start) = before.len().checked_sub(distance.wrapping_sub(literals))
                && let Some(copied) = before[start..].first_chunk::<MATCH_ROOM>()
            {
                // Small pieces: a load that spans two recent stores waits for both.
                let place = &mut room[literals..literals + MATCH_ROOM];
                place[..8].copy_from_slice(&copied[..8]);
                place[8..16].copy_from_slice(&copied[8..16]);
                place[16..].copy_from_slice(&copied[16..]);
                to += literals + length;
                continue;
            }
            to += literals;
            let length = continued(length, &mut src)?;
            copy_match(dst, to, distance, length)?;
            to += length;
        }
        // The careful way, for one sequence.
        let token = usize::from(*src.split_off_first()?);
        let mut literals = token >> 4;
        if literals == CONTINUED {
            literals += rest_of_length(&mut src)?;
        }
        dst.get_mut(to..to.checked_add(literals)?)?.copy_from_slice(src.split_off(..literals)?);
        to += literals;
        let Some((distance, rest)) = src.split_first_chunk::<2>() else {
            // The block ends here, or in the middle of a distance.
            return src.is_empty().then_some(to);
        };
        src = rest;
        let length = continued((token & CONTINUED) + MATCH_MIN, &mut src)?;
        copy_match(dst, to, usize::from(u16::from_le_bytes(*distance)), length)?;
        to += length;
    }
}

/// The whole match length from what the token says of it.
#[inline]
fn continued(length: usize, src: &mut &[u8]) -> Option<usize> {
    if length == CONTINUED + MATCH_MIN { length.checked_add(rest_of_length(src)?) } else { Some(length) }
}

fn rest_of_length(src: &mut &[u8]) -> Option<usize> {
    let mut sum = 0usize;
    loop {
        let byte = *src.split_off_first()?;
        // At most 255 for each byte of input: no overflow.
        sum += usize::from(byte);
        if byte != u8::MAX {
            return Some(sum);
        }
    }
}

/// Writes `length` bytes at `to`, each equal to the one `distance` before it.
#[inline]
fn copy_match(dst: &mut [u8], to: usize, distance: usize, length: usize) -> Option<()> {
    let start = to.checked_sub(distance)?;
    let end = to.checked_add(length).filter(|end| *end <= dst.len())?;
    if distance >= PIECE && dst.len() - end >= PIECE {
        let (mut start, mut to) = (start, to);
        while to < end {
            let piece: [u8; PIECE] = *dst.get(start..)?.first_chunk()?;
            *dst.get_mut(to..)?.first_chunk_mut()? = piece;
            start += PIECE;
            to += PIECE;
        }
        return Some(());
    }
    repeat(dst, to, distance, end)
}

#[inline(never)]
fn repeat(dst: &mut [u8], to: usize, distance: usize, end: usize) -> Option<()> {
    match distance {
        0 => return None,
        1 => {
            let byte = dst[to - 1];
            dst[to..end].fill(byte);
            return Some(());
        }
        _ => {}
    }
    // What repeats after `distance` repeats after its multiples: go on from a piece back or more.
    let stride = distance * PIECE.div_ceil(distance);
    let slow_end = end.min(to - distance + stride);
    let mut at = to;
    while at < slow_end {
        dst[at] = dst[at - distance];
        at += 1;
    }
    while at < end && at + PIECE <= dst.len() {
        let piece: [u8; PIECE] = *dst.get(at - stride..)?.first_chunk()?;
        *dst.get_mut(at..)?.first_chunk_mut()? = piece;
        at += PIECE;
    }
    while at < end {
        dst[at] = dst[at - distance];
        at += 1;
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn decoded(src: &[u8], len: usize) -> Option<Vec<u8>> {
        let mut dst = vec![0xee; len];
        let used = decode(src, &mut dst)?;
        dst.truncate(used);
        Some(dst)
    }

    /// What liblz4 makes of a block.
    fn oracle(src: &[u8], len: usize) -> Option<Vec<u8>> {
        let mut dst = vec![0xee; len];
        // SAFETY: both pointers are valid for the lengths given with them.
        let used = unsafe {
            lz4_sys::LZ4_decompress_safe(
                src.as_ptr().cast(),
                dst.as_mut_ptr().cast(),
                src.len() as i32,
                len as i32,
            )
        };
        dst.truncate(usize::try_from(used).ok()?);
        Some(dst)
    }

    #[test]
    fn a_block_ends_with_literals() {
        assert_eq!(decoded(&[0x00], 0), Some(vec![]));
        assert_eq!(decoded(&[0x30, 1, 2, 3], 3), Some(vec![1, 2, 3]));
        assert_eq!(decoded(&[], 3), None);
        // A match last, a distance cut short, literals cut short.
        assert_eq!(decoded(&[0x11, 7, 1, 0], 6), None);
        assert_eq!(decoded(&[0x11, 7, 1], 6), None);
        assert_eq!(decoded(&[0x30, 1, 2], 3), None);
    }

    #[test]
    fn distances_beyond_the_start_and_of_nothing_are_refused() {
        for distance in [0, 2] {
            assert_eq!(decoded(&[0x10, 7, distance, 0, 0x10, 9], 100), None);
        }
        assert_eq!(decoded(&[0x10, 7, 1, 0, 0x10, 9], 100), Some(vec![7, 7, 7, 7, 7, 9]));
    }

    #[test]
    fn more_than_fits_is_refused() {
        let block = [0x1f, 7, 1, 0, 255, 255, 0, 0x10, 9];
        let whole = 1 + 19 + 510 + 1;
        assert_eq!(decoded(&block, whole).map(|data| data.len()), Some(whole));
        for room in 0..whole {
            assert_eq!(decoded(&block, room), None, "{room}");
        }
    }

    proptest! {
        #[test]
        fn every_distance_and_length_repeats_as_it_should(
            distance in 1usize..80, length in 4usize..400, room in 0usize..50, tail in 0usize..40,
        ) {
            // Literals, one match, literals; encoded by hand.
            let literals: Vec<u8> = (0..100).collect();
            let mut block = vec![0xf0 | (length - 4).min(15) as u8, 100 - 15];
            block.extend_from_slice(&literals);
            block.extend_from_slice(&(distance as u16).to_le_bytes());
            if let Some(mut more) = (length - 4).checked_sub(15) {
                while more >= 255 {
                    block.push(255);
                    more -= 255;
                }
                block.push(more as u8);
            }
            block.push((tail.min(14) as u8) << 4);
            block.resize(block.len() + tail.min(14), 0xaa);
            let mut expected = literals;
            for _ in 0..length {
                expected.push(expected[expected.len() - distance]);
            }
            expected.resize(expected.len() + tail.min(14), 0xaa);
            prop_assert_eq!(decoded(&block, expected.len() + room), Some(expected));
        }

        #[test]
        fn what_an_encoder_wrote_comes_back(pieces in prop::collection::vec((any::<u8>(), 1usize..40, 0usize..60), 0..60)) {
            // New bytes, then old ones again: many short matches at many distances.
            let mut data: Vec<u8> = Vec::new();
            for (seed, fresh, again) in pieces {
                data.extend((0..fresh).map(|i| seed.wrapping_mul(31).wrapping_add((i * i) as u8)));
                let from = usize::from(seed) % data.len();
                let again = again.min(data.len() - from);
                data.extend_from_within(from..from + again);
            }
            let block = lz4_flex::block::compress(&data);
            prop_assert_eq!(decoded(&block, data.len()), Some(data));
        }

        #[test]
        fn damaged_blocks_give_what_liblz4_gives(
            data in prop::collection::vec(0u8..4, 50..1000), at in any::<prop::sample::Index>(), bits in 1u8..,
        ) {
            let mut block = lz4_flex::block::compress(&data);
            let at = at.index(block.len());
            block[at] ^= bits;
            // Which blocks are refused differs: liblz4 lets a distance of zero pass, and refuses some ends of blocks that
            // encoders must not write but decoders can read.
            if let (Some(ours), Some(theirs)) = (decoded(&block, data.len()), oracle(&block, data.len())) {
                prop_assert_eq!(ours, theirs);
            }
        }

        #[test]
        fn noise_never_panics(src in prop::collection::vec(any::<u8>(), 0..300), len in 0usize..600) {
            let _ = decoded(&src, len);
        }
    }
}
