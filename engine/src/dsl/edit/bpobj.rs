//! Block pointer lists (`bpobj`), written.
//!
//! A list grows at its end and shrinks from its end. It may take other lists in, whole: what is small is
//! copied, what is large becomes a *sub-list*, so that taking it in costs the same whatever its length. Most
//! lists of deadlists are empty, so with the feature `empty_bpobj` all empty ones are one shared object,
//! which is counted by the feature's uses and replaced by a list of its own when the first pointer comes.
//!
//! Stored pointers lack what is not needed to free a block (checksum, fill, embedded bytes), so that lists
//! compress well.
//!
//! Old pools have older lists: they include no others (before version 26), and do not say what their blocks
//! are compressed and uncompressed (before 3).
//!
//! The lists of livelists have entries of two kinds ([`Kind`]): those that are frees count less than nothing,
//! and their number is in the header.
//!
//! Source of the facts: OpenZFS 2.3 `bpobj.c`.

use std::sync::Arc;

use ondisk::blkptr::Blkptr;
use ondisk::bpobj::{BpobjPhys, CompressedSpace, SubObjects};
use ondisk::dmu::DmuType;
use ondisk::features::Feature;
use ondisk::pool_directory::{DIRECTORY_OBJECT, EMPTY_BPOBJ};
use ondisk::pool_version as version;
use ondisk::{ObjectId, Reader};

use super::features;
use super::objects::{self, ORDER};
use super::space::{self, counts, difference, sum, weigh};
use crate::dmu::{LiveObject, NewObject, Space};
use crate::dsl::SyncTask;
use crate::error::{Error, Result};

/// Bytes in a block of a list, and of a list of lists (`SPA_OLD_MAXBLOCKSIZE`).
pub(super) const BLOCK_BYTES: u32 = 128 << 10;
/// No more lists within a list.
const MAX_LISTS: u64 = 1 << 24;
/// No deeper nesting.
const MAX_DEPTH: usize = 1 << 12;

/// What an entry says of its block. All but livelists have only the first kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// It is the list's.
    Alloc,
    /// It is the list's no more.
    Free,
}

const PROPERTIES: usize = 6;
const LOGICAL_BIRTH: usize = 10;
const FILL: usize = 11;
const CHECKSUM: std::ops::Range<usize> = 12..16;

/// Creates an empty list of its own.
pub(super) async fn create(s: &SyncTask) -> Result<ObjectId> {
    create_with_blocks(s, BLOCK_BYTES).await
}

/// Creates an empty list whose blocks have so many bytes, as the pool's version has it.
pub async fn create_with_blocks(s: &SyncTask, block_size: u32) -> Result<ObjectId> {
    create_of(s, block_size, s.version()).await
}

/// Creates an empty list as a version of the pool has it.
pub(super) async fn create_of(s: &SyncTask, block_size: u32, version: u64) -> Result<ObjectId> {
    let phys = BpobjPhys {
        space: (version >= version::BPOBJ_ACCOUNT).then(CompressedSpace::default),
        subobjs: (version >= version::DEADLISTS).then(SubObjects::default),
        num_freed: s.feature_enabled(Feature::Livelist).then_some(0),
        ..BpobjPhys::default()
    };
    let new = NewObject {
        dmu_type: DmuType::BPOBJ,
        block_size,
        bonus_type: DmuType::BPOBJ_HDR,
        bonus: phys.encode(ORDER),
        slots: 1,
    };
    Ok(s.mos().allocate(&s.tx, new).await?.id())
}

/// The list that all empty lists share, if there is one now.
pub(super) async fn shared_empty(s: &SyncTask) -> Result<Option<ObjectId>> {
    objects::pool_entry(s, EMPTY_BPOBJ).await
}

/// One more empty list: the shared one where the pool has that.
pub(super) async fn create_empty(s: &SyncTask) -> Result<ObjectId> {
    if !s.feature_enabled(Feature::EmptyBpobj) {
        return create(s).await;
    }
    let empty = match shared_empty(s).await? {
        Some(empty) => empty,
        None => {
            let empty = create(s).await?;
            let key = objects::name(EMPTY_BPOBJ);
            objects::add(s, DIRECTORY_OBJECT, &key, &objects::one(empty.get())).await?;
            empty
        }
    };
    s.use_feature(Feature::EmptyBpobj, 1).await?;
    Ok(empty)
}

/// One less use of the shared empty list.
pub(super) async fn release_empty(s: &SyncTask) -> Result<()> {
    s.use_feature(Feature::EmptyBpobj, -1).await?;
    if features::count(s, Feature::EmptyBpobj).await? == 0
        && let Some(empty) = shared_empty(s).await?
    {
        objects::take(s, DIRECTORY_OBJECT, &objects::name(EMPTY_BPOBJ)).await?;
        objects::free_object(s, empty).await?;
    }
    Ok(())
}

async fn open(s: &SyncTask, id: ObjectId) -> Result<(Arc<LiveObject>, BpobjPhys)> {
    objects::bonus(s, id, DmuType::BPOBJ_HDR, BpobjPhys::parse).await
}

fn put(s: &SyncTask, list: &LiveObject, phys: &BpobjPhys) {
    list.set_bonus(&s.tx, DmuType::BPOBJ_HDR, &phys.encode(ORDER));
}

fn space_of(phys: &BpobjPhys) -> Space {
    let more = phys.space.unwrap_or_default();
    Space { used: phys.bytes, compressed: more.comp_bytes, uncompressed: more.uncomp_bytes }
}

fn set_space(phys: &mut BpobjPhys, space: Space) {
    phys.bytes = space.used;
    if let Some(more) = &mut phys.space {
        *more = CompressedSpace { comp_bytes: space.compressed, uncomp_bytes: space.uncompressed };
    }
}

/// Space of all pointers in a list, included lists too.
pub(super) async fn space(s: &SyncTask, id: ObjectId) -> Result<Space> {
    Ok(space_of(&open(s, id).await?.1))
}

/// Whether a list has no pointers.
pub(super) async fn is_empty(s: &SyncTask, id: ObjectId) -> Result<bool> {
    let (_, phys) = open(s, id).await?;
    Ok(phys.num_blkptrs == 0 && phys.included().count == 0)
}

/// A pointer as lists keep it.
fn stored(bp: &Blkptr, kind: Kind) -> Result<Blkptr> {
    let mut words = *bp.words();
    if bp.is_embedded() {
        let kept = [words[PROPERTIES], words[LOGICAL_BIRTH]];
        words = [0; 16];
        [words[PROPERTIES], words[LOGICAL_BIRTH]] = kept;
    } else if !bp.is_dedup() {
        words[CHECKSUM].fill(0);
    }
    words[FILL] = u64::from(kind == Kind::Free);
    Blkptr::from_words(words).map_err(Error::format("block pointer for a list"))
}

/// Appends pointers to a list that is not the shared empty one.
pub(super) async fn append(s: &SyncTask, id: ObjectId, pointers: &[Blkptr], kind: Kind) -> Result<()> {
    let (list, mut phys) = open(s, id).await?;
    let mut bytes = Vec::with_capacity(pointers.len() * Blkptr::SIZE);
    let mut space = space_of(&phys);
    let mut added = 0;
    for bp in pointers.iter().filter(|bp| counts(bp)) {
        bytes.extend_from_slice(&stored(bp, kind)?.encode(ORDER));
        space = match kind {
            Kind::Alloc => sum(space, weigh(s, bp)),
            Kind::Free => difference(space, weigh(s, bp)),
        };
        added += 1;
    }
    if added == 0 {
        return Ok(());
    }
    list.write_at(&s.tx, phys.num_blkptrs * Blkptr::SIZE as u64, &bytes).await?;
    phys.num_blkptrs += added;
    if kind == Kind::Free {
        let freed = phys.num_freed.as_mut();
        let freed = freed.ok_or_else(|| objects::corrupt(id, "a list that cannot count frees"))?;
        *freed += added;
    }
    set_space(&mut phys, space);
    put(s, &list, &phys);
    Ok(())
}

/// The entries of a list that includes no others, as many from the one numbered `first` on as one block of
/// the list has.
pub(super) async fn entries_from(s: &SyncTask, id: ObjectId, first: u64) -> Result<Vec<Blkptr>> {
    let (list, phys) = open(s, id).await?;
    if phys.included().count != 0 {
        return Err(objects::corrupt(id, "a plain list that includes others"));
    }
    let most = list.block_size() / Blkptr::SIZE as u64;
    let count = phys.num_blkptrs.saturating_sub(first).min(most);
    read(&Step { list, phys }, first, count).await
}

/// How many entries a list has, and how many of them are frees.
pub(super) async fn count(s: &SyncTask, id: ObjectId) -> Result<(u64, u64)> {
    let (_, phys) = open(s, id).await?;
    let freed = phys.num_freed.unwrap_or(0);
    match freed <= phys.num_blkptrs && phys.included().count == 0 {
        true => Ok((phys.num_blkptrs, freed)),
        false => Err(objects::corrupt(id, "is no list of a livelist")),
    }
}

/// The last entries of a list before the one numbered `end`, in their order: those of one block of the list.
pub(super) async fn entries_before(s: &SyncTask, id: ObjectId, end: u64) -> Result<Vec<Blkptr>> {
    let per_block = u64::from(BLOCK_BYTES) / Blkptr::SIZE as u64;
    let (list, phys) = open(s, id).await?;
    let end = end.min(phys.num_blkptrs);
    let first = end.saturating_sub(1) / per_block * per_block;
    read(&Step { list, phys }, first, end - first).await
}

/// The lists that a list includes.
async fn included(s: &SyncTask, phys: &BpobjPhys) -> Result<Vec<ObjectId>> {
    let SubObjects { object, count } = phys.included();
    if object.is_none() || count == 0 {
        return Ok(Vec::new());
    }
    if count > MAX_LISTS {
        return Err(objects::corrupt(object, "more lists than there can be"));
    }
    let numbers = s.mos().object(object).await?;
    let mut bytes = vec![0; count as usize * 8];
    numbers.read_at(0, &mut bytes).await?;
    Ok(ondisk::bpobj::subobjs(&bytes, ORDER).collect())
}

/// Frees a list with all that it includes. Not for the shared empty one.
pub(super) async fn free(s: &SyncTask, id: ObjectId) -> Result<()> {
    let mut pending = vec![id];
    let mut seen = 0;
    while let Some(id) = pending.pop() {
        seen += 1;
        if seen > MAX_LISTS {
            return Err(objects::corrupt(id, "lists include each other without end"));
        }
        let (_, phys) = open(s, id).await?;
        pending.extend(included(s, &phys).await?);
        if !phys.included().object.is_none() {
            objects::free_object(s, phys.included().object).await?;
        }
        objects::free_object(s, id).await?;
    }
    Ok(())
}

/// Whether the contents of an object fit into its first block.
fn is_small(object: &LiveObject) -> bool {
    object.dnode().max_block_id.get() == 0 && object.end() <= object.block_size()
}

/// Takes a list in: afterwards it is part of `id`, or gone (`bpobj_enqueue_subobj`).
pub(super) async fn append_list(s: &SyncTask, id: ObjectId, sub: ObjectId) -> Result<()> {
    if shared_empty(s).await? == Some(sub) {
        return release_empty(s).await;
    }
    if is_empty(s, sub).await? {
        return free(s, sub).await;
    }
    let (list, mut phys) = open(s, id).await?;
    let (sub_list, mut sub_phys) = open(s, sub).await?;
    let both = sum(space_of(&phys), space_of(&sub_phys));
    set_space(&mut phys, both);

    let below = sub_phys.included();
    let mut copied_lists = true;
    if !below.object.is_none() {
        copied_lists = is_small(&*s.mos().object(below.object).await?);
        if copied_lists {
            for list in included(s, &sub_phys).await? {
                include(s, &mut phys, list).await?;
            }
            sub_phys.subobjs = Some(SubObjects::default());
            put(s, &sub_list, &sub_phys);
            objects::free_object(s, below.object).await?;
        }
    }
    if copied_lists && is_small(&sub_list) {
        let mut bytes = vec![0; sub_phys.num_blkptrs as usize * Blkptr::SIZE];
        sub_list.read_at(0, &mut bytes).await?;
        list.write_at(&s.tx, phys.num_blkptrs * Blkptr::SIZE as u64, &bytes).await?;
        phys.num_blkptrs += sub_phys.num_blkptrs;
        put(s, &list, &phys);
        return objects::free_object(s, sub).await;
    }
    include(s, &mut phys, sub).await?;
    put(s, &list, &phys);
    Ok(())
}

/// Adds the number of a list to those that a list includes.
async fn include(s: &SyncTask, phys: &mut BpobjPhys, sub: ObjectId) -> Result<()> {
    let mut subobjs = phys.included();
    let numbers = if subobjs.object.is_none() {
        let new = NewObject {
            dmu_type: DmuType::BPOBJ_SUBOBJ,
            block_size: BLOCK_BYTES,
            bonus_type: DmuType::NONE,
            bonus: Vec::new(),
            slots: 1,
        };
        s.mos().allocate(&s.tx, new).await?
    } else {
        s.mos().object(subobjs.object).await?
    };
    subobjs.object = numbers.id();
    numbers.write_at(&s.tx, subobjs.count * 8, &ORDER.u64_bytes(sub.get())).await?;
    subobjs.count += 1;
    phys.subobjs = Some(subobjs);
    Ok(())
}

/// One list on the way down to where pointers are taken.
struct Step {
    list: Arc<LiveObject>,
    phys: BpobjPhys,
}

/// Takes up to `budget` pointers off the end of a list. Included lists that become empty are freed on the
/// way.
pub(super) async fn take(s: &SyncTask, id: ObjectId, budget: usize) -> Result<Vec<Blkptr>> {
    let per_block = u64::from(BLOCK_BYTES) / Blkptr::SIZE as u64;
    let mut taken = Vec::new();
    let (list, phys) = open(s, id).await?;
    let mut path = vec![Step { list, phys }];
    while let Some(step) = path.last_mut() {
        let left = budget.saturating_sub(taken.len()) as u64;
        if step.phys.num_blkptrs > 0 {
            if left == 0 {
                break;
            }
            let last = (step.phys.num_blkptrs - 1) % per_block + 1;
            let count = last.min(left);
            let first = step.phys.num_blkptrs - count;
            let pointers = read(step, first, count).await?;
            let at = first * Blkptr::SIZE as u64;
            step.list.punch(&s.tx, at, u64::MAX).await?;
            step.phys.num_blkptrs = first;
            let weight = pointers.iter().map(|bp| weigh(s, bp)).fold(Space::default(), space::sum);
            for step in &mut path {
                let rest = difference(space_of(&step.phys), weight);
                set_space(&mut step.phys, rest);
            }
            taken.extend(pointers);
            continue;
        }
        let subobjs = step.phys.included();
        if subobjs.count > 0 {
            if left == 0 {
                break;
            }
            if path.len() > MAX_DEPTH {
                return Err(objects::corrupt(id, "lists include each other without end"));
            }
            let numbers = s.mos().object(subobjs.object).await?;
            let mut bytes = [0; 8];
            numbers.read_at((subobjs.count - 1) * 8, &mut bytes).await?;
            let sub = Reader::new("list of lists", &bytes, ORDER).u64();
            let sub = ObjectId(sub.map_err(Error::format("list of lists"))?);
            let (list, phys) = open(s, sub).await?;
            path.push(Step { list, phys });
            continue;
        }
        // Empty.
        let Some(done) = path.pop() else { break };
        let Some(parent) = path.last_mut() else {
            put(s, &done.list, &done.phys);
            break;
        };
        if !subobjs.object.is_none() {
            objects::free_object(s, subobjs.object).await?;
        }
        objects::free_object(s, done.list.id()).await?;
        let mut of_parent = parent.phys.included();
        of_parent.count = of_parent.count.saturating_sub(1);
        s.mos().object(of_parent.object).await?.punch(&s.tx, of_parent.count * 8, 8).await?;
        parent.phys.subobjs = Some(of_parent);
    }
    for step in &path {
        put(s, &step.list, &step.phys);
    }
    Ok(taken)
}

async fn read(step: &Step, first: u64, count: u64) -> Result<Vec<Blkptr>> {
    let mut bytes = vec![0; count as usize * Blkptr::SIZE];
    step.list.read_at(first * Blkptr::SIZE as u64, &mut bytes).await?;
    let pointers = ondisk::bpobj::blkptrs(&bytes, ORDER);
    pointers.collect::<ondisk::Result<_>>().map_err(|error| objects::corrupt(step.list.id(), error))
}
