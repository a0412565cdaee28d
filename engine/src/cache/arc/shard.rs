//! A shard of the cache: its table, its lists, and which block is evicted next.

use std::sync::Arc;

use hashbrown::{HashMap, HashTable};

use super::flight::Flight;
use super::forms::{Copies, Found, Kept};
use super::unread::Unread;
use super::{Key, NODE_BYTES, SAME_USE_INSERTS, feed};
use crate::cache::counting::{Counts, Held, Sizes};
use crate::cache::{Block, Candidate, Loaded, Packed, Retain};
use crate::tunables;

pub(super) const RECENT: usize = 0;
pub(super) const FREQUENT: usize = 1;
const GHOST_RECENT: usize = 2;
const GHOST_FREQUENT: usize = 3;

/// The index of data, where something is divided by kind.
const DATA: usize = 0;
/// The index of metadata.
const METADATA: usize = 1;

/// Metadata may keep one part in so many of the budget at first.
const FIRST_METADATA_SHARE: usize = 4;
/// How much larger a step of a target is at most than the block that came back.
const MOST_STEP: usize = 16;

/// "No node" in the links of the lists.
pub(super) const NIL: u32 = u32::MAX;

/// A block that still waits for the read for which it was loaded.
pub(super) const AHEAD: u8 = 1;
/// That is a read of a stream, which may come or not.
const PREFETCHED: u8 = 2;
/// The decompressed copy was used since it was linked.
pub(super) const COPY_USED: u8 = 4;
/// The block is used so often that its decompressed copy is worth its memory.
pub(super) const COPY_PROVEN: u8 = 8;

/// What a hit needs of a block, or of the key of one that was evicted: one cache line.
#[repr(align(64))]
pub(super) struct Node {
    pub(super) key: Key,
    /// The block decompressed, if it is kept so.
    pub(super) plain: Option<Block>,
    pub(super) newer: u32,
    pub(super) older: u32,
    /// The accesses of the shard at the last touch, modulo 2^32.
    used_at: u32,
    /// The inserts of the shard at the last touch, modulo 2^16.
    touched_at: u16,
    list: u8,
    /// [`AHEAD`] and others.
    marks: u8,
}

/// The rest of a node: what hits of decompressed blocks do not need.
pub(super) struct Rest {
    hash: u64,
    /// Memory of the block in the form that it is kept in, or was, with [`NODE_BYTES`].
    pub(super) bytes: usize,
    /// The block compressed, if it is kept so.
    pub(super) packed: Option<Arc<Packed>>,
    /// What it takes to write it to a cache device, if one may get it.
    pub(super) candidate: Option<Box<Candidate>>,
    pub(super) newer_copy: u32,
    pub(super) older_copy: u32,
}

impl Node {
    pub(super) fn list(&self) -> usize {
        usize::from(self.list)
    }

    pub(super) fn is(&self, mark: u8) -> bool {
        self.marks & mark != 0
    }

    pub(super) fn mark(&mut self, mark: u8) {
        self.marks |= mark;
    }

    /// Takes a mark away. Returns whether it was there.
    pub(super) fn unmark(&mut self, mark: u8) -> bool {
        let was = self.is(mark);
        self.marks &= !mark;
        was
    }
}

#[derive(Clone, Copy)]
pub(super) struct List {
    pub(super) newest: u32,
    pub(super) oldest: u32,
    pub(super) bytes: usize,
    pub(super) blocks: u64,
}

impl List {
    const EMPTY: Self = Self { newest: NIL, oldest: NIL, bytes: 0, blocks: 0 };

    fn held(self) -> Held {
        Held { blocks: self.blocks, bytes: self.bytes as u64 }
    }
}

pub(super) struct Shard {
    pub(super) budget: usize,
    /// The share of the budget that recent blocks may keep of a kind, if there were only that kind.
    pub(super) recent_target: [usize; 2],
    /// The share of the budget that metadata may keep.
    pub(super) metadata_target: usize,
    table: HashTable<u32>,
    pub(super) nodes: Vec<Node>,
    /// As many as nodes, under the same indices.
    pub(super) rests: Vec<Rest>,
    free: Vec<u32>,
    /// The lists, each of data and of metadata.
    pub(super) lists: [[List; 2]; 4],
    /// Bytes of blocks as they are in the pool, for cache devices alone.
    pub(super) physical_bytes: usize,
    /// Decompressed copies beside compressed blocks.
    pub(super) copies: Copies,
    /// The memory that all blocks would take decompressed, without [`NODE_BYTES`].
    pub(super) plain_bytes: usize,
    pub(super) flights: HashMap<Key, Arc<Flight>>,
    pub(super) unread: Unread,
    inserts: u64,
    /// Inserts and hits: the clock of `Node::used_at`.
    pub(super) accesses: u64,
    /// The accesses when a block was evicted last.
    pub(super) evicted_at: Option<u64>,
    pub(super) counts: Counts,
}

/// The index of data and metadata.
pub(super) fn kind_of(key: &Key) -> usize {
    usize::from(key.is_metadata())
}

/// What left a shard, for the caller to free outside of the lock.
#[derive(Default)]
pub(super) struct Freed {
    /// Evicted blocks.
    pub(super) evicted: Vec<Kept>,
    /// Decompressed copies of blocks that stay.
    pub(super) copies: Vec<Block>,
    /// Compressed forms of blocks that stay.
    pub(super) packed: Vec<Arc<Packed>>,
}

impl Shard {
    pub(super) fn new(budget: usize) -> Self {
        Self {
            budget,
            recent_target: [budget / 2; 2],
            metadata_target: budget / FIRST_METADATA_SHARE,
            table: HashTable::new(),
            nodes: Vec::new(),
            rests: Vec::new(),
            free: Vec::new(),
            lists: [[List::EMPTY; 2]; 4],
            physical_bytes: 0,
            copies: Copies::default(),
            plain_bytes: 0,
            flights: HashMap::new(),
            unread: Unread::default(),
            inserts: 0,
            accesses: 0,
            evicted_at: None,
            counts: Counts::default(),
        }
    }

    pub(super) fn sizes(&self) -> Sizes {
        Sizes {
            lists: self.lists.map(|kinds| kinds.map(List::held)),
            elements: self.table.len() as u64,
            most_elements: self.nodes.len() as u64,
            recent_target: self.recent_target.map(|bytes| bytes as u64),
            metadata_target: self.metadata_target as u64,
            shares: self.budget as u64,
            plain_bytes: self.plain_bytes as u64,
            copy_bytes: self.copies.bytes.map(|bytes| bytes as u64),
            physical_bytes: self.physical_bytes as u64,
        }
    }

    /// The memory of all blocks, in all their forms.
    pub(super) fn held_bytes(&self) -> usize {
        self.bytes_of(RECENT) + self.bytes_of(FREQUENT) + self.copies.total_bytes()
    }

    /// The memory of a list, of both kinds.
    pub(super) fn bytes_of(&self, list: usize) -> usize {
        self.lists[list].iter().map(|list| list.bytes).sum()
    }

    /// The blocks in memory.
    pub(super) fn blocks(&self) -> u64 {
        [RECENT, FREQUENT].iter().flat_map(|list| self.lists[*list]).map(|list| list.blocks).sum()
    }

    pub(super) fn find(&self, hash: u64, key: &Key) -> Option<u32> {
        self.table.find(hash, |&index| self.nodes[index as usize].key == *key).copied()
    }

    /// The memory that a block takes; 0 if it is not there. That is no use of it.
    pub(super) fn bytes_of_block(&self, hash: u64, key: &Key) -> usize {
        let Some(index) = self.find(hash, key) else { return 0 };
        let (node, rest) = (&self.nodes[index as usize], &self.rests[index as usize]);
        if node.plain.is_none() && rest.packed.is_none() { 0 } else { rest.bytes }
    }

    /// A block that is in memory, in the form that is at hand.
    pub(super) fn hit(&mut self, hash: u64, key: &Key, retain: Retain) -> Option<Found> {
        let index = self.find(hash, key)?;
        let node = &mut self.nodes[index as usize];
        let was_ahead = node.is(AHEAD);
        if retain == Retain::Out {
            let was_prefetched = node.is(PREFETCHED);
            let (_, kept) = self.remove(hash, key)?;
            self.counts.hit(retain, key.is_metadata());
            self.counts.hit_uncached(was_prefetched);
            return kept.into_found();
        }
        let (found, is_proven) = match &node.plain {
            Some(block) => (Found::Plain(block.clone()), true),
            None => {
                let packed = Arc::clone(self.rests[index as usize].packed.as_ref()?);
                (Found::Packed(packed), self.deserves_copy(index))
            }
        };
        let node = &mut self.nodes[index as usize];
        self.accesses += 1;
        self.counts.hit(retain, key.is_metadata());
        if retain.waits() {
            return Some(found);
        }
        let was_prefetched = node.unmark(PREFETCHED);
        node.unmark(AHEAD);
        node.mark(COPY_USED);
        if is_proven {
            node.mark(COPY_PROVEN);
        }
        let now = self.inserts as u16;
        let again = u64::from(now.wrapping_sub(node.touched_at)) >= SAME_USE_INSERTS;
        (node.touched_at, node.used_at) = (now, self.accesses as u32);
        let list = node.list();
        self.counts.hit_in(list, was_prefetched);
        if was_ahead {
            // It stays behind the blocks that still wait: they are needed sooner.
            return Some(found);
        }
        if !again {
            self.counts.skip();
        }
        if again && list != FREQUENT {
            self.unlink(index);
            self.link(index, FREQUENT);
        } else if self.lists[list][kind_of(key)].newest != index {
            self.take_out(index);
            self.put_newest(index);
        }
        Some(found)
    }

    /// Notes that a block was read by a reader that waited for it. Returns the block if the cache does not
    /// keep it.
    pub(super) fn note_read(&mut self, hash: u64, key: &Key, retain: Retain) -> Option<Kept> {
        match retain {
            Retain::Out => self.remove(hash, key).map(|(_, kept)| kept),
            Retain::In | Retain::AsItWas => {
                let index = self.find(hash, key)?;
                let node = &mut self.nodes[index as usize];
                node.unmark(AHEAD | PREFETCHED);
                None
            }
            Retain::Ahead | Retain::ForChange => None,
        }
    }

    /// Notes that a block was loaded ahead of a stream.
    pub(super) fn note_prefetched(&mut self, hash: u64, key: &Key) {
        if let Some(index) = self.find(hash, key) {
            self.nodes[index as usize].mark(PREFETCHED);
        }
    }

    /// Removes a block. Returns it with its list.
    pub(super) fn remove(&mut self, hash: u64, key: &Key) -> Option<(usize, Kept)> {
        let index = self.find(hash, key)?;
        let list = self.nodes[index as usize].list();
        let removed = self.take_block(index).map(|kept| (list, kept));
        self.forget(index);
        removed
    }

    /// Takes a block out of its node, which keeps its size.
    pub(super) fn take_block(&mut self, index: u32) -> Option<Kept> {
        let (node, rest) = (&mut self.nodes[index as usize], &mut self.rests[index as usize]);
        if node.plain.is_none() && rest.packed.is_none() {
            return None;
        }
        let (plain, packed, candidate) = (node.plain.take(), rest.packed.take(), rest.candidate.take());
        let (kept, kind) = (Kept { plain, packed, candidate }, kind_of(&node.key));
        if kept.has_copy() {
            self.unlink_copy(index);
        }
        self.physical_bytes -= kept.physical_bytes();
        self.plain_bytes -= kept.plain_bytes();
        self.copies.bytes[kind] -= kept.copy_bytes();
        Some(kept)
    }

    /// Inserts a block, into the list `unknown` if its key is not known. Returns what left the cache for it,
    /// which the caller frees outside of the lock.
    pub(super) fn insert_into(
        &mut self,
        unknown: usize,
        hash: u64,
        key: Key,
        block: Loaded,
        is_ahead: bool,
    ) -> Freed {
        self.inserts += 1;
        self.accesses += 1;
        let mut freed = Freed::default();
        let mut kept = Kept::from(block);
        if self.physical_bytes + kept.physical_bytes() > self.budget / feed::PHYSICAL_SHARE {
            kept.candidate = None;
        }
        let bytes = kept.bytes() + NODE_BYTES;
        let (index, list) = match self.find(hash, &key) {
            Some(index) => {
                let list = self.adapt(index);
                self.unlink(index);
                freed.evicted.extend(self.take_block(index));
                (index, list)
            }
            None => (self.new_node(hash, key), unknown),
        };
        self.physical_bytes += kept.physical_bytes();
        self.plain_bytes += kept.plain_bytes();
        self.copies.bytes[kind_of(&key)] += kept.copy_bytes();
        let has_copy = kept.has_copy();
        let (node, rest) = (&mut self.nodes[index as usize], &mut self.rests[index as usize]);
        (rest.bytes, rest.packed, rest.candidate) = (bytes, kept.packed, kept.candidate);
        (node.plain, node.marks) = (kept.plain, if is_ahead { AHEAD } else { 0 });
        (node.touched_at, node.used_at) = (self.inserts as u16, self.accesses as u32);
        self.link(index, list);
        if has_copy {
            self.link_copy(index);
        }
        self.make_room(index, &mut freed);
        freed
    }

    /// A known key came back. Adapts the targets if it was in a ghost list, and returns the list to which it
    /// belongs now.
    fn adapt(&mut self, index: u32) -> usize {
        let node = &self.nodes[index as usize];
        let (list, kind, bytes) = (node.list(), kind_of(&node.key), self.rests[index as usize].bytes);
        let (own, other) = match list {
            GHOST_RECENT => (GHOST_RECENT, GHOST_FREQUENT),
            GHOST_FREQUENT => (GHOST_FREQUENT, GHOST_RECENT),
            list => return list,
        };
        self.counts.ghost(if list == GHOST_RECENT { RECENT } else { FREQUENT });
        // A hit in a list with few ghosts says more.
        let step = |own: usize, other: usize| bytes.saturating_mul((other / own.max(1)).clamp(1, MOST_STEP));
        let ghosts = |list: usize| self.lists[list][kind].bytes;
        let of_lists = step(ghosts(own), ghosts(other));
        let kinds =
            [0, 1].map(|kind| self.lists[GHOST_RECENT][kind].bytes + self.lists[GHOST_FREQUENT][kind].bytes);
        let of_kinds = step(kinds[kind], kinds[1 - kind]);
        let target = &mut self.recent_target[kind];
        *target = match list {
            GHOST_RECENT => target.saturating_add(of_lists).min(self.budget),
            _ => target.saturating_sub(of_lists),
        };
        self.metadata_target = match kind {
            DATA => {
                let balance = usize::try_from(tunables::ZFS_ARC_META_BALANCE.get()).unwrap_or(usize::MAX);
                let part = of_kinds.saturating_mul(100) / balance.max(1);
                self.metadata_target.saturating_sub(part)
            }
            _ => self.metadata_target.saturating_add(of_kinds).min(self.budget),
        };
        FREQUENT
    }

    /// Makes the blocks fit into the budget: drops forms of blocks, and evicts blocks, but not `newest`.
    pub(super) fn make_room(&mut self, newest: u32, freed: &mut Freed) {
        while self.held_bytes() > self.budget {
            let victim = self.victim(newest);
            if self.drop_form(victim, freed) {
                continue;
            }
            let Some(victim) = victim else {
                self.counts.not_enough();
                break;
            };
            self.evict(victim, freed);
        }
        for (ghost, real) in [(GHOST_RECENT, RECENT), (GHOST_FREQUENT, FREQUENT)] {
            let limit = self.budget.saturating_sub(self.bytes_of(real));
            while self.bytes_of(ghost) > limit {
                let oldest =
                    self.lists[ghost].map(|list| list.oldest).into_iter().filter(|&index| index != NIL);
                let Some(oldest) = oldest.max_by_key(|&index| self.age(index)) else {
                    break;
                };
                self.forget(oldest);
            }
        }
    }

    /// The block that is evicted next, which is not `newest`.
    pub(super) fn victim(&self, newest: u32) -> Option<u32> {
        let of_kind = |kind: usize| self.lists[RECENT][kind].bytes + self.lists[FREQUENT][kind].bytes;
        // Targets are shares of the budget. Copies take a part of that, and belong to no list.
        let is_over = |part: usize, whole: usize, target: usize| {
            part as u128 * self.budget as u128 > target as u128 * whole as u128
        };
        let kinds = match is_over(of_kind(METADATA), of_kind(DATA) + of_kind(METADATA), self.metadata_target)
        {
            true => [METADATA, DATA],
            false => [DATA, METADATA],
        };
        let in_order = kinds.into_iter().flat_map(|kind| {
            let recent = self.lists[RECENT][kind].bytes;
            let order = match is_over(recent, of_kind(kind), self.recent_target[kind]) {
                true => [RECENT, FREQUENT],
                false => [FREQUENT, RECENT],
            };
            order.map(|list| self.lists[list][kind].oldest)
        });
        in_order.into_iter().find(|&victim| victim != NIL && victim != newest)
    }

    fn evict(&mut self, victim: u32, freed: &mut Freed) {
        let (node, rest) = (&self.nodes[victim as usize], &self.rests[victim as usize]);
        let from = node.list();
        let waiting_bytes = rest.candidate.as_ref().map_or(0, |candidate| candidate.psize);
        self.counts.evict(from, (rest.bytes - NODE_BYTES) as u64, waiting_bytes);
        if node.is(PREFETCHED) {
            self.unread.note(rest.hash);
        }
        self.evicted_at = Some(self.accesses);
        freed.evicted.extend(self.take_block(victim));
        self.unlink(victim);
        self.link(victim, if from == RECENT { GHOST_RECENT } else { GHOST_FREQUENT });
    }

    /// The accesses since a block was used last, modulo 2^32.
    pub(super) fn age(&self, index: u32) -> u32 {
        (self.accesses as u32).wrapping_sub(self.nodes[index as usize].used_at)
    }

    pub(super) fn remove_pool(&mut self, pool: u32) -> Vec<Kept> {
        let indices: Vec<u32> =
            self.table.iter().copied().filter(|&index| self.nodes[index as usize].key.pool == pool).collect();
        let mut evicted = Vec::new();
        for index in indices {
            evicted.extend(self.take_block(index));
            self.forget(index);
        }
        evicted
    }

    fn new_node(&mut self, hash: u64, key: Key) -> u32 {
        let node = Node {
            key,
            plain: None,
            newer: NIL,
            older: NIL,
            used_at: 0,
            touched_at: 0,
            list: RECENT as u8,
            marks: 0,
        };
        let rest = Rest { hash, bytes: 0, packed: None, candidate: None, newer_copy: NIL, older_copy: NIL };
        let index = match self.free.pop() {
            Some(index) => {
                self.nodes[index as usize] = node;
                self.rests[index as usize] = rest;
                index
            }
            None => {
                self.nodes.push(node);
                self.rests.push(rest);
                // A shard's budget holds fewer nodes than u32 can count: each costs NODE_BYTES at least.
                (self.nodes.len() - 1) as u32
            }
        };
        let rests = &self.rests;
        self.table.insert_unique(hash, index, |&other| rests[other as usize].hash);
        index
    }

    fn forget(&mut self, index: u32) {
        let hash = self.rests[index as usize].hash;
        if let Ok(slot) = self.table.find_entry(hash, |&other| other == index) {
            slot.remove();
        }
        self.unlink(index);
        self.free.push(index);
    }

    fn unlink(&mut self, index: u32) {
        let bytes = self.rests[index as usize].bytes;
        let from = self.take_out(index);
        from.bytes -= bytes;
        from.blocks -= 1;
    }

    fn link(&mut self, index: u32, list: usize) {
        let bytes = self.rests[index as usize].bytes;
        self.nodes[index as usize].list = list as u8;
        let into = self.put_newest(index);
        into.bytes += bytes;
        into.blocks += 1;
    }

    /// Takes a node out of the order of its list, which it leaves, or in which it gets another place.
    fn take_out(&mut self, index: u32) -> &mut List {
        let Node { newer, older, list, key, .. } = self.nodes[index as usize];
        let from = &mut self.lists[usize::from(list)][kind_of(&key)];
        match newer {
            NIL => from.newest = older,
            newer => self.nodes[newer as usize].older = older,
        }
        match older {
            NIL => from.oldest = newer,
            older => self.nodes[older as usize].newer = newer,
        }
        from
    }

    /// Makes a node that is in the order of no list the newest one of its list.
    fn put_newest(&mut self, index: u32) -> &mut List {
        let node = &mut self.nodes[index as usize];
        let into = &mut self.lists[usize::from(node.list)][kind_of(&node.key)];
        let newest = std::mem::replace(&mut into.newest, index);
        (node.newer, node.older) = (NIL, newest);
        match newest {
            NIL => into.oldest = index,
            newest => self.nodes[newest as usize].newer = index,
        }
        into
    }
}

const _: () = assert!(size_of::<Node>() == 64);
const _: () = assert!(size_of::<Node>() + size_of::<Rest>() + size_of::<u32>() <= NODE_BYTES);
