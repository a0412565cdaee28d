//! gzip: despite the name a zlib stream (RFC 1950), at the level that the type names.

use crate::{Error, Result};
use libdeflater::{CompressionLvl, Compressor, Decompressor};
use std::cell::RefCell;

pub(super) fn decompress(src: &[u8], dst: &mut [u8]) -> Result<()> {
    thread_local!(static DECODER: RefCell<Decompressor> = RefCell::new(Decompressor::new()));
    let corrupt = |detail| Error::Corrupt { algorithm: "gzip", detail };
    match DECODER.with_borrow_mut(|decoder| decoder.zlib_decompress(src, dst)) {
        Ok(len) if len == dst.len() => Ok(()),
        Ok(_) => Err(corrupt("the stream ends too early")),
        Err(libdeflater::DecompressionError::BadData) => Err(corrupt("bad zlib stream")),
        Err(libdeflater::DecompressionError::InsufficientSpace) => {
            Err(corrupt("the stream is longer than the block"))
        }
    }
}

pub(super) fn compress(level: i32, src: &[u8], dst: &mut [u8]) -> Option<usize> {
    // An encoder belongs to one level. Blocks of one thread seldom mix levels, so one is kept.
    thread_local!(static ENCODER: RefCell<Option<(i32, Compressor)>> = const { RefCell::new(None) });
    ENCODER.with_borrow_mut(|encoder| {
        if encoder.as_ref().is_none_or(|(made_for, _)| *made_for != level) {
            *encoder = Some((level, Compressor::new(CompressionLvl::new(level).ok()?)));
        }
        let (_, encoder) = encoder.as_mut()?;
        encoder.zlib_compress(src, dst).ok()
    })
}
