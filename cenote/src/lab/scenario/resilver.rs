//! `resilver`: how long a new disk takes to get what the dead one held, and what clients notice of it.
//!
//! Disks play a model with an arm, scaled down: seeks span the whole small disk. A disk is taken offline, as
//! one that died, and a new one replaces it: first with an idle pool, then while clients read blocks of 8 KiB
//! at random. The same figures are predicted by `cenote lab model rebuild`.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use device::block_on;
use device::simulated::Model;
use engine::pool::live::{Layout, TakeOffline};
use engine::vdev::Class;
use engine::vdev::topology::Purpose;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use lab::models::rebuild::{Devices, Rebuild};
use lab::scenario::{Bar, Part, Plot, Results, Scenario, Unit, bytes};
use lab::size::Size;
use ondisk::Guid;
use serde::Serialize;

use super::bed::{Bed, CACHE_BYTES, MIB, Plan, named};

/// What disks play.
pub const MODEL: Model = Model::HDD_7200;
const LAYOUTS: [[(Layout, usize); 1]; 3] =
    [[(Layout::Mirror, 2)], [(Layout::Raidz { nparity: 1 }, 4)], [(Layout::Raidz { nparity: 2 }, 6)]];
pub const BLOCK_BYTES: u64 = 64 << 10;
const READ_BYTES: usize = 8 << 10;
/// Reads of clients under way.
const READERS: usize = 2;

/// Latencies of clients.
#[derive(Debug, Clone, Copy, Serialize)]
struct Latency {
    reads: usize,
    p50_ms: f64,
    p99_ms: f64,
}

/// One replaced disk.
#[derive(Debug, Clone, Serialize)]
struct Replaced {
    seconds: f64,
    /// Bytes that the resilver read of all other disks.
    read_bytes: u64,
    /// Bytes that the new disk got.
    written_bytes: u64,
    /// Of clients meanwhile, if there were any.
    during: Option<Latency>,
}

/// What came of a layout.
#[derive(Debug, Clone, Serialize)]
struct Outcome {
    layout: String,
    /// Bytes that each disk held.
    held_bytes: u64,
    idle: Replaced,
    loaded: Replaced,
    before: Latency,
    predicted: Rebuild,
}

/// Plays it.
pub fn play(scenario: Scenario, directory: &Path, quick: bool) -> Result<Results> {
    let (disk_bytes, held_bytes) = if quick { (256 * MIB, 24 * MIB) } else { (1024 * MIB, 384 * MIB) };
    let seconds = if quick { 2 } else { 15 };
    let mut outcomes = Vec::new();
    for tops in &LAYOUTS {
        let data_disks = match tops[0] {
            (Layout::Raidz { nparity }, count) => count as u64 - u64::from(nparity),
            _ => 1,
        };
        let volume_bytes = held_bytes * data_disks / BLOCK_BYTES * BLOCK_BYTES;
        let model = Some(MODEL);
        let plan = Plan { tops, disk_bytes, volume_bytes, block_bytes: BLOCK_BYTES, model };
        outcomes.push(outcome(directory, &plan, Duration::from_secs(seconds))?);
    }
    let caution = format!("The disks are modelled: {MODEL}, scaled down to {}.", bytes(disk_bytes as f64));
    let facts = vec![
        format!(
            "Each disk held about {} of {}, in blocks of 64 KiB of a full volume; blocks lay in the order in \
             which they were written.",
            bytes(held_bytes as f64),
            bytes(disk_bytes as f64)
        ),
        "The old disk was taken offline first, as one that died. The time is from the replacement until the \
         new disk lacks nothing."
            .into(),
        format!(
            "Clients read 8 KiB at random, {READERS} at a time, past a cache of {}.",
            bytes(CACHE_BYTES as f64)
        ),
        "Predicted by `cenote lab model rebuild`: at best in order at full bandwidth, at worst with a random \
         access for each block's piece, if nothing else uses the disks."
            .into(),
        "Read of others: of a raidz the resilver reads all columns that are left; the prediction has those \
         that are needed."
            .into(),
    ];
    let figures = serde_json::to_value(&outcomes)?;
    let parts = vec![times(&outcomes), latencies(&outcomes)];
    Ok(Results { scenario, is_quick: quick, caution: Some(caution), parts, facts, figures })
}

fn outcome(directory: &Path, plan: &Plan<'_>, time: Duration) -> Result<Outcome> {
    let layout = named(plan.tops);
    eprintln!("{layout}: filling");
    let mut bed = Bed::new(directory, plan)?;
    let held_bytes = held(&bed, plan);
    eprintln!("{layout}: replacing a disk of an idle pool");
    let idle = replace(&mut bed, plan.disk_bytes, false)?;
    let stop = AtomicBool::new(false);
    let began = Instant::now();
    let before = read_until(&bed, || began.elapsed() >= time || stop.load(Ordering::Relaxed))?;
    eprintln!("{layout}: replacing a disk under load");
    let loaded = replace(&mut bed, plan.disk_bytes, true)?;
    bed.end()?;
    let data_disks = match plan.tops[0] {
        (Layout::Raidz { nparity }, count) => count as u64 - u64::from(nparity),
        _ => 1,
    };
    let piece = (BLOCK_BYTES / data_disks).next_multiple_of(4096);
    let full = held_bytes as f64 / plan.disk_bytes as f64;
    let devices = Devices::of_model(MODEL, Size(plan.disk_bytes), full, Size(piece))?;
    let predicted = Rebuild::of(&layout.parse().map_err(anyhow::Error::msg)?, devices)?;
    Ok(Outcome { layout, held_bytes, idle, loaded, before, predicted })
}

/// Bytes that are allocated on each disk.
fn held(bed: &Bed, plan: &Plan<'_>) -> u64 {
    let allocated = bed.pool.allocator().space(Class::Normal).allocated_bytes;
    match plan.tops[0] {
        (Layout::Raidz { .. }, count) => allocated / count as u64,
        _ => allocated,
    }
}

/// Replaces the first disk, which is dead. With clients, or without.
fn replace(bed: &mut Bed, bytes: u64, under_load: bool) -> Result<Replaced> {
    let old = bed.leaves().next().context("the pool has no disk")?.guid;
    block_on(bed.pool.offline(old, TakeOffline::Persistently))?;
    let others: Vec<Guid> = bed.leaves().map(|leaf| leaf.guid).filter(|guid| *guid != old).collect();
    let new = bed.new_disk(bytes)?;
    let device = bed.disks.last().context("there is no new disk")?.clone();
    let read = |bed: &Bed| others.iter().map(|leaf| bed.scan_bytes(*leaf)).sum::<u64>();
    let read_before = read(bed);
    let bed = &*bed;
    let began = Instant::now();
    let guid = block_on(bed.pool.attach(old, new, Purpose::Replace, None))?;
    let is_done = AtomicBool::new(false);
    let (seconds, during) = std::thread::scope(|scope| -> Result<_> {
        let clients = under_load.then(|| scope.spawn(|| read_until(bed, || is_done.load(Ordering::Relaxed))));
        let waited = bed.wait("a resilver", || !bed.lacks(guid));
        let seconds = began.elapsed().as_secs_f64();
        is_done.store(true, Ordering::Relaxed);
        let during =
            clients.map(|clients| clients.join().unwrap_or_else(|_| anyhow::bail!("a client failed")));
        waited?;
        Ok((seconds, during.transpose()?))
    })?;
    let (read_bytes, written_bytes) = (read(bed) - read_before, device.writes.bytes());
    bed.wait("a replacement", || !bed.is_replacing() && !bed.is_scanning())?;
    Ok(Replaced { seconds, read_bytes, written_bytes, during })
}

/// Reads at random until it is to end.
fn read_until(bed: &Bed, is_done: impl Fn() -> bool) -> Result<Latency> {
    let mut random = fastrand::Rng::with_seed(5);
    let slots = bed.volume_bytes / READ_BYTES as u64;
    let mut took: Vec<f64> = Vec::new();
    block_on(async {
        let mut flying = FuturesUnordered::new();
        while !is_done() {
            while flying.len() < READERS {
                let at = random.u64(..slots) * READ_BYTES as u64;
                flying.push(async move {
                    let began = Instant::now();
                    let mut into = [0; READ_BYTES];
                    bed.volume.read_at(at, &mut into).await?;
                    Ok::<_, anyhow::Error>(began.elapsed().as_secs_f64() * 1e3)
                });
            }
            if let Some(read) = flying.next().await {
                took.push(read?);
            }
        }
        Ok::<_, anyhow::Error>(())
    })?;
    took.sort_by(f64::total_cmp);
    let at = |percent: usize| took.get(took.len() * percent / 100).copied().unwrap_or(0.0);
    Ok(Latency { reads: took.len(), p50_ms: at(50), p99_ms: at(99) })
}

fn bar(label: String, value: f64, text: String, is_bad: bool) -> Bar {
    Bar { label, value, text, is_bad }
}

fn times(outcomes: &[Outcome]) -> Part {
    let row = |it: &Outcome, of: &Replaced, how: &str| {
        let best = it.predicted.seconds_at_best;
        vec![
            it.layout.clone(),
            how.to_owned(),
            format!("{:.2} s", of.seconds),
            format!("{best:.2} s to {:.1} s", it.predicted.seconds_at_worst),
            format!("{:.2}", of.seconds / best),
            bytes(of.read_bytes as f64),
            format!("{:.2}", of.read_bytes as f64 / it.predicted.read),
            bytes(of.written_bytes as f64),
            format!("{:.2}", of.written_bytes as f64 / it.held_bytes as f64),
        ]
    };
    let rows = outcomes.iter().flat_map(|it| [row(it, &it.idle, "idle"), row(it, &it.loaded, "under load")]);
    let sentences = outcomes.iter().map(|it| {
        format!(
            "{}: {:.1} times the best time idle, {:.1} times under load; the other disks were read for {} \
             times what the new one got.",
            it.layout,
            it.idle.seconds / it.predicted.seconds_at_best,
            it.loaded.seconds / it.predicted.seconds_at_best,
            (it.idle.read_bytes as f64 / it.idle.written_bytes.max(1) as f64).round()
        )
    });
    let bars = outcomes.iter().flat_map(|it| {
        let text = |seconds: f64| format!("{seconds:.2} s");
        let best = it.predicted.seconds_at_best;
        [
            bar(format!("{}, predicted at best", it.layout), best, text(best), false),
            bar(format!("{}, idle", it.layout), it.idle.seconds, text(it.idle.seconds), false),
            bar(format!("{}, under load", it.layout), it.loaded.seconds, text(it.loaded.seconds), true),
        ]
    });
    Part {
        title: "Resilvers".into(),
        head: vec![
            "layout",
            "pool",
            "time",
            "predicted",
            "to best",
            "read of others",
            "to predicted",
            "written",
            "to held",
        ],
        rows: rows.collect(),
        sentences: sentences.collect(),
        plots: vec![Plot { title: "Time of a resilver".into(), unit: Unit::Seconds, bars: bars.collect() }],
    }
}

fn latencies(outcomes: &[Outcome]) -> Part {
    let row = |it: &Outcome, of: &Latency, when: &str| {
        vec![
            it.layout.clone(),
            when.to_owned(),
            of.reads.to_string(),
            format!("{:.1} ms", of.p50_ms),
            format!("{:.1} ms", of.p99_ms),
        ]
    };
    let with = |it: &Outcome, when: &str, of: &Latency| {
        let text = format!("{:.1} ms", of.p99_ms);
        bar(format!("{}, {when}", it.layout), of.p99_ms / 1000.0, text, when == "during")
    };
    let mut part = Part {
        title: "Clients: random reads of 8 KiB".into(),
        head: vec!["layout", "resilver", "reads", "p50", "p99"],
        rows: Vec::new(),
        sentences: Vec::new(),
        plots: Vec::new(),
    };
    let mut bars = Vec::new();
    for it in outcomes {
        let Some(during) = &it.loaded.during else { continue };
        part.rows.extend([row(it, &it.before, "before"), row(it, during, "during")]);
        bars.extend([with(it, "before", &it.before), with(it, "during", during)]);
        part.sentences.push(format!(
            "{}: during the resilver the median was {:.1} times and the 99th percentile {:.1} times that \
             before.",
            it.layout,
            during.p50_ms / it.before.p50_ms,
            during.p99_ms / it.before.p99_ms
        ));
    }
    part.plots.push(Plot { title: "99th percentile of clients' reads".into(), unit: Unit::Seconds, bars });
    part
}
