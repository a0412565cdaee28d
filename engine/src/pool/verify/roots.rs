//! Where a verification begins: the MOS, datasets that are being destroyed, and the lists of blocks that wait
//! to be freed.
//!
//! Datasets are met as objects of the MOS; each is entered once.

use std::collections::HashMap;
use std::sync::Arc;

use ondisk::blkptr::{Blkptr, Dva};
use ondisk::bpobj::{BpobjPhys, blkptrs, is_free, subobjs};
use ondisk::dnode::Dnode;
use ondisk::dsl_dataset::DslDatasetPhys;
use ondisk::pool_directory::{self as directory, DIRECTORY_OBJECT};
use ondisk::{ObjectId, ObjsetId, Reader, Txg};

use crate::Bookmark;
use crate::Pool;
use crate::dmu::{Objset, zap};
use crate::error::{Error, Result};
use crate::traverse::Node;

/// Most lists of blocks that include each other.
const MAX_LISTS: usize = 1 << 20;

/// A block to visit.
pub(super) type Work = Node<Of>;

/// What is known of the object set that a block is of.
#[derive(Clone, Copy)]
pub(super) struct Of {
    /// Blocks that are not younger were met in an older snapshot.
    pub min_txg: Txg,
    /// A snapshot, whose intent log is a stale copy.
    pub is_snapshot: bool,
    /// The object set was met in a snapshot; only its intent log, which is the head's alone, is to be
    /// visited.
    pub log_only: bool,
    /// A dataset that is being destroyed: counted as waiting to be freed.
    pub is_leaving: bool,
}

/// Where a verification begins.
pub(super) struct Roots {
    pub work: Vec<Work>,
    /// Blocks that nothing refers to any more and that are not free yet.
    pub waiting_to_be_freed: Vec<Blkptr>,
    /// What cannot be followed.
    pub notes: Vec<String>,
}

/// The MOS, and all that is newer than `min_txg`.
pub(super) fn mos(pool: &Pool, min_txg: Txg) -> Work {
    let (bp, at) = (*pool.root_blkptr(), Bookmark::objset_root(0));
    Work { bp, at, tag: Of { min_txg, is_snapshot: false, log_only: false, is_leaving: false } }
}

pub(super) async fn of(pool: &Arc<Pool>) -> Result<Roots> {
    let work = vec![mos(pool, Txg::NONE)];
    let mos = Objset::open(pool, ObjsetId::MOS, pool.root_blkptr()).await?;
    let root = mos.object(DIRECTORY_OBJECT).await?;
    let mut waiting_to_be_freed = Vec::new();
    for list in [directory::SYNC_BPOBJ, directory::FREE_BPOBJ] {
        if let Some(id) = zap::lookup_u64(&root, list).await? {
            read_list(&mos, ObjectId(id), &mut waiting_to_be_freed).await?;
        }
    }
    of_deleted_clones(&mos, &mut waiting_to_be_freed).await?;
    let mut roots = Roots { work, waiting_to_be_freed, notes: Vec::new() };
    if let Some(id) = zap::lookup_u64(&root, directory::BPTREE_OBJ).await? {
        destroyed(&mos, ObjectId(id), &mut roots).await?;
    }
    Ok(roots)
}

/// Adds the blocks of destroyed clones that are not freed yet.
pub(super) async fn of_deleted_clones(mos: &Arc<Objset>, pointers: &mut Vec<Blkptr>) -> Result<()> {
    let root = mos.object(DIRECTORY_OBJECT).await?;
    let Some(id) = zap::lookup_u64(&root, directory::DELETED_CLONES).await? else { return Ok(()) };
    for deadlist in numbers(mos, ObjectId(id)).await? {
        for livelist in numbers(mos, deadlist).await? {
            live(mos, livelist, pointers).await?;
        }
    }
    Ok(())
}

/// The object numbers that are the values of a ZAP.
async fn numbers(mos: &Arc<Objset>, id: ObjectId) -> Result<Vec<ObjectId>> {
    let entries = zap::Zap::open(&mos.object(id).await?).await?.entries(MAX_LISTS).await?;
    Ok(entries.iter().filter_map(|entry| entry.value.as_u64().map(ObjectId)).collect())
}

/// Adds what is left of a deleted clone's livelist: what was allocated and not freed since. A block of a
/// dedup table may be there several times.
async fn live(mos: &Arc<Objset>, id: ObjectId, pointers: &mut Vec<Blkptr>) -> Result<()> {
    let mut entries = Vec::new();
    read_list(mos, id, &mut entries).await?;
    let mut counts: HashMap<(Option<Dva>, Txg), i64> = HashMap::new();
    for entry in &entries {
        let change = if is_free(entry) { -1 } else { 1 };
        *counts.entry((entry.dva(0), entry.birth())).or_default() += change;
    }
    for entry in entries.into_iter().filter(|entry| !is_free(entry)) {
        if let Some(count) = counts.get_mut(&(entry.dva(0), entry.birth()))
            && *count > 0
        {
            *count -= 1;
            pointers.push(entry);
        }
    }
    Ok(())
}

/// Adds the roots of datasets that are being destroyed, and not the part of them that is freed already.
///
/// The object is an array of entries (block pointer, txg before which nothing is to be freed, bookmark to go
/// on at); the bonus area says which entries are left (`bptree_phys`: begin, end, three sizes).
async fn destroyed(mos: &Arc<Objset>, id: ObjectId, roots: &mut Roots) -> Result<()> {
    const ENTRY_BYTES: u64 = 168;
    let what = || format!("list of datasets being destroyed, object {id}");
    let object = mos.object(id).await?;
    let (bonus, order) = object.bonus();
    let mut reader = Reader::new("datasets being destroyed", bonus, order);
    let [begin, end] = reader.u64s().map_err(Error::format(what()))?;
    for index in begin..end.min(begin.saturating_add(MAX_LISTS as u64)) {
        let mut bytes = [0; ENTRY_BYTES as usize];
        object.read_at(index.saturating_mul(ENTRY_BYTES), &mut bytes).await?;
        let mut reader = Reader::new("dataset being destroyed", &bytes, order);
        let bp = Blkptr::read(&mut reader).map_err(Error::format(what()))?;
        let [birth, objset, number, level, blkid] = reader.u64s().map_err(Error::format(what()))?;
        if [objset, number, level, blkid] != [0; 4] {
            roots.notes.push("a dataset is half destroyed: its remaining space shows as leaked".into());
            continue;
        }
        if !bp.is_hole() && bp.birth().get() > birth {
            let at = Bookmark::objset_root(0);
            let tag = Of { min_txg: Txg(birth), is_snapshot: true, log_only: false, is_leaving: true };
            roots.work.push(Work { bp, at, tag });
        }
    }
    Ok(())
}

/// Adds all pointers of a list and of the lists that it includes.
async fn read_list(mos: &Arc<Objset>, id: ObjectId, pointers: &mut Vec<Blkptr>) -> Result<()> {
    let mut pending = vec![id];
    let mut read = 0;
    while let Some(id) = pending.pop() {
        read += 1;
        if read > MAX_LISTS {
            return Err(Error::corrupt(format!("block list {id}"), "lists include each other without end"));
        }
        let list = mos.object(id).await?;
        let (bonus, order) = list.bonus();
        let phys = BpobjPhys::parse(bonus, order).map_err(Error::format(format!("block list {id}")))?;
        let mut left = phys.num_blkptrs;
        for block in 0..=list.dnode().max_block_id.get() {
            // A list has no holes, and looking for its end in a forged one would take for ever.
            let Some(found) = list.block(block).await?.filter(|_| left > 0) else { break };
            for pointer in
                blkptrs(&found.block, found.order).take(usize::try_from(left).unwrap_or(usize::MAX))
            {
                pointers.push(pointer.map_err(Error::format(format!("block list {id}")))?);
                left -= 1;
            }
        }
        let included = phys.included();
        if included.count > 0 {
            let of = mos.object(included.object).await?;
            let mut left = included.count;
            for block in 0..=of.dnode().max_block_id.get() {
                let Some(found) = of.block(block).await?.filter(|_| left > 0) else { break };
                let before = pending.len();
                pending.extend(
                    subobjs(&found.block, found.order).take(usize::try_from(left).unwrap_or(usize::MAX)),
                );
                left -= (pending.len() - before) as u64;
            }
        }
    }
    Ok(())
}

/// The way into a dataset that is an object of the MOS, if it has something newer than `min_txg`.
pub(super) fn dataset_root(object: u64, dnode: &Dnode, min_txg: Txg) -> Result<Option<Work>> {
    let what = format!("dataset {object}");
    let mut reader = Reader::new("dataset", &dnode.bonus, dnode.order);
    let phys = DslDatasetPhys::read(&mut reader).map_err(Error::format(what))?;
    let at = Bookmark::objset_root(object);
    let is_snapshot = phys.num_children != 0;
    let log_only = phys.bp.birth() <= phys.prev_snap_txg;
    let nothing_new = phys.bp.is_hole() || phys.bp.birth() <= min_txg || (log_only && is_snapshot);
    let min_txg = phys.prev_snap_txg.max(min_txg);
    let tag = Of { min_txg, is_snapshot, log_only, is_leaving: false };
    Ok(if nothing_new { None } else { Some(Work { bp: phys.bp, at, tag }) })
}
