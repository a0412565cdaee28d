//! Memory for a cache device.
//!
//! For each block on the device a header stays in memory, without which it could not be found. OpenZFS's has
//! 96 bytes: the block's identity (address of 16 bytes, birth of 8), its place in the hash table (8), type,
//! sizes and flags (16), pool (8), and where it is on the device (40). Cenote's has less than 48 with its
//! place in the table. So a device of `size` bytes with blocks of `block` takes up to `size / block * 48`
//! bytes of the cache in memory, which is faster than any device.
//!
//! It is filled by feeds of `l2arc_write_max` bytes at most. From one to the next it is `l2arc_feed_secs`;
//! where a feed wrote more than half of what it might, and `l2arc_feed_again` is set, only
//! `l2arc_feed_min_ms`. What `l2arc_write_boost` adds until the cache in memory is full for the first time is
//! not counted.

use std::fmt;

use serde::Serialize;

use super::{Model, bytes, duration, percent};
use crate::error::Result;
use crate::size::Size;
use crate::table;

/// The most bytes of memory for a block on the device.
pub const HEADER_BYTES: u64 = 48;
/// The same in OpenZFS.
pub(crate) const OPENZFS_HEADER_BYTES: u64 = 96;
/// Seconds from one feed to the next (`l2arc_feed_secs`), and where there is much to write
/// (`l2arc_feed_min_ms`).
const FEED_SECONDS: f64 = 1.0;
const FEED_AGAIN_SECONDS: f64 = 0.2;
/// The share of the cache in memory that headers may take before it costs more than it gives.
const SENSIBLE_SHARE: f64 = 0.25;

/// A cache device beside a cache in memory.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct L2arc {
    /// Size of the device.
    pub size: Size,
    /// The cache in memory.
    pub arc: Size,
    /// Bytes of a feed, at most.
    pub fill: Size,
    /// Seconds until it is full where each feed is followed by the next as soon as may be.
    pub fill_seconds_least: f64,
    /// The same with a second from one to the next; longer where there is not as much to write.
    pub fill_seconds: f64,
    /// Each block size.
    pub blocks: Vec<Headers>,
}

/// The memory of headers for blocks of one size.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Headers {
    /// Size of a block, compressed.
    pub block: Size,
    /// Bytes of memory.
    pub memory: u64,
    /// Bytes of memory in OpenZFS.
    pub openzfs_memory: u64,
    /// The share of the cache in memory.
    pub share: f64,
    /// The largest device whose headers take a quarter of the cache in memory.
    pub largest: u64,
}

impl L2arc {
    /// A device of `size` beside a cache of `arc`, filled by feeds of at most `fill`.
    pub fn of(size: Size, arc: Size, fill: Size) -> Result<Self> {
        super::require_size("size of the device", size, super::LEAST, super::MOST)?;
        super::require_size("cache in memory", arc, super::LEAST, super::MOST)?;
        super::require_size("bytes of a feed", fill, Size(1 << 10), super::MOST)?;
        let blocks = [4, 8, 16, 32, 64, 128, 1024].map(|kib| {
            let block = kib << 10;
            let memory = size.0 / block * HEADER_BYTES;
            Headers {
                block: Size(block),
                memory,
                openzfs_memory: size.0 / block * OPENZFS_HEADER_BYTES,
                share: memory as f64 / arc.0 as f64,
                largest: (arc.0 as f64 * SENSIBLE_SHARE / HEADER_BYTES as f64 * block as f64) as u64,
            }
        });
        let feeds = size.0 as f64 / fill.0 as f64;
        let (fill_seconds_least, fill_seconds) = (feeds * FEED_AGAIN_SECONDS, feeds * FEED_SECONDS);
        Ok(Self { size, arc, fill, fill_seconds_least, fill_seconds, blocks: blocks.to_vec() })
    }
}

impl Model for L2arc {
    const FORMULA: &'static str = "memory = size / block * 48 bytes (OpenZFS: 96); \
        largest = cache / 4 / 48 * block; full after size / l2arc_write_max feeds, 0.2 s (l2arc_feed_min_ms, after a feed of more than half) to 1 s \
        (l2arc_feed_secs) each";
    const SOURCE: &'static str = "engine/src/l2arc/index.rs; OpenZFS 2.3, arc_impl.h \
        (arc_buf_hdr up to b_l1hdr), arc.c (l2arc_write_interval), zfs.4 (l2arc_feed_again)";
}

impl fmt::Display for L2arc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "cache device of {} beside {} in memory; full after {} to {} of feeds of {}, if enough is \
             evicted from memory\n",
            self.size,
            self.arc,
            duration(self.fill_seconds_least),
            duration(self.fill_seconds),
            self.fill
        )?;
        let rows: Vec<Vec<String>> = self
            .blocks
            .iter()
            .map(|it| {
                vec![
                    it.block.to_string(),
                    bytes(it.memory as f64),
                    percent(it.share),
                    bytes(it.largest as f64),
                    bytes(it.openzfs_memory as f64),
                ]
            })
            .collect();
        f.write_str(&table::plain(
            &["blocks", "headers", "of the cache", "largest sensible", "OpenZFS's headers"],
            &rows,
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The fields that stay for a block that is on the device only, as the compiler lays them out.
    #[repr(C)]
    struct Header {
        dva: [u64; 2],
        birth: u64,
        kind: u32,
        complevel: u8,
        reserved: u8,
        l2size: u16,
        hash_next: u64,
        flags: u32,
        psize: u16,
        lsize: u16,
        pool: u64,
        device: u64,
        address: u64,
        hits: u32,
        state: u32,
        node: [u64; 2],
    }

    #[test]
    fn headers_of_openzfs_are_as_large_as_their_fields() {
        assert_eq!(size_of::<Header>() as u64, OPENZFS_HEADER_BYTES);
    }

    #[test]
    fn the_largest_device_takes_a_quarter_of_the_cache() {
        let first = L2arc::of(Size(1 << 40), Size(16 << 30), Size(32 << 20)).unwrap();
        // Feeds follow each other after a second, or after a fifth where much is written.
        assert_eq!((first.fill_seconds_least, first.fill_seconds), (6553.6, 32768.0));
        assert!(first.to_string().contains("full after 109.2 min to 9.1 h of feeds of 32M"), "{first}");
        for headers in first.blocks {
            let largest = L2arc::of(Size(headers.largest), Size(16 << 30), Size(1 << 10)).unwrap();
            let same = largest.blocks.iter().find(|it| it.block == headers.block).unwrap();
            assert!((same.share - SENSIBLE_SHARE).abs() < 0.001, "{headers:?}");
        }
        let right = [Size(1 << 40), Size(16 << 30), Size(32 << 20)];
        for wrong in 0..3 {
            let mut all = right;
            all[wrong] = Size(0);
            let [size, arc, fill] = all;
            assert!(L2arc::of(size, arc, fill).is_err_and(|error| error.to_string().contains(": 0 is not")));
        }
    }
}
