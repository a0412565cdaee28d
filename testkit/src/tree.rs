//! A model of a pool's tree of datasets: which volumes, filesystems and snapshots there are, what each holds,
//! which are clones.
//!
//! Names are without the pool's. Clones are called `c` and a number, snapshots `s` or `t` and a number; no
//! number is used twice, so that they tell the order of snapshots. What a dataset holds is the test's own
//! affair: `C`.

use std::collections::{BTreeMap, BTreeSet};

use crate::Rng;

/// All datasets and snapshots.
#[derive(Clone, Debug)]
pub struct Tree<C> {
    contents: BTreeMap<String, C>,
    /// The snapshot that a clone comes from.
    origins: BTreeMap<String, String>,
}

/// One change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A new snapshot of a dataset.
    Snapshot {
        /// The dataset.
        of: String,
        /// The snapshot.
        to: String,
    },
    /// A new clone.
    Clone {
        /// The snapshot that it is made of.
        from: String,
        /// The clone.
        to: String,
    },
    /// A snapshot that nothing was cloned from goes.
    DestroySnapshot(String),
    /// A clone without snapshots goes.
    DestroyHead(String),
    /// A snapshot gets another name.
    RenameSnapshot {
        /// From this.
        from: String,
        /// To that.
        to: String,
    },
    /// A clone gets another name.
    RenameHead {
        /// From this.
        from: String,
        /// To that.
        to: String,
    },
    /// A dataset goes back to its newest snapshot.
    Rollback {
        /// The dataset.
        of: String,
        /// The snapshot.
        to: String,
    },
    /// A clone takes the place of what it was cloned from.
    Promote(String),
}

impl<C: Clone> Tree<C> {
    /// Datasets without snapshots.
    pub fn new(heads: impl IntoIterator<Item = (String, C)>) -> Self {
        Self { contents: heads.into_iter().collect(), origins: BTreeMap::new() }
    }

    /// All names.
    pub fn names(&self) -> BTreeSet<&str> {
        self.contents.keys().map(String::as_str).collect()
    }

    /// Names of datasets, snapshots not included.
    pub fn heads(&self) -> Vec<&str> {
        self.contents.keys().filter(|name| !name.contains('@')).map(String::as_str).collect()
    }

    /// The contents of a dataset or snapshot.
    pub fn contents(&self, name: &str) -> Option<&C> {
        self.contents.get(name)
    }

    /// The same, to change.
    pub fn contents_mut(&mut self, name: &str) -> Option<&mut C> {
        self.contents.get_mut(name)
    }

    /// The snapshots of a dataset, oldest first.
    pub fn snapshots(&self, head: &str) -> Vec<String> {
        let of = |name: &&String| name.split_once('@').is_some_and(|(of, _)| of == head);
        let mut all: Vec<String> = self.contents.keys().filter(of).cloned().collect();
        all.sort_by_key(|name| number(name));
        all
    }

    fn rename(&mut self, from: &str, to: &str) {
        if let Some(contents) = self.contents.remove(from) {
            self.contents.insert(to.into(), contents);
        }
        if let Some(origin) = self.origins.remove(from) {
            self.origins.insert(to.into(), origin);
        }
        for origin in self.origins.values_mut().filter(|origin| *origin == from) {
            *origin = to.into();
        }
    }

    fn copy(&mut self, from: &str, to: &str) {
        if let Some(contents) = self.contents.get(from).cloned() {
            self.contents.insert(to.into(), contents);
        }
    }

    /// Makes a change.
    pub fn apply(&mut self, change: &Change) {
        match change {
            Change::Snapshot { of, to } => self.copy(of, to),
            Change::Clone { from, to } => {
                self.copy(from, to);
                self.origins.insert(to.clone(), from.clone());
            }
            Change::DestroySnapshot(name) | Change::DestroyHead(name) => {
                self.contents.remove(name);
                self.origins.remove(name);
            }
            Change::RenameSnapshot { from, to } => self.rename(from, to),
            Change::RenameHead { from, to } => {
                for snapshot in self.snapshots(from) {
                    self.rename(&snapshot, &format!("{to}@{}", short(&snapshot)));
                }
                self.rename(from, to);
            }
            Change::Rollback { of, to } => self.copy(to, of),
            Change::Promote(clone) => self.promote(clone),
        }
    }

    /// The snapshots up to the origin go over to the clone, which becomes the origin's origin.
    fn promote(&mut self, clone: &str) {
        let Some(origin) = self.origins.get(clone).cloned() else { return };
        let Some((parent, _)) = origin.split_once('@') else { return };
        let origin_of_parent = self.origins.remove(parent);
        let mut moved = self.snapshots(parent);
        moved.retain(|name| number(name) <= number(&origin));
        for snapshot in moved {
            self.rename(&snapshot, &format!("{clone}@{}", short(&snapshot)));
        }
        self.origins.insert(parent.into(), format!("{clone}@{}", short(&origin)));
        match origin_of_parent {
            Some(origin) => self.origins.insert(clone.into(), origin),
            None => self.origins.remove(clone),
        };
    }

    /// A change that can be made. `next` is a number that was not used yet; there will be no more than `most`
    /// names. Only what `may_roll_back` is rolled back.
    pub fn choose(
        &self,
        rng: &mut Rng,
        next: u64,
        most: usize,
        may_roll_back: impl Fn(&C) -> bool,
    ) -> Option<Change> {
        let snapshots: Vec<&String> = self.contents.keys().filter(|name| name.contains('@')).collect();
        let heads = self.heads();
        let is_clone = |name: &&str| name.strip_prefix('c').is_some_and(|rest| rest.parse::<u64>().is_ok());
        let clones: Vec<&str> = heads.iter().copied().filter(is_clone).collect();
        let is_origin = |name: &str| self.origins.values().any(|origin| origin == name);
        let kinds = if self.contents.len() >= most { 6 } else { 11 };
        // What turns out to be impossible is drawn again.
        (0..20).find_map(|_| match rng.below(kinds) {
            0 => {
                let free: Vec<_> = snapshots.iter().filter(|name| !is_origin(name)).collect();
                Some(Change::DestroySnapshot(rng.pick(&free)?.to_string()))
            }
            1 => {
                let free: Vec<_> = clones.iter().filter(|name| self.snapshots(name).is_empty()).collect();
                Some(Change::DestroyHead(rng.pick(&free)?.to_string()))
            }
            2 => {
                let from = rng.pick(&snapshots)?.to_string();
                let (of, short) = from.split_once('@')?;
                let letter = if short.starts_with('s') { 't' } else { 's' };
                let to = format!("{of}@{letter}{}", number(&from));
                Some(Change::RenameSnapshot { from, to })
            }
            3 => Some(Change::RenameHead { from: rng.pick(&clones)?.to_string(), to: format!("c{next}") }),
            4 => {
                let may = |name: &&&str| self.contents.get(**name).is_some_and(&may_roll_back);
                let all: Vec<_> = heads.iter().filter(may).collect();
                let of = rng.pick(&all)?.to_string();
                let to = self.snapshots(&of).pop()?;
                Some(Change::Rollback { of, to })
            }
            5 => {
                let all: Vec<_> = clones.iter().filter(|name| self.origins.contains_key(**name)).collect();
                Some(Change::Promote(rng.pick(&all)?.to_string()))
            }
            6..=8 => {
                let of = rng.pick(&heads)?.to_string();
                Some(Change::Snapshot { to: format!("{of}@s{next}"), of })
            }
            _ => Some(Change::Clone { from: rng.pick(&snapshots)?.to_string(), to: format!("c{next}") }),
        })
    }
}

/// The part after the `@`.
fn short(snapshot: &str) -> &str {
    snapshot.split_once('@').map_or("", |(_, short)| short)
}

/// The number in a snapshot's name.
fn number(snapshot: &str) -> u64 {
    short(snapshot).get(1..).and_then(|digits| digits.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_promoted_clone_has_the_snapshots_up_to_its_origin() {
        let mut tree = Tree::new([("a".to_owned(), 1)]);
        let snapshot = |to: &str| Change::Snapshot { of: "a".into(), to: to.into() };
        for change in [
            snapshot("a@s1"),
            snapshot("a@s2"),
            snapshot("a@s3"),
            Change::Clone { from: "a@s2".into(), to: "c4".into() },
            Change::Promote("c4".into()),
            Change::RenameHead { from: "c4".into(), to: "c5".into() },
        ] {
            tree.apply(&change);
        }
        assert_eq!(tree.names(), BTreeSet::from(["a", "a@s3", "c5", "c5@s1", "c5@s2"]));
        assert_eq!(tree.origins, BTreeMap::from([("a".into(), "c5@s2".into())]));
    }
}
