//! Who follows a dataset, as a view of the pool says.

use ondisk::ObjectId;

use super::cursor::Links;
use crate::dsl::Dsl;
use crate::error::{Error, Result};
use ondisk::Txg;
use ondisk::blkptr::Blkptr;

/// Longer chains of snapshots are taken for loops.
const MAX_SNAPSHOTS: usize = 1 << 24;

/// The root block of a dataset, and what the scan must know of it.
pub(super) async fn dataset(dsl: &Dsl, object: u64) -> Result<(Blkptr, Links)> {
    let dataset = dsl.mos().dataset(ObjectId(object), String::new(), dsl.root()).await?;
    let phys = &dataset.phys;
    let mut links = Links {
        creation_txg: phys.creation_txg,
        prev_snap_txg: phys.prev_snap_txg,
        is_snapshot: dataset.is_snapshot(),
        next_snap: Some(phys.next_snap.get()).filter(|next| *next != 0 && dataset.is_snapshot()),
        clones: Vec::new(),
    };
    if phys.num_children > 1 {
        let entries = match phys.next_clones.is_none() {
            true => Vec::new(),
            false => dsl.mos().u64_entries(phys.next_clones).await?,
        };
        // Old versions forgot to note some.
        links.clones = match entries.len() as u64 == phys.num_children - 1 {
            true => entries.into_iter().map(|(_, clone)| clone).collect(),
            false => firsts_after(dsl, ObjectId(object)).await?,
        };
    }
    Ok((phys.bp, links))
}

/// The datasets that follow nothing, each with the group after which its blocks count: of pools without
/// `$ORIGIN`, the first snapshot or the head of all that is no clone.
pub(super) async fn firsts(dsl: &Dsl) -> Result<Vec<(u64, Txg)>> {
    let firsts = firsts_after(dsl, ObjectId(0)).await?;
    Ok(firsts.into_iter().map(|first| (first, Txg::NONE)).collect())
}

/// The first datasets of all directories that begin at this snapshot.
async fn firsts_after(dsl: &Dsl, origin: ObjectId) -> Result<Vec<u64>> {
    let mut found = Vec::new();
    let mut dirs = vec![std::sync::Arc::clone(dsl.root())];
    while let Some(dir) = dirs.pop() {
        dirs.extend(dsl.all_children(&dir).await?);
        if dir.phys.origin != origin || dir.phys.head_dataset.is_none() {
            continue;
        }
        let mut at = dir.phys.head_dataset;
        for _ in 0..MAX_SNAPSHOTS {
            let previous = dsl.mos().dataset(at, String::new(), &dir).await?.phys.prev_snap;
            if previous == origin || previous.is_none() {
                found.push(at.get());
                break;
            }
            at = previous;
        }
        if found.last() != Some(&at.get()) {
            return Err(Error::corrupt(&dir.name, "its snapshots form a loop"));
        }
    }
    Ok(found)
}
