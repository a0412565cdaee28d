//! fletcher2: the first checksum of ZFS, today kept for old blocks and for the old intent log.
//!
//! The data is a row of pairs of 64-bit words. Even and odd words are summed apart, each with a running sum
//! of its sums; every sum wraps at 2^64. The digest is `[even, odd, sums of even, sums of odd]`.
//!
//! A byte order is part of the input: words are read as the machine that wrote the block would have read
//! them. Blocks are multiples of 512 bytes; an incomplete pair at the end takes no part.
//!
//! Source: OpenZFS 2.3 `zfs_fletcher.c`.

use super::Digest;
use ondisk::ByteOrder;

/// A fletcher2 sum under way. Each piece but the last must be a multiple of 16 bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fletcher2 {
    words: Digest,
}

impl Fletcher2 {
    /// Adds `data`, whose words are in `order`.
    pub fn update(&mut self, data: &[u8], order: ByteOrder) {
        self.words = match order {
            ByteOrder::Little => sum(self.words, data, u64::from_le_bytes),
            ByteOrder::Big => sum(self.words, data, u64::from_be_bytes),
        };
    }

    /// The digest of everything added so far.
    pub fn digest(&self) -> Digest {
        self.words
    }
}

/// The fletcher2 digest of `data`, whose words are in `order`.
pub fn fletcher2(data: &[u8], order: ByteOrder) -> Digest {
    let mut sum = Fletcher2::default();
    sum.update(data, order);
    sum.digest()
}

#[inline(always)]
fn sum([mut a0, mut a1, mut b0, mut b1]: Digest, data: &[u8], word: fn([u8; 8]) -> u64) -> Digest {
    let (pairs, _) = data.as_chunks::<16>();
    for pair in pairs {
        let (words, _) = pair.as_chunks::<8>();
        a0 = a0.wrapping_add(word(words[0]));
        a1 = a1.wrapping_add(word(words[1]));
        b0 = b0.wrapping_add(a0);
        b1 = b1.wrapping_add(a1);
    }
    [a0, a1, b0, b1]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_even_and_odd_words_apart() {
        let words: [u64; 4] = [1, 10, 2, u64::MAX];
        let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
        assert_eq!(fletcher2(&bytes, ByteOrder::Little), [3, 9, 4, 19]);
    }

    #[test]
    fn the_other_byte_order_reads_swapped_words() {
        let words: Vec<u64> = (0..64).map(|i: u64| i.wrapping_mul(0x9e37_79b9_7f4a_7c15)).collect();
        let little: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
        let big: Vec<u8> = words.iter().flat_map(|w| w.to_be_bytes()).collect();
        assert_eq!(fletcher2(&little, ByteOrder::Little), fletcher2(&big, ByteOrder::Big));
        assert_ne!(fletcher2(&little, ByteOrder::Little), fletcher2(&little, ByteOrder::Big));
    }
}
