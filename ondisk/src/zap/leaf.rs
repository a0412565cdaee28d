//! Leaves of a fat ZAP: a small hash table whose keys and values are chains of chunks of 24 bytes.
//!
//! | offset | size | name | meaning |
//! |---|---|---|---|
//! | 0 | 8 | block_type | `1 << 63` |
//! | 8 | 8 | | zero |
//! | 16 | 8 | prefix | top bits of the hash that all entries share |
//! | 24 | 4 | magic | `0x2ab1eaf` |
//! | 28 | 2 | nfree | free chunks |
//! | 30 | 2 | nentries | entries |
//! | 32 | 2 | prefix_len | number of shared bits |
//! | 34 | 2 | freelist | first free chunk |
//! | 36 | 1 | flags | bit 0: chains are sorted by cd |
//! | 37 | 11 | | zero |
//! | 48 | size / 16 | hash | first entry of each chain (2 bytes each, size / 32 of them) |
//! | 48 + size / 16 | 24 each | chunks | |
//!
//! Chunks, by their first byte:
//!
//! | | 252: entry | 251: part of a key or value | 253: free |
//! |---|---|---|---|
//! | 1 | value_intlen (1) | bytes (21) | |
//! | 2 | next entry of the chain (2) | | |
//! | 4 | first chunk of the key (2) | | |
//! | 6 | integers in the key, a name's NUL included (2) | | |
//! | 8 | first chunk of the value (2) | | |
//! | 10 | integers in the value (2) | | |
//! | 12 | cd (4) | | |
//! | 16 | hash (8) | | |
//! | 22 | | next chunk (2) | next free chunk (2) |
//!
//! Links end with `0xffff`. Integers in keys and values are big endian whatever the byte order of the block.
//! Walks are bounded by the number of chunks, so that a damaged chain that loops is an error.

use super::{BLOCK_LEAF, Cursor, ZapValue, block_shift};
use crate::{ByteOrder, Error, Reader, Result, Writer};

/// End of a chain.
pub const CHAIN_END: u16 = 0xffff;

pub(super) const WHAT: &str = "ZAP leaf";
pub(super) const LEAF_MAGIC: u32 = 0x02ab_1eaf;
pub(super) const HEADER_SIZE: usize = 48;
pub(super) const CHUNK_SIZE: usize = 24;
pub(super) const CHUNK_ARRAY: u8 = 251;
pub(super) const CHUNK_ENTRY: u8 = 252;
pub(super) const CHUNK_FREE: u8 = 253;
/// Bytes of a key or value in one chunk.
pub(super) const ARRAY_BYTES: usize = 21;
pub(super) const FLAG_CD_SORTED: u8 = 1;

/// A view of a leaf block.
#[derive(Debug, Clone, Copy)]
pub struct Leaf<'a> {
    order: ByteOrder,
    hash_shift: u32,
    hash: &'a [u8],
    chunks: &'a [[u8; CHUNK_SIZE]],
    /// Top bits of the hash that all entries share, as a number of `prefix_len` bits.
    pub prefix: u64,
    /// Number of shared bits.
    pub prefix_len: u32,
    /// Number of entries that the header claims.
    pub entry_count: u16,
}

/// An entry of a leaf.
#[derive(Debug, Clone, Copy)]
pub struct LeafEntry<'a> {
    leaf: Leaf<'a>,
    /// Hash of the key.
    pub hash: u64,
    /// Tells keys of equal hash apart.
    pub cd: u32,
    /// Size of the value's integers: 1, 2, 4 or 8.
    pub integer_size: u8,
    /// Number of the value's integers.
    pub integers: u16,
    pub(super) key_integers: u16,
    pub(super) key_chunk: u16,
    pub(super) value_chunk: u16,
    next: u16,
}

impl<'a> Leaf<'a> {
    /// Looks at a block.
    pub fn parse(block: &'a [u8], order: ByteOrder) -> Result<Leaf<'a>> {
        let shift = block_shift(WHAT, block)?;
        let mut reader = Reader::new(WHAT, block, order);
        let [block_type, _, prefix] = reader.u64s()?;
        let magic = reader.u32()?;
        if block_type != BLOCK_LEAF || magic != LEAF_MAGIC {
            return Err(Error::BadMagic { what: WHAT, found: magic.into() });
        }
        let _free = reader.u16()?;
        let entry_count = reader.u16()?;
        let prefix_len = u32::from(reader.u16()?);
        reader.seek(HEADER_SIZE)?;
        let hash_shift = shift - 5;
        if prefix_len + hash_shift > 64 {
            return Err(Error::invalid(WHAT, format!("prefix of {prefix_len} bits")));
        }
        let hash = reader.bytes(2 << hash_shift)?;
        let chunks = reader.rest().as_chunks().0;
        Ok(Leaf { order, hash_shift, hash, chunks, prefix, prefix_len, entry_count })
    }

    /// The least hash above all those that belong to this leaf, `None` for the last leaf.
    pub fn next_hash(&self) -> Option<u64> {
        let range = 64u32.saturating_sub(self.prefix_len);
        let next = self.prefix.checked_add(1)?.checked_shl(range)?;
        (next >> range == self.prefix + 1).then_some(next)
    }

    fn bucket(&self, hash: u64) -> usize {
        let shift = 64 - self.hash_shift - self.prefix_len;
        hash.checked_shr(shift).unwrap_or(0) as usize & ((1 << self.hash_shift) - 1)
    }

    fn chunk(&self, index: u16) -> Result<&'a [u8; CHUNK_SIZE]> {
        self.chunks
            .get(usize::from(index))
            .ok_or_else(|| Error::invalid(WHAT, format!("chunk {index} of {}", self.chunks.len())))
    }

    fn entry(&self, index: u16) -> Result<LeafEntry<'a>> {
        let mut reader = Reader::new(WHAT, self.chunk(index)?, self.order);
        let kind = reader.u8()?;
        if kind != CHUNK_ENTRY {
            return Err(Error::invalid(WHAT, format!("chunk of type {kind} in a chain of entries")));
        }
        let integer_size = reader.u8()?;
        if !matches!(integer_size, 1 | 2 | 4 | 8) {
            return Err(Error::invalid(WHAT, format!("integers of {integer_size} bytes")));
        }
        let next = reader.u16()?;
        let key_chunk = reader.u16()?;
        let key_integers = reader.u16()?;
        let value_chunk = reader.u16()?;
        let integers = reader.u16()?;
        let cd = reader.u32()?;
        let hash = reader.u64()?;
        Ok(LeafEntry {
            leaf: *self,
            hash,
            cd,
            integer_size,
            integers,
            key_integers,
            key_chunk,
            value_chunk,
            next,
        })
    }

    fn bucket_entries(&self, bucket: usize) -> impl Iterator<Item = Result<LeafEntry<'a>>> + use<'a> {
        let leaf = *self;
        let heads = leaf.hash.as_chunks::<2>().0;
        let mut next = heads.get(bucket).map_or(CHAIN_END, |head| leaf.order.u16(*head));
        let mut budget = leaf.chunks.len();
        std::iter::from_fn(move || {
            if next == CHAIN_END {
                return None;
            }
            let entry = match budget.checked_sub(1) {
                Some(left) => {
                    budget = left;
                    leaf.entry(next)
                }
                None => Err(Error::invalid(WHAT, "chain of entries loops")),
            };
            next = entry.as_ref().map_or(CHAIN_END, |entry| entry.next);
            Some(entry)
        })
    }

    /// The entries of this hash. On ZAPs that normalise they come in order of cd, and the first whose name
    /// matches after normalisation is the one.
    pub fn chain(&self, hash: u64) -> impl Iterator<Item = Result<LeafEntry<'a>>> + use<'a> {
        self.bucket_entries(self.bucket(hash))
            .filter(move |entry| entry.as_ref().map_or(true, |entry| entry.hash == hash))
    }

    /// The entry of exactly this name.
    pub fn lookup(&self, hash: u64, name: &[u8]) -> Result<Option<LeafEntry<'a>>> {
        for entry in self.chain(hash) {
            let entry = entry?;
            if entry.name_is(name)? {
                return Ok(Some(entry));
            }
        }
        Ok(None)
    }

    /// The entry of exactly this key of 64-bit integers.
    pub fn lookup_words(&self, hash: u64, key: &[u64]) -> Result<Option<LeafEntry<'a>>> {
        for entry in self.chain(hash) {
            let entry = entry?;
            if usize::from(entry.key_integers) == key.len() && entry.key_words()? == key {
                return Ok(Some(entry));
            }
        }
        Ok(None)
    }

    /// All entries, chain by chain.
    pub fn entries(&self) -> impl Iterator<Item = Result<LeafEntry<'a>>> + use<'a> {
        let leaf = *self;
        let mut budget = leaf.chunks.len();
        let mut failed = false;
        (0..1usize << leaf.hash_shift).flat_map(move |bucket| leaf.bucket_entries(bucket)).map_while(
            move |entry| {
                if failed {
                    return None;
                }
                // Chains that share a tail could otherwise multiply.
                let entry = match budget.checked_sub(1) {
                    Some(left) => {
                        budget = left;
                        entry
                    }
                    None => Err(Error::invalid(WHAT, "more entries than chunks")),
                };
                failed = entry.is_err();
                Some(entry)
            },
        )
    }

    /// The entries at or after a cursor, in order of hash and cd.
    pub fn entries_from(&self, cursor: Cursor) -> Result<Vec<LeafEntry<'a>>> {
        let mut found = self.entries().collect::<Result<Vec<_>>>()?;
        found.retain(|entry| entry.cursor() >= cursor);
        found.sort_by_key(LeafEntry::cursor);
        Ok(found)
    }
}

impl<'a> LeafEntry<'a> {
    /// Position of the entry.
    pub fn cursor(&self) -> Cursor {
        Cursor { hash: self.hash, cd: self.cd }
    }

    /// Pieces of a key or value of `length` bytes, whose first chunk is `chunk`.
    fn pieces(&self, chunk: u16, length: usize) -> impl Iterator<Item = Result<&'a [u8]>> + use<'a> {
        let leaf = self.leaf;
        let mut next = chunk;
        let mut left = length;
        std::iter::from_fn(move || {
            if left == 0 {
                return None;
            }
            let piece = leaf.chunk(next).and_then(|chunk| match chunk {
                [CHUNK_ARRAY, bytes @ .., n0, n1] => {
                    next = leaf.order.u16([*n0, *n1]);
                    Ok(bytes.get(..left.min(ARRAY_BYTES)).unwrap_or(bytes))
                }
                [kind, ..] => Err(Error::invalid(WHAT, format!("chunk of type {kind} in a key or value"))),
            });
            // `left` falls with each piece: a chain that loops ends with the length that was asked for.
            left = piece.as_ref().map_or(0, |piece| left - piece.len());
            Some(piece)
        })
    }

    fn bytes(&self, chunk: u16, length: usize) -> Result<Vec<u8>> {
        // Chunks of one array are distinct, so that none can be longer than all chunks together.
        if length > self.leaf.chunks.len() * ARRAY_BYTES {
            return Err(Error::invalid(WHAT, format!("{length} bytes in one key or value")));
        }
        let mut bytes = Vec::with_capacity(length);
        for piece in self.pieces(chunk, length) {
            bytes.extend_from_slice(piece?);
        }
        Ok(bytes)
    }

    /// The name, without its NUL.
    pub fn name(&self) -> Result<Vec<u8>> {
        let mut name = self.bytes(self.key_chunk, self.key_integers.into())?;
        if let Some(end) = name.iter().position(|byte| *byte == 0) {
            name.truncate(end);
        }
        Ok(name)
    }

    /// The key is exactly this name (given without NUL).
    pub fn name_is(&self, name: &[u8]) -> Result<bool> {
        if usize::from(self.key_integers) != name.len() + 1 {
            return Ok(false);
        }
        let mut rest = name;
        for piece in self.pieces(self.key_chunk, name.len()) {
            let Some(after) = rest.strip_prefix(piece?) else {
                return Ok(false);
            };
            rest = after;
        }
        Ok(true)
    }

    /// A key of 64-bit integers.
    pub fn key_words(&self) -> Result<Vec<u64>> {
        Ok(words(&self.bytes(self.key_chunk, usize::from(self.key_integers) * 8)?))
    }

    /// The value.
    pub fn value(&self) -> Result<ZapValue> {
        let length = usize::from(self.integers) * usize::from(self.integer_size);
        let bytes = self.bytes(self.value_chunk, length)?;
        Ok(match self.integer_size {
            1 => ZapValue::U8(bytes),
            2 => ZapValue::U16(bytes.as_chunks().0.iter().map(|chunk| u16::from_be_bytes(*chunk)).collect()),
            4 => ZapValue::U32(bytes.as_chunks().0.iter().map(|chunk| u32::from_be_bytes(*chunk)).collect()),
            _ => ZapValue::U64(words(&bytes)),
        })
    }

    /// The value when it is one 64-bit integer, without allocating.
    pub fn value_u64(&self) -> Result<Option<u64>> {
        if self.integers != 1 || self.integer_size != 8 {
            return Ok(None);
        }
        let chunk = self.leaf.chunk(self.value_chunk)?;
        match chunk {
            [CHUNK_ARRAY, rest @ ..] => Ok(rest.first_chunk().map(|bytes| u64::from_be_bytes(*bytes))),
            [kind, ..] => Err(Error::invalid(WHAT, format!("chunk of type {kind} in a value"))),
        }
    }
}

fn words(bytes: &[u8]) -> Vec<u64> {
    bytes.as_chunks().0.iter().map(|chunk| u64::from_be_bytes(*chunk)).collect()
}

/// Makes a leaf block.
#[derive(Debug, Clone)]
pub struct LeafBuilder {
    order: ByteOrder,
    hash: Vec<u16>,
    chunks: Vec<[u8; CHUNK_SIZE]>,
    capacity: usize,
    prefix: u64,
    prefix_len: u32,
    entries: Vec<(u16, Cursor)>,
}

impl LeafBuilder {
    /// An empty leaf of `1 << block_shift` bytes for hashes that begin with the `prefix_len` bits of
    /// `prefix`.
    pub fn new(block_shift: u32, order: ByteOrder, prefix: u64, prefix_len: u32) -> Result<LeafBuilder> {
        if !(9..=17).contains(&block_shift) || prefix_len + block_shift - 5 > 64 {
            return Err(Error::invalid(WHAT, format!("block shift {block_shift}, prefix {prefix_len}")));
        }
        let hash = vec![CHAIN_END; 1 << (block_shift - 5)];
        let capacity = ((1 << block_shift) - HEADER_SIZE - 2 * hash.len()) / CHUNK_SIZE;
        Ok(LeafBuilder { order, hash, chunks: Vec::new(), capacity, prefix, prefix_len, entries: Vec::new() })
    }

    /// Adds an entry; `Ok(false)` when the leaf is full. Equal keys are the caller's matter.
    pub fn insert_name(&mut self, cursor: Cursor, name: &[u8], value: &ZapValue) -> Result<bool> {
        let key = [name, &[0]].concat();
        self.insert(cursor, &key, key.len(), value)
    }

    /// Adds an entry whose key is 64-bit integers; `Ok(false)` when the leaf is full.
    pub fn insert_words(&mut self, cursor: Cursor, key: &[u64], value: &ZapValue) -> Result<bool> {
        let bytes: Vec<u8> = key.iter().flat_map(|word| word.to_be_bytes()).collect();
        self.insert(cursor, &bytes, key.len(), value)
    }

    fn insert(&mut self, cursor: Cursor, key: &[u8], key_integers: usize, value: &ZapValue) -> Result<bool> {
        let value_bytes: Vec<u8> = match value {
            ZapValue::U8(values) => values.clone(),
            ZapValue::U16(values) => values.iter().flat_map(|value| value.to_be_bytes()).collect(),
            ZapValue::U32(values) => values.iter().flat_map(|value| value.to_be_bytes()).collect(),
            ZapValue::U64(values) => values.iter().flat_map(|value| value.to_be_bytes()).collect(),
        };
        let too_long = |_| Error::TooLarge { what: "ZAP entry", limit: u16::MAX.into() };
        let key_integers = u16::try_from(key_integers).map_err(too_long)?;
        let integers = u16::try_from(value.len()).map_err(too_long)?;
        let needed = 1 + key.len().div_ceil(ARRAY_BYTES) + value_bytes.len().div_ceil(ARRAY_BYTES);
        if self.chunks.len() + needed > self.capacity {
            return Ok(false);
        }
        let index = self.chunks.len() as u16;
        self.chunks.push([0; CHUNK_SIZE]);
        let key_chunk = self.push_array(key);
        let value_chunk = self.push_array(&value_bytes);
        let shift = 64 - self.hash.len().trailing_zeros() - self.prefix_len;
        let bucket = cursor.hash.checked_shr(shift).unwrap_or(0) as usize & (self.hash.len() - 1);

        // The chain stays sorted by cd.
        let mut previous = None;
        let mut next = self.hash[bucket];
        while let Some((_, other)) = self.entries.iter().find(|(other, _)| *other == next) {
            if other.cd > cursor.cd {
                break;
            }
            previous = Some(next);
            next = self.next_of(next);
        }
        let mut writer = Writer::new(self.order);
        writer.u8(CHUNK_ENTRY).u8(value.integer_size() as u8).u16(next).u16(key_chunk).u16(key_integers);
        writer.u16(value_chunk).u16(integers).u32(cursor.cd).u64(cursor.hash);
        self.chunks[usize::from(index)].copy_from_slice(&writer.finish());
        match previous {
            None => self.hash[bucket] = index,
            Some(previous) => {
                let link = self.order.u16_bytes(index);
                self.chunks[usize::from(previous)][2..4].copy_from_slice(&link);
            }
        }
        self.entries.push((index, cursor));
        Ok(true)
    }

    fn next_of(&self, entry: u16) -> u16 {
        let chunk = &self.chunks[usize::from(entry)];
        self.order.u16([chunk[2], chunk[3]])
    }

    fn push_array(&mut self, bytes: &[u8]) -> u16 {
        if bytes.is_empty() {
            return CHAIN_END;
        }
        let first = self.chunks.len() as u16;
        let pieces = bytes.len().div_ceil(ARRAY_BYTES);
        for (number, piece) in bytes.chunks(ARRAY_BYTES).enumerate() {
            let next = if number + 1 == pieces { CHAIN_END } else { self.chunks.len() as u16 + 1 };
            let mut chunk = [0; CHUNK_SIZE];
            chunk[0] = CHUNK_ARRAY;
            chunk[1..1 + piece.len()].copy_from_slice(piece);
            chunk[CHUNK_SIZE - 2..].copy_from_slice(&self.order.u16_bytes(next));
            self.chunks.push(chunk);
        }
        first
    }

    /// The block.
    pub fn finish(mut self) -> Vec<u8> {
        let used = self.chunks.len();
        let free = if used < self.capacity { used as u16 } else { CHAIN_END };
        for index in used..self.capacity {
            let next = if index + 1 == self.capacity { CHAIN_END } else { index as u16 + 1 };
            let mut chunk = [0; CHUNK_SIZE];
            chunk[0] = CHUNK_FREE;
            chunk[CHUNK_SIZE - 2..].copy_from_slice(&self.order.u16_bytes(next));
            self.chunks.push(chunk);
        }
        let mut writer = Writer::new(self.order);
        writer.u64s(&[BLOCK_LEAF, 0, self.prefix]).u32(LEAF_MAGIC);
        writer.u16((self.capacity - used) as u16).u16(self.entries.len() as u16).u16(self.prefix_len as u16);
        writer.u16(free).u8(FLAG_CD_SORTED).zeros_to(HEADER_SIZE);
        for head in &self.hash {
            writer.u16(*head);
        }
        for chunk in &self.chunks {
            writer.bytes(chunk);
        }
        writer.zeros_to(self.hash.len() * 32);
        writer.finish()
    }
}
