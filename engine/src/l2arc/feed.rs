//! Feeding: from the ARC to a cache device.
//!
//! A feed goes to one device, the next one in turn. It takes blocks from the ARC (metadata first, those at
//! the old end of the lists first, and of these no more than will be evicted soon), gives up as much of the
//! ring as they need, and writes them in one run, with log blocks between them. The blocks are in the index
//! when they are written, not before. A write that fails leaves the ring as it was: the next feed writes to
//! the same place.
//!
//! OpenZFS gives up as much as a feed may write at most, whatever it then writes. On a small device that
//! would be a quarter which always holds nothing.
//!
//! What a feed may write is `l2arc_write_max`, and as long as the ARC was never full `l2arc_write_boost`
//! more. There is a feed every `l2arc_feed_secs`; after one that wrote more than half of what it might the
//! next one follows sooner (`l2arc_feed_again`, `l2arc_feed_min_ms`), but not before the time in which a
//! device may be written so much. In OpenZFS the limit is that of one feed, of which there are five a second.
//!
//! Before a feed, devices that are too slow for readers are probed ([`CacheDevice::probe`]).
//!
//! When the pool is closed, the entries of the open log block are written too: the rest of that log block
//! repeats the first of them, because a log block always has the same number of entries.
//!
//! Source of the facts: OpenZFS 2.4 `arc.c` (`l2arc_write_size`, `l2arc_write_interval`,
//! `l2arc_write_buffers`, `l2arc_log_blk_commit`, `l2arc_feed_thread`).

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ::device::{IoBuf, SharedBuf};
use codec::checksum::compute;
use codec::compress::compress;
use ondisk::blkptr::{ChecksumType, CompressType};
use ondisk::l2arc::{EntryProperties, LOG_BLOCK_BYTES, LogBlock, LogEntry, LogPointer, TRIM_COMPLETE};
use ondisk::{ByteOrder, Lsize, Psize, Txg};

use super::device::CacheDevice;
use super::index::{BlockKey, Cached};
use super::ring::Ring;
use super::{L2arc, Owner};
use crate::cache::arc::Key;
use crate::cache::{ArcCache, Candidate, Feedable, Selection};
use crate::tunables;
use crate::vdev::VdevTree;

/// The least part of the ARC that is looked at: one in so many.
const LEAST_HEADROOM: u64 = 32;
/// The least that is trimmed ahead.
const MIN_TRIM_BYTES: u64 = 64 << 20;
/// The whole device is trimmed in steps of this size.
const TRIM_STEP_BYTES: u64 = 1 << 30;

/// The devices that are fed, and whose turn it is.
#[derive(Debug, Default)]
pub(crate) struct Feeder {
    pub(super) fed: Vec<Fed>,
    last: usize,
    evictions: Evictions,
}

/// How fast the ARC evicts blocks.
#[derive(Debug, Default)]
struct Evictions {
    /// When this was looked at last, and the bytes that were evicted until then.
    last: Option<(Instant, u64)>,
}

impl Evictions {
    /// Bytes at the old end of the lists that are looked at: twice what is evicted until the next feed.
    /// Blocks that stay in the ARC for longer would only be on the device twice.
    fn soon(&mut self, now: Instant, evicted: u64, budget_bytes: u64) -> u64 {
        let before = self.last.replace((now, evicted));
        let rate = before.map_or(0.0, |(then, before)| {
            let seconds = now.saturating_duration_since(then).as_secs_f64().max(0.001);
            evicted.saturating_sub(before) as f64 / seconds
        });
        let pause = tunables::L2ARC_FEED_SECS.get() as f64;
        ((2.0 * rate * pause) as u64).max(budget_bytes / LEAST_HEADROOM)
    }
}

/// A device that is fed.
#[derive(Debug)]
pub(super) struct Fed {
    pub device: Arc<CacheDevice>,
    pub ring: Ring,
}

/// What one feed may write.
#[derive(Debug, Clone, Copy)]
struct Quota {
    /// Bytes of blocks.
    payload: u64,
    /// Bytes of blocks and log blocks.
    total: u64,
    /// Bytes that are given up beyond those, so that they are trimmed before they are written.
    ahead: u64,
    /// The most bytes that are given up.
    most: u64,
}

/// A block that is being written.
struct Sent {
    key: BlockKey,
    cached: Cached,
    arc_key: Key,
}

impl L2arc {
    /// Looks for devices that came or went, and feeds the next one. Returns the time until the next feed.
    pub(crate) async fn feed(&self, vdevs: &VdevTree, cache: &ArcCache, owner: &Owner) -> Duration {
        let mut feeder = self.feeder.lock().await;
        self.take_up(&mut feeder, vdevs, cache, owner, true).await;
        let pause = Duration::from_secs(tunables::L2ARC_FEED_SECS.get());
        for fed in &feeder.fed {
            fed.device.probe().await;
        }
        feeder.last = feeder.last.wrapping_add(1);
        let devices = feeder.fed.len();
        let turn = feeder.last.checked_rem(feeder.fed.len()).unwrap_or(0);
        let soon = feeder.evictions.soon(Instant::now(), cache.evicted_bytes(), cache.budget_bytes());
        let Some(fed) = feeder.fed.get_mut(turn) else { return pause };
        self.account(cache);
        if self.is_short_of_memory(cache) {
            self.both(&fed.device, |stats| stats.l2_abort_lowmem.add(1));
            return pause;
        }
        self.both(&fed.device, |stats| stats.l2_feeds.add(1));
        let rate = bytes_per_second(cache);
        let mut quota = fed.quota(rate);
        let blocks = self.select(cache, owner, quota.payload, soon);
        quota.total = quota.total.min(fed.needed_bytes(&blocks));
        let evict = fed.ring.evict;
        self.make_room(fed, quota.total.saturating_add(quota.ahead).min(quota.most)).await;
        let wrote = self.write(fed, cache, blocks, quota, owner).await;
        if wrote == 0 && fed.ring.evict != evict {
            self.write_header(fed, owner).await;
        }
        self.account(cache);
        if tunables::L2ARC_FEED_AGAIN.get() == 0 || wrote <= quota.payload / 2 {
            return pause;
        }
        // The next feed is of the next device.
        let taken = Duration::from_secs_f64(wrote as f64 / rate as f64 / devices.max(1) as f64);
        pause.min(taken.max(Duration::from_millis(tunables::L2ARC_FEED_MIN_MS.get())))
    }

    /// Whether the index has the part of the ARC's budget that it may have (`l2arc_meta_percent`).
    pub(super) fn is_short_of_memory(&self, cache: &ArcCache) -> bool {
        let share = cache.budget_bytes() / 100 * tunables::L2ARC_META_PERCENT.get();
        self.index.memory_bytes() as u64 > share
    }

    /// Lowers the ARC's budget by the memory of the index.
    pub(super) fn account(&self, cache: &ArcCache) {
        let now = match self.is_active() {
            true => self.index.memory_bytes() as u64,
            false => 0,
        };
        let before = self.accounted_bytes.swap(now, std::sync::atomic::Ordering::Relaxed);
        cache.account_index(before, now);
    }

    /// Writes the open log blocks and the headers of all devices. Nothing is fed afterwards.
    pub(crate) async fn finish(&self, cache: &ArcCache, owner: &Owner) {
        let mut feeder = self.feeder.lock().await;
        for fed in &mut feeder.fed {
            if fed.device.is_usable() {
                self.finish_device(fed, owner).await;
            }
            self.leave(&fed.device);
        }
        feeder.fed.clear();
        self.give_up_absent(|_| true);
        self.account(cache);
    }

    async fn finish_device(&self, fed: &mut Fed, owner: &Owner) {
        if let Some(first) = fed.ring.open.first().copied() {
            let room = fed.ring.make_room(LOG_BLOCK_BYTES as u64);
            self.note_given_up(fed, &room);
            fed.ring.open.resize(fed.ring.log_entries, first);
            let saved = fed.ring.save();
            let (address, log) = (fed.ring.hand, fed.device.log_block(&mut fed.ring));
            match fed.device.write(address, vec![log]).await {
                Ok(()) => self.note_log_block(fed),
                Err(_) => fed.ring.restore(saved),
            }
        }
        self.write_header(fed, owner).await;
        let _ = fed.device.flush().await;
    }

    /// Gives up what lies ahead of the hand, and trims it.
    async fn make_room(&self, fed: &mut Fed, distance: u64) {
        let given_up = fed.ring.make_room(distance);
        self.note_given_up(fed, &given_up);
        if tunables::L2ARC_TRIM_AHEAD.get() > 0 {
            for part in &given_up {
                let trimmed = fed.device.trim(part.fresh.start, part.fresh.end).await;
                self.stats.l2_trim_bytes.add(trimmed);
            }
        }
    }

    fn note_given_up(&self, fed: &Fed, given_up: &[super::ring::GivenUp]) {
        for part in given_up {
            let dropped = self.index.evict(fed.device.number, fed.device.ashift, part.blocks.clone());
            self.note_dropped(&fed.device, &dropped);
        }
        self.note_logs(fed);
    }

    /// The sums over log blocks become those of the ring.
    pub(super) fn note_logs(&self, fed: &Fed) {
        if fed.device.has_left() {
            return;
        }
        let own = &fed.device.stats;
        let (count, bytes) = (fed.ring.logs.len() as u64, fed.ring.log_bytes);
        let (count_before, bytes_before) = (own.l2_log_blk_count.get(), own.l2_log_blk_asize.get());
        self.both(&fed.device, |stats| {
            stats.l2_log_blk_count.add(count.wrapping_sub(count_before));
            stats.l2_log_blk_asize.add(bytes.wrapping_sub(bytes_before));
        });
        fed.device.show_used(bytes.saturating_sub(bytes_before));
        fed.device.show_dropped(bytes_before.saturating_sub(bytes));
    }

    /// A log block was written.
    fn note_log_block(&self, fed: &Fed) {
        self.note_logs(fed);
        let Some(log) = fed.ring.logs.front() else { return };
        self.both(&fed.device, |stats| {
            stats.l2_log_blk_writes.add(1);
            stats.l2_write_bytes.add(log.asize());
            stats.l2_log_blk_avg_asize.average(log.asize());
            stats.l2_data_to_meta_ratio.average(log.payload_bytes / log.asize().max(1));
        });
    }

    /// Blocks of the ARC that no device has, of about `bytes` bytes. `soon` bytes will be evicted soon.
    fn select(&self, cache: &ArcCache, owner: &Owner, bytes: u64, soon: u64) -> Vec<Feedable> {
        let most = bytes
            .saturating_mul(tunables::L2ARC_HEADROOM.get())
            .saturating_mul(tunables::L2ARC_HEADROOM_BOOST.get().max(100))
            / 100;
        let only_frequent = tunables::L2ARC_MFUONLY.get();
        let mut blocks: Vec<Feedable> = Vec::new();
        let mut known = HashSet::new();
        let mut taken = 0;
        let is_warm = cache.is_warm();
        // Where much waits with physical bytes, those at the other end are taken too, or they were kept in
        // vain.
        for is_second in [false, true] {
            let headroom_bytes = if is_warm && !is_second { most.min(soon) } else { most };
            for metadata in [true, false] {
                let selection = Selection {
                    pool: owner.cache_id,
                    metadata,
                    only_frequent: only_frequent == 1 || (only_frequent > 1 && !metadata),
                    only_physical: is_warm && is_second,
                    newest_first: is_warm == is_second,
                    newest_birth: owner.committed,
                    headroom_bytes,
                };
                let mut found = Vec::new();
                cache.feedable(&selection, bytes.saturating_sub(taken), &mut found);
                for block in found {
                    let key = BlockKey::at(&block.candidate.dva, block.candidate.birth);
                    if self.index.get(&key).is_some() {
                        cache.fed(&block.key);
                    } else if known.insert(key) {
                        taken += block.candidate.psize;
                        blocks.push(block);
                    }
                }
            }
        }
        // Neighbours in the pool become neighbours on the device.
        blocks.sort_by_key(|block| {
            let Candidate { dva, birth, is_metadata, .. } = &block.candidate;
            (!is_metadata, dva.vdev.get(), dva.offset.get(), *birth)
        });
        blocks
    }

    /// Writes blocks and their log blocks. Returns the bytes written, which are 0 when the write fails.
    async fn write(
        &self,
        fed: &mut Fed,
        cache: &ArcCache,
        blocks: Vec<Feedable>,
        quota: Quota,
        owner: &Owner,
    ) -> u64 {
        let saved = fed.ring.save();
        let address = fed.ring.hand;
        let (mut parts, mut sent, mut payload, mut logs) = (Vec::new(), Vec::new(), 0, 0);
        for block in blocks {
            let asize = fed.device.asize(block.candidate.psize);
            let total = fed.ring.hand - address + asize + LOG_BLOCK_BYTES as u64;
            if payload + asize > quota.payload.max(asize) || total > quota.total {
                continue;
            }
            if let Some(part) = self.note(fed, &block, asize, &mut parts, &mut sent) {
                parts.push(part);
                logs += 1;
            }
            payload += asize;
        }
        if sent.is_empty() {
            return 0;
        }
        self.both(&fed.device, |stats| stats.l2_writes_sent.add(1));
        fed.device.set_written(true);
        let written = fed.device.write(address, parts).await;
        fed.device.set_written(false);
        self.both(&fed.device, |stats| stats.l2_writes_done.add(1));
        if let Err(error) = written {
            tracing::debug!(device = fed.device.name, %error, "a cache device cannot be written");
            self.both(&fed.device, |stats| stats.l2_writes_error.add(1));
            fed.ring.restore(saved);
            return 0;
        }
        let wrote = fed.ring.hand - address;
        for block in sent {
            self.both(&fed.device, |stats| stats.l2_write_bytes.add(block.cached.psize));
            self.add(fed, &block);
            cache.fed(&block.arc_key);
        }
        for _ in 0..logs {
            self.note_log_block(fed);
        }
        if logs > 0 && fed.device.flush().await.is_err() {
            return wrote;
        }
        self.write_header(fed, owner).await;
        wrote
    }

    /// Notes a block that will be written to the hand. Returns a log block that must follow it.
    fn note(
        &self,
        fed: &mut Fed,
        block: &Feedable,
        asize: u64,
        parts: &mut Vec<SharedBuf>,
        sent: &mut Vec<Sent>,
    ) -> Option<SharedBuf> {
        let candidate = &block.candidate;
        let cached = Cached {
            device: fed.device.number,
            address: fed.ring.hand,
            psize: candidate.psize,
            lsize: candidate.lsize,
            is_metadata: candidate.is_metadata,
            frequent: block.frequent,
        };
        let entry = entry_of(candidate, &cached)?;
        parts.push(match candidate.psize == asize {
            true => block.bytes.to_shared(),
            false => {
                self.both(&fed.device, |stats| stats.l2_free_on_write.add(1));
                padded(&block.bytes, asize)
            }
        });
        sent.push(Sent { key: BlockKey::at(&candidate.dva, candidate.birth), cached, arc_key: block.key });
        fed.ring.note(entry, asize).then(|| fed.device.log_block(&mut fed.ring))
    }

    fn add(&self, fed: &Fed, block: &Sent) {
        if !fed.device.is_usable() {
            return;
        }
        let (old, is_added) = self.index.add_newest(&block.key, &block.cached);
        if let Some(old) = old
            && let Some(device) = self.device(old.device)
        {
            self.note_removed(&device, &old);
        }
        if is_added {
            self.note_added(&fed.device, &block.cached);
        }
        if fed.device.has_left() {
            self.drop_block(&block.key, &block.cached, &fed.device);
        }
    }

    pub(super) async fn write_header(&self, fed: &Fed, owner: &Owner) {
        let header = fed.ring.header(owner.guid, fed.device.guid);
        if let Err(error) = fed.device.write_header(&header).await {
            tracing::debug!(device = fed.device.name, %error, "the header of a cache device is not written");
        }
    }

    /// Trims a device that holds nothing, as far as it can be trimmed.
    pub(super) async fn trim_all(&self, fed: &mut Fed, owner: &Owner) {
        let (mut at, end) = (fed.ring.start, fed.ring.end);
        while at < end && !self.is_stopped() {
            let next = end.min(at + TRIM_STEP_BYTES);
            let trimmed = fed.device.trim(at, next).await;
            self.stats.l2_trim_bytes.add(trimmed);
            if trimmed == 0 {
                break;
            }
            at = next;
        }
        fed.ring.trimmed = (owner.now_secs, if at == end { TRIM_COMPLETE } else { 0 });
    }
}

impl Fed {
    /// What one feed may write, if a second may write so many bytes.
    fn quota(&self, bytes_per_second: u64) -> Quota {
        let quarter = whole_sectors((self.ring.end - self.ring.start) / 4, self.device.ashift);
        let payload = bytes_per_second.min(quarter);
        let log_blocks = match self.ring.log_entries as u64 {
            0 => 0,
            entries => (payload >> self.device.ashift).div_ceil(entries),
        };
        let total = payload.saturating_add(log_blocks * LOG_BLOCK_BYTES as u64).min(quarter);
        let ahead = match tunables::L2ARC_TRIM_AHEAD.get() {
            0 => 0,
            percent => (total.saturating_mul(percent) / 100).max(MIN_TRIM_BYTES),
        };
        Quota { payload, total, ahead, most: quarter }
    }

    /// The bytes that these blocks take, with their log blocks; the last one may not be full.
    fn needed_bytes(&self, blocks: &[Feedable]) -> u64 {
        let payload: u64 = blocks.iter().map(|block| self.device.asize(block.candidate.psize)).sum();
        let entries = self.ring.open.len() + blocks.len();
        let logs = entries.checked_div(self.ring.log_entries).unwrap_or(0) as u64 + 1;
        if blocks.is_empty() { 0 } else { payload + logs * LOG_BLOCK_BYTES as u64 }
    }
}

impl CacheDevice {
    /// The bytes of the log block of the ring's open entries. It goes to the hand.
    fn log_block(&self, ring: &mut Ring) -> SharedBuf {
        let previous = ring.logs.get(1).copied().unwrap_or_default();
        let block = LogBlock { previous, entries: std::mem::take(&mut ring.open) };
        let bytes = block.encode(ByteOrder::Little);
        ring.open = block.entries;
        let mut buffer = IoBuf::zeroed(LOG_BLOCK_BYTES);
        let most = LOG_BLOCK_BYTES - (1 << self.ashift);
        let compressed = buffer.get_mut(..most).and_then(|into| compress(CompressType::Lz4, 0, &bytes, into));
        let ty = match compressed.filter(|length| *length > 0) {
            Some(length) => {
                let asize = self.asize(length as u64) as usize;
                if let Some(rest) = buffer.get_mut(length..asize) {
                    rest.fill(0);
                }
                buffer.truncate(asize);
                CompressType::Lz4
            }
            None => {
                buffer = IoBuf::from(bytes.as_slice());
                CompressType::Off
            }
        };
        let checksum = compute(ChecksumType::Fletcher4, &buffer, ByteOrder::Little, None).unwrap_or_default();
        ring.note_log(LogPointer::new(ring.hand, ring.payload(), buffer.len(), ty, checksum));
        buffer.into()
    }
}

/// What a device may be written in a second.
fn bytes_per_second(cache: &ArcCache) -> u64 {
    let boost = if cache.is_warm() { 0 } else { tunables::L2ARC_WRITE_BOOST.get() };
    tunables::L2ARC_WRITE_MAX.get().saturating_add(boost).max(1)
}

/// As much of it as is whole sectors.
fn whole_sectors(bytes: u64, ashift: u32) -> u64 {
    bytes >> ashift << ashift
}

fn entry_of(candidate: &Candidate, cached: &Cached) -> Option<LogEntry> {
    let properties = EntryProperties {
        lsize: Lsize(candidate.lsize),
        psize: Psize(candidate.psize),
        compress: candidate.compress,
        prefetch: false,
        is_metadata: candidate.is_metadata,
        protected: candidate.is_protected,
        frequent: cached.frequent,
    };
    Some(LogEntry {
        dva: candidate.dva.to_words().ok()?,
        birth: Txg(candidate.birth),
        prop: properties.to_word(),
        address: cached.address,
        level: 0,
    })
}

fn padded(bytes: &[u8], asize: u64) -> SharedBuf {
    let mut buffer = IoBuf::zeroed(usize::try_from(asize).unwrap_or(bytes.len()));
    if let Some(into) = buffer.get_mut(..bytes.len()) {
        into.copy_from_slice(bytes);
    }
    buffer.into()
}
