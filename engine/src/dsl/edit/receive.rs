//! Datasets that are received from a stream: their beginning, how far they are, and their end.
//!
//! # The idea
//! A stream fills a dataset that nothing else uses: a new filesystem or volume, or the hidden child `%recv` of
//! one that is there, a clone of the snapshot from which the stream goes on. Until the stream has ended that
//! dataset has the flag *inconsistent*: it is not mounted, served or snapshotted. At the end the contents of
//! `%recv` and of the head are exchanged, as going back to a snapshot does it, and the snapshot is taken that
//! was sent, with its guid. So what was there before is whole until then.
//!
//! A receive that may be resumed notes in the dataset's object what it builds on and how far it is, with each
//! group that has data of it. What cannot be resumed is destroyed: when the receive fails, or at the next
//! import.
//!
//! All that can be refused is refused in [`begin`], before anything was changed, and again in [`end`] where it
//! may have changed meanwhile.
//!
//! Source of the facts: OpenZFS 2.3 `dmu_recv.c`, `dsl_dataset.c` (`dsl_dataset_clone_swap_check_impl`).

use ondisk::dsl_dataset::{self, DslDatasetPhys, FLAG_INCONSISTENT, field};
use ondisk::features::Feature;
use ondisk::objset::ObjsetType;
use ondisk::pool_version as version;
use ondisk::send::{Begin, begin_flag, feature};
use ondisk::zap::ZapValue;
use ondisk::{Guid, ObjectId, ObjsetId};

use super::limits::{self, Counted};
use super::{
    FoundHead, FoundSnapshot, clone, contents, create, destroy, destroy_snapshot, events, features,
    find_head, find_snapshot, name_of_dir, objects, origin_snapshot, policy, properties, snapshot, space,
};
use crate::dmu::{LiveObjset, Objset};
use crate::dsl::{Spare, SyncTask};
use crate::error::{Error, Result};
use crate::properties::Prop;

/// Name of the hidden child that is filled for a dataset that exists.
pub const RECEIVE_CHILD: &str = "%recv";

/// Features of streams, and the pool's feature without which they cannot be received.
const NEEDS: [(u64, Feature); 7] = [
    (feature::LZ4, Feature::Lz4Compress),
    (feature::ZSTD, Feature::ZstdCompress),
    (feature::EMBED_DATA, Feature::EmbeddedData),
    (feature::LARGE_BLOCKS, Feature::LargeBlocks),
    (feature::LARGE_DNODE, Feature::LargeDnode),
    (feature::LARGE_MICROZAP, Feature::LargeMicrozap),
    (feature::LONGNAME, Feature::Longname),
];

/// Features of streams that the dataset has from then on.
const ACTIVATES: [(u64, Feature); 4] = [
    (feature::LARGE_BLOCKS, Feature::LargeBlocks),
    (feature::LARGE_DNODE, Feature::LargeDnode),
    (feature::LARGE_MICROZAP, Feature::LargeMicrozap),
    (feature::LONGNAME, Feature::Longname),
];

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

/// Where a stream is to be received.
#[derive(Debug, Clone, Default)]
pub struct ReceiveTarget {
    /// The filesystem or volume.
    pub dataset: String,
    /// The part of the snapshot's name behind the `@`.
    pub snapshot: String,
    /// The snapshot that a new dataset is to be a clone of.
    pub origin: Option<String>,
    /// What was changed since the last common snapshot is given up.
    pub force: bool,
    /// What was received stays when the stream breaks off.
    pub resumable: bool,
}

/// A receive that has begun.
#[derive(Debug, Clone)]
pub struct BegunReceive {
    /// What is filled.
    pub objset: ObjsetId,
    /// What gets the contents at the end; the same for a new dataset.
    pub head: ObjsetId,
    /// Full name of the latter.
    pub name: String,
    /// Goes on from here, where an interrupted receive is resumed.
    pub resumes: Option<ResumePoint>,
}

impl BegunReceive {
    /// Whether there was no such dataset.
    pub fn is_new(&self) -> bool {
        self.objset == self.head
    }
}

/// How far a stream was received.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ResumePoint {
    /// The object of the last record.
    pub object: u64,
    /// The offset of the last record, in bytes.
    pub offset: u64,
    /// Bytes of the stream.
    pub bytes: u64,
}

fn invalid<T>(text: impl Into<String>) -> Result<T> {
    Err(Error::Invalid(text.into()))
}

fn unsupported<T>(text: impl Into<String>) -> Result<T> {
    Err(Error::Unsupported(text.into()))
}

/// Refuses streams of a kind that cannot be received here.
pub fn check_stream(begin: &Begin) -> Result<()> {
    for (flag, what) in [
        (feature::DEDUP, "deduplicated streams are no longer received: 'zstream redup' makes it a plain one"),
        (feature::RAW, "raw streams of encrypted datasets cannot be received by this version"),
        (feature::REDACTED, "redacted streams cannot be received by this version"),
    ] {
        if begin.features & flag != 0 {
            return unsupported(what);
        }
    }
    // What dedup keys are good for is no matter here.
    let unknown = begin.unknown_features() & !feature::DEDUPPROPS;
    if unknown != 0 {
        return unsupported(format!("stream has unsupported feature, feature flags = {unknown:#x}"));
    }
    kind_of(begin).map(drop)
}

fn kind_of(begin: &Begin) -> Result<ObjsetType> {
    match begin.objset_type {
        2 => Ok(ObjsetType::Zfs),
        3 => Ok(ObjsetType::Zvol),
        other => invalid(format!("invalid stream: it is of an object set of type {other}")),
    }
}

fn check_features(s: &SyncTask, begin: &Begin) -> Result<()> {
    check_stream(begin)?;
    let too_old = || Error::Unsupported("pool must be upgraded to receive this stream".to_owned());
    if begin.features & feature::SA_SPILL != 0 && !s.has_version(version::SYSTEM_ATTRIBUTES) {
        return Err(too_old());
    }
    for (flag, needed) in NEEDS {
        if begin.features & flag != 0 && !s.feature_enabled(needed) {
            return Err(Error::Unsupported(format!("{}: it lacks feature@{}", too_old(), needed.name())));
        }
    }
    Ok(())
}

/// Begins to receive a stream, or goes on with one that broke off.
pub(crate) async fn begin(s: &SyncTask, begin: &Begin, target: &ReceiveTarget) -> Result<BegunReceive> {
    check_features(s, begin)?;
    if begin.features & feature::RESUMING != 0 {
        return resume(s, begin, target).await;
    }
    if target.resumable && !s.feature_enabled(Feature::ExtensibleDataset) {
        return unsupported("pool must be upgraded to receive this stream");
    }
    let found = match find_head(s, &target.dataset).await {
        Ok(head) => Some(head),
        Err(Error::NotFound(_)) => None,
        Err(error) => return Err(error),
    };
    let begun = match &found {
        Some(head) => begin_existing(s, begin, target, head).await?,
        None => begin_new(s, begin, target).await?,
    };
    // The dataset is there: with an error nothing of the group is committed.
    let filled = mark(s, begin, target, &begun).await;
    if let Err(error) = &filled {
        s.tx.note_half_done(error.clone());
    }
    filled.map(|()| begun)
}

/// A dataset that does not exist yet.
async fn begin_new(s: &SyncTask, begin: &Begin, target: &ReceiveTarget) -> Result<BegunReceive> {
    let name = &target.dataset;
    if begin.from_guid != Guid(0) && target.origin.is_none() {
        return Err(Error::NotFound(format!("destination '{name}'")));
    }
    let origin = match &target.origin {
        Some(origin) => Some(check_origin(s, begin, origin).await?),
        None => None,
    };
    let Some((above, short)) = name.rsplit_once('/') else {
        return invalid(format!("'{name}': a dataset's name begins with its pool's"));
    };
    create::check_name(name, short)?;
    snapshot::check_name(&format!("{name}@{}", target.snapshot), &target.snapshot)?;
    let parent = find_head(s, above).await?;
    create::check_parent(s, &parent, short, name).await?;
    policy::of_dir(s, parent.phys.dir).await?;
    limits::check(s, parent.phys.dir, Counted::Filesystems, 1, None).await?;
    limits::check(s, parent.phys.dir, Counted::Snapshots, 1, None).await?;
    s.require_for_change(Spare::Normal, create::BLOCKS)?;
    let made = make(s, begin, (parent.phys.dir, short), origin).await;
    let id = made.inspect_err(|error| s.tx.note_half_done(error.clone()))?;
    Ok(BegunReceive { objset: id, head: id, name: name.clone(), resumes: None })
}

/// The snapshot that a new dataset is to be a clone of.
async fn check_origin(s: &SyncTask, begin: &Begin, origin: &str) -> Result<ObjectId> {
    let FoundSnapshot { name, object, phys } = find_snapshot(s, origin).await?;
    if begin.from_guid == Guid(0) && begin.flags & begin_flag::FREERECORDS == 0 {
        return invalid("a full stream without records of what is free cannot be received as a clone");
    }
    if begin.from_guid != Guid(0) && phys.guid != begin.from_guid {
        return invalid(format!("the stream is not incremental from its origin '{name}'"));
    }
    let head = FoundHead { name: name.clone(), object, phys };
    if contents::kind(s, &head).await? != kind_of(begin)? {
        return invalid(format!("the origin '{name}' is of another type than the stream"));
    }
    check_base(s, begin, object, &phys).await?;
    Ok(object)
}

/// Whether a stream can go on from a snapshot.
async fn check_base(s: &SyncTask, begin: &Begin, id: ObjectId, phys: &DslDatasetPhys) -> Result<()> {
    if policy::is_encrypted(s, phys.dir).await? {
        return unsupported("encrypted datasets cannot be written by this version");
    }
    if objects::field(s, id, Feature::RedactedDatasets.guid()).await?.is_some() {
        return unsupported("redacted datasets cannot be written by this version");
    }
    let has_large = objects::field(s, id, Feature::LargeBlocks.guid()).await?.is_some();
    if has_large && begin.features & feature::LARGE_BLOCKS == 0 && begin.from_guid != Guid(0) {
        return invalid(
            "incremental send stream requires -L (--large-block), to match previous receive.",
        );
    }
    Ok(())
}

/// Creates the dataset that is filled, as a clone of a snapshot or empty.
async fn make(
    s: &SyncTask,
    begin: &Begin,
    (above, short): (ObjectId, &str),
    origin: Option<ObjectId>,
) -> Result<ObjsetId> {
    let dir = create::create_dir(s, Some(above), short).await?;
    if short == RECEIVE_CHILD {
        // It is no dataset of a user's.
        limits::adjust(s, above, Counted::Filesystems, -1).await?;
    }
    limits::begin(s, dir).await?;
    let kind = kind_of(begin)?;
    let id = match origin {
        Some(origin) => {
            let id = create::create_dataset(s, dir, Some(origin)).await?;
            clone::forget_log(s, id).await?;
            id
        }
        None => create::create_dataset(s, dir, origin_snapshot(s).await?).await?,
    };
    let objset_id = ObjsetId(id.get());
    if origin.is_none() {
        let objset = LiveObjset::create(s.pool(), objset_id, kind, policy::of_dir(s, dir).await?, &s.tx);
        if kind == ObjsetType::Zfs && !s.has_version(version::USERSPACE) {
            objset.count_nothing();
        } else if kind == ObjsetType::Zfs {
            let counts = |feature| s.feature_enabled(feature);
            objset.count_also(counts(Feature::UserobjAccounting), counts(Feature::ProjectQuota));
            features::count_files(s, objset_id).await?;
        }
        create::write(s, &objset).await?;
    }
    Ok(objset_id)
}

/// A dataset that exists: its child is filled.
async fn begin_existing(
    s: &SyncTask,
    begin: &Begin,
    target: &ReceiveTarget,
    head: &FoundHead,
) -> Result<BegunReceive> {
    if begin.flags & begin_flag::CLONE != 0 || target.origin.is_some() {
        return Err(Error::Exists(format!("destination '{}'", head.name)));
    }
    refuse_partial(s, head).await?;
    snapshot::check_name(&format!("{}@{}", head.name, target.snapshot), &target.snapshot)?;
    if let Some((stored, _)) = snapshot::by_name(s, &head.phys, &target.snapshot).await? {
        return Err(Error::Exists(format!("destination snapshot '{}@{stored}'", head.name)));
    }
    if contents::kind(s, head).await? != kind_of(begin)? {
        return invalid(format!("destination '{}' is of another type than the stream", head.name));
    }
    limits::check(s, head.phys.dir, Counted::Snapshots, 1, None).await?;
    destroy::check_supported(s, head).await?;
    policy::of_dir(s, head.phys.dir).await?;
    let base = match begin.from_guid == Guid(0) {
        false => Some(base_of(s, begin, target, head).await?),
        true => {
            if !target.force {
                return Err(Error::Exists(format!("destination '{}'", head.name)));
            }
            check_overwritten(s, head).await?;
            None
        }
    };
    s.require_for_change(Spare::Normal, create::BLOCKS)?;
    let made = make(s, begin, (head.phys.dir, RECEIVE_CHILD), base).await;
    let objset = made.inspect_err(|error| s.tx.note_half_done(error.clone()))?;
    let (name, head) = (head.name.clone(), ObjsetId(head.object.get()));
    Ok(BegunReceive { objset, head, name, resumes: None })
}

/// Refuses a dataset that is being received, or was received in part.
async fn refuse_partial(s: &SyncTask, head: &FoundHead) -> Result<()> {
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

/// Whether an interrupted receive into a dataset can be resumed.
pub(super) async fn is_resumable(s: &SyncTask, id: ObjectId) -> Result<bool> {
    Ok(objects::field(s, id, field::RESUME_TOGUID).await?.is_some())
}

/// A full stream takes the place of a dataset that has nothing else.
async fn check_overwritten(s: &SyncTask, head: &FoundHead) -> Result<()> {
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
async fn base_of(
    s: &SyncTask,
    begin: &Begin,
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
    check_base(s, begin, at, &base).await?;
    if target.force {
        for later in snapshots_after(s, head, at).await? {
            destroy_snapshot::check(s, &later).await?;
        }
        return Ok(at);
    }
    if is_modified_since(s, head, at, &base).await? {
        return Err(modified(head));
    }
    // There may be snapshots after it that have the same contents.
    Ok(head.phys.prev_snap)
}

fn modified(head: &FoundHead) -> Error {
    Error::Busy(format!("destination {} has been modified\nsince most recent snapshot", head.name))
}

/// Whether anything but the intent log of a head is other than in a snapshot.
async fn is_modified_since(
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
async fn snapshots_after(s: &SyncTask, head: &FoundHead, base: ObjectId) -> Result<Vec<FoundSnapshot>> {
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

/// Makes a dataset one that is being received.
async fn mark(s: &SyncTask, begin: &Begin, target: &ReceiveTarget, begun: &BegunReceive) -> Result<()> {
    let id = ObjectId(begun.objset.get());
    let is_case_insensitive = begin.flags & begin_flag::CI_DATA != 0;
    objects::change_dataset(s, id, |phys| {
        phys.flags |= FLAG_INCONSISTENT;
        if is_case_insensitive {
            phys.flags |= dsl_dataset::FLAG_CI_DATASET;
        }
    })
    .await?;
    for (flag, feature) in ACTIVATES {
        if begin.features & flag != 0 {
            features::activate_all(s, id, &[feature]).await?;
        }
    }
    if target.resumable {
        note_stream(s, begin, id).await?;
    }
    let name = match begun.is_new() {
        true => begun.name.clone(),
        false => format!("{}/{RECEIVE_CHILD}", begun.name),
    };
    s.set_receiving(begun.objset, true);
    events::note(s, "receive", &name, id, events::NOTHING).await
}

/// Notes which stream it is that may be resumed.
async fn note_stream(s: &SyncTask, begin: &Begin, id: ObjectId) -> Result<()> {
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
    ] {
        if begin.features & flag != 0 {
            set(name, objects::one(1)).await?;
        }
    }
    Ok(())
}

/// The dataset that was received in part for a target: its child, or itself.
async fn partial_of(s: &SyncTask, head: &FoundHead) -> Result<FoundHead> {
    let children = objects::dir(s, head.phys.dir).await?.child_dir_zap;
    let Some(dir) = objects::lookup(s, children, &objects::name(RECEIVE_CHILD)).await? else {
        return Ok(head.clone());
    };
    let object = objects::dir(s, ObjectId(dir)).await?.head_dataset;
    let phys = objects::dataset(s, object).await?;
    Ok(FoundHead { name: format!("{}/{RECEIVE_CHILD}", head.name), object, phys })
}

/// Goes on with a receive that broke off.
async fn resume(s: &SyncTask, begin: &Begin, target: &ReceiveTarget) -> Result<BegunReceive> {
    let head = find_head(s, &target.dataset).await?;
    let partial = partial_of(s, &head).await?;
    let is_new = partial.object == head.object;
    let other = |what: &str| invalid(format!("kernel modules must be upgraded or {what}"));
    if !is_new && begin.from_guid == Guid(0) && !target.force {
        return Err(Error::Exists(
            "Resuming recv on existing dataset without force".to_owned(),
        ));
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
    check_base(s, begin, partial.object, &partial.phys).await?;
    policy::of_dir(s, partial.phys.dir).await?;
    s.require_for_change(Spare::Normal, 1)?;
    let point = ResumePoint {
        object: number(field::RESUME_OBJECT).await?.unwrap_or(0),
        offset: number(field::RESUME_OFFSET).await?.unwrap_or(0),
        bytes: number(field::RESUME_BYTES).await?.unwrap_or(0),
    };
    events::note(s, "resume receive", &partial.name, partial.object, events::NOTHING).await?;
    let objset = ObjsetId(partial.object.get());
    s.set_receiving(objset, true);
    Ok(BegunReceive { objset, head: ObjsetId(head.object.get()), name: head.name, resumes: Some(point) })
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

/// The head that is this object.
async fn head_of(s: &SyncTask, id: ObjsetId) -> Result<FoundHead> {
    let object = ObjectId(id.get());
    let phys = objects::dataset(s, object).await?;
    Ok(FoundHead { name: name_of_dir(s, phys.dir).await?, object, phys })
}

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

/// Whether the contents of a head can be exchanged for what was received. Gives the snapshots that have to go.
async fn check_swap(
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
async fn finish(
    s: &SyncTask,
    (begin, target, begun): (&Begin, &ReceiveTarget, &BegunReceive),
    (filled, head): (FoundHead, FoundHead),
    later: Vec<FoundSnapshot>,
) -> Result<()> {
    let text = format!("snap={}", target.snapshot);
    events::note(s, "finish receiving", &filled.name, filled.object, &text).await?;
    if !begun.is_new() {
        for FoundSnapshot { name, object, .. } in later {
            destroy_snapshot::destroy_now(s, object).await?;
            events::note(s, "destroy", &name, object, events::NOTHING).await?;
        }
        clone::swap(s, filled.object, head.object).await?;
    }
    let id = snapshot::take(s, head.object, &target.snapshot).await?;
    objects::change_dataset(s, id, |phys| {
        phys.guid = begin.to_guid;
        phys.creation_time = begin.creation_time;
        phys.flags &= !FLAG_INCONSISTENT;
    })
    .await?;
    objects::change_dataset(s, head.object, |phys| phys.flags &= !FLAG_INCONSISTENT).await?;
    let name = format!("{}@{}", head.name, target.snapshot);
    events::note(s, "snapshot", &name, id, events::NOTHING).await?;
    s.set_receiving(begun.objset, false);
    match begun.is_new() {
        true => forget_stream(s, head.object).await?,
        false => destroy_filled(s, filled.object, &filled.name).await?,
    }
    s.forget_dataset(begun.objset);
    s.forget_dataset(begun.head);
    Ok(())
}

/// Nothing is to be resumed any more.
async fn forget_stream(s: &SyncTask, id: ObjectId) -> Result<()> {
    if objects::is_zapified(s, id).await? {
        for name in RESUME_FIELDS {
            objects::remove(s, id, &objects::name(name)).await?;
        }
    }
    Ok(())
}

/// Destroys a dataset that was filled.
async fn destroy_filled(s: &SyncTask, id: ObjectId, name: &str) -> Result<()> {
    let phys = objects::dataset(s, id).await?;
    if name.ends_with(RECEIVE_CHILD) {
        // It was not counted.
        let above = objects::dir(s, phys.dir).await?.parent;
        limits::adjust(s, above, Counted::Filesystems, 1).await?;
    }
    let filled = FoundHead { name: name.to_owned(), object: id, phys };
    destroy::destroy_head(s, &filled).await?;
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

async fn give_up(s: &SyncTask, filled: &FoundHead) -> Result<()> {
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
    give_up(s, &partial).await
}

/// Destroys what a receive left that cannot be resumed. For a pool that was just imported.
pub(crate) async fn destroy_remains(s: &SyncTask, objset: ObjsetId) -> Result<()> {
    abandon(s, objset, true).await
}

