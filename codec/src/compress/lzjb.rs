//! lzjb: the first compression of ZFS, a small Lempel-Ziv.
//!
//! Items come in groups of eight after one byte of flags, lowest bit first: 0 is a literal byte, 1 is a match
//! of two bytes, `lllllloo oooooooo`: length less 3, and distance back (1 to 1023). A match may overlap what
//! it produces. The stream ends when the logical size is reached.
//!
//! The encoder remembers for each of 1024 hashes of three bytes where they were last seen, and knows a place
//! only by its low 16 address bits. OpenZFS takes the real address; with a buffer aligned to 1 KiB (as its
//! buffers of that size and more are) this is the position in the block, which is what is used here, so that
//! the bytes are the same.

use crate::{Error, Result};

const MATCH_BITS: u32 = 6;
const MATCH_MIN: usize = 3;
const MATCH_MAX: usize = (1 << MATCH_BITS) + MATCH_MIN - 1;
const OFFSET_MASK: usize = (1 << (16 - MATCH_BITS)) - 1;
const HASHES: usize = 1024;

const fn corrupt(detail: &'static str) -> Error {
    Error::Corrupt { algorithm: "lzjb", detail }
}

pub(super) fn decompress(src: &[u8], dst: &mut [u8]) -> Result<()> {
    const ENDED: Error = corrupt("the input ends too early");
    let mut at = 0;
    let mut src = src.iter().copied();
    while at < dst.len() {
        let flags = src.next().ok_or(ENDED)?;
        for item in 0..8 {
            if at == dst.len() {
                break;
            }
            let first = src.next().ok_or(ENDED)?;
            if flags & 1 << item == 0 {
                dst[at] = first;
                at += 1;
                continue;
            }
            let second = src.next().ok_or(ENDED)?;
            let length = usize::from(first >> (8 - MATCH_BITS)) + MATCH_MIN;
            let distance = usize::from(u16::from_be_bytes([first, second])) & OFFSET_MASK;
            if distance == 0 || distance > at {
                return Err(corrupt("a match reaches before the block"));
            }
            let end = dst.len().min(at + length);
            if distance >= length {
                dst.copy_within(at - distance..at - distance + (end - at), at);
            } else {
                for to in at..end {
                    dst[to] = dst[to - distance];
                }
            }
            at = end;
        }
    }
    Ok(())
}

pub(super) fn compress(src: &[u8], dst: &mut [u8]) -> Option<usize> {
    /// A group is begun only with room for its flags and eight matches.
    const GROUP_BYTES: usize = 17;
    let mut last_seen = [0u16; HASHES];
    let mut from = 0;
    let mut to = 0;
    while from < src.len() {
        if to + GROUP_BYTES >= dst.len() {
            return None;
        }
        let flags_at = to;
        let mut flags = 0;
        to += 1;
        for item in 0..8 {
            if from == src.len() {
                break;
            }
            if let Some((distance, length)) = find_match(src, from, &mut last_seen) {
                flags |= 1 << item;
                let token = ((length - MATCH_MIN) << (16 - MATCH_BITS) | distance) as u16;
                dst[to..to + 2].copy_from_slice(&token.to_be_bytes());
                to += 2;
                from += length;
            } else {
                dst[to] = src[from];
                to += 1;
                from += 1;
            }
        }
        dst[flags_at] = flags;
    }
    Some(to)
}

/// The distance and length of the match at `from`, if its last place is near and really matches.
fn find_match(src: &[u8], from: usize, last_seen: &mut [u16; HASHES]) -> Option<(usize, usize)> {
    // The last bytes are always literals, so a match never looks past the end.
    let window = src.get(from..from + MATCH_MAX)?;
    let mut hash = usize::from(window[0]) << 16 | usize::from(window[1]) << 8 | usize::from(window[2]);
    hash += hash >> 9;
    hash += hash >> 5;
    let seen = std::mem::replace(&mut last_seen[hash % HASHES], from as u16);
    let distance = from.wrapping_sub(usize::from(seen)) & OFFSET_MASK;
    if distance == 0 || distance > from || src[from - distance..][..MATCH_MIN] != window[..MATCH_MIN] {
        return None;
    }
    let earlier = &src[from - distance..];
    let same = window.iter().zip(earlier).take_while(|(a, b)| a == b).count();
    Some((distance, same))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_short_block_is_literals_under_zero_flags() {
        let mut out = [0xee; 32];
        assert_eq!(compress(b"ninebytes", &mut out), Some(11));
        assert_eq!(&out[..11], b"\0ninebyte\0s");
    }

    #[test]
    fn an_overlapping_match_repeats_what_it_writes() {
        // One literal, then 66 bytes from one place back.
        let mut out = [0; 67];
        decompress(&[0b10, b'x', 0b1111_1100, 1], &mut out).unwrap();
        assert_eq!(out, [b'x'; 67]);
    }

    #[test]
    fn a_match_is_cut_at_the_logical_size() {
        let mut out = [0; 10];
        decompress(&[0b10, b'x', 0b1111_1100, 1, 0xff, 0xff], &mut out).unwrap();
        assert_eq!(out, [b'x'; 10]);
    }

    #[test]
    fn matches_before_the_start_and_onto_themselves_are_refused() {
        for distance in [0, 2] {
            assert!(decompress(&[0b10, b'x', 0, distance], &mut [0; 10]).is_err());
        }
    }

    proptest! {
        #[test]
        fn hostile_input_is_an_error_or_fills_the_block(
            src in prop::collection::vec(any::<u8>(), 0..200), len in 0usize..500,
        ) {
            let _ = decompress(&src, &mut vec![0; len]);
        }
    }
}
