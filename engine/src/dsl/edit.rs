//! Changing the tree of datasets: the write side of the dataset and snapshot layer.
//!
//! Everything here runs as part of the sync of a group, with a [`SyncTask`]: one change after another, never
//! two at once. So no lock is needed, what one change reads is as all before it left it, and a change is on
//! disk as a whole or not at all. Each first checks all that can be refused and then changes; a change that
//! fails after that stops the pool, whose last committed group is as before.
//!
//! # The shape of things
//! A head, its snapshots before it, and clones that begin at one of them: a tree of datasets in time, in
//! which blocks are shared. Three rules carry it all:
//! - A block belongs to the first dataset in time that has it, and is born in a group: who was taken before
//!   has not got it.
//! - When a head gives a block up that its last snapshot has, the block goes onto the head's *deadlist*
//!   (`deadlist`); a new snapshot inherits the head's. So a dataset's deadlist is what the snapshot before it
//!   has and it has not.
//! - A block is freed when the last dataset that has it goes: for heads right away or through a tree that is
//!   taken down (`freeing`), for snapshots as whole lists from the deadlist of the one after.
//!
//! | module | what it does |
//! |---|---|
//! | `objects` | bonus areas and ZAPs of the MOS, read and changed in one go |
//! | `bpobj`, `deadlist`, `bptree` | lists and trees of blocks |
//! | `livelist` | what clones have since they began |
//! | `space`, `limits` | what directories count, and what there is room for |
//! | `account` | what a head wrote and gave up |
//! | `create`, `contents`, `clone`, `rename`, `promote`, `destroy` | filesystems and volumes |
//! | `crypto` | keys of encrypted datasets |
//! | `reshape` | volumes that get another block size |
//! | `receive`, `received_properties` | datasets that are received from a stream |
//! | `delegation` | who may do what |
//! | `snapshot`, `destroy_snapshot`, `bookmark`, `clones` | snapshots and who depends on them |
//! | `freeing` | freeing what was destroyed, in steps |
//! | `errlog` | the persistent error log |
//! | `events` | what is noted of changes in the pool's history |
//! | `features`, `properties`, `policy` | what datasets use, and how they are written |
//!
//! Source of the facts: OpenZFS 2.3 `dsl_*.c`, `bpobj.c`, `bptree.c`.

mod account;
mod bookmark;
mod bpobj;
mod bptree;
mod clone;
mod clones;
mod contents;
mod create;
mod crypto;
mod deadlist;
mod delegation;
mod destroy;
mod destroy_snapshot;
mod errlog;
mod events;
mod features;
mod freeing;
mod limits;
mod livelist;
mod objects;
mod policy;
mod promote;
mod properties;
pub mod receive;
mod received_properties;
mod rename;
pub(crate) mod reshape;
mod room;
mod snapshot;
mod space;

pub use account::{mos_synced, synced};
pub use bookmark::{create_bookmark, destroy_bookmark};
pub use bpobj::create_with_blocks as create_list;
pub use clone::{clone, rollback};
pub(crate) use clones::{list_clones_of_directories, list_clones_of_snapshots};
pub use create::{CreatedPool, NewContents, NewDataset, check_create, create, create_pool, create_with_key};
pub(crate) use create::{create_free, create_origin};
pub use crypto::{KeyChange, become_root, change_key, inherit_unasked};
pub use delegation::{Grant, allow, grant_to_creator, unallow};
pub use destroy::{Destroyed, destroy};
pub use destroy_snapshot::destroy_snapshots;
pub(crate) use errlog::{has_error_log, sync_error_log, upgrade_error_log};
pub use features::{count_files, log_xattrs, logs_xattrs};
pub use freeing::free_some;
pub use livelist::has_livelist;
pub use policy::{policy, settings};
pub use promote::{promote, promote_back};
pub use properties::{Changed, check_properties, inherit_property, set_properties, volume_reservation};
pub use received_properties::{
    PropertyChanges, StoredProperties, applies, has_local_property, receive_properties, snapshot_differs,
    take_back,
};
pub use rename::{objsets_below, rename};
pub use room::{Room, room};
pub use snapshot::{NewSnapshot, hold, release, rename_snapshots, snapshot};

use ondisk::ObjectId;
use ondisk::dsl_dataset::DslDatasetPhys;
use ondisk::holds::{DatasetName, Part};
use ondisk::pool_directory::{ROOT_DATASET, hidden_dir};

use super::{check_component, is_hidden};
use crate::dsl::SyncTask;
use crate::error::{Error, Result};

/// A filesystem or volume, found by name.
#[derive(Debug, Clone)]
struct FoundHead {
    name: String,
    object: ObjectId,
    phys: DslDatasetPhys,
}

/// A snapshot, found by name.
#[derive(Debug, Clone)]
struct FoundSnapshot {
    name: String,
    object: ObjectId,
    phys: DslDatasetPhys,
}

/// The pool's root directory.
async fn root_dir(s: &SyncTask) -> Result<ObjectId> {
    let missing = || Error::corrupt(s.pool().name(), "its directory names no root dataset");
    objects::pool_entry(s, ROOT_DATASET).await?.ok_or_else(missing)
}

/// The empty snapshot that everything which is no clone begins at, where the pool has it.
async fn origin_snapshot(s: &SyncTask) -> Result<Option<ObjectId>> {
    let children = objects::dir(s, root_dir(s).await?).await?.child_dir_zap;
    let Some(dir) = objects::lookup(s, children, &objects::name(hidden_dir::ORIGIN)).await? else {
        return Ok(None);
    };
    let head = objects::dir(s, ObjectId(dir)).await?.head_dataset;
    let snapshot = objects::dataset(s, head).await?.prev_snap;
    Ok(Some(snapshot).filter(|snapshot| !snapshot.is_none()))
}

/// The filesystem or volume called `name`, which users may change. Hidden ones ([`is_hidden`]) are not found
/// by name: what a receive fills belongs to it, and can only be destroyed ([`find_any_head`]).
async fn find_head(s: &SyncTask, name: &str) -> Result<FoundHead> {
    match is_hidden(name) {
        true => Err(Error::Invalid(format!("'{name}': hidden datasets can only be destroyed"))),
        false => find_any_head(s, name).await,
    }
}

/// The same, and also what a receive fills.
async fn find_any_head(s: &SyncTask, name: &str) -> Result<FoundHead> {
    let missing = || Error::NotFound(name.to_owned());
    let parsed = DatasetName::parse(name).filter(|parsed| parsed.part == Part::Head);
    let parsed = parsed.ok_or_else(|| Error::Invalid(format!("'{name}': not a dataset's name")))?;
    let mut components = parsed.dataset.split('/');
    if components.next() != Some(s.pool().name()) {
        return Err(missing());
    }
    let mut at = root_dir(s).await?;
    for component in components {
        if component.contains('$') {
            return Err(missing());
        }
        let children = objects::dir(s, at).await?.child_dir_zap;
        let child = objects::lookup(s, children, &objects::name(component)).await?;
        at = ObjectId(child.ok_or_else(missing)?);
    }
    let object = objects::dir(s, at).await?.head_dataset;
    if object.is_none() {
        return Err(missing());
    }
    let phys = objects::dataset(s, object).await?;
    if phys.is_snapshot() || phys.dir != at {
        return Err(Error::corrupt(name, "its head is not its own"));
    }
    Ok(FoundHead { name: name.to_owned(), object, phys })
}

/// The snapshot called `name`, of a dataset that users may change.
async fn find_snapshot(s: &SyncTask, name: &str) -> Result<FoundSnapshot> {
    let head = find_head(s, snapshot::split(name)?.0).await?;
    find_snapshot_of(s, &head, name).await
}

/// The same, and also one of what a receive fills.
async fn find_any_snapshot(s: &SyncTask, name: &str) -> Result<FoundSnapshot> {
    let head = find_any_head(s, snapshot::split(name)?.0).await?;
    find_snapshot_of(s, &head, name).await
}

async fn find_snapshot_of(s: &SyncTask, head: &FoundHead, name: &str) -> Result<FoundSnapshot> {
    let (of, short) = snapshot::split(name)?;
    let found = snapshot::by_name(s, &head.phys, short).await?;
    let (stored, object) = found.ok_or_else(|| Error::NotFound(name.to_owned()))?;
    let phys = objects::dataset(s, object).await?;
    if !phys.is_snapshot() {
        return Err(Error::corrupt(name, "is named as a snapshot but is none"));
    }
    Ok(FoundSnapshot { name: format!("{of}@{stored}"), object, phys })
}

/// The full name of a directory.
async fn name_of_dir(s: &SyncTask, dir: ObjectId) -> Result<String> {
    let chain = space::chain(s, dir).await?;
    let mut components = vec![s.pool().name().to_owned()];
    for pair in chain.windows(2).rev() {
        let [(id, _), (_, parent)] = pair else { continue };
        let children = objects::entries(s, parent.child_dir_zap).await?;
        let found = children.into_iter().find(|(_, child)| *child == id.get());
        components.push(found.ok_or_else(|| objects::corrupt(*id, "its parent does not name it"))?.0);
    }
    Ok(components.join("/"))
}

#[cfg(test)]
mod tests;
