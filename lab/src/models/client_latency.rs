//! The latency between a client and the pool's devices: every stable write takes it, whatever device has the
//! log.
//!
//! # Formula
//! One client that waits for each stable write before the next makes `1 / (latency + write + flush)` of them
//! in a second: the way to the log and back, then the log device. The latency hides a fast log device such as
//! Optane; a slow one such as a disk hides the latency.
//!
//! # Ways
//! | name | from the client to the log and back | | source |
//! |---|---|---|---|
//! | `process` | a call within the process that has the pool open | 50 us | estimated: that over NBD without the two messages and waking the reader |
//! | `nbd` | a request over NBD, by a Unix socket of the same machine | 75 us | measured: 67 to 79 us in three runs of 4 s, of a volume with blocks of 4 KiB and `sync=always` |
//! | `fuse` | `write(2)` and `fsync(2)` on a mounted filesystem | 36 us | measured: 35.5 us in two runs of 4 s, of a file with records of 4 KiB: 13 us of them writing |
//!
//! They were measured with fio on a release build, with a pool in memory, whose log takes next to nothing, on
//! a virtual machine of two cores. On other machines they are a few times shorter or longer; a debug build
//! took 145 us over NBD and 80 us within the process. `--way 80us` states the latency of your machine: the
//! mean latency of stable writes of 4 KiB one at a time, without the time of the log device. The test
//! `stable_writes_take_the_way_and_the_log_device` in `cenote/tests/lab_models.rs` prints it for NBD on its
//! machine. A link between machines is added.

use std::fmt;
use std::str::FromStr;

use serde::Serialize;

use crate::metric::{self, Metric};

/// A way, and what it takes.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ClientLatency {
    /// Its name, or what was said of it.
    pub name: String,
    /// Nanoseconds there and back.
    pub ns: u64,
}

/// The ways that are known: their names, and nanoseconds.
const WAYS: [(&str, u64); 3] = [("process", 50_000), ("nbd", 75_000), ("fuse", 36_000)];

/// No write waits for longer.
const MOST_NS: f64 = 1e10;

impl Default for ClientLatency {
    /// NBD: how volumes are reached.
    fn default() -> Self {
        Self { name: WAYS[1].0.to_owned(), ns: WAYS[1].1 }
    }
}

impl FromStr for ClientLatency {
    type Err = String;

    /// A name of the table, or a time with its unit; `0us` is no way at all.
    fn from_str(text: &str) -> Result<Self, String> {
        if let Some((name, ns)) = WAYS.into_iter().find(|(name, _)| *name == text) {
            return Ok(Self { name: name.to_owned(), ns });
        }
        let names = WAYS.map(|(name, _)| name).join(", ");
        let is_none = ["0ns", "0us", "0ms", "0s"].contains(&text);
        let ns = if is_none { Ok(0.0) } else { Metric::Latency.value(text) };
        let ns = ns.map_err(|_| format!("there is no way '{text}'; use {names}, or a time such as 80us"))?;
        if ns > MOST_NS {
            return Err(format!("{text} is too long: write a time up to 10s"));
        }
        Ok(Self { name: "given".to_owned(), ns: ns.round() as u64 })
    }
}

impl fmt::Display for ClientLatency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.name, metric::written(Metric::Latency, self.ns as f64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ways_have_names_or_are_times() {
        let ns = |text: &str| text.parse::<ClientLatency>().map(|way| way.ns);
        assert_eq!([ns("nbd"), ns("80us"), ns("0us")], [Ok(75_000), Ok(80_000), Ok(0)]);
        assert_eq!(ClientLatency::default(), "nbd".parse().unwrap());
        assert_eq!("1.5ms".parse::<ClientLatency>().unwrap().to_string(), "given (1.50 ms)");
        for wrong in ["80", "wire", ""] {
            assert!(ns(wrong).unwrap_err().contains("process, nbd, fuse"), "{wrong}");
        }
        assert!(ns("1e30s").unwrap_err().contains("up to 10s"));
    }
}
