//! What happened to the files of a filesystem between two of its states: `zfs diff`.
//!
//! # The idea
//! Two states of one filesystem share what was not written between them, so that only objects whose dnodes
//! differ are looked at ([`DifferingObjects`]). A file is the same on both sides when its object number,
//! generation and type are; otherwise one file was removed and another one created. A file that is the same
//! and has the same change time (`ctime`) did not change: its blocks were only written again, or it was only
//! read. One that changed has, in this order of preference, more or fewer hard links, or the same path
//! (modified), or another one (renamed).
//!
//! # Names
//! The path of a file is that of its newest hard link, as its object has only the directory of that one. When
//! that link was removed and others remain, the file is looked for under the name that it has on the other
//! side, also where only its attributes changed. If that is not its name either, it has no known path on
//! that side until it gets a link or is renamed: it is not taken for absent, and is listed only where its
//! number of links changed or its path now is known. A file without links that was not freed yet is in the
//! queue of unlinked files, and is called [`ON_DELETE_QUEUE`].
//!
//! # Bounds
//! Differing objects are taken in pages, so that a directory is gone through once for many of its files
//! (`Paths`), while memory holds one page. A page is smaller where directories nest so deep that it would
//! be too much.
//!
//! # What differs from OpenZFS
//! A file whose number lies inside a larger dnode by now was removed; OpenZFS does not see that, and where it
//! is the other way round it complains of an object that it finds to exist (`EEXIST`). Extended attributes of
//! a file that was removed while it is open did not change; OpenZFS lists as removed those of them that share
//! a block of dnodes with a change. A file that lost the newest one of its links, and is where it was, is
//! listed as removed or added by OpenZFS, and as modified here. What cannot be read is reported instead of
//! being taken for absent.
//!
//! Source of the facts: OpenZFS 2.4 `libzfs_diff.c`, `dmu_diff.c`, `zfs_znode.c` (`zfs_obj_to_stats`).

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use ondisk::ObjectId;
use ondisk::zpl::FileType;

use super::path::{self, Paths};
use super::{Time, Zpl, ZplOptions};
use crate::dmu::{DifferingObjects, Objset};
use crate::{Error, Result};

/// The path of files without links that are not freed yet.
pub const ON_DELETE_QUEUE: &[u8] = b"(on_delete_queue)";

/// How much is held in memory at a time.
#[derive(Clone, Copy, Debug)]
pub struct PageLimits {
    /// Differing objects that are looked at together.
    pub objects: usize,
    /// Files and directories of one side whose names are held. Above a page of one object there may be more
    /// directories.
    pub places: usize,
}

impl Default for PageLimits {
    fn default() -> Self {
        Self { objects: 8192, places: 1 << 18 }
    }
}

/// What happened to a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// What it was.
    pub kind: ChangeKind,
    /// File type and permission bits, after the change unless the file is gone.
    pub mode: u32,
    /// When the file itself changed last, from the same side.
    pub ctime: Time,
}

/// A kind of change, with paths from the root of the filesystem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChangeKind {
    /// A new file.
    Added(Vec<u8>),
    /// A file is gone.
    Removed(Vec<u8>),
    /// Other content or attributes; of a directory, other entries.
    Modified(Vec<u8>),
    /// It got so many hard links more.
    Linked(Vec<u8>, i64),
    /// Another path.
    Renamed {
        /// Its path before.
        from: Vec<u8>,
        /// Its path now.
        to: Vec<u8>,
    },
}

/// A result of the comparison.
#[derive(Clone, Debug)]
pub enum Difference {
    /// A file changed.
    Change(Change),
    /// What happened to this object cannot be told.
    Unreadable(ObjectId, Error),
}

/// A comparison of two states of one filesystem, from object to object.
#[derive(Debug)]
pub struct Diff {
    before: Side,
    after: Side,
    objects: DifferingObjects,
    limits: PageLimits,
    /// Objects of the next page.
    page_objects: usize,
    /// Objects of this page whose paths are known.
    page: VecDeque<(ObjectId, Result<Pair>)>,
    /// Objects that did not fit into it.
    left: VecDeque<(ObjectId, Result<Pair>)>,
    /// A second change of the same object.
    second: Option<Change>,
}

/// What both sides have under one object number.
type Pair = (Option<Facts>, Option<Facts>);

/// One of the two states.
#[derive(Debug)]
struct Side {
    zpl: Arc<Zpl>,
    paths: Paths,
}

/// What an object says about its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Facts {
    mode: u32,
    generation: u64,
    links: u32,
    ctime: Time,
    /// It is in the queue of unlinked files.
    is_unlinked: bool,
}

/// A file on one side. Without a path it was found under no name.
type File = (Facts, Option<Vec<u8>>);

impl Facts {
    fn file_type(&self) -> FileType {
        FileType::from_mode(self.mode)
    }

    /// Whether both are states of one file.
    fn is_same_file(&self, other: &Self) -> bool {
        self.generation == other.generation && self.file_type() == other.file_type()
    }

    fn change(&self, kind: ChangeKind) -> Change {
        Change { kind, mode: self.mode, ctime: self.ctime }
    }
}

/// Whether nothing happened, whatever the names are.
fn is_unchanged(pair: &Pair) -> bool {
    match pair {
        (None, None) => true,
        (Some(before), Some(after)) => before.is_same_file(after) && before.ctime == after.ctime,
        _ => false,
    }
}

/// What happened to what had one object number before and after.
fn compare(before: Option<File>, after: Option<File>) -> (Option<Change>, Option<Change>) {
    let facts = [&before, &after].map(|file| file.as_ref().map(|(facts, _)| *facts));
    let links = match facts {
        [Some(before), Some(after)] => more_links(&before, &after),
        _ => 0,
    };
    let is_there = matches!(facts, [Some(before), Some(after)] if before.is_same_file(&after));
    let known = |file: Option<File>| file.and_then(|(facts, path)| Some((facts, path?)));
    let changed = match (known(before), known(after)) {
        (None, None) => None,
        (None, Some((after, path))) if links != 0 => Some(after.change(ChangeKind::Linked(path, links))),
        (None, Some((after, path))) if is_there => Some(after.change(ChangeKind::Modified(path))),
        (None, Some((after, path))) => Some(after.change(ChangeKind::Added(path))),
        (Some((before, path)), None) if links != 0 => Some(before.change(ChangeKind::Linked(path, links))),
        // No name of it is known now.
        (Some(_), None) if is_there => None,
        // It went before the first state already.
        (Some((before, _)), None) if before.is_unlinked => None,
        (Some((before, path)), None) => Some(before.change(ChangeKind::Removed(path))),
        (Some((before, from)), Some((after, to))) if !before.is_same_file(&after) => {
            let removed = before.change(ChangeKind::Removed(from));
            return (Some(removed), Some(after.change(ChangeKind::Added(to))));
        }
        (Some((before, _)), Some((after, _))) if before.ctime == after.ctime => None,
        (Some((_, from)), Some((after, to))) => Some(after.change(match links {
            1.. => ChangeKind::Linked(from, links),
            ..0 => ChangeKind::Linked(to, links),
            0 if from == to => ChangeKind::Modified(to),
            0 => ChangeKind::Renamed { from, to },
        })),
    };
    (changed, None)
}

/// Hard links that a file got. Links of directories are their subdirectories, and a file that lost its last
/// link is gone.
fn more_links(before: &Facts, after: &Facts) -> i64 {
    let is_directory = |facts: &Facts| facts.file_type() == FileType::Directory;
    match is_directory(before) || is_directory(after) || before.links == 0 || after.links == 0 {
        true => 0,
        false => i64::from(after.links) - i64::from(before.links),
    }
}

impl Side {
    async fn open(objset: &Arc<Objset>) -> Result<Self> {
        let zpl = Zpl::open(objset, ZplOptions::default()).await?;
        let paths = Paths::new(&zpl);
        Ok(Self { zpl, paths })
    }

    async fn facts(&self, id: ObjectId) -> Result<Option<Facts>> {
        let Some(node) = path::file(&self.zpl, id).await? else { return Ok(None) };
        let stat = node.stat()?;
        Ok(Some(Facts {
            mode: stat.mode,
            generation: stat.generation,
            links: stat.nlink,
            ctime: stat.ctime,
            is_unlinked: stat.nlink == 0 && self.zpl.is_unlinked(id).await?,
        }))
    }

    fn file(&self, id: ObjectId, facts: Option<Facts>) -> Result<Option<File>> {
        let Some(facts) = facts else { return Ok(None) };
        let path = if facts.is_unlinked { Some(ON_DELETE_QUEUE.to_vec()) } else { self.paths.path(id)? };
        Ok(Some((facts, path)))
    }
}

impl Diff {
    /// Compares two committed states of a filesystem.
    ///
    /// # Errors
    /// One of them cannot be read, or is no filesystem.
    pub async fn open(before: &Arc<Objset>, after: &Arc<Objset>, limits: PageLimits) -> Result<Self> {
        Ok(Self {
            before: Side::open(before).await?,
            after: Side::open(after).await?,
            objects: DifferingObjects::new(before, after),
            limits,
            page_objects: limits.objects,
            page: VecDeque::new(),
            left: VecDeque::new(),
            second: None,
        })
    }

    /// Looks at the next objects: [`Diff::take`] has what became of them, which may be nothing. False when
    /// there are no more.
    ///
    /// # Errors
    /// The list of objects of one state cannot be read.
    pub async fn advance(&mut self) -> Result<bool> {
        let mut looked_at = 0;
        self.page_objects = (self.page_objects * 2).clamp(1, self.limits.objects.max(1));
        while self.left.len() < self.page_objects && looked_at < self.limits.objects {
            let Some(id) = self.objects.next().await? else { break };
            looked_at += 1;
            if [&self.before, &self.after].iter().any(|side| side.zpl.shares() == Some(id)) {
                continue;
            }
            let pair = match self.before.facts(id).await {
                Ok(before) => self.after.facts(id).await.map(|after| (before, after)),
                Err(error) => Err(error),
            };
            if !pair.as_ref().is_ok_and(is_unchanged) {
                self.left.push_back((id, pair));
            }
        }
        self.find_paths().await;
        Ok(looked_at > 0 || !self.page.is_empty())
    }

    /// Moves as many objects to the page as fit, with their paths.
    async fn find_paths(&mut self) {
        loop {
            let page = self.left.iter().take(self.page_objects);
            let with_names = |of: fn(&Pair) -> Option<Facts>| {
                let is_wanted = move |pair: &Pair| of(pair).is_some_and(|facts| !facts.is_unlinked);
                let wanted = page.clone().filter(move |(_, pair)| pair.as_ref().is_ok_and(is_wanted));
                wanted.map(|(id, _)| *id).collect::<Vec<_>>()
            };
            let (before, after) = (with_names(|pair| pair.0), with_names(|pair| pair.1));
            self.before.paths.clear();
            self.after.paths.clear();
            let most = if self.page_objects > 1 { self.limits.places } else { usize::MAX };
            if self.before.paths.find(before, most).await
                && self.after.paths.find(after, most).await
                && self.find_nameless(most).await
            {
                break;
            }
            self.page_objects /= 2;
        }
        let fitting = self.left.len().min(self.page_objects);
        self.page = self.left.drain(..fitting).collect();
    }

    /// Finds files without a known name on one side under the name that they have on the other one: those of
    /// the page, and those that have attributes of the page. False where more than `most` places are needed.
    async fn find_nameless(&mut self, most: usize) -> bool {
        let nameless = self.before.paths.nameless().chain(self.after.paths.nameless());
        let nameless: BTreeSet<ObjectId> = nameless.collect();
        let mut same = Vec::new();
        for id in nameless {
            // Where one side cannot be read, its place cannot either.
            let is_same = match (self.before.facts(id).await, self.after.facts(id).await) {
                (Ok(before), Ok(after)) => before.zip(after).is_some_and(|(b, a)| b.is_same_file(&a)),
                _ => true,
            };
            if is_same {
                same.push(id);
            }
        }
        self.before.paths.find(same.iter().copied(), most).await
            && self.after.paths.find(same.iter().copied(), most).await
            && self.after.paths.find_as_in(&self.before.paths, &same, most).await
            && self.before.paths.find_as_in(&self.after.paths, &same, most).await
    }

    /// The next result of the last [`Diff::advance`], in the order of object numbers.
    pub fn take(&mut self) -> Option<Difference> {
        if let Some(second) = self.second.take() {
            return Some(Difference::Change(second));
        }
        while let Some((id, pair)) = self.page.pop_front() {
            match self.changes(id, pair) {
                Ok((Some(first), second)) => {
                    self.second = second;
                    return Some(Difference::Change(first));
                }
                Ok((None, _)) => {}
                Err(error) => return Some(Difference::Unreadable(id, error)),
            }
        }
        None
    }

    fn changes(&self, id: ObjectId, pair: Result<Pair>) -> Result<(Option<Change>, Option<Change>)> {
        let (before, after) = pair?;
        Ok(compare(self.before.file(id, before)?, self.after.file(id, after)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: u32 = 0o100_644;
    const DIRECTORY: u32 = 0o040_755;

    /// A file of generation 7.
    fn file(mode: u32, links: u32, ctime: i64, path: Option<&str>) -> Option<File> {
        let ctime = Time { seconds: ctime, nanoseconds: 0 };
        let is_unlinked = path == Some("queue");
        let facts = Facts { mode, generation: 7, links, ctime, is_unlinked };
        let path = path.map(|path| if is_unlinked { ON_DELETE_QUEUE } else { path.as_bytes() }.to_vec());
        Some((facts, path))
    }

    fn other_generation(file: Option<File>) -> Option<File> {
        file.map(|(facts, path)| (Facts { generation: 8, ..facts }, path))
    }

    /// The changes as `zfs diff -t` has them, with seconds only.
    fn changes(before: Option<File>, after: Option<File>) -> String {
        let path = |path: &[u8]| String::from_utf8(path.to_vec()).unwrap();
        let told = |change: Change| match &change.kind {
            ChangeKind::Added(at) => format!("{} + {}", change.ctime.seconds, path(at)),
            ChangeKind::Removed(at) => format!("{} - {}", change.ctime.seconds, path(at)),
            ChangeKind::Modified(at) => format!("{} M {}", change.ctime.seconds, path(at)),
            ChangeKind::Linked(at, links) => format!("{} M {} ({links:+})", change.ctime.seconds, path(at)),
            ChangeKind::Renamed { from, to } => {
                format!("{} R {} {}", change.ctime.seconds, path(from), path(to))
            }
        };
        let (first, second) = compare(before, after);
        [first, second].into_iter().flatten().map(told).collect::<Vec<_>>().join(", ")
    }

    #[test]
    fn a_file_that_one_side_has_was_created_or_removed() {
        assert_eq!(changes(None, file(FILE, 1, 5, Some("/a"))), "5 + /a");
        assert_eq!(changes(file(FILE, 3, 5, Some("/a")), None), "5 - /a");
        assert_eq!(changes(None, None), "");
        let (old, new) = (file(FILE, 1, 5, Some("/a")), file(FILE, 1, 6, Some("/b")));
        assert_eq!(changes(old.clone(), other_generation(new)), "5 - /a, 6 + /b");
        assert_eq!(changes(old, file(DIRECTORY, 2, 5, Some("/a"))), "5 - /a, 5 + /a", "another type");
    }

    #[test]
    fn a_file_that_stays_is_modified_renamed_or_linked() {
        let old = || file(FILE, 2, 5, Some("/a"));
        assert_eq!(changes(old(), old()), "");
        assert_eq!(changes(old(), file(FILE, 2, 5, Some("/b/a"))), "", "a directory above it was renamed");
        assert_eq!(changes(old(), file(FILE, 2, 6, Some("/a"))), "6 M /a");
        assert_eq!(changes(old(), file(FILE, 2, 6, Some("/b"))), "6 R /a /b");
        assert_eq!(changes(old(), file(FILE, 4, 6, Some("/b"))), "6 M /a (+2)");
        assert_eq!(changes(old(), file(FILE, 1, 6, Some("/b"))), "6 M /b (-1)");
        let (old, new) = (file(DIRECTORY, 2, 5, Some("/d")), file(DIRECTORY, 3, 6, Some("/d")));
        assert_eq!(changes(old, new), "6 M /d", "subdirectories are no hard links");
    }

    #[test]
    fn a_file_without_a_path_is_known_by_its_links_only() {
        let nameless = |links, ctime| file(FILE, links, ctime, None);
        assert_eq!(changes(nameless(1, 5), nameless(2, 6)), "");
        assert_eq!(changes(nameless(1, 5), file(FILE, 2, 6, Some("/a"))), "6 M /a (+1)");
        assert_eq!(changes(file(FILE, 2, 5, Some("/a")), nameless(1, 6)), "5 M /a (-1)");
        assert_eq!(changes(nameless(1, 5), file(FILE, 1, 6, Some("/a"))), "6 M /a");
        assert_eq!(changes(file(FILE, 1, 5, Some("/a")), nameless(1, 6)), "", "it is there");
    }

    #[test]
    fn a_file_without_links_is_in_the_queue_until_it_is_freed() {
        let queued = |ctime| file(FILE, 0, ctime, Some("queue"));
        assert_eq!(changes(file(FILE, 1, 5, Some("/a")), queued(6)), "6 R /a (on_delete_queue)");
        assert_eq!(changes(None, queued(6)), "6 + (on_delete_queue)");
        assert_eq!(changes(queued(5), None), "", "it was gone before");
        assert_eq!(changes(queued(5), queued(5)), "");
    }
}
