//! A model of datasets that change while a scan is under way: each block of its range that is there at the
//! end was met.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;

/// The snapshot that everything descends from.
const ORIGIN: u64 = 1;
/// Places in a dataset.
const PLACES: u64 = 12;

/// A block: when it was born, and which one it is.
type Block = (u64, u64);

#[derive(Debug, Clone)]
struct Dataset {
    is_snapshot: bool,
    creation: u64,
    previous: u64,
    blocks: BTreeMap<u64, Block>,
}

#[derive(Debug, Clone)]
struct Model {
    datasets: BTreeMap<u64, Dataset>,
    txg: u64,
    next_id: u64,
    seed: u64,
}

impl Model {
    fn new(seed: u64) -> Self {
        let origin = Dataset { is_snapshot: true, creation: 1, previous: 0, blocks: BTreeMap::new() };
        let datasets = BTreeMap::from([(ORIGIN, origin)]);
        let mut model = Self { datasets, txg: 10, next_id: 2, seed };
        for _ in 0..2 {
            model.create(ORIGIN);
        }
        model
    }

    fn random(&mut self, below: usize) -> usize {
        self.seed = self.seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.seed >> 33) as usize % below.max(1)
    }

    fn choose(&mut self, is_wanted: impl Fn(&Self, u64) -> bool) -> Option<u64> {
        let wanted: Vec<u64> = self.datasets.keys().copied().filter(|id| is_wanted(self, *id)).collect();
        let index = self.random(wanted.len());
        wanted.get(index).copied()
    }

    fn followers(&self, id: u64) -> Vec<u64> {
        let follows = |(other, dataset): (&u64, &Dataset)| (dataset.previous == id).then_some(*other);
        self.datasets.iter().filter_map(follows).collect()
    }

    fn new_id(&mut self) -> u64 {
        self.next_id += 1;
        // Objects are used again, and are in no order.
        (self.next_id * 7919) % 100_003 + 2
    }

    fn create(&mut self, origin: u64) -> u64 {
        let (id, blocks) = (self.new_id(), self.datasets[&origin].blocks.clone());
        let head = Dataset { is_snapshot: false, creation: self.txg, previous: origin, blocks };
        self.datasets.insert(id, head);
        id
    }

    fn write(&mut self) {
        let Some(head) = self.choose(|model, id| !model.datasets[&id].is_snapshot) else { return };
        let (place, block) = (self.random(PLACES as usize) as u64 + 1, (self.txg, self.new_id()));
        self.datasets.get_mut(&head).expect("chosen").blocks.insert(place, block);
    }

    /// Makes a change, as part of the next group. Gives what it is to a scan.
    fn change(&mut self) -> Vec<Lineage> {
        self.txg += 1;
        let is_head = |model: &Self, id: u64| !model.datasets[&id].is_snapshot;
        match self.random(9) {
            0..=2 => {
                self.write();
                Vec::new()
            }
            3 | 4 => {
                let Some(head) = self.choose(is_head) else { return Vec::new() };
                let snapshot = self.new_id();
                let of = self.datasets.get_mut(&head).expect("chosen");
                let taken = Dataset { is_snapshot: true, creation: self.txg, ..of.clone() };
                of.previous = snapshot;
                self.datasets.insert(snapshot, taken);
                vec![Lineage::Snapshotted { head: ObjectId(head), snapshot: ObjectId(snapshot) }]
            }
            5 => {
                let is_plain = |model: &Self, id: u64| {
                    id != ORIGIN && model.datasets[&id].is_snapshot && model.followers(id).len() == 1
                };
                let Some(snapshot) = self.choose(is_plain) else { return Vec::new() };
                let next = self.followers(snapshot)[0];
                let gone = self.datasets.remove(&snapshot).expect("chosen");
                self.datasets.get_mut(&next).expect("follows").previous = gone.previous;
                vec![Lineage::SnapshotDestroyed { snapshot: ObjectId(snapshot), next: ObjectId(next) }]
            }
            6 => {
                let Some(origin) = self.choose(|model, id| model.datasets[&id].is_snapshot) else {
                    return Vec::new();
                };
                self.create(origin);
                Vec::new()
            }
            7 => {
                let Some(head) = self.choose(is_head) else { return Vec::new() };
                let last = self.datasets.values().filter(|dataset| !dataset.is_snapshot).count() == 1;
                // A snapshot is followed by something always.
                let previous = self.datasets[&head].previous;
                if last || (previous != ORIGIN && self.followers(previous).len() == 1) {
                    return Vec::new();
                }
                self.datasets.remove(&head);
                vec![Lineage::HeadDestroyed(ObjectId(head))]
            }
            _ => {
                // A rollback.
                let Some(head) = self.choose(is_head) else { return Vec::new() };
                let clone = self.create(self.datasets[&head].previous);
                let blocks = self.datasets.remove(&clone).expect("made").blocks;
                self.datasets.get_mut(&head).expect("chosen").blocks = blocks;
                let (clone, head) = (ObjectId(clone), ObjectId(head));
                vec![Lineage::Swapped(clone, head), Lineage::HeadDestroyed(clone)]
            }
        }
    }

    fn links(&self, id: u64) -> Links {
        let dataset = &self.datasets[&id];
        let mut followers = if dataset.is_snapshot { self.followers(id) } else { Vec::new() };
        Links {
            creation_txg: Txg(dataset.creation),
            prev_snap_txg: Txg(self.datasets.get(&dataset.previous).map_or(0, |previous| previous.creation)),
            is_snapshot: dataset.is_snapshot,
            next_snap: followers.pop(),
            clones: followers,
        }
    }

    /// Walks from the cursor on, until so many blocks were met. True when nothing is left.
    fn walk(&self, cursor: &mut Cursor, purpose: &Purpose, most: usize, met: &mut BTreeSet<u64>) -> bool {
        let mut left = most;
        loop {
            match cursor.place() {
                Place::Mos => {
                    cursor.enter_mos(purpose);
                    cursor.leave_mos([]);
                    cursor.leave(ORIGIN, &self.links(ORIGIN), purpose);
                }
                Place::Between => {
                    let Some((object, after)) = cursor.take_next() else { return true };
                    assert!(!self.links(object).is_loop(after), "{object}");
                    cursor.enter(object, after, &self.links(object), purpose);
                }
                Place::Dataset(object) => {
                    let blocks = self.datasets[&object].blocks.range(cursor.at.object..);
                    for (place, (birth, id)) in blocks.filter(|_| cursor.is_needed(purpose)) {
                        if left == 0 {
                            cursor.at.object = *place;
                            return false;
                        }
                        left -= 1;
                        let birth = Txg(*birth);
                        let is_met = birth > cursor.cur_min && birth <= cursor.cur_max.min(purpose.until);
                        if is_met && birth > purpose.after {
                            met.insert(*id);
                        }
                    }
                    cursor.leave(object, &self.links(object), purpose);
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn every_block_that_stays_is_met_whatever_becomes_of_datasets(seed: u64, is_ranged: bool) {
        let mut model = Model::new(seed);
        let before = model.random(60);
        for _ in 0..before {
            model.change();
        }
        let after = if is_ranged { 10 + model.random(before) as u64 } else { 0 };
        let purpose = Purpose { is_resilver: false, after: Txg(after), until: Txg(model.txg) };
        let (mut stored, mut met) = (Cursor::beginning(), BTreeSet::new());
        loop {
            // A batch works on what there was when it began.
            let (view, mut cursor, mut recorded) = (model.clone(), stored.clone(), Vec::new());
            let most = model.random(20) + 1;
            let mut of_batch = BTreeSet::new();
            let is_all = view.walk(&mut cursor, &purpose, most, &mut of_batch);
            for _ in 0..model.random(4) {
                for change in model.change() {
                    stored.follow(change);
                    recorded.push(change);
                }
            }
            if model.random(4) == 0 {
                // It was interrupted.
                continue;
            }
            for change in recorded {
                cursor.follow(change);
            }
            met.append(&mut of_batch);
            stored = cursor;
            if is_all && stored.queue.is_empty() {
                break;
            }
        }
        for dataset in model.datasets.values() {
            for (birth, id) in dataset.blocks.values() {
                let is_wanted = *birth > after && *birth <= purpose.until.get();
                prop_assert!(!is_wanted || met.contains(id), "block {id} of group {birth} was not met");
            }
        }
    }
}

#[test]
fn a_position_is_stored_as_openzfs_has_it() {
    let mut cursor = Cursor::beginning();
    cursor.at = Bookmark { objset: 54, object: 7, level: 0, blkid: 3 };
    (cursor.cur_min, cursor.cur_max, cursor.again) = (Txg(4), Txg(9), true);
    let mut phys = ScanPhys { flags: ondisk::scan::FLAG_PAUSED, ..ScanPhys::default() };
    cursor.store(&mut phys);
    assert_eq!((phys.bookmark, phys.flags), ([54, 7, 0, 3], 3));
    assert_eq!(Cursor::load(&phys, BTreeMap::new()), cursor);
    cursor.follow(Lineage::HeadDestroyed(ObjectId(54)));
    cursor.store(&mut phys);
    assert_eq!((phys.bookmark, phys.flags), ([u64::MAX, 0, 0, 0], 2));
}

#[test]
fn snapshots_that_follow_one_another_in_a_loop_are_walked_once() {
    let purpose = Purpose { is_resilver: false, after: Txg::NONE, until: Txg(100) };
    let of = |object: u64| Links {
        creation_txg: Txg(if object == 2 { 10 } else { 20 }),
        is_snapshot: true,
        next_snap: Some(if object == 2 { 3 } else { 2 }),
        ..Links::default()
    };
    let mut cursor = Cursor::beginning();
    cursor.leave_mos([(2, Txg::NONE)]);
    let mut walked = Vec::new();
    while let Some((object, after)) = cursor.take_next() {
        if !of(object).is_loop(after) {
            cursor.enter(object, after, &of(object), &purpose);
            walked.push(object);
            cursor.leave(object, &of(object), &purpose);
        }
    }
    assert_eq!(walked, [2, 3]);
}
