//! Errors of one vdev: how many, and whether they are too many for it.
//!
//! A threshold is a number of errors within a time. OpenZFS's event daemon has one for failed transfers, one
//! for wrong bytes, and one for slow transfers that counts only where it is set. The properties of vdevs
//! `io_n`, `io_t`, `checksum_n`, `checksum_t`, `slow_io_n` and `slow_io_t` set them.
//!
//! Whether errors are too many is decided when one is noted, by the times at which they happened, because the
//! look at them may come later.
//!
//! | lock | guards | order |
//! |---|---|---|
//! | `recent` | the times of errors, and the thresholds; for a few lines | taken alone |
//!
//! Source of the facts: OpenZFS 2.4 `cmd/zed/agents/zfs_diagnosis.c`.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use device::IgnorePoison;

/// The most times that are remembered, whatever a threshold says.
const MAX_TIMES: usize = 10_000;

/// A number of errors within a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Threshold {
    /// So many errors; 0 for any number.
    pub count: u64,
    /// Within this time.
    pub window: Duration,
}

/// When errors are too many.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Thresholds {
    /// Failed transfers.
    pub transfers: Threshold,
    /// Wrong bytes.
    pub checksums: Threshold,
    /// Slow transfers, if these count.
    pub slow: Option<Threshold>,
}

impl Default for Thresholds {
    fn default() -> Self {
        let usual = Threshold { count: 10, window: Duration::from_secs(600) };
        Self { transfers: usual, checksums: usual, slow: None }
    }
}

/// Errors of one vdev since the pool was opened.
#[derive(Debug, Default)]
pub struct ErrorCounters {
    read: AtomicU64,
    write: AtomicU64,
    checksum: AtomicU64,
    /// The times of the last few errors.
    recent: Mutex<RecentErrors>,
}

/// The times of failed transfers, wrong bytes and slow transfers.
#[derive(Debug, Default)]
struct RecentErrors {
    thresholds: Thresholds,
    transfers: VecDeque<Instant>,
    checksums: VecDeque<Instant>,
    slow: VecDeque<Instant>,
    /// Which were too many since the last look.
    too_many: Kinds,
    /// Whether transfers failed, and whether there were other errors, since the last look.
    unseen: [bool; 2],
}

/// The recent errors.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Recent {
    pub transfers_failed: bool,
    /// Which kinds were too many.
    pub too_many: Kinds,
}

/// Kinds of errors: those that there were lately, or that were too many.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Kinds {
    pub transfers: bool,
    pub checksums: bool,
    pub slow: bool,
}

impl Kinds {
    /// The kinds of both.
    pub fn or(self, other: Self) -> Self {
        Self {
            transfers: self.transfers || other.transfers,
            checksums: self.checksums || other.checksums,
            slow: self.slow || other.slow,
        }
    }
}

impl ErrorCounters {
    /// Failed reads.
    pub fn read(&self) -> u64 {
        self.read.load(Ordering::Relaxed)
    }

    /// Failed writes.
    pub fn write(&self) -> u64 {
        self.write.load(Ordering::Relaxed)
    }

    /// Reads that returned wrong bytes.
    pub fn checksum(&self) -> u64 {
        self.checksum.load(Ordering::Relaxed)
    }

    /// A read failed. One that is not new, because it failed in the same place a short while ago, only says
    /// something of the device.
    pub(crate) fn count_read(&self, is_new: bool) {
        self.read.fetch_add(is_new.into(), Ordering::Relaxed);
        self.note_transfer();
    }

    /// A write failed.
    pub(crate) fn count_write(&self, is_new: bool) {
        self.write.fetch_add(is_new.into(), Ordering::Relaxed);
        self.note_transfer();
    }

    /// A read returned wrong bytes.
    pub(crate) fn count_checksum(&self, is_new: bool) {
        self.checksum.fetch_add(is_new.into(), Ordering::Relaxed);
        let mut recent = self.recent.lock().ignore_poison();
        let threshold = recent.thresholds.checksums;
        recent.too_many.checksums |= note(&mut recent.checksums, threshold, Instant::now());
        recent.unseen[1] = true;
    }

    /// A scrub or resilver found wrong bytes: they are no reason to give the device up.
    pub(crate) fn count_checksum_of_scan(&self, is_new: bool) {
        self.checksum.fetch_add(is_new.into(), Ordering::Relaxed);
    }

    fn note_transfer(&self) {
        let mut recent = self.recent.lock().ignore_poison();
        let threshold = recent.thresholds.transfers;
        recent.too_many.transfers |= note(&mut recent.transfers, threshold, Instant::now());
        recent.unseen[0] = true;
    }

    /// A transfer that ended then was slow.
    pub(crate) fn note_slow(&self, ended: Instant) {
        let mut recent = self.recent.lock().ignore_poison();
        if let Some(threshold) = recent.thresholds.slow {
            recent.too_many.slow |= note(&mut recent.slow, threshold, ended);
            recent.unseen[1] = true;
        }
    }

    /// From now on, these errors are too many.
    pub(crate) fn set_thresholds(&self, thresholds: Thresholds) {
        self.recent.lock().ignore_poison().thresholds = thresholds;
    }

    /// When errors are too many.
    pub fn thresholds(&self) -> Thresholds {
        self.recent.lock().ignore_poison().thresholds
    }

    /// The recent errors, if there were any since the last call.
    pub(crate) fn take_recent(&self) -> Option<Recent> {
        let mut recent = self.recent.lock().ignore_poison();
        let [transfers_failed, others] = std::mem::take(&mut recent.unseen);
        let too_many = std::mem::take(&mut recent.too_many);
        (transfers_failed || others).then_some(Recent { transfers_failed, too_many })
    }

    /// Which kinds of errors there were within the time of their thresholds.
    pub(crate) fn kinds(&self) -> Kinds {
        let recent = self.recent.lock().ignore_poison();
        let Thresholds { transfers, checksums, slow } = recent.thresholds;
        Kinds {
            transfers: are_there(&recent.transfers, transfers),
            checksums: are_there(&recent.checksums, checksums),
            slow: slow.is_some_and(|slow| are_there(&recent.slow, slow)),
        }
    }

    /// Whether there were errors that `take_recent` did not return yet.
    pub(crate) fn has_unseen(&self) -> bool {
        self.recent.lock().ignore_poison().unseen != [false; 2]
    }

    /// Sets all to zero, as `zpool clear` does.
    pub fn clear(&self) {
        for counter in [&self.read, &self.write, &self.checksum] {
            counter.store(0, Ordering::Relaxed);
        }
        let mut recent = self.recent.lock().ignore_poison();
        *recent = RecentErrors { thresholds: recent.thresholds, ..RecentErrors::default() };
    }
}

/// Keeps the times of the last few errors: as many as the threshold needs. Whether these are too many.
fn note(times: &mut VecDeque<Instant>, threshold: Threshold, then: Instant) -> bool {
    while times.len() >= MAX_TIMES.min(usize::try_from(threshold.count).unwrap_or(MAX_TIMES)).max(1) {
        times.pop_front();
    }
    times.push_back(then);
    let count = usize::try_from(threshold.count).unwrap_or(usize::MAX);
    let first = times.len().checked_sub(count).and_then(|index| times.get(index));
    count > 0 && first.is_some_and(|first| then.saturating_duration_since(*first) < threshold.window)
}

/// Whether one of them was within the time of the threshold.
fn are_there(times: &VecDeque<Instant>, threshold: Threshold) -> bool {
    threshold.count > 0 && times.back().is_some_and(|last| last.elapsed() < threshold.window)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_too_many_by_their_own_threshold() {
        let errors = ErrorCounters::default();
        let few = Threshold { count: 2, window: Duration::from_secs(600) };
        assert_eq!(errors.kinds(), Kinds::default());
        (0..9).for_each(|number| errors.count_checksum(number == 0));
        assert_eq!(errors.checksum(), 1, "the others were in the same place");
        let slow = || errors.note_slow(Instant::now());
        let too_many = || errors.take_recent().map(|recent| recent.too_many);
        let checksums = Kinds { checksums: true, ..Kinds::default() };
        slow();
        assert_eq!(errors.kinds(), checksums);
        assert_eq!(too_many(), Some(Kinds::default()));
        errors.count_checksum(false);
        assert_eq!(too_many(), Some(checksums));
        let none = Threshold { count: 0, window: Duration::ZERO };
        errors.set_thresholds(Thresholds { transfers: none, checksums: few, slow: Some(few) });
        errors.clear();
        (0..20).for_each(|_| errors.count_write(true));
        slow();
        assert_eq!(too_many(), Some(Kinds::default()));
        slow();
        assert_eq!(too_many(), Some(Kinds { slow: true, ..Kinds::default() }));
        assert_eq!(too_many(), None);
    }

    #[test]
    fn errors_are_judged_by_when_they_happened_not_by_when_they_are_looked_at() {
        let errors = ErrorCounters::default();
        let (none, second) = (Threshold { count: 0, window: Duration::ZERO }, Duration::from_secs(1));
        let slow = Some(Threshold { count: 3, window: second });
        errors.set_thresholds(Thresholds { transfers: none, checksums: none, slow });
        let now = Instant::now();
        (0..6).for_each(|number| errors.note_slow(now + second * number / 2));
        assert!(errors.take_recent().is_some_and(|recent| !recent.too_many.slow), "two in a second");
        (0..3).for_each(|number| errors.note_slow(now + second * 60 + second * number / 4));
        assert!(errors.take_recent().is_some_and(|recent| recent.too_many.slow));
    }
}
