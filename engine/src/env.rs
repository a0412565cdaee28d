//! [`Env`]: the services that the engine needs from its environment besides devices: the time of day, and
//! randomness. Guids need numbers that hardly ever come twice ([`Env::random`]). Salts and initialization
//! vectors of encrypted blocks need more: bytes that an attacker cannot foresee and that never come twice
//! ([`Env::fill_secret`]); a simulator counts what is done with them ([`Env::note_iv`]).
//!
//! In production it is the real environment ([`System`]). In tests it is a [`Seeded`] one, so that a whole
//! pool under load, with all its guids and times, is reproducible from its seed.

use std::fmt::Debug;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::error::{Error, Result};
use crate::tunables;

/// The services that the engine needs from its environment.
pub trait Env: Send + Sync + Debug {
    /// Time since 1970.
    fn now(&self) -> Duration;

    /// A random number: guids, salts.
    fn random(&self) -> u64;

    /// Fills bytes that cannot be guessed: salts and initialization vectors.
    ///
    /// # Errors
    /// The source of random bytes fails.
    fn fill_secret(&self, bytes: &mut [u8]) -> Result<()> {
        for chunk in bytes.chunks_mut(size_of::<u64>()) {
            chunk.copy_from_slice(&self.random().to_le_bytes()[..chunk.len()]);
        }
        Ok(())
    }

    /// A block will be encrypted with this initialization vector, under the key with the guid `key` and this
    /// salt. None may ever come twice.
    fn note_iv(&self, _key: u64, _salt: [u8; 8], _iv: [u8; 12]) {}

    /// A block was encrypted with a salt and an initialization vector that follow from its bytes, and this is
    /// its authentication code. The same may come again, for the same bytes, which have the same code.
    fn note_iv_of_bytes(&self, _key: u64, _salt_and_iv: ([u8; 8], [u8; 12]), _mac: [u8; 16]) {}

    /// The timing of multihost protection.
    fn multihost(&self) -> Multihost {
        Multihost::tuned()
    }

    /// The user and group that own the roots of new filesystems.
    fn owner(&self) -> (u32, u32) {
        (0, 0)
    }
}

/// How often a pool with multihost protection is marked as in use, and how long another host watches for
/// marks.
#[derive(Debug, Clone, Copy)]
pub struct Multihost {
    /// The time between two marks on one device (`zfs_multihost_interval`).
    pub interval: Duration,
    /// After this many intervals without a mark, the pool is not written any more
    /// (`zfs_multihost_fail_intervals`).
    pub fail_intervals: u16,
    /// The least number of intervals for which a pool is watched if its writer does not record when it gives
    /// up (`zfs_multihost_import_intervals`).
    pub import_intervals: u32,
}

impl Multihost {
    /// As the tunables have it.
    pub fn tuned() -> Self {
        let narrow = |value: u64| u32::try_from(value).unwrap_or(u32::MAX);
        Self {
            interval: Duration::from_millis(tunables::ZFS_MULTIHOST_INTERVAL.get()),
            fail_intervals: u16::try_from(tunables::ZFS_MULTIHOST_FAIL_INTERVALS.get()).unwrap_or(u16::MAX),
            import_intervals: narrow(tunables::ZFS_MULTIHOST_IMPORT_INTERVALS.get()),
        }
    }
}

impl Default for Multihost {
    fn default() -> Self {
        Self { interval: Duration::from_secs(1), fail_intervals: 10, import_intervals: 20 }
    }
}

/// The real environment.
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

    fn fill_secret(&self, bytes: &mut [u8]) -> Result<()> {
        use ring::rand::{SecureRandom, SystemRandom};
        let failed = |_| Error::Unsupported("the system gives no random bytes to encrypt with".to_owned());
        SystemRandom::new().fill(bytes).map_err(failed)
    }

    fn owner(&self) -> (u32, u32) {
        use std::os::unix::fs::MetadataExt;
        // The user and group of the process.
        std::fs::metadata("/proc/self").map_or((0, 0), |process| (process.uid(), process.gid()))
    }
}

/// An environment that is the same for the same seed: each call is a step of a counter, and time advances by
/// a second with each call.
#[derive(Debug)]
pub struct Seeded {
    state: AtomicU64,
    seconds: AtomicU64,
}

impl Seeded {
    /// The environment of a seed.
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
