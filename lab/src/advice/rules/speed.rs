//! What is slower than it could be.

use super::proof::{MEMORY_SHARE, experiment, made, named, volumes_and_filesystems, with_own};
use crate::advice::observations::{Dataset, Leaf, Observations};
use crate::advice::{Advice, Weight};
use crate::models::{bytes, l2arc, percent};
use crate::size::Size;

/// How many times slower than its like a device is called slow.
const SLOW: u64 = 3;
/// Operations that a mean needs, at least.
const LEAST_OPERATIONS: u64 = 1000;
/// The share of synchronous writes from which on programs wait for them.
const STABLE_SHARE: f64 = 0.05;

/// Cache devices that give nothing.
pub(super) fn unused_cache(seen: &Observations) -> Vec<Advice> {
    let of_data = |leaf: &&Leaf| seen.tops.iter().any(|top| top.name == leaf.top);
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
pub(super) fn slow_compression(seen: &Observations) -> Vec<Advice> {
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

pub(super) fn writethrough(seen: &Observations) -> Vec<Advice> {
    // A disk with a power-safe cache may say the same of itself: only a guest's hides a host that could do
    // better.
    let is_guest = |leaf: &&Leaf| leaf.medium.is_virtual && leaf.medium.is_writethrough;
    let leaf = seen.leaves.iter().find(is_guest).filter(|_| seen.machine.is_virtual);
    let advice = |leaf: &Leaf| Advice {
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

pub(super) fn no_aes(seen: &Observations) -> Vec<Advice> {
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

pub(super) fn stable_writes_without_log(seen: &Observations) -> Vec<Advice> {
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

pub(super) fn uncached(seen: &Observations) -> Vec<Advice> {
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

pub(super) fn cache_headers(seen: &Observations) -> Vec<Advice> {
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

pub(super) fn slow_devices(seen: &Observations) -> Vec<Advice> {
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
