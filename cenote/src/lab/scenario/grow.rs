//! `grow`: a pool that gets larger disks, one after the other.
//!
//! Each disk is replaced by one of twice its size while it still works, with `autoexpand=on`. A vdev grows
//! when its last disk is large, so that mirrors give space after two replacements and raidz after all.

use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result};
use device::block_on;
use engine::pool::live::{Layout, properties};
use engine::vdev::topology::Purpose;
use lab::scenario::{Bar, Part, Plot, Results, Scenario, Unit, bytes};
use ondisk::Guid;
use serde::Serialize;

use super::bed::{Bed, MIB, Plan, named};
use super::resilver::{BLOCK_BYTES, MODEL};

const LAYOUTS: [&[(Layout, usize)]; 3] = [
    &[(Layout::Mirror, 2), (Layout::Mirror, 2)],
    &[(Layout::Raidz { nparity: 1 }, 4)],
    &[(Layout::Raidz { nparity: 2 }, 4)],
];

/// One replaced disk.
#[derive(Debug, Clone, Serialize)]
struct Step {
    seconds: f64,
    /// Bytes that the resilver read of all disks.
    read_bytes: u64,
    /// Bytes that the new disk got.
    written_bytes: u64,
    /// Bytes for data, after it.
    usable_bytes: u64,
}

/// What came of a layout.
#[derive(Debug, Clone, Serialize)]
struct Outcome {
    layout: String,
    /// Bytes for data, at first.
    usable_bytes: u64,
    steps: Vec<Step>,
    /// Blocks that are not what they were.
    lost: super::bed::Lost,
}

/// Plays it.
pub fn play(scenario: Scenario, directory: &Path, quick: bool) -> Result<Results> {
    let (disk_bytes, held_bytes) = if quick { (128 * MIB, 12 * MIB) } else { (1024 * MIB, 384 * MIB) };
    let mut outcomes = Vec::new();
    for tops in LAYOUTS {
        let data_disks: u64 = tops
            .iter()
            .map(|top| match top {
                (Layout::Raidz { nparity }, count) => *count as u64 - u64::from(*nparity),
                _ => 1,
            })
            .sum();
        let volume_bytes = held_bytes * data_disks / BLOCK_BYTES * BLOCK_BYTES;
        let model = Some(MODEL);
        let plan = Plan { tops, disk_bytes, volume_bytes, block_bytes: BLOCK_BYTES, model };
        outcomes.push(outcome(directory, &plan)?);
    }
    let caution = format!("The disks are modelled: {MODEL}, scaled down to {}.", bytes(disk_bytes as f64));
    let facts = vec![
        format!(
            "Four disks of {}, each with about {} of blocks of 64 KiB, were replaced one after the other by \
             disks of twice the size, with autoexpand=on and without other load.",
            bytes(disk_bytes as f64),
            bytes(held_bytes as f64)
        ),
        "The old disk stayed until the new one had everything, and was read too.".into(),
        "A time is from a replacement until the old disk is detached. In the end all blocks were read and \
         compared."
            .into(),
    ];
    let figures = serde_json::to_value(&outcomes)?;
    let parts = vec![summary(&outcomes), steps(&outcomes)];
    Ok(Results { scenario, is_quick: quick, caution: Some(caution), parts, facts, figures })
}

fn outcome(directory: &Path, plan: &Plan<'_>) -> Result<Outcome> {
    let layout = named(plan.tops);
    eprintln!("{layout}: filling");
    let mut bed = Bed::new(directory, plan)?;
    block_on(bed.pool.change(|s| async move { properties::set(&s, "autoexpand", "on").await }))?;
    let usable_bytes = bed.pool.allocator().usable_bytes();
    let old: Vec<Guid> = bed.leaves().map(|leaf| leaf.guid).collect();
    let mut steps = Vec::new();
    for (number, leaf) in old.iter().enumerate() {
        eprintln!("{layout}: replacing disk {} of {}", number + 1, old.len());
        steps.push(step(&mut bed, *leaf, 2 * plan.disk_bytes)?);
    }
    let lost = bed.verify(1);
    bed.end()?;
    Ok(Outcome { layout, usable_bytes, steps, lost })
}

fn step(bed: &mut Bed, old: Guid, bytes: u64) -> Result<Step> {
    let sources: Vec<Guid> = bed.leaves().map(|leaf| leaf.guid).collect();
    let read = |bed: &Bed| sources.iter().map(|leaf| bed.scan_bytes(*leaf)).collect::<Vec<u64>>();
    let new = bed.new_disk(bytes)?;
    let device = bed.disks.last().context("there is no new disk")?.clone();
    let before = read(bed);
    let mut last = before.clone();
    let began = Instant::now();
    let guid = block_on(bed.pool.attach(old, new, Purpose::Replace, None))?;
    let bed = &*bed;
    bed.wait("a resilver", || {
        // The old disk's counter goes with it.
        let now = read(bed);
        last.iter_mut().zip(now).for_each(|(last, now)| *last = now.max(*last));
        !bed.lacks(guid) && !bed.is_replacing()
    })?;
    let seconds = began.elapsed().as_secs_f64();
    bed.wait("a resilver", || !bed.is_scanning())?;
    // Sizes are looked at in the group after the one that detaches.
    for _ in 0..2 {
        block_on(bed.commit())?;
    }
    let read_bytes = last.iter().zip(&before).map(|(last, before)| last.saturating_sub(*before)).sum();
    let usable_bytes = bed.pool.allocator().usable_bytes();
    Ok(Step { seconds, read_bytes, written_bytes: device.writes.bytes(), usable_bytes })
}

impl Outcome {
    /// After how many replacements there was more space for the first time.
    fn first_space(&self) -> Option<usize> {
        let more = self.steps.iter().position(|step| step.usable_bytes > self.usable_bytes);
        more.map(|index| index + 1)
    }

    fn sum(&self, of: impl Fn(&Step) -> u64) -> u64 {
        self.steps.iter().map(of).sum()
    }

    fn seconds(&self, steps: usize) -> f64 {
        self.steps.iter().take(steps).map(|step| step.seconds).sum()
    }

    fn last_usable_bytes(&self) -> u64 {
        self.steps.last().map_or(self.usable_bytes, |step| step.usable_bytes)
    }

    fn meaning(&self) -> String {
        let lost = self.lost.wrong + self.lost.unreadable;
        let space = match self.first_space() {
            Some(first) => format!(
                "the first new space came after {first} of {} replacements ({:.1} s)",
                self.steps.len(),
                self.seconds(first)
            ),
            None => "no new space came".into(),
        };
        let lost = if lost == 0 { "nothing was lost".into() } else { format!("{lost} blocks were lost") };
        format!(
            "{}: {space}, and all of it, {}, after {:.1} s; {lost}.",
            self.layout,
            bytes((self.last_usable_bytes() - self.usable_bytes.min(self.last_usable_bytes())) as f64),
            self.seconds(self.steps.len())
        )
    }
}

fn summary(outcomes: &[Outcome]) -> Part {
    let row = |it: &Outcome| {
        vec![
            it.layout.clone(),
            bytes(it.usable_bytes as f64),
            bytes(it.last_usable_bytes() as f64),
            it.first_space().map_or("-".into(), |first| first.to_string()),
            format!("{:.2} s", it.seconds(it.steps.len())),
            bytes(it.sum(|step| step.read_bytes) as f64),
            bytes(it.sum(|step| step.written_bytes) as f64),
        ]
    };
    let bar = |it: &Outcome| {
        let seconds = it.seconds(it.steps.len());
        Bar { label: it.layout.clone(), value: seconds, text: format!("{seconds:.2} s"), is_bad: false }
    };
    Part {
        title: "Four larger disks".into(),
        head: vec![
            "layout",
            "space before",
            "after",
            "first new space after disk",
            "time",
            "read",
            "written",
        ],
        rows: outcomes.iter().map(row).collect(),
        sentences: outcomes.iter().map(Outcome::meaning).collect(),
        plots: vec![Plot {
            title: "Time of all replacements".into(),
            unit: Unit::Seconds,
            bars: outcomes.iter().map(bar).collect(),
        }],
    }
}

fn steps(outcomes: &[Outcome]) -> Part {
    let rows = outcomes.iter().flat_map(|it| {
        it.steps.iter().enumerate().map(|(index, step)| {
            vec![
                it.layout.clone(),
                (index + 1).to_string(),
                format!("{:.2} s", step.seconds),
                bytes(step.read_bytes as f64),
                bytes(step.written_bytes as f64),
                bytes(step.usable_bytes as f64),
            ]
        })
    });
    let bars = outcomes.iter().flat_map(|it| {
        it.steps.iter().enumerate().map(|(index, step)| Bar {
            label: format!("{}, disk {}", it.layout, index + 1),
            value: step.usable_bytes as f64,
            text: bytes(step.usable_bytes as f64),
            is_bad: false,
        })
    });
    Part {
        title: "Disk by disk".into(),
        head: vec!["layout", "disk", "time", "read", "written", "space for data"],
        rows: rows.collect(),
        sentences: Vec::new(),
        plots: vec![Plot {
            title: "Space for data after each disk".into(),
            unit: Unit::Bytes,
            bars: bars.collect(),
        }],
    }
}
