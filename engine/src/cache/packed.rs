//! [`Packed`]: a block in the form that it has in the pool, compressed.
//!
//! # The idea
//! The ARC holds more blocks when it keeps them compressed, and a hit then costs a decompression. The bytes
//! are those that were read and verified, or that were written; so no bytes are compressed again. Blocks of
//! encrypted datasets are kept decrypted, but compressed: a hit then needs no key and no authentication,
//! which the load has done, and the memory shows no more than with decompressed blocks.
//!
//! A block that hardly compresses is kept as it is: its compressed form has to save a quarter of the memory.

use std::sync::Arc;

use codec::compress::decompress;
use device::IoBuf;
use ondisk::blkptr::CompressType;

use super::Block;
use super::candidate::{fitted, is_kept_compressed};

/// The most memory of the compressed form, in quarters of the block's.
const MOST_QUARTERS: usize = 3;

/// A block in its compressed form.
#[derive(Debug)]
pub(crate) struct Packed {
    bytes: Block,
    compress: CompressType,
    /// Logical size.
    lsize: usize,
    /// The memory of the decompressed block.
    plain_memory_bytes: usize,
}

impl Packed {
    /// The compressed form of `block`, if it saves enough memory. `bytes` decompress to the block.
    pub fn of(bytes: &Block, compress: CompressType, block: &Block) -> Option<Arc<Self>> {
        let plain_memory_bytes = block.memory_bytes();
        let most = plain_memory_bytes / 4 * MOST_QUARTERS;
        if compress == CompressType::Off || bytes.is_empty() || bytes.len() > most {
            return None;
        }
        // What was read may be a window onto a larger buffer.
        let bytes = if bytes.has_memory_of_its_size() { bytes.clone() } else { fitted(bytes) };
        let packed = Self { bytes, compress, lsize: block.len(), plain_memory_bytes };
        (packed.memory_bytes() <= most).then(|| Arc::new(packed))
    }

    /// The block; nothing when the bytes cannot be decompressed, as they were damaged in memory.
    pub fn unpack(&self) -> Option<Block> {
        let mut block = IoBuf::for_overwrite(self.lsize);
        match decompress(self.compress, &self.bytes, &mut block) {
            Ok(()) => Some(block.into()),
            Err(error) => {
                tracing::warn!(%error, "a cached block cannot be decompressed; it is read again");
                None
            }
        }
    }

    /// The compressed bytes.
    pub fn bytes(&self) -> &Block {
        &self.bytes
    }

    /// The memory of the compressed bytes.
    pub fn memory_bytes(&self) -> usize {
        self.bytes.memory_bytes()
    }

    /// The memory of the block when it is decompressed.
    pub fn plain_memory_bytes(&self) -> usize {
        self.plain_memory_bytes
    }
}

/// The bytes that a block of these sizes takes in a cache that is short of memory, about.
pub(crate) fn kept_bytes(lsize: u64, psize: u64) -> u64 {
    match is_kept_compressed() && psize <= lsize / 4 * MOST_QUARTERS as u64 {
        true => psize,
        false => lsize,
    }
}

/// A block of so many bytes in both forms, for tests.
#[cfg(test)]
pub(crate) fn sample(lsize: usize, fill: u8) -> (Block, Arc<Packed>) {
    let block = Block::from(IoBuf::from(vec![fill; lsize].as_slice()));
    // Half as large, although the bytes would compress better.
    let mut bytes = IoBuf::zeroed(lsize / 2);
    codec::compress::compress(CompressType::Lz4, 0, &block, &mut bytes).expect("it compresses");
    let packed = Packed::of(&bytes.into(), CompressType::Lz4, &block).expect("it saves half");
    (block, packed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_kept_where_it_saves_a_quarter_and_in_memory_of_its_size() {
        let block = Block::from(IoBuf::zeroed(16384));
        let of = |bytes: IoBuf| Packed::of(&bytes.into(), CompressType::Lz4, &block);
        assert_eq!(of(IoBuf::zeroed(12288)).unwrap().memory_bytes(), 12288);
        assert!(of(IoBuf::zeroed(12800)).is_none(), "it would take 16 KiB");
        let window = IoBuf::zeroed(65536).narrow(4096..4096 + 8192);
        assert_eq!(of(window).unwrap().memory_bytes(), 8192);
        assert!(Packed::of(&IoBuf::zeroed(512).into(), CompressType::Off, &block).is_none());
        assert!(Packed::of(&IoBuf::zeroed(512).into(), CompressType::Lz4, &Block::zero(16384)).is_none());
    }

    #[test]
    fn bytes_that_are_damaged_give_no_block() {
        let (block, packed) = sample(16384, 7);
        assert_eq!(*packed.unpack().unwrap(), *block);
        let damaged = Packed {
            bytes: IoBuf::from([0xff; 8192].as_slice()).into(),
            compress: CompressType::Lz4,
            lsize: 16384,
            plain_memory_bytes: 16384,
        };
        assert!(damaged.unpack().is_none());
    }
}
