//! Load on a volume from inside the process that serves it: the lab compares it with the same load over NBD.
//!
//! # The idea
//! Each *client* is one task on a shard, as a connection is, and has its own handle on the volume. It keeps
//! as many requests under way as the load says, and treats each as a connection does: a buffer of its own,
//! one poll on the spot, and only an unfinished request waits with others. So the extra time of a client over
//! NBD is that of the socket, the protocol and the client's own process. Data are made before a request's
//! time begins, but on the same thread: for large writes they cost some of the throughput.
//!
//! Counting is as in fio. A request's time is from its first poll until its client sees that it is done.
//! Requests that end before `ramp_seconds` are over are not counted. A client starts none once its time is
//! over, waits for those under way, and flushes if it wrote, within the counted time. A flush between writes
//! is a request among the others that are under way: it covers the writes that are done when it begins. Reads
//! and writes are also counted in steps of the counted time, by when they end.
//!
//! | module | what it owns |
//! |---|---|
//! | `requests` | which request comes next |
//! | `data` | the data of writes |
//! | `latency` | latencies of requests |
//!
//! # Bounds
//! [`check`] refuses loads that would take more memory than the clients of a socket may take, or longer than
//! a day. A client checks before each request whether it has to end.

mod data;
mod latency;
mod requests;

use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::{Duration, Instant};

use device::IoBuf;
use futures_util::stream::FuturesUnordered;
use futures_util::{StreamExt, poll};

use crate::api::{ApiError, Load, Loaded, Requested, SizeShare, Step};
use crate::block::{Export, ExportError};
use crate::nbd::MAX_REQUEST_BYTES;

use data::Data;
pub use data::Noise;
use latency::Latencies;
use requests::{Kind, Request, Requests};

/// Least bytes of a request: a sector.
const LEAST_BLOCK_BYTES: u32 = 512;
/// Most clients.
const MOST_CLIENTS: u32 = 64;
/// Most requests of each that are under way: as many as a connection may have.
const MOST_DEPTH: u32 = 256;
/// Most bytes of all requests under way: as many as all connections of a socket share.
const MOST_BYTES: u64 = 256 << 20;
/// A day.
const MOST_SECONDS: f64 = 86_400.0;
/// The most steps that are reported.
const MOST_STEPS: f64 = 1000.0;
/// So many requests that wait for nothing are done before others of the thread have their turn.
const TURN: u32 = 64;

/// Whether a load can be put on a volume of `size_bytes`.
///
/// # Errors
/// The parameter that is out of bounds, by name.
pub fn check(load: &Load, size_bytes: u64) -> Result<(), ApiError> {
    let wrong = |what: String| Err(ApiError::invalid(format!("a load: {what}")));
    let is_size = |bytes: u32| (LEAST_BLOCK_BYTES..=MAX_REQUEST_BYTES).contains(&bytes);
    if !is_size(load.block_bytes) {
        let block = load.block_bytes;
        return wrong(format!("block_bytes {block} is not from {LEAST_BLOCK_BYTES} to {MAX_REQUEST_BYTES}"));
    }
    for (name, sizes) in [("read_sizes", &load.read_sizes), ("write_sizes", &load.write_sizes)] {
        let percent = sizes.iter().fold(0_u32, |all, size| all.saturating_add(size.percent));
        if !sizes.is_empty() && (percent != 100 || sizes.iter().any(|size| size.percent == 0)) {
            return wrong(format!("{name}: each needs a percentage of at least 1, all together 100"));
        }
        if let Some(SizeShare { bytes, .. }) = sizes.iter().find(|size| !is_size(size.bytes)) {
            return wrong(format!("{name}: {bytes} is not from {LEAST_BLOCK_BYTES} to {MAX_REQUEST_BYTES}"));
        }
    }
    let (_, largest) = requests::sizes(load);
    if load.extent_bytes < largest || load.extent_bytes > size_bytes {
        let extent = load.extent_bytes;
        return wrong(format!(
            "extent_bytes {extent} is not from the largest request to the volume's {size_bytes}"
        ));
    }
    if !(1..=MOST_DEPTH).contains(&load.depth) || !(1..=MOST_CLIENTS).contains(&load.clients) {
        return wrong(format!("depth is from 1 to {MOST_DEPTH}, clients from 1 to {MOST_CLIENTS}"));
    }
    if u64::from(load.depth) * u64::from(load.clients) * largest > MOST_BYTES {
        return wrong(format!("depth, clients and block_bytes together are more than {MOST_BYTES} bytes"));
    }
    // The last begins the furthest on.
    if requests::region(load, load.clients - 1, size_bytes).is_none() {
        return wrong(format!(
            "offset_increment_bytes {}: the last of {} clients has no room for a request in the volume's \
             {size_bytes} bytes",
            load.offset_increment_bytes, load.clients
        ));
    }
    if load.read_percent > 100 || load.compressible_percent > 99 {
        return wrong("read_percent is at most 100, compressible_percent at most 99".into());
    }
    if !(0.001..=MOST_SECONDS).contains(&load.seconds) || !(0.0..=MOST_SECONDS).contains(&load.ramp_seconds) {
        return wrong("seconds from 0.001 to 86400, ramp_seconds to 86400".into());
    }
    if load.step_ms > 0 && load.seconds * 1000.0 / f64::from(load.step_ms) > MOST_STEPS {
        return wrong(format!("step_ms {} makes more than {MOST_STEPS} steps", load.step_ms));
    }
    if load.zipf.is_some_and(|theta| !(0.01..=10.0).contains(&theta) || theta == 1.0) {
        return wrong("zipf is from 0.01 to 10, and not 1".into());
    }
    Ok(())
}

/// A client's counts.
#[derive(Debug, Default)]
pub struct Tally {
    /// By [`Kind`].
    of: [Latencies; 3],
    /// Likewise.
    bytes: [u64; 3],
    /// Of reads and writes.
    steps: Vec<Step>,
    elapsed: Duration,
}

impl Tally {
    /// Adds what another client did at the same time.
    pub fn add(&mut self, other: &Self) {
        for (mine, others) in self.of.iter_mut().zip(&other.of) {
            mine.add(others);
        }
        for (mine, others) in self.bytes.iter_mut().zip(other.bytes) {
            *mine += others;
        }
        if self.steps.len() < other.steps.len() {
            self.steps.resize(other.steps.len(), Step::default());
        }
        for (mine, others) in self.steps.iter_mut().zip(&other.steps) {
            mine.requests += others.requests;
            mine.bytes += others.bytes;
        }
        self.elapsed = self.elapsed.max(other.elapsed);
    }

    /// The figures.
    pub fn figures(&self) -> Loaded {
        let of = |kind: Kind| {
            let latencies = &self.of[kind as usize];
            Requested {
                requests: latencies.count(),
                bytes: self.bytes[kind as usize],
                mean_ns: latencies.mean_ns(),
                least_ns: latencies.least_ns(),
                most_ns: latencies.most_ns(),
                p50_ns: latencies.at_most_ns(500),
                p99_ns: latencies.at_most_ns(990),
                p999_ns: latencies.at_most_ns(999),
                times: latencies.times().collect(),
            }
        };
        Loaded {
            reads: of(Kind::Read),
            writes: of(Kind::Write),
            flushes: of(Kind::Flush),
            elapsed_ns: u64::try_from(self.elapsed.as_nanos()).unwrap_or(u64::MAX),
            steps: self.steps.clone(),
        }
    }
}

/// Is client `number` of a load that was checked, until its time is over or `is_over` says so.
///
/// # Errors
/// The first request that failed.
pub async fn client<E: Export>(
    export: &E,
    load: &Load,
    number: u32,
    noise: &Noise,
    is_over: &AtomicBool,
) -> Result<Tally, ExportError> {
    let mut requests = Requests::new(load, number, export.size_bytes());
    let mut data = Data::new(noise, load, number);
    let depth = load.depth as usize;
    let counts_from = Instant::now() + Duration::from_secs_f64(load.ramp_seconds);
    let ends = counts_from + Duration::from_secs_f64(load.seconds);
    let step_ns = u64::from(load.step_ms) * 1_000_000;
    let steps = match load.step_ms {
        0 => 0,
        step_ms => (load.seconds * 1000.0 / f64::from(step_ms)).ceil() as usize,
    };
    let steps = vec![Step::default(); steps];
    let mut tally = Tally { steps, ..Tally::default() };
    let mut note = |done: Done| {
        if done.at >= counts_from {
            tally.of[done.kind as usize].note(done.at.saturating_duration_since(done.began));
            tally.bytes[done.kind as usize] += done.bytes;
            let last = tally.steps.len().saturating_sub(1);
            let at_ns = done.at.saturating_duration_since(counts_from).as_nanos() as u64;
            let step = at_ns.checked_div(step_ns).map_or(0, |step| last.min(step as usize));
            if let Some(step) = tally.steps.get_mut(step).filter(|_| done.kind != Kind::Flush) {
                step.requests += 1;
                step.bytes += done.bytes;
            }
        }
    };
    let mut waiting = FuturesUnordered::new();
    let mut in_turn = 0;
    let mut has_written = false;
    while !is_over.load(Ordering::Relaxed) && Instant::now() < ends {
        // No more than that before those that wait are looked at.
        for _ in waiting.len()..depth {
            let request = requests.next();
            let buffer = match request {
                Request::Read { bytes, .. } => Some(IoBuf::for_overwrite(bytes as usize)),
                Request::Write { bytes, .. } => {
                    has_written = true;
                    let mut buffer = IoBuf::for_overwrite(bytes as usize);
                    data.fill(&mut buffer);
                    Some(buffer)
                }
                Request::Flush => None,
            };
            let mut asked = Box::pin(ask(export, request, buffer));
            match poll!(asked.as_mut()) {
                Poll::Ready(done) => note(done?),
                Poll::Pending => waiting.push(asked),
            }
            in_turn += 1;
        }
        if !waiting.is_empty() {
            // A busy shard seldom sleeps, and only then submits by itself.
            device::submit_and_reap();
        }
        if waiting.len() >= depth {
            in_turn = 0;
            if let Some(done) = waiting.next().await {
                note(done?);
            }
        }
        while let Poll::Ready(Some(done)) = poll!(waiting.next()) {
            note(done?);
        }
        if in_turn >= TURN {
            in_turn = 0;
            tokio::task::yield_now().await;
        }
    }
    while let Some(done) = waiting.next().await {
        note(done?);
    }
    if has_written {
        export.flush().await?;
    }
    tally.elapsed = Instant::now().saturating_duration_since(counts_from);
    Ok(tally)
}

/// A request that is done.
struct Done {
    kind: Kind,
    bytes: u64,
    began: Instant,
    at: Instant,
}

/// One request; its time begins with the first poll.
async fn ask<E: Export>(export: &E, request: Request, buffer: Option<IoBuf>) -> Result<Done, ExportError> {
    let began = Instant::now();
    match (request, buffer) {
        (Request::Read { offset, .. }, Some(mut into)) => export.read(offset, &mut into).await?,
        (Request::Write { offset, .. }, Some(data)) => export.write(offset, data, false).await?,
        _ => export.flush().await?,
    }
    Ok(Done { kind: request.kind(), bytes: request.bytes(), began, at: Instant::now() })
}

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::block::{Extent, FailureKind};

    /// A load of short sequential writes.
    pub(crate) fn load() -> Load {
        Load {
            is_random: false,
            read_percent: 0,
            block_bytes: 4096,
            read_sizes: Vec::new(),
            write_sizes: Vec::new(),
            extent_bytes: 64 << 10,
            offset_increment_bytes: 0,
            depth: 1,
            clients: 1,
            flush_every: 0,
            zipf: None,
            compressible_percent: 0,
            seconds: 0.05,
            ramp_seconds: 0.0,
            step_ms: 0,
            seed: 7,
        }
    }

    /// The operations on an export.
    #[derive(Debug, Default, Clone, Copy, PartialEq)]
    struct Asked {
        reads: u64,
        writes: u64,
        flushes: u64,
        bytes_read: u64,
        bytes_written: u64,
        under_way: u64,
        most_under_way: u64,
    }

    /// An export of zeroes.
    #[derive(Default)]
    struct Zeroes {
        asked: Mutex<Asked>,
        /// Requests are not done when they are polled first.
        waits: bool,
        /// The write that fails.
        fails_at: Option<u64>,
        /// The flush with which the load is over for all.
        is_over: AtomicBool,
        over_at: Option<u64>,
    }

    impl Zeroes {
        async fn answer(&self, count: fn(&mut Asked) -> &mut u64) -> u64 {
            let number = {
                let mut asked = self.asked.lock().unwrap();
                asked.under_way += 1;
                asked.most_under_way = asked.most_under_way.max(asked.under_way);
                *count(&mut asked) += 1;
                *count(&mut asked)
            };
            if self.waits {
                tokio::task::yield_now().await;
            }
            self.asked.lock().unwrap().under_way -= 1;
            number
        }
    }

    impl Export for Zeroes {
        fn size_bytes(&self) -> u64 {
            1 << 20
        }

        fn block_bytes(&self) -> u32 {
            4096
        }

        async fn read(&self, _: u64, into: &mut [u8]) -> Result<(), ExportError> {
            into.fill(0);
            self.asked.lock().unwrap().bytes_read += into.len() as u64;
            self.answer(|asked| &mut asked.reads).await;
            Ok(())
        }

        async fn write(&self, _: u64, data: IoBuf, _: bool) -> Result<(), ExportError> {
            self.asked.lock().unwrap().bytes_written += data.len() as u64;
            let number = self.answer(|asked| &mut asked.writes).await;
            if Some(number) == self.fails_at {
                return Err(ExportError { kind: FailureKind::NoSpace, message: "full".into() });
            }
            if Some(number) == self.over_at {
                self.is_over.store(true, Ordering::Relaxed);
            }
            Ok(())
        }

        async fn extent(&self, _: u64) -> Result<Extent, ExportError> {
            Ok(Extent { len_bytes: 1 << 20, is_hole: true })
        }

        async fn flush(&self) -> Result<(), ExportError> {
            self.answer(|asked| &mut asked.flushes).await;
            Ok(())
        }
    }

    async fn run(export: &Zeroes, load: &Load) -> Result<Loaded, ExportError> {
        check(load, export.size_bytes()).unwrap();
        let noise = Noise::new(load.seed);
        client(export, load, 0, &noise, &export.is_over).await.map(|tally| tally.figures())
    }

    #[tokio::test]
    async fn what_is_told_is_what_was_asked_for() {
        for waits in [false, true] {
            let export = Zeroes { waits, over_at: Some(1000), ..Zeroes::default() };
            let load = Load {
                is_random: true,
                read_percent: 50,
                depth: 8,
                flush_every: 10,
                seconds: 60.0,
                ..load()
            };
            let loaded = run(&export, &load).await.unwrap();
            let asked = *export.asked.lock().unwrap();
            assert_eq!(loaded.reads.requests, asked.reads, "{waits}");
            assert_eq!(loaded.writes.requests, asked.writes);
            assert_eq!((loaded.reads.bytes, loaded.writes.bytes), (asked.reads * 4096, asked.writes * 4096));
            // One more, at the end, is not counted.
            assert_eq!(loaded.flushes.requests + 1, asked.flushes);
            assert_eq!(loaded.flushes.requests, asked.writes / 10);
            assert_eq!(asked.most_under_way, if waits { 8 } else { 1 });
            assert_eq!(asked.under_way, 0);
            let reads = &loaded.reads;
            assert!(reads.least_ns <= reads.p50_ns && reads.p50_ns <= reads.p99_ns, "{loaded:?}");
            assert!(reads.p999_ns <= reads.most_ns && loaded.elapsed_ns > 0, "{loaded:?}");
        }
    }

    /// Sizes that differ, of reads and of writes.
    pub(crate) fn mixed_sizes() -> Load {
        let sizes = |all: &[(u32, u32)]| {
            all.iter().map(|&(bytes, percent)| SizeShare { bytes, percent }).collect::<Vec<_>>()
        };
        Load {
            read_sizes: sizes(&[(4096, 60), (16 << 10, 25), (64 << 10, 15)]),
            write_sizes: sizes(&[(16 << 10, 50), (8192, 50)]),
            ..load()
        }
    }

    #[tokio::test]
    async fn bytes_are_those_of_requests_of_every_size() {
        let export = Zeroes { over_at: Some(500), ..Zeroes::default() };
        let load =
            Load { is_random: true, read_percent: 50, seconds: 60.0, step_ms: 60_000, ..mixed_sizes() };
        let mut loaded = run(&export, &load).await.unwrap();
        let asked = *export.asked.lock().unwrap();
        assert_eq!((loaded.reads.bytes, loaded.writes.bytes), (asked.bytes_read, asked.bytes_written));
        assert_ne!(loaded.reads.bytes, loaded.reads.requests * 4096);
        assert_eq!(loaded.steps.remove(0).bytes, asked.bytes_read + asked.bytes_written);
        assert_eq!(loaded.flushes.bytes, 0);
    }

    #[tokio::test]
    async fn each_step_has_what_was_done_in_it_and_all_have_all() {
        let export = Zeroes { waits: true, ..Zeroes::default() };
        let load = Load { read_percent: 50, flush_every: 3, step_ms: 20, ..load() };
        let mut loaded = run(&export, &load).await.unwrap();
        assert_eq!(loaded.steps.len(), 3);
        let all = |of: fn(&Step) -> u64, steps: &[Step]| steps.iter().map(of).sum::<u64>();
        assert_eq!(all(|step| step.requests, &loaded.steps), loaded.reads.requests + loaded.writes.requests);
        assert_eq!(all(|step| step.bytes, &loaded.steps), loaded.reads.bytes + loaded.writes.bytes);
        assert!(loaded.steps[0].requests > 0, "{loaded:?}");
        // Of clients together.
        let steps = std::mem::take(&mut loaded.steps);
        let one = || Tally { steps: steps.clone(), ..Tally::default() };
        let mut both = Tally::default();
        both.add(&one());
        both.add(&one());
        assert_eq!(all(|step| step.bytes, &both.figures().steps), 2 * all(|step| step.bytes, &steps));
    }

    #[tokio::test]
    async fn reads_alone_need_no_flush() {
        let export = Zeroes::default();
        let loaded = run(&export, &Load { read_percent: 100, flush_every: 1, ..load() }).await.unwrap();
        let asked = *export.asked.lock().unwrap();
        assert!(loaded.reads.requests > 0 && loaded.reads.requests == asked.reads);
        assert_eq!((asked.writes, asked.flushes), (0, 0));
        assert!(loaded.elapsed_ns >= 50_000_000, "{loaded:?}");
    }

    #[tokio::test]
    async fn what_is_done_before_the_time_that_counts_is_not_counted() {
        let export = Zeroes { over_at: Some(100), ..Zeroes::default() };
        let loaded = run(&export, &Load { ramp_seconds: 3600.0, ..load() }).await.unwrap();
        assert_eq!((loaded.writes.requests, loaded.elapsed_ns), (0, 0));
        assert_eq!(export.asked.lock().unwrap().writes, 100);
    }

    #[tokio::test]
    async fn the_first_request_that_fails_ends_it() {
        let export = Zeroes { fails_at: Some(5), ..Zeroes::default() };
        let error = run(&export, &Load { seconds: 3600.0, ..load() }).await.unwrap_err();
        assert_eq!((error.kind, export.asked.lock().unwrap().writes), (FailureKind::NoSpace, 5));
    }

    #[test]
    fn loads_out_of_bounds_are_refused_by_what_is_wrong() {
        check(&load(), 64 << 10).unwrap();
        check(&Load { clients: 2, offset_increment_bytes: 60_000, ..load() }, 64 << 10).unwrap();
        let share = |bytes, percent| vec![SizeShare { bytes, percent }];
        for (wrong, named) in [
            (Load { block_bytes: 0, ..load() }, "block_bytes"),
            (Load { block_bytes: MAX_REQUEST_BYTES + 1, extent_bytes: 1 << 40, ..load() }, "block_bytes"),
            (Load { extent_bytes: (64 << 10) + 1, ..load() }, "extent_bytes"),
            (Load { extent_bytes: 4095, ..load() }, "extent_bytes"),
            (Load { depth: 0, ..load() }, "depth"),
            (Load { depth: 257, ..load() }, "depth"),
            (Load { clients: 0, ..load() }, "clients"),
            (Load { clients: 65, ..load() }, "clients"),
            (Load { block_bytes: 64 << 10, depth: 256, clients: 17, ..load() }, "together"),
            (Load { read_percent: 101, ..load() }, "read_percent"),
            (Load { compressible_percent: 100, ..load() }, "compressible_percent"),
            (Load { seconds: f64::NAN, ..load() }, "seconds"),
            (Load { seconds: 1e9, ..load() }, "seconds"),
            (Load { ramp_seconds: -1.0, ..load() }, "ramp_seconds"),
            (Load { step_ms: 1, seconds: 1.1, ..load() }, "step_ms"),
            (Load { read_sizes: share(4096, 99), ..load() }, "read_sizes"),
            (Load { write_sizes: [share(4096, 100), share(8192, 0)].concat(), ..load() }, "write_sizes"),
            (Load { write_sizes: [share(1, 50), share(8192, 50)].concat(), ..load() }, "write_sizes: 1 "),
            (Load { read_sizes: share(128 << 10, 100), ..load() }, "extent_bytes"),
            (Load { clients: 2, offset_increment_bytes: 61_441, ..load() }, "last of 2 clients"),
            (Load { clients: 3, offset_increment_bytes: u64::MAX / 2, ..load() }, "last of 3 clients"),
            (Load { zipf: Some(1.0), ..load() }, "zipf"),
            (Load { zipf: Some(f64::INFINITY), ..load() }, "zipf"),
        ] {
            let error = check(&wrong, 64 << 10).unwrap_err();
            assert!(error.message.contains(named), "{named}: {error}");
        }
    }
}
