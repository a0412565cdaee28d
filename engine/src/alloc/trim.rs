//! Borrowing free space to tell devices that it is free ([`crate::pool::live`], trim).
//!
//! Trim takes runs like an allocation of the group that is being written, and returns them before that
//! group's space maps are written. So no block is placed there meanwhile, and no space map ever records them.

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

    /// Takes free runs of at least `min` bytes within a range of a metaslab: at most this many runs and
    /// bytes, and none of a metaslab that is not loaded. `txg` is the group that is being written; the caller
    /// must call [`Allocator::give_back`] before its space maps are written.
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

    /// Returns borrowed runs.
    pub fn give_back(&self, runs: &[Run], txg: Txg) {
        let mut state = self.state();
        for run in runs {
            if let Ok(group) = state.group(run.vdev) {
                group.undo(run.from, run.to, txg);
            }
        }
    }

    /// Sets whether ranges that become free are noted for [`Allocator::take_freed`].
    pub fn note_freed(&self, on: bool) {
        let mut state = self.state();
        for id in state.metaslab_ids() {
            if let Some(metaslab) = state.metaslab_mut(id) {
                metaslab.note_freed(on);
            }
        }
    }

    /// The ranges that became free since the last call, by metaslab; some of them may be in use again.
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
