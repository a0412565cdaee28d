//! An object of an object set that is open for writing.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use device::IoBuf;
use ondisk::blkptr::{Blkptr, MAX_BLOCK_SIZE};
use ondisk::dmu::{Byteswap, DmuType};
use ondisk::dnode::{DNODE_BLOCK_SIZE, Dnode};
use ondisk::{ByteOrder, ObjectId, Txg};

use super::dirtied::Dirtied;
use super::layer::{Base, Core, State};
use super::objset::LiveObjset;
use super::{NewObject, dnodes};
use crate::cache::Retain;
use crate::dmu::object::Span;
use crate::dmu::payload::Payload;
use crate::dmu::sink::{Sink, read_blocks};
use crate::dmu::tree::{Found, OrderedBlock, Tree};
use crate::error::{Error, Result};
use crate::txg::Tx;
use crate::{Block, Bookmark};

/// The blocks of a directory that one more entry may make dirty: a leaf, the new leaf after a split, and the
/// header.
const SPLIT_BLOCKS: u64 = 3;

/// The smallest new block that counts as part of a stream ([`crate::txg`]).
const STREAMED_BLOCK_BYTES: usize = 64 << 10;

/// An object of a [`LiveObjset`]. Any number of handles share its state. The state is kept while it has
/// uncommitted changes.
#[derive(Clone)]
pub struct LiveObject {
    objset: Arc<LiveObjset>,
    pub(super) core: Arc<Core>,
}

impl LiveObject {
    pub(super) fn new(objset: Arc<LiveObjset>, core: Arc<Core>) -> Arc<Self> {
        Arc::new(Self { objset, core })
    }

    /// The object set.
    pub fn objset(&self) -> &Arc<LiveObjset> {
        &self.objset
    }

    /// Its number.
    pub fn id(&self) -> ObjectId {
        self.core.id
    }

    /// Its dnode, including changes; block pointers and used space are those of the last sync.
    pub fn dnode(&self) -> Dnode {
        let state = self.core.lock();
        state.dnode_below(state.layers.len())
    }

    /// Bytes in a data block.
    pub fn block_size(&self) -> u64 {
        self.core.lock().block_size.into()
    }

    /// The first byte after the last block that is not a hole.
    pub fn end(&self) -> u64 {
        let state = self.core.lock();
        state.end.saturating_mul(state.block_size.into())
    }

    /// Whether it was freed since it was opened.
    pub fn is_freed(&self) -> bool {
        self.core.lock().freed
    }

    /// The bonus area.
    pub fn bonus(&self) -> Arc<[u8]> {
        self.core.lock().bonus()
    }

    /// The type of the bonus area.
    pub fn bonus_type(&self) -> DmuType {
        let state = self.core.lock();
        for layer in state.layers.iter().rev() {
            if let Some((bonus_type, _)) = &layer.bonus {
                return *bonus_type;
            }
            if let Some(reborn) = &layer.reborn {
                return reborn.bonus_type;
            }
        }
        state.tree.dnode().bonus_type
    }

    /// Sets the bonus area. It must fit the dnode.
    pub fn set_bonus(&self, tx: &Tx, bonus_type: DmuType, bonus: &[u8]) {
        debug_assert!(
            bonus.len() <= self.dnode().bonus_capacity(),
            "{self:?}: a bonus of {} bytes",
            bonus.len()
        );
        let mut state = self.core.lock();
        if let Some(layer) = self.layer(&mut state, tx) {
            state.layers[layer].bonus = Some((bonus_type, bonus.into()));
        }
    }

    /// Changes bytes of the bonus area, in the group of `tx` and in the next one, if that has a bonus area of
    /// its own already. It is for changes whose result does not depend on their order. Returns false, without
    /// a change, when `change` returns false.
    pub(crate) fn merge_bonus(
        &self,
        tx: &Tx,
        bonus_type: DmuType,
        mut change: impl FnMut(&mut [u8]) -> Result<bool>,
    ) -> Result<bool> {
        let mut state = self.core.lock();
        let at = self.layer(&mut state, tx).ok_or_else(|| self.gone())?;
        let mut bonus = state.bonus_below(at + 1).to_vec();
        if !change(&mut bonus)? {
            return Ok(false);
        }
        for layer in state.layers.iter_mut().skip(at + 1) {
            if let Some((_, newer)) = &mut layer.bonus {
                let mut merged = newer.to_vec();
                change(&mut merged)?;
                *newer = merged.into();
            }
        }
        state.layers[at].bonus = Some((bonus_type, bonus.into()));
        Ok(true)
    }

    /// Sets the type of the contents (`dmu_object_zapify`).
    pub fn set_type(&self, tx: &Tx, dmu_type: DmuType) {
        let mut state = self.core.lock();
        if let Some(layer) = self.layer(&mut state, tx) {
            state.layers[layer].dmu_type = Some(dmu_type);
        }
    }

    /// Has the blocks that are written from now on, while the object is open, placed like those of another
    /// type (`dnode_set_storage_type`).
    pub(crate) fn set_storage_type(&self, dmu_type: DmuType) {
        self.core.lock().storage_type = Some(dmu_type);
    }

    /// The smallest valid size of blocks of at least `bytes`: whole sectors, and a power of two if the object
    /// has, or had in a group that is not written yet, more than its first block. Such an object keeps the
    /// levels of its tree, and the blocks below an indirect block have sizes of a power of two.
    pub fn fitting_block_size(&self, bytes: u32) -> u32 {
        self.core.lock().fitting_block_size(bytes)
    }

    /// Sets the block size: a multiple of 512, a power of two if there will be a second block, and valid for
    /// [`LiveObject::fitting_block_size`]. Refused when the object has more than its first block.
    pub async fn set_block_size(&self, tx: &Tx, bytes: u32) -> Result<()> {
        if bytes == 0 || !bytes.is_multiple_of(512) || u64::from(bytes) > MAX_BLOCK_SIZE {
            return Err(Error::Invalid(format!("{self:?}: blocks of {bytes} bytes")));
        }
        loop {
            let (before, base) = {
                let state = self.core.lock();
                if state.block_size == bytes {
                    return Ok(());
                }
                if state.end > 1 {
                    return Err(Error::Invalid(format!("{self:?}: has {} blocks already", state.end)));
                }
                (state.block_size, state.find(0))
            };
            let old = match self.load(&base, 0).await? {
                Loaded::Block(block) => Some(block),
                Loaded::Hole => None,
                Loaded::Again => continue,
            };
            let resized = old.map(|old| {
                let mut buffer = IoBuf::zeroed(bytes as usize);
                let length = old.len().min(buffer.len());
                device::copy(&mut buffer[..length], &old[..length]);
                Block::from(buffer)
            });
            let mut state = self.core.lock();
            if state.fitting_block_size(bytes) != bytes {
                let why = "an object of several levels";
                return Err(Error::Invalid(format!("{self:?}: blocks of {bytes} bytes in {why}")));
            }
            if state.block_size != before || state.end > 1 || !state.find(0).is_same(&base) {
                continue;
            }
            let Some(at) = self.layer(&mut state, tx) else { return Err(self.gone()) };
            state.layers[at].block_size = Some(bytes);
            state.block_size = bytes;
            if let Some(block) = resized {
                state.put(at, 0, block);
            }
            return Ok(());
        }
    }

    /// The spill block.
    pub async fn spill(&self) -> Result<Option<OrderedBlock>> {
        loop {
            let (spill, tree) = {
                let state = self.core.lock();
                (state.spill(), Arc::clone(&state.tree))
            };
            if let Some(spill) = spill {
                return Ok(spill.map(little));
            }
            let Some(pointer) = tree.dnode().spill.filter(|pointer| !pointer.is_hole()) else {
                return Ok(None);
            };
            let at = Bookmark::spill(self.objset.id().0, self.id().0);
            match tree.read(self.objset.pool(), &pointer, &at).await {
                Ok(block) => return Ok(Some(OrderedBlock::of(block, &pointer))),
                Err(error) if self.is_current(&tree) => return Err(error),
                Err(_) => {}
            }
        }
    }

    /// Sets or removes the spill block.
    #[cfg(test)]
    pub(super) fn set_spill(&self, tx: &Tx, spill: Option<Block>) {
        let mut state = self.core.lock();
        if let Some(layer) = self.layer(&mut state, tx) {
            state.layers[layer].spill = Some(spill);
        }
    }

    /// Sets the bonus area and sets or removes the spill block at once: no reader sees only one of the
    /// changes.
    pub(crate) fn set_bonus_and_spill(
        &self,
        tx: &Tx,
        bonus_type: DmuType,
        bonus: &[u8],
        spill: Option<Block>,
    ) {
        let mut state = self.core.lock();
        if let Some(layer) = self.layer(&mut state, tx) {
            state.layers[layer].bonus = Some((bonus_type, bonus.into()));
            state.layers[layer].spill = Some(spill);
        }
    }

    /// The bonus area of an object that has no spill block now.
    pub(crate) fn bonus_alone(&self) -> Option<Arc<[u8]>> {
        let state = self.core.lock();
        let has_spill = match state.spill() {
            Some(spill) => spill.is_some(),
            None => state.tree.dnode().spill.is_some_and(|pointer| !pointer.is_hole()),
        };
        (!has_spill).then(|| state.bonus())
    }

    /// Data block `id`; `None` for a hole, and after the last block.
    pub async fn block(&self, id: u64) -> Result<Option<OrderedBlock>> {
        self.block_retaining(id, Retain::AsItWas).await
    }

    /// Loads data block `id` into the ARC, where it waits for a change of it even if it is not to be cached.
    pub async fn warm(&self, id: u64) -> Result<()> {
        self.block_retaining(id, Retain::ForChange).await.map(|_| ())
    }

    /// Must be called before a group is held for a write of the bytes `range`. Loads the partly written
    /// blocks into the ARC, so that no group is held open while a device is read. Fails if an indirect block
    /// above the range cannot be read: the group could not be written.
    pub async fn prepare_write(&self, range: Range<u64>) -> Result<()> {
        let (block_size, fan_out_shift, is_ready) = {
            let state = self.core.lock();
            let block_size = u64::from(state.block_size);
            // Most writes are of whole blocks, next to blocks that the group has changed already.
            let whole = range.start.is_multiple_of(block_size) && range.end.is_multiple_of(block_size);
            let (first, after) = (range.start / block_size, range.end.div_ceil(block_size));
            let shift = state.fan_out_shift();
            let is_below_one = after > first && first >> shift == (after - 1) >> shift;
            (block_size, shift, whole && is_below_one && state.has_checked_path(first))
        };
        if is_ready {
            return Ok(());
        }
        self.warm_edges(&range).await?;
        let (mut id, after) = (range.start / block_size, range.end.div_ceil(block_size));
        while id < after {
            self.check_path(id).await?;
            id = ((id >> fan_out_shift) + 1).checked_shl(fan_out_shift).unwrap_or(u64::MAX);
        }
        Ok(())
    }

    /// Must be called before a group is held for punching the bytes `range`, like
    /// [`LiveObject::prepare_write`]. Reads all indirect blocks that lead into the range.
    pub async fn prepare_punch(&self, range: Range<u64>) -> Result<()> {
        let end = self.end();
        if range.start >= end {
            return Ok(());
        }
        self.warm_edges(&range).await?;
        let block_size = self.block_size();
        let blocks = range.start / block_size..range.end.min(end).div_ceil(block_size);
        self.check_path(blocks.start).await?;
        self.check_path(blocks.end.saturating_sub(1)).await?;
        let holds_subtrees = (blocks.end - blocks.start) >> self.fan_out_shift() > 0;
        if holds_subtrees { self.check_subtrees(blocks).await } else { Ok(()) }
    }

    /// Must be called before the object is freed. Fails if an indirect block cannot be read: the blocks below
    /// it could not be freed.
    pub async fn prepare_free(&self) -> Result<()> {
        self.check_subtrees(0..u64::MAX).await
    }

    /// log2 of the number of blocks below one indirect block of level 1.
    fn fan_out_shift(&self) -> u32 {
        self.core.lock().fan_out_shift()
    }

    /// Loads the blocks that are only partly in `range` into the ARC.
    async fn warm_edges(&self, range: &Range<u64>) -> Result<()> {
        let (block_size, end) = (self.block_size(), self.end());
        for edge in [range.start, range.end] {
            if !edge.is_multiple_of(block_size) && edge < end {
                self.warm(edge / block_size).await?;
            }
        }
        Ok(())
    }

    /// Fails if the committed indirect blocks above data block `id` cannot be read.
    async fn check_path(&self, id: u64) -> Result<()> {
        loop {
            let tree = {
                let state = self.core.lock();
                if state.has_checked_path(id) {
                    return Ok(());
                }
                // A block that a group changed already was checked then.
                let Base::Committed(tree) = state.find(id) else { return Ok(()) };
                tree
            };
            match tree.check_path(self.objset.pool(), id).await {
                Err(_) if !self.is_current(&tree) => {}
                checked => return checked,
            }
        }
    }

    async fn check_subtrees(&self, blocks: Range<u64>) -> Result<()> {
        loop {
            let tree = Arc::clone(&self.core.lock().tree);
            match tree.check_subtrees(self.objset.pool(), blocks.clone()).await {
                Err(_) if !self.is_current(&tree) => {}
                checked => return checked,
            }
        }
    }

    /// Data block `id`. `retain` applies to blocks that the ARC does not cache.
    pub(in crate::dmu) async fn block_retaining(
        &self,
        id: u64,
        retain: Retain,
    ) -> Result<Option<OrderedBlock>> {
        loop {
            self.objset.check()?;
            let base = self.core.lock().find(id);
            let tree = match base {
                Base::Written(block) => return Ok(Some(little(block))),
                Base::Cloned(pointer) => {
                    let block = self.read_cloned(&pointer, id).await?;
                    return Ok(Some(OrderedBlock { block, order: pointer.byte_order() }));
                }
                Base::Hole => return Ok(None),
                Base::Committed(tree) => tree,
            };
            match tree.block(self.objset.pool(), id, retain).await {
                Ok(found) => return Ok(found),
                Err(error) if self.is_current(&tree) => return Err(error),
                // The block was freed, and its space perhaps reused, during the read.
                Err(_) => {}
            }
        }
    }

    /// Whether a tree is still that of the last sync.
    pub(super) fn is_current(&self, tree: &Arc<Tree>) -> bool {
        Arc::ptr_eq(tree, &self.core.lock().tree)
    }

    /// Fills `into` with the bytes from `offset` on.
    pub async fn read_at(&self, offset: u64, mut into: &mut [u8]) -> Result<()> {
        self.read_to(offset, into.len() as u64, &mut into).await
    }

    /// Reads `length` bytes from `offset` on into a sink.
    pub async fn read_to(&self, offset: u64, length: u64, sink: &mut dyn Sink) -> Result<()> {
        let end = offset.checked_add(length).ok_or_else(|| self.beyond())?;
        let load = |id, retain| self.block_retaining(id, retain);
        read_blocks((offset, end), self.block_size(), sink, load, |_, found, start, len, sink| {
            give(found, start, len, sink);
            Ok(())
        })
        .await
    }

    /// The run of data or hole that contains `offset`; see [`crate::dmu::Object::span`].
    pub async fn span(&self, offset: u64) -> Result<Span> {
        loop {
            self.objset.check()?;
            let (block_size, run, limit, tree) = {
                let state = self.core.lock();
                let block_size = u64::from(state.block_size);
                let (run, limit) = state.run(offset / block_size);
                (block_size, run, limit, Arc::clone(&state.tree))
            };
            let to_bytes = |id: u64| id.saturating_mul(block_size);
            if let Some(is_hole) = run {
                return Ok(Span { is_hole, end: to_bytes(limit) });
            }
            let id = offset / block_size;
            let found = match tree.find(self.objset.pool(), 0, id).await {
                Ok(found) => found,
                Err(error) if self.is_current(&tree) => return Err(error),
                Err(_) => continue,
            };
            let (is_hole, end) = match found {
                Found::Data(_) => (false, id.saturating_add(1)),
                Found::Hole { end } => (true, end.unwrap_or(u64::MAX)),
            };
            return Ok(Span { is_hole, end: to_bytes(end.min(limit)) });
        }
    }

    /// The blocks that writing to a range makes dirty in the group `txg`, in blocks of `block_size` bytes if
    /// their size is to change.
    pub fn newly_dirty(&self, txg: Txg, range: &Range<u64>, block_size: Option<u32>) -> Dirtied {
        let state = self.core.lock();
        let block_size = u64::from(block_size.unwrap_or(state.block_size));
        if range.is_empty() {
            return Dirtied::default();
        }
        state.newly_dirty(txg, range.start / block_size, range.end.div_ceil(block_size), block_size)
    }

    /// The blocks that truncating the content at `edge` makes dirty in the group `txg`: the block that loses
    /// a part, if there is one, and the indirect blocks above the edge.
    pub fn newly_dirty_by_cut(&self, txg: Txg, edge: u64) -> Dirtied {
        let state = self.core.lock();
        let block_size = u64::from(state.block_size);
        let block = edge / block_size;
        if block > state.end {
            return Dirtied::default();
        }
        let cut = state.newly_dirty(txg, block, block + 1, block_size);
        let is_whole = edge.is_multiple_of(block_size) || block >= state.end;
        // The pointers before and after the edge change, also where the block is dirty already.
        let indirect_bytes = cut.indirect_bytes.saturating_add(state.pointer_growth(block));
        Dirtied { blocks: if is_whole { 0 } else { cut.blocks }, indirect_bytes, ..cut }
    }

    /// The blocks that replacing a range by references to stored blocks of `block_size` bytes makes dirty in
    /// the group `txg`.
    pub fn newly_dirty_by_clone(&self, txg: Txg, range: &Range<u64>, block_size: u64) -> Dirtied {
        let state = self.core.lock();
        let all =
            state.newly_dirty(txg, range.start / block_size, range.end.div_ceil(block_size), block_size);
        let cloned = (range.end - range.start).div_ceil(block_size);
        Dirtied { blocks: 0, cloned, cloned_bytes: cloned.saturating_mul(block_size), ..all }
    }

    /// The blocks that changing the object's attributes makes dirty in the group `txg`: its dnode's block,
    /// unless the object was changed already.
    pub fn newly_dirty_description(&self, txg: Txg) -> Dirtied {
        let is_dirty = self.core.lock().layers.iter().any(|layer| layer.txg == txg);
        let file = Dirtied::file();
        Dirtied { described_bytes: if is_dirty { 0 } else { file.described_bytes }, ..file }
    }

    /// The blocks that changing an entry of a directory makes dirty in the group `txg`.
    pub fn newly_dirty_by_entry(&self, txg: Txg) -> Dirtied {
        let described = self.newly_dirty_description(txg);
        let state = self.core.lock();
        let layer = state.layers.iter().find(|layer| layer.txg == txg);
        let is_dirty = layer.is_some_and(|layer| !layer.blocks.is_empty());
        let dnode = state.tree.dnode();
        let levels = u64::from(dnode.levels.saturating_sub(1));
        let block_size = u64::from(state.block_size);
        // A single block may become several: a header and leaves. Otherwise a leaf may split; the header has
        // the table of leaves. If each level has a single indirect block, these are dirty with the first
        // entry.
        let (blocks, indirect) = match (state.end > 1, state.end >> dnode.pointers_per_indirect_shift() > 0) {
            (false, _) => (if is_dirty { 0 } else { SPLIT_BLOCKS }, u64::from(!is_dirty)),
            (true, false) => (SPLIT_BLOCKS, if is_dirty { 0 } else { levels.max(1) }),
            (true, true) => (SPLIT_BLOCKS, 2 * levels),
        };
        let bytes = blocks.saturating_mul(block_size.max(DNODE_BLOCK_SIZE as u64));
        Dirtied {
            described_bytes: described.described_bytes.saturating_add(bytes),
            indirect_bytes: indirect.saturating_mul(dnode.indirect_block_size()),
            ..described
        }
    }

    /// Writes a whole block.
    pub fn write_block(&self, tx: &Tx, id: u64, block: Block) {
        let mut state = self.core.lock();
        debug_assert_eq!(block.len(), state.block_size as usize, "{}", self.id());
        if block.len() != state.block_size as usize || !has_block(state.block_size, id) {
            return;
        }
        let old = self.layer(&mut state, tx).and_then(|layer| state.put(layer, id, block));
        drop(state);
        drop(old);
    }

    /// Writes bytes anywhere. Finishes in the first poll when the partly written blocks are cached.
    pub async fn write_at(&self, tx: &Tx, offset: u64, bytes: &[u8]) -> Result<()> {
        self.write_payload(tx, offset, bytes.into()).await
    }

    /// The same for bytes that may be in blocks already.
    pub async fn write_payload(&self, tx: &Tx, offset: u64, payload: Payload<'_>) -> Result<()> {
        let end = offset.checked_add(payload.len() as u64).ok_or_else(|| self.beyond())?;
        let (mut at, mut rest) = (offset, payload);
        let mut streamed = 0;
        while at < end {
            let block_size = self.core.lock().block_size;
            let (id, start) = (at / u64::from(block_size), (at % u64::from(block_size)) as usize);
            let (piece, later) = rest.split_at(rest.len().min(block_size as usize - start));
            if !has_block(block_size, id) {
                return Err(Error::Invalid(format!("{self:?}: a second block of {block_size} bytes")));
            }
            let done = if piece.len() == block_size as usize {
                self.write_whole(tx, block_size, id, piece)?
            } else {
                self.write_part(tx, block_size, id, start, &piece.to_run()).await?
            };
            if done {
                at += piece.len() as u64;
                rest = later;
                if piece.len() >= STREAMED_BLOCK_BYTES && self.core.lock().is_new(id) {
                    streamed += piece.len() as u64;
                }
            }
        }
        tx.note_streamed(streamed);
        Ok(())
    }

    /// Writes all of a block. Returns false when the block size changed meanwhile.
    fn write_whole(&self, tx: &Tx, block_size: u32, id: u64, payload: Payload<'_>) -> Result<bool> {
        let block = match payload.as_block() {
            Some(block) => block.clone(),
            None => Block::from(IoBuf::from(&*payload.to_run())),
        };
        let mut state = self.core.lock();
        if state.block_size != block_size {
            return Ok(false);
        }
        let layer = self.layer(&mut state, tx).ok_or_else(|| self.gone())?;
        let old = state.put(layer, id, block);
        drop(state);
        drop(old);
        Ok(true)
    }

    /// Writes a part of a block. Returns false when the block size changed meanwhile.
    async fn write_part(
        &self,
        tx: &Tx,
        block_size: u32,
        id: u64,
        start: usize,
        bytes: &[u8],
    ) -> Result<bool> {
        let mut prepared: Option<(Base, IoBuf)> = None;
        loop {
            let base = {
                let mut state = self.core.lock();
                if state.block_size != block_size {
                    return Ok(false);
                }
                let at = self.layer(&mut state, tx).ok_or_else(|| self.gone())?;
                if state.patch(at, id, start, bytes) {
                    return Ok(true);
                }
                let base = state.find_below(at + 1, id);
                if let Some((seen, buffer)) = prepared.take()
                    && seen.is_same(&base)
                {
                    state.put_part(at, id, Block::from(buffer), start, bytes.len());
                    return Ok(true);
                }
                base
            };
            // Without the lock: the present block, overwritten with the new bytes.
            let mut buffer = match self.load(&base, id).await? {
                Loaded::Block(block) if block.len() == block_size as usize => IoBuf::from(&block[..]),
                Loaded::Block(_) => return Err(self.corrupt("a block of another size")),
                Loaded::Hole => IoBuf::zeroed(block_size as usize),
                Loaded::Again => continue,
            };
            device::copy(&mut buffer[start..start + bytes.len()], bytes);
            prepared = Some((base, buffer));
        }
    }

    /// The bytes of a block that is about to be changed.
    async fn load(&self, base: &Base, id: u64) -> Result<Loaded> {
        let tree = match base {
            Base::Written(block) => return Ok(Loaded::Block(block.clone())),
            Base::Cloned(pointer) => return Ok(Loaded::Block(self.read_cloned(pointer, id).await?)),
            Base::Hole => return Ok(Loaded::Hole),
            Base::Committed(tree) => tree,
        };
        match tree.block(self.objset.pool(), id, Retain::Out).await {
            Ok(None) => Ok(Loaded::Hole),
            Ok(Some(found)) => {
                let turns = tree.dnode().dmu_type.byteswap() != Byteswap::Uint8;
                if found.order == ByteOrder::Big && turns {
                    let what = "was written by a big-endian machine and can only be read";
                    return Err(Error::Unsupported(format!("{self:?}: {what}")));
                }
                Ok(Loaded::Block(found.block))
            }
            Err(error) if self.is_current(tree) => Err(error),
            Err(_) => Ok(Loaded::Again),
        }
    }

    /// The block behind a cloned pointer.
    pub(crate) async fn read_cloned(&self, pointer: &Blkptr, id: u64) -> Result<Block> {
        let at = Bookmark { objset: self.objset.id().0, object: self.id().0, level: 0, blkid: id };
        self.objset.pool().read_block(pointer, &at).await
    }

    /// Rewrites block `id` with the same contents, as blocks are written now. With `keeps_birth` its logical
    /// birth stays the same. Returns false if there is nothing to do: a hole, or a block that is written
    /// anyway.
    pub async fn rewrite(&self, tx: &Tx, id: u64, keeps_birth: bool) -> Result<bool> {
        let mut prepared: Option<(Base, Block)> = None;
        loop {
            let (base, block_size) = {
                let mut state = self.core.lock();
                let at = self.layer(&mut state, tx).ok_or_else(|| self.gone())?;
                if state.is_written_from(at, id) {
                    return Ok(false);
                }
                let base = state.find_below(at + 1, id);
                if let Some((seen, block)) = prepared.take()
                    && seen.is_same(&base)
                    && block.len() == state.block_size as usize
                    && let Some(layer) = state.layers.get_mut(at)
                {
                    if keeps_birth {
                        layer.rewritten.insert(id, block.clone());
                    }
                    layer.blocks.insert(id, block);
                    return Ok(true);
                }
                (base, state.block_size)
            };
            prepared = match self.load(&base, id).await? {
                Loaded::Block(block) if block.len() == block_size as usize => Some((base, block)),
                Loaded::Block(_) => return Err(self.corrupt("a block of another size")),
                Loaded::Hole => return Ok(false),
                Loaded::Again => None,
            };
        }
    }

    /// How data block `id` is stored on disk.
    pub async fn stored(&self, id: u64) -> Result<Stored> {
        loop {
            let tree = match self.core.lock().find(id) {
                Base::Written(_) => return Ok(Stored::Changed),
                // The block is stored, and this reference keeps it from its group on.
                Base::Cloned(pointer) => return Ok(Stored::Block(pointer)),
                Base::Hole => return Ok(Stored::Hole),
                Base::Committed(tree) => tree,
            };
            match tree.find(self.objset.pool(), 0, id).await {
                Ok(Found::Hole { .. }) => return Ok(Stored::Hole),
                Ok(Found::Data(pointer)) => return Ok(Stored::Block(pointer)),
                Err(error) if self.is_current(&tree) => return Err(error),
                Err(_) => {}
            }
        }
    }

    /// Makes data block `id` a reference to a stored block of the same size, which its owner keeps while the
    /// group of `tx` is open. Returns false when the sizes differ.
    pub fn clone_block(&self, tx: &Tx, id: u64, pointer: &Blkptr) -> Result<bool> {
        let mut state = self.core.lock();
        if pointer.lsize().0 != u64::from(state.block_size) || !has_block(state.block_size, id) {
            return Ok(false);
        }
        let layer = self.layer(&mut state, tx).ok_or_else(|| self.gone())?;
        let old = state.put_cloned(layer, id, *pointer);
        drop(state);
        drop(old);
        Ok(true)
    }

    /// Makes a range read as zeroes: whole blocks become holes. `length` may be `u64::MAX` for everything to
    /// the end.
    pub async fn punch(&self, tx: &Tx, offset: u64, length: u64) -> Result<()> {
        let (block_size, data_end) = {
            let state = self.core.lock();
            (u64::from(state.block_size), state.end.saturating_mul(state.block_size.into()))
        };
        let end = offset.saturating_add(length);
        if offset >= end.min(data_end) {
            return Ok(());
        }
        let first = offset.div_ceil(block_size);
        let after = if end >= data_end { u64::MAX } else { end / block_size };
        if first < after {
            let mut state = self.core.lock();
            let layer = self.layer(&mut state, tx).ok_or_else(|| self.gone())?;
            let dropped = state.punch(layer, first, after);
            drop(state);
            drop(dropped);
        }
        let (head_end, tail) = (first.saturating_mul(block_size).min(end), after.saturating_mul(block_size));
        if offset < head_end {
            self.zero(tx, offset, head_end.min(data_end)).await?;
        }
        if after >= first && after != u64::MAX && tail < end {
            self.zero(tx, tail, end).await?;
        }
        Ok(())
    }

    /// Writes zeroes within one block, if it is not a hole.
    async fn zero(&self, tx: &Tx, from: u64, to: u64) -> Result<()> {
        if from >= to || self.block(from / self.block_size()).await?.is_none() {
            return Ok(());
        }
        self.write_at(tx, from, &Block::zero((to - from) as usize)).await
    }

    /// Makes it a new object under the same number, in as many slots as before: all that it had is freed, its
    /// spill block too. Only for objects that nothing else uses, and whose indirect blocks can be read
    /// ([`LiveObject::prepare_free`]).
    pub(crate) fn replace(&self, tx: &Tx, new: &NewObject) -> Result<()> {
        let dnode = dnodes::new_dnode(new)?;
        let mut state = self.core.lock();
        if dnode.slots() != state.tree.dnode().slots() {
            return Err(Error::Invalid(format!(
                "{self:?}: replaced by an object of {} slots",
                dnode.slots()
            )));
        }
        let at = self.layer(&mut state, tx).ok_or_else(|| self.gone())?;
        if at + 1 != state.layers.len() {
            return Err(Error::Invalid(format!("{self:?}: replaced in a group before its last change")));
        }
        let dropped = state.rebear(at, dnode);
        drop(state);
        drop(dropped);
        Ok(())
    }

    /// Changes the layer of the group of `tx`, if the object is not freed.
    pub(super) fn change_layer(&self, tx: &Tx, change: impl FnOnce(&mut State, usize)) {
        let mut state = self.core.lock();
        if let Some(at) = self.layer(&mut state, tx) {
            change(&mut state, at);
        }
    }

    /// Adds an empty layer for the group of `tx`, so that its dnode is written with that group.
    pub(crate) fn touch(&self, tx: &Tx) {
        let mut state = self.core.lock();
        self.layer(&mut state, tx);
    }

    /// Frees it. Returns false when it was freed already.
    pub(super) fn free(&self, tx: &Tx) -> bool {
        let mut state = self.core.lock();
        let Some(at) = self.layer(&mut state, tx) else { return false };
        let dropped = state.punch(at, 0, u64::MAX);
        state.layers[at].freed = true;
        state.freed = true;
        drop(state);
        drop(dropped);
        true
    }

    /// The layer of a group; `None` when the object is freed.
    fn layer(&self, state: &mut State, tx: &Tx) -> Option<usize> {
        if state.freed || self.objset.is_gone() {
            return None;
        }
        tx.note_changed();
        let (at, is_new) = state.layer(tx.txg());
        if is_new {
            self.objset.note_dirty(tx, &self.core);
        }
        Some(at)
    }

    /// An error about the contents of the object.
    pub fn corrupt(&self, detail: impl fmt::Display) -> Error {
        Error::corrupt(format!("objset {}, object {}", self.objset.id(), self.id()), detail)
    }

    fn gone(&self) -> Error {
        if let Err(error) = self.objset.check() {
            return error;
        }
        Error::NotFound(format!("objset {}, object {}", self.objset.id(), self.id()))
    }

    fn beyond(&self) -> Error {
        Error::Invalid(format!("{self:?}: beyond 2^64"))
    }
}

/// How a data block is stored on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stored {
    /// It was written since the last commit.
    Changed,
    /// It is a hole.
    Hole,
    /// The block, including a block that it refers to since the last commit.
    Block(Blkptr),
}

enum Loaded {
    Block(Block),
    Hole,
    /// The object changed meanwhile.
    Again,
}

/// Only blocks with a size of a power of two can have a neighbour.
fn has_block(block_size: u32, id: u64) -> bool {
    id == 0 || block_size.is_power_of_two()
}

fn little(block: Block) -> OrderedBlock {
    OrderedBlock { block, order: ByteOrder::Little }
}

fn give(found: Option<&OrderedBlock>, start: usize, len: usize, sink: &mut dyn Sink) {
    // The block size may have changed during the read: bytes beyond the smaller size were never written.
    let Some(OrderedBlock { block, .. }) = found else { return sink.put_zeroes(len) };
    let there = block.len().saturating_sub(start).min(len);
    sink.put_block(block, start..start + there);
    if there < len {
        sink.put_zeroes(len - there);
    }
}

impl fmt::Debug for LiveObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LiveObject({} of {:?})", self.id(), self.objset)
    }
}
