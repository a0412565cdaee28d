//! How large the ARC should be, by what is free in the machine.
//!
//! # The idea
//! The ARC takes as much as it is given ([`Sizing::most`]), and gives way when others need the memory. Three
//! signs are looked at, each second:
//!
//! | sign | what it says |
//! |---|---|
//! | available memory of the machine, and the rest of the limit of the process's group | less than `zfs_arc_sys_free` is left: the ARC shrinks by what is missing |
//! | pressure (PSI): the share of time in which some task waited for memory | more than `PRESSURE_PERCENT`: memory is fought for though some is available; the ARC shrinks by a share |
//! | none of these for `GROW_AFTER` | the ARC grows again, by half of what is free beyond the reserve |
//!
//! Shrinking is at once, growing is slow, so that the size does not swing. The size never falls below
//! [`Sizing::least`], but for a smaller maximum that a user set.

use std::time::{Duration, Instant};

/// With more than this share of time in which tasks waited for memory, the ARC shrinks.
const PRESSURE_PERCENT: f64 = 10.0;
/// It shrinks by one part in so many then.
const PRESSURE_SHARE: u64 = 16;
/// It grows when there was no need to shrink for this time (`zfs_arc_grow_retry`).
const GROW_AFTER: Duration = Duration::from_secs(5);
/// Smaller steps are not worth it.
const LEAST_STEP_BYTES: u64 = 1 << 20;

/// The memory of the machine and of the process's group, as of now.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Memory {
    /// Bytes that programs can still take, the page cache included.
    pub available_bytes: u64,
    /// The share of the last seconds in which some task waited for memory, in hundredths; 0 where the system
    /// does not say.
    pub pressure_percent: f64,
}

/// Follows the size of the ARC.
#[derive(Debug, Clone)]
pub struct Sizing {
    /// The most bytes.
    pub most: u64,
    /// The least bytes.
    pub least: u64,
    /// Bytes that are to be left to others.
    pub reserve: u64,
    shrunk: Option<Instant>,
}

impl Sizing {
    /// Between these sizes, with this reserve for others.
    pub fn new(most: u64, least: u64, reserve: u64) -> Self {
        Self { most, least, reserve, shrunk: None }
    }

    /// The size that the ARC should have from `now` on, if it has `size` bytes.
    pub fn next(&mut self, size: u64, memory: Memory, now: Instant) -> u64 {
        let least = self.least.min(self.most);
        let missing = self.reserve.saturating_sub(memory.available_bytes);
        let is_under_pressure = memory.pressure_percent > PRESSURE_PERCENT;
        if missing > 0 || is_under_pressure {
            self.shrunk = Some(now);
            let pressed = if is_under_pressure { size / PRESSURE_SHARE } else { 0 };
            return size.saturating_sub(missing.max(pressed)).clamp(least, self.most);
        }
        let is_calm = self.shrunk.is_none_or(|shrunk| now.saturating_duration_since(shrunk) >= GROW_AFTER);
        let free = memory.available_bytes - self.reserve;
        let room = match is_calm {
            // A size that was never shrunk is only what was asked for.
            true if self.shrunk.is_none() => self.most.saturating_sub(size),
            true => (free / 2).min(self.most.saturating_sub(size)),
            false => 0,
        };
        let grown = if room >= LEAST_STEP_BYTES { size + room } else { size };
        grown.clamp(least, self.most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    fn with(available_bytes: u64) -> Memory {
        Memory { available_bytes, pressure_percent: 0.0 }
    }

    #[test]
    fn it_shrinks_by_what_is_missing_and_grows_again_slowly() {
        let mut sizing = Sizing::new(8 * GIB, GIB, 2 * GIB);
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(sizing.next(8 * GIB, with(3 * GIB), at(0)), 8 * GIB);
        assert_eq!(sizing.next(8 * GIB, with(GIB), at(1)), 7 * GIB);
        assert_eq!(sizing.next(7 * GIB, with(4 * GIB), at(2)), 7 * GIB, "not at once");
        assert_eq!(sizing.next(7 * GIB, with(3 * GIB), at(6)), 7 * GIB + GIB / 2);
        assert_eq!(sizing.next(7 * GIB, with(100 * GIB), at(7)), 8 * GIB);
        assert_eq!(sizing.next(2 * GIB, with(0), at(8)), GIB, "not below the least size");
    }

    #[test]
    fn it_shrinks_under_pressure_though_memory_is_available() {
        let mut sizing = Sizing::new(8 * GIB, GIB, 2 * GIB);
        let memory = Memory { available_bytes: 4 * GIB, pressure_percent: 25.0 };
        assert_eq!(sizing.next(8 * GIB, memory, Instant::now()), 8 * GIB - GIB / 2);
    }

    #[test]
    fn a_maximum_that_is_set_counts_at_once() {
        let mut sizing = Sizing::new(8 * GIB, GIB, 2 * GIB);
        sizing.most = GIB / 2;
        assert_eq!(
            sizing.next(8 * GIB, with(100 * GIB), Instant::now()),
            GIB / 2,
            "below the least size too"
        );
        sizing.most = 16 * GIB;
        assert_eq!(sizing.next(GIB / 2, with(100 * GIB), Instant::now()), 16 * GIB);
    }
}
