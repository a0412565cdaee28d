//! Counters of the written bytes, layer by layer.
//!
//! A byte of a file or volume is part of a block, and a small write makes a whole block dirty. Compression
//! makes the block smaller; copies, parity and padding make it larger; and pointers, dnodes and space maps
//! are written with it. The counters record the bytes of each layer since the pool was opened. They only
//! grow; the bytes of one load are the difference of two [`WrittenBytes`], each taken when everything before
//! it was committed. Blocks that are overwritten in place within a group count each time, because devices
//! write them each time.
//!
//! Other writes to the devices (labels, uberblocks, resilvered blocks) appear only in the counters of the
//! vdevs.

use std::sync::atomic::{AtomicU64, Ordering};

use ondisk::blkptr::Blkptr;
use ondisk::dmu::DmuType;

use super::WriteRequest;
use crate::Bookmark;
use crate::stats::{DatasetStats, Layer, Layers};
use crate::vdev::{Kind, Vdev, VdevTree};

/// The counters of a pool.
#[derive(Debug, Default)]
pub struct Written {
    data: Layers,
    metadata: Layers,
    log_bytes: AtomicU64,
    log_device_bytes: AtomicU64,
}

/// The bytes written until some moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WrittenBytes {
    /// Blocks of files and volumes.
    pub data: Layer,
    /// All other blocks.
    pub metadata: Layer,
    /// Blocks of intent logs, by their allocated size.
    pub log_bytes: u64,
    /// The same, once for each device of a mirror.
    pub log_device_bytes: u64,
}

impl Written {
    /// The bytes written until now.
    pub fn snapshot(&self) -> WrittenBytes {
        WrittenBytes {
            data: self.data.snapshot(),
            metadata: self.metadata.snapshot(),
            log_bytes: self.log_bytes.load(Ordering::Relaxed),
            log_device_bytes: self.log_device_bytes.load(Ordering::Relaxed),
        }
    }

    /// Counts a block of a dataset, with the pointer that it got on these vdevs, and whether it was stored.
    pub(super) fn count(
        &self,
        request: &WriteRequest,
        (pointer, is_stored): (&Blkptr, bool),
        vdevs: &VdevTree,
        dataset: &DatasetStats,
    ) {
        let logical = request.data.len() as u64;
        let bytes = match is_stored {
            false => Layer { logical, ..Layer::default() },
            true => Layer {
                logical,
                physical: pointer.psize().get(),
                allocated: pointer.asize().get(),
                devices: device_bytes(pointer, vdevs),
            },
        };
        match (pointer.is_dedup(), is_stored) {
            (false, _) => {}
            (true, true) => dataset.count_dedup_new(),
            (true, false) => dataset.count_dedup_found(pointer.psize().get()),
        }
        let is_data = is_data(request);
        if is_data { &self.data } else { &self.metadata }.add(bytes);
        dataset.count_block(is_data, bytes);
    }

    /// Counts a block of an intent log.
    pub(super) fn count_log(&self, bp: &Blkptr, vdevs: &VdevTree, dataset: &DatasetStats) {
        let (allocated, devices) = (bp.asize().get(), device_bytes(bp, vdevs));
        self.log_bytes.fetch_add(allocated, Ordering::Relaxed);
        self.log_device_bytes.fetch_add(devices, Ordering::Relaxed);
        dataset.count_log(Layer { allocated, devices, ..Layer::default() });
    }
}

/// The bytes that a block takes on all devices together. Every device of a mirror counts, including those
/// that are away.
fn device_bytes(bp: &Blkptr, vdevs: &VdevTree) -> u64 {
    let ways = |top: &Vdev| match top.kind {
        Kind::Mirror | Kind::Replacing | Kind::Spare => top.children.len().max(1) as u64,
        _ => 1,
    };
    bp.dvas().map(|dva| dva.asize.get() * vdevs.top(dva.vdev.get()).map_or(1, ways)).sum()
}

/// Whether a block contains bytes of a file or volume.
fn is_data(request: &WriteRequest) -> bool {
    let Bookmark { objset, level, .. } = request.at;
    let is_of_users = matches!(request.dmu_type, DmuType::PLAIN_FILE_CONTENTS | DmuType::ZVOL);
    objset != 0 && level == 0 && is_of_users
}
