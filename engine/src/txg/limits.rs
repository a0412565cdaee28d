//! How much may be dirty, and how long a group stays open.

use std::time::Duration;

use super::lanes::OVER_SHARE;
use crate::cache::ArcCache;

/// The least limit of dirty bytes, for the smallest cache: a group needs some data to be worth its commit.
pub(super) const LEAST_DIRTY_BYTES: u64 = 16 << 20;
/// The largest limit of dirty bytes, for the largest cache.
const MOST_DIRTY_BYTES: u64 = 4 << 30;

/// The most that a cache lends to the dirty bytes of all pools, but for what is reserved for each.
pub(super) fn most_lent(cache: &ArcCache) -> u64 {
    cache.lendable_bytes().max(LEAST_DIRTY_BYTES)
}

/// What of it changes may take that do not go before others: the rest is as much as small changes, and lanes
/// that have little, may exceed that by.
pub(super) fn without_over(most: u64) -> u64 {
    most - most / (OVER_SHARE + 1)
}

/// How much may be dirty, and how long a group stays open.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// The most dirty bytes of all groups together.
    pub dirty_bytes: u64,
    /// With this many dirty bytes the open group is committed before its time is over.
    pub sync_bytes: u64,
    /// How long a group with changes stays open.
    pub timeout: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self { dirty_bytes: 256 << 20, sync_bytes: 64 << 20, timeout: Duration::from_secs(5) }
    }
}

impl Limits {
    /// The limits of pools whose dirty bytes this cache lends: a quarter of it, if that is more than the
    /// default. The more random writes to an object one group has, the fewer indirect blocks it writes for
    /// each of them.
    pub fn beside(cache: &ArcCache) -> Self {
        let least = Self::default();
        let dirty_bytes = (cache.budget_bytes() / 4).clamp(least.dirty_bytes, MOST_DIRTY_BYTES);
        Self { dirty_bytes, sync_bytes: dirty_bytes / 4, ..least }
    }

    /// These limits, or less if a cache can lend less.
    pub(super) fn within(self, cache: &ArcCache) -> Self {
        let dirty_bytes = self.dirty_bytes.min(without_over(most_lent(cache)));
        Self { dirty_bytes, sync_bytes: self.sync_bytes.min(dirty_bytes / 4), ..self }
    }
}
