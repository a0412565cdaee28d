//! zle: zero-length encoding. It removes runs of zeros and nothing else.
//!
//! An item begins with a byte `b`. Under 64, `b + 1` literal bytes follow; otherwise it stands for `b - 63`
//! zeros. A literal run ends before two zeros in a row. The stream ends when the logical size is reached.

use crate::{Error, Result};

/// Literal runs have at most this many bytes; OpenZFS calls it the level and uses this value only.
const LITERALS: usize = 64;
/// Zero runs have at most this many bytes.
const ZEROS: usize = 256 - LITERALS;

pub(super) fn decompress(src: &[u8], dst: &mut [u8]) -> Result<()> {
    const LONG: Error = Error::Corrupt { algorithm: "zle", detail: "a run is longer than the block" };
    const ENDED: Error = Error::Corrupt { algorithm: "zle", detail: "the input ends too early" };
    let mut src = src;
    let mut dst = dst;
    while !dst.is_empty() {
        let (head, rest) = src.split_first().ok_or(ENDED)?;
        let run = usize::from(*head) + 1;
        if run <= LITERALS {
            let (literals, rest) = rest.split_at_checked(run).ok_or(ENDED)?;
            let (place, after) = dst.split_at_mut_checked(run).ok_or(LONG)?;
            place.copy_from_slice(literals);
            (src, dst) = (rest, after);
        } else {
            let (place, after) = dst.split_at_mut_checked(run - LITERALS).ok_or(LONG)?;
            place.fill(0);
            (src, dst) = (rest, after);
        }
    }
    Ok(())
}

pub(super) fn compress(src: &[u8], dst: &mut [u8]) -> Option<usize> {
    let mut from = 0;
    let mut to = 0;
    while from < src.len() {
        // OpenZFS leaves the last byte of the bound unused, and wants room for the longest run before a
        // literal one.
        if to + 1 >= dst.len() {
            return None;
        }
        let ahead = &src[from..];
        if ahead[0] == 0 {
            let run = ahead.iter().take(ZEROS).take_while(|byte| **byte == 0).count();
            dst[to] = (run - 1 + LITERALS) as u8;
            to += 1;
            from += run;
        } else {
            if dst.len() - (to + 1) < LITERALS {
                return None;
            }
            let run = literal_run(ahead);
            dst[to] = (run - 1) as u8;
            dst[to + 1..to + 1 + run].copy_from_slice(&ahead[..run]);
            to += 1 + run;
            from += run;
        }
    }
    Some(to)
}

/// The length of the literal run at the start of `ahead`, whose first byte is not zero.
fn literal_run(ahead: &[u8]) -> usize {
    let limit = &ahead[..ahead.len().min(LITERALS)];
    match limit.windows(2).position(|pair| pair == [0, 0]) {
        Some(run) => run,
        // A zero at the limit is left to the next item, which may find more.
        None if limit.ends_with(&[0]) => limit.len() - 1,
        None => limit.len(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn runs_are_cut_at_their_limits() {
        let mut out = [0; 300];
        assert_eq!(compress(&[0; 200], &mut out), Some(2));
        assert_eq!(out[..2], [255, 71]);
        assert_eq!(compress(&[9; 65], &mut out), Some(67));
        assert_eq!((out[0], out[65]), (63, 0));
    }

    #[test]
    fn a_lone_zero_stays_among_literals() {
        let mut out = [0; 100];
        assert_eq!(compress(&[1, 0, 2, 0, 0, 3], &mut out), Some(7));
        assert_eq!(out[..7], [2, 1, 0, 2, 65, 0, 3]);
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
