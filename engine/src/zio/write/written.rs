//! What became of the bytes that were written, layer by layer.
//!
//! A byte of a file or volume is part of a block, and a small write makes a whole block dirty; the block gets smaller by compression, larger by copies, parity and padding; and pointers,
//! dnodes and space maps are written with it. The counters say how much of which, since the pool was opened. They only grow; what came of one load is the difference of two
//! [`WrittenBytes`], taken when everything before was committed. Blocks that are written again in their place within a group count each time, because devices see them each time.
//!
//! What reaches the devices beside this (labels, uberblocks, resilvered blocks) is in the counters of the vdevs only.

use std::sync::atomic::{AtomicU64, Ordering};

use ondisk::blkptr::Blkptr;
use ondisk::dmu::DmuType;

use super::WriteRequest;
use crate::Bookmark;

/// The counters of a pool.
#[derive(Debug, Default)]
pub struct Written {
    data: Layers,
    metadata: Layers,
    log_bytes: AtomicU64,
}

#[derive(Debug, Default)]
struct Layers {
    logical: AtomicU64,
    physical: AtomicU64,
    allocated: AtomicU64,
}

/// What was written until some moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WrittenBytes {
    /// Blocks of files and volumes.
    pub data: LayerBytes,
    /// All other blocks.
    pub metadata: LayerBytes,
    /// Blocks of intent logs, as they are allocated.
    pub log_bytes: u64,
}

/// Bytes of blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LayerBytes {
    /// Before compression: whole blocks.
    pub logical: u64,
    /// After compression. Holes and blocks that stand in their pointers have none.
    pub physical: u64,
    /// With copies, parity and padding.
    pub allocated: u64,
}

impl Layers {
    fn add(&self, logical: u64, physical: u64, allocated: u64) {
        self.logical.fetch_add(logical, Ordering::Relaxed);
        self.physical.fetch_add(physical, Ordering::Relaxed);
        self.allocated.fetch_add(allocated, Ordering::Relaxed);
    }

    fn snapshot(&self) -> LayerBytes {
        LayerBytes {
            logical: self.logical.load(Ordering::Relaxed),
            physical: self.physical.load(Ordering::Relaxed),
            allocated: self.allocated.load(Ordering::Relaxed),
        }
    }
}

impl Written {
    /// What was written until now.
    pub fn snapshot(&self) -> WrittenBytes {
        WrittenBytes {
            data: self.data.snapshot(),
            metadata: self.metadata.snapshot(),
            log_bytes: self.log_bytes.load(Ordering::Relaxed),
        }
    }

    /// Counts a block, with the pointer that it got where it was stored.
    pub(super) fn count(&self, request: &WriteRequest, stored: Option<&Blkptr>) {
        let layers = if is_data(request) { &self.data } else { &self.metadata };
        let (physical, allocated) = stored.map_or((0, 0), |bp| (bp.psize().get(), bp.asize().get()));
        layers.add(request.data.len() as u64, physical, allocated);
    }

    /// Counts a block of an intent log.
    pub(super) fn count_log(&self, bp: &Blkptr) {
        self.log_bytes.fetch_add(bp.asize().get(), Ordering::Relaxed);
    }
}

/// Whether a block has bytes of a file or volume.
fn is_data(request: &WriteRequest) -> bool {
    let Bookmark { objset, level, .. } = request.at;
    let is_of_users = matches!(request.dmu_type, DmuType::PLAIN_FILE_CONTENTS | DmuType::ZVOL);
    objset != 0 && level == 0 && is_of_users
}
