//! What `zfs diff -FHt` prints, by a second way: all objects and directories of both states are read, and
//! each object is compared in the order of OpenZFS's program. Tests of other crates take this file along.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use engine::dmu::{Objset, zap};
use engine::zpl::diff::{Change, ChangeKind, Diff, Difference, PageLimits};
use engine::zpl::{Stat, Zpl, ZplOptions};
use ondisk::ObjectId;
use ondisk::zpl::{FileType, MASTER_NODE, ZnodeFlags, master};

/// All files of a state.
#[derive(Debug)]
pub struct State {
    files: BTreeMap<ObjectId, Stat>,
    unlinked: HashSet<ObjectId>,
    root: ObjectId,
    /// Names of objects in directories.
    names: HashMap<(ObjectId, ObjectId), Vec<u8>>,
    entries: HashMap<(ObjectId, Vec<u8>), ObjectId>,
    shares: Option<u64>,
}

/// A file of a state, with its path.
type Named = (Stat, Option<Vec<u8>>);

impl State {
    pub async fn of(objset: &Arc<Objset>) -> Self {
        let zpl = Zpl::open(objset, ZplOptions::default()).await.unwrap();
        let master_node = objset.object(MASTER_NODE).await.unwrap();
        let shares = zap::lookup_u64(&master_node, master::SHARES).await.unwrap();
        let (mut files, mut names, mut all) = (BTreeMap::new(), HashMap::new(), HashMap::new());
        let mut next = ObjectId(1);
        while let Some(id) = objset.next_object(next).await.unwrap() {
            next = ObjectId(id.0 + 1);
            let node = match zpl.node(id).await {
                Ok(node) => node,
                Err(engine::Error::WrongType { .. }) => continue,
                Err(error) => panic!("{error}"),
            };
            files.insert(id, node.stat().unwrap());
            if node.file_type() == FileType::Directory {
                let mut entries = node.read_dir(2).await.unwrap();
                while let Some(entry) = entries.next().await.unwrap() {
                    all.insert((id, entry.name.clone()), entry.object);
                    names.entry((id, entry.object)).or_insert(entry.name);
                }
            }
        }
        let unlinked = zpl.unlinked().await.unwrap().into_iter().collect();
        Self { files, unlinked, root: zpl.root(), names, entries: all, shares }
    }

    /// Where a file says that it is.
    fn place(&self, id: ObjectId) -> Option<(ObjectId, Vec<u8>)> {
        let stat = self.files.get(&id)?;
        let parent = ObjectId(stat.parent);
        let of_parent = self.files.get(&parent)?;
        let name = match is_directory(stat) && stat.flags.contains(ZnodeFlags::XATTR) {
            true => b"<xattrdir>".to_vec(),
            false if is_directory(of_parent) => self.names.get(&(parent, id))?.clone(),
            false => return None,
        };
        Some((parent, name))
    }

    /// The place that a file has in another state, where it still is.
    fn place_in(&self, id: ObjectId, other: &State) -> Option<(ObjectId, Vec<u8>)> {
        let is_same = is_same_file(self.files.get(&id)?, other.files.get(&id)?);
        let place = other.place(id).filter(|_| is_same)?;
        (self.entries.get(&place) == Some(&id)).then_some(place)
    }

    /// A file with its path; files may still have the names that they have in another state.
    fn file(&self, id: ObjectId, other: Option<&State>) -> Option<Named> {
        let stat = self.files.get(&id)?;
        if self.unlinked.contains(&id) {
            return Some((*stat, Some(b"(on_delete_queue)".to_vec())));
        }
        let (mut at, mut path) = (id, Vec::new());
        while at != self.root {
            let place = self.place(at).or_else(|| self.place_in(at, other?));
            let Some((parent, name)) = place else { return Some((*stat, None)) };
            path = [b"/", &name[..], &path].concat();
            at = parent;
        }
        Some((*stat, Some(if path.is_empty() { b"/".to_vec() } else { path })))
    }
}

fn is_directory(stat: &Stat) -> bool {
    FileType::from_mode(stat.mode) == FileType::Directory
}

fn is_same_file(one: &Stat, other: &Stat) -> bool {
    one.generation == other.generation && one.mode >> 12 == other.mode >> 12
}

/// A line of the output.
fn line(sign: &str, stat: &Stat, paths: &[&[u8]], prefix: &str, end: &str) -> String {
    let kind = match FileType::from_mode(stat.mode) {
        FileType::Fifo => "|",
        FileType::CharDevice => "C",
        FileType::Directory => "/",
        FileType::BlockDevice => "B",
        FileType::Regular => "F",
        FileType::Symlink => "@",
        FileType::Socket => "=",
        FileType::Other(_) => "?",
    };
    let shown = |path: &&[u8]| {
        let mut text = prefix.to_owned();
        for byte in *path {
            match byte {
                b'!'..=b'[' | b']'..=b'~' => text.push(char::from(*byte)),
                other => text += &format!("\\{other:04o}"),
            }
        }
        text
    };
    let paths = paths.iter().map(shown).collect::<Vec<_>>().join("\t");
    format!("{:>10}.{:09}\t{sign}\t{kind}\t{paths}{end}", stat.ctime.seconds, stat.ctime.nanoseconds)
}

/// The lines for two states. OpenZFS's do not look for the names of files that lost the newest one of their
/// links (`finds_names`), and take these files for absent.
pub fn expected(before: &State, after: &State, prefix: &str, finds_names: bool) -> Vec<String> {
    let mut lines = Vec::new();
    let ids: BTreeSet<ObjectId> = before.files.keys().chain(after.files.keys()).copied().collect();
    for id in ids {
        if [before.shares, after.shares].contains(&Some(id.0)) {
            continue;
        }
        let from = before.file(id, finds_names.then_some(after));
        let to = after.file(id, finds_names.then_some(before));
        let (from, to) = (from.as_ref(), to.as_ref());
        let is_directory = |file: Option<&Named>| file.is_some_and(|(stat, _)| is_directory(stat));
        let links = |file: Option<&Named>| file.map_or(0, |(stat, _)| i64::from(stat.nlink));
        let change = match is_directory(from) || is_directory(to) || links(from) == 0 || links(to) == 0 {
            true => 0,
            false => links(to) - links(from),
        };
        let modified = |stat: &Stat, path: &[u8]| {
            let end = if change == 0 { String::new() } else { format!("\t({change:+})") };
            line("M", stat, &[path], prefix, &end)
        };
        let is_unchanged =
            |(old, _): &Named, (new, _): &Named| is_same_file(old, new) && old.ctime == new.ctime;
        // Attributes of a file that was removed while it is open: OpenZFS lists some of them as removed.
        if from.zip(to).is_some_and(|(from, to)| is_unchanged(from, to)) {
            continue;
        }
        let is_there = finds_names && from.zip(to).is_some_and(|((old, _), (new, _))| is_same_file(old, new));
        let is_queued = |path: &[u8]| path.starts_with(b"(");
        let named = |file: Option<&Named>| file.and_then(|(stat, path)| Some((*stat, path.clone()?)));
        match (named(from), named(to)) {
            (None, None) => {}
            (None, Some((stat, path))) if change != 0 => lines.push(modified(&stat, &path)),
            (None, Some((stat, path))) if is_there => lines.push(modified(&stat, &path)),
            (None, Some((stat, path))) => lines.push(line("+", &stat, &[&path], prefix, "")),
            (Some((stat, path)), None) if change != 0 => lines.push(modified(&stat, &path)),
            (Some(_), None) if is_there => {}
            (Some((_, path)), None) if is_queued(&path) => {}
            (Some((stat, path)), None) => lines.push(line("-", &stat, &[&path], prefix, "")),
            (Some((old, from)), Some((new, to))) => {
                if !is_same_file(&old, &new) {
                    lines.push(line("-", &old, &[&from], prefix, ""));
                    lines.push(line("+", &new, &[&to], prefix, ""));
                } else if old.ctime != new.ctime {
                    lines.push(match from == to || change != 0 {
                        true => modified(&new, if change > 0 { &from } else { &to }),
                        false => line("R", &new, &[&from, &to], prefix, ""),
                    });
                }
            }
        }
    }
    lines
}

/// The lines for what the engine found.
pub async fn found(
    before: &Arc<Objset>,
    after: &Arc<Objset>,
    limits: PageLimits,
    prefix: &str,
) -> Vec<String> {
    let mut diff = Diff::open(before, after, limits).await.unwrap();
    let mut lines = Vec::new();
    while diff.advance().await.unwrap() {
        while let Some(difference) = diff.take() {
            match difference {
                Difference::Change(change) => lines.push(line_of(&change, prefix)),
                Difference::Unreadable(object, error) => panic!("object {object}: {error}"),
            }
        }
    }
    lines
}

fn line_of(change: &Change, prefix: &str) -> String {
    let at = |sign: &str, paths: &[&[u8]], end: &str| {
        let shown = Stat { mode: change.mode, ctime: change.ctime, ..NO_STAT };
        line(sign, &shown, paths, prefix, end)
    };
    match &change.kind {
        ChangeKind::Added(path) => at("+", &[path], ""),
        ChangeKind::Removed(path) => at("-", &[path], ""),
        ChangeKind::Modified(path) => at("M", &[path], ""),
        ChangeKind::Linked(path, links) => at("M", &[path], &format!("\t({links:+})")),
        ChangeKind::Renamed { from, to } => at("R", &[from, to], ""),
    }
}

const NO_TIME: engine::zpl::Time = engine::zpl::Time { seconds: 0, nanoseconds: 0 };
const NO_STAT: Stat = Stat {
    ino: 0,
    generation: 0,
    mode: 0,
    uid: 0,
    gid: 0,
    project: 0,
    nlink: 0,
    size: 0,
    blocks: 0,
    block_size: 0,
    device: (0, 0),
    atime: NO_TIME,
    mtime: NO_TIME,
    ctime: NO_TIME,
    crtime: NO_TIME,
    flags: ZnodeFlags(0),
    parent: 0,
};

/// Compares two states by both ways, in pages of several sizes. Tells the lines.
pub async fn agree(before: &Arc<Objset>, after: &Arc<Objset>, what: &str) -> Vec<String> {
    let wanted = expected(&State::of(before).await, &State::of(after).await, "/m", true);
    let small: &[(usize, usize)] = match wanted.len() {
        0..300 => &[(7, 5), (1, 1), (64, 9)],
        // Each page goes through its directories.
        _ => &[(200, 150)],
    };
    for &(objects, places) in small.iter().chain(&[(8192, 1 << 18)]) {
        let found = found(before, after, PageLimits { objects, places }, "/m").await;
        assert_eq!(found, wanted, "{what}, pages of {objects} objects and {places} places");
    }
    wanted
}
