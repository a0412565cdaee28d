//! Notes: changes in memory that are neither committed nor in the log yet.
//!
//! Notes of a group are in one bucket, so that forgetting a committed group means dropping its bucket. A
//! bucket has one list in the order of the notes, and a list for each object. The notes in an object's list
//! wait until a caller wants that object stable (or everything). Most are never logged. Changes that affect
//! each other are made one after the other (the code that makes them ensures it), so that an earlier one is
//! never in a later group; going through the buckets by group keeps every order that matters.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use ondisk::Txg;

/// Writes that continue each other are merged into one note up to this length.
const MERGE_BYTES: u64 = 1 << 20;

/// A change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum What {
    /// An encoded record; its sequence number is still zero.
    Record(Vec<u8>),
    /// A write whose data are in the object.
    Write {
        /// The object.
        object: u64,
        /// Its generation.
        generation: u64,
        /// The offset.
        offset: u64,
        /// The length.
        length: u64,
    },
    /// A change that cannot be put into a log block.
    Unloggable,
}

/// A change and its group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Noted {
    pub txg: Txg,
    pub what: What,
}

/// The notes to make stable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Scope {
    /// Notes of these objects, and all notes of no object.
    Objects(BTreeSet<u64>),
    /// All notes.
    All,
}

impl Default for Scope {
    fn default() -> Self {
        Self::Objects(BTreeSet::new())
    }
}

impl Scope {
    /// Extends the scope by another.
    pub(super) fn add(&mut self, other: Scope) {
        match (&mut *self, other) {
            (Scope::Objects(mine), Scope::Objects(others)) => mine.extend(others),
            _ => *self = Scope::All,
        }
    }
}

#[derive(Debug, Default)]
struct Bucket {
    txg: Txg,
    ordered: Vec<Noted>,
    by_object: BTreeMap<u64, Vec<Noted>>,
}

/// All notes.
#[derive(Debug, Default)]
pub(super) struct Pending {
    /// By group, the oldest first: at most the open group, the one that is being synced and one that was just
    /// committed.
    buckets: VecDeque<Bucket>,
}

impl Pending {
    pub(super) fn note(&mut self, txg: Txg, object: Option<u64>, what: What) {
        let bucket = self.bucket(txg);
        let list = match object {
            Some(object) => bucket.by_object.entry(object).or_default(),
            None => &mut bucket.ordered,
        };
        if let Some(Noted { what: What::Write { object, generation, offset, length }, .. }) = list.last_mut()
            && let What::Write { object: same, generation: also, offset: next, length: more } = &what
            && (*object, *generation) == (*same, *also)
            && offset.checked_add(*length) == Some(*next)
            && *length + more <= MERGE_BYTES
        {
            *length += more;
            return;
        }
        list.push(Noted { txg, what });
    }

    fn bucket(&mut self, txg: Txg) -> &mut Bucket {
        let at = self.buckets.partition_point(|bucket| bucket.txg < txg);
        if self.buckets.get(at).is_none_or(|bucket| bucket.txg != txg) {
            self.buckets.insert(at, Bucket { txg, ..Bucket::default() });
        }
        &mut self.buckets[at]
    }

    /// Drops the notes of committed groups.
    pub(super) fn forget(&mut self, synced: Txg) {
        while self.buckets.front().is_some_and(|bucket| bucket.txg <= synced) {
            self.buckets.pop_front();
        }
    }

    /// Drops the notes of an object that was freed.
    pub(super) fn forget_object(&mut self, object: u64) {
        for bucket in &mut self.buckets {
            bucket.by_object.remove(&object);
        }
    }

    /// Moves the notes of an object to the list that is made stable with any object: later notes come after
    /// them.
    pub(super) fn order(&mut self, object: u64) {
        for bucket in &mut self.buckets {
            bucket.ordered.append(&mut bucket.by_object.remove(&object).unwrap_or_default());
        }
    }

    /// Whether the object has notes of its own.
    pub(super) fn has(&self, object: u64) -> bool {
        self.buckets.iter().any(|bucket| bucket.by_object.contains_key(&object))
    }

    /// Whether there are none.
    pub(super) fn is_empty(&self) -> bool {
        self.buckets.iter().all(|bucket| bucket.ordered.is_empty() && bucket.by_object.is_empty())
    }

    /// Takes the notes in the scope, in order.
    pub(super) fn take(&mut self, scope: &Scope) -> Vec<Noted> {
        let mut taken = Vec::new();
        for bucket in &mut self.buckets {
            taken.append(&mut bucket.ordered);
            match scope {
                Scope::All => {
                    for (_, mut list) in std::mem::take(&mut bucket.by_object) {
                        taken.append(&mut list);
                    }
                }
                Scope::Objects(objects) => {
                    for object in objects {
                        taken.append(&mut bucket.by_object.remove(object).unwrap_or_default());
                    }
                }
            }
        }
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(offset: u64, length: u64) -> What {
        What::Write { object: 1, generation: 0, offset, length }
    }

    fn record(byte: u8) -> What {
        What::Record(vec![byte])
    }

    fn whats(noted: Vec<Noted>) -> Vec<What> {
        noted.into_iter().map(|noted| noted.what).collect()
    }

    #[test]
    fn notes_come_by_group_and_within_it_in_order() {
        let mut pending = Pending::default();
        pending.note(Txg(8), Some(1), write(0, 1));
        pending.note(Txg(7), Some(1), record(1));
        pending.note(Txg(7), None, record(2));
        pending.note(Txg(7), Some(1), record(3));
        assert_eq!(whats(pending.take(&Scope::All)), [record(2), record(1), record(3), write(0, 1)]);
        assert_eq!(pending.take(&Scope::All), []);
    }

    #[test]
    fn notes_of_other_objects_wait() {
        let mut pending = Pending::default();
        pending.note(Txg(7), Some(1), record(1));
        pending.note(Txg(7), Some(2), record(2));
        pending.note(Txg(7), None, record(3));
        let mut scope = Scope::default();
        scope.add(Scope::Objects([2].into()));
        assert_eq!(whats(pending.take(&scope)), [record(3), record(2)]);
        scope.add(Scope::All);
        assert_eq!(whats(pending.take(&scope)), [record(1)]);
    }

    #[test]
    fn committed_groups_are_forgotten() {
        let mut pending = Pending::default();
        for txg in [7, 8, 9] {
            pending.note(Txg(txg), None, record(txg as u8));
        }
        pending.forget(Txg(8));
        assert_eq!(whats(pending.take(&Scope::All)), [record(9)]);
    }

    #[test]
    fn what_was_noted_of_a_renamed_file_comes_before_the_renaming_and_of_a_removed_one_not_at_all() {
        let mut pending = Pending::default();
        pending.note(Txg(7), Some(1), write(0, 1));
        pending.note(Txg(7), Some(2), write(0, 1));
        pending.note(Txg(8), Some(1), record(1));
        assert!(pending.has(1) && pending.has(2));
        pending.order(1);
        pending.note(Txg(8), None, record(2));
        pending.forget_object(2);
        assert!(!pending.has(1) && !pending.has(2));
        assert_eq!(whats(pending.take(&Scope::default())), [write(0, 1), record(1), record(2)]);
        assert!(pending.is_empty());
    }

    #[test]
    fn writes_in_a_row_become_one_unless_something_lies_between() {
        let mut pending = Pending::default();
        pending.note(Txg(7), Some(1), write(0, 4096));
        pending.note(Txg(7), Some(1), write(4096, 4096));
        pending.note(Txg(7), Some(1), record(1));
        pending.note(Txg(7), Some(1), write(8192, MERGE_BYTES));
        pending.note(Txg(7), Some(1), write(8192 + MERGE_BYTES, 1));
        pending.note(Txg(8), Some(1), write(8193 + MERGE_BYTES, 1));
        let expected = [
            write(0, 8192),
            record(1),
            write(8192, MERGE_BYTES),
            write(8192 + MERGE_BYTES, 1),
            write(8193 + MERGE_BYTES, 1),
        ];
        assert_eq!(whats(pending.take(&Scope::All)), expected);
    }
}
