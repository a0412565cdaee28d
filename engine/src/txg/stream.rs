//! Large new blocks in quick succession, which are worth a commit.

use std::time::Instant;

/// After this many bytes of large new blocks in quick succession, a group is committed before its time is
/// over.
pub(super) const STREAM_BYTES: u64 = 32 << 20;
/// The slowest such stream, in bytes per second: slower ones would keep a slow disk busy with commits.
pub(super) const STREAM_BYTES_PER_SECOND: u64 = 256 << 20;

/// Large new blocks in quick succession.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stream {
    pub(super) bytes: u64,
    pub(super) began: Instant,
}

impl Stream {
    /// None so far.
    pub(super) fn none() -> Self {
        Self { bytes: 0, began: Instant::now() }
    }

    /// Notes that this many bytes came at `now`.
    pub(super) fn note(&mut self, bytes: u64, now: Instant) {
        let micros = u64::try_from((now - self.began).as_micros()).unwrap_or(u64::MAX);
        let least = micros.saturating_mul(STREAM_BYTES_PER_SECOND / 1_000_000);
        if self.bytes < least {
            *self = Self { bytes: 0, began: now };
        }
        self.bytes = self.bytes.saturating_add(bytes);
    }

    /// Whether the stream is long enough for a commit.
    pub(super) fn is_due(&self) -> bool {
        self.bytes >= STREAM_BYTES
    }
}
