//! Writing the changes of one block tree.
//!
//! # The idea
//! A sync has the committed tree, blocks by their ids, and punched ranges. First it walks the punched ranges
//! in the old tree: a subtree that is punched as a whole becomes one hole in the block above it, and all its
//! blocks are *killed*. Then it builds the tree from the bottom. All changes below one indirect block are a
//! *family*: the old indirect block is copied, its new children are written (with the pointers that they
//! replace) and their pointers put into the copy, and the copy is written. Its pointer is a change of the
//! level above. Many families are in progress at once; their blocks share batches ([`super::batch`]).
//!
//! If a tree has to become higher, its old top pointers become the first children of a new block, as in
//! OpenZFS.
//!
//! # Accounting
//! For each replaced pointer, the new block is *born* and the old one *killed*, unless it was overwritten in
//! its place (the same group wrote it before) or kept (nop-write). A reference to a stored block (a clone, or
//! a deduplicated block) is born too, even in the place of a reference to the same block; the code that
//! handles deaths knows how many references a block has. An indirect block of nothing but holes becomes a
//! hole itself.

use std::collections::BTreeMap;
use std::ops::Range;
use std::pin::Pin;
use std::sync::{Mutex, MutexGuard};

use device::{IgnorePoison, IoBuf};
use futures_util::StreamExt;
use futures_util::stream::FuturesOrdered;
use hashbrown::HashSet;
use ondisk::blkptr::{Blkptr, CompressType, LARGE_BLOCK_BYTES, hole};
use ondisk::dmu::DmuType;
use ondisk::dnode::{Dnode, FLAG_SPILL_BLKPTR, FLAG_USED_BYTES};
use ondisk::{BlockId, ByteOrder, Level, Lsize, ObjectId, ObjsetId, Txg};

use super::batch::Batcher;
use super::layer::{StoredIndirect, StoredIndirects, UNKNOWN_SIZE};
use super::policy::{Way, Which, class};
use super::{Policy, Space};
use crate::cache::Retain;
use crate::dmu::objset::first_slots;
use crate::dmu::tree::{RawPointer, Tree, WALKS};
use crate::error::{Error, Result};
use crate::range_set::RangeSet;
use crate::zio::{WriteRequest, Writer};
use crate::{Block, Bookmark};

/// log2 of the unit in which dnodes of the oldest pools count space.
const SECTOR_SHIFT: u32 = 9;

/// The new contents of a block.
pub(super) enum Content {
    /// These bytes.
    Data(Block),
    /// The same bytes as before: the pointer records that.
    Rewritten(Block),
    /// A block that was already written in this group, before its sync ([`super::dmu_sync`]), and its bytes.
    Early(Blkptr, Block),
    /// A block that is stored already, with one more reference to it.
    Cloned(Blkptr),
}

/// The changes of one object to write.
#[derive(Default)]
pub(super) struct Changes {
    /// Blocks by their ids, ascending.
    pub(super) blocks: Vec<(u64, Content)>,
    /// Punched ids. If an id is in `blocks` too, `blocks` counts.
    pub(super) punched: RangeSet,
    /// The number of blocks up to the last one, afterwards.
    pub(super) end: u64,
    /// The new spill block, or its removal.
    pub(super) spill: Option<Option<Block>>,
    /// Indirect blocks of level 1 whose pointers are known to be right.
    pub(super) sound: HashSet<u64>,
    /// The type by which a class of vdevs is chosen, if it is not that of the object.
    pub(super) storage_type: Option<DmuType>,
    /// Levels and last block are what the new dnode says, whatever blocks there are ([`super::raw`]).
    pub(super) is_raw: bool,
}

/// The births and deaths of blocks.
#[derive(Debug, Default)]
pub(super) struct Account {
    pub(super) born: Space,
    /// The blocks of `born`, if requested.
    pub(super) born_blocks: Vec<Blkptr>,
    pub(super) killed: Vec<Blkptr>,
    /// Some blocks of `born` have an older logical birth.
    pub(super) keeps_births: bool,
    /// Some blocks of `born` are larger than 128 KiB.
    pub(super) has_large_blocks: bool,
    /// The change of the used space.
    used: i64,
    /// Indirect blocks that were written, of one object.
    pub(super) indirects: StoredIndirects,
}

impl Account {
    /// Notes that a pointer replaces another.
    pub(super) fn replace(&mut self, batcher: &Batcher<'_>, old: &Blkptr, new: &Blkptr) {
        if is_same_place(old, new) && !new.is_dedup() {
            return;
        }
        self.kill(batcher.writer(), old);
        if !new.is_hole() {
            let space = Space::of(batcher.writer(), new);
            if batcher.lists_births() {
                self.born_blocks.push(*new);
            }
            self.has_large_blocks |= new.lsize().0 > LARGE_BLOCK_BYTES;
            self.born += space;
            self.used = self.used.wrapping_add_unsigned(space.used);
        }
    }

    /// Notes that a reference to a stored block replaces a pointer, which may be another reference to the
    /// same block.
    fn refer(&mut self, batcher: &Batcher<'_>, old: &Blkptr, new: &Blkptr) {
        self.kill(batcher.writer(), old);
        self.replace(batcher, &Blkptr::HOLE, new);
    }

    /// Notes that a block is no longer referenced.
    fn kill(&mut self, writer: &Writer, old: &Blkptr) {
        if !old.is_hole() {
            self.used = self.used.wrapping_sub_unsigned(writer.dsize(old));
            self.killed.push(*old);
        }
    }

    pub(super) fn add(&mut self, other: Account) {
        self.born += other.born;
        self.keeps_births |= other.keeps_births;
        self.has_large_blocks |= other.has_large_blocks;
        if self.killed.is_empty() {
            self.killed = other.killed;
        } else {
            self.killed.extend(other.killed);
        }
        if self.born_blocks.is_empty() {
            self.born_blocks = other.born_blocks;
        } else {
            self.born_blocks.extend(other.born_blocks);
        }
    }
}

/// A pointer to a block with the contents of an old one. Embedded blocks and holes are new wherever they are.
fn with_birth_of(old: &Blkptr, new: &Blkptr) -> Blkptr {
    let has_place = !new.is_hole() && !new.is_embedded() && !old.is_hole();
    match has_place && !is_same_place(old, new) && old.logical_birth() < new.logical_birth() {
        true => new.rewritten_since(old.logical_birth()),
        false => *new,
    }
}

/// Whether a block was kept, or overwritten in its place.
fn is_same_place(old: &Blkptr, new: &Blkptr) -> bool {
    let has_place = |pointer: &Blkptr| !pointer.is_hole() && !pointer.is_embedded();
    old == new || (has_place(old) && has_place(new) && old.dvas().eq(new.dvas()))
}

/// The sync of one object.
pub(super) struct TreeSync<'a> {
    batcher: &'a Batcher<'a>,
    policy: &'a Policy,
    objset: ObjsetId,
    object: ObjectId,
    /// The committed tree.
    old: &'a Tree,
    /// The new dnode.
    dnode: Dnode,
    /// The number of families in progress.
    families: usize,
    /// [`Changes::sound`].
    sound: HashSet<u64>,
    /// [`Changes::storage_type`].
    storage_type: Option<DmuType>,
    account: Mutex<Account>,
}

/// New pointers in some level of the tree.
type Updates = BTreeMap<u64, Blkptr>;
/// The changes directly below one indirect block: the range of its written blocks, and pointers.
type Family = (Range<usize>, Vec<(u64, Blkptr)>);

impl<'a> TreeSync<'a> {
    /// The sync of the object of `old`, whose dnode shall become `dnode`, apart from the fields that follow
    /// from its blocks.
    pub(super) fn new(
        batcher: &'a Batcher<'a>,
        policy: &'a Policy,
        objset: ObjsetId,
        old: &'a Tree,
        dnode: Dnode,
        families: usize,
    ) -> Self {
        let object = old.object_id();
        let (sound, account) = (HashSet::new(), Mutex::default());
        let storage_type = None;
        Self { batcher, policy, objset, object, old, dnode, families, sound, storage_type, account }
    }

    fn account(&self) -> MutexGuard<'_, Account> {
        self.account.lock().ignore_poison()
    }

    /// Kills all blocks.
    pub(super) async fn free(self) -> Result<Account> {
        let old = self.old.dnode();
        let top = old.levels - 1;
        let mut walks = FuturesOrdered::new();
        for (id, pointer) in old.blkptrs.iter().enumerate() {
            walks.push_back(self.kill_subtree(*pointer, top, id as u64));
        }
        while let Some(walked) = walks.next().await {
            walked?;
        }
        drop(walks);
        if let Some(spill) = &old.spill {
            self.account().kill(self.batcher.writer(), spill);
        }
        Ok(self.account.into_inner().ignore_poison())
    }

    /// Writes the changes; returns the new dnode.
    pub(super) async fn write(mut self, mut changes: Changes) -> Result<(Dnode, Account)> {
        self.sound = std::mem::take(&mut changes.sound);
        self.storage_type = changes.storage_type;
        self.prepare(&changes);
        let mut updates = self.punch(&changes).await?;
        let top = self.dnode.levels - 1;
        if top == 0 {
            let pointers =
                self.write_leaves(&changes.blocks, |id| self.dnode.blkptrs.get(id as usize).copied()).await?;
            let written = changes.blocks.iter().map(|(id, _)| *id).zip(pointers);
            updates.entry(0).or_default().extend(written);
        } else {
            let mut level = updates.remove(&0).unwrap_or_default();
            for parent in 1..=top {
                let blocks = if parent == 1 { changes.blocks.as_slice() } else { &[] };
                let mut above = self.write_level(parent, blocks, level).await?;
                above.extend(updates.remove(&parent).unwrap_or_default());
                level = above;
            }
            updates.insert(top, level);
        }
        for (id, pointer) in updates.remove(&top).unwrap_or_default() {
            match usize::try_from(id).ok().and_then(|id| self.dnode.blkptrs.get_mut(id)) {
                Some(place) => *place = pointer,
                None => return Err(self.impossible("a block beyond the top of its tree")),
            }
        }
        self.write_spill(changes.spill).await?;
        let Self { mut dnode, account, batcher, .. } = self;
        let account = account.into_inner().ignore_poison();
        let used = dnode.used_bytes().saturating_add_signed(account.used);
        if batcher.writer().features().used_in_bytes {
            (dnode.used, dnode.flags) = (used, dnode.flags | FLAG_USED_BYTES);
        } else {
            (dnode.used, dnode.flags) = (used >> SECTOR_SHIFT, dnode.flags & !FLAG_USED_BYTES);
        }
        Ok((dnode, account))
    }

    /// Sets levels and the last block id. A higher tree begins without pointers: the old ones go into its
    /// first block of the level above.
    fn prepare(&mut self, changes: &Changes) {
        if changes.is_raw {
            if self.dnode.levels > self.old.dnode().levels {
                self.dnode.blkptrs.fill(Blkptr::HOLE);
            }
            return;
        }
        let last = changes.end.saturating_sub(1);
        self.dnode.max_block_id = BlockId(last);
        let pointers = self.dnode.blkptrs.len() as u64;
        let old_levels = self.dnode.levels;
        while self.dnode.ancestor(BlockId(last), Level(self.dnode.levels as i8 - 1)).0 >= pointers
            && self.dnode.levels < Dnode::MAX_LEVELS
        {
            self.dnode.levels += 1;
        }
        if self.dnode.levels > old_levels {
            self.dnode.blkptrs.fill(Blkptr::HOLE);
        }
    }

    /// log2 of the children of an indirect block.
    fn fan_out_shift(&self) -> u32 {
        self.dnode.pointers_per_indirect_shift()
    }

    /// Kills the punched blocks. Returns the holes, by level, in the blocks that remain.
    async fn punch(&self, changes: &Changes) -> Result<BTreeMap<u8, Updates>> {
        let updates = Mutex::new(BTreeMap::new());
        let old = self.old.dnode();
        if changes.punched.is_empty() {
            return Ok(BTreeMap::new());
        }
        let mut walks = FuturesOrdered::new();
        for (id, pointer) in old.blkptrs.iter().enumerate() {
            walks.push_back(self.punch_subtree(changes, &updates, *pointer, old.levels - 1, id as u64));
        }
        while let Some(walked) = walks.next().await {
            walked?;
        }
        drop(walks);
        Ok(updates.into_inner().ignore_poison())
    }

    fn punch_subtree<'s>(
        &'s self,
        changes: &'s Changes,
        updates: &'s Mutex<BTreeMap<u8, Updates>>,
        pointer: Blkptr,
        level: u8,
        id: u64,
    ) -> Pin<Box<dyn Future<Output = Result<()>> + Send + 's>> {
        Box::pin(async move {
            let below = self.old.below(level, id);
            // There are no blocks after the last one.
            let end = below.end.min(self.old.dnode().max_block_id.0.saturating_add(1));
            if pointer.is_hole() || changes.punched.within(below.start, end).next().is_none() {
                return Ok(());
            }
            let at = changes.blocks.partition_point(|(block, _)| *block < below.start);
            let is_written = changes.blocks.get(at).is_some_and(|(block, _)| *block < below.end);
            if !is_written && changes.punched.contains(below.start, end) {
                self.kill_subtree(pointer, level, id).await?;
                let hole = self.hole(level, self.dnode.dmu_type)?;
                let mut updates = updates.lock().ignore_poison();
                updates.entry(level).or_default().insert(id, hole);
                return Ok(());
            }
            if level == 0 {
                // Punched and then written: the written block replaces it.
                return Ok(());
            }
            let children = self.old.children(self.batcher.writer().store(), &pointer, level, id).await?;
            let mut walks = FuturesOrdered::new();
            for (child, pointer) in children {
                walks.push_back(self.punch_subtree(changes, updates, pointer, level - 1, child));
                if walks.len() >= WALKS
                    && let Some(walked) = walks.next().await
                {
                    walked?;
                }
            }
            while let Some(walked) = walks.next().await {
                walked?;
            }
            Ok(())
        })
    }

    /// Kills a block and all below it.
    fn kill_subtree(
        &self,
        pointer: Blkptr,
        level: u8,
        id: u64,
    ) -> Pin<Box<dyn Future<Output = Result<()>> + Send + '_>> {
        Box::pin(async move {
            if pointer.is_hole() {
                return Ok(());
            }
            if level == 1 {
                let children = self.old.children(self.batcher.writer().store(), &pointer, level, id).await?;
                let mut account = self.account();
                for (_, child) in &children {
                    account.kill(self.batcher.writer(), child);
                }
            } else if level > 1 {
                let mut walks = FuturesOrdered::new();
                for (child, pointer) in
                    self.old.children(self.batcher.writer().store(), &pointer, level, id).await?
                {
                    walks.push_back(self.kill_subtree(pointer, level - 1, child));
                    if walks.len() >= WALKS
                        && let Some(walked) = walks.next().await
                    {
                        walked?;
                    }
                }
                while let Some(walked) = walks.next().await {
                    walked?;
                }
            }
            self.account().kill(self.batcher.writer(), &pointer);
            Ok(())
        })
    }

    /// Writes the indirect blocks of level `parent` above the changes in the level below: data blocks (if
    /// that is level 0) and pointers.
    async fn write_level(&self, parent: u8, blocks: &[(u64, Content)], pointers: Updates) -> Result<Updates> {
        let shift = self.fan_out_shift();
        let mut families: BTreeMap<u64, Family> = BTreeMap::new();
        let mut at = 0;
        for run in blocks.chunk_by(|one, next| one.0 >> shift == next.0 >> shift) {
            families.insert(run[0].0 >> shift, (at..at + run.len(), Vec::new()));
            at += run.len();
        }
        for (id, pointer) in pointers {
            families.entry(id >> shift).or_default().1.push((id, pointer));
        }
        if parent == self.old.dnode().levels {
            // The old top pointers move here.
            families.entry(0).or_default();
        }
        let mut written = Updates::new();
        let mut flying = FuturesOrdered::new();
        for (id, (range, pointers)) in families {
            flying.push_back(self.write_family(parent, id, &blocks[range], pointers));
            if flying.len() >= self.families
                && let Some(done) = flying.next().await
            {
                written.extend(done?);
            }
        }
        while let Some(done) = flying.next().await {
            written.extend(done?);
        }
        Ok(written)
    }

    /// Writes one indirect block and the changes directly below it. `None` when its pointer does not change.
    async fn write_family(
        &self,
        parent: u8,
        id: u64,
        blocks: &[(u64, Content)],
        pointers: Vec<(u64, Blkptr)>,
    ) -> Result<Option<(u64, Blkptr)>> {
        let old_dnode = self.old.dnode();
        let pool = self.batcher.writer().store();
        let first = id << self.fan_out_shift();
        let size = self.dnode.indirect_block_size() as usize;
        let old = if parent < old_dnode.levels { self.old.indirect(pool, parent, id).await? } else { None };
        let mut previous = old.as_ref().map(|(pointer, _)| *pointer);
        let mut buffer = match &old {
            Some((_, block)) if block.len() == size => IoBuf::from(&block[..]),
            Some(_) => return Err(self.impossible("an indirect block of another size")),
            None => IoBuf::zeroed(size),
        };
        if parent == old_dnode.levels && id == 0 {
            for (entry, pointer) in buffer.chunks_exact_mut(Blkptr::SIZE).zip(&old_dnode.blkptrs) {
                entry.copy_from_slice(&pointer.encode(ByteOrder::Little));
            }
            previous = None;
        } else if previous.is_none() {
            previous = self.old_hole(parent, id).await?;
        }
        let place = |child: u64| (child - first) as usize * Blkptr::SIZE;
        let entry = |buffer: &IoBuf, child: u64| {
            let at = place(child);
            Blkptr::parse(buffer.get(at..at + Blkptr::SIZE).unwrap_or_default(), ByteOrder::Little).ok()
        };
        let written = self.write_leaves(blocks, |child| entry(&buffer, child)).await?;
        let all = blocks.iter().map(|(child, _)| *child).zip(written).chain(pointers);
        let mut changed = old.is_none();
        for (child, pointer) in all {
            let at = place(child);
            let bytes = pointer.encode(ByteOrder::Little);
            let place = buffer.get_mut(at..at + Blkptr::SIZE);
            let place = place.ok_or_else(|| self.impossible("a block outside of its family"))?;
            if place != bytes {
                changed = true;
                place.copy_from_slice(&bytes);
            }
        }
        if !changed {
            return Ok(None);
        }
        let is_sound = parent == 1 && (self.sound.contains(&id) || self.old.is_sound(&buffer, first));
        let fill = fill_of(&buffer);
        let before = previous.unwrap_or(Blkptr::HOLE);
        let pointer = match fill {
            None if before.logical_birth() == Txg::NONE => Blkptr::HOLE,
            None => self.hole(parent, self.dnode.dmu_type)?,
            Some(fill) => {
                let request = self.request(parent, id, Block::from(buffer), previous, fill);
                self.write_one(request).await?
            }
        };
        let mut account = self.account();
        account.replace(self.batcher, &before, &pointer);
        if parent == 1 {
            account.indirects.push((id, StoredIndirect { size: stored_size(&pointer), is_sound }));
        }
        drop(account);
        Ok((pointer != before || pointer.is_hole()).then_some((id, pointer)))
    }

    /// The hole in the place of an old indirect block, which may contain its birth.
    async fn old_hole(&self, level: u8, id: u64) -> Result<Option<Blkptr>> {
        let dnode = self.old.dnode();
        if level + 1 == dnode.levels {
            return Ok(usize::try_from(id).ok().and_then(|id| dnode.blkptrs.get(id)).copied());
        }
        if level + 1 > dnode.levels {
            return Ok(None);
        }
        let shift = self.fan_out_shift();
        let above = self.old.indirect(self.batcher.writer().store(), level + 1, id >> shift).await?;
        let at = (id & ((1 << shift) - 1)) as usize * Blkptr::SIZE;
        Ok(above
            .and_then(|(_, block)| Blkptr::parse(block.get(at..at + Blkptr::SIZE)?, ByteOrder::Little).ok()))
    }

    /// Writes data blocks over those in `previous`.
    async fn write_leaves(
        &self,
        blocks: &[(u64, Content)],
        previous: impl Fn(u64) -> Option<Blkptr>,
    ) -> Result<Vec<Blkptr>> {
        let mut requests = Vec::new();
        let mut flying = FuturesOrdered::new();
        let mut bytes = 0;
        let mut before = Vec::with_capacity(blocks.len());
        for (id, content) in blocks {
            let old = previous(*id).ok_or_else(|| self.impossible("a pointer that cannot be read"))?;
            before.push(old);
            let (Content::Data(block) | Content::Rewritten(block)) = content else { continue };
            let fill =
                if self.dnode.dmu_type == DmuType::DNODE { first_slots(block).count() as u64 } else { 1 };
            bytes += block.len();
            let request = self.request(0, *id, block.clone(), Some(old), fill);
            let is_sealed = block.sealed_form().is_some();
            let retain = if is_sealed { Retain::Out } else { self.retain(&request.at) };
            requests.push(WriteRequest { retain, ..request });
            if bytes >= self.batcher.batch_bytes() {
                flying.push_back(self.batcher.write(std::mem::take(&mut requests)));
                bytes = 0;
            }
        }
        flying.push_back(self.batcher.write(requests));
        let mut written = Vec::with_capacity(blocks.len());
        while let Some(done) = flying.next().await {
            written.extend(done?);
        }
        let mut entered = self.enter_early(blocks).await?.into_iter();
        let mut account = self.account();
        let mut written = written.into_iter();
        let mut pointers = Vec::with_capacity(blocks.len());
        for (old, (_, content)) in before.iter().zip(blocks) {
            let new = match content {
                Content::Data(_) => {
                    let new =
                        written.next().ok_or_else(|| self.impossible("a block that was not written"))?;
                    account.replace(self.batcher, old, &new);
                    new
                }
                Content::Rewritten(_) => {
                    let new =
                        written.next().ok_or_else(|| self.impossible("a block that was not written"))?;
                    // What is deduplicated may be older than what it replaces.
                    let new = if new.is_dedup() { new } else { with_birth_of(old, &new) };
                    account.keeps_births |= new.is_rewritten();
                    account.replace(self.batcher, old, &new);
                    new
                }
                Content::Early(..) => {
                    let new =
                        entered.next().ok_or_else(|| self.impossible("a block that was not entered"))?;
                    account.replace(self.batcher, old, &new);
                    new
                }
                Content::Cloned(stored) => {
                    let new = stored.cloned_in(self.batcher.txg());
                    account.refer(self.batcher, old, &new);
                    new
                }
            };
            pointers.push(new);
        }
        Ok(pointers)
    }

    /// The pointers to those of the blocks that were written early. In datasets with deduplication they come
    /// into the tables.
    async fn enter_early(&self, blocks: &[(u64, Content)]) -> Result<Vec<Blkptr>> {
        let (writer, txg) = (self.batcher.writer(), self.batcher.txg());
        let which = Which { level: 0, dmu_type: self.dnode.dmu_type, is_spill: false };
        let mut entered = Vec::new();
        for (id, content) in blocks {
            let Content::Early(early, block) = content else { continue };
            let way = self.policy.way(self.objset, Some(&self.dnode), which);
            let way = if self.batcher.seal().is_some() { way.sealed(which) } else { way };
            let dedup = way.dedup.filter(|_| way.checksum == early.checksum_type());
            let Some(dedup) = dedup else {
                entered.push(*early);
                continue;
            };
            let at = self.old.bookmark(0, *id);
            let new = writer.enter_early(early, block, (dedup, &at)).await?;
            if !is_same_place(early, &new) {
                writer.free(txg, early).await?;
            }
            entered.push(new);
        }
        Ok(entered)
    }

    async fn write_spill(&mut self, spill: Option<Option<Block>>) -> Result<()> {
        let Some(spill) = spill else { return Ok(()) };
        let old = self.old.dnode().spill;
        let before = old.unwrap_or(Blkptr::HOLE);
        let new = match spill {
            None => None,
            Some(block) => {
                let which = Which { level: 0, dmu_type: self.dnode.bonus_type, is_spill: true };
                let at = Bookmark::spill(self.objset.0, self.object.0);
                Some(self.write_one(self.request_as(which, at, block, old, 1)).await?)
            }
        };
        self.account().replace(self.batcher, &before, &new.unwrap_or(Blkptr::HOLE));
        self.dnode.spill = new;
        match new {
            Some(_) => self.dnode.flags |= FLAG_SPILL_BLKPTR,
            None => self.dnode.flags &= !FLAG_SPILL_BLKPTR,
        }
        Ok(())
    }

    async fn write_one(&self, request: WriteRequest) -> Result<Blkptr> {
        let written = self.batcher.write(vec![request]).await?;
        written.first().copied().ok_or_else(|| self.impossible("a block that was not written"))
    }

    fn request(&self, level: u8, id: u64, data: Block, previous: Option<Blkptr>, fill: u64) -> WriteRequest {
        let which = Which { level, dmu_type: self.dnode.dmu_type, is_spill: false };
        self.request_as(which, self.old.bookmark(level, id), data, previous, fill)
    }

    fn request_as(
        &self,
        which: Which,
        at: Bookmark,
        data: Block,
        previous: Option<Blkptr>,
        fill: u64,
    ) -> WriteRequest {
        let way = self.policy.way(self.objset, Some(&self.dnode), which);
        let is_sealed = data.sealed_form().is_some();
        let seal = self.batcher.seal().cloned();
        let (way, seal) = match is_sealed {
            // What came sealed is of one key and one IV, and has no equal.
            true => (Way { dedup: None, ..way.sealed(which) }, seal),
            false => way.with(seal, which),
        };
        // What is cached was decrypted.
        let is_cached = !is_sealed && self.old.is_cached(&at);
        WriteRequest {
            at,
            data,
            dmu_type: which.dmu_type,
            checksum: way.checksum,
            compress: way.compress,
            zstd_level: way.zstd_level,
            copies: way.copies,
            class: self.storage_type.map_or(way.class, |stored| class(Which { dmu_type: stored, ..which })),
            small_bytes: way.small_bytes,
            may_embed: way.may_embed,
            may_gang: true,
            nopwrite: way.nopwrite,
            dedup: way.dedup,
            previous,
            retain: if is_cached { Retain::In } else { Retain::Out },
            may_feed: is_cached && self.old.may_feed(&at),
            seal,
            fill,
        }
    }

    /// What the cache keeps of a written data block. For a file, it keeps only blocks that it had before,
    /// except at the file's end, where writing may continue: the kernel has the pages of a program's writes,
    /// and a large writer would evict blocks that others read.
    fn retain(&self, at: &Bookmark) -> Retain {
        let is_of_file = self.dnode.dmu_type == DmuType::PLAIN_FILE_CONTENTS;
        match self.old.is_cached(at) {
            false => Retain::Out,
            true if is_of_file && at.blkid < self.dnode.max_block_id.0 => Retain::AsItWas,
            true => Retain::In,
        }
    }

    /// The replacement of a block that no longer exists.
    fn hole(&self, level: u8, dmu_type: DmuType) -> Result<Blkptr> {
        if !self.batcher.writer().features().hole_birth {
            return Ok(Blkptr::HOLE);
        }
        let size = if level == 0 { self.dnode.data_block_size() } else { self.dnode.indirect_block_size() };
        hole(Lsize(size), dmu_type, Level(level as i8), self.batcher.txg())
            .map_err(Error::format(self.old.bookmark(level, 0).to_string()))
    }

    fn impossible(&self, detail: &str) -> Error {
        Error::corrupt(format!("objset {}, object {}", self.objset, self.object), detail)
    }
}

/// The size of an indirect block that was just written: see [`StoredIndirects`].
fn stored_size(pointer: &Blkptr) -> u32 {
    let psize = pointer.psize().get();
    let is_known = pointer.compress() == CompressType::Lz4 && psize <= pointer.lsize().0 / 2;
    u32::try_from(psize).ok().filter(|_| is_known && !pointer.is_hole()).unwrap_or(UNKNOWN_SIZE)
}

/// The fill count of an indirect block; `None` when it contains only holes.
fn fill_of(indirect: &[u8]) -> Option<u64> {
    let mut fill = None;
    for pointer in indirect.chunks_exact(Blkptr::SIZE).map(RawPointer) {
        if pointer.is_embedded(ByteOrder::Little) {
            fill = Some(fill.unwrap_or(0) + 1);
        } else if pointer.has_place() {
            fill = Some(fill.unwrap_or(0) + pointer.fill(ByteOrder::Little));
        }
    }
    fill
}
