//! Micro ZAPs: one block, short names, one integer each.
//!
//! | offset | size | name | meaning |
//! |---|---|---|---|
//! | 0 | 8 | block_type | `(1 << 63) + 3` |
//! | 8 | 8 | salt | start value of hashes |
//! | 16 | 8 | normflags | how names are normalised |
//! | 24 | 40 | | zero |
//! | 64 | 64 each | chunk | entries |
//!
//! Entry, free when its name is empty:
//!
//! | offset | size | name | meaning |
//! |---|---|---|---|
//! | 0 | 8 | value | |
//! | 8 | 4 | cd | tells names of equal hash apart |
//! | 12 | 2 | | zero |
//! | 14 | 50 | name | NUL-terminated |
//!
//! Blocks were at most 128 KiB until the `large_microzap` feature; any size is accepted here.

use super::{BLOCK_MICRO, ZapFlags};
use crate::{ByteOrder, Error, Reader, Result, Writer};

/// Size of an entry, and of the header.
pub const MICRO_ENTRY_SIZE: usize = 64;
/// Longest name without its NUL.
pub const MICRO_NAME_MAX: usize = 49;

const WHAT: &str = "micro ZAP";
const NAME_OFFSET: usize = 14;

/// A view of a micro ZAP block.
#[derive(Debug, Clone, Copy)]
pub struct MicroZap<'a> {
    block: &'a [u8],
    order: ByteOrder,
    /// Start value of hashes.
    pub salt: u64,
    /// How names are normalised (`u8_textprep` flags); 0: not at all.
    pub normalization: u64,
}

/// An entry of a micro ZAP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MicroEntry<'a> {
    /// Name without NUL.
    pub name: &'a [u8],
    /// Value.
    pub value: u64,
    /// Tells names of equal hash apart.
    pub cd: u32,
}

impl MicroEntry<'_> {
    /// The bytes of the entry in a block.
    pub fn encode(&self, order: ByteOrder) -> Result<[u8; MICRO_ENTRY_SIZE]> {
        let length = self.name.len();
        if length == 0 || length > MICRO_NAME_MAX || self.name.contains(&0) {
            return Err(Error::invalid(WHAT, format!("name of {length} bytes")));
        }
        let mut chunk = [0; MICRO_ENTRY_SIZE];
        chunk[..8].copy_from_slice(&order.u64_bytes(self.value));
        chunk[8..12].copy_from_slice(&order.u32_bytes(self.cd));
        chunk[NAME_OFFSET..NAME_OFFSET + length].copy_from_slice(self.name);
        Ok(chunk)
    }
}

impl<'a> MicroZap<'a> {
    /// Looks at a block.
    pub fn parse(block: &'a [u8], order: ByteOrder) -> Result<MicroZap<'a>> {
        let mut reader = Reader::new(WHAT, block, order);
        let [block_type, salt, normalization] = reader.u64s()?;
        if block_type != BLOCK_MICRO {
            return Err(Error::BadMagic { what: WHAT, found: block_type });
        }
        Ok(MicroZap { block, order, salt, normalization })
    }

    /// The entries in use, in the order of their places.
    pub fn entries(&self) -> impl Iterator<Item = MicroEntry<'a>> + use<'a> {
        let order = self.order;
        let chunks = self.block.get(MICRO_ENTRY_SIZE..).unwrap_or_default();
        chunks.as_chunks::<MICRO_ENTRY_SIZE>().0.iter().filter_map(move |chunk| entry(chunk, order))
    }

    /// All places for entries: their offsets in the block, and the entry in each that is not free.
    pub fn slots(&self) -> impl Iterator<Item = (usize, Option<MicroEntry<'a>>)> + use<'a> {
        let order = self.order;
        let chunks = self.block.get(MICRO_ENTRY_SIZE..).unwrap_or_default();
        let chunks = chunks.as_chunks::<MICRO_ENTRY_SIZE>().0.iter().enumerate();
        chunks.map(move |(index, chunk)| ((index + 1) * MICRO_ENTRY_SIZE, entry(chunk, order)))
    }

    /// The entry in the place at an offset in the block, if there is one that is not free.
    pub fn entry_at(&self, offset: usize) -> Option<MicroEntry<'a>> {
        entry(self.block.get(offset..)?.first_chunk()?, self.order)
    }

    /// The entry of exactly this name.
    pub fn lookup(&self, name: &[u8]) -> Option<MicroEntry<'a>> {
        self.find(name).map(|(_, entry)| entry)
    }

    /// The entry of exactly this name, and its offset in the block.
    ///
    /// All entries may have to be looked at, so it first compares one word of each: the last bytes of the
    /// name with its NUL, as the names in a directory often begin alike.
    pub fn find(&self, name: &[u8]) -> Option<(usize, MicroEntry<'a>)> {
        if name.is_empty() || name.contains(&0) {
            return None;
        }
        let mut wanted = [0; MICRO_ENTRY_SIZE - NAME_OFFSET];
        wanted.get_mut(..name.len())?.copy_from_slice(name);
        let length = wanted.len().min(name.len() + 1);
        let tail_start = length.saturating_sub(8);
        let mask = if length < 8 { (1 << (8 * length)) - 1 } else { u64::MAX };
        let tail = |name: &[u8]| {
            let bytes = name.get(tail_start..).and_then(|bytes| bytes.first_chunk());
            bytes.map_or(0, |bytes| u64::from_le_bytes(*bytes) & mask)
        };
        let wanted_tail = tail(&wanted);
        let chunks = self.block.get(MICRO_ENTRY_SIZE..).unwrap_or_default().as_chunks::<MICRO_ENTRY_SIZE>().0;
        let index = chunks.iter().position(|chunk| {
            let name = &chunk[NAME_OFFSET..];
            tail(name) == wanted_tail && name[..length] == wanted[..length]
        })?;
        let found = entry(chunks.get(index)?, self.order)?;
        Some(((index + 1) * MICRO_ENTRY_SIZE, found))
    }

    /// Hash of a name, in normalised form if the ZAP normalises.
    pub fn hash_name(&self, name: &[u8]) -> u64 {
        ZapFlags::default().hash_name(self.salt, name)
    }

    /// Makes a block of `size` bytes.
    pub fn encode(
        size: usize,
        order: ByteOrder,
        salt: u64,
        normalization: u64,
        entries: &[MicroEntry<'_>],
    ) -> Result<Vec<u8>> {
        let mut writer = Writer::new(order);
        writer.u64s(&[BLOCK_MICRO, salt, normalization]).zeros_to(MICRO_ENTRY_SIZE);
        for entry in entries {
            writer.bytes(&entry.encode(order)?);
        }
        if writer.position() > size {
            return Err(Error::TooLarge { what: WHAT, limit: size as u64 });
        }
        writer.zeros_to(size);
        Ok(writer.finish())
    }
}

fn entry(chunk: &[u8; MICRO_ENTRY_SIZE], order: ByteOrder) -> Option<MicroEntry<'_>> {
    let name = chunk.get(NAME_OFFSET..)?;
    let name = name.split(|byte| *byte == 0).next()?;
    if name.is_empty() {
        return None;
    }
    let (value, rest) = chunk.split_first_chunk::<8>()?;
    let cd = rest.first_chunk::<4>()?;
    Some(MicroEntry { name, value: order.u64(*value), cd: order.u32(*cd) })
}
