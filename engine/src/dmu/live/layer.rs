//! The changes of an object that are not committed yet: plain data, no waiting.
//!
//! # The idea
//! Above the committed block tree of an object are *layers*, one for each group that changed it: at most
//! those of the open group and of the group being written. A read asks the newest layer first. In a layer, a
//! block id is a written block, or is in a range that was punched (and not written since), or is not
//! mentioned; then the layer below is asked.
//!
//! After a group is quiesced, an operation that still holds it can change an object after an operation of the
//! next group did. Code that writes the same bytes from two places orders the writes, and begins its `Tx`
//! after it has its turn. So these two operations never write the same bytes, but they may write the same
//! block. Such a late write is therefore also made in the newer layer, if that contains the block already.
//!
//! # Invariants
//! - Layers are in ascending order of their groups.
//! - Every block of a layer has the object's block size as of that layer.
//! - The block of a layer changes in place only while no other handle shares it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};

use device::{IgnorePoison, IoBuf};
use hashbrown::{HashMap, HashSet};
use ondisk::blkptr::Blkptr;
use ondisk::dmu::DmuType;
use ondisk::dnode::{Dnode, FLAG_SPILL_BLKPTR};
use ondisk::{BlockId, ByteOrder, ObjectId, Txg};

use super::raw::RawDnode;
use crate::Block;
use crate::dmu::tree::Tree;
use crate::range_set::RangeSet;

/// The state of an open object, shared by all its handles.
#[derive(Debug)]
pub(in crate::dmu) struct Core {
    pub(in crate::dmu) id: ObjectId,
    state: Mutex<State>,
}

#[derive(Debug)]
pub(in crate::dmu) struct State {
    /// The committed tree, as of the last sync.
    pub(super) tree: Arc<Tree>,
    pub(super) layers: Vec<Layer>,
    /// The number of blocks up to the last one that is not a hole, as of the last sync.
    committed_end: u64,
    /// Bytes in a block, including the newest layer.
    pub(super) block_size: u32,
    /// The number of blocks up to the last one, including the newest layer.
    pub(super) end: u64,
    /// Whether any group freed it.
    pub(super) freed: bool,
    /// The type by which a class of vdevs is chosen for its blocks, if it is not its own type.
    pub(super) storage_type: Option<DmuType>,
    /// The last block as its dnode says it, whatever blocks there are, in an object set that a raw stream
    /// fills.
    pub(super) last_block: Option<u64>,
    /// Indirect blocks of level 1 that were written since the object was opened. One that is here stays here,
    /// because what the open group accepted may count on its size.
    pub(super) indirects: HashMap<u64, StoredIndirect>,
}

/// Indirect blocks of level 1 that a group wrote, by their ids.
pub(super) type StoredIndirects = Vec<(u64, StoredIndirect)>;

/// An indirect block of level 1 that a group wrote.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct StoredIndirect {
    /// Its physical size, or [`UNKNOWN_SIZE`].
    pub(super) size: u32,
    /// All of its pointers are right. Then they stay so, because only pointers to blocks that are written
    /// here take their places.
    pub(super) is_sound: bool,
}

/// Of an indirect block of which it is not known how much it grows when other pointers change: that is so
/// unless it was compressed here, to half of its size at most.
pub(super) const UNKNOWN_SIZE: u32 = u32::MAX;

/// The most indirect blocks of an object whose sizes are kept.
const MOST_INDIRECTS: usize = 1 << 16;

/// The changes of one group.
#[derive(Debug, Default)]
pub(super) struct Layer {
    pub(super) txg: Txg,
    pub(super) blocks: BTreeMap<u64, Block>,
    /// Blocks that are references to other, stored blocks. None of them is in `blocks`.
    pub(super) cloned: BTreeMap<u64, Blkptr>,
    /// Punched ids. Ids that were written or cloned afterwards are in `blocks` or `cloned` too.
    pub(super) punched: RangeSet,
    /// Indirect blocks of level 1 above blocks of `blocks` and `cloned`. Some are missing.
    pub(super) touched: HashSet<u64>,
    /// The number of blocks up to the last one.
    pub(super) end: u64,
    pub(super) bonus: Option<(DmuType, Arc<[u8]>)>,
    pub(super) dmu_type: Option<DmuType>,
    pub(super) block_size: Option<u32>,
    /// The new spill block, or its removal.
    pub(super) spill: Option<Option<Block>>,
    pub(super) freed: bool,
    /// The object is a new one from this group on, which begins with this dnode; `punched` has everything
    /// before.
    pub(super) reborn: Option<Dnode>,
    /// What a raw stream says of its dnode.
    pub(super) raw: Option<RawDnode>,
    /// Blocks that are on disk already, with the contents that were written. See [`super::dmu_sync`].
    pub(super) early: BTreeMap<u64, (Blkptr, Block)>,
    /// Blocks that are rewritten with the same contents: while the layer still has the same block, the
    /// pointer keeps its logical birth.
    pub(super) rewritten: BTreeMap<u64, Block>,
    /// Blocks whose early write began, whether or not it succeeded. Each has used the room that was accepted
    /// for it.
    pub(super) begun_early: BTreeSet<u64>,
    /// Early copies of blocks that were written early again.
    pub(super) outdated: Vec<Blkptr>,
}

impl Layer {
    /// Whether it has changed a block below indirect block `id` of level 1: false where that is not known.
    pub(super) fn has_touched(&self, id: u64) -> bool {
        self.touched.contains(&id)
    }

    /// Notes that block `id`, below an indirect block, is changed. Most objects have a single block, for
    /// which a set would be a waste.
    fn touch(&mut self, id: u64, indirect: u64) {
        if id > 0 {
            self.touched.insert(indirect);
        }
    }
}

/// The place of the bytes of a block.
#[derive(Debug, Clone)]
pub(super) enum Base {
    /// In a layer.
    Written(Block),
    /// A layer refers to this stored block.
    Cloned(Blkptr),
    /// In a layer, zeroes.
    Hole,
    /// In the committed tree, or nowhere.
    Committed(Arc<Tree>),
}

impl Base {
    /// Whether the block is unchanged between two looks at it.
    pub(super) fn is_same(&self, other: &Base) -> bool {
        match (self, other) {
            (Base::Written(one), Base::Written(other)) => one.is_same(other),
            (Base::Cloned(one), Base::Cloned(other)) => one == other,
            (Base::Hole, Base::Hole) => true,
            (Base::Committed(one), Base::Committed(other)) => Arc::ptr_eq(one, other),
            _ => false,
        }
    }
}

impl Core {
    /// `last_block` is that of the dnode where a raw stream fills the object set.
    pub(super) fn new(id: ObjectId, tree: Arc<Tree>, last_block: Option<u64>) -> Arc<Self> {
        let end = committed_end(tree.dnode());
        let block_size = tree.dnode().data_block_size() as u32;
        let state = State {
            tree,
            layers: Vec::new(),
            committed_end: end,
            block_size,
            end,
            freed: false,
            storage_type: None,
            last_block,
            indirects: HashMap::new(),
        };
        Arc::new(Self { id, state: Mutex::new(state) })
    }

    /// No code that runs under this lock leaves the state half changed.
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().ignore_poison()
    }
}

/// The number of blocks of a dnode up to the last one: none when it has no block at all.
fn committed_end(dnode: &Dnode) -> u64 {
    if dnode.blkptrs.iter().all(|pointer| pointer.is_hole()) {
        0
    } else {
        dnode.max_block_id.0.saturating_add(1)
    }
}

impl State {
    /// The index of the layer of `txg`, and whether it is new.
    pub(super) fn layer(&mut self, txg: Txg) -> (usize, bool) {
        let at = self.layers.partition_point(|layer| layer.txg < txg);
        if self.layers.get(at).is_some_and(|layer| layer.txg == txg) {
            return (at, false);
        }
        let end = match at.checked_sub(1).and_then(|below| self.layers.get(below)) {
            Some(below) => below.end,
            None => self.committed_end,
        };
        self.layers.insert(at, Layer { txg, end, ..Layer::default() });
        (at, true)
    }

    /// See [`super::LiveObject::fitting_block_size`].
    pub(super) fn fitting_block_size(&self, bytes: u32) -> u32 {
        let is_tall = self.tree.dnode().levels > 1 || self.committed_end > 1;
        // A tree gets its levels when the group of a layer is written, and keeps them.
        let gets_tall = self.layers.iter().any(|layer| layer.end > 1);
        if is_tall || gets_tall { bytes.next_power_of_two() } else { bytes.next_multiple_of(512) }
    }

    /// Whether block `id` is after all blocks that existed at the last sync.
    pub(super) fn is_new(&self, id: u64) -> bool {
        id >= self.committed_end
    }

    /// log2 of the number of blocks below an indirect block of level 1.
    pub(super) fn fan_out_shift(&self) -> u32 {
        self.tree.dnode().pointers_per_indirect_shift().max(1)
    }

    /// Whether the committed indirect blocks above block `id` need no look before it is written: there are
    /// none; or a group that is not written yet changes another block below the same one, before which they
    /// were read, and the pointer that is replaced is known to be right.
    pub(super) fn has_checked_path(&self, id: u64) -> bool {
        let dnode = self.tree.dnode();
        if dnode.levels <= 1 {
            return true;
        }
        let shift = self.fan_out_shift();
        let indirect = id >> shift;
        let is_sound = || {
            let is_new = indirect > dnode.max_block_id.0 >> shift;
            is_new || self.indirects.get(&indirect).is_some_and(|stored| stored.is_sound)
        };
        self.layers.iter().any(|layer| layer.has_touched(indirect)) && is_sound()
    }

    /// Of the indirect blocks of level 1 that a layer changes, those whose pointers are known to be right.
    pub(super) fn sound_indirects(&self, layer: &Layer) -> HashSet<u64> {
        let is_sound = |id: &&u64| self.indirects.get(*id).is_some_and(|stored| stored.is_sound);
        layer.touched.iter().filter(is_sound).copied().collect()
    }

    /// The place of block `id`, including the newest layer.
    pub(super) fn find(&self, id: u64) -> Base {
        self.find_below(self.layers.len(), id)
    }

    /// The place of block `id` in the layers before `at`.
    pub(super) fn find_below(&self, at: usize, id: u64) -> Base {
        for layer in self.layers.iter().take(at).rev() {
            if let Some(block) = layer.blocks.get(&id) {
                return Base::Written(block.clone());
            }
            if let Some(pointer) = layer.cloned.get(&id) {
                return Base::Cloned(*pointer);
            }
            if layer.freed || layer.punched.contains(id, id.saturating_add(1)) {
                return Base::Hole;
            }
        }
        Base::Committed(Arc::clone(&self.tree))
    }

    /// Whether layer `at` or a newer one writes block `id`.
    pub(super) fn is_written_from(&self, at: usize, id: u64) -> bool {
        let writes = |layer: &Layer| layer.blocks.contains_key(&id) || layer.cloned.contains_key(&id);
        self.layers.iter().skip(at).any(writes)
    }

    /// Changes bytes of block `id` if layer `at` has it. Returns false when it does not.
    pub(super) fn patch(&mut self, at: usize, id: u64, start: usize, bytes: &[u8]) -> bool {
        let mut found = false;
        for (index, layer) in self.layers.iter_mut().enumerate().skip(at) {
            if let Some(block) = layer.blocks.get_mut(&id) {
                patch(block, start, bytes);
                found |= index == at;
            }
        }
        found
    }

    /// Puts a whole block into layer `at`. Returns the previous block, which the caller drops without the
    /// lock.
    pub(super) fn put(&mut self, at: usize, id: u64, block: Block) -> Option<Block> {
        let mut old = None;
        let indirect = id >> self.fan_out_shift();
        for (index, layer) in self.layers.iter_mut().enumerate().skip(at) {
            layer.end = layer.end.max(id.saturating_add(1));
            if index == at {
                layer.touch(id, indirect);
                layer.cloned.remove(&id);
                old = layer.blocks.insert(id, block.clone());
            } else if let Some(newer) = layer.blocks.get_mut(&id)
                && newer.len() == block.len()
            {
                *newer = block.clone();
            }
        }
        self.end = self.end.max(id.saturating_add(1));
        old
    }

    /// Puts a block into layer `at` of which only a part is new; the newer layers get that part.
    pub(super) fn put_part(&mut self, at: usize, id: u64, block: Block, start: usize, length: usize) {
        for layer in self.layers.iter_mut().skip(at + 1) {
            layer.end = layer.end.max(id.saturating_add(1));
            if let (Some(newer), Some(bytes)) = (layer.blocks.get_mut(&id), block.get(start..start + length))
            {
                patch(newer, start, bytes);
            }
        }
        let indirect = id >> self.fan_out_shift();
        if let Some(layer) = self.layers.get_mut(at) {
            layer.end = layer.end.max(id.saturating_add(1));
            layer.touch(id, indirect);
            layer.cloned.remove(&id);
            layer.blocks.insert(id, block);
        }
        self.end = self.end.max(id.saturating_add(1));
    }

    /// Makes block `id` in layer `at` a reference to a stored block. The caller has a lock on the whole
    /// block, so no newer layer contains any of it. Returns the previous block, which the caller drops
    /// without the lock.
    pub(super) fn put_cloned(&mut self, at: usize, id: u64, pointer: Blkptr) -> Option<Block> {
        for layer in self.layers.iter_mut().skip(at) {
            layer.end = layer.end.max(id.saturating_add(1));
        }
        self.end = self.end.max(id.saturating_add(1));
        let layer = self.layers.get_mut(at)?;
        layer.cloned.insert(id, pointer);
        layer.blocks.remove(&id)
    }

    /// Makes the blocks `first..after` holes in layer `at`. Returns the previous blocks, which the caller
    /// drops without the lock.
    pub(super) fn punch(&mut self, at: usize, first: u64, after: u64) -> Vec<Block> {
        let Some(layer) = self.layers.get_mut(at) else { return Vec::new() };
        layer.touched.clear();
        let dropped = layer.blocks.extract_if(first..after, |_, _| true).map(|(_, block)| block).collect();
        layer.cloned.retain(|id, _| !(first..after).contains(id));
        layer.punched.add(first, after);
        if after >= layer.end {
            layer.end = layer.end.min(first);
        }
        if at + 1 == self.layers.len() {
            self.end = self.layers.last().map_or(0, |layer| layer.end);
        }
        dropped
    }

    /// Makes the object a new one in layer `at`, the newest. Returns the previous blocks, which the caller
    /// drops without the lock.
    pub(super) fn rebear(&mut self, at: usize, dnode: Dnode) -> Vec<Block> {
        let dropped = self.punch(at, 0, u64::MAX);
        self.block_size = dnode.data_block_size() as u32;
        if let Some(layer) = self.layers.get_mut(at) {
            (layer.bonus, layer.dmu_type, layer.block_size) = (None, None, None);
            layer.spill = Some(None);
            layer.rewritten.clear();
            layer.raw = None;
            layer.reborn = Some(dnode);
        }
        dropped
    }

    /// The dnode with all changes of the layers up to `upto` (not included). Pointers and used space are
    /// those of the last sync.
    pub(super) fn dnode_below(&self, upto: usize) -> Dnode {
        let mut dnode = self.tree.dnode().clone();
        let mut end = self.committed_end;
        for layer in self.layers.iter().take(upto) {
            if let Some(reborn) = &layer.reborn {
                dnode = reborn.clone();
            }
            if let Some((bonus_type, bonus)) = &layer.bonus {
                dnode.bonus_type = *bonus_type;
                dnode.bonus = (&**bonus).into();
                dnode.order = ByteOrder::Little;
            }
            if let Some(dmu_type) = layer.dmu_type {
                dnode.dmu_type = dmu_type;
            }
            if let Some(block_size) = layer.block_size {
                dnode.data_block_sectors = (block_size >> 9) as u16;
            }
            if let Some(None) = layer.spill {
                dnode.spill = None;
                dnode.flags &= !FLAG_SPILL_BLKPTR;
            }
            if let Some(raw) = &layer.raw {
                raw.apply(&mut dnode);
            }
            end = layer.end;
        }
        dnode.max_block_id = BlockId(self.last_block.unwrap_or(end.saturating_sub(1)));
        dnode
    }

    /// The bonus area, including the newest layer.
    pub(super) fn bonus(&self) -> Arc<[u8]> {
        self.bonus_below(self.layers.len())
    }

    /// The bonus area according to the layers before `at`.
    pub(super) fn bonus_below(&self, at: usize) -> Arc<[u8]> {
        for layer in self.layers.iter().take(at).rev() {
            if let Some((_, bonus)) = &layer.bonus {
                return Arc::clone(bonus);
            }
            if let Some(reborn) = &layer.reborn {
                return (&*reborn.bonus).into();
            }
        }
        (&*self.tree.dnode().bonus).into()
    }

    /// The spill block: in a layer, removed, or (`None`) that of the committed dnode.
    pub(super) fn spill(&self) -> Option<Option<Block>> {
        self.layers.iter().rev().find_map(|layer| if layer.freed { Some(None) } else { layer.spill.clone() })
    }

    /// The run of data or holes that begins with block `id`, as far as the layers know: (hole, block after
    /// it). `None` when the committed tree has to be asked; then the second number is the end of the range to
    /// ask for.
    pub(super) fn run(&self, id: u64) -> (Option<bool>, u64) {
        // No newer layer mentions any block from `id` up to this one.
        let mut limit = u64::MAX;
        for layer in self.layers.iter().rev() {
            let written = layer.blocks.range(id..limit).next().map(|(&next, _)| next);
            let cloned = layer.cloned.range(id..limit).next().map(|(&next, _)| next);
            let next = written.into_iter().chain(cloned).min();
            if next == Some(id) {
                return (Some(false), id.saturating_add(1));
            }
            limit = next.unwrap_or(limit);
            if layer.freed {
                return (Some(true), limit);
            }
            let punched = layer.punched.within(id, limit).next();
            match punched {
                Some((from, to)) if from == id => return (Some(true), to),
                Some((from, _)) => limit = from,
                None => {}
            }
        }
        (None, limit)
    }

    /// The layer of `txg` is written: `tree` contains all of it, `indirects` among others.
    pub(super) fn commit(&mut self, txg: Txg, tree: Arc<Tree>, indirects: StoredIndirects) -> Option<Layer> {
        for (id, stored) in indirects {
            if self.indirects.len() < MOST_INDIRECTS || self.indirects.contains_key(&id) {
                self.indirects.insert(id, stored);
            }
        }
        self.committed_end = committed_end(tree.dnode());
        self.tree = tree;
        let at = self.layers.iter().position(|layer| layer.txg == txg)?;
        let layer = self.layers.remove(at);
        if layer.freed || layer.reborn.is_some() {
            self.indirects.clear();
            // The new object may have indirect blocks of another size.
            self.layers.iter_mut().for_each(|layer| layer.touched.clear());
        }
        if self.layers.is_empty() {
            self.end = self.committed_end;
        }
        Some(layer)
    }
}

/// Changes bytes of a block: in place when no other handle shares it, in a copy otherwise.
fn patch(block: &mut Block, start: usize, bytes: &[u8]) {
    let end = start.saturating_add(bytes.len());
    if end > block.len() {
        return;
    }
    if let Some(target) = block.get_mut() {
        device::copy(&mut target[start..end], bytes);
        return;
    }
    let mut copy = if block.is_hole() { IoBuf::zeroed(block.len()) } else { IoBuf::from(&block[..]) };
    device::copy(&mut copy[start..end], bytes);
    *block = Block::from(copy);
}
