//! One metaslab: its free space, and the space that is about to be allocated or free.
//!
//! # The states of a sector
//!
//! ```text
//!              allocate                 synced
//!      free -------------> allocating[txg] -----> allocated
//!       ^                     | free, same txg       | free
//!       |                     v                      v       taken by the sync
//!       |     views gone    freed[txg] <---------- freeing[txg]
//!       +--- deferred[txg] <----+   group committed
//!            and two groups later
//! ```
//!
//! The space map on disk contains as free the sectors that are free, freed, deferred, or allocating in a
//! group that is not synced yet. Space that was allocated and freed in one group never reaches the space map,
//! but still is not handed out before the group is long committed: its old contents may be on their way to
//! the device, or a reader that saw them before may read them.
//!
//! # Loading
//! A metaslab whose space map was not read (*not loaded*) takes frees, but hands nothing out: the header of
//! its map contains the allocated size and, roughly, the length of the longest free run. It is loaded when
//! space in it is requested, and unloaded when it was not used for many groups. A metaslab whose map cannot
//! be read is *broken*: it is not tried again.
//!
//! # Unflushed changes
//! When changes are logged for the whole pool ([`super::log`]), the metaslab's own map is the state of an
//! older group. Later changes are also kept in memory ([`Changes`]), until the metaslab is flushed.
//!
//! Plain data without a lock; the allocator's guards it.

use std::collections::VecDeque;

use ondisk::space_map::HISTOGRAM_BUCKETS;
use ondisk::{ObjectId, Txg};

use super::free_set::{self, FreeSet};
use crate::error::{Error, Result};
use crate::range_set::RangeSet;
use crate::vdev::{Kind, Vdev};

/// The number of groups that must be committed after a group before the space that it freed is reused
/// (`TXG_DEFER_SIZE`).
pub const DEFER_TXGS: u64 = 2;
/// Runs shorter than this are found only by length.
const SHORT_RUN_BYTES: u64 = 128 << 10;

/// The bounds of a metaslab.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// The first byte on its vdev.
    pub start: u64,
    /// The size in bytes; whole sectors.
    pub size: u64,
    /// The sector size as a power of two.
    pub shift: u8,
}

impl Bounds {
    /// The usable part of a slice of a vdev: on draid it begins and ends with a whole row of a group.
    pub fn of(top: &Vdev, start: u64, size: u64) -> Result<Self> {
        let (start, size) = match &top.kind {
            Kind::Draid(draid) => {
                let config = draid.config();
                // Both are at most 255, and the shift at most 16.
                let row = ((config.data + config.nparity) as u64) << config.ashift;
                let first = start.div_ceil(row).saturating_mul(row);
                (first, size.saturating_sub(first - start) / row * row)
            }
            _ => (start, size),
        };
        match u8::try_from(top.ashift) {
            Ok(shift @ 9..=16) if size >> shift <= u64::from(u32::MAX) => Ok(Self { start, size, shift }),
            _ => Err(Error::Unsupported(format!(
                "{}: metaslabs of {size} bytes in sectors of 2^{} bytes cannot be written",
                top.name, top.ashift
            ))),
        }
    }

    fn sectors(&self) -> u32 {
        (self.size >> self.shift) as u32
    }

    /// A range of bytes of the vdev as sectors of this metaslab.
    fn to_sectors(self, from: u64, to: u64) -> Option<(u32, u32)> {
        let offset = from.checked_sub(self.start)?;
        let length = to.checked_sub(from)?;
        let whole = (offset | length).trailing_zeros() >= self.shift.into();
        if !whole || length == 0 || offset.checked_add(length)? > self.size {
            return None;
        }
        Some(((offset >> self.shift) as u32, (length >> self.shift) as u32))
    }

    fn to_bytes(self, start: u32, length: u32) -> (u64, u64) {
        let from = self.start + (u64::from(start) << self.shift);
        (from, from + (u64::from(length) << self.shift))
    }
}

/// The space map object on disk, after the last call of sync.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OnDisk {
    /// The object; absent while the metaslab was never used.
    pub object: Option<ObjectId>,
    /// The bytes of it that are valid.
    pub length_bytes: u64,
    /// The bytes that it records as allocated.
    pub allocated_bytes: i64,
}

/// Changes of one group.
#[derive(Debug, Default)]
struct Pending {
    txg: Txg,
    allocating: RangeSet,
    freeing: RangeSet,
    freed: RangeSet,
}

/// Changes that the metaslab's own space map does not contain: they are in log space maps.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Changes {
    /// Ranges that are free in the space map and allocated now.
    pub allocs: RangeSet,
    /// Ranges that are allocated in the space map and free now.
    pub frees: RangeSet,
}

impl Changes {
    /// Whether there are no changes.
    pub fn is_empty(&self) -> bool {
        self.allocs.is_empty() && self.frees.is_empty()
    }

    /// The number of their runs.
    pub fn runs(&self) -> usize {
        self.allocs.runs() + self.frees.runs()
    }

    /// Adds later changes.
    pub fn then(&mut self, later: &Self) {
        later.allocs.iter().for_each(|(from, to)| self.alloc(from, to));
        later.frees.iter().for_each(|(from, to)| self.free(from, to));
    }

    /// Notes that a range was allocated.
    pub fn alloc(&mut self, from: u64, to: u64) {
        move_or_add(&mut self.frees, &mut self.allocs, from, to);
    }

    /// Notes that a range was freed.
    pub fn free(&mut self, from: u64, to: u64) {
        move_or_add(&mut self.allocs, &mut self.frees, from, to);
    }
}

/// Removes a range from `undone` as far as it is in there, and adds the rest to `done`.
fn move_or_add(undone: &mut RangeSet, done: &mut RangeSet, from: u64, to: u64) {
    let undo: Vec<(u64, u64)> = undone.within(from, to).collect();
    let mut at = from;
    for (low, high) in undo {
        done.add(at, low);
        undone.remove(low, high);
        at = high;
    }
    done.add(at, to);
}

/// The space of a metaslab that may be handed out, as far as it is known.
#[derive(Debug)]
enum Free {
    /// The space map was read.
    Loaded(Box<FreeSet>),
    /// The space map was not read. The length of the longest run is about this power of two, plus one; 0 when
    /// nothing is free.
    Estimated(u32),
    /// The space map cannot be read.
    Broken,
}

/// One metaslab.
#[derive(Debug)]
pub struct Metaslab {
    bounds: Bounds,
    /// Its space map.
    pub on_disk: OnDisk,
    /// The space that may be handed out.
    free: Free,
    /// Groups with changes, in no order; three at most.
    pending: Vec<Pending>,
    /// Freed ranges that are not reusable yet: by group, oldest first.
    deferred: VecDeque<(Txg, RangeSet)>,
    /// The changes that its own space map does not contain.
    pub unflushed: Changes,
    /// The group in which space was last taken from it, or in which it was loaded.
    used_in: Txg,
    /// Freed bytes that are not reusable yet.
    waiting_bytes: u64,
    /// Bytes that are neither free nor waiting.
    allocated_bytes: u64,
    /// Ranges that became free, for trim; absent when no trim wants them.
    freed: Option<RangeSet>,
}

/// The power of two of a run's length, plus one; 0 for none. More is better.
pub fn rank_of(longest_bytes: u64) -> u32 {
    longest_bytes.checked_ilog2().map_or(0, |power| power + 1)
}

impl Metaslab {
    /// The runs that may be handed out; none while the metaslab is not loaded.
    pub fn free_runs(&mut self) -> Vec<(u64, u64)> {
        let bounds = self.bounds;
        let runs = self.loaded_mut().map(|free| free.iter().collect::<Vec<_>>()).unwrap_or_default();
        runs.into_iter().map(|(start, length)| bounds.to_bytes(start, length)).collect()
    }

    /// Starts or stops noting the ranges that become free.
    pub fn note_freed(&mut self, on: bool) {
        self.freed = on.then(|| self.freed.take().unwrap_or_default());
    }

    /// The ranges that became free since the last call.
    pub fn take_freed(&mut self) -> RangeSet {
        self.freed.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// A metaslab without allocations.
    pub fn unused(bounds: Bounds) -> Self {
        let mut metaslab = Self::unloaded(bounds, OnDisk::default(), None);
        let mut free = metaslab.nothing_free();
        let added = free.add(0, bounds.sectors());
        debug_assert!(added || bounds.sectors() == 0);
        metaslab.free = Free::Loaded(Box::new(free));
        metaslab
    }

    /// A metaslab whose space map was not read yet; `histogram` is that of the map's header.
    pub fn unloaded(bounds: Bounds, on_disk: OnDisk, histogram: Option<[u64; HISTOGRAM_BUCKETS]>) -> Self {
        let allocated_bytes = u64::try_from(on_disk.allocated_bytes).unwrap_or(0);
        let free_bytes = bounds.size.saturating_sub(allocated_bytes);
        let longest = histogram.and_then(|histogram| histogram.iter().rposition(|runs| *runs > 0));
        let rank = match longest {
            Some(power) => power as u32 + u32::from(bounds.shift) + 1,
            None => rank_of(free_bytes),
        };
        Self {
            bounds,
            on_disk,
            free: Free::Estimated(rank.min(rank_of(free_bytes))),
            pending: Vec::new(),
            deferred: VecDeque::new(),
            unflushed: Changes::default(),
            used_in: Txg::NONE,
            waiting_bytes: 0,
            allocated_bytes,
            freed: None,
        }
    }

    /// Adds the changes in logs to its space map, as the pool is opened. An error when they contradict each
    /// other.
    pub fn set_unflushed(&mut self, changes: Changes) -> Result<()> {
        let Bounds { start, size, .. } = self.bounds;
        let (allocs, frees) = (changes.allocs.total(), changes.frees.total());
        let allocated = self.allocated_bytes.checked_sub(frees).and_then(|rest| rest.checked_add(allocs));
        let allocated = allocated.filter(|allocated| *allocated <= size);
        self.allocated_bytes = allocated.ok_or_else(|| {
            self.damaged(start, start + size, "has other allocations than log space maps change")
        })?;
        let longest = changes.frees.iter().map(|(from, to)| to - from).max().unwrap_or(0);
        if let Free::Estimated(rank) = &mut self.free {
            *rank = (*rank).max(rank_of(longest));
        } else if allocs > 0 {
            // According to its own map, it was never used.
            self.free = Free::Estimated(rank_of(size));
        }
        self.unflushed = changes;
        Ok(())
    }

    fn nothing_free(&self) -> FreeSet {
        let short = u32::try_from(SHORT_RUN_BYTES >> self.bounds.shift).unwrap_or(1).max(1);
        FreeSet::new(self.bounds.sectors(), short)
    }

    /// Sets the contents of its space map: the `allocated` ranges. Unflushed, waiting and pending changes are
    /// added here.
    pub fn load(&mut self, mut allocated: RangeSet) -> Result<()> {
        let Bounds { start, size, .. } = self.bounds;
        for (from, to) in self.unflushed.frees.iter() {
            if allocated.remove(from, to) != to - from {
                return Err(self.damaged(from, to, "is freed twice in log space maps"));
            }
        }
        let waiting = self.deferred.iter().map(|(_, set)| set);
        let waiting =
            waiting.chain(self.pending.iter().map(|pending| &pending.freed)).flat_map(RangeSet::iter);
        for (from, to) in waiting.chain(self.unflushed.allocs.iter()) {
            if allocated.add(from, to) != 0 {
                return Err(self.damaged(from, to, "is allocated twice, or was freed and is allocated"));
            }
        }
        for (from, to) in self.pending.iter().flat_map(|pending| pending.freeing.iter()) {
            if !allocated.contains(from, to) {
                return Err(self.damaged(from, to, "is freed twice, or was never allocated"));
            }
        }
        let mut free = self.nothing_free();
        let mut at = start;
        for (from, to) in allocated.iter().chain([(start + size, start + size)]) {
            if at < from {
                let run = self.bounds.to_sectors(at, from);
                if !run.is_some_and(|(start, length)| free.add(start, length)) {
                    return Err(self.damaged(at, from, "is not in whole sectors"));
                }
            }
            at = to;
        }
        if allocated.total() + (free.total() << self.bounds.shift) != size {
            return Err(self.damaged(start, start + size, "has allocations beyond its end"));
        }
        if allocated.total() != self.allocated_bytes + self.waiting_bytes {
            return Err(self.damaged(start, start + size, "has other allocations than its header says"));
        }
        self.free = Free::Loaded(Box::new(free));
        Ok(())
    }

    /// No space is ever taken from it again: its space map cannot be read.
    pub fn give_up(&mut self) {
        self.free = Free::Broken;
    }

    /// Drops the free runs from memory, if they can be read again.
    pub fn unload(&mut self) {
        let rank = self.rank();
        if self.is_loaded() && !self.is_busy() && self.on_disk.object.is_some() {
            self.free = Free::Estimated(rank);
        }
    }

    /// Whether the space that may be handed out is known.
    pub fn is_loaded(&self) -> bool {
        matches!(self.free, Free::Loaded(_))
    }

    /// Whether it may be loaded, and is not.
    pub fn is_unloaded(&self) -> bool {
        matches!(self.free, Free::Estimated(_))
    }

    fn loaded(&self) -> Option<&FreeSet> {
        match &self.free {
            Free::Loaded(free) => Some(free),
            _ => None,
        }
    }

    fn loaded_mut(&mut self) -> Option<&mut FreeSet> {
        match &mut self.free {
            Free::Loaded(free) => Some(free),
            _ => None,
        }
    }

    /// Free runs that are kept in memory.
    pub fn runs(&self) -> usize {
        self.loaded().map_or(0, FreeSet::runs)
    }

    /// The group in which space was last taken from it, or in which it was loaded.
    pub fn used_in(&self) -> Txg {
        self.used_in
    }

    /// Notes that it was loaded to be used in this group.
    pub fn is_used_in(&mut self, txg: Txg) {
        self.used_in = self.used_in.max(txg);
    }

    /// Its bounds.
    pub fn bounds(&self) -> Bounds {
        self.bounds
    }

    /// Bytes that are neither free nor waiting to be free.
    pub fn allocated_bytes(&self) -> u64 {
        self.allocated_bytes
    }

    /// Bytes that were freed and are not reusable yet.
    pub fn waiting_bytes(&self) -> u64 {
        self.waiting_bytes
    }

    /// The rank of its longest free run ([`rank_of`]); an estimate while it is not loaded.
    pub fn rank(&self) -> u32 {
        match &self.free {
            Free::Loaded(free) => rank_of(u64::from(free.longest()) << self.bounds.shift),
            Free::Estimated(rank) => *rank,
            Free::Broken => 0,
        }
    }

    /// Bytes that may be handed out.
    pub fn free_bytes(&self) -> u64 {
        self.bounds.size.saturating_sub(self.allocated_bytes).saturating_sub(self.waiting_bytes)
    }

    /// Bytes that may be handed out, in pieces of any size, while a run of `least` bytes is still sure to be
    /// found; none while its runs are not known.
    pub(crate) fn free_in_runs_of(&self, least: u64) -> u64 {
        let sectors = u32::try_from(least.div_ceil(1 << self.bounds.shift)).unwrap_or(u32::MAX);
        self.loaded().map_or(0, |free| free.in_runs_of(sectors)) << self.bounds.shift
    }

    /// Whether it has work to do when a group is synced or committed.
    pub fn is_busy(&self) -> bool {
        !self.pending.is_empty() || !self.deferred.is_empty()
    }

    fn damaged(&self, from: u64, to: u64, detail: &str) -> Error {
        let Bounds { start, .. } = self.bounds;
        Error::corrupt(format!("metaslab at {start:#x}"), format!("{from:#x}..{to:#x} {detail}"))
    }

    fn pending(&mut self, txg: Txg) -> &mut Pending {
        let place = match self.pending.iter().position(|pending| pending.txg == txg) {
            Some(place) => place,
            None => {
                self.pending.push(Pending { txg, ..Pending::default() });
                self.pending.len() - 1
            }
        };
        &mut self.pending[place]
    }

    /// Takes `size` bytes, whole sectors, for group `txg`; returns their first byte.
    pub fn allocate(&mut self, size: u64, txg: Txg) -> Option<u64> {
        let shift = self.bounds.shift;
        debug_assert!(size.trailing_zeros() >= shift.into(), "sizes are whole sectors");
        let sectors = u32::try_from(size.div_ceil(1 << shift)).ok()?;
        let start = self.loaded_mut()?.allocate(sectors)?;
        self.used_in = self.used_in.max(txg);
        let (from, to) = self.bounds.to_bytes(start, sectors);
        self.pending(txg).allocating.add(from, to);
        self.allocated_bytes += to - from;
        Some(from)
    }

    /// Undoes what [`Metaslab::allocate`] just did; the space was not used.
    pub fn undo(&mut self, from: u64, to: u64, txg: Txg) {
        let undone = self.pending(txg).allocating.remove(from, to);
        debug_assert_eq!(undone, to - from);
        let sectors = self.bounds.to_sectors(from, to);
        if let (Some(free), Some((start, length))) = (self.loaded_mut(), sectors) {
            let added = free.add(start, length);
            debug_assert!(added);
        }
        self.allocated_bytes -= undone;
    }

    /// Marks a free range as allocated in `txg`.
    pub fn claim(&mut self, from: u64, to: u64, txg: Txg) -> Result<()> {
        let sectors = self.bounds.to_sectors(from, to);
        let sectors = sectors.ok_or_else(|| self.damaged(from, to, "is claimed and not inside"))?;
        let Some(free) = self.loaded_mut() else {
            return Err(self.damaged(from, to, "is claimed, and the metaslab is not loaded"));
        };
        if !free.remove(sectors.0, sectors.1) {
            return Err(self.damaged(from, to, "is claimed and not free"));
        }
        self.pending(txg).allocating.add(from, to);
        self.allocated_bytes += to - from;
        Ok(())
    }

    /// Returns an error when a range cannot be freed because it is not allocated, as far as that is known
    /// while the metaslab is not loaded.
    pub fn check_allocated(&self, from: u64, to: u64) -> Result<()> {
        let sectors = self.bounds.to_sectors(from, to);
        let (start, length) = sectors.ok_or_else(|| self.damaged(from, to, "is freed and not inside"))?;
        let is_free = self.loaded().is_some_and(|free| free.touches_any(start, length));
        let touches = |set: &RangeSet| set.within(from, to).next().is_some();
        let freed_before = self.deferred.iter().any(|(_, set)| touches(set))
            || self.pending.iter().any(|pending| touches(&pending.freeing) || touches(&pending.freed));
        if is_free || freed_before {
            return Err(self.damaged(from, to, "is freed twice, or was never allocated"));
        }
        Ok(())
    }

    /// Frees a range in `txg`.
    pub fn free(&mut self, from: u64, to: u64, txg: Txg) -> Result<()> {
        self.check_allocated(from, to)?;
        let touches = |set: &RangeSet| set.within(from, to).next().is_some();
        let in_groups = |from_txg: Txg| {
            self.pending.iter().any(|pending| pending.txg >= from_txg && touches(&pending.allocating))
        };
        let is_new =
            self.pending.iter().any(|pending| pending.txg == txg && pending.allocating.contains(from, to));
        if !is_new && in_groups(txg) || is_new && in_groups(Txg(txg.get() + 1)) {
            return Err(self.damaged(from, to, "is freed before all of it is allocated"));
        }
        let pending = self.pending(txg);
        if is_new {
            pending.allocating.remove(from, to);
            pending.freed.add(from, to);
        } else {
            pending.freeing.add(from, to);
        }
        self.waiting_bytes += to - from;
        self.allocated_bytes = self.allocated_bytes.saturating_sub(to - from);
        Ok(())
    }

    /// Whether group `txg` has changes that were not taken yet.
    pub fn has_changes(&self, txg: Txg) -> bool {
        let of_txg = self.pending.iter().filter(|pending| pending.txg == txg);
        of_txg.into_iter().any(|pending| !pending.allocating.is_empty() || !pending.freeing.is_empty())
    }

    /// The changes of group `txg` since the last call. From now on they count as written.
    pub fn take(&mut self, txg: Txg) -> Changes {
        let pending = self.pending(txg);
        let allocs = std::mem::take(&mut pending.allocating);
        let frees = std::mem::take(&mut pending.freeing);
        for (from, to) in frees.iter() {
            pending.freed.add(from, to);
        }
        Changes { allocs, frees }
    }

    /// The ranges that its space map should record as allocated, if the map has more than twice the words
    /// that it needs, and some blocks of `block_bytes`.
    pub fn rewrite(&mut self, block_bytes: u64) -> Option<Vec<(u64, u64)>> {
        let needed = (self.loaded()?.runs() as u64 + 1) * 8;
        let is_too_long =
            self.on_disk.length_bytes > needed * 2 && self.on_disk.length_bytes > 4 * block_bytes;
        is_too_long.then(|| self.written())
    }

    /// The ranges that its space map records as allocated after all changes that were taken.
    fn written(&mut self) -> Vec<(u64, u64)> {
        let bounds = self.bounds;
        let mut free = RangeSet::default();
        if let Free::Loaded(set) = &mut self.free {
            for (start, length) in set.iter() {
                let (from, to) = bounds.to_bytes(start, length);
                free.add(from, to);
            }
        }
        let deferred = self.deferred.iter().map(|(_, set)| set);
        let pending = self.pending.iter().flat_map(|pending| [&pending.freed, &pending.allocating]);
        for (from, to) in deferred.chain(pending).flat_map(RangeSet::iter) {
            free.add(from, to);
        }
        let mut allocated = Vec::new();
        let mut at = bounds.start;
        for (from, to) in free.iter().chain([(bounds.start + bounds.size, 0)]) {
            if at < from {
                allocated.push((at, from));
            }
            at = to;
        }
        allocated
    }

    /// All free runs by size, including those that are not reusable yet, as in the header of its space map;
    /// `None` while it is not loaded.
    pub fn histogram(&self, txg: Txg) -> Option<[u64; HISTOGRAM_BUCKETS]> {
        let mut histogram = self.loaded()?.histogram();
        let freed = self.pending.iter().filter(|pending| pending.txg == txg).map(|pending| &pending.freed);
        for (from, to) in self.deferred.iter().map(|(_, set)| set).chain(freed).flat_map(RangeSet::iter) {
            free_set::count(&mut histogram, (to - from) >> self.bounds.shift);
        }
        Some(histogram)
    }

    /// Group `txg` is committed: space that was freed in groups up to `reusable` is free again. Returns true
    /// when some space became free.
    pub fn sync_done(&mut self, txg: Txg, reusable: Txg) -> bool {
        for pending in self.pending.extract_if(.., |pending| pending.txg <= txg) {
            debug_assert!(pending.allocating.is_empty() && pending.freeing.is_empty(), "all was synced");
            if !pending.freed.is_empty() {
                self.deferred.push_back((pending.txg, pending.freed));
            }
        }
        let mut released = false;
        while self.deferred.front().is_some_and(|(freed_in, _)| *freed_in <= reusable) {
            let Some((_, ranges)) = self.deferred.pop_front() else { break };
            self.waiting_bytes -= ranges.total();
            match &mut self.free {
                Free::Loaded(free) => {
                    let runs = ranges.iter().filter_map(|(from, to)| self.bounds.to_sectors(from, to));
                    for (start, length) in runs {
                        let added = free.add(start, length);
                        debug_assert!(added, "what was freed is not free");
                    }
                }
                // Loading it will find them free.
                Free::Estimated(rank) => {
                    let longest = ranges.iter().map(|(from, to)| to - from).max().unwrap_or(0);
                    *rank = (*rank).max(rank_of(longest));
                }
                Free::Broken => {}
            }
            if let Some(freed) = &mut self.freed {
                ranges.iter().for_each(|(from, to)| {
                    freed.add(from, to);
                });
            }
            released = true;
        }
        released
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: Bounds = Bounds { start: 1 << 24, size: 1 << 24, shift: 12 };

    /// Syncs and commits a group that no view holds.
    fn commit(metaslab: &mut Metaslab, txg: u64) -> Changes {
        let taken = metaslab.take(Txg(txg));
        metaslab.sync_done(Txg(txg), Txg(txg.saturating_sub(DEFER_TXGS)));
        taken
    }

    #[test]
    fn frees_are_not_reused_for_three_txgs() {
        let mut metaslab = Metaslab::unused(BOUNDS);
        let all = metaslab.allocate(BOUNDS.size, Txg(10)).unwrap();
        commit(&mut metaslab, 10);
        metaslab.free(all, all + 4096, Txg(11)).unwrap();
        assert_eq!(metaslab.allocate(4096, Txg(11)), None);
        commit(&mut metaslab, 11);
        assert_eq!(metaslab.allocate(4096, Txg(12)), None);
        commit(&mut metaslab, 12);
        assert_eq!(metaslab.allocate(4096, Txg(13)), None);
        assert_eq!(metaslab.waiting_bytes(), 4096);
        commit(&mut metaslab, 13);
        assert_eq!(metaslab.waiting_bytes(), 0);
        assert_eq!(metaslab.allocate(4096, Txg(14)), Some(all));
    }

    #[test]
    fn what_is_born_and_dies_in_one_group_is_never_written() {
        let mut metaslab = Metaslab::unused(BOUNDS);
        let at = metaslab.allocate(8192, Txg(10)).unwrap();
        metaslab.free(at, at + 4096, Txg(10)).unwrap();
        assert_ne!(metaslab.allocate(4096, Txg(10)), Some(at));
        let taken = commit(&mut metaslab, 10);
        assert_eq!(taken.allocs.iter().collect::<Vec<_>>(), [(at + 4096, at + 12288)]);
        assert!(taken.frees.is_empty());
    }

    #[test]
    fn a_second_free_is_refused_in_every_state() {
        let mut metaslab = Metaslab::unused(BOUNDS);
        let at = metaslab.allocate(8192, Txg(10)).unwrap();
        assert!(metaslab.free(at + 8192, at + 12288, Txg(10)).is_err());
        assert!(metaslab.free(at, at + 12288, Txg(10)).is_err());
        assert!(metaslab.free(at, at + 4096, Txg(9)).is_err());
        commit(&mut metaslab, 10);
        metaslab.free(at, at + 4096, Txg(11)).unwrap();
        assert!(metaslab.free(at, at + 4096, Txg(11)).is_err());
        assert!(metaslab.free(at, at + 8192, Txg(12)).is_err());
        for txg in 11..14 {
            commit(&mut metaslab, txg);
            assert!(metaslab.free(at, at + 4096, Txg(txg + 1)).is_err());
        }
        assert!(metaslab.free(at + 100, at + 200, Txg(20)).is_err());
    }

    #[test]
    fn open_groups_do_not_reach_the_map_of_the_syncing_one() {
        let mut metaslab = Metaslab::unused(BOUNDS);
        let first = metaslab.allocate(4096, Txg(10)).unwrap();
        let log = metaslab.allocate(4096, Txg(11)).unwrap();
        metaslab.on_disk.length_bytes = 1 << 20;
        let taken = metaslab.take(Txg(10));
        assert_eq!(metaslab.rewrite(4096), Some(vec![(first, first + 4096)]));
        assert_eq!(taken.allocs.iter().collect::<Vec<_>>(), [(first, first + 4096)]);
        metaslab.sync_done(Txg(10), Txg(8));
        let taken = metaslab.take(Txg(11));
        assert_eq!(taken.allocs.iter().collect::<Vec<_>>(), [(log, log + 4096)]);
    }

    /// All sectors except the third and fourth.
    fn two_sectors_free() -> RangeSet {
        let mut allocated = RangeSet::default();
        allocated.add(BOUNDS.start, BOUNDS.start + 8192);
        allocated.add(BOUNDS.start + 16384, BOUNDS.start + BOUNDS.size);
        allocated
    }

    fn on_disk(allocated: &RangeSet) -> OnDisk {
        OnDisk { object: Some(ObjectId(7)), length_bytes: 16, allocated_bytes: allocated.total() as i64 }
    }

    #[test]
    fn loading_finds_the_gaps() {
        let allocated = two_sectors_free();
        let mut metaslab = Metaslab::unloaded(BOUNDS, on_disk(&allocated), None);
        metaslab.load(allocated).unwrap();
        assert_eq!(metaslab.rank(), rank_of(8192));
        assert_eq!(metaslab.allocated_bytes(), BOUNDS.size - 8192);
        assert_eq!(metaslab.allocate(8192, Txg(5)), Some(BOUNDS.start + 8192));
    }

    #[test]
    fn a_map_that_its_header_does_not_fit_is_not_loaded() {
        let mut more = two_sectors_free();
        let on_disk = on_disk(&more);
        more.add(BOUNDS.start + BOUNDS.size, BOUNDS.start + BOUNDS.size + 4096);
        assert!(Metaslab::unloaded(BOUNDS, on_disk, None).load(more).is_err());
        let mut less = two_sectors_free();
        less.remove(BOUNDS.start, BOUNDS.start + 4096);
        assert!(Metaslab::unloaded(BOUNDS, on_disk, None).load(less).is_err());
    }

    #[test]
    fn what_happens_while_it_is_not_loaded_is_known_when_it_is() {
        let allocated = two_sectors_free();
        let [first, freed] = [0, 4096].map(|at| BOUNDS.start + at);
        let mut metaslab = Metaslab::unloaded(BOUNDS, on_disk(&allocated), None);
        let mut changes = Changes::default();
        changes.alloc(BOUNDS.start + 8192, BOUNDS.start + 12288);
        changes.free(BOUNDS.start + 16384, BOUNDS.start + 20480);
        metaslab.set_unflushed(changes).unwrap();
        metaslab.free(freed, freed + 4096, Txg(10)).unwrap();
        let taken = commit(&mut metaslab, 10);
        metaslab.unflushed.then(&taken);
        metaslab.free(first, first + 4096, Txg(11)).unwrap();
        metaslab.load(allocated).unwrap();
        assert_eq!(metaslab.free_bytes(), 8192);
        let got = [(); 3].map(|()| metaslab.allocate(4096, Txg(12)));
        assert_eq!(got, [Some(BOUNDS.start + 12288), Some(BOUNDS.start + 16384), None]);
    }

    #[test]
    fn what_is_let_go_is_the_same_when_it_is_read_again() {
        let allocated = two_sectors_free();
        let mut metaslab = Metaslab::unloaded(BOUNDS, on_disk(&allocated), None);
        metaslab.load(allocated.clone()).unwrap();
        metaslab.unload();
        assert!(metaslab.is_unloaded());
        assert_eq!((metaslab.rank(), metaslab.allocate(4096, Txg(5))), (rank_of(8192), None));
        metaslab.load(allocated).unwrap();
        assert_eq!(metaslab.allocate(8192, Txg(5)), Some(BOUNDS.start + 8192));
        // Pending changes exist only in memory.
        metaslab.unload();
        assert!(metaslab.is_loaded());
    }

    #[test]
    fn changes_that_undo_each_other_are_none() {
        let mut changes = Changes::default();
        changes.alloc(0, 100);
        changes.free(20, 40);
        assert_eq!(changes.allocs.iter().collect::<Vec<_>>(), [(0, 20), (40, 100)]);
        assert!(changes.frees.is_empty());
        changes.free(0, 200);
        assert_eq!(changes.frees.iter().collect::<Vec<_>>(), [(20, 40), (100, 200)]);
        assert!(changes.allocs.is_empty());
    }
}
