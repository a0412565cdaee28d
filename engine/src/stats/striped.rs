//! Counters that many threads add to at once.
//!
//! Each counter has several cells, in cache lines of their own. A thread that counts for the first time
//! claims a line for as long as it lives, so that nothing else writes to it: adding is a load and a store,
//! without the lock of the bus that an atomic addition takes. Threads that find no free line share the last
//! one, with atomic additions.
//!
//! A line that a thread gives back (release) is the next thread's when that claims it (acquire), so no
//! addition is lost on the way.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

/// Lines of a counter. The last one is shared.
const LINES: usize = 16;
/// The line of threads that have none of their own.
const SHARED: usize = LINES - 1;
/// A thread that has not counted yet.
const UNKNOWN: usize = usize::MAX;
/// Counters in a line of 64 bytes.
const COUNTERS: usize = 8;

#[derive(Debug, Default)]
#[repr(align(64))]
struct Line([AtomicU64; COUNTERS]);

impl Line {
    const fn new() -> Self {
        Self([const { AtomicU64::new(0) }; COUNTERS])
    }
}

/// Eight counters.
#[derive(Debug)]
pub(crate) struct Striped([Line; LINES]);

impl Default for Striped {
    fn default() -> Self {
        Self::new()
    }
}

/// The lines that a thread has, by bit.
static CLAIMED: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// The line of this thread. It has no destructor, so that it is there until the very end.
    static OWN: Cell<usize> = const { Cell::new(UNKNOWN) };
    static CLAIM: Cell<Option<Claim>> = const { Cell::new(None) };
}

/// A line of a thread. It is free again when the thread ends.
struct Claim(usize);

impl Drop for Claim {
    fn drop(&mut self) {
        OWN.set(SHARED);
        CLAIMED.fetch_and(!(1 << self.0), Ordering::Release);
    }
}

/// The line of this thread.
#[inline]
fn own() -> usize {
    match OWN.get() {
        UNKNOWN => claim(),
        known => known,
    }
}

#[cold]
fn claim() -> usize {
    let free = |claimed: u64| (0..SHARED).find(|line| claimed & (1 << line) == 0);
    let take = |claimed: u64| free(claimed).map(|line| claimed | 1 << line);
    let line = match CLAIMED.fetch_update(Ordering::Acquire, Ordering::Relaxed, take) {
        Ok(before) => free(before).unwrap_or(SHARED),
        Err(_) => SHARED,
    };
    if line != SHARED {
        // A thread that is ending already keeps no claim: it would not be given back.
        let mut claim = Some(Claim(line));
        if CLAIM.try_with(|kept| kept.set(claim.take())).is_err() {
            drop(claim);
            return SHARED;
        }
    }
    OWN.set(line);
    line
}

/// Adds to a counter of line `line`, which is the thread's own unless it is shared.
#[inline]
fn add_to(counter: &AtomicU64, line: usize, more: u64) {
    if line == SHARED {
        counter.fetch_add(more, Ordering::Relaxed);
    } else {
        counter.store(counter.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed);
    }
}

impl Striped {
    /// All zero.
    pub(crate) const fn new() -> Self {
        Self([const { Line::new() }; LINES])
    }

    /// Adds one to counter `count`, and `more` to counter `sum`.
    #[inline]
    pub(crate) fn add_both(&self, count: usize, sum: usize, more: u64) {
        let own = own();
        if let Some(Line(line)) = self.0.get(own)
            && let (Some(count), Some(sum)) = (line.get(count), line.get(sum))
        {
            add_to(count, own, 1);
            add_to(sum, own, more);
        }
    }

    /// Adds `more` to counter `index`. A negative step is its two's complement: the lines are summed with
    /// wrapping.
    #[inline]
    pub(crate) fn add(&self, index: usize, more: u64) {
        let own = own();
        if let Some(counter) = self.0.get(own).and_then(|Line(line)| line.get(index)) {
            add_to(counter, own, more);
        }
    }

    /// Counter `index` now.
    pub(crate) fn get(&self, index: usize) -> u64 {
        let of = |Line(line): &Line| line.get(index).map_or(0, |counter| counter.load(Ordering::Relaxed));
        self.0.iter().map(of).fold(0, u64::wrapping_add)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_threads_count_at_once_and_one_after_the_other_adds_up() {
        let counters = Striped::new();
        let rounds = 20;
        let threads = 2 * LINES as u64;
        for _ in 0..rounds {
            // More threads than lines, and in each round other ones.
            std::thread::scope(|scope| {
                for _ in 0..threads {
                    scope.spawn(|| (0..1000).for_each(|_| counters.add_both(0, 3, 7)));
                }
            });
        }
        let times = 1000 * threads * rounds;
        assert_eq!((counters.get(0), counters.get(3), counters.get(1)), (times, 7 * times, 0));
        counters.add(1, 5);
        std::thread::scope(|scope| scope.spawn(|| counters.add(1, 2u64.wrapping_neg())).join().unwrap());
        assert_eq!(counters.get(1), 3);
    }
}
