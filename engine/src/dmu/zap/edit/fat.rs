//! Fat ZAPs: leaves that split, and the pointer table that leads to them.
//!
//! Block 0 is the header, which has space for a small pointer table; block 1 is the first leaf. `free_block`
//! is the source of new blocks: leaves, and pointer tables once the header is too small. A leaf of prefix
//! length n has `2^(shift - n)` neighbouring pointers. To split, it gives the upper half of them to a new
//! leaf; if it has only one, the table is doubled first. OpenZFS doubles a table step by step over many
//! changes; this code finishes a table that is found half-way at once, as it never has more than a few
//! blocks.
//!
//! The table never uses all bits of the hash. More names of equal hash than one leaf can hold are refused,
//! before the table grows in vain.

use std::collections::BTreeMap;

use ondisk::zap::{FatHeader, Leaf, LeafKey, LeafMut, LeafValue, PointerPlace, PointerTable, ZapFlags};
use ondisk::{BlockId, ByteOrder};

use super::draft::{Draft, Peek, Source};
use super::micro::first_leaf;
use crate::dmu::zap::normalize::NameRules;
use crate::dmu::zap::{Key, Value};
use crate::error::{Error, Result};

const ORDER: ByteOrder = ByteOrder::Little;
/// The number of bits of the hash that the pointer table leaves unused.
const SPARE_HASH_BITS: u32 = 2;

/// The header of a fat ZAP during a change.
pub(super) struct Fat {
    pub(super) header: FatHeader,
    pub(super) rules: NameRules,
}

impl Fat {
    /// Makes the ZAP a fat ZAP without entries.
    pub(super) fn create<S: Source>(
        draft: &mut Draft<'_, S>,
        salt: u64,
        normalization: u64,
        flags: ZapFlags,
    ) -> Result<Fat> {
        let size = draft.block_bytes;
        if !size.is_power_of_two() || size < 512 {
            return Err(Error::Invalid(format!("{}: blocks of {size} bytes", draft.source.describe())));
        }
        let rules = super::draft::rules(draft.source, normalization)?;
        let block_shift = size.trailing_zeros();
        let none = BlockId(0);
        let header = FatHeader {
            block_shift,
            order: ORDER,
            table: PointerTable {
                block: none,
                blocks: 0,
                shift: block_shift - 4,
                next_block: none,
                blocks_copied: 0,
            },
            free_block: BlockId(2),
            leaves: 1,
            entries: 0,
            salt,
            normalization,
            flags,
        };
        let pointers = vec![1; 1 << header.table.shift];
        let block = header.encode(&pointers).map_err(|error| draft.corrupt(error))?;
        draft.write(0, device::IoBuf::from(&*block));
        first_leaf(draft.fresh(1), normalization != 0).map_err(|error| draft.corrupt(error))?;
        Ok(Fat { header, rules })
    }

    fn hash<S: Source>(&self, draft: &Draft<'_, S>, key: &Key) -> Result<u64> {
        let words = self.header.flags.contains(ZapFlags::UINT64_KEY);
        match key {
            Key::Name(name) if !words && self.rules.is_exact() => Ok(self.header.hash_name(name)),
            Key::Name(name) if !words => Ok(self.header.hash_name(&self.rules.prepare(name))),
            Key::Words(key) if words => Ok(self.header.hash_words(key)),
            _ => Err(Error::Invalid(format!("{}: a key of the other kind", draft.source.describe()))),
        }
    }

    /// The value under a key.
    pub(super) async fn lookup<S: Source>(&self, draft: &Draft<'_, S>, key: &Key) -> Result<Option<Value>> {
        let hash = self.hash(draft, key)?;
        let (_, block) = self.leaf(draft, hash).await?;
        let found = Leaf::parse(&block, ORDER).and_then(|leaf| {
            let entry = match key {
                Key::Name(name) => leaf.lookup(hash, name)?,
                Key::Words(words) => leaf.lookup_words(hash, words)?,
            };
            entry.map(|entry| entry.value()).transpose()
        });
        found.map_err(|error| draft.corrupt(error))
    }

    /// The leaves of keys: of each, its block, and the numbers and hashes of its keys.
    pub(super) async fn leaves_of<S: Source>(
        &self,
        draft: &Draft<'_, S>,
        keys: &[Key],
    ) -> Result<BTreeMap<u64, Vec<(usize, u64)>>> {
        let mut leaves: BTreeMap<u64, Vec<(usize, u64)>> = BTreeMap::new();
        let mut table: Option<(BlockId, Peek<'_>)> = None;
        for (number, key) in keys.iter().enumerate() {
            let hash = self.hash(draft, key)?;
            let place = self.header.pointer(hash);
            let block = match table.take_if(|(id, _)| *id == place.block) {
                Some((_, block)) => block,
                None => draft.peek(place.block.0).await?,
            };
            let leaf = self.header.leaf_at(&block, place).map_err(|error| draft.corrupt(error))?;
            leaves.entry(leaf.0).or_default().push((number, hash));
            table = Some((place.block, block));
        }
        Ok(leaves)
    }

    /// The values under keys of one leaf, with the numbers of the keys.
    pub(super) async fn lookup_in<S: Source>(
        &self,
        draft: &Draft<'_, S>,
        id: u64,
        of_leaf: Vec<(usize, u64)>,
        keys: &[Key],
    ) -> Result<Vec<(usize, Option<Value>)>> {
        let block = draft.peek(id).await?;
        let leaf = Leaf::parse(&block, ORDER).map_err(|error| draft.corrupt(error))?;
        let mut found = Vec::with_capacity(of_leaf.len());
        for (number, hash) in of_leaf {
            self.check_leaf(draft, (id, &leaf), hash)?;
            let entry = match keys.get(number) {
                Some(Key::Name(name)) => leaf.lookup(hash, name),
                Some(Key::Words(words)) => leaf.lookup_words(hash, words),
                None => Ok(None),
            };
            let value = entry.and_then(|entry| entry.map(|entry| entry.value()).transpose());
            found.push((number, value.map_err(|error| draft.corrupt(error))?));
        }
        Ok(found)
    }

    /// Adds an entry, or changes it if `replace`. Returns false when it exists and must stay.
    pub(super) async fn put<S: Source>(
        &mut self,
        draft: &mut Draft<'_, S>,
        key: &Key,
        value: &Value,
        cd: Option<u32>,
        replace: bool,
    ) -> Result<bool> {
        let hash = self.hash(draft, key)?;
        let exists = self.lookup(draft, key).await?.is_some();
        if exists && !replace {
            return Ok(false);
        }
        let leaf_key = stored_key(key);
        let leaf_value = LeafValue::new(value);
        loop {
            let (id, _) = self.leaf(draft, hash).await?;
            let block = draft.edit(id).await?;
            let done = LeafMut::parse(block).and_then(|mut leaf| {
                if !leaf.has_room_when_empty(&leaf_key, &leaf_value) {
                    return Ok(None);
                }
                let done = if exists {
                    leaf.update(hash, &leaf_key, &leaf_value)?.unwrap_or(false)
                } else {
                    leaf.insert(hash, cd, &leaf_key, &leaf_value)?
                };
                Ok(Some(done))
            });
            match done.map_err(|error| draft.corrupt(error))? {
                Some(true) => break,
                Some(false) => self.split(draft, id, hash).await?,
                None => {
                    let what = draft.source.describe();
                    return Err(Error::Invalid(format!("{what}: an entry larger than a block")));
                }
            }
        }
        if !exists {
            self.header.entries += 1;
            self.store(draft).await?;
        }
        Ok(true)
    }

    /// Removes an entry; returns false when it does not exist.
    pub(super) async fn remove<S: Source>(&mut self, draft: &mut Draft<'_, S>, key: &Key) -> Result<bool> {
        if self.lookup(draft, key).await?.is_none() {
            return Ok(false);
        }
        let hash = self.hash(draft, key)?;
        let (id, _) = self.leaf(draft, hash).await?;
        let block = draft.edit(id).await?;
        let left = LeafMut::parse(block).and_then(|mut leaf| {
            leaf.remove(hash, &stored_key(key))?;
            leaf.entry_count()
        });
        let left = left.map_err(|error| draft.corrupt(error))?;
        let fewer = self.header.entries.checked_sub(1);
        self.header.entries = fewer.ok_or_else(|| draft.corrupt("more entries than it counts"))?;
        if left == 0 {
            self.collapse(draft, hash).await?;
        }
        self.store(draft).await?;
        Ok(true)
    }

    /// Writes the header's fields into block 0.
    async fn store<S: Source>(&self, draft: &mut Draft<'_, S>) -> Result<()> {
        let block = draft.edit(0).await?;
        self.header.store(block).map_err(Error::format("ZAP header"))
    }

    /// The leaf of a hash.
    async fn leaf<'d, S: Source>(&self, draft: &'d Draft<'_, S>, hash: u64) -> Result<(u64, Peek<'d>)> {
        let id = self.pointer(draft, self.header.pointer(hash)).await?;
        let block = draft.peek(id).await?;
        let leaf = Leaf::parse(&block, ORDER).map_err(|error| draft.corrupt(error))?;
        self.check_leaf(draft, (id, &leaf), hash)?;
        Ok((id, block))
    }

    /// Refuses a leaf that is not that of a hash.
    fn check_leaf<S: Source>(
        &self,
        draft: &Draft<'_, S>,
        (id, leaf): (u64, &Leaf<'_>),
        hash: u64,
    ) -> Result<()> {
        let prefix = hash.checked_shr(64 - leaf.prefix_len).unwrap_or(0);
        if leaf.prefix_len > self.header.table.shift || leaf.prefix != prefix {
            return Err(draft.corrupt(format!("block {id} is not the leaf for hash {hash:#018x}")));
        }
        Ok(())
    }

    async fn pointer<S: Source>(&self, draft: &Draft<'_, S>, place: PointerPlace) -> Result<u64> {
        let block = draft.peek(place.block.0).await?;
        let leaf = self.header.leaf_at(&block, place).map_err(|error| draft.corrupt(error))?;
        Ok(leaf.0)
    }

    /// The place of the pointer with this number.
    fn place(&self, index: u64) -> PointerPlace {
        self.header.pointer(index << (64 - self.header.table.shift))
    }

    fn take_blocks<S: Source>(&mut self, draft: &Draft<'_, S>, count: u64) -> Result<u64> {
        let first = self.header.free_block.0;
        let end = first.checked_add(count).filter(|end| *end < 1 << 40);
        self.header.free_block = BlockId(end.ok_or_else(|| draft.corrupt("no blocks left"))?);
        Ok(first)
    }

    /// Splits a full leaf in two.
    async fn split<S: Source>(&mut self, draft: &mut Draft<'_, S>, id: u64, hash: u64) -> Result<()> {
        let usable_bits = self.header.flags.hash_bits() - SPARE_HASH_BITS;
        let (prefix, prefix_len) = {
            let block = draft.peek(id).await?;
            let leaf = Leaf::parse(&block, ORDER).map_err(|error| draft.corrupt(error))?;
            let same = |other: u64| other >> (64 - usable_bits) == hash >> (64 - usable_bits);
            let mut others = leaf.entries().filter_map(Result::ok);
            if leaf.prefix_len >= usable_bits || others.all(|entry| same(entry.hash)) {
                let what = draft.source.describe();
                return Err(Error::NoSpace(format!("{what}: too many keys of the same hash")));
            }
            (leaf.prefix, leaf.prefix_len)
        };
        while self.header.table.next_block.0 != 0 || self.header.table.shift <= prefix_len {
            self.grow(draft).await?;
        }
        // The pointers of the upper half, which all lead to this leaf.
        let count = 1u64 << (self.header.table.shift - (prefix_len + 1));
        let first = (prefix << 1 | 1) * count;
        let sibling = self.take_blocks(draft, 1)?;
        self.header.leaves += 1;
        let sorted = self.header.normalization != 0;
        let mut new = device::IoBuf::zeroed(draft.block_bytes as usize);
        let old = draft.edit(id).await?;
        let done = LeafMut::parse(old).and_then(|mut leaf| leaf.split(&mut new, sorted));
        done.map_err(|error| draft.corrupt(error))?;
        draft.write(sibling, new);
        self.point(draft, first..first + count, id, sibling).await?;
        self.store(draft).await
    }

    /// Changes pointers that lead to block `from`, so that they lead to block `to`.
    async fn point<S: Source>(
        &self,
        draft: &mut Draft<'_, S>,
        pointers: std::ops::Range<u64>,
        from: u64,
        to: u64,
    ) -> Result<()> {
        let mut next = pointers.start;
        while next < pointers.end {
            let place = self.place(next);
            let block = draft.edit(place.block.0).await?;
            let rest = block.get_mut(place.offset..).unwrap_or_default().as_chunks_mut::<8>().0;
            let wanted = usize::try_from(pointers.end - next).unwrap_or(usize::MAX);
            let here = rest.len().min(wanted);
            if here == 0 || rest[..here].iter().any(|pointer| u64::from_le_bytes(*pointer) != from) {
                return Err(draft.corrupt(format!("block {from} has not the pointers that its prefix says")));
            }
            rest[..here].fill(to.to_le_bytes());
            next += here as u64;
        }
        Ok(())
    }

    /// Doubles the pointer table.
    async fn grow<S: Source>(&mut self, draft: &mut Draft<'_, S>) -> Result<()> {
        let old = self.header.table;
        let half = draft.block_bytes as usize / 2;
        if old.blocks == 0 {
            let new = self.take_blocks(draft, 1)?;
            let first = draft.edit(0).await?;
            let pointers = first[half..].to_vec();
            first[half..].fill(0);
            double(&pointers, draft.fresh(new));
            self.header.table = PointerTable { block: BlockId(new), blocks: 1, shift: old.shift + 1, ..old };
        } else {
            let new = match old.next_block.0 {
                0 => self.take_blocks(draft, old.blocks * 2)?,
                begun => begun,
            };
            for part in old.blocks_copied..old.blocks {
                let block = draft.peek(old.block.0 + part).await?.to_vec();
                let (low, high) = block.split_at(half);
                double(low, draft.fresh(new + 2 * part));
                double(high, draft.fresh(new + 2 * part + 1));
            }
            draft.free(old.block.0..old.block.0 + old.blocks);
            self.header.table = PointerTable {
                block: BlockId(new),
                blocks: old.blocks * 2,
                shift: old.shift + 1,
                next_block: BlockId(0),
                blocks_copied: 0,
            };
        }
        self.store(draft).await
    }

    /// Joins the empty leaf of `hash` with its sibling, while the sibling is empty too.
    async fn collapse<S: Source>(&mut self, draft: &mut Draft<'_, S>, hash: u64) -> Result<()> {
        if self.header.table.next_block.0 != 0 {
            return Ok(());
        }
        loop {
            let (id, prefix, prefix_len) = {
                let (id, block) = self.leaf(draft, hash).await?;
                let leaf = Leaf::parse(&block, ORDER).map_err(|error| draft.corrupt(error))?;
                (id, leaf.prefix, leaf.prefix_len)
            };
            if prefix_len == 0 {
                return Ok(());
            }
            let count = 1u64 << (self.header.table.shift - prefix_len);
            let sibling_first = (prefix ^ 1) * count;
            let sibling = {
                let id = self.pointer(draft, self.place(sibling_first)).await?;
                let block = draft.peek(id).await?;
                let leaf = Leaf::parse(&block, ORDER).map_err(|error| draft.corrupt(error))?;
                if leaf.prefix_len != prefix_len || leaf.entry_count != 0 {
                    return Ok(());
                }
                if leaf.prefix != prefix ^ 1 {
                    return Err(draft.corrupt(format!("block {id} is not the leaf that it should be")));
                }
                id
            };
            let (kept, gone) = if prefix & 1 == 0 { (id, sibling) } else { (sibling, id) };
            let upper = (prefix | 1) * count;
            self.point(draft, upper..upper + count, gone, kept).await?;
            let block = draft.edit(kept).await?;
            let widened = LeafMut::parse(block).and_then(|mut leaf| leaf.widen());
            widened.map_err(|error| draft.corrupt(error))?;
            draft.free(gone..gone + 1);
            if gone + 1 == self.header.free_block.0 {
                self.header.free_block = BlockId(gone);
            }
            self.header.leaves = self.header.leaves.saturating_sub(1);
        }
    }
}

fn stored_key(key: &Key) -> LeafKey {
    match key {
        Key::Name(name) => LeafKey::name(name),
        Key::Words(words) => LeafKey::words(words),
    }
}

/// Each pointer twice.
fn double(pointers: &[u8], into: &mut [u8]) {
    let pairs = into.as_chunks_mut::<16>().0;
    for (pair, pointer) in pairs.iter_mut().zip(pointers.as_chunks::<8>().0) {
        pair[..8].copy_from_slice(pointer);
        pair[8..].copy_from_slice(pointer);
    }
}
