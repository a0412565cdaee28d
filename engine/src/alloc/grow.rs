//! Vdevs that become larger.
//!
//! All that a larger vdev needs on disk is its size in the configuration: space maps of metaslabs begin with
//! their first block. The new metaslabs are handed out when the group that says so is committed, and not
//! before: after a crash the pool has the old size again, and nothing that an intent log acknowledged may lie
//! beyond it.

use ondisk::metaslab::MetaslabLayout;
use ondisk::{Txg, VdevId};

use super::allocator::Allocator;
use super::load::bounds;
use super::metaslab::Metaslab;
use crate::error::{Error, Result};
use crate::vdev::Vdev;

impl Allocator {
    /// A vdev has `asize` bytes as soon as group `txg` is committed.
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
