//! From object numbers to paths.
//!
//! A file knows the directory of its newest name, but not that name: it is the entry of the directory that
//! has the file's number. So a path is found from its end to its beginning, and each step goes through a
//! directory. Where many paths are wanted ([`Paths`]), each directory is gone through once for all of them.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use ondisk::ObjectId;
use ondisk::zpl::{FileType, ZnodeFlags};

use super::{Znode, Zpl};
use crate::dmu::sa::Attr;
use crate::{Error, Result};

/// The deepest path that is followed. Linux limits only the length of a path, to 4096 bytes.
const MAX_DEPTH: usize = 2048;
/// The longest path, in bytes.
const MAX_PATH_BYTES: usize = 64 << 10;
/// The component of a path for the hidden directory of a file's extended attributes.
const XATTR_DIR: &[u8] = b"<xattrdir>";

impl Zpl {
    /// A path of the object `id` from the root of the filesystem, beginning with a slash; of several hard
    /// links the newest one. `None` when it has no name: it was unlinked, or a directory above it does not
    /// list it.
    pub async fn path_of(self: &Arc<Self>, id: ObjectId) -> Result<Option<Vec<u8>>> {
        self.node(id).await?;
        let mut paths = Paths::new(self);
        paths.find([id], usize::MAX).await;
        paths.path(id)
    }
}

/// Paths of many objects of a filesystem.
#[derive(Debug)]
pub(super) struct Paths {
    zpl: Arc<Zpl>,
    places: HashMap<ObjectId, Place>,
}

/// Where an object is.
#[derive(Debug)]
enum Place {
    /// The root of the filesystem.
    Root,
    /// In this directory, or the directory of this file's attributes.
    Below(ObjectId, Vec<u8>),
    /// It has no name.
    Nowhere,
    /// That cannot be read.
    Unreadable(Error),
}

/// What an object itself says about its place.
enum Above {
    /// A directory, which knows the name.
    Directory(ObjectId),
    Known(Place),
}

impl Paths {
    pub fn new(zpl: &Arc<Zpl>) -> Self {
        Self { zpl: Arc::clone(zpl), places: HashMap::new() }
    }

    /// Forgets all places.
    pub fn clear(&mut self) {
        self.places.clear();
    }

    /// Finds the places of objects, and of all directories above them. False if these are more than `most`:
    /// then some places stay unknown.
    pub async fn find(&mut self, objects: impl IntoIterator<Item = ObjectId>, most: usize) -> bool {
        let mut wanted: BTreeSet<ObjectId> = objects.into_iter().collect();
        for _ in 0..=MAX_DEPTH {
            wanted.retain(|id| !self.places.contains_key(id));
            if wanted.is_empty() {
                break;
            }
            if self.places.len().saturating_add(wanted.len()) > most {
                return false;
            }
            let mut directories: BTreeMap<ObjectId, BTreeSet<ObjectId>> = BTreeMap::new();
            let mut above = BTreeSet::new();
            for id in wanted {
                match self.above(id).await {
                    Ok(Above::Directory(parent)) => _ = directories.entry(parent).or_default().insert(id),
                    Ok(Above::Known(place)) => {
                        if let Place::Below(parent, _) = &place {
                            above.insert(*parent);
                        }
                        self.places.insert(id, place);
                    }
                    Err(error) => _ = self.places.insert(id, Place::Unreadable(error)),
                }
            }
            for (directory, mut children) in directories {
                if let Err(error) = self.find_names(directory, &mut children).await {
                    let unreadable = |id| (id, Place::Unreadable(error.clone()));
                    self.places.extend(std::mem::take(&mut children).into_iter().map(unreadable));
                }
                self.places.extend(children.into_iter().map(|id| (id, Place::Nowhere)));
                above.insert(directory);
            }
            wanted = above;
        }
        true
    }

    /// Objects that have no name where they say, those above others included.
    pub fn nameless(&self) -> impl Iterator<Item = ObjectId> {
        self.places.iter().filter(|(_, place)| matches!(place, Place::Nowhere)).map(|(id, _)| *id)
    }

    /// Finds files that have no name where they say, because the newest of their names is gone, under the
    /// names that the same files have in another state. False as for [`Paths::find`].
    pub async fn find_as_in(&mut self, other: &Self, files: &[ObjectId], most: usize) -> bool {
        let mut above = Vec::new();
        for id in files {
            if !matches!(self.places.get(id), Some(Place::Nowhere)) {
                continue;
            }
            let found = match other.places.get(id) {
                Some(Place::Below(directory, name)) => match self.lookup(*directory, name).await {
                    Ok(Some(there)) if there == *id => {
                        above.push(*directory);
                        Place::Below(*directory, name.clone())
                    }
                    Ok(_) => continue,
                    Err(error) => Place::Unreadable(error),
                },
                Some(Place::Unreadable(error)) => Place::Unreadable(error.clone()),
                _ => continue,
            };
            self.places.insert(*id, found);
        }
        self.find(above, most).await
    }

    /// What a directory has under a name.
    async fn lookup(&self, directory: ObjectId, name: &[u8]) -> Result<Option<ObjectId>> {
        let node = file(&self.zpl, directory).await?;
        match node.filter(|node| node.file_type() == FileType::Directory) {
            Some(node) if name != XATTR_DIR => node.lookup(name).await,
            _ => Ok(None),
        }
    }

    /// What an object says about its place.
    async fn above(&self, id: ObjectId) -> Result<Above> {
        if id == self.zpl.root() {
            return Ok(Above::Known(Place::Root));
        }
        let Some(node) = file(&self.zpl, id).await? else { return Ok(Above::Known(Place::Nowhere)) };
        let parent = node.parent()?;
        let flags = ZnodeFlags(node.attributes.required(Attr::Flags)?);
        let is_directory = node.file_type() == FileType::Directory;
        Ok(match is_directory && flags.contains(ZnodeFlags::XATTR) {
            true => Above::Known(Place::Below(parent, XATTR_DIR.to_vec())),
            false => Above::Directory(parent),
        })
    }

    /// Goes through a directory until all `children` are found, and takes away those that are.
    async fn find_names(&mut self, directory: ObjectId, children: &mut BTreeSet<ObjectId>) -> Result<()> {
        let node = file(&self.zpl, directory).await?;
        // The number may be another file's by now.
        let Some(node) = node.filter(|node| node.file_type() == FileType::Directory) else { return Ok(()) };
        // From the first entry after `.` and `..`.
        let mut entries = node.read_dir(2).await?;
        while !children.is_empty()
            && let Some(entry) = entries.next().await?
        {
            if children.remove(&entry.object) {
                self.places.insert(entry.object, Place::Below(directory, entry.name));
            }
        }
        Ok(())
    }

    /// The path of an object whose place was looked for. `None` when it has no name.
    ///
    /// # Errors
    /// A directory or file on the way cannot be read.
    pub fn path(&self, id: ObjectId) -> Result<Option<Vec<u8>>> {
        let (mut at, mut names, mut length) = (id, Vec::new(), 0);
        loop {
            match self.places.get(&at) {
                Some(Place::Root) => break,
                Some(Place::Below(parent, name)) if names.len() < MAX_DEPTH && length < MAX_PATH_BYTES => {
                    names.push(name);
                    length += 1 + name.len();
                    at = *parent;
                }
                Some(Place::Unreadable(error)) => return Err(error.clone()),
                _ => return Ok(None),
            }
        }
        if names.is_empty() {
            return Ok(Some(b"/".to_vec()));
        }
        let mut path = Vec::with_capacity(length);
        for name in names.iter().rev() {
            path.push(b'/');
            path.extend_from_slice(name);
        }
        Ok(Some(path))
    }
}

/// The file with this object number; `None` where there is no object, or one that is no file.
pub(super) async fn file(zpl: &Arc<Zpl>, id: ObjectId) -> Result<Option<Znode>> {
    match zpl.node(id).await {
        Ok(node) => Ok(Some(node)),
        Err(Error::NotFound(_) | Error::WrongType { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}
