//! How fast blocks are encoded: the time of a sync in which at least one batch was being encoded, and the
//! bytes encoded in it.
//!
//! Batches overlap, so the sum of their times would be too long.

use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use device::IgnorePoison;
use ondisk::blkptr::CompressType;

/// With fewer bytes, a pace is an accident.
const LEAST_BYTES: u64 = 256 << 10;

/// Measures one sync.
#[derive(Debug, Default)]
pub(crate) struct Meter(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    under_way: u32,
    since: Option<Instant>,
    busy: Duration,
    bytes: u64,
}

impl Meter {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().ignore_poison()
    }

    /// Counts this many bytes as being encoded until the returned value is dropped.
    pub(super) fn begin(&self, bytes: u64) -> Encoding<'_> {
        let mut state = self.state();
        state.under_way += 1;
        state.since.get_or_insert_with(Instant::now);
        Encoding { meter: self, bytes }
    }

    /// Bytes per second until now, if enough was measured.
    pub(crate) fn pace(&self) -> Option<u64> {
        let state = self.state();
        let busy = state.busy + state.since.map_or(Duration::ZERO, |since| since.elapsed());
        let micros = busy.as_micros().max(1);
        let pace = u128::from(state.bytes) * 1_000_000 / micros;
        (state.bytes >= LEAST_BYTES).then(|| u64::try_from(pace).unwrap_or(u64::MAX))
    }
}

/// A batch that is being encoded.
pub(super) struct Encoding<'a> {
    meter: &'a Meter,
    bytes: u64,
}

impl Drop for Encoding<'_> {
    fn drop(&mut self) {
        let mut state = self.meter.state();
        state.under_way -= 1;
        state.bytes += self.bytes;
        if state.under_way == 0
            && let Some(since) = state.since.take()
        {
            state.busy += since.elapsed();
        }
    }
}

/// Whether a compression takes far longer than checksums and devices.
pub(crate) fn is_heavy(compress: CompressType) -> bool {
    !matches!(
        compress,
        CompressType::Off
            | CompressType::Empty
            | CompressType::Inherit
            | CompressType::On
            | CompressType::Lz4
            | CompressType::Lzjb
            | CompressType::Zle
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_that_overlap_count_once() {
        let meter = Meter::default();
        assert_eq!(meter.pace(), None);
        let (one, other) = (meter.begin(LEAST_BYTES), meter.begin(LEAST_BYTES));
        assert_eq!(meter.pace(), None);
        drop(one);
        assert!(meter.pace().is_some_and(|pace| pace > 0));
        drop(other);
        let state = meter.state();
        assert_eq!((state.bytes, state.under_way, state.since.is_none()), (2 * LEAST_BYTES, 0, true));
    }

    #[test]
    fn what_compresses_hard_is_heavy() {
        assert!(
            is_heavy(CompressType::Gzip1) && is_heavy(CompressType::Gzip9) && is_heavy(CompressType::Zstd)
        );
        assert!(!is_heavy(CompressType::Lz4) && !is_heavy(CompressType::Off) && !is_heavy(CompressType::On));
    }
}
