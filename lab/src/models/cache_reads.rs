//! Cache devices for a pool, by its own reads.
//!
//! The curve of a pool's reads says which share of them a cache of any size answers (`cenote what-if`). A
//! cache device answers what a cache in memory would that is larger by the device: the device holds blocks as
//! they are stored, so it counts for more where they are compressed. Its headers take memory from the cache,
//! which counts against it. The device is full of blocks of the mean size that was read.

use std::fmt;

use serde::Serialize;

use super::l2arc::HEADER_BYTES;
use super::{LEAST, MOST, Model, bytes, percent};
use crate::error::{Error, Result};
use crate::size::Size;
use crate::table;

/// Devices that are shown without a wish, as multiples of the cache in memory.
const MULTIPLES: [u64; 6] = [1, 2, 4, 8, 16, 32];
/// With fewer reads, the curve says little.
const FEW: f64 = 500.0;
/// A gain below this is none.
const WORTH: f64 = 0.03;
/// The share of the largest gain that is as good.
const NEARLY: f64 = 0.9;

/// The reads of a pool.
pub struct Reads<'a> {
    /// The pool.
    pub pool: &'a str,
    /// Reads that were followed.
    pub samples: f64,
    /// The cache in memory.
    pub arc: Size,
    /// The mean size of a block as it is stored.
    pub block: u64,
    /// Bytes of all blocks that were read, as they are stored.
    pub stored: u64,
    /// The share of reads that are of metadata and that the cache does not answer.
    pub metadata_misses: f64,
    /// The share of reads that a cache in memory of the first size answers with a device of the second.
    pub answered: &'a dyn Fn(u64, u64) -> f64,
}

/// What cache devices would answer.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CacheReads {
    /// The pool.
    pub pool: String,
    /// Reads that were followed.
    pub samples: f64,
    /// The cache in memory.
    pub arc: Size,
    /// The mean size of a block as it is stored.
    pub block: u64,
    /// Bytes of all blocks that were read, as they are stored.
    pub stored: u64,
    /// The share of reads that the cache in memory answers now.
    pub now: f64,
    /// The share that one of twice the size would answer.
    pub twice: f64,
    /// The share that a special vdev would get.
    pub special: f64,
    /// Each size of a device.
    pub devices: Vec<Device>,
}

/// A device of one size.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Device {
    /// Its size.
    pub size: Size,
    /// Bytes of memory for its headers.
    pub headers: u64,
    /// The share of reads that memory and device answer together.
    pub answered: f64,
}

impl CacheReads {
    /// A device of this size, or of several, for a pool with these reads.
    pub fn of(reads: &Reads<'_>, size: Option<Size>) -> Result<Self> {
        if reads.samples <= 0.0 || reads.block == 0 {
            let pool = reads.pool;
            return Err(Error::Experiment(format!(
                "{pool}: nothing was read since the pool was opened, so there is no curve"
            )));
        }
        let sizes = match size {
            Some(size) => vec![size],
            None => MULTIPLES.iter().map(|factor| Size(reads.arc.0.saturating_mul(*factor))).collect(),
        };
        let mut devices = Vec::new();
        for size in sizes {
            super::require_size("size of the device", size, LEAST, MOST)?;
            // A device holds no more than there is.
            let headers = size.0.min(reads.stored) / reads.block * HEADER_BYTES;
            let answered = (reads.answered)(reads.arc.0.saturating_sub(headers), size.0);
            devices.push(Device { size, headers, answered });
        }
        Ok(Self {
            pool: reads.pool.to_owned(),
            samples: reads.samples,
            arc: reads.arc,
            block: reads.block,
            stored: reads.stored,
            now: (reads.answered)(reads.arc.0, 0),
            twice: (reads.answered)(reads.arc.0.saturating_mul(2), 0),
            special: reads.metadata_misses,
            devices,
        })
    }

    /// The smallest device with nearly the largest gain; none where no device gains enough.
    pub fn best(&self) -> Option<Device> {
        let gain = |device: &Device| device.answered - self.now;
        let most = self.devices.iter().map(gain).fold(0.0, f64::max);
        self.devices.iter().find(|device| most >= WORTH && gain(device) >= most * NEARLY).copied()
    }
}

impl Model for CacheReads {
    const FORMULA: &'static str = "answered = the pool's curve (cenote what-if) at cache - headers + \
        device * (bytes in memory / bytes as stored); headers = device / mean block * 48 bytes";
    const SOURCE: &'static str = "SHARDS (Waldspurger and others, FAST 2015); engine/src/l2arc/index.rs";
}

impl fmt::Display for CacheReads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{}: {} of blocks were read, {} each as stored; the cache in memory has {} and answers {}",
            self.pool,
            bytes(self.stored as f64),
            bytes(self.block as f64),
            bytes(self.arc.0 as f64),
            percent(self.now)
        )?;
        if self.samples < FEW {
            writeln!(f, "only a few reads were followed: the figures are rough")?;
        }
        let row = |name: String, headers: String, answered: f64| vec![name, headers, percent(answered)];
        let mut rows = vec![row("twice the cache in memory".into(), "-".into(), self.twice)];
        rows.extend(self.devices.iter().map(|device| {
            let headers = bytes(device.headers as f64);
            row(format!("a device of {}", bytes(device.size.0 as f64)), headers, device.answered)
        }));
        writeln!(f)?;
        f.write_str(&table::plain(&["with", "headers", "reads answered"], &rows))?;
        writeln!(f, "\na special vdev would get {} of the reads", percent(self.special))?;
        match self.best() {
            Some(device) => writeln!(
                f,
                "of these devices one of {} is enough: {} of the reads instead of {}",
                bytes(device.size.0 as f64),
                percent(device.answered),
                percent(self.now)
            ),
            None => writeln!(f, "no such device is worth it: none answers three of a hundred reads more"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    /// Reads that are spread evenly over 8 GiB, half of which memory would need for what is stored.
    fn reads(answered: &dyn Fn(u64, u64) -> f64) -> Reads<'_> {
        let (arc, block, stored) = (Size(GIB), 8 << 10, 4 * GIB);
        Reads { pool: "tank", samples: 1e4, arc, block, stored, metadata_misses: 0.125, answered }
    }

    fn evenly(memory: u64, device: u64) -> f64 {
        ((memory + device * 2) as f64 / (8 * GIB) as f64).min(1.0)
    }

    #[test]
    fn a_device_answers_what_its_size_adds_less_the_memory_of_its_headers() {
        let model = CacheReads::of(&reads(&evenly), Some(Size(2 * GIB))).unwrap();
        let device = model.devices[0];
        assert_eq!(device.headers, 2 * GIB / 8192 * HEADER_BYTES);
        let expected = evenly(GIB - device.headers, 2 * GIB);
        assert_eq!((model.now, model.twice, device.answered), (0.125, 0.25, expected));
        assert!(device.answered > 0.6 && device.answered < 0.625);
    }

    #[test]
    fn the_smallest_device_with_nearly_all_of_the_gain_is_named() {
        let model = CacheReads::of(&reads(&evenly), None).unwrap();
        assert_eq!(model.devices.iter().map(|device| device.size.0 / GIB).collect::<Vec<_>>(), MULTIPLES);
        assert_eq!(model.best().unwrap().size, Size(4 * GIB));
        assert!(model.to_string().contains("one of 4.0 GiB is enough"), "{model}");
        assert!(model.to_string().contains("a special vdev would get 12.5 % of the reads"), "{model}");
        let flat = |_, _| 0.5;
        let model = CacheReads::of(&reads(&flat), None).unwrap();
        assert_eq!(model.best(), None);
        assert!(model.to_string().contains("no such device is worth it"), "{model}");
        let nothing = Reads { samples: 0.0, ..reads(&flat) };
        assert!(
            CacheReads::of(&nothing, None).is_err_and(|error| error.to_string().contains("nothing was read"))
        );
    }
}
