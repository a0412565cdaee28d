//! Blocks that become those of another object: what is stored is referred to, not copied.

use ondisk::blkptr::Blkptr;

use super::{LiveObject, Stored};
use crate::Block;
use crate::error::Result;
use crate::txg::Tx;

/// What a block of an object becomes.
#[derive(Debug)]
pub enum Piece {
    /// Nothing is stored.
    Hole,
    /// What is stored there, from now on by both.
    Reference(Blkptr),
    /// Embedded blocks have no address that could be referred to.
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

impl LiveObject {
    /// The contents of `count` blocks from the block `first` on, up to the first that another object cannot
    /// refer to: it was written since the last commit, or it is encrypted or redacted.
    pub async fn pieces(&self, first: u64, count: u64) -> Result<Vec<Piece>> {
        let mut pieces = Vec::new();
        for id in first..first.saturating_add(count) {
            pieces.push(match self.stored(id).await? {
                Stored::Changed => break,
                Stored::Hole => Piece::Hole,
                Stored::Block(pointer) if pointer.is_embedded() => match self.block(id).await? {
                    Some(found) => Piece::Data(found.block, pointer),
                    None => Piece::Hole,
                },
                // Keys and redactions would have to be considered.
                Stored::Block(pointer) if pointer.uses_crypt() || pointer.is_redacted() => break,
                Stored::Block(pointer) => Piece::Reference(pointer),
            });
        }
        Ok(pieces)
    }

    /// Makes blocks from `offset` on, where one begins, what the pieces are.
    ///
    /// # Errors
    /// A piece has another size than the blocks of this object.
    pub async fn put_pieces(&self, tx: &Tx, offset: u64, pieces: &[Piece]) -> Result<()> {
        let block_size = self.block_size();
        for (id, piece) in (offset / block_size..).zip(pieces) {
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
