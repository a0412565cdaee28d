//! What takes more space than it needs, or fills a pool.

use std::path::Path;

use super::proof::{
    MEMORY_SHARE, block_experiment, experiment, made, named, volumes_and_filesystems, with_own,
};
use crate::advice::observations::{Dataset, Leaf, Observations, Top};
use crate::advice::{Advice, Weight};
use crate::layout::Vdev;
use crate::models::{bytes, percent, space};
use crate::size::Size;

/// Times the best possible space from which on a block size is reported.
const TOLD_SPACE: f64 = 1.15;
/// Blocks that are advised: a sector to the most that a volume has by default.
const ADVISED_BLOCKS: std::ops::RangeInclusive<u32> = 12..=17;
/// The share of the best possible efficiency that is as good.
const NEARLY: f64 = 0.95;
/// Devices of a raidz vdev that are called many.
const WIDE: u64 = 12;
/// The share of a pool from which on free space is hard to find.
const FULL: f64 = 0.8;

pub(super) fn copy_on_write_twice(seen: &Observations) -> Vec<Advice> {
    let advice = |leaf: &Leaf| {
        let below = leaf.medium.copies_on_write()?;
        Some(Advice {
            rule: "copy-on-write-twice",
            weight: Weight::Cost,
            about: leaf.path.clone(),
            change: "put the device on a partition, a logical volume, or a file without copy-on-write \
                (chattr +C on btrfs)"
                .into(),
            evidence: format!("the device is {below}, which copies on write too"),
            gain: "no second amplification, checksum and fragmentation of each write".into(),
            cost: format!("the pool's device is moved: {}zpool replace", seen.program),
            risk: "a rebuild loads the other devices".into(),
            proof: {
                let name = named("copy-on-write-twice", &leaf.path);
                // A volume has to be given a filesystem first.
                let is_file = leaf.medium.filesystem.is_some();
                let beside = Path::new(&leaf.path).parent().unwrap_or(Path::new("/"));
                let beside = if is_file { beside } else { Path::new("A-FILESYSTEM-ON-SUCH-A-VOLUME") };
                let beside = beside.join(&name).display().to_string();
                format!(
                    "the same experiment with its devices, which are in the directory of its results, beside \
                     this one and in a directory ELSEWHERE on a filesystem that writes in place: {} && \
                     cenote lab run {name}.toml -o '{beside}' && cenote lab run {name}.toml -o \
                     ELSEWHERE/{name} && cenote lab compare '{beside}' ELSEWHERE/{name}",
                    made(&name, "volblocksize", "", &["compression=lz4,off".into()])
                )
            },
        })
    };
    seen.leaves.iter().filter_map(advice).collect()
}

pub(super) fn misaligned(seen: &Observations) -> Vec<Advice> {
    let mut advice: Vec<Advice> = Vec::new();
    for leaf in &seen.leaves {
        let Some(unit) = leaf.medium.unit.filter(|unit| *unit > 1 << leaf.ashift) else { continue };
        if advice.iter().any(|known| known.about == leaf.top) {
            continue;
        }
        let right = unit.ilog2().clamp(9, 16);
        advice.push(Advice {
            rule: "misaligned",
            weight: Weight::Cost,
            about: leaf.top.clone(),
            change: format!("recreate the vdev with ashift={right}"),
            evidence: format!(
                "ashift={} writes {} bytes, {} writes {unit} in one \
                piece",
                leaf.ashift,
                1_u64 << leaf.ashift,
                leaf.path
            ),
            gain: "small writes cost no read and no second write on the device".into(),
            cost: "small blocks take a whole sector; the sector size of a vdev cannot be changed \
                afterwards"
                .into(),
            risk: "the pool, or on mirrors the vdev, must be copied".into(),
            proof: experiment(
                seen,
                &named("misaligned", &format!("{}-{}", seen.pool, leaf.top)),
                "volblocksize",
                "",
                &[format!("ashift={},{right}", leaf.ashift)],
            ),
        });
    }
    advice
}

pub(super) fn blocks_below_sectors(seen: &Observations) -> Vec<Advice> {
    let advice = |dataset: &Dataset| {
        let (block, top) = (dataset.block()?, seen.tops.iter().max_by_key(|top| top.ashift)?);
        (block < 1 << top.ashift).then(|| Advice {
            rule: "blocks-below-sectors",
            weight: Weight::Cost,
            about: dataset.name.clone(),
            change: format!("use blocks of at least {}", Size(1 << top.ashift)),
            evidence: format!(
                "blocks of {}, sectors of {} on {}",
                Size(block),
                Size(1 << top.ashift),
                top.name
            ),
            gain: format!("{} times less space", (1 << top.ashift) / block.max(1)),
            cost: "smaller writes read the rest of their block".into(),
            risk: "the dataset must be copied".into(),
            proof: block_experiment(
                seen,
                &named("blocks-below-sectors", &dataset.name),
                dataset,
                [block, 1 << top.ashift],
                // The lab's own devices have smaller ones, so that both are shown.
                &[format!("ashift={},9", top.ashift)],
            ),
        })
    };
    volumes_and_filesystems(seen).filter_map(advice).collect()
}

/// The smallest block that has nearly the best efficiency that any has on a vdev: larger ones save little
/// more, and a write that is smaller than its block reads and writes all of it.
pub(super) fn smallest_efficient(top: &Top) -> u64 {
    let of = |bits: u32| space::cost(top.vdev, top.ashift, 1 << bits).efficiency;
    let best = ADVISED_BLOCKS.map(of).fold(0.0, f64::max);
    let bits = ADVISED_BLOCKS.into_iter().find(|bits| of(*bits) >= NEARLY * best);
    1 << bits.unwrap_or(*ADVISED_BLOCKS.end())
}

pub(super) fn small_blocks(seen: &Observations) -> Vec<Advice> {
    let advice = |dataset: &Dataset| {
        let block = dataset.block()?;
        let top = seen.costliest(block)?;
        let better = smallest_efficient(top);
        if !matches!(top.vdev, Vdev::Raidz { .. } | Vdev::Draid { .. }) || block >= better {
            return None;
        }
        let of = |block| space::cost(top.vdev, top.ashift, block).efficiency;
        let (now, then) = (of(block), of(better));
        if then / now < TOLD_SPACE {
            return None;
        }
        let property = if dataset.is_volume { "volblocksize" } else { "recordsize" };
        Some(Advice {
            rule: "small-blocks",
            weight: Weight::Cost,
            about: dataset.name.clone(),
            change: format!("use {property}={}, or mirrors", Size(better)),
            evidence: format!(
                "{property}={} on {} with sectors of {}: {} of the space is data, with {} it is {}; that is \
                 the smallest block near the optimum of this width; larger ones would make small writes more \
                 expensive for little gain",
                Size(block),
                top.name,
                Size(1 << top.ashift),
                percent(now),
                Size(better),
                percent(then)
            ),
            gain: format!("{:.2} times less space and fewer writes", then / now),
            cost: "writes smaller than a block read and write all of it".into(),
            risk: format!(
                "the dataset must be copied; random writes smaller than {} get slower",
                Size(better)
            ),
            proof: block_experiment(
                seen,
                &named("small-blocks", &dataset.name),
                dataset,
                [block, better],
                &[],
            ),
        })
    };
    // A filesystem's small files have small blocks anyway; the default of a large one is fine.
    volumes_and_filesystems(seen).filter_map(advice).collect()
}

pub(super) fn wide_raidz(seen: &Observations) -> Vec<Advice> {
    let advice = |top: &Top| {
        let Vdev::Raidz { parity, width } = top.vdev else { return None };
        if width < WIDE {
            return None;
        }
        let half = width / 2;
        let narrow = format!("raidz{parity} {half} + raidz{parity} {}", width - half);
        Some(Advice {
            rule: "wide-raidz",
            weight: Weight::Cost,
            about: top.name.clone(),
            change: format!("use two vdevs ({narrow}) when the pool is recreated"),
            evidence: format!(
                "{width} devices in one raidz{parity} vdev, which reads small blocks about as fast as one \
                 device"
            ),
            gain: "twice the random IOPS, and half of the devices loaded by a rebuild".into(),
            cost: match parity {
                1 => "one device more for parity".into(),
                _ => format!("{parity} devices more for parity"),
            },
            risk: "the pool must be copied".into(),
            proof: {
                // Files on one device would all share its speed.
                let name = named("wide-raidz", &format!("{}-{}", seen.pool, top.name));
                let factors = [format!("layout=raidz{parity} {width},{narrow}")];
                format!(
                    "with modelled disks, one for each device: {} && cenote lab run {name}.toml",
                    made(&name, "striped-mirrors", "", &factors)
                )
            },
        })
    };
    seen.tops.iter().filter_map(advice).collect()
}

pub(super) fn dedup(seen: &Observations) -> Vec<Advice> {
    let uses = volumes_and_filesystems(seen).find(|dataset| !["", "off"].contains(&dataset.text("dedup")));
    let room = seen.machine.memory_bytes as f64 * MEMORY_SHARE;
    let does_not_fit = seen.dedup_table as f64 > room;
    let gives_little = uses.is_some() && seen.dedup_ratio < 1.5;
    if !does_not_fit && !gives_little {
        return Vec::new();
    }
    let name = uses.map_or(&seen.pool, |dataset| &dataset.name);
    vec![Advice {
        rule: "dedup",
        weight: Weight::Cost,
        about: name.clone(),
        change: "set dedup=off and rewrite the data, unless the sample below finds much more".into(),
        evidence: format!(
            "dedup saves {:.2} times; its table takes {}, and a quarter of the memory is {}",
            seen.dedup_ratio,
            bytes(seen.dedup_table as f64),
            bytes(room)
        ),
        gain: "writes and frees cost no look-up in a table; memory for the cache".into(),
        cost: format!("{:.2} times the space", seen.dedup_ratio.max(1.0)),
        risk: "blocks that are deduplicated stay so until they are written again".into(),
        proof: "cenote lab model dedup PATH".into(),
    }]
}

pub(super) fn uncompressed(seen: &Observations) -> Vec<Advice> {
    let advice = |name: &str| Advice {
        rule: "uncompressed",
        weight: Weight::Hint,
        about: name.to_owned(),
        change: "set compression=lz4".into(),
        evidence: "compression=off".into(),
        gain: "less to write and to store; blocks of zeros become holes; incompressible data are detected \
            early"
            .into(),
        cost: "a few per cent of a core".into(),
        risk: "none; it applies to data that are written from now on".into(),
        proof: experiment(
            seen,
            &named("uncompressed", name),
            "compression",
            "",
            &["compression=off,lz4,zstd".into()],
        ),
    };
    with_own(seen, "compression", "off").into_iter().map(advice).collect()
}

pub(super) fn nearly_full(seen: &Observations) -> Vec<Advice> {
    if seen.capacity < FULL {
        return Vec::new();
    }
    vec![Advice {
        rule: "nearly-full",
        weight: if seen.capacity > 0.95 { Weight::Cost } else { Weight::Hint },
        about: seen.pool.clone(),
        change: "remove data and old snapshots, or add a vdev".into(),
        evidence: format!(
            "{} allocated, fragmentation {} (0 % is free space in large pieces, 100 % in the smallest)",
            percent(seen.capacity),
            percent(seen.fragmentation)
        ),
        gain: "writes find large free segments quickly".into(),
        cost: "space".into(),
        risk: "an added vdev cannot always be removed again".into(),
        proof: {
            let name = named("nearly-full", &seen.pool);
            format!(
                "the lab's own pools are new and empty and cannot show it; measure this pool before and \
                 after: cenote lab new --name {name} --target host:{} --workload randwrite,16K,8 -o \
                 {name}.toml && cenote lab run {name}.toml -o {name}-before, the same with -o {name}-after \
                 once there is space, and cenote lab compare {name}-before {name}-after (of a pool of this \
                 program, which is no host's, a volume's URI is the target)",
                seen.pool
            )
        },
    }]
}
