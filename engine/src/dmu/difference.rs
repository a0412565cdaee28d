//! The objects that differ between two object sets, found without reading shared blocks.
//!
//! A head and its snapshots share every block of dnodes that was not written since, and every indirect block
//! above such blocks. So the block pointers are compared, from the top of both trees of dnodes down. The cost
//! depends on the number of changes, not on the size of the object sets.

use std::ops::Range;
use std::sync::Arc;

use ondisk::ObjectId;
use ondisk::dnode::{DNODE_MIN_SIZE, Dnode};

use super::{Object, Objset};
use crate::{Error, Result};

/// log2 of the size of a block pointer.
const POINTER_SHIFT: u8 = 7;

/// The numbers of the objects that exist in only one of two committed object sets, or whose dnodes differ, in
/// order. They include all objects whose content differs.
///
/// # Errors
/// A block of either object set cannot be read.
pub async fn differing_objects(a: &Arc<Objset>, b: &Arc<Objset>) -> Result<Vec<ObjectId>> {
    let mut differing = Vec::new();
    for range in differing_ranges(&a.meta_dnode(), &b.meta_dnode()).await? {
        for number in range.start.max(1)..range.end {
            let id = ObjectId(number);
            if dnode(a, id).await? != dnode(b, id).await? {
                differing.push(id);
            }
        }
    }
    Ok(differing)
}

async fn dnode(objset: &Objset, id: ObjectId) -> Result<Option<Dnode>> {
    match objset.dnode(id).await {
        Ok(dnode) => Ok(Some(dnode)),
        Err(Error::NotFound(_)) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Ranges of object numbers in blocks that differ.
async fn differing_ranges(a: &Object, b: &Object) -> Result<Vec<Range<u64>>> {
    let (of_a, of_b) = (a.dnode(), b.dnode());
    let slots = a.block_size() / DNODE_MIN_SIZE as u64;
    let last = of_a.max_block_id.0.max(of_b.max_block_id.0);
    let is_alike = a.block_size() == b.block_size()
        && of_a.indirect_block_shift == of_b.indirect_block_shift
        && of_a.indirect_block_shift > POINTER_SHIFT;
    if !is_alike {
        let end = a.end().max(b.end()) / DNODE_MIN_SIZE as u64;
        let all = 0..end;
        return Ok(vec![all]);
    }
    let shift = u32::from(of_a.indirect_block_shift - POINTER_SHIFT);
    let top = of_a.levels.min(of_b.levels).saturating_sub(1);
    // On each level, the blocks that differ.
    let mut waiting: Vec<u64> = (0..=last.checked_shr(shift * u32::from(top)).unwrap_or(0)).collect();
    for level in (0..=top).rev() {
        let mut differing = Vec::new();
        for id in waiting {
            if pointer(a, level, id).await? != pointer(b, level, id).await? {
                differing.push(id);
            }
        }
        waiting = differing;
        if level > 0 {
            let most = last.checked_shr(shift * u32::from(level - 1)).unwrap_or(0);
            let below = |id: u64| (id << shift)..=(((id + 1) << shift) - 1).min(most);
            waiting = waiting.into_iter().flat_map(below).collect();
        }
    }
    Ok(waiting.into_iter().map(|id| id * slots..(id + 1) * slots).collect())
}

/// The first data block from `from` on that differs between two versions of one object, taken from two
/// committed object sets. `None` when there is no further one.
///
/// # Errors
/// An indirect block of either version cannot be read.
pub async fn next_difference(a: &Object, b: &Object, from: u64) -> Result<Option<u64>> {
    let (of_a, of_b) = (a.dnode(), b.dnode());
    let last = of_a.max_block_id.0.max(of_b.max_block_id.0);
    if a.block_size() != b.block_size() || of_a.indirect_block_shift != of_b.indirect_block_shift {
        return Ok((from <= last).then_some(from));
    }
    let shift = u32::from(of_a.indirect_block_shift.saturating_sub(POINTER_SHIFT));
    let top = of_a.levels.min(of_b.levels).saturating_sub(1);
    let mut at = from;
    'next: while at <= last {
        for level in (0..=top).rev() {
            let id = at.checked_shr(shift * u32::from(level)).unwrap_or(0);
            if pointer(a, level, id).await? == pointer(b, level, id).await? {
                let after = (id + 1).checked_shl(shift * u32::from(level)).filter(|after| *after > at);
                match after {
                    Some(after) => at = after,
                    None => return Ok(None),
                }
                continue 'next;
            }
        }
        return Ok(Some(at));
    }
    Ok(None)
}

/// The pointer to the block `id` of a level; `None` for a hole and after the end.
async fn pointer(object: &Object, level: u8, id: u64) -> Result<Option<ondisk::blkptr::Blkptr>> {
    let dnode = object.dnode();
    let shift = u32::from(dnode.indirect_block_shift.saturating_sub(POINTER_SHIFT)) * u32::from(level);
    match dnode.max_block_id.0.checked_shr(shift).unwrap_or(0) < id {
        true => Ok(None),
        // The first block of dnodes below it leads to it.
        false => object.blkptr(level, id << shift).await,
    }
}
