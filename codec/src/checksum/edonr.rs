//! Edon-R 512 keyed by the pool's salt: the `edonr` checksum.
//!
//! Edon-R mixes with one operation, a quasigroup of order 2^512: `x * y` on vectors of eight 64-bit words.
//! Both sides go through a Latin square of sums and rotations (a different one for left and right), then
//! through a second pair of Latin squares of xors, and are added. A compression takes a double-size pipe and
//! a double-size message block through four rows of two operations each, with the message entering forwards
//! in the first row and backwards in the last. The variant here is the tweaked one, which xors the old pipe
//! and the swapped message onto the result.
//!
//! The hash is the second half of the pipe, of which a block pointer keeps the first four words. As a MAC the
//! salt goes first, stretched to a whole block by hashing: `H(salt) || H(H(salt))`; [`Edonr`] is the state
//! after it.
//!
//! Source: Gligoroski et al., "Cryptographic Hash Function EDON-R'"; OpenZFS 2.3 `edonr_zfs.c` for the use.

const BLOCK_BYTES: usize = 128;
type Half = [u64; 8];

/// The state from which a message's hash starts: the two halves of the pipe and the bytes that went in.
#[derive(Clone, Copy)]
pub struct Edonr {
    pipe: [Half; 2],
    bytes_before: u64,
}

impl Edonr {
    /// The unkeyed state: the bytes 0x80, 0x81, … 0xff, spelling big-endian words.
    const UNKEYED: Edonr = {
        let mut pipe = [[0; 8]; 2];
        let mut i = 0;
        while i < 16 {
            let first = 0x80 + 8 * i as u64;
            pipe[i / 8][i % 8] = first * 0x0101_0101_0101_0101 + 0x0001_0203_0405_0607;
            i += 1;
        }
        Edonr { pipe, bytes_before: 0 }
    };

    /// The state keyed by a pool's salt.
    pub fn keyed(salt: &[u8; 32]) -> Self {
        let mut block = [0; BLOCK_BYTES];
        let once = Self::UNKEYED.hash(salt);
        block[..64].copy_from_slice(&once);
        block[64..].copy_from_slice(&Self::UNKEYED.hash(&once));
        Edonr { pipe: compress(Self::UNKEYED.pipe, &block), bytes_before: BLOCK_BYTES as u64 }
    }

    /// The 512-bit hash of `data`.
    pub fn hash(&self, data: &[u8]) -> [u8; 64] {
        let mut pipe = self.pipe;
        let (blocks, rest) = data.as_chunks::<BLOCK_BYTES>();
        for block in blocks {
            pipe = compress(pipe, block);
        }
        // The end is marked by one set bit, and the last word of the last block is the count of bits.
        let bits = self.bytes_before.wrapping_add(data.len() as u64).wrapping_mul(8);
        let mut last = [0; BLOCK_BYTES];
        last[..rest.len()].copy_from_slice(rest);
        last[rest.len()] = 0x80;
        if rest.len() + 1 > BLOCK_BYTES - 8 {
            pipe = compress(pipe, &last);
            last = [0; BLOCK_BYTES];
        }
        last[BLOCK_BYTES - 8..].copy_from_slice(&bits.to_le_bytes());
        pipe = compress(pipe, &last);
        let mut hash = [0; 64];
        for (bytes, word) in hash.as_chunks_mut::<8>().0.iter_mut().zip(pipe[1]) {
            *bytes = word.to_le_bytes();
        }
        hash
    }
}

#[inline]
fn compress([pipe0, pipe1]: [Half; 2], block: &[u8; BLOCK_BYTES]) -> [Half; 2] {
    let words = block.as_chunks::<8>().0;
    let message0: Half = std::array::from_fn(|i| u64::from_le_bytes(words[i]));
    let message1: Half = std::array::from_fn(|i| u64::from_le_bytes(words[8 + i]));
    let reversed = |half: Half| -> Half { std::array::from_fn(|i| half[7 - i]) };

    let x = star(&reversed(message1), &message0);
    let y = star(&x, &message1);

    let x = star(&pipe1, &x);
    let y = star(&x, &y);

    let x3 = star(&x, &pipe0);
    let y = star(&y, &x3);

    let x = star(&reversed(message0), &x3);
    let y = star(&x, &y);

    [
        std::array::from_fn(|i| pipe0[i] ^ message1[i] ^ x[i]),
        std::array::from_fn(|i| pipe1[i] ^ message0[i] ^ y[i]),
    ]
}

/// The quasigroup operation `x * y`.
#[inline(always)]
fn star(x: &Half, y: &Half) -> Half {
    let (s, t) = (sums_left(x), sums_right(y));
    // The rows of the xor squares, three words each; pairs that recur are named once.
    let (s04, s17, s23, s56) = (s[0] ^ s[4], s[1] ^ s[7], s[2] ^ s[3], s[5] ^ s[6]);
    let (t01, t25, t34, t67) = (t[0] ^ t[1], t[2] ^ t[5], t[3] ^ t[4], t[6] ^ t[7]);
    [
        (s04 ^ s[1]).wrapping_add(t01 ^ t[5]),
        (s04 ^ s[7]).wrapping_add(t67 ^ t[2]),
        (s17 ^ s[6]).wrapping_add(t01 ^ t[3]),
        (s23 ^ s[4]).wrapping_add(t34 ^ t[0]),
        (s17 ^ s[0]).wrapping_add(t25 ^ t[1]),
        (s56 ^ s[3]).wrapping_add(t34 ^ t[6]),
        (s56 ^ s[2]).wrapping_add(t25 ^ t[7]),
        (s23 ^ s[5]).wrapping_add(t67 ^ t[4]),
    ]
}

#[inline(always)]
fn sum<const N: usize>(terms: [u64; N]) -> u64 {
    terms.into_iter().fold(0, u64::wrapping_add)
}

/// The first Latin square, for the left operand: each sum takes five of the eight words.
#[inline(always)]
fn sums_left(x: &Half) -> Half {
    const CONSTANT: u64 = 0xAAAA_AAAA_AAAA_AAAA;
    let (x04, x17, x23, x56) = (sum([x[0], x[4]]), sum([x[1], x[7]]), sum([x[2], x[3]]), sum([x[5], x[6]]));
    let (outer, inner) = (sum([x04, x17]), sum([x23, x56]));
    [
        sum([CONSTANT, outer, x[2]]),
        sum([outer, x[3]]).rotate_left(5),
        sum([outer, x[6]]).rotate_left(15),
        sum([inner, x[7]]).rotate_left(22),
        sum([inner, x[1]]).rotate_left(31),
        sum([x04, x23, x[5]]).rotate_left(40),
        sum([x17, x56, x[0]]).rotate_left(50),
        sum([inner, x[4]]).rotate_left(59),
    ]
}

/// The second Latin square, for the right operand.
#[inline(always)]
fn sums_right(y: &Half) -> Half {
    const CONSTANT: u64 = 0x5555_5555_5555_5555;
    let (y01, y25, y34, y67) = (sum([y[0], y[1]]), sum([y[2], y[5]]), sum([y[3], y[4]]), sum([y[6], y[7]]));
    let (first, even, odd, last) = (sum([y01, y25]), sum([y01, y34]), sum([y25, y67]), sum([y34, y67]));
    [
        sum([CONSTANT, first, y[7]]),
        sum([even, y[6]]).rotate_left(10),
        sum([first, y[3]]).rotate_left(19),
        sum([last, y[2]]).rotate_left(29),
        sum([even, y[5]]).rotate_left(36),
        sum([odd, y[4]]).rotate_left(44),
        sum([odd, y[1]]).rotate_left(48),
        sum([last, y[0]]).rotate_left(55),
    ]
}
