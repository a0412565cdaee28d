//! Livelists: the blocks that a clone has since it began.
//!
//! A clone shares most of its blocks with its origin, and what is its own is scattered over its tree: to
//! destroy it, the whole tree would have to be searched. So its directory keeps a log of what its head wrote
//! and gave up: a deadlist in form, whose lists have entries that are allocations and entries that are frees
//! ([`Kind`]). A free is in the same list as the allocation of its block, because blocks are assigned to
//! lists by birth. So each list tells on its own which blocks are left: gone through from its end, an
//! allocation that no free met before it is one.
//!
//! # Life
//! - A clone begins with an empty livelist. Each group that changes the head adds to it.
//! - All blocks of a group are in one list: a new one is begun before a group's entries are added, when the
//!   last has enough allocations.
//! - Two neighbouring lists, the last one apart, are made one when what is left of both is little
//!   (*condensing*), so that a livelist does not grow for ever.
//! - When the clone shares too little with its origin (`zfs_livelist_min_percent_shared`), or gets another
//!   origin (promotion, rollback), the livelist goes.
//! - When the clone is destroyed, the livelist is entered in the pool's `deleted_clones`, and freed one list
//!   at a time.
//!
//! # Invariants
//! - Blocks left in all lists are those of the head's tree that were born after the origin and are not
//!   embedded. What the clone's snapshots have and its head has not is not among them, and a clone with
//!   snapshots is not destroyed.
//! - The header counts what is left, which is what the directory counts when there are no snapshots; a
//!   livelist that says otherwise is not used to free.
//! - Each livelist, of clones that live and of destroyed ones, is a use of the feature `livelist`.
//!
//! Source of the facts: OpenZFS 2.3 `dsl_deadlist.c`, `dsl_dataset.c` (`dsl_flush_pending_livelist`),
//! `dsl_destroy.c` (`dsl_async_clone_destroy`), `spa.c` (`spa_livelist_delete_cb`).

use std::collections::HashMap;

use ondisk::blkptr::{Blkptr, Dva};
use ondisk::bpobj::is_free;
use ondisk::dsl_dir::field;
use ondisk::features::Feature;
use ondisk::pool_directory::{DELETED_CLONES, DIRECTORY_OBJECT};
use ondisk::{ObjectId, ObjsetId, Txg};

use super::bpobj::{self, Kind};
use super::space::counts;
use super::{deadlist, objects};
use crate::dmu::zap::edit::NewZap;
use crate::dmu::{Space, SyncedObjset};
use crate::dsl::SyncTask;
use crate::error::Result;
use crate::tunables;

/// Allocations in a list after which the next group begins another, and blocks that may be left in two lists
/// that are made one. A list is freed in one go. Tests have small ones.
const MAX_ALLOCS: u64 = if cfg!(test) { 20 } else { 100_000 };
/// No list with more entries is condensed: it is read in one go.
const MAX_CONDENSED: u64 = 4 << 20;

/// The livelist of a directory.
pub(super) async fn of(s: &SyncTask, dir: ObjectId) -> Result<Option<ObjectId>> {
    Ok(objects::field(s, dir, field::LIVELIST).await?.map(ObjectId))
}

/// Whether it must be known which blocks a head writes.
pub async fn has_livelist(s: &SyncTask, head: ObjsetId) -> Result<bool> {
    let dir = objects::dataset(s, ObjectId(head.get())).await?.dir;
    Ok(of(s, dir).await?.is_some())
}

/// A clone begins, which has written nothing yet.
pub(super) async fn begin(s: &SyncTask, dir: ObjectId) -> Result<()> {
    if !s.feature_enabled(Feature::Livelist) {
        return Ok(());
    }
    let livelist = deadlist::create(s).await?;
    objects::set_field(s, dir, field::LIVELIST, &objects::one(livelist.get())).await?;
    s.use_feature(Feature::Livelist, 1).await
}

/// A directory has no livelist any more.
pub(super) async fn remove(s: &SyncTask, dir: ObjectId) -> Result<()> {
    let Some(livelist) = of(s, dir).await? else { return Ok(()) };
    let head = objects::dir(s, dir).await?.head_dataset;
    if let Some(open) = s.open_dataset(ObjsetId(head.get())) {
        open.objset.list_births(false);
    }
    objects::take(s, dir, &objects::name(field::LIVELIST)).await?;
    deadlist::free(s, livelist).await?;
    s.use_feature(Feature::Livelist, -1).await
}

/// Adds what a head wrote and gave up.
pub(super) async fn synced(s: &SyncTask, dir: ObjectId, origin: Txg, done: &SyncedObjset) -> Result<()> {
    let Some(livelist) = of(s, dir).await? else { return Ok(()) };
    let listed = |bp: &&Blkptr| counts(bp) && !bp.is_embedded() && bp.birth() > origin;
    let frees: Vec<Blkptr> = done.killed.iter().filter(listed).copied().collect();
    let Some(born) = &done.born_blocks else {
        // No caller has asked which they are.
        return if done.born == Space::default() && frees.is_empty() { Ok(()) } else { remove(s, dir).await };
    };
    let allocs: Vec<Blkptr> = born.iter().filter(listed).copied().collect();
    let before = Txg(s.txg().get().saturating_sub(1));
    match deadlist::lists(s, livelist).await?.last_key_value() {
        None => deadlist::add_key(s, livelist, before).await?,
        // One list has all of a group.
        Some((since, list)) if *since < before && remaining_allocs(s, *list).await? > MAX_ALLOCS => {
            deadlist::add_key(s, livelist, before).await?;
        }
        Some(_) => {}
    }
    deadlist::insert(s, livelist, &allocs).await?;
    deadlist::insert_as(s, livelist, &frees, Kind::Free).await?;
    condense(s, livelist).await
}

/// Allocations in a list that may be the shared empty one, those that were freed since among them.
async fn remaining_allocs(s: &SyncTask, list: ObjectId) -> Result<u64> {
    let (all, freed) = bpobj::count(s, list).await?;
    Ok(all - freed)
}

/// Makes the first two neighbouring lists one of which little enough is left.
async fn condense(s: &SyncTask, livelist: ObjectId) -> Result<()> {
    let lists: Vec<(Txg, ObjectId)> = deadlist::lists(s, livelist).await?.into_iter().collect();
    let Some((_, all_but_last)) = lists.split_last() else { return Ok(()) };
    for pair in all_but_last.windows(2) {
        let [(since, first), (next_since, next)] = pair else { continue };
        let (first_all, first_freed) = bpobj::count(s, *first).await?;
        let (next_all, next_freed) = bpobj::count(s, *next).await?;
        let all = first_all.saturating_add(next_all);
        // A free takes an allocation with it.
        let left = all.saturating_sub(first_freed.saturating_add(next_freed).saturating_mul(2));
        if left >= MAX_ALLOCS || all > MAX_CONDENSED {
            continue;
        }
        let mut kept = Vec::new();
        for list in [first, next] {
            match left_in(s, *list).await? {
                Some(blocks) => kept.extend(blocks),
                None => return Ok(()),
            }
        }
        for (since, list) in [(*since, *first), (*next_since, *next)] {
            deadlist::drop_list(s, livelist, since, list).await?;
        }
        deadlist::add_key(s, livelist, *since).await?;
        return deadlist::insert(s, livelist, &kept).await;
    }
    Ok(())
}

/// Blocks that are left in a list, or nothing where it contradicts itself.
async fn left_in(s: &SyncTask, list: ObjectId) -> Result<Option<Vec<Blkptr>>> {
    let (mut end, freed) = bpobj::count(s, list).await?;
    let mut gone: HashMap<Option<Dva>, u64> = HashMap::new();
    let mut left = Vec::new();
    let mut frees = 0;
    while end > 0 {
        let entries = bpobj::entries_before(s, list, end).await?;
        if entries.is_empty() {
            return Ok(None);
        }
        end -= entries.len() as u64;
        for entry in entries.iter().rev() {
            if is_free(entry) {
                *gone.entry(entry.dva(0)).or_default() += 1;
                frees += 1;
                continue;
            }
            match gone.get_mut(&entry.dva(0)) {
                None => left.push(*entry),
                Some(1) => drop(gone.remove(&entry.dva(0))),
                Some(count) => *count -= 1,
            }
        }
    }
    let consistent = gone.is_empty() && frees == freed;
    if !consistent {
        tracing::warn!(%list, "a list of a livelist frees what it has not: it is left as it is");
    }
    Ok(consistent.then_some(left))
}

/// A livelist that saves little any more goes.
pub(super) async fn end_if_useless(s: &SyncTask, head: ObjectId) -> Result<()> {
    let phys = objects::dataset(s, head).await?;
    if of(s, phys.dir).await?.is_none() {
        return Ok(());
    }
    let own = objects::dir(s, phys.dir).await?.used_breakdown().map_or(u64::MAX, |used| used.head);
    match is_useful(phys.referenced_bytes, own) {
        true => Ok(()),
        false => remove(s, phys.dir).await,
    }
}

/// Whether enough of what a clone refers to is its origin's.
fn is_useful(referenced_bytes: u64, own_bytes: u64) -> bool {
    let shared = u128::from(referenced_bytes.saturating_sub(own_bytes));
    let least = u128::from(tunables::ZFS_LIVELIST_MIN_PERCENT_SHARED.get());
    referenced_bytes == 0 || shared * 100 / u128::from(referenced_bytes) > least
}

/// Leaves the livelist of a directory, whose head goes and which counts `space`, to be freed. Gives what it
/// has; nothing when there is none that can be trusted.
pub(super) async fn give_away(s: &SyncTask, dir: ObjectId, space: Space) -> Result<Option<Space>> {
    let Some(livelist) = of(s, dir).await? else { return Ok(None) };
    let listed = deadlist::space(s, livelist).await?;
    if (listed.used, listed.compressed) != (space.used, space.compressed) {
        tracing::warn!(%dir, "a livelist has not what its clone counts: the clone's tree is searched instead");
        remove(s, dir).await?;
        return Ok(None);
    }
    let deleted = match objects::pool_entry(s, DELETED_CLONES).await? {
        Some(deleted) => deleted,
        None => {
            let deleted = objects::create_zap(s, NewZap::of(objects::ZAP_METADATA)).await?;
            let key = objects::name(DELETED_CLONES);
            objects::add(s, DIRECTORY_OBJECT, &key, &objects::one(deleted.get())).await?;
            deleted
        }
    };
    let entry = livelist.get();
    objects::add(s, deleted, &objects::number(entry), &objects::one(entry)).await?;
    objects::take(s, dir, &objects::name(field::LIVELIST)).await?;
    Ok(Some(listed))
}

/// Takes one list off the livelists of destroyed clones: its blocks are to be freed now. Livelists without
/// lists are removed on the way.
pub(super) async fn take_deleted(s: &SyncTask) -> Result<Option<Vec<Blkptr>>> {
    let Some(deleted) = objects::pool_entry(s, DELETED_CLONES).await? else { return Ok(None) };
    let mut doubtful = false;
    for (_, livelist) in objects::entries(s, deleted).await? {
        let livelist = ObjectId(livelist);
        let lists = deadlist::lists(s, livelist).await?;
        if let Some((since, list)) = lists.first_key_value() {
            let Some(blocks) = left_in(s, *list).await? else {
                doubtful = true;
                continue;
            };
            deadlist::drop_list(s, livelist, *since, *list).await?;
            return Ok(Some(blocks));
        }
        objects::take(s, deleted, &objects::number(livelist.get())).await?;
        deadlist::free(s, livelist).await?;
        s.use_feature(Feature::Livelist, -1).await?;
    }
    if !doubtful {
        objects::take(s, DIRECTORY_OBJECT, &objects::name(DELETED_CLONES)).await?;
        objects::free_object(s, deleted).await?;
    }
    Ok(None)
}

/// What is left in all lists of a livelist, what its header says, and the keys of the lists.
#[cfg(test)]
pub(super) async fn contents(s: &SyncTask, livelist: ObjectId) -> (Vec<Blkptr>, Space, Vec<Txg>) {
    let lists = deadlist::lists(s, livelist).await.unwrap();
    let mut all = Vec::new();
    for list in lists.values() {
        all.extend(left_in(s, *list).await.unwrap().expect("it frees what it has only"));
    }
    (all, deadlist::space(s, livelist).await.unwrap(), lists.into_keys().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_livelist_is_useful_while_more_than_three_quarters_are_shared() {
        assert!(is_useful(0, 0));
        assert!(is_useful(1000, 100));
        assert!(is_useful(1000, 240));
        assert!(!is_useful(1000, 250));
        assert!(!is_useful(1000, 5000));
        assert!(is_useful(u64::MAX, 0));
        // Lower than the default, so that no other test loses a livelist by it.
        tunables::ZFS_LIVELIST_MIN_PERCENT_SHARED.set(10).unwrap();
        let (useful, useless) = (is_useful(1000, 880), is_useful(1000, 900));
        tunables::ZFS_LIVELIST_MIN_PERCENT_SHARED.reset();
        assert!(useful && !useless);
    }
}
