//! What datasets accept together, directory by directory.
//!
//! # The idea
//! A dataset's own gauge ([`super`]) knows what quotas and reservations left it as of the last group.
//! Several that are written at once would each take all of that. So what all of them accepted since is
//! counted at every directory on the way to the root, as space itself is: what a directory uses beyond what
//! is reserved for it reaches the one above. A head is the lowest level of its way: what it has for itself
//! is used there, and its `refreservation` is what is reserved.
//!
//! Clones count for a dataset as if they were copies, and so for quotas; of the pool they take next to
//! nothing, and so the root's room does not count them.
//!
//! # Invariants
//! - What is counted at a level is the sum of what the heads below it pass on, so that it does not matter in
//!   which order they accepted.
//! - The figures of levels are those of the last group, of all levels at once; what was accepted into the
//!   group that is being written counts until that is committed.
//!
//! Source of the idea: OpenZFS 2.3 `dsl_dir.c` (`dsl_dir_tempreserve_impl`, `dsl_dir_space_available`).

use std::sync::{Mutex, MutexGuard};

use device::IgnorePoison;
use hashbrown::{HashMap, HashSet};
use ondisk::{ObjectId, ObjsetId, Txg};

/// A head, or a directory on its way to the root, as of the last group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Level {
    /// The dataset, or the directory.
    pub id: ObjectId,
    /// Bytes that it uses, with all below it.
    pub used: u64,
    /// Bytes that are reserved for that.
    pub reserved: u64,
    /// Bytes that it may use at most; `u64::MAX` without a quota.
    pub quota: u64,
    /// Of the root: bytes that the pool has room for; else `u64::MAX`.
    pub pool: u64,
}

/// What is left for a head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Left {
    pub bytes: u64,
    /// A quota is what bounds it.
    pub by_quota: bool,
    /// What was accepted since the last group where it is bounded.
    pub accepted: u64,
}

/// The heads of a pool that are open, and all directories above them.
#[derive(Debug, Default)]
pub(crate) struct Shares {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    levels: HashMap<ObjectId, Counted>,
    heads: HashMap<ObjsetId, Head>,
    /// What of that was accepted takes no space of the pool, by group.
    cloned: ByGroup,
}

/// Bytes of the open group, and of the one that is being written.
#[derive(Debug, Default, Clone, Copy)]
struct ByGroup([u64; 2]);

impl ByGroup {
    fn add(&mut self, txg: Txg, bytes: u64) {
        let of_group = &mut self.0[(txg.get() % 2) as usize];
        *of_group = of_group.saturating_add(bytes);
    }

    fn forget(&mut self, txg: Txg) {
        self.0[(txg.get() % 2) as usize] = 0;
    }

    fn total(&self) -> u64 {
        self.0[0].saturating_add(self.0[1])
    }
}

/// What a head accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Charge {
    /// Into which group.
    pub txg: Txg,
    /// Bytes, as the dataset counts them.
    pub bytes: u64,
    /// Of these, what takes no space of the pool.
    pub cloned: u64,
}

#[derive(Debug, Clone, Copy)]
struct Counted {
    level: Level,
    /// What came from below since the last group.
    accepted: u64,
}

#[derive(Debug, Default)]
struct Head {
    /// From the head to the root.
    way: Vec<ObjectId>,
    accepted: ByGroup,
}

impl Counted {
    fn used(&self) -> u64 {
        self.level.used.saturating_add(self.accepted)
    }

    /// What the level above counts for it.
    fn accounted(&self) -> u64 {
        self.used().max(self.level.reserved)
    }
}

impl State {
    /// What is left for a head that is about to clone so much.
    fn left(&self, head: ObjsetId, cloned: u64) -> Left {
        let cloned = self.cloned.total().saturating_add(cloned);
        let mut left = Left { bytes: u64::MAX, by_quota: false, accepted: 0 };
        let way = self.heads.get(&head).map_or(&[][..], |head| &head.way);
        for counted in way.iter().rev().filter_map(|id| self.levels.get(id)) {
            let used = counted.used();
            if left.bytes != u64::MAX {
                left.bytes = left.bytes.saturating_add(counted.level.reserved.saturating_sub(used));
            }
            let of_pool = counted.level.pool.saturating_add(cloned);
            for (most, by_quota) in [(of_pool, false), (counted.level.quota, true)] {
                let here = if most == u64::MAX { u64::MAX } else { most.saturating_sub(used) };
                if here < left.bytes {
                    left = Left { bytes: here, by_quota, accepted: counted.accepted };
                }
            }
        }
        left
    }

    fn charge(&mut self, head: ObjsetId, charge: Charge) {
        let Some(head) = self.heads.get_mut(&head) else { return };
        head.accepted.add(charge.txg, charge.bytes);
        self.cloned.add(charge.txg, charge.cloned);
        pass_on(&mut self.levels, &head.way, charge.bytes);
    }

    /// Counts anew what heads accepted.
    fn recount(&mut self) {
        self.levels.values_mut().for_each(|counted| counted.accepted = 0);
        for head in self.heads.values() {
            pass_on(&mut self.levels, &head.way, head.accepted.total());
        }
    }

    fn put(&mut self, head: ObjsetId, way: &[Level]) {
        self.heads.entry(head).or_default().way = way.iter().map(|level| level.id).collect();
        for level in way {
            let counted = self.levels.entry(level.id).or_insert(Counted { level: *level, accepted: 0 });
            counted.level = *level;
        }
    }
}

/// Counts bytes at each level of a way, as far as they get.
fn pass_on(levels: &mut HashMap<ObjectId, Counted>, way: &[ObjectId], mut bytes: u64) {
    for id in way {
        let Some(counted) = levels.get_mut(id).filter(|_| bytes > 0) else { return };
        let before = counted.accounted();
        counted.accepted = counted.accepted.saturating_add(bytes);
        bytes = counted.accounted() - before;
    }
}

impl Shares {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().ignore_poison()
    }

    /// What a head may still accept, beside all others.
    pub(super) fn left(&self, head: ObjsetId) -> Left {
        self.state().left(head, 0)
    }

    /// The least of what bounds a head: quotas on its way to the root, and the size of the pool.
    pub(super) fn most(&self, head: ObjsetId) -> Option<u64> {
        let state = self.state();
        let levels = state.heads.get(&head)?.way.iter().filter_map(|id| state.levels.get(id));
        levels.map(|counted| counted.level.quota.min(counted.level.pool)).min()
    }

    /// Counts what a head accepts, or says what there is where that is less. What is left afterwards.
    pub(super) fn accept(&self, head: ObjsetId, charge: Charge) -> Result<Left, Left> {
        let mut state = self.state();
        let left = state.left(head, charge.cloned);
        if charge.bytes > left.bytes {
            return Err(left);
        }
        state.charge(head, charge);
        Ok(state.left(head, 0))
    }

    /// Counts what a head accepts, whether or not there is room for it.
    pub(super) fn charge(&self, head: ObjsetId, charge: Charge) {
        self.state().charge(head, charge);
    }

    /// A head was opened, whose way is this.
    pub(super) fn opened(&self, head: ObjsetId, way: &[Level]) {
        let mut state = self.state();
        state.put(head, way);
        state.recount();
    }

    /// The group `txg` is committed; these are the heads that are open, and their ways as of now.
    pub(super) fn committed(&self, txg: Txg, open: &[(ObjsetId, Vec<Level>)]) {
        let mut state = self.state();
        state.heads.values_mut().for_each(|head| head.accepted.forget(txg));
        state.cloned.forget(txg);
        for (head, way) in open {
            state.put(*head, way);
        }
        let is_open: HashSet<ObjsetId> = open.iter().map(|(head, _)| *head).collect();
        // One that was closed meanwhile may have accepted something before.
        state.heads.retain(|id, head| head.accepted.total() > 0 || is_open.contains(id));
        let needed: HashSet<ObjectId> = state.heads.values().flat_map(|head| head.way.clone()).collect();
        state.levels.retain(|id, _| needed.contains(id));
        state.recount();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn level(id: u64, used: u64, reserved: u64, quota: u64) -> Level {
        Level { id: ObjectId(id), used, reserved, quota, pool: u64::MAX }
    }

    fn root(used: u64, pool: u64) -> Level {
        Level { pool, ..level(1, used, 0, u64::MAX) }
    }

    fn head(number: u64) -> ObjsetId {
        ObjsetId(number)
    }

    fn bytes(txg: u64, bytes: u64) -> Charge {
        Charge { txg: Txg(txg), bytes, cloned: 0 }
    }

    const NONE: u64 = u64::MAX;

    #[test]
    fn children_share_the_quota_of_their_parent() {
        let shares = Shares::default();
        let parent = level(10, 20, 0, 100);
        for number in 0..4 {
            let way =
                [level(100 + number, 5, 0, NONE), level(20 + number, 5, 0, NONE), parent, root(20, 1000)];
            shares.opened(head(100 + number), &way);
        }
        assert_eq!(shares.accept(head(100), bytes(5, 50)).unwrap().bytes, 30);
        assert_eq!(
            shares.accept(head(101), bytes(5, 31)),
            Err(Left { bytes: 30, by_quota: true, accepted: 50 })
        );
        shares.accept(head(102), bytes(5, 30)).unwrap();
        assert!(shares.accept(head(103), bytes(6, 1)).is_err(), "what is being written counts");
        let way = |used: u64, parent: u64| {
            [
                level(100, used, 0, NONE),
                level(20, used, 0, NONE),
                level(10, parent, 0, 100),
                root(parent, 1000),
            ]
            .to_vec()
        };
        // The first was compressed; of the others nothing is open any more.
        shares.committed(Txg(5), &[(head(100), way(7, 50))]);
        assert_eq!(shares.left(head(100)).bytes, 50);
        assert_eq!(shares.state().heads.len(), 1);
        assert_eq!(shares.state().levels.len(), 4);
    }

    #[test]
    fn nobody_takes_what_is_reserved_for_another() {
        let shares = Shares::default();
        // The root counts what is reserved as used.
        let top = root(300, 1000);
        shares.opened(head(2), &[level(2, 0, 0, NONE), level(20, 0, 300, NONE), top]);
        shares.opened(head(3), &[level(3, 0, 0, NONE), level(30, 0, 0, NONE), top]);
        shares.opened(head(4), &[level(4, 0, 0, NONE), level(40, 0, 0, NONE), top]);
        assert_eq!([2, 3, 4].map(|number| shares.left(head(number)).bytes), [1000, 700, 700]);
        shares.accept(head(3), bytes(5, 400)).unwrap();
        shares.accept(head(4), bytes(5, 300)).unwrap();
        assert_eq!([2, 3, 4].map(|number| shares.left(head(number)).bytes), [300, 0, 0]);
        shares.accept(head(2), bytes(5, 200)).unwrap();
        assert_eq!([2, 3, 4].map(|number| shares.left(head(number)).bytes), [100, 0, 0]);
        shares.accept(head(2), bytes(5, 100)).unwrap();
        assert_eq!(
            shares.accept(head(2), bytes(5, 1)),
            Err(Left { bytes: 0, by_quota: false, accepted: 700 })
        );
    }

    #[test]
    fn a_heads_own_reservation_is_used_first() {
        let shares = Shares::default();
        let top = root(150, 200);
        shares.opened(head(2), &[level(2, 50, 150, NONE), level(20, 150, 0, NONE), top]);
        shares.opened(head(3), &[level(3, 0, 0, NONE), level(30, 0, 0, NONE), top]);
        assert_eq!(shares.accept(head(2), bytes(5, 100)).unwrap().bytes, 50);
        assert_eq!(shares.accept(head(3), bytes(5, 40)).unwrap().bytes, 10);
        assert_eq!(shares.accept(head(2), bytes(5, 11)).unwrap_err().bytes, 10);
    }

    #[test]
    fn one_that_was_closed_counts_until_its_group_is_committed() {
        let shares = Shares::default();
        let way =
            |number: u64| [level(number, 0, 0, NONE), level(number * 10, 0, 0, NONE), root(0, 100)].to_vec();
        shares.opened(head(2), &way(2));
        shares.opened(head(3), &way(3));
        shares.charge(head(2), bytes(5, 60));
        shares.committed(Txg(4), &[(head(3), way(3))]);
        assert_eq!(shares.left(head(3)).bytes, 40);
        shares.committed(Txg(5), &[(head(3), way(3))]);
        assert_eq!(shares.left(head(3)).bytes, 100);
    }

    #[test]
    fn clones_count_for_quotas_and_not_for_the_pool() {
        let shares = Shares::default();
        shares.opened(head(2), &[level(2, 0, 0, NONE), level(20, 0, 0, 300), root(0, 100)]);
        let clone = Charge { txg: Txg(5), bytes: 250, cloned: 240 };
        assert_eq!(shares.accept(head(2), clone).unwrap(), Left { bytes: 50, by_quota: true, accepted: 250 });
        assert_eq!(shares.accept(head(2), clone), Err(Left { bytes: 50, by_quota: true, accepted: 250 }));
        assert!(shares.accept(head(2), bytes(5, 50)).is_ok());
        assert!(shares.accept(head(2), bytes(5, 1)).is_err());
    }
}
