//! Damage by seed: a small generator of random numbers and the mutations that tests make with it.
//!
//! A seed says all: the same seed gives the same damage on every machine, so that a failure message needs
//! nothing else. The mutations are those that find bugs in parsers: flipped bits, numbers at the edges of
//! their types, fields copied from elsewhere, pieces cut out, repeated, zeroed or taken from another input.

/// A generator of random numbers (SplitMix64): every seed is good, every output is new for 2^64 steps.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// The generator of `seed`.
    pub const fn new(seed: u64) -> Rng {
        Rng(seed)
    }

    /// Random bits.
    pub const fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// A number below `limit`; 0 when that is 0.
    pub const fn below(&mut self, limit: u64) -> u64 {
        if limit == 0 { 0 } else { self.next_u64() % limit }
    }

    /// An index below `limit`.
    pub const fn index(&mut self, limit: usize) -> usize {
        self.below(limit as u64) as usize
    }

    /// True once in `n` times.
    pub const fn once_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// One of several.
    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> Option<&'a T> {
        from.get(self.index(from.len()))
    }
}

/// Numbers at which arithmetic and bounds go wrong.
pub const INTERESTING: [u64; 28] = [
    0,
    1,
    2,
    3,
    7,
    8,
    9,
    16,
    31,
    32,
    63,
    64,
    127,
    128,
    255,
    256,
    511,
    512,
    0x7fff,
    0x8000,
    0xffff,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_ffff,
    1 << 48,
    i64::MAX as u64,
    1 << 63,
    u64::MAX,
];

/// Longest input that [`mutate`] lets grow.
pub const MAX_MUTANT_BYTES: usize = 256 << 10;

/// Changes `bytes` in one to eight ways. `other` lends pieces.
pub fn mutate(rng: &mut Rng, bytes: &mut Vec<u8>, other: &[u8]) {
    // Mostly one or two changes: deep code is reached by what is nearly right.
    let most = 1 << rng.below(4);
    let rounds = 1 + rng.below(most);
    for _ in 0..rounds {
        mutate_once(rng, bytes, other);
    }
    bytes.truncate(MAX_MUTANT_BYTES);
}

fn mutate_once(rng: &mut Rng, bytes: &mut Vec<u8>, other: &[u8]) {
    let at = rng.index(bytes.len());
    match rng.below(12) {
        0..=2 => {
            if let Some(byte) = bytes.get_mut(at) {
                *byte ^= 1 << rng.below(8);
            }
        }
        3 | 4 => put_number(rng, bytes, at),
        5 => {
            // Structures are made of words: a step at a word's edge hits one field.
            let at = at & !7;
            put_number(rng, bytes, at);
        }
        6 => {
            if let Some(byte) = bytes.get_mut(at) {
                let step = 1 + rng.below(16) as u8;
                *byte = if rng.once_in(2) { byte.wrapping_add(step) } else { byte.wrapping_sub(step) };
            }
        }
        7 => bytes.truncate(at),
        8 => {
            let range = piece(rng, bytes.len());
            bytes.drain(range);
        }
        9 => {
            let range = piece(rng, bytes.len());
            let copy = bytes[range].to_vec();
            overwrite(rng, bytes, &copy);
        }
        10 => {
            let range = piece(rng, bytes.len());
            bytes[range].fill(if rng.once_in(2) { 0 } else { 0xff });
        }
        _ => {
            let range = piece(rng, other.len());
            let lent = &other[range];
            if rng.once_in(3) {
                let tail = bytes.split_off(at);
                bytes.extend_from_slice(lent);
                bytes.extend_from_slice(&tail);
            } else {
                overwrite(rng, bytes, lent);
            }
        }
    }
}

/// A range within `length`, short ones most often.
fn piece(rng: &mut Rng, length: usize) -> std::ops::Range<usize> {
    let start = rng.index(length);
    let limit = 1 << rng.below(13);
    let longest = (length - start).min(limit);
    start..start + rng.index(longest + 1)
}

fn overwrite(rng: &mut Rng, bytes: &mut [u8], with: &[u8]) {
    let at = rng.index(bytes.len());
    let count = with.len().min(bytes.len() - at);
    bytes[at..at + count].copy_from_slice(&with[..count]);
}

/// Writes a number at the edge of its type, of 1 to 8 bytes in either byte order.
pub fn put_number(rng: &mut Rng, bytes: &mut [u8], at: usize) {
    let number = INTERESTING[rng.index(INTERESTING.len())];
    let number = match rng.below(4) {
        0 => number.wrapping_neg(),
        1 => rng.next_u64() >> rng.below(64),
        _ => number,
    };
    let width = 1usize << rng.below(4);
    let little = number.to_le_bytes();
    let big = number.to_be_bytes();
    let encoded = if rng.once_in(3) { &big[8 - width..] } else { &little[..width] };
    for (byte, new) in bytes.iter_mut().skip(at).zip(encoded) {
        *byte = *new;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_says_all() {
        let run = |seed| {
            let mut rng = Rng::new(seed);
            let mut bytes: Vec<u8> = (0..200).collect();
            mutate(&mut rng, &mut bytes, b"lent");
            (bytes, rng.next_u64())
        };
        for seed in 0..200 {
            assert_eq!(run(seed), run(seed));
        }
        assert!((0..50).filter(|seed| run(*seed).0 != (0..200).collect::<Vec<u8>>()).count() > 40);
    }

    #[test]
    fn nothing_is_too_short_to_be_mutated() {
        for seed in 0..1000 {
            let mut bytes = vec![0; (seed % 3) as usize];
            mutate(&mut Rng::new(seed), &mut bytes, &[]);
            assert!(bytes.len() < 16);
        }
    }
}
