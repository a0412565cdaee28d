//! Which volumes and snapshots there are, and what each of them holds: the model of a pool's tree of datasets.
//!
//! Changes come one after the other. After a power cut the tree must be as the last answered change left it, or as the one after it would have.

use std::collections::{BTreeMap, BTreeSet};

use testkit::Rng;
use testkit::crash::SECTOR_BYTES;

/// The volume that the administrator has to itself, and its size.
pub const OWN: &str = "r";
pub const OWN_SECTORS: u64 = 24;

/// Most volumes and snapshots of a tree, so that looking at all of them takes no time.
const MOST: usize = 14;

/// What a volume or snapshot holds.
#[derive(Clone, Debug)]
pub enum Contents {
    /// What clients write to the volume of that name.
    Live(&'static str),
    /// What such a volume held at some moment.
    Moment {
        volume: &'static str,
        /// For each lane: steps that it must hold, and steps that it may.
        bounds: Vec<(usize, usize)>,
    },
    /// The same in each sector: what this step filled it with; zeroes for step 0.
    Filled(u64),
}

/// All volumes and snapshots, without the pool's name.
#[derive(Clone, Debug, Default)]
pub struct Tree {
    contents: BTreeMap<String, Contents>,
    /// The snapshot that a clone comes from.
    origins: BTreeMap<String, String>,
}

/// One change. Numbers are never used twice, and tell the order of snapshots.
#[derive(Clone, Debug)]
pub enum Change {
    Snapshot {
        of: String,
        number: u64,
    },
    Clone {
        from: String,
        to: String,
    },
    Fill {
        volume: String,
        step: u64,
    },
    DestroySnapshot(String),
    DestroyVolume(String),
    RenameSnapshot {
        from: String,
        to: String,
    },
    RenameVolume {
        from: String,
        to: String,
    },
    Rollback {
        volume: String,
        to: String,
    },
    Promote(String),
    /// More devices: the tree stays as it is.
    Grow,
}

impl Tree {
    /// Volumes that clients write, and the administrator's own one.
    pub fn new(volumes: impl Iterator<Item = &'static str>) -> Self {
        let mut contents: BTreeMap<_, _> =
            volumes.map(|name| (name.to_owned(), Contents::Live(name))).collect();
        contents.insert(OWN.into(), Contents::Filled(0));
        Self { contents, origins: BTreeMap::new() }
    }

    pub fn names(&self) -> BTreeSet<&str> {
        self.contents.keys().map(String::as_str).collect()
    }

    pub fn contents(&self, name: &str) -> Option<&Contents> {
        self.contents.get(name)
    }

    /// Says what a snapshot of a volume that clients write holds.
    pub fn set_bounds(&mut self, name: &str, known: Vec<(usize, usize)>) {
        if let Some(Contents::Moment { bounds, .. }) = self.contents.get_mut(name) {
            *bounds = known;
        }
    }

    fn is_snapshot(name: &str) -> bool {
        name.contains('@')
    }

    /// The snapshots of a volume, oldest first.
    fn snapshots(&self, volume: &str) -> Vec<String> {
        let of = |name: &&String| name.split_once('@').is_some_and(|(of, _)| of == volume);
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

    /// The tree after a change. What a new snapshot of a volume that clients write holds is still to be said.
    pub fn after(&self, change: &Change) -> Self {
        let mut tree = self.clone();
        match change {
            Change::Snapshot { of, number } => {
                let contents = match self.contents.get(of) {
                    Some(Contents::Live(volume)) => Contents::Moment { volume, bounds: Vec::new() },
                    Some(other) => other.clone(),
                    None => return tree,
                };
                tree.contents.insert(format!("{of}@s{number}"), contents);
            }
            Change::Clone { from, to } => {
                if let Some(contents) = self.contents.get(from) {
                    tree.contents.insert(to.clone(), contents.clone());
                    tree.origins.insert(to.clone(), from.clone());
                }
            }
            Change::Fill { volume, step } => {
                tree.contents.insert(volume.clone(), Contents::Filled(*step));
            }
            Change::DestroySnapshot(name) | Change::DestroyVolume(name) => {
                tree.contents.remove(name);
                tree.origins.remove(name);
            }
            Change::RenameSnapshot { from, to } => tree.rename(from, to),
            Change::RenameVolume { from, to } => {
                for snapshot in self.snapshots(from) {
                    let short = snapshot.split_once('@').map_or("", |(_, short)| short);
                    tree.rename(&snapshot, &format!("{to}@{short}"));
                }
                tree.rename(from, to);
            }
            Change::Rollback { volume, to } => {
                if let Some(contents) = self.contents.get(to) {
                    tree.contents.insert(volume.clone(), contents.clone());
                }
            }
            Change::Promote(clone) => tree.promote(clone),
            Change::Grow => {}
        }
        tree
    }

    /// The snapshots up to the origin go over to the clone, which becomes the origin's origin.
    fn promote(&mut self, clone: &str) {
        let Some(origin) = self.origins.get(clone).cloned() else { return };
        let Some((parent, _)) = origin.split_once('@') else { return };
        let parent_origin = self.origins.remove(parent);
        let moved = self.snapshots(parent).into_iter().filter(|name| number(name) <= number(&origin));
        for snapshot in moved.collect::<Vec<_>>() {
            let short = snapshot.split_once('@').map_or("", |(_, short)| short).to_owned();
            self.rename(&snapshot, &format!("{clone}@{short}"));
        }
        let short = origin.split_once('@').map_or("", |(_, short)| short);
        self.origins.insert(parent.into(), format!("{clone}@{short}"));
        match parent_origin {
            Some(origin) => self.origins.insert(clone.into(), origin),
            None => self.origins.remove(clone),
        };
    }

    /// A change that can be made. `next` is a number that was not used yet.
    pub fn choose(&self, rng: &mut Rng, next: u64) -> Option<Change> {
        let snapshots: Vec<&String> = self.contents.keys().filter(|name| Self::is_snapshot(name)).collect();
        let volumes: Vec<&String> = self.contents.keys().filter(|name| !Self::is_snapshot(name)).collect();
        let is_origin = |name: &str| self.origins.values().any(|origin| origin == name);
        let filled = |name: &&&String| matches!(self.contents.get(**name), Some(Contents::Filled(_)));
        let clones: Vec<&String> = volumes.iter().filter(|name| name.starts_with('c')).copied().collect();
        let full = self.contents.len() >= MOST;
        // What turns out to be impossible is drawn again.
        (0..20).find_map(|_| match rng.below(if full { 8 } else { 12 }) {
            0 => {
                let free: Vec<_> = snapshots.iter().filter(|name| !is_origin(name)).collect();
                Some(Change::DestroySnapshot((**rng.pick(&free)?).to_string()))
            }
            1 => {
                let free: Vec<_> = clones.iter().filter(|name| self.snapshots(name).is_empty()).collect();
                Some(Change::DestroyVolume((**rng.pick(&free)?).to_string()))
            }
            2 => {
                let from = rng.pick(&snapshots)?.to_string();
                let (of, short) = from.split_once('@')?;
                let letter = if short.starts_with('s') { 't' } else { 's' };
                let to = format!("{of}@{letter}{}", number(&from));
                Some(Change::RenameSnapshot { from, to })
            }
            3 => {
                let from = rng.pick(&clones)?.to_string();
                Some(Change::RenameVolume { from, to: format!("c{next}") })
            }
            4 => {
                let all: Vec<_> = volumes.iter().filter(filled).collect();
                let volume = rng.pick(&all)?.to_string();
                let to = self.snapshots(&volume).pop()?;
                Some(Change::Rollback { volume, to })
            }
            5 => {
                let all: Vec<_> = clones.iter().filter(|name| self.origins.contains_key(**name)).collect();
                Some(Change::Promote(rng.pick(&all)?.to_string()))
            }
            6 | 7 => {
                let all: Vec<_> = volumes.iter().filter(filled).collect();
                Some(Change::Fill { volume: rng.pick(&all)?.to_string(), step: next })
            }
            8 | 9 | 10 => Some(Change::Snapshot { of: rng.pick(&volumes)?.to_string(), number: next }),
            _ => Some(Change::Clone { from: rng.pick(&snapshots)?.to_string(), to: format!("c{next}") }),
        })
    }
}

/// The number in a snapshot's name.
fn number(name: &str) -> u64 {
    let short = name.rsplit('@').next().unwrap_or_default();
    short.trim_start_matches(|letter: char| !letter.is_ascii_digit()).parse().unwrap_or(0)
}

/// What step `step` fills a sector with.
pub fn fill(step: u64, sector: u64) -> Vec<u8> {
    if step == 0 {
        return vec![0; SECTOR_BYTES];
    }
    let mut rng = Rng::new(step << 20 ^ sector);
    // Half of it compresses.
    let noise: Vec<u8> = (0..SECTOR_BYTES / 16).flat_map(|_| rng.next_u64().to_le_bytes()).collect();
    let mut bytes = step.to_le_bytes().repeat(SECTOR_BYTES / 8);
    bytes[SECTOR_BYTES / 2..].copy_from_slice(&noise);
    bytes
}
