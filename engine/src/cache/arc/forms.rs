//! The forms in which a block is kept: as it is, compressed, or both.
//!
//! # The idea
//! A compressed block takes less memory, and each hit of it costs a decompression. So a block that came in
//! compressed is kept in both forms as long as there is room. When room is needed, three things can go:
//!
//! | what goes | what it costs | when |
//! |---|---|---|
//! | the compressed form of a block | the block cannot become small again | all blocks fit decompressed |
//! | the decompressed copy | the next hit decompresses | it is worth less than the next block to evict |
//! | a block | the next read loads it | else |
//!
//! The first line is for a working set that fits: it ends up decompressed, as if nothing were compressed. It
//! applies when no block was evicted for a while. In a set that does not fit, there is always one.
//!
//! A copy saves the time of a decompression, which grows with its size. A block saves the time of a read from
//! the pool, about the same for all sizes. Each is used about once in the time since its last use. So the
//! copy is worth more for its memory where its age, times the bytes that could be decompressed in the time of
//! a read ([`READ_WORTH_BYTES`]), is less than the age of the block times its memory.
//!
//! A copy that is new says nothing by its age. It is worth something only if its block was used shortly
//! before, which is known when a hit decompresses it, or if it was used itself since it came
//! ([`COPY_PROVEN`]).
//!
//! # Invariants
//! - A block is in `copies` exactly when it is kept in both forms.
//! - The memory of a copy counts in [`Copies::bytes`], all other memory of a block in its list.
//! - A block that waits for a cache device keeps its compressed form until the device has it.
//! - Nothing is decompressed under the lock of a shard. Two readers may decompress the same block at the same
//!   time; the copy of the first one stays.

use std::sync::Arc;

use super::shard::{COPY_PROVEN, COPY_USED, Freed, NIL, Shard, kind_of};
use super::{ArcCache, Key, NODE_BYTES};
use crate::cache::{Block, Candidate, Loaded, Packed, Retain};

#[cfg(test)]
mod tests;

/// The bytes of data and of metadata that are as dear to decompress as a block is to read from the pool: of
/// data with lz4, 1 MiB takes 0.4 ms. Metadata is decompressed on the way to data whose own reads overlap. So
/// what counts is the processor's time, which is the same for a read and for an indirect block of 128K.
const READ_WORTH_BYTES: [u128; 2] = [1 << 20, 128 << 10];
/// No block was evicted for a while: for so many accesses to each block.
const CALM_ACCESSES: u64 = 4;
/// Copies among which the one that is dropped is chosen.
const COPIES_TO_CHOOSE_FROM: usize = 8;

/// What a node keeps of a block: one of its two forms at least.
pub(super) struct Kept {
    /// As it is.
    pub(super) plain: Option<Block>,
    /// Compressed.
    pub(super) packed: Option<Arc<Packed>>,
    /// What it takes to write it to a cache device, if one may get it.
    pub(super) candidate: Option<Box<Candidate>>,
}

/// The same, as it lies in the node.
#[derive(Clone, Copy)]
pub(super) struct KeptRef<'a> {
    pub(super) plain: Option<&'a Block>,
    pub(super) packed: Option<&'a Arc<Packed>>,
    pub(super) candidate: Option<&'a Candidate>,
}

/// What a hit finds.
pub(super) enum Found {
    /// The block.
    Plain(Block),
    /// Only its compressed form.
    Packed(Arc<Packed>),
}

/// The decompressed copies of a shard, linked in the order in which they came; those that are used get a
/// second chance.
pub(super) struct Copies {
    newest: u32,
    oldest: u32,
    /// Their memory: of data, and of metadata.
    pub(super) bytes: [usize; 2],
}

impl Default for Copies {
    fn default() -> Self {
        Self { newest: NIL, oldest: NIL, bytes: [0; 2] }
    }
}

impl Copies {
    pub(super) fn total_bytes(&self) -> usize {
        self.bytes.iter().sum()
    }
}

impl From<Loaded> for Kept {
    fn from(Loaded { block, packed, candidate }: Loaded) -> Self {
        Self { plain: Some(block), packed, candidate }
    }
}

impl Kept {
    fn by_ref(&self) -> KeptRef<'_> {
        KeptRef {
            plain: self.plain.as_ref(),
            packed: self.packed.as_ref(),
            candidate: self.candidate.as_deref(),
        }
    }

    /// The form that a reader gets of a block that leaves the cache.
    pub(super) fn into_found(self) -> Option<Found> {
        self.plain.map(Found::Plain).or(self.packed.map(Found::Packed))
    }

    pub(super) fn has_copy(&self) -> bool {
        self.by_ref().has_copy()
    }

    pub(super) fn copy_bytes(&self) -> usize {
        self.by_ref().copy_bytes()
    }

    pub(super) fn bytes(&self) -> usize {
        self.by_ref().bytes()
    }

    pub(super) fn plain_bytes(&self) -> usize {
        self.by_ref().plain_bytes()
    }

    pub(super) fn physical_bytes(&self) -> usize {
        self.by_ref().physical_bytes()
    }
}

impl<'a> KeptRef<'a> {
    /// Its bytes as a cache device gets them, if it may get them.
    pub(super) fn physical(self) -> Option<&'a Block> {
        let candidate = self.candidate?;
        let bytes = match candidate.is_encrypted {
            true => candidate.physical.as_ref()?,
            false => {
                candidate.physical.as_ref().or(self.packed.map(|packed| packed.bytes())).or(self.plain)?
            }
        };
        (bytes.len() as u64 == candidate.psize).then_some(bytes)
    }

    /// Whether there are both forms.
    pub(super) fn has_copy(self) -> bool {
        self.plain.is_some() && self.packed.is_some()
    }

    /// The memory of the copy, where there are both forms.
    pub(super) fn copy_bytes(self) -> usize {
        self.plain.filter(|_| self.packed.is_some()).map_or(0, Block::memory_bytes)
    }

    /// The memory without that of the copy.
    pub(super) fn bytes(self) -> usize {
        let of_form = match (self.packed, self.plain) {
            (Some(packed), _) => packed.memory_bytes(),
            (None, plain) => plain.map_or(0, Block::memory_bytes),
        };
        of_form + self.physical_bytes()
    }

    /// The memory that it would take if it were kept decompressed only.
    pub(super) fn plain_bytes(self) -> usize {
        match (self.packed, self.plain) {
            (Some(packed), _) => packed.plain_memory_bytes(),
            (None, plain) => plain.map_or(0, Block::memory_bytes),
        }
    }

    /// The memory of what is there for a cache device alone.
    pub(super) fn physical_bytes(self) -> usize {
        self.candidate.map_or(0, Candidate::memory_bytes)
    }
}

impl ArcCache {
    /// The block that a hit found, decompressed. Nothing if that fails: the block has left the cache then.
    pub(super) fn opened(&self, hash: u64, key: &Key, found: Found, retain: Retain) -> Option<Block> {
        let packed = match found {
            Found::Plain(block) => return Some(block),
            Found::Packed(packed) => packed,
        };
        let block = packed.unpack();
        let mut shard = self.shard(hash);
        let freed = match &block {
            // It left with this read.
            Some(_) if retain == Retain::Out => Freed::default(),
            Some(block) => shard.add_copy(hash, key, &packed, block),
            None => shard.remove_damaged(hash, key, &packed),
        };
        drop(shard);
        // Freed outside of the lock.
        self.note_evicted(&freed);
        drop(freed);
        block
    }
}

impl Shard {
    /// Keeps the decompressed copy of a block, if the block is still kept in that compressed form alone.
    fn add_copy(&mut self, hash: u64, key: &Key, packed: &Arc<Packed>, block: &Block) -> Freed {
        let mut freed = Freed::default();
        let Some(index) = self.find_packed(hash, key, packed) else { return freed };
        self.change(index, |kept| kept.plain = Some(block.clone()));
        self.link_copy(index);
        self.make_room(index, &mut freed);
        freed
    }

    /// Removes a block whose compressed form is damaged.
    fn remove_damaged(&mut self, hash: u64, key: &Key, packed: &Arc<Packed>) -> Freed {
        let mut freed = Freed::default();
        if self.find_packed(hash, key, packed).is_some() {
            freed.evicted.extend(self.remove(hash, key).map(|(_, kept)| kept));
        }
        freed
    }

    /// The node of a block that is kept in this compressed form alone.
    fn find_packed(&self, hash: u64, key: &Key, packed: &Arc<Packed>) -> Option<u32> {
        let index = self.find(hash, key)?;
        let kept = self.kept(index)?;
        let is_it = |own: &Arc<Packed>| kept.plain.is_none() && Arc::ptr_eq(own, packed);
        kept.packed.is_some_and(is_it).then_some(index)
    }

    /// Drops a form of some block. False when a block has to be evicted instead: `victim`, if there is one.
    pub(super) fn drop_form(&mut self, victim: Option<u32>, freed: &mut Freed) -> bool {
        if self.fits_plain() && self.drop_packed(freed) {
            return true;
        }
        let Some(copy) = self.least_copy() else { return false };
        if victim.is_some_and(|victim| self.is_worth_more(copy, victim)) {
            return false;
        }
        self.unlink_copy(copy);
        self.nodes[copy as usize].unmark(COPY_PROVEN);
        let dropped = self.change(copy, |kept| kept.plain.take());
        freed.copies.extend(dropped.flatten());
        true
    }

    /// Whether all blocks fit decompressed, and have done so for a while.
    fn fits_plain(&self) -> bool {
        let blocks = self.blocks();
        let is_calm = |evicted_at: u64| self.accesses - evicted_at > CALM_ACCESSES * blocks;
        self.plain_bytes + self.physical_bytes + blocks as usize * NODE_BYTES <= self.budget
            && self.evicted_at.is_none_or(is_calm)
    }

    /// Drops the compressed form of the block that came last of those with both forms. It is the last one
    /// that would be missed.
    fn drop_packed(&mut self, freed: &mut Freed) -> bool {
        let index = self.copies.newest;
        let may_go = |kept: KeptRef<'_>| kept.has_copy() && kept.candidate.is_none();
        if index == NIL || !self.kept(index).is_some_and(may_go) {
            return false;
        }
        self.unlink_copy(index);
        let dropped = self.change(index, |kept| kept.packed.take());
        freed.packed.extend(dropped.flatten());
        true
    }

    /// Whether the copy is worth more for its memory than the block.
    fn is_worth_more(&self, copy: u32, block: u32) -> bool {
        self.staleness(copy) < self.freshness(block)
    }

    /// The less a copy is worth for its memory, the more.
    fn staleness(&self, copy: u32) -> u128 {
        match self.nodes[copy as usize].is(COPY_PROVEN) {
            true => self.staleness_by_age(copy),
            false => u128::MAX,
        }
    }

    /// The staleness of a copy that is used about once in the time since the last use of its block.
    fn staleness_by_age(&self, index: u32) -> u128 {
        u128::from(self.age(index)) * READ_WORTH_BYTES[kind_of(&self.nodes[index as usize].key)]
    }

    /// How much a copy is worth at least that is kept in place of a block.
    fn freshness(&self, block: u32) -> u128 {
        u128::from(self.age(block)) * self.rests[block as usize].bytes as u128
    }

    /// Whether a block that is kept compressed alone was used so shortly before that a copy of it is worth
    /// more than the next block to evict. To be asked before its use is noted.
    pub(super) fn deserves_copy(&self, index: u32) -> bool {
        let victim = self.victim(index);
        victim.is_none_or(|victim| self.staleness_by_age(index) < self.freshness(victim))
    }

    /// The copy that is worth least, of the few at the old end. Those that were used go to the other end.
    fn least_copy(&mut self) -> Option<u32> {
        let mut next = self.copies.oldest;
        let mut least = None;
        for _ in 0..COPIES_TO_CHOOSE_FROM {
            if next == NIL {
                break;
            }
            let copy = next;
            next = self.rests[copy as usize].newer_copy;
            let staleness = self.staleness(copy);
            if least.is_none_or(|(most, _)| staleness > most) {
                least = Some((staleness, copy));
            }
            if self.nodes[copy as usize].unmark(COPY_USED) {
                self.unlink_copy(copy);
                self.link_copy(copy);
            }
        }
        least.map(|(_, copy)| copy)
    }

    /// What is kept of a block; nothing of the key of one that was evicted.
    pub(super) fn kept(&self, index: u32) -> Option<KeptRef<'_>> {
        let rest = &self.rests[index as usize];
        let (plain, packed) = (self.nodes[index as usize].plain.as_ref(), rest.packed.as_ref());
        let candidate = rest.candidate.as_deref();
        (plain.is_some() || packed.is_some()).then_some(KeptRef { plain, packed, candidate })
    }

    /// Changes what is kept of a block, and accounts for it.
    pub(super) fn change<T>(&mut self, index: u32, change: impl FnOnce(&mut Kept) -> T) -> Option<T> {
        self.kept(index)?;
        let (node, rest) = (&mut self.nodes[index as usize], &mut self.rests[index as usize]);
        let (plain, packed, candidate) = (node.plain.take(), rest.packed.take(), rest.candidate.take());
        let mut kept = Kept { plain, packed, candidate };
        let sums = |kept: &Kept| (kept.bytes(), kept.physical_bytes(), kept.plain_bytes(), kept.copy_bytes());
        let before = sums(&kept);
        let result = change(&mut kept);
        let after = sums(&kept);
        (node.plain, rest.packed, rest.candidate) = (kept.plain, kept.packed, kept.candidate);
        rest.bytes = rest.bytes - before.0 + after.0;
        let kind = kind_of(&node.key);
        let list = &mut self.lists[node.list()][kind];
        list.bytes = list.bytes - before.0 + after.0;
        self.physical_bytes = self.physical_bytes - before.1 + after.1;
        self.plain_bytes = self.plain_bytes - before.2 + after.2;
        self.copies.bytes[kind] = self.copies.bytes[kind] - before.3 + after.3;
        Some(result)
    }

    pub(super) fn link_copy(&mut self, index: u32) {
        let newest = self.copies.newest;
        self.nodes[index as usize].unmark(COPY_USED);
        let rest = &mut self.rests[index as usize];
        (rest.newer_copy, rest.older_copy) = (NIL, newest);
        match newest {
            NIL => self.copies.oldest = index,
            newest => self.rests[newest as usize].newer_copy = index,
        }
        self.copies.newest = index;
    }

    pub(super) fn unlink_copy(&mut self, index: u32) {
        let (newer, older) = (self.rests[index as usize].newer_copy, self.rests[index as usize].older_copy);
        match newer {
            NIL => self.copies.newest = older,
            newer => self.rests[newer as usize].older_copy = older,
        }
        match older {
            NIL => self.copies.oldest = newer,
            older => self.rests[older as usize].newer_copy = newer,
        }
    }
}
