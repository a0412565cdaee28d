//! Who is a clone of what: the lists of clones that snapshots and directories keep.
//!
//! A snapshot lists the datasets that come after it in other directories (`ds_next_clones_obj`): a clone's
//! first snapshot, or its head while it has none. A directory lists the heads of all clones of its snapshots
//! (`dd_clones`), since those heads' deadlists have this directory's snapshots for keys.
//!
//! Source of the facts: OpenZFS 2.3 `dsl_dataset.c`, `dsl_destroy.c` (`dsl_dir_remove_clones_key`).

use ondisk::dmu::DmuType;
use ondisk::{ObjectId, Txg};

use super::{account, deadlist, objects};
use crate::dmu::zap::edit::NewZap;
use crate::error::Result;
use crate::pool::live::Syncing;

/// A directory has one more clone, whose head is `head`.
pub(super) async fn note(s: &Syncing, dir: ObjectId, head: ObjectId) -> Result<()> {
    let mut clones = objects::dir(s, dir).await?.clones;
    if clones.is_none() {
        clones = objects::create_zap(s, NewZap::of(DmuType::DSL_CLONES)).await?;
        objects::change_dir(s, dir, |dir| dir.clones = clones).await?;
    }
    objects::add(s, clones, &objects::number(head.get()), &objects::one(head.get())).await
}

/// A directory has one clone less.
pub(super) async fn forget(s: &Syncing, dir: ObjectId, head: ObjectId) -> Result<()> {
    let clones = objects::dir(s, dir).await?.clones;
    match clones.is_none() {
        true => Ok(()),
        false => objects::remove(s, clones, &objects::number(head.get())).await.map(|_| ()),
    }
}

/// Among the datasets after a snapshot in other directories, `old` gives way to `new` (or goes).
pub(super) async fn replace_next(
    s: &Syncing,
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
async fn heads(s: &Syncing, dir: ObjectId) -> Result<Vec<ObjectId>> {
    let clones = objects::dir(s, dir).await?.clones;
    match clones.is_none() {
        true => Ok(Vec::new()),
        false => Ok(objects::entries(s, clones).await?.into_iter().map(|(_, id)| ObjectId(id)).collect()),
    }
}

/// The group `since` is no key any more in the deadlists of the clones of a directory's snapshots, and of
/// their clones, as far as they were made after it.
pub(super) async fn remove_keys(s: &Syncing, dir: ObjectId, since: Txg) -> Result<()> {
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
