//! Clones, and going back to a snapshot.
//!
//! A clone is a head whose chain begins at a snapshot of another dataset. Going back makes a clone of the
//! last snapshot, exchanges it with the head ([`swap`]), and destroys it: so that the blocks written since
//! are freed like those of any dataset that goes.
//!
//! Source of the facts: OpenZFS 2.3 `dsl_dataset.c`.

use std::cmp::Ordering;

use ondisk::objset::ObjsetType;
use ondisk::{ObjectId, ObjsetId, Txg};

use super::create::{self, NewContents, NewDataset};
use super::limits::{self, Counted};
use super::properties::{self, Assignment, Setting};
use super::space::{Change, Used, did_use, difference, out_of_space, sum, transfer};
use super::{
    FoundHead, account, bookmark, contents, crypto, deadlist, destroy, events, features, find_head,
    find_snapshot, livelist, objects, origin_snapshot, policy,
};
use crate::dmu::{LiveObjset, Space};
use crate::dsl::{Lineage, Spare, SyncTask};
use crate::error::{Error, Result};
use crate::properties::Prop;

/// Makes a clone `name` of a snapshot, with properties as typed. Gives the number of its object set.
pub async fn clone(
    s: &SyncTask,
    origin: &str,
    name: &str,
    properties: &[(String, String)],
) -> Result<ObjsetId> {
    let origin = find_snapshot(s, origin).await?;
    let (parent_name, short) = name
        .rsplit_once('/')
        .ok_or_else(|| Error::Invalid(format!("'{name}': a dataset's name begins with its pool's")))?;
    create::check_name(name, short)?;
    let parent = find_head(s, parent_name).await?;
    create::check_parent(s, &parent, short, name).await?;
    crypto::check_nothing_asked(properties)?;
    let of = FoundHead { name: origin.name.clone(), object: origin.object, phys: origin.phys };
    crypto::check_log_is_reachable(s, &of).await?;
    let contents = match contents::kind(s, &of).await? {
        // Its size is in its contents, and a clone has no reservation of its own accord.
        ObjsetType::Zvol => {
            let (size, _) = contents::volume_size(s, &of).await?;
            NewContents::Volume { size, sparse: true }
        }
        _ => NewContents::Filesystem,
    };
    let new = NewDataset { name: name.to_owned(), contents, properties: properties.to_vec() };
    let plan: Vec<Assignment> = properties::plan_new(s, &new, Some(&parent)).await?;
    let is_given = |one: &Assignment| {
        properties
            .iter()
            .any(|(name, _)| Prop::from_name(name).is_some_and(|prop| prop.desc().name == one.name))
    };
    for assignment in plan.iter().filter(|one| is_given(one)) {
        match assignment.setting {
            Setting::Contents(Prop::Version) => check_version(s, &of, assignment.number()).await?,
            Setting::Contents(_) => {
                return Err(Error::Invalid(
                    "a clone has the contents of its origin: what they fix cannot be given".to_owned(),
                ));
            }
            _ => {}
        }
    }
    limits::check(s, parent.phys.dir, Counted::Filesystems, 1, None).await?;
    s.require_for_change(Spare::Normal, create::BLOCKS)?;

    let dir = create::create_dir(s, Some(parent.phys.dir), short).await?;
    limits::begin(s, dir).await?;
    let id = create::create_dataset(s, dir, Some(origin.object)).await?;
    livelist::begin(s, dir).await?;
    for assignment in &plan {
        properties::store(s, dir, assignment).await?;
    }
    forget_log(s, id).await?;
    for assignment in &plan {
        if let Setting::Space(prop) = assignment.setting {
            properties::apply_space(s, id, prop, 0, properties::assigned(&plan, prop).unwrap_or(0)).await?;
        }
    }
    let text = format!("origin={} ({})", of.name, of.object);
    events::note(s, "clone", name, id, &text).await?;
    let volume_bytes = match new.contents {
        NewContents::Filesystem => None,
        NewContents::Volume { size, .. } => Some(size),
    };
    events::created(s, name, objects::dataset(s, id).await?.guid, volume_bytes);
    Ok(ObjsetId(id.get()))
}

/// A clone has the version of its origin, which may be named.
async fn check_version(s: &SyncTask, origin: &FoundHead, wanted: u64) -> Result<()> {
    let now = contents::version(s, origin).await?;
    match wanted.cmp(&now) {
        Ordering::Equal => Ok(()),
        Ordering::Less => Err(Error::Invalid(format!(
            "'version' can not be {wanted}: the filesystem is already at version {now}"
        ))),
        Ordering::Greater => Err(Error::Unsupported(format!(
            "a clone has version {now} of its origin; 'zfs upgrade' can take it to version {wanted}"
        ))),
    }
}

/// A head that has the contents of a snapshot must not have its intent log (`dsl_dataset_zero_zil`).
pub(super) async fn forget_log(s: &SyncTask, head: ObjectId) -> Result<()> {
    let phys = objects::dataset(s, head).await?;
    if !contents::has_header_of_log(s, &FoundHead { name: String::new(), object: head, phys }).await? {
        return Ok(());
    }
    let id = ObjsetId(head.get());
    let policy = policy::of_dir(s, phys.dir).await?;
    let objset = LiveObjset::open(s.pool(), id, &phys.bp, policy).await?;
    objset.list_births(livelist::of(s, phys.dir).await?.is_some());
    let empty = ondisk::zil::ZilHeader::default();
    if objset.zil_header() != empty {
        objset.set_zil_header(&s.tx, empty);
        create::write(s, &objset).await?;
    }
    Ok(())
}

/// Makes a head as it was at its last snapshot (`snapshot`, if given, must be that; in full, or what follows
/// the `@`). Its intent log must be given back before, and users that have it open must close it.
pub async fn rollback(s: &SyncTask, name: &str, snapshot: Option<&str>) -> Result<ObjsetId> {
    let head = find_head(s, name).await?;
    check_rollback(s, &head, snapshot).await?;
    s.require_for_change(Spare::Reserved, 1)?;
    let head = destroy::without_locked_log(s, head).await?;
    let dir = create::create_dir(s, Some(head.phys.dir), "%rollback").await?;
    limits::begin(s, dir).await?;
    let clone = create::create_dataset(s, dir, Some(head.phys.prev_snap)).await?;
    swap(s, clone, head.object).await?;
    let (hidden, text) =
        (format!("{name}/%rollback"), format!("parent={}", name.rsplit('/').next().unwrap_or(name)));
    events::note(s, "clone swap", &hidden, clone, &text).await?;
    forget_log(s, head.object).await?;
    let clone_phys = objects::dataset(s, clone).await?;
    let clone = FoundHead { name: hidden, object: clone, phys: clone_phys };
    destroy::destroy_head(s, &clone).await?;
    events::note(s, "destroy", &clone.name, clone.object, events::NOTHING).await?;
    events::replaced(s, name, head.phys.guid);
    s.forget_dataset(ObjsetId(head.object.get()));
    Ok(ObjsetId(head.object.get()))
}

async fn check_rollback(s: &SyncTask, head: &FoundHead, snapshot: Option<&str>) -> Result<()> {
    let phys = &head.phys;
    let none = phys.prev_snap.is_none() || Some(phys.prev_snap) == origin_snapshot(s).await?;
    if none {
        return Err(Error::NotFound(format!("a snapshot of {}", head.name)));
    }
    create::check_not_snapshotted(s, &head.name, phys.prev_snap_txg)?;
    let full = snapshot.map(|name| match name.contains('@') {
        true => name.to_owned(),
        false => format!("{}@{name}", head.name),
    });
    if let Some(name) = full
        && find_snapshot(s, &name).await?.object != phys.prev_snap
    {
        let detail = "more recent snapshots or bookmarks exist, or it is none of this dataset";
        return Err(Error::Busy(format!("{name}: {detail}")));
    }
    if bookmark::latest(s, head.object).await? > phys.prev_snap_txg {
        return Err(Error::Busy(format!("{}: more recent bookmarks exist", head.name)));
    }
    destroy::check_supported(s, head).await?;
    destroy::check_open_log(s, head).await?;
    let previous = objects::dataset(s, phys.prev_snap).await?;
    crypto::check_log_is_reachable(
        s,
        &FoundHead { name: head.name.clone(), object: phys.prev_snap, phys: previous },
    )
    .await?;
    let refquota = properties::number(s, phys.dir, Prop::Refquota).await?;
    if refquota != 0 && previous.referenced_bytes > refquota {
        return Err(out_of_space(format!("{}: the snapshot is larger than the refquota", head.name)));
    }
    let reserved = properties::number(s, phys.dir, Prop::Refreservation).await?;
    create::check_room(s, phys.dir, reserved.min(phys.unique_bytes)).await
}

/// Exchanges the contents of a head with those of a clone of its last snapshot
/// (`dsl_dataset_clone_swap_sync_impl`). The clone has no snapshots and no refreservation.
pub(super) async fn swap(s: &SyncTask, clone: ObjectId, head: ObjectId) -> Result<()> {
    let of_clone = objects::dataset(s, clone).await?;
    let of_head = objects::dataset(s, head).await?;
    let origin = of_clone.prev_snap;
    features::swap(s, clone, head).await?;
    livelist::remove(s, of_clone.dir).await?;
    livelist::remove(s, of_head.dir).await?;
    let reserved = properties::number(s, of_head.dir, Prop::Refreservation).await?;
    let used_up = |unique: u64| i64::try_from(reserved.min(unique)).unwrap_or(i64::MAX);
    let unused = used_up(of_head.unique_bytes) - used_up(of_clone.unique_bytes);

    // Of a snapshot of another dataset the head's blocks say nothing.
    let of_origin = objects::dataset(s, origin).await?;
    if of_origin.next_snap == head {
        let since = of_origin.prev_snap_txg;
        let unique = deadlist::space_range(s, of_clone.deadlist, since, Txg(u64::MAX)).await?.used;
        objects::change_dataset(s, origin, |origin| origin.unique_bytes = unique).await?;
    }

    let clone_dead = deadlist::space(s, of_clone.deadlist).await?;
    let head_dead = deadlist::space(s, of_head.deadlist).await?;
    let referenced = |phys: &ondisk::dsl_dataset::DslDatasetPhys| Space {
        used: phys.referenced_bytes,
        compressed: phys.compressed_bytes,
        uncompressed: phys.uncompressed_bytes,
    };
    let change = Change::more(sum(referenced(&of_clone), clone_dead))
        .plus(Change::less(sum(referenced(&of_head), head_dead)));
    let back =
        Change { used: -change.used, compressed: -change.compressed, uncompressed: -change.uncompressed };
    // The head's directory first grows, as the clone's may count less than nothing in between otherwise.
    let (first, then) = match change.used < 0 {
        true => ((of_clone.dir, back), (of_head.dir, change)),
        false => ((of_head.dir, change), (of_clone.dir, back)),
    };
    did_use(s, first.0, Used::Head, first.1).await?;
    did_use(s, then.0, Used::Head, then.1).await?;
    let origin_txg = account::origin_txg(s, of_head.dir).await?;
    let to_snapshots = |list| deadlist::space_range(s, list, origin_txg, Txg(u64::MAX));
    let (of_clone_list, of_head_list) =
        (to_snapshots(of_clone.deadlist).await?, to_snapshots(of_head.deadlist).await?);
    let more = difference(of_clone_list, of_head_list).used as i64
        - difference(of_head_list, of_clone_list).used as i64;
    transfer(s, of_head.dir, more, Used::Head, Used::Snap).await?;

    for (id, other) in [(clone, of_head), (head, of_clone)] {
        objects::change_dataset(s, id, |phys| {
            phys.bp = other.bp;
            phys.deadlist = other.deadlist;
            phys.referenced_bytes = other.referenced_bytes;
            phys.compressed_bytes = other.compressed_bytes;
            phys.uncompressed_bytes = other.uncompressed_bytes;
            phys.unique_bytes = other.unique_bytes;
        })
        .await?;
    }
    did_use(s, of_head.dir, Used::RefReserved, Change::used(unused)).await?;
    bookmark::next_changed(s, head, origin).await?;
    s.dsl_pool().note_lineage(Lineage::Swapped(clone, head));
    Ok(())
}
