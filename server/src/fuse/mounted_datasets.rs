//! The datasets behind one mount: the mounted filesystem and its snapshots.
//!
//! The mounted filesystem is read from one committed state or, if the pool is open for writing, is the live
//! filesystem that takes all changes. Snapshots are listed when `.zfs/snapshot` is read. Each is opened when
//! it is first entered, and stays open.
//!
//! # Slots
//! A snapshot has a *slot* in a list; the slot is part of the node numbers of its files. In a pool that is
//! written, snapshots come and go. So the list is updated at each use after a commit. A snapshot keeps its
//! slot as long as the mount lives, also under another name, and the slot of a destroyed snapshot stays
//! empty. When the kernel still knows files of a destroyed snapshot, it gets an error for them, never another
//! file.
//!
//! A snapshot in which a file is open is not destroyed. Before snapshots are destroyed, their slots are
//! closed ([`SnapshotsClosed`]), under the lock under which files are opened.
//!
//! # States that are held
//! A mount lives long and must not hold a committed state, because the space of that state could never be
//! reused. It reads snapshots, whose blocks stay, through states that do not count.
//!
//! | lock | guards | order |
//! |---|---|---|
//! | `snapshots` | the list of slots; held while it is updated, which reads blocks | taken alone |

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, TryLockError};

use device::IgnorePoison;
use engine::Pool;
use engine::dmu::Objset;
use engine::dsl::{Dataset, Dsl};
use engine::pool::live::LivePool;
use engine::properties::{self, Prop};
use engine::zpl::{DirEntry, LiveZpl, Space, StatFs, Zpl, ZplOptions};
use engine::{Error, Result};
use ondisk::{ObjectId, ObjsetId, Txg};

use super::MountOptions;
use super::node::{MAX_SNAPSHOTS, Tree};
use super::served::Served;

/// The mounted filesystem.
#[derive(Debug, Clone)]
pub enum Source {
    /// A dataset as one committed state has it.
    Committed(Arc<Dsl>, Dataset),
    /// A filesystem that may change.
    Live(LiveSource),
}

/// A filesystem that may change.
#[derive(Debug, Clone)]
pub struct LiveSource {
    /// Its pool.
    pub pool: Arc<LivePool>,
    /// Its dataset when it was opened.
    pub dataset: Dataset,
    /// Its files.
    pub zpl: Arc<LiveZpl>,
}

impl Source {
    /// The dataset.
    pub fn dataset(&self) -> &Dataset {
        match self {
            Self::Committed(_, dataset) => dataset,
            Self::Live(live) => &live.dataset,
        }
    }

    /// Its files, where they may change.
    pub fn live(&self) -> Option<&Arc<LiveZpl>> {
        match self {
            Self::Committed(..) => None,
            Self::Live(live) => Some(&live.zpl),
        }
    }

    /// The pool as of the last commit, not to be kept.
    fn committed(&self) -> Arc<Pool> {
        match self {
            Self::Committed(dsl, _) => Arc::clone(dsl.pool()),
            Self::Live(live) => live.pool.view(),
        }
    }

    /// The snapshots, as `pool` has them, and when they changed last.
    async fn snapshots(&self, pool: &Arc<Pool>) -> Result<(Vec<Dataset>, Option<u64>)> {
        match self {
            Self::Committed(dsl, dataset) => {
                Ok((dsl.snapshots(dataset).await?, dsl.snapshots_changed(dataset).await?))
            }
            Self::Live(live) => {
                let dsl = Dsl::open(pool).await?;
                let dataset = dsl.dataset_of_object(live.dataset.object).await?;
                Ok((dsl.snapshots(&dataset).await?, dsl.snapshots_changed(&dataset).await?))
            }
        }
    }

    /// Opens the objects of a snapshot.
    async fn open_snapshot(&self, snapshot: &Dataset) -> Result<Arc<Objset>> {
        match self {
            Self::Committed(dsl, _) => dsl.open_objset(snapshot).await,
            Self::Live(live) => {
                let pool = live.pool.view_of_snapshots();
                Objset::open(&pool, snapshot.objset_id(), &snapshot.phys.bp).await
            }
        }
    }
}

/// One snapshot of the mounted filesystem.
#[derive(Debug)]
struct Snapshot {
    dataset: Dataset,
    zpl: OnceLock<Arc<Zpl>>,
    /// Open files. One more only with the lock of the list, and while its place is open.
    files: AtomicUsize,
}

impl Snapshot {
    fn of(dataset: Dataset) -> Arc<Self> {
        Arc::new(Self { dataset, zpl: OnceLock::new(), files: AtomicUsize::new(0) })
    }
}

/// Keeps a snapshot from being destroyed.
#[derive(Debug)]
pub struct SnapshotHeld(Arc<Snapshot>);

impl Drop for SnapshotHeld {
    fn drop(&mut self) {
        self.0.files.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Snapshots that cannot be entered until this is dropped: because they are destroyed, or stay after all.
#[derive(Debug)]
#[must_use]
pub struct SnapshotsClosed {
    served: Arc<Served>,
    places: Vec<usize>,
}

impl SnapshotsClosed {
    /// Closes the snapshots of these names. Fails with the name of one in which a file is open.
    pub(super) fn of(served: &Arc<Served>, names: &[&str]) -> std::result::Result<Self, String> {
        let mut closed = Self { served: Arc::clone(served), places: Vec::new() };
        // What cannot be listed cannot be open either, but for what was known before.
        let mut snapshots = match served.trees.listed() {
            Ok(listed) => listed,
            Err(_) => served.trees.lock(),
        };
        for (at, place) in snapshots.places.iter_mut().enumerate() {
            let Some(name) = place.name.as_deref().filter(|name| names.contains(name)) else { continue };
            if place.snapshot.files.load(Ordering::Acquire) > 0 {
                let name = name.to_owned();
                drop(snapshots);
                drop(closed);
                return Err(name);
            }
            if !std::mem::replace(&mut place.is_closed, true) {
                closed.places.push(at);
            }
        }
        drop(snapshots);
        Ok(closed)
    }
}

impl Drop for SnapshotsClosed {
    fn drop(&mut self) {
        let mut snapshots = self.served.trees.lock();
        for place in &self.places {
            if let Some(place) = snapshots.places.get_mut(*place) {
                place.is_closed = false;
            }
        }
    }
}

/// A snapshot's place in the list.
#[derive(Debug)]
struct SnapshotSlot {
    /// The part of the snapshot's name after `@`; `None` once it was destroyed.
    name: Option<String>,
    /// It must not be entered now: it is about to be destroyed.
    is_closed: bool,
    snapshot: Arc<Snapshot>,
}

impl SnapshotSlot {
    fn is_open(&self) -> bool {
        self.name.is_some() && !self.is_closed
    }
}

#[derive(Debug, Default)]
struct Snapshots {
    /// The group as of which the list was made.
    as_of: Option<Txg>,
    places: Vec<SnapshotSlot>,
    by_objset: HashMap<ObjsetId, usize>,
    /// When snapshots came or went last, in seconds since 1970.
    changed: Option<u64>,
}

/// The filesystems behind one mount.
#[derive(Debug)]
pub struct MountedDatasets {
    source: Source,
    head: Arc<Zpl>,
    /// The free space of a committed filesystem, and its `recordsize`.
    available_bytes: u64,
    record_bytes: u64,
    snapshots: Mutex<Snapshots>,
}

impl MountedDatasets {
    /// Opens what is mounted.
    pub async fn open(source: Source, options: &MountOptions) -> Result<Self> {
        // Whether attributes are shown is decided where they are asked for.
        let zpl = ZplOptions { snapshot: source.dataset().is_snapshot(), xattr: true, ..options.zpl };
        let (head, available_bytes, record_bytes) = match &source {
            Source::Committed(dsl, dataset) => {
                let head = Zpl::open(&dsl.open_objset(dataset).await?, zpl).await?;
                let filesystem = dataset.name.split('@').next().unwrap_or(&dataset.name);
                let entry = dsl.entry(filesystem).await?;
                let figures = dsl.properties(&entry, &properties::Environment::UNMOUNTED).await?;
                let number = |prop| figures.number(prop).unwrap_or(0);
                (head, number(Prop::Available), number(Prop::Recordsize))
            }
            // It is asked each time.
            Source::Live(live) => (Arc::clone(live.zpl.zpl()), 0, 0),
        };
        Ok(Self { source, head, available_bytes, record_bytes, snapshots: Mutex::default() })
    }

    /// Takes the places of snapshots from another tree of the same filesystem: the kernel knows files by
    /// them.
    pub(super) fn take_snapshots_of(&mut self, before: &Self) {
        let mut snapshots = std::mem::take(&mut *before.lock());
        snapshots.as_of = None;
        *self.snapshots.get_mut().ignore_poison() = snapshots;
    }

    /// The object sets of the snapshots in their places, for another daemon: the kernel knows files by them.
    /// 0 where one was destroyed.
    pub(super) fn snapshot_places(&self) -> Vec<u64> {
        let snapshots = self.lock();
        // Names are not known before the first listing.
        let mut told = vec![0; snapshots.places.len()];
        for (objset, place) in &snapshots.by_objset {
            if let Some(told) = told.get_mut(*place) {
                *told = objset.0;
            }
        }
        told
    }

    /// Has snapshots in the places where another daemon had them.
    pub(super) fn take_snapshot_places(&mut self, places: &[u64]) {
        let unnamed = |_: &u64| SnapshotSlot {
            name: None,
            is_closed: false,
            // Replaced when they are listed; without a name it is not entered.
            snapshot: Snapshot::of(self.source.dataset().clone()),
        };
        let slots: Vec<SnapshotSlot> = places.iter().take(MAX_SNAPSHOTS).map(unnamed).collect();
        let known = places.iter().take(MAX_SNAPSHOTS).enumerate().filter(|(_, objset)| **objset != 0);
        let by_objset = known.map(|(place, objset)| (ObjsetId(*objset), place)).collect();
        let snapshots = Snapshots { as_of: None, places: slots, by_objset, changed: None };
        *self.snapshots.get_mut().ignore_poison() = snapshots;
    }

    /// Name of the mounted dataset.
    pub fn name(&self) -> &str {
        &self.source.dataset().name
    }

    /// The object of the mounted dataset.
    pub fn object(&self) -> ObjectId {
        self.source.dataset().object
    }

    /// The mounted filesystem, for reading.
    pub fn head(&self) -> &Arc<Zpl> {
        &self.head
    }

    /// The mounted filesystem, where it may change.
    pub fn live(&self) -> Option<&Arc<LiveZpl>> {
        self.source.live()
    }

    /// The pool, where it is open for writing.
    pub fn pool(&self) -> Option<&Arc<LivePool>> {
        match &self.source {
            Source::Committed(..) => None,
            Source::Live(live) => Some(&live.pool),
        }
    }

    /// A mounted snapshot has no `.zfs`.
    pub fn has_snapshot_dir(&self) -> bool {
        !self.source.dataset().is_snapshot()
    }

    /// The filesystem `tree`, for reading, opened if it was not.
    pub async fn zpl(&self, tree: Tree) -> Result<Arc<Zpl>> {
        let Tree::Snapshot(place) = tree else {
            return Ok(Arc::clone(&self.head));
        };
        let snapshot = self.snapshot(place)?;
        if let Some(zpl) = snapshot.zpl.get() {
            return Ok(Arc::clone(zpl));
        }
        // As the properties of the filesystem are now.
        let options = ZplOptions { snapshot: true, xattr: true, ..self.head.options() };
        let zpl = Zpl::open(&self.source.open_snapshot(&snapshot.dataset).await?, options).await?;
        Ok(Arc::clone(snapshot.zpl.get_or_init(|| zpl)))
    }

    /// The snapshot of a place, as long as it is there.
    fn snapshot(&self, place: usize) -> Result<Arc<Snapshot>> {
        let listed = self.listed()?;
        self.open_slot(&listed, place)
    }

    fn open_slot(&self, listed: &Snapshots, place: usize) -> Result<Arc<Snapshot>> {
        match listed.places.get(place).filter(|place| place.is_open()) {
            Some(place) => Ok(Arc::clone(&place.snapshot)),
            None => Err(Error::NotFound(format!("{}: snapshot {place}", self.name()))),
        }
    }

    /// Keeps a snapshot from being destroyed, for a file that is opened in it. Nothing for the mounted
    /// filesystem itself.
    pub fn hold(&self, tree: Tree) -> Result<Option<SnapshotHeld>> {
        let Tree::Snapshot(place) = tree else { return Ok(None) };
        let listed = self.listed()?;
        let snapshot = self.open_slot(&listed, place)?;
        snapshot.files.fetch_add(1, Ordering::AcqRel);
        drop(listed);
        Ok(Some(SnapshotHeld(snapshot)))
    }

    /// The object that a name in a directory names.
    pub async fn lookup(&self, tree: Tree, dir: ObjectId, name: &[u8]) -> Result<Option<ObjectId>> {
        match (tree, self.live()) {
            (Tree::Head, Some(live)) => live.lookup(dir, name).await,
            _ => self.zpl(tree).await?.node(dir).await?.lookup(name).await,
        }
    }

    /// Up to `limit` entries of a directory that follow `cookie`.
    pub async fn entries(
        &self,
        tree: Tree,
        dir: ObjectId,
        cookie: u64,
        limit: usize,
    ) -> Result<Vec<DirEntry>> {
        if let (Tree::Head, Some(live)) = (tree, self.live()) {
            return live.read_dir(dir, cookie, limit).await;
        }
        let mut cursor = self.zpl(tree).await?.node(dir).await?.read_dir(cookie).await?;
        let mut found = Vec::new();
        while found.len() < limit
            && let Some(entry) = cursor.next().await?
        {
            found.push(entry);
        }
        Ok(found)
    }

    /// Returns when a file is stable.
    pub async fn fsync(&self, tree: Tree, file: ObjectId) -> Result<()> {
        match (tree, &self.source) {
            (Tree::Head, Source::Live(live)) => live.zpl.fsync(file).await,
            _ => Ok(()),
        }
    }

    /// The snapshots' places and names.
    pub fn snapshot_names(&self) -> Result<Vec<(usize, String)>> {
        let listed = self.listed()?;
        let named = listed.places.iter().enumerate();
        Ok(named.filter_map(|(place, snapshot)| Some((place, snapshot.name.clone()?))).collect())
    }

    /// When snapshots came or went last, in seconds since 1970; `None` where that is not known.
    pub fn snapshots_changed(&self) -> Result<Option<u64>> {
        Ok(self.listed()?.changed)
    }

    /// The place of the snapshot `name`.
    pub fn snapshot_slot(&self, name: &str) -> Result<Option<usize>> {
        Ok(self.listed()?.places.iter().position(|place| place.name.as_deref() == Some(name)))
    }

    /// The guid of the snapshot of a place.
    pub fn snapshot_guid(&self, place: usize) -> Result<u64> {
        Ok(self.snapshot(place)?.dataset.phys.guid.get())
    }

    /// The place of the snapshot with a guid.
    pub fn place_of_guid(&self, guid: u64) -> Result<Option<usize>> {
        let listed = self.listed()?;
        let is_meant = |slot: &SnapshotSlot| slot.is_open() && slot.snapshot.dataset.phys.guid.get() == guid;
        Ok(listed.places.iter().position(is_meant))
    }

    /// The list as it was brought up to date last.
    fn lock(&self) -> MutexGuard<'_, Snapshots> {
        match self.snapshots.try_lock() {
            Ok(snapshots) => snapshots,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => {
                // Another request holds it while it reads.
                device::hand_duty_over();
                self.snapshots.lock().ignore_poison()
            }
        }
    }

    /// The list as of the last commit. Blocks the thread while they are listed.
    fn listed(&self) -> Result<MutexGuard<'_, Snapshots>> {
        let mut snapshots = self.lock();
        let pool = self.source.committed();
        let as_of = pool.uberblock().txg;
        if snapshots.as_of.is_some_and(|listed| listed >= as_of) {
            return Ok(snapshots);
        }
        let (datasets, changed) = device::block_on(self.source.snapshots(&pool))?;
        snapshots.changed = changed;
        for place in &mut snapshots.places {
            place.name = None;
        }
        for dataset in datasets {
            let name = dataset.name.rsplit('@').next().unwrap_or_default().to_owned();
            let Snapshots { places, by_objset, .. } = &mut *snapshots;
            let objset = dataset.objset_id();
            if let Some(known) = by_objset.get(&objset).and_then(|place| places.get_mut(*place)) {
                known.name = Some(name);
                if known.snapshot.dataset.objset_id() != objset {
                    known.snapshot = Snapshot::of(dataset);
                }
            } else if places.len() < MAX_SNAPSHOTS {
                by_objset.insert(objset, places.len());
                places.push(SnapshotSlot {
                    name: Some(name),
                    is_closed: false,
                    snapshot: Snapshot::of(dataset),
                });
            }
        }
        for place in snapshots.places.iter_mut().filter(|place| place.name.is_none()) {
            if place.snapshot.zpl.get().is_some() {
                // It is not read any more.
                place.snapshot = Snapshot::of(place.snapshot.dataset.clone());
            }
        }
        let Snapshots { places, by_objset, .. } = &mut *snapshots;
        // The number of a destroyed one may become another's.
        by_objset.retain(|_, place| places.get(*place).is_some_and(|place| place.name.is_some()));
        snapshots.as_of = Some(as_of);
        Ok(snapshots)
    }

    /// The answer to `statfs`: the whole mount reports the figures of the mounted dataset, but for
    /// directories of a project that has a quota.
    pub fn statfs(&self, asked_in: Option<(Tree, ObjectId)>) -> StatFs {
        if let Some(live) = self.live() {
            let told = match asked_in {
                Some((Tree::Head, object)) => device::block_on(live.statfs_in(object)).ok(),
                _ => None,
            };
            return told.unwrap_or_else(|| live.statfs());
        }
        let phys = &self.source.dataset().phys;
        let space = Space {
            referenced_bytes: phys.referenced_bytes,
            available_bytes: self.available_bytes,
            used_objects: phys.bp.fill(),
        };
        self.head.statfs(space, self.record_bytes)
    }

    /// The name of an object in messages: dataset and path, or its number where the path cannot be found.
    pub fn describe(&self, tree: Tree, object: ObjectId) -> String {
        let dataset = match tree {
            Tree::Head => self.name().to_owned(),
            Tree::Snapshot(place) => {
                let listed = self.listed().ok();
                let name = listed.as_ref().and_then(|list| list.places.get(place)?.name.as_deref());
                match name {
                    Some(name) => format!("{}@{name}", self.name()),
                    None => self.name().to_owned(),
                }
            }
        };
        match device::block_on(async { self.zpl(tree).await?.path_of(object).await }) {
            Ok(Some(path)) => format!("{dataset}:{}", path.escape_ascii()),
            _ => format!("{dataset}, object {object}"),
        }
    }
}
