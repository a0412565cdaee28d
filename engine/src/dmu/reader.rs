//! [`Reader`]: reads an object and loads blocks ahead of sequential reads.
//!
//! # The idea
//! A reader follows a few streams at a time, in order or with a stride. `streams` says which blocks each of
//! them will need, up to `zfetch_max_distance`, and which indirect block will be needed after these.
//!
//! The loads are [`background`](crate::background) work that ends in the ARC, where the read finds the block
//! or joins its load. So blocks ahead are verified and decompressed on other cores than the reader's, and
//! other readers of these blocks do not depend on this reader's client. An error ahead is ignored until its
//! block is read. Files of one block have no blocks ahead, but other files (`sibling_prefetch`).
//!
//! | lock | guards | order |
//! |---|---|---|
//! | `streams` | the positions of the streams; held to note one read, never across an await | taken alone |

mod streams;

use std::sync::Mutex;

use device::IgnorePoison;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;

use self::streams::{Limits, Streams};
use super::object::Object;
use super::sink::Sink;
use crate::Result;
use crate::stats::ZFETCH;
use crate::tunables;

/// The most blocks ahead of a stream.
const WINDOW_BLOCKS: u64 = 256;
/// Blocks ahead are handed to the background in runs of about this many bytes: a hand-off costs as much as
/// reading a small block.
const RUN_BYTES: u64 = 256 << 10;

/// A reader of an object that reads ahead. Any number of reads may be in progress at once.
pub struct Reader {
    object: Object,
    streams: Mutex<Streams>,
}

impl Reader {
    /// A reader that has seen no read yet.
    pub fn new(object: Object) -> Self {
        Self { object, streams: Mutex::default() }
    }

    /// The object.
    pub fn object(&self) -> &Object {
        &self.object
    }

    /// Fills `into` with the bytes from `offset` on.
    pub async fn read_at(&self, offset: u64, mut into: &mut [u8]) -> Result<()> {
        self.read_to(offset, into.len() as u64, &mut into).await
    }

    /// Reads `length` bytes from `offset` on into a sink.
    pub async fn read_to(&self, offset: u64, length: u64, sink: &mut dyn Sink) -> Result<()> {
        self.load_ahead(offset, length);
        self.object.read_to(offset, length, sink).await
    }

    /// Notes a read that the caller does itself, and loads ahead of it.
    pub fn load_ahead(&self, offset: u64, length: u64) {
        // What the cache does not take (`primarycache`) would be read twice.
        let is_off = tunables::ZFS_PREFETCH_DISABLE.is_on() || tunables::ZFETCH_MAX_DISTANCE.get() == 0;
        if is_off || !self.object.objset().primary().get().takes(false) {
            return;
        }
        if offset == 0 {
            self.object.objset().sibling_prefetch().note(&self.object);
        }
        let block_size = self.object.block_size();
        let last = offset.saturating_add(length.saturating_sub(1)) / block_size;
        let limits = Limits::of(&self.object);
        let mut ahead = self.streams.lock().ignore_poison().note(offset / block_size, last, limits);
        let pool = self.object.objset().pool();
        if let Some(block) = ahead.pointer {
            let object = self.object.clone();
            let issued = Issued::of(1);
            pool.load_ahead(async move {
                let _issued = issued;
                // Finding out what is there loads the indirect block.
                let _ = object.span(block.saturating_mul(block_size)).await;
            });
        }
        while let Some(run) = ahead.next_run(limits) {
            let object = self.object.clone();
            let issued = Issued::of(run.blocks(limits.end).count() as u64);
            pool.load_ahead(async move {
                let _issued = issued;
                let mut loads: FuturesUnordered<_> =
                    run.blocks(limits.end).map(|id| object.warm(id)).collect();
                while loads.next().await.is_some() {}
            });
        }
    }
}

impl std::fmt::Debug for Reader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Reader({:?})", self.object)
    }
}

/// Blocks that count as being loaded ahead for as long as this lives.
struct Issued(u64);

impl Issued {
    fn of(blocks: u64) -> Self {
        ZFETCH.issued(blocks);
        Self(blocks)
    }
}

impl Drop for Issued {
    fn drop(&mut self) {
        ZFETCH.loaded(self.0);
    }
}

impl Limits {
    fn of(object: &Object) -> Self {
        let block_size = object.block_size();
        Self {
            window: (tunables::ZFETCH_MAX_DISTANCE.get() / block_size).min(WINDOW_BLOCKS),
            run: (RUN_BYTES / block_size).max(1),
            end: object.end().div_ceil(block_size),
            span: 1 << object.dnode().pointers_per_indirect_shift().min(63),
            lost: object.objset().pool().cache().lost_prefetches(),
        }
    }
}
