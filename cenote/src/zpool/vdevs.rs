//! Vdevs as the commands show them: their names, their sections, the words for their states.

use std::borrow::Cow;
use std::path::Path;

use engine::pool::discovery::DEFAULT_DIRECTORIES;
use serde_json::{Map, Value};
use server::api::{Aux, SUSPENDED, State, VdevClass, VdevNode};

use crate::output::Numbers;
use crate::remotes;

/// How vdevs are named.
#[derive(Debug, Clone, Copy, Default, clap::Args)]
pub struct Naming {
    /// Name vdevs by guid
    #[arg(short = 'g')]
    guid: bool,
    /// Follow symbolic links to devices
    #[arg(short = 'L')]
    follow: bool,
    /// Show full paths of devices
    #[arg(short = 'P')]
    full: bool,
}

impl Naming {
    /// The name of a vdev; the root is called as its pool.
    pub fn name(self, pool: &str, vdev: &VdevNode) -> String {
        if vdev.kind == "root" {
            return pool.to_owned();
        }
        if self.guid {
            return vdev.guid.to_string();
        }
        let is_device = vdev.children.is_empty() && vdev.name.starts_with('/');
        if !is_device {
            return vdev.name.clone();
        }
        // Links of another machine are not followed.
        let follows = self.follow && !remotes::is_afar();
        let target = follows.then(|| std::fs::canonicalize(&vdev.name).ok()).flatten();
        let path = target.map_or_else(|| vdev.name.clone(), |path| path.display().to_string());
        if self.full || vdev.kind != "disk" {
            return path;
        }
        let name = strip_directory(&path);
        if vdev.whole_disk { strip_partition(name).to_owned() } else { name.to_owned() }
    }

    /// Width of the widest name, with two spaces for each level.
    pub fn width(self, pool: &str, vdev: &VdevNode, depth: usize) -> usize {
        let own = self.name(pool, vdev).len() + depth;
        vdev.children.iter().map(|child| self.width(pool, child, depth + 2)).fold(own, usize::max)
    }
}

/// A device's path without the directory that it was found in.
fn strip_directory(path: &str) -> &str {
    let inside = |directory| Path::new(path).strip_prefix(directory).ok()?.to_str();
    DEFAULT_DIRECTORIES.iter().find_map(inside).unwrap_or(path)
}

/// The disk that a partition is on: `sda1` is on `sda`, `nvme0n1p1` on `nvme0n1`, `ata-X-part1` on `ata-X`.
pub fn strip_partition(name: &str) -> &str {
    let ends_in_digits = |rest: &str| !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_digit());
    if let Some((disk, number)) = name.split_once("-part").filter(|(disk, _)| !disk.is_empty()) {
        return if ends_in_digits(number) { disk } else { name };
    }
    if let Some((disk, number)) = name.rsplit_once('p')
        && disk.len() > 1
        && disk.ends_with(|last: char| last.is_ascii_digit())
    {
        return if ends_in_digits(number) { disk } else { name };
    }
    let letters = ["hd", "sd", "vd", "xvd"].iter().any(|kind| name.starts_with(kind));
    let disk = name.trim_end_matches(|last: char| last.is_ascii_digit());
    if letters && disk.bytes().all(|byte| byte.is_ascii_alphabetic()) { disk } else { name }
}

/// Sections of a listing after the ordinary vdevs, with their headings and names in JSON.
pub const SECTIONS: [(VdevClass, &str); 3] =
    [(VdevClass::Dedup, "dedup"), (VdevClass::Special, "special"), (VdevClass::Log, "logs")];

/// The vdevs of a class, as children of the root. Numbers that no vdev has any more are left out.
pub fn of_class(root: &VdevNode, class: VdevClass) -> impl Iterator<Item = &VdevNode> {
    root.children
        .iter()
        .filter(move |vdev| vdev.class == class && vdev.kind != "hole" && vdev.kind != "indirect")
}

/// The word for a state.
pub fn state_word(state: State, aux: Aux) -> String {
    match (state, aux) {
        (State::CantOpen, Aux::CorruptData) => State::Faulted.to_string(),
        _ => state.to_string(),
    }
}

/// The word for the state of an open pool, which may wait for its devices.
pub fn pool_word(state: State, suspended: bool) -> String {
    if suspended { SUSPENDED.to_owned() } else { state.to_string() }
}

/// The word for the state of a hot spare.
pub fn spare_word(vdev: &VdevNode) -> String {
    match (vdev.state, vdev.aux) {
        (_, Aux::Spared) => "INUSE".to_owned(),
        (State::Healthy, _) => "AVAIL".to_owned(),
        (state, aux) => state_word(state, aux),
    }
}

/// More about a state, for people.
pub fn aux_words(vdev: &VdevNode) -> Option<Cow<'static, str>> {
    let errors = [vdev.read_errors, vdev.write_errors, vdev.checksum_errors];
    let is_slow = vdev.children.is_empty() && errors == [0; 3] && vdev.slow_ios > 0;
    if let Some(pool) = &vdev.in_use_by {
        return Some(format!("in use by pool '{pool}'").into());
    }
    let words = match vdev.aux {
        Aux::None => return None,
        Aux::OpenFailed => "cannot open",
        Aux::BadGuidSum => "missing device",
        Aux::NoReplicas => "insufficient replicas",
        Aux::Spared => "currently in use",
        Aux::ErrorsExceeded if is_slow => "too many slow I/Os",
        Aux::ErrorsExceeded => "too many errors",
        Aux::External => "external device fault",
        Aux::ChildrenOffline => "all children offline",
        Aux::BadLabel => "invalid label",
        Aux::CorruptData | Aux::TooSmall => "corrupted data",
    };
    Some(words.into())
}

/// OpenZFS's identifier of a reason, in JSON.
pub fn aux_identifier(aux: Aux) -> &'static str {
    match aux {
        Aux::None => "NONE",
        Aux::OpenFailed => "OPEN_FAILED",
        Aux::CorruptData => "CORRUPT_DATA",
        Aux::NoReplicas => "NO_REPLICAS",
        Aux::BadGuidSum => "BAD_GUID_SUM",
        Aux::TooSmall => "TOO_SMALL",
        Aux::BadLabel => "BAD_LABEL",
        Aux::Spared => "SPARED",
        Aux::ErrorsExceeded => "ERR_EXCEEDED",
        Aux::External => "EXTERNAL",
        Aux::ChildrenOffline => "CHILDREN_OFFLINE",
    }
}

/// The first members of a vdev's JSON.
pub fn vdev_json(name: &str, vdev: &VdevNode, numbers: Numbers) -> Map<String, Value> {
    let mut item = Map::new();
    item.insert("name".into(), name.into());
    item.insert("vdev_type".into(), vdev.kind.as_str().into());
    item.insert("guid".into(), Numbers { literal: true, ..numbers }.exact(vdev.guid));
    let texts = [
        ("path", &vdev.path),
        ("phys_path", &vdev.phys_path),
        ("devid", &vdev.devid),
        ("modelled", &vdev.modelled),
    ];
    for (key, text) in texts {
        if let Some(text) = text {
            item.insert(key.into(), text.as_str().into());
        }
    }
    let class = match vdev.class {
        _ if vdev.kind == "hole" => "hole",
        VdevClass::Normal => "normal",
        VdevClass::Special => "special",
        VdevClass::Dedup => "dedup",
        VdevClass::Log => "log",
        VdevClass::Spare => "spare",
        VdevClass::L2cache => "l2cache",
    };
    item.insert("class".into(), class.into());
    let state = match vdev.state {
        State::CantOpen => "CANT_OPEN".to_owned(),
        other => other.to_string(),
    };
    item.insert("state".into(), state.into());
    item
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_that_was_only_slow_is_said_to_be() {
        let node = |errors: u64, slow: u64| -> VdevNode {
            serde_json::from_value(serde_json::json!({
                "name": "/d0", "kind": "disk", "guid": 7, "path": null, "devid": null, "phys_path": null,
                "whole_disk": false, "not_present": false, "class": "normal", "state": "FAULTED",
                "aux": "errors-exceeded", "slow_ios": slow, "read_errors": errors, "write_errors": 0,
                "checksum_errors": 0, "device_bytes": null, "space": null, "children": [],
            }))
            .unwrap()
        };
        assert_eq!(aux_words(&node(0, 3)), Some("too many slow I/Os".into()));
        assert_eq!(aux_words(&node(1, 3)), Some("too many errors".into()));
        assert_eq!(aux_words(&node(0, 0)), Some("too many errors".into()));
    }

    #[test]
    fn a_disk_is_named_without_its_directory() {
        assert_eq!(strip_directory("/dev/disk/by-id/ata-X-part1"), "ata-X-part1");
        assert_eq!(strip_directory("/dev/sda1"), "sda1");
        assert_eq!(strip_directory("/srv/file"), "/srv/file");
    }

    #[test]
    fn a_whole_disk_is_named_without_its_partition() {
        for (partition, disk) in [
            ("sda1", "sda"),
            ("xvdb12", "xvdb"),
            ("nvme0n1p1", "nvme0n1"),
            ("nvme0n1", "nvme0n1"),
            ("ata-X-part1", "ata-X"),
            ("wwn-0x5000", "wwn-0x5000"),
        ] {
            assert_eq!(strip_partition(partition), disk);
        }
    }
}
