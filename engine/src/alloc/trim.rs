//! Free space for whoever wants nothing but to tell devices that it is free ([`crate::pool::live`], trim).
//!
//! Runs are taken as an allocation of the group that is being written takes them, and returned before that
//! group's space maps are written. So nobody gets them meanwhile, and no space map ever tells of it.

use ondisk::{Txg, VdevId};

use super::allocator::{Allocator, MetaslabId, State};
use super::metaslab::Metaslab;

/// A run of free space of a top-level vdev.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    /// The vdev.
    pub vdev: VdevId,
    /// Its first byte.
    pub from: u64,
    /// The first byte after it.
    pub to: u64,
}

impl Allocator {
    /// The metaslabs of a top-level vdev.
    pub fn metaslabs(&self, vdev: VdevId) -> Vec<MetaslabId> {
        let mut state = self.state();
        let count = state.group(vdev).map_or(0, |group| group.metaslabs().len());
        (0..count).map(|place| MetaslabId { vdev, place }).collect()
    }

    /// Where a metaslab begins and ends.
    pub fn extent(&self, id: MetaslabId) -> Option<(u64, u64)> {
        let mut state = self.state();
        let bounds = state.group(id.vdev).ok()?.metaslabs().get(id.place)?.bounds();
        Some((bounds.start, bounds.start + bounds.size))
    }

    /// Takes free runs of at least `min` bytes within a range of a metaslab: so many runs, and so many bytes,
    /// at most. Of a metaslab that is not loaded, none. `txg` is the group that is being written;
    /// [`Allocator::give_back`] must follow before its space maps are.
    pub fn borrow_free(
        &self,
        id: MetaslabId,
        (from, to): (u64, u64),
        min: u64,
        max_runs: usize,
        max_bytes: u64,
        txg: Txg,
    ) -> Vec<Run> {
        let mut state = self.state();
        let Ok(group) = state.group(id.vdev) else { return Vec::new() };
        let Some(metaslab) = group.metaslab_mut(id.place) else { return Vec::new() };
        let within = metaslab.free_runs().into_iter().map(|(start, end)| (start.max(from), end.min(to)));
        let long: Vec<(u64, u64)> =
            within.filter(|(start, end)| start + min.max(1) <= *end).take(max_runs).collect();
        let mut runs = Vec::new();
        let mut bytes = 0;
        for (from, to) in long {
            let to = to.min(from.saturating_add(max_bytes - bytes));
            if bytes >= max_bytes || group.claim(from, to, txg).is_err() {
                break;
            }
            bytes += to - from;
            runs.push(Run { vdev: id.vdev, from, to });
        }
        runs
    }

    /// Returns what was borrowed.
    pub fn give_back(&self, runs: &[Run], txg: Txg) {
        let mut state = self.state();
        for run in runs {
            if let Ok(group) = state.group(run.vdev) {
                group.undo(run.from, run.to, txg);
            }
        }
    }

    /// Whether what becomes free is to be noted for [`Allocator::take_freed`].
    pub fn note_freed(&self, on: bool) {
        let mut state = self.state();
        for id in state.metaslab_ids() {
            if let Some(metaslab) = state.metaslab_mut(id) {
                metaslab.note_freed(on);
            }
        }
    }

    /// What became free since this was last asked, by metaslab; some of it may be in use again.
    pub fn take_freed(&self) -> Vec<(MetaslabId, Vec<(u64, u64)>)> {
        let mut state = self.state();
        let mut all = Vec::new();
        for id in state.metaslab_ids() {
            let freed = state.metaslab_mut(id).map(Metaslab::take_freed).unwrap_or_default();
            if !freed.is_empty() {
                all.push((id, freed.iter().collect()));
            }
        }
        all
    }
}

impl State {
    fn metaslab_ids(&mut self) -> Vec<MetaslabId> {
        let groups = self.groups.iter().flatten();
        let ids = groups.flat_map(|group| {
            let vdev = VdevId(group.vdev);
            (0..group.metaslabs().len()).map(move |place| MetaslabId { vdev, place })
        });
        ids.collect()
    }

    fn metaslab_mut(&mut self, id: MetaslabId) -> Option<&mut Metaslab> {
        self.group(id.vdev).ok()?.metaslab_mut(id.place)
    }
}
