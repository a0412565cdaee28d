//! IOPS and bandwidth of a layout of modelled devices.
//!
//! # Random reads
//! Each of `Q` clients reads a block at a random place, waits for it, and reads the next. A block lies on one top-level vdev. Of a mirror the child with the fewest transfers under
//! way reads it; on raidz and draid each data column it has is read from its own device, and the block is there when the last of them is. The devices are the models of
//! [`device::simulated`], the same that a modelled pool runs on, so their queues, arms and lanes are what they are there. This closed system is played through.
//!
//! Its two ends can be told without playing. One client waits for the slowest of the `k` columns: `1 / E[max of k]`. Many clients keep `n` devices busy, of which each
//! block takes `k`: `n / (k * E[one])`. That is why a raidz vdev reads small blocks as fast as one device, and mirrors read as fast as all.
//!
//! # Where blocks begin
//! On raidz of `w` devices with parity `p` everything takes a multiple of `p + 1` sectors. So within a metaslab blocks begin on every `gcd(p + 1, w)`-th device only: on raidz2 of six on two
//! of them, and two other devices have data of every block and do twice the work of the rest. A metaslab's size is a power of two, so that another one may begin elsewhere, and over many of them
//! all devices are alike. What lies on few is read as slowly as the devices that are in every block allow.
//!
//! # Writes
//! Those that nobody waits for are gathered and written in order, so the devices' bandwidth without parity and copies is the limit. Those that must be stable at once
//! wait for a write and a flush of the device that has the log, one after the other.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fmt;

use device::Operation;
use device::simulated::{Medium, Model as Device};
use serde::Serialize;

use super::{Model, bytes};
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

/// What a layout of modelled devices can do.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Speed {
    /// The layout.
    pub layout: String,
    /// The model of its devices.
    pub device: String,
    /// Size of a block.
    pub block: Size,
    /// Where data lie.
    #[serde(flatten)]
    pub placed: Placed,
    /// Random reads outside the cache.
    pub random_reads: Vec<Reads>,
    /// Bytes a second that the devices can read in order.
    pub read_limit: f64,
    /// Bytes a second that the devices can write in order.
    pub write_limit: f64,
    /// Where the intent log is.
    pub log: String,
    /// Writes a second that one client makes stable, each before the next.
    pub stable_writes: f64,
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

impl Speed {
    /// Of `layout` over devices like `device`, with a log on one like `log` where given, for blocks of `block` that lie as `placed` says.
    pub fn of(
        layout: &Layout,
        device: Device,
        log: Option<Device>,
        block: Size,
        placed: Placed,
    ) -> Result<Self> {
        let Placed { used, metaslabs } = placed;
        if !(0.001..=1.0).contains(&used) {
            return Err(Error::Experiment(format!("used: {used} is not a share from 0.001 to 1")));
        }
        if metaslabs.is_some_and(|count| !(1..=MOST_METASLABS).contains(&count)) {
            return Err(Error::Experiment(format!("metaslabs: not a number from 1 to {MOST_METASLABS}")));
        }
        if block.0 == 0 || block.0 > 16 << 20 {
            return Err(Error::Experiment(format!("block: {block} is not a size up to 16M")));
        }
        let random_reads =
            DEPTHS.map(|depth| Reads { depth, iops: random_reads(layout, device, block.0, placed, depth) });
        let sum = |rate: u64| {
            layout.vdevs().iter().map(|vdev| vdev.devices() as f64 * vdev.ideal() * rate as f64).sum::<f64>()
        };
        // Each child of a mirror can read something else.
        let copies = |vdev: &Vdev| match vdev {
            Vdev::Mirror { ways } => *ways as f64,
            other => other.devices() as f64 * other.ideal(),
        };
        Ok(Self {
            layout: layout.to_string(),
            device: device.to_string(),
            block,
            placed,
            random_reads: random_reads.to_vec(),
            read_limit: layout.vdevs().iter().map(copies).sum::<f64>() * device.read_bytes_per_second as f64,
            write_limit: sum(device.write_bytes_per_second),
            log: log.map_or_else(|| "in the pool".to_owned(), |log| log.to_string()),
            stable_writes: stable_writes(log.unwrap_or(device)),
            mind: uneven(layout).filter(|_| metaslabs.is_none()),
        })
    }

    /// Random reads by so many clients, where that was computed.
    pub fn iops(&self, depth: usize) -> Option<f64> {
        self.random_reads.iter().find(|reads| reads.depth == depth).map(|reads| reads.iops)
    }
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

/// Blocks a second that `depth` clients read.
fn random_reads(layout: &Layout, device: Device, block: u64, placed: Placed, depth: usize) -> f64 {
    let mut rng = fastrand::Rng::with_seed(1);
    let mut vdevs: Vec<(Vdev, Vec<Busy>)> = Vec::new();
    for vdev in layout.vdevs() {
        let busy = (0..vdev.devices())
            .map(|_| Busy { medium: Medium::new(device, DEVICE_BYTES, rng.u64(..)), until_ns: Vec::new() });
        vdevs.push((*vdev, busy.collect()));
    }
    let places = ((DEVICE_BYTES as f64 * placed.used) as u64 / SECTOR_BYTES).max(1);
    let mut clients: BinaryHeap<Reverse<u64>> = (0..depth).map(|_| Reverse(0)).collect();
    let mut last_ns = 0;
    for _ in 0..READS {
        let Some(Reverse(now_ns)) = clients.pop() else { break };
        let which = rng.usize(..vdevs.len());
        let Some((vdev, devices)) = vdevs.get_mut(which) else { break };
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

/// Writes a second, each with a flush, that one client makes where the log is alone.
fn stable_writes(device: Device) -> f64 {
    let mut medium = Medium::new(device, DEVICE_BYTES, 1);
    let (writes, mut now_ns) = (1000, 0);
    for index in 0..writes {
        now_ns = medium.serve(now_ns, Operation::Write, index * LOG_BYTES, LOG_BYTES);
        now_ns = medium.serve(now_ns, Operation::Flush, 0, 0);
    }
    writes as f64 * 1e9 / now_ns.max(1) as f64
}

/// What is to be known of a raidz vdev whose devices are not alike within a metaslab.
fn uneven(layout: &Layout) -> Option<String> {
    let vdevs = layout.vdevs().iter().filter_map(|vdev| match *vdev {
        Vdev::Raidz { parity, width } => Some((parity + 1, width)),
        _ => None,
    });
    let (multiple, width) = vdevs.into_iter().find(|(multiple, width)| gcd(*multiple, *width) > 1)?;
    Some(format!(
        "on {width} devices, where all takes a multiple of {multiple} sectors, blocks of one metaslab begin on {} devices only, and others have more to do: --metaslabs says on how many data lie",
        width / gcd(multiple, width)
    ))
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

impl Model for Speed {
    const FORMULA: &'static str = "reads: one client 1 / E[slowest of k columns], many n / (k * E[one]), between them played through; in order: devices * data share * bandwidth; stable: 1 / (write + flush)";
    const SOURCE: &'static str = "closed queueing networks (Lazowska and others 1984, Quantitative System Performance); the devices are those of cenote's device::simulated";
}

impl fmt::Display for Speed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} of modelled {}, blocks of {}, on {:.0} % of each device\n",
            self.layout,
            self.device,
            self.block,
            self.placed.used * 100.0
        )?;
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
        writeln!(f, "stable writes: {:.0} a second by one client, log {}", self.stable_writes, self.log)?;
        self.mind.iter().try_for_each(|told| writeln!(f, "mind:          {told}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn speed(layout: &str, block: u64) -> Speed {
        Speed::of(&layout.parse().unwrap(), Device::HDD_7200, None, Size(block), Placed::default()).unwrap()
    }

    /// What a random read of a disk takes: half a turn, and the mean seek between two random places, which are apart by 8/15 in the mean of the root.
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
            Speed::of(&layout, Device::HDD_7200, None, Size(16 << 10), placed).unwrap()
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
    fn a_log_device_makes_writes_stable_sooner() {
        let of = |log| {
            let layout = "raidz1 3".parse().unwrap();
            Speed::of(&layout, Device::HDD_7200, log, Size(8192), Placed::default()).unwrap().stable_writes
        };
        assert!((100.0..130.0).contains(&of(None)), "{}", of(None));
        assert!(of(Some(Device::OPTANE)) > 100.0 * of(None));
        assert!(device("hdd-5400").is_ok() && device("tape").is_err());
    }
}
