//! ZAP: the on-disk hash table from names to values, block by block.
//!
//! A ZAP object begins as one *micro* block of names of at most 49 bytes, each with one 64-bit value
//! ([`MicroZap`]). When a name or value does not fit, or the block is full, it becomes *fat*: block 0 is a
//! header ([`FatHeader`]) with or without a table of pointers to leaves, other blocks are leaves ([`Leaf`])
//! or parts of the pointer table.
//!
//! | first word | block |
//! |---|---|
//! | `1 << 63` | leaf |
//! | `(1 << 63) + 1` | header of a fat ZAP |
//! | `(1 << 63) + 3` | micro |
//! | other | part of the pointer table |
//!
//! A key's hash is a salted CRC-64, of which only the upper 28 bits (48 with [`ZapFlags::HASH64`]) are kept.
//! Its top bits index the pointer table, the next ones the hash table of the leaf. Keys of equal hash are
//! told apart by a *collision differentiator* (cd). Hash and cd together are the position of a directory
//! reader: [`Cursor`].
//!
//! Everything here works on one block and never waits: callers fetch the blocks that [`FatHeader::pointer`]
//! and [`FatHeader::leaf_at`] name. Names are bytes; case and Unicode normalisation are the caller's, who
//! hashes the normalised form and compares names through [`Leaf::chain`].
//!
//! Source: OpenZFS 2.3 `zap_impl.h`, `zap_leaf.h`, `zap_micro.c`, `zap.c`, `zap_leaf.c`.

use crate::{BlockId, ByteOrder, Error, Reader, Result, Writer};

mod leaf;
mod leaf_edit;
mod micro;

pub use leaf::{CHAIN_END, Leaf, LeafBuilder, LeafEntry};
pub use leaf_edit::{LeafKey, LeafMut, LeafValue};
pub use micro::{MICRO_ENTRY_SIZE, MICRO_NAME_MAX, MicroEntry, MicroZap};

const BLOCK_LEAF: u64 = 1 << 63;
const BLOCK_HEADER: u64 = (1 << 63) + 1;
const BLOCK_MICRO: u64 = (1 << 63) + 3;
const FAT_MAGIC: u64 = 0x2_f52a_b2ab;

/// Longest name, its terminating NUL included (a feature raises it from 256).
pub const NAME_MAX: usize = 1024;
/// Longest value in bytes.
pub const VALUE_MAX: usize = 8192;

/// The form of a ZAP object, by its block 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ZapKind {
    /// All entries are in this block.
    Micro,
    /// The block is the header of a fat ZAP.
    Fat,
}

impl ZapKind {
    /// Looks at the first word of block 0.
    pub fn of(block: &[u8], order: ByteOrder) -> Result<ZapKind> {
        match Reader::new("ZAP", block, order).u64()? {
            BLOCK_MICRO => Ok(ZapKind::Micro),
            BLOCK_HEADER => Ok(ZapKind::Fat),
            found => Err(Error::BadMagic { what: "ZAP", found }),
        }
    }
}

/// Flags of a fat ZAP; a micro ZAP has none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ZapFlags(pub u64);

impl ZapFlags {
    /// Hashes keep 48 bits.
    pub const HASH64: ZapFlags = ZapFlags(1 << 0);
    /// Keys are arrays of 64-bit integers.
    pub const UINT64_KEY: ZapFlags = ZapFlags(1 << 1);
    /// The first integer of a key is its hash.
    pub const PRE_HASHED_KEY: ZapFlags = ZapFlags(1 << 2);

    /// True when all of `other` are set.
    pub const fn contains(self, other: ZapFlags) -> bool {
        self.0 & other.0 == other.0
    }

    /// Bits of a hash that are kept.
    pub const fn hash_bits(self) -> u32 {
        if self.contains(ZapFlags::HASH64) { 48 } else { 28 }
    }

    const fn mask(self) -> u64 {
        !((1 << (64 - self.hash_bits())) - 1)
    }

    /// Hash of a name, without its NUL and in normalised form if the ZAP normalises.
    pub fn hash_name(self, salt: u64, name: &[u8]) -> u64 {
        crc64(salt, name) & self.mask()
    }

    /// Hash of a key of 64-bit integers.
    pub fn hash_words(self, salt: u64, key: &[u64]) -> u64 {
        let hash = if self.contains(ZapFlags::PRE_HASHED_KEY) {
            key.first().copied().unwrap_or(0)
        } else {
            key.iter().fold(salt, |hash, word| crc64_word(hash, *word))
        };
        hash & self.mask()
    }
}

impl std::ops::BitOr for ZapFlags {
    type Output = ZapFlags;

    fn bitor(self, other: ZapFlags) -> ZapFlags {
        ZapFlags(self.0 | other.0)
    }
}

/// CRC-64 of ECMA-182, reflected: what each byte of a word adds, by how many bytes follow it there.
static CRC64: [[u64; 256]; 8] = {
    let mut tables = [[0; 256]; 8];
    let mut index = 0;
    while index < 256 {
        let mut value = index as u64;
        let mut bit = 0;
        while bit < 8 {
            value = (value >> 1) ^ (0xc96c_5795_d787_0f42 & (value & 1).wrapping_neg());
            bit += 1;
        }
        tables[0][index] = value;
        index += 1;
    }
    let mut place = 256;
    while place < 8 * 256 {
        let before = tables[place / 256 - 1][place % 256];
        tables[place / 256][place % 256] = (before >> 8) ^ tables[0][before as usize & 0xff];
        place += 1;
    }
    tables
};

/// Adding a name to a directory hashes all names in it, so words are taken at once.
fn crc64(hash: u64, bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    let hash = words.iter().fold(hash, |hash, word| crc64_word(hash, u64::from_le_bytes(*word)));
    rest.iter().fold(hash, |hash, byte| (hash >> 8) ^ CRC64[0][(hash as u8 ^ byte) as usize])
}

fn crc64_word(hash: u64, word: u64) -> u64 {
    let bytes = (hash ^ word).to_be_bytes();
    bytes.iter().zip(&CRC64).fold(0, |sum, (byte, table)| sum ^ table[usize::from(*byte)])
}

/// Position of a reader that walks a ZAP in order of hash and cd.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Cursor {
    /// Hash of the next entry, or less.
    pub hash: u64,
    /// Collision differentiator of the next entry, or less.
    pub cd: u32,
}

impl Cursor {
    /// Packs the position into 64 bits, as OpenZFS does for directory offsets.
    pub const fn serialize(self, flags: ZapFlags) -> u64 {
        self.hash >> (64 - flags.hash_bits()) | (self.cd as u64) << flags.hash_bits()
    }

    /// Unpacks a position.
    pub const fn deserialize(cookie: u64, flags: ZapFlags) -> Cursor {
        let bits = flags.hash_bits();
        Cursor { hash: cookie << (64 - bits), cd: (cookie >> bits) as u32 }
    }
}

/// A value: an array of integers of one size.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)] // The variants are the sizes.
pub enum ZapValue {
    U8(Vec<u8>),
    U16(Vec<u16>),
    U32(Vec<u32>),
    U64(Vec<u64>),
}

impl ZapValue {
    /// Size of one integer in bytes.
    pub const fn integer_size(&self) -> usize {
        match self {
            ZapValue::U8(_) => 1,
            ZapValue::U16(_) => 2,
            ZapValue::U32(_) => 4,
            ZapValue::U64(_) => 8,
        }
    }

    /// Number of integers.
    pub fn len(&self) -> usize {
        match self {
            ZapValue::U8(values) => values.len(),
            ZapValue::U16(values) => values.len(),
            ZapValue::U32(values) => values.len(),
            ZapValue::U64(values) => values.len(),
        }
    }

    /// True without integers.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The only integer, widened.
    pub fn as_u64(&self) -> Option<u64> {
        match self {
            ZapValue::U8(values) => single(values),
            ZapValue::U16(values) => single(values),
            ZapValue::U32(values) => single(values),
            ZapValue::U64(values) => single(values),
        }
    }

    /// The integers, widened.
    pub fn to_u64s(&self) -> Vec<u64> {
        match self {
            ZapValue::U8(values) => values.iter().map(|value| (*value).into()).collect(),
            ZapValue::U16(values) => values.iter().map(|value| (*value).into()).collect(),
            ZapValue::U32(values) => values.iter().map(|value| (*value).into()).collect(),
            ZapValue::U64(values) => values.clone(),
        }
    }

    /// The bytes of a byte array.
    pub fn as_bytes(&self) -> Option<&[u8]> {
        match self {
            ZapValue::U8(values) => Some(values),
            _ => None,
        }
    }

    /// A byte array up to its NUL: how strings are stored.
    pub fn as_text(&self) -> Option<&[u8]> {
        self.as_bytes().and_then(|bytes| bytes.split(|byte| *byte == 0).next())
    }
}

fn single<T: Copy + Into<u64>>(values: &[T]) -> Option<u64> {
    match values {
        [value] => Some((*value).into()),
        _ => None,
    }
}

/// Where a pointer to a leaf stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PointerPlace {
    /// Block of the ZAP object; 0 is the header itself.
    pub block: BlockId,
    /// Offset of the 8-byte pointer in that block.
    pub offset: usize,
}

/// Header of a fat ZAP (block 0).
///
/// | offset | size | name | meaning |
/// |---|---|---|---|
/// | 0 | 8 | block_type | `(1 << 63) + 1` |
/// | 8 | 8 | magic | `0x2f52ab2ab` |
/// | 16 | 8 | ptrtbl.blk | first block of an external pointer table |
/// | 24 | 8 | ptrtbl.numblks | its blocks; 0: the table is in this block |
/// | 32 | 8 | ptrtbl.shift | log2 of the number of pointers |
/// | 40 | 8 | ptrtbl.nextblk | first block of a table being grown |
/// | 48 | 8 | ptrtbl.blks_copied | progress of that |
/// | 56 | 8 | freeblk | first block never used |
/// | 64 | 8 | num_leafs | leaves |
/// | 72 | 8 | num_entries | entries |
/// | 80 | 8 | salt | start value of hashes |
/// | 88 | 8 | normflags | how names are normalised |
/// | 96 | 8 | flags | [`ZapFlags`] |
/// | half of the block | half | leafs | embedded pointer table: block id of a leaf for each prefix of the hash |
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FatHeader {
    /// log2 of the size of the object's blocks.
    pub block_shift: u32,
    /// Byte order of the block.
    pub order: ByteOrder,
    /// The pointer table.
    pub table: PointerTable,
    /// First block never used.
    pub free_block: BlockId,
    /// Number of leaves.
    pub leaves: u64,
    /// Number of entries.
    pub entries: u64,
    /// Start value of hashes.
    pub salt: u64,
    /// How names are normalised (`u8_textprep` flags); 0: not at all.
    pub normalization: u64,
    /// Flags.
    pub flags: ZapFlags,
}

/// Pointer table of a fat ZAP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PointerTable {
    /// First block.
    pub block: BlockId,
    /// Number of blocks; 0: the table is in the header.
    pub blocks: u64,
    /// log2 of the number of pointers.
    pub shift: u32,
    /// First block of a larger table being made.
    pub next_block: BlockId,
    /// Blocks of this table copied into the larger.
    pub blocks_copied: u64,
}

impl FatHeader {
    /// Parses block 0.
    pub fn parse(block: &[u8], order: ByteOrder) -> Result<FatHeader> {
        let what = "ZAP header";
        let block_shift = block_shift(what, block)?;
        let mut reader = Reader::new(what, block, order);
        let [block_type, magic] = reader.u64s()?;
        if (block_type, magic) != (BLOCK_HEADER, FAT_MAGIC) {
            return Err(Error::BadMagic { what, found: magic });
        }
        let [table, blocks, shift, next_block, blocks_copied] = reader.u64s()?;
        let [free_block, leaves, entries, salt, normalization, flags] = reader.u64s()?;
        let embedded_shift = block_shift - 4;
        let consistent = if blocks == 0 {
            shift == u64::from(embedded_shift)
        } else {
            // Hashes have no more than 48 bits to tell leaves apart.
            shift > u64::from(embedded_shift)
                && shift <= 48
                && blocks == 1 << (shift - u64::from(block_shift - 3))
                && table.checked_add(blocks).is_some()
        };
        if !consistent {
            return Err(Error::invalid(what, format!("pointer table of {blocks} blocks, shift {shift}")));
        }
        Ok(FatHeader {
            block_shift,
            order,
            table: PointerTable {
                block: BlockId(table),
                blocks,
                shift: shift as u32,
                next_block: BlockId(next_block),
                blocks_copied,
            },
            free_block: BlockId(free_block),
            leaves,
            entries,
            salt,
            normalization,
            flags: ZapFlags(flags),
        })
    }

    /// Block 0, with the embedded pointer table if the header has one (and zeros in its place otherwise).
    pub fn encode(&self, embedded: &[u64]) -> Result<Vec<u8>> {
        let size = 1usize
            .checked_shl(self.block_shift)
            .ok_or_else(|| Error::invalid("ZAP header", "block shift too large"))?;
        let table = &self.table;
        let mut writer = Writer::new(self.order);
        writer.u64s(&[BLOCK_HEADER, FAT_MAGIC, table.block.0, table.blocks, table.shift.into()]);
        writer.u64s(&[table.next_block.0, table.blocks_copied, self.free_block.0, self.leaves]);
        writer.u64s(&[self.entries, self.salt, self.normalization, self.flags.0]);
        writer.zeros_to(size / 2).u64s(embedded).zeros_to(size);
        let block = writer.finish();
        if block.len() != size || FatHeader::parse(&block, self.order)? != *self {
            return Err(Error::invalid("ZAP header", "parts contradict each other"));
        }
        Ok(block)
    }

    /// Writes the fields into a block 0 that exists, and leaves its pointers alone.
    pub fn store(&self, block: &mut [u8]) -> Result<()> {
        let table = &self.table;
        let mut writer = Writer::new(self.order);
        writer.u64s(&[BLOCK_HEADER, FAT_MAGIC, table.block.0, table.blocks, table.shift.into()]);
        writer.u64s(&[table.next_block.0, table.blocks_copied, self.free_block.0, self.leaves]);
        writer.u64s(&[self.entries, self.salt, self.normalization, self.flags.0]);
        let fields = writer.finish();
        let place =
            block.get_mut(..fields.len()).ok_or_else(|| Error::invalid("ZAP header", "block too small"))?;
        place.copy_from_slice(&fields);
        Ok(())
    }

    /// Hash of a name, see [`ZapFlags::hash_name`].
    pub fn hash_name(&self, name: &[u8]) -> u64 {
        self.flags.hash_name(self.salt, name)
    }

    /// Hash of a key of integers.
    pub fn hash_words(&self, key: &[u64]) -> u64 {
        self.flags.hash_words(self.salt, key)
    }

    /// Where the pointer to the leaf of a hash stands.
    pub fn pointer(&self, hash: u64) -> PointerPlace {
        let index = hash.checked_shr(64 - self.table.shift).unwrap_or(0);
        if self.table.blocks == 0 {
            let half = 1 << (self.block_shift - 1);
            return PointerPlace { block: BlockId(0), offset: half + index as usize * 8 };
        }
        let in_block = self.block_shift - 3;
        PointerPlace {
            block: BlockId(self.table.block.0 + (index >> in_block)),
            offset: (index as usize & ((1 << in_block) - 1)) * 8,
        }
    }

    /// Reads the pointer at `place` in its block: the block id of a leaf.
    pub fn leaf_at(&self, block: &[u8], place: PointerPlace) -> Result<BlockId> {
        let mut reader = Reader::new("ZAP pointer table", block, self.order);
        reader.seek(place.offset)?;
        let leaf = reader.u64()?;
        if leaf == 0 || leaf >= self.free_block.0 {
            return Err(Error::invalid(
                "ZAP pointer table",
                format!("leaf {leaf} of {} blocks", self.free_block),
            ));
        }
        Ok(BlockId(leaf))
    }
}

/// log2 of a block's size, which must be a power of two that has room for the fixed parts of fat blocks.
fn block_shift(what: &'static str, block: &[u8]) -> Result<u32> {
    let size = block.len();
    if !size.is_power_of_two() || !(512..=1 << 24).contains(&size) {
        return Err(Error::invalid(what, format!("block of {size} bytes")));
    }
    Ok(size.trailing_zeros())
}

#[cfg(test)]
mod tests;
