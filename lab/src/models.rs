//! Formulas that predict what a setting or a layout costs, without measuring it.
//!
//! Each model documents its formula and its source, computes a typed result, and shows it as a table that
//! fits a terminal. Each is checked against measurements or exact figures: the engine's own arithmetic,
//! `zdb`, or counting all cases.
//!
//! | module | what it predicts |
//! |---|---|
//! | [`space`] | parity and padding of blocks on mirrors, raidz and draid |
//! | [`speed`] | IOPS and bandwidth of layouts of modelled devices |
//! | [`rebuild`] | odds to survive failures, and the time of a rebuild |
//! | [`dedup`] | entries, memory and gain of a dedup table for real data |
//! | [`l2arc`] | memory for the headers of a cache device |
//! | [`cache_reads`] | what cache devices would answer of a pool's reads |
//! | [`slog`] | the largest log device that can be of use |
//! | [`compression`] | ratio and speed of each algorithm on real data |
//! | [`layouts`] | layouts for so many disks, side by side, by the first three |
//! | [`object_store`] | requests, bytes and money of a pool on an object store |
//! | [`client_latency`] | the latency between a client and the pool |
//! | `sample` | blocks of the user's files |

pub mod cache_reads;
pub mod client_latency;
pub mod compression;
pub mod dedup;
pub mod dedup_table;
pub mod l2arc;
pub mod layouts;
pub mod object_store;
pub mod rebuild;
mod sample;
pub mod slog;
pub mod space;
pub mod speed;

use std::fmt::Display;

use serde::Serialize;
use serde_json::{Value, json};

use crate::error::{Error, Result};
use crate::size::Size;

/// Devices, memory and caches that figures are given for: a pool takes no smaller device, and there are no
/// larger ones.
const LEAST: Size = Size(64 << 20);
const MOST: Size = Size(1 << 50);

/// Refuses sizes of which figures would mean nothing.
fn require_size(what: &str, size: Size, least: Size, most: Size) -> Result<()> {
    if (least..=most).contains(&size) {
        return Ok(());
    }
    Err(Error::Experiment(format!("{what}: {size} is not a size from {least} to {most}")))
}

/// The result of a model. [`Display`] is for people, [`Serialize`] for programs.
pub trait Model: Display + Serialize {
    /// How it is computed.
    const FORMULA: &'static str;
    /// Where that comes from.
    const SOURCE: &'static str;

    /// For programs, with formula and source.
    fn to_json(&self) -> Value {
        json!({ "formula": Self::FORMULA, "source": Self::SOURCE, "result": self })
    }
}

/// For people, with formula and source.
pub fn told<M: Model>(all: &[M]) -> String {
    let all: Vec<String> = all.iter().map(M::to_string).collect();
    format!("{}\nformula: {}\nsource:  {}\n", all.join("\n"), M::FORMULA, M::SOURCE)
}

/// A bar for a share from 0 to 1.
fn bar(share: f64) -> String {
    const WIDTH: f64 = 20.0;
    let full = (share.clamp(0.0, 1.0) * WIDTH).round() as usize;
    format!("{}{}", "#".repeat(full), ".".repeat(WIDTH as usize - full))
}

/// A share in per cent, with digits where they count.
pub(crate) fn percent(share: f64) -> String {
    match share * 100.0 {
        small if small > 0.0 && small < 0.1 => format!("{small:.1e} %"),
        percent => format!("{percent:.1} %"),
    }
}

/// Bytes in the unit that people read them in.
pub fn bytes(bytes: f64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let mut value = bytes;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < units.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{value:.0} {}", units[unit]) } else { format!("{value:.1} {}", units[unit]) }
}

/// Seconds in the unit that people read them in.
fn duration(seconds: f64) -> String {
    match seconds {
        ..120.0 => format!("{seconds:.1} s"),
        ..7200.0 => format!("{:.1} min", seconds / 60.0),
        ..172_800.0 => format!("{:.1} h", seconds / 3600.0),
        _ => format!("{:.1} d", seconds / 86_400.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_written_in_units_that_fit() {
        assert_eq!([bytes(512.0), bytes(1536.0), bytes(3e12)], ["512 B", "1.5 KiB", "2.7 TiB"]);
        assert_eq!([duration(90.0), duration(5400.0), duration(360_000.0)], ["90.0 s", "90.0 min", "4.2 d"]);
        assert_eq!([percent(0.25), percent(0.000_02)], ["25.0 %", "2.0e-3 %"]);
        assert_eq!(bar(0.25), "#####...............");
    }
}
