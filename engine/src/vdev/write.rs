//! Writing to the vdev tree.
//!
//! # The idea
//! A batch of [`Piece`]s is split into *parts*, each for one place of one leaf (`plan`): for a mirror, a part
//! for each child; for raidz, a part for each column, parity included. The parts of each leaf are sorted and
//! neighbours become one transfer (`transfer`), so that space that was allocated together is written
//! together, whatever the order and size of the blocks. Parts share the bytes of their piece; only parity
//! needs memory of its own.
//!
//! # When is a piece written?
//! A piece is written when its vdev can return it: one child of a mirror has it, or all columns of each row
//! of a raidz have it, except as many as the row has parity columns. The txg goes into the dirty time log
//! ([`super::dtl`]) of each device that missed the piece. So readers prefer other devices, and a later
//! resilver copies the missing data. Leaves that are offline, faulted or missing are not tried. A failed
//! transfer is tried once more, part by part, so that one bad sector does not cost its neighbours; then it
//! counts as an error of the leaf.
//!
//! # When is it durable?
//! [`VdevTree::write_durably`] writes durably at once: it is for a single block of an intent log, for which a
//! write and a separate flush would wait twice. All other writes are durable after [`VdevTree::flush`], which
//! flushes only leaves with writes since their last flush. A failed flush is a failure of all writes to the
//! leaf since: it has missed all those txgs. The flush as a whole fails only when some vdev then cannot
//! return its data; and then all later flushes fail too, because several callers flush the same leaves (the
//! sync, intent logs), and it is unknown whose writes were lost. Labels and uberblocks need only one leaf
//! that has them. Other writes to a leaf give way to stable ones (`transfer`).
//!
//! A device that goes away between writes and flush is a different case. Its unflushed data are in *doubt*:
//! they may be there when the device is back. As long as no other device holds them, flushes fail. The caller
//! that has read them back reports the result (`VdevTree::believe`, or `VdevTree::disbelieve`).
//!
//! | lock | guards | order |
//! |---|---|---|
//! | `Unflushed` | the writes to one leaf since its last flush; held for a few lines | taken alone |

mod discard;
mod heal;
mod initialize;
mod label;
mod plan;
#[cfg(test)]
mod tests;
mod transfer;

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::Ordering;
use std::sync::{Mutex, MutexGuard};
use std::time::Instant;

use device::{Device, IgnorePoison, SharedBuf};
use futures_util::future::join_all;
use ondisk::{Guid, Txg};

use super::health::is_gone;
use super::stats::Transfer;
use super::{Kind, Vdev, VdevTree};
use crate::error::{Attempt, Failure, Result};
pub use discard::Unused;
pub(crate) use heal::{Known, Missed};
pub(super) use label::copy_labels_to_end;
use plan::{Part, Plan};
pub(crate) use transfer::Stable;

/// One piece for one top-level vdev.
#[derive(Debug, Clone)]
pub struct Piece {
    /// The top-level vdev.
    pub top: u32,
    /// Offset in its allocatable space, a multiple of its sector.
    pub offset_bytes: u64,
    /// The bytes. The rest of the last sector is filled with zeroes.
    pub data: SharedBuf,
}

/// When a write counts as done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Until {
    /// When the device has received it.
    Taken,
    /// When it is durable, if the device can write durably without a flush.
    Durable,
}

impl Until {
    /// Whether writes to this device are done in this sense without a flush.
    fn is_met_by(self, device: &dyn Device) -> bool {
        self == Self::Durable && device.has_durable_writes()
    }
}

impl VdevTree {
    /// Writes all pieces of group `txg`. Neighbouring runs on a leaf become one transfer. Returns one result
    /// for each piece: success when enough devices have it for its vdev to read it again, or the failures.
    /// Leaves that missed a write are noted ([`super::Lasting::missing_txgs`]).
    pub async fn write(&self, txg: Txg, pieces: Vec<Piece>) -> Vec<Result<(), Vec<Attempt>>> {
        self.write_until(txg, pieces, Until::Taken).await.0
    }

    /// Writes one piece of group `txg`, which is durable when this returns; otherwise like
    /// [`VdevTree::write`] and [`VdevTree::flush_tops`]. If the devices can do both in one step, no other
    /// data are flushed.
    pub async fn write_durably(&self, txg: Txg, piece: Piece) -> Result<(), Vec<Attempt>> {
        let top = piece.top;
        let (written, is_durable) = self.write_until(txg, vec![piece], Until::Durable).await;
        written.into_iter().collect::<Result<(), _>>()?;
        if is_durable { Ok(()) } else { self.flush_tops(&[top]).await }
    }

    /// Writes pieces. Also returns whether all written data are durable.
    async fn write_until(
        &self,
        txg: Txg,
        pieces: Vec<Piece>,
        until: Until,
    ) -> (Vec<Result<(), Vec<Attempt>>>, bool) {
        let started = Instant::now();
        let mut plan = Plan::new(self, txg);
        let planned: Vec<_> = pieces.into_iter().map(|piece| plan.piece(piece)).collect();
        let parts = plan.into_parts();
        let failed = self.perform(txg, &parts, until).await;
        let judged = planned.into_iter().map(|piece| piece.judge(txg, &parts, &failed, started)).collect();
        (judged, parts.iter().all(|part| until.is_met_by(&*part.device)))
    }

    /// Writes parts; counts and reports those that failed.
    async fn perform(&self, txg: Txg, parts: &[Part<'_>], until: Until) -> HashMap<usize, Attempt> {
        let failed = transfer::perform(txg, parts, until).await;
        for part in failed.keys().filter_map(|index| parts.get(*index)) {
            let is_new = self.report_write(part.leaf, part.position, part.data.len() as u64);
            part.leaf.errors.count_write(is_new);
        }
        failed
    }

    /// Makes all written data durable on every leaf with writes since its last flush.
    pub async fn flush(&self) -> Result<(), Vec<Attempt>> {
        self.flush_group(Txg(u64::MAX)).await
    }

    /// Like [`VdevTree::flush`], for the thread that commits group `txg`: writes of later groups to devices
    /// that went away do not matter.
    pub async fn flush_group(&self, txg: Txg) -> Result<(), Vec<Attempt>> {
        let auxiliary = self.spares.iter().chain(self.l2cache.iter()).flat_map(Vdev::walk);
        let vdevs = self.tops.iter().flat_map(Vdev::walk).chain(auxiliary).collect();
        self.flush_leaves(vdevs, txg, true).await
    }

    /// Like [`VdevTree::flush`], only for the leaves of these top-level vdevs: an intent log on devices of
    /// its own need not wait for other devices.
    pub async fn flush_tops(&self, tops: &[u32]) -> Result<(), Vec<Attempt>> {
        let vdevs: Vec<_> = tops.iter().filter_map(|id| self.top(*id)).flat_map(Vdev::walk).collect();
        vdevs.iter().for_each(|vdev| vdev.stable.asked());
        self.flush_leaves(vdevs, Txg(u64::MAX), false).await
    }

    /// Flushes the leaves among these vdevs, for groups up to `txg`. With `labels` it also returns whether
    /// the labels or uberblocks written last are durable on any leaf.
    async fn flush_leaves(&self, vdevs: Vec<&Vdev>, txg: Txg, labels: bool) -> Result<(), Vec<Attempt>> {
        let flushes = vdevs.iter().filter_map(|leaf| {
            let Kind::Leaf(slot) = &leaf.kind else { return None };
            let given = leaf.unflushed.take()?;
            let Some(device) = slot.device() else {
                // Its device was taken away meanwhile.
                self.gone_with(leaf, &given);
                return None;
            };
            Some(async move {
                let started = Instant::now();
                let result = device.flush().await;
                match &result {
                    Ok(()) => {
                        leaf.stats.count(Transfer::Flush, 0, started);
                        leaf.unflushed.flushed(&given, Flushed::Durable);
                    }
                    Err(error) if is_gone(error) => self.gone_with(leaf, &given),
                    Err(_) => {
                        // Noted before the flush counts as done, because other callers may rely on this
                        // flush.
                        self.note_missed(leaf, given.txgs);
                        leaf.unflushed.flushed(&given, Flushed::Lost);
                    }
                }
                result.map_err(|error| {
                    leaf.errors.count_write(true);
                    self.report_flush(leaf, &error);
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
            let doubtful = given.doubtful.filter(|(first, _)| *first <= txg.get());
            if let Some(range) = joined(given.failed, doubtful) {
                drop(given);
                lost.extend(self.tops_without(leaf, range, None).map(|top| (top.guid, top)));
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

    /// The top-level vdevs above a leaf that cannot return all data of these groups; with `without`, not even
    /// if that leaf were lost.
    fn tops_without(
        &self,
        leaf: &Vdev,
        range: (u64, u64),
        without: Option<Guid>,
    ) -> impl Iterator<Item = &Vdev> {
        self.tops.iter().filter(move |top| top.has(leaf) && !top.holds_all(range, without))
    }

    /// The device of a leaf went away with unflushed data. If other devices hold the data, the leaf missed
    /// them; otherwise they are in doubt.
    pub(super) fn gone_with(&self, leaf: &Vdev, given: &Given) {
        let is_held = |range| self.tops_without(leaf, range, Some(leaf.guid)).next().is_none();
        if given.txgs.is_none_or(is_held) {
            self.note_missed(leaf, given.txgs);
            leaf.unflushed.flushed(given, Flushed::Lost);
        } else {
            leaf.unflushed.flushed(given, Flushed::Doubtful);
        }
    }

    /// Whether all devices with data in doubt of groups up to `txg` are back; `None` when no data of them are
    /// in doubt.
    pub(crate) fn can_be_read_back(&self, txg: Txg) -> Option<bool> {
        let doubtful = self.leaves().filter(|leaf| leaf.unflushed.is_doubtful(txg));
        doubtful.map(|leaf| leaf.status().is_readable()).reduce(|all, readable| all && readable)
    }

    /// Whether flushes fail for good.
    pub(crate) fn has_lost(&self) -> bool {
        self.leaves().any(|leaf| {
            let failed = leaf.unflushed.given().failed;
            failed.is_some_and(|range| self.tops_without(leaf, range, None).next().is_some())
        })
    }

    /// All data of groups up to `txg` that were written to devices before they went away were read back. The
    /// next flush makes them durable.
    pub(crate) fn believe(&self, txg: Txg) {
        self.leaves().for_each(|leaf| leaf.unflushed.believe(txg));
    }

    /// Some of the data that were written to devices before they went away are lost.
    pub(crate) fn disbelieve(&self) {
        for leaf in self.leaves() {
            self.note_missed(leaf, leaf.unflushed.disbelieve());
        }
    }

    /// Notes that a leaf missed these groups, and also the distributed spares that may use its space.
    pub(super) fn note_missed(&self, leaf: &Vdev, txgs: Option<(u64, u64)>) {
        let Some((first, last)) = txgs else { return };
        leaf.missing_txgs.note_range(Txg(first), Txg(last));
        // What a scan wrote to it may be lost too, whatever the groups of the blocks.
        leaf.absences.fetch_add(1, Ordering::AcqRel);
        for top in self.tops.iter().filter(|top| matches!(top.kind, Kind::Draid(_)) && top.has(leaf)) {
            let spares = top.walk().filter(|vdev| matches!(vdev.kind, Kind::DraidSpare { .. }));
            for spare in spares {
                spare.missing_txgs.note_range(Txg(first), Txg(last));
                spare.absences.fetch_add(1, Ordering::AcqRel);
            }
        }
    }
}

/// What a vdev is to do without.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Without {
    /// This leaf.
    pub leaf: Option<Guid>,
    /// Devices that are being replaced, and their replacements, unless the leaf is one of them.
    pub others_in_replacement: bool,
}

impl Without {
    /// Without this leaf, if one is named.
    pub fn leaf(leaf: Option<Guid>) -> Self {
        Self { leaf, ..Self::default() }
    }
}

impl Vdev {
    /// Whether `other` is this vdev or below it.
    fn has(&self, other: &Vdev) -> bool {
        self.walk().any(|vdev| vdev.guid == other.guid)
    }

    /// Whether it can return all data written in the groups of `range`, as far as is known; with `without`,
    /// even without that leaf.
    fn holds_all(&self, (first, last): (u64, u64), without: Option<Guid>) -> bool {
        // Between the starts of the missed ranges, redundancy only improves.
        let inside = self.beginnings().into_iter().filter(|start| (first..=last).contains(start));
        std::iter::once(first).chain(inside).all(|txg| self.holds(txg, Without::leaf(without)))
    }

    /// Whether it can return all data that were ever written, and will be able to return those of later
    /// groups.
    pub(crate) fn holds_what_was_written(&self) -> bool {
        std::iter::once(u64::MAX).chain(self.beginnings()).all(|txg| self.holds(txg, Without::default()))
    }

    /// Whether this is a leaf below it.
    fn has_leaf(&self, leaf: Option<Guid>) -> bool {
        self.walk().any(|vdev| Some(vdev.guid) == leaf)
    }

    /// The first groups of the ranges that leaves missed, or that are in doubt.
    pub(super) fn beginnings(&self) -> Vec<u64> {
        let of_vdev = |vdev: &Vdev| {
            let missed = vdev.missing_txgs.ranges();
            let doubtful = vdev.unflushed.given().doubtful;
            missed.ranges().iter().copied().chain(doubtful).map(|range| range.0).collect::<Vec<_>>()
        };
        self.walk().flat_map(of_vdev).collect()
    }

    /// Whether it can return all data written in `txg`, even without something.
    pub(super) fn holds(&self, txg: u64, without: Without) -> bool {
        let lost = || self.children.iter().filter(|child| !child.holds(txg, without)).count();
        match &self.kind {
            Kind::Leaf(_) | Kind::DraidSpare { .. } => {
                let has =
                    without.leaf != Some(self.guid) && self.status().is_readable() && !self.is_stale(txg);
                has && !self.unflushed.has_doubts_about(txg)
            }
            Kind::Replacing if without.others_in_replacement && !self.has_leaf(without.leaf) => false,
            Kind::Mirror | Kind::Replacing | Kind::Spare => {
                self.children.iter().any(|child| child.holds(txg, without))
            }
            Kind::Raidz(raidz) => lost() <= raidz.nparity(),
            Kind::Draid(draid) => lost() <= draid.config().nparity,
            // Nothing was ever written to it.
            Kind::Indirect(_) | Kind::Hole | Kind::Missing => true,
        }
    }
}

/// The outcome for the labels or uberblocks written last. One leaf that has them is enough.
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

/// Numbers the rounds in which labels are written: an uberblock to all leaves, or one half of the labels of
/// all leaves. The result of a flush is for all leaves of a round together.
#[derive(Debug, Default)]
pub(crate) struct LabelRounds(Mutex<(u64, Option<Round>)>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Round {
    Uberblock,
    Label { odd: bool },
}

impl LabelRounds {
    fn state(&self) -> MutexGuard<'_, (u64, Option<Round>)> {
        self.0.lock().ignore_poison()
    }

    /// The number of the round that a write belongs to. Each uberblock starts a round, and so does the first
    /// label of a half.
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

/// The writes to a leaf's device since its last flush.
#[derive(Debug, Default)]
pub(crate) struct Unflushed(Mutex<Given>);

#[derive(Debug, Default, Clone)]
pub(super) struct Given {
    /// Completed writes since the device was opened.
    writes: u64,
    /// The number of writes that were followed by a finished flush, successful or not.
    asked: u64,
    /// The first and last group of the other writes.
    pub(super) txgs: Option<(u64, u64)>,
    /// The first and last group of writes whose flush failed. Lost data stay lost, whatever the results of
    /// later flushes.
    failed: Option<(u64, u64)>,
    /// The first and last group of writes with which the device went away, if no other device holds them.
    doubtful: Option<(u64, u64)>,
    /// The last round with a label or uberblock among the writes; 0 for none.
    label_round: u64,
    /// The last of these rounds whose flush failed.
    label_failed_round: u64,
    /// Whether that label is not flushed yet.
    label_pending: bool,
}

impl Unflushed {
    fn given(&self) -> MutexGuard<'_, Given> {
        self.0.lock().ignore_poison()
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

    /// The writes that a flush starting now covers; `None` when there are none.
    pub(super) fn take(&self) -> Option<Given> {
        let given = self.given();
        (given.writes > given.asked).then(|| given.clone())
    }

    /// A flush that started when `asked` were all writes has finished.
    pub(super) fn flushed(&self, asked: &Given, how: Flushed) {
        let mut given = self.given();
        given.asked = given.asked.max(asked.writes);
        match how {
            Flushed::Durable => {}
            Flushed::Lost => given.failed = joined(given.failed, asked.txgs),
            Flushed::Doubtful => given.doubtful = joined(given.doubtful, asked.txgs),
        }
        if how != Flushed::Durable && asked.label_pending {
            given.label_failed_round = given.label_failed_round.max(asked.label_round);
        }
        if given.asked == given.writes {
            given.txgs = None;
            given.label_pending = false;
        }
    }

    /// Whether data of a group up to `txg` are in doubt.
    fn is_doubtful(&self, txg: Txg) -> bool {
        self.given().doubtful.is_some_and(|(first, _)| first <= txg.get())
    }

    fn has_doubts_about(&self, txg: u64) -> bool {
        self.given().doubtful.is_some_and(|(first, last)| (first..=last).contains(&txg))
    }

    /// Data in doubt of groups up to `txg` count as just written.
    fn believe(&self, txg: Txg) {
        let mut given = self.given();
        let Some((first, last)) = given.doubtful.filter(|(first, _)| *first <= txg.get()) else { return };
        given.doubtful = (last > txg.get()).then(|| (txg.get() + 1, last));
        given.txgs = joined(given.txgs, Some((first, last.min(txg.get()))));
        given.writes += 1;
    }

    /// All data in doubt count as lost. Returns their first and last group.
    fn disbelieve(&self) -> Option<(u64, u64)> {
        let mut given = self.given();
        let doubtful = given.doubtful.take();
        given.failed = joined(given.failed, doubtful);
        doubtful
    }
}

/// The outcome of a flush for the writes before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Flushed {
    Durable,
    Lost,
    /// The device went away with them.
    Doubtful,
}

/// The first and last group of both.
fn joined(one: Option<(u64, u64)>, other: Option<(u64, u64)>) -> Option<(u64, u64)> {
    match (one, other) {
        (Some((first, last)), Some((a, b))) => Some((first.min(a), last.max(b))),
        (one, other) => one.or(other),
    }
}
