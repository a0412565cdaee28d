//! New directories and datasets: those that every pool has, filesystems, volumes.
//!
//! A dataset is created whole: its object set is filled and written in the group that creates it, so that
//! from its first moment on a dataset has a root block, and can be snapshotted or cloned in that same group.
//!
//! Source of the facts: OpenZFS 2.3 `dsl_pool.c`, `dsl_dir.c`, `dsl_dataset.c`, `dmu_objset.c`.

use std::sync::Arc;

use ondisk::dmu::DmuType;
use ondisk::dsl_dataset::{self, DslDatasetPhys};
use ondisk::dsl_dir::{DslDirPhys, FLAG_USED_BREAKDOWN};
use ondisk::holds::MAX_DATASET_NAME_BYTES;
use ondisk::objset::ObjsetType;
use ondisk::pool_directory::{DIRECTORY_OBJECT, FREE_BPOBJ, ROOT_DATASET, hidden_dir};
use ondisk::pool_version as version;
use ondisk::{Guid, ObjectId, ObjsetId, Txg};

use super::limits::{self, Counted};
use super::objects;
use super::properties::{Assignment, Setting};
use super::{
    account, bookmark, bpobj, check_component, contents, crypto, deadlist, events, features, find_head,
    origin_snapshot, policy, properties, snapshot, space,
};
use crate::dmu::LiveObjset;
use crate::dmu::zap::edit::NewZap;
use crate::dsl::keys::UserKey;
use crate::dsl::{Spare, SyncTask};
use crate::error::{Error, Result};
use crate::properties::Prop;

/// The deepest that people may nest datasets (`zfs_max_dataset_nesting`).
pub(super) const MAX_NESTING: usize = 50;

/// Blocks that a new dataset takes.
pub(super) const BLOCKS: u64 = 6;

/// The first group of a pool; datasets created in it say that they are of group 1.
const TXG_INITIAL: Txg = Txg(4);

/// What a new dataset is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NewContents {
    /// A filesystem.
    Filesystem,
    /// A volume.
    Volume {
        /// Size of the disk in bytes.
        size: u64,
        /// Without a refreservation, so that it may fail to be written when the pool is full.
        sparse: bool,
    },
}

/// A new filesystem or volume.
#[derive(Debug, Clone)]
pub struct NewDataset {
    /// Full name; its parent must exist.
    pub name: String,
    /// What it is.
    pub contents: NewContents,
    /// Properties as typed, in the words that `zfs create -o` takes.
    pub properties: Vec<(String, String)>,
}

/// The DSL of a new pool.
#[derive(Debug, Clone, Copy)]
pub struct CreatedPool {
    /// The pool's root directory.
    pub root_dir: ObjectId,
    /// The root filesystem.
    pub root_dataset: ObjsetId,
}

/// Creates what a new pool has of the DSL (`dsl_pool_create`): the root directory, `$MOS`, `$FREE` with its
/// list, `$ORIGIN` with its snapshot (as far as the version has them), and the root filesystem with
/// `root_properties` as typed, and with `key` where that makes it an encryption root. The pool's
/// directory (object 1 of the MOS) and the ZAPs of features must be there; entries are added to it.
pub async fn create_pool(
    s: &SyncTask,
    root_properties: &[(String, String)],
    key: Option<&Arc<UserKey>>,
) -> Result<CreatedPool> {
    let root_dir = create_dir(s, None, s.pool().name()).await?;
    create_dir(s, Some(root_dir), hidden_dir::MOS).await?;
    if s.has_version(version::DEADLISTS) {
        create_free(s).await?;
    }
    if s.has_version(version::ORIGIN) {
        create_origin(s).await?;
    }

    let name = s.pool().name().to_owned();
    let new = NewDataset { name, contents: NewContents::Filesystem, properties: root_properties.to_vec() };
    let mut plan = properties::plan_new(s, &new, None).await?;
    let encryption = crypto::plan(s, &mut plan, None, key, false).await?;
    let root_dataset = fill_dir(s, (None, root_dir), &new, &plan, &encryption).await?;
    Ok(CreatedPool { root_dir, root_dataset })
}

/// Creates the hidden directory that counts what is being freed, and the list of that.
pub async fn create_free(s: &SyncTask) -> Result<()> {
    create_dir(s, Some(super::root_dir(s).await?), hidden_dir::FREE).await?;
    // The pool may be on its way to this version.
    let list = bpobj::create_of(s, bpobj::BLOCK_BYTES, s.version().max(version::DEADLISTS)).await?;
    objects::add(s, DIRECTORY_OBJECT, &objects::name(FREE_BPOBJ), &objects::one(list.get())).await
}

/// Creates the empty snapshot of which everything is a clone, with its hidden directory.
pub async fn create_origin(s: &SyncTask) -> Result<()> {
    let dir = create_dir(s, Some(super::root_dir(s).await?), hidden_dir::ORIGIN).await?;
    let origin = create_dataset(s, dir, None).await?;
    snapshot::take(s, origin, hidden_dir::ORIGIN).await.map(|_| ())
}

/// Checks all that can refuse a filesystem or volume, before those between it and `above`, which exists, are
/// created. Gives what its refreservation would be. A dry run does not ask whether there is room for that, as
/// OpenZFS's does not.
pub async fn check_create(s: &SyncTask, new: &NewDataset, above: &str, dry_run: bool) -> Result<Option<u64>> {
    let parent = find_head(s, above).await?;
    let below = new.name.strip_prefix(above).and_then(|rest| rest.strip_prefix('/'));
    let below = below.ok_or_else(|| Error::Invalid(format!("'{}': is not below '{above}'", new.name)))?;
    let mut full = above.to_owned();
    for (level, short) in below.split('/').enumerate() {
        full = format!("{full}/{short}");
        check_name(&full, short)?;
        if level == 0 {
            check_parent(s, &parent, short, &full).await?;
        }
    }
    let mut plan = properties::plan_without_room(s, new)?;
    if !dry_run {
        properties::check_room(s, &plan, Some(&parent)).await?;
    }
    contents::inherit_contents(s, &parent, new, &mut plan).await?;
    crypto::plan(s, &mut plan, Some(&parent), None, true).await?;
    let count = below.split('/').count() as u64;
    limits::check(s, parent.phys.dir, Counted::Filesystems, count, None).await?;
    Ok(properties::assigned(&plan, Prop::Refreservation))
}

/// Creates a filesystem or volume. Gives the number of its object set. Below an encrypted one it is
/// encrypted, unless its properties say otherwise.
pub async fn create(s: &SyncTask, new: &NewDataset) -> Result<ObjsetId> {
    create_with_key(s, new, None).await
}

/// The same, with the user's key of a new encryption root, where its properties make it one.
pub async fn create_with_key(s: &SyncTask, new: &NewDataset, key: Option<&Arc<UserKey>>) -> Result<ObjsetId> {
    let (parent_name, short) = new
        .name
        .rsplit_once('/')
        .ok_or_else(|| Error::Invalid(format!("'{}': a dataset's name begins with its pool's", new.name)))?;
    check_name(&new.name, short)?;
    let parent = find_head(s, parent_name).await?;
    check_parent(s, &parent, short, &new.name).await?;
    let mut plan = properties::plan_new(s, new, Some(&parent)).await?;
    contents::inherit_contents(s, &parent, new, &mut plan).await?;
    let encryption = crypto::plan(s, &mut plan, Some(&parent), key, false).await?;
    limits::check(s, parent.phys.dir, Counted::Filesystems, 1, None).await?;
    s.require_for_change(Spare::Normal, BLOCKS)?;

    let dir = create_dir(s, Some(parent.phys.dir), short).await?;
    limits::begin(s, dir).await?;
    let objset = fill_dir(s, (Some(parent.phys.dir), dir), new, &plan, &encryption).await?;
    events::note(s, "create", &new.name, ObjectId(objset.0), events::NOTHING).await?;
    let volume_bytes = match new.contents {
        NewContents::Filesystem => None,
        NewContents::Volume { size, .. } => Some(size),
    };
    events::created(s, &new.name, objects::dataset(s, ObjectId(objset.0)).await?.guid, volume_bytes);
    Ok(objset)
}

/// Checks a name that a person gave to something new.
pub(super) fn check_name(full: &str, short: &str) -> Result<()> {
    if full.len() >= MAX_DATASET_NAME_BYTES {
        return Err(Error::Invalid(format!("'{full}': the name is too long")));
    }
    if full.split('/').count() > MAX_NESTING {
        return Err(Error::Invalid(format!("'{full}': datasets cannot nest deeper than {MAX_NESTING}")));
    }
    if short.contains(['$', '%']) {
        return Err(Error::Invalid(format!("'{full}': names of datasets cannot contain $ or %")));
    }
    check_component(full, short)
}

/// Checks that there can be a dataset called `short` below `parent`.
pub(super) async fn check_parent(
    s: &SyncTask,
    parent: &super::FoundHead,
    short: &str,
    full: &str,
) -> Result<()> {
    let children = objects::dir(s, parent.phys.dir).await?.child_dir_zap;
    if objects::lookup(s, children, &objects::name(short)).await?.is_some() {
        return Err(Error::Exists(full.to_owned()));
    }
    if contents::kind(s, parent).await? != ObjsetType::Zfs {
        let detail = "is no filesystem, and only filesystems can have children".to_owned();
        return Err(Error::WrongType { what: parent.name.clone(), detail });
    }
    if parent.phys.has(dsl_dataset::FLAG_INCONSISTENT) {
        return Err(Error::Busy(format!("{}: is being received or destroyed", parent.name)));
    }
    Ok(())
}

/// Creates the head of a directory that has none, with its contents and properties.
async fn fill_dir(
    s: &SyncTask,
    (parent, dir): (Option<ObjectId>, ObjectId),
    new: &NewDataset,
    plan: &[Assignment],
    encryption: &crypto::Encryption,
) -> Result<ObjsetId> {
    let id = create_dataset(s, dir, origin_snapshot(s).await?).await?;
    // Before anything of it is written.
    crypto::encrypt(s, (parent, dir, id), encryption).await?;
    for assignment in plan {
        properties::store(s, dir, assignment).await?;
    }
    // While nothing is written: what is written counts against what is reserved.
    for assignment in plan {
        if let Setting::Space(prop) = assignment.setting {
            let value = properties::assigned(plan, prop).unwrap_or(0);
            properties::apply_space(s, id, prop, 0, value).await?;
        }
    }
    let kind = match new.contents {
        NewContents::Filesystem => ObjsetType::Zfs,
        NewContents::Volume { .. } => ObjsetType::Zvol,
    };
    let policy = policy::of_dir(s, dir).await?;
    let objset = LiveObjset::create(s.pool(), ObjsetId(id.get()), kind, policy, &s.tx);
    if !s.has_version(version::USERSPACE) {
        objset.count_nothing();
    }
    contents::fill(s, &objset, new, plan).await?;
    write(s, &objset).await?;
    Ok(ObjsetId(id.get()))
}

/// Writes an object set that this group changed, and counts what it wrote.
pub(super) async fn write(s: &SyncTask, objset: &Arc<LiveObjset>) -> Result<()> {
    let done = objset.sync(s.writer(), s.txg()).await?;
    account::synced(s, objset.id(), &done).await
}

/// Whether a directory is no dataset of a user's, but for what is done to one: it counts for no limit.
pub(super) fn is_temporary(name: &str) -> bool {
    name.starts_with('%')
}

/// Creates a directory below `parent` (`dsl_dir_create_sync`).
pub(super) async fn create_dir(s: &SyncTask, parent: Option<ObjectId>, name: &str) -> Result<ObjectId> {
    let phys = DslDirPhys {
        creation_time: s.now(),
        parent: parent.unwrap_or_default(),
        props_zap: objects::create_zap(s, NewZap::of(DmuType::DSL_PROPS)).await?,
        child_dir_zap: objects::create_zap(s, NewZap::of(DmuType::DSL_DIR_CHILD_MAP)).await?,
        flags: if s.has_version(version::USED_BREAKDOWN) { FLAG_USED_BREAKDOWN } else { 0 },
        ..DslDirPhys::default()
    };
    let dir = objects::create_object(s, DmuType::DSL_DIR, phys.encode(objects::ORDER)).await?;
    let value = objects::one(dir.get());
    match parent {
        None => objects::add(s, DIRECTORY_OBJECT, &objects::name(ROOT_DATASET), &value).await?,
        Some(parent) => {
            let children = objects::dir(s, parent).await?.child_dir_zap;
            objects::add(s, children, &objects::name(name), &value).await?;
            if !is_temporary(name) {
                limits::adjust(s, parent, Counted::Filesystems, 1).await?;
            }
        }
    }
    Ok(dir)
}

/// Creates the head of a directory, as a clone of a snapshot where one is given
/// (`dsl_dataset_create_sync_dd`).
pub(super) async fn create_dataset(
    s: &SyncTask,
    dir: ObjectId,
    origin: Option<ObjectId>,
) -> Result<ObjectId> {
    let names = NewZap { normalization: bookmark::NORMALIZE_CASE, ..NewZap::of(DmuType::DSL_DS_SNAP_MAP) };
    let mut phys = DslDatasetPhys {
        dir,
        fsid_guid: s.random() >> 8,
        guid: Guid(s.random()),
        snapnames_zap: objects::create_zap(s, names).await?,
        creation_time: s.now(),
        creation_txg: if s.txg() == TXG_INITIAL { Txg(1) } else { s.txg() },
        flags: account::accurate(s),
        ..DslDatasetPhys::default()
    };
    let Some(origin) = origin else {
        phys.deadlist = deadlist::create(s).await?;
        let id = objects::create_object(s, DmuType::DSL_DATASET, phys.encode(objects::ORDER)).await?;
        crypto::forget(s, id);
        objects::change_dir(s, dir, |dir| dir.head_dataset = id).await?;
        return Ok(id);
    };
    let of = objects::dataset(s, origin).await?;
    let origin_head = objects::dir(s, of.dir).await?.head_dataset;
    let deadlist = objects::dataset(s, origin_head).await?.deadlist;
    phys.prev_snap = origin;
    phys.prev_snap_txg = of.creation_txg;
    phys.referenced_bytes = of.referenced_bytes;
    phys.compressed_bytes = of.compressed_bytes;
    phys.uncompressed_bytes = of.uncompressed_bytes;
    phys.bp = of.bp;
    phys.flags |= of.flags & (dsl_dataset::FLAG_INCONSISTENT | dsl_dataset::FLAG_CI_DATASET);
    phys.deadlist = deadlist::clone(s, deadlist, of.creation_txg, origin).await?;
    let id = objects::create_object(s, DmuType::DSL_DATASET, phys.encode(objects::ORDER)).await?;
    features::copy(s, origin, id).await?;
    // A change that failed may have left a key for the number.
    crypto::forget(s, id);
    crypto::share_with_clone(s, (origin, of.dir), (dir, id)).await?;

    objects::change_dataset(s, origin, |origin| origin.num_children += 1).await?;
    super::clones::note_next(s, origin, id).await?;
    super::clones::note(s, of.dir, id).await?;
    objects::change_dir(s, dir, |dir| {
        dir.origin = origin;
        dir.head_dataset = id;
    })
    .await?;
    Ok(id)
}

/// Refuses what this group cannot see the end of: a head whose last snapshot is of this very group.
pub(super) fn check_not_snapshotted(s: &SyncTask, name: &str, previous: Txg) -> Result<()> {
    match previous >= s.txg() {
        true => Err(Error::Busy(format!("{name}: was snapshotted in this very moment, try again"))),
        false => Ok(()),
    }
}

/// What a dataset may use below its parent is checked by its properties; this is for what it takes at once.
pub(super) async fn check_room(s: &SyncTask, dir: ObjectId, bytes: u64) -> Result<()> {
    let room = space::available(s, dir, None).await?;
    match bytes > room {
        true => Err(space::short_of("it needs", bytes, room)),
        false => Ok(()),
    }
}
