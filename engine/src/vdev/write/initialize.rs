//! Writing a pattern over unused ranges (`zpool initialize`).
//!
//! Each leaf gets one write after the other, so that at most one of them delays the pool's own transfers.
//! Failures are counted as errors of the device, whose health is judged by them.
//!
//! Source of the facts: OpenZFS 2.3 `vdev_initialize.c`.

use std::time::Instant;

use device::{IoBuf, SharedBuf};
use futures_util::future::join_all;

use super::super::stats::{Queue, Transfer};
use super::super::{Vdev, VdevTree};
use super::discard::{Range, Unused};
use crate::tunables::{ZFS_INITIALIZE_CHUNK_SIZE, ZFS_INITIALIZE_VALUE};

impl VdevTree {
    /// Writes the pattern over ranges, on the leaves that `is_chosen` selects. Returns the number of device
    /// bytes that were written.
    pub async fn initialize(&self, unused: &[Unused], is_chosen: &(dyn Fn(&Vdev) -> bool + Sync)) -> u64 {
        let ranges = self.ranges(unused, is_chosen);
        let mut pattern = IoBuf::zeroed(ZFS_INITIALIZE_CHUNK_SIZE.size().next_multiple_of(4096));
        pattern
            .chunks_exact_mut(8)
            .for_each(|word| word.copy_from_slice(&ZFS_INITIALIZE_VALUE.get().to_le_bytes()));
        let pattern = &SharedBuf::from(pattern);
        let leaves = ranges.chunk_by(|one, next| one.leaf.guid == next.leaf.guid);
        let written = leaves.map(|ranges| async move {
            let mut written = 0;
            for range in ranges {
                written += initialize(range, pattern).await;
            }
            written
        });
        join_all(written).await.into_iter().sum()
    }
}

async fn initialize(range: &Range<'_>, pattern: &SharedBuf) -> u64 {
    let mut written = 0;
    let mut at = range.start;
    while at < range.end {
        let length = (pattern.len() as u64).min(range.end - at);
        let _under_way = range.leaf.stats.begin(Queue::AsyncWrite);
        let started = Instant::now();
        match range.device.write_gather(at, vec![pattern.slice(0..length as usize)]).await {
            Ok(()) => {
                range.leaf.stats.count(Transfer::Write, length, started);
                written += length;
            }
            Err(error) => {
                range.leaf.errors.count_write(true);
                tracing::debug!(leaf = range.leaf.name, %error, "not initialized");
                return written;
            }
        }
        at += length;
    }
    written
}
