//! Promoting a clone: its origin's dataset becomes *its* clone.
//!
//! The snapshots up to the origin move from the directory of the origin's head to the clone's directory, with
//! their names, their bookmarks, and what they count. Nothing else changes but who points to whom: no block
//! and no deadlist is touched.
//!
//! Three chains of snapshots are concerned: the *shared* ones (from the origin back to where its own
//! directory begins) move; the *clone's* own and those of the origin's head *after* the origin stay where
//! they are.
//!
//! Source of the facts: OpenZFS 2.3 `dsl_dataset.c` (`dsl_dataset_promote_check`,
//! `dsl_dataset_promote_sync`).

use ondisk::dsl_dataset::{self, DslDatasetPhys};
use ondisk::holds::MAX_DATASET_NAME_BYTES;
use ondisk::{ObjectId, Txg};

use super::limits::{self, Counted};
use super::receive::RECEIVE_CHILD;
use super::space::{self, Change, Used, did_use, difference, sum};
use super::{
    FoundHead, account, bookmark, clones, crypto, deadlist, destroy, errlog, events, find_head, livelist,
    objects, origin_snapshot, snapshot,
};
use crate::dmu::Space;
use crate::dsl::{Spare, SyncTask};
use crate::error::{Error, Result};
use crate::events::feed::What;

/// More snapshots than a chain can have.
const MAX_CHAIN: usize = 1 << 24;

/// One link of a chain.
#[derive(Debug, Clone, Copy)]
struct Link {
    id: ObjectId,
    phys: DslDatasetPhys,
}

/// The datasets from `last` back to, and without, `until`; the newest first.
async fn chain(s: &SyncTask, last: ObjectId, until: ObjectId) -> Result<Vec<Link>> {
    let mut links = Vec::new();
    let mut at = last;
    while at != until && !at.is_none() {
        if links.len() >= MAX_CHAIN {
            return Err(objects::corrupt(last, "its snapshots form a loop"));
        }
        let phys = objects::dataset(s, at).await?;
        links.push(Link { id: at, phys });
        at = phys.prev_snap;
    }
    Ok(links)
}

/// What is to be done, worked out before anything is.
struct Plan {
    /// Snapshots that move, the origin first.
    shared: Vec<Link>,
    /// Their names.
    names: Vec<String>,
    /// The first dataset of the clone's own chain.
    first_own: ObjectId,
    origin_head: ObjectId,
    origin_dir: ObjectId,
    /// What the origin's directory is itself a clone of.
    origin_origin: ObjectId,
    /// What moves.
    space: Space,
    /// What snapshots count afterwards, of the clone's directory and of the origin's.
    clone_snapshots: u64,
    origin_snapshots: u64,
    /// What is unique to the origin afterwards.
    unique: u64,
}

/// Promotes a clone.
pub async fn promote(s: &SyncTask, name: &str) -> Result<()> {
    promote_head(s, &find_head(s, name).await?).await
}

/// Gives a dataset its snapshots back from its hidden child [`RECEIVE_CHILD`], which earlier versions
/// promoted when they were asked to. Until then each of the two depends on the other one, and neither can be
/// destroyed. False where there is nothing to give back.
pub async fn promote_back(s: &SyncTask, name: &str) -> Result<bool> {
    let head = find_head(s, name).await?;
    let dir = objects::dir(s, head.phys.dir).await?;
    let child = objects::lookup(s, dir.child_dir_zap, &objects::name(RECEIVE_CHILD)).await?;
    let Some(child) = child.filter(|_| !dir.origin.is_none()) else { return Ok(false) };
    if objects::dataset(s, dir.origin).await?.dir != ObjectId(child) {
        return Ok(false);
    }
    promote_head(s, &head).await.map(|()| true)
}

pub(super) async fn promote_head(s: &SyncTask, head: &FoundHead) -> Result<()> {
    let name = &head.name;
    let plan = plan(s, head).await?;
    let dir = head.phys.dir;
    let Some(origin) = plan.shared.first().copied() else { return Ok(()) };
    s.require_for_change(Spare::Reserved, 2 + plan.shared.len() as u64)?;

    crypto::promoted(s, head, plan.origin_dir).await?;
    // Who follows whom.
    let old_next = origin.phys.next_snap;
    objects::change_dataset(s, origin.id, |origin| {
        origin.next_snap = plan.first_own;
        origin.unique_bytes = plan.unique;
    })
    .await?;
    clones::replace_next(s, origin.id, plan.first_own, Some(old_next)).await?;

    // Both begin elsewhere from now on.
    livelist::remove(s, dir).await?;
    livelist::remove(s, plan.origin_dir).await?;

    // Who is a clone of what.
    objects::change_dir(s, dir, |dir| dir.origin = plan.origin_origin).await?;
    objects::change_dir(s, plan.origin_dir, |dir| dir.origin = origin.id).await?;
    clones::forget(s, plan.origin_dir, head.object).await?;
    if !plan.origin_origin.is_none() {
        let above = objects::dataset(s, plan.origin_origin).await?.dir;
        clones::note(s, above, head.object).await?;
        clones::forget(s, above, plan.origin_head).await?;
    }
    clones::note(s, dir, plan.origin_head).await?;
    bookmark::move_until(s, plan.origin_head, head.object, origin.phys.creation_txg).await?;
    bookmark::next_changed(s, head.object, origin.id).await?;

    let from = objects::dataset(s, plan.origin_head).await?.snapnames_zap;
    for (link, name) in plan.shared.iter().zip(&plan.names) {
        objects::take(s, from, &objects::name(name)).await?;
        objects::add(s, head.phys.snapnames_zap, &objects::name(name), &objects::one(link.id.get())).await?;
        limits::adjust(s, plan.origin_dir, Counted::Snapshots, -1).await?;
        limits::adjust(s, dir, Counted::Snapshots, 1).await?;
        objects::change_dataset(s, link.id, |snapshot| snapshot.dir = dir).await?;
        move_clones(s, link, old_next, plan.origin_dir, dir).await?;
    }
    limits::snapshots_changed(s, plan.origin_dir).await?;
    limits::snapshots_changed(s, dir).await?;
    move_space(s, dir, &plan).await?;
    errlog::move_to_promoted(s, plan.origin_head, head.object, origin.phys.creation_txg).await?;
    s.announce(What::Promoted { name: name.clone(), guid: head.phys.guid });
    events::note(s, "promote", name, head.object, events::NOTHING).await
}

/// The clones of a snapshot that moves are clones of its new directory.
async fn move_clones(
    s: &SyncTask,
    link: &Link,
    old_next: ObjectId,
    from: ObjectId,
    to: ObjectId,
) -> Result<()> {
    if link.phys.next_clones.is_none() {
        return Ok(());
    }
    for (_, next) in objects::entries(s, link.phys.next_clones).await? {
        // The origin's own reference moved already.
        if ObjectId(next) == old_next {
            continue;
        }
        let dir = objects::dataset(s, ObjectId(next)).await?.dir;
        let head = objects::dir(s, dir).await?.head_dataset;
        clones::forget(s, from, head).await?;
        clones::note(s, to, head).await?;
    }
    Ok(())
}

/// What moves counts for the clone's directory, and no more for the origin's.
async fn move_space(s: &SyncTask, dir: ObjectId, plan: &Plan) -> Result<()> {
    let signed = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
    let (clone, origin) = (objects::dir(s, dir).await?, objects::dir(s, plan.origin_dir).await?);
    let moved = Change::more(plan.space);

    let snapshots = |phys: &ondisk::dsl_dir::DslDirPhys, now: u64| match phys.used_breakdown() {
        Some(breakdown) => signed(now) - signed(breakdown.snap),
        None => 0,
    };
    let more = snapshots(&clone, plan.clone_snapshots);
    did_use(s, dir, Used::Snap, Change::used(more)).await?;
    did_use(s, dir, Used::Head, Change { used: moved.used - more, ..moved }).await?;
    let more = snapshots(&origin, plan.origin_snapshots);
    did_use(s, plan.origin_dir, Used::Snap, Change::used(more)).await?;
    let less = Change::less(plan.space);
    did_use(s, plan.origin_dir, Used::Head, Change { used: less.used - more, ..less }).await
}

async fn plan(s: &SyncTask, head: &FoundHead) -> Result<Plan> {
    let dir = objects::dir(s, head.phys.dir).await?;
    if dir.origin.is_none() || Some(dir.origin) == origin_snapshot(s).await? {
        return Err(Error::Invalid(format!("{}: is not a cloned filesystem or volume", head.name)));
    }
    if head.phys.has(dsl_dataset::FLAG_NOPROMOTE) {
        return Err(Error::Unsupported(format!("{}: was made by a version that forbids it", head.name)));
    }
    destroy::check_supported(s, head).await?;
    let origin_dir = objects::dataset(s, dir.origin).await?.dir;
    crypto::check_promote(s, head.phys.dir, origin_dir).await?;
    let above = objects::dir(s, origin_dir).await?;
    let shared = chain(s, dir.origin, above.origin).await?;
    let own = chain(s, head.object, dir.origin).await?;
    let after = chain(s, above.head_dataset, dir.origin).await?;
    let first_own = own.last().map_or(head.object, |link| link.id);
    let origin = shared.first().copied().ok_or_else(|| objects::corrupt(dir.origin, "is no snapshot"))?;
    if objects::dataset(s, first_own).await?.prev_snap != origin.id {
        return Err(objects::corrupt(first_own, "its origin is not the snapshot before it"));
    }

    let first_deadlist = objects::dataset(s, first_own).await?.deadlist;
    let unique =
        deadlist::space_range(s, first_deadlist, origin.phys.prev_snap_txg, Txg(u64::MAX)).await?.used;
    let space = space_to_move(s, &shared, above.origin).await?;
    let names = check_names(s, head, above.head_dataset, &shared).await?;
    space::check_transfer(s, origin_dir, head.phys.dir, space.used).await?;
    limits::check(s, head.phys.dir, Counted::Snapshots, shared.len() as u64, Some(origin_dir)).await?;

    let since = account::origin_txg(s, origin_dir).await?;
    let clone_snapshots =
        on_deadlists(s, &shared, since).await?.saturating_add(on_deadlists(s, &own, since).await?);
    let origin_snapshots = on_deadlists(s, &after, origin.phys.creation_txg).await?;
    Ok(Plan {
        shared,
        names,
        first_own,
        origin_head: above.head_dataset,
        origin_dir,
        origin_origin: above.origin,
        space,
        clone_snapshots,
        origin_snapshots,
        unique,
    })
}

/// Space on the deadlists of datasets that was born after `since`.
async fn on_deadlists(s: &SyncTask, links: &[Link], since: Txg) -> Result<u64> {
    let mut sum = 0u64;
    for link in links {
        let space = deadlist::space_range(s, link.phys.deadlist, since, Txg(u64::MAX)).await?;
        sum = sum.saturating_add(space.used);
    }
    Ok(sum)
}

fn referenced(phys: &DslDatasetPhys) -> Space {
    Space {
        used: phys.referenced_bytes,
        compressed: phys.compressed_bytes,
        uncompressed: phys.uncompressed_bytes,
    }
}

/// Each snapshot brought what it has and the one before has not, and what died in it: that sums up to what
/// the last one has, and what is on all their deadlists.
async fn space_to_move(s: &SyncTask, shared: &[Link], before: ObjectId) -> Result<Space> {
    let mut space = shared.first().map(|origin| referenced(&origin.phys)).unwrap_or_default();
    for link in shared {
        if !link.phys.prev_snap.is_none() {
            space = sum(space, deadlist::space(s, link.phys.deadlist).await?);
        }
    }
    if !before.is_none() {
        space = difference(space, referenced(&objects::dataset(s, before).await?));
    }
    Ok(space)
}

/// The names of the snapshots that move. None may be that of a snapshot of the clone, nor too long below its
/// name; bookmarks likewise.
async fn check_names(
    s: &SyncTask,
    head: &FoundHead,
    origin_head: ObjectId,
    shared: &[Link],
) -> Result<Vec<String>> {
    let too_long = |short: &str| head.name.len() + 1 + short.len() >= MAX_DATASET_NAME_BYTES;
    let of = objects::dataset(s, origin_head).await?;
    let all = objects::entries(s, of.snapnames_zap).await?;
    let mut names = Vec::new();
    for link in shared {
        let found = all.iter().find(|(_, id)| *id == link.id.get());
        let (name, _) = found.ok_or_else(|| objects::corrupt(link.id, "a snapshot without a name"))?;
        if snapshot::by_name(s, &head.phys, name).await?.is_some() {
            return Err(Error::Exists(format!("{}@{name}", head.name)));
        }
        if too_long(name) {
            return Err(Error::Invalid(format!("{}@{name}: the name would be too long", head.name)));
        }
        names.push(name.clone());
    }
    let until = shared.first().map_or(Txg::NONE, |origin| origin.phys.creation_txg);
    let own = bookmark::all(s, head.object).await?;
    for mark in bookmark::all(s, origin_head).await?.iter().filter(|mark| mark.phys.creation_txg <= until) {
        if own.iter().any(|other| other.name == mark.name) || too_long(&mark.name) {
            return Err(Error::Exists(format!("{}#{}", head.name, mark.name)));
        }
    }
    Ok(names)
}
