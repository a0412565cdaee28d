//! zstd: one zstd frame after a header of our own format.
//!
//! | offset | size | name | meaning |
//! |---:|---:|---|---|
//! | 0 | 4 | `c_len` | length of the frame; big-endian |
//! | 4 | 1 | level | code of the level that was asked for |
//! | 5 | 3 | version | of the zstd library; big-endian |
//! | 8 | `c_len` | data | a frame without magic number, checksum and content size |
//!
//! Big-endian machines once wrote the level last, after the version. The top byte of the version is zero
//! (until version 6.55.36), and no valid level is, so the place of the zero tells which it is.
//!
//! Level codes: 1 to 19 are levels 1 to 19; from 103 on they are the fast levels, -1 to -10, then by tens to -100,
//! then -500 and -1000.
//!
//! Source: OpenZFS 2.3 `zstd.h`, `zfs_zstd.c`, `zio_compress.h`.

use super::{length_prefixed, lz4};
use crate::{Error, Result};
use std::cell::RefCell;
use zstd_safe::{CCtx, CParameter, DCtx, DParameter, FrameFormat, ResetDirective};

/// The level code that plain `zstd` stands for.
pub const ZSTD_LEVEL_DEFAULT: u8 = 3;
/// Asks for the default level; never stored in a block.
const ANY_LEVEL: u8 = 255;

const HEADER_BYTES: usize = 8;
const FIRST_FAST_CODE: u8 = 103;
const FAST_LEVELS: [i32; 21] =
    [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 20, 30, 40, 50, 60, 70, 80, 90, 100, 500, 1000];

/// The zstd level (negative: fast) that a level code stands for.
pub fn zstd_level(code: u8) -> Option<i32> {
    match code {
        1..=19 => Some(i32::from(code)),
        _ => {
            let index = usize::from(code.checked_sub(FIRST_FAST_CODE)?);
            FAST_LEVELS.get(index).map(|level| -level)
        }
    }
}

/// The code of a zstd level (negative: fast), where it has one.
pub fn zstd_level_code(level: i32) -> Option<u8> {
    match level {
        1..=19 => u8::try_from(level).ok(),
        _ => {
            let index = FAST_LEVELS.iter().position(|fast| level.checked_neg() == Some(*fast))?;
            Some(FIRST_FAST_CODE + index as u8)
        }
    }
}

/// The contents of the header before a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ZstdHeader {
    /// Bytes of the frame.
    pub frame_bytes: u32,
    /// The version of the library that wrote it, as the library counts (10405: 1.4.5).
    pub version: u32,
    /// The code of the level that was asked for.
    pub level: u8,
}

/// The header of a compressed block, in either of its layouts.
pub fn zstd_header(src: &[u8]) -> Option<ZstdHeader> {
    let (frame_bytes, rest) = src.split_first_chunk::<4>()?;
    let (meta, _) = rest.split_first_chunk::<4>()?;
    let level = stated_level(src)?;
    let [a, b, c, d] = *meta;
    let version = if level == a { [0, b, c, d] } else { [0, a, b, c] };
    Some(ZstdHeader {
        frame_bytes: u32::from_be_bytes(*frame_bytes),
        version: u32::from_be_bytes(version),
        level,
    })
}

pub(super) fn decompress(src: &[u8], dst: &mut [u8]) -> Result<()> {
    thread_local!(static DECODER: RefCell<Option<DCtx<'static>>> = const { RefCell::new(None) });
    let corrupt = |detail| Error::Corrupt { algorithm: "zstd", detail };
    let frame = length_prefixed("zstd", src, HEADER_BYTES)?;
    if stated_level(src).and_then(zstd_level).is_none() {
        return Err(corrupt("the header states no valid level"));
    }
    let result = DECODER.with_borrow_mut(|decoder| {
        let decoder = match decoder {
            Some(decoder) => decoder,
            none => none.insert(magicless_decoder()?),
        };
        decoder.decompress(dst, frame).ok()
    });
    match result {
        Some(len) if len == dst.len() => Ok(()),
        Some(_) => Err(corrupt("the frame ends too early")),
        None => Err(corrupt("bad zstd frame")),
    }
}

fn magicless_decoder() -> Option<DCtx<'static>> {
    let mut decoder = DCtx::try_create()?;
    decoder.set_parameter(DParameter::Format(FrameFormat::Magicless)).ok()?;
    Some(decoder)
}

/// The level code in a block's header, in either of its layouts.
fn stated_level(src: &[u8]) -> Option<u8> {
    let (version_and_level, _) = src.get(4..)?.split_first_chunk::<4>()?;
    match version_and_level.iter().rposition(|byte| *byte == 0)? {
        1 | 3 => Some(version_and_level[0]),
        _ => Some(version_and_level[3]),
    }
}

pub(super) fn compress(code: u8, src: &[u8], dst: &mut [u8]) -> Option<usize> {
    let code = if code == ANY_LEVEL { ZSTD_LEVEL_DEFAULT } else { code };
    let level = zstd_level(code)?;
    if worth_a_try(level, src, dst) { encode(level, code, src, dst) } else { None }
}

/// Data that cannot be compressed is found by cheaper encoders before a slow level is spent on it. As in
/// OpenZFS: lz4 says yes, or zstd-1 has the last word; only at levels 3 and up, and for blocks of 128 KiB and
/// more.
fn worth_a_try(level: i32, src: &[u8], dst: &mut [u8]) -> bool {
    const MIN_LEVEL: i32 = 3;
    const MIN_BYTES: usize = 128 << 10;
    level < MIN_LEVEL
        || src.len() < MIN_BYTES
        || lz4::compress(src, dst).is_some_and(|len| len < dst.len())
        || encode(1, 1, src, dst).is_some()
}

fn encode(level: i32, code: u8, src: &[u8], dst: &mut [u8]) -> Option<usize> {
    thread_local!(static ENCODER: RefCell<Option<CCtx<'static>>> = const { RefCell::new(None) });
    let (header, place) = dst.split_at_mut_checked(HEADER_BYTES)?;
    let len = ENCODER.with_borrow_mut(|encoder| {
        let encoder = match encoder {
            Some(encoder) => encoder,
            none => none.insert(CCtx::try_create()?),
        };
        encoder.reset(ResetDirective::SessionAndParameters).ok()?;
        for parameter in [
            CParameter::CompressionLevel(level),
            CParameter::Format(FrameFormat::Magicless),
            CParameter::ChecksumFlag(false),
            CParameter::ContentSizeFlag(false),
        ] {
            encoder.set_parameter(parameter).ok()?;
        }
        encoder.compress2(place, src).ok()
    })?;
    header[..4].copy_from_slice(&u32::try_from(len).ok()?.to_be_bytes());
    header[4..].copy_from_slice(&zstd_safe::version_number().to_be_bytes());
    header[4] = code;
    Some(HEADER_BYTES + len)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_level_has_one_code() {
        let codes: Vec<u8> = (0..=u8::MAX).filter(|code| zstd_level(*code).is_some()).collect();
        assert_eq!(codes.len(), 19 + FAST_LEVELS.len());
        for code in codes {
            assert_eq!(zstd_level(code).and_then(zstd_level_code), Some(code));
        }
        for level in [0, 20, -11, -1001, i32::MIN] {
            assert_eq!(zstd_level_code(level), None);
        }
    }

    #[test]
    fn the_level_is_found_in_both_layouts_of_the_header() {
        let little = [0, 0, 0, 0, 3, 0x00, 0x28, 0xa5];
        let big = [0, 0, 0, 0, 0x00, 0x28, 0xa5, 3];
        assert_eq!((stated_level(&little), stated_level(&big)), (Some(3), Some(3)));
        let header = Some(ZstdHeader { frame_bytes: 0, version: 10405, level: 3 });
        assert_eq!((zstd_header(&little), zstd_header(&big)), (header, header));
        assert_eq!(stated_level(&[0, 0, 0, 0, 1, 2, 3, 4]), None);
    }

    #[test]
    fn the_header_states_the_level_that_was_asked_for() {
        let mut block = [0; 4096];
        for (asked, stated) in [(7, 7), (112, 112), (ANY_LEVEL, ZSTD_LEVEL_DEFAULT)] {
            compress(asked, &[9; 4096], &mut block).unwrap();
            assert_eq!((block[4], block[5]), (stated, 0));
        }
        assert_eq!(compress(0, &[9; 4096], &mut block), None);
    }

    #[test]
    fn noise_is_given_up_before_the_slow_levels() {
        let mut state = 1u64;
        let noise: Vec<u8> = std::iter::repeat_with(|| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 56) as u8
        })
        .take(128 << 10)
        .collect();
        assert_eq!(compress(19, &noise, &mut vec![0; noise.len() / 8 * 7]), None);
    }
}
