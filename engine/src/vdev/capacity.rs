//! How much space devices provide, and vdevs that grow with them.
//!
//! A leaf provides the space between its labels, in whole labels. The size of a vdev with children follows
//! from its smallest child. A vdev keeps the size in its configuration when its devices are larger. The
//! difference is the space by which it could grow ([`Vdev::expandable_bytes`]), in whole metaslabs, because a
//! vdev only grows by whole ones.
//!
//! When a device grows, its last two labels move to the new end. The first two stay, and are copied there.
//!
//! Source of the facts: OpenZFS 2.3 `vdev.c` (`vdev_open`, `vdev_get_stats_ex`), `vdev_raidz.c`,
//! `vdev_draid.c` (their `open`), `vdev_label.c` (`vdev_copy_uberblocks`).

use crate::tunables::{ZFS_VDEV_DEFAULT_MS_COUNT, ZFS_VDEV_MIN_MS_COUNT};
use std::sync::atomic::Ordering;

use ondisk::label::aligned_size;
use ondisk::vdev_config::VdevKind;

use super::config::Needs;
use super::write::copy_labels_to_end;
use super::{Class, Kind, LABEL_END_BYTES, LABEL_START_BYTES, Vdev, VdevTree};

/// Bytes of each child in one row of draid groups.
const DRAID_ROW_BYTES: u64 = 16 << 20;

/// The bytes of a device of this size that hold blocks.
pub(crate) fn usable_bytes(device_bytes: u64) -> u64 {
    aligned_size(device_bytes).saturating_sub(LABEL_START_BYTES + LABEL_END_BYTES)
}

/// The bytes of a top-level vdev of `asize` bytes that blocks can be in: whole metaslabs of `1 << shift`
/// bytes, as far as that is known. Devices may have less than `asize`, but not less than this.
pub(crate) fn in_use(asize: u64, shift: Option<u32>) -> u64 {
    shift.map_or(asize, |shift| asize >> shift << shift)
}

/// The size of a vdev with this many children, the smallest of which has `smallest` bytes.
pub(crate) fn size_of_parent(kind: &VdevKind, children: usize, smallest: u64) -> u64 {
    let children = children as u64;
    match kind {
        VdevKind::Raidz { .. } => smallest.saturating_mul(children),
        VdevKind::Draid { nparity, ndata, nspares, .. } => {
            let rows = smallest.saturating_sub(2 * DRAID_ROW_BYTES) / DRAID_ROW_BYTES;
            let disks = children.saturating_sub(u64::from(*nspares));
            let group = (u64::from(*nparity) + u64::from(*ndata)) * DRAID_ROW_BYTES;
            (rows * DRAID_ROW_BYTES).saturating_mul(disks) / group.max(1) * group
        }
        _ => smallest,
    }
}

impl VdevTree {
    /// Bytes by which the vdevs for ordinary blocks could grow.
    pub fn expandable_bytes(&self) -> u64 {
        self.tops.iter().filter(|top| top.class() == Class::Normal).map(Vdev::expandable_bytes).sum()
    }
}

impl Vdev {
    /// Allocatable bytes of a top-level vdev; 0 if unknown.
    pub fn asize(&self) -> u64 {
        self.asize.load(Ordering::Acquire)
    }

    /// The bytes that the devices provide; `None` while one of them is away.
    pub(crate) fn capacity(&self) -> Option<u64> {
        match &self.kind {
            Kind::Leaf(slot) if self.status().is_readable() => {
                slot.device().map(|device| usable_bytes(device.size_bytes()))
            }
            // It uses no space of its own.
            Kind::DraidSpare { .. } => Some(u64::MAX),
            Kind::Mirror | Kind::Replacing | Kind::Spare | Kind::Raidz(_) | Kind::Draid(_) => {
                let children = self.children.iter().map(Vdev::capacity);
                let smallest = children.collect::<Option<Vec<_>>>()?.into_iter().min()?;
                Some(size_of_parent(&self.config.kind, self.children.len(), smallest))
            }
            _ => None,
        }
    }

    /// The size that a top-level vdev would have if it used all space of its devices, if that is at least one
    /// metaslab more.
    pub(crate) fn larger_asize(&self) -> Option<u64> {
        let shift = self.metaslab_shift()?;
        let asize = self.capacity()? >> self.ashift << self.ashift;
        (asize >> shift > self.asize() >> shift).then_some(asize)
    }

    /// Bytes by which a top-level vdev could grow.
    pub fn expandable_bytes(&self) -> u64 {
        let larger = self.larger_asize().zip(self.metaslab_shift());
        larger.map_or(0, |(asize, shift)| (asize - self.asize()) >> shift << shift)
    }

    /// The size of metaslabs as a power of two. For a vdev that was made since the pool was opened, this is
    /// the size that it was made with.
    pub(crate) fn metaslab_shift(&self) -> Option<u32> {
        let asize = self.config.asize.map_or(0, |asize| asize.get());
        let shift = self.config.metaslab_shift.or_else(|| (asize > 0).then(|| choose_ms_shift(asize)))?;
        (shift < 64).then_some(shift.into())
    }

    /// Sets the size of a top-level vdev to `asize`.
    pub(crate) fn set_asize(&self, asize: u64) {
        self.asize.store(asize, Ordering::Release);
        self.need(Needs { ashift: self.ashift, bytes: in_use(asize, self.metaslab_shift()) });
    }

    fn need(&self, needs: Needs) {
        self.bytes_needed.store(needs.bytes, Ordering::Release);
        let of_child = needs.of_child(&self.config.kind, self.children.len());
        self.children.iter().for_each(|child| child.need(of_child));
    }

    /// Checks whether a leaf's device has grown. If so, its last two labels are at the new end from now on,
    /// and the function returns true.
    pub(crate) async fn notice_growth(&self) -> bool {
        let Kind::Leaf(slot) = &self.kind else { return false };
        let Some(device) = slot.device().filter(|_| self.status().is_readable()) else { return false };
        let before = aligned_size(device.size_bytes());
        match device.update_size() {
            Ok(bytes) if aligned_size(bytes) > before => {}
            Ok(_) => return false,
            Err(error) => {
                tracing::warn!(vdev = self.name, %error, "the size of a device cannot be told");
                return false;
            }
        }
        tracing::info!(vdev = self.name, before, size = device.size_bytes(), "a device has grown");
        copy_labels_to_end(self, &*device).await;
        true
    }
}

/// Metaslabs are at least as large as the largest block.
const MIN_MS_SHIFT: u32 = 24;
/// The usual size.
const DEFAULT_MS_SHIFT: u32 = 29;
/// The largest, unless there would be too many metaslabs.
const MAX_MS_SHIFT: u32 = 34;
/// With more metaslabs than this, they are made larger than the largest usual size.
const METASLABS_LIMIT: u64 = 1 << 17;

/// The size of metaslabs of a new vdev of `asize` bytes, as a power of two (`vdev_metaslab_set_size`).
pub(crate) fn choose_ms_shift(asize: u64) -> u8 {
    let above = |number: u64| number.checked_ilog2().map_or(0, |power| power + 1);
    let usual = asize >> DEFAULT_MS_SHIFT;
    // With fewer metaslabs than the first, they are made smaller than usual; with more than the second, larger.
    let (least, most) = (ZFS_VDEV_MIN_MS_COUNT.get().max(1), ZFS_VDEV_DEFAULT_MS_COUNT.get().max(1));
    let shift = if usual < least {
        above(asize / least)
    } else if usual > most {
        above(asize / most)
    } else {
        DEFAULT_MS_SHIFT
    };
    let mut shift = shift.max(MIN_MS_SHIFT);
    if shift > MAX_MS_SHIFT {
        shift = MAX_MS_SHIFT;
        if asize >> shift > METASLABS_LIMIT {
            shift = above(asize / METASLABS_LIMIT);
        }
    }
    shift as u8
}
