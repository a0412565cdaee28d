//! Devices of a pool that is written: taking them offline and back, clearing their errors, and writing down
//! what became of them.
//!
//! The vdev tree decides what a device is worth ([`crate::vdev::health`]); here it is made known to the pool.
//! The states that outlive an import stand in the configuration; each sync brings it up to date when a state
//! changed.
//!
//! Source of the facts: OpenZFS 2.3 `vdev.c` (`vdev_offline`, `vdev_online`, `vdev_clear`), `vdev_label.c`
//! (`vdev_config_generate`).

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use device::{Device, IgnorePoison};
use futures_util::FutureExt;
use ondisk::nvlist::ByteString;
use ondisk::uberblock::Uberblock;
use ondisk::vdev_config::VdevConfig;
use ondisk::{Guid, VdevId};

use super::parts::{Doing, Part};
use super::{Auxiliary, LivePool, Syncing};
use crate::error::{Error, Result};
use crate::pool::verify;
use crate::store::suspend::FailMode;
use crate::vdev::health::Asked;
use crate::vdev::spares::Found;
use crate::vdev::stats::Transfer;
use crate::vdev::{Aux, Class, Kind, State, Status, Vdev, config::config_path};

/// What is known of devices besides the vdev tree.
#[derive(Debug, Default)]
pub(super) struct DeviceStates {
    /// Offline or faulted only until the next import.
    temporary: Mutex<HashSet<Guid>>,
    /// The version of the tree's states that the configuration tells.
    written: AtomicU64,
    /// Devices that are being detached.
    giving_up: AtomicUsize,
}

impl Part for DeviceStates {
    fn sync<'a>(&'a self, s: &'a Syncing) -> Doing<'a> {
        s.pool.diagnose().map(|_| Ok(())).boxed()
    }
}

/// A device is being detached, as long as this lives.
pub(super) struct GivingUp(Arc<LivePool>);

impl GivingUp {
    pub(super) fn of(pool: &Arc<LivePool>) -> Self {
        pool.parts.devices.giving_up.fetch_add(1, Ordering::AcqRel);
        Self(Arc::clone(pool))
    }
}

impl Drop for GivingUp {
    fn drop(&mut self) {
        self.0.parts.devices.giving_up.fetch_sub(1, Ordering::AcqRel);
        self.0.pool.vdevs().reporter().moved();
    }
}

impl DeviceStates {
    fn temporary(&self) -> MutexGuard<'_, HashSet<Guid>> {
        self.temporary.lock().ignore_poison()
    }

    /// A device has another guid from now on.
    pub(super) fn rename(&self, from: Guid, to: Guid) {
        let mut temporary = self.temporary();
        if temporary.remove(&from) {
            temporary.insert(to);
        }
    }
}

/// How a device is taken away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TakeOffline {
    /// Until it is taken back.
    Persistently,
    /// Until then, or until the pool is imported again.
    Temporarily,
    /// As one that failed, until its errors are cleared.
    Faulted,
    /// As one that failed, until then, or until the pool is imported again.
    FaultedTemporarily,
}

impl TakeOffline {
    fn status(self) -> Status {
        match self {
            Self::Persistently | Self::Temporarily => Status::new(State::Offline, Aux::None),
            Self::Faulted | Self::FaultedTemporarily => Status::new(State::Faulted, Aux::External),
        }
    }

    fn is_fault(self) -> bool {
        matches!(self, Self::Faulted | Self::FaultedTemporarily)
    }

    fn is_temporary(self) -> bool {
        matches!(self, Self::Temporarily | Self::FaultedTemporarily)
    }
}

impl LivePool {
    /// Why nothing is written at the moment, if so, and what happens to those who want to.
    pub fn suspended(&self) -> Option<(Error, FailMode)> {
        let suspension = &self.pool.suspension;
        let why = suspension.why().or_else(|| self.txgs.stopped());
        why.map(|why| (why, suspension.mode()))
    }

    /// Looks after devices that had errors. Returns whether the state of any changed.
    pub async fn diagnose(&self) -> bool {
        let changed = self.pool.vdevs().has_unseen_errors() && self.pool.vdevs().diagnose().await;
        if changed {
            self.txgs.kick();
        }
        changed
    }

    /// Takes the device of a leaf away. What it misses meanwhile is noted. The configuration tells of it with
    /// the next group. A device that is to count as failed and that nothing else could stand in for is used
    /// on, as degraded.
    ///
    /// # Errors
    /// There is no such device, or nothing could stand in for it. A log device needs no stand-in once no log
    /// has a block on it, which this waits for; that fails where a log was not replayed yet.
    pub async fn offline(self: &Arc<Self>, leaf: Guid, how: TakeOffline) -> Result<()> {
        let vdev = self.leaf(leaf)?;
        let vdevs = self.pool.vdevs();
        let is_cache = vdevs.l2cache.iter().any(|cache| cache.guid == leaf);
        let log =
            vdevs.tops.iter().find(|top| top.class() == Class::Log && top.walk().any(|of| of.guid == leaf));
        if is_cache {
            vdevs.take_away_unneeded(vdev, how.status()).await;
            self.look_at_l2cache();
        } else if let Some(log) = log.filter(|_| vdev.status().is_readable() && !vdevs.can_do_without(vdev)) {
            self.refuse_with_checkpoint()?;
            self.empty_log(log).await?;
            vdevs.take_away_unneeded(vdev, how.status()).await;
        } else if vdevs.take_away(vdev, how.status()).await.is_err() {
            if !how.is_fault() {
                return Err(Error::Busy("no valid replicas".into()));
            }
            vdevs.set_status(vdev, Status::new(State::Degraded, Aux::External));
        }
        match how.is_temporary() {
            true => self.parts.devices.temporary().insert(leaf),
            false => self.parts.devices.temporary().remove(&leaf),
        };
        self.parts.devices.written.store(u64::MAX, Ordering::Release);
        if is_cache {
            return self.change(|s| async move { Auxiliary::Cache.write(&s).await }).await;
        }
        self.txgs.kick();
        match how.is_fault() && !vdev.status().is_readable() {
            true => self.jobs.give_up(self, |key| key.is_on(leaf)).await,
            false => Ok(()),
        }
    }

    /// Takes a leaf's device back, if it is there; what went through its free space goes on. Returns the
    /// leaf's status then.
    ///
    /// # Errors
    /// There is no such device.
    pub async fn online(self: &Arc<Self>, leaf: Guid) -> Result<Status> {
        let vdev = self.leaf(leaf)?;
        if vdev.status().state == State::Faulted {
            // Only `zpool clear` forgets errors.
            return Ok(vdev.status());
        }
        let status = self.reopen_leaf(vdev).await;
        self.parts.devices.temporary().remove(&leaf);
        self.parts.devices.written.store(u64::MAX, Ordering::Release);
        if self.pool.vdevs().l2cache.iter().any(|cache| cache.guid == leaf) {
            self.look_at_l2cache();
            self.change(|s| async move { Auxiliary::Cache.write(&s).await }).await?;
            return Ok(status);
        }
        self.config_changed();
        self.sysevent("vdev_online", Some(leaf));
        self.look_at_sizes();
        self.begin_due_resilver().await;
        self.devices_resilvered();
        self.jobs.resume(self);
        Ok(status)
    }

    /// Opens spares and cache devices that the search for the pool did not come across, where they were last
    /// seen.
    pub(super) async fn find_auxiliary(&self) {
        let vdevs = self.pool.vdevs();
        for spare in vdevs.spares.iter().filter(|spare| spare.status().aux == Aux::OpenFailed) {
            if let Found::NeedsLabel(device) = self.look_at_spare(spare, false).await {
                let identity = device.identity();
                vdevs.set_spare(spare, Some(device), (Status::HEALTHY, identity));
            }
        }
        for cache in vdevs.l2cache.iter() {
            if cache.status() == Status::new(State::CantOpen, Aux::OpenFailed) {
                self.reopen_leaf(cache).await;
            }
        }
    }

    /// The configuration of a spare or cache device, as the MOS is to tell it.
    pub(super) fn auxiliary_config(&self, vdev: &Vdev) -> VdevConfig {
        let is_offline =
            vdev.status().state == State::Offline && !self.parts.devices.temporary().contains(&vdev.guid);
        VdevConfig { offline: is_offline, ..vdev.config.clone() }
    }

    /// Puts new log blocks only on log devices that are there.
    pub(super) fn use_logs_that_are_there(&self) {
        let logs = self.pool.vdevs().tops.iter().filter(|top| top.class() == Class::Log);
        for top in logs.filter(|top| !matches!(top.kind, Kind::Hole)) {
            let is_used = top.status().is_readable() && !top.config.non_allocating;
            if let Ok(id) = u32::try_from(top.id) {
                // A vdev without metaslabs takes no blocks anyway.
                let _ = self.allocator().set_allocating(VdevId(id), is_used);
            }
        }
    }

    /// Forgets errors, of all vdevs or of one and those below it; takes devices back that failed and are
    /// there; and lets a suspended pool go on.
    ///
    /// # Errors
    /// There is no such vdev, or the pool cannot go on: what was lost is not known.
    pub async fn clear(self: &Arc<Self>, vdev: Option<Guid>) -> Result<()> {
        self.pool.suspension.check()?;
        if let Some(error) = self.txgs.stopped() {
            let detail = "what devices lost is not known; export the pool with force and import it again";
            return Err(Error::Suspended(format!("{error}; {detail}")));
        }
        let vdevs = self.pool.vdevs();
        let chosen: Vec<&Vdev> = match vdev {
            Some(guid) => {
                let vdev = vdevs.find(guid);
                vdev.ok_or_else(|| Error::NotFound(format!("vdev {guid}")))?.walk().collect()
            }
            None => {
                self.pool.root_errors().clear();
                self.dsl.stalled_trees().clear();
                let auxiliary = vdevs.spares.iter().chain(vdevs.l2cache.iter());
                vdevs.tops.iter().chain(auxiliary).flat_map(Vdev::walk).collect()
            }
        };
        vdevs.reporter().forget_errors(vdev);
        for vdev in &chosen {
            self.note_doubt(vdev);
            vdev.errors.clear();
            vdev.stats.clear_slow();
            let state = vdev.status().state;
            // A spare in use is a leaf of the tree too, and others are looked at below.
            let is_spare = vdevs.spares.iter().any(|spare| std::ptr::eq(spare, *vdev));
            let may_open = !matches!(state, State::Healthy | State::Offline) && !is_spare;
            if matches!(vdev.kind, Kind::Leaf(_)) && may_open {
                self.reopen_leaf(vdev).await;
                self.sysevent("vdev_clear", Some(vdev.guid));
            }
        }
        self.config_changed();
        self.look_at_l2cache();
        self.pool.suspension.resume();
        self.look_at_sizes();
        self.look_for_resilver();
        self.devices_resilvered();
        self.jobs.resume(self);
        self.look_at_spares(true).await;
        // A pool that is suspended again commits nothing that could be waited for.
        match self.suspended() {
            None => self.unspare(chosen.into_iter().map(|vdev| vdev.guid).collect()).await,
            Some(_) => Ok(()),
        }
    }

    /// Whether a device is being detached. It may be in the tree no more, and not be free yet.
    pub fn gives_up_device(&self) -> bool {
        self.parts.devices.giving_up.load(Ordering::Acquire) > 0
    }

    /// Opens devices again that are not there, and asks the others whether they are there, are still the
    /// pool's, and have grown (`zpool reopen`). One that is not is given up.
    pub async fn reopen(self: &Arc<Self>) {
        let mut back = Vec::new();
        let vdevs = self.pool.vdevs();
        let is_lost = |leaf: &&Vdev| matches!(leaf.status().state, State::CantOpen | State::Removed);
        let lost: Vec<&Vdev> = vdevs.leaves().chain(vdevs.l2cache.iter()).filter(is_lost).collect();
        self.ask_devices().await;
        for leaf in lost {
            if matches!(leaf.kind, Kind::Leaf(_)) && self.reopen_leaf(leaf).await.is_readable() {
                self.config_changed();
                back.push(leaf.guid);
            }
        }
        self.look_at_spares(true).await;
        self.look_at_l2cache();
        self.look_at_sizes();
        self.look_for_resilver();
        self.devices_resilvered();
        self.jobs.resume(self);
        if self.suspended().is_none()
            && let Err(error) = self.unspare(back).await
        {
            tracing::warn!(pool = self.pool.name(), %error, "hot spares do not go back");
        }
    }

    /// Asks the devices in use whether they are there and still the pool's, and gives up those that are not.
    /// A scan begins with this, so that it neither trusts nor repairs what is on another pool's device.
    pub(super) async fn ask_devices(self: &Arc<Self>) {
        let (vdevs, pool) = (self.pool.vdevs(), self.guid());
        let mut others = Vec::new();
        for leaf in vdevs.leaves().chain(vdevs.l2cache.iter()) {
            match vdevs.ask(leaf, pool).await {
                Asked::NotInUse | Asked::IsThere => {}
                Asked::GivenUp => self.txgs.kick(),
                Asked::HasOtherLabel => others.push(leaf.guid),
                Asked::NeedsLabel => {
                    tracing::warn!(
                        pool = self.pool.name(),
                        vdev = leaf.name,
                        "a device lost its labels, and gets them anew: no other device holds its data"
                    );
                    self.config_changed();
                    self.txgs.kick();
                }
            }
        }
        self.look_at_l2cache();
        if others.is_empty() || self.suspended().is_some() {
            return;
        }
        // The pool may be getting another guid just now. Before its tasks a group changes no label.
        let confirmed = self.change_first(move |s| async move {
            let vdevs = s.pool.pool.vdevs();
            for leaf in vdevs.leaves().chain(vdevs.l2cache.iter()).filter(|leaf| others.contains(&leaf.guid))
            {
                vdevs.give_up_other(leaf, s.pool.guid()).await;
            }
            Ok(())
        });
        if let Err(error) = confirmed.await {
            tracing::warn!(pool = self.pool.name(), %error, "devices with other labels stay in use");
        }
    }

    /// Leaves that are `REMOVED` or `UNAVAIL`, and whose devices are there again: each with the label that it
    /// had.
    pub async fn devices_that_are_back(&self) -> Vec<Guid> {
        let vdevs = self.pool.vdevs();
        let mut back = Vec::new();
        for leaf in vdevs.leaves().chain(vdevs.l2cache.iter()) {
            let is_gone = matches!(leaf.status().state, State::Removed)
                || leaf.status() == Status::new(State::CantOpen, Aux::OpenFailed);
            if is_gone && matches!(leaf.kind, Kind::Leaf(_)) {
                let path = self.path_of_leaf(leaf);
                if vdevs.is_back(leaf, self.guid(), path.as_deref()).await {
                    back.push(leaf.guid);
                }
            }
        }
        back
    }

    /// Gives up waiting for devices: what was not committed is lost, as in a crash, and waiting callers get
    /// an error. For closing a pool by force. `why` is said where the pool has no reason of its own.
    pub fn abandon(&self, why: &str) {
        let why = self.suspended().map_or_else(|| why.to_owned(), |(error, _)| error.to_string());
        self.stop(Error::Suspended(format!("pool '{}' was given up: {why}", self.pool.name())));
    }

    /// From now on no caller waits for devices: a write that fails gets the error, and nothing more is
    /// committed. For pools that are worth less than the time of those who wait. [`LivePool::start`] takes it
    /// back.
    pub fn never_wait(&self) {
        self.pool.suspension.give_up();
    }

    /// Closes its devices, so that others can have them, even if the pool is still in use. Only when nothing
    /// more is committed.
    pub fn let_go(&self) -> Vec<Arc<dyn Device>> {
        self.pool.vdevs().let_go()
    }

    /// A number that changes as long as something is done on the devices, or committed.
    pub fn progress(&self) -> u64 {
        let kinds = [Transfer::Read, Transfer::Write, Transfer::Flush, Transfer::Discard];
        let of_leaf =
            |leaf: &Vdev| kinds.iter().map(|kind| leaf.stats.snapshot(*kind).operations).sum::<u64>();
        self.pool.vdevs().leaves().map(of_leaf).sum::<u64>().wrapping_add(self.txgs.synced_txg().get())
    }

    pub(super) fn path_of_leaf(&self, leaf: &Vdev) -> Option<PathBuf> {
        let told: Option<PathBuf> = self.config().find_mut(leaf.guid).and_then(|config| config_path(config));
        told.or_else(|| config_path(&leaf.config))
    }

    async fn reopen_leaf(&self, leaf: &Vdev) -> Status {
        self.note_doubt(leaf);
        let path = self.path_of_leaf(leaf);
        self.pool.vdevs().reopen(leaf, self.guid(), path.as_deref()).await
    }

    pub(super) fn leaf(&self, guid: Guid) -> Result<&Vdev> {
        let vdevs = self.pool.vdevs();
        let leaf = vdevs.leaves().chain(vdevs.l2cache.iter()).find(|leaf| leaf.guid == guid);
        leaf.filter(|leaf| matches!(leaf.kind, Kind::Leaf(_)))
            .ok_or_else(|| Error::NotFound(format!("device {guid}")))
    }

    /// Devices that lack nothing any more are not being resilvered.
    fn forget_resilvers(&self) {
        let is_whole = |leaf: &&Vdev| leaf.config.resilver_txg.is_some() && leaf.missing_txgs.is_empty();
        for leaf in self.pool.vdevs().leaves().filter(is_whole) {
            if self.config().find_mut(leaf.guid).is_some_and(|config| config.resilver_txg.take().is_some()) {
                self.config_changed();
            }
        }
    }

    /// Brings the states that the configuration tells up to date.
    pub(super) fn take_up_states(&self) {
        self.forget_resilvers();
        let vdevs = self.pool.vdevs();
        let version = vdevs.status_version();
        if self.parts.devices.written.swap(version, Ordering::AcqRel) == version {
            return;
        }
        self.use_logs_that_are_there();
        let mut changed = false;
        for leaf in vdevs.leaves().filter(|leaf| matches!(leaf.kind, Kind::Leaf(_))) {
            let Status { state, aux } = leaf.status();
            let temporary = self.parts.devices.temporary().contains(&leaf.guid);
            let mut config = self.config();
            let Some(config) = config.find_mut(leaf.guid) else { continue };
            let told = (config.offline, config.faulted, config.degraded, config.removed);
            let aux_told = config.aux_state.clone();
            config.offline = state == State::Offline && !temporary;
            config.faulted = state == State::Faulted && !temporary;
            config.degraded = state == State::Degraded;
            config.removed = state == State::Removed;
            config.aux_state = match (state, aux) {
                (State::Faulted | State::Degraded, Aux::ErrorsExceeded) => Some("err_exceeded"),
                (State::Faulted | State::Degraded, Aux::External) if !temporary => Some("external"),
                _ => None,
            }
            .map(|text| ByteString::new(text.as_bytes()));
            let tells = (config.offline, config.faulted, config.degraded, config.removed);
            changed |= told != tells || aux_told != config.aux_state;
        }
        if changed {
            self.config_changed();
        }
    }
}

impl LivePool {
    /// Makes a write until it is made, or until there is no hope.
    pub(super) async fn until_written(&self, write: impl AsyncFn() -> Result<()>) -> Result<()> {
        loop {
            let Err(error) = write().await else { return Ok(()) };
            self.pool.vdevs().diagnose().await;
            self.pool.suspension.wait(error).await?;
        }
    }

    /// Makes a write, and flushes it with all that was written before, until it is durable or there is no
    /// hope. `uberblock` leads to all of the group.
    pub(super) async fn until_durable(
        &self,
        uberblock: &Uberblock,
        write: impl AsyncFn() -> Result<()>,
    ) -> Result<()> {
        loop {
            self.until_written(&write).await?;
            let Err(error) = self.writer().flush_group(uberblock.txg).await else { return Ok(()) };
            self.until_read_back(uberblock, error).await?;
        }
    }

    /// After a flush that failed: waits for the devices that went away, and reads the group back from them.
    ///
    /// # Errors
    /// Something was lost.
    async fn until_read_back(&self, uberblock: &Uberblock, error: Error) -> Result<()> {
        let vdevs = self.pool.vdevs();
        loop {
            vdevs.diagnose().await;
            match vdevs.can_be_read_back(uberblock.txg) {
                Some(true) => {}
                Some(false) => {
                    self.pool.suspension.wait(error.clone()).await?;
                    continue;
                }
                None if vdevs.has_lost() => return Err(error),
                // Only labels, which are written again.
                None => return self.pool.suspension.wait(error).await,
            }
            let config = self.views.newest().config().clone();
            let written = self.pool.at(uberblock.clone(), config, self.checkpoint());
            let is_there = match verify::is_group_there(&written, uberblock.txg) {
                Err(error) if error.may_pass() => {
                    vdevs.diagnose().await;
                    self.pool.suspension.wait(error).await?;
                    continue;
                }
                is_there => is_there?,
            };
            if is_there {
                tracing::info!(
                    pool = self.pool.name(),
                    "what a device was given before it went away is there"
                );
                vdevs.believe(uberblock.txg);
                return Ok(());
            }
            vdevs.diagnose().await;
            if vdevs.can_be_read_back(uberblock.txg) == Some(true) {
                vdevs.disbelieve();
                return Err(error);
            }
        }
    }
}
