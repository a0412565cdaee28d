//! Cache devices (the L2ARC): blocks that the ARC evicts soon are written to fast devices, and read from
//! there later.
//!
//! # The idea
//! A cache device holds blocks as they are in the pool: compressed, with the checksum in the block pointer.
//! What is read from it is checked like a read of the pool, and anything that is not right is a miss. So a
//! cache device may lose, mix up or invent bytes: a reader gets the right ones from the pool. Nothing depends
//! on a cache device, and no error of one reaches a reader.
//!
//! A block that is encrypted in the pool is the same ciphertext here (`cache::candidate`). What is
//! read needs the key of its dataset, and its MAC is checked as that of a block of the pool. So a device may
//! be found again after a restart before any key is loaded.
//!
//! # Reads
//! A miss of the ARC asks the `index` (one short lock), and reads the block from the device that has it. It
//! asks the pool when there is no such block, when the device has too many reads already, or when its reads
//! take longer than those of the pool (`device::Latency`). No reader waits for such a device: the feeder
//! reads a few of the blocks that were passed over, to find out whether it is still slow. While a slow device
//! is used, now and then a read goes to the pool, so that what is known of the pool stays true too. A hit of
//! the ARC touches nothing here.
//!
//! # Feeding
//! A feeder (the pool's; `feed`) takes blocks from the ARC that will be evicted soon, and writes them to
//! one device after the other, in one run each. Its speed is bounded. Blocks come into the ARC with what that
//! takes (`crate::cache::Candidate`) only while there is a device. Blocks of groups that are not committed
//! are left out: such a block may still be overwritten in place.
//!
//! # What is on a device
//! The on-disk form is OpenZFS's ([`ondisk::l2arc`]); `ring` decides where things go. After a restart the
//! index is made again from the log blocks (`rebuild`). The order of writes is: blocks and log blocks, a
//! flush when there is a log block, the header. A header thus never leads to a log block that is not there,
//! unless later writes went over it before the next header. The checksum of the log block shows that, and the
//! chain ends there.
//!
//! # Devices that come and go
//! `L2arc::take_up` compares the devices that are in use with those of the vdev tree, before each feed and
//! when something changed. The blocks of a device that is gone are forgotten at once
//! (`L2arc::forget_gone`); one that is back is rebuilt from its header.
//!
//! | lock | guards | order |
//! |---|---|---|
//! | `feeder` | that one feed, rebuild or change of devices runs at a time; held across awaits | first |
//! | `devices` | the devices in use, by number; for a few lines | after it |
//! | `absent` | the devices that left and may come back; for a few lines | taken alone |
//! | shards of `index` | see there | last |
//!
//! Source of the facts: OpenZFS 2.4 `arc.c` (from "Level 2 ARC" on), `arc_impl.h`.

mod device;
mod feed;
mod index;
pub mod inspect;
mod rebuild;
mod ring;
pub mod stats;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, RwLock};
use std::time::{Duration, Instant};

use ::device::{IgnorePoison, IoBuf};
use futures_util::lock::Mutex as AsyncMutex;
use ondisk::Guid;
use ondisk::blkptr::Blkptr;

use self::device::{CacheDevice, Latency};
use self::feed::Feeder;
use self::index::{BlockKey, Cached, Dropped, Index, MAX_DEVICES};
use self::stats::L2arcStats;
use crate::cache::{ArcCache, Candidate};
use crate::error::Failure;
use crate::stats::Arcstats;
use crate::vdev::{Class, VdevTree};

/// The most bytes of memory for a block on a cache device. OpenZFS has 96 for each.
pub const HEADER_BYTES: u64 = 48;

/// The cache devices of a pool.
#[derive(Debug, Default)]
pub struct L2arc {
    index: Index,
    devices: RwLock<Vec<Option<Arc<CacheDevice>>>>,
    /// There is a device: reads look into the index.
    is_active: AtomicBool,
    /// There is a device that is fed: blocks come into the ARC with what that takes.
    is_fed: AtomicBool,
    /// Reads of the pool.
    pool_reads: Latency,
    stats: L2arcStats,
    feeder: AsyncMutex<Feeder>,
    signal: Arc<Signal>,
    /// The memory of the index that the ARC's budget was lowered by.
    accounted_bytes: AtomicU64,
    /// Devices that left and may come back, such as those that are offline. What is on them still counts.
    absent: Mutex<Vec<Arc<CacheDevice>>>,
}

impl Drop for L2arc {
    fn drop(&mut self) {
        for device in self.devices() {
            self.leave(&device);
        }
        self.give_up_absent(|_| true);
    }
}

/// Wakes the feeder.
#[derive(Debug, Default)]
pub(crate) struct Signal {
    state: Mutex<Wanted>,
    changed: Condvar,
}

impl Signal {
    /// Waits until it is time for the next feed, or there is something to look at. False: the feeder ends.
    /// Blocks the thread.
    pub(crate) fn wait(&self, pause: Duration) -> bool {
        let until = Instant::now() + pause;
        let mut state = self.state.lock().ignore_poison();
        loop {
            let now = Instant::now();
            if state.stop {
                return false;
            }
            if std::mem::take(&mut state.look) || now >= until {
                return true;
            }
            state = self.changed.wait_timeout(state, until - now).ignore_poison().0;
        }
    }
}

#[derive(Debug, Default)]
struct Wanted {
    look: bool,
    stop: bool,
}

impl L2arc {
    /// The counters of all devices together.
    pub fn stats(&self) -> &L2arcStats {
        self.stats.l2_hdr_size.set(self.index.memory_bytes() as u64);
        &self.stats
    }

    /// Adds what is of open pools only to [`stats::show`].
    pub fn add_to(&self, stats: &mut Arcstats) {
        stats.l2_hdr_size += self.stats().l2_hdr_size.get();
        stats.l2_ndev += self.devices().len() as u64;
    }

    /// The devices in use.
    pub(crate) fn devices(&self) -> Vec<Arc<CacheDevice>> {
        self.devices.read().ignore_poison().iter().flatten().cloned().collect()
    }

    /// Whether there is a device.
    pub fn is_active(&self) -> bool {
        self.is_active.load(Ordering::Relaxed)
    }

    /// Whether a device may get the block that `bp` leads to, if its dataset allows that.
    pub(crate) fn wants(&self, bp: &Blkptr, vdevs: &VdevTree) -> bool {
        self.is_fed.load(Ordering::Relaxed) && Candidate::is_possible(bp) && !is_excluded(bp, vdevs)
    }

    /// The bytes of the block that `bp` leads to, as they are in the pool, if a device has them and can give
    /// them quickly. `verify` tells right bytes from wrong ones.
    pub(crate) async fn read(
        &self,
        bp: &Blkptr,
        verify: impl Fn(&[u8]) -> Result<(), Failure>,
    ) -> Option<IoBuf> {
        if !self.is_active() || !Candidate::has_checksum(bp) {
            return None;
        }
        let key = BlockKey::of(bp)?;
        let Some((cached, device)) = self.find(&key) else {
            self.miss();
            return None;
        };
        if cached.psize != bp.psize().get() || cached.lsize != bp.lsize().get() {
            // Another block was there when a group with the same number was written.
            self.drop_block(&key, &cached, &device);
            self.miss();
            return None;
        }
        if device.is_kept_for_writes() {
            self.both(&device, |stats| stats.l2_rw_clash.add(1));
            self.miss();
            return None;
        }
        let psize = usize::try_from(cached.psize).ok()?;
        let Some(_reading) = device.begin_read(&self.pool_reads, cached.address, psize) else {
            self.both(&device, |stats| stats.l2_bypassed.add(1));
            self.miss();
            return None;
        };
        self.both(&device, |stats| {
            stats.l2_hits.add(1);
            stats.l2_read_bytes.add(cached.psize);
        });
        match device.read(cached.address, psize).await {
            Err(error) => {
                tracing::debug!(device = device.name, %error, "a cached block cannot be read");
                self.both(&device, |stats| stats.l2_io_error.add(1));
            }
            Ok(bytes) => match verify(&bytes) {
                Ok(()) => return Some(bytes),
                Err(_) if self.index.get(&key) != Some(cached) => {
                    self.both(&device, |stats| stats.l2_evict_reading.add(1));
                    return None;
                }
                Err(_) => self.both(&device, |stats| stats.l2_cksum_bad.add(1)),
            },
        }
        self.drop_block(&key, &cached, &device);
        None
    }

    fn miss(&self) {
        [&self.stats, &stats::PROCESS].into_iter().for_each(|stats| stats.l2_misses.add(1));
    }

    /// Whether a device has the block that `bp` leads to.
    pub(crate) fn has(&self, bp: &Blkptr) -> bool {
        self.is_active() && BlockKey::of(bp).is_some_and(|key| self.find(&key).is_some())
    }

    /// A read of the pool took so long.
    pub(crate) fn note_pool_read(&self, started: Instant) {
        if self.is_active() {
            self.pool_reads.note(started.elapsed());
        }
    }

    /// The block that `bp` led to was freed.
    pub(crate) fn forget(&self, bp: &Blkptr) {
        if !self.is_active() {
            return;
        }
        if let Some(key) = BlockKey::of(bp)
            && let Some(cached) = self.index.remove(&key, None)
            && let Some(device) = self.device(cached.device)
        {
            self.note_removed(&device, &cached);
        }
    }

    /// Forgets the blocks of devices that are gone. The feeder learns of it when it comes to them.
    pub(crate) fn forget_gone(&self) {
        let gone: Vec<Arc<CacheDevice>> =
            self.devices().into_iter().filter(|device| !device.is_usable()).collect();
        for device in gone {
            self.leave(&device);
        }
    }

    /// Wakes the feeder: devices came or went.
    pub(crate) fn look(&self) {
        self.forget_gone();
        self.signal.state.lock().ignore_poison().look = true;
        self.signal.changed.notify_all();
    }

    /// Ends the waiting of the feeder, and what it does as soon as possible.
    pub(crate) fn stop(&self) {
        self.signal.state.lock().ignore_poison().stop = true;
        self.signal.changed.notify_all();
    }

    /// Whether the feeder is to end.
    pub(crate) fn is_stopped(&self) -> bool {
        self.signal.state.lock().ignore_poison().stop
    }

    /// What wakes the feeder. The feeder holds this while it waits, and not the pool.
    pub(crate) fn signal(&self) -> Arc<Signal> {
        Arc::clone(&self.signal)
    }

    /// The pool is closed: the ARC has its whole budget again.
    pub(crate) fn give_memory_back(&self, cache: &ArcCache) {
        cache.account_index(self.accounted_bytes.swap(0, Ordering::Relaxed), 0);
    }

    fn device(&self, number: u8) -> Option<Arc<CacheDevice>> {
        self.devices.read().ignore_poison().get(usize::from(number)).cloned().flatten()
    }

    fn find(&self, key: &BlockKey) -> Option<(Cached, Arc<CacheDevice>)> {
        let cached = self.index.get(key)?;
        let device = self.device(cached.device).filter(|device| device.is_usable())?;
        Some((cached, device))
    }

    /// Puts a new device into the list, made with its number there.
    fn join(&self, make: impl FnOnce(u8) -> Option<CacheDevice>) -> Option<Arc<CacheDevice>> {
        let mut devices = self.devices.write().ignore_poison();
        let free = devices.iter().position(Option::is_none).unwrap_or(devices.len());
        let number = u8::try_from(free).ok().filter(|_| free < MAX_DEVICES)?;
        let device = Arc::new(make(number)?);
        // What is left of an earlier device of this number.
        self.index.evict_device(number, device.ashift);
        if free == devices.len() {
            devices.push(None);
        }
        devices[free] = Some(Arc::clone(&device));
        self.is_active.store(true, Ordering::Release);
        Some(device)
    }

    /// Takes a device out of the list, and forgets its blocks. What is on it counts until it comes back, or
    /// is no device of the pool any more.
    fn leave(&self, device: &Arc<CacheDevice>) {
        if !device.leave() {
            return;
        }
        // Its number is not free before its blocks are forgotten.
        self.index.evict_device(device.number, device.ashift);
        self.absent.lock().ignore_poison().push(Arc::clone(device));
        let mut devices = self.devices.write().ignore_poison();
        if let Some(place) = devices.get_mut(usize::from(device.number)) {
            *place = None;
        }
        if devices.iter().all(Option::is_none) {
            self.is_active.store(false, Ordering::Release);
            self.is_fed.store(false, Ordering::Release);
        }
    }

    /// What is on these devices that left counts no more.
    fn give_up_absent(&self, is_one: impl Fn(&CacheDevice) -> bool) {
        let gone =
            self.absent.lock().ignore_poison().extract_if(.., |device| is_one(device)).collect::<Vec<_>>();
        for device in gone {
            device.stats.take_back(&[&self.stats, &stats::PROCESS]);
        }
    }

    fn drop_block(&self, key: &BlockKey, cached: &Cached, device: &CacheDevice) {
        if let Some(removed) = self.index.remove(key, Some((cached.device, cached.address))) {
            self.note_removed(device, &removed);
        }
    }

    fn note_removed(&self, device: &CacheDevice, cached: &Cached) {
        self.note_dropped(device, &Dropped::of(cached, device.ashift));
    }

    /// The sums of the blocks on a device become smaller.
    fn note_dropped(&self, device: &CacheDevice, dropped: &Dropped) {
        device.show_dropped(dropped.asize);
        self.both(device, |stats| {
            stats.l2_size.sub(dropped.lsize);
            stats.l2_asize.sub(dropped.psize);
            stats.l2_bufc_metadata_asize.sub(dropped.metadata_asize);
            stats.l2_bufc_data_asize.sub(dropped.asize - dropped.metadata_asize);
            stats.l2_mfu_asize.sub(dropped.frequent_asize);
            stats.l2_mru_asize.sub(dropped.asize - dropped.frequent_asize);
        });
    }

    /// The sums of the blocks on a device become larger.
    fn note_added(&self, device: &CacheDevice, cached: &Cached) {
        let added = Dropped::of(cached, device.ashift);
        device.show_used(added.asize);
        self.both(device, |stats| {
            stats.l2_size.add(added.lsize);
            stats.l2_asize.add(added.psize);
            stats.l2_bufc_metadata_asize.add(added.metadata_asize);
            stats.l2_bufc_data_asize.add(added.asize - added.metadata_asize);
            stats.l2_mfu_asize.add(added.frequent_asize);
            stats.l2_mru_asize.add(added.asize - added.frequent_asize);
        });
    }

    /// Counts something of a device: for it, its pool, and the process.
    fn both(&self, device: &CacheDevice, count: impl Fn(&L2arcStats)) {
        [&device.stats, &self.stats, &stats::PROCESS].into_iter().for_each(count);
    }
}

/// Whether blocks of this place are left out: `l2arc_exclude_special`.
fn is_excluded(bp: &Blkptr, vdevs: &VdevTree) -> bool {
    if crate::tunables::L2ARC_EXCLUDE_SPECIAL.get() == 0 {
        return false;
    }
    let top = bp.dva(0).and_then(|dva| vdevs.top(dva.vdev.get()));
    top.is_some_and(|top| matches!(top.class(), Class::Special | Class::Dedup))
}

/// The pool as cache devices know it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Owner {
    /// Its guid, which is in the headers of its devices.
    pub guid: Guid,
    /// Its number in the ARC.
    pub cache_id: u32,
    /// The last committed group.
    pub committed: u64,
    /// Seconds since 1970.
    pub now_secs: u64,
}
