//! Who is a clone of what: the lists of clones that snapshots and directories keep.
//!
//! A snapshot lists the datasets that come after it in other directories (`ds_next_clones_obj`): a clone's
//! first snapshot, or its head while it has none. A directory lists the heads of all clones of its snapshots
//! (`dd_clones`), since those heads' deadlists have this directory's snapshots for keys.
//!
//! Source of the facts: OpenZFS 2.3 `dsl_dataset.c`, `dsl_destroy.c` (`dsl_dir_remove_clones_key`).

use ondisk::dmu::DmuType;
use ondisk::pool_version as version;
use ondisk::{ObjectId, Txg};

use super::{account, deadlist, objects};
use crate::dmu::zap::edit::NewZap;
use crate::dsl::SyncTask;
use crate::error::{Error, Result};

/// A directory has one more clone, whose head is `head`. Directories of old pools do not note them.
pub(super) async fn note(s: &SyncTask, dir: ObjectId, head: ObjectId) -> Result<()> {
    match s.has_version(version::DEADLISTS) {
        true => note_always(s, dir, head).await,
        false => Ok(()),
    }
}

async fn note_always(s: &SyncTask, dir: ObjectId, head: ObjectId) -> Result<()> {
    let mut clones = objects::dir(s, dir).await?.clones;
    if clones.is_none() {
        clones = objects::create_zap(s, NewZap::of(DmuType::DSL_CLONES)).await?;
        objects::change_dir(s, dir, |dir| dir.clones = clones).await?;
    }
    objects::add(s, clones, &objects::number(head.get()), &objects::one(head.get())).await
}

/// A snapshot has one more dataset after it in another directory. Snapshots of old pools do not note them.
pub(super) async fn note_next(s: &SyncTask, snapshot: ObjectId, next: ObjectId) -> Result<()> {
    match s.has_version(version::ORIGIN) {
        true => note_next_always(s, snapshot, next).await,
        false => Ok(()),
    }
}

async fn note_next_always(s: &SyncTask, snapshot: ObjectId, next: ObjectId) -> Result<()> {
    let mut next_clones = objects::dataset(s, snapshot).await?.next_clones;
    if next_clones.is_none() {
        next_clones = objects::create_zap(s, NewZap::of(DmuType::NEXT_CLONES)).await?;
        objects::change_dataset(s, snapshot, |snapshot| snapshot.next_clones = next_clones).await?;
    }
    objects::add(s, next_clones, &objects::number(next.get()), &objects::one(next.get())).await
}

/// The heads of all filesystems and volumes.
async fn all_heads(s: &SyncTask) -> Result<Vec<ObjectId>> {
    let mut heads = Vec::new();
    let mut pending = vec![super::root_dir(s).await?];
    while let Some(dir) = pending.pop() {
        let dir = objects::dir(s, dir).await?;
        if !dir.head_dataset.is_none() {
            heads.push(dir.head_dataset);
        }
        let children = objects::entries(s, dir.child_dir_zap).await?;
        let shown = children.into_iter().filter(|(name, _)| !name.starts_with('$'));
        pending.extend(shown.map(|(_, child)| ObjectId(child)));
    }
    Ok(heads)
}

/// A pool gets a version in which everything is a clone and snapshots list what comes after them
/// (`dsl_pool_upgrade_clones`): what begins with nothing begins with the empty snapshot from now on.
pub async fn list_clones_of_snapshots(s: &SyncTask) -> Result<()> {
    let empty = super::origin_snapshot(s).await?;
    let empty = empty.ok_or_else(|| Error::corrupt(s.pool().name(), "has no $ORIGIN"))?;
    for head in all_heads(s).await? {
        let mut first = head;
        let mut phys = objects::dataset(s, first).await?;
        let origin = loop {
            if phys.prev_snap.is_none() {
                break None;
            }
            let previous = objects::dataset(s, phys.prev_snap).await?;
            if previous.next_snap != first {
                break Some(phys.prev_snap);
            }
            (first, phys) = (phys.prev_snap, previous);
        };
        let origin = match origin {
            Some(origin) => origin,
            None => {
                let txg = objects::change_dataset(s, empty, |empty| {
                    empty.num_children += 1;
                    empty.creation_txg
                })
                .await?;
                objects::change_dataset(s, first, |first| {
                    (first.prev_snap, first.prev_snap_txg) = (empty, txg);
                })
                .await?;
                objects::change_dir(s, phys.dir, |dir| dir.origin = empty).await?;
                empty
            }
        };
        note_next_always(s, origin, first).await?;
    }
    Ok(())
}

/// A pool gets a version in which directories list their clones (`dsl_pool_upgrade_dir_clones`).
pub async fn list_clones_of_directories(s: &SyncTask) -> Result<()> {
    for head in all_heads(s).await? {
        let dir = objects::dataset(s, head).await?.dir;
        let origin = objects::dir(s, dir).await?.origin;
        if !origin.is_none() {
            let above = objects::dataset(s, origin).await?.dir;
            note_always(s, above, head).await?;
        }
    }
    Ok(())
}

/// A directory has one clone less.
pub(super) async fn forget(s: &SyncTask, dir: ObjectId, head: ObjectId) -> Result<()> {
    let clones = objects::dir(s, dir).await?.clones;
    match clones.is_none() {
        true => Ok(()),
        false => objects::remove(s, clones, &objects::number(head.get())).await.map(|_| ()),
    }
}

/// Among the datasets after a snapshot in other directories, `old` gives way to `new` (or goes).
pub(super) async fn replace_next(
    s: &SyncTask,
    snapshot: ObjectId,
    old: ObjectId,
    new: Option<ObjectId>,
) -> Result<()> {
    let next_clones = objects::dataset(s, snapshot).await?.next_clones;
    if next_clones.is_none() {
        return Ok(());
    }
    // Old versions forgot to list some.
    objects::remove(s, next_clones, &objects::number(old.get())).await?;
    match new {
        Some(new) => {
            objects::add(s, next_clones, &objects::number(new.get()), &objects::one(new.get())).await
        }
        None => Ok(()),
    }
}

/// The heads of the clones of a directory's snapshots.
async fn heads(s: &SyncTask, dir: ObjectId) -> Result<Vec<ObjectId>> {
    let clones = objects::dir(s, dir).await?.clones;
    match clones.is_none() {
        true => Ok(Vec::new()),
        false => Ok(objects::entries(s, clones).await?.into_iter().map(|(_, id)| ObjectId(id)).collect()),
    }
}

/// The group `since` is no key any more in the deadlists of the clones of a directory's snapshots, and of
/// their clones, as far as they were made after it.
pub(super) async fn remove_keys(s: &SyncTask, dir: ObjectId, since: Txg) -> Result<()> {
    let mut pending = vec![dir];
    while let Some(dir) = pending.pop() {
        for head in heads(s, dir).await? {
            let phys = objects::dataset(s, head).await?;
            if account::origin_txg(s, phys.dir).await? > since {
                deadlist::remove_key(s, phys.deadlist, since).await?;
                pending.push(phys.dir);
            }
        }
    }
    Ok(())
}
