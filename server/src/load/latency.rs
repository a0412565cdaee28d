//! How long requests took, as counts of times that are about alike.
//!
//! Times below 128 ns are counted each by itself; above, each power of two is divided into 64, so that a time
//! is known to within 1/64 of it, and told as the middle of its counter: off by 0.8 per cent at most. fio
//! counts in the same way.

use std::time::Duration;

/// Into how many, as a power of two, each power of two is divided.
const BITS: u32 = 6;
/// Counters for all times that 64 bits of nanoseconds can tell.
const COUNTERS: usize = (64 - BITS as usize + 1) << BITS;

/// Times of requests.
#[derive(Debug)]
pub(super) struct Latencies {
    counters: Box<[u64]>,
    count: u64,
    total_ns: u128,
    least_ns: u64,
    most_ns: u64,
}

impl Default for Latencies {
    fn default() -> Self {
        let counters = vec![0; COUNTERS].into_boxed_slice();
        Self { counters, count: 0, total_ns: 0, least_ns: u64::MAX, most_ns: 0 }
    }
}

/// Which counter a time belongs to.
fn counter(ns: u64) -> usize {
    // Bits that are not told.
    let lost = (u64::BITS - ns.leading_zeros()).saturating_sub(BITS + 1);
    ((lost as usize) << BITS) + (ns >> lost) as usize
}

/// The middle of a counter's times.
fn middle_ns(counter: usize) -> u64 {
    let lost = (counter >> BITS).saturating_sub(1);
    let first = (counter - (lost << BITS)) as u64;
    (first << lost) + ((1_u64 << lost) >> 1)
}

impl Latencies {
    pub fn note(&mut self, took: Duration) {
        let ns = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        if let Some(count) = self.counters.get_mut(counter(ns)) {
            *count += 1;
        }
        self.count += 1;
        self.total_ns += u128::from(ns);
        self.least_ns = self.least_ns.min(ns);
        self.most_ns = self.most_ns.max(ns);
    }

    pub fn add(&mut self, other: &Self) {
        for (mine, others) in self.counters.iter_mut().zip(&other.counters) {
            *mine += others;
        }
        self.count += other.count;
        self.total_ns += other.total_ns;
        self.least_ns = self.least_ns.min(other.least_ns);
        self.most_ns = self.most_ns.max(other.most_ns);
    }

    pub fn count(&self) -> u64 {
        self.count
    }

    pub fn mean_ns(&self) -> f64 {
        self.total_ns as f64 / self.count.max(1) as f64
    }

    pub fn least_ns(&self) -> u64 {
        if self.count == 0 { 0 } else { self.least_ns }
    }

    pub fn most_ns(&self) -> u64 {
        self.most_ns
    }

    /// How many took about as many nanoseconds, the shortest first.
    pub fn times(&self) -> impl Iterator<Item = (u64, u64)> {
        let counted = self.counters.iter().enumerate().filter(|(_, count)| **count > 0);
        counted.map(|(counter, count)| (middle_ns(counter).clamp(self.least_ns, self.most_ns), *count))
    }

    /// The latency that so many of a thousand stay below; 0 if there were none.
    pub fn at_most_ns(&self, of_thousand: u64) -> u64 {
        let wanted = (u128::from(self.count) * u128::from(of_thousand)).div_ceil(1000);
        let mut seen = 0;
        for (counter, count) in self.counters.iter().enumerate() {
            seen += u128::from(*count);
            if seen >= wanted && seen > 0 {
                return middle_ns(counter).clamp(self.least_ns, self.most_ns);
            }
        }
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_time_has_a_counter_near_it() {
        for ns in (0..10_000).chain((4..64).flat_map(|bit| [(1 << bit) - 1, 1 << bit, 3 << (bit - 1)])) {
            let middle = middle_ns(counter(ns));
            assert!(counter(ns) < COUNTERS, "{ns}");
            assert!(middle.abs_diff(ns) as f64 <= ns as f64 / 128.0, "{ns}: {middle}");
        }
        assert!(counter(u64::MAX) == COUNTERS - 1 && middle_ns(COUNTERS - 1) > u64::MAX / 128 * 127);
        assert!((1..COUNTERS).all(|counter| middle_ns(counter) > middle_ns(counter - 1)));
    }

    #[test]
    fn percentiles_are_those_of_all_clients() {
        let mut all = Latencies::default();
        assert_eq!((all.at_most_ns(500), all.least_ns(), all.count()), (0, 0, 0));
        for half in 0..2 {
            let mut one = Latencies::default();
            (1..=500).for_each(|us| one.note(Duration::from_micros(us + half * 500)));
            all.add(&one);
        }
        assert_eq!((all.count(), all.least_ns(), all.most_ns()), (1000, 1000, 1_000_000));
        assert!((all.mean_ns() - 500_500.0).abs() < 1e-6);
        let times: Vec<(u64, u64)> = all.times().collect();
        assert!(times.is_sorted() && times.iter().map(|(_, count)| count).sum::<u64>() == 1000);
        for (told, ns) in [(times[0].0, 1000), (times[times.len() - 1].0, 1_000_000)] {
            assert!(told.abs_diff(ns) <= ns / 128, "{ns}: {told}");
        }
        for (of_thousand, ns) in [(500, 500_000), (990, 990_000), (999, 999_000), (1000, 1_000_000)] {
            let told = all.at_most_ns(of_thousand);
            assert!(told.abs_diff(ns) <= ns / 128, "{of_thousand}: {told}");
        }
    }
}
