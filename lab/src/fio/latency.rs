//! Latencies: of reads, of writes, and of both together.
//!
//! fio counts the operations of each kind in bins of similar latency (`json+`, `bins`), and so does the
//! process that has the pool open. From the bins the latencies of several kinds are combined; percentiles of
//! each alone could not be.
//!
//! - A read has its own latency.
//! - A flushed write has the latency of the write and its flush: a client that needs it stable waits for
//!   both. Only writes have flushes, at most one each. It is not known which write a flush belonged to:
//!   flushes are spread over all writes evenly, and the longer flushes are assigned to the longer writes, so
//!   that a percentile is an upper bound for both together.
//! - A load that reads and writes has the latencies of all its operations, each counting once. Their shares
//!   are the workload's choice, and the same in each run.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// How long operations of one kind took, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Latency {
    /// How many there were.
    pub operations: u64,
    /// The mean.
    pub mean: f64,
    /// The median.
    pub p50: f64,
    /// The 99th percentile.
    pub p99: f64,
    /// The 99.9th percentile.
    pub p999: f64,
}

/// The figures of the operations of one kind.
#[derive(Deserialize, Default)]
pub(super) struct Said {
    #[serde(default, rename = "N")]
    count: u64,
    #[serde(default)]
    mean: f64,
    /// Operations by their nanoseconds.
    #[serde(default)]
    bins: BTreeMap<String, u64>,
}

/// Times of operations.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Times {
    count: f64,
    mean: f64,
    /// Nanoseconds, and how many took so long: the shortest first.
    bins: Vec<(f64, f64)>,
}

impl Said {
    /// Whether nothing is said.
    pub fn is_empty(&self) -> bool {
        self.count == 0 && self.bins.is_empty()
    }

    /// The times; where they were not counted all are taken for the mean.
    pub fn times(&self) -> Times {
        let number = |(ns, count): (&String, &u64)| Some((ns.parse().ok()?, *count as f64));
        let mut bins: Vec<(f64, f64)> = self.bins.iter().filter_map(number).collect();
        if bins.is_empty() {
            bins.extend((self.count > 0).then_some((self.mean, self.count as f64)));
        }
        Times::of(bins, self.mean)
    }
}

impl Times {
    fn of(mut bins: Vec<(f64, f64)>, mean: f64) -> Self {
        bins.sort_by(|(one, _), (other, _)| one.total_cmp(other));
        Self { count: bins.iter().map(|(_, count)| count).sum(), mean, bins }
    }

    /// These and others.
    pub fn and(&self, others: &Self) -> Self {
        let count = (self.count + others.count).max(1.0);
        let mean = (self.mean * self.count + others.mean * others.count) / count;
        Self::of([self.bins.as_slice(), &others.bins].concat(), mean)
    }

    /// These, of writes, with their flushes.
    pub fn flushed(&self, flushes: &Self) -> Self {
        let flushed = flushes.count.min(self.count);
        if flushed <= 0.0 {
            return self.clone();
        }
        let share = flushed / self.count;
        let rest = self.bins.iter().map(|(ns, count)| (*ns, count * (1.0 - share)));
        let mut bins: Vec<(f64, f64)> = rest.filter(|(_, count)| *count > 0.0).collect();
        // Both from the shortest on, side by side, by their shares.
        let (mut writes, mut of_flushes) = (self.bins.iter(), flushes.bins.iter());
        let (mut write, mut flush) = (writes.next().copied(), of_flushes.next().copied());
        while let (Some((write_ns, of_writes)), Some((flush_ns, of))) = (write, flush) {
            let (write_share, flush_share) = (of_writes / self.count, of / flushes.count);
            let step = write_share.min(flush_share);
            bins.push((write_ns + flush_ns, step * flushed));
            write = if write_share > step {
                Some((write_ns, (write_share - step) * self.count))
            } else {
                writes.next().copied()
            };
            flush = if flush_share > step {
                Some((flush_ns, (flush_share - step) * flushes.count))
            } else {
                of_flushes.next().copied()
            };
        }
        Self::of(bins, self.mean + flushes.mean * share)
    }

    /// The figures; `None` where there was no operation.
    pub fn latency(&self) -> Option<Latency> {
        let last = self.bins.last()?.0;
        let at = |share: f64| {
            // What was divided may not add up to the last digit.
            let wanted = self.count * share * (1.0 - 1e-9);
            let mut seen = 0.0;
            let found = self.bins.iter().find(|(_, count)| {
                seen += count;
                seen >= wanted
            });
            found.map_or(last, |(ns, _)| *ns)
        };
        Some(Latency {
            operations: self.count.round() as u64,
            mean: self.mean,
            p50: at(0.5),
            p99: at(0.99),
            p999: at(0.999),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(bins: &[(f64, f64)]) -> Times {
        let count: f64 = bins.iter().map(|(_, count)| count).sum();
        Times::of(bins.to_vec(), bins.iter().map(|(ns, count)| ns * count).sum::<f64>() / count)
    }

    #[test]
    fn every_flush_is_of_one_write() {
        // Ten writes, of which the flushes of two are known, and one took long.
        let writes = times(&[(10.0, 9.0), (50.0, 1.0)]);
        let flushed = writes.flushed(&times(&[(100.0, 1.0), (1000.0, 1.0)]));
        let latency = flushed.latency().unwrap();
        assert_eq!((latency.operations, latency.p50, latency.p999), (10, 10.0, 1050.0));
        assert!((latency.mean - (14.0 + 110.0)).abs() < 1e-9, "{latency:?}");
        assert!((flushed.bins.iter().map(|(ns, count)| ns * count).sum::<f64>() - 1240.0).abs() < 1e-9);
        // A flush that no write is left for counts as the others do, and no more.
        let more = writes.flushed(&times(&[(100.0, 40.0)])).latency().unwrap();
        assert_eq!((more.operations, more.p50, more.p999), (10, 110.0, 150.0));
        assert_eq!(writes.flushed(&Times::default()), writes);
    }

    #[test]
    fn percentiles_of_all_are_not_those_of_either() {
        let all = times(&[(10.0, 700.0)]).and(&times(&[(500.0, 290.0), (9000.0, 10.0)]));
        let latency = all.latency().unwrap();
        assert_eq!((latency.p50, latency.p99, latency.p999), (10.0, 500.0, 9000.0));
        assert!((latency.mean - (7.0 + 145.0 + 90.0)).abs() < 1e-9, "{latency:?}");
        assert_eq!(Times::default().latency(), None);
    }
}
