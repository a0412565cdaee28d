//! Observations of a live pool and its machine.
//!
//! The lab reads only output that every OpenZFS from 0.8 on and this program print: scripted lines (`-H`) of
//! `zpool get`, `zpool iostat` and `zfs get`, and the tree of devices of `zpool status`, whose JSON came with
//! 2.3.
//!
//! Source: OpenZFS `zpool-status.8`, `zpool-get.8`, `zpool-iostat.8`, `zfs-get.8`.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::Path;

use crate::environment::Environment;
use crate::error::{Error, Result};
use crate::layout::Vdev;
use crate::medium::{Medium, sysfs};
use crate::models::cache_reads::CacheReads;

/// The commands of a system with pools; each gives what the command printed.
pub struct Commands<'a> {
    /// `zpool`.
    pub zpool: &'a dyn Fn(&[&str]) -> Result<String>,
    /// `zfs`.
    pub zfs: &'a dyn Fn(&[&str]) -> Result<String>,
    /// What caches would do by the reads of a pool; none where that is not known.
    pub reads: &'a dyn Fn(&str) -> Result<Option<CacheReads>>,
    /// The prefix of both as a user types them: nothing, or `cenote `.
    pub program: &'a str,
}

/// The evidence.
#[derive(Debug, Clone, Default)]
pub struct Observations {
    /// The pool.
    pub pool: String,
    /// The prefix of its commands ([`Commands::program`]).
    pub program: String,
    /// Its state: `ONLINE`, `DEGRADED` …
    pub health: String,
    /// The machine.
    pub machine: Environment,
    /// Share of the pool that is allocated, from 0 to 1.
    pub capacity: f64,
    /// How small the pieces of free space are, from 0 to 1: an index, no share.
    pub fragmentation: f64,
    /// How many times less space deduplication takes.
    pub dedup_ratio: f64,
    /// Bytes of the dedup tables.
    pub dedup_table: u64,
    /// Whether it trims by itself.
    pub autotrim: bool,
    /// Top-level vdevs that hold data.
    pub tops: Vec<Top>,
    /// Whether there is a special vdev.
    pub has_special: bool,
    /// What caches would do by the reads, where that is known.
    pub reads: Option<CacheReads>,
    /// Whether there is a log device.
    pub has_log: bool,
    /// Names of log vdevs that are one device.
    pub bare_logs: Vec<String>,
    /// Bytes of cache devices.
    pub cache_bytes: u64,
    /// Cache devices, and the bytes that each holds where that is reported.
    pub caches: Vec<(String, Option<u64>)>,
    /// Synchronous and other writes to all devices since the pool was opened, where both are reported.
    pub writes: Option<[u64; 2]>,
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
    /// Its state: `ONLINE`, `FAULTED` …
    pub state: String,
    /// Errors so far.
    pub errors: u64,
    /// Why it does not hold all that its vdev does, though it works: `awaiting resilver` or `resilvering`.
    pub behind: Option<String>,
    /// Nanoseconds that a read and a write take in the mean, where there were some.
    pub wait_ns: [Option<u64>; 2],
    /// Reads and writes since the pool was opened, where that is reported.
    pub operations: [Option<u64>; 2],
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
    /// Each property's value, and where that is from.
    properties: BTreeMap<String, (String, String)>,
}

impl Dataset {
    /// A property, as text.
    pub fn text(&self, property: &str) -> &str {
        self.properties.get(property).map_or("", |(value, _)| value)
    }

    /// A property, as a number.
    pub fn number(&self, property: &str) -> Option<u64> {
        self.text(property).parse().ok()
    }

    /// Whether a property was set here, or received with the dataset, and did not come from above, or by
    /// default.
    pub fn is_own(&self, property: &str) -> bool {
        self.properties
            .get(property)
            .is_some_and(|(_, source)| ["local", "received"].contains(&source.as_str()))
    }

    /// Size of its blocks.
    pub fn block(&self) -> Option<u64> {
        self.number(if self.is_volume { "volblocksize" } else { "recordsize" })
    }

    /// One made of `name=value`, for tests.
    #[cfg(test)]
    pub fn made(name: &str, is_volume: bool, properties: &[(&str, &str)]) -> Self {
        let own =
            |(name, value): &(&str, &str)| ((*name).to_owned(), ((*value).to_owned(), "local".to_owned()));
        Self { name: name.to_owned(), is_volume, properties: properties.iter().map(own).collect() }
    }
}

/// A number with a fraction: `1.50x`, `12%`.
fn fraction(text: &str) -> Option<f64> {
    text.trim_end_matches(['x', '%']).parse().ok()
}

/// The class of a vdev in the tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Class {
    Data,
    Log,
    Cache,
    Spare,
}

/// A line of the tree that `zpool status` shows.
#[derive(Debug, Clone, PartialEq)]
struct Node {
    class: Class,
    /// How deep: the pool is 0, top-level vdevs are 1.
    level: usize,
    name: String,
    state: String,
    errors: u64,
    behind: Option<String>,
    modelled: Option<String>,
}

/// The words of the tree for devices that lack data.
const BEHIND: [&str; 2] = ["awaiting resilver", "resilvering"];

/// The tree below `config:`; nothing where there is none.
fn tree_of(status: &str) -> Vec<Node> {
    let mut class = Class::Data;
    let mut nodes = Vec::new();
    let lines = status.lines().skip_while(|line| line.trim() != "config:").skip(1);
    for line in lines.take_while(|line| !line.starts_with("errors:")) {
        let Some(line) = line.strip_prefix('\t') else { continue };
        let indent = line.len() - line.trim_start_matches(' ').len();
        let words: Vec<&str> = line.split_whitespace().collect();
        let (name, rest) = match words.split_first() {
            Some((name, rest)) if *name != "NAME" => (*name, rest),
            _ => continue,
        };
        let Some(state) = rest.first() else {
            // A heading. Special and dedup vdevs hold data.
            class = match name {
                "logs" => Class::Log,
                "cache" => Class::Cache,
                "spares" => Class::Spare,
                _ => Class::Data,
            };
            continue;
        };
        let errors = rest.iter().skip(1).take(3).map_while(|word| word.parse::<u64>().ok()).sum();
        let behind = BEHIND.into_iter().find(|behind| line.contains(&format!("({behind})")));
        let modelled = line.split_once("(modelled ").and_then(|(_, rest)| rest.split(')').next());
        nodes.push(Node {
            class,
            level: indent / 2,
            name: name.to_owned(),
            state: (*state).to_owned(),
            errors,
            behind: behind.map(str::to_owned),
            modelled: modelled.map(str::to_owned),
        });
    }
    nodes
}

impl Observations {
    /// Looks at a pool of this machine.
    pub fn look(commands: &Commands<'_>, pool: &str) -> Result<Self> {
        let zpool = |arguments: &[&str]| (commands.zpool)(arguments);
        let pairs = |text: &str| -> HashMap<String, String> {
            let pair =
                |line: &str| line.split_once('\t').map(|(name, value)| (name.to_owned(), value.to_owned()));
            text.lines().filter_map(pair).collect()
        };
        let properties = pairs(&zpool(&["get", "-Hp", "-o", "property,value", "all", pool])?);
        let status = zpool(&["status", "-Pp", pool])?;
        let tree = tree_of(&status);
        // Vdevs have properties since 2.2.
        let ashifts = zpool(&["get", "-Hp", "-o", "name,value", "ashift", pool, "all-vdevs"]);
        let ashifts = ashifts.map(|text| pairs(&text)).unwrap_or_default();
        let operations = ["read_ops", "write_ops"].map(|property| {
            zpool(&["get", "-Hp", "-o", "name,value", property, pool, "all-vdevs"])
                .map(|text| pairs(&text))
                .unwrap_or_default()
        });
        let lines = zpool(&["iostat", "-HplvP", pool])?;
        let (io, allocated) = (waits_of(&lines), allocated_of(&lines));
        let writes = zpool(&["iostat", "-Hpr", pool]).ok().and_then(|text| writes_of(&text));
        let columns = "name,property,value,source";
        let datasets =
            (commands.zfs)(&["get", "-rHp", "-t", "filesystem,volume", "-o", columns, "all", pool])?;

        let root = tree.iter().find(|node| node.level == 0 && node.name == pool);
        let root = root.ok_or_else(|| Error::Output {
            program: "zpool",
            what: format!("its status does not show the devices of {pool}"),
        })?;
        let of_pool = |property: &str| properties.get(property).map(String::as_str);
        let share = |property: &str| of_pool(property).and_then(fraction).unwrap_or(0.0) / 100.0;
        let ashift = |text: &str| text.parse::<u32>().ok().filter(|ashift| (9..=16).contains(ashift));
        let mut seen = Self {
            pool: pool.to_owned(),
            program: commands.program.to_owned(),
            health: root.state.clone(),
            machine: Environment::of_this_machine(),
            capacity: share("capacity"),
            fragmentation: share("fragmentation"),
            dedup_ratio: of_pool("dedupratio").and_then(fraction).unwrap_or(1.0),
            dedup_table: of_pool("dedup_table_size").and_then(|text| text.parse().ok()).unwrap_or(0),
            autotrim: of_pool("autotrim") == Some("on"),
            writes,
            has_special: status.lines().any(|line| line.trim() == "special"),
            reads: (commands.reads)(pool)?,
            ..Self::default()
        };
        let tops = tree.iter().enumerate().filter(|(_, node)| node.level == 1 && node.class != Class::Spare);
        for (at, top) in tops {
            let below = tree[at + 1..].iter().take_while(|node| node.level > 1 && node.class == top.class);
            let nodes: Vec<&Node> = std::iter::once(top).chain(below).collect();
            let first = seen.leaves.len();
            for (at, node) in nodes.iter().enumerate() {
                if nodes.get(at + 1).is_some_and(|next| next.level > node.level) {
                    continue;
                }
                let mut medium = Medium::of(Path::new(&node.name));
                medium.modelled.clone_from(&node.modelled);
                // By default it is what `zpool create` takes by itself.
                let of_medium = medium.unit.map_or(9, |unit| unit.ilog2().clamp(9, 16));
                let known = [ashifts.get(&top.name), ashifts.get(&node.name)].into_iter().flatten();
                let known = known.map(String::as_str).chain(of_pool("ashift")).find_map(ashift);
                seen.leaves.push(Leaf {
                    path: node.name.clone(),
                    top: top.name.clone(),
                    ashift: known.unwrap_or(of_medium),
                    state: node.state.clone(),
                    errors: node.errors,
                    behind: node.behind.clone(),
                    wait_ns: io.get(&node.name).copied().unwrap_or_default(),
                    operations: [0, 1].map(|way| {
                        short_names(&node.name).find_map(|name| operations[way].get(name)?.parse().ok())
                    }),
                    medium,
                });
            }
            let leaves = &seen.leaves[first..];
            let sizes = || leaves.iter().filter_map(|leaf| size_of(Path::new(&leaf.path)));
            match top.class {
                Class::Data => {
                    let device_bytes = sizes().min().unwrap_or(0);
                    let ashift = leaves.iter().map(|leaf| leaf.ashift).max().unwrap_or(9);
                    // What is being replaced stands there twice.
                    let devices = nodes.iter().filter(|node| node.level == top.level + 1).count().max(1);
                    let vdev = vdev_of(&top.name, devices as u64);
                    let name = top.name.clone();
                    seen.tops.extend(vdev.map(|vdev| Top { name, vdev, ashift, device_bytes }));
                }
                Class::Log => {
                    let is_one = nodes.len() == 1;
                    seen.has_log = true;
                    seen.bare_logs.extend(is_one.then(|| top.name.clone()));
                }
                Class::Cache => {
                    let bytes = sizes().sum::<u64>();
                    let known = short_names(&top.name).find_map(|name| allocated.get(name).copied());
                    seen.cache_bytes += bytes;
                    seen.caches.push((top.name.clone(), known));
                }
                Class::Spare => {}
            }
        }
        seen.datasets = datasets_of(&datasets);
        Ok(seen)
    }

    /// The vdev on which blocks cost the most beside their data: what is said of a block is said for the
    /// worst.
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

/// The possible names of a device of which only the last part of its path is known, and of a disk that is a
/// pool's as a whole not its partition.
fn short_names(path: &str) -> impl Iterator<Item = &str> {
    let last = path.rsplit('/').next().unwrap_or(path);
    let disk = last.trim_end_matches(|c: char| c.is_ascii_digit());
    let disk = disk.strip_suffix("-part").or(disk.strip_suffix('p')).unwrap_or(disk);
    [path, last, disk].into_iter()
}

/// Nanoseconds that reads and writes take in the mean, where there were some, by the names of pools and vdevs
/// in the scripted lines of `zpool iostat -HplvP`.
///
/// Source: OpenZFS 2.3 `zpool-iostat.8`: name, space allocated and free, operations and bandwidth of reads
/// and writes, `total_wait` of both, other waits; `-` where there is nothing.
fn waits_of(lines: &str) -> HashMap<String, [Option<u64>; 2]> {
    let of_line = |line: &str| {
        let mut words = line.trim_start_matches([' ', '\t']).split('\t').map(str::trim);
        let name = words.next()?.to_owned();
        let mut waits = words.skip(6).map(|word| word.parse().ok().filter(|wait: &u64| *wait > 0));
        Some((name, [waits.next()?, waits.next()?]))
    };
    lines.lines().filter_map(of_line).collect()
}

/// Bytes that vdevs hold, by their names in the same lines.
fn allocated_of(lines: &str) -> HashMap<String, u64> {
    let of_line = |line: &str| {
        let mut words = line.trim_start_matches([' ', '\t']).split('\t').map(str::trim);
        Some((words.next()?.to_owned(), words.next()?.parse().ok()?))
    };
    lines.lines().filter_map(of_line).collect()
}

/// Synchronous writes and others in the scripted histogram of sizes of `zpool iostat -Hpr`; nothing where it
/// is none.
///
/// Source: OpenZFS 2.3 `zpool-iostat.8`: a size, then pairs of single and aggregated requests: synchronous
/// reads and writes, asynchronous reads and writes, others.
fn writes_of(lines: &str) -> Option<[u64; 2]> {
    let of_line = |line: &str| {
        let words: Option<Vec<u64>> = line.split_whitespace().map(|word| word.parse().ok()).collect();
        let words = words?;
        let pair = |at: usize| Some(words.get(at)?.saturating_add(*words.get(at + 1)?));
        Some([pair(3)?, pair(7)?])
    };
    lines.lines().filter_map(of_line).reduce(|all, more| [0, 1].map(|at| all[at].saturating_add(more[at])))
}

/// The datasets in lines of name, property, value and source.
fn datasets_of(lines: &str) -> Vec<Dataset> {
    let mut all: BTreeMap<&str, BTreeMap<String, (String, String)>> = BTreeMap::new();
    for line in lines.lines() {
        // A value may be any text; names of properties and sources have no tab.
        let mut words = line.splitn(3, '\t');
        if let (Some(name), Some(property), Some(rest)) = (words.next(), words.next(), words.next())
            && let Some((value, source)) = rest.rsplit_once('\t')
        {
            let told = (value.to_owned(), source.to_owned());
            all.entry(name).or_default().insert(property.to_owned(), told);
        }
    }
    let of = |(name, properties): (&str, BTreeMap<String, (String, String)>)| Dataset {
        name: name.to_owned(),
        is_volume: properties.get("type").is_some_and(|(kind, _)| kind == "volume"),
        properties,
    };
    all.into_iter().map(of).collect()
}

/// The kind of a top-level vdev with this name and so many devices.
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

    /// The output of OpenZFS, from 0.8 to 2.3.
    const STATUS: &str = "  pool: p\n state: DEGRADED\nstatus: One or more devices is being \
        replaced.\naction: Wait.\n  scan: resilver in progress\nconfig:\n\n\
        \tNAME               STATE     READ WRITE CKSUM\n\
        \tp                  DEGRADED     0     0     0\n\
        \t  raidz1-0         DEGRADED     0     0     0\n\
        \t    /d/0           ONLINE       1     0     2  (modelled nvme)\n\
        \t    /d/1           ONLINE       0     0     0\n\
        \t    replacing-2    DEGRADED     0     0     0\n\
        \t      /d/2         OFFLINE      0     0     0\n\
        \t      /d/5         ONLINE       0     0     0  (resilvering)\n\
        \tspecial\t\n\
        \t  mirror-1         ONLINE       0     0     0\n\
        \t    /d/6           ONLINE       0     0     0\n\
        \t    /d/7           ONLINE       0     0     0\n\
        \tlogs\t\n\
        \t  /d/3             ONLINE       0     0     0\n\
        \tcache\n\
        \t  /d/4             ONLINE       0     0     0\n\
        \tspares\n\
        \t  /d/8             AVAIL\n\nerrors: No known data errors\n";
    const PROPERTIES: &str = "capacity\t85\nfragmentation\t12%\ndedupratio\t1.50x\nautotrim\ton\nashift\t0\n";
    const ASHIFTS: &str = "raidz1-0\t12\n/d/0\t12\n";
    const IO: &str = "p\t1\t2\t3\t4\t5\t6\t7\t8\t9\t10\t-\t-\t-\t-\t-\t-\n\
        raidz1-0\t1\t2\t3\t4\t5\t6\t-\t-\t-\t-\t-\t-\t-\t-\t-\t-\n\
        /d/1\t-\t-\t3\t4\t5\t6\t-\t5000\t-\t-\t-\t-\t-\t-\t-\t-\n\
        /d/4\t8192\t2\t3\t4\t5\t6\t-\t-\t-\t-\t-\t-\t-\t-\t-\t-\n\nnonsense\n";
    const SIZES: &str = "p\n512\t9\t9\t0\t0\t9\t9\t7\t0\t9\t9\t9\t9\t9\t9\n4096\t9\t9\t40\t2\t9\t9\t100\t11\t9\t9\t9\t9\t9\t9\n";
    const DATASETS: &str = "p\ttype\tfilesystem\t-\np\trecordsize\t131072\tdefault\n\
        p/v\ttype\tvolume\t-\np/v\tvolblocksize\t8192\t-\np/v\tsync\tdisabled\tlocal\np/v\tchecksum\toff\tinherited from p\n\
        p/v\tuser:note\ta\tb\tlocal\nnonsense\n";

    fn looked(ashifts: Option<&'static str>, pool: &str) -> Result<Observations> {
        let zpool = |arguments: &[&str]| {
            Ok(match arguments {
                ["get", .., "read_ops", _, "all-vdevs"] => "raidz1-0\t99\n/d/0\t7\n1\t8\n",
                ["get", .., "write_ops", _, "all-vdevs"] => {
                    return Err(Error::Output { program: "zpool", what: "no such property".into() });
                }
                ["get", .., "all-vdevs"] => {
                    let failed = || Error::Output { program: "zpool", what: "no such vdev".into() };
                    ashifts.ok_or_else(failed)?
                }
                ["get", ..] => PROPERTIES,
                ["status", ..] => STATUS,
                ["iostat", "-HplvP", _] => IO,
                ["iostat", "-Hpr", _] => SIZES,
                other => panic!("{other:?}"),
            }
            .to_owned())
        };
        Observations::look(
            &Commands { zpool: &zpool, zfs: &|_| Ok(DATASETS.to_owned()), reads: &|_| Ok(None), program: "" },
            pool,
        )
    }

    #[test]
    fn what_the_commands_print_is_understood() {
        let seen = looked(Some(ASHIFTS), "p").unwrap();
        assert_eq!((seen.capacity, seen.fragmentation, seen.dedup_ratio), (0.85, 0.12, 1.5));
        assert!(seen.has_log && seen.autotrim && seen.cache_bytes == 0);
        assert_eq!((seen.health.as_str(), seen.layout().as_str()), ("DEGRADED", "raidz1 3 + mirror 2"));
        assert_eq!((seen.tops[0].ashift, seen.leaves.len()), (12, 8));
        let leaf = |path: &str| seen.leaves.iter().find(|leaf| leaf.path == path).unwrap();
        assert_eq!((leaf("/d/0").errors, leaf("/d/0").medium.modelled.as_deref()), (3, Some("nvme")));
        assert_eq!((leaf("/d/2").state.as_str(), leaf("/d/2").top.as_str()), ("OFFLINE", "raidz1-0"));
        assert_eq!(leaf("/d/1").wait_ns, [None, Some(5000)]);
        assert_eq!((&leaf("/d/5").behind, &leaf("/d/0").behind), (&Some("resilvering".to_owned()), &None));
        assert_eq!(
            (&seen.bare_logs[..], &seen.caches[..]),
            (&["/d/3".to_owned()][..], &[("/d/4".to_owned(), Some(8192))][..])
        );
        assert_eq!(seen.writes, Some([42, 118]));
        assert_eq!(writes_of("p\nno numbers here\n512\t1\t2\n"), None);
        assert_eq!(["/d/0", "/d/1", "/d/3"].map(|path| leaf(path).operations[0]), [Some(7), Some(8), None]);
        assert_eq!(short_names("/dev/nvme0n1p1").last(), Some("nvme0n1"));
        let volume = seen.datasets.iter().find(|dataset| dataset.is_volume).unwrap();
        assert_eq!(
            (volume.block(), volume.text("sync"), volume.text("user:note")),
            (Some(8192), "disabled", "a\tb")
        );
        assert!(volume.is_own("sync") && !volume.is_own("volblocksize") && !volume.is_own("checksum"));
        assert!(looked(Some(ASHIFTS), "other").is_err());
        // Before 2.2 vdevs have no properties; then nothing is called misaligned for it.
        let old = looked(None, "p").unwrap();
        let right = |leaf: &Leaf| 1 << leaf.ashift == leaf.medium.unit.unwrap_or(512).clamp(512, 65536);
        assert!(old.leaves.len() == 8 && old.leaves.iter().all(right), "{old:?}");
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
