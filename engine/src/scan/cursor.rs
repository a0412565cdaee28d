//! The place of a scan: which datasets come next, and where it is in the present one.
//!
//! # The order
//! The meta object set comes first, then the snapshot that everything descends from (`$ORIGIN`). When a
//! dataset is done, the snapshot or head that follows it joins the queue, and so do the clones that begin
//! there. Each is walked only for blocks that are newer than the dataset before it. So a block is met in the
//! oldest dataset that has it.
//!
//! # When datasets change
//! | change | the dataset in progress | the queue |
//! |---|---|---|
//! | a head gets a snapshot | the walk goes on in the snapshot, which has what the head had | the snapshot comes instead of the head |
//! | a snapshot is destroyed | the walk goes on in the one that follows, and goes through it once more from its beginning | the one that follows comes instead, for the same births |
//! | a head is destroyed | the walk is done with it | it goes |
//! | two heads exchange their contents | the walk goes on in the other one | they exchange their places |
//!
//! A promotion and a new clone change nothing here: a snapshot is followed by the same datasets before and
//! after a promotion, and what a new clone writes is newer than the scan.

use std::collections::BTreeMap;

use ondisk::scan::{BETWEEN, FLAG_VISIT_AGAIN, ScanPhys};
use ondisk::{ObjectId, Txg};

use super::Purpose;
use crate::Bookmark;
use crate::dsl::Lineage;

/// The place of a scan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Cursor {
    /// Where the walk goes on.
    pub at: Bookmark,
    /// Datasets that come next, each with the group after which its blocks count.
    pub queue: BTreeMap<u64, Txg>,
    /// In the dataset in progress, blocks born after this group count,
    pub cur_min: Txg,
    /// and not after this one.
    pub cur_max: Txg,
    /// The dataset in progress is walked once more when it is done.
    pub again: bool,
}

/// Where a cursor stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// In the meta object set.
    Mos,
    /// In the dataset that is this object.
    Dataset(u64),
    /// Between two datasets.
    Between,
}

/// What a scan must know of a dataset.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Links {
    /// When it was created.
    pub creation_txg: Txg,
    /// When the snapshot before it was created.
    pub prev_snap_txg: Txg,
    /// It is a snapshot.
    pub is_snapshot: bool,
    /// The snapshot or head that follows it.
    pub next_snap: Option<u64>,
    /// The first datasets of clones that begin here.
    pub clones: Vec<u64>,
}

impl Links {
    /// Whether a snapshot that follows what was created in group `after` is not newer than that. So do only
    /// snapshots of a damaged or hostile pool: they may form a loop, and have no blocks of their own.
    pub(crate) fn is_loop(&self, after: Txg) -> bool {
        self.is_snapshot && after != Txg::NONE && self.creation_txg <= after
    }
}

const BETWEEN_DATASETS: Bookmark = Bookmark { objset: BETWEEN, object: 0, level: 0, blkid: 0 };

impl Cursor {
    /// The place of a scan that begins.
    pub fn beginning() -> Self {
        let at = Bookmark { objset: 0, object: 0, level: 0, blkid: 0 };
        Self { at, queue: BTreeMap::new(), cur_min: Txg::NONE, cur_max: Txg::NONE, again: false }
    }

    /// The place that a pool has stored.
    pub fn load(phys: &ScanPhys, queue: BTreeMap<u64, Txg>) -> Self {
        let [objset, object, level, blkid] = phys.bookmark;
        Self {
            at: Bookmark { objset, object, level: level.cast_signed(), blkid },
            queue,
            cur_min: phys.cur_min_txg,
            cur_max: phys.cur_max_txg,
            again: phys.flags & FLAG_VISIT_AGAIN != 0,
        }
    }

    /// Enters the place into what the pool stores. The queue is an object of its own.
    pub fn store(&self, phys: &mut ScanPhys) {
        let Bookmark { objset, object, level, blkid } = self.at;
        phys.bookmark = [objset, object, level.cast_unsigned(), blkid];
        (phys.cur_min_txg, phys.cur_max_txg) = (self.cur_min, self.cur_max);
        phys.flags &= !FLAG_VISIT_AGAIN;
        if self.again {
            phys.flags |= FLAG_VISIT_AGAIN;
        }
    }

    /// Where it stands.
    pub fn place(&self) -> Place {
        match self.at.objset {
            0 => Place::Mos,
            BETWEEN => Place::Between,
            object => Place::Dataset(object),
        }
    }

    /// The meta object set is to be walked.
    pub(crate) fn enter_mos(&mut self, purpose: &Purpose) {
        (self.cur_min, self.cur_max) = (purpose.after, purpose.until);
    }

    /// The meta object set is done. `first` are the datasets that follow nothing.
    pub(crate) fn leave_mos(&mut self, first: impl IntoIterator<Item = (u64, Txg)>) {
        self.at = BETWEEN_DATASETS;
        for (object, after) in first {
            self.add(object, after);
        }
    }

    /// Takes the next dataset out of the queue, with the group after which its blocks count.
    pub(crate) fn take_next(&mut self) -> Option<(u64, Txg)> {
        self.queue.pop_first()
    }

    /// A dataset is to be walked from its beginning.
    pub fn enter(&mut self, object: u64, after: Txg, links: &Links, purpose: &Purpose) {
        let after = if after == Txg::NONE { links.prev_snap_txg } else { after };
        self.cur_min = purpose.after.max(after);
        self.cur_max = match links.is_snapshot {
            true => purpose.until.min(links.creation_txg),
            false => purpose.until,
        };
        self.at = Bookmark { objset: object, object: 0, level: 0, blkid: 0 };
    }

    /// Whether the dataset in progress can have blocks that the scan has not met.
    pub(crate) fn is_needed(&self, purpose: &Purpose) -> bool {
        self.cur_min < purpose.until
    }

    /// The dataset in progress is done.
    pub fn leave(&mut self, object: u64, links: &Links, purpose: &Purpose) {
        self.at = BETWEEN_DATASETS;
        let again = std::mem::take(&mut self.again);
        if !self.is_needed(purpose) {
            // Those that follow share its blocks, or have newer ones.
            return;
        }
        if again {
            self.add(object, self.cur_max);
            return;
        }
        for follower in links.next_snap.iter().chain(&links.clones) {
            self.add(*follower, links.creation_txg);
        }
    }

    /// Follows a change of datasets. Says whether anything is different.
    pub fn follow(&mut self, change: Lineage) -> bool {
        let before = (self.at, self.again, self.queue.len());
        let mut moved = false;
        let mut replace = |queue: &mut BTreeMap<u64, Txg>, old: u64, new: Option<u64>| {
            if let Some(after) = queue.remove(&old) {
                moved = true;
                if let Some(new) = new {
                    let known = queue.entry(new).or_insert(after);
                    *known = after.min(*known);
                }
            }
        };
        let number = |object: ObjectId| object.get();
        match change {
            Lineage::Snapshotted { head, snapshot } => {
                replace(&mut self.queue, number(head), Some(number(snapshot)));
                if self.at.objset == number(head) {
                    self.at.objset = number(snapshot);
                }
            }
            Lineage::SnapshotDestroyed { snapshot, next } => {
                replace(&mut self.queue, number(snapshot), Some(number(next)));
                if self.at.objset == number(snapshot) {
                    self.at.objset = number(next);
                    self.again = true;
                }
            }
            Lineage::HeadDestroyed(head) => {
                replace(&mut self.queue, number(head), None);
                if self.at.objset == number(head) {
                    self.at = BETWEEN_DATASETS;
                    self.again = false;
                }
            }
            Lineage::Swapped(one, other) => {
                let (one, other) = (number(one), number(other));
                let places = [self.queue.remove(&one), self.queue.remove(&other)];
                moved = places.iter().any(Option::is_some);
                self.queue
                    .extend([other, one].into_iter().zip(places).filter_map(|(id, at)| Some((id, at?))));
                self.at.objset = match self.at.objset {
                    objset if objset == one => other,
                    objset if objset == other => one,
                    objset => objset,
                };
            }
        }
        moved || before != (self.at, self.again, self.queue.len())
    }

    fn add(&mut self, object: u64, after: Txg) {
        let known = self.queue.entry(object).or_insert(after);
        *known = after.min(*known);
    }
}

#[cfg(test)]
mod tests;
