//! Devices that are attached to others and replace them.
//!
//! # The idea
//! All of it happens in the sync of one group. A device that has a place already is refused there
//! ([`super::claims`]). The new device is labelled first, as one of no group: what it
//! held is lost, and until the group is committed it belongs to nothing. Then the vdev tree changes
//! ([`crate::vdev::topology`]), and the device is written from then on. It lacks all earlier groups, and
//! perhaps the next ones too, because writes may have begun in the old tree. All these are in its dirty time
//! log from the beginning, so that it is not read for them, and a resilver follows when they are committed.
//!
//! A device that replaces another one is attached to it, under a *replacing* vdev. When it has everything,
//! the old one is detached ([`super::detach`]).
//!
//! Source of the facts: OpenZFS 2.4 `spa.c` (`spa_vdev_attach`).

use std::sync::Arc;

use device::Device;
use ondisk::nvlist::Nvlist;
use ondisk::vdev_config::VdevConfig;
use ondisk::{Asize, Guid, Txg, VdevId};

use super::claims::Wanted;
use super::config::Needed;
use super::create::{AUTOMATIC_ASHIFT, leaf_config, log2, new_vdev_zap, random_guid};
use super::{LivePool, NewLeaf, Syncing};
use crate::dsl::history;
use crate::error::{Error, Result};
use crate::vdev::capacity::{in_use, size_of_parent, usable_bytes};
use crate::vdev::config::{Devices, build_auxiliary};
use crate::vdev::topology::{self, Purpose};
use crate::vdev::{Vdev, VdevTree};
use ondisk::pool_directory as directory;

/// Groups after the present one in which a write of the old tree may still end (`TXG_CONCURRENT_STATES` less
/// one).
const LATER_GROUPS: u64 = 2;

/// A device that is attached.
pub(super) struct Attachment {
    /// The leaf beside which it comes.
    pub at: Guid,
    /// What it is from then on.
    pub config: VdevConfig,
    pub device: Arc<dyn Device>,
    pub purpose: Purpose,
    /// The sector size that a person wants for it, as a power of two.
    pub ashift: Option<u8>,
}

impl LivePool {
    /// Attaches a device to a leaf: as another copy of what it holds, or to replace it. Returns the guid of
    /// the new device when that is committed; a resilver follows. What the device held is lost. `ashift`
    /// overrides the sector size that is best for the device.
    ///
    /// # Errors
    /// There is no such leaf; nothing can be attached there; the device is too small or its sectors are too
    /// large; there is a checkpoint.
    pub async fn attach(
        self: &Arc<Self>,
        at: Guid,
        new: NewLeaf,
        purpose: Purpose,
        ashift: Option<u8>,
    ) -> Result<Guid> {
        let guid = random_guid(&**self.env());
        let config = leaf_config(&new, VdevId(0), guid, Txg::NONE);
        self.attach_device(Attachment { at, config, device: new.device, purpose, ashift }).await?;
        Ok(guid)
    }

    /// Refuses what cannot be attached. The device keeps what it holds.
    ///
    /// # Errors
    /// As those of [`LivePool::attach`].
    pub fn check_attachment(
        &self,
        at: Guid,
        new: &NewLeaf,
        purpose: Purpose,
        ashift: Option<u8>,
    ) -> Result<()> {
        self.refuse_with_checkpoint()?;
        let config = leaf_config(new, VdevId(0), random_guid(&**self.env()), Txg::NONE);
        let device = Arc::clone(&new.device);
        self.changed_top(&Attachment { at, config, device, purpose, ashift }).map(drop)
    }

    pub(super) async fn attach_device(self: &Arc<Self>, new: Attachment) -> Result<()> {
        // Before anything waits for a group.
        self.changed_top(&new)?;
        let last = self.change(move |s| async move { attach_in(&s, &new).await }).await?;
        // The new device has all that is written after these groups.
        while self.txgs.synced_txg() < last {
            self.change(|_| async { Ok(()) }).await?;
        }
        self.begin_due_resilver().await;
        Ok(())
    }

    /// The top-level vdev to which a device is attached, and its configuration then.
    fn changed_top(&self, new: &Attachment) -> Result<(&Vdev, VdevConfig)> {
        let no_device = || Error::NotFound(format!("device {}", new.at));
        let top = self.pool.vdevs().top_above(new.at).ok_or_else(no_device)?;
        let old = self.config().root.children.get(top.id as usize).cloned().ok_or_else(no_device)?;
        let parent = random_guid(&**self.env());
        let changed = topology::attach(&old, new.at, new.config.clone(), new.purpose, parent)?;
        check_device(top, &*new.device, new.ashift)?;
        Ok((top, changed))
    }
}

/// Refuses a device that is too small for a top-level vdev, or whose sectors are too large for it.
fn check_device(top: &Vdev, device: &dyn Device, ashift: Option<u8>) -> Result<()> {
    let count = top.children.len().max(1);
    let provides = size_of_parent(&top.config.kind, count, usable_bytes(device.size_bytes()));
    if provides < in_use(top.asize(), top.metaslab_shift()) {
        return Err(Error::Invalid("device is too small".into()));
    }
    let sectors = device.sector_sizes();
    let best = log2(sectors.physical_bytes).min(*AUTOMATIC_ASHIFT.end());
    let wanted = ashift.unwrap_or(best).max(log2(sectors.logical_bytes));
    match u32::from(wanted) > top.ashift {
        true => Err(Error::Unsupported(
            "new device has a different optimal sector size; use the option '-o ashift=N' to override the \
             optimal size"
                .into(),
        )),
        false => Ok(()),
    }
}

/// Attaches a device. Returns the last group that it may lack.
async fn attach_in(s: &Syncing, new: &Attachment) -> Result<Txg> {
    s.pool.refuse_with_checkpoint()?;
    if !new.config.is_spare {
        return attach_free(s, new).await;
    }
    let guid = new.config.guid;
    s.pool.take_spare(guid, &new.device)?;
    let attached = attach_free(s, new).await;
    if attached.is_err() && s.pool.pool().vdevs().top_above(guid).is_none() {
        s.pool.spare_is_free(guid, Some(Arc::clone(&new.device))).await;
    }
    attached
}

/// Attaches a device that has no place yet. Returns the last group that it may lack.
async fn attach_free(s: &Syncing, new: &Attachment) -> Result<Txg> {
    s.pool.refuse_placed(&[Wanted { guid: Some(new.config.guid), device: &new.device }]).await?;
    let (top, changed) = s.pool.changed_top(new)?;
    let id = u32::try_from(top.id).map_err(|_| Error::corrupt(&top.name, "its number is too large"))?;
    label(s, &changed, new).await?;
    let attached = attach_labelled(s, new, (id, changed)).await;
    // The MOS and the tree must not say different things.
    s.or_stop(attached)
}

/// Attaches a device that has its label. Returns the last group that it may lack.
async fn attach_labelled(s: &Syncing, new: &Attachment, (id, mut changed): (u32, VdevConfig)) -> Result<Txg> {
    let vdevs = s.pool.pool().vdevs();
    let guid = new.config.guid;
    let last = Txg(s.txg().get().saturating_add(LATER_GROUPS));
    let map = s.directory_object(directory::VDEV_ZAP_MAP).await?;
    let zap = new_vdev_zap(s, &map).await?;
    if let Some(leaf) = topology::find_mut(&mut changed, guid) {
        (leaf.leaf_zap, leaf.resilver_txg) = (Some(zap), Some(s.txg()));
    }
    let devices = Devices::from([(guid, Arc::clone(&new.device))]);
    let lacks_all = |top: &Vdev| {
        for leaf in top.walk().filter(|leaf| leaf.guid == guid) {
            leaf.missing_txgs.note_range(Txg::INITIAL, last);
        }
    };
    let top = vdevs.rebuild_top(id, &changed, None, &devices, lacks_all)?;
    // A device may be smaller than the others, as long as all metaslabs fit.
    if let Some(smaller) = top.capacity().map(|bytes| bytes >> top.ashift << top.ashift)
        && smaller < top.asize()
    {
        top.set_asize(smaller);
        changed.asize = Some(Asize(smaller));
    }
    let path = |guid| topology::find(&changed, guid).map(path_of).unwrap_or_default();
    let (verb, to) = match (new.purpose, new.config.is_spare) {
        (Purpose::Mirror, _) => ("attach", "to"),
        (Purpose::Replace, true) => ("spare in", "for"),
        (Purpose::Replace, false) => ("replace", "for"),
    };
    let text = format!("{verb} vdev={} {to} vdev={}", path(guid), path(new.at));
    s.pool.set_top(id, changed);
    if new.config.is_spare {
        s.pool.spare_in_use(guid);
        s.pool.sysevent("vdev_spare", Some(guid));
    }
    s.pool.sysevent("vdev_attach", Some(guid));
    note(s, "vdev attach", &text).await?;
    Ok(last)
}

/// Labels a device that is to become part of the pool, as one of no group.
async fn label(s: &Syncing, top: &VdevConfig, new: &Attachment) -> Result<()> {
    let label = s.pool.config().for_label(Txg::NONE, top, new.config.guid, Needed::version(s.version()));
    label_alone(&new.config, &new.device, &label).await
}

/// Labels a device that is in no tree, durably.
pub(super) async fn label_alone(config: &VdevConfig, device: &Arc<dyn Device>, label: &Nvlist) -> Result<()> {
    let devices = Devices::from([(config.guid, Arc::clone(device))]);
    let alone = VdevTree::apart(build_auxiliary(std::slice::from_ref(config), &devices)?);
    let path = device.path().display();
    let failed = |why: String| Error::Busy(format!("{path} cannot be labelled: {why}"));
    let labelled = alone.initialize_label(config.guid, label).await;
    labelled.map_err(|tried| failed(tried.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")))?;
    device.flush().await.map_err(|error| failed(error.to_string()))
}

impl LivePool {
    /// Takes over the configuration of a top-level vdev, whose tree was rebuilt.
    pub(super) fn set_top(&self, id: u32, top: VdevConfig) {
        if let Some(place) = self.config().root.children.get_mut(id as usize) {
            *place = top;
        }
        self.config_changed();
    }
}

pub(super) fn path_of(vdev: &VdevConfig) -> String {
    let path = vdev.path.as_ref().map(|path| String::from_utf8_lossy(path.as_bytes()).into_owned());
    path.unwrap_or_else(|| "none".to_owned())
}

/// Adds an internal event to the history.
pub(super) async fn note(s: &Syncing, event: &str, text: &str) -> Result<()> {
    let host = s.pool.config().host.1.clone();
    let record = history::event(event, text, None, s.txg().get(), s.now(), &host);
    s.append_history(&record).await
}
