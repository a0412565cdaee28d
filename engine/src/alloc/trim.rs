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
        self.borrow_within(id, &[(from, to)], min, (max_runs, max_bytes), txg)
    }

    /// The same of what is free of several ranges, which are in order.
    pub fn borrow_within(
        &self,
        id: MetaslabId,
        ranges: &[(u64, u64)],
        min: u64,
        (max_runs, max_bytes): (usize, u64),
        txg: Txg,
    ) -> Vec<Run> {
        let mut state = self.state();
        let Ok(group) = state.group(id.vdev) else { return Vec::new() };
        let Some(metaslab) = group.metaslab_mut(id.place) else { return Vec::new() };
        let long = common(&metaslab.free_runs(), ranges, min.max(1), max_runs);
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

    /// The ranges that became free since the last call, by metaslab of the top-level vdevs that `is_meant`
    /// selects; some of them may be in use again.
    pub fn take_freed(&self, is_meant: impl Fn(VdevId) -> bool) -> Vec<(MetaslabId, Vec<(u64, u64)>)> {
        let mut state = self.state();
        let mut all = Vec::new();
        for id in state.metaslab_ids().into_iter().filter(|id| is_meant(id.vdev)) {
            let freed = state.metaslab_mut(id).map(Metaslab::take_freed).unwrap_or_default();
            if !freed.is_empty() {
                all.push((id, freed.iter().collect()));
            }
        }
        all
    }
}

/// The parts of at least `min` bytes that two lists of ranges in order have in common, at most so many.
fn common(one: &[(u64, u64)], other: &[(u64, u64)], min: u64, most: usize) -> Vec<(u64, u64)> {
    let (mut parts, mut at) = (Vec::new(), 0);
    for (start, end) in one {
        // Ranges that end before this one end before all that follow.
        at += other[at..].partition_point(|(_, ends)| ends <= start);
        for (from, to) in other[at..].iter().take_while(|(from, _)| from < end) {
            let part = (*start.max(from), *end.min(to));
            if part.0 + min <= part.1 {
                if parts.len() == most {
                    return parts;
                }
                parts.push(part);
            }
        }
    }
    parts
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_two_lists_have_in_common_is_found_in_one_pass() {
        let free = [(0, 10), (20, 30), (40, 100)];
        let freed = [(5, 25), (26, 27), (29, 41), (50, 60), (70, 80), (95, 120)];
        let all = [(5, 10), (20, 25), (26, 27), (29, 30), (40, 41), (50, 60), (70, 80), (95, 100)];
        assert_eq!(common(&free, &freed, 1, usize::MAX), all);
        assert_eq!(common(&freed, &free, 1, usize::MAX), all);
        assert_eq!(common(&free, &freed, 5, usize::MAX), [(5, 10), (20, 25), (50, 60), (70, 80), (95, 100)]);
        assert_eq!(common(&free, &freed, 1, 2), all[..2]);
        assert_eq!(common(&free, &[], 1, 9), []);
    }
}
