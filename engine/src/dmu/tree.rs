//! The block tree of one dnode: from (level, block id) to the block pointer, and from there to the block.
//!
//! The dnode holds the pointers of the top level, each indirect block the pointers of `2^n` blocks one level
//! below. A pointer that is a hole represents its whole subtree. The way down starts at the lowest indirect
//! block that is at hand: a small table keeps handles of the recently used indirect blocks, so that a read in
//! a hot region takes one pointer from there and asks the ARC for one block. The table also knows which
//! pointers of a handle were parsed and checked: each of them is checked once. The handles share their bytes
//! with the ARC; the size of the table bounds the evicted blocks that handles still hold.
//!
//! A tree never changes: an object set that is open for reading is a snapshot in time.
//!
//! | lock | guards | order |
//! |---|---|---|
//! | slot mutex | one handle; held to take a pointer, never across an await | taken alone |

use std::ops::Range;
use std::pin::Pin;
use std::sync::Mutex;

use device::{IgnorePoison, IoBuf};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use ondisk::blkptr::Blkptr;
use ondisk::byteswap::{Turned, to_little};
use ondisk::dnode::Dnode;
use ondisk::{BlockId, ByteOrder, Level, ObjectId, ObjsetId};

use crate::cache::{PrimaryCache, Retain};
use crate::store::Store;
use crate::{Block, Bookmark, Error, Result};

/// The most handles of indirect blocks that one object keeps.
const MAX_SLOTS: u64 = 64;
/// So few blocks are not counted more exactly: that would take longer than freeing them.
const FEW_BLOCKS: u64 = 64;
/// The number of subtrees that are walked at once.
pub(crate) const WALKS: usize = 16;

/// A block and the byte order of the numbers in it.
#[derive(Clone, Debug)]
pub struct OrderedBlock {
    /// The bytes.
    pub block: Block,
    /// Their byte order.
    pub order: ByteOrder,
}

impl OrderedBlock {
    /// A block with the byte order in its pointer; blocks of big-endian machines are converted if possible.
    pub(crate) fn of(block: Block, pointer: &Blkptr) -> Self {
        let order = pointer.byte_order();
        if order == ByteOrder::Little {
            return Self { block, order };
        }
        match to_little(&block, pointer.dmu_type(), pointer.level().0) {
            Ok(Turned::Same) => Self { block, order: ByteOrder::Little },
            Ok(Turned::Bytes(bytes)) => {
                Self { block: Block::from(IoBuf::from(bytes.as_slice())), order: ByteOrder::Little }
            }
            // The parser of the block reports what is wrong with it.
            Ok(Turned::Not) | Err(_) => Self { block, order },
        }
    }
}

/// The block tree of one dnode.
#[derive(Debug)]
pub(crate) struct Tree {
    objset: ObjsetId,
    object: ObjectId,
    dnode: Dnode,
    keyless: bool,
    primary: PrimaryCache,
    slots: Box<[Mutex<Option<Slot>>]>,
}

#[derive(Debug)]
struct Slot {
    level: u8,
    id: u64,
    indirect: OrderedBlock,
    /// A bit for each pointer: it was parsed and checked.
    checked: Box<[u64]>,
}

impl Slot {
    fn new(level: u8, id: u64, indirect: OrderedBlock) -> Self {
        let pointers = indirect.block.len() / Blkptr::SIZE;
        Self { level, id, indirect, checked: vec![0; pointers.div_ceil(64)].into_boxed_slice() }
    }

    /// Pointer `index`, if it is known to be right.
    fn checked(&self, index: usize) -> Option<Blkptr> {
        let is_checked = self.checked.get(index / 64)? >> (index % 64) & 1 != 0;
        let bytes = self.indirect.block.get(index * Blkptr::SIZE..).filter(|_| is_checked)?;
        Blkptr::of_parsed_bytes(bytes, self.indirect.order)
    }

    /// Notes that pointer `index` is right.
    fn note_checked(&mut self, index: usize) {
        if let Some(word) = self.checked.get_mut(index / 64) {
            *word |= 1 << (index % 64);
        }
    }
}

/// A pointer as [`Blkptr::SIZE`] bytes of an indirect block.
pub(crate) struct RawPointer<'a>(pub(crate) &'a [u8]);

impl RawPointer<'_> {
    const PROPERTIES: usize = 6 * 8;
    const FILL: usize = 11 * 8;

    fn word(&self, at: usize, order: ByteOrder) -> u64 {
        self.0.get(at..).and_then(|bytes| bytes.first_chunk()).map_or(0, |bytes| order.u64(*bytes))
    }

    /// Whether the first address is not empty.
    pub(crate) fn has_place(&self) -> bool {
        self.0.get(..16).is_some_and(|address| address != [0; 16])
    }

    /// Whether the block is stored in the pointer itself.
    pub(crate) fn is_embedded(&self, order: ByteOrder) -> bool {
        self.word(Self::PROPERTIES, order) >> 39 & 1 != 0
    }

    /// The number of non-hole blocks of level 0 below it.
    pub(crate) fn fill(&self, order: ByteOrder) -> u64 {
        let uses_crypt = self.word(Self::PROPERTIES, order) >> 61 & 1 != 0;
        match uses_crypt {
            false => self.word(Self::FILL, order),
            // A part of the IV may lie beside it.
            true => Blkptr::parse(self.0, order).map_or(0, |pointer| pointer.fill()),
        }
    }
}

/// The contents at a block id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// A hole, which ends before this block id, or nowhere.
    Hole { end: Option<u64> },
    /// A block.
    Data(Blkptr),
}

impl Tree {
    /// With `keyless`, blocks are read in the form that is readable without a key
    /// ([`Store::read_block_without_key`]). `primary` selects the blocks that the ARC caches.
    pub(crate) fn new(
        objset: ObjsetId,
        object: ObjectId,
        dnode: Dnode,
        keyless: bool,
        primary: PrimaryCache,
    ) -> Self {
        let slots = if dnode.levels <= 1 {
            0
        } else {
            let indirects =
                dnode.ancestor(dnode.max_block_id, Level(1)).0.saturating_add(u64::from(dnode.levels));
            indirects.min(MAX_SLOTS).next_power_of_two()
        };
        let slots = (0..slots).map(|_| Mutex::new(None)).collect();
        Self { objset, object, dnode, keyless, primary, slots }
    }

    /// A block of this tree, as the object set is opened. A block that is not to be cached stays in the ARC
    /// if it was there.
    pub(crate) async fn read(&self, store: &Store, bp: &Blkptr, at: &Bookmark) -> Result<Block> {
        self.read_retaining(store, bp, at, Retain::AsItWas).await
    }

    /// Like [`Tree::read`]; `retain` applies to blocks that the ARC does not cache.
    async fn read_retaining(
        &self,
        store: &Store,
        bp: &Blkptr,
        at: &Bookmark,
        retain: Retain,
    ) -> Result<Block> {
        if self.keyless {
            return store.read_block_without_key(bp, at).await;
        }
        let retain = if !retain.waits() && self.is_cached(at) { Retain::In } else { retain };
        store.read_retaining(bp, at, retain, self.may_feed(at)).await
    }

    /// Whether the ARC caches a block.
    pub(crate) fn is_cached(&self, at: &Bookmark) -> bool {
        self.primary.get().takes(self.is_metadata(at))
    }

    /// Whether a cache device may get a block that the ARC has.
    pub(crate) fn may_feed(&self, at: &Bookmark) -> bool {
        self.primary.secondary().takes(self.is_metadata(at))
    }

    fn is_metadata(&self, at: &Bookmark) -> bool {
        at.level > 0 || at.blkid == Bookmark::BLKID_SPILL || self.dnode.dmu_type.is_metadata()
    }

    pub(crate) fn dnode(&self) -> &Dnode {
        &self.dnode
    }

    pub(crate) fn object_id(&self) -> ObjectId {
        self.object
    }

    pub(crate) fn bookmark(&self, level: u8, id: u64) -> Bookmark {
        Bookmark { objset: self.objset.0, object: self.object.0, level: level.into(), blkid: id }
    }

    fn slot(&self, level: u8, id: u64) -> Option<&Mutex<Option<Slot>>> {
        let index =
            id.wrapping_add(u64::from(level - 1).wrapping_mul(7)) & (self.slots.len() as u64).wrapping_sub(1);
        self.slots.get(usize::try_from(index).ok()?)
    }

    /// The indirect block of `level`, if the table has a handle of it.
    fn kept(&self, level: u8, id: u64) -> Option<OrderedBlock> {
        let slot = self.slot(level, id)?.lock().ignore_poison();
        slot.as_ref().filter(|kept| kept.level == level && kept.id == id).map(|kept| kept.indirect.clone())
    }

    fn keep(&self, kept: Slot) {
        if let Some(slot) = self.slot(kept.level, kept.id) {
            let before = slot.lock().ignore_poison().replace(kept);
            // Freed outside of the lock.
            drop(before);
        }
    }

    /// The block of `level` that is or covers data block `id`.
    fn ancestor(&self, id: u64, level: u8) -> u64 {
        self.dnode.ancestor(BlockId(id), Level(level as i8)).0
    }

    /// Data blocks below block `id` of `level`.
    pub(crate) fn below(&self, level: u8, id: u64) -> Range<u64> {
        let shift = self.dnode.pointers_per_indirect_shift() * u32::from(level);
        let edge = |id: u128| u64::try_from(id.checked_shl(shift).unwrap_or(u128::MAX)).unwrap_or(u64::MAX);
        edge(id.into())..edge(u128::from(id) + 1)
    }

    /// The first data block after the subtree of block `id` of `level`; `None` when there can be none.
    fn subtree_end(&self, id: u64, level: u8) -> Option<u64> {
        let shift = self.dnode.pointers_per_indirect_shift() * u32::from(level);
        if shift >= 64 {
            return None;
        }
        u64::try_from((u128::from(id) + 1) << shift).ok()
    }

    /// The pointer to the block `wanted` levels above data block `id`.
    pub(crate) async fn find(&self, store: &Store, wanted: u8, id: u64) -> Result<Found> {
        let top = self.dnode.levels - 1;
        if wanted > top || id > self.dnode.max_block_id.0 {
            return Ok(Found::Hole { end: None });
        }
        let Some((mut pointer, mut level)) = self.nearest(wanted, id)? else {
            return Ok(Found::Hole { end: None });
        };
        loop {
            let here = self.ancestor(id, level);
            if pointer.is_hole() {
                return Ok(Found::Hole { end: self.subtree_end(here, level) });
            }
            if level == wanted {
                return Ok(Found::Data(pointer));
            }
            let block = self.read(store, &pointer, &self.bookmark(level, here)).await?;
            let mut slot = Slot::new(level, here, OrderedBlock::of(block, &pointer));
            level -= 1;
            pointer = self.pointer(&mut slot, id)?;
            self.keep(slot);
        }
    }

    /// The pointer on the way to data block `id` that is nearest to level `wanted`, of those that are at
    /// hand, and its level. `None` when the dnode has no pointer there.
    fn nearest(&self, wanted: u8, id: u64) -> Result<Option<(Blkptr, u8)>> {
        let top = self.dnode.levels - 1;
        for level in wanted..top {
            let here = self.ancestor(id, level + 1);
            let Some(slot) = self.slot(level + 1, here) else { break };
            let mut slot = slot.lock().ignore_poison();
            if let Some(slot) = slot.as_mut().filter(|slot| slot.level == level + 1 && slot.id == here) {
                return self.pointer(slot, id).map(|pointer| Some((pointer, level)));
            }
        }
        let here = self.ancestor(id, top);
        let Some(pointer) = usize::try_from(here).ok().and_then(|index| self.dnode.blkptrs.get(index)) else {
            return Ok(None);
        };
        self.check(pointer, top, here)?;
        Ok(Some((*pointer, top)))
    }

    /// The pointer on the way to data block `id` in an indirect block.
    fn pointer(&self, slot: &mut Slot, id: u64) -> Result<Blkptr> {
        let (level, order) = (slot.level - 1, slot.indirect.order);
        let here = self.ancestor(id, level);
        let fan_out_mask = (1u64 << self.dnode.pointers_per_indirect_shift()) - 1;
        let index = (here & fan_out_mask) as usize;
        if let Some(pointer) = slot.checked(index) {
            return Ok(pointer);
        }
        let start = index * Blkptr::SIZE;
        let bytes = slot.indirect.block.get(start..start + Blkptr::SIZE).unwrap_or_default();
        let pointer = Blkptr::parse(bytes, order)
            .map_err(|error| Error::corrupt(self.bookmark(level, here).to_string(), error))?;
        self.check(&pointer, level, here)?;
        slot.note_checked(index);
        Ok(pointer)
    }

    /// A pointer must have the size and level that follow from the dnode, unless it is a hole.
    fn check(&self, pointer: &Blkptr, level: u8, id: u64) -> Result<()> {
        if pointer.is_hole() {
            return Ok(());
        }
        let expected =
            if level == 0 { self.dnode.data_block_size() } else { self.dnode.indirect_block_size() };
        let (found, found_level) = (pointer.lsize().0, pointer.level().0);
        if found != expected || (!pointer.is_embedded() && found_level != level as i8) {
            let detail = format!("points to {found} bytes at level {found_level}, expected {expected} bytes");
            return Err(Error::corrupt(self.bookmark(level, id).to_string(), detail));
        }
        Ok(())
    }

    /// Whether all pointers in a little-endian indirect block of level 1, whose first child is `first`, are
    /// right.
    pub(crate) fn is_sound(&self, indirect: &[u8], first: u64) -> bool {
        let mut pointers = (first..).zip(indirect.chunks_exact(Blkptr::SIZE));
        pointers.all(|(id, bytes)| {
            let pointer = Blkptr::parse(bytes, ByteOrder::Little);
            pointer.is_ok_and(|pointer| self.check(&pointer, 0, id).is_ok())
        })
    }

    /// Block `id` of `level` above the data, in little-endian order, with its pointer; `None` for a hole.
    pub(crate) async fn indirect(
        &self,
        store: &Store,
        level: u8,
        id: u64,
    ) -> Result<Option<(Blkptr, Block)>> {
        let shift = self.dnode.pointers_per_indirect_shift() * u32::from(level);
        let first = if shift < 64 { id.checked_mul(1 << shift) } else { (id == 0).then_some(0) };
        let Some(first) = first else { return Ok(None) };
        match self.find(store, level, first).await? {
            Found::Hole { .. } => Ok(None),
            Found::Data(pointer) => {
                let block = match self.kept(level, id) {
                    Some(kept) => kept.block,
                    None => {
                        let block = self.read(store, &pointer, &self.bookmark(level, id)).await?;
                        OrderedBlock::of(block, &pointer).block
                    }
                };
                Ok(Some((pointer, block)))
            }
        }
    }

    /// Data block `id`, or `None` for a hole. `retain` applies to blocks that the ARC does not cache.
    pub(crate) async fn block(&self, store: &Store, id: u64, retain: Retain) -> Result<Option<OrderedBlock>> {
        match self.find(store, 0, id).await? {
            Found::Hole { .. } => Ok(None),
            Found::Data(pointer) => {
                let block = self.read_retaining(store, &pointer, &self.bookmark(0, id), retain).await?;
                Ok(Some(match self.keyless {
                    true => OrderedBlock { block, order: pointer.byte_order() },
                    false => OrderedBlock::of(block, &pointer),
                }))
            }
        }
    }

    /// The non-hole pointers in indirect block `id` of `level`, to which `pointer` leads, and the ids of
    /// their blocks.
    pub(crate) async fn children(
        &self,
        store: &Store,
        pointer: &Blkptr,
        level: u8,
        id: u64,
    ) -> Result<Vec<(u64, Blkptr)>> {
        let at = self.bookmark(level, id);
        let expected = self.dnode.indirect_block_size();
        if pointer.lsize().0 != expected || pointer.level() != Level(level as i8) || pointer.is_embedded() {
            return Err(Error::corrupt(at.to_string(), "points to a block of another size or level"));
        }
        let OrderedBlock { block, order } = OrderedBlock::of(self.read(store, pointer, &at).await?, pointer);
        let first = id << self.dnode.pointers_per_indirect_shift();
        let mut children = Vec::new();
        for (index, bytes) in block.chunks_exact(Blkptr::SIZE).enumerate() {
            let raw = RawPointer(bytes);
            if !raw.has_place() && !raw.is_embedded(order) {
                continue;
            }
            let child = Blkptr::parse(bytes, order).map_err(|error| {
                Error::corrupt(self.bookmark(level - 1, first + index as u64).to_string(), error)
            })?;
            children.push((first + index as u64, child));
        }
        Ok(children)
    }

    /// The number of data blocks, as the pointers of the dnode count them.
    pub(crate) fn filled_blocks(&self) -> u64 {
        match self.dnode.levels {
            1 => self.dnode.blkptrs.len() as u64,
            _ => self.dnode.blkptrs.iter().map(Blkptr::fill).fold(0, u64::saturating_add),
        }
    }

    /// Where the last of the data blocks `range` begin that are no more than `most`, and how many there are:
    /// whole indirect blocks of level 1, at least one with blocks, or all of the range.
    pub(crate) async fn last_part(&self, store: &Store, range: Range<u64>, most: u64) -> Result<(u64, u64)> {
        let end = range.end.min(self.dnode.max_block_id.0.saturating_add(1));
        let (all, top) = (self.filled_blocks(), self.dnode.levels - 1);
        let length = end.saturating_sub(range.start);
        if top == 0 || all <= most || length <= FEW_BLOCKS {
            return Ok((range.start, all.min(length)));
        }
        let mut counted = 0u64;
        // What is to be gone through, the last first.
        let mut left: Vec<(u8, u64, Blkptr)> =
            (0..).zip(&self.dnode.blkptrs).map(|(id, pointer)| (top, id, *pointer)).collect();
        while let Some((level, id, pointer)) = left.pop() {
            let below = self.below(level, id);
            if pointer.is_hole() || below.end <= range.start || below.start >= end {
                continue;
            }
            let inside = below.end.min(end) - below.start.max(range.start);
            let with_it = counted.saturating_add(pointer.fill().min(inside));
            let is_whole = range.start <= below.start && below.end <= range.end;
            if with_it <= most && is_whole {
                counted = with_it;
            } else if level > 1 {
                let children = self.children(store, &pointer, level, id).await?;
                left.extend(children.into_iter().map(|(id, pointer)| (level - 1, id, pointer)));
            } else if counted > 0 && with_it > most {
                return Ok((below.end, counted));
            } else {
                counted = with_it;
            }
        }
        Ok((range.start, counted))
    }

    /// Fails if the indirect blocks above data block `id` cannot be read. An id after the last block means
    /// the last block.
    pub(crate) async fn check_path(&self, store: &Store, id: u64) -> Result<()> {
        if self.dnode.levels <= 1 {
            return Ok(());
        }
        let id = id.min(self.dnode.max_block_id.0);
        self.find(store, 0, id).await.map(drop)
    }

    /// Fails if an indirect block above one of the data blocks `range` cannot be read.
    pub(crate) async fn check_subtrees(&self, store: &Store, range: Range<u64>) -> Result<()> {
        let top = self.dnode.levels - 1;
        let range = range.start..range.end.min(self.dnode.max_block_id.0.saturating_add(1));
        for (id, pointer) in (0..).zip(&self.dnode.blkptrs) {
            self.check_subtree(store, *pointer, (top, id), range.clone()).await?;
        }
        Ok(())
    }

    fn check_subtree<'s>(
        &'s self,
        store: &'s Store,
        pointer: Blkptr,
        (level, id): (u8, u64),
        range: Range<u64>,
    ) -> Pin<Box<dyn Future<Output = Result<()>> + Send + 's>> {
        Box::pin(async move {
            let below = self.below(level, id);
            if level == 0 || pointer.is_hole() || below.start >= range.end || below.end <= range.start {
                return Ok(());
            }
            let children = self.children(store, &pointer, level, id).await?;
            if level == 1 {
                return Ok(());
            }
            let mut walks = FuturesUnordered::new();
            for (child, pointer) in children {
                walks.push(self.check_subtree(store, pointer, (level - 1, child), range.clone()));
                if walks.len() >= WALKS
                    && let Some(checked) = walks.next().await
                {
                    checked?;
                }
            }
            while let Some(checked) = walks.next().await {
                checked?;
            }
            Ok(())
        })
    }
}
