//! A frame: what pools, datasets, clients and devices did in a second between two looks.

use std::collections::HashMap;
use std::time::Duration;

use serde::Serialize;
use server::api::{Counters, Numbers, PoolEntry, PoolWhatIf, Reshaping};

/// Reads and writes in a second.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Rates {
    /// Reads.
    pub reads: f64,
    /// Writes.
    pub writes: f64,
    /// Bytes that were read.
    pub nread: f64,
    /// Bytes that were written.
    pub nwritten: f64,
}

/// The ARC.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Arc {
    /// Bytes in use.
    pub size: u64,
    /// Its budget in bytes.
    pub target: u64,
    /// Accesses of readers in a second.
    pub reads: f64,
    /// The share of them that were in memory, from 0 to 1; 1 without any.
    pub hit_ratio: f64,
    /// The share of the reads so far that a budget of this size answers without reading ahead, and one twice
    /// as large; none before there were reads.
    pub what_if: Option<(f64, f64)>,
}

impl Arc {
    /// Notes what the curves of pools say, each with the weight of its reads.
    pub fn note_curves(&mut self, pools: &[PoolWhatIf]) {
        let (mut reads, mut now, mut twice) = (0.0, 0.0, 0.0);
        for pool in pools {
            for curve in pool.curves.iter().filter(|curve| curve.dataset.is_none()) {
                reads += curve.samples;
                now += curve.samples * curve.hit_ratio(pool.arc_bytes);
                twice += curve.samples * curve.hit_ratio(pool.arc_bytes.saturating_mul(2));
            }
        }
        self.what_if = (reads > 0.0).then(|| (now / reads, twice / reads));
    }
}

/// A pool.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Pool {
    /// Its name.
    pub name: String,
    /// Its health.
    pub health: String,
    /// Its size in bytes.
    pub size: u64,
    /// Allocated bytes.
    pub allocated: u64,
    /// What its vdevs transferred.
    #[serde(flatten)]
    pub rates: Rates,
}

/// A dataset.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Dataset {
    /// Its name.
    pub name: String,
    /// What its clients did.
    #[serde(flatten)]
    pub rates: Rates,
    /// Blocks that the ARC did not have, in a second.
    pub loads: f64,
    /// Bytes written to devices for each byte that clients wrote, since the import; none before the first.
    pub write_amplification: Option<f64>,
}

/// A client.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Client {
    /// `nbd` or `mount`.
    pub kind: String,
    /// Its volume, or the directory where a filesystem is mounted.
    pub name: String,
    /// Its number.
    pub id: u64,
    /// What it did.
    #[serde(flatten)]
    pub rates: Rates,
}

/// A device.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Device {
    /// Its name.
    pub name: String,
    /// Its pool.
    pub pool: String,
    /// What it transferred.
    #[serde(flatten)]
    pub rates: Rates,
    /// How long a read took on average, in nanoseconds.
    pub read_ns: f64,
    /// The same of writes.
    pub write_ns: f64,
    /// Transfers under way.
    pub active: u64,
}

/// What happened in a second.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Frame {
    /// How long the frame is, in seconds.
    pub seconds: f64,
    /// The ARC.
    pub arc: Arc,
    /// Pools.
    pub pools: Vec<Pool>,
    /// Datasets.
    pub datasets: Vec<Dataset>,
    /// Clients.
    pub clients: Vec<Client>,
    /// Devices.
    pub devices: Vec<Device>,
    /// Volumes that get another block size.
    pub reshapes: Vec<Reshaping>,
}

/// What numbers grew between two looks.
struct Change<'a> {
    now: &'a Numbers,
    before: Option<&'a Numbers>,
    seconds: f64,
}

impl Change<'_> {
    fn grown(&self, name: &str) -> u64 {
        let before = self.before.map_or(0, |before| before.get(name));
        self.now.get(name).saturating_sub(before)
    }

    fn rate(&self, name: &str) -> f64 {
        self.grown(name) as f64 / self.seconds
    }

    fn rates(&self) -> Rates {
        Rates {
            reads: self.rate("reads"),
            writes: self.rate("writes"),
            nread: self.rate("nread"),
            nwritten: self.rate("nwritten"),
        }
    }

    /// The average of what takes `total` for `count` operations.
    fn average(&self, total: &str, count: &str) -> f64 {
        self.grown(total) as f64 / self.grown(count).max(1) as f64
    }
}

/// What names a group: group, pool, object set, guid of vdev.
type Key<'a> = (&'a str, Option<&'a str>, Option<u64>, Option<u64>);

fn by_key(counters: &Counters) -> HashMap<Key<'_>, &Numbers> {
    let groups = counters.groups.iter().map(|group| {
        let dataset = group.dataset.as_ref().map(|dataset| dataset.objset);
        let vdev = group.vdev.as_ref().map(|vdev| vdev.guid);
        ((group.name.as_str(), group.pool.as_deref(), dataset, vdev), &group.counters)
    });
    groups.collect()
}

impl Frame {
    /// What happened between two looks.
    pub fn between(before: &Counters, now: &Counters, pools: &[PoolEntry], time: Duration) -> Self {
        let seconds = time.as_secs_f64().max(1e-3);
        let mut frame = Self { seconds, ..Self::default() };
        let (earlier, present) = (by_key(before), by_key(now));
        let mut by_pool: HashMap<&str, Rates> = HashMap::new();
        for group in &now.groups {
            let objset = group.dataset.as_ref().map(|dataset| dataset.objset);
            let guid = group.vdev.as_ref().map(|vdev| vdev.guid);
            let pool = group.pool.as_deref();
            let key = (group.name.as_str(), pool, objset, guid);
            let change = Change { now: &group.counters, before: earlier.get(&key).copied(), seconds };
            match (&group.dataset, &group.vdev, pool) {
                (None, None, None) if group.name == "arcstats" => frame.arc = arc(&change),
                (Some(dataset), _, Some(_)) if group.name.starts_with("objset-") => {
                    let Some(name) = &dataset.name else { continue };
                    let layers = ("amplification", pool, objset, None);
                    let none = Numbers::default();
                    let layers = Change {
                        now: present.get(&layers).copied().unwrap_or(&none),
                        before: earlier.get(&layers).copied(),
                        seconds,
                    };
                    frame.datasets.push(Dataset {
                        name: name.clone(),
                        rates: change.rates(),
                        loads: layers.rate("loads"),
                        write_amplification: amplification(layers.now),
                    });
                }
                (_, Some(vdev), Some(pool)) => {
                    let rates = change.rates();
                    if vdev.is_leaf {
                        frame.devices.push(Device {
                            name: vdev.name.clone(),
                            pool: pool.to_owned(),
                            rates,
                            read_ns: change.average("read_ns", "reads"),
                            write_ns: change.average("write_ns", "writes"),
                            active: group.counters.get("active"),
                        });
                        let sum = by_pool.entry(pool).or_default();
                        sum.reads += rates.reads;
                        sum.writes += rates.writes;
                        sum.nread += rates.nread;
                        sum.nwritten += rates.nwritten;
                    }
                }
                _ => {}
            }
        }
        for client in &now.clients {
            let is_same = |other: &&server::api::Client| {
                (&other.kind, other.id, &other.pool) == (&client.kind, client.id, &client.pool)
            };
            let earlier = before.clients.iter().find(is_same).map(|client| &client.counters);
            let name = client.mountpoint.as_ref().map(|place| place.display().to_string());
            frame.clients.push(Client {
                kind: client.kind.clone(),
                name: name.unwrap_or_else(|| client.dataset.clone()),
                id: client.id,
                rates: Change { now: &client.counters, before: earlier, seconds }.rates(),
            });
        }
        frame.pools = pools.iter().map(|pool| described(pool, &by_pool)).collect();
        frame
    }
}

fn arc(change: &Change<'_>) -> Arc {
    let sum = |what: &str| {
        change.rate(&format!("demand_data_{what}")) + change.rate(&format!("demand_metadata_{what}"))
    };
    let hits = sum("hits");
    let reads = hits + sum("iohits") + sum("misses");
    Arc {
        size: change.now.get("size"),
        target: change.now.get("c"),
        reads,
        hit_ratio: if reads > 0.0 { hits / reads } else { 1.0 },
        what_if: None,
    }
}

/// Bytes on devices for each byte of clients.
fn amplification(layers: &Numbers) -> Option<f64> {
    let written: u64 =
        ["devices", "metadata_devices", "log_devices"].map(|layer| layers.get(layer)).iter().sum();
    let clients = layers.get("client_written");
    (clients > 0).then(|| written as f64 / clients as f64)
}

fn described(pool: &PoolEntry, rates: &HashMap<&str, Rates>) -> Pool {
    let text = |name: &str| {
        let property = pool.properties.iter().find(|property| property.name == name);
        property.and_then(|property| property.parsable.clone()).unwrap_or_default()
    };
    Pool {
        name: pool.name.clone(),
        health: if pool.suspended { "SUSPENDED".into() } else { text("health") },
        size: text("size").parse().unwrap_or(0),
        allocated: text("allocated").parse().unwrap_or(0),
        rates: rates.get(pool.name.as_str()).copied().unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use server::api::{CountedDataset, CountedVdev, CounterGroup, Curve, Points, Prediction};

    use super::*;

    fn numbers(all: &[(&str, u64)]) -> Numbers {
        Numbers(all.iter().map(|(name, number)| ((*name).to_owned(), *number)).collect())
    }

    fn counters(factor: u64) -> Counters {
        let of = |name: &str, all: &[(&str, u64)]| CounterGroup {
            name: name.into(),
            counters: numbers(all),
            ..CounterGroup::default()
        };
        let pool = Some("tank".to_owned());
        let dataset = Some(CountedDataset { name: Some("tank/vol".into()), objset: 54 });
        let leaf = |guid| Some(CountedVdev { name: format!("/dev/{guid}"), guid, is_leaf: true });
        let disk = |guid| CounterGroup {
            pool: pool.clone(),
            vdev: leaf(guid),
            ..of("vdev", &[("reads", 10 * factor), ("nread", 40_960 * factor), ("read_ns", 5000 * factor)])
        };
        let arc =
            [("size", 7), ("c", 9), ("demand_data_hits", 30 * factor), ("demand_data_misses", 10 * factor)];
        Counters {
            groups: vec![
                of("arcstats", &arc),
                CounterGroup {
                    pool: pool.clone(),
                    dataset: dataset.clone(),
                    ..of("objset-0x36", &[("writes", 4 * factor), ("nwritten", 16_384 * factor)])
                },
                CounterGroup {
                    pool: pool.clone(),
                    dataset,
                    ..of(
                        "amplification",
                        &[
                            ("client_written", 100),
                            ("devices", 300),
                            ("log_devices", 50),
                            ("loads", 6 * factor),
                        ],
                    )
                },
                disk(1),
                disk(2),
            ],
            clients: vec![server::api::Client {
                kind: "nbd".into(),
                id: 1,
                pool: "tank".into(),
                dataset: "tank/vol".into(),
                client: None,
                mountpoint: None,
                counters: numbers(&[("reads", 8 * factor)]),
                waiting: Vec::new(),
            }],
            ..Counters::default()
        }
    }

    #[test]
    fn curves_of_pools_count_by_their_reads() {
        let pool = |samples: f64, ratios: [f64; 2]| PoolWhatIf {
            name: "tank".into(),
            arc_bytes: 100,
            arc_max_bytes: 100,
            curves: vec![Curve {
                dataset: None,
                samples,
                rate: 1.0,
                followed_blocks: 10,
                passes: 1.0,
                now: Prediction::default(),
                distinct_blocks: 10,
                distinct_bytes: 1000,
                distinct_stored_bytes: 1000,
                distinct_metadata_bytes: 0,
                metadata_share: 0.0,
                points: Points(vec![(100, ratios[0]), (200, ratios[1])]),
                least_points: Points::default(),
                metadata_points: Points::default(),
            }],
        };
        let mut arc = Arc::default();
        arc.note_curves(&[]);
        assert_eq!(arc.what_if, None);
        arc.note_curves(&[pool(10.0, [0.5, 0.75]), pool(30.0, [0.25, 0.25])]);
        assert_eq!(arc.what_if, Some((0.3125, 0.375)));
    }

    #[test]
    fn a_frame_is_the_difference_by_second() {
        let (before, now) = (counters(1), counters(3));
        let frame = Frame::between(&before, &now, &[], Duration::from_secs(2));
        assert_eq!((frame.arc.size, frame.arc.reads, frame.arc.hit_ratio), (7, 40.0, 0.75));
        let dataset = &frame.datasets[0];
        assert_eq!((dataset.rates.writes, dataset.rates.nwritten, dataset.loads), (4.0, 16_384.0, 6.0));
        assert_eq!(dataset.write_amplification, Some(3.5));
        assert_eq!(
            (frame.devices.len(), frame.devices[0].rates.reads, frame.devices[0].read_ns),
            (2, 10.0, 500.0)
        );
        assert_eq!((frame.clients[0].rates.reads, frame.clients[0].name.as_str()), (8.0, "tank/vol"));
    }
}
