//! The vector steps of fletcher4 in AVX2 and AVX-512.
//!
//! They are written with intrinsics because the compiler, left to itself, turns the same loop into anything
//! between the best and scalar code, depending on its surroundings. AVX2 has sixteen registers, so eight sums
//! of four lanes.

#![allow(unsafe_code, reason = "vector instructions")]

use super::Lanes;
use ondisk::ByteOrder;
use std::arch::x86_64::*;

/// A byte shuffle that swaps the bytes of each 32-bit word.
const SWAP_WORDS: [i8; 16] = [3, 2, 1, 0, 7, 6, 5, 4, 11, 10, 9, 8, 15, 14, 13, 12];

#[target_feature(enable = "avx2")]
pub(super) fn cascade_avx2(body: &[u8], order: ByteOrder) -> Lanes<4> {
    match order {
        ByteOrder::Little => avx2::<false>(body),
        ByteOrder::Big => avx2::<true>(body),
    }
}

#[target_feature(enable = "avx512f,avx512bw")]
pub(super) fn cascade_avx512(body: &[u8], order: ByteOrder) -> Lanes<8> {
    match order {
        ByteOrder::Little => avx512::<false>(body),
        ByteOrder::Big => avx512::<true>(body),
    }
}

#[target_feature(enable = "avx2")]
fn avx2<const SWAP: bool>(body: &[u8]) -> Lanes<4> {
    // SAFETY: the array has the 16 bytes that are read.
    let swap = _mm256_broadcastsi128_si256(unsafe { _mm_loadu_si128(SWAP_WORDS.as_ptr().cast()) });
    let mut whole = [_mm256_setzero_si256(); 4];
    let mut high = [_mm256_setzero_si256(); 4];
    for step in body.as_chunks::<32>().0 {
        // SAFETY: the step has the 32 bytes that are read; no alignment is asked.
        let mut pairs = unsafe { _mm256_loadu_si256(step.as_ptr().cast()) };
        if SWAP {
            pairs = _mm256_shuffle_epi8(pairs, swap);
        }
        whole[0] = _mm256_add_epi64(whole[0], pairs);
        high[0] = _mm256_add_epi64(high[0], _mm256_srli_epi64(pairs, 32));
        for t in 1..4 {
            whole[t] = _mm256_add_epi64(whole[t], whole[t - 1]);
            high[t] = _mm256_add_epi64(high[t], high[t - 1]);
        }
    }
    let mut lanes = Lanes { whole: [[0; 4]; 4], high: [[0; 4]; 4] };
    for t in 0..4 {
        // SAFETY: each array has the 32 bytes that are written.
        unsafe {
            _mm256_storeu_si256(lanes.whole[t].as_mut_ptr().cast(), whole[t]);
            _mm256_storeu_si256(lanes.high[t].as_mut_ptr().cast(), high[t]);
        }
    }
    lanes
}

#[target_feature(enable = "avx512f,avx512bw")]
fn avx512<const SWAP: bool>(body: &[u8]) -> Lanes<8> {
    // SAFETY: the array has the 16 bytes that are read.
    let swap = _mm512_broadcast_i32x4(unsafe { _mm_loadu_si128(SWAP_WORDS.as_ptr().cast()) });
    let mut whole = [_mm512_setzero_si512(); 4];
    let mut high = [_mm512_setzero_si512(); 4];
    for step in body.as_chunks::<64>().0 {
        // SAFETY: the step has the 64 bytes that are read; no alignment is asked.
        let mut pairs = unsafe { _mm512_loadu_si512(step.as_ptr().cast()) };
        if SWAP {
            pairs = _mm512_shuffle_epi8(pairs, swap);
        }
        whole[0] = _mm512_add_epi64(whole[0], pairs);
        high[0] = _mm512_add_epi64(high[0], _mm512_srli_epi64(pairs, 32));
        for t in 1..4 {
            whole[t] = _mm512_add_epi64(whole[t], whole[t - 1]);
            high[t] = _mm512_add_epi64(high[t], high[t - 1]);
        }
    }
    let mut lanes = Lanes { whole: [[0; 8]; 4], high: [[0; 8]; 4] };
    for t in 0..4 {
        // SAFETY: each array has the 64 bytes that are written.
        unsafe {
            _mm512_storeu_si512(lanes.whole[t].as_mut_ptr().cast(), whole[t]);
            _mm512_storeu_si512(lanes.high[t].as_mut_ptr().cast(), high[t]);
        }
    }
    lanes
}
