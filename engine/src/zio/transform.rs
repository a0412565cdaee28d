//! From verified bytes to the block: authentication, decryption, decompression.

use codec::compress::decompress;
use device::IoBuf;
use ondisk::blkptr::{Blkptr, CompressType, Embedded, EmbeddedType};

use super::Bookmark;
use crate::cache::Block;
use crate::error::{Error, Result};

/// Decodes `bytes`, which have the right checksum, to the block's logical size.
pub(crate) fn decode(bp: &Blkptr, at: &Bookmark, mut bytes: IoBuf) -> Result<Block> {
    // Bounded by parsing.
    let lsize = bp.lsize().get() as usize;
    if bp.compress() == CompressType::Off && bytes.len() >= lsize {
        bytes.truncate(lsize);
        return Ok(Block::from(bytes));
    }
    decompressed(bp.compress(), at, &bytes, lsize)
}

/// The block that an embedded pointer carries in itself.
pub(crate) fn decode_embedded(embedded: &Embedded, at: &Bookmark) -> Result<Block> {
    let lsize = embedded.lsize.get() as usize;
    match embedded.kind {
        EmbeddedType::Data if embedded.compress == CompressType::Off => {
            let mut block = IoBuf::zeroed(lsize);
            let length = embedded.bytes().len().min(lsize);
            block[..length].copy_from_slice(&embedded.bytes()[..length]);
            Ok(Block::from(block))
        }
        EmbeddedType::Data => decompressed(embedded.compress, at, embedded.bytes(), lsize),
        EmbeddedType::Redacted => Err(Error::Io { at: *at, tried: Vec::new() }),
        EmbeddedType::Reserved => Err(Error::corrupt(at.to_string(), "embedded data of a reserved kind")),
    }
}

fn decompressed(compress: CompressType, at: &Bookmark, bytes: &[u8], lsize: usize) -> Result<Block> {
    let mut block = IoBuf::for_overwrite(lsize);
    match decompress(compress, bytes, &mut block) {
        Ok(()) => Ok(Block::from(block)),
        Err(error) => Err(Error::corrupt(at.to_string(), error)),
    }
}
