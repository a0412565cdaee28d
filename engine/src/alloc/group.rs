//! The metaslabs of one top-level vdev, and which of them gives the next block (OpenZFS: metaslab group).
//!
//! # The idea
//! Blocks that are written together should lie together. So a group keeps an *active* metaslab for each copy
//! of blocks, and takes from it until it has no run that is long enough, or only much shorter runs than it
//! began with. The next active metaslab is the one with the longest runs; among equals, the one nearest to
//! the beginning. The length of the longest run is rounded down to a power of two, so that nearness often
//! decides.
//!
//! When less than an eighth of the vdev is free, most free runs are as short as the blocks of data that were
//! there, and indirect blocks need longer ones. Then blocks of one copy, which data are, are taken from the
//! metaslab whose longest run is the shortest that will do. Data that are overwritten so leave the metaslabs
//! with longer runs, which become emptier, and metadata find whole runs there. Otherwise indirect blocks
//! become gangs, whose headers and small parts take as long to write again as the data.
//!
//! Copies of one block on one vdev lie an eighth of the vdev apart if possible, else in different metaslabs,
//! else anywhere.
//!
//! On vdevs of the normal class with more than 64 metaslabs, the emptiest one is set apart for the intent
//! log. As in OpenZFS, this is chosen when the pool is opened and not recorded on disk. The blocks of the log
//! are freed all at once, so that the metaslab stays in one piece.
//!
//! The order of candidates is updated lazily: a metaslab's rank is an upper bound while blocks are taken from
//! it, and is corrected when the metaslab is considered, and when some of its space became free.
//!
//! # Loading
//! The best candidate may be a metaslab that is not loaded. Then the answer names it, and the caller loads it
//! and asks again. Its rank is an estimate, so when no candidate is good enough, the metaslabs that are not
//! loaded and have the room are tried one after the other before the answer is no. Metaslabs that were not
//! used for long are unloaded ([`Group::idle`]).

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::ops::Bound;

use ondisk::{ObjectId, Txg};

use super::metaslab::{DEFER_TXGS, Metaslab, rank_of};
use crate::error::{Error, Result};
use crate::range_set::RangeSet;
use crate::vdev::Class;

/// Up to this number of metaslabs, none is set apart for the intent log.
const EMBEDDED_LOG_MAX_NONE: usize = 64;
/// A metaslab stops being active when its longest run is this many powers of two shorter than when it became
/// so.
const PASSIVATE_STEPS: u32 = 2;
/// The distance between copies of one block is this fraction of the vdev.
const COPY_DISTANCE: usize = 8;
/// The most copies of a block.
pub const MAX_COPIES: usize = 3;
/// With less than this share of it free, blocks of one copy fill up metaslabs with short runs first.
const NEARLY_FULL: u64 = 8;

/// The use of a metaslab.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Use {
    /// The use of the vdev's class.
    Class,
    /// The intent log, on vdevs of the normal class.
    EmbeddedLog,
}

/// The answer of a group to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// Space at this byte.
    At(u64),
    /// This metaslab must be loaded first.
    Load(usize),
    /// No space.
    None,
}

/// The metaslabs to take from, and their order.
#[derive(Debug, Default)]
struct Picker {
    /// Rank and place; best first.
    order: BTreeSet<(Reverse<u32>, usize)>,
    /// For each copy the active metaslab, and its rank when it became active.
    active: [Option<(usize, u32)>; MAX_COPIES],
    /// The one from which blocks of one copy are taken while the vdev is nearly full.
    active_tight: Option<usize>,
}

/// One top-level vdev.
#[derive(Debug)]
pub struct Group {
    /// Its number.
    pub vdev: u32,
    /// Its class.
    pub class: Class,
    /// Metaslab size as a power of two.
    pub ms_shift: u8,
    /// The object with the numbers of the space maps.
    pub array: ObjectId,
    /// The vdev's ZAP.
    pub top_zap: Option<ObjectId>,
    /// Data bytes for 512 raw bytes.
    pub deflate_ratio: u64,
    /// The bytes taken from it before the next vdev's turn, before bias.
    pub aliquot_bytes: u64,
    /// The group that adds it, while that is not committed.
    pub added: Option<Txg>,
    /// Whether new blocks may be put on it.
    pub allocating: bool,
    metaslabs: Vec<Metaslab>,
    /// Rank of each metaslab in its picker's order.
    ranks: Vec<u32>,
    embedded_log: Option<usize>,
    pickers: [Picker; 2],
    /// Metaslabs with changes that are not finished.
    busy: BTreeSet<usize>,
    /// Metaslabs that are added when a group is committed.
    coming: Option<(Txg, Vec<Metaslab>)>,
    totals: Totals,
}

/// Bytes of a group or of a part of it.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Totals {
    /// Size.
    pub size: u64,
    /// Neither free nor waiting to be free.
    pub allocated: u64,
    /// Freed and waiting to be reusable.
    pub waiting: u64,
}

impl Totals {
    /// The totals of one metaslab.
    fn of(metaslab: &Metaslab) -> Self {
        Self {
            size: metaslab.bounds().size,
            allocated: metaslab.allocated_bytes(),
            waiting: metaslab.waiting_bytes(),
        }
    }

    /// The bytes that may be handed out.
    pub fn free(&self) -> u64 {
        self.size.saturating_sub(self.allocated).saturating_sub(self.waiting)
    }

    /// The sum.
    pub fn plus(self, other: Self) -> Self {
        Self {
            size: self.size + other.size,
            allocated: self.allocated + other.allocated,
            waiting: self.waiting + other.waiting,
        }
    }

    fn less(self, other: Self) -> Self {
        Self {
            size: self.size - other.size,
            allocated: self.allocated - other.allocated,
            waiting: self.waiting - other.waiting,
        }
    }
}

/// The description of a vdev before its metaslabs are known.
#[derive(Debug, Clone)]
pub struct GroupConfig {
    /// Number of the vdev.
    pub vdev: u32,
    /// Its class.
    pub class: Class,
    /// Metaslab size as a power of two.
    pub ms_shift: u8,
    /// The object with the numbers of the space maps.
    pub array: ObjectId,
    /// The vdev's ZAP.
    pub top_zap: Option<ObjectId>,
    /// Data bytes for 512 raw bytes.
    pub deflate_ratio: u64,
    /// The bytes taken from it before the next vdev's turn.
    pub aliquot_bytes: u64,
    /// The group that adds it, while that is not committed.
    pub added: Option<Txg>,
    /// Whether new blocks may be put on it.
    pub allocating: bool,
}

impl Group {
    /// The group of a vdev with these metaslabs.
    pub fn new(config: GroupConfig, metaslabs: Vec<Metaslab>) -> Self {
        let embedded_log = (config.class == Class::Normal && metaslabs.len() > EMBEDDED_LOG_MAX_NONE)
            .then(|| (0..metaslabs.len()).min_by_key(|&place| metaslabs[place].allocated_bytes()))
            .flatten();
        let mut group = Self {
            vdev: config.vdev,
            class: config.class,
            ms_shift: config.ms_shift,
            array: config.array,
            top_zap: config.top_zap,
            deflate_ratio: config.deflate_ratio,
            aliquot_bytes: config.aliquot_bytes,
            added: config.added,
            allocating: config.allocating,
            ranks: vec![0; metaslabs.len()],
            embedded_log,
            pickers: Default::default(),
            busy: BTreeSet::new(),
            coming: None,
            totals: metaslabs.iter().map(Totals::of).fold(Totals::default(), Totals::plus),
            metaslabs,
        };
        for place in 0..group.metaslabs.len() {
            let rank = group.metaslabs[place].rank();
            group.ranks[place] = rank;
            group.picker(group.use_of(place)).order.insert((Reverse(rank), place));
        }
        group
    }

    fn use_of(&self, place: usize) -> Use {
        if self.embedded_log == Some(place) { Use::EmbeddedLog } else { Use::Class }
    }

    fn picker(&mut self, usage: Use) -> &mut Picker {
        &mut self.pickers[usize::from(usage == Use::EmbeddedLog)]
    }

    /// Its metaslabs.
    pub fn metaslabs(&self) -> &[Metaslab] {
        &self.metaslabs
    }

    /// Whether nothing is allocated, and nothing waits to be free.
    pub fn is_unused(&self) -> bool {
        self.totals.allocated == 0 && self.totals.waiting == 0 && self.busy.is_empty()
    }

    /// Bytes of all metaslabs for one use.
    pub fn totals(&self, usage: Use) -> Totals {
        let log = self.embedded_log.map_or(Totals::default(), |place| Totals::of(&self.metaslabs[place]));
        match usage {
            Use::Class => self.totals.less(log),
            Use::EmbeddedLog => log,
        }
    }

    /// Bytes for the use of its class that may be handed out, in pieces of any size, while a run of `least`
    /// bytes is still sure to be found: for each of some lengths. Of metaslabs that are not loaded it is not
    /// known, so they count for nothing.
    pub(crate) fn free_in_runs_of<const N: usize>(&self, least: [u64; N]) -> [u64; N] {
        let mut free = [0; N];
        for (place, metaslab) in self.metaslabs.iter().enumerate().filter(|(_, all)| all.is_loaded()) {
            if self.embedded_log != Some(place) {
                let in_runs = least.map(|least| metaslab.free_in_runs_of(least));
                free.iter_mut().zip(in_runs).for_each(|(sum, bytes)| *sum += bytes);
            }
        }
        free
    }

    /// The deflated size of `bytes` raw bytes.
    pub fn deflate(&self, bytes: u64) -> u64 {
        (bytes >> 9).saturating_mul(self.deflate_ratio)
    }

    /// Corrects the rank of a metaslab.
    fn rerank(&mut self, place: usize) -> u32 {
        let (old, new) = (self.ranks[place], self.metaslabs[place].rank());
        if old != new {
            let usage = self.use_of(place);
            let order = &mut self.picker(usage).order;
            order.remove(&(Reverse(old), place));
            order.insert((Reverse(new), place));
            self.ranks[place] = new;
        }
        new
    }

    /// Applies a function to a metaslab and updates the totals.
    fn change<T>(&mut self, place: usize, change: impl FnOnce(&mut Metaslab) -> T) -> T {
        let metaslab = &mut self.metaslabs[place];
        let before = Totals::of(metaslab);
        let result = change(metaslab);
        self.totals = self.totals.less(before).plus(Totals::of(metaslab));
        if metaslab.is_busy() {
            self.busy.insert(place);
        }
        result
    }

    /// Takes `size` bytes for a block that has one copy.
    pub(crate) fn allocate_single(&mut self, usage: Use, size: u64, txg: Txg) -> Answer {
        let Totals { size: all, allocated, .. } = self.totals;
        let is_nearly_full = all - allocated < all / NEARLY_FULL;
        let tight = is_nearly_full.then(|| self.allocate_tight(usage, size, txg)).flatten();
        tight.map_or_else(|| self.allocate(usage, size, txg, 0, &[]), Answer::At)
    }

    /// Takes `size` bytes from the metaslab whose longest run is the shortest that will do, of those that are
    /// loaded.
    fn allocate_tight(&mut self, usage: Use, size: u64, txg: Txg) -> Option<u64> {
        if let Some(place) = self.picker(usage).active_tight
            && let Some(at) = self.change(place, |metaslab| metaslab.allocate(size, txg))
        {
            return Some(at);
        }
        let mut before = Bound::Included((Reverse(rank_of(size)), usize::MAX));
        loop {
            let order = &self.picker(usage).order;
            let &(Reverse(rank), place) = order.range((Bound::Unbounded, before)).next_back()?;
            before = Bound::Excluded((Reverse(rank), place));
            if self.rerank(place) == rank
                && self.metaslabs[place].is_loaded()
                && let Some(at) = self.change(place, |metaslab| metaslab.allocate(size, txg))
            {
                self.picker(usage).active_tight = Some(place);
                return Some(at);
            }
        }
    }

    /// Takes `size` bytes for copy `copy` of a block. `others` are the places of other copies of the same
    /// block on this vdev.
    pub fn allocate(&mut self, usage: Use, size: u64, txg: Txg, copy: usize, others: &[u64]) -> Answer {
        let others: Vec<usize> =
            others.iter().map(|&at| usize::try_from(at >> self.ms_shift).unwrap_or(usize::MAX)).collect();
        let far = (self.metaslabs.len() / COPY_DISTANCE).max(1);
        let distances: &[usize] = if others.is_empty() { &[0] } else { &[far, 1, 0] };
        for &distance in distances {
            match self.allocate_apart(usage, size, txg, copy, &others, distance) {
                Answer::None => {}
                answer => return answer,
            }
        }
        Answer::None
    }

    fn allocate_apart(
        &mut self,
        usage: Use,
        size: u64,
        txg: Txg,
        copy: usize,
        others: &[usize],
        distance: usize,
    ) -> Answer {
        let copy = copy.min(MAX_COPIES - 1);
        let is_apart = |place: usize| others.iter().all(|other| other.abs_diff(place) >= distance);
        if let Some((place, rank)) = self.picker(usage).active[copy]
            && is_apart(place)
            && self.metaslabs[place].rank() + PASSIVATE_STEPS > rank
            && let Some(at) = self.change(place, |metaslab| metaslab.allocate(size, txg))
        {
            return Answer::At(at);
        }
        let needed = rank_of(size);
        let mut after = None;
        loop {
            let order = &self.picker(usage).order;
            let mut candidates = match after {
                None => order.range(..),
                Some(last) => order.range((Bound::Excluded(last), Bound::Unbounded)),
            };
            let Some(&(Reverse(rank), place)) = candidates.next().filter(|(rank, _)| rank.0 >= needed) else {
                return self.any_unloaded(usage, size, &is_apart).map_or(Answer::None, Answer::Load);
            };
            if self.rerank(place) < rank {
                // It comes up again at its new rank.
                continue;
            }
            after = Some((Reverse(rank), place));
            if !is_apart(place) {
                continue;
            }
            if self.metaslabs[place].is_unloaded() {
                return Answer::Load(place);
            }
            if let Some(at) = self.change(place, |metaslab| metaslab.allocate(size, txg)) {
                self.picker(usage).active[copy] = Some((place, rank));
                return Answer::At(at);
            }
        }
    }

    /// A metaslab that has the room, though perhaps not in one piece: that is known after loading it.
    fn any_unloaded(&self, usage: Use, size: u64, is_apart: &dyn Fn(usize) -> bool) -> Option<usize> {
        let mut places = (0..self.metaslabs.len()).filter(|&place| self.use_of(place) == usage);
        places.find(|&place| {
            let metaslab = &self.metaslabs[place];
            metaslab.is_unloaded() && metaslab.free_bytes() >= size && is_apart(place)
        })
    }

    /// Sets, in group `txg`, the contents of the space map of a metaslab that is not loaded; `None` means
    /// that it cannot be read.
    pub fn load(&mut self, place: usize, allocated: Option<RangeSet>, txg: Txg) -> Result<()> {
        let Some(metaslab) = self.metaslabs.get_mut(place).filter(|metaslab| metaslab.is_unloaded()) else {
            return Ok(());
        };
        let loaded = allocated.map_or(Ok(()), |allocated| metaslab.load(allocated));
        if metaslab.is_unloaded() {
            metaslab.give_up();
        }
        metaslab.is_used_in(txg);
        self.rerank(place);
        loaded
    }

    /// Loaded metaslabs that no space is taken from now and that could be read again: for each, the group of
    /// its last use, its index and its number of runs in memory.
    pub fn idle(&self) -> impl Iterator<Item = (Txg, usize, usize)> + '_ {
        let is_active = |place: usize| {
            self.pickers.iter().any(|picker| {
                let active = picker.active.iter().flatten().any(|(active, _)| *active == place);
                active || picker.active_tight == Some(place)
            })
        };
        let loaded = self.metaslabs.iter().enumerate().filter(|(_, metaslab)| {
            metaslab.is_loaded() && !metaslab.is_busy() && metaslab.on_disk.object.is_some()
        });
        let loaded = loaded.filter(move |&(place, _)| !is_active(place));
        loaded.map(|(place, metaslab)| (metaslab.used_in(), place, metaslab.runs()))
    }

    /// Unloads a metaslab: see [`Metaslab::unload`].
    pub fn unload(&mut self, place: usize) {
        if let Some(metaslab) = self.metaslabs.get_mut(place) {
            metaslab.unload();
        }
    }

    /// The metaslab that contains a range.
    fn place_of(&self, from: u64) -> Result<usize> {
        let place = usize::try_from(from >> self.ms_shift).ok().filter(|&place| place < self.metaslabs.len());
        place.ok_or_else(|| {
            Error::corrupt(format!("top-level vdev {}", self.vdev), format!("no metaslab at {from:#x}"))
        })
    }

    /// See [`Metaslab::undo`].
    pub fn undo(&mut self, from: u64, to: u64, txg: Txg) {
        if let Ok(place) = self.place_of(from) {
            self.change(place, |metaslab| metaslab.undo(from, to, txg));
            self.rerank(place);
        }
    }

    /// See [`Metaslab::free`].
    pub fn free(&mut self, from: u64, to: u64, txg: Txg) -> Result<()> {
        let place = self.place_of(from)?;
        self.change(place, |metaslab| metaslab.free(from, to, txg))
    }

    /// See [`Metaslab::check_allocated`]. Returns the sector size as a power of two.
    pub fn check_allocated(&self, from: u64, to: u64) -> Result<u8> {
        let metaslab = &self.metaslabs[self.place_of(from)?];
        metaslab.check_allocated(from, to)?;
        Ok(metaslab.bounds().shift)
    }

    /// The metaslab of a range, if it must be loaded to claim the range.
    pub fn unloaded_at(&self, from: u64) -> Result<Option<usize>> {
        let place = self.place_of(from)?;
        Ok(self.metaslabs[place].is_unloaded().then_some(place))
    }

    /// See [`Metaslab::claim`].
    pub fn claim(&mut self, from: u64, to: u64, txg: Txg) -> Result<()> {
        let place = self.place_of(from)?;
        self.change(place, |metaslab| metaslab.claim(from, to, txg))
    }

    /// The metaslabs that group `txg` changed since the last call.
    pub fn changed(&self, txg: Txg) -> Vec<usize> {
        self.busy.iter().copied().filter(|&place| self.metaslabs[place].has_changes(txg)).collect()
    }

    /// One metaslab, for the sync; its space does not change.
    pub fn metaslab_mut(&mut self, place: usize) -> Option<&mut Metaslab> {
        self.metaslabs.get_mut(place)
    }

    /// These metaslabs are added after the others when group `txg` is committed.
    pub fn grow_with(&mut self, txg: Txg, metaslabs: Vec<Metaslab>) {
        self.coming = Some((txg, metaslabs));
    }

    fn take_up(&mut self, more: Vec<Metaslab>) {
        for metaslab in more {
            let (place, rank) = (self.metaslabs.len(), metaslab.rank());
            self.totals = self.totals.plus(Totals::of(&metaslab));
            self.metaslabs.push(metaslab);
            self.ranks.push(rank);
            self.picker(Use::Class).order.insert((Reverse(rank), place));
        }
    }

    /// The group `txg` is committed: see [`Metaslab::sync_done`]. `reusable` is the last group whose freed
    /// space may be reused.
    pub fn sync_done(&mut self, txg: Txg, reusable: Txg) {
        if self.added.is_some_and(|added| added <= txg) {
            self.added = None;
        }
        if let Some((_, more)) = self.coming.take_if(|(coming, _)| *coming <= txg) {
            self.take_up(more);
        }
        for place in self.busy.clone() {
            if self.change(place, |metaslab| metaslab.sync_done(txg, reusable)) {
                self.rerank(place);
            }
            if !self.metaslabs[place].is_busy() {
                self.busy.remove(&place);
            }
        }
    }
}

/// The last group whose freed space may be handed out again once `txg` is committed and `oldest_view` is the
/// oldest view that is read.
pub fn reusable_after(txg: Txg, oldest_view: Txg) -> Txg {
    Txg(txg.get().saturating_sub(DEFER_TXGS).min(oldest_view.get()))
}

#[cfg(test)]
mod tests {
    use super::super::metaslab::{Bounds, OnDisk};
    use super::*;

    fn group(metaslabs: u64) -> Group {
        let config = GroupConfig {
            vdev: 0,
            class: Class::Normal,
            ms_shift: 20,
            array: ObjectId(1),
            top_zap: None,
            deflate_ratio: 512,
            aliquot_bytes: 1 << 20,
            added: None,
            allocating: true,
        };
        let bounds = |place: u64| Bounds { start: place << 20, size: 1 << 20, shift: 12 };
        Group::new(config, (0..metaslabs).map(|place| Metaslab::unused(bounds(place))).collect())
    }

    fn got(group: &mut Group, usage: Use, size: u64, copy: usize, others: &[u64]) -> Option<u64> {
        match group.allocate(usage, size, Txg(5), copy, others) {
            Answer::At(at) => Some(at),
            Answer::None => None,
            Answer::Load(place) => panic!("metaslab {place} is not loaded"),
        }
    }

    #[test]
    fn a_vdev_fills_from_the_beginning_and_to_the_end() {
        let mut group = group(4);
        let mut total = 0;
        while got(&mut group, Use::Class, 128 << 10, 0, &[]).is_some() {
            total += 128 << 10;
        }
        assert_eq!(total, 4 << 20);
        assert_eq!(group.totals(Use::Class).free(), 0);
    }

    #[test]
    fn a_vdev_that_grows_has_the_new_metaslabs_when_that_is_committed() {
        let mut group = group(2);
        let bounds = |place: u64| Bounds { start: place << 20, size: 1 << 20, shift: 12 };
        group.grow_with(Txg(6), (2..4).map(|place| Metaslab::unused(bounds(place))).collect());
        group.sync_done(Txg(5), Txg(3));
        assert_eq!((group.metaslabs().len(), group.totals(Use::Class).size), (2, 2 << 20));
        group.sync_done(Txg(6), Txg(4));
        assert_eq!((group.metaslabs().len(), group.totals(Use::Class).size), (4, 4 << 20));
        let mut taken = 0;
        while got(&mut group, Use::Class, 1 << 20, 0, &[]).is_some() {
            taken += 1;
        }
        assert_eq!(taken, 4);
    }

    #[test]
    fn a_full_vdev_asks_for_all_that_is_not_loaded_before_it_says_no() {
        let mut group = group(4);
        while got(&mut group, Use::Class, 1 << 20, 0, &[]).is_some() {}
        // All allocated except the last sector, which the header's histogram does not count.
        let bounds = group.metaslabs[2].bounds();
        let mut allocated = RangeSet::default();
        allocated.add(bounds.start, bounds.start + bounds.size - 4096);
        let allocated_bytes = allocated.total() as i64;
        let on_disk = OnDisk { object: Some(ObjectId(3)), length_bytes: 8, allocated_bytes };
        group.metaslabs[2] = Metaslab::unloaded(bounds, on_disk, Some([0; 32]));
        group.rerank(2);
        assert_eq!(group.allocate(Use::Class, 8192, Txg(5), 0, &[]), Answer::None);
        assert_eq!(group.allocate(Use::Class, 4096, Txg(5), 0, &[]), Answer::Load(2));
        group.load(2, Some(allocated), Txg(5)).unwrap();
        assert_eq!(got(&mut group, Use::Class, 4096, 0, &[]), Some(bounds.start + bounds.size - 4096));
    }

    #[test]
    fn a_metaslab_that_cannot_be_read_is_not_asked_again() {
        let mut group = group(1);
        let on_disk = OnDisk { object: Some(ObjectId(3)), length_bytes: 8, allocated_bytes: 4096 };
        group.metaslabs[0] = Metaslab::unloaded(group.metaslabs[0].bounds(), on_disk, None);
        assert_eq!(group.allocate(Use::Class, 4096, Txg(5), 0, &[]), Answer::Load(0));
        group.load(0, None, Txg(5)).unwrap();
        assert_eq!(group.allocate(Use::Class, 4096, Txg(5), 0, &[]), Answer::None);
    }

    #[test]
    fn copies_on_one_vdev_are_far_apart() {
        let mut group = group(64);
        let first = got(&mut group, Use::Class, 4096, 0, &[]).unwrap();
        let second = got(&mut group, Use::Class, 4096, 1, &[first]).unwrap();
        let third = got(&mut group, Use::Class, 4096, 2, &[first, second]).unwrap();
        let places = [first, second, third].map(|at| at >> 20);
        assert!(places[0].abs_diff(places[1]) >= 8 && places[1].abs_diff(places[2]) >= 8);
        assert!(places[0].abs_diff(places[2]) >= 8);
    }

    #[test]
    fn copies_in_one_metaslab_are_better_than_none() {
        let mut group = group(1);
        let first = got(&mut group, Use::Class, 4096, 0, &[]).unwrap();
        let second = got(&mut group, Use::Class, 4096, 1, &[first]).unwrap();
        assert_eq!(second, first + 4096);
    }

    #[test]
    fn the_emptiest_metaslab_of_many_is_for_the_log() {
        let mut group = group(65);
        assert_eq!(group.totals(Use::EmbeddedLog).size, 1 << 20);
        assert_eq!(group.totals(Use::Class).size, 64 << 20);
        let log = got(&mut group, Use::EmbeddedLog, 4096, 0, &[]).unwrap();
        assert_eq!(group.use_of((log >> 20) as usize), Use::EmbeddedLog);
        while let Some(at) = got(&mut group, Use::Class, 1 << 20, 0, &[]) {
            assert_eq!(group.use_of((at >> 20) as usize), Use::Class);
        }
        assert_eq!(group.totals(Use::Class).free(), 0);
        assert_eq!(group.totals(Use::EmbeddedLog).allocated, 4096);
    }

    #[test]
    fn single_copies_leave_long_runs_when_little_is_free() {
        let mut group = group(8);
        assert_eq!(
            group.allocate_single(Use::Class, 4096, Txg(5)),
            Answer::At(0),
            "as ever while much is free"
        );
        let mut taken = vec![0];
        while let Some(at) = got(&mut group, Use::Class, 4096, 0, &[]) {
            taken.push(at);
        }
        // Half of the last metaslab in one run, and every fourth block of another.
        let in_pieces = taken.iter().filter(|at| **at >> 20 == 3 && (**at >> 12) % 4 == 0);
        let free = in_pieces.chain(taken.iter().filter(|at| **at >= (7 << 20) + (1 << 19)));
        free.for_each(|at| group.undo(*at, *at + 4096, Txg(5)));
        for _ in 0..64 {
            let Answer::At(at) = group.allocate_single(Use::Class, 4096, Txg(5)) else { panic!("no room") };
            assert_eq!(at >> 20, 3);
        }
        assert_eq!(got(&mut group, Use::Class, 1 << 19, 0, &[]), Some((7 << 20) + (1 << 19)));
    }
}
