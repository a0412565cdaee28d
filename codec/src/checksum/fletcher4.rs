//! fletcher4: the default checksum of data, of metadata, of send streams and of the intent log.
//!
//! Four cascaded sums over 32-bit words, each wrapping at 2^64: `a += word; b += a; c += b; d += c`. So a
//! word that is the `w`-th from the end counts `1` time in `a`, `w` times in `b`, `w(w+1)/2` times in `c` and
//! `w(w+1)(w+2)/6` times in `d`. Everything is linear, and this gives two freedoms:
//!
//! * **Concatenation** ([`Fletcher4`]): the sums of two pieces combine, given the word count of the second.
//! * **Interleaving**: of a sequence, sum the words at even places apart from those at odd places. The `k`-th
//!   even word from the end is the `2k`-th of all, the `k`-th odd one the `2k-1`-th, and their counts are
//!   small fixed combinations of the counts in `k` ([`interleave`]). By halves and halves of halves, any
//!   power of two of lanes can run side by side in vector registers and be joined at the end.
//!
//! A vector step loads pairs of words as 64-bit numbers `y = low + high * 2^32` and cascades `y` and `high`,
//! never `low`: by linearity the sums of `low` are the sums of `y` less `2^32` times those of `high`. This
//! saves an instruction in ten. `x86` has the steps for AVX2 and AVX-512, chosen at run time; elsewhere the
//! same steps on arrays are left to the compiler.
//!
//! Words are read in the byte order of the machine that wrote the block. A tail of less than four bytes takes
//! no part.
//!
//! Source: OpenZFS 2.3 `zfs_fletcher.c` for the definition; the rest follows from it.

#![allow(unsafe_code, reason = "vector instructions")]

#[cfg(target_arch = "x86_64")]
mod x86;

use super::Digest;
use ondisk::ByteOrder;

/// A vector form takes a multiple of this.
const STEP_BYTES: usize = 64;
/// Under this length the scalar form is faster than joining the lanes.
const MIN_VECTOR_BYTES: usize = 256;
/// Under this length twice the lanes cost more to join than they save.
const MIN_AVX512_BYTES: usize = 16 << 10;

/// The fletcher4 digest of `data`, whose words are in `order`.
pub fn fletcher4(data: &[u8], order: ByteOrder) -> Digest {
    let vector_bytes = if data.len() < MIN_VECTOR_BYTES { 0 } else { data.len() - data.len() % STEP_BYTES };
    let (body, tail) = data.split_at(vector_bytes);
    let sums = if body.is_empty() { [0; 4] } else { vector(body, order) };
    continue_scalar(sums, tail, order)
}

/// The definition, word by word: what the vector forms must equal.
pub fn fletcher4_scalar(data: &[u8], order: ByteOrder) -> Digest {
    continue_scalar([0; 4], data, order)
}

/// A fletcher4 sum under way, as a send stream carries it. Each piece but the last must be a multiple of 4
/// bytes.
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
    // The number of ways a word `n` places before can reach the third and the fourth sum; exact, then cut to
    // 64 bits.
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

/// The four sums in each of `P` lanes, where step `i` of lane `p` takes the pair of words `P*i + p`.
struct Lanes<const P: usize> {
    /// Sums of the pairs as 64-bit numbers.
    whole: [[u64; P]; 4],
    /// Sums of the pairs' second words.
    high: [[u64; P]; 4],
}

impl<const P: usize> Lanes<P> {
    /// The sums of the whole sequence.
    fn join(&self) -> Digest {
        let whole = join_lanes(&self.whole);
        let high = join_lanes(&self.high);
        let low = std::array::from_fn(|t| whole[t].wrapping_sub(high[t] << 32));
        interleave(low, high)
    }
}

fn join_lanes<const P: usize>(lanes: &[[u64; P]; 4]) -> Digest {
    let mut sums: [Digest; P] = std::array::from_fn(|p| std::array::from_fn(|t| lanes[t][p]));
    let mut left = P;
    while left > 1 {
        left /= 2;
        for p in 0..left {
            sums[p] = interleave(sums[p], sums[p + left]);
        }
    }
    sums[0]
}

/// The sums of a sequence from those of its words at even and at odd places, of which there are as many.
#[inline(always)]
fn interleave([a1, b1, c1, d1]: Digest, [a2, b2, c2, d2]: Digest) -> Digest {
    let (a, b, c, d) = (a1.wrapping_add(a2), b1.wrapping_add(b2), c1.wrapping_add(c2), d1.wrapping_add(d2));
    // With w(k) for the counts k, k(k+1)/2, k(k+1)(k+2)/6: of 2k they are 2 w1, 4 w2 - w1, 8 w3 - 4 w2; of
    // 2k-1 they are 2 w1 - 1, 4 w2 - 3 w1, 8 w3 - 8 w2 + w1.
    [
        a,
        (b << 1).wrapping_sub(a2),
        (c << 2).wrapping_sub(b).wrapping_sub(b2 << 1),
        (d << 3).wrapping_sub(c << 2).wrapping_sub(c2 << 2).wrapping_add(b2),
    ]
}

/// Runs the best form that this processor has, over a whole number of steps.
fn vector(body: &[u8], order: ByteOrder) -> Digest {
    #[cfg(target_arch = "x86_64")]
    {
        if body.len() >= MIN_AVX512_BYTES
            && is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
        {
            // SAFETY: the processor has the features that the function was compiled for; nothing else is
            // asked.
            return unsafe { x86::cascade_avx512(body, order) }.join();
        }
        if is_x86_feature_detected!("avx2") {
            // SAFETY: as above.
            return unsafe { x86::cascade_avx2(body, order) }.join();
        }
    }
    cascade_portable(body, order).join()
}

fn cascade_portable(body: &[u8], order: ByteOrder) -> Lanes<4> {
    match order {
        ByteOrder::Little => cascade(body, u64::from_le_bytes),
        // Two big-endian words: swap the eight bytes, then put the first word back into the low half.
        ByteOrder::Big => cascade(body, |pair| u64::from_be_bytes(pair).rotate_left(32)),
    }
}

#[inline(always)]
fn cascade<const P: usize>(body: &[u8], load: impl Fn([u8; 8]) -> u64) -> Lanes<P> {
    let mut lanes = Lanes { whole: [[0; P]; 4], high: [[0; P]; 4] };
    let (pairs, _) = body.as_chunks::<8>();
    let (steps, _) = pairs.as_chunks::<P>();
    for step in steps {
        for (p, pair) in step.iter().enumerate() {
            let mut whole = load(*pair);
            let mut high = whole >> 32;
            for t in 0..4 {
                whole = lanes.whole[t][p].wrapping_add(whole);
                lanes.whole[t][p] = whole;
                high = lanes.high[t][p].wrapping_add(high);
                lanes.high[t][p] = high;
            }
        }
    }
    lanes
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
        let data = noise(2 * MIN_AVX512_BYTES);
        for len in (STEP_BYTES..=20 * STEP_BYTES).step_by(STEP_BYTES).chain([data.len()]) {
            let data = &data[..len];
            for order in ORDERS {
                let expected = fletcher4_scalar(data, order);
                assert_eq!(vector(data, order), expected);
                assert_eq!(cascade_portable(data, order).join(), expected);
                #[cfg(target_arch = "x86_64")]
                if is_x86_feature_detected!("avx2") {
                    // SAFETY: the feature was just detected.
                    assert_eq!(unsafe { x86::cascade_avx2(data, order) }.join(), expected);
                }
                #[cfg(target_arch = "x86_64")]
                if is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bw") {
                    // SAFETY: the features were just detected.
                    assert_eq!(unsafe { x86::cascade_avx512(data, order) }.join(), expected);
                }
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
