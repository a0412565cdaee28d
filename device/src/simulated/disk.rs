//! A rotating disk.
//!
//! # The idea
//! One arm does one thing at a time: it moves to a track, waits for the sector, and reads or writes while the
//! platter turns. Two features that every disk has are modelled too, because without them modelled pools
//! would be slower than real ones whenever many requests are queued:
//!
//! - **Sectors that pass below the arm are read too.** On the way to a sector further along the track the arm
//!   passes those before it. A read of these is answered as they pass, or from the disk's buffer for a while.
//!   So nearly sequential reads, for example of several threads, are served like sequential ones.
//! - **Writes go to the cache first.** A write completes when the cache has it. The arm writes the cached
//!   data when there are no reads: in the order of the platter, with neighbours together, one sweep after the
//!   other. A flush waits until the cache is empty, and a write waits if the cache is full. As on real disks,
//!   this is why a flush takes long and a write does not.
//!
//! No transfer is faster than the platter turns: the model has one bandwidth.
//!
//! # Invariant
//! When [`Disk::serve`] begins with a command, everything that the arm did until then is accounted for:
//! either it is busy beyond that time, or nothing waits for it.
//!
//! Sources: how disks cache and order writes, "An Introduction to Disk Drive Modeling" (Ruemmler, Wilkes;
//! IEEE Computer 27(3), 1994). The sizes are ours.

use std::collections::{BTreeMap, VecDeque};

use super::fault::Random;
use super::model::{Arm, Model};
use crate::Operation;

/// What the cache has room for. Disks have more, but what is tried on modelled ones is smaller than on real
/// ones, too.
const CACHE_BYTES: u64 = 16 << 20;
/// Most that the arm writes before waiting reads get their turn.
const TURN_BYTES: u64 = 1 << 20;
/// Stretches in the buffer.
const PASSED: usize = 32;
/// How long they are there: as long as threads that read side by side are apart.
const PASSED_NS: u64 = 25_000_000;

/// A stretch that the arm passes over on the way to the sector behind it.
#[derive(Clone, Copy, Debug)]
struct Passed {
    begin: u64,
    end: u64,
    /// When the arm is at its end.
    at_end_ns: u64,
}

/// A disk at work.
#[derive(Debug)]
pub(super) struct Disk {
    model: Model,
    arm: Arm,
    size_bytes: u64,
    random: Random,
    /// Where the arm is after all that it has begun, and when.
    offset: u64,
    free_at_ns: u64,
    /// When whatever was given or taken has come over.
    path_free_at_ns: u64,
    /// What the arm passed last, the newest first; some of it may be still to come.
    passed: VecDeque<Passed>,
    /// What waits in the cache: where it begins and ends. Stretches neither overlap nor touch.
    waiting: BTreeMap<u64, u64>,
    waiting_bytes: u64,
}

impl Disk {
    pub(super) fn new(model: Model, arm: Arm, size_bytes: u64, seed: u64) -> Self {
        Self {
            model,
            arm,
            size_bytes,
            random: Random::new(seed),
            offset: 0,
            free_at_ns: 0,
            path_free_at_ns: 0,
            passed: VecDeque::new(),
            waiting: BTreeMap::new(),
            waiting_bytes: 0,
        }
    }

    /// Queues a command that arrives at `now_ns` and says when it completes.
    pub(super) fn serve(&mut self, now_ns: u64, operation: Operation, offset: u64, len: u64) -> u64 {
        while self.free_at_ns < now_ns && self.write_next() {}
        self.free_at_ns = self.free_at_ns.max(now_ns);
        let end = offset.saturating_add(len);
        match operation {
            Operation::Read => self.read(now_ns, offset, end),
            Operation::Write => self.take(now_ns, offset, end),
            Operation::Flush => {
                while self.write_next() {}
                self.free_at_ns.max(self.path_free_at_ns) + self.model.flush_ns
            }
            Operation::Open | Operation::Discard => now_ns,
        }
    }

    fn read(&mut self, now_ns: u64, begin: u64, end: u64) -> u64 {
        let latency_ns = self.model.latency_ns(Operation::Read);
        let waits = self.waiting.range(..=begin).next_back().is_some_and(|(_, waits_to)| end <= *waits_to);
        if waits {
            return self.come_over(now_ns + latency_ns, Operation::Read, end - begin);
        }
        self.passed.retain(|it| it.at_end_ns.saturating_add(PASSED_NS) > now_ns);
        if let Some(passed) = self.passed.iter().find(|it| it.begin <= begin && end <= it.end) {
            let left_ns = self.model.transfer_ns(Operation::Read, passed.end - end);
            return passed.at_end_ns.saturating_sub(left_ns).max(now_ns + latency_ns);
        }
        let from = self.offset;
        let (positioning_ns, passes) = self.move_to(Operation::Read, begin, end);
        let there_at_ns = self.free_at_ns + latency_ns + positioning_ns;
        if passes {
            self.passed.truncate(PASSED - 1);
            self.passed.push_front(Passed { begin: from, end: begin, at_end_ns: there_at_ns });
        }
        self.free_at_ns = self.come_over(there_at_ns, Operation::Read, end - begin);
        self.free_at_ns
    }

    /// Takes a write into the cache.
    fn take(&mut self, now_ns: u64, begin: u64, end: u64) -> u64 {
        let latency_ns = self.model.latency_ns(Operation::Write);
        let taken_at_ns = self.come_over(now_ns + latency_ns, Operation::Write, end - begin);
        let (mut first, mut last) = (begin, end);
        while let Some((&other, &other_end)) = self.waiting.range(..=last).next_back()
            && other_end >= first
        {
            self.waiting.remove(&other);
            self.waiting_bytes -= other_end - other;
            (first, last) = (first.min(other), last.max(other_end));
        }
        self.waiting.insert(first, last);
        self.waiting_bytes += last - first;
        if self.waiting_bytes <= CACHE_BYTES {
            return taken_at_ns;
        }
        while self.waiting_bytes > CACHE_BYTES && self.write_next() {}
        taken_at_ns.max(self.free_at_ns)
    }

    /// Moves bytes to or from the disk, as soon as they are there and the path is free.
    fn come_over(&mut self, there_at_ns: u64, operation: Operation, len: u64) -> u64 {
        let begin_ns = there_at_ns.max(self.path_free_at_ns);
        self.path_free_at_ns = begin_ns.saturating_add(self.model.transfer_ns(operation, len));
        self.path_free_at_ns
    }

    /// Writes what comes next on the platter, from where the arm is; whether there was something.
    fn write_next(&mut self) -> bool {
        let next = self.waiting.range(self.offset..).next().or_else(|| self.waiting.iter().next());
        let Some((&begin, &end)) = next else { return false };
        let written_to = end.min(begin.saturating_add(TURN_BYTES));
        self.waiting.remove(&begin);
        if written_to < end {
            self.waiting.insert(written_to, end);
        }
        self.waiting_bytes -= written_to - begin;
        let (positioning_ns, _) = self.move_to(Operation::Write, begin, written_to);
        self.free_at_ns += positioning_ns + self.model.transfer_ns(Operation::Write, written_to - begin);
        true
    }

    /// Moves the arm to `begin` and leaves it at `end`: how long it takes to get there, with the wait for the
    /// sector, and whether it passes over what lies between.
    fn move_to(&mut self, operation: Operation, begin: u64, end: u64) -> (u64, bool) {
        let distance = begin.abs_diff(self.offset);
        let is_ahead = begin >= self.offset;
        self.offset = end;
        // What is ahead on the same track comes by itself.
        let passing_ns = self.model.transfer_ns(operation, distance);
        if is_ahead && passing_ns < self.arm.rotation_ns {
            return (passing_ns, distance > 0);
        }
        // An arm accelerates for half of the way and slows down for the other: time goes with the root of the
        // distance.
        let share = (distance as f64 / self.size_bytes.max(1) as f64).min(1.0).sqrt();
        let span_ns = self.arm.longest_seek_ns.saturating_sub(self.arm.shortest_seek_ns);
        let seek_ns = self.arm.shortest_seek_ns + (span_ns as f64 * share) as u64;
        (seek_ns + self.random.below(self.arm.rotation_ns), false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MODEL: Model = Model::HDD_5400;
    const PIECE: u64 = 16 << 10;
    const MILLISECOND: u64 = 1_000_000;

    fn disk() -> Disk {
        Disk::new(MODEL, MODEL.arm.unwrap(), 1 << 40, 1)
    }

    /// What 64 MiB take in pieces, with 32 always waiting, each in the place that `order` gives it, and a
    /// flush.
    fn pieces_ns(operation: Operation, order: impl Fn(u64) -> u64) -> u64 {
        let mut disk = disk();
        let mut done_ns = [0; 32];
        for index in 0..4096_u64 {
            let slot = index as usize % done_ns.len();
            done_ns[slot] = disk.serve(done_ns[slot], operation, order(index) * PIECE, PIECE);
        }
        disk.serve(done_ns.into_iter().max().unwrap(), Operation::Flush, 0, 0)
    }

    #[test]
    fn what_is_nearly_in_order_is_read_and_written_as_if_in_order() {
        for operation in [Operation::Read, Operation::Write] {
            let in_order_ns = pieces_ns(operation, |index| index);
            let least_ns = MODEL.transfer_ns(operation, 64 << 20);
            assert!((least_ns..least_ns * 2).contains(&in_order_ns), "{operation:?}: {in_order_ns}");
            // Four and four change places, as when two threads ask in turn.
            let swapped_ns = pieces_ns(operation, |index| index ^ 4);
            assert!(swapped_ns < in_order_ns * 11 / 10, "{operation:?}: {swapped_ns} {in_order_ns}");
        }
        let (there_ns, back_ns) =
            (pieces_ns(Operation::Read, |index| index), pieces_ns(Operation::Read, |index| 4095 - index));
        assert!(back_ns > there_ns * 20, "{there_ns} {back_ns}");
    }

    #[test]
    fn what_was_passed_is_in_the_buffer_for_a_while() {
        for (pause_ns, is_buffered) in [(MILLISECOND, true), (PASSED_NS, false)] {
            let mut disk = disk();
            let now_ns = disk.serve(0, Operation::Read, 1 << 19, 4096) + pause_ns;
            let took_ns = disk.serve(now_ns, Operation::Read, 4096, 4096) - now_ns;
            assert_eq!(took_ns == MODEL.read_latency_ns, is_buffered, "{took_ns}");
        }
    }

    #[test]
    fn a_flush_waits_for_what_writes_did_not_wait_for() {
        let mut disk = disk();
        let mut now_ns = 0;
        for index in 0..50 {
            let done_ns = disk.serve(now_ns, Operation::Write, (index * 7919 % 50) << 34, 4096);
            assert!(done_ns - now_ns < MILLISECOND);
            now_ns = done_ns;
        }
        // It can be read before it is written.
        let done_ns = disk.serve(now_ns, Operation::Read, (49 * 7919 % 50) << 34, 4096);
        assert!(done_ns - now_ns < MILLISECOND);
        // A seek, and half a turn, for nearly each.
        let flushed_ns = disk.serve(done_ns, Operation::Flush, 0, 0);
        assert!((200..600).contains(&((flushed_ns - now_ns) / MILLISECOND)), "{flushed_ns}");
        let again_ns = disk.serve(flushed_ns, Operation::Flush, 0, 0);
        assert_eq!(again_ns, flushed_ns + MODEL.flush_ns);
        // Without other requests, the arm has written it by itself.
        let done_ns = disk.serve(again_ns, Operation::Write, 0, 4096) + 100 * MILLISECOND;
        assert_eq!(disk.serve(done_ns, Operation::Flush, 0, 0), done_ns + MODEL.flush_ns);
    }

    #[test]
    fn writes_wait_for_room_in_the_cache() {
        let mut disk = disk();
        let mut now_ns = 0;
        let mut waited = 0;
        for index in 0..2 * CACHE_BYTES / PIECE {
            let done_ns = disk.serve(now_ns, Operation::Write, (index * 7919 % 4096) << 24, PIECE);
            waited += u64::from(done_ns - now_ns > MILLISECOND);
            now_ns = done_ns;
        }
        assert!((500..=1024).contains(&waited), "{waited}");
        assert!(disk.waiting_bytes <= CACHE_BYTES);
        // The same place again and again takes no more room.
        let before = disk.waiting_bytes;
        let place = *disk.waiting.keys().next_back().unwrap();
        for _ in 0..100 {
            now_ns = disk.take(now_ns, place, place + PIECE);
        }
        assert_eq!(disk.waiting_bytes, before);
        assert_eq!(disk.waiting.iter().map(|(begin, end)| end - begin).sum::<u64>(), before);
    }

    #[test]
    fn readers_do_not_wait_for_all_that_is_to_be_written() {
        let mut disk = disk();
        let mut now_ns = 0;
        for index in 0..200 {
            now_ns = disk.serve(now_ns, Operation::Write, (index * 7919 % 200 + 1) << 30, 4096);
        }
        let done_ns = disk.serve(now_ns, Operation::Read, 0, 4096);
        assert!(done_ns - now_ns < 60 * MILLISECOND, "{}", done_ns - now_ns);
    }
}
