//! Reads across blocks, into what takes their bytes.
//!
//! # The idea
//! A block's bytes stay where the ARC has them, and go from there to where the reader wants them with one
//! copy: into a slice, or into memory of which no reference can be made, such as a guest's. A [`Sink`] gets
//! the bytes of a read in order and does that copy, or keeps the blocks.

use std::ops::Range;

use futures_util::StreamExt;
use futures_util::stream::FuturesOrdered;

use super::tree::OrderedBlock;
use crate::Result;
use crate::cache::{Block, Retain};

/// Blocks of one read that are loaded at a time.
const MAX_IN_FLIGHT: usize = 32;

/// Takes the bytes of a read, in order. When the read fails, it may have taken some of them.
pub trait Sink: Send {
    /// Takes bytes. Never more than what was asked for.
    fn put(&mut self, bytes: &[u8]);

    /// Takes so many zeroes.
    fn put_zeroes(&mut self, len_bytes: usize);

    /// Takes a part of a block, which a sink may also keep by its handle. Holes come as zeroes.
    fn put_block(&mut self, block: &Block, range: Range<usize>) {
        self.put(block.get(range).unwrap_or_default());
    }
}

/// Fills the slice, which becomes what is left of it.
impl Sink for &mut [u8] {
    fn put(&mut self, bytes: &[u8]) {
        let (now, later) = std::mem::take(self).split_at_mut(bytes.len());
        device::copy(now, bytes);
        *self = later;
    }

    fn put_zeroes(&mut self, len_bytes: usize) {
        let (now, later) = std::mem::take(self).split_at_mut(len_bytes);
        now.fill(0);
        *self = later;
    }
}

/// Reads the bytes from `offset` to `end`. Each block is loaded by `load`. `give` gets its number, the block,
/// the first byte and how many to put into the sink. What is within one block and cached needs no allocation.
pub(super) async fn read_blocks<L>(
    (offset, end): (u64, u64),
    block_size: u64,
    sink: &mut dyn Sink,
    load: impl Fn(u64, Retain) -> L,
    give: impl Fn(u64, Option<&OrderedBlock>, usize, usize, &mut dyn Sink) -> Result<()>,
) -> Result<()>
where
    L: Future<Output = Result<Option<OrderedBlock>>>,
{
    let retain = |id: u64| Retain::of_part((end - id * block_size).min(block_size) as usize, block_size);
    let mut start = (offset % block_size) as usize;
    let mut id = offset / block_size;
    let after = end.div_ceil(block_size);
    if after <= id + 1 {
        let len = (end - offset) as usize;
        return give(id, load(id, retain(id)).await?.as_ref(), start, len, sink);
    }
    let mut next = id;
    let mut rest = end - offset;
    let mut flying = FuturesOrdered::new();
    loop {
        while next < after && flying.len() < MAX_IN_FLIGHT {
            flying.push_back(load(next, retain(next)));
            next += 1;
        }
        let Some(found) = flying.next().await else {
            return Ok(());
        };
        let here = rest.min(block_size - start as u64);
        give(id, found?.as_ref(), start, here as usize, sink)?;
        rest -= here;
        start = 0;
        id += 1;
    }
}
