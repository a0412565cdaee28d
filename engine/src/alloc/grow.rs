//! Vdevs that become larger.
//!
//! On disk, a larger vdev only needs its size in the configuration: space maps of metaslabs begin with their
//! first block. The new metaslabs are handed out after the group with the new size is committed, and not
//! before: after a crash the pool has the old size again, and no data that an intent log acknowledged may lie
//! beyond it.

use ondisk::metaslab::MetaslabLayout;
use ondisk::{Txg, VdevId};

use super::allocator::Allocator;
use super::metaslab::{Bounds, Metaslab};
use crate::error::{Error, Result};
use crate::vdev::Vdev;

/// More metaslabs than a vdev can have: OpenZFS aims at 200 and allows 128 K.
pub(crate) const MAX_METASLABS: u64 = 1 << 20;

impl Allocator {
    /// Gives a vdev `asize` bytes as soon as group `txg` is committed.
    pub fn grow(&self, top: &Vdev, asize: u64, txg: Txg) -> Result<()> {
        let vdev = u32::try_from(top.id).map_err(|_| Error::corrupt(&top.name, "its number is too large"))?;
        let mut state = self.state();
        let group = state.group(VdevId(vdev))?;
        let layout = MetaslabLayout::new(group.ms_shift.into(), asize).map_err(Error::format(&top.name))?;
        let more = bounds(top, layout)?.into_iter().skip(group.metaslabs().len());
        group.grow_with(txg, more.map(Metaslab::unused).collect());
        Ok(())
    }
}

/// The bounds of the metaslabs of a vdev.
pub fn bounds(top: &Vdev, layout: MetaslabLayout) -> Result<Vec<Bounds>> {
    if layout.count() > MAX_METASLABS {
        return Err(Error::corrupt(&top.name, format!("{} metaslabs", layout.count())));
    }
    let starts = (0..layout.count()).filter_map(|index| layout.start(index));
    starts.map(|start| Bounds::of(top, start.get(), layout.size_bytes())).collect()
}
