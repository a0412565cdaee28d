//! IOPS and bandwidth of a layout of modelled devices.
//!
//! # Random reads
//! Each of `Q` clients reads a block at a random place, waits for it, and reads the next. A block lies on one
//! top-level vdev: on each as many as it has room for, for a pool is filled evenly. Of a mirror the child
//! with the fewest transfers under way reads it; on raidz and draid each data column it has is read from its
//! own device, and the block is there when the last of them is. The devices are the models of
//! [`device::simulated`], the same that a modelled pool runs on, so their queues, arms and lanes are what
//! they are there. This closed system is played through.
//!
//! Its two ends can be told without playing. One client waits for the slowest of the `k` columns:
//! `1 / E[max of k]`. Many clients keep `n` devices busy, of which each block takes `k`: `n / (k * E[one])`.
//! That is why a raidz vdev reads small blocks as fast as one device, and mirrors read as fast as all.
//!
//! # Where blocks begin
//! On raidz of `w` devices with parity `p` everything takes a multiple of `p + 1` sectors. So within a
//! metaslab blocks begin on every `gcd(p + 1, w)`-th device only: on raidz2 of six on two of them, and two
//! other devices have data of every block and do twice the work of the rest. A metaslab's size is a power of
//! two, so that another one may begin elsewhere, and over many of them all devices are alike. What lies on
//! few is read as slowly as the devices that are in every block allow.
//!
//! # Writes
//! Writes without a waiting client are gathered and written in order, so the devices' bandwidth without
//! parity and copies is the limit. Those that must be stable at once go their [`ClientLatency`] to the pool,
//! and wait for a write and a flush of the device that has the log, one after the other: of a mirror for the
//! last of its children.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fmt;

use device::Operation;
use device::simulated::{Medium, Model as Device};
use serde::Serialize;

use super::client_latency::ClientLatency;
use super::{Model, bytes, percent};
use crate::error::{Error, Result};
use crate::layout::{Layout, Vdev};
use crate::size::Size;
use crate::table;

/// Clients at once.
const DEPTHS: [usize; 6] = [1, 2, 4, 8, 16, 32];
/// Reads that are played through for each figure.
const READS: usize = 8000;
/// Size that devices are taken to have; only the share that is used matters.
const DEVICE_BYTES: u64 = 1 << 40;
/// The smallest unit that a column is made of.
const SECTOR_BYTES: u64 = 4096;
/// A record of the intent log with a small write in it.
const LOG_BYTES: u64 = 8192;

/// Sectors of the largest metaslab that OpenZFS makes, as a power of two: 16 GiB.
const METASLAB_SECTORS: u64 = 1 << 22;
/// Metaslabs that a vdev can have.
const MOST_METASLABS: u64 = 1 << 17;

/// Where data lie.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Placed {
    /// The share of each device, from its start.
    pub used: f64,
    /// Metaslabs of each vdev; so many that where they begin evens out where left out.
    pub metaslabs: Option<u64>,
}

impl Default for Placed {
    /// Everywhere.
    fn default() -> Self {
        Self { used: 1.0, metaslabs: None }
    }
}

/// The predicted speed of a layout of modelled devices.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Speed {
    /// The layout.
    pub layout: String,
    /// The model of its devices.
    pub device: String,
    /// Size of a block.
    pub block: Size,
    /// Random reads outside the cache.
    pub random_reads: Vec<Reads>,
    /// Bytes a second that the devices can read in order.
    pub read_limit: f64,
    /// Bytes a second that the devices can write in order.
    pub write_limit: f64,
    /// Each top-level vdev by itself; likes are one.
    pub vdevs: Vec<OfVdev>,
    /// Where the intent log is.
    pub log: String,
    /// How clients reach the pool.
    pub way: ClientLatency,
    /// Nanoseconds that the log takes of a stable write.
    pub log_ns: f64,
    /// Writes a second that one client makes stable, each before the next.
    pub stable_writes: f64,
}

/// One top-level vdev, or some that are alike.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct OfVdev {
    /// The vdev.
    pub vdev: String,
    /// How many there are.
    pub count: usize,
    /// The share of the pool's blocks that lie on one of them.
    pub share: f64,
    /// Where data lie.
    #[serde(flatten)]
    pub placed: Placed,
    /// Random reads of one of them, were it alone.
    pub random_reads: Vec<Reads>,
    /// Bytes a second that the devices of one can read in order.
    pub read_limit: f64,
    /// Bytes a second that they can write in order.
    pub write_limit: f64,
    /// Why reads may be slower than that where data lie on few metaslabs.
    pub mind: Option<String>,
}

/// Random reads by so many clients.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Reads {
    /// Clients at once.
    pub depth: usize,
    /// Blocks a second.
    pub iops: f64,
}

/// The model of a device by its name.
pub fn device(name: &str) -> Result<Device> {
    Device::device(name).ok_or_else(|| {
        let names: Vec<&str> = Device::DEVICES.iter().map(|model| model.name).collect();
        Error::Experiment(format!("there is no model of a device '{name}'; there are {}", names.join(", ")))
    })
}

/// How stable writes reach the pool, and where they are kept.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Stable {
    /// The way.
    pub way: ClientLatency,
    /// The model of a log device, where there is one.
    pub log: Option<Device>,
}

impl Speed {
    /// Of `layout` over devices like `device`, for blocks of `block` that lie as `placed` says: of all vdevs,
    /// or of each one.
    pub fn of(
        layout: &Layout,
        device: Device,
        stable: &Stable,
        block: Size,
        placed: &[Placed],
    ) -> Result<Self> {
        let count = layout.vdevs().len();
        if placed.len() != 1 && placed.len() != count {
            return Err(Error::Experiment(format!(
                "{layout} has {count} vdevs, and {} values were given: give one for all, or one for each",
                placed.len()
            )));
        }
        for Placed { used, metaslabs } in placed {
            if !(0.001..=1.0).contains(used) {
                return Err(Error::Experiment(format!("used: {used} is not a share from 0.001 to 1")));
            }
            if metaslabs.is_some_and(|count| !(1..=MOST_METASLABS).contains(&count)) {
                return Err(Error::Experiment(format!("metaslabs: not a number from 1 to {MOST_METASLABS}")));
            }
        }
        if block.0 == 0 || block.0 > 16 << 20 {
            return Err(Error::Experiment(format!("block: {block} is not a size up to 16M")));
        }
        let all: Vec<(Vdev, Placed)> =
            layout.vdevs().iter().copied().zip(placed.iter().copied().cycle()).collect();
        let vdevs = each(&all, device, block.0);
        let sum = |of: fn(&OfVdev) -> f64| vdevs.iter().map(|it| of(it) * it.count as f64).sum::<f64>();
        let (on, children) = match stable.log {
            Some(log) => (log, 1),
            None => (device, layout.vdevs().iter().map(children).max().unwrap_or(1)),
        };
        let log_ns = log_ns(on, children);
        Ok(Self {
            layout: layout.to_string(),
            device: device.to_string(),
            block,
            random_reads: reads(&all, device, block.0),
            read_limit: sum(|it| it.read_limit),
            write_limit: sum(|it| it.write_limit),
            vdevs,
            log: stable.log.map_or_else(|| "in the pool".to_owned(), |log| log.to_string()),
            way: stable.way.clone(),
            log_ns,
            stable_writes: 1e9 / (stable.way.ns as f64 + log_ns),
        })
    }

    /// Random reads by so many clients, where that was computed.
    pub fn iops(&self, depth: usize) -> Option<f64> {
        self.random_reads.iter().find(|reads| reads.depth == depth).map(|reads| reads.iops)
    }
}

/// Devices that a small write of the log goes to.
fn children(vdev: &Vdev) -> u64 {
    match *vdev {
        Vdev::Disk => 1,
        Vdev::Mirror { ways } => ways,
        // A block of the log, and its parity.
        Vdev::Raidz { parity, .. } | Vdev::Draid { parity, .. } => LOG_BYTES / SECTOR_BYTES + parity,
    }
}

/// How much of the pool's data has room on a vdev, in devices.
fn room(vdev: &Vdev) -> f64 {
    vdev.devices() as f64 * vdev.ideal()
}

/// The figures of each vdev by itself; likes are one.
fn each(all: &[(Vdev, Placed)], device: Device, block: u64) -> Vec<OfVdev> {
    let whole: f64 = all.iter().map(|(vdev, _)| room(vdev)).sum();
    let mut vdevs: Vec<OfVdev> = Vec::new();
    for one in all {
        let (vdev, placed) = *one;
        let name = match vdev.keyword() {
            Some(keyword) => format!("{keyword} {}", vdev.devices()),
            None => "disk".to_owned(),
        };
        if let Some(known) = vdevs.iter_mut().find(|it| it.vdev == name && it.placed == placed) {
            known.count += 1;
            continue;
        }
        // Each child of a mirror can read something else.
        let copies = if let Vdev::Mirror { ways } = vdev { ways as f64 } else { room(&vdev) };
        vdevs.push(OfVdev {
            vdev: name,
            count: 1,
            share: room(&vdev) / whole,
            placed,
            random_reads: reads(std::slice::from_ref(one), device, block),
            read_limit: copies * device.read_bytes_per_second as f64,
            write_limit: room(&vdev) * device.write_bytes_per_second as f64,
            mind: uneven(vdev).filter(|_| placed.metaslabs.is_none()),
        });
    }
    vdevs
}

fn reads(all: &[(Vdev, Placed)], device: Device, block: u64) -> Vec<Reads> {
    let of = |depth| Reads { depth, iops: random_reads(all, device, block, depth) };
    DEPTHS.map(of).to_vec()
}

/// One device, and when each transfer under way on it ends.
struct Busy {
    medium: Medium,
    until_ns: Vec<u64>,
}

impl Busy {
    fn load(&mut self, now_ns: u64) -> usize {
        self.until_ns.retain(|until_ns| *until_ns > now_ns);
        self.until_ns.len()
    }

    fn read(&mut self, now_ns: u64, offset: u64, len: u64) -> u64 {
        let done_ns = self.medium.serve(now_ns, Operation::Read, offset, len);
        self.until_ns.push(done_ns);
        done_ns
    }
}

/// A top-level vdev at work.
struct AtWork {
    vdev: Vdev,
    placed: Placed,
    devices: Vec<Busy>,
    /// The room of it and of all before it.
    room_until: f64,
}

/// Blocks a second that `depth` clients read.
fn random_reads(all: &[(Vdev, Placed)], device: Device, block: u64, depth: usize) -> f64 {
    let mut rng = fastrand::Rng::with_seed(1);
    let mut vdevs: Vec<AtWork> = Vec::new();
    let mut whole = 0.0;
    for (vdev, placed) in all {
        let busy = (0..vdev.devices())
            .map(|_| Busy { medium: Medium::new(device, DEVICE_BYTES, rng.u64(..)), until_ns: Vec::new() });
        whole += room(vdev);
        vdevs.push(AtWork { vdev: *vdev, placed: *placed, devices: busy.collect(), room_until: whole });
    }
    let mut clients: BinaryHeap<Reverse<u64>> = (0..depth).map(|_| Reverse(0)).collect();
    let mut last_ns = 0;
    for _ in 0..READS {
        let Some(Reverse(now_ns)) = clients.pop() else { break };
        let at = rng.f64() * whole;
        let Some(AtWork { vdev, placed, devices, .. }) = vdevs.iter_mut().find(|it| at < it.room_until)
        else {
            break;
        };
        let places = ((DEVICE_BYTES as f64 * placed.used) as u64 / SECTOR_BYTES).max(1);
        let offset = rng.u64(..places) * SECTOR_BYTES;
        let done_ns = match *vdev {
            Vdev::Disk | Vdev::Mirror { .. } => {
                let first = rng.usize(..devices.len());
                let count = devices.len();
                let least = (0..count).map(|index| (first + index) % count).min_by_key(|index| {
                    devices.get_mut(*index).map_or(usize::MAX, |device| device.load(now_ns))
                });
                least
                    .and_then(|index| devices.get_mut(index))
                    .map_or(now_ns, |device| device.read(now_ns, offset, block))
            }
            Vdev::Raidz { parity, width } => {
                let place = data_columns(&mut rng, parity, width, placed.metaslabs);
                columns(devices, place, now_ns, offset, block, width - parity)
            }
            // Its rows are permuted.
            Vdev::Draid { data, children, .. } => {
                let first = rng.u64(..children);
                columns(devices, |column| first + column, now_ns, offset, block, data)
            }
        };
        last_ns = last_ns.max(done_ns);
        clients.push(Reverse(done_ns));
    }
    READS as f64 * 1e9 / last_ns.max(1) as f64
}

/// Where the data columns of some block of a raidz vdev are: the device of each, counted on beyond the last.
fn data_columns(
    rng: &mut fastrand::Rng,
    parity: u64,
    width: u64,
    metaslabs: Option<u64>,
) -> impl Fn(u64) -> u64 + use<> {
    let begin = match metaslabs {
        Some(metaslabs) => rng.u64(..metaslabs) * METASLAB_SECTORS + rng.u64(..width) * (parity + 1),
        None => rng.u64(..width),
    };
    // The parity comes first; that of raidz1 changes places with the first data column every mebibyte.
    let is_swapped = parity == 1 && rng.bool();
    move |column| if column == 0 && is_swapped { begin } else { begin + parity + column }
}

/// Reads the data columns of a block, each from the device that `place` says; when the last is there.
fn columns(
    devices: &mut [Busy],
    place: impl Fn(u64) -> u64,
    now_ns: u64,
    offset: u64,
    block: u64,
    data: u64,
) -> u64 {
    let sectors = block.div_ceil(SECTOR_BYTES);
    let touched = sectors.min(data).max(1);
    let count = devices.len();
    let done = (0..touched).filter_map(|column| {
        let len = (sectors / touched + u64::from(column < sectors % touched)) * SECTOR_BYTES;
        let device = devices.get_mut(place(column) as usize % count)?;
        Some(device.read(now_ns, offset, len))
    });
    done.max().unwrap_or(now_ns)
}

/// Nanoseconds that a write and a flush take in the mean, one at a time, of the last of so many devices that
/// each has a part of it.
fn log_ns(device: Device, children: u64) -> f64 {
    let mut media: Vec<Medium> = (1..=children).map(|seed| Medium::new(device, DEVICE_BYTES, seed)).collect();
    let (writes, mut now_ns) = (1000, 0);
    for index in 0..writes {
        for operation in [Operation::Write, Operation::Flush] {
            let done =
                media.iter_mut().map(|medium| medium.serve(now_ns, operation, index * LOG_BYTES, LOG_BYTES));
            now_ns = done.max().unwrap_or(now_ns);
        }
    }
    now_ns as f64 / writes as f64
}

/// A note about a raidz vdev whose devices are used unevenly within a metaslab.
fn uneven(vdev: Vdev) -> Option<String> {
    let Vdev::Raidz { parity, width } = vdev else { return None };
    let multiple = parity + 1;
    (gcd(multiple, width) > 1).then(|| {
        format!(
            "on {width} devices, where blocks take multiples of {multiple} sectors, blocks of one metaslab \
             begin on {} devices only, and the others have more work: state the number of metaslabs with \
             data by --metaslabs",
            width / gcd(multiple, width)
        )
    })
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

impl Model for Speed {
    const FORMULA: &'static str = "reads: one client 1 / E[slowest of k columns], many n / (k * E[one]), \
        between them played through; in order: devices * data share * bandwidth; stable: 1 / (way + write + \
        flush of the log device)";
    const SOURCE: &'static str = "closed queueing networks (Lazowska and others 1984, Quantitative System \
        Performance); the devices are those of cenote's device::simulated";
}

impl fmt::Display for Speed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} of modelled {}, blocks of {}\n", self.layout, self.device, self.block)?;
        let rows: Vec<Vec<String>> = self
            .random_reads
            .iter()
            .map(|reads| {
                let rate = bytes(reads.iops * self.block.0 as f64) + "/s";
                vec![reads.depth.to_string(), format!("{:.0}", reads.iops), rate]
            })
            .collect();
        f.write_str(&table::plain(&["clients", "random reads/s", "bytes"], &rows))?;
        writeln!(
            f,
            "\nin order:      at most {}/s read, {}/s written",
            bytes(self.read_limit),
            bytes(self.write_limit)
        )?;
        let us = |ns: f64| format!("{:.0} us", ns / 1e3);
        writeln!(
            f,
            "stable writes: {:.0} a second by one client: the way {}, {}; log {}, {}\n",
            self.stable_writes,
            self.way.name,
            us(self.way.ns as f64),
            self.log,
            us(self.log_ns)
        )?;
        let head = ["vdev", "blocks", "used", "reads/s by 1", "by 32, alone", "read", "written"];
        let rows: Vec<Vec<String>> = self.vdevs.iter().map(OfVdev::row).collect();
        f.write_str(&table::plain(&head, &rows))?;
        let minds = self.vdevs.iter().filter_map(|vdev| Some((vdev, vdev.mind.as_ref()?)));
        minds.into_iter().try_for_each(|(vdev, told)| writeln!(f, "mind {}: {told}", vdev.vdev))
    }
}

impl OfVdev {
    fn row(&self) -> Vec<String> {
        let name = if self.count > 1 { format!("{} x {}", self.count, self.vdev) } else { self.vdev.clone() };
        let reads = |at: Option<&Reads>| at.map_or_else(String::new, |reads| format!("{:.0}", reads.iops));
        vec![
            name,
            percent(self.share),
            percent(self.placed.used),
            reads(self.random_reads.first()),
            reads(self.random_reads.last()),
            bytes(self.read_limit) + "/s",
            bytes(self.write_limit) + "/s",
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn speed(layout: &str, block: u64) -> Speed {
        let placed = [Placed::default()];
        Speed::of(&layout.parse().unwrap(), Device::HDD_7200, &Stable::default(), Size(block), &placed)
            .unwrap()
    }

    /// The time of a random read of a disk: half a turn, and the mean seek between two random places, which
    /// are apart by 8/15 in the mean of the root.
    fn mean_read_ns(device: Device) -> f64 {
        let arm = device.arm.unwrap();
        let span = (arm.longest_seek_ns - arm.shortest_seek_ns) as f64;
        device.read_latency_ns as f64
            + arm.shortest_seek_ns as f64
            + span * 8.0 / 15.0
            + arm.rotation_ns as f64 / 2.0
    }

    fn is_near(got: f64, expected: f64, share: f64) {
        assert!((got / expected - 1.0).abs() < share, "{got}, not {expected}");
    }

    #[test]
    fn one_disk_reads_as_its_arm_allows() {
        let one = 1e9 / mean_read_ns(Device::HDD_7200);
        for depth in DEPTHS {
            is_near(speed("1", 4096).iops(depth).unwrap(), one, 0.03);
        }
    }

    #[test]
    fn many_clients_keep_all_devices_of_mirrors_busy() {
        let one = 1e9 / mean_read_ns(Device::HDD_7200);
        is_near(speed("mirror 2 + mirror 2", 4096).iops(32).unwrap(), 4.0 * one, 0.06);
        is_near(speed("mirror 2 + mirror 2", 4096).iops(1).unwrap(), one, 0.03);
    }

    #[test]
    fn a_block_over_all_columns_costs_every_device() {
        let one = 1e9 / mean_read_ns(Device::HDD_7200);
        let wide = speed("raidz2 6", 128 << 10);
        // Four of six devices for each block.
        is_near(wide.iops(32).unwrap(), 6.0 / 4.0 * one, 0.1);
        assert!(wide.iops(1).unwrap() < one, "the slowest of four is slower than one");
        // A block of one sector is on one device.
        is_near(speed("raidz2 6", 4096).iops(1).unwrap(), one, 0.03);
    }

    #[test]
    fn on_one_metaslab_the_devices_that_are_in_every_block_are_the_limit() {
        let one = 1e9 / mean_read_ns(Device::HDD_7200);
        let of = |layout: &str, metaslabs| {
            let placed = Placed { metaslabs, ..Placed::default() };
            let layout = layout.parse().unwrap();
            Speed::of(&layout, Device::HDD_7200, &Stable::default(), Size(16 << 10), &[placed]).unwrap()
        };
        // Two devices are in every block.
        is_near(of("raidz2 6", Some(1)).iops(32).unwrap(), one, 0.05);
        // Over the metaslabs all are alike.
        for metaslabs in [Some(300), None] {
            is_near(of("raidz2 6", metaslabs).iops(32).unwrap(), 6.0 / 4.0 * one, 0.1);
        }
        // Two sectors and three devices have no common factor: blocks begin on all.
        for metaslabs in [Some(1), None] {
            is_near(of("raidz1 3", metaslabs).iops(32).unwrap(), 3.0 / 2.0 * one, 0.1);
        }
        assert!(of("raidz2 6", None).to_string().contains("begin on 2 devices only"));
        assert!(!of("raidz1 3", None).to_string().contains("mind"));
    }

    #[test]
    fn limits_leave_out_parity_and_copies() {
        let raidz = speed("raidz2 7", 1 << 20);
        is_near(raidz.write_limit, 5.0 * 200e6, 1e-9);
        is_near(raidz.read_limit, 5.0 * 200e6, 1e-9);
        let mirrors = speed("mirror 2 + mirror 2", 1 << 20);
        is_near(mirrors.write_limit, 2.0 * 200e6, 1e-9);
        is_near(mirrors.read_limit, 4.0 * 200e6, 1e-9);
    }

    #[test]
    fn each_vdev_has_figures_of_its_own_and_blocks_by_its_room() {
        let two = speed("mirror 2 + mirror 2", 16 << 10);
        assert_eq!((two.vdevs.len(), two.vdevs[0].count, two.vdevs[0].share), (1, 2, 0.5));
        let mixed = speed("raidz1 3 + raidz2 6", 16 << 10);
        let [small, large] = &mixed.vdevs[..] else { panic!("{mixed:?}") };
        is_near(large.share, 4.0 / 6.0, 1e-9);
        is_near(mixed.write_limit, small.write_limit + large.write_limit, 1e-9);
        // The vdev that is busier than it is fast is the limit of both.
        let alone = |vdev: &OfVdev| vdev.random_reads.last().unwrap().iops;
        let limit = (alone(small) / small.share).min(alone(large) / large.share);
        assert!((0.75 * limit..1.02 * limit).contains(&mixed.iops(32).unwrap()), "{limit} {mixed:?}");
        assert!(mixed.to_string().contains("mind raidz2 6:") && !mixed.to_string().contains("mind raidz1"));
        let of = |placed: &[Placed]| {
            let layout = "mirror 2 + mirror 2".parse().unwrap();
            Speed::of(&layout, Device::HDD_7200, &Stable::default(), Size(16 << 10), placed)
        };
        // One is new, the other full.
        let near = Placed { used: 0.001, ..Placed::default() };
        let uneven = of(&[near, Placed::default()]).unwrap();
        assert_eq!(uneven.vdevs.len(), 2);
        assert!(uneven.iops(1) > two.iops(1) && uneven.iops(1) < of(&[near]).unwrap().iops(1));
        assert!(of(&[near; 3]).is_err());
    }

    #[test]
    fn a_stable_write_takes_the_way_and_the_log_device() {
        let of = |way: &str, log| {
            let stable = Stable { way: way.parse().unwrap(), log };
            let layout = "raidz1 3".parse().unwrap();
            Speed::of(&layout, Device::HDD_7200, &stable, Size(8192), &[Placed::default()]).unwrap()
        };
        let in_pool = of("0us", None).stable_writes;
        assert!((80.0..125.0).contains(&in_pool), "{in_pool}");
        let bare = of("0us", Some(Device::OPTANE));
        is_near(bare.log_ns, 10_000.0 + 8192.0 / 2.2, 0.01);
        // A quick log is as quick as the way to it.
        is_near(of("nbd", Some(Device::OPTANE)).stable_writes, 1e9 / (75_000.0 + bare.log_ns), 1e-9);
        assert!(bare.stable_writes > 6.0 * of("nbd", Some(Device::OPTANE)).stable_writes);
        is_near(of("nbd", None).stable_writes, in_pool, 0.02);
        assert!(device("hdd-5400").is_ok() && device("tape").is_err());
    }
}
