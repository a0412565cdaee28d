//! Blocks that become those of another object: what is stored is referred to, not copied.
//!
//! Of a range only the beginning is taken whose blocks go the same way: all become references, holes or
//! embedded blocks, or all are copied. Blocks are copied that must not be referred to
//! ([`super::references`]): those whose entry was pruned from a dedup table.

use std::ops::Range;

use ondisk::Txg;
use ondisk::blkptr::Blkptr;

use super::references::Holding;
use super::{Dirtied, LiveObject, LiveObjset, Stored};
use crate::Block;
use crate::error::Result;
use crate::txg::Tx;

/// The most bytes that are copied in one go.
const COPIED_BYTES: u64 = 1 << 20;

/// What a block of an object becomes.
#[derive(Debug)]
pub enum Piece {
    /// Nothing is stored.
    Hole,
    /// What is stored there, from now on by both.
    Reference(Blkptr),
    /// Embedded blocks have no address that could be referred to; others are copied.
    Data(Block, Blkptr),
}

impl Piece {
    /// The pointer to it in the intent log.
    pub fn pointer(&self) -> Blkptr {
        match self {
            Self::Hole => Blkptr::HOLE,
            Self::Reference(pointer) | Self::Data(_, pointer) => *pointer,
        }
    }
}

/// What blocks of an object become, one after the other.
#[derive(Debug, Default)]
pub struct Pieces {
    pieces: Vec<Piece>,
    holding: Holding,
}

impl Pieces {
    /// Pieces with the pointers of a record of the intent log. None if one of them must not be referred to.
    pub(crate) async fn logged(objset: &LiveObjset, pieces: Vec<Piece>) -> Result<Option<Self>> {
        let holding = objset.hold(pieces.iter().map(Piece::pointer)).await?;
        let is_refused = pieces.iter().any(|piece| holding.refuses(&piece.pointer()));
        Ok((!is_refused).then_some(Self { pieces, holding }))
    }

    /// Each of them.
    pub fn all(&self) -> &[Piece] {
        &self.pieces
    }

    /// The number of blocks.
    pub fn len(&self) -> usize {
        self.pieces.len()
    }

    /// Whether there is no block.
    pub fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// Whether the blocks are copied, so that their pointers say nothing of what the other object has.
    pub(crate) fn are_copied(&self) -> bool {
        self.pieces.iter().any(|piece| matches!(piece, Piece::Data(_, pointer) if !pointer.is_embedded()))
    }
}

impl LiveObject {
    /// The contents of up to `count` blocks from the block `first` on, up to the first that another object
    /// cannot have in this way: it was written since the last commit, or it is redacted. Holds them until
    /// they are put: into this object set, or one with the same key ([`LiveObjset::may_share_with`]).
    ///
    /// [`LiveObjset::may_share_with`]: super::LiveObjset::may_share_with
    pub async fn pieces(&self, first: u64, count: u64) -> Result<Pieces> {
        let mut pieces = Vec::new();
        for id in first..first.saturating_add(count) {
            pieces.push(match self.stored(id).await? {
                Stored::Changed => break,
                Stored::Hole => Piece::Hole,
                Stored::Block(pointer) if pointer.is_embedded() => match self.block(id).await? {
                    Some(found) => Piece::Data(found.block, pointer),
                    None => Piece::Hole,
                },
                Stored::Block(pointer) if pointer.is_redacted() => break,
                Stored::Block(pointer) => Piece::Reference(pointer),
            });
        }
        let holding = self.objset().hold(pieces.iter().map(Piece::pointer)).await?;
        let is_refused = |piece: &Piece| holding.refuses(&piece.pointer());
        let taken = pieces.iter().position(is_refused).unwrap_or(pieces.len());
        if taken > 0 || pieces.is_empty() {
            pieces.truncate(taken);
            return Ok(Pieces { pieces, holding });
        }
        let most = usize::try_from(COPIED_BYTES / self.block_size().max(1)).unwrap_or(1).max(1);
        let refused = pieces.into_iter().take(most).take_while(is_refused);
        let mut copied = Vec::new();
        for (id, piece) in (first..).zip(refused) {
            match self.block(id).await? {
                Some(found) => copied.push(Piece::Data(found.block, piece.pointer())),
                None => break,
            }
        }
        Ok(Pieces { pieces: copied, holding: Holding::default() })
    }

    /// The blocks that putting pieces of `block_size` bytes into a range makes dirty in the group `txg`.
    pub(crate) fn newly_dirty_by_pieces(
        &self,
        txg: Txg,
        range: &Range<u64>,
        block_size: u64,
        pieces: &Pieces,
    ) -> Dirtied {
        if pieces.are_copied() {
            return self.newly_dirty(txg, range, u32::try_from(block_size).ok());
        }
        let embedded = pieces.pieces.iter().filter(|piece| matches!(piece, Piece::Data(..))).count() as u64;
        Dirtied { blocks: embedded, ..self.newly_dirty_by_clone(txg, range, block_size) }
    }

    /// Makes blocks from `offset` on, where one begins, what the pieces are.
    ///
    /// # Errors
    /// A piece has another size than the blocks of this object.
    pub(crate) async fn put_pieces(&self, tx: &Tx, offset: u64, pieces: &Pieces) -> Result<()> {
        pieces.holding.is_used_by(tx);
        let block_size = self.block_size();
        for (id, piece) in (offset / block_size..).zip(&pieces.pieces) {
            match piece {
                Piece::Hole => self.punch(tx, id * block_size, block_size).await?,
                Piece::Data(block, _) => self.write_block(tx, id, block.clone()),
                Piece::Reference(pointer) => {
                    if !self.clone_block(tx, id, pointer)? {
                        return Err(self.corrupt("a block of another size"));
                    }
                }
            }
        }
        Ok(())
    }
}
