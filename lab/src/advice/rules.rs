//! The rules: each looks for one mistake that administrators learned the hard way.

use std::path::Path;

use super::caches::{cache_device, larger_arc, special_vdev};
use super::observations::{Dataset, Observations, Top};
use super::{Advice, Weight};
use crate::layout::{Layout, Vdev};
use crate::models::rebuild::{Devices, Rebuild};
use crate::models::{bytes, l2arc, percent, space, speed};
use crate::size::Size;

/// One thing to look for.
type Rule = fn(&Observations) -> Vec<Advice>;

/// All of them.
pub(super) const RULES: [Rule; 28] = [
    degraded,
    stale_halves,
    unmirrored_log,
    sync_disabled,
    checksum_off,
    few_metadata,
    failing_devices,
    no_redundancy,
    thin_redundancy,
    copy_on_write_twice,
    misaligned,
    blocks_below_sectors,
    small_blocks,
    wide_raidz,
    dedup,
    writethrough,
    no_aes,
    stable_writes_without_log,
    uncompressed,
    uncached,
    unused_cache,
    slow_compression,
    cache_headers,
    slow_devices,
    nearly_full,
    larger_arc,
    cache_device,
    special_vdev,
];

/// The longest name of an experiment.
const LONGEST_NAME: usize = 64;
/// A block that amortizes parity and padding on any usual width.
const LARGE_BLOCK: u64 = 64 << 10;
/// Times the best possible space from which on a block size is reported.
const TOLD_SPACE: f64 = 1.15;
/// Blocks that are advised: a sector to the most that a volume has by default.
const ADVISED_BLOCKS: std::ops::RangeInclusive<u32> = 12..=17;
/// The share of the best possible efficiency that is as good.
const NEARLY: f64 = 0.95;
/// Devices of a raidz vdev that are called many.
const WIDE: u64 = 12;
/// Share of the memory that caches and tables may take.
const MEMORY_SHARE: f64 = 0.25;
/// How many times slower than its like a device is called slow.
const SLOW: u64 = 3;
/// Operations that a mean needs, at least.
const LEAST_OPERATIONS: u64 = 1000;
/// The share of synchronous writes from which on programs wait for them.
const STABLE_SHARE: f64 = 0.05;
/// The share of a pool from which on free space is hard to find.
const FULL: f64 = 0.8;

/// What the experiment of a rule about something is called, and its file: no two advices have the same.
fn named(rule: &str, about: &str) -> String {
    let plain = |c: char| match c {
        '/' => '.',
        c if c.is_ascii_alphanumeric() || "-_.".contains(c) => c,
        _ => '_',
    };
    let name = format!("{rule}-{}", about.trim_start_matches('/'));
    name.chars().map(plain).take(LONGEST_NAME).collect()
}

/// The command that makes an experiment called `name` out of a recipe, or where that is empty out of
/// `options` only, with these factors instead of the recipe's.
fn made(name: &str, recipe: &str, options: &str, factors: &[String]) -> String {
    let factors: String = factors.iter().map(|factor| format!(" --factor '{factor}'")).collect();
    let [recipe, options] =
        [recipe, options].map(|it| if it.is_empty() { String::new() } else { format!(" {it}") });
    format!("cenote lab new{recipe} --name {name}{options}{factors} -o {name}.toml")
}

/// The same on pools like this one, and the command that runs it.
fn experiment(seen: &Observations, name: &str, recipe: &str, options: &str, factors: &[String]) -> String {
    let layout = seen.layout();
    let layout = if layout.is_empty() { String::new() } else { format!("--layout '{layout}'") };
    let options = [options, &layout].into_iter().filter(|text| !text.is_empty()).collect::<Vec<_>>();
    format!("{} && cenote lab run {name}.toml", made(name, recipe, &options.join(" "), factors))
}

/// Variations of the size of a dataset's blocks, by the space that they take.
fn block_experiment(
    seen: &Observations,
    name: &str,
    dataset: &Dataset,
    sizes: [u64; 2],
    more: &[String],
) -> String {
    let sizes = sizes.map(|size| Size(size).to_string()).join(",");
    let (property, options) = match dataset.is_volume {
        true => ("volblocksize", "--goal space"),
        false => ("recordsize", "--target filesystem --goal space"),
    };
    let factors = [vec![format!("{property}={sizes}")], more.to_vec()].concat();
    experiment(seen, name, "volblocksize", options, &factors)
}

fn volumes_and_filesystems(seen: &Observations) -> impl Iterator<Item = &Dataset> {
    seen.datasets.iter()
}

/// Names of datasets that have a property by themselves, so that each cause is reported once.
fn with_own<'a>(seen: &'a Observations, property: &'a str, value: &'a str) -> Vec<&'a str> {
    let has = |dataset: &&Dataset| dataset.text(property) == value && dataset.is_own(property);
    volumes_and_filesystems(seen).filter(has).map(|dataset| dataset.name.as_str()).collect()
}

fn sync_disabled(seen: &Observations) -> Vec<Advice> {
    let advice = |name: &str| Advice {
        rule: "sync-disabled",
        weight: Weight::Danger,
        about: name.to_owned(),
        change: "set sync=standard".into(),
        evidence: "sync=disabled: data that programs believe to be stable are lost when the power fails, up \
            to the last group (5 s and more)"
            .into(),
        gain: "acknowledged writes survive; databases and guests stay consistent".into(),
        cost: match seen.has_log {
            true => "stable writes wait for the log device".into(),
            false => {
                "stable writes wait for the pool's devices; a small, fast log device removes most of that \
                 wait"
                    .into()
            }
        },
        risk: "none".into(),
        proof: experiment(
            seen,
            &named("sync-disabled", name),
            "sync",
            "",
            &["sync=standard,disabled".into(), "log=none,file".into()],
        ),
    };
    with_own(seen, "sync", "disabled").into_iter().map(advice).collect()
}

fn degraded(seen: &Observations) -> Vec<Advice> {
    if ["ONLINE", ""].contains(&seen.health.as_str()) {
        return Vec::new();
    }
    let wrong = seen.leaves.iter().filter(|leaf| !["ONLINE", ""].contains(&leaf.state.as_str()));
    let wrong: Vec<String> = wrong.map(|leaf| format!("{} is {}", leaf.path, leaf.state)).collect();
    let wrong = if wrong.is_empty() { String::new() } else { format!(": {}", wrong.join(", ")) };
    vec![Advice {
        rule: "degraded",
        weight: Weight::Danger,
        about: seen.pool.clone(),
        change: format!(
            "bring missing devices back ({0}zpool online), or replace them ({0}zpool replace)",
            seen.program
        ),
        evidence: format!("the pool is {}{wrong}", seen.health),
        gain: "full redundancy again: until then one more failure may lose data".into(),
        cost: "a new device if one failed, and a rebuild".into(),
        risk: "a rebuild loads the other devices".into(),
        proof: format!("{}zpool status {}", seen.program, seen.pool),
    }]
}

/// Devices of mirrors that do not hold what their mirror does.
fn stale_halves(seen: &Observations) -> Vec<Advice> {
    let mirrors = seen.tops.iter().filter(|top| matches!(top.vdev, Vdev::Mirror { .. }));
    let of_mirror = |top: &Top| {
        let halves = || seen.leaves.iter().filter(|leaf| leaf.top == top.name);
        let most = halves().filter_map(|leaf| leaf.operations[1]).max();
        let name = top.name.clone();
        let advice = move |leaf: &super::observations::Leaf| {
            let is_away = !["ONLINE", "DEGRADED", ""].contains(&leaf.state.as_str());
            let what = match (&leaf.behind, is_away) {
                (Some(behind), false) => format!("is {} and {behind}", leaf.state),
                (_, true) => format!("is {}", leaf.state),
                (None, false) => return None,
            };
            let missed = match (most, leaf.operations[1]) {
                (Some(most), Some(own)) if most > own => {
                    format!("; since the pool was opened another half of {name} took {most} writes, it {own}")
                }
                _ => format!("; it lacks data that were written to {name} meanwhile"),
            };
            let (pool, program, path) = (&seen.pool, &seen.program, &leaf.path);
            let online = format!("{program}zpool online {pool} {path}");
            Some(Advice {
                rule: "stale-half",
                weight: Weight::Danger,
                about: path.clone(),
                change: match is_away {
                    true => format!(
                        "bring it back ({online}), and it is resilvered; replace it if it does not come \
                         back"
                    ),
                    false => format!(
                        "wait until it is resilvered, and do not remove another half of {name} until \
                        then"
                    ),
                },
                evidence: format!("{path} {what}{missed}"),
                gain: "both halves hold the data again: until then only the other one has the latest \
                    writes"
                    .into(),
                cost: "a resilver reads the other half and writes the missing data".into(),
                risk: "a resilver loads the other half".into(),
                proof: format!("{program}zpool status {pool}"),
            })
        };
        halves().filter_map(advice).collect::<Vec<_>>()
    };
    mirrors.flat_map(of_mirror).collect()
}

/// Log vdevs without redundancy.
fn unmirrored_log(seen: &Observations) -> Vec<Advice> {
    let advice = |name: &String| {
        let leaf = seen.leaves.iter().find(|leaf| leaf.top == *name);
        let writes = leaf.and_then(|leaf| leaf.operations[1]);
        let writes = writes
            .map_or(String::new(), |writes| format!("; it took {writes} writes since the pool was opened"));
        let (pool, program) = (&seen.pool, &seen.program);
        Advice {
            rule: "unmirrored-log",
            weight: Weight::Danger,
            about: name.clone(),
            change: format!(
                "add a mirrored log ({program}zpool add {pool} log mirror DEVICE DEVICE), then remove this \
                 one ({program}zpool remove {pool} {name})"
            ),
            evidence: format!("the log vdev {name} is one device{writes}"),
            gain: "acknowledged stable writes survive the loss of the log device together with the \
                power"
                .into(),
            cost: "a second device; each stable write waits for the slower of both".into(),
            risk: "none".into(),
            proof: format!("{program}zpool iostat -v {pool} 10 6 shows how much is written to it"),
        }
    };
    seen.bare_logs.iter().map(advice).collect()
}

/// Cache devices that give nothing.
fn unused_cache(seen: &Observations) -> Vec<Advice> {
    let of_data = |leaf: &&super::observations::Leaf| seen.tops.iter().any(|top| top.name == leaf.top);
    let reads: u64 = seen.leaves.iter().filter(of_data).filter_map(|leaf| leaf.operations[0]).sum();
    let advice = |(path, held): &(String, Option<u64>)| {
        let leaf = seen.leaves.iter().find(|leaf| leaf.path == *path);
        let hits = leaf.and_then(|leaf| leaf.operations[0]);
        let never_read = match hits {
            Some(hits) => hits == 0,
            None => leaf.is_some_and(|leaf| leaf.wait_ns[0].is_none()),
        };
        if !never_read || reads < LEAST_OPERATIONS {
            return None;
        }
        let held = held.map_or(String::new(), |held| format!(", which holds {},", bytes(held as f64)));
        Some(Advice {
            rule: "unused-cache",
            weight: Weight::Hint,
            about: path.clone(),
            change: format!("use it for something else ({}zpool remove {} {path})", seen.program, seen.pool),
            evidence: format!(
                "{path}{held} was never read since the pool was opened, the vdevs with data {reads} times"
            ),
            gain: "a device for a log, a special vdev or another pool; memory for headers of a cache".into(),
            cost: "none: its data are in the pool too".into(),
            risk: "none; it can be added again".into(),
            proof: format!("{}zpool iostat -v {} 10 6", seen.program, seen.pool),
        })
    };
    seen.caches.iter().filter_map(advice).collect()
}

/// Strong gzip in pools in which others wait for stable writes.
fn slow_compression(seen: &Observations) -> Vec<Advice> {
    let Some([stable, others]) = seen.writes else { return Vec::new() };
    // Uberblocks are among them: a few in a hundred writes of a group.
    let share = stable as f64 / (stable.saturating_add(others).max(1)) as f64;
    if stable < LEAST_OPERATIONS || share < STABLE_SHARE {
        return Vec::new();
    }
    let levels = ["gzip", "gzip-6", "gzip-7", "gzip-8", "gzip-9"];
    let of_level = |value: &'static str| {
        let advice = move |name: &str| Advice {
            rule: "gzip-beside-sync",
            weight: if value == "gzip-9" { Weight::Cost } else { Weight::Hint },
            about: name.to_owned(),
            change: "set compression=zstd (or lz4), or keep data with stable writes in another pool".into(),
            evidence: format!(
                "compression={value}, in a pool that made {stable} synchronous writes since it was opened \
                 ({} of its writes)",
                percent(share)
            ),
            gain: "stable writes do not wait for compression: the group that is being written delays later \
                ones for seconds"
                .into(),
            cost: "a few per cent of space, by the data".into(),
            risk: "none; it applies to data that are written from now on".into(),
            proof: experiment(
                seen,
                &named("gzip-beside-sync", name),
                "compression",
                "",
                &[format!("compression={},zstd,lz4", if value == "gzip" { "gzip-6" } else { value })],
            ),
        };
        with_own(seen, "compression", value).into_iter().map(advice).collect::<Vec<_>>()
    };
    levels.into_iter().flat_map(of_level).collect()
}

fn checksum_off(seen: &Observations) -> Vec<Advice> {
    let advice = |name: &str| Advice {
        rule: "checksum-off",
        weight: Weight::Danger,
        about: name.to_owned(),
        change: "set checksum=on".into(),
        evidence: "checksum=off: programs get damaged data, and copies or parity are never tried".into(),
        gain: "damage is found, and repaired where there is redundancy; a scrub can find it".into(),
        cost: "a per cent or two of a core".into(),
        risk: "none; it applies to data that are written from now on".into(),
        proof: experiment(
            seen,
            &named("checksum-off", name),
            "compression",
            "",
            &["checksum=off,fletcher4,sha256".into()],
        ),
    };
    with_own(seen, "checksum", "off").into_iter().map(advice).collect()
}

fn few_metadata(seen: &Observations) -> Vec<Advice> {
    let advice = |name: &str| Advice {
        rule: "few-metadata",
        weight: Weight::Danger,
        about: name.to_owned(),
        change: "set redundant_metadata=all, or most if small random writes matter".into(),
        evidence: "redundant_metadata=none: metadata have a single copy, apart from the vdev's redundancy"
            .into(),
        gain: "a damaged block loses one block, not a whole file or everything below it".into(),
        cost: "a second copy of metadata: a few per mille of the space, more with small blocks".into(),
        risk: "none; it applies to data that are written from now on".into(),
        proof: experiment(
            seen,
            &named("few-metadata", name),
            "volblocksize",
            "",
            &["redundant_metadata=none,most,all".into()],
        ),
    };
    with_own(seen, "redundant_metadata", "none").into_iter().map(advice).collect()
}

fn failing_devices(seen: &Observations) -> Vec<Advice> {
    let advice = |leaf: &super::observations::Leaf| Advice {
        rule: "errors",
        weight: Weight::Danger,
        about: leaf.path.clone(),
        change: "check cable, power and medium, and replace the device if the medium is at fault".into(),
        evidence: match leaf.errors {
            1 => "one error in zpool status".into(),
            errors => format!("{errors} errors in zpool status"),
        },
        gain: "redundancy is complete when it is needed".into(),
        cost: "a device, and a rebuild".into(),
        risk: "a rebuild loads the other devices".into(),
        proof: format!("cenote lab model rebuild '{}'", seen.layout()),
    };
    seen.leaves.iter().filter(|leaf| leaf.errors > 0).map(advice).collect()
}

fn no_redundancy(seen: &Observations) -> Vec<Advice> {
    let bare: Vec<&str> =
        seen.tops.iter().filter(|top| top.vdev.tolerance() == 0).map(|top| top.name.as_str()).collect();
    if bare.is_empty() {
        return Vec::new();
    }
    vec![Advice {
        rule: "no-redundancy",
        weight: Weight::Danger,
        about: seen.pool.clone(),
        change: "add a mirror to each vdev, or recreate the pool as mirrors or raidz".into(),
        evidence: format!(
            "{} of {} top-level vdevs survive no failure: {}",
            bare.len(),
            seen.tops.len(),
            bare.join(", ")
        ),
        gain: "the pool survives a failed device; damaged blocks are repaired, not only found".into(),
        cost: "as many devices again for mirrors, one or two for raidz".into(),
        risk: "none, if there are backups".into(),
        proof: format!("cenote lab model rebuild '{}' 'mirror 2' 'raidz2 6'", seen.layout()),
    }]
}

/// The model of rebuilds for a vdev.
fn rebuild(top: &Top, capacity: f64) -> Option<Rebuild> {
    let layout: Layout = format!("{} {}", top.vdev.keyword()?, top.vdev.devices()).parse().ok()?;
    let disk = device::simulated::Model::HDD_7200;
    let (one, placed) = ("1".parse().ok()?, [speed::Placed::default()]);
    let alone = speed::Speed::of(&one, disk, &speed::Stable::default(), Size(LARGE_BLOCK), &placed).ok()?;
    let devices = Devices {
        size: Size(top.device_bytes),
        full: capacity.clamp(0.0, 1.0),
        bytes_per_second: disk.write_bytes_per_second as f64,
        iops: alone.iops(1)?,
        piece: Size(LARGE_BLOCK),
        annual_failure_rate: 0.015,
        bit_error_rate: 1e-15,
    };
    Rebuild::of(&layout, devices).ok()
}

fn thin_redundancy(seen: &Observations) -> Vec<Advice> {
    let advice =
        |top: &Top| {
            let rebuild = rebuild(top, 1.0).filter(|_| matches!(top.vdev, Vdev::Raidz { parity: 1, .. }))?;
            let chance = rebuild.lost_meanwhile + rebuild.block_lost;
            (chance > 0.01).then(|| Advice {
            rule: "thin-redundancy",
            weight: Weight::Danger,
            about: top.name.clone(),
            change: "use raidz2 or mirrors when the pool is recreated".into(),
            evidence: format!(
                "single parity over devices of {}: after one failure, with full devices, a rebuild loses the \
                 vdev with {} and a block with {}",
                bytes(top.device_bytes as f64),
                percent(rebuild.lost_meanwhile),
                percent(rebuild.block_lost)
            ),
            gain: "a second failure, or an unreadable sector, during a rebuild loses nothing".into(),
            cost: "one more device for each vdev, or half of the space with mirrors".into(),
            risk: "the pool must be copied".into(),
            proof: format!("cenote lab model rebuild 'raidz1 {0}' 'raidz2 {0}' --size \
                {1}", top.vdev.devices(), Size(top.device_bytes)),
        })
        };
    seen.tops.iter().filter_map(advice).collect()
}

fn copy_on_write_twice(seen: &Observations) -> Vec<Advice> {
    let advice = |leaf: &super::observations::Leaf| {
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

fn misaligned(seen: &Observations) -> Vec<Advice> {
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

fn blocks_below_sectors(seen: &Observations) -> Vec<Advice> {
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
fn smallest_efficient(top: &Top) -> u64 {
    let of = |bits: u32| space::cost(top.vdev, top.ashift, 1 << bits).efficiency;
    let best = ADVISED_BLOCKS.map(of).fold(0.0, f64::max);
    let bits = ADVISED_BLOCKS.into_iter().find(|bits| of(*bits) >= NEARLY * best);
    1 << bits.unwrap_or(*ADVISED_BLOCKS.end())
}

fn small_blocks(seen: &Observations) -> Vec<Advice> {
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

fn wide_raidz(seen: &Observations) -> Vec<Advice> {
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

fn dedup(seen: &Observations) -> Vec<Advice> {
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

fn writethrough(seen: &Observations) -> Vec<Advice> {
    // A disk with a power-safe cache may say the same of itself: only a guest's hides a host that could do
    // better.
    let is_guest = |leaf: &&super::observations::Leaf| leaf.medium.is_virtual && leaf.medium.is_writethrough;
    let leaf = seen.leaves.iter().find(is_guest).filter(|_| seen.machine.is_virtual);
    let advice = |leaf: &super::observations::Leaf| Advice {
        rule: "writethrough",
        weight: Weight::Cost,
        about: leaf.path.clone(),
        change: "give the guest's disk the cache mode none or writeback at its host".into(),
        evidence: format!(
            "a guest's disk ({}) whose queue/write_cache is \"write through\": the host makes every single \
             write stable",
            leaf.medium.model.as_deref().unwrap_or("of no name")
        ),
        gain: "the host flushes only when the pool does, once for each group and log block".into(),
        cost: "none".into(),
        risk: "writeback needs a host that obeys flushes; never unsafe".into(),
        proof: {
            let name = named("writethrough", &leaf.path);
            let made = made(&name, "sync", "", &["sync=standard,disabled".into()]);
            format!(
                "the lab cannot change the host: {made}, then cenote lab run {name}.toml -o before, the same \
                 with -o after once the host was changed, both with directories on such a disk, and cenote \
                 lab compare before after"
            )
        },
    };
    leaf.map(advice).into_iter().collect()
}

fn no_aes(seen: &Observations) -> Vec<Advice> {
    let has_aes = seen.machine.cpu_flags.iter().any(|flag| flag == "aes");
    let encrypted =
        volumes_and_filesystems(seen).find(|dataset| !["", "off", "-"].contains(&dataset.text("encryption")));
    let below = seen.leaves.iter().find(|leaf| leaf.medium.is_encrypted);
    let (what, measured) = match (encrypted, below) {
        _ if has_aes => return Vec::new(),
        (Some(dataset), _) => (format!("{} is encrypted", dataset.name), "openssl speed -evp aes-256-gcm"),
        (None, Some(leaf)) => (format!("{} is on dm-crypt (LUKS)", leaf.path), "cryptsetup benchmark"),
        (None, None) => return Vec::new(),
    };
    vec![Advice {
        rule: "no-aes",
        weight: Weight::Cost,
        about: "this machine".into(),
        change: match seen.machine.is_virtual {
            true => {
                "give the guest the host's processor (cpu=host), or a model with aes and pclmulqdq".into()
            }
            false => "use a processor with AES instructions, or no encryption".into(),
        },
        evidence: format!("{what}, and the processor shows no AES instructions (/proc/cpuinfo)"),
        gain: "encryption about ten times as fast".into(),
        cost: "the guest cannot move to hosts with older processors".into(),
        risk: "none".into(),
        proof: format!(
            "the lab cannot measure this: run `{measured}`, which uses AES instructions if there are any, \
             here and on a processor that has them (in a guest with cpu=host, or on the host)"
        ),
    }]
}

fn stable_writes_without_log(seen: &Observations) -> Vec<Advice> {
    let turns = seen.leaves.iter().find(|leaf| {
        leaf.medium.turns == Some(true)
            || leaf.medium.modelled.as_deref().is_some_and(|model| model.starts_with("hdd"))
    });
    let always = with_own(seen, "sync", "always");
    let (Some(turns), false) = (turns, seen.has_log) else { return Vec::new() };
    vec![Advice {
        rule: "no-log-device",
        weight: if always.is_empty() { Weight::Hint } else { Weight::Cost },
        about: seen.pool.clone(),
        change: "add a log device: flash with protection against power loss, mirrored".into(),
        evidence: match always.first() {
            Some(name) => format!(
                "{name} has sync=always, {} is a rotating disk, and there is no log device",
                turns.path
            ),
            None => format!("{} is a rotating disk, and there is no log device", turns.path),
        },
        gain: "a stable write takes tens of microseconds, not a rotation of the disk".into(),
        cost: "a small device, or two".into(),
        risk: "without a mirror, its loss together with a crash loses the last seconds".into(),
        proof: experiment(seen, &named("no-log-device", &seen.pool), "optane-log", "", &[]),
    }]
}

fn uncompressed(seen: &Observations) -> Vec<Advice> {
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

fn uncached(seen: &Observations) -> Vec<Advice> {
    let mut all = Vec::new();
    for value in ["metadata", "none"] {
        all.extend(with_own(seen, "primarycache", value).into_iter().map(|name| {
            Advice {
                rule: "uncached",
                weight: Weight::Hint,
                about: name.to_owned(),
                change: "set primarycache=all".into(),
                evidence: format!(
                    "primarycache={value}: each read goes to the devices, each write smaller than \
                a block reads the block"
                ),
                gain: "reads from memory; no reads for partial writes of hot blocks".into(),
                cost: "memory that other datasets cannot use; data may be cached twice, here and by the \
                client"
                    .into(),
                risk: "none".into(),
                proof: {
                    let dataset = seen.datasets.iter().find(|dataset| dataset.name == name);
                    let kind = if dataset.is_some_and(|it| it.is_volume) { "volume" } else { "filesystem" };
                    let block = Size(dataset.and_then(Dataset::block).unwrap_or(16 << 10).min(128 << 10));
                    let options = format!("--target {kind} --workload randread,{block},4 --goal iops");
                    experiment(
                        seen,
                        &named("uncached", name),
                        "",
                        &options,
                        &[format!("primarycache={value},all")],
                    )
                },
            }
        }));
    }
    all
}

fn cache_headers(seen: &Observations) -> Vec<Advice> {
    let smallest = volumes_and_filesystems(seen).filter_map(Dataset::block).min();
    let (Some(block), true) = (smallest, seen.cache_bytes > 0) else { return Vec::new() };
    // The cache in memory has about half of it.
    let arc = (seen.machine.memory_bytes / 2).max(1);
    let each = if seen.program.is_empty() { l2arc::OPENZFS_HEADER_BYTES } else { l2arc::HEADER_BYTES };
    let headers = seen.cache_bytes / block.max(512) * each;
    if headers as f64 <= arc as f64 * MEMORY_SHARE {
        return Vec::new();
    }
    vec![Advice {
        rule: "cache-headers",
        weight: Weight::Cost,
        about: seen.pool.clone(),
        change:
            "use a smaller cache device, larger blocks, or secondarycache=metadata for datasets of small \
            blocks"
                .into(),
        evidence: format!(
            "{} of cache devices with blocks of {} need up to {} of headers in memory",
            bytes(seen.cache_bytes as f64),
            Size(block),
            bytes(headers as f64)
        ),
        gain: "the cache in memory holds data, and it is faster than any device".into(),
        cost: "less is cached overall".into(),
        risk: "none".into(),
        proof: format!("cenote lab model l2arc {} --arc {}", Size(seen.cache_bytes), Size(arc)),
    }]
}

fn slow_devices(seen: &Observations) -> Vec<Advice> {
    let mut all = Vec::new();
    for top in &seen.tops {
        for (way, name) in ["reads", "writes"].into_iter().enumerate() {
            // A few operations, as those that open a pool, may be slow on any device.
            let mut waits: Vec<(u64, u64, &str)> = seen
                .leaves
                .iter()
                .filter(|leaf| leaf.top == top.name)
                .filter_map(|leaf| Some((leaf.wait_ns[way]?, leaf.operations[way]?, leaf.path.as_str())))
                .filter(|(_, operations, _)| *operations >= LEAST_OPERATIONS)
                .collect();
            waits.sort_unstable();
            let (Some(&(slowest, operations, path)), Some(&(median, ..))) =
                (waits.last(), waits.get(waits.len() / 2))
            else {
                continue;
            };
            if waits.len() < 3 || slowest < SLOW * median {
                continue;
            }
            all.push(Advice {
                rule: "slow-device",
                weight: Weight::Hint,
                about: path.to_owned(),
                change: "watch it, and replace it if it stays slow".into(),
                evidence: format!(
                    "its {name} take {:.1} ms on average over {operations}, those of its neighbours {:.1} ms \
                     ({} devices with at least {LEAST_OPERATIONS} {name})",
                    slowest as f64 / 1e6,
                    median as f64 / 1e6,
                    waits.len()
                ),
                gain: "a vdev is as fast as its slowest device".into(),
                cost: "a device, and a rebuild".into(),
                risk: "a rebuild loads the other devices".into(),
                proof: format!("{}zpool iostat -v {} 10 6", seen.program, seen.pool),
            });
        }
    }
    all
}

fn nearly_full(seen: &Observations) -> Vec<Advice> {
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

#[cfg(test)]
mod tests {
    use super::super::observations::Leaf;
    use super::*;
    use crate::environment::Environment;
    use crate::experiment::draft::Draft;
    use crate::medium::Medium;

    /// A pool that nothing is wrong with.
    fn good() -> Observations {
        let leaf = |index: u64| Leaf {
            path: format!("/dev/sd{index}"),
            top: "raidz2-0".into(),
            ashift: 12,
            wait_ns: [Some(8_000_000), Some(100_000)],
            operations: [Some(5000), Some(200_000)],
            medium: Medium { unit: Some(4096), turns: Some(false), ..Medium::default() },
            ..Leaf::default()
        };
        Observations {
            pool: "tank".into(),
            machine: Environment {
                memory_bytes: 16 << 30,
                cpu_flags: vec!["aes".into()],
                ..Environment::default()
            },
            capacity: 0.5,
            dedup_ratio: 1.0,
            tops: vec![Top {
                name: "raidz2-0".into(),
                vdev: Vdev::Raidz { parity: 2, width: 6 },
                ashift: 12,
                device_bytes: 1 << 40,
            }],
            leaves: (0..6).map(leaf).collect(),
            datasets: vec![
                Dataset::made("tank", false, &[("recordsize", "131072"), ("compression", "lz4")]),
                Dataset::made("tank/v", true, &[("volblocksize", "65536"), ("sync", "standard")]),
            ],
            ..Observations::default()
        }
    }

    fn volume(seen: &mut Observations, properties: &[(&str, &str)]) {
        seen.datasets.push(Dataset::made("tank/bad", true, properties));
    }

    /// Makes the pool a mirror of two.
    fn mirrored(seen: &mut Observations) {
        seen.leaves.truncate(2);
        seen.leaves.iter_mut().for_each(|leaf| leaf.top = "mirror-0".into());
        seen.tops[0] =
            Top { name: "mirror-0".into(), vdev: Vdev::Mirror { ways: 2 }, ..seen.tops[0].clone() };
    }

    /// Gives the pool a cache device that was read so often.
    fn cache(seen: &mut Observations, reads: Option<u64>) {
        let path = "/dev/cache".to_owned();
        let operations = [reads, Some(7)];
        seen.leaves.push(Leaf {
            path: path.clone(),
            top: path.clone(),
            ashift: 12,
            operations,
            ..Leaf::default()
        });
        seen.caches.push((path, Some(4096)));
    }

    #[test]
    fn what_is_behind_idle_or_alone_is_told_with_figures_and_commands() {
        let mut seen = Observations { program: "cenote ".into(), ..good() };
        mirrored(&mut seen);
        seen.leaves[1].state = "OFFLINE".into();
        seen.leaves[1].operations[1] = Some(12);
        let stale = &stale_halves(&seen)[0];
        assert_eq!(
            stale.evidence,
            "/dev/sd1 is OFFLINE; since the pool was opened another half of mirror-0 took 200000 writes, it \
             12"
        );
        assert!(
            stale.change.starts_with(
                "bring it back (cenote zpool online tank /dev/sd1), and it is resilvered; replace"
            )
        );
        cache(&mut seen, Some(0));
        let unused = &unused_cache(&seen)[0];
        assert!(
            unused
                .evidence
                .starts_with("/dev/cache, which holds 4.0 KiB, was never read since the pool was opened,"),
            "{unused:?}"
        );
        assert!(unused.change.contains("(cenote zpool remove tank /dev/cache)"));
        seen.bare_logs.push("/dev/sd0".into());
        let bare = &unmirrored_log(&seen)[0];
        assert_eq!(bare.evidence, "the log vdev /dev/sd0 is one device");
        assert!(bare.change.contains("cenote zpool add tank log mirror DEVICE DEVICE"));
        seen.leaves[0].top = "/dev/sd0".into();
        assert!(
            unmirrored_log(&seen)[0].evidence.ends_with("; it took 200000 writes since the pool was opened")
        );
        seen.writes = Some([1000, 3000]);
        volume(&mut seen, &[("compression", "gzip-9")]);
        assert_eq!(
            slow_compression(&seen)[0].evidence,
            "compression=gzip-9, in a pool that made 1000 synchronous writes since it was opened (25.0 % of \
             its writes)"
        );
    }

    #[test]
    fn a_pool_that_is_right_gets_no_advice_and_each_fault_the_advice_for_it() {
        let rules = |seen: &Observations| {
            let advised = super::super::Advised::of(seen);
            assert!(advised.to_string().contains("tank") || !advised.advice.is_empty());
            advised.advice.iter().map(|advice| advice.rule).collect::<Vec<_>>()
        };
        assert_eq!(rules(&good()), Vec::<&str>::new());
        type Fault = fn(&mut Observations);
        let faults: [(&str, Fault); 29] = [
            ("degraded", |seen| {
                seen.health = "DEGRADED".into();
                seen.leaves[1].state = "FAULTED".into();
            }),
            ("checksum-off", |seen| volume(seen, &[("checksum", "off")])),
            ("few-metadata", |seen| volume(seen, &[("redundant_metadata", "none")])),
            ("sync-disabled", |seen| volume(seen, &[("sync", "disabled")])),
            ("errors", |seen| seen.leaves[0].errors = 1),
            ("no-redundancy", |seen| seen.tops[0].vdev = Vdev::Disk),
            ("thin-redundancy", |seen| {
                seen.tops[0].vdev = Vdev::Raidz { parity: 1, width: 6 };
                seen.tops[0].device_bytes = 16 << 40;
            }),
            ("copy-on-write-twice", |seen| seen.leaves[2].medium.filesystem = Some("btrfs".into())),
            ("misaligned", |seen| seen.leaves.iter_mut().for_each(|leaf| leaf.ashift = 9)),
            ("blocks-below-sectors", |seen| {
                seen.tops[0].vdev = Vdev::Mirror { ways: 2 };
                seen.tops[0].ashift = 14;
                volume(seen, &[("volblocksize", "8192")]);
            }),
            ("small-blocks", |seen| volume(seen, &[("volblocksize", "8192")])),
            ("wide-raidz", |seen| seen.tops[0].vdev = Vdev::Raidz { parity: 2, width: 14 }),
            ("dedup", |seen| volume(seen, &[("dedup", "on")])),
            ("dedup", |seen| seen.dedup_table = 5 << 30),
            ("writethrough", |seen| {
                seen.machine.is_virtual = true;
                seen.leaves[0].medium.is_virtual = true;
                seen.leaves[0].medium.is_writethrough = true;
            }),
            ("no-aes", |seen| {
                seen.machine.cpu_flags.clear();
                seen.leaves[2].medium.is_encrypted = true;
            }),
            ("no-aes", |seen| {
                seen.machine.cpu_flags.clear();
                volume(seen, &[("encryption", "aes-256-gcm")]);
            }),
            ("no-log-device", |seen| seen.leaves[0].medium.turns = Some(true)),
            ("uncompressed", |seen| volume(seen, &[("compression", "off")])),
            ("uncached", |seen| volume(seen, &[("primarycache", "metadata")])),
            ("cache-headers", |seen| {
                seen.cache_bytes = 4 << 40;
                volume(seen, &[("volblocksize", "65536")]);
            }),
            ("slow-device", |seen| seen.leaves[3].wait_ns[0] = Some(40_000_000)),
            ("stale-half", |seen| {
                mirrored(seen);
                seen.leaves[1].state = "OFFLINE".into();
            }),
            ("stale-half", |seen| {
                mirrored(seen);
                seen.leaves[0].behind = Some("awaiting resilver".into());
            }),
            ("unmirrored-log", |seen| {
                seen.has_log = true;
                seen.bare_logs.push("/dev/log".into());
            }),
            ("unused-cache", |seen| cache(seen, Some(0))),
            ("unused-cache", |seen| cache(seen, None)),
            ("gzip-beside-sync", |seen| {
                seen.writes = Some([1000, 9000]);
                volume(seen, &[("compression", "gzip-9")]);
            }),
            ("gzip-beside-sync", |seen| {
                seen.writes = Some([1000, 9000]);
                volume(seen, &[("compression", "gzip")]);
            }),
        ];
        for (rule, fault) in faults {
            let mut seen = good();
            fault(&mut seen);
            assert_eq!(rules(&seen), [rule]);
        }
        // None where the processor has them, nor on a host.
        let mut right = good();
        right.leaves[2].medium.is_encrypted = true;
        right.leaves[0].medium.is_writethrough = true;
        assert_eq!(rules(&right), Vec::<&str>::new());
        let right: [Fault; 6] = [
            // What was read is of use, and a pool that was just opened shows nothing of a cache.
            |seen| cache(seen, Some(1)),
            |seen| {
                cache(seen, Some(0));
                seen.leaves.iter_mut().for_each(|leaf| leaf.operations[0] = Some(0));
            },
            // No program waits, or nothing takes long.
            |seen| {
                seen.writes = Some([999, 0]);
                volume(seen, &[("compression", "gzip-9")]);
            },
            |seen| {
                seen.writes = Some([1000, 90_000]);
                volume(seen, &[("compression", "gzip-9")]);
            },
            |seen| {
                seen.writes = Some([1000, 0]);
                volume(seen, &[("compression", "gzip-1")]);
            },
            |seen| {
                mirrored(seen);
                seen.leaves[1].state = "DEGRADED".into();
            },
        ];
        for right in right {
            let mut seen = good();
            right(&mut seen);
            assert_eq!(rules(&seen), Vec::<&str>::new(), "{seen:?}");
        }
        let full = Observations { capacity: 0.97, ..good() };
        assert_eq!(rules(&full), ["nearly-full"]);
    }

    #[test]
    fn commands_are_those_that_can_be_typed_where_the_pool_is() {
        let proof = |program: &str| {
            let mut seen = Observations { program: program.into(), health: "DEGRADED".into(), ..good() };
            seen.leaves[3].wait_ns[0] = Some(40_000_000);
            [degraded(&seen), slow_devices(&seen)].map(|advice| advice[0].proof.clone())
        };
        assert_eq!(proof(""), ["zpool status tank", "zpool iostat -v tank 10 6"]);
        assert_eq!(proof("cenote "), ["cenote zpool status tank", "cenote zpool iostat -v tank 10 6"]);
    }

    #[test]
    fn a_cache_is_proven_by_reads_of_what_is_there() {
        let mut seen = good();
        let own = [("primarycache", "none"), ("recordsize", "16384")];
        seen.datasets.push(Dataset::made("tank/fs", false, &own));
        volume(&mut seen, &[("primarycache", "none"), ("volblocksize", "8192")]);
        let proofs: Vec<String> = uncached(&seen).into_iter().map(|advice| advice.proof).collect();
        assert!(
            proofs[0].contains("--target filesystem --workload randread,16K,4 --goal iops"),
            "{proofs:?}"
        );
        assert!(proofs[1].contains("--target volume --workload randread,8K,4 --goal iops"), "{proofs:?}");
    }

    #[test]
    fn devices_that_did_nothing_are_not_slow() {
        let mut seen = good();
        seen.leaves.iter_mut().for_each(|leaf| leaf.wait_ns = [None, None]);
        assert!(slow_devices(&seen).is_empty());
    }

    #[test]
    fn devices_that_did_little_are_not_slow_and_how_much_they_did_is_told() {
        let mut seen = good();
        seen.leaves[3].wait_ns[0] = Some(40_000_000);
        let told = slow_devices(&seen)[0].evidence.clone();
        assert!(
            told.contains("40.0 ms on average over 5000") && told.contains("at least 1000 reads"),
            "{told}"
        );
        for few in [Some(12), None] {
            seen.leaves[3].operations[0] = few;
            assert!(slow_devices(&seen).is_empty(), "{few:?}");
        }
    }

    #[test]
    fn the_block_that_is_advised_is_the_smallest_that_is_nearly_the_best() {
        let best = |parity, width, ashift| {
            let vdev = Vdev::Raidz { parity, width };
            smallest_efficient(&Top { name: String::new(), vdev, ashift, device_bytes: 0 })
        };
        // Whole rows, and no padding, where data devices are a power of two.
        assert_eq!([best(1, 3, 12), best(2, 6, 12), best(2, 6, 9)].map(|bytes| bytes >> 10), [16, 16, 4]);
        assert!(best(2, 11, 12) > 16 << 10);
        let mut seen = good();
        volume(&mut seen, &[("volblocksize", "8192")]);
        let advice = &small_blocks(&seen)[0];
        assert_eq!(advice.change, "use volblocksize=16K, or mirrors");
        assert!(advice.evidence.contains("33.3 %") && advice.evidence.contains("66.7 %"), "{advice:?}");
        seen.datasets.pop();
        volume(&mut seen, &[("volblocksize", "16384")]);
        assert!(small_blocks(&seen).is_empty());
    }

    /// Commands `cenote lab new` in a proof, as words.
    fn new_commands(proof: &str) -> Vec<Vec<String>> {
        let mut all = Vec::new();
        for (at, _) in proof.match_indices("cenote lab new ") {
            let (mut words, mut word, mut quoted) = (Vec::new(), String::new(), false);
            let command = &proof[at + "cenote lab new ".len()..];
            let end = command.find(" &&").or_else(|| command.find(", then")).unwrap_or(command.len());
            for c in command[..end].chars().chain([' ']) {
                match c {
                    '\'' => quoted = !quoted,
                    ' ' if !quoted => words.push(std::mem::take(&mut word)),
                    c => word.push(c),
                }
            }
            all.push(words);
        }
        all
    }

    #[test]
    fn proofs_are_experiments_that_show_what_is_claimed_each_in_a_file_of_its_own() {
        let mut seen = good();
        seen.capacity = 0.9;
        seen.machine.cpu_flags.clear();
        seen.tops[0].vdev = Vdev::Raidz { parity: 2, width: 14 };
        seen.tops[0].ashift = 13;
        seen.leaves[0].medium.turns = Some(true);
        seen.leaves[1].medium.is_virtual = true;
        seen.leaves[1].medium.is_writethrough = true;
        seen.machine.is_virtual = true;
        seen.leaves[2].medium.filesystem = Some("btrfs".into());
        seen.leaves[3].ashift = 9;
        let own = [
            ("sync", "disabled"),
            ("checksum", "off"),
            ("redundant_metadata", "none"),
            ("compression", "off"),
            ("primarycache", "none"),
            ("encryption", "aes-256-gcm"),
            ("volblocksize", "4096"),
        ];
        seen.datasets.push(Dataset::made("tank/one", true, &own));
        seen.datasets.push(Dataset::made("tank/two", true, &own));
        seen.datasets.push(Dataset::made("tank/fs", false, &[("recordsize", "4096")]));
        seen.writes = Some([5000, 5000]);
        seen.datasets.push(Dataset::made(
            "tank/z",
            true,
            &[("compression", "gzip-9"), ("volblocksize", "65536")],
        ));
        seen.datasets.push(Dataset::made(
            "tank/y",
            true,
            &[("compression", "gzip"), ("volblocksize", "65536")],
        ));
        let advised = super::super::Advised::of(&seen).advice;
        let proof = |rule: &str| &advised.iter().find(|advice| advice.rule == rule).unwrap().proof;
        let mut files = std::collections::BTreeSet::new();
        let mut count = 0;
        for advice in &advised {
            for words in new_commands(&advice.proof) {
                let mut draft = Draft::default();
                let mut recipe = None;
                let mut words = words.into_iter();
                while let Some(word) = words.next() {
                    if !word.starts_with('-') {
                        recipe = Some(word);
                        continue;
                    }
                    let value = words.next().unwrap();
                    match word.as_str() {
                        "--name" => draft.name = Some(value),
                        "--layout" => draft.layout = Some(value),
                        "--goal" => draft.metric = Some(value),
                        "--target" => draft.target = Some(value),
                        "--factor" => draft.factors.push(value),
                        "--workload" => draft.workloads.push(value),
                        "-o" => assert!(files.insert(value.clone()), "{value} is written twice"),
                        other => panic!("{other}: {}", advice.proof),
                    }
                }
                let recipe = recipe.map(|name| crate::recipes::find(&name).unwrap().experiment());
                let made = match recipe {
                    Some(recipe) => draft.changed(&recipe),
                    None => draft.experiment(),
                };
                made.unwrap_or_else(|error| panic!("{}: {error}", advice.proof));
                count += 1;
            }
        }
        assert!(count >= 15, "{count}");
        assert!(proof("blocks-below-sectors").contains(
            "--goal space --layout 'raidz2 14' --factor 'volblocksize=4K,8K' --factor 'ashift=13,9'"
        ));
        assert!(proof("wide-raidz").contains("modelled") && proof("wide-raidz").contains("striped-mirrors"));
        assert!(proof("no-aes").starts_with("the lab cannot") && proof("nearly-full").contains("host:tank"));
        assert!(proof("copy-on-write-twice").contains("lab compare '/dev/copy-on-write-twice-dev.sd2'"));
        assert!(proof("no-log-device").contains("optane-log"));
    }

    #[test]
    fn what_is_inherited_is_told_once_and_danger_comes_first() {
        let mut seen = good();
        seen.capacity = 0.9;
        volume(&mut seen, &[("sync", "disabled")]);
        let advised = super::super::Advised::of(&seen);
        let weights: Vec<Weight> = advised.advice.iter().map(|advice| advice.weight).collect();
        assert_eq!(weights, [Weight::Danger, Weight::Hint]);
        let text = advised.to_string();
        assert!(text.starts_with("DANGER tank/bad: set sync=standard\n"), "{text}");
        assert!(
            text.contains(
                "proof  cenote lab new sync --name sync-disabled-tank.bad --layout 'raidz2 6' --factor \
                 'sync=standard,disabled'"
            ),
            "{text}"
        );
    }
}
