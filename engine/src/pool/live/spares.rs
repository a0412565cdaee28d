//! Hot spares: which are free, and how they come into use and go back.
//!
//! A spare is in the list of spares as long as it belongs to the pool. In use it is a leaf of the tree too,
//! under a *spare* vdev beside the device that it replaces, with the same guid; the list then has it as
//! in use. It goes back when the original is resilvered, or when it is detached. When the original is
//! detached, the spare becomes an ordinary device and leaves the list.
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
use super::attach::Attachment;
use crate::error::{Error, Result};
use crate::vdev::config::{Devices, build_auxiliary};
use crate::vdev::topology::{self, Purpose};
use crate::vdev::{Aux, Kind, State, Status, Vdev, VdevTree};

impl LivePool {
    /// Takes a hot spare of the pool for a leaf; a resilver follows. Returns when that is committed.
    ///
    /// # Errors
    /// There is no such spare, it is in use or not there, or it cannot replace that leaf.
    pub async fn replace_with_spare(self: &Arc<Self>, leaf: Guid, spare: Guid) -> Result<()> {
        let vdevs = self.pool.vdevs();
        let found = vdevs.spares.iter().find(|vdev| vdev.guid == spare);
        let found = found.ok_or_else(|| Error::NotFound(format!("hot spare {spare}")))?;
        let Kind::Leaf(slot) = &found.kind else {
            return Err(Error::Unsupported("distributed spares of draid are not there yet".into()));
        };
        if found.status().aux == Aux::Spared || vdevs.top_above(spare).is_some() {
            return Err(Error::Busy(format!("{} is in use as a hot spare", found.name)));
        }
        let device = slot.device().filter(|_| found.status().is_readable());
        let device = device.ok_or_else(|| Error::Busy(format!("{} is not available", found.name)))?;
        let config = VdevConfig { is_spare: true, ..found.config.clone() };
        let purpose = Purpose::Replace;
        self.attach_device(Attachment { at: leaf, config, device, purpose, ashift: None }).await
    }

    /// Takes a hot spare for a leaf that failed: the first in the list that can replace it. Returns it,
    /// or `None` when there is none, or one is in use for it already.
    ///
    /// # Errors
    /// The pool cannot be changed.
    pub async fn kick_in_spare(self: &Arc<Self>, leaf: Guid) -> Result<Option<Guid>> {
        let vdevs = self.pool.vdevs();
        let Some(top) = vdevs.top_above(leaf) else { return Ok(None) };
        let above = topology::parent_of_vdev(top, leaf).filter(|above| matches!(above.kind, Kind::Spare));
        let has_another = |above: &Vdev| {
            let others = above.children.iter().filter(|child| child.guid != leaf);
            others.into_iter().any(|child| child.status().is_readable())
        };
        if above.is_some_and(has_another) {
            return Ok(None);
        }
        let is_free = |spare: &&Vdev| {
            let is_unused = vdevs.top_above(spare.guid).is_none();
            matches!(spare.kind, Kind::Leaf(_)) && spare.status().is_readable() && is_unused
        };
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

    /// Devices are back, or their errors are forgotten: spares in use for them are to go back, at once
    /// where the devices have everything, otherwise when they are resilvered.
    ///
    /// # Errors
    /// The pool cannot be changed.
    pub async fn unspare(self: &Arc<Self>, leaves: Vec<Guid>) -> Result<()> {
        let is_here = |guid: &Guid| {
            let leaf = self.pool.vdevs().find(*guid);
            leaf.is_some_and(|leaf| leaf.status().is_readable())
        };
        let leaves: Vec<Guid> = leaves.into_iter().filter(is_here).collect();
        // On a copy: nothing waits for a group where there are no spares.
        let mut tops = self.config().root.children.clone();
        if !tops.iter_mut().fold(false, |any, top| topology::set_unspare(top, &leaves) | any) {
            return Ok(());
        }
        self.change(move |s| async move {
            for top in &mut s.pool.config().root.children {
                topology::set_unspare(top, &leaves);
            }
            s.pool.config_changed();
            Ok(())
        })
        .await?;
        self.devices_resilvered();
        Ok(())
    }

    /// A spare is part of the tree from now on.
    pub(super) fn spare_in_use(&self, guid: Guid) {
        let vdevs = self.pool.vdevs();
        if let Some(spare) = vdevs.spares.iter().find(|spare| spare.guid == guid) {
            vdevs.set_status(spare, Status::new(State::CantOpen, Aux::Spared));
            // Otherwise the leaf could not be opened again after it was closed.
            spare.close();
        }
    }

    /// A spare is not part of the tree any more: it gets its label as a spare back.
    pub(super) async fn spare_is_free(&self, guid: Guid, device: Option<Arc<dyn Device>>) {
        let vdevs = self.pool.vdevs();
        let Some(spare) = vdevs.spares.iter().find(|spare| spare.guid == guid) else { return };
        let away = Status::new(State::CantOpen, Aux::OpenFailed);
        let Some(device) = device else { return vdevs.set_status(spare, away) };
        spare.give_device(Arc::clone(&device));
        let labelled = async {
            let devices = Devices::from([(guid, Arc::clone(&device))]);
            let spares = build_auxiliary(std::slice::from_ref(&spare.config), &devices)?;
            let alone = VdevTree::apart(spares);
            let labelled = alone.initialize_label(guid, &self.spare_label(guid)).await;
            labelled
                .map_err(|tried| Error::Busy(tried.first().map(ToString::to_string).unwrap_or_default()))?;
            device.flush().await.map_err(|error| Error::Busy(error.to_string()))
        };
        match labelled.await {
            Ok(()) => vdevs.set_status(spare, Status::HEALTHY),
            Err(error) => {
                tracing::warn!(%error, "a spare that goes back cannot be labelled");
                vdevs.set_status(spare, away);
            }
        }
    }

    /// The label of a spare that is not in use.
    pub(super) fn spare_label(&self, guid: Guid) -> Nvlist {
        let mut list = Nvlist::new();
        list.push("version", self.version());
        list.push("state", PoolState::Spare as u64);
        list.push("guid", guid.get());
        list
    }
}
