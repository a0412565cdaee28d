//! What changed in an object and is not committed yet: plain data, no waiting.
//!
//! # The idea
//! Over the committed block tree of an object lie *layers*, one for each group that changed it: at most the
//! open group's and that of the group being written. A read asks the newest layer first. In a layer, a block
//! id is a block that was written, or lies in a range that was punched (and not written since), or is not
//! mentioned, and then the layer below knows.
//!
//! When a group is quiesced, an operation that still holds it can change an object after one of the next
//! group did. Whoever writes the same bytes from two places orders them, and begins its `Tx` after it has its
//! turn; so the two never write the same bytes, but they may write the same block. Such a late write is
//! therefore also made in the newer layer, if that holds the block already.
//!
//! # Invariants
//! - Layers are in ascending order of their groups.
//! - Every block of a layer has the object's block size as of that layer.
//! - The block of a layer changes in place only while nobody else holds a handle on it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use device::IoBuf;
use ondisk::blkptr::Blkptr;
use ondisk::dmu::DmuType;
use ondisk::dnode::{Dnode, FLAG_SPILL_BLKPTR};
use ondisk::{BlockId, ByteOrder, ObjectId, Txg};

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
    /// As of the last sync.
    pub(super) tree: Arc<Tree>,
    pub(super) layers: Vec<Layer>,
    /// Blocks up to the last one that is not a hole at the end, as of the last sync.
    committed_end: u64,
    /// Bytes in a block, newest layer included.
    pub(super) block_size: u32,
    /// Blocks up to the last one, newest layer included.
    pub(super) end: u64,
    /// Freed, in whatever group.
    pub(super) freed: bool,
}

/// What one group changed.
#[derive(Debug, Default)]
pub(super) struct Layer {
    pub(super) txg: Txg,
    pub(super) blocks: BTreeMap<u64, Block>,
    /// Blocks that are references to others, which are stored already. None of them is in `blocks`.
    pub(super) cloned: BTreeMap<u64, Blkptr>,
    /// Ids that were punched. Those that were written or cloned afterwards are in `blocks` or `cloned` too.
    pub(super) punched: RangeSet,
    /// Blocks up to the last one.
    pub(super) end: u64,
    pub(super) bonus: Option<(DmuType, Arc<[u8]>)>,
    pub(super) dmu_type: Option<DmuType>,
    pub(super) block_size: Option<u32>,
    /// The spill block, or that there is none any more.
    pub(super) spill: Option<Option<Block>>,
    pub(super) freed: bool,
    /// Blocks that are on disk already, as they were when they were written there. See [`super::dmu_sync`].
    pub(super) early: BTreeMap<u64, (Blkptr, Block)>,
    /// Blocks that are written again with the contents that they had, as these are: as long as the layer has
    /// the very same, the pointer keeps its logical birth.
    pub(super) rewritten: BTreeMap<u64, Block>,
    /// Blocks that began to be written early, whether or not anything came of it. Each has used up the room
    /// that was accepted for it.
    pub(super) begun_early: BTreeSet<u64>,
    /// Written early, and again after that.
    pub(super) outdated: Vec<Blkptr>,
}

/// Where the bytes of a block are.
#[derive(Debug, Clone)]
pub(super) enum Base {
    /// In a layer.
    Written(Block),
    /// A layer says which stored block it is.
    Cloned(Blkptr),
    /// A layer says that they are zeroes.
    Hole,
    /// In the committed tree, or nowhere.
    Committed(Arc<Tree>),
}

impl Base {
    /// Whether nothing happened to the block between two looks at it.
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
    pub(super) fn new(id: ObjectId, tree: Arc<Tree>) -> Arc<Self> {
        let end = committed_end(tree.dnode());
        let block_size = tree.dnode().data_block_size() as u32;
        let state = State { tree, layers: Vec::new(), committed_end: end, block_size, end, freed: false };
        Arc::new(Self { id, state: Mutex::new(state) })
    }

    /// No code that runs under this lock leaves the state half changed.
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Blocks up to the last one of a dnode: none when it has no block at all.
fn committed_end(dnode: &Dnode) -> u64 {
    if dnode.blkptrs.iter().all(|pointer| pointer.is_hole()) {
        0
    } else {
        dnode.max_block_id.0.saturating_add(1)
    }
}

impl State {
    /// The place of the layer of `txg`, and whether it is new.
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

    /// As [`super::LiveObject::fitting_block_size`].
    pub(super) fn fitting_block_size(&self, bytes: u32) -> u32 {
        let is_tall = self.tree.dnode().levels > 1 || self.committed_end > 1;
        // A tree gets its levels when the group of a layer is written, and has them from then on.
        let gets_tall = self.layers.iter().any(|layer| layer.end > 1);
        if is_tall || gets_tall { bytes.next_power_of_two() } else { bytes.next_multiple_of(512) }
    }

    /// Whether block `id` lies behind all that was there as of the last sync.
    pub(super) fn is_new(&self, id: u64) -> bool {
        id >= self.committed_end
    }

    /// Where block `id` is, as the newest layer has it.
    pub(super) fn find(&self, id: u64) -> Base {
        self.find_below(self.layers.len(), id)
    }

    /// Where block `id` is, as the layers before `at` have it.
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

    /// Changes bytes of block `id` if layer `at` has it. False when it does not.
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

    /// Puts a whole block into layer `at`. Gives back what was there, to be dropped without the lock.
    pub(super) fn put(&mut self, at: usize, id: u64, block: Block) -> Option<Block> {
        let mut old = None;
        for (index, layer) in self.layers.iter_mut().enumerate().skip(at) {
            layer.end = layer.end.max(id.saturating_add(1));
            if index == at {
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

    /// Puts a block into layer `at` of which only a part is newly written; the newer layers get that part.
    pub(super) fn put_part(&mut self, at: usize, id: u64, block: Block, start: usize, length: usize) {
        for layer in self.layers.iter_mut().skip(at + 1) {
            layer.end = layer.end.max(id.saturating_add(1));
            if let (Some(newer), Some(bytes)) = (layer.blocks.get_mut(&id), block.get(start..start + length))
            {
                patch(newer, start, bytes);
            }
        }
        if let Some(layer) = self.layers.get_mut(at) {
            layer.end = layer.end.max(id.saturating_add(1));
            layer.cloned.remove(&id);
            layer.blocks.insert(id, block);
        }
        self.end = self.end.max(id.saturating_add(1));
    }

    /// Makes block `id` in layer `at` a reference to a stored block. Who does has all of the block, so that
    /// no newer layer has any of it. Gives back what was there, to be dropped without the lock.
    pub(super) fn put_cloned(&mut self, at: usize, id: u64, pointer: Blkptr) -> Option<Block> {
        for layer in self.layers.iter_mut().skip(at) {
            layer.end = layer.end.max(id.saturating_add(1));
        }
        self.end = self.end.max(id.saturating_add(1));
        let layer = self.layers.get_mut(at)?;
        layer.cloned.insert(id, pointer);
        layer.blocks.remove(&id)
    }

    /// Makes the blocks `first..after` holes in layer `at`. Gives back what was there, to be dropped without
    /// the lock.
    pub(super) fn punch(&mut self, at: usize, first: u64, after: u64) -> Vec<Block> {
        let Some(layer) = self.layers.get_mut(at) else { return Vec::new() };
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

    /// The dnode with all that changed up to layer `upto` (not included). Pointers and space used are those
    /// of the last sync.
    pub(super) fn dnode_below(&self, upto: usize) -> Dnode {
        let mut dnode = self.tree.dnode().clone();
        let mut end = self.committed_end;
        for layer in self.layers.iter().take(upto) {
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
            end = layer.end;
        }
        dnode.max_block_id = BlockId(end.saturating_sub(1));
        dnode
    }

    /// The bonus area as the newest layer has it.
    pub(super) fn bonus(&self) -> Arc<[u8]> {
        self.bonus_below(self.layers.len())
    }

    /// The bonus area as the layers before `at` have it.
    pub(super) fn bonus_below(&self, at: usize) -> Arc<[u8]> {
        let newest = self.layers.iter().take(at).rev().find_map(|layer| layer.bonus.as_ref());
        newest.map_or_else(|| (&*self.tree.dnode().bonus).into(), |(_, bonus)| Arc::clone(bonus))
    }

    /// The spill block: in a layer, gone, or (`None`) as the committed dnode says.
    pub(super) fn spill(&self) -> Option<Option<Block>> {
        self.layers.iter().rev().find_map(|layer| if layer.freed { Some(None) } else { layer.spill.clone() })
    }

    /// The run of data or holes that block `id` begins, as far as the layers know: (hole, block after it).
    /// `None` when the committed tree knows what is there; then the second number says how far that is to be
    /// asked.
    pub(super) fn run(&self, id: u64) -> (Option<bool>, u64) {
        // No newer layer says anything about blocks from `id` on and before this one.
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

    /// The layer of `txg` is written: `tree` has all of it.
    pub(super) fn commit(&mut self, txg: Txg, tree: Arc<Tree>) -> Option<Layer> {
        self.committed_end = committed_end(tree.dnode());
        self.tree = tree;
        let at = self.layers.iter().position(|layer| layer.txg == txg)?;
        let layer = self.layers.remove(at);
        if self.layers.is_empty() {
            self.end = self.committed_end;
        }
        Some(layer)
    }
}

/// Changes bytes of a block: in place when nobody else holds it, in a copy otherwise.
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
