//! lz4: one LZ4 block after its length (4 bytes, big-endian).
//!
//! The LZ4 block format is fixed, the encoder's choices are free: any decoder reads any encoder's block.

mod decode;

use super::length_prefixed;
use crate::{Error, Result};
use lz4_flex::block::{CompressTable, compress_into_with_table, get_maximum_output_size};
use std::cell::RefCell;

const LENGTH_BYTES: usize = 4;

pub(super) fn decompress(src: &[u8], dst: &mut [u8]) -> Result<()> {
    let payload = length_prefixed("lz4", src, LENGTH_BYTES)?;
    match decode::decode(payload, dst) {
        Some(len) if len == dst.len() => Ok(()),
        Some(_) => Err(Error::Corrupt { algorithm: "lz4", detail: "the block ends too early" }),
        None => Err(Error::Corrupt { algorithm: "lz4", detail: "bad LZ4 block" }),
    }
}

pub(super) fn compress(src: &[u8], dst: &mut [u8]) -> Option<usize> {
    /// The encoder wants room for the worst case, which `dst` mostly has not.
    #[derive(Default)]
    struct Scratch {
        table: Option<CompressTable>,
        output: Vec<u8>,
    }
    thread_local!(static SCRATCH: RefCell<Scratch> = RefCell::default());
    SCRATCH.with_borrow_mut(|Scratch { table, output }| {
        let worst = get_maximum_output_size(src.len());
        if output.len() < worst {
            output.resize(worst, 0);
        }
        let table = table.get_or_insert_with(CompressTable::default);
        let len = compress_into_with_table(src, output, table).ok()?;
        let place = dst.get_mut(..LENGTH_BYTES + len)?;
        place[..LENGTH_BYTES].copy_from_slice(&u32::try_from(len).ok()?.to_be_bytes());
        place[LENGTH_BYTES..].copy_from_slice(&output[..len]);
        Some(LENGTH_BYTES + len)
    })
}
