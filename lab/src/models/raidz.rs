//! The space that a block takes on raidz.
//!
//! A block of `s` sectors on `w` devices with parity `p` has a parity sector for each row of `w - p` data sectors, on each of the `p` parity columns. What it takes in all is rounded
//! up to a multiple of `p + 1` sectors, so that no gap is left that is too small for any block:
//!
//! `allocated = roundup(s + p * ceil(s / (w - p)), p + 1)`
//!
//! A mirror of `w` devices takes `w * s`. Source: OpenZFS 2.3 `vdev_raidz.c` (`vdev_raidz_asize`).

use crate::error::{Error, Result};
use crate::size::Size;

/// A raidz vdev.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Raidz {
    width: u64,
    parity: u64,
    sector_bytes: u64,
}

/// A block size and what it costs.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize)]
pub struct Cost {
    /// Size of the block as it is written, after compression.
    pub block: Size,
    /// Bytes that it takes on the devices.
    pub allocated: u64,
    /// Of those, parity.
    pub parity: u64,
    /// Of those, padding.
    pub padding: u64,
    /// Share of the devices' space that holds data.
    pub efficiency: f64,
}

impl Raidz {
    /// Of `width` devices, `parity` of which may fail, with sectors of `2^ashift` bytes.
    pub fn new(width: u64, parity: u64, ashift: u32) -> Result<Self> {
        if !(1..=3).contains(&parity) || width <= parity || width > 255 || !(9..=16).contains(&ashift) {
            let what = format!(
                "raidz{parity} of {width} devices, ashift {ashift}: parity is 1 to 3, the width greater and at most 255, ashift 9 to 16"
            );
            return Err(Error::Experiment(what));
        }
        Ok(Self { width, parity, sector_bytes: 1 << ashift })
    }

    /// What a block of `bytes` costs.
    pub fn cost(&self, bytes: u64) -> Cost {
        let data = bytes.max(1).div_ceil(self.sector_bytes);
        let parity = self.parity * data.div_ceil(self.width - self.parity);
        let all = (data + parity).next_multiple_of(self.parity + 1);
        let allocated = all * self.sector_bytes;
        Cost {
            block: Size(bytes),
            allocated,
            parity: parity * self.sector_bytes,
            padding: (all - data - parity) * self.sector_bytes,
            efficiency: bytes as f64 / allocated as f64,
        }
    }

    /// What blocks of half a kilobyte to a mebibyte cost.
    pub fn costs(&self) -> Vec<Cost> {
        (9..=20).map(|bits| self.cost(1 << bits)).collect()
    }

    /// The share of the devices' space that is data, were there no rounding.
    pub fn ideal(&self) -> f64 {
        (self.width - self.parity) as f64 / self.width as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_blocks_cost_as_much_as_a_mirror() {
        let raidz1 = Raidz::new(3, 1, 12).unwrap();
        assert_eq!(raidz1.cost(4096).allocated, 8192);
        assert_eq!(raidz1.cost(8192).allocated, 16384, "a row of three and one sector of padding");
        let raidz2 = Raidz::new(6, 2, 12).unwrap();
        assert_eq!((raidz2.cost(8192).allocated, raidz2.cost(8192).padding), (24576, 8192));
        assert_eq!(raidz2.cost(16384).allocated, 24576);
        assert!((raidz2.cost(1 << 20).efficiency - raidz2.ideal()).abs() < 0.01);
    }

    #[test]
    fn layouts_that_cannot_be_are_refused() {
        for (width, parity, ashift) in
            [(1, 1, 12), (3, 0, 12), (5, 4, 12), (300, 1, 12), (3, 1, 8), (3, 1, 17)]
        {
            assert!(Raidz::new(width, parity, ashift).is_err());
        }
    }
}
