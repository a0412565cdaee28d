//! Devices that fail: when a leaf is given up, and how it is reopened.
//!
//! # The idea
//! Transfers only count errors. [`VdevTree::diagnose`] examines the leaves that had errors since its last
//! call, and judges them as OpenZFS and its event daemon do:
//!
//! | observation | new state |
//! |---|---|
//! | a small transfer to the blank part of its label shows that the device is gone | `REMOVED` |
//! | that transfer fails in another way | `FAULTED`, too many errors |
//! | that transfer succeeds, but ten transfers failed within ten minutes | `FAULTED`, or `DEGRADED` without redundancy for it, to which devices that are being replaced do not count |
//! | ten reads within ten minutes returned wrong bytes | `DEGRADED`, too many errors |
//! | more slow transfers than `slow_io_n` within `slow_io_t` seconds, if both are set | `DEGRADED`, too many errors |
//! | the last three, and a sibling that is in use had errors of the same kind within its time | unchanged |
//!
//! Errors of several children of one vdev are more likely those of what they have in common, such as a cable
//! or a controller. A vdev that gave its children up for them one after the other would lose its redundancy.
//! A device that goes on failing is given up as soon as its siblings had no errors for so long.
//!
//! The properties `io_n`, `io_t`, `checksum_n` and `checksum_t` of vdevs change the other numbers and times.
//!
//! A leaf that is not `ONLINE` or `DEGRADED` is neither read nor written. The groups that it misses go into
//! its dirty time log, so that it is not trusted for them when it is back. [`VdevTree::reopen`] brings it
//! back when its label shows that it is still the same device.
//!
//! # Labels
//! Devices that work are asked for their labels too, when a scan begins and when a person asks for it
//! (`VdevTree::ask`), because another program may have written to them:
//!
//! | label | what happens |
//! |---|---|
//! | of another pool or device | `UNAVAIL`, corrupted data, even if the pool cannot do without it |
//! | none, and other devices hold the same data | `UNAVAIL`, invalid label |
//! | none, and no others do | the device stays in use, and gets its label anew |
//! | one of them cannot be read | unchanged: errors are judged as above |
//!
//! Writes to a device that were not durable when it was reopened count as missed, because the device may have
//! lost power. If no other device holds these data, they are in doubt instead, until they are read back
//! ([`super::write`]).
//!
//! # Without redundancy
//! A device without redundancy is also given up when it is gone. Then its pool is suspended
//! ([`super::super::pool::live`]) until it is back.
//!
//! | lock | guards | order |
//! |---|---|---|
//! | `Changes` | one change of statuses or of the tree at a time; for a few lines | before those of slots |
//! | `ErrorCounters::recent` | the times of errors | taken alone |
//!
//! Source of the facts: OpenZFS 2.3 `vdev.c` (`vdev_probe`, `vdev_fault`, `vdev_offline`, `vdev_online`,
//! `vdev_dtl_required`, `vdev_reopen`, `vdev_validate`), `cmd/zed/agents/zfs_diagnosis.c` (numbers and times
//! of errors).

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use device::address::{is_address, is_complete};
use device::{Cause, Device, IgnorePoison, IoError, OpenOptions, Ownership};
use ondisk::Guid;

use super::capacity::usable_bytes;
use super::errors::Kinds;
use super::label::{best_label, can_read_labels, read_labels};
use super::open::open_again;
use super::release::release;
use super::spares::IN_USE;
use super::topology::parent_of_vdev;
use super::write::{Flushed, Without};
use super::{Aux, Kind, State, Status, Vdev, VdevTree, state_of_parent};

/// Unused bytes at the beginning of a label.
const BLANK_BYTES: usize = 8 << 10;

/// Linux's error numbers for devices that are gone.
const GONE: [i32; 2] = [6, 19];

/// The status of a leaf whose device has no label.
const NO_LABEL: Status = Status::new(State::CantOpen, Aux::BadLabel);
/// The status of a leaf whose device has the label of something else.
const OTHER_LABEL: Status = Status::new(State::CantOpen, Aux::CorruptData);

/// What came of asking the device of a leaf.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asked {
    /// The leaf has no device in use.
    NotInUse,
    /// The device is what it was.
    IsThere,
    /// The leaf was given up.
    GivenUp,
    /// No label is there, and no other device holds what this one does.
    NeedsLabel,
    /// The label is of another pool or device, unless labels are being written.
    HasOtherLabel,
}

/// Whose device it is, by its labels.
enum Identity {
    /// The leaf's.
    Same,
    /// That of another leaf or pool.
    Other,
    /// No label is there.
    Nothing,
    /// A label could not be read.
    Unknown,
}

/// Serializes changes of statuses, and counts them.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    turn: Mutex<()>,
    version: AtomicU64,
}

impl Changes {
    /// No other thread changes statuses, or the tree, as long as the guard lives.
    pub(super) fn turn(&self) -> MutexGuard<'_, ()> {
        self.turn.lock().ignore_poison()
    }

    /// Statuses or the tree have changed.
    pub(super) fn count(&self) {
        self.version.fetch_add(1, Ordering::AcqRel);
    }
}

/// The error when the device of a leaf is needed and cannot be taken away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Required;

impl VdevTree {
    /// A number that changes with the status of any vdev, and with the tree.
    pub fn status_version(&self) -> u64 {
        self.changes.version.load(Ordering::Acquire)
    }

    /// Sets the status of a leaf, and updates the vdevs above it.
    pub fn set_status(&self, leaf: &Vdev, status: Status) {
        let _turn = self.changes.turn();
        let before = leaf.status();
        if leaf.status.set(status) {
            // A hot spare that comes into use, or goes back, did not fail.
            let is_use = status == IN_USE || (before == IN_USE && status.is_readable());
            if !is_use {
                self.reporter().state_changed(&self.facts(leaf), before.state.number());
                tracing::warn!(vdev = leaf.name, state = %status.state, "the state of a device changed");
            }
            self.changes.count();
            if !status.is_readable() {
                leaf.absences.fetch_add(1, Ordering::AcqRel);
            }
        }
        self.tops.iter().for_each(Vdev::refresh);
    }

    /// Whether a leaf had errors since the last [`VdevTree::diagnose`].
    pub(crate) fn has_unseen_errors(&self) -> bool {
        let mut all = self.leaves().chain(self.l2cache.iter());
        all.any(|leaf| leaf.errors.has_unseen() || leaf.stats.has_unseen_slow())
    }

    /// Gives up the leaves that had too many errors since the last call, and marks devices that are gone as
    /// removed. Returns whether any status changed.
    pub async fn diagnose(&self) -> bool {
        let before = self.status_version();
        // Of all leaves before one is judged, because those that are slow together are not given up.
        for leaf in self.leaves().chain(self.l2cache.iter()) {
            for slow in leaf.stats.take_slow() {
                leaf.errors.note_slow(slow.ended);
                self.report_slow(leaf, &slow);
            }
        }
        for leaf in self.leaves().chain(self.l2cache.iter()) {
            let Some(recent) = leaf.errors.take_recent() else { continue };
            let Kind::Leaf(slot) = &leaf.kind else { continue };
            let (Some(device), true) = (slot.device(), leaf.status().is_readable()) else { continue };
            if recent.transfers_failed {
                match probe(&*device).await {
                    Err(error) if is_gone(&error) => {
                        self.set_status(leaf, Status::new(State::Removed, Aux::None));
                        continue;
                    }
                    Err(_) => {
                        self.report_probe(leaf);
                        self.set_status(leaf, Status::new(State::Faulted, Aux::ErrorsExceeded));
                        continue;
                    }
                    Ok(()) => {}
                }
            }
            let of_siblings = self.kinds_of_siblings(leaf);
            let too_many = recent.too_many;
            let is_poor =
                (too_many.checksums && !of_siblings.checksums) || (too_many.slow && !of_siblings.slow);
            let is_failing = too_many.transfers && !of_siblings.transfers;
            let state = match (is_failing, is_poor) {
                (true, _) if self.may_fault(leaf) => State::Faulted,
                (true, _) | (_, true) => State::Degraded,
                _ => continue,
            };
            self.set_status(leaf, Status::new(state, Aux::ErrorsExceeded));
        }
        self.status_version() != before
    }

    /// Which kinds of errors other children of the same vdev had lately, of those that are in use.
    fn kinds_of_siblings(&self, leaf: &Vdev) -> Kinds {
        let parent = self.tops.iter().find_map(|top| parent_of_vdev(top, leaf.guid));
        let children = parent.map_or(&[][..], |parent| &parent.children);
        let siblings =
            children.iter().filter(|child| child.guid != leaf.guid && child.status().is_readable());
        siblings.map(|sibling| sibling.errors.kinds()).fold(Kinds::default(), Kinds::or)
    }

    /// Whether all stored data can be read without this leaf (the opposite of `vdev_dtl_required`).
    pub fn can_do_without(&self, leaf: &Vdev) -> bool {
        self.all_is_held(leaf, Without::leaf(Some(leaf.guid)))
    }

    /// Whether a leaf may be given up because it fails. Other devices that are being replaced do not count as
    /// redundancy for that: they are likely to fail next.
    fn may_fault(&self, leaf: &Vdev) -> bool {
        self.all_is_held(leaf, Without { leaf: Some(leaf.guid), others_in_replacement: true })
    }

    /// Whether the top-level vdev of a leaf holds all stored data even without something.
    fn all_is_held(&self, leaf: &Vdev, without: Without) -> bool {
        let mut tops = self.tops.iter().filter(|top| top.walk().any(|vdev| vdev.guid == leaf.guid));
        tops.all(|top| {
            // Between the starts of the missed ranges, redundancy only improves; no future group is missed.
            let beginnings = top.beginnings().into_iter();
            std::iter::once(u64::MAX).chain(beginnings).all(|txg| top.holds(txg, without))
        })
    }

    /// Closes the device of a leaf and gives the leaf this status.
    ///
    /// # Errors
    /// The leaf is needed: no other device holds its data.
    pub async fn take_away(&self, leaf: &Vdev, status: Status) -> Result<(), Required> {
        let may_go = match status.state {
            State::Faulted => self.may_fault(leaf),
            _ => self.can_do_without(leaf),
        };
        if leaf.status().is_readable() && !may_go {
            return Err(Required);
        }
        self.take_away_unneeded(leaf, status).await;
        Ok(())
    }

    /// The same for a leaf whose data the pool does not need. Returns when the device is free for others.
    pub(crate) async fn take_away_unneeded(&self, leaf: &Vdev, status: Status) {
        let Kind::Leaf(slot) = &leaf.kind else { return };
        if let Some(device) = slot.device() {
            self.flush_before_closing(leaf, &*device).await;
        }
        self.set_status(leaf, status);
        release(slot.replace(None).into_iter().collect()).await;
    }

    /// Lets go of all devices, each of which is closed when its last transfer is done. Later reads and writes
    /// fail. Who wants to know when they are free waits for their [`release`].
    pub fn let_go(&self) -> Vec<Arc<dyn Device>> {
        self.leave_spares();
        let all = self.tops.iter().chain(self.spares.iter()).chain(self.l2cache.iter());
        all.flat_map(Vdev::walk).filter_map(Vdev::close).collect()
    }

    async fn flush_before_closing(&self, leaf: &Vdev, device: &dyn Device) {
        if let Some(given) = leaf.unflushed.take() {
            let how = match device.flush().await {
                Ok(()) => Flushed::Durable,
                Err(_) => {
                    self.note_missed(leaf, given.txgs);
                    Flushed::Lost
                }
            };
            leaf.unflushed.flushed(&given, how);
        }
    }

    /// Reopens the device of a leaf if it does not work, and updates the leaf's status. `pool` is the guid
    /// that the label must have; `path` is the path of the device. Without a path, as for devices in memory,
    /// the previous device is used.
    pub async fn reopen(&self, leaf: &Vdev, pool: Guid, path: Option<&std::path::Path>) -> Status {
        let status = self.try_reopen(leaf, pool, path).await;
        if status.is_readable() {
            leaf.errors.clear();
            self.reporter().forget_errors(Some(leaf.guid));
            // If it was not in use, its device is checked again.
            if !leaf.status().is_readable() {
                leaf.cannot_discard.store(false, Ordering::Relaxed);
            }
        }
        self.set_status(leaf, status);
        status
    }

    /// Asks the device of a leaf in use whether it is there and has the leaf's label, and gives the leaf up
    /// if it is not, does not work, or lost its label. `pool` is the guid that the label must have.
    pub(crate) async fn ask(&self, leaf: &Vdev, pool: Guid) -> Asked {
        let Kind::Leaf(slot) = &leaf.kind else { return Asked::NotInUse };
        let (Some(device), true) = (slot.device(), leaf.status().is_readable()) else {
            return Asked::NotInUse;
        };
        let asked = match self.injections.fails_to_open(leaf.guid) {
            true => None,
            false => Some(probe(&*device).await),
        };
        let status = match asked {
            Some(Ok(())) => {
                let identity = self.identity_of(leaf, pool, &*device).await;
                // It is free as soon as it is given up.
                drop(device);
                return self.judge_identity(leaf, identity).await;
            }
            Some(Err(error)) if !is_gone(&error) => {
                self.report_probe(leaf);
                Status::new(State::Faulted, Aux::ErrorsExceeded)
            }
            _ => {
                self.report_open(leaf, "vdev.open_failed");
                Status::new(State::CantOpen, Aux::OpenFailed)
            }
        };
        self.set_status(leaf, status);
        Asked::GivenUp
    }

    async fn judge_identity(&self, leaf: &Vdev, identity: Identity) -> Asked {
        match identity {
            Identity::Same | Identity::Unknown => Asked::IsThere,
            Identity::Other => Asked::HasOtherLabel,
            Identity::Nothing => match self.take_away(leaf, NO_LABEL).await {
                Ok(()) => {
                    self.report_open(leaf, "vdev.bad_label");
                    Asked::GivenUp
                }
                // What it holds is held nowhere else, and every block has its checksum.
                Err(Required) => Asked::NeedsLabel,
            },
        }
    }

    /// Gives a leaf up if its device has the label of something else still, even if nothing else holds its
    /// data: what is written there would destroy what is not this pool's. Only where no label is being
    /// written. Returns whether it was given up.
    pub(crate) async fn give_up_other(&self, leaf: &Vdev, pool: Guid) -> bool {
        let Kind::Leaf(slot) = &leaf.kind else { return false };
        let (Some(device), true) = (slot.device(), leaf.status().is_readable()) else { return false };
        let is_other = matches!(self.identity_of(leaf, pool, &*device).await, Identity::Other);
        drop(device);
        if is_other {
            self.take_away_unneeded(leaf, OTHER_LABEL).await;
            self.report_open(leaf, "vdev.corrupt_data");
        }
        is_other
    }

    /// Whether the device of a leaf that was gone is there again, with the leaf's label. Nothing is written.
    pub(crate) async fn is_back(&self, leaf: &Vdev, pool: Guid, path: Option<&std::path::Path>) -> bool {
        let Kind::Leaf(slot) = &leaf.kind else { return false };
        if self.injections.fails_to_open(leaf.guid) {
            return false;
        }
        // What is in its place counts, and not what was there when it was opened.
        let own = slot.device().filter(|device| device.traits().ownership == Ownership::Last);
        let device = match path.filter(|path| is_complete(path)) {
            _ if own.is_some() => own,
            Some(path) if !is_address(path) && !path.exists() => None,
            Some(path) => {
                let opened = OpenOptions::read_only().open_device(path).ok();
                opened.map(|device| self.injected(leaf, device))
            }
            None => slot.device(),
        };
        match device {
            Some(device) => self.validated(leaf, pool, &*device).await.is_readable(),
            None => false,
        }
    }

    async fn try_reopen(&self, leaf: &Vdev, pool: Guid, path: Option<&std::path::Path>) -> Status {
        let Kind::Leaf(slot) = &leaf.kind else { return leaf.status() };
        if self.injections.fails_to_open(leaf.guid) {
            return Status::new(State::CantOpen, Aux::OpenFailed);
        }
        let cannot_open = Status::new(State::CantOpen, Aux::OpenFailed);
        if let Some(device) = slot.device() {
            match probe(&*device).await {
                Ok(()) => return self.validated(leaf, pool, &*device).await,
                // It has what was written to it, and goes on by itself.
                Err(_) if device.traits().ownership == Ownership::Last => return cannot_open,
                Err(_) => {}
            }
        }
        let Some(path) = path.filter(|path| is_complete(path)) else { return cannot_open };
        // A file is locked while it is open.
        drop(slot.replace(None));
        let device = match open_again(path, leaf.ashift) {
            Ok(device) => device,
            Err(error) => {
                tracing::info!(%error, "the device of a pool cannot be opened");
                if leaf.status().state != State::CantOpen {
                    self.report_open(leaf, "vdev.open_failed");
                }
                return cannot_open;
            }
        };
        let device = self.injected(leaf, device);
        if let Err(error) = probe(&*device).await {
            tracing::info!(%error, "a device does not work");
            if is_gone(&error) {
                return cannot_open;
            }
            return Status::new(State::Faulted, Aux::ErrorsExceeded);
        }
        let status = self.validated(leaf, pool, &*device).await;
        if status.is_readable() {
            if let Some(given) = leaf.unflushed.take() {
                self.gone_with(leaf, &given);
            }
            slot.replace(Some(device));
        }
        status
    }

    /// Whether this is the same device that the leaf had.
    async fn validated(&self, leaf: &Vdev, pool: Guid, device: &dyn Device) -> Status {
        let needed = leaf.bytes_needed.load(Ordering::Acquire);
        match self.identity_of(leaf, pool, device).await {
            Identity::Nothing | Identity::Unknown => NO_LABEL,
            Identity::Other => OTHER_LABEL,
            Identity::Same if usable_bytes(device.size_bytes()) < needed => {
                Status::new(State::CantOpen, Aux::TooSmall)
            }
            Identity::Same => Status::HEALTHY,
        }
    }

    /// What the labels of a device say of it. A leaf that became a top-level vdev has the guid of that before
    /// its label says so.
    async fn identity_of(&self, leaf: &Vdev, pool: Guid, device: &dyn Device) -> Identity {
        let Some(label) = best_label(read_labels(device).await) else {
            return match can_read_labels(device).await {
                true => Identity::Nothing,
                false => Identity::Unknown,
            };
        };
        let is_top = self.tops.iter().any(|top| top.guid == leaf.guid);
        let is_leaf = label.guid == Some(leaf.guid) || (is_top && label.top_guid == Some(leaf.guid));
        match is_leaf && label.pool_guid.is_none_or(|guid| guid == pool) {
            true => Identity::Same,
            false => Identity::Other,
        }
    }
}

impl Vdev {
    /// Its status.
    pub fn status(&self) -> Status {
        self.status.get()
    }

    /// Lets go of the device of a leaf, which is closed when its last transfer is done. Returns it.
    pub(crate) fn close(&self) -> Option<Arc<dyn Device>> {
        match &self.kind {
            Kind::Leaf(slot) => slot.replace(None),
            _ => None,
        }
    }

    /// Updates the status of each vdev with children from their statuses.
    pub(super) fn refresh(&self) {
        self.children.iter().for_each(Vdev::refresh);
        let spare_children = match &self.kind {
            Kind::Mirror | Kind::Replacing | Kind::Spare => self.children.len().saturating_sub(1),
            Kind::Raidz(raidz) => raidz.nparity(),
            Kind::Draid(draid) => draid.config().nparity,
            _ => return,
        };
        let of_children: Vec<Status> = self.children.iter().map(Vdev::status).collect();
        self.status.set(state_of_parent(&of_children, spare_children));
    }
}

/// Reads the blank part of the first label, and writes it back unchanged.
async fn probe(device: &dyn Device) -> Result<(), IoError> {
    let blank = device.read(0, BLANK_BYTES).await?;
    device.write(0, blank).await.map(drop)
}

/// Whether an error means that the device is gone.
pub(super) fn is_gone(error: &IoError) -> bool {
    matches!(error.cause, Cause::Missing) || GONE.contains(&error.errno())
}
