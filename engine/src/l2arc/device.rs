//! One cache device: its transfers, its latency, and its counters.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use codec::checksum::{seal_label, verify_label};
use device::{Device, IgnorePoison, IoBuf, IoError, SharedBuf};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use ondisk::l2arc::DeviceHeader;
use ondisk::{ByteOrder, Guid};

use super::ring::header_bytes;
use super::stats::L2arcStats;
use crate::tunables;
use crate::vdev::slot::Slot;
use crate::vdev::stats::{Queue, Transfer};
use crate::vdev::{Kind, LABEL_START_BYTES, Lasting, Vdev};

/// Reads in progress on a cache device, at most: further ones go to the pool.
const MAX_READS: u32 = 64;
/// Bytes of one transfer when a device is fed.
const TRANSFER_BYTES: usize = 1 << 20;
/// Buffers of one transfer, at most.
const MAX_PARTS: usize = 512;
/// Transfers in progress when a device is fed.
const TRANSFERS: usize = 4;

/// Reads after which an average counts.
const FEW_READS: u32 = 32;
/// Before as many reads of the pool are known, it gets one in so many of those that a device could answer, if
/// the device is slow at all.
const POOL_EVERY: u32 = 8;
/// Afterwards a slow device leaves one in so many of its reads to the pool, times how much longer those of the
/// pool took: what is known of the pool stays true, and that costs a sixteenth of the time of all reads at most.
const POOL_AGAIN: u64 = 16;
/// A single read counts as so many times the average at most: one that was held up says little of the next.
const OUTLIER: u64 = 8;
/// Reads of a bypassed device between two feedings, to find out whether it became faster.
const PROBES: usize = 8;
/// No further one begins after this time.
const PROBES_TIME: Duration = Duration::from_millis(50);
/// A difference that does not matter.
const SAME_NS: u64 = 200_000;

/// The running average of the duration of reads.
#[derive(Debug, Default)]
pub(crate) struct Latency {
    average_ns: AtomicU64,
    reads: AtomicU32,
}

impl Latency {
    /// Notes a read.
    pub(crate) fn note(&self, duration: Duration) {
        let ns = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        let before = self.average_ns.load(Ordering::Relaxed);
        let reads = self.reads.load(Ordering::Relaxed);
        // Lost updates do not matter.
        let next = match reads {
            0 => ns,
            1..FEW_READS => before - before / 16 + ns / 16,
            _ => before - before / 16 + ns.min(before.max(1000).saturating_mul(OUTLIER)) / 16,
        };
        self.average_ns.store(next, Ordering::Relaxed);
        self.reads.store(reads.saturating_add(1), Ordering::Relaxed);
    }

    fn is_known(&self) -> bool {
        self.reads.load(Ordering::Relaxed) >= FEW_READS
    }

    fn average_ns(&self) -> u64 {
        self.average_ns.load(Ordering::Relaxed)
    }

    /// Whether reads take clearly longer than those of `other`.
    pub(crate) fn is_slower_than(&self, other: &Self) -> bool {
        let others = other.average_ns();
        self.is_known() && other.is_known() && self.average_ns() > others + others / 4 + SAME_NS
    }
}

/// A cache device that is in use.
#[derive(Debug)]
pub(crate) struct CacheDevice {
    /// Its number in the index.
    pub number: u8,
    /// Its guid.
    pub guid: Guid,
    /// Its name.
    pub name: String,
    /// Its sector size as a power of two.
    pub ashift: u32,
    slot: Slot,
    lasting: Arc<Lasting>,
    /// It left the pool, or cannot be used: nothing is added to the index for it.
    is_gone: AtomicBool,
    /// Its reads.
    pub reads: Latency,
    /// Reads that could have asked the pool, to find out whether it is faster.
    compared: AtomicU32,
    /// Addresses and lengths of blocks that were read from the pool instead, for the next probes.
    bypassed: Mutex<Vec<(u64, usize)>>,
    reading: AtomicU32,
    is_written: AtomicBool,
    /// What happened on it.
    pub stats: L2arcStats,
}

/// A read of a cache device that is in progress.
#[derive(Debug)]
pub(crate) struct Reading<'a>(&'a AtomicU32);

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl CacheDevice {
    /// The device of a leaf, if it has one that works.
    pub(crate) fn of(vdev: &Vdev, number: u8) -> Option<Self> {
        let Kind::Leaf(slot) = &vdev.kind else { return None };
        let device = slot.device().filter(|_| vdev.status().is_readable())?;
        let own = device.sector_sizes().logical_bytes.max(512).trailing_zeros();
        Some(Self {
            number,
            guid: vdev.guid,
            name: vdev.name.clone(),
            ashift: vdev.ashift.clamp(9, 16).max(own),
            slot: slot.clone(),
            lasting: Arc::clone(vdev.lasting()),
            is_gone: AtomicBool::new(false),
            reads: Latency::default(),
            compared: AtomicU32::new(0),
            bypassed: Mutex::default(),
            reading: AtomicU32::new(0),
            is_written: AtomicBool::new(false),
            stats: L2arcStats::default(),
        })
    }

    /// Whether it can be read and written.
    pub(crate) fn is_usable(&self) -> bool {
        !self.is_gone.load(Ordering::Acquire) && self.lasting.is_usable()
    }

    /// Nothing is read from it or added to the index for it from now on. True the first time.
    pub(crate) fn leave(&self) -> bool {
        let is_first = !self.is_gone.swap(true, Ordering::AcqRel);
        if is_first {
            self.lasting.cache_space.set(0, 0);
        }
        is_first
    }

    /// Whether it left.
    pub(crate) fn has_left(&self) -> bool {
        self.is_gone.load(Ordering::Acquire)
    }

    /// The size of its ring, as `zpool list` shows it.
    pub(crate) fn show_size(&self, bytes: u64) {
        self.lasting.cache_space.set(bytes, 0);
    }

    /// More of it is used.
    pub(crate) fn show_used(&self, bytes: u64) {
        self.lasting.cache_space.add(bytes);
    }

    /// Less of it is used.
    pub(crate) fn show_dropped(&self, bytes: u64) {
        self.lasting.cache_space.sub(bytes);
    }

    /// The bytes of a block of `psize` bytes with padding.
    pub(crate) fn asize(&self, psize: u64) -> u64 {
        psize.next_multiple_of(1 << self.ashift)
    }

    /// The device itself.
    pub(crate) fn device(&self) -> Option<Arc<dyn Device>> {
        self.slot.device()
    }

    /// A feed begins or ends.
    pub(crate) fn set_written(&self, is_written: bool) {
        self.is_written.store(is_written, Ordering::Relaxed);
    }

    /// Whether it is written at the moment, and must not be read meanwhile (`l2arc_norw`).
    pub(crate) fn is_kept_for_writes(&self) -> bool {
        tunables::L2ARC_NORW.is_on() && self.is_written.load(Ordering::Relaxed)
    }

    /// The beginning of a read of so many bytes; absent when the device is slower than the pool, or too busy.
    pub(crate) fn begin_read(&self, pool: &Latency, address: u64, bytes: usize) -> Option<Reading<'_>> {
        if tunables::L2ARC_BYPASS_SLOW.is_on() && self.is_bypassed(pool, address, bytes) {
            return None;
        }
        let reading = self.reading.fetch_add(1, Ordering::Relaxed);
        let guard = Reading(&self.reading);
        (reading < MAX_READS).then_some(guard)
    }

    /// Whether the pool is to be read instead, because it is faster, or to find out whether it is.
    fn is_bypassed(&self, pool: &Latency, address: u64, bytes: usize) -> bool {
        if self.reads.is_slower_than(pool) {
            // A read that finds the list locked or full is as good as the others.
            if let Ok(mut bypassed) = self.bypassed.try_lock()
                && bypassed.len() < PROBES
            {
                bypassed.push((address, bytes));
            }
            return true;
        }
        let average_ns = self.reads.average_ns();
        if !self.reads.is_known() || average_ns <= SAME_NS {
            return false;
        }
        let every = match pool.is_known() {
            false => POOL_EVERY,
            true => {
                let every = POOL_AGAIN.saturating_mul(pool.average_ns() / average_ns + 1);
                u32::try_from(every).unwrap_or(u32::MAX)
            }
        };
        self.compared.fetch_add(1, Ordering::Relaxed).is_multiple_of(every)
    }

    /// Reads a few of the blocks that were read from the pool instead, to find out whether the device became
    /// faster. No reader waits for these.
    pub(crate) async fn probe(&self) {
        let bypassed = std::mem::take(&mut *self.bypassed.lock().ignore_poison());
        let began = Instant::now();
        for (address, bytes) in bypassed {
            if !self.is_usable() || began.elapsed() > PROBES_TIME || self.read(address, bytes).await.is_err()
            {
                break;
            }
        }
    }

    /// Reads bytes, and counts that.
    pub(crate) async fn read(&self, address: u64, bytes: usize) -> Result<IoBuf, IoError> {
        let device = self.device().ok_or_else(|| self.missing())?;
        let _under_way = self.lasting.stats.begin(Queue::SyncRead);
        let started = Instant::now();
        let read = device.read(address, bytes).await;
        match &read {
            Ok(_) => self.lasting.stats.count(Transfer::Read, bytes as u64, started),
            Err(_) => self.lasting.errors.count_read(true),
        }
        self.reads.note(started.elapsed());
        read
    }

    /// Writes buffers one after the other. All of them are written, or the error is returned.
    pub(crate) async fn write(&self, address: u64, parts: Vec<SharedBuf>) -> Result<(), IoError> {
        let device = self.device().ok_or_else(|| self.missing())?;
        let mut transfers = Vec::new();
        let (mut at, mut next, mut bytes) = (address, Vec::new(), 0);
        for part in parts {
            bytes += part.len();
            next.push(part);
            if bytes >= TRANSFER_BYTES || next.len() >= MAX_PARTS {
                transfers.push((at, bytes, std::mem::take(&mut next)));
                at += bytes as u64;
                bytes = 0;
            }
        }
        if !next.is_empty() {
            transfers.push((at, bytes, next));
        }
        let one = |(at, bytes, parts): (u64, usize, Vec<SharedBuf>)| {
            let device = Arc::clone(&device);
            async move {
                let _under_way = self.lasting.stats.begin(Queue::AsyncWrite);
                let started = Instant::now();
                device.write_gather(at, parts).await?;
                self.lasting.stats.count(Transfer::Write, bytes as u64, started);
                Ok::<_, IoError>(())
            }
        };
        let mut waiting = transfers.into_iter();
        let mut running: FuturesUnordered<_> = waiting.by_ref().take(TRANSFERS).map(one).collect();
        let mut result = Ok(());
        while let Some(ended) = running.next().await {
            if ended.is_err() {
                self.lasting.errors.count_write(true);
                result = ended;
            } else if result.is_ok() {
                running.extend(waiting.next().map(one));
            }
        }
        result
    }

    /// Makes all that was written durable.
    pub(crate) async fn flush(&self) -> Result<(), IoError> {
        let device = self.device().ok_or_else(|| self.missing())?;
        let started = Instant::now();
        device.flush().await.inspect_err(|_| self.lasting.errors.count_write(true))?;
        self.lasting.stats.count(Transfer::Flush, 0, started);
        Ok(())
    }

    /// Tells the device that a part of it holds nothing. Returns the bytes that it took.
    pub(crate) async fn trim(&self, from: u64, to: u64) -> u64 {
        let Some(device) = self.device().filter(|_| to > from) else { return 0 };
        if self.lasting.cannot_discard.load(Ordering::Relaxed) {
            return 0;
        }
        let _under_way = self.lasting.stats.begin(Queue::Trim);
        let started = Instant::now();
        match device.discard(from, to - from).await {
            Ok(()) => {
                self.lasting.stats.count(Transfer::Discard, to - from, started);
                self.stats.l2_trim_bytes.add(to - from);
                to - from
            }
            Err(error) => {
                tracing::debug!(device = self.name, %error, "a cache device is not trimmed");
                self.lasting.cannot_discard.store(true, Ordering::Relaxed);
                0
            }
        }
    }

    /// The header; `None` where there is none, or not a whole one.
    pub(crate) async fn read_header(&self) -> Result<Option<DeviceHeader>, IoError> {
        let sector = self.read(LABEL_START_BYTES, header_bytes(self.ashift)).await?;
        let is_whole = verify_label(&sector, LABEL_START_BYTES).is_ok();
        let header = DeviceHeader::parse_sector(&sector).ok().filter(|_| is_whole);
        Ok(header.map(|(header, _)| header))
    }

    /// Writes the header.
    pub(crate) async fn write_header(&self, header: &DeviceHeader) -> Result<(), IoError> {
        let mut sector = header.encode_sector(header_bytes(self.ashift), ByteOrder::Little);
        if seal_label(&mut sector, LABEL_START_BYTES, ByteOrder::Little).is_err() {
            return Err(self.missing());
        }
        self.write(LABEL_START_BYTES, vec![SharedBuf::from(IoBuf::from(sector.as_slice()))]).await
    }

    fn missing(&self) -> IoError {
        IoError::new(std::path::Path::new(&self.name), device::Operation::Read, 0, 0, device::Cause::Missing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_bypassed_only_when_it_is_clearly_slower_than_the_pool() {
        let (device, pool) = (Latency::default(), Latency::default());
        for _ in 0..FEW_READS - 1 {
            device.note(Duration::from_millis(50));
            pool.note(Duration::from_millis(5));
        }
        assert!(!device.is_slower_than(&pool), "too few reads");
        device.note(Duration::from_millis(50));
        pool.note(Duration::from_millis(5));
        assert!(device.is_slower_than(&pool) && !pool.is_slower_than(&device));
        for _ in 0..200 {
            device.note(Duration::from_micros(100));
        }
        assert!(!device.is_slower_than(&pool), "it became faster");
    }

    #[test]
    fn a_read_that_was_held_up_says_little_of_the_next() {
        let (device, pool) = (Latency::default(), Latency::default());
        for _ in 0..2 * FEW_READS {
            device.note(Duration::from_millis(4));
            pool.note(Duration::from_micros(100));
        }
        pool.note(Duration::from_secs(1));
        assert!(device.is_slower_than(&pool), "one read of the pool was held up");
        for _ in 0..16 {
            pool.note(Duration::from_millis(10));
        }
        assert!(!device.is_slower_than(&pool), "the pool is slow now");
    }
}
