//! Random use against a model of single sectors: no sector has two owners, nothing is reused too early, the
//! space maps and the totals are right.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::super::group::GroupConfig;
use super::super::metaslab::{Bounds, Metaslab};
use super::*;
use crate::range_set::RangeSet;

const SECTOR: u64 = 4096;
const MS_SHIFT: u8 = 16;

fn config(vdev: u32, class: Class) -> GroupConfig {
    GroupConfig {
        vdev,
        class,
        ms_shift: MS_SHIFT,
        array: ObjectId(1),
        top_zap: None,
        deflate_ratio: 512,
        aliquot_bytes: 32 << 10,
        added: None,
        allocating: true,
    }
}

fn metaslabs(count: u64) -> Vec<Metaslab> {
    let bounds = |place| Bounds { start: place << MS_SHIFT, size: 1 << MS_SHIFT, shift: 12 };
    (0..count).map(|place| Metaslab::unused(bounds(place))).collect()
}

fn state(classes: &[(Class, u64)]) -> State {
    let mut state = State::new(true);
    for (vdev, &(class, count)) in (0..).zip(classes) {
        state.add_group(Group::new(config(vdev, class), metaslabs(count)));
    }
    state
}

fn allocate(state: &mut State, class: Class, size: u64, copies: usize, txg: u64) -> Option<Vec<Dva>> {
    let asize_on = |_| Some(size);
    match state.allocate(class, copies, Txg(txg), &asize_on) {
        Ok(dvas) => Some(dvas),
        Err(Denied::NoSpace) => None,
        Err(denied) => panic!("{denied:?}"),
    }
}

fn free(state: &mut State, dva: &Dva, txg: u64) -> Result<()> {
    let from = dva.offset.get();
    state.group(dva.vdev)?.free(from, from + dva.asize.get(), Txg(txg))
}

fn range(dva: &Dva) -> (u32, u64, u64) {
    (dva.vdev.get(), dva.offset.get(), dva.offset.get() + dva.asize.get())
}

#[derive(Debug, Clone)]
enum Step {
    /// Class, sectors, copies, and whether the intent log allocates, in the open group.
    Allocate(u8, u64, usize, bool),
    /// Frees one of the blocks.
    Free(usize),
    /// One more pass of the sync.
    Pass,
    /// The group is committed, while a view of this many groups ago is held.
    Commit(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (0u8..4, 1u64..9, 1usize..4, prop::bool::weighted(0.2)).prop_map(|(class, sectors, copies, open)| {
            Step::Allocate(class, sectors, copies, open)
        }),
        4 => any::<prop::sample::Index>().prop_map(|index| Step::Free(index.index(1 << 20))),
        1 => Just(Step::Pass),
        1 => (0u64..5).prop_map(Step::Commit),
    ];
    proptest::collection::vec(step, 1..250)
}

/// The state that is known apart from the allocator.
#[derive(Default)]
struct Model {
    /// The owner of a range: by vdev and start, the end of its block.
    owned: BTreeMap<(u32, u64), u64>,
    /// Freed in this group.
    freed: Vec<(u64, (u32, u64, u64))>,
    /// The contents of the space maps on disk, by vdev.
    on_disk: BTreeMap<u32, RangeSet>,
}

impl Model {
    fn owner_within(&self, (vdev, from, to): (u32, u64, u64)) -> bool {
        let before = self.owned.range(..(vdev, to)).next_back();
        before.is_some_and(|(&(its_vdev, _), &end)| its_vdev == vdev && end > from)
    }

    fn took(&mut self, at: (u32, u64, u64)) -> Result<(), TestCaseError> {
        prop_assert!(!self.owner_within(at), "{:?} belongs to somebody", at);
        let waits = |(_, freed): &(u64, (u32, u64, u64))| freed.0 == at.0 && freed.1 < at.2 && at.1 < freed.2;
        prop_assert!(!self.freed.iter().any(waits), "{:?} is reused too early", at);
        self.owned.insert((at.0, at.1), at.2);
        Ok(())
    }

    /// Replays the writes of a pass of the sync, strictly.
    fn pass(&mut self, state: &mut State, txg: u64) -> Result<(), TestCaseError> {
        for group in state.groups.iter_mut().flatten() {
            let map = self.on_disk.entry(group.vdev).or_default();
            for place in group.changed(Txg(txg)) {
                let slab = group.metaslab_mut(place).unwrap();
                slab.on_disk.length_bytes = 1 << 20;
                let taken = slab.take(Txg(txg));
                for (from, to) in taken.allocs.iter() {
                    prop_assert_eq!(map.add(from, to), 0);
                }
                for (from, to) in taken.frees.iter() {
                    prop_assert_eq!(map.remove(from, to), to - from);
                }
                let Bounds { start, size, .. } = slab.bounds();
                let expected: Vec<_> = map.within(start, start + size).collect();
                prop_assert_eq!(slab.rewrite(64), Some(expected));
            }
        }
        Ok(())
    }
}

proptest! {
    #[test]
    fn nobody_gets_what_somebody_has_or_had_lately(steps in steps()) {
        let mut state = state(&[(Class::Normal, 5), (Class::Normal, 70), (Class::Special, 2), (Class::Log, 1)]);
        let mut model = Model::default();
        // Copies of a block, and whether its group is written.
        let mut blocks: Vec<(u64, Vec<Dva>)> = Vec::new();
        let mut txg = 10;
        for step in steps {
            match step {
                Step::Allocate(class, sectors, copies, open) => {
                    let class = [Class::Normal, Class::Special, Class::Dedup, Class::Log][usize::from(class)];
                    let txg = txg + u64::from(open);
                    if let Some(dvas) = allocate(&mut state, class, sectors * SECTOR, copies, txg) {
                        prop_assert_eq!(dvas.len(), copies);
                        for dva in &dvas {
                            model.took(range(dva))?;
                        }
                        blocks.push((txg, dvas));
                    }
                }
                Step::Free(which) if !blocks.is_empty() => {
                    let (born, dvas) = blocks.swap_remove(which % blocks.len());
                    if born > txg {
                        prop_assert!(free(&mut state, &dvas[0], txg).is_err());
                        blocks.push((born, dvas));
                        continue;
                    }
                    for dva in &dvas {
                        free(&mut state, dva, txg).unwrap();
                        prop_assert!(free(&mut state, dva, txg).is_err());
                        let at = range(dva);
                        model.owned.remove(&(at.0, at.1));
                        model.freed.push((txg, at));
                    }
                }
                Step::Free(_) => {}
                Step::Pass => model.pass(&mut state, txg)?,
                Step::Commit(view) => {
                    model.pass(&mut state, txg)?;
                    let reusable = reusable_after(Txg(txg), Txg(txg - view));
                    for group in state.groups.iter_mut().flatten() {
                        group.sync_done(Txg(txg), reusable);
                    }
                    model.freed.retain(|(freed_in, _)| freed_in + 2 > txg || *freed_in > txg - view);
                    txg += 1;
                }
            }
            let owned: u64 = model.owned.iter().map(|(&(_, from), &to)| to - from).sum();
            let waiting: u64 = model.freed.iter().map(|(_, (_, from, to))| to - from).sum();
            let all = [Class::Normal, Class::Special, Class::Log].map(|class| state.totals(class, Use::Class));
            let all = all.into_iter().fold(state.totals(Class::Normal, Use::EmbeddedLog), Totals::plus);
            prop_assert_eq!((all.size, all.allocated, all.waiting), (78 << MS_SHIFT, owned, waiting));
        }
    }
}

#[test]
fn copies_are_on_different_vdevs_while_there_are_any() {
    let mut state = state(&[(Class::Normal, 20), (Class::Normal, 20)]);
    for _ in 0..20 {
        let dvas = allocate(&mut state, Class::Normal, SECTOR, 3, 5).unwrap();
        assert_ne!(dvas[0].vdev, dvas[1].vdev);
        let [first, second, third] = [0, 1, 2].map(|copy: usize| (dvas[copy].vdev, dvas[copy].offset));
        let twin = if first.0 == third.0 { first } else { second };
        assert!((twin.1.get() >> MS_SHIFT).abs_diff(third.1.get() >> MS_SHIFT) >= 2);
    }
}

#[test]
fn a_full_class_falls_back_as_openzfs_does() {
    let mut state = state(&[(Class::Normal, 65), (Class::Special, 1)]);
    let vdev = |dvas: Option<Vec<Dva>>| dvas.map(|dvas| dvas[0].vdev.get());
    assert_eq!(vdev(allocate(&mut state, Class::Dedup, 1 << MS_SHIFT, 1, 5)), Some(1));
    assert_eq!(vdev(allocate(&mut state, Class::Special, SECTOR, 1, 5)), Some(0));
    while allocate(&mut state, Class::Normal, SECTOR, 1, 5).is_some() {}
    assert_eq!(vdev(allocate(&mut state, Class::Dedup, SECTOR, 1, 5)), None);
    let log = state.totals(Class::Normal, Use::EmbeddedLog);
    assert_eq!(log.free(), 1 << MS_SHIFT);
    assert_eq!(vdev(allocate(&mut state, Class::Log, SECTOR, 1, 5)), Some(0));
}

#[test]
fn logs_are_not_given_what_is_for_data_unasked() {
    let mut state = state(&[(Class::Normal, 65), (Class::Log, 1)]);
    let whole = 1 << MS_SHIFT;
    let vdevs: Vec<_> =
        std::iter::from_fn(|| allocate(&mut state, Class::Log, whole, 1, 5)).take(9).collect();
    let vdevs: Vec<_> = vdevs.iter().map(|dvas| dvas[0].vdev.get()).collect();
    assert_eq!(vdevs, [1, 0]);
}

#[test]
fn nothing_stays_allocated_when_not_all_copies_fit() {
    let mut state = state(&[(Class::Normal, 1)]);
    let before = state.totals(Class::Normal, Use::Class);
    assert_eq!(allocate(&mut state, Class::Normal, 1 << (MS_SHIFT - 1), 3, 5), None);
    assert_eq!(state.totals(Class::Normal, Use::Class), before);
    assert!(state.groups[0].as_ref().unwrap().changed(Txg(5)).is_empty());
}

#[test]
fn a_new_vdev_takes_only_blocks_of_its_own_group() {
    let mut state = State::new(true);
    state
        .add_group(Group::new(GroupConfig { added: Some(Txg(5)), ..config(0, Class::Normal) }, metaslabs(2)));
    assert!(allocate(&mut state, Class::Normal, SECTOR, 1, 6).is_none());
    assert!(allocate(&mut state, Class::Normal, SECTOR, 1, 5).is_some());
    for group in state.groups.iter_mut().flatten() {
        group.metaslab_mut(0).unwrap().take(Txg(5));
        group.sync_done(Txg(5), Txg(3));
    }
    assert!(allocate(&mut state, Class::Normal, SECTOR, 1, 6).is_some());
}
