//! Hot spares: which are free, and how they come into use and go back.
//!
//! A spare is in the list of spares as long as it belongs to the pool. In use it is a leaf of the tree too,
//! under a *spare* vdev beside the device that it replaces, with the same guid; the list then has it as
//! in use. It goes back when the original is whole again ([`super::unspare`]), or when it is detached. When
//! the original is detached, the spare becomes an ordinary device and leaves the list.
//!
//! Pools of one machine may have the same spare ([`crate::vdev::spares`]): one that another pool uses is not
//! available meanwhile. Spares that are not in use are looked at now and then, because nothing else would
//! notice that they are gone, or back.
//!
//! Distributed spares of draid vdevs are not used yet.
//!
//! Source of the facts: OpenZFS 2.4 `spa_misc.c` (`spa_spare_activate`), `spa.c`, `zfs_retire.c`
//! (`replace_with_spare`).

use std::sync::Arc;

use device::Device;
use ondisk::Guid;
use ondisk::nvlist::Nvlist;
use ondisk::vdev_config::{PoolState, VdevConfig};

use super::LivePool;
use super::attach::{Attachment, label_alone};
use super::claims::is_same;
use crate::error::{Error, Result};
use crate::vdev::spares::{Found, IN_USE};
use crate::vdev::topology::{self, Purpose};
use crate::vdev::{Aux, Kind, State, Status, Vdev};

impl LivePool {
    /// Takes a hot spare of the pool for a leaf; a resilver follows. Returns when that is committed.
    ///
    /// # Errors
    /// There is no such spare, it is in use or not there, or it cannot replace that leaf.
    pub async fn replace_with_spare(self: &Arc<Self>, leaf: Guid, spare: Guid) -> Result<()> {
        let vdevs = self.pool.vdevs();
        if let Some(away) = vdevs.spares.iter().find(|of| of.guid == spare && !of.status().is_readable()) {
            self.look_at_spare(away, false).await;
        }
        let (found, device) = self.free_spare(spare)?;
        let config = VdevConfig { is_spare: true, ..found.config.clone() };
        let purpose = Purpose::Replace;
        self.attach_device(Attachment { at: leaf, config, device, purpose, ashift: None }).await
    }

    /// A hot spare that can come into use, with its device. What it says holds in syncing context only.
    ///
    /// # Errors
    /// There is no such spare, it is in use or not there.
    pub(super) fn free_spare(&self, spare: Guid) -> Result<(&Vdev, Arc<dyn Device>)> {
        let vdevs = self.pool.vdevs();
        let found = vdevs.spares.iter().find(|vdev| vdev.guid == spare);
        let found = found.ok_or_else(|| Error::NotFound(format!("hot spare {spare}")))?;
        let Kind::Leaf(slot) = &found.kind else {
            return Err(Error::Unsupported("distributed spares of draid are not there yet".into()));
        };
        if found.status().aux == Aux::Spared || vdevs.top_above(spare).is_some() {
            return Err(match vdevs.user_of_spare(found) {
                Some(pool) => in_use_by(found, &pool),
                None => Error::Busy(format!("{} is in use as a hot spare", found.name)),
            });
        }
        let device = slot.device().filter(|_| found.status().is_readable());
        let device = device.ok_or_else(|| Error::Busy(format!("{} is not available", found.name)))?;
        Ok((found, device))
    }

    /// Takes a hot spare for a leaf that failed: the first in the list that can replace it. Returns it,
    /// or `None` when there is none, or another device takes its place already.
    ///
    /// # Errors
    /// The pool cannot be changed.
    pub async fn kick_in_spare(self: &Arc<Self>, leaf: Guid) -> Result<Option<Guid>> {
        self.look_at_spares(false).await;
        let vdevs = self.pool.vdevs();
        let Some(top) = vdevs.top_above(leaf) else { return Ok(None) };
        // A spare or a new device does the same already, or the device that a new one is to replace.
        let has_another = topology::parent_of_vdev(top, leaf).is_some_and(|above| {
            let mut others = above.children.iter().filter(|child| child.guid != leaf);
            matches!(above.kind, Kind::Spare | Kind::Replacing)
                && others.any(|child| child.status().is_readable())
        });
        if has_another {
            return Ok(None);
        }
        let is_free = |spare: &&Vdev| self.free_spare(spare.guid).is_ok();
        let free: Vec<Guid> = vdevs.spares.iter().filter(is_free).map(|spare| spare.guid).collect();
        for spare in free {
            match self.replace_with_spare(leaf, spare).await {
                Ok(()) => return Ok(Some(spare)),
                Err(error @ Error::Suspended(_)) => return Err(error),
                Err(error) => tracing::info!(%error, %spare, %leaf, "a hot spare cannot be used"),
            }
        }
        Ok(None)
    }

    /// The pool uses a spare from now on, and no other pool does. In syncing context, before it is labelled.
    ///
    /// # Errors
    /// The spare is not free.
    pub(super) fn take_spare(&self, guid: Guid, device: &Arc<dyn Device>) -> Result<()> {
        let (spare, now) = self.free_spare(guid)?;
        if !is_same(&now, device) {
            return Err(Error::Busy(format!("{} is another device by now", spare.name)));
        }
        let taken = self.pool.vdevs().take_spare(guid, &**device);
        taken.map_err(|pool| in_use_by(spare, &pool))
    }

    /// A spare is part of the tree from now on.
    pub(super) fn spare_in_use(&self, guid: Guid) {
        let vdevs = self.pool.vdevs();
        if let Some(spare) = vdevs.spares.iter().find(|spare| spare.guid == guid) {
            vdevs.set_status(spare, IN_USE);
            // Otherwise the leaf could not be opened again after it was closed.
            spare.close();
        }
    }

    /// A spare is not part of the tree any more: it gets its label as a spare back.
    pub(super) async fn spare_is_free(&self, guid: Guid, device: Option<Arc<dyn Device>>) {
        let vdevs = self.pool.vdevs();
        let Some(spare) = vdevs.spares.iter().find(|spare| spare.guid == guid) else { return };
        let labelled = match &device {
            Some(device) => {
                label_alone(&spare.config, device, &self.auxiliary_label(guid, PoolState::Spare)).await
            }
            None => Err(Error::Busy("its device is not there".into())),
        };
        if let Err(error) = &labelled {
            tracing::warn!(%error, spare = spare.name, "a spare that goes back cannot be labelled");
        }
        let device = device.filter(|_| labelled.is_ok());
        vdevs.give_spare_back(guid, device.as_ref());
        let status = match device {
            Some(_) => Status::HEALTHY,
            None => Status::new(State::CantOpen, Aux::OpenFailed),
        };
        let identity = device.as_ref().and_then(|device| device.identity());
        vdevs.set_spare(spare, device, (status, identity));
    }

    /// Looks whether spares that are not in use are there, and are what they were. With `thorough` the labels
    /// of all are read, otherwise only of those that were away.
    pub async fn look_at_spares(self: &Arc<Self>, thorough: bool) {
        for spare in self.pool.vdevs().spares.iter() {
            // Its device is open only while it is looked at.
            let needs_label = matches!(self.look_at_spare(spare, thorough).await, Found::NeedsLabel(_));
            if needs_label {
                self.label_spare(spare.guid).await;
            }
        }
    }

    /// The same of one. One that needs a label stays as it was.
    pub(super) async fn look_at_spare(&self, spare: &Vdev, thorough: bool) -> Found {
        let path = self.path_of_leaf(spare);
        self.pool.vdevs().look_at_spare(spare, (self.guid(), path.as_deref()), thorough).await
    }

    /// A spare went back and has the label of a device of the pool: it was away, or a crash came between.
    async fn label_spare(self: &Arc<Self>, guid: Guid) {
        if self.suspended().is_some() {
            return;
        }
        let labelled = self.change(move |s| async move {
            // Only here nothing puts it into use.
            let vdevs = s.pool.pool().vdevs();
            let Some(spare) = vdevs.spares.iter().find(|spare| spare.guid == guid) else { return Ok(()) };
            if let Found::NeedsLabel(device) = s.pool.look_at_spare(spare, true).await
                && vdevs.take_spare(guid, &*device).is_ok()
            {
                s.pool.spare_is_free(guid, Some(device)).await;
            }
            Ok(())
        });
        if let Err(error) = labelled.await {
            tracing::warn!(%error, spare = %guid, "a spare that is back cannot be labelled");
        }
    }

    /// How many spares could come into use.
    pub fn free_spares(&self) -> usize {
        self.pool.vdevs().spares.iter().filter(|spare| self.free_spare(spare.guid).is_ok()).count()
    }

    /// A hot spare in use that another pool of this process has too, by name.
    pub fn shared_spare_in_use(&self) -> Option<String> {
        let vdevs = self.pool.vdevs();
        let mut in_use = vdevs.spares.iter().filter(|spare| vdevs.top_above(spare.guid).is_some());
        in_use.find(|spare| vdevs.is_shared(spare.guid)).map(|spare| spare.name.clone())
    }

    /// The pool is open for writing: its spares are shared with other pools, and those in use are its own.
    pub(super) fn list_spares(&self) {
        let vdevs = self.pool.vdevs();
        for spare in vdevs.spares.iter() {
            let leaf = vdevs.leaves().find(|leaf| leaf.guid == spare.guid);
            let Kind::Leaf(slot) = &leaf.unwrap_or(spare).kind else { continue };
            let Some(device) = slot.device() else { continue };
            if leaf.is_some()
                && let Err(pool) = vdevs.take_spare(spare.guid, &*device)
            {
                tracing::warn!(spare = spare.name, pool, "a hot spare is in use by another pool too");
            }
            vdevs.list_spare(spare, &*device);
        }
    }

    /// The label of a spare that is not in use, or of a cache device: it names no pool, only itself and its
    /// use.
    pub(super) fn auxiliary_label(&self, guid: Guid, state: PoolState) -> Nvlist {
        let mut list = Nvlist::new();
        list.push("version", self.version());
        list.push("state", state as u64);
        list.push("guid", guid.get());
        list
    }
}

fn in_use_by(spare: &Vdev, pool: &str) -> Error {
    Error::Busy(format!("{} is in use as a hot spare by pool '{pool}'", spare.name))
}
