//! A stream that is to be received into a dataset that exists.

use ondisk::dsl_dataset::{DslDatasetPhys, FLAG_INCONSISTENT};
use ondisk::send::begin_flag;
use ondisk::{Guid, ObjectId, ObjsetId};

use super::super::crypto::Encryption;
use super::super::limits::{self, Counted};
use super::super::{
    FoundHead, FoundSnapshot, contents, create, destroy, destroy_snapshot, objects, origin_snapshot, policy,
    snapshot,
};
use super::resume::is_resumable;
use super::{
    BegunReceive, Made, RECEIVE_CHILD, ReceiveTarget, Sent, check_base, check_ivset, invalid, kind_of, make,
};
use crate::dmu::Objset;
use crate::dsl::{Spare, SyncTask};
use crate::error::{Error, Result};

/// A dataset that exists: its child is filled.
pub(super) async fn begin_existing(
    s: &SyncTask,
    (begin, raw): Sent<'_>,
    target: &ReceiveTarget,
    head: &FoundHead,
) -> Result<BegunReceive> {
    if begin.flags & begin_flag::CLONE != 0 || target.origin.is_some() {
        return Err(Error::Exists(format!("destination '{}'", head.name)));
    }
    refuse_partial(s, head).await?;
    if begin.from_guid == Guid(0) && target.force {
        check_overwritten(s, head).await?;
    }
    snapshot::check_name(&format!("{}@{}", head.name, target.snapshot), &target.snapshot)?;
    if let Some((stored, _)) = snapshot::by_name(s, &head.phys, &target.snapshot).await? {
        return Err(Error::Exists(format!("destination snapshot '{}@{stored}'", head.name)));
    }
    if contents::kind(s, head).await? != kind_of(begin)? {
        return invalid(format!("destination '{}' is of another type than the stream", head.name));
    }
    limits::check(s, head.phys.dir, Counted::Snapshots, 1, None).await?;
    destroy::check_supported(s, head).await?;
    let made = match begin.from_guid == Guid(0) {
        false => Made::Clone(base_of(s, (begin, raw), target, head).await?, raw),
        true => {
            if !target.force {
                return Err(Error::Exists(format!("destination '{}'", head.name)));
            }
            if raw.is_some() || policy::is_encrypted(s, head.phys.dir).await? {
                return invalid(
                    "zfs receive -F cannot be used to destroy an encrypted filesystem or overwrite an \
                     unencrypted one with an encrypted one",
                );
            }
            if origin_snapshot(s).await?.is_none() {
                return Err(Error::Unsupported("pool must be upgraded to receive this stream".to_owned()));
            }
            Made::Empty(Encryption::Off, Vec::new())
        }
    };
    if begin.from_guid != Guid(0)
        && let Some((name, _)) = target.encryption.first()
    {
        return invalid(format!("encryption property '{name}' cannot be set for incremental streams."));
    }
    s.require_for_change(Spare::Normal, create::BLOCKS)?;
    let made = make(s, begin, (head.phys.dir, RECEIVE_CHILD), made).await;
    let objset = made.inspect_err(|error| s.tx.note_half_done(error.clone()))?;
    let (name, head) = (head.name.clone(), ObjsetId(head.object.get()));
    Ok(BegunReceive { objset, head, name, resumes: None, raw: raw.cloned() })
}

/// Refuses a dataset that is being received, or was received in part.
pub(super) async fn refuse_partial(s: &SyncTask, head: &FoundHead) -> Result<()> {
    let children = objects::dir(s, head.phys.dir).await?.child_dir_zap;
    let child = objects::lookup(s, children, &objects::name(RECEIVE_CHILD)).await?;
    let partial = match child {
        Some(dir) => objects::dir(s, ObjectId(dir)).await?.head_dataset,
        None => head.object,
    };
    if is_resumable(s, partial).await? && !s.is_receiving(ObjsetId(partial.get())) {
        return Err(Error::Busy(format!(
            "destination {} contains partially-complete state from \"zfs receive -s\".",
            head.name
        )));
    }
    if child.is_some() || head.phys.has(FLAG_INCONSISTENT) {
        return Err(Error::Busy(format!("destination '{}' is being received into", head.name)));
    }
    Ok(())
}

/// A full stream takes the place of a dataset that has nothing else.
pub(super) async fn check_overwritten(s: &SyncTask, head: &FoundHead) -> Result<()> {
    if let Some((name, _)) = objects::entries(s, head.phys.snapnames_zap).await?.first() {
        return invalid(format!(
            "destination has snapshots (eg. {}@{name})\nmust destroy them to overwrite it",
            head.name
        ));
    }
    let origin = objects::dir(s, head.phys.dir).await?.origin;
    if !origin.is_none() && Some(origin) != origin_snapshot(s).await? {
        return invalid(format!("destination '{}' is a clone\nmust destroy it to overwrite it", head.name));
    }
    Ok(())
}

/// The snapshot from which a stream goes on.
pub(super) async fn base_of(
    s: &SyncTask,
    (begin, raw): Sent<'_>,
    target: &ReceiveTarget,
    head: &FoundHead,
) -> Result<ObjectId> {
    let mut at = head.phys.prev_snap;
    let base = loop {
        let missing = || {
            let detail = "does not match incremental source";
            Error::Invalid(format!("most recent snapshot of {} {detail}", head.name))
        };
        if at.is_none() {
            return Err(missing());
        }
        let phys = objects::dataset(s, at).await?;
        if phys.dir != head.phys.dir {
            return Err(missing());
        }
        if phys.guid == begin.from_guid {
            break phys;
        }
        at = phys.prev_snap;
    };
    check_base(s, (begin, raw), at, &base).await?;
    check_ivset(s, raw, at).await?;
    if target.force {
        for later in snapshots_after(s, head, at).await? {
            destroy_snapshot::check(s, &later).await?;
        }
        return Ok(at);
    }
    // Snapshots in between that have the same contents have other sets of IVs.
    if raw.is_some() && head.phys.prev_snap != at || is_modified_since(s, head, at, &base).await? {
        return Err(modified(head));
    }
    // There may be snapshots after it that have the same contents.
    Ok(head.phys.prev_snap)
}

pub(super) fn modified(head: &FoundHead) -> Error {
    Error::Busy(format!("destination {} has been modified\nsince most recent snapshot", head.name))
}

/// Whether anything but the intent log of a head is other than in a snapshot.
pub(super) async fn is_modified_since(
    s: &SyncTask,
    head: &FoundHead,
    id: ObjectId,
    base: &DslDatasetPhys,
) -> Result<bool> {
    if head.phys.bp.birth() <= base.creation_txg {
        return Ok(false);
    }
    let open = async |id: ObjectId, phys: &DslDatasetPhys| {
        Objset::open_without_key(s.pool(), ObjsetId(id.get()), &phys.bp).await
    };
    let (now, then) = (open(head.object, &head.phys).await?, open(id, base).await?);
    Ok(now.phys().meta_dnode != then.phys().meta_dnode)
}

/// The snapshots of a head after `base`, the newest first.
pub(super) async fn snapshots_after(
    s: &SyncTask,
    head: &FoundHead,
    base: ObjectId,
) -> Result<Vec<FoundSnapshot>> {
    let mut found = Vec::new();
    let mut at = head.phys.prev_snap;
    while at != base && !at.is_none() {
        let phys = objects::dataset(s, at).await?;
        if phys.dir != head.phys.dir {
            break;
        }
        let short = snapshot::name_of(s, &head.phys, at).await?;
        found.push(FoundSnapshot { name: format!("{}@{short}", head.name), object: at, phys });
        at = phys.prev_snap;
    }
    Ok(found)
}
