//! The end of a receive: its contents and the snapshot take their place, or all of it goes.

use ondisk::dsl_dataset::{FLAG_INCONSISTENT, field};
use ondisk::send::Begin;
use ondisk::{Guid, ObjectId, ObjsetId};

use super::super::limits::{self, Counted};
use super::super::{
    FoundHead, FoundSnapshot, clone, create, crypto, destroy, destroy_snapshot, events, find_head, objects,
    promote_back, properties, snapshot, space,
};
use super::existing::{is_modified_since, modified, snapshots_after};
use super::resume::{forget_stream, is_resumable, partial_of};
use super::{BegunReceive, ReceiveTarget, head_of};
use crate::dsl::{Spare, SyncTask};
use crate::error::{Error, Result};
use crate::properties::Prop;

/// The stream was received as a whole: the dataset gets its contents and the snapshot. Gives the full name of
/// the snapshot. Nothing writes to the filled dataset any more, and the head's intent log is given back.
pub(crate) async fn end(
    s: &SyncTask,
    begin: &Begin,
    target: &ReceiveTarget,
    begun: &BegunReceive,
) -> Result<String> {
    let filled = head_of(s, begun.objset).await?;
    let head = match begun.is_new() {
        true => filled.clone(),
        false => head_of(s, begun.head).await?,
    };
    let full = format!("{}@{}", head.name, target.snapshot);
    snapshot::check_name(&full, &target.snapshot)?;
    if snapshot::by_name(s, &head.phys, &target.snapshot).await?.is_some() {
        return Err(Error::Exists(full));
    }
    limits::check(s, head.phys.dir, Counted::Snapshots, 1, None).await?;
    let mut later = Vec::new();
    if !begun.is_new() {
        later = check_swap(s, target, &filled, &head).await?;
    }
    create::check_not_snapshotted(s, &head.name, head.phys.prev_snap_txg)?;
    let reserved = properties::number(s, head.phys.dir, Prop::Refreservation).await?;
    create::check_room(s, head.phys.dir, filled.phys.unique_bytes.min(reserved)).await?;
    s.require_for_change(Spare::Normal, create::BLOCKS)?;
    let ended = finish(s, (begin, target, begun), (filled, head), later).await;
    ended.inspect_err(|error| s.tx.note_half_done(error.clone()))?;
    Ok(full)
}

/// Whether the contents of a head can be exchanged for what was received. Gives the snapshots that have to
/// go.
pub(super) async fn check_swap(
    s: &SyncTask,
    target: &ReceiveTarget,
    filled: &FoundHead,
    head: &FoundHead,
) -> Result<Vec<FoundSnapshot>> {
    let base = filled.phys.prev_snap;
    let mut later = Vec::new();
    if target.force {
        later = snapshots_after(s, head, base).await?;
        for snapshot in &later {
            destroy_snapshot::check(s, snapshot).await?;
        }
    } else if head.phys.prev_snap != base
        || is_modified_since(s, head, base, &objects::dataset(s, base).await?).await?
    {
        return Err(modified(head));
    }
    let before = later.last().map_or(head.phys.prev_snap, |oldest| oldest.phys.prev_snap);
    if before != base {
        return Err(modified(head));
    }
    destroy::check_log(s, head).await?;
    destroy::check_supported(s, head).await?;
    let refquota = properties::number(s, head.phys.dir, Prop::Refquota).await?;
    if refquota != 0 && filled.phys.referenced_bytes > refquota {
        return Err(Error::Quota(format!("destination {}", head.name)));
    }
    let reserved = properties::number(s, head.phys.dir, Prop::Refreservation).await?;
    let used_up = |unique: u64| unique.min(reserved);
    let more = used_up(filled.phys.unique_bytes).saturating_sub(used_up(head.phys.unique_bytes));
    let room = space::available(s, head.phys.dir, None).await?;
    match more > room {
        true => Err(space::short_of("its refreservation of", more, room)),
        false => Ok(later),
    }
}

/// Exchanges the contents, where there were some before, and takes the snapshot.
pub(super) async fn finish(
    s: &SyncTask,
    (begin, target, begun): (&Begin, &ReceiveTarget, &BegunReceive),
    (filled, head): (FoundHead, FoundHead),
    later: Vec<FoundSnapshot>,
) -> Result<()> {
    let text = format!("snap={}", target.snapshot);
    events::note(s, "finish receiving", &filled.name, filled.object, &text).await?;
    if !begun.is_new() {
        for FoundSnapshot { name, object, phys } in later {
            destroy_snapshot::destroy_now(s, object).await?;
            events::note(s, "destroy", &name, object, events::NOTHING).await?;
            events::destroyed(s, &name, phys.guid);
        }
        if let Some(keys) = &begun.raw {
            crypto::take_over(s, head.phys.dir, keys).await?;
        }
        clone::swap(s, filled.object, head.object).await?;
    } else if begun.raw.is_some() && !filled.phys.prev_snap.is_none() {
        // It can be read with the key of its origin from now on.
        crypto::share_loaded(s, filled.phys.prev_snap, head.object);
    }
    let id = snapshot::take(s, head.object, &target.snapshot).await?;
    objects::change_dataset(s, id, |phys| {
        phys.guid = begin.to_guid;
        phys.creation_time = begin.creation_time;
        phys.flags &= !FLAG_INCONSISTENT;
    })
    .await?;
    if let Some(keys) = &begun.raw
        && keys.to_ivset != Guid(0)
    {
        // The blocks have the IVs that they have on the sender.
        objects::set_field(s, id, field::IVSET_GUID, &objects::one(keys.to_ivset.get())).await?;
    }
    objects::change_dataset(s, head.object, |phys| phys.flags &= !FLAG_INCONSISTENT).await?;
    let name = format!("{}@{}", head.name, target.snapshot);
    events::note(s, "snapshot", &name, id, events::NOTHING).await?;
    events::replaced(s, &head.name, head.phys.guid);
    events::created(s, &name, begin.to_guid, None);
    s.set_receiving(begun.objset, false);
    match begun.is_new() {
        true => forget_stream(s, head.object).await?,
        false => destroy_filled(s, filled.object, &filled.name).await?,
    }
    s.forget_dataset(begun.objset);
    s.forget_dataset(begun.head);
    Ok(())
}

/// Destroys a dataset that was filled.
pub(super) async fn destroy_filled(s: &SyncTask, id: ObjectId, name: &str) -> Result<()> {
    let phys = objects::dataset(s, id).await?;
    let filled = FoundHead { name: name.to_owned(), object: id, phys };
    destroy::destroy_head(s, &filled).await?;
    events::destroyed(s, name, phys.guid);
    events::note(s, "destroy", name, id, events::NOTHING).await
}

/// A receive ends before its stream did. What can be resumed stays.
pub(crate) async fn abandon(s: &SyncTask, objset: ObjsetId, keeps: bool) -> Result<()> {
    s.set_receiving(objset, false);
    let filled = head_of(s, objset).await?;
    if !filled.phys.has(FLAG_INCONSISTENT) {
        return Ok(());
    }
    if keeps && is_resumable(s, filled.object).await? {
        return Ok(());
    }
    give_up(s, &filled).await
}

pub(super) async fn give_up(s: &SyncTask, filled: &FoundHead) -> Result<()> {
    destroy::check_to_destroy(s, filled).await?;
    let gone = destroy_filled(s, filled.object, &filled.name).await;
    gone.inspect_err(|error| s.tx.note_half_done(error.clone()))?;
    s.forget_dataset(ObjsetId(filled.object.get()));
    Ok(())
}

/// Destroys what an interrupted receive left (`zfs receive -A`).
pub async fn abort(s: &SyncTask, name: &str) -> Result<()> {
    let head = find_head(s, name).await?;
    let partial = partial_of(s, &head).await?;
    if !partial.phys.has(FLAG_INCONSISTENT) || !is_resumable(s, partial.object).await? {
        return Err(Error::NotFound(format!("'{name}' does not have any resumable receive state to abort")));
    }
    if s.is_receiving(ObjsetId(partial.object.get())) {
        return Err(Error::Busy(format!("destination '{name}' is being received into")));
    }
    promote_back(s, name).await?;
    give_up(s, &partial_of(s, &find_head(s, name).await?).await?).await
}

/// Destroys what a receive left that cannot be resumed. For a pool that was just imported.
pub(crate) async fn destroy_remains(s: &SyncTask, objset: ObjsetId) -> Result<()> {
    abandon(s, objset, true).await
}
