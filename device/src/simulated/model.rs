//! How long a medium takes.
//!
//! # The idea
//! A medium serves a number of commands at once (its lanes: one for a disk with one arm, many for flash). Each command
//! waits for a lane, spends its own latency there (for a disk: moving the arm and waiting for the sector), and then moves its
//! bytes over the one path that all share, at the medium's bandwidth. That yields the known curves: IOPS that grow
//! with the queue until the lanes are full, and throughput that no queue lifts above the bandwidth.

use std::fmt;

use super::fault::Random;
use crate::Operation;

/// How much slower than it is a medium can be asked for, in per cent.
const MOST_SLOWER_PERCENT: u32 = 1000;

/// The numbers that describe a medium.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Model {
    /// What it is called.
    pub name: &'static str,
    /// Commands served at the same time.
    pub lanes: usize,
    /// What a read takes before its bytes move.
    pub read_latency_ns: u64,
    /// What a write takes before its bytes move.
    pub write_latency_ns: u64,
    /// What making writes durable takes.
    pub flush_ns: u64,
    /// Bytes that are read in a second, all commands together.
    pub read_bytes_per_second: u64,
    /// Bytes that are written in a second.
    pub write_bytes_per_second: u64,
    /// The arm, where there is one.
    pub arm: Option<Arm>,
    /// How much longer everything takes than with the medium of this name, in per cent. The other numbers say so already.
    pub slower_percent: u32,
}

/// With how much slower it is: `hdd-7200`, `hdd-7200+10%`.
impl fmt::Display for Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)?;
        match self.slower_percent {
            0 => Ok(()),
            percent => write!(f, "+{percent}%"),
        }
    }
}

/// The moving part of a disk.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Arm {
    /// From one track to the next.
    pub shortest_seek_ns: u64,
    /// From the first track to the last.
    pub longest_seek_ns: u64,
    /// One turn of the platter.
    pub rotation_ns: u64,
}

impl Model {
    /// A disk of 7200 turns a minute.
    pub const HDD_7200: Self = Self {
        name: "hdd-7200",
        lanes: 1,
        read_latency_ns: 50_000,
        write_latency_ns: 50_000,
        flush_ns: 8_000_000,
        read_bytes_per_second: 200_000_000,
        write_bytes_per_second: 200_000_000,
        arm: Some(Arm { shortest_seek_ns: 800_000, longest_seek_ns: 16_000_000, rotation_ns: 8_333_333 }),
        slower_percent: 0,
    };
    /// A disk of 5400 turns a minute.
    pub const HDD_5400: Self = Self {
        name: "hdd-5400",
        flush_ns: 11_000_000,
        read_bytes_per_second: 150_000_000,
        write_bytes_per_second: 150_000_000,
        arm: Some(Arm { shortest_seek_ns: 1_000_000, longest_seek_ns: 21_000_000, rotation_ns: 11_111_111 }),
        ..Self::HDD_7200
    };
    /// Flash behind SATA: 32 commands, 550 MB/s.
    pub const SATA_SSD: Self = Self {
        name: "sata-ssd",
        lanes: 32,
        read_latency_ns: 100_000,
        write_latency_ns: 60_000,
        flush_ns: 1_000_000,
        read_bytes_per_second: 550_000_000,
        write_bytes_per_second: 500_000_000,
        arm: None,
        slower_percent: 0,
    };
    /// Flash behind PCIe: 3.5 GB/s.
    pub const NVME: Self = Self {
        name: "nvme",
        lanes: 64,
        read_latency_ns: 70_000,
        write_latency_ns: 20_000,
        flush_ns: 500_000,
        read_bytes_per_second: 3_500_000_000,
        write_bytes_per_second: 3_000_000_000,
        arm: None,
        slower_percent: 0,
    };
    /// Memory that keeps what it holds, behind PCIe: quick one at a time, with nothing to flush.
    pub const OPTANE: Self = Self {
        name: "optane",
        lanes: 16,
        read_latency_ns: 10_000,
        write_latency_ns: 10_000,
        flush_ns: 0,
        read_bytes_per_second: 2_500_000_000,
        write_bytes_per_second: 2_200_000_000,
        arm: None,
        slower_percent: 0,
    };
    /// A stick: one command at a time, and writes far slower than reads.
    pub const USB_FLASH: Self = Self {
        name: "usb-flash",
        lanes: 1,
        read_latency_ns: 500_000,
        write_latency_ns: 4_000_000,
        flush_ns: 2_000_000,
        read_bytes_per_second: 100_000_000,
        write_bytes_per_second: 25_000_000,
        arm: None,
        slower_percent: 0,
    };
    /// A link of a gigabit a second, with what Ethernet, IP and TCP take of it.
    pub const GIGABIT_ETHERNET: Self = Self {
        name: "1gbe",
        lanes: 128,
        read_latency_ns: 100_000,
        write_latency_ns: 100_000,
        flush_ns: 100_000,
        read_bytes_per_second: 117_000_000,
        write_bytes_per_second: 117_000_000,
        arm: None,
        slower_percent: 0,
    };
    /// A link of ten gigabits a second.
    pub const TEN_GIGABIT_ETHERNET: Self = Self {
        name: "10gbe",
        read_latency_ns: 30_000,
        write_latency_ns: 30_000,
        flush_ns: 30_000,
        read_bytes_per_second: 1_170_000_000,
        write_bytes_per_second: 1_170_000_000,
        ..Self::GIGABIT_ETHERNET
    };

    /// Devices.
    pub const DEVICES: [Self; 6] =
        [Self::HDD_7200, Self::HDD_5400, Self::SATA_SSD, Self::NVME, Self::OPTANE, Self::USB_FLASH];
    /// Links between a client and a server.
    pub const LINKS: [Self; 2] = [Self::GIGABIT_ETHERNET, Self::TEN_GIGABIT_ETHERNET];

    /// The device of this name, or one that takes longer for everything: `hdd-7200+10%`.
    pub fn device(name: &str) -> Option<Self> {
        let (name, percent) = match name.strip_suffix('%').and_then(|name| name.rsplit_once('+')) {
            Some((name, percent)) => (name, percent.parse().ok()?),
            None => (name, 0),
        };
        let model = Self::DEVICES.into_iter().find(|model| model.name == name)?;
        (percent <= MOST_SLOWER_PERCENT).then(|| model.slower(percent))
    }

    /// One that takes so much longer for everything, in per cent.
    fn slower(self, percent: u32) -> Self {
        let times = 1.0 + f64::from(percent) / 100.0;
        Self { slower_percent: percent, ..self.stretched(times) }
    }

    /// One for which everything takes so many times as long.
    pub fn stretched(self, times: f64) -> Self {
        let longer = |time_ns: u64| (time_ns as f64 * times).round() as u64;
        let less = |rate: u64| (rate as f64 / times).round() as u64;
        Self {
            read_latency_ns: longer(self.read_latency_ns),
            write_latency_ns: longer(self.write_latency_ns),
            flush_ns: longer(self.flush_ns),
            read_bytes_per_second: less(self.read_bytes_per_second),
            write_bytes_per_second: less(self.write_bytes_per_second),
            arm: self.arm.map(|arm| Arm {
                shortest_seek_ns: longer(arm.shortest_seek_ns),
                longest_seek_ns: longer(arm.longest_seek_ns),
                rotation_ns: longer(arm.rotation_ns),
            }),
            ..self
        }
    }

    /// The link of this name.
    pub fn link(name: &str) -> Option<Self> {
        Self::LINKS.into_iter().find(|model| model.name == name)
    }

    /// What a command takes before its bytes move, but for an arm.
    fn latency_ns(&self, operation: Operation) -> u64 {
        if operation == Operation::Write { self.write_latency_ns } else { self.read_latency_ns }
    }

    /// What moving `len` bytes takes.
    fn transfer_ns(&self, operation: Operation, len: u64) -> u64 {
        let rate = match operation {
            Operation::Write => self.write_bytes_per_second,
            _ => self.read_bytes_per_second,
        };
        let transfer_ns = u128::from(len) * 1_000_000_000 / u128::from(rate.max(1));
        u64::try_from(transfer_ns).unwrap_or(u64::MAX)
    }
}

/// A medium at work: what is busy until when.
#[derive(Debug)]
pub struct Medium {
    model: Model,
    size_bytes: u64,
    random: Random,
    lanes_free_at_ns: Vec<u64>,
    path_free_at_ns: u64,
    /// Where the arm stands.
    arm_offset: u64,
}

impl Medium {
    /// One of `size_bytes`. The seed says where the platter stands when.
    pub fn new(model: Model, size_bytes: u64, seed: u64) -> Self {
        Self {
            model,
            size_bytes,
            random: Random::new(seed),
            lanes_free_at_ns: vec![0; model.lanes.max(1)],
            path_free_at_ns: 0,
            arm_offset: 0,
        }
    }

    /// Its numbers.
    pub fn model(&self) -> Model {
        self.model
    }

    /// Queues a command that arrives at `now_ns` and says when it completes.
    pub fn serve(&mut self, now_ns: u64, operation: Operation, offset: u64, len: u64) -> u64 {
        if operation == Operation::Flush {
            // It completes after all that came before it.
            let busy_until_ns = self.lanes_free_at_ns.iter().copied().max().unwrap_or(0);
            return now_ns.max(busy_until_ns) + self.model.flush_ns;
        }
        let positioning_ns = self.position(operation, offset, len);
        let Some(lane_free_at_ns) = self.lanes_free_at_ns.iter_mut().min() else { return now_ns };
        let ready_at_ns = now_ns.max(*lane_free_at_ns) + self.model.latency_ns(operation) + positioning_ns;
        let transfer_ns = self.model.transfer_ns(operation, len);
        let done_at_ns = ready_at_ns.max(self.path_free_at_ns).saturating_add(transfer_ns);
        self.path_free_at_ns = done_at_ns;
        *lane_free_at_ns = done_at_ns;
        done_at_ns
    }

    /// Moves the arm, if there is one, to `offset` and says how long that takes with the wait for the sector.
    fn position(&mut self, operation: Operation, offset: u64, len: u64) -> u64 {
        let Some(arm) = self.model.arm else { return 0 };
        let distance = offset.abs_diff(self.arm_offset);
        let is_ahead = offset >= self.arm_offset;
        self.arm_offset = offset.saturating_add(len);
        // What is ahead on the same track comes by itself.
        let passing_ns = self.model.transfer_ns(operation, distance);
        if is_ahead && passing_ns < arm.rotation_ns {
            return passing_ns;
        }
        // An arm accelerates for half of the way and slows down for the other: time goes with the root of the distance.
        let share = (distance as f64 / self.size_bytes.max(1) as f64).min(1.0).sqrt();
        let span_ns = arm.longest_seek_ns.saturating_sub(arm.shortest_seek_ns);
        arm.shortest_seek_ns + (span_ns as f64 * share) as u64 + self.random.below(arm.rotation_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK_BYTES: u64 = 4096;
    const SIZE_BYTES: u64 = 1 << 40;

    /// What ten thousand operations at random places take, with `queue` always waiting.
    fn time_ns(model: Model, queue: usize) -> u64 {
        let mut medium = Medium::new(model, SIZE_BYTES, 1);
        let mut places = Random::new(2);
        let mut arrivals = vec![0; queue];
        let mut last_ns = 0;
        for index in 0..10_000 {
            let offset = places.below(SIZE_BYTES / BLOCK_BYTES) * BLOCK_BYTES;
            last_ns = medium.serve(arrivals[index % queue], Operation::Read, offset, BLOCK_BYTES);
            arrivals[index % queue] = last_ns;
        }
        last_ns
    }

    /// Such operations a second.
    fn iops(model: Model, queue: usize) -> u64 {
        10_000 * 1_000_000_000 / time_ns(model, queue)
    }

    #[test]
    fn media_have_the_iops_that_they_are_known_for() {
        assert!((50..120).contains(&iops(Model::HDD_7200, 1)), "{}", iops(Model::HDD_7200, 1));
        assert!((8_000..10_000).contains(&iops(Model::SATA_SSD, 1)), "{}", iops(Model::SATA_SSD, 1));
        assert!((80_000..140_000).contains(&iops(Model::SATA_SSD, 32)), "{}", iops(Model::SATA_SSD, 32));
        assert!((400_000..900_000).contains(&iops(Model::NVME, 64)), "{}", iops(Model::NVME, 64));
    }

    #[test]
    fn a_medium_can_be_asked_for_that_is_slower_than_it_is() {
        for (name, queue) in [("hdd-7200", 1), ("hdd-7200", 8), ("sata-ssd", 32), ("nvme", 64)] {
            let model = Model::device(name).unwrap();
            for percent in [3, 10, 50] {
                let slower = Model::device(&format!("{name}+{percent}%")).unwrap();
                assert_eq!(slower.to_string(), format!("{name}+{percent}%"));
                let ratio = time_ns(slower, queue) as f64 / time_ns(model, queue) as f64;
                let expected = 1.0 + f64::from(percent) / 100.0;
                assert!((ratio / expected - 1.0).abs() < 0.005, "{slower}, {queue} at once: {ratio}");
            }
        }
        assert_eq!(Model::device("nvme+0%"), Some(Model::NVME));
        assert_eq!(Model::NVME.to_string(), "nvme");
        for wrong in ["nvme+%", "nvme+ 3%", "nvme+-3%", "nvme+2000%", "nvme3%", "tape+3%", "1gbe+3%"] {
            assert_eq!(Model::device(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn sequential_reads_reach_the_bandwidth_also_on_a_disk() {
        for model in [Model::HDD_7200, Model::SATA_SSD, Model::NVME, Model::GIGABIT_ETHERNET] {
            let mut medium = Medium::new(model, SIZE_BYTES, 1);
            let chunk_bytes = 16 << 20;
            let mut done_ns = 0;
            for index in 0..100 {
                done_ns = medium.serve(done_ns, Operation::Read, index * chunk_bytes, chunk_bytes);
            }
            let rate = u128::from(100 * chunk_bytes) * 1_000_000_000 / u128::from(done_ns);
            let share_percent = rate * 100 / u128::from(model.read_bytes_per_second);
            assert!((90..=100).contains(&share_percent), "{model:?}: {share_percent} %");
        }
    }
}
