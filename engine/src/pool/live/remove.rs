//! Taking log devices away from a pool that is written.
//!
//! A log device holds blocks of intent logs and nothing else. So it can be taken away as soon as no log has a
//! block there: nothing new is put on it, each log that is open gives its chain up, and the next commit
//! begins another one elsewhere ([`crate::zil::Zil::leave`]). The blocks are freed with the groups that have
//! what they hold, and may be written again some groups later; then the vdev becomes a *hole*, which keeps
//! the numbers of the others right.
//!
//! Source of the facts: OpenZFS 2.3 `vdev_removal.c` (`spa_vdev_remove_log`,
//! `vdev_remove_make_hole_and_free`).

use std::sync::Arc;

use device::Device;
use ondisk::pool_directory as directory;
use ondisk::vdev_config::{VdevConfig, VdevKind};
use ondisk::{Guid, ObjectId, VdevId};

use super::create::check_since;
use super::{LivePool, Syncing, version};
use crate::dmu::zap;
use crate::error::{Error, Result};
use crate::vdev::label::wipe_labels;
use crate::vdev::release::release;
use crate::vdev::{Class, Kind, Vdev};

/// Groups after which all that a log had on a device must be free.
const GROUPS: usize = 16;

impl LivePool {
    /// Takes a device away that the pool can do without: a spare, a cache device, or a top-level vdev for
    /// logs. Returns when its devices are free for other uses.
    ///
    /// # Errors
    /// It is none of these, or it is in use; there is a checkpoint, which may refer to it.
    pub async fn remove(self: &Arc<Self>, guid: Guid) -> Result<()> {
        self.refuse_with_checkpoint()?;
        let tops = &self.pool.vdevs().tops;
        let Some(top) = tops.iter().find(|top| top.guid == guid && top.class() == Class::Log) else {
            self.remove_auxiliary(guid).await?;
            self.sysevent("vdev_remove_aux", Some(guid));
            return Ok(());
        };
        check_since("support log removal", self.version(), version::HOLES)?;
        let id = u32::try_from(top.id).map_err(|_| Error::corrupt(&top.name, "its number is too large"))?;
        let devices: Vec<Arc<dyn Device>> = top.walk().filter_map(device_of).collect();
        self.empty_log(top).await?;
        let removed = self
            .change(move |s| async move {
                s.pool.refuse_with_checkpoint()?;
                if !s.pool.allocator().is_unused(VdevId(id))? {
                    return Err(still_used());
                }
                make_hole(&s, VdevId(id)).await
            })
            .await;
        match &removed {
            Ok(()) => {
                wipe(&devices).await;
                release(devices).await;
                self.sysevent("vdev_remove_dev", Some(guid));
            }
            // It is still there.
            Err(_) => drop(self.allocator().set_allocating(VdevId(id), true)),
        }
        removed
    }

    /// Waits until no log has a block on a top-level vdev for logs. Nothing new is put on it from then on.
    ///
    /// # Errors
    /// A log on it was not replayed yet. It is used as before then.
    pub(super) async fn empty_log(self: &Arc<Self>, top: &Vdev) -> Result<()> {
        let id = u32::try_from(top.id).map_err(|_| Error::corrupt(&top.name, "its number is too large"))?;
        self.allocator().set_allocating(VdevId(id), false)?;
        let emptied = self.leave_log(VdevId(id)).await;
        if emptied.is_err() {
            drop(self.allocator().set_allocating(VdevId(id), true));
        }
        emptied
    }

    async fn leave_log(self: &Arc<Self>, id: VdevId) -> Result<()> {
        let open: Vec<_> = self.datasets().values().cloned().collect();
        for dataset in open {
            dataset.zil.leave().await?;
        }
        for _ in 0..GROUPS {
            self.change(|_| async { Ok(()) }).await?;
            if self.allocator().is_unused(id)? {
                return Ok(());
            }
        }
        Err(still_used())
    }
}

fn still_used() -> Error {
    let why = "a log on it was not replayed yet; load the keys of encrypted datasets and mount them";
    Error::Busy(why.into())
}

/// Puts a hole in the place of a top-level vdev that holds nothing, and frees what the MOS has of it.
async fn make_hole(s: &Syncing, id: VdevId) -> Result<()> {
    let place = id.get() as usize;
    let top = s.pool.config().root.children.get(place).cloned();
    let top = top.ok_or_else(|| Error::corrupt("pool configuration", format!("no top-level vdev {id}")))?;
    s.pool.allocator().remove_top(s.mos(), &s.tx, id).await?;
    let (mut zaps, mut logs) = (Vec::new(), Vec::new());
    objects_of(&top, &mut zaps, &mut logs);
    let map = s.directory_object(directory::VDEV_ZAP_MAP).await?;
    for zap in &zaps {
        let key = zap::Key::Name(format!("{:x}", zap.get()).into_bytes());
        zap::edit::remove(&map, &s.tx, &key).await?;
    }
    for object in zaps.into_iter().chain(logs) {
        s.mos().free(&s.tx, object).await?;
    }
    let hole = VdevConfig { id: Some(id), ..VdevConfig::blank(VdevKind::Hole, Guid(0)) };
    s.pool.pool.vdevs().make_hole(id.get(), &hole)?;
    if let Some(top) = s.pool.config().root.children.get_mut(place) {
        *top = hole;
    }
    s.pool.config_changed();
    Ok(())
}

/// The ZAPs of a vdev and those below it, and the dirty time logs.
fn objects_of(vdev: &VdevConfig, zaps: &mut Vec<ObjectId>, logs: &mut Vec<ObjectId>) {
    zaps.extend(vdev.top_zap.into_iter().chain(vdev.leaf_zap));
    logs.extend(vdev.dtl_object);
    vdev.children.iter().for_each(|child| objects_of(child, zaps, logs));
}

fn device_of(vdev: &Vdev) -> Option<Arc<dyn Device>> {
    match &vdev.kind {
        Kind::Leaf(slot) => slot.device(),
        _ => None,
    }
}

/// Wipes the labels of devices that were removed. One that cannot be written keeps its labels, and the pool
/// does not know it any more.
async fn wipe(devices: &[Arc<dyn Device>]) {
    for device in devices {
        if let Err(error) = wipe_labels(&**device).await {
            tracing::warn!(%error, "a label of a removed device stays");
        }
    }
}
