//! Where each sector of the device is, and how much of each object is needed.
//!
//! The device is divided into regions of 1 GiB. The runs of a region are in memory, or where the last
//! checkpoint put them; a region is loaded before anything is looked up or changed in it ([`Map::to_load`]).
//!
//! Invariants: the runs of a region are in order and do not overlap. Of every object with data, `live` is the
//! number of sectors that runs lead to, in memory or not. A region that differs from its page has none
//! ([`Region::page`]).

use std::collections::BTreeMap;

use crate::format::{Live, ObjectId, PagePlace, Place, REGION_SECTORS, Run, SECTOR_BYTES};

/// A range of sectors, and where it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece {
    /// The first sector.
    pub sector: u64,
    /// How many.
    pub sectors: u32,
    /// Where; none for what was never written.
    pub place: Option<Place>,
}

#[derive(Debug, Default)]
struct Region {
    /// Runs by where they end, so that what holds a sector is found in one step; none while it is not loaded.
    runs: Option<BTreeMap<u32, Run>>,
    /// Where the same is in the store.
    page: Option<PagePlace>,
    /// When it was used last.
    used: u64,
    /// When it was changed last.
    changed: u64,
}

/// What a checkpoint has of the regions.
#[derive(Debug, Default)]
pub struct Snapshot {
    /// Those that differ from what is in the store, with their runs.
    pub changed: Vec<(u32, Vec<Run>)>,
    /// The pages of all others.
    pub same: Vec<(u32, PagePlace)>,
}

/// See the module documentation.
#[derive(Debug, Default)]
pub struct Map {
    regions: BTreeMap<u32, Region>,
    objects: BTreeMap<ObjectId, Live>,
    /// Objects that are no longer needed since they were asked for last.
    dead: Vec<ObjectId>,
    runs: usize,
    clock: u64,
    /// Sectors of all objects together.
    sum: Sums,
}

/// Sectors of objects.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sums {
    /// Those that are needed.
    pub live: u64,
    /// All with data.
    pub total: u64,
}

impl Sums {
    /// An object has become `new`.
    fn change(&mut self, old: Live, new: Live) {
        self.live = (self.live + u64::from(new.live)).saturating_sub(old.live.into());
        self.total = (self.total + u64::from(new.total)).saturating_sub(old.total.into());
    }
}

/// The place `sectors` further on.
fn further(place: Place, sectors: u32) -> Place {
    Place { offset: place.offset + sectors * SECTOR_BYTES as u32, ..place }
}

/// The part of a run from `start` to `end`.
fn part(run: Run, start: u32, end: u32) -> Run {
    Run { start, sectors: end - start, place: further(run.place, start - run.start) }
}

/// The parts of a range of the device by regions: region, first sector in it, one after the last, sector of
/// the device.
fn by_region(sector: u64, sectors: u64) -> impl Iterator<Item = (u32, u32, u32, u64)> {
    let end = sector + sectors;
    let mut at = sector;
    std::iter::from_fn(move || {
        if at >= end {
            return None;
        }
        let (region, start) = (at / u64::from(REGION_SECTORS), (at % u64::from(REGION_SECTORS)) as u32);
        let length = (end - at).min(u64::from(REGION_SECTORS - start));
        let part = (region as u32, start, start + length as u32, at);
        at += length;
        Some(part)
    })
}

impl Map {
    /// That of a checkpoint; nothing of it is loaded.
    pub fn new(objects: Vec<(ObjectId, Live)>, regions: Vec<(u32, PagePlace)>) -> Self {
        let of = |(number, page)| (number, Region { page: Some(page), ..Region::default() });
        let objects: BTreeMap<ObjectId, Live> = objects.into_iter().collect();
        let mut sum = Sums::default();
        objects.values().for_each(|live| sum.change(Live::default(), *live));
        Self { regions: regions.into_iter().map(of).collect(), objects, sum, ..Self::default() }
    }

    /// A region of this range that is to be loaded, and its page.
    pub fn to_load(&self, sector: u64, sectors: u64) -> Option<(u32, PagePlace)> {
        by_region(sector, sectors).find_map(|(number, ..)| {
            let region = self.regions.get(&number)?;
            region.runs.is_none().then_some(())?;
            Some((number, region.page?))
        })
    }

    /// A region was read from its page. If it has another page by now, or is loaded, nothing happens.
    pub fn load(&mut self, number: u32, page: PagePlace, runs: Vec<Run>) {
        let Some(region) = self.regions.get_mut(&number) else { return };
        if region.runs.is_none() && region.page == Some(page) {
            self.runs += runs.len();
            region.runs = Some(runs.into_iter().map(|run| (run.start + run.sectors, run)).collect());
        }
    }

    /// Forgets runs that are in the store too, those used longest ago first, until there are at most so many
    /// in memory.
    pub fn forget(&mut self, most_runs: usize) {
        while self.runs > most_runs {
            let is_kept = |region: &Region| region.page.is_none() || region.runs.is_none();
            let oldest = self.regions.values_mut().filter(|region| !is_kept(region)).min_by_key(|it| it.used);
            let Some(runs) = oldest.and_then(|region| region.runs.take()) else { return };
            self.runs -= runs.len();
        }
    }

    fn lose(&mut self, place: Place, sectors: u32) {
        if let Some(live) = self.objects.get_mut(&place.id) {
            let old = *live;
            // Sums of what a store says need not be right, and are not trusted.
            live.live = live.live.saturating_sub(sectors);
            self.sum.change(old, *live);
            if live.live == 0 {
                self.dead.push(place.id);
            }
        }
    }

    /// An object has so many sectors, none of which is needed yet.
    pub fn add_object(&mut self, id: ObjectId, total: u32) {
        let live = self.objects.entry(id).or_default();
        let old = std::mem::replace(live, Live { total, ..*live });
        self.sum.change(old, *live);
    }

    /// What is known of an object.
    pub fn object(&self, id: ObjectId) -> Option<Live> {
        self.objects.get(&id).copied()
    }

    /// All objects with data.
    pub fn objects(&self) -> impl Iterator<Item = (ObjectId, Live)> {
        self.objects.iter().map(|(id, live)| (*id, *live))
    }

    /// An object is gone, or is not to be counted.
    pub fn remove_object(&mut self, id: ObjectId) {
        if let Some(old) = self.objects.remove(&id) {
            self.sum.change(old, Live::default());
        }
    }

    /// Sectors of all objects together.
    pub fn sum(&self) -> Sums {
        self.sum
    }

    /// Objects of which nothing is needed any more, since this was asked last.
    pub fn take_dead(&mut self) -> Vec<ObjectId> {
        let mut dead = std::mem::take(&mut self.dead);
        dead.sort_unstable();
        dead.dedup();
        dead.retain(|id| self.objects.get(id).is_some_and(|live| live.live == 0));
        dead
    }

    /// Nothing of this object is needed; to be told by [`Map::take_dead`].
    pub fn is_dead(&mut self, id: ObjectId) {
        self.dead.push(id);
    }

    /// A range is at a place now, or nowhere. Its regions must be loaded.
    pub fn set(&mut self, sector: u64, sectors: u64, place: Option<Place>) {
        self.clock += 1;
        for (number, start, end, at) in by_region(sector, sectors) {
            let place = place.map(|place| further(place, (at - sector) as u32));
            let run = place.map(|place| Run { start, sectors: end - start, place });
            self.set_in(number, start, end, run);
        }
    }

    fn set_in(&mut self, number: u32, start: u32, end: u32, run: Option<Run>) {
        let region = self.regions.entry(number).or_default();
        // What is in the store would be lost.
        debug_assert!(
            region.page.is_none() || region.runs.is_some(),
            "a region is changed that is not loaded"
        );
        (region.used, region.changed) = (self.clock, self.clock);
        region.page = None;
        let runs = region.runs.get_or_insert_default();
        let before = runs.len();
        let mut lost: Vec<Run> = Vec::new();
        let over: Vec<u32> =
            runs.range(start + 1..).take_while(|(_, run)| run.start < end).map(|(key, _)| *key).collect();
        for key in over {
            let Some(old) = runs.remove(&key) else { continue };
            let old_end = old.start + old.sectors;
            if old.start < start {
                runs.insert(start, part(old, old.start, start));
            }
            if old_end > end {
                runs.insert(old_end, part(old, end, old_end));
            }
            lost.push(part(old, old.start.max(start), old_end.min(end)));
        }
        if let Some(mut run) = run {
            let live = self.objects.entry(run.place.id).or_default();
            let old = *live;
            live.live = live.live.saturating_add(run.sectors);
            self.sum.change(old, *live);
            // What goes on where the run before ends is one run with it.
            if let Some(previous) = runs.get(&start).copied() {
                let goes_on = further(previous.place, previous.sectors) == run.place;
                if goes_on {
                    runs.remove(&start);
                    run = Run { start: previous.start, sectors: previous.sectors + run.sectors, ..previous };
                }
            }
            runs.insert(run.start + run.sectors, run);
        }
        self.runs = self.runs + runs.len() - before;
        for old in lost {
            self.lose(old.place, old.sectors);
        }
    }

    /// Where a range is. Its regions must be loaded.
    pub fn get(&mut self, sector: u64, sectors: u64) -> Vec<Piece> {
        self.clock += 1;
        let mut pieces: Vec<Piece> = Vec::new();
        for (number, start, end, at) in by_region(sector, sectors) {
            let first = at - u64::from(start);
            let mut done = start;
            let mut push = |from: u32, to: u32, place| {
                if to > from {
                    pieces.push(Piece { sector: first + u64::from(from), sectors: to - from, place });
                }
            };
            if let Some(region) = self.regions.get_mut(&number) {
                region.used = self.clock;
                for run in region.runs.iter().flat_map(|runs| runs.range(start + 1..)).map(|(_, run)| *run) {
                    if run.start >= end {
                        break;
                    }
                    let run = part(run, run.start.max(start), (run.start + run.sectors).min(end));
                    push(done, run.start, None);
                    push(run.start, run.start + run.sectors, Some(run.place));
                    done = run.start + run.sectors;
                }
            }
            push(done, end, None);
        }
        pieces
    }

    /// All regions.
    pub fn snapshot(&self) -> Snapshot {
        let Snapshot { mut changed, mut same } = Snapshot::default();
        for (number, region) in &self.regions {
            match (region.page, &region.runs) {
                (Some(page), _) => same.push((*number, page)),
                (None, Some(runs)) => changed.push((*number, runs.values().copied().collect())),
                (None, None) => {}
            }
        }
        Snapshot { changed, same }
    }

    /// The time of this map; for [`Map::stored`].
    pub fn clock(&self) -> u64 {
        self.clock
    }

    /// A region was stored as it was at `clock`. If nothing has changed since, it need not be stored again.
    pub fn stored(&mut self, number: u32, page: PagePlace, clock: u64) {
        if let Some(region) = self.regions.get_mut(&number)
            && region.changed <= clock
        {
            region.page = Some(page);
        }
    }

    /// The pages of all regions that have one.
    pub fn pages(&self) -> impl Iterator<Item = PagePlace> {
        self.regions.values().filter_map(|region| region.page)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::format::Sequence;

    fn id(number: u64) -> ObjectId {
        ObjectId::of_commit(Sequence(number))
    }

    proptest! {
        /// The map against a list of single sectors.
        #[test]
        fn a_map_says_where_each_sector_is(
            changes in prop::collection::vec((0..600_u64, 1..200_u64, 0..8_u64), 1..60),
        ) {
            // Ranges that cross from one region to the next.
            let base = u64::from(REGION_SECTORS) - 400;
            let mut map = Map::default();
            let mut plain: Vec<Option<Place>> = vec![None; 1000];
            for (number, (start, length, kind)) in changes.iter().enumerate() {
                let object = id(number as u64);
                let place = (*kind > 0).then_some(Place { id: object, offset: 80 });
                if place.is_some() {
                    map.add_object(object, *length as u32);
                }
                map.set(base + start, *length, place);
                for at in 0..*length {
                    plain[(start + at) as usize] = place.map(|place| further(place, at as u32));
                }
            }
            let mut told = vec![None; 1000];
            for piece in map.get(base, 1000) {
                for at in 0..piece.sectors {
                    told[(piece.sector - base) as usize + at as usize] =
                        piece.place.map(|place| further(place, at));
                }
            }
            prop_assert_eq!(&told, &plain);
            let dead = map.take_dead();
            for (object, live) in map.objects() {
                let needed = plain.iter().flatten().filter(|place| place.id == object).count();
                prop_assert_eq!(live.live as usize, needed);
                prop_assert_eq!(dead.contains(&object), needed == 0);
            }
            let Snapshot { changed, same } = map.snapshot();
            prop_assert!(same.is_empty());
            let added = map.objects().fold(Sums::default(), |sum, (_, live)| Sums {
                live: sum.live + u64::from(live.live),
                total: sum.total + u64::from(live.total),
            });
            prop_assert_eq!(map.sum(), added);
            let page = PagePlace { id: id(1), offset: 80, bytes: 0, hash: 0 };
            let pages = changed.iter().map(|(number, _)| (*number, page)).collect();
            let mut loaded = Map::new(Vec::new(), pages);
            for (number, runs) in changed {
                loaded.load(number, PagePlace { offset: 96, ..page }, Vec::new());
                loaded.load(number, page, runs);
            }
            prop_assert_eq!(loaded.get(base, 1000), map.get(base, 1000));
        }
    }
}
