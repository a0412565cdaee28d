//! The largest log device that can be of use.
//!
//! A log device holds what was made stable until its transaction group is on the other devices. Three groups
//! can hold such data: one open, one closing, one being written. So it never holds more than three groups'
//! time of what the link brings, nor more than may be dirty at all: a tenth of memory, at most 4 GiB. What is
//! logged is larger than what was written: each log block has a chain structure of 184 bytes and each write a
//! record of 192, and blocks are whole sectors of 4 KiB, so that a lone write of 4 KiB takes 8. A log block
//! has 128 KiB at most, so that a larger write is split, each whole block having 124 KiB of it.

use std::fmt;

use serde::Serialize;

use super::{Model, bytes};
use crate::error::{Error, Result};
use crate::size::Size;
use crate::table;

/// Groups whose data can be in the log.
const GROUPS: f64 = 3.0;
/// Share of memory that may be dirty.
const DIRTY_SHARE: f64 = 0.1;
/// And no more than that.
const DIRTY_MOST: f64 = (4_u64 << 30) as f64;
/// The size of the head of a log block.
const CHAIN_BYTES: u64 = 184;
/// The size of the head of a write record.
const RECORD_BYTES: u64 = 192;
/// Log blocks are multiples of it.
const SECTOR_BYTES: u64 = 4096;
/// And not larger.
const BLOCK_BYTES: u64 = 128 << 10;

/// The most data in a log.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Slog {
    /// Bytes a second that clients send.
    pub rate: Size,
    /// Seconds that a group stays open.
    pub timeout: f64,
    /// Memory of the server.
    pub memory: Size,
    /// Bytes that the link brings in three groups.
    pub brought: f64,
    /// Bytes that may be dirty.
    pub dirty: f64,
    /// Each size of a stable write.
    pub writes: Vec<Logged>,
}

/// The log where each write has one size and waits for the one before.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Logged {
    /// Size of a write.
    pub write: Size,
    /// Bytes of log for each byte.
    pub overhead: f64,
    /// Most bytes of log in use.
    pub most: f64,
}

/// Bytes of log that a lone write of `bytes` takes.
fn logged(bytes: u64) -> u64 {
    let room = BLOCK_BYTES - CHAIN_BYTES - RECORD_BYTES;
    // Cuts are between sectors.
    let room = room - room % SECTOR_BYTES;
    let block = |bytes: u64| (CHAIN_BYTES + RECORD_BYTES + bytes).next_multiple_of(SECTOR_BYTES);
    let rest = bytes % room;
    bytes / room * block(room) + if rest > 0 { block(rest) } else { 0 }
}

impl Slog {
    /// Behind a link of `rate` bytes a second, with groups of `timeout` seconds on a machine with `memory`.
    pub fn of(rate: Size, timeout: f64, memory: Size) -> Result<Self> {
        super::require_size("what clients send in a second", rate, Size(SECTOR_BYTES), super::MOST)?;
        super::require_size("memory", memory, super::LEAST, super::MOST)?;
        if !(0.1..=3600.0).contains(&timeout) {
            return Err(Error::Experiment(format!(
                "timeout: {timeout} is not a number of seconds from 0.1 to 3600"
            )));
        }
        let brought = rate.0 as f64 * timeout * GROUPS;
        let dirty = (memory.0 as f64 * DIRTY_SHARE).min(DIRTY_MOST);
        let writes = [4, 8, 16, 64, 128, 1024].map(|kib| {
            let write = kib << 10;
            let overhead = logged(write) as f64 / write as f64;
            Logged { write: Size(write), overhead, most: brought.min(dirty) * overhead }
        });
        Ok(Self { rate, timeout, memory, brought, dirty, writes: writes.to_vec() })
    }
}

impl Model for Slog {
    const FORMULA: &'static str = "min(rate * 3 * timeout, min(memory / 10, 4 GiB)) * logged / written; \
        logged = floor(write / 126976) * 131072 + (rest > 0: roundup(184 + 192 + rest, 4096)), where rest = \
        write mod 126976, because a log block of 128 KiB holds 124 KiB of a write";
    const SOURCE: &'static str = "OpenZFS 2.3, dsl_pool.c (zfs_dirty_data_max), txg.c (three groups), zil.h \
        (zil_chain_t, lr_write_t); cenote's zil/plan.rs";
}

impl fmt::Display for Slog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{}/s for three groups of {} s are {}; at most {} may be dirty with {} of memory\n",
            bytes(self.rate.0 as f64),
            self.timeout,
            bytes(self.brought),
            bytes(self.dirty),
            self.memory
        )?;
        let rows: Vec<Vec<String>> = self
            .writes
            .iter()
            .map(|it| vec![it.write.to_string(), format!("{:.2}", it.overhead), bytes(it.most)])
            .collect();
        f.write_str(&table::plain(&["lone writes of", "log for a byte", "most in use"], &rows))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lesser_of_link_and_memory_counts() {
        let slow = Slog::of(Size(117_000_000), 5.0, Size(64 << 30)).unwrap();
        assert_eq!(slow.brought, 117e6 * 15.0);
        assert!(
            (slow.writes[0].most - slow.brought * 2.0).abs() < 1.0,
            "a lone write of 4 KiB takes two sectors"
        );
        let fast = Slog::of(Size(1_170_000_000), 5.0, Size(8 << 30)).unwrap();
        assert!(fast.dirty < fast.brought && fast.writes[5].most < 1.2 * fast.dirty);
        for (rate, timeout, memory) in
            [(0, 5.0, 1 << 30), (1, 5.0, 1 << 30), (1 << 20, 5.0, 0), (1 << 20, f64::NAN, 1 << 30)]
        {
            assert!(Slog::of(Size(rate), timeout, Size(memory)).is_err(), "{rate} {timeout} {memory}");
        }
    }

    #[test]
    fn the_formula_gives_the_table() {
        for number in [126_976, 131_072, 4096, CHAIN_BYTES, RECORD_BYTES] {
            assert!(Slog::FORMULA.contains(&number.to_string()), "{number}");
        }
        for it in Slog::of(Size(117_000_000), 5.0, Size(64 << 30)).unwrap().writes {
            let (whole, rest) = (it.write.0 / 126_976, it.write.0 % 126_976);
            let last = if rest > 0 { (184 + 192 + rest).next_multiple_of(4096) } else { 0 };
            assert_eq!(it.overhead, (whole * 131_072 + last) as f64 / it.write.0 as f64, "{it:?}");
        }
    }

    #[test]
    fn logs_have_chains_records_and_whole_sectors() {
        assert_eq!(ondisk::zil::ZilChain::SIZE as u64, CHAIN_BYTES);
        assert_eq!([logged(512), logged(4096), logged(8192)], [4096, 8192, 12288]);
        assert_eq!(logged(256 << 10), 2 * (128 << 10) + 12288);
    }
}
