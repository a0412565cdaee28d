//! The rules: each looks for one thing that people learned the hard way.

use super::seen::{Dataset, Seen, Top};
use super::{Advice, Weight};
use crate::layout::{Layout, Vdev};
use crate::models::rebuild::{Devices, Rebuild};
use crate::models::{bytes, percent, space, speed};
use crate::size::Size;

/// One thing to look for.
type Rule = fn(&Seen) -> Vec<Advice>;

/// All of them.
pub(super) const RULES: [Rule; 21] = [
    degraded,
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
    cache_headers,
    slow_devices,
    nearly_full,
];

/// A block that amortizes parity and padding on any usual width.
const LARGE_BLOCK: u64 = 64 << 10;
/// Times the best possible space from which on a block size is told of.
const TOLD_SPACE: f64 = 1.15;
/// Devices of a raidz vdev that are called many.
const WIDE: u64 = 12;
/// Share of the memory that caches and tables may take.
const MEMORY_SHARE: f64 = 0.25;
/// How many times slower than its like a device is called slow.
const SLOW: u64 = 3;
/// The share of a pool from which on free space is hard to find.
const FULL: f64 = 0.8;

/// The command that makes an experiment like this pool, and runs it.
fn experiment(seen: &Seen, recipe: &str, factors: &[String]) -> String {
    let layout = seen.layout();
    let layout = if layout.is_empty() { String::new() } else { format!(" --layout '{layout}'") };
    let factors: String = factors.iter().map(|factor| format!(" --factor '{factor}'")).collect();
    format!("cenote lab new {recipe}{layout}{factors} -o {recipe}.toml && cenote lab run {recipe}.toml")
}

fn volumes_and_filesystems(seen: &Seen) -> impl Iterator<Item = &Dataset> {
    seen.datasets.iter()
}

/// Names of datasets that have a property by themselves, so that each cause is told once.
fn with_own<'a>(seen: &'a Seen, property: &'a str, value: &'a str) -> Vec<&'a str> {
    let has = |dataset: &&Dataset| dataset.text(property) == value && dataset.is_own(property);
    volumes_and_filesystems(seen).filter(has).map(|dataset| dataset.name.as_str()).collect()
}

fn sync_disabled(seen: &Seen) -> Vec<Advice> {
    let advice = |name: &str| {
        Advice {
        rule: "sync-disabled",
        weight: Weight::Danger,
        about: name.to_owned(),
        change: "set sync=standard".into(),
        evidence: "sync=disabled: what programs were told is stable is lost with the power, up to the last group (5 s and more)".into(),
        gain: "what was acknowledged survives; databases and guests stay whole".into(),
        cost: match seen.has_log {
            true => "stable writes wait for the log device".into(),
            false => "stable writes wait for the pool's devices; a small, fast log device takes most of that away".into(),
        },
        risk: "none".into(),
        proof: experiment(seen, "sync", &["sync=standard,disabled".into(), "log=none,file".into()]),
    }
    };
    with_own(seen, "sync", "disabled").into_iter().map(advice).collect()
}

fn degraded(seen: &Seen) -> Vec<Advice> {
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
        change: "bring what is missing back (zpool online), or replace it (zpool replace)".into(),
        evidence: format!("the pool is {}{wrong}", seen.health),
        gain: "the redundancy that it was made with: until then the next failure may be one too many".into(),
        cost: "a device where one failed, and a rebuild".into(),
        risk: "a rebuild loads the other devices".into(),
        proof: format!("zpool status {}", seen.pool),
    }]
}

fn checksum_off(seen: &Seen) -> Vec<Advice> {
    let advice = |name: &str| {
        Advice {
        rule: "checksum-off",
        weight: Weight::Danger,
        about: name.to_owned(),
        change: "set checksum=on".into(),
        evidence: "checksum=off: damaged data are given to programs as they are, and no copy or parity is ever tried instead".into(),
        gain: "damage is found, and repaired where there is redundancy; a scrub means something".into(),
        cost: "a per cent or two of a core".into(),
        risk: "none; it counts for what is written from now on".into(),
        proof: experiment(seen, "compression", &["checksum=off,fletcher4,sha256".into()]),
    }
    };
    with_own(seen, "checksum", "off").into_iter().map(advice).collect()
}

fn few_metadata(seen: &Seen) -> Vec<Advice> {
    let advice = |name: &str| Advice {
        rule: "few-metadata",
        weight: Weight::Danger,
        about: name.to_owned(),
        change: "set redundant_metadata=all, or most where small random writes count".into(),
        evidence:
            "redundant_metadata=none: what describes data has a single copy beside the vdev's own redundancy"
                .into(),
        gain: "one damaged block costs one block, and not a whole file or all that lies below it".into(),
        cost: "a second copy of what describes data: a few per mille of the space, more with small blocks"
            .into(),
        risk: "none; it counts for what is written from now on".into(),
        proof: experiment(seen, "volblocksize", &["redundant_metadata=none,most,all".into()]),
    };
    with_own(seen, "redundant_metadata", "none").into_iter().map(advice).collect()
}

fn failing_devices(seen: &Seen) -> Vec<Advice> {
    let advice = |leaf: &super::seen::Leaf| Advice {
        rule: "errors",
        weight: Weight::Danger,
        about: leaf.path.clone(),
        change: "find out what is wrong with it (cable, power, medium), and replace it if that is the medium"
            .into(),
        evidence: format!("{} errors in zpool status", leaf.errors),
        gain: "redundancy is there when it is needed".into(),
        cost: "a device, and a rebuild".into(),
        risk: "a rebuild loads the other devices".into(),
        proof: format!("cenote lab model rebuild '{}'", seen.layout()),
    };
    seen.leaves.iter().filter(|leaf| leaf.errors > 0).map(advice).collect()
}

fn no_redundancy(seen: &Seen) -> Vec<Advice> {
    let bare: Vec<&str> =
        seen.tops.iter().filter(|top| top.vdev.tolerance() == 0).map(|top| top.name.as_str()).collect();
    if bare.is_empty() {
        return Vec::new();
    }
    vec![Advice {
        rule: "no-redundancy",
        weight: Weight::Danger,
        about: seen.pool.clone(),
        change: "give each vdev a mirror, or make the pool anew as mirrors or raidz".into(),
        evidence: format!(
            "{} of {} top-level vdevs survive no failure: {}",
            bare.len(),
            seen.tops.len(),
            bare.join(", ")
        ),
        gain: "a device can fail without the pool; damaged blocks are repaired, not only found".into(),
        cost: "as many devices again for mirrors, one or two for raidz".into(),
        risk: "none, if there are backups".into(),
        proof: format!("cenote lab model rebuild '{}' 'mirror 2' 'raidz2 6'", seen.layout()),
    }]
}

/// What the model of rebuilds says of a vdev.
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

fn thin_redundancy(seen: &Seen) -> Vec<Advice> {
    let advice = |top: &Top| {
        let rebuild = rebuild(top, 1.0).filter(|_| matches!(top.vdev, Vdev::Raidz { parity: 1, .. }))?;
        let chance = rebuild.lost_meanwhile + rebuild.block_lost;
        (chance > 0.01).then(|| Advice {
            rule: "thin-redundancy",
            weight: Weight::Danger,
            about: top.name.clone(),
            change: "move to raidz2 or mirrors when the pool is made anew".into(),
            evidence: format!(
                "single parity over devices of {}: after one failure, with full devices, a rebuild loses the vdev with {} and a block with {}",
                bytes(top.device_bytes as f64),
                percent(rebuild.lost_meanwhile),
                percent(rebuild.block_lost)
            ),
            gain: "a second failure, or an unreadable sector, during a rebuild costs nothing".into(),
            cost: "one more device for each vdev, or half of the space with mirrors".into(),
            risk: "the pool must be copied".into(),
            proof: format!("cenote lab model rebuild 'raidz1 {0}' 'raidz2 {0}' --size {1}", top.vdev.devices(), Size(top.device_bytes)),
        })
    };
    seen.tops.iter().filter_map(advice).collect()
}

fn copy_on_write_twice(seen: &Seen) -> Vec<Advice> {
    let twice = |kind: &str| ["btrfs", "zfs", "bcachefs"].contains(&kind);
    let advice = |leaf: &super::seen::Leaf| {
        let filesystem = leaf.medium.filesystem.as_deref().filter(|kind| twice(kind))?;
        Some(Advice {
            rule: "copy-on-write-twice",
            weight: Weight::Cost,
            about: leaf.path.clone(),
            change: "put the device on a partition, a logical volume, or a file without copy-on-write (chattr +C on btrfs)".into(),
            evidence: format!("the device is a file on {filesystem}, which writes elsewhere as well whatever is written"),
            gain: "no second amplification, checksum and fragmentation of each write".into(),
            cost: "the pool's device is moved: zpool replace".into(),
            risk: "a rebuild loads the other devices".into(),
            proof: experiment(seen, "volblocksize", &["compression=lz4,off".into()]),
        })
    };
    seen.leaves.iter().filter_map(advice).collect()
}

fn misaligned(seen: &Seen) -> Vec<Advice> {
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
            change: format!("make the vdev anew with ashift={right}"),
            evidence: format!("ashift={} writes {} bytes, {} writes {unit} in one piece", leaf.ashift, 1_u64 << leaf.ashift, leaf.path),
            gain: "small writes cost no read and no second write on the device".into(),
            cost: "small blocks take a whole sector more; the sector size of a vdev cannot be changed afterwards".into(),
            risk: "the pool, or on mirrors the vdev, must be copied".into(),
            proof: experiment(seen, "volblocksize", &[format!("ashift={},{right}", leaf.ashift)]),
        });
    }
    advice
}

fn blocks_below_sectors(seen: &Seen) -> Vec<Advice> {
    let advice = |dataset: &Dataset| {
        let (block, top) = (dataset.block()?, seen.tops.iter().max_by_key(|top| top.ashift)?);
        (block < 1 << top.ashift).then(|| Advice {
            rule: "blocks-below-sectors",
            weight: Weight::Cost,
            about: dataset.name.clone(),
            change: format!("use blocks of {} at least", Size(1 << top.ashift)),
            evidence: format!(
                "blocks of {}, sectors of {} on {}",
                Size(block),
                Size(1 << top.ashift),
                top.name
            ),
            gain: format!("{} times less space", (1 << top.ashift) / block.max(1)),
            cost: "smaller writes read the rest of their block".into(),
            risk: "the dataset must be copied".into(),
            proof: experiment(seen, "volblocksize", &[]),
        })
    };
    volumes_and_filesystems(seen).filter_map(advice).collect()
}

fn small_blocks(seen: &Seen) -> Vec<Advice> {
    let advice = |dataset: &Dataset| {
        let block = dataset.block()?;
        let top = seen.costliest(block)?;
        if !matches!(top.vdev, Vdev::Raidz { .. } | Vdev::Draid { .. }) || block >= LARGE_BLOCK {
            return None;
        }
        let of = |block| space::cost(top.vdev, top.ashift, block).efficiency;
        let (now, then) = (of(block), of(LARGE_BLOCK));
        if then / now < TOLD_SPACE {
            return None;
        }
        let property = if dataset.is_volume { "volblocksize" } else { "recordsize" };
        Some(Advice {
            rule: "small-blocks",
            weight: Weight::Cost,
            about: dataset.name.clone(),
            change: format!("use {property}=64K, or mirrors"),
            evidence: format!(
                "{property}={} on {} with sectors of {}: {} of the space is data, with 64K it is {}",
                Size(block),
                top.name,
                Size(1 << top.ashift),
                percent(now),
                percent(then)
            ),
            gain: format!("{:.2} times less space, and as much less to write", then / now),
            cost: "writes smaller than a block read and write all of it".into(),
            risk: "the dataset must be copied; random writes of 4K get slower".into(),
            proof: experiment(
                seen,
                "volblocksize",
                &[format!("volblocksize={},64K", Size(block.clamp(4096, 32768)))],
            ),
        })
    };
    // A filesystem's small files have small blocks anyway; the default of a large one is fine.
    volumes_and_filesystems(seen).filter_map(advice).collect()
}

fn wide_raidz(seen: &Seen) -> Vec<Advice> {
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
            change: format!("use two vdevs ({narrow}) when the pool is made anew"),
            evidence: format!(
                "{width} devices in one raidz{parity} vdev, which reads small blocks about as fast as one device"
            ),
            gain: "twice the random IOPS, and half of the devices loaded by a rebuild".into(),
            cost: format!("{parity} devices more for parity"),
            risk: "the pool must be copied".into(),
            proof: experiment(seen, "topology", &[format!("layout=raidz{parity} {width},{narrow}")]),
        })
    };
    seen.tops.iter().filter_map(advice).collect()
}

fn dedup(seen: &Seen) -> Vec<Advice> {
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
            "dedup saves {:.2} times; its table has {}, a quarter of the memory is {}",
            seen.dedup_ratio,
            bytes(seen.dedup_table as f64),
            bytes(room)
        ),
        gain: "writes and frees cost no look-up in a table; memory for the cache".into(),
        cost: format!("{:.2} times the space", seen.dedup_ratio.max(1.0)),
        risk: "what is deduplicated stays so until it is written again".into(),
        proof: "cenote lab model dedup PATH".into(),
    }]
}

fn writethrough(seen: &Seen) -> Vec<Advice> {
    let leaf = seen.leaves.iter().find(|leaf| leaf.medium.is_virtual && leaf.medium.is_writethrough);
    let advice = |leaf: &super::seen::Leaf| Advice {
        rule: "writethrough",
        weight: Weight::Cost,
        about: leaf.path.clone(),
        change: "give the guest's disk the cache mode none or writeback at its host".into(),
        evidence: "a virtual disk without a write cache: the host makes every single write stable".into(),
        gain: "the host makes stable only what the pool flushes, once for each group and log block".into(),
        cost: "none".into(),
        risk: "writeback needs a host that obeys flushes; never unsafe".into(),
        proof: experiment(seen, "sync", &["sync=standard,disabled".into()]),
    };
    leaf.map(advice).into_iter().collect()
}

fn no_aes(seen: &Seen) -> Vec<Advice> {
    let has_aes = seen.machine.cpu_flags.iter().any(|flag| flag == "aes");
    let encrypted =
        volumes_and_filesystems(seen).find(|dataset| !["", "off", "-"].contains(&dataset.text("encryption")));
    let (Some(encrypted), false) = (encrypted, has_aes) else { return Vec::new() };
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
        evidence: format!("{} is encrypted, and the processor shows no AES instructions", encrypted.name),
        gain: "encryption about ten times as fast".into(),
        cost: "the guest cannot move to hosts with older processors".into(),
        risk: "none".into(),
        proof: experiment(seen, "compression", &["checksum=fletcher4,sha256".into()]),
    }]
}

fn stable_writes_without_log(seen: &Seen) -> Vec<Advice> {
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
                "{name} has sync=always, {} is a disk that turns, and there is no log device",
                turns.path
            ),
            None => format!("{} is a disk that turns, and there is no log device", turns.path),
        },
        gain: "a stable write takes tens of microseconds, not a turn of the platter".into(),
        cost: "a small device, or two".into(),
        risk: "without a mirror, its loss together with a crash loses the last seconds".into(),
        proof: experiment(seen, "sync", &["log=none,optane".into()]),
    }]
}

fn uncompressed(seen: &Seen) -> Vec<Advice> {
    let advice = |name: &str| {
        Advice {
        rule: "uncompressed",
        weight: Weight::Hint,
        about: name.to_owned(),
        change: "set compression=lz4".into(),
        evidence: "compression=off".into(),
        gain: "less to write and to keep; blocks of zeros become holes; what does not compress is given up early".into(),
        cost: "a few per cent of a core".into(),
        risk: "none; it counts for what is written from now on".into(),
        proof: experiment(seen, "compression", &["compression=off,lz4,zstd".into()]),
    }
    };
    with_own(seen, "compression", "off").into_iter().map(advice).collect()
}

fn uncached(seen: &Seen) -> Vec<Advice> {
    let mut all = Vec::new();
    for value in ["metadata", "none"] {
        all.extend(with_own(seen, "primarycache", value).into_iter().map(|name| Advice {
            rule: "uncached",
            weight: Weight::Hint,
            about: name.to_owned(),
            change: "set primarycache=all".into(),
            evidence: format!("primarycache={value}: each read goes to the devices, each write smaller than a block reads the block"),
            gain: "reads from memory; no reads for partial writes of what is hot".into(),
            cost: "memory that other datasets cannot use; data may be cached twice, here and by the client".into(),
            risk: "none".into(),
            proof: experiment(seen, "volblocksize", &[format!("primarycache={value},all")]),
        }));
    }
    all
}

fn cache_headers(seen: &Seen) -> Vec<Advice> {
    let smallest = volumes_and_filesystems(seen).filter_map(Dataset::block).min();
    let (Some(block), true) = (smallest, seen.cache_bytes > 0) else { return Vec::new() };
    // The cache in memory has about half of it.
    let arc = (seen.machine.memory_bytes / 2).max(1);
    let headers = seen.cache_bytes / block.max(512) * crate::models::l2arc::HEADER_BYTES;
    if headers as f64 <= arc as f64 * MEMORY_SHARE {
        return Vec::new();
    }
    vec![Advice {
        rule: "cache-headers",
        weight: Weight::Cost,
        about: seen.pool.clone(),
        change: "use a smaller cache device, larger blocks, or secondarycache=metadata for datasets of small blocks".into(),
        evidence: format!(
            "{} of cache devices with blocks of {} need up to {} of headers in memory",
            bytes(seen.cache_bytes as f64),
            Size(block),
            bytes(headers as f64)
        ),
        gain: "the cache in memory holds data, and it is faster than any device".into(),
        cost: "less is cached in all".into(),
        risk: "none".into(),
        proof: format!("cenote lab model l2arc {} --arc {}", Size(seen.cache_bytes), Size(arc)),
    }]
}

fn slow_devices(seen: &Seen) -> Vec<Advice> {
    let mut all = Vec::new();
    for top in &seen.tops {
        for (way, name) in ["reads", "writes"].into_iter().enumerate() {
            let mut waits: Vec<(u64, &str)> = seen
                .leaves
                .iter()
                .filter(|leaf| leaf.top == top.name)
                .filter_map(|leaf| Some((leaf.wait_ns[way]?, leaf.path.as_str())))
                .collect();
            waits.sort_unstable();
            let (Some(&(slowest, path)), Some(&(median, _))) = (waits.last(), waits.get(waits.len() / 2))
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
                change: "watch it, and replace it if it stays so".into(),
                evidence: format!(
                    "its {name} take {:.1} ms in the mean, those of its neighbours {:.1} ms",
                    slowest as f64 / 1e6,
                    median as f64 / 1e6
                ),
                gain: "a vdev is as fast as its slowest device".into(),
                cost: "a device, and a rebuild".into(),
                risk: "a rebuild loads the other devices".into(),
                proof: format!("zpool iostat -v {} 10 6", seen.pool),
            });
        }
    }
    all
}

fn nearly_full(seen: &Seen) -> Vec<Advice> {
    if seen.capacity < FULL {
        return Vec::new();
    }
    vec![Advice {
        rule: "nearly-full",
        weight: if seen.capacity > 0.95 { Weight::Cost } else { Weight::Hint },
        about: seen.pool.clone(),
        change: "remove data and old snapshots, or add a vdev".into(),
        evidence: format!(
            "{} allocated, {} of the free space is in pieces",
            percent(seen.capacity),
            percent(seen.fragmentation)
        ),
        gain: "writes find room in large pieces, and soon".into(),
        cost: "space".into(),
        risk: "a vdev that is added cannot always be removed again".into(),
        proof: experiment(seen, "topology", &[]),
    }]
}

#[cfg(test)]
mod tests {
    use super::super::seen::Leaf;
    use super::*;
    use crate::environment::Environment;
    use crate::medium::Medium;

    /// A pool that nothing is wrong with.
    fn good() -> Seen {
        let leaf = |index: u64| Leaf {
            path: format!("/dev/sd{index}"),
            top: "raidz2-0".into(),
            ashift: 12,
            wait_ns: [Some(8_000_000), Some(100_000)],
            medium: Medium { unit: Some(4096), turns: Some(false), ..Medium::default() },
            ..Leaf::default()
        };
        Seen {
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
            ..Seen::default()
        }
    }

    fn volume(seen: &mut Seen, properties: &[(&str, &str)]) {
        seen.datasets.push(Dataset::made("tank/bad", true, properties));
    }

    #[test]
    fn a_pool_that_is_right_gets_no_advice_and_each_fault_the_advice_for_it() {
        let rules = |seen: &Seen| {
            let advised = super::super::Advised::of(seen);
            assert!(advised.to_string().contains("tank") || !advised.advice.is_empty());
            advised.advice.iter().map(|advice| advice.rule).collect::<Vec<_>>()
        };
        assert_eq!(rules(&good()), Vec::<&str>::new());
        type Fault = fn(&mut Seen);
        let faults: [(&str, Fault); 21] = [
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
                seen.leaves[0].medium.is_virtual = true;
                seen.leaves[0].medium.is_writethrough = true;
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
        ];
        for (rule, fault) in faults {
            let mut seen = good();
            fault(&mut seen);
            assert_eq!(rules(&seen), [rule]);
        }
        let full = Seen { capacity: 0.97, ..good() };
        assert_eq!(rules(&full), ["nearly-full"]);
    }

    #[test]
    fn devices_that_did_nothing_are_not_slow() {
        let mut seen = good();
        seen.leaves.iter_mut().for_each(|leaf| leaf.wait_ns = [None, None]);
        assert!(slow_devices(&seen).is_empty());
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
            text.contains("proof  cenote lab new sync --layout 'raidz2 6' --factor 'sync=standard,disabled'"),
            "{text}"
        );
    }
}
