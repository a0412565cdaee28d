//! lz4: one LZ4 block after its length (4 bytes, big-endian).
//!
//! liblz4 does both, but for indirect blocks (`pointers`). `lz4_flex`, in Rust, is 10 % slower to pack text
//! and 10 % faster to pack machine code, needs room for the worst case, and a table that it keeps between
//! blocks (without which it clears one for each) costs it a sixth of the savings and, with 128K that do not
//! compress, nine tenths of the speed.

mod pointers;

pub use pointers::POINTER_GROWTH;

use super::length_prefixed;
use crate::{Error, Result};

const LENGTH_BYTES: usize = 4;

pub(super) fn decompress(src: &[u8], dst: &mut [u8]) -> Result<()> {
    let corrupt = |detail| Error::Corrupt { algorithm: "lz4", detail };
    let payload = length_prefixed("lz4", src, LENGTH_BYTES)?;
    // liblz4 counts in i32; blocks are of 16 MiB at most.
    let (Ok(_), Ok(size)) = (i32::try_from(payload.len()), i32::try_from(dst.len())) else {
        return Err(corrupt("a block of more than 2 GiB"));
    };
    match lz4::block::decompress_to_buffer(payload, Some(size), dst) {
        Ok(len) if len == dst.len() => Ok(()),
        Ok(_) => Err(corrupt("the block ends too early")),
        Err(_) => Err(corrupt("bad LZ4 block")),
    }
}

pub(super) fn compress(src: &[u8], dst: &mut [u8]) -> Option<usize> {
    // liblz4 counts in i32, and is told the room that there is.
    i32::try_from(dst.len()).ok()?;
    let (length, payload) = dst.split_at_mut_checked(LENGTH_BYTES)?;
    let len = lz4::block::compress_to_buffer(src, None, false, payload).ok()?;
    length.copy_from_slice(&u32::try_from(len).ok()?.to_be_bytes());
    Some(LENGTH_BYTES + len)
}

/// Like [`compress`], of an indirect block.
pub(super) fn compress_pointers(src: &[u8], dst: &mut [u8]) -> Option<usize> {
    let (length, payload) = dst.split_at_mut_checked(LENGTH_BYTES)?;
    let len = pointers::compress(src, payload)?;
    length.copy_from_slice(&u32::try_from(len).ok()?.to_be_bytes());
    Some(LENGTH_BYTES + len)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn decoded(payload: &[u8], len: usize) -> Option<Vec<u8>> {
        let mut block = (payload.len() as u32).to_be_bytes().to_vec();
        block.extend_from_slice(payload);
        let mut dst = vec![0xee; len];
        decompress(&block, &mut dst).ok().map(|()| dst)
    }

    #[test]
    fn a_block_ends_with_literals() {
        assert_eq!(decoded(&[0x30, 1, 2, 3], 3), Some(vec![1, 2, 3]));
        let repeated = [0x10, 7, 1, 0, 0xc0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12];
        let expected = vec![7, 7, 7, 7, 7, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12];
        assert_eq!(decoded(&repeated, expected.len()), Some(expected));
        assert_eq!(decoded(&[], 3), None);
        // A match last, a distance cut short, literals cut short.
        assert_eq!(decoded(&[0x11, 7, 1, 0], 6), None);
        assert_eq!(decoded(&[0x11, 7, 1], 6), None);
        assert_eq!(decoded(&[0x30, 1, 2], 3), None);
    }

    #[test]
    fn a_distance_beyond_the_start_is_refused() {
        let block = [0x10, 7, 2, 0, 0xc0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12];
        assert_eq!(decoded(&block, 17), None);
    }

    #[test]
    fn the_stated_length_is_bounded_by_the_block() {
        let mut dst = [0; 3];
        for stated in [4u32, 5, 1000, u32::MAX, u32::MAX - 3] {
            let mut block = stated.to_be_bytes().to_vec();
            block.extend_from_slice(&[0x30, 1, 2, 3]);
            assert_eq!(decompress(&block, &mut dst).is_ok(), stated == 4, "{stated}");
        }
    }

    proptest! {
        #[test]
        fn both_libraries_read_each_other(pieces in prop::collection::vec((any::<u8>(), 1usize..40, 0usize..60), 1..60)) {
            // New bytes, then old ones again: many short matches at many distances.
            let mut data: Vec<u8> = Vec::new();
            for (seed, fresh, again) in pieces {
                data.extend((0..fresh).map(|i| seed.wrapping_mul(31).wrapping_add((i * i) as u8)));
                let from = usize::from(seed) % data.len();
                let again = again.min(data.len() - from);
                data.extend_from_within(from..from + again);
            }
            let mut theirs = vec![0; lz4_flex::block::get_maximum_output_size(data.len())];
            let len = lz4::block::compress_to_buffer(&data, None, false, &mut theirs).unwrap();
            prop_assert_eq!(decoded(&theirs[..len], data.len()), Some(data.clone()));
            prop_assert_eq!(lz4_flex::block::decompress(&theirs[..len], data.len()).ok(), Some(data.clone()));
            prop_assert_eq!(decoded(&lz4_flex::block::compress(&data), data.len()), Some(data));
        }

        #[test]
        fn noise_never_panics(src in prop::collection::vec(any::<u8>(), 0..300), len in 0usize..600) {
            let _ = decoded(&src, len);
            let _ = decompress(&src, &mut vec![0; len]);
        }
    }
}
