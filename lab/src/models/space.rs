//! The space that a block takes on a vdev.
//!
//! A block of `s` sectors on a mirror of `w` devices takes `w * s`. On raidz of `w` devices with parity `p`
//! it has a parity sector for each row of `w - p` data sectors, on each of the `p` parity columns. What it
//! takes in all is rounded up to a multiple of `p + 1` sectors, so that no gap is left that is too small for
//! any block:
//!
//! `allocated = roundup(s + p * ceil(s / (w - p)), p + 1)`
//!
//! On draid it takes whole rows of a group of `d` data and `p` parity sectors:
//! `allocated = ceil(s / d) * (d + p)`.

use std::fmt;

use serde::Serialize;

use super::{Model, bar, percent};
use crate::error::{Error, Result};
use crate::layout::{Layout, Vdev};
use crate::size::Size;
use crate::table;

/// Blocks of this size are what a pool reckons by when it says how much its datasets use.
const COUNTED_BLOCK: u64 = 128 << 10;

/// Bytes on the devices for each byte that a pool of such vdevs, of devices of one size, counts as used by
/// its datasets: there a block of 128 KiB has no parity, and further copies of mirrors are not counted.
///
/// Source: OpenZFS 2.3, vdev.c (vdev_set_deflate_ratio: a whole number of 512ths).
pub(crate) fn raw_for_used(vdevs: &[Vdev], ashift: u32) -> f64 {
    let used_share = |vdev: &Vdev| {
        let counted = cost(*vdev, ashift, COUNTED_BLOCK).allocated / vdev.copies();
        let ratio = COUNTED_BLOCK / (counted >> 9).max(1);
        ratio as f64 / 512.0 / vdev.copies() as f64
    };
    // Each vdev is filled alike.
    let devices: u64 = vdevs.iter().map(|vdev| vdev.devices()).sum();
    let used: f64 = vdevs.iter().map(|vdev| vdev.devices() as f64 * used_share(vdev)).sum();
    devices as f64 / used
}

/// A block size and what it costs.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Cost {
    /// Size of the block as it is written, after compression.
    pub block: Size,
    /// Bytes that it takes on the devices.
    pub allocated: u64,
    /// Of those, parity, or the further copies.
    pub parity: u64,
    /// Of those, padding: sectors that hold nothing, and the rest of the last one.
    pub padding: u64,
    /// Share of the devices' space that holds data.
    pub efficiency: f64,
}

/// The cost of a block of `bytes` on `vdev` with sectors of `2^ashift` bytes.
pub fn cost(vdev: Vdev, ashift: u32, bytes: u64) -> Cost {
    let sector = 1 << ashift;
    let data = bytes.max(1).div_ceil(sector);
    let (all, parity) = match vdev {
        Vdev::Disk => (data, 0),
        Vdev::Mirror { ways } => (data * ways, data * (ways - 1)),
        Vdev::Raidz { parity, width } => {
            let sectors = parity * data.div_ceil(width - parity);
            ((data + sectors).next_multiple_of(parity + 1), sectors)
        }
        Vdev::Draid { parity, data: columns, .. } => {
            let rows = data.div_ceil(columns);
            (rows * (columns + parity), rows * parity)
        }
    };
    let allocated = all * sector;
    Cost {
        block: Size(bytes),
        allocated,
        parity: parity * sector,
        padding: allocated - parity * sector - bytes,
        efficiency: bytes as f64 / allocated as f64,
    }
}

/// The cost of blocks of each size on some vdevs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Space {
    /// Size of a sector, as a power of two.
    pub ashift: u32,
    /// Each vdev with its costs, blocks of half a kilobyte to a mebibyte.
    pub vdevs: Vec<VdevSpace>,
}

/// The cost of blocks of each size on one vdev.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct VdevSpace {
    /// How it is written.
    pub layout: String,
    /// The share of its space that is data, were there no rounding, with that of its spares.
    pub ideal: f64,
    /// Devices, spares among them.
    pub devices: u64,
    /// Spares within it, of which what a block takes knows nothing.
    pub spares: u64,
    /// Each block size.
    pub costs: Vec<Cost>,
}

impl Space {
    /// Of the first vdev of each layout.
    pub fn of(layouts: &[Layout], ashift: u32) -> Result<Self> {
        if !(9..=16).contains(&ashift) {
            return Err(Error::Experiment(format!("ashift {ashift} is not from 9 to 16")));
        }
        let vdevs = layouts.iter().filter_map(|layout| {
            let vdev = *layout.vdevs().first()?;
            let costs = (9..=20).map(|bits| cost(vdev, ashift, 1 << bits)).collect();
            let spares = if let Vdev::Draid { spares, .. } = vdev { spares } else { 0 };
            let (ideal, devices) = (vdev.ideal(), vdev.devices());
            Some(VdevSpace { layout: layout.to_string(), ideal, devices, spares, costs })
        });
        Ok(Self { ashift, vdevs: vdevs.collect() })
    }
}

impl Model for Space {
    const FORMULA: &'static str = "raidz: roundup(s + p * ceil(s / (w - p)), p + 1) sectors; draid: ceil(s / \
        d) * (d + p); mirror: w * s";
    const SOURCE: &'static str =
        "OpenZFS 2.3, vdev_raidz.c (vdev_raidz_asize), vdev_draid.c (vdev_draid_asize)";
}

impl fmt::Display for Space {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "sectors of {} bytes", 1_u64 << self.ashift)?;
        for vdev in &self.vdevs {
            write!(f, "\n{}: at best {} of the space is data", vdev.layout, percent(vdev.ideal))?;
            if vdev.spares > 0 {
                let (spares, devices) = (vdev.spares, vdev.devices);
                let besides = vdev.ideal * devices as f64 / (devices - spares) as f64;
                let are = if spares == 1 { "is spare" } else { "are spares" };
                write!(
                    f,
                    ", as {spares} of {devices} devices {are}; the rows are of the others, of which {} is at \
                     best",
                    percent(besides)
                )?;
            }
            writeln!(f, "\n")?;
            let rows: Vec<Vec<String>> = vdev
                .costs
                .iter()
                .map(|cost| {
                    let size = |bytes| Size(bytes).to_string();
                    vec![
                        cost.block.to_string(),
                        size(cost.allocated),
                        size(cost.parity),
                        size(cost.padding),
                        percent(cost.efficiency),
                        bar(cost.efficiency),
                    ]
                })
                .collect();
            f.write_str(&table::plain(&["block", "takes", "parity", "padding", "efficiency", ""], &rows))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use codec::draid::{Draid, DraidConfig};
    use codec::raidz::Raidz;

    #[test]
    fn small_blocks_cost_as_much_as_a_mirror() {
        let raidz1 = Vdev::Raidz { parity: 1, width: 3 };
        assert_eq!(cost(raidz1, 12, 4096).allocated, 8192);
        assert_eq!(cost(raidz1, 12, 8192).allocated, 16384, "a row of three and one sector of padding");
        let raidz2 = Vdev::Raidz { parity: 2, width: 6 };
        assert_eq!((cost(raidz2, 12, 8192).allocated, cost(raidz2, 12, 8192).padding), (24576, 8192));
        assert!((cost(raidz2, 12, 1 << 20).efficiency - raidz2.ideal()).abs() < 0.01);
        assert_eq!(cost(Vdev::Mirror { ways: 3 }, 12, 5000).allocated, 3 * 8192);
    }

    #[test]
    fn every_block_on_every_width_is_what_the_engine_allocates() {
        for ashift in [9, 12] {
            for parity in 1..=3 {
                for width in parity + 1..=20 {
                    let engine = Raidz::new(ashift, parity as usize, width as usize).unwrap();
                    for bytes in (1..=300).map(|sectors| sectors << 9).chain([1 << 20, 16 << 20]) {
                        let cost = cost(Vdev::Raidz { parity, width }, ashift, bytes);
                        assert_eq!(
                            cost.allocated,
                            engine.asize(bytes, 0).unwrap(),
                            "raidz{parity} {width} {bytes}"
                        );
                        let map = engine.map(0, bytes, 0).unwrap();
                        let parity_bytes: u64 =
                            map.columns()[..parity as usize].iter().map(|column| column.size).sum();
                        assert_eq!(cost.parity, parity_bytes, "raidz{parity} {width} {bytes}");
                    }
                }
            }
        }
    }

    #[test]
    fn draid_too() {
        for (data, parity, spares, children) in [(4, 2, 1, 11), (8, 1, 0, 9), (3, 3, 2, 14), (1, 1, 0, 4)] {
            let groups =
                (1..=255).find(|groups| ((data + parity) * groups) % (children - spares) == 0).unwrap();
            let config = DraidConfig {
                data: data as usize,
                nparity: parity as usize,
                spares: spares as usize,
                groups: groups as usize,
                children: children as usize,
                ashift: 12,
            };
            let engine = Draid::new(config).unwrap();
            for sectors in 1..=300 {
                let bytes = sectors << 12;
                let cost = cost(Vdev::Draid { parity, data, children, spares }, 12, bytes);
                assert_eq!(cost.allocated, engine.asize(bytes).unwrap(), "{config:?} {bytes}");
            }
        }
    }

    #[test]
    fn sector_sizes_that_cannot_be_are_refused() {
        assert!(Space::of(&["raidz1 3".parse().unwrap()], 8).is_err());
        assert_eq!(Space::of(&["raidz1 3".parse().unwrap()], 12).unwrap().vdevs[0].costs.len(), 12);
    }

    #[test]
    fn spares_are_told_of() {
        let layouts = ["draid2:4d:1s 11", "draid2:4d 11"].map(|layout| layout.parse().unwrap());
        let told = Space::of(&layouts, 12).unwrap().to_string();
        assert!(told.contains("at best 60.6 % of the space is data, as 1 of 11 devices is spare"), "{told}");
        assert!(told.contains("of which 66.7 % is at best"), "{told}");
        assert!(told.contains(": at best 66.7 % of the space is data\n"), "{told}");
    }
}
