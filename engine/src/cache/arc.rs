//! The ARC: blocks in memory under one byte budget, which keeps both recently and frequently used blocks.
//!
//! # The idea
//! This is Megiddo and Modha's adaptive replacement cache, with sizes in bytes. Each shard has four lists:
//! blocks seen once (`recent`), blocks seen again (`frequent`), and for each of these a *ghost* list with the
//! keys of evicted blocks. A miss whose key is in a ghost list shows that the corresponding list was too
//! small; the shard then moves its `recent_target`, the share of the budget that `recent` may keep.
//! Each list is one of data and one of metadata, with a target each. Hits in ghosts of either kind move
//! `metadata_target`, the share that metadata may keep. Metadata count for more in that
//! (`zfs_arc_meta_balance`): a block of them leads to many others.
//!
//! A reader of one record in small pieces touches its block many times in a row; that is one use, not many.
//! So a block becomes frequent only when other blocks came in since it was last touched (OpenZFS requires 62
//! ms instead; a count needs no clock). Loading a block ahead of its reader ([`Retain::Ahead`]) is not a use
//! at all: the read for which it was loaded is the first, and leaves it behind the blocks that still wait.
//! Otherwise all sequentially read blocks would become frequent, and would evict the blocks that still wait
//! for their reader.
//!
//! A shard has room for at least the largest block, so a small cache has few shards. In many small shards,
//! blocks that wait for their reader would sometimes meet by chance and evict each other.
//!
//! # One budget
//! Dirty data are in memory too. The cache *lends* them bytes of its budget ([`ArcCache::lend`]), so that it
//! shrinks while there are many dirty data and grows again when they are written. A quarter of the budget is
//! never lent. Lending makes room in one shard at a time; the other shards follow as they insert blocks.
//!
//! # Compressed blocks
//! A block that is compressed in the pool is kept compressed, decompressed, or both, by the room that there
//! is and by its use (`forms`).
//!
//! # Loading
//! The first reader that misses becomes the loader; later readers wait for it and share its result. A loader
//! that is dropped (its client went away) wakes the waiters, and one of them takes over: no reader waits for
//! a loader that is gone.
//!
//! # Invariants
//! - The lock of a shard is held for a bounded number of steps, never across an await, and never together
//!   with another lock.
//! - A hit takes one shard lock, allocates nothing and finishes in the first poll. A hit of a block that is
//!   only there in compressed form decompresses it outside of the lock, and takes the lock once more.
//! - The bytes of `recent` and `frequent` of a shard, and of the copies beside their compressed blocks, never
//!   exceed its share of the budget, except by its newest block.
//! - Ghosts hold no bytes of blocks, and their blocks would at most fill the budget once again.

mod arcstats;
mod feed;
mod flight;
mod forms;
mod shard;
mod ticket;
mod unread;

use std::future::Future;
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use device::IgnorePoison;
use hashbrown::DefaultHashBuilder;

pub use self::arcstats::ArcStats;
pub(crate) use self::feed::{Feedable, Selection};
use self::flight::{Flight, Wait};
use self::forms::Found;
use self::shard::{Freed, NIL, RECENT, Shard};
use self::ticket::Ticket;
use super::what_if::WhatIf;
use super::{Block, Loaded, Retain};
use crate::error::Result;

/// The most shards, each with its own lock.
const MAX_SHARDS: u64 = 64;
/// The least share of the budget of a shard, if the budget is that large: the size of the largest block.
const MIN_SHARE_BYTES: u64 = 16 << 20;

/// The part of the budget that is never lent: one in this many.
const OWN_SHARE: u64 = 4;
/// What the cache may have too much of while it lends: one part in so many of the budget.
const LAG_SHARE: u64 = 64;
/// The default budget.
const DEFAULT_BUDGET_BYTES: u64 = 512 << 20;

/// Touches before this many blocks came into the shard count as one use.
const SAME_USE_INSERTS: u64 = 4;

/// The cost of a block besides its bytes: the node, its table slot, the handle.
const NODE_BYTES: usize = 128;

/// The key of a block: the place and birth of its first copy are unique among the blocks of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    /// Number of the open pool, from [`ArcCache::register_pool`].
    pub pool: u32,
    /// Top-level vdev of the first DVA.
    pub vdev: u32,
    /// Offset of the first DVA.
    pub offset_bytes: u64,
    /// Physical birth txg.
    pub birth: u64,
    /// The checksum mixed into one word, so that even two contradictory block pointers do not share bytes.
    /// The lowest bit is set for metadata, which a pointer says of its block.
    pub checksum_word: u64,
}

impl Key {
    /// Whether the block is metadata: anything else than the content of a file or volume.
    pub(crate) fn is_metadata(&self) -> bool {
        self.checksum_word & 1 != 0
    }
}

/// The cache; shared by all pools of a process.
pub struct ArcCache {
    hasher: DefaultHashBuilder,
    shards: Box<[Mutex<Shard>]>,
    budget_bytes: AtomicU64,
    lent_bytes: AtomicU64,
    /// Memory of the indexes of cache devices.
    index_bytes: AtomicU64,
    /// The shard that makes room for the next lent bytes.
    next_shard: AtomicUsize,
    pools: AtomicU64,
    what_if: WhatIf,
    /// Blocks had to be evicted already.
    is_warm: AtomicBool,
    /// The shard that a feeder of cache devices looks at first.
    next_fed_shard: AtomicUsize,
    lost_prefetches: AtomicU64,
}

impl std::fmt::Debug for ArcCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ArcCache").field("budget_bytes", &self.budget_bytes()).finish_non_exhaustive()
    }
}

impl ArcCache {
    /// The cache of the caller, or a new one of 512 MiB.
    pub(crate) fn or_default(given: Option<&Arc<Self>>) -> Arc<Self> {
        given.map_or_else(|| Arc::new(Self::new(DEFAULT_BUDGET_BYTES)), Arc::clone)
    }

    /// A cache that keeps at most about `budget_bytes`.
    pub fn new(budget_bytes: u64) -> Self {
        let shards = (budget_bytes / MIN_SHARE_BYTES).clamp(1, MAX_SHARDS);
        let share = usize::try_from(budget_bytes / shards).unwrap_or(usize::MAX);
        let shards = (0..shards).map(|_| Mutex::new(Shard::new(share))).collect();
        Self {
            hasher: DefaultHashBuilder::default(),
            shards,
            budget_bytes: AtomicU64::new(budget_bytes),
            lent_bytes: AtomicU64::new(0),
            index_bytes: AtomicU64::new(0),
            next_shard: AtomicUsize::new(0),
            pools: AtomicU64::new(0),
            what_if: WhatIf::default(),
            is_warm: AtomicBool::new(false),
            next_fed_shard: AtomicUsize::new(0),
            lost_prefetches: AtomicU64::new(0),
        }
    }

    /// The budget in bytes.
    pub fn budget_bytes(&self) -> u64 {
        self.budget_bytes.load(Ordering::Relaxed)
    }

    /// Gives the cache another budget, and evicts what does not fit into it.
    ///
    /// The number of shards stays: in a cache that became much smaller, the share of a shard may be smaller
    /// than the largest block, and such blocks evict each other sooner.
    pub fn resize(&self, budget_bytes: u64) {
        self.budget_bytes.store(budget_bytes, Ordering::Relaxed);
        for shard in &self.shards {
            let mut freed = Freed::default();
            {
                let mut shard = lock(shard);
                shard.budget = self.share();
                shard.recent_target = shard.recent_target.map(|target| target.min(shard.budget));
                shard.metadata_target = shard.metadata_target.min(shard.budget);
                shard.make_room(NIL, &mut freed);
            }
            // Freed outside of the lock.
            drop(freed);
        }
    }

    /// Bytes of the budget that may be lent.
    pub fn lendable_bytes(&self) -> u64 {
        self.budget_bytes() - self.budget_bytes() / OWN_SHARE
    }

    /// Bytes of the budget that are lent now.
    pub fn lent_bytes(&self) -> u64 {
        self.lent_bytes.load(Ordering::Relaxed)
    }

    /// Lends `bytes` of the budget to dirty data.
    pub fn lend(&self, bytes: u64) {
        self.lent_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.make_room_for_lent(bytes);
    }

    /// Lends `bytes` of the budget, unless other than `lent_bytes` are lent by now: what a caller checked is
    /// still so when it gets them. [`ArcCache::make_room_for_lent`] is to follow.
    pub(crate) fn try_lend(&self, bytes: u64, lent_bytes: u64) -> bool {
        let (from, to) = (lent_bytes, lent_bytes.saturating_add(bytes));
        self.lent_bytes.compare_exchange(from, to, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// Evicts what does not fit beside the `bytes` that were lent, from some shards at a time: from all of
    /// them by the time that [`LAG_SHARE`] is lent.
    pub(crate) fn make_room_for_lent(&self, bytes: u64) {
        let shards = self.shards.len();
        let lag_bytes = (self.budget_bytes() / LAG_SHARE / shards as u64).max(1);
        for _ in 0..usize::try_from(bytes / lag_bytes).unwrap_or(shards).clamp(1, shards) {
            let next = self.next_shard.fetch_add(1, Ordering::Relaxed) % shards;
            let mut freed = Freed::default();
            {
                let mut shard = lock(&self.shards[next]);
                shard.budget = self.share();
                shard.make_room(NIL, &mut freed);
            }
            // Freed outside of the lock.
            drop(freed);
        }
    }

    /// Memory of the indexes of cache devices, which is part of the budget.
    pub fn index_bytes(&self) -> u64 {
        self.index_bytes.load(Ordering::Relaxed)
    }

    /// Takes lent bytes back.
    pub fn take_back(&self, bytes: u64) {
        let before = self.lent_bytes.fetch_sub(bytes, Ordering::Relaxed);
        debug_assert!(before >= bytes, "more is given back than was lent");
    }

    /// The memory of an index of cache devices changed: it is part of the budget.
    pub(crate) fn account_index(&self, before: u64, now: u64) {
        self.index_bytes.fetch_add(now.wrapping_sub(before), Ordering::Relaxed);
    }

    /// The bytes that each shard may keep now.
    fn share(&self) -> usize {
        let budget_bytes = self.budget_bytes();
        let taken = self.lent_bytes().saturating_add(self.index_bytes());
        let own = budget_bytes.saturating_sub(taken).max(budget_bytes / OWN_SHARE);
        usize::try_from(own / self.shards.len() as u64).unwrap_or(usize::MAX)
    }

    /// A number that distinguishes this opening of a pool from all others of the process.
    pub fn register_pool(&self) -> u32 {
        // Wraps after four billion imports; the blocks of the first ones are long evicted.
        self.pools.fetch_add(1, Ordering::Relaxed) as u32
    }

    /// What a cache of another size would do.
    pub fn what_if(&self) -> &WhatIf {
        &self.what_if
    }

    /// Blocks that were loaded ahead of a stream, evicted, and only then read.
    pub(crate) fn lost_prefetches(&self) -> u64 {
        self.lost_prefetches.load(Ordering::Relaxed)
    }

    /// The memory that a block takes here, for statistics: this is no use of the block. 0 if it is not there.
    pub fn bytes_of(&self, key: &Key) -> u64 {
        let hash = self.hasher.hash_one(key);
        self.shard(hash).bytes_of_block(hash, key) as u64
    }

    /// The block if it is in memory. One lock and no allocation, unless it has to be decompressed.
    pub fn get(&self, key: &Key, retain: Retain) -> Option<Block> {
        let hash = self.hasher.hash_one(key);
        let found = self.shard(hash).hit(hash, key, retain)?;
        self.opened(hash, key, found, retain)
    }

    /// The block from memory, or from a load in progress, or from `load`. The cache keeps the result of
    /// `load` if `retain` is [`Retain::In`] or [`Retain::Ahead`].
    ///
    /// `load` is called at most once, and not at all when the block is in memory or another reader is loading
    /// it.
    pub async fn get_or_load<L, F, B>(&self, key: Key, retain: Retain, load: L) -> Result<Block>
    where
        L: FnOnce() -> F,
        F: Future<Output = Result<B>>,
        B: Into<Loaded>,
    {
        let hash = self.hasher.hash_one(key);
        let mut load = Some(load);
        loop {
            match self.look_up(hash, &key, retain) {
                Lookup::Hit(found) => {
                    if let Some(block) = self.opened(hash, &key, found, retain) {
                        return Ok(block);
                    }
                }
                Lookup::Wait(flight) => {
                    if let Some(result) = Wait::new(flight).await {
                        // The loader may have inserted it. Freed outside of the lock.
                        let removed = self.shard(hash).note_read(hash, &key, retain);
                        drop(removed);
                        return result;
                    }
                }
                Lookup::Load(ticket) => {
                    // Present: this arm returns, so that it is reached once.
                    let Some(load) = load.take() else { continue };
                    return ticket.finish(load().await.map(Into::into), retain);
                }
            }
        }
    }

    /// Inserts a block that no reader loaded.
    #[cfg(test)]
    pub(crate) fn insert(&self, key: Key, block: impl Into<Loaded>) {
        let hash = self.hasher.hash_one(key);
        let freed = {
            let mut shard = self.shard(hash);
            shard.budget = self.share();
            shard.insert_into(RECENT, hash, key, block.into(), false)
        };
        drop(freed);
    }

    /// Inserts a block that replaces another one, which is dropped. Overwritten bytes are rarely read; a
    /// snapshot or clone that reads them loads them again. The new block inherits the use of the old one. If
    /// the old one was not in memory, the new block is inserted only with [`Retain::In`]. `block` is called
    /// if the new block is inserted.
    pub fn supersede<B>(&self, old: Option<Key>, key: Key, block: impl FnOnce() -> B, retain: Retain)
    where
        B: Into<Loaded>,
    {
        let dropped = old.and_then(|old| {
            let hash = self.hasher.hash_one(old);
            self.shard(hash).remove(hash, &old)
        });
        match retain {
            Retain::In | Retain::Ahead | Retain::ForChange => {}
            Retain::AsItWas if dropped.is_some() => {}
            Retain::AsItWas | Retain::Out => return,
        }
        let list = dropped.map_or(RECENT, |(list, _)| list);
        let hash = self.hasher.hash_one(key);
        let block = block().into();
        let freed = {
            let mut shard = self.shard(hash);
            shard.budget = self.share();
            shard.insert_into(list, hash, key, block, false)
        };
        self.note_evicted(&freed);
        drop(freed);
    }

    /// Forgets all blocks of a pool that was closed.
    pub fn evict_pool(&self, pool: u32) {
        self.what_if.forget_pool(pool);
        for shard in &self.shards {
            let evicted = lock(shard).remove_pool(pool);
            drop(evicted);
        }
    }

    fn hash(&self, key: &Key) -> u64 {
        self.hasher.hash_one(key)
    }

    fn note_evicted(&self, freed: &Freed) {
        if !freed.evicted.is_empty() && !self.is_warm.load(Ordering::Relaxed) {
            self.is_warm.store(true, Ordering::Relaxed);
        }
    }

    fn shard(&self, hash: u64) -> MutexGuard<'_, Shard> {
        lock(&self.shards[self.shard_index(hash)])
    }

    fn shard_index(&self, hash: u64) -> usize {
        // The table inside a shard uses the lowest and the highest bits; these lie between.
        (hash >> 40) as usize % self.shards.len()
    }

    fn look_up(&self, hash: u64, key: &Key, retain: Retain) -> Lookup<'_> {
        let mut shard = self.shard(hash);
        if let Some(found) = shard.hit(hash, key, retain) {
            return Lookup::Hit(found);
        }
        if let Some(flight) = shard.flights.get(key) {
            let flight = Arc::clone(flight);
            shard.counts.wait(retain, key.is_metadata(), flight.is_ahead);
            return Lookup::Wait(flight);
        }
        let flight = Flight::begun(retain == Retain::Ahead);
        shard.flights.insert(*key, Arc::clone(&flight));
        shard.counts.miss(retain, key.is_metadata());
        if retain != Retain::Ahead && shard.unread.take(hash) {
            self.lost_prefetches.fetch_add(1, Ordering::Relaxed);
        }
        Lookup::Load(Ticket { cache: self, hash, key: *key, flight })
    }
}

/// No code that runs under these locks panics. If it did, a list could lose a node, but a block's bytes would
/// never change.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().ignore_poison()
}

enum Lookup<'a> {
    Hit(Found),
    Wait(Arc<Flight>),
    Load(Ticket<'a>),
}

#[cfg(test)]
mod tests {
    use std::task::Poll;

    use super::shard::FREQUENT;
    use super::*;
    use device::{IoBuf, block_on};
    use futures_util::FutureExt;

    fn key(offset_bytes: u64) -> Key {
        Key { pool: 0, vdev: 0, offset_bytes, birth: 1, checksum_word: 0 }
    }

    fn block(fill: u8) -> Block {
        Block::from(IoBuf::from([fill; 4096].as_slice()))
    }

    fn shard_with(budget_blocks: usize) -> (Shard, DefaultHashBuilder) {
        (Shard::new(budget_blocks * (4096 + NODE_BYTES)), DefaultHashBuilder::default())
    }

    fn put(shard: &mut Shard, hasher: &DefaultHashBuilder, n: u64) {
        shard.insert_into(RECENT, hasher.hash_one(key(n)), key(n), block(n as u8).into(), false);
    }

    fn put_ahead(shard: &mut Shard, hasher: &DefaultHashBuilder, n: u64) {
        shard.insert_into(RECENT, hasher.hash_one(key(n)), key(n), block(n as u8).into(), true);
    }

    fn has(shard: &mut Shard, hasher: &DefaultHashBuilder, n: u64) -> bool {
        shard.hit(hasher.hash_one(key(n)), &key(n), Retain::In).is_some()
    }

    #[test]
    fn a_smaller_budget_evicts_and_a_larger_one_makes_room() {
        let cache = ArcCache::new(64 << 20);
        (0..4096).for_each(|n| cache.insert(key(n), block(1)));
        let before = cache.stats().size_bytes;
        assert!(before > 16 << 20, "{before}");
        cache.resize(8 << 20);
        let after = cache.stats();
        assert!(after.size_bytes <= 8 << 20 && after.size_bytes > 6 << 20, "{after:?}");
        assert_eq!((after.budget_bytes, cache.lendable_bytes()), (8 << 20, 6 << 20));
        cache.resize(64 << 20);
        (4096..8192).for_each(|n| cache.insert(key(n), block(1)));
        assert!(cache.stats().size_bytes > 16 << 20);
    }

    #[test]
    fn what_is_not_to_be_kept_is_not_and_what_waited_for_its_reader_goes_with_it() {
        let cache = ArcCache::new(64 << 20);
        let read = |retain, loads: bool| {
            let load = || async move { if loads { Ok(block(1)) } else { panic!("it is there") } };
            block_on(cache.get_or_load(key(1), retain, load)).unwrap()[0]
        };
        let is_there = || cache.stats().size_bytes > 0;
        for retain in [Retain::AsItWas, Retain::Out] {
            assert_eq!((read(retain, true), is_there()), (1, false));
        }
        assert_eq!((read(Retain::In, true), is_there()), (1, true));
        assert_eq!((read(Retain::AsItWas, false), is_there()), (1, true));
        assert_eq!((read(Retain::Out, false), is_there()), (1, false));
        assert_eq!((cache.stats().hits, cache.stats().misses), (2, 3));
        // Its replacement removes it, too.
        read(Retain::In, true);
        cache.supersede(Some(key(1)), key(2), || block(2), Retain::Out);
        assert!(!is_there());
    }

    #[test]
    fn who_waited_for_a_block_that_is_not_to_stay_takes_it_out() {
        let cache = ArcCache::new(64 << 20);
        let gate = std::cell::Cell::new(false);
        let mut ahead = Box::pin(cache.get_or_load(key(1), Retain::In, || async {
            std::future::poll_fn(|_| if gate.get() { Poll::Ready(()) } else { Poll::Pending }).await;
            Ok(block(3))
        }));
        assert!(ahead.as_mut().now_or_never().is_none());
        let mut reader = Box::pin(cache.get_or_load(key(1), Retain::Out, || async { Ok(block(4)) }));
        assert!(reader.as_mut().now_or_never().is_none());
        gate.set(true);
        assert_eq!(block_on(ahead).unwrap()[0], 3);
        assert_eq!(block_on(reader).unwrap()[0], 3);
        assert_eq!(cache.stats().size_bytes, 0);
    }

    #[test]
    fn what_is_written_over_gives_its_place_to_the_new_bytes() {
        let cache = ArcCache::new(64 << 20);
        let list = |key: &Key| {
            let hash = cache.hasher.hash_one(key);
            let shard = cache.shard(hash);
            shard.find(hash, key).map(|index| shard.nodes[index as usize].list())
        };
        cache.supersede(None, key(1), || block(1), Retain::AsItWas);
        assert!(cache.get(&key(1), Retain::In).is_none(), "nobody had asked for it");
        cache.supersede(Some(key(1)), key(2), || block(2), Retain::In);
        assert_eq!(list(&key(2)), Some(RECENT));
        (1000..2000).for_each(|n| cache.insert(key(n), block(0)));
        assert!(cache.get(&key(2), Retain::In).is_some());
        assert_eq!(list(&key(2)), Some(FREQUENT), "touched again after others came");
        let before = cache.stats().size_bytes;
        cache.supersede(Some(key(2)), key(3), || block(3), Retain::AsItWas);
        assert_eq!((list(&key(2)), list(&key(3))), (None, Some(FREQUENT)));
        assert_eq!(cache.stats().size_bytes, before);
    }

    #[test]
    fn a_block_is_loaded_once() {
        let cache = ArcCache::new(64 << 20);
        let first = block_on(cache.get_or_load(key(1), Retain::In, || async { Ok(block(7)) }));
        assert_eq!(first.unwrap()[0], 7);
        let second = block_on(
            cache.get_or_load::<_, _, Block>(key(1), Retain::In, || async { panic!("must not load twice") }),
        );
        assert_eq!(second.unwrap()[0], 7);
        assert_eq!((cache.stats().hits, cache.stats().misses), (1, 1));
    }

    #[test]
    fn a_dropped_loader_lets_a_waiter_take_over() {
        let cache = ArcCache::new(64 << 20);
        let mut first = Box::pin(cache.get_or_load::<_, _, Block>(key(1), Retain::In, std::future::pending));
        assert!(first.as_mut().now_or_never().is_none());
        let mut second = Box::pin(cache.get_or_load(key(1), Retain::In, || async { Ok(block(9)) }));
        assert!(second.as_mut().now_or_never().is_none(), "waits while the first one loads");
        drop(first);
        assert_eq!(block_on(second).unwrap()[0], 9);
    }

    #[test]
    fn a_failed_load_answers_its_waiters_and_is_not_kept() {
        let cache = ArcCache::new(64 << 20);
        let fail = || async { Err(crate::Error::NotFound("it".into())) };
        assert!(block_on(cache.get_or_load::<_, _, Block>(key(1), Retain::In, fail)).is_err());
        assert_eq!(block_on(cache.get_or_load(key(1), Retain::In, || async { Ok(block(1)) })).unwrap()[0], 1);
    }

    #[test]
    fn the_budget_holds_and_the_newest_block_stays() {
        let (mut shard, hasher) = shard_with(8);
        for n in 0..100 {
            put(&mut shard, &hasher, n);
            assert!(shard.held_bytes() <= shard.budget);
            assert!(has(&mut shard, &hasher, n));
        }
        assert!(shard.nodes.len() <= 18, "ghosts are bounded: {}", shard.nodes.len());
    }

    #[test]
    fn what_is_lent_is_taken_from_the_cache_and_comes_back() {
        let cache = ArcCache::new(64 << 20);
        let fill = |from: u64| (from..from + 40_000).for_each(|n| cache.insert(key(n), block(1)));
        fill(0);
        assert!(cache.stats().size_bytes > 50 << 20);
        // Many small writes that add up to 40 MiB, without a read between them.
        for lent in 1..=40 {
            cache.lend(1 << 20);
            let most = (64 - lent) << 20;
            assert!(cache.stats().size_bytes <= most + (64 << 20) / LAG_SHARE, "{:?}", cache.stats());
        }
        cache.lend(64 << 20);
        let left = cache.stats().size_bytes;
        assert!(left > 12 << 20 && left <= 16 << 20, "a quarter is its own: {left}");
        cache.take_back(104 << 20);
        fill(100_000);
        assert!(cache.stats().size_bytes > 50 << 20);
    }

    #[test]
    fn a_scan_does_not_evict_what_is_used_often() {
        let (mut shard, hasher) = shard_with(16);
        for round in 0..4 {
            for n in 0..4 {
                if !has(&mut shard, &hasher, n) {
                    put(&mut shard, &hasher, n);
                }
            }
            (0..6).for_each(|n| put(&mut shard, &hasher, 50 + round * 6 + n));
        }
        (1000..2000).for_each(|n| put(&mut shard, &hasher, n));
        assert!((0..4).all(|n| has(&mut shard, &hasher, n)));
    }

    #[test]
    fn reading_one_block_in_pieces_is_one_use() {
        let (mut shard, hasher) = shard_with(16);
        put(&mut shard, &hasher, 1);
        (0..32).for_each(|_| assert!(has(&mut shard, &hasher, 1)));
        assert_eq!(shard.bytes_of(FREQUENT), 0);
    }

    #[test]
    fn what_is_loaded_ahead_waits_for_its_reader_whose_read_is_its_first_use() {
        let (mut shard, hasher) = shard_with(16);
        // A long sequential read, ten blocks ahead.
        (0..10).for_each(|n| put_ahead(&mut shard, &hasher, n));
        for n in 0..1000 {
            put_ahead(&mut shard, &hasher, n + 10);
            assert!(has(&mut shard, &hasher, n), "{n} was put out before it was read");
        }
        assert_eq!(shard.bytes_of(FREQUENT), 0);
        // Read again after other blocks came in: a second use.
        assert!(has(&mut shard, &hasher, 995));
        assert!(shard.bytes_of(FREQUENT) > 0);
    }

    #[test]
    fn a_block_is_lost_when_it_was_loaded_ahead_and_evicted_before_it_was_read() {
        let cache = ArcCache::new(1 << 20);
        let read = |n, retain| block_on(cache.get_or_load(key(n), retain, || async { Ok(block(1)) }));
        let fill = |from: u64| (from..from + 300).for_each(|n| cache.insert(key(n), block(0)));
        read(1, Retain::Ahead).unwrap();
        read(2, Retain::Ahead).unwrap();
        read(2, Retain::In).unwrap();
        read(3, Retain::In).unwrap();
        fill(1000);
        for _ in 0..2 {
            (1..4).for_each(|n| drop(read(n, Retain::In).unwrap()));
            assert_eq!(cache.lost_prefetches(), 1);
            fill(2000);
        }
    }

    #[test]
    fn who_waited_for_a_block_that_is_loaded_ahead_has_used_it() {
        let cache = ArcCache::new(64 << 20);
        let gate = std::cell::Cell::new(false);
        let mut ahead = Box::pin(cache.get_or_load(key(1), Retain::Ahead, || async {
            std::future::poll_fn(|_| if gate.get() { Poll::Ready(()) } else { Poll::Pending }).await;
            Ok(block(3))
        }));
        assert!(ahead.as_mut().now_or_never().is_none());
        let mut reader = Box::pin(cache.get_or_load(key(1), Retain::In, || async { Ok(block(4)) }));
        assert!(reader.as_mut().now_or_never().is_none());
        gate.set(true);
        assert_eq!((block_on(ahead).unwrap()[0], block_on(reader).unwrap()[0]), (3, 3));
        let hash = cache.hasher.hash_one(key(1));
        let shard = cache.shard(hash);
        let node = shard.find(hash, &key(1)).map(|index| &shard.nodes[index as usize]);
        assert!(node.is_some_and(|node| !node.is(super::shard::AHEAD)));
    }

    #[test]
    fn a_small_cache_holds_any_blocks_that_fit_together() {
        let cache = ArcCache::new(16 << 20);
        (0..3000).for_each(|n| cache.insert(key(n), block(1)));
        assert!((0..3000).all(|n| cache.get(&key(n), Retain::In).is_some()));
    }

    #[test]
    fn a_closed_pools_blocks_are_forgotten() {
        let cache = ArcCache::new(64 << 20);
        (0..100).for_each(|n| cache.insert(key(n), block(1)));
        assert!(cache.stats().size_bytes > 0);
        cache.evict_pool(0);
        assert_eq!(cache.stats().size_bytes, 0);
        assert!(cache.get(&key(5), Retain::In).is_none());
    }
}
