//! Writing to the vdev tree.
//!
//! # The idea
//! A batch of [`Piece`]s is taken apart into *parts*, each for one place of one leaf (`plan`): a mirror's part for each child, a raidz's for each
//! column, parity included. The parts of each leaf are sorted and neighbours become one transfer (`transfer`), so that what was allocated in one go
//! is written in one go, whatever the order and size of the blocks was. Parts share the bytes of their piece; nothing is copied but parity.
//!
//! # When is a piece written?
//! When the vdev that it belongs to can give it back: one child of a mirror, all but parity columns of each row of a raidz. Whoever missed it then is
//! noted with the txg in its dirty time log ([`super::dtl`]), which makes readers prefer others and a later resilver bring what is missing. Leaves
//! that are offline, faulted or missing are not even tried. A transfer that fails is tried once more, part by part, so that one bad sector does not cost its
//! neighbours; then it counts as an error of the leaf.
//!
//! # When is it durable?
//! After [`VdevTree::flush`], which asks only leaves that were written to since they were last asked. A flush that fails is a failure of everything that the
//! leaf was given since: it has missed all those txgs. The flush as a whole fails only when some vdev can then not give back what it was given, and then
//! so do all later ones: several callers flush the same leaves (the sync, intent logs), and whose writes were lost is not known.
//! Of labels and uberblocks it is enough that one leaf has them.
//!
//! | lock | guards | order |
//! |---|---|---|
//! | `Unflushed` | what one leaf was given since its last flush; held for a few lines | taken alone |

mod discard;
mod label;
mod plan;
#[cfg(test)]
mod tests;
mod transfer;

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use device::SharedBuf;
use futures_util::future::join_all;
use ondisk::{Guid, Txg};

use super::stats::Transfer;
use super::{Kind, Vdev, VdevTree};
use crate::error::{Attempt, Failure, Result};
pub use discard::Unused;
use plan::Plan;

/// One piece for one top-level vdev.
#[derive(Debug, Clone)]
pub struct Piece {
    /// Top-level vdev.
    pub top: u32,
    /// Offset in its allocatable space, a multiple of its sector.
    pub offset_bytes: u64,
    /// The bytes. What is missing of the last sector is written as zeroes.
    pub data: SharedBuf,
}

impl VdevTree {
    /// Writes all pieces of group `txg`. Runs that lie together on a leaf become one transfer. One result a piece: written to as many devices as
    /// its vdev needs to be able to read it again, or what failed. Leaves that missed a write are noted ([`Vdev::missing_txgs`]).
    pub async fn write(&self, txg: Txg, pieces: Vec<Piece>) -> Vec<Result<(), Vec<Attempt>>> {
        let started = Instant::now();
        let mut plan = Plan::new(self, txg);
        let planned: Vec<_> = pieces.into_iter().map(|piece| plan.piece(piece)).collect();
        let parts = plan.into_parts();
        let failed = transfer::perform(txg, &parts).await;
        planned.into_iter().map(|piece| piece.judge(txg, &parts, &failed, started)).collect()
    }

    /// Makes all that was written durable on every leaf that was written to since its last flush.
    pub async fn flush(&self) -> Result<(), Vec<Attempt>> {
        let auxiliary = self.spares.iter().chain(self.l2cache.iter()).flat_map(Vdev::walk);
        let vdevs = self.tops.iter().flat_map(Vdev::walk).chain(auxiliary).collect();
        self.flush_leaves(vdevs, true).await
    }

    /// As [`VdevTree::flush`], for the leaves of these top-level vdevs only: an intent log on devices of its own need not wait for the others.
    pub async fn flush_tops(&self, tops: &[u32]) -> Result<(), Vec<Attempt>> {
        let vdevs = tops.iter().filter_map(|id| self.top(*id)).flat_map(Vdev::walk).collect();
        self.flush_leaves(vdevs, false).await
    }

    /// Flushes the leaves among these vdevs. With `labels` it also tells whether the labels or uberblocks written last are durable anywhere.
    async fn flush_leaves(&self, vdevs: Vec<&Vdev>, labels: bool) -> Result<(), Vec<Attempt>> {
        let flushes = vdevs.iter().filter_map(|leaf| {
            let Kind::Leaf(slot) = &leaf.kind else { return None };
            let given = leaf.unflushed.take()?;
            let Some(device) = slot.device() else {
                // Taken away since.
                self.note_missed(leaf, given.txgs);
                leaf.unflushed.flushed(&given, false);
                return None;
            };
            Some(async move {
                let started = Instant::now();
                let result = device.flush().await;
                match &result {
                    Ok(()) => leaf.stats.count(Transfer::Flush, 0, started),
                    // Noted before it counts as done: others may rely on this flush.
                    Err(_) => self.note_missed(leaf, given.txgs),
                }
                leaf.unflushed.flushed(&given, result.is_ok());
                result.map_err(|error| {
                    leaf.errors.count_write();
                    leaf.failed(0, Failure::Io(error.to_string()))
                })
            })
        });
        let results = join_all(flushes).await;
        let round = self.label_rounds.current();
        let mut taken = Taken::default();
        let mut lost: BTreeMap<Guid, &Vdev> = BTreeMap::new();
        for leaf in vdevs {
            let given = leaf.unflushed.given();
            taken.count(&given, round);
            if let Some((first, last)) = given.failed {
                drop(given);
                let tops = self.tops.iter().filter(|top| top.has(leaf) && !top.holds_all(first, last));
                lost.extend(tops.map(|top| (top.guid, top)));
            }
        }
        if lost.is_empty() && !(labels && taken.is_nowhere()) {
            return Ok(());
        }
        let mut failed: Vec<Attempt> = results.into_iter().filter_map(Result::err).flatten().collect();
        let earlier = || Failure::Io("it was given what an earlier flush could not make durable".into());
        failed.extend(lost.into_values().flat_map(|top| top.failed(0, earlier())));
        Err(failed)
    }

    /// A leaf missed these groups, and with it the distributed spares that may use its space.
    pub(super) fn note_missed(&self, leaf: &Vdev, txgs: Option<(u64, u64)>) {
        let Some((first, last)) = txgs else { return };
        leaf.missing_txgs.note_range(Txg(first), Txg(last));
        for top in self.tops.iter().filter(|top| matches!(top.kind, Kind::Draid(_)) && top.has(leaf)) {
            let spares = top.walk().filter(|vdev| matches!(vdev.kind, Kind::DraidSpare { .. }));
            spares.for_each(|spare| spare.missing_txgs.note_range(Txg(first), Txg(last)));
        }
    }
}

impl Vdev {
    /// Whether `other` is this vdev or below it.
    fn has(&self, other: &Vdev) -> bool {
        self.walk().any(|vdev| vdev.guid == other.guid)
    }

    /// Whether it can give back everything that was written from `first` to `last`, as far as dirty time logs tell.
    fn holds_all(&self, first: u64, last: u64) -> bool {
        // Between the beginnings of what leaves missed, it only gets better.
        let missed = self.walk().map(|vdev| vdev.missing_txgs.ranges());
        let starts: Vec<u64> = missed
            .flat_map(|missed| missed.ranges().iter().map(|range| range.0).collect::<Vec<_>>())
            .collect();
        let inside = starts.into_iter().filter(|start| (first..=last).contains(start));
        std::iter::once(first).chain(inside).all(|txg| self.holds(txg))
    }

    /// Whether it can give back everything that was written in `txg`.
    pub(super) fn holds(&self, txg: u64) -> bool {
        let lost = || self.children.iter().filter(|child| !child.holds(txg)).count();
        match &self.kind {
            Kind::Leaf(_) | Kind::DraidSpare { .. } => self.status().is_readable() && !self.is_stale(txg),
            Kind::Mirror | Kind::Replacing | Kind::Spare => {
                self.children.iter().any(|child| child.holds(txg))
            }
            Kind::Raidz(raidz) => lost() <= raidz.nparity(),
            Kind::Draid(draid) => lost() <= draid.config().nparity,
            // Never written to.
            Kind::Indirect(_) | Kind::Hole | Kind::Missing => true,
        }
    }
}

/// What became of the labels or uberblocks written last. One leaf that has them is enough.
#[derive(Default)]
struct Taken {
    given: bool,
    durable: bool,
}

impl Taken {
    fn count(&mut self, given: &Given, round: u64) {
        if round > 0 && given.label_round == round {
            self.given = true;
            self.durable |= given.label_failed_round != round;
        }
    }

    fn is_nowhere(&self) -> bool {
        self.given && !self.durable
    }
}

/// Numbers the rounds in which labels are written: an uberblock to all leaves that take it, one half of the labels of all leaves. What a flush says of a round is
/// said of all leaves of it together.
#[derive(Debug, Default)]
pub(crate) struct LabelRounds(Mutex<(u64, Option<Round>)>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Round {
    Uberblock,
    Label { odd: bool },
}

impl LabelRounds {
    fn state(&self) -> MutexGuard<'_, (u64, Option<Round>)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of the round that a write is part of. Each uberblock begins one, and so does the first label of a half.
    fn enter(&self, round: Round) -> u64 {
        let mut state = self.state();
        if round == Round::Uberblock || state.1 != Some(round) {
            *state = (state.0 + 1, Some(round));
        }
        state.0
    }

    fn current(&self) -> u64 {
        self.state().0
    }
}

/// What a leaf's device was given since it was last asked to make it durable.
#[derive(Debug, Default)]
pub(crate) struct Unflushed(Mutex<Given>);

#[derive(Debug, Default, Clone)]
pub(super) struct Given {
    /// Completed writes since the device was opened.
    writes: u64,
    /// So many of them were followed by a flush that came to its end, well or not.
    asked: u64,
    /// First and last group of the others.
    pub(super) txgs: Option<(u64, u64)>,
    /// First and last group of those whose flush failed. What was lost stays lost, whatever later flushes say.
    failed: Option<(u64, u64)>,
    /// The last round in which a label or uberblock was among them; 0 for none.
    label_round: u64,
    /// Of these, the last round whose flush failed.
    label_failed_round: u64,
    /// Whether that label is among the others.
    label_pending: bool,
}

impl Unflushed {
    fn given(&self) -> MutexGuard<'_, Given> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A write of `txg` completed.
    fn wrote(&self, txg: Txg) {
        let mut given = self.given();
        given.writes += 1;
        given.txgs = joined(given.txgs, Some((txg.get(), txg.get())));
    }

    /// A write of a label or an uberblock completed.
    fn wrote_label(&self, round: u64) {
        let mut given = self.given();
        given.writes += 1;
        given.label_round = given.label_round.max(round);
        given.label_pending = true;
    }

    /// What a flush that begins now is about; `None` when there is nothing.
    pub(super) fn take(&self) -> Option<Given> {
        let given = self.given();
        (given.writes > given.asked).then(|| given.clone())
    }

    /// A flush that began when `asked` was all came to its end.
    pub(super) fn flushed(&self, asked: &Given, well: bool) {
        let mut given = self.given();
        given.asked = given.asked.max(asked.writes);
        if !well {
            given.failed = joined(given.failed, asked.txgs);
            if asked.label_pending {
                given.label_failed_round = given.label_failed_round.max(asked.label_round);
            }
        }
        if given.asked == given.writes {
            given.txgs = None;
            given.label_pending = false;
        }
    }
}

/// First and last of both.
fn joined(one: Option<(u64, u64)>, other: Option<(u64, u64)>) -> Option<(u64, u64)> {
    match (one, other) {
        (Some((first, last)), Some((a, b))) => Some((first.min(a), last.max(b))),
        (one, other) => one.or(other),
    }
}
