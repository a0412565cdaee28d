//! Snapshots that go.
//!
//! Three kinds of blocks are concerned. Those on the *next* dataset's deadlist that were born after the
//! snapshot *before* are only this snapshot's: whole lists that move to the pool's list of blocks to be
//! freed. The other blocks on that deadlist are the snapshot before's, and stay on it, together with those on
//! this snapshot's own deadlist, which is merged into it. And blocks that this snapshot shared with one
//! neighbour only become unique to that.
//!
//! Where deadlists are plain lists (before version 26, and in what was upgraded), they are gone through block
//! by block instead, and blocks are freed at once.
//!
//! A snapshot with holds or clones may be marked to go when the last of them does.
//!
//! Source of the facts: OpenZFS 2.3 `dsl_destroy.c`.

use std::collections::HashSet;

use ondisk::dsl_dataset::{self, DslDatasetPhys, field};
use ondisk::pool_directory::{FREE_BPOBJ, hidden_dir};
use ondisk::pool_version as version;
use ondisk::{ObjectId, Txg};

use super::limits::{self, Counted};
use super::space::{self, Change, Used, did_use};
use super::{
    FoundSnapshot, account, bookmark, clones, crypto, deadlist, events, features, find_any_snapshot, objects,
    properties, snapshot,
};
use crate::dmu::Space;
use crate::dsl::{Lineage, SyncTask};
use crate::error::{Error, Result};
use crate::properties::Prop;

/// Destroys snapshots: all or none. With `defer`, those that are held or have clones go when nothing needs
/// them any more; without, they are an error.
pub async fn destroy_snapshots(s: &SyncTask, names: &[String], defer: bool) -> Result<()> {
    let mut found = Vec::new();
    let mut seen = HashSet::new();
    if defer && !s.has_version(version::USERREFS) {
        return Err(Error::Unsupported("pool must be upgraded".to_owned()));
    }
    for name in names {
        let snapshot = find_any_snapshot(s, name).await?;
        if !defer {
            check(s, &snapshot).await?;
        }
        if seen.insert(snapshot.object) {
            found.push(snapshot);
        }
    }
    for FoundSnapshot { name, object, phys } in found {
        let event = if defer && (phys.num_children > 1 || snapshot::count_holds(s, &phys).await? > 0) {
            objects::change_dataset(s, object, |phys| phys.flags |= dsl_dataset::FLAG_DEFER_DESTROY).await?;
            "defer_destroy"
        } else {
            destroy_now(s, object).await?;
            events::destroyed(s, &name, phys.guid);
            "destroy"
        };
        events::note(s, event, &name, object, events::NOTHING).await?;
    }
    Ok(())
}

pub(super) async fn check(s: &SyncTask, snapshot: &FoundSnapshot) -> Result<()> {
    if snapshot::count_holds(s, &snapshot.phys).await? > 0 {
        return Err(Error::Busy(format!("{}: is held", snapshot.name)));
    }
    refuse_remapped(s, snapshot.object, &snapshot.phys).await?;
    if snapshot.phys.num_children > 1 {
        return Err(Error::Busy(format!("{}: has dependent clones", snapshot.name)));
    }
    Ok(())
}

/// Whether a snapshot is to be destroyed, and nothing needs it any more.
pub(super) async fn is_unneeded(s: &SyncTask, id: ObjectId) -> Result<bool> {
    let phys = objects::dataset(s, id).await?;
    let waits = phys.is_snapshot() && phys.has(dsl_dataset::FLAG_DEFER_DESTROY) && phys.num_children == 1;
    Ok(waits && snapshot::count_holds(s, &phys).await? == 0 && !has_remapped(s, id, &phys).await?)
}

/// Destroys a snapshot that has neither holds nor clones (`dsl_destroy_snapshot_sync_impl`).
pub(super) async fn destroy_now(s: &SyncTask, id: ObjectId) -> Result<()> {
    let gone = objects::dataset(s, id).await?;
    refuse_remapped(s, id, &gone).await?;
    s.dsl_pool().note_lineage(Lineage::SnapshotDestroyed { snapshot: id, next: gone.next_snap });
    let dir = objects::dir(s, gone.dir).await?;
    let head = dir.head_dataset;
    let keep_key = bookmark::snapshot_destroyed(s, head, id).await?;
    features::deactivate_all(s, id).await?;

    // The chain closes.
    let mut previous = None;
    if !gone.prev_snap.is_none() {
        let before = objects::dataset(s, gone.prev_snap).await?;
        if before.next_snap == id {
            objects::change_dataset(s, gone.prev_snap, |before| before.next_snap = gone.next_snap).await?;
            previous = Some(before);
        } else {
            clones::replace_next(s, gone.prev_snap, id, Some(gone.next_snap)).await?;
        }
    }
    let next = objects::dataset(s, gone.next_snap).await?;
    let old_unique = next.unique_bytes;
    objects::change_dataset(s, gone.next_snap, |next| {
        next.prev_snap = gone.prev_snap;
        next.prev_snap_txg = gone.prev_snap_txg;
    })
    .await?;

    if deadlist::is_plain(s, next.deadlist).await? {
        free_plain(s, &gone, previous).await?;
    } else {
        move_lists(s, &gone, &next, previous).await?;
    }
    if !keep_key {
        clones::remove_keys(s, gone.dir, gone.creation_txg).await?;
    }

    if next.is_snapshot() {
        // Blocks that only this snapshot and the next had died before the one after that.
        let after = objects::dataset(s, next.next_snap).await?.deadlist;
        let shared = deadlist::space_range(s, after, gone.prev_snap_txg, gone.creation_txg).await?;
        objects::change_dataset(s, gone.next_snap, |next| {
            next.unique_bytes = next.unique_bytes.saturating_add(shared.used);
        })
        .await?;
        if !keep_key {
            let of_head = objects::dataset(s, head).await?.deadlist;
            deadlist::remove_key(s, of_head, gone.creation_txg).await?;
        }
    } else {
        // The head's unique space grew, and uses up that much of its refreservation.
        let unique = account::recount_unique(s, gone.next_snap).await?;
        let reserved = properties::number(s, next.dir, Prop::Refreservation).await?;
        if old_unique < reserved {
            let used_up = unique.saturating_sub(old_unique).min(reserved - old_unique);
            let change = Change::used(-i64::try_from(used_up).unwrap_or(i64::MAX));
            did_use(s, gone.dir, Used::RefReserved, change).await?;
        }
    }

    let of_head = objects::dataset(s, head).await?;
    let name = snapshot::name_of(s, &of_head, id).await?;
    objects::take(s, of_head.snapnames_zap, &objects::name(&name)).await?;
    limits::snapshots_changed(s, gone.dir).await?;
    limits::adjust(s, gone.dir, Counted::Snapshots, -1).await?;
    for zap in [gone.next_clones, gone.props, gone.userrefs] {
        if !zap.is_none() {
            objects::free_object(s, zap).await?;
        }
    }
    crypto::forget(s, id);
    objects::free_zapified(s, id).await
}

/// What only a snapshot and the one before had is unique to that one; what only it had is put on the list of
/// what is to be freed; and its own deadlist becomes part of the next one's.
async fn move_lists(
    s: &SyncTask,
    gone: &DslDatasetPhys,
    next: &DslDatasetPhys,
    previous: Option<DslDatasetPhys>,
) -> Result<()> {
    if let Some(before) = previous {
        let shared =
            deadlist::space_range(s, next.deadlist, before.prev_snap_txg, gone.prev_snap_txg).await?;
        objects::change_dataset(s, gone.prev_snap, |before| {
            before.unique_bytes = before.unique_bytes.saturating_add(shared.used);
        })
        .await?;
    }
    let freed = deadlist::space_range(s, next.deadlist, gone.prev_snap_txg, Txg(u64::MAX)).await?;
    did_use(s, gone.dir, Used::Snap, Change::less(freed)).await?;
    let missing = || Error::corrupt(s.pool().name(), "has no list of blocks to be freed");
    let free_list = objects::pool_entry(s, FREE_BPOBJ).await?.ok_or_else(missing)?;
    deadlist::move_to(s, next.deadlist, free_list, gone.prev_snap_txg).await?;
    did_use(s, account::hidden(s, hidden_dir::FREE).await?, Used::Head, Change::more(freed)).await?;
    deadlist::merge(s, next.deadlist, gone.deadlist).await?;
    deadlist::free(s, gone.deadlist).await
}

/// The same where deadlists are plain lists (`process_old_deadlist`): what only the snapshot had is freed at
/// once, the rest of the next one's list goes onto its own, and that is the next one's from now on.
async fn free_plain(s: &SyncTask, gone: &DslDatasetPhys, previous: Option<DslDatasetPhys>) -> Result<()> {
    let next = objects::dataset(s, gone.next_snap).await?;
    let mut freed = Space::default();
    let mut shared = 0u64;
    let mut entries = deadlist::PlainEntries::of(next.deadlist);
    while let Some(mut pointers) = entries.next(s).await? {
        pointers.retain(space::counts);
        let (kept, dead): (Vec<_>, Vec<_>) =
            pointers.into_iter().partition(|bp| bp.birth() <= gone.prev_snap_txg);
        if let Some(before) = previous {
            let of_before = kept.iter().filter(|bp| bp.birth() > before.prev_snap_txg);
            shared = of_before.fold(shared, |shared, bp| shared.saturating_add(space::weigh(s, bp).used));
        }
        freed = dead.iter().fold(freed, |freed, bp| space::sum(freed, space::weigh(s, bp)));
        account::free(s, &dead).await?;
        deadlist::insert(s, gone.deadlist, &kept).await?;
    }
    if previous.is_some() {
        objects::change_dataset(s, gone.prev_snap, |before| {
            before.unique_bytes = before.unique_bytes.saturating_add(shared);
        })
        .await?;
    }
    did_use(s, gone.dir, Used::Snap, Change::less(freed)).await?;
    objects::change_dataset(s, gone.next_snap, |next| next.deadlist = gone.deadlist).await?;
    deadlist::free(s, next.deadlist).await
}

/// Whether blocks were remapped away from removed vdevs since the snapshot before this one. The lists of them
/// go with the snapshot, which is for those who can remove vdevs.
async fn has_remapped(s: &SyncTask, id: ObjectId, phys: &DslDatasetPhys) -> Result<bool> {
    for id in [id, phys.next_snap] {
        if !id.is_none() && objects::field(s, id, field::REMAP_DEADLIST).await?.is_some() {
            return Ok(true);
        }
    }
    Ok(false)
}

async fn refuse_remapped(s: &SyncTask, id: ObjectId, phys: &DslDatasetPhys) -> Result<()> {
    match has_remapped(s, id, phys).await? {
        false => Ok(()),
        true => Err(Error::Unsupported(
            "snapshots with blocks that left removed vdevs cannot be destroyed by this version".to_owned(),
        )),
    }
}
