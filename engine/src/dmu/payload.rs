//! Bytes to write into an object.
//!
//! Most come in one run, of which each block gets a copy. A caller that receives many bytes at once receives
//! them into blocks instead ([`Payload::of_blocks`]): a block with exactly the size and the place of a block
//! of the object becomes that block without a copy. Other bytes are copied as from a run.

use std::borrow::Cow;

use crate::Block;

/// Bytes to be written.
#[derive(Debug, Clone, Copy)]
pub struct Payload<'a>(Pieces<'a>);

#[derive(Debug, Clone, Copy)]
enum Pieces<'a> {
    Run(&'a [u8]),
    /// `length` bytes from byte `start` of the first block on.
    Blocks {
        blocks: &'a [Block],
        start: usize,
        length: usize,
    },
}

impl<'a> From<&'a [u8]> for Payload<'a> {
    fn from(bytes: &'a [u8]) -> Self {
        Self(Pieces::Run(bytes))
    }
}

impl PartialEq for Payload<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.to_run() == other.to_run()
    }
}

impl Eq for Payload<'_> {}

impl<'a> Payload<'a> {
    /// The first `length` bytes of consecutive blocks, or all if there are fewer. None of the blocks is
    /// empty.
    pub fn of_blocks(blocks: &'a [Block], length: usize) -> Self {
        let there = blocks.iter().fold(0, |sum: usize, block| sum.saturating_add(block.len()));
        Self(Pieces::Blocks { blocks, start: 0, length: length.min(there) })
    }

    /// The number of bytes.
    pub fn len(&self) -> usize {
        match self.0 {
            Pieces::Run(bytes) => bytes.len(),
            Pieces::Blocks { length, .. } => length,
        }
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The first bytes, at most `at` of them, and the others.
    pub fn split_at(self, at: usize) -> (Self, Self) {
        match self.0 {
            Pieces::Run(bytes) => {
                let (first, later) = bytes.split_at(at.min(bytes.len()));
                (first.into(), later.into())
            }
            Pieces::Blocks { blocks, start, length } => {
                let at = at.min(length);
                let (mut later, mut skipped) = (blocks, start + at);
                while let [block, behind @ ..] = later
                    && skipped >= block.len()
                {
                    (later, skipped) = (behind, skipped - block.len());
                }
                let first = Pieces::Blocks { blocks, start, length: at };
                (Self(first), Self(Pieces::Blocks { blocks: later, start: skipped, length: length - at }))
            }
        }
    }

    /// The block, if it consists of exactly one block.
    pub(super) fn as_block(&self) -> Option<&'a Block> {
        match self.0 {
            Pieces::Blocks { blocks: [block, ..], start: 0, length } if length == block.len() => Some(block),
            _ => None,
        }
    }

    /// All bytes in one run: copied only if they are in several blocks.
    pub fn to_run(self) -> Cow<'a, [u8]> {
        let (blocks, start, length) = match self.0 {
            Pieces::Run(bytes) => return bytes.into(),
            Pieces::Blocks { blocks, start, length } => (blocks, start, length),
        };
        if let Some(run) = blocks.first().and_then(|block| block.get(start..start + length)) {
            return run.into();
        }
        let mut run = Vec::with_capacity(length);
        let mut start = start;
        for block in blocks {
            let piece = block.get(start..).unwrap_or_default();
            run.extend_from_slice(&piece[..piece.len().min(length - run.len())]);
            start = 0;
        }
        run.into()
    }
}

#[cfg(test)]
mod tests {
    use device::IoBuf;

    use super::*;

    fn blocks(sizes: &[usize]) -> Vec<Block> {
        let mut next = 0u8;
        let filled = |size: usize| {
            let bytes: Vec<u8> = std::iter::repeat_with(|| {
                next = next.wrapping_add(1);
                next
            })
            .take(size)
            .collect();
            Block::from(IoBuf::from(&bytes[..]))
        };
        sizes.iter().copied().map(filled).collect()
    }

    #[test]
    fn what_is_split_is_the_same_bytes_wherever_blocks_end() {
        let blocks = blocks(&[5, 3, 7, 4]);
        let all: Vec<u8> = (1..=19).collect();
        for length in 0..=19 {
            let payload = Payload::of_blocks(&blocks, length);
            assert_eq!((payload.len(), payload.is_empty()), (length, length == 0));
            for one in 0..=length {
                for other in one..=length + 1 {
                    let (first, later) = payload.split_at(one);
                    let (middle, last) = later.split_at(other - one);
                    let runs = [first.to_run(), middle.to_run(), last.to_run()].concat();
                    assert_eq!(runs, all[..length], "{one}, {other}");
                    assert_eq!(middle.len(), other.min(length) - one);
                }
            }
        }
        assert_eq!(Payload::of_blocks(&blocks, 100).len(), 19);
        assert!(Payload::of_blocks(&[], 1).to_run().is_empty());
    }

    #[test]
    fn a_block_is_one_only_from_its_first_byte_to_its_last() {
        let blocks = blocks(&[5, 5]);
        let payload = Payload::of_blocks(&blocks, 10);
        assert!(payload.as_block().is_none());
        let (first, second) = payload.split_at(5);
        assert!(first.as_block().is_some_and(|block| block.is_same(&blocks[0])));
        assert!(second.as_block().is_some_and(|block| block.is_same(&blocks[1])));
        assert!(payload.split_at(4).0.as_block().is_none());
        assert!(payload.split_at(1).1.split_at(4).0.as_block().is_none());
        assert!(Payload::of_blocks(&blocks, 9).split_at(5).1.as_block().is_none());
        assert!(Payload::from(&[1, 2, 3, 4, 5][..]).as_block().is_none());
        // Bytes in one block are not copied.
        assert!(matches!(payload.split_at(6).1.to_run(), Cow::Borrowed(_)));
        assert!(matches!(payload.split_at(4).1.to_run(), Cow::Owned(_)));
    }
}
