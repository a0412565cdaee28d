//! Devices that get a place in a pool: each has one place at most.
//!
//! # The idea
//! A device is open once, under a lock, in all processes. So no other pool has the device of a caller who
//! opened it ([`crate::vdev::open`]). Within the pool the sync task that gives a device its place decides:
//! there the tree does not change, and what the caller found before may be different now. The task refuses a
//! device that the pool has already
//! - by its guid: a hot spare that another task has put beside a device,
//! - by its identity: the same file or block device under another name,
//! - by its label: a device of the pool that is not open, because it is offline or failed.
//!
//! Everything that gives a device a place asks: new vdevs, spares and cache devices, devices that are
//! attached or replace others, and hot spares that come into use. A device that comes back to its own place
//! has to show the label of that place ([`crate::vdev::health`]).

use std::sync::Arc;

use device::Device;
use ondisk::Guid;

use super::{LivePool, NewLeaf};
use crate::error::{Error, Result};
use crate::vdev::label::{best_label, read_labels};
use crate::vdev::{Kind, Vdev, VdevTree};

/// A device that is to get a place.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wanted<'a> {
    /// The guid that it has there; of a new device `None`.
    pub guid: Option<Guid>,
    pub device: &'a Arc<dyn Device>,
}

impl<'a> From<&'a NewLeaf> for Wanted<'a> {
    fn from(leaf: &'a NewLeaf) -> Self {
        Self { guid: None, device: &leaf.device }
    }
}

/// Whether both are the same file or block device.
pub(super) fn is_same(one: &Arc<dyn Device>, other: &Arc<dyn Device>) -> bool {
    Arc::ptr_eq(one, other) || one.identity().is_some_and(|identity| other.identity() == Some(identity))
}

/// Refuses devices of which one is there twice.
pub(super) fn refuse_twice(wanted: &[Wanted<'_>]) -> Result<()> {
    for (index, Wanted { device, .. }) in wanted.iter().enumerate() {
        if wanted.iter().take(index).any(|before| is_same(before.device, device)) {
            return Err(Error::Busy(format!("{} is named twice", device.path().display())));
        }
    }
    Ok(())
}

impl LivePool {
    /// Refuses devices that have a place in the pool. In syncing context, by the task that gives them one.
    ///
    /// # Errors
    /// One of them has a place, or is there twice.
    pub(super) async fn refuse_placed(&self, wanted: &[Wanted<'_>]) -> Result<()> {
        refuse_twice(wanted)?;
        let vdevs = self.pool.vdevs();
        for wanted in wanted {
            let placed = placed_by_device(vdevs, wanted);
            let placed = match placed {
                Some(vdev) => Some(vdev),
                None => placed_by_label(vdevs, wanted, self.guid()).await,
            };
            if let Some(vdev) = placed {
                let (path, pool) = (wanted.device.path().display(), self.pool.name());
                let name = &vdev.name;
                return Err(Error::Busy(format!("{path} is busy: it is {name} of pool '{pool}'")));
            }
        }
        Ok(())
    }
}

/// The vdev that has this guid in the tree, or this device open. A hot spare may come into use.
fn placed_by_device<'a>(vdevs: &'a VdevTree, wanted: &Wanted<'_>) -> Option<&'a Vdev> {
    let has_it = |vdev: &&Vdev| match &vdev.kind {
        Kind::Leaf(slot) => slot.device().is_some_and(|device| is_same(&device, wanted.device)),
        _ => false,
    };
    let is_it = |leaf: &&Vdev| Some(leaf.guid) == wanted.guid || has_it(leaf);
    let auxiliary = vdevs.spares.iter().chain(vdevs.l2cache.iter());
    let mut others = auxiliary.filter(|vdev| Some(vdev.guid) != wanted.guid);
    vdevs.leaves().find(is_it).or_else(|| others.find(has_it))
}

/// The vdev of the pool that the label of a device names.
async fn placed_by_label<'a>(vdevs: &'a VdevTree, wanted: &Wanted<'_>, pool: Guid) -> Option<&'a Vdev> {
    let label = best_label(read_labels(&**wanted.device).await)?;
    let is_ours = label.pool_guid.is_none_or(|guid| guid == pool);
    let guid = label.guid.filter(|guid| is_ours && Some(*guid) != wanted.guid)?;
    vdevs.find(guid)
}
