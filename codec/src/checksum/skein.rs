//! Skein-512-256 keyed by the pool's salt: the `skein` checksum.
//!
//! Skein chains the tweakable block cipher Threefish-512: each 64-byte block is encrypted under the chaining
//! value and xored with itself to give the next chaining value ("UBI"). The tweak holds the count of bytes so
//! far, the kind of input, and marks for the first and the last block, so nothing of one kind can pass for
//! another. A hash is three or four UBI runs: key (only when keyed), configuration, message, output.
//!
//! The run over key and configuration depends on the salt alone: [`Skein`] is that state, made once a pool.
//!
//! Source: "The Skein Hash Function Family", version 1.3, sections 3.3-3.5; OpenZFS 2.3 `skein_zfs.c` for the
//! use (the salt as MAC key, 256 bits of output, sequential tree).

const BLOCK_BYTES: usize = 64;
type State = [u64; 8];

/// Kinds of input, as they stand in the tweak.
mod kind {
    pub const KEY: u64 = 0;
    pub const CONFIG: u64 = 4;
    pub const MESSAGE: u64 = 48;
    pub const OUTPUT: u64 = 63;
}

/// "SHA3" and version 1, as the configuration block states them.
const SCHEMA_AND_VERSION: u64 = 0x0000_0001_3341_4853;
const OUTPUT_BITS: u64 = 256;

/// The chaining value from which a message's hash starts.
#[derive(Clone, Copy)]
pub struct Skein {
    start: State,
}

impl Skein {
    /// The state keyed by a pool's salt.
    pub fn keyed(key: &[u8]) -> Self {
        Self::configured(chain([0; 8], kind::KEY, key))
    }

    fn configured(start: State) -> Self {
        let mut config = [0; 32];
        config[..8].copy_from_slice(&SCHEMA_AND_VERSION.to_le_bytes());
        config[8..16].copy_from_slice(&OUTPUT_BITS.to_le_bytes());
        Self { start: chain(start, kind::CONFIG, &config) }
    }

    /// The 256-bit hash of `data`.
    pub fn hash(&self, data: &[u8]) -> [u8; 32] {
        let state = chain(self.start, kind::MESSAGE, data);
        // The output run encrypts a counter; the first block gives more than is asked.
        let output = chain(state, kind::OUTPUT, &0u64.to_le_bytes());
        let mut hash = [0; 32];
        for (bytes, word) in hash.as_chunks_mut::<8>().0.iter_mut().zip(output) {
            *bytes = word.to_le_bytes();
        }
        hash
    }
}

/// One UBI run: chains all of `data`, as input of one kind, onto `state`. Empty input is one block of zeros.
fn chain(mut state: State, kind: u64, data: &[u8]) -> State {
    const FIRST: u64 = 1 << 62;
    const FINAL: u64 = 1 << 63;
    let mut flags = kind << 56 | FIRST;
    let mut position = 0u64;
    let last_bytes = if data.is_empty() { 0 } else { (data.len() - 1) % BLOCK_BYTES + 1 };
    let (body, last) = data.split_at(data.len() - last_bytes);
    for block in body.as_chunks::<BLOCK_BYTES>().0 {
        position += BLOCK_BYTES as u64;
        state = encrypt_and_xor(state, [position, flags], block);
        flags &= !FIRST;
    }
    let mut padded = [0; BLOCK_BYTES];
    padded[..last.len()].copy_from_slice(last);
    encrypt_and_xor(state, [position + last.len() as u64, flags | FINAL], &padded)
}

/// Rotation counts of Threefish-512 in each of eight rounds, for each of its four mixes.
const ROTATIONS: [[u32; 4]; 8] = [
    [46, 36, 19, 37],
    [33, 27, 14, 42],
    [17, 49, 36, 39],
    [44, 9, 54, 56],
    [39, 30, 34, 24],
    [13, 50, 10, 17],
    [25, 29, 39, 43],
    [8, 35, 56, 22],
];

/// The words that the four mixes of a round take. The cipher permutes the words after each round by
/// 2, 1, 4, 7, 6, 5, 0, 3; after four rounds they stand as before, so naming them anew saves the moves.
const MIXED: [[(usize, usize); 4]; 4] = [
    [(0, 1), (2, 3), (4, 5), (6, 7)],
    [(2, 1), (4, 7), (6, 5), (0, 3)],
    [(4, 1), (6, 3), (0, 5), (2, 7)],
    [(6, 1), (0, 7), (2, 5), (4, 3)],
];

/// Encrypts `block` by Threefish-512 under `key` and `tweak`, and xors the block onto the result.
#[inline]
fn encrypt_and_xor(key: State, tweak: [u64; 2], block: &[u8; BLOCK_BYTES]) -> State {
    /// Keeps the extended key from being all zero.
    const PARITY: u64 = 0x1BD1_1BDA_A9FC_1A22;
    const DOUBLE_ROUNDS: usize = 9;
    // Both schedules wrap around; stating them twice spares the remainder of each index.
    let mut keys = [0; 18];
    keys[..8].copy_from_slice(&key);
    keys[8] = key.iter().fold(PARITY, |parity, word| parity ^ word);
    keys.copy_within(..9, 9);
    let tweaks = [tweak[0], tweak[1], tweak[0] ^ tweak[1], tweak[0], tweak[1]];

    let mut plain = [0; 8];
    for (word, bytes) in plain.iter_mut().zip(block.as_chunks::<8>().0) {
        *word = u64::from_le_bytes(*bytes);
    }
    let mut x = plain;
    let add_subkey = |x: &mut State, s: usize| {
        for (i, word) in x.iter_mut().enumerate() {
            *word = word.wrapping_add(keys[s % 9 + i]);
        }
        x[5] = x[5].wrapping_add(tweaks[s % 3]);
        x[6] = x[6].wrapping_add(tweaks[s % 3 + 1]);
        x[7] = x[7].wrapping_add(s as u64);
    };
    for double in 0..DOUBLE_ROUNDS {
        for half in 0..2 {
            add_subkey(&mut x, 2 * double + half);
            for round in 0..4 {
                for mix in 0..4 {
                    let (left, right) = MIXED[round][mix];
                    x[left] = x[left].wrapping_add(x[right]);
                    x[right] = x[right].rotate_left(ROTATIONS[4 * half + round][mix]) ^ x[left];
                }
            }
        }
    }
    add_subkey(&mut x, 2 * DOUBLE_ROUNDS);
    for (word, plain) in x.iter_mut().zip(plain) {
        *word ^= plain;
    }
    x
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use skein::{Digest as _, Skein512_256};

    proptest! {
        #[test]
        fn without_a_key_it_is_the_published_hash(data in prop::collection::vec(any::<u8>(), 0..300)) {
            let ours = Skein::configured([0; 8]).hash(&data);
            let published = Skein512_256::digest(&data);
            prop_assert_eq!(ours.as_slice(), published.as_slice());
        }
    }

    #[test]
    fn block_boundaries_match_the_published_hash() {
        let data = vec![0xa5; 4096];
        for len in [0, 1, 63, 64, 65, 127, 128, 129, 4096] {
            let ours = Skein::configured([0; 8]).hash(&data[..len]);
            assert_eq!(ours.as_slice(), Skein512_256::digest(&data[..len]).as_slice(), "{len}");
        }
    }

    #[test]
    fn the_key_changes_the_hash() {
        assert_ne!(Skein::keyed(&[1; 32]).hash(b"data"), Skein::keyed(&[2; 32]).hash(b"data"));
    }
}
