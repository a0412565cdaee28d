//! The contents of the log space maps, and when metaslabs are flushed.
//!
//! # The idea
//! A group that allocates and frees in many metaslabs would have to write as many space maps. With the
//! feature `log_spacemap` it writes one: the *log* of the group, with the changes of all metaslabs of the
//! pool. Changes that a metaslab's own map does not contain yet are also kept in memory. They are written to
//! the map when the metaslab is *flushed*, the changes of many groups at once, without those that cancelled
//! each other. A log is freed when no metaslab needs it any more.
//!
//! For each metaslab that was ever logged, there is the group *since* which its changes are in logs only; its
//! own map is the state before that group. A metaslab is *dirty* when it was changed since. The log of every
//! such group exists, because OpenZFS looks for it.
//!
//! # Which metaslabs are flushed
//! The metaslabs that were flushed longest ago are flushed first. Their number is the smallest that keeps the
//! logs below the limits (blocks, groups), if blocks keep coming as in the last groups: none while there is
//! time to flush them one in each group later. So few metaslabs are flushed when there is little to do, and
//! many are flushed evenly. Clean metaslabs on the way only get the new group as their *since*. An export
//! flushes all.
//!
//! Source of the facts: OpenZFS 2.3 `spa_log_spacemap.c`. Plain data without a lock; the allocator's guards
//! it.

use std::collections::{BTreeMap, BTreeSet};

use ondisk::{ObjectId, Txg, VdevId};

use super::allocator::MetaslabId;

/// The limit on the blocks of all logs, for each dirty metaslab.
const BLOCKS_EACH: u64 = 4;
/// Limits on the blocks of all logs, whatever the number of metaslabs.
const MIN_BLOCKS: u64 = 1000;
const MAX_BLOCKS: u64 = 1 << 17;
/// The most logs: when a pool that was not exported is opened, all of them are read.
const MAX_LOGS: u64 = 256;
/// The number of recent groups whose blocks predict those of the next groups.
const RECENT: usize = 5;
/// The number of unflushed runs in memory above which metaslabs are flushed however small the logs are: some
/// 64 MiB.
const MAX_RUNS: usize = 1 << 20;

/// One log space map.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Log {
    /// Its object.
    pub object: ObjectId,
    /// The bytes of it that are valid.
    pub length_bytes: u64,
    /// Bytes in each of its blocks.
    pub block_bytes: u64,
    /// Allocated bytes less freed bytes.
    pub allocated_bytes: i64,
    /// Whether its header has a histogram, and so counts as a use of that feature.
    pub has_histogram: bool,
}

impl Log {
    fn blocks(&self) -> u64 {
        self.length_bytes.div_ceil(self.block_bytes.max(1))
    }
}

/// How far a metaslab is flushed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct State {
    since: Txg,
    dirty: bool,
}

/// The log space maps of a pool.
#[derive(Debug, Default)]
pub struct Logs {
    /// The ZAP that lists them.
    pub zap: Option<ObjectId>,
    by_txg: BTreeMap<Txg, Log>,
    /// For each vdev the object that records how far its metaslabs are flushed.
    arrays: BTreeMap<VdevId, ObjectId>,
    metaslabs: BTreeMap<MetaslabId, State>,
    /// The same by group, oldest first.
    by_since: BTreeSet<(Txg, MetaslabId)>,
    /// The number of dirty metaslabs by group.
    dirty: BTreeMap<Txg, u64>,
}

impl Logs {
    /// The log of a group.
    pub fn log(&self, txg: Txg) -> Option<Log> {
        self.by_txg.get(&txg).copied()
    }

    /// Notes that there is a log, or that it has become longer.
    pub fn set_log(&mut self, txg: Txg, log: Log) {
        self.by_txg.insert(txg, log);
    }

    /// The object that records how far the metaslabs of a vdev are flushed.
    pub fn array(&self, vdev: VdevId) -> Option<ObjectId> {
        self.arrays.get(&vdev).copied()
    }

    /// Notes that there is such an object.
    pub fn set_array(&mut self, vdev: VdevId, array: ObjectId) {
        self.arrays.insert(vdev, array);
    }

    /// Forgets a vdev. Returns the object that recorded how far its metaslabs are flushed.
    pub fn forget(&mut self, vdev: VdevId) -> Option<ObjectId> {
        let gone: Vec<MetaslabId> = self.metaslabs.keys().filter(|id| id.vdev == vdev).copied().collect();
        for id in gone {
            self.set(id, Txg::NONE, false);
            self.metaslabs.remove(&id);
            self.by_since.remove(&(Txg::NONE, id));
        }
        self.arrays.remove(&vdev)
    }

    /// Sets how far a metaslab is flushed.
    pub fn set(&mut self, id: MetaslabId, since: Txg, dirty: bool) {
        if let Some(before) = self.metaslabs.insert(id, State { since, dirty }) {
            self.by_since.remove(&(before.since, id));
            if before.dirty
                && let Some(count) = self.dirty.get_mut(&before.since)
            {
                *count -= 1;
                if *count == 0 {
                    self.dirty.remove(&before.since);
                }
            }
        }
        self.by_since.insert((since, id));
        if dirty {
            *self.dirty.entry(since).or_default() += 1;
        }
    }

    /// Notes that group `txg` changes a metaslab. Returns true if its changes since this group count from now
    /// on.
    pub fn change(&mut self, id: MetaslabId, txg: Txg) -> bool {
        match self.metaslabs.get(&id) {
            Some(State { dirty: true, .. }) => false,
            Some(State { since, .. }) if *since == txg => {
                self.set(id, txg, true);
                false
            }
            _ => {
                self.set(id, txg, true);
                true
            }
        }
    }

    /// Whether any metaslab is dirty.
    pub fn has_dirty(&self) -> bool {
        !self.dirty.is_empty()
    }

    /// Takes out the logs that no metaslab needs, with their groups.
    pub fn take_old(&mut self) -> Vec<(Txg, Log)> {
        let Some(&(oldest, _)) = self.by_since.first() else { return Vec::new() };
        let needed = self.by_txg.split_off(&oldest);
        std::mem::replace(&mut self.by_txg, needed).into_iter().collect()
    }

    /// The metaslabs that the sync of `txg` moves on, and whether each is dirty. `runs_of` returns the number
    /// of a metaslab's unflushed runs.
    pub fn plan(
        &self,
        txg: Txg,
        all: bool,
        mut runs: usize,
        runs_of: impl Fn(MetaslabId) -> usize,
    ) -> Vec<(MetaslabId, bool)> {
        let mut wanted = if all { u64::MAX } else { self.flushes(txg) };
        let mut plan = Vec::new();
        for &(since, id) in &self.by_since {
            if since >= txg || wanted == 0 && runs <= MAX_RUNS {
                break;
            }
            let dirty = self.metaslabs.get(&id).is_some_and(|state| state.dirty);
            if dirty {
                wanted = wanted.saturating_sub(1);
                runs = runs.saturating_sub(runs_of(id));
            }
            plan.push((id, dirty));
        }
        plan
    }

    /// The number of dirty metaslabs to flush in the group `txg`.
    fn flushes(&self, txg: Txg) -> u64 {
        let logs = || self.by_txg.iter().filter(|(log_txg, _)| **log_txg != txg).map(|(_, log)| log);
        let (count, blocks) = logs().fold((0, 0), |(count, blocks), log| (count + 1, blocks + log.blocks()));
        let dirty: u64 = self.dirty.values().sum();
        let limit = (dirty * BLOCKS_EACH).clamp(MIN_BLOCKS, MAX_BLOCKS);
        let recent: Vec<u64> = logs().rev().take(RECENT).map(Log::blocks).collect();
        let incoming = recent.iter().sum::<u64>().div_ceil(recent.len().max(1) as u64).max(1);
        // At this rate the limits are exceeded after this many groups; from then on each group must free as
        // many blocks as it adds. The oldest go first.
        let mut room_blocks = limit.saturating_sub(blocks);
        let mut room_logs = MAX_LOGS.saturating_sub(count);
        let (mut groups, mut flushed, mut most) = (1, 0, 0);
        for (log_txg, log) in &self.by_txg {
            let passing = (room_blocks / incoming).min(room_logs);
            groups += passing;
            room_blocks -= passing * incoming;
            room_logs -= passing;
            flushed += self.dirty.get(log_txg).copied().unwrap_or(0);
            most = most.max(flushed / groups);
            room_blocks += log.blocks();
            room_logs += 1;
        }
        most
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(place: usize) -> MetaslabId {
        MetaslabId { vdev: VdevId(0), place }
    }

    fn log(blocks: u64) -> Log {
        Log {
            object: ObjectId(1),
            length_bytes: blocks << 17,
            block_bytes: 1 << 17,
            allocated_bytes: 0,
            has_histogram: true,
        }
    }

    /// Syncs groups that each change some metaslabs and write a log; returns the largest number of logs and
    /// of blocks, and of flushes in a group.
    fn run(groups: u64, metaslabs: usize, changed: usize, blocks: u64) -> (usize, u64, usize) {
        let mut logs = Logs::default();
        let mut most = (0, 0, 0);
        for txg in 10..10 + groups {
            let plan = logs.plan(Txg(txg), false, 0, |_| 0);
            most.2 = most.2.max(plan.iter().filter(|(_, dirty)| *dirty).count());
            for (id, _) in plan {
                logs.set(id, Txg(txg), false);
            }
            logs.set_log(Txg(txg), log(blocks));
            for index in 0..changed {
                logs.change(id((txg as usize * 31 + index * 7) % metaslabs), Txg(txg));
            }
            logs.take_old();
            for &(since, id) in &logs.by_since {
                assert!(logs.by_txg.contains_key(&since), "{id:?} needs the log of {since}");
            }
            let all: u64 = logs.by_txg.values().map(Log::blocks).sum();
            most = (most.0.max(logs.by_txg.len()), most.1.max(all), most.2);
        }
        most
    }

    #[test]
    fn logs_stay_within_limits_whatever_is_changed() {
        for (metaslabs, changed, blocks) in
            [(16, 1, 1), (200, 200, 1), (200, 3, 1), (2000, 100, 40), (5, 5, 300)]
        {
            let (logs, all, _) = run(1500, metaslabs, changed, blocks);
            let limit = (metaslabs as u64 * BLOCKS_EACH).clamp(MIN_BLOCKS, MAX_BLOCKS);
            assert!(logs as u64 <= MAX_LOGS + 1, "{metaslabs} {changed} {blocks}: {logs} logs");
            assert!(all <= limit + 2 * blocks, "{metaslabs} {changed} {blocks}: {all} blocks");
        }
    }

    #[test]
    fn flushes_are_spread_over_groups() {
        let (.., flushes) = run(1000, 200, 200, 1);
        assert!(flushes <= 8, "{flushes}");
    }

    #[test]
    fn nothing_is_flushed_while_there_is_time_to_do_it_later() {
        let (.., flushes) = run(30, 200, 50, 1);
        assert_eq!(flushes, 0);
        let (.., flushes) = run(200, 6, 3, 1);
        assert_eq!(flushes, 0);
    }

    #[test]
    fn all_are_flushed_when_that_is_asked_for_or_memory_runs_out() {
        let mut logs = Logs::default();
        logs.set(id(1), Txg(5), true);
        logs.set(id(2), Txg(4), false);
        logs.set(id(3), Txg(6), true);
        assert_eq!(logs.plan(Txg(7), true, 0, |_| 0), [(id(2), false), (id(1), true), (id(3), true)]);
        assert_eq!(logs.plan(Txg(7), false, 0, |_| 0), []);
        let crowded = logs.plan(Txg(7), false, MAX_RUNS + 1, |_| 10);
        assert_eq!(crowded, [(id(2), false), (id(1), true)]);
    }

    #[test]
    fn a_clean_metaslab_that_is_changed_needs_no_older_logs() {
        let mut logs = Logs::default();
        for txg in 4..8 {
            logs.set_log(Txg(txg), log(1));
        }
        assert!(logs.change(id(1), Txg(4)));
        logs.set(id(1), Txg(5), false);
        assert!(logs.change(id(1), Txg(7)));
        assert!(!logs.change(id(1), Txg(8)));
        let gone: Vec<Txg> = logs.take_old().into_iter().map(|(txg, _)| txg).collect();
        assert_eq!(gone, [Txg(4), Txg(5), Txg(6)]);
    }
}
