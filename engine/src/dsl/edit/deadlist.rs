//! Deadlists, written.
//!
//! The deadlist of a dataset holds the blocks that the snapshot before it has and it has no more, sorted by
//! birth into one list for each snapshot that was there when they died: the list under key *t* has the blocks
//! born after *t* and not after the next key. So when a snapshot goes, the blocks that only it had are whole
//! lists, which move without being read.
//!
//! Invariants: the keys are the creation groups of the snapshots before the dataset, its origin's among them
//! (and of bookmarks that count what was freed since them), and 0; the head of the deadlist holds the sum of
//! its lists.
//!
//! # Plain deadlists
//! Before version 26 a deadlist is one list of blocks, not sorted, whose object is of another type: it has no
//! keys. Such deadlists stay in pools that were upgraded, until their snapshots go; what is merged into a
//! deadlist of today is sorted then. In each chain of snapshots the plain ones come first.
//!
//! Source of the facts: OpenZFS 2.3 `dsl_deadlist.c`.

use std::collections::BTreeMap;
use std::sync::Arc;

use ondisk::blkptr::Blkptr;
use ondisk::deadlist::{self, DeadlistPhys};
use ondisk::dmu::DmuType;
use ondisk::pool_version as version;
use ondisk::{ObjectId, Txg};

use super::bpobj::{self, Kind};
use super::objects;
use super::space::{difference, sum, weigh};
use crate::dmu::zap::{self, edit::NewZap};
use crate::dmu::{LiveObject, NewObject, Space};
use crate::dsl::SyncTask;
use crate::error::Result;

/// More snapshots than a chain can have.
const MAX_CHAIN: usize = 1 << 24;

/// Creates an empty deadlist, of the form that the pool's version has.
pub(super) async fn create(s: &SyncTask) -> Result<ObjectId> {
    if !s.has_version(version::DEADLISTS) {
        return bpobj::create(s).await;
    }
    let new = NewObject {
        dmu_type: DmuType::DEADLIST,
        block_size: 512,
        bonus_type: DmuType::DEADLIST_HDR,
        bonus: DeadlistPhys::default().encode(objects::ORDER),
        slots: 1,
    };
    let object = s.mos().allocate(&s.tx, new).await?;
    zap::edit::initialize(&object, &s.tx, NewZap::of(DmuType::DEADLIST)).await?;
    Ok(object.id())
}

async fn open(s: &SyncTask, id: ObjectId) -> Result<(Arc<LiveObject>, DeadlistPhys)> {
    objects::bonus(s, id, DmuType::DEADLIST_HDR, DeadlistPhys::parse).await
}

/// Whether a deadlist is a plain list.
pub(super) async fn is_plain(s: &SyncTask, id: ObjectId) -> Result<bool> {
    Ok(s.mos().object(id).await?.dnode().dmu_type == DmuType::BPOBJ)
}

fn space_of(phys: &DeadlistPhys) -> Space {
    Space { used: phys.used_bytes, compressed: phys.comp_bytes, uncompressed: phys.uncomp_bytes }
}

fn put(s: &SyncTask, object: &LiveObject, space: Space) {
    let phys = DeadlistPhys {
        used_bytes: space.used,
        comp_bytes: space.compressed,
        uncomp_bytes: space.uncompressed,
    };
    object.set_bonus(&s.tx, DmuType::DEADLIST_HDR, &phys.encode(objects::ORDER));
}

/// The lists by key.
pub(super) async fn lists(s: &SyncTask, id: ObjectId) -> Result<BTreeMap<Txg, ObjectId>> {
    let mut lists = BTreeMap::new();
    for (key, list) in objects::entries(s, id).await? {
        let since = deadlist::parse_key(key.as_bytes()).map_err(|error| objects::corrupt(id, error))?;
        lists.insert(since, ObjectId(list));
    }
    Ok(lists)
}

fn key(since: Txg) -> zap::Key {
    objects::number(since.get())
}

/// Space of all blocks in a deadlist.
pub(super) async fn space(s: &SyncTask, id: ObjectId) -> Result<Space> {
    if is_plain(s, id).await? {
        return bpobj::space(s, id).await;
    }
    Ok(space_of(&open(s, id).await?.1))
}

/// Space of the lists whose keys are at least `from` and less than `before`: of the blocks born after `from`
/// and not after `before`.
pub(super) async fn space_range(s: &SyncTask, id: ObjectId, from: Txg, before: Txg) -> Result<Space> {
    if is_plain(s, id).await? {
        let mut space = Space::default();
        let mut entries = PlainEntries::of(id);
        while let Some(pointers) = entries.next(s).await? {
            let inside = pointers.iter().filter(|bp| bp.birth() > from && bp.birth() <= before);
            space = inside.fold(space, |space, bp| sum(space, weigh(s, bp)));
        }
        return Ok(space);
    }
    open(s, id).await?;
    let empty = bpobj::shared_empty(s).await?;
    let mut space = Space::default();
    if from < before {
        for (_, list) in lists(s, id).await?.range(from..before) {
            if Some(*list) != empty {
                space = sum(space, bpobj::space(s, *list).await?);
            }
        }
    }
    Ok(space)
}

/// Goes through a plain deadlist, some entries at a time.
pub(super) struct PlainEntries {
    list: ObjectId,
    next: u64,
}

impl PlainEntries {
    pub(super) fn of(list: ObjectId) -> Self {
        Self { list, next: 0 }
    }

    /// The next entries; none at the end.
    pub(super) async fn next(&mut self, s: &SyncTask) -> Result<Option<Vec<Blkptr>>> {
        let entries = bpobj::entries_from(s, self.list, self.next).await?;
        self.next += entries.len() as u64;
        Ok(Some(entries).filter(|entries| !entries.is_empty()))
    }
}

/// A list under `since` that can be appended to: the shared empty one is replaced by one of its own.
async fn own_list(s: &SyncTask, id: ObjectId, since: Txg, list: ObjectId) -> Result<ObjectId> {
    if bpobj::shared_empty(s).await? != Some(list) {
        return Ok(list);
    }
    let own = bpobj::create(s).await?;
    bpobj::release_empty(s).await?;
    objects::set(s, id, &key(since), &objects::one(own.get())).await?;
    Ok(own)
}

/// Takes a whole list in under `since`, where `to` is. Gives the list that is there now.
async fn append_list(
    s: &SyncTask,
    id: ObjectId,
    since: Txg,
    to: ObjectId,
    list: ObjectId,
) -> Result<ObjectId> {
    if bpobj::shared_empty(s).await? != Some(to) {
        bpobj::append_list(s, to, list).await?;
        return Ok(to);
    }
    bpobj::release_empty(s).await?;
    objects::set(s, id, &key(since), &objects::one(list.get())).await?;
    Ok(list)
}

/// The list for blocks born in `birth`: that of the last key before.
fn list_for(id: ObjectId, lists: &BTreeMap<Txg, ObjectId>, birth: Txg) -> Result<(Txg, ObjectId)> {
    let found = lists.range(..birth).next_back().or_else(|| lists.first_key_value());
    let (since, list) = found.ok_or_else(|| objects::corrupt(id, "a deadlist without lists"))?;
    Ok((*since, *list))
}

/// Adds blocks.
pub(super) async fn insert(s: &SyncTask, id: ObjectId, pointers: &[Blkptr]) -> Result<()> {
    insert_as(s, id, pointers, Kind::Alloc).await
}

/// Adds entries of a kind. Other than allocations are for livelists only.
pub(super) async fn insert_as(s: &SyncTask, id: ObjectId, pointers: &[Blkptr], kind: Kind) -> Result<()> {
    if pointers.is_empty() {
        return Ok(());
    }
    if is_plain(s, id).await? {
        return bpobj::append(s, id, pointers, kind).await;
    }
    let (object, phys) = open(s, id).await?;
    let lists = lists(s, id).await?;
    let mut by_list: BTreeMap<(Txg, ObjectId), Vec<Blkptr>> = BTreeMap::new();
    let mut space = space_of(&phys);
    for bp in pointers {
        by_list.entry(list_for(id, &lists, bp.birth())?).or_default().push(*bp);
        space = match kind {
            Kind::Alloc => sum(space, weigh(s, bp)),
            Kind::Free => difference(space, weigh(s, bp)),
        };
    }
    for ((since, list), pointers) in by_list {
        let list = own_list(s, id, since, list).await?;
        bpobj::append(s, list, &pointers, kind).await?;
    }
    put(s, &object, space);
    Ok(())
}

/// Adds a key, without blocks.
pub(super) async fn add_key(s: &SyncTask, id: ObjectId, since: Txg) -> Result<()> {
    if is_plain(s, id).await? {
        return Ok(());
    }
    open(s, id).await?;
    let list = bpobj::create_empty(s).await?;
    objects::add(s, id, &key(since), &objects::one(list.get())).await
}

/// Removes a key: its blocks go to the one before.
pub(super) async fn remove_key(s: &SyncTask, id: ObjectId, since: Txg) -> Result<()> {
    if is_plain(s, id).await? {
        return Ok(());
    }
    open(s, id).await?;
    let lists = lists(s, id).await?;
    let missing = || objects::corrupt(id, format!("a deadlist without the key {since}"));
    let list = *lists.get(&since).ok_or_else(missing)?;
    let (before, to) = lists.range(..since).next_back().ok_or_else(missing)?;
    append_list(s, id, *before, *to, list).await?;
    objects::take(s, id, &key(since)).await
}

/// Takes a key off together with its list, whose blocks belong to another list or are gone.
pub(super) async fn drop_list(s: &SyncTask, id: ObjectId, since: Txg, list: ObjectId) -> Result<()> {
    let (object, phys) = open(s, id).await?;
    if bpobj::shared_empty(s).await? == Some(list) {
        bpobj::release_empty(s).await?;
    } else {
        put(s, &object, difference(space_of(&phys), bpobj::space(s, list).await?));
        bpobj::free(s, list).await?;
    }
    objects::take(s, id, &key(since)).await
}

/// An empty deadlist with the same keys, as far as they are before `before`. Of a plain one, which has none,
/// it has the keys that the snapshot `previous` and those before it tell, if it is not plain itself.
pub(super) async fn clone(s: &SyncTask, id: ObjectId, before: Txg, previous: ObjectId) -> Result<ObjectId> {
    let new = create(s).await?;
    if is_plain(s, new).await? {
        return Ok(new);
    }
    if is_plain(s, id).await? {
        let mut at = previous;
        for _ in 0..MAX_CHAIN {
            if at.is_none() {
                return Ok(new);
            }
            let snapshot = objects::dataset(s, at).await?;
            add_key(s, new, snapshot.prev_snap_txg).await?;
            at = snapshot.prev_snap;
        }
        return Err(objects::corrupt(previous, "its snapshots form a loop"));
    }
    for (since, _) in lists(s, id).await?.range(..before) {
        add_key(s, new, *since).await?;
    }
    Ok(new)
}

/// Frees a deadlist with its lists. The blocks in them belong to other lists.
pub(super) async fn free(s: &SyncTask, id: ObjectId) -> Result<()> {
    if is_plain(s, id).await? {
        return bpobj::free(s, id).await;
    }
    for (_, list) in lists(s, id).await? {
        if bpobj::shared_empty(s).await? == Some(list) {
            bpobj::release_empty(s).await?;
        } else {
            bpobj::free(s, list).await?;
        }
    }
    objects::free_object(s, id).await
}

/// Moves all blocks of the deadlist `from` into the deadlist `into`, which is not plain. `from` is only good
/// for being freed then.
pub(super) async fn merge(s: &SyncTask, into: ObjectId, from: ObjectId) -> Result<()> {
    if is_plain(s, from).await? {
        let mut entries = PlainEntries::of(from);
        while let Some(pointers) = entries.next(s).await? {
            insert(s, into, &pointers).await?;
        }
        return Ok(());
    }
    let (object, phys) = open(s, into).await?;
    let (from_object, from_phys) = open(s, from).await?;
    let mut lists_into = lists(s, into).await?;
    let first = lists_into.keys().next().copied();
    let first = first.ok_or_else(|| objects::corrupt(into, "a deadlist without lists"))?;
    for (since, list) in lists(s, from).await? {
        if let Some((to_since, to)) = lists_into.range_mut(..=since.max(first)).next_back() {
            *to = append_list(s, into, *to_since, *to, list).await?;
        }
        objects::take(s, from, &key(since)).await?;
    }
    put(s, &object, sum(space_of(&phys), space_of(&from_phys)));
    put(s, &from_object, Space::default());
    Ok(())
}

/// Moves the lists whose keys are at least `from` to the end of the list `to`; their keys go.
pub(super) async fn move_to(s: &SyncTask, id: ObjectId, to: ObjectId, from: Txg) -> Result<()> {
    let (object, phys) = open(s, id).await?;
    let mut space = space_of(&phys);
    for (since, list) in lists(s, id).await?.range(from..) {
        space = difference(space, bpobj::space(s, *list).await?);
        bpobj::append_list(s, to, *list).await?;
        objects::take(s, id, &key(*since)).await?;
    }
    put(s, &object, space);
    Ok(())
}
