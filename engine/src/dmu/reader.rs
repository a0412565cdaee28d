//! [`Reader`]: reads an object and loads blocks ahead of sequential reads.
//!
//! # The idea
//! A reader follows a few streams at a time. A read that begins at (or a little before) the expected end of a
//! stream belongs to it; any other read replaces the stream that was idle longest. While a stream continues,
//! the loaded part ahead of it is doubled, up to `zfetch_max_distance`. Clients that read in order from several
//! threads do not arrive exactly in order, hence "a little before".
//!
//! The loads are [`background`](crate::background) work that ends in the ARC, where the read finds the block
//! or joins its load. So blocks ahead are verified and decompressed on other cores than the reader's, and
//! other readers of these blocks do not depend on this reader's client. An error ahead is ignored until its
//! block is read. Files of one block have no blocks ahead, but other files (`sibling_prefetch`).
//!
//! | lock | guards | order |
//! |---|---|---|
//! | `streams` | the positions of the streams; held to note one read, never across an await | taken alone |

use std::sync::Mutex;

use device::IgnorePoison;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;

use super::object::Object;
use crate::Result;
use crate::stats::{ZFETCH, Zfetch};
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
    pub async fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<()> {
        self.load_ahead(offset, into.len() as u64);
        self.object.read_at(offset, into).await
    }

    /// Notes a read that the caller does itself, and loads ahead of it.
    pub fn load_ahead(&self, offset: u64, length: u64) {
        if tunables::ZFS_PREFETCH_DISABLE.is_on() {
            return;
        }
        if offset == 0 {
            self.object.objset().sibling_prefetch().note(&self.object);
        }
        let block_size = self.object.block_size();
        let last = offset.saturating_add(length.saturating_sub(1)) / block_size;
        let limits = Limits::of(&self.object);
        let mut ahead = self.streams.lock().ignore_poison().note(offset / block_size, last, limits);
        while let Some((first, after)) = ahead.next_run(limits) {
            let object = self.object.clone();
            let issued = Issued::of(after - first);
            self.object.objset().pool().load_ahead(async move {
                let _issued = issued;
                let mut loads: FuturesUnordered<_> = (first..after).map(|id| object.warm(id)).collect();
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

/// The bounds of an object's read-ahead, in blocks.
#[derive(Clone, Copy, Debug)]
struct Limits {
    window: u64,
    run: u64,
    end: u64,
}

impl Limits {
    fn of(object: &Object) -> Self {
        let block_size = object.block_size();
        Self {
            window: (tunables::ZFETCH_MAX_DISTANCE.get() / block_size).min(WINDOW_BLOCKS),
            run: (RUN_BYTES / block_size).max(1),
            end: object.end().div_ceil(block_size),
        }
    }
}

/// Blocks to load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Ahead {
    first: u64,
    after: u64,
}

impl Ahead {
    fn next_run(&mut self, limits: Limits) -> Option<(u64, u64)> {
        if self.first >= self.after {
            return None;
        }
        let first = self.first;
        self.first = self.after.min(first.saturating_add(limits.run));
        Some((first, self.first))
    }
}

#[derive(Debug)]
struct Streams {
    /// As many as one reader follows.
    streams: Vec<Stream>,
    reads: u64,
}

impl Default for Streams {
    fn default() -> Self {
        Self { streams: vec![Stream::default(); tunables::ZFETCH_MAX_STREAMS.size()], reads: 0 }
    }
}

/// The position of one sequential stream, and how far ahead of it blocks were requested.
#[derive(Clone, Copy, Debug, Default)]
struct Stream {
    /// The block that would continue it.
    next: u64,
    /// The first block that was not requested yet.
    asked: u64,
    /// The number of blocks to load ahead; 0 after a single read.
    depth: u64,
    /// The number of its last read; 0 when unused.
    used_at: u64,
}

impl Streams {
    /// Notes a read of blocks `first..=last`, and returns the blocks to load ahead.
    fn note(&mut self, first: u64, last: u64, limits: Limits) -> Ahead {
        self.reads += 1;
        let now = self.reads;
        let found = self.streams.iter_mut().find(|stream| stream.is_continued_by(first, limits));
        let Some(stream) = found else {
            let next = last.saturating_add(1);
            ZFETCH.bump(Zfetch::Misses);
            if let Some(idle) = self.streams.iter_mut().min_by_key(|stream| stream.used_at) {
                if idle.used_at > 0 {
                    ZFETCH.bump(Zfetch::MaxStreams);
                }
                *idle = Stream { next, asked: next, depth: 0, used_at: now };
            }
            return Ahead { first: 0, after: 0 };
        };
        stream.used_at = now;
        ZFETCH.bump(if last < stream.next { Zfetch::Past } else { Zfetch::Hits });
        if last < stream.next {
            // The same block again, or a little late: nothing new to load.
            return Ahead { first: 0, after: 0 };
        }
        let read = last - first + 1;
        stream.next = last.saturating_add(1);
        stream.depth = stream.depth.saturating_mul(2).max(read).min(limits.window);
        stream.asked = stream.asked.max(stream.next);
        let target = stream.next.saturating_add(stream.depth).min(limits.end);
        let missing = target.saturating_sub(stream.asked);
        // Not one by one: a full run, or all missing blocks while the window is small or at the end.
        if missing < limits.run && stream.depth >= limits.run && target < limits.end {
            return Ahead { first: 0, after: 0 };
        }
        let ahead = Ahead { first: stream.asked, after: target };
        stream.asked = stream.asked.max(target);
        ahead
    }
}

impl Stream {
    fn is_continued_by(&self, first: u64, limits: Limits) -> bool {
        // Block 0 begins a stream: an unused slot would otherwise take it.
        if self.used_at == 0 {
            return false;
        }
        let late = self.depth.min(limits.window / 4).max(1);
        first <= self.next && first.saturating_add(late) >= self.next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits { window: 64, run: 4, end: 1000 };

    fn asked_blocks(streams: &mut Streams, first: u64, last: u64) -> Vec<u64> {
        let ahead = streams.note(first, last, LIMITS);
        (ahead.first..ahead.after).collect()
    }

    #[test]
    fn a_stream_is_asked_for_once_and_ever_further_ahead() {
        let mut streams = Streams::default();
        let mut asked = Vec::new();
        for id in 0..200 {
            asked.extend(asked_blocks(&mut streams, id, id));
        }
        let expected: Vec<u64> = (asked[0]..asked[0] + asked.len() as u64).collect();
        assert_eq!(asked, expected);
        assert!(*asked.last().unwrap() >= 200 + 48);
    }

    #[test]
    fn nothing_is_asked_for_after_the_end() {
        let mut streams = Streams::default();
        let asked: Vec<u64> = (900..1000).flat_map(|id| asked_blocks(&mut streams, id, id)).collect();
        assert_eq!(asked.last(), Some(&999));
    }

    #[test]
    fn random_reads_ask_for_nothing() {
        let mut streams = Streams::default();
        for id in [500, 3, 901, 77, 640, 12, 333, 850, 410, 230] {
            assert_eq!(asked_blocks(&mut streams, id, id), [0u64; 0]);
        }
    }

    #[test]
    fn two_streams_at_once_and_reads_that_arrive_late_are_still_streams() {
        let mut streams = Streams::default();
        let mut asked = 0;
        for step in 0..40 {
            for (swap, base) in [(1, 0), (0, 500)] {
                // Pairs arrive as 1, 0, 3, 2, …
                let id = base + if swap == 1 { step ^ 1 } else { step };
                asked += asked_blocks(&mut streams, id, id).len();
            }
        }
        assert!(asked > 100, "{asked}");
    }
}
