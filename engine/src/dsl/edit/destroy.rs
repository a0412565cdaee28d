//! Filesystems and volumes that go.
//!
//! A head's name is gone at once; its blocks, as far as no snapshot has them, are freed over many groups: the
//! tree of blocks is put on the pool's list of trees (feature `async_destroy`), and [`super::freeing`] takes
//! it down piece by piece. Until then its space counts for the hidden directory `$FREE`. Without the feature
//! its blocks are put on the pool's list of blocks in one go; pools before version 26 have no such list, and
//! blocks are freed in the group that destroys. A clone that has a livelist leaves that
//! ([`super::livelist`]).
//!
//! Source of the facts: OpenZFS 2.3 `dsl_destroy.c`.

use ondisk::dsl_dataset;
use ondisk::features::Feature;
use ondisk::pool_directory::{FREE_BPOBJ, hidden_dir};
use ondisk::pool_version as version;
use ondisk::{ObjectId, ObjsetId};

use super::limits::{self, Counted};
use super::space::{self, Change, Used, did_use};
use super::{
    FoundHead, account, bookmark, bpobj, bptree, clones, contents, create, crypto, deadlist, delegation,
    destroy_snapshot, errlog, events, features, find_any_head, livelist, objects, properties, snapshot,
};
use crate::dmu::Space;
use crate::dsl::{Lineage, SyncTask};
use crate::error::{Error, Result};
use crate::properties::Prop;

/// What a destroy took away.
#[derive(Debug, Clone)]
pub struct Destroyed {
    /// The object set that is no more; users that had it open must close it.
    pub objset: ObjsetId,
    /// The snapshot that it was a clone of, when it went too because it only waited for that.
    pub origin: Option<String>,
}

/// Destroys a filesystem or volume without children and snapshots. Its intent log must be given back before
/// ([`crate::zil::Zil::close`]), and no writer may use it any more.
pub async fn destroy(s: &SyncTask, name: &str) -> Result<Destroyed> {
    let head = find_any_head(s, name).await?;
    check_head(s, &head).await?;
    check_open_log(s, &head).await?;
    let head = without_locked_log(s, head).await?;
    let destroyed = destroy_head(s, &head).await?;
    events::note(s, "destroy", name, head.object, events::NOTHING).await?;
    events::destroyed(s, name, head.phys.guid);
    s.forget_dataset(destroyed.objset);
    Ok(destroyed)
}

/// Refuses what cannot be destroyed now.
pub(super) async fn check_to_destroy(s: &SyncTask, head: &FoundHead) -> Result<()> {
    check_head(s, head).await?;
    check_log(s, head).await
}

/// The same, whatever its intent log is.
async fn check_head(s: &SyncTask, head: &FoundHead) -> Result<()> {
    let dir = objects::dir(s, head.phys.dir).await?;
    if dir.parent.is_none() {
        return Err(Error::Invalid(format!(
            "{}: the pool's own filesystem goes with the pool only",
            head.name
        )));
    }
    if s.is_receiving(ObjsetId(head.object.get())) {
        return Err(Error::Busy(format!(
            "{}: dataset is busy: a stream is being received into it",
            head.name
        )));
    }
    if has_snapshots(s, head).await? {
        return Err(Error::Busy(format!("{}: has snapshots", head.name)));
    }
    if !objects::entries(s, dir.child_dir_zap).await?.is_empty() {
        return Err(Error::Busy(format!("{}: has children", head.name)));
    }
    check_supported(s, head).await
}

/// What is destroyed must be of a kind that this version can count.
pub(super) async fn check_supported(s: &SyncTask, head: &FoundHead) -> Result<()> {
    if objects::field(s, head.object, dsl_dataset::field::REMAP_DEADLIST).await?.is_some() {
        let what = "datasets with blocks that left removed vdevs";
        return Err(Error::Unsupported(format!("{}: {what} cannot be destroyed by this version", head.name)));
    }
    Ok(())
}

/// Refuses what has not given its intent log back. That of a dataset whose key is not loaded cannot be
/// replayed, and goes with the dataset ([`without_locked_log`]).
pub(super) async fn check_open_log(s: &SyncTask, head: &FoundHead) -> Result<()> {
    match crypto::is_locked(s, head).await? {
        true => Ok(()),
        false => check_log(s, head).await,
    }
}

/// A head that is about to go. If its key is not loaded, its intent log goes now: in the same change, so that
/// one that is refused leaves the log.
pub(super) async fn without_locked_log(s: &SyncTask, head: FoundHead) -> Result<FoundHead> {
    if !crypto::is_locked(s, &head).await? || !contents::has_log(s, &head).await? {
        return Ok(head);
    }
    // With half of it free, nothing of the group may be committed.
    contents::give_up_log(s, &head).await.inspect_err(|error| s.tx.note_half_done(error.clone()))?;
    let phys = objects::dataset(s, head.object).await?;
    Ok(FoundHead { phys, ..head })
}

/// Refuses what has not given its intent log back.
pub(super) async fn check_log(s: &SyncTask, head: &FoundHead) -> Result<()> {
    match contents::has_log(s, head).await? {
        true => Err(Error::Busy(format!("{}: its intent log is in use", head.name))),
        false => Ok(()),
    }
}

/// Whether there are snapshots of a head (and not only of what it is a clone of).
async fn has_snapshots(s: &SyncTask, head: &FoundHead) -> Result<bool> {
    match head.phys.prev_snap.is_none() {
        true => Ok(false),
        false => Ok(objects::dataset(s, head.phys.prev_snap).await?.next_snap == head.object),
    }
}

/// Destroys a head without snapshots, and its directory (`dsl_destroy_head_sync_impl`).
pub(super) async fn destroy_head(s: &SyncTask, head: &FoundHead) -> Result<Destroyed> {
    let (id, dir_id) = (head.object, head.phys.dir);
    let previous = head.phys.prev_snap;
    s.dsl_pool().note_lineage(Lineage::HeadDestroyed(id));

    let reserved = properties::number(s, dir_id, Prop::Refreservation).await?;
    if reserved != 0 {
        properties::apply_space(s, id, Prop::Refreservation, reserved, 0).await?;
    }
    features::deactivate_all(s, id).await?;
    let mut origin_waits = false;
    if !previous.is_none() {
        clones::replace_next(s, previous, id, None).await?;
        let origin = objects::change_dataset(s, previous, |previous| {
            previous.num_children = previous.num_children.saturating_sub(1).max(1);
            *previous
        })
        .await?;
        origin_waits = Some(previous) != super::origin_snapshot(s).await?
            && destroy_snapshot::is_unneeded(s, previous).await?;
        clones::forget(s, origin.dir, id).await?;
    }
    // What is on it the origin has.
    deadlist::free(s, head.phys.deadlist).await?;
    objects::change_dataset(s, id, |head| head.deadlist = ObjectId::default()).await?;
    give_blocks_away(s, head).await?;

    objects::change_dir(s, dir_id, |dir| dir.head_dataset = ObjectId::default()).await?;
    bookmark::head_destroyed(s, id).await?;
    errlog::forget_head(s, id).await?;
    objects::free_object(s, head.phys.snapnames_zap).await?;
    objects::free_zapified(s, id).await?;
    crypto::forget(s, id);
    destroy_dir(s, dir_id).await?;

    let mut destroyed = Destroyed { objset: ObjsetId(id.get()), origin: None };
    if origin_waits {
        let origin = objects::dataset(s, previous).await?;
        let of = objects::dataset(s, objects::dir(s, origin.dir).await?.head_dataset).await?;
        let short = snapshot::name_of(s, &of, previous).await?;
        let name = format!("{}@{short}", super::name_of_dir(s, origin.dir).await?);
        destroy_snapshot::destroy_now(s, previous).await?;
        events::destroyed(s, &name, origin.guid);
        destroyed.origin = Some(name);
    }
    Ok(destroyed)
}

/// Puts a head's blocks where they will be freed.
async fn give_blocks_away(s: &SyncTask, head: &FoundHead) -> Result<()> {
    let dir = objects::dir(s, head.phys.dir).await?;
    let space = Space {
        used: dir.used_bytes,
        compressed: dir.compressed_bytes,
        uncompressed: dir.uncompressed_bytes,
    };
    if let Some(listed) = livelist::give_away(s, head.phys.dir, space).await? {
        did_use(s, head.phys.dir, Used::Head, Change::less(space)).await?;
        return did_use(s, account::hidden(s, hidden_dir::FREE).await?, Used::Head, Change::more(listed))
            .await;
    }
    if s.feature_enabled(Feature::AsyncDestroy) {
        bptree::add(s, &head.phys.bp, head.phys.prev_snap_txg, space).await?;
    } else if !s.has_version(version::DEADLISTS) {
        let mut walk = bptree::Walk::new(head.phys.bp, head.phys.prev_snap_txg, None);
        loop {
            let mut blocks = walk.next(s.pool(), 4096).await?;
            if blocks.is_empty() {
                break;
            }
            blocks.retain(space::counts);
            account::free(s, &blocks).await?;
        }
        return did_use(s, head.phys.dir, Used::Head, Change::less(space)).await;
    } else {
        let missing = || Error::corrupt(s.pool().name(), "has no list of blocks to be freed");
        let list = objects::pool_entry(s, FREE_BPOBJ).await?.ok_or_else(missing)?;
        let mut walk = bptree::Walk::new(head.phys.bp, head.phys.prev_snap_txg, None);
        loop {
            let blocks = walk.next(s.pool(), 4096).await?;
            if blocks.is_empty() {
                break;
            }
            bpobj::append(s, list, &blocks, bpobj::Kind::Alloc).await?;
        }
    }
    did_use(s, head.phys.dir, Used::Head, Change::less(space)).await?;
    did_use(s, account::hidden(s, hidden_dir::FREE).await?, Used::Head, Change::more(space)).await
}

/// Removes a directory that has no head any more (`dsl_dir_destroy_sync`).
async fn destroy_dir(s: &SyncTask, id: ObjectId) -> Result<()> {
    let dir = objects::dir(s, id).await?;
    let children = objects::dir(s, dir.parent).await?.child_dir_zap;
    let entries = objects::entries(s, children).await?;
    let name = entries.into_iter().find(|(_, child)| *child == id.get());
    let (name, _) = name.ok_or_else(|| objects::corrupt(id, "its parent does not name it"))?;
    if !create::is_temporary(&name) {
        limits::adjust(s, dir.parent, Counted::Filesystems, -1).await?;
    }
    space::set_reservation(s, id, 0).await?;
    let left = objects::dir(s, id).await?.used_bytes;
    if left != 0 {
        // The parents would count it for ever.
        debug_assert_eq!(left, 0, "space is left in a directory that goes");
        did_use(s, id, Used::Head, Change::used(-i64::try_from(left).unwrap_or(i64::MAX))).await?;
    }
    for zap in [dir.child_dir_zap, dir.props_zap, dir.clones] {
        if !zap.is_none() {
            objects::free_object(s, zap).await?;
        }
    }
    delegation::free(s, &dir).await?;
    crypto::release(s, id).await?;
    objects::take(s, children, &objects::name(&name)).await?;
    objects::free_zapified(s, id).await
}
