//! [`Reader`]: reads an object and stays ahead of whoever reads it in order.
//!
//! As long as the next block wanted is the one after the last, twice as many blocks are kept loading ahead, up to a
//! window of [`WINDOW_BYTES`]; a jump starts over. The loads are [background](crate::background) work that ends in the ARC, where the
//! reader finds the block or joins its load. So blocks ahead are also verified and decompressed on other cores than the
//! reader's, and nobody who wants one of them waits for this reader's client.
//!
//! An error ahead is not an error until its block is wanted.

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;

use super::object::Object;
use super::tree::OrderedBlock;
use crate::{Result, background};

/// Most bytes ahead of the reader.
const WINDOW_BYTES: u64 = 8 << 20;
/// Most blocks ahead of the reader.
const WINDOW_BLOCKS: u64 = 256;
/// Blocks ahead are given to the background in runs of about this many bytes: a hand-off costs as much as reading a small block.
const RUN_BYTES: u64 = 256 << 10;

/// A reader of an object that reads ahead.
pub struct Reader {
    object: Object,
    /// The block used last, for reads smaller than a block.
    current: Option<(u64, Option<OrderedBlock>)>,
    ahead: ReadAhead,
}

impl Reader {
    /// A reader at no place yet.
    pub fn new(object: Object) -> Self {
        let ahead = ReadAhead::default();
        Self { object, current: None, ahead }
    }

    /// The object.
    pub fn object(&self) -> &Object {
        &self.object
    }

    /// Fills `into` with the bytes from `offset` on.
    pub async fn read_at(&mut self, offset: u64, into: &mut [u8]) -> Result<()> {
        let block_size = self.object.block_size();
        offset.checked_add(into.len() as u64).ok_or_else(|| self.object.corrupt("read beyond 2^64"))?;
        let mut id = offset / block_size;
        let mut start = (offset % block_size) as usize;
        let mut rest = into;
        while !rest.is_empty() {
            let here = rest.len().min(block_size as usize - start);
            let (piece, later) = rest.split_at_mut(here);
            if self.current.as_ref().is_none_or(|(current, _)| *current != id) {
                self.ahead.note(&self.object, id);
                self.current = Some((id, self.object.block(id).await?));
            }
            let found = self.current.as_ref().and_then(|(_, found)| found.as_ref());
            self.object.copy_from(id, found, start, piece)?;
            rest = later;
            start = 0;
            id += 1;
        }
        Ok(())
    }
}

impl std::fmt::Debug for Reader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Reader({:?}, {:?})", self.object, self.ahead)
    }
}

/// Where one sequential stream is, and how far ahead of it blocks were asked for.
#[derive(Debug, Default)]
struct ReadAhead {
    /// The block that would continue the stream.
    next: u64,
    /// First block that was not asked for yet.
    asked: u64,
    /// Blocks to be ahead; 0 as long as there is no stream.
    depth: u64,
}

impl ReadAhead {
    /// Block `id` is wanted now: asks for what should follow.
    fn note(&mut self, object: &Object, id: u64) {
        let most = (WINDOW_BYTES / object.block_size()).clamp(1, WINDOW_BLOCKS);
        let continues = id == self.next && id > 0;
        self.depth = if continues { (self.depth * 2).clamp(1, most) } else { 0 };
        self.next = id.saturating_add(1);
        if !continues {
            self.asked = self.next;
        }
        let after_last = object.dnode().max_block_id.0.saturating_add(1);
        let target = self.next.saturating_add(self.depth).min(after_last);
        let run = (RUN_BYTES / object.block_size()).max(1);
        self.asked = self.asked.max(self.next);
        // Not one by one: a full run, or all that is missing while the window is still small.
        while self.asked < target && (target - self.asked >= run || self.depth < run) {
            let first = self.asked;
            let after = target.min(first.saturating_add(run));
            self.asked = after;
            let object = object.clone();
            background::spawn(async move {
                let mut loads: FuturesUnordered<_> = (first..after).map(|id| object.block(id)).collect();
                while loads.next().await.is_some() {}
            });
        }
    }
}
