//! `scrub-of-death`: can a scrub with bad hardware kill a good pool?
//!
//! Each act has a new pool on good disks, and goes so:
//!
//! 1. The volume is filled, with good hardware.
//! 2. Hardware goes bad, and scrubs run or the volume is written again.
//! 3. Hardware is good again. A scrub finds and mends what it can.
//! 4. All blocks are read and compared with what they must be: those that are wrong or cannot be read are
//!    lost.
//!
//! Only blocks of the volume and their parity are spoiled ([`super::spoiled`]). A pool whose metadata fail as
//! well stops sooner, which helps the data.

use std::path::Path;

use anyhow::Result;
use device::block_on;
use engine::inject::{Blocks, Fault, Flip};
use engine::pool::live::Layout;
use lab::scenario::{Bar, Part, Plot, Results, Scenario, Unit, bytes};
use serde::Serialize;

use super::bed::{Bed, Lost, MIB, Plan, named};

const LAYOUTS: [[(Layout, usize); 1]; 2] = [[(Layout::Mirror, 2)], [(Layout::Raidz { nparity: 1 }, 4)]];
/// Parity of a block of this size, on a raidz1 of 4, is that of an odd number of sectors: it is spoiled too.
const BLOCK_BYTES: u64 = 16 << 10;
/// One in so many sectors, where memory is bad now and then.
const NOW_AND_THEN: u64 = 20;
/// One in ten blocks, of a million.
const TENTH: u32 = 100_000;

/// What goes bad.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Act {
    MemoryNowAndThen,
    MemoryAlways,
    OneController,
    BothControllers,
    MemoryBeforeChecksum,
    MemoryAfterChecksum,
    ControllersAtWrites,
}

const ACTS: [Act; 7] = [
    Act::MemoryNowAndThen,
    Act::MemoryAlways,
    Act::OneController,
    Act::BothControllers,
    Act::MemoryBeforeChecksum,
    Act::MemoryAfterChecksum,
    Act::ControllersAtWrites,
];

/// What came of an act.
#[derive(Debug, Clone, Serialize)]
struct Outcome {
    layout: String,
    act: &'static str,
    story: String,
    /// Blocks of the volume.
    blocks: u64,
    /// Bits that flipped.
    flipped: u64,
    /// Bytes of the volume and its parity that scrubs wrote while hardware was bad.
    overwritten_bytes: u64,
    /// Of these, sectors that got a wrong bit on their way.
    overwritten_wrong_sectors: u64,
    /// Blocks that scrubs with bad hardware found unreadable.
    unrepaired: u64,
    /// Copies, or columns of a raidz, that the scrub with good hardware found wrong.
    found: u64,
    /// Bytes that this scrub mended.
    mended_bytes: u64,
    /// Blocks that it could not mend.
    unmended: u64,
    /// What is lost in the end.
    lost: Lost,
    meaning: String,
}

impl Act {
    fn name(self) -> &'static str {
        match self {
            Self::MemoryNowAndThen => "memory, now and then",
            Self::MemoryAlways => "memory, every buffer",
            Self::OneController => "controller of one disk",
            Self::BothControllers => "controllers in turn",
            Self::MemoryBeforeChecksum => "memory before checksums",
            Self::MemoryAfterChecksum => "memory after checksums",
            Self::ControllersAtWrites => "controllers at writes",
        }
    }

    fn story(self) -> String {
        match self {
            Self::MemoryNowAndThen => format!(
                "a scrub, while one in {NOW_AND_THEN} sectors that are read, of any disk, gets a flipped \
                 bit in memory"
            ),
            Self::MemoryAlways => {
                "a scrub, while every sector that is read gets a flipped bit in memory: all \
                copies of each block fail"
                    .into()
            }
            Self::OneController => {
                "a scrub, while the controller of one disk flips a bit in each sector that \
                is read or written"
                    .into()
            }
            Self::BothControllers => {
                "the same; then a second scrub, while the controller of another disk does \
                so and the first is good again"
                    .into()
            }
            Self::MemoryBeforeChecksum => {
                "the volume is written again, while one in ten blocks gets a flipped \
                bit before its checksum is made"
                    .into()
            }
            Self::MemoryAfterChecksum => {
                "the volume is written again, while one in ten blocks gets a flipped \
                bit after its checksum was made"
                    .into()
            }
            Self::ControllersAtWrites => {
                "the volume is written again, while the controllers of two disks flip \
                a bit in each sector that is written"
                    .into()
            }
        }
    }

    /// Plays the act on a pool whose hardware is good again afterwards. Gives blocks that scrubs found
    /// unreadable, and the generation that the volume must hold.
    fn play(self, bed: &Bed) -> Result<(u64, u64)> {
        let scrub = || bed.scrub().map(|scan| (scan.errors, 1));
        let everywhere = |reads, writes| bed.disks.iter().for_each(|disk| disk.spoil(reads, writes));
        let played = match self {
            Self::MemoryNowAndThen => {
                everywhere(NOW_AND_THEN, 0);
                scrub()?
            }
            Self::MemoryAlways => {
                everywhere(1, 0);
                scrub()?
            }
            Self::OneController => {
                bed.disks[1].spoil(1, 1);
                scrub()?
            }
            Self::BothControllers => {
                bed.disks[1].spoil(1, 1);
                let first = scrub()?.0;
                bed.disks[1].spoil(0, 0);
                bed.disks[0].spoil(1, 1);
                (first + scrub()?.0, 1)
            }
            Self::MemoryBeforeChecksum => write_with(bed, Flip::BeforeChecksum)?,
            Self::MemoryAfterChecksum => write_with(bed, Flip::AfterChecksum)?,
            Self::ControllersAtWrites => {
                bed.disks[0].spoil(0, 1);
                bed.disks[1].spoil(0, 1);
                bed.write(2)?;
                (0, 2)
            }
        };
        everywhere(0, 0);
        Ok(played)
    }

    /// One sentence.
    fn meaning(self, it: &Outcome) -> String {
        let lost = it.lost.wrong + it.lost.unreadable;
        let spoils_writes = matches!(
            self,
            Self::MemoryBeforeChecksum | Self::MemoryAfterChecksum | Self::ControllersAtWrites
        );
        if !spoils_writes && lost > 0 {
            return format!("{lost} blocks are lost to the scrub, which must never be: please report this.");
        }
        let overwritten = bytes(it.overwritten_bytes as f64);
        match self {
            Self::MemoryNowAndThen => format!(
                "The scrub read again what failed, rewrote {overwritten} that failed again with the same \
                 good bytes, reported {} blocks without a good copy, and lost nothing: what it writes has \
                 passed its checksum.",
                it.unrepaired
            ),
            Self::MemoryAlways => format!(
                "With no copy that passes, the scrub wrote {overwritten}, reported {} blocks, and left the \
                 disks as they were; nothing is lost.",
                it.unrepaired
            ),
            Self::OneController => format!(
                "The scrub overwrote {overwritten} of the good disk with garbage, and the redundancy was \
                 gone for a while; the next good scrub mended all from the other disks."
            ),
            Self::BothControllers => {
                "The second scrub found no copy that passes and wrote nothing over the last \
                good one; the next good scrub mended all."
                    .into()
            }
            Self::MemoryBeforeChecksum => format!(
                "{} blocks are wrong and no scrub can find them, because their checksums are right: only ECC \
                 memory helps here.",
                it.lost.wrong
            ),
            Self::MemoryAfterChecksum => format!(
                "{} blocks cannot be read, because all copies were made of the same wrong bytes; the \
                 checksum reports each of them.",
                it.lost.unreadable
            ),
            Self::ControllersAtWrites => format!(
                "{} blocks are lost, reported and not handed out wrong: it is bad writes beyond redundancy \
                 that kill data, with or without a scrub.",
                it.lost.unreadable
            ),
        }
    }
}

/// Writes the volume again with memory that flips bits of one in ten blocks.
fn write_with(bed: &Bed, flip: Flip) -> Result<(u64, u64)> {
    let (objset, object) = (bed.objset.get(), Some(1));
    let blocks = Blocks { objset, object, level: Some(0), blocks: (0, u64::MAX), copies: 0 };
    bed.pool.inject(Fault::Memory { blocks, flip }, TENTH)?;
    bed.write(2)?;
    Ok((0, 2))
}

/// Plays all acts.
pub fn play(scenario: Scenario, directory: &Path, quick: bool) -> Result<Results> {
    let volume_bytes = if quick { 8 * MIB } else { 128 * MIB };
    let mut parts = Vec::new();
    let mut outcomes = Vec::new();
    for tops in &LAYOUTS {
        let disk_bytes = 4 * volume_bytes + 128 * MIB;
        let plan = Plan { tops, disk_bytes, volume_bytes, block_bytes: BLOCK_BYTES, model: None };
        let mut of_layout = Vec::new();
        for act in ACTS {
            eprintln!("{}: {}", named(tops), act.name());
            of_layout.push(outcome(directory, &plan, act)?);
        }
        parts.push(part(&named(tops), &of_layout));
        outcomes.extend(of_layout);
    }
    let facts = vec![
        format!(
            "Each act had a new pool with a volume of {} in blocks of 16 KiB, of bytes that do not compress.",
            bytes(volume_bytes as f64)
        ),
        "Only blocks of the volume and their parity were spoiled, so that scrubs could walk the \
         metadata."
            .into(),
        "Overwritten: bytes of the volume and its parity that reached the disks from scrubs with bad \
         hardware."
            .into(),
        "Mended: what one scrub with good hardware rewrote afterwards. Lost: blocks that are wrong, or \
         cannot be read, after that."
            .into(),
    ];
    let figures = serde_json::to_value(&outcomes)?;
    Ok(Results { scenario, is_quick: quick, caution: None, parts, facts, figures })
}

fn outcome(directory: &Path, plan: &Plan<'_>, act: Act) -> Result<Outcome> {
    let bed = Bed::new(directory, plan)?;
    let written = |bed: &Bed| bed.disks.iter().map(|disk| disk.writes.content_bytes()).sum::<u64>();
    let flipped = |bed: &Bed| {
        let of_writes: u64 = bed.disks.iter().map(|disk| disk.writes.flipped()).sum();
        let of_reads: u64 = bed.disks.iter().map(|disk| disk.reads.flipped()).sum();
        let in_memory: u64 = bed.pool.injections().iter().map(|handler| handler.counts().1).sum();
        (of_writes, of_reads + of_writes + in_memory)
    };
    let before = written(&bed);
    let (unrepaired, generation) = act.play(&bed)?;
    let (flipped_writes, flipped) = flipped(&bed);
    // Where the volume was written again, no scrub ran.
    let is_of_scrubs = generation == 1;
    let overwritten_bytes = if is_of_scrubs { written(&bed) - before } else { 0 };
    // Hardware is good from here on.
    bed.pool.clear_injections(None);
    block_on(bed.pool.clear(None))?;
    bed.pool.flush_cache();
    let scan = bed.scrub()?;
    let mut outcome = Outcome {
        layout: named(plan.tops),
        act: act.name(),
        story: act.story(),
        blocks: bed.blocks(),
        flipped,
        overwritten_bytes,
        overwritten_wrong_sectors: if is_of_scrubs { flipped_writes } else { 0 },
        unrepaired,
        found: bed.checksum_errors(),
        mended_bytes: scan.processed,
        unmended: scan.errors,
        lost: bed.verify(generation),
        meaning: String::new(),
    };
    outcome.meaning = act.meaning(&outcome);
    bed.end()?;
    Ok(outcome)
}

fn part(layout: &str, outcomes: &[Outcome]) -> Part {
    let row = |it: &Outcome| {
        let Lost { wrong, unreadable } = it.lost;
        vec![
            it.act.to_owned(),
            it.flipped.to_string(),
            bytes(it.overwritten_bytes as f64),
            it.unrepaired.to_string(),
            bytes(it.mended_bytes as f64),
            it.unmended.to_string(),
            wrong.to_string(),
            unreadable.to_string(),
        ]
    };
    let bar = |label: &str, value: u64, text: String, is_bad| Bar {
        label: label.to_owned(),
        value: value as f64,
        text,
        is_bad,
    };
    let lost = outcomes.iter().map(|it| {
        let lost = it.lost.wrong + it.lost.unreadable;
        bar(it.act, lost, format!("{lost} of {}", it.blocks), true)
    });
    let overwritten = outcomes.iter().map(|it| {
        bar(
            it.act,
            it.overwritten_bytes,
            bytes(it.overwritten_bytes as f64),
            it.overwritten_wrong_sectors > 0,
        )
    });
    Part {
        title: layout.to_owned(),
        head: vec![
            "what is bad",
            "bits flipped",
            "scrub overwrote",
            "blocks it reported",
            "good scrub mended",
            "could not",
            "lost: wrong",
            "lost: unreadable",
        ],
        rows: outcomes.iter().map(row).collect(),
        sentences: outcomes.iter().map(|it| format!("{}: {}. {}", it.act, it.story, it.meaning)).collect(),
        plots: vec![
            Plot { title: "Blocks lost in the end".into(), unit: Unit::Count, bars: lost.collect() },
            Plot {
                title: "Bytes that scrubs with bad hardware overwrote".into(),
                unit: Unit::Bytes,
                bars: overwritten.collect(),
            },
        ],
    }
}
