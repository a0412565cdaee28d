//! [`Reader`]: reads an object and stays ahead of whoever reads it in order.
//!
//! The first blocks are read one by one. As long as the next block wanted is the one after the last, twice as many blocks are
//! kept in flight ahead of it, up to a window of [`WINDOW_BYTES`]; a jump starts over. Nothing is spawned: the blocks ahead are
//! futures that live in the reader and are polled whenever somebody reads, which is when their bytes are needed. Between reads
//! the devices work on; checksum and decompression wait for the next read.
//!
//! Transfers belong to the thread that started them, so that a reader that wakes up on another thread forgets what is in
//! flight and begins anew. An error ahead is not an error until its block is wanted.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;
use std::thread::ThreadId;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;

use super::object::Object;
use super::tree::OrderedBlock;
use crate::{Error, Result};

/// Most bytes ahead of the reader.
const WINDOW_BYTES: u64 = 8 << 20;
/// Most blocks ahead of the reader.
const WINDOW_BLOCKS: u64 = 128;

type Found = Result<Option<OrderedBlock>>;
type Ahead = Pin<Box<dyn Future<Output = (u64, Found)> + Send>>;

/// A reader of an object that reads ahead.
pub struct Reader {
    object: Object,
    /// The block used last, for reads smaller than a block.
    current: Option<(u64, Option<OrderedBlock>)>,
    /// Block that `arrived[0]` is for.
    first: u64,
    /// One place for each block in the window, filled when it arrived.
    arrived: VecDeque<Option<Found>>,
    flying: FuturesUnordered<Ahead>,
    /// How many blocks to keep in the window.
    depth: u64,
    thread: ThreadId,
}

impl Reader {
    /// A reader at no place yet.
    pub fn new(object: Object) -> Self {
        Self {
            object,
            current: None,
            first: 0,
            arrived: VecDeque::new(),
            flying: FuturesUnordered::new(),
            depth: 1,
            thread: std::thread::current().id(),
        }
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
                let found = self.next_block(id).await?;
                self.current = Some((id, found));
            }
            let found = self.current.as_ref().and_then(|(_, found)| found.as_ref());
            self.object.copy_from(id, found, start, piece)?;
            rest = later;
            start = 0;
            id += 1;
        }
        Ok(())
    }

    /// Block `id`, by way of the window.
    async fn next_block(&mut self, id: u64) -> Found {
        let thread = std::thread::current().id();
        let in_window = id.checked_sub(self.first).filter(|skip| *skip < self.arrived.len() as u64);
        let follows = self.current.as_ref().is_some_and(|(last, _)| last.checked_add(1) == Some(id));
        match in_window {
            Some(skip) if self.thread == thread => {
                self.arrived.drain(..skip as usize);
            }
            _ => {
                self.arrived.clear();
                self.flying = FuturesUnordered::new();
                self.thread = thread;
            }
        }
        self.first = id;
        let most = (WINDOW_BYTES / self.object.block_size()).clamp(2, WINDOW_BLOCKS);
        self.depth = if follows { (self.depth * 2).min(most) } else { 1 };
        self.fill();
        let found = self.arrival().await;
        self.arrived.pop_front();
        self.first = id.saturating_add(1);
        found
    }

    fn fill(&mut self) {
        let last = self.object.dnode().max_block_id.0;
        while (self.arrived.len() as u64) < self.depth {
            let id = self.first.saturating_add(self.arrived.len() as u64);
            if id > last && !self.arrived.is_empty() {
                break;
            }
            let object = self.object.clone();
            self.arrived.push_back(None);
            self.flying.push(Box::pin(async move { (id, object.block(id).await) }));
        }
    }

    /// Drives all that is in flight until the first block of the window has arrived.
    async fn arrival(&mut self) -> Found {
        poll_fn(|context| {
            // All, not only until the first arrives: what was just added starts its transfer in its first poll.
            let idle = loop {
                match self.flying.poll_next_unpin(context) {
                    Poll::Ready(Some((id, found))) => {
                        let place = id.checked_sub(self.first).and_then(|place| usize::try_from(place).ok());
                        if let Some(arrived) = place.and_then(|place| self.arrived.get_mut(place)) {
                            *arrived = Some(found);
                        }
                    }
                    Poll::Ready(None) => break true,
                    Poll::Pending => break false,
                }
            };
            match self.arrived.front_mut().and_then(Option::take) {
                Some(found) => Poll::Ready(found),
                None if idle => Poll::Ready(Err(Error::Invalid("read ahead lost a block".into()))),
                None => Poll::Pending,
            }
        })
        .await
    }
}

impl std::fmt::Debug for Reader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Reader({:?}, {} blocks ahead)", self.object, self.arrived.len())
    }
}
