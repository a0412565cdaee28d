//! The filesystems behind one mount: the mounted one and its snapshots.
//!
//! Snapshots are listed when `.zfs/snapshot` is first looked into, each is opened when it is first entered, and stays open. In a pool that is open
//! for writing the list is that of the moment of the mount.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use engine::dataset::dsl::{Dataset, Dsl};
use engine::dataset::properties::{self, Prop};
use engine::dataset::zpl::{Space, StatFs, Zpl, ZplOptions};
use engine::dmu::Objset;
use engine::{Error, Result};
use ondisk::ObjectId;

use super::MountOptions;
use super::node::{MAX_SNAPSHOTS, Tree};

/// One snapshot of the mounted filesystem.
#[derive(Debug)]
struct Snapshot {
    /// The part of its name after `@`.
    name: String,
    dataset: Dataset,
    zpl: OnceLock<Arc<Zpl>>,
}

/// The filesystems behind one mount.
#[derive(Debug)]
pub struct Trees {
    dsl: Arc<Dsl>,
    dataset: Dataset,
    head: Arc<Zpl>,
    options: ZplOptions,
    available_bytes: u64,
    snapshots: OnceLock<Vec<Snapshot>>,
    /// Held while the snapshots are listed, so that two first visitors do it once.
    listing: Mutex<()>,
}

impl Trees {
    /// Opens `dataset` and finds out how much its directory may still allocate.
    ///
    /// `objset` are its objects, where they are not those on disk.
    pub async fn open(
        dsl: Arc<Dsl>,
        dataset: Dataset,
        objset: Option<Arc<Objset>>,
        options: &MountOptions,
    ) -> Result<Self> {
        let options = ZplOptions { snapshot: dataset.is_snapshot(), ..options.zpl };
        let objset = match objset {
            Some(objset) => objset,
            None => dsl.open_objset(&dataset).await?,
        };
        let head = Zpl::open(&objset, options).await?;
        let filesystem = dataset.name.split('@').next().unwrap_or(&dataset.name);
        let entry = dsl.entry(filesystem).await?;
        let figures = dsl.properties(&entry, &properties::Environment::UNMOUNTED).await?;
        let available_bytes = figures.number(Prop::Available).unwrap_or(0);
        Ok(Self {
            dsl,
            dataset,
            head,
            options,
            available_bytes,
            snapshots: OnceLock::new(),
            listing: Mutex::new(()),
        })
    }

    /// Name of the mounted dataset.
    pub fn name(&self) -> &str {
        &self.dataset.name
    }

    /// The mounted filesystem.
    pub fn head(&self) -> &Arc<Zpl> {
        &self.head
    }

    /// A mounted snapshot has no `.zfs`.
    pub fn has_snapshot_dir(&self) -> bool {
        !self.dataset.is_snapshot()
    }

    /// The filesystem `tree`, opened if it was not.
    pub async fn zpl(&self, tree: Tree) -> Result<Arc<Zpl>> {
        let Tree::Snapshot(place) = tree else {
            return Ok(Arc::clone(&self.head));
        };
        let snapshot = self.snapshots()?.get(place);
        let snapshot =
            snapshot.ok_or_else(|| Error::NotFound(format!("{}: snapshot {place}", self.name())))?;
        if let Some(zpl) = snapshot.zpl.get() {
            return Ok(Arc::clone(zpl));
        }
        let options = ZplOptions { snapshot: true, ..self.options };
        let zpl = Zpl::open(&self.dsl.open_objset(&snapshot.dataset).await?, options).await?;
        Ok(Arc::clone(snapshot.zpl.get_or_init(|| zpl)))
    }

    /// The snapshots' names, in the order of their places.
    pub fn snapshot_names(&self) -> Result<impl ExactSizeIterator<Item = &str>> {
        Ok(self.snapshots()?.iter().map(|snapshot| snapshot.name.as_str()))
    }

    /// The place of the snapshot `name`.
    pub fn snapshot_place(&self, name: &str) -> Result<Option<usize>> {
        Ok(self.snapshots()?.iter().position(|snapshot| snapshot.name == name))
    }

    /// Blocks the thread while they are listed for the first time.
    fn snapshots(&self) -> Result<&[Snapshot]> {
        if let Some(snapshots) = self.snapshots.get() {
            return Ok(snapshots);
        }
        let _listing = self.listing.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(snapshots) = self.snapshots.get() {
            return Ok(snapshots);
        }
        let datasets = device::block_on(self.dsl.snapshots(&self.dataset))?;
        let list = datasets.into_iter().take(MAX_SNAPSHOTS).map(|dataset| Snapshot {
            name: dataset.name.rsplit('@').next().unwrap_or_default().to_owned(),
            dataset,
            zpl: OnceLock::new(),
        });
        let list = list.collect();
        Ok(self.snapshots.get_or_init(|| list))
    }

    /// What `statfs` answers: all of a mount tells the figures of the mounted dataset.
    pub fn statfs(&self) -> StatFs {
        self.head.statfs(Space {
            referenced_bytes: self.dataset.phys.referenced_bytes,
            available_bytes: self.available_bytes,
            used_objects: self.dataset.phys.bp.fill(),
        })
    }

    /// What messages call an object: dataset and path, or its number where the path cannot be found.
    pub fn describe(&self, tree: Tree, object: ObjectId) -> String {
        let dataset = match tree {
            Tree::Head => self.name().to_owned(),
            Tree::Snapshot(place) => match self.snapshots().ok().and_then(|list| list.get(place)) {
                Some(snapshot) => format!("{}@{}", self.name(), snapshot.name),
                None => self.name().to_owned(),
            },
        };
        match device::block_on(async { self.zpl(tree).await?.path_of(object).await }) {
            Ok(Some(path)) => format!("{dataset}:{}", path.escape_ascii()),
            _ => format!("{dataset}, object {object}"),
        }
    }
}
