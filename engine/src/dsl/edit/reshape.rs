//! Volumes that get another block size: the steps that change the tree of datasets.
//!
//! A volume's block size cannot change, so that a *copy* with another one takes its place. The whole is in
//! `pool::live::reshape`. Each step here is one change: after a crash it is there or it is not.
//!
//! | step | before | after |
//! |---|---|---|
//! | [`begin`] | `VOL` | and an empty `VOL.reshape` with a mark |
//! | [`begin_pass`] | | and a held snapshot of `VOL`, which the mark names |
//! | [`note`] | | the mark says how far the snapshot is copied |
//! | [`finish_pass`] | the copy has all of the snapshot | the mark says so; the snapshot before goes |
//! | [`swap`] | the copy has all of `VOL` | the copy is `VOL`, the old volume has another name |
//! | [`cancel`] | any of them | `VOL` |
//!
//! Holds keep the snapshots from users, also of OpenZFS. A snapshot that a user cloned all the same is left
//! until the clone is gone. The copy is neither visible as a device nor writable in OpenZFS.
//!
//! # What the copy takes over
//! All that hangs on the name goes with it: properties as they are stored, local and received ones, what
//! users are allowed, what is reserved, and the identity of the disk. The old volume keeps its properties,
//! its snapshots and bookmarks, gets the copy's identity in exchange, and has nothing reserved any more.

use ondisk::dsl_dataset::FLAG_INCONSISTENT;
use ondisk::dsl_dir::prop_suffix::{INHERIT, IUV, RECEIVED};
use ondisk::objset::ObjsetType;
use ondisk::pool_version as version;
use ondisk::zap::ZapValue;
use ondisk::{Guid, ObjectId, ObjsetId};

use super::create::{self, NewContents, NewDataset};
use super::limits::{self, Counted};
use super::{
    FoundHead, FoundSnapshot, contents, crypto, destroy, events, find_head, name_of_dir, objects, policy,
    properties, snapshot, space,
};
use crate::dsl::reshape::{COPY_SUFFIX, IDENTITY, MARK, Mark, SNAPSHOT_PREFIX};
use crate::dsl::{Spare, SyncTask, ValueExt};
use crate::error::{Error, Result};
use crate::properties::Prop;

/// The tag of the holds on snapshots that are copied.
const TAG: &str = "cenote-reshape";
/// Blocks that a step writes beside those for properties.
const BLOCKS: u64 = 16;
/// The bytes of a pointer, which each block has in two copies.
const POINTER_BYTES: u64 = 128;
/// What the metadata of a copy take, however small it is.
const LEAST_METADATA_BYTES: u64 = 1 << 20;
/// The most names that are tried for something new.
const MOST_NAMES: u32 = 1000;

/// What giving a volume another block size takes. Sizes are in bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// The volume.
    pub volume: String,
    /// What the copy is called until it is complete.
    pub copy: String,
    /// What the old volume is called then.
    pub kept: String,
    /// Size of a block at present.
    pub old_block_bytes: u64,
    /// Size of a block of the copy.
    pub new_block_bytes: u64,
    /// Size of the volume.
    pub volume_bytes: u64,
    /// What is to be copied, before compression.
    pub data_bytes: u64,
    /// About what the copy takes of the pool, and what is reserved meanwhile.
    pub needed_bytes: u64,
    /// What of that there is.
    pub available_bytes: u64,
    /// The volume.
    pub(crate) source: ObjsetId,
}

/// A copy that was begun.
#[derive(Debug, Clone)]
pub(crate) struct Begun {
    pub plan: Plan,
    pub copy: ObjsetId,
    pub mark: Mark,
}

/// Names after the copy took the place of the volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Swapped {
    /// The volume.
    pub volume: String,
    /// The old volume.
    pub kept: String,
}

/// What it would take to give a volume blocks of another size.
///
/// # Errors
/// It cannot be done, for a reason that has nothing to do with room.
pub(crate) async fn plan(s: &SyncTask, volume: &str, block: u64) -> Result<Plan> {
    let head = find_head(s, volume).await?;
    if contents::kind(s, &head).await? != ObjsetType::Zvol {
        let detail = "is no volume, and only volumes have a volblocksize".to_owned();
        return Err(Error::WrongType { what: volume.to_owned(), detail });
    }
    if head.phys.has(FLAG_INCONSISTENT) {
        return Err(Error::Busy(format!("{volume}: is being received or destroyed")));
    }
    crypto::suite_for_copy(s, &head).await?;
    // What cannot be written now cannot be copied.
    policy::policy(s, ObjsetId(head.object.get())).await?;
    // Snapshots of it will be destroyed.
    destroy::check_supported(s, &head).await?;
    if !s.has_version(version::USERREFS) {
        return Err(Error::Unsupported("pool must be upgraded: it has no holds on snapshots".to_owned()));
    }
    if text(s, head.phys.dir, MARK).await?.is_some() {
        let detail = "is the unfinished copy of another volume";
        return Err(Error::Busy(format!("{volume}: {detail}")));
    }
    properties::check_block_size(s, block)?;
    let (size, old_block) = contents::volume_size(s, &head).await?;
    if block == old_block {
        return Err(Error::Invalid(format!("its volblocksize is {block} already")));
    }
    if !size.is_multiple_of(block) {
        return Err(Error::Invalid(format!(
            "its volsize of {size} bytes is no multiple of {block}: set volsize to {} first",
            size.next_multiple_of(block)
        )));
    }
    let parent = objects::dir(s, head.phys.dir).await?.parent;
    let copy = format!("{volume}{COPY_SUFFIX}");
    let short = objects::name(copy.rsplit('/').next().unwrap_or_default());
    if objects::lookup(s, objects::dir(s, parent).await?.child_dir_zap, &short).await?.is_some() {
        return Err(Error::Busy(format!("'{copy}' exists, and its copy needs that name: rename it")));
    }
    let kept = free_name(s, &head, old_block).await?;
    let refreservation = new_refreservation(s, &head, (size, old_block), block).await?;
    let needed = needed_bytes(s, &head, block, refreservation).await?;
    let available = space::available(s, parent, None).await?;
    Ok(Plan {
        volume: volume.to_owned(),
        copy,
        kept,
        old_block_bytes: old_block,
        new_block_bytes: block,
        volume_bytes: size,
        data_bytes: head.phys.uncompressed_bytes.min(size),
        needed_bytes: needed,
        available_bytes: available,
        source: ObjsetId(head.object.get()),
    })
}

/// A name for the old volume that is free, and short enough for its snapshots too.
async fn free_name(s: &SyncTask, head: &FoundHead, block: u64) -> Result<String> {
    let parent = objects::dir(s, objects::dir(s, head.phys.dir).await?.parent).await?;
    let size = match block {
        1024.. if block.is_multiple_of(1024) => format!("{}K", block / 1024),
        _ => format!("{block}"),
    };
    for number in 1..MOST_NAMES {
        let name = match number {
            1 => format!("{}.volblocksize-{size}", head.name),
            _ => format!("{}.volblocksize-{size}-{number}", head.name),
        };
        let short = name.rsplit('/').next().unwrap_or_default();
        create::check_name(&name, short)?;
        if objects::lookup(s, parent.child_dir_zap, &objects::name(short)).await?.is_none() {
            super::rename::check_names_below(s, head.phys.dir, &head.name, &name).await?;
            return Ok(name);
        }
    }
    Err(Error::Exists(format!("{}.volblocksize-{size}", head.name)))
}

/// What is reserved for the volume when it has other blocks: all that it can occupy where that was so
/// before, else the same as before.
async fn new_refreservation(
    s: &SyncTask,
    head: &FoundHead,
    (size, old_block): (u64, u64),
    block: u64,
) -> Result<u64> {
    let copies = properties::effective(s, &space::chain(s, head.phys.dir).await?, Prop::Copies).await?;
    let reserved = properties::number(s, head.phys.dir, Prop::Refreservation).await?;
    let whole = properties::volume_reservation(s, size, old_block, copies);
    Ok(match reserved == whole {
        true => properties::volume_reservation(s, size, block, copies),
        false => reserved,
    })
}

/// What the copy takes, as well compressed as the volume is, and what is reserved meanwhile: a snapshot of a
/// volume with a refreservation needs as much again as the volume has of its own.
async fn needed_bytes(s: &SyncTask, head: &FoundHead, block: u64, refreservation: u64) -> Result<u64> {
    let phys = &head.phys;
    let copies = properties::effective(s, &space::chain(s, phys.dir).await?, Prop::Copies).await?;
    let blocks = phys.uncompressed_bytes.div_ceil(block);
    let compressed =
        u128::from(block) * u128::from(phys.compressed_bytes) / u128::from(phys.uncompressed_bytes.max(1));
    let stored = u64::try_from(compressed).unwrap_or(block).clamp(512, block);
    let data = properties::deflated(s, stored, blocks).unwrap_or(phys.referenced_bytes);
    let data = data.saturating_mul(copies);
    let pointers = blocks.saturating_mul(POINTER_BYTES).saturating_mul((copies + 1).min(3));
    let copy = data.saturating_add(pointers).saturating_add(LEAST_METADATA_BYTES);
    let reserved = properties::number(s, phys.dir, Prop::Refreservation).await?;
    let until_swap = copy.saturating_add(phys.unique_bytes.min(reserved));
    // Then what the old volume has reserved is free again.
    let from_swap = refreservation.saturating_sub(reserved.saturating_sub(phys.unique_bytes));
    Ok(until_swap.max(from_swap))
}

/// Creates the copy of a volume, empty.
pub(crate) async fn begin(s: &SyncTask, volume: &str, block: u64) -> Result<Begun> {
    let plan = plan(s, volume, block).await?;
    if plan.needed_bytes > plan.available_bytes {
        return Err(space::short_of("its copy of about", plan.needed_bytes, plan.available_bytes));
    }
    let suite = crypto::suite_for_copy(s, &find_head(s, volume).await?).await?;
    let source = objects::dataset(s, ObjectId(plan.source.get())).await?;
    let stored = stored_properties(s, source.dir).await?;
    s.require_for_change(Spare::Normal, BLOCKS.saturating_add(stored.len() as u64))?;
    let new = NewDataset {
        name: plan.copy.clone(),
        contents: NewContents::Volume { size: plan.volume_bytes, sparse: true },
        // One that is not encrypted may lie below one that is.
        properties: vec![
            ("volblocksize".to_owned(), block.to_string()),
            ("encryption".to_owned(), suite.unwrap_or("off").to_owned()),
        ],
    };
    let copy = create::create(s, &new).await?;
    let mark = Mark::new(source.guid);
    or_stop(s, fill(s, copy, &stored, mark).await)?;
    events::note(s, "reshape", volume, ObjectId(plan.source.get()), &format!("volblocksize={block}")).await?;
    Ok(Begun { plan, copy, mark })
}

/// Gives a new copy the properties of its volume, and its mark.
async fn fill(s: &SyncTask, copy: ObjsetId, stored: &[(String, ZapValue)], mark: Mark) -> Result<()> {
    let dir = objects::dataset(s, ObjectId(copy.get())).await?.dir;
    let zap = objects::dir(s, dir).await?.props_zap;
    store(s, zap, stored).await?;
    // No other software shows it or writes to it.
    objects::set(s, zap, &objects::name("readonly"), &objects::one(1)).await?;
    objects::set(s, zap, &objects::name("volmode"), &objects::one(VOLMODE_NONE)).await?;
    objects::set(s, zap, &objects::name(MARK), &words(&mark.to_string())).await
}

/// `none` of `volmode`.
const VOLMODE_NONE: u64 = 3;

/// Takes and holds a snapshot of the volume that is to be copied next. Gives the mark.
pub(crate) async fn begin_pass(s: &SyncTask, source: ObjsetId, copy: ObjsetId, mark: Mark) -> Result<Mark> {
    let head = head_of(s, source).await?;
    let mut short = format!("{SNAPSHOT_PREFIX}{}", mark.pass + 1);
    for number in 2..MOST_NAMES {
        if snapshot::by_name(s, &head.phys, &short).await?.is_none() {
            break;
        }
        short = format!("{SNAPSHOT_PREFIX}{}-{number}", mark.pass + 1);
    }
    let full = format!("{}@{short}", head.name);
    snapshot::check_new(s, &head, &full, &short).await?;
    limits::check(s, head.phys.dir, Counted::Snapshots, 1, None).await?;
    s.require_for_change(Spare::Normal, BLOCKS)?;
    let taken = async {
        let id = snapshot::take(s, head.object, &short).await?;
        events::note(s, "snapshot", &full, id, events::NOTHING).await?;
        let phys = objects::dataset(s, id).await?;
        events::created(s, &full, phys.guid, None);
        snapshot::hold_one(s, &FoundSnapshot { name: full, object: id, phys }, TAG).await?;
        let mark = Mark { pass: mark.pass + 1, copying: Some(phys.guid), offset: 0, ..mark };
        note(s, copy, mark).await?;
        Ok(mark)
    };
    or_stop(s, taken.await)
}

/// Writes down how far a copy is, unless it is one no more.
pub(crate) async fn note(s: &SyncTask, copy: ObjsetId, mark: Mark) -> Result<()> {
    let dir = objects::dataset(s, ObjectId(copy.get())).await?.dir;
    if text(s, dir, MARK).await?.is_none() {
        return Ok(());
    }
    let zap = objects::dir(s, dir).await?.props_zap;
    objects::set(s, zap, &objects::name(MARK), &words(&mark.to_string())).await
}

/// The copy has all of a snapshot: the one before is not needed any more. Gives the mark.
pub(crate) async fn finish_pass(s: &SyncTask, source: ObjsetId, copy: ObjsetId, mark: Mark) -> Result<Mark> {
    let head = head_of(s, source).await?;
    let done = Mark { copied: mark.copying, copying: None, offset: 0, ..mark };
    note(s, copy, done).await?;
    if let Some(before) = mark.copied {
        let all = held_snapshots(s, &head).await?;
        let gone: Vec<_> = all.into_iter().filter(|snapshot| snapshot.phys.guid == before).collect();
        or_stop(s, give_back(s, gone).await)?;
    }
    Ok(done)
}

/// Gives the copy the name of the volume, and all that hangs on the name. Nothing may have been written to
/// the volume since the snapshot of which the copy has everything.
///
/// # Errors
/// [`Error::Busy`] when something was; others that do not pass by themselves.
pub(crate) async fn swap(s: &SyncTask, source: ObjsetId, copy: ObjsetId, mark: Mark) -> Result<Swapped> {
    let (old, new) = (head_of(s, source).await?, head_of(s, copy).await?);
    check_complete(s, &old, &new, mark).await?;
    crypto::check_same_root(s, &old, &new).await?;
    let (size, old_block) = contents::volume_size(s, &old).await?;
    let (new_size, block) = contents::volume_size(s, &new).await?;
    if size != new_size {
        return Err(Error::Invalid(format!("its volsize is {size}, and that of its copy {new_size} bytes")));
    }
    let kept = free_name(s, &old, old_block).await?;
    let refreservation = new_refreservation(s, &old, (size, old_block), block).await?;
    let reserved = properties::number(s, old.phys.dir, Prop::Refreservation).await?;
    let more = refreservation.saturating_sub(new.phys.unique_bytes);
    let room = space::available(s, new.phys.dir, None).await?;
    let room = room.saturating_add(reserved.saturating_sub(old.phys.unique_bytes));
    if more > room {
        return Err(space::short_of("its refreservation of", more, room));
    }
    let stored = stored_properties(s, old.phys.dir).await?;
    s.require_for_change(Spare::Reserved, BLOCKS.saturating_add(stored.len() as u64 * 2))?;

    // From here on nothing is refused.
    or_stop(s, exchange(s, (&old, &new), &kept, &stored, refreservation).await)?;
    Ok(Swapped { volume: old.name, kept })
}

/// Exchanges the names, with all that hangs on them.
async fn exchange(
    s: &SyncTask,
    (old, new): (&FoundHead, &FoundHead),
    kept: &str,
    stored: &[(String, ZapValue)],
    refreservation: u64,
) -> Result<()> {
    let children = objects::dir(s, objects::dir(s, old.phys.dir).await?.parent).await?.child_dir_zap;
    let short = |name: &str| objects::name(name.rsplit('/').next().unwrap_or_default());
    objects::take(s, children, &short(&old.name)).await?;
    objects::take(s, children, &short(&new.name)).await?;
    objects::add(s, children, &short(kept), &objects::one(old.phys.dir.get())).await?;
    objects::add(s, children, &short(&old.name), &objects::one(new.phys.dir.get())).await?;
    events::note(s, "rename", &old.name, old.object, &format!("-> {kept}")).await?;
    events::note(s, "rename", &new.name, new.object, &format!("-> {}", old.name)).await?;
    events::renamed(s, &old.name, kept, old.phys.guid);
    events::renamed(s, &new.name, &old.name, new.phys.guid);
    exchange_properties(s, old, new, stored).await?;
    move_reservations(s, old, new, refreservation).await?;
    let renamed = FoundHead { name: kept.to_owned(), ..old.clone() };
    give_back(s, held_snapshots(s, &renamed).await?).await?;
    let heads = [old, new].map(|head| ObjsetId(head.object.get()));
    policy::refresh(s, &heads).await
}

/// The result of what cannot be undone any more: with an error nothing of the group is committed.
fn or_stop<T>(s: &SyncTask, done: Result<T>) -> Result<T> {
    if let Err(error) = &done {
        s.tx.note_half_done(error.clone());
    }
    done
}

/// Gives up: the copy goes, and so do the snapshots of the volume, where it is still there.
pub(crate) async fn cancel(s: &SyncTask, source: Option<ObjsetId>, copy: ObjsetId) -> Result<()> {
    let new = head_of(s, copy).await?;
    destroy::check_to_destroy(s, &new).await?;
    if let Some(source) = source {
        let old = head_of(s, source).await?;
        let held = held_snapshots(s, &old).await?;
        or_stop(s, give_back(s, held).await)?;
        events::note(s, "reshape", &old.name, old.object, "canceled").await?;
    }
    let destroyed = or_stop(s, destroy::destroy_head(s, &new).await)?;
    events::note(s, "destroy", &new.name, new.object, events::NOTHING).await?;
    events::destroyed(s, &new.name, new.phys.guid);
    s.forget_dataset(destroyed.objset);
    Ok(())
}

/// Whether the copy has all that the volume has.
async fn check_complete(s: &SyncTask, old: &FoundHead, new: &FoundHead, mark: Mark) -> Result<()> {
    let stored = text(s, new.phys.dir, MARK).await?.and_then(|text| Mark::parse(&text));
    let is_meant = stored.is_some_and(|stored| {
        stored.source == old.phys.guid && stored.copying.is_none() && stored.copied == mark.copied
    });
    let last = objects::dataset(s, old.phys.prev_snap).await?;
    if !is_meant || mark.copied != Some(last.guid) || last.next_snap != old.object {
        return Err(Error::Busy(format!("{}: is not the copy of the newest snapshot", new.name)));
    }
    // Whatever is written changes the root block.
    if old.phys.bp != last.bp {
        return Err(Error::Busy(format!("{}: was written to after its last snapshot", old.name)));
    }
    if objects::dir(s, old.phys.dir).await?.parent != objects::dir(s, new.phys.dir).await?.parent {
        return Err(Error::Invalid(format!("{}: was moved away from its copy {}", old.name, new.name)));
    }
    if !objects::entries(s, new.phys.snapnames_zap).await?.is_empty() {
        let detail = "has snapshots, which are of an unfinished copy: destroy them";
        return Err(Error::Invalid(format!("{}: {detail}", new.name)));
    }
    Ok(())
}

/// The head that is this object.
async fn head_of(s: &SyncTask, id: ObjsetId) -> Result<FoundHead> {
    let object = ObjectId(id.get());
    let phys = objects::dataset(s, object).await?;
    Ok(FoundHead { name: name_of_dir(s, phys.dir).await?, object, phys })
}

/// The snapshots of a volume that are held here.
async fn held_snapshots(s: &SyncTask, head: &FoundHead) -> Result<Vec<FoundSnapshot>> {
    let mut found = Vec::new();
    for (short, id) in objects::entries(s, head.phys.snapnames_zap).await? {
        let (object, name) = (ObjectId(id), format!("{}@{short}", head.name));
        let phys = objects::dataset(s, object).await?;
        if !phys.userrefs.is_none() && objects::lookup(s, phys.userrefs, &objects::name(TAG)).await?.is_some()
        {
            found.push(FoundSnapshot { name, object, phys });
        }
    }
    Ok(found)
}

/// Releases snapshots, and destroys them as soon as nothing else needs them.
async fn give_back(s: &SyncTask, snapshots: Vec<FoundSnapshot>) -> Result<()> {
    for FoundSnapshot { name, .. } in snapshots {
        // One that waited for being destroyed goes with its last hold.
        let gone = snapshot::release(s, std::slice::from_ref(&name), TAG).await?;
        if gone.is_empty() {
            super::destroy_snapshots(s, &[name], true).await?;
        }
    }
    Ok(())
}

fn words(text: &str) -> ZapValue {
    ZapValue::U8(text.bytes().chain([0]).collect())
}

/// The text of a user property of a directory's own.
async fn text(s: &SyncTask, dir: ObjectId, name: &str) -> Result<Option<String>> {
    let zap = objects::dir(s, dir).await?.props_zap;
    Ok(objects::mos(s).value(zap, name).await?.and_then(|value| value.text()))
}

/// The properties of a directory as they are stored, but for those that have an effect of their own and
/// those that are about one volume only.
async fn stored_properties(s: &SyncTask, dir: ObjectId) -> Result<Vec<(String, ZapValue)>> {
    let zap = objects::dir(s, dir).await?.props_zap;
    let mut all = objects::mos(s).entries(zap).await?;
    all.retain(|(name, _)| !is_of_one_volume(name));
    Ok(all)
}

fn is_of_one_volume(name: &str) -> bool {
    const NAMES: [&str; 6] = ["reservation", "refreservation", "volsize", "volblocksize", MARK, IDENTITY];
    let bare = [RECEIVED, INHERIT, IUV].iter().find_map(|suffix| name.strip_suffix(suffix));
    NAMES.contains(&bare.unwrap_or(name))
}

async fn store(s: &SyncTask, zap: ObjectId, properties: &[(String, ZapValue)]) -> Result<()> {
    for (name, value) in properties {
        objects::set(s, zap, &objects::name(name), value).await?;
    }
    Ok(())
}

/// The new volume gets the properties of the old one, as they are now; and both exchange their identities.
async fn exchange_properties(
    s: &SyncTask,
    old: &FoundHead,
    new: &FoundHead,
    stored: &[(String, ZapValue)],
) -> Result<()> {
    let identity = |given: Option<String>, own: Guid| given.unwrap_or_else(|| own.get().to_string());
    let of_old = identity(text(s, old.phys.dir, IDENTITY).await?, old.phys.guid);
    let of_new = identity(text(s, new.phys.dir, IDENTITY).await?, new.phys.guid);
    let (from, to) = (objects::dir(s, old.phys.dir).await?, objects::dir(s, new.phys.dir).await?);
    for (name, _) in stored_properties(s, new.phys.dir).await? {
        objects::take(s, to.props_zap, &objects::name(&name)).await?;
    }
    objects::take(s, to.props_zap, &objects::name(MARK)).await?;
    store(s, to.props_zap, stored).await?;
    objects::set(s, to.props_zap, &objects::name(IDENTITY), &words(&of_old)).await?;
    objects::set(s, from.props_zap, &objects::name(IDENTITY), &words(&of_new)).await?;
    if properties::number_at(s, to.props_zap, Prop::SnapshotLimit).await?.is_some() {
        limits::initialize(s, new.phys.dir).await?;
    }
    // Who may do what is about the name.
    objects::change_dir(s, old.phys.dir, |dir| dir.deleg_zap = to.deleg_zap).await?;
    objects::change_dir(s, new.phys.dir, |dir| dir.deleg_zap = from.deleg_zap).await
}

/// What was reserved for the old volume is reserved for the new one.
async fn move_reservations(
    s: &SyncTask,
    old: &FoundHead,
    new: &FoundHead,
    refreservation: u64,
) -> Result<()> {
    let reservation = objects::dir(s, old.phys.dir).await?.reserved;
    for (prop, wanted) in [(Prop::Refreservation, refreservation), (Prop::Reservation, reservation)] {
        for (head, value) in [(old, 0), (new, wanted)] {
            let before = properties::number(s, head.phys.dir, prop).await?;
            if before != value {
                properties::set_number(s, head.phys.dir, prop, value).await?;
                properties::apply_space(s, head.object, prop, before, value).await?;
            }
        }
    }
    Ok(())
}
