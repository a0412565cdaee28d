//! What may be lost: devices, redundancy, and promises that are not kept.

use super::proof::{experiment, named, with_own};
use crate::advice::observations::{Leaf, Observations, Top};
use crate::advice::{Advice, Weight};
use crate::layout::{Layout, Vdev};
use crate::models::rebuild::{Devices, Rebuild};
use crate::models::{bytes, percent, speed};
use crate::size::Size;

/// A block that amortizes parity and padding on any usual width.
const LARGE_BLOCK: u64 = 64 << 10;

pub(super) fn sync_disabled(seen: &Observations) -> Vec<Advice> {
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

pub(super) fn degraded(seen: &Observations) -> Vec<Advice> {
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
pub(super) fn stale_halves(seen: &Observations) -> Vec<Advice> {
    let mirrors = seen.tops.iter().filter(|top| matches!(top.vdev, Vdev::Mirror { .. }));
    let of_mirror = |top: &Top| {
        let halves = || seen.leaves.iter().filter(|leaf| leaf.top == top.name);
        let most = halves().filter_map(|leaf| leaf.operations[1]).max();
        let name = top.name.clone();
        let advice = move |leaf: &Leaf| {
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
pub(super) fn unmirrored_log(seen: &Observations) -> Vec<Advice> {
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

pub(super) fn checksum_off(seen: &Observations) -> Vec<Advice> {
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

pub(super) fn few_metadata(seen: &Observations) -> Vec<Advice> {
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

pub(super) fn failing_devices(seen: &Observations) -> Vec<Advice> {
    let advice = |leaf: &Leaf| Advice {
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

pub(super) fn no_redundancy(seen: &Observations) -> Vec<Advice> {
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

pub(super) fn thin_redundancy(seen: &Observations) -> Vec<Advice> {
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
