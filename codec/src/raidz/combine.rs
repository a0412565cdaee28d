//! The one heavy loop of raidz: up to three outputs, each a weighted sum of the same inputs.
//!
//! Parity is such a sum over the data, and every lost column is such a sum over what is left
//! (`super::reconstruct` finds the weights), so generation and every kind of rebuild share this loop. It
//! reads each input once and keeps the sums of a tile in registers until the tile is done.
//!
//! Columns of one row differ in length by a sector; a short input counts as padded with zeros. The range is
//! cut where the set of columns changes, and inside each piece all slices are equally long.
//!
//! # Variants
//! Chosen at run time by what the processor has: multiplication by a bit matrix (GFNI, with 512- or 256-bit
//! vectors), by two nibble tables (AVX2), or table look-ups byte by byte. All compute the same; the last is
//! the oracle of the tests.

#![allow(unsafe_code, reason = "vector instructions")]

use super::MAX_PARITY;
use super::field::NIBBLE_PRODUCTS;

/// One addend: the bytes, and the weight that they have in each output.
#[derive(Debug, Clone, Copy)]
pub(super) struct Input<'a> {
    pub bytes: &'a [u8],
    pub weights: [u8; MAX_PARITY],
}

/// Sets each byte of each output to the weighted sum of the inputs' bytes at the same place.
pub(super) fn combine(inputs: &[Input<'_>], outputs: &mut [&mut [u8]]) {
    combine_with(variant(), inputs, outputs);
}

fn combine_with(variant: Variant, inputs: &[Input<'_>], outputs: &mut [&mut [u8]]) {
    debug_assert!(outputs.len() <= MAX_PARITY);
    if let Some(length) = outputs.first().map(|output| output.len())
        && inputs.iter().all(|input| input.bytes.len() == length)
        && outputs.iter().all(|output| output.len() == length)
    {
        variant.run_on(inputs, outputs.iter_mut().map(|output| &mut **output));
        return;
    }
    let longest = outputs.iter().map(|output| output.len()).max().unwrap_or(0);
    let mut active: Vec<Input<'_>> = Vec::with_capacity(inputs.len());
    let mut start = 0;
    while start < longest {
        let lengths =
            inputs.iter().map(|input| input.bytes.len()).chain(outputs.iter().map(|output| output.len()));
        let end = lengths.filter(|&length| length > start).min().unwrap_or(longest);
        active.clear();
        let mut kept = [false; MAX_PARITY];
        for (kept, output) in kept.iter_mut().zip(outputs.iter()) {
            *kept = output.len() >= end;
        }
        for input in inputs.iter().filter(|input| input.bytes.len() >= end) {
            let mut weights = [0; MAX_PARITY];
            let wanted = input.weights.iter().zip(kept).filter(|&(_, kept)| kept).map(|(&weight, _)| weight);
            weights.iter_mut().zip(wanted).for_each(|(slot, weight)| *slot = weight);
            if weights != [0; MAX_PARITY] {
                active.push(Input { bytes: &input.bytes[start..end], weights });
            }
        }
        let pieces = outputs.iter_mut().filter(|output| output.len() >= end);
        variant.run_on(&active, pieces.map(|output| &mut output[start..end]));
        start = end;
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Variant {
    Scalar,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    #[cfg(target_arch = "x86_64")]
    Gfni256,
    #[cfg(target_arch = "x86_64")]
    Gfni512,
}

impl Variant {
    fn available(self) -> bool {
        match self {
            Self::Scalar => true,
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => is_x86_feature_detected!("avx2"),
            #[cfg(target_arch = "x86_64")]
            Self::Gfni256 => is_x86_feature_detected!("avx2") && is_x86_feature_detected!("gfni"),
            #[cfg(target_arch = "x86_64")]
            Self::Gfni512 => is_x86_feature_detected!("avx512bw") && is_x86_feature_detected!("gfni"),
        }
    }

    /// Best first.
    const ALL: &[Variant] = &[
        #[cfg(target_arch = "x86_64")]
        Variant::Gfni512,
        #[cfg(target_arch = "x86_64")]
        Variant::Gfni256,
        #[cfg(target_arch = "x86_64")]
        Variant::Avx2,
        Variant::Scalar,
    ];

    /// Runs on one to three outputs.
    fn run_on<'a>(self, inputs: &[Input<'_>], mut outputs: impl Iterator<Item = &'a mut [u8]>) {
        match (outputs.next(), outputs.next(), outputs.next()) {
            (Some(a), None, None) => self.run(inputs, [a]),
            (Some(a), Some(b), None) => self.run(inputs, [a, b]),
            (Some(a), Some(b), Some(c)) => self.run(inputs, [a, b, c]),
            _ => {}
        }
    }

    /// Slices of all inputs and outputs have the same length.
    fn run<const N: usize>(self, inputs: &[Input<'_>], mut outputs: [&mut [u8]; N]) {
        let length = outputs.first().map_or(0, |output| output.len());
        assert!(
            outputs.iter().all(|output| output.len() == length)
                && inputs.iter().all(|input| input.bytes.len() == length)
        );
        let done = match self {
            Self::Scalar => 0,
            // SAFETY: `variant()` and the tests only choose a variant whose processor features are present,
            // and all slices have `length` bytes.
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => unsafe { x86::avx2(inputs, &mut outputs, length) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            Self::Gfni256 => unsafe { x86::gfni256(inputs, &mut outputs, length) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            Self::Gfni512 => unsafe { x86::gfni512(inputs, &mut outputs, length) },
        };
        scalar(inputs, &mut outputs, done);
    }
}

fn variant() -> Variant {
    static CHOSEN: std::sync::OnceLock<Variant> = std::sync::OnceLock::new();
    *CHOSEN.get_or_init(|| {
        Variant::ALL.iter().copied().find(|variant| variant.available()).unwrap_or(Variant::Scalar)
    })
}

fn scalar(inputs: &[Input<'_>], outputs: &mut [&mut [u8]], from: usize) {
    for (index, output) in outputs.iter_mut().enumerate() {
        let output = &mut output[from..];
        output.fill(0);
        for input in inputs {
            let bytes = &input.bytes[from..];
            match input.weights[index] {
                0 => {}
                1 => output.iter_mut().zip(bytes).for_each(|(sum, byte)| *sum ^= byte),
                weight => {
                    let products = &NIBBLE_PRODUCTS[usize::from(weight)];
                    for (sum, byte) in output.iter_mut().zip(bytes) {
                        *sum ^= products[usize::from(byte & 15)] ^ products[16 + usize::from(byte >> 4)];
                    }
                }
            }
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::super::field::{MATRICES, NIBBLE_PRODUCTS};
    use super::Input;
    use std::arch::x86_64::*;

    /// A vector of bytes with the field's operations. The methods are unsafe because the processor must have
    /// the features of the implementation.
    trait Lanes: Copy {
        const BYTES: usize;
        /// A weight, prepared for `add_product`.
        type Weight: Copy;
        unsafe fn zero() -> Self;
        unsafe fn load(from: *const u8) -> Self;
        unsafe fn store(self, to: *mut u8);
        unsafe fn add(self, other: Self) -> Self;
        unsafe fn weight(weight: u8) -> Self::Weight;
        unsafe fn times(self, weight: Self::Weight) -> Self;
    }

    #[derive(Clone, Copy)]
    struct Nibbles(__m256i);

    impl Lanes for Nibbles {
        const BYTES: usize = 32;
        type Weight = (__m256i, __m256i);

        #[inline(always)]
        unsafe fn zero() -> Self {
            // SAFETY: the caller vouches for AVX2.
            unsafe { Self(_mm256_setzero_si256()) }
        }
        #[inline(always)]
        unsafe fn load(from: *const u8) -> Self {
            // SAFETY: the caller vouches for AVX2 and 32 readable bytes.
            unsafe { Self(_mm256_loadu_si256(from.cast())) }
        }
        #[inline(always)]
        unsafe fn store(self, to: *mut u8) {
            // SAFETY: the caller vouches for AVX2 and 32 writable bytes.
            unsafe { _mm256_storeu_si256(to.cast(), self.0) }
        }
        #[inline(always)]
        unsafe fn add(self, other: Self) -> Self {
            // SAFETY: the caller vouches for AVX2.
            unsafe { Self(_mm256_xor_si256(self.0, other.0)) }
        }
        #[inline(always)]
        unsafe fn weight(weight: u8) -> Self::Weight {
            let products = &NIBBLE_PRODUCTS[usize::from(weight)];
            // SAFETY: the caller vouches for AVX2; the table has 32 bytes.
            unsafe {
                let low = _mm_loadu_si128(products.as_ptr().cast());
                let high = _mm_loadu_si128(products.as_ptr().add(16).cast());
                (_mm256_broadcastsi128_si256(low), _mm256_broadcastsi128_si256(high))
            }
        }
        #[inline(always)]
        unsafe fn times(self, (low, high): Self::Weight) -> Self {
            // SAFETY: the caller vouches for AVX2.
            unsafe {
                let nibble = _mm256_set1_epi8(15);
                let low = _mm256_shuffle_epi8(low, _mm256_and_si256(self.0, nibble));
                let high =
                    _mm256_shuffle_epi8(high, _mm256_and_si256(_mm256_srli_epi64::<4>(self.0), nibble));
                Self(_mm256_xor_si256(low, high))
            }
        }
    }

    #[derive(Clone, Copy)]
    struct Matrix256(__m256i);

    impl Lanes for Matrix256 {
        const BYTES: usize = 32;
        type Weight = __m256i;

        #[inline(always)]
        unsafe fn zero() -> Self {
            // SAFETY: the caller vouches for AVX2.
            unsafe { Self(_mm256_setzero_si256()) }
        }
        #[inline(always)]
        unsafe fn load(from: *const u8) -> Self {
            // SAFETY: the caller vouches for AVX2 and 32 readable bytes.
            unsafe { Self(_mm256_loadu_si256(from.cast())) }
        }
        #[inline(always)]
        unsafe fn store(self, to: *mut u8) {
            // SAFETY: the caller vouches for AVX2 and 32 writable bytes.
            unsafe { _mm256_storeu_si256(to.cast(), self.0) }
        }
        #[inline(always)]
        unsafe fn add(self, other: Self) -> Self {
            // SAFETY: the caller vouches for AVX2.
            unsafe { Self(_mm256_xor_si256(self.0, other.0)) }
        }
        #[inline(always)]
        unsafe fn weight(weight: u8) -> Self::Weight {
            // SAFETY: the caller vouches for AVX2.
            unsafe { _mm256_set1_epi64x(MATRICES[usize::from(weight)].cast_signed()) }
        }
        #[inline(always)]
        unsafe fn times(self, matrix: Self::Weight) -> Self {
            // SAFETY: the caller vouches for AVX2 and GFNI.
            unsafe { Self(_mm256_gf2p8affine_epi64_epi8::<0>(self.0, matrix)) }
        }
    }

    #[derive(Clone, Copy)]
    struct Matrix512(__m512i);

    impl Lanes for Matrix512 {
        const BYTES: usize = 64;
        type Weight = __m512i;

        #[inline(always)]
        unsafe fn zero() -> Self {
            // SAFETY: the caller vouches for AVX-512.
            unsafe { Self(_mm512_setzero_si512()) }
        }
        #[inline(always)]
        unsafe fn load(from: *const u8) -> Self {
            // SAFETY: the caller vouches for AVX-512 and 64 readable bytes.
            unsafe { Self(_mm512_loadu_si512(from.cast())) }
        }
        #[inline(always)]
        unsafe fn store(self, to: *mut u8) {
            // SAFETY: the caller vouches for AVX-512 and 64 writable bytes.
            unsafe { _mm512_storeu_si512(to.cast(), self.0) }
        }
        #[inline(always)]
        unsafe fn add(self, other: Self) -> Self {
            // SAFETY: the caller vouches for AVX-512.
            unsafe { Self(_mm512_xor_si512(self.0, other.0)) }
        }
        #[inline(always)]
        unsafe fn weight(weight: u8) -> Self::Weight {
            // SAFETY: the caller vouches for AVX-512.
            unsafe { _mm512_set1_epi64(MATRICES[usize::from(weight)].cast_signed()) }
        }
        #[inline(always)]
        unsafe fn times(self, matrix: Self::Weight) -> Self {
            // SAFETY: the caller vouches for AVX-512 and GFNI.
            unsafe { Self(_mm512_gf2p8affine_epi64_epi8::<0>(self.0, matrix)) }
        }
    }

    /// How many vectors of each output a tile has.
    const TILE: usize = 4;

    /// Computes all whole tiles and returns how many bytes that is.
    ///
    /// # Safety
    /// The processor has what `L` needs, and every slice has `length` bytes.
    #[inline(always)]
    unsafe fn whole_tiles<L: Lanes, const N: usize, const FIRST_IS_PLAIN_SUM: bool>(
        inputs: &[Input<'_>],
        outputs: &mut [&mut [u8]; N],
        length: usize,
    ) -> usize {
        let tile_bytes = TILE * L::BYTES;
        let end = length - length % tile_bytes;
        for start in (0..end).step_by(tile_bytes) {
            // SAFETY: `start + tile_bytes <= length`, the length of every slice; the caller vouches for the
            // features.
            unsafe {
                let mut sums = [[L::zero(); TILE]; N];
                for input in inputs {
                    let from = input.bytes.as_ptr().add(start);
                    let mut tile = [L::zero(); TILE];
                    for (part, vector) in tile.iter_mut().enumerate() {
                        *vector = L::load(from.add(part * L::BYTES));
                    }
                    for output in 0..N {
                        if output == 0 && FIRST_IS_PLAIN_SUM {
                            for part in 0..TILE {
                                sums[0][part] = sums[0][part].add(tile[part]);
                            }
                        } else {
                            let weight = L::weight(input.weights[output]);
                            for part in 0..TILE {
                                sums[output][part] = sums[output][part].add(tile[part].times(weight));
                            }
                        }
                    }
                }
                for (output, sums) in outputs.iter_mut().zip(sums) {
                    let to = output.as_mut_ptr().add(start);
                    for (part, sum) in sums.into_iter().enumerate() {
                        sum.store(to.add(part * L::BYTES));
                    }
                }
            }
        }
        end
    }

    #[inline(always)]
    unsafe fn dispatch<L: Lanes, const N: usize>(
        inputs: &[Input<'_>],
        outputs: &mut [&mut [u8]; N],
        length: usize,
    ) -> usize {
        // SAFETY: passed on from the caller.
        unsafe {
            if inputs.iter().all(|input| input.weights[0] == 1) {
                whole_tiles::<L, N, true>(inputs, outputs, length)
            } else {
                whole_tiles::<L, N, false>(inputs, outputs, length)
            }
        }
    }

    /// # Safety
    /// The processor has AVX2, and every slice has `length` bytes.
    #[target_feature(enable = "avx2")]
    pub(super) unsafe fn avx2<const N: usize>(
        inputs: &[Input<'_>],
        outputs: &mut [&mut [u8]; N],
        length: usize,
    ) -> usize {
        // SAFETY: passed on from the caller.
        unsafe { dispatch::<Nibbles, N>(inputs, outputs, length) }
    }

    /// # Safety
    /// The processor has AVX2 and GFNI, and every slice has `length` bytes.
    #[target_feature(enable = "avx2,gfni")]
    pub(super) unsafe fn gfni256<const N: usize>(
        inputs: &[Input<'_>],
        outputs: &mut [&mut [u8]; N],
        length: usize,
    ) -> usize {
        // SAFETY: passed on from the caller.
        unsafe { dispatch::<Matrix256, N>(inputs, outputs, length) }
    }

    /// # Safety
    /// The processor has AVX-512 F and BW and GFNI, and every slice has `length` bytes.
    #[target_feature(enable = "avx512f,avx512bw,gfni")]
    pub(super) unsafe fn gfni512<const N: usize>(
        inputs: &[Input<'_>],
        outputs: &mut [&mut [u8]; N],
        length: usize,
    ) -> usize {
        // SAFETY: passed on from the caller.
        unsafe { dispatch::<Matrix512, N>(inputs, outputs, length) }
    }
}

#[cfg(test)]
mod tests {
    use super::super::field::product;
    use super::*;
    use proptest::prelude::*;

    fn expected(inputs: &[(Vec<u8>, [u8; 3])], output: usize, length: usize) -> Vec<u8> {
        let byte = |bytes: &Vec<u8>, at: usize| bytes.get(at).copied().unwrap_or(0);
        (0..length)
            .map(|at| {
                inputs.iter().fold(0, |sum, (bytes, weights)| sum ^ product(weights[output], byte(bytes, at)))
            })
            .collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn all_variants_equal_the_definition(
            inputs in proptest::collection::vec((proptest::collection::vec(any::<u8>(), 0..900), any::<[u8; 3]>()), 0..7),
            lengths in proptest::collection::vec(0usize..900, 1..=3),
            plain_sum: bool,
        ) {
            let mut inputs = inputs;
            if plain_sum {
                inputs.iter_mut().for_each(|(_, weights)| weights[0] = 1);
            }
            let borrowed: Vec<Input<'_>> = inputs.iter().map(|(bytes, weights)| Input { bytes, weights: *weights }).collect();
            for &variant in Variant::ALL.iter().filter(|variant| variant.available()) {
                let mut outputs: Vec<Vec<u8>> = lengths.iter().map(|&length| vec![0xa5; length]).collect();
                combine_with(variant, &borrowed, &mut outputs.iter_mut().map(|output| &mut output[..]).collect::<Vec<_>>());
                for (index, output) in outputs.iter().enumerate() {
                    prop_assert_eq!(output, &expected(&inputs, index, output.len()), "{:?}", variant);
                }
            }
        }
    }
}
