//! Who made what dirty: one *lane* for each dataset.
//!
//! # The idea
//! Dirty bytes are not equal. Those of a dataset with `compression=gzip-9` keep a group closing for a hundred
//! times as long as those of a dataset without compression, the longer the more other programs want the
//! processors. With one limit in bytes for all, whoever compresses hard fills it, and the others wait until
//! that is compressed. So each dataset has a lane with a *pace*: how many of its bytes are encoded
//! (compressed, checksummed) in a second, as its last syncs measured it. Its dirty bytes over its pace are
//! its *debt*: how long the processors will be busy with them.
//!
//! | limit | of | who waits for it |
//! |---|---|---|
//! | [`MOST_DEBT`] | the debt of all lanes, in both groups | changes of lanes that are slow |
//! | the pool's dirty bytes | bytes of all lanes | everyone, but a lane that has little |
//!
//! So a lane that is slow never has more than it can encode in a moment, and leaves the bytes to others; and
//! how long a group closes is bounded by the debt, whatever the processors do: it is also what a snapshot
//! waits for, or the first `fsync` of a dataset without a log.
//!
//! # Invariants
//! - A lane with nothing dirty may always begin one change, however slow it is.
//! - Changes of a lane go on in the order in which they came. Small ones may go before others and a little
//!   over the limits, but each group has few such bytes, so that the others come to their turn.
//! - Of the lanes whose changes wait for bytes, the one that has waited longest goes first.
//! - A lane that has little waits for nobody else's bytes, up to a quarter over the pool's limit.
//!
//! Plain state; the lock of [`super::Txgs`] guards it.

use std::collections::HashMap;
use std::time::Duration;

use crate::queue::Queue;

/// The most encoding that may be owed by all lanes together. A group is committed when it has a quarter of
/// it.
pub(super) const MOST_DEBT: Duration = Duration::from_secs(2);
/// From this pace on, in bytes per second, a lane is not slow: the devices are what it waits for.
const FAST_BYTES_PER_SECOND: u64 = 256 << 20;
/// A lane of which nothing was measured, but that compresses hard.
pub(crate) const GUESSED_BYTES_PER_SECOND: u64 = 32 << 20;
/// Changes up to this size may go before larger ones of their own lane.
const SMALL_BYTES: u64 = 256 << 10;
/// Of the pool's limit, one part in so many may be of small changes that went before others, in each group;
/// and so much may be over the limit by them.
const SMALL_SHARE: u64 = 8;
/// A lane has little up to one part in so many of the pool's limit.
const LITTLE_SHARE: u64 = 16;
/// Those that have little may be over the pool's limit by one part in so many, and small changes over the
/// limit of debts.
const OVER_SHARE: u64 = 4;

/// Of one dataset.
#[derive(Debug, Default)]
pub(super) struct Lane {
    /// Dirty bytes of the open group, and of the one being written.
    dirty: [u64; 2],
    /// Nanoseconds of encoding that these take.
    debt: [u64; 2],
    /// Bytes per second; 0 when it is not slow.
    pace: u64,
    /// Those who wait, first come first served.
    pub(super) queue: Queue,
    /// The first of them waits for bytes, not for the lane's own pace, and began to then.
    waits_since: Option<u64>,
    /// Bytes of small changes that went before others, in the open group.
    went_before: u64,
}

impl Lane {
    fn cost(&self, bytes: u64) -> u64 {
        if self.pace == 0 {
            return 0;
        }
        u64::try_from(u128::from(bytes) * 1_000_000_000 / u128::from(self.pace)).unwrap_or(u64::MAX)
    }

    fn dirty(&self) -> u64 {
        self.dirty[0].saturating_add(self.dirty[1])
    }

    fn is_worth_keeping(&self) -> bool {
        self.dirty() > 0 || self.pace > 0 || !self.queue.is_empty()
    }
}

/// A change that wants to begin.
#[derive(Debug, Clone, Copy)]
pub(super) struct Change {
    /// Whose.
    pub who: u64,
    /// What it makes dirty.
    pub bytes: u64,
    /// No other of its lane came before.
    pub is_first: bool,
    /// The pool may have so many bytes more.
    pub fits: bool,
    /// What all lanes have.
    pub dirty: u64,
    /// What the pool may have.
    pub most: u64,
    /// Somebody commits groups whenever a change waits, so that it may wait for its lane.
    pub is_committed: bool,
}

/// Whether it may.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It may.
    Go,
    /// Others of the lane are before it, or have as much as is encoded in a moment.
    WaitForLane,
    /// The pool has too many dirty bytes.
    WaitForBytes,
}

/// The lanes of a pool, by the numbers of their object sets.
#[derive(Debug, Default)]
pub(super) struct Lanes {
    lanes: HashMap<u64, Lane>,
    /// The sum of all lanes' debts.
    debt: [u64; 2],
    /// Numbers for those who wait for bytes, in the order in which they came.
    next_turn: u64,
}

impl Lanes {
    /// The lane of an object set.
    pub(super) fn of(&mut self, who: u64) -> &mut Lane {
        self.lanes.entry(who).or_default()
    }

    /// Nanoseconds of encoding that the open group owes.
    pub(super) fn open_debt(&self) -> u64 {
        self.debt[0]
    }

    /// Whether what is dirty takes a good part of [`MOST_DEBT`] to be encoded.
    pub(super) fn is_slow(&self) -> bool {
        self.debt[0].saturating_add(self.debt[1]) >= nanos(MOST_DEBT) / 4
    }

    /// Whether anyone waits.
    pub(super) fn has_waiting(&self) -> bool {
        self.lanes.values().any(|lane| !lane.queue.is_empty())
    }

    /// Has all look again.
    pub(super) fn wake_all(&self) {
        self.lanes.values().for_each(|lane| lane.queue.wake_all());
    }

    /// Whether a change may begin now. Where it may, [`Lanes::change`] counts it.
    pub(super) fn judge(&mut self, change: Change) -> Verdict {
        let Change { who, bytes, is_first, fits, dirty, most, is_committed } = change;
        let owed = self.debt[0].saturating_add(self.debt[1]);
        let limit = nanos(MOST_DEBT);
        let lane = self.lanes.entry(who).or_default();
        let (cost, own) = (if is_committed { lane.cost(bytes) } else { 0 }, lane.dirty());
        let is_within = |limit: u64| cost == 0 || own == 0 || owed.saturating_add(cost) <= limit;
        let is_over_by_little = |share: u64| dirty.saturating_add(bytes) <= most.saturating_add(most / share);
        let has_little = own.saturating_add(bytes) <= most / LITTLE_SHARE && is_over_by_little(OVER_SHARE);

        let since = lane.waits_since;
        let has_turn = is_first && is_within(limit);
        if has_turn && (has_little || fits && self.is_next(who, since)) {
            return Verdict::Go;
        }
        let lane = self.of(who);
        let before = lane.went_before.saturating_add(bytes);
        let may_go_before = bytes <= SMALL_BYTES
            && before <= most / SMALL_SHARE
            && lane.cost(before) <= limit / OVER_SHARE
            && is_within(limit + limit / OVER_SHARE);
        if may_go_before && (has_little || fits || is_over_by_little(SMALL_SHARE)) {
            lane.went_before = before;
            return Verdict::Go;
        }
        if !is_first {
            return Verdict::WaitForLane;
        }
        if !has_turn {
            lane.waits_since = None;
            return Verdict::WaitForLane;
        }
        if since.is_none() {
            self.next_turn += 1;
            self.of(who).waits_since = Some(self.next_turn);
        }
        Verdict::WaitForBytes
    }

    /// Whether no other lane has waited longer for bytes.
    fn is_next(&self, who: u64, since: Option<u64>) -> bool {
        let waits_longer =
            |lane: &Lane| lane.waits_since.is_some_and(|other| since.is_none_or(|since| other < since));
        !self.lanes.iter().any(|(id, lane)| *id != who && waits_longer(lane))
    }

    /// The first of a lane went on, or gave up.
    pub(super) fn first_left(&mut self, who: u64) {
        if let Some(lane) = self.lanes.get_mut(&who) {
            lane.waits_since = None;
        }
    }

    /// So many bytes more are dirty of the open group (0) or of the one being written (1), and so many less.
    pub(super) fn change(&mut self, who: u64, index: usize, more: u64, less: u64) {
        let lane = self.lanes.entry(who).or_default();
        lane.dirty[index] = lane.dirty[index].saturating_sub(less).saturating_add(more);
        self.recount(who);
    }

    /// A lane encodes so many bytes in a second; `None` when that is not to be limited.
    pub(super) fn set_pace(&mut self, who: u64, pace: Option<u64>) {
        let pace = pace.filter(|pace| *pace < FAST_BYTES_PER_SECOND).map_or(0, |pace| pace.max(1));
        if pace == 0 && !self.lanes.contains_key(&who) {
            return;
        }
        self.of(who).pace = pace;
        self.recount(who);
    }

    /// The pace of a lane that is slow.
    pub(super) fn pace(&self, who: u64) -> Option<u64> {
        self.lanes.get(&who).map(|lane| lane.pace).filter(|pace| *pace > 0)
    }

    fn recount(&mut self, who: u64) {
        let Some(lane) = self.lanes.get_mut(&who) else { return };
        for index in 0..2 {
            let now = lane.cost(lane.dirty[index]);
            self.debt[index] = self.debt[index].saturating_sub(lane.debt[index]).saturating_add(now);
            lane.debt[index] = now;
        }
    }

    /// The open group closes, and the next one opens.
    pub(super) fn close_group(&mut self) {
        for lane in self.lanes.values_mut() {
            lane.dirty = [0, lane.dirty[0]];
            lane.debt = [0, lane.debt[0]];
            lane.went_before = 0;
        }
        self.debt = [0, self.debt[0]];
    }

    /// The closed group is committed.
    pub(super) fn committed(&mut self) {
        self.lanes.retain(|_, lane| {
            (lane.dirty[1], lane.debt[1]) = (0, 0);
            lane.is_worth_keeping()
        });
        self.debt[1] = 0;
    }
}

/// A duration in the unit of debts.
pub(super) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    const MOST: u64 = 256 * MIB;

    /// The verdict about a large change that is the first of its lane.
    fn judge(lanes: &mut Lanes, who: u64, bytes: u64, fits: bool) -> Verdict {
        let dirty = if fits { 0 } else { 2 * MOST };
        lanes.judge(Change { who, bytes, is_first: true, fits, dirty, most: MOST, is_committed: true })
    }

    /// The same about a small one behind others.
    fn judge_small(lanes: &mut Lanes, who: u64, dirty: u64) -> Verdict {
        let fits = dirty < MOST;
        lanes.judge(Change { who, bytes: 4096, is_first: false, fits, dirty, most: MOST, is_committed: true })
    }

    #[test]
    fn a_slow_lane_has_no_more_than_it_encodes_in_the_limit_and_a_fast_one_does_not_care() {
        let mut lanes = Lanes::default();
        lanes.set_pace(7, Some(4 * MIB));
        for _ in 0..8 {
            assert_eq!(judge(&mut lanes, 7, MIB, true), Verdict::Go);
            lanes.change(7, 0, MIB, 0);
        }
        assert_eq!(judge(&mut lanes, 7, MIB, true), Verdict::WaitForLane);
        assert!(lanes.is_slow());
        assert_eq!(judge(&mut lanes, 8, 64 * MIB, true), Verdict::Go);
    }

    #[test]
    fn small_changes_go_before_large_ones_but_few_of_them() {
        let mut lanes = Lanes::default();
        lanes.set_pace(7, Some(4 * MIB));
        lanes.change(7, 0, 8 * MIB, 0);
        assert_eq!(judge(&mut lanes, 7, MIB, true), Verdict::WaitForLane);
        let mut went = 0;
        while judge_small(&mut lanes, 7, 8 * MIB) == Verdict::Go {
            lanes.change(7, 0, 4096, 0);
            went += 4096;
        }
        assert_eq!(went, 2 * MIB, "half a second of encoding");
        lanes.close_group();
        lanes.change(7, 1, 0, 8 * MIB);
        assert_eq!(judge_small(&mut lanes, 7, 2 * MIB), Verdict::Go, "each group has some");
        // Where bytes are what is scarce.
        lanes.change(8, 0, MOST, 0);
        assert_eq!(judge_small(&mut lanes, 8, MOST), Verdict::Go);
        assert_eq!(judge_small(&mut lanes, 8, MOST + MOST / SMALL_SHARE), Verdict::WaitForLane);
    }

    #[test]
    fn what_is_written_and_a_better_pace_make_debts_smaller() {
        let mut lanes = Lanes::default();
        lanes.set_pace(7, Some(MIB));
        lanes.change(7, 0, 2 * MIB, 0);
        assert_eq!(lanes.open_debt(), 2_000_000_000);
        lanes.close_group();
        assert_eq!(lanes.open_debt(), 0);
        assert_eq!(judge(&mut lanes, 7, MIB, true), Verdict::WaitForLane);
        lanes.change(7, 1, 0, MIB);
        assert_eq!(judge(&mut lanes, 7, MIB, true), Verdict::Go);
        lanes.set_pace(7, Some(MIB / 4));
        assert_eq!(judge(&mut lanes, 7, MIB, true), Verdict::WaitForLane);
        lanes.set_pace(7, Some(FAST_BYTES_PER_SECOND));
        assert_eq!(judge(&mut lanes, 7, MOST, true), Verdict::Go);
        lanes.committed();
        assert!(lanes.lanes.is_empty());
    }

    #[test]
    fn a_lane_with_nothing_dirty_may_begin_however_slow_it_is() {
        let mut lanes = Lanes::default();
        lanes.set_pace(7, Some(1));
        assert_eq!(judge(&mut lanes, 7, MIB, true), Verdict::Go);
        lanes.change(7, 0, MIB, 0);
        lanes.set_pace(8, Some(1));
        assert_eq!(judge(&mut lanes, 8, MIB, true), Verdict::Go);
    }

    #[test]
    fn who_waits_for_bytes_longest_goes_first_and_who_waits_for_its_lane_holds_up_nobody() {
        let mut lanes = Lanes::default();
        lanes.set_pace(7, Some(1));
        for who in 7..=10 {
            lanes.change(who, 0, MOST / LITTLE_SHARE, 0);
        }
        assert_eq!(judge(&mut lanes, 7, MIB, false), Verdict::WaitForLane);
        assert_eq!(judge(&mut lanes, 8, MIB, false), Verdict::WaitForBytes);
        assert_eq!(judge(&mut lanes, 9, MIB, false), Verdict::WaitForBytes);
        assert_eq!(judge(&mut lanes, 9, MIB, true), Verdict::WaitForBytes);
        assert_eq!(judge(&mut lanes, 10, MIB, true), Verdict::WaitForBytes);
        assert_eq!(judge(&mut lanes, 8, MIB, true), Verdict::Go);
        lanes.first_left(8);
        assert_eq!(judge(&mut lanes, 9, MIB, true), Verdict::Go);
        // One that has little does not wait for them.
        let little = Change {
            who: 11,
            bytes: MIB,
            is_first: true,
            fits: false,
            dirty: MOST,
            most: MOST,
            is_committed: true,
        };
        assert_eq!(lanes.judge(little), Verdict::Go);
    }
}
