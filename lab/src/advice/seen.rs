//! What a live pool and its machine tell.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::environment::Environment;
use crate::error::{Error, Result};
use crate::layout::Vdev;
use crate::medium::{Medium, sysfs};

/// Vdevs may stand in each other so deep.
const MOST_LEVELS: usize = 8;

/// The commands of a system with pools; each gives what the command printed.
pub struct Commands<'a> {
    /// `zpool`.
    pub zpool: &'a dyn Fn(&[&str]) -> Result<String>,
    /// `zfs`.
    pub zfs: &'a dyn Fn(&[&str]) -> Result<String>,
}

/// What was seen.
#[derive(Debug, Clone, Default)]
pub struct Seen {
    /// The pool.
    pub pool: String,
    /// The machine.
    pub machine: Environment,
    /// Share of the pool that is allocated, from 0 to 1.
    pub capacity: f64,
    /// Share of the free space that is in pieces.
    pub fragmentation: f64,
    /// How many times less space deduplication takes.
    pub dedup_ratio: f64,
    /// Bytes of the dedup tables.
    pub dedup_table: u64,
    /// Whether it trims by itself.
    pub autotrim: bool,
    /// Top-level vdevs that hold data.
    pub tops: Vec<Top>,
    /// Whether there is a log device.
    pub has_log: bool,
    /// Bytes of cache devices.
    pub cache_bytes: u64,
    /// Devices, of all vdevs.
    pub leaves: Vec<Leaf>,
    /// Filesystems and volumes.
    pub datasets: Vec<Dataset>,
}

/// A top-level vdev.
#[derive(Debug, Clone, PartialEq)]
pub struct Top {
    /// Its name.
    pub name: String,
    /// How it is made.
    pub vdev: Vdev,
    /// Size of its sectors, as a power of two.
    pub ashift: u32,
    /// Size of its smallest device.
    pub device_bytes: u64,
}

/// A device.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Leaf {
    /// Where it is.
    pub path: String,
    /// The top-level vdev that it is part of.
    pub top: String,
    /// Size of the sectors that are written to it, as a power of two.
    pub ashift: u32,
    /// Errors so far.
    pub errors: u64,
    /// Nanoseconds that a read and a write take in the mean, where there were some.
    pub wait_ns: [Option<u64>; 2],
    /// The medium below it.
    pub medium: Medium,
}

/// A filesystem or volume.
#[derive(Debug, Clone, PartialEq)]
pub struct Dataset {
    /// Its name.
    pub name: String,
    /// Whether it is a volume.
    pub is_volume: bool,
    properties: Value,
}

impl Dataset {
    /// A property, as text.
    pub fn text(&self, property: &str) -> &str {
        self.properties.pointer(&format!("/{property}/value")).and_then(Value::as_str).unwrap_or("")
    }

    /// A property, as a number.
    pub fn number(&self, property: &str) -> Option<u64> {
        number(self.properties.pointer(&format!("/{property}/value"))?)
    }

    /// Whether a property was set here and did not come from above, or by default.
    pub fn is_own(&self, property: &str) -> bool {
        self.properties.pointer(&format!("/{property}/source/type")).and_then(Value::as_str) == Some("LOCAL")
    }

    /// Size of its blocks.
    pub fn block(&self) -> Option<u64> {
        self.number(if self.is_volume { "volblocksize" } else { "recordsize" })
    }

    /// One made of `name=value`, for tests.
    #[cfg(test)]
    pub fn made(name: &str, is_volume: bool, properties: &[(&str, Value)]) -> Self {
        let source = |value: &Value| serde_json::json!({ "value": value, "source": { "type": "LOCAL" } });
        let properties = properties.iter().map(|(name, value)| ((*name).to_owned(), source(value)));
        Self { name: name.to_owned(), is_volume, properties: Value::Object(properties.collect()) }
    }
}

/// A number, however it is written.
fn number(value: &Value) -> Option<u64> {
    value.as_u64().or_else(|| value.as_str()?.trim_end_matches(['x', '%']).parse().ok())
}

/// A number with a fraction: `1.50x`, `12%`.
fn fraction(value: &Value) -> Option<f64> {
    value.as_f64().or_else(|| value.as_str()?.trim_end_matches(['x', '%']).parse().ok())
}

fn json(program: &'static str, text: &str) -> Result<Value> {
    serde_json::from_str(text)
        .map_err(|error| Error::Output { program, what: format!("its JSON is not JSON: {error}") })
}

impl Seen {
    /// Looks at a pool of this machine.
    pub fn look(commands: &Commands<'_>, pool: &str) -> Result<Self> {
        let zpool = |arguments: &[&str]| json("zpool", &(commands.zpool)(arguments)?);
        let properties = zpool(&["get", "-j", "--json-int", "all", pool])?;
        let status = zpool(&["status", "-j", "--json-int", pool])?;
        let ashifts = zpool(&["get", "-j", "--json-int", "ashift", pool, "all-vdevs"])?;
        // OpenZFS's iostat has no JSON.
        let io = waits_of(&(commands.zpool)(&["iostat", "-Hplv", pool])?);
        let datasets = json(
            "zfs",
            &(commands.zfs)(&["get", "-r", "-j", "--json-int", "-t", "filesystem,volume", "all", pool])?,
        )?;

        let missing =
            || Error::Output { program: "zpool", what: format!("its JSON does not tell of {pool}") };
        let of_pool = |property: &str| {
            properties.get("pools")?.get(pool)?.get("properties")?.get(property)?.get("value")
        };
        let share = |property: &str| of_pool(property).and_then(fraction).unwrap_or(0.0) / 100.0;
        let mut seen = Self {
            pool: pool.to_owned(),
            machine: Environment::of_this_machine(),
            capacity: share("capacity"),
            fragmentation: share("fragmentation"),
            dedup_ratio: of_pool("dedupratio").and_then(fraction).unwrap_or(1.0),
            dedup_table: of_pool("dedup_table_size").and_then(number).unwrap_or(0),
            autotrim: of_pool("autotrim").and_then(Value::as_str) == Some("on"),
            ..Self::default()
        };
        let status = status.get("pools").and_then(|pools| pools.get(pool)).ok_or_else(missing)?;
        let children = |section: &str| {
            let of = status.get(section).and_then(Value::as_object);
            of.into_iter().flatten().map(|(name, vdev)| (name.clone(), vdev)).collect::<Vec<_>>()
        };
        let root = status.get("vdevs").and_then(|vdevs| vdevs.get(pool)).and_then(|root| root.get("vdevs"));
        let data =
            root.and_then(Value::as_object).into_iter().flatten().map(|(name, vdev)| (name.clone(), vdev));
        let ashift = |name: &str| {
            let value = ashifts.get("vdevs")?.get(name)?.get("properties")?.get("ashift")?.get("value")?;
            number(value)
                .and_then(|ashift| u32::try_from(ashift).ok())
                .filter(|ashift| (9..=16).contains(ashift))
        };
        let waits = |name: &str| io.get(name).copied().unwrap_or_default();
        let everything: Vec<(bool, String, &Value)> = data
            .map(|(name, vdev)| (true, name, vdev))
            .chain(
                ["special", "dedup"].into_iter().flat_map(&children).map(|(name, vdev)| (true, name, vdev)),
            )
            .chain(
                ["logs", "l2cache"].into_iter().flat_map(&children).map(|(name, vdev)| (false, name, vdev)),
            )
            .collect();
        for (holds_data, name, vdev) in everything {
            let sector = ashift(&name).unwrap_or(9);
            let first = seen.leaves.len();
            leaves_of(vdev, MOST_LEVELS, &mut |leaf| {
                let path = leaf.get("path").and_then(Value::as_str).unwrap_or_default().to_owned();
                let shown = leaf.get("name").and_then(Value::as_str).unwrap_or(&path);
                let errors = ["read_errors", "write_errors", "checksum_errors"];
                let errors = errors.iter().filter_map(|key| number(leaf.get(key)?)).sum();
                let mut medium = Medium::of(Path::new(&path));
                medium.modelled = leaf.get("modelled").and_then(Value::as_str).map(str::to_owned);
                seen.leaves.push(Leaf {
                    top: name.clone(),
                    ashift: sector,
                    errors,
                    wait_ns: waits(shown),
                    path,
                    medium,
                });
            });
            let sizes = || seen.leaves[first..].iter().filter_map(|leaf| size_of(Path::new(&leaf.path)));
            if holds_data {
                let devices = (seen.leaves.len() - first) as u64;
                let device_bytes = sizes().min().unwrap_or(0);
                seen.tops.extend(vdev_of(&name, devices).map(|vdev| Top {
                    name,
                    vdev,
                    ashift: sector,
                    device_bytes,
                }));
            } else if vdev.get("class").and_then(Value::as_str) == Some("log") {
                seen.has_log = true;
            } else {
                seen.cache_bytes += sizes().sum::<u64>();
            }
        }
        let datasets = datasets.get("datasets").and_then(Value::as_object);
        for (name, dataset) in datasets.into_iter().flatten() {
            let properties = dataset.get("properties").cloned().unwrap_or_default();
            let is_volume = dataset.get("type").and_then(Value::as_str) == Some("VOLUME");
            seen.datasets.push(Dataset { name: name.clone(), is_volume, properties });
        }
        Ok(seen)
    }

    /// The vdev on which blocks cost the most beside their data: what is said of a block is said for the worst.
    pub fn costliest(&self, block: u64) -> Option<&Top> {
        let cost = |top: &&Top| crate::models::space::cost(top.vdev, top.ashift, block).allocated;
        self.tops.iter().max_by_key(cost)
    }

    /// How the pool is put together, as a layout.
    pub fn layout(&self) -> String {
        let vdev = |top: &Top| match top.vdev.keyword() {
            Some(keyword) => format!("{keyword} {}", top.vdev.devices()),
            None => "1".to_owned(),
        };
        self.tops.iter().map(vdev).collect::<Vec<_>>().join(" + ")
    }
}

/// Nanoseconds that reads and writes take in the mean, where there were some, by the names of pools and vdevs in the scripted lines of `zpool iostat -Hplv`.
///
/// Source: OpenZFS 2.3 `zpool-iostat.8`: name, space allocated and free, operations and bandwidth of reads and writes, `total_wait` of both, other waits; `-` where there is nothing.
fn waits_of(lines: &str) -> HashMap<String, [Option<u64>; 2]> {
    let of_line = |line: &str| {
        let mut words = line.trim_start_matches([' ', '\t']).split('\t').map(str::trim);
        let name = words.next()?.to_owned();
        let mut waits = words.skip(6).map(|word| word.parse().ok().filter(|wait: &u64| *wait > 0));
        Some((name, [waits.next()?, waits.next()?]))
    };
    lines.lines().filter_map(of_line).collect()
}

/// Calls `each` with the leaves of a vdev.
fn leaves_of<'a>(vdev: &'a Value, levels: usize, each: &mut dyn FnMut(&'a Value)) {
    match vdev.get("vdevs").and_then(Value::as_object) {
        Some(children) if levels > 0 => {
            children.values().for_each(|child| leaves_of(child, levels - 1, each));
        }
        _ => each(vdev),
    }
}

/// What a top-level vdev with this name and so many devices is.
fn vdev_of(name: &str, devices: u64) -> Option<Vdev> {
    let kind = name.rsplit_once('-').map_or(name, |(kind, _)| kind);
    let known = ["mirror", "raidz", "draid"].iter().any(|known| kind.starts_with(known));
    if !known {
        return (devices == 1).then_some(Vdev::Disk);
    }
    let layout: crate::layout::Layout = format!("{kind} {devices}").parse().ok()?;
    layout.vdevs().first().copied()
}

/// The size of a device or file.
fn size_of(path: &Path) -> Option<u64> {
    let metadata = fs::metadata(path).ok()?;
    if metadata.is_file() {
        return Some(metadata.len());
    }
    let sectors: u64 = fs::read_to_string(sysfs(path)?.join("size")).ok()?.trim().parse().ok()?;
    Some(sectors << 9)
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATUS: &str = r#"{"pools":{"p":{"vdevs":{"p":{"vdevs":{
        "raidz1-0":{"vdevs":{"/d/0":{"name":"/d/0","path":"/d/0","read_errors":1,"checksum_errors":2},"/d/1":{"name":"/d/1","path":"/d/1"},
            "replacing-2":{"vdevs":{"/d/2":{"name":"/d/2","path":"/d/2"}}}}}}}},
        "logs":{"/d/3":{"name":"/d/3","class":"log","path":"/d/3"}}}}}"#;
    const PROPERTIES: &str = r#"{"pools":{"p":{"properties":{"capacity":{"value":85},"fragmentation":{"value":"12%"},
        "dedupratio":{"value":"1.50x"},"autotrim":{"value":"on"}}}}}"#;
    const ASHIFTS: &str = r#"{"vdevs":{"raidz1-0":{"properties":{"ashift":{"value":12}}}}}"#;
    const IO: &str = "p\t1\t2\t3\t4\t5\t6\t7\t8\t9\t10\t-\t-\t-\t-\t-\t-\n\
        raidz1-0\t1\t2\t3\t4\t5\t6\t-\t-\t-\t-\t-\t-\t-\t-\t-\t-\n\
        /d/1\t-\t-\t3\t4\t5\t6\t-\t5000\t-\t-\t-\t-\t-\t-\t-\t-\n\nnonsense\n";
    const DATASETS: &str = r#"{"datasets":{"p/v":{"type":"VOLUME","properties":{"volblocksize":{"value":8192},
        "sync":{"value":"disabled","source":{"type":"LOCAL"}}}},"p":{"type":"FILESYSTEM","properties":{"recordsize":{"value":131072}}}}}"#;

    #[test]
    fn what_the_commands_print_is_understood() {
        let zpool = |arguments: &[&str]| {
            Ok(match arguments {
                ["get", .., "all-vdevs"] => ASHIFTS,
                ["get", ..] => PROPERTIES,
                ["status", ..] => STATUS,
                ["iostat", "-Hplv", "p"] => IO,
                ["iostat", "-Hplv", _] => "",
                other => panic!("{other:?}"),
            }
            .to_owned())
        };
        let zfs = |_: &[&str]| Ok(DATASETS.to_owned());
        let seen = Seen::look(&Commands { zpool: &zpool, zfs: &zfs }, "p").unwrap();
        assert_eq!((seen.capacity, seen.fragmentation, seen.dedup_ratio), (0.85, 0.12, 1.5));
        assert!(seen.has_log && seen.autotrim && seen.cache_bytes == 0);
        assert_eq!((seen.tops.len(), seen.layout().as_str(), seen.tops[0].ashift), (1, "raidz1 3", 12));
        assert_eq!((seen.leaves.len(), seen.leaves[0].errors), (4, 3));
        assert_eq!(seen.leaves[1].wait_ns, [None, Some(5000)]);
        let volume = seen.datasets.iter().find(|dataset| dataset.is_volume).unwrap();
        assert_eq!((volume.block(), volume.text("sync")), (Some(8192), "disabled"));
        assert!(volume.is_own("sync") && !volume.is_own("volblocksize"));
        assert!(Seen::look(&Commands { zpool: &zpool, zfs: &zfs }, "other").is_err());
        assert!(Seen::look(&Commands { zpool: &|_| Ok("no".into()), zfs: &zfs }, "p").is_err());
    }

    #[test]
    fn names_of_vdevs_say_what_they_are() {
        assert_eq!(vdev_of("mirror-0", 2), Some(Vdev::Mirror { ways: 2 }));
        assert_eq!(vdev_of("raidz2-1", 6), Some(Vdev::Raidz { parity: 2, width: 6 }));
        let draid = Vdev::Draid { parity: 2, data: 4, children: 8, spares: 1 };
        assert_eq!(vdev_of("draid2:4d:8c:1s-0", 8), Some(draid));
        assert_eq!(vdev_of("/dev/sda", 1), Some(Vdev::Disk));
        assert_eq!(vdev_of("indirect-0", 0), None);
    }
}
