//! Datasets that are received from a stream: their beginning, how far they are, and their end.
//!
//! # The idea
//! A stream fills a dataset that nothing else uses: a new filesystem or volume, or the hidden child `%recv`
//! of one that is there, a clone of the snapshot from which the stream goes on. Until the stream has ended
//! that dataset has the flag *inconsistent*: it is not mounted, served or snapshotted. At the end the
//! contents of `%recv` and of the head are exchanged, as going back to a snapshot does it, and the snapshot
//! is taken that was sent, with its guid. So what was there before is whole until then.
//!
//! A receive that may be resumed notes in the dataset's object what it builds on and how far it is, with each
//! group that has data of it. What cannot be resumed is destroyed: when the receive fails, or at the next
//! import.
//!
//! # Encryption
//! A plain stream is encrypted where its new dataset is: below an encrypted one, or as properties ask for
//! (`super::crypto`); one that goes on takes the key of its destination, which must be loaded. A raw stream
//! brings its blocks and its key as they are, and needs no key: a new dataset is an encryption root of its
//! own. What goes on from a snapshot must be of the same key and the same set of IVs: each write gives a
//! block another IV, so the sets of two pools are the same only where one has all of its blocks from the
//! other.
//!
//! All that can be refused is refused in `begin`, before anything was changed, and again in `end` where
//! it may have changed meanwhile.
//!
//! | module | what it does |
//! |---|---|
//! | `existing` | what a dataset that exists must be like |
//! | `resume` | what a receive notes that may be resumed, and how it goes on |
//! | `end` | contents and snapshot take their place, or all of it goes |
//!
//! Source of the facts: OpenZFS 2.3 `dmu_recv.c`, `dsl_dataset.c` (`dsl_dataset_clone_swap_check_impl`).

mod end;
mod existing;
mod resume;

use ondisk::dsl_dataset::{self, DslDatasetPhys, FLAG_INCONSISTENT, field};
use ondisk::features::Feature;
use ondisk::objset::ObjsetType;
use ondisk::pool_version as version;
use std::sync::Arc;

use ondisk::send::{Begin, KeyData, begin_flag, feature};
use ondisk::{Guid, ObjectId, ObjsetId};

pub use end::abort;
pub(crate) use end::{abandon, destroy_remains, end};
pub(crate) use resume::note_point;

use super::crypto::{self, Encryption};
use super::limits::{self, Counted};
use super::properties::{self, Assignment};
use super::{
    FoundHead, FoundSnapshot, clone, contents, create, events, features, find_head, find_snapshot,
    name_of_dir, objects, origin_snapshot, policy, snapshot,
};
use crate::dmu::LiveObjset;
use crate::dsl::keys::UserKey;
use crate::dsl::{Asker, Spare, SyncTask};
use crate::error::{Error, Result};

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
const ACTIVATES: [(u64, Feature); 5] = [
    // Compressed blocks are stored as they come.
    (feature::ZSTD, Feature::ZstdCompress),
    (feature::LARGE_BLOCKS, Feature::LargeBlocks),
    (feature::LARGE_DNODE, Feature::LargeDnode),
    (feature::LARGE_MICROZAP, Feature::LargeMicrozap),
    (feature::LONGNAME, Feature::Longname),
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
    /// Who receives it.
    pub asker: Asker,
    /// What was asked for of the encryption of a new dataset, as typed.
    pub encryption: Vec<(String, String)>,
    /// The user's key, where that makes it an encryption root.
    pub key: Option<Arc<UserKey>>,
}

/// A receive that has begun.
#[derive(Debug, Clone)]
pub(crate) struct BegunReceive {
    /// What is filled.
    pub objset: ObjsetId,
    /// What gets the contents at the end; the same for a new dataset.
    pub head: ObjsetId,
    /// Full name of the latter.
    pub name: String,
    /// Goes on from here, where an interrupted receive is resumed.
    pub resumes: Option<ResumePoint>,
    /// The keys of a raw stream.
    pub raw: Option<Arc<KeyData>>,
}

/// A stream: its `BEGIN`, and the keys of a raw one.
pub(crate) type Sent<'a> = (&'a Begin, Option<&'a Arc<KeyData>>);

/// What a dataset that is filled begins as.
enum Made<'a> {
    /// A clone of a snapshot, which has the key of that.
    Clone(ObjectId, Option<&'a Arc<KeyData>>),
    /// An empty one, encrypted like this, with properties that follow from that.
    Empty(Encryption, Vec<Assignment>),
    /// An empty one for a raw stream.
    Raw(&'a Arc<KeyData>),
}

impl BegunReceive {
    /// Whether there was no such dataset.
    pub fn is_new(&self) -> bool {
        self.objset == self.head
    }
}

/// How far a stream was received.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct ResumePoint {
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

/// Whether a stream is of a volume.
pub fn is_of_volume(begin: &Begin) -> bool {
    matches!(kind_of(begin), Ok(ObjsetType::Zvol))
}

fn check_features(s: &SyncTask, begin: &Begin) -> Result<()> {
    check_stream(begin)?;
    let too_old = || Error::Unsupported("pool must be upgraded to receive this stream".to_owned());
    if begin.features & feature::SA_SPILL != 0 && !s.has_version(version::SYSTEM_ATTRIBUTES) {
        return Err(too_old());
    }
    if begin.features & feature::RAW != 0 {
        check_raw(s, begin)?;
    }
    for (flag, needed) in NEEDS {
        if begin.features & flag != 0 && !s.feature_enabled(needed) {
            return Err(Error::Unsupported(format!("{}: it lacks feature@{}", too_old(), needed.name())));
        }
    }
    Ok(())
}

/// Checks what a raw stream must be like.
fn check_raw(s: &SyncTask, begin: &Begin) -> Result<()> {
    if !s.feature_enabled(Feature::Encryption) || !s.feature_enabled(Feature::BookmarkV2) {
        return unsupported("pool must be upgraded to receive this stream: it lacks feature@encryption");
    }
    if begin.features & feature::EMBED_DATA != 0 {
        return invalid("invalid stream: embedded blocks in a raw stream");
    }
    if begin.flags & begin_flag::SPILL_BLOCK == 0 {
        return unsupported(
            "Spill block flag missing for raw send.\nThe zfs software on the sending system must be updated.",
        );
    }
    Ok(())
}

/// Refuses a plain stream with embedded blocks where they would have to be encrypted.
fn refuse_embedded(begin: &Begin) -> Result<()> {
    match begin.features & feature::EMBED_DATA {
        0 => Ok(()),
        _ => invalid("incompatible embedded data stream feature with encrypted receive."),
    }
}

/// Begins to receive a stream, or goes on with one that broke off.
pub(crate) async fn begin(
    s: &SyncTask,
    (begin, raw): Sent<'_>,
    target: &ReceiveTarget,
) -> Result<BegunReceive> {
    check_features(s, begin)?;
    if begin.features & feature::RESUMING != 0 {
        return resume::resume(s, (begin, raw), target).await;
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
        Some(head) => existing::begin_existing(s, (begin, raw), target, head).await?,
        None => begin_new(s, (begin, raw), target).await?,
    };
    // The dataset is there: with an error nothing of the group is committed.
    let filled = mark(s, begin, target, &begun).await;
    if let Err(error) = &filled {
        s.tx.note_half_done(error.clone());
    }
    filled.map(|()| begun)
}

/// A dataset that does not exist yet.
async fn begin_new(s: &SyncTask, (begin, raw): Sent<'_>, target: &ReceiveTarget) -> Result<BegunReceive> {
    let name = &target.dataset;
    if begin.from_guid != Guid(0) && target.origin.is_none() {
        return Err(Error::NotFound(format!("destination '{name}'")));
    }
    let origin = match &target.origin {
        Some(origin) => Some(check_origin(s, (begin, raw), origin).await?),
        None => None,
    };
    let Some((above, short)) = name.rsplit_once('/') else {
        return invalid(format!("'{name}': a dataset's name begins with its pool's"));
    };
    create::check_name(name, short)?;
    snapshot::check_name(&format!("{name}@{}", target.snapshot), &target.snapshot)?;
    let parent = find_head(s, above).await?;
    create::check_parent(s, &parent, short, name).await?;
    let made = made_of(s, (begin, raw), target, (&parent, origin)).await?;
    limits::check(s, parent.phys.dir, Counted::Filesystems, 1, None).await?;
    limits::check(s, parent.phys.dir, Counted::Snapshots, 1, None).await?;
    s.require_for_change(Spare::Normal, create::BLOCKS)?;
    let made = make(s, begin, (parent.phys.dir, short), made).await;
    let id = made.inspect_err(|error| s.tx.note_half_done(error.clone()))?;
    let (name, raw) = (name.clone(), raw.cloned());
    Ok(BegunReceive { objset: id, head: id, name, resumes: None, raw })
}

/// What a new dataset below a parent begins as.
async fn made_of<'a>(
    s: &SyncTask,
    (begin, raw): Sent<'a>,
    target: &ReceiveTarget,
    (parent, origin): (&FoundHead, Option<ObjectId>),
) -> Result<Made<'a>> {
    let asked = crypto::typed(&target.encryption)?;
    if let Some(keys) = raw {
        if let Some(first) = asked.first() {
            return invalid(format!(
                "encryption property '{}' cannot be set or excluded for raw streams.",
                first.name
            ));
        }
        if origin.is_none() {
            crypto::check_received(s, None, keys).await?;
            return Ok(Made::Raw(keys));
        }
    }
    if let Some(origin) = origin {
        crypto::check_nothing_asked(&target.encryption)?;
        return Ok(Made::Clone(origin, raw));
    }
    let mut plan = asked;
    let encryption = crypto::plan(s, &mut plan, Some(parent), target.key.as_ref(), false).await?;
    if !matches!(encryption, Encryption::Off) {
        refuse_embedded(begin)?;
    }
    Ok(Made::Empty(encryption, plan))
}

/// The snapshot that a new dataset is to be a clone of.
async fn check_origin(s: &SyncTask, (begin, raw): Sent<'_>, origin: &str) -> Result<ObjectId> {
    let FoundSnapshot { name, object, phys } = find_snapshot(s, origin).await?;
    if begin.from_guid == Guid(0) && raw.is_some() {
        return invalid("a full raw stream cannot be received as a clone");
    }
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
    check_base(s, (begin, raw), object, &phys).await?;
    check_ivset(s, raw, object).await?;
    Ok(object)
}

/// Whether a stream can go on from a snapshot.
async fn check_base(s: &SyncTask, (begin, raw): Sent<'_>, id: ObjectId, phys: &DslDatasetPhys) -> Result<()> {
    match (policy::is_encrypted(s, phys.dir).await?, raw) {
        (false, Some(_)) => {
            return invalid("cannot perform raw receive on top of existing unencrypted dataset");
        }
        (true, Some(keys)) => crypto::check_received(s, Some(phys.dir), keys).await?,
        (true, None) => {
            if !s.pool().keystore().is_loaded(ObjsetId(id.get())) {
                return invalid("inherited key must be loaded");
            }
            refuse_embedded(begin)?;
        }
        (false, None) => {}
    }
    if objects::field(s, id, Feature::RedactedDatasets.guid()).await?.is_some() {
        return unsupported("redacted datasets cannot be written by this version");
    }
    let has_large = objects::field(s, id, Feature::LargeBlocks.guid()).await?.is_some();
    if has_large && begin.features & feature::LARGE_BLOCKS == 0 && begin.from_guid != Guid(0) {
        return invalid("incremental send stream requires -L (--large-block), to match previous receive.");
    }
    Ok(())
}

/// Whether a snapshot has the set of IVs that the snapshot of a raw stream had from which that goes on.
async fn check_ivset(s: &SyncTask, raw: Option<&Arc<KeyData>>, base: ObjectId) -> Result<()> {
    let Some(keys) = raw else { return Ok(()) };
    let ours = objects::field(s, base, field::IVSET_GUID).await?.unwrap_or(0);
    if ours == 0 || keys.from_ivset == Guid(0) {
        return invalid(
            "IV set guid missing. See errata 4 at https://openzfs.github.io/openzfs-docs/msg/ZFS-8000-ER.",
        );
    }
    match ours == keys.from_ivset.get() {
        true => Ok(()),
        false => invalid(
            "IV set guid mismatch. The incremental source snapshot on the destination no longer has the IV \
             set it was sent with, most commonly because it was received as a non-raw (plain) stream. Raw \
             replication can be resumed by rolling the destination back to the most recent snapshot that \
             was received raw and taking the raw incremental from there, or by receiving a new full raw \
             (zfs send -w) stream.",
        ),
    }
}

/// Creates the dataset that is filled, as a clone of a snapshot or empty.
async fn make(
    s: &SyncTask,
    begin: &Begin,
    (above, short): (ObjectId, &str),
    made: Made<'_>,
) -> Result<ObjsetId> {
    let dir = create::create_dir(s, Some(above), short).await?;
    limits::begin(s, dir).await?;
    let kind = kind_of(begin)?;
    let (id, raw) = match made {
        Made::Clone(origin, raw) => {
            let id = create::create_dataset(s, dir, Some(origin)).await?;
            if raw.is_some() {
                // What is received raw is not read with a key before it is whole.
                crypto::forget(s, id);
            }
            clone::forget_log(s, id).await?;
            return Ok(ObjsetId(id.get()));
        }
        Made::Empty(encryption, plan) => {
            let id = create::create_dataset(s, dir, origin_snapshot(s).await?).await?;
            crypto::encrypt(s, (Some(above), dir, id), &encryption).await?;
            for assignment in &plan {
                properties::store(s, dir, assignment).await?;
            }
            (id, None)
        }
        Made::Raw(keys) => {
            let id = create::create_dataset(s, dir, origin_snapshot(s).await?).await?;
            crypto::adopt(s, (dir, id), keys).await?;
            (id, Some(keys))
        }
    };
    let objset_id = ObjsetId(id.get());
    let objset = LiveObjset::create(s.pool(), objset_id, kind, policy::of_dir(s, dir).await?, &s.tx);
    if let Some(keys) = raw {
        objset.receive_raw(&keys.objset)?;
    } else if kind == ObjsetType::Zfs && !s.has_version(version::USERSPACE) {
        objset.count_nothing();
    } else if kind == ObjsetType::Zfs {
        let counts = |feature| s.feature_enabled(feature);
        objset.count_also(counts(Feature::UserobjAccounting), counts(Feature::ProjectQuota));
        features::count_files(s, objset_id).await?;
    }
    create::write(s, &objset).await?;
    Ok(objset_id)
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
    activate(s, begin, id).await?;
    if target.resumable {
        resume::note_stream(s, begin, id).await?;
    }
    let name = match begun.is_new() {
        true => begun.name.clone(),
        false => format!("{}/{RECEIVE_CHILD}", begun.name),
    };
    s.set_receiving(begun.objset, true);
    events::created(s, &name, objects::dataset(s, id).await?.guid, None);
    events::note(s, "receive", &name, id, events::NOTHING).await
}

/// The dataset that is filled uses what the stream uses.
async fn activate(s: &SyncTask, begin: &Begin, id: ObjectId) -> Result<()> {
    for (flag, feature) in ACTIVATES {
        if begin.features & flag != 0 {
            features::activate_all(s, id, &[feature]).await?;
        }
    }
    Ok(())
}

/// The head that is this object.
async fn head_of(s: &SyncTask, id: ObjsetId) -> Result<FoundHead> {
    let object = ObjectId(id.get());
    let phys = objects::dataset(s, object).await?;
    Ok(FoundHead { name: name_of_dir(s, phys.dir).await?, object, phys })
}
