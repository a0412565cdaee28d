//! Snapshots: taken, renamed, held, released.
//!
//! A snapshot takes the head's place in its chain: it gets the head's root block and deadlist, and the head
//! goes on with an empty deadlist that has one key more. Nothing is copied and nothing is counted anew, but
//! that the head has no unique space left and so uses up nothing of its refreservation. The head must be
//! written before: sync tasks run after the datasets of their group.
//!
//! Source of the facts: OpenZFS 2.3 `dsl_dataset.c`, `dsl_userhold.c`.

use std::collections::HashSet;

use ondisk::dmu::DmuType;
use ondisk::dsl_dataset::{self, DslDatasetPhys, field};
use ondisk::features::Feature;
use ondisk::holds::{MAX_DATASET_NAME_BYTES, temporary_hold_key};
use ondisk::pool_directory::{DIRECTORY_OBJECT, TMP_USERREFS, hidden_dir};
use ondisk::pool_version as version;
use ondisk::{Guid, ObjectId, Txg};

use super::limits::{self, Counted};
use super::space::{self, Change, Used, did_use};
use super::{
    FoundHead, FoundSnapshot, account, bookmark, check_component, clones, create, crypto, deadlist, events,
    features, find_head, find_snapshot, objects, policy, properties,
};
use crate::dmu::zap::edit::NewZap;
use crate::dsl::{Lineage, Spare, SyncTask};
use crate::error::{Error, Result};
use crate::properties::Prop;

/// Blocks that a snapshot takes.
const BLOCKS: u64 = 3;
/// The property of a snapshot that counts its holds.
const HOLDS: &str = "userrefs";
/// The longest tag of a hold.
const MAX_TAG_BYTES: usize = 255;

/// A snapshot to be taken.
#[derive(Debug, Clone)]
pub struct NewSnapshot {
    /// Full name, `pool/fs@name`.
    pub name: String,
    /// Its user properties, as typed.
    pub properties: Vec<(String, String)>,
}

/// Takes snapshots, all in this group: all or none.
pub async fn snapshot(s: &SyncTask, new: &[NewSnapshot]) -> Result<()> {
    let mut heads = Vec::new();
    let mut seen = HashSet::new();
    let mut more: Vec<(ObjectId, u64)> = Vec::new();
    for one in new {
        let (of, short) = split(&one.name)?;
        let head = find_head(s, of).await?;
        if !seen.insert(head.object) {
            return Err(Error::Invalid(format!("{of}: more than one snapshot at once")));
        }
        check_new(s, &head, &one.name, short).await?;
        properties::check_user_only(s, &one.properties)?;
        for (dir, _) in space::chain(s, head.phys.dir).await? {
            match more.iter_mut().find(|(id, _)| *id == dir) {
                Some((_, count)) => *count += 1,
                None => more.push((dir, 1)),
            }
        }
        heads.push((head, short));
    }
    // Each directory is asked about all that comes below it.
    for (dir, count) in more {
        limits::check(s, dir, Counted::Snapshots, count, objects_parent(s, dir).await?).await?;
    }
    s.require_for_change(Spare::Normal, BLOCKS.saturating_mul(heads.len() as u64))?;
    for ((head, short), one) in heads.iter().zip(new) {
        let id = take(s, head.object, short).await?;
        properties::store_snapshot(s, id, &one.properties, "").await?;
        events::note(s, "snapshot", &one.name, id, events::NOTHING).await?;
        events::created(s, &one.name, objects::dataset(s, id).await?.guid, None);
    }
    Ok(())
}

async fn objects_parent(s: &SyncTask, dir: ObjectId) -> Result<Option<ObjectId>> {
    Ok(Some(objects::dir(s, dir).await?.parent).filter(|parent| !parent.is_none()))
}

/// The dataset and the snapshot of a snapshot's name.
pub(super) fn split(name: &str) -> Result<(&str, &str)> {
    name.split_once('@').ok_or_else(|| Error::Invalid(format!("'{name}': not a snapshot's name")))
}

pub(super) fn check_name(full: &str, short: &str) -> Result<()> {
    if full.len() >= MAX_DATASET_NAME_BYTES {
        return Err(Error::Invalid(format!("'{full}': the name is too long")));
    }
    if short.contains(['$', '%']) {
        return Err(Error::Invalid(format!("'{full}': names of snapshots cannot contain $ or %")));
    }
    check_component(full, short)
}

/// Checks that a snapshot can be taken (`dsl_dataset_snapshot_check_impl`).
pub(super) async fn check_new(s: &SyncTask, head: &FoundHead, full: &str, short: &str) -> Result<()> {
    check_name(full, short)?;
    create::check_not_snapshotted(s, &head.name, head.phys.prev_snap_txg)?;
    if by_name(s, &head.phys, short).await?.is_some() {
        return Err(Error::Exists(full.to_owned()));
    }
    if head.phys.has(dsl_dataset::FLAG_INCONSISTENT) {
        return Err(Error::Busy(format!("{}: is being received or destroyed", head.name)));
    }
    // What is unique to the head is the snapshot's from now on, and the refreservation wants its space again.
    let reserved = properties::number(s, head.phys.dir, Prop::Refreservation).await?;
    create::check_room(s, head.phys.dir, head.phys.unique_bytes.min(reserved)).await
}

/// The snapshot `short` of a head: its name as stored, and its object.
pub(super) async fn by_name(
    s: &SyncTask,
    head: &DslDatasetPhys,
    short: &str,
) -> Result<Option<(String, ObjectId)>> {
    if head.has(dsl_dataset::FLAG_CI_DATASET) {
        let entries = objects::entries(s, head.snapnames_zap).await?;
        let same = |stored: &str| stored.to_lowercase() == short.to_lowercase();
        let found = entries.into_iter().find(|(stored, _)| same(stored));
        return Ok(found.map(|(stored, id)| (stored, ObjectId(id))));
    }
    let found = objects::lookup(s, head.snapnames_zap, &objects::name(short)).await?;
    Ok(found.map(|id| (short.to_owned(), ObjectId(id))))
}

/// The name of a snapshot among those of its head.
pub(super) async fn name_of(s: &SyncTask, head: &DslDatasetPhys, id: ObjectId) -> Result<String> {
    let entries = objects::entries(s, head.snapnames_zap).await?;
    let found = entries.into_iter().find(|(_, snapshot)| *snapshot == id.get());
    Ok(found.ok_or_else(|| objects::corrupt(id, "a snapshot without a name"))?.0)
}

/// Takes a snapshot of a head (`dsl_dataset_snapshot_sync_impl`).
pub(super) async fn take(s: &SyncTask, head: ObjectId, name: &str) -> Result<ObjectId> {
    let of = objects::dataset(s, head).await?;
    // The origin of everything must be older than whatever a pool can hold.
    let txg = if name == hidden_dir::ORIGIN { Txg(1) } else { s.txg() };
    limits::adjust(s, of.dir, Counted::Snapshots, 1).await?;
    let phys = DslDatasetPhys {
        dir: of.dir,
        fsid_guid: s.random() >> 8,
        guid: Guid(s.random()),
        prev_snap: of.prev_snap,
        prev_snap_txg: of.prev_snap_txg,
        next_snap: head,
        num_children: 1,
        creation_time: s.now(),
        creation_txg: txg,
        deadlist: of.deadlist,
        referenced_bytes: of.referenced_bytes,
        compressed_bytes: of.compressed_bytes,
        uncompressed_bytes: of.uncompressed_bytes,
        unique_bytes: 0,
        flags: of.flags,
        bp: of.bp,
        ..DslDatasetPhys::default()
    };
    let id = objects::create_object(s, DmuType::DSL_DATASET, phys.encode(objects::ORDER)).await?;
    features::copy(s, head, id).await?;
    crypto::share(s, head, id);
    if !of.prev_snap.is_none() {
        if objects::dataset(s, of.prev_snap).await?.next_snap == head {
            objects::change_dataset(s, of.prev_snap, |previous| previous.next_snap = id).await?;
        } else {
            clones::replace_next(s, of.prev_snap, head, Some(id)).await?;
        }
    }
    let reserved = properties::number(s, of.dir, Prop::Refreservation).await?;
    let unused = i64::try_from(of.unique_bytes.min(reserved)).unwrap_or(i64::MAX);
    did_use(s, of.dir, Used::RefReserved, Change::used(unused)).await?;

    let deadlist = deadlist::clone(s, of.deadlist, Txg(u64::MAX), of.prev_snap).await?;
    deadlist::add_key(s, deadlist, of.prev_snap_txg).await?;
    bookmark::snapshotted(s, head, deadlist, of.prev_snap_txg).await?;
    if let Some(list) = objects::field(s, head, field::REMAP_DEADLIST).await? {
        objects::take(s, head, &objects::name(field::REMAP_DEADLIST)).await?;
        objects::set_field(s, id, field::REMAP_DEADLIST, &objects::one(list)).await?;
    }
    if policy::is_encrypted(s, of.dir).await? && s.feature_enabled(Feature::BookmarkV2) {
        objects::set_field(s, id, field::IVSET_GUID, &objects::one(s.random() >> 8)).await?;
    }
    objects::change_dataset(s, head, |head| {
        head.deadlist = deadlist;
        head.prev_snap = id;
        head.prev_snap_txg = txg;
        head.unique_bytes = 0;
        head.flags |= account::accurate(s);
    })
    .await?;
    objects::add(s, of.snapnames_zap, &objects::name(name), &objects::one(id.get())).await?;
    limits::snapshots_changed(s, of.dir).await?;
    s.dsl_pool().note_lineage(Lineage::Snapshotted { head, snapshot: id });
    Ok(id)
}

/// A snapshot that gets another name.
struct Renamed {
    head: FoundHead,
    stored: String,
    id: ObjectId,
    new: String,
}

/// Gives snapshots other names within their datasets, each `(from, to)`: all or none.
pub async fn rename_snapshots(s: &SyncTask, names: &[(String, String)]) -> Result<()> {
    let mut all = Vec::new();
    let mut heads = HashSet::new();
    for (from, to) in names {
        let renamed = check_rename(s, from, to).await?;
        // What one of them gives up or takes, another one of the same dataset would have to be checked
        // against.
        if !heads.insert(renamed.head.object) {
            let detail = "more than one snapshot of a dataset cannot be renamed at once";
            return Err(Error::Invalid(format!("{}: {detail}", renamed.head.name)));
        }
        all.push(renamed);
    }
    s.require_for_change(Spare::Reserved, all.len() as u64)?;
    for Renamed { head, stored, id, new } in all {
        objects::take(s, head.phys.snapnames_zap, &objects::name(&stored)).await?;
        objects::add(s, head.phys.snapnames_zap, &objects::name(&new), &objects::one(id.get())).await?;
        limits::snapshots_changed(s, head.phys.dir).await?;
        let from = format!("{}@{stored}", head.name);
        events::note(s, "rename", &from, id, &format!("-> @{new}")).await?;
        let guid = objects::dataset(s, id).await?.guid;
        events::renamed(s, &from, &format!("{}@{new}", head.name), guid);
    }
    Ok(())
}

async fn check_rename(s: &SyncTask, from: &str, to: &str) -> Result<Renamed> {
    let ((of, old), (other, new)) = (split(from)?, split(to)?);
    if of != other {
        return Err(Error::Invalid(format!("'{to}': a snapshot stays with its dataset")));
    }
    check_name(to, new)?;
    let head = find_head(s, of).await?;
    let found = by_name(s, &head.phys, old).await?;
    let (stored, id) = found.ok_or_else(|| Error::NotFound(from.to_owned()))?;
    match by_name(s, &head.phys, new).await? {
        // A name that differs in case only is another spelling.
        Some((_, other)) if other != id || stored == new => return Err(Error::Exists(to.to_owned())),
        _ => {}
    }
    Ok(Renamed { head, stored, id, new: new.to_owned() })
}

/// How many holds there are on a snapshot.
pub(super) async fn count_holds(s: &SyncTask, snapshot: &DslDatasetPhys) -> Result<u64> {
    match snapshot.userrefs.is_none() {
        true => Ok(0),
        false => Ok(objects::entries(s, snapshot.userrefs).await?.len() as u64),
    }
}

/// Holds snapshots under a tag: all or none. A held snapshot cannot be destroyed.
pub async fn hold(s: &SyncTask, snapshots: &[String], tag: &str) -> Result<()> {
    if tag.is_empty() || tag.len() > MAX_TAG_BYTES {
        return Err(Error::Invalid("a tag has 1 to 255 bytes".to_owned()));
    }
    if !s.has_version(version::USERREFS) {
        return Err(Error::Unsupported("pool must be upgraded".to_owned()));
    }
    let mut found = Vec::new();
    let mut seen = HashSet::new();
    for name in snapshots {
        let snapshot = find_snapshot(s, name).await?;
        let held = match snapshot.phys.userrefs.is_none() {
            true => false,
            false => objects::lookup(s, snapshot.phys.userrefs, &objects::name(tag)).await?.is_some(),
        };
        if held || !seen.insert(snapshot.object) {
            return Err(Error::Exists(format!("hold '{tag}' on {name}")));
        }
        found.push(snapshot);
    }
    s.require_for_change(Spare::Reserved, found.len() as u64)?;
    for snapshot in found {
        hold_one(s, &snapshot, tag).await?;
    }
    Ok(())
}

/// Holds a snapshot, which must not have the tag yet.
pub(super) async fn hold_one(s: &SyncTask, snapshot: &FoundSnapshot, tag: &str) -> Result<()> {
    let FoundSnapshot { name, object, phys } = snapshot;
    let before = count_holds(s, phys).await?;
    let mut holds = phys.userrefs;
    if holds.is_none() {
        holds = objects::create_zap(s, NewZap::of(DmuType::USERREFS)).await?;
        objects::change_dataset(s, *object, |phys| phys.userrefs = holds).await?;
    }
    objects::add(s, holds, &objects::name(tag), &objects::one(s.now())).await?;
    events::set(s, name, phys.guid, HOLDS);
    events::note(s, "hold", name, *object, &format!("tag={tag} temp=0 refs={}", before + 1)).await
}

/// Releases holds with a tag: all or none. Snapshots that were to be destroyed as soon as nothing needs them
/// are. Gives their names.
pub async fn release(s: &SyncTask, snapshots: &[String], tag: &str) -> Result<Vec<String>> {
    let mut found = Vec::new();
    let mut seen = HashSet::new();
    for name in snapshots {
        let snapshot = find_snapshot(s, name).await?;
        let missing = || Error::NotFound(format!("hold '{tag}' on {name}"));
        if snapshot.phys.userrefs.is_none() || !seen.insert(snapshot.object) {
            return Err(missing());
        }
        let entry = objects::lookup(s, snapshot.phys.userrefs, &objects::name(tag)).await?;
        entry.ok_or_else(missing)?;
        found.push(snapshot);
    }
    let mut destroyed = Vec::new();
    for snapshot in found {
        release_one(s, &snapshot, tag).await?;
        let left = count_holds(s, &snapshot.phys).await?;
        let text = format!("tag={tag} refs={left}");
        events::note(s, "release", &snapshot.name, snapshot.object, &text).await?;
        events::set(s, &snapshot.name, snapshot.phys.guid, HOLDS);
        if super::destroy_snapshot::is_unneeded(s, snapshot.object).await? {
            super::destroy_snapshot::destroy_now(s, snapshot.object).await?;
            events::destroyed(s, &snapshot.name, snapshot.phys.guid);
            destroyed.push(snapshot.name);
        }
    }
    Ok(destroyed)
}

async fn release_one(s: &SyncTask, snapshot: &FoundSnapshot, tag: &str) -> Result<()> {
    if let Some(temporary) = objects::lookup(s, DIRECTORY_OBJECT, &objects::name(TMP_USERREFS)).await? {
        let key = objects::name(&temporary_hold_key(snapshot.object, tag));
        objects::remove(s, ObjectId(temporary), &key).await?;
    }
    objects::take(s, snapshot.phys.userrefs, &objects::name(tag)).await
}
