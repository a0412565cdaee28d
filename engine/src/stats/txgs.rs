//! `txgs`: the last transaction groups of a pool, and how long each was in which state.
//!
//! A group is open (O), quiesces (Q) until the operations that hold it are done, waits (W) for its sync, is
//! written (S), and is committed (C). The last `zfs_txg_history` groups are remembered. The times are how
//! long each state lasted, or lasts.
//!
//! | lock | guards | order |
//! |---|---|---|
//! | `records` | the last groups; taken a few times for each group | taken alone |

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant, SystemTime};

use device::IgnorePoison;
use ondisk::Txg;

use crate::tunables;

/// The state of a transaction group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum TxgState {
    /// Changes begin in it.
    Open,
    /// It is closed, and changes in it go on.
    Quiescing,
    /// All its changes are made.
    WaitingForSync,
    /// It is written.
    Syncing,
    /// It is on disk.
    Committed,
}

impl TxgState {
    /// OpenZFS's letter for it.
    pub fn letter(self) -> char {
        match self {
            Self::Open => 'O',
            Self::Quiescing => 'Q',
            Self::WaitingForSync => 'W',
            Self::Syncing => 'S',
            Self::Committed => 'C',
        }
    }
}

/// What the vdevs of a pool transferred until some moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Io {
    /// Bytes that were read.
    pub nread: u64,
    /// Bytes that were written.
    pub nwritten: u64,
    /// Reads.
    pub reads: u64,
    /// Writes.
    pub writes: u64,
}

/// One transaction group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TxgRecord {
    /// Its number.
    pub txg: Txg,
    /// When it was opened, in nanoseconds since 1970.
    pub birth_ns: u64,
    /// Its state.
    pub state: TxgState,
    /// Dirty bytes when it was closed.
    pub ndirty: u64,
    /// What the vdevs transferred while it was written: of groups and all else.
    pub io: Io,
    /// How long it was open.
    pub open: Duration,
    /// How long it quiesced.
    pub quiesce: Duration,
    /// How long it waited for its sync.
    pub wait: Duration,
    /// How long its sync took.
    pub sync: Duration,
}

#[derive(Debug)]
struct Record {
    shown: TxgRecord,
    since: Instant,
    io_before: Io,
}

impl Record {
    fn time(&mut self) -> &mut Duration {
        match self.shown.state {
            TxgState::Open => &mut self.shown.open,
            TxgState::Quiescing => &mut self.shown.quiesce,
            TxgState::WaitingForSync => &mut self.shown.wait,
            TxgState::Syncing | TxgState::Committed => &mut self.shown.sync,
        }
    }

    fn enter(&mut self, state: TxgState) {
        let now = Instant::now();
        *self.time() = now - self.since;
        (self.shown.state, self.since) = (state, now);
    }
}

/// The last transaction groups of a pool.
#[derive(Debug, Default)]
pub struct TxgHistory {
    records: Mutex<VecDeque<Record>>,
}

impl TxgHistory {
    fn records(&self) -> MutexGuard<'_, VecDeque<Record>> {
        self.records.lock().ignore_poison()
    }

    /// A group is open from now on.
    pub(crate) fn opened(&self, txg: Txg) {
        let birth = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let shown = TxgRecord {
            txg,
            birth_ns: u64::try_from(birth.as_nanos()).unwrap_or(u64::MAX),
            state: TxgState::Open,
            ndirty: 0,
            io: Io::default(),
            open: Duration::ZERO,
            quiesce: Duration::ZERO,
            wait: Duration::ZERO,
            sync: Duration::ZERO,
        };
        let most = tunables::ZFS_TXG_HISTORY.size();
        let mut records = self.records();
        while !records.is_empty() && records.len() >= most {
            records.pop_front();
        }
        if most == 0 {
            return;
        }
        records.push_back(Record { shown, since: Instant::now(), io_before: Io::default() });
    }

    fn of(&self, txg: Txg, change: impl FnOnce(&mut Record)) {
        if let Some(record) = self.records().iter_mut().rev().find(|record| record.shown.txg == txg) {
            change(record);
        }
    }

    /// A group was closed with this many dirty bytes.
    pub(crate) fn closed(&self, txg: Txg, ndirty: u64) {
        self.of(txg, |record| {
            record.enter(TxgState::Quiescing);
            record.shown.ndirty = ndirty;
        });
    }

    /// The changes of a closed group are made.
    pub(crate) fn quiesced(&self, txg: Txg) {
        self.of(txg, |record| record.enter(TxgState::WaitingForSync));
    }

    /// A group begins to be written; the vdevs transferred `io` until now.
    pub(crate) fn syncing(&self, txg: Txg, io: Io) {
        self.of(txg, |record| {
            record.enter(TxgState::Syncing);
            record.io_before = io;
        });
    }

    /// A group is on disk; the vdevs transferred `io` until now.
    pub(crate) fn committed(&self, txg: Txg, io: Io) {
        self.of(txg, |record| {
            record.enter(TxgState::Committed);
            let before = record.io_before;
            record.shown.io = Io {
                nread: io.nread.saturating_sub(before.nread),
                nwritten: io.nwritten.saturating_sub(before.nwritten),
                reads: io.reads.saturating_sub(before.reads),
                writes: io.writes.saturating_sub(before.writes),
            };
        });
    }

    /// The last groups, the oldest first.
    pub fn snapshot(&self) -> Vec<TxgRecord> {
        let records = self.records();
        let shown = records.iter().map(|record| {
            let mut now = Record { shown: record.shown, since: record.since, io_before: Io::default() };
            if now.shown.state != TxgState::Committed {
                *now.time() = record.since.elapsed();
            }
            now.shown
        });
        shown.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_goes_through_its_states_and_old_ones_are_forgotten() {
        let history = TxgHistory::default();
        history.opened(Txg(7));
        history.closed(Txg(7), 4096);
        history.opened(Txg(8));
        history.quiesced(Txg(7));
        history.syncing(Txg(7), Io { nwritten: 100, writes: 1, ..Io::default() });
        history.committed(Txg(7), Io { nwritten: 700, writes: 4, ..Io::default() });
        let groups = history.snapshot();
        let seen: Vec<_> = groups.iter().map(|group| (group.txg.get(), group.state.letter())).collect();
        assert_eq!(seen, [(7, 'C'), (8, 'O')]);
        let first = groups[0];
        assert_eq!((first.ndirty, first.io.nwritten, first.io.writes, first.io.reads), (4096, 600, 3, 0));
        assert!(first.birth_ns > 1 << 60);
        (9..200).for_each(|txg| history.opened(Txg(txg)));
        let groups = history.snapshot();
        let most = tunables::ZFS_TXG_HISTORY.size();
        assert_eq!((groups.len(), groups.last().map(|group| group.txg.get())), (most, Some(199)));
    }
}
