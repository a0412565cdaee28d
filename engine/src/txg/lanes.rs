//! Dirty bytes by dataset: one *lane* for each dataset.
//!
//! # The idea
//! Dirty bytes are not equal. Those of a dataset with `compression=gzip-9` keep a group closing a hundred
//! times as long as those of a dataset without compression, and even longer when other programs use the
//! processors. With one limit in bytes for all, a dataset with heavy compression would fill it, and the
//! others would wait until its data are compressed. So each dataset has a lane with a *pace*: the number of
//! its bytes that are encoded (compressed, checksummed) in a second, as measured in its last syncs. Its dirty
//! bytes divided by its pace are its *debt*: how long the processors will be busy with them.
//!
//! | limit | of | changes that wait for it |
//! |---|---|---|
//! | [`MOST_DEBT`] | the debt of all lanes, in both groups | changes of lanes that are slow |
//! | the pool's dirty bytes | bytes of all lanes | all changes, except those of a lane with little |
//!
//! So a slow lane never has more dirty data than can be encoded in a moment, and leaves the bytes to others.
//! The time for closing a group is bounded by the debt, whatever the processors do. A snapshot waits for that
//! time, and so does the first `fsync` of a dataset without a log.
//!
//! # Invariants
//! - A lane without dirty data may always begin one change, however slow it is.
//! - Changes of a lane begin in the order of their arrival. Small ones may go before others and a little over
//!   the limits, but each group has few such bytes, so that the others get their turn.
//! - Of the lanes whose changes wait for bytes, the one that has waited longest goes first.
//! - A lane with few dirty bytes does not wait for the bytes of others, up to a quarter over the pool's
//!   limit. All bytes together, these too, stay below what the cache lends.
//!
//! Plain state; the lock of [`super::Txgs`] guards it.

use std::time::Duration;

use hashbrown::HashMap;

use crate::queue::Queue;

/// The largest debt of all lanes together. A group is committed when it has a quarter of it.
pub(super) const MOST_DEBT: Duration = Duration::from_secs(2);
/// From this pace on, in bytes per second, a lane is not slow: it waits for the devices.
const FAST_BYTES_PER_SECOND: u64 = 256 << 20;
/// The pace of a lane without measurements and with heavy compression.
pub(crate) const GUESSED_BYTES_PER_SECOND: u64 = 32 << 20;
/// Changes up to this size may go before larger ones of their own lane.
const SMALL_BYTES: u64 = 256 << 10;
/// In each group, small changes that went before others may have one part in this many of the pool's limit;
/// and they may exceed the limit by as much.
const SMALL_SHARE: u64 = 8;
/// A lane has little up to one part in this many of the pool's limit.
const LITTLE_SHARE: u64 = 16;
/// Lanes that have little may exceed the pool's limit by one part in this many, and small changes may exceed
/// the limit of debts.
pub(super) const OVER_SHARE: u64 = 4;

/// The lane of one dataset.
#[derive(Debug, Default)]
pub(super) struct Lane {
    /// The dirty bytes of the open group, and of the one being written.
    dirty: [u64; 2],
    /// The nanoseconds of encoding that these take.
    debt: [u64; 2],
    /// Bytes per second; 0 when it is not slow.
    pace: u64,
    /// The waiting changes, first come first served.
    pub(super) queue: Queue,
    /// Set when the first of them waits for bytes, not for the lane's own pace: the turn in which it began to
    /// wait.
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
    /// Its lane.
    pub who: u64,
    /// The bytes that it makes dirty.
    pub bytes: u64,
    /// No earlier change of its lane waits.
    pub is_first: bool,
    /// The pool may have this many more dirty bytes.
    pub fits: bool,
    /// The cache lends as many, also if they exceed the limit of the pool.
    pub fits_over: bool,
    /// The dirty bytes of all lanes.
    pub dirty: u64,
    /// The limit of the pool.
    pub most: u64,
    /// A thread commits groups whenever a change waits, so that the change may wait for its lane.
    pub is_committed: bool,
}

/// Whether a change may begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It may.
    Go,
    /// Other changes of the lane are before it, or the lane has as much dirty data as is encoded in a moment.
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
    /// The next number for changes that wait for bytes, in the order of their arrival.
    next_turn: u64,
}

impl Lanes {
    /// The lane of an object set.
    pub(super) fn of(&mut self, who: u64) -> &mut Lane {
        self.lanes.entry(who).or_default()
    }

    /// The nanoseconds of encoding that the open group owes.
    pub(super) fn open_debt(&self) -> u64 {
        self.debt[0]
    }

    /// Whether encoding the dirty data takes a good part of [`MOST_DEBT`].
    pub(super) fn is_slow(&self) -> bool {
        self.debt[0].saturating_add(self.debt[1]) >= nanos(MOST_DEBT) / 4
    }

    /// Whether any change waits.
    pub(super) fn has_waiting(&self) -> bool {
        self.lanes.values().any(|lane| !lane.queue.is_empty())
    }

    /// Wakes all waiting changes, which look again.
    pub(super) fn wake_all(&self) {
        self.lanes.values().for_each(|lane| lane.queue.wake_all());
    }

    /// Whether a change may begin now. If so, [`Lanes::change`] counts it.
    pub(super) fn judge(&mut self, change: Change) -> Verdict {
        let Change { who, bytes, is_first, fits, fits_over, dirty, most, is_committed } = change;
        let owed = self.debt[0].saturating_add(self.debt[1]);
        let limit = nanos(MOST_DEBT);
        let lane = self.lanes.entry(who).or_default();
        let (cost, own) = (if is_committed { lane.cost(bytes) } else { 0 }, lane.dirty());
        let is_within = |limit: u64| cost == 0 || own == 0 || owed.saturating_add(cost) <= limit;
        let is_over_by_little =
            |share: u64| fits_over && dirty.saturating_add(bytes) <= most.saturating_add(most / share);
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

    /// The first change of a lane began, or gave up.
    pub(super) fn first_left(&mut self, who: u64) {
        if let Some(lane) = self.lanes.get_mut(&who) {
            lane.waits_since = None;
        }
    }

    /// Adds and subtracts dirty bytes of the open group (0) or of the one being written (1).
    pub(super) fn change(&mut self, who: u64, index: usize, more: u64, less: u64) {
        let lane = self.lanes.entry(who).or_default();
        lane.dirty[index] = lane.dirty[index].saturating_sub(less).saturating_add(more);
        self.recount(who);
    }

    /// Sets the bytes that a lane encodes in a second; `None` means no limit.
    pub(super) fn set_pace(&mut self, who: u64, pace: Option<u64>) {
        let pace = pace.filter(|pace| *pace < FAST_BYTES_PER_SECOND).map_or(0, |pace| pace.max(1));
        if pace == 0 && !self.lanes.contains_key(&who) {
            return;
        }
        self.of(who).pace = pace;
        self.recount(who);
    }

    /// The pace of a lane, if it is slow.
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
        lanes.judge(Change {
            who,
            bytes,
            is_first: true,
            fits,
            fits_over: true,
            dirty,
            most: MOST,
            is_committed: true,
        })
    }

    /// The same about a small change behind others.
    fn judge_small(lanes: &mut Lanes, who: u64, dirty: u64) -> Verdict {
        let fits = dirty < MOST;
        lanes.judge(Change {
            who,
            bytes: 4096,
            is_first: false,
            fits,
            fits_over: true,
            dirty,
            most: MOST,
            is_committed: true,
        })
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
        // When bytes are scarce.
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
        // A lane that has little does not wait for them.
        let little = Change {
            who: 11,
            bytes: MIB,
            is_first: true,
            fits: false,
            fits_over: true,
            dirty: MOST,
            most: MOST,
            is_committed: true,
        };
        assert_eq!(lanes.judge(little), Verdict::Go);
        let not_lent = Change { fits_over: false, ..little };
        assert_ne!(lanes.judge(not_lent), Verdict::Go, "nor is it more than the cache lends");
    }
}
