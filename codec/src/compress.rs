//! Block compression: which algorithm, and how its bytes stand in a block.
//!
//! | type | bytes on disk | level |
//! |---|---|---|
//! | off | the data | |
//! | lzjb | tokens up to the logical size; no length of its own | |
//! | zle | runs of zeros and literals, `n = 64` | |
//! | gzip-1 … gzip-9 | a zlib stream (RFC 1950), checksum included | by type |
//! | lz4 | payload length (4 bytes, big-endian), one LZ4 block | |
//! | zstd | payload length and version/level (4 bytes each, big-endian), one frame without magic | `level` |
//!
//! Blocks are stored in whole sectors, so the source of a decoder may be followed by padding that is no part
//! of it. A decoder fills its destination, which is the logical size, exactly: too much and too little are
//! both errors.
//!
//! **Bit compatibility.** All decoders read what OpenZFS writes and the other way round. lzjb and zle also
//! write what OpenZFS writes, byte for byte. gzip, lz4 and zstd may choose other matches than OpenZFS's own
//! (other) versions of these libraries, so the same data can give different bytes and a slightly different
//! size; only `nopwrite` and dedup across implementations could notice, and they compare by checksum.
//!
//! Whether compression saves enough to be used (an eighth of the block) is the caller's policy: the bound is
//! the length of the destination of [`compress`].
//!
//! Source: OpenZFS 2.3 `zio_compress.c`, `lzjb.c`, `zle.c`, `gzip.c`, `lz4_zfs.c`, `zfs_zstd.c`.

mod gzip;
mod lz4;
mod lzjb;
mod zle;
mod zstd;

use crate::{Error, Result};
use ondisk::blkptr::CompressType;

pub use lz4::POINTER_GROWTH;
pub use zstd::{ZSTD_LEVEL_DEFAULT, ZstdHeader, zstd_header, zstd_level, zstd_level_code};

/// Decodes `src`, which may be followed by padding, into the whole of `dst`.
///
/// On an error the content of `dst` is not defined.
pub fn decompress(ty: CompressType, src: &[u8], dst: &mut [u8]) -> Result<()> {
    match ty {
        CompressType::Off => match src.get(..dst.len()) {
            Some(src) => {
                dst.copy_from_slice(src);
                Ok(())
            }
            None => Err(Error::TooShort {
                what: "uncompressed block",
                needed: dst.len() as u64,
                available: src.len() as u64,
            }),
        },
        CompressType::Lzjb => lzjb::decompress(src, dst),
        CompressType::Zle => zle::decompress(src, dst),
        CompressType::Lz4 => lz4::decompress(src, dst),
        CompressType::Zstd => zstd::decompress(src, dst),
        CompressType::Gzip1
        | CompressType::Gzip2
        | CompressType::Gzip3
        | CompressType::Gzip4
        | CompressType::Gzip5
        | CompressType::Gzip6
        | CompressType::Gzip7
        | CompressType::Gzip8
        | CompressType::Gzip9 => gzip::decompress(src, dst),
        CompressType::Inherit | CompressType::On | CompressType::Empty => Err(Error::NotACompression(ty)),
    }
}

/// Encodes `src` into `dst` and gives the number of bytes, or `None` when they would be more than `dst`
/// holds.
///
/// `level` is the level code of a zstd block ([`zstd_level_code`], or 255 for the default), ignored by all
/// others.
pub fn compress(ty: CompressType, level: u8, src: &[u8], dst: &mut [u8]) -> Option<usize> {
    match ty {
        CompressType::Lzjb => lzjb::compress(src, dst),
        CompressType::Zle => zle::compress(src, dst),
        CompressType::Lz4 => lz4::compress(src, dst),
        CompressType::Zstd => zstd::compress(level, src, dst),
        CompressType::Gzip1 => gzip::compress(1, src, dst),
        CompressType::Gzip2 => gzip::compress(2, src, dst),
        CompressType::Gzip3 => gzip::compress(3, src, dst),
        CompressType::Gzip4 => gzip::compress(4, src, dst),
        CompressType::Gzip5 => gzip::compress(5, src, dst),
        CompressType::Gzip6 => gzip::compress(6, src, dst),
        CompressType::Gzip7 => gzip::compress(7, src, dst),
        CompressType::Gzip8 => gzip::compress(8, src, dst),
        CompressType::Gzip9 => gzip::compress(9, src, dst),
        CompressType::Off | CompressType::Inherit | CompressType::On | CompressType::Empty => None,
    }
}

/// Encodes an indirect block as lz4 into `dst`: like [`compress`], faster, and with a bound for how much it
/// grows when pointers change ([`POINTER_GROWTH`]). The number of bytes, or `None` when they are more than
/// `dst` holds.
pub fn compress_pointers(src: &[u8], dst: &mut [u8]) -> Option<usize> {
    lz4::compress_pointers(src, dst)
}

/// The payload after a 4-byte big-endian length, as lz4 and zstd blocks begin; padding is cut off.
fn length_prefixed<'a>(algorithm: &'static str, src: &'a [u8], header_bytes: usize) -> Result<&'a [u8]> {
    let payload = src.split_first_chunk::<4>().and_then(|(length, _)| {
        let length = usize::try_from(u32::from_be_bytes(*length)).ok()?;
        src.get(header_bytes..header_bytes.checked_add(length)?)
    });
    payload.ok_or(Error::Corrupt { algorithm, detail: "the stated length is more than the block holds" })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// All types that encode, each with a level code.
    fn algorithms() -> impl Iterator<Item = (CompressType, u8)> {
        let zstd_codes = (0..=u8::MAX).filter(|code| zstd_level(*code).is_some());
        let plain = CompressType::ALL.iter().copied().filter(|ty| {
            !matches!(
                ty,
                CompressType::Inherit
                    | CompressType::On
                    | CompressType::Off
                    | CompressType::Empty
                    | CompressType::Zstd
            )
        });
        plain.map(|ty| (ty, 0)).chain(zstd_codes.map(|code| (CompressType::Zstd, code)))
    }

    /// Text-like, with runs of zeros and some noise: every algorithm saves something on it.
    fn sample(len: usize) -> Vec<u8> {
        let mut state = 1u64;
        let mut data = Vec::with_capacity(len + 64);
        while data.len() < len {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            match state >> 62 {
                0 => data.extend_from_slice(&[0; 70]),
                1 => data.extend_from_slice(&state.to_le_bytes()),
                _ => data.extend_from_slice(format!("record {} of the log\n", state >> 56).as_bytes()),
            }
        }
        data.truncate(len);
        data
    }

    #[test]
    fn every_algorithm_and_level_returns_what_went_in_and_ignores_padding() {
        for len in [512, 4096, 40_000] {
            let data = sample(len);
            for (ty, level) in algorithms() {
                let mut block = vec![0; 2 * len];
                let used =
                    compress(ty, level, &data, &mut block).unwrap_or_else(|| panic!("{ty} {level} {len}"));
                // The fastest levels of zstd find nothing in a little data.
                assert!(used < len || ty == CompressType::Zstd, "{ty} {level} {len}");
                for padded in [used, used.next_multiple_of(512)] {
                    let mut out = vec![0xee; len];
                    decompress(ty, &block[..padded], &mut out)
                        .unwrap_or_else(|e| panic!("{ty} {level}: {e}"));
                    assert!(out == data, "{ty} {level} {len}");
                }
            }
        }
    }

    #[test]
    fn a_result_over_the_bound_is_none() {
        let data = sample(4096);
        for (ty, level) in algorithms() {
            for bound in [0, 1, 4, 7, 8, 9, 16, 17, 18, 40] {
                assert_eq!(compress(ty, level, &data, &mut vec![0; bound]), None, "{ty} {level} {bound}");
            }
        }
    }

    #[test]
    fn a_wrong_logical_size_is_an_error() {
        let data = sample(4096);
        for (ty, level) in algorithms() {
            let mut block = vec![0; 8192];
            let used = compress(ty, level, &data, &mut block).unwrap();
            assert!(decompress(ty, &block[..used], &mut vec![0; 8192]).is_err(), "{ty} {level} longer");
            // lzjb does not know its length, and zle finds its end where a run ends.
            if !matches!(ty, CompressType::Lzjb | CompressType::Zle) {
                assert!(decompress(ty, &block[..used], &mut vec![0; 2048]).is_err(), "{ty} {level} shorter");
            }
        }
    }

    #[test]
    fn values_that_name_no_algorithm_are_refused() {
        for ty in [CompressType::Inherit, CompressType::On, CompressType::Empty] {
            assert_eq!(decompress(ty, &[0; 512], &mut [0; 512]), Err(Error::NotACompression(ty)));
        }
    }

    #[test]
    fn off_copies_and_ignores_padding() {
        let mut out = [0; 3];
        decompress(CompressType::Off, b"abcd", &mut out).unwrap();
        assert_eq!(&out, b"abc");
        assert!(decompress(CompressType::Off, b"ab", &mut out).is_err());
    }

    proptest! {
        #[test]
        fn any_bytes_survive_a_round_trip(data in prop::collection::vec(prop_oneof![Just(0u8), any::<u8>(), 97u8..101], 1..3000)) {
            for (ty, level) in algorithms() {
                // Room for data that only grows.
                let mut block = vec![0; data.len() * 2 + 600];
                let used = compress(ty, level, &data, &mut block);
                prop_assert!(used.is_some(), "{} {}", ty, level);
                let mut out = vec![0; data.len()];
                prop_assert_eq!(decompress(ty, &block, &mut out), Ok(()), "{} {}", ty, level);
                prop_assert_eq!(&out, &data, "{} {}", ty, level);
            }
        }

        #[test]
        fn damaged_blocks_never_panic(
            len in 512usize..5000, at in any::<prop::sample::Index>(), bits in 1u8.., cut in any::<prop::sample::Index>(),
        ) {
            let data = sample(len);
            for (ty, level) in algorithms() {
                let mut block = vec![0; len];
                let used = compress(ty, level, &data, &mut block).unwrap_or(len);
                block[at.index(used)] ^= bits;
                let _ = decompress(ty, &block[..used], &mut vec![0; len]);
                let _ = decompress(ty, &block[..cut.index(used)], &mut vec![0; len]);
            }
        }
    }
}
