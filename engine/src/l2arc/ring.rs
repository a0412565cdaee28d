//! Where on a cache device the next blocks go, what they overwrite, and which log blocks are still there.
//!
//! # The idea
//! The device is a ring between its header and its rear labels. The *hand* is where the next block goes. The
//! *evict* address is ahead of it: what lies between them is given up, so that it can be written. The first
//! time through the ring there is nothing to give up. A block never wraps around the end: when the next feed
//! might not fit before the end, the rest is given up and the hand goes back to the start.
//!
//! A log block counts as long as neither it nor any block that it describes was given up. The same rule, with
//! the numbers from the header, decides after a restart; there the hand is the end of the newest log block.
//!
//! Only plain numbers are here; no I/O.
//!
//! Source of the facts: OpenZFS 2.4 `arc.c` (`l2arc_evict`, `l2arc_log_blkptr_valid`,
//! `l2arc_range_check_overlap`, `l2arc_dev_hdr_update`, `l2arc_dev_hdr_read`).

use std::collections::VecDeque;
use std::ops::Range;

use ondisk::Guid;
use ondisk::l2arc::{
    DeviceHeader, FLAG_FIRST_SWEEP, HEADER_BYTES, LOG_BLOCK_BYTES, LogEntry, LogPointer, MAX_LOG_ENTRIES,
    VERSION,
};

use crate::vdev::LABEL_START_BYTES;

/// The largest block is 1 << 24 bytes: a device holds at least the blocks of one log block.
const MAX_BLOCK_SHIFT: u32 = 24;

/// The ring of a device.
#[derive(Debug, Clone)]
pub(crate) struct Ring {
    /// First address.
    pub start: u64,
    /// End.
    pub end: u64,
    /// The address of the next block.
    pub hand: u64,
    /// What is between the hand and this address is given up.
    pub evict: u64,
    /// Nothing was overwritten yet.
    pub first_sweep: bool,
    /// Entries of each log block; 0: there are none.
    pub log_entries: usize,
    /// Entries of the next log block.
    pub open: Vec<LogEntry>,
    /// Bytes of the blocks of these entries.
    pub open_bytes: u64,
    /// The log blocks that count, the newest first.
    pub logs: VecDeque<LogPointer>,
    /// Bytes of these.
    pub log_bytes: u64,
    /// When the whole device was trimmed, and how far.
    pub trimmed: (u64, u64),
}

/// What a part of the ring held is given up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct GivenUp {
    /// Blocks that begin here are gone.
    pub blocks: Range<u64>,
    /// The part of it that was not given up before.
    pub fresh: Range<u64>,
}

/// The state of a ring before a write.
#[derive(Debug)]
pub(crate) struct Saved {
    hand: u64,
    open: Vec<LogEntry>,
    open_bytes: u64,
    logs: usize,
    log_bytes: u64,
}

/// Bytes of the sector that holds the header.
pub(crate) fn header_bytes(ashift: u32) -> usize {
    HEADER_BYTES.max(1 << ashift.min(16))
}

impl Ring {
    /// The ring of a device with `usable` bytes between its labels; `None` when it is too small. Log blocks
    /// are left out on devices that end before `min_bytes`.
    pub(crate) fn new(usable: u64, ashift: u32, min_bytes: u64) -> Option<Self> {
        let start = LABEL_START_BYTES + header_bytes(ashift) as u64;
        let end = (LABEL_START_BYTES + usable) >> ashift << ashift;
        // A feed is a quarter of the ring at most, and has at least a log block and a block.
        if end < start + (8 << MAX_BLOCK_SHIFT) / 16 {
            return None;
        }
        let log_entries = match end < min_bytes {
            true => 0,
            false => ((end - start) >> MAX_BLOCK_SHIFT).min(MAX_LOG_ENTRIES as u64) as usize,
        };
        Some(Self {
            start,
            end,
            hand: start,
            evict: start,
            first_sweep: true,
            log_entries,
            open: Vec::new(),
            open_bytes: 0,
            logs: VecDeque::new(),
            log_bytes: 0,
            trimmed: (0, 0),
        })
    }

    /// Goes on where the header says. False when the header is of another ring.
    pub(crate) fn resume(&mut self, header: &DeviceHeader, pool: Guid, vdev: Guid) -> bool {
        let newest = header.newest[0];
        let is_same = header.version == VERSION
            && header.pool == pool
            && header.vdev == vdev
            && header.log_entries == self.log_entries as u64
            && header.end == self.end
            && is_between(self.start, self.end, header.evict);
        // No device of this size has a hand beyond its end.
        let hand = match newest.is_empty() {
            true => Some(self.start),
            false => newest.address.checked_add(newest.asize()),
        };
        let Some(hand) = hand.filter(|hand| is_same && *hand <= self.end) else { return false };
        self.hand = hand.max(self.start);
        self.evict = header.evict.max(self.start);
        self.first_sweep = header.flags & FLAG_FIRST_SWEEP != 0;
        self.trimmed = (header.trim_time, header.trim_state);
        if !self.first_sweep && self.hand > self.evict {
            // The hand went back to the start, and no log block was written since.
            self.hand = self.start;
        }
        true
    }

    /// The header of the ring as it is now.
    pub(crate) fn header(&self, pool: Guid, vdev: Guid) -> DeviceHeader {
        let newest = |index: usize| self.logs.get(index).copied().unwrap_or_default();
        DeviceHeader {
            version: VERSION,
            pool,
            vdev,
            log_entries: self.log_entries as u64,
            evict: self.evict,
            flags: if self.first_sweep { FLAG_FIRST_SWEEP } else { 0 },
            start: self.start,
            end: self.end,
            newest: [newest(0), newest(1)],
            log_bytes: self.log_bytes,
            log_blocks: self.logs.len() as u64,
            trim_time: self.trimmed.0,
            trim_state: self.trimmed.1,
        }
    }

    /// Gives up what lies within `distance` bytes ahead of the hand, a quarter of the ring at most. Goes back
    /// to the start when there is no such room before the end.
    pub(crate) fn make_room(&mut self, distance: u64) -> Vec<GivenUp> {
        let distance = distance.min((self.end - self.start) / 4);
        let mut given_up = Vec::new();
        // At most twice: the second time the hand is at the start.
        for _ in 0..2 {
            let wraps = self.hand + distance > self.end;
            let target = if wraps { self.end } else { self.hand + distance };
            if !self.first_sweep {
                let fresh = self.evict..target.max(self.evict);
                self.evict = fresh.end;
                given_up.push(GivenUp { blocks: self.hand..self.evict, fresh });
                self.drop_logs();
            }
            if !wraps {
                break;
            }
            (self.hand, self.evict, self.first_sweep) = (self.start, self.start, false);
        }
        given_up
    }

    fn drop_logs(&mut self) {
        while let Some(oldest) = self.logs.back().copied().filter(|oldest| !self.has(oldest)) {
            self.log_bytes -= oldest.asize();
            self.logs.pop_back();
        }
    }

    /// Whether a log block, and all that it describes, is there.
    pub(crate) fn has(&self, log: &LogPointer) -> bool {
        let (start, asize) = (log.payload_start, log.asize());
        let Some(end) = log.address.checked_add(asize - 1) else { return false };
        if asize > LOG_BLOCK_BYTES as u64 || start < self.start || start >= self.end || end >= self.end {
            return false;
        }
        if self.first_sweep {
            return end < self.hand;
        }
        !(is_between(start, end, self.hand)
            || is_between(start, end, self.evict)
            || is_between(self.hand, self.evict, start)
            || is_between(self.hand, self.evict, end))
    }

    /// Notes a block that goes to the hand. True when a log block must follow.
    pub(crate) fn note(&mut self, entry: LogEntry, asize: u64) -> bool {
        self.hand += asize;
        if self.log_entries == 0 {
            return false;
        }
        self.open.push(entry);
        self.open_bytes += asize;
        self.open.len() >= self.log_entries
    }

    /// Notes the log block of the open entries, which goes to the hand.
    pub(crate) fn note_log(&mut self, log: LogPointer) {
        self.hand += log.asize();
        self.log_bytes += log.asize();
        self.logs.push_front(log);
        self.open.clear();
        self.open_bytes = 0;
    }

    /// What a failed write has to restore.
    pub(crate) fn save(&self) -> Saved {
        let (hand, logs, log_bytes) = (self.hand, self.logs.len(), self.log_bytes);
        Saved { hand, logs, log_bytes, open: self.open.clone(), open_bytes: self.open_bytes }
    }

    /// Forgets what was noted since. Nothing was given up meanwhile.
    pub(crate) fn restore(&mut self, saved: Saved) {
        self.logs.drain(..self.logs.len().saturating_sub(saved.logs));
        (self.hand, self.log_bytes) = (saved.hand, saved.log_bytes);
        (self.open, self.open_bytes) = (saved.open, saved.open_bytes);
    }

    /// The address and the bytes of the blocks that the next log block describes.
    pub(crate) fn payload(&self) -> (u64, u64) {
        (self.open.first().map_or(0, |entry| entry.address), self.open_bytes)
    }
}

/// Whether an address lies in a part of the ring, which may go on at the start.
pub(crate) fn is_between(from: u64, to: u64, address: u64) -> bool {
    match from.cmp(&to) {
        std::cmp::Ordering::Less => from <= address && address <= to,
        std::cmp::Ordering::Greater => address <= to || from <= address,
        std::cmp::Ordering::Equal => address == to,
    }
}

#[cfg(test)]
mod tests {
    use ondisk::Txg;
    use ondisk::blkptr::CompressType;

    use super::*;

    fn ring() -> Ring {
        Ring::new(1 << 30, 12, 1 << 20).unwrap()
    }

    fn fill(ring: &mut Ring, blocks: u64, asize: u64) {
        for _ in 0..blocks {
            let entry = LogEntry { birth: Txg(1), address: ring.hand, ..Default::default() };
            if ring.note(entry, asize) {
                let log = LogPointer::new(ring.hand, ring.payload(), 4096, CompressType::Lz4, [0; 4]);
                ring.note_log(log);
            }
        }
    }

    #[test]
    fn the_first_sweep_gives_nothing_up_and_later_ones_as_much_as_they_write() {
        let mut ring = ring();
        assert_eq!(ring.log_entries, 63);
        let mut sweeps = 0;
        for _ in 0..200 {
            let room = ring.make_room(32 << 20);
            assert!(ring.hand + (32 << 20) <= ring.end);
            assert!(ring.first_sweep == room.is_empty() && (ring.first_sweep || ring.hand <= ring.evict));
            sweeps += usize::from(ring.hand == ring.start);
            fill(&mut ring, 200, 128 << 10);
            assert!(ring.logs.iter().all(|log| ring.has(log)), "what does not count any more is forgotten");
        }
        assert!(sweeps > 4, "{sweeps}");
        assert!(ring.logs.len() > 80, "{}", ring.logs.len());
        let sum: u64 = ring.logs.iter().map(LogPointer::asize).sum();
        assert_eq!(sum, ring.log_bytes);
    }

    #[test]
    fn a_header_says_where_to_go_on() {
        let mut old = ring();
        old.make_room(32 << 20);
        fill(&mut old, 130, 128 << 10);
        let header = old.header(Guid(1), Guid(2));
        let mut new = ring();
        assert!(new.resume(&header, Guid(1), Guid(2)));
        assert_eq!(new.hand, old.logs[0].address + old.logs[0].asize());
        for (pool, vdev) in [(3, 2), (1, 3)] {
            assert!(!ring().resume(&header, Guid(pool), Guid(vdev)), "of another");
        }
        let larger = Ring::new(2 << 30, 12, 1 << 20).unwrap();
        assert!(!larger.clone().resume(&header, Guid(1), Guid(2)), "of another size");
        let mut beyond = header;
        beyond.newest[0].address = u64::MAX - 100;
        assert!(!ring().resume(&beyond, Guid(1), Guid(2)));
    }

    #[test]
    fn small_devices_have_no_log_blocks_and_tiny_ones_no_ring() {
        assert_eq!(Ring::new(64 << 20, 9, 1 << 30).unwrap().log_entries, 0);
        assert!(Ring::new(1 << 20, 9, 1 << 30).is_none());
    }
}
