//! The streams that a reader follows, and how far ahead of them blocks are loaded.
//!
//! # The idea
//! A read belongs to a stream if it begins where the stream ended, a little before (clients that read in
//! order from several threads do not arrive exactly in order), or between that and what was requested
//! already. A stream may have a *stride*: each of its reads begins as many blocks after the one before. Two
//! equal gaps make a stride, so that reads here and there seldom look like one. Any other read takes the
//! place of the stream that was idle longest. While a stream continues, what is requested ahead of it is
//! doubled.
//!
//! # Waste
//! Two signs say that too much is requested, and halve the most that is requested ahead of any stream:
//!
//! - A stream ended, and what it had requested in vain was more than half of what was read of it.
//! - A read found that its block had been loaded ahead, and was evicted before it was read: the cache is too
//!   small for all that is loaded ahead.
//!
//! A stream that is read four times as far as that, with neither sign, doubles it again.
//!
//! Only plain numbers are here; no I/O.

use std::ops::RangeInclusive;

use crate::stats::{ZFETCH, Zfetch};
use crate::tunables;

/// A stream that is read so many times as far as the most that is requested ahead shows that more is needed.
const PROVEN: u64 = 4;

/// The bounds of an object's read-ahead, in blocks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// The most that is requested ahead of a stream.
    pub window: u64,
    /// Blocks that are handed to the background together.
    pub run: u64,
    /// The end of the object.
    pub end: u64,
    /// Blocks whose pointers are in one indirect block.
    pub span: u64,
    /// Blocks, of any object, that were evicted between being loaded ahead and being read.
    pub lost: u64,
}

/// Blocks to load: `length` blocks from `first` on, and the same each `step` blocks, for places before
/// `after`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Ahead {
    pub first: u64,
    pub after: u64,
    step: u64,
    length: u64,
    /// A block whose pointer will be needed after these: its indirect block is to be loaded.
    pub pointer: Option<u64>,
}

impl Ahead {
    /// The first part that is handed to the background. The rest stays.
    pub(super) fn next_run(&mut self, limits: Limits) -> Option<Self> {
        if self.first >= self.after {
            return None;
        }
        let places = (limits.run / self.length.max(1)).max(1);
        let end = self.first.saturating_add(places.saturating_mul(self.step)).min(self.after);
        let run = Self { after: end, pointer: None, ..*self };
        self.first = end;
        Some(run)
    }

    /// Its blocks, of an object that ends at `end`.
    pub(super) fn blocks(self, end: u64) -> impl Iterator<Item = u64> {
        let places =
            (self.first..self.after).step_by(usize::try_from(self.step.max(1)).unwrap_or(usize::MAX));
        places.flat_map(move |place| place..place.saturating_add(self.length).min(end))
    }
}

/// The streams of a reader.
#[derive(Debug)]
pub(super) struct Streams {
    /// As many as one reader follows.
    streams: Vec<Stream>,
    /// For each of them, the first blocks of reads that may belong to it. Most reads here and there belong to
    /// none, and need no closer look.
    reaches: Vec<RangeInclusive<u64>>,
    reads: u64,
    /// The most blocks that are requested ahead of a stream, where that is less than the window.
    most: u64,
    /// Blocks that were read since that was halved.
    since_halved: u64,
    /// [`Limits::lost`] at the last read.
    lost: Option<u64>,
}

impl Default for Streams {
    fn default() -> Self {
        let most = tunables::ZFETCH_MAX_STREAMS.size();
        Self {
            streams: vec![Stream::default(); most],
            reaches: vec![0..=0; most],
            reads: 0,
            most: u64::MAX,
            since_halved: u64::MAX,
            lost: None,
        }
    }
}

/// The position of one stream, and how far ahead of it blocks were requested.
#[derive(Clone, Copy, Debug, Default)]
struct Stream {
    /// The first block of its last read.
    first: u64,
    /// The block after that read.
    next: u64,
    /// Blocks from the beginning of a read to that of the next one; 0 when they follow each other.
    stride: u64,
    /// The first place that was not requested yet.
    asked: u64,
    /// The number of reads (with a stride) or blocks to load ahead; 0 until it is known to be a stream.
    depth: u64,
    /// Blocks that were read of it, since one of the signs of waste.
    read: u64,
    /// The number of its last read; 0 when unused.
    used_at: u64,
}

/// How a read belongs to a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Follows {
    /// It was read already.
    Past,
    /// It continues the stream.
    InOrder,
    /// It skips a part that was requested already.
    Future,
    /// It is the next one with the stride of the stream.
    Stride,
    /// The second read of a stream that may have a stride, or the third with another gap.
    Gap,
}

impl Streams {
    /// Notes a read of blocks `first..=last`, and returns the blocks to load ahead.
    pub(super) fn note(&mut self, first: u64, last: u64, limits: Limits) -> Ahead {
        self.reads += 1;
        let next = last.saturating_add(1);
        self.note_lost(next - first, limits);
        let found = self.find(first, next, limits);
        ZFETCH.bump(match found {
            Some((_, Follows::Past)) => Zfetch::Past,
            Some((_, Follows::InOrder)) => Zfetch::Hits,
            Some((_, Follows::Future)) => Zfetch::Future,
            Some((_, Follows::Stride)) => Zfetch::Stride,
            Some((_, Follows::Gap)) | None => Zfetch::Misses,
        });
        let (now, most) = (self.reads, self.most.min(limits.window));
        let Some((index, follows)) = found else {
            self.begin(first, next, limits);
            return Ahead::default();
        };
        let Some(stream) = self.streams.get_mut(index) else { return Ahead::default() };
        stream.used_at = now;
        match follows {
            // Nothing new to load.
            Follows::Past => return Ahead::default(),
            Follows::Gap => {
                let stride = first - stream.first;
                *stream = Stream { first, next, stride, asked: next, used_at: now, ..Stream::default() };
                self.note_reach(index, limits);
                return Ahead::default();
            }
            Follows::InOrder if stream.stride > 0 => (stream.stride, stream.asked) = (0, next),
            Follows::InOrder | Follows::Future | Follows::Stride => {}
        }
        stream.read = stream.read.saturating_add(next - first);
        let is_proven = stream.read / PROVEN >= most;
        let ahead = stream.advance(first, next, follows, most, limits);
        if is_proven {
            self.most = most.saturating_mul(2).max(1);
        }
        self.note_reach(index, limits);
        ahead
    }

    /// A stream has changed.
    fn note_reach(&mut self, index: usize, limits: Limits) {
        if let (Some(stream), Some(reach)) = (self.streams.get(index), self.reaches.get_mut(index)) {
            *reach = stream.reach(limits);
        }
    }

    /// The stream to which a read belongs: one that it may have a stride of only if it belongs to no other.
    fn find(&self, first: u64, next: u64, limits: Limits) -> Option<(usize, Follows)> {
        let mut gap = None;
        let near = self.streams.iter().zip(&self.reaches).enumerate();
        for (index, (stream, _)) in near.filter(|(_, (_, reach))| reach.contains(&first)) {
            match stream.follows(first, next, limits) {
                Some(Follows::Gap) => gap = gap.or(Some((index, Follows::Gap))),
                Some(follows) => return Some((index, follows)),
                None => {}
            }
        }
        gap
    }

    /// Begins a stream in the place of the one that was idle longest.
    fn begin(&mut self, first: u64, next: u64, limits: Limits) {
        let now = self.reads;
        let idle = self.streams.iter_mut().enumerate().min_by_key(|(_, stream)| stream.used_at);
        let Some((index, idle)) = idle else { return };
        let ended =
            std::mem::replace(idle, Stream { first, next, asked: next, used_at: now, ..Stream::default() });
        self.note_reach(index, limits);
        if ended.used_at > 0 {
            ZFETCH.bump(Zfetch::MaxStreams);
        }
        if ended.depth > 0 && ended.in_vain() > ended.read / 2 {
            self.halve(limits);
        }
    }

    /// Looks whether blocks were evicted between being loaded ahead and being read.
    fn note_lost(&mut self, read: u64, limits: Limits) {
        self.since_halved = self.since_halved.saturating_add(read);
        let before = self.lost.replace(limits.lost).unwrap_or(limits.lost);
        if limits.lost <= before {
            return;
        }
        self.streams.iter_mut().for_each(|stream| stream.read = 0);
        // What was requested before it was halved may be lost, too: that is no news.
        if self.since_halved / 2 > self.most.min(limits.window) {
            self.halve(limits);
        }
    }

    fn halve(&mut self, limits: Limits) {
        self.most = (self.most.min(limits.window) / 2).max(1);
        self.since_halved = 0;
        self.streams.iter_mut().for_each(|stream| stream.read = 0);
    }
}

impl Stream {
    /// The first blocks of reads for which [`Self::follows`] may find something.
    fn reach(&self, limits: Limits) -> RangeInclusive<u64> {
        let strides = self.depth.saturating_mul(self.stride);
        let late = self.depth.min(limits.window).max(1);
        let from = self.next.saturating_sub(late).min(self.first.saturating_sub(strides));
        let gap = strides.max(limits.window).max(self.stride);
        from..=self.asked.max(self.first.saturating_add(gap)).max(self.next)
    }

    fn follows(&self, first: u64, next: u64, limits: Limits) -> Option<Follows> {
        // Block 0 begins a stream: an unused slot would otherwise take it.
        if self.used_at == 0 {
            return None;
        }
        let is_known = self.depth > 0;
        if self.stride > 0 && is_known {
            let (gap, is_past) = (first.abs_diff(self.first), first <= self.first);
            return (gap.is_multiple_of(self.stride) && gap / self.stride <= self.depth)
                .then_some(if is_past { Follows::Past } else { Follows::Stride });
        }
        let late = self.depth.min(limits.window / 4).max(1);
        if first <= self.next && first.saturating_add(late) >= self.next {
            return Some(if next <= self.next { Follows::Past } else { Follows::InOrder });
        }
        let gap = first.checked_sub(self.first).filter(|_| first > self.next)?;
        match is_known {
            true => (first < self.asked).then_some(Follows::Future),
            false if gap == self.stride => Some(Follows::Stride),
            false => (gap <= limits.window).then_some(Follows::Gap),
        }
    }

    /// Goes on to a read of `first..next`. Returns what to load ahead.
    fn advance(&mut self, first: u64, next: u64, follows: Follows, most: u64, limits: Limits) -> Ahead {
        let length = next - first;
        (self.first, self.next) = (first, next.max(self.next));
        // A stream in order is a stride of one block, counted from its end.
        let (from, step, length) = match self.stride {
            0 => (self.next, 1, 1),
            stride => (first.saturating_add(stride), stride, length),
        };
        let least = if self.stride == 0 { next - first } else { 1 };
        if follows != Follows::Future {
            self.depth = self.depth.saturating_mul(2).max(least);
        }
        self.depth = self.depth.min((most / length).max(1));
        self.asked = self.asked.max(from);
        let target = from.saturating_add(self.depth.saturating_mul(step)).min(limits.end);
        let missing = target.saturating_sub(self.asked).div_ceil(step).saturating_mul(length);
        // Not one by one: a full run, or all missing blocks while the window is small or at the end.
        let is_deep = self.depth.saturating_mul(length) >= limits.run;
        if missing < limits.run && is_deep && target < limits.end {
            return Ahead::default();
        }
        let ahead = Ahead {
            first: self.asked,
            after: target,
            step,
            length,
            pointer: pointer_ahead(self.asked, target, limits),
        };
        while self.asked < target && step > 1 {
            self.asked = self.asked.saturating_add(step);
        }
        self.asked = self.asked.max(target);
        ahead
    }

    /// Blocks that were requested and not read.
    fn in_vain(&self) -> u64 {
        match self.stride {
            0 => self.asked.saturating_sub(self.next),
            stride => {
                let places = self.asked.saturating_sub(self.first) / stride;
                places.saturating_sub(1).saturating_mul(self.next.saturating_sub(self.first))
            }
        }
    }
}

/// The block whose indirect block is needed next, when what is requested passes the middle of one.
fn pointer_ahead(from: u64, to: u64, limits: Limits) -> Option<u64> {
    let next_span = |block: u64| block.saturating_add(limits.span / 2) / limits.span.max(1);
    let wanted = next_span(to).saturating_mul(limits.span);
    (next_span(from) < next_span(to) && wanted < limits.end).then_some(wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits { window: 64, run: 4, end: 1000, span: 1024, lost: 0 };

    #[test]
    fn a_stream_follows_no_read_beyond_its_reach() {
        let mut random = 1u64;
        let mut next = |below: u64| {
            random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (random >> 33) % below
        };
        let mut streams = Streams::default();
        let mut at = 0u64;
        for _ in 0..20_000 {
            at = match next(8) {
                0 => next(LIMITS.end),
                1 => at.saturating_sub(next(5)),
                2 => at + next(100),
                3 | 4 => at + 7,
                _ => at + 1,
            } % LIMITS.end;
            let last = at + next(3);
            for (stream, reach) in streams.streams.iter().zip(&streams.reaches) {
                let follows = stream.follows(at, last + 1, LIMITS);
                assert!(follows.is_none() || reach.contains(&at), "{at} {follows:?} {stream:?} {reach:?}");
            }
            streams.note(at, last, LIMITS);
        }
    }

    fn asked_blocks(streams: &mut Streams, first: u64, last: u64) -> Vec<u64> {
        asked_within(streams, first, last, LIMITS)
    }

    fn asked_within(streams: &mut Streams, first: u64, last: u64, limits: Limits) -> Vec<u64> {
        let mut ahead = streams.note(first, last, limits);
        let mut asked = Vec::new();
        while let Some(run) = ahead.next_run(limits) {
            asked.extend(run.blocks(limits.end));
        }
        asked
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
        let asked: Vec<u64> =
            (0..250).flat_map(|id| asked_blocks(&mut streams, id * 4, id * 4 + 2)).collect();
        assert_eq!(asked.last(), Some(&998));
    }

    #[test]
    fn random_reads_ask_for_nothing() {
        let mut streams = Streams::default();
        for id in [500, 3, 901, 77, 640, 12, 333, 850, 410, 230] {
            assert_eq!(asked_blocks(&mut streams, id, id), [0u64; 0]);
        }
        // Nearer to each other than a window.
        for id in [500, 503, 509, 520, 511, 530, 504, 560, 541] {
            assert_eq!(asked_blocks(&mut streams, id, id), [0u64; 0], "{id}");
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

    #[test]
    fn of_a_stream_with_a_stride_only_what_it_reads_is_asked_for() {
        for (stride, length) in [(4, 1), (5, 2), (64, 3)] {
            let limits = Limits { end: 100_000, ..LIMITS };
            let mut streams = Streams::default();
            let mut asked = Vec::new();
            for place in (8..).step_by(stride as usize).take(100) {
                asked.extend(asked_within(&mut streams, place, place + length - 1, limits));
            }
            let begin = 8 + 3 * stride;
            let places = (begin..).step_by(stride as usize);
            let expected: Vec<u64> =
                places.flat_map(|place| place..place + length).take(asked.len()).collect();
            assert_eq!(asked, expected, "{stride}");
            let ahead = (asked.last().unwrap() - (8 + 99 * stride)) / stride * length;
            assert!((40..=64).contains(&ahead), "{stride}: {ahead} blocks ahead");
        }
    }

    #[test]
    fn a_read_that_skips_what_was_asked_for_stays_in_its_stream() {
        let mut streams = Streams::default();
        let mut asked: Vec<u64> = (0..40).flat_map(|id| asked_blocks(&mut streams, id, id)).collect();
        for id in (50..200).step_by(10) {
            asked.extend(asked_blocks(&mut streams, id, id));
        }
        let expected: Vec<u64> = (asked[0]..asked[0] + asked.len() as u64).collect();
        assert_eq!(asked, expected, "nothing twice");
        assert!(*asked.last().unwrap() > 200);
    }

    #[test]
    fn short_streams_are_asked_for_less_and_a_long_one_for_more_again() {
        let limits = Limits { end: 1 << 30, ..LIMITS };
        let mut streams = Streams::default();
        let mut burst = |number: u64, length: u64| -> usize {
            let at = number * 10_000;
            (at..at + length).map(|id| asked_within(&mut streams, id, id, limits).len()).sum()
        };
        let first = burst(0, 9);
        for number in 1..200 {
            burst(number, 9);
        }
        let (later, needed) = (burst(200, 9), 8);
        assert!(first > 20 && later >= needed && later < 14, "{first} blocks at first, {later} later");
        let long = burst(300, 2000);
        assert!(long > 2000 + 40, "{long}");
    }

    #[test]
    fn blocks_that_are_evicted_unread_shorten_what_is_asked_for() {
        let mut limits = Limits { end: 1 << 30, ..LIMITS };
        let mut streams = Streams::default();
        let mut furthest = |blocks: std::ops::Range<u64>, lost: u64| -> u64 {
            let mut last = 0;
            for id in blocks.clone() {
                limits.lost += lost;
                last = asked_within(&mut streams, id, id, limits).last().copied().unwrap_or(last);
            }
            last.saturating_sub(blocks.end)
        };
        assert!(furthest(0..300, 0) > 40);
        assert!(furthest(300..600, 1) < 10);
        assert!(furthest(600..2000, 0) > 40, "and it grows again");
    }

    #[test]
    fn the_next_indirect_block_is_asked_for_in_time_and_once() {
        let limits = Limits { end: 1000, span: 128, ..LIMITS };
        let mut streams = Streams::default();
        let mut asked = Vec::new();
        for id in 0..1000 {
            let pointer = streams.note(id, id, limits).pointer;
            assert!(pointer.is_none_or(|block| block > id + 32), "{id}: {pointer:?}");
            asked.extend(pointer);
        }
        assert_eq!(asked, [128, 256, 384, 512, 640, 768, 896]);
    }
}
