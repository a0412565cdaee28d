//! fletcher4: the default checksum of data, of metadata, of send streams and of the intent log.
//!
//! Four cascaded sums over 32-bit words, each wrapping at 2^64: `a += word; b += a; c += b; d += c`. So in a block of
//! `n` words the word with `w` words after and including it counts `1` time in `a`, `w` times in `b`,
//! `w(w+1)/2` times in `c` and `w(w+1)(w+2)/6` times in `d`. Everything is linear, and this gives two freedoms:
//!
//! * **Concatenation** ([`Fletcher4`]): the sums of two pieces combine, given the word count of the second.
//! * **Lanes**: `L` independent cascades, lane `j` taking the words `j, j+L, j+2L, …`, run side by side in vector
//!   registers. A word that is `k`-th from the end of its lane is `w = L*k - j` from the end of the block, and a
//!   polynomial in `w` is a polynomial in `k`. [`FOLD`] holds the coefficients that turn the lanes' four sums into the
//!   block's four sums; it is computed at compile time by evaluating the polynomials at `k = 0, -1, -2, -3`.
//!
//! A vector step loads pairs of words as 64-bit numbers `y = low + high * 2^32` and cascades `y` and `high`, never
//! `low`: by linearity the sums of `low` are the sums of `y` less `2^32` times those of `high`. This saves an
//! instruction in ten. The vector form is plain Rust over arrays that the compiler turns into SSE2, AVX2 or AVX-512
//! code; which one runs is chosen at run time.
//!
//! Words are read in the byte order of the machine that wrote the block. A tail of less than four bytes takes no part.
//!
//! Source: OpenZFS 2.3 `zfs_fletcher.c` for the definition; the rest follows from it.

use super::Digest;
use ondisk::ByteOrder;

/// Words that one vector step takes: two for each of the 64-bit lanes.
const STEP_WORDS: usize = 16;
const STEP_BYTES: usize = STEP_WORDS * 4;
/// 64-bit lanes of a vector step.
const PAIRS: usize = STEP_WORDS / 2;
/// Under this length the scalar form is faster than folding the lanes.
const MIN_VECTOR_BYTES: usize = 512;

/// The fletcher4 digest of `data`, whose words are in `order`.
pub fn fletcher4(data: &[u8], order: ByteOrder) -> Digest {
    let vector_bytes = if data.len() < MIN_VECTOR_BYTES { 0 } else { data.len() - data.len() % STEP_BYTES };
    let (body, tail) = data.split_at(vector_bytes);
    let words = if body.is_empty() { [0; 4] } else { vector(body, order) };
    continue_scalar(words, tail, order)
}

/// The definition, word by word: what the vector form must equal.
pub fn fletcher4_scalar(data: &[u8], order: ByteOrder) -> Digest {
    continue_scalar([0; 4], data, order)
}

/// A fletcher4 sum under way, as a send stream carries it. Each piece but the last must be a multiple of 4 bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fletcher4 {
    words: Digest,
}

impl Fletcher4 {
    /// Goes on from a digest that was taken earlier.
    pub fn from_digest(words: Digest) -> Self {
        Self { words }
    }

    /// Adds `data`, whose words are in `order`.
    pub fn update(&mut self, data: &[u8], order: ByteOrder) {
        self.words = if data.len() < MIN_VECTOR_BYTES {
            continue_scalar(self.words, data, order)
        } else {
            concatenate(self.words, fletcher4(data, order), (data.len() / 4) as u64)
        };
    }

    /// The digest of everything added so far.
    pub fn digest(&self) -> Digest {
        self.words
    }
}

/// The digest of two pieces from the digests of each, where the second is of `n` words.
fn concatenate([a1, b1, c1, d1]: Digest, [a2, b2, c2, d2]: Digest, n: u64) -> Digest {
    // The number of ways a word `n` places before can reach the third and the fourth sum; exact, then cut to 64 bits.
    let wide = u128::from(n);
    let triangle = (wide * (wide + 1) / 2) as u64;
    let tetrahedron = (wide * (wide + 1) * (wide + 2) / 6) as u64;
    let term = |count: u64, sum: u64| count.wrapping_mul(sum);
    [
        a1.wrapping_add(a2),
        b1.wrapping_add(term(n, a1)).wrapping_add(b2),
        c1.wrapping_add(term(n, b1)).wrapping_add(term(triangle, a1)).wrapping_add(c2),
        d1.wrapping_add(term(n, c1))
            .wrapping_add(term(triangle, b1))
            .wrapping_add(term(tetrahedron, a1))
            .wrapping_add(d2),
    ]
}

#[inline]
fn continue_scalar([mut a, mut b, mut c, mut d]: Digest, data: &[u8], order: ByteOrder) -> Digest {
    let mut add = |word: u32| {
        a = a.wrapping_add(u64::from(word));
        b = b.wrapping_add(a);
        c = c.wrapping_add(b);
        d = d.wrapping_add(c);
    };
    let (words, _) = data.as_chunks::<4>();
    match order {
        ByteOrder::Little => words.iter().for_each(|word| add(u32::from_le_bytes(*word))),
        ByteOrder::Big => words.iter().for_each(|word| add(u32::from_be_bytes(*word))),
    }
    [a, b, c, d]
}

/// `FOLD[j][s][t]`: how often sum `t` of lane `j` counts in sum `s` of the block.
static FOLD: [[[u64; 4]; 4]; STEP_WORDS] = fold_table();

/// The weight of a word, `w` from the end, in sum `s`: the binomial coefficient of `w + s - 1` over `s`.
const fn weight(w: i64, s: usize) -> i64 {
    match s {
        0 => 1,
        1 => w,
        2 => w * (w + 1) / 2,
        _ => w * (w + 1) * (w + 2) / 6,
    }
}

const fn fold_table() -> [[[u64; 4]; 4]; STEP_WORDS] {
    let mut table = [[[0; 4]; 4]; STEP_WORDS];
    let mut lane = 0;
    while lane < STEP_WORDS {
        let mut s = 0;
        while s < 4 {
            // The weight in terms of `k` is `x0 + x1*weight(k,1) + x2*weight(k,2) + x3*weight(k,3)`. At k = 0, -1, -2
            // and -3 one more term after another is not zero, so the coefficients come out in turn.
            let stride = STEP_WORDS as i64;
            let first = -(lane as i64);
            let x0 = weight(first, s);
            let x1 = x0 - weight(first - stride, s);
            let x2 = weight(first - 2 * stride, s) - x0 + 2 * x1;
            let x3 = x0 - 3 * x1 + 3 * x2 - weight(first - 3 * stride, s);
            table[lane][s] = [x0 as u64, x1 as u64, x2 as u64, x3 as u64];
            s += 1;
        }
        lane += 1;
    }
    table
}

/// Four cascaded sums in each of the 64-bit lanes.
type Lanes = [[u64; PAIRS]; 4];

fn vector(body: &[u8], order: ByteOrder) -> Digest {
    let (whole, high) = cascade(body, order);
    let mut digest = [0u64; 4];
    for pair in 0..PAIRS {
        for t in 0..4 {
            let high = high[t][pair];
            let low = whole[t][pair].wrapping_sub(high << 32);
            for (s, sum) in digest.iter_mut().enumerate() {
                let even = FOLD[2 * pair][s][t].wrapping_mul(low);
                let odd = FOLD[2 * pair + 1][s][t].wrapping_mul(high);
                *sum = sum.wrapping_add(even).wrapping_add(odd);
            }
        }
    }
    digest
}

/// Runs the best form that this processor has. Returns the lanes of whole pairs and of their odd words.
fn cascade(body: &[u8], order: ByteOrder) -> (Lanes, Lanes) {
    #[cfg(target_arch = "x86_64")]
    {
        if is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bw") {
            // SAFETY: the processor has the features that the function was compiled for; nothing else is asked.
            return unsafe { cascade_avx512(body, order) };
        }
        if is_x86_feature_detected!("avx2") {
            // SAFETY: as above.
            return unsafe { cascade_avx2(body, order) };
        }
    }
    cascade_portable(body, order)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw")]
fn cascade_avx512(body: &[u8], order: ByteOrder) -> (Lanes, Lanes) {
    cascade_portable(body, order)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn cascade_avx2(body: &[u8], order: ByteOrder) -> (Lanes, Lanes) {
    cascade_portable(body, order)
}

#[inline(always)]
fn cascade_portable(body: &[u8], order: ByteOrder) -> (Lanes, Lanes) {
    match order {
        ByteOrder::Little => cascade_pairs(body, u64::from_le_bytes),
        // Two big-endian words: swap the eight bytes, then put the first word back into the low half.
        ByteOrder::Big => cascade_pairs(body, |pair| u64::from_be_bytes(pair).rotate_left(32)),
    }
}

#[inline(always)]
fn cascade_pairs(body: &[u8], load: impl Fn([u8; 8]) -> u64) -> (Lanes, Lanes) {
    let mut whole: Lanes = [[0; PAIRS]; 4];
    let mut high: Lanes = [[0; PAIRS]; 4];
    let (steps, _) = body.as_chunks::<STEP_BYTES>();
    for step in steps {
        let (pairs, _) = step.as_chunks::<8>();
        for lane in 0..PAIRS {
            let pair = load(pairs[lane]);
            let mut carry_whole = pair;
            let mut carry_high = pair >> 32;
            for t in 0..4 {
                carry_whole = whole[t][lane].wrapping_add(carry_whole);
                whole[t][lane] = carry_whole;
                carry_high = high[t][lane].wrapping_add(carry_high);
                high[t][lane] = carry_high;
            }
        }
    }
    (whole, high)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ORDERS: [ByteOrder; 2] = [ByteOrder::Little, ByteOrder::Big];

    fn noise(len: usize) -> Vec<u8> {
        let mut state = 0x2545_f491_4f6c_dd1du64 ^ len as u64;
        let step = |_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state as u8
        };
        (0..len).map(step).collect()
    }

    #[test]
    fn each_word_counts_by_its_distance_from_the_end() {
        let bytes: Vec<u8> = [7u32, 0, 0, 0].iter().flat_map(|w| w.to_le_bytes()).collect();
        assert_eq!(fletcher4_scalar(&bytes, ByteOrder::Little), [7, 7 * 4, 7 * 10, 7 * 20]);
    }

    #[test]
    fn every_length_equals_the_scalar_twin_in_both_orders() {
        let data = noise(4 * STEP_BYTES + MIN_VECTOR_BYTES);
        for len in 0..=data.len() {
            for order in ORDERS {
                assert_eq!(
                    fletcher4(&data[..len], order),
                    fletcher4_scalar(&data[..len], order),
                    "{len} {order:?}"
                );
            }
        }
    }

    #[test]
    fn sums_wrap_like_the_scalar_twin() {
        let data = vec![0xff; 1 << 20];
        assert_eq!(fletcher4(&data, ByteOrder::Little), fletcher4_scalar(&data, ByteOrder::Little));
    }

    #[test]
    fn every_form_that_this_processor_has_agrees() {
        let data = noise(128 * STEP_BYTES);
        for order in ORDERS {
            let expected = cascade_portable(&data, order);
            assert_eq!(cascade(&data, order), expected);
            #[cfg(target_arch = "x86_64")]
            if is_x86_feature_detected!("avx2") {
                // SAFETY: the feature was just detected.
                assert_eq!(unsafe { cascade_avx2(&data, order) }, expected);
            }
        }
    }

    proptest! {
        #[test]
        fn pieces_concatenate(words in prop::collection::vec(any::<u32>(), 0..2000), cut in any::<prop::sample::Index>()) {
            let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
            let (head, tail) = bytes.split_at(cut.index(words.len() + 1) * 4);
            for order in ORDERS {
                let mut sum = Fletcher4::default();
                sum.update(head, order);
                let mut sum = Fletcher4::from_digest(sum.digest());
                sum.update(tail, order);
                prop_assert_eq!(sum.digest(), fletcher4_scalar(&bytes, order));
            }
        }
    }
}
