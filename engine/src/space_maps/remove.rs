//! Removing a top-level vdev that holds no data.
//!
//! First no new blocks are placed on the vdev ([`Allocator::set_allocating`]). When all its blocks are freed,
//! and their space is no longer deferred ([`Allocator::is_unused`]), the objects of its metaslabs are removed
//! from the MOS. Entries of log space maps that name it stay: readers skip a vdev without metaslabs.

use std::sync::Arc;

use ondisk::VdevId;
use ondisk::features::Feature;

use super::sync::has_histogram;
use crate::alloc::Allocator;
use crate::alloc::allocator::State;
use crate::alloc::group::Group;
use crate::dmu::LiveObjset;
use crate::error::{Error, Result};
use crate::txg::Tx;

impl Allocator {
    /// Whether new blocks may be put on a vdev.
    pub fn set_allocating(&self, vdev: VdevId, on: bool) -> Result<()> {
        self.state().group(vdev)?.allocating = on;
        Ok(())
    }

    /// Whether nothing is allocated on a vdev, and no space waits to be free.
    pub fn is_unused(&self, vdev: VdevId) -> Result<bool> {
        Ok(self.state().group(vdev)?.is_unused())
    }

    /// Removes an unused vdev, in syncing context.
    pub async fn remove_top(&self, mos: &Arc<LiveObjset>, tx: &Tx, vdev: VdevId) -> Result<()> {
        let (group, since) = {
            let mut state = self.state();
            let since = state.logs.forget(vdev);
            (state.remove_group(vdev)?, since)
        };
        for map in group.metaslabs().iter().filter_map(|metaslab| metaslab.on_disk.object) {
            if has_histogram(&*mos.object(map).await?)? {
                self.state().feature_changes.push((Feature::SpacemapHistogram, -1));
            }
            mos.free(tx, map).await?;
        }
        for array in since.into_iter().chain([group.array]) {
            mos.free(tx, array).await?;
        }
        Ok(())
    }
}

impl State {
    fn remove_group(&mut self, vdev: VdevId) -> Result<Group> {
        let place = vdev.get() as usize;
        for rotor in &mut self.rotors {
            rotor.members.retain(|member| *member != place);
        }
        let Some(group) = self.groups.get_mut(place).and_then(Option::take) else {
            return Err(Error::corrupt(format!("top-level vdev {vdev}"), "it has no metaslabs"));
        };
        let runs: usize = group.metaslabs().iter().map(|metaslab| metaslab.unflushed.runs()).sum();
        self.unflushed_runs = self.unflushed_runs.saturating_sub(runs);
        Ok(group)
    }
}
