//! Listing datasets in the order of `zfs list`.
//!
//! The order is that of the names as bytes, with a dataset's snapshots behind it, oldest first; its bookmarks
//! follow them, since `#` sorts before `/`. It is no order of a tree: `pool/a-b` stands before `pool/a/b`.

use std::cmp::Ordering;
use std::collections::HashSet;
use std::sync::Arc;

use ondisk::objset::ObjsetType;

use super::{Dataset, DatasetBookmark, Dir, Dsl, Found};
use crate::error::{Error, Result};
use crate::properties::Types;

/// What kind of thing an entry is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A filesystem.
    Filesystem,
    /// A volume.
    Volume,
    /// A snapshot, of a filesystem or of a volume.
    Snapshot {
        /// Whether of a volume.
        of_volume: bool,
    },
    /// A bookmark.
    Bookmark,
    /// Neither: hidden datasets, and those that tests of OpenZFS make.
    Other,
}

impl Kind {
    /// The word in the TYPE column.
    pub fn word(self) -> &'static str {
        match self {
            Kind::Filesystem => "filesystem",
            Kind::Volume => "volume",
            Kind::Snapshot { .. } => "snapshot",
            Kind::Bookmark => "bookmark",
            Kind::Other => "other",
        }
    }

    /// The kind as a set of types.
    pub fn types(self) -> Types {
        match self {
            Kind::Filesystem | Kind::Other => Types::FILESYSTEM,
            Kind::Volume => Types::VOLUME,
            Kind::Snapshot { .. } => Types::SNAPSHOT,
            Kind::Bookmark => Types::BOOKMARK,
        }
    }

    /// For a snapshot the type of what it was taken of; else its own.
    pub fn head_types(self) -> Types {
        match self {
            Kind::Snapshot { of_volume: true } => Types::VOLUME,
            Kind::Snapshot { of_volume: false } => Types::FILESYSTEM,
            other => other.types(),
        }
    }
}

/// One line of a listing.
#[derive(Debug, Clone)]
pub struct Entry {
    /// What it is.
    pub kind: Kind,
    /// The thing itself.
    pub found: Found,
}

impl Entry {
    /// Full name.
    pub fn name(&self) -> &str {
        match &self.found {
            Found::Dataset(dataset) => &dataset.name,
            Found::Bookmark(bookmark) => &bookmark.name,
        }
    }

    /// The filesystem, volume or snapshot; none for a bookmark.
    pub fn dataset(&self) -> Option<&Dataset> {
        match &self.found {
            Found::Dataset(dataset) => Some(dataset),
            Found::Bookmark(_) => None,
        }
    }
}

/// How far a listing goes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Walk {
    /// How many levels below the start; none for all. Children, snapshots and bookmarks are one level below.
    pub depth: Option<usize>,
    /// Whether snapshots are wanted.
    pub snapshots: bool,
    /// Whether bookmarks are wanted.
    pub bookmarks: bool,
    /// Whether hidden (`$`) and unfinished (`%`) datasets are wanted, and those that are neither filesystem
    /// nor volume.
    pub hidden: bool,
}

impl Walk {
    /// Everything, at any depth.
    pub const ALL: Walk = Walk { depth: None, snapshots: true, bookmarks: true, hidden: false };
    /// Filesystems and volumes, at any depth.
    pub const HEADS: Walk = Walk { depth: None, snapshots: false, bookmarks: false, hidden: false };
}

/// The order of `zfs list`.
pub fn order(a: &Entry, b: &Entry) -> Ordering {
    let of = |entry: &Entry| match &entry.found {
        Found::Dataset(dataset) => dataset.phys.creation_txg.0,
        Found::Bookmark(bookmark) => bookmark.phys.creation_txg.0,
    };
    order_of((a.name(), of(a)), (b.name(), of(b)))
}

/// The same of names, each with the group in which it was made.
pub fn order_of((a, a_txg): (&str, u64), (b, b_txg): (&str, u64)) -> Ordering {
    let parts = |name: &'_ str, txg| match name.find('@') {
        Some(end) => (end, txg),
        None => (name.len(), 0),
    };
    let ((a_end, a_txg), (b_end, b_txg)) = (parts(a, a_txg), parts(b, b_txg));
    let (a_name, b_name) = (a.as_bytes(), b.as_bytes());
    let base = a_name[..a_end].cmp(&b_name[..b_end]);
    let snapshot = |end: usize, name: &[u8]| end < name.len();
    base.then(snapshot(a_end, a_name).cmp(&snapshot(b_end, b_name)))
        .then(a_txg.cmp(&b_txg))
        .then(a_name.cmp(b_name))
}

/// Whether a name is one of those that users do not see: the pool's own directories (`$ORIGIN`), and what a
/// receive fills (`%recv`).
pub fn is_hidden(name: &str) -> bool {
    name.contains(['$', '%'])
}

impl Dsl {
    /// The kind of a filesystem, volume or snapshot, which its object set tells.
    pub async fn kind(&self, dataset: &Dataset) -> Result<Kind> {
        if dataset.phys.bp.is_hole() {
            return Ok(Kind::Other); // `$ORIGIN` and its snapshot are empty.
        }
        let of_volume = match self.mos.open_objset(dataset).await?.objset_type() {
            ObjsetType::Zfs => false,
            ObjsetType::Zvol => true,
            _ => return Ok(Kind::Other),
        };
        Ok(match (dataset.is_snapshot(), of_volume) {
            (true, of_volume) => Kind::Snapshot { of_volume },
            (false, true) => Kind::Volume,
            (false, false) => Kind::Filesystem,
        })
    }

    /// The entry called `name`.
    pub async fn entry(&self, name: &str) -> Result<Entry> {
        let found = self.lookup(name).await?;
        let kind = match &found {
            Found::Dataset(dataset) => self.kind(dataset).await?,
            Found::Bookmark(_) => Kind::Bookmark,
        };
        Ok(Entry { kind, found })
    }

    /// The entry called `name` and what is below it (of the whole pool when no name is given), in the order
    /// of `zfs list`.
    pub async fn list(&self, name: Option<&str>, walk: Walk) -> Result<Vec<Entry>> {
        let start = self.entry(name.unwrap_or(&self.root.name)).await?;
        let dir = match &start.found {
            Found::Dataset(dataset) if !dataset.is_snapshot() => Arc::clone(&dataset.dir),
            _ => return Ok(vec![start]),
        };
        let mut entries = Vec::new();
        for (dir, level) in self.descend(&dir, walk).await? {
            let deeper = walk.depth.is_none_or(|depth| level < depth);
            self.list_dir(&dir, deeper, walk, &mut entries).await?;
        }
        entries.sort_by(order);
        Ok(entries)
    }

    /// A directory and all below it, unfinished ones too, in the order of names. Those that the pool has for
    /// itself (`$ORIGIN` …) are left out.
    pub async fn dirs(&self, start: &Arc<Dir>) -> Result<Vec<Arc<Dir>>> {
        let all = self.descend(start, Walk { hidden: true, ..Walk::HEADS }).await?;
        let mut all: Vec<_> = all.into_iter().map(|(dir, _)| dir).collect();
        all.retain(|dir| !dir.is_internal() && !dir.phys.head_dataset.is_none());
        all.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(all)
    }

    /// A directory and those below it that a walk wants, each with its level.
    async fn descend(&self, start: &Arc<Dir>, walk: Walk) -> Result<Vec<(Arc<Dir>, usize)>> {
        let mut all = Vec::new();
        let mut seen = HashSet::from([start.object]);
        let mut pending = vec![(Arc::clone(start), 0usize)];
        while let Some((dir, level)) = pending.pop() {
            if walk.depth.is_none_or(|depth| level < depth) {
                for child in self.all_children(&dir).await? {
                    let name = child.name.rsplit('/').next().unwrap_or_default();
                    if !walk.hidden && is_hidden(name) {
                        continue;
                    }
                    if !seen.insert(child.object) {
                        return Err(Error::corrupt(&child.name, "the same directory under two names"));
                    }
                    pending.push((child, level + 1));
                }
            }
            all.push((dir, level));
        }
        Ok(all)
    }

    /// The head of a directory, with its snapshots and bookmarks.
    async fn list_dir(&self, dir: &Arc<Dir>, deeper: bool, walk: Walk, into: &mut Vec<Entry>) -> Result<()> {
        if dir.phys.head_dataset.is_none() {
            return Ok(()); // `$MOS`, `$FREE` and `$LEAK` only account for space.
        }
        let head = self.head(dir).await?;
        let kind = self.kind(&head).await?;
        if kind == Kind::Other && !walk.hidden {
            return Ok(());
        }
        if deeper && walk.snapshots {
            let of_volume = kind == Kind::Volume;
            for snapshot in self.snapshots(&head).await? {
                let name = snapshot.name.rsplit('@').next().unwrap_or_default();
                if walk.hidden || !is_hidden(name) {
                    into.push(Entry {
                        kind: Kind::Snapshot { of_volume },
                        found: Found::Dataset(Box::new(snapshot)),
                    });
                }
            }
        }
        if deeper && walk.bookmarks {
            let marks = self.bookmarks(&head).await?;
            let entry = |mark: DatasetBookmark| Entry { kind: Kind::Bookmark, found: Found::Bookmark(mark) };
            into.extend(marks.into_iter().map(entry));
        }
        into.push(Entry { kind, found: Found::Dataset(Box::new(head)) });
        Ok(())
    }
}
