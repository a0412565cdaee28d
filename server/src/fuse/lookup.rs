//! Names and attributes: looking them up and reporting them.
//!
//! # How long the kernel may keep them
//! Only the kernel changes a mounted filesystem, and it knows how its own changes affect names, link counts
//! and times: it forgets attributes that its own change made stale, of directories too. So names, also names
//! that do not exist, last as long as the kernel likes. A change from another side (`zfs rollback`) notifies
//! the kernel (`rollback`). The exceptions:
//!
//! - Names of which several spellings name one file (`casesensitivity`, `normalization`): creating one makes
//!   others exist. The kernel asks for them each time.
//! - Allocated space (`st_blocks`) is known when the group is committed. Attributes of a file that changed
//!   lately last a second, and after `zpool sync` the new ones are visible at once.
//! - Snapshots of a pool that is written come and go, and so do their names.

use std::sync::Arc;
use std::time::{Duration, Instant};

use engine::zpl::{LONGEST_NAME, Stat, Time, Zpl};
use engine::{Error, Result};
use fuser::INodeNo;
use ondisk::ObjectId;

use super::attributes::{attributes, synthetic_directory};
use super::listing::DirectoryEntry;
use super::node::{Node, SNAPSHOT_DIR, SNAPSHOT_NAME, Tree, ZFS_DIR, ZFS_NAME};
use super::served::Served;
use super::wire::{self, Attributes};

/// As long as the kernel likes.
pub const FOREVER: Duration = Duration::from_secs(24 * 60 * 60);
/// How long attributes last whose space is not known yet.
const BRIEFLY: Duration = Duration::from_secs(1);
/// Most nodes of which is known that they were told such. Attributes of more are old until they expire.
const MOST_BRIEF: usize = 1 << 14;
/// A change is committed by then.
const LATELY_NS: i128 = 60_000_000_000;

/// The result of a lookup.
#[derive(Debug, Clone, Copy)]
pub struct FoundNode {
    /// The attributes, and the number of the node.
    pub attr: Attributes,
    /// How long the attributes last.
    pub lasts: Duration,
    /// How long the name lasts.
    pub name_lasts: Duration,
    /// The generation.
    pub generation: u64,
}

impl FoundNode {
    /// Nothing is told but that there is nothing, which lasts.
    pub fn nothing(name_lasts: Duration) -> Self {
        Self { attr: Attributes::unknown(INodeNo(0), 0), lasts: FOREVER, name_lasts, generation: 0 }
    }

    /// As the kernel is told it.
    pub fn entry(&self) -> wire::NameAnswer<'_> {
        let Self { attr, lasts, name_lasts, generation } = self;
        wire::NameAnswer { attributes: attr, generation: *generation, name_lasts: *name_lasts, lasts: *lasts }
    }
}

impl Served {
    /// How long names of a directory last.
    pub(super) fn names_last(&self, parent: INodeNo) -> Duration {
        match Node::from_number(parent) {
            Node::SnapshotDir if self.live().is_some() => Duration::ZERO,
            Node::Root | Node::Object(Tree::Head, _)
                if self.live().is_some() && !self.trees.head().name_rules().is_exact() =>
            {
                Duration::ZERO
            }
            _ => FOREVER,
        }
    }

    /// How long attributes of a file last.
    fn attributes_last(&self, tree: Tree, number: INodeNo, attr: &Attributes) -> Duration {
        if tree != Tree::Head || self.live().is_none() {
            return FOREVER;
        }
        let since = Time::now().as_nanoseconds() - attr.ctime.as_nanoseconds();
        if since > LATELY_NS {
            return FOREVER;
        }
        self.note_brief(number);
        BRIEFLY
    }

    /// Attributes of a node were told that do not last.
    fn note_brief(&self, number: INodeNo) {
        let mut brief = self.brief();
        let now = Instant::now();
        if brief.len() >= MOST_BRIEF {
            brief.retain(|_, told| now.duration_since(*told) <= BRIEFLY);
        }
        // Those of more expire by themselves.
        if brief.len() < MOST_BRIEF {
            brief.insert(number, now);
        }
    }

    /// All was committed: lets the kernel forget attributes whose space was not known when they were told.
    /// Not for a thread that answers requests.
    pub fn forget_brief(&self) {
        let brief = std::mem::take(&mut *self.brief());
        let lasting = brief.into_iter().filter(|(_, told)| told.elapsed() <= BRIEFLY);
        lasting.for_each(|(number, _)| self.forget_attributes(number));
    }

    /// The mounted root has one directory more where `.zfs` is listed.
    fn seen(&self, number: INodeNo, attr: Attributes) -> Attributes {
        let is_counted = number.0 == 1 && self.zfs_dir_is_visible();
        Attributes { links: attr.links.saturating_add(u32::from(is_counted)), ..attr }
    }

    fn control_attributes(&self, node: Node) -> Result<Attributes> {
        let root = self.trees.head();
        let like = device::block_on(root.stat(root.root()))?;
        Ok(match node {
            Node::ZfsDir => synthetic_directory(INodeNo(ZFS_DIR), 3, &like, 0o555),
            _ => {
                let snapshots = self.trees.snapshot_names()?.len();
                let links = u32::try_from(snapshots).unwrap_or(u32::MAX).saturating_add(2);
                // Who may take snapshots is not for the kernel to say.
                let mode = if self.takes_snapshots() { 0o777 } else { 0o555 };
                let directory = synthetic_directory(INodeNo(SNAPSHOT_DIR), links, &like, mode);
                // Where there never were snapshots that is the beginning of time.
                let seconds = i64::try_from(self.trees.snapshots_changed()?.unwrap_or(0)).unwrap_or(0);
                let changed = Time { seconds, nanoseconds: 0 };
                Attributes { mtime: changed, ctime: changed, ..directory }
            }
        })
    }

    fn control(&self, parent: INodeNo, node: Node) -> Result<FoundNode> {
        let attr = self.control_attributes(node)?;
        let lasts = if self.live().is_some() { Duration::ZERO } else { FOREVER };
        Ok(FoundNode { attr, lasts, name_lasts: self.names_last(parent), generation: 0 })
    }

    /// The result of a lookup that found an object.
    pub(super) fn told(&self, tree: Tree, object: ObjectId) -> Result<FoundNode> {
        let zpl = device::block_on(self.trees.zpl(tree))?;
        self.told_in(&zpl, tree, object)
    }

    fn told_in(&self, zpl: &Arc<Zpl>, tree: Tree, object: ObjectId) -> Result<FoundNode> {
        let stat = device::block_on(zpl.stat(object))?;
        let number = self.number(tree, object)?;
        let attr = self.seen(number, attributes(number, &stat));
        let lasts = self.attributes_last(tree, number, &attr);
        let generation = self.told_generation(tree, object, stat.generation);
        Ok(FoundNode { attr, lasts, name_lasts: FOREVER, generation })
    }

    /// The object of a name in a directory.
    pub(super) fn find(&self, parent: INodeNo, name: &[u8]) -> Result<Option<FoundNode>> {
        let told = match Node::from_number(parent) {
            Node::ZfsDir => match name {
                SNAPSHOT_NAME => Some(self.control(parent, Node::SnapshotDir)?),
                _ => None,
            },
            Node::SnapshotDir => {
                let place = std::str::from_utf8(name).ok().map(|name| self.trees.snapshot_slot(name));
                let place = place.transpose()?.flatten().map(Tree::Snapshot);
                let root = |tree| {
                    let zpl = device::block_on(self.trees.zpl(tree))?;
                    self.told_in(&zpl, tree, zpl.root())
                };
                place.map(root).transpose()?
            }
            Node::Root if name == ZFS_NAME && self.has_zfs_dir() => Some(self.control(parent, Node::ZfsDir)?),
            // A program with a handle of a file (`open_by_handle_at`, an NFS server), of which the kernel
            // knows no more than the number.
            Node::Root | Node::Object(..) if name == b"." => {
                let (tree, object) = self.object(parent)?;
                let zpl = device::block_on(self.trees.zpl(tree))?;
                match self.told_in(&zpl, tree, object) {
                    Ok(told) if told.attr.links > 0 => Some(told),
                    // It has no name, and is there only until the last who has it open closes it.
                    Ok(_) | Err(Error::NotFound(_)) => None,
                    Err(error) => return Err(error),
                }
            }
            Node::Root | Node::Object(..) => {
                let (tree, dir) = self.object(parent)?;
                let too_long = || {
                    let what = name.escape_ascii().to_string();
                    Err(Error::Os { what, errno: libc::ENAMETOOLONG })
                };
                if name.len() > LONGEST_NAME as usize {
                    return too_long();
                }
                let found = device::block_on(self.trees.lookup(tree, dir, name))?;
                // What has a longer name is from when `longname` was `on`.
                if found.is_none() && name.len() > self.trees.head().max_name() as usize {
                    return too_long();
                }
                found.map(|object| self.told(tree, object)).transpose()?
            }
        };
        Ok(told.map(|told| FoundNode { name_lasts: self.names_last(parent), ..told }))
    }

    /// The attributes of a node, and how long they last.
    pub(super) fn stat(&self, number: INodeNo) -> Result<(Attributes, Duration)> {
        match Node::from_number(number) {
            control @ (Node::ZfsDir | Node::SnapshotDir) => {
                let lasts = if self.live().is_some() { Duration::ZERO } else { FOREVER };
                Ok((self.control_attributes(control)?, lasts))
            }
            Node::Root | Node::Object(..) => {
                let (tree, node) = self.znode(number)?;
                let stat: Stat = node.stat()?;
                // Of the root programs see the object's.
                let shown = if number.0 == 1 { INodeNo(stat.ino) } else { number };
                let attr = self.seen(number, attributes(shown, &stat));
                Ok((attr, self.attributes_last(tree, number, &attr)))
            }
        }
    }

    /// The attributes of an entry in `readdirplus`.
    pub(super) fn told_of(&self, parent: INodeNo, entry: &DirectoryEntry<'_>) -> FoundNode {
        // No node at all: the kernel takes the name and its type, and asks when a program wants more. It
        // would take a node that has the number of a file which it knows, and not the generation, for another
        // file in the place of that one, and answer errors for all who have it open.
        let unknown = || FoundNode {
            attr: Attributes::unknown(INodeNo(0), entry.type_bits),
            lasts: Duration::ZERO,
            name_lasts: Duration::ZERO,
            generation: 0,
        };
        if entry.name == b"." || entry.name == b".." {
            // The kernel takes no more than the name of these.
            return unknown();
        }
        let found = match entry.object {
            Some((tree, object)) => self.told(tree, object).map(Some),
            None => self.find(parent, entry.name),
        };
        let mut told = found.ok().flatten().unwrap_or_else(unknown);
        told.name_lasts = told.name_lasts.min(self.names_last(parent));
        told
    }
}

#[cfg(test)]
mod tests {
    use engine::dsl::Dsl;
    use engine::pool::discovery;
    use engine::pool::import::{ImportOptions, import};
    use engine::properties::Environment;

    use super::*;
    use crate::fuse::mounted_datasets::MountedDatasets;
    use crate::fuse::{MountOptions, Source};

    #[test]
    fn of_an_entry_that_cannot_be_read_only_the_name_and_the_type_are_told() {
        let Some(golden) = testkit::golden::pool("single") else { return };
        let served = device::block_on(async {
            let found = discovery::scan(&[&golden.dir]).await.unwrap();
            let pool = import(&found[0], &ImportOptions::read_only()).await.unwrap();
            let dsl = Dsl::open(&pool).await.unwrap();
            let entry = dsl.entry("single/fs").await.unwrap();
            let properties = dsl.properties(&entry, &Environment::UNMOUNTED).await.unwrap();
            let options = MountOptions::from_properties(&properties);
            let source = Source::Committed(Arc::new(dsl), entry.dataset().unwrap().clone());
            Served::new(MountedDatasets::open(source, &options).await.unwrap(), &options)
        });
        // A snapshot that is gone, and an object that never was.
        for object in [(Tree::Snapshot(1000), ObjectId(7)), (Tree::Head, ObjectId(1 << 40))] {
            let (ino, type_bits) = (7, libc::S_IFREG);
            let entry = DirectoryEntry { name: b"name", ino, type_bits, cookie: 5, object: Some(object) };
            let told = served.told_of(INodeNo(1), &entry);
            assert_eq!((told.attr.number, told.attr.mode & libc::S_IFMT), (INodeNo(0), libc::S_IFREG));
            let mut bytes = [0; 256];
            let mut room = wire::Room::new(&mut bytes);
            assert!(room.push_entry(&told.entry(), entry.ino, entry.cookie, entry.name));
            let length = room.end().unwrap();
            // The node comes first, and the name last, behind its number and cookie.
            assert_eq!(bytes[..8], 0u64.to_ne_bytes());
            let name_at = length - 8 - 24;
            assert_eq!(bytes[name_at..name_at + 8], 7u64.to_ne_bytes());
        }
    }
}
