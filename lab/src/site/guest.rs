//! Volumes or images as the disks of guests ([`crate::guest`]).

use std::process::{Command, Stdio};

use serde::{Deserialize, Serialize};

use super::pools::{POOL_KEYS, of_pools};
use super::{Dataset, DatasetKind, Facts, Kind, Pools, Quick, Site, Words};
use crate::design::Design;
use crate::error::{Result, fault};
use crate::guest::{self, Disk, Spec};
use crate::machine::Machine;
use crate::reference::TableOf;
use crate::setting::{GUEST, NBD, ON_EXT4, PROCESS, SettingOwner, Settings};
use crate::size::Size;
use crate::subprocess::is_program;
use crate::workload::{CacheState, Work, Workload};

/// A guest for each variant.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Guests(Pools);

pub(super) const KIND: Kind = Kind {
    name: "guest",
    tables: &[TableOf {
        head: "[target] kind = \"guest\"",
        about: "The disk of a guest under QEMU for each variant: a volume, or an image on a filesystem, in \
            such pools. fio runs in the guest, which is made from Debian packages at first use \
            (scripts/make-guest; kept in $CENOTE_GUEST or ~/.cache/cenote/guest). Without a usable KVM \
            guests are emulated, and only ratios say anything. Settings of guests say what the disk is",
        keys: &POOL_KEYS,
    }],
    words: Some(Words { about: "guest", fields: |text| (text == "guest").then(Vec::new) }),
};

const FACTS: Facts = Facts {
    owners: &[
        SettingOwner::Server,
        SettingOwner::Tunable,
        SettingOwner::Pool,
        SettingOwner::Dataset,
        SettingOwner::Way,
        SettingOwner::Guest,
    ],
    ways: &[GUEST, NBD, PROCESS],
    // Unless the setting `disk` says otherwise.
    dataset: Some(DatasetKind::Volume),
    programs: Some(("guests", &["qemu-system-x86_64", "qemu-img", "bash"])),
    // Guests are booted, in which fio takes its time to start.
    quick: Some(Quick { runs: 200, seconds: 90.0, within_seconds: 480.0 }),
    ..Facts::POOLED
};

impl Site for Guests {
    fn facts(&self) -> &'static Facts {
        &FACTS
    }

    of_pools!();

    fn dataset(&self, settings: &Settings) -> Result<Option<Dataset>> {
        let (spec, size) = (Spec::of(settings)?, self.0.size);
        let is_image = spec.as_ref().is_some_and(|spec| matches!(spec.disk, Disk::Image(_)));
        let kind = if is_image { DatasetKind::Filesystem } else { DatasetKind::Volume };
        let size = spec.map_or(size, |spec| spec.dataset_bytes(size));
        Ok(Some(Dataset { kind, size }))
    }

    fn faults(&self, design: Design<'_>) -> Vec<String> {
        let of_workload = |workload: &Workload| {
            let what = match workload.work() {
                Work::Transfers if workload.cache == CacheState::Cold => {
                    "cache = \"cold\" would take the pool away from a guest that runs"
                }
                Work::Transfers if workload.missing == 0 => return None,
                _ => "guests only do transfers, with all devices there",
            };
            Some(format!("workload '{}': {what}", workload.name))
        };
        let baseline = self.fault_of_settings(&design.baseline());
        let baseline = baseline.map(|what| format!("the baseline: {what}"));
        design.workloads.iter().filter_map(of_workload).chain(baseline).collect()
    }

    fn faults_here(&self, design: Design<'_>, variants: usize) -> Vec<String> {
        [memory(variants), host_filesystem(design), initiator(design)].into_iter().flatten().collect()
    }

    fn fault_of_settings(&self, settings: &Settings) -> Option<String> {
        fault(Spec::of(settings))
    }

    fn described(&self, design: Design<'_>) -> String {
        format!(
            "The target was {} of a guest's disk, which is a volume or an image on a filesystem {}.",
            self.0.size,
            self.0.described(design)
        )
    }
}

/// That the guests of so many variants do not fit into memory beside each other, where that is so.
fn memory(variants: usize) -> Option<String> {
    let available = Machine::default().read("proc/meminfo")?;
    let available = available.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let available = available.split_whitespace().next()?.parse::<u64>().ok()?.saturating_mul(1024);
    let guests = variants as u64;
    let needed = guests.saturating_mul(guest::MEMORY.0);
    (needed > available).then(|| {
        format!(
            "{guests} guests of {} need {} of memory, and {} are available: leave out values, or use mode = \
             \"each\"",
            guest::MEMORY,
            Size(needed),
            Size(available >> 20 << 20)
        )
    })
}

/// Whether a variant has a disk of this sort.
fn has_disk(design: Design<'_>, disk: &str) -> bool {
    design.all_settings().into_iter().any(|(name, value)| name == "disk" && value == disk)
}

/// That QEMU has no initiator, where a variant needs it: distributions have it in a package of its own.
fn initiator(design: Design<'_>) -> Option<String> {
    // Nothing listens there. QEMU says so at once, or that it knows no such disks.
    const NOWHERE: &str = "iscsi://127.0.0.1:1/iqn.2026-11.org.cenote:none/0";
    if !has_disk(design, "iscsi") {
        return None;
    }
    let looked = Command::new("qemu-img").args(["info", NOWHERE]).stdin(Stdio::null()).output().ok()?;
    let said = String::from_utf8_lossy(&looked.stderr).into_owned();
    ["Unable to load module", "Unknown protocol"].into_iter().any(|it| said.contains(it)).then(|| {
        "disk=iscsi: this QEMU has no initiator: install it (in Debian it is in qemu-block-extra, in Fedora \
         in qemu-block-iscsi), or leave the value out"
            .to_owned()
    })
}

/// What a filesystem of this machine on a volume lacks here, where a variant has one.
fn host_filesystem(design: Design<'_>) -> Option<String> {
    if !has_disk(design, ON_EXT4) {
        return None;
    }
    if !rustix::process::geteuid().is_root() {
        return Some(format!(
            "disk={ON_EXT4} makes and mounts a filesystem on this machine, which only root may: run it as \
             root, or leave the value out"
        ));
    }
    let missing: Vec<&str> = guest::PROGRAMS.into_iter().filter(|it| !is_program(it)).collect();
    (!missing.is_empty()).then(|| {
        format!(
            "disk={ON_EXT4} needs {}: install what is missing, or leave the value out",
            missing.join(", ")
        )
    })
}
