//! Devices of a pool that is written: taking them offline and back, clearing their errors, and writing down what became of them.
//!
//! The vdev tree decides what a device is worth ([`crate::vdev::health`]); here it is made known to the pool. The states that outlive an import stand in the
//! configuration; each sync brings it up to date when a state changed.
//!
//! Source of the facts: OpenZFS 2.3 `vdev.c` (`vdev_offline`, `vdev_online`, `vdev_clear`), `vdev_label.c` (`vdev_config_generate`).

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use ondisk::Guid;
use ondisk::nvlist::ByteString;
use ondisk::uberblock::Uberblock;

use super::LivePool;
use crate::error::{Error, Result};
use crate::pool::suspend::FailMode;
use crate::pool::verify;
use crate::vdev::stats::Transfer;
use crate::vdev::{Aux, Kind, State, Status, Vdev, config::config_path};

/// What is known of devices besides the vdev tree.
#[derive(Debug, Default)]
pub(super) struct DeviceStates {
    /// Offline only until the next import.
    temporary: Mutex<HashSet<Guid>>,
    /// The version of the tree's states that the configuration tells.
    written: AtomicU64,
}

impl DeviceStates {
    fn temporary(&self) -> MutexGuard<'_, HashSet<Guid>> {
        self.temporary.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How a device is taken away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TakeOffline {
    /// Until it is taken back.
    Persistently,
    /// Until then, or until the pool is imported again.
    Temporarily,
    /// As one that failed.
    Faulted,
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

    /// Takes the device of a leaf away. What it misses meanwhile is noted. The configuration tells of it with the next group.
    ///
    /// # Errors
    /// There is no such device, or nothing could stand in for it.
    pub async fn offline(&self, leaf: Guid, how: TakeOffline) -> Result<()> {
        let vdev = self.leaf(leaf)?;
        let status = match how {
            TakeOffline::Faulted => Status::new(State::Faulted, Aux::External),
            _ => Status::new(State::Offline, Aux::None),
        };
        let taken = self.pool.vdevs().take_away(vdev, status).await;
        taken.map_err(|_| Error::Busy("no valid replicas".into()))?;
        match how {
            TakeOffline::Temporarily => self.devices.temporary().insert(leaf),
            _ => self.devices.temporary().remove(&leaf),
        };
        self.devices.written.store(u64::MAX, Ordering::Release);
        self.txgs.kick();
        Ok(())
    }

    /// Takes a leaf's device back, if it is there. Returns the leaf's status then.
    ///
    /// # Errors
    /// There is no such device.
    pub async fn online(&self, leaf: Guid) -> Result<Status> {
        let vdev = self.leaf(leaf)?;
        if vdev.status().state == State::Faulted {
            // Only `zpool clear` forgets errors.
            return Ok(vdev.status());
        }
        let status = self.reopen_leaf(vdev).await;
        self.devices.temporary().remove(&leaf);
        self.devices.written.store(u64::MAX, Ordering::Release);
        self.config_changed();
        self.look_at_sizes();
        Ok(status)
    }

    /// Forgets errors, of all vdevs or of one and those below it; takes devices back that failed and are there; and lets a suspended pool go on.
    ///
    /// # Errors
    /// There is no such vdev, or the pool cannot go on: what was lost is not known.
    pub async fn clear(&self, vdev: Option<Guid>) -> Result<()> {
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
                let auxiliary = vdevs.spares.iter().chain(vdevs.l2cache.iter());
                vdevs.tops.iter().chain(auxiliary).flat_map(Vdev::walk).collect()
            }
        };
        for vdev in chosen {
            vdev.errors.clear();
            let state = vdev.status().state;
            if matches!(vdev.kind, Kind::Leaf(_)) && !matches!(state, State::Healthy | State::Offline) {
                self.reopen_leaf(vdev).await;
            }
        }
        self.config_changed();
        self.pool.suspension.resume();
        self.look_at_sizes();
        Ok(())
    }

    /// Opens devices again that are not there, and looks whether the others have grown (`zpool reopen`).
    pub async fn reopen(&self) {
        for leaf in self.pool.vdevs().leaves() {
            let lost = matches!(leaf.status().state, State::CantOpen | State::Removed);
            if matches!(leaf.kind, Kind::Leaf(_)) && lost && self.reopen_leaf(leaf).await.is_readable() {
                self.config_changed();
            }
        }
        self.look_at_sizes();
    }

    /// Gives up waiting for devices: what was not committed is lost, as in a crash, and whoever waits gets an error. For closing a pool by force. `why` is said where the
    /// pool has no reason of its own.
    pub fn abandon(&self, why: &str) {
        let why = self.suspended().map_or_else(|| why.to_owned(), |(error, _)| error.to_string());
        self.stop(Error::Suspended(format!("pool '{}' was given up: {why}", self.pool.name())));
    }

    /// From now on nobody waits for devices: whoever cannot write gets the error, and nothing more is committed. For pools that are worth less than the time of those
    /// who wait. [`LivePool::start`] takes it back.
    pub fn never_wait(&self) {
        self.pool.suspension.give_up();
    }

    /// Closes its devices, so that others can have them, whoever still has the pool. Only when nothing more is committed.
    pub fn let_go(&self) {
        self.pool.vdevs().let_go();
    }

    /// A number that changes as long as something is done on the devices, or committed.
    pub fn progress(&self) -> u64 {
        let kinds = [Transfer::Read, Transfer::Write, Transfer::Flush, Transfer::Discard];
        let of_leaf =
            |leaf: &Vdev| kinds.iter().map(|kind| leaf.stats.snapshot(*kind).operations).sum::<u64>();
        self.pool.vdevs().leaves().map(of_leaf).sum::<u64>().wrapping_add(self.txgs.synced_txg().get())
    }

    async fn reopen_leaf(&self, leaf: &Vdev) -> Status {
        let path: Option<PathBuf> = self.config().find_mut(leaf.guid).and_then(|config| config_path(config));
        self.pool.vdevs().reopen(leaf, self.guid(), path.as_deref()).await
    }

    fn leaf(&self, guid: Guid) -> Result<&Vdev> {
        let leaf = self.pool.vdevs().leaves().find(|leaf| leaf.guid == guid);
        leaf.filter(|leaf| matches!(leaf.kind, Kind::Leaf(_)))
            .ok_or_else(|| Error::NotFound(format!("device {guid}")))
    }

    /// Brings the states that the configuration tells up to date.
    pub(super) fn take_up_states(&self) {
        let vdevs = self.pool.vdevs();
        let version = vdevs.status_version();
        if self.devices.written.swap(version, Ordering::AcqRel) == version {
            return;
        }
        let mut changed = false;
        for leaf in vdevs.leaves().filter(|leaf| matches!(leaf.kind, Kind::Leaf(_))) {
            let Status { state, aux } = leaf.status();
            let temporary = self.devices.temporary().contains(&leaf.guid);
            let mut config = self.config();
            let Some(config) = config.find_mut(leaf.guid) else { continue };
            let told = (config.offline, config.faulted, config.degraded, config.removed);
            let aux_told = config.aux_state.clone();
            config.offline = state == State::Offline && !temporary;
            config.faulted = state == State::Faulted;
            config.degraded = state == State::Degraded;
            config.removed = state == State::Removed;
            config.aux_state = match (state, aux) {
                (State::Faulted | State::Degraded, Aux::ErrorsExceeded) => Some("err_exceeded"),
                (State::Faulted | State::Degraded, Aux::External) => Some("external"),
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

    /// Makes a write, and flushes it with all that was written before, until it is durable or there is no hope. `uberblock` leads to all of the group.
    pub(super) async fn until_durable(
        &self,
        uberblock: &Uberblock,
        write: impl AsyncFn() -> Result<()>,
    ) -> Result<()> {
        loop {
            self.until_written(&write).await?;
            let Err(error) = self.writer.flush_group(uberblock.txg).await else { return Ok(()) };
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
            if verify::is_group_there(&written, uberblock.txg)? {
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
