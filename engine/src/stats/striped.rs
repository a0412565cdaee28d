//! Counters that many threads add to at once.
//!
//! Each thread belongs to one of a few stripes, and each stripe has a cache line of its own. With as many
//! stripes as threads that count, no two of them write the same line.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Stripes of a counter: more than a machine's busy threads that serve one dataset, for most machines.
const STRIPES: usize = 8;
/// Counters in a line of 64 bytes.
pub(crate) const LINE: usize = 8;

#[derive(Debug, Default)]
#[repr(align(64))]
struct Line([AtomicU64; LINE]);

impl Line {
    const fn new() -> Self {
        Self([const { AtomicU64::new(0) }; LINE])
    }
}

/// Eight counters.
#[derive(Debug)]
pub(crate) struct Striped([Line; STRIPES]);

impl Default for Striped {
    fn default() -> Self {
        Self::new()
    }
}

static NEXT_STRIPE: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static STRIPE: Cell<usize> = const { Cell::new(usize::MAX) };
}

/// The stripe of this thread.
fn stripe() -> usize {
    // A thread that ends counts in the first stripe.
    let own = STRIPE.try_with(|stripe| match stripe.get() {
        usize::MAX => {
            let next = NEXT_STRIPE.fetch_add(1, Ordering::Relaxed) % STRIPES;
            stripe.set(next);
            next
        }
        known => known,
    });
    own.unwrap_or(0)
}

impl Striped {
    /// All zero.
    pub(crate) const fn new() -> Self {
        Self([const { Line::new() }; STRIPES])
    }

    /// Adds one to counter `count`, and `more` to counter `sum`.
    pub(crate) fn add_both(&self, count: usize, sum: usize, more: u64) {
        if let Some(Line(line)) = self.0.get(stripe())
            && let (Some(count), Some(sum)) = (line.get(count), line.get(sum))
        {
            count.fetch_add(1, Ordering::Relaxed);
            sum.fetch_add(more, Ordering::Relaxed);
        }
    }

    /// Adds `more` to counter `index`. A negative step is its two's complement: the stripes are summed with
    /// wrapping.
    pub(crate) fn add(&self, index: usize, more: u64) {
        if let Some(counter) = self.0.get(stripe()).and_then(|Line(line)| line.get(index)) {
            counter.fetch_add(more, Ordering::Relaxed);
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
    fn what_threads_count_at_once_adds_up() {
        let counters = Striped::new();
        std::thread::scope(|scope| {
            for _ in 0..2 * STRIPES {
                scope.spawn(|| (0..1000).for_each(|_| counters.add_both(0, 3, 7)));
            }
        });
        let threads = 2 * STRIPES as u64;
        assert_eq!((counters.get(0), counters.get(3), counters.get(1)), (1000 * threads, 7000 * threads, 0));
        counters.add(1, 5);
        std::thread::scope(|scope| scope.spawn(|| counters.add(1, 2u64.wrapping_neg())).join().unwrap());
        assert_eq!(counters.get(1), 3);
    }
}
