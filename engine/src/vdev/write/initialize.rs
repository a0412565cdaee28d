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

/// The pattern, word by word.
const PATTERN: u64 = 0xdead_beef_dead_beee;
/// Bytes of one write.
const PIECE_BYTES: u64 = 1 << 20;

impl VdevTree {
    /// Writes the pattern over ranges, on the leaves that `is_chosen` selects. Returns the number of device
    /// bytes that were written.
    pub async fn initialize(&self, unused: &[Unused], is_chosen: &(dyn Fn(&Vdev) -> bool + Sync)) -> u64 {
        let ranges = self.ranges(unused, is_chosen);
        let mut pattern = IoBuf::zeroed(PIECE_BYTES as usize);
        pattern.chunks_exact_mut(8).for_each(|word| word.copy_from_slice(&PATTERN.to_le_bytes()));
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
        let length = PIECE_BYTES.min(range.end - at);
        let _under_way = range.leaf.stats.begin(Queue::AsyncWrite);
        let started = Instant::now();
        match range.device.write_gather(at, vec![pattern.slice(0..length as usize)]).await {
            Ok(()) => {
                range.leaf.stats.count(Transfer::Write, length, started);
                written += length;
            }
            Err(error) => {
                range.leaf.errors.count_write();
                tracing::debug!(leaf = range.leaf.name, %error, "not initialized");
                return written;
            }
        }
        at += length;
    }
    written
}
