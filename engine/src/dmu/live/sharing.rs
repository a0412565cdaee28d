//! Blocks of objects that become references to equal blocks stored elsewhere.
//!
//! # The idea
//! Equal data that were stored in the same way have pointers that say so: checksum, sizes, compression. So
//! equal blocks are found by their pointers ([`LiveObject::stored_blocks`]), and no data are read for that.
//! Before a block becomes a reference to another one, the bytes of both are compared
//! ([`LiveObject::equal_blocks`]) by a caller that holds locks of both. So what a reader sees never changes,
//! whatever a checksum is worth.
//!
//! # Which blocks
//! - Of the same kind and size, with the same checksum function, compression and number of copies: a dataset
//!   gets no block of a feature that it does not use, and no block is less safe than before.
//! - Neither embedded in their pointers nor encrypted nor redacted, and with a checksum.
//! - Not those that were written since the last commit: they are not stored yet, or may still be written
//!   early for the intent log.
//! - No references to deduplicated blocks whose entries were pruned ([`super::references`]).

use std::hash::{DefaultHasher, Hash, Hasher};

use ondisk::Txg;
use ondisk::blkptr::{Blkptr, ChecksumType};

use super::references::Holding;
use super::{LiveObject, Stored};
use crate::error::Result;
use crate::txg::Tx;

/// The most bytes that are locked and compared at once.
const PIECE_BYTES: u64 = 1 << 20;

/// A block that may be shared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoredBlock {
    /// Its number in the object.
    pub id: u64,
    /// The same for blocks that look equal by their pointers; hardly ever for others.
    pub digest: u64,
    /// The same for references to one stored block.
    pub place: u64,
    /// The group in which it was stored.
    pub birth: Txg,
    /// Bytes that it takes on its vdevs, all copies together.
    pub allocated_bytes: u64,
}

/// A part of the blocks of an object.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StoredBlocks {
    /// Those that may be shared, in order.
    pub blocks: Vec<StoredBlock>,
    /// Where the next part begins; none after the last one.
    pub next: Option<u64>,
}

/// What became of blocks that were to be shared.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Shared {
    /// Blocks that are references now.
    pub blocks: u64,
    /// Bytes that these took on their vdevs.
    pub allocated_bytes: u64,
    /// Blocks that had been references to the same stored block already.
    pub already: u64,
    /// Blocks that differ, or that cannot be shared.
    pub different: u64,
}

/// Blocks of an object, with the pointers to equal ones that they may be replaced by.
#[derive(Debug, Default)]
pub(crate) struct Equal {
    blocks: Vec<(u64, Blkptr)>,
    holding: Holding,
}

impl Equal {
    /// Whether there is none.
    pub(crate) fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }
}

impl Shared {
    /// Both.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            blocks: self.blocks.saturating_add(other.blocks),
            allocated_bytes: self.allocated_bytes.saturating_add(other.allocated_bytes),
            already: self.already.saturating_add(other.already),
            different: self.different.saturating_add(other.different),
        }
    }
}

/// Splits `count` blocks into pieces that are locked and compared at once: the first block of each, from 0
/// on, and how many.
pub(crate) fn pieces_of(count: u64, block_size: u64) -> impl Iterator<Item = (u64, u64)> {
    let most = (PIECE_BYTES / block_size.max(1)).max(1);
    (0..count.div_ceil(most)).map(move |piece| (piece * most, most.min(count - piece * most)))
}

impl StoredBlock {
    fn of(id: u64, bp: &Blkptr) -> Option<Self> {
        may_be_shared(bp).then(|| Self {
            id,
            digest: digest(bp),
            place: place(bp),
            birth: bp.physical_birth(),
            allocated_bytes: bp.asize().0,
        })
    }
}

fn may_be_shared(bp: &Blkptr) -> bool {
    let has_checksum = bp.checksum_type() != ChecksumType::Off;
    let is_plain = !bp.is_hole() && !bp.is_embedded() && !bp.uses_crypt() && !bp.is_redacted();
    is_plain && has_checksum
}

/// What equal blocks that are stored in the same way have in common.
fn look(bp: &Blkptr) -> impl Hash + PartialEq + use<> {
    let way = (bp.checksum_type().raw(), bp.compress().raw(), bp.dmu_type().raw(), bp.copies());
    (bp.checksum(), bp.lsize().0, bp.psize().0, way)
}

fn hash(of: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    of.hash(&mut hasher);
    hasher.finish()
}

fn digest(bp: &Blkptr) -> u64 {
    hash(&look(bp))
}

fn place(bp: &Blkptr) -> u64 {
    let dvas: Vec<(u32, u64)> = bp.dvas().map(|dva| (dva.vdev.0, dva.offset.0)).collect();
    hash(&(dvas, bp.physical_birth().get()))
}

impl LiveObject {
    /// The blocks from `first` on that may be shared. Looks at `most` pointers at most.
    pub async fn stored_blocks(&self, first: u64, most: u64) -> Result<StoredBlocks> {
        let block_size = self.block_size();
        let end = self.end().div_ceil(block_size);
        let mut found = StoredBlocks::default();
        let (mut id, mut looked) = (first, 0);
        while id < end {
            if looked >= most {
                found.next = Some(id);
                break;
            }
            looked += 1;
            let block = match self.stored(id).await? {
                Stored::Block(bp) => StoredBlock::of(id, &bp),
                Stored::Changed => None,
                Stored::Hole => {
                    // There may be no other block for a long way.
                    let span = self.span(id.saturating_mul(block_size)).await?;
                    id = if span.is_hole { (span.end / block_size).max(id + 1) } else { id + 1 };
                    continue;
                }
            };
            found.blocks.extend(block);
            id += 1;
        }
        Ok(found)
    }

    /// Which of `count` blocks from `first` on are equal to those of another object from `its_first` on, with
    /// the pointers that they may be replaced by. The caller has locked both, so that they do not change.
    pub(crate) async fn equal_blocks(
        &self,
        first: u64,
        other: &Self,
        its_first: u64,
        count: u64,
    ) -> Result<(Equal, Shared)> {
        let (mut alike, mut shared) = (Vec::new(), Shared::default());
        for (id, its_id) in (first..first.saturating_add(count)).zip(its_first..) {
            match (self.stored(id).await?, other.stored(its_id).await?) {
                (Stored::Block(here), Stored::Block(there))
                    if may_be_shared(&here) && look(&here) == look(&there) =>
                {
                    match place(&here) == place(&there) {
                        true => shared.already += 1,
                        false => alike.push((id, here, its_id, there)),
                    }
                }
                _ => shared.different += 1,
            }
        }
        let holding = self.objset().hold(alike.iter().map(|(.., there)| *there)).await?;
        let mut blocks = Vec::new();
        for (id, here, its_id, there) in alike {
            if !holding.refuses(&there) && self.has_bytes_of(id, other, its_id).await? {
                shared.blocks += 1;
                shared.allocated_bytes = shared.allocated_bytes.saturating_add(here.asize().0);
                blocks.push((id, there));
            } else {
                shared.different += 1;
            }
        }
        Ok((Equal { blocks, holding }, shared))
    }

    async fn has_bytes_of(&self, id: u64, other: &Self, its_id: u64) -> Result<bool> {
        match (self.block(id).await?, other.block(its_id).await?) {
            (Some(here), Some(there)) => Ok(*here.block == *there.block),
            _ => Ok(false),
        }
    }

    /// Makes blocks references to the stored blocks that they are equal to.
    pub(crate) fn put_equal(&self, tx: &Tx, equal: &Equal) -> Result<()> {
        equal.holding.is_used_by(tx);
        for (id, pointer) in &equal.blocks {
            if !self.clone_block(tx, *id, pointer)? {
                return Err(self.corrupt("a block of another size"));
            }
        }
        Ok(())
    }
}
