//! [`Env`]: what the engine asks of the world beside its devices: the time of day, and randomness.
//!
//! In production it is the real thing ([`System`]). In tests it is a [`Seeded`] one, so that a whole pool
//! under load, with all its guids and times, comes out the same again from its seed.

use std::fmt::Debug;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// What the engine asks of the world.
pub trait Env: Send + Sync + Debug {
    /// Time since 1970.
    fn now(&self) -> Duration;

    /// A random number: guids, salts.
    fn random(&self) -> u64;

    /// How pools with multihost protection are watched.
    fn multihost(&self) -> Multihost {
        Multihost::default()
    }

    /// User and group that the roots of new filesystems belong to.
    fn owner(&self) -> (u32, u32) {
        (0, 0)
    }
}

/// How often a pool with multihost protection is marked as in use, and for how long another host watches for
/// that.
#[derive(Debug, Clone, Copy)]
pub struct Multihost {
    /// Between two marks on one device (`zfs_multihost_interval`).
    pub interval: Duration,
    /// After so many intervals without a mark the pool is not written any more
    /// (`zfs_multihost_fail_intervals`).
    pub fail_intervals: u16,
    /// For so many intervals it is watched at least whose writer does not say when it gives up
    /// (`zfs_multihost_import_intervals`).
    pub import_intervals: u32,
}

impl Default for Multihost {
    fn default() -> Self {
        Self { interval: Duration::from_secs(1), fail_intervals: 10, import_intervals: 20 }
    }
}

/// The real world.
#[derive(Debug, Clone, Copy, Default)]
pub struct System;

impl Env for System {
    fn now(&self) -> Duration {
        SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
    }

    fn random(&self) -> u64 {
        // Fills eight bytes from the kernel; the hasher's keys are random too, should that ever fail.
        use std::hash::{BuildHasher, RandomState};
        RandomState::new().hash_one(SystemTime::now())
    }

    fn owner(&self) -> (u32, u32) {
        use std::os::unix::fs::MetadataExt;
        // It belongs to whom the process runs as.
        std::fs::metadata("/proc/self").map_or((0, 0), |process| (process.uid(), process.gid()))
    }
}

/// A world that comes out the same from the same seed: each call is a step of a counter, and time advances by
/// a second with each look.
#[derive(Debug)]
pub struct Seeded {
    state: AtomicU64,
    seconds: AtomicU64,
}

impl Seeded {
    /// The world of a seed.
    pub fn new(seed: u64) -> Self {
        Self { state: AtomicU64::new(seed), seconds: AtomicU64::new(1_700_000_000) }
    }
}

impl Env for Seeded {
    fn now(&self) -> Duration {
        Duration::from_secs(self.seconds.fetch_add(1, Ordering::Relaxed))
    }

    /// SplitMix64.
    fn random(&self) -> u64 {
        let mut z = self
            .state
            .fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed)
            .wrapping_add(0x9e37_79b9_7f4a_7c15);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}
