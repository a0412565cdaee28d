//! Changing a leaf in place. The layout is told in [`Leaf`](super::Leaf).
//!
//! Free chunks form a list that starts in the header. An entry takes one chunk, and one for each 21 bytes of
//! key and of value. The chain of a bucket stays sorted by cd, so that the first entry whose normalised name
//! matches is the one that was there first.
//!
//! Blocks that are changed are little endian: nothing else is ever written. The bytes came from a disk all
//! the same: every link is checked before it is followed, and walks are bounded, so that a damaged leaf is an
//! error and never makes a panic or a loop. A leaf on which a change failed with an error is to be thrown
//! away; `false` and `None` leave it as it was.

use super::leaf::{
    ARRAY_BYTES, CHAIN_END, CHUNK_ARRAY, CHUNK_ENTRY, CHUNK_FREE, CHUNK_SIZE, FLAG_CD_SORTED, HEADER_SIZE,
    LEAF_MAGIC, Leaf, WHAT,
};
use super::{BLOCK_LEAF, ZapValue, block_shift};
use crate::{ByteOrder, Error, Result};

const ORDER: ByteOrder = ByteOrder::Little;

const PREFIX: usize = 16;
const MAGIC: usize = 24;
const FREE_CHUNKS: usize = 28;
const ENTRIES: usize = 30;
const PREFIX_LEN: usize = 32;
const FREE_LIST: usize = 34;
const FLAGS: usize = 36;

/// Offsets in the chunk of an entry.
const NEXT_ENTRY: usize = 2;
const KEY_CHUNK: usize = 4;
const VALUE_CHUNK: usize = 8;
/// Where parts of keys and values, and free chunks, have the link to the next.
const NEXT_PART: usize = CHUNK_SIZE - 2;

/// A key as leaves store it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeafKey {
    bytes: Vec<u8>,
    integers: usize,
}

impl LeafKey {
    /// A name, given without its NUL.
    pub fn name(name: &[u8]) -> LeafKey {
        LeafKey { bytes: [name, &[0]].concat(), integers: name.len() + 1 }
    }

    /// An array of 64-bit integers.
    pub fn words(words: &[u64]) -> LeafKey {
        LeafKey { bytes: words.iter().flat_map(|word| word.to_be_bytes()).collect(), integers: words.len() }
    }
}

/// A value as leaves store it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeafValue {
    bytes: Vec<u8>,
    integer_size: usize,
}

impl LeafValue {
    /// Makes the stored form.
    pub fn new(value: &ZapValue) -> LeafValue {
        let bytes = match value {
            ZapValue::U8(values) => values.clone(),
            ZapValue::U16(values) => values.iter().flat_map(|value| value.to_be_bytes()).collect(),
            ZapValue::U32(values) => values.iter().flat_map(|value| value.to_be_bytes()).collect(),
            ZapValue::U64(values) => values.iter().flat_map(|value| value.to_be_bytes()).collect(),
        };
        LeafValue { bytes, integer_size: value.integer_size() }
    }

    fn integers(&self) -> Result<u16> {
        u16::try_from(self.bytes.len() / self.integer_size).map_err(too_long)
    }
}

/// A value whose bytes may be padded to whole chunks.
struct Stored<'b> {
    bytes: &'b [u8],
    integer_size: u8,
    integers: u16,
}

/// Chunks that an entry takes.
fn chunks_of(key: &LeafKey, value: &LeafValue) -> usize {
    1 + key.bytes.len().div_ceil(ARRAY_BYTES) + value.bytes.len().div_ceil(ARRAY_BYTES)
}

/// A leaf block that is being changed.
#[derive(Debug)]
pub struct LeafMut<'a> {
    block: &'a mut [u8],
    hash_shift: u32,
    chunks: usize,
}

/// Where an entry is.
#[derive(Debug, Clone, Copy)]
struct Found {
    /// Offset in the block of the link that leads to it.
    link: usize,
    chunk: u16,
}

impl<'a> LeafMut<'a> {
    /// Makes `block` an empty leaf for hashes that begin with the `prefix_len` bits of `prefix`. `sorted` is
    /// set in ZAPs that normalise.
    pub fn initialize(
        block: &'a mut [u8],
        prefix: u64,
        prefix_len: u32,
        sorted: bool,
    ) -> Result<LeafMut<'a>> {
        block_shift(WHAT, block)?;
        block.fill(0);
        let mut leaf = LeafMut { hash_shift: 0, chunks: 0, block };
        leaf.put(0, BLOCK_LEAF.to_le_bytes())?;
        leaf.put(MAGIC, LEAF_MAGIC.to_le_bytes())?;
        leaf.put_u16(PREFIX_LEN, prefix_len as u16)?;
        let mut leaf = LeafMut::parse(leaf.block)?;
        leaf.put(PREFIX, prefix.to_le_bytes())?;
        leaf.put(FLAGS, [if sorted { FLAG_CD_SORTED } else { 0 }])?;
        leaf.block[HEADER_SIZE..HEADER_SIZE + (2 << leaf.hash_shift)].fill(0xff);
        let last = leaf.chunks - 1;
        for index in 0..leaf.chunks {
            let at = leaf.chunk(index as u16)?;
            leaf.block[at] = CHUNK_FREE;
            leaf.put_u16(at + NEXT_PART, if index == last { CHAIN_END } else { index as u16 + 1 })?;
        }
        leaf.put_u16(FREE_CHUNKS, leaf.chunks as u16)?;
        Ok(leaf)
    }

    /// Takes up a leaf block.
    pub fn parse(block: &'a mut [u8]) -> Result<LeafMut<'a>> {
        Leaf::parse(block, ORDER)?;
        let hash_shift = block_shift(WHAT, block)? - 5;
        let chunks = (block.len() - HEADER_SIZE - (2 << hash_shift)) / CHUNK_SIZE;
        Ok(LeafMut { block, hash_shift, chunks })
    }

    /// Looks at it.
    pub fn view(&self) -> Result<Leaf<'_>> {
        Leaf::parse(self.block, ORDER)
    }

    /// Number of entries.
    pub fn entry_count(&self) -> Result<u16> {
        self.get_u16(ENTRIES)
    }

    /// Chunks that are free.
    pub fn free_chunks(&self) -> Result<u16> {
        self.get_u16(FREE_CHUNKS)
    }

    /// Whether an entry would fit into an empty leaf of this size.
    pub fn has_room_when_empty(&self, key: &LeafKey, value: &LeafValue) -> bool {
        chunks_of(key, value) <= self.chunks
    }

    /// Adds an entry under a key that is not there. `cd` is the least one that is free unless it is given.
    /// False when the leaf is full.
    pub fn insert(&mut self, hash: u64, cd: Option<u32>, key: &LeafKey, value: &LeafValue) -> Result<bool> {
        let integers = value.integers()?;
        let value = Stored { bytes: &value.bytes, integer_size: value.integer_size as u8, integers };
        self.add(hash, cd, key, value)
    }

    fn add(&mut self, hash: u64, cd: Option<u32>, key: &LeafKey, value: Stored<'_>) -> Result<bool> {
        let needed = 1 + key.bytes.len().div_ceil(ARRAY_BYTES) + value.bytes.len().div_ceil(ARRAY_BYTES);
        if usize::from(self.free_chunks()?) < needed {
            return Ok(false);
        }
        let key_integers = u16::try_from(key.integers).map_err(too_long)?;
        let cd = match cd {
            Some(cd) => cd,
            None => self.free_cd(hash)?,
        };
        let entry = self.allocate()?;
        let at = self.chunk(entry)?;
        let key_chunk = self.store(&key.bytes)?;
        let value_chunk = self.store(value.bytes)?;
        let chunk = &mut self.block[at..at + CHUNK_SIZE];
        chunk[0] = CHUNK_ENTRY;
        chunk[1] = value.integer_size;
        chunk[KEY_CHUNK..6].copy_from_slice(&key_chunk.to_le_bytes());
        chunk[6..8].copy_from_slice(&key_integers.to_le_bytes());
        chunk[VALUE_CHUNK..10].copy_from_slice(&value_chunk.to_le_bytes());
        chunk[10..12].copy_from_slice(&value.integers.to_le_bytes());
        chunk[12..16].copy_from_slice(&cd.to_le_bytes());
        chunk[16..24].copy_from_slice(&hash.to_le_bytes());
        self.link(entry, hash, cd)?;
        let entries = self.entry_count()?.checked_add(1).ok_or_else(|| damaged("too many entries"))?;
        self.put_u16(ENTRIES, entries)?;
        Ok(true)
    }

    /// Gives the entry of this key another value. `None` when there is no such entry, `Some(false)` when the
    /// leaf is too full.
    pub fn update(&mut self, hash: u64, key: &LeafKey, value: &LeafValue) -> Result<Option<bool>> {
        let Some(found) = self.find(hash, key)? else {
            return Ok(None);
        };
        let at = self.chunk(found.chunk)?;
        let old = self.get_u16(at + VALUE_CHUNK)?;
        let needed = value.bytes.len().div_ceil(ARRAY_BYTES);
        if usize::from(self.free_chunks()?) + self.length_of(old)? < needed {
            return Ok(Some(false));
        }
        let integers = value.integers()?;
        self.release_array(old)?;
        let chunk = self.store(&value.bytes)?;
        self.block[at + 1] = value.integer_size as u8;
        self.put_u16(at + VALUE_CHUNK, chunk)?;
        self.put_u16(at + 10, integers)?;
        Ok(Some(true))
    }

    /// Removes the entry of this key; false when there is none.
    pub fn remove(&mut self, hash: u64, key: &LeafKey) -> Result<bool> {
        let Some(found) = self.find(hash, key)? else {
            return Ok(false);
        };
        let at = self.chunk(found.chunk)?;
        let next = self.get_u16(at + NEXT_ENTRY)?;
        let (key_chunk, value_chunk) = (self.get_u16(at + KEY_CHUNK)?, self.get_u16(at + VALUE_CHUNK)?);
        self.put_u16(found.link, next)?;
        self.release_array(value_chunk)?;
        self.release_array(key_chunk)?;
        self.release(found.chunk)?;
        let entries = self.entry_count()?.checked_sub(1).ok_or_else(|| damaged("fewer than no entries"))?;
        self.put_u16(ENTRIES, entries)?;
        Ok(true)
    }

    /// Splits the leaf by the next bit of the hash: entries with the bit set go into `sibling`, a block of
    /// the same size.
    pub fn split(&mut self, sibling: &mut [u8], sorted: bool) -> Result<()> {
        let mut old = self.block.to_vec();
        let old = LeafMut::parse(&mut old)?;
        let view = old.view()?;
        let (prefix, prefix_len) = (view.prefix << 1, view.prefix_len + 1);
        if prefix_len + self.hash_shift > 64 {
            return Err(damaged("no bits of the hash left to split by"));
        }
        let sorted = sorted || self.block[FLAGS] & FLAG_CD_SORTED != 0;
        let bit = 1u64 << (64 - prefix_len);
        let mut high = LeafMut::initialize(sibling, prefix | 1, prefix_len, sorted)?;
        let mut low = LeafMut::initialize(&mut *self.block, prefix, prefix_len, sorted)?;
        for entry in view.entries() {
            let entry = entry?;
            // Whole chunks: only the ZAP knows whether the integers of a key are bytes or words.
            let key = LeafKey { bytes: old.payload(entry.key_chunk)?, integers: entry.key_integers.into() };
            let value = Stored {
                bytes: &old.payload(entry.value_chunk)?,
                integer_size: entry.integer_size,
                integers: entry.integers,
            };
            let half = if entry.hash & bit == 0 { &mut low } else { &mut high };
            if !half.add(entry.hash, Some(entry.cd), &key, value)? {
                return Err(damaged("entries that do not fit"));
            }
        }
        Ok(())
    }

    /// Makes an empty leaf that of one bit less of prefix, after its empty sibling is gone.
    pub fn widen(&mut self) -> Result<()> {
        let view = self.view()?;
        let (prefix, prefix_len) = (view.prefix, view.prefix_len);
        if prefix_len == 0 || self.entry_count()? != 0 {
            return Err(damaged("a leaf that cannot take its sibling's place"));
        }
        self.put(PREFIX, (prefix >> 1).to_le_bytes())?;
        self.put_u16(PREFIX_LEN, prefix_len as u16 - 1)
    }

    /// Offset of a bucket's head.
    fn bucket(&self, hash: u64) -> Result<usize> {
        let shift = 64 - self.hash_shift - u32::from(self.get_u16(PREFIX_LEN)?);
        let index = hash.checked_shr(shift).unwrap_or(0) as usize & ((1 << self.hash_shift) - 1);
        Ok(HEADER_SIZE + 2 * index)
    }

    /// Visits the chain of a hash's bucket: (offset of the link, chunk, its offset) of each entry, until
    /// `visit` says true.
    fn walk(
        &self,
        hash: u64,
        mut visit: impl FnMut(&Self, usize, u16, usize) -> Result<bool>,
    ) -> Result<Option<Found>> {
        let mut link = self.bucket(hash)?;
        for _ in 0..=self.chunks {
            let chunk = self.get_u16(link)?;
            if chunk == CHAIN_END {
                return Ok(None);
            }
            let at = self.chunk(chunk)?;
            if self.block[at] != CHUNK_ENTRY {
                return Err(damaged("a chain of entries with other chunks in it"));
            }
            if visit(self, link, chunk, at)? {
                return Ok(Some(Found { link, chunk }));
            }
            link = at + NEXT_ENTRY;
        }
        Err(damaged("a chain of entries that loops"))
    }

    fn find(&self, hash: u64, key: &LeafKey) -> Result<Option<Found>> {
        self.walk(hash, |leaf, _, _, at| {
            let same = leaf.get(at + 16)? == hash.to_le_bytes()
                && usize::from(leaf.get_u16(at + 6)?) == key.integers
                && leaf.array_is(leaf.get_u16(at + KEY_CHUNK)?, &key.bytes)?;
            Ok(same)
        })
    }

    fn array_is(&self, mut chunk: u16, bytes: &[u8]) -> Result<bool> {
        for piece in bytes.chunks(ARRAY_BYTES) {
            let at = self.chunk(chunk)?;
            if self.block[at] != CHUNK_ARRAY {
                return Err(damaged("a key with other chunks in it"));
            }
            if !self.block[at + 1..].starts_with(piece) {
                return Ok(false);
            }
            chunk = self.get_u16(at + NEXT_PART)?;
        }
        Ok(true)
    }

    /// The least cd that no entry of this hash has.
    fn free_cd(&self, hash: u64) -> Result<u32> {
        let mut used = Vec::new();
        self.walk(hash, |leaf, _, _, at| {
            if leaf.get(at + 16)? == hash.to_le_bytes() {
                used.push(u32::from_le_bytes(leaf.get(at + 12)?));
            }
            Ok(false)
        })?;
        used.sort_unstable();
        let mut free = 0;
        for cd in used {
            if cd == free {
                free += 1;
            }
        }
        Ok(free)
    }

    /// Puts an entry into its chain, after all with a cd that is not greater.
    fn link(&mut self, entry: u16, hash: u64, cd: u32) -> Result<()> {
        let mut place = self.bucket(hash)?;
        self.walk(hash, |leaf, link, _, at| {
            let after = u32::from_le_bytes(leaf.get(at + 12)?) > cd;
            place = if after { link } else { at + NEXT_ENTRY };
            Ok(after)
        })?;
        let next = self.get_u16(place)?;
        let at = self.chunk(entry)?;
        self.put_u16(at + NEXT_ENTRY, next)?;
        self.put_u16(place, entry)
    }

    /// Takes a chunk off the free list.
    fn allocate(&mut self) -> Result<u16> {
        let chunk = self.get_u16(FREE_LIST)?;
        let at = self.chunk(chunk)?;
        if self.block[at] != CHUNK_FREE {
            return Err(damaged("a list of free chunks with others in it"));
        }
        let free = self.free_chunks()?.checked_sub(1).ok_or_else(|| damaged("fewer than no free chunks"))?;
        let next = self.get_u16(at + NEXT_PART)?;
        self.put_u16(FREE_LIST, next)?;
        self.put_u16(FREE_CHUNKS, free)?;
        Ok(chunk)
    }

    fn release(&mut self, chunk: u16) -> Result<()> {
        let at = self.chunk(chunk)?;
        let free = self.free_chunks()?;
        if self.block[at] == CHUNK_FREE || usize::from(free) >= self.chunks {
            return Err(damaged("a chunk that is free already"));
        }
        let next = self.get_u16(FREE_LIST)?;
        self.block[at..at + CHUNK_SIZE].fill(0);
        self.block[at] = CHUNK_FREE;
        self.put_u16(at + NEXT_PART, next)?;
        self.put_u16(FREE_LIST, chunk)?;
        self.put_u16(FREE_CHUNKS, free + 1)
    }

    /// The chunks of an array, in their order.
    fn array(&self, mut chunk: u16) -> Result<Vec<u16>> {
        let mut found = Vec::new();
        while chunk != CHAIN_END {
            let at = self.chunk(chunk)?;
            if self.block[at] != CHUNK_ARRAY || found.len() > self.chunks {
                return Err(damaged("a key or value with other chunks in it"));
            }
            found.push(chunk);
            chunk = self.get_u16(at + NEXT_PART)?;
        }
        Ok(found)
    }

    /// All bytes in the chunks of an array, those behind its end too.
    fn payload(&self, chunk: u16) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        for chunk in self.array(chunk)? {
            let at = self.chunk(chunk)?;
            bytes.extend_from_slice(&self.block[at + 1..at + NEXT_PART]);
        }
        Ok(bytes)
    }

    fn length_of(&self, chunk: u16) -> Result<usize> {
        Ok(self.array(chunk)?.len())
    }

    /// Gives the chunks of an array back so that they are taken again in their order.
    fn release_array(&mut self, chunk: u16) -> Result<()> {
        self.array(chunk)?.into_iter().rev().try_for_each(|chunk| self.release(chunk))
    }

    /// Stores a key or a value; gives its first chunk.
    fn store(&mut self, bytes: &[u8]) -> Result<u16> {
        let mut first = CHAIN_END;
        let mut link = None;
        for piece in bytes.chunks(ARRAY_BYTES) {
            let chunk = self.allocate()?;
            let at = self.chunk(chunk)?;
            self.block[at..at + CHUNK_SIZE].fill(0);
            self.block[at] = CHUNK_ARRAY;
            self.block[at + 1..at + 1 + piece.len()].copy_from_slice(piece);
            self.put_u16(at + NEXT_PART, CHAIN_END)?;
            match link {
                None => first = chunk,
                Some(link) => self.put_u16(link, chunk)?,
            }
            link = Some(at + NEXT_PART);
        }
        Ok(first)
    }

    /// Offset of a chunk, which lies within the block.
    fn chunk(&self, index: u16) -> Result<usize> {
        let index = usize::from(index);
        if index >= self.chunks {
            return Err(Error::invalid(WHAT, format!("chunk {index} of {}", self.chunks)));
        }
        Ok(HEADER_SIZE + (2 << self.hash_shift) + index * CHUNK_SIZE)
    }

    fn get<const N: usize>(&self, at: usize) -> Result<[u8; N]> {
        let found = self.block.get(at..).and_then(|rest| rest.first_chunk());
        found.copied().ok_or_else(|| damaged("a link that leads out of it"))
    }

    fn get_u16(&self, at: usize) -> Result<u16> {
        Ok(u16::from_le_bytes(self.get(at)?))
    }

    fn put<const N: usize>(&mut self, at: usize, bytes: [u8; N]) -> Result<()> {
        let place = self.block.get_mut(at..).and_then(|rest| rest.first_chunk_mut());
        *place.ok_or_else(|| damaged("a link that leads out of it"))? = bytes;
        Ok(())
    }

    fn put_u16(&mut self, at: usize, value: u16) -> Result<()> {
        self.put(at, value.to_le_bytes())
    }
}

fn too_long(_: std::num::TryFromIntError) -> Error {
    Error::TooLarge { what: "ZAP entry", limit: u16::MAX.into() }
}

fn damaged(detail: &str) -> Error {
    Error::invalid(WHAT, detail)
}
