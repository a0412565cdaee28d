//! The numbers that describe a medium, and the media that are known by name. What is made of them is told in
//! [`super::medium`].

use std::fmt;

use crate::Operation;

/// How much slower than it is a medium can be asked for, in per cent.
const MOST_SLOWER_PERCENT: u32 = 1000;

/// The numbers that describe a medium.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Model {
    /// Its name.
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
    /// How much longer everything takes than with the medium of this name, in per cent. The other numbers say
    /// so already.
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
    pub(super) fn latency_ns(&self, operation: Operation) -> u64 {
        if operation == Operation::Write { self.write_latency_ns } else { self.read_latency_ns }
    }

    /// What moving `len` bytes takes.
    pub(super) fn transfer_ns(&self, operation: Operation, len: u64) -> u64 {
        let rate = match operation {
            Operation::Write => self.write_bytes_per_second,
            _ => self.read_bytes_per_second,
        };
        let transfer_ns = u128::from(len) * 1_000_000_000 / u128::from(rate.max(1));
        u64::try_from(transfer_ns).unwrap_or(u64::MAX)
    }
}
