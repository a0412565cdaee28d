//! What the blocks that a group wrote and gave up mean for their dataset: who counts them, and who frees
//! them.
//!
//! A block that a head no longer refers to is freed at once when it was born after the snapshot before the
//! head: no other dataset can have it. Otherwise that snapshot has it: it goes onto the head's deadlist and
//! counts for snapshots from now on; and when it was born after the snapshot before *that*, it is unique to
//! it.
//!
//! A head's *unique* bytes are those born since its last snapshot. What they lack to its refreservation its
//! directory counts as reserved.
//!
//! Source of the facts: OpenZFS 2.3 `dsl_dataset.c` (`dsl_dataset_block_born`, `dsl_dataset_block_kill`),
//! `dsl_bookmark.c`.

use futures_util::{StreamExt, TryStreamExt, stream};
use ondisk::blkptr::Blkptr;
use ondisk::features::Feature;
use ondisk::pool_directory::hidden_dir;
use ondisk::pool_version as version;
use ondisk::{ObjectId, ObjsetId, Txg};

use super::space::{Change, Used, counts, did_use, did_use_and_transfer, moved, sum, transfer, weigh};
use super::{bookmark, deadlist, features, freeing, livelist, objects, policy, properties};
use crate::dmu::{Space, SyncedObjset};
use crate::dsl::SyncTask;
use crate::error::{Error, Result};
use crate::properties::Prop;

/// Blocks that are freed side by side.
const AT_ONCE: usize = 32;

/// The MOS was written: its space counts for the hidden directory `$MOS`, and what it gave up is freed at
/// once.
pub async fn mos_synced(s: &SyncTask, done: &SyncedObjset) -> Result<()> {
    let mut change = Change::more(done.born);
    let killed: Vec<Blkptr> = done.killed.iter().filter(|bp| counts(bp)).copied().collect();
    for bp in &killed {
        change = change.plus(Change::less(weigh(s, bp)));
    }
    free(s, &killed).await?;
    did_use(s, hidden(s, hidden_dir::MOS).await?, Used::Head, change).await
}

/// The hidden directory `name`.
pub(super) async fn hidden(s: &SyncTask, name: &str) -> Result<ObjectId> {
    let missing = || Error::corrupt(s.pool().name(), format!("has no directory {name}"));
    let root = super::root_dir(s).await?;
    let children = objects::dir(s, root).await?.child_dir_zap;
    objects::lookup(s, children, &objects::name(name)).await?.map(ObjectId).ok_or_else(missing)
}

/// Gives the space of blocks back. The headers of gangs are read many at a time: in a pool whose free space
/// is in pieces most indirect blocks are gangs.
pub(super) async fn free(s: &SyncTask, blocks: &[Blkptr]) -> Result<()> {
    let mut last = Vec::new();
    s.dsl_pool().tables().prepare_release(blocks).await?;
    for bp in blocks {
        if bp.is_hole() || bp.is_embedded() {
            continue;
        }
        // One after the other: references to the same block are counted.
        if s.release(bp).await? {
            last.push(*bp);
        }
    }
    let (writer, txg) = (s.writer(), s.txg());
    let freed = stream::iter(last).map(|bp| async move { writer.free(txg, &bp).await });
    freed.buffer_unordered(AT_ONCE).try_collect().await
}

/// A head's object set was written: its pointer, what it counts, and what becomes of the blocks that it gave
/// up.
pub async fn synced(s: &SyncTask, dataset: ObjsetId, done: &SyncedObjset) -> Result<()> {
    let id = ObjectId(dataset.get());
    let phys = objects::dataset(s, id).await?;
    if phys.is_snapshot() {
        return Err(objects::corrupt(id, "a snapshot was written to"));
    }
    let root_is_new = done.root != phys.bp;
    if !root_is_new && done.killed.is_empty() && done.born == Space::default() {
        return Ok(());
    }
    if root_is_new && done.root.uses_crypt() != policy::is_encrypted(s, phys.dir).await? {
        let detail = "an encrypted dataset was written plain, or a plain one encrypted";
        return Err(objects::corrupt(id, detail));
    }
    if done.born != Space::default() {
        policy::activate_features(s, id).await?;
    }
    let of_what_was_written = [
        (done.has_large_blocks, Feature::LargeBlocks),
        (done.has_large_dnodes, Feature::LargeDnode),
        (done.keeps_births, Feature::PhysicalRewrite),
    ];
    for (_, feature) in of_what_was_written.iter().filter(|(is_so, _)| *is_so) {
        features::activate_all(s, id, &[*feature]).await?;
    }
    let origin_txg = origin_txg(s, phys.dir).await?;
    livelist::synced(s, phys.dir, origin_txg, done).await?;
    let mut dead = Dead::new(phys.prev_snap_txg, origin_txg);
    let mut freed = Vec::new();
    for bp in done.killed.iter().filter(|bp| counts(bp)) {
        if dead.add(bp, weigh(s, bp)) {
            freed.push(*bp);
        }
    }
    freeing::free_or_list(s, freed).await?;
    deadlist::insert(s, phys.deadlist, &dead.listed).await?;
    if !dead.listed.is_empty() {
        note_unique_to_previous(s, id, phys.prev_snap, &dead.listed).await?;
        transfer(s, phys.dir, signed(dead.to_snapshots), Used::Head, Used::Snap).await?;
    }
    bookmark::blocks_killed(s, id, &done.killed).await?;

    let reserved = properties::number(s, phys.dir, Prop::Refreservation).await?;
    let head = Change::more(done.born).plus(Change::less(dead.freed));
    let delta = objects::change_dataset(s, id, |phys| {
        let referenced = Change::more(done.born).plus(Change::less(sum(dead.freed, dead.kept)));
        phys.referenced_bytes = moved(phys.referenced_bytes, referenced.used);
        phys.compressed_bytes = moved(phys.compressed_bytes, referenced.compressed);
        phys.uncompressed_bytes = moved(phys.uncompressed_bytes, referenced.uncompressed);
        phys.bp = done.root;
        let before = phys.unique_bytes;
        phys.unique_bytes = moved(before, head.used);
        phys.unique_bytes.max(reserved).wrapping_sub(before.max(reserved)) as i64
    })
    .await?;
    let change = Change { used: delta, ..head };
    did_use_and_transfer(s, phys.dir, change, head.used, Used::RefReserved, Used::Head).await?;
    livelist::end_if_useless(s, id).await
}

fn signed(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

/// What a head gave up, sorted.
#[derive(Debug)]
struct Dead {
    previous: Txg,
    origin: Txg,
    /// Blocks that the previous snapshot has.
    listed: Vec<Blkptr>,
    /// Space of blocks that no dataset has any more.
    freed: Space,
    /// Space of `listed`.
    kept: Space,
    /// Of that, what this directory's snapshots count from now on, and not its origin's.
    to_snapshots: u64,
}

impl Dead {
    fn new(previous: Txg, origin: Txg) -> Self {
        Dead {
            previous,
            origin,
            listed: Vec::new(),
            freed: Space::default(),
            kept: Space::default(),
            to_snapshots: 0,
        }
    }

    /// Takes a block up. True when it is to be freed.
    fn add(&mut self, bp: &Blkptr, weight: Space) -> bool {
        if bp.birth() > self.previous {
            self.freed = sum(self.freed, weight);
            return true;
        }
        self.listed.push(*bp);
        self.kept = sum(self.kept, weight);
        if bp.birth() > self.origin {
            self.to_snapshots = self.to_snapshots.saturating_add(weight.used);
        }
        false
    }
}

/// When the snapshot was taken that a directory's head is a clone of (`dd_origin_txg`); none for what is no
/// clone on old pools.
pub(super) async fn origin_txg(s: &SyncTask, dir: ObjectId) -> Result<Txg> {
    let origin = objects::dir(s, dir).await?.origin;
    match origin.is_none() {
        true => Ok(Txg::NONE),
        false => Ok(objects::dataset(s, origin).await?.creation_txg),
    }
}

/// Blocks that only the snapshot before a head has now are unique to it.
async fn note_unique_to_previous(
    s: &SyncTask,
    head: ObjectId,
    previous: ObjectId,
    listed: &[Blkptr],
) -> Result<()> {
    let snapshot = objects::dataset(s, previous).await?;
    if snapshot.next_snap != head {
        return Ok(());
    }
    let unique = listed.iter().filter(|bp| bp.birth() > snapshot.prev_snap_txg);
    let bytes = unique.map(|bp| weigh(s, bp).used).fold(0, u64::saturating_add);
    objects::change_dataset(s, previous, |phys| {
        phys.unique_bytes = phys.unique_bytes.saturating_add(bytes);
    })
    .await
}

/// The flag of heads whose unique bytes are right, in pools that have it.
pub(super) fn accurate(s: &SyncTask) -> u64 {
    match s.has_version(version::UNIQUE_ACCURATE) {
        true => ondisk::dsl_dataset::FLAG_UNIQUE_ACCURATE,
        false => 0,
    }
}

/// What a head's unique bytes are by what it references and what the snapshot before it had
/// (`dsl_dataset_recalc_head_uniq`).
pub(super) async fn recount_unique(s: &SyncTask, head: ObjectId) -> Result<u64> {
    let phys = objects::dataset(s, head).await?;
    let previous = match phys.prev_snap.is_none() {
        true => 0,
        false => objects::dataset(s, phys.prev_snap).await?.referenced_bytes,
    };
    let dead = deadlist::space(s, phys.deadlist).await?.used;
    let unique = phys.referenced_bytes.saturating_sub(previous.saturating_sub(dead));
    objects::change_dataset(s, head, |phys| {
        phys.unique_bytes = unique;
        phys.flags |= accurate(s);
    })
    .await?;
    Ok(unique)
}
