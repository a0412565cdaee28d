//! The device that a guest sees: its features, its configuration, and what is known of its writes.
//!
//! # Configuration
//! | offset | size | name | content here |
//! |---|---|---|---|
//! | 0 | 8 | capacity | sectors of 512 bytes |
//! | 12 | 4 | seg_max | [`MOST_SEGMENTS`] |
//! | 20 | 4 | blk_size | 512 |
//! | 24 | 1 | physical_block_exp | blocks of the volume, but no larger than a page |
//! | 26 | 2 | min_io_size | blocks of the volume, in blk_size |
//! | 28 | 4 | opt_io_size | the same |
//! | 32 | 1 | writeback | 1: writes are stable after a flush; 0: when they are answered |
//! | 34 | 2 | num_queues | |
//! | 36 | 4 | max_discard_sectors | |
//! | 40 | 4 | max_discard_seg | |
//! | 44 | 4 | discard_sector_alignment | a block of the volume |
//! | 48 | 4 | max_write_zeroes_sectors | |
//! | 52 | 4 | max_write_zeroes_seg | |
//! | 56 | 1 | write_zeroes_may_unmap | 1 |
//!
//! Source of the facts: Virtual I/O Device (VIRTIO) Version 1.2, 5.2.4.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use device::IgnorePoison;

use super::inflight::Inflight;
use super::request::{MOST_RANGES, SECTOR_BYTES, Status};
use crate::block::{Export, ExportError, FailureKind, Stability};

/// Queues that a client may use.
pub(super) const MOST_QUEUES: u16 = 32;
/// Descriptors of data of one request: what fits a ring of 128.
const MOST_SEGMENTS: u32 = 126;
/// Sectors of one range to discard or zero: 2 GiB.
const MOST_RANGE_SECTORS: u32 = 1 << 22;
/// Guests' filesystems take blocks of a disk for sectors that cannot be larger than a page.
const MOST_PHYSICAL_BYTES: u32 = 4096;

const CONFIG_BYTES: usize = 60;
/// Where the byte is that guests may change.
pub(super) const WRITEBACK_AT: u32 = 32;

const SEG_MAX: u64 = 1 << 2;
const READ_ONLY: u64 = 1 << 5;
const BLK_SIZE: u64 = 1 << 6;
const FLUSH: u64 = 1 << 9;
const TOPOLOGY: u64 = 1 << 10;
const CONFIG_WCE: u64 = 1 << 11;
const MULTIPLE_QUEUES: u64 = 1 << 12;
const DISCARD: u64 = 1 << 13;
const WRITE_ZEROES: u64 = 1 << 14;
const INDIRECT: u64 = 1 << 28;
pub(super) const EVENT_INDEX: u64 = 1 << 29;
pub(super) const PROTOCOL_FEATURES: u64 = 1 << 30;
const VERSION_1: u64 = 1 << 32;

/// A device, as one client has it.
#[derive(Debug)]
pub(super) struct Disk<E> {
    export: Arc<E>,
    name: String,
    writes_through: AtomicBool,
    /// The export does not answer any more.
    is_gone: AtomicBool,
    /// Writes that the guest was told of are gone.
    has_lost_writes: AtomicBool,
    /// Where writes are noted, once the client gave a file for that.
    marks: Mutex<Option<Arc<Inflight>>>,
}

/// What a write was promised when it began.
#[derive(Debug, Clone, Copy)]
pub(super) struct Promise {
    /// The export is asked to make it stable before it is answered.
    pub is_asked: bool,
    /// It does what it is asked.
    is_kept: bool,
}

impl<E: Export> Disk<E> {
    /// The device of an export.
    pub fn new(export: Arc<E>) -> Self {
        let name = format!("{:016x}", export.guid());
        Self {
            export,
            name,
            writes_through: AtomicBool::new(false),
            is_gone: AtomicBool::new(false),
            has_lost_writes: AtomicBool::new(false),
            marks: Mutex::default(),
        }
    }

    /// What it reads and writes.
    pub fn export(&self) -> &E {
        &self.export
    }

    /// Its size; 0 once the volume was taken away, which no volume has.
    pub fn size_bytes(&self) -> u64 {
        let size_bytes = self.export.size_bytes();
        if size_bytes == 0 {
            self.is_gone.store(true, Ordering::Release);
        }
        size_bytes
    }

    /// A name that stays the same.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The features that it offers.
    pub fn features(&self) -> u64 {
        let common = SEG_MAX | BLK_SIZE | TOPOLOGY | MULTIPLE_QUEUES;
        let ring = INDIRECT | EVENT_INDEX | VERSION_1 | PROTOCOL_FEATURES;
        let kind = match self.export.is_writable() {
            true => FLUSH | CONFIG_WCE | DISCARD | WRITE_ZEROES,
            false => READ_ONLY | FLUSH,
        };
        common | ring | kind
    }

    /// Its configuration.
    pub fn config(&self) -> [u8; CONFIG_BYTES] {
        let block_bytes = self.export.block_bytes().max(SECTOR_BYTES as u32);
        let block_sectors = block_bytes / SECTOR_BYTES as u32;
        let physical = (block_bytes.min(MOST_PHYSICAL_BYTES) / SECTOR_BYTES as u32).ilog2() as u8;
        let least = u16::try_from(block_sectors).unwrap_or(u16::MAX);
        let sectors = self.size_bytes() / SECTOR_BYTES;
        let fields: [(usize, &[u8]); 14] = [
            (0, &sectors.to_le_bytes()),
            (12, &MOST_SEGMENTS.to_le_bytes()),
            (20, &(SECTOR_BYTES as u32).to_le_bytes()),
            (24, &[physical]),
            (26, &least.to_le_bytes()),
            (28, &block_sectors.to_le_bytes()),
            (WRITEBACK_AT as usize, &[u8::from(!self.writes_through())]),
            (34, &MOST_QUEUES.to_le_bytes()),
            (36, &MOST_RANGE_SECTORS.to_le_bytes()),
            (40, &MOST_RANGES.to_le_bytes()),
            (44, &block_sectors.to_le_bytes()),
            (48, &MOST_RANGE_SECTORS.to_le_bytes()),
            (52, &MOST_RANGES.to_le_bytes()),
            (56, &[1]),
        ];
        let mut config = [0; CONFIG_BYTES];
        for (at, bytes) in fields {
            config.iter_mut().skip(at).zip(bytes).for_each(|(into, from)| *into = *from);
        }
        config
    }

    /// Whether writes are to be stable when they are answered.
    pub fn writes_through(&self) -> bool {
        self.writes_through.load(Ordering::Acquire)
    }

    /// The guest chose.
    pub fn set_writes_through(&self, writes_through: bool) {
        self.writes_through.store(writes_through, Ordering::Release);
        if let Some(marks) = &*self.marks.lock().ignore_poison() {
            marks.set_writes_through(writes_through);
        }
    }

    /// The status of a request that failed.
    pub fn failed(&self, error: &ExportError) -> Status {
        if error.kind == FailureKind::Gone {
            self.is_gone.store(true, Ordering::Release);
        }
        Status::Failed
    }

    /// Whether the export does not answer any more.
    pub fn is_gone(&self) -> bool {
        self.is_gone.load(Ordering::Acquire)
    }

    /// Notes writes in this file from here on. Whether writes that the guest was told of are gone.
    pub fn mark_in(&self, file: &Arc<Inflight>) -> bool {
        let chosen = file.writes_through().unwrap_or_else(|| self.writes_through());
        let is_lost = file.take_over(self.export.durability());
        self.has_lost_writes.store(is_lost, Ordering::Release);
        file.set_writes_through(chosen);
        self.writes_through.store(chosen, Ordering::Release);
        *self.marks.lock().ignore_poison() = Some(Arc::clone(file));
        is_lost
    }

    /// Whether it must not go on, because writes that the guest was told of are gone.
    pub fn has_lost_writes(&self) -> bool {
        self.has_lost_writes.load(Ordering::Acquire)
    }

    /// The guest begins anew.
    pub fn forget_losses(&self) {
        self.has_lost_writes.store(false, Ordering::Release);
        if let Some(marks) = &*self.marks.lock().ignore_poison() {
            marks.forget_writes(self.export.durability());
        }
    }

    /// Whether a write that begins now is asked to be stable, and is so when it is answered.
    pub fn promise(&self) -> Promise {
        let stability = self.export.stability();
        let is_asked = self.writes_through() || stability == Stability::Always;
        Promise { is_asked, is_kept: is_asked && stability != Stability::ByGroup }
    }

    /// A write that began with this promise is about to be answered.
    pub fn wrote(&self, promise: Promise) {
        // `sync` may be another one by now.
        let is_stable = promise.is_kept && self.export.stability() != Stability::ByGroup;
        if !is_stable
            && let Some(marks) = &*self.marks.lock().ignore_poison()
            && let Some(now) = self.export.durability()
        {
            marks.note_write(&now);
        }
    }

    /// Makes all writes stable that were answered.
    ///
    /// # Errors
    /// The export's.
    pub async fn flush(&self) -> Result<(), ExportError> {
        let (until, before) = (self.written(), self.export.stability());
        self.export.flush().await?;
        if before != Stability::ByGroup && self.export.stability() != Stability::ByGroup {
            self.is_stable_until(until);
        }
        Ok(())
    }

    /// How many writes were answered.
    fn written(&self) -> u64 {
        self.marks.lock().ignore_poison().as_ref().map_or(0, |marks| marks.written())
    }

    /// So many of them are stable.
    fn is_stable_until(&self, written: u64) {
        if let Some(marks) = &*self.marks.lock().ignore_poison() {
            marks.note_stable(written);
        }
    }
}
