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
//! # Invariants
//! - A block is in `copies` exactly when it is kept in both forms.
//! - The memory of a copy counts in [`Copies::bytes`], all other memory of a block in its list.
//! - A block that waits for a cache device keeps its compressed form until the device has it.
//! - Nothing is decompressed under the lock of a shard. Two readers may decompress the same block at the same
//!   time; the copy of the first one stays.

use std::sync::Arc;

use super::shard::{Freed, NIL, Shard, kind_of};
use super::{ArcCache, Key, NODE_BYTES};
use crate::cache::{Block, Candidate, Loaded, Packed, Retain};

#[cfg(test)]
mod tests;

/// The bytes that could be decompressed in the time of a read from the pool. With lz4 that are 0.4 ms.
const READ_WORTH_BYTES: u128 = 1 << 20;
/// No block was evicted for a while: for so many accesses to each block.
const CALM_ACCESSES: u64 = 4;
/// Used copies that are passed over in a search for an unused one.
const SECOND_CHANCES: usize = 8;

/// A block in memory.
pub(super) enum Forms {
    /// As it is.
    Plain(Block),
    /// As it is, and compressed.
    Both(Block, Arc<Packed>),
    /// Compressed.
    Packed(Arc<Packed>),
}

/// What a node keeps of a block.
pub(super) struct Kept {
    pub(super) forms: Forms,
    /// What it takes to write it to a cache device, if one may get it.
    pub(super) candidate: Option<Box<Candidate>>,
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
        let forms = match packed {
            Some(packed) => Forms::Both(block, packed),
            None => Forms::Plain(block),
        };
        Self { forms, candidate }
    }
}

impl Kept {
    /// The form that a reader gets.
    pub(super) fn found(&self) -> Found {
        match &self.forms {
            Forms::Plain(block) | Forms::Both(block, _) => Found::Plain(block.clone()),
            Forms::Packed(packed) => Found::Packed(Arc::clone(packed)),
        }
    }

    /// The same, of a block that leaves the cache.
    pub(super) fn into_found(self) -> Found {
        match self.forms {
            Forms::Plain(block) | Forms::Both(block, _) => Found::Plain(block),
            Forms::Packed(packed) => Found::Packed(packed),
        }
    }

    /// Its bytes as a cache device gets them, if it may get them.
    pub(super) fn physical(&self) -> Option<&Block> {
        let candidate = self.candidate.as_ref()?;
        let bytes = match (&candidate.physical, &self.forms) {
            (Some(physical), _) => physical,
            (None, Forms::Both(_, packed) | Forms::Packed(packed)) => packed.bytes(),
            (None, Forms::Plain(block)) => block,
        };
        (bytes.len() as u64 == candidate.psize).then_some(bytes)
    }

    pub(super) fn has_copy(&self) -> bool {
        matches!(self.forms, Forms::Both(..))
    }

    /// The memory of the copy, where there are both forms.
    pub(super) fn copy_bytes(&self) -> usize {
        match &self.forms {
            Forms::Both(block, _) => block.memory_bytes(),
            Forms::Plain(_) | Forms::Packed(_) => 0,
        }
    }

    /// The memory without that of the copy.
    pub(super) fn bytes(&self) -> usize {
        let of_form = match &self.forms {
            Forms::Plain(block) => block.memory_bytes(),
            Forms::Both(_, packed) | Forms::Packed(packed) => packed.memory_bytes(),
        };
        of_form + self.physical_bytes()
    }

    /// The memory that it would take if it were kept decompressed only.
    pub(super) fn plain_bytes(&self) -> usize {
        match &self.forms {
            Forms::Plain(block) => block.memory_bytes(),
            Forms::Both(_, packed) | Forms::Packed(packed) => packed.plain_memory_bytes(),
        }
    }

    /// The memory of what is there for a cache device alone.
    pub(super) fn physical_bytes(&self) -> usize {
        self.candidate.as_ref().map_or(0, |candidate| candidate.memory_bytes())
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
        self.change(index, |kept| kept.forms = Forms::Both(block.clone(), Arc::clone(packed)));
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
        let kept = self.nodes[index as usize].kept.as_ref()?;
        matches!(&kept.forms, Forms::Packed(own) if Arc::ptr_eq(own, packed)).then_some(index)
    }

    /// Drops a form of some block. False when a block has to be evicted instead: `victim`, if there is one.
    pub(super) fn drop_form(&mut self, victim: Option<u32>, freed: &mut Freed) -> bool {
        if self.fits_plain() && self.drop_packed(freed) {
            return true;
        }
        let Some(copy) = self.oldest_copy() else { return false };
        if victim.is_some_and(|victim| self.is_worth_more(copy, victim)) {
            return false;
        }
        self.unlink_copy(copy);
        let dropped = self.change(copy, |kept| {
            let Forms::Both(block, packed) = &kept.forms else { return None };
            let block = block.clone();
            kept.forms = Forms::Packed(Arc::clone(packed));
            Some(block)
        });
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
        let may_go = |node: &super::shard::Node| {
            node.kept.as_ref().is_some_and(|kept| kept.has_copy() && kept.candidate.is_none())
        };
        if index == NIL || !may_go(&self.nodes[index as usize]) {
            return false;
        }
        self.unlink_copy(index);
        let dropped = self.change(index, |kept| {
            let Forms::Both(block, packed) = &kept.forms else { return None };
            let packed = Arc::clone(packed);
            kept.forms = Forms::Plain(block.clone());
            Some(packed)
        });
        freed.packed.extend(dropped.flatten());
        true
    }

    /// Whether the copy is worth more for its memory than the block.
    fn is_worth_more(&self, copy: u32, block: u32) -> bool {
        let age = |index: u32| u128::from(self.accesses - self.nodes[index as usize].used_at);
        age(copy) * READ_WORTH_BYTES < age(block) * self.nodes[block as usize].bytes as u128
    }

    /// The copy that was not used for long.
    fn oldest_copy(&mut self) -> Option<u32> {
        for _ in 0..SECOND_CHANCES {
            let index = self.copies.oldest;
            if index == NIL || !std::mem::take(&mut self.nodes[index as usize].is_copy_used) {
                break;
            }
            self.unlink_copy(index);
            self.link_copy(index);
        }
        (self.copies.oldest != NIL).then_some(self.copies.oldest)
    }

    /// Changes what is kept of a block, and accounts for it.
    pub(super) fn change<T>(&mut self, index: u32, change: impl FnOnce(&mut Kept) -> T) -> Option<T> {
        let node = &mut self.nodes[index as usize];
        let kind = kind_of(&node.key);
        let kept = node.kept.as_mut()?;
        let before = (kept.bytes(), kept.physical_bytes(), kept.plain_bytes(), kept.copy_bytes());
        let result = change(kept);
        let after = (kept.bytes(), kept.physical_bytes(), kept.plain_bytes(), kept.copy_bytes());
        node.bytes = node.bytes - before.0 + after.0;
        let list = &mut self.lists[node.list][kind];
        list.bytes = list.bytes - before.0 + after.0;
        self.physical_bytes = self.physical_bytes - before.1 + after.1;
        self.plain_bytes = self.plain_bytes - before.2 + after.2;
        self.copies.bytes[kind] = self.copies.bytes[kind] - before.3 + after.3;
        Some(result)
    }

    pub(super) fn link_copy(&mut self, index: u32) {
        let newest = self.copies.newest;
        let node = &mut self.nodes[index as usize];
        (node.newer_copy, node.older_copy, node.is_copy_used) = (NIL, newest, false);
        match newest {
            NIL => self.copies.oldest = index,
            newest => self.nodes[newest as usize].newer_copy = index,
        }
        self.copies.newest = index;
    }

    pub(super) fn unlink_copy(&mut self, index: u32) {
        let (newer, older) = (self.nodes[index as usize].newer_copy, self.nodes[index as usize].older_copy);
        match newer {
            NIL => self.copies.newest = older,
            newer => self.nodes[newer as usize].older_copy = older,
        }
        match older {
            NIL => self.copies.oldest = newer,
            older => self.nodes[older as usize].newer_copy = newer,
        }
    }
}
