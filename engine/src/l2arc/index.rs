//! Which blocks the cache devices hold, and where.
//!
//! # The idea
//! A cache device is written as a ring, and what is overwritten is what was written first. So each shard of
//! the index keeps the entries of a device in the order in which they were written: a new one is added at the
//! back, and evicting takes from the front. A rebuild adds older and older ones at the front. An entry has 32
//! bytes, in chunks that are freed when the front has passed them. A table leads from the address of a block
//! to the number of its entry, with four bytes and a tag for each place. All in all that is less than 48
//! bytes for a cached block ([`super::HEADER_BYTES`]; a test measures it).
//!
//! The entry of a block that is dropped out of turn stays in its place, empty, until the front passes it.
//!
//! # Numbers
//! Entries of a device in a shard are numbered in the order of writing. 24 bits of the number, and 8 bits for
//! the device, are what the table has. The numbers wrap; there are never so many entries that two have the
//! same.
//!
//! | lock | guards | order |
//! |---|---|---|
//! | `Shard` | entries and table of a shard; for a bounded number of steps | taken alone |

use std::collections::VecDeque;
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};

use device::IgnorePoison;
use hashbrown::{DefaultHashBuilder, HashTable};
use ondisk::blkptr::{Blkptr, Dva};

/// The number of shards.
const SHARDS: usize = 64;
/// Entries in a chunk: 4 KiB.
const CHUNK: usize = 128;
/// Entries of a device in a shard, at most; more are not taken.
const MAX_ENTRIES: u32 = (1 << 24) - CHUNK as u32;
const NUMBER_MASK: u32 = (1 << 24) - 1;
/// The most cache devices of a pool.
pub(crate) const MAX_DEVICES: usize = 256;

const SECTOR_SHIFT: u32 = 9;

/// The identity of a block: the place of its first copy, and its physical birth.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct BlockKey {
    /// Top-level vdev.
    pub vdev: u32,
    /// Offset on it, in bytes.
    pub offset: u64,
    /// Physical birth.
    pub birth: u64,
}

impl BlockKey {
    /// The identity of the block that a pointer leads to, if it has a place.
    pub(crate) fn of(bp: &Blkptr) -> Option<Self> {
        bp.dva(0).map(|dva| Self::at(&dva, bp.physical_birth().get()))
    }

    /// The identity of a block with this first copy.
    pub(crate) fn at(dva: &Dva, birth: u64) -> Self {
        Self { vdev: dva.vdev.get(), offset: dva.offset.get(), birth }
    }
}

/// A block on a cache device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cached {
    /// The number of the device in the index.
    pub device: u8,
    /// Its address there, in bytes.
    pub address: u64,
    /// Physical size in bytes.
    pub psize: u64,
    /// Logical size in bytes.
    pub lsize: u64,
    /// Whether it is metadata.
    pub is_metadata: bool,
    /// Whether it was used again before it was written.
    pub frequent: bool,
}

/// An entry as it is kept. An empty one has the birth 0.
#[derive(Clone, Copy, Default)]
struct Entry {
    sector: u64,
    birth: u64,
    /// The address in sectors, and the two flags in the highest bits.
    address: u64,
    vdev: u32,
    psize: u16,
    lsize: u16,
}

const METADATA: u64 = 1 << 63;
const FREQUENT: u64 = 1 << 62;

impl Entry {
    fn new(key: &BlockKey, cached: &Cached) -> Self {
        let sectors = |bytes: u64| (bytes >> SECTOR_SHIFT).wrapping_sub(1) as u16;
        let flag = |set: bool, flag: u64| if set { flag } else { 0 };
        Self {
            sector: key.offset >> SECTOR_SHIFT,
            birth: key.birth,
            address: cached.address >> SECTOR_SHIFT
                | flag(cached.is_metadata, METADATA)
                | flag(cached.frequent, FREQUENT),
            vdev: key.vdev,
            psize: sectors(cached.psize),
            lsize: sectors(cached.lsize),
        }
    }

    fn is_empty(&self) -> bool {
        self.birth == 0
    }

    fn key(&self) -> BlockKey {
        BlockKey { vdev: self.vdev, offset: self.sector << SECTOR_SHIFT, birth: self.birth }
    }

    fn address(&self) -> u64 {
        (self.address & !(METADATA | FREQUENT)) << SECTOR_SHIFT
    }

    fn cached(&self, device: u8) -> Cached {
        let bytes = |sectors: u16| (u64::from(sectors) + 1) << SECTOR_SHIFT;
        Cached {
            device,
            address: self.address(),
            psize: bytes(self.psize),
            lsize: bytes(self.lsize),
            is_metadata: self.address & METADATA != 0,
            frequent: self.address & FREQUENT != 0,
        }
    }
}

/// The entries of a device in a shard, oldest first.
#[derive(Default)]
struct Ring {
    chunks: VecDeque<Box<[Entry; CHUNK]>>,
    /// Places of the first chunk before the oldest entry.
    before: usize,
    len: u32,
    /// The number of the oldest entry.
    oldest: u32,
}

impl Ring {
    fn place(&self, number: u32) -> Option<(usize, usize)> {
        let index = number.wrapping_sub(self.oldest) & NUMBER_MASK;
        let at = self.before + index as usize;
        (index < self.len).then_some((at / CHUNK, at % CHUNK))
    }

    fn get(&self, number: u32) -> Option<&Entry> {
        let (chunk, at) = self.place(number)?;
        self.chunks.get(chunk)?.get(at)
    }

    fn get_mut(&mut self, number: u32) -> Option<&mut Entry> {
        let (chunk, at) = self.place(number)?;
        self.chunks.get_mut(chunk)?.get_mut(at)
    }

    fn push_newest(&mut self, entry: Entry) -> Option<u32> {
        if self.len >= MAX_ENTRIES {
            return None;
        }
        if self.before + self.len as usize == self.chunks.len() * CHUNK {
            self.chunks.push_back(Box::new([Entry::default(); CHUNK]));
        }
        let number = self.oldest.wrapping_add(self.len) & NUMBER_MASK;
        self.len += 1;
        *self.get_mut(number)? = entry;
        Some(number)
    }

    fn push_oldest(&mut self, entry: Entry) -> Option<u32> {
        if self.len >= MAX_ENTRIES {
            return None;
        }
        if self.before == 0 {
            self.chunks.push_front(Box::new([Entry::default(); CHUNK]));
            self.before = CHUNK;
        }
        self.before -= 1;
        self.len += 1;
        self.oldest = self.oldest.wrapping_sub(1) & NUMBER_MASK;
        *self.get_mut(self.oldest)? = entry;
        Some(self.oldest)
    }

    fn pop_oldest(&mut self) {
        self.before += 1;
        self.len -= 1;
        self.oldest = self.oldest.wrapping_add(1) & NUMBER_MASK;
        if self.before == CHUNK || self.len == 0 {
            self.chunks.pop_front();
            self.before = 0;
        }
        if self.len == 0 {
            self.chunks.clear();
        }
    }

    fn memory_bytes(&self) -> usize {
        self.chunks.len() * CHUNK * size_of::<Entry>() + self.chunks.capacity() * size_of::<usize>()
    }
}

#[derive(Default)]
struct Shard {
    table: HashTable<u32>,
    rings: Vec<Ring>,
}

impl Shard {
    fn entry(&self, handle: u32) -> Option<&Entry> {
        self.rings.get((handle >> 24) as usize)?.get(handle & NUMBER_MASK)
    }

    fn find(&self, hash: u64, key: &BlockKey) -> Option<u32> {
        let is_it = |handle: &u32| self.entry(*handle).is_some_and(|entry| entry.key() == *key);
        self.table.find(hash, is_it).copied()
    }

    fn forget(&mut self, hash: u64, handle: u32) {
        if let Ok(place) = self.table.find_entry(hash, |other| *other == handle) {
            place.remove();
        }
    }
}

/// The sums over entries that were dropped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Dropped {
    /// How many.
    pub blocks: u64,
    /// Their bytes on the device, in units of its sectors.
    pub asize: u64,
    /// Their physical bytes.
    pub psize: u64,
    /// Their logical bytes.
    pub lsize: u64,
    /// Of `asize`: metadata.
    pub metadata_asize: u64,
    /// Of `asize`: blocks that were used again.
    pub frequent_asize: u64,
}

impl Dropped {
    /// The sums of one block.
    pub(crate) fn of(cached: &Cached, ashift: u32) -> Self {
        let asize = cached.psize.next_multiple_of(1 << ashift);
        Self {
            blocks: 1,
            asize,
            psize: cached.psize,
            lsize: cached.lsize,
            metadata_asize: if cached.is_metadata { asize } else { 0 },
            frequent_asize: if cached.frequent { asize } else { 0 },
        }
    }

    fn add(&mut self, cached: &Cached, ashift: u32) {
        let one = Self::of(cached, ashift);
        self.blocks += one.blocks;
        self.asize += one.asize;
        self.psize += one.psize;
        self.lsize += one.lsize;
        self.metadata_asize += one.metadata_asize;
        self.frequent_asize += one.frequent_asize;
    }
}

/// The index of a pool.
pub(crate) struct Index {
    hasher: DefaultHashBuilder,
    shards: Box<[Mutex<Shard>]>,
    memory_bytes: AtomicUsize,
}

impl Default for Index {
    fn default() -> Self {
        let shards = (0..SHARDS).map(|_| Mutex::default()).collect();
        Self { hasher: DefaultHashBuilder::default(), shards, memory_bytes: AtomicUsize::new(0) }
    }
}

impl std::fmt::Debug for Index {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Index").field("memory_bytes", &self.memory_bytes()).finish_non_exhaustive()
    }
}

impl Index {
    /// Where a block is cached. One lock, for a few steps.
    pub(crate) fn get(&self, key: &BlockKey) -> Option<Cached> {
        let (hash, shard) = self.shard_of(key);
        let handle = shard.find(hash, key)?;
        shard.entry(handle).map(|entry| entry.cached((handle >> 24) as u8))
    }

    /// Adds a block that was written after all others of its device. What the index had under this key is
    /// forgotten, and returned. The second value says whether there was room.
    pub(crate) fn add_newest(&self, key: &BlockKey, cached: &Cached) -> (Option<Cached>, bool) {
        let (hash, mut shard) = self.shard_of(key);
        let before = self.measured(&shard);
        let old = shard.find(hash, key);
        let old = old.and_then(|handle| Self::empty(&mut shard, hash, handle));
        let added = Self::insert(&self.hasher, &mut shard, hash, key, cached, Ring::push_newest);
        self.note_memory(before, &shard);
        (old, added)
    }

    /// Adds a block that was written before all others of its device, unless the block is known already.
    pub(crate) fn add_oldest(&self, key: &BlockKey, cached: &Cached) -> bool {
        let (hash, mut shard) = self.shard_of(key);
        let before = self.measured(&shard);
        let is_new = shard.find(hash, key).is_none()
            && Self::insert(&self.hasher, &mut shard, hash, key, cached, Ring::push_oldest);
        self.note_memory(before, &shard);
        is_new
    }

    /// Forgets a block, or only its copy at an address. Returns what was known of it.
    pub(crate) fn remove(&self, key: &BlockKey, at: Option<(u8, u64)>) -> Option<Cached> {
        let (hash, mut shard) = self.shard_of(key);
        let handle = shard.find(hash, key)?;
        let found = shard.entry(handle)?.cached((handle >> 24) as u8);
        if at.is_some_and(|at| at != (found.device, found.address)) {
            return None;
        }
        Self::empty(&mut shard, hash, handle)
    }

    /// Forgets the oldest blocks of a device as long as they begin within `range`.
    pub(crate) fn evict(&self, device: u8, ashift: u32, range: std::ops::Range<u64>) -> Dropped {
        self.evict_while(device, ashift, |address| range.contains(&address))
    }

    /// Forgets all blocks of a device.
    pub(crate) fn evict_device(&self, device: u8, ashift: u32) -> Dropped {
        self.evict_while(device, ashift, |_| true)
    }

    fn evict_while(&self, device: u8, ashift: u32, is_evicted: impl Fn(u64) -> bool) -> Dropped {
        let mut dropped = Dropped::default();
        for shard in &self.shards {
            // A shard is released now and then, so that no reader waits for long.
            while self.evict_some(
                &mut shard.lock().ignore_poison(),
                device,
                ashift,
                &is_evicted,
                &mut dropped,
            ) {}
        }
        dropped
    }

    /// Forgets a bounded number of blocks. Returns whether there may be more.
    fn evict_some(
        &self,
        shard: &mut Shard,
        device: u8,
        ashift: u32,
        is_evicted: &impl Fn(u64) -> bool,
        dropped: &mut Dropped,
    ) -> bool {
        let before = self.measured(shard);
        let mut steps = 0;
        let mut more = false;
        while let Some(ring) = shard.rings.get(usize::from(device)).filter(|ring| ring.len > 0) {
            let number = ring.oldest;
            let Some(entry) = ring.get(number).copied() else { break };
            // What is empty is nowhere.
            if !entry.is_empty() {
                if !is_evicted(entry.address()) {
                    break;
                }
                let hash = self.hasher.hash_one(entry.key());
                shard.forget(hash, u32::from(device) << 24 | number);
                dropped.add(&entry.cached(device), ashift);
            }
            if let Some(ring) = shard.rings.get_mut(usize::from(device)) {
                ring.pop_oldest();
            }
            steps += 1;
            more = steps == 4 * CHUNK;
            if more {
                break;
            }
        }
        if shard.table.capacity() > 1024 && shard.table.len() < shard.table.capacity() / 4 {
            let Shard { table, rings } = shard;
            table.shrink_to(2 * table.len(), |handle| hash_of(&self.hasher, rings, *handle));
        }
        self.note_memory(before, shard);
        more
    }

    /// Bytes of memory.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.memory_bytes.load(Ordering::Relaxed) + SHARDS * size_of::<Mutex<Shard>>()
    }

    fn shard_of(&self, key: &BlockKey) -> (u64, MutexGuard<'_, Shard>) {
        let hash = self.hasher.hash_one(key);
        // The table inside a shard uses the lowest and the highest bits.
        (hash, self.shards[(hash >> 40) as usize % SHARDS].lock().ignore_poison())
    }

    fn insert(
        hasher: &DefaultHashBuilder,
        shard: &mut Shard,
        hash: u64,
        key: &BlockKey,
        cached: &Cached,
        push: fn(&mut Ring, Entry) -> Option<u32>,
    ) -> bool {
        let device = usize::from(cached.device);
        if shard.rings.len() <= device {
            shard.rings.resize_with(device + 1, Ring::default);
        }
        let Shard { table, rings } = shard;
        let Some(number) = rings.get_mut(device).and_then(|ring| push(ring, Entry::new(key, cached))) else {
            return false;
        };
        let handle = u32::from(cached.device) << 24 | number;
        table.insert_unique(hash, handle, |handle| hash_of(hasher, rings, *handle));
        true
    }

    fn empty(shard: &mut Shard, hash: u64, handle: u32) -> Option<Cached> {
        shard.forget(hash, handle);
        let entry = shard.rings.get_mut((handle >> 24) as usize)?.get_mut(handle & NUMBER_MASK)?;
        let cached = entry.cached((handle >> 24) as u8);
        *entry = Entry::default();
        Some(cached)
    }

    fn measured(&self, shard: &Shard) -> usize {
        let rings = shard.rings.iter().map(Ring::memory_bytes).sum::<usize>();
        rings + shard.rings.capacity() * size_of::<Ring>() + shard.table.allocation_size()
    }

    fn note_memory(&self, before: usize, shard: &Shard) {
        let now = self.measured(shard);
        if now >= before {
            self.memory_bytes.fetch_add(now - before, Ordering::Relaxed);
        } else {
            self.memory_bytes.fetch_sub(before - now, Ordering::Relaxed);
        }
    }
}

fn hash_of(hasher: &DefaultHashBuilder, rings: &[Ring], handle: u32) -> u64 {
    let entry = rings.get((handle >> 24) as usize).and_then(|ring| ring.get(handle & NUMBER_MASK));
    hasher.hash_one(entry.copied().unwrap_or_default().key())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ASHIFT: u32 = 12;

    fn key(number: u64) -> BlockKey {
        BlockKey { vdev: (number % 3) as u32, offset: number << 13, birth: number + 1 }
    }

    fn cached(device: u8, number: u64) -> Cached {
        let address = (number + 1) << ASHIFT;
        Cached {
            device,
            address,
            psize: 4096,
            lsize: 8192,
            is_metadata: number.is_multiple_of(5),
            frequent: number.is_multiple_of(7),
        }
    }

    #[test]
    fn blocks_are_found_until_they_are_evicted_in_order() {
        let index = Index::default();
        for number in 0..10_000 {
            assert_eq!(index.add_newest(&key(number), &cached(0, number)), (None, true));
        }
        assert!((0..10_000).all(|number| index.get(&key(number)) == Some(cached(0, number))));
        let dropped = index.evict(0, ASHIFT, 0..5001 << ASHIFT);
        assert_eq!((dropped.blocks, dropped.asize), (5000, 5000 << ASHIFT));
        assert!((0..5000).all(|number| index.get(&key(number)).is_none()));
        assert!((5000..10_000).all(|number| index.get(&key(number)).is_some()));
        assert_eq!(index.evict(0, ASHIFT, 0..5001 << ASHIFT), Dropped::default());
        assert_eq!(index.evict_device(0, ASHIFT).blocks, 5000);
        assert!((0..10_000).all(|number| index.get(&key(number)).is_none()));
    }

    #[test]
    fn a_rebuild_adds_older_blocks_and_new_ones_follow_it() {
        let index = Index::default();
        for number in (0..1000).rev() {
            assert!(index.add_oldest(&key(number), &cached(1, number)));
            assert!(!index.add_oldest(&key(number), &cached(1, number)), "known already");
        }
        for number in 1000..2000 {
            index.add_newest(&key(number), &cached(1, number));
        }
        assert_eq!(index.evict(1, ASHIFT, 0..1501 << ASHIFT).blocks, 1500);
        assert!((0..2000).all(|number| index.get(&key(number)).is_some() == (number >= 1500)));
    }

    #[test]
    fn what_is_written_again_or_dropped_is_forgotten_once() {
        let index = Index::default();
        index.add_newest(&key(1), &cached(0, 1));
        index.add_newest(&key(2), &cached(0, 2));
        assert_eq!(index.add_newest(&key(1), &cached(2, 9)), (Some(cached(0, 1)), true));
        assert_eq!(index.get(&key(1)), Some(cached(2, 9)));
        assert_eq!(index.remove(&key(1), Some((0, 1 << ASHIFT))), None, "another copy");
        assert_eq!(index.remove(&key(1), Some((2, 10 << ASHIFT))), Some(cached(2, 9)));
        assert_eq!(index.evict_device(0, ASHIFT).blocks, 1);
        assert_eq!(index.evict_device(2, ASHIFT).blocks, 0);
    }

    #[test]
    fn a_ring_that_moves_along_does_not_grow() {
        let index = Index::default();
        for number in 0..200_000 {
            index.add_newest(&key(number), &cached(0, number));
            if number >= 100 {
                index.evict(0, ASHIFT, 0..(number - 98) << ASHIFT);
            }
        }
        assert!(index.get(&key(199_950)).is_some() && index.get(&key(199_800)).is_none());
        assert!(index.memory_bytes() < 2 << 20, "{}", index.memory_bytes());
    }

    #[test]
    fn a_cached_block_takes_less_than_48_bytes() {
        let blocks = 3_000_000;
        let index = Index::default();
        for number in 0..blocks {
            index.add_newest(&key(number), &cached(0, number));
            if number > 1_000_000 && number % 65_536 == 0 {
                let each = index.memory_bytes() as f64 / (number + 1) as f64;
                assert!(each < super::super::HEADER_BYTES as f64, "{each} bytes for each of {number} blocks");
            }
        }
        println!("{:.1} bytes for each cached block", index.memory_bytes() as f64 / blocks as f64);
    }
}
