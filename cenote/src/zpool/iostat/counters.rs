//! Differences of counters, and what is made of them.

use std::time::Duration;

use server::api::{PoolIo, Queued, Transfers, VdevIo, VdevNode};

use super::ByGuid;

/// The operations of a pool's vdevs in some time.
pub(super) struct Changes<'a> {
    now: ByGuid<'a>,
    before: ByGuid<'a>,
    /// Since the last look, or since the pool was opened.
    time: Duration,
    since_opened: bool,
}

impl<'a> Changes<'a> {
    pub(super) fn new(pool: &'a PoolIo, before: Option<(&'a PoolIo, Duration)>) -> Self {
        let by_guid = |pool: &'a PoolIo| pool.counters.iter().map(|vdev| (vdev.guid, vdev)).collect();
        Self {
            now: by_guid(pool),
            before: before.map(|(before, _)| by_guid(before)).unwrap_or_default(),
            time: before.map_or(Duration::from_nanos(pool.age_ns), |(_, time)| time),
            since_opened: before.is_none(),
        }
    }

    /// The operations of a vdev; of the root, those of the vdevs below it.
    pub(super) fn of(&self, vdev: &VdevNode) -> Counted {
        let own = match vdev.kind.as_str() {
            "root" => sum(vdev.children.iter().map(|top| self.since(top.guid))),
            _ => self.since(vdev.guid),
        };
        let leaves = vdev.walk().filter(|vdev| vdev.children.is_empty() && vdev.kind != "root");
        Counted {
            leaves: sum(leaves.map(|leaf| self.since(leaf.guid))),
            read: own.read,
            write: own.write,
            trim: own.trim,
            time: self.time,
            since_opened: self.since_opened,
        }
    }

    fn since(&self, guid: u64) -> VdevIo {
        let Some(now) = self.now.get(&guid) else { return VdevIo::default() };
        match self.before.get(&guid) {
            Some(before) => VdevIo {
                guid,
                read: less(&now.read, &before.read),
                scrub: less(&now.scrub, &before.scrub),
                write: less(&now.write, &before.write),
                sync_write: less(&now.sync_write, &before.sync_write),
                flush: less(&now.flush, &before.flush),
                trim: less(&now.trim, &before.trim),
                under_way: now.under_way,
                async_queue: less_queued(&now.async_queue, &before.async_queue),
                sync_queue: less_queued(&now.sync_queue, &before.sync_queue),
            },
            None => (*now).clone(),
        }
    }
}

/// The operations of one vdev in some time.
pub(super) struct Counted {
    pub read: Transfers,
    pub write: Transfers,
    pub trim: Transfers,
    leaves: VdevIo,
    time: Duration,
    since_opened: bool,
}

impl Counted {
    /// A number, by second.
    pub(super) fn per_second(&self, number: u64) -> u64 {
        let nanoseconds = self.time.as_nanos().max(1);
        u64::try_from(u128::from(number) * 1_000_000_000 / nanoseconds).unwrap_or(u64::MAX)
    }

    /// A number of a histogram: all there is since the pool was opened, by second between two looks.
    pub(super) fn scaled(&self, number: u64) -> u64 {
        if self.since_opened { number } else { self.per_second(number) }
    }

    /// The operations of the leaves below.
    pub(super) fn leaves(&self) -> &VdevIo {
        &self.leaves
    }
}

pub(super) fn less(now: &Transfers, before: &Transfers) -> Transfers {
    Transfers {
        operations: now.operations.saturating_sub(before.operations),
        bytes: now.bytes.saturating_sub(before.bytes),
        total_ns: now.total_ns.saturating_sub(before.total_ns),
        latency: each(&now.latency, &before.latency),
        total_latency: each(&now.total_latency, &before.total_latency),
        sizes: each(&now.sizes, &before.sizes),
    }
}

fn less_queued(now: &Queued, before: &Queued) -> Queued {
    Queued { waited: each(&now.waited, &before.waited), joined: each(&now.joined, &before.joined) }
}

fn each(now: &[u64], before: &[u64]) -> Vec<u64> {
    let before = before.iter().copied().chain(std::iter::repeat(0));
    now.iter().zip(before).map(|(now, before)| now.saturating_sub(before)).collect()
}

/// Transfers by size: those that were not joined of several, and those that were.
pub(super) fn apart(all: &[u64], joined: &[u64]) -> (Vec<u64>, Vec<u64>) {
    let mut joined = joined.to_vec();
    joined.resize(all.len(), 0);
    (each(all, &joined), joined)
}

/// Adds a histogram to another one.
pub(super) fn add_histogram(sum: &mut Vec<u64>, more: &[u64]) {
    sum.resize(sum.len().max(more.len()), 0);
    sum.iter_mut().zip(more).for_each(|(sum, more)| *sum += more);
}

fn sum(all: impl Iterator<Item = VdevIo>) -> VdevIo {
    let add = |sum: &mut Transfers, more: &Transfers| {
        sum.operations += more.operations;
        sum.bytes += more.bytes;
        sum.total_ns += more.total_ns;
        add_histogram(&mut sum.latency, &more.latency);
        add_histogram(&mut sum.total_latency, &more.total_latency);
        add_histogram(&mut sum.sizes, &more.sizes);
    };
    all.fold(VdevIo::default(), |mut sum, more| {
        add(&mut sum.read, &more.read);
        add(&mut sum.scrub, &more.scrub);
        add(&mut sum.write, &more.write);
        add(&mut sum.sync_write, &more.sync_write);
        add(&mut sum.flush, &more.flush);
        add(&mut sum.trim, &more.trim);
        for (sum, more) in
            [(&mut sum.async_queue, &more.async_queue), (&mut sum.sync_queue, &more.sync_queue)]
        {
            add_histogram(&mut sum.waited, &more.waited);
            add_histogram(&mut sum.joined, &more.joined);
        }
        let (all, one) = (&mut sum.under_way, more.under_way);
        all.sync_read += one.sync_read;
        all.sync_write += one.sync_write;
        all.async_write += one.async_write;
        all.scrub += one.scrub;
        all.trim += one.trim;
        all.async_write_pending += one.async_write_pending;
        sum
    })
}

/// The average of a histogram of latencies, in nanoseconds: as if all of a bucket were in its middle.
pub(super) fn average(histogram: &[u64]) -> u64 {
    let middle = |bucket: usize| (1u128 << bucket) + (1u128 << bucket) / 2;
    let count: u128 = histogram.iter().map(|count| u128::from(*count)).sum();
    let total: u128 =
        histogram.iter().enumerate().map(|(bucket, count)| u128::from(*count) * middle(bucket)).sum();
    u64::try_from(total.checked_div(count).unwrap_or(0)).unwrap_or(u64::MAX)
}

/// A time as OpenZFS writes it in narrow columns: whole units, a dash for none.
pub(super) fn nicetime(nanoseconds: u64, literal: bool) -> String {
    const UNITS: [&str; 4] = ["ns", "us", "ms", "s"];
    let mut number = nanoseconds;
    match (nanoseconds, literal) {
        (0, _) => return "-".to_owned(),
        (_, true) => return nanoseconds.to_string(),
        _ => {}
    }
    for unit in &UNITS[..3] {
        if number < 1000 {
            return format!("{number}{unit}");
        }
        number /= 1000;
    }
    format!("{number}{}", UNITS[3])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_whole_units() {
        for (nanoseconds, text) in [
            (0, "-"),
            (999, "999ns"),
            (1000, "1us"),
            (999_999, "999us"),
            (67_108_863, "67ms"),
            (137_438_953_471, "137s"),
        ] {
            assert_eq!(nicetime(nanoseconds, false), text);
        }
        assert_eq!(nicetime(1234, true), "1234");
    }

    #[test]
    fn an_average_is_of_the_middles_of_buckets() {
        assert_eq!(average(&[]), 0);
        assert_eq!(average(&[0, 0, 0, 1]), 12);
        assert_eq!(average(&[0, 0, 1, 1]), 9);
    }

    #[test]
    fn rates_are_differences_by_second() {
        let transfers =
            |operations| Transfers { operations, bytes: operations * 512, ..Transfers::default() };
        let before = transfers(10);
        let counted = Counted {
            read: less(&transfers(40), &before),
            write: Transfers::default(),
            trim: Transfers::default(),
            leaves: VdevIo::default(),
            time: Duration::from_secs(3),
            since_opened: false,
        };
        assert_eq!(counted.per_second(counted.read.operations), 10);
        assert_eq!(counted.per_second(counted.read.bytes), 5120);
    }
}
