//! The objects that differ between two object sets, found without reading shared blocks.
//!
//! A head and its snapshots share every block of dnodes that was not written since, and every indirect block
//! above such blocks. So the block pointers are compared, from the top of both trees of dnodes down. The cost
//! depends on the number of changes, not on the size of the object sets.

use std::ops::Range;
use std::sync::Arc;

use ondisk::ObjectId;
use ondisk::dnode::{DNODE_MIN_SIZE, Dnode};

use super::objset::MAX_OBJECT;
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
    let mut all = Vec::new();
    let mut differing = DifferingObjects::new(a, b);
    while let Some(id) = differing.next().await? {
        all.push(id);
    }
    Ok(all)
}

/// The same, one after the other: there may be more of them than memory has room for.
#[derive(Debug)]
pub struct DifferingObjects {
    objsets: [Arc<Objset>; 2],
    /// Numbers that are still to be compared, in a part of the object sets that differs.
    numbers: Range<u64>,
}

impl DifferingObjects {
    /// Begins with the first object.
    pub fn new(a: &Arc<Objset>, b: &Arc<Objset>) -> Self {
        Self { objsets: [Arc::clone(a), Arc::clone(b)], numbers: 0..0 }
    }

    /// The next object that differs.
    ///
    /// # Errors
    /// A block of either object set cannot be read.
    pub async fn next(&mut self) -> Result<Option<ObjectId>> {
        loop {
            for number in self.numbers.by_ref() {
                let (id, [a, b]) = (ObjectId(number), &self.objsets);
                if dnode(a, id).await? != dnode(b, id).await? {
                    return Ok(Some(id));
                }
            }
            match self.next_range().await? {
                Some(range) => self.numbers = range,
                None => return Ok(None),
            }
        }
    }

    /// The next numbers of objects that may differ: those of a block of dnodes.
    async fn next_range(&self) -> Result<Option<Range<u64>>> {
        let [a, b] = &self.objsets;
        let (of_a, of_b) = (a.meta_dnode(), b.meta_dnode());
        let from = self.numbers.end;
        let shift = of_a.dnode().indirect_block_shift;
        let is_alike = of_a.block_size() == of_b.block_size()
            && shift == of_b.dnode().indirect_block_shift
            && shift > POINTER_SHIFT;
        if !is_alike {
            // Their blocks cannot be shared, and all objects are compared.
            let from = ObjectId(from.max(1));
            let next = [a.next_object(from).await?, b.next_object(from).await?];
            return Ok(next.into_iter().flatten().min().map(|next| next.0..next.0 + 1));
        }
        let slots = (of_a.block_size() / DNODE_MIN_SIZE as u64).max(1);
        let Some(block) = next_difference(&of_a, &of_b, from / slots).await? else { return Ok(None) };
        let first = block.checked_mul(slots).filter(|first| *first <= MAX_OBJECT);
        // Object 0 is the array of dnodes itself.
        Ok(first.map(|first| first.max(1)..first + slots))
    }
}

async fn dnode(objset: &Objset, id: ObjectId) -> Result<Option<Dnode>> {
    match objset.dnode(id).await {
        Ok(dnode) => Ok(Some(dnode)),
        Err(Error::NotFound(_)) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The first data block from `from` on that differs between two versions of one object, taken from two
/// committed object sets. `None` when there is no further one.
///
/// # Errors
/// An indirect block of either version cannot be read.
pub async fn next_difference(a: &Object, b: &Object, from: u64) -> Result<Option<u64>> {
    let (of_a, of_b) = (a.dnode(), b.dnode());
    let last = last_block(of_a).max(last_block(of_b));
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

/// The last block that an object may have: what a damaged dnode says beyond the reach of its pointers counts
/// for nothing.
fn last_block(dnode: &Dnode) -> u64 {
    let shift = dnode.pointers_per_indirect_shift() * u32::from(dnode.levels.saturating_sub(1));
    let pointers = dnode.blkptrs.len() as u64;
    let reach = pointers.checked_shl(shift).filter(|reach| reach >> shift == pointers);
    dnode.max_block_id.0.min(reach.unwrap_or(u64::MAX).saturating_sub(1))
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
