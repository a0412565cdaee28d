//! Writing to the vdev tree.
//!
//! # The idea
//! A batch of [`Piece`]s is taken apart into *parts*, each for one place of one leaf (`plan`): a mirror's part for each child, a raidz's for each
//! column, parity included. The parts of each leaf are sorted and neighbours become one transfer (`transfer`), so that what was allocated in one go
//! is written in one go, whatever the order and size of the blocks was. Parts share the bytes of their piece; nothing is copied but parity.
//!
//! # When is a piece written?
//! When the vdev that it belongs to can give it back: one child of a mirror, all but parity columns of each row of a raidz. Whoever missed it is
//! noted with the txg in its dirty time log ([`super::dtl`]), which makes readers prefer others and a later resilver bring what is missing. Leaves
//! that are offline, faulted or missing are not even tried. A transfer that fails is tried once more, part by part, so that one bad sector does not cost its
//! neighbours; then it counts as an error of the leaf.
//!
//! # When is it durable?
//! After [`VdevTree::flush`], which asks only leaves that were written to since they were last asked. A flush that fails is a failure of everything that the
//! leaf was given since: it has missed all those txgs. The flush as a whole fails only when some vdev can then not give back what it was given.
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

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use device::SharedBuf;
use futures_util::future::join_all;
use ondisk::Txg;

use super::stats::Transfer;
use super::{Kind, Vdev, VdevTree};
use crate::error::{Attempt, Failure, Result};
pub use discard::Unused;
use plan::Plan;

/// Txgs that one flush is about, beyond which they are judged all together. There are two at a time: one that is synced, and one whose log is written.
const MAX_JUDGED_TXGS: u64 = 64;

/// One piece for one top-level vdev.
#[derive(Debug)]
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
        planned.into_iter().map(|piece| piece.judge(&failed, started)).collect()
    }

    /// Makes all that was written durable on every leaf that was written to since its last flush.
    pub async fn flush(&self) -> Result<(), Vec<Attempt>> {
        let auxiliary = self.spares.iter().chain(&self.l2cache).flat_map(Vdev::walk);
        let vdevs = self.tops.iter().flat_map(Vdev::walk).chain(auxiliary).collect();
        self.flush_leaves(vdevs).await
    }

    /// As [`VdevTree::flush`], for the leaves of these top-level vdevs only: an intent log on devices of its own need not wait for the others.
    pub async fn flush_tops(&self, tops: &[u32]) -> Result<(), Vec<Attempt>> {
        let vdevs = tops.iter().filter_map(|id| self.top(*id)).flat_map(Vdev::walk).collect();
        self.flush_leaves(vdevs).await
    }

    async fn flush_leaves(&self, vdevs: Vec<&Vdev>) -> Result<(), Vec<Attempt>> {
        let flushes = vdevs.into_iter().filter_map(|leaf| {
            let Kind::Leaf(Some(device)) = &leaf.kind else { return None };
            let given = leaf.unflushed.take()?;
            Some(async move {
                let started = Instant::now();
                let result = device.flush().await;
                if result.is_ok() {
                    leaf.stats.count(Transfer::Flush, 0, started);
                }
                leaf.unflushed.flushed(&given);
                (leaf, given, result)
            })
        });
        let mut txgs: Option<(u64, u64)> = None;
        let mut labels = Labels::default();
        let mut failed = Vec::new();
        for (leaf, given, result) in join_all(flushes).await {
            labels.given |= given.labels;
            let Err(error) = result else {
                labels.durable |= given.labels;
                continue;
            };
            leaf.errors.count_write();
            failed.extend(leaf.failed(0, Failure::Io(error.to_string())));
            if let Some((first, last)) = given.txgs {
                self.note_missed(leaf, first, last);
                txgs = Some(txgs.map_or((first, last), |known| (known.0.min(first), known.1.max(last))));
            }
        }
        let held = txgs.is_none_or(|(first, last)| {
            last - first < MAX_JUDGED_TXGS
                && (first..=last).all(|txg| self.tops.iter().all(|top| top.holds(txg)))
        });
        if held && (labels.durable || !labels.given) { Ok(()) } else { Err(failed) }
    }

    /// A leaf missed the groups from `first` to `last`, and with it the distributed spares that may use its space.
    fn note_missed(&self, leaf: &Vdev, first: u64, last: u64) {
        leaf.missing_txgs.note_range(Txg(first), Txg(last));
        for top in self.tops.iter().filter(|top| matches!(top.kind, Kind::Draid(_))) {
            if top.walk().any(|vdev| vdev.guid == leaf.guid) {
                let spares = top.walk().filter(|vdev| matches!(vdev.kind, Kind::DraidSpare { .. }));
                spares.for_each(|spare| spare.missing_txgs.note_range(Txg(first), Txg(last)));
            }
        }
    }
}

/// What became of labels and uberblocks in a flush: one leaf that has them is enough.
#[derive(Default)]
struct Labels {
    given: bool,
    durable: bool,
}

impl Vdev {
    /// Whether it can give back everything that was written in `txg`, as far as dirty time logs tell.
    fn holds(&self, txg: u64) -> bool {
        let lost = || self.children.iter().filter(|child| !child.holds(txg)).count();
        match &self.kind {
            Kind::Leaf(_) | Kind::DraidSpare { .. } => self.status.is_readable() && !self.is_stale(txg),
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

/// What a leaf's device was given since it was last asked to make it durable.
#[derive(Debug, Default)]
pub(crate) struct Unflushed(Mutex<Given>);

#[derive(Debug, Default, Clone)]
struct Given {
    /// Completed writes since the device was opened.
    writes: u64,
    /// As many of them are durable.
    durable: u64,
    /// First and last group of those that are not.
    txgs: Option<(u64, u64)>,
    /// Labels or uberblocks are among them.
    labels: bool,
}

impl Unflushed {
    fn given(&self) -> MutexGuard<'_, Given> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A write of `txg` completed.
    fn wrote(&self, txg: Txg) {
        let mut given = self.given();
        given.writes += 1;
        let txg = txg.get();
        given.txgs = Some(given.txgs.map_or((txg, txg), |(first, last)| (first.min(txg), last.max(txg))));
    }

    /// A write of a label or an uberblock completed.
    fn wrote_label(&self) {
        let mut given = self.given();
        given.writes += 1;
        given.labels = true;
    }

    /// What a flush that begins now is about; `None` when there is nothing.
    fn take(&self) -> Option<Given> {
        let given = self.given();
        (given.writes > given.durable).then(|| given.clone())
    }

    /// A flush that began when `asked` was all came to its end.
    fn flushed(&self, asked: &Given) {
        let mut given = self.given();
        given.durable = given.durable.max(asked.writes);
        if given.durable == given.writes {
            given.txgs = None;
            given.labels = false;
        }
    }
}
