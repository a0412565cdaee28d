//! Changes of the devices of a top-level vdev, on its configuration.
//!
//! # The idea
//! A device is attached by putting it beside another one that holds the same data: under a mirror, or under
//! a *replacing* or *spare* vdev, which are mirrors too. Where there is no such vdev above the other device,
//! it is made, and takes the place of the device. A device is detached by taking it from such a vdev; when
//! one child is left, the child takes the place of the vdev. All functions here make a new configuration of
//! the old one; `VdevTree::rebuild_top` gives the tree that shape.
//!
//! # What moves
//! What the pool knows of a top-level vdev (size, metaslabs, ZAP, class) belongs to its place in the pool.
//! It moves to the vdev that takes the place. A child that becomes top-level also takes the guid of the vdev
//! above it: labels of a device that was away at that time name this guid as their top-level vdev, and must
//! not seem to be of another one.
//!
//! # Replacing a device by itself
//! A new device with the path of the old one: the path of the old one gets `/old` at its end, so that it is
//! not opened again. When the new device is detached, the path is as before.
//!
//! # When work is done
//! A replacing vdev comes apart when a leaf of its last child has everything: all leaves of the others go,
//! one after the other. A spare vdev comes apart when its first child has everything and is marked
//! (`unspare`): because it was away and is back, or because it replaced the device that the spare was for.
//! Both may be nested either way: a spare may come in for a device that is being replaced. Spares go before
//! the device that they are for, because without it they would stay for good.
//!
//! Source of the facts: OpenZFS 2.4 `spa.c` (`spa_vdev_attach`, `spa_vdev_detach`,
//! `spa_vdev_resilver_done_hunt`), `vdev.c` (`vdev_add_parent`, `vdev_remove_parent`, `vdev_top_transfer`).

use ondisk::nvlist::ByteString;
use ondisk::vdev_config::{VdevConfig, VdevKind};
use ondisk::{Guid, VdevId};

use super::Vdev;
use super::config::Renamed;
use crate::error::{Error, Result};

/// What the path of a device that is replaced by itself ends with.
const OLD: &[u8] = b"/old";

/// The purpose of an attached device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// One more copy.
    Mirror,
    /// It takes the place of the other one.
    Replace,
}

/// A top-level vdev after a device was detached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Detached {
    /// Its configuration now.
    pub top: VdevConfig,
    /// The device that was detached.
    pub leaf: VdevConfig,
    /// The vdev that took the place of a top-level vdev, and its guid.
    pub renamed: Option<Renamed>,
    /// A hot spare that is an ordinary device from now on.
    pub unspared: Option<Guid>,
}

/// A device whose work is done after a resilver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Done {
    /// The device.
    pub leaf: Guid,
    /// The vdev above it.
    pub parent: Guid,
    /// The leaf that has everything, so that it can go.
    pub holder: Guid,
}

/// Attaches the device `new` to `at`, a leaf of `top`. `parent` is the guid for a vdev above both, if one is
/// needed.
///
/// # Errors
/// There is no such leaf, or nothing can be attached to it.
pub(crate) fn attach(
    top: &VdevConfig,
    at: Guid,
    mut new: VdevConfig,
    purpose: Purpose,
    parent: Guid,
) -> Result<VdevConfig> {
    let no_device = || Error::NotFound(format!("device {at}"));
    let old = find(top, at).ok_or_else(no_device)?;
    let above = parent_of(top, at);
    if !matches!(old.kind, VdevKind::Disk | VdevKind::File | VdevKind::DraidSpare { .. }) {
        return Err(Error::Unsupported(
            match old.kind {
                VdevKind::Raidz { .. } => {
                    "expanding raidz is not there yet; add another vdev with 'zpool add'"
                }
                _ => "can only attach to mirrors and top-level disks",
            }
            .into(),
        ));
    }
    let kind = match (purpose, new.is_spare) {
        (Purpose::Mirror, _) => VdevKind::Mirror,
        (Purpose::Replace, true) => VdevKind::Spare,
        (Purpose::Replace, false) => VdevKind::Replacing,
    };
    check_place(top, old, above, &new, purpose)?;
    new.create_txg = old.create_txg;
    let mut changed = top.clone();
    let old = find_mut(&mut changed, at).ok_or_else(no_device)?;
    if old.path.is_some() && old.path == new.path {
        old.path = old.path.as_ref().map(|path| ByteString::new(&[path.as_bytes(), OLD].concat()));
        old.devid = None;
    }
    let above = match above.filter(|above| above.kind == kind) {
        Some(above) => above.guid,
        None => {
            put_above(old, kind, parent, at == top.guid);
            parent
        }
    };
    let above = find_mut(&mut changed, above).ok_or_else(no_device)?;
    above.children.push(new);
    number(above);
    Ok(changed)
}

/// Whether a device can be attached there (`spa_vdev_attach`).
fn check_place(
    top: &VdevConfig,
    old: &VdevConfig,
    above: Option<&VdevConfig>,
    new: &VdevConfig,
    purpose: Purpose,
) -> Result<()> {
    let refused = |why: &str| Err(Error::Unsupported(why.into()));
    let kind = above.map(|above| &above.kind);
    if purpose == Purpose::Mirror {
        return match kind {
            None | Some(VdevKind::Mirror) => Ok(()),
            _ => refused("can only attach to mirrors and top-level disks"),
        };
    }
    if new.is_spare && top.is_log {
        return refused("cannot replace a log with a spare");
    }
    if kind == Some(&VdevKind::Spare) {
        if old.is_spare && !new.is_spare {
            return refused("can only be replaced by another hot spare");
        }
        if old.is_spare != new.is_spare {
            return refused("already in replacing/spare config; wait for completion or use 'zpool detach'");
        }
    }
    let above_that = above.and_then(|above| parent_of(top, above.guid));
    if new.is_spare
        && kind == Some(&VdevKind::Replacing)
        && above_that.is_some_and(|above| above.kind == VdevKind::Spare)
    {
        return refused("already in replacing/spare config; wait for completion or use 'zpool detach'");
    }
    Ok(())
}

/// Detaches a leaf.
///
/// # Errors
/// There is no such leaf, or it is not one of several copies.
pub(crate) fn detach(top: &VdevConfig, leaf: Guid) -> Result<Detached> {
    let not_one_of_several = || Error::Unsupported("only applicable to mirror and replacing vdevs".into());
    let found = find(top, leaf).ok_or_else(|| Error::NotFound(format!("device {leaf}")))?;
    let above = parent_of(top, leaf).filter(|above| is_mirror(&above.kind) && above.children.len() > 1);
    let above_guid = above.filter(|_| found.kind.is_leaf()).ok_or_else(not_one_of_several)?.guid;
    let is_first_of_spare = parent_of(top, above_guid).is_some_and(|of| {
        of.kind == VdevKind::Spare && of.children.first().is_some_and(|first| first.guid == above_guid)
    });
    let mut changed = top.clone();
    let above = find_mut(&mut changed, above_guid).ok_or_else(not_one_of_several)?;
    let place = above.children.iter().position(|child| child.guid == leaf).ok_or_else(not_one_of_several)?;
    let removed = above.children.remove(place);
    if above.kind == VdevKind::Replacing && place > 0 {
        path_as_before(above, &removed);
    }
    // Without the original, its spare is no spare any more.
    let mut unspared = None;
    if above.kind == VdevKind::Spare
        && place == 0
        && let Some(last) = above.children.last_mut()
        && last.is_spare
        && !matches!(last.kind, VdevKind::DraidSpare { .. })
    {
        (last.is_spare, last.unspare) = (false, true);
        unspared = Some(last.guid);
    }
    number(above);
    let mut renamed = None;
    if above.children.len() == 1
        && let Some(mut last) = above.children.pop()
    {
        match above.kind {
            VdevKind::Spare => last.unspare = false,
            // The device that the spare stood in for is gone, and has a successor.
            VdevKind::Replacing if is_first_of_spare && place == 0 => last.unspare = true,
            _ => {}
        }
        last.id = above.id;
        if above_guid == top.guid {
            take_place(&mut last, above);
            renamed = Some(Renamed { from: last.guid, to: above_guid });
            last.guid = above_guid;
        }
        *above = last;
    }
    Ok(Detached { top: changed, leaf: removed, renamed, unspared })
}

/// The next device under `vdev` that is to be detached after a resilver (`spa_vdev_resilver_done_hunt`).
/// `has_all` says whether a leaf missed nothing, and `is_needed` whether some data are only there.
pub(crate) fn next_done(
    vdev: &VdevConfig,
    has_all: &dyn Fn(Guid) -> bool,
    is_needed: &dyn Fn(Guid) -> bool,
) -> Option<Done> {
    if let Some(done) = vdev.children.iter().find_map(|child| next_done(child, has_all, is_needed)) {
        return Some(done);
    }
    let (last, before) = vdev.children.split_last()?;
    let first = before.first()?;
    let done = |leaf: &VdevConfig, parent: &VdevConfig, holder: &VdevConfig| {
        (leaf.guid != holder.guid && has_all(holder.guid) && !is_needed(leaf.guid)).then_some(Done {
            leaf: leaf.guid,
            parent: parent.guid,
            holder: holder.guid,
        })
    };
    let replaces = |new: &VdevConfig, old: &VdevConfig| {
        let are_leaves = new.kind.is_leaf() && old.kind.is_leaf();
        if are_leaves { done(old, vdev, new) } else { None }
    };
    match vdev.kind {
        VdevKind::Replacing => {
            let holder = last.leaves().into_iter().find(|leaf| has_all(leaf.guid))?;
            before.iter().find_map(|old| {
                let (leaf, parent) = last_leaf(old, vdev);
                done(leaf, parent, holder)
            })
        }
        VdevKind::Spare => {
            let original_is_gone = || if last.unspare { replaces(last, first) } else { None };
            let original_is_back = || if first.unspare { replaces(first, last) } else { None };
            // Of several spares for one device, one is enough.
            let several = || match before.get(1) {
                Some(middle) if middle.is_spare && last.is_spare => replaces(last, middle),
                _ => None,
            };
            original_is_gone().or_else(original_is_back).or_else(several)
        }
        _ => None,
    }
}

/// The last leaf at or below `vdev`, and the vdev above it, which is `above` for `vdev` itself.
fn last_leaf<'a>(vdev: &'a VdevConfig, above: &'a VdevConfig) -> (&'a VdevConfig, &'a VdevConfig) {
    match vdev.children.last() {
        Some(last) => last_leaf(last, vdev),
        None => (vdev, above),
    }
}

/// The vdev with this guid.
pub(crate) fn find(vdev: &VdevConfig, guid: Guid) -> Option<&VdevConfig> {
    if vdev.guid == guid {
        return Some(vdev);
    }
    vdev.children.iter().find_map(|child| find(child, guid))
}

/// The vdev above the one with this guid; `None` for `vdev` itself.
pub(crate) fn parent_of(vdev: &VdevConfig, guid: Guid) -> Option<&VdevConfig> {
    if vdev.children.iter().any(|child| child.guid == guid) {
        return Some(vdev);
    }
    vdev.children.iter().find_map(|child| parent_of(child, guid))
}

/// The vdev with this guid, to be changed.
pub(crate) fn find_mut(vdev: &mut VdevConfig, guid: Guid) -> Option<&mut VdevConfig> {
    if vdev.guid == guid {
        return Some(vdev);
    }
    vdev.children.iter_mut().find_map(|child| find_mut(child, guid))
}

/// The vdev with this guid, of a tree.
pub(crate) fn find_vdev(vdev: &Vdev, guid: Guid) -> Option<&Vdev> {
    vdev.walk().find(|vdev| vdev.guid == guid)
}

/// The vdev of a tree above the one with this guid.
pub(crate) fn parent_of_vdev(vdev: &Vdev, guid: Guid) -> Option<&Vdev> {
    vdev.walk().find(|vdev| vdev.children.iter().any(|child| child.guid == guid))
}

/// Marks those of `leaves` for which a spare is in use: it goes back when they have everything. Returns
/// whether anything changed.
pub(crate) fn set_unspare(vdev: &mut VdevConfig, leaves: &[Guid]) -> bool {
    let mut changed = false;
    if vdev.kind == VdevKind::Spare
        && let Some(first) = vdev.children.first_mut()
        && leaves.contains(&first.guid)
    {
        changed = !std::mem::replace(&mut first.unspare, true);
    }
    vdev.children.iter_mut().fold(changed, |changed, child| set_unspare(child, leaves) | changed)
}

/// Whether every child holds all data.
pub(crate) fn is_mirror(kind: &VdevKind) -> bool {
    matches!(kind, VdevKind::Mirror | VdevKind::Replacing | VdevKind::Spare)
}

/// Numbers the children by their places.
fn number(vdev: &mut VdevConfig) {
    for (id, child) in (0..).zip(&mut vdev.children) {
        child.id = Some(VdevId(id));
    }
}

/// Puts a new vdev above `old`, in its place.
fn put_above(old: &mut VdevConfig, kind: VdevKind, guid: Guid, is_top: bool) {
    let mut above = VdevConfig::blank(kind, guid);
    (above.id, above.create_txg) = (old.id, old.create_txg);
    if is_top {
        take_place(&mut above, old);
    }
    let old_config = std::mem::replace(old, above);
    old.children.push(old_config);
}

/// Moves what belongs to the place of a top-level vdev.
fn take_place(to: &mut VdevConfig, from: &mut VdevConfig) {
    to.metaslab_array = from.metaslab_array.take();
    to.metaslab_shift = from.metaslab_shift.take();
    to.ashift = from.ashift.take();
    to.asize = from.asize.take();
    to.top_zap = from.top_zap.take();
    to.allocation_bias = from.allocation_bias.take();
    to.is_log = std::mem::take(&mut from.is_log);
    to.non_allocating = std::mem::take(&mut from.non_allocating);
    to.removing = std::mem::take(&mut from.removing);
}

/// The device that is replaced by itself gets its path back when the new one is detached.
fn path_as_before(above: &mut VdevConfig, new: &VdevConfig) {
    let Some(path) = &new.path else { return };
    let old = [path.as_bytes(), OLD].concat();
    let mut siblings = above.children.iter_mut();
    if let Some(sibling) =
        siblings.find(|sibling| sibling.path.as_ref().is_some_and(|of| of.as_bytes() == old))
    {
        sibling.path = Some(path.clone());
    }
}

#[cfg(test)]
mod tests;
