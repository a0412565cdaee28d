//! From verified bytes to the block: authentication, decryption, decompression.
//!
//! Encrypted bytes are first decrypted and then decompressed. An indirect block of an encrypted dataset is
//! authenticated after decompression, by a hash over the MACs in its pointers, which needs no key.

use codec::compress::decompress;
use codec::crypt::{DatasetKey, decrypt_block, verify_indirect_mac};
use device::IoBuf;
use ondisk::blkptr::{Blkptr, CompressType, Embedded, EmbeddedType, Protection};

use crate::Bookmark;
use crate::cache::Block;
use crate::error::{Error, Result};

/// Decodes `bytes`, whose checksum is right, to the block's logical size. Without a key, blocks that need one
/// for authentication are not authenticated, and encrypted bytes stay encrypted.
pub(crate) fn decode(bp: &Blkptr, at: &Bookmark, bytes: IoBuf, key: Option<&DatasetKey>) -> Result<Block> {
    decode_keeping(bp, at, bytes, key).map(|(block, _)| block)
}

/// Like [`decode`]; also returns the bytes of a compressed block. They are as they were if there is no key.
pub(crate) fn decode_keeping(
    bp: &Blkptr,
    at: &Bookmark,
    mut bytes: IoBuf,
    key: Option<&DatasetKey>,
) -> Result<(Block, Option<IoBuf>)> {
    let refused = |error: codec::crypt::Error| match error {
        codec::crypt::Error::Authentication => Error::Authentication { at: *at },
        other => Error::corrupt(at.to_string(), other),
    };
    if let Some(key) = key {
        decrypt_block(key, bp, &mut bytes).map_err(refused)?;
    }
    // Parsing bounds the size.
    let lsize = bp.lsize().get() as usize;
    let (block, kept) = if bp.compress() == CompressType::Off && bytes.len() >= lsize {
        bytes.truncate(lsize);
        (Block::from(bytes), None)
    } else {
        (decompressed(bp.compress(), at, &bytes, lsize)?, Some(bytes))
    };
    if bp.protection() == Protection::IndirectMac {
        verify_indirect_mac(bp, &block).map_err(refused)?;
    }
    Ok((block, kept))
}

/// The block that an embedded pointer contains.
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
