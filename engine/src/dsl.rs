//! DSL directories and datasets: names, snapshots, clones, bookmarks, holds.
//!
//! Everything that a pool holds for people hangs in one tree of *directories*, objects of the MOS that name
//! their children in a ZAP. A directory owns what a name owns: its place in the tree, space accounting,
//! quota, properties, the encryption key. Its contents are *datasets*: one head, which is the filesystem or
//! volume itself, and a chain of snapshots behind it, each pointing to the one before. A dataset points to
//! the root block of an object set. A clone's directory names the snapshot it came from as its origin; where
//! pools have the hidden directory `$ORIGIN`, its empty snapshot is the origin of everything that is not a
//! clone. Hidden directories have a `$` in their names, unfinished receives a `%`.
//!
//! [`Dsl`] reads the tree of a pool as of one committed group, so that nothing of it changes while it is
//! held: a [`Dir`] or [`Dataset`] once read stays true. A pool that is written has a [`DslPool`] beside that,
//! whose tree is changed by [`SyncTask`]s ([`edit`]). No module here knows the layer of pools above.
//!
//! | module | what it owns |
//! |---|---|
//! | `walk`, `mos`, `space`, `deadlist` | reading the tree: names, fields, what is used and available |
//! | `properties`, [`keys`] | values of properties; keys of encrypted datasets |
//! | [`history`], [`pool_features`], [`pool_space`] | what the MOS says of the pool itself |
//! | `pool`, `live_dataset` | the datasets of a pool that is written, and those that are open |
//! | [`delegation`] | who may do what with datasets (`zfs allow`) |
//! | `sync_task`, [`edit`] | changes |
//! | `reshape` | what marks volumes that are being given another block size |
//! | `lineage` | changes of who follows whom, for walks over datasets |
//! | `space_check` | room for data and for changes |
//!
//! Nothing is cached but what the ARC caches; every walk is bounded by the length of names, and chains that
//! bytes from a disk could close to a loop by a count. Source of the facts: OpenZFS 2.3 `dsl_dir.c`,
//! `dsl_dataset.c`, `dsl_pool.c`, `dsl_bookmark.c`.

mod deadlist;
pub mod delegation;
pub mod edit;
pub mod history;
pub mod keys;
mod lineage;
mod live_dataset;
mod mos;
mod pool;
pub mod pool_features;
pub mod pool_space;
mod properties;
pub(crate) mod reshape;
mod space;
mod space_check;
mod sync_task;
mod walk;

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use ondisk::bookmark::BookmarkPhys;
use ondisk::dsl_dataset::{self, DslDatasetPhys};
use ondisk::dsl_dir::{self, DslDirPhys};
use ondisk::features::Feature;
use ondisk::holds::{DatasetName, Part};
use ondisk::pool_directory::{self, hidden_dir};
use ondisk::{ObjectId, ObjsetId};

use crate::Pool;
use crate::dmu::Objset;
use crate::error::{Error, Result};

pub use lineage::Lineage;
pub use live_dataset::{LiveDataset, Settings};
pub(crate) use mos::{Mos, ValueExt, zap_value};
pub use pool::DslPool;
pub(crate) use pool::Opened;
use pool_space::PoolSpace;
pub use properties::Wanted;
pub(crate) use space::Since;
pub use space_check::{DatasetRoom, Level, Spare, with_room};
pub use sync_task::{Asker, SyncTask};
pub use walk::{Entry, Kind, Walk, is_hidden, order, order_of};

/// The deepest that names can nest: a name is at most 255 bytes.
const MAX_DEPTH: usize = 128;

/// How many snapshots may be looked at for the oldest one.
const MAX_TRIES: usize = 64;

/// The datasets of an open pool.
#[derive(Debug)]
pub struct Dsl {
    mos: Mos,
    root: Arc<Dir>,
    /// The empty snapshot of `$ORIGIN`, which everything that is no clone has for its origin.
    origin_snapshot: Option<ObjectId>,
    space: OnceLock<PoolSpace>,
}

/// A DSL directory: what belongs to a name.
#[derive(Debug)]
pub struct Dir {
    /// Object in the MOS.
    pub object: ObjectId,
    /// Full name, from the pool's on.
    pub name: String,
    /// What is on disk.
    pub phys: DslDirPhys,
    /// The directory that names this one; none for the pool's root.
    pub parent: Option<Arc<Dir>>,
    /// Whether the object is a ZAP too, with fields beyond those of `phys`.
    pub(crate) zapified: bool,
}

impl Dir {
    /// Whether the pool has it for itself (`$MOS`, `$ORIGIN`, `$FREE`, `$LEAK`): it is no user's dataset. All
    /// heads that are not clones have the snapshot of `$ORIGIN` as their origin.
    pub fn is_internal(&self) -> bool {
        let last = self.name.rsplit('/').next().unwrap_or_default();
        hidden_dir::is_hidden(last.as_bytes())
    }
}

/// A head or snapshot.
#[derive(Debug, Clone)]
pub struct Dataset {
    /// Object in the MOS; the number of its object set.
    pub object: ObjectId,
    /// Full name: `pool/fs` or `pool/fs@snapshot`.
    pub name: String,
    /// Its directory.
    pub dir: Arc<Dir>,
    /// What is on disk.
    pub phys: DslDatasetPhys,
    /// Whether the object is a ZAP too, with fields beyond those of `phys`.
    pub(crate) zapified: bool,
}

impl Dataset {
    /// The number under which its blocks are read.
    pub fn objset_id(&self) -> ObjsetId {
        ObjsetId(self.object.get())
    }

    /// Whether this is a snapshot.
    pub fn is_snapshot(&self) -> bool {
        self.phys.is_snapshot()
    }

    /// Whether a receive into it never finished.
    pub fn is_inconsistent(&self) -> bool {
        self.phys.has(dsl_dataset::FLAG_INCONSISTENT)
    }
}

/// A bookmark: the place of a snapshot in time.
#[derive(Debug, Clone)]
pub struct DatasetBookmark {
    /// Full name: `pool/fs#mark`.
    pub name: String,
    /// What is on disk.
    pub phys: BookmarkPhys,
}

/// A user's hold on a snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hold {
    /// Tag.
    pub tag: String,
    /// Time of the hold, seconds since 1970.
    pub time: u64,
}

/// What a name of a dataset leads to.
#[derive(Debug, Clone)]
pub enum Found {
    /// A filesystem, volume or snapshot.
    Dataset(Box<Dataset>),
    /// A bookmark.
    Bookmark(DatasetBookmark),
}

impl Dsl {
    /// Opens the tree of datasets of `pool`.
    pub async fn open(pool: &Arc<Pool>) -> Result<Dsl> {
        Self::of(Mos::open(pool).await?).await
    }

    /// The tree of datasets as an open meta object set shows it: with [`crate::dmu::LiveObjset::view`], that
    /// of a pool being written.
    pub async fn open_in(mos: Arc<Objset>) -> Result<Dsl> {
        Self::of(Mos::of(mos)).await
    }

    async fn of(mos: Mos) -> Result<Dsl> {
        let pool = Arc::clone(mos.pool());
        let root_object = mos
            .u64(pool_directory::DIRECTORY_OBJECT, pool_directory::ROOT_DATASET)
            .await?
            .ok_or_else(|| Error::corrupt(pool.name(), "its directory names no root dataset"))?;
        let root = Arc::new(mos.dir(ObjectId(root_object), pool.name().to_owned(), None).await?);
        let mut dsl = Dsl { mos, root, origin_snapshot: None, space: OnceLock::new() };
        if let Some(origin) = dsl.child(&dsl.root, hidden_dir::ORIGIN).await? {
            let head = dsl.head(&origin).await?;
            dsl.origin_snapshot = Some(head.phys.prev_snap).filter(|snapshot| !snapshot.is_none());
        }
        Ok(dsl)
    }

    /// The pool.
    pub fn pool(&self) -> &Arc<Pool> {
        self.mos.pool()
    }

    /// The pool's root directory.
    pub fn root(&self) -> &Arc<Dir> {
        &self.root
    }

    pub(crate) fn mos(&self) -> &Mos {
        &self.mos
    }

    pub(crate) fn origin_snapshot(&self) -> Option<ObjectId> {
        self.origin_snapshot
    }

    /// The child `name` of a directory.
    pub async fn child(&self, dir: &Arc<Dir>, name: &str) -> Result<Option<Arc<Dir>>> {
        if dir.phys.child_dir_zap.is_none() {
            return Ok(None);
        }
        match self.mos.u64(dir.phys.child_dir_zap, name).await? {
            Some(object) => Ok(Some(self.open_child(dir, name, ObjectId(object)).await?)),
            None => Ok(None),
        }
    }

    /// The children of a directory, unfinished ones (`%recv`) too, by name. Not the pool's own (`$ORIGIN`,
    /// `$MOS` …), which are no user's datasets: see [`Self::all_children`].
    pub async fn children(&self, dir: &Arc<Dir>) -> Result<Vec<Arc<Dir>>> {
        let mut children = self.all_children(dir).await?;
        children.retain(|child| !child.is_internal());
        Ok(children)
    }

    /// All children of a directory, those that the pool has for itself too, by name. Nothing that changes
    /// datasets may go by this.
    pub async fn all_children(&self, dir: &Arc<Dir>) -> Result<Vec<Arc<Dir>>> {
        let mut children = self.children_as_kept(dir).await?;
        children.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(children)
    }

    /// The same in the order in which the pool keeps them, which is OpenZFS's.
    pub(crate) async fn children_as_kept(&self, dir: &Arc<Dir>) -> Result<Vec<Arc<Dir>>> {
        let mut children = Vec::new();
        if !dir.phys.child_dir_zap.is_none() {
            for (name, object) in self.mos.u64_entries(dir.phys.child_dir_zap).await? {
                children.push(self.open_child(dir, &name, ObjectId(object)).await?);
            }
        }
        Ok(children)
    }

    async fn open_child(&self, dir: &Arc<Dir>, name: &str, object: ObjectId) -> Result<Arc<Dir>> {
        let full = format!("{}/{name}", dir.name);
        let depth = std::iter::successors(Some(dir), |dir| dir.parent.as_ref()).take(MAX_DEPTH).count();
        if depth == MAX_DEPTH {
            return Err(Error::corrupt(full, "directories nest too deep"));
        }
        check_component(&full, name)?;
        let child = self.mos.dir(object, full, Some(Arc::clone(dir))).await?;
        if child.phys.parent != dir.object {
            return Err(Error::corrupt(
                &child.name,
                "its parent is another directory than the one that names it",
            ));
        }
        Ok(Arc::new(child))
    }

    /// The head of a directory: the filesystem or volume itself.
    pub async fn head(&self, dir: &Arc<Dir>) -> Result<Dataset> {
        if dir.phys.head_dataset.is_none() {
            return Err(Error::NotFound(dir.name.clone()));
        }
        let head = self.mos.dataset(dir.phys.head_dataset, dir.name.clone(), dir).await?;
        if head.is_snapshot() {
            return Err(Error::corrupt(&dir.name, "its head is a snapshot"));
        }
        Ok(head)
    }

    /// The directory called `name`.
    pub async fn find_dir(&self, name: &str) -> Result<Arc<Dir>> {
        let missing = || Error::NotFound(name.to_owned());
        let parsed = DatasetName::parse(name).filter(|parsed| parsed.part == Part::Head);
        let parsed = parsed.ok_or_else(|| Error::Invalid(format!("'{name}': not a dataset's name")))?;
        let mut components = parsed.dataset.split('/');
        if components.next() != Some(self.root.name.as_str()) {
            return Err(missing());
        }
        let mut dir = Arc::clone(&self.root);
        for component in components {
            dir = self.child(&dir, component).await?.ok_or_else(missing)?;
        }
        Ok(dir)
    }

    /// The filesystem, volume, snapshot or bookmark called `name`.
    pub async fn lookup(&self, name: &str) -> Result<Found> {
        let parsed = DatasetName::parse(name);
        let parsed = parsed.ok_or_else(|| Error::Invalid(format!("'{name}': not a dataset's name")))?;
        let dir = self.find_dir(parsed.dataset).await?;
        let head = self.head(&dir).await?;
        let found = match parsed.part {
            Part::Head => Some(Found::Dataset(Box::new(head))),
            Part::Snapshot(snapshot) => {
                self.snapshot(&head, snapshot).await?.map(Box::new).map(Found::Dataset)
            }
            Part::Bookmark(mark) => self.bookmark(&head, mark).await?.map(Found::Bookmark),
        };
        found.ok_or_else(|| Error::NotFound(name.to_owned()))
    }

    /// The filesystem, volume or snapshot called `name`.
    pub async fn find(&self, name: &str) -> Result<Dataset> {
        match self.lookup(name).await? {
            Found::Dataset(dataset) => Ok(*dataset),
            Found::Bookmark(_) => Err(Error::WrongType {
                what: name.to_owned(),
                detail: "is a bookmark, and a filesystem, volume or snapshot is needed".to_owned(),
            }),
        }
    }

    /// The snapshot `name` of `head`.
    pub async fn snapshot(&self, head: &Dataset, name: &str) -> Result<Option<Dataset>> {
        if head.phys.snapnames_zap.is_none() {
            return Ok(None);
        }
        let entry = if head.phys.has(dsl_dataset::FLAG_CI_DATASET) {
            let entries = self.mos.u64_entries(head.phys.snapnames_zap).await?;
            entries.into_iter().find(|(stored, _)| stored.to_lowercase() == name.to_lowercase())
        } else {
            self.mos.u64(head.phys.snapnames_zap, name).await?.map(|object| (name.to_owned(), object))
        };
        match entry {
            Some((stored, object)) => Ok(Some(self.open_snapshot(head, &stored, ObjectId(object)).await?)),
            None => Ok(None),
        }
    }

    async fn open_snapshot(&self, head: &Dataset, name: &str, object: ObjectId) -> Result<Dataset> {
        let full = format!("{}@{name}", head.dir.name);
        check_component(&full, name)?;
        let snapshot = self.mos.dataset(object, full, &head.dir).await?;
        if !snapshot.is_snapshot() {
            return Err(Error::corrupt(snapshot.name, "is named as a snapshot but is none"));
        }
        Ok(snapshot)
    }

    /// The snapshots of `head`, oldest first.
    pub async fn snapshots(&self, head: &Dataset) -> Result<Vec<Dataset>> {
        let mut snapshots = Vec::new();
        if !head.phys.snapnames_zap.is_none() {
            for (name, object) in self.mos.u64_entries(head.phys.snapnames_zap).await? {
                snapshots.push(self.open_snapshot(head, &name, ObjectId(object)).await?);
            }
        }
        snapshots.sort_by(|a, b| (a.phys.creation_txg, &a.name).cmp(&(b.phys.creation_txg, &b.name)));
        Ok(snapshots)
    }

    /// Up to `limit` snapshots of `head` that follow the one called `after`, in the order of time or against
    /// it. Only these are read, along the chain. `None` where their place cannot be found without all others.
    pub async fn some_snapshots(
        &self,
        head: &Dataset,
        after: Option<&str>,
        newest_first: bool,
        limit: usize,
    ) -> Result<Option<Vec<Dataset>>> {
        if head.phys.snapnames_zap.is_none() {
            return Ok(Some(Vec::new()));
        }
        let entries = self.mos.u64_entries(head.phys.snapnames_zap).await?;
        let names: HashMap<u64, &str> =
            entries.iter().map(|(name, object)| (*object, name.as_str())).collect();
        let next = |of: &Dataset| if newest_first { of.phys.prev_snap } else { of.phys.next_snap };
        let mut at = match after {
            Some(after) => match self.snapshot(head, after).await? {
                Some(snapshot) => next(&snapshot),
                None => return Ok(None),
            },
            None if newest_first => head.phys.prev_snap,
            None => match self.oldest_snapshot(head, &names).await? {
                Some(oldest) => oldest,
                None => return Ok(names.is_empty().then(Vec::new)),
            },
        };
        let mut found = Vec::new();
        while found.len() < limit
            && let Some(name) = names.get(&at.get())
        {
            if found.len() > names.len() {
                return Err(Error::corrupt(&head.name, "its snapshots form a loop"));
            }
            let snapshot = self.open_snapshot(head, name, at).await?;
            at = next(&snapshot);
            found.push(snapshot);
        }
        Ok(Some(found))
    }

    /// The snapshot of `head` before which there is none of it, if that is one of those that were made as the
    /// first objects.
    async fn oldest_snapshot(&self, head: &Dataset, names: &HashMap<u64, &str>) -> Result<Option<ObjectId>> {
        let mut objects: Vec<u64> = names.keys().copied().collect();
        objects.sort_unstable();
        for object in objects.into_iter().take(MAX_TRIES) {
            let name = names.get(&object).copied().unwrap_or_default();
            let snapshot = self.open_snapshot(head, name, ObjectId(object)).await?;
            if !names.contains_key(&snapshot.phys.prev_snap.get()) {
                return Ok(Some(ObjectId(object)));
            }
        }
        Ok(None)
    }

    /// The bookmarks of `head`, by name.
    pub async fn bookmarks(&self, head: &Dataset) -> Result<Vec<DatasetBookmark>> {
        let mut bookmarks = Vec::new();
        if let Some(zap) = self.dataset_field(head, dsl_dataset::field::BOOKMARK_NAMES).await? {
            for (name, value) in self.mos.entries(ObjectId(zap)).await? {
                let name = format!("{}#{name}", head.name);
                let phys =
                    BookmarkPhys::from_words(&value.to_u64s()).map_err(|e| Error::corrupt(&name, e))?;
                bookmarks.push(DatasetBookmark { name, phys });
            }
        }
        bookmarks.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(bookmarks)
    }

    async fn bookmark(&self, head: &Dataset, name: &str) -> Result<Option<DatasetBookmark>> {
        let full = format!("{}#{name}", head.name);
        let all = self.bookmarks(head).await?;
        Ok(all.into_iter().find(|bookmark| bookmark.name == full))
    }

    /// The holds on a snapshot, by tag.
    pub async fn holds(&self, snapshot: &Dataset) -> Result<Vec<Hold>> {
        let mut holds = Vec::new();
        if snapshot.is_snapshot() && !snapshot.phys.userrefs.is_none() {
            let entries = self.mos.u64_entries(snapshot.phys.userrefs).await?;
            holds.extend(entries.into_iter().map(|(tag, time)| Hold { tag, time }));
        }
        holds.sort_by(|a, b| a.tag.cmp(&b.tag));
        Ok(holds)
    }

    /// Names of the clones of a snapshot, in the order in which the pool keeps them.
    ///
    /// Old versions forgot to note some; then none is told, as OpenZFS does.
    pub async fn clones(&self, snapshot: &Dataset) -> Result<Vec<String>> {
        let mut clones = Vec::new();
        if snapshot.is_snapshot() && !snapshot.phys.next_clones.is_none() {
            let entries = self.mos.u64_entries(snapshot.phys.next_clones).await?;
            if entries.len() as u64 == snapshot.phys.num_children - 1 {
                for (_, object) in entries {
                    // A clone that was cut off by a promotion is known by its first snapshot.
                    let name = self.name_of_object(ObjectId(object)).await?;
                    clones.push(name.split_once('@').map_or(name.as_str(), |(head, _)| head).to_owned());
                }
            }
        }
        Ok(clones)
    }

    /// Name of the snapshot that a directory's head is a clone of.
    pub async fn origin(&self, dir: &Dir) -> Result<Option<String>> {
        let origin = dir.phys.origin;
        if origin.is_none() || Some(origin) == self.origin_snapshot {
            return Ok(None);
        }
        self.name_of_object(origin).await.map(Some)
    }

    /// Guid of the snapshot that a directory's head is a clone of.
    pub async fn origin_guid(&self, dir: &Dir) -> Result<Option<ondisk::Guid>> {
        let origin = dir.phys.origin;
        if origin.is_none() || Some(origin) == self.origin_snapshot {
            return Ok(None);
        }
        Ok(Some(self.dataset_of_object(origin).await?.phys.guid))
    }

    /// Full name of the dataset that is the object `object` of the MOS.
    pub async fn name_of_object(&self, object: ObjectId) -> Result<String> {
        Ok(self.dataset_of_object(object).await?.name)
    }

    /// The dataset that is the object `object` of the MOS.
    pub async fn dataset_of_object(&self, object: ObjectId) -> Result<Dataset> {
        let mut dataset = self.mos.dataset(object, String::new(), &self.root).await?;
        dataset.dir = self.dir_of_object(dataset.phys.dir).await?;
        dataset.name = dataset.dir.name.clone();
        if dataset.is_snapshot() {
            let head = self.head(&dataset.dir).await?;
            let entries = self.mos.u64_entries(head.phys.snapnames_zap).await?;
            let entry = entries.into_iter().find(|(_, snapshot)| *snapshot == object.get());
            let (name, _) = entry.ok_or_else(|| {
                Error::corrupt(format!("object {object} of {}", self.root.name), "a snapshot without a name")
            })?;
            dataset.name = format!("{}@{name}", dataset.dir.name);
        }
        Ok(dataset)
    }

    /// The directory that is the object `object` of the MOS, found by climbing to the root.
    pub async fn dir_of_object(&self, object: ObjectId) -> Result<Arc<Dir>> {
        let mut climb = Vec::new();
        let mut at = object;
        while at != self.root.object {
            if climb.len() >= MAX_DEPTH {
                return Err(Error::corrupt(format!("directory {object}"), "does not lead to the root"));
            }
            let dir = self.mos.dir(at, String::new(), None).await?;
            climb.push(at);
            at = dir.phys.parent;
        }
        let mut dir = Arc::clone(&self.root);
        for object in climb.into_iter().rev() {
            let entries = self.mos.u64_entries(dir.phys.child_dir_zap).await?;
            let entry = entries.into_iter().find(|(_, child)| *child == object.get());
            let (name, _) = entry.ok_or_else(|| {
                Error::corrupt(format!("directory {object}"), format!("{} does not name it", dir.name))
            })?;
            dir = self.open_child(&dir, &name, object).await?;
        }
        Ok(dir)
    }

    /// Opens the object set of a filesystem, volume or snapshot, to be cached as its properties say.
    pub async fn open_objset(&self, dataset: &Dataset) -> Result<Arc<Objset>> {
        let objset = self.mos.open_objset(dataset).await?;
        let [primary, secondary] = self.cached(dataset).await?;
        objset.primary().set(primary);
        objset.primary().set_secondary(secondary);
        Ok(objset)
    }

    /// When the snapshots of a filesystem or volume changed last, in seconds since 1970; `None` where that is
    /// not known.
    pub async fn snapshots_changed(&self, dataset: &Dataset) -> Result<Option<u64>> {
        self.dir_field(&dataset.dir, ondisk::dsl_dir::field::SNAPSHOTS_CHANGED).await
    }

    /// A number that a directory keeps beyond its fixed fields.
    pub(crate) async fn dir_field(&self, dir: &Dir, field: &str) -> Result<Option<u64>> {
        if !dir.zapified {
            return Ok(None);
        }
        self.mos.u64(dir.object, field).await
    }

    /// A number that a dataset keeps beyond its fixed fields.
    pub(crate) async fn dataset_field(&self, dataset: &Dataset, field: &str) -> Result<Option<u64>> {
        if !dataset.zapified {
            return Ok(None);
        }
        self.mos.u64(dataset.object, field).await
    }

    /// Whether a dataset has blocks that need a feature.
    pub(crate) async fn has_feature(&self, dataset: &Dataset, feature: Feature) -> Result<bool> {
        if !dataset.zapified {
            return Ok(false);
        }
        Ok(self.mos.value(dataset.object, feature.guid()).await?.is_some())
    }

    /// The object that lists the blocks which a clone has of its own, where there is one.
    pub async fn livelist(&self, dir: &Dir) -> Result<Option<ObjectId>> {
        let object = self.dir_field(dir, dsl_dir::field::LIVELIST).await?;
        Ok(object.filter(|object| *object != 0).map(ObjectId))
    }

    /// The object that holds a directory's encryption key, where it is encrypted.
    pub(crate) async fn crypto_object(&self, dir: &Dir) -> Result<Option<ObjectId>> {
        let object = self.dir_field(dir, dsl_dir::field::CRYPTO_KEY_OBJ).await?;
        Ok(object.filter(|object| *object != 0).map(ObjectId))
    }
}

/// Names become paths and are shown to people: whatever a disk calls a dataset, it must be a name that
/// OpenZFS allows there.
fn check_component(full: &str, name: &str) -> Result<()> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.: %$".contains(&byte);
    let whole = DatasetName::parse(full).is_some() && !matches!(name, "." | "..");
    if whole && name.bytes().all(allowed) {
        return Ok(());
    }
    Err(Error::corrupt(full.escape_debug().to_string(), "not a name that a dataset can have"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_would_leave_their_place_are_refused() {
        assert!(check_component("pool/fs", "fs").is_ok());
        assert!(check_component("pool/$ORIGIN", "$ORIGIN").is_ok());
        assert!(check_component("pool/fs@a b:c", "a b:c").is_ok());
        for name in ["..", ".", "", "a/b", "a@b", "a\nb", "\u{e9}"] {
            assert!(check_component(&format!("pool/{name}"), name).is_err(), "{name:?}");
        }
        let long = "x".repeat(300);
        assert!(check_component(&format!("pool/{long}"), &long).is_err());
    }
}
