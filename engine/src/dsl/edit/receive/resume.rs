//! Receives that broke off: what they note, and how they go on.

use ondisk::dsl_dataset::{FLAG_INCONSISTENT, field};
use ondisk::send::{Begin, feature};
use ondisk::zap::ZapValue;
use ondisk::{Guid, ObjectId, ObjsetId};

use super::super::{FoundHead, crypto, events, find_head, objects};
use super::{BegunReceive, RECEIVE_CHILD, ReceiveTarget, ResumePoint, Sent, activate, check_base, invalid};
use crate::dsl::{Spare, SyncTask};
use crate::error::{Error, Result};

/// The fields of a receive that may be resumed.
const RESUME_FIELDS: [&str; 11] = [
    field::RESUME_FROMGUID,
    field::RESUME_TOGUID,
    field::RESUME_TONAME,
    field::RESUME_OBJECT,
    field::RESUME_OFFSET,
    field::RESUME_BYTES,
    field::RESUME_LARGEBLOCK,
    field::RESUME_EMBEDOK,
    field::RESUME_COMPRESSOK,
    field::RESUME_RAWOK,
    field::RESUME_REDACT_BOOKMARK_SNAPS,
];

/// Whether an interrupted receive into a dataset can be resumed.
pub(super) async fn is_resumable(s: &SyncTask, id: ObjectId) -> Result<bool> {
    Ok(objects::field(s, id, field::RESUME_TOGUID).await?.is_some())
}

/// Notes which stream it is that may be resumed.
pub(super) async fn note_stream(s: &SyncTask, begin: &Begin, id: ObjectId) -> Result<()> {
    let set = async |name: &str, value: ZapValue| objects::set_field(s, id, name, &value).await;
    if begin.from_guid != Guid(0) {
        set(field::RESUME_FROMGUID, objects::one(begin.from_guid.get())).await?;
    }
    set(field::RESUME_TOGUID, objects::one(begin.to_guid.get())).await?;
    set(field::RESUME_TONAME, ZapValue::U8(begin.to_name.iter().copied().chain([0]).collect())).await?;
    set(field::RESUME_OBJECT, objects::one(1)).await?;
    set(field::RESUME_OFFSET, objects::one(0)).await?;
    set(field::RESUME_BYTES, objects::one(0)).await?;
    for (flag, name) in [
        (feature::LARGE_BLOCKS, field::RESUME_LARGEBLOCK),
        (feature::EMBED_DATA, field::RESUME_EMBEDOK),
        (feature::COMPRESSED, field::RESUME_COMPRESSOK),
        (feature::RAW, field::RESUME_RAWOK),
    ] {
        if begin.features & flag != 0 {
            set(name, objects::one(1)).await?;
        }
    }
    Ok(())
}

/// The dataset that was received in part for a target: its child, or itself.
pub(super) async fn partial_of(s: &SyncTask, head: &FoundHead) -> Result<FoundHead> {
    let children = objects::dir(s, head.phys.dir).await?.child_dir_zap;
    let Some(dir) = objects::lookup(s, children, &objects::name(RECEIVE_CHILD)).await? else {
        return Ok(head.clone());
    };
    let object = objects::dir(s, ObjectId(dir)).await?.head_dataset;
    let phys = objects::dataset(s, object).await?;
    Ok(FoundHead { name: format!("{}/{RECEIVE_CHILD}", head.name), object, phys })
}

/// Goes on with a receive that broke off.
pub(super) async fn resume(
    s: &SyncTask,
    (begin, raw): Sent<'_>,
    target: &ReceiveTarget,
) -> Result<BegunReceive> {
    let head = find_head(s, &target.dataset).await?;
    let partial = partial_of(s, &head).await?;
    let is_new = partial.object == head.object;
    let other = |what: &str| invalid(format!("kernel modules must be upgraded or {what}"));
    if !is_new && begin.from_guid == Guid(0) && !target.force {
        return Err(Error::Exists("Resuming recv on existing dataset without force".to_owned()));
    }
    let number = async |name: &str| objects::field(s, partial.object, name).await;
    if !partial.phys.has(FLAG_INCONSISTENT) || !is_resumable(s, partial.object).await? {
        return invalid(format!("destination '{}' was not received in part", head.name));
    }
    if s.is_receiving(ObjsetId(partial.object.get())) {
        return Err(Error::Busy(format!("destination '{}' is being received into", head.name)));
    }
    let from = number(field::RESUME_FROMGUID).await?.unwrap_or(0);
    if number(field::RESUME_TOGUID).await? != Some(begin.to_guid.get()) || from != begin.from_guid.get() {
        return other("the stream is of another snapshot than what was received in part");
    }
    if number(field::RESUME_RAWOK).await?.is_some() != raw.is_some() {
        return other("of a raw stream and a plain one only one is resumed by the other");
    }
    check_base(s, (begin, raw), partial.object, &partial.phys).await?;
    if raw.is_some() {
        crypto::forget(s, partial.object);
        s.forget_dataset(ObjsetId(partial.object.get()));
    }
    s.require_for_change(Spare::Normal, 1)?;
    let point = ResumePoint {
        object: number(field::RESUME_OBJECT).await?.unwrap_or(0),
        offset: number(field::RESUME_OFFSET).await?.unwrap_or(0),
        bytes: number(field::RESUME_BYTES).await?.unwrap_or(0),
    };
    // It may have been begun by a version that did not store compressed blocks as they come.
    activate(s, begin, partial.object).await?;
    events::note(s, "resume receive", &partial.name, partial.object, events::NOTHING).await?;
    let objset = ObjsetId(partial.object.get());
    s.set_receiving(objset, true);
    let (head, name, raw) = (ObjsetId(head.object.get()), head.name, raw.cloned());
    Ok(BegunReceive { objset, head, name, resumes: Some(point), raw })
}

/// Notes how far a stream is that may be resumed.
pub(crate) async fn note_point(s: &SyncTask, objset: ObjsetId, point: ResumePoint) -> Result<()> {
    let id = ObjectId(objset.get());
    for (name, value) in [
        (field::RESUME_OBJECT, point.object),
        (field::RESUME_OFFSET, point.offset),
        (field::RESUME_BYTES, point.bytes),
    ] {
        objects::set_field(s, id, name, &objects::one(value)).await?;
    }
    Ok(())
}

/// Nothing is to be resumed any more.
pub(super) async fn forget_stream(s: &SyncTask, id: ObjectId) -> Result<()> {
    if objects::is_zapified(s, id).await? {
        for name in RESUME_FIELDS {
            objects::remove(s, id, &objects::name(name)).await?;
        }
    }
    Ok(())
}
