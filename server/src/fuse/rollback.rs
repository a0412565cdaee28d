//! Replacing the filesystem behind a mount that stays: `zfs rollback`.
//!
//! # Files that continue, and stale files
//! The kernel knows files by number. A file that both trees have (the same number and generation) continues
//! with its new contents; programs that have it open, work in it or mapped it notice only that. A file that
//! is gone is *stale*, also if another file has its number now: requests for it get `ESTALE`, until the
//! kernel has learned of the new file of that number, which it distinguishes by the generation. A directory
//! that was removed and comes back is a new directory for the kernel too, which lists nothing in a directory
//! that it saw removed: it is reported with another generation. The root is the mount's, and continues in any
//! case: a stream may bring a filesystem with another one.
//!
//! # What the kernel must forget
//! The kernel keeps names, attributes and pages as long as it likes. So it is notified of each object that
//! differs between the trees, and of each directory entry that names another object. Both are found in
//! [`Difference`], in a time that depends on the number of changes. Pages that programs mapped and changed
//! are written back before the exchange. Changes of such pages after that, and before the kernel has
//! forgotten the file, are dropped: they belong to a file that is gone.
//!
//! The kernel is notified after the filesystem is thawed, and by a thread that answers no requests: to forget
//! a page the kernel may have to wait for an answer.

use std::collections::{BTreeMap, HashSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use engine::Result;
use engine::dmu::{Objset, differing_objects};
use engine::zpl::{Stat, Znode, Zpl};
use fuser::INodeNo;
use ondisk::ObjectId;
use ondisk::zpl::FileType;

use super::node::{Node, Tree};
use super::notifier::Notifier;

/// The differences between two states of one filesystem.
#[derive(Debug, Default)]
pub struct Difference {
    /// Files that differ, or that one tree has only.
    files: Vec<ObjectId>,
    /// Files that the second tree does not have, though another one may have the number.
    gone: HashSet<ObjectId>,
    /// Directories among these that only the kernel takes for others: it saw them removed.
    reborn: HashSet<ObjectId>,
    /// Names that name something else, or that one tree has only, and in which directory.
    names: Vec<(ObjectId, Vec<u8>)>,
    root: Option<ObjectId>,
}

impl Difference {
    /// Compares two committed states.
    ///
    /// # Errors
    /// One of them cannot be read.
    pub async fn between(before: &Arc<Objset>, after: &Arc<Objset>) -> Result<Self> {
        let mut difference = Self::default();
        let objects = differing_objects(before, after).await?;
        let before = Zpl::open(before, Default::default()).await?;
        let after = Zpl::open(after, Default::default()).await?;
        difference.root = Some(after.root());
        let roots = [before.root(), after.root()];
        let removed: HashSet<ObjectId> = before.unlinked().await?.into_iter().collect();
        let mut directories = Vec::new();
        for id in objects {
            // What is no file has no name, and the kernel does not know it.
            let (old, new) = (before.node(id).await.ok(), after.node(id).await.ok());
            let stats = (old.as_ref().map(|old| old.stat()), new.as_ref().map(|new| new.stat()));
            let (old_stat, new_stat) = (stats.0.transpose()?, stats.1.transpose()?);
            if old_stat.is_none() && new_stat.is_none() {
                continue;
            }
            difference.files.push(id);
            let generation = |stat: &Stat| stat.generation;
            match (old_stat.as_ref().map(generation), new_stat.as_ref().map(generation)) {
                _ if roots.contains(&id) => {}
                (Some(old), new) if new != Some(old) => {
                    difference.gone.insert(id);
                }
                (Some(_), _) if removed.contains(&id) && is_directory(new.as_ref()) => {
                    difference.gone.insert(id);
                    difference.reborn.insert(id);
                }
                _ if is_directory(old.as_ref()) || is_directory(new.as_ref()) => {
                    directories.push((id, entries(old.as_ref()).await?, entries(new.as_ref()).await?));
                }
                _ => {}
            }
        }
        if roots[0] != roots[1] || difference.files.contains(&roots[1]) {
            let (old, new) = (before.node(roots[0]).await?, after.node(roots[1]).await?);
            directories.push((roots[1], entries(Some(&old)).await?, entries(Some(&new)).await?));
        }
        for (id, old, new) in directories {
            for (name, object) in &old {
                if new.get(name) != Some(object) || difference.gone.contains(object) {
                    difference.names.push((id, name.clone()));
                }
            }
            let added = new.into_keys().filter(|name| !old.contains_key(name));
            difference.names.extend(added.map(|name| (id, name)));
        }
        Ok(difference)
    }

    /// Files that are stale.
    pub(super) fn gone(&self) -> &HashSet<ObjectId> {
        &self.gone
    }

    /// Those of them that are there under the same number, and of which the kernel is to be told anew.
    pub(super) fn reborn(&self) -> &HashSet<ObjectId> {
        &self.reborn
    }

    /// Has the kernel forget what it knew of the tree before. Not for threads that answer requests.
    pub(super) fn tell(&self, notifier: &Notifier) {
        let number = |object: ObjectId| match Some(object) == self.root {
            true => Some(INodeNo(1)),
            false => Node::number_of(Tree::Head, object),
        };
        let note = |told: std::io::Result<()>| match told {
            // It does not know it.
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => {}
            Err(error) => tracing::warn!(%error, "the kernel keeps cached data from before a rollback"),
            Ok(()) => {}
        };
        for (directory, name) in &self.names {
            if let Some(parent) = number(*directory) {
                note(notifier.inval_entry(parent, OsStr::from_bytes(name)));
            }
        }
        for number in self.files.iter().filter_map(|object| number(*object)) {
            note(notifier.inval_inode(number, 0, 0));
        }
    }
}

fn is_directory(node: Option<&Znode>) -> bool {
    node.is_some_and(|node| node.file_type() == FileType::Directory)
}

/// The names in a directory; none of anything else.
async fn entries(node: Option<&Znode>) -> Result<BTreeMap<Vec<u8>, ObjectId>> {
    let mut entries = BTreeMap::new();
    if let Some(directory) = node.filter(|node| is_directory(Some(*node))) {
        // Behind `.` and `..`.
        let mut cursor = directory.read_dir(2).await?;
        while let Some(entry) = cursor.next().await? {
            entries.insert(entry.name, entry.object);
        }
    }
    Ok(entries)
}

/// Has the kernel ask for the sizes of files: it appends where it believes that a file ends.
pub(super) fn look_again(at: &Path, zpl: &Arc<Zpl>, files: impl Iterator<Item = ObjectId>) {
    for file in files {
        if let Ok(Some(path)) = device::block_on(zpl.path_of(file)) {
            let path = path.strip_prefix(b"/").unwrap_or(&path);
            // One that is not found there is behind another mount.
            let _ = at.join(OsStr::from_bytes(path)).symlink_metadata();
        }
    }
}
